/* The command line's HTTP client: its decoders, and whole exchanges with a scripted peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "tests/unit/cli_server.h"
#include "tests/unit/oom.h"
#include "tools/bough/http.h"
#include "tools/bough/http_parse.h"

/* ---- decoders ---- */

static void heads(void **state)
{
	static const struct {
		const char *text;
		int used; /* -1: refused; 0: not whole; 1: all of it */
		unsigned status;
		int64_t length;
		const char *type;
	} cases[] = {
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 1, 200, 5, "" },
		{ "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", 1, 200, 5, "" },
		{ "HTTP/1.1 404 Not Found\r\nContent-type: Application/JSON; x=y\r\n"
		  "content-length:0\r\n\r\n",
		  1, 404, 0, "application/json" },
		{ "HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: Chunked\r\n\r\n", 1, 200, -1, "" },
		{ "HTTP/1.1 204 \r\n\r\n", 1, 204, 0, "" },
		{ "HTTP/1.1 204\r\n\r\n", 1, 204, 0, "" },
		{ "HTTP/1.1 100 Continue\r\n\r\n", 1, 100, 0, "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 7\r\n\r\n", 1, 200, 7,
		  "" },
		{ "", 0, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r", 0, 0, 0, "" },
		{ "HTTP/1.1 20", 0, 0, 0, "" },
		/* what breaks the rules */
		{ "HTTP/1.1 200 OK\r\n\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\nContent-Length: 5\n\n", -1, 0, 0, "" },
		{ "HTTP/2.0 200 OK\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 20 OK\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 2000 OK\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 099 OK\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 600 OK\r\n", -1, 0, 0, "" },
		{ "SSH-2.0-x\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: \r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\n folded: 5\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nno colon\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nX: a\x01z\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n", -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
		  -1, 0, 0, "" },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", -1,
		  0, 0, "" },
		{ "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", -1, 0, 0, "" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t n = strlen(cases[i].text);
		struct http_head head;
		struct http_framing f;
		const char *why = NULL;
		ssize_t used = http_parse_head((const uint8_t *)cases[i].text, n, &head, &f, &why);
		if (used != (cases[i].used == 1 ? (ssize_t)n : cases[i].used))
			fail_msg("case %zu: %zd", i, used);
		if (used <= 0) {
			assert_true(used == 0 || why);
			continue;
		}
		assert_int_equal(head.status, cases[i].status);
		assert_int_equal(head.length, cases[i].length);
		assert_string_equal(head.type, cases[i].type);
		/* The same in every prefix: never whole, never refused. */
		for (size_t k = 0; k < n; k++)
			assert_int_equal(http_parse_head((const uint8_t *)cases[i].text, k, &head,
							 &f, &why),
					 0);
	}
}

/* What a copy that goes on is told by. */
static void fields(void **state)
{
	static const char text[] = "HTTP/1.1 206 x\r\nContent-Length: 1\r\nETAG: \"a-b\" \r\n"
				   "Location: /v1/x\r\nUpload-Offset: 123456789012\r\n\r\n";
	struct http_head head;
	struct http_framing f;
	const char *why = NULL;
	assert_true(http_parse_head((const uint8_t *)text, sizeof(text) - 1, &head, &f, &why) > 0);
	assert_string_equal(head.etag, "\"a-b\"");
	assert_string_equal(head.location, "/v1/x");
	assert_int_equal(head.upload_offset, 123456789012);
	char other[1024];
	int n = snprintf(other, sizeof(other), "HTTP/1.1 200 x\r\nContent-Length: 1\r\n"
			 "ETag: \"%0*d\"\r\n\r\n", HTTP_FIELD_MAX, 0);
	assert_true(http_parse_head((const uint8_t *)other, (size_t)n, &head, &f, &why) > 0);
	assert_string_equal(head.etag, ""); /* never half of one */
	assert_int_equal(head.upload_offset, -1);
}

