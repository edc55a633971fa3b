/* Opening, mapping and guarding an image.
 *
 * The guard: a page of the map that the disk can't give (a bad sector, a file cut short)
 * raises SIGBUS in whichever thread touches it (fs/base/mapguard.h). Then the fault is
 * counted, the block marked bad, and zeros are put in the block's place; the access goes on and
 * finds zeros. A call that may have read them sees the counter
 * changed when it ends (IMAGE_GUARDED) and starts again, and now meets the bad block. So the
 * usual path costs two loads of a counter, there are no jumps out of a handler, and a
 * pointer into the image that a caller still holds never kills the process. */
#include "fs/image/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/mapguard.h"

/* ---- the guard ---- */

static void block_set_bad(struct image *im, uint64_t block)
{
	if (atomic_exchange(&im->state[block], BLOCK_BAD) != BLOCK_BAD)
		atomic_fetch_add(&im->bad, 1);
}

/* Zeros in place of the block around `off`. mapguard_lost_fn. */
static bool map_replace(void *ctx, size_t off)
{
	struct image *im = ctx;
	const struct image_layout *l = &im->layout;
	uint64_t from = off < l->header_bytes ? off : off - (off - l->header_bytes) % IMAGE_BLOCK;
	uint64_t to = off < l->header_bytes ? off + 1 : from + IMAGE_BLOCK, page = mapguard_page();
	from -= from % page;
	to = (to + page - 1) / page * page;
	if (to > im->map_bytes)
		to = im->map_bytes;
	/* First the counter, then the blocks, then the zeros: who reads a zero sees the rest. */
	atomic_fetch_add(&im->faults, 1);
	for (uint64_t b = 0; to > l->header_bytes; b++) {
		uint64_t first = from > l->header_bytes ? (from - l->header_bytes) / IMAGE_BLOCK
							: 0;
		if (first + b > (to - 1 - l->header_bytes) / IMAGE_BLOCK || first + b >= l->blocks)
			break;
		block_set_bad(im, first + b);
	}
	return mapguard_zero(im->base, from, to);
}

int image_block_check(struct image *im, uint64_t block)
{
	uint8_t state = atomic_load(&im->state[block]);
	if (state != BLOCK_UNKNOWN)
		return state == BLOCK_GOOD ? 0 : -EIO;
	uint64_t at = im->layout.header_bytes + block * IMAGE_BLOCK;
	uint64_t left = im->layout.file_bytes - at;
	struct digest d;
	hash_sha256(&d, im->base + at, left < IMAGE_BLOCK ? left : IMAGE_BLOCK);
	if (memcmp(d.b, im->header + IMAGE_HEADER_FIXED + block * sizeof(d), sizeof(d)) != 0) {
		block_set_bad(im, block);
		return -EIO;
	}
	/* Unless the handler took the block away in the meantime. */
	if (!atomic_compare_exchange_strong(&im->state[block], &state, BLOCK_GOOD) &&
	    state != BLOCK_GOOD)
		return -EIO;
	return 0;
}

/* ---- opening ---- */

/* Decodes the fixed part of a header. Any bytes: 0, or -EBADMSG with the reason. */
static int header_decode(struct image *im, const uint8_t *h, struct err *err)
{
	if (memcmp(h + HDR_MAGIC, IMAGE_MAGIC, 8) != 0)
		return err_set(err, -EBADMSG, "this is no image");
	uint32_t version = le_get32(h + HDR_VERSION);
	if (version != IMAGE_VERSION)
		return err_set(err, -EBADMSG, "the image has version %u, known is %d", version,
			       IMAGE_VERSION);
	im->counts = (struct image_counts){
		.runs = le_get64(h + HDR_RUNS),
		.inodes = le_get64(h + HDR_INODES),
		.dirents = le_get64(h + HDR_DIRENTS),
		.pieces = le_get64(h + HDR_PIECES),
		.xattrs = le_get64(h + HDR_XATTRS),
		.string_bytes = le_get64(h + HDR_STRING_BYTES),
	};
	im->info = (struct image_info){
		.seed = le_get64(h + HDR_SEED),
		.inodes = im->counts.inodes,
		.dirents = im->counts.dirents,
		.pieces = im->counts.pieces,
		.file_bytes = le_get64(h + HDR_FILE_BYTES),
		.data_bytes = le_get64(h + HDR_DATA_BYTES),
		.max_ino = le_get64(h + HDR_MAX_INO),
	};
	if (image_layout(&im->layout, &im->counts) < 0 || im->counts.inodes == 0 ||
	    im->counts.runs == 0 || im->counts.runs > im->counts.inodes ||
	    im->info.max_ino > IMAGE_INO_MAX || le_get32(h + HDR_BYTES) != im->layout.header_bytes)
		return err_set(err, -EBADMSG, "the image's header makes no sense");
	return 0;
}

