/* A layer's files: descriptors that come and go, data, syncs. */
#include "fs/work/layer_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"

void layer_file_name(char *out, size_t size, uint64_t number)
{
	if (number == LAYER_JOURNAL)
		(void)snprintf(out, size, "journal");
	else if (number == LAYER_LOG)
		(void)snprintf(out, size, "log");
	else if (number == LAYER_FOLDER)
		(void)snprintf(out, size, "its folder");
	else if (number == LAYER_NO_FILE)
		*out = '\0';
	else if (number == SPACE_PACKED)
		(void)snprintf(out, size, "data");
	else
		(void)snprintf(out, size, "f%" PRIx64, number);
}

char *layer_path(const struct layer *l, uint64_t number)
{
	char *path, name[LAYER_FAULT_NAME];
	layer_file_name(name, sizeof(name), number);
	return asprintf(&path, "%s/%s", l->dir, name) < 0 ? NULL : path;
}

static void lock(struct layer *l)
{
	(void)pthread_mutex_lock(&l->files.lock);
}

static void unlock(struct layer *l)
{
	(void)pthread_mutex_unlock(&l->files.lock);
}

/* ---- the list ---- */

static struct layer_file **find(struct layer *l, uint64_t number)
{
	struct layer_file **p = &l->files.list;
	while (*p && ((*p)->number != number || (*p)->gone))
		p = &(*p)->next;
	return p;
}

static struct layer_file *take_out(struct layer *l, struct layer_file **p)
{
	struct layer_file *f = *p;
	*p = f->next;
	l->files.count--;
	return f;
}

static void put_front(struct layer *l, struct layer_file *f)
{
	f->next = l->files.list;
	l->files.list = f;
	l->files.count++;
}

static void close_file(struct layer *l, struct layer_file *f)
{
	(void)l->io->close(l->io->ctx, f->fd); /* nothing of it is dirty, or nobody wants it */
	free(f);
}

/* Closes clean files that nobody uses, beyond the first `keep` of the list. The journal, whose
 * dirt only the commit knows of, is left to the caller. */
static void close_idle(struct layer *l, uint32_t keep)
{
	struct layer_file **p = &l->files.list;
	while (*p) {
		struct layer_file *f = *p;
		if (keep > 0)
			keep--;
		else if (f->users == 0 && !f->dirty && !f->marked && f->number != LAYER_JOURNAL) {
			close_file(l, take_out(l, p));
			continue;
		}
		p = &f->next;
	}
}

/* So many dirty files are open that the one used longest ago must go: it is synced first,
 * since an error of its writeback is told only to descriptors that were open then. */
static void sync_oldest(struct layer *l)
{
	struct layer_file *oldest = NULL;
	for (struct layer_file *f = l->files.list; f; f = f->next)
		if (f->users == 0 && f->dirty && !f->marked && f->number != LAYER_JOURNAL)
			oldest = f;
	if (!oldest)
		return;
	oldest->users++;
	uint64_t mark = oldest->written;
	unlock(l);
	int r = l->io->fdatasync(l->io->ctx, oldest->fd);
	if (r < 0)
		layer_sync_failed(l, oldest->number, r);
	lock(l);
	oldest->users--;
	/* Not before: a commit that begins meanwhile must not take it for synced. */
	if (oldest->written == mark)
		oldest->dirty = false;
	oldest->synced = r < 0 ? oldest->synced : mark;
	close_idle(l, LAYER_FILES_MAX / 2);
}

