/* The files of a checkout, with system git as the judge: names, modes, contents, conversions. */
#include "checkout_kit.h"
#include "oom.h"
#include "gitops/attributes.h"
#include "gitops/tree_entry.h"

/* Builds the tree alone; the caller frees both. */
static int build(struct kit *k, const struct checkout_spec *spec, struct co_tree *t,
		 struct image **im)
{
	struct checkout_options opt = kit_options(k);
	struct co_inos inos = { .opt = &opt };
	struct image_builder *b;
	struct digest name;
	assert_int_equal(image_builder_new(&b, opt.seed, &k->err), 0);
	int r = co_tree_add(t, b, &inos, &opt, spec, NULL, &k->err);
	if (r == 0) {
		assert_int_equal(image_finish(b, NULL, k->images, &name, &k->err), 0);
		assert_int_equal(image_open(im, NULL, k->images, &name, &k->err), 0);
		assert_int_equal(image_check(*im, &k->err), 0);
	}
	image_builder_free(b);
	return r;
}

/* The extracted image and git's own checkout `co` are the same. */
static void same_as_git(struct kit *k, struct image *im)
{
	char out[300];
	kit_sh(k, "rm -rf out");
	(void)snprintf(out, sizeof(out), "%s/out", k->s->path);
	kit_extract(k, im, 1, out);
	kit_sh(k, "diff -r --no-dereference --exclude=.git co out\n"
		  "for d in co out; do (cd $d; find . -name .git -prune -o ! -name . ! -type l "
		  "-printf '%P %y %m\\n' | sort >../$d.list); done\n"
		  "sed -i 's/ 755$/ x/; s/ 644$/ -/' co.list out.list; diff co.list out.list");
}

static const char plain[] =
	"echo hello >a; mkdir -p d/e/f 'with blank'; echo x >d/e/f/deep; echo y >'with "
	"blank/\"q\"'\n"
	": >empty; printf 'no newline' >d/n; ln -s ../a d/link; ln -s nowhere dangling\n"
	"echo '#!/bin/sh' >run; chmod 755 run; echo s >d.c; echo t >d-e; mkdir d0; echo u >d0/x\n"
	"echo '*.o' >.gitignore; echo k >d/.gitignore; printf '\\303\\244' >\"$(printf "
	"'\\303\\244')\"\n"
	"head -c 1500000 /dev/urandom >large; head -c 3000000 /dev/zero >zeros; echo e >>zeros\n"
	"head -c 1048576 /dev/zero >exact\n"
	"git add -A; git update-index --add --cacheinfo 160000,"
	"1234567890123456789012345678901234567890,mod/sub\n"
	"git commit -qm one";

static void test_plain(void **state)
{
	struct kit *k = *state;
	struct co_tree t;
	struct image *im;
	kit_repo(k, plain);
	struct checkout_spec spec = kit_spec(k, NULL);
	if (build(k, &spec, &t, &im) < 0)
		fail_msg("%s", k->err.text);
	same_as_git(k, im);
	assert_int_equal(t.submodules, 1);
	assert_int_equal(t.in_scope, t.nfiles);
	assert_int_equal(t.lfs, 0);
	assert_string_equal(t.files[0].path, ".gitignore");
	for (size_t i = 1; i < t.nfiles; i++)
		assert_true(strcmp(t.files[i - 1].path, t.files[i].path) < 0);
	uint64_t last = 0;
	for (size_t i = 0; i < t.nfiles; i++) {
		assert_true(t.files[i].ino > last); /* in order: neighbours lie together */
		last = t.files[i].ino;
	}
	image_unref(im);
	co_tree_done(&t);
}

static void test_scope(void **state)
{
	struct kit *k = *state;
	struct co_tree t;
	struct image *im;
	kit_repo(k,
		 "for d in a a/b a/b/c a/d b c a-b; do mkdir $d; echo $d >$d/f; done; echo r >r\n"
		 "git add -A; git commit -qm one");
	const char *scopes[] = { "a/b", "c" };
	struct checkout_spec spec = kit_spec(k, NULL);
	spec.scopes = scopes;
	spec.nscopes = 2;
	if (build(k, &spec, &t, &im) < 0)
		fail_msg("%s", k->err.text);
	kit_sh(k, "git -C co sparse-checkout set --cone a/b c");
	same_as_git(k, im);
	assert_int_equal(t.nfiles, 8);
	assert_int_equal(t.in_scope, 5); /* r, a/f, a/b/f, a/b/c/f, c/f */
	image_unref(im);
	co_tree_done(&t);

	static const char *const wrong[] = { "nowhere", "a/b/f", "a/bb", "r", "a/b/c/d" };
	for (size_t i = 0; i < 5; i++) {
		scopes[1] = wrong[i];
		assert_int_equal(build(k, &spec, &t, &im), -ENOENT);
		assert_non_null(strstr(k->err.text, wrong[i]));
	}
}

