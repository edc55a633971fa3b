/* The command line's table and its parser: options anywhere, nearest words, sizes, and that the
 * table itself holds together: each example in it must parse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "tests/unit/oom.h"
#include "tools/bough/cli.h"

enum { WORDS_MAX = 24 };

/* Splits at blanks; "quotes" hold a word together. Words are cut in place. */
static int split(char *text, char **words)
{
	int n = 0;
	for (char *p = text; *p && n < WORDS_MAX - 1;) {
		p += strspn(p, " ");
		if (!*p)
			break;
		char end = *p == '"' ? '"' : ' ';
		p += end == '"';
		words[n++] = p;
		p += strcspn(p, end == '"' ? "\"" : " ");
		if (*p)
			*p++ = 0;
	}
	words[n] = NULL;
	return n;
}

static int parse(struct args *a, char *text, struct err *err)
{
	char *words[WORDS_MAX];
	return args_parse(a, split(text, words), words, err);
}

static void accepted(void **state)
{
	static const struct {
		const char *line, *command;
		unsigned operands;
		const char *last, *option, *value;
	} cases[] = {
		{ "bough ls", "ls", 0, NULL, NULL, NULL },
		{ "bough fork a b c", "fork", 3, "c", NULL, NULL },
		{ "bough fork -n 3 a b", "fork", 2, "b", "count", "3" },
		{ "bough fork a -n3 b", "fork", 2, "b", "count", "3" },
		{ "bough fork a b --count=3", "fork", 2, "b", "count", "3" },
		{ "bough --json fork a b --count 3", "fork", 2, "b", "json", "" },
		{ "bough --root /x ls -q", "ls", 0, NULL, "root", "/x" },
		{ "bough rm -- -a --json", "rm", 2, "--json", NULL, NULL },
		{ "bough import - --as x", "import", 1, "-", "as", "x" },
		{ "bough export x -o-", "export", 1, "x", "output", "-" },
		{ "bough snapshots", "snapshots ls", 0, NULL, NULL, NULL },
		{ "bough snapshots --json", "snapshots ls", 0, NULL, "json", "" },
		{ "bough snapshots rm -f x", "snapshots rm", 1, "x", "force", "" },
		{ "bough save a --message= --as=b", "save", 1, "a", "message", "" },
		{ "bough save -qm \"two words\" a", "save", 1, "a", "message", "two words" },
		{ "bough ls --json --json", "ls", 0, NULL, "json", "" },
		{ "bough create --help", "create", 0, NULL, "help", "" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_free char *text = strdup(cases[i].line);
		struct args a;
		struct err err;
		if (parse(&a, text, &err) < 0)
			fail_msg("%s: %s", cases[i].line, err.text);
		assert_non_null(a.cmd);
		assert_string_equal(a.cmd->name, cases[i].command);
		assert_int_equal(a.n, cases[i].operands);
		if (cases[i].last)
			assert_string_equal(a.operands[a.n - 1], cases[i].last);
		if (cases[i].option)
			assert_string_equal(args_get(&a, cases[i].option), cases[i].value);
		args_done(&a);
	}
}

static void refused(void **state)
{
	static const struct {
		const char *line, *says;
	} cases[] = {
		{ "bough frok a b", "did you mean \"fork\"?" },
		{ "bough snapshot", "did you mean \"snapshots" },
		{ "bough snapshots lst", "did you mean \"snapshots ls\"?" },
		{ "bough snpashot", "did you mean \"snapshots" },
		{ "bough quux", "`bough help` lists them" },
		{ "bough fork a --cuont 3", "did you mean --count?" },
		{ "bough events --foo", "`bough events --help` lists them" }, /* root isn't near */
		{ "bough fork a --quux", "`bough fork --help` lists them" },
		{ "bough fork a -x", "no option -x" },
		{ "bough --quux", "`bough --help` lists them" },
		{ "bough fork a -n", "-n needs its COUNT" },
		{ "bough fork a --count", "--count needs its COUNT" },
		{ "bough fork a --json=1", "--json takes no value" },
		{ "bough fork a -n 1 -n 2", "--count is given twice" },
		{ "bough fork", "usage: bough fork NAME" },
		{ "bough rename a", "it needs more" },
		{ "bough path a b", "\"b\" is too much" },
		{ "bough rm a \"\"", "can't be empty" },
		{ "bough export a --format rar", "is one of: tar tar.zst zip cpio" },
		{ "bough ls snapshots", "\"snapshots\" is too much" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_free char *text = strdup(cases[i].line);
		struct args a;
		struct err err = { 0 };
		assert_int_equal(parse(&a, text, &err), -EINVAL);
		if (!strstr(err.text, cases[i].says))
			fail_msg("%s: %s", cases[i].line, err.text);
		args_done(&a);
	}
}

static void many_values(void **state)
{
	char text[] = "bough create a -l x=1 --label y=2 --label=z=3";
	struct args a;
	assert_int_equal(parse(&a, text, NULL), 0);
	assert_string_equal(args_each(&a, "label", 0), "x=1");
	assert_string_equal(args_each(&a, "label", 2), "z=3");
	assert_null(args_each(&a, "label", 3));
	assert_string_equal(args_get(&a, "label"), "z=3");
	args_done(&a);
}

/* What help says must be true: every example is a command line that parses. */
static void examples_parse(void **state)
{
	unsigned n = 0;
	commands_each(c) {
		for (const char *p = c->examples; p && *p;) {
			size_t k = strcspn(p, "\n");
			auto_free char *line = strndup(p, k);
			p += k + (p[k] == '\n');
			char *at = strstr(line, "bough "), *end;
			assert_non_null(at);
			if ((end = strpbrk(at, "|#")))
				*end = 0;
			while ((end = strstr(at, ")\"")))
				*end = 0;
			struct args a;
			struct err err;
			if (parse(&a, at, &err) < 0)
				fail_msg("%s: %s", c->name, err.text);
			if (a.cmd != c)
				fail_msg("an example of %s is one of %s", c->name, a.cmd->name);
			args_done(&a);
			n++;
		}
	}
	assert_true(n > 25);
}

static void table_is_sound(void **state)
{
	commands_each(c) {
		assert_non_null(c->run);
		assert_non_null(c->operands);
		assert_true(c->min <= c->max);
		if (!c->summary)
			continue; /* hidden */
		assert_non_null(c->group);
		assert_non_null(c->examples);
		assert_int_not_equal(c->summary[strlen(c->summary) - 1], '.');
		if (c->about)
			assert_int_equal(c->about[strlen(c->about) - 1], '\n');
		for (const struct option_def *o = c->options; o && o->name; o++) {
			assert_non_null(o->help);
			assert_true((o->kind == WORD_CHOICE) == (o->choices != NULL));
			/* No option hides a common one or another of its own. */
			for (const struct option_def *p = common_options; p->name; p++)
				assert_true(strcmp(o->name, p->name) &&
					    (!o->letter || o->letter != p->letter));
			for (const struct option_def *p = c->options; p != o; p++)
				assert_true(strcmp(o->name, p->name) &&
					    (!o->letter || o->letter != p->letter));
		}
	}
}

static void sizes(void **state)
{
	static const struct {
		const char *text;
		int64_t bytes; /* -1: refused */
	} cases[] = {
		{ "0", 0 },
		{ "4096", 4096 },
		{ "512K", 512 << 10 },
		{ "1k", 1024 },
		{ "1.5M", 3 << 19 },
		{ "10G", 10ll << 30 },
		{ "2T", 2ll << 40 },
		{ "7E", 7ll << 60 },
		{ "1KB", 1024 },
		{ "1KiB", 1024 },
		{ "100B", 100 },
		{ "0.5G", 1 << 29 },
		{ "9223372036854775807", INT64_MAX },
		{ "8E", -1 },
		{ "9223372036854775808", -1 },
		{ "99999999999999999999999999999999", -1 },
		{ "", -1 },
		{ "K", -1 },
		{ "-1", -1 },
		{ "1X", -1 },
		{ "1 K", -1 },
		{ "1KK", -1 },
		{ ".5K", -1 },
		{ "1.", 1 },
		{ "1e3", -1 },
		{ "0x10", -1 },
		{ "9999999999E", -1 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t v = 7;
		struct err err;
		int r = args_size(cases[i].text, "--quota", &v, &err);
		if (cases[i].bytes < 0 ? r != -EINVAL || v != 7
				       : r != 0 || v != (uint64_t)cases[i].bytes)
			fail_msg("%s: %d %llu", cases[i].text, r, (unsigned long long)v);
	}
	uint64_t v;
	assert_int_equal(args_number("10", "n", 1, 10, &v, NULL), 0);
	assert_int_equal(args_number("11", "n", 1, 10, &v, NULL), -EINVAL);
	assert_int_equal(args_number("0", "n", 1, 10, &v, NULL), -EINVAL);
	assert_int_equal(args_number("", "n", 1, 10, &v, NULL), -EINVAL);
	assert_int_equal(args_number("1x", "n", 1, 10, &v, NULL), -EINVAL);
	assert_int_equal(args_number("99999999999999999999", "n", 0, UINT64_MAX, &v, NULL),
			 -EINVAL);
}

static void times(void **state)
{
	static const struct {
		const char *text;
		int64_t ms, s; /* -1: refused */
	} cases[] = {
		{ "0", 0, 0 },
		{ "90", 90000, 90 },
		{ "500ms", 500, 1 },
		{ "1000ms", 1000, 1 },
		{ "1001ms", 1001, 2 },
		{ "1.5s", 1500, 2 },
		{ "0.001s", 1, 1 },
		{ "1.0000000000s", 1000, 1 },
		{ "2m", 120000, 120 },
		{ "0.5m", 30000, 30 },
		{ "1.5h", 5400000, 5400 },
		{ "7d", 604800000, 604800 },
		{ "9999999999d", 863999999913600000, 863999999913600 },
		{ "99999999999s", -1, -1 },
		{ "1.00000000000s", -1, -1 },
		{ "0.0001s", -1, -1 }, /* it would be 0, which is no limit */
		{ "1.5ms", -1, -1 },
		{ "", -1, -1 },
		{ "s", -1, -1 },
		{ ".5s", -1, -1 },
		{ "1.s", -1, -1 },
		{ "-1s", -1, -1 },
		{ " 1s", -1, -1 },
		{ "1 s", -1, -1 },
		{ "1e3", -1, -1 },
		{ "1S", -1, -1 },
		{ "1us", -1, -1 },
		{ "1m30s", -1, -1 },
		{ "soon", -1, -1 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ms = 7, s = 7, bad = cases[i].ms < 0;
		struct err err;
		int r = args_duration(cases[i].text, "--timeout", &ms, &err);
		int q = args_seconds(cases[i].text, "--ttl", &s, &err);
		if (r != (bad ? -EINVAL : 0) || q != r || ms != (bad ? 7 : (uint64_t)cases[i].ms) ||
		    s != (bad ? 7 : (uint64_t)cases[i].s))
			fail_msg("%s: %d %llu ms, %d %llu s", cases[i].text, r,
				 (unsigned long long)ms, q, (unsigned long long)s);
	}
}

static void roots(void **state)
{
	char *root = NULL;
	struct err err;
	unsetenv("BOUGH_ROOT");
	unsetenv("XDG_STATE_HOME");
	assert_int_equal(cli_root("/a/b//", &root, &err), 0);
	assert_string_equal(root, "/a/b");
	free(root);
	assert_int_equal(cli_root("rel", &root, &err), 0);
	assert_int_equal(root[0], '/');
	assert_string_equal(root + strlen(root) - 4, "/rel");
	free(root);
	assert_int_equal(cli_root("", &root, &err), -EINVAL);
	setenv("BOUGH_ROOT", "/env", 1);
	assert_int_equal(cli_root(NULL, &root, &err), 0);
	assert_string_equal(root, "/env");
	free(root);
	assert_int_equal(cli_root("/opt", &root, &err), 0);
	assert_string_equal(root, "/opt");
	free(root);
	unsetenv("BOUGH_ROOT");
	if (geteuid() == 0) {
		assert_int_equal(cli_root(NULL, &root, &err), 0);
		assert_string_equal(root, "/var/lib/bough");
		free(root);
	}
}

static void without_memory(void **state)
{
	for (uint64_t n = 1;; n++) {
		char text[] = "bough fork a b --count 3 --label x=y";
		struct args a;
		oom_at(n);
		int r = parse(&a, text, NULL);
		bool hit = oom_hit();
		oom_at(0);
		assert_int_equal(r, hit ? -ENOMEM : 0);
		args_done(&a);
		if (!hit)
			break;
	}
}

static void exit_codes(void **state)
{
	static const int cases[][2] = {
		{ 0, 0 },       { -EIO, 1 },    { -EPROTO, 1 }, { -EBADMSG, 1 }, { -EINVAL, 2 },
		{ -ENOENT, 3 }, { -EEXIST, 4 }, { -EBUSY, 5 },  { -ENOSPC, 6 },  { -EDQUOT, 6 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(cli_exit_code(cases[i][0]), cases[i][1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepted),       cmocka_unit_test(refused),
		cmocka_unit_test(many_values),    cmocka_unit_test(examples_parse),
		cmocka_unit_test(table_is_sound), cmocka_unit_test(sizes),
		cmocka_unit_test(times),
		cmocka_unit_test(roots),          cmocka_unit_test(without_memory),
		cmocka_unit_test(exit_codes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
