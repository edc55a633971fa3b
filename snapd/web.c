#include "snapd/web.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "snapd/files_head.h"
#include "snapd/web_cors.h"
#include "snapd/web_framing.h"
#include "snapd/web_listen.h"
#include "snapd/web_parse.h"
#include "snapd/web_socket.h"
#include "snapd/web_task.h"

enum {
	STREAM_BLOCK = 128 * 1024, /* of a streamed answer, a write */
	GONE_MS = 1000,            /* how often a silent stream looks whether its client is there */
	LINGER_MS = 2000,          /* for a client that sends on to read why it was refused */
	REASON_WAIT_MS = 10000,    /* for a slow client to take in why its answer is cut */
};

struct web {
	struct web_options opt;
	struct web_listen *listen;
	struct task_count *count; /* requests and tasks under way */
};

/* One request, from its first line to the end of its answer. */
struct call {
	struct web *web;
	struct MHD_Connection *conn;
	char *raw; /* the target as it came */
	struct web_target target;
	char *tail;                /* of the target */
	const struct route *route; /* NULL until the head was looked at */
	struct request rq;
	struct doing *doing;
	struct buf body;
	size_t discarded;
	bool too_large, refused;
	bool early; /* that is told before the body has come */
	int late; /* below 0: an upload's refusal, told behind its body: why … */
	struct err late_err;
	bool close; /* the connection, behind the answer */
	bool ndjson;
	bool summary;          /* follows the stream */
	const char *type;      /* of the stream that answers an upload; NULL: it has a job */
	struct stream *upload; /* the writer's reference */
	bool whole;            /* all of it has come */
	struct task *task;
	struct stream *output;         /* of an answer: the reader's reference */
	struct reply reading; /* an answer with `read` or `socket`: until the request ends */
	bool upgraded;        /* the connection is a WebSocket's now */
	const char *version;  /* of HTTP */
	struct reply headers;          /* only those, for whatever is answered */
	struct MHD_Response *response; /* of a stream; libmicrohttpd's, for its callback's use */
};

/* ---- whose turn it is ---- */

/* While we work, the client waits as long as that takes. */
static void turn_ours(struct call *c)
{
	web_listen_ours(c->conn);
}

/* When it is the client's to take bytes or to send them, it has a time to do so, which begins
 * now and anew with each byte. Else one that stops would hold for good what the request holds: a
 * workspace's lease. */
static void turn_theirs(struct call *c)
{
	web_listen_theirs(c->conn, c->web->opt.stall_s);
}

/* ---- what handlers ask ---- */

const char *request_query(const struct request *rq, const char *key)
{
	for (size_t i = 0; i < rq->nquery; i++)
		if (strcmp(rq->query[i].key, key) == 0)
			return rq->query[i].value;
	return NULL;
}

bool request_query_true(const struct request *rq, const char *key)
{
	const char *v = request_query(rq, key);
	return v && (strcmp(v, "1") == 0 || strcmp(v, "true") == 0);
}

const char *request_string(const struct request *rq, const char *key)
{
	return json_string_value(json_object_get(rq->body, key));
}

int request_object(struct request *rq, const char *key, const struct field *fields, json_t **out,
		   struct err *err)
{
	json_t *v = json_object_get(rq->body, key);
	*out = json_is_object(v) ? v : NULL;
	return *out ? web_fields_check(v, fields, &rq->details, err) : 0;
}

uint64_t request_number(const struct request *rq, const char *key, uint64_t otherwise)
{
	const json_t *v = json_object_get(rq->body, key);
	return json_is_integer(v) ? (uint64_t)json_integer_value(v) : otherwise;
}

bool request_bool(const struct request *rq, const char *key, bool otherwise)
{
	const json_t *v = json_object_get(rq->body, key);
	return json_is_boolean(v) ? json_is_true(v) : otherwise;
}

int request_bad_field(struct request *rq, const char *field, struct err *err, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!rq->details)
		rq->details = json_pack("{s:s}", "field", field);
	return err_set(err, -EINVAL, "\"%s\": %s", field, text);
}

/* ---- answers ---- */

