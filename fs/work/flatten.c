/* Flattening: a saved stack's tree becomes one image. Only metadata moves. */
#include "fs/work/save.h"

#include <errno.h>

#include "fs/base/cleanup.h"
#include "fs/work/inos.h"

struct flattener {
	const struct view *v;
	struct image_builder *b;
	uint64_t ino; /* the inode that is being added */
};

static int add_piece(struct flattener *f, uint64_t off, uint64_t len, uint64_t obj_off,
		     const struct digest *object)
{
	struct piece p = { .off = off, .len = (uint32_t)len, .obj_off = (uint32_t)obj_off,
			   .object = *object };
	return image_add_piece(f->b, f->ino, &p);
}

/* A run of the image's content, as the pieces that the image has there. */
static int add_image_run(struct flattener *f, const struct view_run *run)
{
	const struct extent *e = &run->e;
	uint64_t from = e->src, to = e->src + e->len;
	while (from < to) {
		struct piece p;
		int r = image_piece_ceil(run->image, e->image_ino, from, &p);
		if (r == -ENOENT)
			return 0;
		if (r < 0)
			return r;
		if (p.off >= to)
			return 0;
		uint64_t skip = from > p.off ? from - p.off : 0;
		uint64_t start = p.off + skip, end = p.off + p.len < to ? p.off + p.len : to;
		r = add_piece(f, e->off + (start - e->src), end - start, p.obj_off + skip,
			      &p.object);
		if (r < 0)
			return r;
		from = end;
	}
	return 0;
}

static int add_content(struct flattener *f, const struct attr *a, struct err *err)
{
	uint64_t off = 0;
	while (off < a->size) {
		struct view_run run;
		int r = view_map(f->v, a->ino, off, a->size - off, &run);
		if (r < 0)
			return err_sys(err, r, "map the content");
		off += run.e.len;
		if (run.e.kind == EXTENT_IMAGE)
			r = add_image_run(f, &run);
		else if (run.e.kind == EXTENT_OBJECT)
			r = add_piece(f, run.e.off, run.e.len, run.e.src, &run.e.object);
		else if (run.e.kind == EXTENT_DATA)
			r = -EINVAL; /* not a saved stack */
		view_run_done(&run);
		if (r < 0)
			return err_sys(err, r, "add the content");
	}
	return 0;
}

static int add_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	struct flattener *f = ctx;
	char text[NAME_MAX_BYTES + 1];
	if (name_len > NAME_MAX_BYTES)
		return -EBADMSG;
	memcpy(text, name, name_len);
	text[name_len] = '\0';
	return image_add_xattr(f->b, f->ino, text, value, len);
}

static int add_names(struct flattener *f, const struct attr *a, struct err *err)
{
	struct dirent_ref d;
	uint64_t next = 0;
	int r;
	while ((r = view_dirent_ceil(f->v, a->ino, next, &d)) >= 0) {
		r = image_add_dirent(f->b, a->ino, d.name, d.name_len, d.ino, d.type, d.cookie);
		if (r < 0)
			return err_sys(err, r, "add the name %.*s", d.name_len, d.name);
		next = d.cookie + 1;
	}
	return r == -ENOENT ? 0 : err_sys(err, r, "read the names");
}

static int add_target(struct flattener *f, struct err *err)
{
	char target[4096];
	size_t len;
	int r = view_target(f->v, f->ino, target, sizeof(target), &len);
	if (r >= 0)
		r = image_add_target(f->b, f->ino, target, len);
	return r < 0 ? err_sys(err, r, "add the link's target") : 0;
}

static int add_inode(struct flattener *f, uint64_t ino, struct err *err)
{
	struct attr a;
	int r = view_inode(f->v, ino, &a);
	if (r == -ENOENT || (r >= 0 && a.nlink == 0))
		return 0;
	if (r < 0)
		return err_sys(err, r, "inode %llu", (unsigned long long)ino);
	f->ino = ino;
	r = image_add_inode(f->b, &a);
	if (r < 0)
		return err_sys(err, r, "add inode %llu", (unsigned long long)ino);
	if (a.flags & ATTR_HAS_XATTR) {
		r = view_each_xattr(f->v, ino, add_xattr, f);
		if (r < 0)
			return err_sys(err, r, "xattrs of inode %llu", (unsigned long long)ino);
	}
	if (S_ISREG(a.mode))
		r = add_content(f, &a, err);
	else if (S_ISDIR(a.mode))
		r = add_names(f, &a, err);
	else if (S_ISLNK(a.mode))
		r = add_target(f, err);
	return r < 0 ? err_prefix(err, r, "inode %llu", (unsigned long long)ino) : 0;
}

static int flatten_view(const struct view *v, const struct view_options *opt,
			struct store_session *ss, const struct save_progress *p,
			struct digest *name, struct err *err)
{
	auto_inos all = { 0 };
	int r = v->image ? inos_add_image(&all, v->image) : 0;
	if (r >= 0)
		r = inos_add_layers(&all, v, v->nlayers, false);
	if (r < 0)
		return err_sys(err, r, "list the inodes");
	inos_sort(&all);

	struct flattener f = { .v = v };
	r = image_builder_new(&f.b, v->seed, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < all.n && r >= 0; i++) {
		r = add_inode(&f, all.v[i], err);
		if (r >= 0 && p && p->fn && p->fn(p->ctx, i + 1, all.n, 0))
			r = err_set(err, -ECANCELED, "it was cancelled");
	}
	if (r >= 0)
		r = store_sync(ss, err); /* objects before the name that leads to them */
	if (r >= 0)
		r = image_finish(f.b, opt->layer.io, opt->images, name, err);
	image_builder_free(f.b);
	return r;
}

int flatten_stack(struct stack *out, const struct stack *s, const struct view_options *opt,
		  struct store_session *ss, const struct save_progress *progress, struct err *err)
{
	struct view v;
	if (!stack_is_saved(s))
		return err_set(err, -EINVAL, "only a saved stack can be flattened");
	int r = view_open(&v, opt, s, err);
	if (r < 0)
		return err_prefix(err, r, "flatten");
	struct digest name;
	r = flatten_view(&v, opt, ss, progress, &name, err);
	view_done(&v);
	if (r < 0)
		return err_prefix(err, r, "flatten");
	*out = (struct stack){ .seed = s->seed, .image = name };
	return 0;
}
