/* A checkout as a whole: the image of a commit, and the stack of a workspace. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/cleanup.h"
#include "fs/work/changed.h"
#include "fs/work/layer.h"
#include "fs/work/record.h"
#include "gitops/checkout_impl.h"

/* ---- the image ---- */

struct build {
	const struct checkout_options *opt;
	const struct checkout_spec *spec;
	struct image_builder *b;
	struct co_inos inos;
	struct co_past past;
	struct checkout_known *known; /* those */
	struct co_tree tree;
	struct pack_set packs;
	struct checkout_result *out;
	struct err *err;
};

struct piece_sink {
	struct build *b;
	const struct buf *data;
	uint64_t at; /* of the data, in the file */
};

static int sink_read(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	const struct piece_sink *s = ctx;
	memcpy(buf, s->data->data + (off - s->at), len);
	return 0;
}

static int sink_emit(void *ctx, uint64_t off, uint32_t len, const struct digest *d, struct err *err)
{
	const struct piece_sink *s = ctx;
	if (!d)
		return 0; /* a hole */
	struct piece p = { .off = off, .len = len, .object = *d };
	int r = image_add_piece(s->b->b, s->b->out->index_ino, &p);
	return r < 0 ? err_sys(err, r, "add the index") : 0;
}

static int put_index_part(struct build *b, const struct buf *data, uint64_t at)
{
	struct piece_sink s = { b, data, at };
	struct store_content how = { sink_read, sink_emit, &s };
	return store_put_content(b->opt->session, at, data->len, &how, b->err);
}

/* The index's time is later than every file's: else git would take them for changed in the second
 * in which it was written, and read them all (racy-git). */
static void date_index(struct build *b, uint64_t size)
{
	struct attr *a = image_builder_attr(b->b, b->out->index_ino);
	a->size = size;
	a->mtime = a->ctime = a->btime = (struct timespec){ b->spec->time_s + 1, 0 };
}

static int add_index(struct build *b)
{
	auto_buf head = { 0 }, rest = { 0 }, meta = { 0 };
	struct checkout_result *out = b->out;
	int r = index_head(&head, &rest, &meta, &b->tree, b->spec, b->err);
	if (r >= 0)
		r = put_index_part(b, &head, 0);
	if (r >= 0)
		r = put_index_part(b, &rest, head.len);
	if (r < 0)
		return r;
	date_index(b, head.len + rest.len);
	out->index_head = head.len;
	out->index_rest = rest.len;
	memcpy(out->index_meta, meta.data, meta.len);
	out->index_meta_len = (uint32_t)meta.len;
	return 0;
}

static int by_oid(const void *a, const void *b)
{
	return memcmp(((const struct co_large *)a)->oid.b, ((const struct co_large *)b)->oid.b,
		      OID_BYTES);
}

/* Only a hint for later ones: that it can't be written is no failure of this one. */
static void remember(const struct build *b)
{
	struct co_record rec = { .commit = b->spec->commit,
				 .result = *b->out,
				 .large = b->tree.large,
				 .nlarge = b->tree.nlarge };
	if (rec.nlarge > 1)
		qsort(rec.large, rec.nlarge, sizeof(*rec.large), by_oid);
	(void)co_record_write(b->opt, b->spec, &rec, NULL);
	if (b->packs.told_by && b->opt->known == b->known)
		co_past_used(b->opt, &b->past.v[b->packs.told_by - 1]);
}

/* The packs are written beside the walk of the tree, by a thread with a mirror and a session of its
 * own; what it puts is durable with the build's sync. */
struct pack_job {
	struct checkout_options opt;
	const struct checkout_spec *spec;
	struct pack_set *out;
	pthread_t thread;
	bool threaded;
	int result;
	struct err err;
};

static void *write_packs(void *arg)
{
	struct pack_job *j = arg;
	j->result = pack_write(j->out, &j->opt, j->spec, &j->err);
	return NULL;
}

/* ROOT, in whose folder `repos` the mirror is. The caller frees. */
static char *root_of(const struct checkout_options *opt)
{
	static const char middle[] = "/repos/";
	size_t len = strlen(mirror_path(opt->mirror)), tail = strlen(middle) + REPO_NAME_BYTES - 1;
	return strndup(mirror_path(opt->mirror), len > tail ? len - tail : 0);
}

static int packs_begin(struct pack_job *j, struct build *b)
{
	auto_free char *root = root_of(b->opt);
	*j = (struct pack_job){ .opt = *b->opt, .spec = b->spec, .out = &b->packs };
	j->opt.mirror = NULL;
	j->opt.session = NULL;
	j->opt.progress = NULL; /* the tree tells */
	if (!root)
		return err_no_memory(b->err);
	int r = mirror_open(&j->opt.mirror, root, mirror_number(b->opt->mirror), b->err);
	if (r >= 0)
		r = store_session_begin(b->opt->store, &j->opt.session, b->err);
	if (r < 0)
		return r;
	j->threaded = pthread_create(&j->thread, NULL, write_packs, j) == 0;
	if (!j->threaded)
		(void)write_packs(j); /* one after the other, then */
	return 0;
}

