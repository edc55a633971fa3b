/* Saving: the contents and records of local layers become objects of the store.
 *
 * What a layer was saved as stands beside it in ROOT/layers/<id>/saved, so that each is
 * saved once. The file isn't synced: it counts only in the boot that wrote it, and in
 * that boot what it names is at least in the page cache, until the disk fails a sync
 * (store_losses). A gc marks what it names. */
#include "fs/work/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "fs/base/cleanup.h"
#include "fs/work/saved.h"

struct saver {
	const struct view_options *opt;
	struct store_session *ss;
	struct store_ahead *ahead;
	const struct save_progress *progress;
	struct save_stats st;
	uint64_t files_total;
	/* The stack's; whichever it was when an extent was made, see view_map. */
	struct image *image;
	struct digest *parts; /* of the delta that is being written */
	uint32_t nparts, parts_cap;
};

/* Where the pieces of one run of content go. */
struct run_sink {
	struct saver *sv;
	const struct layer_inode *li;
	const struct extent *run; /* DATA: the extents of the run, in order */
	int (*emit)(void *emit_ctx, const struct extent *e);
	void *emit_ctx;
};

static int tell(const struct saver *sv, struct err *err)
{
	const struct save_progress *p = sv->progress;
	if (p && p->fn && p->fn(p->ctx, sv->st.files, sv->files_total, sv->st.bytes_read))
		return err_set(err, -ECANCELED, "the save was cancelled");
	return 0;
}

static int emit_piece(void *ctx, uint64_t off, uint32_t len, const struct digest *d,
		      struct err *err)
{
	struct run_sink *rs = ctx;
	struct extent e = { .off = off, .len = len, .kind = d ? EXTENT_OBJECT : EXTENT_ZERO };
	if (d)
		e.object = *d;
	int r = rs->emit(rs->emit_ctx, &e);
	if (r < 0)
		return err_sys(err, r, "record of a saved piece");
	rs->sv->st.bytes_read += len;
	return tell(rs->sv, err);
}