static enum MHD_Result queue(struct call *c, unsigned status, struct MHD_Response *response)
{
	if (!response)
		return MHD_NO;
	web_cors_add(&c->web->opt, c->conn, response);
	if (c->close)
		(void)MHD_add_response_header(response, "Connection", "close");
	if (!web_headers_put(response, &c->headers)) {
		MHD_destroy_response(response);
		return MHD_NO;
	}
	if (status == MHD_HTTP_UNAUTHORIZED)
		(void)MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
	c->early = c->refused && web_has_body(c->conn);
	enum MHD_Result r = MHD_queue_response(c->conn, status, response);
	MHD_destroy_response(response);
	return r;
}

static enum MHD_Result answer_json(struct call *c, unsigned status, json_t *j)
{
	struct MHD_Response *response;
	if (!j)
		return queue(c, status,
			     MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
	char *text = json_text(j, JSON_COMPACT);
	json_decref(j);
	if (!text)
		return MHD_NO;
	size_t len = strlen(text);
	text[len] = '\n'; /* in place of the NUL */
	response = MHD_create_response_from_buffer(len + 1, text, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(text);
		return MHD_NO;
	}
	(void)MHD_add_response_header(response, "Content-Type", "application/json");
	return queue(c, status, response);
}

static json_t *take_details(struct call *c)
{
	json_t *d = c->rq.details;
	c->rq.details = NULL;
	return d;
}

static enum MHD_Result answer_error(struct call *c, int r, const struct err *err)
{
	const char *code;
	unsigned status = web_status(r, &code);
	if (status == 500)
		log_error("%s: %s", c->raw, err->text);
	json_t *j = web_error_json(r, err, take_details(c));
	if (c->route)
		doing_tell(c->doing, status, j);
	return j ? answer_json(c, status, j) : MHD_NO;
}

/* `details`, taken over, are those that the job left; NULL: the handler's, if any. */
static enum MHD_Result answer_failed_job(struct call *c, int r, const struct err *err,
					 json_t *details)
{
	if (details) {
		json_decref(c->rq.details);
		c->rq.details = details;
	}
	return answer_error(c, r, err);
}

/* Errors that are HTTP's own. */
static enum MHD_Result answer_refusal(struct call *c, unsigned status, const char *code,
				      const char *text)
{
	json_t *j = json_pack("{s:s, s:s, s:{}}", "code", code, "message", text, "details");
	return j ? answer_json(c, status, j) : MHD_NO;
}

/* -1: it has none. What libmicrohttpd 1.0 points to is good until the next question only. */
static int socket_of(struct call *c)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	return info ? info->connect_fd : -1;
}

static bool client_is_there(struct call *c)
{
	struct pollfd p = { .fd = socket_of(c), .events = 0 };
	return poll(&p, 1, 0) == 0 || !(p.revents & (POLLHUP | POLLERR));
}

/* Sends by hand, beside libmicrohttpd, which has nothing to send at that time. */
static void send_by_hand(struct call *c, const struct buf *out, int wait_ms)
{
	int fd = socket_of(c);
	if (fd < 0 || buf_error(out) || web_listen_peer(c->conn)->tls)
		return; /* that the connection closes is what counts */
	for (size_t did = 0; did < out->len;) {
		ssize_t n = send(fd, out->data + did, out->len - did, MSG_NOSIGNAL | MSG_DONTWAIT);
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		if (n > 0)
			did += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR) || poll(&p, 1, wait_ms) == 0)
			return;
	}
}

/* Ends a body in chunks that failed: by one that never comes, whose extension says why. The client
 * sees an answer that is cut, whether it looks at extensions or not. */
static void cut_chunks(struct call *c, int r, const struct err *err)
{
	const char *code;
	(void)web_status(r, &code);
	auto_buf out = { 0 };
	buf_printf(&out, "7fffffff;code=%s;error=", code);
	for (const char *p = err->text; *p; p++) {
		bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
			     (*p >= '0' && *p <= '9') || strchr("-._~", *p);
		buf_printf(&out, plain ? "%c" : "%%%02X", (unsigned char)*p);
	}
	buf_printf(&out, "\r\n");
	send_by_hand(c, &out, REASON_WAIT_MS);
}

static void cut_stream(struct call *c)
{
	struct err err = { 0 };
	struct reply reply = { 0 };
	int r = task_wait(c->task, &reply, &err);
	if (r >= 0 || !err.text[0])
		return;
	log_error("%s: %s", c->raw, err.text);
	cut_chunks(c, r, &err);
}

