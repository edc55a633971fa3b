/* A disk in memory that can lose power: files below one root, for modules that reach the
 * host by `struct io`. What was written and not synced survives a power cut in part: any
 * of its sectors, whichever the seed says. As on the filesystems that Bough runs on, what a
 * file gets after it was made shorter never shows while its being shorter doesn't.
 *
 * A kill is another thing: all that was written stays, the last write perhaps in part. */
#ifndef BOUGH_TESTS_UNIT_SIM_DISK_H
#define BOUGH_TESTS_UNIT_SIM_DISK_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/io.h"

enum { SIM_SECTOR = 512, SIM_FDS = 256, SIM_FILES = 1024 };

struct sim_bytes {
	uint8_t *p;
	size_t len, cap;
};

struct sim_file {
	char *path; /* NULL: not in use */
	bool dir;
	bool name_durable, linked, was_linked; /* was_linked: on the durable disk */
	struct sim_bytes now, safe;            /* what programs see; what is on the platter */
	struct sim_bytes before_cut;           /* the platter before an unsynced ftruncate */
	bool cut;
	uint8_t *dirty; /* a byte for each sector of `now` */
	size_t dirty_len;
	unsigned opens;
};

struct sim {
	struct io io;
	pthread_mutex_t lock;
	struct sim_file files[SIM_FILES];
	int fds[SIM_FDS]; /* index of the file + 1 */
	uint64_t rng;
	uint64_t calls, cut_at; /* the disk is dead from call number cut_at on; 0: never */
	bool dead;
	uint64_t space; /* bytes that pwrite and fallocate may still take */
	uint64_t tear;  /* where a call that isn't finished may end: multiples; 0: anywhere */
};

static inline uint64_t sim_random(uint64_t *rng)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return *rng;
}

/* A test's failing allocation (oom.h) is not for the disk: it asks again. */
static inline void *sim_grow(void *old, size_t n)
{
	void *p = realloc(old, n);
	if (!p)
		p = realloc(old, n);
	if (!p)
		abort();
	return p;
}

static inline void sim_resize(struct sim_bytes *b, size_t n)
{
	if (n > b->cap) {
		size_t cap = b->cap ? b->cap : 4096;
		while (cap < n)
			cap *= 2;
		b->p = sim_grow(b->p, cap);
		b->cap = cap;
	}
	if (n > b->len)
		memset(b->p + b->len, 0, n - b->len);
	b->len = n;
}

static inline void sim_copy(struct sim_bytes *to, const struct sim_bytes *from)
{
	sim_resize(to, from->len);
	if (from->len)
		memcpy(to->p, from->p, from->len);
}

static inline void sim_mark(struct sim_file *f, uint64_t off, uint64_t len)
{
	size_t need = (size_t)((off + len) / SIM_SECTOR + 1);
	if (need > f->dirty_len) {
		f->dirty = sim_grow(f->dirty, need);
		memset(f->dirty + f->dirty_len, 0, need - f->dirty_len);
		f->dirty_len = need;
	}
	for (uint64_t s = off / SIM_SECTOR; len && s <= (off + len - 1) / SIM_SECTOR; s++)
		f->dirty[s] = 1;
}

static inline int sim_find(struct sim *s, const char *path)
{
	for (int i = 0; i < SIM_FILES; i++)
		if (s->files[i].path && s->files[i].linked && !strcmp(s->files[i].path, path))
			return i;
	return -ENOENT;
}

static inline int sim_new(struct sim *s, const char *path, bool dir)
{
	for (int i = 0; i < SIM_FILES; i++) {
		if (s->files[i].path)
			continue;
		size_t n = strlen(path) + 1;
		s->files[i] =
			(struct sim_file){ .path = sim_grow(NULL, n), .dir = dir, .linked = true };
		memcpy(s->files[i].path, path, n);
		return i;
	}
	return -ENOSPC;
}

static inline void sim_wipe(struct sim_file *f)
{
	free(f->path);
	free(f->now.p);
	free(f->safe.p);
	free(f->before_cut.p);
	free(f->dirty);
	*f = (struct sim_file){ 0 };
}

/* Counts a call: -EIO when the disk is dead. */
static inline int sim_step(struct sim *s)
{
	s->calls++;
	if (s->cut_at && s->calls >= s->cut_at)
		s->dead = true;
	return s->dead ? -EIO : 0;
}

static inline struct sim_file *sim_fd(struct sim *s, int fd)
{
	return &s->files[s->fds[fd] - 1];
}

