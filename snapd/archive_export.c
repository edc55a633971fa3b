#include "snapd/archive_export.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "fs/base/u64map.h"
#include "snapd/archive_lib.h"

enum {
	COPY_BYTES = 1 << 20,
	BLOCK_BYTES = 256 * 1024, /* one call of `write` */
	PROGRESS_MS = 100,
	TARGET_MAX = 4096,
};

/* A file with several names, by the first of them. */
struct linked {
	uint32_t number; /* cpio's inode number */
	char path[];
};

struct data_range {
	uint64_t off, len;
};

struct export
{
	const struct view *v;
	const struct archive_export_options *opt;
	struct archive_export_stats st;
	struct err err; /* view_walk says its own in place of a callback's */
	struct archive *a;
	struct archive_entry *e;
	struct u64map links; /* inode number -> struct linked * */
	struct buf path;     /* of the member, terminated */
	struct buf extents;  /* struct data_range of the present file */
	uint8_t *copy;
	int write_error;  /* what `write` returned */
	uint32_t numbers; /* cpio: given so far */
	uint64_t told_ms;
	bool binary;    /* tar: some name is not UTF-8 */
	bool abandoned; /* nothing more goes to the sink */
};

static const uint8_t zeros[BLOCK_BYTES];

/* ---- formats ---- */

static const struct {
	const char *name, *mime;
} formats[] = {
	[EXPORT_TAR] = { "tar", "application/x-tar" },
	[EXPORT_TAR_ZST] = { "tar.zst", "application/zstd" },
	[EXPORT_ZIP] = { "zip", "application/zip" },
	[EXPORT_CPIO] = { "cpio", "application/x-cpio" },
};

int export_format_parse(const char *name, struct err *err)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (strcmp(name, formats[i].name) == 0)
			return (int)i;
	return err_set(err, -EINVAL, "unknown format '%s': it can be tar, tar.zst, zip or cpio",
		       SHOW(name));
}

const char *export_format_name(enum export_format f)
{
	return formats[f].name;
}

const char *export_format_mime(enum export_format f)
{
	return formats[f].mime;
}

static uint64_t root(const struct export *x)
{
	return x->opt->root ? x->opt->root : 1;
}

static bool is_tar(const struct export *x)
{
	return x->opt->format == EXPORT_TAR || x->opt->format == EXPORT_TAR_ZST;
}

/* ---- the sink ---- */

static la_ssize_t on_write(struct archive *a, void *ctx, const void *data, size_t n)
{
	struct export *x = ctx;
	if (x->abandoned) /* what libarchive still has is an end mark that must not be */
		return -1;
	int r = x->opt->write(x->opt->write_ctx, data, n);
	if (r < 0) {
		x->write_error = r;
		archive_set_error(a, -r, "write");
		return -1;
	}
	x->st.archive_bytes += n;
	return (la_ssize_t)n;
}

/* The member as errors show it. */
static struct shown_name shown(const struct export *x)
{
	return archive_show(x->path.data ? (const char *)x->path.data : "");
}

/* The error of libarchive, or of the sink where that was the cause. */
static int write_err(struct export *x)
{
	if (x->write_error < 0)
		return err_sys(&x->err, x->write_error, "write the archive");
	return archive_err(&x->err, x->a, -EIO, "'%s'", shown(x).s);
}

static int out_of_memory(struct export *x)
{
	return err_no_memory(&x->err);
}

static int cancelled(struct export *x)
{
	if (!x->opt->progress)
		return 0;
	uint64_t ms = clock_ms();
	if (x->told_ms && ms - x->told_ms < PROGRESS_MS)
		return 0;
	x->told_ms = ms;
	if (x->opt->progress(x->opt->progress_ctx, x->st.members, x->st.bytes) == 0)
		return 0;
	return err_set(&x->err, -ECANCELED, "the export was cancelled");
}

/* ---- what an entry says ---- */

static int64_t clamp(int64_t v, int64_t least, int64_t most)
{
	return v < least ? least : v > most ? most : v;
}

static void set_attributes(struct export *x, const struct attr *a)
{
	struct archive_entry *e = archive_entry_clear(x->e);
	struct timespec t = { a->mtime.tv_sec, 0 };
	if (is_tar(x)) {
		t = archive_time_to_pax(a->mtime);
	} else { /* eight hex digits, or four bytes */
		t.tv_sec = clamp(t.tv_sec, 0, UINT32_MAX);
		x->st.times_cut += t.tv_sec != a->mtime.tv_sec || a->mtime.tv_nsec != 0;
	}
	archive_entry_set_pathname(e, (const char *)x->path.data);
	archive_entry_set_mode(e, a->mode);
	archive_entry_set_uid(e, a->uid);
	archive_entry_set_gid(e, a->gid);
	archive_entry_set_mtime(e, t.tv_sec, t.tv_nsec);
	archive_entry_set_size(e, S_ISREG(a->mode) ? (int64_t)a->size : 0);
	if (S_ISCHR(a->mode) || S_ISBLK(a->mode))
		archive_entry_set_rdev(e, (dev_t)a->rdev);
	if (x->opt->format == EXPORT_CPIO) {
		archive_entry_set_nlink(e, a->nlink);
		archive_entry_set_ino64(e, ++x->numbers);
	}
}

