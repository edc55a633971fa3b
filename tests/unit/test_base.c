/* err, buf, hash, cleanup, boot, clock, json and log. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/base64.h"
#include "fs/base/boot.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/err.h"
#include "fs/base/hash.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "tests/unit/oom.h"

static void errors(void **state)
{
	struct err err = { 0 };
	assert_int_equal(err_set(&err, -EINVAL, "bad %s %d", "thing", 7), -EINVAL);
	assert_int_equal(err.code, -EINVAL);
	assert_string_equal(err.text, "bad thing 7");
	assert_int_equal(err_sys(&err, -ENOENT, "open %s", "x"), -ENOENT);
	assert_string_equal(err.text, "open x: No such file or directory");
	assert_int_equal(err_prefix(&err, -ENOENT, "load %d", 3), -ENOENT);
	assert_string_equal(err.text, "load 3: open x: No such file or directory");
	assert_int_equal(err_set(NULL, -EIO, "x"), -EIO);
	assert_int_equal(err_sys(NULL, -EIO, "x"), -EIO);
	assert_int_equal(err_prefix(NULL, -EIO, "x"), -EIO);
	/* Long texts are cut, not overrun. */
	char text[1000];
	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&err, -EIO, "%s", text);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	(void)err_sys(&err, -EIO, "%s", text);
	(void)err_prefix(&err, -EIO, "z%s", text);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	assert_int_equal(err.text[0], 'z');
}

static void buffers(void **state)
{
	auto_buf b = { 0 };
	buf_u8(&b, 0x12);
	buf_u16(&b, 0x3456);
	buf_u32(&b, 0x789abcde);
	buf_u64(&b, UINT64_C(0x0123456789abcdef));
	static const uint8_t expected[] = { 0x12, 0x56, 0x34, 0xde, 0xbc, 0x9a, 0x78, 0xef,
					    0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01 };
	assert_int_equal(b.len, sizeof(expected));
	assert_memory_equal(b.data, expected, sizeof(expected));
	struct cur c = cur_init(b.data, b.len);
	assert_int_equal(cur_u8(&c), 0x12);
	assert_int_equal(cur_u16(&c), 0x3456);
	assert_int_equal(cur_u32(&c), 0x789abcde);
	assert_true(cur_u64(&c) == UINT64_C(0x0123456789abcdef));
	assert_false(c.bad);
	assert_int_equal(cur_left(&c), 0);
	assert_int_equal(cur_u8(&c), 0);
	assert_true(c.bad);
	/* A short read takes nothing, and after it nothing is read any more. */
	c = cur_init(expected, 3);
	assert_int_equal(cur_u32(&c), 0);
	assert_true(c.bad);
	assert_int_equal(cur_u8(&c), 0);
	c = cur_init(NULL, 0);
	assert_null(cur_take(&c, 1));
	c = cur_init(expected, 3);
	assert_null(cur_take(&c, SIZE_MAX));
	c = cur_init(expected, 3);
	cur_fail(&c);
	assert_int_equal(cur_u8(&c), 0);
	buf_reset(&b);
	for (int i = 0; i < 1000; i++)
		buf_printf(&b, "%d,", i);
	assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4);
	assert_memory_equal(b.data + b.len - 8, "998,999,", 8);
	assert_int_equal(buf_error(&b), 0);
	buf_add(&b, NULL, 0);
	assert_int_equal(buf_error(&b), 0);
}

static void buffers_without_memory(void **state)
{
	for (uint64_t n = 1;; n++) {
		auto_buf b = { 0 };
		oom_at(n);
		for (int i = 0; i < 300; i++) {
			buf_u64(&b, 1);
			buf_printf(&b, "%0100d", i);
		}
		if (!oom_hit()) {
			assert_int_equal(buf_error(&b), 0);
			assert_int_equal(b.len, 300 * 108);
			break;
		}
		assert_int_equal(buf_error(&b), -ENOMEM);
		buf_reset(&b); /* usable again */
		buf_u8(&b, 1);
		assert_int_equal(buf_error(&b), 0);
		assert_int_equal(b.len, 1);
	}
	auto_buf b = { 0 };
	buf_u8(&b, 1);
	assert_null(buf_room(&b, SIZE_MAX));
	assert_int_equal(buf_error(&b), -ENOMEM);
	buf_reset(&b);
	assert_null(buf_room(&b, SIZE_MAX / 2 + 2));
	auto_buf empty = { 0 };
	assert_non_null(buf_room(&empty, 0)); /* room for nothing isn't a failure */
}

