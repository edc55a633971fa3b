/* The packs that this process appends to.
 *
 * One pack is open at a time for all sessions of the process, so that their syncs share one
 * fdatasync. A full one waits in a list until it is durable and indexed, is
 * then sealed and let go. Invariants:
 *   - a record is written by one pwrite at the pack's end, and the end moves only after it;
 *   - a record is noted as pending under the same lock, so that all records below the `indexed`
 *     of the row are in the index;
 *   - an entry may be in the index before its record is durable, but whoever relies on it
 *     (a sync of the session that put or hit it) makes it durable first;
 *   - what a failed fdatasync leaves is never relied on: the kernel drops such pages without a
 *     second report, so the pack is cut back to what was durable, and the index with it. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/store/internal.h"

enum {
	FULL_MAX = 2,     /* full packs that wait; then a put syncs and seals them itself */
	FULL_LIMIT = 16,  /* where the index takes nothing, puts end here */
	CREATE_TRIES = 8, /* a new file may be swept away before it is locked */
	/* The kernel is asked to start writing after so many bytes, so that a small save beside a
	 * large import doesn't wait for all of it. */
	WRITE_BACK = 8 << 20,
};

int writer_init(struct store *s)
{
	(void)pthread_mutex_init(&s->w.flush, NULL);
	(void)pthread_mutex_init(&s->w.append, NULL);
	(void)pthread_mutex_init(&s->w.pending_lock, NULL);
	return 0;
}

/* ---- life of a pack ---- */

static struct wpack *wpack_new(uint64_t id, int fd)
{
	struct wpack *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->id = id;
	w->fd = fd;
	atomic_init(&w->users, 1);
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_cond_init(&w->done, NULL);
	return w;
}

void wpack_unuse(struct store *s, struct wpack *w)
{
	if (!w || atomic_fetch_sub(&w->users, 1) != 1)
		return;
	if (w->fd >= 0)
		(void)s->io->close(s->io->ctx, w->fd); /* what matters was synced explicitly */
	(void)pthread_mutex_destroy(&w->lock);
	(void)pthread_cond_destroy(&w->done);
	free(w->toc);
	free(w);
}

static int toc_reserve(struct wpack *w)
{
	if (w->ntoc < w->cap_toc)
		return 0;
	size_t cap = w->cap_toc ? w->cap_toc * 2 : 256;
	struct pack_entry *toc = realloc(w->toc, cap * sizeof(*toc));
	if (!toc)
		return -ENOMEM;
	w->toc = toc;
	w->cap_toc = cap;
	return 0;
}

/* Notes a record of the pack; room was reserved in both tables. */
static void note_record(struct store *s, struct wpack *w, const struct pack_record *r, uint64_t off,
			bool moved)
{
	w->toc[w->ntoc++] = (struct pack_entry){ r->digest, off, r->raw, r->stored };
	w->records++;
	w->raw += r->raw;
	w->stored += pack_record_bytes(r->stored);
	struct pending_entry e = {
		.digest = r->digest,
		.place = { .pack = w->id, .off = off, .raw = r->raw, .stored = r->stored },
		.moved = moved,
	};
	(void)pthread_mutex_lock(&s->w.pending_lock);
	pending_add(&s->w.fresh, &e);
	(void)pthread_mutex_unlock(&s->w.pending_lock);
}

static int reserve_record(struct store *s, struct wpack *w)
{
	int r = toc_reserve(w);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&s->w.pending_lock);
	r = pending_reserve(&s->w.fresh);
	(void)pthread_mutex_unlock(&s->w.pending_lock);
	return r;
}

/* ---- opening one to append to ---- */

int store_lock_pack(struct store *s, uint64_t id)
{
	char name[PACK_NAME_BYTES];
	pack_name(name, id);
	int fd = s->io->open(s->io->ctx, s->packs_fd, name, O_RDWR, 0);
	if (fd < 0)
		return fd;
	int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
	struct stat st;
	if (r == 0)
		r = s->io->fstat(s->io->ctx, fd, &st);
	if (r == 0 && st.st_nlink == 0)
		r = -ENOENT;
	if (r < 0) {
		(void)s->io->close(s->io->ctx, fd); /* nothing was done with it */
		return r;
	}
	return fd;
}

