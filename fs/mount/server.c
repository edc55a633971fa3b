#include "fs/mount/server_impl.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "fs/hold/hold.h"
#include "fs/mount/patience.h"

/* ---- the server ---- */

const char *server_transport(const struct server *s)
{
	return s->loop ? "dev" : "ring";
}

bool server_holds(struct server *s)
{
	bool all = s->holder != NULL;
	pthread_mutex_lock(&s->lock);
	for (struct served *w = s->all; w; w = w->next)
		all &= !w->session || session_is_held(w->session);
	pthread_mutex_unlock(&s->lock);
	return all;
}

const char *server_program(const struct server *s)
{
	return s->program;
}

unsigned server_resumed(const struct server *s)
{
	return s->resumed;
}

unsigned server_workers(const struct server *s)
{
	return s->loop ? loop_workers(s->loop) : 0;
}

void server_trim(struct server *s)
{
	work_trim(s->work);
	if (s->loop)
		loop_shed(s->loop);
	(void)malloc_trim(0); /* whether it found something doesn't matter */
}

int server_await(struct server *s, uint64_t since, int wait_ms, uint64_t *now, char ***ids,
		 size_t *n)
{
	return work_await(s->work, since, wait_ms, now, ids, n);
}

void server_hush(struct server *s)
{
	work_hush(s->work);
}

int server_begin(struct server *s, uint64_t number, struct err *err)
{
	pthread_rwlock_rdlock(&s->asked);
	if (number >= s->settled)
		return 0;
	pthread_rwlock_unlock(&s->asked);
	return err_set(err, -ECONNRESET, "a later connection has settled");
}

void server_done(struct server *s)
{
	pthread_rwlock_unlock(&s->asked);
}

void server_settle(struct server *s, uint64_t number)
{
	pthread_rwlock_wrlock(&s->asked);
	if (number > s->settled)
		s->settled = number;
	pthread_rwlock_unlock(&s->asked);
}

