#include "fs/base/rfc3339.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

/* `n` digits, and what is behind them. */
static bool digits(const char **p, unsigned n, char behind, long *out)
{
	long v = 0;
	for (; n > 0; n--, (*p)++) {
		if (**p < '0' || **p > '9')
			return false;
		v = v * 10 + (**p - '0');
	}
	*out = v;
	return *(*p)++ == behind;
}

int rfc3339_parse(const char *text, struct timespec *out)
{
	long year, month, day, hour, minute, second, nsec;
	if (!digits(&text, 4, '-', &year) || !digits(&text, 2, '-', &month) ||
	    !digits(&text, 2, 'T', &day) || !digits(&text, 2, ':', &hour) ||
	    !digits(&text, 2, ':', &minute) || !digits(&text, 2, '.', &second) ||
	    !digits(&text, 9, 'Z', &nsec) || *text)
		return -EINVAL;
	struct tm tm = { .tm_year = (int)year - 1900,
			 .tm_mon = (int)month - 1,
			 .tm_mday = (int)day,
			 .tm_hour = (int)hour,
			 .tm_min = (int)minute,
			 .tm_sec = (int)second };
	*out = (struct timespec){ timegm(&tm), nsec };
	/* A 31st of June becomes another day. */
	return tm.tm_mon == month - 1 && tm.tm_mday == day && tm.tm_hour == hour &&
			       tm.tm_min == minute && tm.tm_sec == second
		       ? 0
		       : -EINVAL;
}

const char *rfc3339_text(char out[RFC3339_SIZE], const struct timespec *t)
{
	struct tm tm = { 0 };
	if (!gmtime_r(&t->tv_sec, &tm))
		(void)gmtime_r(&(time_t){ 0 }, &tm);
	(void)snprintf(out, RFC3339_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%09ldZ", tm.tm_year + 1900,
		       tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, t->tv_nsec);
	return out;
}