static void endless_heads(void **state)
{
	auto_free char *text = malloc(2 * HTTP_HEAD_MAX);
	struct http_head head;
	struct http_framing f;
	const char *why = NULL;
	memset(text, 'a', 2 * HTTP_HEAD_MAX);
	memcpy(text, "HTTP/1.1 200 OK\r\nX: ", 20);
	assert_int_equal(http_parse_head((uint8_t *)text, HTTP_HEAD_MAX - 1, &head, &f, &why), 0);
	assert_int_equal(http_parse_head((uint8_t *)text, HTTP_HEAD_MAX, &head, &f, &why), -1);
	for (size_t i = 17; i + 4 < 2 * HTTP_HEAD_MAX; i += 4)
		memcpy(text + i, "a:\r\n", 4);
	assert_int_equal(http_parse_head((uint8_t *)text, 2 * HTTP_HEAD_MAX, &head, &f, &why), -1);
}

/* The body of a chunked text read in every step size; NULL: refused or cut. */
static char *dechunk(const char *text, size_t step)
{
	struct http_framing f = { .chunked = true };
	auto_buf out = { 0 };
	size_t n = strlen(text), pos = 0, seen = 0;
	while (f.left > 0 || !f.done) {
		const char *why = NULL;
		if (f.left > 0 && seen > pos) {
			size_t k = seen - pos < f.left ? seen - pos : (size_t)f.left;
			buf_add(&out, text + pos, k);
			pos += k;
			f.left -= k;
			continue;
		}
		ssize_t used = f.left ? 0
				      : http_parse_chunk(&f, (const uint8_t *)text + pos,
							 seen - pos, &why);
		if (used < 0)
			return NULL;
		pos += (size_t)used;
		if (used == 0) {
			if (seen == n)
				return NULL;
			seen = n - seen < step ? n : seen + step;
		}
	}
	buf_u8(&out, 0);
	return strdup((char *)out.data);
}

static void chunks(void **state)
{
	static const struct {
		const char *text, *body;
	} cases[] = {
		{ "0\r\n\r\n", "" },
		{ "5\r\nhello\r\n0\r\n\r\n", "hello" },
		{ "3;a=b\r\nhel\r\n2 \r\nlo\r\n000\r\nX: y\r\n\r\n", "hello" },
		{ "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789" },
		{ "5\r\nhello\r\n0\r\n\r", NULL },
		{ "5\r\nhello\r\n", NULL },
		{ "5\r\nhell", NULL },
		{ "5\nhello\r\n0\r\n\r\n", NULL },
		{ "5\r\nhelloworld\r\n0\r\n\r\n", NULL },
		{ "x\r\n", NULL },
		{ "-1\r\n", NULL },
		{ "\r\n", NULL },
		{ "ffffffffffffffff\r\n", NULL },
		{ "5x\r\nhello\r\n", NULL },
		{ "5\r\nhello\r\n7fffffff;code=internal;error=gone\r\n", NULL },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t step = 1; step < 9; step++) {
			auto_free char *body = dechunk(cases[i].text, step);
			if (!cases[i].body != !body || (body && strcmp(body, cases[i].body) != 0))
				fail_msg("case %zu, step %zu: %s", i, step, body);
		}
	}
}

static void escapes(void **state)
{
	auto_free char *a = http_escape("a-b_c.d~9"), *b = http_escape("a/b ?%\xff&=");
	assert_string_equal(a, "a-b_c.d~9");
	assert_string_equal(b, "a%2Fb%20%3F%25%FF%26%3D");
}

/* ---- exchanges ---- */

static struct http *open_at(const struct server *s)
{
	char path[256];
	struct http *h = NULL;
	struct err err;
	(void)snprintf(path, sizeof(path), "%s/run/boughd.sock", s->root);
	if (http_open(&h, path, &err) < 0)
		fail_msg("%s", err.text);
	return h;
}

static const struct http_request get = { .method = "GET", .target = "/x" };

