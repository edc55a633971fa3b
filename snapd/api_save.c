/* Saving a workspace, restoring it, importing an archive: what makes snapshots and moves heads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "fs/work/ino.h"
#include "fs/work/save.h"
#include "snapd/api.h"
#include "snapd/archive_import.h"
#include "snapd/oci.h"
#include "snapd/flattener.h"
#include "snapd/intents.h"
#include "snapd/jobs.h"
#include "snapd/journal.h"
#include "snapd/limits.h"
#include "snapd/stackop.h"
#include "snapd/unchanged.h"
#include "snapd/web_parse.h"

static int no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

/* ---- what save and import have in common ---- */

struct maker {
	struct snapd *sd;
	struct snap_row row;
	struct store_session *ss;
};

static void maker_done(struct maker *m)
{
	store_session_end(m->ss);
	snap_row_done(&m->row);
}

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

static int maker_init(struct maker *m, struct snapd *sd, const char *name, const char *message,
		      struct err *err)
{
	m->sd = sd;
	id_make(m->row.id, "sn");
	doing_owner(m->row.own.owner);
	if (message && *message && !(m->row.message = strdup(message)))
		return no_memory(err);
	if (name) {
		json_t *names = json_pack("[s]", name);
		m->row.names = names ? json_text(names, JSON_COMPACT) : NULL;
		json_decref(names);
		if (!m->row.names)
			return no_memory(err);
	}
	return 0;
}

/* Objects, then the record, then the catalog (invariant 5). `ws` NULL: of no workspace. */
static int maker_commit(struct maker *m, const struct stack *saved, const char *ws,
			const struct buf *sealed, struct err *err)
{
	struct snapd *sd = m->sd;
	int r = manifest_put(m->ss, saved, &m->row.manifest, err);
	if (r >= 0)
		r = store_sync(m->ss, err);
	if (r < 0)
		return snapd_inner(r);
	m->row.created_ns = snapd_now_ns();
	r = catalog_intend(sd->catalog, m->row.id, err);
	if (r < 0)
		return r;
	r = records_snap_write(sd->records, &m->row, false, err);
	if (r >= 0)
		r = catalog_snap_insert(sd->catalog, &m->row, ws, sealed ? sealed->data : NULL,
					sealed ? sealed->len : 0, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r < 0) {
		(void)catalog_snap_delete(sd->catalog, m->row.id, true, NULL); /* told: the first */
		(void)records_snap_remove(sd->records, m->row.id, NULL);
	}
	flattener_sync_records(sd->flattener);
	return r;
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
		return no_memory(err);
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
		r = head.names ? records_snap_write(sd->records, &head, true, err) : no_memory(err);
		if (r >= 0)
			r = catalog_snap_update(sd->catalog, &head, err);
		if (r >= 0)
			r = catalog_sync(sd->catalog, err);
	}
	rows_unlock(sd, s->ws.ws.head);
	if (r < 0)
		return r;
	*result = api_snapshot(&head);
	return *result && json_object_set_new(*result, "unchanged", json_true()) == 0
		       ? 0
		       : no_memory(err);
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
		return r == -ENOMEM ? no_memory(err) : 0; /* ours, damaged: it is saved anew */
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
		return no_memory(err);
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
		return no_memory(err);
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
	*result = api_snapshot(&m->row);
	return *result ? 0 : no_memory(err);
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
		return no_memory(err);
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
		return no_memory(err);
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
		return no_memory(err);
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

int api_save_image(struct save *s, const char *image, struct err *err)
{
	free(s->maker.row.image);
	s->maker.row.image = strdup(image);
	s->always = true;
	return s->maker.row.image ? 0 : no_memory(err);
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
	r = snapd_inner(fs_restore(sd->fs, ws->ws.id, &to, NULL, err));
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
	return rp->json ? 0 : no_memory(err);
}

/* ---- import ---- */

struct import {
	struct maker maker;
	struct stream *body;
	struct progress *progress;
	uint64_t max_bytes, max_inodes;
	bool image; /* of containers: oci.h */
	int spool;  /* the upload, where its caller didn't wait; -1: it is `body` */
	uint64_t spooled; /* bytes of it that were read */
	char owner[OWNER_SIZE]; /* whose it is then */
};

static void import_free(void *task)
{
	struct import *im = task;
	maker_done(&im->maker);
	cleanup_close(&im->spool);
	free(im);
}

static ssize_t import_read(void *ctx, void *buf, size_t n, struct err *err)
{
	struct import *im = ctx;
	ssize_t got = stream_read(im->body, buf, n, -1);
	return got < 0 ? err_set(err, (int)got, "the upload broke off") : got;
}

