/* Frames of RFC 6455: what is read, what is refused and with which code, in pieces of every size,
 * and that what is written is read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/websocket.h"

/* All events as text: "T'…'" text, "B'…'" a binary message, "P'…'" ping, "O'…'" pong, "C1000'…'"
 * close, "!1002" a failure; bytes of pieces are joined. */
static void read_all(bool masked, const uint8_t *p, size_t n, size_t step, struct buf *out)
{
	struct ws_reader *w = calloc(1, sizeof(*w));
	struct ws_event ev;
	bool in_binary = false, over = false;
	assert_non_null(w);
	w->masked = masked;
	for (size_t at = 0; at < n && !over; at += step) {
		size_t left = n - at < step ? n - at : step;
		uint8_t *piece = malloc(left); /* so that reading beyond it is seen */
		assert_non_null(piece);
		memcpy(piece, p + at, left);
		const uint8_t *q = piece;
		int r = 0;
		while (!over && (r = ws_next(w, &q, &left, &ev)) > 0) {
			if (ev.op != WS_BINARY)
				buf_printf(out, ev.op == WS_TEXT   ? "T'"
						: ev.op == WS_PING ? "P'"
						: ev.op == WS_PONG ? "O'"
								   : "C%u'",
					   ev.code);
			else if (!in_binary)
				buf_printf(out, "B'");
			buf_add(out, ev.data, ev.len);
			in_binary = ev.op == WS_BINARY ? !ev.last : in_binary;
			if (ev.op != WS_BINARY || ev.last)
				buf_printf(out, "'");
			over = ev.op == WS_CLOSE;
		}
		if (r < 0) {
			assert_int_equal(r, -EPROTO);
			buf_printf(out, "!%u", w->fault);
			assert_int_equal(ws_next(w, &q, &left, &ev), -EPROTO); /* for good */
			over = true;
		} else if (!over) {
			assert_int_equal(left, 0);
		}
		free(piece);
	}
	free(w);
	buf_u8(out, 0);
	assert_int_equal(buf_error(out), 0);
}

#define Z "\0\0\0\0" /* a mask that changes nothing */
struct one {
	const char *what, *bytes;
	size_t n;
	const char *wanted;
	bool from_server;
};
#define BYTES(s) s, sizeof(s) - 1

