/* A layer's index: what its records say, in memory. One function applies records, whether
 * they were just written or are replayed. */
#include "fs/work/layer_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/base/array.h"
#include "fs/work/extents.h"

enum { MALLOC_OVERHEAD = 8 };

/* An inode's number is its key; heap counts what hangs on it. */
static void *index_alloc(struct layer *l, size_t n)
{
	void *p = malloc(n);
	if (p)
		l->heap += n + MALLOC_OVERHEAD;
	return p;
}

static void index_free(struct layer *l, void *p, size_t n)
{
	if (p) {
		free(p);
		l->heap -= n + MALLOC_OVERHEAD;
	}
}

/* ---- other layers ---- */

int layer_add_dep(struct layer *l, struct layer *dep, bool have_ref)
{
	for (uint32_t i = 0; i < l->ndeps; i++) {
		if (l->deps[i] == dep) {
			if (have_ref)
				layer_unref(dep);
			return 0;
		}
	}
	struct layer **deps = reallocarray(l->deps, l->ndeps + 1, sizeof(*deps));
	if (!deps)
		return -ENOMEM;
	l->deps = deps;
	l->deps[l->ndeps++] = have_ref ? dep : layer_ref(dep);
	return 0;
}

static int find_layer(struct layer *l, const struct layer_id *id, struct layer_apply *how,
		      struct layer **out)
{
	for (uint32_t i = 0; i < l->ndeps; i++) {
		if (memcmp(l->deps[i]->id.b, id->b, LAYER_ID_BYTES) == 0) {
			*out = l->deps[i];
			return 0;
		}
	}
	const struct layer_options *opt = how->opt;
	if (!opt || !opt->resolve)
		return -ENOENT;
	struct layer *dep = NULL;
	int r = opt->resolve(opt->resolve_ctx, id, &dep, NULL);
	if (r < 0)
		return r;
	r = layer_add_dep(l, dep, true);
	if (r < 0)
		layer_unref(dep);
	else
		*out = dep;
	return r;
}

/* ---- inodes ---- */

static struct layer_inode *find_inode(const struct layer *l, uint64_t ino)
{
	return u64map_get(&l->inodes, ino);
}

static struct layer_inode *get_inode(struct layer *l, uint64_t ino)
{
	struct layer_inode *li = find_inode(l, ino);
	if (li)
		return li;
	li = index_alloc(l, sizeof(*li));
	if (!li)
		return NULL;
	*li = (struct layer_inode){ .attr.ino = ino };
	if (u64map_put(&l->inodes, ino, li) < 0) {
		index_free(l, li, sizeof(*li));
		return NULL;
	}
	return li;
}

static size_t xattr_size(const struct layer_xattr *x)
{
	return sizeof(*x) + x->name_len + x->value_len;
}

static void free_target(struct layer *l, struct layer_inode *li)
{
	index_free(l, (void *)li->target, (size_t)li->target_len + 1);
	li->target = NULL;
	li->target_len = 0;
}

static void free_xattrs(struct layer *l, struct layer_inode *li)
{
	while (li->xattrs) {
		struct layer_xattr *x = li->xattrs;
		li->xattrs = x->next;
		index_free(l, x, xattr_size(x));
	}
}

static size_t dirent_size(size_t name_len)
{
	size_t n = offsetof(struct layer_dirent, name) + name_len;
	return n > sizeof(struct layer_dirent) ? n : sizeof(struct layer_dirent);
}

static void free_dirent(struct layer *l, struct layer_dirent *d)
{
	index_free(l, d, dirent_size(d->name_len));
	l->dirents--;
}

static void free_dir(struct layer *l, uint64_t dir)
{
	struct omap *m = u64map_del(&l->dirs, dir);
	if (!m)
		return;
	struct omap_entry e;
	omap_each(m, &e)
		free_dirent(l, e.value.p);
	omap_clear(m);
	index_free(l, m, sizeof(*m));
}

/* Where the type or the target says something else than the size, the target is right: nobody may
 * read behind it, whatever the records say. */
