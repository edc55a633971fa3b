/* Where a repository lies, as a person writes it: what is let through to git, and what is said
 * about it afterwards. Pure.
 *
 *   https://host[:port]/path   http://…   git://…   ssh://[user@]host[:port]/path
 *   [user@]host:path           (ssh, as git writes it)
 *
 * Everything else is refused: other protocols (ext:: runs programs), what git or ssh would take
 * for an option, control characters, and a password or (but for ssh) a user in the URL, since a URL
 * is shown, recorded and passed as an argument. */
#ifndef BOUGH_GITOPS_URL_H
#define BOUGH_GITOPS_URL_H

#include <stdbool.h>
#include <stddef.h>
#include "fs/base/err.h"

enum { GIT_URL_MAX = 2048, GIT_HOST_MAX = 256 };

enum git_url_kind { GIT_URL_HTTP = 1, GIT_URL_GIT, GIT_URL_SSH };
struct git_url {
	enum git_url_kind kind;
	char protocol[8];        /* "https", "http", "git", "ssh" */
	char host[GIT_HOST_MAX]; /* as git hands it to a credential helper: with :port, if any */
};
/* 0, or -EINVAL with one line that doesn't repeat what may be a secret. `out` NULL allowed. */
int git_url_parse(struct git_url *out, const char *url, struct err *err);
/* The URL's host without a port, and its port, the protocol's own where none is given. */
void git_url_place(const struct git_url *u, char host[GIT_HOST_MAX], char port[6]);
/* A name made of the last part of the path (without .git), of what a name may hold; "" where there
 * is nothing to make one of. Works for paths of folders as well. */
void git_url_name(char *out, size_t size, const char *url);

/* Makes a line of what another machine or program said: each secret becomes "***", each byte
 * that isn't printable a '?'. Secrets shorter than 4 bytes are left alone. In place. */
void text_scrub(char *text, const char *const *secrets, size_t n);

#endif
