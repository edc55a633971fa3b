/* Changes of a workspace against what system git says of the same files. */
#include "tests/unit/twin_random.h"

static int setup(void **state)
{
	struct twin *t = calloc(1, sizeof(*t));
	assert_non_null(t);
	twin_open(t);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	twin_close(*state);
	free(*state);
	return 0;
}

/* Changes are as wanted and make git's tree. */
static void check(struct twin *t, const char *want)
{
	struct twin_now n = { 0 };
	twin_now_open(t, &n);
	expect_changes(&n.changes, want);
	assert_int_equal(n.changes.nwarnings, 0);
	twin_expect_tree(t, &n);
	twin_now_done(&n);
}

static void warns(struct twin *t, const char *want, const char *warning)
{
	struct twin_now n = { 0 };
	twin_now_open(t, &n);
	if (want)
		expect_changes(&n.changes, want);
	for (size_t i = 0; i < n.changes.nwarnings; i++)
		if (strstr(n.changes.warnings[i], warning)) {
			twin_now_done(&n);
			return;
		}
	fail_msg("no warning \"%s\"", warning);
}

static void base_tree(struct twin *t)
{
	char text[4000];
	twin_mkdir(t, "dir");
	twin_mkdir(t, "dir/sub");
	twin_mkdir(t, "a");
	twin_put(t, "file", "one\ntwo\nthree\n");
	twin_put(t, "run", "#!/bin/sh\n");
	twin_chmod(t, "run", 0755);
	twin_link(t, "link", "file");
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = i % 20 == 19 ? '\n' : (char)('a' + (i / 20 * 7 + i % 20 * i / 20) % 26);
	twin_write(t, "dir/big", text, sizeof(text));
	twin_put(t, "dir/sub/x", "x\n");
	twin_put(t, "dir/sub/y", "y is y\n");
	twin_put(t, "a/b", "ab\n");
	twin_put(t, "a-b", "a-b\n");
	twin_put(t, "a.b", "");
}

static void test_nothing(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_base(t);
	check(t, "");
	twin_put(t, "file", "one\ntwo\nthree\n"); /* the same bytes */
	twin_chmod(t, "dir/sub/x", 0600);         /* no x bit */
	twin_mkdir(t, "empty");
	check(t, "");
}

static void test_kinds(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_base(t);
	twin_put(t, "file", "one\n2\nthree\n");
	twin_chmod(t, "a-b", 0700);
	twin_rm(t, "a.b");
	twin_rm(t, "link");
	twin_link(t, "link", "elsewhere");
	twin_rm(t, "run");
	twin_link(t, "run", "file");
	twin_put(t, "new", "new\n");
	twin_put(t, "dir/sub/n", "n\n");
	check(t, "M a-b\nD a.b\nA dir/sub/n\nM file\nM link\nA new\nT run\n");
}

static void test_folders(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_base(t);
	twin_rm(t, "a/b"); /* a folder becomes a file, a file a folder */
	twin_rm(t, "a");
	twin_put(t, "a", "now a file, and not like the one in the folder\n");
	twin_rm(t, "file");
	twin_mkdir(t, "file");
	twin_put(t, "file/in", "something else that is new\n");
	twin_rm(t, "dir/sub/x");
	twin_rm(t, "dir/sub/y");
	twin_rm(t, "dir/sub");
	check(t, "A a\nD a/b\nD dir/sub/x\nD dir/sub/y\nD file\nA file/in\n");
}

static void test_renames(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_base(t);
	twin_mv(t, "dir", "moved");
	twin_put(t, "moved/sub/x", "X\n");
	twin_mv(t, "file", "a/file");
	twin_rm(t, "a-b");
	twin_put(t, "c", "a-b\n"); /* equal, another inode */
	/* One byte of two is too little for "similar". */
	check(t, "R file -> a/file\nR a-b -> c\nD dir/sub/x\nR dir/big -> moved/big\n"
		 "A moved/sub/x\nR dir/sub/y -> moved/sub/y\n");
	twin_mv(t, "moved/sub", "sub");
	tree_write(t->ws, "moved/big", "changed", 7, 100);
	auto_free char *p = twin_path(t, "moved/big");
	FILE *f = fopen(p, "r+");
	assert_non_null(f);
	assert_int_equal(fseek(f, 100, SEEK_SET), 0);
	assert_int_equal(fwrite("changed", 1, 7, f), 7);
	assert_int_equal(fclose(f), 0);
	check(t, "R file -> a/file\nR a-b -> c\nD dir/sub/x\nR dir/big -> moved/big\n"
		 "A sub/x\nR dir/sub/y -> sub/y\n");
}

