#include "snapd/archive_extract.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "snapd/archive_stage.h"
#include "snapd/archive_tree.h"

enum {
	DIR_TIMES_MAX = 64 << 20, /* bytes of the list of directories: a million of them */
	XATTRS_MAX = 1000,        /* of one member: each is compared with those before */
};

struct extract {
	const struct place *place;
	bool top; /* as in the options */
	bool no_xattrs; /* the workspace has none */
	struct err *err;
	struct archive_reader rd;
	struct archive_stage stage;
	struct archive_extract_stats st;
	struct buf base;      /* the directory's path, with a '/' behind it unless it is the root */
	struct buf path;      /* base and the member's, terminated */
	struct buf dir_times; /* struct timespec of atime and mtime, path, NUL; … */
};

static int out_of_memory(struct extract *x)
{
	return err_no_memory(x->err);
}

/* The path of a member: checked, without "." and doubled '/', below the base. */
static int set_path(struct extract *x, const char *member, const char *what)
{
	const char *p = member, *name;
	size_t len;
	int r = archive_path_check(member, what, x->err);
	if (r < 0)
		return r;
	buf_reset(&x->path);
	buf_add(&x->path, x->base.data, x->base.len);
	for (bool first = true; archive_component(&p, &name, &len); first = false) {
		if (!first)
			buf_u8(&x->path, '/');
		buf_add(&x->path, name, len);
	}
	if (x->path.len > 0 && x->path.data[x->path.len - 1] == '/')
		x->path.len--; /* the base itself */
	buf_u8(&x->path, 0);
	if (buf_error(&x->path))
		return out_of_memory(x);
	if (x->path.len > PATH_MAX)
		return err_set(x->err, -EBADMSG, "'%s': a %s above %d bytes", SHOW(member), what,
			       PATH_MAX - 1);
	return 0;
}

static const char *path_of(const struct extract *x)
{
	return (const char *)x->path.data;
}

static int failed(struct extract *x, int r, const char *what)
{
	return place_error(x->err, r, what, path_of(x));
}

/* ---- operations ---- */

static struct batch_op op_of(const struct extract *x, enum batch_kind kind, const struct attr *a)
{
	bool root = geteuid() == 0;
	struct batch_op o = {
		.kind = kind,
		.flags = BATCH_PARENTS | BATCH_REPLACE,
		.path = path_of(x),
		.path_len = strlen(path_of(x)),
	};
	if (!a)
		return o;
	o.flags |= kind == BATCH_PUT ? BATCH_GIVEN : BATCH_AS_IS;
	o.uid = root ? a->uid : geteuid();
	o.gid = root ? a->gid : getegid();
	o.rdev = a->rdev;
	o.atime = a->atime;
	o.mtime = a->mtime;
	o.mode = a->mode & (kind == BATCH_MAKE ? S_IFMT | 07777 : 07777);
	return o;
}

struct xattrs_of {
	struct extract *x;
	struct buf b;
	size_t n;
};

/* Of two of one name the later one counts: a tar of libarchive's has each in two forms. */
static int drop_xattr(struct xattrs_of *t, const char *name)
{
	struct cur c = cur_init(t->b.data, t->b.len);
	const char *old;
	const void *value;
	size_t n, len, at = 0;
	while (batch_xattr(&c, &old, &n, &value, &len) > 0) {
		size_t next = t->b.len - cur_left(&c);
		if (n == strlen(name) && memcmp(old, name, n) == 0) {
			memmove(t->b.data + at, t->b.data + next, t->b.len - next);
			t->b.len -= next - at;
			t->n--;
			return 0;
		}
		at = next;
	}
	return 0;
}

static int add_xattr(void *ctx, const char *name, const void *value, size_t len)
{
	struct xattrs_of *t = ctx;
	if (t->x->no_xattrs || (geteuid() != 0 && strncmp(name, "user.", 5) != 0)) {
		t->x->st.ignored_xattrs++;
		return 0;
	}
	(void)drop_xattr(t, name); /* finds it, or doesn't */
	if (++t->n > XATTRS_MAX || t->b.len + len > BATCH_XATTRS_MAX - 512)
		return err_set(t->x->err, -EFBIG, "'%s': too many xattrs", SHOW(path_of(t->x)));
	batch_encode_xattr(&t->b, name, value, len);
	return buf_error(&t->b) ? out_of_memory(t->x) : 0;
}

