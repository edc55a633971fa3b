#include "fs/work/watch.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/u64map.h"
#include "fs/work/changed_log.h"
#include "fs/work/ino.h"
#include "fs/work/view.h"

enum {
	LAYER_HEX = 2 * LAYER_ID_BYTES,
	CHANGES_MAX = 65536,  /* of all layers' logs: more than one has */
	STEPS_MAX = 1 << 20,  /* of folders climbed, for one answer: some 100 ms */
	DEPTH_MAX = 4096,     /* folders above each other: deeper ones go round */
	NETS_MAX = 16384,     /* children that one frame names: a log has fewer entries */
};

/* ---- tokens ---- */

struct moment {
	struct layer_id layer;
	uint64_t seq;
	uint32_t part; /* 0: all of the frame */
};

static int parse_number(const char **s, uint64_t max, uint64_t *out)
{
	char *end;
	if (**s < '0' || **s > '9')
		return -EINVAL;
	errno = 0;
	*out = strtoull(*s, &end, 10);
	*s = end;
	return errno || *out > max ? -EINVAL : 0;
}

static int parse(struct moment *m, const char *s)
{
	char hex[LAYER_HEX + 1];
	uint64_t part = 0;
	*m = (struct moment){ 0 };
	if (strnlen(s, WATCH_TOKEN_MAX) < LAYER_HEX + 2 || s[LAYER_HEX] != '.')
		return -EINVAL;
	memcpy(hex, s, LAYER_HEX);
	hex[LAYER_HEX] = 0;
	if (hex_decode(m->layer.b, LAYER_ID_BYTES, hex) < 0)
		return -EINVAL;
	s += LAYER_HEX + 1;
	if (parse_number(&s, INT64_MAX, &m->seq) < 0)
		return -EINVAL;
	if (*s == '-') {
		s++;
		if (parse_number(&s, NETS_MAX, &part) < 0 || part == 0 || m->seq == 0)
			return -EINVAL;
	}
	m->part = (uint32_t)part;
	return *s ? -EINVAL : 0;
}

int watch_token_check(const char *text)
{
	struct moment m;
	return parse(&m, text);
}

static void print(char out[WATCH_TOKEN_MAX], const struct layer_id *id, uint64_t seq, uint32_t part)
{
	char hex[LAYER_HEX + 1];
	hex_encode(hex, id->b, LAYER_ID_BYTES);
	(void)snprintf(out, WATCH_TOKEN_MAX, part ? "%s.%" PRIu64 "-%u" : "%s.%" PRIu64, hex, seq,
		       part);
}

/* Where not even the active layer has a log, the moment is one that nobody will know. */
static void print_now(char out[WATCH_TOKEN_MAX], const struct view *v)
{
	static const struct layer_id none;
	const struct changed_log *g = v->nlayers ? layer_changed(v->layers[0]) : NULL;
	print(out, g ? changed_log_id(g) : &none, g ? changed_log_last(g) : 0, 0);
}

/* ---- gathering ---- */

/* A name that was made or went, or an inode that changed: the newest first. */
struct change {
	uint64_t seq;
	uint64_t dir, cookie; /* of a name; cookie 0: an inode */
	uint64_t ino;         /* it, or the child */
	uint32_t later;       /* the next newer change of that child's names, plus one */
	uint16_t layer;       /* index in the view */
	uint8_t type, name_len;
	bool made, again;
	const char *name; /* borrowed from logs, layers and the image */
};

struct query {
	const struct view *v;
	struct change *c;
	size_t n, cap;
	struct u64map places; /* child -> its oldest change that matters yet, plus one */
	unsigned steps;
};

static int add(struct query *q, const struct change *c)
{
	if (q->n >= CHANGES_MAX)
		return -EKEYEXPIRED;
	if (array_grow(&q->c, q->n, &q->cap) < 0)
		return -ENOMEM;
	struct change *now = &q->c[q->n++];
	*now = *c;
	if (!c->cookie)
		return 0;
	now->later = (uint32_t)(uintptr_t)u64map_get(&q->places, c->ino);
	return u64map_put(&q->places, c->ino, (void *)(uintptr_t)q->n);
}