static int open_file(struct layer *l, uint64_t number, enum layer_open_mode mode, bool *created)
{
	auto_free char *path = layer_path(l, number);
	if (!path)
		return -ENOMEM;
	const struct io *io = l->io;
	bool write = l->writable || number == LAYER_JOURNAL; /* which takes commit frames */
	int fd = io->open(io->ctx, AT_FDCWD, path, write ? O_RDWR : O_RDONLY, 0);
	if (write && (fd == -EROFS || fd == -EACCES) && !l->writable)
		fd = io->open(io->ctx, AT_FDCWD, path, O_RDONLY, 0);
	if (fd != -ENOENT || mode != LAYER_CREATE)
		return fd;
	fd = io->open(io->ctx, AT_FDCWD, path, O_RDWR | O_CREAT, 0600);
	*created = fd >= 0;
	return fd;
}

/* Opens it with the lock held: that is rare, and two threads never open the same file. */
static int open_listed(struct layer *l, uint64_t number, enum layer_open_mode mode,
		       struct layer_file **out)
{
	struct layer_file *f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	bool created = false;
	int fd = open_file(l, number, mode, &created);
	if (fd == -EMFILE || fd == -ENFILE) {
		close_idle(l, 0);
		fd = open_file(l, number, mode, &created);
	}
	if (fd < 0) {
		free(f);
		return fd;
	}
	*f = (struct layer_file){ .number = number, .fd = fd };
	l->files.dir_dirty |= created;
	put_front(l, f);
	*out = f;
	return 0;
}

int layer_file_get(struct layer *l, uint64_t number, enum layer_open_mode mode,
		   struct layer_file **out)
{
	int r = 0;
	lock(l);
	struct layer_file **p = find(l, number), *f = *p;
	if (f && p != &l->files.list) {
		(void)take_out(l, p);
		put_front(l, f);
	} else if (!f) {
		if (l->files.count > LAYER_FILES_IDLE)
			close_idle(l, LAYER_FILES_IDLE);
		if (l->files.count >= LAYER_FILES_MAX)
			sync_oldest(l);
		p = find(l, number); /* the lock may have been given up */
		f = *p;
		if (!f)
			r = open_listed(l, number, mode, &f);
	}
	if (r == 0) {
		f->users++;
		*out = f;
	}
	unlock(l);
	return r;
}

void layer_file_put(struct layer *l, struct layer_file *f)
{
	lock(l);
	assert(f->users > 0);
	if (--f->users == 0 && f->gone) {
		struct layer_file **p = &l->files.list;
		while (*p != f)
			p = &(*p)->next;
		close_file(l, take_out(l, p));
	}
	unlock(l);
}

void layer_files_close(struct layer *l)
{
	layer_forget_ranges(l);
	while (l->files.list) {
		assert(l->files.list->users == 0);
		close_file(l, take_out(l, &l->files.list));
	}
}

static void trim_journal(struct layer *l)
{
	/* What was preallocated behind a sealed journal's end is of no more use. */
	struct layer_file *f;
	if (!layer_is_sealed(l) || !l->writable || l->journal.no_prealloc)
		return;
	if (layer_file_get(l, LAYER_JOURNAL, LAYER_EXISTING, &f) < 0)
		return;
	(void)pthread_mutex_lock(&l->journal.lock);
	if (!l->journal.trimmed) {
		/* Else it only takes room until the layer is removed. */
		(void)l->io->ftruncate(l->io->ctx, f->fd, l->journal.end);
		l->journal.allocated = l->journal.zeroed = l->journal.end;
		l->journal.trimmed = true;
	}
	(void)pthread_mutex_unlock(&l->journal.lock);
	layer_file_put(l, f);
}

void layer_trim(struct layer *l)
{
	(void)pthread_mutex_lock(&l->journal.lock);
	bool trim = layer_is_sealed(l) && !l->journal.trimmed &&
		    l->journal.allocated > l->journal.end;
	(void)pthread_mutex_unlock(&l->journal.lock);
	if (trim)
		trim_journal(l);
}

void layer_idle(struct layer *l)
{
	if (!layer_is_local(l))
		return;
	layer_trim(l);
	bool dirty = layer_is_dirty(l);
	if (!dirty) {
		space_settle(&l->space);
		layer_log_idle(l);
	}
	lock(l);
	close_idle(l, 0);
	struct layer_file **p = find(l, LAYER_JOURNAL);
	if (!dirty && *p && (*p)->users == 0)
		close_file(l, take_out(l, p));
	unlock(l);
}

