/* The store's workers: as many threads as there are cores, which hash and compress for all sessions
 * of the process. Each session has a queue; they take from the queues in turn, so that a small save
 * isn't held up behind a large one. What waits is bounded by who adds it. They begin with the
 * first work, and end with the store. Not for others than the store. */
#ifndef BOUGH_STORE_WORKERS_H
#define BOUGH_STORE_WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include "fs/store/codec.h"

/* What a worker has of its own. */
struct store_worker {
	struct codec *codec;
	uint8_t *record; /* STORE_RECORD_BUF bytes */
};

/* The owner's memory, from workers_add until workers_wait. `run` is called on a worker. */
struct work {
	struct work *next;
	void (*run)(struct work *w, const struct store_worker *with);
	bool waits; /* it was added, and isn't done */
};

/* Of one session: works in the order they were added. Of all zeros but for `done`. */
struct work_queue {
	struct work *head, *tail;
	struct work_queue *next; /* whose turn is next */
	pthread_cond_t done;
};

struct workers {
	pthread_mutex_t lock;
	pthread_cond_t some; /* there is work */
	struct work_queue *first, *last; /* those with work, in turn */
	size_t waiting; /* works in them, beside those that are done just now */
	pthread_t *threads;
	unsigned n; /* 0: none has begun */
	bool tried, stop;
};

void workers_init(struct workers *p);
/* All work is done. */
void workers_end(struct workers *p);
/* How many there will be: at least 1. */
unsigned workers_count(void);
/* 0, or -errno: there are none, and who adds it does it himself. */
int workers_add(struct workers *p, struct work_queue *q, struct work *w);
/* How much waits for a worker. */
size_t workers_waiting(struct workers *p);
/* Returns when it is done; at once where it wasn't added. */
void workers_wait(struct workers *p, struct work_queue *q, struct work *w);

/* A worker's memory, also for who does it himself. -ENOMEM. */
int store_worker_init(struct store_worker *w);
void store_worker_end(struct store_worker *w);

#endif
