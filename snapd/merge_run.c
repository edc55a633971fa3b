/* Runs a merge's plan in a folder that hostile programs have filled: every path is opened
 * beneath the root and through no link. */
#include "snapd/merge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/work/diff.h"

enum { COPY_BYTES = 1 << 20 };

struct runner {
	const struct merge_plan *plan;
	const struct view *theirs;
	int root;
	struct err *err;
};

/* The last component of a path and its folder, opened. */
struct spot {
	int dir;
	const char *name;
};
static void spot_done(struct spot *s)
{
	cleanup_close(&s->dir);
}
#define auto_spot __attribute__((cleanup(spot_done))) struct spot

static int failed(struct runner *rn, const char *what, const char *path)
{
	return err_sys(rn->err, -errno, "%s %.300s", what, path);
}

static int find_spot(struct runner *rn, const char *path, struct spot *out)
{
	const char *slash = strrchr(path, '/');
	auto_free char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	if (!dir)
		return err_no_memory(rn->err);
	int fd = io_open_beneath(rn->root, dir, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return err_sys(rn->err, fd, "open the folder of %.300s", path);
	*out = (struct spot){ fd, slash ? slash + 1 : path };
	return 0;
}

/* A path by which calls without an *at form reach the inode itself. */
static void proc_path(char out[NAME_MAX_BYTES + 64], const struct spot *s)
{
	(void)snprintf(out, NAME_MAX_BYTES + 64, "/proc/self/fd/%d/%s", s->dir, s->name);
}

/* ---- making theirs' inodes ---- */

static int copy_content(struct runner *rn, const struct attr *a, int fd, const char *path)
{
	auto_free uint8_t *buf = malloc(COPY_BYTES);
	if (!buf)
		return err_no_memory(rn->err);
	for (uint64_t at = 0; at < a->size;) {
		uint64_t data, hole;
		int r = view_seek(rn->theirs, a->ino, at, false, &data);
		if (r == -ENXIO)
			break;
		if (r >= 0)
			r = view_seek(rn->theirs, a->ino, data, true, &hole);
		if (r < 0)
			return err_sys(rn->err, r, "read %.300s", path);
		for (at = data; at < hole;) {
			size_t n = hole - at < COPY_BYTES ? (size_t)(hole - at) : COPY_BYTES;
			ssize_t got = view_read(rn->theirs, a->ino, buf, n, at, rn->err);
			if (got <= 0)
				return got < 0 ? (int)got
					       : err_set(rn->err, -EIO, "%.300s ends early", path);
			ssize_t put = pwrite(fd, buf, (size_t)got, (off_t)at);
			if (put != got) {
				errno = put < 0 ? errno : ENOSPC;
				return failed(rn, "write", path);
			}
			at += (uint64_t)got;
		}
	}
	return ftruncate(fd, (off_t)a->size) < 0 ? failed(rn, "write", path) : 0;
}

struct setting {
	struct runner *rn;
	const char *at, *path;
};

static int set_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	struct setting *s = ctx;
	char text[NAME_MAX_BYTES + 1];
	(void)snprintf(text, sizeof(text), "%.*s", (int)name_len, name);
	if (lsetxattr(s->at, text, value, len, 0) == 0)
		return 0;
	/* Those of other namespaces are root's to set. */
	if (errno == EPERM && geteuid() != 0)
		return 0;
	return failed(s->rn, "set an xattr of", s->path);
}

static int drop_xattrs(struct runner *rn, const char *at, const char *path)
{
	char names[65536];
	ssize_t n = llistxattr(at, names, sizeof(names));
	if (n < 0)
		return errno == ENOTSUP ? 0 : failed(rn, "list the xattrs of", path);
	for (const char *p = names; p < names + n; p += strlen(p) + 1)
		if (lremovexattr(at, p) < 0 && errno != ENODATA && errno != EPERM)
			return failed(rn, "remove an xattr of", path);
	return 0;
}

