/* .git/index: what git takes for its own, with nothing left to look at. */
#define OPENSSL_SUPPRESS_DEPRECATED /* only the old calls can go on from a saved state */
#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "fs/base/cleanup.h"
#include "fs/store/gitform.h"
#include "gitops/checkout_impl.h"
#include "gitops/tree_entry.h"

enum {
	NAME_LEN_MAX = 0xfff, /* as far as the flags can say it */
	FLAG_EXTENDED = 0x4000,
	FLAG_ASSUME_VALID = 0x8000,
	FLAG_SKIP_WORKTREE = 0x4000, /* of the extended flags */
	STAT_BYTES = 36,
	/* What git status asks for: other folders shown, empty ones hidden. */
	UNTRACKED_FLAGS = 6,
	META_VERSION = 3,
	EXT_HEAD = 8,
	EOIE_BYTES = EXT_HEAD + 4 + 20,
	IEOT_VERSION = 1,
	BLOCK_ENTRIES = 10000, /* what git takes for worth a thread */
	/* Folders that the untracked cache doesn't tell apart: see put_folders. */
	SEALED_MAX = 8,
};
static const char exclude_name[] = ".gitignore";

/* ---- numbers, as git writes them ---- */

static void be32(struct buf *b, uint64_t v)
{
	uint8_t p[4];
	be_put32(p, (uint32_t)v);
	buf_add(b, p, sizeof(p));
}

static void be64(struct buf *b, uint64_t v)
{
	be32(b, v >> 32);
	be32(b, v);
}

/* git's varint: seven bits a byte, the high ones first, each but the last less one. */
static void varint(struct buf *b, uint64_t v)
{
	uint8_t p[10];
	size_t at = sizeof(p) - 1;
	p[at] = v & 0x7f;
	while (v >>= 7)
		p[--at] = (uint8_t)(0x80 | (--v & 0x7f));
	buf_add(b, p + at, sizeof(p) - at);
}

/* Begins an extension; its length is put when it ends. */
static size_t ext_begin(struct buf *b, const char *name)
{
	buf_add(b, name, 4);
	be32(b, 0);
	return b->len;
}

static void ext_end(struct buf *b, size_t start, size_t more)
{
	if (!b->failed)
		be_put32(b->data + start - 4, (uint32_t)(b->len - start + more));
}

/* ---- stat data ---- */

/* ctime, mtime, dev, ino, uid, gid, size; with the entry's mode before the owner. git compares no
 * dev (it is another at each mount), and of the others 32 bits. */
static void put_stat(uint8_t *p, const struct checkout_spec *spec, uint64_t ino, uint64_t size)
{
	be_put32(p, (uint32_t)spec->time_s);
	be_put32(p + 4, 0);
	be_put32(p + 8, (uint32_t)spec->time_s);
	be_put32(p + 12, 0);
	be_put32(p + 16, 0);
	be_put32(p + 20, (uint32_t)ino);
	be_put32(p + 24, spec->uid);
	be_put32(p + 28, spec->gid);
	be_put32(p + 32, (uint32_t)size);
}

/* ---- entries ---- */

/* What is outside of the scope is marked twice. git heeds skip-worktree; libgit2 (1.5 to now) does
 * so only of files that are there, but leaves what is assumed unchanged out of all it compares
 * (diff_delta__from_one). Of that git makes the same as of the other bit, but that a file which
 * somebody puts there isn't shown, since without it git can't say what differs. */
static void put_entry(struct buf *b, const struct co_file *f, const struct checkout_spec *spec)
{
	uint8_t p[64] = { 0 }, stat[STAT_BYTES];
	size_t len = strlen(f->path), n = 62;
	bool skip = f->ino == 0;
	if (!skip) {
		put_stat(stat, spec, f->ino, f->mode == MODE_GITLINK ? 4096 : f->size);
		memcpy(p, stat, 24);
		memcpy(p + 28, stat + 24, 12);
	}
	be_put32(p + 24, f->mode);
	memcpy(p + 40, f->oid.b, OID_BYTES);
	unsigned flags = (unsigned)(len < NAME_LEN_MAX ? len : NAME_LEN_MAX);
	flags |= skip ? FLAG_EXTENDED | FLAG_ASSUME_VALID : 0;
	p[60] = (uint8_t)(flags >> 8), p[61] = (uint8_t)flags;
	if (skip) {
		p[62] = FLAG_SKIP_WORKTREE >> 8;
		n = 64;
	}
	buf_add(b, p, n);
	buf_add(b, f->path, len);
	static const uint8_t zeros[8];
	buf_add(b, zeros, 8 - (n + len) % 8); /* one at least */
}

