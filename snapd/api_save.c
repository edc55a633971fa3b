/* Saving a workspace, and restoring it: what moves heads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "fs/work/save.h"
#include "snapd/api.h"
#include "snapd/flattener.h"
#include "snapd/intents.h"
#include "snapd/journal.h"
#include "snapd/limits.h"
#include "snapd/maker.h"
#include "snapd/sandbox.h"
#include "snapd/stackop.h"
#include "snapd/unchanged.h"

/* A name for a snapshot that no other has. */
int api_snap_name_free(struct request *rq, const char *name, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct err why = { 0 };
	if (name_check(name, &why) < 0)
		return request_bad_field(rq, "name", err, "%s", why.text);
	int r = catalog_snap_has_name(sd->catalog, rq->caller->owner, name, NULL, err);
	return r > 0 ? err_set(err, -EEXIST, "there is a snapshot \"%s\" already", name) : r;
}

/* ---- save ---- */

struct save {
	struct source ws;
	struct maker maker;
	struct progress *progress;
	bool named, sealed, always;
	struct stack stack; /* what is saved, once sealed */
};

static void save_free(void *task)
{
	struct save *s = task;
	maker_done(&s->maker);
	source_done(&s->ws);
	stack_done(&s->stack);
	free(s);
}

/* Objects that are made from here on stay; then what they are made of. */
static int seal(struct save *s, struct err *err)
{
	struct snapd *sd = s->maker.sd;
	int r = s->maker.ss ? 0 : store_session_begin(sd->store, &s->maker.ss, err);
	stack_done(&s->stack);
	s->stack = (struct stack){ 0 };
	if (r >= 0)
		r = source_stack(sd, &s->ws, &s->stack, err);
	s->sealed = r >= 0;
	return snapd_inner(r);
}

/* It is sealed when it is asked for, and what it goes on from after a kill is just that. */
static json_t *save_again(void *task)
{
	struct save *s = task;
	if (seal(s, NULL) < 0)
		return NULL; /* the job says why */
	json_t *name = s->named ? json_loads(s->maker.row.names, 0, NULL) : NULL;
	json_t *j = json_pack("{s:s, s:s, s:O*, s:s*, s:o}", "call", "save", "of", s->ws.ws.id,
			      "name", json_array_get(name, 0), "message", s->maker.row.message,
			      "stack", stack_to_json(&s->stack));
	json_decref(name);
	return j;
}

/* The workspace is leased: what was sealed stays, if it is there yet. */
static int take_sealed(struct save *s, const json_t *stack, struct err *err)
{
	struct view_options opt;
	struct view v;
	if (!stack)
		return 0;
	int r = store_session_begin(s->maker.sd->store, &s->maker.ss, err);
	if (r >= 0)
		r = stack_from_json(&s->stack, stack);
	layercache_options(s->maker.sd->layers, &opt);
	if (r >= 0)
		r = view_open(&v, &opt, &s->stack, NULL);
	if (r == -ENOMEM)
		return err_no_memory(err);
	if (r < 0)
		return err_set(err, -ESTALE,
			       "what was sealed for it before the daemon ended is gone: "
			       "save again");
	view_done(&v);
	s->sealed = true;
	return 0;
}

static int save_progress(void *ctx, uint64_t done, uint64_t total, uint64_t bytes)
{
	struct save *s = ctx;
	progress_tell(s->progress, done, total, "files", "save");
	return progress_cancelled(s->progress) ? -ECANCELED : 0;
}

/* The head again, with the new name where one was given. */
static int answer_unchanged(struct save *s, json_t **result, struct err *err)
{
	struct snapd *sd = s->maker.sd;
	auto_snap_row head = { 0 };
	int r;
	rows_lock(sd, s->ws.ws.head);
	r = catalog_snap_get(sd->catalog, s->ws.ws.head, &head, err);
	if (r >= 0 && s->named) {
		json_t *names = head.names ? json_loads(head.names, 0, NULL) : json_array();
		json_t *more = json_loads(s->maker.row.names, 0, NULL);
		(void)json_array_extend(names, more);
		free(head.names);
		head.names = json_text(names, JSON_COMPACT);
		json_decref(more);
		json_decref(names);
		r = head.names ? records_snap_write(sd->records, &head, true, err)
			       : err_no_memory(err);
		if (r >= 0)
			r = catalog_snap_update(sd->catalog, &head, err);
		if (r >= 0)
			r = catalog_sync(sd->catalog, err);
	}
	rows_unlock(sd, s->ws.ws.head);
	if (r < 0)
		return r;
	*result = api_snapshot(sd, &head);
	return *result && json_object_set_new(*result, "unchanged", json_true()) == 0
		       ? 0
		       : err_no_memory(err);
}

