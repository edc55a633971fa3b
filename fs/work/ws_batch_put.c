/* What a batch has made in memory, as records of one frame. */
#include "fs/work/ws_batch.h"

#include <sys/stat.h>

#include "fs/work/record.h"

/* What a folder that was there had under that name is charged no more. */
static void release_xattr(struct batch *b, struct binode *n, const char *name, size_t name_len)
{
	const void *value;
	size_t len;
	uint32_t index;
	int r = n->fresh ? -ENODATA
			 : view_xattr_below(&b->ws->view, 0, n->a.ino, name, name_len, &value, &len,
					    &index);
	if (r == 0 && index < own_layers(b->ws))
		op_own(&b->op, &n->a, -(int64_t)(name_len + len));
	else if (r < 0 && r != -ENODATA && r != -ENOENT)
		b->op.error = r;
}

/* The xattrs that the operation gave: what they cost, before the inode's record … */
static void own_xattrs(struct batch *b, struct binode *n)
{
	const char *name;
	const void *value;
	size_t name_len, len;
	struct cur c = n->op ? cur_init(n->op->xattrs, n->op->xattrs_len) : cur_init(NULL, 0);
	while (batch_xattr(&c, &name, &name_len, &value, &len) > 0) {
		release_xattr(b, n, name, name_len);
		op_own(&b->op, &n->a, (int64_t)(name_len + len));
		n->a.flags |= ATTR_HAS_XATTR;
	}
}

/* … and their own, behind it. */
static void put_xattrs(struct batch *b, const struct binode *n)
{
	const char *name;
	const void *value;
	size_t name_len, len;
	struct cur c = n->op ? cur_init(n->op->xattrs, n->op->xattrs_len) : cur_init(NULL, 0);
	while (batch_xattr(&c, &name, &name_len, &value, &len) > 0)
		txn_xattr(&b->op.t, n->a.ino, name, name_len, value, len);
}

static void put_file(struct batch *b, struct binode *n)
{
	struct op *op = &b->op;
	int64_t bytes = 0;
	txn_keep(&op->t, n->a.ino); /* as ws_put */
	int r = n->heir_of ? ws_inherit_xattrs(b->ws, op, n->heir_of, 0, &bytes) : 0;
	if (bytes > 0)
		n->a.flags |= ATTR_HAS_XATTR;
	op_own(op, &n->a, bytes);
	own_xattrs(b, n);
	op->files++;
	op_inode(op, &n->a);
	put_xattrs(b, n);
	if (r == 0 && n->heir_of)
		r = ws_inherit_xattrs(b->ws, op, n->heir_of, n->a.ino, &bytes);
	if (r < 0)
		op->error = r;
}

static void put_made(struct batch *b, struct binode *n)
{
	own_xattrs(b, n);
	if (n->fresh)
		op_new_inode(&b->op, &n->a);
	else
		op_inode(&b->op, &n->a);
	if (n->fresh && S_ISLNK(n->a.mode))
		txn_target(&b->op.t, n->a.ino, n->op->other, n->op->other_len);
	put_xattrs(b, n);
}

static void put_inode(struct batch *b, struct binode *n)
{
	if (n->a.nlink == 0 && (n->fresh || n->put))
		n->changed = false; /* it came and goes */
	else if (n->a.nlink == 0)
		op_unlinked(&b->op, &n->a);
	else if (n->put)
		put_file(b, n);
	else
		put_made(b, n);
}

/* New inodes before the names that lead to them. */
void batch_put_records(struct batch *b)
{
	for (size_t i = 0; i < b->ninodes; i++)
		if (b->inodes[i].changed && b->inodes[i].a.nlink > 0 &&
		    !S_ISDIR(b->inodes[i].a.mode))
			put_inode(b, &b->inodes[i]);
	for (size_t i = 0; i < b->nnames; i++) {
		const struct bname *n = &b->names[i];
		if (n->changed && n->child)
			txn_dirent(&b->op.t, n->dir, n->cookie, n->name, n->len, n->child, n->type);
		else if (n->changed && n->had)
			op_dirent_del(&b->op, n->dir, n->cookie);
	}
	for (size_t i = 0; i < b->ninodes; i++)
		if (b->inodes[i].changed &&
		    (b->inodes[i].a.nlink == 0 || S_ISDIR(b->inodes[i].a.mode)))
			put_inode(b, &b->inodes[i]);
}

/* ---- what the kernel must forget ---- */

static int list_changes(struct batch *b, struct forget_list *f)
{
	int r = 0;
	for (size_t i = 0; i < b->nnames && r == 0; i++) {
		const struct bname *n = &b->names[i];
		size_t d = (uintptr_t)u64map_get(&b->by_ino, n->dir);
		if (!n->changed || !d || b->inodes[d - 1].fresh)
			continue;
		r = forget_list_name(f, node_of(&b->inodes[d - 1].a), n->name, n->len, true, 0);
	}
	for (size_t i = 0; i < b->ninodes && r == 0; i++)
		if (b->inodes[i].changed && !b->inodes[i].fresh)
			r = forget_list_node(f, node_of(&b->inodes[i].a));
	return r;
}

int batch_remember(struct batch *b, struct forget_list *f)
{
	int r = list_changes(b, f);
	int dir = r == 0 ? ws_open_folder(b->ws) : -1;
	if (dir < 0)
		return r < 0 ? r : dir;
	forget_list_write(b->ws, dir, 0, f);
	(void)b->ws->work->io->close(b->ws->work->io->ctx, dir); /* nothing was written to it */
	return 0;
}
