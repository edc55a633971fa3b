/* The trees of the commits that a workspace may see, and the contents of those in the scope.
 *
 * A tree is compared with those that the commit's parents have at the same path: so most entries
 * cost a comparison of bytes and not a search, and what is left is what the commit brings, which is
 * noted for checkouts of older commits (pack_gain.c).
 *
 * A tree is walked through once, and what a parent has too is left out, since that parent's tree
 * was or will be walked through. That this leaves no hole rests on the order: all parents come
 * before their child, so whatever is left out was seen before, by induction. (Else two trees that
 * replace each other in turn could each leave to the other what both have.) */
#include "gitops/pack_reach.h"

enum {
	NODES_MAX = SCOPE_BYTES_MAX,
	TREE_MODE_MAX = 7, /* digits: old trees have a leading zero */
};

int reach_bad_object(struct reach *r, uint32_t obj, const struct src_data *d, const char *what)
{
	char hex[OID_HEX + 1];
	struct oid oid;
	git_oid is;
	src_oid(r->src, obj, &oid);
	oid_hex(hex, &oid);
	const git_oid id = oid_to_git(&oid);
	bool came_so = git_odb_hash(&is, d->data, d->len, (git_object_t)d->type) == 0 &&
		       git_oid_equal(&is, &id);
	return err_set(r->err, came_so ? -ENOTSUP : -EBADMSG, "object %s of the mirror is no %s",
		       hex, what);
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

int reach_scope(struct reach *r)
{
	r->nodes = calloc(NODES_MAX, sizeof(*r->nodes));
	if (!r->nodes)
		return reach_no_memory(r);
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
void reach_include(struct reach *r, uint32_t obj, enum git_type type)
{
	uint8_t *m = &r->mark[obj], old = __atomic_load_n(m, __ATOMIC_RELAXED);
	while (!(old & (MARK_TYPE | MARK_KNOWN)) &&
	       !__atomic_compare_exchange_n(m, &old, (uint8_t)(old | type), false,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		continue;
}

int reach_visit(struct reach *r, uint32_t tree, uint16_t state)
{
	uint8_t *m = &r->mark[tree], old = __atomic_load_n(m, __ATOMIC_RELAXED);
	uint8_t bit = state == STATE_IN ? MARK_IN : MARK_NAMES;
	uint8_t mine = r->newer ? (uint8_t)(bit << MARK_NEWER) : bit;
	/* A pack that is taken over is closed: with a tree it has all that is below it. Not so
	 * with a scope, where the tree may have been outside and is now inside. */
	if (r->spec->nscopes == 0 && old & MARK_KNOWN)
		return 0;
	if (state == STATE_IN || state == STATE_OUT)
		return !(old & bit) && !(__atomic_fetch_or(m, mine, __ATOMIC_RELAXED) & mine);
	uint64_t key = ((uint64_t)tree + 1) << 16 | state;
	if (u64map_get(&r->partial, key))
		return 0;
	int k = u64map_put(&r->partial, key, r);
	return k < 0 ? reach_no_memory(r) : 1;
}

bool reach_visited(const struct reach *r, uint32_t tree, uint16_t state)
{
	if (state == STATE_IN || state == STATE_OUT)
		return reach_has(r, tree, state == STATE_IN ? MARK_IN : MARK_NAMES);
	return u64map_get(&r->partial, ((uint64_t)tree + 1) << 16 | state);
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
	if ((e->mode & MODE_TYPE) == MODE_TREE) /* whatever rights some program wrote with it */
		e->mode = MODE_TREE;
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

static int push(struct reach *r, const struct item *it)
{
	if (array_grow(&r->items, r->nitems, &r->items_cap) < 0)
		return reach_no_memory(r);
	r->items[r->nitems++] = *it;
	return 0;
}

static int need_entry(struct reach *r, const struct tree_entry *e, uint32_t *obj)
{
	struct oid oid;
	memcpy(oid.b, e->oid, OID_BYTES);
	return src_need(r->src, &oid, obj, r->err);
}

/* `twin`: the entries of that name that the parents have; name NULL: it has none. */
static int mark_entry(struct reach *r, const struct tree_entry *e,
		      const struct tree_entry twin[LIKES], uint16_t state)
{
	uint32_t obj;
	if ((e->mode & MODE_TYPE) == MODE_LINK) /* a submodule's commit */
		return 0;
	if (e->mode != MODE_TREE) {
		if (state == STATE_OUT)
			return 0;
		int k = need_entry(r, e, &obj);
		if (k == 0) {
			reach_include(r, obj, GIT_BLOB);
			gains_add(r->gains, obj, 0, state);
		}
		return k;
	}
	struct item it = { .state = child_state(r, state, e->name, e->len) };
	int k = need_entry(r, e, &it.tree);
	for (size_t i = 0; i < LIKES && k == 0; i++) {
		it.like[i] = OBJ_NONE;
		if (twin[i].name && twin[i].mode == MODE_TREE)
			k = need_entry(r, &twin[i], &it.like[i]);
	}
	return k < 0 ? k : push(r, &it);
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

/* Whether one of the parents has the same; else what they have under that name. */
static bool is_like(struct cur left[LIKES], const struct tree_entry *e,
		    struct tree_entry twin[LIKES])
{
	for (size_t i = 0; i < LIKES; i++) {
		size_t n = (size_t)(e->end - e->start);
		struct tree_entry *x = &twin[i];
		if (pass_same(&left[i], e))
			return true;
		if (!find_twin(&left[i], e, x))
			x->name = NULL;
		else if ((size_t)(x->end - x->start) == n && memcmp(x->start, e->start, n) == 0)
			return true;
	}
	return false;
}

static int mark_entries(struct reach *r, const struct item *it, const struct src_data *tree,
			struct src_data *const like[LIKES])
{
	struct cur c = cur_init(tree->data, tree->len), left[LIKES];
	struct tree_entry e, twin[LIKES];
	int k;
	for (size_t i = 0; i < LIKES; i++) {
		bool use = like[i] && like[i]->type == GIT_TREE;
		left[i] = cur_init(use ? like[i]->data : NULL, use ? like[i]->len : 0);
	}
	while ((k = next_entry(&c, &e)) > 0) {
		if (is_like(left, &e, twin))
			continue;
		k = mark_entry(r, &e, twin, it->state);
		if (k < 0)
			return k;
	}
	return k < 0 ? reach_bad_object(r, it->tree, tree, "tree") : 0;
}

/* The first one that brings a tree is noted as that; those whose packs are taken over come before
 * all others. */
static uint32_t tree_gain(const struct reach *r, uint32_t tree, bool seen)
{
	return GAIN_TREE | (seen || reach_has(r, tree, MARK_KNOWN) ? GAIN_AGAIN : 0);
}

static int mark_tree(struct reach *r, const struct item *it)
{
	auto_src_data *tree = NULL;
	struct src_data *like[LIKES] = { NULL };
	int k = reach_visit(r, it->tree, it->state);
	if (k >= 0)
		gains_add(r->gains, it->tree, tree_gain(r, it->tree, k == 0), it->state);
	if (k <= 0)
		return k;
	k = src_read(r->src, it->tree, &tree, r->err);
	if (k == 0 && tree->type != GIT_TREE)
		return reach_bad_object(r, it->tree, tree, "tree");
	for (size_t i = 0; i < LIKES && k == 0; i++)
		if (it->like[i] != OBJ_NONE)
			k = src_read(r->src, it->like[i], &like[i], r->err);
	if (k == 0) {
		reach_include(r, it->tree, GIT_TREE);
		k = mark_entries(r, it, tree, like);
	}
	for (size_t i = 0; i < LIKES; i++)
		src_put(like[i]);
	return k;
}

int reach_tree(struct reach *r, const struct item *root)
{
	int k = push(r, root);
	while (k >= 0 && r->nitems > 0) {
		struct item it = r->items[--r->nitems];
		k = mark_tree(r, &it);
	}
	return k < 0 ? k : 0;
}