static int compare_ids(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int server_list(struct server *s, char ***ids, size_t *count, struct err *err)
{
	pthread_mutex_lock(&s->lock);
	size_t n = 0, cap = 0;
	for (struct served *w = s->all; w; w = w->next)
		cap++;
	char **list = calloc(cap ? cap : 1, sizeof(*list));
	for (struct served *w = s->all; list && w; w = w->next) {
		list[n] = strdup(w->id);
		if (!list[n]) {
			while (n > 0)
				free(list[--n]);
			free(list);
			list = NULL;
			break;
		}
		n++;
	}
	pthread_mutex_unlock(&s->lock);
	if (!list)
		return err_no_memory(err);
	qsort(list, n, sizeof(*list), compare_ids);
	*ids = list;
	*count = n;
	return 0;
}

void server_each_open(struct server *s, void (*fn)(struct served *w, void *ctx), void *ctx)
{
	char **ids;
	size_t n;
	if (server_list(s, &ids, &n, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		pthread_mutex_lock(&s->lock);
		struct served *w = served_find(s, ids[i]);
		if (w)
			w->refs++;
		pthread_mutex_unlock(&s->lock);
		free(ids[i]);
		if (!w)
			continue;
		pthread_rwlock_rdlock(&w->life);
		if (w->ws)
			fn(w, ctx);
		pthread_rwlock_unlock(&w->life);
		served_unref(w);
	}
	free(ids);
}

static void end_holds(struct served *w, void *ctx)
{
	ws_hold_end(w->ws, *(const pid_t *)ctx);
}

void server_peer_gone(struct server *s, pid_t pid)
{
	if (atomic_load(&s->holds))
		server_each_open(s, end_holds, &pid);
}

int served_hold(struct served *w, uint64_t who, pid_t pid, uint64_t bytes, uint64_t inodes)
{
	atomic_store(&w->server->holds, true);
	return PATIENTLY(w->ws, NULL, ws_hold(w->ws, who, pid, bytes, inodes));
}

int server_sweep(struct server *s, bool (*known)(void *ctx, const char *id), void *ctx,
		 struct err *err)
{
	pthread_mutex_lock(&s->lock);
	/* With the lock, so that nobody opens one meanwhile. */
	int r = s->all ? err_set(err, -EBUSY, "sweep: workspace %s is open", s->all->id)
		       : work_sweep(s->work, known, ctx, err);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/* ---- the table of all ---- */

struct served *served_find(struct server *s, const char *id)
{
	struct served *w = s->all;
	while (w && strcmp(w->id, id) != 0)
		w = w->next;
	return w;
}

/* The entry of an id, made where there is none; counts a reference. */
static int served_ref(struct server *s, const char *id, struct served **out, struct err *err)
{
	size_t len = strlen(id);
	if (len == 0 || len > WS_ID_MAX)
		return err_set(err, -EINVAL, "a workspace id has 1 to %d characters", WS_ID_MAX);
	pthread_mutex_lock(&s->lock);
	struct served *w = served_find(s, id);
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (w) {
			w->server = s;
			memcpy(w->id, id, len);
			pthread_rwlock_init(&w->life, NULL);
			pthread_mutex_init(&w->mount, NULL);
			w->next = s->all;
			s->all = w;
		}
	}
	if (w)
		w->refs++;
	pthread_mutex_unlock(&s->lock);
	*out = w;
	return w ? 0 : err_no_memory(err);
}

/* An entry stays while somebody uses it or its workspace is open. */
void served_unref(struct served *w)
{
	struct server *s = w->server;
	pthread_mutex_lock(&s->lock);
	bool last = --w->refs == 0 && !w->ws;
	if (last) {
		struct served **at = &s->all;
		while (*at != w)
			at = &(*at)->next;
		*at = w->next;
	}
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	assert(!w->session);
	pthread_rwlock_destroy(&w->life);
	pthread_mutex_destroy(&w->mount);
	free(w);
}

struct session_options server_session_options(const struct server *s)
{
	return (struct session_options){ .loop = s->loop, .mask = s->mask, .holder = s->holder };
}

/* ---- one of them ---- */

int served_get(struct server *s, const char *id, struct served **out, struct err *err)
{
	struct served *w;
	int r = served_ref(s, id, &w, err);
	if (r < 0)
		return r;
	for (;;) {
		pthread_rwlock_rdlock(&w->life);
		if (w->ws) {
			*out = w;
			return 0;
		}
		pthread_rwlock_unlock(&w->life);
		pthread_rwlock_wrlock(&w->life);
		r = w->ws ? 0 : ws_open(&w->ws, s->work, id, err);
		pthread_rwlock_unlock(&w->life);
		if (r < 0) {
			served_unref(w);
			return r;
		}
		/* Somebody may close it in between; then once more. */
	}
}

void served_put(struct served *w)
{
	if (!w)
		return;
	pthread_rwlock_unlock(&w->life);
	served_unref(w);
}

struct ws *served_ws(struct served *w)
{
	return w->ws;
}

/* Takes an ended session away. With the mount lock. */
static void drop_session(struct served *w)
{
	struct server *s = w->server;
	pthread_mutex_lock(&s->lock);
	counters_add(&s->past, session_counters(w->session));
	struct session *gone = steal_ptr(&w->session);
	pthread_mutex_unlock(&s->lock);
	session_free(gone);
}

static void reap_session(struct served *w)
{
	if (w->session && session_state(w->session) == SESSION_ENDED)
		drop_session(w);
}

/* Ends the mount whatever its state. With the mount lock. */
static int end_session(struct served *w, struct err *err)
{
	if (!w->session)
		return 0;
	int r = session_end(w->session, err);
	drop_session(w);
	return r;
}

static int mount_locked(struct served *w, const char *path, struct err *err)
{
	reap_session(w);
	if (w->session && session_state(w->session) == SESSION_LIVE) {
		const char *at = session_path(w->session);
		return strcmp(at, path) == 0
			       ? 0
			       : err_set(err, -EBUSY, "%s is mounted at %s already", w->id, at);
	}
	/* Two superblocks of one workspace would break locks and caches: the old one ends. */
	int r = end_session(w, err);
	if (r < 0)
		return r;
	struct session_options so = server_session_options(w->server);
	struct session *session;
	r = session_mount(&session, w->ws, path, &so, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&w->server->lock);
	w->session = session;
	pthread_mutex_unlock(&w->server->lock);
	return 0;
}

/* Closes it if its disk failed and it isn't mounted; true: it had failed. */
static bool close_failed(struct server *s, const char *id)
{
	struct served *w;
	if (served_ref(s, id, &w, NULL) < 0)
		return false;
	pthread_rwlock_rdlock(&w->life);
	bool failed = w->ws && ws_fault(w->ws, NULL, 0);
	pthread_rwlock_unlock(&w->life);
	if (failed) {
		pthread_rwlock_wrlock(&w->life);
		pthread_mutex_lock(&w->mount);
		reap_session(w);
		bool mounted = w->session != NULL;
		pthread_mutex_unlock(&w->mount);
		if (w->ws && !mounted) {
			ws_close(w->ws);
			pthread_mutex_lock(&s->lock);
			w->ws = NULL;
			pthread_mutex_unlock(&s->lock);
		}
		pthread_rwlock_unlock(&w->life);
	}
	served_unref(w);
	return failed;
}

void served_mend(struct server *s, const char *id)
{
	char **ids;
	size_t n;
	/* Those that show the same layer keep it from being mended as long as they are open. */
	if (!close_failed(s, id) || server_list(s, &ids, &n, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		(void)close_failed(s, ids[i]);
		free(ids[i]);
	}
	free(ids);
}

int served_mount(struct served *w, const char *path, struct err *err)
{
	pthread_mutex_lock(&w->mount);
	int r = mount_locked(w, path, err);
	pthread_mutex_unlock(&w->mount);
	return r;
}

int served_umount(struct served *w, bool *busy, struct err *err)
{
	pthread_mutex_lock(&w->mount);
	int r = w->session ? session_umount(w->session, err) : 0;
	reap_session(w);
	*busy = w->session != NULL;
	pthread_mutex_unlock(&w->mount);
	return r;
}

int served_state(struct served *w, struct served_state *out, struct err *err)
{
	pthread_mutex_lock(&w->mount);
	reap_session(w);
	struct served_state st = { 0 };
	bool live = w->session && session_state(w->session) == SESSION_LIVE;
	if (w->session)
		counters_add(&st.counters, session_counters(w->session));
	if (live)
		st.path = strdup(session_path(w->session));
	pthread_mutex_unlock(&w->mount);
	st.mounted = live;
	if (live && !st.path)
		return err_no_memory(err);
	*out = st;
	return 0;
}

/* ---- restore ---- */

static void forgetting_name(void *ctx, uint64_t dir_node, const char *name, size_t len,
			    bool removed, uint64_t child_node)
{
	struct forgetting *f = ctx;
	f->names++;
	if (!f->session)
		return;
	session_forget_name(f->session, dir_node, name, len, removed);
	/* For a name it doesn't know the kernel leaves the directory's cached list alone. */
	if (dir_node != f->last_dir)
		session_forget_node(f->session, dir_node);
	f->last_dir = dir_node;
}

static void forgetting_node(void *ctx, uint64_t node)
{
	struct forgetting *f = ctx;
	f->nodes++;
	if (f->session)
		session_forget_node(f->session, node);
}

static void forgetting_apart(void *ctx, void (*tell)(void *arg), void *arg)
{
	struct forgetting *f = ctx;
	if (f->session)
		session_apart(f->session, tell, arg);
	else
		tell(arg);
}

struct ws_changes forgetting_changes(struct forgetting *f)
{
	return (struct ws_changes){ .name = forgetting_name,
				    .node = forgetting_node,
				    .apart = forgetting_apart,
				    .ctx = f };
}

int served_restore(struct served *w, const struct stack *to, const struct stack *expect,
		   bool renumber, uint64_t *names, uint64_t *nodes, struct err *err)
{
	/* The mount lock throughout: a session that ended while the kernel forgets would
	 * leave those who wait for its answers, and the kernel waiting for them. */
	pthread_mutex_lock(&w->mount);
	reap_session(w);
	struct forgetting f = { .session = w->session };
	struct ws_changes changes = forgetting_changes(&f);
	changes.renumber = renumber;
	int r = ws_restore_if(w->ws, to, expect, &changes, err);
	pthread_mutex_unlock(&w->mount);
	if (r < 0)
		return r;
	*names = f.names;
	*nodes = f.nodes;
	return 0;
}

/* ---- compare and replace ---- */

struct put_done {
	struct session *session;
	const struct ws_put *want;
	const struct ws_put_result *res;
};

static void tell_put(void *arg)
{
	const struct put_done *d = arg;
	/* Dropped, not only to be asked for again: a look-up that is under way for an entry
	 * that was to be asked for could make the old answer good for ever. */
	session_forget_name(d->session, d->res->dir_node, d->want->name, d->want->len, true);
	session_forget_node(d->session, d->res->dir_node);
	if (d->res->node)
		session_forget_attr(d->session, d->res->node);
	if (d->res->old_node)
		session_forget_attr(d->session, d->res->old_node);
}

int served_put_file(struct served *w, const struct ws_put *want, bool put,
		    struct ws_put_result *out, struct err *err)
{
	struct ws_put_result res;
	/* The mount lock: as in served_restore. */
	pthread_mutex_lock(&w->mount);
	reap_session(w);
	int r = put ? PATIENTLY(w->ws, NULL, ws_put(w->ws, want, &res))
		    : ws_take(w->ws, want, &res);
	struct put_done done = { w->session, want, &res };
	if (r == 0 && w->session)
		session_apart(w->session, tell_put, &done);
	pthread_mutex_unlock(&w->mount);
	if (r == -EREMCHG)
		return err_set(err, r, "the file isn't what it was expected to be");
	if (r < 0)
		return err_sys(err, r, put ? "name the file" : "remove the name");
	*out = res;
	return 0;
}

int served_batch(struct served *w, const struct ws_batch *batch, size_t *failed)
{
	/* The mount lock: as in served_restore. */
	pthread_mutex_lock(&w->mount);
	reap_session(w);
	struct forgetting f = { .session = w->session };
	struct ws_changes changes = forgetting_changes(&f);
	int r = PATIENTLY(w->ws, NULL, ws_batch(w->ws, batch, &changes, failed));
	pthread_mutex_unlock(&w->mount);
	return r;
}

/* Their frames' tags go with the layers. Of a request between its change and its answer they must
 * stay, should this process die just there. */
int served_replace(struct served *w, const struct stack *old, const struct stack *with,
		   struct err *err)
{
	if (w->server->loop)
		loop_quiesce(w->server->loop);
	return ws_replace(w->ws, old, with, err);
}

/* ---- create, fork, close, delete ---- */

/* An entry for a workspace that doesn't exist yet, locked exclusively. */
int served_claim(struct server *s, const char *id, struct served **out, struct err *err)
{
	struct served *w;
	int r = served_ref(s, id, &w, err);
	if (r < 0)
		return r;
	/* Never waiting for it: whoever forks holds the parent's lock meanwhile, and that may be
	 * what the other one waits for. Who holds it uses, opens or makes the workspace. */
	bool mine = pthread_rwlock_trywrlock(&w->life) == 0;
	if (mine && !w->ws) {
		*out = w;
		return 0;
	}
	if (mine)
		pthread_rwlock_unlock(&w->life);
	served_unref(w);
	return err_set(err, -EEXIST, "workspace %s exists", id);
}

void served_unclaim(struct served *w)
{
	pthread_rwlock_unlock(&w->life);
	served_unref(w);
}

/* With the life lock held exclusively: unmounts for good and closes, by ws_close or ws_discard. */
static int close_claimed(struct served *w, void (*close_ws)(struct ws *ws), struct err *err)
{
	pthread_mutex_lock(&w->mount);
	int r = end_session(w, err);
	pthread_mutex_unlock(&w->mount);
	if (w->ws)
		close_ws(w->ws);
	pthread_mutex_lock(&w->server->lock);
	w->ws = NULL;
	pthread_mutex_unlock(&w->server->lock);
	return r;
}

/* Undoes a creation: the error that led here is the one to tell. */
static void uncreate(struct served *w)
{
	(void)close_claimed(w, ws_discard, NULL);
	(void)ws_delete(w->server->work, w->id, NULL);
}

int served_create(struct server *s, const struct served_child *child, const struct stack *base,
		  uid_t uid, gid_t gid, struct err *err)
{
	struct served *w;
	int r = served_claim(s, child->id, &w, err);
	if (r < 0)
		return r;
	r = ws_create(&w->ws, s->work, child->id, base, &child->limits, uid, gid, err);
	if (r == 0 && child->path) {
		r = served_mount(w, child->path, err);
		if (r < 0)
			uncreate(w);
	}
	served_unclaim(w);
	return r;
}

/* What served_fork needs for each child, and what must be undone when it fails. */
struct forking {
	unsigned n;
	const char **ids;
	struct ws_limits *limits;
	struct ws **children;
	struct served **all; /* claimed ones, the rest NULL */
};

static void forking_done(struct forking *f)
{
	for (unsigned i = 0; f->all && i < f->n; i++)
		if (f->all[i])
			served_unclaim(f->all[i]);
	free(f->ids);
	free(f->limits);
	free(f->children);
	free(f->all);
}

static int fork_claimed(struct served *w, const struct served_child *children, struct forking *f,
			uint64_t *pause_ns, struct err *err)
{
	int r = ws_fork(w->ws, f->ids, f->n, f->limits, f->children, pause_ns, err);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < f->n; i++)
		f->all[i]->ws = f->children[i];
	for (unsigned i = 0; i < f->n && r == 0; i++)
		if (children[i].path)
			r = served_mount(f->all[i], children[i].path, err);
	for (unsigned i = 0; i < f->n && r < 0; i++)
		uncreate(f->all[i]);
	return r;
}

int served_fork(struct served *w, const struct served_child *children, unsigned n,
		uint64_t *pause_ns, struct err *err)
{
	struct forking f = {
		.n = n,
		.ids = calloc(n, sizeof(*f.ids)),
		.limits = calloc(n, sizeof(*f.limits)),
		.children = calloc(n, sizeof(struct ws *)),
		.all = calloc(n, sizeof(struct served *)),
	};
	int r = f.ids && f.limits && f.children && f.all ? 0 : err_no_memory(err);
	for (unsigned i = 0; i < n && r == 0; i++) {
		f.ids[i] = children[i].id;
		f.limits[i] = children[i].limits;
		for (unsigned j = 0; j < i && r == 0; j++)
			if (strcmp(f.ids[i], f.ids[j]) == 0)
				r = err_set(err, -EINVAL, "child %s is named twice", f.ids[i]);
		if (r == 0)
			r = served_claim(w->server, f.ids[i], &f.all[i], err);
	}
	if (r == 0)
		r = fork_claimed(w, children, &f, pause_ns, err);
	forking_done(&f);
	return r;
}

int served_end(struct server *s, const char *id, struct err *err)
{
	struct served *w;
	int r = served_ref(s, id, &w, err);
	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&w->life);
	pthread_mutex_lock(&w->mount);
	r = end_session(w, err);
	pthread_mutex_unlock(&w->mount);
	served_unclaim(w);
	return r;
}

int served_close(struct server *s, const char *id, struct err *err)
{
	struct served *w;
	int r = served_ref(s, id, &w, err);
	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&w->life);
	r = w->ws ? ws_commit(w->ws, err) : 0;
	if (r < 0)
		(void)err_prefix(err, r, "make %s durable", id);
	struct err e;
	int c = close_claimed(w, ws_close, &e);
	if (c < 0 && r == 0)
		r = err_set(err, c, "%s", e.text);
	served_unclaim(w);
	return r;
}