static void answers(void **state)
{
	static const struct exchange script[] = {
		{ .answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" },
		{ .answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", .piece = 1 },
		{ .answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
			    "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
		  .piece = 1 },
		{ .answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hm\r\n\r\n"
			    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more" },
	};
	struct server s;
	assert_int_equal(server_start(&s, script, 4), 0);
	for (int i = 0; i < 4; i++) {
		struct http *h = open_at(&s);
		struct http_head head;
		struct err err;
		auto_free char *text = NULL;
		size_t len;
		assert_int_equal(http_send(h, &get, &head, &err), 0);
		assert_int_equal(head.status, 200);
		assert_int_equal(http_read_all(h, 100, &text, &len, &err), 0);
		assert_string_equal(text, "hello");
		assert_int_equal(len, 5);
		char more[4];
		assert_int_equal(http_read(h, more, sizeof(more), &err), 0);
		http_free(h);
	}
	assert_true(contains(&s.got[0], "GET /x HTTP/1.1\r\nHost: boughd\r\n"));
	server_stop(&s);
}

static void broken_answers(void **state)
{
	static const struct {
		const char *answer;
		int error; /* of http_send, or of the reading when it is less than -1000 */
	} cases[] = {
		{ "", -ECONNRESET },
		{ "HTTP/1.1 200 OK\r\nContent-", -ECONNRESET },
		{ "hello\r\n\r\n", -EPROTO },
		{ "HTTP/1.1 200 OK\r\n\r\nforever", -EPROTO },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", -1000 - ECONNRESET },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		  -1000 - ECONNRESET },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello",
		  -1000 - ECONNRESET },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n",
		  -1000 - EPROTO },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n0123456789"
		  "0123456789012345678901234567890123456789012345678901234567890123456789"
		  "012345678901234567890123456789",
		  -1000 - EFBIG },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct exchange x = { .answer = cases[i].answer };
		struct server s;
		assert_int_equal(server_start(&s, &x, 1), 0);
		struct http *h = open_at(&s);
		struct http_head head;
		struct err err = { 0 };
		auto_free char *text = NULL;
		size_t len;
		int r = http_send(h, &get, &head, &err);
		if (r == 0) {
			r = http_read_all(h, 100, &text, &len, &err) - 1000;
			char c;
			assert_true(http_read(h, &c, 1, &err) < 0);
		}
		if (r != cases[i].error)
			fail_msg("case %zu: %d %s", i, r, err.text);
		assert_true(*err.text);
		http_free(h);
		server_stop(&s);
	}
}

/* An answer that the peer breaks off, with and without its reason; one with a summary. */
static void last_words(void **state)
{
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
	static const struct {
		const char *answer, *code, *reason, *summary;
	} cases[] = {
		{ CHUNKED "7fffffff;code=too_large;error=%27a%00b%27:%20too%20large\r\n",
		  "too_large", "'a?b': too large", NULL },
		{ CHUNKED "7fffffff;error=x%2\r\n", "", "x%2", NULL },
		{ CHUNKED
		  "7fffffff;a=b;code=waytoolongforanycodethatthereiswaytoolong;error=x;c=d\r\n",
		  "waytoolongforanycodethatthereis", "x", NULL },
		{ CHUNKED "7fffffff;error=\r\n", NULL, NULL, NULL },
		{ CHUNKED "7fffffff\r\n", NULL, NULL, NULL },
		{ CHUNKED, NULL, NULL, NULL },
		{ CHUNKED "0\r\n\r\n", NULL, NULL, NULL },
		{ CHUNKED "0\r\nBough-Summary: {\"a\":1} \r\n\r\n", NULL, NULL, "{\"a\":1}" },
		{ CHUNKED "0\r\nX: y\r\nbough-summary:{}\r\nBough-Summary: 2\r\n\r\n", NULL, NULL,
		  "{}" },
		{ CHUNKED "0\r\nBough-Summary\r\n\r\n", NULL, NULL, NULL },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) * 2; i++) {
		struct exchange x = { .answer = cases[i / 2].answer, .piece = i % 2 };
		struct server s;
		assert_int_equal(server_start(&s, &x, 1), 0);
		struct http *h = open_at(&s);
		struct http_head head;
		struct err err = { 0 };
		char *text = NULL;
		size_t len;
		const char *code, *want = cases[i / 2].reason, *sum = cases[i / 2].summary;
		assert_int_equal(http_send(h, &get, &head, &err), 0);
		int r = http_read_all(h, 100, &text, &len, &err);
		free(r == 0 ? text : NULL);
		const char *reason = http_reason(h, &code), *summary = http_summary(h);
		if (!reason != !want || (want && (strcmp(reason, want) || strcmp(err.text, want) ||
						  strcmp(code, cases[i / 2].code) || r >= 0)))
			fail_msg("case %zu: %d %s %s", i, r, reason, err.text);
		if (!summary != !sum || (sum && strcmp(summary, sum) != 0))
			fail_msg("case %zu: %s", i, summary);
		http_free(h);
		server_stop(&s);
	}
}

