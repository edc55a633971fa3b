/* Invariants (omap_check() in debug builds):
 * 1. All leaves are on one level; `height` counts the levels, 0 when empty.
 * 2. No node is empty. All nodes but the root and the rightmost of each level hold
 *    FILL_MIN entries or more.
 * 3. In an inner node entry i stands for the keys from its own key up to the next
 *    entry's; the key of entry 0 is never looked at, what is below the next belongs there.
 * 4. Only a root that is a leaf has less than NODE_MAX room: it starts with room for
 *    one entry and doubles, since most maps never hold more than three. */
#include "fs/base/omap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	NODE_MAX = 32,
	FILL_MIN = 8,
	MERGE_MAX = 24,  /* merged nodes keep room, so that the next insert doesn't split them */
	LEVELS_MAX = 24, /* 8^24 entries are more than any memory holds (invariant 2) */
};

struct omap_node {
	uint32_t n, cap;
	struct omap_entry e[]; /* in an inner node, value.p is the child */
};

/* The way from the root (depth 0) to a leaf (depth height - 1). */
struct path {
	struct omap_node *node[LEVELS_MAX];
	uint32_t at[LEVELS_MAX]; /* index in the node: of the child, or in a leaf of the key */
};

static size_t node_size(uint32_t cap)
{
	return sizeof(struct omap_node) + cap * sizeof(struct omap_entry);
}

static struct omap_node *node_new(uint32_t cap)
{
	struct omap_node *node = malloc(node_size(cap));
	if (node) {
		node->n = 0;
		node->cap = cap;
	}
	return node;
}

/* How many entries have a key < `key`, from entry `from` on. */
static uint32_t rank(const struct omap_node *node, uint32_t from, uint64_t key)
{
	const struct omap_entry *base = node->e + from;
	uint32_t len = node->n - from;
	while (len > 0) {
		uint32_t half = len / 2;
		/* Without a branch: which half it is can't be predicted. */
		base += base[half].key < key ? len - half : 0;
		len = half;
	}
	return (uint32_t)(base - node->e);
}

/* The child of an inner node where the key belongs (invariant 3). */
static uint32_t child_of(const struct omap_node *node, uint64_t key)
{
	return key == UINT64_MAX ? node->n - 1 : rank(node, 1, key + 1) - 1;
}

/* Goes down to where the key is or would be. The map is not empty. */
static void descend(const struct omap *m, uint64_t key, struct path *p)
{
	struct omap_node *node = m->root;
	for (unsigned d = 0; d + 1 < m->height; d++) {
		p->node[d] = node;
		p->at[d] = child_of(node, key);
		node = node->e[p->at[d]].value.p;
	}
	p->node[m->height - 1] = node;
	p->at[m->height - 1] = rank(node, 0, key);
}

static void entries_insert(struct omap_node *node, uint32_t at, struct omap_entry e)
{
	memmove(node->e + at + 1, node->e + at, (node->n - at) * sizeof(e));
	node->e[at] = e;
	node->n++;
}

static void entries_remove(struct omap_node *node, uint32_t at)
{
	node->n--;
	memmove(node->e + at, node->e + at + 1, (node->n - at) * sizeof(node->e[0]));
}

#ifdef BOUGH_DEBUG
static void omap_check(const struct omap *m, const struct path *p)
{
	assert((m->root == NULL) == (m->height == 0) && (m->count == 0) == (m->root == NULL));
	for (unsigned d = 0; d < m->height; d++) {
		const struct omap_node *node = p->node[d];
		assert(node->n > 0 && node->n <= node->cap && node->cap <= NODE_MAX);
		assert(node->cap == NODE_MAX || (d == 0 && m->height == 1));
		assert(d == 0 || p->node[d - 1]->e[p->at[d - 1]].value.p == node);
		for (uint32_t i = d + 1 < m->height ? 2 : 1; i < node->n; i++)
			assert(node->e[i - 1].key < node->e[i].key);
	}
}
static void check_at(const struct omap *m, uint64_t key)
{
	struct path p;
	if (m->root)
		descend(m, key, &p);
	omap_check(m, &p);
}
#else
static void check_at(const struct omap *m, uint64_t key)
{
	(void)m, (void)key;
}
#endif

bool omap_get(const struct omap *m, uint64_t key, omap_value *value)
{
	if (!m->root)
		return false;
	const struct omap_node *node = m->root;
	for (unsigned d = 1; d < m->height; d++)
		node = node->e[child_of(node, key)].value.p;
	uint32_t i = rank(node, 0, key);
	if (i == node->n || node->e[i].key != key)
		return false;
	if (value)
		*value = node->e[i].value;
	return true;
}