static void fit_target(struct layer *l, struct layer_inode *li)
{
	if (!li->target)
		return;
	if (li->attr.mode && !S_ISLNK(li->attr.mode))
		free_target(l, li);
	else
		li->attr.size = li->target_len;
}

static int apply_inode(struct layer *l, const struct record *r)
{
	struct layer_inode *li = get_inode(l, r->ino);
	if (!li)
		return -ENOMEM;
	li->attr = r->attr;
	li->base_size = r->base_size;
	li->dead = false;
	fit_target(l, li);
	return 0;
}

/* Whether what the record says of the inode's content was left out by the commit that counts. */
static bool is_left_out(const struct layer_apply *how, uint64_t ino)
{
	for (uint32_t i = 0; i < how->nleft_out; i++) {
		const struct layer_left_out *o = &how->left_out[i];
		if (o->ino == ino && how->seq > o->since && how->seq <= o->upto)
			return true;
	}
	return false;
}

/* The inode as the record says it, with no more content than it had. What it has here for the first
 * time shows what is below. */
static int apply_inode_short(struct layer *l, const struct record *r)
{
	const struct layer_inode *li = find_inode(l, r->ino);
	bool had = li && !li->dead && S_ISREG(li->attr.mode);
	uint64_t size = had ? li->attr.size : r->base_size;
	uint64_t base_size = had ? li->base_size : r->base_size;
	struct record s = *r;
	if (s.attr.size > size)
		s.attr.size = size;
	if (s.base_size > base_size)
		s.base_size = base_size;
	uint64_t blocks = (s.attr.size + LAYER_BLOCK - 1) / LAYER_BLOCK * (LAYER_BLOCK / 512);
	if (s.attr.blocks > blocks)
		s.attr.blocks = blocks;
	return apply_inode(l, &s);
}

/* ---- extents ---- */

/* One change of an inode's extents, as seen by the space of the data files. */
struct extent_change {
	struct layer *l;
	uint64_t ino;
	struct layer_apply *how;
};

static int piece_taken(void *ctx, const struct extent *e)
{
	struct extent_change *c = ctx;
	if (e->kind != EXTENT_DATA || e->layer != c->l)
		return 0;
	return space_take(&c->l->space, c->ino, e->off, e->file, e->src, e->len, !c->how->replay);
}

/* A place is let go only when the whole operation is applied: until then a later record of it may
 * refer to what an earlier one took away, when ranges of files change places. */
static int piece_gone(void *ctx, const struct extent *e)
{
	struct extent_change *c = ctx;
	struct layer_apply *how = c->how;
	if (e->kind != EXTENT_DATA || e->layer != c->l || (how->replay && e->file == SPACE_PACKED))
		return 0;
	if (array_grow(&how->drops, how->ndrops, &how->cap) < 0)
		return -ENOMEM;
	how->drops[how->ndrops++] = (struct layer_drop){ c->ino, e->off, e->file, e->src, e->len };
	return 0;
}

static int drop_part(void *ctx, const struct extent *e)
{
	struct extent_change *c = ctx;
	return space_drop(&c->l->space, c->ino, e->off, e->file, e->src, e->len);
}

/* Without memory a place isn't found free before the next replay: no harm is done. */
static void let_go(struct layer *l, struct layer_apply *how)
{
	for (size_t i = 0; i < how->ndrops; i++) {
		const struct layer_drop *d = &how->drops[i];
		struct extent e = { .off = d->off,
				    .len = d->len,
				    .kind = EXTENT_DATA,
				    .layer = l,
				    .file = d->file,
				    .src = d->src };
		struct extent_change c = { l, d->ino, how };
		bool own = d->file == d->ino && d->src == d->off;
		struct layer_inode *li = own ? find_inode(l, d->ino) : NULL;
		/* Of its own file an inode may have taken the very same place again. */
		if (li)
			(void)extents_new_pieces(&li->extents, &e, drop_part, &c);
		else
			(void)drop_part(&c, &e);
	}
	how->ndrops = 0;
}

