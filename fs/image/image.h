/* Images: one flat, immutable file that describes a whole tree, mapped and never parsed.
 *
 * An image is named by the SHA-256 of its header, and the header holds the SHA-256 of
 * every 64 KiB block behind it (fs/FORMAT.md), so one name proves the whole file; a block
 * is checked when it is first touched. A block that doesn't match, or can't be read,
 * makes the call return -EIO; nothing unverified is ever returned.
 *
 * A page that can't be read raises SIGBUS, which fs/base/mapguard.h takes over for the process.
 * So no thread that uses images may block it. A borrowed
 * pointer whose page was evicted and can't be read again shows zeros; every call after that
 * gives -EIO for it.
 *
 * Descriptors of the `struct io` must be the host's, since they are mapped.
 *
 * Numbers: inode 1 is the root. A directory's names are in order of their cookie, which is
 * the keyed hash of the name made unique (name_hash below).
 *
 * Threads: an image may be used by many threads at once. Pointers into it (names, targets,
 * values) are borrowed until image_unref. */
#ifndef BOUGH_IMAGE_IMAGE_H
#define BOUGH_IMAGE_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"

/* The keyed 63-bit hash of a name, >= NAME_COOKIE_MIN. An entry's cookie is its name's hash or one
 * of the NAME_PROBE - 1 numbers behind it: the first that is free in its directory when the entry
 * is made, counted over the whole merged tree. So a look-up visits the cookies
 * [hash, hash + NAME_PROBE) and compares names; no free one is -ENOSPC. */
enum { NAME_MAX_BYTES = 255, NAME_PROBE = 64, NAME_COOKIE_MIN = 16 };
uint64_t name_hash(const char *name, size_t len, uint64_t seed);

/* Attributes of an inode, the same in images, layers and on the way to FUSE. */
struct attr {
	uint64_t ino;  /* 48 bits; 1 is the root */
	uint32_t mode; /* type and permissions, as st_mode */
	uint32_t uid, gid;
	uint32_t nlink;  /* directories: 2 and one for each subdirectory */
	uint32_t rdev;   /* kernel's new encoding (as makedev's low 32 bits), devices only */
	uint16_t gen;    /* restore generation: bits 48..63 of the node id */
	uint16_t flags;  /* ATTR_* */
	uint64_t size;   /* regular: bytes; symlink: target length; directory: 4096 */
	uint64_t blocks; /* 512-byte units of data, holes left out */
	struct timespec atime, mtime, ctime, btime;
	uint64_t parent; /* a directory that holds a name of it (hint; the root: 1) */
	/* That name's cookie there; 0: unknown (after unlink of that name). */
	uint64_t parent_cookie;
	uint64_t own_tag; /* workspace whose quota own_bytes count towards; 0: none */
	uint64_t own_bytes;
};
enum {
	ATTR_HAS_XATTR = 1, /* unset: surely none */
	ATTR_SHOWS_GEN = 2, /* st_ino is the node id (ino_shown in fs/work/workspace.h) */
};

/* Has the mode one of the seven types that an inode can have? */
static inline bool attr_type_ok(uint32_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISCHR(mode) || S_ISBLK(mode) ||
	       S_ISFIFO(mode) || S_ISSOCK(mode);
}

struct dirent_ref {
	uint64_t cookie, ino;
	uint8_t type; /* DT_* */
	uint8_t name_len;
	const char *name; /* not terminated */
};

/* A piece of a file's content: `len` bytes at `off` of the file are the bytes at `obj_off`
 * of the object. Pieces are in order and don't overlap; what no piece covers is a hole. */
struct piece {
	uint64_t off;
	uint32_t len, obj_off;
	struct digest object;
};

/* ---- writing ---- */

struct image_builder;
/* Everything is gathered in memory (about 300 bytes a file) and written by finish. */
int image_builder_new(struct image_builder **out, uint64_t seed, struct err *err);
void image_builder_free(struct image_builder *b); /* NULL allowed */
/* Inodes in any order; each number once (-EEXIST). From the entries finish computes nlink,
 * parent and parent_cookie, from the pieces a file's blocks; a directory's size is 4096, a
 * symlink's its target's length. -EINVAL for a number, mode or time that can't be. */
int image_add_inode(struct image_builder *b, const struct attr *a);
/* cookie 0: computed. -EEXIST when the directory has that name; -ENOSPC without a free cookie;
 * -EINVAL: no name, or a cookie that is taken or no look-up would visit. Directory and child
 * may come later. */
