/* Owners and names of them, tokens, teams; keys that count once; jobs and audit rows; events. */
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
#include "snapd/access.h"
#include "snapd/catalog_sandbox.h"
#include "snapd/config.h"
#include "snapd/events.h"
#include "snapd/hooks.h"
#include "snapd/journal.h"
#include "snapd/repos.h"
#include "tests/unit/catalog_kit.h"

enum {
	AUDIT_TEST = 1000, /* BOUGH_AUDIT_MAX */
	BUSY_MS = 60000,   /* the catalog may just be writing */
};

static void add_ws(struct fixture *f, const char *owner, const char *name, enum visibility v,
		   const char *team, char id[ID_SIZE])
{
	struct err err = { 0 };
	struct ws_row row = { .created_ns = 1 };
	id_make(row.id, "ws");
	(void)snprintf(row.name, sizeof(row.name), "%s", name);
	(void)snprintf(row.own.owner, sizeof(row.own.owner), "%s", owner);
	(void)snprintf(row.own.team, sizeof(row.own.team), "%s", team);
	row.own.visibility = v;
	row.own.expires_ns = 77;
	row.own.on_expiry = EXPIRY_SAVE;
	assert_int_equal(catalog_ws_insert(f->c, &row, 1, &err), 0);
	memcpy(id, row.id, ID_SIZE);
}

static struct principal who(const char *owner)
{
	struct principal p = { .known = true, .uid = (uid_t)-1 };
	(void)snprintf(p.owner, sizeof(p.owner), "%s", owner);
	return p;
}

/* ---- names ---- */

/* However many others use a name, it means one's own, or the one that everybody sees. */
static void names_of_many(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct meant m;
	char owner[OWNER_SIZE], id[ID_SIZE];
	for (int i = 0; i < 100; i++) {
		(void)snprintf(owner, sizeof(owner), "uid:%d", 1000 + i);
		add_ws(f, owner, "app", VISIBLE_PRIVATE, "", id);
	}
	struct principal last = who(owner), stranger = who("uid:4");
	assert_int_equal(access_find(&f->sd, &last, NOUN_WORKSPACE, true, "app", &m, &err), 0);
	assert_string_equal(m.id, id);
	assert_int_equal(access_find(&f->sd, &stranger, NOUN_WORKSPACE, false, "app", &m, &err),
			 -ENOENT);
	add_ws(f, "ci", "app", VISIBLE_GLOBAL, "", id);
	assert_int_equal(access_find(&f->sd, &stranger, NOUN_WORKSPACE, false, "app", &m, &err), 0);
	assert_string_equal(m.id, id);
	assert_int_equal(access_find(&f->sd, &last, NOUN_WORKSPACE, true, "app", &m, &err), 0);
	assert_string_equal(m.own.owner, owner);
}

static void names_of_owners(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char a[ID_SIZE], b[ID_SIZE], c[ID_SIZE], d[ID_SIZE];
	struct meant m;
	add_ws(f, "uid:1", "app", VISIBLE_PRIVATE, "", a);
	add_ws(f, "uid:2", "app", VISIBLE_GLOBAL, "", b);
	add_ws(f, "uid:3", "app", VISIBLE_GLOBAL, "", c);
	add_ws(f, "uid:3", "only", VISIBLE_GLOBAL, "", d);
	struct principal p1 = who("uid:1"), p4 = who("uid:4"), root = who("uid:0");
	root.admin = true;
	/* One's own, though others have it too. */
	assert_int_equal(access_find(&f->sd, &p1, false, true, "app", &m, &err), 0);
	assert_string_equal(m.id, a);
	assert_int_equal(m.own.expires_ns, 77);
	assert_int_equal(m.own.on_expiry, EXPIRY_SAVE);
	/* Of several that one sees: say which. */
	assert_int_equal(access_find(&f->sd, &p4, false, false, "app", &m, &err), -ENOTUNIQ);
	assert_int_equal(access_find(&f->sd, &p4, false, false, "uid:2/app", &m, &err), 0);
	assert_string_equal(m.id, b);
	assert_int_equal(access_find(&f->sd, &root, false, true, "app", &m, &err), -ENOTUNIQ);
	assert_int_equal(access_find(&f->sd, &p4, false, false, "only", &m, &err), 0);
	assert_string_equal(m.id, d);
	/* What one sees may be another's; what one doesn't isn't there, by id neither. */
	assert_int_equal(access_find(&f->sd, &p4, false, true, "only", &m, &err), -EPERM);
	assert_int_equal(access_find(&f->sd, &p4, false, false, "uid:1/app", &m, &err), -ENOENT);
	assert_int_equal(access_find(&f->sd, &p4, false, false, a, &m, &err), -ENOENT);
	assert_int_equal(access_find(&f->sd, &root, false, true, a, &m, &err), 0);
	/* A user's name stands for the uid. */
	struct user_row u = { .name = "ann", .has_uid = true, .uid = 2, .created_ns = 1 };
	assert_int_equal(catalog_user_insert(f->c, &u, &err), 0);
	assert_int_equal(catalog_user_insert(f->c, &u, &err), -EEXIST);
	assert_int_equal(access_find(&f->sd, &p4, false, false, "ann/app", &m, &err), 0);
	assert_string_equal(m.id, b);
	/* The scope of a token is a limit even for an admin's. */
	memcpy(root.workspace, b, ID_SIZE);
	assert_int_equal(access_find(&f->sd, &root, false, false, a, &m, &err), -ENOENT);
	assert_int_equal(access_find(&f->sd, &root, false, true, b, &m, &err), 0);
	root.read_only = true;
	assert_int_equal(access_find(&f->sd, &root, false, true, b, &m, &err), -EPERM);
}

static struct team_row new_team(const char *owner, const char *name)
{
	struct team_row t = { .created_ns = 1 };
	id_make(t.id, "tm");
	(void)snprintf(t.owner, sizeof(t.owner), "%s", owner);
	(void)snprintf(t.name, sizeof(t.name), "%s", name);
	return t;
}

