#include "fs/mount/ctl_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"
#include "fs/base/io.h"
#include "fs/mount/ctl_msg.h"
#include "fs/work/watch.h"

/* ---- building answers: jansson reports want of memory only by its results ---- */

struct answer {
	json_t *json;
	bool failed;
};

static void add(struct answer *a, json_t *to, const char *key, json_t *value)
{
	if (json_object_set_new(to, key, value) < 0) /* takes the value in any case */
		a->failed = true;
}

static void add_int(struct answer *a, json_t *to, const char *key, uint64_t n)
{
	add(a, to, key, json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n));
}

/* Paths come from requests, so they are UTF-8. */
static void add_text(struct answer *a, json_t *to, const char *key, const char *s)
{
	add(a, to, key, s ? json_string(s) : json_null());
}

static void add_stack(struct answer *a, const char *key, const struct stack *st)
{
	auto_buf bytes = { 0 };
	stack_encode(st, &bytes);
	auto_free char *hex = buf_error(&bytes) ? NULL : malloc(2 * bytes.len + 1);
	if (hex)
		hex_encode(hex, bytes.data, bytes.len);
	else
		a->failed = true;
	if (hex)
		add_text(a, a->json, key, hex);
}

/* Opcodes that were asked at least once. */
static void add_opcodes(struct answer *a, json_t *to, const char *key, const struct counters *c)
{
	json_t *o = json_object();
	for (unsigned i = 0; o && i < OPCODES; i++) {
		uint64_t n = counter_get(&c->requests[i]);
		char number[16];
		(void)snprintf(number, sizeof(number), "OP%u", i);
		if (n)
			add_int(a, o, opcode_name(i) ? opcode_name(i) : number, n);
	}
	add(a, to, key, o);
}

static void add_counters(struct answer *a, json_t *to, const struct counters *c)
{
	add_opcodes(a, to, "opcodes", c);
	add_int(a, to, "requests", counters_total(c));
	add_int(a, to, "errors", counter_get(&c->errors));
	add_int(a, to, "bytes_read", counter_get(&c->bytes_read));
	add_int(a, to, "bytes_written", counter_get(&c->bytes_written));
}

static int add_usage(struct answer *a, json_t *to, struct served *w, struct err *err)
{
	struct served_state st;
	int r = served_state(w, &st, err);
	if (r < 0)
		return r;
	auto_free char *path = st.path;
	struct ws_usage u;
	struct ws_limits l;
	ws_get_usage(served_ws(w), &u, &l);
	add_int(a, to, "bytes", u.bytes < 0 ? 0 : (uint64_t)u.bytes);
	add_int(a, to, "inodes", u.inodes < 0 ? 0 : (uint64_t)u.inodes);
	add_int(a, to, "limit_bytes", l.bytes);
	add_int(a, to, "limit_inodes", l.inodes);
	add(a, to, "xattrs", json_boolean(l.xattrs != WS_XATTRS_OFF));
	add_int(a, to, "records", u.records);
	add_int(a, to, "layers", u.layers);
	add_int(a, to, "memory_bytes", u.memory_bytes);
	add_int(a, to, "files", u.file_count);
	add_int(a, to, "lost", u.lost);
	add_int(a, to, "gen", u.gen);
	char fault[WS_FAULT_TEXT];
	if (ws_fault(served_ws(w), fault, sizeof(fault)))
		add_text(a, to, "fault", fault);
	char damage[WS_DAMAGE_TEXT];
	if (ws_damage(served_ws(w), damage, sizeof(damage)))
		add_text(a, to, "damage", damage);
	add(a, to, "mounted", json_boolean(st.mounted));
	add_text(a, to, "path", path);
	return 0;
}

/* ---- operations without a workspace ---- */

static int do_hello(struct server *s, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	add_text(a, a->json, "version", BOUGH_VERSION);
	add_int(a, a->json, "pid", (uint64_t)getpid());
	add_text(a, a->json, "transport", server_transport(s));
	add_text(a, a->json, "program", server_program(s));
	add_int(a, a->json, "resumed", server_resumed(s));
	return 0;
}