/* `blocks`: where each BLOCK_ENTRIES entries begin, and how many there are, as IEOT says it. */
static int put_entries(struct buf *b, struct buf *blocks, const struct co_tree *t,
		       const struct checkout_spec *spec, struct err *err)
{
	size_t need = 12, start = b->len;
	for (size_t i = 0; i < t->nfiles; i++)
		need += 72 + strlen(t->files[i].path);
	if (need > UINT32_MAX / 2)
		return err_set(err, -EFBIG, "the commit has more files than an index can hold");
	if (!buf_room(b, need + need / 8))
		return err_no_memory(err);
	buf_add(b, "DIRC", 4);
	be32(b, t->in_scope == t->nfiles ? 2 : 3);
	be32(b, t->nfiles);
	for (size_t i = 0; i < t->nfiles; i++) {
		if (i % BLOCK_ENTRIES == 0) {
			size_t n = t->nfiles - i;
			be32(blocks, b->len - start);
			be32(blocks, n < BLOCK_ENTRIES ? n : BLOCK_ENTRIES);
		}
		put_entry(b, &t->files[i], spec);
	}
	return 0;
}

/* IEOT, by which git reads entries with several threads. */
static void put_blocks(struct buf *b, const struct buf *blocks)
{
	size_t start = ext_begin(b, "IEOT");
	be32(b, IEOT_VERSION);
	buf_add(b, blocks->data, blocks->len);
	ext_end(b, start, 0);
}

/* ---- TREE ---- */

/* A folder without files is in a tree only when somebody made it so by hand. The index can't say
 * it, so neither it nor what is above it has an id here; git makes those when it needs them. */
static int put_tree(struct buf *b, const struct co_tree *t, struct err *err)
{
	auto_free uint8_t *odd = calloc(t->ndirs, 1);
	auto_free uint32_t *subdirs = calloc(t->ndirs, sizeof(*subdirs));
	if (!odd || !subdirs)
		return err_no_memory(err);
	for (size_t i = t->ndirs; i-- > 1;) { /* children come behind their parents */
		const struct co_dir *d = &t->dirs[i];
		odd[i] |= d->files == 0;
		odd[d->parent] |= odd[i];
		subdirs[d->parent] += d->files != 0;
	}
	size_t start = ext_begin(b, "TREE");
	for (size_t i = 0; i < t->ndirs; i++) {
		const struct co_dir *d = &t->dirs[i];
		if (d->files == 0 && i > 0)
			continue;
		buf_add(b, d->name, strlen(d->name) + 1);
		buf_printf(b, "%d %u\n", odd[i] ? -1 : (int)d->files, subdirs[i]);
		if (!odd[i])
			buf_add(b, d->tree.b, OID_BYTES);
	}
	ext_end(b, start, 0);
	return 0;
}

/* ---- UNTR ---- */

/* Folders in scope, in preorder with siblings by strcmp: git searches them so. */
struct untracked {
	const struct co_tree *t;
	uint32_t *first, *children; /* of folder i: children[first[i]] … first[i + 1] */
	uint32_t *size;             /* how many folders it is, with all below it */
	uint32_t *order;
	size_t n;
};

/* A small part of the tree, of which only the top is there. */
static bool is_sealed(const struct untracked *u, uint32_t i)
{
	return i > 0 && u->size[i] <= SEALED_MAX;
}

static int by_name(const void *a, const void *b, void *ctx)
{
	const struct co_tree *t = ctx;
	return strcmp(t->dirs[*(const uint32_t *)a].name, t->dirs[*(const uint32_t *)b].name);
}

