/* ttrpc: frames, answers of a hostile peer, calls in one piece and in halves. */
#include "runtime/ttrpc.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "runtime/proto/shim.pb-c.h"
#include "runtime/shim_int.h"

static struct err err;

static const struct ttrpc_call plain = { .service = "containerd.task.v2.Task",
					 .method = "Wait",
					 .ns = "bough",
					 .payload = "payload",
					 .len = 7,
					 .timeout_ms = 2000,
					 .stop_fd = -1 };

/* A frame with any header and the message that was given. */
static void frame(struct buf *out, uint32_t len, uint32_t stream, uint8_t type, const void *message,
		  size_t n)
{
	uint8_t h[TTRPC_HEADER] = { (uint8_t)(len >> 24),
				    (uint8_t)(len >> 16),
				    (uint8_t)(len >> 8),
				    (uint8_t)len,
				    (uint8_t)(stream >> 24),
				    (uint8_t)(stream >> 16),
				    (uint8_t)(stream >> 8),
				    (uint8_t)stream,
				    type,
				    0 };
	buf_add(out, h, sizeof(h));
	buf_add(out, message, n);
}

/* A response's message. */
static void response(struct buf *out, int32_t code, const char *text, const char *payload)
{
	Shim__Response r = SHIM__RESPONSE__INIT;
	Shim__Status status = SHIM__STATUS__INIT;
	status.code = code;
	status.message = (char *)text;
	r.status = code ? &status : NULL;
	r.payload.data = (uint8_t *)payload;
	r.payload.len = strlen(payload);
	uint8_t *room = buf_room(out, shim__response__get_packed_size(&r));
	out->len += shim__response__pack(&r, room);
}

static void answer(struct buf *out, int32_t code, const char *text, const char *payload)
{
	auto_buf message = { 0 };
	response(&message, code, text, payload);
	frame(out, (uint32_t)message.len, 1, 2, message.data, message.len);
}

static void test_request(void **state)
{
	auto_buf out = { 0 };
	assert_int_equal(ttrpc_encode(&out, &plain), 0);
	assert_memory_equal(out.data + 4, "\0\0\0\1\1\0", 6);
	assert_int_equal((size_t)out.data[2] << 8 | out.data[3], out.len - TTRPC_HEADER);
	Shim__Request *r = shim__request__unpack(NULL, out.len - TTRPC_HEADER,
						 out.data + TTRPC_HEADER);
	assert_non_null(r);
	assert_string_equal(r->service, plain.service);
	assert_string_equal(r->method, "Wait");
	assert_int_equal(r->payload.len, 7);
	assert_int_equal(r->timeout_nano, 2000000000);
	assert_int_equal(r->n_metadata, 1);
	assert_string_equal(r->metadata[0]->key, "containerd-namespace-ttrpc");
	assert_string_equal(r->metadata[0]->value, "bough");
	shim__request__free_unpacked(r, NULL);
	struct ttrpc_call big = plain;
	big.len = TTRPC_MAX + 1;
	assert_int_equal(ttrpc_encode(&out, &big), -E2BIG);
}

static void test_headers(void **state)
{
	static const struct {
		uint8_t h[TTRPC_HEADER];
		int result;
	} cases[] = {
		{ { 0, 0, 1, 2, 0, 0, 0, 1, 2, 0 }, 258 },
		{ { 0, 0, 0, 0, 0, 0, 0, 1, 2, 0 }, 0 },
		{ { 0, 0x40, 0, 0, 0, 0, 0, 1, 2, 0 }, TTRPC_MAX },
		{ { 0, 0x40, 0, 1, 0, 0, 0, 1, 2, 0 }, -EBADMSG }, /* too long */
		{ { 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 2, 0 }, -EBADMSG },
		{ { 0, 0, 0, 1, 0, 0, 0, 3, 2, 0 }, -EBADMSG }, /* another stream */
		{ { 0, 0, 0, 1, 0, 0, 0, 1, 1, 0 }, -EBADMSG }, /* a request */
		{ { 0, 0, 0, 1, 0, 0, 0, 1, 3, 0 }, -EBADMSG }, /* a part of a stream */
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(ttrpc_header(cases[i].h), cases[i].result);
}

static void test_codes(void **state)
{
	static const struct {
		int code, result;
	} cases[] = { { 3, -EINVAL },     { 4, -ETIMEDOUT }, { 5, -ENOENT }, { 6, -EEXIST },
		      { 9, -EBUSY },      { 2, -EIO },       { 13, -EIO },   { 12, -EOPNOTSUPP },
		      { 99999999, -EIO }, { -1, -EIO },      { 14, -EIO } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_buf m = { 0 }, reply = { 0 };
		response(&m, cases[i].code, "it's\nwrong\033[1m\n", "payload");
		assert_int_equal(ttrpc_decode(m.data, m.len, &reply, &err), cases[i].result);
		assert_string_equal(err.text, "it's wrong [1m");
		assert_int_equal(reply.len, 0);
	}
	auto_buf m = { 0 }, reply = { 0 };
	response(&m, 0, "", "payload");
	assert_int_equal(ttrpc_decode(m.data, m.len, &reply, &err), 0);
	assert_int_equal(reply.len, 7);
	assert_int_equal(ttrpc_decode("\xff\xff\xff", 3, &reply, &err), -EBADMSG);
	/* A long complaint becomes a short one. */
	char text[2000];
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	buf_reset(&m);
	response(&m, 5, text, "");
	assert_int_equal(ttrpc_decode(m.data, m.len, &reply, &err), -ENOENT);
	assert_true(strlen(err.text) < 500);
}

/* Both ends of a connection; what the peer says is there already. */
static void with_peer(int fds[2], const struct buf *says)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	if (says->len)
		assert_int_equal(send(fds[1], says->data, says->len, 0), (ssize_t)says->len);
}

