#include "tools/bough/again.h"

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/have.h"
#include "fs/base/rfc3339.h"
#include "tools/bough/json.h"
#include "tools/bough/remote.h"

enum {
	RECORD_MAX = 32 * 1024,
	KEPT_S = 7 * 24 * 60 * 60, /* then nobody comes back to it */
	LOCK_TRIES = 40,           /* of 50 ms: what a killed copy leaves lets go of it */
	TICK_NS = 10000000,        /* the kernel's clock for files: a step is 10 ms at most */
	LINE_MAX_BYTES = 64 * 1024,
	LIST_MAX = 200 << 20, /* what doesn't fit is sent again */
};

/* ---- times ---- */

struct timespec again_now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_REALTIME, &t);
	return t;
}

struct timespec again_before(const struct timespec *t)
{
	struct timespec b = *t;
	b.tv_nsec -= TICK_NS;
	if (b.tv_nsec < 0) {
		b.tv_nsec += 1000000000;
		b.tv_sec--;
	}
	return b;
}

/* ---- the record: texts, each ended by a NUL ---- */

enum { FIELDS = 5 }; /* key, "there" or "", sides, source_at, target_at */

static bool parse(struct again *a, const char *data, size_t n)
{
	const char *f[FIELDS];
	size_t at = 0;
	for (unsigned i = 0; i < FIELDS; i++) {
		const char *end = memchr(data + at, '\0', n - at);
		if (!end)
			return false;
		f[i] = data + at;
		at = (size_t)(end - data) + 1;
	}
	if (at != n || strcmp(f[0], a->key) != 0 || rfc3339_parse(f[3], &a->source_at) < 0 ||
	    rfc3339_parse(f[4], &a->target_at) < 0)
		return false;
	a->sides = strdup(f[2]);
	a->there = *f[1];
	return a->sides;
}

static void take_record(struct again *a)
{
	auto_free char *data = malloc(RECORD_MAX);
	ssize_t n = data ? pread(a->fd, data, RECORD_MAX, 0) : 0;
	a->found = n > 0 && n < RECORD_MAX && parse(a, data, (size_t)n);
	if (!a->found)
		again_forget(a);
}

void again_forget(struct again *a)
{
	free(a->sides);
	a->sides = NULL;
	a->found = a->there = false;
}

void again_note(struct again *a)
{
	char source[RFC3339_SIZE], target[RFC3339_SIZE];
	auto_buf b = { 0 };
	const char *const f[FIELDS] = { a->key ? a->key : "", a->there ? "there" : "", a->sides,
					rfc3339_text(source, &a->source_at),
					rfc3339_text(target, &a->target_at) };
	if (a->fd < 0)
		return;
	for (unsigned i = 0; i < FIELDS; i++)
		buf_add(&b, f[i], strlen(f[i]) + 1);
	/* Short: it is there as a whole, or in a case of need not at all. */
	if (buf_error(&b) < 0 || ftruncate(a->fd, 0) < 0 ||
	    pwrite(a->fd, b.data, b.len, 0) != (ssize_t)b.len)
		again_end(a);
}

void again_end(struct again *a)
{
	if (a->fd < 0)
		return;
	(void)unlink(a->file); /* one that stays is found not to fit, or grows old */
	cleanup_close(&a->fd);
	a->fd = -1;
}

void again_close(struct again *a)
{
	struct stat st;
	if (a->fd >= 0 && fstat(a->fd, &st) == 0 && st.st_size == 0)
		again_end(a); /* it never began */
	cleanup_close(&a->fd);
	a->fd = -1;
	again_forget(a);
	free(a->file);
	free(a->key);
	a->file = a->key = NULL;
}

/* ---- where it lies ---- */

static char *folder(void)
{
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int n = xdg && xdg[0] == '/'     ? asprintf(&path, "%s/bough/cp", xdg)
		: home && home[0] == '/' ? asprintf(&path, "%s/.local/state/bough/cp", home)
					 : -1;
	if (n < 0)
		return NULL;
	for (char *p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		(void)mkdir(path, 0700); /* it may be there */
	}
	(void)mkdir(path, 0700);
	return path;
}

static void sweep(const char *path)
{
	auto_dir *d = opendir(path);
	const struct dirent *e;
	struct stat st;
	while (d && (e = readdir(d)))
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode) && st.st_mtime + KEPT_S < time(NULL))
			(void)unlinkat(dirfd(d), e->d_name, 0); /* the next one looks again */
}

static void add_side(struct buf *b, const struct place *p)
{
	auto_free char *real = p->name ? NULL : realpath(p->path, NULL);
	auto_free char *here = p->name || p->path[0] == '/' ? NULL : getcwd(NULL, 0);
	if (p->name)
		buf_printf(b, "%s:%s\n", p->name, p->path);
	else if (real)
		buf_printf(b, "%s\n", real);
	else
		buf_printf(b, "%s/%s\n", here ? here : "", p->path);
}