static int add_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	struct export *x = ctx;
	char text[NAME_MAX_BYTES + 1];
	if (!is_tar(x) || name_len > NAME_MAX_BYTES) {
		x->st.xattrs_dropped++;
		return 0;
	}
	memcpy(text, name, name_len);
	text[name_len] = '\0';
	archive_entry_xattr_add_entry(x->e, text, value, len);
	return 0;
}

static int set_xattrs(struct export *x, const struct attr *a)
{
	if (!(a->flags & ATTR_HAS_XATTR))
		return 0;
	int r = view_each_xattr(x->v, a->ino, add_xattr, x);
	return r < 0 ? err_sys(&x->err, r, "'%s': its xattrs", shown(x).s) : 0;
}

static int set_target(struct export *x, const struct attr *a)
{
	char target[TARGET_MAX + 1];
	size_t len = 0;
	int r = view_target(x->v, a->ino, target, TARGET_MAX, &len);
	if (r < 0)
		return err_sys(&x->err, r, "'%s': its target", shown(x).s);
	target[len < TARGET_MAX ? len : TARGET_MAX] = '\0';
	archive_entry_set_symlink(x->e, target);
	return 0;
}

/* ---- content ---- */

static size_t nextents(const struct export *x)
{
	return x->extents.len / sizeof(struct data_range);
}

static const struct data_range *extent(const struct export *x, size_t i)
{
	return (const struct data_range *)x->extents.data + i;
}

/* Finds where the file has data: the list is empty where that is everywhere, and *sparse
 * false. A hole from end to end is an empty list, too, with *sparse true. */
static int find_extents(struct export *x, const struct attr *a, bool *sparse)
{
	buf_reset(&x->extents);
	*sparse = false;
	if (a->size == 0 || a->blocks * 512 >= a->size)
		return 0; /* no room for a hole */
	for (uint64_t at = 0; at < a->size;) {
		struct data_range e;
		uint64_t end;
		int r = view_seek(x->v, a->ino, at, false, &e.off);
		if (r == -ENXIO || (r == 0 && e.off >= a->size))
			break;
		if (r == 0)
			r = view_seek(x->v, a->ino, e.off, true, &end);
		if (r < 0)
			return err_sys(&x->err, r, "'%s': its holes", shown(x).s);
		if (end > a->size || end <= e.off)
			end = a->size;
		e.len = end - e.off;
		buf_add(&x->extents, &e, sizeof(e));
		at = end;
	}
	if (buf_error(&x->extents) < 0)
		return out_of_memory(x);
	*sparse = nextents(x) != 1 || extent(x, 0)->len != a->size;
	if (*sparse && !is_tar(x)) {
		x->st.holes_filled++;
		*sparse = false;
	}
	if (!*sparse)
		buf_reset(&x->extents);
	return 0;
}

static void set_extents(struct export *x)
{
	for (size_t i = 0; i < nextents(x); i++)
		archive_entry_sparse_add_entry(x->e, (int64_t)extent(x, i)->off,
					       (int64_t)extent(x, i)->len);
	if (nextents(x) == 0)
		archive_entry_sparse_add_entry(x->e, 0, 0);
}

static int put(struct export *x, const void *data, size_t n)
{
	while (n > 0) {
		la_ssize_t w = archive_write_data(x->a, data, n);
		if (w <= 0)
			return write_err(x);
		data = (const uint8_t *)data + w;
		n -= (size_t)w;
	}
	return 0;
}

static int put_zeros(struct export *x, uint64_t n)
{
	int r = 0;
	while (n > 0 && r == 0) {
		size_t part = n < sizeof(zeros) ? (size_t)n : sizeof(zeros);
		r = put(x, zeros, part);
		n -= part;
	}
	return r;
}

static int put_range(struct export *x, const struct attr *a, uint64_t off, uint64_t len)
{
	while (len > 0) {
		size_t part = len < COPY_BYTES ? (size_t)len : COPY_BYTES;
		ssize_t n = view_read(x->v, a->ino, x->copy, part, off, &x->err);
		if (n < 0)
			return err_prefix(&x->err, (int)n, "'%s'", shown(x).s);
		if ((size_t)n != part)
			return err_set(&x->err, -EIO, "'%s': it ends too early", shown(x).s);
		int r = put(x, x->copy, part);
		if (r == 0)
			r = cancelled(x);
		if (r < 0)
			return r;
		x->st.bytes += part;
		off += part;
		len -= part;
	}
	return 0;
}

