/* For power.c and fault.c: what a root shows after a failure, and whether it should. */
#ifndef BOUGH_TESTS_CRASH_POWER_LOOK_H
#define BOUGH_TESTS_CRASH_POWER_LOOK_H

#include "tests/crash/power_run.h"

/* ---- what a workspace shows ---- */

/* One file as the workspace shows it. */
struct seen {
	char path[PATH_BYTES * 4];
	struct attr a;
	uint16_t xattr;
	char target[PATH_BYTES];
	uint8_t *data;
};

struct tree {
	struct seen f[FILES + 4];
	size_t n;
	const struct view *v;
};

static void tree_done(struct tree *tr)
{
	for (size_t i = 0; i < tr->n; i++)
		free(tr->f[i].data);
	tr->n = 0;
}

static int tree_add(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct tree *tr = ctx;
	if (len == 0)
		return 0;
	if (tr->n == FILES + 4)
		fail("more files than there ever were");
	struct seen *f = &tr->f[tr->n++];
	*f = (struct seen){ .a = *a };
	t.max_ino = a->ino > t.max_ino ? a->ino : t.max_ino;
	(void)snprintf(f->path, sizeof(f->path), "%.*s", (int)len, path);
	size_t n;
	if (S_ISLNK(a->mode)) {
		char target[4200];
		done(view_target(tr->v, a->ino, target, sizeof(target), &n));
		(void)snprintf(f->target, sizeof(f->target), "%.*s", (int)n, target);
	}
	if (S_ISREG(a->mode)) {
		struct err err;
		f->data = malloc(a->size + 2);
		if (a->size > SIZE_MAX_BYTES)
			fail("%s: %" PRIu64 " bytes", f->path, a->size);
		if (view_read(tr->v, a->ino, f->data, a->size, 0, &err) != (ssize_t)a->size)
			fail("read %s: %s", f->path, err.text);
	}
	return 0;
}

static int note_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	if (len == 2)
		memcpy(ctx, value, 2);
	return 0;
}

static int tree_of_view(void *ctx, const struct view *v)
{
	struct tree *tr = ctx;
	struct err err;
	tr->v = v;
	int r = view_walk(v, tree_add, tr, &err);
	if (r < 0)
		fail("walk: %s", err.text);
	for (size_t i = 0; i < tr->n; i++)
		done(view_each_xattr(v, tr->f[i].a.ino, note_xattr, &tr->f[i].xattr));
	return 0;
}

/* Whether it is the state, sizes and contents aside: "" or how it differs. */
static void names_differ(const struct tree *tr, const struct state *s, char why[200])
{
	why[0] = '\0';
	if (tr->n != s->n) {
		(void)snprintf(why, 200, "%zu files, not %zu", tr->n, s->n);
		return;
	}
	for (size_t i = 0; i < tr->n && !why[0]; i++) {
		const struct seen *f = &tr->f[i];
		const struct mfile *m = m_find((struct state *)s, f->path);
		if (!m)
			(void)snprintf(why, 200, "'%.40s' shouldn't be there", f->path);
		else if (m->mode != f->a.mode)
			(void)snprintf(why, 200, "%.40s: mode %o, not %o", f->path, f->a.mode,
				       m->mode);
		else if (m->xattr != f->xattr)
			(void)snprintf(why, 200, "%.40s: xattr %u, not %u", f->path, f->xattr,
				       m->xattr);
		else if (strcmp(m->target, f->target) != 0)
			(void)snprintf(why, 200, "%.40s: to %s, not %s", f->path, f->target,
				       m->target);
	}
	/* Names of one inode are names of one inode. */
	for (size_t i = 0; i < tr->n && !why[0]; i++)
		for (size_t j = 0; j < i && !why[0]; j++) {
			const struct mfile *a = m_find((struct state *)s, tr->f[i].path);
			const struct mfile *b = m_find((struct state *)s, tr->f[j].path);
			if ((a->id == b->id) != (tr->f[i].a.ino == tr->f[j].a.ino))
				(void)snprintf(why, 200, "%.40s and %.40s are %sone file", a->path,
					       b->path, a->id == b->id ? "not " : "");
		}
}

static bool sector_is(const struct content *c, const uint8_t *data, uint64_t off, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at = off + i;
		uint8_t want = at < c->size ? ((const uint8_t *)c->words)[at] : 0;
		if (data[at] != want)
			return false;
	}
	return true;
}

static const struct content *content_at(const struct space *sp, size_t moment, uint32_t id)
{
	const struct state *s = sp->m[moment].s;
	for (size_t k = 0; k < s->n; k++)
		if (s->f[k].id == id)
			return s->f[k].c;
	return NULL;
}

/* What lies behind the end in a file's last block means nothing, so it may be there of another
 * moment, where the file was longer: it was cut back and then written to, in place. */
static bool ends_in(const struct seen *f, const struct space *sp, uint32_t id, size_t from,
		    size_t to, const struct content *c, uint64_t off, uint64_t n)
{
	if (c->size <= off || c->size >= off + n || !sector_is(c, f->data, off, c->size - off))
		return false;
	for (size_t j = from; j <= to; j++) {
		const struct content *rest = content_at(sp, j, id);
		if (rest && sector_is(rest, f->data, c->size, off + n - c->size))
			return true;
	}
	return false;
}

