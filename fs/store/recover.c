/* The index over time: when it is trusted, how it is made right.
 *
 * The file index/state tells what the index is good for. Whoever writes to the index first
 * replaces it by one that says "in use", with the boot id; the last one to close the store
 * replaces that by "closed", with a hash of the index, which is durable then. So who is
 * alone with the store and opens it finds:
 *   closed, this boot      trusted if size and time of the data file are those noted
 *   closed, another boot   trusted if its hash is right
 *   in use, this boot      whole as far as the kernel lives (killed processes lose nothing that
 *                          they wrote): proven by walking through it
 *   in use, another boot   power was lost: LMDB's pages may be of any age
 *   no state, or damaged
 *   a file index/distrust  a writer has seen its disk fail, or somebody damage in the index
 * What isn't trusted is made anew from the packs. A trusted index may still be older than the packs
 * (power lost right after "in use" was written, writers killed before their commit), so each
 * pack is compared with its row, and read from where the row ends. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/store/internal.h"

enum {
	STATE_VERSION = 1,
	STATE_CLOSED = 1,
	ADD_BATCH = 32 * 1024, /* objects entered in one transaction */
};
#define STATE_MAGIC UINT32_C(0x78644942) /* "BIdx" */

/* ---- the state file ---- */

void index_state_encode(uint8_t out[INDEX_STATE_BYTES], const struct index_state *st)
{
	memset(out, 0, INDEX_STATE_BYTES);
	le_put32(out + 8, STATE_MAGIC);
	le_put32(out + 12, STATE_VERSION);
	memcpy(out + 16, st->boot, BOOT_ID_BYTES);
	le_put32(out + 32, st->closed ? STATE_CLOSED : 0);
	le_put64(out + 40, st->used);
	le_put64(out + 48, st->hash);
	le_put64(out + 56, st->size);
	le_put64(out + 64, st->mtime_ns);
	le_put64(out, hash_xxh3(out + 8, INDEX_STATE_BYTES - 8, 0));
}

int index_state_decode(struct index_state *st, const uint8_t *in, size_t len)
{
	if (len != INDEX_STATE_BYTES ||
	    le_get64(in) != hash_xxh3(in + 8, INDEX_STATE_BYTES - 8, 0) ||
	    le_get32(in + 8) != STATE_MAGIC || le_get32(in + 12) != STATE_VERSION)
		return -EBADMSG;
	memcpy(st->boot, in + 16, BOOT_ID_BYTES);
	st->closed = le_get32(in + 32) == STATE_CLOSED;
	st->used = le_get64(in + 40);
	st->hash = le_get64(in + 48);
	st->size = le_get64(in + 56);
	st->mtime_ns = le_get64(in + 64);
	return 0;
}

static int state_read(struct store *s, struct index_state *st)
{
	auto_free void *p = NULL;
	size_t len;
	int r = io_slurp(s->io, s->index_fd, "state", INDEX_STATE_BYTES, &p, &len, NULL);
	return r < 0 ? r : index_state_decode(st, p, len);
}

static int state_write(struct store *s, const struct index_state *st, bool durable)
{
	uint8_t b[INDEX_STATE_BYTES];
	index_state_encode(b, st);
	return io_publish(s->io, s->index_fd, "state", b, sizeof(b), durable, NULL);
}

int recover_mark_used(struct store *s)
{
	int r = 0;
	(void)pthread_mutex_lock(&s->dirty_lock);
	if (!s->dirty) {
		struct index_state st = { 0 };
		memcpy(st.boot, s->boot, sizeof(st.boot));
		/* Durable, so that power loss is known for what it was. */
		r = state_write(s, &st, true);
		s->dirty = r == 0;
	}
	(void)pthread_mutex_unlock(&s->dirty_lock);
	return r;
}

int store_index_write(struct store *s, int (*fn)(struct index_txn *t, void *ctx), void *ctx)
{
	int r = recover_mark_used(s);
	if (r == 0)
		r = index_write(s->index, fn, ctx);
	if (r == -EBADMSG)
		recover_distrust(s);
	return r;
}

void recover_distrust(struct store *s)
{
	int fd = s->io->open(s->io->ctx, s->index_fd, "distrust", O_WRONLY | O_CREAT, 0600);
	if (fd >= 0)
		(void)s->io->close(s->io->ctx, fd); /* that it exists says all */
}

