#include "gitops/inner_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/store/gitform.h"
#include "fs/work/tree_names.h"
#include "gitops/changes_impl.h"
#include "gitops/inner_past.h"
#include "gitops/oidmap.h"
#include "gitops/treepaths.h"
#include "gitops/viewfile.h"

enum {
	NAMES_AT_ONCE = 256, /* of an index: fewer are read, more are halved first */
	CLOCK_EVERY = 4096,  /* entries of trees */
};

/* An index, of which only the names asked for are read: a large repository's has 200 MiB. */
struct index {
	const struct view *view; /* NULL: fd */
	uint64_t ino;
	int fd;
	struct git_idx idx;
};

struct claim {
	struct oid oid;
	bool used;
};

struct inner_had {
	struct index *indexes;
	size_t n, cap;
	struct claim *claims;
	size_t nclaims, claims_cap;
	bool sorted;
};

int inner_had_new(struct inner_had **out, struct err *err)
{
	*out = calloc(1, sizeof(**out));
	return *out ? 0 : err_no_memory(err);
}

void inner_had_free(struct inner_had *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->n; i++)
		cleanup_close(&h->indexes[i].fd);
	free(h->indexes);
	free(h->claims);
	free(h);
}

/* ---- indexes of packs ---- */

static int read_index(const struct index *x, void *buf, size_t n, uint64_t off, struct err *err)
{
	for (size_t got = 0; got < n;) {
		char *to = (char *)buf + got;
		ssize_t k = x->view ? view_read(x->view, x->ino, to, n - got, off + got, err)
				    : pread(x->fd, to, n - got, (off_t)(off + got));
		if (k < 0)
			return x->view ? (int)k : err_sys(err, -errno, "read a pack's index");
		if (k == 0)
			return err_set(err, -EBADMSG, "a pack's index ends too early");
		got += (size_t)k;
	}
	return 0;
}

/* Takes x->fd over, whatever the result. */
static int add_index(struct inner_had *h, struct index *x, uint64_t size, struct err *err)
{
	uint8_t head[GIT_IDX_OIDS];
	int r = size < sizeof(head) ? -EBADMSG : read_index(x, head, sizeof(head), 0, err);
	if (r >= 0)
		r = git_idx_decode(&x->idx, head, size);
	if (r == -EBADMSG)
		r = err_set(err, r, "a pack's index is damaged");
	if (r >= 0 && array_grow(&h->indexes, h->n, &h->cap) < 0)
		r = err_no_memory(err);
	if (r < 0) {
		cleanup_close(&x->fd);
		return r;
	}
	h->indexes[h->n++] = *x;
	return 0;
}

int inner_had_index(struct inner_had *h, int dir, const char *name, struct err *err)
{
	struct stat st;
	struct index x = { .fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) };
	if (x.fd < 0)
		return err_sys(err, -errno, "%s", name);
	if (fstat(x.fd, &st) < 0) {
		int r = err_sys(err, -errno, "%s", name);
		cleanup_close(&x.fd);
		return r;
	}
	return add_index(h, &x, (uint64_t)st.st_size, err);
}

int inner_had_view(struct inner_had *h, const struct view *v, struct err *err)
{
	static const char where[] = ".git/objects/pack", end[] = ".idx";
	auto_names names = { 0 };
	struct attr a;
	int r = viewfile_at(v, 1, where, sizeof(where) - 1, &a);
	if (r == -ENOENT || (r >= 0 && !S_ISDIR(a.mode)))
		return 0;
	if (r >= 0)
		r = names_all(&names, v, a.ino);
	if (r < 0)
		return err_sys(err, r, "list the packs of the checkout");
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		const struct name *n = names.v[i];
		if (n->type != DT_REG || n->len < sizeof(end) ||
		    memcmp(n->text + n->len - (sizeof(end) - 1), end, sizeof(end) - 1) != 0)
			continue;
		struct index x = { .view = v, .ino = n->ino, .fd = -1 };
		r = view_inode(v, n->ino, &a);
		r = r < 0 ? err_sys(err, r, "look at a pack of the checkout")
			  : add_index(h, &x, a.size, err);
	}
	return r;
}

