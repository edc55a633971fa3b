/* For tests of git's side: a workspace and an ordinary checkout of one commit, changed alike, and
 * system git to judge by. */
#ifndef BOUGH_TESTS_UNIT_TWIN_H
#define BOUGH_TESTS_UNIT_TWIN_H

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "fs/base/cleanup.h"
#include "gitops/changes.h"
#include "gitops/packout.h"
#include "tests/unit/tree.h"

enum { GIT_KIT_REPO = 1 };

struct twin {
	struct tree_root root; /* its repos/00000001 is the mirror */
	char git[96];          /* the checkout beside it, inside root.dir */
	struct ws *ws;
	struct stack before;
	struct mirror *mirror;
	struct oid base;
	bool ready;
};

/* Runs a shell command in the checkout; its output, which the caller frees. Fails the test unless
 * it succeeds. */
__attribute__((format(printf, 2, 3))) static inline char *twin_git(struct twin *t, const char *fmt,
								   ...)
{
	auto_buf cmd = { 0 };
	struct buf out = { 0 };
	char part[4096], args[8192];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	buf_printf(&cmd,
		   "cd %s && export GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent"
		   " GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=A"
		   " GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='1700000000 +0000'"
		   " GIT_COMMITTER_DATE='1700000000 +0000' LC_ALL=C; %s",
		   t->git, args);
	buf_u8(&cmd, 0);
	FILE *f = popen((char *)cmd.data, "r");
	assert_non_null(f);
	size_t n;
	while ((n = fread(part, 1, sizeof(part), f)) > 0)
		buf_add(&out, part, n);
	int code = pclose(f);
	buf_u8(&out, 0);
	if (code != 0)
		fail_msg("%s: exit %d: %s", args, code, (char *)out.data);
	while (out.len > 1 && out.data[out.len - 2] == '\n')
		out.data[--out.len - 1] = 0;
	return (char *)out.data;
}

static inline void twin_do(struct twin *t, const char *what)
{
	free(twin_git(t, "%s", what));
}

static inline void twin_open(struct twin *t)
{
	char path[96];
	*t = (struct twin){ 0 };
	tree_root_open(&t->root);
	(void)snprintf(t->git, sizeof(t->git), "%s/git", t->root.dir);
	(void)snprintf(path, sizeof(path), "%s/repos", t->root.dir);
	assert_int_equal(mkdir(t->git, 0755), 0);
	assert_int_equal(mkdir(path, 0755), 0);
	twin_do(t, "git init -q -b main . && git config core.autocrlf false");
	t->ws = tree_create(&t->root, "ws_twin", NULL);
}

static inline void twin_close(struct twin *t)
{
	mirror_close(t->mirror);
	stack_done(&t->before);
	ws_close(t->ws);
	tree_root_close(&t->root);
}

/* ---- the same change on both sides */

static inline char *twin_path(struct twin *t, const char *path)
{
	char *p = NULL;
	assert_true(asprintf(&p, "%s/%s", t->git, path) > 0);
	return p;
}