/* Each kind of conversion, and who decides: byte by byte as git writes it. */
static const char converted[] =
	"printf 'one\\ntwo\\n' >lf; for f in a.crlf a.bat b.bat auto.txt x.dos 'q p.dos'; do cp lf "
	"$f "
	"2>/dev/null || cp lf \"$f\"; done\n"
	"printf 'one\\r\\ntwo\\n' >mixed.crlf; printf 'one\\r\\ntwo\\n' >mixed.txt\n"
	"printf 'one\\ntwo\\0\\n' >bin.txt; printf 'one\\ntwo\\0\\n' >bin.crlf\n"
	"printf 'a\\032\\n\\032' >eof.txt; printf 'a\\001\\002\\003\\n' >control.txt\n"
	"printf 'a $Id$ b $Id: old $ c $Id: two words $ $Id: $ $Ident$ $Id:\\n$Id' >k.id\n"
	"printf 'none' >none.id; printf '\\303\\244\\n' >u16.enc; cp u16.enc le.bom; cp u16.enc "
	"be.bom\n"
	"cp u16.enc l1.lat; printf 'bad \\377' >bad.lat; cp lf both.mix\n"
	"mkdir -p sub/deep mac; cp lf sub/a.crlf; cp lf sub/deep/a.crlf; cp lf sub/deep/b.bat; cp "
	"lf "
	"mac/m.mac\n"
	"printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:00\\nsize 3\\n' >p.lfs\n"
	"printf 'not one' >q.lfs; cp lf '[x].set'; cp lf x.set\n"
	"git add -A\n" /* as they are: nothing is said of them yet */
	"cat >.gitattributes <<'E'\n"
	"[attr]dosly text eol=crlf\n"
	"[attr]twice dosly ident\n"
	"*.crlf eol=crlf\n"
	"*.bat text eol=crlf\n"
	"/b.bat -text\n"
	"*.txt text=auto eol=crlf\n"
	"*.dos dosly\n"
	"\"q p.dos\" !eol !text !dosly\n"
	"*.id ident\n"
	"*.enc working-tree-encoding=UTF-16\n"
	"le.bom working-tree-encoding=UTF-16LE-BOM\n"
	"be.bom working-tree-encoding=UTF-16BE-BOM eol=crlf\n"
	"*.lat working-tree-encoding=latin-1\n"
	"*.mix twice\n"
	"mac/** twice\n"
	"*.lfs filter=lfs -text\n"
	"\\[x\\].set eol=crlf\n"
	"sub/**/a.crlf -text\n"
	"!*.dos -text\n"
	"dir/ eol=crlf\n"
	"E\n"
	"printf '*.bat -crlf\\n[attr]nested eol=crlf\\n*.crlf eol=crlf text\\n' "
	">sub/deep/.gitattributes\n"
	"git add .gitattributes sub/deep/.gitattributes; git commit -qm one";

static void test_converted(void **state)
{
	struct kit *k = *state;
	struct co_tree t;
	struct image *im;
	kit_repo(k, converted);
	struct checkout_spec spec = kit_spec(k, NULL);
	if (build(k, &spec, &t, &im) < 0)
		fail_msg("%s", k->err.text);
	same_as_git(k, im);
	assert_int_equal(t.lfs, 1);
	assert_int_equal(t.lfs_names.n, 1);
	assert_string_equal(t.lfs_names.text, "p.lfs");
	for (size_t i = 0; i < t.nfiles; i++) {
		struct attr a;
		assert_int_equal(image_inode(im, t.files[i].ino, &a), 0);
		assert_int_equal(a.size, t.files[i].size);
	}
	image_unref(im);
	co_tree_done(&t);
}

