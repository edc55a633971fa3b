/* The model test: random operations on workspaces in this process, and the same on plain
 * directories of the host; results, errors and, now and then, whole trees must be the same.
 * Forks, seals, saves, flattenings, restores and reopenings happen in between.
 *
 *     model [--ops N] [--seed S] [--from N] [--long] [--dir PATH]
 *
 * A failure prints the seed and the number of the operation. `--seed S --from N` runs the same
 * again, prints each operation from N on and compares the trees after each. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/work/save.h"
#include "fs/work/ws_impl.h"
#include "tests/seed.h"

enum {
	PAIRS = 3, /* workspaces, each with its directory */
	SNAPSHOTS = 4,
	HELD = 8,   /* files held open, perhaps without a name */
	NAMES = 14, /* few, so that names meet */
	DEPTH = 4,
	CONTENT_MAX = 3 << 20, /* bytes; beyond LAYER_BIG_FILE */
	PATH_BYTES = 512,
};

struct pair {
	struct ws *ws; /* NULL: not in use */
	char id[16], dir[96];
	int fd; /* of the directory */
};

struct snapshot {
	bool used;
	struct stack stack; /* saved */
	char dir[96];
};

struct held {
	struct pair *p; /* NULL: not in use */
	uint64_t node;
	int fd;
};

static char base_dir[64];
static struct {
	char root[80];
	struct work *work;
	struct pair pairs[PAIRS];
	struct snapshot snapshots[SNAPSHOTS];
	struct held held[HELD];
	uint64_t seed, rng, check_rng, op, from, ops;
	unsigned serial;
	bool root_user, host_atime;
	uint8_t boot[16];
	char what[2 * PATH_BYTES + 200]; /* the operation under way */
	uint64_t counts[64];
} m;

static char *buf_a, *buf_b; /* CONTENT_MAX + some, each */

/* ---- failing, choosing ---- */

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)fprintf(stderr, "not ok - op %" PRIu64 " of seed %" PRIu64 " (%s): ", m.op, m.seed,
		      m.what);
	(void)vfprintf(stderr, fmt, ap);
	(void)fprintf(stderr, "\nreplay: --seed %" PRIu64 " --from %" PRIu64 "\nkept: %s\n", m.seed,
		      m.op, base_dir);
	va_end(ap);
	exit(1);
}

