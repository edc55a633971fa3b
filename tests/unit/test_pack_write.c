/* .git of a workspace as it is written into an image, judged by the system's git: packs and their
 * indexes, refs, config; and that nothing is in it that the commit's history doesn't hold. */
#include "oom.h"
#include "pack_kit.h"

/* A history of branches and merges, with names that must not get out. */
static const char make_mirror[] =
	"rm -rf src repos out && mkdir repos && git init -q -b main src && cd src\n"
	"put() { mkdir -p $(dirname $1); seq $2 $(($2 + 400)) >$1; git add $1; }\n"
	"put README 1; put lib/a/one 10; put lib/b/two 20; put doc/x 30\n"
	"ln -s README link; printf '#!/bin/sh\\n' >run; chmod +x run; git add .\n"
	"git commit -qm first; git tag v1; git tag -am 'the first' v1a\n"
	"for i in 1 2 3 4 5 6 7 8; do\n"
	"  put lib/a/one $((10 + i)); put lib/b/n$i 40$i; put doc/x 3$i; git commit -qm c$i\n"
	"done\n"
	"git tag -am two v2a; git tag -am 'a tag of a tag' v2b v2a\n"
	"git checkout -qb side v1; put lib/b/side 9; git commit -qm side\n"
	"put deep/er/and/deeper/f 1; git commit -qm deeper\n"
	"git checkout -q main; git merge -q --no-ff -m merge side\n"
	"git mv lib/b deep/moved; git commit -qm moved; put lib/b/two 77; git commit -qm again\n"
	"git checkout -qb secret; put lib/a/SECRET 666; git commit -qm secret\n"
	"git tag -am 'not to be seen' hidden; git tag tree main^{tree}\n"
	"git checkout -q main; put later 5; git commit -qm later; git tag -am later latertag\n"
	"cd ..; git clone -q --mirror --no-local src repos/00000001\n"
	"m config gc.auto 0; mv repos base\n";
static const char fresh[] = "rm -rf repos out; cp -a base repos";

static int setup_history(void **state)
{
	int r = setup(state);
	sh("%s", make_mirror);
	return r;
}

/* ---- tests ---- */

static const char *const repacked[] = {
	"true",                                              /* as it was cloned */
	"m repack -qadf --depth=50 --window=50",             /* other deltas */
	"m -c repack.useDeltaBaseOffset=false repack -qadf", /* bases by id */
	"m repack -qadf --depth=0",                          /* no deltas */
	/* Loose. */
	"mv repos/00000001/objects/pack/*.pack . && rm -f repos/00000001/objects/pack/*; "
	"for p in pack-*.pack; do m unpack-objects -q <$p; done; rm -f pack-*.pack",
	/* Half of it in another pack, some of it in both. */
	"m repack -qd\n"
	"m rev-list --objects v1a side | m pack-objects -q objects/pack/pack >/dev/null\n"
	"m rev-list --objects --all --not v1 | m pack-objects -q objects/pack/pack >/dev/null\n",
	/* An index that a git which was killed has left without its pack. */
	"cd repos/00000001/objects/pack\n"
	"cp *.idx pack-0123456789012345678901234567890123456789.idx\n",
};

static void every_way_that_a_mirror_is_packed(void **state)
{
	sh("%s", fresh);
	const struct oid tip = oid_from("m rev-parse main^");
	for (size_t i = 0; i < sizeof(repacked) / sizeof(*repacked); i++) {
		struct pack_set set = { 0 };
		sh("%s\n%s", fresh, repacked[i]);
		const struct checkout_options opt = options();
		const struct checkout_spec spec = { .commit = tip, .branch = "topic", .uid = 5,
						    .gid = 6, .time_s = 1600000000 };
		const struct digest image = build(&opt, &spec, &set);
		write_out(&image);
		judge(LIST("main^") "; m rev-parse v1a v2a v2b");
		assert_int_equal(set.npacks, 2);
		assert_int_equal(set.ntags, 4);
		pack_set_done(&set);
		sh("test \"$(w symbolic-ref HEAD)\" = refs/heads/topic\n"
		   "w log --oneline --all >/dev/null\n"
		   "w tag | xargs echo | grep -x 'v1 v1a v2a v2b'\n"
		   "test $(w rev-parse v2b^{commit}) = $(m rev-parse v2b^{commit})");
		sh("! grep -r SECRET out; ! w cat-file -e $(m rev-parse main)");
	}
}

