#include "fs/mount/loop.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/u64map.h"
#include "fs/mount/scratch.h"

enum {
	IDLE_MS = 2000,          /* a worker idle for so long gives its memory back */
	TURN_NS = 200000,        /* of one source before it looks whether another one waits */
	SPIN_NS = 20000,         /* how long a worker looks for a next request */
	SPIN_LEARN_NS = 100000,  /* a gap between requests, waking included, after which it does */
	DOUBT_MAX = 255,         /* of a source; */
	DOUBT_FROM = 4,          /* a look in vain or two cost nothing yet */
	STACK_BYTES = 512 << 10, /* address space; only what is touched costs memory */
	STACK_KEEP = 16 << 10,   /* of a stack, what a shedding worker leaves below itself */
	WORKERS_MIN = 32, /* most of them asleep: requests that wait for a disk keep some */
	SHARE_MIN = 4,    /* of them in one source, or as many as there are cores and two more */
	SLICE_NS = 100000, /* of a worker; the least that there is */
	CORES_ENOUGH = 4,  /* for who asks, who answers, and somebody else */
	WORKERS_MAX = 256,
};

struct source {
	uint64_t id;
	int fd;
	const struct loop_ops *ops;
	void *ctx;
	_Atomic uint64_t idle_since; /* clock_ns when a worker last found nothing */
	atomic_bool spins;           /* it pays to look on for a moment */
	_Atomic unsigned doubt;      /* doubles with each look in vain; */
	_Atomic unsigned rest;       /* requests not to look for: at first doubt / DOUBT_FROM */
	_Atomic unsigned users;      /* workers in it; changed under loop.lock, as all below */
	bool missed;                 /* an event was for nobody: who leaves makes another one */
	bool dead;                   /* nobody enters any more; the last who leaves calls end() */
	int error;
};

struct worker {
	struct loop *loop;
	pthread_t thread;
	unsigned number;
	pthread_mutex_t busy;  /* held while it serves: others shed its buffer when it is not */
	char *buf;             /* REQUEST_BYTES */
	bool cold;             /* its pages were given back; under `busy` */
	_Atomic uint64_t turn; /* one more when a request begins, and when it is answered */
};

struct loop {
	int epfd, stop; /* stop: an eventfd, readable for ever once the end has come */
	pthread_mutex_t lock;
	pthread_cond_t ended; /* some source's end() has returned */
	struct u64map sources;
	uint64_t last_id;
	struct worker *workers;
	unsigned nworkers, share; /* share: of one source, at most */
	_Atomic unsigned nmore;   /* workers in a source beside another one: not half of all */
	bool few_cores;
};

/* Whether another worker may come into a source that has some. More than half of all are for
 * sources that have none: so whoever asks finds one that is free, however many requests others
 * send, and whatever those wait for. */
static bool may_share(const struct loop *l, const struct source *s)
{
	return s->users < l->share && l->nmore < (l->nworkers - 1) / 2;
}

/* NULL: it is gone, or those that are in it go on alone. */
static struct source *source_enter(struct loop *l, uint64_t id)
{
	pthread_mutex_lock(&l->lock);
	struct source *s = u64map_get(&l->sources, id);
	if (s && s->dead)
		s = NULL;
	if (s && s->users > 0 && !may_share(l, s)) {
		s->missed = true;
		s = NULL;
	}
	if (s && s->users++ > 0)
		l->nmore++;
	pthread_mutex_unlock(&l->lock);
	return s;
}

/* One-shot: while a worker is in a source, requests that arrive wake nobody, and the worker
 * looks for them itself for a moment before it leaves (below). */
static const uint32_t events = EPOLLIN | EPOLLONESHOT;

/* If there is more to read it makes a new event, for whoever is idle. */
static int rearm(struct loop *l, struct source *s)
{
	struct epoll_event ev = { .events = events, .data.u64 = s->id };
	if (epoll_ctl(l->epfd, EPOLL_CTL_MOD, s->fd, &ev) < 0 && errno != ENOENT)
		return -errno; /* ENOENT: it has just died, which the next read meets */
	return 0;
}

/* Called without the lock, by the one who saw the last user leave a dead source. */
static void source_end(struct loop *l, struct source *s)
{
	s->ops->end(s->ctx, s->error);
	pthread_mutex_lock(&l->lock);
	(void)u64map_del(&l->sources, s->id); /* it is s */
	pthread_cond_broadcast(&l->ended);
	pthread_mutex_unlock(&l->lock);
	free(s);
}

/* With the lock held. No event of the source comes any more, and no worker enters. */
static void source_kill(struct loop *l, struct source *s, int error)
{
	if (s->dead)
		return;
	s->dead = true;
	s->error = error;
	/* It is in the set, for it was added and only this takes it out. */
	(void)epoll_ctl(l->epfd, EPOLL_CTL_DEL, s->fd, NULL);
}