/* Reads the tail that the dead writer didn't index, and cuts what isn't whole. */
static int take_tail(struct store *s, struct wpack *w, uint64_t size)
{
	struct pack_scan sc;
	int r = pack_scan_init(&sc, s->io, w->fd, w->id, w->toc_from, size);
	if (r < 0)
		return r;
	struct pack_record rec;
	uint64_t off, len;
	const uint8_t *stored;
	int k;
	while ((k = pack_scan_next(&sc, &rec, &off, &len, &stored)) != PACK_SCAN_END) {
		if (k != PACK_SCAN_RECORD || rec.kind != PACK_OBJECT)
			continue;
		r = reserve_record(s, w);
		if (r < 0)
			break;
		note_record(s, w, &rec, off, false);
	}
	if (r == 0 && sc.unreadable)
		r = -EIO; /* the disk may yet give what it refuses now: nothing is cut */
	if (r == 0 && sc.objects < size)
		r = s->io->ftruncate(s->io->ctx, w->fd, sc.objects);
	if (r == 0)
		atomic_store(&w->written, sc.objects);
	pack_scan_done(&sc);
	return r;
}

/* May the locked pack be appended to? Fills in what its row says. */
static int take_row(struct store *s, struct wpack *w, uint64_t *size)
{
	struct pack_row row;
	int r = index_row(s->index, w->id, &row);
	if (r < 0)
		return r;
	if (r == 0 || row.flags & (ROW_SEALED | ROW_UNUSABLE))
		return -ENOENT;
	struct stat st;
	r = s->io->fstat(s->io->ctx, w->fd, &st);
	if (r < 0)
		return r;
	uint8_t h[PACK_HEADER_BYTES];
	ssize_t n = io_read_full(s->io, w->fd, h, sizeof(h), 0);
	if (n != PACK_HEADER_BYTES || pack_header_decode(h, w->id) < 0)
		return -EBADMSG;
	w->toc_from = row.indexed < PACK_HEADER_BYTES ? PACK_HEADER_BYTES : row.indexed;
	if ((uint64_t)st.st_size < w->toc_from || w->toc_from % PACK_ALIGN)
		return -EBADMSG;
	*size = (uint64_t)st.st_size;
	w->records = row.records;
	w->raw = row.raw;
	w->stored = row.stored;
	w->row_indexed = row.indexed;
	w->row_synced = w->durable = row.synced;
	w->named = row.synced > 0;
	return 0;
}

/* Takes over one pack that a dead writer has left; NULL and an error where it can't be. */
static int take_over(struct store *s, uint64_t id, struct wpack **out)
{
	int fd = store_lock_pack(s, id);
	if (fd < 0)
		return fd;
	struct wpack *w = wpack_new(id, fd);
	if (!w) {
		(void)s->io->close(s->io->ctx, fd); /* nothing was done with it */
		return -ENOMEM;
	}
	uint64_t size = 0;
	int r = take_row(s, w, &size);
	if (r == 0)
		r = take_tail(s, w, size);
	if (r < 0) {
		(void)pthread_mutex_lock(&s->w.pending_lock);
		pending_drop(&s->w.fresh, id, 0); /* what take_tail has noted */
		(void)pthread_mutex_unlock(&s->w.pending_lock);
		wpack_unuse(s, w);
		return r;
	}
	*out = w;
	return 0;
}

static bool has_room(const struct store *s, const struct wpack *w, uint64_t more)
{
	uint64_t end = atomic_load(&w->written);
	return end + more <= s->pack_bytes && w->records < STORE_PACK_OBJECTS;
}

/* Finds a left pack with room; such that have none are put aside to be sealed. */
static struct wpack *take_any(struct store *s, uint64_t more)
{
	struct pack_row *rows = NULL;
	size_t n = 0;
	if (index_rows(s->index, &rows, &n) < 0)
		return NULL; /* a new pack will do */
	struct wpack *found = NULL;
	for (size_t i = 0; i < n && !found && s->w.nfull < FULL_MAX; i++) {
		struct wpack *w;
		if (rows[i].flags & (ROW_SEALED | ROW_UNUSABLE) || take_over(s, rows[i].id, &w) < 0)
			continue;
		if (has_room(s, w, more)) {
			found = w;
		} else {
			w->next = s->w.full;
			s->w.full = w;
			s->w.nfull++;
		}
	}
	free(rows);
	return found;
}