bool omap_ceil(const struct omap *m, uint64_t key, struct omap_entry *out)
{
	if (!m->root)
		return false;
	/* The next subtree to the right is the fallback when the leaf ends below the key. */
	const struct omap_node *node = m->root, *right = NULL;
	unsigned right_depth = 0;
	for (unsigned d = 1; d < m->height; d++) {
		uint32_t i = child_of(node, key);
		if (i + 1 < node->n) {
			right = node->e[i + 1].value.p;
			right_depth = d;
		}
		node = node->e[i].value.p;
	}
	uint32_t i = rank(node, 0, key);
	if (i == node->n) {
		if (!right)
			return false;
		node = right;
		for (unsigned d = right_depth + 1; d < m->height; d++)
			node = node->e[0].value.p;
		i = 0;
	}
	*out = node->e[i];
	return true;
}

bool omap_floor(const struct omap *m, uint64_t key, struct omap_entry *out)
{
	if (!m->root)
		return false;
	const struct omap_node *node = m->root, *left = NULL;
	unsigned left_depth = 0;
	for (unsigned d = 1; d < m->height; d++) {
		uint32_t i = child_of(node, key);
		if (i > 0) {
			left = node->e[i - 1].value.p;
			left_depth = d;
		}
		node = node->e[i].value.p;
	}
	uint32_t i = rank(node, 0, key);
	if (i < node->n && node->e[i].key == key) {
		*out = node->e[i];
		return true;
	}
	if (i == 0) {
		if (!left)
			return false;
		node = left;
		for (unsigned d = left_depth + 1; d < m->height; d++)
			node = node->e[node->n - 1].value.p;
		i = node->n;
	}
	*out = node->e[i - 1];
	return true;
}

/* Moves the upper part of a full node to `right`, puts the entry at its place in the
 * two, and tells which key parts them. Where a map only grows at its end (sequential
 * writes, cookies in order), the old node stays full. */
static uint64_t split(struct omap_node *left, struct omap_node *right, uint32_t at,
		      struct omap_entry e)
{
	uint32_t keep = at == NODE_MAX ? NODE_MAX : NODE_MAX / 2;
	right->n = left->n - keep;
	memcpy(right->e, left->e + keep, right->n * sizeof(e));
	left->n = keep;
	if (at > keep || keep == NODE_MAX)
		entries_insert(right, at - keep, e);
	else
		entries_insert(left, at, e);
	return right->e[0].key;
}

/* The leaf is full and the largest there is. Everything is allocated first, so a
 * failure leaves the map as it was. */
static int put_split(struct omap *m, struct path *p, struct omap_entry e)
{
	struct omap_node *fresh[LEVELS_MAX + 1];
	unsigned need = 0, have = 0;
	while (need < m->height && p->node[m->height - 1 - need]->n == NODE_MAX)
		need++;
	bool taller = need == m->height;
	assert(!taller || m->height < LEVELS_MAX);
	for (unsigned total = need + taller; have < total; have++) {
		fresh[have] = node_new(NODE_MAX);
		if (!fresh[have]) {
			while (have > 0)
				free(fresh[--have]);
			return -ENOMEM;
		}
	}
	unsigned d = m->height - 1;
	uint32_t at = p->at[d];
	for (unsigned i = 0; i < need; i++) {
		struct omap_entry up = { .value.p = fresh[i] };
		up.key = split(p->node[d], fresh[i], at, e);
		e = up;
		if (d > 0)
			at = p->at[--d] + 1;
	}
	if (taller) {
		struct omap_node *top = fresh[need];
		top->e[0] = (struct omap_entry){ .key = 0, .value.p = m->root };
		top->e[1] = e;
		top->n = 2;
		m->root = top;
		m->height++;
	} else {
		entries_insert(p->node[d], at, e);
	}
	return 0;
}

int omap_put(struct omap *m, uint64_t key, omap_value value, omap_value *old, bool *had)
{
	struct omap_entry e = { key, value };
	int r = 0;
	if (!m->root) {
		struct omap_node *leaf = node_new(1);
		if (!leaf)
			return -ENOMEM;
		m->root = leaf;
		m->height = 1;
	}
	struct path p;
	descend(m, key, &p);
	struct omap_node *leaf = p.node[m->height - 1];
	uint32_t at = p.at[m->height - 1];
	if (at < leaf->n && leaf->e[at].key == key) {
		if (old)
			*old = leaf->e[at].value;
		if (had)
			*had = true;
		leaf->e[at].value = value;
		return 0;
	}
	if (leaf->n == leaf->cap && leaf->cap < NODE_MAX) {
		leaf = realloc(leaf, node_size(leaf->cap * 2));
		if (!leaf)
			return -ENOMEM;
		leaf->cap *= 2;
		m->root = leaf; /* invariant 4 */
	}
	if (leaf->n < leaf->cap)
		entries_insert(leaf, at, e);
	else
		r = put_split(m, &p, e);
	if (r < 0)
		return r;
	m->count++;
	if (had)
		*had = false;
	check_at(m, key);
	return 0;
}

