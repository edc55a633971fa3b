/* Upkeep of mirrors in the background: one at a time, and it gives way to whoever fetches. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "gitops/mirror.h"
#include "snapd/repos.h"

enum {
	QUEUE_MAX = 256,
	SETTLE_MS = 3000, /* after the fetch that asked, so as not to slow down what follows it */
};

struct upkeep {
	struct snapd *sd;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	uint32_t queue[QUEUE_MAX];
	size_t nqueued;
	uint32_t now; /* what is worked on; 0: nothing */
	bool stop;
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
	/* A fetch is under way, and asks again at its end; or the repository is gone. */
	if (r == -EBUSY || r == -ECANCELED || r == -ENOENT)
		log_debug("upkeep of repository %08x: %s", number, err.text);
	else if (r < 0)
		log_warn("%s", err.text);
}

static void *upkeep_thread(void *arg)
{
	struct upkeep *u = arg;
	pthread_mutex_lock(&u->lock);
	while (!u->stop) {
		if (u->nqueued == 0) {
			pthread_cond_wait(&u->wake, &u->lock);
			continue;
		}
		struct timespec until = clock_in_ms(SETTLE_MS);
		while (!u->stop && pthread_cond_timedwait(&u->wake, &u->lock, &until) == 0)
			;
		while (!u->stop && u->nqueued > 0) {
			u->now = u->queue[--u->nqueued];
			atomic_store(&u->cancel, false);
			pthread_mutex_unlock(&u->lock);
			work(u, u->now);
			pthread_mutex_lock(&u->lock);
			u->now = 0;
		}
	}
	pthread_mutex_unlock(&u->lock);
	return NULL;
}

void upkeep_consider(struct upkeep *u, uint32_t number)
{
	pthread_mutex_lock(&u->lock);
	size_t i = 0;
	while (i < u->nqueued && u->queue[i] != number)
		i++;
	if (i == u->nqueued && i < QUEUE_MAX) {
		u->queue[u->nqueued++] = number;
		pthread_cond_signal(&u->wake);
	}
	pthread_mutex_unlock(&u->lock);
}

void upkeep_give_way(struct upkeep *u, uint32_t number)
{
	pthread_mutex_lock(&u->lock);
	if (u->now == number)
		atomic_store(&u->cancel, true);
	pthread_mutex_unlock(&u->lock);
}

int upkeep_start(struct upkeep **out, struct snapd *sd, struct err *err)
{
	struct upkeep *u = calloc(1, sizeof(*u));
	if (!u)
		return err_set(err, -ENOMEM, "out of memory");
	u->sd = sd;
	clock_cond_init(&u->wake);
	pthread_mutex_init(&u->lock, NULL);
	int r = -pthread_create(&u->thread, NULL, upkeep_thread, u);
	if (r < 0) {
		free(u);
		return err_sys(err, r, "start the upkeep of repositories");
	}
	*out = u;
	return 0;
}

void upkeep_stop(struct upkeep *u)
{
	if (!u)
		return;
	pthread_mutex_lock(&u->lock);
	u->stop = true;
	atomic_store(&u->cancel, true);
	pthread_cond_signal(&u->wake);
	pthread_mutex_unlock(&u->lock);
	pthread_join(u->thread, NULL);
	pthread_mutex_destroy(&u->lock);
	pthread_cond_destroy(&u->wake);
	free(u);
}