static void sort_children(struct untracked *u)
{
	const struct co_tree *t = u->t;
	for (size_t i = t->ndirs; i-- > 0;) { /* children come behind their parents */
		u->size[i] += t->dirs[i].ino != 0;
		if (i > 0)
			u->size[t->dirs[i].parent] += u->size[i];
	}
	for (size_t i = 1; i < t->ndirs; i++)
		if (t->dirs[i].ino)
			u->first[t->dirs[i].parent + 2]++;
	for (size_t i = 0; i < t->ndirs; i++)
		u->first[i + 2] += u->first[i + 1];
	for (size_t i = 1; i < t->ndirs; i++)
		if (t->dirs[i].ino)
			u->children[u->first[t->dirs[i].parent + 1]++] = (uint32_t)i;
	for (size_t i = 0; i < t->ndirs; i++)
		if (u->first[i + 1] - u->first[i] > 1)
			qsort_r(u->children + u->first[i], u->first[i + 1] - u->first[i],
				sizeof(uint32_t), by_name, (void *)t);
}

static int order_folders(struct untracked *u)
{
	size_t depth = 1;
	auto_free uint32_t *stack = calloc(u->t->ndirs, sizeof(*stack)); /* starts with the root */
	if (!stack)
		return -ENOMEM;
	while (depth > 0) {
		uint32_t i = stack[--depth];
		u->order[u->n++] = i;
		for (uint32_t k = u->first[i + 1]; k > u->first[i] && !is_sealed(u, i); k--)
			stack[depth++] = u->children[k - 1];
	}
	return 0;
}

/* EWAH bitmaps: a word that says "so many words of ones, so many literal ones follow". */
static void put_bitmap(struct buf *b, uint64_t bits, uint64_t ones, const uint64_t *literal,
		       uint64_t n)
{
	be32(b, bits);
	be32(b, 1 + n);
	be64(b, (ones ? 1 : 0) | ones << 1 | n << 33);
	for (uint64_t i = 0; i < n; i++)
		be64(b, literal[i]);
	be32(b, 0); /* where the last of those words is */
}

static void put_all_ones(struct buf *b, uint64_t bits)
{
	uint64_t last = (UINT64_C(1) << bits % 64) - 1;
	put_bitmap(b, bits, bits / 64, &last, bits % 64 != 0);
}

/* What git status does for a folder that is valid: it opens and hashes the .gitignore, if one is
 * noted; matches the folder's name against all patterns from above; and goes on into the
 * folders noted below it. So of small parts of the tree only the top is noted, as one that has
 * neither. That is right as long as fsmonitor tells git what changed: any change makes all folders
 * above it invalid, and git reads such a one anew, its .gitignore, and all below that it doesn't
 * know. When fsmonitor can't tell, git compares stat data: those of such a top are of nothing, so
 * that it is read. */
static int put_folders(struct buf *b, const struct untracked *u, const struct checkout_spec *spec)
{
	static const struct oid none;
	size_t words = (u->n + 63) / 64;
	auto_free uint64_t *ignores = calloc(words, sizeof(*ignores));
	auto_buf oids = { 0 };
	if (!ignores)
		return -ENOMEM;
	varint(b, u->n);
	for (size_t i = 0; i < u->n; i++) {
		uint32_t k = u->order[i];
		const struct co_dir *d = &u->t->dirs[k];
		varint(b, 0); /* untracked names */
		varint(b, is_sealed(u, k) ? 0 : u->first[k + 1] - u->first[k]);
		buf_add(b, d->name, strlen(d->name) + 1);
		if (!is_sealed(u, k) && memcmp(&d->ignore, &none, sizeof(none)) != 0) {
			ignores[i / 64] |= UINT64_C(1) << i % 64;
			buf_add(&oids, d->ignore.b, OID_BYTES);
		}
	}
	put_all_ones(b, u->n);        /* valid */
	put_bitmap(b, 0, 0, NULL, 0); /* only looked into */
	put_bitmap(b, u->n, 0, ignores, words);
	for (size_t i = 0; i < u->n; i++) {
		const struct co_dir *d = &u->t->dirs[u->order[i]];
		bool plain = memcmp(&d->ignore, &none, sizeof(none)) == 0;
		uint8_t stat[STAT_BYTES] = { 0 };
		if ((u->size[u->order[i]] == 1 && plain) || !is_sealed(u, u->order[i]))
			put_stat(stat, spec, d->ino, 4096);
		buf_add(b, stat, sizeof(stat));
	}
	buf_add(b, oids.data, oids.len);
	buf_u8(b, 0);
	return buf_error(&oids);
}

