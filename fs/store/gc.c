/* Garbage collection: packs that are mostly dead are condemned, what is alive in them is copied,
 * and they are deleted. The order is what makes it safe beside writers and readers of
 * other processes:
 *   - condemning is a commit of the index that every put sees from then on, so only sessions
 *     that were registered before may rely on a condemned pack: those are waited for;
 *   - the marking that counts begins after them, so what they have named is marked;
 *   - a live object is copied, durable and indexed at its new place before the old one is
 *     doomed, and a pack is doomed by a commit before its file is deleted;
 *   - readers that meet a deleted pack look the object up again.
 * Killed in between: condemned packs are pardoned by the next gc, doomed ones are deleted by it
 * or by the next one who opens the store. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/bloom.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/store/internal.h"

/* Bytes of what is marked: 4 for each object, up to here. With 100 million one of a hundred dead
 * ones stays, with 200 million one of six, and others in the next gc. */
enum { MARKS_MAX = 128 << 20 };

struct victim {
	uint64_t id;    /* first: array_by_u64 */
	uint64_t size;  /* of the file */
	uint64_t live;  /* stored bytes of marked objects that the index finds here */
	uint64_t total; /* stored bytes of all its records */
	int fd;         /* locked while it is condemned; -1 */
	bool keep;      /* something in it can't be copied */
};

struct store_gc {
	struct store *s;
	struct bloom *marks; /* a false match only keeps an object that is dead */
	struct victim *v;
	size_t n;
	/* An object was marked that the index doesn't have, so it can't tell what is where a pack
	 * is damaged. */
	atomic_bool missed;
	uint64_t copied; /* bytes written for the victims' live objects */
	bool (*stop)(void *ctx, uint64_t done, uint64_t total); /* NULL: nobody stops it */
	void *stop_ctx;
	struct store_gc_stats st;
};

void store_gc_ask(struct store_gc *gc, bool (*stop)(void *ctx, uint64_t done, uint64_t total),
		  void *ctx)
{
	gc->stop = stop;
	gc->stop_ctx = ctx;
}

static bool stops(struct store_gc *gc, uint64_t done, uint64_t total)
{
	return gc->stop && gc->stop(gc->stop_ctx, done, total);
}

static bool stops_waiting(void *gc)
{
	return stops(gc, 0, 0);
}

/* ---- marking ---- */

static int marks_begin(struct store_gc *gc, struct err *err)
{
	uint64_t objects;
	int r = index_count(gc->s->index, &objects);
	if (r < 0)
		return err_sys(err, r, "read the index of the store");
	bloom_free(gc->marks);
	gc->missed = false;
	gc->marks = bloom_new(objects, MARKS_MAX);
	return gc->marks ? 0 : err_sys(err, -ENOMEM, "collect garbage");
}

void store_gc_mark(struct store_gc *gc, const struct digest *d, uint32_t *size)
{
	uint32_t none = 0;
	uint32_t *bytes = size ? size : &none;
	*bytes = 0;
	if (digest_is_git(d, NULL, NULL))
		return;
	bloom_add(gc->marks, d);
	if (store_has(gc->s, d, bytes) <= 0)
		gc->missed = true;
}

static bool is_marked(struct store_gc *gc, const struct digest *d)
{
	return bloom_has(gc->marks, d);
}

/* ---- choosing ---- */

static struct victim *find_victim(struct store_gc *gc, uint64_t id)
{
	return gc->n ? bsearch(&id, gc->v, gc->n, sizeof(*gc->v), array_by_u64) : NULL;
}

static int count_entry(void *ctx, const struct digest *d, const struct place *p)
{
	struct store_gc *gc = ctx;
	bool live = is_marked(gc, d);
	gc->st.objects_live += live;
	gc->st.objects_dead += !live;
	struct victim *v = live ? find_victim(gc, p->pack) : NULL;
	if (v)
		v->live += pack_record_bytes(p->stored);
	return 0;
}

