/* Options that workspaces and sandboxes have, as members of a request. */
#ifndef BOUGH_TOOLS_WS_H
#define BOUGH_TOOLS_WS_H

#include "tools/bough/api.h"

/* --label K=V, as the member `field`. */
int ws_set_labels(json_t *body, const char *field, const struct args *a, struct err *err);
/* --description, --visibility, --ttl, --on-expiry. */
int ws_set_keeping(json_t *body, const struct args *a, struct err *err);

#endif
