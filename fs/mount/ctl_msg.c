#include "fs/mount/ctl_msg.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "fs/work/batch.h"
#include "fs/work/ino.h"
#include "fs/work/watch.h"

enum field {
	F_ID = 1 << 0,
	F_PATH = 1 << 1,
	F_AFTER = 1 << 2,
	F_BYTES = 1 << 3,
	F_INODES = 1 << 4,
	F_UID = 1 << 5,
	F_GID = 1 << 6,
	F_STACK = 1 << 7,
	F_OLD = 1 << 8,
	F_NEW = 1 << 9,
	F_CHILDREN = 1 << 10,
	F_KNOWN = 1 << 11,
	F_EXPECT = 1 << 12,
	F_XATTRS = 1 << 13,
	F_DIR = 1 << 14,
	F_NAME = 1 << 15,
	F_FILE = 1 << 16,
	F_MODE = 1 << 17,
	F_EXIST = 1 << 18,
	F_MATCH = 1 << 19,
	F_UNLESS = 1 << 20,
	F_AS_IS = 1 << 21,
	F_SINCE = 1 << 22,
	F_MOMENT = 1 << 23,
	F_WAIT_MS = 1 << 24,
	F_TAG = 1 << 25,
	F_SIZE = 1 << 26,
	F_RESULTS = 1 << 27,
	F_AT = 1 << 28,
	F_CONTENTS = 1 << 29,
	F_UPLOAD = 1 << 30,
};

static const struct {
	const char *name;
	unsigned must, may;
} ops[CTL_OPS] = {
	[CTL_HELLO] = { "hello", 0, 0 },
	[CTL_CREATE] = { "create", F_ID | F_UID | F_GID,
			 F_STACK | F_BYTES | F_INODES | F_PATH | F_XATTRS },
	[CTL_MOUNT] = { "mount", F_ID | F_PATH, 0 },
	[CTL_UMOUNT] = { "umount", F_ID, 0 },
	[CTL_FORK] = { "fork", F_ID | F_CHILDREN, 0 },
	[CTL_SEAL] = { "seal", F_ID, 0 },
	[CTL_STACK] = { "stack", F_ID, 0 },
	[CTL_REPLACE] = { "replace", F_ID | F_OLD | F_NEW, 0 },
	[CTL_RESTORE] = { "restore", F_ID | F_STACK, F_EXPECT },
	[CTL_RENUMBER] = { "renumber", F_ID | F_STACK, F_EXPECT },
	[CTL_PUT] = { "put", F_ID | F_DIR | F_NAME,
		      F_FILE | F_UPLOAD | F_MODE | F_AS_IS | F_EXIST | F_MATCH | F_UNLESS | F_TAG },
	[CTL_TAKE] = { "take", F_ID | F_DIR | F_NAME, F_EXIST | F_MATCH | F_UNLESS | F_TAG },
	[CTL_BATCH] = { "batch", F_ID | F_SIZE | F_TAG, F_RESULTS | F_AT | F_CONTENTS },
	[CTL_ANSWERED] = { "answered", F_ID | F_TAG, 0 },
	[CTL_CHANGES] = { "changes", F_ID, F_SINCE },
	[CTL_ENTRIES] = { "entries", F_ID | F_DIR, F_AT },
	[CTL_AWAIT] = { "await", F_MOMENT | F_WAIT_MS, 0 },
	[CTL_LIMITS] = { "limits", F_ID | F_BYTES | F_INODES, 0 },
	[CTL_HOLD] = { "hold", F_ID | F_TAG | F_BYTES | F_INODES, 0 },
	[CTL_USAGE] = { "usage", F_ID, 0 },
	[CTL_SYNC] = { "sync", F_ID, 0 },
	[CTL_DELETE] = { "delete", F_ID, 0 },
	[CTL_CLOSE] = { "close", F_ID, 0 },
	[CTL_END] = { "end", F_ID, 0 },
	[CTL_SWEEP] = { "sweep", F_KNOWN, 0 },
	[CTL_LIST] = { "list", 0, F_AFTER },
	[CTL_STATS] = { "stats", 0, 0 },
	[CTL_TRIM] = { "trim", 0, 0 },
	[CTL_QUIT] = { "quit", 0, 0 },
	[CTL_LEAVE] = { "leave", 0, 0 },
	[CTL_SETTLE] = { "settle", 0, 0 },
};

