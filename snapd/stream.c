#include "snapd/stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "fs/base/clock.h"

struct stream {
	pthread_mutex_t lock;
	pthread_cond_t room, bytes;
	unsigned refs;
	size_t head, len; /* of the ring */
	bool ended, left;
	int code;
	uint8_t ring[STREAM_BYTES];
};

struct stream *stream_new(void)
{
	struct stream *s = malloc(sizeof(*s));
	if (!s)
		return NULL;
	memset(s, 0, offsetof(struct stream, ring)); /* the ring's pages come as they are used */
	s->refs = 2;
	pthread_mutex_init(&s->lock, NULL);
	clock_cond_init(&s->room);
	clock_cond_init(&s->bytes);
	return s;
}

void stream_unref(struct stream *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	unsigned left = --s->refs;
	pthread_mutex_unlock(&s->lock);
	if (left > 0)
		return;
	pthread_cond_destroy(&s->bytes);
	pthread_cond_destroy(&s->room);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static size_t put(struct stream *s, const uint8_t *p, size_t n)
{
	size_t tail = (s->head + s->len) % STREAM_BYTES;
	if (n > STREAM_BYTES - s->len)
		n = STREAM_BYTES - s->len;
	if (n > STREAM_BYTES - tail)
		n = STREAM_BYTES - tail;
	memcpy(s->ring + tail, p, n);
	s->len += n;
	return n;
}

int stream_write(struct stream *s, const void *data, size_t n)
{
	const uint8_t *p = data;
	int r = 0;
	pthread_mutex_lock(&s->lock);
	while (n > 0 && !s->left) {
		size_t did = put(s, p, n);
		if (did > 0)
			pthread_cond_signal(&s->bytes);
		else
			pthread_cond_wait(&s->room, &s->lock);
		p += did;
		n -= did;
	}
	if (s->left)
		r = -EPIPE;
	pthread_mutex_unlock(&s->lock);
	return r;
}

void stream_end(struct stream *s, int code)
{
	pthread_mutex_lock(&s->lock);
	if (!s->ended) {
		s->ended = true;
		s->code = code;
	}
	pthread_cond_signal(&s->bytes);
	pthread_mutex_unlock(&s->lock);
}

size_t stream_fill(struct stream *s)
{
	pthread_mutex_lock(&s->lock);
	size_t n = s->len;
	pthread_mutex_unlock(&s->lock);
	return n;
}

static int wait_for_bytes(struct stream *s, int wait_ms)
{
	if (wait_ms < 0)
		return pthread_cond_wait(&s->bytes, &s->lock);
	struct timespec t = clock_in_ms(wait_ms);
	int r = 0;
	while (s->len == 0 && !s->ended && r == 0)
		r = pthread_cond_timedwait(&s->bytes, &s->lock, &t);
	return r;
}

ssize_t stream_read(struct stream *s, void *buf, size_t n, int wait_ms)
{
	ssize_t r;
	int w = 0;
	pthread_mutex_lock(&s->lock);
	while (s->len == 0 && !s->ended && w == 0)
		w = wait_for_bytes(s, wait_ms);
	if (s->len > 0) {
		size_t take = n < s->len ? n : s->len;
		size_t first = take < STREAM_BYTES - s->head ? take : STREAM_BYTES - s->head;
		memcpy(buf, s->ring + s->head, first);
		memcpy((uint8_t *)buf + first, s->ring, take - first);
		s->len -= take;
		s->head = s->len ? (s->head + take) % STREAM_BYTES : 0;
		pthread_cond_signal(&s->room);
		r = (ssize_t)take;
	} else {
		r = s->ended ? s->code : -EAGAIN;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

void stream_leave(struct stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->left = true;
	pthread_cond_signal(&s->room);
	pthread_mutex_unlock(&s->lock);
}
