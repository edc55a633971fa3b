/* Opening views, and what they show of inodes, names and xattrs; contents are in
 * view_content.c, walks in view_walk.c. */
#include "fs/work/view.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- life ---- */

static int open_layer(struct layer **out, const struct view_options *opt,
		      const struct stack_layer *desc, struct err *err)
{
	if (opt->find) {
		int r = opt->find(opt->find_ctx, desc, out);
		char hex[2 * LAYER_ID_BYTES + 1];
		hex_encode(hex, desc->id.b, LAYER_ID_BYTES);
		if (r != -ENOENT)
			return r == -EBADMSG ? err_set(err, r, "layer %s is damaged", hex)
			       : r < 0       ? err_sys(err, r, "load layer %s", hex)
					     : 0;
	}
	if (desc->local)
		return layer_open(out, &opt->layer, &desc->id, false, err);
	return layer_from_delta(out, &opt->layer, desc, err);
}

static int open_image(struct image **out, const struct view_options *opt, const struct digest *name,
		      struct err *err)
{
	if (opt->find_image) {
		int r = opt->find_image(opt->find_ctx, name, out);
		char hex[DIGEST_HEX + 1];
		digest_hex(hex, name);
		if (r != -ENOENT)
			return r == -EBADMSG ? err_set(err, r, "image %s is damaged", hex)
			       : r < 0       ? err_sys(err, r, "load image %s", hex)
					     : 0;
	}
	return image_open(out, opt->layer.io, opt->images, name, err);
}

int view_open(struct view *out, const struct view_options *opt, const struct stack *s,
	      struct err *err)
{
	struct view v = { .store = opt->layer.store, .seed = s->seed };
	v.layers = calloc(s->nlayers ? s->nlayers : 1, sizeof(*v.layers));
	if (!v.layers)
		return err_set(err, -ENOMEM, "no memory for a view");
	int r = 0;
	if (!digest_is_zero(&s->image))
		r = open_image(&v.image, opt, &s->image, err);
	/* From the bottom: what an extent of a layer refers to lies below it. */
	v.nlayers = s->nlayers;
	for (uint32_t i = s->nlayers; i > 0 && r == 0; i--)
		r = open_layer(&v.layers[i - 1], opt, &s->layers[s->nlayers - i], err);
	if (r < 0) {
		view_done(&v);
		return r;
	}
	*out = v;
	return 0;
}

void view_done(struct view *v)
{
	for (uint32_t i = 0; i < v->nlayers; i++)
		layer_unref(v->layers[i]);
	free(v->layers);
	image_unref(v->image);
	*v = (struct view){ 0 };
}

int view_copy(struct view *out, const struct view *v)
{
	struct layer **layers = calloc(v->nlayers ? v->nlayers : 1, sizeof(*layers));
	if (!layers)
		return -ENOMEM;
	for (uint32_t i = 0; i < v->nlayers; i++)
		layers[i] = layer_ref(v->layers[i]);
	*out = *v;
	out->layers = layers;
	if (v->image)
		out->image = image_ref(v->image);
	return 0;
}

/* ---- inodes ---- */

/* Nobody reads a file that looks empty: content that is lost must be asked for to answer -EIO. */
static void show_loss(struct attr *a)
{
	if (S_ISREG(a->mode) && a->size == 0)
		a->size = 1;
}

int view_inode_below(const struct view *v, uint32_t from, uint64_t ino, struct attr *out)
{
	bool lost = false;
	for (uint32_t i = from; i < v->nlayers; i++) {
		const struct layer_inode *li = layer_inode(v->layers[i], ino);
		if (!li)
			continue;
		if (li->dead)
			return -ENOENT;
		lost |= li->damaged;
		if (li->damaged && li->attr.mode == 0)
			continue; /* its attributes here were lost, its content answers -EIO */
		*out = li->attr;
		if (lost)
			show_loss(out);
		return 0;
	}
	int r = v->image ? image_inode(v->image, ino, out) : -ENOENT;
	if (r == 0 && lost)
		show_loss(out);
	return r;
}

int view_inode(const struct view *v, uint64_t ino, struct attr *out)
{
	return view_inode_below(v, 0, ino, out);
}

/* ---- names ---- */