static void source_leave(struct loop *l, struct source *s, int error)
{
	pthread_mutex_lock(&l->lock);
	if (error)
		source_kill(l, s, error);
	bool empty = --s->users == 0, last = empty && s->dead;
	l->nmore -= !empty;
	if (s->missed && !s->dead)
		(void)rearm(l, s); /* it is in the set, and a change takes no memory */
	s->missed = false;
	pthread_mutex_unlock(&l->lock);
	if (last)
		source_end(l, s);
}

/* Holding a core in vain would keep others of this process from it. */
static bool is_crowded(const struct loop *l, const struct source *s)
{
	return l->few_cores && s->ops->crowded && s->ops->crowded(s->ctx);
}

void loop_hand_on(struct loop *l, uint64_t id)
{
	pthread_mutex_lock(&l->lock);
	struct source *s = u64map_get(&l->sources, id);
	if (s && !s->dead && may_share(l, s))
		(void)rearm(l, s); /* it is in the set, and a change takes no memory */
	else if (s)
		s->missed = true;
	pthread_mutex_unlock(&l->lock);
}

/* After a request that took less than was feared: if nobody else has come in, this worker goes on
 * by itself, and the next request, which it looks for, needn't wake another one for nothing. */
static void disarm(struct loop *l, struct source *s)
{
	struct epoll_event ev = { .events = EPOLLONESHOT, .data.u64 = s->id };
	pthread_mutex_lock(&l->lock);
	if (s->users == 1 && !s->dead)
		(void)epoll_ctl(l->epfd, EPOLL_CTL_MOD, s->fd, &ev); /* else some wake in vain */
	pthread_mutex_unlock(&l->lock);
}

/* A client that asks one thing after the other has its next request ready microseconds after
 * an answer, while putting a worker to sleep and waking it costs far more, on a virtual machine
 * with a halted core above all: an untar took 6.7 s with sleeping workers and 2.5 s with these.
 * So a worker looks on for SPIN_NS, but only where the last request came about as soon; who
 * asks now and then costs no spinning. Nor does it where that is in vain again and again: then the
 * client wants this very core, and could go on only once the worker sleeps, or it takes longer.
 * Returns whether to read once more. */
static bool spin_on(const struct loop *l, struct source *s, uint64_t *idle_since)
{
	uint64_t now = clock_ns();
	if (*idle_since == 0)
		*idle_since = now;
	if (!atomic_load_explicit(&s->spins, memory_order_relaxed))
		return false;
	if (is_crowded(l, s))
		return false;
	if (now - *idle_since < SPIN_NS)
		return true;
	unsigned doubt = atomic_load_explicit(&s->doubt, memory_order_relaxed) * 2 + 1;
	if (doubt > DOUBT_MAX)
		doubt = DOUBT_MAX;
	atomic_store_explicit(&s->doubt, doubt, memory_order_relaxed);
	atomic_store_explicit(&s->rest, doubt / DOUBT_FROM, memory_order_relaxed);
	atomic_store_explicit(&s->spins, false, memory_order_relaxed);
	return false;
}

/* A request woke a worker: does the next one pay for waiting? What several workers of a source
 * learn at once may get lost, which costs a moment's spinning. */
static void spin_learn(struct source *s)
{
	uint64_t since = atomic_load_explicit(&s->idle_since, memory_order_relaxed);
	unsigned rest = atomic_load_explicit(&s->rest, memory_order_relaxed);
	if (rest > 0)
		atomic_store_explicit(&s->rest, rest - 1, memory_order_relaxed);
	atomic_store_explicit(&s->spins, rest == 0 && clock_ns() - since < SPIN_LEARN_NS,
			      memory_order_relaxed);
}

/* A killed process can't have a page made while the kernel copies a request to it: then the
 * request would end with an error, and could never be sent again. So all are there before. */
static void warm_up(struct worker *w)
{
	if (w->cold)
		pages_populate(w->buf, REQUEST_BYTES);
	w->cold = false;
}

/* Once a turn is over: an event of whoever waits for a worker, the source itself maybe. */
static bool next_waits(const struct loop *l, struct epoll_event *next)
{
	return epoll_wait(l->epfd, next, 1, 0) == 1;
}

/* A request was read. 1: the source is armed already, and the worker leaves it. */
static int serve_one(struct worker *w, struct source *s, size_t n)
{
	bool shared = s->ops->slow(s->ctx, w->buf, n) && may_share(w->loop, s);
	int r = shared ? rearm(w->loop, s) : 0;
	atomic_fetch_add(&w->turn, 1);
	s->ops->request(s->ctx, w->buf, n);
	atomic_fetch_add(&w->turn, 1);
	if (r < 0 || !shared)
		return r;
	if (is_crowded(w->loop, s))
		return 1; /* whoever is woken goes on */
	disarm(w->loop, s);
	return 0;
}

