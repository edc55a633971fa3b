/* Uploads that can be resumed: the tus protocol, 1.0.0, with creation, checksum, expiration and
 * termination.
 *
 *   ROOT/uploads/<id>.json   {"workspace", "path", "mode"?, "length", "created", "done"?,
 *                             "tag"?, "changed"?, "sandbox"?, "at"?}
 *                            paths that aren't UTF-8: "path_b64", "at_b64"
 *   ROOT/uploads/<id>.data   what has come; its size is the offset
 *   ROOT/uploads/<ws>/<id>.<length>   an empty mark, until it is done
 *
 * All survive boughd. With the last byte bough-fs takes the data file over as the content of a
 * file of the workspace (ws_put): a second name of it, and no copy. "tag", written before, tells
 * whether that was done, however boughd and bough-fs end, and "changed" (the data file's time)
 * that the bytes are still what was sent. From the moment that it is asked for,
 * nobody writes to the data file any more: one that has a second name counts as whole, whatever a
 * program has made of it since. What can't be taken over (small, or on another filesystem) is
 * copied. What is kept then is only that it is done, for a client that didn't hear it.
 * The data file's flock is held by whoever writes. One into a sandbox is one of the workspace that
 * its path "at" lies on, which is looked for again each time. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/base64.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/json.h"
#include "snapd/access.h"
#include "snapd/api_files.h"
#include "snapd/api_sandbox.h"
#include "snapd/archive_lib.h"
#include "snapd/files_list.h"
#include "snapd/intents.h"
#include "snapd/limits.h"
#include "snapd/tus_head.h"
#include "snapd/web_parse.h"

enum {
	EXPIRES_S = 24 * 60 * 60, /* after the last byte */
	TUS_RECORD_MAX = 32 * 1024,
	KEPT_MAX = 100000, /* files in the folder that one sweep looks at */
	OPEN_MAX = 1000,   /* uploads of one workspace that aren't done */
	COPY_BYTES = 256 * 1024,
};

/* ---- what is kept ---- */

struct kept {
	char id[ID_SIZE];
	int dir, fd;  /* ROOT/uploads; the data, -1: done */
	json_t *json; /* the record */
	uint64_t length, offset;
	time_t expires;
};

static void kept_done(struct kept *k)
{
	cleanup_close(&k->fd);
	cleanup_close(&k->dir);
	json_decref(k->json);
}
#define auto_kept __attribute__((cleanup(kept_done))) struct kept

static int open_folder(struct snapd *sd, struct err *err)
{
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/uploads", sd->root);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make %s", path);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "open %s", path) : fd;
}

static void file_name(char out[ID_SIZE + 8], const char *id, const char *ending)
{
	(void)snprintf(out, ID_SIZE + 8, "%s.%s", id, ending);
}

static int write_record(const struct kept *k, struct err *err)
{
	char name[ID_SIZE + 8];
	file_name(name, k->id, "json");
	auto_free char *text = json_text(k->json, JSON_COMPACT);
	if (!text)
		return err_no_memory(err);
	return io_publish(NULL, k->dir, name, text, strlen(text), false, err);
}

static const char *kept_text(const struct kept *k, const char *key)
{
	const char *s = json_string_value(json_object_get(k->json, key));
	return s ? s : "";
}

/* "path" or "at", any bytes. The caller frees; NULL: out of memory. */
static char *kept_path(const struct kept *k, const char *key)
{
	char coded[16];
	(void)snprintf(coded, sizeof(coded), "%s_b64", key);
	const char *s = kept_text(k, coded);
	size_t n = strlen(s);
	if (n == 0)
		return strdup(kept_text(k, key));
	char *out = malloc(n + 1);
	int len = out ? base64_decode(s, n, out, n) : 0;
	if (out)
		out[len > 0 ? len : 0] = '\0';
	return out;
}

static int set_path(json_t *record, const char *key, const char *path)
{
	char coded[16];
	(void)snprintf(coded, sizeof(coded), "%s_b64", key);
	(void)json_object_del(record, key); /* what isn't there is gone */
	(void)json_object_del(record, coded);
	return listing_set_name(record, key, path, strlen(path));
}

