/* The packs that this process appends to, on their way to the disk and into the index: flushing,
 * syncing, sealing, and what a failed sync takes with it. The invariants are in writer.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/store/internal.h"

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
		/* What lies behind `indexed` was cut, or couldn't be read: rely_on puts it anew. */
		bool counts = r > 0 && !(row.flags & ROW_UNUSABLE) &&
			      place_end(&there) <= row.indexed;
		if (counts && !later)
			return 0;
	}
	return index_txn_put(t, d, p);
}

struct flush_job {
	const struct pending *entries;
	struct pack_row rows[WRITER_FULL_LIMIT + WRITER_FULL_MAX + 1];
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
		struct wpack *w = writer_own(s, job->rows[i].id, &lost);
		if (w) {
			w->row_indexed = job->rows[i].indexed;
			w->row_synced = job->rows[i].synced;
		}
	}
	(void)pthread_mutex_unlock(&s->w.append);
}

int writer_flush_locked(struct store *s, struct err *err)
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
	int r = writer_flush_locked(s, err);
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

static void wpack_unlist(struct wpack **p, const struct wpack *w)
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
	if (writer_own(s, w->id, &lost)) {
		if (s->w.cur == w) {
			s->w.cur = NULL;
		} else {
			wpack_unlist(&s->w.full, w);
			s->w.nfull--;
		}
		w->next = s->w.failed;
		s->w.failed = w;
	}
	struct abandon_job job = { .s = s, .w = w, .keep = w->durable };
	/* Before a sync of somebody else can pass it by: he may build on what was in it. */
	recover_note_loss(s);
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
	auto_free struct pack_entry *e = NULL;
	enum pack_gaps gaps;
	size_t count;
	int r = pack_scan_objects(s->io, w->fd, w->id, w->toc_from, &e, &count, &gaps);
	if (r < 0)
		return r;
	if (gaps != PACK_GAPLESS)
		return -EBADMSG;
	*out = steal_ptr(&e);
	*n = count;
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
		wpack_unlist(&s->w.full, w);
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
	int r = writer_flush_locked(s, err);
	while (r == 0 && (w = next_ready(s))) {
		/* Without a table the pack is as good, only slower to read through. */
		(void)seal(s, w);
		(void)flock(w->fd, LOCK_UN);
		wpack_unuse(s, w);
	}
	(void)pthread_mutex_unlock(&s->w.flush);
	return r;
}

int writer_reindex(struct store *s, struct err *err)
{
	(void)pthread_mutex_lock(&s->w.append);
	int r = s->w.cur ? recover_index_locked(s, s->w.cur->fd, s->w.cur->id, err) : 0;
	for (struct wpack *w = s->w.full; w && r == 0; w = w->next)
		r = recover_index_locked(s, w->fd, w->id, err);
	(void)pthread_mutex_unlock(&s->w.append);
	return r;
}

int writer_sync(struct store *s, struct err *err)
{
	/* What is appended from here on is no business of this call. */
	struct {
		struct wpack *w;
		uint64_t end;
	} todo[WRITER_FULL_LIMIT + WRITER_FULL_MAX + 1];
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