/* ---- data ---- */

int layer_pread(struct layer *l, uint64_t file, void *buf, size_t n, uint64_t src)
{
	struct layer_file *f;
	if (!l->dir)
		return -EIO; /* a delta has no data files */
	int r = layer_file_get(l, file, LAYER_EXISTING, &f);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	ssize_t got = io_read_full(l->io, f->fd, buf, n, src);
	layer_file_put(l, f);
	if (got < 0)
		return (int)got;
	memset((char *)buf + got, 0, n - (size_t)got);
	return 0;
}

void layer_file_dirty(struct layer *l, struct layer_file *f, uint64_t off, uint64_t len)
{
	lock(l);
	f->dirty = true;
	f->written += len;
	layer_note_range(l, f->number, off, len);
	unlock(l);
}

int layer_pwrite(struct layer *l, uint64_t file, const void *buf, size_t n, uint64_t src)
{
	struct layer_file *f;
	assert(l->writable && !layer_is_sealed(l) && file != LAYER_JOURNAL);
	int r = layer_file_get(l, file, LAYER_CREATE, &f);
	if (r < 0)
		return r;
	r = io_write_full(l->io, f->fd, buf, n, src);
	/* After the bytes and before the caller's record: the commit that covers the record
	 * finds the mark. */
	layer_file_dirty(l, f, src, n);
	layer_file_put(l, f);
	return r;
}

int layer_zero(struct layer *l, uint64_t file, uint64_t n, uint64_t src)
{
	static const char zeros[64 * 1024];
	struct layer_file *f;
	assert(l->writable && !layer_is_sealed(l) && file != LAYER_JOURNAL);
	int r = layer_file_get(l, file, LAYER_CREATE, &f);
	if (r < 0)
		return r;
	uint64_t begin = src, all = n;
	r = l->io->fallocate(l->io->ctx, f->fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, src, n);
	if (r == -EOPNOTSUPP)
		for (r = 0; n > 0 && r == 0;) {
			size_t part = n < sizeof(zeros) ? (size_t)n : sizeof(zeros);
			r = io_write_full(l->io, f->fd, zeros, part, src);
			src += part;
			n -= part;
		}
	layer_file_dirty(l, f, begin, all); /* as above */
	layer_file_put(l, f);
	return r;
}

int layer_adopt(struct layer *l, const struct extent *e, int dir, const char *path)
{
	struct layer_file *f;
	assert(l->writable && !layer_is_sealed(l) && e->file != SPACE_PACKED && e->src == 0);
	auto_free char *own = layer_path(l, e->file);
	if (!own)
		return -ENOMEM;
	int r = l->io->link(l->io->ctx, dir, path, AT_FDCWD, own);
	if (r == -EPERM || r == -EOPNOTSUPP || r == -ENOSYS || r == -EMLINK)
		return -EXDEV;
	if (r < 0)
		return r;
	lock(l);
	l->files.dir_dirty = true;
	unlock(l);
	r = layer_file_get(l, e->file, LAYER_EXISTING, &f);
	struct stat st;
	if (r == 0) {
		r = l->io->fstat(l->io->ctx, f->fd, &st);
		/* Somebody else who takes it over at the same time has seen it alone, too. */
		if (r == 0 && st.st_nlink != 2)
			r = -EMLINK;
		if (r == 0) /* before the caller's record, as in layer_pwrite */
			layer_file_dirty(l, f, 0, e->len);
		layer_file_put(l, f);
	}
	if (r < 0)
		layer_disown(l, e);
	return r;
}

void layer_disown(struct layer *l, const struct extent *e)
{
	layer_unlink_file(l, e->file);
}

