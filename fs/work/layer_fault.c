/* What a layer does about a sync that the host's disk failed (layer.h, "a failed sync"). */
#include "fs/work/layer_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "fs/base/cleanup.h"

static const char MAGIC[8] = "BOUGHFLT";
enum {
	NAME_AT = 32,
	CHECK_AT = NAME_AT + LAYER_FAULT_NAME,
	ERRNO_MAX = 4095, /* the kernel's own bound */
};
_Static_assert(CHECK_AT + 8 == LAYER_FAULT_BYTES, "it ends with its check");

/* ---- the file `failed` ---- */

void layer_fault_encode(uint8_t out[LAYER_FAULT_BYTES], const struct layer_fault *f)
{
	memset(out, 0, LAYER_FAULT_BYTES);
	memcpy(out, MAGIC, sizeof(MAGIC));
	le_put64(out + 8, f->upto);
	le_put64(out + 16, (uint64_t)f->good_s);
	le_put32(out + 24, (uint32_t)-f->error);
	memcpy(out + NAME_AT, f->file, strnlen(f->file, LAYER_FAULT_NAME - 1));
	le_put64(out + CHECK_AT, hash_xxh3(out, CHECK_AT, 0));
}

void layer_fault_decode(struct layer_fault *out, const void *data, size_t len)
{
	const uint8_t *p = data;
	*out = (struct layer_fault){ .error = -EIO, .upto = UINT64_MAX };
	if (len != LAYER_FAULT_BYTES || memcmp(p, MAGIC, sizeof(MAGIC)) != 0 ||
	    le_get64(p + CHECK_AT) != hash_xxh3(p, CHECK_AT, 0))
		return;
	uint32_t error = le_get32(p + 24);
	out->error = error > 0 && error <= ERRNO_MAX ? -(int)error : -EIO;
	out->upto = le_get64(p + 8);
	out->good_s = (int64_t)le_get64(p + 16);
	memcpy(out->file, p + NAME_AT, LAYER_FAULT_NAME - 1);
}

static char *fault_path(const struct layer *l)
{
	char *path;
	return asprintf(&path, "%s/failed", l->dir) < 0 ? NULL : path;
}

static int write_fault(const struct layer *l, const struct layer_fault *f)
{
	const struct io *io = l->io;
	uint8_t b[LAYER_FAULT_BYTES];
	auto_free char *path = fault_path(l);
	if (!path)
		return -ENOMEM;
	layer_fault_encode(b, f);
	int fd = io->open(io->ctx, AT_FDCWD, path, O_WRONLY | O_CREAT, 0600);
	if (fd < 0)
		return fd;
	int r = io_write_full(io, fd, b, sizeof(b), 0);
	(void)io->fdatasync(io->ctx, fd); /* after a power loss the journal knows better */
	(void)io->close(io->ctx, fd); /* as above */
	return r;
}

/* 1: there is one; 0; -errno. */
static int read_fault(const struct layer *l, struct layer_fault *out)
{
	const struct io *io = l->io;
	uint8_t b[LAYER_FAULT_BYTES + 1];
	auto_free char *path = fault_path(l);
	if (!path)
		return -ENOMEM;
	int fd = io->open(io->ctx, AT_FDCWD, path, O_RDONLY, 0);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	ssize_t n = io_read_full(io, fd, b, sizeof(b), 0);
	(void)io->close(io->ctx, fd); /* only read */
	if (n < 0)
		return (int)n;
	layer_fault_decode(out, b, (size_t)n);
	return 1;
}

/* ---- failing ---- */

static bool take_fault(struct layer *l, const struct layer_fault *f)
{
	(void)pthread_mutex_lock(&l->commit.lock);
	bool first = !l->commit.fault.error;
	if (first)
		l->commit.fault = *f;
	if (!l->commit.error)
		l->commit.error = f->error;
	(void)pthread_mutex_unlock(&l->commit.lock);
	int none = 0;
	(void)atomic_compare_exchange_strong(&l->broken, &none, -EROFS);
	return first;
}

void layer_sync_failed(struct layer *l, uint64_t number, int error)
{
	struct layer_fault f = { .error = error };
	layer_file_name(f.file, sizeof(f.file), number);
	(void)pthread_mutex_lock(&l->commit.lock);
	f.upto = l->commit.covered ? l->commit.covered : l->commit.before;
	f.good_s = l->commit.good_s;
	(void)pthread_mutex_unlock(&l->commit.lock);
	/* Where not even this can be written, whoever opens the layer next can't either. */
	if (take_fault(l, &f))
		(void)write_fault(l, &f);
}

