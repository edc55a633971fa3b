/* Mirrors as they lie on disk: what a ref means, refs of ours moved by compare and swap. The
 * repositories are made by libgit2, as others would make them. */
#include "gitops/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fs/base/io.h"

static char root[64];
static struct err err;
static struct oid first, second, ours, merge, tag_of_second;

static void git_ok(int r)
{
	if (r < 0)
		fail_msg("libgit2: %s", git_error_last() ? git_error_last()->message : "?");
}

static struct oid make_merge(git_repository *repo, const struct oid *parent,
			     const struct oid *parent2, const char *text)
{
	auto_git(git_treebuilder) tb = NULL;
	auto_git(git_tree) tree = NULL;
	auto_git(git_signature) who = NULL;
	auto_git(git_commit) up = NULL;
	auto_git(git_commit) up2 = NULL;
	git_oid blob, tree_id, id;
	git_ok(git_blob_create_from_buffer(&blob, repo, text, strlen(text)));
	git_ok(git_treebuilder_new(&tb, repo, NULL));
	git_ok(git_treebuilder_insert(NULL, tb, "file", &blob, GIT_FILEMODE_BLOB));
	git_ok(git_treebuilder_write(&tree_id, tb));
	git_ok(git_tree_lookup(&tree, repo, &tree_id));
	git_ok(git_signature_new(&who, "A", "a@example.org", 1700000000, 60));
	if (parent) {
		git_oid p = oid_to_git(parent);
		git_ok(git_commit_lookup(&up, repo, &p));
	}
	if (parent2) {
		git_oid p = oid_to_git(parent2);
		git_ok(git_commit_lookup(&up2, repo, &p));
	}
	const git_commit *parents[] = { up, up2 };
	git_ok(git_commit_create(&id, repo, NULL, who, who, NULL, text, tree,
				 (size_t)!!parent + (size_t)!!parent2, parents));
	return oid_of_git(&id);
}

static struct oid make_commit(git_repository *repo, const struct oid *parent, const char *text)
{
	return make_merge(repo, parent, NULL, text);
}

static void make_ref(git_repository *repo, const char *name, const struct oid *o)
{
	auto_git(git_reference) ref = NULL;
	git_oid id = oid_to_git(o);
	git_ok(git_reference_create(&ref, repo, name, &id, 0, NULL));
}

static int setup(void **state)
{
	(void)snprintf(root, sizeof(root), "/tmp/bough-mirror.XXXXXX");
	assert_non_null(mkdtemp(root));
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/repos", root);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/repos/00000003", root);
	assert_int_equal(gitops_init(&err), 0);
	auto_git(git_repository) repo = NULL;
	git_ok(git_repository_init(&repo, path, 1));
	first = make_commit(repo, NULL, "one");
	second = make_commit(repo, &first, "two");
	ours = make_commit(repo, &first, "ours");
	merge = make_merge(repo, &second, &ours, "both");
	make_ref(repo, "refs/heads/main", &ours); /* apart from the other side's */
	make_ref(repo, "refs/remotes/origin/main", &second);
	make_ref(repo, "refs/heads/merged", &merge);
	make_ref(repo, "refs/heads/behind", &first);
	make_ref(repo, "refs/remotes/origin/behind", &second);
	make_ref(repo, "refs/remotes/origin/local/x", &second);
	make_ref(repo, "refs/heads/local/x", &first);
	make_ref(repo, "refs/heads/topic/deep", &first);
	make_ref(repo, "refs/heads/deadbeef", &first); /* looks like an id */
	make_ref(repo, "refs/tags/v1", &first);
	make_ref(repo, "refs/remotes/origin/other", &first);
	git_ok(git_repository_set_head(repo, "refs/heads/main"));
	auto_git(git_object) target = NULL;
	auto_git(git_signature) who = NULL;
	git_oid id = oid_to_git(&second), tag;
	git_ok(git_object_lookup(&target, repo, &id, GIT_OBJECT_COMMIT));
	git_ok(git_signature_new(&who, "A", "a@example.org", 1700000000, 60));
	git_ok(git_tag_create(&tag, repo, "v2", target, who, "the second", 0));
	tag_of_second = oid_of_git(&tag);
	git_oid blob;
	git_ok(git_blob_create_from_buffer(&blob, repo, "a tagged blob", 13));
	struct oid b = oid_of_git(&blob);
	make_ref(repo, "refs/tags/blob", &b);
	return 0;
}

