/* Batches: at random against the same operations one by one; all or nothing; the bytes. */
#include <time.h>

#include "fs/work/batch.h"
#include "oom.h"
#include "tests/seed.h"
#include "ws_kit.h"

enum { OPS_MAX = 24, ROUNDS = 300, LOCAL_PATH = 256 };

static struct batch_op op_of(enum batch_kind kind, const char *path, unsigned flags)
{
	return (struct batch_op){ .kind = kind, .path = path, .path_len = strlen(path),
				  .flags = flags };
}

static struct batch_op to(struct batch_op o, const char *other)
{
	o.other = other;
	o.other_len = strlen(other);
	return o;
}

static struct batch_op mode(struct batch_op o, uint32_t m)
{
	o.mode = m;
	return o;
}

/* A file without a name; the kernel holds it. */
static uint64_t unnamed(struct ws *ws, const char *text)
{
	struct entry e;
	expect(0, ws_tmpfile(ws, 1, 0600, &root_caller, &e));
	if (*text)
		expect(0, ws_write(ws, e.node, text, strlen(text), 0, false, &root_caller));
	return ino_of(e.node);
}

static struct batch_op file(struct batch_op o, uint64_t ino)
{
	o.file = ino;
	return o;
}

static int run(struct ws *ws, const struct batch_op *ops, size_t n, size_t *failed)
{
	struct ws_batch w = { .ops = ops, .n = n, .tag = WS_TAG_OURS | 5 };
	return ws_batch(ws, &w, NULL, failed);
}

/* ---- trees as text ---- */

static int line(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct buf *b = ctx;
	buf_printf(b, "%.*s %o %u %u %llu\n", (int)len, path, a->mode, a->nlink, a->uid,
		   S_ISREG(a->mode) ? (unsigned long long)a->size : 0);
	return 0;
}