static const struct one table[] = {
	{ "text", BYTES("\x81\x85" Z "Hello"), "T'Hello'", false },
	{ "the masked one of 5.7", BYTES("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"),
	  "T'Hello'", false },
	{ "the unmasked one of 5.7", BYTES("\x81\x05Hello"), "T'Hello'", true },
	{ "fragments", BYTES("\x01\x83" Z "Hel\x80\x82" Z "lo"), "T'Hello'", false },
	{ "a ping between", BYTES("\x01\x83" Z "Hel\x89\x82" Z "hi\x80\x82" Z "lo"),
	  "P'hi'T'Hello'", false },
	{ "binary", BYTES("\x82\x83" Z "a\xff\x62"), "B'a\xff" "b'", false },
	{ "binary in fragments, some empty",
	  BYTES("\x02\x80" Z "\x00\x81" Z "a\x00\x80" Z "\x80\x81" Z "b"), "B'ab'", false },
	{ "an empty message", BYTES("\x82\x80" Z), "B''", false },
	{ "an empty text", BYTES("\x81\x80" Z), "T''", false },
	{ "a pong nobody asked for", BYTES("\x8a\x80" Z "\x81\x81" Z "x"), "O''T'x'", false },
	{ "a close", BYTES("\x88\x85" Z "\x03\xe8" "bye"), "C1000'bye'", false },
	{ "an empty close", BYTES("\x88\x80" Z), "C1005''", false },
	{ "what follows a close isn't read", BYTES("\x88\x80" Z "\xff\xff"), "C1005''", false },
	{ "a private code", BYTES("\x88\x82" Z "\x0f\xa0"), "C4000''", false },
	{ "a character in two fragments", BYTES("\x01\x81" Z "\xc3\x80\x81" Z "\xa9"),
	  "T'\xc3\xa9'", false },
	{ "the last character", BYTES("\x81\x84" Z "\xf4\x8f\xbf\xbf"),
	  "T'\xf4\x8f\xbf\xbf'", false },
	{ "half of a frame", BYTES("\x81\x85" Z "Hel"), "", false },

	{ "no mask", BYTES("\x81\x05Hello"), "!1002", false },
	{ "a server's mask", BYTES("\x81\x85" Z "Hello"), "!1002", true },
	{ "reserved bit 1", BYTES("\xc1\x80" Z), "!1002", false },
	{ "reserved bit 2", BYTES("\xa1\x80" Z), "!1002", false },
	{ "reserved bit 3", BYTES("\x91\x80" Z), "!1002", false },
	{ "reserved kind 3", BYTES("\x83\x80" Z), "!1002", false },
	{ "reserved kind 7", BYTES("\x87\x80" Z), "!1002", false },
	{ "reserved control b", BYTES("\x8b\x80" Z), "!1002", false },
	{ "reserved control f", BYTES("\x8f\x80" Z), "!1002", false },
	{ "a ping in fragments", BYTES("\x09\x80" Z), "!1002", false },
	{ "a close in fragments", BYTES("\x08\x80" Z), "!1002", false },
	{ "a ping of 126", BYTES("\x89\xfe\x00\x7e" Z), "!1002", false },
	{ "a continuation of nothing", BYTES("\x80\x81" Z "x"), "!1002", false },
	{ "text within a message", BYTES("\x01\x81" Z "a\x81\x81" Z "b"), "!1002", false },
	{ "binary within a message", BYTES("\x02\x80" Z "\x82\x81" Z "b"), "!1002", false },
	{ "125 in two bytes", BYTES("\x82\xfe\x00\x7d" Z), "!1002", false },
	{ "65535 in eight", BYTES("\x82\xff\0\0\0\0\0\0\xff\xff" Z), "!1002", false },
	{ "the 64th bit", BYTES("\x82\xff\x80\0\0\0\0\0\0\0" Z), "!1002", false },
	{ "more than is taken", BYTES("\x82\xff\0\0\0\0\x01\0\0\x01" Z), "!1009", false },
	{ "text of 4,097", BYTES("\x81\xfe\x10\x01" Z), "!1009", false },
	{ "text that grows", BYTES("\x01\x81" Z "x\x80\xfe\x10\x00" Z), "!1009", false },
	{ "no UTF-8", BYTES("\x81\x82" Z "\xc0\xaf"), "!1007", false },
	{ "an overlong of three", BYTES("\x81\x83" Z "\xe0\x9f\xbf"), "!1007", false },
	{ "a surrogate", BYTES("\x81\x83" Z "\xed\xa0\x80"), "!1007", false },
	{ "above U+10FFFF", BYTES("\x81\x84" Z "\xf4\x90\x80\x80"), "!1007", false },
	{ "an overlong of four", BYTES("\x81\x84" Z "\xf0\x8f\xbf\xbf"), "!1007", false },
	{ "a character's beginning", BYTES("\x81\x81" Z "\xc3"), "!1007", false },
	{ "a character's rest", BYTES("\x81\x81" Z "\x80"), "!1007", false },
	{ "a close of one byte", BYTES("\x88\x81" Z "\x03"), "!1002", false },
	{ "code 999", BYTES("\x88\x82" Z "\x03\xe7"), "!1002", false },
	{ "code 1004", BYTES("\x88\x82" Z "\x03\xec"), "!1002", false },
	{ "code 1005", BYTES("\x88\x82" Z "\x03\xed"), "!1002", false },
	{ "code 1006", BYTES("\x88\x82" Z "\x03\xee"), "!1002", false },
	{ "code 1015", BYTES("\x88\x82" Z "\x03\xf7"), "!1002", false },
	{ "code 2999", BYTES("\x88\x82" Z "\x0b\xb7"), "!1002", false },
	{ "code 5000", BYTES("\x88\x82" Z "\x13\x88"), "!1002", false },
	{ "a reason that is no text", BYTES("\x88\x83" Z "\x03\xe8\xff"), "!1007", false },
};

