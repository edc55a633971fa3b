/* JSON as text. */
#ifndef BOUGH_BASE_JSON_H
#define BOUGH_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>
#include "fs/base/buf.h"

enum { JSON_NESTED_MAX = 32 };

/* json_loadb for text from outside: what nests deeper than JSON_NESTED_MAX is an error. jansson
 * goes 2,048 levels deep into itself, which takes 190 KiB of a thread's stack. */
json_t *json_parse(const void *data, size_t len, size_t flags, json_error_t *err);

static inline int json_text_add(const char *text, size_t n, void *buf)
{
	buf_add(buf, text, n);
	return 0; /* buf remembers */
}

/* As json_dumps, the caller frees it; but NULL where memory ran out on the way: jansson overlooks
 * some failures to append (up to 2.14 at least), and gives what is left. */
static inline char *json_text(const json_t *j, size_t flags)
{
	struct buf b = { 0 };
	int r = json_dump_callback(j, json_text_add, &b, flags);
	buf_add(&b, "", 1);
	if (r < 0 || buf_error(&b) < 0)
		buf_done(&b);
	return (char *)b.data;
}

#endif
