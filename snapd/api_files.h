/* What the handlers of files share (API.md, "Files"). */
#ifndef BOUGH_SNAPD_API_FILES_H
#define BOUGH_SNAPD_API_FILES_H

#include "snapd/api.h"
#include "snapd/files_head.h"
#include "snapd/files_place.h"

/* If-Match and If-None-Match as they were sent. */
struct conditions {
	struct head_tags match, unless;
	bool has_match, has_unless;
};
/* For what changes something. -EINVAL: a malformed list; -ENOSYS: by a date. */
int conditions_change(struct conditions *c, struct request *rq, struct err *err);
/* Of what is there now (NULL: nothing): 0, or -EREMCHG. For changes: an ETag counts as the version
 * that it names, in whatever coding. */
int conditions_check(const struct conditions *c, const struct found *f, struct err *err);
/* The same for ws_put and ws_take. `lists` lives as long as `want` is used. */
struct condition_lists {
	struct version_id match[HEAD_TAGS_MAX], unless[HEAD_TAGS_MAX];
};
void conditions_want(const struct conditions *c, struct condition_lists *lists,
		     struct ws_put *want);
/* A change without such a check refuses to be asked for one. */
int conditions_refuse(struct request *rq, struct err *err);

/* What a field of that name has, or in base64 its sister KEY_b64: any bytes. *out is terminated and
 * the caller's; NULL: there is neither. -EINVAL: both, or no base64. */
int files_bytes(const json_t *j, const char *key, char **out, size_t *len, struct err *err);
/* A path in a body, by the rules of one in a target; a '/' before it is left out. *out is the
 * caller's. -EINVAL; -EISDIR: the root; access_path's. */
int files_path(const json_t *j, const char *key, char **out, struct err *err);
/* An octal mode. -EINVAL, with the field told. */
int files_mode(struct request *rq, const char *text, uint32_t *out, struct err *err);
/* Gives a file its name, as PUT does; missing directories are made. `want` has all but folder, name
 * and conditions. The codes of ws_put are passed on for an upload. */
int files_put_name(struct place *p, const char *path, struct ws_put *want,
		   const struct conditions *c, struct fs_named *named, struct err *err);
/* Puts what was found into an error's details: {"type", "target"?}. */
void files_detail(struct request *rq, const struct place *p, const struct found *f);

/* How what an intent (intents.h) noted is answered: *answer is {"entry": {"name"}} of a change of
 * one file, or {"results": [{"path"}…]} of a batch, and becomes what it is now. -ENOENT: the file
 * is gone. It stays as it was unless 0. */
int api_files_look(struct snapd *sd, const char *ws, json_t **answer, struct err *err);
/* GET of a file as for a signed URL (api_sign.c); `pinned`: the ETag that it must have, or NULL. */
int file_send(struct request *rq, struct reply *rp, bool is_snap, const char *pinned,
	      struct err *err);
int api_sign(struct request *rq, struct reply *rp, bool is_snap, struct err *err);

#endif
