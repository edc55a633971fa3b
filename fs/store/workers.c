#include "fs/store/workers.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include "fs/store/internal.h"

enum { WORKERS_MAX = 64 }; /* more would only wait for each other at the pack's end */

void workers_init(struct workers *p)
{
	*p = (struct workers){ 0 };
	(void)pthread_mutex_init(&p->lock, NULL); /* can't fail with default attributes */
	(void)pthread_cond_init(&p->some, NULL);
}

unsigned workers_count(void)
{
	cpu_set_t mine;
	int n = sched_getaffinity(0, sizeof(mine), &mine) == 0 ? CPU_COUNT(&mine) : 1;
	return n < 1 ? 1 : n > WORKERS_MAX ? WORKERS_MAX : (unsigned)n;
}

int store_worker_init(struct store_worker *w)
{
	w->codec = codec_new();
	w->record = malloc(STORE_RECORD_BUF);
	if (w->codec && w->record)
		return 0;
	store_worker_end(w);
	return -ENOMEM;
}

void store_worker_end(struct store_worker *w)
{
	codec_free(w->codec);
	free(w->record);
	*w = (struct store_worker){ 0 };
}

/* ---- turns ---- */

static void append(struct workers *p, struct work_queue *q)
{
	q->next = NULL;
	if (p->last)
		p->last->next = q;
	else
		p->first = q;
	p->last = q;
}

/* One work of the queue whose turn it is, which is the last one then. */
static struct work *take(struct workers *p, struct work_queue **of)
{
	struct work_queue *q = p->first;
	struct work *w = q->head;
	p->waiting--;
	p->first = q->next;
	if (!p->first)
		p->last = NULL;
	q->head = w->next;
	if (!q->head)
		q->tail = NULL;
	else
		append(p, q);
	*of = q;
	return w;
}

struct start {
	struct workers *p;
	struct store_worker with;
};

static void *run(void *arg)
{
	struct start *s = arg;
	struct workers *p = s->p;
	(void)pthread_mutex_lock(&p->lock);
	for (;;) {
		struct work_queue *q;
		while (!p->first && !p->stop)
			(void)pthread_cond_wait(&p->some, &p->lock);
		if (!p->first)
			break;
		struct work *w = take(p, &q);
		(void)pthread_mutex_unlock(&p->lock);
		w->run(w, &s->with);
		(void)pthread_mutex_lock(&p->lock);
		w->waits = false;
		(void)pthread_cond_signal(&q->done); /* one thread works on a session */
	}
	(void)pthread_mutex_unlock(&p->lock);
	store_worker_end(&s->with);
	free(s);
	return NULL;
}

/* As many as can be had; under the lock. */
static void begin(struct workers *p)
{
	unsigned want = workers_count();
	p->tried = true;
	p->threads = calloc(want, sizeof(*p->threads));
	for (; p->threads && p->n < want; p->n++) {
		struct start *s = calloc(1, sizeof(*s));
		if (!s)
			return;
		s->p = p;
		if (store_worker_init(&s->with) == 0 &&
		    pthread_create(&p->threads[p->n], NULL, run, s) == 0)
			continue;
		store_worker_end(&s->with);
		free(s);
		return;
	}
}

int workers_add(struct workers *p, struct work_queue *q, struct work *w)
{
	(void)pthread_mutex_lock(&p->lock);
	if (!p->tried)
		begin(p);
	bool some = p->n > 0;
	if (some) {
		w->next = NULL;
		w->waits = true;
		if (q->head)
			q->tail->next = w;
		else
			q->head = w, append(p, q);
		q->tail = w;
		p->waiting++;
		(void)pthread_cond_signal(&p->some);
	}
	(void)pthread_mutex_unlock(&p->lock);
	return some ? 0 : -EAGAIN;
}

size_t workers_waiting(struct workers *p)
{
	(void)pthread_mutex_lock(&p->lock);
	size_t n = p->waiting;
	(void)pthread_mutex_unlock(&p->lock);
	return n;
}

void workers_wait(struct workers *p, struct work_queue *q, struct work *w)
{
	(void)pthread_mutex_lock(&p->lock);
	while (w->waits)
		(void)pthread_cond_wait(&q->done, &p->lock);
	(void)pthread_mutex_unlock(&p->lock);
}

void workers_end(struct workers *p)
{
	(void)pthread_mutex_lock(&p->lock);
	p->stop = true;
	(void)pthread_cond_broadcast(&p->some);
	(void)pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n; i++)
		(void)pthread_join(p->threads[i], NULL); /* ours, joined once */
	free(p->threads);
	(void)pthread_cond_destroy(&p->some);
	(void)pthread_mutex_destroy(&p->lock);
}
