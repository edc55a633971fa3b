#include "fs/base/io_power.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/u64map.h"

enum { SECTOR = 512, NONE = 0 };

/* Files are numbered from 1, the root is 1. A number that the host gives again is a new file. */
struct event {
	enum {
		MAKE,   /* file gets the name in dir: made or linked */
		UNLINK, /* the name in dir goes */
		RENAME, /* name in dir to name2 in dir2 */
		SWAP,
		WRITE,
		SIZE,
		ZERO, /* off, len: reads as zeros from here on */
		SYNC,
	} kind;
	uint32_t file, dir, dir2;
	char *name, *name2;
	uint64_t off, len;
	uint8_t *data;
};

struct file {
	uint64_t ino;
	bool is_dir;
};

struct io_power {
	struct io io;
	pthread_mutex_t lock; /* guards all that follows */
	struct event *events;
	size_t nevents, events_cap;
	struct file *files; /* [0] isn't used */
	size_t nfiles, files_cap;
	struct u64map by_ino; /* host's number -> file's number, as a pointer */
	bool failed;          /* out of memory: what was remembered isn't all */
	char stray[256];
};

/* ---- remembering ---- */

static void event_done(struct event *e)
{
	free(e->name);
	free(e->name2);
	free(e->data);
}

static uint32_t add_file(struct io_power *p, uint64_t ino, bool is_dir)
{
	if (array_grow(&p->files, p->nfiles, &p->files_cap) < 0 ||
	    u64map_put(&p->by_ino, ino, (void *)(uintptr_t)p->nfiles) < 0) {
		p->failed = true;
		return NONE;
	}
	p->files[p->nfiles] = (struct file){ .ino = ino, .is_dir = is_dir };
	return (uint32_t)p->nfiles++;
}

static uint32_t file_of(struct io_power *p, const struct stat *st)
{
	return (uint32_t)(uintptr_t)u64map_get(&p->by_ino, st->st_ino);
}

static uint32_t file_of_fd(struct io_power *p, int fd)
{
	struct stat st;
	return fstat(fd, &st) < 0 ? NONE : file_of(p, &st);
}

/* The folder that a name is in, and its last part. */
static uint32_t dir_of(struct io_power *p, int dirfd, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	struct stat st;
	*name = slash ? slash + 1 : path;
	auto_free char *dir = slash == path ? strdup("/")
			      : slash       ? strndup(path, (size_t)(slash - path))
					    : strdup(".");
	if (!dir) {
		p->failed = true;
		return NONE;
	}
	return fstatat(dirfd, dir, &st, 0) < 0 ? NONE : file_of(p, &st);
}

static void stray(struct io_power *p, const char *what)
{
	if (!p->stray[0])
		(void)snprintf(p->stray, sizeof(p->stray), "%s", what);
}

/* The event's names and data are copied. */
static void remember(struct io_power *p, struct event e)
{
	const char *name = e.name, *name2 = e.name2;
	const uint8_t *data = e.data;
	e.name = name ? strdup(name) : NULL;
	e.name2 = name2 ? strdup(name2) : NULL;
	e.data = data ? malloc(e.len ? e.len : 1) : NULL;
	if ((name && !e.name) || (name2 && !e.name2) || (data && !e.data) ||
	    array_grow(&p->events, p->nevents, &p->events_cap) < 0) {
		event_done(&e);
		p->failed = true;
		return;
	}
	if (data)
		memcpy(e.data, data, e.len);
	p->events[p->nevents++] = e;
}

static void remember_data(struct io_power *p, int fd, struct event e)
{
	char path[64], target[200];
	e.file = file_of_fd(p, fd);
	if (e.file != NONE) {
		remember(p, e);
		return;
	}
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = '\0';
	stray(p, target);
}

/* ---- the calls ---- */

static int power_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	struct io_power *p = ctx;
	(void)pthread_mutex_lock(&p->lock);
	struct stat st, before;
	bool there = !(flags & O_CREAT) || fstatat(dirfd, name, &before, 0) == 0;
	int fd = io_host.open(NULL, dirfd, name, flags, mode);
	if (fd >= 0 && !there && fstat(fd, &st) == 0) {
		const char *last;
		uint32_t dir = dir_of(p, dirfd, name, &last);
		if (dir != NONE)
			remember(p, (struct event){ .kind = MAKE,
						    .file = add_file(p, st.st_ino, false),
						    .dir = dir,
						    .name = (char *)last });
		else
			stray(p, name);
	} else if (fd >= 0 && (flags & O_TRUNC)) {
		remember_data(p, fd, (struct event){ .kind = SIZE });
	}
	(void)pthread_mutex_unlock(&p->lock);
	return fd;
}

