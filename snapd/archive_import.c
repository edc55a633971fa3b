#include "snapd/archive_import.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/base/clock.h"
#include "fs/image/image.h"
#include "runtime/box.h"
#include "snapd/archive_intake.h"
#include "snapd/archive_tree.h"

enum { PROGRESS_MS = 100 };

struct archive_importer {
	const struct archive_import_options *opt;
	struct archive_reader rd;
	struct archive_import_stats st;
	struct err *err;
	struct image_builder *b;
	struct archive_tree tree;
	struct intake *in;
	struct timespec now; /* of the import: for what the archive doesn't say */
	uint64_t told_ms;    /* when progress was called last */
};

/* ---- members ---- */

static int cancelled(struct archive_importer *im)
{
	if (!im->opt->progress)
		return 0;
	uint64_t ms = clock_ms();
	if (im->told_ms && ms - im->told_ms < PROGRESS_MS)
		return 0;
	im->told_ms = ms;
	if (im->opt->progress(im->opt->progress_ctx, im->rd.bytes_read, im->rd.members) == 0)
		return 0;
	return err_set(im->err, -ECANCELED, "the import was cancelled");
}

/* Reads the member's content; *size is how long the file is. */
static int content(struct archive_importer *im, struct archive_entry *e, const char *path,
		   uint64_t ino, uint64_t *size)
{
	uint64_t end = 0;
	int r = intake_begin(im->in, ino, im->err);
	while (r == 0) {
		const void *data;
		size_t n;
		la_int64_t off;
		int got = archive_read_data_block(im->rd.a, &data, &n, &off);
		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK)
			return archive_reader_error(&im->rd, SHOW(path));
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

struct xattr_to {
	struct archive_importer *im;
	const char *path;
	uint64_t ino;
};

static int add_xattr(void *ctx, const char *name, const void *value, size_t len)
{
	struct xattr_to *to = ctx;
	int r = image_add_xattr(to->im->b, to->ino, name, value, len);
	return r < 0 ? err_sys(to->im->err, r, "'%s': an xattr", SHOW(to->path)) : 0;
}

static int xattrs(struct archive_importer *im, struct archive_entry *e, const char *path,
		  uint64_t ino)
{
	struct xattr_to to = { im, path, ino };
	return archive_reader_xattrs(&im->rd, e, add_xattr, &to);
}

static int hard_link(struct archive_importer *im, struct archive_entry *e, const char *path)
{
	uint64_t ino, size;
	if (!archive_reader_links(&im->rd))
		return archive_reader_refuse(&im->rd, path,
					     "a hard link in a format that has none");
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

static int member(struct archive_importer *im, struct archive_entry *e)
{
	struct attr a;
	uint64_t ino;
	const char *path = archive_entry_pathname(e);
	int r = im->tree.layered ? archive_tree_whiteout(&im->tree, path, im->err) : 0;
	if (r != 0)
		return r < 0 ? r : 0;
	if (archive_entry_hardlink(e))
		return hard_link(im, e, path);
	r = archive_reader_attr(&im->rd, e, path, &a);
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
		if (len == 0 || len > ARCHIVE_TARGET_MAX)
			return archive_reader_refuse(&im->rd, path,
						     "a symlink whose target is empty or too long");
		if (image_add_target(im->b, ino, target, len) < 0)
			r = err_no_memory(im->err);
	}
	return r < 0 ? r : xattrs(im, e, path, ino);
}

static int members(struct archive_importer *im)
{
	struct archive_entry *e;
	int r;
	while ((r = archive_reader_next(&im->rd, &e)) > 0) {
		r = member(im, e);
		if (r == 0)
			r = cancelled(im);
		if (r < 0)
			return r;
	}
	return r;
}

/* ---- the whole ---- */

static int read_archive(struct archive_importer *im, const struct archive_source *src)
{
	const struct archive_import_options *opt = im->opt;
	const struct archive_reader_options ro = { .scratch = opt->scratch,
						   .max_bytes = opt->max_bytes,
						   .uid = opt->uid,
						   .gid = opt->gid,
						   .squash_owner = opt->squash_owner };
	int r = archive_reader_open(&im->rd, &ro, src, im->err);
	im->rd.now = im->now;
	/* Names that libarchive composes alike must not hide each other. */
	im->tree.unique = im->rd.zip;
	if (r == 0)
		r = members(im);
	if (r == 0)
		r = archive_reader_finish(&im->rd);
	archive_reader_close(&im->rd);
	im->st.members += im->rd.members;
	im->st.archive_bytes += im->rd.bytes_read;
	im->st.ignored_xattrs += im->rd.ignored_xattrs;
	im->st.ignored_acls += im->rd.ignored_acls;
	return r;
}

static int tree_begin(struct archive_importer *im)
{
	const struct archive_import_options *opt = im->opt;
	(void)clock_gettime(CLOCK_REALTIME, &im->now); /* can't fail */
	if (im->now.tv_nsec == 999999999)
		im->now.tv_nsec--; /* atime is one more */
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

/* ---- what is added ---- */

static int fill_file(struct archive_importer *im, uint64_t ino, const char *text)
{
	size_t len = text ? strlen(text) : 0;
	int r = intake_begin(im->in, ino, im->err);
	if (r == 0 && len)
		r = intake_data(im->in, 0, text, len, im->err);
	if (r == 0)
		r = intake_end(im->in, len, im->err);
	if (r == 0)
		image_builder_attr(im->b, ino)->size = len;
	return r;
}

/* Where an image has something else in its place, or on the way to it, that stays: whoever needs
 * it says so. */
static int fill_one(struct archive_importer *im, const struct box_entry *e)
{
	struct attr a = im->tree.implied;
	struct err why = { 0 };
	uint64_t ino;
	uint8_t type;
	int r = archive_tree_find(&im->tree, e->path, &ino, &type, &why);
	bool says_nothing = r == 0 && e->text && type == DT_REG &&
			    image_builder_attr(im->b, ino)->size == 0;
	if (r == -EBADMSG || (r == 0 && !says_nothing))
		return 0;
	a.mode = e->mode;
	r = r == 0 || r == -ENOENT ? archive_tree_put(&im->tree, e->path, &a, &ino, &why) : r;
	if (r == -EBADMSG)
		return 0;
	if (r < 0)
		return err_set(im->err, r, "%s", why.text);
	return S_ISREG(e->mode) ? fill_file(im, ino, e->text) : 0;
}

static int fill(struct archive_importer *im)
{
	int r = 0;
	if (im->tree.inodes == 1) /* the root: no program in it could ever run */
		return err_set(im->err, -EBADMSG, "there is nothing in it");
	archive_tree_layer(&im->tree); /* over what the archive has: its links are followed */
	for (const struct box_entry *e = im->opt->fill; e->path && r == 0; e++)
		r = fill_one(im, e);
	return r;
}

/* Contents first, durable; then the image that leads to them. */
static int publish(struct archive_importer *im, struct digest *image)
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
static int tally(struct archive_importer *im, const struct digest *name)
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

int archive_importer_new(struct archive_importer **out, const struct archive_import_options *opt,
			 struct err *err)
{
	struct archive_importer *im = calloc(1, sizeof(*im));
	if (!im)
		return err_no_memory(err);
	im->opt = opt;
	im->err = err;
	int r = tree_begin(im);
	if (r < 0) {
		archive_importer_free(im);
		return r;
	}
	*out = im;
	return 0;
}

void archive_importer_free(struct archive_importer *im)
{
	if (!im)
		return;
	intake_free(im->in);
	image_builder_free(im->b);
	archive_tree_done(&im->tree);
	free(im);
}

int archive_importer_layer(struct archive_importer *im, const struct archive_source *src,
			   struct err *err)
{
	archive_tree_layer(&im->tree);
	im->err = err;
	return read_archive(im, src);
}

int archive_importer_finish(struct archive_importer *im, struct digest *image,
			    struct archive_import_stats *st, struct err *err)
{
	struct digest made;
	im->err = err;
	int r = im->opt->fill ? fill(im) : 0;
	if (r == 0)
		r = publish(im, &made);
	if (r == 0)
		r = tally(im, &made);
	if (r < 0)
		return r;
	*image = made;
	if (st)
		*st = im->st;
	return 0;
}

int archive_import(struct digest *image, const struct archive_import_options *opt,
		   const struct archive_source *src, struct archive_import_stats *st,
		   struct err *err)
{
	struct archive_importer *im = NULL;
	int r = archive_importer_new(&im, opt, err);
	if (r == 0)
		r = read_archive(im, src);
	if (r == 0)
		r = archive_importer_finish(im, image, st, err);
	archive_importer_free(im);
	return r < 0 ? err_prefix(err, r, "import") : 0;
}