static bool is_hidden(uint64_t dir, const char *name, size_t len)
{
	return dir == INO_ROOT && len > sizeof(WATCH_HIDDEN) - 1 &&
	       memcmp(name, WATCH_HIDDEN, sizeof(WATCH_HIDDEN) - 1) == 0;
}

/* What the layers below index i show at that cookie went. */
static int add_below(struct query *q, const struct change *over)
{
	const struct view *v = q->v;
	uint32_t i = over->layer;
	const struct view below = view_below(v, i);
	struct dirent_ref d;
	int r = view_dirent_ceil(&below, over->dir, over->cookie, &d);
	if (r == -ENOENT || (r == 0 && d.cookie != over->cookie))
		return 0;
	if (r < 0)
		return r;
	if (is_hidden(over->dir, d.name, d.name_len))
		return 0;
	struct change c = *over;
	c.made = false;
	c.ino = d.ino;
	c.type = d.type;
	c.name = d.name;
	c.name_len = d.name_len;
	return add(q, &c);
}

static int add_entry(struct query *q, uint32_t layer, const struct changed_entry *e)
{
	struct change c = { .seq = e->seq, .layer = (uint16_t)layer, .again = e->again };
	if (!e->cookie) {
		c.ino = e->ino;
		return add(q, &c);
	}
	c.dir = e->ino;
	c.cookie = e->cookie;
	c.ino = e->child;
	c.type = e->type;
	c.name = e->name;
	c.name_len = e->name_len;
	c.made = e->kind == CHANGED_MADE || e->kind == CHANGED_MADE_OVER;
	bool shown = e->kind != CHANGED_HIDDEN && !is_hidden(c.dir, c.name, c.name_len);
	int r = shown ? add(q, &c) : 0;
	if (r == 0 && (e->kind == CHANGED_MADE_OVER || e->kind == CHANGED_HIDDEN))
		r = add_below(q, &c);
	return r;
}

/* All that the log has from after `seq` on. */
static int add_log(struct query *q, uint32_t layer, const struct changed_log *g, uint64_t seq)
{
	int r = 0;
	if (changed_log_floor(g) > seq)
		return -EKEYEXPIRED;
	for (const struct changed_entry *e = changed_log_newest(g); e && e->seq > seq && r == 0;
	     e = e->older)
		r = add_entry(q, layer, e);
	return r;
}

static int gather(struct query *q, const struct moment *m)
{
	for (uint32_t i = 0; i < q->v->nlayers; i++) {
		const struct changed_log *g = layer_changed(q->v->layers[i]);
		if (!g)
			return -EKEYEXPIRED;
		bool here = memcmp(changed_log_id(g), &m->layer, sizeof(m->layer)) == 0;
		if (here && m->seq > changed_log_last(g))
			return -EKEYEXPIRED;
		int r = add_log(q, i, g, here ? m->seq - (m->part > 0) : 0);
		if (r < 0 || here)
			return r;
	}
	return -EKEYEXPIRED;
}

/* ---- paths ---- */

/* A frame's changes: c[lo] the newest, c[hi] the oldest. */
struct frame_of {
	size_t lo, hi;
	uint64_t seq;
	const struct layer_id *layer;
};

struct spot {
	uint64_t dir;
	const char *name;
	size_t len;
};

/* Where the inode was just before the changes below index `limit`: what took that name away says
 * so; else where it is now. 1; 0: nowhere. */
static int spot_of(struct query *q, uint64_t ino, size_t limit, struct spot *out)
{
	struct attr a;
	struct dirent_ref d;
	size_t i = (uintptr_t)u64map_get(&q->places, ino);
	for (; i; i = q->c[i - 1].later) {
		const struct change *c = &q->c[i - 1];
		if (++q->steps > STEPS_MAX)
			return -EKEYEXPIRED;
		if (i - 1 >= limit || c->made)
			continue;
		*out = (struct spot){ c->dir, c->name, c->name_len };
		return 1;
	}
	int r = view_inode(q->v, ino, &a);
	if (r == -ENOENT || (r == 0 && (a.nlink == 0 || !a.parent_cookie)))
		return 0;
	if (r == 0)
		r = view_dirent_ceil(q->v, a.parent, a.parent_cookie, &d);
	if (r == -ENOENT || (r == 0 && (d.cookie != a.parent_cookie || d.ino != ino)))
		return 0;
	if (r < 0)
		return r;
	*out = (struct spot){ a.parent, d.name, d.name_len };
	return 1;
}

