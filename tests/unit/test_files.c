/* Headers, forms and codings of the files' API. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/rfc3339.h"
#include "snapd/files_code.h"
#include "snapd/files_form.h"
#include "snapd/files_head.h"
#include "snapd/tus_head.h"

static void ranges(void **state)
{
	static const struct {
		const char *value;
		uint64_t size;
		enum head_range kind;
		uint64_t off, len;
	} table[] = {
		{ NULL, 10, RANGE_ALL, 0, 0 },
		{ "bytes=0-", 10, RANGE_ONE, 0, 10 },
		{ "bytes=0-0", 10, RANGE_ONE, 0, 1 },
		{ "Bytes = 2-4", 10, RANGE_ONE, 2, 3 },
		{ "bytes=2-400", 10, RANGE_ONE, 2, 8 },
		{ "bytes=9-9", 10, RANGE_ONE, 9, 1 },
		{ "bytes=10-", 10, RANGE_NEVER, 0, 0 },
		{ "bytes=10-11", 10, RANGE_NEVER, 0, 0 },
		{ "bytes=0-", 0, RANGE_NEVER, 0, 0 },
		{ "bytes=-3", 10, RANGE_ONE, 7, 3 },
		{ "bytes=-30", 10, RANGE_ONE, 0, 10 },
		{ "bytes=-0", 10, RANGE_NEVER, 0, 0 },
		{ "bytes=-1", 0, RANGE_NEVER, 0, 0 },
		{ "bytes=3-2", 10, RANGE_ALL, 0, 0 },
		{ "bytes=-", 10, RANGE_ALL, 0, 0 },
		{ "bytes=", 10, RANGE_ALL, 0, 0 },
		{ "bytes=a-b", 10, RANGE_ALL, 0, 0 },
		{ "bytes=1-2x", 10, RANGE_ALL, 0, 0 },
		{ "bytes=1-2,4-5", 10, RANGE_ALL, 0, 0 },
		{ "lines=1-2", 10, RANGE_ALL, 0, 0 },
		{ "bytes=1-99999999999999999999999", 10, RANGE_ONE, 1, 9 },
		{ "bytes=99999999999999999999999-", 10, RANGE_NEVER, 0, 0 },
		{ "bytes=0-18446744073709551615", UINT64_MAX, RANGE_ONE, 0, UINT64_MAX },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		uint64_t off = 0, len = 0;
		assert_int_equal(head_range(table[i].value, table[i].size, &off, &len),
				 table[i].kind);
		assert_int_equal(off, table[i].off);
		assert_int_equal(len, table[i].len);
	}
}

static void tags(void **state)
{
	static const struct {
		const char *value;
		int n; /* -1: malformed; 0: any */
	} table[] = {
		{ "*", 0 },
		{ " * ", 0 },
		{ "\"a\"", 1 },
		{ "W/\"a\"", 1 },
		{ "\"\"", 1 },
		{ "\"a\" , \"b\"", 2 },
		{ "\"a\",,\"b\"", 2 },
		{ "\"a,b\"", 1 },
		{ "", -1 },
		{ "a", -1 },
		{ "\"a", -1 },
		{ "\"a\" \"b\"", -1 },
		{ "*,\"a\"", -1 },
		{ "w/\"a\"", -1 },
		{ "\"a\"x", -1 },
		{ "W/", -1 },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct head_tags t;
		int r = head_tags_parse(&t, table[i].value);
		assert_int_equal(r, table[i].n < 0 ? -EINVAL : 0);
		if (r == 0) {
			assert_int_equal(t.any, table[i].n == 0);
			assert_int_equal(t.n, table[i].n);
		}
	}
	struct version_id v = { .ino = 0x2a, .gen = 3, .ctime_ns = 0x1234 }, back;
	for (enum coding c = 0; c < CODINGS; c++) {
		char text[HEAD_TAG_TEXT];
		struct head_tags t;
		enum coding got;
		assert_int_equal(head_tags_parse(&t, head_tag_text(text, &v, c)), 0);
		assert_int_equal(head_tag_read(&t.tags[0], &back, &got), 0);
		assert_true(version_equal(&v, &back));
		assert_int_equal(got, c);
	}
	static const char *const foreign[] = { "\"2a.3.1234-br\"", "\"2a.3.1234-\"", "\"x\"",
					       "\"2a.3.1234-identity\"" };
	for (size_t i = 0; i < 4; i++) {
		struct head_tags t;
		enum coding got;
		assert_int_equal(head_tags_parse(&t, foreign[i]), 0);
		assert_int_equal(head_tag_read(&t.tags[0], &back, &got), -EINVAL);
	}
	/* More than anybody needs. */
	struct buf many = { 0 };
	struct head_tags t;
	for (int i = 0; i <= HEAD_TAGS_MAX; i++)
		buf_printf(&many, "\"%d\",", i);
	buf_u8(&many, 0);
	assert_int_equal(head_tags_parse(&t, (const char *)many.data), -EINVAL);
	buf_done(&many);
}

