/* Mirrors from the files of a repository: whole ones, damaged and hostile streams, and what a kill
 * in the middle leaves. The streams are made by bough-pack's own code. */
#include "gitops/stage.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "tools/pack/gitfiles.h"

enum { FILES = 40 };

static char root[64], src[80];
static struct err err;
static struct buf whole; /* the stream of the repository */

static void git_ok(int r)
{
	if (r < 0)
		fail_msg("libgit2: %s", git_error_last() ? git_error_last()->message : "?");
}

static void ok(int r)
{
	if (r < 0)
		fail_msg("%d: %s", r, err.text);
}

/* A commit on the branch, with files that differ by `n`; into a pack of its own when asked. */
static struct oid commit_to(git_repository *repo, const char *branch, int n, bool packed)
{
	auto_git(git_treebuilder) tb = NULL;
	auto_git(git_tree) tree = NULL;
	auto_git(git_signature) who = NULL;
	auto_git(git_commit) up = NULL;
	git_packbuilder *pb = NULL;
	git_oid blob, tree_id, id, parent;
	git_ok(git_treebuilder_new(&tb, repo, NULL));
	for (int i = 0; i < FILES; i++) {
		char name[16], text[64];
		(void)snprintf(name, sizeof(name), "f%d", i);
		(void)snprintf(text, sizeof(text), "file %d of %d\n", i, i % 4 ? 0 : n);
		git_ok(git_blob_create_from_buffer(&blob, repo, text, strlen(text)));
		git_ok(git_treebuilder_insert(NULL, tb, name, &blob, GIT_FILEMODE_BLOB));
	}
	git_ok(git_treebuilder_write(&tree_id, tb));
	git_ok(git_tree_lookup(&tree, repo, &tree_id));
	git_ok(git_signature_new(&who, "A", "a@example.org", 1700000000 + n, 0));
	if (git_reference_name_to_id(&parent, repo, branch) >= 0)
		git_ok(git_commit_lookup(&up, repo, &parent));
	const git_commit *parents[] = { up };
	git_ok(git_commit_create(&id, repo, branch, who, who, NULL, "text", tree, up ? 1 : 0,
				 parents));
	if (packed) {
		git_ok(git_packbuilder_new(&pb, repo));
		git_ok(git_packbuilder_insert_commit(pb, &id));
		git_ok(git_packbuilder_write(pb, NULL, 0, NULL, NULL));
		git_packbuilder_free(pb);
		/* From now on they are in the pack alone. */
		char command[128];
		(void)snprintf(command, sizeof(command), "rm -rf %s/objects/??", src);
		assert_int_equal(system(command), 0);
	}
	return oid_of_git(&id);
}

static void read_all(int fd, struct buf *out)
{
	struct stat st;
	buf_reset(out);
	assert_int_equal(fstat(fd, &st), 0);
	uint8_t *room = buf_room(out, (size_t)st.st_size + 1);
	assert_non_null(room);
	assert_int_equal(pread(fd, room, (size_t)st.st_size, 0), st.st_size);
	out->len = (size_t)st.st_size;
}

static void pack_source(struct buf *out, const char *known)
{
	auto_fd fd = memfd_create("stream", MFD_CLOEXEC);
	ok(gitfiles_pack(src, fd, known, &err));
	read_all(fd, out);
}

static int setup(void **state)
{
	(void)snprintf(root, sizeof(root), "/tmp/bough-take.XXXXXX");
	assert_non_null(mkdtemp(root));
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/repos", root);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(src, sizeof(src), "%s/src.git", root);
	ok(gitops_init(&err));
	auto_git(git_repository) repo = NULL;
	git_ok(git_repository_init(&repo, src, 1));
	git_ok(git_repository_set_head(repo, "refs/heads/main"));
	(void)commit_to(repo, "refs/heads/main", 1, true);
	(void)commit_to(repo, "refs/heads/main", 2, false);
	(void)commit_to(repo, "refs/heads/a/b", 3, false);
	pack_source(&whole, NULL);
	return 0;
}

static int teardown(void **state)
{
	buf_done(&whole);
	return io_remove_tree(AT_FDCWD, root, &err);
}

struct reader {
	const uint8_t *p;
	size_t len, at;
	int fail; /* at the end: this instead of 0 */
};

