/* The clock that nobody sets: for how long something takes, and for waiting. Any thread. */
#ifndef BOUGH_BASE_CLOCK_H
#define BOUGH_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

/* Since some point of the past, the same for all programs until the next boot. */
static inline uint64_t clock_ns(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* can't fail for this clock */
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_ms(void)
{
	return clock_ns() / 1000000;
}

/* A condition whose timed waits end by this clock; the caller destroys it. */
static inline void clock_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;
	(void)pthread_condattr_init(&attr); /* none of these can fail on Linux */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(c, &attr);
	(void)pthread_condattr_destroy(&attr);
}

/* When `ms` (>= 0) from now will be, for pthread_cond_timedwait on such a condition. */
static inline struct timespec clock_in_ms(int64_t ms)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)(ms / 1000);
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

#endif