static int call_with(const struct buf *says, bool closes, int64_t timeout_ms)
{
	int fds[2];
	auto_buf reply = { 0 };
	struct ttrpc_call call = plain;
	call.timeout_ms = timeout_ms;
	with_peer(fds, says);
	if (closes)
		assert_int_equal(shutdown(fds[1], SHUT_WR), 0);
	int r = ttrpc_call(fds[0], &call, &reply, &err);
	(void)close(fds[0]);
	(void)close(fds[1]);
	return r;
}

static void test_hostile(void **state)
{
	auto_buf b = { 0 };
	assert_int_equal(call_with(&b, true, 2000), -ECONNREFUSED); /* nothing at all */
	assert_int_equal(call_with(&b, false, 20), -ETIMEDOUT);
	answer(&b, 0, "", "fine");
	assert_int_equal(call_with(&b, false, 2000), 0);
	assert_int_equal(call_with(&b, true, 2000), 0);
	/* Each way of being cut. */
	struct buf cut = b;
	for (cut.len = 0; cut.len < b.len; cut.len++) {
		assert_int_equal(call_with(&cut, true, 2000), -ECONNREFUSED);
		if (cut.len % 4 == 0)
			assert_int_equal(call_with(&cut, false, 5), -ETIMEDOUT);
	}
	buf_reset(&b);
	frame(&b, 0x7fffffff, 1, 2, "", 0);
	assert_int_equal(call_with(&b, false, 2000), -EBADMSG);
	buf_reset(&b);
	frame(&b, 3, 1, 2, "\xff\xff\xff", 3);
	assert_int_equal(call_with(&b, false, 2000), -EBADMSG);
}

static void test_stop(void **state)
{
	int fds[2], stop[2];
	auto_buf nothing = { 0 }, reply = { 0 };
	struct ttrpc_call call = plain;
	with_peer(fds, &nothing);
	assert_int_equal(pipe(stop), 0);
	call.timeout_ms = -1;
	call.stop_fd = stop[0];
	assert_int_equal(close(stop[1]), 0);
	assert_int_equal(ttrpc_call(fds[0], &call, &reply, &err), -ECANCELED);
	(void)close(fds[0]);
	(void)close(fds[1]);
	(void)close(stop[0]);
}

/* In halves, byte by byte. */
static void test_halves(void **state)
{
	int fds[2];
	auto_buf nothing = { 0 }, reply = { 0 }, b = { 0 };
	char got[256];
	with_peer(fds, &nothing);
	assert_int_equal(ttrpc_begin(fds[0], &plain, &err), 0);
	ssize_t n = recv(fds[1], got, sizeof(got), 0);
	assert_true(n > TTRPC_HEADER);
	Shim__Request *r = shim__request__unpack(NULL, (size_t)n - TTRPC_HEADER,
						 (uint8_t *)got + TTRPC_HEADER);
	assert_non_null(r);
	assert_int_equal(r->timeout_nano, 0); /* the peer is to wait for ever */
	shim__request__free_unpacked(r, NULL);
	answer(&b, 0, "", "fine");
	for (size_t i = 0; i < b.len; i++) {
		assert_int_equal(ttrpc_end(fds[0], &reply, &err), -EAGAIN);
		assert_int_equal(send(fds[1], b.data + i, 1, 0), 1);
	}
	assert_int_equal(ttrpc_end(fds[0], &reply, &err), 0);
	assert_int_equal(reply.len, 4);
	(void)close(fds[0]);
	(void)close(fds[1]);
	/* A peer that ends in the middle. */
	with_peer(fds, &nothing);
	assert_int_equal(ttrpc_begin(fds[0], &plain, &err), 0);
	assert_int_equal(send(fds[1], b.data, 5, 0), 5);
	assert_int_equal(ttrpc_end(fds[0], &reply, &err), -EAGAIN);
	(void)close(fds[1]);
	assert_int_equal(ttrpc_end(fds[0], &reply, &err), -ECONNREFUSED);
	(void)close(fds[0]);
}

