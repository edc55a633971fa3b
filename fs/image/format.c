#include "fs/image/format.h"

#include <errno.h>
#include <string.h>
#include "fs/image/image.h"

static uint64_t align_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

/* Puts a section at *end (moved up to its alignment) and *end behind it. */
static uint64_t place(uint64_t *end, uint64_t count, uint64_t each)
{
	uint64_t at = align_up(*end, IMAGE_SECTION_ALIGN);
	*end = at + count * each;
	return at;
}

int image_layout(struct image_layout *out, const struct image_counts *c)
{
	if (c->runs > IMAGE_COUNT_MAX || c->inodes > IMAGE_COUNT_MAX ||
	    c->dirents > IMAGE_COUNT_MAX || c->pieces > IMAGE_COUNT_MAX ||
	    c->xattrs > IMAGE_COUNT_MAX || c->string_bytes > IMAGE_BODY_MAX)
		return -EFBIG;
	struct image_layout l = { 0 };
	uint64_t end = 0;
	l.runs = place(&end, c->runs, IMAGE_RUN_BYTES);
	l.inodes = place(&end, c->inodes, IMAGE_INODE_BYTES);
	l.dirents = place(&end, c->dirents, IMAGE_DIRENT_BYTES);
	l.pieces = place(&end, c->pieces, IMAGE_PIECE_BYTES);
	l.xattrs = place(&end, c->xattrs, IMAGE_XATTR_BYTES);
	l.strings = place(&end, c->string_bytes, 1);
	if (end > IMAGE_BODY_MAX)
		return -EFBIG;
	l.blocks = (end + IMAGE_BLOCK - 1) / IMAGE_BLOCK;
	l.header_bytes = align_up(IMAGE_HEADER_FIXED + l.blocks * sizeof(struct digest),
				  IMAGE_HEADER_ALIGN);
	l.runs += l.header_bytes;
	l.inodes += l.header_bytes;
	l.dirents += l.header_bytes;
	l.pieces += l.header_bytes;
	l.xattrs += l.header_bytes;
	l.strings += l.header_bytes;
	l.file_bytes = end + l.header_bytes;
	*out = l;
	return 0;
}

void image_file_name(char out[IMAGE_FILE_NAME], const struct digest *name)
{
	digest_hex(out, name);
	memcpy(out + DIGEST_HEX, IMAGE_SUFFIX, sizeof(IMAGE_SUFFIX));
}

uint64_t name_hash(const char *name, size_t len, uint64_t seed)
{
	uint64_t h = hash_xxh3(name, len, seed) >> 1;
	/* All NAME_PROBE cookies from it on are valid directory offsets. */
	if (h < NAME_COOKIE_MIN)
		h += NAME_COOKIE_MIN;
	if (h > IMAGE_COOKIE_MAX - NAME_PROBE)
		h -= NAME_PROBE;
	return h;
}