static void teams(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char id[ID_SIZE];
	static const struct {
		const char *owner;
		int role; /* -1: none */
		bool sees, writes;
	} table[] = {
		{ "uid:1", -1, true, true }, /* its owner */
		{ "uid:2", ROLE_ADMIN, true, true },   { "uid:3", ROLE_MEMBER, true, true },
		{ "uid:4", ROLE_READER, true, false }, { "uid:5", -1, false, false },
	};
	struct team_row t = new_team("uid:2", "t");
	assert_int_equal(catalog_team_insert(f->c, &t, &err), 0);
	struct team_row again = new_team("uid:2", "t");
	assert_int_equal(catalog_team_insert(f->c, &again, &err), -EEXIST);
	assert_int_equal(catalog_role(f->c, again.id, "uid:2", &err), -ENOENT); /* all or nothing */
	add_ws(f, "uid:1", "w", VISIBLE_TEAM, t.id, id);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].role >= 0)
			assert_int_equal(catalog_member_set(f->c, t.id, table[i].owner,
							    (enum role)table[i].role, &err),
					 0);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct principal p = who(table[i].owner);
		struct meant m;
		int r = access_find(&f->sd, &p, false, false, id, &m, &err);
		assert_int_equal(r, table[i].sees ? 0 : -ENOENT);
		r = access_find(&f->sd, &p, false, true, id, &m, &err);
		assert_int_equal(r, table[i].writes ? 0 : table[i].sees ? -EPERM : -ENOENT);
	}
	assert_int_equal(catalog_member_delete(f->c, t.id, "uid:3", &err), 0);
	assert_int_equal(catalog_member_delete(f->c, t.id, "uid:3", &err), -ENOENT);
	/* A team's token is for what the team is shown, as its owner may do in it. */
	struct principal p = who("uid:2"), reader = who("uid:4");
	struct meant m;
	char own[ID_SIZE], global[ID_SIZE];
	add_ws(f, "uid:2", "own", VISIBLE_PRIVATE, "", own);
	add_ws(f, "uid:1", "global", VISIBLE_GLOBAL, "", global);
	memcpy(p.team, t.id, ID_SIZE);
	memcpy(reader.team, t.id, ID_SIZE);
	assert_int_equal(access_find(&f->sd, &p, NOUN_WORKSPACE, true, id, &m, &err), 0);
	assert_int_equal(access_find(&f->sd, &p, NOUN_WORKSPACE, false, own, &m, &err), -ENOENT);
	assert_int_equal(access_find(&f->sd, &p, NOUN_WORKSPACE, false, global, &m, &err),
			 -ENOENT);
	assert_int_equal(access_find(&f->sd, &reader, NOUN_WORKSPACE, true, id, &m, &err), -EPERM);
	p.team[0] = '\0';
	/* With the team goes what it saw, its tokens too; a later one of that name gets none. */
	struct sandbox_row box = { .own = { .owner = "uid:1", .visibility = VISIBLE_TEAM },
				   .name = "box", .created_ns = 1, .spec = (char *)"{}" };
	id_make(box.id, "sb");
	memcpy(box.own.team, t.id, ID_SIZE);
	assert_int_equal(catalog_sandbox_insert(f->c, &box, &err), 0);
	struct token_row token = { .id = "tk_aaaaaaaaaa", .owner = "uid:2", .created_ns = 1 };
	memcpy(token.team, t.id, ID_SIZE);
	assert_int_equal(catalog_token_insert(f->c, &token, &err), 0);
	assert_int_equal(catalog_token_get(f->c, token.id, &token, &err), 0);
	assert_string_equal(token.team, t.id);
	assert_int_equal(access_find(&f->sd, &p, NOUN_SANDBOX, false, box.id, &m, &err), 0);
	assert_int_equal(catalog_team_delete(f->c, t.id, &err), 0);
	assert_int_equal(catalog_token_get(f->c, token.id, &token, &err), -ENOENT);
	assert_int_equal(catalog_team_insert(f->c, &again, &err), 0);
	assert_int_equal(access_find(&f->sd, &p, NOUN_WORKSPACE, false, id, &m, &err), -ENOENT);
	assert_int_equal(access_find(&f->sd, &p, NOUN_SANDBOX, false, box.id, &m, &err), -ENOENT);
	auto_sandbox_row left = { 0 };
	assert_int_equal(catalog_sandbox_get(f->c, box.id, &left, &err), 0);
	assert_int_equal(left.own.visibility, VISIBLE_PRIVATE);
}

/* Names of teams are unique for each owner; by the name alone one's own is meant, else the only one
 * that one is in. */
static void teams_of_owners(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct team_row a = new_team("uid:1", "web"), b = new_team("uid:2", "web"), got;
	assert_int_equal(catalog_team_insert(f->c, &a, &err), 0);
	assert_int_equal(catalog_team_insert(f->c, &b, &err), 0);
	assert_int_equal(catalog_member_set(f->c, a.id, "uid:2", ROLE_READER, &err), 0);
	assert_int_equal(catalog_member_set(f->c, a.id, "uid:3", ROLE_MEMBER, &err), 0);
	assert_int_equal(catalog_member_set(f->c, a.id, "uid:4", ROLE_MEMBER, &err), 0);
	assert_int_equal(catalog_member_set(f->c, b.id, "uid:4", ROLE_READER, &err), 0);
	const struct {
		const char *who, *key;
		int r;
		const struct team_row *is;
	} table[] = {
		{ "uid:1", "web", ROLE_ADMIN, &a },	  { "uid:2", "web", ROLE_ADMIN, &b },
		{ "uid:2", "uid:1/web", ROLE_READER, &a }, { "uid:2", a.id, ROLE_READER, &a },
		{ "uid:3", "web", ROLE_MEMBER, &a },	  { "uid:3", "uid:2/web", -ENOENT, NULL },
		{ "uid:3", b.id, -ENOENT, NULL },	  { "uid:4", "web", -ENOTUNIQ, NULL },
		{ "uid:4", "uid:2/web", ROLE_READER, &b }, { "uid:5", "web", -ENOENT, NULL },
		{ "uid:1", "uid:9/web", -ENOENT, NULL },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct principal p = who(table[i].who);
		assert_int_equal(access_find_team(&f->sd, &p, table[i].key, &got, &err),
				 table[i].r);
		if (table[i].is)
			assert_string_equal(got.id, table[i].is->id);
	}
}

