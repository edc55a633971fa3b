/* Pages of lists: what they have together is what the whole list has that is asked for, whatever
 * their size, while rows of one moment abound, labels change and the one at the cursor goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "snapd/catalog_db.h"
#include "snapd/catalog_sandbox.h"
#include "snapd/journal.h"
#include "tests/seed.h"
#include "tests/unit/catalog_kit.h"

enum { ROWS = 300, MOMENTS = 40 };

static void run(struct fixture *f, const char *sql, const struct db_value *values)
{
	struct err err = { 0 };
	if (db_change(f->c, sql, values, "test", &err) < 0)
		fail_msg("%s", err.text);
}

static const char *const labels[] = {
	NULL,
	"{\"a\":\"1\"}",
	"{\"a\":\"2\"}",
	"{\"a\":\"1\",\"b/c.d\":\"\"}",
	"{\"b/c.d\":\"x\\\"y\"}",
};
static const struct label {
	const char *key, *value, *in[2]; /* in these of the above; NULL: no more */
} asked[] = {
	{ NULL, NULL, { NULL } },
	{ "a", "1", { "{\"a\":\"1\"}", "{\"a\":\"1\",\"b/c.d\":\"\"}" } },
	{ "b/c.d", "", { "{\"a\":\"1\",\"b/c.d\":\"\"}" } },
	{ "b/c.d", "x\"y", { "{\"b/c.d\":\"x\\\"y\"}" } },
	{ "a", "3", { NULL } },
};
static const char *const owners[] = { "ann", "bob", "cid" };

static void fill(struct fixture *f)
{
	run(f, "INSERT INTO members VALUES ('tm_one', 'bob', 0)", DB());
	for (int i = 0; i < ROWS; i++) {
		struct ws_row row = { .created_ns = 1 + rand() % MOMENTS };
		id_make(row.id, "ws");
		(void)snprintf(row.name, sizeof(row.name), "w%d", i);
		const char *text = labels[rand() % 5];
		row.labels = text ? strdup(text) : NULL;
		(void)snprintf(row.own.owner, sizeof(row.own.owner), "%s", owners[rand() % 3]);
		row.own.visibility = rand() % 3;
		if (row.own.visibility == VISIBLE_TEAM)
			(void)snprintf(row.own.team, sizeof(row.own.team), "tm_%s",
				       rand() % 2 ? "one" : "two");
		if (rand() % 5 == 0)
			(void)snprintf(row.sandbox, sizeof(row.sandbox), "sb_aaaaaaaaaa");
		assert_int_equal(catalog_ws_insert(f->c, &row, 1, NULL), 0);
		if (rand() % 4 == 0)
			run(f, "UPDATE workspaces SET labels = ?2 WHERE id = ?1",
			    DB(db_text(row.id), db_text(labels[rand() % 5])));
		if (rand() % 10 == 0)
			run(f, "DELETE FROM workspaces WHERE id = ?1", DB(db_text(row.id)));
		else if (rand() % 5 == 0)
			run(f, "UPDATE workspaces SET removed = 5 WHERE id = ?1",
			    DB(db_text(row.id)));
		ws_row_done(&row);
	}
}

static bool is_asked(const struct ws_row *row, const char *sees, const struct label *l, bool roots)
{
	bool labelled = !l->key;
	for (int i = 0; i < 2 && l->in[i]; i++)
		labelled |= row->labels && strcmp(row->labels, l->in[i]) == 0;
	bool seen = !sees || strcmp(row->own.owner, sees) == 0 ||
		    row->own.visibility == VISIBLE_GLOBAL ||
		    (strcmp(sees, "bob") == 0 && strcmp(row->own.team, "tm_one") == 0);
	return labelled && seen && (roots || !row->sandbox[0]);
}

static void walk(struct fixture *f, bool gone, bool roots, const char *sees, const struct label *l,
		 size_t max)
{
	struct ws_row *all, *page;
	size_t n, k, at = 0;
	struct list_want want = {
		.sees = sees, .label = l->key, .value = l->value, .max = max
	};
	assert_int_equal(catalog_ws_list(f->c, gone ? WS_REMOVED : WS_THERE, &all, &n, NULL), 0);
	do {
		assert_int_equal(catalog_ws_page(f->c, gone, roots, &want, &page, &k, NULL), 0);
		assert_true(!max || k <= max);
		for (size_t i = 0; i < k; i++) {
			while (at < n && !is_asked(&all[at], sees, l, roots))
				at++;
			assert_true(at < n);
			assert_string_equal(page[i].id, all[at].id);
			want.after_ns = all[at].created_ns;
			want.after_id = all[at++].id;
		}
		ws_rows_free(page, k);
	} while (max && k == max);
	while (at < n && !is_asked(&all[at], sees, l, roots))
		at++;
	assert_int_equal(at, n);
	ws_rows_free(all, n);
}