static inline void twin_write(struct twin *t, const char *path, const void *data, size_t len)
{
	auto_free char *p = twin_path(t, path);
	FILE *f = fopen(p, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
	tree_write(t->ws, path, data, len, 0);
	tree_truncate(t->ws, path, len);
}

static inline void twin_put(struct twin *t, const char *path, const char *text)
{
	twin_write(t, path, text, strlen(text));
}

static inline void twin_mkdir(struct twin *t, const char *path)
{
	auto_free char *p = twin_path(t, path);
	assert_int_equal(mkdir(p, 0755), 0);
	tree_mk(t->ws, path, S_IFDIR | 0755);
}

static inline void twin_rm(struct twin *t, const char *path)
{
	auto_free char *p = twin_path(t, path);
	assert_int_equal(remove(p), 0);
	tree_rm(t->ws, path);
}

static inline void twin_mv(struct twin *t, const char *from, const char *to)
{
	auto_free char *p = twin_path(t, from);
	auto_free char *q = twin_path(t, to);
	assert_int_equal(rename(p, q), 0);
	tree_mv(t->ws, from, to);
}

static inline void twin_chmod(struct twin *t, const char *path, mode_t mode)
{
	auto_free char *p = twin_path(t, path);
	assert_int_equal(chmod(p, mode), 0);
	tree_chmod(t->ws, path, mode);
}

static inline void twin_link(struct twin *t, const char *path, const char *target)
{
	const char *name;
	struct entry e;
	auto_free char *p = twin_path(t, path);
	assert_int_equal(symlink(target, p), 0);
	uint64_t dir = tree_parent(t->ws, path, &name);
	assert_int_equal(ws_symlink(t->ws, dir, name, strlen(name), target, &tree_root_caller, &e),
			 0);
	ws_forget(t->ws, e.node, 1);
}

static inline void twin_hardlink(struct twin *t, const char *path, const char *to)
{
	const char *name;
	struct entry e;
	auto_free char *p = twin_path(t, path);
	auto_free char *q = twin_path(t, to);
	assert_int_equal(link(p, q), 0);
	uint64_t node = tree_node(t->ws, path), dir = tree_parent(t->ws, to, &name);
	assert_int_equal(ws_link(t->ws, node, dir, name, strlen(name), &tree_root_caller, &e), 0);
	ws_forget(t->ws, e.node, 1);
}

/* ---- git's side */

static inline void twin_oid(struct oid *out, const char *hex)
{
	if (oid_parse(out, hex) < 0)
		fail_msg("no id: %s", hex);
}

/* What is there now is committed, and is the base. */
static inline void twin_base(struct twin *t)
{
	struct err err = { 0 };
	twin_do(t, "git add -A . && git commit -q --allow-empty -m base"
		   " && rm -rf ../repos/00000001 && git clone -q --bare . ../repos/00000001");
	auto_free char *hex = twin_git(t, "git rev-parse HEAD");
	twin_oid(&t->base, hex);
	if (gitops_init(&err) < 0 || mirror_open(&t->mirror, t->root.dir, GIT_KIT_REPO, &err) < 0)
		fail_msg("mirror: %s", err.text);
	tree_seal(t->ws, &t->before);
	t->ready = true;
}

/* Calls fn with the changes between the checkout and now. */
struct twin_now {
	struct view before, now;
	struct changes_options opt;
	struct changes changes;
};
static inline void twin_now_open(struct twin *t, struct twin_now *n)
{
	auto_stack now = { 0 };
	struct err err = { 0 };
	bool keep = n->opt.ignored, lenient = n->opt.lenient;
	*n = (struct twin_now){ 0 };
	tree_seal(t->ws, &now);
	tree_view(&t->root, &t->before, &n->before);
	tree_view(&t->root, &now, &n->now);
	n->opt = (struct changes_options){ .mirror = t->mirror,
					   .base = t->base,
					   .before = &n->before,
					   .now = &n->now,
					   .lenient = lenient,
					   .ignored = keep };
	if (changes_find(&n->changes, &n->opt, &err) < 0)
		fail_msg("changes_find: %s", err.text);
}
static inline void twin_now_done(struct twin_now *n)
{
	changes_done(&n->changes);
	view_done(&n->now);
	view_done(&n->before);
}

/* "A path" lines, "R old -> new"; the caller frees. */
static inline char *changes_lines(const struct changes *c)
{
	struct buf out = { 0 };
	for (size_t i = 0; i < c->n; i++)
		buf_printf(&out, "%c %s%s%s\n", c->v[i].kind,
			   c->v[i].old_path ? c->v[i].old_path : "", c->v[i].old_path ? " -> " : "",
			   c->v[i].path);
	buf_u8(&out, 0);
	return (char *)out.data;
}

static inline void expect_changes(const struct changes *c, const char *want)
{
	auto_free char *got = changes_lines(c);
	if (strcmp(got, want) != 0)
		fail_msg("changes:\n%swanted:\n%s", got, want);
}

/* The tree that git makes of the checkout is the one that is made of the workspace. */
static inline void twin_expect_tree(struct twin *t, struct twin_now *n)
{
	struct err err = { 0 };
	struct oid tree;
	char got[OID_HEX + 1];
	if (changes_tree(&tree, &n->changes, &n->opt, &t->base, &err) < 0)
		fail_msg("changes_tree: %s", err.text);
	oid_hex(got, &tree);
	auto_free char *want = twin_git(t, "git add -A . 2>/dev/null; git write-tree");
	if (strcmp(got, want) != 0) {
		auto_free char *lines = changes_lines(&n->changes);
		auto_free char *diff =
			twin_git(t,
				 "git --git-dir=../repos/00000001 ls-tree -r -t %s >../.a;"
				 " git ls-tree -r -t %s >../.b; diff ../.a ../.b || true",
				 got, want);
		fail_msg("tree %s, git's is %s\n%s\nchanges:\n%s", got, want, diff, lines);
	}
}

#endif