/* The layer's own DATA extents hold [off, off + len): the caller made the run so. */
static int read_run(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	struct run_sink *rs = ctx;
	uint8_t *out = buf;
	while (len > 0) {
		const struct extent *e = layer_extent_ceil(rs->li, off);
		if (!e || e->off > off || e->kind != EXTENT_DATA)
			return err_set(err, -EIO, "inode %llu: its extents changed under a save",
				       (unsigned long long)rs->li->attr.ino);
		uint64_t skip = off - e->off;
		size_t n = e->len - skip < len ? (size_t)(e->len - skip) : len;
		int r = layer_pread(e->layer, e->file, out, n, e->src + skip);
		if (r < 0)
			return err_sys(err, r, "read content of inode %llu",
				       (unsigned long long)rs->li->attr.ino);
		out += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* An extent that shares a range of the image: the pieces that the image names there. */
static int emit_image(struct saver *sv, const struct extent *e, uint64_t end,
		      struct run_sink *rs, struct err *err)
{
	int r = 0;
	if (!sv->image)
		return err_set(err, -EIO, "an extent leads to an image that isn't there");
	uint64_t from = e->src, to = e->src + (end - e->off);
	while (from < to) {
		struct piece p;
		r = image_piece_ceil(sv->image, e->image_ino, from, &p);
		if (r < 0 && r != -ENOENT)
			return err_sys(err, r, "inode %llu of the image",
				       (unsigned long long)e->image_ino);
		uint64_t data = r < 0 || p.off > to ? to : p.off > from ? p.off : from;
		struct extent x = { .off = e->off + (from - e->src) };
		if (data > from) {
			x.kind = EXTENT_ZERO;
			x.len = data - from;
		} else {
			uint64_t piece_end = p.off + p.len;
			x.kind = EXTENT_OBJECT;
			x.len = (piece_end < to ? piece_end : to) - from;
			x.object = p.object;
			x.src = p.obj_off + (from - p.off);
		}
		r = rs->emit(rs->emit_ctx, &x);
		if (r < 0)
			return err_sys(err, r, "record of a shared piece");
		from += x.len;
	}
	return 0;
}

/* End of the DATA extents that follow each other without a gap from `off`, at most `size`. */
static uint64_t data_run_end(const struct layer_inode *li, uint64_t off, uint64_t size)
{
	const struct extent *e;
	while (off < size && (e = layer_extent_ceil(li, off)) && e->off <= off &&
	       e->kind == EXTENT_DATA)
		off = e->off + e->len;
	return off < size ? off : size;
}

/* delta_sink.ahead: of files that are one small run, which most are. */
static int save_ahead(void *ctx, const struct layer_inode *li, struct err *err)
{
	struct saver *sv = ctx;
	struct run_sink rs = { .sv = sv, .li = li };
	const struct store_content content = { .read = read_run, .ctx = &rs };
	uint64_t ino = li->attr.ino, size = li->attr.size;
	if (size == 0 || size > STORE_SMALL_MAX || data_run_end(li, 0, size) < size)
		return 1;
	int r = store_ahead_add(sv->ahead, ino, (uint32_t)size, &content, err);
	return r < 0 ? err_prefix(err, r, "save inode %llu", (unsigned long long)ino) : r;
}

/* 1: it was put ahead, and is told of. */
static int take_ahead(struct saver *sv, const struct layer_inode *li, struct run_sink *rs,
		      struct err *err)
{
	struct digest d;
	bool zero;
	int r = store_ahead_take(sv->ahead, li->attr.ino, &d, &zero, err);
	if (r <= 0)
		return r;
	r = emit_piece(rs, 0, (uint32_t)li->attr.size, zero ? NULL : &d, err);
	return r < 0 ? r : 1;
}

/* delta_sink.content: everything the layer itself has of one file, as objects and holes. */
static int save_content(void *ctx, const struct layer_inode *li,
			int (*emit)(void *emit_ctx, const struct extent *e), void *emit_ctx,
			struct err *err)
{
	struct saver *sv = ctx;
	struct run_sink rs = { .sv = sv, .li = li, .emit = emit, .emit_ctx = emit_ctx };
	struct store_content content = { .read = read_run, .emit = emit_piece, .ctx = &rs };
	uint64_t size = li->attr.size, off = 0;
	const struct extent *e;
	if (li->damaged)
		return err_set(err, -EIO, "inode %llu is damaged and can't be saved",
			       (unsigned long long)li->attr.ino);
	int r = take_ahead(sv, li, &rs, err);
	if (r < 0)
		return err_prefix(err, r, "save inode %llu", (unsigned long long)li->attr.ino);
	if (r > 0)
		off = size;
	while (off < size && (e = layer_extent_ceil(li, off)) && e->off < size) {
		uint64_t end = e->off + e->len < size ? e->off + e->len : size;
		if (e->kind == EXTENT_DATA) {
			end = data_run_end(li, e->off, size);
			r = store_put_content(sv->ss, e->off, end - e->off, &content, err);
		} else if (e->kind == EXTENT_IMAGE) {
			r = emit_image(sv, e, end, &rs, err);
		} else {
			struct extent x = *e;
			x.len = end - e->off;
			r = emit(emit_ctx, &x);
			if (r < 0)
				r = err_sys(err, r, "record of a piece");
		}
		if (r < 0)
			return err_prefix(err, r, "save inode %llu",
					  (unsigned long long)li->attr.ino);
		off = end;
	}
	sv->st.files++;
	return tell(sv, err);
}

static int save_part(void *ctx, const void *data, size_t len, struct err *err)
{
	struct saver *sv = ctx;
	if (sv->nparts == sv->parts_cap) {
		uint32_t cap = sv->parts_cap ? sv->parts_cap * 2 : 4;
		if (cap > DELTA_PARTS_MAX)
			return err_set(err, -EFBIG, "a layer of more than %d parts",
				       DELTA_PARTS_MAX);
		struct digest *p = reallocarray(sv->parts, cap, sizeof(*p));
		if (!p)
			return err_set(err, -ENOMEM, "no memory for a delta's list");
		sv->parts = p;
		sv->parts_cap = cap;
	}
	int r = store_put(sv->ss, data, len, &sv->parts[sv->nparts], err);
	if (r < 0)
		return r;
	sv->nparts++;
	return 0;
}

static int open_layer(struct saver *sv, const struct stack_layer *desc, struct layer **out,
		      struct err *err)
{
	const struct view_options *opt = sv->opt;
	int r = opt->find ? opt->find(opt->find_ctx, desc, out) : -ENOENT;
	if (r == -ENOENT)
		r = layer_open(out, &opt->layer, &desc->id, false, err);
	else if (r < 0)
		return err_sys(err, r, "find a loaded layer");
	uint64_t lost = r >= 0 ? layer_lost(*out) : 0;
	if (lost) {
		layer_unref(*out);
		*out = NULL;
		return err_set(err, -EIO, "%llu damaged records: run bough fsck",
			       (unsigned long long)lost);
	}
	return r;
}

static int count_files(void *ctx, const struct layer_inode *li)
{
	*(uint64_t *)ctx += !li->dead;
	return 0;
}

static int save_layer(struct saver *sv, const struct stack_layer *desc, struct stack *out,
		      struct err *err)
{
	struct layer *l = NULL;
	uint8_t losses[STORE_LOSSES_BYTES];
	store_losses(sv->opt->layer.store, losses);
	int r = open_layer(sv, desc, &l, err);
	if (r < 0)
		return r;
	struct delta_sink sink = {
		.content = save_content, .part = save_part, .ahead = save_ahead, .ctx = sv
	};
	sv->nparts = 0;
	(void)layer_each_inode(l, count_files, &sv->files_total); /* count_files returns 0 */
	r = store_ahead_new(&sv->ahead, sv->ss, err);
	if (r >= 0)
		r = layer_to_delta(l, &sink, err);
	store_ahead_free(sv->ahead);
	sv->ahead = NULL;
	sv->st.records += layer_records(l);
	layer_unref(l);
	if (r < 0)
		return r;
	/* It may read now as it never will again (layer_mend). */
	struct layer_fault fault;
	if (layer_is_marked(sv->opt->layer.io, sv->opt->layer.root, &desc->id, &fault))
		return err_sys(err, fault.error ? fault.error : -EIO, "the disk failed under it");
	sv->st.layers++;
	struct stack_layer saved = { .parts = sv->parts, .nparts = sv->nparts };
	layer_delta_id(&saved.id, sv->parts, sv->nparts);
	r = stack_push(out, &saved.id, false, saved.parts, saved.nparts);
	if (r < 0)
		return err_sys(err, r, "list the saved layer");
	return saved_write(sv->opt->layer.io, sv->opt->layer.root, &desc->id, losses, &saved, err);
}

int save_stack(struct stack *out, const struct stack *s, const struct view_options *opt,
	       struct store_session *ss, const struct save_progress *progress,
	       struct save_stats *st, struct err *err)
{
	struct saver sv = { .opt = opt, .ss = ss, .progress = progress };
	auto_stack res = { .seed = s->seed, .image = s->image };
	uint64_t before = store_session_stored(ss);
	uint8_t losses[STORE_LOSSES_BYTES];
	int r = digest_is_zero(&s->image)
			? 0
			: image_open(&sv.image, opt->layer.io, opt->images, &s->image, err);
	for (uint32_t i = 0; i < s->nlayers && r >= 0; i++) {
		const struct stack_layer *sl = &s->layers[i];
		struct stack_layer saved = { 0 };
		if (!sl->local) {
			r = stack_push(&res, &sl->id, false, sl->parts, sl->nparts);
			if (r < 0)
				(void)err_sys(err, r, "list a layer");
			continue;
		}
		struct err absent = { 0 };
		store_losses(opt->layer.store, losses);
		r = saved_read(opt->layer.io, opt->layer.root, &sl->id, losses, &saved, &absent);
		if (r == -ENOENT) {
			r = save_layer(&sv, sl, &res, err);
		} else if (r >= 0) {
			r = stack_push(&res, &saved.id, false, saved.parts, saved.nparts);
			if (r < 0)
				(void)err_sys(err, r, "list a saved layer");
			free(saved.parts);
		} else if (err) {
			*err = absent;
		}
		if (r < 0) {
			char id[2 * LAYER_ID_BYTES + 1];
			hex_encode(id, sl->id.b, sizeof(sl->id.b));
			(void)err_prefix(err, r, "save layer %s", id);
		}
	}
	free(sv.parts);
	image_unref(sv.image);
	if (r < 0)
		return r;
	sv.st.bytes_stored = store_session_stored(ss) - before;
	if (st)
		*st = sv.st;
	*out = res;
	res = (struct stack){ 0 };
	return 0;
}