static int do_create(struct server *s, const struct ctl_request *q, struct answer *a,
		     struct err *err)
{
	struct served_child child = { .id = q->id, .path = q->path, .limits = q->limits };
	return served_create(s, &child, q->has_stack ? &q->stack : NULL, q->uid, q->gid, err);
}

static int do_delete(struct server *s, const struct ctl_request *q, struct answer *a,
		     struct err *err)
{
	return served_delete(s, q->id, err);
}

static int do_close(struct server *s, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	return served_close(s, q->id, err);
}

static int do_end(struct server *s, const struct ctl_request *q, struct answer *a, struct err *err)
{
	return served_end(s, q->id, err);
}

static bool is_known(void *ctx, const char *id)
{
	return ctl_knows(ctx, id);
}

static int do_sweep(struct server *s, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	return server_sweep(s, is_known, (void *)q, err); /* is_known only reads it */
}

static int do_trim(struct server *s, const struct ctl_request *q, struct answer *a, struct err *err)
{
	server_trim(s);
	return 0;
}

static int do_quit(struct server *s, const struct ctl_request *q, struct answer *a, struct err *err)
{
	return 0; /* ctl_answer tells the caller */
}

static int do_leave(struct server *s, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	return server_holds(s) ? 0
			       : err_set(err, -EOPNOTSUPP,
					 "the mounts would end with this server: nobody holds "
					 "them");
}

static int do_settle(struct server *s, const struct ctl_request *q, struct answer *a,
		     struct err *err)
{
	server_settle(s, q->peer.number);
	return 0;
}

/* Calls fn for each open workspace behind `after` until it returns false. */
static int each_served(struct server *s, const char *after,
		       int (*fn)(void *ctx, const char *id, struct served *w, struct err *err),
		       void *ctx, struct err *err)
{
	char **ids;
	size_t n;
	int r = server_list(s, &ids, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (r == 0 && (!after || strcmp(ids[i], after) > 0)) {
			struct served *w;
			r = served_get(s, ids[i], &w, err);
			if (r == 0) {
				r = fn(ctx, ids[i], w, err);
				served_put(w);
			} else if (r == -ENOENT) {
				r = 0; /* deleted meanwhile */
			}
		}
		free(ids[i]);
	}
	free(ids);
	return r < 0 ? r : 0;
}

/* Room for what else is in the answer. */
enum { ITEMS_MAX = FRAME_MAX - 8192 };

struct listing {
	struct answer *a;
	json_t *items; /* an array or an object */
	size_t bytes;
	bool full;
};

/* Puts the item in while there is room; 1 ends the listing. */
static int list_item(struct listing *l, const char *id, json_t *item)
{
	size_t n = json_dumpb(item, NULL, 0, JSON_COMPACT);
	if (n == 0)
		l->a->failed = true;
	l->bytes += n + strlen(id) + 8;
	if (l->bytes > ITEMS_MAX) {
		json_decref(item);
		l->full = true;
		return 1;
	}
	int r = json_is_array(l->items) ? json_array_append_new(l->items, item)
					: json_object_set_new(l->items, id, item);
	if (r < 0)
		l->a->failed = true;
	return 0;
}

static int list_usage(void *ctx, const char *id, struct served *w, struct err *err)
{
	struct listing *l = ctx;
	json_t *item = json_object();
	add_text(l->a, item, "id", id);
	int r = add_usage(l->a, item, w, err);
	if (r < 0) {
		json_decref(item);
		return r;
	}
	return list_item(l, id, item);
}

static int do_list(struct server *s, const struct ctl_request *q, struct answer *a, struct err *err)
{
	struct listing l = { .a = a, .items = json_array() };
	add(a, a->json, "workspaces", l.items);
	if (a->failed)
		return err_no_memory(err);
	int r = each_served(s, q->after, list_usage, &l, err);
	if (l.full)
		add(a, a->json, "more", json_true());
	return r;
}