static void frames(void **state)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct one *o = &table[i];
		for (size_t step = 1; step <= o->n; step++) {
			auto_buf out = { 0 };
			read_all(!o->from_server, (const uint8_t *)o->bytes, o->n, step, &out);
			if (strcmp((char *)out.data, o->wanted) != 0)
				fail_msg("%s, by %zu: %s, not %s", o->what, step, (char *)out.data,
					 o->wanted);
		}
	}
}

/* Fragments of text without end. */
static void empty_fragments(void **state)
{
	auto_buf in = { 0 }, out = { 0 };
	buf_add(&in, "\x01\x80" Z, 6);
	for (int i = 0; i < WS_FRAGMENTS_MAX; i++)
		buf_add(&in, "\x00\x80" Z, 6);
	read_all(true, in.data, in.len, in.len, &out);
	assert_string_equal((char *)out.data, "!1009");
}

/* What is written is read, in all sizes of length, masked and not, whatever the pieces. */
static void round_trip(void **state)
{
	static const size_t sizes[] = { 0, 1, 125, 126, 127, 4096, 4097, 65535, 65536, 70001 };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (int masked = 0; masked < 2; masked++) {
			uint8_t head[WS_HEAD_MAX];
			static const uint8_t mask[4] = { 0xde, 0xad, 0xbe, 0xef };
			auto_buf in = { 0 }, wanted = { 0 }, got = { 0 };
			size_t n = sizes[i], k = ws_put_head(head, WS_BINARY, n,
							     masked ? mask : NULL);
			buf_add(&in, head, k);
			buf_printf(&wanted, "B'");
			for (size_t j = 0; j < n; j++) {
				uint8_t b = (uint8_t)('a' + j % 23);
				buf_u8(&wanted, b);
				buf_u8(&in, b);
			}
			buf_add(&wanted, "'", 2);
			if (masked) {
				ws_mask(in.data + k, n / 2, mask, 0);
				ws_mask(in.data + k + n / 2, n - n / 2, mask, n / 2);
			}
			read_all(masked, in.data, in.len, 1 + 997 * i, &got);
			assert_int_equal(got.len, wanted.len);
			assert_memory_equal(got.data, wanted.data, got.len);
		}
	}
}

static void closes(void **state)
{
	static const struct {
		unsigned code;
		const char *reason, *wanted;
	} all[] = {
		{ 1000, "", "C1000''" },
		{ 1008, "no", "C1008'no'" },
	};
	uint8_t data[WS_CONTROL_MAX], head[WS_HEAD_MAX];
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		auto_buf in = { 0 }, out = { 0 };
		size_t n = ws_put_close(data, all[i].code, all[i].reason);
		buf_add(&in, head, ws_put_head(head, WS_CLOSE, n, NULL));
		buf_add(&in, data, n);
		read_all(false, in.data, in.len, 1, &out);
		assert_string_equal((char *)out.data, all[i].wanted);
	}
	/* A long one is cut between characters. */
	char reason[200];
	memset(reason, 'x', 122);
	memcpy(reason + 122, "\xc3\xa9\xc3\xa9", 5);
	assert_int_equal(ws_put_close(data, 1000, reason), 2 + 122);
}

static void handshake(void **state)
{
	char out[WS_ACCEPT_SIZE];
	ws_accept("dGhlIHNhbXBsZSBub25jZQ==", out); /* RFC 6455 1.3 */
	assert_string_equal(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
	static const struct {
		const char *key;
		bool is;
	} keys[] = {
		{ "dGhlIHNhbXBsZSBub25jZQ==", true },  { "AAAAAAAAAAAAAAAAAAAAAA==", true },
		{ "AAAAAAAAAAAAAAAAAAAAAB==", false }, { "AAAAAAAAAAAAAAAAAAAAAAA=", false },
		{ "AAAAAAAAAAAAAAAAAAAAA===", false }, { "AAAA", false },
		{ "", false },                          { "AAAAAAAAAAAAAAAAA-AAAA==", false },
		{ "AAAAAAAAAAAAAAAAAAAAAA==A", false },
	};
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (ws_key_is(keys[i].key) != keys[i].is)
			fail_msg("%s", keys[i].key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames),    cmocka_unit_test(empty_fragments),
		cmocka_unit_test(round_trip), cmocka_unit_test(closes),
		cmocka_unit_test(handshake),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
