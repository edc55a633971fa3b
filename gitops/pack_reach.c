/* What a workspace may see of a history: the commits within depth, their trees, the blobs within
 * scope, and nothing else. Secrecy rests on this file, pack_tree.c and pack_older.c. */
#include "gitops/pack_reach.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum {
	TAG_CHAIN_MAX = 16, /* tags of tags */
	TELL_EVERY = 1024,  /* commits */
	SPLIT_FROM = 2048,  /* commits whose trees are worth a second thread */
	NEAR = 512,         /* so far a known ancestor is looked for before notes are */
};

static int tell(struct reach *r, uint64_t done, const char *what)
{
	const struct checkout_options *o = r->opt;
	if (o->progress && o->progress(o->progress_ctx, done, 0, what) != 0)
		return err_set(r->err, -ECANCELED, "cancelled");
	return 0;
}

static bool is_there(const struct reach *r, uint32_t obj)
{
	return reach_has(r, obj, MARK_TYPE | MARK_KNOWN);
}

/* ---- commits ---- */

/* "<key> <40 digits>\n" at the start of *p: 1, and *p is behind it; 0: something else. */
static int header_oid(const char **p, const char *key, struct oid *oid)
{
	size_t n = strlen(key);
	char hex[OID_HEX + 1];
	size_t line = n + 1 + OID_HEX;
	if (strncmp(*p, key, n) != 0 || (*p)[n] != ' ' || strnlen(*p, line + 1) <= line ||
	    (*p)[line] != '\n')
		return 0;
	memcpy(hex, *p + n + 1, OID_HEX);
	hex[OID_HEX] = 0;
	if (oid_parse(oid, hex) < 0)
		return 0;
	*p += line + 1;
	return 1;
}

static int add_commit(struct reach *r, uint32_t obj, unsigned depth)
{
	if (is_there(r, obj))
		return 0;
	if (array_grow(&r->commits, r->ncommits, &r->commits_cap) < 0)
		return reach_no_memory(r);
	reach_include(r, obj, GIT_COMMIT);
	r->commits[r->ncommits++] = (struct commit){ .obj = obj, .tree = OBJ_NONE, .depth = depth };
	r->commit_of[obj] = (uint32_t)r->ncommits;
	return 0;
}

static int add_parent(struct reach *r, struct commit *c, uint32_t obj)
{
	if (array_grow(&r->parents, r->nparents, &r->parents_cap) < 0)
		return reach_no_memory(r);
	if (c->nparents++ == 0)
		c->parents = (uint32_t)r->nparents;
	r->parents[r->nparents++] = obj;
	return add_commit(r, obj, c->depth + 1);
}

static int end_here(struct reach *r, uint32_t obj)
{
	struct pack_set *s = r->out;
	struct oid *more = reallocarray(s->shallow, s->nshallow + 1, sizeof(*more));
	if (!more)
		return reach_no_memory(r);
	s->shallow = more;
	src_oid(r->src, obj, &more[s->nshallow++]);
	return 0;
}

/* Reads a commit up to its tree; *p is behind that. */
static int read_commit(struct reach *r, uint32_t obj, struct src_data **d, const char **p,
		       uint32_t *tree)
{
	struct oid oid;
	int k = src_read(r->src, obj, d, r->err);
	if (k < 0)
		return k;
	*p = (const char *)(*d)->data; /* ends with a NUL */
	if ((*d)->type != GIT_COMMIT || !header_oid(p, "tree", &oid))
		return reach_bad_object(r, obj, *d, "commit");
	return src_need(r->src, &oid, tree, r->err);
}

/* Reads commit i: its tree, and its parents, which are added when they are within depth. */
static int expand(struct reach *r, size_t i)
{
	auto_src_data *d = NULL;
	const char *p;
	struct commit c = r->commits[i];
	struct oid oid;
	bool last = r->spec->depth && c.depth + 1 >= r->spec->depth, parents = false;
	int k = read_commit(r, c.obj, &d, &p, &c.tree);
	while (k == 0 && header_oid(&p, "parent", &oid)) {
		uint32_t obj;
		parents = true;
		if (last)
			break;
		k = src_need(r->src, &oid, &obj, r->err);
		if (k == 0)
			k = add_parent(r, &c, obj);
	}
	if (k < 0)
		return k;
	r->commits[i] = c;
	return last && parents ? end_here(r, c.obj) : 0;
}

