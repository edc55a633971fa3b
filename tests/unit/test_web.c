/* The HTTP side: routing, bodies, errors, streams, jobs, uploads, and hostile clients. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "snapd/web.h"
#include "snapd/web_parse.h"

/* ---- what is served ---- */

static atomic_int freed, streamed;
static atomic_long uploaded;
static atomic_int upload_end, upload_begun;

static int get_thing(struct request *rq, struct reply *rp, struct err *err)
{
	if (strcmp(rq->params[0], "missing") == 0)
		return err_set(err, -ENOENT, "no thing \"%s\"", rq->params[0]);
	if (strcmp(rq->params[0], "full") == 0)
		return err_set(err, -ENOSPC, "no room");
	rp->json = json_pack("{s:s, s:s*}", "thing", rq->params[0], "q", request_query(rq, "q"));
	return 0;
}

static int put_thing(struct request *rq, struct reply *rp, struct err *err)
{
	if (request_number(rq, "size", 0) == 13)
		return request_bad_field(rq, "size", err, "%d is bad luck", 13);
	rp->status = 201;
	rp->json = json_incref(rq->body);
	return 0;
}

static int no_content(struct request *rq, struct reply *rp, struct err *err)
{
	rp->status = 204;
	return 0;
}

static void task_gone(void *task)
{
	atomic_fetch_add(&freed, 1);
}

static int job_run(void *task, struct progress *p, unsigned *status, json_t **result,
		   struct err *err)
{
	progress_tell(p, 1, 2, "files", "work");
	if (task)
		return err_set(err, -EDQUOT, "over the quota");
	*status = 201;
	*result = json_pack("{s:i}", "answer", 42);
	return 0;
}

static int job(struct request *rq, struct reply *rp, struct err *err)
{
	rp->job = job_run;
	rp->task = request_query(rq, "fail") ? (void *)"x" : NULL;
	rp->task_free = task_gone;
	return 0;
}

/* Bytes without end, until the client leaves; or a failure in the middle. */
static int stream_run(void *task, struct stream *out, struct err *err)
{
	static const char block[65536];
	int r = 0;
	for (int i = 0; r == 0 && !(task && i == 20); i++) {
		r = stream_write(out, block, sizeof(block));
		atomic_store(&streamed, i);
	}
	return r < 0 ? r : err_set(err, -EIO, "bad bytes");
}

/* A short one, with something to say behind it. */
static int short_run(void *task, struct stream *out, struct err *err)
{
	return stream_write(out, "short", 5);
}

static json_t *short_summary(void *task)
{
	return json_pack("{s:i, s:s}", "lost", 3, "what", "a\nb");
}

static int short_stream(struct request *rq, struct reply *rp, struct err *err)
{
	rp->stream = short_run;
	rp->summary = short_summary;
	rp->type = "application/octet-stream";
	return 0;
}

/* Work that takes longer than a client may take (limits_of_waiting). */
static int slow_run(void *task, struct stream *out, struct err *err)
{
	int r = 0;
	for (int i = 0; r == 0 && i < 2; i++) {
		usleep(1200000);
		r = stream_write(out, "slow", 4);
	}
	return r;
}

static int slow_stream(struct request *rq, struct reply *rp, struct err *err)
{
	rp->stream = slow_run;
	rp->type = "application/octet-stream";
	return 0;
}

static int stream(struct request *rq, struct reply *rp, struct err *err)
{
	rp->stream = stream_run;
	rp->type = "application/octet-stream";
	rp->task = request_query(rq, "fail") ? (void *)"x" : NULL;
	rp->task_free = task_gone;
	return 0;
}

static int upload_run(void *task, struct progress *p, unsigned *status, json_t **result,
		      struct err *err)
{
	struct stream *in = task;
	char buf[10000];
	long n = 0;
	ssize_t r;
	while ((r = stream_read(in, buf, sizeof(buf), -1)) > 0) {
		atomic_store(&upload_begun, 1);
		n += r;
		if (memmem(buf, (size_t)r, "REFUSE", 6))
			return err_set(err, -EBADMSG, "a hostile body");
	}
	atomic_store(&uploaded, n);
	atomic_store(&upload_end, (int)r);
	if (r < 0)
		return err_set(err, (int)r, "broken off");
	*status = 201;
	*result = json_pack("{s:I}", "bytes", (json_int_t)n);
	return 0;
}