int served_delete(struct server *s, const char *id, struct err *err)
{
	struct served *w;
	int r = served_ref(s, id, &w, err);
	if (r < 0)
		return r;
	pthread_rwlock_wrlock(&w->life);
	r = close_claimed(w, ws_discard, err);
	if (r == 0)
		r = ws_delete(s->work, id, err);
	struct ws *kept = NULL;
	if (r < 0 && ws_open(&kept, s->work, id, NULL) == 0)
		ws_close(kept); /* it stays: makes it durable */
	served_unclaim(w);
	return r;
}

void server_counters(struct server *s, struct counters *out)
{
	*out = (struct counters){ 0 };
	pthread_mutex_lock(&s->lock);
	counters_add(out, &s->past);
	for (struct served *w = s->all; w; w = w->next)
		if (w->session)
			counters_add(out, session_counters(w->session));
	pthread_mutex_unlock(&s->lock);
}

/* ---- life ---- */

enum {
	LOCK_MS = 45000, /* less than who starts us waits for our hello */
	LOCK_NAP_MS = 5,
};

/* The server before us may be dying: its socket closes before its lock does, and a thread of it
 * that waits for the disk dies only when the disk has answered. Nobody could go on meanwhile. */
static int open_work(struct server *s, const struct server_options *opt,
		     const struct work_options *wo, bool hold, struct err *err)
{
	uint64_t until = clock_ms() + LOCK_MS;
	int r = work_open(&s->work, opt->root, wo, err);
	while (r == -EBUSY && hold && clock_ms() < until) {
		(void)poll(NULL, 0, LOCK_NAP_MS);
		r = work_open(&s->work, opt->root, wo, err);
	}
	return r;
}