/* A catalog that can't say who is in a team hasn't said that nobody is. */
static void teams_unknown(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct team_row t = new_team("uid:1", "web"), got;
	struct principal p = who("uid:2");
	struct meant m;
	char id[ID_SIZE], path[128];
	sqlite3 *db;
	assert_int_equal(catalog_team_insert(f->c, &t, &err), 0);
	assert_int_equal(catalog_member_set(f->c, t.id, "uid:2", ROLE_MEMBER, &err), 0);
	add_ws(f, "uid:1", "shown", VISIBLE_TEAM, t.id, id);
	assert_int_equal(access_find(&f->sd, &p, NOUN_WORKSPACE, true, id, &m, &err), 0);
	(void)snprintf(path, sizeof(path), "%s/catalog.db", f->root);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
	(void)sqlite3_busy_timeout(db, BUSY_MS);
	assert_int_equal(sqlite3_exec(db, "DROP TABLE members", NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	int r = access_find_team(&f->sd, &p, t.id, &got, &err);
	assert_true(r < 0 && r != -ENOENT);
	assert_int_equal(err.code, r);
	r = access_find(&f->sd, &p, NOUN_WORKSPACE, false, id, &m, &err);
	assert_true(r < 0 && r != -ENOENT);
	assert_int_equal(err.code, r);
	const struct owned own = { .owner = "uid:1", .visibility = VISIBLE_TEAM };
	assert_false(access_sees(&f->sd, &p, &own, id));
}

/* What of others stands on a snapshot isn't told to who may not see it. */
static void needed(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct team_row t = new_team("uid:2", "t");
	struct snap_row s = { .created_ns = 1, .own = { .owner = "uid:1" } };
	char id[ID_SIZE];
	id_make(s.id, "sn");
	assert_int_equal(catalog_team_insert(f->c, &t, &err), 0);
	assert_int_equal(catalog_snap_insert(f->c, &s, NULL, NULL, 0, &err), 0);
	add_ws(f, "uid:2", "secret", VISIBLE_PRIVATE, "", id);
	assert_int_equal(catalog_ws_set_head(f->c, id, s.id, NULL, 0, &err), 0);
	assert_int_equal(catalog_snap_refuse(f->c, s.id, NULL, &err), -ENOTUNIQ);
	assert_non_null(strstr(err.text, "secret"));
	assert_int_equal(catalog_snap_refuse(f->c, s.id, "uid:2", &err), -ENOTUNIQ);
	assert_int_equal(catalog_snap_refuse(f->c, s.id, "uid:1", &err), 0);
	struct owned own = { .owner = "uid:2", .visibility = VISIBLE_TEAM };
	const struct ws_patch p = { .own = &own };
	memcpy(own.team, t.id, ID_SIZE);
	assert_int_equal(catalog_ws_patch(f->c, id, &p, &err), 0);
	assert_int_equal(catalog_snap_refuse(f->c, s.id, "uid:1", &err), 0);
	assert_int_equal(catalog_member_set(f->c, t.id, "uid:1", ROLE_READER, &err), 0);
	assert_int_equal(catalog_snap_refuse(f->c, s.id, "uid:1", &err), -ENOTUNIQ);
}

/* ---- tokens ---- */

static int identify(struct fixture *f, const char *text, struct principal *p)
{
	struct err err = { 0 };
	struct web_peer peer = { .address = "192.0.2.1:7" };
	char header[TOKEN_TEXT + 16];
	(void)snprintf(header, sizeof(header), "Bearer %s", text);
	return auth_identify(&f->sd, &peer, header, p, &err);
}

static void tokens(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct principal p = { 0 };
	struct token_row t = { .owner = "uid:7", .created_ns = 1, .read_only = true };
	char text[TOKEN_TEXT], bad[TOKEN_TEXT], id[ID_SIZE];
	auth_token_make(&t, text);
	assert_int_equal(strlen(text), TOKEN_TEXT - 1);
	assert_int_equal(auth_token_id(text, id), 0);
	assert_string_equal(id, t.id);
	assert_int_equal(identify(f, text, &p), -EKEYREJECTED);
	assert_int_equal(catalog_token_insert(f->c, &t, &err), 0);
	assert_int_equal(identify(f, text, &p), 0);
	assert_true(p.known && !p.admin && p.read_only && p.uid == 7);
	assert_string_equal(p.owner, "uid:7");
	assert_string_equal(p.from, "192.0.2.1:7");
	/* Each single character counts. */
	for (size_t i = 0; i < TOKEN_TEXT - 1; i++) {
		memcpy(bad, text, sizeof(bad));
		bad[i] = bad[i] == 'a' ? 'b' : 'a';
		assert_int_equal(identify(f, bad, &p), -EKEYREJECTED);
	}
	text[TOKEN_TEXT - 2] = '\0';
	assert_int_equal(identify(f, text, &p), -EKEYREJECTED);
	assert_int_equal(identify(f, "", &p), -EKEYREJECTED);
	/* Its time. */
	struct token_row old = { .owner = "x", .created_ns = 1, .expires_ns = 2 };
	auth_token_make(&old, text);
	assert_int_equal(catalog_token_insert(f->c, &old, &err), 0);
	assert_int_equal(identify(f, text, &p), -EKEYREJECTED);
	/* Users take theirs along. */
	struct user_row u = { .name = "bot", .created_ns = 1 };
	struct token_row mine = { .owner = "bot", .created_ns = 1, .admin = true };
	auth_token_make(&mine, text);
	assert_int_equal(catalog_user_insert(f->c, &u, &err), 0);
	assert_int_equal(catalog_token_insert(f->c, &mine, &err), 0);
	assert_int_equal(identify(f, text, &p), 0);
	assert_true(p.admin && p.uid == (uid_t)-1);
	assert_int_equal(catalog_user_delete(f->c, "bot", "bot", &err), 0);
	assert_int_equal(identify(f, text, &p), -EKEYREJECTED);
}

static void paths(void **state)
{
	static const struct {
		const char *scope, *path;
		bool covers;
	} table[] = {
		{ "", "", true },         { "", "any/where", true },  { "src", "src", true },
		{ "src", "src/a", true }, { "src", "src/a/b", true }, { "src", "", false },
		{ "src", "srcs", false }, { "src", "sr", false },     { "src", "a/src", false },
		{ "a/b", "a", false },    { "a/b", "a/b/c", true },   { "a/b", "a/bc", false },
		{ "src", "src.", false }, { "src", "/src", false },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		assert_int_equal(access_path_covers(table[i].scope, table[i].path),
				 table[i].covers);
}

/* Nobody becomes by a name who somebody else was. */
static void names_again(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char owner[OWNER_SIZE], longest[NAME_SIZE];
	memset(longest, 'x', NAME_CHARS);
	longest[NAME_CHARS] = '\0';
	const char *const names[] = { "bot", longest };
	for (size_t i = 0; i < 2; i++) {
		struct user_row a = { .created_ns = 1 };
		(void)snprintf(a.name, sizeof(a.name), "%s", names[i]);
		struct user_row b = a, c = a;
		assert_int_equal(catalog_user_insert(f->c, &a, &err), 0);
		assert_string_equal(a.owner, names[i]);
		assert_int_equal(catalog_user_insert(f->c, &b, &err), -EEXIST);
		assert_int_equal(catalog_user_delete(f->c, a.name, a.owner, &err), 0);
		b.owner[0] = '\0';
		assert_int_equal(catalog_user_insert(f->c, &b, &err), 0);
		assert_string_not_equal(b.owner, a.owner);
		assert_int_equal(auth_owner(&f->sd, names[i], owner, &err), 0);
		assert_string_equal(owner, b.owner);
		assert_int_equal(catalog_user_delete(f->c, b.name, b.owner, &err), 0);
		assert_int_equal(catalog_user_insert(f->c, &c, &err), 0);
		assert_true(strcmp(c.owner, a.owner) != 0 && strcmp(c.owner, b.owner) != 0);
		assert_int_equal(catalog_user_delete(f->c, c.name, c.owner, &err), 0);
		/* But where it is said. */
		assert_int_equal(catalog_user_insert(f->c, &a, &err), 0);
		assert_string_equal(a.owner, names[i]);
	}
	/* Whoever has things is an owner, user or not. */
	struct ws_row ws = { .created_ns = 1, .name = "w" };
	struct user_row u = { .name = "ghost", .created_ns = 1 };
	id_make(ws.id, "ws");
	(void)snprintf(ws.own.owner, sizeof(ws.own.owner), "ghost");
	assert_int_equal(catalog_ws_insert(f->c, &ws, 1, &err), 0);
	assert_int_equal(catalog_user_insert(f->c, &u, &err), 0);
	assert_string_equal(u.owner, "ghost~2");
}

static void peers(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct principal p;
	struct web_peer peer = { .local = true, .uid = geteuid() + 1000, .gid = 5, .pid = 3 };
	assert_int_equal(auth_identify(&f->sd, &peer, NULL, &p, &err), -EPERM);
	f->sd.multi_user = true;
	assert_int_equal(auth_identify(&f->sd, &peer, NULL, &p, &err), 0);
	assert_true(p.known && !p.admin && p.gid == 5);
	struct user_row u = { .name = "boss", .has_uid = true, .uid = peer.uid, .admin = true };
	assert_int_equal(catalog_user_insert(f->c, &u, &err), 0);
	assert_int_equal(auth_identify(&f->sd, &peer, NULL, &p, &err), 0);
	assert_true(p.admin);
	peer.uid = geteuid();
	assert_int_equal(auth_identify(&f->sd, &peer, NULL, &p, &err), 0);
	assert_true(p.admin);
	struct web_peer tcp = { .address = "x" };
	assert_int_equal(auth_identify(&f->sd, &tcp, NULL, &p, &err), -EKEYREJECTED);
	assert_int_equal(auth_identify(&f->sd, &tcp, "Basic eA==", &p, &err), -EKEYREJECTED);
}

/* ---- keys ---- */

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct doing *doing_of(const char *key)
{
	struct doing *d = doing_new();
	assert_non_null(d);
	d->caller = who("uid:1");
	d->method = "POST";
	d->path = strdup("/v1/workspaces");
	d->key = strdup(key);
	memset(d->body.b, 7, sizeof(d->body.b));
	return d;
}

static void keys(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct repeat was = { 0 };
	struct doing *d = doing_of("k");
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
	assert_true(was.status == 0 && digest_equal(&was.body, &d->body));
	repeat_done(&was);
	/* What it makes is noted with it, and not when it isn't made. */
	char id[ID_SIZE];
	d->keyed = true;
	assert_null(doing_set(d));
	add_ws(f, "uid:1", "w", VISIBLE_PRIVATE, "", id);
	struct ws_row twice = { .created_ns = 1, .name = "w", .own.owner = "uid:1" };
	id_make(twice.id, "ws");
	assert_int_equal(catalog_ws_insert(f->c, &twice, 1, &err), -EEXIST);
	(void)doing_set(NULL);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
	assert_string_equal(was.effect, id);
	repeat_done(&was);
	/* After a kill: what had an effect is done, what had none never was. */
	struct doing *other = doing_of("other");
	assert_int_equal(catalog_repeat_begin(f->c, other, &was, &err), 1);
	assert_int_equal(catalog_journal_begin(f->c, &err), 0);
	assert_int_equal(catalog_repeat_begin(f->c, other, &was, &err), 1);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
	assert_int_equal(was.status, 201);
	repeat_done(&was);
	assert_int_equal(catalog_repeat_end(f->c, d, 409, "{}", &err), 0);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
	assert_int_equal(was.status, 409);
	assert_string_equal(was.answer, "{}");
	repeat_done(&was);
	assert_int_equal(catalog_repeat_end(f->c, d, 0, NULL, &err), 0);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1);
	/* A day later it is free. */
	assert_int_equal(catalog_journal_trim(f->c, INT64_MAX, &err), 0);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1);
	doing_unref(other);
	doing_unref(d);
}

/* ---- what came with a key ---- */

static struct digest summed(const char *without, const char *text, size_t piece)
{
	struct doing *d = doing_new();
	struct digest of = { { 0 } };
	size_t len = strlen(text);
	assert_non_null(d);
	assert_int_equal(doing_sum_begin(d, without), 0);
	for (size_t at = 0; at < len; at += piece)
		doing_sum_add(d, text + at, len - at < piece ? len - at : piece);
	doing_sum_end(d);
	assert_non_null(doing_summed(d));
	of = *doing_summed(d);
	doing_unref(d);
	return of;
}

/* A form's boundary doesn't count, however it comes; all else does, also what begins like it. */
static void forms(void **state)
{
	static const struct {
		const char *without, *text, *same;
	} table[] = {
		{ "aab", "aab1aab2aab", "12" },       { "aab", "aaab1aab", "a1" },
		{ "aab", "aa1aab", "aa1" },	      { "aab", "1aa", "1aa" },
		{ "x", "xx1x2", "12" },		      { "abac", "abaabacaba", "abaaba" },
		{ "none", "--one--", "--one--" },     { "abcabd", "abcabcabd1", "abc1" },
		{ "aaa", "aaaaa1", "aa1" },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct digest want = summed(NULL, table[i].same, 100);
		for (size_t piece = 1; piece < 12; piece++) {
			struct digest got = summed(table[i].without, table[i].text, piece);
			assert_true(digest_equal(&got, &want));
		}
	}
	struct digest one = summed("one", "--one 1 --one--", 3);
	struct digest two = summed("other", "--other 1 --other--", 5);
	struct digest else_ = summed("other", "--other 2 --other--", 5);
	assert_true(digest_equal(&one, &two));
	assert_false(digest_equal(&one, &else_));
}

/* What is about to be made counts for its key once it is there, also when a start adopts it. */
static void intended(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	for (int made = 0; made < 2; made++) {
		struct doing *d = doing_new();
		struct repeat r = { 0 };
		struct snap_row snap = { .created_ns = 1 };
		id_make(snap.id, "sn");
		principal_of_service(&d->caller);
		d->method = "POST";
		d->path = strdup("/v1/workspaces/w/snapshots");
		d->key = strdup(made ? "made" : "not");
		assert_int_equal(catalog_repeat_begin(f->c, d, &r, &err), 1);
		d->keyed = true;
		(void)doing_set(d);
		assert_int_equal(catalog_intend(f->c, snap.id, &err), 0);
		(void)doing_set(NULL);
		/* Here it was killed, and the record adopted. */
		if (made)
			assert_int_equal(catalog_snap_insert(f->c, &snap, NULL, NULL, 0, &err), 0);
		assert_int_equal(catalog_journal_begin(f->c, &err), 0);
		assert_int_equal(catalog_repeat_begin(f->c, d, &r, &err), !made);
		if (made) {
			assert_int_equal(r.status, 201);
			assert_string_equal(r.effect, snap.id);
		}
		repeat_done(&r);
		doing_unref(d);
	}
}

/* Whatever a POST makes in the catalog alone is noted with it, or neither is there. */
static int make_token(struct catalog *c, char effect[64], struct err *err)
{
	char text[TOKEN_TEXT];
	struct token_row row = { .owner = "uid:1", .created_ns = 1 };
	auth_token_make(&row, text);
	(void)snprintf(effect, 64, "%s", row.id);
	return catalog_token_insert(c, &row, err);
}

static int make_hook(struct catalog *c, char effect[64], struct err *err)
{
	struct hook_row row = { .owner = "uid:1", .url = (char *)"https://d/", .created_ns = 1 };
	id_make(row.id, "wh");
	buf_add(&row.secret, "x", 1);
	(void)snprintf(effect, 64, "%s", row.id);
	int r = catalog_hook_insert(c, &row, err);
	buf_done(&row.secret);
	return r;
}

static int make_user(struct catalog *c, char effect[64], struct err *err)
{
	struct user_row row = { .name = "noted", .created_ns = 1 };
	(void)snprintf(effect, 64, "user/noted");
	return catalog_user_insert(c, &row, err);
}

static int make_team(struct catalog *c, char effect[64], struct err *err)
{
	struct team_row row = new_team("uid:1", "noted");
	memcpy(effect, row.id, sizeof(row.id));
	return catalog_team_insert(c, &row, err);
}

static void noted(void **state)
{
	static int (*const make[])(struct catalog *c, char effect[64], struct err *err) = {
		make_token, make_hook, make_user, make_team
	};
	struct fixture *f = *state;
	for (size_t i = 0; i < sizeof(make) / sizeof(make[0]); i++) {
		struct err err = { 0 };
		struct repeat was = { 0 };
		char key[8], effect[64];
		(void)snprintf(key, sizeof(key), "k%zu", i);
		struct doing *d = doing_of(key);
		assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1);
		d->keyed = true;
		(void)doing_set(d);
		assert_int_equal(make[i](f->c, effect, &err), 0);
		(void)doing_set(NULL);
		/* Here it was killed. */
		assert_int_equal(catalog_journal_begin(f->c, &err), 0);
		assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
		assert_int_equal(was.status, 201);
		assert_string_equal(was.effect, effect);
		repeat_done(&was);
		doing_unref(d);
	}
}

