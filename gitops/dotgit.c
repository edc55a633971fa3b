/* .git of a workspace: what makes git, and libgit2, take it for a repository of its own that was
 * cloned a moment ago. Settings beyond that are those that Scalar gives to large repositories
 * (scalar(1)), where they change nothing that a person sees. */
#include <stdio.h>

#include "fs/base/cleanup.h"
#include "gitops/checkout_impl.h"
#include "gitops/helper.h"

enum {
	MODE_DIR = 0755,
	MODE_FILE = 0644,
	MODE_PACK = 0444,
	MODE_PROGRAM = 0755,
};

struct dotgit {
	struct image_builder *b;
	struct co_inos *inos;
	size_t entries;
	const struct pack_set *packs;
	const struct checkout_options *opt;
	const struct checkout_spec *spec;
	struct dotgit_inos *made;
	struct err *err;
	uint64_t root, objects, info, refs, bough;
};

/* ---- files ---- */

static int add_inode(struct dotgit *g, uint64_t dir, const char *name, uint32_t mode, uint64_t size,
		     uint64_t *ino)
{
	struct attr a;
	co_attr(&a, g->spec);
	a.mode = mode;
	a.nlink = 1;
	a.size = size;
	int r = co_ino(g->inos, &a.ino, g->err);
	if (r < 0)
		return r;
	r = image_add_inode(g->b, &a);
	if (r == 0)
		r = image_add_dirent(g->b, dir, name, strlen(name), a.ino,
				     S_ISDIR(mode) ? DT_DIR : DT_REG, 0);
	if (r == -EEXIST)
		return err_set(g->err, -ENOTSUP, "the commit has a file of the name %s", name);
	if (r < 0)
		return err_sys(g->err, r, "add %s to the image", name);
	*ino = a.ino;
	return 0;
}

static int add_dir(struct dotgit *g, uint64_t dir, const char *name, uint64_t *ino)
{
	return add_inode(g, dir, name, S_IFDIR | MODE_DIR, 0, ino);
}

static int add_piece(struct dotgit *g, uint64_t ino, const struct piece *p)
{
	int r = image_add_piece(g->b, ino, p);
	return r < 0 ? err_sys(g->err, r, "add content to the image") : 0;
}

static int add_bytes(struct dotgit *g, uint64_t dir, const char *name, uint32_t mode,
		     const void *data, size_t len)
{
	struct piece p = { .len = (uint32_t)len };
	uint64_t ino;
	int r = add_inode(g, dir, name, S_IFREG | mode, len, &ino);
	if (r < 0 || len == 0)
		return r;
	if (len > STORE_OBJECT_MAX)
		return err_set(g->err, -EFBIG, ".git/%s is too large", name);
	r = store_put(g->opt->session, data, len, &p.object, g->err);
	return r < 0 ? r : add_piece(g, ino, &p);
}

static int add_text(struct dotgit *g, uint64_t dir, const char *name, const char *text)
{
	return add_bytes(g, dir, name, MODE_FILE, text, strlen(text));
}

/* Text of any length: refs of a repository with many tags. */
static int add_buf(struct dotgit *g, uint64_t dir, const char *name, const struct buf *b)
{
	uint64_t ino;
	if (buf_error(b) < 0)
		return err_no_memory(g->err);
	int r = add_inode(g, dir, name, S_IFREG | MODE_FILE, b->len, &ino);
	for (size_t at = 0; r == 0 && at < b->len;) {
		size_t n = b->len - at < STORE_SMALL_MAX ? b->len - at : STORE_SMALL_MAX;
		struct piece p = { .off = at, .len = (uint32_t)n };
		r = store_put(g->opt->session, b->data + at, n, &p.object, g->err);
		if (r == 0)
			r = add_piece(g, ino, &p);
		at += n;
	}
	return r;
}

/* ---- config ---- */

/* A value or the name of a subsection, in quotes. No line of it can end: a newline is \n in a
 * value; in a subsection, where that isn't known, callers refuse it. */
static void quoted(struct buf *b, const char *s)
{
	buf_u8(b, '"');
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			buf_u8(b, '\\');
		if (*s == '\n')
			buf_printf(b, "\\n");
		else
			buf_u8(b, (uint8_t)*s);
	}
	buf_u8(b, '"');
}

static void setting(struct buf *b, const char *key, const char *value)
{
	buf_printf(b, "\t%s = ", key);
	quoted(b, value);
	buf_u8(b, '\n');
}

