#include "fs/work/changed.h"

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
#include "fs/work/view.h"

enum { LOST = 2 }; /* place_now */
enum {
	IMAGE_HEX = 16,
	LAYER_HEX = 2 * LAYER_ID_BYTES,
	PATH_BYTES_MAX = 8192, /* git takes 4,096; a longer one means that folders went round */
	STEPS_MAX = 400000,    /* of folders climbed, for one answer: some 50 ms */
	EVENTS_MAX = 40000,    /* of all layers' logs */
	PATHS_BYTES_MAX = 4 * CHANGED_ANSWER_MAX, /* before doubles are left out */
	FOLDERS_MAX = 200000,  /* that are named */
	EVERYTHING = 1, /* returned where the answer is "/" */
};

void changed_token_of_image(char out[CHANGED_TOKEN_MAX], const struct digest *image)
{
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, image);
	(void)snprintf(out, CHANGED_TOKEN_MAX, "i%.*s", IMAGE_HEX, hex);
}

/* ---- tokens ---- */

struct token {
	char image[IMAGE_HEX + 1]; /* "": a layer's */
	struct layer_id layer;
	uint64_t seq;
	bool folders;  /* all of these are named … */
	bool more;     /* … and now those with numbers above `after` */
	uint64_t after;
};

static int parse_number(const char **s, uint64_t *out)
{
	char *end;
	if (**s < '0' || **s > '9')
		return -EINVAL;
	errno = 0;
	*out = strtoull(*s, &end, 10);
	*s = end;
	return errno ? -EINVAL : 0;
}

static int parse(struct token *t, const char *s)
{
	char hex[LAYER_HEX + 1];
	*t = (struct token){ 0 };
	if (s[0] == 'i' && strlen(s) == 1 + IMAGE_HEX) {
		memcpy(t->image, s + 1, IMAGE_HEX);
		return 0;
	}
	if ((s[0] != 'l' && s[0] != 'e') || strnlen(s, 1 + LAYER_HEX + 2) < 1 + LAYER_HEX + 2 ||
	    s[1 + LAYER_HEX] != '.')
		return -EINVAL;
	memcpy(hex, s + 1, LAYER_HEX);
	hex[LAYER_HEX] = 0;
	if (hex_decode(t->layer.b, LAYER_ID_BYTES, hex) < 0)
		return -EINVAL;
	t->folders = s[0] == 'e';
	s += 1 + LAYER_HEX + 1;
	if (parse_number(&s, &t->seq) < 0)
		return -EINVAL;
	if (t->folders && strncmp(s, "//", 2) == 0) {
		t->more = true;
		s += 2;
		if (parse_number(&s, &t->after) < 0)
			return -EINVAL;
	}
	return *s ? -EINVAL : 0;
}

static void put_token(struct buf *out, const struct view *v, char kind)
{
	const struct changed_log *g = v->nlayers ? layer_changed(v->layers[0]) : NULL;
	char hex[LAYER_HEX + 1];
	if (!g) {
		buf_add(out, "0", 2);
		return;
	}
	hex_encode(hex, changed_log_id(g)->b, LAYER_ID_BYTES);
	buf_printf(out, "%c%s.%" PRIu64, kind, hex, changed_log_last(g));
	buf_u8(out, 0);
}

/* ---- gathering ---- */

/* A name that was made or taken away, or (name NULL) an inode that changed. */
struct event {
	uint64_t ino;    /* the folder, or the inode */
	uint64_t child;  /* of a name; */
	uint32_t next;   /* the next event of a name that leads to that child, plus one */
	uint8_t type, name_len;
	const char *name; /* borrowed from logs, layers and the image */
};

struct query {
	const struct view *v;
	uint64_t dir;
	struct event *events;
	size_t n, cap;
	struct u64map places; /* child -> index of its first event, plus one, as a pointer */
	struct buf paths;
	unsigned steps;
};

static int add_event(struct query *q, const struct event *e)
{
	if (q->n >= EVENTS_MAX)
		return EVERYTHING;
	if (array_grow(&q->events, q->n, &q->cap) < 0)
		return -ENOMEM;
	struct event *now = &q->events[q->n++];
	*now = *e;
	if (!e->name)
		return 0;
	now->next = (uint32_t)(uintptr_t)u64map_get(&q->places, e->child);
	return u64map_put(&q->places, e->child, (void *)(uintptr_t)q->n);
}

static int add_name(struct query *q, uint64_t dir, uint64_t child, uint8_t type, const char *name,
		    uint8_t len)
{
	const struct event e = { .ino = dir, .child = child, .type = type, .name_len = len,
				 .name = name };
	return add_event(q, &e);
}