static int put_content(struct export *x, const struct attr *a, bool sparse)
{
	if (!sparse)
		return put_range(x, a, 0, a->size);
	uint64_t at = 0;
	int r = 0;
	/* libarchive wants the holes too, and leaves them out itself. */
	for (size_t i = 0; i < nextents(x) && r == 0; i++) {
		const struct data_range *e = extent(x, i);
		r = put_zeros(x, e->off - at);
		if (r == 0)
			r = put_range(x, a, e->off, e->len);
		at = e->off + e->len;
	}
	return r == 0 ? put_zeros(x, a->size - at) : r;
}

/* ---- members ---- */

static int put_header(struct export *x)
{
	int r;
	if (x->opt->format == EXPORT_ZIP) {
		/* The locale's encoding decides whether a name is marked as UTF-8. */
		auto_archive_locale l = archive_locale_set(
			archive_is_utf8((const char *)x->path.data));
		r = archive_write_header(x->a, x->e);
	} else {
		r = archive_write_header(x->a, x->e);
	}
	if (r != ARCHIVE_OK) /* with raw names no warning is harmless */
		return write_err(x);
	x->st.members++;
	return 0;
}

static int link_add(struct export *x, const struct attr *a)
{
	size_t n = strlen((const char *)x->path.data) + 1;
	struct linked *l = malloc(sizeof(*l) + n);
	if (!l || u64map_put(&x->links, a->ino, l) < 0) {
		free(l);
		return out_of_memory(x);
	}
	l->number = x->numbers;
	memcpy(l->path, x->path.data, n);
	return 0;
}

/* One more name of a file whose first is in the archive. */
static int put_link(struct export *x, const struct attr *a, const struct linked *l)
{
	set_attributes(x, a);
	archive_entry_set_size(x->e, 0);
	if (is_tar(x))
		archive_entry_set_hardlink(x->e, l->path);
	else
		archive_entry_set_ino64(x->e, l->number);
	return put_header(x);
}

static int put_member(struct export *x, const struct attr *a)
{
	bool sparse = false;
	int r = 0;
	if (S_ISREG(a->mode))
		r = find_extents(x, a, &sparse);
	if (r < 0)
		return r;
	set_attributes(x, a);
	if (S_ISLNK(a->mode))
		r = set_target(x, a);
	if (r == 0)
		r = set_xattrs(x, a);
	if (r == 0 && sparse)
		set_extents(x);
	if (r == 0)
		r = put_header(x);
	if (r == 0 && S_ISREG(a->mode))
		r = put_content(x, a, sparse);
	return r;
}

/* 1 when the format has no place for it, which is counted. */
static int left_out(struct export *x, const struct attr *a, size_t len)
{
	bool zip = x->opt->format == EXPORT_ZIP;
	if (zip && len == 0)
		return 1; /* the root has no name there */
	if (S_ISSOCK(a->mode)) {
		x->st.sockets_skipped++;
		return 1;
	}
	if (zip && (S_ISCHR(a->mode) || S_ISBLK(a->mode) || S_ISFIFO(a->mode))) {
		x->st.specials_skipped++;
		return 1;
	}
	if (x->opt->format == EXPORT_CPIO && S_ISREG(a->mode) && a->size > UINT32_MAX)
		return err_set(&x->err, -EFBIG, "'%s': cpio holds no file of 4 GiB or more",
			       shown(x).s);
	return 0;
}

static int set_path(struct export *x, const char *path, size_t len)
{
	buf_reset(&x->path);
	if (x->opt->format != EXPORT_ZIP)
		buf_add(&x->path, len ? "./" : ".", len ? 2 : 1);
	buf_add(&x->path, path, len);
	buf_u8(&x->path, 0);
	return buf_error(&x->path) < 0 ? out_of_memory(x) : 0;
}

/* It is there already, where the archive goes. */
static bool is_there(const struct export *x, const struct attr *a)
{
	const char *path = (const char *)x->path.data;
	const struct have_file f = { .path = path[1] ? path + 2 : "",
				     .mode = a->mode,
				     .size = a->size,
				     .mtime = a->mtime,
				     .ctime = a->ctime };
	return x->opt->have && have_visit(x->opt->have, &f);
}