/* Waits for it in any case. */
static int packs_end(struct pack_job *j, struct err *err)
{
	if (j->threaded)
		(void)pthread_join(j->thread, NULL); /* ours, joined once */
	store_session_end(j->opt.session);
	mirror_close(j->opt.mirror);
	if (j->result < 0 && err)
		*err = j->err;
	return j->result;
}

static int build_contents(struct build *b)
{
	struct pack_job job;
	int r = packs_begin(&job, b);
	if (r >= 0)
		r = co_tree_add(&b->tree, b->b, &b->inos, b->opt, b->spec, &b->past, b->err);
	int p = packs_end(&job, r < 0 ? NULL : b->err);
	return r < 0 ? r : p;
}

static int build_all(struct build *b)
{
	const struct checkout_options *opt = b->opt;
	struct dotgit_inos made = { 0 };
	int r = image_builder_new(&b->b, opt->seed, b->err);
	if (r >= 0)
		r = build_contents(b);
	if (r >= 0)
		r = dotgit_add(&made, b->b, &b->inos, b->tree.nfiles, &b->packs, opt, b->spec,
			       b->err);
	b->out->index_ino = made.index;
	b->out->here_ino = made.here;
	if (r >= 0)
		r = add_index(b);
	/* Invariant 5: what the image refers to is durable before its name is there. */
	if (r >= 0)
		r = store_sync(opt->session, b->err);
	if (r >= 0)
		r = image_finish(b->b, opt->io, opt->images, &b->out->image, b->err);
	if (r < 0)
		return r;
	b->out->seed = opt->seed;
	b->out->files = b->tree.in_scope;
	b->out->bytes = b->tree.bytes;
	b->out->submodules = b->tree.submodules;
	b->out->lfs = b->tree.lfs;
	b->out->submodule_names = b->tree.submodule_names;
	b->out->lfs_names = b->tree.lfs_names;
	remember(b);
	return 0;
}

int checkout_build(struct checkout_result *out, const struct checkout_options *opt,
		   const struct checkout_spec *spec, struct err *err)
{
	struct checkout_result result = { 0 };
	struct checkout_options with = *opt;
	struct build b = { .opt = &with, .spec = spec, .out = &result, .err = err };
	b.inos.opt = &with;
	int r = co_past_load(&b.past, opt, err);
	if (r >= 0 && !opt->known && b.past.n) {
		b.known = calloc(b.past.n, sizeof(*b.known));
		if (!b.known)
			r = err_no_memory(err);
		for (size_t i = 0; b.known && i < b.past.n; i++)
			b.known[i] = (struct checkout_known){ b.past.v[i].commit,
							      b.past.v[i].result.image };
		with.known = b.known;
		with.nknown = b.known ? b.past.n : 0;
	}
	if (r >= 0)
		r = build_all(&b);
	image_builder_free(b.b);
	pack_set_done(&b.packs);
	co_tree_done(&b.tree);
	co_past_done(&b.past);
	free(b.known);
	if (r < 0)
		return r;
	*out = result;
	return 0;
}

/* ---- a workspace's stack ---- */

struct stacking {
	const struct checkout_result *co;
	const struct checkout_options *opt;
	struct image *im;
	struct buf rest, front;
	uint8_t trailer[INDEX_TRAILER];
	struct buf records;
	uint32_t nrecords;
	uint64_t at; /* how far extents have come */
	struct err *err;
};

static int bad_image(struct stacking *s, int r)
{
	return err_set(s->err, r == -ENOMEM ? r : -EBADMSG,
		       "the image of the checkout isn't what was built");
}

/* The pieces of `rest`, in order; NULL behind the last. 1, 0 or -errno. */
static int next_piece(struct stacking *s, uint64_t *off, struct piece *p)
{
	uint64_t end = s->co->index_head + s->co->index_rest;
	if (*off >= end)
		return 0;
	int r = image_piece_ceil(s->im, s->co->index_ino, *off, p);
	if (r < 0 || p->off != *off || p->len > end - *off)
		return bad_image(s, r < 0 ? r : -EBADMSG);
	*off += p->len;
	return 1;
}