/* What is left of a push is done by who has the key and the body. */
static void pushed_again(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct repeat was = { 0 };
	struct doing *d = doing_of("push");
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1);
	d->keyed = true;
	(void)doing_set(d);
	assert_int_equal(catalog_intend_into(f->c, "by/push/abc", NULL, &err), 0);
	(void)doing_set(NULL);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
	assert_int_equal(was.status, 0);
	assert_false(was.idle);
	repeat_done(&was);
	catalog_repeat_leave(f->c, d); /* it was cut off */
	assert_int_equal(catalog_journal_begin(f->c, &err), 0);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
	assert_true(was.idle);
	assert_int_equal(catalog_repeat_left(f->c, &was, NULL, &err), 0);
	repeat_done(&was);
	d->body.b[0] ^= 1;
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
	repeat_done(&was);
	d->body.b[0] ^= 1;
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1);
	assert_string_equal(was.effect, "by/push/abc");
	repeat_done(&was);
	assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0); /* under way again */
	assert_int_equal(was.status, 0);
	assert_false(was.idle);
	repeat_done(&was);
	doing_unref(d);
}

/* Two who find a key idle find out what became of it: the slower one changes nothing of what the
 * other has begun since. */
static void settled_twice(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	for (int left = 0; left < 2; left++) {
		struct repeat one = { 0 }, two = { 0 }, now = { 0 };
		struct doing *d = doing_of(left ? "left" : "never");
		assert_int_equal(catalog_repeat_begin(f->c, d, &one, &err), 1);
		d->keyed = true;
		(void)doing_set(d);
		assert_int_equal(catalog_intend_into(f->c, "by/box/x/1/stop", NULL, &err), 0);
		(void)doing_set(NULL);
		catalog_repeat_leave(f->c, d);
		assert_int_equal(catalog_repeat_begin(f->c, d, &one, &err), 0);
		assert_int_equal(catalog_repeat_begin(f->c, d, &two, &err), 0);
		assert_true(one.idle && two.idle);
		assert_int_equal(left ? catalog_repeat_left(f->c, &one, NULL, &err)
				      : catalog_repeat_settle(f->c, &one, 0, NULL, &err),
				 0);
		repeat_done(&one);
		assert_int_equal(catalog_repeat_begin(f->c, d, &one, &err), 1);
		repeat_done(&one);
		(void)doing_set(d);
		assert_int_equal(catalog_intend_into(f->c, "by/box/x/1/stop", NULL, &err), 0);
		(void)doing_set(NULL);
		assert_int_equal(catalog_repeat_settle(f->c, &two, 0, NULL, &err), 0);
		assert_int_equal(catalog_repeat_settle(f->c, &two, 200, NULL, &err), 0);
		assert_int_equal(catalog_repeat_left(f->c, &two, NULL, &err), 0);
		assert_int_equal(catalog_repeat_begin(f->c, d, &now, &err), 0);
		assert_false(now.idle);
		assert_int_equal(now.status, 0);
		assert_string_equal(now.effect, "by/box/x/1/stop");
		repeat_done(&now);
		repeat_done(&two);
		doing_unref(d);
	}
}

