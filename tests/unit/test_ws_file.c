/* The file of a workspace: its bytes, and which of several counts. */
#include <dlfcn.h>
#include "ws_kit.h"

static struct err err;

static void fill(struct ws_file *f, uint64_t seq)
{
	*f = (struct ws_file){ .seq = seq,
			       .tag = 0x1122334455667788,
			       .birth_ino = 70000,
			       .limit_bytes = 1 << 20,
			       .limit_inodes = 100,
			       .base_bytes = -5,
			       .base_inodes = 3,
			       .files = 12,
			       .foreign = 1,
			       .flattened = true,
			       .gen = 7,
			       .durable = true,
			       .no_xattrs = true };
	f->stack.seed = 99;
	struct layer_id id = { { 1 } };
	struct digest d = { { 2 } };
	expect(0, stack_push(&f->stack, &id, false, &d, 1));
	id.b[0] = 3;
	expect(0, stack_push(&f->stack, &id, true, NULL, 0));
	f->active.b[0] = 4;
	id.b[0] = 5;
	expect(0, ws_file_pin(f, &id));
	expect(0, ws_file_pin(f, &id)); /* once */
	memset(f->boot, 6, sizeof(f->boot));
}

static void test_bytes(void **state)
{
	struct ws_file f, g;
	auto_buf b = { 0 }, c = { 0 };
	fill(&f, 42);
	ws_file_encode(&f, &b);
	assert_false(b.failed);
	expect(0, ws_file_decode(&g, b.data, b.len));
	assert_int_equal(g.seq, 42);
	assert_int_equal(g.base_bytes, -5);
	assert_int_equal(g.npins, 1);
	assert_int_equal(g.stack.nlayers, 2);
	assert_true(g.flattened && g.durable && g.no_xattrs);
	ws_file_encode(&g, &c);
	assert_int_equal(b.len, c.len);
	assert_memory_equal(b.data, c.data, b.len);
	/* The layout, as FORMAT has it. */
	assert_memory_equal(b.data, "BOUGHWS1", 8);
	assert_int_equal(le_get64(b.data + 8), 42);
	assert_int_equal(le_get64(b.data + 24), 70000);
	assert_int_equal(le_get32(b.data + 72), 1);
	assert_int_equal(le_get16(b.data + 76), 7);
	assert_int_equal(le_get16(b.data + 78), 1 | 2 | 4);
	assert_int_equal(b.data[98 - 2], 4);
	ws_file_done(&g);
	/* Every flipped bit and every cut is noticed. */
	for (size_t i = 0; i < b.len * 8; i += 7) {
		b.data[i / 8] ^= (uint8_t)(1 << i % 8);
		expect(-EBADMSG, ws_file_decode(&g, b.data, b.len));
		b.data[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	for (size_t i = 0; i < b.len; i++)
		expect(-EBADMSG, ws_file_decode(&g, b.data, i));
	/* And what a right sum doesn't make right. */
	static const struct {
		size_t at;
		uint8_t value;
	} wrong[] = { { 16, 0 }, { 72, 3 }, { 78, 8 } };
	for (size_t i = 0; i < 3; i++) {
		auto_buf w = { 0 };
		buf_add(&w, b.data, b.len);
		if (wrong[i].at == 16)
			memset(w.data + 16, 0, 8); /* no tag */
		else
			w.data[wrong[i].at] = wrong[i].value;
		le_put64(w.data + w.len - 8, hash_xxh3(w.data, w.len - 8, 0));
		expect(-EBADMSG, ws_file_decode(&g, w.data, w.len));
	}
	ws_file_done(&f);
}

enum { EMPTY = 9 };

/* With a folder of the workspace x. */
static void make_root(char *root)
{
	char path[200];
	assert_non_null(mkdtemp(root));
	(void)snprintf(path, sizeof(path), "%s/ws", root);
	assert_int_equal(mkdir(path, 0700), 0);
	(void)snprintf(path, sizeof(path), "%s/ws/x", root);
	assert_int_equal(mkdir(path, 0700), 0);
}

/* Cut by so many bytes; EMPTY: of all. */
static void put(const char *root, const char *name, uint64_t seq, size_t cut)
{
	struct ws_file f;
	auto_buf b = { 0 };
	char path[200];
	fill(&f, seq);
	ws_file_encode(&f, &b);
	ws_file_done(&f);
	cut = cut == EMPTY ? b.len : cut;
	(void)snprintf(path, sizeof(path), "%s/ws/x/%s", root, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_int_equal(write(fd, b.data, b.len - cut), (ssize_t)(b.len - cut));
	(void)close(fd);
}

/* Of a folder, the sequence numbers that count. */
static void test_versions(void **state)
{
	static const struct {
		uint64_t durable, newer[3]; /* 0: no such file; 1000 + n: torn; 9000 + n: empty */
		uint64_t want[2];
		int result;
		bool same_boot;
	} cases[] = {
		{ 5, { 0 }, { 5, 0 }, 0, false },
		{ 5, { 6 }, { 6, 5 }, 0, false },
		{ 5, { 4 }, { 5, 0 }, 0, false },
		{ 5, { 5 }, { 5, 0 }, 0, false },
		{ 5, { 6, 8, 7 }, { 8, 5 }, 0, false },
		{ 5, { 1008, 7 }, { 7, 5 }, 0, false },
		{ 5, { 1008 }, { 5, 0 }, 0, false },
		{ 1005, { 8 }, { 8, 0 }, 0, false },
		{ 1005, { 1008 }, { 0, 0 }, -EBADMSG, false },
		{ 0, { 8 }, { 8, 0 }, 0, false },
		/* In the boot of the older one no power was lost, so the newer one was whole, … */
		{ 5, { 1008 }, { 0, 0 }, -EBADMSG, true },
		{ 5, { 1008, 7 }, { 0, 0 }, -EBADMSG, true },
		{ 0, { 1008, 7 }, { 0, 0 }, -EBADMSG, true },
		{ 5, { 1004 }, { 5, 0 }, 0, true },
		{ 5, { 1007, 8 }, { 8, 5 }, 0, true },
		/* … but for one that a kill left empty. */
		{ 5, { 9008 }, { 5, 0 }, 0, true },
		{ 0, { 0 }, { 0, 0 }, -EBADMSG, false },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char root[64] = "/tmp/bough-test.XXXXXX", path[200], name[WS_FILE_NAME];
		struct ws_file f[2];
		unsigned n = 0;
		uint8_t boot[BOOT_ID_BYTES];
		memset(boot, cases[i].same_boot ? 6 : 7, sizeof(boot));
		assert_non_null(mkdtemp(root));
		(void)snprintf(path, sizeof(path), "%s/ws", root);
		assert_int_equal(mkdir(path, 0700), 0);
		expect(-ENOENT, ws_file_load(f, &n, NULL, root, "x", boot, &err));
		(void)snprintf(path, sizeof(path), "%s/ws/x", root);
		assert_int_equal(mkdir(path, 0700), 0);
		if (cases[i].durable)
			put(root, "stack", cases[i].durable % 1000, cases[i].durable / 1000);
		for (unsigned k = 0; k < 3 && cases[i].newer[k]; k++) {
			ws_file_name(name, cases[i].newer[k] % 1000);
			put(root, name, cases[i].newer[k] % 1000, cases[i].newer[k] / 1000);
		}
		/* A copy under another's name is nothing. */
		put(root, "stack-00000000000000ff", 12, 0);
		expect(cases[i].result, ws_file_load(f, &n, NULL, root, "x", boot, &err));
		if (cases[i].result == 0) {
			assert_int_equal(n, cases[i].want[1] ? 2 : 1);
			for (unsigned k = 0; k < n; k++) {
				assert_int_equal(f[k].seq, cases[i].want[k]);
				ws_file_done(&f[k]);
			}
		}
		succeed(err, io_remove_tree(AT_FDCWD, root, &err));
	}
}

static int open_none(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	return strncmp(name, "stack-", 6) == 0 ? -EMFILE
					       : io_host.open(ctx, dirfd, name, flags, mode);
}

static bool folders_fail;

/* In the place of the C library's. */
struct dirent *readdir(DIR *d)
{
	struct dirent *(*real)(DIR *d) = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir64");
	if (!folders_fail)
		return real(d);
	errno = EIO;
	return NULL;
}

static int open_no_durable(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	return strcmp(name, "stack") == 0 ? -EMFILE
					  : io_host.open(ctx, dirfd, name, flags, mode);
}

static const char *written_in; /* the root, until it is written */
static int version_fd = -1;

static int open_version(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	int fd = io_host.open(ctx, dirfd, name, flags, mode);
	if (strncmp(name, "stack-", 6) == 0)
		version_fd = fd;
	return fd;
}

/* It was read, and is written only now. */
static int close_version(void *ctx, int fd)
{
	if (fd == version_fd && written_in)
		put(written_in, "stack-0000000000000006", 6, 0);
	if (fd == version_fd)
		written_in = NULL;
	return io_host.close(ctx, fd);
}

/* A version that somebody is just writing is none yet, and no damaged one. */
static void test_being_written(void **state)
{
	char root[64] = "/tmp/bough-test.XXXXXX";
	uint8_t boot[BOOT_ID_BYTES];
	struct ws_file f[2];
	struct io io = io_host;
	unsigned n = 0;
	memset(boot, 6, sizeof(boot)); /* as fill has it */
	make_root(root);
	put(root, "stack", 5, 0);
	put(root, "stack-0000000000000006", 6, EMPTY);
	io.open = open_version;
	io.close = close_version;
	written_in = root;
	succeed(err, ws_file_load(f, &n, &io, root, "x", boot, &err));
	assert_null(written_in);
	assert_int_equal(f[0].seq, 5);
	while (n > 0)
		ws_file_done(&f[--n]);
	succeed(err, ws_file_load(f, &n, &io, root, "x", boot, &err));
	assert_int_equal(f[0].seq, 6);
	while (n > 0)
		ws_file_done(&f[--n]);
	succeed(err, io_remove_tree(AT_FDCWD, root, &err));
}

/* Without descriptors, say, an older version isn't the newest, nor the newest the only one. */
static void test_unreadable(void **state)
{
	char root[64] = "/tmp/bough-test.XXXXXX";
	const uint8_t boot[BOOT_ID_BYTES] = { 0 };
	struct ws_file f[2];
	struct io io = io_host;
	unsigned n = 0;
	io.open = open_none;
	make_root(root);
	put(root, "stack", 5, 0);
	put(root, "stack-0000000000000006", 6, 0);
	expect(-EMFILE, ws_file_load(f, &n, &io, root, "x", boot, &err));
	io.open = open_no_durable;
	expect(-EMFILE, ws_file_load(f, &n, &io, root, "x", boot, &err));
	folders_fail = true;
	expect(-EIO, ws_file_load(f, &n, NULL, root, "x", boot, &err));
	folders_fail = false;
	succeed(err, ws_file_load(f, &n, NULL, root, "x", boot, &err));
	assert_int_equal(f[0].seq, 6);
	for (unsigned k = 0; k < n; k++)
		ws_file_done(&f[k]);
	succeed(err, io_remove_tree(AT_FDCWD, root, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_being_written),
		cmocka_unit_test(test_unreadable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