static void ref_of(struct dirent_ref *out, const struct layer_dirent *d)
{
	*out = (struct dirent_ref){ .cookie = d->cookie,
				    .ino = d->ino,
				    .type = d->type,
				    .name_len = d->name_len,
				    .name = d->name };
}

/* Where a search over the names of a directory is in each of its sources. */
struct heads {
	/* For each layer its first record at or behind the cookie; NULL: it has none any more. */
	const struct layer_dirent *layer[STACK_LAYERS_MAX + 1];
	struct dirent_ref image;
	bool in_image; /* `image` is set */
};

/* Brings the sources up to `cookie`: all of them at first, then those that are behind. */
static int advance(struct heads *h, const struct view *v, uint32_t from, uint64_t dir,
		   uint64_t cookie, bool first)
{
	for (uint32_t i = from; i < v->nlayers; i++)
		if (first || (h->layer[i] && h->layer[i]->cookie < cookie))
			h->layer[i] = layer_dirent_ceil(v->layers[i], dir, cookie);
	if (!v->image || !(first || (h->in_image && h->image.cookie < cookie)))
		return 0;
	int r = image_dirent_ceil(v->image, dir, cookie, &h->image);
	h->in_image = r == 0;
	return r == -ENOENT ? 0 : r;
}

/* The entry with the least cookie in [cookie, last] that the layers from index `from` on and
 * the image show. -ENOENT: none. The upper layer wins at the same cookie; a whiteout
 * there hides it. */
static int dirent_ceil(const struct view *v, uint32_t from, uint64_t dir, uint64_t cookie,
		       uint64_t last, struct dirent_ref *out)
{
	struct heads h;
	h.in_image = false;
	assert(v->nlayers <= STACK_LAYERS_MAX + 1);
	for (bool first = true;; first = false) {
		const struct layer_dirent *best = NULL;
		int r = advance(&h, v, from, dir, cookie, first);
		if (r < 0)
			return r;
		for (uint32_t i = from; i < v->nlayers; i++)
			if (h.layer[i] && (!best || h.layer[i]->cookie < best->cookie))
				best = h.layer[i];
		if (h.in_image && (!best || h.image.cookie < best->cookie)) {
			if (h.image.cookie > last)
				return -ENOENT;
			*out = h.image;
			return 0;
		}
		if (!best || best->cookie > last)
			return -ENOENT;
		if (best->ino != 0) {
			ref_of(out, best);
			return 0;
		}
		cookie = best->cookie + 1;
		if (cookie == 0 || cookie > last)
			return -ENOENT;
	}
}

int view_dirent_ceil(const struct view *v, uint64_t dir, uint64_t cookie, struct dirent_ref *out)
{
	return dirent_ceil(v, 0, dir, cookie, UINT64_MAX, out);
}

int view_lookup(const struct view *v, uint64_t dir, const char *name, size_t len,
		struct dirent_ref *out)
{
	const uint64_t hash = name_hash(name, len, v->seed), last = hash + NAME_PROBE - 1;
	struct dirent_ref d;
	for (uint64_t c = hash;; c = d.cookie + 1) {
		int r = c > last ? -ENOENT : dirent_ceil(v, 0, dir, c, last, &d);
		if (r < 0)
			return r;
		if (d.name_len == len && memcmp(d.name, name, len) == 0)
			break;
	}
	*out = d;
	return 0;
}

int view_free_cookie(const struct view *v, uint64_t dir, const char *name, size_t len,
		     uint64_t *cookie)
{
	const uint64_t hash = name_hash(name, len, v->seed), last = hash + NAME_PROBE - 1;
	uint64_t want = hash; /* the first that no entry has, as far as was looked */
	for (uint64_t c = hash; c <= last;) {
		struct dirent_ref d;
		int r = dirent_ceil(v, 0, dir, c, last, &d);
		if (r == -ENOENT)
			break;
		if (r < 0)
			return r;
		if (d.name_len == len && memcmp(d.name, name, len) == 0)
			return -EEXIST;
		if (d.cookie == want)
			want++;
		c = d.cookie + 1;
	}
	if (want > last)
		return -ENOSPC;
	*cookie = want;
	return 0;
}

