/* The HTTP side of boughd, without knowing what it serves: libmicrohttpd on a unix socket, a
 * table of routes, JSON bodies checked against a table of fields, JSON errors, streams, and
 * long jobs with a progress as ndjson.
 *
 * A handler gets a request that was checked (path, query, body) and fills a reply, or
 * fails with -errno and words, which become the JSON error. Handlers run on the
 * connection's own thread and may block.
 *
 * What libmicrohttpd makes hard, and is dealt with here: no status can be queued once a body
 * has begun (what is wrong is told before it or after it, or by hand on the socket); a reader
 * that gives nothing is called again at once (ours wait); it decodes %2F and %00 before
 * anybody can look (paths are taken raw); its connection timeout counts while a handler works
 * (it is lifted from the first call to the end of the reply).
 *
 * Threads: one for each connection (also one that has become a WebSocket; with TLS two), one for
 * each running stream or ndjson job. */
#ifndef BOUGH_SNAPD_WEB_H
#define BOUGH_SNAPD_WEB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "snapd/principal.h"
#include "snapd/stream.h"

enum {
	WEB_BODY_MAX = 1 << 20, /* a JSON body */
	WEB_DISCARD_MAX =
		64 << 20, /* of a refused body that is read on, so that the client hears why */
	WEB_CONNECTIONS = 512,
	WEB_IDLE_S = 60,         /* between the requests of a connection */
	WEB_STALL_S = 60,        /* of a client that takes no byte, or sends none of a body */
	WEB_PARAMS = 2,          /* {…} of a path */
	WEB_IDS = 4,             /* of a path and a query, as admit() found them */
	WEB_QUERY_MAX = 32,      /* parameters of a query */
	WEB_LABELS_MAX = 64,     /* of one workspace or snapshot */
	WEB_TCP_MAX = 8,         /* addresses */
	WEB_MEMORY = 256 * 1024, /* of a connection: bounds its head, half of it a read */
	WEB_HEADERS = 12,        /* of an answer, beside those of HTTP itself */
};

/* ---- a request ---- */

enum field_type {
	FIELD_STRING,
	FIELD_NUMBER,
	FIELD_BOOL,
	FIELD_STRINGS,
	FIELD_LABELS,
	FIELD_OBJECT,  /* the handler checks what is in it: request_object */
	FIELD_OBJECTS, /* likewise */
};
struct field {
	const char *name; /* NULL ends a table */
	enum field_type type;
	bool needed;
	uint32_t max; /* STRING: bytes; STRINGS: how many; 0: no bound but the body's */
};

struct web_query {
	char *key, *value;
};

struct MHD_Connection;
struct web_kept; /* memory that the request's end frees */

/* Who is at the other end of a connection. */
struct web_peer {
	bool local; /* over the unix socket, with the credentials it had when it connected */
	uid_t uid;
	gid_t gid;
	pid_t pid;
	char address[FROM_SIZE]; /* of TCP: "192.0.2.7:4000" */
	bool tls;
	bool too_many; /* its uid has as many connections as one may have */
};

struct request {
	void *ctx;                      /* web_options.ctx */
	const struct principal *caller; /* good until the request ends */
	const char *method;
	const char *params[WEB_PARAMS]; /* decoded */
	const char *tail; /* of a route that ends with {...} (web_target_tail); else NULL */
	json_t *body;     /* an object that fits the route's fields, or NULL: none sent */
	struct web_query *query;
	size_t nquery;
	struct stream *upload; /* upload routes: the body; owned by the reply's task */
	json_t *details;       /* a handler may set it before it fails; taken over */
	struct MHD_Connection *conn;
	int socket; /* of the connection, to look whether the client is there; -1: unknown */
	struct web_kept *kept;
	char ids[WEB_IDS][ID_SIZE]; /* for `admit` to put in place of parameters */
};
/* The value of a query parameter, or NULL. */
const char *request_query(const struct request *rq, const char *key);
bool request_query_true(const struct request *rq, const char *key); /* "1" or "true" */
/* A header's value, with ", " between those of several lines; NULL: it isn't there. Good until the
 * request ends. */
const char *request_header(struct request *rq, const char *name);
/* Of the body that was announced; UINT64_MAX: unknown. */
uint64_t request_length(const struct request *rq);
/* Members of the body, absent ones as NULL, 0 and `otherwise`. */
const char *request_string(const struct request *rq, const char *key);
uint64_t request_number(const struct request *rq, const char *key, uint64_t otherwise);
bool request_bool(const struct request *rq, const char *key, bool otherwise);
/* An object's members, checked against a table of their own; *out is borrowed, NULL: absent. */
int request_object(struct request *rq, const char *key, const struct field *fields, json_t **out,
		   struct err *err);
