/* Many changes of files in one call: all or none. What is written goes into a spool, which bough-fs
 * gets with the operations, and makes all changes in one step (ws_batch). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/json.h"
#include "fs/work/batch.h"
#include "snapd/api_files.h"
#include "snapd/api_sandbox.h"
#include "snapd/archive_lib.h"
#include "snapd/files_form.h"
#include "snapd/files_list.h"
#include "snapd/intents.h"
#include "snapd/limits.h"

enum {
	BODY_MAX = 32 << 20,   /* bytes of JSON, the contents in base64 in it */
	OPERATIONS_MAX = 1000, /* so that the answer fits a message */
	LOOK_BYTES = 16 << 20, /* taken in between two looks at how much room there is */
};

/* A part of a form. */
struct part {
	char *name;
	uint64_t at, len; /* in the spool */
};

struct item {
	struct batch_op op;
	struct conditions cond; /* borrows from the body */
	char *path, *other; /* owned */
	uint64_t at, len;   /* of a write: its content in the spool */
};

struct batch {
	struct place place; /* of a sandbox: once its operations are known */
	char box[ID_SIZE];  /* the sandbox that the paths are of; "": a workspace's */
	struct principal who;
	size_t below; /* bytes in front of each path that the workspace knows nothing of */
	struct stream *in;
	struct buf body; /* JSON */
	struct form *form; /* NULL: the body is the JSON */
	bool in_json;      /* this part is it */
	struct part *parts;
	size_t nparts, parts_cap;
	int spool; /* a file without a name, of `end` bytes */
	uint64_t end, looked;
	struct item *items;
	size_t n;
	json_t *details; /* of a failure */
};

static void batch_free(void *task)
{
	struct batch *b = task;
	for (size_t i = 0; i < b->n; i++) {
		free(b->items[i].path);
		free(b->items[i].other);
	}
	for (size_t i = 0; i < b->nparts; i++)
		free(b->parts[i].name);
	free(b->parts);
	free(b->items);
	free(b->form);
	cleanup_close(&b->spool);
	buf_done(&b->body);
	json_decref(b->details);
	place_done(&b->place);
	free(b);
}

/* ---- what is asked for ---- */

static const struct field fields[] = {
	{ "op", FIELD_STRING, true, 0 },
	{ "path", FIELD_STRING, false, 0 },
	{ "path_b64", FIELD_STRING, false, 0 },
	{ "to", FIELD_STRING, false, 0 },
	{ "to_b64", FIELD_STRING, false, 0 },
	{ "target", FIELD_STRING, false, 0 },
	{ "target_b64", FIELD_STRING, false, 0 },
	{ "content", FIELD_STRING, false, 0 },
	{ "content_b64", FIELD_STRING, false, 0 },
	{ "part", FIELD_STRING, false, 0 },
	{ "mode", FIELD_STRING, false, 0 },
	{ "parents", FIELD_BOOL, false, 0 },
	{ "replace", FIELD_BOOL, false, 0 },
	{ "recursive", FIELD_BOOL, false, 0 },
	{ "exist_ok", FIELD_BOOL, false, 0 },
	{ "if_match", FIELD_STRING, false, 0 },
	{ "if_none_match", FIELD_STRING, false, 0 },
	{ 0 },
};