static int list_counters(void *ctx, const char *id, struct served *w, struct err *err)
{
	struct listing *l = ctx;
	struct served_state st;
	int r = served_state(w, &st, err);
	if (r < 0)
		return r;
	free(st.path);
	if (!st.mounted && counters_total(&st.counters) == 0)
		return 0;
	json_t *item = json_object();
	add_counters(l->a, item, &st.counters);
	return list_item(l, id, item);
}

/* Anonymous memory in RAM: what the process costs, without files it has mapped. */
static uint64_t memory_bytes(void)
{
	auto_free void *text = NULL;
	size_t len;
	unsigned long long size, resident, shared;
	if (io_slurp(NULL, AT_FDCWD, "/proc/self/statm", 4096, &text, &len, NULL) < 0 ||
	    sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3 || resident < shared)
		return 0;
	return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int do_stats(struct server *s, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	struct counters all;
	server_counters(s, &all);
	add_counters(a, a->json, &all);
	struct timespec cpu;
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) < 0)
		return err_sys(err, -errno, "read the process clock");
	add_int(a, a->json, "cpu_ns", (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec);
	add_int(a, a->json, "memory_bytes", memory_bytes());
	add_int(a, a->json, "workers", server_workers(s));
	struct listing l = { .a = a, .items = json_object() };
	add(a, a->json, "mounts", l.items);
	if (a->failed)
		return err_no_memory(err);
	int r = each_served(s, NULL, list_counters, &l, err);
	if (l.full)
		add(a, a->json, "truncated", json_true());
	return r;
}

/* ---- operations on an open workspace ---- */

static int do_mount(struct served *w, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	return served_mount(w, q->path, err);
}

static int do_umount(struct served *w, const struct ctl_request *q, struct answer *a,
		     struct err *err)
{
	bool busy;
	int r = served_umount(w, &busy, err);
	if (r == 0)
		add(a, a->json, "busy", json_boolean(busy));
	return r;
}

static int do_fork(struct served *w, const struct ctl_request *q, struct answer *a, struct err *err)
{
	uint64_t pause_ns = 0;
	int r = served_fork(w, q->children, q->nchildren, &pause_ns, err);
	if (r == 0)
		add_int(a, a->json, "pause_ns", pause_ns);
	return r;
}

static int do_seal(struct served *w, const struct ctl_request *q, struct answer *a, struct err *err)
{
	auto_stack st = { 0 };
	int r = ws_seal(served_ws(w), &st, err);
	if (r == 0)
		add_stack(a, "stack", &st);
	return r;
}

static int do_stack(struct served *w, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	auto_stack st = { 0 };
	struct layer_id active;
	int r = ws_stack(served_ws(w), &st, &active);
	if (r < 0)
		return err_sys(err, r, "copy the stack of %s", q->id);
	add_stack(a, "stack", &st);
	char hex[2 * sizeof(active.b) + 1];
	hex_encode(hex, active.b, sizeof(active.b));
	add(a, a->json, "active", json_string(hex));
	return 0;
}

static int do_replace(struct served *w, const struct ctl_request *q, struct answer *a,
		      struct err *err)
{
	return served_replace(w, &q->stack, &q->with, err);
}

static int do_restore(struct served *w, const struct ctl_request *q, struct answer *a,
		      struct err *err)
{
	uint64_t names, nodes;
	int r = served_restore(w, &q->stack, q->has_expect ? &q->with : NULL,
			       q->op == CTL_RENUMBER, &names, &nodes, err);
	if (r < 0)
		return r;
	add_int(a, a->json, "names", names);
	add_int(a, a->json, "nodes", nodes);
	return 0;
}