static int drop_extents(struct layer *l, struct layer_inode *li, uint64_t from, uint64_t to,
			struct layer_apply *how)
{
	struct extent_change c = { l, li->attr.ino, how };
	struct extents_edit edit = { .gone = piece_gone, .ctx = &c };
	int r = extents_drop(&li->extents, from, to, &edit);
	l->extents += (uint64_t)edit.added;
	return r;
}

static int apply_extent(struct layer *l, const struct record *rec, struct layer_apply *how)
{
	struct layer_inode *li = get_inode(l, rec->ino);
	if (!li)
		return -ENOMEM;
	struct extent e = rec->extent;
	int r = 0;
	if (e.kind == EXTENT_DATA) {
		e.layer = l;
		if (rec->other)
			r = find_layer(l, &rec->layer_id, how, &e.layer);
	}
	if (r == -ENOMEM)
		return r;
	if (r < 0) { /* the layer it points into can't be had: this content, and no more, is lost */
		li->damaged = true;
		return 0;
	}
	/* What the new extent refers to must be counted before what it replaces is let go:
	 * the two may share places. */
	struct extent_change c = { l, rec->ino, how };
	r = extents_new_pieces(&li->extents, &e, piece_taken, &c);
	if (r < 0)
		return r;
	struct extents_edit edit = { .gone = piece_gone, .ctx = &c };
	r = extents_put(&li->extents, &e, &edit);
	l->extents += (uint64_t)edit.added;
	return r;
}

static int apply_drop(struct layer *l, const struct record *r, struct layer_apply *how)
{
	struct layer_inode *li = find_inode(l, r->ino);
	return li ? drop_extents(l, li, r->from, r->to, how) : 0;
}

static int apply_dead(struct layer *l, const struct record *r, struct layer_apply *how)
{
	free_dir(l, r->ino);
	struct layer_inode *li = find_inode(l, r->ino);
	if (!li && r->flag)
		return 0;
	if (!li)
		li = get_inode(l, r->ino);
	if (!li)
		return -ENOMEM;
	int e = drop_extents(l, li, 0, UINT64_MAX, how);
	free_xattrs(l, li);
	free_target(l, li);
	if (e < 0)
		return e;
	if (r->flag) {
		(void)u64map_del(&l->inodes, r->ino); /* it is there */
		index_free(l, li, sizeof(*li));
		return 0;
	}
	li->dead = true;
	li->damaged = false;
	li->base_size = 0;
	return 0;
}

/* ---- names ---- */

static int put_dirent(struct layer *l, uint64_t dir, uint64_t cookie, uint64_t child, uint8_t type,
		      const char *name, size_t len)
{
	struct omap *m = u64map_get(&l->dirs, dir);
	if (!m) {
		m = index_alloc(l, sizeof(*m));
		if (!m)
			return -ENOMEM;
		*m = (struct omap){ 0 };
		if (u64map_put(&l->dirs, dir, m) < 0) {
			index_free(l, m, sizeof(*m));
			return -ENOMEM;
		}
	}
	struct layer_dirent *d = index_alloc(l, dirent_size(len));
	if (!d)
		return -ENOMEM;
	d->cookie = cookie;
	d->ino = child;
	d->type = type;
	d->name_len = (uint8_t)len;
	if (len)
		memcpy(d->name, name, len);
	omap_value old = { 0 };
	bool had = false;
	if (omap_put(m, cookie, (omap_value){ .p = d }, &old, &had) < 0) {
		index_free(l, d, dirent_size(len));
		return -ENOMEM;
	}
	l->dirents++;
	if (had)
		free_dirent(l, old.p);
	return 0;
}

static int apply_dirent_del(struct layer *l, const struct record *r)
{
	if (r->flag)
		return put_dirent(l, r->ino, r->cookie, 0, 0, NULL, 0);
	struct omap *m = u64map_get(&l->dirs, r->ino);
	omap_value old = { 0 };
	if (m && omap_del(m, r->cookie, &old))
		free_dirent(l, old.p);
	if (m && m->count == 0)
		free_dir(l, r->ino);
	return 0;
}

/* ---- targets and xattrs ---- */