/* Adds the operation, with the member's xattrs where it may have some. */
static int add_with_xattrs(struct extract *x, struct archive_entry *e, struct batch_op *o)
{
	struct xattrs_of xattrs = { .x = x };
	int r = archive_reader_xattrs(&x->rd, e, add_xattr, &xattrs);
	o->xattrs = xattrs.b.data;
	o->xattrs_len = xattrs.b.len;
	if (r == 0)
		r = archive_stage_add(&x->stage, o);
	buf_done(&xattrs.b);
	return r;
}

/* ---- directories ---- */

/* What is put into them in other batches changes them. */
static int remember_times(struct extract *x, const struct attr *a)
{
	const struct timespec times[2] = { a->atime, a->mtime };
	if (x->stage.atomic)
		return 0;
	if (x->dir_times.len + sizeof(times) + x->path.len > DIR_TIMES_MAX)
		return err_set(x->err, -EFBIG, "the archive has too many folders");
	buf_add(&x->dir_times, times, sizeof(times));
	buf_add(&x->dir_times, x->path.data, x->path.len);
	return buf_error(&x->dir_times) ? out_of_memory(x) : 0;
}

static int set_dir_times(struct extract *x)
{
	const uint8_t *p = x->dir_times.data, *end = p + x->dir_times.len;
	int r = 0;
	while (r == 0 && x->dir_times.len > 0 && p < end) {
		struct batch_op o = { .kind = BATCH_TIMES };
		struct timespec times[2];
		memcpy(times, p, sizeof(times));
		o.atime = times[0];
		o.mtime = times[1];
		o.path = (const char *)p + sizeof(times);
		o.path_len = strlen(o.path);
		p += sizeof(times) + o.path_len + 1;
		r = archive_stage_add(&x->stage, &o);
		if (r == 0)
			r = archive_stage_settle(&x->stage);
	}
	return r < 0 ? r : archive_stage_flush(&x->stage);
}

static int put_dir(struct extract *x, struct archive_entry *e, const struct attr *a)
{
	struct batch_op o = op_of(x, BATCH_MAKE, a);
	o.flags |= BATCH_OLD_FOLDER | BATCH_RESET;
	int r = add_with_xattrs(x, e, &o);
	return r < 0 ? r : remember_times(x, a);
}

/* ---- files ---- */

/* Where a content goes: into the stage, or as it comes into a file. */
struct sink {
	uint64_t number; /* 0: the file's */
	int fd;
};

static int write_at(struct extract *x, const struct sink *to, const uint8_t *p, size_t n,
		    uint64_t off)
{
	x->st.bytes += n;
	if (to->number)
		return archive_stage_data(&x->stage, to->number, off, p, n);
	while (n > 0) {
		ssize_t w = pwrite(to->fd, p, n, (off_t)off);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return failed(x, -errno, "write");
		p += w;
		n -= (size_t)w;
		off += (uint64_t)w;
	}
	return 0;
}

/* More than the member's head says is no content: a zip inflates it all before it looks, and what
 * is staged as a small one is in memory, beyond any quota. */
static bool is_too_long(struct archive_entry *e, uint64_t off, uint64_t n)
{
	return archive_entry_size_is_set(e) && off + n > (uint64_t)archive_entry_size(e);
}

static int read_content(struct extract *x, struct archive_entry *e, const struct sink *to)
{
	uint64_t end = 0;
	int r = 0;
	if (to->number && archive_entry_size_is_set(e) && archive_entry_size(e) > 0 &&
	    archive_entry_sparse_count(e) == 0)
		r = archive_stage_expect(&x->stage, to->number, (uint64_t)archive_entry_size(e));
	while (r == 0) {
		const void *data;
		size_t n;
		la_int64_t off;
		int got = archive_read_data_block(x->rd.a, &data, &n, &off);
		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK)
			return archive_reader_error(&x->rd, SHOW(path_of(x)));
		if (off < 0 || (n > 0 && (uint64_t)off < end) ||
		    (uint64_t)off > (uint64_t)INT64_MAX - n)
			return archive_reader_refuse(&x->rd, path_of(x),
						     "its parts are out of order");
		if (is_too_long(e, (uint64_t)off, n))
			return archive_reader_refuse(&x->rd, path_of(x),
						     "its content is longer than it says");
		r = write_at(x, to, data, n, (uint64_t)off);
		end = n > 0 ? (uint64_t)off + n : end;
	}
	uint64_t size = end;
	if (archive_entry_size_is_set(e) && archive_entry_size(e) >= 0)
		size = (uint64_t)archive_entry_size(e);
	if (r < 0)
		return r;
	if (to->number)
		return archive_stage_file_end(&x->stage, to->number, size > end ? size : end);
	if (size != end && ftruncate(to->fd, (off_t)size) < 0) /* it ends in a hole */
		return failed(x, -errno, "write");
	return 0;
}

