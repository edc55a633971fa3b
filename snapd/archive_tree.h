/* The tree that an import builds: where a member goes, and whether it may. All rules
 * against hostile names are here. For archive_import.c, archive_extract.c and tests.
 *
 * Several archives may become one tree, as the layers of a container's image do
 * (archive_tree_layer). A later one replaces what an earlier one has, of whatever type it is, and
 * takes names away by whiteouts: the member ".wh.NAME" hides NAME, ".wh..wh..opq" all names of its
 * folder. They hide what earlier layers have, never what their own brings, in whatever order its
 * members come. A name that leads through an earlier layer's symlink to a folder goes where that
 * leads inside the tree, as it did where the layer was made.
 * Source: OCI image-spec 1.1, layer.md. */
#ifndef BOUGH_SNAPD_ARCHIVE_TREE_H
#define BOUGH_SNAPD_ARCHIVE_TREE_H

#include <stdbool.h>
#include "fs/base/buf.h"
#include "fs/base/u64map.h"
#include "fs/image/image.h"

enum {
	ARCHIVE_INO_BATCH = 4096,  /* numbers reserved at a time */
	ARCHIVE_DEPTH_MAX = 60000, /* folders below each other: less than VIEW_DEPTH_MAX */
};

struct archive_tree {
	struct image_builder *b; /* borrowed */
	int (*reserve)(void *ctx, uint64_t n, uint64_t *first, struct err *err);
	void *reserve_ctx;
	uint64_t max_inodes; /* 0: no limit */
	bool unique;         /* refuse a second member of one name, even of the same type */
	struct attr implied; /* of a folder that the archive leaves out */
	bool layered;        /* set by archive_tree_layer */
	/* The tree's own: */
	uint64_t next_ino, end_ino; /* reserved and unused */
	uint64_t inodes;            /* made so far */
	struct buf dir;             /* path of the folder of the last member … */
	uint64_t dir_ino;           /* … and its inode; 0: none yet */
	uint64_t layer_ino;         /* what this layer makes has this number or a higher one */
	struct u64map touched;      /* earlier layers' folders that this one names or fills */
};
void archive_tree_done(struct archive_tree *t);

/* Refuses (-EBADMSG) a member's path that leaves the tree or has a name that no folder can hold.
 * `what` it is, for the error's text: "name". */
int archive_path_check(const char *path, const char *what, struct err *err);
/* The next component of a path; *p moves behind it. False at the end. "." is no component. */
bool archive_component(const char **p, const char **name, size_t *len);

/* Makes the root. */
int archive_tree_root(struct archive_tree *t, struct err *err);
/* What follows is a layer over what is there. */
void archive_tree_layer(struct archive_tree *t);
/* Of a layer: 1 when the member is a whiteout, which has been obeyed; 0: it is another. */
int archive_tree_whiteout(struct archive_tree *t, const char *path, struct err *err);
/* What is there under that name; links on the way are followed as for a member. -ENOENT: nothing;
 * -EBADMSG: it can't be there. */
int archive_tree_find(struct archive_tree *t, const char *path, uint64_t *ino, uint8_t *type,
		      struct err *err);
/* Puts a member; `a` says everything but ino. *ino is where it is: a new inode, or for a folder
 * that is there already that one, with its attributes set. The caller adds a new one's
 * content, target and xattrs.
 * -EBADMSG: refused; -EFBIG: max_inodes; -ENOMEM; what `reserve` returns. */
int archive_tree_put(struct archive_tree *t, const char *path, const struct attr *a, uint64_t *ino,
		     struct err *err);
/* Makes `path` one more name of the inode that `target` is a name of. */
int archive_tree_link(struct archive_tree *t, const char *path, const char *target, uint64_t *ino,
		      struct err *err);

#endif