/* 1: before the server died that was asked first. */
static int done_already(struct served *w, const struct ctl_request *q, struct err *err)
{
	uint64_t node;
	int r = q->tag ? ws_answered(served_ws(w), q->tag | WS_TAG_OURS, &node) : 0;
	return r < 0 ? err_sys(err, r, "look for what was done") : r;
}

static int do_put(struct served *w, const struct ctl_request *q, struct answer *a, struct err *err)
{
	struct ws_put_result res;
	char text[VERSION_TEXT];
	bool put = q->op == CTL_PUT;
	struct ws_put want = q->put;
	want.tag = q->tag | WS_TAG_OURS;
	int r = put ? 0 : done_already(w, q, err);
	if (r)
		return r < 0 ? r : 0;
	r = served_put_file(w, &want, put, &res, err);
	if (r < 0 || !put)
		return r;
	struct version_id v = version_of(&res.attr);
	add(a, a->json, "created", json_boolean(res.old_node == 0));
	add_text(a, a->json, "version", version_text(text, &v));
	add_int(a, a->json, "mode", res.attr.mode & 07777);
	return 0;
}

static int do_answered(struct served *w, const struct ctl_request *q, struct answer *a,
		       struct err *err)
{
	int r = done_already(w, q, err);
	if (r >= 0)
		add(a, a->json, "done", json_boolean(r > 0));
	return r < 0 ? r : 0;
}

static int do_batch(struct served *w, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	return ctl_batch(w, q, a->json, err);
}

/* ---- what happened ---- */

struct events {
	struct answer *a;
	json_t *list;
	size_t bytes;
};

static int add_event(void *ctx, const struct watch_event *e)
{
	static const char letters[WATCH_KINDS][2] = { "c", "m", "d", "r" };
	struct events *ev = ctx;
	size_t n = strlen(e->path), old = e->old_path ? strlen(e->old_path) : 0;
	ev->bytes += 2 * (n + old) + strlen(e->token) + 24;
	if (ev->bytes > ITEMS_MAX)
		return 1;
	auto_free char *hex = malloc(2 * (n + old) + 2);
	if (!hex)
		return -ENOMEM;
	char *hex_old = hex + 2 * n + 1;
	hex_encode(hex, e->path, n);
	hex_encode(hex_old, e->old_path ? e->old_path : "", old);
	json_t *one = json_pack("[s, i, s, s, s]", letters[e->kind], e->type, hex, hex_old,
				e->token);
	return json_array_append_new(ev->list, one) < 0 ? -ENOMEM : 0;
}

static int do_changes(struct served *w, const struct ctl_request *q, struct answer *a,
		      struct err *err)
{
	char next[WATCH_TOKEN_MAX];
	struct events ev = { .a = a, .list = json_array() };
	add(a, a->json, "events", ev.list);
	if (a->failed)
		return err_no_memory(err);
	int r = ws_watch(served_ws(w), q->token, add_event, &ev, next);
	if (r < 0 && r != -EKEYEXPIRED)
		return err_sys(err, r, "tell what happened in %s", q->id);
	if (r < 0)
		json_array_clear(ev.list);
	if (r)
		add(a, a->json, r < 0 ? "lost" : "more", json_true());
	add_text(a, a->json, "token", next);
	return 0;
}

/* ---- a folder ---- */

struct entries {
	const struct ctl_request *q;
	json_t *list;
	bool more;
};

/* The message is full before this many are in it, whatever their names. */
enum { ENTRY_BYTES = 2 * NAME_MAX_BYTES + 96, ENTRIES_AT_ONCE = ITEMS_MAX / ENTRY_BYTES };

static int add_one(const struct view *v, const struct dirent_ref *d, json_t *list)
{
	char hex[2 * NAME_MAX_BYTES + 1];
	struct attr a;
	int r = view_inode(v, d->ino, &a);
	if (r < 0)
		return r == -ENOENT ? -EIO : r; /* a name whose inode is lost */
	hex_encode(hex, d->name, d->name_len);
	json_t *one = json_pack("[s, i, I, I, i, I]", hex, (int)a.mode, (json_int_t)a.size,
				(json_int_t)a.mtime.tv_sec, (int)a.mtime.tv_nsec,
				(json_int_t)d->cookie);
	return json_array_append_new(list, one) < 0 ? -ENOMEM : 0;
}