int view_below_has_cookie(const struct view *v, uint64_t dir, uint64_t cookie)
{
	struct dirent_ref d;
	int r = dirent_ceil(v, 1, dir, cookie, cookie, &d);
	return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

int view_dir_empty(const struct view *v, uint64_t dir)
{
	struct dirent_ref d;
	int r = view_dirent_ceil(v, dir, 0, &d);
	return r == -ENOENT ? 1 : r < 0 ? r : 0;
}

/* ---- targets and xattrs ---- */

int view_target(const struct view *v, uint64_t ino, char *buf, size_t cap, size_t *len)
{
	const char *target = NULL;
	size_t n = 0;
	for (uint32_t i = 0; i < v->nlayers && !target; i++) {
		const struct layer_inode *li = layer_inode(v->layers[i], ino);
		if (!li)
			continue;
		if (li->dead)
			return -ENOENT;
		if (li->target) {
			target = li->target;
			n = li->attr.size;
		}
	}
	if (!target) {
		int r = v->image ? image_target(v->image, ino, &target, &n) : -ENOENT;
		if (r < 0)
			return r;
	}
	if (n > cap)
		return -ERANGE;
	memcpy(buf, target, n);
	*len = n;
	return 0;
}

static int image_xattr_by(struct image *im, uint64_t ino, const char *name, size_t name_len,
			  const void **value, size_t *len)
{
	char text[NAME_MAX_BYTES + 1];
	if (name_len > NAME_MAX_BYTES)
		return -ENODATA;
	memcpy(text, name, name_len);
	text[name_len] = '\0';
	int r = image_xattr(im, ino, text, value, len);
	return r == -ENOENT ? -ENODATA : r;
}

int view_xattr_below(const struct view *v, uint32_t from, uint64_t ino, const char *name,
		     size_t name_len, const void **value, size_t *len, uint32_t *index)
{
	for (uint32_t i = from; i < v->nlayers; i++) {
		const struct layer_inode *li = layer_inode(v->layers[i], ino);
		if (!li)
			continue;
		if (li->dead)
			return -ENODATA;
		const struct layer_xattr *x = layer_xattr(li, name, name_len);
		if (!x)
			continue;
		if (x->removed)
			return -ENODATA;
		*value = x->value;
		*len = x->value_len;
		if (index)
			*index = i;
		return 0;
	}
	if (!v->image)
		return -ENODATA;
	int r = image_xattr_by(v->image, ino, name, name_len, value, len);
	if (r == 0 && index)
		*index = v->nlayers;
	return r;
}

int view_xattr(const struct view *v, uint64_t ino, const char *name, size_t name_len,
	       const void **value, size_t *len)
{
	return view_xattr_below(v, 0, ino, name, name_len, value, len, NULL);
}

/* Whether a layer above index `end` has a record of that xattr. */
static bool xattr_hidden(const struct view *v, uint32_t end, uint64_t ino, const char *name,
			 size_t len)
{
	for (uint32_t i = 0; i < end; i++) {
		const struct layer_inode *li = layer_inode(v->layers[i], ino);
		if (li && layer_xattr(li, name, len))
			return true;
	}
	return false;
}

int view_each_xattr(const struct view *v, uint64_t ino,
		    int (*fn)(void *ctx, const char *name, size_t name_len, const void *value,
			      size_t len),
		    void *ctx)
{
	for (uint32_t i = 0; i < v->nlayers; i++) {
		const struct layer_inode *li = layer_inode(v->layers[i], ino);
		if (!li)
			continue;
		if (li->dead)
			return 0;
		for (const struct layer_xattr *x = li->xattrs; x; x = x->next) {
			if (x->removed || xattr_hidden(v, i, ino, x->name, x->name_len))
				continue;
			int r = fn(ctx, x->name, x->name_len, x->value, x->value_len);
			if (r != 0)
				return r;
		}
	}
	for (uint32_t i = 0; v->image; i++) {
		const char *name;
		const void *value;
		size_t len;
		int r = image_xattr_at(v->image, ino, i, &name, &value, &len);
		if (r == -ENOENT)
			break;
		if (r < 0)
			return r;
		size_t name_len = strlen(name);
		if (xattr_hidden(v, v->nlayers, ino, name, name_len))
			continue;
		r = fn(ctx, name, name_len, value, len);
		if (r != 0)
			return r;
	}
	return 0;
}