/* A folder moves to where one was, and another comes where it was. */
static void test_renames_over(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_base(t);
	twin_rm(t, "a/b");
	twin_rm(t, "a");
	twin_mv(t, "dir", "a");
	twin_mkdir(t, "dir");
	twin_put(t, "dir/b", "dir/b\n");
	check(t, "D a/b\nR dir/big -> a/big\nR dir/sub/x -> a/sub/x\nR dir/sub/y -> a/sub/y\n"
		 "A dir/b\n");
}

static void test_swap(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_base(t);
	twin_mv(t, "dir/sub/x", "dir/t");
	twin_mv(t, "dir/sub/y", "dir/sub/x");
	twin_mv(t, "dir/t", "dir/sub/y");
	check(t, "M dir/sub/x\nM dir/sub/y\n");
}

static void test_hard_links(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_base(t);
	twin_hardlink(t, "dir/big", "copy");
	check(t, "A copy\n");
	tree_write(t->ws, "copy", "other", 5, 0);
	auto_free char *p = twin_path(t, "copy");
	FILE *f = fopen(p, "r+");
	assert_non_null(f);
	assert_int_equal(fwrite("other", 1, 5, f), 5);
	assert_int_equal(fclose(f), 0);
	check(t, "A copy\nM dir/big\n");
}

static void test_ignored(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_put(t, "tracked.o", "is tracked\n");
	twin_base(t);
	twin_put(t, ".gitignore",
		 "# comment\n*.o\n!keep.o\n/build/\nlog*\\ \r\ndoc/**/gen\n\n[Tt]mp\n");
	twin_put(t, "tracked.o", "stays tracked\n");
	twin_put(t, "x.o", "ignored\n");
	twin_put(t, "dir/keep.o", "kept\n");
	twin_mkdir(t, "build");
	twin_put(t, "build/x", "ignored\n");
	twin_put(t, "build/keep.o", "ignored, as its folder is\n");
	twin_mkdir(t, "dir/build");
	twin_put(t, "dir/build/x", "not the one at the root\n");
	twin_put(t, "log1 ", "ignored\n");
	twin_put(t, "log1", "not\n");
	twin_mkdir(t, "doc");
	twin_mkdir(t, "doc/a");
	twin_mkdir(t, "doc/a/b");
	twin_put(t, "doc/gen", "ignored\n");
	twin_put(t, "doc/a/b/gen", "ignored\n");
	twin_put(t, "Tmp", "ignored\n");
	twin_put(t, "dir/.gitignore", "!x.o\n/sub/n*\n");
	twin_put(t, "dir/x.o", "again not ignored\n");
	twin_put(t, "dir/sub/n1", "ignored\n");
	const char *want =
		"A .gitignore\nA dir/.gitignore\nA dir/build/x\nA dir/keep.o\nA dir/x.o\n"
		"A log1\nM tracked.o\n";
	check(t, want);
	struct twin_now n = { .opt = { .ignored = true } };
	twin_now_open(t, &n);
	assert_int_equal(n.changes.n, 15);
	twin_now_done(&n);
}

static void test_info_exclude(void **state)
{
	struct twin *t = *state;
	twin_put(t, "f", "f\n");
	twin_base(t);
	tree_mk(t->ws, ".git", S_IFDIR | 0755);
	tree_mk(t->ws, ".git/info", S_IFDIR | 0755);
	tree_put(t->ws, ".git/info/exclude", "*.x\n");
	twin_do(t, "echo '*.x' >.git/info/exclude");
	twin_put(t, "a.x", "hidden\n");
	twin_put(t, "a.y", "shown\n");
	check(t, "A a.y\n");
}

