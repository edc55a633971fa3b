/* What the handlers of sandboxes share. */
#ifndef BOUGH_SNAPD_API_SANDBOX_H
#define BOUGH_SNAPD_API_SANDBOX_H

#include "snapd/api.h"
#include "snapd/sandbox.h"
#include "snapd/web_parse.h"

/* "secrets" and "secret_env" of the body. */
int api_sandbox_secrets(struct request *rq, struct secrets *out, struct err *err);
/* {workspace, target, read_only, exclusive, own}: checked, and the caller may. `host_image`: the
 * sandbox's /usr is the host's. */
int api_sandbox_attachment(struct request *rq, json_t *j, bool host_image,
			   struct attached_row *out, struct err *err);
/* A name that nobody's sandbox has. */
int api_sandbox_name(struct request *rq, const char *field, const char *name, struct err *err);
/* "grace_ms" of the body, or what there is without. */
int api_grace(struct request *rq, struct err *err);
/* "TERM", "SIGTERM", "15": the number, or -EINVAL. */
int api_signal_parse(const char *text);
/* Sends the exec (or SANDBOX_MAIN) of the request's sandbox a signal: once for its
 * Idempotency-Key. */
int api_exec_send(struct request *rq, const char *exec, int sig, struct err *err);
/* The exec that the request's second parameter names: *key is its id, or SANDBOX_MAIN; of that
 * *row stays empty. */
int api_exec_find(struct request *rq, struct exec_row *row, const char **key, struct err *err);
/* A number of bytes in the query; 0 where it isn't there. */
int api_exec_offset(struct request *rq, const char *name, uint64_t *out, struct err *err);

/* The workspace that a path of the sandbox lies on, as its processes see it, and the path there,
 * which is borrowed from `path`. `write`: -EROFS where it may not be. */
int sandbox_place(struct snapd *sd, const struct principal *who, const char *sandbox,
		  const char *path, bool write, char workspace[ID_SIZE], const char **rest,
		  struct err *err);
/* Whether it lies on that one still, and `who` may look at it: 1 or 0. */
int sandbox_place_still(struct snapd *sd, const struct principal *who, const char *sandbox,
			const char *path, const char *workspace, struct err *err);

#endif