static inline int sim_open_locked(struct sim *s, const char *path, int flags)
{
	int r = sim_step(s);
	if (r < 0)
		return r;
	int i = sim_find(s, path);
	if (i >= 0 && (flags & O_CREAT) && (flags & O_EXCL))
		return -EEXIST;
	if (i < 0 && (flags & O_CREAT))
		i = sim_new(s, path, false);
	if (i < 0)
		return i;
	for (int fd = 0; fd < SIM_FDS; fd++) {
		if (s->fds[fd])
			continue;
		s->fds[fd] = i + 1;
		s->files[i].opens++;
		return fd;
	}
	return -EMFILE;
}

static inline int sim_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	struct sim *s = ctx;
	(void)dirfd, (void)mode;
	pthread_mutex_lock(&s->lock);
	int r = sim_open_locked(s, name, flags);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static inline int sim_close(void *ctx, int fd)
{
	struct sim *s = ctx;
	pthread_mutex_lock(&s->lock);
	struct sim_file *f = sim_fd(s, fd);
	s->fds[fd] = 0;
	if (--f->opens == 0 && !f->linked && !f->was_linked)
		sim_wipe(f);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static inline ssize_t sim_pread(void *ctx, int fd, void *buf, size_t n, uint64_t off)
{
	struct sim *s = ctx;
	pthread_mutex_lock(&s->lock);
	ssize_t r = sim_step(s);
	struct sim_file *f = sim_fd(s, fd);
	if (r == 0 && off < f->now.len) {
		r = (ssize_t)(n < f->now.len - off ? n : f->now.len - off);
		memcpy(buf, f->now.p + off, (size_t)r);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

static inline ssize_t sim_pwrite(void *ctx, int fd, const void *buf, size_t n, uint64_t off)
{
	struct sim *s = ctx;
	pthread_mutex_lock(&s->lock);
	bool was_dead = s->dead;
	ssize_t r = sim_step(s);
	struct sim_file *f = sim_fd(s, fd);
	size_t put = n;
	if (r < 0) /* the call in which it dies may get a part done */
		put = was_dead ? 0 : (size_t)(sim_random(&s->rng) % (n + 1));
	if (r < 0 && s->tear) {
		uint64_t end = (off + put) / s->tear * s->tear;
		put = end > off ? (size_t)(end - off) : 0;
	}
	if (put > s->space)
		put = (size_t)s->space;
	if (put > 0) {
		if (off + put > f->now.len)
			sim_resize(&f->now, (size_t)(off + put));
		memcpy(f->now.p + off, buf, put);
		sim_mark(f, off, put);
		if (s->space != UINT64_MAX)
			s->space -= put;
	}
	if (r == 0)
		r = put > 0 || n == 0 ? (ssize_t)put : -ENOSPC;
	pthread_mutex_unlock(&s->lock);
	return r;
}

static inline void sim_make_safe(struct sim_file *f)
{
	sim_copy(&f->safe, &f->now);
	if (f->dirty_len)
		memset(f->dirty, 0, f->dirty_len);
	f->cut = false;
}

static inline int sim_fsync(void *ctx, int fd)
{
	struct sim *s = ctx;
	pthread_mutex_lock(&s->lock);
	int r = sim_step(s);
	struct sim_file *f = sim_fd(s, fd);
	if (r == 0 && !f->dir)
		sim_make_safe(f);
	size_t n = strlen(f->path);
	for (int i = 0; r == 0 && f->dir && i < SIM_FILES; i++) {
		struct sim_file *g = &s->files[i];
		if (!g->path || strncmp(g->path, f->path, n) != 0 || g->path[n] != '/' ||
		    strchr(g->path + n + 1, '/'))
			continue;
		g->name_durable = g->was_linked = g->linked;
		if (!g->linked && g->opens == 0)
			sim_wipe(g);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

static inline int sim_ftruncate(void *ctx, int fd, uint64_t size)
{
	struct sim *s = ctx;
	pthread_mutex_lock(&s->lock);
	int r = sim_step(s);
	struct sim_file *f = sim_fd(s, fd);
	if (r == 0 && size < f->now.len) {
		if (!f->cut)
			sim_copy(&f->before_cut, &f->safe);
		f->cut = true;
		if (f->safe.len > size)
			sim_resize(&f->safe, (size_t)size);
		for (size_t i = (size_t)size / SIM_SECTOR + 1; i < f->dirty_len; i++)
			f->dirty[i] = 0;
	}
	if (r == 0)
		sim_resize(&f->now, (size_t)size);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static inline int sim_fallocate(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
	struct sim *s = ctx;
	pthread_mutex_lock(&s->lock);
	int r = sim_step(s);
	struct sim_file *f = sim_fd(s, fd);
	if (r == 0 && !(mode & FALLOC_FL_PUNCH_HOLE)) {
		if (len > s->space)
			r = -ENOSPC;
		else if (s->space != UINT64_MAX)
			s->space -= len;
	}
	if (r == 0 && (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) && off < f->now.len) {
		len = off + len > f->now.len ? f->now.len - off : len;
		memset(f->now.p + off, 0, (size_t)len);
		sim_mark(f, off, len);
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

static inline int sim_fstat(void *ctx, int fd, struct stat *st)
{
	struct sim *s = ctx;
	pthread_mutex_lock(&s->lock);
	int r = sim_step(s);
	*st = (struct stat){ .st_size = (off_t)sim_fd(s, fd)->now.len };
	pthread_mutex_unlock(&s->lock);
	return r;
}

static inline int sim_mkdir(void *ctx, int dirfd, const char *name, mode_t mode)
{
	struct sim *s = ctx;
	(void)dirfd, (void)mode;
	pthread_mutex_lock(&s->lock);
	int r = sim_step(s);
	if (r == 0)
		r = sim_find(s, name) >= 0 ? -EEXIST : sim_new(s, name, true);
	pthread_mutex_unlock(&s->lock);
	return r < 0 ? r : 0;
}

static inline int sim_unlink(void *ctx, int dirfd, const char *name, int flags)
{
	struct sim *s = ctx;
	(void)dirfd, (void)flags;
	pthread_mutex_lock(&s->lock);
	int r = sim_step(s);
	if (r == 0)
		r = sim_find(s, name);
	if (r >= 0) {
		struct sim_file *f = &s->files[r];
		f->linked = false;
		if (f->opens == 0 && !f->was_linked)
			sim_wipe(f);
		r = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

static inline void sim_init(struct sim *s, uint64_t seed)
{
	*s = (struct sim){ .rng = seed * 2 + 1, .space = UINT64_MAX };
	pthread_mutex_init(&s->lock, NULL);
	s->io = (struct io){ .ctx = s,
			     .open = sim_open,
			     .close = sim_close,
			     .pread = sim_pread,
			     .pwrite = sim_pwrite,
			     .fdatasync = sim_fsync,
			     .fsync = sim_fsync,
			     .ftruncate = sim_ftruncate,
			     .fallocate = sim_fallocate,
			     .fstat = sim_fstat,
			     .mkdir = sim_mkdir,
			     .unlink = sim_unlink };
}

/* The disk works again; nothing is open. For both kinds of death. */
static inline void sim_restart(struct sim *s)
{
	s->dead = false;
	s->cut_at = 0;
	memset(s->fds, 0, sizeof(s->fds));
	for (int i = 0; i < SIM_FILES; i++) {
		struct sim_file *f = &s->files[i];
		f->opens = 0;
		if (f->path && !f->linked && !f->was_linked)
			sim_wipe(f);
	}
}

static inline void sim_lose_file(struct sim *s, struct sim_file *f)
{
	if (f->cut && sim_random(&s->rng) % 2) { /* not even its being shorter got there */
		sim_copy(&f->safe, &f->before_cut);
	} else {
		size_t size = f->safe.len;
		for (size_t i = 0; i < f->dirty_len; i++) {
			size_t off = i * SIM_SECTOR, end = off + SIM_SECTOR;
			/* Sectors are mostly written page by page. */
			bool kept = i % 8 && sim_random(&s->rng) % 16 ? f->dirty[i] == 2
								      : sim_random(&s->rng) % 2;
			if (i + 1 < f->dirty_len && f->dirty[i + 1] && kept && (i + 1) % 8)
				f->dirty[i + 1] = 2;
			if (!f->dirty[i] || !kept || off >= f->now.len)
				continue;
			end = end < f->now.len ? end : f->now.len;
			if (end > size)
				sim_resize(&f->safe, size = end);
			memcpy(f->safe.p + off, f->now.p + off, end - off);
		}
	}
	sim_copy(&f->now, &f->safe);
	sim_make_safe(f);
}

/* The power goes, and comes back. */
static inline void sim_power_cut(struct sim *s)
{
	for (int i = 0; i < SIM_FILES; i++) {
		struct sim_file *f = &s->files[i];
		if (!f->path)
			continue;
		f->opens = 0;
		bool stays = f->linked == f->was_linked ? f->linked : sim_random(&s->rng) % 2;
		/* Of an old and a new file of one name, one is there. */
		int other = stays && !f->linked ? sim_find(s, f->path) : -1;
		if (other >= 0 && s->files[other].was_linked)
			stays = false;
		else if (other >= 0)
			sim_wipe(&s->files[other]);
		if (!stays) {
			sim_wipe(f);
			continue;
		}
		f->linked = f->was_linked = true;
		if (!f->dir)
			sim_lose_file(s, f);
	}
	sim_restart(s);
}

static inline void sim_done(struct sim *s)
{
	for (int i = 0; i < SIM_FILES; i++)
		sim_wipe(&s->files[i]);
	pthread_mutex_destroy(&s->lock);
}

#endif
