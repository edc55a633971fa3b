/* The catalog and the records when memory runs out, in them, in SQLite and in jansson: each call,
 * with its n-th allocation failing, for every n, says -ENOMEM and leaves all as it was, or is done
 * whole; nothing counts as damaged. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <sqlite3.h>
#include "fs/base/io.h"
#include "snapd/catalog.h"
#include "snapd/principal.h"
#include "snapd/records.h"
#include "tests/unit/oom.h"

static struct err err;

struct fixture {
	char root[64];
	struct catalog *c;
	struct records *r;
	struct ws_row ws;
	struct snap_row snap;
};

/* ---- what each call does, and how it is undone ---- */

static int ws_insert(struct fixture *f)
{
	return catalog_ws_insert(f->c, &f->ws, 1, &err);
}

static int ws_delete(struct fixture *f)
{
	return catalog_ws_delete(f->c, f->ws.id, &err);
}

static bool ws_there(struct fixture *f)
{
	auto_ws_row row = { 0 };
	int r = catalog_ws_get(f->c, f->ws.id, &row, &err);
	assert_true(r == 0 || r == -ENOENT);
	return r == 0;
}

static int ws_list(struct fixture *f)
{
	struct ws_row *rows;
	size_t n;
	int r = catalog_ws_list(f->c, WS_THERE, &rows, &n, &err);
	if (r >= 0) {
		assert_int_equal(n, 1);
		assert_string_equal(rows[0].labels, "{\"a\":\"b\"}");
		ws_rows_free(rows, n);
	}
	return r;
}

static int ws_patch(struct fixture *f)
{
	const struct ws_patch p = { .name = "other", .labels = "{\"c\":\"d\"}" };
	return catalog_ws_patch(f->c, f->ws.id, &p, &err);
}

static int ws_unpatch(struct fixture *f)
{
	const struct ws_patch p = { .name = "w", .labels = "{\"a\":\"b\"}" };
	return catalog_ws_patch(f->c, f->ws.id, &p, &err);
}

static bool ws_patched(struct fixture *f)
{
	auto_ws_row row = { 0 };
	assert_int_equal(catalog_ws_get(f->c, f->ws.id, &row, &err), 0);
	bool other = strcmp(row.name, "other") == 0;
	assert_string_equal(row.labels, other ? "{\"c\":\"d\"}" : "{\"a\":\"b\"}");
	return other;
}

static int snap_insert(struct fixture *f)
{
	return catalog_snap_insert(f->c, &f->snap, f->ws.id, "stack", 5, &err);
}

static int snap_delete(struct fixture *f)
{
	return catalog_snap_delete(f->c, f->snap.id, true, &err);
}

/* All of it or nothing: the row, its name, and the workspace's head. */
static bool snap_there(struct fixture *f)
{
	auto_snap_row row = { 0 };
	auto_ws_row ws = { 0 };
	int r = catalog_snap_get(f->c, f->snap.id, &row, &err);
	assert_true(r == 0 || r == -ENOENT);
	char self[OWNER_SIZE];
	owner_self(self);
	assert_int_equal(catalog_snap_has_name(f->c, self, "s", NULL, &err), r == 0);
	assert_int_equal(catalog_ws_get(f->c, f->ws.id, &ws, &err), 0);
	assert_string_equal(ws.head, r == 0 ? f->snap.id : "");
	return r == 0;
}

static int snap_list(struct fixture *f)
{
	struct snap_row *rows;
	size_t n;
	int r = catalog_snap_log(f->c, f->snap.id, 0, &rows, &n, &err);
	if (r >= 0) {
		assert_int_equal(n, 1);
		snap_rows_free(rows, n);
	}
	return r;
}

static int ws_record(struct fixture *f)
{
	return records_ws_write(f->r, &f->ws, &err);
}

static int ws_record_drop(struct fixture *f)
{
	return records_ws_remove(f->r, f->ws.id, &err);
}

static bool ws_record_there(struct fixture *f)
{
	auto_ws_row row = { 0 };
	int r = records_ws_read(f->r, f->ws.id, &row, &err);
	assert_true(r == 0 || r == -ENOENT);
	return r == 0;
}

static int ws_record_get(struct fixture *f)
{
	auto_ws_row row = { 0 };
	return records_ws_read(f->r, f->ws.id, &row, &err);
}

static int snap_record(struct fixture *f)
{
	return records_snap_write(f->r, &f->snap, false, &err);
}

static int snap_record_drop(struct fixture *f)
{
	return records_snap_remove(f->r, f->snap.id, &err);
}

static bool snap_record_there(struct fixture *f)
{
	auto_snap_row row = { 0 };
	int r = records_snap_read(f->r, f->snap.id, &row, &err);
	assert_true(r == 0 || r == -ENOENT);
	return r == 0;
}

static int snap_record_get(struct fixture *f)
{
	auto_snap_row row = { 0 };
	return records_snap_read(f->r, f->snap.id, &row, &err);
}

static int snap_ids(struct fixture *f)
{
	char(*ids)[ID_SIZE];
	size_t n;
	int r = records_snap_ids(f->r, &ids, &n, &err);
	if (r >= 0) {
		assert_int_equal(n, 1);
		free(ids);
	}
	return r;
}