static int read_rest(struct stacking *s)
{
	uint64_t off = s->co->index_head;
	struct piece p;
	int r;
	while ((r = next_piece(s, &off, &p)) > 0) {
		const struct blob *b;
		r = store_get(s->opt->store, &p.object, &b, s->err);
		if (r < 0)
			return r;
		bool whole = p.obj_off <= b->len && p.len <= b->len - p.obj_off;
		if (whole)
			buf_add(&s->rest, b->data + p.obj_off, p.len);
		blob_put(b);
		if (!whole)
			return bad_image(s, -EBADMSG);
	}
	if (r >= 0 && buf_error(&s->rest) < 0)
		return err_no_memory(s->err);
	return r;
}

static void add_extent(struct stacking *s, uint64_t ino, const struct digest *object, uint64_t src,
		       uint64_t len)
{
	struct extent e = {
		.off = s->at, .len = len, .kind = EXTENT_OBJECT, .src = src, .object = *object
	};
	record_extent(&s->records, ino, &e, NULL);
	s->nrecords++;
	s->at += len;
}

static int put_extent(struct stacking *s, uint64_t ino, const void *data, size_t len)
{
	struct digest d;
	int r = store_put(s->opt->session, data, len, &d, s->err);
	if (r >= 0)
		add_extent(s, ino, &d, 0, len);
	return r;
}

/* .git/bough/here: its records come first, as its number does. */
static int put_here(struct stacking *s, const char *path)
{
	auto_buf text = { 0 };
	struct attr a;
	dotgit_here(&text, path);
	int r = image_inode(s->im, s->co->here_ino, &a);
	if (r < 0 || !S_ISREG(a.mode) || a.size != 0 || s->co->here_ino >= s->co->index_ino)
		return bad_image(s, r < 0 ? r : -EBADMSG);
	if (buf_error(&text) < 0)
		return err_no_memory(s->err);
	a.size = text.len;
	a.blocks = (a.size + 4095) / 4096 * 8;
	record_inode(&s->records, &a, 0);
	s->nrecords++;
	s->at = 0;
	return text.len ? put_extent(s, a.ino, text.data, text.len) : 0;
}

/* Of an inode its attributes come first, then its extents in order. */
static int make_records(struct stacking *s)
{
	struct attr a;
	struct piece p;
	const struct checkout_result *co = s->co;
	uint64_t off = co->index_head;
	int r = image_inode(s->im, co->index_ino, &a);
	if (r < 0 || !S_ISREG(a.mode) || a.size != co->index_head + co->index_rest)
		return bad_image(s, r < 0 ? r : -EBADMSG);
	a.size += s->front.len + INDEX_TRAILER;
	a.blocks = (a.size + 4095) / 4096 * 8;
	record_inode(&s->records, &a, co->index_head);
	s->nrecords++;
	s->at = co->index_head;
	r = put_extent(s, co->index_ino, s->front.data, s->front.len);
	while (r >= 0 && (r = next_piece(s, &off, &p)) > 0)
		add_extent(s, co->index_ino, &p.object, p.obj_off, p.len);
	return r < 0 ? r : put_extent(s, co->index_ino, s->trailer, sizeof(s->trailer));
}

static int put_layer(struct stacking *s, struct stack *out)
{
	auto_buf part = { 0 };
	uint8_t head[DELTA_HEAD];
	struct digest d;
	struct layer_id id;
	delta_head(head, 0, true, s->nrecords);
	buf_add(&part, head, sizeof(head));
	buf_add(&part, s->records.data, s->records.len);
	if (buf_error(&s->records) < 0 || buf_error(&part) < 0)
		return err_no_memory(s->err);
	int r = store_put(s->opt->session, part.data, part.len, &d, s->err);
	if (r < 0)
		return r;
	layer_delta_id(&id, &d, 1);
	r = stack_push(out, &id, false, &d, 1);
	return r < 0 ? err_no_memory(s->err) : 0;
}

int checkout_stack(struct stack *out, const struct checkout_result *co,
		   const struct checkout_options *opt, const char *path, struct err *err)
{
	struct stacking s = { .co = co, .opt = opt, .err = err };
	auto_stack stack = { .seed = co->seed, .image = co->image };
	char token[CHANGED_TOKEN_MAX];
	changed_token_of_image(token, &co->image);
	int r = image_open(&s.im, opt->io, opt->images, &co->image, err);
	if (r >= 0)
		r = read_rest(&s);
	if (r >= 0)
		r = index_tail(&s.front, s.trailer, co->index_meta, co->index_meta_len, s.rest.data,
			       s.rest.len, token, path, err);
	if (r >= 0)
		r = put_here(&s, path);
	if (r >= 0)
		r = make_records(&s);
	if (r >= 0)
		r = put_layer(&s, &stack);
	image_unref(s.im);
	buf_done(&s.rest);
	buf_done(&s.front);
	buf_done(&s.records);
	if (r < 0)
		return r;
	*out = stack;
	memset(&stack, 0, sizeof(stack));
	return 0;
}