/* Of an idle key that made something it is known by whether that is there. */
static void made_or_not(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	for (int there = 0; there < 2; there++) {
		struct repeat was = { 0 };
		struct doing *d = doing_of(there ? "there" : "gone");
		struct snap_row snap = { .created_ns = 1 };
		id_make(snap.id, "sn");
		assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1);
		d->keyed = true;
		(void)doing_set(d);
		assert_int_equal(catalog_intend(f->c, snap.id, &err), 0);
		if (there)
			assert_int_equal(catalog_snap_insert(f->c, &snap, NULL, NULL, 0, &err), 0);
		(void)doing_set(NULL);
		catalog_repeat_leave(f->c, d);
		assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
		assert_true(was.idle);
		assert_int_equal(catalog_repeat_made(f->c, &was, &err), there);
		repeat_done(&was);
		assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
		assert_int_equal(was.status, there ? 201 : 0);
		repeat_done(&was);
		doing_unref(d);
	}
}

/* Of a workspace those are found that tell of it, and nobody works for. */
static void found_idle(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct idle_key *keys;
	struct repeat was;
	size_t n, before;
	assert_int_equal(catalog_idle_keys(f->c, NULL, &keys, &before, &err), 0);
	idle_keys_free(keys, before);
	static const char *const effects[] = { "into/ws_aaaaaaaaaa/00/-",
					       "by/tag/ws_bbbbbbbbbb/1/200" };
	struct doing *d[2];
	for (size_t i = 0; i < 2; i++) {
		d[i] = doing_of(i ? "of-b" : "of-a");
		assert_int_equal(catalog_repeat_begin(f->c, d[i], &was, &err), 1);
		d[i]->keyed = true;
		(void)doing_set(d[i]);
		assert_int_equal(catalog_intend_into(f->c, effects[i], NULL, &err), 0);
		(void)doing_set(NULL);
	}
	assert_int_equal(catalog_idle_keys(f->c, NULL, &keys, &n, &err), 0);
	assert_int_equal(n, before);
	idle_keys_free(keys, n);
	for (size_t i = 0; i < 2; i++)
		catalog_repeat_leave(f->c, d[i]);
	assert_int_equal(catalog_idle_keys(f->c, NULL, &keys, &n, &err), 0);
	assert_int_equal(n, before + 2);
	idle_keys_free(keys, n);
	assert_int_equal(catalog_idle_keys(f->c, "ws_aaaaaaaaaa", &keys, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_string_equal(keys[0].repeat.effect, effects[0]);
	idle_keys_free(keys, n);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(catalog_repeat_end(f->c, d[i], 0, NULL, &err), 0);
		doing_unref(d[i]);
	}
}

/* A job works for its caller's key, or for one of its own, until it has ended or failed. */
static void keys_of_jobs(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	for (int own = 0; own < 2; own++) {
		struct doing *d = doing_of("job"), *next = doing_of("");
		struct repeat was = { 0 };
		struct job_row j = { .owner = "uid:1",
				     .state = "running",
				     .path = (char *)"/v1/gc",
				     .again = (char *)"{}",
				     .created_ns = now_ns() };
		id_make(j.id, "jb");
		if (own) {
			free(d->key);
			d->key = NULL;
		} else {
			assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1);
			d->keyed = true;
		}
		(void)doing_set(d);
		assert_int_equal(catalog_job_insert(f->c, &j, &err), 0);
		(void)doing_set(NULL);
		assert_true(d->keyed && strcmp(d->key, own ? j.id : "job") == 0);
		for (int i = 0; i <= JOB_AGAIN_MAX; i++) {
			assert_int_equal(catalog_journal_begin(f->c, &err), 0);
			assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 0);
			assert_string_equal(was.job, j.id);
			assert_int_equal(was.status, 0);
			repeat_done(&was);
			assert_int_equal(catalog_job_repeat(f->c, j.id, next, &was, &err), 0);
			assert_true(next->keyed && strcmp(next->key, d->key) == 0);
			assert_true(digest_equal(&next->body, &d->body));
			repeat_done(&was);
			assert_int_equal(catalog_jobs_cut(f->c, &err), 0);
		}
		assert_int_equal(catalog_job_repeat(f->c, j.id, next, &was, &err), -ENOENT);
		assert_int_equal(catalog_repeat_begin(f->c, d, &was, &err), 1); /* it is free */
		doing_unref(next);
		doing_unref(d);
	}
}