static int power_close(void *ctx, int fd)
{
	return io_host.close(NULL, fd);
}

static ssize_t power_pread(void *ctx, int fd, void *buf, size_t n, uint64_t off)
{
	return io_host.pread(NULL, fd, buf, n, off);
}

static ssize_t power_pwrite(void *ctx, int fd, const void *buf, size_t n, uint64_t off)
{
	struct io_power *p = ctx;
	(void)pthread_mutex_lock(&p->lock);
	ssize_t r = io_host.pwrite(NULL, fd, buf, n, off);
	if (r > 0)
		remember_data(p, fd,
			      (struct event){ .kind = WRITE,
					      .off = off,
					      .len = (uint64_t)r,
					      .data = (uint8_t *)buf });
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

/* The host's disk isn't asked to sync: nobody's power is going. */
static int power_sync(void *ctx, int fd)
{
	struct io_power *p = ctx;
	(void)pthread_mutex_lock(&p->lock);
	remember_data(p, fd, (struct event){ .kind = SYNC });
	(void)pthread_mutex_unlock(&p->lock);
	return 0;
}

static int power_ftruncate(void *ctx, int fd, uint64_t size)
{
	struct io_power *p = ctx;
	(void)pthread_mutex_lock(&p->lock);
	int r = io_host.ftruncate(NULL, fd, size);
	if (r == 0)
		remember_data(p, fd, (struct event){ .kind = SIZE, .off = size });
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

static int power_fallocate(void *ctx, int fd, int mode, uint64_t off, uint64_t len)
{
	struct io_power *p = ctx;
	(void)pthread_mutex_lock(&p->lock);
	struct stat st = { 0 };
	(void)fstat(fd, &st);
	int r = io_host.fallocate(NULL, fd, mode, off, len);
	if (r == 0 && (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)))
		remember_data(p, fd, (struct event){ .kind = ZERO, .off = off, .len = len });
	if (r == 0 && !(mode & FALLOC_FL_KEEP_SIZE) && off + len > (uint64_t)st.st_size)
		remember_data(p, fd, (struct event){ .kind = SIZE, .off = off + len });
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

static int power_fstat(void *ctx, int fd, struct stat *st)
{
	return io_host.fstat(NULL, fd, st);
}

static int power_mkdir(void *ctx, int dirfd, const char *name, mode_t mode)
{
	struct io_power *p = ctx;
	struct stat st;
	(void)pthread_mutex_lock(&p->lock);
	int r = io_host.mkdir(NULL, dirfd, name, mode);
	const char *last;
	uint32_t dir = r == 0 ? dir_of(p, dirfd, name, &last) : NONE;
	if (dir != NONE && fstatat(dirfd, name, &st, 0) == 0)
		remember(p, (struct event){ .kind = MAKE,
					    .file = add_file(p, st.st_ino, true),
					    .dir = dir,
					    .name = (char *)last });
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

static int power_unlink(void *ctx, int dirfd, const char *name, int flags)
{
	struct io_power *p = ctx;
	(void)pthread_mutex_lock(&p->lock);
	const char *last;
	uint32_t dir = dir_of(p, dirfd, name, &last);
	int r = io_host.unlink(NULL, dirfd, name, flags);
	if (r == 0 && dir != NONE)
		remember(p, (struct event){ .kind = UNLINK, .dir = dir, .name = (char *)last });
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

static int power_rename(void *ctx, int olddir, const char *oldname, int newdir, const char *newname,
			unsigned flags)
{
	struct io_power *p = ctx;
	(void)pthread_mutex_lock(&p->lock);
	const char *from, *to;
	uint32_t dir = dir_of(p, olddir, oldname, &from), dir2 = dir_of(p, newdir, newname, &to);
	int r = io_host.rename(NULL, olddir, oldname, newdir, newname, flags);
	if (r == 0 && dir != NONE && dir2 != NONE)
		remember(p, (struct event){ .kind = flags & RENAME_EXCHANGE ? SWAP : RENAME,
					    .dir = dir,
					    .dir2 = dir2,
					    .name = (char *)from,
					    .name2 = (char *)to });
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

static int power_link(void *ctx, int olddir, const char *oldname, int newdir, const char *newname)
{
	struct io_power *p = ctx;
	struct stat st;
	(void)pthread_mutex_lock(&p->lock);
	const char *to;
	uint32_t dir = dir_of(p, newdir, newname, &to);
	int r = io_host.link(NULL, olddir, oldname, newdir, newname);
	if (r == 0 && dir != NONE && fstatat(newdir, newname, &st, AT_SYMLINK_NOFOLLOW) == 0)
		remember(p, (struct event){ .kind = MAKE,
					    .file = file_of(p, &st),
					    .dir = dir,
					    .name = (char *)to });
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}

struct io_power *io_power_new(const char *root)
{
	struct io_power *p = calloc(1, sizeof(*p));
	struct stat st;
	if (!p)
		return NULL;
	p->io = (struct io){
		.ctx = p,
		.open = power_open,
		.close = power_close,
		.pread = power_pread,
		.pwrite = power_pwrite,
		.fdatasync = power_sync,
		.fsync = power_sync,
		.ftruncate = power_ftruncate,
		.fallocate = power_fallocate,
		.fstat = power_fstat,
		.mkdir = power_mkdir,
		.unlink = power_unlink,
		.rename = power_rename,
		.link = power_link,
	};
	(void)pthread_mutex_init(&p->lock, NULL); /* can't fail with default attributes */
	p->nfiles = 1;
	if (array_grow(&p->files, 0, &p->files_cap) < 0 || stat(root, &st) < 0 ||
	    add_file(p, st.st_ino, true) == NONE) {
		io_power_free(p);
		return NULL;
	}
	return p;
}

void io_power_free(struct io_power *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->nevents; i++)
		event_done(&p->events[i]);
	free(p->events);
	free(p->files);
	u64map_done(&p->by_ino);
	(void)pthread_mutex_destroy(&p->lock);
	free(p);
}

const struct io *io_power_io(struct io_power *p)
{
	return &p->io;
}

uint64_t io_power_now(struct io_power *p)
{
	(void)pthread_mutex_lock(&p->lock);
	uint64_t n = p->nevents;
	(void)pthread_mutex_unlock(&p->lock);
	return n;
}

const char *io_power_stray(struct io_power *p)
{
	return p->failed ? "(out of memory)" : p->stray[0] ? p->stray : NULL;
}

/* ---- what is left ---- */

struct name {
	uint32_t dir, file;
	const char *name; /* of an event */
};

struct after {
	const struct io_power *p;
	uint64_t cut, rng;
	const struct io_power_loss *loss;
	size_t *durable; /* of each file: events before this one are on the disk */
	size_t *kept;    /* of each folder: its events before this one happened */
	struct name *names;
	size_t n, cap;
	char **paths; /* of each file: where it was made; NULL: not yet */
	struct err *err;
};

/* xorshift64*, Vigna 2016. */
static uint64_t rnd(struct after *a)
{
	a->rng ^= a->rng >> 12;
	a->rng ^= a->rng << 25;
	a->rng ^= a->rng >> 27;
	return a->rng * UINT64_C(2685821657736338717);
}

static int no_memory(struct after *a)
{
	return err_no_memory(a->err);
}

static bool in_dir(const struct event *e, uint32_t dir)
{
	return e->kind < WRITE && (e->dir == dir || (e->kind >= RENAME && e->dir2 == dir));
}

/* Says of each file what is on the disk for sure, and of each folder how many of its changes
 * behind that are. */
static void choose(struct after *a)
{
	const struct io_power *p = a->p;
	for (size_t i = 0; i < a->cut; i++)
		if (p->events[i].kind == SYNC)
			a->durable[p->events[i].file] = i + 1;
	for (uint32_t f = 1; f < p->nfiles; f++) {
		if (!p->files[f].is_dir)
			continue;
		size_t open = 0;
		for (size_t i = a->durable[f]; i < a->cut; i++)
			open += in_dir(&p->events[i], f);
		size_t keep = a->loss->what == LOSE_ALL    ? 0
			      : a->loss->what == LOSE_NONE ? open
							   : rnd(a) % (open + 1);
		a->kept[f] = a->durable[f];
		for (size_t i = a->durable[f]; i < a->cut && keep > 0; i++) {
			if (!in_dir(&p->events[i], f))
				continue;
			keep--;
			a->kept[f] = i + 1;
		}
	}
}

/* ---- names ---- */

static struct name *find(struct after *a, uint32_t dir, const char *name)
{
	for (size_t i = 0; i < a->n; i++)
		if (a->names[i].dir == dir && strcmp(a->names[i].name, name) == 0)
			return &a->names[i];
	return NULL;
}

static void unname(struct after *a, uint32_t dir, const char *name)
{
	struct name *x = find(a, dir, name);
	if (x)
		*x = a->names[--a->n];
}

static int put_name(struct after *a, uint32_t dir, const char *name, uint32_t file)
{
	unname(a, dir, name);
	if (array_grow(&a->names, a->n, &a->cap) < 0)
		return no_memory(a);
	a->names[a->n++] = (struct name){ dir, file, name };
	return 0;
}

/* A change of two folders may be in one of them and not yet in the other. */
static int move_name(struct after *a, size_t i)
{
	const struct event *e = &a->p->events[i];
	const struct name *from = find(a, e->dir, e->name), *to = find(a, e->dir2, e->name2);
	uint32_t file = from ? from->file : NONE, other = to ? to->file : NONE;
	bool gone = i < a->kept[e->dir], come = i < a->kept[e->dir2];
	int r = 0;
	if (gone && e->kind == RENAME)
		unname(a, e->dir, e->name);
	else if (gone && other != NONE)
		r = put_name(a, e->dir, e->name, other);
	if (r == 0 && come && file != NONE)
		r = put_name(a, e->dir2, e->name2, file);
	return r;
}

static int apply_names(struct after *a)
{
	for (size_t i = 0; i < a->cut; i++) {
		const struct event *e = &a->p->events[i];
		int r = 0;
		if (e->kind == RENAME || e->kind == SWAP)
			r = move_name(a, i);
		else if (e->kind == MAKE && i < a->kept[e->dir])
			r = put_name(a, e->dir, e->name, e->file);
		else if (e->kind == UNLINK && i < a->kept[e->dir])
			unname(a, e->dir, e->name);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- contents ---- */

struct content {
	uint8_t *data;
	uint64_t size, cap;
};

static int room(struct after *a, struct content *c, uint64_t end)
{
	if (end > c->cap) {
		uint64_t cap = end * 2;
		uint8_t *data = realloc(c->data, cap);
		if (!data)
			return no_memory(a);
		memset(data + c->cap, 0, cap - c->cap);
		c->data = data;
		c->cap = cap;
	}
	return 0;
}

/* A file's changes that weren't synced, and how many of them a sector has seen when it was last
 * written out: of what one sector shows, a later change is never there without the earlier. */
struct open_changes {
	size_t *v, n, cap;
	enum { IN_ORDER, EACH_SECTOR, ALL_OR_NONE } how;
	size_t upto;   /* of sectors IN_ORDER, and of the file's size and holes */
	uint64_t seed; /* of the sectors' own */
};

static size_t sector_upto(const struct open_changes *o, uint64_t sector)
{
	if (o->how == IN_ORDER)
		return o->upto;
	uint64_t x = (sector + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ o->seed;
	x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 32;
	return o->how == EACH_SECTOR ? x % (o->n + 1) : (x & 1) * o->n;
}

/* The j-th of the changes that weren't synced; `o` NULL: one that was. */
static int change(struct after *a, struct content *c, const struct event *e,
		  const struct open_changes *o, size_t j)
{
	bool known = !o || j < o->upto;
	if (e->kind == ZERO) {
		uint64_t end = e->off + e->len < c->cap ? e->off + e->len : c->cap;
		if (known && e->off < end)
			memset(c->data + e->off, 0, end - e->off);
		return 0;
	}
	if (e->kind == SIZE) {
		if (known && e->off < c->cap)
			memset(c->data + e->off, 0, c->cap - e->off);
		if (known)
			c->size = e->off;
		return 0;
	}
	int r = room(a, c, e->off + e->len);
	if (r < 0)
		return r;
	if (known && e->off + e->len > c->size)
		c->size = e->off + e->len;
	for (uint64_t at = 0, n; at < e->len; at += n) {
		n = SECTOR - (e->off + at) % SECTOR;
		n = n < e->len - at ? n : e->len - at;
		if (!o || j < sector_upto(o, (e->off + at) / SECTOR))
			memcpy(c->data + e->off + at, e->data + at, n);
	}
	return 0;
}

static int content_of(struct after *a, uint32_t file, struct content *c)
{
	struct open_changes o = { .v = NULL };
	int r = 0;
	for (size_t i = 0; i < a->cut && r == 0; i++) {
		const struct event *e = &a->p->events[i];
		if (e->file != file || e->kind < WRITE || e->kind == SYNC)
			continue;
		if (i < a->durable[file])
			r = change(a, c, e, NULL, 0);
		else if (array_grow(&o.v, o.n, &o.cap) < 0)
			r = no_memory(a);
		else
			o.v[o.n++] = i;
	}
	if (a->loss->what == LOSE_SOME) {
		o.how = rnd(a) % 3;
		o.upto = rnd(a) % (o.n + 1);
		o.seed = rnd(a);
	} else if (a->loss->what == LOSE_NONE) {
		o.upto = o.n;
	}
	for (size_t j = 0; j < o.n && r == 0; j++)
		r = change(a, c, &a->p->events[o.v[j]], &o, j);
	free(o.v);
	/* What was written behind an end that isn't known isn't there. */
	if (r == 0)
		r = room(a, c, c->size);
	return r;
}

static int make_file(struct after *a, uint32_t file, const char *path)
{
	struct content c = { 0 };
	int r = content_of(a, file, &c);
	auto_fd fd = r < 0 ? -1 : open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (r == 0 && (fd < 0 || ftruncate(fd, (off_t)c.size) < 0))
		r = err_sys(a->err, -errno, "make %s", path);
	for (uint64_t at = 0; r == 0 && at < c.size; at += 4096) {
		static const uint8_t zeros[4096];
		size_t n = c.size - at < 4096 ? (size_t)(c.size - at) : 4096;
		if (memcmp(c.data + at, zeros, n) != 0 &&
		    pwrite(fd, c.data + at, n, (off_t)at) != (ssize_t)n)
			r = err_sys(a->err, -EIO, "write %s", path);
	}
	free(c.data);
	return r;
}

static int make_dir(struct after *a, uint32_t dir, const char *path)
{
	if (mkdir(path, 0700) < 0)
		return err_sys(a->err, -errno, "make %s", path);
	for (size_t i = 0; i < a->n; i++) {
		const struct name *x = &a->names[i];
		if (x->dir != dir || x->file == NONE)
			continue;
		char *at;
		if (asprintf(&at, "%s/%s", path, x->name) < 0)
			return no_memory(a);
		int r = 0;
		if (a->paths[x->file] && a->p->files[x->file].is_dir)
			r = 0; /* moved, and both places are on the disk: one is enough */
		else if (a->paths[x->file])
			r = link(a->paths[x->file], at) < 0 ? err_sys(a->err, -errno, "%s", at) : 0;
		else if (a->p->files[x->file].is_dir)
			r = make_dir(a, x->file, at);
		else
			r = make_file(a, x->file, at);
		if (a->paths[x->file])
			free(at);
		else
			a->paths[x->file] = at;
		if (r < 0)
			return r;
	}
	return 0;
}

int io_power_make(struct io_power *p, uint64_t cut, const struct io_power_loss *loss,
		  const char *dir, struct err *err)
{
	(void)pthread_mutex_lock(&p->lock);
	struct after a = { .p = p, .cut = cut, .loss = loss, .err = err };
	a.rng = (loss->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (cut + 1);
	a.durable = calloc(p->nfiles, sizeof(*a.durable));
	a.kept = calloc(p->nfiles, sizeof(*a.kept));
	a.paths = calloc(p->nfiles, sizeof(*a.paths));
	int r = a.durable && a.kept && a.paths ? 0 : no_memory(&a);
	if (r == 0) {
		choose(&a);
		r = apply_names(&a);
	}
	if (r == 0)
		r = make_dir(&a, 1, dir);
	for (size_t i = 0; a.paths && i < p->nfiles; i++)
		free(a.paths[i]);
	free(a.paths);
	free(a.durable);
	free(a.kept);
	free(a.names);
	(void)pthread_mutex_unlock(&p->lock);
	return r;
}