/* What the layers below index i show at that cookie: it is hidden or replaced now. */
static int add_below(struct query *q, uint32_t i, uint64_t dir, uint64_t cookie)
{
	const struct view *v = q->v;
	const struct view below = view_below(v, i);
	struct dirent_ref d;
	int r = view_dirent_ceil(&below, dir, cookie, &d);
	if (r == -ENOENT || (r == 0 && d.cookie != cookie))
		return 0;
	return r < 0 ? r : add_name(q, dir, d.ino, d.type, d.name, d.name_len);
}

/* All that the log has from after `seq`, of the layer at index i. */
static int add_log(struct query *q, uint32_t i, const struct changed_log *g, uint64_t seq)
{
	int r = 0;
	const struct changed_entry *e = changed_log_newest(g);
	for (; e && e->seq > seq && r == 0; e = e->older) {
		const struct event inode = { .ino = e->ino };
		if (e->cookie == 0)
			r = add_event(q, &inode);
		else if (e->child)
			r = add_name(q, e->ino, e->child, e->type, e->name, e->name_len);
		if (e->cookie && r == 0)
			r = add_below(q, i, e->ino, e->cookie);
	}
	return r;
}

static int add_inode_of(void *ctx, const struct layer_inode *li)
{
	const struct event e = { .ino = li->attr.ino };
	/* Where a folder changed or an inode died, names may have come and gone. */
	if (li->dead || !S_ISREG(li->attr.mode))
		return EVERYTHING;
	return add_event(ctx, &e);
}

static int some_dir(void *ctx, uint64_t dir)
{
	return EVERYTHING;
}

/* Without a log a layer tells enough when it changed nothing but files that were there: as the one
 * that brings the index to a fresh checkout. */
static int add_layer(struct query *q, uint32_t i)
{
	struct layer *l = q->v->layers[i];
	const struct changed_log *g = layer_changed(l);
	if (g)
		return changed_log_floor(g) == 0 ? add_log(q, i, g, 0) : EVERYTHING;
	int r = layer_each_dir(l, some_dir, q);
	return r ? r : layer_each_inode(l, add_inode_of, q);
}

static bool is_image(const struct view *v, const char *hex)
{
	char name[DIGEST_HEX + 1];
	if (!v->image)
		return false;
	digest_hex(name, &image_info(v->image)->name);
	return memcmp(name, hex, IMAGE_HEX) == 0;
}

static int gather(struct query *q, const struct token *t)
{
	for (uint32_t i = 0; i < q->v->nlayers; i++) {
		const struct changed_log *g = layer_changed(q->v->layers[i]);
		if (g && !t->image[0] &&
		    memcmp(changed_log_id(g), &t->layer, sizeof(t->layer)) == 0) {
			if (t->seq < changed_log_floor(g) || t->seq > changed_log_last(g))
				return EVERYTHING;
			return add_log(q, i, g, t->seq);
		}
		int r = add_layer(q, i);
		if (r)
			return r;
	}
	return t->image[0] && is_image(q->v, t->image) ? 0 : EVERYTHING;
}

/* ---- paths ---- */

/* On the way up: a folder or an inode, and the path from there to what changed, which may be ""
 * (that inode itself) or "/" (that folder itself). */
struct step {
	uint64_t ino;
	char *rest;
};

struct climb {
	struct step *v;
	size_t n, cap;
};

static void climb_done(struct climb *c)
{
	while (c->n)
		free(c->v[--c->n].rest);
	free(c->v);
}

static int climb_push(struct climb *c, uint64_t ino, const char *name, size_t len,
		      const char *rest)
{
	size_t n = strlen(rest);
	if (len + n + 2 > PATH_BYTES_MAX)
		return EVERYTHING;
	char *path = malloc(len + n + 2);
	if (!path || array_grow(&c->v, c->n, &c->cap) < 0) {
		free(path);
		return -ENOMEM;
	}
	bool slash = len && n && rest[0] != '/';
	memcpy(path, name, len);
	if (slash)
		path[len] = '/';
	memcpy(path + len + slash, rest, n + 1);
	c->v[c->n++] = (struct step){ ino, path };
	return 0;
}

static int put_path(struct query *q, const char *path)
{
	if (*path == 0 || strcmp(path, "/") == 0)
		return EVERYTHING;
	if (strncmp(path, ".git", 4) == 0 && (path[4] == 0 || path[4] == '/'))
		return 0;
	if (q->paths.len > PATHS_BYTES_MAX)
		return EVERYTHING;
	buf_add(&q->paths, path, strlen(path) + 1);
	return 0;
}

