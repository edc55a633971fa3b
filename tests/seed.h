/* The seed of a random test: BOUGH_SEED, or another one each time. It is printed, so that a run can
 * be repeated; .ci/run gives one, so that what it says of a commit doesn't change. */
#ifndef BOUGH_TESTS_SEED_H
#define BOUGH_TESTS_SEED_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "fs/base/clock.h"

static inline uint64_t test_seed(void)
{
	const char *given = getenv("BOUGH_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : clock_ns() % 1000000007 | 1;
	(void)printf("# BOUGH_SEED=%" PRIu64 "\n", seed);
	return seed;
}

#endif