/* Each `grain` bytes are as at moment `from` of the workspace or a later one up to `to`. */
static bool file_differs(const struct seen *f, const struct space *sp, uint32_t id, size_t from,
			 size_t to, unsigned grain, char why[200])
{
	for (uint64_t off = 0; off < f->a.size; off += grain) {
		uint64_t n = f->a.size - off < grain ? f->a.size - off : grain;
		bool found = false;
		for (size_t j = from; j <= to && !found; j++) {
			const struct content *c = content_at(sp, j, id);
			found = c && (sector_is(c, f->data, off, n) ||
				      ends_in(f, sp, id, from, to, c, off, n));
		}
		if (found)
			continue;
		(void)snprintf(why, 200, "%.40s: at %" PRIu64 " what it never was (%u)", f->path,
			       off, f->data[off] | f->data[off + 1] << 8);
		return true;
	}
	return false;
}

/* The earliest moment as of which a file may come back where all else is as at moment `at`: it is
 * big, and since then no sync that had returned by `cut` took it (invariant 3). */
static size_t late_since(const struct space *sp, uint32_t id, size_t at, size_t to, uint64_t cut)
{
	size_t since = 0;
	uint64_t bytes = 0;
	for (size_t j = 0; j <= at; j++) {
		const struct moment *m = &sp->m[j];
		if (m->synced && m->end <= cut)
			since = m->asked == id ? j : m->whole > since ? m->whole : since;
		if (m->kept == id)
			since = j;
	}
	for (size_t j = since; j <= to; j++)
		bytes += sp->m[j].wrote == id ? sp->m[j].bytes : 0;
	return t.seed % 4 == 3 || bytes < BIG_FILE ? at : since;
}

/* Sizes and contents of the files are as at moment `at`, or of what was overwritten in place since
 * as at a later one up to `to`; `late`: big ones may have come back as of an earlier moment. */
static void contents_differ(const struct tree *tr, const struct space *sp, size_t at, size_t to,
			    unsigned grain, bool late, uint64_t cut, char why[200])
{
	for (size_t i = 0; i < tr->n; i++) {
		const struct seen *f = &tr->f[i];
		if (!S_ISREG(f->a.mode))
			continue;
		uint32_t id = m_find(sp->m[at].s, f->path)->id;
		size_t since = late ? late_since(sp, id, at, to, cut) : at;
		const struct content *c = content_at(sp, at, id);
		uint64_t size = c->size;
		(void)snprintf(why, 200, "%.40s: %" PRIu64 " bytes, not %" PRIu64, f->path,
			       f->a.size, size);
		for (size_t d = at;; d--) {
			c = content_at(sp, d, id);
			size = !c ? 0 : c->size < size ? c->size : size;
			if (f->a.size == size && !file_differs(f, sp, id, d, to, grain, why)) {
				why[0] = '\0';
				t.shorter += d < at;
				break;
			}
			if (d == since || d == 0 || !c)
				break;
		}
		if (why[0])
			return;
	}
}

/* ---- what holds for every root ---- */

static void check_snapshot(size_t i)
{
	struct err err;
	struct view_options vo;
	work_view_options(t.work, &vo);
	auto_stack st = { 0 };
	struct view v;
	struct tree tr = { .n = 0 };
	char why[200];
	if (manifest_get(work_store(t.work), &t.snaps[i].manifest, &st, &err) < 0 ||
	    view_open(&v, &vo, &st, &err) < 0)
		fail("snapshot %zu: %s", i, err.text);
	v.store = work_store(t.work);
	(void)tree_of_view(&tr, &v);
	const struct moment m = { .s = (struct state *)t.snaps[i].s };
	const struct space sp = { .id = "snap", .m = (struct moment *)&m, .n = 1 };
	names_differ(&tr, m.s, why);
	if (!why[0])
		contents_differ(&tr, &sp, 0, 0, SECTOR, false, 0, why);
	if (why[0])
		fail("snapshot %zu: %s", i, why);
	tree_done(&tr);
	view_done(&v);
}

/* Those that were reported saved by then are whole. */
static void check_snapshots(uint64_t cut)
{
	for (size_t i = 0; i < t.nsnaps; i++)
		if (t.snaps[i].end <= cut)
			check_snapshot(i);
}

static void report(void *ctx, const struct store_fault *f)
{
	fprintf(stderr, "# %s at %" PRIu64 ": %s\n", f->pack ? f->pack : "index", f->offset,
		f->what);
}

static void check_store(void)
{
	struct err err;
	int64_t faults = store_check(work_store(t.work), false, report, NULL, &err);
	if (faults)
		fail("%" PRId64 " faults of the store: %s", faults, faults < 0 ? err.text : "");
}

/* It takes a new file, with a number that nobody has or had; or the error of making it. */
static int add_file(struct ws *ws)
{
	struct entry e;
	int r = ws_mknod(ws, 1, "after", 5, S_IFREG | 0600, 0, &root_caller, &e);
	if (r < 0)
		return r;
	if (e.attr.ino <= t.max_ino)
		fail("inode %" PRIu64 " is given again", e.attr.ino);
	t.max_ino = e.attr.ino;
	done(ws_write(ws, e.node, "x", 1, 0, false, &root_caller));
	done(ws_fsync(ws, e.node));
	ws_forget(ws, e.node, 1);
	return 0;
}

/* No power is lost here any more, and waiting for the disk is most of the time otherwise. */
static int no_sync(void *ctx, int fd)
{
	return 0;
}

#endif