/* The inode's place now, by its hint: 1; 0: it has none; LOST: it has one, who knows where. */
static int place_now(const struct query *q, uint64_t ino, struct attr *a, struct dirent_ref *d)
{
	int r = view_inode(q->v, ino, a);
	if (r == -ENOENT || (r == 0 && a->nlink == 0))
		return 0;
	if (r < 0)
		return r;
	r = a->parent_cookie ? view_dirent_ceil(q->v, a->parent, a->parent_cookie, d) : -ENOENT;
	if (r == -ENOENT || (r == 0 && (d->cookie != a->parent_cookie || d->ino != ino)))
		return LOST;
	return r < 0 ? r : 1;
}

static bool is_at(const struct event *e, const struct attr *a, const struct dirent_ref *d)
{
	return e->ino == a->parent && e->name_len == d->name_len &&
	       memcmp(e->name, d->name, d->name_len) == 0;
}

/* Goes on to each folder that has a name of the inode, or had one since. */
static int climb_on(struct query *q, struct climb *c, const struct step *s)
{
	struct attr a;
	struct dirent_ref d;
	int r = place_now(q, s->ino, &a, &d);
	bool now = r == 1;
	if (r < 0 || r > 1)
		return r < 0 ? r : EVERYTHING;
	if (now && !S_ISDIR(a.mode) && a.nlink > 1)
		return EVERYTHING; /* its other names aren't known */
	r = now ? climb_push(c, a.parent, d.name, d.name_len, s->rest) : 0;
	size_t i = (uintptr_t)u64map_get(&q->places, s->ino);
	while (i && r == 0) {
		const struct event *e = &q->events[i - 1];
		if (!now || !is_at(e, &a, &d))
			r = climb_push(c, e->ino, e->name, e->name_len, s->rest);
		i = e->next;
	}
	return r;
}

/* All paths of what is `rest` below the inode: at any of its places, and those of the folders above
 * it. Where a folder is gone without a trace, so is what was in it: the log of the folder that it
 * was taken from says so by another path, or it was not below q->dir. */
static int put_paths(struct query *q, uint64_t ino, const char *rest, size_t len)
{
	struct climb c = { 0 };
	int r = climb_push(&c, ino, rest, len, "");
	while (r == 0 && c.n > 0) {
		struct step s = c.v[--c.n];
		if (++q->steps > STEPS_MAX)
			r = EVERYTHING;
		else if (s.ino == q->dir)
			r = put_path(q, s.rest);
		else if (s.ino != 1)
			r = climb_on(q, &c, &s);
		free(s.rest);
	}
	climb_done(&c);
	return r;
}

/* All that is below a folder which was moved: it was there and is here, though untouched. */
static int put_tree(struct query *q, uint64_t top)
{
	auto_free uint64_t *dirs = NULL;
	size_t n = 0, cap = 0;
	struct dirent_ref d;
	int r = array_grow(&dirs, n, &cap);
	if (r == 0)
		dirs[n++] = top;
	while (r == 0 && n > 0) {
		uint64_t dir = dirs[--n], next = 0;
		while (r == 0 && (r = view_dirent_ceil(q->v, dir, next, &d)) == 0) {
			r = put_paths(q, dir, d.name, d.name_len);
			if (r == 0 && d.type == DT_DIR) {
				r = array_grow(&dirs, n, &cap);
				if (r == 0)
					dirs[n++] = d.ino;
			}
			next = d.cookie + 1;
		}
		r = r == -ENOENT ? 0 : r;
	}
	return r;
}

static int put_moved(struct query *q, const struct event *e)
{
	struct attr a;
	struct dirent_ref d;
	int r = place_now(q, e->child, &a, &d);
	if (r < 0 || r > 1)
		return r < 0 ? r : EVERYTHING;
	return r == 0 || is_at(e, &a, &d) ? 0 : put_tree(q, e->child);
}

static int put_event(struct query *q, const struct event *e)
{
	struct attr a;
	if (e->name) {
		int r = put_paths(q, e->ino, e->name, e->name_len);
		return r == 0 && e->type == DT_DIR ? put_moved(q, e) : r;
	}
	int r = view_inode(q->v, e->ino, &a);
	if (r < 0 || a.nlink == 0) /* its names' events tell */
		return r == -ENOENT ? 0 : r;
	return S_ISDIR(a.mode) ? put_paths(q, e->ino, "/", 1) : put_paths(q, e->ino, "", 0);
}

/* ---- all folders ---- */

struct folder {
	uint64_t ino; /* first: array_by_u64 */
	char *path;
};

struct folders {
	struct folder *v;
	size_t n, cap;
};

