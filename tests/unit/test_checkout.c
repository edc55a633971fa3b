/* A checkout as a whole, read by system git: .git with index and packs, what is remembered, what a
 * later build takes over. What a mount answers to git is tests/e2e/checkout.t's. */
#include "checkout_kit.h"
#include "fs/work/view.h"

/* Writes what a stack shows out, as `dir`. */
static void extract_view(const struct view *v, uint64_t ino, const char *dir)
{
	struct dirent_ref e;
	assert_int_equal(mkdir(dir, 0755), 0);
	for (uint64_t c = 0; view_dirent_ceil(v, ino, c, &e) == 0; c = e.cookie + 1) {
		char path[4096], target[4096];
		struct attr a;
		size_t len;
		(void)snprintf(path, sizeof(path), "%s/%.*s", dir, e.name_len, e.name);
		assert_int_equal(view_inode(v, e.ino, &a), 0);
		if (S_ISDIR(a.mode)) {
			extract_view(v, e.ino, path);
		} else if (S_ISLNK(a.mode)) {
			assert_int_equal(view_target(v, e.ino, target, sizeof(target) - 1, &len),
					 0);
			target[len] = '\0';
			assert_int_equal(symlink(target, path), 0);
		} else {
			auto_free char *data = malloc(a.size + 1);
			assert_int_equal(view_read(v, e.ino, data, a.size, 0, NULL), a.size);
			FILE *f = fopen(path, "w");
			assert_non_null(f);
			assert_int_equal(fwrite(data, 1, a.size, f), a.size);
			assert_int_equal(fclose(f), 0);
			assert_int_equal(chmod(path, a.mode & 07777), 0);
		}
	}
}

static void make_stack(struct kit *k, const struct checkout_result *co, struct stack *s)
{
	struct checkout_options opt = kit_options(k);
	if (checkout_stack(s, co, &opt, "/mnt/somewhere", &k->err) < 0)
		fail_msg("%s", k->err.text);
	assert_int_equal(s->nlayers, 1);
	assert_true(stack_is_saved(s));
}

/* The workspace as `out` in the kit's folder. */
static void extract(struct kit *k, const struct checkout_result *co)
{
	auto_stack s = { 0 };
	struct view v;
	char out[300];
	make_stack(k, co, &s);
	struct view_options vo = { .layer = { .root = k->s->path, .store = k->store },
				   .images = k->images };
	if (view_open(&v, &vo, &s, &k->err) < 0)
		fail_msg("%s", k->err.text);
	kit_sh(k, "rm -rf out");
	(void)snprintf(out, sizeof(out), "%s/out", k->s->path);
	extract_view(&v, 1, out);
	view_done(&v);
}

static void build(struct kit *k, const struct checkout_spec *spec, struct checkout_result *co)
{
	struct checkout_options opt = kit_options(k);
	if (checkout_build(co, &opt, spec, &k->err) < 0)
		fail_msg("%s", k->err.text);
}

static const char two_commits[] =
	"mkdir -p d/e x 'a b'; for i in $(seq 50); do echo $i >d/f$i; done; echo 1 >d/e/g; echo 2 "
	">x/y\n"
	"echo '*.o' >.gitignore; echo k >'a b/.gitignore'; echo z >a; ln -s a l; mkdir a-b; echo "
	">a-b/c\n"
	"head -c 1500000 /dev/urandom >large; git add -A; git commit -qm one; git tag v1\n"
	"echo more >>d/f1; git rm -q d/f2; echo n >new; git add -A; git commit -qm two";

/* As it is on a disk, where numbers and times are others; the content of the index, its checksum
 * and cached trees are git's to judge. No helper and no pager of ours runs here. */
