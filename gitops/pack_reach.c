/* What a workspace may see of a history: the commits within depth, their trees, the blobs within
 * scope, and nothing else. Secrecy rests on this file.
 *
 * Commits are met from the tip on, and a tree is compared with the one that the commit's child has
 * at the same path, so that most entries cost a comparison of bytes and not a search. */
#include "gitops/pack_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum {
	TAG_CHAIN_MAX = 16, /* tags of tags */
	STATE_OUT = 0xffff, /* a folder outside of the scope */
	STATE_IN = 0xfffe,  /* one in it */
	                    /* else a node: some of what is below it is in the scope */
	NODES_MAX = SCOPE_BYTES_MAX,
	TELL_EVERY = 1024, /* commits */
	TREE_MODE_MAX = 6, /* digits */
	SPLIT_FROM = 2048, /* commits whose trees are worth a second thread */
};

/* A folder above a scope, or one (leaf). */
struct node {
	const char *name;
	size_t len;
	uint16_t parent;
	bool leaf;
};

struct commit {
	uint32_t obj, tree;
	uint32_t child; /* index of the one that led here; OBJ_NONE: the tip */
	unsigned depth; /* the tip: 0 */
};

/* A tree to be looked at, and one that was, of the same path. */
struct item {
	uint32_t tree, like;
	uint16_t state;
};

struct reach {
	struct src *src;
	uint8_t *mark;
	const struct checkout_options *opt;
	const struct checkout_spec *spec;
	struct pack_set *out;
	struct err *err;
	struct node *nodes;
	size_t nnodes;
	struct u64map partial; /* trees visited in a state that is a node: tree << 16 | state */
	struct commit *commits;
	size_t ncommits, commits_cap;
	struct item *items;
	size_t nitems, items_cap;
	uint32_t known; /* the ancestor that lends its packs */
	const bool *stop; /* set by the other thread, when it failed */
};

static int no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static int bad_object(struct reach *r, uint32_t obj, const char *what)
{
	char hex[OID_HEX + 1];
	struct oid oid;
	src_oid(r->src, obj, &oid);
	oid_hex(hex, &oid);
	return err_set(r->err, -EBADMSG, "object %s of the mirror is no %s", hex, what);
}

static int tell(struct reach *r, uint64_t done, const char *what)
{
	const struct checkout_options *o = r->opt;
	if (o->progress && o->progress(o->progress_ctx, done, 0, what) != 0)
		return err_set(r->err, -ECANCELED, "cancelled");
	return 0;
}

/* ---- scope ---- */

static uint16_t child_state(const struct reach *r, uint16_t state, const char *name, size_t len)
{
	if (state == STATE_IN || state == STATE_OUT)
		return state;
	for (size_t i = 1; i < r->nnodes; i++) {
		const struct node *n = &r->nodes[i];
		if (n->parent == state && n->len == len && memcmp(n->name, name, len) == 0)
			return n->leaf ? STATE_IN : (uint16_t)i;
	}
	return STATE_OUT;
}

static int add_scope(struct reach *r, const char *path)
{
	uint16_t at = 0;
	while (*path) {
		size_t len = strcspn(path, "/");
		size_t i = 1;
		while (i < r->nnodes && !(r->nodes[i].parent == at && r->nodes[i].len == len &&
					  memcmp(r->nodes[i].name, path, len) == 0))
			i++;
		if (i == r->nnodes) {
			if (r->nnodes >= NODES_MAX)
				return err_set(r->err, -E2BIG, "the scope is too large");
			r->nodes[r->nnodes++] = (struct node){ path, len, at, false };
		}
		at = (uint16_t)i;
		path += len;
		path += strspn(path, "/");
	}
	r->nodes[at].leaf = true;
	return 0;
}

