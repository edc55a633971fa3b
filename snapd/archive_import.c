#include "snapd/archive_import.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/image/image.h"
#include "snapd/archive_intake.h"
#include "snapd/archive_lib.h"
#include "snapd/archive_tree.h"

enum {
	READ_BYTES = 256 * 1024,
	PROGRESS_MS = 100,
	DRAIN_BYTES = 16 << 20, /* read behind the archive's end, so that the sender can finish */
	TAR_BLOCK = 512,
	TARGET_MAX = 4095,      /* bytes of a symlink's target, as Linux has it */
	XATTR_NAME_BYTES = 255, /* as Linux has it … */
	XATTR_VALUE_BYTES = 65536,
	MAJOR_LIMIT = 1 << 12, /* device numbers that fit in 32 bits */
	MINOR_LIMIT = 1 << 20,
	/* libarchive searches a list for each linked file of a cpio: this many take seconds. */
	CPIO_LINKED_MAX = 65536,
};

/* Beyond what any file system holds; libarchive has the ends of the range for "malformed". */
#define SECONDS_LIMIT ((time_t)1 << 40)

struct import {
	const struct archive_import_options *opt;
	const struct archive_source *src;
	struct archive_import_stats st;
	struct err *err;

	struct archive *a;
	struct image_builder *b;
	struct archive_tree tree;
	struct intake *in;
	uint8_t *buf;        /* READ_BYTES; the source's bytes on their way to libarchive */
	size_t peeked;       /* bytes in buf that were read to see what it is */
	struct err src_err;  /* the source's own failure */
	struct timespec now; /* of the import: for what the archive doesn't say */
	uint64_t told_ms;    /* when progress was called last */
	uint64_t cpio_linked;
	uint64_t data_end; /* place in the unpacked archive behind the last member's content */
};

/* ---- the source ---- */

static ssize_t source_read(struct import *im, void *buf, size_t n)
{
	ssize_t r = im->src->read(im->src->ctx, buf, n, &im->src_err);
	if (r > 0)
		im->st.archive_bytes += (uint64_t)r;
	return r;
}

static la_ssize_t on_read(struct archive *a, void *ctx, const void **out)
{
	struct import *im = ctx;
	*out = im->buf;
	if (im->peeked) {
		size_t n = im->peeked;
		im->peeked = 0;
		return (la_ssize_t)n;
	}
	ssize_t n = source_read(im, im->buf, READ_BYTES);
	if (n < 0) {
		archive_set_error(a, (int)-n, "%s", im->src_err.text);
		return -1;
	}
	return n;
}

/* Sees what the source begins with. */
static int source_peek(struct import *im)
{
	while (im->peeked < TAR_BLOCK) {
		ssize_t n = source_read(im, im->buf + im->peeked, READ_BYTES - im->peeked);
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		im->peeked += (size_t)n;
	}
	return 0;
}

static void source_drain(struct import *im)
{
	ssize_t n = 1;
	for (uint64_t sum = 0; n > 0 && sum < DRAIN_BYTES; sum += (uint64_t)n)
		n = source_read(im, im->buf, READ_BYTES); /* a failure here loses nothing */
	im->src_err = (struct err){ 0 };
}

static bool is_zip(const struct import *im)
{
	return im->peeked >= 4 && im->buf[0] == 'P' && im->buf[1] == 'K' &&
	       (memcmp(im->buf + 2, "\3\4", 2) == 0 || memcmp(im->buf + 2, "\5\6", 2) == 0);
}

/* ---- opening ---- */

/* The error of libarchive, or that of the source where it was the cause. */
static int read_err(struct import *im, const char *what)
{
	if (im->src_err.code < 0) {
		if (im->err)
			*im->err = im->src_err;
		return im->src_err.code;
	}
	return archive_err(im->err, im->a, -EBADMSG, "%s", what);
}

