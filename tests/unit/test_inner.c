/* What is looked at of a workspace's own .git, new objects in a mirror when the disk fails, and
 * names that don't leave this host. */
#include <time.h>

#include "fs/base/io_fault.h"
#include "gitops/inner.h"
#include "gitops/pushnames.h"
#include "gitops/treediff.h"
#include "tests/unit/twin.h"

static const char oid_text[] = "0123456789abcdef0123456789abcdef01234567";

static int setup(void **state)
{
	struct twin *t = calloc(1, sizeof(*t));
	assert_non_null(t);
	twin_open(t);
	twin_mkdir(t, "d");
	twin_put(t, "d/f", "f\n");
	twin_put(t, "g", "g\n");
	twin_base(t);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	twin_close(*state);
	free(*state);
	return 0;
}

static void test_head_text(void **state)
{
	static const struct {
		const char *text;
		int want;
		const char *ref;
	} rows[] = {
		{ "0123456789abcdef0123456789abcdef01234567\n", INNER_OID, NULL },
		{ "0123456789abcdef0123456789abcdef01234567", INNER_OID, NULL },
		{ "0123456789abcdef0123456789abcdef01234567 \r\n", INNER_OID, NULL },
		{ "0123456789abcdef0123456789abcdef0123456", -EBADMSG, NULL },
		{ "0123456789abcdef0123456789abcdef0123456X", -EBADMSG, NULL },
		{ "ref: refs/heads/a/b\n", INNER_REF, "refs/heads/a/b" },
		{ "ref:refs/heads/x", INNER_REF, "refs/heads/x" },
		{ "ref: refs/tags/x\n", -EBADMSG, NULL },
		{ "ref: refs/heads/../../x\n", -EBADMSG, NULL },
		{ "ref: refs/heads/.x\n", -EBADMSG, NULL },
		{ "ref: refs/heads/x.lock\n", -EBADMSG, NULL },
		{ "ref: refs/heads/\n", -EBADMSG, NULL },
		{ "ref: /etc/passwd\n", -EBADMSG, NULL },
		{ "ref:", -EBADMSG, NULL },
		{ "", -EBADMSG, NULL },
		{ "\n\n", -EBADMSG, NULL },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oid oid;
		char ref[REF_NAME_SIZE];
		int r = inner_parse_head(rows[i].text, strlen(rows[i].text), &oid, ref);
		if (r != rows[i].want || (rows[i].ref && strcmp(ref, rows[i].ref) != 0))
			fail_msg("\"%s\": %d", rows[i].text, r);
	}
}

