/* Workspaces: list, make, fork, change, mount, remove. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "fs/work/save.h"
#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/flattener.h"
#include "snapd/intents.h"
#include "snapd/outcome.h"
#include "snapd/sandbox.h"

static int reply_workspace(struct snapd *sd, struct reply *rp, const struct ws_row *row,
			   const struct fs_usage *usage, struct err *err)
{
	rp->json = api_workspace(sd, row, usage);
	return rp->json ? 0 : err_no_memory(err);
}

/* ---- list and get ---- */

static int list_rows(struct request *rq, struct page *page, json_t *items,
		     const struct ws_row *rows, size_t n, bool with_usage, struct err *err)
{
	struct snapd *sd = rq->ctx;
	for (size_t i = 0; i < n; i++) {
		struct fs_usage usage;
		if (!access_sees(sd, rq->caller, &rows[i].own, rows[i].id) ||
		    !page_has_labels(rq, rows[i].labels) ||
		    !page_takes(page, rows[i].created_ns, rows[i].id))
			continue;
		/* One that can't be opened is shown without. */
		bool got = with_usage && fs_usage(sd->fs, rows[i].id, &usage, NULL) == 0;
		if (got)
			faults_note(sd, rows[i].id, usage.fault);
		json_t *j = api_workspace(sd, &rows[i], got ? &usage : NULL);
		if (json_array_append_new(items, j) < 0)
			return err_no_memory(err);
	}
	return 0;
}

int api_ws_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct page page;
	bool removed = request_query_true(rq, "deleted"), more = true;
	int r = page_begin_want(&page, rq, err);
	if (r < 0)
		return r;
	/* What is shown as mounted is: after a crash of bough-fs this waits until it is again. */
	bool up = fs_ping(sd->fs, NULL) == 0;
	bool with_usage = up && !removed && request_query_true(rq, "usage");
	json_t *items = json_array();
	while (r >= 0 && more) {
		struct ws_row *rows;
		size_t n;
		/* A sandbox's root is that sandbox. */
		r = catalog_ws_page(sd->catalog, removed, request_query_true(rq, "roots"),
				    &page.want, &rows, &n, err);
		if (r < 0)
			break;
		r = list_rows(rq, &page, items, rows, n, with_usage, err);
		more = n > 0 && page_goes_on(&page, n, rows[n - 1].created_ns, rows[n - 1].id);
		ws_rows_free(rows, n);
	}
	return page_reply(rp, &page, items, r, err);
}

/* Who can change it is told which sandboxes have it, also those that aren't shown to him. */
static json_t *holders(struct snapd *sd, const char *id)
{
	struct attached_row *rows = NULL;
	size_t n = 0;
	json_t *list = json_array();
	if (catalog_attached(sd->catalog, NULL, id, &rows, &n, NULL) < 0)
		return list;
	for (size_t i = 0; i < n; i++) {
		auto_sandbox_row sb = { 0 };
		if (catalog_sandbox_get(sd->catalog, rows[i].sandbox, &sb, NULL) >= 0)
			(void)json_array_append_new(
				list, json_pack("{s:s, s:s, s:s, s:s, s:b, s:b}", "id", sb.id,
						"name", sb.name, "owner", sb.own.owner, "target",
						rows[i].target, "read_only", rows[i].read_only,
						"exclusive", rows[i].exclusive));
	}
	free(rows);
	return list;
}

int api_ws_get(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_ws_row row = { 0 };
	struct fs_usage usage;
	int r = catalog_ws_get(sd->catalog, rq->params[0], &row, err);
	if (r < 0)
		return r;
	bool got = !row.broken[0] && fs_usage(sd->fs, row.id, &usage, NULL) == 0;
	if (got)
		faults_note(sd, row.id, usage.fault);
	r = reply_workspace(sd, rp, &row, got ? &usage : NULL, err);
	if (r >= 0 && access_writes(sd, rq->caller, &row.own, row.id))
		r = json_object_set_new(rp->json, "sandboxes", holders(sd, row.id)) < 0
			    ? err_no_memory(err)
			    : 0;
	return r;
}

