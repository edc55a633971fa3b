/* Any bytes as an image. The first byte of the input chooses: even, the bytes are taken as they
 * are and most of them fail at a hash; odd, header and hashes are made to fit them, so that the
 * records themselves are what is wrong. Every question must get an answer, in finite time. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/image/format.h"
#include "fs/image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	FILE_MAX = 4 << 20,
	STEPS_MAX = 3000, /* questions of a kind; a hostile image may hold its records many times */
};

static int file = -1; /* what the disk below gives for every name */

static int one_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	int fd = flags & O_DIRECTORY ? open("/", O_PATH | O_CLOEXEC)
				     : fcntl(file, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

/* Makes counts, layout and hashes fit each other. False: these counts can't be. */
static bool make_fit(uint8_t *p, size_t *size)
{
	const struct image_counts c = {
		.runs = le_get64(p + HDR_RUNS),
		.inodes = le_get64(p + HDR_INODES),
		.dirents = le_get64(p + HDR_DIRENTS),
		.pieces = le_get64(p + HDR_PIECES),
		.xattrs = le_get64(p + HDR_XATTRS),
		.string_bytes = le_get64(p + HDR_STRING_BYTES),
	};
	struct image_layout l;
	if (image_layout(&l, &c) < 0 || l.file_bytes > FILE_MAX)
		return false;
	memcpy(p + HDR_MAGIC, IMAGE_MAGIC, 8);
	le_put32(p + HDR_VERSION, IMAGE_VERSION);
	le_put32(p + HDR_BYTES, (uint32_t)l.header_bytes);
	for (uint64_t i = 0, at = l.header_bytes; i < l.blocks; i++, at += IMAGE_BLOCK) {
		struct digest d;
		uint64_t n = l.file_bytes - at < IMAGE_BLOCK ? l.file_bytes - at : IMAGE_BLOCK;
		hash_sha256(&d, p + at, n);
		memcpy(p + IMAGE_HEADER_FIXED + i * sizeof(d), &d, sizeof(d));
	}
	*size = l.file_bytes;
	return true;
}

/* The name that such a file must have to be opened at all. */
static void name_of(const uint8_t *p, size_t size, struct digest *name)
{
	uint64_t header = size >= IMAGE_HEADER_FIXED ? le_get32(p + HDR_BYTES) : 0;
	hash_sha256(name, p, header <= size ? header : size);
}

static void ask_names(struct image *im, uint64_t ino)
{
	struct dirent_ref d, e;
	uint64_t cookie = 0;
	for (int i = 0; i < STEPS_MAX && image_dirent_ceil(im, ino, cookie, &d) == 0; i++) {
		if (d.cookie < cookie)
			abort();
		cookie = d.cookie + 1;
		if (i < 100)
			(void)image_lookup(im, ino, d.name, d.name_len, &e);
	}
	(void)image_lookup(im, ino, "file", 4, &e);
}

static int on_object(void *ctx, const struct digest *d)
{
	return ++*(int *)ctx >= STEPS_MAX;
}

static void ask(struct image *im)
{
	struct attr a;
	uint64_t ino = 0;
	int n = 0;
	for (int i = 0; i < STEPS_MAX && image_inode_ceil(im, ino, &a) == 0; i++) {
		if (a.ino < ino)
			abort();
		ino = a.ino + 1;
		struct piece p;
		const char *s;
		const void *v;
		size_t len;
		uint64_t off = 0;
		(void)image_inode(im, a.ino, &a);
		for (int k = 0; k < STEPS_MAX && image_piece_ceil(im, a.ino, off, &p) == 0; k++) {
			if (p.off + p.len <= off)
				abort();
			off = p.off + p.len;
		}
		for (uint32_t k = 0; k < 100 && image_xattr_at(im, a.ino, k, &s, &v, &len) == 0;
		     k++)
			(void)image_xattr(im, a.ino, s, &v, &len);
		(void)image_target(im, a.ino, &s, &len);
		if (i < 100)
			ask_names(im, a.ino);
	}
	(void)image_objects(im, on_object, &n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t *bytes;
	static size_t dirty; /* what the run before left in it */
	if (!bytes && !(bytes = calloc(1, FILE_MAX)))
		abort();
	if (size < 1 || size - 1 > FILE_MAX)
		return 0;
	memset(bytes, 0, dirty);
	size_t n = size - 1;
	memcpy(bytes, data + 1, n);
	dirty = n > IMAGE_HEADER_FIXED ? n : IMAGE_HEADER_FIXED;
	if ((data[0] & 1) && !make_fit(bytes, &n))
		return 0;
	dirty = n > dirty ? n : dirty;
	struct io io = io_host;
	io.open = one_open;
	file = memfd_create("image", MFD_CLOEXEC);
	if (file < 0 || io_write_full(NULL, file, bytes, n, 0) < 0)
		abort();
	struct digest name;
	struct image *im;
	struct err err = { 0 };
	name_of(bytes, n, &name);
	int r = image_open(&im, &io, "", &name, &err);
	if (r == 0) {
		ask(im);
		r = image_check(im, &err);
		image_unref(im);
	}
	if ((r < 0) != (err.text[0] != 0))
		abort();
	(void)close(file);
	return 0;
}
