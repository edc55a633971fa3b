/* The packs that this process appends to.
 *
 * One pack is open at a time for all sessions of the process, so that their syncs share one
 * fdatasync. A full one waits in a list until it is durable and indexed, is then sealed and let
 * go. Invariants (writer_check asserts what can be seen of them):
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
#include "fs/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/store/internal.h"

enum {
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

void writer_check(const struct store *s)
{
#ifdef BOUGH_DEBUG
	unsigned n = 0;
	for (struct wpack *w = s->w.full; w; w = w->next, n++)
		assert(w != s->w.cur && atomic_load(&w->users) > 0);
	assert(n == s->w.nfull && n <= WRITER_FULL_LIMIT + WRITER_FULL_MAX);
	const struct wpack *w = s->w.cur;
	if (w) {
		uint64_t end = atomic_load(&w->written);
		assert(end >= PACK_HEADER_BYTES && end % PACK_ALIGN == 0 && w->toc_from <= end);
		assert(w->row_indexed <= end && w->row_synced <= end && w->ntoc <= w->records);
		/* The last record noted ends where the next one starts. */
		if (w->ntoc > 0) {
			const struct pack_entry *e = &w->toc[w->ntoc - 1];
			assert(e->off + pack_record_bytes(e->stored) == end);
		}
	}
#else
	(void)s;
#endif
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
	return array_grow(&w->toc, w->ntoc, &w->cap_toc);
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

int store_lock_file(struct store *s, int fd)
{
	struct stat st;
	int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : s->io->fstat(s->io->ctx, fd, &st);
	if (r < 0)
		return r;
	return st.st_nlink == 0 ? -ENOENT : 0;
}

int store_lock_pack(struct store *s, uint64_t id)
{
	char name[PACK_NAME_BYTES];
	pack_name(name, id);
	int fd = s->io->open(s->io->ctx, s->packs_fd, name, O_RDWR, 0);
	if (fd < 0)
		return fd;
	int r = store_lock_file(s, fd);
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
	for (size_t i = 0; i < n && !found && s->w.nfull < WRITER_FULL_MAX; i++) {
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
	int r = w ? store_lock_file(s, fd) : -ENOMEM;
	if (r == -ENOENT)
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
		if (s->w.nfull >= WRITER_FULL_LIMIT)
			return err_set(err, -EAGAIN, "full packs wait for the index");
		s->w.cur->next = s->w.full;
		s->w.full = steal_ptr(&s->w.cur);
		s->w.nfull++;
	}
	if (s->w.cur)
		return 0;
	int r = recover_mark_used(s);
	if (r < 0)
		return err_sys(err, r, "write the state of the index");
	s->w.cur = take_any(s, more);
	for (int i = 0; !s->w.cur && i < CREATE_TRIES; i++) {
		r = create(s, &s->w.cur);
		if (r < 0 && r != -EAGAIN && r != -EEXIST)
			break;
	}
	return s->w.cur ? 0 : err_sys(err, r, "make a pack");
}

/* ---- appending ---- */

/* In our lists; under writer.append. */
struct wpack *writer_own(struct store *s, uint64_t id, bool *lost)
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
	struct wpack *w = writer_own(s, id, lost);
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
	struct wpack *w = p.pack ? writer_own(s, p.pack, &lost) : NULL;
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

/* Keeps what waits in memory bounded; called without locks. */
static int relieve(struct store *s, struct err *err)
{
	(void)pthread_mutex_lock(&s->w.append);
	struct wpack *w = NULL;
	if (s->w.nfull >= WRITER_FULL_MAX) {
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
		(void)writer_flush_locked(s, NULL); /* as long as there is room, later will do */
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
	writer_check(s);
	e = append_locked(s, rec, r, moved, w, end, written, err);
	writer_check(s);
	(void)pthread_mutex_unlock(&s->w.append);
	if (e == 0 && *written) {
		uint64_t from = (*end - pack_record_bytes(r->stored)) / WRITE_BACK * WRITE_BACK;
		if (*end - from >= WRITE_BACK) /* a hint: whether it works is seen by the sync */
			(void)sync_file_range((*w)->fd, (off_t)from, WRITE_BACK,
					      SYNC_FILE_RANGE_WRITE);
	}
	return e;
}

/* ---- letting go ---- */

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