int image_add_dirent(struct image_builder *b, uint64_t dir, const char *name, size_t len,
		     uint64_t child, uint8_t type, uint64_t cookie);
int image_add_target(struct image_builder *b, uint64_t ino, const char *target, size_t len);
/* `name` is terminated; the same name again replaces the value. */
int image_add_xattr(struct image_builder *b, uint64_t ino, const char *name, const void *value,
		    size_t len);
/* In any order (faster by offset); what reaches behind the file's size is cut off by finish. */
int image_add_piece(struct image_builder *b, uint64_t ino, const struct piece *p);
void image_clear_pieces(struct image_builder *b, uint64_t ino); /* drops those added so far */
/* Looks up what was added (for importers): the child's number and type, or -ENOENT. */
int image_builder_lookup(struct image_builder *b, uint64_t dir, const char *name, size_t len,
			 uint64_t *child, uint8_t *type);
/* The entry of `dir` with the least cookie from `cookie` on; -ENOENT: none. Its name stays. */
int image_builder_dirent_ceil(struct image_builder *b, uint64_t dir, uint64_t cookie,
			      struct dirent_ref *out);
/* A symlink's target, not terminated; -ENOENT: none. */
int image_builder_target(struct image_builder *b, uint64_t ino, const char **target, size_t *len);
struct attr *image_builder_attr(struct image_builder *b,
				uint64_t ino); /* to change; NULL: absent */
/* Removes a name (importers: a later member replaces an earlier one). */
int image_del_dirent(struct image_builder *b, uint64_t dir, const char *name, size_t len);
/* Checks that the tree is whole (root there, every entry's child there, no directory with two
 * names or a cycle; inodes without a name are left out) and publishes `dir`/<hex>.img durably:
 * temporary file (IO_TMP_PREFIX…), fsync, rename, fsync of the folder; an equal image that is
 * there already is kept when it is whole, else replaced. The same tree gives the same bytes,
 * in whatever order it was added.
 * -EINVAL with what is wrong; -ENOSPC … : nothing is left behind. */
int image_finish(struct image_builder *b, const struct io *io, const char *dir, struct digest *name,
		 struct err *err);

/* ---- reading ---- */

struct image;
struct image_info {
	uint64_t seed, inodes, dirents, pieces;
	uint64_t file_bytes; /* sizes of all regular files, summed */
	uint64_t data_bytes; /* the same without holes: bytes of all pieces */
	uint64_t max_ino;
	struct digest name;
};

int image_open(struct image **out, const struct io *io, const char *dir, const struct digest *name,
	       struct err *err); /* -ENOENT, -EBADMSG (damaged header), -errno */
struct image *image_ref(struct image *im);
void image_unref(struct image *im); /* NULL allowed */
/* Lets go of the pages that are mapped just now; they stay in the kernel's cache. Any thread. */
void image_idle(struct image *im);
const struct image_info *image_info(const struct image *im);
/* How many of its 64 KiB blocks were found bad so far: for the report of an -EIO. */
uint64_t image_bad_blocks(const struct image *im);

/* All: 0, -ENOENT, or -EIO. */
int image_inode(struct image *im, uint64_t ino, struct attr *out);
int image_lookup(struct image *im, uint64_t dir, const char *name, size_t len,
		 struct dirent_ref *out);
/* The first entry whose cookie is >= `cookie`. */
int image_dirent_ceil(struct image *im, uint64_t dir, uint64_t cookie, struct dirent_ref *out);
/* The inode with the least number >= ino (for comparing whole images). */
int image_inode_ceil(struct image *im, uint64_t ino, struct attr *out);
int image_target(struct image *im, uint64_t ino, const char **target, size_t *len);
int image_xattr(struct image *im, uint64_t ino, const char *name, const void **value, size_t *len);
/* The i-th xattr in order of name; the name is terminated. */
int image_xattr_at(struct image *im, uint64_t ino, uint32_t i, const char **name,
		   const void **value, size_t *len);
/* The piece that covers `off`, or the first behind it. */
int image_piece_ceil(struct image *im, uint64_t ino, uint64_t off, struct piece *out);
/* Calls `fn` with each distinct object of the image (may repeat); fn returns 0 to go on, else
 * that is returned. */
int image_objects(struct image *im, int (*fn)(void *ctx, const struct digest *d), void *ctx);
/* Verifies every block and every reference. 0, -EBADMSG with what is wrong. */
int image_check(struct image *im, struct err *err);

#endif
