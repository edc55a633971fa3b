/* Deltas: a sealed layer's state as objects of the store, in an order that depends on the
 * state alone, so that equal layers give equal objects. */
#include "fs/work/layer_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/work/extents.h"

enum {
	PART_HEAD = DELTA_HEAD,
	PART_VERSION = 1,
	PART_LAST = 1, /* flag */
};
static const uint8_t part_magic[8] = { 'B', 'o', 'u', 'g', 'h', 'D', 'l', 't' };

_Static_assert(PART_HEAD + REC_XATTR_VALUE_MAX + 1024 < STORE_OBJECT_MAX, "a record fits a part");

/* ---- writing ---- */

struct delta_out {
	struct layer *l;
	const struct delta_sink *sink;
	struct buf part, rec;
	uint32_t index, records;
	struct extent pending; /* of `ino`, not yet written; len 0: none */
	uint64_t ino, pos;     /* where the inode's extents have got to */
	struct err *err;
};

static int no_memory(struct delta_out *o)
{
	return err_set(o->err, -ENOMEM, "no memory for a delta");
}

void delta_head(uint8_t p[DELTA_HEAD], uint32_t index, bool last, uint32_t records)
{
	memset(p, 0, PART_HEAD);
	memcpy(p, part_magic, sizeof(part_magic));
	le_put32(p + 8, PART_VERSION);
	le_put32(p + 12, index);
	le_put32(p + 16, last ? PART_LAST : 0);
	le_put32(p + 20, records);
}

static int flush_part(struct delta_out *o, bool last)
{
	if (buf_error(&o->part) < 0)
		return no_memory(o);
	uint8_t *p = o->part.data;
	delta_head(p, o->index, last, o->records);
	int r = o->sink->part(o->sink->ctx, p, o->part.len, o->err);
	o->index++;
	o->records = 0;
	o->part.len = PART_HEAD;
	return r;
}

/* The record in o->rec goes to the part, or to the next one. */
static int put_record(struct delta_out *o)
{
	if (buf_error(&o->rec) < 0)
		return no_memory(o);
	if (o->part.len + o->rec.len > STORE_OBJECT_MAX) {
		if (o->index + 1 >= DELTA_PARTS_MAX)
			return err_set(o->err, -EFBIG, "a layer of more than %d parts",
				       DELTA_PARTS_MAX);
		int r = flush_part(o, false);
		if (r < 0)
			return r;
	}
	buf_add(&o->part, o->rec.data, o->rec.len);
	buf_reset(&o->rec);
	o->records++;
	return 0;
}

static int put_pending(struct delta_out *o)
{
	if (o->pending.len == 0)
		return 0;
	record_extent(&o->rec, o->ino, &o->pending, NULL);
	o->pending.len = 0;
	return put_record(o);
}

static int emit_extent(void *ctx, const struct extent *e)
{
	struct delta_out *o = ctx;
	if (e->kind != EXTENT_OBJECT && e->kind != EXTENT_ZERO)
		return -EINVAL;
	if (e->len == 0 || e->off < o->pos || e->len > INT64_MAX - e->off)
		return -EINVAL;
	o->pos = e->off + e->len;
	struct extent *p = &o->pending;
	if (p->len && p->off + p->len == e->off && extents_same_source(p, e)) {
		p->len += e->len;
		return 0;
	}
	int r = put_pending(o);
	*p = *e;
	return r;
}

static int own_extents(struct delta_out *o, const struct layer_inode *li)
{
	struct omap_entry e;
	omap_each(&li->extents, &e) {
		int r = emit_extent(o, e.value.p);
		if (r < 0)
			return err_sys(o->err, r, "inode %llu has contents that aren't objects",
				       (unsigned long long)li->attr.ino);
	}
	return 0;
}

static int put_content(struct delta_out *o, const struct layer_inode *li)
{
	o->ino = li->attr.ino;
	o->pos = 0;
	int r = o->sink->content ? o->sink->content(o->sink->ctx, li, emit_extent, o, o->err)
				 : own_extents(o, li);
	return r < 0 ? r : put_pending(o);
}

static int by_name(const void *a, const void *b)
{
	const struct layer_xattr *x = *(const struct layer_xattr *const *)a;
	const struct layer_xattr *y = *(const struct layer_xattr *const *)b;
	size_t n = x->name_len < y->name_len ? x->name_len : y->name_len;
	int c = memcmp(x->name, y->name, n);
	return c ? c : (int)x->name_len - (int)y->name_len;
}

