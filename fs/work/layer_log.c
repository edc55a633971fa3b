/* The log of fsyncs: an fsync of little puts what isn't on the disk yet, the journal's end and the
 * bytes of data files, into one file that is written over and over, and so is one sync of the host
 * that has nothing to note but the bytes.
 *
 * 1. Records follow one commit of the journal, their base, and each other. The next whole commit
 *    makes them all dead, since it is durable and has another number; then the log begins anew.
 * 2. A place is freed, unshared or unlinked by whole commits only. So wherever a power loss cuts
 *    the records, no place that one of them writes to is meanwhile somebody else's.
 * 3. Who opens the layer in another boot carries them out first and makes a whole commit of them,
 *    before anybody reads or writes. Until that commit is durable it can be done again.
 * 4. In the same boot they count for nothing: the cache of the host's kernel has it all, and newer.
 * 5. No record is written where a folder must be synced as well, by a sealed layer, or after
 *    anything failed since the last whole commit. */
#include "fs/work/layer_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "fs/work/synclog.h"

enum { ZERO_PIECE = 64 << 10 };

/* ---- what isn't on the disk ---- */

void layer_note_range(struct layer *l, uint64_t file, uint64_t off, uint64_t len)
{
	struct layer_pending *p = &l->files.pending;
	if (p->over || len == 0)
		return;
	/* Whole blocks: what is written in place later may reach the disk before a power loss, and
	 * each block shall have all of one or all of the other (invariant 3 of the design). */
	uint64_t last = off + len + LAYER_BLOCK - 1;
	off -= off % LAYER_BLOCK;
	len = last - last % LAYER_BLOCK - off;
	if (!p->range)
		p->range = calloc(LAYER_RANGES, sizeof(*p->range));
	for (uint32_t i = p->n; p->range && i-- > 0;) {
		struct layer_range *r = &p->range[i];
		if (r->file != file || off > r->off + r->len || r->off > off + len)
			continue;
		uint64_t from = off < r->off ? off : r->off;
		uint64_t a = off + len, b = r->off + r->len, end = a > b ? a : b;
		p->bytes += end - from - r->len;
		*r = (struct layer_range){ file, from, end - from };
		p->over = p->bytes > LAYER_LOG_DATA;
		return;
	}
	p->over = !p->range || p->n == LAYER_RANGES || len > LAYER_LOG_DATA - p->bytes;
	if (p->over)
		return;
	p->range[p->n++] = (struct layer_range){ file, off, len };
	p->bytes += len;
}

void layer_forget_ranges(struct layer *l)
{
	free(l->files.pending.range);
	l->files.pending = (struct layer_pending){ 0 };
}

/* ---- writing ---- */

static int add_bytes(struct layer *l, struct buf *b, uint64_t file, uint64_t off, uint64_t len)
{
	struct layer_file *f;
	uint8_t *room = buf_room(b, (size_t)len);
	if (!room)
		return -ENOMEM;
	int r = layer_file_get(l, file, LAYER_EXISTING, &f);
	if (r < 0)
		return r;
	ssize_t n = io_read_full(l->io, f->fd, room, (size_t)len, off);
	layer_file_put(l, f);
	if (n < 0)
		return (int)n;
	memset(room + n, 0, (size_t)len - (size_t)n);
	b->len += (size_t)len;
	return 0;
}

static int build(struct layer *l, struct buf *b, struct synclog_record *rec,
		 const struct layer_pending *p)
{
	if (buf_room(b, SYNCLOG_HEAD))
		b->len = SYNCLOG_HEAD;
	uint64_t journal = rec->end - rec->from;
	int r = journal ? add_bytes(l, b, LAYER_JOURNAL, rec->from, journal) : 0;
	for (uint32_t i = 0; i < p->n && r == 0; i++) {
		const struct layer_range *x = &p->range[i];
		synclog_piece_head(b, x->file, x->off, x->len);
		r = add_bytes(l, b, x->file, x->off, x->len);
	}
	if (r < 0)
		return r;
	rec->pieces = p->n;
	synclog_finish(b, rec, l->journal.salt);
	return buf_error(b);
}

/* Takes what isn't on the disk, if it is little: true. */
static bool take_pending(struct layer *l, struct layer_pending *out)
{
	(void)pthread_mutex_lock(&l->files.lock);
	bool little = !l->files.pending.over && !l->files.dir_dirty && !l->files.all_dirty;
	for (uint32_t i = 0; little && i < l->files.pending.n; i++)
		for (struct layer_file *f = l->files.list; f; f = f->next)
			f->logged |= f->number == l->files.pending.range[i].file;
	if (little) {
		*out = l->files.pending;
		l->files.pending = (struct layer_pending){ 0 };
	}
	(void)pthread_mutex_unlock(&l->files.lock);
	return little;
}