void layer_fail_with(struct layer *l, const struct layer *below)
{
	struct layer_fault f;
	if (layer_is_local(l) && l != below && layer_fault(below, &f))
		layer_sync_failed(l, LAYER_NO_FILE, f.error);
}

bool layer_fault(const struct layer *l, struct layer_fault *out)
{
	struct layer *m = (struct layer *)l; /* for its lock */
	(void)pthread_mutex_lock(&m->commit.lock);
	if (out)
		*out = l->commit.fault;
	bool failed = l->commit.fault.error != 0;
	(void)pthread_mutex_unlock(&m->commit.lock);
	return failed;
}

int layer_load_fault(struct layer *l, struct err *err)
{
	struct layer_fault f;
	int r = read_fault(l, &f);
	if (r < 0)
		return err_sys(err, r, "read %s/failed", l->dir);
	if (r > 0)
		(void)take_fault(l, &f);
	return 0;
}

int layer_refuses(const struct layer *l)
{
	return atomic_load(&((struct layer *)l)->broken); /* loads take no const before C23 */
}

bool layer_is_marked(const struct io *io, const char *root, const struct layer_id *id,
		     struct layer_fault *out)
{
	const struct layer_options opt = { .io = io, .root = root };
	struct layer *l = layer_new_local(&opt, id);
	bool marked = l && read_fault(l, out) > 0;
	layer_unref(l);
	return marked;
}

int layer_mark(const struct io *io, const char *root, const struct layer_id *id, int error)
{
	const struct layer_options opt = { .io = io, .root = root };
	const struct layer_fault fresh = { .error = error, .upto = UINT64_MAX };
	struct layer_fault f;
	struct layer *l = layer_new_local(&opt, id);
	int r = l ? read_fault(l, &f) : -ENOMEM;
	if (r == 0)
		r = write_fault(l, &fresh);
	layer_unref(l);
	return r < 0 && r != -ENOENT ? r : 0;
}

/* ---- mending ---- */

enum { PIECE = 1 << 20 };

struct mending {
	struct layer *l;
	uint8_t *piece;
	struct buf records; /* of inodes whose content the disk doesn't give any more */
	uint32_t lost;
	uint64_t packed; /* where what extents lead to in the packed file ends */
};

/* Reads what is there, and writes it once more: the kernel may have other bytes in memory than the
 * disk has, and thinks them written. -ENODATA: the disk doesn't give it. */
static int write_again(struct mending *m, struct layer_file *f, uint64_t at, uint64_t n)
{
	const struct layer *l = m->l;
	for (int r = 0; n > 0;) {
		size_t part = n < PIECE ? (size_t)n : PIECE;
		ssize_t got = io_read_full(l->io, f->fd, m->piece, part, at);
		if (got == -EIO)
			return -ENODATA;
		if (got < 0)
			return (int)got;
		r = io_write_full(l->io, f->fd, m->piece, (size_t)got, at);
		if (r < 0 || (size_t)got < part)
			return r; /* behind the file's end everything is zeros */
		at += part;
		n -= part;
	}
	return 0;
}

