/* Importing an archive, as a snapshot, or as a workspace that begins with one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "fs/work/ino.h"
#include "snapd/api.h"
#include "snapd/archive_import.h"
#include "snapd/jobs.h"
#include "snapd/journal.h"
#include "snapd/limits.h"
#include "snapd/maker.h"
#include "snapd/oci.h"
#include "snapd/outcome.h"
#include "snapd/web_parse.h"

enum { LOOK_BYTES = 16 << 20 }; /* how often it is looked whether there is room */

struct import {
	struct maker maker;
	struct stream *body;
	struct progress *progress;
	uint64_t max_bytes, max_inodes;
	bool image; /* of containers: oci.h */
	struct ws_plan *plan; /* NULL: a snapshot alone */
	json_t *asked; /* the body that says the plan; NULL: there is none */
	/* The upload, where its caller didn't wait; -1: it is `body` */
	int spool;
	char file[ID_SIZE]; /* its name in ROOT/imports; "": none */
	uint64_t size, spooled; /* bytes of it that there are, and that were read */
	char owner[OWNER_SIZE]; /* whose it is then */
	uint64_t looked; /* bytes that the store had grown by when import_room looked */
};

/* ---- where an upload is kept that its caller left behind ---- */

static void file_path(const struct snapd *sd, const char *file, char out[PATH_SIZE])
{
	(void)snprintf(out, PATH_SIZE, "%s/imports%s%s", sd->root, *file ? "/" : "", file);
}

static int make_file(struct import *im, struct err *err)
{
	char path[PATH_SIZE];
	file_path(im->maker.sd, "", path);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make %s", path);
	id_make(im->file, "im");
	file_path(im->maker.sd, im->file, path);
	im->spool = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (im->spool >= 0)
		return 0;
	int r = err_sys(err, -errno, "make %s", path);
	im->file[0] = '\0';
	return r;
}

/* Its caller may go when it is told of the job. */
static int keep_file(struct import *im, struct err *err)
{
	char path[PATH_SIZE];
	file_path(im->maker.sd, "", path);
	auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || fdatasync(im->spool) < 0 || fsync(dir) < 0)
		return err_sys(err, -errno, "keep the upload");
	return 0;
}

static void drop_file(struct import *im)
{
	char path[PATH_SIZE];
	if (!im->file[0])
		return;
	file_path(im->maker.sd, im->file, path);
	if (unlink(path) < 0 && errno != ENOENT)
		log_warn("%s: %s", path, strerrordesc_np(errno)); /* imports_sweep removes it */
	im->file[0] = '\0';
}

static bool is_needed(const struct job_row *rows, size_t n, const char *file)
{
	bool needed = false;
	for (size_t i = 0; i < n && !needed; i++) {
		json_t *again = rows[i].again ? json_loads(rows[i].again, 0, NULL) : NULL;
		const char *of = json_string_value(json_object_get(again, "file"));
		needed = of && strcmp(of, file) == 0;
		json_decref(again);
	}
	return needed;
}

void imports_sweep(struct snapd *sd)
{
	char path[PATH_SIZE];
	struct err err = { 0 };
	struct job_row *rows = NULL;
	size_t n = 0;
	file_path(sd, "", path);
	auto_dir *d = opendir(path);
	const struct dirent *e;
	if (!d)
		return;
	if (catalog_job_running(sd->catalog, &rows, &n, &err) < 0) {
		log_error("%s", err.text); /* they are looked at again at the next start */
		return;
	}
	while ((e = readdir(d)))
		if (id_is(e->d_name, "im") && !is_needed(rows, n, e->d_name) &&
		    unlinkat(dirfd(d), e->d_name, 0) < 0)
			log_warn("%s/%s: %s", path, e->d_name, strerrordesc_np(errno));
	job_rows_free(rows, n);
}

static void import_free(void *task)
{
	struct import *im = task;
	drop_file(im);
	maker_done(&im->maker);
	if (im->plan)
		ws_plan_done(im->plan);
	free(im->plan);
	json_decref(im->asked);
	cleanup_close(&im->spool);
	free(im);
}

static void import_leave(void *task)
{
	struct import *im = task;
	im->file[0] = '\0';
}

/* As it was asked for; who sees it may have come from a token. */
static json_t *plan_again(const struct import *im)
{
	const struct owned *own = &im->plan->like.own;
	json_t *j = json_copy(im->asked);
	json_t *more = json_pack("{s:s, s:s, s:I, s:s, s:s*}", "call", "create", "file", im->file,
				 "size", (json_int_t)im->size, "visibility",
				 visibility_names[own->visibility], "team",
				 own->team[0] ? own->team : NULL);
	if (json_object_update_new(j, more) < 0) { /* none of them: no memory */
		json_decref(j);
		return NULL;
	}
	return j;
}