static int upload(struct request *rq, struct reply *rp, struct err *err)
{
	if (request_query(rq, "taken"))
		return err_set(err, -EEXIST, "the name is taken");
	rp->job = upload_run;
	rp->task = rq->upload;
	rp->task_free = task_gone;
	return 0;
}

/* The tail of the path, as a body that is asked for; "cut" breaks off behind a byte. */
static ssize_t tail_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	const char *text = task;
	size_t left = strlen(text) - pos;
	if (strcmp(text, "cut") == 0 && pos == 1)
		return err_set(err, -EIO, "bad bytes");
	n = n < left ? n : left;
	n = n > 1 && strcmp(text, "cut") == 0 ? 1 : n;
	memcpy(buf, text + pos, n);
	return (ssize_t)n;
}

static void tail_free(void *task)
{
	atomic_fetch_add(&freed, 1);
	free(task);
}

static int tail(struct request *rq, struct reply *rp, struct err *err)
{
	const char *echo = request_header(rq, "X-Echo");
	reply_header(rp, "X-Method", "%s", rq->method);
	reply_header(rp, "X-Echo", "%s", echo ? echo : "none");
	if (strcmp(rq->tail, "gone") == 0)
		return err_set(err, -EREMCHG, "changed");
	if (strcmp(rq->tail, "304") == 0) {
		rp->status = 304;
		return 0;
	}
	rp->task = strdup(rq->tail);
	rp->task_free = tail_free;
	rp->read = tail_read;
	rp->length = request_query(rq, "q") ? WEB_UNKNOWN : strlen(rq->tail);
	rp->type = "text/plain";
	rp->status = 206;
	return 0;
}

static void tail_tell(void *task, struct reply *rp)
{
	reply_header(rp, "X-Told", "behind");
}

static int tail_put(struct request *rq, struct reply *rp, struct err *err)
{
	int r = upload(rq, rp, err);
	rp->tell = tail_tell;
	return r;
}

static const struct field thing_fields[] = {
	{ "name", FIELD_STRING, true, 10 },   { "size", FIELD_NUMBER, false, 0 },
	{ "on", FIELD_BOOL, false, 0 },       { "list", FIELD_STRINGS, false, 3 },
	{ "labels", FIELD_LABELS, false, 0 }, { 0 },
};
static const char *const thing_query[] = { "q", "label", NULL };
static const char *const fail_query[] = { "fail", NULL };
static const char *const upload_query[] = { "taken", NULL };
static const struct route routes[] = {
	{ "GET", "/v1/things/{}", get_thing, NULL, thing_query, false },
	{ "POST", "/v1/things", put_thing, thing_fields, NULL, false },
	{ "DELETE", "/v1/things/{}", no_content, NULL, NULL, false },
	{ "POST", "/v1/job", job, NULL, fail_query, false },
	{ "GET", "/v1/stream", stream, NULL, fail_query, false },
	{ "GET", "/v1/slow", slow_stream, NULL, NULL, false },
	{ "GET", "/v1/short", short_stream, NULL, NULL, false },
	{ "POST", "/v1/upload", upload, NULL, upload_query, true },
	{ "GET", "/v1/tree/{}/files/{...}", tail, NULL, thing_query, false },
	{ "HEAD", "/v1/tree/{}/files/{...}", tail, NULL, thing_query, false },
	{ "PUT", "/v1/tree/{}/files/{...}", tail_put, NULL, NULL, true },
};

/* ---- a server and a raw client ---- */

static char dir[64], sock[96];
static struct web *web;

