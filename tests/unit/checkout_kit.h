/* What the tests of checkouts share: a root with a mirror that system git made, and the judge's own
 * checkout of the same commit. */
#ifndef BOUGH_TESTS_UNIT_CHECKOUT_KIT_H
#define BOUGH_TESTS_UNIT_CHECKOUT_KIT_H

#include <sys/stat.h>
#include "fs/base/buf.h"
#include "fs/work/ino.h"
#include "gitops/checkout_impl.h"
#include "store_tools.h"

struct kit {
	struct scratch *s;
	struct store *store;
	struct store_session *session;
	struct mirror *mirror;
	char images[256];
	struct err err;
};

/* `script` runs by sh -e in the kit's folder, with nothing of this host's git settings. */
static inline void kit_sh(struct kit *k, const char *script)
{
	static const char before[] =
		"export HOME=$PWD/home GIT_CONFIG_NOSYSTEM=1 LC_ALL=C.UTF-8\n"
		"unset XDG_CONFIG_HOME GIT_DIR\n"
		"export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org\n"
		"export GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org\n"
		"export GIT_AUTHOR_DATE='1600000000 +0000' GIT_COMMITTER_DATE='1600000000 +0000'\n"
		"export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=init.defaultBranch "
		"GIT_CONFIG_VALUE_0=main\n"
		"export GIT_CONFIG_KEY_1=safe.directory GIT_CONFIG_VALUE_1='*'\n"
		"root=$PWD; mkdir -p home\n";
	char path[300];
	(void)snprintf(path, sizeof(path), "%s/script", k->s->path);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	(void)fprintf(f, "%s%s", before, script);
	assert_int_equal(fclose(f), 0);
	auto_buf line = { 0 };
	buf_printf(&line, "cd %s && sh -e script >log 2>&1 || { cat log >&2; false; }", k->s->path);
	buf_u8(&line, 0);
	if (system((char *)line.data) != 0)
		fail_msg("the script failed: %s", script);
}

/* `script` makes the repository `src`, which becomes mirror 1. */
static inline void kit_repo(struct kit *k, const char *script)
{
	auto_buf all = { 0 };
	buf_printf(
		&all,
		"rm -rf src co repos; git init -q src; cd src\n%s\n"
		"cd $root; mkdir -p repos; git clone -q --bare --no-hardlinks src repos/00000001\n"
		"git clone -q src co\n",
		script);
	buf_u8(&all, 0);
	kit_sh(k, (char *)all.data);
	mirror_close(k->mirror);
	k->mirror = NULL;
	if (mirror_open(&k->mirror, k->s->path, 1, &k->err) < 0)
		fail_msg("%s", k->err.text);
}

static inline int kit_set_up(void **state)
{
	struct kit *k = calloc(1, sizeof(*k));
	char repos[300];
	struct store_options so = { .create = true, .repos = repos };
	if (!k || scratch_set_up((void **)&k->s) < 0)
		return -1;
	(void)snprintf(k->images, sizeof(k->images), "%s/images", k->s->path);
	(void)snprintf(repos, sizeof(repos), "%s/repos", k->s->path);
	if (mkdir(k->images, 0700) < 0 || store_open(&k->store, k->s->store, &so, NULL) < 0 ||
	    store_session_begin(k->store, &k->session, NULL) < 0)
		return -1;
	*state = k;
	return 0;
}

static inline int kit_tear_down(void **state)
{
	struct kit *k = *state;
	mirror_close(k->mirror);
	store_session_end(k->session);
	store_close(k->store);
	int r = scratch_tear_down((void **)&k->s);
	free(k);
	return r;
}

static inline int kit_reserve(void *ctx, uint64_t n, uint64_t *first, struct err *err)
{
	struct kit *k = ctx;
	return ino_reserve(NULL, k->s->path, n, first, err);
}

static inline struct checkout_options kit_options(struct kit *k)
{
	return (struct checkout_options){ .mirror = k->mirror,
					  .session = k->session,
					  .store = k->store,
					  .images = k->images,
					  .seed = 7,
					  .reserve = kit_reserve,
					  .reserve_ctx = k };
}

static inline struct checkout_spec kit_spec(struct kit *k, const char *ref)
{
	struct checkout_spec spec = { .time_s = 1600000000, .uid = 1234, .gid = 5678 };
	if (mirror_resolve(k->mirror, ref, &spec.commit, NULL, &k->err) < 0)
		fail_msg("%s", k->err.text);
	return spec;
}

/* A piece's bytes, wherever they are: objects of the mirror by libgit2, which is not the reader
 * that serves them. */
static inline void kit_piece(struct kit *k, const struct piece *p, struct buf *out)
{
	struct oid oid;
	const struct blob *blob = NULL;
	git_odb_object *o = NULL;
	if (digest_is_git(&p->object, NULL, &oid)) {
		git_oid g = oid_to_git(&oid);
		assert_int_equal(git_odb_read(&o, mirror_odb(k->mirror), &g), 0);
		assert_true((uint64_t)p->obj_off + p->len <= git_odb_object_size(o));
		buf_add(out, (const uint8_t *)git_odb_object_data(o) + p->obj_off, p->len);
		git_odb_object_free(o);
		return;
	}
	if (store_get(k->store, &p->object, &blob, &k->err) < 0)
		fail_msg("%s", k->err.text);
	assert_true((uint64_t)p->obj_off + p->len <= blob->len);
	buf_add(out, blob->data + p->obj_off, p->len);
	blob_put(blob);
}

/* The content of a file of an image. */
static inline void kit_content(struct kit *k, struct image *im, const struct attr *a,
			       struct buf *out)
{
	struct piece p;
	uint64_t at = 0;
	while (at < a->size) {
		if (image_piece_ceil(im, a->ino, at, &p) != 0)
			p = (struct piece){ .off = a->size };
		for (; at < p.off; at++)
			buf_u8(out, 0);
		kit_piece(k, &p, out);
		at += p.len;
	}
	assert_int_equal(out->len, a->size);
}

/* Writes an image's folder out, as `dir` in the kit's folder. */
static inline void kit_extract(struct kit *k, struct image *im, uint64_t ino, const char *dir)
{
	struct dirent_ref e;
	assert_int_equal(mkdir(dir, 0755), 0);
	for (uint64_t c = 0; image_dirent_ceil(im, ino, c, &e) == 0; c = e.cookie + 1) {
		char path[4096];
		struct attr a;
		(void)snprintf(path, sizeof(path), "%s/%.*s", dir, e.name_len, e.name);
		assert_int_equal(image_inode(im, e.ino, &a), 0);
		assert_int_equal(a.uid, 1234);
		assert_int_equal(a.mtime.tv_sec, 1600000000);
		if (S_ISDIR(a.mode)) {
			kit_extract(k, im, e.ino, path);
		} else if (S_ISLNK(a.mode)) {
			const char *target;
			char text[4096];
			size_t len;
			assert_int_equal(image_target(im, e.ino, &target, &len), 0);
			(void)snprintf(text, sizeof(text), "%.*s", (int)len, target);
			assert_int_equal(symlink(text, path), 0);
		} else {
			auto_buf data = { 0 };
			kit_content(k, im, &a, &data);
			FILE *f = fopen(path, "w");
			assert_non_null(f);
			if (data.len)
				assert_int_equal(fwrite(data.data, 1, data.len, f), data.len);
			assert_int_equal(fclose(f), 0);
			assert_int_equal(chmod(path, a.mode & 07777), 0);
		}
	}
}

#endif