/* Fails with -EINVAL and remembers which field. */
int request_bad_field(struct request *rq, const char *field, struct err *err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* ---- a reply ---- */

/* How far a job is; NULL where nobody asked. Told at most ten times a second. */
struct progress;
void progress_tell(struct progress *p, uint64_t done, uint64_t total, const char *unit,
		   const char *what);
/* Whether the work is to end, with -ECANCELED. Looked at wherever progress is told. */
bool progress_cancelled(const struct progress *p);

struct web_header {
	const char *name; /* a literal */
	char *value;
};

/* A connection that isn't HTTP's any more. */
struct web_socket {
	int fd;               /* doesn't block; stays web.c's to close */
	const uint8_t *early; /* what came with the request already */
	size_t nearly;
	unsigned stall_s; /* a client that neither takes nor sends anything for so long is cut */
};

struct reply {
	unsigned status;                        /* 200 unless set; a stream's, too */
	json_t *json;                           /* taken over; NULL: an empty body */
	struct web_header headers[WEB_HEADERS]; /* reply_header; of an error's answer, too */
	size_t nheaders;

	/* Instead of `json`, work that takes long. In plain, it runs at once and its result is
	 * the answer; in ndjson it runs in a thread of its own. One that fails may leave an object
	 * in *result: the error's details. */
	int (*job)(void *task, struct progress *p, unsigned *status, json_t **result,
		   struct err *err);
	/* Or a body as a stream, always in a thread of its own. */
	int (*stream)(void *task, struct stream *out, struct err *err);
	const char *type; /* of the stream; "application/x-ndjson": a failure is its last line */
	/* Called behind a stream that went well, on its thread: an object that the client gets in
	 * the trailer; NULL: out of memory. May be NULL: nothing to tell. */
	json_t *(*summary)(void *task);
	/* Called behind a job, however it ended, on its thread: may add headers. May be NULL. */
	void (*tell)(void *task, struct reply *rp);
	/* Or a body that the connection's own thread asks for piece by piece, so that no other is
	 * needed: up to n bytes from `pos` on, at least one; 0 at its end; -errno breaks it off. */
	ssize_t (*read)(void *task, uint64_t pos, void *buf, size_t n, struct err *err);
	uint64_t length; /* of such a body, or WEB_UNKNOWN: then it comes in chunks */
	/* Or a WebSocket that speaks `protocol`, where the client asks for one: all that is said
	 * there, on a thread of its own, until it returns. */
	void (*socket)(void *task, const struct web_socket *s);
	const char *protocol; /* a literal */
	void *task;
	void (*task_free)(void *task); /* called once, in the end, on some thread */
	/* Of a job that a kill of this process need not end: from what it is begun anew (jobs.h).
	 * NULL, or returns NULL: it ends then. */
	json_t *(*again)(void *task);
	/* Called before task_free where that is to go on in the next process: what it needs for
	 * that is to stay. May be NULL. */
	void (*leave)(void *task);
};

#define WEB_UNKNOWN UINT64_MAX
/* A header of the answer. Want of memory is told by the answer, a 13th header left out. */
void reply_header(struct reply *rp, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

typedef int (*web_handler)(struct request *rq, struct reply *reply, struct err *err);
struct route {
	const char *method, *path; /* "/v1/things/{}/parts", "/v1/things/{}/files/{...}" */
	web_handler handle;
	/* Of the body; NULL: no body is looked at. Of an upload they are parameters of the query,
	 * and request.body is made of these. */
	const struct field *fields;
	/* Parameters that are known, NULL ends; NULL: none. "name?" is true or false. */
	const char *const *query;
	bool upload; /* the body is a stream; handle() is called before it comes and gives a job */
};

/* ---- the server ---- */

struct web;
struct web_options {
	const char *socket_path;
	bool socket_open;       /* for every user to connect to; else for boughd's own and root */
	const char *const *tcp; /* "127.0.0.1:8080", "[::]:443": up to WEB_TCP_MAX of them */
	size_t ntcp;
	const char *tls_cert, *tls_key; /* PEM, of all of those; NULL: in the clear */
	bool insecure;                  /* in the clear beyond this machine, too */
	/* Origins whose pages may call ("https://app.example.org"; "*": any): what a browser asks
	 * before it lets them is answered, whoever asks. */
	const char *const *origins;
	size_t norigins;
	const char *open; /* paths that begin so are for who can't be told, too; NULL: none */
	unsigned stall_s; /* 0: WEB_STALL_S */
	const struct route *routes;
	size_t nroutes;
	void *ctx;
	/* Tells who asks, by the connection and the Authorization header (NULL: none). A failure is
	 * the answer; -EKEYREJECTED is 401. NULL: whoever can connect is the service's own. */
	int (*identify)(void *ctx, const struct web_peer *peer, const char *authorization,
			struct principal *out, struct err *err);
	/* Called before a route's handler, with the body parsed but for uploads: may refuse, or
	 * give the answer itself (1; of an upload also by a job that reads it). `data` is the body
	 * as it came. May be NULL. */
	int (*admit)(struct request *rq, const struct route *rt, const void *data, size_t len,
		     struct reply *rp, struct err *err);
	/* Takes over the work of a reply with a job whose caller prefers not to wait; *out is the
	 * answer, with 202. NULL: everybody waits. */
	int (*background)(void *ctx, const struct reply *reply, json_t **out, struct err *err);
	/* How a request ended (principal.h): on the thread that knows. May be NULL. */
	void (*done)(void *ctx, struct doing *d, unsigned status, const json_t *answer);
};
/* Listens and serves; a socket that nobody listens on any more is replaced. -EADDRINUSE. */
int web_start(struct web **out, const struct web_options *opt, struct err *err);
/* Takes no more connections, and waits up to wait_ms for the requests and jobs under way. True
 * when all ended. */
bool web_quiesce(struct web *w, int wait_ms);
void web_free(struct web *w); /* after a true web_quiesce; NULL allowed */

/* The status and code of the API for a failure. Never for 0 or more. */
unsigned web_status(int r, const char **code);

#endif