static void codings(void **state)
{
	static const struct {
		const char *value;
		enum coding c;
	} accepts[] = {
		{ NULL, CODING_IDENTITY },
		{ "", CODING_IDENTITY },
		{ "gzip", CODING_GZIP },
		{ "x-gzip", CODING_GZIP },
		{ "deflate, GZIP, br, zstd", CODING_ZSTD },
		{ "gzip;q=1.0, zstd;q=0.5", CODING_GZIP },
		{ "gzip ; q=0.4,zstd; q=0.5", CODING_ZSTD },
		{ "gzip;q=0", CODING_IDENTITY },
		{ "gzip;q=0.000", CODING_IDENTITY },
		{ "identity, gzip;q=0.5", CODING_IDENTITY },
		{ "identity;q=0, gzip;q=0.001", CODING_GZIP },
		{ "*", CODING_IDENTITY },
		{ ",,;;=,gzip", CODING_GZIP },
		{ "gzipx", CODING_IDENTITY },
	}, is[] = {
		{ NULL, CODING_IDENTITY },
		{ "identity", CODING_IDENTITY },
		{ " gzip ", CODING_GZIP },
		{ "X-GZIP", CODING_GZIP },
		{ "zstd", CODING_ZSTD },
		{ "br", CODING_UNKNOWN },
		{ "gzip, zstd", CODING_UNKNOWN },
	};
	for (size_t i = 0; i < sizeof(accepts) / sizeof(accepts[0]); i++)
		assert_int_equal(head_accepts(accepts[i].value), accepts[i].c);
	for (size_t i = 0; i < sizeof(is) / sizeof(is[0]); i++)
		assert_int_equal(head_coding(is[i].value), is[i].c);
}

static void digests(void **state)
{
	static const char good[] = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
	static const struct {
		const char *value;
		int r;
	} table[] = {
		{ NULL, 0 },
		{ "", 0 },
		{ "sha-512=:aaaa:", 0 },
		{ "md5=:aaaa:, sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=: ,x", 1 },
		{ "sha-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", -EINVAL },
		{ "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuF==:", -EINVAL },
		{ "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV=:", -EINVAL },
		{ "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSu*U=:", -EINVAL },
		{ "sha-256=::", -EINVAL },
		{ "sha-256=", -EINVAL },
	};
	struct digest d, empty;
	char text[HEAD_DIGEST_TEXT];
	hash_sha256(&empty, "", 0);
	assert_int_equal(head_digest(good, &d), 1);
	assert_true(digest_equal(&d, &empty));
	assert_string_equal(head_digest_text(text, &d), good);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		assert_int_equal(head_digest(table[i].value, &d), table[i].r);
	assert_true(head_wants_digest("sha-512=3, sha-256=10"));
	assert_false(head_wants_digest("sha-256=0"));
	assert_false(head_wants_digest("sha-512=1"));
	assert_false(head_wants_digest(NULL));
	assert_false(head_wants_digest("sha-256="));
}

