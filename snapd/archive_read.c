#include "snapd/archive_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"

enum {
	READ_BYTES = 256 * 1024,
	REST_BYTES = 64 << 20, /* that may follow the archive's end */
	TAR_BLOCK = 512,
	MAJOR_LIMIT = 1 << 12, /* device numbers that fit in 32 bits */
	MINOR_LIMIT = 1 << 20,
	/* libarchive searches a list for each linked file of a cpio: this many take seconds. */
	CPIO_LINKED_MAX = 65536,
};

/* Beyond what any file system holds; libarchive has the ends of the range for "malformed". */
#define SECONDS_LIMIT ((time_t)1 << 40)

/* ---- the source ---- */

static ssize_t source_read(struct archive_reader *rd, void *buf, size_t n)
{
	ssize_t r = rd->src->read(rd->src->ctx, buf, n, &rd->src_err);
	if (r > 0)
		rd->bytes_read += (uint64_t)r;
	return r;
}

static la_ssize_t on_read(struct archive *a, void *ctx, const void **out)
{
	struct archive_reader *rd = ctx;
	*out = rd->buf;
	if (rd->peeked) {
		size_t n = rd->peeked;
		rd->peeked = 0;
		return (la_ssize_t)n;
	}
	ssize_t n = source_read(rd, rd->buf, READ_BYTES);
	if (n < 0) {
		archive_set_error(a, (int)-n, "%s", rd->src_err.text);
		return -1;
	}
	return n;
}

/* Sees what the source begins with. */
static int source_peek(struct archive_reader *rd)
{
	while (rd->peeked < TAR_BLOCK) {
		ssize_t n = source_read(rd, rd->buf + rd->peeked, READ_BYTES - rd->peeked);
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		rd->peeked += (size_t)n;
	}
	return 0;
}

static bool is_zip(const struct archive_reader *rd)
{
	return rd->peeked >= 4 && rd->buf[0] == 'P' && rd->buf[1] == 'K' &&
	       (memcmp(rd->buf + 2, "\3\4", 2) == 0 || memcmp(rd->buf + 2, "\5\6", 2) == 0);
}

/* ---- opening ---- */

/* The error of libarchive, or that of the source where it was the cause. */
int archive_reader_error(struct archive_reader *rd, const char *what)
{
	if (rd->src_err.code < 0) {
		if (rd->err)
			*rd->err = rd->src_err;
		return rd->src_err.code;
	}
	return archive_err(rd->err, rd->a, -EBADMSG, "%s", what);
}

/* A zip's directory is at its end: the whole of it goes into a file without a name. */
static int zip_spool(struct archive_reader *rd, int fd)
{
	uint64_t limit = UINT64_MAX, at = 0;
	if (rd->opt->max_bytes)
		limit = rd->opt->max_bytes + rd->opt->max_bytes / 8 + (64 << 20);
	size_t n = rd->peeked;
	while (n > 0) {
		if (at + n > limit)
			return err_set(rd->err, -EFBIG, "the archive is larger than %llu bytes",
				       (unsigned long long)limit);
		int w = io_write_full(NULL, fd, rd->buf, n, at);
		if (w < 0)
			return err_sys(rd->err, w, "write a temporary file");
		at += n;
		ssize_t r = source_read(rd, rd->buf, READ_BYTES);
		if (r < 0)
			return archive_reader_error(rd, "read");
		n = (size_t)r;
	}
	rd->peeked = 0;
	return 0;
}

