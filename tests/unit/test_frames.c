/* Frames of a process's output: whole and in pieces, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tools/bough/frames.h"

static void put(struct buf *b, unsigned type, uint64_t offset, const char *text)
{
	uint8_t head[FRAME_HEAD] = { (uint8_t)type };
	uint32_t n = (uint32_t)strlen(text);
	for (int i = 0; i < 4; i++)
		head[4 + i] = (uint8_t)(n >> (24 - 8 * i));
	for (int i = 0; i < 8; i++)
		head[8 + i] = (uint8_t)(offset >> (56 - 8 * i));
	buf_add(b, head, sizeof(head));
	buf_add(b, text, n);
}

static void in_pieces(void **state)
{
	static const struct {
		unsigned type;
		uint64_t offset;
		const char *text;
	} want[] = { { FRAME_STDOUT, 0, "hello\n" },  { FRAME_STDERR, 0, "" },
		     { FRAME_GAP, 1ULL << 40, "\2" }, { FRAME_ALIVE, 0, "" },
		     { 77, 5, "of a newer daemon" },  { FRAME_END, 0, "{\"exit_code\": 3}" } };
	enum { N = sizeof(want) / sizeof(want[0]) };
	auto_buf all = { 0 };
	for (size_t i = 0; i < N; i++)
		put(&all, want[i].type, want[i].offset, want[i].text);
	for (size_t step = 1; step <= all.len; step++) {
		auto_frames fs = { 0 };
		struct frame f;
		size_t n = 0;
		for (size_t at = 0; at < all.len; at += step) {
			size_t len = all.len - at < step ? all.len - at : step;
			int r = frames_add(&fs, all.data + at, len);
			assert_int_equal(r, 0);
			while ((r = frames_next(&fs, &f)) > 0) {
				assert_true(n < N);
				assert_int_equal(f.type, want[n].type);
				assert_int_equal(f.offset, want[n].offset);
				assert_int_equal(f.length, strlen(want[n].text));
				assert_memory_equal(f.data, want[n].text, f.length);
				n++;
			}
			assert_int_equal(r, 0);
		}
		assert_int_equal(n, N);
	}
}

static void refused(void **state)
{
	static const uint8_t bad[][FRAME_HEAD] = { { 0 },
						   { 1, 1 },
						   { 1, 0, 0, 1 },
						   { 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff },
						   { 1, 0, 0, 0, 0, 0x10, 0, 1 } };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		auto_frames fs = { 0 };
		struct frame f;
		assert_int_equal(frames_add(&fs, bad[i], FRAME_HEAD), 0);
		assert_int_equal(frames_next(&fs, &f), -EBADMSG);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_pieces),
		cmocka_unit_test(refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