static void jobs_and_audit(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	struct job_row j = { .id = "jb_aaaaaaaaaa",
			     .owner = "uid:1",
			     .state = "running",
			     .path = (char *)"/v1/gc",
			     .created_ns = 5 },
		       got = { 0 };
	assert_int_equal(catalog_job_insert(f->c, &j, &err), 0);
	assert_int_equal(catalog_jobs_cut(f->c, &err), 0);
	assert_int_equal(catalog_job_get(f->c, j.id, &got, &err), 0);
	assert_string_equal(got.state, "failed");
	assert_non_null(strstr(got.answer, "the daemon ended"));
	job_row_done(&got);
	assert_int_equal(catalog_job_get(f->c, "jb_bbbbbbbbbb", &got, &err), -ENOENT);
	memcpy(j.id, "jb_cccccccccc", sizeof(j.id));
	j.again = (char *)"{}";
	assert_int_equal(catalog_job_insert(f->c, &j, &err), 0);
	for (int i = 0; i <= JOB_AGAIN_MAX; i++) {
		struct job_row *anew;
		size_t count;
		assert_int_equal(catalog_jobs_cut(f->c, &err), 0);
		assert_int_equal(catalog_job_running(f->c, &anew, &count, &err), 0);
		assert_int_equal(count, i < JOB_AGAIN_MAX);
		if (count)
			assert_string_equal(anew[0].again, "{}");
		job_rows_free(anew, count);
	}
	assert_int_equal(catalog_job_get(f->c, j.id, &got, &err), 0);
	assert_non_null(strstr(got.answer, "each time that this was begun"));
	job_row_done(&got);
	assert_int_equal(catalog_job_get(f->c, "x", &got, &err), -ENOENT);
	for (int i = 0; i < 5; i++) {
		struct audit_row a = { .time_ns = i,
				       .owner = "uid:1",
				       .from = "pid 1",
				       .method = "POST",
				       .path = (char *)"/x",
				       .status = 201 };
		(void)snprintf(a.owner, sizeof(a.owner), "uid:%d", i % 2);
		assert_int_equal(catalog_audit_add(f->c, &a, &err), 0);
	}
	struct audit_row *rows;
	size_t n;
	assert_int_equal(catalog_audit_list(f->c, &(struct audit_query){ .owner = "uid:0" }, 0, 10,
					    &rows, &n, &err),
			 0);
	assert_int_equal(n, 3);
	int64_t second = rows[1].seq;
	audit_rows_free(rows, n);
	assert_int_equal(catalog_audit_list(f->c, &(struct audit_query){ .owner = "uid:0" }, second,
					    10, &rows, &n, &err),
			 0);
	assert_int_equal(n, 1);
	audit_rows_free(rows, n);
	assert_int_equal(catalog_audit_list(f->c,
					    &(struct audit_query){ .object = "ws_aaaaaaaaaa" }, 0,
					    10, &rows, &n, &err),
			 0);
	assert_int_equal(n, 0);
	audit_rows_free(rows, n);
}

static void add_audit(struct fixture *f, const char *owner, int n)
{
	struct err err = { 0 };
	struct audit_row a = { .from = "pid 1", .method = "POST", .path = (char *)"/x" };
	(void)snprintf(a.owner, sizeof(a.owner), "%s", owner);
	for (; n > 0; n--) {
		a.time_ns++;
		assert_int_equal(catalog_audit_add(f->c, &a, &err), 0);
	}
}

static size_t audit_count(struct fixture *f, const char *owner)
{
	struct audit_query q = { 0 };
	struct audit_row *rows;
	struct err err = { 0 };
	size_t n;
	(void)snprintf(q.owner, sizeof(q.owner), "%s", owner);
	assert_int_equal(catalog_audit_list(f->c, &q, 0, 100000, &rows, &n, &err), 0);
	for (size_t i = 1; i < n && *owner; i++) /* none is missing in between: the newest stay */
		assert_true(rows[i - 1].time_ns == rows[i].time_ns + 1 || rows[i - 1].time_ns == 1);
	audit_rows_free(rows, n);
	return n;
}

/* Who does much pushes out nobody else's; there never are many more than may be. */
static void audit_shares(void **state)
{
	struct fixture *f = *state;
	add_audit(f, "quiet", 20);
	add_audit(f, "loud", AUDIT_TEST + 300);
	for (int i = 0; i < 3; i++) {
		add_audit(f, "loud", 500);
		assert_true(audit_count(f, "") <= AUDIT_TEST + AUDIT_BESIDE);
		assert_true(audit_count(f, "") >= AUDIT_TEST);
		assert_int_equal(audit_count(f, "quiet"), 20);
	}
	/* One who comes later has room, up to as much as the other. */
	add_audit(f, "late", 300);
	assert_int_equal(audit_count(f, "late"), 300);
	add_audit(f, "late", 900);
	assert_int_equal(audit_count(f, "quiet"), 20);
	size_t late = audit_count(f, "late"), loud = audit_count(f, "loud");
	assert_true(late + loud + 20 <= AUDIT_TEST + AUDIT_BESIDE);
	assert_true(loud >= AUDIT_TEST / 2 - 21 && late >= loud);
	/* Whatever the counts say: it ends, and they are right again. */
	char path[80];
	sqlite3 *db;
	(void)snprintf(path, sizeof(path), "%s/catalog.db", f->root);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	(void)sqlite3_busy_timeout(db, BUSY_MS);
	assert_int_equal(sqlite3_exec(db, "INSERT INTO audit_counts VALUES ('nobody', 100000)",
				      NULL, NULL, NULL),
			 SQLITE_OK);
	sqlite3_close(db);
	add_audit(f, "late", AUDIT_BESIDE);
	assert_true(audit_count(f, "") >= AUDIT_TEST);
	add_audit(f, "late", AUDIT_TEST);
	assert_true(audit_count(f, "") <= AUDIT_TEST + AUDIT_BESIDE);
	assert_int_equal(audit_count(f, "quiet"), 20);
}

/* ---- events ---- */

static void *add_later(void *arg)
{
	struct event e = { .type = "late" };
	(void)usleep(20000);
	events_add(arg, &e);
	return NULL;
}

