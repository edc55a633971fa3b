#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/work/stack.h"
#include "tests/unit/oom.h"

/* A local layer, a delta of three parts, a local one, a delta of one. */
static void sample(struct stack *s)
{
	struct digest parts[3];
	for (unsigned i = 0; i < 3; i++)
		memset(parts[i].b, (int)(0xa0 + i), sizeof(parts[i].b));
	*s = (struct stack){ .seed = UINT64_C(0x1122334455667788) };
	memset(s->image.b, 0x42, sizeof(s->image.b));
	struct layer_id id = { "layer number 00" };
	for (unsigned i = 0; i < 4; i++) {
		id.b[14] = (uint8_t)('0' + i);
		assert_int_equal(stack_push(s, &id, i % 2 == 0, parts, i % 2 ? 4 - i : 0), 0);
	}
}

static void assert_same(const struct stack *a, const struct stack *b)
{
	assert_int_equal(a->seed, b->seed);
	assert_memory_equal(&a->image, &b->image, sizeof(a->image));
	assert_int_equal(a->nlayers, b->nlayers);
	for (uint32_t i = 0; i < a->nlayers; i++) {
		const struct stack_layer *x = &a->layers[i], *y = &b->layers[i];
		assert_memory_equal(&x->id, &y->id, sizeof(x->id));
		assert_int_equal(x->local, y->local);
		assert_int_equal(x->nparts, y->nparts);
		if (x->nparts)
			assert_memory_equal(x->parts, y->parts, x->nparts * sizeof(*x->parts));
	}
}

static void round_trip(void **state)
{
	(void)state;
	auto_stack s = { 0 }, got = { 0 }, copy = { 0 }, empty = { 0 };
	auto_buf b = { 0 };
	sample(&s);
	buf_u8(&b, 'x'); /* it appends */
	stack_encode(&s, &b);
	assert_int_equal(stack_decode(&got, b.data + 1, b.len - 1), 0);
	assert_same(&s, &got);
	assert_false(stack_is_saved(&s));
	assert_int_equal(stack_copy(&copy, &s), 0);
	assert_same(&s, &copy);
	buf_reset(&b);
	stack_encode(&empty, &b);
	stack_done(&got);
	assert_int_equal(stack_decode(&got, b.data, b.len), 0);
	assert_same(&empty, &got);
	assert_true(stack_is_saved(&got));
	struct digest d = { "part" };
	struct layer_id id = { "delta" };
	assert_int_equal(stack_push(&got, &id, false, &d, 1), 0);
	assert_true(stack_is_saved(&got));
}

static void set_check(uint8_t *p, size_t n)
{
	le_put64(p + n - 8, hash_xxh3(p, n - 8, 0));
}

static void refused(void **state)
{
	(void)state;
	auto_stack s = { 0 };
	auto_buf b = { 0 };
	struct stack got = { .seed = 7 };
	sample(&s);
	stack_encode(&s, &b);
	for (size_t n = 0; n < b.len; n++) {
		auto_free uint8_t *cut = malloc(n ? n : 1);
		memcpy(cut, b.data, n);
		assert_int_equal(stack_decode(&got, cut, n), -EBADMSG);
		if (n >= 8) { /* with a check that is right */
			set_check(cut, n);
			assert_int_equal(stack_decode(&got, cut, n), -EBADMSG);
		}
	}
	for (size_t i = 0; i < b.len; i++) {
		b.data[i] ^= 0x10;
		assert_int_equal(stack_decode(&got, b.data, b.len), -EBADMSG);
		b.data[i] ^= 0x10;
	}
	static const struct {
		size_t at;
		uint8_t value;
	} bad[] = {
		{ 0, 'b' },          /* magic */
		{ 8, 2 },            /* version */
		{ 12, 5 },           /* one layer more than there is */
		{ 12, 3 },           /* one less */
		{ 13, 2 },           /* 516 layers */
		{ 56 + 16, 2 },      /* neither local nor a delta */
		{ 56 + 16, 0 },      /* a delta without parts */
		{ 56 + 21 + 16, 1 }, /* a local layer with parts */
		{ 56 + 21 + 17, 4 }, /* a part more */
		{ 56 + 21 + 19, 2 }, /* 131075 parts */
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t was = b.data[bad[i].at];
		b.data[bad[i].at] = bad[i].value;
		set_check(b.data, b.len);
		assert_int_equal(stack_decode(&got, b.data, b.len), -EBADMSG);
		b.data[bad[i].at] = was;
	}
	set_check(b.data, b.len);
	assert_int_equal(got.seed, 7); /* untouched so far */
	assert_int_equal(stack_decode(&got, b.data, b.len), 0);
	stack_done(&got);
}

static void limits(void **state)
{
	(void)state;
	auto_stack s = { 0 };
	struct layer_id id = { "a layer" };
	for (unsigned i = 0; i < STACK_LAYERS_MAX; i++)
		assert_int_equal(stack_push(&s, &id, true, NULL, 0), 0);
	assert_int_equal(stack_push(&s, &id, true, NULL, 0), -E2BIG);
	assert_int_equal(s.nlayers, STACK_LAYERS_MAX);
}

static void no_memory(void **state)
{
	(void)state;
	auto_stack s = { 0 };
	auto_buf b = { 0 };
	sample(&s);
	stack_encode(&s, &b);
	for (uint64_t n = 1;; n++) {
		struct stack got = { 0 }, copy = { 0 };
		oom_at(n);
		int r = stack_decode(&got, b.data, b.len);
		if (r == 0)
			r = stack_copy(&copy, &got);
		bool hit = oom_hit();
		assert_int_equal(r, hit ? -ENOMEM : 0);
		stack_done(&got);
		stack_done(&copy);
		if (!hit)
			break;
	}
}

static void delta_id(void **state)
{
	(void)state;
	struct digest parts[2] = { { "one" }, { "two" } }, whole;
	struct layer_id a, b;
	layer_delta_id(&a, parts, 2);
	hash_sha256(&whole, parts, sizeof(parts));
	assert_memory_equal(a.b, whole.b, LAYER_ID_BYTES);
	layer_delta_id(&b, parts, 1);
	assert_memory_not_equal(a.b, b.b, LAYER_ID_BYTES);
}

static void golden(void **state)
{
	(void)state;
	char path[600];
	const char *src = getenv("BOUGH_SRC");
	auto_stack s = { 0 };
	auto_buf b = { 0 };
	auto_free void *want = NULL;
	size_t n;
	sample(&s);
	stack_encode(&s, &b);
	(void)snprintf(path, sizeof(path), "%s/tests/golden/stack-v1", src ? src : ".");
	if (getenv("BOUGH_GOLDEN")) { /* a new version of the format */
		auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		assert_int_equal(io_write_full(NULL, fd, b.data, b.len, 0), 0);
	}
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 1 << 20, &want, &n, NULL), 0);
	assert_int_equal(n, b.len);
	assert_memory_equal(b.data, want, n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip), cmocka_unit_test(refused),  cmocka_unit_test(limits),
		cmocka_unit_test(no_memory),  cmocka_unit_test(delta_id), cmocka_unit_test(golden),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
