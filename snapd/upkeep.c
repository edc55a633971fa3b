/* Upkeep of mirrors in the background: one at a time, and it gives way to whoever fetches
 * or pushes. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/log.h"
#include "gitops/mirror.h"
#include "snapd/repos.h"
#include "snapd/worker.h"

enum {
	QUEUE_MAX = 256,
	SETTLE_MS = 3000, /* after the fetch that asked, so as not to slow down what follows it */
};

struct upkeep {
	struct snapd *sd;
	struct worker *worker;
	pthread_mutex_t lock; /* all below */
	uint32_t queue[QUEUE_MAX];
	size_t nqueued;
	uint32_t now; /* what is worked on; 0: nothing */
	atomic_bool cancel;
};

static int ask(void *ctx, uint64_t done, uint64_t total, const char *what)
{
	const struct upkeep *u = ctx;
	return atomic_load(&u->cancel);
}

static void work(struct upkeep *u, uint32_t number)
{
	char id[ID_SIZE];
	struct err err = { 0 };
	auto_lease lease = { 0 };
	const struct mirror_progress p = { ask, u };
	repo_lease_id(id, number);
	int r = lease_take(&lease, u->sd->leases, id, LEASE_SAVE, "upkeep", 0, &err);
	if (r >= 0)
		r = mirror_maintain(u->sd->root, number, &p, &err);
	/* A fetch or push is under way, and asks again at its end; or the repository is gone. */
	if (r == -EBUSY || r == -ECANCELED || r == -ENOENT)
		log_debug("upkeep of repository %08x: %s", number, err.text);
	else if (r < 0)
		log_warn("%s", err.text);
}

static void run(void *ctx, bool due)
{
	struct upkeep *u = ctx;
	pthread_mutex_lock(&u->lock);
	while (!worker_stopping(u->worker) && u->nqueued > 0) {
		u->now = u->queue[--u->nqueued];
		atomic_store(&u->cancel, false);
		pthread_mutex_unlock(&u->lock);
		work(u, u->now);
		pthread_mutex_lock(&u->lock);
		u->now = 0;
	}
	pthread_mutex_unlock(&u->lock);
}

void upkeep_consider(struct upkeep *u, uint32_t number)
{
	pthread_mutex_lock(&u->lock);
	size_t i = 0;
	while (i < u->nqueued && u->queue[i] != number)
		i++;
	bool is_new = i == u->nqueued && i < QUEUE_MAX;
	if (is_new)
		u->queue[u->nqueued++] = number;
	pthread_mutex_unlock(&u->lock);
	if (is_new)
		worker_wake(u->worker);
}

bool upkeep_give_way(struct upkeep *u, uint32_t number)
{
	pthread_mutex_lock(&u->lock);
	bool busy = u->now == number;
	if (busy)
		atomic_store(&u->cancel, true);
	pthread_mutex_unlock(&u->lock);
	return busy;
}

int upkeep_start(struct upkeep **out, struct snapd *sd, struct err *err)
{
	struct upkeep *u = calloc(1, sizeof(*u));
	if (!u)
		return err_no_memory(err);
	const struct worker_options opt = {
		.what = "the upkeep of repositories", .settle_ms = SETTLE_MS, .run = run, .ctx = u
	};
	u->sd = sd;
	pthread_mutex_init(&u->lock, NULL);
	int r = worker_start(&u->worker, &opt, err);
	if (r < 0) {
		pthread_mutex_destroy(&u->lock);
		free(u);
		return r;
	}
	*out = u;
	return 0;
}

void upkeep_stop(struct upkeep *u)
{
	if (!u)
		return;
	pthread_mutex_lock(&u->lock);
	u->nqueued = 0; /* what comes after the one at hand can wait for the next fetch */
	pthread_mutex_unlock(&u->lock);
	atomic_store(&u->cancel, true);
	worker_stop(u->worker);
	pthread_mutex_destroy(&u->lock);
	free(u);
}