/* Reads the header whole and compares it with its name. */
static int header_load(struct image *im, const struct io *io, int fd, const struct digest *name,
		       struct err *err)
{
	struct stat st;
	int r = io->fstat(io->ctx, fd, &st);
	if (r < 0)
		return err_sys(err, r, "stat");
	uint8_t fixed[IMAGE_HEADER_FIXED];
	ssize_t n = io_read_full(io, fd, fixed, sizeof(fixed), 0);
	if (n < 0)
		return err_sys(err, (int)n, "read");
	if ((size_t)n < sizeof(fixed))
		return err_set(err, -EBADMSG, "the image is cut short: %lld bytes",
			       (long long)st.st_size);
	r = header_decode(im, fixed, err);
	if (r < 0)
		return r;
	/* A claim larger than the file is not worth its memory. */
	if ((uint64_t)st.st_size < im->layout.header_bytes)
		return err_set(err, -EBADMSG, "the image is cut short: %lld bytes",
			       (long long)st.st_size);
	im->header = malloc(im->layout.header_bytes);
	if (!im->header)
		return err_set(err, -ENOMEM, "out of memory for an image");
	n = io_read_full(io, fd, im->header, im->layout.header_bytes, 0);
	if (n < 0)
		return err_sys(err, (int)n, "read");
	struct digest d;
	hash_sha256(&d, im->header, im->layout.header_bytes);
	if ((uint64_t)n < im->layout.header_bytes || !digest_equal(&d, name) ||
	    memcmp(fixed, im->header, sizeof(fixed)) != 0)
		return err_set(err, -EBADMSG, "the image's header is damaged");
	im->info.name = d;
	return 0;
}

static int image_map(struct image *im, int fd, struct err *err)
{
	im->state = calloc(im->layout.blocks, sizeof(*im->state));
	if (!im->state)
		return err_set(err, -ENOMEM, "out of memory for an image");
	im->map_bytes = im->layout.file_bytes;
	void *p = mmap(NULL, im->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		im->map_bytes = 0;
		return err_sys(err, -errno, "map %zu bytes", (size_t)im->layout.file_bytes);
	}
	im->base = p;
	if (mapguard_add(&im->guard, p, im->map_bytes, map_replace, im) < 0)
		return err_set(err, -ENOMEM, "out of memory for an image");
	return 0;
}

void image_idle(struct image *im)
{
	/* Only a hint. What is in place of blocks that can't be read is zeros afterwards, too. */
	(void)madvise((void *)(uintptr_t)im->base, im->map_bytes, MADV_DONTNEED);
}

static void image_free(struct image *im)
{
	if (!im)
		return;
	mapguard_remove(im->guard);
	if (im->map_bytes)
		(void)munmap((void *)(uintptr_t)im->base, im->map_bytes); /* ours: can't fail */
	free(im->state);
	free(im->header);
	free(im);
}

static int open_fd(struct image *im, const struct io *io, const char *dir,
		   const struct digest *name, struct err *err)
{
	char file[IMAGE_FILE_NAME];
	image_file_name(file, name);
	int dirfd = io->open(io->ctx, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY, 0);
	if (dirfd < 0)
		return err_sys(err, dirfd, "open folder %s", dir);
	int fd = io->open(io->ctx, dirfd, file, O_RDONLY, 0);
	(void)io->close(io->ctx, dirfd); /* only looked into */
	if (fd < 0)
		return err_sys(err, fd, "open");
	int r = header_load(im, io, fd, name, err);
	if (r == 0)
		r = image_map(im, fd, err);
	(void)io->close(io->ctx, fd); /* only read; the map stays */
	return r;
}

int image_open(struct image **out, const struct io *io, const char *dir, const struct digest *name,
	       struct err *err)
{
	struct image *im = calloc(1, sizeof(*im));
	if (!im)
		return err_set(err, -ENOMEM, "out of memory for an image");
	atomic_init(&im->refs, 1);
	int r = open_fd(im, io ? io : &io_host, dir, name, err);
	if (r < 0) {
		char hex[DIGEST_HEX + 1];
		digest_hex(hex, name);
		image_free(im);
		return err_prefix(err, r, "image %s", hex);
	}
	*out = im;
	return 0;
}

struct image *image_ref(struct image *im)
{
	if (im)
		(void)atomic_fetch_add_explicit(&im->refs, 1, memory_order_relaxed);
	return im;
}

void image_unref(struct image *im)
{
	if (im && atomic_fetch_sub_explicit(&im->refs, 1, memory_order_acq_rel) == 1)
		image_free(im);
}

const struct image_info *image_info(const struct image *im)
{
	return &im->info;
}

uint64_t image_bad_blocks(const struct image *im)
{
	return atomic_load_explicit(&im->bad, memory_order_relaxed);
}