static void test_attributes(void **state)
{
	struct twin *t = *state;
	twin_put(t, ".gitattributes",
		 "*.txt text\n*.bat text eol=crlf\n*.bin -text\n*.auto text=auto\n"
		 "*.id ident\n*.u16 working-tree-encoding=UTF-16LE\n"
		 "[attr]mine text\n*.mine mine\n\"q q\" text\n*.b binary\n");
	twin_put(t, "crlf.auto", "a\r\nb\r\n"); /* becomes LF when it is added */
	twin_put(t, "a.txt", "a\nb\n");
	twin_put(t, "a.id", "$Id$\n");
	twin_base(t);
	twin_put(t, "a.txt", "a\r\nb\r\n"); /* no change to git */
	check(t, "");
	twin_put(t, "a.txt", "a\r\nc\r\n");
	twin_put(t, "b.bat", "x\r\ny\r\nlone\rcr\n");
	twin_put(t, "c.bin", "x\r\n");
	twin_put(t, "d.auto", "x\r\ny\n");
	twin_write(t, "e.auto", "x\r\n\0y\r\n", 7);
	twin_put(t, "a.id", "$Id: 0123456789012345678901234567890123456789 $ $Id: no\n$\n");
	twin_write(t, "f.u16", "h\0i\0\n\0", 6);
	twin_put(t, "g.mine", "x\r\n");
	twin_put(t, "q q", "x\r\n");
	twin_put(t, "h.b", "x\r\n");
	twin_put(t, "crlf.auto", "a\r\nb\r\nc\r\n");
	check(t, "M a.id\nM a.txt\nA b.bat\nA c.bin\nM crlf.auto\nA d.auto\nA e.auto\nA f.u16\n"
		 "A g.mine\nA h.b\nA q q\n");
}

/* Byte order marks as git wants them; what can't be converted. */
static void test_encodings(void **state)
{
	struct twin *t = *state;
	static const struct {
		const char *encoding, *content;
		size_t len;
		bool bad;
	} rows[] = {
		{ "UTF-16LE-BOM", "\xff\xfeh\0\n\0", 6, false },
		{ "utf16le-bom", "\xff\xfeh\0\n\0", 6, false },
		{ "UTF-16LE-BOM", "h\0\n\0", 4, false },
		{ "UTF-16", "\xfe\xff\0h\0\n", 6, false },
		{ "UTF-32", "\xff\xfe\0\0h\0\0\0", 8, false },
		{ "UTF-16BE", "\0h\0\n", 4, false },
		{ "latin-1", "\xe4\n", 2, false },
		{ "UTF-16", "h\0\n\0", 4, true },
		{ "UTF-16LE", "\xff\xfeh\0", 4, true },
		{ "UTF-32BE", "\0\0\xfe\xff\0\0\0h", 8, true },
		{ "UTF-16LE-BOM", "\xff\xfeh", 3, true },
		{ "UTF-16LE", "\0\xd8\n\0", 4, true },
		{ "no-such", "x\n", 2, true },
	};
	enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
	struct err err = { 0 };
	char text[2048] = "", name[32], want[2048] = "";
	for (size_t i = 0; i < ROWS; i++)
		(void)snprintf(text + strlen(text), 64, "f%02zu working-tree-encoding=%s\n", i,
			       rows[i].encoding);
	twin_put(t, ".gitattributes", text);
	twin_base(t);
	for (size_t i = 0; i < ROWS; i++) {
		if (rows[i].bad)
			continue;
		(void)snprintf(name, sizeof(name), "f%02zu", i);
		(void)snprintf(want + strlen(want), 40, "A %s\n", name);
		twin_write(t, name, rows[i].content, rows[i].len);
	}
	check(t, want); /* the tree is git's, too */
	for (size_t i = 0; i < ROWS; i++) {
		struct twin_now n = { .opt.lenient = true };
		if (!rows[i].bad)
			continue;
		(void)snprintf(name, sizeof(name), "f%02zu", i);
		twin_write(t, name, rows[i].content, rows[i].len);
		auto_free char *refused =
			twin_git(t, "git add %s 2>/dev/null && echo added || true", name);
		assert_string_equal(refused, "");
		twin_now_open(t, &n);
		assert_int_equal(n.changes.nwarnings, 1);
		assert_ptr_equal(strstr(n.changes.warnings[0], name), n.changes.warnings[0]);
		changes_done(&n.changes);
		n.opt.lenient = false;
		assert_true(changes_find(&n.changes, &n.opt, &err) < 0);
		assert_ptr_equal(strstr(err.text, name), err.text);
		twin_now_done(&n);
		twin_rm(t, name);
	}
}