/* Child i of the parent holds too little: evens it out with its right neighbour, or
 * merges the two. The last child has only a left one, so the pair is (i - 1, i) then. */
static void rebalance(struct omap_node *parent, uint32_t i, bool inner)
{
	uint32_t r = i + 1 < parent->n ? i + 1 : i;
	struct omap_node *left = parent->e[r - 1].value.p, *right = parent->e[r].value.p;
	uint32_t sum = left->n + right->n;
	if (inner)
		right->e[0].key = parent->e[r].key; /* it may cease to be entry 0 */
	if (sum <= MERGE_MAX) {
		memcpy(left->e + left->n, right->e, right->n * sizeof(right->e[0]));
		left->n = sum;
		free(right);
		entries_remove(parent, r);
		return;
	}
	uint32_t want = sum / 2;
	if (left->n < want) {
		uint32_t k = want - left->n;
		memcpy(left->e + left->n, right->e, k * sizeof(right->e[0]));
		memmove(right->e, right->e + k, (right->n - k) * sizeof(right->e[0]));
	} else {
		uint32_t k = left->n - want;
		memmove(right->e + k, right->e, right->n * sizeof(right->e[0]));
		memcpy(right->e, left->e + want, k * sizeof(right->e[0]));
	}
	left->n = want;
	right->n = sum - want;
	parent->e[r].key = right->e[0].key;
}

/* Takes away levels and room that the root no longer needs. */
static void trim_root(struct omap *m)
{
	while (m->height > 1 && m->root->n == 1) {
		struct omap_node *child = m->root->e[0].value.p;
		free(m->root);
		m->root = child;
		m->height--;
	}
	if (m->root->n == 0) {
		free(m->root);
		*m = (struct omap){ 0 };
	} else if (m->height == 1 && m->root->cap >= 4 && m->root->n <= m->root->cap / 4) {
		struct omap_node *less = realloc(m->root, node_size(m->root->cap / 2));
		if (less) {
			less->cap /= 2;
			m->root = less;
		}
	}
}

bool omap_del(struct omap *m, uint64_t key, omap_value *old)
{
	if (!m->root)
		return false;
	struct path p;
	descend(m, key, &p);
	struct omap_node *leaf = p.node[m->height - 1];
	uint32_t at = p.at[m->height - 1];
	if (at == leaf->n || leaf->e[at].key != key)
		return false;
	if (old)
		*old = leaf->e[at].value;
	entries_remove(leaf, at);
	m->count--;
	for (unsigned d = m->height - 1; d > 0; d--) {
		struct omap_node *node = p.node[d], *parent = p.node[d - 1];
		if (node->n >= FILL_MIN)
			break;
		if (parent->n > 1) {
			rebalance(parent, p.at[d - 1], d + 1 < m->height);
		} else if (node->n == 0) {
			free(node);
			parent->n = 0;
		}
	}
	trim_root(m);
	check_at(m, key);
	return true;
}

/* Visits every node, children before their parent; the walk needs no recursion and,
 * since a node is not looked at after its visit, may free them. */
static void each_node(const struct omap *m, void (*visit)(struct omap_node *, size_t *),
		      size_t *arg)
{
	struct path p;
	if (!m->root)
		return;
	unsigned d = 0;
	p.node[0] = m->root;
	p.at[0] = 0;
	for (;;) {
		struct omap_node *node = p.node[d];
		if (d + 1 < m->height && p.at[d] < node->n) {
			p.node[d + 1] = node->e[p.at[d]++].value.p;
			p.at[++d] = 0;
			continue;
		}
		visit(node, arg);
		if (d == 0)
			return;
		d--;
	}
}

static void visit_free(struct omap_node *node, size_t *arg)
{
	(void)arg;
	free(node);
}

static void visit_size(struct omap_node *node, size_t *sum)
{
	*sum += node_size(node->cap) + sizeof(size_t); /* and malloc's own word */
}

void omap_clear(struct omap *m)
{
	each_node(m, visit_free, NULL);
	*m = (struct omap){ 0 };
}

size_t omap_bytes(const struct omap *m)
{
	size_t sum = 0;
	each_node(m, visit_size, &sum);
	return sum;
}
