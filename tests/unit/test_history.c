/* Walks through random histories, beside what follows from who comes from whom. */
#include "gitops/history.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "tests/seed.h"

enum { COMMITS = 24, ROUNDS = 60 };

static char root[64];
static git_repository *repo;
static git_odb *odb;
static git_oid tree;
static uint64_t rng;

static unsigned below(unsigned n)
{
	rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (unsigned)((rng >> 33) % n);
}

/* Commit k comes from those whose bits `from` has, itself among them. */
struct past {
	git_oid id[COMMITS];
	unsigned parents[COMMITS], from[COMMITS];
	long time[COMMITS];
};

static void write_commit(git_oid *out, unsigned parents, const git_oid *ids, long time, bool good)
{
	char text[8192], hex[OID_HEX + 1];
	int n = snprintf(text, sizeof(text), "tree %s\n",
			 git_oid_tostr(hex, sizeof(hex), &tree));
	for (unsigned i = 0; i < COMMITS; i++)
		if (parents & 1u << i)
			n += snprintf(text + n, sizeof(text) - (size_t)n, "parent %s\n",
				      git_oid_tostr(hex, sizeof(hex), &ids[i]));
	if (good)
		n += snprintf(text + n, sizeof(text) - (size_t)n,
			      "author A <a@b> %ld +0000\ncommitter A <a@b> %ld +0000\n", time,
			      time);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "\n%u", below(1u << 31));
	assert_int_equal(git_odb_write(out, odb, text, (size_t)n, GIT_OBJECT_COMMIT), 0);
}

/* `clocks`: no commit is older than its parents; many are of one second. `bad`: malformed. */
static void make_past(struct past *p, bool clocks, unsigned bad)
{
	memset(p, 0, sizeof(*p));
	unsigned back = 1 + below(6);
	for (unsigned i = 0; i < COMMITS; i++) {
		p->from[i] = 1u << i;
		p->time[i] = clocks ? 1000 + i / (1 + below(4)) : 1000 + below(30);
		for (unsigned k = below(i ? 4 : 1); k > 0; k--)
			p->parents[i] |= 1u << (i - 1 - below(i < back ? i : back));
		for (unsigned k = 0; k < i; k++) {
			if (!(p->parents[i] & 1u << k))
				continue;
			p->from[i] |= p->from[k];
			if (clocks && p->time[i] < p->time[k])
				p->time[i] = p->time[k];
		}
		write_commit(&p->id[i], p->parents[i], p->id, p->time[i], i != bad);
	}
}

/* Of what both come from, what nothing else of it comes from. */
static unsigned best(const struct past *p, unsigned a, unsigned b)
{
	unsigned common = p->from[a] & p->from[b], out = common;
	for (unsigned i = 0; i < COMMITS; i++)
		if (common & 1u << i)
			out &= ~(p->from[i] & ~(1u << i));
	return out;
}

static void check_pair(const struct past *p, unsigned a, unsigned b, bool clocks)
{
	struct err err = { 0 };
	git_oid got;
	size_t ahead, behind;
	unsigned bases = best(p, a, b), k = 0;
	int r = history_base(&got, repo, &p->id[a], &p->id[b], &err);
	assert_int_equal(r, bases != 0);
	for (; r && k < COMMITS && !git_oid_equal(&got, &p->id[k]); k++)
		;
	assert_true(r == 0 || (bases & 1u << k));
	for (unsigned i = 0; r && i < COMMITS; i++)
		assert_true(!(bases & 1u << i) || p->time[i] <= p->time[k]);
	assert_int_equal(history_descends(repo, &p->id[a], &p->id[b], &err),
			 (p->from[a] & 1u << b) != 0);
	if (!clocks)
		return;
	assert_int_equal(history_count(&ahead, &behind, repo, &p->id[a], &p->id[b], &err), 0);
	assert_int_equal(ahead, __builtin_popcount(p->from[a] & ~p->from[b]));
	assert_int_equal(behind, __builtin_popcount(p->from[b] & ~p->from[a]));
}

static void test_answers(void **state)
{
	struct past p;
	for (unsigned round = 0; round < ROUNDS; round++) {
		make_past(&p, round % 2, COMMITS);
		for (unsigned i = 0; i < 40; i++)
			check_pair(&p, below(COMMITS), below(COMMITS), round % 2);
	}
}

/* libgit2's own walk, which must not fail where it was said that it can be done. */
static int walk(const git_oid *to, const git_oid *from)
{
	auto_git(git_revwalk) w = NULL;
	git_oid id;
	int r = git_revwalk_new(&w, repo);
	if (r == 0)
		r = git_revwalk_push(w, to);
	if (r == 0)
		r = git_revwalk_hide(w, from);
	while (r == 0)
		r = git_revwalk_next(&id, w);
	git_error_clear();
	return r == GIT_ITEROVER ? 0 : r;
}

static void test_malformed(void **state)
{
	struct past p;
	unsigned fine = 0, refused = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		make_past(&p, true, below(COMMITS));
		for (unsigned i = 0; i < 40; i++) {
			const git_oid *a = &p.id[below(COMMITS)], *b = &p.id[below(COMMITS)];
			struct err err = { 0 };
			git_oid base;
			size_t x, y;
			int r = history_walkable(repo, a, b, &err);
			assert_true(r == 0 || r == -ENOTSUP);
			fine += r == 0;
			refused += r < 0;
			if (r == 0)
				assert_int_equal(walk(a, b), 0);
			else
				assert_non_null(strstr(err.text, "read commit "));
			/* They say so, too, or don't meet it. */
			r = history_base(&base, repo, a, b, &err);
			assert_true(r >= 0 || r == -ENOTSUP);
			r = history_descends(repo, a, b, NULL);
			assert_true(r >= 0 || r == -ENOTSUP);
			r = history_count(&x, &y, repo, a, b, &err);
			assert_true(r >= 0 || r == -ENOTSUP);
		}
	}
	assert_true(fine > 0 && refused > 0);
}

static void test_missing(void **state)
{
	git_oid none, one, two;
	struct err err = { 0 };
	memset(&none, 7, sizeof(none));
	write_commit(&one, 1, &none, 5, true);
	write_commit(&two, 0, NULL, 9, true);
	assert_int_equal(history_base(&none, repo, &one, &two, &err), -ENOENT);
	assert_int_equal(history_descends(repo, &one, &two, &err), -ENOENT);
	assert_int_equal(history_walkable(repo, &one, &two, &err), -ENOENT);
	assert_int_equal(history_descends(repo, &two, &tree, &err), -ENOTSUP); /* it is no commit */
}

static int set_up(void **state)
{
	struct err err;
	(void)snprintf(root, sizeof(root), "/tmp/bough-history.XXXXXX");
	rng = test_seed();
	return mkdtemp(root) && gitops_init(&err) == 0 &&
			       git_repository_init(&repo, root, 1) == 0 &&
			       git_repository_odb(&odb, repo) == 0 &&
			       git_odb_write(&tree, odb, "", 0, GIT_OBJECT_TREE) == 0
		       ? 0
		       : -1;
}

static int tear_down(void **state)
{
	git_odb_free(odb);
	git_repository_free(repo);
	return io_remove_tree(AT_FDCWD, root, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_missing),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