static void folders_done(struct folders *f)
{
	while (f->n)
		free(f->v[--f->n].path);
	free(f->v);
}

static int add_folder(struct folders *f, uint64_t ino, const char *above, const char *name,
		      size_t len)
{
	char *path;
	if (f->n >= FOLDERS_MAX)
		return EVERYTHING;
	if (array_grow(&f->v, f->n, &f->cap) < 0 ||
	    asprintf(&path, "%s%.*s%s", above, (int)len, name, len ? "/" : "") < 0)
		return -ENOMEM;
	f->v[f->n++] = (struct folder){ ino, path };
	return strlen(path) > PATH_BYTES_MAX ? EVERYTHING : 0;
}

/* The list is its own queue. */
static int list_folders(const struct query *q, struct folders *f)
{
	struct dirent_ref d;
	int r = add_folder(f, q->dir, "", "", 0);
	for (size_t i = 0; r == 0 && i < f->n; i++) {
		uint64_t next = 0;
		while (r == 0 && (r = view_dirent_ceil(q->v, f->v[i].ino, next, &d)) == 0) {
			bool git = i == 0 && d.name_len == 4 && memcmp(d.name, ".git", 4) == 0;
			if (d.type == DT_DIR && !git)
				r = add_folder(f, d.ino, f->v[i].path, d.name, d.name_len);
			next = d.cookie + 1;
		}
		r = r == -ENOENT ? 0 : r;
	}
	return r;
}

/* One answer's worth of the folders above number `after`. What happens to them between one answer
 * and the next has a place in the log behind the token that the first one gave. */
static int put_folders(struct buf *out, const struct query *q, uint64_t after, size_t max)
{
	struct folders f = { 0 };
	size_t start = out->len;
	int r = list_folders(q, &f);
	if (r == 0 && f.n > 1)
		qsort(f.v, f.n, sizeof(*f.v), array_by_u64);
	for (size_t i = 0; r == 0 && i < f.n; i++) {
		if (f.v[i].ino <= after)
			continue;
		if (out->len - start > max - PATH_BYTES_MAX - CHANGED_TOKEN_MAX) {
			buf_printf(out, "//%" PRIu64, f.v[i - 1].ino);
			buf_u8(out, 0);
			break;
		}
		buf_printf(out, "%s~", f.v[i].path);
		buf_u8(out, 0);
	}
	folders_done(&f);
	return r;
}

/* ---- the answer ---- */

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Each path once. */
static int put_answer(struct buf *out, size_t start, const struct buf *paths, size_t max)
{
	auto_free const char **v = NULL;
	size_t n = 0, cap = 0;
	if (buf_error(paths) < 0)
		return -ENOMEM;
	for (size_t at = 0; at < paths->len; at += strlen(v[n - 1]) + 1) {
		if (array_grow(&v, n, &cap) < 0)
			return -ENOMEM;
		v[n++] = (const char *)paths->data + at;
	}
	if (n > 1)
		qsort(v, n, sizeof(*v), by_text);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || strcmp(v[i - 1], v[i]) != 0)
			buf_add(out, v[i], strlen(v[i]) + 1);
	return out->len - start > max - CHANGED_TOKEN_MAX ? EVERYTHING : 0;
}

static int answer(struct buf *out, struct query *q, const struct token *t, size_t max)
{
	size_t start = out->len;
	put_token(out, q->v, 'l');
	int r = gather(q, t);
	for (size_t i = 0; r == 0 && i < q->n; i++)
		r = put_event(q, &q->events[i]);
	if (r == 0)
		r = put_answer(out, start, &q->paths, max);
	if (r || !t->folders)
		return r;
	/* Whether they can be named is known before anybody relies on it. */
	struct folders f = { 0 };
	r = list_folders(q, &f);
	folders_done(&f);
	buf_add(out, "//0", 4);
	return r;
}

int changed_since(struct buf *out, const struct view *v, uint64_t dir, const char *token,
		  size_t max)
{
	struct query q = { .v = v, .dir = dir };
	struct token t;
	size_t start = out->len;
	bool good = parse(&t, token) == 0;
	int r = good ? 0 : EVERYTHING;
	if (good && t.more) {
		r = put_folders(out, &q, t.after, max);
		r = r == EVERYTHING ? -E2BIG : r;
	} else if (good) {
		r = answer(out, &q, &t, max);
	}
	if (r == EVERYTHING) {
		out->len = start;
		put_token(out, v, 'e');
		buf_add(out, "/", 2);
		r = 0;
	}
	free(q.events);
	u64map_done(&q.places);
	buf_done(&q.paths);
	return r < 0 ? r : buf_error(out);
}