void recover_note_loss(struct store *s)
{
	(void)pthread_mutex_lock(&s->dirty_lock);
	random_bytes(s->losses, sizeof(s->losses));
	/* Where not even this can be written, the next process can write as little. */
	if (!s->read_only)
		(void)io_publish(s->io, s->dirfd, "losses", s->losses, sizeof(s->losses), false,
				 NULL);
	atomic_fetch_add(&s->nlosses, 1);
	(void)pthread_mutex_unlock(&s->dirty_lock);
}

void store_losses(struct store *s, uint8_t out[STORE_LOSSES_BYTES])
{
	memset(out, 0, STORE_LOSSES_BYTES);
	if (!s)
		return;
	(void)pthread_mutex_lock(&s->dirty_lock);
	memcpy(out, s->losses, STORE_LOSSES_BYTES);
	(void)pthread_mutex_unlock(&s->dirty_lock);
}

/* What earlier processes have noted; where it can't be read, something is lost. */
static void load_losses(struct store *s)
{
	auto_free void *p = NULL;
	size_t len = 0;
	int r = io_slurp(s->io, s->dirfd, "losses", STORE_LOSSES_BYTES, &p, &len, NULL);
	if (r == 0 && len == STORE_LOSSES_BYTES)
		memcpy(s->losses, p, STORE_LOSSES_BYTES);
	else if (r != -ENOENT)
		recover_note_loss(s);
}

static int data_stat(struct store *s, struct index_state *st)
{
	struct stat f;
	if (fstatat(s->index_fd, "data.mdb", &f, 0) < 0)
		return -errno;
	st->size = (uint64_t)f.st_size;
	st->mtime_ns = (uint64_t)f.st_mtim.tv_sec * 1000000000 + (uint64_t)f.st_mtim.tv_nsec;
	return 0;
}

int store_sync_found(struct store *s, int fd)
{
	int r = s->io->fdatasync(s->io->ctx, fd);
	return r < 0 ? r : s->io->fsync(s->io->ctx, s->packs_fd);
}

/* ---- what dead writers left ---- */

static int cut_txn(struct index_txn *t, void *ctx)
{
	const struct pack_row *now = ctx;
	struct pack_row row;
	int r = index_txn_row(t, now->id, &row);
	if (r <= 0 || row.indexed <= now->indexed)
		return r < 0 ? r : 0;
	row.indexed = now->indexed;
	return index_txn_row_put(t, &row);
}

/* Makes durable what a dead writer has left in a pack. Where that fails it is as in abandon: the
 * next sync would lie, so what its row doesn't know as durable goes. Without a row (NULL) nobody
 * knows what is: it stays. */
static int sync_left(struct store *s, int fd, const struct pack_row *row)
{
	int r = store_sync_found(s, fd);
	if (r == 0)
		return 0;
	recover_note_loss(s);
	if (!row)
		return r;
	struct pack_row keep = { .id = row->id, .indexed = row->synced };
	if (keep.indexed < PACK_HEADER_BYTES)
		keep.indexed = PACK_HEADER_BYTES;
	recover_distrust(s);
	if (store_index_write(s, cut_txn, &keep) == 0)
		(void)s->io->ftruncate(s->io->ctx, fd, keep.indexed); /* or it stays, unused */
	return r;
}

/* ---- entering what a pack holds ---- */

struct add_job {
	const struct pack_entry *e;
	size_t n;
	struct pack_row row; /* as it is after the n objects */
};

static int add_txn(struct index_txn *t, void *ctx)
{
	const struct add_job *job = ctx;
	int r = 0;
	for (size_t i = 0; r == 0 && i < job->n; i++) {
		const struct pack_entry *e = &job->e[i];
		struct place p = {
			.pack = job->row.id, .off = e->off, .raw = e->raw, .stored = e->stored
		};
		r = entry_offer(t, &e->digest, &p, false);
	}
	return r < 0 ? r : index_txn_row_put(t, &job->row);
}

/* Adds the objects behind row->indexed, which moves along, and writes the row. */
static int add_entries(struct store *s, const struct pack_entry *e, size_t n, struct pack_row *row)
{
	for (size_t i = 0; i == 0 || i < n; i += ADD_BATCH) {
		struct add_job job = { e + i, n - i < ADD_BATCH ? n - i : ADD_BATCH, *row };
		for (size_t k = 0; k < job.n; k++) {
			job.row.records++;
			job.row.raw += job.e[k].raw;
			job.row.stored += pack_record_bytes(job.e[k].stored);
			job.row.indexed = job.e[k].off + pack_record_bytes(job.e[k].stored);
		}
		int r = store_index_write(s, add_txn, &job);
		if (r < 0)
			return r;
		*row = job.row;
	}
	return 0;
}