static void a_history_of_limited_depth(void **state)
{
	static const unsigned depths[] = { 1, 2, 3, 5, 100 };
	sh("%s", fresh);
	for (size_t i = 0; i < sizeof(depths) / sizeof(*depths); i++) {
		struct pack_set set;
		const struct checkout_options opt = options();
		const struct checkout_spec spec = { .commit = oid_from("m rev-parse main"),
						    .depth = depths[i] };
		const struct digest image = build(&opt, &spec, &set);
		write_out(&image);
		pack_set_done(&set);
		sh("rm -rf other; git clone -q --bare --no-local --depth %u --no-tags -b main "
		   "file://$PWD/repos/00000001 other; sort other/shallow >a 2>/dev/null || true\n"
		   "sort out/.git/shallow >b 2>/dev/null || true; touch a b; diff a b",
		   depths[i]);
		judge("git -C other rev-list --objects --no-object-names HEAD; "
		      "for t in v1a v2a v2b latertag; do "
		      "if git -C other cat-file -e $(m rev-parse $t^{commit}) 2>/dev/null; "
		      "then m rev-parse $t; fi; done");
	}
}

/* In scope: files of the top and of lib, all of lib/b and deep/er. */
static void a_scope_has_all_trees_and_its_blobs(void **state)
{
	static const char *const scopes[] = { "deep/er", "lib/b" };
	for (size_t i = 0; i < sizeof(repacked) / sizeof(*repacked); i += 2) {
		struct pack_set set;
		sh("%s\n%s", fresh, repacked[i]);
		const struct checkout_options opt = options();
		const struct checkout_spec spec = { .commit = oid_from("m rev-parse main"),
						    .branch = "main", .scopes = scopes,
						    .nscopes = 2 };
		const struct digest image = build(&opt, &spec, &set);
		write_out(&image);
		pack_set_done(&set);
		sh("cp out/.git/info/sparse-checkout mine; w sparse-checkout set deep/er lib/b\n"
		   "diff mine out/.git/info/sparse-checkout");
		/* Every blob that some commit has at a path in scope. */
		judge(LIST("--filter=blob:none main") "; m rev-parse v1a v2a v2b latertag; "
		      "for c in $(m rev-list main); do m ls-tree -r $c; done | "
		      "awk '$2 == \"blob\" && ($4 ~ /^(lib\\/b\\/|deep\\/er\\/)/ || "
		      "$4 !~ /\\// || $4 ~ /^(lib|deep)\\/[^\\/]*$/) { print $3 }'");
		sh("! w cat-file -p main:doc/x; w cat-file -p main:doc/x 2>&1 | "
		   "grep 'outside of the scope'\n"
		   "ls out | xargs echo | grep -w lib; test ! -e out/doc");
	}
}