static int teardown(void **state)
{
	return io_remove_tree(AT_FDCWD, root, &err);
}

static struct mirror *opened(void)
{
	struct mirror *m = NULL;
	if (mirror_open(&m, root, 3, &err) < 0)
		fail_msg("%s", err.text);
	return m;
}

static void test_open(void **state)
{
	auto_mirror m = opened();
	assert_int_equal(mirror_number(m), 3);
	assert_non_null(strstr(mirror_path(m), "/repos/00000003"));
	git_oid id = oid_to_git(&first);
	assert_int_equal(git_odb_exists(mirror_odb(m), &id), 1);
	struct mirror *none = NULL;
	assert_int_equal(mirror_open(&none, root, 4, &err), -ENOENT);
	assert_null(none);
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/repos/00000005", root);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(mirror_open(&none, root, 5, &err), -EBADMSG);
	assert_int_equal(err.code, -EBADMSG);
}

static void test_resolve(void **state)
{
	char hex1[OID_HEX + 1], hex2[OID_HEX + 1], tag[OID_HEX + 1], cut[12 + 1];
	oid_hex(hex1, &first);
	oid_hex(hex2, &second);
	oid_hex(tag, &tag_of_second);
	memcpy(cut, hex2, 12);
	cut[12] = 0;
	const struct {
		const char *ref;
		int r;
		const struct oid *commit;
		const char *name, *text;
	} cases[] = {
		{ NULL, 0, &second, "refs/remotes/origin/main", NULL },
		{ "HEAD", 0, &second, "refs/remotes/origin/main", NULL },
		{ "main", 0, &second, "refs/remotes/origin/main", NULL },
		{ "refs/heads/main", 0, &ours, "refs/heads/main", NULL },
		{ "local/main", 0, &ours, "refs/heads/main", NULL },
		{ "local/x", 0, &second, "refs/remotes/origin/local/x", NULL },
		{ "local/local/x", 0, &first, "refs/heads/local/x", NULL },
		{ "origin/main", 0, &second, "refs/remotes/origin/main", NULL },
		{ "refs/remotes/origin/main", 0, &second, "refs/remotes/origin/main", NULL },
		{ "merged", 0, &merge, "refs/heads/merged", NULL },
		{ "merged~1", 0, &second, NULL, NULL },
		{ "merged~0", 0, &merge, NULL, NULL },
		{ "merged^", 0, &second, NULL, NULL },
		{ "merged^0", 0, &merge, NULL, NULL },
		{ "merged^2", 0, &ours, NULL, NULL },
		{ "merged^2~1", 0, &first, NULL, NULL },
		{ "merged^^", 0, &first, NULL, NULL },
		{ "merged~~", 0, &first, NULL, NULL },
		{ "HEAD~", 0, &first, NULL, NULL },
		{ "HEAD~1", 0, &first, NULL, NULL },
		{ "v2~1", 0, &first, NULL, NULL },
		{ "origin/other", 0, &first, "refs/remotes/origin/other", NULL },
		{ "topic/deep", 0, &first, "refs/heads/topic/deep", NULL },
		{ "deadbeef", 0, &first, "refs/heads/deadbeef", NULL },
		{ "v1", 0, &first, "refs/tags/v1", NULL },
		{ "v2", 0, &second, "refs/tags/v2", NULL },
		{ "refs/tags/v2", 0, &second, "refs/tags/v2", NULL },
		{ hex1, 0, &first, NULL, NULL },
		{ cut, 0, &second, NULL, NULL },
		{ tag, 0, &second, NULL, NULL },
		{ "", -EINVAL, NULL, NULL, "empty" },
		{ "blob", -EINVAL, NULL, NULL, "is a blob, not a commit" },
		{ "mian", -ENOENT, NULL, NULL, "near it is main" },
		{ "deep", -ENOENT, NULL, NULL, "near it is topic/deep" },
		{ "nothing-like-it", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "0000000", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "abc", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "../../../etc/passwd", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "refs/heads/../../HEAD", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "-x", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "nothing-like-it~1", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "local/nothing-like", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "main~9", -ENOENT, NULL, NULL, "the history of main doesn't reach to main~9" },
		{ "main^2", -ENOENT, NULL, NULL, "doesn't reach to main^2" },
		{ "main~999999", -ENOENT, NULL, NULL, "doesn't reach" },
		{ "main~1000000", -EINVAL, NULL, NULL, "only ~N and ^N" },
		{ "main^{tree}", -EINVAL, NULL, NULL, "only ~N and ^N" },
		{ "main~-1", -EINVAL, NULL, NULL, "only ~N and ^N" },
		{ "main^{/x}", -EINVAL, NULL, NULL, "only ~N and ^N" },
		{ "~1", -EINVAL, NULL, NULL, "begins with no name" },
		{ "main:file", -ENOENT, NULL, NULL, "no branch, tag or commit" },
		{ "main@{1}", -ENOENT, NULL, NULL, "no branch, tag or commit" },
	};
	auto_mirror m = opened();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct oid commit;
		char *name = NULL;
		int r = mirror_resolve(m, cases[i].ref, &commit, &name, &err);
		if (r != cases[i].r)
			fail_msg("%s: %d (%s)", cases[i].ref, r, err.text);
		if (r < 0 && !strstr(err.text, cases[i].text))
			fail_msg("%s: %s", cases[i].ref, err.text);
		if (r >= 0) {
			assert_memory_equal(&commit, cases[i].commit, sizeof(commit));
			if (cases[i].name)
				assert_string_equal(name, cases[i].name);
			else
				assert_null(name);
		}
		free(name);
	}
}

