/* What the tests of a workspace's packs share: a mirror that system git made, images of a .git, and
 * git's judgement of them. */
#ifndef BOUGH_TESTS_UNIT_PACK_KIT_H
#define BOUGH_TESTS_UNIT_PACK_KIT_H

#include "gitops/checkout_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"

enum { REPO = 1, SEED = 77 };

static char root[64];
static struct err err;
static struct store *store;
static struct store_session *session;
static struct mirror *mirror;

#define ok(call)                                                                            \
	do {                                                                                \
		int got_ = (call);                                                          \
		if (got_ < 0)                                                               \
			fail_msg("%s:%d: %s: %s (%d)", __FILE__, __LINE__, #call, err.text, \
				 got_);                                                     \
	} while (0)

/* ---- git ---- */

/* Runs a script of the shell in ROOT; its status, and what it says goes to ROOT/said. `m` is git
 * in the mirror, `w` git in the work tree that was written out. */
static inline int __attribute__((format(printf, 1, 2))) try_sh(const char *fmt, ...)
{
	static const char frame[] =
		"cd %s && exec >said 2>&1 </dev/null\n"
		"export HOME=%s GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null LC_ALL=C\n"
		"export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org\n"
		"export GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org\n"
		"export GIT_AUTHOR_DATE='1600000000 +0000' GIT_COMMITTER_DATE='1600000000 +0000'\n"
		"m() { git -C repos/00000001 \"$@\"; }\n"
		"w() { git -c safe.directory='*' -C out \"$@\"; }\n"
		"set -e\n%s\n";
	char *script = NULL, *whole = NULL;
	va_list ap;
	va_start(ap, fmt);
	assert_true(vasprintf(&script, fmt, ap) >= 0);
	va_end(ap);
	assert_true(asprintf(&whole, frame, root, root, script) >= 0);
	int r = system(whole);
	free(script);
	free(whole);
	return r;
}

static inline char *said(void)
{
	static char text[4096];
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/said", root);
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = 0;
	return text;
}

#define sh(...)                                                               \
	do {                                                                  \
		if (try_sh(__VA_ARGS__) != 0)                                 \
			fail_msg("%s:%d: %s", __FILE__, __LINE__, said()); \
	} while (0)

/* The one line that the script prints. */
static inline struct oid oid_from(const char *script)
{
	struct oid o;
	sh("%s", script);
	char *line = said();
	line[strcspn(line, "\n")] = 0;
	if (oid_parse(&o, line) < 0)
		fail_msg("%s: %s", script, line);
	return o;
}

static inline int setup(void **state)
{
	(void)snprintf(root, sizeof(root), "/tmp/bough-packs.XXXXXX");
	assert_non_null(mkdtemp(root));
	ok(gitops_init(&err));
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/store", root);
	const struct store_options so = { .create = true };
	ok(store_open(&store, path, &so, &err));
	ok(store_session_begin(store, &session, &err));
	(void)snprintf(path, sizeof(path), "%s/images", root);
	assert_int_equal(mkdir(path, 0700), 0);
	return 0;
}

static inline int teardown(void **state)
{
	mirror_close(mirror);
	mirror = NULL;
	store_session_end(session);
	store_close(store);
	(void)io_remove_tree(AT_FDCWD, root, NULL);
	return 0;
}

/* ---- images ---- */

static uint64_t next_ino = 2;

static inline int reserve(void *ctx, uint64_t n, uint64_t *first, struct err *e)
{
	*first = next_ino;
	next_ino += n;
	return 0;
}

static inline struct checkout_options options(void)
{
	static char images[128];
	(void)snprintf(images, sizeof(images), "%s/images", root);
	mirror_close(mirror);
	mirror = NULL;
	ok(mirror_open(&mirror, root, REPO, &err));
	return (struct checkout_options){
		.mirror = mirror,
		.session = session,
		.store = store,
		.images = images,
		.seed = SEED,
		.reserve = reserve,
	};
}

/* An image that holds .git and nothing else. */
static inline struct digest build(const struct checkout_options *opt,
				  const struct checkout_spec *spec, struct pack_set *set)
{
	struct image_builder *b;
	struct co_inos inos = { .opt = opt };
	struct attr a = { .ino = 1, .mode = S_IFDIR | 0755, .nlink = 2 };
	struct digest name;
	struct dotgit_inos made;
	ok(pack_write(set, opt, spec, &err));
	ok(image_builder_new(&b, SEED, &err));
	ok(image_add_inode(b, &a));
	ok(dotgit_add(&made, b, &inos, 1, set, opt, spec, &err));
	ok(image_finish(b, opt->io, opt->images, &name, &err));
	image_builder_free(b);
	return name;
}

static inline void write_file(struct image *im, const struct attr *a, const char *path)
{
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, a->mode & 07777);
	assert_true(fd >= 0);
	struct piece p;
	for (uint64_t at = 0; at < a->size; at = p.off + p.len) {
		const struct blob *b;
		ok(image_piece_ceil(im, a->ino, at, &p));
		ok(store_get(store, &p.object, &b, &err));
		assert_int_equal(pwrite(fd, b->data + p.obj_off, p.len, (off_t)p.off), p.len);
		blob_put(b);
	}
	assert_int_equal(ftruncate(fd, (off_t)a->size), 0);
}

static inline void write_tree(struct image *im, uint64_t dir, const char *path)
{
	struct dirent_ref d;
	assert_int_equal(mkdir(path, 0755), 0);
	for (uint64_t at = 0; image_dirent_ceil(im, dir, at, &d) == 0; at = d.cookie + 1) {
		auto_free char *below = NULL;
		struct attr a;
		assert_true(asprintf(&below, "%s/%.*s", path, d.name_len, d.name) > 0);
		ok(image_inode(im, d.ino, &a));
		if (S_ISDIR(a.mode))
			write_tree(im, d.ino, below);
		else if (strcmp(below + strlen(root), "/out/.git/index") != 0)
			write_file(im, &a, below);
	}
}

/* ROOT/out becomes what the image holds; then the work tree is checked out by git. */
static inline void write_out(const struct digest *name)
{
	char path[128];
	struct image *im;
	(void)snprintf(path, sizeof(path), "%s/images", root);
	ok(image_open(&im, NULL, path, name, &err));
	sh("rm -rf out");
	(void)snprintf(path, sizeof(path), "%s/out", root);
	write_tree(im, 1, path);
	image_unref(im);
	sh("w read-tree -mu HEAD");
}

/* The objects of the raw packs are those, no more and no fewer; each pack stands alone, and git
 * would have made the same index. */
static inline void judge(const char *expected)
{
	sh("{ %s; } | sort -u >expected", expected);
	sh("for p in out/.git/objects/pack/*.pack; do\n"
	   "  cp $p judge.pack; git index-pack judge.pack >/dev/null\n"
	   "  cmp judge.idx ${p%%.pack}.idx; rm -f judge.*\n"
	   "done");
	sh("for i in out/.git/objects/pack/*.idx; do git show-index --object-format=sha1 <$i; "
	   "done |\n"
	   "  cut -d' ' -f2 | sort >found; uniq -d found | diff /dev/null -; diff expected found");
	sh("w fsck --strict --full --no-dangling 2>&1 | grep -v ^notice | diff /dev/null -");
	sh("w status --porcelain | diff /dev/null -");
}

#define LIST(what) "m rev-list --objects --no-object-names " what

#endif