/* Whatever allocation fails, that is the answer, and nothing is left. */
static void test_memory(void **state)
{
	struct kit *k = *state;
	kit_repo(k, converted);
	struct checkout_options opt = kit_options(k);
	struct checkout_spec spec = kit_spec(k, NULL);
	uint64_t n = 1;
	for (bool hit = true; hit; n++) {
		struct co_inos inos = { .opt = &opt };
		struct image_builder *b;
		struct co_tree t = { 0 };
		auto_buf head = { 0 }, rest = { 0 }, meta = { 0 };
		struct err err = { 0 };
		assert_int_equal(image_builder_new(&b, opt.seed, &k->err), 0);
		oom_at(n);
		int r = co_tree_add(&t, b, &inos, &opt, &spec, NULL, &err);
		if (r == 0)
			r = index_head(&head, &rest, &meta, &t, &spec, &err);
		hit = oom_hit();
		assert_int_equal(r < 0, hit);
		assert_int_equal(err.code < 0, hit);
		co_tree_done(&t);
		image_builder_free(b);
	}
	assert_true(n > 100);
}

/* What attributes say, for random patterns and paths: as git check-attr. */
static void random_pattern(struct buf *b, uint64_t *s)
{
	static const char *const parts[] = { "a",  "b",    "c",     "/",           "*",
					     "**", "/**/", "?",     "[ab]",        "[!a]",
					     ".x", "a/b",  "\\*",   "[a-c]",       "*",
					     "/",  "***",  "[]-a]", "[[:alpha:]]", "\\" };
	for (uint64_t n = 1 + rnd(s) % 6; n > 0; n--)
		buf_printf(b, "%s", parts[rnd(s) % (sizeof(parts) / sizeof(parts[0]))]);
}

static void random_path(struct buf *b, uint64_t *s)
{
	static const char *const names[] = { "a", "b", "c", "ab", "a.x", "b.x", "abc", "*", "-" };
	for (uint64_t n = 1 + rnd(s) % 4; n > 0; n--)
		buf_printf(b, "%s%s", names[rnd(s) % 9], n > 1 ? "/" : "");
}

static void test_patterns(void **state)
{
	enum { RULES = 60, PATHS = 1500, ROUNDS = 4 };
	struct kit *k = *state;
	uint64_t s = 0x9e3779b97f4a7c15;
	kit_sh(k, "git init -q p");
	for (int round = 0; round < ROUNDS; round++) {
		auto_buf rules = { 0 }, paths = { 0 }, script = { 0 }, ours = { 0 };
		for (int i = 0; i < RULES; i++) {
			random_pattern(&rules, &s);
			buf_printf(&rules, " %s\n",
				   (const char *const[]){ "text", "-text", "!text",
							  "text=v" }[rnd(&s) % 4]);
		}
		struct attributes *a = attributes_new();
		assert_non_null(a);
		int at = attributes_add(a, ATTR_NONE, "", rules.data, rules.len, NULL);
		assert_true(at >= 0);
		for (int i = 0; i < PATHS; i++) {
			size_t from = paths.len;
			struct attr_values v;
			random_path(&paths, &s);
			buf_u8(&paths, 0);
			const char *path = (char *)paths.data + from;
			assert_int_equal(attributes_find(a, at, path, &v), 0);
			const char *t = v.v[ATTR_TEXT];
			buf_printf(&ours, "%s: text: %s\n", path,
				   !t || t == attr_unset ? "unspecified"
				   : t == attr_true      ? "set"
				   : t == attr_false     ? "unset"
							 : t);
			paths.data[paths.len - 1] = '\n';
		}
		attributes_free(a);
		buf_printf(
			&script,
			"cat >p/.gitattributes <<'E'\n%.*sE\ncat >paths <<'E'\n%.*sE\n"
			"cat >ours <<'E'\n%.*sE\n"
			"git -C p check-attr --stdin text <paths >git 2>/dev/null; diff ours git",
			(int)rules.len, (char *)rules.data, (int)paths.len, (char *)paths.data,
			(int)ours.len, (char *)ours.data);
		buf_u8(&script, 0);
		kit_sh(k, (char *)script.data);
	}
}