/* What isn't a commit is said to be none before it is read: a blob has any size. */
static void test_large_blob(void **state)
{
	enum { CHUNK = 1 << 20, CHUNKS = 200, MAX_KIB = 100 << 10 };
	static const char zeros[CHUNK];
	auto_mirror m = opened();
	git_writestream *out;
	git_oid id;
	struct rusage before, after;
	struct oid commit, blob;
	git_ok(git_blob_create_from_stream(&out, mirror_repo(m), NULL));
	for (int i = 0; i < CHUNKS; i++)
		git_ok(out->write(out, zeros, CHUNK));
	git_ok(git_blob_create_from_stream_commit(&id, out));
	blob = oid_of_git(&id);
	make_ref(mirror_repo(m), "refs/tags/large", &blob);
	assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
	assert_int_equal(mirror_resolve(m, "large", &commit, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "is a blob, not a commit"));
	assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
	assert_true(after.ru_maxrss - before.ru_maxrss < MAX_KIB);
}

static const struct mirror_branch *branch_of(const struct mirror_branches *b, const char *name)
{
	for (size_t i = 0; i < b->n; i++)
		if (strcmp(b->v[i].name, name) == 0)
			return &b->v[i];
	fail_msg("no %s", name);
	return NULL;
}

static void test_branches(void **state)
{
	auto_mirror m = opened();
	auto_mirror_branches b = { 0 };
	assert_int_equal(mirror_branches(&b, m, &err), 0);
	assert_int_equal(b.n, 7);
	assert_int_equal(b.different, 3);
	assert_string_equal(b.v[0].name, "behind"); /* different ones first */
	assert_string_equal(b.v[3].name, "deadbeef");
	const struct mirror_branch *x = branch_of(&b, "main");
	assert_true(x->has_local && x->has_upstream && x->ahead == 1 && x->behind == 1);
	assert_memory_equal(&x->local, &ours, sizeof(ours));
	assert_memory_equal(&x->upstream, &second, sizeof(second));
	x = branch_of(&b, "behind");
	assert_true(x->ahead == 0 && x->behind == 1);
	x = branch_of(&b, "merged");
	assert_true(x->has_local && !x->has_upstream && x->ahead == 0 && x->behind == 0);
	x = branch_of(&b, "other");
	assert_true(!x->has_local && x->has_upstream);
}

static int reset(struct mirror_reset *out, struct mirror *m, const char *branch, bool force,
		 struct err *e)
{
	int r = mirror_reset_plan(out, m, branch, force, e);
	return r < 0 ? r : mirror_reset_branch(m, branch, out, e);
}