static void test_packed_line(void **state)
{
	static const struct {
		const char *line;
		bool fits;
	} rows[] = {
		{ "0123456789abcdef0123456789abcdef01234567 refs/heads/a", true },
		{ "0123456789abcdef0123456789abcdef01234567 refs/heads/a\r", true },
		{ "0123456789abcdef0123456789abcdef01234567 refs/heads/ab", false },
		{ "0123456789abcdef0123456789abcdef01234567 refs/heads/", false },
		{ "^123456789abcdef0123456789abcdef01234567 refs/heads/a", false },
		{ "# pack-refs with: peeled", false },
		{ "", false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct oid oid;
		assert_int_equal(inner_packed_line(rows[i].line, strlen(rows[i].line),
						   "refs/heads/a", &oid),
				 rows[i].fits);
	}
}

/* What inner_head says of the workspace as it is. */
static int head(struct twin *t, char **branch)
{
	auto_stack now = { 0 };
	struct view v;
	struct err err = { 0 };
	struct oid oid, want;
	const char *why = NULL;
	tree_seal(t->ws, &now);
	tree_view(&t->root, &now, &v);
	int r = inner_head(&v, &oid, branch, &why, &err);
	view_done(&v);
	twin_oid(&want, oid_text);
	if (r > 0)
		assert_memory_equal(&oid, &want, sizeof(oid));
	else
		assert_non_null(why);
	return r;
}

static void test_head(void **state)
{
	struct twin *t = *state;
	char text[128], *branch = NULL;
	assert_int_equal(head(t, &branch), 0);
	tree_mk(t->ws, ".git", S_IFDIR | 0755);
	assert_int_equal(head(t, &branch), 0);
	(void)snprintf(text, sizeof(text), "%s\n", oid_text);
	tree_put(t->ws, ".git/HEAD", text);
	assert_int_equal(head(t, &branch), 1);
	assert_null(branch);
	tree_truncate(t->ws, ".git/HEAD", 0);
	tree_put(t->ws, ".git/HEAD", "ref: refs/heads/a/b\n");
	assert_int_equal(head(t, &branch), 0);
	/* Among many in packed-refs, over the border of what is read at once. */
	struct buf list = { 0 };
	buf_printf(&list, "# pack-refs with: peeled fully-peeled sorted \n");
	for (int i = 0; i < 9000; i++)
		buf_printf(&list, "%040d refs/heads/other-%d\n^%040d\n", i, i, i);
	buf_printf(&list, "%s refs/heads/a/b\n", oid_text);
	tree_write(t->ws, ".git/packed-refs", list.data, list.len, 0);
	buf_done(&list);
	assert_int_equal(head(t, &branch), 1);
	assert_string_equal(branch, "a/b");
	free(branch);
	tree_mk(t->ws, ".git/refs", S_IFDIR | 0755);
	tree_mk(t->ws, ".git/refs/heads", S_IFDIR | 0755);
	tree_mk(t->ws, ".git/refs/heads/a", S_IFDIR | 0755);
	tree_put(t->ws, ".git/refs/heads/a/b", "garbage\n");
	assert_int_equal(head(t, &branch), 0); /* a loose one decides */
	tree_truncate(t->ws, ".git/refs/heads/a/b", 0);
	tree_put(t->ws, ".git/refs/heads/a/b", text);
	assert_int_equal(head(t, &branch), 1);
	free(branch);
	tree_truncate(t->ws, ".git/HEAD", 1 << 20);
	assert_int_equal(head(t, &branch), 0);
}

/* ---- packs */

struct zeros {
	uint64_t fail_at;
};

static int read_zeros(void *ctx, void *buf, size_t n, uint64_t off, struct err *err)
{
	struct zeros *z = ctx;
	if (z->fail_at && off + n > z->fail_at)
		return err_set(err, -EIO, "no more");
	memset(buf, 0, n);
	return 0;
}

static int put_all(struct twin *t, const struct io *io, bool broken_too, struct oid ids[3],
		   struct oid *name)
{
	struct packout *p = NULL;
	struct err err = { 0 };
	struct zeros z = { 0 }, broken = { .fail_at = 100000 };
	struct oid no;
	int r = packout_new(&p, t->mirror, io, &err);
	if (r >= 0)
		r = packout_put(p, GIT_BLOB, "f\n", 2, &ids[0], &err); /* it is there already */
	if (r >= 0)
		r = packout_put(p, GIT_BLOB, "new\n", 4, &ids[1], &err);
	if (r >= 0 && broken_too && packout_stream(p, 500000, read_zeros, &broken, &no, &err) >= 0)
		r = -EINVAL; /* what broke off leaves nothing, and the pack goes on */
	if (r >= 0)
		r = packout_stream(p, 700000, read_zeros, &z, &ids[2], &err);
	if (r >= 0)
		r = packout_put(p, GIT_BLOB, "new\n", 4, &no, &err);
	if (r >= 0)
		r = packout_finish(p, name, &err);
	packout_free(p);
	return r;
}

static void sound(struct twin *t)
{
	twin_do(t, "cd ../repos/00000001 && git fsck --strict --no-dangling 2>&1 &&"
		   " test -z \"$(ls objects/pack/tmp_* objects/pack/bough_* 2>/dev/null)\"");
}

/* The n-th call of the disk fails, for every n: nothing half-made is seen. */
static void test_pack_faults(void **state)
{
	struct twin *t = *state;
	struct oid ids[3], name;
	bool failed = true;
	for (uint64_t n = 1; failed; n++) {
		struct io_fault *f = io_fault_new(NULL);
		struct io_fault_plan plan = { .ops = IO_OPS_CHANGE | IO_OP_PREAD, .nth = n };
		assert_non_null(f);
		io_fault_plan(f, &plan);
		int r = put_all(t, io_fault_io(f), false, ids, &name);
		failed = io_fault_hits(f) > 0;
		io_fault_free(f);
		assert_int_equal(r < 0, failed);
	}
	sound(t);
}

static void test_pack(void **state)
{
	struct twin *t = *state;
	struct oid ids[3], name;
	char hex[OID_HEX + 1];
	assert_int_equal(put_all(t, NULL, true, ids, &name), 0);
	sound(t);
	oid_hex(hex, &ids[2]);
	auto_free char *size = twin_git(t, "git --git-dir=../repos/00000001 cat-file -s %s", hex);
	assert_string_equal(size, "700000");
	oid_hex(hex, &name);
	auto_free char *count =
		twin_git(t,
			 "git --git-dir=../repos/00000001 verify-pack -v"
			 " ../repos/00000001/objects/pack/pack-%s.idx | grep -c blob",
			 hex);
	assert_string_equal(count, "2");
}

/* ---- two trees */

static int add_line(void *ctx, const char *path, uint32_t old_mode, uint32_t mode)
{
	buf_printf(ctx, "%06o %06o %s\n", old_mode, mode, path);
	return 0;
}

static void test_treediff(void **state)
{
	struct twin *t = *state;
	struct err err = { 0 };
	struct buf lines = { 0 };
	auto_free char *two =
		twin_git(t, "rm -r d && echo d >d && mkdir g2 && git mv g g2/g && chmod +x g2/g &&"
			    " mkdir -p a/b && echo c >a/b/c && git add -A && git commit -q -m 2 &&"
			    " git push -q ../repos/00000001 HEAD:two && git rev-parse HEAD");
	struct oid base = t->base, other;
	twin_oid(&other, two);
	auto_git(git_tree) a = NULL;
	auto_git(git_tree) b = NULL;
	auto_git(git_commit) ca = NULL;
	auto_git(git_commit) cb = NULL;
	git_oid ia = oid_to_git(&base), ib = oid_to_git(&other);
	assert_int_equal(git_commit_lookup(&ca, mirror_repo(t->mirror), &ia), 0);
	assert_int_equal(git_commit_lookup(&cb, mirror_repo(t->mirror), &ib), 0);
	assert_int_equal(git_commit_tree(&a, ca), 0);
	assert_int_equal(git_commit_tree(&b, cb), 0);
	assert_int_equal(treediff(mirror_repo(t->mirror), a, b, add_line, &lines, &err), 0);
	buf_u8(&lines, 0);
	auto_free char *path = twin_path(t, "../mine");
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs((char *)lines.data, f) >= 0);
	assert_int_equal(fclose(f), 0);
	buf_done(&lines);
	auto_free char *diff = twin_git(
		t, "git diff-tree -r --no-renames HEAD~1 HEAD |"
		   " sed 's/^:\\([0-9]*\\) \\([0-9]*\\) [^\\t]*\\t/\\1 \\2 /' | sort >../git-says;"
		   " sort ../mine | diff - ../git-says || true");
	assert_string_equal(diff, "");
}