static void a_known_ancestor_lends_its_packs(void **state)
{
	struct checkout_known known[3] = { 0 };
	struct pack_set one, two, three;
	sh("%s", fresh);
	struct checkout_options opt = options();
	struct checkout_spec spec = { .commit = oid_from("m rev-parse v2a^{commit}"),
				      .branch = "b" };
	known[0].commit = spec.commit;
	known[0].image = build(&opt, &spec, &one);
	known[2].commit = spec.commit = oid_from("m rev-parse secret");
	known[2].image = build(&opt, &spec, &three);
	pack_set_done(&three);
	opt.known = known;
	opt.nknown = 3;
	spec.commit = oid_from("m rev-parse main^^");
	known[1].commit = spec.commit;
	known[1].image = build(&opt, &spec, &two);
	assert_int_equal(two.npacks, 3); /* the old one, the difference, tags */
	assert_memory_equal(two.packs[0].name, one.packs[0].name, OID_BYTES);
	assert_true(two.packs[1].objects < one.packs[0].objects);
	write_out(&known[1].image);
	judge(LIST("main^^") "; m rev-parse v1a v2a v2b");

	spec.commit = oid_from("m rev-parse main");
	struct digest image = build(&opt, &spec, &three);
	assert_int_equal(three.npacks, 4);
	write_out(&image);
	judge(LIST("main") "; m rev-parse v1a v2a v2b latertag");
	pack_set_done(&three);

	/* The same commit again: nothing is written but tags. No ancestor: it lends none. */
	spec.commit = known[1].commit;
	image = build(&opt, &spec, &three);
	assert_int_equal(three.npacks, 3);
	pack_set_done(&three);
	spec.commit = oid_from("m rev-parse side");
	image = build(&opt, &spec, &three);
	write_out(&image);
	judge(LIST("side") "; m rev-parse v1a");
	pack_set_done(&three);

	/* Nor does one with another depth or scope. */
	static const char *const scopes[] = { "lib" };
	spec.commit = oid_from("m rev-parse main");
	spec.depth = 2;
	image = build(&opt, &spec, &three);
	assert_int_equal(three.npacks, 2);
	write_out(&image);
	pack_set_done(&three);
	spec.depth = 0;
	spec.scopes = scopes;
	spec.nscopes = 1;
	image = build(&opt, &spec, &three);
	assert_int_equal(three.npacks, 2);
	pack_set_done(&three);
	pack_set_done(&one);
	pack_set_done(&two);
}

/* What was outside of the scope and is moved into it comes along, though its tree is known. */
static void a_known_scope_that_gets_more(void **state)
{
	static const char *const scopes[] = { "lib" };
	struct checkout_known known = { 0 };
	struct pack_set set;
	sh("%s\ncd src; git mv doc lib/doc; git commit -qm 'doc is in scope'; git push -q "
	   "../repos/00000001 main",
	   fresh);
	struct checkout_options opt = options();
	struct checkout_spec spec = { .commit = oid_from("m rev-parse main^"), .branch = "b",
				      .scopes = scopes, .nscopes = 1 };
	known.commit = spec.commit;
	known.image = build(&opt, &spec, &set);
	pack_set_done(&set);
	opt.known = &known;
	opt.nknown = 1;
	spec.commit = oid_from("m rev-parse main");
	const struct digest image = build(&opt, &spec, &set);
	assert_int_equal(set.npacks, 3);
	pack_set_done(&set);
	write_out(&image);
	sh("test -s out/lib/doc/x; w fsck --strict --full\n"
	   "w status --porcelain | diff /dev/null -");
}

/* What people do in a work tree, in a whole one and in one with a scope. */
/* As programs see it that use libgit2, which takes what is out of scope for deleted (1.5.1 doesn't
 * look at the bit in the index). */
static void libgit2_sees_nothing_changed(bool scope)
{
	auto_git(git_repository) repo = NULL;
	git_status_list *list = NULL;
	const git_status_options opt = { .version = GIT_STATUS_OPTIONS_VERSION,
					 .show = GIT_STATUS_SHOW_INDEX_AND_WORKDIR,
					 .flags = GIT_STATUS_OPT_INCLUDE_UNTRACKED };
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/out", root);
	int r = git_repository_open(&repo, path);
	if (r == 0)
		r = git_status_list_new(&list, repo, &opt);
	if (r < 0)
		fail_msg("libgit2: %s", git_error_last()->message);
	for (size_t i = 0; i < git_status_list_entrycount(list); i++) {
		const git_status_entry *e = git_status_byindex(list, i);
		assert_true(scope && e->status == GIT_STATUS_WT_DELETED);
		assert_null(strstr(e->index_to_workdir->old_file.path, "lib"));
	}
	git_status_list_free(list);
}