static int apply_target(struct layer *l, const struct record *r)
{
	struct layer_inode *li = get_inode(l, r->ino);
	char *t = li ? index_alloc(l, r->value_len + 1) : NULL;
	if (!t)
		return -ENOMEM;
	memcpy(t, r->value, r->value_len);
	t[r->value_len] = '\0';
	free_target(l, li);
	li->target = t;
	li->target_len = (uint32_t)r->value_len;
	fit_target(l, li);
	return 0;
}

/* Takes the xattr of that name out of the list. */
static struct layer_xattr *unlink_xattr(struct layer_inode *li, const char *name, size_t len)
{
	for (struct layer_xattr **p = &li->xattrs; *p; p = &(*p)->next) {
		struct layer_xattr *x = *p;
		if (x->name_len == len && memcmp(x->name, name, len) == 0) {
			*p = x->next;
			return x;
		}
	}
	return NULL;
}

static int put_xattr(struct layer *l, const struct record *r, bool removed)
{
	size_t value_len = removed ? 0 : r->value_len;
	struct layer_inode *li = get_inode(l, r->ino);
	if (!li)
		return -ENOMEM;
	struct layer_xattr *x = index_alloc(l, sizeof(*x) + r->name_len + value_len);
	if (!x)
		return -ENOMEM;
	char *name = (char *)(x + 1), *value = name + r->name_len;
	memcpy(name, r->name, r->name_len);
	if (value_len)
		memcpy(value, r->value, value_len);
	struct layer_xattr *old = unlink_xattr(li, r->name, r->name_len);
	if (old)
		index_free(l, old, xattr_size(old));
	*x = (struct layer_xattr){ .next = li->xattrs,
				   .removed = removed,
				   .name_len = (uint8_t)r->name_len,
				   .value_len = (uint32_t)value_len,
				   .name = name,
				   .value = value };
	li->xattrs = x;
	return 0;
}

static int apply_xattr_del(struct layer *l, const struct record *r)
{
	if (r->flag)
		return put_xattr(l, r, true);
	struct layer_inode *li = find_inode(l, r->ino);
	struct layer_xattr *old = li ? unlink_xattr(li, r->name, r->name_len) : NULL;
	if (old)
		index_free(l, old, xattr_size(old));
	return 0;
}

/* ---- applying ---- */

static int apply_record(struct layer *l, const struct record *r, struct layer_apply *how)
{
	const bool left_out = how->nleft_out > 0 && is_left_out(how, r->ino);
	switch (r->type) {
	case REC_INODE:
		return left_out && S_ISREG(r->attr.mode) ? apply_inode_short(l, r)
							 : apply_inode(l, r);
	case REC_DEAD:
		return apply_dead(l, r, how);
	case REC_DIRENT:
		return put_dirent(l, r->ino, r->cookie, r->child, r->dtype, r->name, r->name_len);
	case REC_DIRENT_DEL:
		return apply_dirent_del(l, r);
	case REC_TARGET:
		return apply_target(l, r);
	case REC_XATTR:
		return put_xattr(l, r, false);
	case REC_XATTR_DEL:
		return apply_xattr_del(l, r);
	case REC_EXTENT:
		/* A hole takes away, which counts. */
		return left_out && r->extent.kind != EXTENT_ZERO ? 0 : apply_extent(l, r, how);
	case REC_EXTENT_DROP:
		return apply_drop(l, r, how);
	case REC_DAMAGED:
		layer_mark_damaged(l, r->ino);
		return 0;
	case REC_USAGE:
		l->usage_bytes = r->bytes;
		l->usage_inodes = r->inodes;
		return 0;
	case REC_FILES:
		l->shown = r->files;
		return 0;
	}
	return -EBADMSG;
}

/* ---- what changed ---- */

enum { NAMES_LOOK = 64 }; /* records looked at for a name in a folder: an operation has fewer */

/* How a frame's names are about an inode: some are in it, some lead to it. */
enum { NAMED_IN = 1, NAMED_CHILD = 2 };

static int add_named(struct layer_apply *how, uint64_t ino, uintptr_t as)
{
	uintptr_t was = (uintptr_t)u64map_get(&how->named, ino);
	return was == (was | as) ? 0 : u64map_put(&how->named, ino, (void *)(was | as));
}