static int list_folder(void *ctx, const struct view *v)
{
	struct entries *e = ctx;
	struct dirent_ref d;
	struct attr dir;
	uint64_t at = e->q->at;
	int r = view_inode(v, e->q->put.dir, &dir);
	if (r == 0 && !S_ISDIR(dir.mode))
		r = -ENOTDIR;
	for (int n = 0; r == 0 && at < INT64_MAX; n++, at = d.cookie) {
		r = view_dirent_ceil(v, dir.ino, at + 1, &d);
		if (r < 0)
			break;
		e->more = n == ENTRIES_AT_ONCE;
		if (e->more)
			break;
		r = add_one(v, &d, e->list);
	}
	return r == -ENOENT ? 0 : r; /* nothing more; a folder that is gone has nothing */
}

static int do_entries(struct served *w, const struct ctl_request *q, struct answer *a,
		      struct err *err)
{
	struct entries e = { .q = q, .list = json_array() };
	add(a, a->json, "entries", e.list);
	if (a->failed)
		return err_no_memory(err);
	int r = ws_with_view(served_ws(w), list_folder, &e);
	if (r < 0)
		return err_sys(err, r, "list a folder of %s", q->id);
	if (e.more)
		add(a, a->json, "more", json_true());
	return 0;
}

static int do_await(struct server *s, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	char **ids;
	size_t n;
	uint64_t now;
	int r = server_await(s, q->moment, q->wait_ms, &now, &ids, &n);
	if (r < 0)
		return err_sys(err, r, "wait for changes");
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++) {
		if (json_array_append_new(list, json_string(ids[i])) < 0)
			a->failed = true;
		free(ids[i]);
	}
	free(ids);
	add(a, a->json, "ids", list);
	if (r == 2)
		add(a, a->json, "any", json_true());
	add_int(a, a->json, "now", now);
	return 0;
}

static int do_limits(struct served *w, const struct ctl_request *q, struct answer *a,
		     struct err *err)
{
	return ws_set_limits(served_ws(w), &q->limits, err);
}

static int do_hold(struct served *w, const struct ctl_request *q, struct answer *a, struct err *err)
{
	int r = served_hold(w, q->tag, q->peer.pid, q->limits.bytes, q->limits.inodes);
	return r < 0 ? err_sys(err, r, "keep room in %s", q->id) : 0;
}

static int do_usage(struct served *w, const struct ctl_request *q, struct answer *a,
		    struct err *err)
{
	return add_usage(a, a->json, w, err);
}

static int do_sync(struct served *w, const struct ctl_request *q, struct answer *a, struct err *err)
{
	int r = ws_commit(served_ws(w), err);
	return r < 0 ? err_prefix(err, r, "make %s durable", q->id) : 0;
}

/* ---- the table ---- */