static int put_untracked(struct buf *b, const struct co_tree *t, const struct checkout_spec *spec)
{
	auto_free uint32_t *first = calloc(t->ndirs + 2, sizeof(*first));
	auto_free uint32_t *children = calloc(t->ndirs, sizeof(*children));
	auto_free uint32_t *size = calloc(t->ndirs, sizeof(*size));
	auto_free uint32_t *order = calloc(t->ndirs, sizeof(*order));
	struct untracked u = {
		.t = t, .first = first, .children = children, .size = size, .order = order
	};
	if (!first || !children || !size || !order)
		return -ENOMEM;
	sort_children(&u);
	int r = order_folders(&u);
	return r < 0 ? r : put_folders(b, &u, spec);
}

/* What git's untracked cache calls a file of patterns that it has read itself: the blob of its
 * bytes and a newline more. */
void index_exclude_oid(struct oid *out, const void *data, size_t len)
{
	SHA_CTX sha;
	char head[32];
	int n = snprintf(head, sizeof(head), "blob %zu", len + (len > 0));
	(void)SHA1_Init(&sha); /* none of these can fail */
	(void)SHA1_Update(&sha, head, (size_t)n + 1);
	(void)SHA1_Update(&sha, data, len);
	(void)SHA1_Update(&sha, "\n", len > 0);
	(void)SHA1_Final(out->b, &sha);
}

/* ---- head ---- */

/* The state of SHA-1 behind the head, so that nobody has to read it again. */
static void put_sha(struct buf *b, const SHA_CTX *c)
{
	uint32_t h[5] = { c->h0, c->h1, c->h2, c->h3, c->h4 };
	for (int i = 0; i < 5; i++)
		buf_u32(b, h[i]);
	buf_u64(b, (uint64_t)c->Nh << 32 | c->Nl);
	buf_u32(b, c->num);
	buf_add(b, c->data, sizeof(c->data));
}

static int get_sha(struct cur *in, SHA_CTX *c)
{
	(void)SHA1_Init(c); /* can't fail */
	c->h0 = cur_u32(in), c->h1 = cur_u32(in), c->h2 = cur_u32(in), c->h3 = cur_u32(in);
	c->h4 = cur_u32(in);
	uint64_t bits = cur_u64(in);
	c->Nl = (uint32_t)bits;
	c->Nh = (uint32_t)(bits >> 32);
	c->num = cur_u32(in);
	const uint8_t *data = cur_take(in, sizeof(c->data));
	if (!data || c->num >= sizeof(c->data) || bits / 8 % sizeof(c->data) != c->num)
		return -EBADMSG;
	memcpy(c->data, data, sizeof(c->data));
	return 0;
}

int index_head(struct buf *head, struct buf *rest, struct buf *meta, const struct co_tree *t,
	       const struct checkout_spec *spec, struct err *err)
{
	SHA_CTX sha;
	auto_buf blocks = { 0 };
	size_t start = head->len;
	int r = put_entries(head, &blocks, t, spec, err);
	size_t entries = head->len - start, offsets;
	if (r >= 0 && t->nfiles >= INDEX_LARGE)
		put_blocks(head, &blocks);
	offsets = head->len - start - entries;
	if (r >= 0)
		r = put_tree(head, t, err);
	if (r < 0)
		return r;
	if (put_untracked(rest, t, spec) < 0 || buf_error(&blocks) < 0 || buf_error(head) < 0 ||
	    buf_error(rest) < 0)
		return err_no_memory(err);
	(void)SHA1_Init(&sha);
	(void)SHA1_Update(&sha, head->data + start, head->len - start);
	buf_u32(meta, META_VERSION);
	buf_u32(meta, (uint32_t)entries);
	buf_u32(meta, (uint32_t)offsets); /* of IEOT, with its head; 0: none */
	buf_u32(meta, (uint32_t)(head->len - start - entries - offsets - EXT_HEAD)); /* of TREE */
	put_sha(meta, &sha);
	return buf_error(meta) < 0 ? err_no_memory(err) : 0;
}

