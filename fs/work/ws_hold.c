/* Room in the quota that is kept for who is about to write: for everybody else it is used. */
#include <errno.h>
#include <stdlib.h>

#include "fs/work/ws_impl.h"

/* Of all together, where the quota has no limit: sums of these and of what is used are numbers. */
#define RESERVED_MAX (INT64_MAX / 4)

struct ws_hold {
	struct ws_hold *next;
	uint64_t who;
	pid_t by;
	int64_t bytes, inodes;
};

static struct ws_hold **find(struct ws *ws, uint64_t who)
{
	struct ws_hold **at = &ws->holds;
	while (*at && (*at)->who != who)
		at = &(*at)->next;
	return at;
}

static void count(struct ws *ws, struct ws_hold *h, int64_t bytes, int64_t inodes)
{
	h->bytes += bytes;
	h->inodes += inodes;
	ws->quota.reserved += bytes;
	ws->quota.reserved_inodes += inodes;
}

static void drop(struct ws *ws, struct ws_hold **at)
{
	struct ws_hold *h = *at;
	count(ws, h, -h->bytes, -h->inodes);
	*at = h->next;
	free(h);
}

static int hold_locked(struct ws *ws, uint64_t who, pid_t by, int64_t bytes, int64_t inodes)
{
	struct ws_hold **at = find(ws, who), *h = *at;
	const struct quota *q = &ws->quota;
	const int64_t more_bytes = bytes - (h ? h->bytes : 0);
	const int64_t more_inodes = inodes - (h ? h->inodes : 0);
	if (more_bytes > RESERVED_MAX - q->reserved ||
	    more_inodes > RESERVED_MAX - q->reserved_inodes)
		return -EDQUOT;
	int r = quota_check(q, more_bytes, more_inodes);
	if (r == 0 && !h && who && (bytes || inodes)) {
		h = *at = calloc(1, sizeof(*h));
		if (!h)
			return -ENOMEM;
		h->who = who;
	}
	if (r < 0 || !h)
		return r;
	h->by = by;
	count(ws, h, more_bytes, more_inodes);
	if (!bytes && !inodes)
		drop(ws, at);
	return 0;
}

void ws_hold_end(struct ws *ws, pid_t by)
{
	ws_enter(ws);
	meta_write(ws);
	for (struct ws_hold **at = &ws->holds; *at;)
		if ((*at)->by == by)
			drop(ws, at);
		else
			at = &(*at)->next;
	meta_done(ws);
	ws_leave(ws);
}

int ws_hold(struct ws *ws, uint64_t who, pid_t by, uint64_t bytes, uint64_t inodes)
{
	if (bytes > INT64_MAX || inodes > INT64_MAX)
		return -EDQUOT;
	ws_enter(ws);
	meta_write(ws);
	int r = hold_locked(ws, who, by, (int64_t)bytes, (int64_t)inodes);
	meta_done(ws);
	ws_leave(ws);
	return r;
}

void ws_holds_free(struct ws *ws)
{
	for (struct ws_hold *h = ws->holds, *next; h; h = next) {
		next = h->next;
		free(h);
	}
	ws->holds = NULL;
}

/* ---- spending it, under meta exclusive ---- */

static int64_t part(int64_t want, int64_t have)
{
	return want <= 0 || have <= 0 ? 0 : want < have ? want : have;
}

int hold_check(struct ws *ws, uint64_t who, int64_t bytes, int64_t inodes)
{
	const struct ws_hold *h = who ? *find(ws, who) : NULL;
	return quota_check(&ws->quota, bytes - part(bytes, h ? h->bytes : 0),
			   inodes - part(inodes, h ? h->inodes : 0));
}

int64_t hold_spend(struct ws *ws, uint64_t who, int64_t bytes, int64_t inodes)
{
	struct ws_hold *h = who ? *find(ws, who) : NULL;
	int64_t paid = part(bytes, h ? h->bytes : 0);
	if (h)
		count(ws, h, -paid, -part(inodes, h->inodes));
	return paid;
}

void hold_give_back(struct ws *ws, uint64_t who, int64_t bytes)
{
	struct ws_hold *h = who ? *find(ws, who) : NULL;
	if (h)
		count(ws, h, bytes, 0);
}