static void told(void *ctx, const char *id, const char *text)
{
	log_error("workspace %s: %s", id, text);
}

int server_open(struct server **out, const struct server_options *opt, struct err *err)
{
	if (opt->ring) {
		int r = session_ring_check(err);
		if (r < 0)
			return r;
	}
	struct server *s = calloc(1, sizeof(*s));
	if (!s)
		return err_no_memory(err);
	pthread_mutex_init(&s->lock, NULL);
	pthread_rwlock_init(&s->asked, NULL);
	clock_cond_init(&s->ending);
	s->mask = opt->mask;
	struct stat self; /* as it is now: later another file may be there */
	if (stat("/proc/self/exe", &self) == 0)
		(void)hold_identity(s->program, sizeof(s->program), &self); /* it fits */
	bool hold = opt->starter && !opt->ring;
	struct work_options wo = { .commit_ms = opt->commit_ms,
				   .cache_bytes = opt->cache_bytes,
				   .resumes = true,
				   .told = told,
				   .read_ahead = true };
	s->began = clock_ms();
	int r = open_work(s, opt, &wo, hold, err);
	s->opened = clock_ms();
	if (r == 0 && !opt->ring)
		r = loop_start(&s->loop, opt->workers, err);
	if (r == 0 && hold)
		r = holder_open(&s->holder, opt->root, opt->starter, err);
	if (r == 0 && hold && opt->crashed)
		holder_crashed(s->holder);
	if (r == 0 && hold)
		r = server_resume(s, err);
	if (r < 0) {
		(void)server_close(s, NULL); /* nothing is open yet */
		return r;
	}
	*out = s;
	return 0;
}

void server_leave(struct server *s)
{
	server_resume_end(s);
	loop_halt(s->loop);
}

int server_close(struct server *s, struct err *err)
{
	if (!s)
		return 0;
	int result = 0;
	server_resume_end(s);
	while (s->all) {
		char id[WS_ID_MAX + 1];
		memcpy(id, s->all->id, sizeof(id));
		struct err e;
		int r = served_close(s, id, &e);
		if (r < 0 && result == 0)
			result = err_prefix(err, err_set(err, r, "%s", e.text), "close %s", id);
	}
	loop_stop(s->loop);
	holder_close(s->holder);
	if (s->work)
		work_close(s->work);
	pthread_cond_destroy(&s->ending);
	pthread_mutex_destroy(&s->lock);
	pthread_rwlock_destroy(&s->asked);
	free(s);
	return result;
}
