/* A boughd elsewhere: `--url`, BOUGH_URL; its token, which is read from a file and never an
 * argument; by https:// through the program bough-tls. */
#ifndef BOUGH_TOOLS_REMOTE_H
#define BOUGH_TOOLS_REMOTE_H

#include <stdbool.h>
#include <sys/types.h>
#include "fs/base/err.h"

struct remote;

/* "http://HOST[:PORT]" or "https://…"; `auth` and `ca` are files: the token's, and that of the
 * certificates that sign the server's. NULL: no token; those that this machine trusts. A token goes
 * by http:// to this machine only (its host is an address of the loopback, or localhost), unless
 * `insecure` says that nobody listens in. remote_free. -EINVAL, -errno of the files. */
int remote_new(struct remote **out, const char *url, const char *auth, const char *ca,
	       bool insecure, struct err *err);
void remote_free(struct remote *r); /* NULL allowed */
const char *remote_host(const struct remote *r);  /* HOST[:PORT], as a request names it */
const char *remote_token(const struct remote *r); /* NULL: none */
/* A connection: a descriptor, which the caller closes; *helper is then the process to wait for, 0:
 * none. -errno, with the URL in the message. */
int remote_connect(const struct remote *r, pid_t *helper, struct err *err);

#endif