static int by_line(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int walk(void *ctx, const struct view *v)
{
	return view_walk(v, line, ctx, NULL);
}

/* In order of the paths: that of names differs between two lineages. */
static char *listing(struct ws *ws)
{
	struct buf b = { 0 }, sorted = { 0 };
	char *lines[4096];
	size_t n = 0;
	expect(0, ws_with_view(ws, walk, &b));
	buf_u8(&b, 0);
	for (char *p = (char *)b.data, *end; (end = strchr(p, '\n')); p = end + 1) {
		assert_true(n < 4096);
		*end = 0;
		lines[n++] = p;
	}
	qsort(lines, n, sizeof(*lines), by_line);
	for (size_t i = 0; i < n; i++)
		buf_printf(&sorted, "%s\n", lines[i]);
	buf_u8(&sorted, 0);
	buf_done(&b);
	return (char *)sorted.data;
}

/* ---- at random ---- */

struct play {
	unsigned seed;
	char paths[2 * OPS_MAX][LOCAL_PATH];
	size_t npaths;
};

static unsigned pick(struct play *p, unsigned n)
{
	return (unsigned)rand_r(&p->seed) % n;
}

static const char *path(struct play *p)
{
	static const char *const names[] = { "a", "b", "c", "d" };
	char *out = p->paths[p->npaths++];
	size_t n = 0;
	for (unsigned depth = 1 + pick(p, 3), i = 0; i < depth; i++)
		n += (size_t)snprintf(out + n, LOCAL_PATH - n, "%s%s", i ? "/" : "",
				      names[pick(p, 4)]);
	return out;
}

static struct batch_op any(struct play *p)
{
	const char *at = path(p);
	unsigned parents = pick(p, 2) ? BATCH_PARENTS : 0;
	unsigned replace = pick(p, 2) ? BATCH_REPLACE : 0;
	switch (pick(p, 8)) {
	case 0:
	case 1:
		return file(op_of(BATCH_PUT, at, parents | replace), 1 /* set by the caller */);
	case 2:
		return mode(op_of(BATCH_MAKE, at,
				  parents | (pick(p, 2) ? BATCH_OLD_FOLDER : 0)),
			    S_IFDIR | 0755);
	case 3:
		return mode(to(op_of(BATCH_MAKE, at, parents | replace), "target"),
			    S_IFLNK | 0777);
	case 4:
		return to(op_of(BATCH_MOVE, at, parents | replace), path(p));
	case 5:
		return op_of(BATCH_DELETE, at, pick(p, 2) ? BATCH_RECURSIVE : 0);
	case 6:
		return mode(op_of(BATCH_CHMOD, at, 0), 0700 + pick(p, 64));
	default:
		return to(op_of(BATCH_LINK, at, parents | replace), path(p));
	}
}

static void at_random(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	struct play p = { .seed = (unsigned)test_seed() };
	struct ws *other = tree_create(&k->root, "other", NULL);
	unsigned done = 0, refused = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct batch_op ops[OPS_MAX], twin[OPS_MAX];
		size_t n = 1 + pick(&p, pick(&p, 2) ? 2 : OPS_MAX / 4), failed, f;
		char *before = listing(k->ws);
		p.npaths = 0;
		for (size_t i = 0; i < n; i++) {
			ops[i] = twin[i] = any(&p);
			if (ops[i].kind == BATCH_PUT) {
				ops[i].file = unnamed(k->ws, "text");
				twin[i].file = unnamed(other, "text");
			}
		}
		/* One by one; what fails ends the batch, which is then nothing. */
		int r = run(k->ws, ops, n, &failed), s = 0;
		size_t i = 0;
		bool tried = r == 0 || pick(&p, 8) == 0; /* a fork takes long */
		struct ws *fork = r < 0 && tried ? kit_fork(other, "trial") : NULL;
		for (; tried && i < n && s == 0; i++)
			s = run(fork ? fork : other, &twin[i], 1, &f);
		if (s < 0 && failed != i - 1)
			fail_msg("operation %zu fails, not %zu", failed, i - 1);
		assert_true(!tried || r == s);
		if (fork) {
			ws_close(fork);
			succeed(err, ws_delete(k->root.work, "trial", &err));
		}
		if (r < 0) {
			char *after = listing(k->ws);
			assert_string_equal(before, after);
			free(after);
			refused++;
		} else {
			char *x = listing(k->ws), *y = listing(other);
			assert_string_equal(x, y);
			free(x);
			free(y);
			done++;
		}
		free(before);
		kit_check_usage(k->ws);
		if (pick(&p, 10) == 0) {
			struct stack sealed = { 0 };
			tree_seal(k->ws, &sealed);
			stack_done(&sealed);
		}
		if (pick(&p, 20) == 0) {
			char *x = listing(k->ws);
			kit_reopen(k);
			char *y = listing(k->ws);
			assert_string_equal(x, y);
			free(x);
			free(y);
		}
	}
	printf("%u done, %u refused\n", done, refused);
	assert_true(done > ROUNDS / 20 && refused > 0);
	ws_close(other);
}

/* ---- one by one ---- */

static void is_refused(struct ws *ws, int want, struct batch_op o)
{
	size_t failed;
	char *before = listing(ws);
	const struct batch_op ops[] = { mode(op_of(BATCH_MAKE, "first", 0), S_IFDIR | 0755), o };
	expect(want, run(ws, ops, 2, &failed));
	assert_int_equal(failed, 1);
	char *after = listing(ws);
	assert_string_equal(before, after);
	free(before);
	free(after);
}