/* Its path, built from the end of buf backwards. 1 and where it begins; 0: nowhere. */
static int path_of(struct query *q, struct spot s, size_t limit, char buf[WATCH_PATH_MAX],
		   const char **out)
{
	size_t at = WATCH_PATH_MAX - 1;
	buf[at] = 0;
	for (unsigned depth = 0;; depth++) {
		if (depth > DEPTH_MAX || ++q->steps > STEPS_MAX || at < s.len + 1)
			return -EKEYEXPIRED;
		if (depth > 0)
			buf[--at] = '/';
		at -= s.len;
		memcpy(buf + at, s.name, s.len);
		if (s.dir == INO_ROOT)
			break;
		int r = spot_of(q, s.dir, limit, &s);
		if (r <= 0)
			return r;
	}
	*out = buf + at;
	return 1;
}

/* ---- frames ---- */

/* What a frame did to the names of one child. */
struct net {
	uint64_t ino;
	const struct change *from, *to; /* the name it had, and has; NULL: none here */
	uint32_t next_from, next_to;    /* with a place of the same hash, plus one */
};

struct telling {
	struct query *q;
	int (*fn)(void *ctx, const struct watch_event *e);
	void *ctx;
	char *path, *old_path; /* WATCH_PATH_MAX each */
	struct frame_of f;
	uint32_t part, nparts; /* names of this frame that were told, and that there are */
	size_t inodes;         /* of it that are to be told yet */
	char token[WATCH_TOKEN_MAX];
	struct net *nets; /* of this frame */
	size_t nnets, cap;
	struct u64map by_ino, by_from, by_to; /* an inode, the hash of a place -> net, plus one */
};

static void nets_done(struct telling *t)
{
	u64map_done(&t->by_ino);
	u64map_done(&t->by_from);
	u64map_done(&t->by_to);
	t->by_ino = t->by_from = t->by_to = (struct u64map){ 0 };
	t->nnets = 0;
}

static int find_net(struct telling *t, const struct change *c, struct net **out)
{
	size_t i = (uintptr_t)u64map_get(&t->by_ino, c->ino);
	if (i == 0) {
		if (array_grow(&t->nets, t->nnets, &t->cap) < 0)
			return -ENOMEM;
		t->nets[t->nnets++] = (struct net){ .ino = c->ino };
		i = t->nnets;
		if (u64map_put(&t->by_ino, c->ino, (void *)(uintptr_t)i) < 0)
			return -ENOMEM;
	}
	*out = &t->nets[i - 1];
	return 0;
}

static int inode_tells(const struct telling *t, const struct change *c, struct attr *a);

/* Both names of a place in one frame have one cookie. */
static uint64_t place_key(const struct change *c)
{
	const uint64_t k[2] = { c->dir, c->cookie };
	uint64_t h = hash_xxh3(k, sizeof(k), 0);
	return h ? h : 1;
}

static int index_place(struct u64map *m, const struct change *c, size_t i, uint32_t *next)
{
	uint64_t key = place_key(c);
	*next = (uint32_t)(uintptr_t)u64map_get(m, key);
	return u64map_put(m, key, (void *)(uintptr_t)(i + 1));
}

static int index_places(struct telling *t)
{
	int r = 0;
	for (size_t i = 0; i < t->nnets && r == 0; i++) {
		struct net *n = &t->nets[i];
		if (n->from)
			r = index_place(&t->by_from, n->from, i, &n->next_from);
		if (n->to && r == 0)
			r = index_place(&t->by_to, n->to, i, &n->next_to);
	}
	return r;
}

/* An operation says of each name at most once how it is now, in whatever order. */
static int collect_nets(struct telling *t)
{
	struct net *n;
	int r = 0;
	nets_done(t);
	for (size_t i = t->f.hi + 1; i-- > t->f.lo && r == 0;) {
		const struct change *c = &t->q->c[i];
		if (!c->cookie)
			continue;
		r = find_net(t, c, &n);
		if (r == 0 && c->made)
			n->to = c;
		else if (r == 0 && !n->from)
			n->from = c;
	}
	return r < 0 ? r : index_places(t);
}