/* Of an upload that a job was left with. */
static ssize_t import_read_spool(void *ctx, void *buf, size_t n, struct err *err)
{
	struct import *im = ctx;
	ssize_t got;
	do
		got = pread(im->spool, buf, n, (off_t)im->spooled);
	while (got < 0 && errno == EINTR);
	im->spooled += got > 0 ? (uint64_t)got : 0;
	return got < 0 ? err_sys(err, -errno, "read the upload") : got;
}

static int import_progress(void *ctx, uint64_t bytes, uint64_t members)
{
	struct import *im = ctx;
	progress_tell(im->progress, bytes, 0, "bytes", "import");
	return progress_cancelled(im->progress) ? -ECANCELED : 0;
}

static int import_reserve(void *ctx, uint64_t n, uint64_t *first, struct err *err)
{
	struct import *im = ctx;
	return ino_reserve(NULL, im->maker.sd->root, n, first, err);
}

static int import_image(struct import *im, struct stack *out, struct archive_import_stats *st,
			struct err *err)
{
	struct snapd *sd = im->maker.sd;
	char images[PATH_SIZE], scratch[PATH_SIZE];
	struct archive_source src = { im->spool >= 0 ? import_read_spool : import_read, im };
	struct archive_import_options opt = {
		.session = im->maker.ss,
		.images = images,
		.scratch = scratch,
		.reserve = import_reserve,
		.reserve_ctx = im,
		.max_bytes = im->max_bytes,
		.max_inodes = im->max_inodes,
		.uid = geteuid(),
		.gid = getegid(),
		.squash_owner = geteuid() != 0,
		.progress = import_progress,
		.progress_ctx = im,
	};
	(void)snprintf(images, sizeof(images), "%s/images", sd->root);
	(void)snprintf(scratch, sizeof(scratch), "%s/tmp", sd->root);
	random_bytes(&opt.seed, sizeof(opt.seed));
	out->seed = opt.seed;
	return im->image ? oci_import(&out->image, &im->maker.row.image, &opt, &src, st, err)
			 : archive_import(&out->image, &opt, &src, st, err);
}

/* An archive may end before the upload does, but an upload that never ended is none. */
static int import_rest(struct import *im, struct err *err)
{
	char buf[8192];
	size_t n = 0;
	ssize_t got;
	if (im->spool >= 0) /* it came whole */
		return 0;
	while ((got = stream_read(im->body, buf, sizeof(buf), -1)) > 0)
		if ((n += (size_t)got) > WEB_DISCARD_MAX)
			return err_set(err, -EBADMSG, "more than %d MiB behind the archive's end",
				       WEB_DISCARD_MAX >> 20);
	return got < 0 ? err_set(err, -EBADMSG, "the upload broke off") : 0;
}

static int import_run(void *task, struct progress *p, unsigned *status, json_t **result,
		      struct err *err)
{
	struct import *im = task;
	struct snapd *sd = im->maker.sd;
	struct archive_import_stats st = { 0 };
	auto_stack stack = { 0 };
	im->progress = p;
	int r = store_session_begin(sd->store, &im->maker.ss, err);
	if (r < 0)
		return snapd_inner(r);
	images_making(sd->images);
	r = import_image(im, &stack, &st, err);
	if (r >= 0)
		r = import_rest(im, err);
	if (r == -ECONNRESET)
		r = -EBADMSG;
	im->maker.row.files = st.inodes;
	im->maker.row.bytes = st.bytes;
	im->maker.row.stored_bytes = store_session_stored(im->maker.ss);
	if (r >= 0)
		r = maker_commit(&im->maker, &stack, NULL, NULL, err);
	images_made(sd->images, r >= 0 ? &stack.image : NULL);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	*status = 201;
	*result = api_snapshot(&im->maker.row);
	return *result ? 0 : no_memory(err);
}

/* ---- an import that its caller leaves behind ---- */

/* The upload is taken in first; what the caller gets is the job that imports it then. */
struct leaving {
	struct import *im; /* NULL: the job's by now */
	char job[ID_SIZE]; /* "": there is none */
};

static void leaving_free(void *task)
{
	struct leaving *l = task;
	if (l->im)
		import_free(l->im);
	free(l);
}