int reach_take(struct reach *r, uint32_t obj, const struct checkout_known *known)
{
	int k = known_packs(r->out, r->mark, MARK_KNOWN, r->gains, r->src, r->opt, r->spec, known,
			    r->err);
	if (k < 0)
		return k == -ESTALE ? 0 : k;
	if (!(r->mark[obj] & MARK_KNOWN))
		return 0;
	r->known = obj;
	return 1;
}

/* Whether the commit is one whose packs can be had. 1: they are taken over. */
static int take_known(struct reach *r, uint32_t obj)
{
	const struct checkout_options *o = r->opt;
	struct oid oid;
	int k = 0;
	if (r->spec->depth || r->known != OBJ_NONE || o->nknown == 0)
		return 0;
	src_oid(r->src, obj, &oid);
	for (size_t i = 0; i < o->nknown && k == 0; i++)
		if (memcmp(o->known[i].commit.b, oid.b, OID_BYTES) == 0)
			k = reach_take(r, obj, &o->known[i]);
	return k;
}

/* All commits within depth, each once, nearest first, until there are more than `max`. The next
 * call goes on. */
static int walk_commits(struct reach *r, size_t max)
{
	int k = 0;
	for (; k >= 0 && r->walked < r->ncommits && r->walked < max; r->walked++) {
		size_t i = r->walked;
		if (i % TELL_EVERY == 0)
			k = tell(r, i, "looking at the history");
		if (k >= 0)
			k = take_known(r, r->commits[i].obj);
		/* What a pack has that is taken over, it has with all its ancestors. */
		if (k >= 0 && !(r->mark[r->commits[i].obj] & MARK_KNOWN))
			k = expand(r, i);
	}
	return k < 0 ? k : 0;
}

static int commit_tree(struct reach *r, uint32_t obj, uint32_t *tree)
{
	auto_src_data *d = NULL;
	const char *p;
	uint32_t at = r->commit_of[obj];
	if (at && r->commits[at - 1].tree != OBJ_NONE) {
		*tree = r->commits[at - 1].tree;
		return 0;
	}
	return read_commit(r, obj, &d, &p, tree);
}

/* Puts the commits that aren't known in order. */
static int make_order(struct reach *r)
{
	auto_free uint32_t *stack = calloc(r->ncommits + 1, sizeof(*stack));
	auto_free uint32_t *next = calloc(r->ncommits + 1, sizeof(*next)); /* parent, plus one */
	r->order = calloc(r->ncommits + 1, sizeof(*r->order));
	if (!stack || !next || !r->order)
		return reach_no_memory(r);
	size_t depth = 0;
	stack[depth++] = 0; /* the tip, from which all are reached */
	next[0] = 1;
	while (depth > 0) {
		uint32_t i = stack[depth - 1];
		const struct commit *c = &r->commits[i];
		uint32_t parent = OBJ_NONE;
		/* Those met before the packs were taken over may be in them. */
		bool known = reach_has(r, c->obj, MARK_KNOWN);
		if (!known && next[i] <= c->nparents)
			parent = r->parents[c->parents + next[i]++ - 1];
		if (parent == OBJ_NONE) {
			depth--;
			if (!known)
				r->order[r->norder++] = i;
			continue;
		}
		uint32_t at = r->commit_of[parent];
		if (at && next[at - 1] == 0) {
			next[at - 1] = 1;
			stack[depth++] = at - 1;
		}
	}
	return 0;
}