/* The address without whoever it was fetched as: https://user:token@host/… Of ssh's the user is a
 * part of the address, a password isn't. */
static void origin_url(struct buf *out, const char *url)
{
	const char *host = strstr(url, "://");
	size_t scheme = host ? (size_t)(host + 3 - url) : 0;
	const char *at = NULL;
	if (host)
		for (const char *p = url + scheme; *p && *p != '/'; p++)
			at = *p == '@' ? p : at;
	if (!at) {
		buf_add(out, url, strlen(url));
		return;
	}
	buf_add(out, url, scheme);
	if (strncmp(url, "http", 4) != 0) {
		size_t user = strcspn(url + scheme, ":@");
		buf_add(out, url + scheme, user);
		buf_u8(out, '@');
	}
	buf_add(out, at + 1, strlen(at + 1));
}

static const char config_core[] = "[core]\n"
				  "\trepositoryformatversion = 0\n"
				  "\tfilemode = true\n"
				  "\tbare = false\n"
				  "\tlogallrefupdates = true\n"
				  "\tautocrlf = false\n"
				  "\tpreloadIndex = true\n"
				  "\tmultiPackIndex = true\n"
				  "\tuntrackedCache = true\n"
				  "\tfsmonitor = \"" DOTGIT_FSMONITOR "\"\n"
				  "\tfsmonitorHookVersion = 2\n";
/* Without it git writes the whole index anew at each status after a change, to note which folders
 * it has looked into; which costs more than to look again. Good only where the cache in the index
 * is for the path of the work tree (dotgit_here): elsewhere git would leave it unused. */
static const char config_keep[] = "[core]\n\tuntrackedCache = keep\n";
static const char config_rest[] =
	"[include]\n\tpath = bough/here\n"
	"[gc]\n\tauto = 0\n"
	"[maintenance]\n\tauto = false\n"
	"[receive]\n\tautogc = false\n"
	"[pack]\n\tuseBitmaps = false\n\tuseSparse = true\n"
	"[fetch]\n\tunpackLimit = 1\n\twriteCommitGraph = false\n"
	"[index]\n\tsparse = false\n\tskipHash = false\n";
/* The remote that lacks what is outside of the scope. It answers as a server that has an error, in
 * a packet of the protocol, since git says more than is true of one that just ends. (printf takes
 * no notice of the address that git appends.) And what would have git read contents outside without
 * need, to end with an error: merges count no changed lines of what they have made, and a push asks
 * what the other side has, instead of packing all when it doesn't know its newest commit. */
#define OUTSIDE \
	"ERR This object is outside of the scope of this workspace: name paths that are in it, " \
	"as in git log -p -- FOLDER. If git was about to tell how many lines a commit changed, " \
	"that commit is made. git fetch needs " \
	"-c remote.origin.promisor=true -c remote.origin.partialCloneFilter=blob:none."
static void add_scope(struct buf *b)
{
	buf_printf(b,
		   "[remote \"scope\"]\n"
		   "\turl = .git/bough/scope\n"
		   "\tpromisor = true\n"
		   "\tskipFetchAll = true\n"
		   "\tuploadpack = \"printf '%04zx" OUTSIDE "'\"\n"
		   "[merge]\n\tstat = false\n"
		   "[push]\n\tnegotiate = true\n",
		   4 + strlen(OUTSIDE));
}

void dotgit_here(struct buf *out, const char *path)
{
	auto_buf at = { 0 };
	if (path[strcspn(path, "*?[\\\n")]) /* it would be a pattern */
		return;
	buf_printf(&at, "gitdir:%s/.git", path);
	buf_u8(&at, 0);
	if (buf_error(&at) < 0)
		return; /* it does without */
	buf_printf(out, "[includeIf ");
	quoted(out, (const char *)at.data);
	buf_printf(out, "]\n\tpath = keep\n");
}

