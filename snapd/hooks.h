/* Webhooks: events, told to whoever asked for them by a POST to an address of theirs.
 *
 * What is to be told is a row of the catalog (a delivery) from when the event happens; it is tried
 * until the other side answers with 2xx, each time after a longer pause, and given up after
 * HOOK_TRIES. A delivery may come twice (the answer was lost), and those of an event that happened
 * in the moment of a kill never. Deliveries of one hook go out one after the other; one that is
 * tried again comes behind others.
 *
 * The body is the event as /v1/events has it, with its id. It is signed as Standard Webhooks says:
 *   webhook-id, webhook-timestamp (seconds), webhook-signature: "v1," and base64 of
 *   HMAC-SHA256(secret, id "." timestamp "." body)
 * where a secret "whsec_…" stands for the base64 behind it, another for its own bytes.
 *
 * Unless an admin said the URL, connections are made to public addresses only, and those that
 * config.json allows; redirects and proxies aren't followed: what is looked at is the address that
 * is connected to. One owner's hooks keep some of the senders busy at most, however slowly they
 * answer: others' needn't wait. */
#ifndef BOUGH_SNAPD_HOOKS_H
#define BOUGH_SNAPD_HOOKS_H

#include <jansson.h>
#include "fs/base/buf.h"
#include "snapd/catalog.h"
#include "snapd/events.h"

enum {
	HOOKS_OWNER_MAX = 32, /* of one owner */
	HOOK_TYPES_MAX = 128, /* events that one asks for: more than there are */
	HOOK_URL_MAX = 2048,
	HOOK_SECRET_MIN = 16,
	HOOK_SECRET_MAX = 256,
	HOOK_TRIES = 8,
	HOOK_RETRY_S = 5,        /* after the first; then four times as long each time */
	HOOK_PENDING_MAX = 1000, /* of one hook; beyond, new ones are dropped, as failed */
	HOOK_ERROR_SIZE = 160,
};

struct hook_row {
	char id[ID_SIZE]; /* "wh_…" */
	char owner[OWNER_SIZE];
	bool all; /* an admin's: events of everybody */
	bool active;
	bool anywhere; /* an admin said the URL: it may lead to any address */
	char *url;
	char *events;      /* a JSON array of types; NULL: all */
	struct buf secret; /* sealed (seal.h) */
	int64_t created_ns;
};
void hook_row_done(struct hook_row *r);
void hook_rows_free(struct hook_row *rows, size_t n);
#define auto_hook_row __attribute__((cleanup(hook_row_done))) struct hook_row

struct delivery_row {
	int64_t seq;
	char id[ID_SIZE], hook[ID_SIZE]; /* "dl_…" */
	char type[40];
	char *body;
	int64_t created_ns, next_ns; /* next 0: it won't be tried again */
	unsigned tries, status;      /* of the last answer; 0: none came */
	bool delivered;
	char error[HOOK_ERROR_SIZE]; /* why the last try failed */
};
void delivery_row_done(struct delivery_row *r);
void delivery_rows_free(struct delivery_row *rows, size_t n);

/* ---- rows (catalog_hooks.c) ---- */

int catalog_hook_insert(struct catalog *c, const struct hook_row *row, struct err *err);
json_t *api_hook(const struct hook_row *h); /* as the API tells of it (api_hooks.c) */
json_t *api_delivery(const struct delivery_row *d);
int catalog_hook_update(struct catalog *c, const struct hook_row *row, struct err *err);
int catalog_hook_get(struct catalog *c, const char *id, struct hook_row *out, struct err *err);
int catalog_hook_list(struct catalog *c, const char *owner, struct hook_row **rows, size_t *n,
		      struct err *err); /* newest first; `owner` NULL: all */
int catalog_hook_delete(struct catalog *c, const char *id, struct err *err); /* and deliveries */
/* Where the hook has too many already, it is written as dropped. */
int catalog_delivery_add(struct catalog *c, const struct delivery_row *row, struct err *err);
int catalog_delivery_get(struct catalog *c, const char *id, struct delivery_row *out,
			 struct err *err);
/* Hooks that are being told. */
struct hook_busy {
	char hook[ID_SIZE], owner[OWNER_SIZE];
};
enum { HOOKS_BUSY_OF_OWNER = 2 }; /* more of one owner's wait until one is done */
/* The one of those due by `now_ns` that waits longest, of a hook that is active and neither among
 * the `nbusy` ones nor of an owner with enough of them; and its hook's owner. 1 or 0. */
int catalog_delivery_due(struct catalog *c, int64_t now_ns, const struct hook_busy *busy,
			 size_t nbusy, struct delivery_row *out, char owner[OWNER_SIZE],
			 struct err *err);
int catalog_delivery_end(struct catalog *c, const struct delivery_row *row, struct err *err);
/* Newest first, below `before` (0: all). */
int catalog_delivery_list(struct catalog *c, const char *hook, int64_t before, size_t max,
			  struct delivery_row **rows, size_t *n, struct err *err);

/* ---- the work (hooks.c) ---- */

struct snapd;
struct hooks;
int hooks_start(struct hooks **out, struct snapd *sd, struct err *err);
void hooks_stop(struct hooks *h); /* NULL allowed; after events_stop */
/* Rows have changed: what is remembered of them is read again. */
void hooks_changed(struct hooks *h);
/* Tells that one of an event "ping"; *out is the caller's. */
int hooks_ping(struct hooks *h, const struct hook_row *row, struct delivery_row *out,
	       struct err *err);
/* Seals a secret for the row. */
int hooks_seal(struct hooks *h, struct hook_row *row, const char *secret, struct err *err);

/* ---- pure ---- */

/* "v1,…" of that secret. The caller frees; NULL: out of memory. */
char *hook_signature(const char *secret, const char *id, int64_t time_s, const char *body);
/* When to try again after so many tries: 0: never. */
int64_t hook_next_ns(unsigned tries, uint32_t retry_s, int64_t now_ns);
/* http or https, a host, no credentials and no fragment. */
int hook_url_check(const char *url, struct err *err);
/* Whether its host is written as an address, or "localhost", that isn't allowed: -EACCES. What a
 * name means is looked at when it is connected to. */
struct netrules;
int hook_url_allowed(const char *url, const struct netrules *allowed, struct err *err);

#endif