/* ---- giving back ---- */

void layer_punch(void *ctx, uint64_t file, uint64_t off, uint64_t len)
{
	struct layer *l = ctx;
	struct layer_file *f;
	if (layer_file_get(l, file, LAYER_EXISTING, &f) < 0)
		return;
	/* Where the host can't, the room comes back with the layer. */
	(void)l->io->fallocate(l->io->ctx, f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off,
			       len);
	layer_file_put(l, f);
}

void layer_unlink_file(void *ctx, uint64_t file)
{
	struct layer *l = ctx;
	auto_free char *path = layer_path(l, file);
	if (path)
		(void)l->io->unlink(l->io->ctx, AT_FDCWD, path, 0); /* as above */
	lock(l);
	struct layer_file **p = find(l, file);
	if (*p && (*p)->users == 0)
		close_file(l, take_out(l, p));
	else if (*p)
		(*p)->gone = true;
	unlock(l);
}

/* ---- syncs ---- */

int layer_sync_dir(struct layer *l, const char *path)
{
	const struct io *io = l->io;
	int fd = io->open(io->ctx, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	int r = io->fsync(io->ctx, fd);
	if (r < 0)
		layer_sync_failed(l, LAYER_FOLDER, r);
	(void)io->close(io->ctx, fd); /* only read */
	return r;
}

static int open_for_sync(void *ctx, uint64_t number)
{
	struct layer *l = ctx;
	struct layer_file *f;
	int r = layer_file_get(l, number, LAYER_EXISTING, &f);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	layer_file_dirty(l, f, 0, 0);
	layer_file_put(l, f);
	return 0;
}

/* The replay knows only that some of the files weren't synced. */
static int mark_all(struct layer *l)
{
	int r = open_for_sync(l, SPACE_PACKED);
	if (r == 0)
		r = space_each_file(&l->space, open_for_sync, l);
	if (r < 0)
		return r;
	lock(l);
	l->files.all_dirty = false;
	unlock(l);
	return 0;
}

/* One file that was dirty when the sync began, in use; NULL: no more. */
static struct layer_file *next_marked(struct layer *l, uint64_t *mark)
{
	lock(l);
	struct layer_file *f = l->files.list;
	while (f && !f->marked)
		f = f->next;
	if (f) {
		f->marked = f->dirty = false; /* a write from here on is the next sync's */
		f->users++;
		*mark = f->written;
	}
	unlock(l);
	return f;
}

/* What nothing led to when a whole commit began is unlinked after it. files.lock is held. */
static bool needless(struct layer *l, struct layer_partial *p, const struct layer_file *f)
{
	return p ? layer_take_late(l, p, f) : space_is_dying(&l->space, f->number);
}

int layer_files_sync(struct layer *l, struct layer_partial *p)
{
	lock(l);
	bool all = l->files.all_dirty;
	unlock(l);
	int r = all ? mark_all(l) : 0;
	if (r < 0)
		return r;
	lock(l);
	for (struct layer_file *f = l->files.list; f; f = f->next)
		f->marked = f->dirty && !f->gone && !needless(l, p, f);
	bool dir = l->files.dir_dirty;
	l->files.dir_dirty = false;
	layer_forget_ranges(l);
	l->files.pending.over = p && p->n > 0;
	unlock(l);
	struct layer_file *f;
	uint64_t mark;
	while ((f = next_marked(l, &mark))) {
		int e = l->io->fdatasync(l->io->ctx, f->fd);
		if (e < 0)
			layer_sync_failed(l, f->number, e);
		else
			layer_file_synced(l, f, mark);
		layer_file_put(l, f);
		r = e < 0 ? e : r;
	}
	if (r == 0 && dir)
		r = layer_sync_dir(l, l->dir);
	if (r < 0 && dir) {
		lock(l);
		l->files.dir_dirty = true;
		unlock(l);
	}
	return r;
}
