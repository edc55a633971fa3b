#include "tests/unit/store_tools.h"

#include "fs/store/chunk.h"

struct cut {
	uint64_t off;
	size_t len;
	bool zero;
};

/* Cuts p[0..n), showing chunk_next at most `look` bytes. */
static size_t cut_all(const uint8_t *p, size_t n, size_t look, struct cut *out, size_t max)
{
	size_t k = 0;
	bool zero = false;
	for (size_t off = 0; off < n; k++) {
		size_t see = n - off < look ? n - off : look;
		size_t len = chunk_next(p + off, see, &zero);
		assert_true(len >= 1 && len <= see);
		assert_true(zero || len <= CHUNK_MAX);
		assert_int_equal(zero, chunk_is_zero(p + off, len) && zero);
		assert_true(k < max);
		out[k] = (struct cut){ off, len, zero };
		off += len;
	}
	return k;
}

enum { SIZE = 24 << 20, CUTS = 2000 };

static uint8_t *random_bytes_of(uint64_t n, size_t len)
{
	uint8_t *p = malloc(len);
	content(n * 2 + 1, p, len);
	return p;
}

static void test_sizes(void **state)
{
	uint8_t *p = random_bytes_of(1, SIZE);
	static struct cut c[CUTS];
	size_t n = cut_all(p, SIZE, SIZE, c, CUTS);
	for (size_t i = 0; i + 1 < n; i++) {
		assert_true(c[i].len >= CHUNK_MIN && c[i].len <= CHUNK_MAX);
		assert_false(c[i].zero);
	}
	print_message("%zu chunks of %zu bytes\n", n, SIZE / n);
	assert_true(SIZE / n > CHUNK_AVG * 7 / 10 && SIZE / n < CHUNK_AVG * 13 / 10);
	free(p);
}

/* Where the first cuts fall is part of what makes two hosts' snapshots share chunks. */
static void test_known_cuts(void **state)
{
	uint8_t *p = random_bytes_of(2, 4 << 20);
	static struct cut c[CUTS];
	(void)cut_all(p, 4 << 20, SIZE, c, CUTS);
	static const size_t known[] = { 263177, 314842, 381048, 274629, 283687, 285393 };
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert_int_equal(c[i].len, known[i]);
	free(p);
}

/* An inserted byte changes the chunk it lies in, and perhaps the next one; then the cuts meet. */
static void test_insertion(void **state)
{
	uint8_t *p = random_bytes_of(3, SIZE + 1);
	static struct cut a[CUTS], b[CUTS];
	size_t at = SIZE / 3;
	size_t n = cut_all(p, SIZE, SIZE, a, CUTS);
	memmove(p + at + 1, p + at, SIZE - at);
	p[at] ^= 1;
	size_t m = cut_all(p, SIZE + 1, SIZE, b, CUTS);
	size_t same = 0, j = 0;
	for (size_t i = 0; i < n; i++) {
		uint64_t off = a[i].off + (a[i].off > at);
		while (j < m && b[j].off < off)
			j++;
		same += j < m && b[j].off == off && b[j].len == a[i].len;
	}
	assert_true(n - same <= 4);
	free(p);
}

/* What the caller's buffer shows beyond CHUNK_LOOK changes nothing. */
static void test_windows(void **state)
{
	enum { LEN = 12 << 20 };
	uint8_t *p = random_bytes_of(4, LEN);
	uint64_t seed = 7;
	static struct cut a[CUTS], b[CUTS];
	for (int round = 0; round < 20; round++) {
		/* Runs of zeros of any length and place. */
		size_t from = (size_t)(rnd(&seed) % LEN), len = (size_t)(rnd(&seed) % (400 << 10));
		memset(p + from, 0, LEN - from < len ? LEN - from : len);
		size_t n = cut_all(p, LEN, LEN, a, CUTS);
		size_t look = CHUNK_LOOK + (size_t)(rnd(&seed) % 100000);
		size_t m = cut_all(p, LEN, look, b, CUTS);
		/* A long run of zeros may come in several pieces. */
		size_t i = 0, j = 0;
		while (i < n && j < m) {
			assert_int_equal(a[i].off, b[j].off);
			assert_int_equal(a[i].zero, b[j].zero);
			uint64_t end = a[i].off + a[i].len;
			while (a[i].zero && j + 1 < m && b[j].off + b[j].len < end)
				j++;
			assert_int_equal(b[j].off + b[j].len, end);
			i++, j++;
		}
		assert_int_equal(n - i, 0);
		assert_int_equal(m - j, 0);
	}
	free(p);
}

static void test_zeros(void **state)
{
	enum { LEN = 6 << 20 };
	uint8_t *p = calloc(1, LEN);
	static struct cut c[CUTS];
	/* Nothing but zeros. */
	assert_int_equal(cut_all(p, LEN, LEN, c, CUTS), 1);
	assert_true(c[0].zero);
	assert_int_equal(c[0].len, LEN);
	/* A run in the middle is found exactly, at any alignment. */
	for (size_t from = 200000; from < 200011; from++) {
		content(1, p, LEN);
		size_t to = from + CHUNK_ZEROS + from % 3;
		memset(p + from, 0, to - from);
		p[from - 1] = p[to] = 1;
		size_t n = cut_all(p, LEN, LEN, c, CUTS), found = 0;
		for (size_t i = 0; i < n; i++)
			if (c[i].zero) {
				found++;
				assert_int_equal(c[i].off, from);
				assert_int_equal(c[i].len, to - from);
			}
		assert_int_equal(found, 1);
	}
	/* One that is a byte too short is content. */
	content(1, p, LEN);
	memset(p + 200000, 0, CHUNK_ZEROS - 1);
	p[199999] = p[200000 + CHUNK_ZEROS - 1] = 1;
	size_t n = cut_all(p, LEN, LEN, c, CUTS);
	for (size_t i = 0; i < n; i++)
		assert_false(c[i].zero);
	/* A short tail of zeros is a piece of zeros when it stands alone. */
	bool zero = false;
	memset(p, 0, 100);
	assert_int_equal(chunk_next(p, 100, &zero), 100);
	assert_true(zero);
	free(p);
}

static void test_is_zero(void **state)
{
	uint8_t b[300] = { 0 };
	assert_true(chunk_is_zero(b, 0));
	for (size_t n = 1; n <= sizeof(b); n++) {
		assert_true(chunk_is_zero(b, n));
		b[n - 1] = 1;
		assert_false(chunk_is_zero(b, n));
		b[n - 1] = 0;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),     cmocka_unit_test(test_known_cuts),
		cmocka_unit_test(test_insertion), cmocka_unit_test(test_windows),
		cmocka_unit_test(test_zeros),     cmocka_unit_test(test_is_zero),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