static void what_is_refused(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	tree_mk(ws, "d", S_IFDIR | 0755);
	tree_put(ws, "d/f", "1");
	tree_put(ws, "f", "1");
	struct batch_op ops[] = { mode(to(op_of(BATCH_MAKE, "l", 0), "d"), S_IFLNK | 0777) };
	size_t failed;
	expect(0, run(ws, ops, 1, &failed));
	is_refused(ws, -ENOENT, file(op_of(BATCH_PUT, "no/x", 0), unnamed(ws, "")));
	is_refused(ws, -ENOTDIR, file(op_of(BATCH_PUT, "f/x", BATCH_PARENTS), unnamed(ws, "")));
	is_refused(ws, -ELOOP, file(op_of(BATCH_PUT, "l/x", BATCH_PARENTS), unnamed(ws, "")));
	is_refused(ws, -ELOOP, file(op_of(BATCH_PUT, "l", 0), unnamed(ws, "")));
	is_refused(ws, -EISDIR, file(op_of(BATCH_PUT, "d", BATCH_REPLACE), unnamed(ws, "")));
	is_refused(ws, -EINVAL, file(op_of(BATCH_PUT, "x", 0), kit_attr(ws, "f").ino));
	is_refused(ws, -EINVAL, file(op_of(BATCH_PUT, "x", 0), 0xffffff));
	is_refused(ws, -EEXIST, mode(op_of(BATCH_MAKE, "d", 0), S_IFDIR | 0755));
	is_refused(ws, -EEXIST, mode(op_of(BATCH_MAKE, "f", BATCH_OLD_FOLDER), S_IFDIR | 0755));
	is_refused(ws, -ENOTEMPTY, op_of(BATCH_DELETE, "d", 0));
	is_refused(ws, -ENOENT, op_of(BATCH_DELETE, "no", BATCH_RECURSIVE));
	is_refused(ws, -EEXIST, to(op_of(BATCH_MOVE, "f", 0), "d/f"));
	is_refused(ws, -EISDIR, to(op_of(BATCH_MOVE, "f", BATCH_REPLACE), "d"));
	is_refused(ws, -EINVAL, to(op_of(BATCH_MOVE, "d", BATCH_PARENTS), "d/x/y"));
	is_refused(ws, -ENOENT, to(op_of(BATCH_LINK, "x", 0), "no"));
	is_refused(ws, -EPERM, to(op_of(BATCH_LINK, "x", 0), "d"));
	is_refused(ws, -ELOOP, mode(op_of(BATCH_CHMOD, "l", 0), 0600));
	is_refused(ws, -EREMCHG, op_of(BATCH_CHECK, "f", BATCH_MUST_NOT_EXIST));
	is_refused(ws, -EREMCHG, op_of(BATCH_CHECK, "no/x", BATCH_MUST_EXIST));
	is_refused(ws, -EREMCHG, op_of(BATCH_DELETE, "no", BATCH_MUST_EXIST));
}

static struct batch_op decoded(struct buf *b, const struct batch_op *o,
			       const struct batch_conditions *c)
{
	struct batch_op out;
	buf_reset(b);
	batch_encode(b, o, c);
	struct cur cur = cur_init(b->data, b->len);
	expect(1, batch_decode(&cur, &out));
	expect(0, batch_decode(&cur, &out));
	return out;
}

static void conditions(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	size_t failed;
	struct buf b = { 0 };
	tree_put(ws, "f", "1");
	struct attr a = kit_attr(ws, "f");
	struct version_id now = version_of(&a), was = now;
	was.ctime_ns--;
	const struct batch_conditions right = { .match = &now, .nmatch = 1 },
				      wrong = { .match = &was, .nmatch = 1 },
				      unless = { .unless = &now, .nunless = 1 };
	const struct batch_op check = op_of(BATCH_CHECK, "f", 0);
	struct batch_op ops[2] = { decoded(&b, &check, &right) };
	expect(0, run(ws, ops, 1, &failed));
	ops[0] = decoded(&b, &check, &wrong);
	expect(-EREMCHG, run(ws, ops, 1, &failed));
	ops[0] = decoded(&b, &check, &unless);
	expect(-EREMCHG, run(ws, ops, 1, &failed));
	/* They hold for a link to itself, which changes nothing, too. */
	const struct batch_op self = to(op_of(BATCH_LINK, "f", 0), "f");
	ops[0] = decoded(&b, &self, &right);
	expect(0, run(ws, ops, 1, &failed));
	ops[0] = decoded(&b, &self, &wrong);
	expect(-EREMCHG, run(ws, ops, 1, &failed));
	ops[0] = to(op_of(BATCH_LINK, "f", BATCH_MUST_NOT_EXIST), "f");
	expect(-EREMCHG, run(ws, ops, 1, &failed));
	buf_done(&b);
}