static ssize_t read_from(void *ctx, void *buf, size_t n, struct err *e)
{
	struct reader *r = ctx;
	size_t left = r->len - r->at, part = n < left ? n : left;
	if (part > 4096)
		part = 4096;
	if (left == 0 && r->fail)
		return err_set(e, r->fail, "the reader failed");
	memcpy(buf, r->p + r->at, part);
	r->at += part;
	return (ssize_t)part;
}

static int take(uint32_t number, const struct buf *b, struct mirror_result *res)
{
	struct reader r = { .p = b->data, .len = b->len };
	err = (struct err){ 0 };
	return mirror_take(root, number, read_from, &r, NULL, res, &err);
}

/* How many things ROOT/repos holds. */
static int things(void)
{
	char path[128];
	int n = 0;
	(void)snprintf(path, sizeof(path), "%s/repos", root);
	auto_dir *d = opendir(path);
	const struct dirent *e;
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	return n;
}

static struct oid tip(uint32_t number, const char *ref)
{
	auto_mirror m = NULL;
	struct oid o = { 0 };
	ok(mirror_open(&m, root, number, &err));
	ok(mirror_resolve(m, ref, &o, NULL, &err));
	return o;
}

static struct oid source_tip(const char *name)
{
	auto_git(git_repository) repo = NULL;
	git_oid id;
	git_ok(git_repository_open_bare(&repo, src));
	git_ok(git_reference_name_to_id(&id, repo, name));
	return oid_of_git(&id);
}

static void same_tip(uint32_t number, const char *ref, const char *name)
{
	struct oid a = tip(number, ref), b = source_tip(name);
	assert_memory_equal(&a, &b, sizeof(a));
}

static void test_take(void **state)
{
	struct mirror_result res;
	ok(take(1, &whole, &res));
	assert_int_equal(res.refs_changed, 2);
	assert_true(res.bytes > 0 && res.objects > 0);
	same_tip(1, NULL, "refs/heads/main");
	same_tip(1, "a/b", "refs/heads/a/b");
	same_tip(1, "origin/a/b", "refs/heads/a/b");
	ok(take(1, &whole, &res));
	assert_int_equal(res.refs_changed, 0);
	assert_int_equal(things(), 1);
	/* What it has isn't sent again. */
	auto_buf known = { 0 }, rest = { 0 };
	ok(mirror_taken(root, 1, &known, &err));
	buf_u8(&known, 0);
	{
		auto_git(git_repository) repo = NULL;
		git_ok(git_repository_open_bare(&repo, src));
		(void)commit_to(repo, "refs/heads/main", 4, false);
	}
	pack_source(&rest, (const char *)known.data);
	assert_null(memmem(rest.data, rest.len, ".pack", 5));
	ok(take(1, &rest, &res));
	assert_int_equal(res.refs_changed, 1);
	same_tip(1, NULL, "refs/heads/main");
	ok(mirror_remove(root, 1, &err));
	assert_int_equal(things(), 0);
	ok(mirror_remove(root, 1, &err));
	/* Without the pack it isn't whole. */
	assert_int_equal(take(1, &rest, &res), -EBADMSG);
	assert_int_equal(things(), 0);
	pack_source(&whole, NULL);
}

/* A stream that is cut anywhere, or whose reader fails, leaves nothing. */
static void test_cut(void **state)
{
	struct mirror_result res;
	/* The end mark is two empty blocks, of which libarchive needs none. */
	size_t content = whole.len;
	while (content > 0 && whole.data[content - 1] == 0)
		content--;
	for (size_t n = 0; n < content; n += content / 23 + 1) {
		struct buf part = { .data = whole.data, .len = n };
		assert_true(take(2, &part, &res) < 0);
		assert_int_equal(things(), 0);
	}
	struct reader r = { .p = whole.data, .len = whole.len / 2, .fail = -ECONNRESET };
	assert_int_equal(mirror_take(root, 2, read_from, &r, NULL, &res, &err), -ECONNRESET);
	assert_non_null(strstr(err.text, "the reader failed"));
	assert_int_equal(things(), 0);
}

static int cancel(void *ctx, uint64_t done, uint64_t total, const char *what)
{
	return 1;
}