static int put_xattrs(struct delta_out *o, const struct layer_inode *li)
{
	size_t n = 0, i = 0;
	for (const struct layer_xattr *x = li->xattrs; x; x = x->next)
		n++;
	if (n == 0)
		return 0;
	auto_free const struct layer_xattr **list = calloc(n, sizeof(*list));
	if (!list)
		return no_memory(o);
	for (const struct layer_xattr *x = li->xattrs; x; x = x->next)
		list[i++] = x;
	qsort(list, n, sizeof(*list), by_name);
	for (i = 0; i < n; i++) {
		const struct layer_xattr *x = list[i];
		if (x->removed)
			record_xattr_del(&o->rec, li->attr.ino, x->name, x->name_len, true);
		else
			record_xattr(&o->rec, li->attr.ino, x->name, x->name_len, x->value,
				     x->value_len);
		int r = put_record(o);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Unlinked but open when the layer was sealed: no name leads to it. */
static bool is_orphan(const struct layer_inode *li)
{
	return !li->dead && li->attr.nlink == 0 && li->attr.mode != 0;
}

static int put_inode(struct delta_out *o, const struct layer_inode *li)
{
	const struct attr *a = &li->attr;
	/* Who holds an orphan has it from the layer itself, or from a copy above (ws_replace).
	 * What is below may still have it with a name: leaving it out would bring that version
	 * back, nameless but counted, into what the saved stack shows. */
	if (li->dead || is_orphan(li)) {
		record_dead(&o->rec, a->ino, false);
		return put_record(o);
	}
	if (li->damaged)
		return err_set(o->err, -EIO, "inode %llu is damaged", (unsigned long long)a->ino);
	record_inode(&o->rec, a, li->base_size);
	int r = put_record(o);
	if (r == 0 && li->target) {
		record_target(&o->rec, a->ino, li->target, li->target_len);
		r = put_record(o);
	}
	if (r == 0)
		r = put_xattrs(o, li);
	if (r == 0 && S_ISREG(a->mode))
		r = put_content(o, li);
	return r;
}

static bool has_content(const struct layer_inode *li)
{
	return !li->dead && !is_orphan(li) && !li->damaged && S_ISREG(li->attr.mode);
}

/* Tells of what follows from *next on, as far as that is wanted. */
static int tell_ahead(struct delta_out *o, const uint64_t *inodes, size_t n, size_t *next)
{
	int r = 1;
	while (o->sink->ahead && *next < n && r > 0) {
		const struct layer_inode *li = layer_inode(o->l, inodes[*next]);
		if (has_content(li))
			r = o->sink->ahead(o->sink->ctx, li, o->err);
		*next += r > 0;
	}
	return r < 0 ? r : 0;
}

static int put_dir(struct delta_out *o, uint64_t dir)
{
	const struct layer_inode *li = layer_inode(o->l, dir);
	if (li && (li->dead || is_orphan(li)))
		return 0;
	const struct layer_dirent *d = layer_dirent_ceil(o->l, dir, 0);
	while (d) {
		if (d->ino)
			record_dirent(&o->rec, dir, d->cookie, d->name, d->name_len, d->ino,
				      d->type);
		else
			record_dirent_del(&o->rec, dir, d->cookie, true);
		int r = put_record(o);
		if (r < 0)
			return r;
		d = d->cookie == UINT64_MAX ? NULL : layer_dirent_ceil(o->l, dir, d->cookie + 1);
	}
	return 0;
}

/* The map's keys in order; the caller frees. NULL: no memory. */
static uint64_t *sorted_keys(const struct u64map *m)
{
	uint64_t *keys = calloc(m->count ? m->count : 1, sizeof(*keys));
	struct u64map_slot *slot;
	size_t n = 0;
	for (size_t i = 0; keys && (slot = u64map_next(m, &i));)
		keys[n++] = slot->key;
	if (n > 1)
		qsort(keys, n, sizeof(*keys), array_by_u64);
	return keys;
}

static int put_all(struct delta_out *o)
{
	struct layer *l = o->l;
	auto_free uint64_t *inodes = sorted_keys(&l->inodes), *dirs = sorted_keys(&l->dirs);
	int r = 0;
	if (!inodes || !dirs)
		return no_memory(o);
	if (l->shown) {
		record_files(&o->rec, l->shown);
		r = put_record(o);
	}
	for (size_t i = 0, next = 0; i < l->inodes.count && r >= 0; i++) {
		next = next < i ? i : next;
		r = tell_ahead(o, inodes, l->inodes.count, &next);
		if (r >= 0)
			r = put_inode(o, layer_inode(l, inodes[i]));
	}
	for (size_t i = 0; i < l->dirs.count && r >= 0; i++)
		r = put_dir(o, dirs[i]);
	return r < 0 ? r : flush_part(o, true);
}

int layer_to_delta(struct layer *l, const struct delta_sink *sink, struct err *err)
{
	struct delta_out o = { .l = l, .sink = sink, .err = err };
	if (buf_room(&o.part, PART_HEAD))
		o.part.len = PART_HEAD;
	int r = put_all(&o);
	buf_done(&o.part);
	buf_done(&o.rec);
	return r < 0 ? r : 0;
}

/* ---- reading ---- */

/* What a delta may not say: places in layers' files, and changes of what it says itself. */
static bool allowed(const struct record *r)
{
	switch (r->type) {
	case REC_INODE:
	case REC_DIRENT:
	case REC_TARGET:
	case REC_XATTR:
	case REC_FILES:
		return true;
	case REC_DEAD:
		return !r->flag;
	case REC_DIRENT_DEL:
	case REC_XATTR_DEL:
		return r->flag;
	case REC_EXTENT:
		return r->extent.kind == EXTENT_OBJECT || r->extent.kind == EXTENT_ZERO;
	case REC_EXTENT_DROP:
	case REC_USAGE:
	case REC_DAMAGED:
		return false;
	}
	return false;
}

int layer_apply_part(struct layer *l, const void *data, size_t len, uint32_t index, bool last)
{
	const uint8_t *p = data;
	if (len < PART_HEAD || len > STORE_OBJECT_MAX ||
	    memcmp(p, part_magic, sizeof(part_magic)) != 0)
		return -EBADMSG;
	if (le_get32(p + 8) != PART_VERSION || le_get32(p + 12) != index ||
	    le_get32(p + 16) != (last ? PART_LAST : 0) || le_get64(p + 24) != 0)
		return -EBADMSG;
	struct cur c = cur_init(p + PART_HEAD, len - PART_HEAD);
	struct record rec;
	uint32_t n = 0;
	int r;
	while ((r = record_next(&c, &rec)) > 0) {
		if (!allowed(&rec))
			return -EBADMSG;
		n++;
	}
	if (r < 0 || n != le_get32(p + 20))
		return -EBADMSG;
	struct layer_apply how = { .replay = true };
	r = layer_apply(l, p + PART_HEAD, len - PART_HEAD, &how);
	layer_apply_done(&how);
	if (r == 0)
		atomic_fetch_add(&l->records, n);
	return r;
}

static int load_part(struct layer *l, struct store *store, const struct stack_layer *desc,
		     uint32_t i, struct err *err)
{
	const struct blob *blob;
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, &desc->parts[i]);
	int r = store_get(store, &desc->parts[i], &blob, err);
	if (r < 0)
		return err_prefix(err, r, "part %u of a layer", i);
	r = layer_apply_part(l, blob->data, blob->len, i, i + 1 == desc->nparts);
	blob_put(blob);
	if (r == -EBADMSG)
		return err_set(err, r, "object %s is not part %u of a layer", hex, i);
	return r < 0 ? err_sys(err, r, "load object %s", hex) : 0;
}

int layer_from_delta(struct layer **out, const struct layer_options *opt,
		     const struct stack_layer *desc, struct err *err)
{
	struct layer_id id;
	if (desc->local || desc->nparts == 0 || desc->nparts > DELTA_PARTS_MAX)
		return err_set(err, -EBADMSG, "a delta of %u parts", desc->nparts);
	layer_delta_id(&id, desc->parts, desc->nparts);
	if (memcmp(id.b, desc->id.b, LAYER_ID_BYTES) != 0)
		return err_set(err, -EBADMSG, "a delta's id is not that of its parts");
	struct layer *l = layer_new_delta(opt->io, &id);
	if (!l)
		return err_set(err, -ENOMEM, "no memory for a layer");
	int r = 0;
	for (uint32_t i = 0; i < desc->nparts && r == 0; i++)
		r = load_part(l, opt->store, desc, i, err);
	if (r < 0) {
		layer_unref(l);
		return r;
	}
	layer_mark_partial(l);
	*out = l;
	return 0;
}