/* 1: the workspace is as its head was saved or restored. */
static int nothing_new(const struct ws_row *ws, const struct stack *sealed,
		       const struct view_options *opt, struct err *err)
{
	auto_stack head = { 0 };
	if (!ws->head[0] || ws->head_stack.len == 0)
		return 0;
	int r = stack_decode(&head, ws->head_stack.data, ws->head_stack.len);
	if (r < 0)
		return r == -ENOMEM ? err_no_memory(err) : 0; /* ours, damaged: it is saved anew */
	return stack_equal(sealed, &head) ? 1 : tree_unchanged(sealed, &head, opt, err);
}

static int save_run(void *task, struct progress *p, unsigned *status, json_t **result,
		    struct err *err)
{
	struct save *s = task;
	struct maker *m = &s->maker;
	struct snapd *sd = m->sd;
	const struct ws_row *ws = &s->ws.ws;
	struct view_options opt;
	struct save_progress progress = { save_progress, s };
	struct save_stats st = { 0 };
	struct fs_usage usage;
	auto_stack saved = { 0 };
	auto_buf encoded = { 0 };
	s->progress = p;
	layercache_options(sd->layers, &opt);
	int r = s->sealed ? 0 : seal(s, err);
	if (r < 0)
		return r;
	stack_encode(&s->stack, &encoded);
	if (buf_error(&encoded))
		return err_no_memory(err);
	r = s->always ? 0 : nothing_new(ws, &s->stack, &opt, err);
	if (r > 0)
		return answer_unchanged(s, result, err);
	if (r >= 0 && (r = limits_snapshot(sd, ws->own.owner, err)) < 0)
		return r;
	if (r >= 0)
		r = save_stack(&saved, &s->stack, &opt, m->ss, &progress, &st, err);
	if (r >= 0)
		r = fs_usage(sd->fs, ws->id, &usage, err);
	if (r < 0)
		return snapd_inner(r);
	memcpy(m->row.workspace, ws->id, sizeof(m->row.workspace));
	memcpy(m->row.parent, ws->head, sizeof(m->row.parent));
	m->row.own = ws->own; /* whoever saves */
	m->row.own.expires_ns = 0;
	m->row.own.on_expiry = EXPIRY_DELETE;
	if (ws->git && !(m->row.git = strdup(ws->git)))
		return err_no_memory(err);
	m->row.files = usage.files;
	m->row.bytes = st.bytes_read;
	m->row.stored_bytes = st.bytes_stored;
	r = maker_commit(m, &saved, ws->id, &encoded, err);
	if (r >= 0)
		r = snapd_record_ws(sd, ws->id, err);
	if (r < 0)
		return r;
	flattener_consider(sd->flattener, ws->id);
	*status = 201;
	*result = api_snapshot(sd, &m->row);
	return *result ? 0 : err_no_memory(err);
}

int api_ws_save(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *name = request_string(rq, "name");
	int r = name ? api_snap_name_free(rq, name, err) : 0;
	if (r < 0)
		return r;
	struct save *s = calloc(1, sizeof(*s));
	if (!s)
		return err_no_memory(err);
	s->named = name != NULL;
	r = source_find_ws(&s->ws, sd, rq->params[0], LEASE_SAVE, "save", err);
	if (r >= 0)
		r = maker_init(&s->maker, sd, name, request_string(rq, "message"), err);
	if (r >= 0) /* only of a job that goes on: requests have no such field */
		r = take_sealed(s, json_object_get(rq->body, "stack"), err);
	if (r < 0) {
		save_free(s);
		return r;
	}
	rp->job = save_run;
	rp->again = save_again;
	rp->task = s;
	rp->task_free = save_free;
	return 0;
}