/* What a stream that is whole leaves to say goes into the trailer. */
static void add_summary(struct call *c)
{
	struct err err = { 0 };
	struct reply reply = { 0 };
	(void)task_wait(c->task, &reply, &err); /* it has ended well: so says its stream */
	auto_free char *text = reply.json ? json_text(reply.json, JSON_COMPACT | JSON_ENSURE_ASCII)
					  : NULL;
	json_decref(reply.json);
	if (text)
		(void)MHD_add_response_footer(c->response, "Bough-Summary", text);
}

/* Gives the client what the task wrote. Waits for it here: an empty answer would have
 * libmicrohttpd ask again at once, and burn a core. */
static ssize_t read_output(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct call *c = arg;
	ssize_t n;
	turn_ours(c);
	do
		n = stream_read(c->output, buf, max, GONE_MS);
	while (n == -EAGAIN && client_is_there(c));
	turn_theirs(c);
	if (n > 0)
		return n;
	if (n == 0 && c->summary)
		add_summary(c);
	if (n == 0)
		return MHD_CONTENT_READER_END_OF_STREAM;
	if (n != -EAGAIN)
		cut_stream(c);
	return MHD_CONTENT_READER_END_WITH_ERROR;
}

static enum MHD_Result answer_stream(struct call *c, const char *type, unsigned status)
{
	struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN,
									  STREAM_BLOCK, read_output,
									  c, NULL);
	if (!response)
		return MHD_NO;
	c->output = task_output(c->task); /* ended by completed() */
	c->response = response;
	if (c->summary)
		(void)MHD_add_response_header(response, "Trailer", "Bough-Summary");
	(void)MHD_add_response_header(response, "Content-Type", type);
	return queue(c, status, response);
}

static ssize_t read_body(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct call *c = arg;
	struct err err = { 0 };
	turn_ours(c);
	ssize_t n = c->reading.read(c->reading.task, pos, buf, max, &err);
	turn_theirs(c);
	if (n > 0)
		return n;
	if (n == 0)
		return MHD_CONTENT_READER_END_OF_STREAM;
	log_error("%s: %s", c->raw, err.text);
	if (c->reading.length == WEB_UNKNOWN)
		cut_chunks(c, (int)n, &err);
	return MHD_CONTENT_READER_END_WITH_ERROR;
}

static enum MHD_Result answer_reading(struct call *c, const struct reply *reply)
{
	uint64_t length = reply->length;
	size_t block = length < STREAM_BLOCK ? (size_t)length + 1 : STREAM_BLOCK;
	struct MHD_Response *response = MHD_create_response_from_callback(
		length == WEB_UNKNOWN ? MHD_SIZE_UNKNOWN : length, block, read_body, c, NULL);
	c->reading = *reply; /* its task is freed by completed() */
	c->reading.nheaders = 0;
	if (response && reply->type)
		(void)MHD_add_response_header(response, "Content-Type", reply->type);
	return queue(c, reply->status, response);
}

/* The answer was sent: from here on it is no request any more. */
static void on_upgrade(void *arg, struct MHD_Connection *conn, void *call, const char *early,
		       size_t nearly, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
	struct call *c = arg;
	struct reply rp = c->reading;
	c->reading = (struct reply){ 0 };
	c->upgraded = true;
	turn_ours(c);
	web_socket_run(&rp, c->doing, c->web->count, c->web->opt.stall_s, fd, early, nearly,
		       handle);
}

static enum MHD_Result answer_socket(struct call *c, struct reply *reply)
{
	char accept[WS_ACCEPT_SIZE];
	struct web_refusal why;
	bool may = web_socket_asked(&c->web->opt, c->conn, c->version, reply->protocol, accept,
				    &why);
	doing_tell(c->doing, may ? 101 : why.status, NULL);
	c->reading = *reply; /* its task is freed by completed(), or taken over */
	c->reading.nheaders = 0;
	if (may)
		return queue(c, 101,
			     web_socket_answer(reply->protocol, accept, on_upgrade, c));
	if (why.status == 426) {
		reply_header(&c->headers, "Upgrade", "websocket");
		reply_header(&c->headers, "Sec-WebSocket-Version", "13");
	}
	return answer_refusal(c, why.status, why.code, why.text);
}

static bool prefers_async(struct call *c)
{
	return c->web->opt.background &&
	       web_prefers(request_header(&c->rq, "Prefer"), "respond-async");
}