/* 0 when there is no more for now or others come first, or the negated errno that ended the source.
 * *next: an event that this worker has taken; .events 0: none. */
static int serve(struct worker *w, struct source *s, struct epoll_event *next)
{
	uint64_t idle_since = 0, began = clock_ns();
	spin_learn(s);
	for (;;) {
		ssize_t n = read(s->fd, w->buf, REQUEST_BYTES);
		if (n > 0) {
			if (idle_since) { /* who waited has nobody before it */
				began = clock_ns();
				atomic_store_explicit(&s->doubt, 0, memory_order_relaxed);
			}
			idle_since = 0;
			int r = serve_one(w, s, (size_t)n);
			if (r != 0)
				return r < 0 ? r : 0;
			if (clock_ns() - began < TURN_NS)
				continue;
			if (next_waits(w->loop, next))
				break;
			began = clock_ns();
			continue;
		}
		if (n == 0)
			return -ENODEV;
		if (errno == EAGAIN && spin_on(w->loop, s, &idle_since))
			continue;
		if (errno == EAGAIN) {
			atomic_store_explicit(&s->idle_since, idle_since, memory_order_relaxed);
			break;
		}
		/* ENOENT: the request was interrupted before it was read. */
		if (errno != EINTR && errno != ENOENT)
			return -errno;
	}
	return rearm(w->loop, s); /* what is left comes behind the others */
}

/* The unused part of the calling thread's stack. */
static void stack_shed(void)
{
	pthread_attr_t attr;
	if (pthread_getattr_np(pthread_self(), &attr) != 0)
		return; /* only memory is lost */
	void *base;
	size_t size;
	if (pthread_attr_getstack(&attr, &base, &size) == 0) {
		char here; /* about where the stack's used part ends */
		uintptr_t low = (uintptr_t)base, top = (uintptr_t)&here - STACK_KEEP;
		top -= top % 4096;
		if (top > low && top - low < size)
			pages_shed(base, top - low);
	}
	(void)pthread_attr_destroy(&attr);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct loop *l = w->loop;
	char name[16];
	(void)snprintf(name, sizeof(name), "fs-worker-%u", w->number);
	(void)pthread_setname_np(pthread_self(), name); /* for people only */
	int timeout_ms = IDLE_MS;
	struct epoll_event ev = { .events = 0 }; /* one that was taken */
	for (;;) {
		int n = ev.events ? 1 : epoll_wait(l->epfd, &ev, 1, timeout_ms);
		if (n == 0) {
			pthread_mutex_lock(&w->busy);
			pages_shed(w->buf, REQUEST_BYTES);
			w->cold = true;
			pthread_mutex_unlock(&w->busy);
			scratch_shed();
			stack_shed();
			timeout_ms = -1;
			continue;
		}
		if (n < 0) {
			assert(errno == EINTR); /* the descriptor and the pointer are good */
			continue;
		}
		if (ev.data.u64 == 0)
			return NULL;
		timeout_ms = IDLE_MS;
		struct source *s = source_enter(l, ev.data.u64);
		ev.events = 0;
		if (!s)
			continue;
		pthread_mutex_lock(&w->busy);
		warm_up(w);
		int error = serve(w, s, &ev);
		pthread_mutex_unlock(&w->busy);
		source_leave(l, s, error);
	}
}

static int worker_start(struct loop *l, struct worker *w, unsigned number)
{
	w->loop = l;
	w->number = number;
	w->cold = true;
	w->buf = pages_map(REQUEST_BYTES);
	if (!w->buf)
		return -ENOMEM;
	pthread_mutex_init(&w->busy, NULL);
	pthread_attr_t attr;
	int r = pthread_attr_init(&attr);
	if (r == 0) {
		/* Sanitizers need more than the few KiB that handlers do; those double it. */
		r = pthread_attr_setstacksize(&attr, STACK_BYTES);
		if (r == 0)
			r = pthread_create(&w->thread, &attr, worker_main, w);
		(void)pthread_attr_destroy(&attr);
	}
	if (r != 0) {
		pthread_mutex_destroy(&w->busy);
		pages_unmap(w->buf, REQUEST_BYTES);
	}
	return -r;
}

/* As in sched_setattr(2), of which older C libraries know nothing. */
struct sched {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice_ns, deadline_ns, period_ns;
};

/* Of the calling thread, and of those that it makes from now on; 0: the kernel's own. Whoever asked
 * waits for a worker, which needs microseconds. But where there is more to do than there are cores,
 * the kernel lets who has one go on for its slice, 1.4 ms and more, unless the other's is shorter
 * (Linux 6.12; before, it is ignored). Nobody's share becomes more by it. Where it isn't allowed,
 * answers are later, and no less right. */
