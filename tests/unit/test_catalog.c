/* The catalog and the records beside it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "snapd/principal.h"
#include "snapd/catalog.h"
#include "snapd/catalog_db.h"
#include "snapd/quota.h"
#include "snapd/records.h"
#include "tests/unit/catalog_kit.h"

static int set_up(void **state)
{
	char path[128];
	if (catalog_set_up(state) < 0)
		return -1;
	const struct fixture *f = *state;
	(void)snprintf(path, sizeof(path), "%s/ws", f->root);
	(void)mkdir(path, 0700);
	(void)snprintf(path, sizeof(path), "%s/snapshots", f->root);
	(void)mkdir(path, 0700);
	return 0;
}

static void reopen(struct fixture *f)
{
	struct err err = { 0 };
	catalog_close(f->c);
	f->c = NULL;
	assert_int_equal(catalog_open(&f->c, f->root, NULL, &err), 0);
}

static struct ws_row workspace(const char *name, int64_t created)
{
	struct ws_row row = { .created_ns = created, .mount = true };
	id_make(row.id, "ws");
	(void)snprintf(row.name, sizeof(row.name), "%s", name);
	return row;
}

static struct snap_row snapshot(const char *parent, int64_t created)
{
	struct snap_row row = {
		.created_ns = created, .files = 7, .bytes = 1ULL << 40, .stored_bytes = 9
	};
	id_make(row.id, "sn");
	(void)snprintf(row.parent, sizeof(row.parent), "%s", parent);
	random_bytes(&row.manifest, sizeof(row.manifest));
	return row;
}

static void names(void **state)
{
	static const struct {
		const char *name;
		bool good;
	} table[] = {
		{ "a", true },
		{ "A.b_c-9", true },
		{ "ws_short", true },
		{ "ws_ABCDEFGHIJ", true },
		{ "", false },
		{ "-a", false },
		{ ".a", false },
		{ "..", false },
		{ "a/b", false },
		{ "a b", false },
		{ "\xc3\xa4", false },
		{ "a\n", false },
		{ "ws_abcdefghij", false },
		{ "sn_2345672345", false },
	};
	char longest[NAME_CHARS + 2];
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		assert_int_equal(name_check(table[i].name, NULL) == 0, table[i].good);
	memset(longest, 'x', sizeof(longest));
	longest[NAME_CHARS + 1] = '\0';
	assert_int_equal(name_check(longest, NULL), -EINVAL);
	longest[NAME_CHARS] = '\0';
	assert_int_equal(name_check(longest, NULL), 0);
	char id[ID_SIZE], other[ID_SIZE];
	id_make(id, "ws");
	id_make(other, "ws");
	assert_true(id_is(id, "ws") && !id_is(id, "sn"));
	assert_string_not_equal(id, other);
	assert_int_equal(label_key_check("team/x.y", NULL), 0);
	assert_int_equal(label_key_check("a=b", NULL), -EINVAL);
}

static void removed(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct ws_row in[] = { workspace("one", 100), workspace("two", 200) }, *rows;
	struct ws_row again = workspace("one", 300);
	auto_ws_row got = { 0 };
	struct expired due[4];
	struct meant meant[4];
	size_t n;
	char self[OWNER_SIZE], key[2 * NAME_SIZE];
	owner_self(self);
	(void)snprintf(key, sizeof(key), "%s/one", self);
	in[0].own.expires_ns = 150;
	assert_int_equal(catalog_ws_insert(f->c, in, 2, &err), 0);
	assert_int_equal(catalog_ws_remove(f->c, in[0].id, 1000, 2000, &err), 0);
	assert_int_equal(catalog_ws_remove(f->c, in[0].id, 1000, 2000, &err), -ENOENT);
	reopen(f);
	/* Nobody finds it, by whatever key; its name is another's to take. */
	const char *const keys[] = { "one", in[0].id, key };
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		assert_int_equal(catalog_ws_get(f->c, keys[i], &got, &err), -ENOENT);
		assert_int_equal(catalog_find(f->c, NOUN_WORKSPACE, keys[i], "", meant, 4, &n,
					      &err), 0);
		assert_int_equal(n, 0);
		assert_int_equal(catalog_find(f->c, NOUN_REMOVED, keys[i], "", meant, 4, &n, &err),
				 0);
		assert_int_equal(n, 1);
		assert_string_equal(meant[0].id, in[0].id);
	}
	assert_int_equal(catalog_ws_has_name(f->c, self, "one", &err), 0);
	assert_int_equal(catalog_ws_insert(f->c, &again, 1, &err), 0);
	assert_int_equal(catalog_ws_get_any(f->c, in[0].id, &got, &err), 0);
	assert_true(got.removed_ns == 1000 && got.purge_ns == 2000);
	assert_string_equal(got.was, "one");
	ws_row_done(&got);
	const size_t want[] = { [WS_THERE] = 2, [WS_REMOVED] = 1, [WS_ALL] = 3 };
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(catalog_ws_list(f->c, (enum ws_which)i, &rows, &n, &err), 0);
		assert_int_equal(n, want[i]);
		ws_rows_free(rows, n);
	}
	/* It doesn't expire, but its time comes. */
	assert_int_equal(catalog_expired(f->c, NOUN_WORKSPACE, 5000, 0, due, 4, &n, &err), 0);
	assert_int_equal(n, 0);
	assert_int_equal(catalog_expired(f->c, NOUN_REMOVED, 1999, 0, due, 4, &n, &err), 0);
	assert_int_equal(n, 0);
	assert_int_equal(catalog_expired(f->c, NOUN_REMOVED, 2000, 0, due, 4, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(catalog_ws_undelete(f->c, in[0].id, "one", 1500, &err), -EEXIST);
	assert_int_equal(catalog_ws_undelete(f->c, in[0].id, "old", 1500, &err), 0);
	assert_int_equal(catalog_ws_undelete(f->c, in[0].id, "old", 1500, &err), -ENOENT);
	assert_int_equal(catalog_ws_get(f->c, "old", &got, &err), 0);
	assert_true(!got.removed_ns && !got.purge_ns && !got.was[0] && !got.own.expires_ns);
	/* The last one of a name comes first. */
	assert_int_equal(catalog_ws_remove(f->c, again.id, 3000, 4000, &err), 0);
	assert_int_equal(catalog_ws_undelete(f->c, in[0].id, "x", 0, &err), -ENOENT);
	assert_int_equal(
		catalog_ws_patch(f->c, in[0].id, &(struct ws_patch){ .name = "one" }, &err), 0);
	assert_int_equal(catalog_ws_remove(f->c, in[0].id, 3500, 4500, &err), 0);
	assert_int_equal(catalog_find(f->c, NOUN_REMOVED, "one", "", meant, 4, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_string_equal(meant[0].id, in[0].id);
}

static void quotas(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct quota q = { .owner = "ci", .workspaces = 2, .snapshots = 1, .bytes = QUOTA_NONE },
		     got;
	struct quota *rows;
	struct holding *held;
	size_t n;
	assert_int_equal(catalog_quota_get(f->c, "ci", &got, &err), 0);
	assert_true(got.workspaces == QUOTA_NONE && got.bytes == QUOTA_NONE);
	assert_int_equal(catalog_quota_set(f->c, &q, &err), 0);
	reopen(f);
	assert_int_equal(catalog_quota_get(f->c, "ci", &got, &err), 0);
	assert_true(got.workspaces == 2 && got.snapshots == 1 && got.bytes == QUOTA_NONE);
	struct ws_row in[3];
	for (size_t i = 0; i < 3; i++) {
		char name[] = { (char)('a' + i), 0 };
		in[i] = workspace(name, 1);
		(void)snprintf(in[i].own.owner, sizeof(in[i].own.owner), "ci");
	}
	/* The service itself isn't refused; a caller is, and then nothing is made. */
	struct doing *d = doing_new();
	principal_of_service(&d->caller);
	(void)doing_set(d);
	assert_int_equal(catalog_ws_insert(f->c, in, 3, &err), -EDQUOT);
	assert_non_null(strstr(err.text, "ci may have 2 workspaces"));
	assert_int_equal(catalog_ws_insert(f->c, in, 2, &err), 0);
	assert_int_equal(catalog_ws_insert(f->c, &in[2], 1, &err), -EDQUOT);
	assert_int_equal(catalog_ws_remove(f->c, in[0].id, 5, 6, &err), 0);
	assert_int_equal(catalog_ws_insert(f->c, &in[2], 1, &err), 0);
	assert_int_equal(catalog_ws_undelete(f->c, in[0].id, "a", 5, &err), -EDQUOT);
	struct snap_row s[] = { snapshot("", 1), snapshot("", 2) };
	for (size_t i = 0; i < 2; i++)
		(void)snprintf(s[i].own.owner, sizeof(s[i].own.owner), "ci");
	assert_int_equal(catalog_snap_insert(f->c, &s[0], NULL, NULL, 0, &err), 0);
	assert_int_equal(catalog_snap_insert(f->c, &s[1], NULL, NULL, 0, &err), -EDQUOT);
	/* Both or none, whichever of them there may not be one more of. */
	struct ws_row none = { 0 };
	assert_int_equal(catalog_ws_remove(f->c, in[1].id, 5, 6, &err), 0);
	assert_int_equal(catalog_ws_insert_with(f->c, &in[0], &s[1], &err), -EEXIST);
	in[1] = workspace("with", 1);
	memcpy(in[1].own.owner, "ci", sizeof("ci"));
	assert_int_equal(catalog_ws_insert_with(f->c, &in[1], &s[1], &err), -EDQUOT);
	assert_int_equal(catalog_ws_get(f->c, in[1].id, &none, &err), -ENOENT);
	(void)doing_set(NULL);
	doing_unref(d);
	assert_int_equal(catalog_ws_insert_with(f->c, &in[1], &s[1], &err), 0);
	assert_int_equal(catalog_holdings(f->c, "ci", &held, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_true(held->workspaces == 2 && held->snapshots == 2 && held->stored_bytes == 18);
	free(held);
	assert_int_equal(catalog_quota_list(f->c, &rows, &n, &err), 0);
	assert_int_equal(n, 1);
	free(rows);
	assert_int_equal(catalog_quota_delete(f->c, "ci", &err), 0);
	assert_int_equal(catalog_quota_delete(f->c, "ci", &err), -ENOENT);
}

static void workspaces(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char self[OWNER_SIZE];
	owner_self(self);
	struct ws_row in[] = { workspace("one", 100), workspace("two", 100), workspace("old", 50) };
	in[0].quota_bytes = 1ULL << 50;
	in[0].labels = strdup("{\"a\":\"b\"}");
	buf_add(&in[0].head_stack, "\0stack", 6);
	assert_int_equal(catalog_ws_insert(f->c, in, 3, &err), 0);
	reopen(f);
	auto_ws_row got = { 0 };
	assert_int_equal(catalog_ws_get(f->c, "one", &got, &err), 0);
	assert_string_equal(got.id, in[0].id);
	assert_true(got.mount && got.quota_bytes == 1ULL << 50 && got.created_ns == 100);
	assert_string_equal(got.labels, "{\"a\":\"b\"}");
	assert_int_equal(got.head_stack.len, 6);
	assert_memory_equal(got.head_stack.data, "\0stack", 6);
	ws_row_done(&got);
	assert_int_equal(catalog_ws_get(f->c, in[1].id, &got, &err), 0);
	assert_string_equal(got.name, "two");
	assert_null(got.labels);
	ws_row_done(&got);
	assert_int_equal(catalog_ws_get(f->c, "none", &got, &err), -ENOENT);
	assert_non_null(strstr(err.text, "none"));

	struct ws_row *rows;
	size_t n;
	assert_int_equal(catalog_ws_list(f->c, WS_THERE, &rows, &n, &err), 0);
	assert_int_equal(n, 3);
	assert_string_equal(rows[0].name, "two"); /* of one moment: the later inserted first */
	assert_string_equal(rows[2].name, "old");
	ws_rows_free(rows, n);

	/* All or none. */
	struct ws_row more[] = { workspace("three", 1), workspace("two", 1) };
	assert_int_equal(catalog_ws_insert(f->c, more, 2, &err), -EEXIST);
	assert_non_null(strstr(err.text, "\"two\""));
	assert_int_equal(catalog_ws_has_name(f->c, self, "three", &err), 0);
	assert_int_equal(catalog_ws_has_name(f->c, self, "two", &err), 1);

	uint64_t zero = 0;
	struct ws_patch p = { .name = "uno" };
	assert_int_equal(catalog_ws_patch(f->c, in[0].id, &p, &err), 0);
	p = (struct ws_patch){ .name = "two" };
	assert_int_equal(catalog_ws_patch(f->c, in[0].id, &p, &err), -EEXIST);
	p = (struct ws_patch){ .labels = "", .quota_bytes = &zero };
	assert_int_equal(catalog_ws_patch(f->c, in[0].id, &p, &err), 0);
	assert_int_equal(catalog_ws_patch(f->c, "ws_aaaaaaaaaa", &p, &err), -ENOENT);
	assert_int_equal(catalog_ws_set_head(f->c, in[0].id, "sn_aaaaaaaaaa", "x", 1, &err), 0);
	assert_int_equal(catalog_ws_set_head(f->c, in[0].id, NULL, "yz", 2, &err), 0);
	assert_int_equal(catalog_ws_set_mount(f->c, in[0].id, false, &err), 0);
	assert_int_equal(catalog_ws_set_broken(f->c, in[0].id, "why", &err), 0);
	assert_int_equal(catalog_ws_get(f->c, "uno", &got, &err), 0);
	assert_true(!got.labels && got.quota_bytes == 0 && !got.mount);
	assert_string_equal(got.head, "sn_aaaaaaaaaa");
	assert_int_equal(got.head_stack.len, 2);
	assert_string_equal(got.broken, "why");
	struct catalog_counts counts;
	assert_int_equal(catalog_count(f->c, &counts, &err), 0);
	assert_true(counts.workspaces == 3 && counts.mounted == 2 && counts.broken == 1);
	assert_int_equal(catalog_ws_delete(f->c, in[0].id, &err), 0);
	assert_int_equal(catalog_ws_delete(f->c, in[0].id, &err), -ENOENT);
	assert_int_equal(catalog_sync(f->c, &err), 0);
	for (int i = 0; i < 3; i++)
		ws_row_done(&in[i]);
}

struct seen {
	const struct ws_row *w;
	const struct snap_row *snaps[3];
	unsigned n;
	int stop;
	char last[ID_SIZE];
};

static int see_tree(void *ctx, const struct tree_row *row, struct err *err)
{
	struct seen *s = ctx;
	assert_true(strcmp(row->id, s->last) > 0);
	memcpy(s->last, row->id, sizeof(s->last));
	if (s->w)
		assert_true(strcmp(row->id, s->w->id) == 0 && digest_is_zero(&row->manifest));
	for (unsigned i = 0; i < 3 && s->snaps[i]; i++)
		if (strcmp(row->id, s->snaps[i]->id) == 0)
			s->n += digest_equal(&row->manifest, &s->snaps[i]->manifest);
	s->n += s->w != NULL;
	assert_false(row->removed);
	assert_null(row->git);
	return s->stop;
}

static void snapshots(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char self[OWNER_SIZE];
	owner_self(self);
	struct ws_row w = workspace("w", 1);
	struct snap_row a = snapshot("", 1), b = snapshot(a.id, 2), c = snapshot(b.id, 3), *rows;
	size_t n;
	a.names = strdup("[\"base\",\"v1\"]");
	b.message = strdup("second");
	b.image = strdup("{\"user\":\"u\"}");
	memcpy(b.workspace, w.id, sizeof(b.workspace));
	assert_int_equal(catalog_ws_insert(f->c, &w, 1, &err), 0);
	assert_int_equal(catalog_snap_insert(f->c, &a, NULL, NULL, 0, &err), 0);
	assert_int_equal(catalog_snap_insert(f->c, &b, w.id, "stk", 3, &err), 0);
	assert_int_equal(catalog_snap_insert(f->c, &c, NULL, NULL, 0, &err), 0);
	reopen(f);

	auto_snap_row got = { 0 };
	assert_int_equal(catalog_snap_get(f->c, "v1", &got, &err), 0);
	assert_string_equal(got.id, a.id);
	assert_string_equal(got.names, "[\"base\",\"v1\"]");
	assert_true(digest_equal(&got.manifest, &a.manifest) && got.bytes == 1ULL << 40);
	snap_row_done(&got);
	char prefix[ID_SIZE];
	memcpy(prefix, b.id, sizeof(prefix));
	prefix[8] = '\0';
	assert_int_equal(catalog_snap_get(f->c, prefix, &got, &err), 0);
	assert_string_equal(got.message, "second");
	assert_string_equal(got.image, b.image);
	snap_row_done(&got);
	assert_int_equal(catalog_snap_get(f->c, "sn_", &got, &err), -ENOENT);
	assert_int_equal(catalog_snap_get(f->c, "sn_%____", &got, &err), -ENOENT);

	auto_ws_row head = { 0 };
	assert_int_equal(catalog_ws_get(f->c, "w", &head, &err), 0);
	assert_string_equal(head.head, b.id);

	/* A name that is taken undoes all of the insert. */
	struct snap_row d = snapshot("", 4);
	d.names = strdup("[\"new\",\"base\"]");
	assert_int_equal(catalog_snap_insert(f->c, &d, NULL, NULL, 0, &err), -EEXIST);
	assert_int_equal(catalog_snap_get(f->c, d.id, &got, &err), -ENOENT);
	assert_int_equal(catalog_snap_has_name(f->c, self, "new", NULL, &err), 0);
	char owner[ID_SIZE];
	assert_int_equal(catalog_snap_has_name(f->c, self, "base", owner, &err), 1);
	assert_string_equal(owner, a.id);

	assert_int_equal(catalog_snap_log(f->c, c.id, 0, &rows, &n, &err), 0);
	assert_int_equal(n, 3);
	assert_string_equal(rows[0].id, c.id);
	assert_string_equal(rows[2].id, a.id);
	snap_rows_free(rows, n);
	const struct list_want any = { 0 };
	assert_int_equal(catalog_snap_page(f->c, w.id, false, &any, &rows, &n, &err), 0);
	assert_int_equal(n, 1);
	snap_rows_free(rows, n);
	struct seen seen = { .w = &w };
	assert_int_equal(catalog_trees(f->c, false, see_tree, &seen, &err), 0);
	assert_int_equal(seen.n, 1);
	seen = (struct seen){ .snaps = { &a, &b, &c } };
	assert_int_equal(catalog_trees(f->c, true, see_tree, &seen, &err), 0);
	assert_int_equal(seen.n, 3);
	seen = (struct seen){ .stop = -ECANCELED };
	assert_int_equal(catalog_trees(f->c, true, see_tree, &seen, &err), -ECANCELED);
	assert_int_equal(catalog_snap_trees(f->c, &rows, &n, &err), 0);
	assert_int_equal(n, 3);
	for (size_t i = 0; i < n; i++) {
		const struct snap_row *of = strcmp(rows[i].id, a.id) == 0   ? &a
					    : strcmp(rows[i].id, b.id) == 0 ? &b
									    : &c;
		assert_string_equal(rows[i].id, of->id);
		assert_string_equal(rows[i].own.owner, self);
		assert_true(digest_equal(&rows[i].manifest, &of->manifest));
		assert_null(rows[i].message);
		assert_null(rows[i].image);
	}
	snap_rows_free(rows, n);

	/* Deleting: refused while needed; forced, the line closes. */
	assert_int_equal(catalog_snap_delete(f->c, b.id, false, &err), -ENOTUNIQ);
	assert_int_equal(catalog_snap_refuse(f->c, a.id, NULL, &err), -ENOTUNIQ);
	assert_int_equal(catalog_snap_refuse(f->c, c.id, NULL, &err), 0);
	assert_int_equal(catalog_snap_delete(f->c, b.id, true, &err), 0);
	assert_int_equal(catalog_snap_delete(f->c, b.id, true, &err), -ENOENT);
	assert_int_equal(catalog_snap_log(f->c, c.id, 0, &rows, &n, &err), 0);
	assert_int_equal(n, 2);
	snap_rows_free(rows, n);
	ws_row_done(&head);
	assert_int_equal(catalog_ws_get(f->c, "w", &head, &err), 0);
	assert_string_equal(head.head, a.id);
	assert_int_equal(head.head_stack.len, 0);

	/* A cycle, which only damage can make, ends. */
	memcpy(a.parent, c.id, sizeof(a.parent));
	assert_int_equal(catalog_snap_update(f->c, &a, &err), 0);
	assert_int_equal(catalog_snap_log(f->c, c.id, 0, &rows, &n, &err), 0);
	snap_rows_free(rows, n);
	snap_row_done(&a);
	snap_row_done(&b);
	snap_row_done(&d);
}

/* ---- damage ---- */

static void path_of(const struct fixture *f, const char *name, char out[128])
{
	(void)snprintf(out, 128, "%s/%s", f->root, name);
}

/* With any byte of it flipped, or any length, the catalog opens sound, or says that it is damaged
 * and can be made anew. */
static void damage(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char path[128], wal[128];
	struct ws_row w = workspace("w", 1);
	assert_int_equal(catalog_ws_insert(f->c, &w, 1, &err), 0);
	catalog_close(f->c); /* checkpoints, and takes the log away */
	f->c = NULL;
	path_of(f, "catalog.db", path);
	path_of(f, "catalog.db-wal", wal);
	void *whole;
	size_t len;
	int damaged = 0;
	assert_int_equal(io_slurp(&io_host, AT_FDCWD, path, 1 << 20, &whole, &len, &err), 0);
	for (size_t i = 0; i < 60; i++) {
		auto_fd fd = open(path, O_WRONLY | O_TRUNC);
		size_t at = i < 20 ? i * 5 : (i * 7919) % len;
		uint8_t flipped = ((uint8_t *)whole)[at] ^ 0xff;
		size_t keep = i % 4 == 3 ? at : len;
		assert_int_equal(pwrite(fd, whole, keep, 0), keep);
		if (keep == len)
			assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
		int r = catalog_open(&f->c, f->root, NULL, &err);
		if (r == -ENOTSUP)
			continue; /* the version it claims is one of the future */
		assert_int_equal(r, 0);
		auto_ws_row got = { 0 };
		r = catalog_ws_get(f->c, "w", &got, &err);
		assert_true(r == 0 || r == -ENOENT || r == -EUCLEAN);
		if (catalog_damage(f->c)) {
			damaged++;
			assert_non_null(strstr(err.text, path));
			assert_non_null(strstr(err.text, "bough fsck --repair"));
			assert_int_equal(catalog_rebuild(f->c, &err), 0);
			assert_null(catalog_damage(f->c));
			assert_int_equal(catalog_ws_get(f->c, "w", &got, &err), -ENOENT);
			assert_int_equal(catalog_ws_insert(f->c, &w, 1, &err), 0);
			assert_int_equal(catalog_sync(f->c, &err), 0);
		}
		catalog_close(f->c);
		f->c = NULL;
		(void)unlink(wal);
	}
	free(whole);
	assert_true(damaged > 20);
	assert_int_equal(catalog_open(&f->c, f->root, NULL, &err), 0);
}

static void future(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char path[128];
	sqlite3 *db;
	catalog_close(f->c);
	f->c = NULL;
	path_of(f, "catalog.db", path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	assert_int_equal(catalog_open(&f->c, f->root, NULL, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "99"));
	f->c = NULL;
}

/* The log is copied back while changes go on, and used again. */
static void checkpoints(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct ws_row w = workspace("w", 1);
	char path[128];
	struct stat st;
	assert_int_equal(catalog_ws_insert(f->c, &w, 1, &err), 0);
	path_of(f, "catalog.db-wal", path);
	for (int round = 0; round < 8; round++) {
		for (int i = 0; i < 1000; i++)
			assert_int_equal(catalog_ws_set_mount(f->c, w.id, i & 1, &err), 0);
		usleep(100000);
	}
	assert_int_equal(stat(path, &st), 0);
	assert_in_range(st.st_size, 1, 24 << 20);
	path_of(f, "catalog.db", path);
	assert_int_equal(stat(path, &st), 0);
	assert_in_range(st.st_size, 8192, 1 << 20);
}

/* ---- threads ---- */

struct worker {
	struct catalog *c;
	int number, failures;
};

static void *work(void *arg)
{
	struct worker *wk = arg;
	for (int i = 0; i < 150; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "t%d-%d", wk->number, i);
		struct ws_row row = workspace(name, i);
		auto_ws_row got = { 0 };
		wk->failures += catalog_ws_insert(wk->c, &row, 1, NULL) < 0;
		wk->failures += catalog_ws_get(wk->c, name, &got, NULL) < 0;
		if (i % 3 == 0)
			wk->failures += catalog_ws_delete(wk->c, row.id, NULL) < 0;
		if (i % 50 == 0)
			wk->failures += catalog_sync(wk->c, NULL) < 0;
	}
	return NULL;
}

static void threads(void **state)
{
	struct fixture *f = *state;
	struct worker w[4];
	pthread_t t[4];
	struct ws_row *rows;
	size_t n;
	for (int i = 0; i < 4; i++) {
		w[i] = (struct worker){ f->c, i, 0 };
		assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(w[i].failures, 0);
	}
	assert_int_equal(catalog_ws_list(f->c, WS_THERE, &rows, &n, NULL), 0);
	assert_int_equal(n, 400);
	ws_rows_free(rows, n);
}

/* ---- records ---- */

/* Who reads waits for no writer, and sees what was committed, not what is under way. */
static void readers(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct ws_row row = workspace("seen", 1);
	auto_ws_row got = { 0 };
	struct ws_row *rows;
	size_t n;
	assert_int_equal(catalog_ws_insert(f->c, &row, 1, &err), 0);
	assert_int_equal(db_start(f->c, &err), 0);
	assert_int_equal(db_set_head(f->c, row.id, "sn_aaaaaaaaaa", "x", 1, &err), 0);
	assert_int_equal(catalog_ws_get(f->c, row.id, &got, &err), 0);
	assert_string_equal(got.head, "");
	assert_int_equal(catalog_ws_list(f->c, WS_THERE, &rows, &n, &err), 0);
	assert_int_equal(n, 1);
	ws_rows_free(rows, n);
	assert_int_equal(db_finish(f->c, 0, &err), 0);
	/* The key may lie in the row that is read. */
	assert_int_equal(catalog_ws_get(f->c, got.id, &got, &err), 0);
	assert_string_equal(got.head, "sn_aaaaaaaaaa");
	assert_int_equal(got.head_stack.len, 1);
}

static void records(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct records *r;
	assert_int_equal(records_open(&r, f->root, NULL, &err), 0);
	struct ws_row w = workspace("w", 1700000000123456789);
	w.labels = strdup("{\"k\":\"v\"}");
	w.quota_inodes = 5;
	(void)snprintf(w.head, sizeof(w.head), "sn_aaaaaaaaaa");
	assert_true(records_ws_write(r, &w, &err) < 0); /* no folder */
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/ws/%s", f->root, w.id);
	assert_int_equal(mkdir(path, 0700), 0);
	auto_ws_row got = { 0 };
	assert_int_equal(records_ws_read(r, w.id, &got, &err), -ENOENT);
	assert_int_equal(records_ws_write(r, &w, &err), 0);
	assert_int_equal(records_ws_read(r, w.id, &got, &err), 0);
	assert_string_equal(got.name, "w");
	assert_string_equal(got.labels, w.labels);
	assert_string_equal(got.head, w.head);
	assert_string_equal(got.parent, "");
	assert_true(got.created_ns == w.created_ns && got.quota_inodes == 5 && got.mount);

	struct snap_row s = snapshot("sn_bbbbbbbbbb", 12), back = { 0 };
	s.message = strdup("a \"message\"\n");
	s.names = strdup("[\"n\"]");
	s.image = strdup("{\"cmd\":[\"sh\"]}");
	assert_int_equal(records_snap_write(r, &s, true, &err), 0);
	assert_int_equal(records_snap_read(r, s.id, &back, &err), 0);
	assert_string_equal(back.message, s.message);
	assert_string_equal(back.names, s.names);
	assert_string_equal(back.image, s.image);
	assert_string_equal(back.parent, s.parent);
	assert_true(digest_equal(&back.manifest, &s.manifest) && back.bytes == s.bytes);
	snap_row_done(&back);

	char(*ids)[ID_SIZE];
	size_t n;
	(void)snprintf(path, sizeof(path), "%s/snapshots/.tmp-x", f->root);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(records_snap_ids(r, &ids, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_string_equal(ids[0], s.id);
	free(ids);
	assert_int_equal(records_ws_ids(r, &ids, &n, &err), 0);
	assert_int_equal(n, 1);
	free(ids);
	assert_int_equal(records_ws_remove(r, w.id, &err), 0);
	assert_int_equal(records_ws_remove(r, w.id, &err), 0);
	assert_int_equal(records_ws_remove(r, "ws_aaaaaaaaaa", &err), 0);
	assert_int_equal(records_snap_remove(r, s.id, &err), 0);
	assert_int_equal(records_snap_read(r, s.id, &back, &err), -ENOENT);
	records_close(r);
	ws_row_done(&w);
	snap_row_done(&s);
}

/* The rest of a workspace's record behind its id and name. */
#define REST ",\"created_ns\":1,\"quota_bytes\":0,\"quota_inodes\":0"
#define GOOD "{\"id\":\"ws_aaaaaaaaaa\",\"name\":\"n\"" REST

static void bad_records(void **state)
{
	static const char *const table[] = {
		"",
		"{",
		"[]",
		"null",
		"{}",
		"{\"id\":\"ws_aaaaaaaaaa\"}",
		"{\"id\":\"../../etc\",\"name\":\"n\"" REST "}",
		"{\"id\":\"ws_aaaaaaaaaa\",\"name\":\"../x\"" REST "}",
		"{\"id\":\"ws_aaaaaaaaaa\",\"name\":\"n\"}",
		GOOD ",\"name\":\"m\"}",
		GOOD ",\"labels\":[]}",
		GOOD ",\"labels\":{\"a\":1}}",
		GOOD ",\"head\":\"ws_aaaaaaaaaa\"}",
		GOOD ",\"parent\":7}",
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct ws_row row;
		assert_int_equal(ws_record_decode(&row, table[i], strlen(table[i])), -EBADMSG);
		struct snap_row snap;
		assert_int_equal(snap_record_decode(&snap, table[i], strlen(table[i])), -EBADMSG);
	}
	struct ws_row row;
	assert_int_equal(ws_record_decode(&row, GOOD "}", strlen(GOOD "}")), 0);
	ws_row_done(&row);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test_setup_teardown(workspaces, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(removed, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(quotas, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(snapshots, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(damage, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(future, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(checkpoints, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(threads, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(readers, set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(records, set_up, catalog_tear_down),
		cmocka_unit_test(bad_records),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