static int parse_id(const json_t *j, const char *what, const char **out, struct err *err)
{
	const char *s = json_string_value(j);
	size_t len = json_string_length(j);
	if (!s || len == 0 || len > WS_ID_MAX ||
	    strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") != len)
		return err_set(err, -EINVAL,
			       "%s: a string of 1 to %d characters a-z 0-9 _ expected", what,
			       WS_ID_MAX);
	*out = s;
	return 0;
}

static int parse_path(const json_t *j, const char **out, struct err *err)
{
	const char *s = json_string_value(j); /* without NUL: jansson refuses them */
	if (!s || s[0] != '/' || json_string_length(j) >= PATH_MAX)
		return err_set(err, -EINVAL, "path: an absolute path below %d bytes expected",
			       PATH_MAX);
	*out = s;
	return 0;
}

static int parse_count(const json_t *j, const char *what, uint64_t max, uint64_t *out,
		       struct err *err)
{
	if (!json_is_integer(j) || json_integer_value(j) < 0 ||
	    (uint64_t)json_integer_value(j) > max)
		return err_set(err, -EINVAL, "%s: an integer from 0 to %llu expected", what,
			       (unsigned long long)max);
	*out = (uint64_t)json_integer_value(j);
	return 0;
}

static int parse_user(const json_t *j, const char *what, uint32_t *out, struct err *err)
{
	uint64_t n;
	int r = parse_count(j, what, UINT32_MAX - 1, &n, err); /* the last one means "nobody" */
	if (r == 0)
		*out = (uint32_t)n;
	return r;
}

static int parse_stack(const json_t *j, const char *what, struct stack *out, struct err *err)
{
	const char *s = json_string_value(j);
	size_t len = json_string_length(j);
	if (!s || len % 2)
		return err_set(err, -EINVAL, "%s: a stack in hex expected", what);
	auto_free uint8_t *bytes = malloc(len / 2 + 1);
	if (!bytes)
		return err_no_memory(err);
	if (hex_decode(bytes, len / 2, s) < 0)
		return err_set(err, -EINVAL, "%s: a stack in hex expected", what);
	int r = stack_decode(out, bytes, len / 2);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	return r < 0 ? err_set(err, -EINVAL, "%s: not a stack", what) : 0;
}

static int parse_limits(const json_t *j, struct ws_limits *out, struct err *err)
{
	const json_t *bytes = json_object_get(j, "bytes"), *inodes = json_object_get(j, "inodes");
	int r = bytes ? parse_count(bytes, "bytes", INT64_MAX, &out->bytes, err) : 0;
	if (r == 0 && inodes)
		r = parse_count(inodes, "inodes", INT64_MAX, &out->inodes, err);
	return r;
}

static int parse_xattrs(const json_t *j, struct ws_limits *out, struct err *err)
{
	if (!json_is_boolean(j))
		return err_set(err, -EINVAL, "xattrs: true or false expected");
	out->xattrs = json_is_true(j) ? WS_XATTRS_ON : WS_XATTRS_OFF;
	return 0;
}

static int parse_child(const json_t *j, struct served_child *out, struct err *err)
{
	if (!json_is_object(j))
		return err_set(err, -EINVAL, "children: objects expected");
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)j, key, value) /* it changes nothing */
		if (strcmp(key, "id") != 0 && strcmp(key, "path") != 0 &&
		    strcmp(key, "bytes") != 0 && strcmp(key, "inodes") != 0 &&
		    strcmp(key, "xattrs") != 0 && strcmp(key, "heir") != 0)
			return err_set(err, -EINVAL, "children: unknown field %.40s", key);
	int r = parse_id(json_object_get(j, "id"), "id of a child", &out->id, err);
	const json_t *path = json_object_get(j, "path"), *xattrs = json_object_get(j, "xattrs");
	const json_t *heir = json_object_get(j, "heir");
	if (r == 0 && path)
		r = parse_path(path, &out->path, err);
	if (r == 0 && xattrs)
		r = parse_xattrs(xattrs, &out->limits, err);
	if (r == 0 && heir && !json_is_boolean(heir))
		r = err_set(err, -EINVAL, "heir: true or false expected");
	out->limits.heir = json_is_true(heir);
	return r < 0 ? r : parse_limits(j, &out->limits, err);
}

