/* Patterns of .gitignore, judged by git check-ignore; names that git refuses; similarity. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "gitops/gitname.h"
#include "gitops/ignore.h"
#include "gitops/similar.h"
#include "tests/seed.h"
#include "tests/unit/place.h"

static uint64_t rng;
static uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rng >> 33) % n;
}

enum { N = 400, TEXT = 96 };

static void add_text(char out[TEXT], const char *a, const char *b)
{
	size_t n = strlen(out);
	(void)snprintf(out + n, TEXT - n, "%s%s", a, b);
}

/* Ignored are a path and all that is in an ignored folder. */
static bool ignores(const char *pattern, const char *path)
{
	struct ignore_file f;
	uint64_t steps = 0;
	assert_int_equal(ignore_parse(&f, pattern, strlen(pattern)), 0);
	bool yes = false;
	for (const char *slash = path; !yes && (slash = strchr(slash, '/')); slash++)
		yes = ignore_ask(&f, path, (size_t)(slash - path), true, &steps) > 0;
	yes = yes || ignore_ask(&f, path, strlen(path), false, &steps) > 0;
	ignore_done(&f);
	return yes;
}

/* Random patterns over a small alphabet, each the only one of a folder's file. */
static void test_random(void **state)
{
	static const char *const bits[] = { "a",     "b",    "*",    "?",   "**",
					    "/",     "[ab]", "[!a]", "ab",  "**/",
					    "[a-b]", "\\a",  "/**/", "\\*", "[[:alpha:]]" };
	static const char *const names[] = { "a", "b", "ab", "ba", "c", "a*" };
	struct place *pl = *state;
	static char patterns[N][TEXT], paths[N][TEXT];
	char cmd[512], line[TEXT];
	bool git[N] = { false };
	rng = test_seed() * 2654435761u;
	(void)snprintf(cmd, sizeof(cmd), "%s/paths", pl->path);
	FILE *f = fopen(cmd, "w");
	assert_non_null(f);
	for (int i = 0; i < N; i++) {
		for (uint32_t k = rnd(4) + 1; k-- > 0;)
			add_text(patterns[i], bits[rnd(15)], "");
		for (uint32_t k = rnd(3) + 1; k-- > 0;)
			add_text(paths[i], paths[i][0] ? "/" : "", names[rnd(6)]);
		(void)snprintf(cmd, sizeof(cmd), "%s/%d", pl->path, i);
		assert_int_equal(mkdir(cmd, 0755), 0);
		(void)snprintf(cmd, sizeof(cmd), "%s/%d/.gitignore", pl->path, i);
		FILE *g = fopen(cmd, "w");
		assert_non_null(g);
		(void)fprintf(g, "%s\n", patterns[i]);
		assert_int_equal(fclose(g), 0);
		(void)fprintf(f, "%d/%s\n", i, paths[i]);
	}
	assert_int_equal(fclose(f), 0);
	(void)snprintf(cmd, sizeof(cmd),
		       "cd %s && git init -q . && git -c core.excludesFile= check-ignore --no-index"
		       " --stdin <paths",
		       pl->path);
	f = popen(cmd, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		long i = strtol(line[0] == '"' ? line + 1 : line, NULL, 10);
		assert_in_range(i, 0, N - 1);
		git[i] = true;
	}
	(void)pclose(f); /* 1 where nothing is ignored */
	for (int i = 0; i < N; i++)
		if (ignores(patterns[i], paths[i]) != git[i])
			fail_msg("\"%s\" against \"%s\": git says %d", patterns[i], paths[i],
				 git[i]);
}

/* ---- names */

static void test_names(void **state)
{
	static const char *const dotgit[] = {
		".git",
		".GIT",
		".git.",
		".git ",
		".git . .",
		"git~1",
		"GIT~1",
		".git:x",
		".git::$INDEX_ALLOCATION",
		".g\xe2\x80\x8cit",
		"\xef\xbb\xbf.git",
		"a\\.git",
		".git\\x",
	};
	static const char *const fine[] = { ".gitx",      ".gi",   "git", "git~2",
					    ".gitignore", "x.git", "" };
	static const char *const modules[] = { ".gitmodules", ".GitModules ", "gitmod~1",
					       "GI7EBA~1" };
	for (size_t i = 0; i < sizeof(dotgit) / sizeof(dotgit[0]); i++)
		if (!gitname_is_dotgit(dotgit[i], strlen(dotgit[i])))
			fail_msg("%s is .git to some", dotgit[i]);
	for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
		if (gitname_is_dotgit(fine[i], strlen(fine[i])))
			fail_msg("%s is fine", fine[i]);
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
		if (!gitname_is_dotgitmodules(modules[i], strlen(modules[i])))
			fail_msg("%s is .gitmodules to some", modules[i]);
	assert_false(gitname_is_dotgitmodules("gitmodules", 10));
	static const char *const odd[] = { "con", "NUL.txt", "aux .c", "COM1", "lpt9.x", "a.",
					   "a ",  "a\\b",    "a\nb",   "a:b",  "what?",  "prn" };
	static const char *const good[] = {
		"console", "com", "com0", "nulls", "a.b", "ü", "lpt10"
	};
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		if (!gitname_problem(odd[i], strlen(odd[i])))
			fail_msg("%s is odd", odd[i]);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		if (gitname_problem(good[i], strlen(good[i])))
			fail_msg("%s is good", good[i]);
}

static void test_similar(void **state)
{
	static const struct {
		const char *a, *b;
		uint32_t percent;
	} rows[] = { { "a\nb\n", "a\nb\n", 100 },
		     { "a\nb\n", "a\nc\n", 50 },
		     { "a\nb\n", "b\na\n", 100 },
		     { "a\r\nb\r\n", "a\nb\n", 66 },
		     { "", "", 0 },
		     { "x\n", "", 0 },
		     { "a\na\na\na\n", "a\n", 25 },
		     { "no end", "no end", 100 } };
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct similar a, b;
		assert_int_equal(similar_init(&a, rows[i].a, strlen(rows[i].a)), 0);
		assert_int_equal(similar_init(&b, rows[i].b, strlen(rows[i].b)), 0);
		assert_int_equal(similar_score(&a, &b) * 100 / SIMILAR_ALL, rows[i].percent);
		similar_done(&a);
		similar_done(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_random, place_set_up, place_tear_down),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_similar),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