/* Of a frame with more records (a batch) all are kept that its names are about. */
static bool named_in_batch(struct cur c, uint64_t ino, uintptr_t as, struct layer_apply *how)
{
	struct record r;
	while (!how->named_whole && record_next(&c, &r) > 0) {
		bool name = r.type == REC_DIRENT || r.type == REC_DIRENT_DEL;
		int full = name ? add_named(how, r.ino, NAMED_IN) : 0;
		if (full == 0 && r.type == REC_DIRENT)
			full = add_named(how, r.child, NAMED_CHILD);
		if (full < 0)
			return true; /* without memory it says less of attributes */
	}
	how->named_whole = true;
	return (uintptr_t)u64map_get(&how->named, ino) & as;
}

/* Whether the frame has a name in that folder, or one that leads to that inode. */
static bool is_named(const void *body, size_t len, uint64_t ino, uintptr_t as,
		     struct layer_apply *how)
{
	struct cur c = cur_init(body, len);
	struct record r;
	for (int i = 0; i < NAMES_LOOK; i++) {
		if (record_next(&c, &r) <= 0)
			return false;
		bool name = r.type == REC_DIRENT || r.type == REC_DIRENT_DEL;
		if (name && as == NAMED_IN && r.ino == ino)
			return true;
		if (r.type == REC_DIRENT && as == NAMED_CHILD && r.child == ino)
			return true;
	}
	return named_in_batch(cur_init(body, len), ino, as, how);
}

/* What a change of the inode's record says that its names in the same frame don't. A folder that
 * gets or loses a name has another time, a file that is renamed, too: that says no more. */
static bool only_names(const struct layer *l, const struct record *r, const void *body, size_t len,
		       struct layer_apply *how)
{
	const struct layer_inode *li = layer_inode(l, r->ino);
	bool one = r->attr.nlink == 1 && (!li || li->dead || li->attr.nlink == 1);
	if (S_ISDIR(r->attr.mode))
		return is_named(body, len, r->ino, NAMED_IN, how);
	return li && one && is_named(body, len, r->ino, NAMED_CHILD, how);
}

static void note_name(struct layer *l, struct changed_log *g, const struct record *r, uint64_t seq)
{
	const struct layer_dirent *old = layer_dirent_ceil(l, r->ino, r->cookie);
	struct changed_name n = { .dir = r->ino, .cookie = r->cookie };
	bool known = old && old->cookie == r->cookie; /* a whiteout, too */
	if (known && old->ino) {
		n.kind = CHANGED_GONE;
		n.child = old->ino;
		n.type = old->type;
		n.name = old->name;
		n.len = old->name_len;
		changed_log_name(g, seq, &n);
	}
	if (r->type == REC_DIRENT) {
		n.kind = known ? CHANGED_MADE : CHANGED_MADE_OVER;
		n.child = r->child;
		n.type = r->dtype;
		n.name = r->name;
		n.len = r->name_len;
		changed_log_name(g, seq, &n);
	} else if (r->flag && !known) {
		n.kind = CHANGED_HIDDEN;
		changed_log_name(g, seq, &n);
	}
}

/* Before the record is applied: it may be the last to know a name. */
static void note(struct layer *l, const struct record *r, const void *body, size_t len,
		 struct layer_apply *how)
{
	struct changed_log *g = atomic_load(&l->changed);
	uint64_t seq = how->seq;
	if (!g || seq == 0)
		return;
	switch (r->type) {
	case REC_DIRENT:
	case REC_DIRENT_DEL:
		note_name(l, g, r, seq);
		return;
	case REC_INODE:
		if (!only_names(l, r, body, len, how))
			changed_log_inode(g, seq, r->ino);
		return;
	case REC_TARGET:
	case REC_XATTR:
	case REC_XATTR_DEL:
	case REC_EXTENT:
	case REC_EXTENT_DROP:
	case REC_DAMAGED:
		changed_log_inode(g, seq, r->ino);
		return;
	case REC_DEAD:
		changed_log_gone(g, r->ino);
		return;
	case REC_USAGE:
	case REC_FILES:
		return;
	}
}