static int add_config(struct dotgit *g)
{
	const struct checkout_spec *s = g->spec;
	auto_buf b = { 0 }, url = { 0 };
	if ((s->branch && strchr(s->branch, '\n')) || (s->upstream && strchr(s->upstream, '\n')))
		return err_set(g->err, -EINVAL, "a branch has no newline in its name");
	buf_add(&b, config_core, strlen(config_core));
	if (s->nscopes)
		buf_printf(&b, "\tsparseCheckout = true\n\tsparseCheckoutCone = true\n");
	buf_add(&b, config_rest, strlen(config_rest));
	/* One is for the extensions: `true` leaves two cores one for the entries. */
	buf_printf(&b, "\tthreads = %s\n", g->entries >= INDEX_LARGE ? "4" : "true");
	if (s->origin_url || s->upstream)
		buf_printf(&b, "[remote \"origin\"]\n");
	if (s->origin_url) {
		origin_url(&url, s->origin_url);
		buf_u8(&url, 0);
		if (buf_error(&url) < 0)
			return err_no_memory(g->err);
		setting(&b, "url", (const char *)url.data);
	}
	if (s->origin_url || s->upstream)
		setting(&b, "fetch", "+refs/heads/*:refs/remotes/origin/*");
	if (s->branch && s->upstream) {
		auto_buf merge = { 0 };
		buf_printf(&merge, "refs/heads/%s", s->upstream);
		buf_u8(&merge, 0);
		if (buf_error(&merge) < 0)
			return err_no_memory(g->err);
		buf_printf(&b, "[branch ");
		quoted(&b, s->branch);
		buf_printf(&b, "]\n");
		setting(&b, "remote", "origin");
		setting(&b, "merge", (const char *)merge.data);
	}
	if (s->nscopes)
		add_scope(&b);
	return add_buf(g, g->root, "config", &b);
}

/* ---- scope ---- */

static void sparse_name(struct buf *out, const char *path, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (strchr("*?[\\", path[i]))
			buf_u8(out, '\\');
		buf_u8(out, (uint8_t)path[i]);
	}
}

/* Whether that folder is in the scope already, by another one above it. */
static bool covered(const struct checkout_spec *spec, const char *path, size_t len)
{
	for (size_t i = 0; i < spec->nscopes; i++) {
		const char *s = spec->scopes[i];
		size_t n = strlen(s);
		if (n < len && path[n] == '/' && memcmp(s, path, n) == 0)
			return true;
	}
	return false;
}

/* The folders above a scope: of these their files, but nothing of other folders in them. */
static void sparse_parents(struct buf *out, const char *scope, const char *before)
{
	for (const char *p = strchr(scope, '/'); p; p = strchr(p + 1, '/')) {
		size_t n = (size_t)(p - scope);
		/* Scopes are sorted, so what two of them share was written with the one before. */
		if (strncmp(before, scope, n) == 0 && before[n] == '/')
			continue;
		for (int others = 0; others < 2; others++) {
			buf_printf(out, others ? "!/" : "/");
			sparse_name(out, scope, n);
			buf_printf(out, others ? "/*/\n" : "/\n");
		}
	}
}

void dotgit_sparse(struct buf *out, const struct checkout_spec *spec)
{
	const char *before = "";
	buf_printf(out, "/*\n!/*/\n");
	for (size_t i = 0; i < spec->nscopes; i++) {
		if (covered(spec, spec->scopes[i], strlen(spec->scopes[i])))
			continue;
		sparse_parents(out, spec->scopes[i], before);
		before = spec->scopes[i];
	}
	for (size_t i = 0; i < spec->nscopes; i++) {
		if (covered(spec, spec->scopes[i], strlen(spec->scopes[i])))
			continue;
		buf_u8(out, '/');
		sparse_name(out, spec->scopes[i], strlen(spec->scopes[i]));
		buf_printf(out, "/\n");
	}
}

/* ---- refs ---- */

static void add_ref(struct buf *b, const struct oid *oid, const char *kind, const char *name)
{
	char hex[OID_HEX + 1];
	oid_hex(hex, oid);
	buf_printf(b, "%s refs/%s/%s\n", hex, kind, name);
}

/* In order of their names: heads, remotes, tags. */
static int add_packed_refs(struct dotgit *g)
{
	auto_buf b = { 0 };
	char hex[OID_HEX + 1];
	buf_printf(&b, "# pack-refs with: peeled fully-peeled sorted \n");
	if (g->spec->branch)
		add_ref(&b, &g->spec->commit, "heads", g->spec->branch);
	if (g->spec->upstream)
		add_ref(&b, g->spec->tracked ? g->spec->tracked : &g->spec->commit,
			"remotes/origin", g->spec->upstream);
	for (size_t i = 0; i < g->packs->ntags; i++) {
		const struct pack_tag *t = &g->packs->tags[i];
		add_ref(&b, &t->oid, "tags", t->name);
		oid_hex(hex, &t->peeled);
		if (memcmp(t->oid.b, t->peeled.b, OID_BYTES) != 0)
			buf_printf(&b, "^%s\n", hex);
	}
	return add_buf(g, g->root, "packed-refs", &b);
}

