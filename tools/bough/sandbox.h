/* What the commands of sandboxes share. */
#ifndef BOUGH_TOOLS_SANDBOX_H
#define BOUGH_TOOLS_SANDBOX_H

#include "fs/base/buf.h"
#include "tools/bough/api.h"

/* /v1/sandboxes/NAME and rest */
struct target target_sandbox(const char *name, const char *rest);
/* --secret, --env-file: read here, told to nobody but boughd. */
int sandbox_set_secrets(json_t *body, const struct args *a, struct err *err);
/* "W[:TARGET][:ro][:exclusive]" as members of `o`. */
int sandbox_set_attachment(json_t *o, const char *text, struct err *err);
/* Labels, --description, --visibility, --ttl, --on-expiry. */
int sandbox_set_keeping(json_t *body, const struct args *a, struct err *err);
/* --grace, as boughd has it. */
int sandbox_set_grace(json_t *body, const struct args *a, struct err *err);
/* Whether the name is a sandbox's, of those the caller sees. */
bool sandbox_is(struct cli *cli, const char *name);
/* " NAME" of each workspace that was made for it and doesn't go with it, and a NUL. */
void sandbox_own_workspaces(struct cli *cli, const char *name, struct buf *out);
/* The sandbox of that name, where there is no workspace called so; its error stays as it is. */
int sandbox_instead(struct cli *cli, const char *name, json_t **out);
/* Whether it is a sandbox that is meant, of workspaces and sandboxes; -EEXIST: it is of both. */
int sandbox_choose(struct cli *cli, const char *name, bool *yes, struct err *err);
/* Of a sandbox: fork, save and restore. */
int sandbox_fork(struct cli *cli, const struct args *a, struct err *err);
int sandbox_save(struct cli *cli, const struct args *a, json_t *body, struct err *err);
int sandbox_restore(struct cli *cli, const struct args *a, json_t *body, struct err *err);

#endif