/* Enters what a table of contents lists, which is all of a sealed pack. */
static int index_sealed(struct store *s, int fd, uint64_t size, const struct pack_row *known,
			struct pack_row *row)
{
	auto_free struct pack_entry *e = NULL;
	size_t n;
	int r = pack_toc_read(s->io, fd, row->id, size, &e, &n);
	if (r < 0)
		return r;
	/* The table was written behind durable records, but wasn't synced itself. */
	r = sync_left(s, fd, known);
	if (r < 0)
		return r;
	*row = (struct pack_row){ .id = row->id, .indexed = PACK_HEADER_BYTES };
	r = add_entries(s, e, n, row);
	if (r < 0)
		return r;
	row->indexed = row->synced = size;
	row->flags = ROW_SEALED;
	return add_entries(s, NULL, 0, row);
}

/* Reads the records behind the row's end. */
static int index_tail(struct store *s, int fd, uint64_t size, const struct pack_row *known,
		      struct pack_row *row, bool *unreadable)
{
	struct pack_scan sc;
	if (row->indexed < PACK_HEADER_BYTES)
		row->indexed = PACK_HEADER_BYTES;
	int r = pack_scan_init(&sc, s->io, fd, row->id, row->indexed, size);
	if (r < 0)
		return r;
	auto_buf b = { 0 };
	struct pack_record rec;
	const struct pack_row was = *row;
	uint64_t off, len;
	const uint8_t *stored;
	int k;
	while (r == 0 && (k = pack_scan_next(&sc, &rec, &off, &len, &stored)) != PACK_SCAN_END) {
		struct pack_entry e = { rec.digest, off, rec.raw, rec.stored };
		if (k == PACK_SCAN_RECORD && rec.kind == PACK_OBJECT)
			buf_add(&b, &e, sizeof(e));
		if (b.len >= ADD_BATCH * sizeof(e)) {
			r = add_entries(s, (struct pack_entry *)(void *)b.data, b.len / sizeof(e),
					row);
			buf_reset(&b);
		}
	}
	uint64_t end = sc.objects;
	*unreadable = sc.unreadable;
	pack_scan_done(&sc);
	if (r == 0)
		r = buf_error(&b);
	if (r == 0)
		r = sync_left(s, fd, known);
	if (r < 0)
		return r;
	size_t n = b.len / sizeof(struct pack_entry);
	r = add_entries(s, (struct pack_entry *)(void *)b.data, n, row);
	if (r < 0)
		return r;
	row->indexed = end;
	if (*unreadable)
		*row = was; /* what the disk refuses today it may give tomorrow: it is read again */
	row->synced = row->indexed;
	return add_entries(s, NULL, 0, row);
}

static int row_del_txn(struct index_txn *t, void *ctx)
{
	return index_txn_row_del(t, *(const uint64_t *)ctx);
}

static int mend_header(struct store *s, int fd, uint64_t id)
{
	uint8_t h[PACK_HEADER_BYTES];
	if (io_read_full(s->io, fd, h, sizeof(h), 0) == PACK_HEADER_BYTES &&
	    pack_header_decode(h, id) == 0)
		return 0;
	pack_header_encode(h, id);
	int r = io_write_full(s->io, fd, h, sizeof(h), 0);
	return r < 0 ? r : s->io->fdatasync(s->io->ctx, fd);
}

/* Where records are missing between others, a table lists those that are there. */
static int mend_gaps(struct store *s, int fd, struct pack_row *row)
{
	auto_free struct pack_entry *e = NULL;
	size_t n;
	enum pack_gaps gaps;
	int r = pack_scan_objects(s->io, fd, row->id, row->indexed, &e, &n, &gaps);
	if (r < 0 || gaps != PACK_DAMAGED)
		return r;
	r = pack_toc_write(s->io, fd, row->id, row->indexed, e, n, &row->indexed);
	if (r == 0)
		r = s->io->fdatasync(s->io->ctx, fd);
	if (r < 0)
		return r;
	row->synced = row->indexed;
	row->flags |= ROW_SEALED;
	return add_entries(s, NULL, 0, row);
}

