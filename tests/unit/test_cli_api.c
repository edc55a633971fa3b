/* The command line's side of the API: targets, answers, errors and exit codes, jobs' streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "tests/unit/cli_server.h"
#include "tests/unit/oom.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"
#include "tools/bough/sse.h"

#define JSON(s, b)                                                 \
	{                                                          \
		.status = s, .type = "application/json", .body = b \
	}
#define LINES(b)                                                                   \
	{                                                                          \
		.status = "200 OK", .type = "application/x-ndjson; x=y", .body = b \
	}

static void targets(void **state)
{
	auto_target t = target_new("/v1/workspaces/");
	target_name(&t, "a/b c");
	target_path(&t, "/diff");
	target_query(&t, "against", "x&y");
	target_query(&t, "skip", NULL);
	target_query(&t, "format", "json");
	buf_u8(&t.text, 0);
	assert_string_equal((const char *)t.text.data,
			    "/v1/workspaces/a%2Fb%20c/diff?against=x%26y&format=json");
}

static void errors(void **state)
{
	static const struct {
		struct exchange x;
		int code, exit;
		const char *says;
	} cases[] = {
		{ JSON("404 No", "{\"code\":\"not_found\",\"message\":\"no workspace x\"}"),
		  -ENOENT, 3, "no workspace x: `bough ls`" },
		{ JSON("409 No", "{\"code\":\"exists\",\"message\":\"x is taken\"}"), -EEXIST, 4,
		  "x is taken" },
		{ JSON("409 No", "{\"code\":\"conflict\",\"message\":\"it is both\"}"), -EEXIST, 4,
		  "it is both" },
		{ JSON("409 No", "{\"code\":\"busy\",\"message\":\"in use\"}"), -EBUSY, 5,
		  "in use" },
		{ JSON("507 No", "{\"code\":\"no_space\",\"message\":\"full\"}"), -ENOSPC, 6,
		  "make room" },
		{ JSON("507 No", "{\"code\":\"quota\",\"message\":\"full\"}"), -EDQUOT, 6,
		  "larger quota" },
		{ JSON("400 No", "{\"code\":\"invalid\",\"message\":\"bad; use a\"}"), -EINVAL, 2,
		  "bad; use a" },
		{ JSON("500 No", "{\"code\":\"internal\",\"message\":\"a fault\"}"), -EIO, 1,
		  "a fault" },
		{ JSON("503 No", "{\"code\":\"unavailable\",\"message\":\"no\"}"), -ECONNREFUSED, 1,
		  "no" },
		{ JSON("404 No", "{\"code\":\"new_code\",\"message\":\"strange\"}"), -ENOENT, 3,
		  "strange" },
		/* what keeps no contract */
		{ JSON("500 No", "not json!"), -EIO, 1, "500 without a reason" },
		{ JSON("200 OK", "not json!"), -EPROTO, 1, "isn't JSON" },
		{ JSON("200 OK", "[]"), -EPROTO, 1, "no object" },
		{ JSON("302 Found", "{}"), -EPROTO, 1, "302" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct server s;
		assert_int_equal(server_start(&s, &cases[i].x, 1), 0);
		struct cli cli = { .root = s.root, .json = true };
		struct err err = { 0 };
		auto_target t = target_new("/v1/x");
		int r = api_call(&cli, "GET", &t, NULL, NULL, NULL, &err);
		if (r != cases[i].code || !strstr(err.text, cases[i].says))
			fail_msg("case %zu: %d %s", i, r, err.text);
		assert_int_equal(cli_exit_code(r), cases[i].exit);
		free(cli.detail);
		server_stop(&s);
	}
}

static void calls(void **state)
{
	static const struct exchange script[] = {
		{ .until = "}",
		  .status = "201 Created",
		  .type = "application/json",
		  .body = "{\"id\":7}" },
		{ .answer = "HTTP/1.1 204 No Content\r\n\r\n" },
	};
	struct server s;
	assert_int_equal(server_start(&s, script, 2), 0);
	struct cli cli = { .root = s.root };
	auto_json json_t *body = json_pack("{s:s}", "name", "n"), *doc = NULL, *none = NULL;
	unsigned status = 0;
	struct err err;
	auto_target t = target_new("/v1/workspaces");
	assert_int_equal(api_call(&cli, "POST", &t, body, &doc, &status, &err), 0);
	assert_int_equal(status, 201);
	assert_int_equal(get_int(doc, "id"), 7);
	assert_true(contains(&s.got[0], "POST /v1/workspaces HTTP/1.1\r\n"));
	assert_true(contains(&s.got[0], "Content-Length: 12\r\n"));
	assert_true(contains(&s.got[0], "\r\n\r\n{\"name\":\"n\"}"));
	auto_target u = target_new("/v1/workspaces/n");
	assert_int_equal(api_call(&cli, "DELETE", &u, NULL, &none, &status, &err), 0);
	assert_int_equal(status, 204);
	assert_int_equal(json_object_size(none), 0);
	server_stop(&s);
}