/* What was moved to where it is ignored would be nothing but deletions. */
static void test_moved_to_ignored(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_put(t, ".gitignore", "*.o\n/gone/\n");
	twin_base(t);
	twin_put(t, "x.o", "untracked\n");
	check(t, "");
	tree_mv(t->ws, "file", "file.o");
	warns(t, "D file\n", "1 file that was moved is ignored");
	tree_mv(t->ws, "file.o", "file");
	tree_mv(t->ws, "dir", "gone");
	warns(t, NULL, "files that were moved are ignored");
}

/* What is automatic leaves CR LF alone where git has it so. */
static void test_crlf_in_git(void **state)
{
	struct twin *t = *state;
	twin_put(t, "old", "a\r\nb\r\n");
	twin_base(t);
	twin_put(t, ".gitattributes", "* text=auto\n");
	twin_put(t, "old", "a\r\nb\r\nc\r\n");
	twin_put(t, "new", "a\r\n");
	check(t, "A .gitattributes\nA new\nM old\n");
}

/* A file that is moved to where other attributes hold is another content to git. */
static void test_moved_to_other_attributes(void **state)
{
	struct twin *t = *state;
	twin_put(t, ".gitattributes", "*.txt text\n*.id ident\n");
	twin_mkdir(t, "dir");
	twin_put(t, "dir/raw", "a\r\nb\r\n");
	twin_put(t, "dir/plain", "a\nb\n");
	twin_put(t, "dir/mark", "$Id: 0123456789012345678901234567890123456789 $\n");
	twin_put(t, "over.txt", "x\n");
	twin_put(t, "dir/crlf", "x\r\n");
	twin_base(t);
	twin_mv(t, "dir/raw", "raw.txt");
	twin_mv(t, "dir/plain", "plain.txt");
	twin_mv(t, "dir/mark", "dir/mark.id");
	twin_rm(t, "over.txt");
	twin_mv(t, "dir/crlf", "over.txt"); /* which has what git has there already */
	struct twin_now n = { 0 };
	twin_now_open(t, &n);
	expect_changes(&n.changes, "D dir/crlf\nD dir/mark\nA dir/mark.id\n"
				   "R dir/plain -> plain.txt\nR dir/raw -> raw.txt\n");
	twin_expect_tree(t, &n);
	twin_now_done(&n);
}

static void test_skipped(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_base(t);
	tree_mk(t->ws, "nest", S_IFDIR | 0755);
	tree_mk(t->ws, "nest/.git", S_IFDIR | 0755);
	tree_mk(t->ws, "nest/.git/objects", S_IFDIR | 0755);
	tree_mk(t->ws, "nest/.git/refs", S_IFDIR | 0755);
	tree_put(t->ws, "nest/.git/HEAD", "ref: refs/heads/x\n");
	tree_put(t->ws, "nest/f", "f\n");
	warns(t, "", "nest: a repository of its own");
	tree_mk(t->ws, "fifo", S_IFIFO | 0644);
	warns(t, "", "fifo: a special file");
	tree_rm(t->ws, "file");
	tree_mk(t->ws, "file", S_IFSOCK | 0644);
	warns(t, "D file\n", "file: a special file is there now");
	tree_mk(t->ws, "dir/.git", S_IFDIR | 0755);
	tree_put(t->ws, "dir/.git/config", "[core]\n");
	warns(t, "D file\n", "dir/.git: what is in it is left out");
	tree_mk(t->ws, "dir/.GIT", S_IFDIR | 0755);
	tree_put(t->ws, "dir/.GIT/config", "[core]\n");
	warns(t, "D file\n", "dir/.GIT: no tree can have that name");
	tree_put(t->ws, "git~1", "x\n");
	warns(t, "D file\n", "git~1: no tree can have that name");
	struct entry e;
	assert_int_equal(ws_symlink(t->ws, 1, ".gitmodules", 11, "x", &tree_root_caller, &e), 0);
	ws_forget(t->ws, e.node, 1);
	warns(t, "D file\n", ".gitmodules: no tree can have that name");
}