static int in_index(const struct index *x, const struct oid *oid, struct err *err)
{
	uint8_t names[NAMES_AT_ONCE * OID_BYTES];
	uint32_t low = oid->b[0] ? x->idx.fanout[oid->b[0] - 1] : 0, at;
	uint32_t high = x->idx.fanout[oid->b[0]];
	while (high - low > NAMES_AT_ONCE) {
		uint32_t mid = low + (high - low) / 2;
		int r = read_index(x, names, OID_BYTES, git_idx_oid_at(mid), err);
		if (r < 0)
			return r;
		if (memcmp(names, oid->b, OID_BYTES) <= 0)
			low = mid;
		else
			high = mid;
	}
	if (low == high)
		return 0;
	int r = read_index(x, names, (size_t)(high - low) * OID_BYTES, git_idx_oid_at(low), err);
	return r < 0 ? r : git_idx_search(names, high - low, oid, &at) == GIT_FOUND;
}

static int in_packs(const struct inner_had *h, const struct oid *oid, struct err *err)
{
	int r = 0;
	for (size_t i = h->n; i > 0 && r == 0; i--) /* what came last is asked for most */
		r = in_index(&h->indexes[i - 1], oid, err);
	return r;
}

/* ---- claims ---- */

int inner_had_claim(struct inner_had *h, const struct oid *oid, struct err *err)
{
	if (array_grow(&h->claims, h->nclaims, &h->claims_cap) < 0)
		return err_no_memory(err);
	h->claims[h->nclaims++] = (struct claim){ .oid = *oid };
	h->sorted = false;
	return 0;
}

static int by_oid(const void *a, const void *b)
{
	return memcmp(a, b, OID_BYTES);
}

static struct claim *find_claim(struct inner_had *h, const struct oid *oid)
{
	_Static_assert(offsetof(struct claim, oid) == 0, "by_oid compares what begins with an id");
	if (!h->sorted && h->nclaims > 1)
		qsort(h->claims, h->nclaims, sizeof(*h->claims), by_oid);
	h->sorted = true;
	return h->nclaims ? bsearch(oid, h->claims, h->nclaims, sizeof(*h->claims), by_oid) : NULL;
}

/* 1, 0 or -errno. */
static int was_had(struct inner_had *h, const git_oid *id, struct err *err)
{
	struct oid oid = oid_of_git(id);
	struct claim *c = find_claim(h, &oid); /* that reads nothing */
	if (!c)
		return in_packs(h, &oid, err);
	c->used = true;
	return 1;
}

int inner_claims(const struct inner_had *h, struct buf *out, struct err *err)
{
	for (size_t i = 0; i < h->nclaims; i++) {
		char hex[OID_HEX + 1];
		if (!h->claims[i].used)
			continue;
		oid_hex(hex, &h->claims[i].oid);
		buf_printf(out, "%s\n", hex);
	}
	return buf_error(out) < 0 ? err_no_memory(err) : 0;
}

int inner_check_claims(struct inner_had *h, struct err *err)
{
	for (size_t i = 0; i < h->nclaims; i++) {
		char hex[OID_HEX + 1];
		const struct claim *c = &h->claims[i];
		int r = c->used ? in_packs(h, &c->oid, err) : 1;
		if (r < 0)
			return r;
		oid_hex(hex, &c->oid);
		if (r == 0)
			return err_set(err, -EBADMSG,
				       "the history of its own git can't be taken over: the file "
				       "of object %.12s holds another",
				       hex);
	}
	return 0;
}

/* ---- commits and trees ---- */

/* A folder of the commit that no parent has so. */
struct spot {
	char *path;             /* with a slash at its end; "" for the root */
	git_oid tree, *parents; /* the parents' folders of that path */
	unsigned nparents, depth;
};