/* Without following a link, and locked; what a killed copy left behind lets go of it soon. */
static int open_locked(const char *file)
{
	struct stat st, named;
	auto_fd fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	for (int i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return fstat(fd, &st) == 0 && stat(file, &named) == 0 &&
					       st.st_ino == named.st_ino
				       ? steal_fd(&fd)
				       : -EAGAIN; /* the copy that had it is whole now */
		(void)usleep(50000);
	}
	return -EBUSY;
}

/* FNV-1a: two keys of one value share a file in turn, and the key in it tells. */
static uint64_t hash_of(const char *text)
{
	uint64_t h = 0xcbf29ce484222325;
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3;
	return h;
}

void again_open(struct again *a, const struct cli *cli, const struct place *from,
		const struct place *to)
{
	auto_buf key = { 0 };
	auto_free char *dir = folder();
	buf_printf(&key, "%s\n", cli->remote ? remote_host(cli->remote) : cli->root);
	add_side(&key, from);
	add_side(&key, to);
	buf_u8(&key, 0);
	*a = (struct again)AGAIN_NONE;
	if (buf_error(&key) < 0 || !dir)
		return;
	a->key = (char *)steal_ptr(&key.data);
	if (asprintf(&a->file, "%s/%016llx", dir, (unsigned long long)hash_of(a->key)) < 0) {
		a->file = NULL;
		return;
	}
	sweep(dir);
	a->fd = open_locked(a->file);
	if (a->fd < 0)
		a->fd = -1; /* another one is copying the same: this one stands for itself */
	else
		take_record(a);
}

/* ---- what is there ---- */

/* One line of a listing: an entry, or what stands around them. */
static void add_entry(const struct again *a, char *line, size_t len, struct buf *out)
{
	struct timespec made;
	len -= len > 0 && line[len - 1] == ',';
	auto_json json_t *e = len > 1 && line[0] == '{' && line[len - 1] == '}'
				      ? json_loadb(line, len, 0, NULL)
				      : NULL;
	struct have_file f = { .path = get_text(e, "name"),
			       .mode = (mode_t)strtoul(get_text(e, "mode"), NULL, 8),
			       .size = (uint64_t)get_int(e, "size") };
	if (e && *f.path && strcmp(get_text(e, "type"), "file") == 0 &&
	    rfc3339_parse(get_text(e, "created_at"), &made) == 0 &&
	    rfc3339_parse(get_text(e, "modified_at"), &f.mtime) == 0 &&
	    have_time_order(&made, &a->target_at) >= 0 && out->len < LIST_MAX)
		have_put(out, &f);
}

int again_list_remote(const struct again *a, struct cli *cli, const struct place *dst,
		      struct buf *out, struct err *err)
{
	struct http *h = NULL;
	const char *line;
	size_t len;
	auto_target rest = place_target("/files", dst->path, NULL);
	target_query(&rest, "recursive", "1");
	buf_reset(out);
	int r = api_stream_of(cli, dst->name, KIND_WORKSPACE | KIND_SANDBOX, &rest, NULL, &h, err);
	while (r == 0 && (r = http_read_line(h, LINE_MAX_BYTES, &line, &len, err)) > 0) {
		add_entry(a, (char *)(uintptr_t)line, len, out);
		r = 0;
	}
	if (r < 0 && h)
		r = api_stream_error(cli, h, r, err);
	http_free(h);
	if (r == 0 && buf_error(out) < 0)
		r = err_no_memory(err);
	return r;
}

/* One that was made since. Its ctime wouldn't tell: an older file's changes when another name of it
 * goes. */
static bool add_host_file(const struct again *a, const char *path, struct have_file *f)
{
	struct statx st;
	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st) < 0 ||
	    !(st.stx_mask & STATX_BTIME) || !S_ISREG(st.stx_mode))
		return false;
	const struct timespec made = { st.stx_btime.tv_sec, st.stx_btime.tv_nsec };
	f->mode = st.stx_mode;
	f->size = st.stx_size;
	f->mtime = (struct timespec){ st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec };
	return have_time_order(&made, &a->target_at) >= 0;
}

int again_list_host(const struct again *a, const char *path, struct buf *out, struct err *err)
{
	char *const top[] = { (char *)(uintptr_t)path, NULL };
	size_t skip = strlen(path);
	buf_reset(out);
	FTS *walk = fts_open(top, FTS_PHYSICAL | FTS_NOCHDIR | FTS_NOSTAT, NULL);
	if (!walk)
		return err_sys(err, -errno, "look at %s", path);
	for (const FTSENT *e; (e = fts_read(walk));) {
		struct have_file f = { .path = e->fts_path + skip };
		bool file = e->fts_info == FTS_NSOK || e->fts_info == FTS_F;
		f.path += strspn(f.path, "/");
		if (file && out->len < LIST_MAX && add_host_file(a, e->fts_path, &f))
			have_put(out, &f);
	}
	(void)fts_close(walk); /* only read */
	return buf_error(out) < 0 ? err_no_memory(err) : 0;
}

size_t again_count(const struct buf *list)
{
	size_t n = 0;
	for (size_t i = 0; i < list->len; i++)
		n += list->data[i] == '\0';
	return n;
}
