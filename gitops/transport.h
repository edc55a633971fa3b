/* Moving data between a repository of ours and another one: the host's git as a child that can
 * be killed (child.h), or where none is found libgit2 in such a child, called alike.
 *
 * What the child sees: no configuration but ours, no hooks, only the protocols of the URL, no
 * terminal, no helpers of the user's; a secret by a descriptor alone. What it says is turned
 * into one line and a code, with secrets and control characters blotted out. Of the environment
 * only proxies and certificate authorities are handed on. */
#ifndef BOUGH_GITOPS_TRANSPORT_H
#define BOUGH_GITOPS_TRANSPORT_H

#include "fs/base/refused.h"
#include "gitops/child.h"
#include "gitops/mirror.h"
#include "gitops/url.h"

enum { TRANSPORT_DEADLINE_S = 3600, TRANSPORT_STALL_S = 60 };

struct transport {
	char *git;     /* its path; NULL: there is none */
	char *repo;    /* where it runs: GIT_DIR */
	char *helpers; /* a folder of links to this program under its other names */
	const struct mirror_origin *origin; /* NULL: nothing is moved (maintenance) */
	const struct mirror_progress *progress;
	struct git_url url;
	int secret, hosts;     /* descriptors; -1: none */
	char *user, *password; /* of the token */
	/* Where to connect, for origins with a guard: addresses that were judged. None: by a
	 * proxy. */
	struct netaddrs to;
	bool proxied;
	int nice;
};
/* An origin with a guard (netaddr.h) is looked up here, and the child is told to connect to the
 * addresses that were judged, and to follow no redirection. Needs the host's git; git:// is
 * refused. Where a proxy of boughd's environment is used, it judges names that mean nothing here.
 * `repo` is a repository of ours; `scratch` a folder that exists, for links. -EINVAL: the origin's
 * URL, or credentials that don't go with it; -EACCES: its address is refused. The origin and
 * progress are borrowed. */
int transport_open(struct transport *t, const char *repo, const char *scratch,
		   const struct mirror_origin *origin, const struct mirror_progress *progress,
		   struct err *err);
void transport_close(struct transport *t);
#define auto_transport __attribute__((cleanup(transport_close))) struct transport

/* Runs git with these arguments, NULL ends. `out` (NULL: not wanted) is what it said on stdout,
 * which the caller frees. A failure of its own comes as the code for what it said:
 * -EACCES (refused, or an unknown host key), -ENOENT (no such repository), -EHOSTUNREACH,
 * -ETIMEDOUT, -ECONNRESET, -EBADMSG, -ENOTSUP, -ESTALE (push), -EPERM (push), -ENOSPC,
 * -ECANCELED, -EIO. */
int transport_git(struct transport *t, const char *const *args, const void *input, size_t len,
		  struct buf *out, struct err *err);
/* The host's git, which the caller frees; NULL: there is none. 0 or -ENOMEM. */
int transport_find_git(char **out, struct err *err);
/* Only with the host's own git: -EOPNOTSUPP where there is none. */
bool transport_has_git(const struct transport *t);

/* Pure halves, for tests: what git said, as a code and one line; what a line of progress says:
 * false when it is none. */
int transport_explain(char *said, int status, struct err *err);
bool transport_progress(const char *line, uint64_t *done, uint64_t *total, const char **what);

#endif