static int parse_children(const json_t *j, struct ctl_request *q, struct err *err)
{
	size_t n = json_array_size(j); /* 0 for what is no array */
	if (n == 0 || n > CTL_CHILDREN_MAX)
		return err_set(err, -EINVAL, "children: an array of 1 to %d expected",
			       CTL_CHILDREN_MAX);
	q->children = calloc(n, sizeof(*q->children));
	if (!q->children)
		return err_no_memory(err);
	q->nchildren = (unsigned)n;
	for (size_t i = 0; i < n; i++) {
		int r = parse_child(json_array_get(j, i), &q->children[i], err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int parse_known(const json_t *j, struct ctl_request *q, struct err *err)
{
	if (!json_is_array(j))
		return err_set(err, -EINVAL, "known: an array of ids expected");
	size_t n = json_array_size(j); /* bounded by FRAME_MAX */
	q->known = calloc(n ? n : 1, sizeof(*q->known));
	if (!q->known)
		return err_no_memory(err);
	for (size_t i = 0; i < n; i++) {
		int r = parse_id(json_array_get(j, i), "known", &q->known[i], err);
		if (r < 0)
			return r;
	}
	q->nknown = n;
	qsort(q->known, n, sizeof(*q->known), compare_strings);
	return 0;
}

bool ctl_knows(const struct ctl_request *q, const char *id)
{
	return q->nknown && bsearch(&id, q->known, q->nknown, sizeof(*q->known), compare_strings);
}

/* A name in a directory: any bytes, so it comes in hex. */
static int parse_name(const json_t *j, struct ctl_request *q, struct err *err)
{
	const char *s = json_string_value(j);
	size_t len = json_string_length(j) / 2;
	if (!s || json_string_length(j) % 2 || len == 0 || len > NAME_MAX_BYTES)
		return err_set(err, -EINVAL, "name: 1 to %d bytes in hex expected", NAME_MAX_BYTES);
	q->name = calloc(1, len + 1);
	if (!q->name)
		return err_no_memory(err);
	if (hex_decode((uint8_t *)q->name, len, s) < 0)
		return err_set(err, -EINVAL, "name: hex expected");
	q->put.name = q->name;
	q->put.len = len;
	return 0;
}

static int parse_versions(const json_t *j, const char *what, struct ctl_request *q,
			  const struct version_id **list, size_t *count, struct err *err)
{
	size_t n = json_array_size(j); /* 0 for what is no array */
	if (n == 0 || n > CTL_VERSIONS_MAX)
		return err_set(err, -EINVAL, "%s: an array of 1 to %d expected", what,
			       CTL_VERSIONS_MAX);
	if (!q->versions)
		q->versions = calloc(2 * (size_t)CTL_VERSIONS_MAX, sizeof(*q->versions));
	if (!q->versions)
		return err_no_memory(err);
	struct version_id *to = q->versions + (list == &q->put.unless ? CTL_VERSIONS_MAX : 0);
	for (size_t i = 0; i < n; i++) {
		const json_t *one = json_array_get(j, i);
		const char *s = json_string_value(one);
		if (!s || version_parse(&to[i], s, json_string_length(one)) < 0)
			return err_set(err, -EINVAL, "%s: versions of files expected", what);
	}
	*list = to;
	*count = n;
	return 0;
}

/* [name, bytes] */
static int parse_upload(const json_t *j, struct ws_put *p, struct err *err)
{
	const char *name = json_string_value(json_array_get(j, 0));
	if (!name || json_array_size(j) != 2)
		return err_set(err, -EINVAL, "upload: a name and a number of bytes expected");
	p->upload = name;
	return parse_count(json_array_get(j, 1), "upload", INT64_MAX, &p->size, err);
}

static int parse_put_field(struct ctl_request *q, enum field f, const json_t *j, struct err *err)
{
	struct ws_put *p = &q->put;
	uint64_t mode;
	int r;
	switch (f) {
	case F_DIR:
		return parse_count(j, "dir", INO_MAX, &p->dir, err);
	case F_FILE:
		return parse_count(j, "file", INO_MAX, &p->file, err);
	case F_UPLOAD:
		return parse_upload(j, p, err);
	case F_NAME:
		return parse_name(j, q, err);
	case F_MODE:
		r = parse_count(j, "mode", 07777, &mode, err);
		p->set_mode = r == 0;
		p->mode = r == 0 ? (uint32_t)mode : 0;
		return r;
	case F_AS_IS:
		if (!json_is_boolean(j))
			return err_set(err, -EINVAL, "as_is: true or false expected");
		p->as_is = json_is_true(j);
		return 0;
	case F_EXIST:
		if (!json_is_boolean(j))
			return err_set(err, -EINVAL, "exist: true or false expected");
		p->must_exist = json_is_true(j);
		p->must_not_exist = !p->must_exist;
		return 0;
	case F_MATCH:
		return parse_versions(j, "match", q, &p->match, &p->nmatch, err);
	default:
		return parse_versions(j, "unless", q, &p->unless, &p->nunless, err);
	}
}

static int parse_since(const json_t *j, struct ctl_request *q, struct err *err)
{
	q->token = json_string_value(j);
	if (!q->token || watch_token_check(q->token) < 0)
		return err_set(err, -EINVAL, "since: a token that an answer gave is expected");
	return 0;
}

static int parse_field(struct ctl_request *q, enum field f, const json_t *j, struct err *err)
{
	uint64_t n;
	int r;
	switch (f) {
	case F_ID:
		return parse_id(j, "id", &q->id, err);
	case F_AFTER:
		return parse_id(j, "after", &q->after, err);
	case F_PATH:
		return parse_path(j, &q->path, err);
	case F_BYTES:
		return parse_count(j, "bytes", INT64_MAX, &q->limits.bytes, err);
	case F_INODES:
		return parse_count(j, "inodes", INT64_MAX, &q->limits.inodes, err);
	case F_UID:
		return parse_user(j, "uid", &q->uid, err);
	case F_GID:
		return parse_user(j, "gid", &q->gid, err);
	case F_STACK:
		r = parse_stack(j, "stack", &q->stack, err);
		q->has_stack = r == 0;
		return r;
	case F_OLD:
		return parse_stack(j, "old", &q->stack, err);
	case F_NEW:
		return parse_stack(j, "new", &q->with, err);
	case F_EXPECT:
		r = parse_stack(j, "expect", &q->with, err);
		q->has_expect = r == 0;
		return r;
	case F_XATTRS:
		return parse_xattrs(j, &q->limits, err);
	case F_TAG:
		r = parse_count(j, "tag", INT64_MAX, &n, err);
		q->tag = r == 0 ? n : 0;
		return r;
	case F_SIZE:
		return parse_count(j, "size", BATCH_BYTES_MAX, &q->size, err);
	case F_AT:
		return parse_count(j, "at", INT64_MAX, &q->at, err);
	case F_CONTENTS:
		return parse_count(j, "contents", BATCH_CONTENTS_MAX, &q->contents, err);
	case F_RESULTS:
		if (!json_is_boolean(j))
			return err_set(err, -EINVAL, "results: true or false expected");
		q->results = json_is_true(j);
		return 0;
	case F_SINCE:
		return parse_since(j, q, err);
	case F_MOMENT:
		return parse_count(j, "moment", INT64_MAX, &q->moment, err);
	case F_WAIT_MS:
		r = parse_count(j, "wait_ms", CTL_WAIT_MAX_MS, &n, err);
		q->wait_ms = r == 0 ? (int)n : 0;
		return r;
	case F_CHILDREN:
		return parse_children(j, q, err);
	case F_KNOWN:
		return parse_known(j, q, err);
	case F_DIR:
	case F_NAME:
	case F_FILE:
	case F_UPLOAD:
	case F_MODE:
	case F_AS_IS:
	case F_EXIST:
	case F_MATCH:
	case F_UNLESS:
		return parse_put_field(q, f, j, err);
	}
	return -EINVAL;
}

static const struct {
	const char *name;
	enum field field;
} fields[] = {
	{ "id", F_ID },         { "path", F_PATH },         { "after", F_AFTER },
	{ "bytes", F_BYTES },   { "inodes", F_INODES },     { "uid", F_UID },
	{ "gid", F_GID },       { "stack", F_STACK },       { "old", F_OLD },
	{ "new", F_NEW },       { "children", F_CHILDREN }, { "known", F_KNOWN },
	{ "expect", F_EXPECT }, { "dir", F_DIR },           { "name", F_NAME },
	{ "file", F_FILE },     { "mode", F_MODE },         { "exist", F_EXIST },
	{ "match", F_MATCH },   { "unless", F_UNLESS },     { "as_is", F_AS_IS },
	{ "xattrs", F_XATTRS }, { "since", F_SINCE },       { "moment", F_MOMENT },
	{ "wait_ms", F_WAIT_MS }, { "tag", F_TAG },           { "size", F_SIZE },
	{ "results", F_RESULTS }, { "at", F_AT },           { "contents", F_CONTENTS },
	{ "upload", F_UPLOAD },
};
enum { NFIELDS = sizeof(fields) / sizeof(*fields) };

static int parse_op(struct ctl_request *q, struct err *err)
{
	const char *op = json_string_value(json_object_get(q->json, "op"));
	if (!op)
		return err_set(err, -EINVAL, "a request is an object with a string \"op\"");
	for (int i = 0; i < CTL_OPS; i++)
		if (strcmp(ops[i].name, op) == 0) {
			q->op = (enum ctl_op)i;
			return 0;
		}
	return err_set(err, -EINVAL, "unknown op %.40s", op);
}

static int parse_fields(struct ctl_request *q, struct err *err)
{
	const char *op = ops[q->op].name;
	unsigned seen = 0;
	const char *key;
	json_t *value;
	json_object_foreach(q->json, key, value) {
		if (strcmp(key, "op") == 0)
			continue;
		int i = 0;
		while (i < NFIELDS && strcmp(fields[i].name, key) != 0)
			i++;
		if (i == NFIELDS || !(fields[i].field & (ops[q->op].must | ops[q->op].may)))
			return err_set(err, -EINVAL, "%s: unknown field %.40s", op, key);
		int r = parse_field(q, fields[i].field, value, err);
		if (r < 0)
			return err_prefix(err, r, "%s", op);
		seen |= fields[i].field;
	}
	for (int i = 0; i < NFIELDS; i++)
		if (fields[i].field & ops[q->op].must & ~seen)
			return err_set(err, -EINVAL, "%s: %s is missing", op, fields[i].name);
	unsigned content = seen & (F_FILE | F_UPLOAD);
	if (q->op == CTL_PUT && (content == 0 || content == (F_FILE | F_UPLOAD)))
		return err_set(err, -EINVAL, "put: a file or an upload is needed");
	return 0;
}

int ctl_parse(const void *data, size_t len, struct ctl_request *out, struct err *err)
{
	struct ctl_request q = { 0 };
	json_error_t je;
	q.json = json_loadb(data, len, JSON_REJECT_DUPLICATES, &je);
	if (!q.json)
		return err_set(err, -EINVAL, "not JSON: %s", je.text);
	int r = parse_op(&q, err);
	if (r == 0)
		r = parse_fields(&q, err);
	if (r < 0)
		ctl_request_done(&q);
	else
		*out = q;
	return r;
}

void ctl_request_done(struct ctl_request *q)
{
	stack_done(&q->stack);
	stack_done(&q->with);
	free(q->children);
	free(q->name);
	free(q->versions);
	free(q->known);
	json_decref(q->json);
	*q = (struct ctl_request){ 0 };
}