/* What was staged of a file before a failure isn't one. */
static int write_content(struct extract *x, struct archive_entry *e, const struct sink *to)
{
	int r = read_content(x, e, to);
	if (r < 0 && to->number)
		archive_stage_file_drop(&x->stage, to->number);
	return r;
}

/* A large one, or one of unknown size. */
static int put_large(struct extract *x, struct archive_entry *e, struct batch_op *o)
{
	struct stat st;
	auto_fd fd = place_unnamed(x->place);
	const struct sink to = { .fd = fd };
	int r = fd < 0 ? failed(x, fd, "make") : write_content(x, e, &to);
	if (r == 0 && fstat(fd, &st) < 0)
		r = failed(x, -errno, "look at");
	o->file = r == 0 ? ino_meant(st.st_ino) : 0;
	if (r == 0)
		r = add_with_xattrs(x, e, o);
	return r < 0 ? r : archive_stage_flush(&x->stage);
}

static int put_file(struct extract *x, struct archive_entry *e, const struct attr *a)
{
	struct batch_op o = op_of(x, BATCH_PUT, a);
	bool small = archive_entry_size_is_set(e) && archive_entry_size(e) <= STAGE_SMALL;
	struct sink to = { .fd = -1 };
	if (!small && !x->stage.atomic)
		return put_large(x, e, &o);
	int r = archive_stage_file(&x->stage, o.path, &to.number);
	o.flags |= BATCH_CONTENT;
	o.file = to.number;
	if (r == 0)
		r = write_content(x, e, &to);
	return r < 0 ? r : add_with_xattrs(x, e, &o);
}

/* ---- other members ---- */

static int put_other(struct extract *x, struct archive_entry *e, const struct attr *a)
{
	struct batch_op o = op_of(x, BATCH_MAKE, a);
	const char *target = S_ISLNK(a->mode) ? archive_entry_symlink(e) : NULL;
	o.other = target;
	o.other_len = target ? strlen(target) : 0;
	if (S_ISLNK(a->mode) && (o.other_len == 0 || o.other_len > ARCHIVE_TARGET_MAX))
		return archive_reader_refuse(&x->rd, path_of(x),
					     "a symlink whose target is empty or too long");
	if ((S_ISCHR(a->mode) || S_ISBLK(a->mode)) && geteuid() != 0)
		return failed(x, -EPERM, "make");
	return archive_stage_add(&x->stage, &o);
}

/* The file that has the name is there already. */
static int put_content_again(struct extract *x, struct archive_entry *e)
{
	auto_found f = { .fd = -1 };
	int r = archive_stage_flush(&x->stage);
	if (r == 0)
		r = place_find(x->place, path_of(x), &f, x->err);
	if (r < 0 || !S_ISREG(f.mode))
		return r;
	char path[32];
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f.fd);
	auto_fd fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return failed(x, -errno, "open");
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, f.mtime };
	const struct sink to = { .fd = fd };
	r = write_content(x, e, &to);
	if (r == 0 && futimens(fd, times) < 0)
		r = failed(x, -errno, "set the times of");
	return r;
}

/* cpio may give the content with the last name of a file, pax with each of them: it is that of the
 * file that the link leads to. */
static int put_linked_content(struct extract *x, struct archive_entry *e, const char *target)
{
	struct sink to = { .fd = -1 };
	if (!archive_entry_size_is_set(e) || archive_entry_size(e) <= 0)
		return 0;
	bool small = x->stage.atomic || archive_entry_size(e) <= STAGE_SMALL;
	int r = small ? archive_stage_file_again(&x->stage, target, &to.number) : -ENOENT;
	if (r == 0)
		return write_content(x, e, &to);
	if (x->stage.atomic)
		return archive_reader_refuse(&x->rd, archive_entry_pathname(e),
					     "content for a file that isn't in the archive");
	return put_content_again(x, e);
}