static void pages(void **state)
{
	struct fixture *f = *state;
	static const char *const who[] = { NULL, "ann", "bob", "nobody" };
	static const size_t sizes[] = { 0, 1, 7, 1000 };
	fill(f);
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
		for (size_t k = 0; k < 4 * 4 * 4; k++)
			walk(f, k & 1, k >> 1 & 1, who[k >> 2 & 3], &asked[i], sizes[k >> 4]);
	/* The table of labels has what the rows say, of each row that is there. */
	assert_int_equal(db_lock(f->c, NULL), 0);
	assert_int_equal(db_has(f->c,
				"SELECT 0, l.key, l.value, t.created, t.seq FROM workspaces t,"
				" json_each(t.labels) l EXCEPT SELECT * FROM labels",
				DB(), "test", NULL),
			 0);
	assert_int_equal(db_has(f->c,
				"SELECT * FROM labels EXCEPT SELECT 0, l.key, l.value, t.created,"
				" t.seq FROM workspaces t, json_each(t.labels) l",
				DB(), "test", NULL),
			 0);
	db_unlock(f->c);
}

/* Where the one at the cursor is gone the next page begins with what is older. */
static void gone(void **state)
{
	struct fixture *f = *state;
	struct ws_row *all, *page;
	size_t n, k, i = 0;
	fill(f);
	assert_int_equal(catalog_ws_list(f->c, WS_THERE, &all, &n, NULL), 0);
	const struct list_want want = { .after_ns = all[9].created_ns, .after_id = all[9].id };
	run(f, "DELETE FROM workspaces WHERE id = ?1", DB(db_text(all[9].id)));
	assert_int_equal(catalog_ws_page(f->c, false, true, &want, &page, &k, NULL), 0);
	while (all[i].created_ns >= all[9].created_ns)
		i++;
	assert_int_equal(k, n - i);
	for (size_t j = 0; j < k; j++)
		assert_string_equal(page[j].id, all[i + j].id);
	ws_rows_free(page, k);
	ws_rows_free(all, n);
}

/* What is asked of the catalog is read along an index, and not sorted. */
static void by_index(void **state)
{
	struct fixture *f = *state;
	struct snap_row *snaps;
	struct ws_row *wss;
	struct sandbox_row *boxes;
	struct job_row *jobs;
	size_t n;
	for (int i = 0; i < 2; i++) {
		const struct list_want want = {
			.label = i ? "a" : NULL, .value = "1", .sees = i ? "ann" : NULL, .max = 9
		};
		assert_int_equal(catalog_ws_page(f->c, false, false, &want, &wss, &n, NULL), 0);
		ws_rows_free(wss, n);
		assert_int_equal(catalog_snap_page(f->c, NULL, false, &want, &snaps, &n, NULL), 0);
		snap_rows_free(snaps, n);
		assert_int_equal(catalog_snap_page(f->c, "ws_x", true, &want, &snaps, &n, NULL), 0);
		snap_rows_free(snaps, n);
		assert_int_equal(catalog_sandbox_page(f->c, -1, &want, &boxes, &n, NULL), 0);
		sandbox_rows_free(boxes, n);
		assert_int_equal(catalog_job_page(f->c, &want, &jobs, &n, NULL), 0);
		job_rows_free(jobs, n);
	}
	assert_int_equal(f->c->reads.n, 9);
	for (size_t i = 0; i < f->c->reads.n; i++) {
		sqlite3_stmt *plan;
		char *sql = sqlite3_mprintf("EXPLAIN QUERY PLAN %s", f->c->reads.of[i].sql);
		assert_int_equal(sqlite3_prepare_v2(f->c->reader, sql, -1, &plan, NULL), SQLITE_OK);
		while (sqlite3_step(plan) == SQLITE_ROW) {
			const char *step = (const char *)sqlite3_column_text(plan, 3);
			if (sqlite3_column_int(plan, 1) == 0 && /* not of a SELECT in it */
			    (strncmp(step, "SCAN", 4) == 0 ||
			     strstr(step, "B-TREE FOR ORDER BY")))
				fail_msg("%s: %s", step, f->c->reads.of[i].sql);
		}
		sqlite3_finalize(plan);
		sqlite3_free(sql);
	}
}

int main(void)
{
	srand((unsigned)test_seed());
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pages, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(gone, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(by_index, catalog_set_up, catalog_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