static void hashes(void **state)
{
	static const struct {
		const char *text, *sha256; /* FIPS 180-2, appendix B */
	} rows[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct digest d, back;
		char hex[DIGEST_HEX + 1];
		hash_sha256(&d, rows[i].text, strlen(rows[i].text));
		digest_hex(hex, &d);
		assert_string_equal(hex, rows[i].sha256);
		assert_int_equal(digest_parse(&back, hex), 0);
		assert_true(digest_equal(&d, &back));
		assert_false(digest_is_zero(&d));
	}
	struct digest zero = { 0 }, d = { 0 };
	assert_true(digest_is_zero(&zero));
	static const char *const bad[] = {
		"",
		"e3",
		"E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8555",
		"g3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85 "
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(digest_parse(&d, bad[i]), -EINVAL);
	assert_true(digest_is_zero(&d)); /* untouched by failures */
	/* XXH3's own test value of the empty input, and that the seed counts. */
	assert_true(hash_xxh3("", 0, 0) == UINT64_C(0x2d06800538d394c2));
	assert_true(hash_xxh3("a", 1, 0) != hash_xxh3("a", 1, 1));
	uint8_t r[2][64] = { { 0 } };
	random_bytes(r[0], sizeof(r[0]));
	random_bytes(r[1], sizeof(r[1]));
	assert_memory_not_equal(r[0], r[1], sizeof(r[0]));
}

static void cleanups(void **state)
{
	int raw;
	{
		auto_fd fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		raw = fd;
		auto_fd other = steal_fd(&fd);
		assert_int_equal(fd, -1);
		assert_int_equal(other, raw);
		errno = ERANGE;
	}
	assert_int_equal(errno, ERANGE); /* the close left it alone */
	assert_int_equal(fcntl(raw, F_GETFD), -1);
	auto_free char *p = malloc(3);
	auto_free char *q = steal_ptr(&p);
	assert_null(p);
	assert_non_null(q);
}

/* Runs `f` with stderr in a file; its text. */
static char *captured(void (*f)(void), char *text, size_t size)
{
	auto_file *tmp = tmpfile();
	auto_fd saved = dup(STDERR_FILENO);
	assert_true(tmp && saved >= 0);
	(void)dup2(fileno(tmp), STDERR_FILENO);
	f();
	(void)dup2(saved, STDERR_FILENO);
	ssize_t n = pread(fileno(tmp), text, size - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

static void log_some(void)
{
	log_error("bad %d", 1);
	log_warn("odd");
	log_info("line\nforged ERROR \x1b[31m");
	log_debug("detail");
}

static void log_long(void)
{
	char text[5000];
	memset(text, 'l', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_error("%s", text);
}

static unsigned lines(const char *s)
{
	unsigned n = 0;
	while ((s = strchr(s, '\n')))
		n++, s++;
	return n;
}

static void logs(void **state)
{
	static const struct {
		const char *level;
		unsigned lines;
	} rows[] = { { "error", 1 }, { "warn", 2 }, { "info", 3 }, { "debug", 4 }, { "silly", 3 } };
	char text[4096];
	(void)unsetenv("JOURNAL_STREAM");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		(void)setenv("BOUGH_LOG", rows[i].level, 1);
		log_init("tester");
		assert_int_equal(lines(captured(log_some, text, sizeof(text))), rows[i].lines);
		assert_non_null(strstr(text, "Z ERROR tester["));
		assert_non_null(strstr(text, "]: bad 1\n"));
	}
	assert_non_null(strstr(text, "line?forged ERROR ?[31m\n"));
	(void)unsetenv("BOUGH_LOG");
	log_init("tester");
	(void)captured(log_long, text, sizeof(text));
	assert_int_equal(lines(text), 1);
	assert_in_range(strlen(text), 2000, 2048);
	(void)setenv("JOURNAL_STREAM", "1:2", 1); /* somebody else's stderr */
	log_init("tester");
	assert_null(strstr(captured(log_some, text, sizeof(text)), "<3>"));
	(void)unsetenv("JOURNAL_STREAM");
}

static void boot(void **state)
{
	static const uint8_t other[BOOT_ID_BYTES] = { 1 };
	assert_ptr_equal(boot_id(other), other);
	char text[37] = "", hex[2 * BOOT_ID_BYTES + 1];
	auto_fd fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, text, 36), 36);
	char *to = hex;
	for (const char *p = text; *p; p++)
		if (*p != '-')
			*to++ = *p;
	*to = '\0';
	uint8_t id[BOOT_ID_BYTES];
	assert_int_equal(hex_decode(id, sizeof(id), hex), 0);
	assert_memory_equal(boot_id(NULL), id, sizeof(id));
}

/* RFC 4648, section 10, and what isn't text. */
static void base64(void **state)
{
	static const char *const table[][2] = {
		{ "", "" },          { "f", "Zg==" },         { "fo", "Zm8=" },
		{ "foo", "Zm9v" },   { "foob", "Zm9vYg==" },  { "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" }, { "\xff\xfe\xfd", "//79" },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		auto_free char *s = base64_encode(table[i][0], strlen(table[i][0]));
		char back[8];
		assert_string_equal(s, table[i][1]);
		assert_int_equal(base64_decode(s, strlen(s), back, sizeof(back)),
				 strlen(table[i][0]));
		assert_memory_equal(back, table[i][0], strlen(table[i][0]));
	}
	static const char *const wrong[] = { "Zg", "Zg=", "Zg=a", "Z===", "=aaa", "Zg==Zg==",
					     "Zm9vYmFyZm9v", "Zm\n=", "Zm9-", "Zh==" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char back[8];
		assert_int_equal(base64_decode(wrong[i], strlen(wrong[i]), back, sizeof(back)),
				 -EINVAL);
	}
}

static void clocks(void **state)
{
	for (int64_t ms = 0; ms < 3000; ms += 37) {
		uint64_t before = clock_ns();
		struct timespec t = clock_in_ms(ms);
		uint64_t after = clock_ns(), span = (uint64_t)ms * 1000000;
		assert_in_range(t.tv_nsec, 0, 999999999);
		assert_in_range((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec,
				before + span, after + span);
	}
	pthread_cond_t c;
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	clock_cond_init(&c);
	(void)pthread_mutex_lock(&lock);
	uint64_t begun = clock_ms();
	struct timespec until = clock_in_ms(5);
	while (pthread_cond_timedwait(&c, &lock, &until) != ETIMEDOUT)
		;
	assert_true(clock_ms() >= begun + 5);
	(void)pthread_mutex_unlock(&lock);
	(void)pthread_cond_destroy(&c);
}

/* `n` times `open`, a number, and `n` times `close`. */
static char *nested(int n, const char *open, const char *close)
{
	auto_buf b = { 0 };
	for (int i = 0; i < n; i++)
		buf_add(&b, open, strlen(open));
	buf_u8(&b, '1');
	for (int i = 0; i < n; i++)
		buf_add(&b, close, strlen(close));
	buf_u8(&b, 0);
	assert_int_equal(buf_error(&b), 0);
	char *text = (char *)b.data;
	b = (struct buf){ 0 };
	return text;
}

static void json_nesting(void **state)
{
	static const struct {
		const char *text; /* NULL: nested() */
		int n;
		const char *open, *close, *why; /* NULL: it is good */
	} table[] = {
		{ NULL, JSON_NESTED_MAX, "[", "]", NULL },
		{ NULL, JSON_NESTED_MAX, "{\"a\":", "}", NULL },
		{ NULL, JSON_NESTED_MAX + 1, "[", "]", "nested" },
		{ NULL, JSON_NESTED_MAX + 1, "{\"a\":", "}", "nested" },
		{ NULL, 2000, "[", "]", "nested" },
		{ NULL, 100000, "[{\"a\":", "", "nested" },
		{ "[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[\",[],{}]", 0, "", "", NULL },
		{ "[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],"
		  "[],[],[],[],[],[],[],[],[]]",
		  0, "", "", NULL },
		{ "]]]]]]]", 0, "", "", "near" },
		{ "[\"\\", 0, "", "", "escape" },
		{ "", 0, "", "", "near" },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		json_error_t why = { 0 };
		auto_free char *made = nested(table[i].n, table[i].open, table[i].close);
		const char *text = table[i].text ? table[i].text : made;
		json_t *j = json_parse(text, strlen(text), 0, &why);
		if (!j != !!table[i].why || (!j && !strstr(why.text, table[i].why)))
			fail_msg("%zu: %s", i, why.text);
		json_decref(j);
		j = json_parse(text, strlen(text), 0, NULL);
		assert_int_equal(!j, !!table[i].why);
		json_decref(j);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors),
		cmocka_unit_test(buffers),
		cmocka_unit_test(buffers_without_memory),
		cmocka_unit_test(hashes),
		cmocka_unit_test(cleanups),
		cmocka_unit_test(boot),
		cmocka_unit_test(base64),
		cmocka_unit_test(clocks),
		cmocka_unit_test(json_nesting),
		cmocka_unit_test(logs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