int layer_apply(struct layer *l, const void *body, size_t len, struct layer_apply *how)
{
	struct record rec;
	int r;
	if (how->replay) { /* what was just built is right; what was read is applied whole or not */
		struct cur c = cur_init(body, len);
		while ((r = record_next(&c, &rec)) > 0)
			;
		if (r < 0)
			return r;
	}
	struct cur c = cur_init(body, len);
	u64map_done(&how->named); /* of the frame before */
	how->named_whole = false;
	while ((r = record_next(&c, &rec)) > 0) {
		note(l, &rec, body, len, how);
		r = apply_record(l, &rec, how);
		if (r < 0)
			return r;
	}
	assert(r == 0);
	let_go(l, how);
	return 0;
}

void layer_apply_done(struct layer_apply *how)
{
	u64map_done(&how->named);
	free(how->drops);
	how->drops = NULL;
	how->ndrops = how->cap = 0;
}

void layer_mark_damaged(struct layer *l, uint64_t ino)
{
	if (ino == 0 || ino >= UINT64_C(1) << REC_INO_BITS)
		return;
	struct layer_inode *li = get_inode(l, ino);
	if (li && !li->dead)
		li->damaged = true;
}

void layer_mark_partial(struct layer *l)
{
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&l->inodes, &i));) {
		struct layer_inode *li = slot->value;
		if (li->attr.mode == 0 && !li->dead)
			li->damaged = true;
	}
}

int layer_add_tag(struct layer *l, uint64_t tag, uint64_t ino)
{
	if (tag == 0 || !l->want_tags)
		return 0;
	if (l->ntags == l->tag_cap && l->tag_cap < LAYER_TAGS) {
		uint32_t cap = l->tag_cap ? l->tag_cap * 2 : 16;
		struct layer_tagged *tags = reallocarray(l->tags, cap, sizeof(*tags));
		if (!tags)
			return -ENOMEM;
		l->tags = tags;
		l->tag_cap = cap;
		l->tag_at = l->ntags;
	}
	l->tags[l->tag_at % l->tag_cap] = (struct layer_tagged){ tag, ino };
	l->tag_at = (l->tag_at + 1) % l->tag_cap;
	if (l->ntags < l->tag_cap)
		l->ntags++;
	return 0;
}

uint64_t layer_last_ours(const struct layer *l)
{
	return l->ours;
}

int layer_tag(const struct layer *l, uint64_t tag, uint64_t *ino)
{
	for (uint32_t i = 0; tag && i < l->ntags; i++) {
		if (l->tags[i].tag != tag)
			continue;
		*ino = l->tags[i].ino;
		return 1;
	}
	return 0;
}

/* ---- space after a replay ---- */

struct use_list {
	struct layer *l;
	struct space_use *uses;
	size_t n;
};

static int list_uses(void *ctx, const struct layer_inode *li)
{
	struct use_list *u = ctx;
	struct omap_entry e;
	omap_each(&li->extents, &e) {
		const struct extent *x = e.value.p;
		if (x->kind != EXTENT_DATA || x->layer != u->l || x->file != SPACE_PACKED)
			continue;
		if (u->uses)
			u->uses[u->n] = (struct space_use){ x->src, x->len };
		u->n++;
	}
	return 0;
}

int layer_rebuild_space(struct layer *l, uint64_t data_size, bool unsettled)
{
	struct use_list u = { .l = l };
	(void)layer_each_inode(l, list_uses, &u); /* counts; returns 0 */
	size_t n = u.n;
	u.n = 0;
	u.uses = calloc(n ? n : 1, sizeof(*u.uses));
	if (!u.uses)
		return -ENOMEM;
	(void)layer_each_inode(l, list_uses, &u); /* lists; returns 0 */
	int r = space_rebuild(&l->space, u.uses, n, data_size, unsettled);
	free(u.uses);
	return r;
}

