/* Tree objects as bytes, and which names a checkout may have. Pure, bounded, total: any bytes
 * give entries or -EBADMSG. Sources: git's tree-walk.c, read-cache.c (verify_path), utf8.c. */
#ifndef BOUGH_GITOPS_TREE_ENTRY_H
#define BOUGH_GITOPS_TREE_ENTRY_H

#include "fs/base/buf.h"
#include "fs/store/gitrepo.h"

enum {
	MODE_FILE = 0100644,
	MODE_PROGRAM = 0100755,
	MODE_SYMLINK = 0120000,
	MODE_GITLINK = 0160000,
	MODE_TREE = 0040000,
};

struct tree_entry {
	const char *name; /* in the input, terminated there */
	size_t len;
	uint32_t mode; /* one of the above, as git makes it of what stands there */
	struct oid oid;
};

/* The next entry: 1, 0 at the end, -EBADMSG: not an entry, or an unknown type. */
int tree_entry_next(struct cur *c, struct tree_entry *out);
/* The order in which a tree must have its entries: < 0 when a comes before b. */
int tree_entry_order(const struct tree_entry *a, const struct tree_entry *b);
/* Why no checkout may have an entry of that name; NULL: it may. Refused are, as by git, names that
 * lead out of the tree, what any system that git knows takes for .git (NTFS, HFS+), and links that
 * are so taken for .gitmodules. */
const char *tree_name_refused(const char *name, size_t len, uint32_t mode);

#endif