static void jobs(void **state)
{
	static const struct {
		struct exchange x;
		int code;
		const char *says;
	} cases[] = {
		{ LINES("{\"progress\":{\"done\":1,\"total\":2}}\n\n{\"result\":{\"id\":\"x\"}}\n"),
		  0, "" },
		{ LINES("{\"result\":{\"id\":\"x\"}}"), 0, "" },
		{ LINES("{\"new\":1}\n{\"result\":{\"id\":\"x\"}}   "), 0, "" },
		{ JSON("200 OK", "{\"id\":\"x\"}"), 0, "" },
		{ LINES("{\"error\":{\"code\":\"no_space\",\"message\":\"full; free\","
			"\"status\":507}}"),
		  -ENOSPC, "full; free" },
		{ LINES("{\"progress\":{\"done\":1}}\n"), -EPROTO, "without a result" },
		{ { .status = "200 OK",
		    .type = "application/x-ndjson",
		    .cut = true,
		    .body = "{\"progress\":{\"done\":1}}\n" },
		  -ECONNRESET,
		  "in the middle" },
		{ LINES("huh\n"), -EPROTO, "isn't JSON" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct server s;
		assert_int_equal(server_start(&s, &cases[i].x, 1), 0);
		struct cli cli = { .root = s.root, .quiet = true };
		struct err err = { 0 };
		struct progress p;
		progress_begin(&p, &cli, "test");
		auto_json json_t *doc = NULL;
		auto_target t = target_new("/v1/gc");
		int r = api_job(&cli, "POST", &t, NULL, NULL, &p, &doc, &err);
		if (r != cases[i].code || !strstr(err.text, cases[i].says))
			fail_msg("case %zu: %d %s", i, r, err.text);
		if (r == 0)
			assert_string_equal(get_text(doc, "id"), "x");
		assert_true(contains(&s.got[0], "Accept: application/x-ndjson\r\n"));
		free(cli.detail);
		server_stop(&s);
	}
}

/* A wrong field is usage; a wrong archive is a failure of the import. */
static void invalid_uploads(void **state)
{
	static const struct exchange script[] = {
		{ .early = true,
		  .status = "400 No",
		  .type = "application/json",
		  .body = "{\"code\":\"invalid\",\"message\":\"a ../path\"}" },
		{ .early = true,
		  .status = "400 No",
		  .type = "application/json",
		  .body = "{\"code\":\"invalid\",\"message\":\"bad\","
			  "\"details\":{\"field\":\"name\"}}" },
	};
	struct server s;
	assert_int_equal(server_start(&s, script, 2), 0);
	for (int i = 0; i < 2; i++) {
		struct cli cli = { .root = s.root, .quiet = true };
		auto_fd fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		struct http_body body = { .type = "x/y", .fd = fd, .size = -1 };
		struct err err = { 0 };
		json_t *doc = NULL;
		auto_target t = target_new("/v1/import");
		int r = api_job(&cli, "POST", &t, NULL, &body, NULL, &doc, &err);
		if (r != (i ? -EINVAL : -EBADMSG))
			fail_msg("case %d: %d %s", i, r, err.text);
		free(cli.detail);
	}
	server_stop(&s);
}

static void not_utf8(void **state)
{
	auto_json json_t *o = json_object();
	struct err err;
	assert_int_equal(body_text(o, "name", "caf\xc3\xa9", &err), 0);
	assert_int_equal(body_text(o, "name", "caf\xe9", &err), -EINVAL);
	assert_string_equal(get_text(o, "name"), "caf\xc3\xa9");
	assert_string_equal(get_text(o, "absent"), "");
	assert_int_equal(get_int(o, "name"), 0);
	assert_false(get_true(NULL, "x"));
}

struct heard {
	char asked[64]; /* the ids, each behind a blank */
	char data[64];
};

static struct target ask(void *ctx, const char *id)
{
	struct heard *h = ctx;
	size_t n = strlen(h->asked);
	(void)snprintf(h->asked + n, sizeof(h->asked) - n, " %s", id);
	return target_new("/v1/events");
}

static int hear(void *ctx, const char *data, struct err *err)
{
	struct heard *h = ctx;
	size_t n = strlen(h->data);
	(void)snprintf(h->data + n, sizeof(h->data) - n, " %s", data);
	return strcmp(data, "last") != 0;
}

#define EVENTS(...) { .status = "200 OK", .type = "text/event-stream", .body = __VA_ARGS__ }
/* Streams that break off anywhere: nothing is lost, and nothing comes twice. */
static void broken_streams(void **state)
{
	static const struct exchange script[] = {
		EVENTS("id: 0\n: bough\n\nid: 1\nevent: x\ndata: a\n\nid: 2\nevent: x\n",
		       .cut = true),
		EVENTS("id: 2\nevent: x\ndata: b\n", .cut = true),
		EVENTS("id: 3\n: still here\n\nid: 4\n", .cut = true),
		EVENTS("id: 4\nevent: x\ndata: last\n\n"),
	};
	struct server s;
	struct heard h = { 0 };
	struct err err = { 0 };
	assert_int_equal(server_start(&s, script, 4), 0);
	struct cli cli = { .root = s.root };
	struct sse sse = { .cli = &cli, .target = ask, .event = hear, .ctx = &h };
	assert_int_equal(sse_read(&sse, true, &err), 0);
	assert_string_equal(h.data, " a b last");
	assert_string_equal(h.asked, "  1 2 3");
	assert_string_equal(sse.id, "4");
	server_stop(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets),         cmocka_unit_test(errors),
		cmocka_unit_test(calls),           cmocka_unit_test(jobs),
		cmocka_unit_test(invalid_uploads), cmocka_unit_test(not_utf8),
		cmocka_unit_test(broken_streams),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