static const char judge[] =
	"cd out; export GIT_OPTIONAL_LOCKS=0; git config core.fsmonitor false\n"
	"git fsck --strict 2>&1 | grep -v '^notice' >../fsck || true; test ! -s ../fsck\n"
	"git ls-files -s >../ours; git -C ../co ls-files -s >../theirs; diff ../ours ../theirs\n"
	"test $(git write-tree) = $(git rev-parse HEAD^{tree})\n"
	"test \"$(git log --format=%H)\" = \"$(git -C ../co log --format=%H)\"\n"
	"git diff-index --cached --quiet HEAD\n"
	"GIT_OPTIONAL_LOCKS=1 git update-index -q --really-refresh\n"
	"git status --porcelain >../status 2>&1; test ! -s ../status\n"
	"test \"$(git symbolic-ref HEAD)\" = refs/heads/main";

static void test_whole(void **state)
{
	struct kit *k = *state;
	struct checkout_result one, two, again;
	struct store_stats before, after;
	kit_repo(k, two_commits);
	struct checkout_options opt = kit_options(k);
	struct checkout_spec old = kit_spec(k, "v1");
	build(k, &old, &one);
	extract(k, &one);
	kit_sh(k, "git -C co checkout -q v1; cd out; git config core.fsmonitor false\n"
		  "git fsck --strict; git update-index -q --really-refresh\n"
		  "git status --porcelain >../status; test ! -s ../status\n"
		  "diff -r --exclude=.git ../co .; git -C ../co checkout -q main");

	/* The commit behind it: what they have in common is taken over. */
	struct checkout_spec spec = kit_spec(k, NULL);
	spec.branch = spec.upstream = "main";
	assert_int_equal(checkout_find(&two, &opt, &spec, &k->err), 0);
	assert_int_equal(store_stats(k->store, &before, NULL), 0);
	build(k, &spec, &two);
	assert_int_equal(store_stats(k->store, &after, NULL), 0);
	assert_true(after.bytes_put - before.bytes_put < 200000); /* the large one isn't in it */
	assert_int_equal(two.files, 58);
	extract(k, &two);
	kit_sh(k, judge);

	assert_int_equal(checkout_find(&again, &opt, &spec, &k->err), 1);
	assert_memory_equal(&again.image, &two.image, sizeof(two.image));
	assert_int_equal(again.index_head, two.index_head);
	spec.uid++;
	assert_int_equal(checkout_find(&again, &opt, &spec, &k->err), 0);
	spec.uid--;
	/* Another branch of upstream's, an ancestor: another checkout. */
	spec.tracked = &old.commit;
	assert_int_equal(checkout_find(&again, &opt, &spec, &k->err), 0);
	build(k, &spec, &two);
	extract(k, &two);
	kit_sh(k, judge);
	kit_sh(k, "cd out; test \"$(git rev-parse origin/main)\" = \"$(git rev-parse v1^0)\"");
	spec.tracked = NULL;
	spec.depth = 1;
	assert_int_equal(checkout_find(&again, &opt, &spec, &k->err), 0);
}

static void test_scope(void **state)
{
	struct kit *k = *state;
	struct checkout_result co;
	const char *scopes[] = { "d/e" };
	kit_repo(k, two_commits);
	struct checkout_spec spec = kit_spec(k, NULL);
	spec.branch = "main";
	spec.scopes = scopes;
	spec.nscopes = 1;
	build(k, &spec, &co);
	extract(k, &co);
	kit_sh(k,
	       "git -C co sparse-checkout set --cone d/e; diff -r --exclude=.git co out; cd out\n"
	       "git config core.fsmonitor false; git ls-files -t >../ours\n"
	       "git -C ../co ls-files -t >../theirs; diff ../ours ../theirs\n"
	       "git update-index -q --really-refresh; git status --porcelain >../status\n"
	       "test ! -s ../status; git fsck; test $(git write-tree) = $(git rev-parse "
	       "HEAD^{tree})");
}

