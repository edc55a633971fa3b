/* Any bytes as an archive: import refuses them with one line, or makes a whole image of them,
 * which can be exported and imported again to the same tree. Where a block looks like the header
 * of a tar member its checksum is made right, or nearly all changes would end there.
 * The same bytes are taken as an image of containers, and as a layer over themselves. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/image/image.h"
#include "snapd/archive_export.h"
#include "snapd/archive_import.h"
#include "snapd/oci.h"
#include "tests/fuzz/store.h"
#include "tests/fuzz/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	INPUT_MAX = 1 << 20,
	BYTES_MAX = 4 << 20,
	INODES_MAX = 500,
	OUT_MAX = 64 << 20, /* a sparse file's holes cost nothing, its map does */
};

struct bytes {
	const uint8_t *p;
	size_t n;
};

static ssize_t read_bytes(void *ctx, void *buf, size_t n, struct err *err)
{
	struct bytes *b = ctx;
	if (n > b->n)
		n = b->n;
	memcpy(buf, b->p, n);
	b->p += n;
	b->n -= n;
	return (ssize_t)n;
}

static int to_buf(void *ctx, const void *data, size_t n)
{
	struct buf *b = ctx;
	if (b->len + n > OUT_MAX)
		return -EFBIG;
	buf_add(b, data, n);
	return buf_error(b);
}

enum mode { TREE, IMAGE, LAYERS };

static int run(enum mode mode, struct bytes *b, const struct archive_import_options *opt,
	       struct digest *image, struct err *err)
{
	const struct archive_source src = { .read = read_bytes, .ctx = b };
	struct bytes again = *b;
	struct archive_importer *im;
	char *config = NULL;
	if (mode == TREE)
		return archive_import(image, opt, &src, NULL, err);
	if (mode == IMAGE) {
		int r = oci_import(image, &config, opt, &src, NULL, err);
		free(config);
		return r;
	}
	int r = archive_importer_new(&im, opt, err);
	if (r < 0)
		return r;
	r = archive_importer_layer(im, &src, err);
	*b = again;
	if (r == 0)
		r = archive_importer_layer(im, &src, err);
	if (r == 0)
		r = archive_importer_finish(im, image, NULL, err);
	archive_importer_free(im);
	return r;
}

static int import(enum mode mode, const void *data, size_t n, uint64_t limit,
		  struct digest *image)
{
	struct bytes b = { data, n };
	const struct archive_import_options opt = {
		.session = here.session,
		.io = &here.io,
		.images = here.images,
		.scratch = here.dir,
		.reserve = reserve,
		.max_bytes = limit,
		.max_inodes = INODES_MAX,
	};
	struct err err = { 0 };
	here.ino = 2;
	int r = run(mode, &b, &opt, image, &err);
	if (r < 0 && (!err.text[0] || strchr(err.text, '\n')))
		abort();
	return r;
}

static void drop(const struct digest *image)
{
	char path[400], hex[DIGEST_HEX + 1];
	digest_hex(hex, image);
	(void)snprintf(path, sizeof(path), "%s/%s.img", here.images, hex);
	(void)unlink(path); /* both images may be one */
}

/* What was taken is whole, and goes out and in again. */
static void check(const struct digest *image)
{
	struct view v = { .store = here.store };
	auto_buf out = { 0 };
	struct digest again;
	struct err err = { 0 };
	const struct archive_export_options opt = { .write = to_buf, .write_ctx = &out };
	if (image_open(&v.image, NULL, here.images, image, &err) < 0 ||
	    image_check(v.image, &err) < 0)
		abort();
	int r = archive_export(&v, &opt, NULL, &err);
	if (r == 0) {
		uint64_t inodes = image_info(v.image)->inodes,
			 bytes = image_info(v.image)->file_bytes;
		struct image *im;
		if (import(TREE, out.data, out.len, 0, &again) < 0 ||
		    image_open(&im, NULL, here.images, &again, NULL) < 0)
			abort();
		/* Sockets don't come along. */
		if (image_info(im)->inodes > inodes || image_info(im)->file_bytes != bytes)
			abort();
		image_unref(im);
		drop(&again);
	} else if (r != -EFBIG) {
		abort();
	}
	view_done(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct digest image;
	if (!here.store)
		set_up("fuzz_archive");
	if (size > INPUT_MAX)
		return 0;
	auto_free uint8_t *copy = malloc(size + 1);
	if (!copy)
		abort();
	memcpy(copy, data, size);
	fix_sums(copy, size);
	/* One of the three each time, or a run would take three times as long. */
	if (import((size + size / TAR_BLOCK) % 3, copy, size, BYTES_MAX, &image) == 0) {
		check(&image);
		drop(&image);
	}
	return 0;
}