static uint64_t next(uint64_t *rng)
{
	*rng += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = *rng;
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint64_t rnd(void)
{
	return next(&m.rng);
}

static unsigned below(unsigned n)
{
	return (unsigned)(rnd() % n);
}

/* For what only looks, so that looking more doesn't change the run. */
static unsigned check_below(unsigned n)
{
	return (unsigned)(next(&m.check_rng) % n);
}

static void __attribute__((format(printf, 1, 2))) say(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(m.what, sizeof(m.what), fmt, ap);
	va_end(ap);
	if (m.from && m.op >= m.from)
		(void)printf("%" PRIu64 ": %s\n", m.op, m.what), (void)fflush(stdout);
}

/* Both sides of one operation; `mine` 0 or more and -errno. */
static bool same(int64_t mine, int64_t host)
{
	if (mine != host && !(mine >= 0 && host >= 0))
		fail("workspace says %s (%" PRId64 "), host says %s (%" PRId64 ")",
		     mine < 0 ? strerror((int)-mine) : "ok", mine,
		     host < 0 ? strerror((int)-host) : "ok", host);
	return mine >= 0;
}

static int err_of(int r)
{
	return r < 0 ? -errno : r;
}

static const struct caller root_caller;

/* ---- places ---- */

/* A directory on both sides, and a name in it. */
struct place {
	struct pair *p;
	uint64_t dir; /* node, with a reference; 0: none */
	int fd;       /* -1: none */
	int error;    /* of the way there, the same on both sides */
	char path[PATH_BYTES], name[32];
	size_t len;
};

static void place_done(struct place *pl)
{
	if (pl->dir)
		ws_forget(pl->p->ws, pl->dir, 1);
	if (pl->fd >= 0)
		(void)close(pl->fd);
}

#define auto_place __attribute__((cleanup(place_done))) struct place

static void pick_name(char *out)
{
	unsigned n = below(NAMES);
	/* A long one now and then, and bytes that are no UTF-8. */
	if (n == 0)
		(void)snprintf(out, 32, "long-%c%c\xff\xfe name", 'a' + below(3), 'a' + below(3));
	else
		(void)snprintf(out, 32, "%c%u", "abcd"[below(4)], n % 4);
}

static int lookup_dir(struct pair *p, uint64_t *node, const char *name)
{
	struct entry e;
	int r = ws_lookup(p->ws, *node, name, strlen(name), &e);
	if (*node != 1)
		ws_forget(p->ws, *node, 1);
	*node = r < 0 ? 0 : e.node;
	if (r == 0 && !S_ISDIR(e.attr.mode)) {
		ws_forget(p->ws, e.node, 1);
		*node = 0;
		r = -ENOTDIR;
	}
	return r;
}

static void pick_place(struct place *pl, struct pair *p)
{
	*pl = (struct place){ .p = p, .dir = 1, .fd = -1 };
	struct stat st;
	size_t len = 0;
	for (unsigned depth = below(DEPTH); depth > 0; depth--) {
		char name[32] = "";
		/* Mostly ways that exist. */
		for (unsigned tries = 0; tries < 6; tries++) {
			pick_name(name);
			(void)snprintf(pl->path + len, sizeof(pl->path) - len, "%s%s",
				       len ? "/" : "", name);
			if (fstatat(p->fd, pl->path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			    S_ISDIR(st.st_mode))
				break;
		}
		len = strlen(pl->path);
		if (pl->error == 0)
			pl->error = lookup_dir(p, &pl->dir, name);
	}
	if (pl->dir == 1)
		pl->dir = 0; /* no reference; see place_dir */
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
				.resolve = RESOLVE_NO_SYMLINKS };
	pl->fd = (int)syscall(SYS_openat2, p->fd, len ? pl->path : ".", &how, sizeof(how));
	int host = pl->fd < 0 ? (errno == ELOOP ? -ENOTDIR : -errno) : 0;
	(void)same(pl->error, host);
	pl->error = host;
	pick_name(pl->name);
	pl->len = strlen(pl->name);
}

static uint64_t place_dir(const struct place *pl)
{
	return pl->dir ? pl->dir : 1;
}

static struct pair *pick_pair(void)
{
	struct pair *p;
	do
		p = &m.pairs[below(PAIRS)];
	while (!p->ws);
	return p;
}

/* The inode at the place: both sides agree that it is there, and on what it is. */
static bool target(const struct place *pl, struct entry *e, struct stat *st)
{
	int r = ws_lookup(pl->p->ws, place_dir(pl), pl->name, pl->len, e);
	int h = err_of(fstatat(pl->fd, pl->name, st, AT_SYMLINK_NOFOLLOW));
	if (!same(r, h))
		return false;
	if ((e->attr.mode & S_IFMT) != (st->st_mode & S_IFMT))
		fail("type %o, host %o", e->attr.mode, st->st_mode);
	return true;
}

/* ---- comparing ---- */

static void compare_attr(const char *path, const struct attr *a, const struct stat *st)
{
	if (a->mode != st->st_mode)
		fail("%s: mode %o, host %o", path, a->mode, st->st_mode);
	if (a->uid != st->st_uid || a->gid != st->st_gid)
		fail("%s: owner %u:%u, host %u:%u", path, a->uid, a->gid, st->st_uid, st->st_gid);
	if (a->nlink != st->st_nlink)
		fail("%s: nlink %u, host %u", path, a->nlink, (unsigned)st->st_nlink);
	if (!S_ISDIR(a->mode) && a->size != (uint64_t)st->st_size)
		fail("%s: size %" PRIu64 ", host %" PRIu64, path, a->size, (uint64_t)st->st_size);
	if ((S_ISCHR(a->mode) || S_ISBLK(a->mode)) && a->rdev != (uint32_t)st->st_rdev)
		fail("%s: rdev %x, host %x", path, a->rdev, (unsigned)st->st_rdev);
}

static void compare_content(struct ws *ws, const char *path, uint64_t node, int fd, uint64_t size)
{
	uint64_t off = 0;
	while (off < size) {
		size_t n = size - off < CONTENT_MAX ? (size_t)(size - off) : CONTENT_MAX;
		ssize_t a = ws_read(ws, node, buf_a, n, off);
		ssize_t b = pread(fd, buf_b, n, (off_t)off);
		if (a != b || a <= 0)
			fail("%s: read %zd at %" PRIu64 ", host %zd", path, a, off, b);
		for (ssize_t i = 0; memcmp(buf_a, buf_b, (size_t)a) != 0; i++)
			if (buf_a[i] != buf_b[i])
				fail("%s: byte %" PRIu64 " is %02x, host %02x (size %" PRIu64 ")",
				     path, off + (uint64_t)i, (uint8_t)buf_a[i], (uint8_t)buf_b[i],
				     size);
		off += (uint64_t)a;
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct list {
	char *v[512];
	size_t n;
};

static void list_done(struct list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
}
#define auto_list __attribute__((cleanup(list_done))) struct list

static void list_add(struct list *l, const char *s, size_t n)
{
	if (l->n == 512)
		fail("a list is too long");
	l->v[l->n++] = strndup(s, n);
}

static void compare_lists(const char *path, const char *what, struct list *a, struct list *b)
{
	qsort(a->v, a->n, sizeof(a->v[0]), by_text);
	qsort(b->v, b->n, sizeof(b->v[0]), by_text);
	for (size_t i = 0; i < a->n || i < b->n; i++) {
		const char *x = i < a->n ? a->v[i] : "(none)", *y = i < b->n ? b->v[i] : "(none)";
		if (strcmp(x, y) != 0)
			fail("%s: %s %s, host %s", path, what, x, y);
	}
}

static void split_names(struct list *l, const char *s, ssize_t n)
{
	for (const char *p = s; p < s + n; p += strlen(p) + 1)
		list_add(l, p, strlen(p));
}

/* `host_path`: a path of the host that leads to the inode itself. */
static void compare_xattrs(struct ws *ws, const char *path, uint64_t node, const char *host_path)
{
	char la[8192], lb[8192];
	auto_list a = { .n = 0 }, b = { .n = 0 };
	ssize_t na = ws_listxattr(ws, node, la, sizeof(la));
	ssize_t nb = llistxattr(host_path, lb, sizeof(lb));
	if (na < 0 || nb < 0)
		fail("%s: listxattr %zd, host %zd", path, na, nb);
	split_names(&a, la, na);
	split_names(&b, lb, nb);
	compare_lists(path, "xattr", &a, &b);
	for (size_t i = 0; i < a.n; i++) {
		na = ws_getxattr(ws, node, a.v[i], la, sizeof(la));
		nb = lgetxattr(host_path, a.v[i], lb, sizeof(lb));
		if (na != nb || na < 0 || memcmp(la, lb, (size_t)na) != 0)
			fail("%s: value of %s differs (%zd, host %zd)", path, a.v[i], na, nb);
	}
}

struct listing {
	struct list names;
	uint64_t cookies[512], stop;
	size_t room;
	struct ws *ws;
	enum ws_plus plus;
	uint64_t nodes[512];
};

static bool list_entry(void *ctx, const struct dirent_ref *d, const struct attr *a)
{
	struct listing *l = ctx;
	if (l->room == 0)
		return false;
	l->room--;
	if (l->names.n > 0 && d->cookie <= l->cookies[l->names.n - 1])
		fail("readdir's cookies don't rise");
	bool whole = l->plus == WS_PLUS || (l->plus == WS_PLUS_FOLDERS && d->type == DT_DIR);
	if (whole != (a != NULL))
		fail("readdir gives no attributes, or gives them unasked");
	l->cookies[l->names.n] = d->cookie;
	l->nodes[l->names.n] = a ? node_of(a) : 0;
	list_add(&l->names, d->name, d->name_len);
	return true;
}

/* All names, in batches of random size, each resumed by its cookie. */
static void list_ws(struct ws *ws, uint64_t node, struct listing *l)
{
	*l = (struct listing){ .ws = ws, .plus = check_below(WS_PLUS_FOLDERS + 1) };
	for (;;) {
		size_t before = l->names.n;
		l->room = 1 + check_below(20);
		int r = ws_readdir(ws, node, before ? l->cookies[before - 1] : 0, l->plus,
				   list_entry, l);
		if (r < 0)
			fail("readdir: %s", strerror(-r));
		if (l->names.n == before)
			break;
	}
	for (size_t i = 0; i < l->names.n; i++)
		if (l->nodes[i])
			ws_forget(ws, l->nodes[i], 1);
}

static void list_host(int fd, struct list *l)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY);
	DIR *d = fdopendir(copy);
	if (!d)
		fail("fdopendir: %s", strerror(errno));
	struct dirent *de;
	l->n = 0;
	while ((de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			list_add(l, de->d_name, strlen(de->d_name));
	(void)closedir(d);
}

static void compare_names(struct ws *ws, const char *path, uint64_t node, int fd)
{
	struct listing a;
	auto_list b = { .n = 0 };
	list_ws(ws, node, &a);
	list_host(fd, &b);
	compare_lists(path, "name", &a.names, &b);
	list_done(&a.names);
}

/* Everything of one inode but, for directories, what is below. */
static void compare_inode(struct pair *p, const char *path, uint64_t node, int dirfd,
			  const char *name)
{
	struct attr a;
	struct stat st;
	char host_path[PATH_BYTES + 100];
	int r = ws_getattr(p->ws, node, &a);
	if (r < 0)
		fail("%s: getattr: %s", path, strerror(-r));
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		fail("%s: not on the host", path);
	compare_attr(path, &a, &st);
	(void)snprintf(host_path, sizeof(host_path), "/proc/self/fd/%d/%s", dirfd, name);
	compare_xattrs(p->ws, path, node, host_path);
	if (S_ISREG(a.mode)) {
		auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW);
		compare_content(p->ws, path, node, fd, a.size);
	} else if (S_ISLNK(a.mode)) {
		char x[4096], y[4096];
		size_t n;
		ssize_t h = readlinkat(dirfd, name, y, sizeof(y));
		r = ws_readlink(p->ws, node, x, sizeof(x), &n);
		if (r < 0 || h != (ssize_t)n || memcmp(x, y, n) != 0)
			fail("%s: target differs", path);
	}
}

static void compare_dir(struct pair *p, const char *path, uint64_t node, int fd)
{
	auto_list names = { .n = 0 };
	compare_names(p->ws, path, node, fd);
	list_host(fd, &names);
	for (size_t i = 0; i < names.n; i++) {
		struct entry e;
		char sub[PATH_BYTES];
		(void)snprintf(sub, sizeof(sub), "%s/%s", path, names.v[i]);
		int r = ws_lookup(p->ws, node, names.v[i], strlen(names.v[i]), &e);
		if (r < 0)
			fail("%s: lookup: %s", sub, strerror(-r));
		compare_inode(p, sub, e.node, fd, names.v[i]);
		if (S_ISDIR(e.attr.mode)) {
			auto_fd child = openat(fd, names.v[i], O_RDONLY | O_DIRECTORY);
			compare_dir(p, sub, e.node,
				    child); /* as deep as DEPTH and renames make it */
		}
		ws_forget(p->ws, e.node, 1);
	}
}

static int quota_differs(void *ctx, const struct attr *a, int64_t want)
{
	fail("inode %" PRIu64 " (size %" PRIu64 ", tag %s): own_bytes %" PRIu64
	     ", counted %" PRId64,
	     a->ino, a->size, a->own_tag == *(const uint64_t *)ctx ? "own" : "other", a->own_bytes,
	     want);
}

static void check_quota(struct ws *ws)
{
	int64_t bytes, inodes;
	if (ws->file.flattened)
		return;
	int r = quota_count(&ws->view, own_layers(ws), &ws->quota, &bytes, &inodes, quota_differs,
			    &ws->quota.tag);
	if (r < 0)
		fail("quota_count: %s", strerror(-r));
	if (bytes != ws->quota.bytes || inodes != ws->quota.inodes || ws->quota.reserved != 0)
		fail("usage %" PRId64 " bytes %" PRId64 " inodes (%" PRId64 " reserved), counted "
		     "%" PRId64 " and %" PRId64,
		     ws->quota.bytes, ws->quota.inodes, ws->quota.reserved, bytes, inodes);
}

static void compare_tree(struct pair *p)
{
	check_quota(p->ws);
	compare_inode(p, p->id, 1, p->fd, ".");
	compare_dir(p, p->id, 1, p->fd);
	for (unsigned i = 0; i < HELD; i++) {
		struct stat st;
		struct attr a;
		if (m.held[i].p != p)
			continue;
		int r = ws_getattr(p->ws, m.held[i].node, &a);
		if (r < 0 || fstat(m.held[i].fd, &st) < 0)
			fail("held file %u: %s", i, strerror(r < 0 ? -r : errno));
		compare_attr("held file", &a, &st);
		compare_content(p->ws, "held file", m.held[i].node, m.held[i].fd, a.size);
	}
}

/* ---- the operations on trees ---- */

static struct caller pick_caller(void)
{
	return root_caller;
}

static void op_make(void)
{
	auto_place pl;
	pick_place(&pl, pick_pair());
	static const mode_t types[] = { S_IFREG, S_IFREG, S_IFREG, S_IFREG,  S_IFDIR,
					S_IFDIR, S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR };
	mode_t mode = types[below(10)] | (below(8) ? 0755 : (mode_t)below(07777 + 1));
	if (S_ISCHR(mode) && !m.root_user)
		mode = S_IFREG | 0644;
	/* mkdir's own rules about the upper mode bits are the kernel's. */
	if (S_ISDIR(mode))
		mode &= ~(mode_t)(S_ISUID | S_ISGID);
	say("make %o %s/%s/%s", mode, pl.p->id, pl.path, pl.name);
	if (pl.error)
		return;
	struct entry e;
	struct caller c = pick_caller();
	int r = ws_mknod(pl.p->ws, place_dir(&pl), pl.name, pl.len, mode, makedev(1, 3), &c, &e);
	int h = S_ISDIR(mode) ? mkdirat(pl.fd, pl.name, mode)
			      : mknodat(pl.fd, pl.name, mode, makedev(1, 3));
	if (same(r, err_of(h)))
		ws_forget(pl.p->ws, e.node, 1);
}

static void op_symlink(void)
{
	auto_place pl;
	char to[300];
	pick_place(&pl, pick_pair());
	unsigned n = 1 + below(below(4) ? 20 : 290);
	memset(to, 'x', n);
	to[n] = '\0';
	say("symlink %s/%s/%s to %u bytes", pl.p->id, pl.path, pl.name, n);
	if (pl.error)
		return;
	struct entry e;
	int r = ws_symlink(pl.p->ws, place_dir(&pl), pl.name, pl.len, to, &root_caller, &e);
	if (same(r, err_of(symlinkat(to, pl.fd, pl.name))))
		ws_forget(pl.p->ws, e.node, 1);
}

static void op_link(void)
{
	struct pair *p = pick_pair();
	auto_place a, b;
	pick_place(&a, p);
	pick_place(&b, p);
	say("link %s: %s/%s to %s/%s", p->id, a.path, a.name, b.path, b.name);
	struct entry e, f;
	struct stat st;
	if (a.error || b.error || !target(&a, &e, &st))
		return;
	int r = ws_link(p->ws, e.node, place_dir(&b), b.name, b.len, &root_caller, &f);
	int h = err_of(linkat(a.fd, a.name, b.fd, b.name, 0));
	/* The kernel looks whether the new name is there before it asks what the old one is. */
	if (S_ISDIR(st.st_mode) && h == -EEXIST)
		h = r;
	if (same(r, h))
		ws_forget(p->ws, f.node, 1);
	ws_forget(p->ws, e.node, 1);
}

static void op_remove(void)
{
	auto_place pl;
	pick_place(&pl, pick_pair());
	bool dir = below(3) == 0;
	say("%s %s/%s/%s", dir ? "rmdir" : "unlink", pl.p->id, pl.path, pl.name);
	if (pl.error)
		return;
	int r = dir ? ws_rmdir(pl.p->ws, place_dir(&pl), pl.name, pl.len, &root_caller)
		    : ws_unlink(pl.p->ws, place_dir(&pl), pl.name, pl.len, &root_caller);
	(void)same(r, err_of(unlinkat(pl.fd, pl.name, dir ? AT_REMOVEDIR : 0)));
}

/* Whether path x is y or above it. */
static bool is_prefix(const struct place *x, const struct place *y)
{
	char a[PATH_BYTES + 40], b[PATH_BYTES + 40];
	(void)snprintf(a, sizeof(a), "%s%s%s/", x->path, *x->path ? "/" : "", x->name);
	(void)snprintf(b, sizeof(b), "%s%s%s/", y->path, *y->path ? "/" : "", y->name);
	return strncmp(a, b, strlen(a)) == 0;
}

static void op_rename(void)
{
	static const unsigned kinds[] = {
		0, 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_EXCHANGE, RENAME_WHITEOUT
	};
	struct pair *p = pick_pair();
	auto_place a, b;
	unsigned flags = kinds[below(8)];
	pick_place(&a, p);
	pick_place(&b, p);
	if ((flags & RENAME_WHITEOUT) && !m.root_user)
		flags = 0;
	say("rename %s: %s/%s to %s/%s flags %u", p->id, a.path, a.name, b.path, b.name, flags);
	/* A way into itself is the kernel's to refuse. */
	if (a.error || b.error || is_prefix(&a, &b) || is_prefix(&b, &a))
		return;
	int r = ws_rename(p->ws, place_dir(&a), a.name, a.len, place_dir(&b), b.name, b.len, flags,
			  &root_caller);
	(void)same(r, err_of((int)syscall(SYS_renameat2, a.fd, a.name, b.fd, b.name, flags)));
}

/* ---- the operations on contents ---- */

/* A regular file on both sides: one of the tree or a held one. */
struct file {
	struct pair *p;
	uint64_t node, size;
	int fd;
	bool owned; /* fd and a reference are to be given back */
	char name[PATH_BYTES + 40];
};

static void file_done(struct file *f)
{
	if (!f->owned)
		return;
	(void)close(f->fd);
	ws_forget(f->p->ws, f->node, 1);
}
#define auto_fileref __attribute__((cleanup(file_done))) struct file

static bool pick_file(struct file *f, struct pair *p)
{
	*f = (struct file){ .fd = -1 };
	struct held *h = &m.held[below(HELD)];
	struct stat st;
	if (below(5) == 0 && h->p == p) {
		*f = (struct file){ .p = p, .node = h->node, .fd = h->fd };
		(void)snprintf(f->name, sizeof(f->name), "held %u", (unsigned)(h - m.held));
	} else {
		auto_place pl;
		struct entry e;
		pick_place(&pl, p);
		for (unsigned tries = 0; tries < 4 && pl.error == 0; tries++) {
			if (fstatat(pl.fd, pl.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			    S_ISREG(st.st_mode))
				break;
			pick_name(pl.name);
			pl.len = strlen(pl.name);
		}
		if (pl.error || !target(&pl, &e, &st))
			return false;
		if (!S_ISREG(st.st_mode)) {
			ws_forget(p->ws, e.node, 1);
			return false;
		}
		*f = (struct file){ .p = p, .node = e.node, .owned = true };
		f->fd = openat(pl.fd, pl.name, O_RDWR | O_NOFOLLOW);
		(void)snprintf(f->name, sizeof(f->name), "%s/%s/%s", p->id, pl.path, pl.name);
		if (f->fd < 0)
			fail("open %s: %s", f->name, strerror(errno));
	}
	if (fstat(f->fd, &st) < 0)
		fail("fstat: %s", strerror(errno));
	f->size = (uint64_t)st.st_size;
	return true;
}

/* Mostly near something: the end, a block's edge, the edge of big files. */
static uint64_t pick_off(uint64_t size)
{
	switch (below(8)) {
	case 0:
		return size;
	case 1:
		return size ? rnd() % size : 0;
	case 2:
		return below(16) * LAYER_BLOCK;
	case 3:
		return below(16) * LAYER_BLOCK + below(40) - (below(2) ? 0 : 20);
	case 4:
		return below(50) ? below(65536) : LAYER_BIG_FILE - 8192 + below(16384);
	case 5:
		return below(100) ? below(10000) : below(CONTENT_MAX - 300000);
	default:
		return below(4096);
	}
}

static uint64_t pick_len(void)
{
	switch (below(6)) {
	case 0:
		return 1 + below(20);
	case 1:
		return LAYER_BLOCK;
	case 2:
		return LAYER_BLOCK * (1 + below(8));
	case 3:
		return below(40) ? 1 + below(9000) : 1 + below(200000);
	default:
		return 1 + below(5000);
	}
}

static void op_write(void)
{
	auto_fileref f;
	if (!pick_file(&f, pick_pair()))
		return;
	uint64_t off = pick_off(f.size) & INT32_MAX, len = pick_len();
	if (off + len > CONTENT_MAX)
		off = 0;
	say("write %s %" PRIu64 "+%" PRIu64 " (size %" PRIu64 ")", f.name, off, len, f.size);
	uint64_t x = rnd();
	for (uint64_t i = 0; i < len; i++)
		buf_a[i] = (char)(x >> (i % 8) * 8) + (char)(i / 8);
	int r = ws_write(f.p->ws, f.node, buf_a, len, off, false, &root_caller);
	ssize_t h = pwrite(f.fd, buf_a, len, (off_t)off);
	(void)same(r, h < 0 ? -errno : 0);
}

static void op_read(void)
{
	auto_fileref f;
	if (!pick_file(&f, pick_pair()))
		return;
	uint64_t off = pick_off(f.size) & INT32_MAX, len = pick_len();
	say("read %s %" PRIu64 "+%" PRIu64 " (size %" PRIu64 ")", f.name, off, len, f.size);
	ssize_t r = ws_read(f.p->ws, f.node, buf_a, len, off);
	ssize_t h = pread(f.fd, buf_b, len, (off_t)off);
	if (r != h)
		fail("read %zd, host %zd", r, h);
	if (r > 0 && memcmp(buf_a, buf_b, (size_t)r) != 0)
		fail("read other bytes than the host");
}

static void op_truncate(void)
{
	auto_fileref f;
	if (!pick_file(&f, pick_pair()))
		return;
	uint64_t size = pick_off(f.size) & INT32_MAX;
	/* Comparing takes longer than all else: big files shall not stay for long. */
	if (size > CONTENT_MAX || (size > 200000 && below(4)))
		size = 0;
	say("truncate %s from %" PRIu64 " to %" PRIu64, f.name, f.size, size);
	struct attr in = { .size = size }, out;
	int r = ws_setattr(f.p->ws, f.node, WS_SET_SIZE, &in, &root_caller, &out);
	if (same(r, err_of(ftruncate(f.fd, (off_t)size))) && out.size != size)
		fail("the answer's size is %" PRIu64, out.size);
}

static void op_fallocate(void)
{
	static const int modes[] = {
		0,
		FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
		FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
		FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	};
	auto_fileref f;
	if (!pick_file(&f, pick_pair()))
		return;
	int mode = modes[below(6)];
	uint64_t off = pick_off(f.size) & INT32_MAX, len = pick_len();
	if (off + len > CONTENT_MAX)
		off = 0;
	say("fallocate %s mode %d %" PRIu64 "+%" PRIu64 " (size %" PRIu64 ")", f.name, mode, off,
	    len, f.size);
	int r = ws_fallocate(f.p->ws, f.node, mode, off, len, &root_caller);
	(void)same(r, err_of(fallocate(f.fd, mode, (off_t)off, (off_t)len)));
}

static bool all_zero(const char *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Where holes are is each filesystem's own; that what it calls one is zeros is not. */
static void op_seek(void)
{
	auto_fileref f;
	if (!pick_file(&f, pick_pair()))
		return;
	uint64_t off = f.size ? rnd() % f.size : 0, data = 0, hole = 0;
	say("seek %s at %" PRIu64 " (size %" PRIu64 ")", f.name, off, f.size);
	int r = ws_seek(f.p->ws, f.node, off, SEEK_DATA, &data);
	int h = ws_seek(f.p->ws, f.node, off, SEEK_HOLE, &hole);
	if (off >= f.size) {
		if (r != -ENXIO || h != -ENXIO)
			fail("seek behind the end: %d, %d", r, h);
		return;
	}
	if (h < 0 || hole < off || hole > f.size)
		fail("SEEK_HOLE: %d, %" PRIu64, h, hole);
	if (r < 0 && r != -ENXIO)
		fail("SEEK_DATA: %d", r);
	uint64_t end = r < 0 ? f.size : data;
	if (end < off || end > f.size || (r == 0 && data == off && hole == off))
		fail("SEEK_DATA: %" PRIu64 ", SEEK_HOLE %" PRIu64, end, hole);
	ssize_t n = pread(f.fd, buf_b, (size_t)(end - off), (off_t)off);
	if (n != (ssize_t)(end - off) || !all_zero(buf_b, (size_t)n))
		fail("[%" PRIu64 ", %" PRIu64 ") is no hole", off, end);
}

static void op_copy(void)
{
	struct pair *p = pick_pair();
	auto_fileref a, b = { .fd = -1 };
	if (!pick_file(&a, p) || !pick_file(&b, p))
		return;
	uint64_t from = pick_off(a.size) & INT32_MAX, to = pick_off(b.size) & INT32_MAX;
	uint64_t n = below(4) ? pick_len() : CONTENT_MAX;
	if (below(2)) {
		from = from / LAYER_BLOCK * LAYER_BLOCK;
		to = to / LAYER_BLOCK * LAYER_BLOCK;
	}
	if (to + n > CONTENT_MAX)
		n = to < CONTENT_MAX ? CONTENT_MAX - to : 0;
	say("copy %s %" PRIu64 "+%" PRIu64 " (size %" PRIu64 ") to %s %" PRIu64 " (size %" PRIu64
	    ")",
	    a.name, from, n, a.size, b.name, to, b.size);
	struct stat sa, sb;
	if (fstat(a.fd, &sa) < 0 || fstat(b.fd, &sb) < 0)
		fail("fstat");
	if (sa.st_ino == sb.st_ino) {
		if (from < to + n && to < from + n)
			return; /* the kernel refuses it */
		/* The loop below may not go on into what it made. */
		n = from < a.size ? min_u64(n, a.size - from) : 0;
	}
	ssize_t r = ws_copy_range(p->ws, a.node, from, b.node, to, n, &root_caller);
	ssize_t h = 0;
	loff_t x = (loff_t)from, y = (loff_t)to;
	while ((uint64_t)h < n) {
		ssize_t k = copy_file_range(a.fd, &x, b.fd, &y, n - (uint64_t)h, 0);
		if (k < 0)
			fail("copy_file_range: %s", strerror(errno));
		if (k == 0)
			break;
		h += k;
	}
	if (r != h)
		fail("copied %zd, host %zd", r, h);
}

static void op_fsync(void)
{
	struct pair *p = pick_pair();
	say("fsync %s", p->id);
	int r = ws_fsync(p->ws, 1);
	if (r < 0)
		fail("fsync: %s", strerror(-r));
}

/* ---- the operations on attributes ---- */

static void op_setattr(void)
{
	auto_place pl;
	struct entry e;
	struct stat st;
	pick_place(&pl, pick_pair());
	if (pl.error || !target(&pl, &e, &st))
		return;
	struct attr in = { .mode = (uint32_t)below(07777 + 1),
			   .uid = below(3),
			   .gid = below(3),
			   .mtime = { 1000000 + below(1000000), below(1000000000) },
			   .atime = { 2000000000, 5 } };
	struct timespec times[2] = { in.atime, in.mtime };
	int r, h;
	switch (below(3)) {
	case 0:
		say("chmod %o %s/%s/%s", in.mode, pl.p->id, pl.path, pl.name);
		if (S_ISLNK(st.st_mode)) {
			r = h = 0;
			break;
		}
		r = ws_setattr(pl.p->ws, e.node, WS_SET_MODE, &in, &root_caller, NULL);
		h = err_of(fchmodat(pl.fd, pl.name, in.mode, 0));
		break;
	case 1:
		say("chown %u:%u %s/%s/%s", in.uid, in.gid, pl.p->id, pl.path, pl.name);
		if (!m.root_user) {
			r = h = 0;
			break;
		}
		r = ws_setattr(pl.p->ws, e.node,
			       WS_SET_UID | WS_SET_GID | (S_ISDIR(st.st_mode) ? 0 : WS_KILL_SUID),
			       &in, &root_caller, NULL);
		h = err_of(fchownat(pl.fd, pl.name, in.uid, in.gid, AT_SYMLINK_NOFOLLOW));
		break;
	default:
		say("utimes %s/%s/%s", pl.p->id, pl.path, pl.name);
		r = ws_setattr(pl.p->ws, e.node, WS_SET_ATIME | WS_SET_MTIME, &in, &root_caller,
			       NULL);
		h = err_of(utimensat(pl.fd, pl.name, times, AT_SYMLINK_NOFOLLOW));
		struct attr a;
		if (r == 0 &&
		    (ws_getattr(pl.p->ws, e.node, &a) < 0 || a.mtime.tv_sec != in.mtime.tv_sec ||
		     a.mtime.tv_nsec != in.mtime.tv_nsec))
			fail("mtime isn't what was set");
	}
	(void)same(r, h);
	ws_forget(pl.p->ws, e.node, 1);
}

static void op_xattr(void)
{
	static const char *const names[] = {
		"user.one",   "user.two", "user.a-longer-name-than-that", "trusted.x", "security.y",
		"nonsense.z", "user."
	};
	auto_place pl;
	struct entry e;
	struct stat st;
	char path[PATH_BYTES], v[600], w[600];
	pick_place(&pl, pick_pair());
	if (pl.error || !target(&pl, &e, &st))
		return;
	const char *name = names[below(m.root_user ? 7 : 3)];
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", pl.fd, pl.name);
	size_t len = below(4) ? below(60) : below(500);
	int flags = below(4) ? 0 : below(2) ? XATTR_CREATE : XATTR_REPLACE;
	memset(v, 'a' + (int)below(26), len);
	switch (below(4)) {
	case 0:
		say("removexattr %s %s/%s/%s", name, pl.p->id, pl.path, pl.name);
		(void)same(ws_removexattr(pl.p->ws, e.node, name, &root_caller),
			   err_of(lremovexattr(path, name)));
		break;
	case 1: {
		say("getxattr %s %s/%s/%s", name, pl.p->id, pl.path, pl.name);
		size_t cap = below(3) ? sizeof(v) : below(30);
		ssize_t r = ws_getxattr(pl.p->ws, e.node, name, v, cap);
		ssize_t h = lgetxattr(path, name, w, cap);
		h = h < 0 ? -errno : h;
		if (r != h || (r > 0 && cap > 0 && memcmp(v, w, (size_t)r) != 0))
			fail("%zd, host %zd", r, h);
		break;
	}
	default:
		say("setxattr %s %zu bytes flags %d %s/%s/%s", name, len, flags, pl.p->id, pl.path,
		    pl.name);
		(void)same(ws_setxattr(pl.p->ws, e.node, name, v, len, flags, &root_caller),
			   err_of(lsetxattr(path, name, v, len, flags)));
	}
	ws_forget(pl.p->ws, e.node, 1);
}

static void op_look(void)
{
	auto_place pl;
	struct entry e;
	struct stat st;
	pick_place(&pl, pick_pair());
	say("look at %s/%s/%s", pl.p->id, pl.path, pl.name);
	if (pl.error)
		return;
	if (below(4) == 0)
		compare_names(pl.p->ws, pl.path, place_dir(&pl), pl.fd);
	if (!target(&pl, &e, &st))
		return;
	compare_inode(pl.p, pl.name, e.node, pl.fd, pl.name);
	ws_forget(pl.p->ws, e.node, 1);
}

/* ---- held files ---- */

static void release(struct held *h)
{
	if (!h->p)
		return;
	ws_forget(h->p->ws, h->node, 1);
	(void)close(h->fd);
	h->p = NULL;
}

static void release_all(const struct pair *p)
{
	for (unsigned i = 0; i < HELD; i++)
		if (m.held[i].p == p)
			release(&m.held[i]);
}

static void op_hold(void)
{
	struct held *h = &m.held[below(HELD)];
	struct pair *p = pick_pair();
	release(h);
	auto_place pl;
	pick_place(&pl, p);
	if (pl.error)
		return;
	if (below(3) == 0) {
		struct entry e;
		say("tmpfile %s/%s as held %u", p->id, pl.path, (unsigned)(h - m.held));
		int fd = openat(pl.fd, ".", O_TMPFILE | O_RDWR, 0640);
		int r = ws_tmpfile(p->ws, place_dir(&pl), 0640, &root_caller, &e);
		if (same(r, err_of(fd)))
			*h = (struct held){ p, e.node, fd };
		return;
	}
	struct entry e;
	struct stat st;
	if (!target(&pl, &e, &st))
		return;
	if (!S_ISREG(st.st_mode)) {
		ws_forget(p->ws, e.node, 1);
		return;
	}
	say("hold %s/%s/%s as held %u", p->id, pl.path, pl.name, (unsigned)(h - m.held));
	int fd = openat(pl.fd, pl.name, O_RDWR | O_NOFOLLOW);
	if (fd < 0)
		fail("open: %s", strerror(errno));
	*h = (struct held){ p, e.node, fd };
}

/* A name for a file that was made without one, or lost its last. */
static void op_link_held(void)
{
	struct held *h = &m.held[below(HELD)];
	if (!h->p)
		return;
	auto_place pl;
	struct stat st;
	struct entry e;
	char path[64];
	pick_place(&pl, h->p);
	if (pl.error || fstat(h->fd, &st) < 0)
		return;
	say("link held %u to %s/%s/%s", (unsigned)(h - m.held), h->p->id, pl.path, pl.name);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", h->fd);
	int host = err_of(linkat(AT_FDCWD, path, pl.fd, pl.name, AT_SYMLINK_FOLLOW));
	if (host == -ENOENT)
		return; /* the kernel refuses what was unlinked */
	int r = ws_link(h->p->ws, h->node, place_dir(&pl), pl.name, pl.len, &root_caller, &e);
	if (same(r, host))
		ws_forget(h->p->ws, e.node, 1);
}

/* ---- whole trees ---- */

static void run(const char *const *argv)
{
	pid_t pid = fork();
	if (pid == 0) {
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	int status = 0;
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
		fail("%s %s: status %x", argv[0], argv[1], status);
}

static void copy_dir(const char *from, const char *to)
{
	run((const char *const[]){ "cp", "-a", "--sparse=auto", "--reflink=never", "-T", from, to,
				   NULL });
}

static void remove_dir(const char *dir)
{
	struct err err;
	if (io_remove_tree(AT_FDCWD, dir, &err) < 0)
		fail("remove %s: %s", dir, err.text);
}

static void open_dir(struct pair *p)
{
	p->fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->fd < 0)
		fail("open %s: %s", p->dir, strerror(errno));
}

static void drop_pair(struct pair *p)
{
	struct err err;
	release_all(p);
	ws_close(p->ws);
	p->ws = NULL;
	if (ws_delete(m.work, p->id, &err) < 0)
		fail("delete %s: %s", p->id, err.text);
	(void)close(p->fd);
	remove_dir(p->dir);
}

static void name_pair(struct pair *p)
{
	(void)snprintf(p->id, sizeof(p->id), "w%u", m.serial);
	(void)snprintf(p->dir, sizeof(p->dir), "%s/d%u", base_dir, m.serial++);
}

static struct pair *spare_pair(const struct pair *keep)
{
	struct pair *p;
	do
		p = &m.pairs[below(PAIRS)];
	while (p == keep);
	if (p->ws)
		drop_pair(p);
	name_pair(p);
	return p;
}

static void op_fork(void)
{
	struct pair *p = pick_pair(), *q = spare_pair(p);
	struct err err;
	say("fork %s to %s", p->id, q->id);
	const char *ids[] = { q->id };
	if (ws_fork(p->ws, ids, 1, NULL, &q->ws, NULL, &err) < 0)
		fail("%s", err.text);
	copy_dir(p->dir, q->dir);
	open_dir(q);
	compare_tree(p);
	compare_tree(q);
}

static void save(struct pair *p, struct stack *sealed, struct stack *saved, bool flat)
{
	struct err err;
	struct view_options vo;
	struct store_session *ss;
	struct save_stats st;
	work_view_options(m.work, &vo);
	if (ws_seal(p->ws, sealed, &err) < 0 ||
	    store_session_begin(work_store(m.work), &ss, &err) < 0)
		fail("%s", err.text);
	if (save_stack(saved, sealed, &vo, ss, NULL, &st, &err) < 0)
		fail("save: %s", err.text);
	if (flat) {
		struct stack image;
		if (flatten_stack(&image, saved, &vo, ss, NULL, &err) < 0)
			fail("flatten: %s", err.text);
		stack_done(saved);
		*saved = image;
	}
	if (store_sync(ss, &err) < 0)
		fail("%s", err.text);
	store_session_end(ss);
}

static void op_snapshot(void)
{
	struct pair *p = pick_pair();
	struct snapshot *s = &m.snapshots[below(SNAPSHOTS)];
	auto_stack sealed = { 0 };
	bool flat = below(3) == 0;
	say("snapshot %s%s", p->id, flat ? ", flat" : "");
	if (s->used) {
		stack_done(&s->stack);
		remove_dir(s->dir);
	}
	save(p, &sealed, &s->stack, flat);
	(void)snprintf(s->dir, sizeof(s->dir), "%s/s%u", base_dir, m.serial++);
	copy_dir(p->dir, s->dir);
	s->used = true;
	/* It is what it was taken of. */
	struct pair q = { .fd = p->fd };
	struct err err;
	(void)snprintf(q.id, sizeof(q.id), "s%u", m.serial++);
	if (ws_create(&q.ws, m.work, q.id, &s->stack, NULL, 0, 0, &err) < 0)
		fail("%s", err.text);
	compare_tree(&q);
	ws_close(q.ws);
	if (ws_delete(m.work, q.id, &err) < 0)
		fail("%s", err.text);
}

static void op_create(void)
{
	struct snapshot *s = &m.snapshots[below(SNAPSHOTS)];
	struct err err;
	if (!s->used)
		return;
	struct pair *q = spare_pair(pick_pair());
	say("create %s from %s", q->id, s->dir);
	if (ws_create(&q->ws, m.work, q->id, &s->stack, NULL, 0, 0, &err) < 0)
		fail("%s", err.text);
	copy_dir(s->dir, q->dir);
	open_dir(q);
	compare_tree(q);
}

/* Layers are replaced by what they were saved as, or by one image, as in the background. */
static void op_replace(void)
{
	struct pair *p = pick_pair();
	auto_stack sealed = { 0 }, saved = { 0 };
	struct err err;
	bool flat = below(2);
	say("%s %s", flat ? "flatten" : "replace by deltas", p->id);
	save(p, &sealed, &saved, flat);
	/* Something between the two, over what is to be replaced. */
	op_write();
	op_copy();
	op_truncate();
	if (ws_replace(p->ws, &sealed, &saved, &err) < 0)
		fail("%s", err.text);
	compare_tree(p);
}

static void note_name(void *ctx, uint64_t dir, const char *name, size_t len, bool removed,
		      uint64_t child)
{
	(*(uint64_t *)ctx)++;
}

static void note_node(void *ctx, uint64_t node)
{
	(*(uint64_t *)ctx)++;
}

static void op_restore(void)
{
	struct pair *p = pick_pair();
	struct snapshot *s = &m.snapshots[below(SNAPSHOTS)];
	struct err err;
	uint64_t n = 0;
	if (!s->used)
		return;
	say("restore %s from %s", p->id, s->dir);
	struct ws_changes ch = { .name = note_name, .node = note_node, .ctx = &n };
	/* The host's open files are of the tree that goes; the workspace's may live on. */
	release_all(p);
	if (ws_restore(p->ws, &s->stack, &ch, &err) < 0)
		fail("%s", err.text);
	(void)close(p->fd);
	remove_dir(p->dir);
	copy_dir(s->dir, p->dir);
	open_dir(p);
	compare_tree(p);
}

static void op_reopen(void)
{
	struct pair *p = pick_pair();
	struct err err;
	say("reopen %s", p->id);
	release_all(p);
	ws_close(p->ws);
	p->ws = NULL;
	if (ws_open(&p->ws, m.work, p->id, &err) < 0)
		fail("%s", err.text);
	char text[WS_DAMAGE_TEXT];
	if (ws_damage(p->ws, text, sizeof(text)))
		fail("%s", text);
	compare_tree(p);
}

/* No power is lost here, and waiting for the disk is most of the time otherwise. */
static int no_sync(void *ctx, int fd)
{
	return 0;
}

static void open_work(void)
{
	static struct io io;
	struct err err;
	io = io_host;
	io.fdatasync = io.fsync = no_sync;
	struct work_options opt = { .io = &io,
				    .boot_id = m.boot,
				    .commit_ms = below(2) ? 50 : UINT64_MAX };
	if (work_open(&m.work, m.root, &opt, &err) < 0)
		fail("%s", err.text);
}

static bool known(void *ctx, const char *id)
{
	for (unsigned i = 0; i < PAIRS; i++)
		if (strcmp(m.pairs[i].id, id) == 0)
			return true;
	return false;
}

static void op_restart(void)
{
	struct err err;
	bool boot = below(2);
	bool was[PAIRS];
	say("restart%s", boot ? " after a boot" : "");
	for (unsigned i = 0; i < PAIRS; i++) {
		was[i] = m.pairs[i].ws != NULL;
		if (!was[i])
			m.pairs[i].id[0] = '\0';
		release_all(&m.pairs[i]);
		ws_close(m.pairs[i].ws);
		m.pairs[i].ws = NULL;
	}
	work_close(m.work);
	if (boot)
		m.boot[0]++;
	open_work();
	if (work_sweep(m.work, known, NULL, &err) < 0)
		fail("%s", err.text);
	for (unsigned i = 0; i < PAIRS; i++) {
		if (!was[i])
			continue;
		if (ws_open(&m.pairs[i].ws, m.work, m.pairs[i].id, &err) < 0)
			fail("%s", err.text);
		compare_tree(&m.pairs[i]);
	}
}

/* ---- the run ---- */

static const struct {
	const char *name;
	void (*fn)(void);
	unsigned weight; /* of 10,000 */
} table[] = {
	{ "make", op_make, 1500 },          { "symlink", op_symlink, 200 },
	{ "link", op_link, 300 },           { "remove", op_remove, 1100 },
	{ "rename", op_rename, 900 },       { "write", op_write, 1900 },
	{ "read", op_read, 700 },           { "truncate", op_truncate, 500 },
	{ "fallocate", op_fallocate, 500 }, { "seek", op_seek, 200 },
	{ "copy", op_copy, 500 },           { "fsync", op_fsync, 2 },
	{ "setattr", op_setattr, 400 },     { "xattr", op_xattr, 600 },
	{ "look", op_look, 400 },           { "hold", op_hold, 200 },
	{ "link held", op_link_held, 50 },  { "fork", op_fork, 4 },
	{ "create", op_create, 2 },         { "snapshot", op_snapshot, 4 },
	{ "replace", op_replace, 5 },       { "restore", op_restore, 4 },
	{ "reopen", op_reopen, 4 },         { "restart", op_restart, 1 },
};
enum { TABLE = sizeof(table) / sizeof(table[0]) };

static void step(void)
{
	unsigned total = 0, at = 0;
	for (unsigned i = 0; i < TABLE; i++)
		total += table[i].weight;
	unsigned x = below(total);
	while (x >= table[at].weight)
		x -= table[at++].weight;
	m.counts[at]++;
	(void)snprintf(m.what, sizeof(m.what), "%s", table[at].name);
	table[at].fn();
	bool whole = below(1000) == 0;
	if (whole || (m.from && m.op >= m.from))
		for (unsigned i = 0; i < PAIRS; i++)
			if (m.pairs[i].ws)
				compare_tree(&m.pairs[i]);
}

static void start(const char *dir)
{
	struct err err;
	(void)snprintf(base_dir, sizeof(base_dir), "%s/bough-model.XXXXXX", dir);
	if (!mkdtemp(base_dir))
		fail("mkdtemp: %s", strerror(errno));
	(void)snprintf(m.root, sizeof(m.root), "%s/root", base_dir);
	m.root_user = geteuid() == 0;
	(void)umask(0);
	open_work();
	struct pair *p = &m.pairs[0];
	name_pair(p);
	if (mkdir(p->dir, 0755) < 0)
		fail("mkdir: %s", strerror(errno));
	open_dir(p);
	if (ws_create(&p->ws, m.work, p->id, NULL, NULL, geteuid(), getegid(), &err) < 0)
		fail("%s", err.text);
}

static void finish(void)
{
	for (unsigned i = 0; i < PAIRS; i++)
		if (m.pairs[i].ws)
			drop_pair(&m.pairs[i]);
	work_close(m.work);
	for (unsigned i = 0; i < SNAPSHOTS; i++)
		if (m.snapshots[i].used)
			stack_done(&m.snapshots[i].stack);
	/* With the last workspace its layers are gone. */
	char layers[100];
	(void)snprintf(layers, sizeof(layers), "%s/layers", m.root);
	if (rmdir(layers) < 0)
		fail("layers are left behind in %s", layers);
	remove_dir(base_dir);
}

int main(int argc, char **argv)
{
	struct timespec t0, t1;
	const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
#ifdef BOUGH_DEBUG
	m.ops = 20000; /* the sanitizers are slow */
#else
	m.ops = 100000;
#endif
	clock_gettime(CLOCK_REALTIME, &t0);
	m.seed = test_seed();
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--long") == 0)
			m.ops = 5000000;
		else if (i + 1 < argc && strcmp(argv[i], "--ops") == 0)
			m.ops = strtoull(argv[++i], NULL, 10);
		else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
			m.seed = strtoull(argv[++i], NULL, 10);
		else if (i + 1 < argc && strcmp(argv[i], "--from") == 0)
			m.from = strtoull(argv[++i], NULL, 10);
		else if (i + 1 < argc && strcmp(argv[i], "--dir") == 0)
			dir = argv[++i];
		else
			return fprintf(stderr,
				       "usage: %s [--ops N] [--seed S] [--from N] [--long] "
				       "[--dir PATH]\n",
				       argv[0]),
			       2;
	}
	m.rng = m.seed;
	buf_a = malloc(CONTENT_MAX + 300000);
	buf_b = malloc(CONTENT_MAX + 300000);
	if (!buf_a || !buf_b)
		fail("no memory");
	(void)printf("# seed %" PRIu64 "\n", m.seed);
	(void)fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	start(dir);
	for (m.op = 1; m.op <= m.ops; m.op++)
		step();
	finish();
	clock_gettime(CLOCK_MONOTONIC, &t1);
	for (unsigned i = 0; i < TABLE; i++)
		(void)printf("# %-10s %8" PRIu64 "\n", table[i].name, m.counts[i]);
	(void)printf("ok 1 - %" PRIu64 " operations in %.1f s\n1..1\n", m.ops,
		     (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) / 1e9);
	free(buf_a);
	free(buf_b);
	return 0;
}