/* Trees that no git made. */
static void test_hostile(void **state)
{
	static const struct {
		const char *what, *tree;
	} cases[] = {
		{ "leads out", "100644 blob $b\\t.." },
		{ "stands for .git", "040000 tree $t\\t.git" },
		{ "stands for .git", "100644 blob $b\\t.GiT" },
		{ "stands for .git", "100644 blob $b\\tgit~1" },
		{ "stands for .git", "040000 tree $t\\t.git. ." },
		{ "stands for .git", "040000 tree $t\\t.git::$INDEX" },
		{ "stands for .git", "040000 tree $t\\t.g\\342\\200\\214it" },
		{ "stands for .git", "040000 tree $t\\t.gi\\357\\273\\277t" },
		{ "stands for .gitmodules", "120000 blob $b\\t.gitmodules" },
		{ "stands for .gitmodules", "120000 blob $b\\tgitmod~1" },
		{ "out of order", "100644 blob $b\\tb\\n100644 blob $b\\ta" },
		{ "out of order", "100644 blob $b\\ta\\n100644 blob $b\\ta" },
		{ "twice", "100644 blob $b\\ta\\n100644 blob $b\\ta.b\\n040000 tree $t\\ta" },
		{ "a slash", "100644 blob $b\\ta/b" },
		{ "target is empty", "120000 blob $e\\tlink" },
	};
	struct kit *k = *state;
	struct co_tree t;
	struct image *im;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_buf script = { 0 };
		/* git mktree sorts and checks: the object is written as it is. */
		buf_printf(
			&script,
			"echo x >x; git add x; git commit -qm good\n"
			"b=$(git hash-object -w x); t=$(git write-tree); e=$(git hash-object -w "
			"--stdin </dev/null)\n"
			"printf '%s\\n' | sed \"s/\\$b/$b/; s/\\$t/$t/; s/\\$e/$e/\" >list\n"
			"perl -ne 'chomp; /^(\\d+) \\w+ (\\w{40})\\t(.*)$/s or die; "
			"print $1+0, \" $3\\0\", pack(\"H*\", $2)' <list >raw\n"
			"tree=$(git hash-object -t tree -w --literally raw)\n"
			"c=$(git commit-tree $tree -m bad); cd ..; mkdir -p repos\n"
			"git -C src update-ref refs/heads/bad $c; cp -r src/.git repos/00000001\n"
			"exit 0\n",
			cases[i].tree);
		buf_u8(&script, 0);
		kit_repo(k, (char *)script.data);
		struct checkout_spec spec = kit_spec(k, "bad");
		int r = build(k, &spec, &t, &im);
		if (r != -ENOTSUP || !strstr(k->err.text, cases[i].what))
			fail_msg("%s: %d %s", cases[i].tree, r, r < 0 ? k->err.text : "");
	}
}

/* A file of a hundred kilobytes in the repository is one of a hundred megabytes in each of any
 * number of folders. */
static void test_many_attributes(void **state)
{
	struct kit *k = *state;
	struct co_tree t;
	struct image *im;
	kit_repo(k, "head -c 1000000 /dev/zero | tr '\\0' '#' >.gitattributes\n"
		    "for i in $(seq 40); do mkdir d$i; cp .gitattributes d$i; done\n"
		    "git add .; git commit -qm many\n");
	struct checkout_spec spec = kit_spec(k, "main");
	assert_int_equal(build(k, &spec, &t, &im), -E2BIG);
	assert_non_null(strstr(k->err.text, ".gitattributes have more than 32 MiB"));
}

static void test_names(void **state)
{
	static const char *const fine[] = { "a",     ".gitignore",   ".gitx", "git~2", ".git~1",
					    "...",   ".gi",          "git",   " .git", ".git-",
					    "x.git", ".git\xe2\x80", "git~10" };
	for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		if (tree_name_refused(fine[i], strlen(fine[i]), MODE_FILE))
			fail_msg("'%s' is refused", fine[i]);
	assert_null(tree_name_refused(".gitmodules", 11, MODE_FILE));
	assert_non_null(tree_name_refused("a\\.git", 6, MODE_FILE)); /* as Windows has it */
	char big[300];
	memset(big, 'a', sizeof(big));
	assert_null(tree_name_refused(big, 255, MODE_FILE));
	assert_non_null(tree_name_refused(big, 256, MODE_FILE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain),     cmocka_unit_test(test_scope),
		cmocka_unit_test(test_converted), cmocka_unit_test(test_memory),
		cmocka_unit_test(test_patterns),  cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_names),     cmocka_unit_test(test_many_attributes),
	};
	return cmocka_run_group_tests(tests, kit_set_up, kit_tear_down);
}
