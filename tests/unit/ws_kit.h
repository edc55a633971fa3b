/* For tests of workspaces: short names for what they do all the time. */
#ifndef BOUGH_TESTS_UNIT_WS_KIT_H
#define BOUGH_TESTS_UNIT_WS_KIT_H

#include <dirent.h>
#include <sys/stat.h>

#include "fs/work/ws_impl.h"
#include "tree.h"

/* The result must be that; says where and what else it was. */
#define expect(want, call)                                                                      \
	do {                                                                                    \
		int64_t got_ = (call);                                                          \
		if (got_ != (int64_t)(want))                                                    \
			fail_msg("%s:%d: %s is %lld (%s), not %lld", __FILE__, __LINE__, #call, \
				 (long long)got_, got_ < 0 ? strerror((int)-got_) : "no error", \
				 (long long)(want));                                            \
	} while (0)

/* As expect(0, …) of calls with an err. */
#define succeed(err, call)                                                                    \
	do {                                                                                  \
		int got_ = (call);                                                            \
		if (got_ < 0)                                                                 \
			fail_msg("%s:%d: %s: %s (%d)", __FILE__, __LINE__, #call, (err).text, \
				 got_);                                                       \
	} while (0)

static const struct caller root_caller;

struct kit {
	struct tree_root root;
	struct ws *ws;
};

static inline int kit_setup(void **state)
{
	struct kit *k = calloc(1, sizeof(*k));
	assert_non_null(k);
	tree_root_open(&k->root);
	k->ws = tree_create(&k->root, "w", NULL);
	*state = k;
	return 0;
}

static inline int kit_teardown(void **state)
{
	struct kit *k = *state;
	ws_close(k->ws);
	tree_root_close(&k->root);
	free(k);
	return 0;
}

static inline struct attr kit_attr(struct ws *ws, const char *path)
{
	struct attr a;
	uint64_t node = *path ? tree_node(ws, path) : 1;
	expect(0, ws_getattr(ws, node, &a));
	return a;
}

/* mknod that keeps the kernel's reference. */
static inline struct entry kit_make(struct ws *ws, uint64_t dir, const char *name, uint32_t mode)
{
	struct entry e;
	expect(0, ws_mknod(ws, dir, name, strlen(name), mode, 0, &root_caller, &e));
	return e;
}

/* How many inodes the tree has. */
static inline uint64_t kit_count_files(struct ws *ws)
{
	auto_inos s = { 0 };
	uint64_t n = 0;
	if (ws->view.image)
		expect(0, inos_add_image(&s, ws->view.image));
	expect(0, inos_add_layers(&s, &ws->view, ws->view.nlayers, false));
	inos_sort(&s);
	for (size_t i = 0; i < s.n; i++) {
		struct attr a;
		n += view_inode(&ws->view, s.v[i], &a) == 0 && a.nlink > 0;
	}
	return n;
}

/* The usage that is kept is the one that is found by counting. */
static inline void kit_check_usage(struct ws *ws)
{
	int64_t bytes, inodes;
	uint32_t own = own_layers(ws);
	struct ws_usage u;
	expect(0, quota_sum(&ws->view, own, &ws->quota, &bytes, &inodes));
	assert_int_equal(bytes, ws->quota.bytes);
	assert_int_equal(inodes, ws->quota.inodes);
	assert_int_equal(ws->quota.reserved, 0);
	ws_get_usage(ws, &u, NULL);
	assert_int_equal(u.file_count, kit_count_files(ws));
	if (ws->file.flattened)
		return;
	expect(0, quota_count(&ws->view, own, &ws->quota, &bytes, &inodes, NULL, NULL));
	assert_int_equal(bytes, ws->quota.bytes);
	assert_int_equal(inodes, ws->quota.inodes);
}

static inline struct ws *kit_fork(struct ws *ws, const char *id)
{
	struct err err = { 0 };
	struct ws *child = NULL;
	succeed(err, ws_fork(ws, &id, 1, NULL, &child, NULL, &err));
	return child;
}

static inline void kit_reopen(struct kit *k)
{
	struct err err = { 0 };
	char id[WS_ID_MAX + 1];
	(void)snprintf(id, sizeof(id), "%s", ws_id(k->ws));
	ws_close(k->ws);
	k->ws = NULL;
	succeed(err, ws_open(&k->ws, k->root.work, id, &err));
}

/* How many layers lie on disk. */
static inline unsigned kit_layers(struct kit *k)
{
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/layers", k->root.dir);
	DIR *d = opendir(path);
	unsigned n = 0;
	struct dirent *de;
	assert_non_null(d);
	while ((de = readdir(d)))
		n += de->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

/* The whole content, and its size. */
static inline char *kit_read(struct ws *ws, const char *path, size_t *size)
{
	struct attr a = kit_attr(ws, path);
	char *b = malloc(a.size + 1);
	assert_non_null(b);
	expect(a.size, ws_read(ws, node_of(&a), b, a.size, 0));
	b[a.size] = '\0';
	if (size)
		*size = a.size;
	return b;
}

static inline void kit_expect_text(struct ws *ws, const char *path, const char *want)
{
	char *got = kit_read(ws, path, NULL);
	assert_string_equal(got, want);
	free(got);
}

#endif