static bool is_true(const json_t *j, const char *key, bool otherwise)
{
	const json_t *v = json_object_get(j, key);
	return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

static int get_mode(const json_t *j, uint32_t otherwise, bool *there, uint32_t *out,
		    struct err *err)
{
	const char *text = json_string_value(json_object_get(j, "mode"));
	char *end = "";
	*there = text != NULL;
	*out = text ? (uint32_t)strtoul(text, &end, 8) : otherwise;
	if (text && (*end || *text < '0' || *text > '7' || *out > 07777))
		return err_set(err, -EINVAL, "\"mode\": an octal number up to 7777");
	return 0;
}

static int get_tags(const json_t *j, const char *key, struct head_tags *out, bool *has,
		    struct err *err)
{
	const char *text = json_string_value(json_object_get(j, key));
	*has = text != NULL;
	if (!text || head_tags_parse(out, text) == 0)
		return 0;
	return err_set(err, -EINVAL, "\"%s\": a list of at most %d entity tags in quotes, or *",
		       key, HEAD_TAGS_MAX);
}

/* ---- each kind ---- */

static int spool(struct batch *b, const void *data, size_t n, struct err *err)
{
	struct snapd *sd = b->place.sd;
	int r = io_write_full(NULL, b->spool, data, n, b->end);
	if (r < 0)
		return err_sys(err, r, "keep what came");
	b->end += n;
	if (b->end - b->looked < LOOK_BYTES)
		return 0;
	b->looked = b->end;
	return limits_room(sd, b->place.src.ws.own.owner, b->end, err);
}

static int find_part(const struct batch *b, struct item *it, const char *name, struct err *err)
{
	for (size_t i = 0; i < b->nparts; i++)
		if (strcmp(b->parts[i].name, name) == 0) {
			it->at = b->parts[i].at;
			it->len = b->parts[i].len;
			return 0;
		}
	return err_set(err, -EINVAL, "\"part\": the form has none of that name");
}

static int write_content(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	auto_free char *content = NULL;
	size_t len;
	const char *part = json_string_value(json_object_get(j, "part"));
	int r = files_bytes(j, "content", &content, &len, err);
	if (r == 0 && part && content)
		return err_set(err, -EINVAL, "\"part\" and \"content\": one of them");
	if (r < 0 || part)
		return r < 0 ? r : find_part(b, it, part, err);
	it->at = b->end;
	it->len = len;
	return spool(b, content, len, err);
}

static int take_write(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	bool mode;
	int r = get_mode(j, 0, &mode, &it->op.mode, err);
	it->op.kind = BATCH_PUT;
	it->op.flags |= BATCH_CONTENT | (mode ? BATCH_SET_MODE : 0);
	return r < 0 ? r : write_content(b, it, j, err);
}

static int take_mkdir(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	bool mode;
	int r = get_mode(j, 0755, &mode, &it->op.mode, err);
	it->op.kind = BATCH_MAKE;
	it->op.mode |= S_IFDIR;
	it->op.flags |= is_true(j, "exist_ok", false) ? BATCH_OLD_FOLDER : 0;
	return r;
}

static int take_move(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	int r = files_path(j, "to", &it->other, err);
	it->op.kind = BATCH_MOVE;
	it->op.other_len = r == 0 ? strlen(it->other) : 0;
	return r;
}

static int take_delete(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	it->op.kind = BATCH_DELETE;
	it->op.flags |= is_true(j, "recursive", false) ? BATCH_RECURSIVE : 0;
	return 0;
}

static int take_symlink(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	size_t len;
	int r = files_bytes(j, "target", &it->other, &len, err);
	if (r == 0 && (len == 0 || len > 4095 || memchr(it->other, 0, len)))
		r = err_set(err, -EINVAL, "\"target\": 1 to 4095 bytes");
	it->op.kind = BATCH_MAKE;
	it->op.mode = S_IFLNK | 0777;
	it->op.other_len = len;
	return r;
}

static int take_chmod(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	bool mode;
	int r = get_mode(j, 0, &mode, &it->op.mode, err);
	it->op.kind = BATCH_CHMOD;
	return r == 0 && !mode ? err_set(err, -EINVAL, "\"mode\" is missing") : r;
}

static int take_check(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	it->op.kind = BATCH_CHECK;
	return 0;
}

static const struct {
	const char *name;
	int (*take)(struct batch *b, struct item *it, const json_t *j, struct err *err);
} kinds[] = {
	{ "write", take_write },     { "mkdir", take_mkdir }, { "move", take_move },
	{ "delete", take_delete },   { "symlink", take_symlink }, { "chmod", take_chmod },
	{ "check", take_check },
};

static int take_one(struct batch *b, struct item *it, const json_t *j, struct err *err)
{
	size_t k = 0;
	int r = json_is_object(j) ? web_fields_check(j, fields, &b->details, err)
				  : err_set(err, -EINVAL, "an object is expected");
	const char *op = json_string_value(json_object_get(j, "op"));
	while (r == 0 && k < sizeof(kinds) / sizeof(kinds[0]) && strcmp(op, kinds[k].name) != 0)
		k++;
	if (r == 0 && k == sizeof(kinds) / sizeof(kinds[0]))
		r = err_set(err, -EINVAL,
			    "\"op\": one of write, mkdir, move, delete, symlink, chmod and check");
	if (r == 0)
		r = files_path(j, "path", &it->path, err);
	if (r == 0)
		r = get_tags(j, "if_match", &it->cond.match, &it->cond.has_match, err);
	if (r == 0)
		r = get_tags(j, "if_none_match", &it->cond.unless, &it->cond.has_unless, err);
	if (r < 0)
		return r;
	it->op.flags |= is_true(j, "parents", true) ? BATCH_PARENTS : 0;
	it->op.flags |= is_true(j, "replace", false) ? BATCH_REPLACE : 0;
	return kinds[k].take(b, it, j, err);
}

/* ---- all of them ---- */

static int at_fault(struct batch *b, size_t i, int r, struct err *err)
{
	if (!b->details)
		b->details = json_object();
	/* Details that are missing do no harm. */
	(void)json_object_set_new(b->details, "operation", json_integer((json_int_t)i));
	const char *path = i < b->n ? b->items[i].path : NULL;
	if (path)
		(void)listing_set_name(b->details, "path", path, strlen(path));
	return err_prefix(err, r, "operation %zu", i);
}

static int take_all(struct batch *b, const json_t *list, struct err *err)
{
	size_t n = json_array_size(list);
	if (!json_is_array(list) || n == 0 || n > OPERATIONS_MAX)
		return err_set(err, -EINVAL, "\"operations\": an array of 1 to %d",
			       OPERATIONS_MAX);
	b->items = calloc(n, sizeof(*b->items));
	if (!b->items)
		return err_no_memory(err);
	b->n = n;
	for (size_t i = 0; i < n; i++) {
		int r = take_one(b, &b->items[i], json_array_get(list, i), err);
		if (r < 0)
			return at_fault(b, i, r, err);
	}
	return 0;
}

/* A sandbox's paths have to be of one workspace. */
static int take_place_of(struct batch *b, const char *path, char ws[ID_SIZE], struct err *err)
{
	char at[ID_SIZE];
	const char *rest;
	int r = sandbox_place(b->place.sd, &b->who, b->box, path, true, at, &rest, err);
	if (r < 0)
		return r;
	if (!*rest)
		return err_set(err, -EISDIR, "that is the root directory of a workspace");
	if (!*ws) {
		memcpy(ws, at, ID_SIZE);
		b->below = (size_t)(rest - path);
	}
	return strcmp(at, ws) == 0 && (size_t)(rest - path) == b->below
		       ? 0
		       : err_set(err, -ENOTSUP,
				 "%s lies in another workspace than the first path: each "
				 "workspace takes a batch of its own",
				 SHOW(path));
}

static int take_place(struct batch *b, struct err *err)
{
	struct snapd *sd = b->place.sd;
	char ws[ID_SIZE] = "";
	int r = 0;
	for (size_t i = 0; i < b->n && r >= 0; i++) {
		const struct item *it = &b->items[i];
		r = take_place_of(b, it->path, ws, err);
		if (r >= 0 && it->op.kind == BATCH_MOVE)
			r = take_place_of(b, it->other, ws, err);
		if (r < 0)
			return at_fault(b, i, r, err);
	}
	r = place_open(&b->place, sd, ws, false, PLACE_WRITE, err);
	return r < 0 ? r : limits_room(sd, b->place.src.ws.own.owner, b->end, err);
}

static void encode(const struct batch *b, struct buf *out, struct buf *contents)
{
	uint64_t number = 0;
	for (size_t i = 0; i < b->n; i++) {
		struct item *it = &b->items[i];
		const struct batch_piece piece = { .len = it->len, .at = it->at };
		if (it->op.kind == BATCH_PUT) {
			it->op.file = ++number;
			batch_encode_content(contents, it->len, &piece, it->len > 0);
		}
		struct condition_lists lists;
		struct ws_put want = { 0 };
		conditions_want(&it->cond, &lists, &want);
		it->op.flags |= want.must_exist ? BATCH_MUST_EXIST : 0;
		it->op.flags |= want.must_not_exist ? BATCH_MUST_NOT_EXIST : 0;
		const size_t moved = it->op.kind == BATCH_MOVE ? b->below : 0;
		it->op.path = it->path + b->below;
		it->op.path_len = strlen(it->op.path);
		it->op.other = it->other ? it->other + moved : NULL;
		it->op.other_len -= moved;
		const struct batch_conditions c = { want.match, want.unless, want.nmatch,
						    want.nunless };
		batch_encode(out, &it->op, &c);
	}
}

/* bough-fs's refusal in the words of the API. */
static int refused(struct batch *b, size_t failed, int r, struct err *err)
{
	const char *path = failed < b->n ? b->items[failed].path : "";
	if (r == -EREMCHG)
		(void)err_set(err, r, "%s isn't what it was expected to be", SHOW(path));
	else if (r == -EEXIST)
		(void)err_set(err, r, "something is there already");
	else if (r == -ENOTEMPTY)
		(void)err_set(err, r, "%s isn't empty", SHOW(path));
	else if (r == -EISDIR)
		(void)err_set(err, r, "a directory is in the way");
	else if (r == -ELOOP)
		(void)err_set(err, r, "%s: a symbolic link, or no file", SHOW(path));
	else if (r == -EINVAL)
		r = err_set(err, -ENOTUNIQ, "%s can't be moved into itself", SHOW(path));
	else if (r == -ENOENT || r == -ENOTDIR)
		r = err_set(err, r == -ENOENT ? r : -ENOTUNIQ, "%s: no such file or directory",
			    SHOW(path));
	else if (failed >= b->n)
		return r; /* all of them, or bough-fs is away */
	return failed < b->n ? at_fault(b, failed, r, err) : r;
}

static json_t *result_of(const struct item *it, const json_t *found)
{
	char mode[8], tag[VERSION_TEXT + 2];
	const char *at = it->op.kind == BATCH_MOVE ? it->other : it->path;
	json_t *j = json_object();
	int bad = j ? listing_set_name(j, "path", at, strlen(at)) : -1;
	if (json_is_array(found)) {
		const char *version = json_string_value(json_array_get(found, 0));
		(void)snprintf(tag, sizeof(tag), "\"%s\"", version ? version : "");
		(void)snprintf(mode, sizeof(mode), "%04o",
			       (unsigned)json_integer_value(json_array_get(found, 1)) & 07777);
		bad |= json_object_set_new(j, "etag", json_string(tag));
		bad |= json_object_set_new(j, "mode", json_string(mode));
		bad |= json_object_set(j, "size", json_array_get(found, 2));
	}
	if (!bad)
		return j;
	json_decref(j);
	return NULL;
}

/* What it will be answered with, as far as that is known before. */
static int intend(const struct batch *b, uint64_t *tag, struct err *err)
{
	json_t *list = json_array();
	int bad = list ? 0 : -1;
	for (size_t i = 0; i < b->n && doing_now() && doing_now()->keyed; i++)
		bad |= json_array_append_new(list, result_of(&b->items[i], NULL));
	json_t *answer = bad ? NULL
			     : json_pack("{s:O, s:I}", "results", list, "below",
					 (json_int_t)b->below);
	json_decref(list);
	return intent_files(tag, b->place.sd, b->place.src.ws.id, 200, answer, err);
}

static int apply(struct batch *b, uint64_t tag, json_t **result, struct err *err)
{
	auto_buf ops = { 0 }, contents = { 0 };
	json_t *found = NULL, *list;
	size_t failed;
	encode(b, &ops, &contents);
	if (buf_error(&ops) || buf_error(&contents))
		return err_no_memory(err);
	const struct fs_batch all = {
		.ops = ops.data,
		.ops_len = ops.len,
		.contents = contents.data,
		.contents_len = contents.len,
		.tag = tag,
		.file = b->spool,
		.at = b->end,
	};
	int r = fs_batch(b->place.sd->fs, b->place.src.ws.id, &all, &failed, &found, err);
	if (r < 0)
		return refused(b, failed, r, err);
	int bad = (list = json_array()) ? 0 : -1;
	for (size_t i = 0; i < b->n; i++)
		bad |= json_array_append_new(list, result_of(&b->items[i],
							     json_array_get(found, i)));
	json_decref(found);
	*result = bad ? NULL : json_pack("{s:o}", "results", list);
	if (bad)
		json_decref(list);
	return *result ? 0 : err_no_memory(err);
}

static int look_all(struct snapd *sd, const char *ws, const json_t *results, size_t below,
		    json_t **out, struct err *err)
{
	struct batch *b = calloc(1, sizeof(*b));
	if (!b)
		return err_no_memory(err);
	b->place = (struct place){ .sd = sd, .root = -1 };
	b->spool = -1;
	b->below = below;
	(void)snprintf(b->place.src.ws.id, sizeof(b->place.src.ws.id), "%s", ws);
	size_t n = json_array_size(results);
	b->items = calloc(n ? n : 1, sizeof(*b->items));
	int r = b->items ? 0 : err_no_memory(err);
	for (; b->n < n && r == 0; b->n++) {
		b->items[b->n].op.kind = BATCH_CHECK;
		r = files_path(json_array_get(results, b->n), "path", &b->items[b->n].path, err);
	}
	if (r == 0)
		r = apply(b, 0, out, err);
	batch_free(b);
	return r;
}

static int look_at_one(struct snapd *sd, const char *ws, const json_t *entry, json_t **out,
		       struct err *err)
{
	auto_place p = { .root = -1 };
	auto_found f = { .fd = -1 };
	auto_free char *path = NULL;
	char target[PATH_SIZE];
	const char *name = json_string_value(json_object_get(entry, "name"));
	int r = name && !*name ? 0 : files_path(entry, "name", &path, err);
	if (r >= 0)
		r = place_open(&p, sd, ws, false, PLACE_READ, err);
	if (r >= 0)
		r = place_find(&p, path ? path : "", &f, err);
	if (r >= 0 && S_ISLNK(f.mode))
		r = place_target(&p, &f, target, err);
	if (r < 0)
		return r;
	const char *at = path ? path : "";
	*out = json_pack("{s:o}", "entry",
			 listing_entry(at, strlen(at), &f, S_ISLNK(f.mode) ? target : NULL));
	return *out ? 0 : err_no_memory(err);
}

int api_files_look(struct snapd *sd, const char *ws, json_t **answer, struct err *err)
{
	const json_t *results = json_object_get(*answer, "results");
	const size_t below = (size_t)json_integer_value(json_object_get(*answer, "below"));
	json_t *now = NULL;
	(void)json_object_del(*answer, "below"); /* one file has none */
	int r = results ? look_all(sd, ws, results, below, &now, err)
			: look_at_one(sd, ws, json_object_get(*answer, "entry"), &now, err);
	if (r < 0)
		return r;
	json_decref(*answer);
	*answer = now;
	return 0;
}

static int add_json(struct batch *b, const void *data, size_t n, struct err *err)
{
	if (b->body.len + n > BODY_MAX)
		return err_set(err, -E2BIG, "the %s larger than %d MiB",
			       b->form ? "operations are" : "body is", BODY_MAX >> 20);
	buf_add(&b->body, data, n);
	return buf_error(&b->body) ? err_no_memory(err) : 0;
}

static int begin_part(void *ctx, const char *name, size_t len, struct err *err)
{
	struct batch *b = ctx;
	b->in_json = len == 10 && memcmp(name, "operations", len) == 0;
	if (b->in_json)
		return 0;
	if (b->nparts >= OPERATIONS_MAX)
		return err_set(err, -EINVAL, "the form has more than %d parts", OPERATIONS_MAX);
	if (array_grow(&b->parts, b->nparts, &b->parts_cap) < 0)
		return err_no_memory(err);
	char *copy = strndup(name, len);
	if (!copy)
		return err_no_memory(err);
	b->parts[b->nparts++] = (struct part){ copy, b->end, 0 };
	return 0;
}

static int add_to_part(void *ctx, const void *data, size_t n, struct err *err)
{
	struct batch *b = ctx;
	if (b->in_json)
		return add_json(b, data, n, err);
	b->parts[b->nparts - 1].len += n;
	return spool(b, data, n, err);
}

static int read_body(struct batch *b, struct err *err)
{
	enum { PIECE = 64 * 1024 };
	auto_free uint8_t *data = malloc(PIECE);
	ssize_t n = 0;
	int r = data ? 0 : err_no_memory(err);
	while (r == 0 && (n = stream_read(b->in, data, PIECE, -1)) > 0)
		r = b->form ? form_feed(b->form, data, (size_t)n, add_to_part, b, err)
			    : add_json(b, data, (size_t)n, err);
	if (r == 0 && n < 0)
		r = err_sys(err, (int)n, "the body");
	return r == 0 && b->form ? form_finish(b->form, err) : r;
}

static int batch_job(void *task, struct progress *p, unsigned *status, json_t **result,
		     struct err *err)
{
	struct batch *b = task;
	json_error_t je;
	int r = read_body(b, err);
	json_t *j = r < 0 ? NULL
			  : json_parse(b->body.data, b->body.len,
				       JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (r == 0 && !j)
		r = err_set(err, -EINVAL, "the body is no JSON: %s (byte %d)", je.text,
			    je.position);
	if (r == 0 && !json_is_object(j))
		r = err_set(err, -EINVAL, "the body isn't a JSON object");
	if (r == 0 && json_object_size(j) != 1)
		r = err_set(err, -EINVAL, "\"operations\" is needed, and nothing else");
	if (r == 0)
		r = take_all(b, json_object_get(j, "operations"), err);
	if (r == 0 && b->box[0])
		r = take_place(b, err);
	uint64_t tag;
	if (r >= 0)
		r = intend(b, &tag, err);
	if (r == 0)
		r = apply(b, tag, result, err);
	json_decref(j); /* which the conditions' tags lie in */
	if (r < 0) {
		*result = b->details;
		b->details = NULL;
	}
	return r;
}

static int prepare_form(struct batch *b, struct request *rq, struct err *err)
{
	char boundary[HEAD_BOUNDARY];
	int r = head_boundary(request_header(rq, "Content-Type"), boundary);
	if (r < 0)
		return err_set(err, r, "Content-Type: a form without a boundary");
	if (r == 0)
		return 0;
	b->form = malloc(sizeof(*b->form));
	if (!b->form)
		return err_no_memory(err);
	form_init(b->form, boundary);
	form_all(b->form, begin_part, b);
	return 0;
}

static int open_spool(struct batch *b, struct err *err)
{
	char scratch[PATH_SIZE];
	(void)snprintf(scratch, sizeof(scratch), "%s/tmp", b->place.sd->root);
	b->spool = open(scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return b->spool < 0 ? err_sys(err, -errno, "make a temporary file") : 0;
}

/* Of a sandbox it is its owner whose room is looked at while the contents come in. */
static int begin_box(struct batch *b, struct request *rq, struct err *err)
{
	auto_sandbox_row row = { 0 };
	struct snapd *sd = rq->ctx;
	int r = catalog_sandbox_get(sd->catalog, rq->params[0], &row, err);
	if (r < 0)
		return r;
	memcpy(b->box, row.id, sizeof(b->box));
	memcpy(b->place.src.ws.own.owner, row.own.owner, OWNER_SIZE);
	b->place.sd = sd;
	b->who = *rq->caller;
	return 0;
}

static int batch(struct request *rq, struct reply *rp, bool box, struct err *err)
{
	struct batch *b = calloc(1, sizeof(*b));
	if (!b)
		return err_no_memory(err);
	b->place.root = -1;
	b->in = rq->upload;
	b->spool = -1;
	uint64_t length = request_length(rq);
	int r = conditions_refuse(rq, err);
	if (r == 0)
		r = prepare_form(b, rq, err);
	if (r == 0 && !b->form && length != WEB_UNKNOWN && length > BODY_MAX)
		r = err_set(err, -E2BIG, "the body is larger than %d MiB", BODY_MAX >> 20);
	if (r == 0)
		r = box ? begin_box(b, rq, err)
			: place_open(&b->place, rq->ctx, rq->params[0], false, PLACE_WRITE, err);
	if (r >= 0)
		r = open_spool(b, err);
	if (r < 0) {
		batch_free(b);
		return r;
	}
	rp->job = batch_job;
	rp->task = b;
	rp->task_free = batch_free;
	return 0;
}

int api_ws_batch(struct request *rq, struct reply *rp, struct err *err)
{
	return batch(rq, rp, false, err);
}

int api_sandbox_batch(struct request *rq, struct reply *rp, struct err *err)
{
	return batch(rq, rp, true, err);
}