/* How the job ends, it tells by itself. */
static enum MHD_Result answer_async(struct call *c, struct reply *reply)
{
	struct err err = { 0 };
	json_t *j = NULL;
	int r = c->web->opt.background(c->web->opt.ctx, reply, &j, &err);
	if (r < 0)
		return answer_error(c, r, &err);
	reply_header(&c->headers, "Location", "/v1/jobs/%s",
		     json_string_value(json_object_get(j, "id")));
	return answer_json(c, 202, j);
}

/* The reply of a handler that went well. The reply's memory is taken over. */
static enum MHD_Result answer_reply(struct call *c, struct reply *reply)
{
	struct err err = { 0 };
	int r = 0;
	web_headers_move(&c->headers, reply);
	if (reply->socket)
		return answer_socket(c, reply);
	if (reply->read) {
		doing_tell(c->doing, reply->status, NULL);
		return answer_reading(c, reply);
	}
	if (reply->job && prefers_async(c))
		return answer_async(c, reply);
	if (reply->stream || (reply->job && c->ndjson)) {
		r = task_start(&c->task, reply, c->ndjson, NULL, c->web->count, &err);
		c->summary = reply->summary;
		if (r >= 0 && reply->stream)
			doing_tell(c->doing, 200, NULL);
		if (r >= 0)
			return answer_stream(c,
					     reply->stream && reply->type ? reply->type
									  : "application/x-ndjson",
					     reply->status);
	} else if (reply->job) {
		r = task_run_here(reply, &err);
		web_headers_move(&c->headers, reply);
	}
	if (r < 0)
		return answer_failed_job(c, r, &err, reply->json);
	doing_tell(c->doing, reply->status, reply->json);
	return answer_json(c, reply->status, reply->json);
}

/* ---- the head ---- */

/* Whose request it is; the thread works for that caller from here on. */
static int identify(struct call *c, struct err *err)
{
	const struct web_options *o = &c->web->opt;
	const struct web_peer *peer = web_listen_peer(c->conn);
	const char *auth = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Authorization");
	c->doing = doing_new();
	if (!c->doing)
		return err_no_memory(err);
	c->doing->done = o->done;
	c->doing->ctx = o->ctx;
	c->rq.caller = &c->doing->caller;
	(void)doing_set(c->doing); /* on_request sets it back */
	if (peer->too_many) {
		c->close = true;
		return err_set(err, -EUSERS, "too many connections of uid %u", (unsigned)peer->uid);
	}
	if (o->identify) {
		char bearer[WEB_BEARER_SIZE];
		if (!auth)
			auth = web_socket_bearer(c->conn, bearer);
		int r = o->identify(o->ctx, peer, auth, &c->doing->caller, err);
		explicit_bzero(bearer, sizeof(bearer));
		bool open = o->open && strncmp(c->raw, o->open, strlen(o->open)) == 0;
		if (r != -EKEYREJECTED || !open)
			return r;
		c->doing->caller = (struct principal){ .uid = (uid_t)-1, .gid = (gid_t)-1 };
		(void)snprintf(c->doing->caller.from, FROM_SIZE, "%s", peer->address);
		return 0;
	}
	principal_of_service(&c->doing->caller);
	return 0;
}

/* What is being done is known: what `done` will hear of. */
static int name_work(struct call *c, struct err *err)
{
	const char *key = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Idempotency-Key");
	c->doing->method = c->route->method;
	c->doing->pattern = c->route->path;
	c->doing->path = strndup(c->raw, strcspn(c->raw, "?"));
	if (key && strcmp(c->route->method, "POST") == 0)
		c->doing->key = strdup(key);
	if (!c->doing->path || (key && strcmp(c->route->method, "POST") == 0 && !c->doing->key))
		return err_no_memory(err);
	return 0;
}

static int admit(struct call *c, struct reply *reply, struct err *err)
{
	const struct web_options *o = &c->web->opt;
	if (!o->admit)
		return 0;
	int r = o->admit(&c->rq, c->route, c->body.data, c->body.len, reply, err);
	if (r > 0)
		c->doing->told = true; /* nothing is done */
	return r;
}