/* Every pack is looked at; those that stay in gc->v are worth rewriting and are locked. */
static int choose(struct store_gc *gc, struct err *err)
{
	struct store *s = gc->s;
	auto_free struct pack_row *rows = NULL;
	size_t n = 0, kept = 0;
	int r = index_rows(s->index, &rows, &n);
	if (r < 0)
		return err_sys(err, r, "read the index of the store");
	gc->v = calloc(n ? n : 1, sizeof(*gc->v));
	if (!gc->v)
		return err_sys(err, -ENOMEM, "collect garbage");
	for (size_t i = 0; i < n; i++) /* rows come in the order of ids */
		if (!(rows[i].flags & (ROW_DOOMED | ROW_BROKEN)))
			gc->v[gc->n++] = (struct victim){ .id = rows[i].id,
							  .total = rows[i].stored,
							  .fd = -1 };
	r = index_each(s->index, count_entry, gc);
	if (r < 0)
		return err_sys(err, r, "read the index of the store");
	for (size_t i = 0; i < gc->n; i++) {
		struct victim *v = &gc->v[i];
		if (v->live * 2 >= v->total && v->total > 0)
			continue;
		v->fd = store_lock_pack(s, v->id);
		struct stat st;
		if (v->fd < 0 || s->io->fstat(s->io->ctx, v->fd, &st) < 0) {
			if (v->fd >= 0)
				(void)s->io->close(s->io->ctx, v->fd); /* nothing was done */
			continue; /* it is being written to, or the disk fails: not now */
		}
		v->size = (uint64_t)st.st_size;
		gc->v[kept++] = *v;
	}
	gc->n = kept;
	return 0;
}

/* ---- changing rows ---- */

struct flags_job {
	const struct victim *v;
	size_t n;
	uint32_t set, clear;
};