static int collect(struct telling *t)
{
	struct attr a;
	int r = collect_nets(t);
	t->inodes = 0;
	for (size_t i = t->f.hi + 1; i-- > t->f.lo && r >= 0;) {
		r = t->q->c[i].cookie ? 0 : inode_tells(t, &t->q->c[i], &a);
		t->inodes += r > 0;
	}
	return r < 0 ? r : 0;
}

static bool same_name(const struct change *a, const struct change *b)
{
	return a->dir == b->dir && a->name_len == b->name_len &&
	       memcmp(a->name, b->name, a->name_len) == 0;
}

/* Of a name that went for good and one that came to the same place in one step, the other one. */
static const struct net *other_at(const struct telling *t, const struct net *n)
{
	const struct change *at = n->to ? n->to : n->from;
	const struct u64map *m = n->to ? &t->by_from : &t->by_to;
	for (size_t i = (uintptr_t)u64map_get(m, place_key(at)); i;) {
		const struct net *o = &t->nets[i - 1];
		const struct change *c = !n->to ? o->to : !o->to ? o->from : NULL;
		t->q->steps++;
		if (o != n && c && c->cookie == at->cookie && same_name(c, at))
			return o;
		i = n->to ? o->next_from : o->next_to;
	}
	return NULL;
}

static bool is_last(const struct telling *t)
{
	return t->part == t->nparts && t->inodes == 0;
}

static int tell(struct telling *t, enum watch_kind kind, uint8_t type, const char *path,
		const char *old_path)
{
	uint32_t part = is_last(t) ? 0 : t->part;
	print(t->token, t->f.layer, t->f.seq - (part == 0 && !is_last(t)), part);
	const struct watch_event e = { .kind = kind, .type = type, .path = path,
				       .old_path = old_path, .token = t->token };
	return t->fn(t->ctx, &e);
}

/* Paths of what went are as before the frame, of what came as behind it. */
static int path_from(struct telling *t, const struct change *c, char *buf, const char **out)
{
	return path_of(t->q, (struct spot){ c->dir, c->name, c->name_len }, t->f.hi + 1, buf, out);
}

static int path_to(struct telling *t, const struct change *c, char *buf, const char **out)
{
	return path_of(t->q, (struct spot){ c->dir, c->name, c->name_len }, t->f.lo, buf, out);
}

/* A folder in whose place a file came, or the other way round: that it went is told before. */
static int tell_replaced(struct telling *t, const struct net *gone)
{
	const char *path;
	int r = path_from(t, gone->from, t->path, &path);
	if (r <= 0)
		return r;
	t->part--; /* it is told again, unless the next one is told, too */
	r = tell(t, WATCH_DELETED, gone->from->type, path, NULL);
	t->part++;
	return r;
}

static int tell_net(struct telling *t, const struct net *n)
{
	const char *path = NULL, *old = NULL;
	int r = 0;
	if (n->from && n->to && same_name(n->from, n->to))
		return 0;
	const struct net *other = other_at(t, n);
	if (!n->to && other)
		return 0; /* told with what took its place */
	bool alike = other && (n->to->type == DT_DIR) == (other->from->type == DT_DIR);
	if (other && !alike)
		r = tell_replaced(t, other);
	if (r)
		return r;
	r = n->from ? path_from(t, n->from, t->old_path, &old) : 1;
	if (r > 0 && n->to)
		r = path_to(t, n->to, t->path, &path);
	if (r <= 0)
		return r; /* below what went: that is told */
	if (n->from && n->to)
		return tell(t, WATCH_RENAMED, n->to->type, path, old);
	if (n->from)
		return tell(t, WATCH_DELETED, n->from->type, old, NULL);
	return tell(t, alike ? WATCH_MODIFIED : WATCH_CREATED, n->to->type, path, NULL);
}

static const struct net *net_of(const struct telling *t, uint64_t ino)
{
	size_t i = (uintptr_t)u64map_get(&t->by_ino, ino);
	return i ? &t->nets[i - 1] : NULL;
}

static uint8_t type_of(const struct attr *a)
{
	return (uint8_t)((a->mode & S_IFMT) >> 12);
}