static void ring(void **state)
{
	struct events *e = events_new();
	struct event in = { .type = "x" }, out;
	char id[EVENT_ID_SIZE];
	uint64_t seq;
	pthread_t thread;
	assert_int_equal(events_next(e, 0, &out, 0), 0);
	for (int i = 0; i < EVENTS_KEPT; i++)
		events_add(e, &in);
	assert_int_equal(events_next(e, 0, &out, 0), 1);
	assert_int_equal(out.seq, 1);
	events_add(e, &in);
	assert_int_equal(events_next(e, 0, &out, 0), -EKEYEXPIRED);
	assert_int_equal(events_next(e, 1, &out, 0), 1);
	assert_int_equal(out.seq, 2);
	event_id(e, 9, id);
	assert_int_equal(event_id_parse(e, id, &seq), 0);
	assert_int_equal(seq, 9);
	id[0] = id[0] == '0' ? '1' : '0';
	assert_int_equal(event_id_parse(e, id, &seq), -EKEYEXPIRED);
	event_id(e, EVENTS_KEPT + 2, id);
	assert_int_equal(event_id_parse(e, id, &seq), -EKEYEXPIRED);
	static const char *const bad[] = {
		"", ".", "x", "00000000", "00000000.", "00000000.-1", "00000000.1x", "0000000g.1"
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(event_id_parse(e, bad[i], &seq), -EINVAL);
	assert_int_equal(pthread_create(&thread, NULL, add_later, e), 0);
	assert_int_equal(events_next(e, events_last(e), &out, 60000), 1);
	assert_string_equal(out.type, "late");
	pthread_join(thread, NULL);
	events_stop(e);
	assert_int_equal(events_next(e, 0, &out, 5000), -ESHUTDOWN);
	events_free(e);
}

/* ---- config.json ---- */

static void config(void **state)
{
	static const struct {
		const char *text;
		int r;
		size_t listens;
	} table[] = {
		{ "{}", 0, 0 },
		{ "{\"listen\":\"127.0.0.1:1\"}", 0, 1 },
		{ "{\"listen\":[\"a\",\"b\"],\"insecure\":true,\"multi_user\":true}", 0, 2 },
		{ "{\"tls_cert\":\"/c\",\"tls_key\":\"/k\"}", 0, 0 },
		{ "{\"listen\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"]}", -EINVAL,
		  8 },
		{ "", -EINVAL, 0 },
		{ "[]", -EINVAL, 0 },
		{ "{\"listen\":1}", -EINVAL, 0 },
		{ "{\"listen\":[1]}", -EINVAL, 0 },
		{ "{\"insecure\":1}", -EINVAL, 0 },
		{ "{\"tls_cert\":\"\"}", -EINVAL, 0 },
		{ "{\"listen\":\"a\",\"listen\":\"b\"}", -EINVAL, 0 },
		{ "{\"other\":1}", -EINVAL, 0 },
		{ "{\"gc_every_s\":0,\"grace_deleted_s\":1,\"reserve_bytes\":1}", 0, 0 },
		{ "{\"grace_expired_s\":-1}", -EINVAL, 0 },
		{ "{\"gc_every_s\":\"1\"}", -EINVAL, 0 },
		{ "{\"gc_every_s\":99999999999}", -EINVAL, 0 },
		{ "{\"look_every_s\":0}", -EINVAL, 0 },
		{ "{\"webhook_allow\":[\"10.0.0.0/8\"],\"cors_origins\":[\"*\"]}", 0, 0 },
		{ "{\"webhook_allow\":[\"ten\"]}", -EINVAL, 0 },
		{ "{\"webhook_allow\":\"10.0.0.0/8\"}", -EINVAL, 0 },
		{ "{\"cors_origins\":[\"app.example.org\"]}", -EINVAL, 0 },
		{ "{\"cors_origins\":[\"https://app.example.org/\"]}", -EINVAL, 0 },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct config c = { 0 };
		struct err err = { 0 };
		int r = config_parse(&c, table[i].text, strlen(table[i].text), &err);
		assert_int_equal(r, table[i].r);
		assert_int_equal(c.nlisten, table[i].listens);
		assert_true(r == 0 || err.text[0]);
		config_done(&c);
	}
	/* What the options said wins. */
	struct config c = { 0 };
	assert_int_equal(config_listen(&c, "given", NULL), 0);
	assert_int_equal(config_parse(&c, "{\"listen\":\"file\"}", 17, NULL), 0);
	assert_int_equal(c.nlisten, 1);
	assert_string_equal(c.listen[0], "given");
	config_done(&c);
}

