/* Server-sent events of the API: read until they end, and on from there with another boughd. */
#ifndef BOUGH_TOOLS_SSE_H
#define BOUGH_TOOLS_SSE_H

#include "tools/bough/api.h"

enum { SSE_ID_MAX = 96 };
struct sse {
	struct cli *cli;
	char id[SSE_ID_MAX]; /* of the last one; "": none yet */
	/* Where they come from, behind `id`. */
	struct target (*target)(void *ctx, const char *id);
	/* The data of one: 1 to go on, 0: that was enough; or why not. */
	int (*event)(void *ctx, const char *data, struct err *err);
	void *ctx;
};
/* 0: there is enough; with `again` false also where the stream ended. */
int sse_read(struct sse *s, bool again, struct err *err);

#endif
