/* Going on with the mounts of a server that died, or left. */
#include "fs/mount/server_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"

enum {
	/* Of one mount, each the end of a server: then it is given up. */
	RESUMES_MAX = 3 * HOLDER_CRASH,
	LOOK_MS = 2000,  /* between two looks for what the kernel has let go */
};

/* The workspace opened, its mount served again. */
static int resume_served(struct server *s, const struct holder_entry *e, const struct held *held,
			 struct served **out, struct err *err)
{
	struct served *w;
	int fd = e->fd;
	int r = served_claim(s, held->id, &w, err);
	if (r < 0) {
		cleanup_close(&fd);
		return r;
	}
	struct session_options so = server_session_options(s);
	r = ws_resume(&w->ws, s->work, held->id, err);
	if (r == 0)
		r = session_resume(&w->session, w->ws, e->key, fd, held, &so, err);
	else
		cleanup_close(&fd);
	if (r < 0 && w->ws) {
		struct ws *ws = w->ws;
		pthread_mutex_lock(&s->lock);
		w->ws = NULL;
		pthread_mutex_unlock(&s->lock);
		ws_close(ws);
	}
	*out = w;
	served_unclaim(w);
	return r;
}

static bool has_ended(int fd)
{
	struct pollfd p = { .fd = fd };
	return poll(&p, 1, 0) == 1 && p.revents & (POLLERR | POLLNVAL);
}

/* Takes the descriptor over. */
static void resume_one(struct server *s, const struct holder_entry *e)
{
	struct held held;
	struct err err = { 0 };
	int fd = e->fd;
	int r = held_decode(&held, e->blob, e->len);
	if (r < 0 || has_ended(fd)) {
		if (r < 0)
			log_error("a mount that bough-hold keeps isn't understood: it ends");
		cleanup_close(&fd);
		holder_drop(s->holder, e->key);
		return;
	}
	struct holder_slot *slot = holder_slot(s->holder, e->key);
	if (slot && atomic_fetch_add(&slot->tries, 1) >= RESUMES_MAX) {
		log_error("the server died again and again of going on with the mount at %s: it "
			  "ends",
			  held.path);
		cleanup_close(&fd);
		holder_drop(s->holder, e->key);
		return;
	}
	struct served *w;
	r = resume_served(s, e, &held, &w, &err);
	if (r < 0) {
		log_error("go on with the mount at %s: %s", held.path, err.text);
		holder_drop(s->holder, e->key);
		return;
	}
	if (slot)
		atomic_store(&slot->tries, 0);
	s->resumed++;
}

/* What a restore changed just before the server died may still be in the kernel's caches. */
static void retell(struct served *w, void *ctx)
{
	pthread_mutex_lock(&w->mount);
	if (w->session) {
		struct forgetting f = { .session = w->session };
		struct ws_changes changes = forgetting_changes(&f);
		ws_retell(w->ws, &changes);
	}
	pthread_mutex_unlock(&w->mount);
}

static bool kernel_holds(void *ctx, uint64_t node)
{
	return session_holds(ctx, node);
}

static void look_for_unheld(struct served *w, void *ctx)
{
	pthread_mutex_lock(&w->mount);
	if (w->session)
		(void)ws_forget_unheld(w->ws, kernel_holds, w->session); /* again next time */
	pthread_mutex_unlock(&w->mount);
}

/* Serves no requests, so it may wait for their answers. */
static void *look_after(void *arg)
{
	struct server *s = arg;
	(void)pthread_setname_np(pthread_self(), "fs-unheld"); /* for people only */
	server_each_open(s, retell, NULL);
	pthread_mutex_lock(&s->lock);
	while (!s->end) {
		struct timespec t = clock_in_ms(LOOK_MS);
		pthread_cond_timedwait(&s->ending, &s->lock, &t);
		if (s->end)
			break;
		pthread_mutex_unlock(&s->lock);
		server_each_open(s, look_for_unheld, NULL);
		pthread_mutex_lock(&s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int server_resume(struct server *s, struct err *err)
{
	struct holder_entry *all;
	size_t n;
	uint64_t held = clock_ms();
	int r = holder_take(s->holder, &all, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		resume_one(s, &all[i]);
		free(all[i].blob);
	}
	free(all);
	holder_renew(s->holder);
	if (s->resumed == 0)
		return 0;
	log_info("goes on with %u mounts (ms: the lock and the store %" PRIu64
		 ", bough-hold %" PRIu64 ", the mounts %" PRIu64 ")",
		 s->resumed, s->opened - s->began, held - s->opened, clock_ms() - held);
	r = pthread_create(&s->thread, NULL, look_after, s);
	s->has_thread = r == 0;
	return r ? err_sys(err, -r, "start a thread") : 0;
}

void server_resume_end(struct server *s)
{
	if (!s->has_thread)
		return;
	pthread_mutex_lock(&s->lock);
	s->end = true;
	pthread_cond_broadcast(&s->ending);
	pthread_mutex_unlock(&s->lock);
	(void)pthread_join(s->thread, NULL); /* it is ours and joinable */
	s->has_thread = false;
}