/* A new file under a new name, locked, with its header. */
static int create(struct store *s, struct wpack **out)
{
	uint64_t id;
	do
		random_bytes(&id, sizeof(id));
	while (id == 0);
	char name[PACK_NAME_BYTES];
	pack_name(name, id);
	int fd = s->io->open(s->io->ctx, s->packs_fd, name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	struct wpack *w = wpack_new(id, fd);
	uint8_t h[PACK_HEADER_BYTES];
	pack_header_encode(h, id);
	int r = !w ? -ENOMEM : flock(fd, LOCK_EX | LOCK_NB) < 0 ? -EAGAIN : 0;
	struct stat st;
	if (r == 0)
		r = s->io->fstat(s->io->ctx, fd, &st);
	if (r == 0 && st.st_nlink == 0)
		r = -EAGAIN;
	if (r == 0)
		r = io_write_full(s->io, fd, h, sizeof(h), 0);
	if (r < 0) {
		if (r != -EAGAIN) /* else somebody else took it for a leftover, and removes it */
			(void)s->io->unlink(s->io->ctx, s->packs_fd, name, 0);
		if (w)
			wpack_unuse(s, w);
		else
			(void)s->io->close(s->io->ctx, fd); /* nothing in it is needed */
		return r;
	}
	w->toc_from = PACK_HEADER_BYTES;
	atomic_store(&w->written, PACK_HEADER_BYTES);
	*out = w;
	return 0;
}

/* Makes s->w.cur a pack with room for `more` bytes; under writer.append. */
static int open_current(struct store *s, uint64_t more, struct err *err)
{
	if (s->w.cur && !has_room(s, s->w.cur, more)) {
		if (s->w.nfull >= FULL_LIMIT)
			return err_set(err, -EAGAIN, "full packs wait for the index");
		s->w.cur->next = s->w.full;
		s->w.full = steal_ptr(&s->w.cur);
		s->w.nfull++;
	}
	if (s->w.cur)
		return 0;
	s->w.cur = take_any(s, more);
	int r = 0;
	for (int i = 0; !s->w.cur && i < CREATE_TRIES; i++) {
		r = create(s, &s->w.cur);
		if (r < 0 && r != -EAGAIN && r != -EEXIST)
			break;
	}
	return s->w.cur ? 0 : err_sys(err, r, "make a pack");
}

/* ---- appending ---- */

/* In our lists; under writer.append. */
static struct wpack *find_own(struct store *s, uint64_t id, bool *lost)
{
	*lost = false;
	if (s->w.cur && s->w.cur->id == id)
		return s->w.cur;
	for (struct wpack *w = s->w.full; w; w = w->next)
		if (w->id == id)
			return w;
	for (struct wpack *w = s->w.failed; w; w = w->next)
		if (w->id == id) {
			*lost = true;
			return NULL;
		}
	return NULL;
}

struct wpack *writer_find(struct store *s, uint64_t id, bool *lost)
{
	(void)pthread_mutex_lock(&s->w.append);
	struct wpack *w = find_own(s, id, lost);
	if (w)
		atomic_fetch_add(&w->users, 1);
	(void)pthread_mutex_unlock(&s->w.append);
	return w;
}

/* Has another thread put the same object while this one compressed it? Under writer.append. */
static struct wpack *pending_already(struct store *s, const struct digest *d, uint64_t *end)
{
	(void)pthread_mutex_lock(&s->w.pending_lock);
	const struct pending_entry *e = pending_find(&s->w.fresh, d);
	struct place p = e ? e->place : (struct place){ 0 };
	(void)pthread_mutex_unlock(&s->w.pending_lock);
	bool lost;
	struct wpack *w = p.pack ? find_own(s, p.pack, &lost) : NULL;
	if (w)
		*end = place_end(&p);
	return w;
}

static int append_locked(struct store *s, uint8_t *rec, const struct pack_record *r, bool moved,
			 struct wpack **out, uint64_t *end, bool *written, struct err *err)
{
	struct wpack *w = moved ? NULL : pending_already(s, &r->digest, end);
	*written = !w;
	if (!w) {
		size_t len = (size_t)pack_record_bytes(r->stored);
		int e = open_current(s, len, err);
		if (e < 0)
			return e;
		w = s->w.cur;
		e = reserve_record(s, w);
		if (e < 0)
			return err_sys(err, e, "write an object");
		uint64_t off = atomic_load(&w->written);
		pack_record_place(rec, len, w->id, off);
		e = io_write_full(s->io, w->fd, rec, len, off);
		if (e < 0) {
			/* The next record starts here all the same; this gives the space back. */
			(void)s->io->ftruncate(s->io->ctx, w->fd, off);
			return err_sys(err, e, "write to pack %016" PRIx64, w->id);
		}
		note_record(s, w, r, off, moved);
		atomic_store(&w->written, off + len);
		*end = off + len;
	}
	atomic_fetch_add(&w->users, 1);
	*out = w;
	return 0;
}

static int flush_locked(struct store *s, struct err *err);

/* Keeps what waits in memory bounded; called without locks. */
static int relieve(struct store *s, struct err *err)
{
	(void)pthread_mutex_lock(&s->w.append);
	struct wpack *w = NULL;
	if (s->w.nfull >= FULL_MAX) {
		for (w = s->w.full; w->next; w = w->next)
			;
		atomic_fetch_add(&w->users, 1);
	}
	(void)pthread_mutex_lock(&s->w.pending_lock);
	size_t n = s->w.fresh.n;
	(void)pthread_mutex_unlock(&s->w.pending_lock);
	(void)pthread_mutex_unlock(&s->w.append);
	int r = 0;
	if (w) {
		/* A failed sync strikes the sessions that rely on the pack, when they sync. */
		if (wpack_sync(s, w, atomic_load(&w->written), NULL) == 0)
			r = writer_seal(s, err);
		wpack_unuse(s, w);
	}
	if (r < 0 || n < STORE_FLUSH_AT)
		return r;
	if (n >= STORE_PENDING_MAX)
		r = writer_flush(s, err);
	else if (pthread_mutex_trylock(&s->w.flush) == 0) {
		(void)flush_locked(s, NULL); /* as long as there is room, later will do */
		(void)pthread_mutex_unlock(&s->w.flush);
	}
	return r;
}

int writer_append(struct store *s, uint8_t *rec, const struct pack_record *r, bool moved,
		  struct wpack **w, uint64_t *end, bool *written, struct err *err)
{
	int e = relieve(s, err);
	if (e < 0)
		return e;
	(void)pthread_mutex_lock(&s->w.append);
	e = append_locked(s, rec, r, moved, w, end, written, err);
	(void)pthread_mutex_unlock(&s->w.append);
	if (e == 0 && *written) {
		uint64_t from = (*end - pack_record_bytes(r->stored)) / WRITE_BACK * WRITE_BACK;
		if (*end - from >= WRITE_BACK) /* a hint: whether it works is seen by the sync */
			(void)sync_file_range((*w)->fd, (off_t)from, WRITE_BACK,
					      SYNC_FILE_RANGE_WRITE);
	}
	return e;
}

/* ---- into the index ---- */

int entry_offer(struct index_txn *t, const struct digest *d, const struct place *p, bool moved)
{
	struct place there;
	struct pack_row row;
	int r = moved ? 0 : index_txn_get(t, d, &there);
	if (r < 0)
		return r;
	if (r > 0 && !there.damaged) {
		r = index_txn_row(t, there.pack, &row);
		if (r < 0)
			return r;
		bool later = there.pack == p->pack && there.off < p->off;
		if (r > 0 && !(row.flags & ROW_UNUSABLE) && !later)
			return 0;
	}
	return index_txn_put(t, d, p);
}

struct flush_job {
	const struct pending *entries;
	struct pack_row rows[FULL_LIMIT + FULL_MAX + 1];
	size_t nrows;
};

static int flush_txn(struct index_txn *t, void *ctx)
{
	const struct flush_job *job = ctx;
	int r = 0;
	for (size_t i = 0; r == 0 && i < job->entries->n; i++) {
		const struct pending_entry *e = &job->entries->e[i];
		if (e->place.pack)
			r = entry_offer(t, &e->digest, &e->place, e->moved);
	}
	for (size_t i = 0; r == 0 && i < job->nrows; i++) {
		struct pack_row row, now = job->rows[i];
		r = index_txn_row(t, now.id, &row);
		if (r > 0) { /* others sync it too */
			now.flags = row.flags;
			if (row.synced > now.synced)
				now.synced = row.synced;
		}
		if (r >= 0)
			r = index_txn_row_put(t, &now);
	}
	return r;
}

static void job_add_row(struct flush_job *job, struct wpack *w)
{
	(void)pthread_mutex_lock(&w->lock);
	uint64_t durable = w->durable;
	(void)pthread_mutex_unlock(&w->lock);
	uint64_t end = atomic_load(&w->written);
	if ((w->row_indexed == end && w->row_synced == durable) ||
	    job->nrows == sizeof(job->rows) / sizeof(job->rows[0]))
		return;
	job->rows[job->nrows++] = (struct pack_row){
		.id = w->id,
		.indexed = end,
		.synced = durable,
		.records = w->records,
		.raw = w->raw,
		.stored = w->stored,
	};
}

/* What the rows say now; the packs can't have gone meanwhile, since sealing takes flush. */
static void rows_written(struct store *s, const struct flush_job *job)
{
	(void)pthread_mutex_lock(&s->w.append);
	for (size_t i = 0; i < job->nrows; i++) {
		bool lost;
		struct wpack *w = find_own(s, job->rows[i].id, &lost);
		if (w) {
			w->row_indexed = job->rows[i].indexed;
			w->row_synced = job->rows[i].synced;
		}
	}
	(void)pthread_mutex_unlock(&s->w.append);
}

static int flush_locked(struct store *s, struct err *err)
{
	for (;;) {
		struct flush_job job = { .entries = &s->w.flushing };
		(void)pthread_mutex_lock(&s->w.append);
		(void)pthread_mutex_lock(&s->w.pending_lock);
		/* What an earlier, failed flush has left goes first, and alone: the rows speak
		 * for all that is pending. */
		bool rest = s->w.flushing.n > 0;
		if (!rest) {
			struct pending p = s->w.flushing;
			s->w.flushing = s->w.fresh;
			s->w.fresh = p;
			if (s->w.cur)
				job_add_row(&job, s->w.cur);
			for (struct wpack *w = s->w.full; w; w = w->next)
				job_add_row(&job, w);
		}
		(void)pthread_mutex_unlock(&s->w.pending_lock);
		(void)pthread_mutex_unlock(&s->w.append);
		if (s->w.flushing.n == 0 && job.nrows == 0)
			return 0;
		int r = store_index_write(s, flush_txn, &job);
		if (r < 0)
			return err_sys(err, r, "write the index of the store");
		rows_written(s, &job);
		(void)pthread_mutex_lock(&s->w.pending_lock);
		pending_clear(&s->w.flushing);
		(void)pthread_mutex_unlock(&s->w.pending_lock);
		if (!rest)
			return 0;
	}
}

int writer_flush(struct store *s, struct err *err)
{
	(void)pthread_mutex_lock(&s->w.flush);
	int r = flush_locked(s, err);
	(void)pthread_mutex_unlock(&s->w.flush);
	return r;
}

static int synced_txn(struct index_txn *t, void *ctx)
{
	const struct pack_row *now = ctx;
	struct pack_row row;
	int r = index_txn_row(t, now->id, &row);
	if (r < 0 || (r > 0 && row.synced >= now->synced))
		return r < 0 ? r : 0;
	/* Its writer may have met an error and cut it back meanwhile (abandon_txn). */
	if (r == 0 || row.indexed < now->synced)
		return -EIO;
	row.synced = now->synced;
	return index_txn_row_put(t, &row);
}

int row_note_synced(struct store *s, uint64_t id, uint64_t synced)
{
	return store_index_write(s, synced_txn, &(struct pack_row){ .id = id, .synced = synced });
}

/* ---- durability ---- */

struct abandon_job {
	struct store *s;
	struct wpack *w;
	uint64_t keep; /* set by the transaction */
};

/* The index forgets what may be lost, but not what another process has synced before
 * (row.synced); one that does it later finds `indexed` too low, and its sync fails. */
static int abandon_txn(struct index_txn *t, void *ctx)
{
	struct abandon_job *job = ctx;
	struct wpack *w = job->w;
	struct pack_row row = { .id = w->id };
	int r = index_txn_row(t, w->id, &row);
	if (r < 0)
		return r;
	uint64_t keep = w->durable > row.synced ? w->durable : row.synced;
	if (keep < PACK_HEADER_BYTES)
		keep = PACK_HEADER_BYTES;
	for (size_t i = 0; i < w->ntoc; i++) {
		struct place p;
		if (w->toc[i].off < keep)
			continue;
		int found = index_txn_get(t, &w->toc[i].digest, &p);
		if (found > 0 && p.pack == w->id && p.off == w->toc[i].off)
			found = index_txn_del(t, &w->toc[i].digest);
		if (found < 0)
			return found;
	}
	job->keep = keep;
	if (r == 0)
		return 0;
	if (row.indexed > keep)
		row.indexed = keep;
	return index_txn_row_put(t, &row);
}

static void list_remove(struct wpack **p, const struct wpack *w)
{
	while (*p && *p != w)
		p = &(*p)->next;
	if (*p)
		*p = w->next;
}

/* A sync of the pack has failed: nothing behind `durable` is relied on any more. */
static void abandon(struct store *s, struct wpack *w)
{
	(void)pthread_mutex_lock(&s->w.flush);
	(void)pthread_mutex_lock(&s->w.append);
	bool lost;
	if (find_own(s, w->id, &lost)) {
		if (s->w.cur == w) {
			s->w.cur = NULL;
		} else {
			list_remove(&s->w.full, w);
			s->w.nfull--;
		}
		w->next = s->w.failed;
		s->w.failed = w;
	}
	struct abandon_job job = { .s = s, .w = w, .keep = w->durable };
	/* An older copy of one of the objects may lie in a condemned pack: only reading all
	 * packs finds it. */
	recover_distrust(s);
	if (store_index_write(s, abandon_txn, &job) == 0)
		(void)s->io->ftruncate(s->io->ctx, w->fd, job.keep); /* or the bytes stay, unused */
	(void)pthread_mutex_lock(&s->w.pending_lock);
	pending_drop(&s->w.fresh, w->id, job.keep);
	pending_drop(&s->w.flushing, w->id, job.keep);
	(void)pthread_mutex_unlock(&s->w.pending_lock);
	(void)pthread_mutex_unlock(&s->w.append);
	(void)pthread_mutex_unlock(&s->w.flush);
}

/* One fdatasync by the leader, with w->lock held on entry and exit. */
static void sync_once(struct store *s, struct wpack *w)
{
	w->syncing = true;
	uint64_t target = atomic_load(&w->written);
	bool named = w->named;
	(void)pthread_mutex_unlock(&w->lock);
	int r = s->io->fdatasync(s->io->ctx, w->fd);
	if (r == 0 && !named)
		r = s->io->fsync(s->io->ctx, s->packs_fd);
	(void)pthread_mutex_lock(&w->lock);
	w->syncing = false;
	if (r < 0) {
		w->failed = r;
	} else {
		w->named = true;
		w->durable = target;
	}
	(void)pthread_cond_broadcast(&w->done);
}

int wpack_sync(struct store *s, struct wpack *w, uint64_t end, struct err *err)
{
	bool led_to_failure = false;
	(void)pthread_mutex_lock(&w->lock);
	while (w->durable < end && !w->failed) {
		if (w->syncing) {
			(void)pthread_cond_wait(&w->done, &w->lock);
			continue;
		}
		sync_once(s, w);
		led_to_failure = w->failed != 0;
	}
	int r = w->durable >= end ? 0 : w->failed;
	(void)pthread_mutex_unlock(&w->lock);
	if (led_to_failure)
		abandon(s, w);
	return r < 0 ? err_sys(err, r, "sync pack %016" PRIx64, w->id) : 0;
}

/* ---- sealing ---- */

/* All objects of the pack, in order: those from before this process took it over are read.
 * -EBADMSG: there is damage between them; such a pack stays without a table. */
static int whole_toc(struct store *s, struct wpack *w, struct pack_entry **out, size_t *n)
{
	*out = NULL;
	*n = 0;
	if (w->toc_from <= PACK_HEADER_BYTES)
		return 0;
	struct pack_scan sc;
	int r = pack_scan_init(&sc, s->io, w->fd, w->id, PACK_HEADER_BYTES, w->toc_from);
	if (r < 0)
		return r;
	auto_buf b = { 0 };
	struct pack_record rec;
	uint64_t off, len;
	const uint8_t *stored;
	int k;
	while ((k = pack_scan_next(&sc, &rec, &off, &len, &stored)) == PACK_SCAN_RECORD) {
		struct pack_entry e = { rec.digest, off, rec.raw, rec.stored };
		if (rec.kind == PACK_OBJECT)
			buf_add(&b, &e, sizeof(e));
	}
	pack_scan_done(&sc);
	if (k != PACK_SCAN_END)
		return -EBADMSG;
	if (buf_error(&b) < 0)
		return buf_error(&b);
	*n = b.len / sizeof(**out);
	*out = (struct pack_entry *)(void *)steal_ptr(&b.data);
	return 0;
}

static int sealed_txn(struct index_txn *t, void *ctx)
{
	const struct pack_row *now = ctx;
	struct pack_row row;
	int r = index_txn_row(t, now->id, &row);
	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	row.flags |= ROW_SEALED;
	row.indexed = now->indexed;
	return index_txn_row_put(t, &row);
}

/* Writes the table behind the pack, which is durable and indexed. */
static int seal(struct store *s, struct wpack *w)
{
	auto_free struct pack_entry *all = NULL;
	size_t n = 0;
	int r = whole_toc(s, w, &all, &n);
	if (r < 0)
		return r;
	if (w->ntoc > 0) {
		size_t total = n + w->ntoc;
		struct pack_entry *more = realloc(all, total * sizeof(*more));
		if (!more)
			return -ENOMEM;
		all = more;
		memcpy(all + n, w->toc, w->ntoc * sizeof(*all));
		n = total;
	}
	uint64_t end = atomic_load(&w->written), size;
	r = pack_toc_write(s->io, w->fd, w->id, end, all, n, &size);
	if (r == 0)
		r = store_index_write(s, sealed_txn,
				      &(struct pack_row){ .id = w->id, .indexed = size });
	if (r < 0)
		(void)s->io->ftruncate(s->io->ctx, w->fd, end); /* or it is cut later */
	return r;
}

/* Takes one full pack that is ready out of the list; under writer.flush. */
static struct wpack *next_ready(struct store *s)
{
	(void)pthread_mutex_lock(&s->w.append);
	struct wpack *w = s->w.full;
	for (; w; w = w->next) {
		uint64_t end = atomic_load(&w->written);
		(void)pthread_mutex_lock(&w->lock);
		bool ready = w->durable >= end && w->row_indexed == end && !w->failed;
		(void)pthread_mutex_unlock(&w->lock);
		if (ready)
			break;
	}
	if (w) {
		list_remove(&s->w.full, w);
		s->w.nfull--;
	}
	(void)pthread_mutex_unlock(&s->w.append);
	return w;
}

int writer_seal(struct store *s, struct err *err)
{
	(void)pthread_mutex_lock(&s->w.append);
	bool any = s->w.full != NULL;
	(void)pthread_mutex_unlock(&s->w.append);
	if (!any)
		return 0;
	(void)pthread_mutex_lock(&s->w.flush);
	struct wpack *w;
	int r = flush_locked(s, err);
	while (r == 0 && (w = next_ready(s))) {
		/* Without a table the pack is as good, only slower to read through. */
		(void)seal(s, w);
		(void)flock(w->fd, LOCK_UN);
		wpack_unuse(s, w);
	}
	(void)pthread_mutex_unlock(&s->w.flush);
	return r;
}

void writer_park(struct store *s)
{
	if (pthread_mutex_trylock(&s->w.flush) != 0)
		return; /* somebody is busy with it */
	(void)pthread_mutex_lock(&s->w.append);
	struct wpack *w = s->w.cur;
	bool idle = false;
	if (w) {
		uint64_t end = atomic_load(&w->written);
		(void)pthread_mutex_lock(&w->lock);
		idle = w->durable >= end && w->row_indexed == end && w->row_synced == end;
		(void)pthread_mutex_unlock(&w->lock);
	}
	if (idle) {
		s->w.cur = NULL;
		(void)flock(w->fd, LOCK_UN);
		wpack_unuse(s, w);
	}
	(void)pthread_mutex_unlock(&s->w.append);
	(void)pthread_mutex_unlock(&s->w.flush);
}

int writer_reindex(struct store *s, struct err *err)
{
	(void)pthread_mutex_lock(&s->w.flush);
	(void)pthread_mutex_lock(&s->w.append);
	int r = s->w.cur ? recover_index_locked(s, s->w.cur->fd, s->w.cur->id, err) : 0;
	for (struct wpack *w = s->w.full; w && r == 0; w = w->next)
		r = recover_index_locked(s, w->fd, w->id, err);
	(void)pthread_mutex_unlock(&s->w.append);
	(void)pthread_mutex_unlock(&s->w.flush);
	return r;
}

/* One of ours that isn't durable, with a use for the caller. */
static struct wpack *next_undurable(struct store *s)
{
	(void)pthread_mutex_lock(&s->w.append);
	struct wpack *found = NULL;
	for (struct wpack *w = s->w.cur ? s->w.cur : s->w.full; w && !found;
	     w = w == s->w.cur ? s->w.full : w->next)
		if (w->durable < atomic_load(&w->written))
			found = w;
	if (found)
		atomic_fetch_add(&found->users, 1);
	(void)pthread_mutex_unlock(&s->w.append);
	return found;
}

int writer_sync(struct store *s, struct err *err)
{
	/* What is appended from here on is no business of this call. */
	struct {
		struct wpack *w;
		uint64_t end;
	} todo[FULL_LIMIT + FULL_MAX + 1];
	size_t n = 0;
	(void)pthread_mutex_lock(&s->w.append);
	for (struct wpack *w = s->w.cur ? s->w.cur : s->w.full;
	     w && n < sizeof(todo) / sizeof(todo[0]); w = w == s->w.cur ? s->w.full : w->next) {
		atomic_fetch_add(&w->users, 1);
		todo[n].w = w;
		todo[n++].end = atomic_load(&w->written);
	}
	(void)pthread_mutex_unlock(&s->w.append);
	int r = 0;
	for (size_t i = 0; i < n; i++) {
		if (r == 0)
			r = wpack_sync(s, todo[i].w, todo[i].end, err);
		wpack_unuse(s, todo[i].w);
	}
	return r;
}

static void let_go(struct store *s, struct wpack **list)
{
	while (*list) {
		struct wpack *w = *list;
		*list = w->next;
		wpack_unuse(s, w);
	}
}

void writer_done(struct store *s)
{
	/* Puts that were never synced may vanish, so failures here harm nobody. A pack whose sync
	 * fails is no longer among ours. */
	struct wpack *w;
	while ((w = next_undurable(s))) {
		(void)wpack_sync(s, w, atomic_load(&w->written), NULL);
		wpack_unuse(s, w);
	}
	(void)writer_flush(s, NULL);
	(void)writer_seal(s, NULL);
	let_go(s, &s->w.cur); /* for the next writer to take over */
	let_go(s, &s->w.full);
	let_go(s, &s->w.failed);
	pending_done(&s->w.fresh);
	pending_done(&s->w.flushing);
	(void)pthread_mutex_destroy(&s->w.flush);
	(void)pthread_mutex_destroy(&s->w.append);
	(void)pthread_mutex_destroy(&s->w.pending_lock);
}