struct checker {
	struct inner_had *had;
	git_repository *repo;
	char commit[OID_HEX + 1]; /* the one that is looked at */
	struct spot *v;
	size_t n, cap, held;
	struct inner_past past; /* what must have been there before */
	struct oidmap fresh;    /* folders that no parent has */
	bool skipped;           /* one of those came a second time and wasn't looked into */
	uint64_t entries;
	time_t end; /* of the monotonic clock */
	struct err *err;
};

static void spot_done(struct spot *s)
{
	free(s->path);
	free(s->parents);
}

static int refuse(struct checker *c, const char *what, const git_oid *id)
{
	char hex[OID_HEX + 1];
	return err_set(c->err, -EBADMSG,
		       "the history of its own git can't be taken over: commit %.12s refers to "
		       "what the workspace never had: %s (%.12s)",
		       c->commit, what, git_oid_tostr(hex, sizeof(hex), id));
}

static int too_many(struct checker *c, const char *what, unsigned max)
{
	return err_set(c->err, -E2BIG,
		       "commit %.12s of its own git has more than %u %s: --squash takes the files "
		       "alone",
		       c->commit, max, what);
}

static int need(struct checker *c, const git_oid *id, const char *what)
{
	int r = was_had(c->had, id, c->err);
	return r == 0 ? refuse(c, what, id) : r < 0 ? r : 0;
}

/* What isn't had: perhaps it was at that path before. */
static int doubt(struct checker *c, const git_tree_entry *e, const char *path)
{
	if (c->skipped)
		return refuse(c, path, git_tree_entry_id(e));
	int r = inner_past_add(&c->past, strdup(path), git_tree_entry_id(e),
			       git_tree_entry_filemode_raw(e), c->commit);
	return r == -ENOMEM ? err_no_memory(c->err)
	       : r < 0 ? too_many(c, "entries that it has no content of", INNER_PAST_ENTRIES_MAX)
		       : 0;
}

/* A folder that no parent has at that path: all that is in it must have been had, wherever it is,
 * so once is enough; else a few trees, each ten times in the next, are looked at for ever. Not
 * where paths matter, which is when something is in doubt. */
static int is_known(struct checker *c, const git_oid *tree)
{
	int r = oidmap_add(&c->fresh, tree);
	if (r == 0 && c->past.n == 0) {
		c->skipped = true;
		return 1;
	}
	return r < 0 ? err_no_memory(c->err) : 0;
}

static time_t now_s(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t); /* it is there always */
	return t.tv_sec;
}

/* Before it is held in memory. */
static int check_size(struct checker *c, const git_oid *id)
{
	auto_git(git_odb) odb = NULL;
	git_object_t type;
	size_t size;
	int r = git_repository_odb(&odb, c->repo);
	if (r >= 0)
		r = git_odb_read_header(&size, &type, odb, id);
	if (r < 0)
		return git_fail(c->err, r, "commit %.12s", c->commit);
	return size > INNER_OBJECT_MAX
		       ? too_many(c, "bytes of names in one folder, or of text", INNER_OBJECT_MAX)
		       : 0;
}

static size_t spot_bytes(const struct spot *s)
{
	return sizeof(*s) + strlen(s->path) + (s->nparents + 1) * sizeof(*s->parents);
}

/* Takes s over, whatever the result. */
static int push(struct checker *c, struct spot *s)
{
	int r = s->depth > INNER_DEPTH_MAX ? too_many(c, "folders in one another", INNER_DEPTH_MAX)
		: !s->path || !s->parents  ? err_no_memory(c->err)
					   : 0;
	if (r >= 0 && (c->held += spot_bytes(s)) > INNER_HELD_MAX)
		r = too_many(c, "bytes of folders' names", INNER_HELD_MAX);
	if (r >= 0 && array_grow(&c->v, c->n, &c->cap) < 0)
		r = err_no_memory(c->err);
	if (r < 0)
		spot_done(s);
	else
		c->v[c->n++] = *s;
	return r;
}