/* The trees of the commits from the i-th in order to the end-th. */
static int mark_trees_of(struct reach *r, size_t i, size_t end)
{
	int k = 0;
	for (; k >= 0 && i < end; i++) {
		const struct commit *c = &r->commits[r->order[i]];
		struct item root = { .tree = c->tree, .state = r->nodes[0].leaf ? STATE_IN : 0 };
		if (i % TELL_EVERY == 0)
			k = tell(r, i, "looking at the trees");
		if (k >= 0 && __atomic_load_n(r->stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		/* Where no commit has a parent there is no array of them to point into. */
		gains_begin(r->gains, c->obj, c->nparents ? r->parents + c->parents : NULL,
			    c->nparents);
		for (size_t j = 0; j < LIKES && k >= 0; j++) {
			root.like[j] = OBJ_NONE;
			if (j < c->nparents)
				k = commit_tree(r, r->parents[c->parents + j], &root.like[j]);
		}
		if (k >= 0)
			k = reach_tree(r, &root);
	}
	return k < 0 ? k : 0;
}

/* The newer half of the commits is looked at by a thread of its own. */
struct half {
	struct reach r;
	struct src src;
	struct gains gains;
	struct err err;
	size_t from;
	bool *failed;
	int result;
};

static void *mark_half(void *arg)
{
	struct half *h = arg;
	h->result = mark_trees_of(&h->r, h->from, h->r.norder);
	if (h->result < 0)
		__atomic_store_n(h->failed, true, __ATOMIC_RELAXED);
	return NULL;
}

static bool met_before(void *ctx, uint32_t tree, uint16_t state)
{
	return reach_visited(ctx, tree, state);
}

static int mark_in_two(struct reach *r)
{
	bool mine = false, others = false;
	struct checkout_options quiet = *r->opt;
	struct half h = { .r = *r, .from = r->norder / 2, .failed = &others,
			  .gains = { .on = r->gains->on, .scoped = r->gains->scoped,
				     .max = r->gains->max } };
	pthread_t thread;
	quiet.progress = NULL; /* the other half tells */
	h.r.opt = &quiet;
	h.r.src = &h.src;
	h.r.err = &h.err;
	h.r.stop = &mine;
	h.r.gains = &h.gains;
	h.r.newer = true;
	h.r.items = NULL;
	h.r.items_cap = 0;
	r->stop = &others;
	int k = src_share(&h.src, r->src, r->err);
	if (k < 0)
		return k;
	bool threaded = pthread_create(&thread, NULL, mark_half, &h) == 0;
	k = mark_trees_of(r, 0, threaded ? h.from : r->norder);
	if (k < 0)
		__atomic_store_n(&mine, true, __ATOMIC_RELAXED);
	if (threaded)
		(void)pthread_join(thread, NULL); /* ours, joined once */
	if (h.result < 0 && (k == 0 || k == -ECANCELED) && h.result != -ECANCELED) {
		k = h.result;
		if (r->err)
			*r->err = h.err;
	}
	if (threaded)
		gains_append(r->gains, &h.gains, met_before, r);
	gains_off(&h.gains);
	u64map_done(&h.r.partial);
	free(h.r.items);
	src_close(&h.src);
	return k;
}

static int mark_trees(struct reach *r)
{
	int k = make_order(r);
	if (k < 0)
		return k;
	if (r->norder >= SPLIT_FROM && sysconf(_SC_NPROCESSORS_ONLN) > 1)
		return mark_in_two(r);
	return mark_trees_of(r, 0, r->norder);
}

/* The commits, and all that is in their trees. */
static int mark_history(struct reach *r)
{
	size_t near = r->opt->near ? r->opt->near : NEAR;
	int k = walk_commits(r, near);
	if (k == 0 && r->ncommits > near && r->known == OBJ_NONE && !r->spec->depth)
		k = reach_older(r);
	if (k == 1)
		return 0;
	if (k == 0)
		k = walk_commits(r, SIZE_MAX);
	return k == 0 ? mark_trees(r) : k;
}

/* ---- tags ---- */

static int add_tag(struct reach *r, const char *name, const struct oid *oid,
		   const struct oid *peeled)
{
	struct pack_set *s = r->out;
	struct pack_tag *more = reallocarray(s->tags, s->ntags + 1, sizeof(*more));
	if (!more)
		return reach_no_memory(r);
	s->tags = more;
	struct pack_tag t = { .name = strdup(name), .oid = *oid, .peeled = *peeled };
	if (!t.name)
		return reach_no_memory(r);
	more[s->ntags++] = t;
	return 0;
}

/* From a tag down to a commit that is there, over tags of tags, whose objects go into `chain`.
 * 1 and *n, 0: it leads elsewhere. */
static int follow(struct reach *r, const struct oid *from, uint32_t chain[TAG_CHAIN_MAX], int *n,
		  struct oid *peeled)
{
	struct oid oid = *from;
	for (*n = 0; *n < TAG_CHAIN_MAX; ++*n) {
		auto_src_data *d = NULL;
		enum git_type type;
		uint32_t obj = src_find(r->src, &oid);
		if (obj == OBJ_NONE)
			return 0;
		int k = src_type(r->src, obj, &type, r->err);
		if (k < 0)
			return k;
		*peeled = oid;
		if (type == GIT_COMMIT)
			return is_there(r, obj) ? 1 : 0;
		if (type != GIT_TAG)
			return 0;
		k = src_read(r->src, obj, &d, r->err);
		if (k < 0)
			return k;
		const char *p = (const char *)d->data;
		if (!header_oid(&p, "object", &oid))
			return 0;
		chain[*n] = obj;
	}
	return 0;
}

static int mark_tag(struct reach *r, const char *full, const git_oid *target)
{
	uint32_t chain[TAG_CHAIN_MAX];
	struct oid oid = oid_of_git(target), peeled;
	int n, k = follow(r, &oid, chain, &n, &peeled);
	if (k <= 0)
		return k;
	for (int i = 0; i < n; i++)
		reach_include(r, chain[i], GIT_TAG);
	return add_tag(r, full + strlen("refs/tags/"), &oid, &peeled);
}

static int by_name(const void *a, const void *b)
{
	const struct pack_tag *x = a, *y = b;
	return strcmp(x->name, y->name);
}

static int mark_tags(struct reach *r)
{
	git_reference_iterator *it;
	int k = git_reference_iterator_glob_new(&it, mirror_repo(r->opt->mirror), "refs/tags/*");
	if (k < 0)
		return git_fail(r->err, k, "list the mirror's tags");
	while (k >= 0) {
		auto_git(git_reference) ref = NULL;
		k = git_reference_next(&ref, it);
		if (k == GIT_ITEROVER) {
			k = 0;
			break;
		}
		if (k < 0)
			k = git_fail(r->err, k, "list the mirror's tags");
		else if (git_reference_target(ref))
			k = mark_tag(r, git_reference_name(ref), git_reference_target(ref));
	}
	git_reference_iterator_free(it);
	if (r->out->ntags > 1)
		qsort(r->out->tags, r->out->ntags, sizeof(*r->out->tags), by_name);
	return k < 0 ? k : 0;
}

static int start(struct reach *r)
{
	uint32_t tip;
	r->commit_of = calloc((size_t)r->src->total + 1, sizeof(*r->commit_of));
	if (!r->commit_of)
		return reach_no_memory(r);
	int k = reach_scope(r);
	if (k == 0)
		k = src_need(r->src, &r->spec->commit, &tip, r->err);
	return k < 0 ? k : add_commit(r, tip, 0);
}

int reach_mark(struct pack_set *out, uint8_t *mark, struct notes *n, struct src *s,
	       const struct checkout_options *opt, const struct checkout_spec *spec,
	       struct err *err)
{
	static const bool never = false;
	struct reach r = { .src = s, .mark = mark, .gains = &n->made, .told = &n->told,
			   .opt = opt, .spec = spec, .out = out, .err = err,
			   .known = OBJ_NONE, .stop = &never };
	int k = start(&r);
	if (k == 0)
		k = mark_history(&r);
	if (k == 0)
		k = mark_tags(&r);
	u64map_done(&r.partial);
	free(r.nodes);
	free(r.commits);
	free(r.commit_of);
	free(r.parents);
	free(r.order);
	free(r.items);
	return k;
}
