/* Who watches: told that something happened, and then what. */
#include "fs/work/ws_impl.h"

#include <string.h>

#include "fs/base/array.h"
#include "fs/base/clock.h"
#include "fs/work/watch.h"

enum { AWAIT_IDS_MAX = 4096 }; /* of one answer */

int ws_watch(struct ws *ws, const char *token,
	     int (*fn)(void *ctx, const struct watch_event *e), void *ctx, char *next)
{
	ws_enter(ws);
	meta_read(ws);
	int r = watch_since(&ws->view, token, fn, ctx, next);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

void ws_changed_now(struct ws *ws)
{
	struct work *w = ws->work;
	if (!atomic_load(&w->watched))
		return;
	pthread_mutex_lock(&w->watch_lock);
	ws->changed = ++w->changes;
	if (w->waiters)
		pthread_cond_broadcast(&w->watch_cond);
	pthread_mutex_unlock(&w->watch_lock);
}

static void free_ids(char **ids, size_t n)
{
	while (n > 0)
		free(ids[--n]);
	free(ids);
}

/* With list_lock and watch_lock. 1, 2 (too many), -ENOMEM. */
static int changed_ids(struct work *w, uint64_t since, char ***out, size_t *count)
{
	char **ids = NULL;
	size_t n = 0, cap = 0;
	int r = 1;
	for (struct ws *ws = w->list; ws && r == 1; ws = ws->next) {
		if (ws->changed <= since)
			continue;
		if (n >= AWAIT_IDS_MAX)
			r = 2;
		else if (array_grow(&ids, n, &cap) < 0 || !(ids[n] = strdup(ws->id)))
			r = -ENOMEM;
		else
			n++;
	}
	if (r != 1) {
		free_ids(ids, n);
		ids = NULL;
		n = 0;
	}
	*out = ids;
	*count = n;
	return r;
}

/* 1: something happened; 0: nothing; 2: that number isn't ours. */
static int await(struct work *w, uint64_t since, int wait_ms)
{
	struct timespec until = clock_in_ms(wait_ms);
	int t = 0;
	pthread_mutex_lock(&w->watch_lock);
	/* What commits from now on counts; what committed before is told by "any may have". */
	bool ours = atomic_exchange(&w->watched, true) && since >= w->changes_base &&
		    since <= w->changes;
	w->waiters++;
	while (ours && !w->hushed && w->changes == since && t == 0)
		t = pthread_cond_timedwait(&w->watch_cond, &w->watch_lock, &until);
	w->waiters--;
	int r = w->hushed ? -ESHUTDOWN : !ours ? 2 : w->changes != since;
	pthread_mutex_unlock(&w->watch_lock);
	return r;
}

int work_await(struct work *w, uint64_t since, int wait_ms, uint64_t *now, char ***ids, size_t *n)
{
	int r = await(w, since, wait_ms);
	*ids = NULL;
	*n = 0;
	if (r < 0)
		return r;
	pthread_mutex_lock(&w->list_lock);
	pthread_mutex_lock(&w->watch_lock);
	*now = w->changes;
	if (r == 1)
		r = changed_ids(w, since, ids, n);
	pthread_mutex_unlock(&w->watch_lock);
	pthread_mutex_unlock(&w->list_lock);
	return r;
}

void work_hush(struct work *w)
{
	pthread_mutex_lock(&w->watch_lock);
	w->hushed = true;
	pthread_cond_broadcast(&w->watch_cond);
	pthread_mutex_unlock(&w->watch_lock);
}