static void git_works_in_it(void **state)
{
	static const char *const scopes[] = { "lib" };
	static const char url[] = "https://me:sesame@example.org/r.git";
	sh("%s", fresh);
	for (size_t n = 0; n < 2; n++) {
		struct pack_set set;
		const struct checkout_options opt = options();
		const struct checkout_spec spec = { .commit = oid_from("m rev-parse main"),
						    .branch = "topic", .upstream = "main",
						    .scopes = scopes, .nscopes = n,
						    .origin_url = url };
		const struct digest image = build(&opt, &spec, &set);
		write_out(&image);
		pack_set_done(&set);
		libgit2_sees_nothing_changed(n > 0);
		sh("! grep -r sesame out/.git; w remote get-url origin | "
		   "grep -x https://example.org/r.git\n"
		   "test $(w rev-parse @{u}) = $(w rev-parse origin/HEAD)");
		sh("echo x >>out/lib/a/one; w commit -qam 'a change'; echo y >>out/lib/a/one\n"
		   "w stash -q; w stash pop -q; w checkout -qf; w checkout -qb other HEAD~3\n"
		   "echo z >out/lib/new\n"
		   "w add lib/new; w commit -qm new; w merge -q -m merged topic\n"
		   "w checkout -q topic; echo t >out/top; w add top; w commit -qm top\n"
		   "w rebase -q other; w gc -q; w fsck --strict --full\n"
		   "w log --all --oneline >/dev/null; w status --porcelain | diff /dev/null -");
		sh("! w cat-file -e $(m rev-parse secret)");
	}
}

static void a_detached_head(void **state)
{
	struct pack_set set;
	sh("%s", fresh);
	const struct checkout_options opt = options();
	const struct checkout_spec spec = { .commit = oid_from("m rev-parse side") };
	const struct digest image = build(&opt, &spec, &set);
	pack_set_done(&set);
	write_out(&image);
	sh("! w symbolic-ref -q HEAD; test $(w rev-parse HEAD) = $(m rev-parse side)\n"
	   "w for-each-ref | grep -c . | grep -x 2");
}

static void what_is_damaged_or_missing_is_named(void **state)
{
	struct pack_set set;
	sh("%s", fresh);
	struct checkout_options opt = options();
	struct checkout_spec spec = { .commit = oid_from("m rev-parse main") };
	spec.commit.b[3] ^= 1;
	assert_int_equal(pack_write(&set, &opt, &spec, &err), -ENOENT);
	spec.commit.b[3] ^= 1;
	sh("mv repos/00000001/objects/pack/*.pack it; chmod u+w it repos/00000001/objects/pack/*\n"
	   "ln -s $PWD/it $(echo repos/00000001/objects/pack/*.idx | sed s/idx$/pack/)");
	char path[128];
	uint8_t was, now;
	struct stat st;
	unsigned bad = 0;
	(void)snprintf(path, sizeof(path), "%s/it", root);
	auto_fd fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	for (off_t at = 3; at < st.st_size; at += 97) {
		assert_int_equal(pread(fd, &was, 1, at), 1);
		now = was ^ 0x41;
		assert_int_equal(pwrite(fd, &now, 1, at), 1);
		int r = pack_write(&set, &opt, &spec, &err);
		if (r == 0) /* in what isn't part of this history */
			pack_set_done(&set);
		else
			assert_int_equal(r, -EBADMSG);
		bad += r != 0;
		assert_int_equal(pwrite(fd, &was, 1, at), 1);
	}
	assert_true(bad > st.st_size / 97 * 8 / 10);
	sh("truncate -s -1 repos/00000001/objects/pack/*.idx");
	assert_int_equal(pack_write(&set, &opt, &spec, &err), -EBADMSG);
}

static void add_tree_entry(struct buf *b, const char *mode_and_name, const struct oid *oid)
{
	buf_add(b, mode_and_name, strlen(mode_and_name) + 1);
	buf_add(b, oid->b, OID_BYTES);
}