static void test_submodule(void **state)
{
	struct twin *t = *state;
	base_tree(t);
	twin_do(t, "git update-index --add --cacheinfo 160000,"
		   "0123456789012345678901234567890123456789,dir/module");
	twin_mkdir(t, "dir/module");
	/* `git add -A` would drop it again: no twin_base. */
	twin_do(t, "git add file && git commit -q -m base && mkdir -p ../repos &&"
		   " git clone -q --bare . ../repos/00000001");
	struct err err = { 0 };
	auto_free char *hex = twin_git(t, "git rev-parse HEAD");
	twin_oid(&t->base, hex);
	assert_int_equal(gitops_init(&err), 0);
	assert_int_equal(mirror_open(&t->mirror, t->root.dir, GIT_KIT_REPO, &err), 0);
	tree_seal(t->ws, &t->before);
	tree_put(t->ws, "dir/module/f", "f\n");
	warns(t, "", "dir/module: a submodule");
	tree_rm(t->ws, "dir/module/f");
	tree_rm(t->ws, "dir/module");
	struct twin_now n = { 0 };
	twin_now_open(t, &n);
	expect_changes(&n.changes, "D dir/module\n");
	twin_now_done(&n);
}

/* Outside of the scope nothing is ever deleted, and what is put there counts. */
static void test_scope(void **state)
{
	struct twin *t = *state;
	static const char *const scopes[] = { "in/side" };
	struct err err = { 0 };
	twin_mkdir(t, "in");
	twin_mkdir(t, "in/side");
	twin_mkdir(t, "out");
	twin_put(t, "top", "top\n");
	twin_put(t, "in/above", "above\n");
	twin_put(t, "in/side/f", "f\n");
	twin_put(t, "out/g", "g\n");
	twin_put(t, "out/h", "h\n");
	twin_rm(t, "out/h"); /* the workspace never has those of out */
	twin_do(t, "echo h >out/h");
	tree_rm(t->ws, "out/g");
	tree_rm(t->ws, "out");
	twin_base(t);
	auto_free char *add = twin_git(t, "echo more >out/more; git add -A; git commit -q -m 2;"
					  " git push -q ../repos/00000001 HEAD:two;"
					  " git rev-parse HEAD");
	tree_rm(t->ws, "in/above");
	tree_rm(t->ws, "in/side/f");
	tree_mk(t->ws, "out", S_IFDIR | 0755);
	tree_put(t->ws, "out/g", "G\n");
	struct oid two;
	twin_oid(&two, add);
	for (int i = 0; i < 2; i++) {
		struct twin_now n = { 0 };
		twin_now_open(t, &n);
		changes_done(&n.changes);
		n.opt.scopes = scopes;
		n.opt.nscopes = 1;
		n.opt.checkout = t->base;
		n.opt.base = i ? two : t->base;
		if (changes_find(&n.changes, &n.opt, &err) < 0)
			fail_msg("%s", err.text);
		expect_changes(&n.changes, "D in/above\nD in/side/f\nM out/g\n");
		twin_now_done(&n);
	}
}

/* Against another commit than what was checked out. */
static void test_other_base(void **state)
{
	struct twin *t = *state;
	struct err err = { 0 };
	base_tree(t);
	twin_base(t);
	auto_free char *hex = twin_git(t,
				       "git checkout -q -b two; git mv dir/sub/y y; echo Z >file;"
				       " git rm -q a/b; echo new >new; git add -A;"
				       " git commit -q -m two; git push -q ../repos/00000001 two;"
				       " git rev-parse HEAD");
	tree_put(t->ws, "new", "new\n");
	tree_put(t->ws, "file", "Z\n");
	tree_truncate(t->ws, "file", 2);
	struct twin_now n = { 0 };
	twin_now_open(t, &n);
	expect_changes(&n.changes, "M file\nA new\n");
	changes_done(&n.changes);
	n.opt.checkout = t->base;
	twin_oid(&n.opt.base, hex);
	if (changes_find(&n.changes, &n.opt, &err) < 0)
		fail_msg("%s", err.text);
	expect_changes(&n.changes, "A a/b\nR y -> dir/sub/y\n");
	twin_now_done(&n);
}

/* ---- random edits */

/* Kinds and paths as git has them; renames are pairs of deleted and added to both. */
static void compare_names(struct twin *t, struct twin_now *n)
{
	auto_buf mine = { 0 };
	for (size_t i = 0; i < n->changes.n; i++) {
		const struct change *c = &n->changes.v[i];
		if (c->old_path)
			buf_printf(&mine, "D %s\n", c->old_path);
		buf_printf(&mine, "%c %s\n", c->old_path ? 'A' : c->kind, c->path);
	}
	buf_u8(&mine, 0);
	auto_free char *path = twin_path(t, "../.mine");
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs((char *)mine.data, f) >= 0);
	assert_int_equal(fclose(f), 0);
	auto_free char *diff =
		twin_git(t, "git add -A . && git -c core.quotePath=false diff --cached --no-renames"
			    " --name-status HEAD | tr '\\t' ' ' | sort >../.git-says;"
			    " sort ../.mine | diff - ../.git-says || true");
	if (*diff)
		fail_msg("git says otherwise:\n%s\n", diff);
}

