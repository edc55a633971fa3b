/* A flipped bit in the journal of a workspace that goes on: it opens, and what the bit was about is
 * lost and says so; everything else is there. */
#include "ws_kit.h"

#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/work/layer_impl.h"

static struct err err;

enum { FILES = 6, BIG = 9000 };
static const char *const names[FILES] = { "a", "twice", "d/c", "below", "empty-below", "big" };
static char big[BIG];

/* What the file must show. */
static size_t want(unsigned i, const char **out)
{
	static const char *const texts[FILES] = { "alpha", "second", "see", "under", "no more" };
	*out = i == FILES - 1 ? big : texts[i];
	return i == FILES - 1 ? BIG : strlen(texts[i]);
}

static void fill(struct kit *k)
{
	memset(big, 'b', sizeof(big));
	tree_put(k->ws, "below", "under");
	tree_put(k->ws, "empty-below", "");
	ws_close(kit_fork(k->ws, "child")); /* what was made until now lies in a sealed layer */
	tree_put(k->ws, "a", "alpha");
	tree_put(k->ws, "twice", "first");
	tree_put(k->ws, "twice", "second");
	tree_mk(k->ws, "d", S_IFDIR | 0755);
	tree_put(k->ws, "d/c", "see");
	tree_put(k->ws, "empty-below", "no more");
	tree_write(k->ws, "big", big, 5000, 0);
	tree_write(k->ws, "big", big, BIG - 5000, 5000);
	tree_put(k->ws, "last", "one");
}

/* The name's node; 0: it isn't there. */
static uint64_t look(struct ws *ws, const char *path)
{
	uint64_t node = 1;
	for (const char *end; *path; path = *end ? end + 1 : end) {
		struct entry e;
		end = strchrnul(path, '/');
		int r = ws_lookup(ws, node, path, (size_t)(end - path), &e);
		if (r == -ENOENT || r == -EIO)
			return 0;
		expect(0, r);
		ws_forget(ws, e.node, 1);
		node = e.node;
	}
	return node;
}

/* 1: it is right; 0: it can't be read, or its name is lost. Never anything else. */
static unsigned is_right(struct ws *ws, unsigned i)
{
	static char got[BIG + 1];
	const char *text;
	size_t n = want(i, &text);
	uint64_t node = look(ws, names[i]);
	if (!node)
		return 0;
	struct attr a;
	expect(0, ws_getattr(ws, node, &a));
	assert_true(a.size > 0); /* or the kernel would ask for nothing, and show it as empty */
	ssize_t r = ws_read(ws, node, got, sizeof(got), 0);
	if (r == -EIO)
		return 0;
	if (r != (ssize_t)n || memcmp(got, text, n) != 0)
		fail_msg("%s shows %zd bytes: %.20s", names[i], r, got);
	return 1;
}

static char *journal_of(struct kit *k)
{
	char hex[2 * LAYER_ID_BYTES + 1], *path;
	hex_encode(hex, layer_id(k->ws->view.layers[0])->b, LAYER_ID_BYTES);
	assert_true(asprintf(&path, "%s/layers/%s/journal", k->root.dir, hex) > 0);
	return path;
}

static void flip(int fd, uint64_t at)
{
	uint8_t b;
	assert_int_equal(pread(fd, &b, 1, (off_t)at), 1);
	b ^= (uint8_t)(1 << at % 8);
	assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
}

static void opens(void **state)
{
	struct kit *k = *state;
	fill(k);
	uint64_t size = k->ws->view.layers[0]->journal.end;
	auto_free char *path = journal_of(k);
	ws_close(k->ws);
	auto_free uint8_t *whole = malloc(size);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && pread(fd, whole, size, 0) == (ssize_t)size);
	/* What is said last may be about anything, when its head is damaged. */
	for (uint64_t at = JOURNAL_HEAD; at < size; at += 23) {
		unsigned right = 0, damaged;
		flip(fd, at);
		succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
		damaged = (unsigned)layer_lost(k->ws->view.layers[0]);
		for (unsigned i = 0; i < FILES; i++)
			right += is_right(k->ws, i);
		if (right < FILES - 2 || (right < FILES && !damaged))
			fail_msg("byte %llu: %u of %u files, %u damaged", (unsigned long long)at,
				 right, FILES, damaged);
		tree_put(k->ws, "more", "can be written");
		ws_close(k->ws);
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, whole, size, 0), (ssize_t)size);
	}
	succeed(err, ws_open(&k->ws, k->root.work, "w", &err));
	for (unsigned i = 0; i < FILES; i++)
		assert_int_equal(is_right(k->ws, i), 1);
	assert_int_equal(close(fd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(opens, kit_setup, kit_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
