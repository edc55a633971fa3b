/* Renames, found among the deletes and adds: the same inode or the same bytes first; then what is
 * more than half the same, by the same inode, by the same name, and by comparing all with all,
 * where these aren't too many. */
#include "gitops/changes_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "gitops/similar.h"

enum {
	PAIRS_MAX = 250000,            /* all with all: some seconds of a core at the worst */
	SIMILAR_SIZE_MAX = 8 << 20,    /* larger ones are renames only when equal */
	SIMILAR_BYTES_MAX = 256 << 20, /* of all that is read for it */
	DEADLINE_MS = 1500,
	EQUAL_LOOK = 64, /* of many equal files, how many are looked at for the best name */
	BEST = 4,        /* candidates that an add remembers */
	BY_NAME_ENOUGH = SIMILAR_ALL * 3 / 4,
};

/* A delete or an add that has no partner yet. */
struct side {
	struct change *c;
	const char *path; /* the change's, also when it is part of a rename */
	uint64_t size;
	bool taken, read, unreadable;
	struct similar similar;
};

struct match {
	uint32_t score;
	bool same_name;
	struct side *del, *add;
};

struct pairing {
	struct changes *out;
	const struct changes_options *opt;
	struct side *dels, *adds; /* in order of path */
	size_t ndels, nadds;
	struct side **by_oid; /* dels */
	uint64_t bytes, end_ms;
	bool gave_up;
	struct err *err;
};

