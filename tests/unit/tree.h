/* For tests: a root in a temporary folder, and workspaces changed by path. */
#ifndef BOUGH_TESTS_TREE_H
#define BOUGH_TESTS_TREE_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fs/base/io.h"
#include "fs/work/diff.h"
#include "fs/work/save.h"
#include "fs/work/workspace.h"

struct tree_root {
	char dir[64];
	struct work *work;
	struct view_options opt;
};

static inline void tree_root_open(struct tree_root *t)
{
	struct err err = { 0 };
	(void)snprintf(t->dir, sizeof(t->dir), "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	struct work_options opt = { .commit_ms = UINT64_MAX };
	if (work_open(&t->work, t->dir, &opt, &err) < 0)
		fail_msg("work_open: %s", err.text);
	work_view_options(t->work, &t->opt);
}

static inline void tree_root_close(struct tree_root *t)
{
	struct err err = { 0 };
	work_close(t->work);
	if (io_remove_tree(AT_FDCWD, t->dir, &err) < 0)
		fail_msg("remove: %s", err.text);
}

static inline struct ws *tree_create(struct tree_root *t, const char *id, const struct stack *base)
{
	struct err err = { 0 };
	struct ws *ws = NULL;
	if (ws_create(&ws, t->work, id, base, NULL, 0, 0, &err) < 0)
		fail_msg("ws_create %s: %s", id, err.text);
	return ws;
}

static const struct caller tree_root_caller = { 0 };

/* The node that `path` leads to; its parent must be there. The last name is left in *last. */
static inline uint64_t tree_parent(struct ws *ws, const char *path, const char **last)
{
	uint64_t node = 1;
	for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
		struct entry e;
		int r = ws_lookup(ws, node, path, (size_t)(slash - path), &e);
		if (r < 0)
			fail_msg("lookup %s: %s", path, strerror(-r));
		ws_forget(ws, e.node, 1);
		node = e.node;
	}
	*last = path;
	return node;
}

static inline uint64_t tree_node(struct ws *ws, const char *path)
{
	const char *name;
	struct entry e;
	uint64_t dir = tree_parent(ws, path, &name);
	int r = ws_lookup(ws, dir, name, strlen(name), &e);
	if (r < 0)
		fail_msg("lookup %s: %s", path, strerror(-r));
	ws_forget(ws, e.node, 1);
	return e.node;
}

static inline void tree_mk(struct ws *ws, const char *path, uint32_t mode)
{
	const char *name;
	struct entry e;
	uint64_t dir = tree_parent(ws, path, &name);
	int r = ws_mknod(ws, dir, name, strlen(name), mode, 0, &tree_root_caller, &e);
	if (r < 0)
		fail_msg("mknod %s: %s", path, strerror(-r));
	ws_forget(ws, e.node, 1);
}

static inline void tree_write(struct ws *ws, const char *path, const void *data, size_t len,
			      uint64_t off)
{
	const char *name;
	struct entry e;
	uint64_t dir = tree_parent(ws, path, &name);
	if (ws_lookup(ws, dir, name, strlen(name), &e) == -ENOENT) {
		tree_mk(ws, path, S_IFREG | 0644);
		e.node = tree_node(ws, path);
	} else {
		ws_forget(ws, e.node, 1);
	}
	int r = ws_write(ws, e.node, data, len, off, false, &tree_root_caller);
	if (r < 0)
		fail_msg("write %s: %s", path, strerror(-r));
}

static inline void tree_put(struct ws *ws, const char *path, const char *text)
{
	tree_write(ws, path, text, strlen(text), 0);
}

static inline void tree_rm(struct ws *ws, const char *path)
{
	const char *name;
	uint64_t dir = tree_parent(ws, path, &name);
	int r = ws_unlink(ws, dir, name, strlen(name), &tree_root_caller);
	if (r == -EISDIR)
		r = ws_rmdir(ws, dir, name, strlen(name), &tree_root_caller);
	if (r < 0)
		fail_msg("remove %s: %s", path, strerror(-r));
}

static inline void tree_mv(struct ws *ws, const char *from, const char *to)
{
	const char *old, *new;
	uint64_t a = tree_parent(ws, from, &old), b = tree_parent(ws, to, &new);
	int r = ws_rename(ws, a, old, strlen(old), b, new, strlen(new), 0, &tree_root_caller);
	if (r < 0)
		fail_msg("rename %s: %s", from, strerror(-r));
}

static inline void tree_chmod(struct ws *ws, const char *path, uint32_t mode)
{
	struct attr in = { .mode = mode }, out;
	int r = ws_setattr(ws, tree_node(ws, path), WS_SET_MODE, &in, &tree_root_caller, &out);
	if (r < 0)
		fail_msg("chmod %s: %s", path, strerror(-r));
}

static inline void tree_truncate(struct ws *ws, const char *path, uint64_t size)
{
	struct attr in = { .size = size }, out;
	int r = ws_setattr(ws, tree_node(ws, path), WS_SET_SIZE, &in, &tree_root_caller, &out);
	if (r < 0)
		fail_msg("truncate %s: %s", path, strerror(-r));
}

static inline void tree_seal(struct ws *ws, struct stack *out)
{
	struct err err = { 0 };
	if (ws_seal(ws, out, &err) < 0)
		fail_msg("seal: %s", err.text);
}

static inline void tree_view(struct tree_root *t, const struct stack *s, struct view *out)
{
	struct err err = { 0 };
	if (view_open(out, &t->opt, s, &err) < 0)
		fail_msg("view_open: %s", err.text);
}

/* Saves; the caller frees. */
static inline void tree_save(struct tree_root *t, const struct stack *s, struct stack *out)
{
	struct err err = { 0 };
	struct store_session *ss;
	if (store_session_begin(work_store(t->work), &ss, &err) < 0 ||
	    save_stack(out, s, &t->opt, ss, NULL, NULL, &err) < 0 || store_sync(ss, &err) < 0)
		fail_msg("save: %s", err.text);
	store_session_end(ss);
}

static inline void tree_flatten(struct tree_root *t, const struct stack *s, struct stack *out)
{
	struct err err = { 0 };
	struct store_session *ss;
	if (store_session_begin(work_store(t->work), &ss, &err) < 0 ||
	    flatten_stack(out, s, &t->opt, ss, NULL, &err) < 0)
		fail_msg("flatten: %s", err.text);
	store_session_end(ss);
}

static inline int tree_diff_line(void *ctx, const struct diff_entry *e)
{
	buf_printf(ctx, "%c%s%s%s%s%s%s %s%s%s\n", e->kind, e->what & DIFF_CONTENT ? "c" : "",
		   e->what & DIFF_MODE ? "m" : "", e->what & DIFF_OWNER ? "o" : "",
		   e->what & DIFF_XATTR ? "x" : "", e->what & DIFF_TARGET ? "t" : "", "",
		   e->old_path ? e->old_path : "", e->old_path ? " -> " : "", e->path);
	return 0;
}

/* The difference as text, one line an entry; the caller frees. */
static inline char *tree_diff(struct tree_root *t, const struct stack *a, const struct stack *b)
{
	struct err err = { 0 };
	struct view va, vb;
	struct buf out = { 0 };
	tree_view(t, a, &va);
	tree_view(t, b, &vb);
	if (diff_views(&va, &vb, tree_diff_line, &out, &err) < 0)
		fail_msg("diff: %s", err.text);
	view_done(&va);
	view_done(&vb);
	buf_u8(&out, 0);
	assert_false(out.failed);
	return (char *)out.data;
}

#endif