static const struct route *find_route(struct call *c, const char *method, char *allow, size_t size)
{
	size_t len = 0;
	for (size_t i = 0; i < c->web->opt.nroutes; i++) {
		const struct route *rt = &c->web->opt.routes[i];
		const char *params[WEB_PARAMS] = { 0 };
		if (!web_target_matches(&c->target, rt->path, params))
			continue;
		if (strcmp(rt->method, method) == 0) {
			memcpy(c->rq.params, params, sizeof(params));
			return rt;
		}
		int n = snprintf(allow + len, size - len, "%s%s", len ? ", " : "", rt->method);
		if (n > 0 && (size_t)n < size - len)
			len += (size_t)n;
	}
	return NULL;
}

static enum MHD_Result refuse_framing(struct call *c)
{
	c->close = true; /* what follows may be that other request */
	return answer_refusal(c, 400, "invalid",
			      "it takes one Content-Length, or Transfer-Encoding: chunked, and no"
			      " blanks in the names of headers");
}

static bool accepts_ndjson(struct call *c)
{
	const char *s = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Accept");
	return s && strstr(s, "application/x-ndjson");
}

/* A client that sends its body without asking first may fail at sending before it reads an answer
 * that came at once, since the connection ends behind that. A bounded body is taken in, then. */
static bool waits_for_answer(struct call *c)
{
	const char *s = MHD_lookup_connection_value(c->conn, MHD_HEADER_KIND, "Expect");
	return s || web_announced(c->conn) > WEB_DISCARD_MAX;
}

static enum MHD_Result refuse_upload(struct call *c, int r, const struct err *err)
{
	if (waits_for_answer(c)) {
		c->refused = true;
		return answer_error(c, r, err);
	}
	c->late = r;
	c->late_err = *err;
	return MHD_YES;
}

/* What comes with a key is to be the same when it comes again. A form's boundary may be another. */
static int sum_upload(struct call *c, struct err *err)
{
	char boundary[HEAD_BOUNDARY];
	int form = head_boundary(request_header(&c->rq, "Content-Type"), boundary);
	if (!c->doing->key || form < 0) /* which is refused */
		return 0;
	int r = doing_sum_begin(c->doing, form > 0 ? boundary : NULL);
	return r < 0 ? err_set(err, r, "out of memory") : 0;
}

/* An upload's work begins before its body comes, and reads it from a stream. */
static enum MHD_Result begin_upload(struct call *c)
{
	struct reply reply = { .status = 200 };
	struct err err = { 0 };
	c->upload = stream_new();
	if (!c->upload)
		return answer_error(c, -ENOMEM, &err);
	c->rq.upload = c->upload;
	int r = sum_upload(c, &err);
	if (r >= 0 && c->route->fields)
		r = web_query_parse(&c->rq.body, &c->target, c->route->fields, &c->rq.details,
				    &err);
	if (r >= 0)
		r = admit(c, &reply, &err);
	if (r > 0 && !reply.job) {
		stream_unref(c->upload);
		c->refused = true;
		return answer_reply(c, &reply);
	}
	if (r == 0)
		r = c->route->handle(&c->rq, &reply, &err);
	web_headers_move(&c->headers, &reply);
	if (r >= 0) {
		r = task_start(&c->task, &reply, c->ndjson, c->upload, c->web->count, &err);
		c->type = reply.stream ? reply.type : NULL;
		c->summary = reply.stream && reply.summary;
	} else { /* the reader's side, which the task would have had */
		stream_leave(c->upload);
		stream_unref(c->upload);
	}
	return r < 0 ? refuse_upload(c, r, &err) : MHD_YES;
}