/* A file takes owner, mode and xattrs over, as with ws_put; a quota holds. */
static void what_a_file_gets(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct err err = { 0 };
	size_t failed;
	char value[8];
	tree_put(ws, "f", "old");
	uint64_t node = tree_node(ws, "f");
	const struct attr who = { .uid = 7, .gid = 8, .mode = 04711 };
	struct attr a;
	expect(0, ws_setattr(ws, node, WS_SET_UID | WS_SET_GID, &who, &root_caller, &a));
	expect(0, ws_setattr(ws, node, WS_SET_MODE, &who, &root_caller, &a));
	expect(0, ws_setxattr(ws, node, "user.x", "yes", 3, 0, &root_caller));
	struct batch_op ops[] = { file(op_of(BATCH_PUT, "f", 0), unnamed(ws, "1")),
				  file(op_of(BATCH_PUT, "f", 0), unnamed(ws, "22")),
				  file(op_of(BATCH_PUT, "g/h", BATCH_PARENTS), unnamed(ws, "3")) };
	expect(0, run(ws, ops, 3, &failed));
	kit_expect_text(ws, "f", "22");
	a = kit_attr(ws, "f");
	assert_int_equal(a.uid, 7);
	assert_int_equal(a.gid, 8);
	assert_int_equal(a.mode, S_IFREG | 0711);
	assert_int_equal(a.nlink, 1);
	expect(3, ws_getxattr(ws, tree_node(ws, "f"), "user.x", value, sizeof(value)));
	assert_int_equal(kit_attr(ws, "g/h").mode, S_IFREG | 0644);
	kit_check_usage(ws);
	const struct ws_limits limits = { .inodes = 3 };
	succeed(err, ws_set_limits(ws, &limits, &err));
	ops[0] = mode(op_of(BATCH_MAKE, "p/q/r/s/t", BATCH_PARENTS), S_IFDIR | 0755);
	expect(-EDQUOT, run(ws, ops, 1, &failed));
	assert_int_equal(failed, 1);
	kit_check_usage(ws);
}

static void memory_runs_out(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	size_t failed;
	tree_mk(ws, "d", S_IFDIR | 0755);
	tree_put(ws, "d/f", "1");
	for (uint64_t n = 1;; n++) {
		struct batch_op ops[] = {
			file(op_of(BATCH_PUT, "x/y", BATCH_PARENTS), unnamed(ws, "1")),
			op_of(BATCH_DELETE, "d", BATCH_RECURSIVE),
		};
		char *before = listing(ws);
		oom_at(n);
		int r = run(ws, ops, 2, &failed);
		bool hit = oom_hit();
		oom_at(0);
		char *after = listing(ws);
		if (r < 0)
			assert_string_equal(before, after);
		free(before);
		free(after);
		assert_true(r == 0 || (hit && r == -ENOMEM));
		if (!hit)
			break;
		if (r == 0) { /* it can do without some of it */
			tree_rm(ws, "x/y");
			tree_rm(ws, "x");
			tree_mk(ws, "d", S_IFDIR | 0755);
			tree_put(ws, "d/f", "1");
		}
	}
}