static int set_attr(struct runner *rn, const struct spot *s, const struct attr *a, unsigned what,
		    const char *path)
{
	char at[NAME_MAX_BYTES + 64];
	struct setting st = { rn, at, path };
	proc_path(at, s);
	/* The owner first: a change of it takes set-id bits away. */
	if (what & DIFF_OWNER && geteuid() == 0 &&
	    fchownat(s->dir, s->name, a->uid, a->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(rn, "set the owner of", path);
	if (what & (DIFF_MODE | DIFF_OWNER) && !S_ISLNK(a->mode) &&
	    fchmodat(s->dir, s->name, a->mode & 07777, 0) < 0)
		return failed(rn, "set the mode of", path);
	if (what & DIFF_XATTR)
		return view_each_xattr(rn->theirs, a->ino, set_xattr, &st);
	return 0;
}

static int make_node(struct runner *rn, const struct spot *s, const struct attr *a,
		     const char *path)
{
	if (S_ISDIR(a->mode))
		return mkdirat(s->dir, s->name, 0700) < 0 ? failed(rn, "make", path) : 0;
	if (S_ISLNK(a->mode)) {
		char text[PATH_MAX];
		size_t len;
		int r = view_target(rn->theirs, a->ino, text, sizeof(text) - 1, &len);
		if (r < 0)
			return err_sys(rn->err, r, "read the link %.300s", path);
		text[len] = '\0';
		return symlinkat(text, s->dir, s->name) < 0 ? failed(rn, "make", path) : 0;
	}
	if (!S_ISREG(a->mode))
		return mknodat(s->dir, s->name, (a->mode & S_IFMT) | 0600,
			       S_ISCHR(a->mode) || S_ISBLK(a->mode) ? a->rdev : 0) < 0
			       ? failed(rn, "make", path)
			       : 0;
	auto_fd fd = openat(s->dir, s->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			    0600);
	return fd < 0 ? failed(rn, "make", path) : copy_content(rn, a, fd, path);
}

static int their_attr(struct runner *rn, uint64_t ino, struct attr *a, const char *path)
{
	int r = view_inode(rn->theirs, ino, a);
	return r < 0 ? err_sys(rn->err, r, "%.300s", path) : 0;
}

static int set_all(struct runner *rn, const struct spot *s, const struct attr *a, const char *path)
{
	struct timespec times[2] = { [0] = a->atime, [1] = a->mtime };
	int r = set_attr(rn, s, a, DIFF_OWNER | DIFF_MODE | DIFF_XATTR, path);
	if (r >= 0 && utimensat(s->dir, s->name, times, AT_SYMLINK_NOFOLLOW) < 0)
		r = failed(rn, "set the times of", path);
	return r;
}

static int run_make(struct runner *rn, const struct merge_step *st)
{
	auto_spot s = { .dir = -1 };
	struct attr a;
	int r = find_spot(rn, st->path, &s);
	if (r >= 0)
		r = their_attr(rn, st->ino, &a, st->path);
	if (r >= 0)
		r = make_node(rn, &s, &a, st->path);
	/* A folder's come when all is in it. */
	return r < 0 || S_ISDIR(a.mode) ? r : set_all(rn, &s, &a, st->path);
}

static int run_finish(struct runner *rn, const struct merge_step *st)
{
	auto_spot s = { .dir = -1 };
	struct attr a;
	int r = their_attr(rn, st->ino, &a, st->path);
	if (r < 0 || !S_ISDIR(a.mode))
		return r;
	r = find_spot(rn, st->path, &s);
	return r < 0 ? r : set_all(rn, &s, &a, st->path);
}

/* ---- the other steps ---- */

static int run_move(struct runner *rn, const struct merge_step *st)
{
	auto_spot from = { .dir = -1 }, to = { .dir = -1 };
	int r = find_spot(rn, st->from, &from);
	if (r >= 0)
		r = find_spot(rn, st->path, &to);
	if (r < 0)
		return r;
	if (st->kind == MERGE_LINK)
		return linkat(from.dir, from.name, to.dir, to.name, 0) < 0
			       ? failed(rn, "link", st->path)
			       : 0;
	return renameat2(from.dir, from.name, to.dir, to.name, RENAME_NOREPLACE) < 0
		       ? failed(rn, "move", st->path)
		       : 0;
}

static int run_remove(struct runner *rn, const struct merge_step *st)
{
	auto_spot s = { .dir = -1 };
	int r = find_spot(rn, st->path, &s);
	if (r < 0)
		return r;
	if (unlinkat(s.dir, s.name, 0) == 0 ||
	    (errno == EISDIR && unlinkat(s.dir, s.name, AT_REMOVEDIR) == 0))
		return 0;
	return failed(rn, "remove", st->path);
}

/* Opens a file to be written anew; one that its mode protects from its owner too. */
static int open_to_write(struct runner *rn, const struct spot *s, const char *path, int *fd)
{
	enum { FLAGS = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };
	struct stat st;
	if (fstatat(s->dir, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(rn, "open", path);
	if (!S_ISREG(st.st_mode))
		return err_set(rn->err, -EIO, "%.300s is no file", path);
	*fd = openat(s->dir, s->name, FLAGS);
	if (*fd < 0 && errno == EACCES && st.st_uid == geteuid() &&
	    fchmodat(s->dir, s->name, st.st_mode | S_IWUSR, 0) == 0) {
		*fd = openat(s->dir, s->name, FLAGS);
		if (*fd >= 0 && fchmod(*fd, st.st_mode & 07777) < 0)
			return failed(rn, "set the mode of", path);
	}
	return *fd < 0 || ftruncate(*fd, 0) < 0 ? failed(rn, "write", path) : 0;
}

/* A file keeps its inode; a link or device has to be made anew. */
static int run_write(struct runner *rn, const struct merge_step *st)
{
	auto_spot s = { .dir = -1 };
	auto_fd fd = -1;
	struct attr a;
	int r = find_spot(rn, st->path, &s);
	if (r >= 0)
		r = their_attr(rn, st->ino, &a, st->path);
	if (r < 0)
		return r;
	if (!S_ISREG(a.mode)) {
		if (unlinkat(s.dir, s.name, 0) < 0)
			return failed(rn, "replace", st->path);
		r = make_node(rn, &s, &a, st->path);
		return r < 0 ? r
			     : set_attr(rn, &s, &a, DIFF_OWNER | DIFF_MODE | DIFF_XATTR, st->path);
	}
	r = open_to_write(rn, &s, st->path, &fd);
	return r < 0 ? r : copy_content(rn, &a, fd, st->path);
}

static int put_text(struct runner *rn, int fd, const struct buf *text, const char *path)
{
	for (size_t at = 0; at < text->len;) {
		ssize_t n = pwrite(fd, text->data + at, text->len - at, (off_t)at);
		if (n < 0)
			return failed(rn, "write", path);
		at += (size_t)n;
	}
	return 0;
}

static int run_text(struct runner *rn, const struct merge_step *st)
{
	auto_spot s = { .dir = -1 };
	auto_fd fd = -1;
	int r = find_spot(rn, st->path, &s);
	if (r >= 0)
		r = open_to_write(rn, &s, st->path, &fd);
	if (r < 0)
		return r;
	return put_text(rn, fd, &st->text, st->path);
}

static int run_attr(struct runner *rn, const struct merge_step *st)
{
	auto_spot s = { .dir = -1 };
	struct attr a;
	char at[NAME_MAX_BYTES + 64];
	int r = find_spot(rn, st->path, &s);
	if (r >= 0)
		r = their_attr(rn, st->ino, &a, st->path);
	if (r >= 0 && st->what & DIFF_XATTR) {
		proc_path(at, &s);
		r = drop_xattrs(rn, at, st->path);
	}
	return r < 0 ? r : set_attr(rn, &s, &a, st->what, st->path);
}

/* ---- paths that come from git's trees ---- */

/* Folders that a removal leaves empty go too: git keeps none. */
static int run_drop(struct runner *rn, const struct merge_step *st)
{
	int r = run_remove(rn, st);
	auto_free char *dir = strdup(st->path);
	if (r >= 0 && !dir)
		return err_no_memory(rn->err);
	for (char *slash; r >= 0 && (slash = strrchr(dir, '/'));) {
		auto_spot s = { .dir = -1 };
		*slash = '\0';
		r = find_spot(rn, dir, &s);
		if (r >= 0 && unlinkat(s.dir, s.name, AT_REMOVEDIR) < 0)
			return errno == ENOTEMPTY || errno == EBUSY ? 0 : failed(rn, "remove", dir);
	}
	return r;
}

/* What is new belongs to whom the root folder does. */
static int own(struct runner *rn, const struct spot *s, const char *path)
{
	struct stat st;
	if (geteuid() != 0)
		return 0;
	if (fstat(rn->root, &st) < 0 ||
	    fchownat(s->dir, s->name, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(rn, "set the owner of", path);
	return 0;
}

static int make_folders(struct runner *rn, const char *path)
{
	auto_free char *dir = strdup(path);
	int r = dir ? 0 : err_no_memory(rn->err);
	for (char *slash = dir; r >= 0 && (slash = strchr(slash, '/')); *slash++ = '/') {
		auto_spot s = { .dir = -1 };
		*slash = '\0';
		r = find_spot(rn, dir, &s);
		if (r < 0)
			break;
		if (mkdirat(s.dir, s.name, 0755) == 0)
			r = own(rn, &s, dir);
		else if (errno != EEXIST)
			r = failed(rn, "make", dir);
	}
	return r;
}

/* As git: who may read may run. */
static int put_mode(struct runner *rn, const struct spot *s, const struct merge_step *st,
		    const struct stat *now)
{
	mode_t mode = st->put & MERGE_PUT_EXEC ? now->st_mode | (now->st_mode & 0444) >> 2
					       : now->st_mode & ~(mode_t)0111;
	if (mode != now->st_mode && fchmodat(s->dir, s->name, mode & 07777, 0) < 0)
		return failed(rn, "set the mode of", st->path);
	return 0;
}

static int put_file(struct runner *rn, const struct spot *s, const struct merge_step *st,
		    const struct buf *text, bool there)
{
	auto_fd fd = -1;
	struct stat now;
	int r = 0;
	if (there)
		r = open_to_write(rn, s, st->path, &fd);
	else if ((fd = openat(s->dir, s->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			      0644)) < 0)
		r = failed(rn, "make", st->path);
	if (r >= 0)
		r = put_text(rn, fd, text, st->path);
	if (r >= 0 && !there)
		r = own(rn, s, st->path);
	if (r < 0)
		return r;
	if (fstat(fd, &now) < 0)
		return failed(rn, "look at", st->path);
	return put_mode(rn, s, st, &now);
}

static int run_put(struct runner *rn, const struct merge_step *st)
{
	auto_spot s = { .dir = -1 };
	auto_buf text = { 0 };
	struct stat now;
	int r = make_folders(rn, st->path);
	if (r >= 0)
		r = find_spot(rn, st->path, &s);
	if (r < 0)
		return r;
	bool link = st->put & MERGE_PUT_LINK;
	bool there = fstatat(s.dir, s.name, &now, AT_SYMLINK_NOFOLLOW) == 0;
	if (there && S_ISREG(now.st_mode) && st->put & MERGE_PUT_MODE)
		return put_mode(rn, &s, st, &now);
	if (there && (link || !S_ISREG(now.st_mode))) { /* a link is made anew */
		if (unlinkat(s.dir, s.name, 0) < 0)
			return failed(rn, "replace", st->path);
		there = false;
	}
	r = rn->plan->content(rn->plan->ctx, st->path, &text, rn->err);
	if (r < 0 || !link)
		return r < 0 ? r : put_file(rn, &s, st, &text, there);
	buf_u8(&text, 0);
	if (buf_error(&text) < 0)
		return err_no_memory(rn->err);
	if (symlinkat((const char *)text.data, s.dir, s.name) < 0)
		return failed(rn, "make", st->path);
	return own(rn, &s, st->path);
}

static int run_step(struct runner *rn, const struct merge_step *st)
{
	switch (st->kind) {
	case MERGE_STAGE:
	case MERGE_PLACE:
	case MERGE_LINK:
		return run_move(rn, st);
	case MERGE_REMOVE:
		return run_remove(rn, st);
	case MERGE_MAKE:
		return run_make(rn, st);
	case MERGE_WRITE:
		return run_write(rn, st);
	case MERGE_TEXT:
		return run_text(rn, st);
	case MERGE_ATTR:
		return run_attr(rn, st);
	case MERGE_DROP:
		return run_drop(rn, st);
	case MERGE_PUT:
		return run_put(rn, st);
	}
	return err_set(rn->err, -EINVAL, "an unknown step");
}

int merge_run(const struct merge_plan *p, const struct view *theirs, int root, struct err *err)
{
	struct err own = { 0 };
	struct runner rn = { .plan = p, .theirs = theirs, .root = root, .err = &own };
	bool aside = false;
	int r = 0;
	for (size_t i = 0; i < p->n && !aside; i++)
		aside = p->steps[i].kind == MERGE_STAGE;
	if (aside && mkdirat(root, p->aside, 0700) < 0)
		r = failed(&rn, "make", p->aside);
	for (size_t i = 0; i < p->n && r >= 0; i++)
		r = run_step(&rn, &p->steps[i]);
	for (size_t i = p->n; i > 0 && r >= 0; i--)
		if (p->steps[i - 1].kind == MERGE_MAKE)
			r = run_finish(&rn, &p->steps[i - 1]);
	if (r >= 0 && aside && unlinkat(root, p->aside, AT_REMOVEDIR) < 0)
		r = failed(&rn, "remove", p->aside);
	if (r < 0 && err)
		*err = own;
	return r;
}
