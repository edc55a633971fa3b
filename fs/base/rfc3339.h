/* Times as the API has them: "2001-02-03T04:05:06.123456789Z", RFC 3339 with nanoseconds, UTC. */
#ifndef BOUGH_BASE_RFC3339_H
#define BOUGH_BASE_RFC3339_H

#include <time.h>

enum { RFC3339_SIZE = 48 }; /* of a text, its end counted */
int rfc3339_parse(const char *text, struct timespec *out); /* of just that form: 0 or -EINVAL */
/* Returns `out`. A time whose year no calendar has is that of 1970. */
const char *rfc3339_text(char out[RFC3339_SIZE], const struct timespec *t);

#endif
