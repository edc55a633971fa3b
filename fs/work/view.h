/* A view: the tree that a stack of layers over an image shows, for reading.
 *
 * Everything that reads a tree goes through here: workspaces (whose topmost layer is
 * active), diff, save, export, flatten. Layers are asked from the top; the first that
 * knows an inode, a cookie or an xattr decides.
 *
 * Threads: a view over sealed layers is read by many threads at once. With an active layer on top
 * the owner's lock covers every call (the workspace's meta lock, shared), except
 * view_read, which resolves by view_map under that lock and reads outside it. */
#ifndef BOUGH_WORK_VIEW_H
#define BOUGH_WORK_VIEW_H

#include "fs/image/image.h"
#include "fs/work/layer.h"

struct view {
	struct layer **layers; /* top first; each holds a reference */
	uint32_t nlayers;
	struct image *image; /* a reference, or NULL */
	struct store *store; /* borrowed */
	uint64_t seed;
};

/* What shows below layer `i`: borrowed, and not for view_done. */
static inline struct view view_below(const struct view *v, uint32_t i)
{
	return (struct view){ .layers = v->layers + i + 1,
			      .nlayers = v->nlayers - i - 1,
			      .image = v->image,
			      .store = v->store,
			      .seed = v->seed };
}

/* Opens what the stack names. `find` gives a layer already loaded (a new reference) or
 * -ENOENT, then it is opened; NULL: always open. */
struct view_options {
	struct layer_options layer;
	const char *images; /* folder of the images */
	int (*find)(void *ctx, const struct stack_layer *desc, struct layer **out);
	/* As find, for the image; NULL: always open. */
	int (*find_image)(void *ctx, const struct digest *name, struct image **out);
	void *find_ctx;
};
int view_open(struct view *out, const struct view_options *opt, const struct stack *s,
	      struct err *err);
void view_done(struct view *v); /* gives every reference back; all zero afterwards */
int view_copy(struct view *out, const struct view *v);

/* The inode as the view shows it (one without a name too, with nlink 0).
 * -ENOENT: no such inode (or dead); -EIO. */
int view_inode(const struct view *v, uint64_t ino, struct attr *out);
/* As view_inode, from the layers below index `from` (0: all; 1: all but the top …). */
int view_inode_below(const struct view *v, uint32_t from, uint64_t ino, struct attr *out);

/* Names: -ENOENT, -EIO. `out->name` is borrowed while the caller's lock is held. */
int view_lookup(const struct view *v, uint64_t dir, const char *name, size_t len,
		struct dirent_ref *out);
int view_dirent_ceil(const struct view *v, uint64_t dir, uint64_t cookie, struct dirent_ref *out);
/* The cookie that a new entry of that name gets: -EEXIST, -ENOSPC (no free cookie), or 0. */
int view_free_cookie(const struct view *v, uint64_t dir, const char *name, size_t len,
		     uint64_t *cookie);
/* True when a layer below the top, or the image, shows an entry at that cookie (so that
 * its removal needs a whiteout). 1, 0 or -EIO. */
int view_below_has_cookie(const struct view *v, uint64_t dir, uint64_t cookie);
int view_dir_empty(const struct view *v, uint64_t dir); /* 1, 0, -EIO */

int view_target(const struct view *v, uint64_t ino, char *buf, size_t cap, size_t *len);
/* -ENODATA: none. Pointers borrowed as names are. */
int view_xattr(const struct view *v, uint64_t ino, const char *name, size_t name_len,
	       const void **value, size_t *len);
/* As view_xattr from the layers at index `from` and below; *index (NULL allowed): of the layer that
 * has it, nlayers for the image. */
int view_xattr_below(const struct view *v, uint32_t from, uint64_t ino, const char *name,
		     size_t name_len, const void **value, size_t *len, uint32_t *index);
/* Calls fn for each xattr that shows; fn returns 0 to go on, else that ends the walk and
 * is returned. */
int view_each_xattr(const struct view *v, uint64_t ino,
		    int (*fn)(void *ctx, const char *name, size_t name_len, const void *value,
			      size_t len),
		    void *ctx);

/* The run of content that begins at `off`: one source, as long as it reaches, at most up to
 * `max` bytes (not 0). Beyond what any layer has: ZERO, to the end of what was asked for.
 * Offsets needn't be aligned; not clipped by size. A run of the image's content has kind IMAGE
 * (image_ino, src), whether the image or an extent of a layer leads there. Holes have kind ZERO.
 * Holds a reference to the layer of a DATA run and to an image (view_run_done).
 * -EIO when the inode is damaged. */
enum { VIEW_NOWHERE = UINT32_MAX };
struct view_run {
	struct extent e;     /* e.off == off, e.len <= max */
	struct image *image; /* IMAGE: a reference */
	uint32_t index;      /* of the layer whose extent it is; nlayers: the image itself;
	                         VIEW_NOWHERE: a hole that no extent makes */
	bool top;            /* index is 0 */
};
int view_map(const struct view *v, uint64_t ino, uint64_t off, uint64_t max, struct view_run *out);
/* As view_map, as if there were no layers above index `from`; the caller clips by their
 * base_size. */
int view_map_below(const struct view *v, uint32_t from, uint64_t ino, uint64_t off, uint64_t max,
		   struct view_run *out);
/* As view_map_below, without references: good for as long as the owner's lock is held. */
int view_map_peek(const struct view *v, uint32_t from, uint64_t ino, uint64_t off, uint64_t max,
		  struct view_run *out);
void view_run_done(struct view_run *r);
/* Reads the bytes of a run (r->e.len of them). -EIO with the object's name in err. No lock. */
int view_run_read(struct store *store, const struct view_run *r, void *buf, struct err *err);
/* Reads [off, off + n) clipped by the inode's size; the count, or -errno. Sealed views only
 * (or with the owner's lock held throughout). */
ssize_t view_read(const struct view *v, uint64_t ino, void *buf, size_t n, uint64_t off,
		  struct err *err);
/* The next offset >= off that is data (hole false) or a hole (true), as lseek: -ENXIO. */
int view_seek(const struct view *v, uint64_t ino, uint64_t off, bool hole, uint64_t *out);

/* Walks the whole tree in path order of directories (parents first, names by cookie), without
 * recursion. fn gets the path relative to the root ("" for it), borrowed; returns 0 to go on,
 * VIEW_SKIP not to enter that directory, or < 0 to end with that.
 * -EBADMSG above VIEW_DEPTH_MAX: only a damaged tree with a cycle is so deep. */
enum { VIEW_SKIP = 1, VIEW_DEPTH_MAX = 65536 };
int view_walk(const struct view *v,
	      int (*fn)(void *ctx, const char *path, size_t len, const struct attr *a), void *ctx,
	      struct err *err);
/* The same of what lies below directory `dir`; paths are relative to it. */
int view_walk_from(const struct view *v, uint64_t dir,
		   int (*fn)(void *ctx, const char *path, size_t len, const struct attr *a),
		   void *ctx, struct err *err);
/* Path of an inode by its parent hints; where they don't lead to it, by searching the tree. The
 * caller frees. -ENOENT: no name leads to it. */
int view_path(const struct view *v, uint64_t ino, char **out);

#endif
