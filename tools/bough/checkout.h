/* What `create --git` adds to create, and what show tells of a checkout. */
#ifndef BOUGH_TOOLS_CHECKOUT_H
#define BOUGH_TOOLS_CHECKOUT_H

#include "tools/bough/cli.h"

/* Sets body["git"] from --git, --ref, --scope, --depth, --branch, --seen-at; none: nothing. */
int checkout_set(json_t *body, const struct args *a, struct err *err);
/* Notes on stderr of what one might not expect in the new workspace. */
void checkout_notes(const struct cli *cli, const json_t *ws);
/* A line for each thing to know. */
void checkout_show(const json_t *ws);

#endif