/* Whether that inode's change is an event beside those of its names: 1 or 0. */
static int inode_tells(const struct telling *t, const struct change *c, struct attr *a)
{
	int r = view_inode(t->q->v, c->ino, a);
	if (r == -ENOENT || (r == 0 && a->nlink == 0))
		return 0; /* its names tell */
	if (r < 0)
		return r;
	/* What else was done to a file of several names since is known no more. */
	const struct net *n = net_of(t, c->ino);
	return !n || (c->again && !S_ISDIR(a->mode) && (!n->to || a->nlink > 1));
}

static int tell_inode(struct telling *t, const struct change *c)
{
	struct attr a;
	struct spot s;
	const char *path = "";
	int r = inode_tells(t, c, &a);
	if (r <= 0)
		return r;
	t->inodes--;
	if (c->ino != INO_ROOT) {
		r = spot_of(t->q, c->ino, t->f.lo, &s);
		if (r > 0)
			r = path_of(t->q, s, t->f.lo, t->path, &path);
		if (r <= 0)
			return r;
	}
	return tell(t, WATCH_MODIFIED, type_of(&a), path, NULL);
}

/* What is older than this frame no more tells where anything is. */
static void settle(struct query *q, const struct frame_of *f)
{
	for (size_t i = f->hi + 1; i-- > f->lo;) {
		const struct change *c = &q->c[i];
		if (c->cookie && c->later) /* in its place: can't fail */
			(void)u64map_put(&q->places, c->ino, (void *)(uintptr_t)c->later);
		else if (c->cookie)
			(void)u64map_del(&q->places, c->ino);
	}
}

/* `skip`: so many of its names were told. */
static int tell_frame(struct telling *t, uint32_t skip)
{
	int r = collect(t);
	t->nparts = (uint32_t)t->nnets;
	t->part = 0;
	for (size_t i = 0; i < t->nnets && r == 0; i++) {
		t->part = (uint32_t)i + 1;
		if (i < skip)
			continue;
		r = tell_net(t, &t->nets[i]);
		if (r == 1) /* no room: what was told before it counts */
			print(t->token, t->f.layer, i ? t->f.seq : t->f.seq - 1, (uint32_t)i);
	}
	for (size_t i = t->f.hi + 1; t->inodes && i-- > t->f.lo && r == 0;) {
		r = t->q->c[i].cookie ? 0 : tell_inode(t, &t->q->c[i]);
		if (r == 1)
			print(t->token, t->f.layer, t->f.seq - (t->nparts == 0), t->nparts);
	}
	return r;
}

static int tell_all(struct telling *t, const struct moment *m)
{
	struct query *q = t->q;
	int r = 0;
	for (size_t end = q->n; end > 0 && r == 0;) {
		const struct change *oldest = &q->c[end - 1];
		t->f = (struct frame_of){ .hi = end - 1, .lo = end - 1, .seq = oldest->seq };
		t->f.layer = changed_log_id(layer_changed(q->v->layers[oldest->layer]));
		while (t->f.lo > 0 && q->c[t->f.lo - 1].seq == oldest->seq &&
		       q->c[t->f.lo - 1].layer == oldest->layer)
			t->f.lo--;
		bool partly = m->part && oldest->seq == m->seq &&
			      memcmp(t->f.layer, &m->layer, sizeof(m->layer)) == 0;
		r = tell_frame(t, partly ? m->part : 0);
		settle(q, &t->f);
		end = t->f.lo;
	}
	return r;
}

int watch_since(const struct view *v, const char *token,
		int (*fn)(void *ctx, const struct watch_event *e), void *ctx,
		char next[WATCH_TOKEN_MAX])
{
	struct moment m;
	struct query q = { .v = v };
	struct telling t = { .q = &q, .fn = fn, .ctx = ctx };
	char now[WATCH_TOKEN_MAX];
	print_now(now, v);
	int r = token ? parse(&m, token) : 0;
	if (token && r == 0) {
		t.path = malloc(WATCH_PATH_MAX);
		t.old_path = malloc(WATCH_PATH_MAX);
		r = t.path && t.old_path ? gather(&q, &m) : -ENOMEM;
		if (r == 0)
			r = tell_all(&t, &m);
	}
	memcpy(next, r == 1 ? t.token : now, WATCH_TOKEN_MAX);
	free(q.c);
	u64map_done(&q.places);
	nets_done(&t);
	free(t.nets);
	free(t.path);
	free(t.old_path);
	return r;
}