static void bytes(void **state)
{
	struct buf b = { 0 }, x = { 0 };
	const struct version_id v[2] = { { 1, 2, 3 }, { 4, 5, -6 } };
	const struct batch_conditions c = { .match = v, .nmatch = 2, .unless = v + 1,
					    .nunless = 1 };
	batch_encode_xattr(&x, "user.a", "b", 1);
	struct batch_op o = mode(op_of(BATCH_MAKE, "a/b", BATCH_PARENTS), S_IFDIR | 01755);
	o.xattrs = x.data;
	o.xattrs_len = x.len;
	o.uid = 3;
	o.mtime.tv_nsec = 999999999;
	struct batch_op d = decoded(&b, &o, &c);
	assert_int_equal(d.mode, o.mode);
	assert_int_equal(d.uid, 3);
	assert_int_equal(d.mtime.tv_nsec, 999999999);
	assert_true(d.path_len == 3 && memcmp(d.path, "a/b", 3) == 0);
	assert_int_equal(d.nmatch, 2);
	struct version_id w = batch_version(d.match, 1);
	assert_true(version_equal(&w, &v[1]));
	for (size_t i = 0; i < b.len; i++) { /* cut */
		struct cur cur = cur_init(b.data, i);
		expect(i ? -EBADMSG : 0, batch_decode(&cur, &d));
	}
	static const char *const bad[] = { "", "/", "/a", "a/", "a//b", ".", "a/..", "a/./b" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		o = op_of(BATCH_DELETE, bad[i], 0);
		buf_reset(&b);
		batch_encode(&b, &o, NULL);
		struct cur cur = cur_init(b.data, b.len);
		expect(-EBADMSG, batch_decode(&cur, &d));
	}
	buf_done(&b);
	buf_done(&x);
}

/* PUT with what the file is to be, and TIMES of folders that may be there. */
static void what_is_given(void **state)
{
	struct kit *k = *state;
	struct ws *ws = k->ws;
	struct buf x = { 0 };
	char value[8];
	size_t failed;
	batch_encode_xattr(&x, "user.a", "12345", 5);
	struct batch_op ops[] = {
		mode(op_of(BATCH_MAKE, "d", BATCH_AS_IS), S_IFDIR | 0700),
		mode(file(op_of(BATCH_PUT, "d/f", BATCH_GIVEN), unnamed(ws, "text")), 04711),
		op_of(BATCH_TIMES, "d", 0),
		op_of(BATCH_TIMES, "none/such", 0),
		op_of(BATCH_TIMES, "d/f", 0),
		op_of(BATCH_TIMES, "d/f/below", 0),
	};
	ops[1].uid = 7;
	ops[1].gid = 8;
	ops[1].mtime.tv_sec = 1000;
	ops[1].atime.tv_sec = 2000;
	ops[1].xattrs = x.data;
	ops[1].xattrs_len = x.len;
	for (size_t i = 2; i < 6; i++)
		ops[i].mtime.tv_sec = 3000;
	expect(0, run(ws, ops, 6, &failed));
	struct attr f = kit_attr(ws, "d/f"), d = kit_attr(ws, "d");
	assert_int_equal(f.mode, S_IFREG | 04711);
	assert_int_equal(f.uid, 7);
	assert_int_equal(f.gid, 8);
	assert_int_equal(f.mtime.tv_sec, 1000);
	assert_int_equal(f.atime.tv_sec, 2000);
	assert_int_equal(f.size, 4);
	assert_int_equal(d.mtime.tv_sec, 3000);
	expect(5, ws_getxattr(ws, node_of(&f), "user.a", value, sizeof(value)));
	kit_check_usage(ws);
	/* What is put into the folder later moves its time, but not in the same step. */
	struct batch_op more[] = { op_of(BATCH_TIMES, "d", 0),
				   mode(op_of(BATCH_MAKE, "d/e", 0), S_IFDIR | 0700) };
	more[0].mtime.tv_sec = 4000;
	expect(0, run(ws, more, 2, &failed));
	assert_int_equal(kit_attr(ws, "d").mtime.tv_sec, 4000);
	buf_done(&x);
}