static bool same_entry(const git_tree_entry *a, const git_tree_entry *b)
{
	return git_oid_equal(git_tree_entry_id(a), git_tree_entry_id(b)) &&
	       git_tree_entry_filemode_raw(a) == git_tree_entry_filemode_raw(b);
}

static int look_at(struct checker *c, const struct spot *in, const git_tree_entry *e,
		   git_tree *const *parents)
{
	const char *name = git_tree_entry_name(e);
	git_object_t type = git_tree_entry_type(e);
	git_oid below[INNER_PARENTS_MAX];
	unsigned n = 0;
	if (++c->entries > INNER_ENTRIES_MAX)
		return too_many(c, "changed entries (with the commits before it)",
				INNER_ENTRIES_MAX);
	if (c->entries % CLOCK_EVERY == 0 && now_s() > c->end)
		return err_set(c->err, -ETIMEDOUT, "its own git's history takes more than %d s",
			       INNER_CHECK_S);
	for (unsigned i = 0; i < in->nparents; i++) {
		const git_tree_entry *p = git_tree_entry_byname(parents[i], name);
		if (p && same_entry(p, e))
			return 0;
		if (p && git_tree_entry_type(p) == GIT_OBJECT_TREE)
			below[n++] = *git_tree_entry_id(p);
	}
	if (type == GIT_OBJECT_COMMIT)
		return 0; /* a submodule's: nobody reads it here */
	if (strlen(in->path) + strlen(name) > INNER_PATH_MAX)
		return too_many(c, "bytes in a path", INNER_PATH_MAX);
	auto_free char *path = NULL;
	if (asprintf(&path, "%s%s%s", in->path, name, type == GIT_OBJECT_TREE ? "/" : "") < 0) {
		path = NULL;
		return err_no_memory(c->err);
	}
	int r = was_had(c->had, git_tree_entry_id(e), c->err);
	if (r == 0 && type != GIT_OBJECT_TREE)
		return doubt(c, e, path);
	if (r == 0)
		return refuse(c, path, git_tree_entry_id(e));
	if (r < 0 || type != GIT_OBJECT_TREE)
		return r;
	r = n == 0 ? is_known(c, git_tree_entry_id(e)) : 0;
	if (r != 0)
		return r < 0 ? r : 0;
	struct spot s = { .path = steal_ptr(&path),
			  .tree = *git_tree_entry_id(e),
			  .parents = calloc(n + 1, sizeof(*s.parents)),
			  .nparents = n,
			  .depth = in->depth + 1 };
	if (s.parents && n)
		memcpy(s.parents, below, n * sizeof(*below));
	return push(c, &s);
}

static int compare(struct checker *c, const struct spot *s, const git_tree *tree,
		   git_tree *const *parents)
{
	size_t n = git_tree_entrycount(tree);
	int r = 0;
	for (size_t i = 0; i < n && r >= 0; i++)
		r = look_at(c, s, git_tree_entry_byindex(tree, i), parents);
	return r;
}

static int check_spot(struct checker *c, const struct spot *s)
{
	auto_git(git_tree) tree = NULL;
	git_tree *parents[INNER_PARENTS_MAX] = { NULL };
	int r = check_size(c, &s->tree);
	if (r < 0)
		return r;
	r = git_tree_lookup(&tree, c->repo, &s->tree);
	for (unsigned i = 0; i < s->nparents && r >= 0; i++)
		r = git_tree_lookup(&parents[i], c->repo, &s->parents[i]);
	r = r < 0 ? git_fail(c->err, r, "commit %.12s: /%s", c->commit, s->path)
		  : compare(c, s, tree, parents);
	for (unsigned i = 0; i < s->nparents; i++)
		git_tree_free(parents[i]);
	return r;
}