static int sync_all(struct fixture *f)
{
	int r = records_sync(f->r, &err);
	return r < 0 ? r : catalog_sync(f->c, &err);
}

/* ---- the n-th allocation ---- */

static void each(struct fixture *f, int (*call)(struct fixture *f), int (*undo)(struct fixture *f),
		 bool (*there)(struct fixture *f))
{
	for (uint64_t n = 1;; n++) {
		err.code = 0;
		oom_at(n);
		int r = call(f);
		bool hit = oom_hit();
		if (!hit)
			assert_int_equal(r, 0);
		/* jansson has no word of its own for it while it parses. */
		bool parses = call == ws_record_get || call == snap_record_get;
		if (r < 0 && !(parses && r == -EBADMSG)) {
			assert_int_equal(r, -ENOMEM);
			assert_int_equal(err.code, -ENOMEM);
		}
		assert_null(catalog_damage(f->c));
		if (there)
			assert_int_equal(there(f), r == 0);
		if (!hit)
			return;
		if (r == 0 && undo)
			assert_int_equal(undo(f), 0);
	}
}

static void all_calls(void **state)
{
	struct fixture *f = *state;
	each(f, ws_insert, ws_delete, ws_there);
	each(f, ws_list, NULL, NULL);
	each(f, ws_patch, ws_unpatch, ws_patched);
	each(f, snap_insert, snap_delete, snap_there);
	each(f, snap_list, NULL, NULL);
	each(f, ws_record, ws_record_drop, ws_record_there);
	each(f, ws_record_get, NULL, NULL);
	each(f, snap_record, snap_record_drop, snap_record_there);
	each(f, snap_record_get, NULL, NULL);
	each(f, snap_ids, NULL, NULL);
	each(f, sync_all, NULL, NULL);
}

static void opening(void **state)
{
	struct fixture *f = *state;
	assert_int_equal(ws_insert(f), 0);
	for (uint64_t n = 1;; n += n < 50 ? 1 : 11) {
		struct catalog *c = NULL;
		catalog_close(f->c);
		f->c = NULL;
		oom_at(n);
		int r = catalog_open(&c, f->root, NULL, &err);
		bool hit = oom_hit();
		if (r < 0)
			assert_int_equal(r, -ENOMEM);
		else
			f->c = c;
		if (r == 0 && catalog_damage(f->c))
			fail_msg("allocation %d: %s", (int)n, catalog_damage(f->c));
		if (r < 0)
			assert_int_equal(catalog_open(&f->c, f->root, NULL, &err), 0);
		assert_true(ws_there(f));
		if (!hit)
			break;
	}
}

/* ---- set-up ---- */

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[128];
	assert_non_null(f);
	/* In memory: it is opened a thousand times, and syncs each time. */
	(void)snprintf(f->root, sizeof(f->root), "%s/bough-catalog.XXXXXX",
		       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(f->root));
	f->ws = (struct ws_row){ .created_ns = 1, .labels = strdup("{\"a\":\"b\"}") };
	f->snap = (struct snap_row){ .created_ns = 1,
				     .message = strdup("why"),
				     .names = strdup("[\"s\"]") };
	id_make(f->ws.id, "ws");
	id_make(f->snap.id, "sn");
	(void)snprintf(f->ws.name, sizeof(f->ws.name), "w");
	const char *const folders[] = { "ws", "snapshots", "ws/" };
	for (size_t i = 0; i < 3; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s%s", f->root, folders[i],
			       i == 2 ? f->ws.id : "");
		assert_int_equal(mkdir(path, 0700), 0);
	}
	assert_int_equal(catalog_open(&f->c, f->root, NULL, &err), 0);
	assert_int_equal(records_open(&f->r, f->root, NULL, &err), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	catalog_close(f->c);
	records_close(f->r);
	ws_row_done(&f->ws);
	snap_row_done(&f->snap);
	(void)io_remove_tree(AT_FDCWD, f->root, NULL);
	free(f);
	return 0;
}

/* SQLite asks how big a block is. */
static void *sql_malloc(int n)
{
	int *p = malloc((size_t)n + 16);
	if (!p)
		return NULL;
	*p = n;
	return p + 4;
}

static void sql_free(void *p)
{
	free((int *)p - 4);
}

static void *sql_realloc(void *p, int n)
{
	int *q = realloc((int *)p - 4, (size_t)n + 16);
	if (!q)
		return NULL;
	*q = n;
	return q + 4;
}

static int sql_size(void *p)
{
	return p ? *((int *)p - 4) : 0;
}

static int sql_round(int n)
{
	return (n + 7) & ~7;
}

static int sql_init(void *ctx)
{
	return SQLITE_OK;
}

static void sql_shutdown(void *ctx)
{
}

int main(void)
{
	static const sqlite3_mem_methods methods = { sql_malloc, sql_free, sql_realloc, sql_size,
						     sql_round, sql_init, sql_shutdown, NULL };
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_calls, set_up, tear_down),
		cmocka_unit_test_setup_teardown(opening, set_up, tear_down),
	};
	/* The linker has made these the ones that can fail. */
	json_set_alloc_funcs(malloc, free);
	(void)sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
	(void)sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