/* Every rename is one to git as well (its similarity may differ by little), or another file of
 * the same content. */
static size_t count_renames(struct twin *t, const char *flags)
{
	auto_free char *n = twin_git(t,
				     "git diff --cached -M%s -l0 --name-status HEAD |"
				     " grep -c ^R || true",
				     flags);
	return strtoul(n, NULL, 10);
}

static void test_random(void **state)
{
	struct twin *t = *state;
	twin_seed();
	for (int i = 0; i < 60; i++)
		random_edit(t);
	twin_base(t);
	for (int round = 0; round < 8; round++) {
		struct twin_now n = { 0 };
		for (int i = 0; i < 5; i++)
			random_edit(t);
		twin_now_open(t, &n);
		compare_names(t, &n);
		twin_expect_tree(t, &n);
		size_t mine = 0, least = count_renames(t, "53%"), most = count_renames(t, "47%");
		for (size_t k = 0; k < n.changes.n; k++)
			mine += n.changes.v[k].kind == CHANGE_RENAME;
		if (mine < least || mine > most)
			fail_msg("%zu renames, git has %zu to %zu", mine, least, most);
		twin_now_done(&n);
	}
	twin_do(t, "cd ../repos/00000001 && git fsck --strict --no-dangling 2>&1 &&"
		   " test -z \"$(ls objects/pack/tmp_* objects/pack/bough_* 2>/dev/null)\"");
}

/* ---- commits */

static void test_commit(void **state)
{
	struct twin *t = *state;
	struct err err = { 0 };
	base_tree(t);
	twin_base(t);
	twin_put(t, "file", "other\n");
	struct twin_now n = { 0 };
	twin_now_open(t, &n);
	struct commit_spec spec = { .parent = t->base,
				    .message = "\n subject\n\nbody \n\n",
				    .author = "Jö Doe",
				    .author_email = "jo@example.org",
				    .time_s = 1700000000,
				    .offset_min = -330 };
	struct oid commit;
	assert_int_equal(changes_tree(&spec.tree, &n.changes, &n.opt, &t->base, &err), 0);
	assert_int_equal(commit_make(&commit, t->mirror, &spec, &err), 0);
	twin_now_done(&n);
	char hex[OID_HEX + 1];
	oid_hex(hex, &commit);
	assert_int_equal(mirror_move_branch(t->mirror, "work", NULL, &commit, "test", &err), 0);
	auto_free char *shown = twin_git(t,
					 "git --git-dir=../repos/00000001 show --no-patch"
					 " --date=raw --format='%%H|%%an|%%ae|%%ad|%%cn|%%B' work");
	auto_free char *want = NULL;
	assert_true(asprintf(&want,
			     "%s|Jö Doe|jo@example.org|1700000000 -0530|Jö Doe| subject\n\nbody",
			     hex) > 0);
	assert_string_equal(shown, want);
	twin_do(t, "git --git-dir=../repos/00000001 fsck --strict 2>&1");
	static const struct {
		const char *author, *email, *message;
	} bad[] = { { "a\nb", "e@x", "m" }, { "a", "e>x", "m" }, { "a", "e x", "m" },
		    { "", "e@x", "m" },     { "a", NULL, "m" },  { "a", "e@x", " \n\t" } };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		spec.author = bad[i].author;
		spec.author_email = bad[i].email;
		spec.message = bad[i].message;
		assert_int_equal(commit_make(&commit, t->mirror, &spec, &err), -EINVAL);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_nothing),      T(test_kinds),        T(test_folders),     T(test_renames),
		T(test_swap),         T(test_renames_over), T(test_hard_links),  T(test_ignored),
		T(test_info_exclude), T(test_attributes),   T(test_crlf_in_git), T(test_skipped),
		T(test_submodule),    T(test_scope),        T(test_other_base),  T(test_random),
		T(test_commit),       T(test_encodings),    T(test_moved_to_ignored),
		T(test_moved_to_other_attributes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