static void test_connect(void **state)
{
	assert_int_equal(ttrpc_connect("unix:///nowhere/at/all", &err), -ECONNREFUSED);
	assert_int_equal(ttrpc_connect("vsock://1:2", &err), -EINVAL);
	assert_int_equal(ttrpc_connect("", &err), -EINVAL);
}

static void test_start_replies(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		int result;
		unsigned version;
	} cases[] = {
#define T(s) s, sizeof(s) - 1
		{ T("unix:///run/x/s"), 0, 2 },
		{ T("unix:///run/x/s\n"), 0, 2 },
		{ T("{\"version\":3,\"address\":\"unix:///run/x/s\",\"protocol\":\"ttrpc\"}"), 0,
		  3 },
		{ T("{\"version\":2,\"address\":\"unix:///run/x/s\"}\n"), 0, 2 },
		{ T("\x08\x03\x12\x0funix:///run/x/s\x1a\x05ttrpc"), 0, 3 },
		{ T("{\"version\":3,\"address\":\"unix:///run/x/s\",\"protocol\":\"grpc\"}"),
		  -EPROTONOSUPPORT, 0 },
		{ T("{\"version\":4,\"address\":\"unix:///run/x/s\"}"), -EPROTONOSUPPORT, 0 },
		{ T("{\"version\":3}"), -EBADMSG, 0 },
		{ T("{\"version\":3,"), -EBADMSG, 0 },
		{ T("{\"version\":3,\"address\":\"vsock://1\"}"), -EBADMSG, 0 },
		{ T("unix://relative"), -EBADMSG, 0 },
		{ T("unix:///a\0b"), -EBADMSG, 0 },
		{ T("unix:///a b"), -EBADMSG, 0 },
		{ T(""), -EPROTONOSUPPORT, 0 }, /* a protobuf message without a word */
		{ T("panic: something"), -EBADMSG, 0 },
#undef T
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct shim s = { 0 };
		int r = shim_parse_start(&s, cases[i].text, cases[i].len, &err);
		if (r != cases[i].result)
			fail_msg("\"%s\": %d", cases[i].text, r);
		if (r == 0) {
			assert_string_equal(s.address, "unix:///run/x/s");
			assert_int_equal(s.version, cases[i].version);
		}
	}
	char longest[ADDRESS_MAX + 32] = "unix:///";
	memset(longest + 8, 'x', sizeof(longest) - 9);
	struct shim s = { 0 };
	assert_int_equal(shim_parse_start(&s, longest, sizeof(longest) - 1, &err), -EBADMSG);
}

static void test_kinds(void **state)
{
	char path[PATH_MAX];
	assert_null(runtime_find("docker"));
	for (unsigned i = 0; runtime_nth(i); i++) {
		struct runtime_probe p;
		assert_ptr_equal(runtime_find(runtime_nth(i)->name), runtime_nth(i));
		runtime_probe(runtime_nth(i), &p);
		assert_int_equal(p.works, *p.why == '\0');
	}
	const char *was = getenv("BOUGH_DEFAULT_RUNTIME");
	char *before = was ? strdup(was) : NULL;
	(void)setenv("BOUGH_DEFAULT_RUNTIME", "crun", 1);
	assert_string_equal(runtime_default(), "crun");
	(void)setenv("BOUGH_DEFAULT_RUNTIME", "docker", 1);
	assert_non_null(runtime_find(runtime_default()));
	if (before)
		(void)setenv("BOUGH_DEFAULT_RUNTIME", before, 1);
	else
		(void)unsetenv("BOUGH_DEFAULT_RUNTIME");
	free(before);
	assert_int_equal(runtime_program(path, sizeof(path), "sh"), 0);
	assert_int_equal(runtime_program(path, 3, "sh"), -ENOENT);
	assert_int_equal(runtime_program(path, sizeof(path), "no-such-program"), -ENOENT);
	/* Names that would lead out of the folders of a shim. */
	static const char *const bad[] = { "", ".", "..", "a/b", "-x", "a b" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct shim s;
		struct shim_config c = {
			.kind = runtime_nth(0), .ns = bad[i], .id = "a", .bundle = "/x/a"
		};
		assert_int_equal(shim_fill(&s, &c, &err), -EINVAL);
		c.ns = "a";
		c.id = bad[i];
		assert_int_equal(shim_fill(&s, &c, &err), -EINVAL);
	}
	struct shim s;
	struct shim_config c = { .kind = runtime_nth(0), .ns = "n", .id = "a", .bundle = "/x/b" };
	assert_int_equal(shim_fill(&s, &c, &err), -EINVAL);
	c.bundle = "a";
	assert_int_equal(shim_fill(&s, &c, &err), -EINVAL);
	c.bundle = "/x/a";
	assert_int_equal(shim_fill(&s, &c, &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request), cmocka_unit_test(test_headers),
		cmocka_unit_test(test_codes),   cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_stop),    cmocka_unit_test(test_halves),
		cmocka_unit_test(test_connect), cmocka_unit_test(test_start_replies),
		cmocka_unit_test(test_kinds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