static void dates(void **state)
{
	char text[HEAD_DATE], time[RFC3339_SIZE];
	struct timespec t = { 784111777, 5 };
	assert_string_equal(head_date(text, 784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
	assert_string_equal(head_date(text, INT64_MAX), "");
	assert_string_equal(rfc3339_text(time, &t), "1994-11-06T08:49:37.000000005Z");
}

static void tus(void **state)
{
	static const struct {
		const char *text;
		int64_t n; /* -1: none */
	} numbers[] = {
		{ "0", 0 },
		{ "007", 7 },
		{ "9223372036854775807", INT64_MAX },
		{ "9223372036854775808", -1 },
		{ "", -1 },
		{ "-1", -1 },
		{ "1 ", -1 },
		{ "0x1", -1 },
	};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t n;
		int r = tus_number(numbers[i].text, &n);
		assert_int_equal(r, numbers[i].n < 0 ? -EINVAL : 0);
		if (r == 0)
			assert_int_equal(n, numbers[i].n);
	}
	static const struct {
		const char *text;
		int r;
		const char *value;
	} table[] = {
		{ "", 0, NULL },
		{ "path YQ==", 0, "a" },
		{ "x YQ==,path YWI=", 0, "ab" },
		{ "x, path YWJj ,y", 0, "abc" },
		{ "path", 0, "" },
		{ "paths YQ==", 0, NULL },
		{ "path YQ==,path YQ==", -EINVAL, NULL },
		{ "path YQ", -EINVAL, NULL },
		{ "path Y===", -EINVAL, NULL },
		{ "path YQ==YQ==", -EINVAL, NULL },
		{ "path Y=Q=", -EINVAL, NULL },
		{ "path AAAA", -EINVAL, NULL },
		{ "path Y Q=", -EINVAL, NULL },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		char *value = NULL;
		assert_int_equal(tus_metadata(table[i].text, "path", &value), table[i].r);
		if (table[i].value)
			assert_string_equal(value, table[i].value);
		else
			assert_null(value);
		free(value);
	}
	uint8_t sum[TUS_DIGEST_MAX];
	assert_int_equal(tus_checksum("sha1 2jmj7l5rSw0yVb/vlWAYkK/YBwk=", sum), 20);
	assert_int_equal(sum[0], 0xda);
	assert_int_equal(tus_checksum("sha256 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", sum),
			 32);
	assert_int_equal(tus_checksum("sha1 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", sum),
			 -EINVAL);
	assert_int_equal(tus_checksum("sha256 2jmj7l5rSw0yVb/vlWAYkK/YBwk=", sum), -EINVAL);
	assert_int_equal(tus_checksum("sha1", sum), -EINVAL);
	assert_int_equal(tus_checksum("md5 aaaa", sum), -ENOTSUP);
}

/* ---- forms ---- */

static int collect(void *ctx, const void *data, size_t n, struct err *err)
{
	buf_add(ctx, data, n);
	return 0;
}

/* All parts as text: "name=bytes|name=bytes|". */
static int begin_part(void *ctx, const char *name, size_t len, struct err *err)
{
	buf_printf(ctx, "|%.*s=", (int)len, name);
	return len == 4 && memcmp(name, "stop", 4) == 0 ? -ECANCELED : 0;
}

static void all_parts(void **state)
{
	static const struct {
		const char *body, *parts;
		int r;
	} table[] = {
		{ "--X\r\nContent-Disposition: form-data; name=\"a b\"\r\n\r\n1\r\n"
		  "--X\r\nContent-Disposition: form-data; name=b; filename=\"name=c\"\r\n\r\n\r\n"
		  "--X\r\nContent-Type: x/y\r\n\r\n3\r\n--X--",
		  "|a b=1|b=|=3", 0 },
		{ "--X--", "", 0 },
		{ "--X\r\nContent-Disposition: form-data; name=stop\r\n\r\n1\r\n--X--", "|stop=",
		  -ECANCELED },
		{ "--X\r\nContent-Disposition: form-data; name=a\r\n\r\n1", "|a=1", -EINVAL },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		for (size_t piece = 1; piece < 40; piece++) {
			struct form f;
			struct buf out = { 0 };
			struct err err = { 0 };
			size_t n = strlen(table[i].body);
			int r = 0;
			form_init(&f, "X");
			form_all(&f, begin_part, &out);
			for (size_t at = 0; r == 0 && at < n; at += piece)
				r = form_feed(&f, table[i].body + at,
					      n - at < piece ? n - at : piece, collect, &out, &err);
			if (r == 0)
				r = form_finish(&f, &err);
			buf_u8(&out, 0);
			assert_int_equal(r, table[i].r);
			assert_string_equal((char *)out.data, table[i].parts);
			buf_done(&out);
		}
}

/* Fed in pieces of that size: what the file is, or NULL where the form is refused. */
static char *feed(const char *boundary, const char *body, size_t piece)
{
	struct form *f = malloc(sizeof(*f));
	struct buf out = { 0 };
	struct err err = { 0 };
	int r = 0;
	assert_non_null(f);
	form_init(f, boundary);
	for (size_t at = 0, n = strlen(body); r == 0 && at < n; at += piece)
		r = form_feed(f, body + at, n - at < piece ? n - at : piece, collect, &out, &err);
	if (r == 0)
		r = form_finish(f, &err);
	free(f);
	buf_u8(&out, 0);
	if (r == 0)
		return (char *)out.data;
	assert_int_equal(r, -EINVAL);
	assert_true(err.text[0]);
	buf_done(&out);
	return NULL;
}

#define PART       "--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n"
#define OTHER_PART "--X\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nno\r\n"

static void forms(void **state)
{
	static const struct {
		const char *body, *file;
	} table[] = {
		{ PART "hello\r\n--X--\r\n", "hello" },
		{ PART "hello\r\n--X--", "hello" },
		{ PART "\r\n--X--", "" },
		{ PART "a\r\r\n-\r\n--\r\n--Y\r\n--X--", "a\r\r\n-\r\n--\r\n--Y" },
		{ PART "a\r\n\r\n--X--", "a\r\n" },
		{ OTHER_PART PART "yes\r\n" OTHER_PART "--X--", "yes" },
		{ PART "first\r\n" PART "second\r\n--X--", "first" },
		{ "preamble\r\n" PART "x\r\n--X--epilogue", "x" },
		{ "--X  \r\ncontent-disposition:form-data;filename=\"name=\\\"file\\\"\";"
		  "name=file\r\nX: y\r\n\r\nx\r\n--X--",
		  "x" },
		{ "--X\r\nContent-Disposition: form-data; filename=\"; name=\\\"file\\\"\"\r\n"
		  "\r\nx\r\n--X--",
		  NULL },
		{ "", NULL },
		{ "--X--", NULL },
		{ "--X\r\n\r\nx\r\n--X--", NULL },
		{ OTHER_PART "--X--", NULL },
		{ PART "cut off", NULL },
		{ PART "x\r\n--X", NULL },
		{ PART "x\r\n--Xy", NULL },
		{ PART "x\r\n--X\n", NULL },
		{ "--X\r\nno end of head", NULL },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		for (size_t piece = 1; piece < 40; piece++) {
			auto_free char *got = feed("X", table[i].body, piece);
			if (!table[i].file)
				assert_null(got);
			else
				assert_string_equal(got, table[i].file);
		}
	struct buf head = { 0 };
	buf_printf(&head, "--X\r\nA: ");
	for (int i = 0; i < FORM_HEAD_MAX; i++)
		buf_u8(&head, 'x');
	buf_u8(&head, 0);
	assert_null(feed("X", (const char *)head.data, 100));
	buf_done(&head);
}

static void boundaries(void **state)
{
	static const struct {
		const char *type;
		int r;
		const char *boundary;
	} table[] = {
		{ NULL, 0, NULL },
		{ "text/plain; boundary=x", 0, NULL },
		{ "multipart/form-data; boundary=x", 1, "x" },
		{ "Multipart/Form-Data;charset=utf-8 ; Boundary=\"a b\"", 1, "a b" },
		{ "multipart/form-data;x=\"boundary=y\";boundary=z", 1, "z" },
		{ "multipart/form-data", -EINVAL, NULL },
		{ "multipart/form-data; boundary=", -EINVAL, NULL },
		{ "multipart/form-data; boundary=\"", -EINVAL, NULL },
		{ "multipart/form-data; boundary=0123456789012345678901234567890123456789"
		  "0123456789012345678901234567890",
		  -EINVAL, NULL },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		char out[HEAD_BOUNDARY];
		assert_int_equal(head_boundary(table[i].type, out), table[i].r);
		if (table[i].r > 0)
			assert_string_equal(out, table[i].boundary);
	}
}

/* ---- codings ---- */

/* All that a coder makes of the bytes, fed and taken in pieces; -EINVAL … */
static int code(enum coding c, bool decode, const uint8_t *in, size_t n, size_t piece,
		struct buf *out, bool *whole)
{
	struct coder *k;
	struct err err = { 0 };
	uint8_t room[777];
	ssize_t made = 0;
	assert_int_equal(coder_new(&k, c, decode, &err), 0);
	for (size_t at = 0; made >= 0; at += piece) {
		size_t left = at < n ? n - at : 0, take = left < piece ? left : piece;
		const uint8_t *p = in + (at < n ? at : n);
		bool last = left == take;
		while ((made = coder_step(k, &p, &take, last, room, sizeof(room), &err)) > 0)
			buf_add(out, room, (size_t)made);
		if (made == 0 && take > 0)
			made = -EPROTO; /* it goes on behind the end */
		if (last)
			break;
	}
	*whole = coder_whole(k);
	coder_free(k);
	return (int)made;
}

static void round_trips(void **state)
{
	static const size_t sizes[] = { 0, 1, 255, 4096, 100000 };
	for (enum coding c = CODING_GZIP; c < CODINGS; c++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (size_t piece = 100; piece <= 100000; piece *= 10) {
				struct buf in = { 0 }, coded = { 0 }, out = { 0 };
				bool whole;
				for (size_t j = 0; j < sizes[i]; j++)
					buf_u8(&in, (uint8_t)(j * j >> 7));
				assert_int_equal(
					code(c, false, in.data, in.len, piece, &coded, &whole), 0);
				assert_true(whole && coded.len > 0);
				assert_int_equal(code(c, true, coded.data, coded.len, piece, &out,
						      &whole),
						 0);
				assert_true(whole);
				assert_int_equal(out.len, in.len);
				assert_true(in.len == 0 || !memcmp(in.data, out.data, in.len));
				/* Cut off, it isn't whole. */
				buf_reset(&out);
				int r = code(c, true, coded.data, coded.len - 1, piece, &out,
					     &whole);
				assert_true(r < 0 || !whole);
				/* Two behind each other are one. */
				size_t n = coded.len;
				for (size_t j = 0; j < n; j++)
					buf_u8(&coded, coded.data[j]);
				buf_reset(&out);
				assert_int_equal(code(c, true, coded.data, coded.len, piece, &out,
						      &whole),
						 0);
				assert_true(whole);
				assert_int_equal(out.len, 2 * in.len);
				/* Rubbish isn't. */
				buf_reset(&out);
				assert_int_equal(code(c, true, (const uint8_t *)"rubbish!rubbish!",
						      16, piece, &out, &whole),
						 -EINVAL);
				buf_done(&in);
				buf_done(&coded);
				buf_done(&out);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges),      cmocka_unit_test(tags),
		cmocka_unit_test(codings),     cmocka_unit_test(digests),
		cmocka_unit_test(dates),       cmocka_unit_test(tus),
		cmocka_unit_test(forms),      cmocka_unit_test(boundaries),
		cmocka_unit_test(all_parts),
		cmocka_unit_test(round_trips),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