int api_ws_save_now(struct snapd *sd, const char *id, const char *message, struct err *err)
{
	unsigned status = 200;
	json_t *result = NULL;
	struct save *s = calloc(1, sizeof(*s));
	if (!s)
		return err_no_memory(err);
	int r = source_find_ws(&s->ws, sd, id, LEASE_SAVE, "save", err);
	if (r >= 0)
		r = maker_init(&s->maker, sd, NULL, message, err);
	if (r >= 0)
		r = save_run(s, NULL, &status, &result, err);
	json_decref(result);
	save_free(s);
	return r;
}

int api_save_begin(struct save **out, struct snapd *sd, const char *id, const char *name,
		   const char *message, struct err *err)
{
	struct save *s = calloc(1, sizeof(*s));
	if (!s)
		return err_no_memory(err);
	s->named = name != NULL;
	int r = source_find_ws(&s->ws, sd, id, LEASE_SAVE, "save", err);
	if (r >= 0)
		r = maker_init(&s->maker, sd, name, message, err);
	if (r < 0) {
		save_free(s);
		return r;
	}
	*out = s;
	return 0;
}

int api_save_seal(struct save *s, struct err *err)
{
	return seal(s, err);
}

int api_save_intend(struct save *s, struct err *err)
{
	return catalog_intend(s->maker.sd->catalog, s->maker.row.id, err);
}

int api_save_image(struct save *s, const char *image, struct err *err)
{
	free(s->maker.row.image);
	s->maker.row.image = strdup(image);
	s->always = true;
	return s->maker.row.image ? 0 : err_no_memory(err);
}

int api_save_finish(struct save *s, struct progress *p, json_t **result, struct err *err)
{
	unsigned status;
	return save_run(s, p, &status, result, err);
}

void api_save_free(struct save *s)
{
	if (s)
		save_free(s);
}

/* ---- restore ---- */

int api_ws_remember_head(struct snapd *sd, const struct ws_row *ws, const struct snap_row *snap,
			 struct err *err)
{
	auto_stack now = { 0 };
	auto_buf encoded = { 0 };
	int r = fs_stack(sd->fs, ws->id, &now, err);
	if (r < 0)
		return snapd_inner(r);
	stack_encode(&now, &encoded);
	r = buf_error(&encoded);
	if (r >= 0)
		r = catalog_ws_set_head(sd->catalog, ws->id, snap->id, encoded.data, encoded.len,
					err);
	if (r >= 0 && (snap->git || ws->git)) {
		struct ws_patch p = { .git = snap->git ? snap->git : "" };
		r = catalog_ws_patch(sd->catalog, ws->id, &p, err);
	}
	return r < 0 ? r : snapd_record_ws(sd, ws->id, err);
}

int api_ws_restore_to(struct snapd *sd, struct source *ws, struct source *snap, struct err *err)
{
	auto_stack to = { 0 };
	int r = source_stack(sd, snap, &to, err);
	if (r < 0)
		return r;
	const int renumber = sandbox_check_seen(sd, ws->ws.id, NULL, err);
	r = renumber < 0 ? renumber
			 : fs_restore(sd->fs, ws->ws.id, &to, NULL, renumber > 0, err);
	r = snapd_inner(r);
	if (r >= 0)
		r = api_ws_remember_head(sd, &ws->ws, &snap->snap, err);
	if (r < 0)
		return err_prefix(err, r, "restore %s", ws->ws.name);
	layercache_trim(sd->layers, 60000);
	return 0;
}

int api_ws_restore(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_source ws = { 0 }, snap = { 0 };
	int r = source_find_ws(&ws, sd, rq->params[0], LEASE_EXCLUSIVE, "restore", err);
	if (r >= 0)
		r = source_find_snap(&snap, sd, request_string(rq, "snapshot"), LEASE_SHARED,
				     "restore", err);
	struct intent intent;
	if (r >= 0)
		r = intent_note(&intent, sd, ws.ws.id, snap.snap.id, NULL, err);
	if (r >= 0)
		r = api_ws_restore_to(sd, &ws, &snap, err);
	if (r < 0)
		return r;
	auto_ws_row row = { 0 };
	r = catalog_ws_get(sd->catalog, ws.ws.id, &row, err);
	if (r < 0)
		return r;
	rp->json = api_workspace(sd, &row, NULL);
	return rp->json ? 0 : err_no_memory(err);
}
