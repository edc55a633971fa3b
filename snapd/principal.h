/* Who asks: a peer of the unix socket, known by its credentials, or the bearer of a token.
 *
 * Owners. What is made belongs to the caller's `owner`: "uid:N" for a peer with that uid and for
 * a user that was given it; the user's name for a user without a uid. root and the user that boughd
 * runs as are admins, and what they make belongs to the latter.
 *
 * A thread works for a caller while it runs a handler or the job that one left (doing_set);
 * otherwise for the service itself. Rows that it makes then, and the audit log, take the owner from
 * there: a request passes through too many hands for each to carry its caller along. */
#ifndef BOUGH_SNAPD_PRINCIPAL_H
#define BOUGH_SNAPD_PRINCIPAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "fs/base/hash.h"
#include "snapd/catalog.h"

enum { FROM_SIZE = 64, PATH_SCOPE_SIZE = 1024 };

struct principal {
	bool known;     /* false: nobody we know */
	bool admin;     /* may do and see all */
	bool read_only; /* a token's limit, whatever its owner may */
	uid_t uid;      /* of a peer, or of a token's owner that has one; else (uid_t)-1 */
	gid_t gid;      /* of a peer; else (gid_t)-1 */
	char owner[OWNER_SIZE];
	char token[ID_SIZE];        /* "": a peer */
	int64_t expires_ns;         /* of the token, since 1970; 0: never */
	char workspace[ID_SIZE];    /* the only one that its token is good for; "": no such limit */
	char team[ID_SIZE];         /* or the team for what that is shown; "": no such limit */
	char path[PATH_SCOPE_SIZE]; /* and the only one in that; "": all of it */
	char from[FROM_SIZE];       /* "pid 17", "192.0.2.7:4000" */
};

/* "uid:N" */
void owner_of_uid(char out[OWNER_SIZE], uid_t uid);
/* The owner that what nobody else owns belongs to: that of boughd's own uid. */
void owner_self(char out[OWNER_SIZE]);
/* A peer with these credentials. */
void principal_of_peer(struct principal *out, uid_t uid, gid_t gid, pid_t pid);
/* The service itself. */
void principal_of_service(struct principal *out);
/* Whether what that owner has is his to dispose of: his own, or he is an admin. */
bool principal_owns(const struct principal *who, const char *owner);

/* ---- what is being done ---- */

/* One request, from its head to the end of its work: that may outlive its connection. */
struct doing {
	unsigned refs; /* atomic */
	struct principal caller;
	const char *method; /* literals of the route */
	const char *pattern;
	char *path;              /* as it was asked for, without its query; NULL: none yet */
	char object[ID_SIZE];    /* what the path names, once it is known; "": nothing */
	char workspace[ID_SIZE]; /* that it is, or is of */
	struct owned own;        /* whose it is */
	char op[12];             /* what is done to a file ("move"); "": its method says it */
	char *stored;            /* the file that an upload has become; NULL: none */
	char *key;               /* the Idempotency-Key; NULL: none */
	struct digest body;      /* of what came with the key */
	struct doing_sum *sum;   /* of an upload's bytes; NULL: it isn't looked at */
	bool cut;                /* atomic: its body broke off, so nobody hears its answer */
	bool keyed;              /* this one does the work of that key */
	char *was;               /* what one that was killed noted for it (intents.h); NULL: none */
	uint64_t begun_ns;       /* by clock.h */
	/* Called once, when it is decided how it ended: the answer's status and body (NULL: none,
	 * or a stream). */
	void (*done)(void *ctx, struct doing *d, unsigned status, const json_t *answer);
	void *ctx;
	bool told; /* done() was called */
};
struct doing *doing_new(void); /* NULL: out of memory */
/* The same once more, for what goes on when that has ended: it has an end of its own, and no key.
 * NULL: out of memory. */
struct doing *doing_again(const struct doing *d);
/* What came of an upload, which is summed up (DOING_SUM_MAX) so that the key's next one can be
 * compared: by who takes it in, before its reader gets it. doing_sum_begin: -ENOMEM. `without`
 * (NULL: nothing; at most DOING_WITHOUT_MAX bytes) is left out wherever it stands: a form's
 * boundary, which is another one each time. */
enum { DOING_SUM_MAX = 64 << 20, DOING_WITHOUT_MAX = 70 };
int doing_sum_begin(struct doing *d, const char *without);
void doing_sum_add(struct doing *d, const void *data, size_t n);
void doing_sum_end(struct doing *d);
/* NULL: it isn't known, or isn't all there yet. */
const struct digest *doing_summed(const struct doing *d);
/* The work of the Idempotency-Key is the other's from now on. NULL allowed. */
void doing_give_key(struct doing *from, struct doing *to);
struct doing *doing_ref(struct doing *d);
void doing_unref(struct doing *d); /* NULL allowed */
/* This thread works for it from now on (NULL: the service); returns what it worked for. Borrowed:
 * whoever sets it holds a reference until it is set back. */
struct doing *doing_set(struct doing *d);
struct doing *doing_now(void); /* NULL: the service's own */
/* Calls done(), unless it was. */
void doing_tell(struct doing *d, unsigned status, const json_t *answer);
/* Notes what this thread does to a file. */
void doing_op(const char *name);
/* The owner of what this thread makes. */
void doing_owner(char out[OWNER_SIZE]);

#endif