static int visit(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct export *x = ctx;
	int r = set_path(x, path, len);
	if (r == 0)
		r = cancelled(x);
	if (r == 0)
		r = left_out(x, a, len);
	if (r != 0)
		return r < 0 ? r : 0;
	bool there = is_there(x, a);
	bool linked = !S_ISDIR(a->mode) && a->nlink > 1;
	const struct linked *l = linked ? u64map_get(&x->links, a->ino) : NULL;
	if (l && (is_tar(x) || (x->opt->format == EXPORT_CPIO && S_ISREG(a->mode))))
		return put_link(x, a, l);
	if (l)
		x->st.links_as_files++;
	r = there ? 0 : put_member(x, a);
	if (r == 0 && linked && !l)
		r = link_add(x, a);
	return r;
}

/* ---- the whole ---- */

/* Ends the walk with 1 at the first name that isn't UTF-8. */
static int look_for_odd_names(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct export *x = ctx;
	char target[TARGET_MAX + 1];
	size_t n;
	if (!archive_is_utf8_n(path, len))
		return -EILSEQ;
	if (!S_ISLNK(a->mode))
		return cancelled(x);
	int r = view_target(x->v, a->ino, target, TARGET_MAX, &n);
	if (r < 0)
		return err_sys(&x->err, r, "'%s': its target", archive_show_n(path, len).s);
	return archive_is_utf8_n(target, n) ? 0 : -EILSEQ;
}

/* pax names are UTF-8, unless the archive says for each that it is not. That is said only
 * when there is need, since GNU tar complains each time that it doesn't know the word. */
static int choose_encoding(struct export *x)
{
	if (!is_tar(x))
		return 0;
	int r = view_walk_from(x->v, root(x), look_for_odd_names, x, &x->err);
	if (r == -EILSEQ) {
		x->binary = true;
		x->err = (struct err){ 0 };
		return 0;
	}
	return r;
}

static int set_format(struct export *x)
{
	char level[32];
	(void)snprintf(level, sizeof(level), "compression-level=%d",
		       x->opt->zstd_level ? x->opt->zstd_level : 3);
	switch (x->opt->format) {
	case EXPORT_ZIP:
		return archive_write_set_format_zip(x->a);
	case EXPORT_CPIO:
		return archive_write_set_format_cpio_newc(x->a);
	case EXPORT_TAR_ZST:
		if (archive_write_add_filter_zstd(x->a) != ARCHIVE_OK ||
		    archive_write_set_options(x->a, level) != ARCHIVE_OK)
			return ARCHIVE_FATAL;
		break;
	case EXPORT_TAR:
		break;
	}
	if (archive_write_set_format_pax(x->a) != ARCHIVE_OK)
		return ARCHIVE_FATAL;
	/* xattrs in the form that GNU tar reads, too. */
	return archive_write_set_options(x->a, x->binary ? "hdrcharset=BINARY,xattrheader=SCHILY"
							 : "xattrheader=SCHILY");
}

static int open_archive(struct export *x)
{
	x->a = archive_write_new();
	x->e = archive_entry_new();
	x->copy = malloc(COPY_BYTES);
	if (!x->a || !x->e || !x->copy)
		return out_of_memory(x);
	if (set_format(x) != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(x->a, BLOCK_BYTES) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(x->a, 1) != ARCHIVE_OK ||
	    archive_write_open(x->a, x, NULL, on_write, NULL) != ARCHIVE_OK)
		return write_err(x);
	return 0;
}

static int export_all(struct export *x)
{
	int r = choose_encoding(x);
	if (r < 0)
		return r;
	auto_archive_locale locale = archive_locale_set(is_tar(x) && !x->binary);
	r = open_archive(x);
	if (r == 0) {
		struct err walk = { 0 };
		r = view_walk_from(x->v, root(x), visit, x, &walk);
		if (r < 0 && x->err.code == 0)
			x->err = walk;
	}
	buf_reset(&x->path);
	x->abandoned = r < 0;
	/* Also after a failure: it is close that frees libarchive's buffers. */
	if (x->a && archive_write_close(x->a) != ARCHIVE_OK && r == 0)
		r = write_err(x);
	(void)archive_write_free(x->a); /* closed above; NULL is fine */
	return r;
}

int archive_export(const struct view *v, const struct archive_export_options *opt,
		   struct archive_export_stats *st, struct err *err)
{
	struct export x = { .v = v, .opt = opt };
	int r = export_all(&x);
	struct u64map_slot *s;
	for (size_t i = 0; (s = u64map_next(&x.links, &i));)
		free(s->value);
	u64map_done(&x.links);
	if (x.e)
		archive_entry_free(x.e);
	buf_done(&x.path);
	buf_done(&x.extents);
	free(x.copy);
	if (r < 0) {
		if (err)
			*err = x.err;
		return err_prefix(err, r, "export");
	}
	if (st)
		*st = x.st;
	return 0;
}