/* An empty file that says of one that isn't done whose it is, and how long: so that those of one
 * workspace are found without a look at the others. */
enum { MARK_SIZE = 2 * ID_SIZE + 24, MARK_TRIES = 100 };
static void mark_name(char out[MARK_SIZE], const struct kept *k)
{
	(void)snprintf(out, MARK_SIZE, "%s/%s.%llu", kept_text(k, "workspace"), k->id,
		       (unsigned long long)k->length);
}

static int mark(const struct kept *k, struct err *err)
{
	char name[MARK_SIZE];
	mark_name(name, k);
	/* The folder may go in between, with the last one that was in it. */
	for (int i = 0; i < MARK_TRIES; i++) {
		if (mkdirat(k->dir, kept_text(k, "workspace"), 0700) < 0 && errno != EEXIST)
			break;
		auto_fd fd = openat(k->dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd >= 0)
			return 0;
		if (errno != ENOENT)
			break;
	}
	return err_sys(err, -errno, "make uploads/%s", name);
}

static void drop_data(const struct kept *k)
{
	char name[MARK_SIZE];
	file_name(name, k->id, "data");
	(void)unlinkat(k->dir, name, 0); /* what stays is swept again */
	if (!id_is(kept_text(k, "workspace"), "ws"))
		return; /* its record is damaged */
	mark_name(name, k);
	(void)unlinkat(k->dir, name, 0);
	(void)unlinkat(k->dir, kept_text(k, "workspace"), AT_REMOVEDIR); /* the last one */
}

static void forget(const struct kept *k)
{
	char name[ID_SIZE + 8];
	drop_data(k);
	file_name(name, k->id, "json");
	(void)unlinkat(k->dir, name, 0);
}

/* When the last byte came, or the record was written. What has a second name says nothing of that:
 * it is a file of a workspace, to which programs write. 0 or -errno: there is no record. */
static int last_touched(const struct kept *k, time_t *out)
{
	char name[ID_SIZE + 8];
	struct stat record, data;
	file_name(name, k->id, "json");
	if (fstatat(k->dir, name, &record, 0) < 0)
		return -errno;
	file_name(name, k->id, "data");
	bool sent = fstatat(k->dir, name, &data, 0) == 0 && data.st_nlink == 1 &&
		    data.st_mtime > record.st_mtime;
	*out = sent ? data.st_mtime : record.st_mtime;
	return 0;
}

static bool is_done(const struct kept *k)
{
	return json_is_true(json_object_get(k->json, "done"));
}

/* 0 or -errno: there is none that can be read. */
static int read_record(struct kept *k)
{
	char name[ID_SIZE + 8];
	auto_free void *text = NULL;
	size_t len;
	file_name(name, k->id, "json");
	int r = io_slurp(NULL, k->dir, name, TUS_RECORD_MAX, &text, &len, NULL);
	if (r >= 0 && !(k->json = json_loadb(text, len, 0, NULL)))
		r = -EBADMSG;
	return r;
}

/* How much there is of one that isn't done, by its data file. -ENOENT. */
static int look_at_data(struct kept *k)
{
	struct stat st;
	if (k->fd < 0 || fstat(k->fd, &st) < 0)
		return -ENOENT;
	k->offset = st.st_nlink > 1 ? k->length : (uint64_t)st.st_size;
	return 0;
}

/* Whether it is one of what the target names: what its path leads to may be another by now. */
static int check_place(const struct kept *k, struct request *rq, bool box, struct err *err)
{
	char ws[ID_SIZE];
	const char *found, *of = kept_text(k, box ? "sandbox" : "workspace");
	auto_free char *path = kept_path(k, "path");
	auto_free char *at = kept_path(k, "at");
	if (!path || !at)
		return err_no_memory(err);
	if (strcmp(of, rq->params[0]) != 0 || box != !!*kept_text(k, "sandbox"))
		return err_set(err, -ENOENT, "no such upload");
	if (!box)
		return access_path(path, err);
	int r = sandbox_place(rq->ctx, rq->caller, rq->params[0], at, true, ws, &found, err);
	if (r < 0)
		return r;
	return strcmp(ws, kept_text(k, "workspace")) == 0 && strcmp(found, path) == 0
		       ? 0
		       : err_set(err, -ESTALE, "another workspace has that path by now");
}