static void test_cancel(void **state)
{
	const struct mirror_progress p = { cancel, NULL };
	struct mirror_result res;
	struct reader r = { .p = whole.data, .len = whole.len };
	assert_int_equal(mirror_take(root, 2, read_from, &r, &p, &res, &err), -ECANCELED);
	assert_int_equal(things(), 0);
}

/* A flipped byte is found, or one that doesn't matter (a mode, a time, padding). */
static void test_flipped(void **state)
{
	struct mirror_result res;
	auto_buf copy = { 0 };
	buf_add(&copy, whole.data, whole.len);
	int found = 0;
	for (size_t i = 7; i < copy.len; i += copy.len / 37 + 1) {
		copy.data[i] ^= 0x5a;
		int r = take(3, &copy, &res);
		copy.data[i] ^= 0x5a;
		if (r >= 0) {
			same_tip(3, "main", "refs/heads/main");
			ok(mirror_remove(root, 3, &err));
		}
		found += r < 0;
		assert_int_equal(things(), 0);
	}
	assert_true(found > 0);
}

/* ---- streams made by hand ---- */

struct member {
	const char *name, *text;
	int type; /* 0: a file */
};

static void make_stream(struct buf *out, const struct member *v, size_t n)
{
	auto_fd fd = memfd_create("stream", MFD_CLOEXEC);
	struct archive *a = archive_write_new();
	assert_int_equal(archive_write_set_format_gnutar(a), ARCHIVE_OK);
	assert_int_equal(archive_write_open_fd(a, fd), ARCHIVE_OK);
	for (size_t i = 0; i < n; i++) {
		struct archive_entry *e = archive_entry_new();
		bool is_link = v[i].type == AE_IFLNK;
		archive_entry_set_pathname(e, v[i].name);
		archive_entry_set_filetype(e, v[i].type ? (unsigned)v[i].type : AE_IFREG);
		archive_entry_set_size(e, is_link ? 0 : (la_int64_t)strlen(v[i].text));
		if (is_link)
			archive_entry_set_symlink(e, v[i].text);
		assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
		if (!is_link)
			(void)archive_write_data(a, v[i].text, strlen(v[i].text));
		archive_entry_free(e);
	}
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	(void)archive_write_free(a);
	read_all(fd, out);
}

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEAD                                        \
	{                                           \
		"HEAD", "ref: refs/heads/main\n", 0 \
	}

static void test_hostile(void **state)
{
	static const struct {
		int r;
		struct member v[4];
	} cases[] = {
		{ -EBADMSG, { { "refs/heads/main", HEX_A "\n", 0 } } }, /* no HEAD */
		{ -EBADMSG, { HEAD, { "refs/heads/main", HEX_A "\n", 0 } } },
		{ -EBADMSG, { HEAD, { "refs/heads/main", "nonsense\n", 0 } } },
		{ -EBADMSG, { HEAD, { "packed-refs", "nonsense\n", 0 } } },
		{ -EBADMSG, { HEAD, { "packed-refs", HEX_A " refs/heads/../x\n", 0 } } },
		{ -ENOTSUP, { HEAD, { "shallow", HEX_A "\n", 0 } } },
		{ -ENOTSUP,
		  { HEAD, { "refs/heads/main", HEX_A "aaaaaaaaaaaaaaaaaaaaaaaa\n", 0 } } },
		{ -ENOTSUP, { HEAD, { "objects/pack/pack-" HEX_A ".promisor", "", 0 } } },
		{ -EBADMSG, { HEAD, { "objects/pack/pack-" HEX_A ".pack", "PACK", 0 } } },
		{ 0, { HEAD, { "objects/pack/pack-../../../x.pack", "PACK", 0 } } },
		{ -EBADMSG, { HEAD, { "objects/pack/pack-" HEX_A "a.idx", "x", 0 } } },
		{ -EBADMSG, { HEAD, { "refs/heads/a", HEX_A, 0 }, { "refs/heads/a", HEX_A, 0 } } },
		/* What isn't on the list is left alone: an empty repository comes of it. */
		{ 0,
		  { HEAD,
		    { "../../../escaped", "x", 0 },
		    { "hooks/post-checkout", "x", 0 },
		    { "config", "[core]\n\tsshCommand = touch /tmp/x\n", 0 } } },
		{ 0, { HEAD, { "objects/../../escaped", "x", 0 }, { "/etc/x", "x", 0 } } },
		{ 0,
		  { HEAD,
		    { "refs/heads/../../config", "x", 0 },
		    { "refs/heads/a.lock", "x", 0 } } },
		{ 0, { HEAD, { "refs/heads/main", "/etc/passwd", AE_IFLNK } } },
		{ 0,
		  { HEAD,
		    { "refs/heads/a", "ref: refs/heads/b", 0 },
		    { "refs/heads/b", "ref: refs/heads/a", 0 } } },
		{ 0, { HEAD, { "refs/heads/a", "ref: ../../x", 0 } } },
		{ 0, { { "HEAD", "ref: ../../../etc/passwd\n", 0 } } },
		{ 0, { HEAD, { "objects/info/alternates", "/etc\n", 0 } } },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_buf b = { 0 };
		struct mirror_result res;
		size_t n = 0;
		while (n < 4 && cases[i].v[n].name)
			n++;
		make_stream(&b, cases[i].v, n);
		int r = take(4, &b, &res);
		if (r != cases[i].r)
			fail_msg("case %zu: %d (%s)", i, r, err.text);
		if (r >= 0) {
			static const char *const absent[] = { "hooks", "objects/info/alternates",
							      "../escaped", "../../escaped" };
			for (size_t k = 0; k < sizeof(absent) / sizeof(absent[0]); k++) {
				char path[160];
				(void)snprintf(path, sizeof(path), "%s/repos/00000004/%s", root,
					       absent[k]);
				assert_int_equal(access(path, F_OK), -1);
			}
			ok(mirror_remove(root, 4, &err));
		}
		assert_int_equal(things(), 0);
	}
}

