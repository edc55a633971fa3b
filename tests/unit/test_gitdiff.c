/* Differences in git's forms: name-status and stat are git's own, and git applies the patch. */
#include "snapd/gitdiff.h"
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

static int write_buf(void *ctx, const void *data, size_t n)
{
	buf_add(ctx, data, n);
	return 0;
}

/* The difference in one form; the caller frees. */
static char *form(struct twin_now *n, enum diff_format format, size_t *len)
{
	struct buf out = { 0 };
	struct err err = { 0 };
	struct diff_sink sink = { write_buf, &out };
	if (gitdiff_write(format, &n->changes, &n->opt, &sink, &err) < 0)
		fail_msg("gitdiff_write: %s", err.text);
	if (len)
		*len = out.len;
	buf_u8(&out, 0);
	assert_int_equal(buf_error(&out), 0);
	return (char *)out.data;
}

static void write_file(struct twin *t, const char *name, const char *data, size_t len)
{
	auto_free char *path = twin_path(t, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

/* Applied in a checkout of the base, the patch makes the tree that git makes of the files. */
static void check_patch(struct twin *t, struct twin_now *n)
{
	size_t len;
	auto_free char *patch = form(n, DIFF_FORMAT_PATCH, &len);
	write_file(t, "../patch", patch, len);
	auto_free char *want = twin_git(t, "git add -A . 2>/dev/null; git write-tree");
	auto_free char *got = twin_git(
		t, "rm -rf ../clean && git clone -q ../repos/00000001 ../clean && cd ../clean &&"
		   " { ! test -s ../patch || git apply --index ../patch 2>../apply.err ||"
		   " cat ../apply.err; } && git write-tree");
	if (strcmp(got, want) != 0)
		fail_msg("git made %s of the patch, of the files %s:\n%s", got, want, patch);
}

static void check_same(struct twin *t, struct twin_now *n, enum diff_format format,
		       const char *flags)
{
	size_t len;
	auto_free char *mine = form(n, format, &len);
	auto_free char *git =
		twin_git(t, "git add -A . 2>/dev/null; git diff --cached -M -l0 %s HEAD", flags);
	while (len > 0 && mine[len - 1] == '\n')
		mine[--len] = '\0';
	if (strcmp(mine, git) != 0)
		fail_msg("%s:\n%s\ngit's:\n%s", flags, mine, git);
}

static void test_forms(void **state)
{
	struct twin *t = *state;
	char text[3000], bin[3000];
	for (size_t i = 0; i < sizeof(text); i++) {
		text[i] = i % 30 == 29 ? '\n' : (char)('a' + (i / 30 * 5 + i % 30 * 3) % 26);
		bin[i] = (char)(i * 7919 >> 3);
	}
	twin_mkdir(t, "some");
	twin_mkdir(t, "some/very");
	twin_mkdir(t, "some/very/long_name_of_a_folder");
	twin_write(t, "some/very/long_name_of_a_folder/text", text, sizeof(text));
	twin_write(t, "bin", bin, sizeof(bin));
	twin_put(t, "kind", "kind\n");
	twin_put(t, "mode", "mode\n");
	twin_put(t, "noeol", "a\nb");
	twin_put(t, "empty", "");
	twin_put(t, "b l a n k", "x\n");
	twin_put(t, "\303\274", "y\n");
	twin_put(t, "gone", "1\n2\n3\n");
	twin_base(t);
	text[40] = '!';
	twin_mv(t, "some/very/long_name_of_a_folder/text", "some/very/moved");
	twin_write(t, "some/very/moved", text, sizeof(text));
	bin[7] = 99;
	twin_write(t, "bin", bin, sizeof(bin));
	twin_rm(t, "kind");
	twin_link(t, "kind", "elsewhere");
	twin_chmod(t, "mode", 0755);
	twin_put(t, "noeol", "a\nc");
	twin_put(t, "empty", "now not\n");
	twin_put(t, "b l a n k", "x\nz\n");
	twin_put(t, "\303\274", "y\nz\n");
	twin_rm(t, "gone");
	twin_write(t, "new", text, 2000);
	twin_write(t, "newbin", bin, 500);
	twin_put(t, "new empty", "");
	twin_put(t, "o\377dd", "1\n");
	struct twin_now n = { 0 };
	twin_now_open(t, &n);
	check_same(t, &n, DIFF_FORMAT_NAME_STATUS, "--name-status");
	check_same(t, &n, DIFF_FORMAT_STAT, "--stat=80");
	check_patch(t, &n);
	auto_free char *json = form(&n, DIFF_FORMAT_JSON, NULL);
	assert_non_null(
		strstr(json, "{\"kind\":\"modified\",\"old\":{\"mode\":\"100644\",\"oid\":"));
	assert_non_null(strstr(json, "\"old_path\":\"some/very/long_name_of_a_folder/text\","
				     "\"similarity\":99"));
	assert_non_null(strstr(json, "\"path_b64\":\"b/9kZA==\""));
	twin_now_done(&n);
}

/* The patch of git and ours are the same text, but for how much of ids is shown. */
static void test_patch_text(void **state)
{
	struct twin *t = *state;
	twin_put(t, "a", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
	twin_put(t, "x y", "int f(void)\n{\n\n\n\n\n\n\tg();\n}\n");
	twin_put(t, "t", "t\n");
	twin_base(t);
	twin_put(t, "a", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n");
	twin_put(t, "x y", "int f(void)\n{\n\n\n\n\n\n\th();\n}\n");
	twin_chmod(t, "x y", 0755);
	twin_rm(t, "t");
	twin_link(t, "t", "a");
	struct twin_now n = { 0 };
	twin_now_open(t, &n);
	check_same(t, &n, DIFF_FORMAT_PATCH, "--abbrev=12");
	twin_now_done(&n);
}

static void test_random(void **state)
{
	struct twin *t = *state;
	twin_seed();
	for (int i = 0; i < 60; i++)
		random_edit(t);
	twin_base(t);
	for (int round = 0; round < 5; round++) {
		struct twin_now n = { 0 };
		for (int i = 0; i < 6; i++)
			random_edit(t);
		twin_now_open(t, &n);
		check_patch(t, &n);
		twin_now_done(&n);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_forms), T(test_patch_text), T(test_random) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