static int add_head(struct dotgit *g)
{
	auto_buf b = { 0 };
	char hex[OID_HEX + 1];
	oid_hex(hex, &g->spec->commit);
	if (g->spec->branch)
		buf_printf(&b, "ref: refs/heads/%s\n", g->spec->branch);
	else
		buf_printf(&b, "%s\n", hex);
	return add_buf(g, g->root, "HEAD", &b);
}

static int add_refs(struct dotgit *g)
{
	uint64_t dir;
	int r = add_dir(g, g->root, "refs", &g->refs);
	if (r == 0)
		r = add_dir(g, g->refs, "heads", &dir);
	if (r == 0)
		r = add_dir(g, g->refs, "tags", &dir);
	if (r == 0)
		r = add_packed_refs(g);
	if (r < 0 || !g->spec->upstream)
		return r;
	auto_buf b = { 0 };
	buf_printf(&b, "ref: refs/remotes/origin/%s\n", g->spec->upstream);
	r = add_dir(g, g->refs, "remotes", &dir);
	if (r == 0)
		r = add_dir(g, dir, "origin", &dir);
	return r < 0 ? r : add_buf(g, dir, "HEAD", &b);
}

static int add_shallow(struct dotgit *g)
{
	auto_buf b = { 0 };
	char hex[OID_HEX + 1];
	for (size_t i = 0; i < g->packs->nshallow; i++) {
		oid_hex(hex, &g->packs->shallow[i]);
		buf_printf(&b, "%s\n", hex);
	}
	return b.len ? add_buf(g, g->root, "shallow", &b) : 0;
}

/* ---- objects ---- */

static int add_content(struct dotgit *g, uint64_t dir, const char *name, uint64_t size,
		       const struct piece *v, size_t n)
{
	uint64_t ino;
	int r = add_inode(g, dir, name, S_IFREG | MODE_PACK, size, &ino);
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_piece(g, ino, &v[i]);
	return r;
}

static int add_pack(struct dotgit *g, uint64_t dir, const struct pack_out *p)
{
	char hex[OID_HEX + 1], name[sizeof(hex) + 16];
	hex_encode(hex, p->name, OID_BYTES);
	(void)snprintf(name, sizeof(name), "pack-%s.pack", hex);
	int r = add_content(g, dir, name, p->pack_bytes, p->pack, p->npack);
	(void)snprintf(name, sizeof(name), "pack-%s.idx", hex);
	if (r == 0)
		r = add_content(g, dir, name, p->idx_bytes, p->idx, p->nidx);
	(void)snprintf(name, sizeof(name), "pack-%s.promisor", hex);
	if (r == 0 && p->promisor)
		r = add_content(g, dir, name, 0, NULL, 0);
	return r;
}

static int add_objects(struct dotgit *g)
{
	uint64_t dir;
	int r = add_dir(g, g->root, "objects", &g->objects);
	if (r == 0)
		r = add_dir(g, g->objects, "info", &dir);
	if (r == 0)
		r = add_dir(g, g->objects, "pack", &dir);
	/* In that order, so that the inodes tell which are older (pack_known.c). */
	for (size_t i = 0; i < g->packs->npacks && r == 0; i++)
		r = add_pack(g, dir, &g->packs->packs[i]);
	return r;
}

static int add_info(struct dotgit *g)
{
	int r = add_dir(g, g->root, "info", &g->info);
	if (r == 0)
		r = add_text(g, g->info, "exclude", DOTGIT_EXCLUDE);
	if (r < 0 || g->spec->nscopes == 0)
		return r;
	auto_buf b = { 0 };
	dotgit_sparse(&b, g->spec);
	return add_buf(g, g->info, "sparse-checkout", &b);
}

/* What later checkouts read of this one. */
static int add_gains(struct dotgit *g, uint64_t dir)
{
	int r = 0;
	for (size_t i = 0; i < g->packs->npacks && r == 0; i++) {
		const struct pack_out *p = &g->packs->packs[i];
		char hex[OID_HEX + 1], name[GAINS_NAME_MAX];
		hex_encode(hex, p->name, OID_BYTES);
		(void)snprintf(name, sizeof(name), GAINS_NAME, hex);
		if (p->gains_bytes)
			r = add_content(g, dir, name, p->gains_bytes, p->gains, p->ngains);
	}
	return r;
}