static enum MHD_Result begin(struct call *c, const char *method)
{
	char allow[128] = "";
	struct err err = { 0 };
	c->refused = true;
	if (!web_framing_is_clear(c->conn))
		return refuse_framing(c);
	int r = web_target_parse(&c->target, c->raw, &err);
	if (r >= 0 && web_cors_asks(&c->web->opt, c->conn, method))
		return queue(c, 204, web_cors_answer());
	if (r >= 0)
		r = identify(c, &err);
	if (r < 0)
		return answer_error(c, r, &err);
	c->route = find_route(c, method, allow, sizeof(allow));
	c->rq.method = method;
	c->rq.conn = c->conn;
	c->rq.socket = socket_of(c);
	if (!c->route && allow[0]) {
		reply_header(&c->headers, "Allow", "%s", allow);
		return answer_refusal(c, 405, "invalid", "that path has other methods");
	}
	if (!c->route && c->target.more)
		return answer_refusal(c, 400, "invalid", "the path has too many parts");
	if (!c->route)
		return answer_refusal(c, 404, "not_found", "no such path");
	r = name_work(c, &err);
	if (r >= 0)
		r = web_target_tail(&c->target, c->route->path, &c->tail, &err);
	c->rq.tail = c->tail;
	if (r >= 0)
		r = web_query_check(&c->target, c->route, &c->rq.details, &err);
	if (r < 0)
		return answer_error(c, r, &err);
	if (!c->route->upload && web_has_form(c->conn))
		return answer_refusal(c, 415, "unsupported",
				      "a form isn't taken here: files are sent with PUT, as "
				      "by curl -T");
	if (!c->route->upload && web_announced(c->conn) > WEB_BODY_MAX)
		return answer_refusal(c, 413, "too_large", "the body is larger than 1 MiB");
	c->refused = false;
	c->rq.ctx = c->web->opt.ctx;
	c->rq.query = c->target.query;
	c->rq.nquery = c->target.nquery;
	c->ndjson = accepts_ndjson(c);
	return c->route->upload ? begin_upload(c) : MHD_YES;
}

/* ---- the body ---- */

/* The answer for who won't stop sending: by hand, since libmicrohttpd takes none while a
 * body comes in. The connection is closed right after. */
static enum MHD_Result answer_by_hand(struct call *c)
{
	struct err err = { 0 };
	struct reply reply = { 0 };
	const char *code = "too_large";
	int r = c->late ? c->late
		: c->task ? task_wait(c->task, &reply, &err)
			  : err_set(&err, -E2BIG, "the body is larger than 1 MiB");
	if (c->late)
		err = c->late_err;
	json_decref(reply.json);
	web_headers_free(&reply);
	if (r >= 0)
		r = err_set(&err, -EINVAL, "the body goes on behind its end");
	unsigned status = web_status(r, &code);
	json_t *j = web_error_json(r, &err, NULL);
	auto_free char *text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	auto_buf out = { 0 };
	buf_printf(&out,
		   "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
		   "Content-Length: %zu\r\n\r\n%s\n",
		   status, code, text ? strlen(text) + 1 : 1, text ? text : "");
	send_by_hand(c, &out, 0);
	return MHD_NO;
}

static enum MHD_Result take_body(struct call *c, const char *data, size_t n)
{
	bool wanted = !c->too_large;
	if (c->route->upload) {
		doing_sum_add(c->doing, data, n);
		wanted = wanted && stream_write(c->upload, data, n) == 0;
	} else {
		wanted = wanted && c->body.len + n <= WEB_BODY_MAX;
		if (wanted)
			buf_add(&c->body, data, n);
	}
	if (wanted)
		return MHD_YES;
	c->too_large = true; /* or refused by who reads it: discarded, as far as that is sensible */
	c->discarded += n;
	return c->discarded > WEB_DISCARD_MAX ? answer_by_hand(c) : MHD_YES;
}

static enum MHD_Result finish_upload(struct call *c)
{
	struct reply reply = { 0 };
	struct err err = { 0 };
	doing_sum_end(c->doing);
	stream_end(c->upload, 0);
	c->whole = true;
	if (c->late)
		return answer_error(c, c->late, &c->late_err);
	if (c->type) {
		doing_tell(c->doing, 200, NULL);
		return answer_stream(c, c->type, 200);
	}
	if (c->ndjson)
		return answer_stream(c, "application/x-ndjson", 200);
	int r = task_wait(c->task, &reply, &err);
	web_headers_move(&c->headers, &reply);
	return r < 0 ? answer_failed_job(c, r, &err, reply.json)
		     : answer_json(c, reply.status, reply.json);
}

static enum MHD_Result finish(struct call *c)
{
	struct reply reply = { .status = 200 };
	struct err err = { 0 };
	int r = 0;
	if (c->route->upload)
		return finish_upload(c);
	if (c->too_large)
		return answer_refusal(c, 413, "too_large", "the body is larger than 1 MiB");
	if (buf_error(&c->body))
		return answer_error(c, -ENOMEM, &err);
	if (c->route->fields)
		r = web_body_parse(&c->rq.body, c->body.data, c->body.len, c->route->fields,
				   &c->rq.details, &err);
	if (r >= 0)
		r = admit(c, &reply, &err);
	if (r == 0)
		r = c->route->handle(&c->rq, &reply, &err);
	if (r < 0) {
		json_decref(reply.json);
		web_headers_move(&c->headers, &reply);
		return answer_error(c, r, &err);
	}
	return answer_reply(c, &reply);
}

