/* Copying all of an inode up to the active layer. Saving and flattening leave out what has no
 * name. So an inode that has none and outlives that, because it is held or because it gets a
 * name (O_TMPFILE, linkat), may not depend on what is below. */
#include "fs/work/ws_impl.h"

#include <sys/stat.h>

static int keep_times(struct op *op, struct attr *a, void *ctx)
{
	const struct attr *was = ctx;
	a->mtime = was->mtime;
	a->ctime = was->ctime;
	return 0;
}

struct pull {
	struct op op;
	struct attr a;
	int64_t growth;
	bool put; /* the second pass: the records, else only the growth */
};

static int pull_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	struct pull *p = ctx;
	struct ws *ws = p->op.ws;
	const void *v;
	size_t n;
	uint32_t index;
	int r = view_xattr_below(&ws->view, 0, p->a.ino, name, name_len, &v, &n, &index);
	if (r < 0 || index == 0)
		return r;
	if (p->put)
		txn_xattr(&p->op.t, p->a.ino, name, name_len, value, len);
	else if (index >= own_layers(ws))
		p->growth += (int64_t)(name_len + len);
	return 0;
}

/* The inode's last step: nothing below shows any more. */
static int pull_inode(struct ws *ws, uint64_t node)
{
	struct pull p = { .growth = 0 };
	meta_write(ws);
	int r = ws_get(ws, node, &p.a);
	if (r == 0) {
		op_begin(&p.op, ws, p.a.ino, NULL);
		p.op.error = view_each_xattr(&ws->view, p.a.ino, pull_xattr, &p);
		op_own(&p.op, &p.a, p.growth);
		op_inode_size(&p.op, &p.a, 0);
		p.put = true;
		if (!p.op.error)
			p.op.error = view_each_xattr(&ws->view, p.a.ino, pull_xattr, &p);
		r = op_commit(&p.op);
	}
	meta_done(ws);
	return r;
}

static int pull_content(struct ws *ws, const struct attr *a)
{
	uint64_t node = node_of(a);
	int r = 0;
	auto_free void *buf = malloc(IO_PIECE);
	if (!buf)
		return -ENOMEM;
	for (uint64_t off = 0; off < a->size && r >= 0;) {
		struct view_run run;
		struct attr now;
		meta_read(ws);
		r = view_map_peek(&ws->view, 0, a->ino, off, min_u64(a->size - off, IO_PIECE),
				  &run);
		meta_done(ws);
		if (r < 0)
			break;
		if (!run.top && run.e.kind != EXTENT_ZERO) {
			ssize_t n = content_read(ws, node, buf, run.e.len, off, &now);
			struct change ch = { .what = CHANGE_WRITE,
					     .off = off,
					     .buf = buf,
					     .no_quota = true,
					     .also = keep_times,
					     .ctx = &now };
			ch.n = n > 0 ? (uint64_t)n : 0;
			r = n < 0 ? (int)n : content_change(ws, node, &ch, NULL, NULL);
		}
		off += run.e.len;
	}
	return r;
}

int ws_pull_up(struct ws *ws, const struct attr *a)
{
	int r = S_ISREG(a->mode) ? pull_content(ws, a) : 0;
	return r < 0 ? r : pull_inode(ws, node_of(a));
}