static struct oid put_tree(const struct buf *b)
{
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/tree", root);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(b->data, 1, b->len, f), b->len);
	assert_int_equal(fclose(f), 0);
	return oid_from("m hash-object -t tree -w --literally --stdin <tree");
}

#define COMMIT_TREE "m update-ref refs/heads/main $(echo c | m commit-tree $(cat commit-this))\n"
static void commit_tree_named(const struct oid *tree)
{
	char hex[OID_HEX + 1];
	oid_hex(hex, tree);
	sh("echo %s >commit-this\n" COMMIT_TREE, hex);
}

/* As old programs wrote them: with leading zeros, and a folder's or file's rights. */
static void modes_of_old_programs(void **state)
{
	auto_buf inner = { 0 }, outer = { 0 };
	struct pack_set set;
	sh("rm -rf repos out; mkdir repos; git init -q --bare -b main repos/00000001");
	const struct oid file = oid_from("echo content | m hash-object -w --stdin");
	const struct oid other = oid_from("echo other | m hash-object -w --stdin");
	add_tree_entry(&inner, "100664 f", &file);
	const struct oid dir = put_tree(&inner);
	add_tree_entry(&outer, "0100644 a", &other);
	add_tree_entry(&outer, "40755 d", &dir);
	add_tree_entry(&outer, "040000 e", &dir);
	const struct oid root_tree = put_tree(&outer);
	commit_tree_named(&root_tree);
	const struct checkout_options opt = options();
	const struct checkout_spec spec = { .commit = oid_from("m rev-parse main"),
					    .branch = "main" };
	const struct digest image = build(&opt, &spec, &set);
	pack_set_done(&set);
	write_out(&image);
	sh("m rev-list --objects --no-object-names main | sort >expected\n"
	   "grep -c . expected | grep -x 5\n"
	   "git show-index --object-format=sha1 <$(echo out/.git/objects/pack/*.idx) |\n"
	   "  cut -d' ' -f2 | sort | diff expected -; cat out/d/f out/e/f out/a");
}

/* Zeros cost next to nothing until they are in memory; no tree is so large. */
static void no_tree_is_so_large(void **state)
{
	struct pack_set set;
	sh("rm -rf repos; mkdir repos; git init -q --bare -b main repos/00000001\n"
	   "head -c 150000000 /dev/zero |\n"
	   "  m -c core.compression=1 hash-object -t tree -w --literally --stdin >commit-this\n"
	   COMMIT_TREE);
	for (int packed = 0; packed < 2; packed++) {
		const struct checkout_options opt = options();
		const struct checkout_spec spec = { .commit = oid_from("m rev-parse main") };
		int r = pack_write(&set, &opt, &spec, &err);
		if (r != -EFBIG)
			fail_msg("%d: %d %s", packed, r, r < 0 ? err.text : "");
		sh("{ cat commit-this; m rev-parse main; } |\n"
		   "  m pack-objects -q --window=0 objects/pack/pack\n"
		   "m prune-packed");
	}
}

/* Long and large enough that two threads look at the trees and two make the pack: 2,600 commits
 * of 4,000 bytes each, not compressed, and some beside it that must not get out. */
static const char long_history[] =
	"rm -rf repos out; mkdir repos; git init -q --bare -b main repos/00000001\n"
	"awk 'BEGIN { srand(3); form = \"commit refs/heads/%s\\nmark :%d\\n\" \\\n"
	"    \"committer A <a@b> %d +0000\\ndata 1\\n%s\\n%s\" \\\n"
	"    \"M 644 inline d%d/e%d/f%d\\ndata 4006\\n%s%s\\n\"\n"
	"  for (c = 1; c <= 2600; c++) {\n"
	"    t = \"\"; while (length(t) < 4000) t = t sprintf(\"%08x\", rand() * 4294967295)\n"
	"    hide = c % 100 == 0; from = c % 100 == 1 ? c - 2 : c - 1\n"
	"    from = c > 1 ? \"from :\" from \"\\n\" : \"\"\n"
	"    printf form, hide ? \"secret\" : \"main\", c, 1600000000 + c, \"c\", from,\n"
	"      c % 3, c % 7, c % 11, hide ? \"SECRET\" : \"public\", t } }' |\n"
	"  m -c pack.compression=0 fast-import --quiet\n";