/* What a power loss left of a pack that wasn't synced, so that nobody takes it for damage: any of
 * its parts may be missing or torn. The records that are whole are kept, needed or not. */
static int mend(struct store *s, int fd, const char *name, uint64_t size, struct pack_row *row)
{
	if (row->records == 0) {
		int r = s->io->unlink(s->io->ctx, s->packs_fd, name, 0);
		return r < 0 && r != -ENOENT ? r : store_index_write(s, row_del_txn, &row->id);
	}
	int r = size > row->indexed ? s->io->ftruncate(s->io->ctx, fd, row->indexed) : 0;
	if (r == 0)
		r = mend_header(s, fd, row->id);
	return r == 0 && !(row->flags & ROW_SEALED) ? mend_gaps(s, fd, row) : r;
}

int recover_index_locked(struct store *s, int fd, uint64_t id, struct err *err)
{
	char name[PACK_NAME_BYTES];
	pack_name(name, id);
	struct pack_row row;
	int known = index_row(s->index, id, &row);
	if (known < 0)
		return err_sys(err, known, "read the index of the store");
	if (known == 0)
		row = (struct pack_row){ .id = id };
	struct stat st;
	int r = s->io->fstat(s->io->ctx, fd, &st);
	if (r < 0)
		return err_sys(err, r, "read pack %s", name);
	uint64_t size = (uint64_t)st.st_size;
	if (row.flags & ROW_DOOMED || (known && size <= row.indexed))
		return 0; /* in order, or broken, or somebody was quicker */
	if (size < PACK_HEADER_BYTES) {
		/* Its writer died before it wrote anything. */
		r = s->io->unlink(s->io->ctx, s->packs_fd, name, 0);
		return r < 0 && r != -ENOENT ? err_sys(err, r, "remove pack %s", name) : 0;
	}
	uint8_t h[PACK_HEADER_BYTES];
	if (io_read_full(s->io, fd, h, sizeof(h), 0) == PACK_HEADER_BYTES &&
	    pack_header_decode(h, id) == -EPROTONOSUPPORT)
		return err_set(err, -EBADMSG, "pack %s has a version that is not known here", name);
	/* A damaged header says nothing that the name and the records don't. */
	row.flags &= ~(uint32_t)ROW_BROKEN;
	bool unreadable = false;
	const struct pack_row was = row, *its = known ? &was : NULL;
	r = index_sealed(s, fd, size, its, &row);
	if (r == -ENODATA || r == -EBADMSG)
		r = index_tail(s, fd, size, its, &row, &unreadable);
	if (r == 0 && s->power_lost && !unreadable)
		r = mend(s, fd, name, size, &row);
	return r < 0 ? err_sys(err, r, "index pack %s", name) : 0;
}

static int index_pack(struct store *s, uint64_t id, struct err *err)
{
	int fd = store_lock_pack(s, id);
	if (fd == -EWOULDBLOCK || fd == -ENOENT)
		return 0; /* its writer lives and indexes it, or it was deleted */
	if (fd < 0)
		return err_sys(err, fd, "open pack %016" PRIx64, id);
	int r = recover_index_locked(s, fd, id, err);
	(void)s->io->close(s->io->ctx, fd); /* synced where it matters */
	return r;
}

/* ---- comparing packs and rows ---- */

struct broken_job {
	struct store *s;
	uint64_t id;
};

/* Sets or clears ROW_BROKEN by what the file is now, with all other writers of rows shut out. */
static int broken_txn(struct index_txn *t, void *ctx)
{
	const struct broken_job *job = ctx;
	struct pack_row row;
	int r = index_txn_row(t, job->id, &row);
	if (r <= 0)
		return r;
	char name[PACK_NAME_BYTES];
	pack_name(name, job->id);
	struct stat st;
	bool there = fstatat(job->s->packs_fd, name, &st, 0) == 0;
	bool broken = !there || (uint64_t)st.st_size < row.indexed;
	if (broken == !!(row.flags & ROW_BROKEN))
		return 0;
	row.flags ^= ROW_BROKEN;
	return index_txn_row_put(t, &row);
}

