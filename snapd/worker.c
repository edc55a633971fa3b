#include "snapd/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs/base/clock.h"

enum { NICE = 10 };

struct worker {
	struct worker_options opt;
	pthread_t thread;
	pthread_mutex_t lock; /* woken */
	pthread_cond_t wake;
	bool woken;
	atomic_bool stop; /* set with the lock, so that nobody sleeps past it */
};

static void lower_priority(void)
{
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE); /* Linux: of this thread */
	/* Best effort, lowest: class 2, level 7. Idle class could starve for ever. */
	(void)syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 7);
}

bool worker_stopping(const struct worker *w)
{
	return atomic_load(&w->stop);
}

/* With the lock: whether it was woken (0), or its time has come (1). */
static bool await(struct worker *w, const struct timespec *due)
{
	bool timed = w->opt.every_ms > 0;
	int r = 0;
	while (!atomic_load(&w->stop) && !w->woken && r == 0)
		r = timed ? pthread_cond_timedwait(&w->wake, &w->lock, due)
			  : pthread_cond_wait(&w->wake, &w->lock);
	if (!w->woken)
		return true;
	struct timespec until = clock_in_ms(w->opt.settle_ms);
	r = 0;
	while (!atomic_load(&w->stop) && w->opt.settle_ms > 0 && r == 0)
		r = pthread_cond_timedwait(&w->wake, &w->lock, &until);
	return false;
}

static void *worker_thread(void *arg)
{
	struct worker *w = arg;
	int64_t first = w->opt.first_ms ? w->opt.first_ms : w->opt.every_ms;
	struct timespec next = clock_in_ms(first);
	if (w->opt.low)
		lower_priority();
	pthread_mutex_lock(&w->lock);
	for (;;) {
		bool due = await(w, &next);
		if (atomic_load(&w->stop))
			break;
		if (!due)
			w->woken = false;
		pthread_mutex_unlock(&w->lock);
		w->opt.run(w->opt.ctx, due);
		pthread_mutex_lock(&w->lock);
		if (due)
			next = clock_in_ms(w->opt.every_ms);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int worker_start(struct worker **out, const struct worker_options *opt, struct err *err)
{
	struct worker *w = calloc(1, sizeof(*w));
	if (!w)
		return err_no_memory(err);
	w->opt = *opt;
	clock_cond_init(&w->wake);
	pthread_mutex_init(&w->lock, NULL);
	*out = w; /* before it runs: run() may ask whether it is to stop */
	int r = -pthread_create(&w->thread, NULL, worker_thread, w);
	if (r == 0)
		return 0;
	*out = NULL;
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
	return err_sys(err, r, "start %s", opt->what);
}

void worker_wake(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	w->woken = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void worker_stop(struct worker *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	atomic_store(&w->stop, true);
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