/* Contents beside the operations: understood as written, and what lies is refused. */
static void contents(void **state)
{
	const struct batch_piece v[2] = { { 0, 5, 100 }, { 4096, 1, 7 } };
	static const struct {
		uint64_t size;
		struct batch_piece p;
	} bad[] = {
		{ 10, { 0, 0, 0 } },
		{ 10, { 10, 1, 0 } },
		{ 10, { 0, 11, 0 } },
		{ 10, { UINT64_MAX, 2, 0 } },
		{ 10, { 1, 1, INT64_MAX } },
		{ UINT64_MAX, { 1, 1, 0 } },
	};
	struct buf b = { 0 };
	struct batch_content c;
	batch_encode_content(&b, 8192, v, 2);
	batch_encode_content(&b, 0, NULL, 0);
	struct cur cur = cur_init(b.data, b.len);
	expect(1, batch_decode_content(&cur, &c));
	assert_int_equal(c.size, 8192);
	assert_int_equal(c.n, 2);
	assert_int_equal(batch_piece_at(&c, 1).off, 4096);
	assert_int_equal(batch_piece_at(&c, 0).at, 100);
	expect(1, batch_decode_content(&cur, &c));
	assert_int_equal(c.n, 0);
	expect(0, batch_decode_content(&cur, &c));
	cur = cur_init(b.data, b.len - 1 - 12);
	expect(-EBADMSG, batch_decode_content(&cur, &c));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		buf_reset(&b);
		batch_encode_content(&b, bad[i].size, &bad[i].p, 1);
		cur = cur_init(b.data, b.len);
		expect(-EBADMSG, batch_decode_content(&cur, &c));
	}
	buf_done(&b);
}

/* Inode numbers are taken for what a batch can make at most, not for each '/' in it. */
static void many_parts(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	enum { OPS = 2 * BATCH_INODES_MAX / 1000 };
	static char path[2 * 1000];
	static struct batch_op ops[OPS];
	size_t failed;
	for (size_t i = 0; i + 1 < sizeof(path); i++)
		path[i] = i % 2 ? '/' : 'd';
	for (size_t i = 0; i < OPS; i++)
		ops[i] = mode(op_of(BATCH_MAKE, path, BATCH_PARENTS | BATCH_OLD_FOLDER),
			      S_IFDIR | 0755);
	uint64_t before = unnamed(ws, "");
	expect(0, run(ws, ops, OPS, &failed));
	assert_in_range(unnamed(ws, "") - before, 1000, BATCH_INODES_MAX + 1);
	kit_check_usage(ws);
}

enum { CROWD = 20000, CROWD_NAME = 32 };

/* So many names with that beginning, made at once: how much processor time it takes. */
static clock_t crowd(struct ws *ws, char dir, const char front[8])
{
	static char paths[CROWD][2 + CROWD_NAME + 1];
	static struct batch_op ops[CROWD];
	size_t failed;
	for (size_t i = 0; i < CROWD; i++) {
		(void)snprintf(paths[i], sizeof(paths[i]), "%c/%.8s%08zxends.of.16.bytes", dir,
			       front, i);
		ops[i] = mode(op_of(BATCH_MAKE, paths[i], BATCH_PARENTS), S_IFIFO | 0600);
	}
	clock_t begin = clock();
	expect(0, run(ws, ops, CROWD, &failed));
	return clock() - begin;
}

/* An archive's names may all have one hash, where that is the same everywhere. */
static void hash_of_names(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	/* As the 8 bytes that XXH3 mixes them with: a product that is 0, whatever follows. */
	static const char front[] = "\xb8\xfe\x6c\x39\x23\xa4\x4b\xbe";
	char a[CROWD_NAME + 1], b[CROWD_NAME + 1];
	(void)snprintf(a, sizeof(a), "%s%s", front, "00000001ends.of.16.bytes");
	(void)snprintf(b, sizeof(b), "%s%s", front, "abcdefghends.of.16.bytes");
	assert_int_equal(hash_xxh3(a, CROWD_NAME, 0), hash_xxh3(b, CROWD_NAME, 0));
	clock_t plain = crowd(ws, 'p', "ordinary"), prepared = crowd(ws, 'q', front);
	print_message("%d names: %ld ms, prepared %ld ms\n", CROWD,
		      (long)(plain * 1000 / CLOCKS_PER_SEC),
		      (long)(prepared * 1000 / CLOCKS_PER_SEC));
	assert_true(prepared < 3 * plain + CLOCKS_PER_SEC / 10);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		TEST(at_random),	TEST(what_is_refused), TEST(conditions), TEST(many_parts),
		TEST(hash_of_names),
		TEST(what_a_file_gets), TEST(memory_runs_out), TEST(bytes),
		TEST(what_is_given),	TEST(contents),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