static const struct {
	int (*server)(struct server *s, const struct ctl_request *q, struct answer *a,
		      struct err *err);
	int (*served)(struct served *w, const struct ctl_request *q, struct answer *a,
		      struct err *err); /* called with the workspace of `id` */
} table[CTL_OPS] = {
	[CTL_HELLO] = { .server = do_hello },     [CTL_CREATE] = { .server = do_create },
	[CTL_MOUNT] = { .served = do_mount },     [CTL_UMOUNT] = { .served = do_umount },
	[CTL_FORK] = { .served = do_fork },       [CTL_SEAL] = { .served = do_seal },
	[CTL_STACK] = { .served = do_stack },     [CTL_REPLACE] = { .served = do_replace },
	[CTL_RESTORE] = { .served = do_restore }, [CTL_RENUMBER] = { .served = do_restore },
	[CTL_PUT] = { .served = do_put },
	[CTL_TAKE] = { .served = do_put },        [CTL_LIMITS] = { .served = do_limits },
	[CTL_USAGE] = { .served = do_usage },     [CTL_SYNC] = { .served = do_sync },
	[CTL_DELETE] = { .server = do_delete },   [CTL_CLOSE] = { .server = do_close },
	[CTL_SWEEP] = { .server = do_sweep },     [CTL_LIST] = { .server = do_list },
	[CTL_STATS] = { .server = do_stats },     [CTL_TRIM] = { .server = do_trim },
	[CTL_BATCH] = { .served = do_batch },     [CTL_CHANGES] = { .served = do_changes },
	[CTL_ANSWERED] = { .served = do_answered },
	[CTL_ENTRIES] = { .served = do_entries },
	[CTL_AWAIT] = { .server = do_await },     [CTL_END] = { .server = do_end },
	[CTL_QUIT] = { .server = do_quit },       [CTL_LEAVE] = { .server = do_leave },
	[CTL_SETTLE] = { .server = do_settle },   [CTL_HOLD] = { .served = do_hold },
};

static int perform_now(struct server *s, const struct ctl_request *q, struct answer *a,
		       struct err *err)
{
	if (table[q->op].server)
		return table[q->op].server(s, q, a, err);
	struct served *w;
	if (q->op == CTL_MOUNT)
		served_mend(s, q->id);
	int r = served_get(s, q->id, &w, err);
	if (r < 0)
		return r;
	r = table[q->op].served(w, q, a, err);
	served_put(w);
	return r;
}

/* One that waits for changes is none that `settle` has to wait for. */
static int perform(struct server *s, const struct ctl_request *q, struct answer *a, struct err *err)
{
	if (q->op == CTL_AWAIT || q->op == CTL_SETTLE)
		return perform_now(s, q, a, err);
	int r = server_begin(s, q->peer.number, err);
	if (r < 0)
		return r;
	r = perform_now(s, q, a, err);
	server_done(s);
	return r;
}

static int dump_to_buf(const char *text, size_t n, void *ctx)
{
	buf_add(ctx, text, n);
	return 0;
}

static int dump(const json_t *j, struct buf *out)
{
	buf_reset(out);
	if (!j || json_dump_callback(j, dump_to_buf, out, JSON_COMPACT) < 0)
		return -ENOMEM;
	return buf_error(out);
}

static int dump_error(const struct err *err, struct buf *out)
{
	json_t *text = json_string(err->text);
	if (!text) /* a name in it isn't UTF-8 */
		text = json_string("an error whose text can't be shown");
	json_t *j = json_pack("{s:{s:i,s:o}}", "error", "errno", -err->code, "text", text);
	int r = dump(j, out);
	json_decref(j);
	return r;
}

int ctl_answer(struct server *s, const struct peer *peer, const void *data, size_t len, int fd,
	       struct buf *out, enum ctl_end *end)
{
	struct err err = { 0 };
	struct ctl_request q;
	int r = ctl_parse(data, len, &q, &err);
	if (r < 0)
		return dump_error(&err, out);
	q.fd = fd;
	q.peer = *peer;
	struct answer a = { .json = json_pack("{s:b}", "ok", 1) };
	r = a.json ? perform(s, &q, &a, &err) : err_no_memory(&err);
	if (r >= 0)
		*end = q.op == CTL_QUIT    ? CTL_END_QUIT
		       : q.op == CTL_LEAVE ? CTL_END_LEAVE
					   : CTL_GO_ON;
	if (r >= 0 && (a.failed || dump(a.json, out) < 0))
		r = err_set(&err, -ENOMEM, "done, but out of memory for the answer");
	if (r >= 0 && out->len > FRAME_MAX)
		r = err_set(&err, -EMSGSIZE, "done, but the answer is too long for a message");
	json_decref(a.json);
	ctl_request_done(&q);
	return r < 0 ? dump_error(&err, out) : 0;
}
