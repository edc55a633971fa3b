/* Manifests, and what keeps a stack's bytes alive. */
#include "fs/work/save.h"

#include <errno.h>

#include "fs/base/cleanup.h"
#include "fs/work/saved.h"

int manifest_put(struct store_session *ss, const struct stack *saved, struct digest *out,
		 struct err *err)
{
	auto_buf b = { 0 };
	if (!stack_is_saved(saved))
		return err_set(err, -EINVAL, "a manifest can't name a local layer");
	stack_encode(saved, &b);
	if (buf_error(&b))
		return err_set(err, -ENOMEM, "no memory for a manifest");
	if (b.len > STORE_OBJECT_MAX)
		return err_set(err, -EFBIG, "the manifest has %zu bytes; flatten the stack", b.len);
	return store_put(ss, b.data, b.len, out, err);
}

int manifest_get(struct store *store, const struct digest *d, struct stack *out, struct err *err)
{
	const struct blob *blob;
	int r = store_get(store, d, &blob, err);
	if (r < 0)
		return err_prefix(err, r, "read the manifest");
	r = stack_decode(out, blob->data, blob->len);
	blob_put(blob);
	if (r >= 0 && !stack_is_saved(out)) {
		stack_done(out);
		r = -EBADMSG;
	}
	if (r < 0) {
		char hex[DIGEST_HEX + 1];
		digest_hex(hex, d);
		return err_sys(err, r, "object %s is no manifest", hex);
	}
	return 0;
}

struct reach {
	const struct view_options *opt;
	const struct reach_sink *sink;
	struct err *err;
};

static int reach_object(void *ctx, const struct digest *d)
{
	struct reach *re = ctx;
	return re->sink->object ? re->sink->object(re->sink->ctx, d) : 0;
}

static int reach_image(struct reach *re, const struct digest *d)
{
	if (re->sink->image) {
		int r = re->sink->image(re->sink->ctx, d);
		if (r < 0)
			return r;
	}
	if (!re->sink->object)
		return 0;
	struct image *im;
	int r = image_open(&im, re->opt->layer.io, re->opt->images, d, re->err);
	if (r < 0)
		return r;
	r = image_objects(im, reach_object, re);
	image_unref(im);
	return r;
}

static int reach_parts(struct reach *re, const struct stack_layer *sl)
{
	for (uint32_t i = 0; i < sl->nparts; i++) {
		int r = reach_object(re, &sl->parts[i]);
		if (r < 0)
			return r;
	}
	struct layer *l;
	int r = layer_from_delta(&l, &re->opt->layer, sl, re->err);
	if (r < 0)
		return r;
	r = layer_objects(l, reach_object, re);
	layer_unref(l);
	return r;
}

static int reach_local(struct reach *re, const struct stack_layer *sl)
{
	struct layer *l = NULL;
	int r = re->opt->find ? re->opt->find(re->opt->find_ctx, sl, &l) : -ENOENT;
	if (r == -ENOENT)
		r = layer_open(&l, &re->opt->layer, &sl->id, false, re->err);
	if (r < 0)
		return r;
	r = layer_objects(l, reach_object, re);
	layer_unref(l);
	if (r < 0)
		return r;
	struct stack_layer saved;
	struct err absent = { 0 };
	uint8_t losses[STORE_LOSSES_BYTES];
	store_losses(re->opt->layer.store, losses);
	r = saved_read(re->opt->layer.io, re->opt->layer.root, &sl->id, losses, &saved, &absent);
	if (r == -ENOENT)
		return 0; /* never saved, or it doesn't count any more */
	if (r < 0) {
		*re->err = absent;
		return r;
	}
	r = reach_parts(re, &saved);
	free(saved.parts);
	return r;
}

int stack_reach(const struct stack *s, const struct view_options *opt,
		const struct reach_sink *sink, struct err *err)
{
	struct err own = { 0 };
	struct reach re = { .opt = opt, .sink = sink, .err = err ? err : &own };
	int r = 0;
	re.err->text[0] = '\0';
	if (!digest_is_zero(&s->image))
		r = reach_image(&re, &s->image);
	for (uint32_t i = 0; i < s->nlayers && r >= 0; i++)
		r = s->layers[i].local ? reach_local(&re, &s->layers[i])
				       : reach_parts(&re, &s->layers[i]);
	if (r < 0 && !re.err->text[0])
		(void)err_sys(err, r, "list what a stack refers to");
	return r < 0 ? r : 0;
}