/* A catalog of before there were owners: all of it belongs to who boughd runs as. */
static void older_catalog(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char path[128], self[OWNER_SIZE];
	sqlite3 *db;
	owner_self(self);
	catalog_close(f->c);
	(void)snprintf(path, sizeof(path), "%s/catalog.db", f->root);
	(void)unlink(path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	static const char old[] =
		"CREATE TABLE workspaces (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL"
		" UNIQUE, name TEXT NOT NULL UNIQUE, created INTEGER NOT"
		" NULL, base TEXT, head TEXT,"
		" parent TEXT, quota_bytes INTEGER NOT NULL, quota_inodes INTEGER NOT NULL,"
		" mount INTEGER NOT NULL, broken TEXT, labels TEXT, head_stack BLOB, git TEXT);"
		"CREATE TABLE snapshots (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL"
		" UNIQUE, created INTEGER NOT NULL, workspace TEXT, parent TEXT, manifest BLOB NOT"
		" NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL, stored_bytes INTEGER NOT"
		" NULL, message TEXT, labels TEXT, git TEXT);"
		"CREATE TABLE repos (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL"
		" UNIQUE, url TEXT NOT NULL, is_path INTEGER NOT NULL, is_global INTEGER NOT NULL,"
		" owner INTEGER NOT NULL, created INTEGER NOT NULL, fetched INTEGER NOT NULL,"
		" head TEXT);"
		"INSERT INTO repos VALUES (4, 'r', 'https://h/r', 0, 0, 1001, 5, 6, 'main'),"
		" (5, 'nobodys', 'https://h/r', 0, 0, 4294967295, 5, 6, NULL),"
		" (8, 'gone', '', 0, 0, 0, 5, 6, NULL);"
		"DELETE FROM repos WHERE number = 8;"
		"CREATE TABLE snapshot_names (name TEXT PRIMARY KEY, snapshot TEXT NOT NULL,"
		" pos INTEGER NOT NULL) WITHOUT ROWID;"
		"CREATE INDEX workspaces_head ON workspaces(head);"
		"INSERT INTO workspaces (id, name, created, quota_bytes, quota_inodes, mount,"
		" labels, head_stack) VALUES ('ws_aaaaaaaaaa', 'w', 9, 1,"
		" 2, 1, '{\"a\":\"b\"}', x'0102');"
		"INSERT INTO snapshots (id, created, manifest, files, bytes, stored_bytes)"
		" VALUES ('sn_aaaaaaaaaa', 9, zeroblob(32), 1, 2, 3);"
		"INSERT INTO snapshot_names VALUES ('s', 'sn_aaaaaaaaaa', 0);"
		"PRAGMA user_version = 3";
	assert_int_equal(sqlite3_exec(db, old, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	f->c = NULL;
	assert_int_equal(catalog_open(&f->c, f->root, NULL, &err), 0);
	auto_ws_row ws = { 0 };
	auto_snap_row snap = { 0 };
	assert_int_equal(catalog_ws_get(f->c, "w", &ws, &err), 0);
	assert_string_equal(ws.own.owner, self);
	assert_string_equal(ws.labels, "{\"a\":\"b\"}");
	assert_int_equal(ws.head_stack.len, 2);
	assert_int_equal(catalog_snap_get(f->c, "s", &snap, &err), 0);
	assert_string_equal(snap.own.owner, self);
	assert_int_equal(snap.own.visibility, VISIBLE_PRIVATE);

	auto_repo_row repo = { 0 };
	auto_repo_row nobodys = { 0 };
	uint32_t number;
	assert_int_equal(catalog_repo_get(f->c, "repo_00000004", &repo, &err), 0);
	assert_string_equal(repo.name, "r");
	assert_string_equal(repo.owner, "uid:1001");
	assert_string_equal(repo.head, "main");
	assert_int_equal(catalog_repo_get(f->c, "repo_00000005", &nobodys, &err), 0);
	assert_string_equal(nobodys.owner, self);
	assert_int_equal(catalog_repo_number(f->c, &number, &err), 0);
	assert_int_equal(number, 9); /* 8 was used up */
}

/* Teams of before they had ids and owners. */
static void older_teams(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char path[600];
	const char *src = getenv("BOUGH_SRC");
	auto_free void *sql = NULL;
	size_t n;
	sqlite3 *db;
	catalog_close(f->c);
	f->c = NULL;
	(void)snprintf(path, sizeof(path), "%s/tests/golden/catalog-v17.sql", src ? src : ".");
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 1 << 20, &sql, &n, &err), 0);
	sql = realloc(sql, n + 1);
	((char *)sql)[n] = '\0';
	(void)snprintf(path, sizeof(path), "%s/catalog.db", f->root);
	(void)unlink(path);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_close(db);
	assert_int_equal(catalog_open(&f->c, f->root, NULL, &err), 0);
	f->sd.catalog = f->c;
	struct team_row *rows = NULL;
	char self[OWNER_SIZE];
	owner_self(self);
	assert_int_equal(catalog_team_list(f->c, NULL, &rows, &n, &err), 0);
	assert_int_equal(n, 2);
	const struct team_row ops = rows[0], web = rows[1];
	free(rows);
	assert_string_equal(web.name, "web");
	assert_string_equal(web.owner, "uid:7"); /* its first admin */
	assert_string_equal(ops.owner, self);	 /* it has none */
	assert_true(id_is(web.id, "tm") && id_is(ops.id, "tm") && strcmp(web.id, ops.id) != 0);
	assert_int_equal(web.created_ns, 11);
	assert_int_equal(catalog_role(f->c, web.id, "uid:3", &err), ROLE_MEMBER);
	assert_int_equal(catalog_role(f->c, ops.id, "uid:9", &err), ROLE_READER);
	struct principal p = who("uid:3"), other = who("uid:9");
	struct meant m;
	static const char *const shown[] = { "ws_aaaaaaaaaa", "sn_aaaaaaaaaa", "sb_aaaaaaaaaa" };
	static const enum noun nouns[] = { NOUN_WORKSPACE, NOUN_SNAPSHOT, NOUN_SANDBOX };
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(access_find(&f->sd, &p, nouns[i], true, shown[i], &m, &err), 0);
		assert_string_equal(m.own.team, web.id);
		assert_int_equal(access_find(&f->sd, &other, nouns[i], true, shown[i], &m, &err),
				 -ENOENT);
	}
	/* No team is there for these. */
	auto_ws_row ws = { 0 };
	auto_sandbox_row sb = { 0 };
	assert_int_equal(catalog_ws_get(f->c, "ws_bbbbbbbbbb", &ws, &err), 0);
	assert_int_equal(ws.own.visibility, VISIBLE_PRIVATE);
	assert_int_equal(catalog_sandbox_get(f->c, "sb_bbbbbbbbbb", &sb, &err), 0);
	assert_int_equal(sb.own.visibility, VISIBLE_PRIVATE);
	ws_row_done(&ws);
	assert_int_equal(catalog_ws_get(f->c, "ws_cccccccccc", &ws, &err), 0);
	assert_int_equal(ws.own.visibility, VISIBLE_GLOBAL);
}

static size_t count_repos(struct catalog *c, const char *key, char owner[OWNER_SIZE])
{
	struct repo_row *rows = NULL;
	size_t n = 0;
	assert_int_equal(catalog_repo_find(c, key, &rows, &n, NULL), 0);
	owner[0] = '\0';
	if (n == 1)
		memcpy(owner, rows[0].owner, OWNER_SIZE);
	repo_rows_free(rows, n);
	return n;
}

static void repos_of_owners(void **state)
{
	struct fixture *f = *state;
	struct err err = { 0 };
	char owner[OWNER_SIZE], self[OWNER_SIZE];
	struct repo_row row = { .name = "r", .url = (char *)"https://h/r" };
	static const char *const owners[] = { "uid:1001", "ci", "" };
	owner_self(self);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(catalog_repo_number(f->c, &row.number, &err), 0);
		assert_int_equal(row.number, i + 1);
		(void)snprintf(row.owner, sizeof(row.owner), "%s", owners[i]);
		assert_int_equal(catalog_repo_insert(f->c, &row, &err), 0);
	}
	row.number = 9;
	assert_int_equal(catalog_repo_insert(f->c, &row, &err), -EEXIST);
	assert_string_equal(err.text, "there is a repository \"r\" already");
	assert_int_equal(count_repos(f->c, "r", owner), 3);
	assert_int_equal(count_repos(f->c, "ci/r", owner), 1);
	assert_string_equal(owner, "ci");
	assert_int_equal(count_repos(f->c, "repo_00000003", owner), 1);
	assert_string_equal(owner, self);
	assert_int_equal(count_repos(f->c, "uid:1002/r", owner), 0);
	assert_int_equal(count_repos(f->c, "/", owner), 0);
	auto_repo_row got = { 0 };
	assert_int_equal(catalog_repo_get(f->c, "r", &got, &err), -ENOENT);
	/* Who had a repository is nobody else's owner. */
	struct user_row user = { .name = "ci" };
	assert_int_equal(catalog_user_insert(f->c, &user, &err), 0);
	assert_string_equal(user.owner, "ci~2");
}

int main(void)
{
	char most[16];
	(void)snprintf(most, sizeof(most), "%d", AUDIT_TEST);
	(void)setenv("BOUGH_AUDIT_MAX", most, 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(names_of_owners, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(names_of_many, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(teams, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(teams_of_owners, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(teams_unknown, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(older_teams, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(needed, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(tokens, catalog_set_up, catalog_tear_down),
		cmocka_unit_test(paths),
		cmocka_unit_test_setup_teardown(names_again, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(peers, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(keys, catalog_set_up, catalog_tear_down),
		cmocka_unit_test(forms),
		cmocka_unit_test_setup_teardown(intended, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(noted, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(pushed_again, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(settled_twice, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(made_or_not, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(found_idle, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(keys_of_jobs, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(jobs_and_audit, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(audit_shares, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(older_catalog, catalog_set_up, catalog_tear_down),
		cmocka_unit_test_setup_teardown(repos_of_owners, catalog_set_up, catalog_tear_down),
		cmocka_unit_test(ring),
		cmocka_unit_test(config),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
