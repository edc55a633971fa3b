/* boughd's API from the caller's side: snapd/API.md is the contract.
 *
 * The first call starts a daemon where none listens. Every failure is -errno with one line
 * that a person can act on: -ENOENT (not found), -EEXIST (exists, conflict), -EBUSY, -ENOSPC,
 * -EDQUOT, -EINVAL (invalid request), -EPROTO (the daemon broke the contract), … */
#ifndef BOUGH_TOOLS_API_H
#define BOUGH_TOOLS_API_H

#include <jansson.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "tools/bough/cli.h"
#include "tools/bough/http.h"
#include "tools/bough/out.h"

enum {
	API_DOC_MAX = 256 << 20, /* one JSON document: a list of some 500,000 workspaces */
	API_LINE_MAX = 64 << 20, /* one line of a stream: fsck's result names each fault */
};

/* ---- paths: "/v1/workspaces/" NAME "/fork" ? key = value ---- */

/* A target that is built in pieces; the first failure is remembered, api_call reports it. */
struct target {
	struct buf text;
	bool query;          /* a '?' is in it */
	const char *headers; /* further lines of the request's head; borrowed; NULL: none */
	bool upgrade;        /* they ask for another protocol */
};
#define auto_target __attribute__((cleanup(target_done))) struct target
struct target target_new(const char *path);
struct target target_ws(const char *name, const char *rest); /* /v1/workspaces/NAME and rest */
struct target target_snap(const char *name, const char *rest);
void target_name(struct target *t, const char *name); /* one segment, escaped */
void target_path(struct target *t, const char *literal);
void target_query(struct target *t, const char *key, const char *value); /* NULL value: nothing */
void target_done(struct target *t);

/* ---- calls ---- */

/* One request and its JSON answer; `body` (NULL: none) is borrowed. *out (NULL: not wanted) is
 * the caller's; it is an empty object for 204. *status may be NULL. */
int api_call(struct cli *cli, const char *method, struct target *t, json_t *body, json_t **out,
	     unsigned *status, struct err *err);
/* A long job: shows progress while it runs and gives its result. `upload` (NULL: `body`, as
 * above) is the request's stream. */
int api_job(struct cli *cli, const char *method, struct target *t, json_t *body,
	    const struct http_body *upload, struct progress *progress, json_t **out,
	    struct err *err);
/* The same left behind: prints the job's id (with --json the job). */
int api_background(struct cli *cli, const char *method, struct target *t, json_t *body,
		   struct err *err);
/* GET whose answer is a stream: read it with http_read or http_read_line, then http_free. */
int api_stream(struct cli *cli, struct target *t, const char *accept, struct http **out,
	       struct err *err);
/* Kinds of things, which have names of their own: one may be the name of several. */
enum { KIND_WORKSPACE = 1, KIND_SNAPSHOT = 2, KIND_TREE = 3, KIND_SANDBOX = 4 };
/* Which of `kinds` a name or an id is of; of several things the caller's own is meant. -EEXIST
 * names them where that doesn't decide it; -ENOENT, without words, where it is of none. */
int api_kind(struct cli *cli, const char *name, unsigned kinds, unsigned *kind, struct err *err);
/* As api_stream, of what `name` is: /v1/…/NAME and `rest` (path and query, used up). -EEXIST as
 * above; -ENOENT, too, where something else that `rest` names isn't there. */
int api_stream_of(struct cli *cli, const char *name, unsigned kinds, struct target *rest,
		  const char *accept, struct http **out, struct err *err);
/* That target by itself; *out is the caller's. */
int api_target_of(struct cli *cli, const char *name, unsigned kinds, struct target *rest,
		  struct target *out, struct err *err);
/* One request whose body is `upload` (NULL: none); *head is what the answer begins with. Read its
 * body, where there is one, with http_read, then http_free. */
int api_exchange(struct cli *cli, const char *method, struct target *t,
		 const struct http_body *upload, struct http **out, struct http_head *head,
		 struct err *err);
/* A call of no body beside what the command does: its failure leaves no error behind, and an
 * earlier one is still the one to tell of. */
int api_aside(struct cli *cli, const char *method, struct target *t, json_t **out);
/* True when GET gives something; such a call. */
bool api_exists(struct cli *cli, struct target *t);

/* `r`, which is told in a better way where what isn't found is a snapshot's name. */
int api_tell_snapshot(struct cli *cli, const char *name, int r, struct err *err);
/* Reading that stream failed with `r`: the same as a call would have failed when the daemon told
 * why it broke the stream off, else `r` and *err as they are. */
int api_stream_error(struct cli *cli, const struct http *h, int r, struct err *err);
/* An {"error": …} line in a stream, as the calls above return it; 0: `line` is no error. */
int api_line_error(struct cli *cli, const json_t *line, struct err *err);

/* What to do about a mount that failed for such a reason, to be put behind it; "" : no idea. */
const char *mount_hint(const char *why);

/* Members of a request; `o` NULL: memory ran out before. Text that isn't UTF-8, which JSON can't
 * carry, is -EINVAL. */
int body_text(json_t *o, const char *key, const char *text, struct err *err);
int body_number(json_t *o, const char *key, uint64_t v, struct err *err);
int body_bool(json_t *o, const char *key, bool v, struct err *err);
/* o[key] = []; it is the body's. NULL: out of memory. */
json_t *body_list(json_t *o, const char *key);
/* The text at the end of the list o[key], which is made where there is none. */
int body_add(json_t *o, const char *key, const char *text, struct err *err);
/* Of those options (NULL ends) that are given: the text, or true, as the member of that name, '_'
 * for '-'. */
int body_texts(json_t *o, const struct args *a, const char *const *options, struct err *err);
int body_flags(json_t *o, const struct args *a, const char *const *options, struct err *err);

/* Members of an answer; "" and 0 where they are absent or of another type. */
const char *get_text(const json_t *o, const char *key);
/* The bytes of a name: of the member, or of its base64 sister, which it has where they aren't
 * UTF-8. "" when neither is there. The caller's; NULL: no memory. */
char *get_name(const json_t *o, const char *key);
int64_t get_int(const json_t *o, const char *key);
bool get_true(const json_t *o, const char *key);

#endif