/* A tree with an empty folder in it: no index can say it. */
static void test_odd_tree(void **state)
{
	struct kit *k = *state;
	struct checkout_result co;
	kit_repo(
		k,
		"mkdir -p a b; echo 1 >a/f; echo 2 >b/f; git add -A; git commit -qm one\n"
		"e=$(git mktree </dev/null); a=$(git rev-parse HEAD:a); b=$(git rev-parse HEAD:b)\n"
		"t=$(printf '040000 tree %s\\ta\\n040000 tree %s\\tb\\n040000 tree %s\\tempty\\n' "
		"$a $b $e | git mktree); git reset -q --hard $(git commit-tree $t -m odd)");
	struct checkout_spec spec = kit_spec(k, NULL);
	build(k, &spec, &co);
	extract(k, &co);
	kit_sh(k, "cd out; git config core.fsmonitor false; git fsck; git ls-files -s >../ours\n"
		  "test $(git write-tree) = $(git -C ../co write-tree)\n"
		  "test \"$(git write-tree --prefix=a/)\" = $(git rev-parse HEAD:a)");
}

/* A commit of nothing, and one of a submodule only. */
static void test_empty(void **state)
{
	static const char *const scripts[] = {
		"git commit -q --allow-empty -m one",
		"mkdir sub; git update-index --add --cacheinfo 160000,"
		"1234567890123456789012345678901234567890,sub; git commit -qm one",
	};
	struct kit *k = *state;
	struct checkout_result co;
	for (size_t i = 0; i < 2; i++) {
		kit_repo(k, scripts[i]);
		struct checkout_spec spec = kit_spec(k, NULL);
		spec.branch = "main";
		build(k, &spec, &co);
		assert_int_equal(co.submodules, i);
		extract(k, &co);
		kit_sh(k, judge);
		kit_sh(k, "rm -rf repos/00000001.checkouts");
	}
}

static int count(void *ctx, const struct digest *image)
{
	++*(int *)ctx;
	return 0;
}

