/* Reaching boughd, and starting it when nobody listens. */
#ifndef BOUGH_TOOLS_START_H
#define BOUGH_TOOLS_START_H

#include "tools/bough/cli.h"
#include "tools/bough/http.h"

/* Connects; -ENOENT or -ECONNREFUSED when no daemon runs, never so of one elsewhere. */
int daemon_connect(const struct cli *cli, struct http **out, struct err *err);
/* Whether a boughd of another user answers, which isn't ours to serve, or to end; never to root. */
bool daemon_is_others(const struct cli *cli);
/* Whether the boughd that would be started could serve ROOT with its config.json: it is asked. */
int daemon_check(const struct cli *cli, struct err *err);
/* Connects, and starts `boughd --root ROOT --daemon` first when no daemon runs. Several
 * processes may do this at once: a lock in ROOT/run lets one start it, the others wait. */
int daemon_connect_or_start(const struct cli *cli, struct http **out, struct err *err);
/* Where a program of ours is: beside this one, in ../libexec/bough, in ../sbin, or in PATH. The
 * caller frees. -ENOENT. */
int program_find(const char *name, char **out, struct err *err);

#endif