static int flags_txn(struct index_txn *t, void *ctx)
{
	const struct flags_job *job = ctx;
	for (size_t i = 0; i < job->n; i++) {
		struct pack_row row;
		int r = index_txn_row(t, job->v[i].id, &row);
		if (r > 0) {
			row.flags = (row.flags | job->set) & ~job->clear;
			r = index_txn_row_put(t, &row);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int set_flags(struct store_gc *gc, uint32_t set, uint32_t clear, struct err *err)
{
	struct flags_job job = { gc->v, gc->n, set, clear };
	int r = gc->n ? store_index_write(gc->s, flags_txn, &job) : 0;
	return r < 0 ? err_sys(err, r, "write the index of the store") : 0;
}

/* Takes back what a gc that was killed has condemned. */
static int pardon(struct store *s, struct err *err)
{
	auto_free struct pack_row *rows = NULL;
	size_t n = 0, k = 0;
	int r = index_rows(s->index, &rows, &n);
	if (r < 0)
		return err_sys(err, r, "read the index of the store");
	auto_free struct victim *v = calloc(n ? n : 1, sizeof(*v));
	if (!v)
		return err_sys(err, -ENOMEM, "collect garbage");
	for (size_t i = 0; i < n; i++)
		if (rows[i].flags & ROW_CONDEMNED && !(rows[i].flags & ROW_DOOMED))
			v[k++].id = rows[i].id;
	struct flags_job job = { v, k, 0, ROW_CONDEMNED };
	r = k ? store_index_write(s, flags_txn, &job) : 0;
	return r < 0 ? err_sys(err, r, "write the index of the store") : 0;
}

/* ---- copying ---- */

/* Is a copy of the object elsewhere that can be relied on, whatever becomes of this pack? */
static int safe_elsewhere(struct store_gc *gc, const struct digest *d, struct reader *rd)
{
	struct place p;
	struct pack_row row;
	int r = index_get(gc->s->index, d, &p, &row);
	if (r <= 0 || p.damaged || row.flags & ROW_UNUSABLE || place_end(&p) > row.synced)
		return r < 0 ? r : 0;
	struct pack_record rec;
	r = store_read_record(gc->s, rd, d, &p, &rec);
	return r == -ENOMEM ? r : r == 0;
}

struct copy_job {
	struct store_gc *gc;
	struct victim *v;
	struct store_session *ss;
	struct reader *rd;
	struct buf dead; /* digests to be taken out of the index if they point here */
};

/* One object of a victim, whose record's bytes are at `rec` of the reader, if it is whole. */
static int copy_one(struct copy_job *job, const struct pack_entry *e, struct err *err)
{
	struct store_gc *gc = job->gc;
	buf_add(&job->dead, e->digest.b, sizeof(e->digest.b));
	if (!is_marked(gc, &e->digest))
		return buf_error(&job->dead);
	int r = safe_elsewhere(gc, &e->digest, job->rd);
	if (r != 0)
		return r < 0 ? err_sys(err, r, "collect garbage") : 0;
	struct place p = { .pack = job->v->id, .off = e->off, .raw = e->raw, .stored = e->stored };
	struct pack_record rec;
	r = store_read_record(gc->s, job->rd, &e->digest, &p, &rec);
	if (r == -ENOMEM)
		return err_sys(err, r, "collect garbage");
	if (r < 0) {
		job->v->keep = true; /* damaged: the pack is all that is left of it */
		return 0;
	}
	r = session_move(job->ss, job->rd->buf, &rec, err);
	if (r == 0)
		gc->copied += pack_record_bytes(rec.stored);
	return r;
}

struct listed {
	struct store_gc *gc;
	const struct victim *v;
	const struct pack_entry *e;
	size_t n;
};

static int compare_place(const void *off, const void *e)
{
	uint64_t a = *(const uint64_t *)off, b = ((const struct pack_entry *)e)->off;
	return a < b ? -1 : a > b;
}

/* 1 for one that is alive and should be in the pack where no whole record is. */
static int is_missed(void *ctx, const struct digest *d, const struct place *p)
{
	const struct listed *l = ctx;
	return p->pack == l->v->id && is_marked(l->gc, d) &&
	       !(l->n && bsearch(&p->off, l->e, l->n, sizeof(*l->e), compare_place));
}

/* The objects of a victim: by its table, or by reading it through. What is damaged keeps it where
 * somebody's object may be in it; what can't be read now, always. */
static int list_objects(struct store_gc *gc, struct victim *v, struct pack_entry **out, size_t *n)
{
	struct store *s = gc->s;
	int r = pack_toc_read(s->io, v->fd, v->id, v->size, out, n);
	if (r != -ENODATA && r != -EBADMSG)
		return r;
	enum pack_gaps gaps;
	r = pack_scan_objects(s->io, v->fd, v->id, v->size, out, n, &gaps);
	if (r < 0 || gaps == PACK_GAPLESS)
		return r;
	v->keep = gaps == PACK_UNREADABLE || (v->live > 0 && gc->missed);
	if (!v->keep) {
		r = index_each(s->index, is_missed, &(struct listed){ gc, v, *out, *n });
		v->keep = r > 0;
	}
	return r < 0 ? r : 0;
}

static int copy_victim(struct copy_job *job, struct err *err)
{
	auto_free struct pack_entry *e = NULL;
	size_t n = 0;
	int r = list_objects(job->gc, job->v, &e, &n);
	if (r < 0)
		return err_sys(err, r, "read pack %016" PRIx64, job->v->id);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = copy_one(job, &e[i], err);
	return r;
}

/* ---- deleting ---- */

struct doom_job {
	const struct victim *v;
	const struct digest *d;
	size_t n;
	struct store_gc *gc;
};

/* Takes all that points at the pack out of the index, and dooms it. An object that is
 * alive and still points here stops it: then the pack has to stay. */
static int doom_txn(struct index_txn *t, void *ctx)
{
	const struct doom_job *job = ctx;
	for (size_t i = 0; i < job->n; i++) {
		struct place p;
		int r = index_txn_get(t, &job->d[i], &p);
		if (r > 0 && p.pack == job->v->id)
			r = is_marked(job->gc, &job->d[i]) ? -EEXIST : index_txn_del(t, &job->d[i]);
		if (r < 0)
			return r;
	}
	struct pack_row row;
	int r = index_txn_row(t, job->v->id, &row);
	if (r <= 0)
		return r;
	row.flags |= ROW_DOOMED;
	return index_txn_row_put(t, &row);
}

static int forget_txn(struct index_txn *t, void *ctx)
{
	return index_txn_row_del(t, *(const uint64_t *)ctx);
}

static int delete_victim(struct copy_job *job, struct err *err)
{
	struct store_gc *gc = job->gc;
	struct store *s = gc->s;
	struct victim *v = job->v;
	struct doom_job doom = { v, (const struct digest *)(const void *)job->dead.data,
				 job->dead.len / sizeof(struct digest), gc };
	int r = store_index_write(s, doom_txn, &doom);
	if (r == -EEXIST) {
		v->keep = true;
		return 0;
	}
	char name[PACK_NAME_BYTES];
	pack_name(name, v->id);
	if (r == 0) {
		r = s->io->unlink(s->io->ctx, s->packs_fd, name, 0);
		if (r == 0 || r == -ENOENT)
			r = store_index_write(s, forget_txn, &v->id);
	}
	if (r < 0)
		return err_sys(err, r, "delete pack %s", name);
	gc->st.packs_deleted++;
	gc->st.packs_rewritten += v->live > 0;
	gc->st.bytes_freed += v->size;
	return 0;
}

static int compare_live(const void *a, const void *b)
{
	uint64_t x = ((const struct victim *)a)->live, y = ((const struct victim *)b)->live;
	return x < y ? -1 : x > y;
}

/* Copies, syncs and deletes one pack after the other, those with the least to copy first, so that
 * the space which the copies take stays small. On a full disk some may have to stay: that is
 * an error only where nothing could be freed. */
static int rewrite(struct store_gc *gc, struct err *err)
{
	struct store *s = gc->s;
	struct copy_job job = { .gc = gc };
	bool full = false;
	if (gc->n > 1)
		qsort(gc->v, gc->n, sizeof(*gc->v), compare_live);
	job.rd = reader_get(s);
	if (!job.rd)
		return err_sys(err, -ENOMEM, "collect garbage");
	int r = store_session_begin(s, &job.ss, err);
	for (size_t i = 0; r == 0 && i < gc->n; i++) {
		job.v = &gc->v[i];
		buf_reset(&job.dead);
		r = stops(gc, i, gc->n) ? err_set(err, -ECANCELED, "the gc was cancelled") : 0;
		if (r == 0)
			r = copy_victim(&job, err);
		if (r == 0)
			r = store_sync(job.ss, err);
		if (r == 0 && !job.v->keep)
			r = delete_victim(&job, err);
		if (r == -ENOSPC && (gc->st.packs_deleted > 0 || i + 1 < gc->n)) {
			full = true;
			r = 0;
		}
	}
	if (r == 0 && full && gc->st.packs_deleted == 0)
		r = err_set(err, -ENOSPC, "the disk is full, and no pack could be made smaller");
	store_session_end(job.ss);
	reader_put(s, job.rd);
	buf_done(&job.dead);
	return r;
}

/* ---- the whole ---- */

static int collect(struct store_gc *gc, store_gc_mark_fn mark, void *ctx, struct err *err)
{
	struct store *s = gc->s;
	/* What this process has pending counts as what it is, and dead writers' packs too. */
	int r = writer_flush(s, err);
	if (r == 0)
		r = recover_catch_up(s, err);
	if (r == 0)
		r = pardon(s, err);
	if (r == 0)
		r = marks_begin(gc, err);
	if (r == 0)
		r = mark(ctx, gc, err);
	if (r == 0)
		r = choose(gc, err);
	if (r < 0 || gc->n == 0)
		return r;
	r = set_flags(gc, ROW_CONDEMNED, 0, err);
	if (r == 0)
		r = sessions_wait(s, stops_waiting, gc, err);
	if (r == 0)
		r = marks_begin(gc, err);
	if (r == 0)
		r = mark(ctx, gc, err);
	if (r == 0)
		r = rewrite(gc, err);
	gc->st.bytes_freed -= gc->copied < gc->st.bytes_freed ? gc->copied : gc->st.bytes_freed;
	/* Those that stay may be relied on again; the rows of the deleted are gone. */
	int p = set_flags(gc, 0, ROW_CONDEMNED, r < 0 ? NULL : err);
	return r < 0 ? r : p;
}

int gc_lock(struct store *s, struct err *err)
{
	auto_fd fd = openat(s->dirfd, "gc.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, -errno, "lock the store");
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK
			       ? err_set(err, -EBUSY, "a gc or check of the store is running")
			       : err_sys(err, -errno, "lock the store");
	return steal_fd(&fd);
}

int store_gc(struct store *s, store_gc_mark_fn mark, void *ctx, struct store_gc_stats *st,
	     struct err *err)
{
	if (s->read_only)
		return err_set(err, -EROFS, "the store was opened for reading only");
	auto_fd lock = gc_lock(s, err);
	if (lock < 0)
		return lock;
	struct store_gc *gc = calloc(1, sizeof(*gc));
	if (!gc)
		return err_sys(err, -ENOMEM, "collect garbage");
	gc->s = s;
	int r = collect(gc, mark, ctx, err);
	if (r == 0 && st)
		*st = gc->st;
	for (size_t i = 0; i < gc->n; i++)
		if (gc->v[i].fd >= 0)
			(void)s->io->close(s->io->ctx, gc->v[i].fd); /* nothing unsynced in it */
	files_sweep(s, false);
	bloom_free(gc->marks);
	free(gc->v);
	free(gc);
	return r;
}
