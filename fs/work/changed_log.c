#include "fs/work/changed_log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/u64map.h"

struct changed_log {
	atomic_uint refs;
	struct layer_id id;
	uint64_t floor, last;
	struct changed_entry *newest, *oldest;
	struct u64map inodes; /* of entries about inodes: ino -> entry */
	size_t count, bytes;
};

static size_t entry_size(size_t name_len)
{
	size_t n = offsetof(struct changed_entry, name) + name_len;
	return n > sizeof(struct changed_entry) ? n : sizeof(struct changed_entry);
}

struct changed_log *changed_log_new(const struct layer_id *id)
{
	struct changed_log *g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	atomic_init(&g->refs, 1);
	g->id = *id;
	return g;
}

struct changed_log *changed_log_ref(struct changed_log *g)
{
	atomic_fetch_add(&g->refs, 1);
	return g;
}

static void take_out(struct changed_log *g, struct changed_entry *e)
{
	*(e->newer ? &e->newer->older : &g->newest) = e->older;
	*(e->older ? &e->older->newer : &g->oldest) = e->newer;
}

static void put_first(struct changed_log *g, struct changed_entry *e)
{
	e->newer = NULL;
	e->older = g->newest;
	*(g->newest ? &g->newest->newer : &g->oldest) = e;
	g->newest = e;
}

static void drop(struct changed_log *g, struct changed_entry *e)
{
	take_out(g, e);
	if (e->cookie == 0)
		(void)u64map_del(&g->inodes, e->ino);
	g->count--;
	g->bytes -= entry_size(e->name_len);
	free(e);
}

static void drop_oldest(struct changed_log *g)
{
	if (g->floor < g->oldest->seq)
		g->floor = g->oldest->seq;
	drop(g, g->oldest);
}

void changed_log_unref(struct changed_log *g)
{
	if (!g || atomic_fetch_sub(&g->refs, 1) != 1)
		return;
	while (g->oldest)
		drop_oldest(g);
	u64map_done(&g->inodes);
	free(g);
}

void changed_log_forget(struct changed_log *g, uint64_t seq)
{
	while (g->oldest && g->oldest->seq <= seq)
		drop_oldest(g);
	if (g->floor < seq)
		g->floor = seq;
	if (g->last < seq)
		g->last = seq;
}

static struct changed_entry *add(struct changed_log *g, uint64_t seq, size_t name_len)
{
	struct changed_entry *e = malloc(entry_size(name_len));
	g->last = seq;
	if (!e) {
		changed_log_forget(g, seq);
		return NULL;
	}
	*e = (struct changed_entry){ .seq = seq, .name_len = (uint8_t)name_len };
	put_first(g, e);
	g->count++;
	g->bytes += entry_size(name_len);
	if (g->count > CHANGED_LOG_MAX)
		drop_oldest(g);
	return e;
}

void changed_log_inode(struct changed_log *g, uint64_t seq, uint64_t ino)
{
	struct changed_entry *e = u64map_get(&g->inodes, ino);
	if (e && e->seq == seq)
		return;
	if (e) {
		take_out(g, e);
		put_first(g, e);
		e->again = true;
		g->last = e->seq = seq;
		return;
	}
	e = add(g, seq, 0);
	if (!e)
		return;
	e->ino = ino;
	if (u64map_put(&g->inodes, ino, e) < 0)
		changed_log_forget(g, seq); /* this one with all others */
}

void changed_log_gone(struct changed_log *g, uint64_t ino)
{
	struct changed_entry *e = u64map_get(&g->inodes, ino);
	if (e)
		drop(g, e);
}

void changed_log_name(struct changed_log *g, uint64_t seq, const struct changed_name *n)
{
	struct changed_entry *e = add(g, seq, n->len);
	if (!e)
		return;
	e->ino = n->dir;
	e->cookie = n->cookie;
	e->child = n->child;
	e->type = n->type;
	e->kind = (uint8_t)n->kind;
	if (n->len)
		memcpy(e->name, n->name, n->len);
}

const struct layer_id *changed_log_id(const struct changed_log *g)
{
	return &g->id;
}

uint64_t changed_log_floor(const struct changed_log *g)
{
	return g->floor;
}

uint64_t changed_log_last(const struct changed_log *g)
{
	return g->last;
}

const struct changed_entry *changed_log_newest(const struct changed_log *g)
{
	return g->newest;
}

size_t changed_log_bytes(const struct changed_log *g)
{
	return sizeof(*g) + g->bytes + g->inodes.cap * sizeof(*g->inodes.slots);
}