static int spool_upload(struct import *im, struct err *err)
{
	enum { PIECE = 256 * 1024, LOOK_BYTES = 16 << 20 };
	struct snapd *sd = im->maker.sd;
	auto_free char *buf = malloc(PIECE);
	uint64_t at = 0, looked = 0;
	ssize_t n;
	if (!buf)
		return no_memory(err);
	while ((n = stream_read(im->body, buf, PIECE, -1)) > 0) {
		int r = io_write_full(NULL, im->spool, buf, (size_t)n, at);
		if (r < 0)
			return err_sys(err, r, "keep the upload");
		at += (uint64_t)n;
		if (at - looked < LOOK_BYTES)
			continue;
		looked = at;
		r = limits_room(sd, im->owner, at, err);
		if (r < 0)
			return r;
	}
	return n < 0 ? err_set(err, -EBADMSG, "the upload broke off") : 0;
}

static int leaving_run(void *task, struct progress *p, unsigned *status, json_t **result,
		       struct err *err)
{
	struct leaving *l = task;
	struct import *im = l->im;
	struct snapd *sd = im->maker.sd;
	int r = spool_upload(im, err);
	if (r < 0)
		return r;
	const struct reply job = {
		.status = 200, .job = import_run, .task = im, .task_free = import_free
	};
	struct doing *mine = doing_again(doing_now()), *was = doing_set(mine);
	l->im = NULL;
	r = jobs_start(sd, &job, result, err); /* without `mine` it says that memory is short */
	(void)doing_set(was);
	doing_unref(mine);
	*status = 202;
	const char *id = r < 0 ? NULL : json_string_value(json_object_get(*result, "id"));
	if (id)
		(void)snprintf(l->job, sizeof(l->job), "%s", id);
	return r;
}

static void leaving_tell(void *task, struct reply *rp)
{
	const struct leaving *l = task;
	if (l->job[0])
		reply_header(rp, "Location", "/v1/jobs/%s", l->job);
}

static int leave_import(struct import *im, struct reply *rp, struct err *err)
{
	struct snapd *sd = im->maker.sd;
	char scratch[PATH_SIZE];
	struct leaving *l = calloc(1, sizeof(*l));
	(void)snprintf(scratch, sizeof(scratch), "%s/tmp", sd->root);
	im->spool = l ? open(scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
	if (im->spool < 0) {
		int r = l ? err_sys(err, -errno, "make a temporary file") : no_memory(err);
		free(l);
		return r;
	}
	doing_owner(im->owner);
	l->im = im;
	rp->job = leaving_run;
	rp->tell = leaving_tell;
	rp->task = l;
	rp->task_free = leaving_free;
	return 0;
}

static int query_number(struct request *rq, const char *key, uint64_t *out, struct err *err)
{
	const char *s = request_query(rq, key);
	char *end;
	if (!s)
		return 0;
	errno = 0;
	*out = strtoull(s, &end, 10);
	return errno || !*s || *end || *s == '-'
		       ? request_bad_field(rq, key, err, "a whole number from 0 is expected")
		       : 0;
}

int api_import(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *name = request_query(rq, "name"), *message = request_query(rq, "message");
	const char *format = request_query(rq, "format");
	bool image = format && strcmp(format, "image") == 0;
	if (format && !image && strcmp(format, "auto") != 0)
		return request_bad_field(rq, "format", err,
					 "auto (the archive's own marks say) or image");
	if (message && strlen(message) > MESSAGE_MAX)
		return request_bad_field(rq, "message", err, "it is too long");
	const char *damage = catalog_damage(sd->catalog);
	if (damage)
		return err_set(err, -EUCLEAN, "the catalog is damaged: bough fsck --repair");
	struct import *im = calloc(1, sizeof(*im));
	if (!im)
		return no_memory(err);
	const char *prefer = request_header(rq, "Prefer");
	bool leave = web_prefers(prefer, "respond-async");
	im->spool = -1;
	im->body = rq->upload;
	im->image = image;
	int r = name ? api_snap_name_free(rq, name, err) : 0;
	if (r >= 0)
		r = limits_snapshot(sd, rq->caller->owner, err);
	if (r >= 0)
		r = query_number(rq, "max_bytes", &im->max_bytes, err);
	if (r >= 0)
		r = query_number(rq, "max_inodes", &im->max_inodes, err);
	if (r >= 0)
		r = maker_init(&im->maker, sd, name, message, err);
	if (r >= 0 && leave)
		r = leave_import(im, rp, err);
	if (r < 0) {
		import_free(im);
		return r;
	}
	if (leave)
		return 0;
	rp->job = import_run;
	rp->task = im;
	rp->task_free = import_free;
	return 0;
}