static int write_record(struct layer *l, const struct buf *b)
{
	struct layer_file *f;
	int r = layer_file_get(l, LAYER_LOG, LAYER_EXISTING, &f);
	if (r < 0)
		return 0;
	r = io_write_full(l->io, f->fd, b->data, b->len, l->log.pos);
	if (r < 0) {
		layer_file_put(l, f);
		return 0;
	}
	r = l->io->fdatasync(l->io->ctx, f->fd);
	if (r < 0)
		layer_sync_failed(l, LAYER_LOG, r);
	layer_file_put(l, f);
	return r < 0 ? r : 1;
}

int layer_log_commit(struct layer *l, uint64_t *upto)
{
	struct synclog_record rec = { .number = l->log.count + 1, .base = l->log.base };
	struct layer_pending p = { 0 };
	l->log.asked++;
	/* Whatever prevents it, a whole commit follows, and sets this again. */
	bool usable = l->log.usable && !layer_is_sealed(l);
	l->log.usable = false;
	(void)pthread_mutex_lock(&l->journal.lock);
	memcpy(rec.boot, l->journal.boot, BOOT_ID_BYTES);
	rec.upto = l->journal.last_op;
	rec.from = l->log.from;
	rec.end = l->journal.end;
	rec.seq = l->journal.seq;
	rec.last_ino = l->journal.last_ino;
	usable = usable && !l->journal.cut;
	(void)pthread_mutex_unlock(&l->journal.lock);
	/* Who wrote noted the range before the record that is in these frames. */
	if (!usable || rec.end - rec.from > LAYER_LOG_DATA || !take_pending(l, &p))
		return 0;
	auto_buf b = { 0 };
	int r = build(l, &b, &rec, &p);
	free(p.range);
	if (r < 0 || b.len > SYNCLOG_BYTES - l->log.pos)
		return 0;
	r = write_record(l, &b);
	if (r <= 0)
		return r;
	l->log.usable = true;
	l->log.pos += b.len;
	l->log.from = rec.end;
	l->log.count++;
	*upto = rec.upto;
	return 1;
}

/* ---- making it and letting it go ---- */

static void drop(struct layer *l)
{
	layer_unlink_file(l, LAYER_LOG);
	l->log.there = l->log.ready = l->log.usable = false;
	l->log.asked = 0;
}

static void make(struct layer *l)
{
	static const uint8_t zeros[ZERO_PIECE];
	struct layer_file *f;
	if (layer_file_get(l, LAYER_LOG, LAYER_CREATE, &f) < 0)
		return;
	l->log.there = true;
	/* All of it or nothing: a disk that is nearly full needs what there is for others. */
	int r = l->io->fallocate(l->io->ctx, f->fd, FALLOC_FL_KEEP_SIZE, 0, SYNCLOG_BYTES);
	r = r == -EOPNOTSUPP || r == -ENOSYS ? 0 : r;
	for (uint64_t at = 0; at < SYNCLOG_BYTES && r == 0; at += ZERO_PIECE)
		r = io_write_full(l->io, f->fd, zeros, ZERO_PIECE, at);
	if (r == 0)
		r = l->io->fdatasync(l->io->ctx, f->fd);
	layer_file_put(l, f);
	l->log.ready = r == 0; /* its name is durable once a whole commit has synced the folder */
	if (r < 0)
		drop(l);
}

void layer_log_settle(struct layer *l, uint64_t base, uint64_t end)
{
	if (base) {
		l->log.base = base;
		l->log.from = end;
		l->log.pos = 0;
		l->log.count = 0;
	}
	if (layer_is_sealed(l)) {
		if (l->log.there)
			drop(l);
	} else if (l->log.ready) {
		l->log.usable = l->log.base != 0;
	} else if (l->writable && l->log.asked >= LAYER_LOG_AFTER) {
		make(l);
	}
}

void layer_log_idle(struct layer *l)
{
	(void)pthread_mutex_lock(&l->commit.lock);
	bool drops = !l->commit.running && l->log.ready && l->log.count == 0;
	l->commit.running |= drops;
	(void)pthread_mutex_unlock(&l->commit.lock);
	if (!drops)
		return;
	drop(l);
	(void)pthread_mutex_lock(&l->commit.lock);
	l->commit.running = false;
	(void)pthread_cond_broadcast(&l->commit.wake);
	(void)pthread_mutex_unlock(&l->commit.lock);
}

/* ---- after a boot ---- */

struct log {
	uint8_t *bytes;
	struct synclog_record *records;
	uint32_t n;
};

static void log_done(struct log *g)
{
	free(g->bytes);
	free(g->records);
}