void layer_free_index(struct layer *l)
{
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&l->inodes, &i));) {
		struct layer_inode *li = slot->value;
		extents_clear(&li->extents);
		free_xattrs(l, li);
		free_target(l, li);
		index_free(l, li, sizeof(*li));
	}
	u64map_done(&l->inodes);
	for (size_t i = 0; (slot = u64map_next(&l->dirs, &i));) {
		struct omap *m = slot->value;
		struct omap_entry e;
		omap_each(m, &e)
			free_dirent(l, e.value.p);
		omap_clear(m);
		index_free(l, m, sizeof(*m));
	}
	u64map_done(&l->dirs);
	for (uint32_t i = 0; i < l->ndeps; i++)
		layer_unref(l->deps[i]);
	free(l->deps);
	free(l->tags);
	assert(l->heap == 0);
}

/* ---- reading ---- */

const struct layer_inode *layer_inode(const struct layer *l, uint64_t ino)
{
	return find_inode(l, ino);
}

const struct layer_dirent *layer_dirent_ceil(const struct layer *l, uint64_t dir, uint64_t cookie)
{
	const struct omap *m = u64map_get(&l->dirs, dir);
	struct omap_entry e;
	return m && omap_ceil(m, cookie, &e) ? e.value.p : NULL;
}

bool layer_has_dir(const struct layer *l, uint64_t dir)
{
	return u64map_get(&l->dirs, dir) != NULL;
}

const struct extent *layer_extent_ceil(const struct layer_inode *li, uint64_t off)
{
	return extents_ceil(&li->extents, off);
}

const struct layer_xattr *layer_xattr(const struct layer_inode *li, const char *name, size_t len)
{
	for (const struct layer_xattr *x = li->xattrs; x; x = x->next)
		if (x->name_len == len && memcmp(x->name, name, len) == 0)
			return x;
	return NULL;
}

int layer_each_inode(const struct layer *l, int (*fn)(void *ctx, const struct layer_inode *li),
		     void *ctx)
{
	struct u64map_slot *slot;
	int r = 0;
	for (size_t i = 0; r == 0 && (slot = u64map_next(&l->inodes, &i));)
		r = fn(ctx, slot->value);
	return r;
}

int layer_each_dir(const struct layer *l, int (*fn)(void *ctx, uint64_t dir), void *ctx)
{
	struct u64map_slot *slot;
	int r = 0;
	for (size_t i = 0; r == 0 && (slot = u64map_next(&l->dirs, &i));)
		r = fn(ctx, slot->key);
	return r;
}

void layer_usage(const struct layer *l, int64_t *bytes, int64_t *inodes)
{
	*bytes = l->usage_bytes;
	*inodes = l->usage_inodes;
}

int layer_each_cut(const struct layer *l, int (*fn)(void *ctx, uint64_t ino), void *ctx)
{
	int r = 0;
	for (uint32_t i = 0; i < l->nleft_out && r == 0; i++)
		if (l->left_out[i].upto >= l->loaded)
			r = fn(ctx, l->left_out[i].ino);
	return r;
}

int64_t layer_files(const struct layer *l)
{
	return l->shown;
}

bool layer_owns(const struct layer *l, const struct extent *e, uint64_t off, uint64_t len)
{
	if (e->kind != EXTENT_DATA || e->layer != l || layer_is_sealed(l))
		return false;
	if (off < e->off || off + len > e->off + e->len)
		return false;
	return space_alone((struct space *)&l->space, e->file, e->src + (off - e->off), len);
}

static int objects_of(void *ctx, const struct layer_inode *li)
{
	struct {
		int (*fn)(void *ctx, const struct digest *d);
		void *ctx;
	} *want = ctx;
	struct omap_entry e;
	omap_each(&li->extents, &e) {
		const struct extent *x = e.value.p;
		int r = x->kind == EXTENT_OBJECT ? want->fn(want->ctx, &x->object) : 0;
		if (r != 0)
			return r;
	}
	return 0;
}

int layer_objects(const struct layer *l, int (*fn)(void *ctx, const struct digest *d), void *ctx)
{
	struct {
		int (*fn)(void *ctx, const struct digest *d);
		void *ctx;
	} want = { fn, ctx };
	return layer_each_inode(l, objects_of, &want);
}