/* The root, unless a parent has the same. */
static int begin(struct checker *c, const git_commit *commit)
{
	unsigned n = git_commit_parentcount(commit);
	struct spot s = { .tree = *git_commit_tree_id(commit) };
	if (n > INNER_PARENTS_MAX)
		return too_many(c, "parents", INNER_PARENTS_MAX);
	s.path = strdup("");
	s.parents = calloc(n + 1, sizeof(*s.parents));
	int r = s.parents ? 0 : err_no_memory(c->err);
	bool same = false;
	for (unsigned i = 0; i < n && r >= 0; i++) {
		auto_git(git_commit) parent = NULL;
		r = git_commit_parent(&parent, commit, i);
		if (r < 0) {
			r = git_fail(c->err, r, "a parent of commit %.12s", c->commit);
			break;
		}
		s.parents[s.nparents++] = *git_commit_tree_id(parent);
		same |= git_oid_equal(&s.tree, git_commit_tree_id(parent));
	}
	if (r >= 0 && !same)
		r = need(c, &s.tree, "its tree");
	if (r >= 0 && !same)
		return push(c, &s);
	spot_done(&s);
	return r;
}

static int many_paths(struct checker *c, const git_oid *tree)
{
	int r = treepaths_check(c->repo, tree, c->err);
	return r < 0 ? err_prefix(c->err, r, "commit %.12s of its own git", c->commit) : 0;
}

static int check_commit(struct checker *c, const struct oid *oid)
{
	git_oid id = oid_to_git(oid);
	auto_git(git_commit) commit = NULL;
	oid_hex(c->commit, oid);
	int r = check_size(c, &id);
	if (r < 0)
		return r;
	r = git_commit_lookup(&commit, c->repo, &id);
	if (r < 0)
		return git_fail(c->err, r, "commit %.12s", c->commit);
	r = begin(c, commit);
	while (c->n > 0 && r >= 0) {
		struct spot s = c->v[--c->n];
		c->held -= spot_bytes(&s);
		r = check_spot(c, &s);
		spot_done(&s);
	}
	/* What came again and wasn't looked into counts all the same. */
	if (r >= 0 && c->skipped)
		r = many_paths(c, git_commit_tree_id(commit));
	return r;
}

/* In the packs that the workspace got: what came since might be a commit that somebody knows and
 * wasn't shown. */
static int was_given(void *ctx, const git_oid *id, struct err *err)
{
	const struct inner_had *h = ctx;
	struct oid oid = oid_of_git(id);
	int r = 0;
	for (size_t i = 0; i < h->n && r == 0; i++)
		r = h->indexes[i].view ? in_index(&h->indexes[i], &oid, err) : 0;
	return r;
}

static int check_past(struct checker *c, const struct oid *from)
{
	const struct past_entry *e = NULL;
	git_oid id = oid_to_git(from);
	int r = inner_past_find(&c->past, &e, c->repo, &id, was_given, c->had, c->end, c->err);
	if (r != 0)
		return r < 0 ? r : 0;
	memcpy(c->commit, e->commit, sizeof(c->commit));
	return refuse(c, e->path, &e->id);
}

int inner_check(struct inner_had *h, const char *repository, const struct oid *commits, size_t n,
		const struct oid *from, struct err *err)
{
	auto_git(git_repository) repo = NULL;
	struct checker c = { .had = h, .err = err, .end = now_s() + INNER_CHECK_S };
	int r = git_repository_open_bare(&repo, repository);
	if (r < 0)
		return git_fail(err, r, "open the commits that came");
	c.repo = repo;
	/* Before any tree is read: a foreign parent brings a whole history with it. */
	for (size_t i = 0; i < n && r >= 0; i++) {
		git_oid id = oid_to_git(&commits[i]);
		oid_hex(c.commit, &commits[i]);
		r = was_had(h, &id, err);
		if (r == 0)
			r = err_set(err, -EBADMSG,
				    "the history of its own git can't be taken over: it leads to "
				    "commit %.12s, which the workspace never had",
				    c.commit);
	}
	for (size_t i = 0; i < n && r >= 0; i++)
		r = check_commit(&c, &commits[i]);
	if (r >= 0)
		r = check_past(&c, from);
	inner_past_done(&c.past);
	oidmap_done(&c.fresh);
	while (c.n > 0)
		spot_done(&c.v[--c.n]);
	free(c.v);
	return r < 0 ? r : 0;
}