static void test_reset(void **state)
{
	auto_mirror m = opened();
	struct mirror_reset res;
	struct oid at;
	assert_int_equal(reset(&res, m, "none", true, &err), -ENOENT);
	assert_int_equal(reset(&res, m, "a..b", true, &err), -EINVAL);
	assert_int_equal(reset(&res, m, "behind", false, &err), 0);
	assert_true(res.moved && res.lost == 0);
	assert_int_equal(reset(&res, m, "behind", false, &err), 0);
	assert_false(res.moved);
	assert_int_equal(reset(&res, m, "other", false, &err), 0);
	assert_true(res.moved);
	assert_int_equal(reset(&res, m, "main", false, &err), -ESTALE);
	assert_non_null(strstr(err.text, "has 1 commit that upstream's lacks: --force"));
	assert_int_equal(mirror_resolve(m, "local/main", &at, NULL, &err), 0);
	assert_memory_equal(&at, &ours, sizeof(at));
	assert_int_equal(reset(&res, m, "main", true, &err), 0);
	assert_true(res.moved && res.lost == 1 && !res.removed);
	assert_memory_equal(&res.was, &ours, sizeof(at));
	assert_int_equal(mirror_resolve(m, "local/main", &at, NULL, &err), 0);
	assert_memory_equal(&at, &second, sizeof(at));
	char keep[128] = "refs/bough/keep/";
	oid_hex(keep + strlen(keep), &ours);
	assert_int_equal(mirror_resolve(m, keep, &at, NULL, &err), 0);
	assert_int_equal(reset(&res, m, "merged", false, &err), -ESTALE);
	assert_non_null(strstr(err.text, "only here"));
	assert_int_equal(reset(&res, m, "merged", true, &err), 0);
	assert_true(res.moved && res.removed);
	assert_int_equal(mirror_resolve(m, "merged", &at, NULL, &err), -ENOENT);
}

static void test_keep(void **state)
{
	auto_mirror m = opened();
	assert_int_equal(mirror_keep(m, &first, &err), 0);
	assert_int_equal(mirror_keep(m, &first, &err), 0);
	char name[128], hex[OID_HEX + 1];
	oid_hex(hex, &first);
	(void)snprintf(name, sizeof(name), "refs/bough/keep/%s", hex);
	struct oid commit;
	assert_int_equal(mirror_resolve(m, name, &commit, NULL, &err), 0);
	assert_memory_equal(&commit, &first, sizeof(commit));
	struct oid none = { { 1 } };
	assert_int_equal(mirror_keep(m, &none, &err), -ENOENT);
}

static void test_move(void **state)
{
	auto_mirror m = opened();
	struct oid none = { { 1 } }, commit;
	assert_int_equal(mirror_move_branch(m, "new/one", NULL, &first, "made", &err), 0);
	assert_int_equal(mirror_move_branch(m, "new/one", NULL, &second, "made", &err), -ESTALE);
	assert_int_equal(mirror_move_branch(m, "new/one", &second, &first, "x", &err), -ESTALE);
	assert_non_null(strstr(err.text, "has moved to"));
	assert_int_equal(mirror_move_branch(m, "new/one", &first, &second, "x", &err), 0);
	assert_int_equal(mirror_resolve(m, "new/one", &commit, NULL, &err), 0);
	assert_memory_equal(&commit, &second, sizeof(commit));
	assert_int_equal(mirror_move_branch(m, "gone", &first, &second, "x", &err), -ESTALE);
	assert_int_equal(mirror_move_branch(m, "new/one", &second, &none, "x", &err), -ENOENT);
	static const char *const bad[] = { "", "-x", "a..b", "a b", "a.lock", "/a", "a/", "a\n" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(mirror_move_branch(m, bad[i], NULL, &first, "x", &err), -EINVAL);
}

/* Of many that move a branch from the same commit, one wins. */
enum { RACERS = 8 };
static void *race(void *arg)
{
	struct mirror *m = NULL;
	struct err e;
	long r = mirror_open(&m, root, 3, &e);
	if (r >= 0)
		r = mirror_move_branch(m, "raced", &first, &second, "race", &e);
	mirror_close(m);
	return (void *)r;
}

static void test_race(void **state)
{
	auto_mirror m = opened();
	assert_int_equal(mirror_move_branch(m, "raced", NULL, &first, "made", &err), 0);
	pthread_t threads[RACERS];
	for (size_t i = 0; i < RACERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, race, NULL), 0);
	int won = 0;
	for (size_t i = 0; i < RACERS; i++) {
		void *r = NULL;
		assert_int_equal(pthread_join(threads[i], &r), 0);
		assert_true((long)r == 0 || (long)r == -ESTALE);
		won += (long)r == 0;
	}
	assert_int_equal(won, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),     cmocka_unit_test(test_resolve),
		cmocka_unit_test(test_branches), cmocka_unit_test(test_reset),
		cmocka_unit_test(test_keep),     cmocka_unit_test(test_move),
		cmocka_unit_test(test_race),     cmocka_unit_test(test_large_blob),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