/* A zip's directory is at its end: the whole of it goes into a file without a name. */
static int zip_spool(struct import *im, int fd)
{
	uint64_t limit = UINT64_MAX, at = 0;
	if (im->opt->max_bytes)
		limit = im->opt->max_bytes + im->opt->max_bytes / 8 + (64 << 20);
	size_t n = im->peeked;
	while (n > 0) {
		if (at + n > limit)
			return err_set(im->err, -EFBIG, "the archive is larger than %llu bytes",
				       (unsigned long long)limit);
		int w = io_write_full(NULL, fd, im->buf, n, at);
		if (w < 0)
			return err_sys(im->err, w, "write a temporary file");
		at += n;
		ssize_t r = source_read(im, im->buf, READ_BYTES);
		if (r < 0)
			return read_err(im, "read");
		n = (size_t)r;
	}
	im->peeked = 0;
	return 0;
}

static int zip_open(struct import *im, int *spool)
{
	int fd = open(im->opt->scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(im->err, -errno, "make a temporary file in %s", im->opt->scratch);
	*spool = fd;
	int r = zip_spool(im, fd);
	if (r < 0)
		return r;
	if (archive_read_support_format_zip_seekable(im->a) != ARCHIVE_OK ||
	    archive_read_open_fd(im->a, fd, READ_BYTES) != ARCHIVE_OK)
		return read_err(im, "this zip can't be read");
	return 0;
}

static int stream_open(struct import *im)
{
	int (*const supports[])(struct archive *) = {
		archive_read_support_format_tar,      archive_read_support_format_cpio,
		archive_read_support_filter_gzip,     archive_read_support_filter_bzip2,
		archive_read_support_filter_xz,       archive_read_support_filter_lzma,
		archive_read_support_filter_zstd,     archive_read_support_filter_lz4,
		archive_read_support_filter_compress,
	};
	for (size_t i = 0; i < sizeof(supports) / sizeof(supports[0]); i++)
		if (supports[i](im->a) == ARCHIVE_FATAL)
			return read_err(im, "libarchive");
	if (archive_read_open(im->a, im, NULL, on_read, NULL) != ARCHIVE_OK)
		return read_err(im, "this is no archive that can be read");
	return 0;
}

/* ---- members ---- */

static int cancelled(struct import *im)
{
	if (!im->opt->progress)
		return 0;
	uint64_t ms = clock_ms();
	if (im->told_ms && ms - im->told_ms < PROGRESS_MS)
		return 0;
	im->told_ms = ms;
	if (im->opt->progress(im->opt->progress_ctx, im->st.archive_bytes, im->st.members) == 0)
		return 0;
	return err_set(im->err, -ECANCELED, "the import was cancelled");
}

static int refuse(struct import *im, const char *path, const char *why)
{
	return err_set(im->err, -EBADMSG, "'%s': %s", SHOW(path), why);
}

static int owner(int64_t id, uint32_t *out)
{
	/* Negative ones are how some write "nobody"; -1 means none to every call of Linux. */
	if (id < INT32_MIN || id > UINT32_MAX || (uint32_t)id == UINT32_MAX)
		return -EBADMSG;
	*out = (uint32_t)id;
	return 0;
}

static struct timespec member_time(struct import *im, time_t sec, long nsec)
{
	struct timespec t = { sec, nsec };
	return (archive_format(im->a) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR
		       ? archive_time_from_pax(t)
		       : t;
}

static bool time_ok(time_t sec)
{
	return sec >= -SECONDS_LIMIT && sec <= SECONDS_LIMIT;
}

static int attributes(struct import *im, struct archive_entry *e, const char *path, struct attr *a)
{
	*a = (struct attr){
		.mode = archive_entry_filetype(e) | (archive_entry_perm(e) & 07777),
		.mtime = im->now,
		.ctime = im->now,
		.btime = im->now,
		/* A moment later than the others: by relatime's rule a first read then leaves it
		 * alone, and reading a fresh tree changes nothing. */
		.atime = { im->now.tv_sec, im->now.tv_nsec + 1 },
	};
	if (owner(archive_entry_uid(e), &a->uid) < 0 || owner(archive_entry_gid(e), &a->gid) < 0)
		return refuse(im, path, "its owner's number is out of range");
	if (im->opt->squash_owner) {
		a->uid = im->opt->uid;
		a->gid = im->opt->gid;
	}
	if (archive_entry_mtime_is_set(e))
		a->mtime = member_time(im, archive_entry_mtime(e), archive_entry_mtime_nsec(e));
	if (archive_entry_atime_is_set(e))
		a->atime = member_time(im, archive_entry_atime(e), archive_entry_atime_nsec(e));
	if (archive_entry_birthtime_is_set(e))
		a->btime = member_time(im, archive_entry_birthtime(e),
				       archive_entry_birthtime_nsec(e));
	if (!time_ok(a->mtime.tv_sec) || !time_ok(a->atime.tv_sec) || !time_ok(a->btime.tv_sec))
		return refuse(im, path, "a time of it is out of range");
	switch (a->mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
	case S_IFIFO:
	case S_IFSOCK:
		return 0;
	case S_IFCHR:
	case S_IFBLK:
		break;
	default:
		return refuse(im, path, "a member of an unknown type");
	}
	dev_t major_id = archive_entry_rdevmajor(e), minor_id = archive_entry_rdevminor(e);
	if (major_id >= MAJOR_LIMIT || minor_id >= MINOR_LIMIT)
		return refuse(im, path, "its device number is out of range");
	a->rdev = (uint32_t)makedev((unsigned)major_id, (unsigned)minor_id);
	return 0;
}

/* Reads the member's content; *size is how long the file is. */
static int content(struct import *im, struct archive_entry *e, const char *path, uint64_t ino,
		   uint64_t *size)
{
	uint64_t end = 0;
	int r = intake_begin(im->in, ino, im->err);
	while (r == 0) {
		const void *data;
		size_t n;
		la_int64_t off;
		int got = archive_read_data_block(im->a, &data, &n, &off);
		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK)
			return read_err(im, SHOW(path));
		r = off < 0 ? err_set(im->err, -EBADMSG, "its parts are out of order")
			    : intake_data(im->in, (uint64_t)off, data, n, im->err);
		if (r == 0 && n > 0)
			end = (uint64_t)off + n;
		if (r == 0)
			r = cancelled(im);
	}
	*size = archive_entry_size_is_set(e) && archive_entry_size(e) >= 0
			? (uint64_t)archive_entry_size(e)
			: end;
	if (r == 0)
		r = intake_end(im->in, *size, im->err);
	if (r == -EBADMSG)
		return err_prefix(im->err, r, "'%s'", SHOW(path));
	return r;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
				      : -1;
}

/* In a tar's SCHILY.xattr, libarchive writes what isn't printable, '%' and '=' as %XX, GNU tar the
 * last two; libarchive decodes that only in records of its own. False: no name. */
static bool xattr_name(const struct import *im, const char *given, char out[XATTR_NAME_BYTES + 1])
{
	bool tar = (archive_format(im->a) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
	size_t n = 0;
	for (const char *p = given; p && *p; p++) {
		int high = tar && *p == '%' ? hex_digit(p[1]) : -1;
		int low = high >= 0 ? hex_digit(p[2]) : -1;
		if (n == XATTR_NAME_BYTES || (high == 0 && low == 0))
			return false;
		out[n++] = low >= 0 ? (char)(high << 4 | low) : *p;
		p += low >= 0 ? 2 : 0;
	}
	out[n] = '\0';
	return n > 0;
}

static int xattrs(struct import *im, struct archive_entry *e, const char *path, uint64_t ino)
{
	static const char *const spaces[] = { "user.", "security.", "trusted." };
	const char *given;
	char name[XATTR_NAME_BYTES + 1];
	const void *value;
	size_t len;
	if (archive_entry_acl_types(e) &
	    (ARCHIVE_ENTRY_ACL_TYPE_POSIX1E | ARCHIVE_ENTRY_ACL_TYPE_NFS4))
		im->st.ignored_acls++;
	(void)archive_entry_xattr_reset(e); /* gives their number */
	while (archive_entry_xattr_next(e, &given, &value, &len) == ARCHIVE_OK) {
		bool is_name = xattr_name(im, given, name), known = false;
		for (size_t i = 0; is_name && i < sizeof(spaces) / sizeof(spaces[0]); i++)
			known |= strncmp(name, spaces[i], strlen(spaces[i])) == 0 &&
				 name[strlen(spaces[i])];
		if (!known || len > XATTR_VALUE_BYTES) {
			im->st.ignored_xattrs++;
			continue;
		}
		int r = image_add_xattr(im->b, ino, name, len ? value : "", len);
		if (r < 0)
			return err_sys(im->err, r, "'%s': an xattr", SHOW(path));
	}
	return 0;
}

static int hard_link(struct import *im, struct archive_entry *e, const char *path)
{
	uint64_t ino, size;
	if ((archive_format(im->a) & ARCHIVE_FORMAT_BASE_MASK) != ARCHIVE_FORMAT_TAR &&
	    (archive_format(im->a) & ARCHIVE_FORMAT_BASE_MASK) != ARCHIVE_FORMAT_CPIO)
		return refuse(im, path, "a hard link in a format that has none");
	int r = archive_tree_link(&im->tree, path, archive_entry_hardlink(e), &ino, im->err);
	if (r < 0)
		return r;
	/* cpio may give the content with the last name of a file, pax with each of them. */
	struct attr *a = image_builder_attr(im->b, ino);
	if (!S_ISREG(a->mode) || !archive_entry_size_is_set(e) || archive_entry_size(e) <= 0)
		return 0;
	r = content(im, e, path, ino, &size);
	if (r == 0)
		a->size = size;
	return r;
}

static int member(struct import *im, struct archive_entry *e)
{
	struct attr a;
	uint64_t ino;
	const char *path = archive_entry_pathname(e);
	if (!path)
		return err_set(im->err, -EBADMSG, "member %llu has a name that can't be read",
			       (unsigned long long)im->st.members);
	if (archive_entry_is_encrypted(e))
		return refuse(im, path, "it is encrypted");
	if (archive_entry_hardlink(e))
		return hard_link(im, e, path);
	int r = attributes(im, e, path, &a);
	if (r == 0)
		r = archive_tree_put(&im->tree, path, &a, &ino, im->err);
	if (r < 0)
		return r;
	if (S_ISREG(a.mode)) {
		r = content(im, e, path, ino, &a.size);
		if (r == 0)
			image_builder_attr(im->b, ino)->size = a.size;
	} else if (S_ISLNK(a.mode)) {
		const char *target = archive_entry_symlink(e);
		size_t len = target ? strlen(target) : 0;
		if (len == 0 || len > TARGET_MAX)
			return refuse(im, path, "a symlink whose target is empty or too long");
		if (image_add_target(im->b, ino, target, len) < 0)
			r = err_set(im->err, -ENOMEM, "out of memory");
	}
	return r < 0 ? r : xattrs(im, e, path, ino);
}

/* What libarchive warns of is lost or wrong, and then the archive isn't taken; but that a name
 * doesn't convert to the C locale is how its bytes stay as they are. */
static bool is_harmless(struct import *im)
{
	const char *s = archive_error_string(im->a);
	return s && strstr(s, "can't be converted from");
}

static int cpio_bound(struct import *im, struct archive_entry *e)
{
	if ((archive_format(im->a) & ARCHIVE_FORMAT_BASE_MASK) != ARCHIVE_FORMAT_CPIO ||
	    archive_entry_hardlink(e) || archive_entry_nlink(e) < 2 ||
	    archive_entry_filetype(e) == AE_IFDIR)
		return 0;
	if (++im->cpio_linked > CPIO_LINKED_MAX)
		return err_set(im->err, -EFBIG, "a cpio archive with more than %d linked files",
			       CPIO_LINKED_MAX);
	return 0;
}

static int members(struct import *im)
{
	for (;;) {
		struct archive_entry *e;
		int got = archive_read_next_header(im->a, &e);
		if (got == ARCHIVE_EOF)
			return 0;
		if (got != ARCHIVE_OK && !(got == ARCHIVE_WARN && is_harmless(im)))
			return read_err(im, im->st.members ? "the archive is damaged"
							   : "this is no archive that can be read");
		im->st.members++;
		int r = cpio_bound(im, e);
		if (r == 0)
			r = member(im, e);
		if (r == 0)
			r = cancelled(im);
		if (r < 0)
			return r;
		im->data_end = (uint64_t)archive_filter_bytes(im->a, 0);
	}
}

/* libarchive takes a tar that ends between two members for whole. Its end is marked by a block of
 * zeros: behind the last content's padding, which is less than a block. */
static int check_end(struct import *im)
{
	int base = archive_format(im->a) & ARCHIVE_FORMAT_BASE_MASK;
	if (base == ARCHIVE_FORMAT_ZIP || base == ARCHIVE_FORMAT_CPIO)
		return 0;
	uint64_t end = (uint64_t)archive_filter_bytes(im->a, 0);
	if (end - im->data_end < TAR_BLOCK)
		return err_set(im->err, -EBADMSG, "the archive ends too early, behind member %llu",
			       (unsigned long long)im->st.members);
	return 0;
}

/* ---- the whole ---- */

static int read_archive(struct import *im)
{
	int r = source_peek(im);
	if (r < 0)
		return read_err(im, "read");
	bool zip = is_zip(im);
	auto_fd spool = -1;
	auto_archive_locale locale = archive_locale_set(zip);
	im->a = archive_read_new();
	if (!im->a)
		return err_set(im->err, -ENOMEM, "out of memory");
	im->tree.unique = zip; /* names that libarchive composes alike must not hide each other */
	r = zip ? zip_open(im, &spool) : stream_open(im);
	if (r == 0)
		r = members(im);
	if (r == 0)
		r = check_end(im);
	(void)archive_read_free(im->a); /* only read */
	im->a = NULL;
	if (r == 0)
		source_drain(im);
	return r;
}

static int tree_begin(struct import *im)
{
	const struct archive_import_options *opt = im->opt;
	(void)clock_gettime(CLOCK_REALTIME, &im->now); /* can't fail */
	if (im->now.tv_nsec == 999999999)
		im->now.tv_nsec--; /* atime is one more */
	im->buf = malloc(READ_BYTES);
	if (!im->buf)
		return err_set(im->err, -ENOMEM, "out of memory");
	int r = image_builder_new(&im->b, opt->seed, im->err);
	if (r == 0)
		r = intake_new(&im->in, opt->session, im->b, opt->max_bytes, im->err);
	if (r < 0)
		return r;
	im->tree = (struct archive_tree){
		.b = im->b,
		.reserve = opt->reserve,
		.reserve_ctx = opt->reserve_ctx,
		.max_inodes = opt->max_inodes,
		.implied = { .mode = S_IFDIR | 0755,
			     .uid = opt->uid,
			     .gid = opt->gid,
			     .atime = { im->now.tv_sec, im->now.tv_nsec + 1 },
			     .mtime = im->now,
			     .ctime = im->now,
			     .btime = im->now },
	};
	return archive_tree_root(&im->tree, im->err);
}

/* Contents first, durable; then the image that leads to them. */
static int publish(struct import *im, struct digest *image)
{
	const struct archive_import_options *opt = im->opt;
	int r = intake_finish(im->in, im->err);
	if (r == 0)
		r = store_sync(opt->session, im->err);
	if (r == 0)
		r = image_finish(im->b, opt->io, opt->images, image, im->err);
	return r;
}

/* Reads from the finished image what it holds: members may have replaced each other. */
static int tally(struct import *im, const struct digest *name)
{
	struct image *image;
	struct attr a;
	int r = image_open(&image, im->opt->io, im->opt->images, name, im->err);
	if (r < 0)
		return r;
	im->st.inodes = image_info(image)->inodes;
	im->st.bytes = image_info(image)->file_bytes;
	im->st.data_bytes = image_info(image)->data_bytes;
	for (uint64_t ino = 0; (r = image_inode_ceil(image, ino, &a)) == 0; ino = a.ino + 1)
		im->st.files += S_ISREG(a.mode);
	image_unref(image);
	return r == -ENOENT ? 0 : err_sys(im->err, r, "read the new image");
}

int archive_import(struct digest *image, const struct archive_import_options *opt,
		   const struct archive_source *src, struct archive_import_stats *st,
		   struct err *err)
{
	struct import im = { .opt = opt, .src = src, .err = err };
	struct digest made;
	int r = tree_begin(&im);
	if (r == 0)
		r = read_archive(&im);
	if (r == 0)
		r = publish(&im, &made);
	if (r == 0)
		r = tally(&im, &made);
	intake_free(im.in);
	image_builder_free(im.b);
	archive_tree_done(&im.tree);
	free(im.buf);
	if (r < 0)
		return err_prefix(err, r, "import");
	*image = made;
	if (st)
		*st = im.st;
	return 0;
}