static int zip_open(struct archive_reader *rd)
{
	int fd = open(rd->opt->scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(rd->err, -errno, "make a temporary file in %s", rd->opt->scratch);
	rd->spool = fd;
	int r = zip_spool(rd, fd);
	if (r < 0)
		return r;
	if (archive_read_support_format_zip_seekable(rd->a) != ARCHIVE_OK ||
	    archive_read_open_fd(rd->a, fd, READ_BYTES) != ARCHIVE_OK)
		return archive_reader_error(rd, "this zip can't be read");
	return 0;
}

static int stream_open(struct archive_reader *rd)
{
	int (*const supports[])(struct archive *) = {
		archive_read_support_format_tar,      archive_read_support_format_cpio,
		archive_read_support_filter_gzip,     archive_read_support_filter_bzip2,
		archive_read_support_filter_xz,       archive_read_support_filter_lzma,
		archive_read_support_filter_zstd,     archive_read_support_filter_lz4,
		archive_read_support_filter_compress,
	};
	for (size_t i = 0; i < sizeof(supports) / sizeof(supports[0]); i++)
		if (supports[i](rd->a) == ARCHIVE_FATAL)
			return archive_reader_error(rd, "libarchive");
	if (archive_read_open(rd->a, rd, NULL, on_read, NULL) != ARCHIVE_OK)
		return archive_reader_error(rd, "this is no archive that can be read");
	return 0;
}

/* ---- members ---- */

int archive_reader_refuse(struct archive_reader *rd, const char *path, const char *why)
{
	return err_set(rd->err, -EBADMSG, "'%s': %s", SHOW(path), why);
}

static int owner(int64_t id, uint32_t *out)
{
	/* Negative ones are how some write "nobody"; -1 means none to every call of Linux. */
	if (id < INT32_MIN || id > UINT32_MAX || (uint32_t)id == UINT32_MAX)
		return -EBADMSG;
	*out = (uint32_t)id;
	return 0;
}

static struct timespec member_time(struct archive_reader *rd, time_t sec, long nsec)
{
	struct timespec t = { sec, nsec };
	return (archive_format(rd->a) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR
		       ? archive_time_from_pax(t)
		       : t;
}

static bool time_ok(time_t sec)
{
	return sec >= -SECONDS_LIMIT && sec <= SECONDS_LIMIT;
}

int archive_reader_attr(struct archive_reader *rd, struct archive_entry *e, const char *path,
			struct attr *a)
{
	*a = (struct attr){
		.mode = archive_entry_filetype(e) | (archive_entry_perm(e) & 07777),
		.mtime = rd->now,
		.ctime = rd->now,
		.btime = rd->now,
		/* A moment later than the others: by relatime's rule a first read then leaves it
		 * alone, and reading a fresh tree changes nothing. */
		.atime = { rd->now.tv_sec, rd->now.tv_nsec + 1 },
	};
	if (owner(archive_entry_uid(e), &a->uid) < 0 || owner(archive_entry_gid(e), &a->gid) < 0)
		return archive_reader_refuse(rd, path, "its owner's number is out of range");
	if (rd->opt->squash_owner) {
		a->uid = rd->opt->uid;
		a->gid = rd->opt->gid;
	}
	if (archive_entry_mtime_is_set(e))
		a->mtime = member_time(rd, archive_entry_mtime(e), archive_entry_mtime_nsec(e));
	if (archive_entry_atime_is_set(e))
		a->atime = member_time(rd, archive_entry_atime(e), archive_entry_atime_nsec(e));
	if (archive_entry_birthtime_is_set(e))
		a->btime = member_time(rd, archive_entry_birthtime(e),
				       archive_entry_birthtime_nsec(e));
	if (!time_ok(a->mtime.tv_sec) || !time_ok(a->atime.tv_sec) || !time_ok(a->btime.tv_sec))
		return archive_reader_refuse(rd, path, "a time of it is out of range");
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
		return archive_reader_refuse(rd, path, "a member of an unknown type");
	}
	dev_t major_id = archive_entry_rdevmajor(e), minor_id = archive_entry_rdevminor(e);
	if (major_id >= MAJOR_LIMIT || minor_id >= MINOR_LIMIT)
		return archive_reader_refuse(rd, path, "its device number is out of range");
	a->rdev = (uint32_t)makedev((unsigned)major_id, (unsigned)minor_id);
	return 0;
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
static bool xattr_name(const struct archive_reader *rd, const char *given,
		       char out[ARCHIVE_XATTR_NAME + 1])
{
	bool tar = (archive_format(rd->a) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
	size_t n = 0;
	for (const char *p = given; p && *p; p++) {
		int high = tar && *p == '%' ? hex_digit(p[1]) : -1;
		int low = high >= 0 ? hex_digit(p[2]) : -1;
		if (n == ARCHIVE_XATTR_NAME || (high == 0 && low == 0))
			return false;
		out[n++] = low >= 0 ? (char)(high << 4 | low) : *p;
		p += low >= 0 ? 2 : 0;
	}
	out[n] = '\0';
	return n > 0;
}

int archive_reader_xattrs(struct archive_reader *rd, struct archive_entry *e,
			  int (*fn)(void *ctx, const char *name, const void *value, size_t len),
			  void *ctx)
{
	static const char *const spaces[] = { "user.", "security.", "trusted." };
	const char *given;
	char name[ARCHIVE_XATTR_NAME + 1];
	const void *value;
	size_t len;
	if (archive_entry_acl_types(e) &
	    (ARCHIVE_ENTRY_ACL_TYPE_POSIX1E | ARCHIVE_ENTRY_ACL_TYPE_NFS4))
		rd->ignored_acls++;
	(void)archive_entry_xattr_reset(e); /* gives their number */
	while (archive_entry_xattr_next(e, &given, &value, &len) == ARCHIVE_OK) {
		bool is_name = xattr_name(rd, given, name), known = false;
		for (size_t i = 0; is_name && i < sizeof(spaces) / sizeof(spaces[0]); i++)
			known |= strncmp(name, spaces[i], strlen(spaces[i])) == 0 &&
				 name[strlen(spaces[i])];
		if (!known || len > ARCHIVE_XATTR_VALUE) {
			rd->ignored_xattrs++;
			continue;
		}
		int r = fn(ctx, name, len ? value : "", len);
		if (r < 0)
			return r;
	}
	return 0;
}

bool archive_reader_links(const struct archive_reader *rd)
{
	int base = archive_format(rd->a) & ARCHIVE_FORMAT_BASE_MASK;
	return base == ARCHIVE_FORMAT_TAR || base == ARCHIVE_FORMAT_CPIO;
}

/* What libarchive warns of is lost or wrong, and then the archive isn't taken; but that a name
 * doesn't convert to the C locale is how its bytes stay as they are. */
static bool is_harmless(struct archive_reader *rd)
{
	const char *s = archive_error_string(rd->a);
	return s && strstr(s, "can't be converted from");
}

static int cpio_bound(struct archive_reader *rd, struct archive_entry *e)
{
	if ((archive_format(rd->a) & ARCHIVE_FORMAT_BASE_MASK) != ARCHIVE_FORMAT_CPIO ||
	    archive_entry_hardlink(e) || archive_entry_nlink(e) < 2 ||
	    archive_entry_filetype(e) == AE_IFDIR)
		return 0;
	if (++rd->cpio_linked > CPIO_LINKED_MAX)
		return err_set(rd->err, -EFBIG, "a cpio archive with more than %d linked files",
			       CPIO_LINKED_MAX);
	return 0;
}

int archive_reader_next(struct archive_reader *rd, struct archive_entry **out)
{
	struct archive_entry *e;
	if (rd->members)
		rd->data_end = (uint64_t)archive_filter_bytes(rd->a, 0);
	int got = archive_read_next_header(rd->a, &e);
	if (got == ARCHIVE_EOF)
		return 0;
	if (got != ARCHIVE_OK && !(got == ARCHIVE_WARN && is_harmless(rd)))
		return archive_reader_error(rd, rd->members
							? "the archive is damaged"
							: "this is no archive that can be read");
	rd->members++;
	if (!archive_entry_pathname(e))
		return err_set(rd->err, -EBADMSG, "member %llu has a name that can't be read",
			       (unsigned long long)rd->members);
	if (archive_entry_is_encrypted(e))
		return archive_reader_refuse(rd, archive_entry_pathname(e), "it is encrypted");
	int r = cpio_bound(rd, e);
	*out = e;
	return r < 0 ? r : 1;
}

/* libarchive takes a tar that ends between two members for whole. Its end is marked by a block of
 * zeros: behind the last content's padding, which is less than a block. */
static int check_end(struct archive_reader *rd)
{
	int base = archive_format(rd->a) & ARCHIVE_FORMAT_BASE_MASK;
	if (base == ARCHIVE_FORMAT_ZIP || base == ARCHIVE_FORMAT_CPIO)
		return 0;
	uint64_t end = (uint64_t)archive_filter_bytes(rd->a, 0);
	if (end - rd->data_end < TAR_BLOCK)
		return err_set(rd->err, -EBADMSG, "the archive ends too early, behind member %llu",
			       (unsigned long long)rd->members);
	return 0;
}

/* The archive may end before its source does, but a source that breaks off is none: who sent it is
 * never told that it was taken. */
static int read_rest(struct archive_reader *rd)
{
	uint64_t sum = 0;
	ssize_t n;
	while ((n = source_read(rd, rd->buf, READ_BYTES)) > 0)
		if ((sum += (uint64_t)n) > REST_BYTES)
			return err_set(rd->err, -EBADMSG, "more than %d MiB behind its end",
				       REST_BYTES >> 20);
	return n < 0 ? archive_reader_error(rd, "read") : 0;
}

/* ---- the whole ---- */

int archive_reader_open(struct archive_reader *rd, const struct archive_reader_options *opt,
			const struct archive_source *src, struct err *err)
{
	*rd = (struct archive_reader){ .opt = opt, .src = src, .err = err, .spool = -1 };
	(void)clock_gettime(CLOCK_REALTIME, &rd->now); /* can't fail */
	if (rd->now.tv_nsec == 999999999)
		rd->now.tv_nsec--; /* atime is one more */
	rd->buf = malloc(READ_BYTES);
	if (!rd->buf)
		return err_no_memory(err);
	int r = source_peek(rd);
	if (r < 0)
		return archive_reader_error(rd, "read");
	if (rd->peeked == 0)
		return err_set(err, -EBADMSG, "there is nothing in it: no archive");
	rd->zip = is_zip(rd);
	rd->locale = archive_locale_set(rd->zip);
	rd->a = archive_read_new();
	if (!rd->a)
		return err_no_memory(err);
	return rd->zip ? zip_open(rd) : stream_open(rd);
}

int archive_reader_finish(struct archive_reader *rd)
{
	int r = check_end(rd);
	return r < 0 ? r : read_rest(rd);
}

void archive_reader_close(struct archive_reader *rd)
{
	if (rd->a)
		(void)archive_read_free(rd->a); /* only read */
	rd->a = NULL;
	archive_locale_done(&rd->locale);
	rd->locale = (struct archive_locale){ 0 };
	cleanup_close(&rd->spool);
	rd->spool = -1;
	free(rd->buf);
	rd->buf = NULL;
}