/* One more name of a member before, or of what was there already. */
static int put_hard_link(struct extract *x, struct archive_entry *e)
{
	const char *member = archive_entry_pathname(e);
	if (!archive_reader_links(&x->rd))
		return archive_reader_refuse(&x->rd, member,
					     "a hard link in a format that has none");
	int r = set_path(x, archive_entry_hardlink(e), "hard link's target");
	auto_free char *target = r == 0 ? strdup(path_of(x)) : NULL;
	if (r == 0 && !target)
		r = out_of_memory(x);
	if (r == 0)
		r = set_path(x, member, "name");
	if (r < 0)
		return r;
	struct batch_op o = op_of(x, BATCH_LINK, NULL);
	o.other = target;
	o.other_len = strlen(target);
	r = archive_stage_add(&x->stage, &o);
	return r < 0 ? r : put_linked_content(x, e, target);
}

static int member(struct extract *x, struct archive_entry *e)
{
	const char *path = archive_entry_pathname(e);
	struct attr a;
	if (archive_entry_hardlink(e))
		return put_hard_link(x, e);
	int r = archive_reader_attr(&x->rd, e, path, &a);
	if (r == 0)
		r = set_path(x, path, "name");
	if (r < 0)
		return r;
	bool root = x->path.len <= x->base.len || !*path_of(x);
	if (root && !S_ISDIR(a.mode))
		return archive_reader_refuse(&x->rd, path, "the root must be a folder");
	if (root && (!x->top || !*path_of(x)))
		return 0; /* where it is extracted stays as it is */
	return S_ISDIR(a.mode)   ? put_dir(x, e, &a)
	       : S_ISREG(a.mode) ? put_file(x, e, &a)
				 : put_other(x, e, &a);
}

/* A failure keeps what came before it, where that isn't one step. */
static int keep(struct extract *x, int r)
{
	struct err why = *x->err;
	if (!x->stage.atomic && archive_stage_flush(&x->stage) < 0)
		return x->err->code; /* of a member before */
	*x->err = why;
	return r;
}

static int extract_all(struct extract *x)
{
	struct archive_entry *e;
	int r;
	while ((r = archive_reader_next(&x->rd, &e)) > 0) {
		r = member(x, e);
		if (r == 0)
			r = archive_stage_settle(&x->stage);
		if (r < 0)
			return keep(x, r);
	}
	if (r == 0)
		r = archive_reader_finish(&x->rd);
	if (r < 0)
		return keep(x, r);
	r = archive_stage_flush(&x->stage);
	return r < 0 ? r : set_dir_times(x);
}

static int look_at_workspace(struct extract *x)
{
	struct fs_usage u;
	int r = fs_usage(x->place->sd->fs, x->place->src.ws.id, &u, x->err);
	x->no_xattrs = r >= 0 && !u.xattrs;
	return r < 0 ? r : 0;
}

int archive_extract(const struct place *place, const char *path, const char *scratch,
		    const struct archive_extract_options *opt, const struct archive_source *src,
		    struct archive_extract_stats *st, struct err *err)
{
	struct extract x = { .place = place, .top = opt->top, .err = err, .stage.spool = -1 };
	const struct archive_reader_options ro = { .scratch = scratch };
	x.rd.spool = -1;
	buf_add(&x.base, path, strlen(path));
	if (*path)
		buf_u8(&x.base, '/');
	int r = buf_error(&x.base) ? out_of_memory(&x) : look_at_workspace(&x);
	if (r == 0)
		r = archive_stage_init(&x.stage, place, opt->atomic ? scratch : NULL, err);
	if (r == 0)
		r = archive_reader_open(&x.rd, &ro, src, err);
	if (r == 0)
		r = extract_all(&x);
	archive_reader_close(&x.rd);
	x.st.members = x.rd.members;
	x.st.ignored_xattrs += x.rd.ignored_xattrs;
	x.st.ignored_acls = x.rd.ignored_acls;
	archive_stage_done(&x.stage);
	buf_done(&x.base);
	buf_done(&x.path);
	buf_done(&x.dir_times);
	*st = x.st;
	return r < 0 ? err_prefix(err, r, "extract") : 0;
}
