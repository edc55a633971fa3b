#include "snapd/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/work/watch.h"

enum {
	AWAIT_MS = 30000, /* one question to bough-fs */
	GATHER_MS = 5,    /* after an answer, so that a writer wakes everybody 200 times a second */
	RETRY_MS = 100,   /* while bough-fs is down */
};

struct watched {
	struct watches *all;
	struct watched *next;
	char id[ID_SIZE];
	unsigned refs;
	bool removed;
	uint64_t count;
	pthread_cond_t rung;

	/* The last answer, for who asks the same. */
	pthread_mutex_t asking;
	char since[WATCH_TOKEN_MAX]; /* "": none */
	uint64_t at;                 /* `count` before it was asked for */
	json_t *answer;
};

struct watches {
	struct fsclient *fs;
	pthread_mutex_t lock;
	pthread_cond_t some; /* the first one came; or stop */
	struct watched *list;
	bool stop, has_thread;
	pthread_t thread;
	struct fs_wait wait;
};

struct watches *watches_new(struct fsclient *fs)
{
	struct watches *ws = calloc(1, sizeof(*ws));
	if (!ws)
		return NULL;
	ws->fs = fs;
	ws->wait.fd = -1;
	pthread_mutex_init(&ws->lock, NULL);
	pthread_mutex_init(&ws->wait.lock, NULL);
	clock_cond_init(&ws->some);
	return ws;
}

/* ---- waking ---- */

/* With the lock. `id` NULL: all. */
static void ring(struct watches *ws, const char *id)
{
	for (struct watched *w = ws->list; w; w = w->next)
		if (!id || strcmp(w->id, id) == 0) {
			w->count++;
			pthread_cond_broadcast(&w->rung);
		}
}

void watches_ring(struct watches *ws, const char *id)
{
	pthread_mutex_lock(&ws->lock);
	for (struct watched *w = ws->list; w; w = w->next)
		w->removed |= strcmp(w->id, id) == 0;
	ring(ws, id);
	pthread_mutex_unlock(&ws->lock);
}

static void ring_named(struct watches *ws, const json_t *answer)
{
	const json_t *ids = json_object_get(answer, "ids");
	bool any = json_is_true(json_object_get(answer, "any"));
	pthread_mutex_lock(&ws->lock);
	if (any)
		ring(ws, NULL);
	for (size_t i = 0; i < json_array_size(ids); i++) {
		const char *id = json_string_value(json_array_get(ids, i));
		if (id)
			ring(ws, id);
	}
	pthread_mutex_unlock(&ws->lock);
}

/* Waits for so long, or for the end. With the lock. */
static void nap(struct watches *ws, int ms)
{
	struct timespec until = clock_in_ms(ms);
	int r = 0;
	while (!ws->stop && r == 0)
		r = pthread_cond_timedwait(&ws->some, &ws->lock, &until);
}

static void *listen_all(void *arg)
{
	struct watches *ws = arg;
	uint64_t moment = 0;
	(void)pthread_setname_np(pthread_self(), "watch"); /* for people only */
	pthread_mutex_lock(&ws->lock);
	while (!ws->stop) {
		if (!ws->list) {
			pthread_cond_wait(&ws->some, &ws->lock);
			continue;
		}
		pthread_mutex_unlock(&ws->lock);
		struct err err = { 0 };
		json_t *answer = NULL;
		int r = fs_await(ws->fs, &ws->wait, moment, AWAIT_MS, &answer, &err);
		if (r >= 0) {
			moment = (uint64_t)json_integer_value(json_object_get(answer, "now"));
			ring_named(ws, answer);
		} else {
			log_debug("wait for changes: %s", err.text);
			moment = 0;
		}
		json_decref(answer);
		pthread_mutex_lock(&ws->lock);
		nap(ws, r >= 0 ? GATHER_MS : RETRY_MS);
	}
	pthread_mutex_unlock(&ws->lock);
	return NULL;
}

void watches_stop(struct watches *ws)
{
	if (!ws)
		return;
	pthread_mutex_lock(&ws->lock);
	ws->stop = true;
	ring(ws, NULL);
	pthread_cond_broadcast(&ws->some);
	pthread_mutex_unlock(&ws->lock);
	fs_wait_end(&ws->wait);
	if (ws->has_thread)
		(void)pthread_join(ws->thread, NULL); /* it is ours and joinable */
	ws->has_thread = false;
}