/* An upload of the workspace or sandbox that the target names. `write`: locks it, -ENOLCK when
 * somebody has it. */
static int kept_open(struct kept *k, struct request *rq, bool box, bool write, struct err *err)
{
	char name[ID_SIZE + 8];
	time_t touched;
	auto_source src = { 0 };
	int r = box ? 0
		    : source_find_ws(&src, rq->ctx, rq->params[0], LEASE_NONE, "upload", err);
	if (r < 0)
		return r;
	if (!id_is(rq->params[1], "up"))
		return err_set(err, -ENOENT, "no such upload");
	(void)snprintf(k->id, sizeof(k->id), "%s", rq->params[1]);
	k->dir = open_folder(rq->ctx, err);
	if (k->dir < 0)
		return k->dir;
	file_name(name, k->id, "data");
	k->fd = openat(k->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (k->fd >= 0 && write && flock(k->fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(err, -ENOLCK, "somebody else is sending this upload");
	(void)read_record(k); /* without one it is nobody's */
	r = check_place(k, rq, box, err);
	if (r < 0)
		return r;
	bool done = is_done(k);
	k->offset = k->length = (uint64_t)json_integer_value(json_object_get(k->json, "length"));
	if ((!done && look_at_data(k) < 0) || last_touched(k, &touched) < 0)
		return err_set(err, -ENOENT, "no such upload");
	if (done && k->fd >= 0) { /* boughd was killed before: it is a file's content */
		drop_data(k);
		cleanup_close(&k->fd);
		k->fd = -1;
	}
	k->expires = touched + EXPIRES_S;
	if (time(NULL) < k->expires)
		return 0;
	forget(k);
	return err_set(err, -EKEYEXPIRED, "the upload has expired");
}

/* ---- all of them ---- */

static DIR *list_folder(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		cleanup_close(&fd);
	return d;
}

/* Calls fn for each record, up to KEPT_MAX files; touched: when the last byte came. */
static void each_kept(int dir, void (*fn)(void *ctx, const struct kept *k, time_t touched),
		      void *ctx)
{
	auto_dir *d = list_folder(dir, ".");
	const struct dirent *e;
	for (unsigned n = 0; d && n < KEPT_MAX && (e = readdir(d)); n++) {
		struct kept k = { .dir = dir, .fd = -1 };
		auto_free void *text = NULL;
		time_t touched;
		size_t len = strcspn(e->d_name, ".");
		if (len >= sizeof(k.id) || strcmp(e->d_name + len, ".json") != 0)
			continue;
		memcpy(k.id, e->d_name, len);
		if (last_touched(&k, &touched) < 0 ||
		    io_slurp(NULL, dir, e->d_name, TUS_RECORD_MAX, &text, &len, NULL) < 0)
			continue;
		k.json = json_loadb(text, len, 0, NULL);
		k.length = (uint64_t)json_integer_value(json_object_get(k.json, "length"));
		fn(ctx, &k, touched);
		json_decref(k.json);
	}
}

struct counting {
	uint64_t bytes;
	unsigned n;
};

/* Those of the workspace that aren't done, by their marks. */
static void count_open(int dir, const char *ws, struct counting *c)
{
	auto_dir *d = list_folder(dir, ws);
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		char data[ID_SIZE + 8], id[ID_SIZE];
		size_t len = strcspn(e->d_name, ".");
		if (len == 0 || len >= sizeof(id) || !e->d_name[len])
			continue;
		(void)snprintf(id, sizeof(id), "%.*s", (int)len, e->d_name);
		file_name(data, id, "data");
		if (faccessat(dir, data, F_OK, 0) < 0) { /* a kill has left the mark alone */
			(void)unlinkat(dirfd(d), e->d_name, 0);
			continue;
		}
		c->n++;
		if (__builtin_add_overflow(c->bytes, strtoull(e->d_name + len + 1, NULL, 10),
					   &c->bytes))
			c->bytes = UINT64_MAX;
	}
}

struct sweeping {
	struct snapd *sd;
	const char *workspace; /* this one's go; NULL: those that are too old, or nobody's */
	time_t now;
};

static void sweep_one(void *ctx, const struct kept *k, time_t touched)
{
	struct sweeping *s = ctx;
	auto_ws_row ws = { 0 };
	auto_sandbox_row box = { 0 };
	struct catalog *c = s->sd->catalog;
	const char *of = kept_text(k, "workspace"), *in = kept_text(k, "sandbox");
	bool gone = s->workspace && strcmp(of, s->workspace) == 0;
	if (!s->workspace)
		gone = touched + EXPIRES_S + 60 < s->now;
	/* Whose it is isn't known of a record that couldn't be read just now. */
	if (!s->workspace && !gone && k->json)
		gone = catalog_ws_get_any(c, of, &ws, NULL) == -ENOENT ||
		       (*in && catalog_sandbox_get(c, in, &box, NULL) == -ENOENT);
	if (gone)
		forget(k);
	else if (is_done(k))
		drop_data(k); /* where a kill has left that */
}

void api_tus_sweep(struct snapd *sd, const char *workspace)
{
	struct sweeping s = { sd, workspace, time(NULL) };
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/uploads", sd->root);
	auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		each_kept(dir, sweep_one, &s); /* what stays is swept later */
}

/* ---- what all answers say ---- */

static int begin(struct request *rq, struct reply *rp, struct err *err)
{
	const char *version = request_header(rq, "Tus-Resumable");
	reply_header(rp, "Tus-Resumable", "1.0.0");
	reply_header(rp, "Cache-Control", "no-store");
	if (version && strcmp(version, "1.0.0") == 0)
		return 0;
	reply_header(rp, "Tus-Version", "1.0.0");
	return err_set(err, -EREMCHG, "Tus-Resumable: 1.0.0 is needed");
}

static void add_state(struct reply *rp, const struct kept *k)
{
	char date[HEAD_DATE];
	uint64_t told = tus_told(k->offset, k->length, is_done(k));
	reply_header(rp, "Upload-Offset", "%llu", (unsigned long long)told);
	reply_header(rp, "Upload-Length", "%llu", (unsigned long long)k->length);
	if (told < k->length)
		reply_header(rp, "Upload-Expires", "%s", head_date(date, k->expires));
}

int api_ws_tus_options(struct request *rq, struct reply *rp, struct err *err)
{
	reply_header(rp, "Tus-Resumable", "1.0.0");
	reply_header(rp, "Tus-Version", "1.0.0");
	reply_header(rp, "Tus-Extension", "creation,checksum,expiration,termination");
	reply_header(rp, "Tus-Checksum-Algorithm", "sha1,sha256");
	rp->status = 204;
	return 0;
}

/* ---- creation ---- */

/* Upload-Metadata's path (or filename), by the rules of one in a target, and mode. */
static int read_metadata(struct request *rq, json_t *record, struct err *err)
{
	const char *text = request_header(rq, "Upload-Metadata");
	auto_free char *path = NULL;
	auto_free char *mode = NULL;
	uint32_t bits;
	int r = tus_metadata(text ? text : "", "path", &path);
	if (r == 0 && !path)
		r = tus_metadata(text ? text : "", "filename", &path);
	if (r == 0)
		r = tus_metadata(text ? text : "", "mode", &mode);
	if (r < 0)
		return err_set(err, r, "Upload-Metadata is malformed");
	r = path ? web_file_path_check(path, err)
		 : err_set(err, -EINVAL, "Upload-Metadata needs a path (or filename)");
	if (r == 0)
		r = access_path(path, err);
	if (r == 0 && mode)
		r = files_mode(rq, mode, &bits, err);
	if (r < 0)
		return r;
	if (set_path(record, "path", path) < 0)
		return err_no_memory(err);
	if (mode && json_object_set_new(record, "mode", json_integer(bits)) < 0)
		return err_no_memory(err);
	return 0;
}

static int finish(struct kept *k, struct snapd *sd, const char *ws, struct err *err);

/* What can't fit in the workspace, beside the others that were announced for it, isn't kept for it
 * either. */
static int check_room(const struct place *p, uint64_t length, struct err *err)
{
	struct counting c = { 0 };
	uint64_t all, left;
	auto_fd dir = open_folder(p->sd, err);
	if (dir < 0)
		return dir;
	count_open(dir, p->src.ws.id, &c);
	if (c.n >= OPEN_MAX)
		return err_set(err, -EUSERS, "%u uploads of this workspace aren't done", c.n);
	if (__builtin_add_overflow(length, c.bytes, &all))
		all = UINT64_MAX;
	int r = place_room(p, all, &left);
	if (r == 0)
		return 0;
	if (!c.bytes)
		return err_set(err, r, "%llu bytes don't fit", (unsigned long long)length);
	return err_set(err, r, "%llu bytes don't fit beside %llu of uploads that aren't done",
		       (unsigned long long)length, (unsigned long long)c.bytes);
}

/* Which workspace it is for, and the path in it. */
static int find_place(struct kept *k, struct request *rq, bool box, char ws[ID_SIZE],
		      struct err *err)
{
	const char *path;
	if (!box) {
		(void)snprintf(ws, ID_SIZE, "%s", rq->params[0]);
		return 0;
	}
	auto_free char *at = kept_path(k, "path");
	int r = at ? sandbox_place(rq->ctx, rq->caller, rq->params[0], at, true, ws, &path, err)
		   : err_no_memory(err);
	if (r < 0)
		return r;
	bool bad = json_object_set_new(k->json, "sandbox", json_string(rq->params[0])) < 0;
	bad |= set_path(k->json, "at", at) < 0;
	bad |= set_path(k->json, "path", path) < 0;
	return bad ? err_no_memory(err) : 0;
}

static int look_at_place(struct kept *k, struct request *rq, const char *ws, struct err *err)
{
	auto_place p = { .root = -1 };
	int r = place_open(&p, rq->ctx, ws, false, PLACE_WRITE, err);
	if (r >= 0)
		r = check_room(&p, k->length, err);
	if (r >= 0)
		r = limits_room(p.sd, p.src.ws.own.owner, k->length, err);
	if (r >= 0 && json_object_set_new(k->json, "workspace", json_string(p.src.ws.id)) < 0)
		r = err_no_memory(err);
	return r;
}

/* Its record, which is first: by it a sweep finds what a kill leaves. */
static int announce(struct kept *k, struct request *rq, bool box, struct err *err)
{
	char ws[ID_SIZE];
	k->json = json_pack("{s:I, s:I}", "length", (json_int_t)k->length, "created",
			    (json_int_t)time(NULL));
	int r = k->json ? read_metadata(rq, k->json, err) : err_no_memory(err);
	if (r >= 0)
		r = find_place(k, rq, box, ws, err);
	if (r >= 0)
		r = look_at_place(k, rq, ws, err);
	return r < 0 ? r : write_record(k, err);
}

/* What else it has; one of no bytes is whole. */
static int make_data(struct kept *k, struct snapd *sd, struct err *err)
{
	char name[ID_SIZE + 8];
	file_name(name, k->id, "data");
	k->fd = openat(k->dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (k->fd < 0 || look_at_data(k) < 0)
		return err_sys(err, -errno, "make %s", name);
	int r = mark(k, err);
	return r < 0 || k->length > 0 ? r : finish(k, sd, kept_text(k, "workspace"), err);
}

/* Whether it may have been done all the same, or come yet: with a key that is gone on with. */
static bool is_in_doubt(int r)
{
	const char *code;
	const struct doing *d = doing_now();
	return d && d->keyed && web_status(r, &code) >= 500 && r != -EDQUOT && r != -ENOSPC;
}

static int create(struct request *rq, struct reply *rp, bool box, struct err *err)
{
	auto_kept k = { .dir = -1, .fd = -1 };
	int r = begin(rq, rp, err);
	const char *length = request_header(rq, "Upload-Length");
	if (r >= 0 && (!length || tus_number(length, &k.length) < 0))
		r = err_set(err, -EINVAL, "Upload-Length is needed");
	if (r >= 0)
		r = k.dir = open_folder(rq->ctx, err);
	int again = r < 0 ? r : intent_upload(rq->ctx, k.id, err);
	if (again < 0)
		return again;
	r = again ? read_record(&k) : -ENOENT;
	if (r == -ENOENT)
		r = announce(&k, rq, box, err);
	else
		r = r < 0 ? err_sys(err, snapd_inner(r), "read uploads/%s.json", k.id)
			  : check_place(&k, rq, box, err);
	k.expires = time(NULL) + EXPIRES_S;
	k.offset = k.length;
	if (r >= 0 && !is_done(&k))
		r = make_data(&k, rq->ctx, err);
	if (r < 0 && !again && !is_in_doubt(r))
		forget(&k);
	if (r < 0)
		return r;
	reply_header(rp, "Location", "/v1/%s/%s/uploads/%s", box ? "sandboxes" : "workspaces",
		     rq->params[0], k.id);
	add_state(rp, &k);
	rp->status = 201;
	return 0;
}

int api_ws_tus_create(struct request *rq, struct reply *rp, struct err *err)
{
	return create(rq, rp, false, err);
}

int api_sandbox_tus_create(struct request *rq, struct reply *rp, struct err *err)
{
	return create(rq, rp, true, err);
}

/* ---- what is there ---- */

static int tus_head(struct request *rq, struct reply *rp, bool box, struct err *err)
{
	auto_kept k = { .dir = -1, .fd = -1 };
	int r = begin(rq, rp, err);
	if (r >= 0)
		r = kept_open(&k, rq, box, false, err);
	if (r >= 0)
		add_state(rp, &k);
	return r;
}

int api_ws_tus_head(struct request *rq, struct reply *rp, struct err *err)
{
	return tus_head(rq, rp, false, err);
}

int api_sandbox_tus_head(struct request *rq, struct reply *rp, struct err *err)
{
	return tus_head(rq, rp, true, err);
}

static int tus_delete(struct request *rq, struct reply *rp, bool box, struct err *err)
{
	auto_kept k = { .dir = -1, .fd = -1 };
	int r = begin(rq, rp, err);
	if (r >= 0)
		r = kept_open(&k, rq, box, true, err);
	if (r < 0)
		return r;
	forget(&k);
	rp->status = 204;
	return 0;
}

int api_ws_tus_delete(struct request *rq, struct reply *rp, struct err *err)
{
	return tus_delete(rq, rp, false, err);
}

int api_sandbox_tus_delete(struct request *rq, struct reply *rp, struct err *err)
{
	return tus_delete(rq, rp, true, err);
}

/* ---- bytes ---- */

struct patch {
	struct kept k;
	struct snapd *sd;
	char ws[ID_SIZE];
	struct stream *in;
	EVP_MD_CTX *hash; /* NULL: no checksum was sent */
	uint8_t want[TUS_DIGEST_MAX];
	int want_len;
	uint64_t from, at; /* how much there was, and where the next byte belongs */
};

static void patch_free(void *task)
{
	struct patch *p = task;
	EVP_MD_CTX_free(p->hash);
	kept_done(&p->k);
	free(p);
}

static int copy_into(const struct kept *k, int to, struct err *err)
{
	auto_free uint8_t *buf = malloc(COPY_BYTES);
	if (!buf)
		return err_no_memory(err);
	for (uint64_t at = 0; at < k->length;) {
		ssize_t n = pread(k->fd, buf, COPY_BYTES, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_sys(err, n < 0 ? -errno : -EIO, "read the upload");
		for (ssize_t done = 0; done < n;) {
			ssize_t w = pwrite(to, buf + done, (size_t)(n - done), (off_t)at + done);
			if (w < 0 && errno == EINTR)
				continue;
			if (w < 0)
				return place_error(err, -errno, "write", "the file");
			done += w;
		}
		at += (uint64_t)n;
	}
	return 0;
}

static const struct conditions no_conditions;

/* By its bytes. */
static int put_copy(const struct kept *k, struct place *p, const char *path, struct ws_put *want,
		    struct err *err)
{
	struct fs_named named;
	struct stat st;
	auto_fd fd = place_unnamed(p);
	int r = fd < 0 ? place_error(err, fd, "make a file for", path) : copy_into(k, fd, err);
	if (r >= 0 && fstat(fd, &st) < 0)
		r = place_error(err, -errno, "look at", path);
	if (r < 0)
		return r;
	want->upload = NULL;
	want->file = ino_meant(st.st_ino);
	return files_put_name(p, path, want, &no_conditions, &named, err);
}

static int lost(const struct kept *k, struct err *err)
{
	forget(k);
	return err_set(err, -EKEYEXPIRED,
		       "what was sent became a file's content, and whether the one that was meant "
		       "isn't known any more: send it anew");
}

/* As it is; else, where that can't be, by its bytes. */
static int put_data(struct kept *k, struct place *p, const char *path, struct ws_put *want,
		    struct err *err)
{
	char data[ID_SIZE + 8];
	struct fs_named named;
	struct err why = { 0 };
	file_name(data, k->id, "data");
	want->upload = data;
	want->size = k->length;
	int r = files_put_name(p, path, want, &no_conditions, &named, &why);
	if (r == -EXDEV)
		return put_copy(k, p, path, want, err);
	if (r == -EMLINK)
		return lost(k, err);
	if (r == -EDQUOT || r == -ENOSPC)
		return place_error(err, r, "write", path);
	if (r < 0)
		*err = why;
	return r;
}

/* By which bough-fs knows whether it was done. 1: it was, and whose content the bytes became has
 * changed since: they are no upload any more. */
static int get_tag(struct kept *k, const struct place *p, uint64_t *tag, struct err *err)
{
	struct stat st;
	if (fstat(k->fd, &st) < 0)
		return err_sys(err, -errno, "look at the upload");
	json_int_t changed = (json_int_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	*tag = (uint64_t)json_integer_value(json_object_get(k->json, "tag"));
	if (*tag && json_integer_value(json_object_get(k->json, "changed")) == changed)
		return 0;
	if (*tag) {
		int r = fs_answered(p->sd->fs, p->src.ws.id, *tag, err);
		return r != 0 ? r : lost(k, err);
	}
	*tag = fs_tag();
	bool bad = json_object_set_new(k->json, "tag", json_integer((json_int_t)*tag)) < 0;
	bad |= json_object_set_new(k->json, "changed", json_integer(changed)) < 0;
	return bad ? err_no_memory(err) : write_record(k, err);
}

/* All is there: into the workspace. What fails can be asked for again, by an empty PATCH. */
static int finish(struct kept *k, struct snapd *sd, const char *ws, struct err *err)
{
	auto_place p = { .root = -1 };
	const json_t *mode = json_object_get(k->json, "mode");
	auto_free char *path = kept_path(k, "path");
	struct ws_put want = { .set_mode = mode != NULL,
			       .mode = (uint32_t)json_integer_value(mode) };
	if (!path)
		return err_no_memory(err);
	if (!*path)
		return err_set(err, -EIO, "the upload's record is damaged");
	int r = place_open(&p, sd, ws, false, PLACE_WRITE, err);
	if (r >= 0)
		r = get_tag(k, &p, &want.tag, err);
	if (r == 0)
		r = put_data(k, &p, path, &want, err);
	if (r < 0)
		return r;
	struct doing *d = doing_now();
	if (d && !d->stored)
		d->stored = strdup(path); /* for the audit log, where there is memory for it */
	if (json_object_set_new(k->json, "done", json_true()) < 0)
		return err_no_memory(err);
	r = write_record(k, err);
	if (r >= 0)
		drop_data(k);
	return r;
}

static int take_back(struct patch *p)
{
	if (!p->hash || p->k.offset == p->from)
		return 0; /* each byte counts; or none came */
	p->k.offset = p->from;
	return ftruncate(p->k.fd, (off_t)p->from) < 0 ? -errno : 0;
}

static int take_bytes(struct patch *p, const uint8_t *buf, size_t n, struct err *err)
{
	struct kept *k = &p->k;
	if (n > k->length - p->at)
		return err_set(err, -EFBIG, "more than Upload-Length says");
	if (p->hash && EVP_DigestUpdate(p->hash, buf, n) != 1)
		return err_no_memory(err);
	p->at += n;
	if (p->at <= k->offset) /* the last one, which is there */
		return 0;
	int r = io_write_full(NULL, k->fd, buf, n, k->offset);
	if (r < 0)
		return err_sys(err, r, "keep the upload");
	k->offset += n;
	return 0;
}

static int check_sum(struct patch *p, struct err *err)
{
	uint8_t got[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	if (!p->hash)
		return 0;
	if (EVP_DigestFinal_ex(p->hash, got, &len) != 1)
		return err_no_memory(err);
	if ((int)len == p->want_len && memcmp(got, p->want, len) == 0)
		return 0;
	return err_set(err, -EBADR, "the bytes aren't those of Upload-Checksum");
}

static int patch_job(void *task, struct progress *progress, unsigned *status, json_t **result,
		     struct err *err)
{
	struct patch *p = task;
	auto_free uint8_t *buf = malloc(COPY_BYTES);
	ssize_t n;
	int r = buf ? 0 : err_no_memory(err);
	while (r == 0 && (n = stream_read(p->in, buf, COPY_BYTES, -1)) != 0)
		r = n < 0 ? err_sys(err, (int)n, "the body") : take_bytes(p, buf, (size_t)n, err);
	if (r == 0)
		r = check_sum(p, err);
	if (r < 0) {
		int t = take_back(p);
		return t < 0 ? err_sys(err, t, "take back what is wrong") : r;
	}
	if (p->k.offset == p->k.length)
		r = finish(&p->k, p->sd, p->ws, err);
	*status = 204;
	return r;
}

static void patch_tell(void *task, struct reply *rp)
{
	struct patch *p = task;
	struct kept k = p->k;
	k.expires = time(NULL) + EXPIRES_S;
	reply_header(rp, "Tus-Resumable", "1.0.0");
	add_state(rp, &k);
}

static int prepare_patch(struct patch *p, struct request *rq, bool box, struct err *err)
{
	const char *type = request_header(rq, "Content-Type");
	const char *offset = request_header(rq, "Upload-Offset");
	const char *sum = request_header(rq, "Upload-Checksum");
	uint64_t at, length = request_length(rq);
	if (!type || strcmp(type, "application/offset+octet-stream") != 0)
		return err_set(err, -EMEDIUMTYPE,
			       "Content-Type: application/offset+octet-stream is needed");
	if (!offset || tus_number(offset, &at) < 0)
		return err_set(err, -EINVAL, "Upload-Offset is needed");
	p->want_len = sum ? tus_checksum(sum, p->want) : 0;
	if (p->want_len < 0)
		return err_set(err, -EINVAL, "Upload-Checksum: sha1 or sha256, and base64");
	int r = kept_open(&p->k, rq, box, true, err);
	if (r < 0)
		return r;
	uint64_t told = tus_told(p->k.offset, p->k.length, is_done(&p->k));
	if ((at != p->k.offset && at != told) || p->k.fd < 0)
		return err_set(err, -ENOTUNIQ, "the upload is at byte %llu",
			       (unsigned long long)told);
	if (length != UINT64_MAX && length > p->k.length - at)
		return err_set(err, -EFBIG, "more than Upload-Length says");
	p->from = p->k.offset;
	p->at = at;
	if (!sum)
		return 0;
	const EVP_MD *md = p->want_len == 20 ? EVP_sha1() : EVP_sha256();
	p->hash = EVP_MD_CTX_new();
	return p->hash && EVP_DigestInit_ex(p->hash, md, NULL) == 1 ? 0 : err_no_memory(err);
}

static int patch(struct request *rq, struct reply *rp, bool box, struct err *err)
{
	struct patch *p = calloc(1, sizeof(*p));
	if (!p)
		return err_no_memory(err);
	p->k.dir = p->k.fd = -1;
	p->sd = rq->ctx;
	p->in = rq->upload;
	int r = begin(rq, rp, err);
	if (r >= 0)
		r = prepare_patch(p, rq, box, err);
	if (r < 0) {
		patch_free(p);
		return r;
	}
	(void)snprintf(p->ws, sizeof(p->ws), "%s",
		       json_string_value(json_object_get(p->k.json, "workspace")));
	rp->job = patch_job;
	rp->tell = patch_tell;
	rp->task = p;
	rp->task_free = patch_free;
	return 0;
}

int api_ws_tus_patch(struct request *rq, struct reply *rp, struct err *err)
{
	return patch(rq, rp, false, err);
}

int api_sandbox_tus_patch(struct request *rq, struct reply *rp, struct err *err)
{
	return patch(rq, rp, true, err);
}