/* A save that went on from where it was killed relies on what it had put. */
static int sync_indexed(struct store *s, const struct pack_row *row, struct err *err)
{
	int fd = store_lock_pack(s, row->id);
	if (fd == -EWOULDBLOCK || fd == -ENOENT)
		return 0; /* its writer lives */
	int r = fd < 0 ? fd : sync_left(s, fd, row);
	if (r == 0)
		r = row_note_synced(s, row->id, row->indexed);
	if (fd >= 0)
		(void)s->io->close(s->io->ctx, fd); /* synced */
	return r < 0 ? err_sys(err, r, "sync pack %016" PRIx64, row->id) : 0;
}

static int check_row(struct store *s, const struct pack_row *row, struct err *err)
{
	char name[PACK_NAME_BYTES];
	pack_name(name, row->id);
	uint64_t id = row->id;
	if (row->flags & ROW_DOOMED) {
		int r = s->io->unlink(s->io->ctx, s->packs_fd, name, 0);
		if (r < 0 && r != -ENOENT)
			return err_sys(err, r, "remove pack %s", name);
		r = store_index_write(s, row_del_txn, &id);
		return r < 0 ? err_sys(err, r, "write the index of the store") : 0;
	}
	struct stat st;
	bool there = fstatat(s->packs_fd, name, &st, 0) == 0;
	if (!there && errno != ENOENT)
		return err_sys(err, -errno, "look at pack %s", name);
	bool broken = !there || (uint64_t)st.st_size < row->indexed;
	if (broken != !!(row->flags & ROW_BROKEN)) {
		int r = store_index_write(s, broken_txn, &(struct broken_job){ s, id });
		if (r < 0)
			return err_sys(err, r, "write the index of the store");
	}
	if (there && (uint64_t)st.st_size > row->indexed)
		return index_pack(s, id, err);
	return there && !broken && row->synced < row->indexed ? sync_indexed(s, row, err) : 0;
}

struct dated {
	uint64_t id;
	struct timespec t;
};

static int compare_dated(const void *a, const void *b)
{
	const struct dated *x = a, *y = b;
	if (x->t.tv_sec != y->t.tv_sec)
		return x->t.tv_sec < y->t.tv_sec ? 1 : -1;
	return x->t.tv_nsec < y->t.tv_nsec ? 1 : x->t.tv_nsec > y->t.tv_nsec ? -1 : 0;
}

/* Packs without a row, the youngest first: where an object has two copies, the later one was
 * written since the first one was bad. */
static int index_unknown(struct store *s, const uint64_t *ids, size_t n, struct err *err)
{
	auto_free struct dated *d = calloc(n ? n : 1, sizeof(*d));
	if (!d)
		return err_sys(err, -ENOMEM, "index the packs");
	for (size_t i = 0; i < n; i++) {
		char name[PACK_NAME_BYTES];
		struct stat st;
		pack_name(name, ids[i]);
		d[i].id = ids[i];
		if (fstatat(s->packs_fd, name, &st, 0) == 0)
			d[i].t = st.st_mtim;
	}
	qsort(d, n, sizeof(*d), compare_dated);
	int r = 0;
	for (size_t i = 0; i < n && r == 0; i++)
		r = index_pack(s, d[i].id, err);
	return r;
}

int recover_catch_up(struct store *s, struct err *err)
{
	/* Rows first: a pack that appears in between is then listed, and has no row. */
	auto_free struct pack_row *rows = NULL;
	auto_free uint64_t *ids = NULL;
	size_t nrows = 0, nids = 0;
	int r = index_rows(s->index, &rows, &nrows);
	if (r < 0)
		return err_sys(err, r, "read the index of the store");
	r = store_list_packs(s, &ids, &nids, err);
	for (size_t i = 0; r == 0 && i < nrows; i++)
		r = check_row(s, &rows[i], err);
	size_t n = 0;
	for (size_t i = 0; i < nids; i++)
		if (!nrows || !bsearch(&ids[i], rows, nrows, sizeof(*rows), array_by_u64))
			ids[n++] = ids[i];
	return r < 0 ? r : index_unknown(s, ids, n, err);
}

/* ---- opening and closing ---- */

/* Is the index that lies there to be trusted, by its state? 1, 0, or 2: if it proves whole. Sees
 * too if power was lost. */