static int start_with(unsigned stall_s)
{
	struct err err = { 0 };
	(void)snprintf(dir, sizeof(dir), "/tmp/bough-web.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(sock, sizeof(sock), "%s/sock", dir);
	struct web_options opt = { .socket_path = sock,
				   .stall_s = stall_s,
				   .routes = routes,
				   .nroutes = sizeof(routes) / sizeof(routes[0]) };
	return web_start(&web, &opt, &err);
}

static int start(void **state)
{
	return start_with(0);
}

static int start_strict(void **state)
{
	return start_with(1);
}

static int stop(void **state)
{
	bool ended = web_quiesce(web, 5000);
	if (ended)
		web_free(web);
	(void)io_remove_tree(AT_FDCWD, dir, NULL);
	return ended ? 0 : -1;
}

static int dial(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", sock);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&un, sizeof(un)), 0);
	struct timeval tv = { .tv_sec = 10 };
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return fd;
}

static void say(int fd, const char *text, size_t n)
{
	while (n > 0) {
		ssize_t did = send(fd, text, n, MSG_NOSIGNAL);
		if (did <= 0)
			return; /* the server has closed: its answer is what counts */
		text += did;
		n -= (size_t)did;
	}
}

/* Everything until the server closes, as a string. */
static char *hear(int fd)
{
	struct buf b = { 0 };
	char part[4096];
	ssize_t n;
	while ((n = recv(fd, part, sizeof(part), 0)) > 0)
		buf_add(&b, part, (size_t)n);
	buf_u8(&b, 0);
	close(fd);
	return (char *)b.data;
}

static char *exchange(const char *request, size_t len)
{
	int fd = dial();
	say(fd, request, len);
	return hear(fd);
}

/* A request that closes the connection; checks the status, and that the answer has a text. */
static void expect(const char *method, const char *target, const char *body, int status,
		   const char *text)
{
	char request[4096], line[32];
	int n = snprintf(
		request, sizeof(request),
		"%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
		method, target, strlen(body), body);
	assert_in_range(n, 1, sizeof(request) - 1);
	auto_free char *answer = exchange(request, (size_t)n);
	(void)snprintf(line, sizeof(line), "HTTP/1.1 %d", status);
	if (strncmp(answer, line, strlen(line)) != 0 || !strstr(answer, text))
		fail_msg("%s %s %s: expected %d %s, got\n%s", method, target, body, status, text,
			 answer);
}

#define DEEP "{\"name\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1"

static void routing(void **state)
{
	static const struct {
		const char *method, *target, *body;
		int status;
		const char *text;
	} table[] = {
		{ "GET", "/v1/things/a", "", 200, "{\"thing\":\"a\"}" },
		{ "GET", "/v1/things/a%20b?q=c+d%2B", "", 200,
		  "{\"thing\":\"a b\",\"q\":\"c d+\"}" },
		{ "GET", "/v1/things/a%2Fb", "", 200, "{\"thing\":\"a/b\"}" },
		{ "GET", "/v1/things/a%00b", "", 400, "escape" },
		{ "GET", "/v1/things/a%zz", "", 400, "escape" },
		{ "GET", "/v1/things/a%", "", 400, "escape" },
		{ "GET", "/v1/things/a?q=%0", "", 400, "escape" },
		{ "GET", "/v1/things/a?r=1", "", 400, "\"field\":\"query\"" },
		{ "GET", "/v1/things/a?q=1&q=2", "", 400, "twice" },
		{ "GET", "/v1/things/a?label=1&label=2", "", 200, "thing" },
		{ "GET", "/v1/things/", "", 404, "no such path" },
		{ "GET", "/v1/things/a/", "", 404, "no such path" },
		{ "GET", "/v1//things/a", "", 404, "no such path" },
		{ "GET", "/v1/../v1/things/a", "", 404, "no such path" },
		{ "GET", "/a/b/c/d/e/f/g/h/i/j", "", 400, "too many parts" },
		{ "GET", "/", "", 404, "not_found" },
		{ "GET", "/v1/things/missing", "", 404, "\"code\":\"not_found\"" },
		{ "GET", "/v1/things/full", "", 507, "\"code\":\"no_space\"" },
		{ "PUT", "/v1/things/a", "", 405, "other methods" },
		{ "GET", "/v1/things", "", 405, "other methods" },
		{ "DELETE", "/v1/things/a", "", 204, "" },
		{ "POST", "/v1/things", "{\"name\":\"n\"}", 201, "{\"name\":\"n\"}" },
		{ "POST", "/v1/things", "", 400, "\"field\":\"name\"" },
		{ "POST", "/v1/things", "[]", 400, "object" },
		{ "POST", "/v1/things", "{", 400, "no JSON" },
		{ "POST", "/v1/things", "{\"name\":\"n\"} x", 400, "no JSON" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"name\":\"m\"}", 400, "no JSON" },
		{ "POST", "/v1/things", "{\"name\":\"\xff\"}", 400, "no JSON" },
		{ "POST", "/v1/things", "{\"name\":\"a\\u0000b\"}", 400, "no JSON" },
		{ "POST", "/v1/things", "{\"name\":1}", 400, "\"field\":\"name\"" },
		{ "POST", "/v1/things", "{\"name\":null}", 400, "\"field\":\"name\"" },
		{ "POST", "/v1/things", "{\"name\":\"01234567890\"}", 400, "too long" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"nmae\":1}", 400, "\"field\":\"nmae\"" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"size\":-1}", 400, "\"field\":\"size\"" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"size\":1.5}", 400,
		  "\"field\":\"size\"" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"size\":13}", 400, "13 is bad luck" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"size\":null}", 201, "name" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"size\":99999999999999999999}", 400,
		  "JSON" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"on\":1}", 400, "\"field\":\"on\"" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"list\":[\"a\",2]}", 400,
		  "\"field\":\"list\"" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"list\":[\"\",\"\",\"\",\"\"]}", 400,
		  "too many" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"labels\":{\"a\":\"b\"}}", 201,
		  "labels" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"labels\":{\"a=\":\"b\"}}", 400, "key" },
		{ "POST", "/v1/things", "{\"name\":\"n\",\"labels\":{\"a\":1}}", 400, "value" },
		{ "POST", "/v1/things", DEEP, 400, "nested" },
		{ "POST", "/v1/job", "", 201, "{\"answer\":42}" },
		{ "POST", "/v1/job?fail=1", "", 507, "\"code\":\"quota\"" },
		{ "POST", "/v1/upload?taken=1", "", 409, "\"code\":\"exists\"" },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		expect(table[i].method, table[i].target, table[i].body, table[i].status,
		       table[i].text);
}

#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void tails(void **state)
{
	static const struct {
		const char *method, *target;
		int status;
		const char *text;
	} table[] = {
		{ "GET", "/v1/tree/x/files/a", 206, "\r\n\r\na" },
		{ "GET", "/v1/tree/x/files/a/b/c/d/e/f/g/h/i", 206, "\r\n\r\na/b/c/d/e/f/g/h/i" },
		{ "GET", "/v1/tree/x/files/a%20b/%c3%a9%ff", 206, "\r\n\r\na b/\xc3\xa9\xff" },
		{ "GET", "/v1/tree/x/files/a/b/", 206, "\r\n\r\na/b" },
		{ "GET", "/v1/tree/x/files/a/b/?q=1", 206, "\r\n3\r\na/b\r\n0\r\n" },
		{ "GET", "/v1/tree/x/files/...", 206, "\r\n\r\n..." },
		{ "GET", "/v1/tree/x/files/", 206, "Content-Length: 0" },
		{ "GET", "/v1/tree/x/files", 206, "Content-Length: 0" },
		{ "HEAD", "/v1/tree/x/files/abc", 206, "X-Method: HEAD" },
		{ "HEAD", "/v1/tree/x/files/abc", 206, "Content-Length: 3" },
		{ "GET", "/v1/tree/x/files/gone", 412, "X-Echo: none" },
		{ "GET", "/v1/tree/x/files/304", 304, "X-Echo: none" },
		{ "PUT", "/v1/tree/x/files/a", 201, "X-Told: behind" },
		{ "DELETE", "/v1/tree/x/files/a", 405, "Allow: GET, HEAD, PUT" },
		{ "GET", "/v1/tree/x/filesx", 404, "no such path" },
		{ "GET", "/v1/tree//files/a", 404, "no such path" },
		{ "GET", "/v1/tree/x/files//", 400, "begins with '/'" },
		{ "GET", "/v1/tree/x/files//a", 400, "begins with '/'" },
		{ "GET", "/v1/tree/x/files/a//", 400, "empty part" },
		{ "GET", "/v1/tree/x/files/a//b", 400, "empty part" },
		{ "GET", "/v1/tree/x/files/a/../b", 400, "\\\"..\\\" in" },
		{ "GET", "/v1/tree/x/files/..", 400, "\\\"..\\\" in" },
		{ "GET", "/v1/tree/x/files/%2e%2e", 400, "\\\"..\\\" in" },
		{ "GET", "/v1/tree/x/files/.", 400, "\\\".\\\" in" },
		{ "GET", "/v1/tree/x/files/a%2fb%2F", 206, "\r\n\r\na/b" },
		{ "GET", "/v1/tree/x/files/%2f", 400, "begins with '/'" },
		{ "GET", "/v1/tree/x/files/%2fa", 400, "begins with '/'" },
		{ "GET", "/v1/tree/x/files/a%2f/b", 400, "empty part" },
		{ "GET", "/v1/tree/x/files/a%2f..%2fb", 400, "\\\"..\\\" in" },
		{ "GET", "/v1/tree/x/files/a%00b", 400, "escape" },
		{ "GET", "/v1/tree/x/files/1/2/3/4/5/6/7/8/%zz", 400, "escape" },
		{ "GET", "/v1/tree/x/files/" LONG LONG LONG LONG, 400, "above 255 bytes" },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		expect(table[i].method, table[i].target, "", table[i].status, table[i].text);
	static const char two[] = "GET /v1/tree/x/files/a HTTP/1.1\r\nHost: x\r\nx-echo: 1\r\n"
				  "X-ECHO: 2\r\nConnection: close\r\n\r\n";
	auto_free char *answer = exchange(two, sizeof(two) - 1);
	assert_non_null(strstr(answer, "X-Echo: 1, 2\r\n"));
}

/* A body of a promised length that can't be kept: the connection ends. */
static void cut_reading(void **state)
{
	static const char rq[] = "GET /v1/tree/x/files/cut HTTP/1.1\r\nHost: x\r\n\r\n";
	static const char chunked[] = "GET /v1/tree/x/files/cut?q=1 HTTP/1.1\r\nHost: x\r\n\r\n";
	int before = atomic_load(&freed);
	auto_free char *answer = exchange(rq, sizeof(rq) - 1);
	assert_non_null(strstr(answer, "Content-Length: 3"));
	assert_string_equal(answer + strlen(answer) - 5, "\r\n\r\nc");
	auto_free char *other = exchange(chunked, sizeof(chunked) - 1);
	assert_non_null(strstr(other, "code=internal;error=bad%20bytes"));
	for (int i = 0; i < 6000 && atomic_load(&freed) < before + 2; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	assert_int_equal(atomic_load(&freed), before + 2);
}

/* One connection, many requests. */
static void keep_alive(void **state)
{
	static const char two[] =
		"GET /v1/things/a HTTP/1.1\r\nHost: x\r\n\r\n"
		"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n"
		"{\"name\":\"n\"}"
		"GET /v1/things/missing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	auto_free char *answer = exchange(two, sizeof(two) - 1);
	assert_non_null(strstr(answer, "200 OK"));
	assert_non_null(strstr(answer, "201 Created"));
	assert_non_null(strstr(answer, "404 Not Found"));
}

static void hostile(void **state)
{
	static const char *const table[] = {
		"GET\r\n\r\n",
		"\r\n\r\n",
		"GET / HTTP/9.9\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01",
		"GET /v1/things/a HTTP/1.1\r\nContent-Length: x\r\nConnection: close\r\n\r\n",
		"GET /v1/things/a HTTP/1.1\r\nContent-Length: -1\r\nConnection: close\r\n\r\n",
		"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{",
		"POST /v1/things HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"POST /v1/things HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"nam",
		"GET http://evil/v1/things/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		int fd = dial();
		say(fd, table[i], strlen(table[i]));
		(void)shutdown(fd, SHUT_WR);
		free(hear(fd));
		expect("GET", "/v1/things/a", "", 200, "thing");
	}
	/* A head without end. */
	size_t n = 1 << 20;
	auto_free char *head = malloc(n);
	memset(head, 'a', n);
	memcpy(head, "GET /v1/things/", 15);
	free(exchange(head, n));
	expect("GET", "/v1/things/a", "", 200, "thing");
}

static void preferences(void **state)
{
	static const struct {
		const char *header;
		bool is;
	} cases[] = {
		{ NULL, false },
		{ "", false },
		{ "respond-async", true },
		{ "Respond-Async", true },
		{ "wait=10, respond-async", true },
		{ "respond-async; wait=10", true },
		{ "respond-async , wait=10", true },
		{ ",, respond-async", true },
		{ "return=minimal;x=\"a,b\", respond-async", true },
		{ "respond-asynchronously", false },
		{ "no-respond-async", false },
		{ "respond-async=no", false },
		{ "respond-async = no", false },
		{ "note=\"respond-async\"", false },
		{ "note=\"a, respond-async, b\"", false },
		{ "note=\"a\\\", respond-async\"", false },
		{ "note=respond-async", false },
		{ "x;respond-async", false },
		{ "note=\"open, respond-async", false },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (web_prefers(cases[i].header, "respond-async") != cases[i].is)
			fail_msg("Prefer: %s", cases[i].header);
}

static void large_bodies(void **state)
{
	/* Said beforehand: refused beforehand. */
	static const char head[] =
		"POST /v1/things HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n";
	auto_free char *answer = exchange(head, sizeof(head) - 1);
	assert_non_null(strstr(answer, " 413 "));
	assert_non_null(strstr(answer, "too_large"));
	/* In chunks: read on, and told at the end. */
	static const char chunked[] = "POST /v1/things HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
				      "Transfer-Encoding: chunked\r\n\r\n";
	char *block = malloc(100000 + 32);
	int fd = dial();
	say(fd, chunked, sizeof(chunked) - 1);
	int n = snprintf(block, 32, "%x\r\n", 100000);
	memset(block + n, ' ', 100000);
	memcpy(block + n + 100000, "\r\n", 2);
	for (int i = 0; i < 15; i++)
		say(fd, block, (size_t)n + 100002);
	say(fd, "0\r\n\r\n", 5);
	auto_free char *late = hear(fd);
	assert_non_null(strstr(late, " 413 "));
	/* Without end: answered by hand at some point, and closed. */
	fd = dial();
	say(fd, chunked, sizeof(chunked) - 1);
	for (int i = 0; i < 800; i++)
		say(fd, block, (size_t)n + 100002);
	auto_free char *cut = hear(fd);
	assert_non_null(strstr(cut, " 413 "));
	free(block);
}

static void lines(void **state)
{
	static const char ok[] = "POST /v1/job HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
				 "Accept: application/x-ndjson\r\n\r\n";
	auto_free char *answer = exchange(ok, sizeof(ok) - 1);
	assert_non_null(strstr(answer, "{\"progress\":{\"done\":1,\"total\":2,\"unit\":\"files\","
				       "\"what\":\"work\"}}\n"));
	assert_non_null(strstr(answer, "{\"result\":{\"answer\":42}}\n"));
	static const char bad[] = "POST /v1/job?fail=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
				  "Accept: application/x-ndjson\r\n\r\n";
	auto_free char *failed = exchange(bad, sizeof(bad) - 1);
	assert_non_null(strstr(failed, "200 OK"));
	assert_non_null(strstr(failed,
			       "{\"error\":{\"code\":\"quota\",\"message\":\"over the quota\","
			       "\"details\":{},\"status\":507}}\n"));
}

static void wait_for(atomic_int *what, int value)
{
	for (int i = 0; i < 6000 && atomic_load(what) != value; i++)
		usleep(10000);
	assert_int_equal(atomic_load(what), value);
}

static uint64_t cpu_us(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void streams(void **state)
{
	/* A client that doesn't read holds the stream up, and burns nothing; when it leaves, the
	 * stream ends. */
	static const char get[] = "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n";
	int before = atomic_load(&freed), fd = dial();
	atomic_store(&streamed, -1);
	say(fd, get, sizeof(get) - 1);
	for (int i = 0; i < 6000 && atomic_load(&streamed) < 0; i++)
		usleep(10000);
	assert_true(atomic_load(&streamed) >= 0);
	/* How much the sockets take, and when they are full, is the kernel's to say. */
	uint64_t cpu = 0;
	int at = -1, now = atomic_load(&streamed);
	for (int i = 0; i < 100 && at != now; i++) {
		at = now;
		cpu = cpu_us();
		usleep(100000);
		now = atomic_load(&streamed);
	}
	assert_int_equal(now, at);
	assert_true(cpu_us() - cpu < 50000);
	close(fd);
	wait_for(&freed, before + 1);
	/* One that fails is cut, and says why in an extension. */
	static const char bad[] = "GET /v1/stream?fail=1 HTTP/1.1\r\nHost: x\r\n\r\n";
	fd = dial();
	say(fd, bad, sizeof(bad) - 1);
	struct buf all = { 0 };
	char part[65536];
	ssize_t n;
	while ((n = recv(fd, part, sizeof(part), 0)) > 0)
		buf_add(&all, part, (size_t)n);
	close(fd);
	assert_true(all.len > 20 * 65536);
	static const char end[] = "\r\n7fffffff;code=internal;error=bad%20bytes\r\n";
	assert_memory_equal(all.data + all.len - (sizeof(end) - 1), end, sizeof(end) - 1);
	assert_null(memmem(all.data, all.len, "\r\n0\r\n", 5));
	buf_done(&all);
	wait_for(&freed, before + 2);
}

/* What a stream has to say in the end comes in a trailer; and one that doesn't read its answer for
 * a while still hears why it was cut. */
static void stream_ends(void **state)
{
	static const char whole[] =
		"GET /v1/short HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	auto_free char *answer = exchange(whole, sizeof(whole) - 1);
	assert_non_null(strstr(answer, "Trailer: Bough-Summary\r\n"));
	assert_non_null(strstr(answer, "\r\n5\r\nshort\r\n0\r\nBough-Summary: "
				       "{\"lost\":3,\"what\":\"a\\nb\"}\r\n\r\n"));
	static const char bad[] = "GET /v1/stream?fail=1 HTTP/1.1\r\nHost: x\r\n\r\n";
	int fd = dial(), small = 4096;
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	say(fd, bad, sizeof(bad) - 1);
	char part[1000], last[2000] = "";
	ssize_t n;
	size_t total = 0;
	while ((n = recv(fd, part, sizeof(part), 0)) > 0) {
		total += (size_t)n;
		if (total > 19 * 65536)
			usleep(2000);
		memmove(last, last + n, sizeof(last) - (size_t)n);
		memcpy(last + sizeof(last) - n, part, (size_t)n);
	}
	close(fd);
	assert_non_null(
		memmem(last, sizeof(last), "7fffffff;code=internal;error=bad%20bytes\r\n", 42));
}

/* Two lengths, or a length and chunks: what follows the body would be anyone's guess, and another
 * request to who guesses otherwise. */
static void two_lengths(void **state)
{
	static const struct {
		const char *lines, *body;
		bool refused;
	} cases[] = {
		{ "Content-Length: 12\r\nContent-Length: 12\r\n", "{\"name\":\"n\"}", true },
		{ "Content-Length: 12\r\ncontent-length: 5\r\n", "{\"name\":\"n\"}", true },
		{ "Content-Length: 0\r\nContent-Length: 12\r\n", "{\"name\":\"n\"}", true },
		{ "Content-Length: 12, 12\r\n", "{\"name\":\"n\"}", true },
		{ "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n",
		  "c\r\n{\"name\":\"n\"}\r\n0\r\n\r\n", true },
		{ "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		  "c\r\n{\"name\":\"n\"}\r\n0\r\n\r\n", true },
		{ "Transfer-Encoding: gzip\r\n", "", true },
		{ "Transfer-Encoding: chunked\r\n", "c\r\n{\"name\":\"n\"}\r\n0\r\n\r\n", false },
		{ "Content-Length: 12\r\n", "{\"name\":\"n\"}", false },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf rq = { 0 };
		buf_printf(
			&rq, "POST /v1/things HTTP/1.1\r\nHost: x\r\n%s\r\n%s%s", cases[i].lines,
			cases[i].body,
			"GET /v1/things/smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
		auto_free char *answer = exchange((const char *)rq.data, rq.len);
		buf_done(&rq);
		bool refused = !strncmp(answer, "HTTP/1.1 400", 12);
		bool went_on = strstr(answer, "smuggled\"") != NULL;
		if (refused != cases[i].refused || went_on == refused)
			fail_msg("case %zu: %s", i, answer);
	}
}

static void uploads(void **state)
{
	int before = atomic_load(&freed);
	static const char head[] = "POST /v1/upload HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
				   "Transfer-Encoding: chunked\r\n\r\n";
	char *block = malloc(70000 + 16);
	int n = snprintf(block, 16, "%x\r\n", 70000);
	memset(block + n, 'u', 70000);
	memcpy(block + n + 70000, "\r\n", 2);
	/* Whole, of a size the queue can't hold. */
	int fd = dial();
	say(fd, head, sizeof(head) - 1);
	for (int i = 0; i < 30; i++)
		say(fd, block, (size_t)n + 70002);
	say(fd, "0\r\n\r\n", 5);
	auto_free char *answer = hear(fd);
	assert_non_null(strstr(answer, "201 Created"));
	assert_non_null(strstr(answer, "{\"bytes\":2100000}"));
	/* Broken off by the client: never taken for an end. */
	fd = dial();
	atomic_store(&upload_begun, 0);
	say(fd, head, sizeof(head) - 1);
	say(fd, block, (size_t)n + 70002);
	wait_for(&upload_begun, 1); /* else it may be gone before its request is read */
	close(fd);
	wait_for(&freed, before + 2);
	wait_for(&upload_end, -ECONNRESET);
	/* Refused early, and still sending: the answer comes all the same. */
	memcpy(block + n, "REFUSE", 6);
	fd = dial();
	say(fd, head, sizeof(head) - 1);
	for (int i = 0; i < 30; i++)
		say(fd, block, (size_t)n + 70002);
	say(fd, "0\r\n\r\n", 5);
	auto_free char *refused = hear(fd);
	assert_non_null(strstr(refused, " 400 "));
	assert_non_null(strstr(refused, "a hostile body"));
	/* And to one that never stops. */
	fd = dial();
	say(fd, head, sizeof(head) - 1);
	for (int i = 0; i < 1200; i++)
		say(fd, block, (size_t)n + 70002);
	auto_free char *cut = hear(fd);
	assert_non_null(strstr(cut, " 400 "));
	assert_non_null(strstr(cut, "a hostile body"));
	free(block);
	wait_for(&freed, before + 4);
	/* With lines. */
	static const char with_lines[] =
		"POST /v1/upload HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		"Accept: application/x-ndjson\r\nContent-Length: 3\r\n\r\nabc";
	auto_free char *told = exchange(with_lines, sizeof(with_lines) - 1);
	assert_non_null(strstr(told, "{\"result\":{\"bytes\":3}}"));
}

/* A client that stops taking or sending is given up, and what its request holds comes free; one
 * that waits for us isn't. */
static void limits_of_waiting(void **state)
{
	static const char get[] = "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n";
	static const char post[] = "POST /v1/upload HTTP/1.1\r\nHost: x\r\n"
				   "Content-Length: 1000\r\n\r\nabc";
	static const char json[] = "POST /v1/things HTTP/1.1\r\nHost: x\r\n"
				   "Content-Length: 1000\r\n\r\n{";
	static const char slow[] =
		"GET /v1/slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	int before = atomic_load(&freed);
	atomic_store(&upload_end, 0);
	int reader = dial(), sender = dial(), half = dial(), waits = dial();
	say(reader, get, sizeof(get) - 1);
	say(sender, post, sizeof(post) - 1);
	say(half, json, sizeof(json) - 1);
	say(waits, slow, sizeof(slow) - 1);
	auto_free char *told = hear(waits); /* 2.4 s */
	assert_non_null(strstr(told, "slow\r\n4\r\nslow\r\n0\r\n\r\n"));
	wait_for(&freed, before + 2);
	wait_for(&upload_end, -ECONNRESET);
	auto_free char *nothing = hear(half);
	assert_string_equal(nothing, "");
	close(reader);
	close(sender);
}

static void second_server(void **state)
{
	struct web *other;
	struct err err = { 0 };
	struct web_options opt = { .socket_path = sock };
	assert_int_equal(web_start(&other, &opt, &err), -EADDRINUSE);
	expect("GET", "/v1/things/a", "", 200, "thing");
}

static void codes(void **state)
{
	const char *code;
	assert_int_equal(web_status(-EUCLEAN, &code), 503);
	assert_string_equal(code, "unavailable");
	assert_int_equal(web_status(-EMFILE, &code), 503);
	assert_string_equal(code, "overloaded");
	assert_int_equal(web_status(-EXDEV, &code), 500);
	assert_string_equal(code, "internal");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(routing),     cmocka_unit_test(tails),
		cmocka_unit_test(cut_reading), cmocka_unit_test(keep_alive),
		cmocka_unit_test(hostile),     cmocka_unit_test(large_bodies),
		cmocka_unit_test(lines),       cmocka_unit_test(streams),
		cmocka_unit_test(stream_ends), cmocka_unit_test(two_lengths),
		cmocka_unit_test(uploads),     cmocka_unit_test(second_server),
		cmocka_unit_test(codes),       cmocka_unit_test(preferences),
	};
	const struct CMUnitTest strict[] = { cmocka_unit_test(limits_of_waiting) };
	int failed = cmocka_run_group_tests(tests, start, stop);
	return failed + cmocka_run_group_tests(strict, start_strict, stop);
}