static int mend_inode(void *ctx, const struct layer_inode *li)
{
	struct mending *m = ctx;
	struct omap_entry e;
	if (li->damaged)
		return 0;
	omap_each(&li->extents, &e) {
		const struct extent *x = e.value.p;
		struct layer_file *f;
		if (x->kind != EXTENT_DATA || x->layer != m->l)
			continue;
		if (x->file == SPACE_PACKED && x->src + x->len > m->packed)
			m->packed = x->src + x->len;
		int r = layer_file_get(m->l, x->file, LAYER_EXISTING, &f);
		if (r < 0)
			return r;
		r = write_again(m, f, x->src, x->len);
		layer_file_dirty(m->l, f, x->src, x->len);
		layer_file_put(m->l, f);
		if (r == -ENODATA) {
			record_damaged(&m->records, li->attr.ino);
			m->lost++;
			return buf_error(&m->records);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int mend_journal(struct mending *m)
{
	struct layer_file *f;
	int r = layer_file_get(m->l, LAYER_JOURNAL, LAYER_EXISTING, &f);
	if (r < 0)
		return r;
	r = write_again(m, f, 0, m->l->journal.end);
	layer_file_put(m->l, f);
	return r == -ENODATA ? -EIO : r;
}

void layer_hear_error(struct layer *l, struct layer_file *f)
{
	/* It says nothing of what is written from here on. */
	(void)l->io->fdatasync(l->io->ctx, f->fd);
}

static int hear_file(void *ctx, uint64_t number)
{
	struct layer *l = ctx;
	struct layer_file *f;
	int r = layer_file_get(l, number, LAYER_EXISTING, &f);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	layer_hear_error(l, f);
	layer_file_put(l, f);
	return 0;
}

static int hear_old_errors(struct layer *l)
{
	int r = hear_file(l, LAYER_JOURNAL);
	if (r == 0)
		r = hear_file(l, SPACE_PACKED);
	return r < 0 ? r : space_each_file(&l->space, hear_file, l);
}

/* What lies behind is in pages that the disk has refused; else the next write would send them
 * again, with its own. */
static int cut_packed(struct mending *m)
{
	struct layer *l = m->l;
	struct layer_file *f;
	struct stat st;
	int r = layer_file_get(l, SPACE_PACKED, LAYER_EXISTING, &f);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = l->io->fstat(l->io->ctx, f->fd, &st);
	if (r == 0 && st.st_size > 0 && (uint64_t)st.st_size > m->packed)
		r = l->io->ftruncate(l->io->ctx, f->fd, m->packed);
	layer_file_dirty(l, f, m->packed, 0);
	layer_file_put(l, f);
	return r;
}

static int mend_files(struct layer *l)
{
	auto_free uint8_t *piece = malloc(PIECE);
	struct mending m = { .l = l, .piece = piece };
	struct journal_frame f = { .kind = FRAME_OP };
	int r = piece && buf_room(&m.records, FRAME_HEAD) ? hear_old_errors(l) : -ENOMEM;
	if (r == 0) {
		m.records.len = FRAME_HEAD;
		r = mend_journal(&m);
	}
	if (r == 0)
		r = layer_each_inode(l, mend_inode, &m);
	if (r == 0)
		r = cut_packed(&m);
	f.records = m.lost;
	if (r == 0 && m.lost > 0)
		r = layer_append(l, &m.records, &f, APPEND_SMALL);
	buf_done(&m.records);
	return r;
}

/* What it was saved as has what is lost now. */
static int drop_saved(struct layer *l)
{
	auto_free char *path = NULL;
	if (asprintf(&path, "%s/saved", l->dir) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	int r = l->io->unlink(l->io->ctx, AT_FDCWD, path, 0);
	return r == -ENOENT ? 0 : r;
}

static int drop_fault(struct layer *l)
{
	auto_free char *path = fault_path(l);
	if (!path)
		return -ENOMEM;
	int r = l->io->unlink(l->io->ctx, AT_FDCWD, path, 0);
	/* If it came back after a power loss, what is committed from now on would go. */
	return r < 0 ? r : layer_sync_dir(l, l->dir);
}

static int mend(struct layer *l, const struct layer_options *opt, struct layer_fault *was,
		struct err *err)
{
	int r = read_fault(l, was);
	if (r <= 0)
		return r < 0 ? err_sys(err, r, "read %s/failed", l->dir) : 0;
	l->writable = true;
	l->mends = true;
	l->believe = was->upto;
	r = layer_load(l, opt, err);
	if (r == 0)
		r = layer_load_space(l, err);
	if (r < 0)
		return r;
	r = drop_saved(l);
	if (r < 0)
		return err_sys(err, r, "remove %s/saved", l->dir);
	l->commit.created = l->files.dir_dirty = l->journal.cut = true;
	r = mend_files(l);
	if (r == 0)
		r = layer_append_commit(l, l->journal.last_op, NULL, &(struct journal_frame){ 0 });
	if (r < 0)
		return err_sys(err, r, "write %s again", l->dir);
	r = layer_commit(l, err);
	if (r < 0)
		return r;
	r = drop_fault(l);
	return r < 0 ? err_sys(err, r, "remove %s/failed", l->dir) : 1;
}

int layer_mend(const struct layer_options *opt, const struct layer_id *id, struct layer_fault *was,
	       struct err *err)
{
	struct layer *l = layer_new_local(opt, id);
	int r = l ? mend(l, opt, was, err) : err_set(err, -ENOMEM, "no memory for a layer");
	layer_unref(l);
	return r;
}