/* The records that follow each other from the beginning on. */
static int read_log(struct layer *l, int fd, struct log *g)
{
	g->bytes = malloc(SYNCLOG_BYTES);
	g->records = calloc(SYNCLOG_BYTES / SYNCLOG_ALIGN, sizeof(*g->records));
	if (!g->bytes || !g->records)
		return -ENOMEM;
	ssize_t n = io_read_full(l->io, fd, g->bytes, SYNCLOG_BYTES, 0);
	if (n < 0)
		return (int)n;
	for (size_t at = 0; at < (size_t)n;) {
		struct synclog_record *r = &g->records[g->n], *first = g->records;
		if (synclog_decode(r, g->bytes + at, (size_t)n - at, l->journal.salt) < 0 ||
		    r->number != g->n + 1 || r->base != first->base ||
		    memcmp(r->boot, first->boot, BOOT_ID_BYTES) != 0 ||
		    (g->n && r->from != r[-1].end) || (l->mends && r->upto > l->believe))
			break;
		at += synclog_bytes(r->len);
		g->n++;
	}
	return 0;
}

static int put_bytes(struct layer *l, uint64_t file, const void *p, uint64_t n, uint64_t off)
{
	struct layer_file *f;
	int r = layer_file_get(l, file, LAYER_EXISTING, &f);
	if (r == -ENOENT && file != LAYER_JOURNAL)
		return 0; /* who it was of is dead; else the replay finds its inode damaged */
	if (r < 0)
		return r;
	if (l->mends && !f->dirty)
		layer_hear_error(l, f);
	r = io_write_full(l->io, f->fd, p, (size_t)n, off);
	f->dirty |= file != LAYER_JOURNAL;
	layer_file_put(l, f);
	return r;
}

/* What fails here can be done again, from the log, so nothing else is to be remembered of it. */
static int sync_written(struct layer *l)
{
	int r = 0;
	for (struct layer_file *f = l->files.list; f && r == 0; f = f->next) {
		r = f->dirty ? l->io->fdatasync(l->io->ctx, f->fd) : 0;
		f->dirty = false;
	}
	return r;
}

static int carry_out(struct layer *l, const struct log *g)
{
	int r = 0;
	for (uint32_t i = 0; i < g->n && r == 0; i++) {
		const struct synclog_record *rec = &g->records[i];
		struct cur c = synclog_pieces(rec);
		struct synclog_piece piece;
		if (rec->end > rec->from)
			r = put_bytes(l, LAYER_JOURNAL, rec->body, rec->end - rec->from, rec->from);
		while (r == 0 && synclog_next(&c, &piece) > 0) {
			r = put_bytes(l, piece.file, piece.bytes, piece.len, piece.off);
			if (r == 0 && l->files.count >= LAYER_FILES_MAX / 2)
				r = sync_written(l);
		}
	}
	return r < 0 ? r : sync_written(l);
}

/* Their data is durable: a commit says so, and ends the records' life. */
static int seal_off(struct layer *l, int fd, const struct synclog_record *last)
{
	struct journal_frame f = { .kind = FRAME_COMMIT,
				   .seq = last->seq + 1,
				   .prev_ino = last->last_ino };
	auto_buf b = { 0 };
	if (buf_room(&b, FRAME_HEAD))
		b.len = FRAME_HEAD;
	buf_u64(&b, last->upto);
	journal_frame_finish(&b, &f, l->journal.salt);
	int r = buf_error(&b);
	if (r == 0)
		r = l->io->ftruncate(l->io->ctx, fd, last->end);
	if (r == 0)
		r = io_write_full(l->io, fd, b.data, b.len, last->end);
	return r < 0 ? r : l->io->fdatasync(l->io->ctx, fd);
}

static int recover(struct layer *l, int journal, const uint8_t boot[BOOT_ID_BYTES], struct log *g)
{
	struct layer_base base[2];
	const struct io *io = l->io;
	auto_free char *path = layer_path(l, LAYER_LOG);
	int fd = path ? io->open(io->ctx, AT_FDCWD, path, O_RDONLY, 0) : -ENOMEM;
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	l->log.there = true;
	/* One process after the other: the second finds nothing left to do. */
	int r = io->flock ? io->flock(io->ctx, fd) : 0;
	if (r == 0)
		r = read_log(l, fd, g);
	if (r == 0 && g->n &&
	    (l->mends || memcmp(g->records->boot, l->journal.boot, BOOT_ID_BYTES) != 0)) {
		const struct synclog_record *first = g->records;
		r = layer_find_bases(l, journal, boot, first->boot, base);
		for (int i = 0; i < 2 && r == 0; i++) {
			if (base[i].seq != first->base || base[i].end != first->from)
				continue;
			r = carry_out(l, g);
			if (r == 0)
				r = seal_off(l, journal, &g->records[g->n - 1]);
			break;
		}
	} else if (r == 0 && g->n) {
		l->log.found_base = g->records->base;
		l->log.found_upto = g->records[g->n - 1].upto;
	}
	(void)io->close(io->ctx, fd); /* only read; and the lock goes with it */
	return r;
}

int layer_log_recover(struct layer *l, int journal, const uint8_t boot[BOOT_ID_BYTES])
{
	struct log g = { 0 };
	bool writable = l->writable;
	l->writable = true; /* also a sealed layer's data are put right */
	int r = recover(l, journal, boot, &g);
	l->writable = writable;
	log_done(&g);
	return r;
}
