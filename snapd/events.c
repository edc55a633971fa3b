#include "snapd/events.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/clock.h"

struct events {
	uint32_t mark;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t more;
	uint64_t last; /* its number; the ring has it at last % EVENTS_KEPT */
	bool stop;
	struct event ring[EVENTS_KEPT];
};

struct events *events_new(void)
{
	struct events *e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	random_bytes(&e->mark, sizeof(e->mark));
	pthread_mutex_init(&e->lock, NULL);
	clock_cond_init(&e->more);
	return e;
}

void events_free(struct events *e)
{
	if (!e)
		return;
	pthread_cond_destroy(&e->more);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

void events_stop(struct events *e)
{
	pthread_mutex_lock(&e->lock);
	e->stop = true;
	pthread_cond_broadcast(&e->more);
	pthread_mutex_unlock(&e->lock);
}

void events_add(struct events *e, const struct event *what)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	pthread_mutex_lock(&e->lock);
	struct event *to = &e->ring[++e->last % EVENTS_KEPT];
	*to = *what;
	to->seq = e->last;
	to->time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	pthread_cond_broadcast(&e->more);
	pthread_mutex_unlock(&e->lock);
}

uint64_t events_last(struct events *e)
{
	pthread_mutex_lock(&e->lock);
	uint64_t n = e->last;
	pthread_mutex_unlock(&e->lock);
	return n;
}

int events_next(struct events *e, uint64_t after, struct event *out, int wait_ms)
{
	struct timespec until = clock_in_ms(wait_ms);
	int r = 0;
	pthread_mutex_lock(&e->lock);
	while (!e->stop && e->last <= after && r == 0)
		r = pthread_cond_timedwait(&e->more, &e->lock, &until);
	if (e->stop) {
		r = -ESHUTDOWN;
	} else if (e->last <= after) {
		r = 0;
	} else if (e->last - after > EVENTS_KEPT) {
		r = -EKEYEXPIRED;
	} else {
		*out = e->ring[(after + 1) % EVENTS_KEPT];
		r = 1;
	}
	pthread_mutex_unlock(&e->lock);
	return r;
}

void event_id(struct events *e, uint64_t seq, char out[EVENT_ID_SIZE])
{
	(void)snprintf(out, EVENT_ID_SIZE, "%08x.%llu", e->mark, (unsigned long long)seq);
}

int event_id_parse(struct events *e, const char *text, uint64_t *seq)
{
	char *end;
	errno = 0;
	unsigned long mark = strtoul(text, &end, 16);
	if (errno || end != text + 8 || *end != '.' || end[1] < '0' || end[1] > '9')
		return -EINVAL;
	unsigned long long n = strtoull(end + 1, &end, 10);
	if (errno || *end)
		return -EINVAL;
	if (mark != e->mark || n > events_last(e))
		return -EKEYEXPIRED;
	*seq = n;
	return 0;
}