/* ---- kills ---- */

static void copy_tree(const char *from, const char *to)
{
	char command[400];
	(void)snprintf(command, sizeof(command), "cp -r %s %s", from, to);
	assert_int_equal(system(command), 0);
}

/* A stage that wasn't whole goes; one that was is finished, whatever of it had been done. */
static void test_recover(void **state)
{
	struct mirror_result res;
	char stage[136], mirror[128], mark[160], lock[160];
	ok(take(5, &whole, &res));
	struct oid before = tip(5, "main");
	(void)snprintf(mirror, sizeof(mirror), "%s/repos/00000005", root);
	(void)snprintf(stage, sizeof(stage), "%s.tmp", mirror);
	(void)snprintf(mark, sizeof(mark), "%s/bough-whole", stage);
	(void)snprintf(lock, sizeof(lock), "%s/packed-refs.lock", mirror);
	for (int with_mark = 0; with_mark < 2; with_mark++) {
		/* A stage with a newer commit: the source, with its branch as origin's. */
		auto_git(git_repository) repo = NULL;
		auto_git(git_reference) ref = NULL;
		git_ok(git_repository_open_bare(&repo, src));
		struct oid newer = commit_to(repo, "refs/heads/main", 20 + with_mark, with_mark);
		struct stage s = { 0 };
		struct err e = { 0 };
		auto_refs refs = { 0 };
		copy_tree(src, stage);
		(void)snprintf(s.path, sizeof(s.path), "%s", stage);
		ok(refs_add(&refs, REFS_ORIGIN "main", &newer));
		ok(stage_write_refs(&s, &refs, &e));
		auto_fd locked = open(lock, O_CREAT | O_WRONLY, 0600);
		if (with_mark) {
			auto_fd fd = open(mark, O_CREAT | O_WRONLY, 0600);
			assert_true(fd >= 0);
		}
		ok(mirror_recover(root, &err));
		assert_int_equal(access(stage, F_OK), -1);
		assert_int_equal(access(lock, F_OK), -1);
		struct oid now = tip(5, "main");
		assert_memory_equal(&now, with_mark ? &newer : &before, sizeof(now));
		assert_int_equal(things(), 1);
	}
	ok(mirror_remove(root, 5, &err));
	/* A stage of what never was is nothing, marked or not. */
	copy_tree(src, stage);
	auto_fd fd = open(mark, O_CREAT | O_WRONLY, 0600);
	ok(mirror_recover(root, &err));
	assert_int_equal(things(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_take),    cmocka_unit_test(test_cut),
		cmocka_unit_test(test_cancel),  cmocka_unit_test(test_flipped),
		cmocka_unit_test(test_hostile), cmocka_unit_test(test_recover),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