static int make_scope(struct reach *r)
{
	r->nodes = calloc(NODES_MAX, sizeof(*r->nodes));
	if (!r->nodes)
		return no_memory(r->err);
	r->nnodes = 1;
	r->nodes[0].leaf = r->spec->nscopes == 0;
	for (size_t i = 0; i < r->spec->nscopes; i++) {
		int k = add_scope(r, r->spec->scopes[i]);
		if (k < 0)
			return k;
	}
	return 0;
}

/* ---- marks ---- */

/* Two threads mark trees: so the marks of what is below those are changed in one step. */
static void include(struct reach *r, uint32_t obj, enum git_type type)
{
	uint8_t *m = &r->mark[obj], old = __atomic_load_n(m, __ATOMIC_RELAXED);
	while (!(old & (MARK_TYPE | MARK_KNOWN)) &&
	       !__atomic_compare_exchange_n(m, &old, (uint8_t)(old | type), false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		continue;
}

static bool has_mark(const struct reach *r, uint32_t obj, uint8_t bits)
{
	return __atomic_load_n(&r->mark[obj], __ATOMIC_RELAXED) & bits;
}

static bool is_there(const struct reach *r, uint32_t obj)
{
	return has_mark(r, obj, MARK_TYPE | MARK_KNOWN);
}

/* Whether the tree has yet to be looked at in that state; notes that it now is. 1, 0, -ENOMEM. */
static int visit(struct reach *r, uint32_t tree, uint16_t state)
{
	uint8_t *m = &r->mark[tree], old = __atomic_load_n(m, __ATOMIC_RELAXED);
	/* A pack that is taken over is closed: with a tree it has all that is below it. Not so
	 * with a scope, where the tree may have been outside and is now inside. */
	if (old & MARK_IN || (r->spec->nscopes == 0 && old & MARK_KNOWN))
		return 0;
	if (state == STATE_IN)
		return !(__atomic_fetch_or(m, MARK_IN, __ATOMIC_RELAXED) & MARK_IN);
	if (state == STATE_OUT)
		return !(__atomic_fetch_or(m, MARK_NAMES, __ATOMIC_RELAXED) & MARK_NAMES);
	uint64_t key = ((uint64_t)tree + 1) << 16 | state;
	if (u64map_get(&r->partial, key))
		return 0;
	int k = u64map_put(&r->partial, key, r);
	return k < 0 ? no_memory(r->err) : 1;
}

/* ---- trees ---- */

struct tree_entry {
	const uint8_t *start, *end; /* its bytes */
	const char *name;
	size_t len;
	const uint8_t *oid;
	uint32_t mode;
};
enum { MODE_TREE = 040000, MODE_LINK = 0160000, MODE_TYPE = 0170000 };

/* 1, 0 at the end, -EBADMSG. */
static int next_entry(struct cur *c, struct tree_entry *e)
{
	if (cur_left(c) == 0)
		return 0;
	e->start = c->p;
	e->mode = 0;
	unsigned digits = 0;
	uint8_t b;
	while ((b = cur_u8(c)) >= '0' && b <= '7' && digits++ < TREE_MODE_MAX)
		e->mode = e->mode << 3 | (b - '0');
	if (b != ' ' || digits == 0)
		return -EBADMSG;
	const uint8_t *nul = memchr(c->p, 0, cur_left(c));
	if (!nul || nul == c->p)
		return -EBADMSG;
	e->name = (const char *)c->p;
	e->len = (size_t)(nul - c->p);
	(void)cur_take(c, e->len + 1);
	e->oid = cur_take(c, OID_BYTES);
	e->end = c->p;
	return e->oid ? 1 : -EBADMSG;
}

/* The order of trees: as if folders' names ended with a slash. */
static int compare_names(const struct tree_entry *a, const struct tree_entry *b)
{
	size_t n = a->len < b->len ? a->len : b->len;
	int c = memcmp(a->name, b->name, n);
	if (c)
		return c;
	uint8_t x = a->len > n ? (uint8_t)a->name[n] : a->mode == MODE_TREE ? '/' : 0;
	uint8_t y = b->len > n ? (uint8_t)b->name[n] : b->mode == MODE_TREE ? '/' : 0;
	return (x > y) - (x < y);
}

static int push(struct reach *r, uint32_t tree, uint32_t like, uint16_t state)
{
	if (array_grow(&r->items, r->nitems, &r->items_cap) < 0)
		return no_memory(r->err);
	r->items[r->nitems++] = (struct item){ tree, like, state };
	return 0;
}

static int need_entry(struct reach *r, const struct tree_entry *e, uint32_t *obj)
{
	struct oid oid;
	memcpy(oid.b, e->oid, OID_BYTES);
	return src_need(r->src, &oid, obj, r->err);
}

/* `like`: the entry of that name in the tree that was looked at before; NULL: none. */
static int mark_entry(struct reach *r, const struct tree_entry *e, const struct tree_entry *like,
		      uint16_t state)
{
	uint32_t obj, other = OBJ_NONE;
	if ((e->mode & MODE_TYPE) == MODE_LINK) /* a submodule's commit */
		return 0;
	if (e->mode != MODE_TREE) {
		if (state == STATE_OUT)
			return 0;
		int k = need_entry(r, e, &obj);
		if (k == 0)
			include(r, obj, GIT_BLOB);
		return k;
	}
	int k = need_entry(r, e, &obj);
	if (k == 0 && like && like->mode == MODE_TREE)
		k = need_entry(r, like, &other);
	return k < 0 ? k : push(r, obj, other, child_state(r, state, e->name, e->len));
}

/* Whether the next entry of `o` has these bytes; then it is passed. */
static bool pass_same(struct cur *o, const struct tree_entry *e)
{
	size_t n = (size_t)(e->end - e->start);
	return cur_left(o) >= n && memcmp(o->p, e->start, n) == 0 && cur_take(o, n);
}

/* The entry of that name in what is left of `like`; what comes before it is passed. */
static bool find_twin(struct cur *like, const struct tree_entry *e, struct tree_entry *out)
{
	for (;;) {
		struct cur before = *like;
		if (next_entry(like, out) <= 0)
			return false;
		int order = compare_names(out, e);
		if (order >= 0) {
			if (order > 0)
				*like = before;
			return order == 0 && out->len == e->len;
		}
	}
}

static int mark_entries(struct reach *r, const struct item *it, const struct src_data *tree,
			const struct src_data *like)
{
	struct cur c = cur_init(tree->data, tree->len);
	struct cur o = cur_init(like ? like->data : NULL, like ? like->len : 0);
	struct tree_entry e, x;
	int k;
	while ((k = next_entry(&c, &e)) > 0) {
		if (pass_same(&o, &e))
			continue;
		bool twin = find_twin(&o, &e, &x);
		if (twin && x.end - x.start == e.end - e.start &&
		    memcmp(x.start, e.start, (size_t)(e.end - e.start)) == 0)
			continue;
		k = mark_entry(r, &e, twin ? &x : NULL, it->state);
		if (k < 0)
			return k;
	}
	return k < 0 ? bad_object(r, it->tree, "tree") : 0;
}

static int mark_tree(struct reach *r, const struct item *it)
{
	auto_src_data *tree = NULL;
	auto_src_data *like = NULL;
	int k = visit(r, it->tree, it->state);
	if (k <= 0)
		return k;
	k = src_read(r->src, it->tree, &tree, r->err);
	if (k == 0 && tree->type != GIT_TREE)
		return bad_object(r, it->tree, "tree");
	if (k == 0 && it->like != OBJ_NONE)
		k = src_read(r->src, it->like, &like, r->err);
	if (k < 0)
		return k;
	include(r, it->tree, GIT_TREE);
	return mark_entries(r, it, tree, like && like->type == GIT_TREE ? like : NULL);
}

static int mark_root(struct reach *r, uint32_t tree, uint32_t like)
{
	int k = push(r, tree, like, r->nodes[0].leaf ? STATE_IN : 0);
	while (k >= 0 && r->nitems > 0) {
		struct item it = r->items[--r->nitems];
		k = mark_tree(r, &it);
	}
	return k < 0 ? k : 0;
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

static int add_commit(struct reach *r, uint32_t obj, uint32_t child, unsigned depth)
{
	if (is_there(r, obj))
		return 0;
	if (array_grow(&r->commits, r->ncommits, &r->commits_cap) < 0)
		return no_memory(r->err);
	include(r, obj, GIT_COMMIT);
	r->commits[r->ncommits++] = (struct commit){ obj, OBJ_NONE, child, depth };
	return 0;
}

/* Reads commit i: its tree, and its parents, which are added when they are within depth. */
static int expand(struct reach *r, size_t i)
{
	auto_src_data *d = NULL;
	struct commit c = r->commits[i];
	struct oid oid;
	bool last = r->spec->depth && c.depth + 1 >= r->spec->depth, parents = false;
	int k = src_read(r->src, c.obj, &d, r->err);
	if (k < 0)
		return k;
	const char *p = (const char *)d->data; /* ends with a NUL */
	if (d->type != GIT_COMMIT || !header_oid(&p, "tree", &oid))
		return bad_object(r, c.obj, "commit");
	k = src_need(r->src, &oid, &r->commits[i].tree, r->err);
	while (k == 0 && header_oid(&p, "parent", &oid)) {
		uint32_t obj;
		parents = true;
		if (last)
			break;
		k = src_need(r->src, &oid, &obj, r->err);
		if (k == 0)
			k = add_commit(r, obj, (uint32_t)i, c.depth + 1);
	}
	if (k < 0 || !last || !parents)
		return k;
	struct pack_set *s = r->out;
	struct oid *more = reallocarray(s->shallow, s->nshallow + 1, sizeof(*more));
	if (!more)
		return no_memory(r->err);
	s->shallow = more;
	src_oid(r->src, c.obj, &more[s->nshallow++]);
	return 0;
}

/* Whether commit i is one whose packs can be had. 1: they are taken over. */
static int take_known(struct reach *r, uint32_t obj)
{
	const struct checkout_options *o = r->opt;
	struct oid oid;
	if (r->spec->depth || r->known != OBJ_NONE || o->nknown == 0)
		return 0;
	src_oid(r->src, obj, &oid);
	for (size_t i = 0; i < o->nknown; i++) {
		if (memcmp(o->known[i].commit.b, oid.b, OID_BYTES) != 0)
			continue;
		int k = known_packs(r->out, r->mark, MARK_KNOWN, r->src, o, r->spec, &o->known[i],
				    r->err);
		if (k == 0 && r->mark[obj] & MARK_KNOWN) {
			r->known = obj;
			return 1;
		}
		if (k < 0 && k != -ESTALE)
			return k;
	}
	return 0;
}

/* All commits within depth, each once, nearest first. */
static int walk_commits(struct reach *r)
{
	uint32_t tip;
	int k = src_need(r->src, &r->spec->commit, &tip, r->err);
	if (k == 0)
		k = add_commit(r, tip, OBJ_NONE, 0);
	for (size_t i = 0; k >= 0 && i < r->ncommits; i++) {
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

static int known_tree(struct reach *r, uint32_t *tree)
{
	auto_src_data *d = NULL;
	struct oid oid;
	int k = src_read(r->src, r->known, &d, r->err);
	if (k < 0)
		return k;
	const char *p = (const char *)d->data;
	if (d->type != GIT_COMMIT || !header_oid(&p, "tree", &oid))
		return bad_object(r, r->known, "commit");
	return src_need(r->src, &oid, tree, r->err);
}

/* The trees of commits from the i-th to the end-th. */
static int mark_trees_of(struct reach *r, size_t i, size_t end)
{
	uint32_t like = OBJ_NONE;
	int k = r->known == OBJ_NONE ? 0 : known_tree(r, &like);
	for (; k >= 0 && i < end; i++) {
		const struct commit *c = &r->commits[i];
		if (i % TELL_EVERY == 0)
			k = tell(r, i, "looking at the trees");
		if (k >= 0 && __atomic_load_n(r->stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		/* Those met before the packs were taken over may be in them. */
		if (k < 0 || has_mark(r, c->obj, MARK_KNOWN))
			continue;
		if (c->child != OBJ_NONE)
			like = r->commits[c->child].tree;
		k = mark_root(r, c->tree, like);
	}
	return k < 0 ? k : 0;
}

/* The older half of the trees is marked by a thread of its own. */
struct half {
	struct reach r;
	struct src src;
	struct err err;
	size_t from, end;
	bool *failed;
	int result;
};

static void *mark_half(void *arg)
{
	struct half *h = arg;
	h->result = mark_trees_of(&h->r, h->from, h->end);
	if (h->result < 0)
		__atomic_store_n(h->failed, true, __ATOMIC_RELAXED);
	return NULL;
}

static int mark_in_two(struct reach *r)
{
	bool mine = false, others = false;
	struct checkout_options quiet = *r->opt;
	struct half h = { .r = *r, .from = r->ncommits / 2, .end = r->ncommits, .failed = &others };
	pthread_t thread;
	quiet.progress = NULL; /* the other half tells */
	h.r.opt = &quiet;
	h.r.src = &h.src;
	h.r.err = &h.err;
	h.r.stop = &mine;
	h.r.items = NULL;
	h.r.items_cap = 0;
	r->stop = &others;
	int k = src_share(&h.src, r->src, r->err);
	if (k < 0)
		return k;
	bool threaded = pthread_create(&thread, NULL, mark_half, &h) == 0;
	k = mark_trees_of(r, 0, threaded ? h.from : h.end);
	if (k < 0)
		__atomic_store_n(&mine, true, __ATOMIC_RELAXED);
	if (threaded)
		(void)pthread_join(thread, NULL); /* ours, joined once */
	if (h.result < 0 && (k == 0 || k == -ECANCELED) && h.result != -ECANCELED) {
		k = h.result;
		if (r->err)
			*r->err = h.err;
	}
	u64map_done(&h.r.partial);
	free(h.r.items);
	src_close(&h.src);
	return k;
}

static int mark_trees(struct reach *r)
{
	static const bool never = false;
	r->stop = &never;
	if (r->ncommits >= SPLIT_FROM && sysconf(_SC_NPROCESSORS_ONLN) > 1)
		return mark_in_two(r);
	return mark_trees_of(r, 0, r->ncommits);
}

/* ---- tags ---- */

static int add_tag(struct reach *r, const char *name, const struct oid *oid,
		   const struct oid *peeled)
{
	struct pack_set *s = r->out;
	struct pack_tag *more = reallocarray(s->tags, s->ntags + 1, sizeof(*more));
	if (!more)
		return no_memory(r->err);
	s->tags = more;
	struct pack_tag t = { .name = strdup(name), .oid = *oid, .peeled = *peeled };
	if (!t.name)
		return no_memory(r->err);
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
		include(r, chain[i], GIT_TAG);
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

int reach_mark(struct pack_set *out, uint8_t *mark, struct src *s,
	       const struct checkout_options *opt, const struct checkout_spec *spec,
	       struct err *err)
{
	struct reach r = { .src = s, .mark = mark, .opt = opt, .spec = spec, .out = out,
			   .err = err, .known = OBJ_NONE };
	int k = make_scope(&r);
	if (k == 0)
		k = walk_commits(&r);
	if (k == 0)
		k = mark_trees(&r);
	if (k == 0)
		k = mark_tags(&r);
	u64map_done(&r.partial);
	free(r.nodes);
	free(r.commits);
	free(r.items);
	return k;
}