static void test_records(void **state)
{
	struct kit *k = *state;
	struct checkout_result co;
	struct co_past past = { 0 };
	char repos[300], image[400], hex[DIGEST_HEX + 1];
	int n = 0;
	kit_repo(k, two_commits);
	struct checkout_options opt = kit_options(k);
	struct checkout_spec spec = kit_spec(k, NULL);
	build(k, &spec, &co);
	(void)snprintf(repos, sizeof(repos), "%s/repos", k->s->path);
	assert_int_equal(checkout_each(repos, 1000, count, &n, &k->err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(co_past_load(&past, &opt, &k->err), 0);
	assert_int_equal(past.n, 1);
	assert_int_equal(past.v[0].nlarge, 1);
	assert_int_equal(past.v[0].large[0].size, 1500000);
	assert_ptr_equal(co_past_large(&past, &past.v[0].large[0].oid), &past.v[0].large[0]);
	co_past_done(&past);
	/* What was not used for long goes; so does all of a repository that is gone. */
	assert_int_equal(checkout_each(repos, -1000, count, &n, &k->err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(checkout_find(&co, &opt, &spec, &k->err), 0);
	build(k, &spec, &co);
	digest_hex(hex, &co.image);
	(void)snprintf(image, sizeof(image), "%s/%s.img", k->images, hex);
	assert_int_equal(rename(image, "/dev/null/x") == 0, 0);
	assert_int_equal(unlink(image), 0);
	assert_int_equal(checkout_find(&co, &opt, &spec, &k->err), 0);
	build(k, &spec, &co);
	assert_int_equal(checkout_find(&co, &opt, &spec, &k->err), 1);
	kit_sh(k, "mv repos/00000001 repos/was");
	n = 0;
	assert_int_equal(checkout_each(repos, 1000, count, &n, &k->err), 0);
	assert_int_equal(n, 0);
	kit_sh(k, "test ! -e repos/00000001.checkouts");
}

/* A checkout whose notes told what is in an older one is as good as used. */
static void test_used_by_older(void **state)
{
	static const char history[] = "echo 1 >f; git add f; git commit -qm 1; git tag v1\n"
				      "for i in 2 3 4 5; do echo $i >f; git commit -qam $i; "
				      "git tag v$i; done";
	static const char *const old[] = { "v4", "v2" }; /* next to it; far */
	struct kit *k = *state;
	struct checkout_result co;
	kit_repo(k, history);
	struct checkout_spec spec = kit_spec(k, "v5");
	build(k, &spec, &co);
	for (size_t i = 0; i < 2; i++) {
		struct checkout_options opt = kit_options(k);
		opt.near = i ? 1 : 0;
		spec = kit_spec(k, old[i]);
		kit_sh(k, "touch -d '1 day ago' repos/00000001.checkouts/*");
		if (checkout_build(&co, &opt, &spec, &k->err) < 0)
			fail_msg("%s", k->err.text);
		kit_sh(k, "find repos/00000001.checkouts -type f -mmin -60 | wc -l >used");
		kit_sh(k, i ? "grep -x 2 used" : "grep -x 1 used");
	}
}

/* Any damage to a record is seen; a cut too. */
static void test_record_damage(void **state)
{
	struct co_record r = { .nlarge = 2 }, out;
	auto_buf b = { 0 };
	struct piece p[] = { { .off = 0, .len = 5 }, { .off = 9, .len = 1 } };
	struct co_large large[] = { { .size = 10, .pieces = p, .npieces = 2 }, { .size = 3 } };
	r.large = large;
	r.result.index_meta_len = 3;
	r.result.lfs_names = (struct checkout_names){ .n = 2, .len = 5, .text = "a\0bc" };
	r.result.submodule_names = (struct checkout_names){ .n = 1, .len = 3, .text = "de" };
	co_record_encode(&r, &b);
	assert_int_equal(co_record_decode(&out, b.data, b.len), 0);
	assert_int_equal(out.nlarge, 2);
	assert_memory_equal(&out.result.lfs_names, &r.result.lfs_names,
			    sizeof(r.result.lfs_names));
	assert_memory_equal(&out.result.submodule_names, &r.result.submodule_names,
			    sizeof(r.result.lfs_names));
	assert_int_equal(out.large[0].pieces[1].off, 9);
	co_record_done(&out);
	for (size_t i = 0; i < b.len; i++) {
		b.data[i] ^= 0x40;
		assert_int_equal(co_record_decode(&out, b.data, b.len), -EBADMSG);
		b.data[i] ^= 0x40;
		assert_int_equal(co_record_decode(&out, b.data, i), -EBADMSG);
	}
	static const struct checkout_names bad[] = {
		{ .n = 1, .len = 5, .text = "a\0bc" },   /* another number of them */
		{ .n = 2, .len = 4, .text = "a\0bc" },   /* the last one is open */
		{ .n = CHECKOUT_NAMES + 1, .len = CHECKOUT_NAMES + 1 },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		b.len = 0;
		r.result.lfs_names = bad[i];
		co_record_encode(&r, &b);
		assert_int_equal(co_record_decode(&out, b.data, b.len), -EBADMSG);
	}
	r.result.lfs_names = (struct checkout_names){ 0 };
	p[1].off = 4; /* overlaps */
	b.len = 0;
	co_record_encode(&r, &b);
	assert_int_equal(co_record_decode(&out, b.data, b.len), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_whole, kit_set_up, kit_tear_down),
		cmocka_unit_test_setup_teardown(test_scope, kit_set_up, kit_tear_down),
		cmocka_unit_test_setup_teardown(test_odd_tree, kit_set_up, kit_tear_down),
		cmocka_unit_test_setup_teardown(test_empty, kit_set_up, kit_tear_down),
		cmocka_unit_test_setup_teardown(test_records, kit_set_up, kit_tear_down),
		cmocka_unit_test_setup_teardown(test_used_by_older, kit_set_up, kit_tear_down),
		cmocka_unit_test(test_record_damage),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