/* Where a page of the line that begins with `snap` begins: behind the one that its cursor names, or
 * where that is gone behind all that are as young. */
static int line_begin(struct snapd *sd, struct page *page, const char *snap, char at[ID_SIZE],
		      struct err *err)
{
	auto_snap_row last = { 0 };
	(void)snprintf(at, ID_SIZE, "%s", snap);
	if (!page->want.after_id)
		return 0;
	int r = catalog_snap_get(sd->catalog, page->want.after_id, &last, err);
	if (r >= 0)
		(void)snprintf(at, ID_SIZE, "%s", last.parent);
	else if (r == -ENOENT)
		page->begun = false;
	return r == -ENOENT ? 0 : r;
}

/* A snapshot ("": none) and its line of parents. */
static int reply_line(struct request *rq, struct reply *rp, const char *snap, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct page page;
	char at[ID_SIZE];
	int r = page_begin_want(&page, rq, err);
	if (r >= 0)
		r = line_begin(sd, &page, snap, at, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	while (r >= 0 && *at) {
		struct snap_row *rows;
		size_t n;
		r = catalog_snap_log(sd->catalog, at, page.want.max, &rows, &n, err);
		if (r < 0)
			break;
		r = api_snapshots(rq, &page, items, rows, n, err);
		bool more = n > 0 &&
			    page_goes_on(&page, n, rows[n - 1].created_ns, rows[n - 1].id);
		(void)snprintf(at, sizeof(at), "%s", more ? rows[n - 1].parent : "");
		snap_rows_free(rows, n);
	}
	return page_reply(rp, &page, items, r, err);
}

int api_ws_log(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_ws_row row = { 0 };
	int r = catalog_ws_get(sd->catalog, rq->params[0], &row, err);
	return r < 0 ? r : reply_line(rq, rp, row.head, err);
}

int api_snap_log(struct request *rq, struct reply *rp, struct err *err)
{
	return reply_line(rq, rp, rq->params[0], err);
}

/* ---- making ---- */

/* Workspaces that are being made: rows, and leases on their ids, so that a bough-fs that
 * is started meanwhile doesn't sweep them away. */
struct making {
	struct snapd *sd;
	size_t n;
	struct ws_row *rows;
	struct lease *leases;
	struct fs_new *fs;
	char (*paths)[PATH_SIZE];
	const struct stack *stack; /* of the first; NULL: `src` says, or it is empty */
	struct snap_row *snap;     /* made with the only one; NULL: none is */
};

static void making_done(struct making *m)
{
	for (size_t i = 0; m->leases && i < m->n; i++)
		lease_give(&m->leases[i]);
	if (m->rows)
		ws_rows_free(m->rows, m->n);
	free(m->leases);
	free(m->fs);
	free(m->paths);
}

#define auto_making __attribute__((cleanup(making_done))) struct making

static int making_init(struct making *m, struct snapd *sd, size_t n, struct err *err)
{
	m->sd = sd;
	m->n = n;
	m->rows = calloc(n, sizeof(*m->rows));
	m->leases = calloc(n, sizeof(*m->leases));
	m->fs = calloc(n, sizeof(*m->fs));
	m->paths = calloc(n, sizeof(*m->paths));
	return m->rows && m->leases && m->fs && m->paths ? 0 : err_no_memory(err);
}

/* Fills the i-th, with a fresh id. */
static int making_add(struct making *m, size_t i, const char *name, const struct ws_row *like,
		      bool mount, struct err *err)
{
	struct ws_row *row = &m->rows[i];
	id_make(row->id, "ws");
	(void)snprintf(row->name, sizeof(row->name), "%s", name);
	row->created_ns = snapd_now_ns();
	row->own = like->own;
	doing_owner(row->own.owner);
	row->mount = mount;
	row->quota_bytes = like->quota_bytes;
	row->quota_inodes = like->quota_inodes;
	memcpy(row->base, like->base, sizeof(row->base));
	memcpy(row->head, like->head, sizeof(row->head));
	memcpy(row->parent, like->parent, sizeof(row->parent));
	memcpy(row->sandbox, like->sandbox, sizeof(row->sandbox));
	if (*like->labels && !(row->labels = strdup(like->labels)))
		return err_no_memory(err);
	if (like->git && !(row->git = strdup(like->git)))
		return err_no_memory(err);
	if (like->description && !(row->description = strdup(like->description)))
		return err_no_memory(err);
	snapd_mount_path(m->sd, row->id, m->paths[i]);
	m->fs[i] = (struct fs_new){ .id = row->id,
				    .path = mount ? m->paths[i] : NULL,
				    .bytes = row->quota_bytes,
				    .inodes = row->quota_inodes };
	return lease_take(&m->leases[i], m->sd->leases, row->id, LEASE_EXCLUSIVE, "create", 0, err);
}

/* What bough-fs made, or may have made, goes again. */
static void making_undo(struct making *m)
{
	for (size_t i = 0; i < m->n; i++) {
		struct err err = { 0 };
		if (fs_delete(m->sd->fs, m->rows[i].id, &err) < 0)
			log_warn("left for the next start to remove: %s: %s", m->rows[i].id,
				 err.text);
		if (m->fs[i].path)
			api_remove_mount_point(m->paths[i]);
	}
}

/* The catalog names them: from here on they exist. */
static int making_commit(struct making *m, struct err *err)
{
	struct snapd *sd = m->sd;
	int r = m->snap ? catalog_ws_insert_with(sd->catalog, m->rows, m->snap, err)
			: catalog_ws_insert(sd->catalog, m->rows, m->n, err);
	if (r < 0)
		return r;
	if (m->snap) /* a kill before it: the next start writes it */
		r = records_snap_write(sd->records, m->snap, true, err);
	for (size_t i = 0; i < m->n && r >= 0; i++)
		r = records_ws_write(sd->records, &m->rows[i], err);
	if (m->snap && r >= 0)
		r = catalog_sync(sd->catalog, err);
	/* The first failure is told. */
	for (size_t i = 0; i < m->n && r < 0; i++)
		(void)catalog_ws_delete(sd->catalog, m->rows[i].id, NULL);
	if (m->snap && r < 0) {
		(void)catalog_snap_delete(sd->catalog, m->snap->id, true, NULL);
		(void)records_snap_remove(sd->records, m->snap->id, NULL);
	}
	return snapd_inner(r);
}

static int make_from_snapshot(struct making *m, struct source *src, uid_t uid, gid_t gid,
			      struct err *err)
{
	auto_stack stack = { 0 };
	int r = 0;
	if (src->is_snap)
		r = source_stack(m->sd, src, &stack, err);
	if (r < 0)
		return r;
	const struct stack *from = src->is_snap ? &stack : m->stack;
	if (from && m->rows[0].head[0]) {
		buf_reset(&m->rows[0].head_stack);
		stack_encode(from, &m->rows[0].head_stack);
		if (buf_error(&m->rows[0].head_stack))
			return err_no_memory(err);
	}
	r = fs_create(m->sd->fs, &m->fs[0], from, uid, gid, err);
	return r == -ENOENT || r == -EINVAL ? -EIO : r;
}

static int make_by_fork(struct making *m, struct source *parent, uint64_t *pause_ns,
			struct err *err)
{
	for (size_t i = 0; i < m->n; i++) {
		struct buf *to = &m->rows[i].head_stack;
		buf_reset(to);
		buf_add(to, parent->ws.head_stack.data, parent->ws.head_stack.len);
		if (buf_error(to))
			return err_no_memory(err);
	}
	int r = fs_fork(m->sd->fs, parent->ws.id, m->fs, m->n, pause_ns, err);
	if (r == -E2BIG) {
		r = flattener_shorten(m->sd->flattener, &parent->lease, "fork", err);
		if (r >= 0)
			r = fs_fork(m->sd->fs, parent->ws.id, m->fs, m->n, pause_ns, err);
	}
	return snapd_inner(r);
}

/* bough-fs may die under a create or fork: once it is back, what it may have made is removed
 * and all is done once more. */
static int make(struct making *m, struct source *src, uid_t uid, gid_t gid, uint64_t *pause_ns,
		struct err *err)
{
	int r = -ECONNRESET;
	for (int tries = 0; tries < 2 && r == -ECONNRESET; tries++) {
		if (tries)
			making_undo(m);
		if (src && !src->is_snap)
			r = make_by_fork(m, src, pause_ns, err);
		else
			r = make_from_snapshot(m, src ? src : &(struct source){ 0 }, uid, gid, err);
	}
	if (r >= 0)
		r = making_commit(m, err);
	if (r < 0)
		making_undo(m);
	if (r < 0 || !src)
		return r;
	if (!src->is_snap)
		flattener_consider(m->sd->flattener, src->ws.id);
	for (size_t i = 0; i < m->n; i++)
		flattener_consider(m->sd->flattener, m->rows[i].id);
	return r;
}

/* A name for a workspace that nobody has; the catalog says so again in the end. */
static int free_name(struct request *rq, const char *field, const char *name, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct err why = { 0 };
	if (name_check(name, &why) < 0)
		return request_bad_field(rq, field, err, "%s", why.text);
	int r = catalog_ws_has_name(sd->catalog, rq->caller->owner, name, err);
	return r > 0 ? err_set(err, -EEXIST, "there is a workspace \"%s\" already", name) : r;
}

int api_ws_create(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	auto_making m = { 0 };
	struct ws_row like = { 0 };
	uint64_t pause_ns;
	const char *name = request_string(rq, "name"), *from = request_string(rq, "from");
	if (json_is_object(json_object_get(rq->body, "git")))
		return api_ws_checkout(rq, rp, err);
	int r = free_name(rq, "name", name, err);
	if (r >= 0)
		r = api_own_take(rq, &like.own, err);
	if (r >= 0 && from)
		r = source_find(&src, sd, from, "create", err);
	if (r < 0)
		return r;
	like.description = (char *)(uintptr_t)request_string(rq, "description"); /* borrowed */
	if (from && src.is_snap) {
		memcpy(like.base, src.snap.id, sizeof(like.base));
		memcpy(like.head, src.snap.id, sizeof(like.head));
		like.git = src.snap.git; /* borrowed */
	} else if (from) {
		memcpy(like.base, src.ws.base, sizeof(like.base));
		memcpy(like.head, src.ws.head, sizeof(like.head));
		memcpy(like.parent, src.ws.id, sizeof(like.parent));
		like.git = src.ws.git; /* borrowed */
	}
	like.quota_bytes = request_number(rq, "quota_bytes", src.ws.quota_bytes);
	like.quota_inodes = request_number(rq, "quota_inodes", src.ws.quota_inodes);
	like.labels = api_labels_text(json_object_get(rq->body, "labels"));
	r = like.labels ? making_init(&m, sd, 1, err) : err_no_memory(err);
	if (r >= 0)
		r = making_add(&m, 0, name, &like, request_bool(rq, "mount", true), err);
	free(like.labels);
	if (r >= 0 && json_object_get(rq->body, "xattrs"))
		m.fs[0].xattrs = request_bool(rq, "xattrs", true) ? FS_XATTRS_ON : FS_XATTRS_OFF;
	if (r >= 0)
		r = make(&m, from ? &src : NULL, (uid_t)request_number(rq, "uid", geteuid()),
			 (gid_t)request_number(rq, "gid", getegid()), &pause_ns, err);
	if (r < 0)
		return r;
	rp->status = 201;
	return reply_workspace(sd, rp, &m.rows[0], NULL, err);
}

/* ---- of a stack ---- */

void ws_plan_done(struct ws_plan *p)
{
	free(p->name);
	ws_row_done(&p->like);
}

int ws_plan_init(struct ws_plan *p, struct request *rq, struct err *err)
{
	const char *name = request_string(rq, "name");
	int r = free_name(rq, "name", name, err);
	if (r < 0)
		return r;
	r = api_own_take(rq, &p->like.own, err);
	if (r < 0)
		return r;
	const char *description = request_string(rq, "description");
	if (description && !(p->like.description = strdup(description)))
		return err_no_memory(err);
	p->like.quota_bytes = request_number(rq, "quota_bytes", 0);
	p->like.quota_inodes = request_number(rq, "quota_inodes", 0);
	p->like.labels = api_labels_text(json_object_get(rq->body, "labels"));
	p->name = strdup(name);
	p->mount = request_bool(rq, "mount", true);
	p->xattrs = request_bool(rq, "xattrs", true);
	p->uid = (uid_t)request_number(rq, "uid", geteuid());
	p->gid = (gid_t)request_number(rq, "gid", getegid());
	return p->name && p->like.labels ? 0 : err_no_memory(err);
}

int api_ws_make(struct ws_row *row, struct snapd *sd, const struct ws_plan *p, struct err *err)
{
	auto_making m = { 0 };
	auto_stack stack = { 0 };
	int r = making_init(&m, sd, 1, err);
	if (r >= 0)
		r = making_add(&m, 0, p->name, &p->like, p->mount, err);
	if (r >= 0 && p->stack)
		r = p->stack(p->ctx, m.paths[0], &stack, &m.rows[0].git, err);
	if (r < 0)
		return r;
	m.stack = p->stack ? &stack : NULL;
	m.snap = p->snap;
	if (m.snap)
		memcpy(m.snap->workspace, m.rows[0].id, sizeof(m.snap->workspace));
	if (!p->xattrs)
		m.fs[0].xattrs = FS_XATTRS_OFF;
	r = make(&m, NULL, p->uid, p->gid, NULL, err);
	if (r < 0)
		return r;
	*row = m.rows[0];
	m.rows[0] = (struct ws_row){ 0 };
	return 0;
}

/* ---- fork ---- */

static int fork_count(struct request *rq, size_t *n, struct err *err)
{
	const json_t *names = json_object_get(rq->body, "names");
	uint64_t count = request_number(rq, "count", 0);
	const char *name = request_string(rq, "name");
	if (names && (name || count))
		return request_bad_field(rq, "names", err, "either names, or name and count");
	if (names)
		count = json_array_size(names);
	else if (!name)
		return request_bad_field(rq, "names", err, "it is missing");
	if (count < 1 || count > FORK_MAX)
		return request_bad_field(rq, names ? "names" : "count", err, "1 to %d", FORK_MAX);
	*n = count;
	return 0;
}

static int fork_name(struct request *rq, size_t i, char out[NAME_SIZE + 16], struct err *err)
{
	const json_t *names = json_object_get(rq->body, "names");
	const char *name = names ? json_string_value(json_array_get(names, i))
				 : request_string(rq, "name");
	for (size_t j = 0; names && j < i; j++)
		if (strcmp(name, json_string_value(json_array_get(names, j))) == 0)
			return request_bad_field(rq, "names", err, "\"%.100s\" twice", name);
	if (names)
		(void)snprintf(out, NAME_SIZE + 16, "%.*s", NAME_SIZE + 14, name);
	else
		(void)snprintf(out, NAME_SIZE + 16, "%.*s-%u", NAME_SIZE - 1, name,
			       (unsigned)i + 1);
	return free_name(rq, names ? "names" : "name", out, err);
}

int api_ws_fork_make(struct ws_row *rows, struct snapd *sd, struct source *src,
		     const struct ws_row *like, const char *const *names, size_t n,
		     uint64_t *pause_ns, struct err *err)
{
	auto_making m = { 0 };
	int r = making_init(&m, sd, n, err);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = making_add(&m, i, names[i], like, true, err);
	if (r >= 0)
		r = make(&m, src, 0, 0, pause_ns, err);
	if (r < 0)
		return r;
	memcpy(rows, m.rows, n * sizeof(*rows));
	memset(m.rows, 0, n * sizeof(*rows)); /* the caller's */
	return 0;
}

int api_ws_fork(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	auto_making m = { 0 };
	struct ws_row like = { 0 };
	uint64_t pause_ns = 0;
	size_t n = 0;
	int r = fork_count(rq, &n, err);
	if (r >= 0)
		r = api_own_take(rq, &like.own, err);
	if (r >= 0)
		r = source_find_ws(&src, sd, rq->params[0], LEASE_SHARED, "fork", err);
	if (r < 0)
		return r;
	memcpy(like.base, src.ws.base, sizeof(like.base));
	memcpy(like.head, src.ws.head, sizeof(like.head));
	memcpy(like.parent, src.ws.id, sizeof(like.parent));
	like.git = src.ws.git;                                                   /* borrowed */
	like.description = (char *)(uintptr_t)request_string(rq, "description"); /* borrowed */
	like.quota_bytes = src.ws.quota_bytes;
	like.quota_inodes = src.ws.quota_inodes;
	like.labels = api_labels_text(json_object_get(rq->body, "labels"));
	r = like.labels ? making_init(&m, sd, n, err) : err_no_memory(err);
	for (size_t i = 0; i < n && r >= 0; i++) {
		char name[NAME_SIZE + 16];
		r = fork_name(rq, i, name, err);
		if (r >= 0)
			r = making_add(&m, i, name, &like, true, err);
	}
	free(like.labels);
	if (r >= 0)
		r = make(&m, &src, 0, 0, &pause_ns, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	for (size_t i = 0; i < n; i++) {
		outcome_also(sd, "workspace.created", m.rows[i].id, "from", src.ws.id);
		(void)json_array_append_new(items, api_workspace(sd, &m.rows[i], NULL));
	}
	rp->json = json_pack("{s:o, s:I}", "items", items, "pause_ns", (json_int_t)pause_ns);
	rp->status = 201;
	return rp->json && json_array_size(items) == n ? 0 : err_no_memory(err);
}

/* ---- change ---- */

/* The labels that the row is to have, as the catalog has them; *out NULL: they stay. */
int api_labels_merge(struct request *rq, const char *have, char **out, struct err *err)
{
	const json_t *all = json_object_get(rq->body, "labels");
	json_t *add = json_object_get(rq->body, "add_labels"), *key;
	const json_t *take = json_object_get(rq->body, "remove_labels");
	size_t i;
	if (!json_is_object(all) && !json_is_object(add) && !json_is_array(take))
		return 0;
	json_t *j = json_is_object(all) ? json_deep_copy(all)
		    : have               ? json_loads(have, 0, NULL)
					: json_object();
	json_array_foreach(take, i, key)
		(void)json_object_del(j, json_string_value(key)); /* what isn't there is gone */
	int r = !j || (add && json_object_update(j, add) < 0) ? err_no_memory(err) : 0;
	if (r == 0 && json_object_size(j) > WEB_LABELS_MAX)
		r = request_bad_field(rq, "add_labels", err, "at most %d labels", WEB_LABELS_MAX);
	if (r == 0 && !(*out = api_labels_text(j)))
		r = err_no_memory(err);
	json_decref(j);
	return r;
}

/* Reads the row, and changes it, under sd->patches: of two changes at once each keeps what the
 * other made, and bough-fs hears of limits in the order in which the catalog has them. */
static int change(struct request *rq, const char *id, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_ws_row row = { 0 };
	auto_free char *labels = NULL;
	const char *name = request_string(rq, "name");
	bool limits = json_object_get(rq->body, "quota_bytes") ||
		      json_object_get(rq->body, "quota_inodes");
	int r = catalog_ws_get(sd->catalog, id, &row, err);
	if (r < 0)
		return r;
	uint64_t bytes = request_number(rq, "quota_bytes", row.quota_bytes);
	uint64_t inodes = request_number(rq, "quota_inodes", row.quota_inodes);
	if (name && strcmp(name, row.name) != 0)
		r = free_name(rq, "name", name, err);
	if (r >= 0)
		r = api_labels_merge(rq, row.labels, &labels, err);
	int owned = r < 0 ? r : api_own_take(rq, &row.own, err);
	if (r >= 0)
		r = owned;
	if (r >= 0 && limits)
		r = snapd_inner(fs_limits(sd->fs, id, bytes, inodes, err));
	if (r < 0)
		return r;
	struct ws_patch p = { .name = name,
			      .labels = labels,
			      .description = request_string(rq, "description"),
			      .own = owned > 0 ? &row.own : NULL,
			      .quota_bytes = limits ? &bytes : NULL,
			      .quota_inodes = limits ? &inodes : NULL };
	r = catalog_ws_patch(sd->catalog, id, &p, err);
	return r < 0 ? r : snapd_record_ws(sd, id, err);
}

int api_ws_patch(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	auto_ws_row row = { 0 };
	int r = source_find_ws(&src, sd, rq->params[0], LEASE_SHARED, "change", err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&sd->patches);
	r = change(rq, src.ws.id, err);
	pthread_mutex_unlock(&sd->patches);
	if (r >= 0) /* fewer may see it, perhaps */
		r = sandboxes_judge(sd, src.ws.id, err);
	if (r >= 0)
		r = catalog_ws_get(sd->catalog, src.ws.id, &row, err);
	return r < 0 ? r : reply_workspace(sd, rp, &row, NULL, err);
}

int api_ws_mount(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	struct fs_usage usage;
	char path[PATH_SIZE];
	int r = source_find_ws(&src, sd, rq->params[0], LEASE_SHARED, "mount", err);
	if (r < 0)
		return r;
	snapd_mount_path(sd, src.ws.id, path);
	r = snapd_inner(fs_mount(sd->fs, src.ws.id, path, err));
	if (r < 0)
		return err_prefix(err, r, "mount %s", src.ws.name);
	problems_set(sd->problems, src.ws.id, NULL);
	r = catalog_ws_ask_mount(sd->catalog, src.ws.id, true, err);
	if (r >= 0)
		r = snapd_record_ws(sd, src.ws.id, err);
	if (r >= 0)
		r = snapd_inner(fs_usage(sd->fs, src.ws.id, &usage, err));
	if (r >= 0)
		faults_note(sd, src.ws.id, usage.fault);
	src.ws.mount = true;
	return r < 0 ? r : reply_workspace(sd, rp, &src.ws, &usage, err);
}

int api_ws_unmount(struct snapd *sd, struct source *src, bool *busy, struct err *err)
{
	bool in_use = false;
	struct err why = { 0 };
	/* The wish first: one that dies between the two isn't mounted again. */
	int r = catalog_ws_ask_mount(sd->catalog, src->ws.id, false, err);
	if (r < 0)
		return r;
	r = snapd_record_ws(sd, src->ws.id, &why);
	/* On a full disk: who makes the catalog anew from records would mount it, no more. */
	if (r < 0 && r != -ENOSPC)
		return err_set(err, r, "%s", why.text);
	r = snapd_inner(fs_umount(sd->fs, src->ws.id, &in_use, err));
	if (r < 0)
		return r;
	problems_set(sd->problems, src->ws.id, NULL);
	src->ws.mount = false;
	if (busy)
		*busy = in_use;
	return 0;
}

/* A sandbox's root stays as long as that, and what is attached can't go from under it. */
int api_ws_refuse_used(struct snapd *sd, const struct ws_row *ws, bool running, struct err *err)
{
	char key[SANDBOX_KEY_SIZE];
	int r = sandbox_of_workspace(sd, ws, running, key, err);
	if (r <= 0)
		return r;
	if (ws->sandbox[0])
		return err_set(err, -EBUSY, "it is the root of sandbox %s: `bough rm` that", key);
	return err_set(err, -EBUSY, "sandbox %s uses it: `bough detach-workspace %s %s` first%s",
		       key, key, ws->name, running ? "" : ", or use --force");
}

int api_ws_umount(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source src = { 0 };
	bool busy = false;
	int r = source_find_ws(&src, sd, rq->params[0], LEASE_SHARED, "umount", err);
	/* Who has mounted it since the call that was cut off wants it so. */
	const bool since = r >= 0 && src.ws.mount && intent_was("by/umount/");
	if (r >= 0 && !since)
		r = api_ws_refuse_used(sd, &src.ws, true, err);
	if (r >= 0 && !since)
		r = api_ws_unmount(sd, &src, &busy, err);
	if (r >= 0)
		r = reply_workspace(sd, rp, &src.ws, NULL, err);
	if (r >= 0 && busy) /* programs still in it keep it until they leave */
		(void)json_object_set_new(rp->json, "busy", json_true());
	return r;
}