/* ---- tail ---- */

static void put_fsmonitor(struct buf *b, const char *token)
{
	size_t start = ext_begin(b, "FSMN");
	be32(b, 2);
	buf_add(b, token, strlen(token) + 1);
	size_t at = b->len;
	be32(b, 0);
	put_bitmap(b, 0, 0, NULL, 0); /* entries that aren't known to be valid: none */
	if (!b->failed)
		be_put32(b->data + at, (uint32_t)(b->len - at - 4));
	ext_end(b, start, 0);
}

static int put_untracked_begin(struct buf *b, const char *path, size_t rest_len)
{
	struct utsname uts;
	auto_buf ident = { 0 };
	static const char exclude[] = DOTGIT_EXCLUDE;
	uint8_t zeros[2 * STAT_BYTES] = { 0 };
	struct oid oids[2] = { 0 };
	if (uname(&uts) < 0)
		return -errno;
	buf_printf(&ident, "Location %s, system %s", path, uts.sysname);
	buf_u8(&ident, 0); /* it is the first of a list */
	size_t start = ext_begin(b, "UNTR");
	varint(b, ident.len);
	buf_add(b, ident.data, ident.len);
	/* .git/info/exclude, and core.excludesFile, which isn't there; compared by their ids. */
	index_exclude_oid(&oids[0], exclude, sizeof(exclude) - 1);
	buf_add(b, zeros, sizeof(zeros));
	be32(b, UNTRACKED_FLAGS);
	buf_add(b, oids, sizeof(oids));
	buf_add(b, exclude_name, sizeof(exclude_name));
	ext_end(b, start, rest_len);
	return buf_error(&ident);
}

static void hash_ext(SHA_CTX *sha, const char *name, uint32_t len)
{
	uint8_t head[EXT_HEAD];
	memcpy(head, name, 4);
	be_put32(head + 4, len);
	(void)SHA1_Update(sha, head, sizeof(head));
}

/* Lengths in front of the saved state. */
struct lengths {
	uint32_t entries, offsets, tree;
};

/* EOIE: where the entries end, and a hash of what the extensions are and how long. */
static void put_eoie(uint8_t out[EOIE_BYTES], const struct lengths *n, const uint8_t *front,
		     size_t untracked)
{
	SHA_CTX sha;
	(void)SHA1_Init(&sha);
	if (n->offsets)
		hash_ext(&sha, "IEOT", n->offsets - EXT_HEAD);
	hash_ext(&sha, "TREE", n->tree);
	(void)SHA1_Update(&sha, front, EXT_HEAD);
	(void)SHA1_Update(&sha, front + untracked, EXT_HEAD);
	memcpy(out, "EOIE", 4);
	be_put32(out + 4, EOIE_BYTES - EXT_HEAD);
	be_put32(out + EXT_HEAD, n->entries);
	(void)SHA1_Final(out + EXT_HEAD + 4, &sha);
}

int index_tail(struct buf *front, uint8_t trailer[INDEX_TRAILER], const void *meta, size_t meta_len,
	       const void *rest, size_t rest_len, const char *token, const char *path,
	       struct err *err)
{
	struct cur in = cur_init(meta, meta_len);
	SHA_CTX sha;
	uint32_t version = cur_u32(&in);
	struct lengths n = { .entries = cur_u32(&in) };
	n.offsets = cur_u32(&in);
	n.tree = cur_u32(&in);
	if (version != META_VERSION || get_sha(&in, &sha) < 0 || cur_left(&in))
		return err_set(err, -EBADMSG, "what is known of the index is damaged");
	size_t start = front->len;
	put_fsmonitor(front, token);
	size_t untracked = front->len - start;
	int r = put_untracked_begin(front, path, rest_len);
	if (r < 0 || buf_error(front) < 0)
		return r < 0 ? err_sys(err, r, "make the index") : err_no_memory(err);
	put_eoie(trailer, &n, front->data + start, untracked);
	(void)SHA1_Update(&sha, front->data + start, front->len - start);
	(void)SHA1_Update(&sha, rest, rest_len);
	(void)SHA1_Update(&sha, trailer, EOIE_BYTES);
	(void)SHA1_Final(trailer + EOIE_BYTES, &sha);
	return 0;
}