static void note_silence(void *ctx, pid_t pid)
{
	assert_int_equal(pid, getpid());
	++*(unsigned *)ctx;
}

/* A peer that is long in answering is told of once; one that isn't, never. */
static void silence(void **state)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
	static const struct exchange script[] = { { .answer = answer, .delay_ms = 150 },
						  { .answer = answer, .delay_ms = 150 },
						  { .answer = answer } };
	static const int limits[] = { 20, 60000, 60000 };
	struct server s;
	assert_int_equal(server_start(&s, script, 3), 0);
	for (int i = 0; i < 3; i++) {
		unsigned told = 0;
		struct http_request rq = get;
		struct http *h = open_at(&s);
		struct http_head head;
		rq.silent = note_silence;
		rq.silent_ms = limits[i];
		rq.silent_ctx = &told;
		assert_int_equal(http_send(h, &rq, &head, NULL), 0);
		assert_int_equal(told, i == 0);
		http_free(h);
	}
	server_stop(&s);
}

static void lines(void **state)
{
	static const struct exchange script[] = {
		{ .answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
			    "3\r\none\r\n1\r\n\n\r\n8\r\ntwo\n\nend\r\n0\r\n\r\n",
		  .piece = 1 },
		{ .answer = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\none\ntwo\n\nend" },
	};
	static const char *const want[] = { "one", "two", "", "end" };
	struct server s;
	assert_int_equal(server_start(&s, script, 2), 0);
	for (int i = 0; i < 2; i++) {
		struct http *h = open_at(&s);
		struct http_head head;
		const char *line;
		size_t len;
		assert_int_equal(http_send(h, &get, &head, NULL), 0);
		for (int k = 0; k < 4; k++) {
			assert_int_equal(http_read_line(h, 100, &line, &len, NULL), 1);
			assert_string_equal(line, want[k]);
			assert_int_equal(len, strlen(want[k]));
		}
		assert_int_equal(http_read_line(h, 100, &line, &len, NULL), 0);
		http_free(h);
	}
	server_stop(&s);
}

static void long_lines(void **state)
{
	enum { LONG = 50000 };
	auto_free char *text = malloc(LONG + 200);
	int n = snprintf(text, 200, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", LONG + 1);
	memset(text + n, 'x', LONG);
	text[n + LONG] = '\n';
	struct exchange script[] = { { .answer = text, .len = (size_t)n + LONG + 1 },
				     { .answer = text, .len = (size_t)n + LONG + 1 } };
	struct server s;
	assert_int_equal(server_start(&s, script, 2), 0);
	for (int i = 0; i < 2; i++) {
		struct http *h = open_at(&s);
		struct http_head head;
		const char *line;
		size_t len;
		assert_int_equal(http_send(h, &get, &head, NULL), 0);
		int r = http_read_line(h, i ? LONG - 1 : LONG, &line, &len, NULL);
		assert_int_equal(r, i ? -EFBIG : 1);
		if (!i)
			assert_int_equal(len, LONG);
		http_free(h);
	}
	server_stop(&s);
}

/* ---- uploads ---- */

static int memory_file(size_t n)
{
	int fd = memfd_create("upload", MFD_CLOEXEC);
	auto_free char *p = malloc(n);
	for (size_t i = 0; i < n; i++)
		p[i] = (char)('a' + i % 26);
	assert_int_equal(write(fd, p, n), n);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void count_sent(void *ctx, uint64_t bytes)
{
	*(uint64_t *)ctx = bytes;
}

static void uploads(void **state)
{
	enum { SIZE = 1000 * 1000 };
	static const struct exchange script[] = {
		{ .interim = "HTTP/1.1 100 Continue\r\n\r\n",
		  .until = "\r\n0\r\n\r\n",
		  .answer = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}" },
		{ .interim = "HTTP/1.1 100 Continue\r\n\r\n",
		  .until = "END",
		  .answer = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}" },
	};
	struct server s;
	assert_int_equal(server_start(&s, script, 2), 0);
	for (int i = 0; i < 2; i++) {
		auto_fd fd = memory_file(SIZE);
		assert_int_equal(pwrite(fd, "END", 3, SIZE - 3), 3);
		uint64_t sent = 0;
		struct http_body body = { .type = "x/y",
					  .fd = fd,
					  .size = i ? SIZE : -1,
					  .sent = count_sent,
					  .ctx = &sent };
		struct http_request rq = { .method = "POST", .target = "/up", .body = &body };
		struct http *h = open_at(&s);
		struct http_head head;
		struct err err;
		if (http_send(h, &rq, &head, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(head.status, 201);
		assert_int_equal(sent, SIZE);
		http_free(h);
	}
	assert_true(contains(&s.got[0], "Expect: 100-continue\r\n"));
	assert_true(contains(&s.got[0], "Transfer-Encoding: chunked\r\n"));
	assert_true(contains(&s.got[0], "\r\n\r\n40000\r\nabcdef")); /* one chunk of 256 KiB */
	assert_true(contains(&s.got[1], "Content-Length: 1000000\r\n"));
	/* All of the bytes came, behind the head. */
	const char *p = memmem(s.got[1].data, s.got[1].len, "\r\n\r\n", 4);
	assert_int_equal((const char *)s.got[1].data + s.got[1].len - (p + 4), SIZE);
	server_stop(&s);
}

static int refuse(void *ctx, struct err *err)
{
	return err_set(err, -EIO, "the source failed");
}

/* A peer that refuses at once, in the middle, or by hanging up; a source that fails or ends
 * early. */
static void upload_ends(void **state)
{
	static const char refusal[] = "HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}";
	static const struct {
		struct exchange x;
		int error;
		unsigned status;
		int64_t size;
		bool refuse;
	} cases[] = {
		{ { .interim = refusal }, 0, 409, -1, false },
		{ { .interim = "HTTP/1.1 100 Continue\r\n\r\n",
		    .until = "abcdefgh",
		    .answer = refusal },
		  0,
		  409,
		  -1,
		  false },
		{ { .interim = "HTTP/1.1 100 Continue\r\n\r\n" }, -ECONNRESET, 0, -1, false },
		{ { .until = NULL }, -ECONNRESET, 0, -1, false },
		{ { .interim = "HTTP/1.1 100 Continue\r\n\r\n", .until = "neverthere" },
		  -EIO,
		  0,
		  2000000,
		  false },
		{ { .interim = "HTTP/1.1 100 Continue\r\n\r\n", .until = "neverthere" },
		  -EIO,
		  0,
		  -1,
		  true },
		{ { .interim = "HTTP/1.1 100 Continue\r\n\r\n",
		    .until = "abcdefgh",
		    .answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" },
		  -EPROTO,
		  0,
		  4000000000,
		  false },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct server s;
		assert_int_equal(server_start(&s, &cases[i].x, 1), 0);
		auto_fd fd = i == 6 ? open("/dev/zero", O_RDONLY | O_CLOEXEC)
				    : memory_file(1000000);
		if (i == 6) { /* more than any socket's buffer: the peer's word comes first */
			close(fd);
			fd = memory_file(8000000);
		}
		struct http_body body = { .type = "x/y",
					  .fd = fd,
					  .size = cases[i].size,
					  .finish = cases[i].refuse ? refuse : NULL };
		struct http_request rq = { .method = "POST", .target = "/up", .body = &body };
		struct http *h = open_at(&s);
		struct http_head head = { 0 };
		struct err err = { 0 };
		int r = http_send(h, &rq, &head, &err);
		if (r != cases[i].error || head.status != cases[i].status)
			fail_msg("case %zu: %d, %u, %s", i, r, head.status, err.text);
		http_free(h);
		/* A body that was broken off isn't ended: the peer can't take it for whole. */
		server_stop(&s);
	}
}

static void nobody_there(void **state)
{
	struct http *h = NULL;
	struct err err;
	assert_int_equal(http_open(&h, "/nowhere/at/all", &err), -ENOENT);
	/* A path longer than sun_path. */
	char path[400];
	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = 0;
	assert_int_equal(http_open(&h, path, &err), -ENAMETOOLONG);
	for (size_t i = 100; i < sizeof(path) - 1; i += 100)
		path[i] = '/';
	assert_int_equal(http_open(&h, path, &err), -ENOENT);
	assert_null(h);
}

static void long_socket_path(void **state)
{
	static const struct exchange x = { .answer = "HTTP/1.1 204 No\r\n\r\n" };
	struct server s;
	assert_int_equal(server_start(&s, &x, 1), 0);
	char path[1200];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s", s.root);
	while (n < 900)
		n += (size_t)snprintf(path + n, sizeof(path) - n, "/run/..");
	(void)snprintf(path + n, sizeof(path) - n, "/run/boughd.sock");
	struct http *h = NULL;
	struct http_head head;
	struct err err;
	if (http_open(&h, path, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(http_send(h, &get, &head, &err), 0);
	assert_int_equal(head.status, 204);
	http_free(h);
	server_stop(&s);
}

static void no_memory(void **state)
{
	for (uint64_t n = 1;; n++) {
		static const struct exchange x = {
			.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
				  "4\r\none\n\r\n0\r\n\r\n"
		};
		struct server s;
		assert_int_equal(server_start(&s, &x, 1), 0);
		char path[256];
		(void)snprintf(path, sizeof(path), "%s/run/boughd.sock", s.root);
		struct http *h = NULL;
		struct http_head head;
		const char *line;
		size_t len;
		/* The peer's own memory is there already: only the client's may fail. */
		assert_non_null(buf_room(&s.got[0], 1 << 18));
		oom_at(n);
		int r = http_open(&h, path, NULL);
		bool opened = r == 0;
		if (r == 0)
			r = http_send(h, &get, &head, NULL);
		if (r == 0)
			r = http_read_line(h, 100, &line, &len, NULL);
		bool hit = oom_hit();
		oom_at(0);
		assert_int_equal(r, hit ? -ENOMEM : 1);
		if (!opened)
			h = open_at(&s); /* the peer still waits for somebody */
		http_free(h);
		server_stop(&s);
		if (!hit)
			break;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heads),        cmocka_unit_test(fields),
		cmocka_unit_test(endless_heads),
		cmocka_unit_test(chunks),       cmocka_unit_test(escapes),
		cmocka_unit_test(answers),      cmocka_unit_test(broken_answers),
		cmocka_unit_test(last_words),   cmocka_unit_test(silence),
		cmocka_unit_test(lines),        cmocka_unit_test(long_lines),
		cmocka_unit_test(uploads),      cmocka_unit_test(upload_ends),
		cmocka_unit_test(nobody_there), cmocka_unit_test(long_socket_path),
		cmocka_unit_test(no_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