static void set_slice(uint64_t ns)
{
	struct sched s = { .size = sizeof(s) };
	if (syscall(SYS_sched_getattr, 0, &s, sizeof(s), 0) < 0 || s.policy != SCHED_OTHER)
		return;
	s.slice_ns = ns;
	(void)syscall(SYS_sched_setattr, 0, &s, 0);
}

static unsigned between(long min, long n, long max)
{
	return (unsigned)(n < min ? min : n > max ? max : n);
}

int loop_start(struct loop **out, unsigned workers, struct err *err)
{
	if (workers > WORKERS_MAX)
		return err_set(err, -EINVAL, "at most %d workers", WORKERS_MAX);
	long cores = sysconf(_SC_NPROCESSORS_ONLN); /* -1: who knows */
	unsigned share = between(SHARE_MIN, cores + 2, WORKERS_MAX);
	unsigned n = workers ? workers : between(WORKERS_MIN, 2L * share, WORKERS_MAX);
	struct loop *l = calloc(1, sizeof(*l));
	if (!l)
		return err_no_memory(err);
	l->share = share;
	l->few_cores = cores < CORES_ENOUGH;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->ended, NULL);
	l->workers = calloc(n, sizeof(*l->workers));
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	l->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = l->workers ? 0 : -ENOMEM;
	if (r == 0 && (l->epfd < 0 || l->stop < 0))
		r = -errno;
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 0 };
	if (r == 0 && epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->stop, &ev) < 0)
		r = -errno;
	set_slice(SLICE_NS);
	for (; r == 0 && l->nworkers < n; l->nworkers += r == 0)
		r = worker_start(l, &l->workers[l->nworkers], l->nworkers);
	set_slice(0);
	if (r < 0) {
		loop_stop(l);
		return err_sys(err, r, "start %u workers", n);
	}
	*out = l;
	return 0;
}

void loop_halt(struct loop *l)
{
	if (l->nworkers > 0) {
		uint64_t one = 1;
		ssize_t n = write(l->stop, &one, sizeof(one));
		assert(n == sizeof(one)); /* the counter was 0 */
	}
	for (unsigned i = 0; i < l->nworkers; i++) {
		struct worker *w = &l->workers[i];
		(void)pthread_join(w->thread, NULL); /* it is ours and joinable */
		pthread_mutex_destroy(&w->busy);
		pages_unmap(w->buf, REQUEST_BYTES);
	}
	l->nworkers = 0;
}

void loop_stop(struct loop *l)
{
	if (!l)
		return;
	assert(l->sources.count == 0);
	loop_halt(l);
	cleanup_close(&l->stop);
	cleanup_close(&l->epfd);
	free(l->workers);
	u64map_done(&l->sources);
	pthread_cond_destroy(&l->ended);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

unsigned loop_workers(const struct loop *l)
{
	return l->nworkers;
}

int loop_add(struct loop *l, int fd, const struct loop_ops *ops, void *ctx, uint64_t *source)
{
	struct source *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	*s = (struct source){ .fd = fd, .ops = ops, .ctx = ctx };
	pthread_mutex_lock(&l->lock);
	s->id = ++l->last_id;
	int r = u64map_put(&l->sources, s->id, s);
	if (r == 0) {
		*source = s->id;
		struct epoll_event ev = { .events = events, .data.u64 = s->id };
		if (epoll_ctl(l->epfd, EPOLL_CTL_ADD, fd, &ev) < 0) {
			r = -errno;
			(void)u64map_del(&l->sources, s->id); /* it is s */
		}
	}
	pthread_mutex_unlock(&l->lock);
	if (r < 0)
		free(s);
	return r;
}

void loop_remove(struct loop *l, uint64_t source)
{
	pthread_mutex_lock(&l->lock);
	struct source *s = u64map_get(&l->sources, source);
	bool mine = s && !s->dead && s->users == 0;
	if (s)
		source_kill(l, s, 0);
	if (mine) {
		pthread_mutex_unlock(&l->lock);
		source_end(l, s);
		return;
	}
	while (u64map_get(&l->sources, source))
		pthread_cond_wait(&l->ended, &l->lock);
	pthread_mutex_unlock(&l->lock);
}

void loop_quiesce(struct loop *l)
{
	for (unsigned i = 0; i < l->nworkers; i++) {
		uint64_t turn = atomic_load(&l->workers[i].turn);
		while (turn % 2 && atomic_load(&l->workers[i].turn) == turn)
			(void)poll(NULL, 0, 1);
	}
}

void loop_shed(struct loop *l)
{
	for (unsigned i = 0; i < l->nworkers; i++) {
		struct worker *w = &l->workers[i];
		if (pthread_mutex_trylock(&w->busy) != 0)
			continue;
		pages_shed(w->buf, REQUEST_BYTES);
		w->cold = true;
		pthread_mutex_unlock(&w->busy);
	}
}