static int no_memory(struct pairing *p)
{
	return err_no_memory(p->err);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static bool is_file(uint32_t mode)
{
	return mode == MODE_FILE || mode == MODE_EXEC;
}

/* ---- the sides ---- */

static int del_size(struct pairing *p, struct side *s)
{
	git_oid id = oid_to_git(&s->c->old_oid);
	git_object_t type;
	size_t size = 0;
	if (s->c->old_mode == MODE_GITLINK)
		return 0;
	int r = git_odb_read_header(&size, &type, mirror_odb(p->opt->mirror), &id);
	s->size = size;
	return r < 0 ? git_fail(p->err, r, "%s", s->c->path) : 0;
}

static int gather(struct pairing *p)
{
	int r = 0;
	for (size_t i = 0; i < p->out->n; i++) {
		p->ndels += p->out->v[i].kind == CHANGE_DELETE;
		p->nadds += p->out->v[i].kind == CHANGE_ADD;
	}
	p->dels = calloc(p->ndels + 1, sizeof(*p->dels));
	p->adds = calloc(p->nadds + 1, sizeof(*p->adds));
	p->by_oid = calloc(p->ndels + 1, sizeof(struct side *));
	if (!p->dels || !p->adds || !p->by_oid)
		return no_memory(p);
	p->ndels = p->nadds = 0;
	for (size_t i = 0; i < p->out->n && r >= 0; i++) {
		struct change *c = &p->out->v[i];
		if (c->kind == CHANGE_DELETE) {
			struct side *s = &p->dels[p->ndels];
			*s = (struct side){ .c = c, .path = c->path };
			r = del_size(p, s);
			p->by_oid[p->ndels++] = s;
		} else if (c->kind == CHANGE_ADD) {
			p->adds[p->nadds++] =
				(struct side){ .c = c, .path = c->path, .size = c->size };
		}
	}
	return r;
}

/* The delete becomes nothing (it is left without a path) and the add a rename. */
static void pair(struct side *del, struct side *add, uint32_t score)
{
	struct change *c = add->c;
	del->taken = add->taken = true;
	c->kind = CHANGE_RENAME;
	free(c->old_path);
	c->old_path = steal_ptr(&del->c->path);
	c->old_mode = del->c->old_mode;
	c->old_oid = del->c->old_oid;
	c->similarity = (uint8_t)((uint64_t)score * 100 / SIMILAR_ALL);
}

/* The delete of that path, when it has no partner yet. */
static struct side *del_at(struct pairing *p, const char *path)
{
	size_t low = 0, high = p->ndels;
	while (path && low < high) {
		size_t mid = low + (high - low) / 2;
		int c = strcmp(p->dels[mid].path, path);
		if (c == 0)
			return p->dels[mid].taken ? NULL : &p->dels[mid];
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* ---- equal contents ---- */

static int by_old_oid(const void *pa, const void *pb)
{
	const struct side *a = *(struct side *const *)pa, *b = *(struct side *const *)pb;
	int c = memcmp(a->c->old_oid.b, b->c->old_oid.b, OID_BYTES);
	return c ? c : (a > b) - (a < b);
}

static int by_size(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
	return (a > b) - (a < b);
}

/* Ids of the adds that may equal a delete. */
static int hash_adds(struct pairing *p)
{
	auto_free uint64_t *sizes = calloc(p->ndels + 1, sizeof(*sizes));
	int r = 0;
	if (!sizes)
		return no_memory(p);
	for (size_t i = 0; i < p->ndels; i++)
		sizes[i] = p->dels[i].size;
	qsort(sizes, p->ndels, sizeof(*sizes), by_size);
	for (size_t i = 0; i < p->nadds && r >= 0; i++) {
		struct change *c = p->adds[i].c;
		if (oid_is_zero(&c->oid) &&
		    (c->attrs || bsearch(&c->size, sizes, p->ndels, sizeof(*sizes), by_size))) {
			r = change_hash(c, p->opt, p->err);
			if (r < 0)
				(void)err_prefix(p->err, r, "%s", c->path);
		}
	}
	return r;
}

/* A link only becomes a link again. */
static bool may_pair(const struct side *del, const struct side *add)
{
	return !del->taken && (del->c->old_mode == add->c->mode ||
			       (is_file(del->c->old_mode) && is_file(add->c->mode)));
}

/* The best of the deletes that have the add's content; NULL: none. */
static struct side *equal_del(struct pairing *p, const struct side *add)
{
	size_t low = 0, high = p->ndels;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (memcmp(p->by_oid[mid]->c->old_oid.b, add->c->oid.b, OID_BYTES) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	struct side *best = NULL;
	size_t looked = 0;
	for (; low < p->ndels && oid_equal(&p->by_oid[low]->c->old_oid, &add->c->oid) &&
	       looked < EQUAL_LOOK;
	     low++) {
		struct side *d = p->by_oid[low];
		if (!may_pair(d, add))
			continue;
		looked++;
		if (!best)
			best = d;
		if (strcmp(base_name(d->path), base_name(add->path)) == 0)
			return d;
	}
	return best;
}

static int pair_equal(struct pairing *p)
{
	int r = hash_adds(p);
	if (r < 0)
		return r;
	qsort(p->by_oid, p->ndels, sizeof(struct side *), by_old_oid);
	/* First where the inode says so, then whatever is equal. */
	for (int by_inode = 1; by_inode >= 0; by_inode--)
		for (size_t i = 0; i < p->nadds; i++) {
			struct side *add = &p->adds[i], *del;
			if (add->taken || oid_is_zero(&add->c->oid))
				continue;
			del = by_inode ? del_at(p, add->c->old_path) : equal_del(p, add);
			if (del && may_pair(del, add) && oid_equal(&del->c->old_oid, &add->c->oid))
				pair(del, add, SIMILAR_ALL);
		}
	return 0;
}

/* ---- similar contents ---- */

static bool late(struct pairing *p)
{
	p->gave_up |= clock_ms() > p->end_ms;
	return p->gave_up;
}

/* 1: its content can be compared; 0: it can't. */
static int read_side(struct pairing *p, struct side *s, bool old)
{
	auto_buf text = { 0 };
	uint64_t size;
	if (s->read)
		return !s->unreadable;
	s->read = s->unreadable = true;
	if (s->size > SIMILAR_SIZE_MAX || p->bytes + s->size > SIMILAR_BYTES_MAX) {
		p->gave_up |= s->size <= SIMILAR_SIZE_MAX;
		return 0;
	}
	int r = old ? change_old_content(&text, &size, p->opt, s->c, SIMILAR_SIZE_MAX, p->err)
		    : change_content(&text, &size, p->opt, s->c, SIMILAR_SIZE_MAX, p->err);
	if (r <= 0)
		return r;
	p->bytes += text.len;
	s->size = text.len;
	if (similar_init(&s->similar, text.data, text.len) < 0)
		return no_memory(p);
	s->unreadable = false;
	return 1;
}

/* The score, 0 where they can't be a pair; -errno. */
static int score_of(struct pairing *p, struct side *del, struct side *add)
{
	if (del->taken || add->taken || !is_file(del->c->old_mode) || !is_file(add->c->mode) ||
	    (!add->c->attrs && !similar_possible(del->size, add->size)))
		return 0;
	int r = read_side(p, del, true);
	if (r > 0)
		r = read_side(p, add, false);
	if (r <= 0 || !similar_possible(del->size, add->size))
		return r < 0 ? r : 0;
	return (int)similar_score(&del->similar, &add->similar);
}

static int pair_by_inode(struct pairing *p)
{
	for (size_t i = 0; i < p->nadds; i++) {
		struct side *add = &p->adds[i], *del = del_at(p, add->c->old_path);
		if (add->taken || !del)
			continue;
		int score = score_of(p, del, add);
		if (score < 0)
			return score;
		if (score >= SIMILAR_ENOUGH)
			pair(del, add, (uint32_t)score);
	}
	return 0;
}

static int by_name(const void *pa, const void *pb)
{
	const struct side *a = *(struct side *const *)pa, *b = *(struct side *const *)pb;
	int c = strcmp(base_name(a->path), base_name(b->path));
	return c ? c : (a > b) - (a < b);
}

/* Those without a partner, by the last component of their paths. */
static size_t sort_by_name(struct side **out, struct side *v, size_t n)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		if (!v[i].taken)
			out[k++] = &v[i];
	if (k > 1)
		qsort(out, k, sizeof(*out), by_name);
	return k;
}

static bool alone(struct side *const *v, size_t n, size_t i)
{
	const char *name = base_name(v[i]->path);
	return (i == 0 || strcmp(base_name(v[i - 1]->path), name) != 0) &&
	       (i + 1 == n || strcmp(base_name(v[i + 1]->path), name) != 0);
}

/* A name that went once and came once, elsewhere. */
static int pair_by_name(struct pairing *p)
{
	auto_free struct side **d = calloc(p->ndels + 1, sizeof(*d));
	auto_free struct side **a = calloc(p->nadds + 1, sizeof(*a));
	int r = 0;
	if (!d || !a)
		return no_memory(p);
	size_t nd = sort_by_name(d, p->dels, p->ndels), na = sort_by_name(a, p->adds, p->nadds);
	for (size_t i = 0, j = 0; i < nd && j < na && r >= 0 && !late(p);) {
		int c = strcmp(base_name(d[i]->path), base_name(a[j]->path));
		if (c == 0 && alone(d, nd, i) && alone(a, na, j)) {
			r = score_of(p, d[i], a[j]);
			if (r >= BY_NAME_ENOUGH)
				pair(d[i], a[j], (uint32_t)r);
		}
		i += c <= 0;
		j += c >= 0;
	}
	return r < 0 ? r : 0;
}

static int by_score(const void *pa, const void *pb)
{
	const struct match *a = pa, *b = pb;
	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	if (a->same_name != b->same_name)
		return a->same_name ? -1 : 1;
	if (a->add != b->add)
		return a->add < b->add ? -1 : 1;
	return (a->del > b->del) - (a->del < b->del);
}

/* The best few deletes for one add, at m. How many, or -errno. */
static int best_of(struct pairing *p, struct side *add, struct match *m)
{
	size_t n = 0;
	for (size_t i = 0; i < p->ndels && !late(p); i++) {
		struct side *del = &p->dels[i];
		int score = score_of(p, del, add);
		if (score < 0)
			return score;
		if (score < SIMILAR_ENOUGH)
			continue;
		struct match x = { (uint32_t)score,
				   strcmp(base_name(del->path), base_name(add->path)) == 0, del,
				   add };
		if (n == BEST && by_score(&x, &m[n - 1]) > 0)
			continue;
		n -= n == BEST;
		size_t at = n++;
		for (; at > 0 && by_score(&x, &m[at - 1]) < 0; at--)
			m[at] = m[at - 1];
		m[at] = x;
	}
	return (int)n;
}

static int pair_all(struct pairing *p)
{
	size_t nd = 0, na = 0, n = 0;
	int r = 0;
	for (size_t i = 0; i < p->ndels; i++)
		nd += !p->dels[i].taken && is_file(p->dels[i].c->old_mode);
	for (size_t i = 0; i < p->nadds; i++)
		na += !p->adds[i].taken && is_file(p->adds[i].c->mode);
	if (nd == 0 || na == 0)
		return 0;
	if (nd > PAIRS_MAX || na > PAIRS_MAX || nd * na > PAIRS_MAX) {
		p->gave_up = true;
		return 0;
	}
	auto_free struct match *m = calloc(na * BEST, sizeof(*m));
	if (!m)
		return no_memory(p);
	for (size_t i = 0; i < p->nadds && r >= 0 && !late(p); i++)
		if (!p->adds[i].taken && is_file(p->adds[i].c->mode)) {
			r = best_of(p, &p->adds[i], m + n);
			n += r > 0 ? (size_t)r : 0;
		}
	if (r < 0)
		return r;
	if (n > 1)
		qsort(m, n, sizeof(*m), by_score);
	for (size_t i = 0; i < n; i++)
		if (!m[i].del->taken && !m[i].add->taken)
			pair(m[i].del, m[i].add, m[i].score);
	return 0;
}

/* ---- all of it ---- */

static int pair_sides(struct pairing *p)
{
	int r = gather(p);
	if (r < 0 || p->ndels == 0 || p->nadds == 0)
		return r;
	r = pair_equal(p);
	if (r >= 0)
		r = pair_by_inode(p);
	if (r >= 0)
		r = pair_by_name(p);
	if (r >= 0)
		r = pair_all(p);
	if (r >= 0 && p->gave_up &&
	    changes_warn(p->out, "too much was moved to look for all similar files: "
				 "some renames are shown as deleted and added") < 0)
		r = no_memory(p);
	return r;
}

int changes_pair(struct changes *c, const struct changes_options *opt, struct err *err)
{
	struct pairing p = { .out = c, .opt = opt, .err = err, .end_ms = clock_ms() + DEADLINE_MS };
	int r = opt->no_renames ? 0 : pair_sides(&p);
	for (size_t i = 0; i < p.ndels; i++)
		similar_done(&p.dels[i].similar);
	for (size_t i = 0; i < p.nadds; i++)
		similar_done(&p.adds[i].similar);
	free(p.dels);
	free(p.adds);
	free(p.by_oid);
	size_t n = 0;
	for (size_t i = 0; i < c->n; i++) {
		struct change *x = &c->v[i];
		if (!x->path) { /* its path went into a rename */
			free(x->attrs);
			continue;
		}
		if (x->kind == CHANGE_ADD)
			free(steal_ptr(&x->old_path));
		c->v[n++] = *x;
	}
	c->n = n;
	return r;
}
