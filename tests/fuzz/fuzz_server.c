/* The HTTP side of boughd whole, libmicrohttpd and all: any bytes over its socket, in pieces whose
 * size the first byte chooses. Whoever sends them and closes gets answers that begin as answers do,
 * or none, and the server goes on. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "snapd/web.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 64 * 1024, HANG_S = 40 };

static struct {
	char dir[64], sock[96];
	struct web *web;
} here;

static int get_thing(struct request *rq, struct reply *rp, struct err *err)
{
	if (strcmp(rq->params[0], "missing") == 0)
		return err_set(err, -ENOENT, "no thing \"%s\"", rq->params[0]);
	rp->json = json_pack("{s:s*, s:s*}", "thing", rq->params[0], "q", request_query(rq, "q"));
	return 0;
}

static int put_thing(struct request *rq, struct reply *rp, struct err *err)
{
	rp->status = 201;
	rp->json = json_incref(rq->body);
	return 0;
}

static int upload_run(void *task, struct progress *p, unsigned *status, json_t **result,
		      struct err *err)
{
	char part[1000];
	json_int_t n = 0;
	ssize_t r;
	while ((r = stream_read(task, part, sizeof(part), -1)) > 0)
		n += r;
	if (r < 0)
		return err_set(err, (int)r, "broken off");
	*status = 201;
	*result = json_pack("{s:I}", "bytes", n);
	return 0;
}

static int upload(struct request *rq, struct reply *rp, struct err *err)
{
	rp->job = upload_run;
	rp->task = rq->upload;
	return 0;
}

static ssize_t tail_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	const char *text = task;
	size_t left = strlen(text) - pos;
	n = n < left ? n : left;
	memcpy(buf, text + pos, n);
	return (ssize_t)n;
}

static int tail(struct request *rq, struct reply *rp, struct err *err)
{
	const char *echo = request_header(rq, "X-Echo");
	if (echo)
		reply_header(rp, "X-Echo", "%s", echo);
	rp->task = strdup(rq->tail);
	rp->task_free = free;
	rp->read = tail_read;
	rp->length = request_query(rq, "q") ? WEB_UNKNOWN : strlen(rq->tail);
	rp->type = "text/plain";
	return rp->task ? 0 : -ENOMEM;
}

static const struct field thing_fields[] = {
	{ "name", FIELD_STRING, true, 10 },    { "size", FIELD_NUMBER, false, 0 },
	{ "on", FIELD_BOOL, false, 0 },        { "list", FIELD_STRINGS, false, 3 },
	{ "labels", FIELD_LABELS, false, 0 },  { "more", FIELD_OBJECT, false, 0 },
	{ "others", FIELD_OBJECTS, false, 0 }, { 0 },
};
static const char *const thing_query[] = { "q", "label", NULL };
static const struct route routes[] = {
	{ "GET", "/v1/things/{}", get_thing, NULL, thing_query, false },
	{ "POST", "/v1/things", put_thing, thing_fields, NULL, false },
	{ "POST", "/v1/upload", upload, NULL, NULL, true },
	{ "GET", "/v1/tree/{}/files/{...}", tail, NULL, thing_query, false },
	{ "HEAD", "/v1/tree/{}/files/{...}", tail, NULL, thing_query, false },
	{ "PUT", "/v1/tree/{}/files/{...}", upload, NULL, NULL, true },
};

static int identify(void *ctx, const struct web_peer *peer, const char *authorization,
		    struct principal *out, struct err *err)
{
	if (authorization && strcmp(authorization, "Bearer wrong") == 0)
		return err_set(err, -EKEYREJECTED, "no such token");
	*out = (struct principal){ .uid = peer->uid };
	return 0;
}

static void clean_up(void)
{
	if (web_quiesce(here.web, 20000))
		web_free(here.web);
	(void)io_remove_tree(AT_FDCWD, here.dir, NULL); /* a temporary folder */
}

static void set_up(void)
{
	static const char *const origins[] = { "https://app.example.org" };
	(void)snprintf(here.dir, sizeof(here.dir), "/tmp/fuzz_server.XXXXXX");
	if (!mkdtemp(here.dir))
		abort();
	(void)snprintf(here.sock, sizeof(here.sock), "%s/s", here.dir);
	const struct web_options opt = { .socket_path = here.sock,
					 .origins = origins,
					 .norigins = 1,
					 .routes = routes,
					 .nroutes = sizeof(routes) / sizeof(routes[0]),
					 .identify = identify };
	if (web_start(&here.web, &opt, NULL) < 0)
		abort();
	(void)atexit(clean_up);
}

static int dial(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", here.sock);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&un, sizeof(un)) < 0)
		abort(); /* it is gone */
	const struct timeval tv = { .tv_sec = HANG_S };
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char part[8192];
	auto_buf got = { 0 };
	if (size == 0 || size > INPUT_MAX)
		return 0;
	if (!here.web)
		set_up();
	size_t step = data[0] ? (size_t)data[0] * 16 : size;
	auto_fd fd = dial();
	for (size_t at = 1; at < size; at += step)
		if (send(fd, data + at, size - at < step ? size - at : step, MSG_NOSIGNAL) < 0)
			break; /* it has heard enough */
	(void)shutdown(fd, SHUT_WR);
	ssize_t n;
	/* libFuzzer's alarm ends a call that has a time limit. */
	while (((n = recv(fd, part, sizeof(part), 0)) > 0 || (n < 0 && errno == EINTR)) &&
	       got.len < 16 * INPUT_MAX)
		buf_add(&got, part, n > 0 ? (size_t)n : 0);
	assert(n >= 0 || errno == ECONNRESET || errno == EINTR); /* else it hangs */
	if (got.len >= 12)
		assert(memcmp(got.data, "HTTP/1.", 7) == 0 && got.data[9] >= '1' &&
		       got.data[9] <= '5');
	return 0;
}