/* ---- libmicrohttpd's callbacks ---- */

static void *on_target(void *arg, const char *uri, struct MHD_Connection *conn)
{
	struct call *c = calloc(1, sizeof(*c));
	if (!c || !(c->raw = strdup(uri))) {
		free(c);
		return NULL;
	}
	c->web = arg;
	c->conn = conn;
	web_errors_of(conn);
	web_listen_call(conn, c);
	task_count_add(c->web->count, 1);
	return c;
}

static enum MHD_Result step(struct call *c, const char *method, const char *data, size_t n)
{
	if (!c->route && !c->refused)
		return begin(c, method);
	if (c->refused)
		return MHD_NO; /* the answer is queued; libmicrohttpd asks no more */
	return n == 0 ? finish(c) : take_body(c, data, n);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *n, void **call)
{
	struct call *c = *call;
	if (!c)
		return MHD_NO; /* out of memory */
	bool body = c->route && !c->refused;
	c->version = version;
	struct doing *was = doing_set(c->doing);
	turn_ours(c);
	enum MHD_Result r = step(c, method, data, *n);
	turn_theirs(c);
	(void)doing_set(was);
	if (body)
		*n = 0;
	return r;
}

static void on_completed(void *arg, struct MHD_Connection *conn, void **call,
			 enum MHD_RequestTerminationCode why)
{
	struct call *c = *call;
	struct web *w = arg;
	if (!c)
		return;
	bool upgraded = c->upgraded;
	*call = NULL;
	web_listen_call(conn, NULL);
	if (web_listen_gave_up(conn))
		log_info("%s: the client neither takes bytes nor sends any: given up", c->raw);
	if (c->upload) {
		if (!c->whole && c->doing) /* before who reads it finds that out */
			__atomic_store_n(&c->doing->cut, true, __ATOMIC_RELEASE);
		stream_end(c->upload, -ECONNRESET); /* means nothing when it had ended */
		stream_unref(c->upload);
	}
	struct stream *out = c->task ? task_output(c->task) : NULL;
	if (out) {
		stream_leave(out);
		stream_unref(out);
	}
	task_unref(c->task);
	if (c->reading.task_free)
		c->reading.task_free(c->reading.task);
	if (c->early && !web_listen_gave_up(conn))
		web_linger(socket_of(c), WEB_DISCARD_MAX, LINGER_MS);
	web_headers_free(&c->headers);
	web_kept_free(c->rq.kept);
	free(c->tail);
	json_decref(c->rq.body);
	json_decref(c->rq.details);
	doing_unref(c->doing);
	buf_done(&c->body);
	web_target_done(&c->target);
	free(c->raw);
	free(c);
	if (!upgraded)
		web_listen_next(conn);
	task_count_add(w->count, -1);
}

/* Paths and queries are decoded by web_parse.c, from the raw target. */
static size_t on_unescape(void *arg, struct MHD_Connection *conn, char *s)
{
	return strlen(s);
}

static void on_log(void *arg, const char *fmt, va_list ap)
{
	char text[512];
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http: %s", text);
}

/* ---- the server ---- */

int web_start(struct web **out, const struct web_options *opt, struct err *err)
{
	struct web *w = calloc(1, sizeof(*w));
	const struct web_callbacks cb = { on_request,  on_target, on_completed,
					  on_unescape, on_log,    w };
	if (!w || !(w->count = task_count_new())) {
		free(w);
		return err_no_memory(err);
	}
	w->opt = *opt;
	if (!w->opt.stall_s)
		w->opt.stall_s = WEB_STALL_S;
	int r = web_listen_start(&w->listen, opt, &cb, err);
	if (r < 0) {
		task_count_free(w->count);
		free(w);
		return r;
	}
	*out = w;
	return 0;
}

bool web_quiesce(struct web *w, int wait_ms)
{
	web_listen_quiesce(w->listen);
	return task_count_wait(w->count, wait_ms);
}

void web_free(struct web *w)
{
	if (!w)
		return;
	web_listen_stop(w->listen);
	task_count_free(w->count);
	free(w);
}