static void test_push_names(void **state)
{
	struct twin *t = *state;
	struct err err = { 0 };
	static const struct {
		const char *make; /* shell */
		int want;
	} rows[] = {
		{ "echo x >fine", 0 },
		{ "echo x >aux.c", -EINVAL },
		{ "mkdir CON && echo x >CON/x", -EINVAL },
		{ "echo x >G", -EINVAL },
		{ "mkdir D && echo x >D/x", -EINVAL },
		{ "echo x >d/F", -EINVAL },
		{ "echo x >'a.'", -EINVAL },
		{ "git rm -q g && echo x >G", 0 },
		{ "mkdir -p n/a n/b && echo x >n/a/x && echo x >n/b/x", 0 },
		{ "mkdir -p n/a n/b && echo x >n/a/x && echo x >n/b/x && echo x >n/b/X",
		  -EINVAL },
		{ "mkdir -p n/a n/A && echo x >n/a/x && echo x >n/A/y", -EINVAL },
		{ "mkdir -p n/nul/b && echo x >n/nul/b/x", -EINVAL },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		auto_free char *hex = twin_git(
			t,
			"git checkout -q --detach main && %s && git add -A &&"
			" git commit -q -m x &&"
			" git push -q ../repos/00000001 HEAD:refs/heads/n%zu &&"
			" git rev-parse HEAD",
			rows[i].make, i);
		struct oid commit;
		twin_oid(&commit, hex);
		int r = pushnames_check(t->mirror, &t->base, &commit, &err);
		if (r != rows[i].want)
			fail_msg("%s: %d %s", rows[i].make, r, err.text);
	}
}

/* All names of a folder are held against all others, which may be many. */
static void test_many_push_names(void **state)
{
	enum { NAMES = 60000, SECONDS_MAX = 10 };
	struct twin *t = *state;
	struct err err = { 0 };
	struct oid commit;
	struct timespec before, after;
	auto_free char *hex = twin_git(
		t,
		"b=$(git hash-object -w d/f) && { git ls-tree -r HEAD &&"
		" seq -f 'n/f%%06.0f' %d | sed \"s/^/100644 blob $b\t/\"; } |"
		" GIT_INDEX_FILE=many git update-index --index-info &&"
		" t=$(GIT_INDEX_FILE=many git write-tree) &&"
		" c=$(git commit-tree -p HEAD -m many $t) &&"
		" git push -q ../repos/00000001 $c:refs/heads/many && echo $c",
		NAMES);
	twin_oid(&commit, hex);
	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before), 0);
	if (pushnames_check(t->mirror, &t->base, &commit, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after), 0);
	assert_true(after.tv_sec - before.tv_sec < SECONDS_MAX);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head_text),
		cmocka_unit_test(test_packed_line),
		T(test_head),
		T(test_pack_faults),
		T(test_pack),
		T(test_treediff),
		T(test_push_names),
		T(test_many_push_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