static void a_long_history(void **state)
{
	sh("%s", long_history);
	const char *const scopes[] = { "d1", "d2/e3" };
	for (size_t nscopes = 0; nscopes <= 2; nscopes += 2) {
		struct pack_set set = { 0 };
		const struct checkout_options opt = options();
		const struct checkout_spec spec = { .commit = oid_from("m rev-parse main~5"),
						    .branch = "main", .scopes = scopes,
						    .nscopes = nscopes };
		const struct digest image = build(&opt, &spec, &set);
		assert_true(nscopes || set.packs[0].pack_bytes > 8 << 20);
		pack_set_done(&set);
		write_out(&image);
		judge(nscopes ? LIST("--filter=blob:none main~5") ";" LIST("main~5 -- d1 d2/e3")
			      : LIST("main~5"));
		sh("! grep -r SECRET out");
	}
}

/* Whichever thread meets it first. */
static void damage_in_a_long_history(void **state)
{
	static const char *const where[] = { "main~2400^{tree}", "main~9^{tree}", "main~2400:d0/e0",
					     "main~1700:d0/e0/f0", "main~10:d0/e0/f0" };
	struct pack_set set;
	sh("%s", long_history);
	const struct checkout_options opt = options();
	const struct checkout_spec spec = { .commit = oid_from("m rev-parse main") };
	for (size_t i = 0; i < sizeof(where) / sizeof(*where); i++) {
		sh("o=$(m rev-parse '%s'); p=$(echo repos/00000001/objects/pack/*.pack)\n"
		   "at=$(git show-index --object-format=sha1 <${p%%.pack}.idx |\n"
		   "  awk -v o=$o '$2 == o { print $1 }')\n"
		   "at=$((at + 5))\n"
		   "chmod u+w $p; cp $p whole\n"
		   "printf '\\377\\376\\375' | dd of=$p bs=1 seek=$at conv=notrunc status=none",
		   where[i]);
		assert_int_equal(pack_write(&set, &opt, &spec, &err), -EBADMSG);
		sh("cp whole repos/00000001/objects/pack/*.pack");
	}
	ok(pack_write(&set, &opt, &spec, &err));
	pack_set_done(&set);
}

static void out_of_memory(void **state)
{
	struct pack_set set;
	sh("%s", fresh);
	const struct checkout_options opt = options();
	const struct checkout_spec spec = { .commit = oid_from("m rev-parse main") };
	for (uint64_t n = 1;; n++) {
		oom_at(n);
		int r = pack_write(&set, &opt, &spec, &err);
		if (!oom_hit()) {
			ok(r);
			break;
		}
		/* A cache that doesn't grow is no failure. */
		if (r != -ENOMEM && r != 0)
			fail_msg("allocation %llu: %d %s", (unsigned long long)n, r, err.text);
		if (r == 0)
			pack_set_done(&set);
	}
	pack_set_done(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_way_that_a_mirror_is_packed),
		cmocka_unit_test(a_history_of_limited_depth),
		cmocka_unit_test(a_scope_has_all_trees_and_its_blobs),
		cmocka_unit_test(a_known_ancestor_lends_its_packs),
		cmocka_unit_test(a_known_scope_that_gets_more),
		cmocka_unit_test(git_works_in_it),
		cmocka_unit_test(a_detached_head),
		cmocka_unit_test(what_is_damaged_or_missing_is_named),
		cmocka_unit_test(modes_of_old_programs),
		cmocka_unit_test(no_tree_is_so_large),
		cmocka_unit_test(a_long_history),
		cmocka_unit_test(damage_in_a_long_history),
		cmocka_unit_test(out_of_memory),
	};
	return cmocka_run_group_tests(tests, setup_history, teardown);
}