/* From which the next boughd goes on. */
static json_t *import_again(void *task)
{
	const struct import *im = task;
	if (im->plan)
		return plan_again(im);
	json_t *names = im->maker.row.names ? json_loads(im->maker.row.names, 0, NULL) : NULL;
	json_t *j = json_pack("{s:s, s:s, s:I, s:O*, s:s*, s:b, s:I, s:I}", "call", "import",
			      "file", im->file, "size", (json_int_t)im->size, "name",
			      json_array_get(names, 0), "message", im->maker.row.message, "image",
			      im->image, "max_bytes", (json_int_t)im->max_bytes, "max_inodes",
			      (json_int_t)im->max_inodes);
	json_decref(names);
	return j;
}

/* What the store grows by isn't known before it does, and no snapshot has it yet. */
static int import_room(struct import *im, struct err *err)
{
	uint64_t now = store_session_stored(im->maker.ss);
	if (now - im->looked < LOOK_BYTES)
		return 0;
	im->looked = now;
	return limits_room(im->maker.sd, im->maker.row.own.owner, now, err);
}

static ssize_t import_read(void *ctx, void *buf, size_t n, struct err *err)
{
	struct import *im = ctx;
	ssize_t got = stream_read(im->body, buf, n, -1);
	if (got < 0)
		return err_set(err, (int)got, "the upload broke off");
	int r = import_room(im, err);
	return r < 0 ? r : got;
}

/* Of an upload that a job was left with. */
static ssize_t import_read_spool(void *ctx, void *buf, size_t n, struct err *err)
{
	struct import *im = ctx;
	ssize_t got;
	do
		got = pread(im->spool, buf, n, (off_t)im->spooled);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return err_sys(err, -errno, "read the upload");
	im->spooled += (uint64_t)got;
	int r = import_room(im, err);
	return r < 0 ? r : got;
}