void watches_free(struct watches *ws)
{
	if (!ws)
		return;
	watches_stop(ws);
	cleanup_close(&ws->wait.fd);
	pthread_cond_destroy(&ws->some);
	pthread_mutex_destroy(&ws->wait.lock);
	pthread_mutex_destroy(&ws->lock);
	free(ws);
}

/* ---- one of them ---- */

static struct watched *add(struct watches *ws, const char *id)
{
	struct watched *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->all = ws;
	(void)snprintf(w->id, sizeof(w->id), "%s", id);
	clock_cond_init(&w->rung);
	pthread_mutex_init(&w->asking, NULL);
	w->next = ws->list;
	ws->list = w;
	return w;
}

int watched_join(struct watches *ws, const char *id, struct watched **out, struct err *err)
{
	pthread_mutex_lock(&ws->lock);
	struct watched *w = ws->list;
	int r = 0;
	while (w && strcmp(w->id, id) != 0)
		w = w->next;
	if (ws->stop)
		r = -ESHUTDOWN;
	else if (!ws->has_thread)
		r = -pthread_create(&ws->thread, NULL, listen_all, ws);
	if (r == 0) {
		ws->has_thread = true;
		w = w ? w : add(ws, id);
		r = w ? 0 : -ENOMEM;
	}
	if (r == 0) {
		w->refs++;
		pthread_cond_broadcast(&ws->some);
	}
	pthread_mutex_unlock(&ws->lock);
	if (r < 0)
		return err_sys(err, r, "watch %s", id);
	*out = w;
	return 0;
}

void watched_leave(struct watched *w)
{
	if (!w)
		return;
	struct watches *ws = w->all;
	pthread_mutex_lock(&ws->lock);
	bool last = --w->refs == 0;
	struct watched **at = &ws->list;
	while (last && *at != w)
		at = &(*at)->next;
	if (last)
		*at = w->next;
	pthread_mutex_unlock(&ws->lock);
	if (!last)
		return;
	json_decref(w->answer);
	pthread_cond_destroy(&w->rung);
	pthread_mutex_destroy(&w->asking);
	free(w);
}

uint64_t watched_count(struct watched *w)
{
	pthread_mutex_lock(&w->all->lock);
	uint64_t n = w->count;
	pthread_mutex_unlock(&w->all->lock);
	return n;
}

int watched_wait(struct watched *w, uint64_t seen, int wait_ms)
{
	struct watches *ws = w->all;
	struct timespec until = clock_in_ms(wait_ms);
	int r = 0;
	pthread_mutex_lock(&ws->lock);
	while (!ws->stop && w->count == seen && r == 0)
		r = pthread_cond_timedwait(&w->rung, &ws->lock, &until);
	r = ws->stop ? -ESHUTDOWN : w->removed ? 2 : w->count != seen;
	pthread_mutex_unlock(&ws->lock);
	return r;
}

/* Answers are shared by who only reads them, but counted under the lock: jansson frees what the
 * last one drops without seeing that the others' reads are over, as its count only releases. */
void watched_drop(struct watched *w, json_t *answer)
{
	pthread_mutex_lock(&w->all->lock);
	json_decref(answer);
	pthread_mutex_unlock(&w->all->lock);
}

static json_t *share_answer(struct watched *w)
{
	pthread_mutex_lock(&w->all->lock);
	json_t *a = json_incref(w->answer);
	pthread_mutex_unlock(&w->all->lock);
	return a;
}

/* An answer is as good as a new one while nothing has happened since it was asked for. */
int watched_changes(struct watched *w, const char *since, json_t **answer, struct err *err)
{
	json_t *a = NULL;
	int r = 0;
	pthread_mutex_lock(&w->asking);
	uint64_t count = watched_count(w);
	bool same = w->answer && since && strcmp(since, w->since) == 0 && count == w->at;
	if (!same)
		r = fs_changes(w->all->fs, w->id, since, &a, err);
	if (!same && r >= 0 && since) {
		watched_drop(w, w->answer);
		w->answer = a;
		w->at = count;
		(void)snprintf(w->since, sizeof(w->since), "%s", since);
		a = NULL;
	}
	if (r >= 0)
		*answer = a ? a : share_answer(w);
	pthread_mutex_unlock(&w->asking);
	return r;
}