static int add_helper(struct dotgit *g)
{
	size_t len;
	const uint8_t *program = helper_fsmonitor(&len);
	int r = add_dir(g, g->root, "bough", &g->bough);
	if (r >= 0)
		r = add_text(g, g->bough, "keep", config_keep);
	if (r >= 0)
		r = add_inode(g, g->bough, "here", S_IFREG | MODE_FILE, 0, &g->made->here);
	if (r >= 0)
		r = add_gains(g, g->bough);
	return r < 0 ? r : add_bytes(g, g->bough, "fsmonitor", MODE_PROGRAM, program, len);
}

/* The hook prepare-commit-msg of a checkout with a scope. Once a commit is made git counts the
 * lines that it changed, and of what is outside it can't: so that is tried before. Not where
 * nothing is counted: of merges, a rebase's commits, and where git (our parent) was told to be
 * quiet. */
static const char hook_count[] =
	"#!/bin/sh\n"
	"dir=$(git rev-parse --git-dir) || exit 0\n"
	"[ -e \"$dir/MERGE_HEAD\" ] || [ -e \"$dir/rebase-merge\" ] && exit 0\n"
	"words=$(tr '\\0' '\\n' </proc/$PPID/cmdline 2>/dev/null)\n"
	"echo \"$words\" | grep -q -e '^-[a-zA-Z]*q' -e '^--quiet$' && exit 0\n"
	"on=HEAD\n"
	"if echo \"$words\" | grep -qx -e --amend; then\n"
	"\tgit rev-parse -q --verify HEAD^2 >/dev/null && exit 0\n"
	"\ton=HEAD^\n"
	"fi\n"
	"git rev-parse -q --verify $on >/dev/null || on=$(git hash-object -t tree /dev/null)\n"
	"git diff-index --cached --shortstat -M $on >/dev/null 2>&1 && exit 0\n"
	"cat >&2 <<-END\n"
	"\tThis changes what is outside of the scope of this workspace, of which git can't tell\n"
	"\thow many lines; so the commit isn't made yet. All is staged:\n"
	"\tgit commit -q --no-edit makes it (git commit -q -m MESSAGE where there is none yet),\n"
	"\tgit reset --merge takes it back.\n"
	"END\n"
	"exit 1\n";

/* In a scope the same program is the hook that keeps marked what is outside; the folders are for
 * it (tools/fsmonitor/outside.h). */
static int add_hooks(struct dotgit *g)
{
	auto_buf folders = { 0 };
	uint64_t dir;
	size_t len;
	const uint8_t *program = helper_fsmonitor(&len);
	int r = add_dir(g, g->root, "hooks", &dir);
	if (r < 0 || g->spec->nscopes == 0)
		return r;
	for (size_t i = 0; i < g->spec->nscopes; i++)
		buf_add(&folders, g->spec->scopes[i], strlen(g->spec->scopes[i]) + 1);
	r = add_buf(g, g->bough, "folders", &folders);
	if (r >= 0)
		r = add_bytes(g, dir, "post-index-change", MODE_PROGRAM, program, len);
	return r < 0 ? r : add_bytes(g, dir, "prepare-commit-msg", MODE_PROGRAM, hook_count,
				     strlen(hook_count));
}

int dotgit_add(struct dotgit_inos *out, struct image_builder *b, struct co_inos *inos,
	       size_t entries, const struct pack_set *packs, const struct checkout_options *opt,
	       const struct checkout_spec *spec, struct err *err)
{
	struct dotgit g = { .b = b,
			    .inos = inos,
			    .entries = entries,
			    .packs = packs,
			    .opt = opt,
			    .spec = spec,
			    .made = out,
			    .err = err };
	static int (*const steps[])(struct dotgit *) = {
		add_head, add_config,  add_info,   add_objects,
		add_refs, add_shallow, add_helper, add_hooks,
	};
	int r = add_dir(&g, 1, ".git", &g.root);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && r == 0; i++)
		r = steps[i](&g);
	if (r == 0)
		r = add_text(&g, g.root, "description",
			     "Unnamed repository; edit this file 'description' to name the "
			     "repository.\n");
	return r < 0 ? r : add_inode(&g, g.root, "index", S_IFREG | MODE_FILE, 0, &out->index);
}