static int trust(struct store *s)
{
	struct index_state st, now = { 0 };
	if (state_read(s, &st) < 0)
		return 0;
	bool same_boot = memcmp(st.boot, s->boot, sizeof(st.boot)) == 0;
	s->power_lost = !st.closed && !same_boot;
	if (faccessat(s->index_fd, "distrust", F_OK, 0) == 0 || data_stat(s, &now) < 0)
		return 0;
	if (!st.closed)
		return same_boot ? 2 : 0;
	if (same_boot && st.size == now.size && st.mtime_ns == now.mtime_ns)
		return 1;
	uint64_t hash;
	return index_hash_file(s->index_path, st.used, &hash) == 0 && hash == st.hash;
}

/* Makes the index anew. Until all packs are in, the state file is missing. */
static int rebuild_flush_locked(struct store *s, struct err *err)
{
	int r = s->io->unlink(s->io->ctx, s->index_fd, "state", 0);
	if (r < 0 && r != -ENOENT)
		return err_sys(err, r, "remove the old index");
	(void)pthread_mutex_lock(&s->dirty_lock);
	s->dirty = true; /* no state is written on the way */
	(void)pthread_mutex_unlock(&s->dirty_lock);
	if (!s->index)
		r = index_open(&s->index, s->index_path, true, err);
	else if ((r = index_reset(s->index)) < 0)
		(void)err_sys(err, r, "remove the old index");
	if (r < 0)
		return r;
	r = recover_catch_up(s, err);
	if (r == 0)
		r = writer_reindex(s, err);
	if (r < 0)
		return err_prefix(err, r, "rebuild the index");
	struct index_state st = { 0 };
	memcpy(st.boot, s->boot, sizeof(st.boot));
	r = state_write(s, &st, true);
	if (r < 0)
		return err_sys(err, r, "write the state of the index");
	(void)s->io->unlink(s->io->ctx, s->index_fd, "distrust", 0); /* or it is made anew again */
	return 0;
}

/* Nobody writes rows of our own packs meanwhile: they would speak for what isn't entered yet. */
static int rebuild(struct store *s, struct err *err)
{
	(void)pthread_mutex_lock(&s->w.flush);
	int r = rebuild_flush_locked(s, err);
	(void)pthread_mutex_unlock(&s->w.flush);
	return r;
}

int recover_rebuild(struct store *s, struct err *err)
{
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		int r = -errno;
		/* Changing a lock gives the old one up first. */
		(void)flock(s->lock_fd, LOCK_SH);
		return err_sys(err, r, "other programs use the store");
	}
	int r = rebuild(s, err);
	(void)flock(s->lock_fd, LOCK_SH); /* others wait for shared ones only: it is given */
	return r;
}

int recover_open(struct store *s, bool alone, struct err *err)
{
	load_losses(s);
	int t = alone ? trust(s) : 1;
	if (!t)
		return rebuild(s, err);
	int r = index_open(&s->index, s->index_path, false, err);
	if (r == 0 && t == 2)
		r = index_verify(s->index);
	if (r < 0 && alone)
		return rebuild(s, err);
	if (r < 0)
		return r;
	r = recover_catch_up(s, err);
	return r == -EBADMSG && alone ? rebuild(s, err) : r;
}

static bool is_unsynced(const struct pack_row *row)
{
	return row->synced < row->indexed && !(row->flags & ROW_UNUSABLE);
}

/* Syncs the packs that are indexed further than they are known to be durable. */
static int sync_packs(struct store *s)
{
	auto_free struct pack_row *rows = NULL;
	size_t n = 0, unsynced = 0;
	int r = index_rows(s->index, &rows, &n);
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct pack_file *f;
		if (!is_unsynced(&rows[i]))
			continue;
		unsynced++;
		r = files_get(s, rows[i].id, &f);
		if (r < 0)
			break;
		r = s->io->fdatasync(s->io->ctx, f->fd);
		files_put(s, f);
	}
	if (r == 0 && unsynced > 0) /* their names, all at once */
		r = s->io->fsync(s->io->ctx, s->packs_fd);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (is_unsynced(&rows[i]))
			r = row_note_synced(s, rows[i].id, rows[i].indexed);
	return r;
}

void recover_close(struct store *s)
{
	/* Failing anywhere here leaves a state that says "in use", which is always right. */
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return;
	struct index_state st;
	if (state_read(s, &st) < 0 || st.closed || sync_packs(s) < 0 || index_sync(s->index) < 0 ||
	    index_hash(s->index, &st.used, &st.hash) < 0 || data_stat(s, &st) < 0)
		return;
	memcpy(st.boot, s->boot, sizeof(st.boot));
	st.closed = true;
	(void)state_write(s, &st, true);
}