static int import_progress(void *ctx, uint64_t bytes, uint64_t members)
{
	struct import *im = ctx;
	progress_tell(im->progress, bytes, im->size, "bytes", "import");
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
		.uid = im->plan ? im->plan->uid : geteuid(),
		.gid = im->plan ? im->plan->gid : getegid(),
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

/* ---- what becomes of it ---- */

static int give_stack(void *ctx, const char *path, struct stack *out, char **git, struct err *err)
{
	struct stack *from = ctx;
	*out = *from;
	*from = (struct stack){ 0 };
	return 0;
}

static int make_workspace(struct import *im, struct stack *stack, json_t **result,
			  struct err *err)
{
	struct snap_row *snap = &im->maker.row;
	struct ws_plan *p = im->plan;
	auto_ws_row row = { 0 };
	int r = maker_store(&im->maker, stack, err);
	if (r < 0)
		return r;
	memcpy(p->like.base, snap->id, sizeof(p->like.base));
	memcpy(p->like.head, snap->id, sizeof(p->like.head));
	snap->own = p->like.own; /* as a save's */
	snap->own.expires_ns = 0;
	snap->own.on_expiry = EXPIRY_DELETE;
	doing_owner(snap->own.owner);
	p->stack = give_stack;
	p->ctx = stack;
	p->snap = snap;
	r = api_ws_make(&row, im->maker.sd, p, err);
	if (r < 0)
		return r;
	outcome_beside(im->maker.sd, "snapshot.created", &snap->own, snap->id, row.id);
	*result = api_workspace(im->maker.sd, &row, NULL);
	return *result ? 0 : err_no_memory(err);
}

static int make_snapshot(struct import *im, struct stack *stack, json_t **result, struct err *err)
{
	int r = maker_commit(&im->maker, stack, NULL, NULL, err);
	if (r < 0)
		return r;
	*result = api_snapshot(im->maker.sd, &im->maker.row);
	return *result ? 0 : err_no_memory(err);
}

/* More than a new workspace may have is its quota's affair. */
static int over_quota(const struct import *im, int r, struct err *err)
{
	if (r != -EFBIG || !im->plan || !(im->max_bytes || im->max_inodes))
		return r;
	return err_prefix(err, -EDQUOT, "over the quota");
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
	r = over_quota(im, import_image(im, &stack, &st, err), err);
	struct digest image = stack.image;
	if (r == -ECONNRESET)
		r = -EBADMSG;
	im->maker.row.files = st.inodes;
	im->maker.row.bytes = st.bytes;
	im->maker.row.stored_bytes = store_session_stored(im->maker.ss);
	if (r >= 0)
		r = im->plan ? make_workspace(im, &stack, result, err)
			     : make_snapshot(im, &stack, result, err);
	images_made(sd->images, r >= 0 ? &image : NULL);
	*status = 201;
	return r == -ENOENT ? -EIO : r;
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
	enum { PIECE = 256 * 1024 };
	struct snapd *sd = im->maker.sd;
	auto_free char *buf = malloc(PIECE);
	uint64_t looked = 0;
	ssize_t n;
	if (!buf)
		return err_no_memory(err);
	while ((n = stream_read(im->body, buf, PIECE, -1)) > 0) {
		int r = io_write_full(NULL, im->spool, buf, (size_t)n, im->size);
		if (r < 0)
			return err_sys(err, r, "keep the upload");
		im->size += (uint64_t)n;
		if (im->size - looked < LOOK_BYTES)
			continue;
		looked = im->size;
		r = limits_room(sd, im->owner, im->size, err);
		if (r < 0)
			return r;
	}
	return n < 0 ? err_set(err, -EBADMSG, "the upload broke off") : keep_file(im, err);
}

/* The job does the work of the key from its beginning on. */
static int start_job(struct leaving *l, json_t **result, struct err *err)
{
	struct snapd *sd = l->im->maker.sd;
	const struct reply job = { .status = 200,
				   .job = import_run,
				   .again = import_again,
				   .leave = import_leave,
				   .task = l->im,
				   .task_free = import_free };
	struct doing *mine = doing_again(doing_now()), *was = doing_set(mine);
	doing_give_key(was, mine);
	l->im = NULL;
	int r = jobs_start(sd, &job, result, err); /* without `mine`: memory is short */
	if (r < 0)
		doing_give_key(mine, was);
	(void)doing_set(was);
	doing_unref(mine);
	return r;
}

static int leaving_run(void *task, struct progress *p, unsigned *status, json_t **result,
		       struct err *err)
{
	struct leaving *l = task;
	int r = spool_upload(l->im, err);
	if (r < 0)
		return r;
	r = start_job(l, result, err);
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
	struct leaving *l = calloc(1, sizeof(*l));
	int r = l ? make_file(im, err) : err_no_memory(err);
	if (r < 0) {
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
	return errno || !*s || *end || *s == '-' || *out > INT64_MAX
		       ? request_bad_field(rq, key, err, "a whole number from 0 is expected")
		       : 0;
}

static void reply_import(struct import *im, struct reply *rp)
{
	rp->job = import_run;
	rp->leave = import_leave;
	rp->task = im;
	rp->task_free = import_free;
}

/* The upload that a boughd before this one was left with, by what is in the body then. */
static int take_file(struct import *im, struct request *rq, struct err *err)
{
	struct stat st;
	char path[PATH_SIZE];
	const char *file = request_string(rq, "file");
	im->size = request_number(rq, "size", 0);
	(void)snprintf(im->file, sizeof(im->file), "%s", file ? file : "");
	file_path(rq->ctx, im->file, path);
	im->spool = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (im->spool >= 0 && fstat(im->spool, &st) == 0 && (uint64_t)st.st_size == im->size)
		return 0;
	return err_set(err, -ESTALE,
		       "what was uploaded before the daemon ended is gone: import it again");
}

/* One that a boughd before this one was left with. */
static int go_on(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *name = request_string(rq, "name");
	struct import *im = calloc(1, sizeof(*im));
	if (!im)
		return err_no_memory(err);
	im->image = request_bool(rq, "image", false);
	im->max_bytes = request_number(rq, "max_bytes", 0);
	im->max_inodes = request_number(rq, "max_inodes", 0);
	int r = maker_init(&im->maker, sd, name, request_string(rq, "message"), err);
	im->spool = -1;
	if (r >= 0)
		r = take_file(im, rq, err);
	if (r >= 0 && name)
		r = api_snap_name_free(rq, name, err);
	if (r >= 0)
		r = limits_snapshot(sd, rq->caller->owner, err);
	if (r < 0) {
		import_free(im);
		return r;
	}
	reply_import(im, rp);
	return 0;
}

int api_import(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	if (rq->body) /* requests have none */
		return go_on(rq, rp, err);
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
		return err_no_memory(err);
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
	if (!leave)
		reply_import(im, rp);
	return 0;
}

int api_ws_import(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct import *im = calloc(1, sizeof(*im));
	if (!im)
		return err_no_memory(err);
	bool again = request_string(rq, "file"); /* requests have none */
	bool leave = !again && web_prefers(request_header(rq, "Prefer"), "respond-async");
	im->spool = -1;
	im->body = rq->upload;
	im->asked = json_incref(rq->body);
	im->plan = calloc(1, sizeof(*im->plan));
	int r = im->plan ? ws_plan_init(im->plan, rq, err) : err_no_memory(err);
	if (r >= 0)
		r = limits_snapshot(sd, rq->caller->owner, err);
	if (r >= 0)
		r = maker_init(&im->maker, sd, NULL, NULL, err);
	if (r >= 0 && again)
		r = take_file(im, rq, err);
	if (r >= 0 && leave)
		r = leave_import(im, rp, err);
	if (r < 0) {
		import_free(im);
		return r;
	}
	/* What it begins with isn't counted as its own, but must not be a way round the limit. */
	im->max_bytes = im->plan->like.quota_bytes;
	im->max_inodes = im->plan->like.quota_inodes;
	if (!leave)
		reply_import(im, rp);
	return 0;
}
