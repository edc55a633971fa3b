/* kill -9 of a server at random moments of any operation: every acknowledged operation is
 * there afterwards, in order; of the one under way all or nothing (of contents that it was
 * overwriting a part); forks are whole or absent.
 *
 *     kill_ws [--rounds N] [--seed S]
 *
 * A child process does operations, each chosen by its number alone, on a workspace, and writes
 * the number of the last that returned to shared memory. It is killed; the same operations are
 * done here on a workspace of another root, and both must be the same. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/work/save.h"
#include "fs/work/ws_impl.h"
#include "tests/seed.h"

enum { SAVED_MAX = 64 * 1024 };

struct shared {
	_Atomic uint64_t acked;
	_Atomic uint64_t saved_op; /* which operation wrote `saved` last */
	uint32_t saved_len;
	uint8_t saved[SAVED_MAX];
	char failure[400];
};

struct side {
	char root[100];
	struct work *work;
	struct ws *ws;
	struct shared *sh;
};

static uint64_t seed, now_op;
static char base[64];

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)fprintf(stderr, "not ok - seed %" PRIu64 ", op %" PRIu64 ": ", seed, now_op);
	(void)vfprintf(stderr, fmt, ap);
	(void)fprintf(stderr, "\nkept: %s\n", base);
	va_end(ap);
	exit(1);
}

/* ---- the operations ---- */

static uint64_t rng;

static uint64_t rnd(void)
{
	rng += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = rng;
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static unsigned below(unsigned n)
{
	return (unsigned)(rnd() % n);
}

static const struct caller caller;

static uint64_t pick_dir(struct ws *ws)
{
	static const char *const dirs[] = { "", "d0", "d1", "d2" };
	const char *name = dirs[below(4)];
	struct entry e;
	if (!*name || ws_lookup(ws, 1, name, 2, &e) < 0)
		return 1;
	ws_forget(ws, e.node, 1);
	return S_ISDIR(e.attr.mode) ? e.node : 1;
}

static size_t pick_name(char out[8])
{
	(void)snprintf(out, 8, "%c%u", below(4) ? 'f' : 'd', below(12));
	return strlen(out);
}

static uint64_t pick_file(struct ws *ws)
{
	char name[8];
	for (unsigned i = 0; i < 8; i++) {
		struct entry e;
		uint64_t dir = pick_dir(ws);
		size_t len = pick_name(name);
		if (ws_lookup(ws, dir, name, len, &e) < 0)
			continue;
		ws_forget(ws, e.node, 1);
		if (S_ISREG(e.attr.mode))
			return e.node;
	}
	return 0;
}

static void do_name(struct ws *ws, unsigned kind)
{
	char a[8], b[8];
	uint64_t da = pick_dir(ws), db = pick_dir(ws), f = pick_file(ws);
	size_t na = pick_name(a), nb = pick_name(b);
	struct entry e = { .node = 0 };
	switch (kind) {
	case 0:
		(void)ws_mknod(ws, da, a, na, (a[0] == 'd' ? S_IFDIR : S_IFREG) | 0755, 0, &caller,
			       &e);
		break;
	case 1:
		if (ws_unlink(ws, da, a, na, &caller) == -EISDIR)
			(void)ws_rmdir(ws, da, a, na, &caller);
		break;
	case 2:
		(void)ws_rename(ws, da, a, na, db, b, nb, below(3) ? 0 : RENAME_EXCHANGE, &caller);
		break;
	case 3:
		if (f)
			(void)ws_link(ws, f, da, a, na, &caller, &e);
		break;
	default:
		(void)ws_symlink(ws, da, a, na, b, &caller, &e);
	}
	if (e.node)
		ws_forget(ws, e.node, 1);
}

static void do_content(struct ws *ws, unsigned kind)
{
	static char b[70000];
	uint64_t f = pick_file(ws), g = pick_file(ws);
	uint64_t off = below(30) ? below(60000) : (1 << 20) + below(100000);
	uint64_t n = 1 + below(below(2) ? 100 : below(6) ? 9000 : sizeof(b) - 1);
	struct attr in = { .size = below(70000), .mode = below(07777) };
	if (!f)
		return;
	memset(b, 'a' + (int)below(26), n);
	switch (kind) {
	case 0:
		(void)ws_write(ws, f, b, n, off, false, &caller);
		break;
	case 1:
		(void)ws_setattr(ws, f, WS_SET_SIZE, &in, &caller, NULL);
		break;
	case 2:
		(void)ws_fallocate(ws, f, below(2) ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0,
				   off, n, &caller);
		break;
	case 3:
		(void)ws_copy_range(ws, f, below(16) * 4096, g, below(16) * 4096, n, &caller);
		break;
	case 4:
		(void)ws_setattr(ws, f, WS_SET_MODE, &in, &caller, NULL);
		break;
	default:
		(void)ws_setxattr(ws, f, below(2) ? "user.a" : "user.b", b, n % 200, 0, &caller);
	}
}

static int do_fork(struct side *s, uint64_t op, struct err *err)
{
	char id[WS_ID_MAX + 1];
	const char *ids[] = { id };
	struct ws *child;
	(void)snprintf(id, sizeof(id), "f%" PRIu64, op);
	int r = ws_fork(s->ws, ids, 1, NULL, &child, NULL, err);
	if (r == 0)
		ws_close(child);
	return r;
}

/* With `flat` a long stack becomes one image: a run has no flattener, and each fork makes a
 * layer. */
static int save(struct side *s, struct stack *sealed, struct stack *saved, bool flat,
		struct err *err)
{
	struct view_options vo;
	struct store_session *ss = NULL;
	work_view_options(s->work, &vo);
	int r = ws_seal(s->ws, sealed, err);
	if (r == 0)
		r = store_session_begin(work_store(s->work), &ss, err);
	if (r == 0)
		r = save_stack(saved, sealed, &vo, ss, NULL, NULL, err);
	if (r == 0 && flat && saved->nlayers > STACK_LAYERS_MAX / 4) {
		struct stack image;
		r = flatten_stack(&image, saved, &vo, ss, NULL, err);
		if (r == 0) {
			stack_done(saved);
			*saved = image;
		}
	}
	if (r == 0)
		r = store_sync(ss, err);
	store_session_end(ss);
	return r;
}

static int do_save(struct side *s, uint64_t op, struct err *err)
{
	auto_stack sealed = { 0 }, saved = { 0 };
	bool replace = below(2);
	int r = save(s, &sealed, &saved, replace, err);
	if (r == 0 && replace)
		r = ws_replace(s->ws, &sealed, &saved, err);
	auto_buf b = { 0 };
	stack_encode(&saved, &b);
	if (r == 0 && b.len <= SAVED_MAX) {
		s->sh->saved_op = 0;
		memcpy(s->sh->saved, b.data, b.len);
		s->sh->saved_len = (uint32_t)b.len;
		s->sh->saved_op = op;
	}
	return r;
}

static int do_restore(struct side *s, struct err *err)
{
	auto_stack to = { 0 };
	if (s->sh->saved_op == 0 || stack_decode(&to, s->sh->saved, s->sh->saved_len) < 0)
		return 0;
	return ws_restore(s->ws, &to, NULL, err);
}

static unsigned choose(uint64_t op)
{
	rng = seed ^ op * UINT64_C(0xd1342543de82ef95);
	return below(1000);
}

/* What overwrites in place, or copies in several steps, may have got half-way, as on any
 * filesystem; once more, and it is whole. */
static bool may_be_cut(uint64_t op)
{
	unsigned x = choose(op);
	return x >= 450 && x < 880;
}

static void apply(struct side *s, uint64_t op)
{
	struct err err = { 0 };
	now_op = op;
	unsigned x = choose(op);
	int r = 0;
	if (x < 450)
		do_name(s->ws, x < 200 ? 0 : x < 300 ? 1 : x < 380 ? 2 : x < 430 ? 3 : 4);
	else if (x < 980)
		do_content(s->ws, x < 700   ? 0
				  : x < 760 ? 1
				  : x < 820 ? 2
				  : x < 880 ? 3
				  : x < 930 ? 4
					    : 5);
	else if (x < 990)
		r = do_fork(s, op, &err);
	else if (x < 994)
		r = ws_fsync(s->ws, 1);
	else if (x < 998)
		r = do_save(s, op, &err);
	else
		r = do_restore(s, &err);
	if (r < 0)
		fail("%s (%d)", err.text, r);
}

/* ---- both sides ---- */

static int no_sync(void *ctx, int fd)
{
	return 0; /* a kill loses nothing of the page cache */
}

static void side_open(struct side *s, const char *id)
{
	static struct io io; /* filled once: the other side's threads read it */
	struct err err;
	if (!io.open) {
		io = io_host;
		io.fdatasync = io.fsync = no_sync;
	}
	struct work_options opt = { .io = &io, .commit_ms = 20 };
	if (work_open(&s->work, s->root, &opt, &err) < 0)
		fail("%s", err.text);
	if (ws_open(&s->ws, s->work, id, &err) < 0 &&
	    ws_create(&s->ws, s->work, id, NULL, NULL, 0, 0, &err) < 0)
		fail("%s", err.text);
}

static void side_close(struct side *s)
{
	ws_close(s->ws);
	work_close(s->work);
}

struct dump {
	const struct view *v;
	struct buf b;
};

static int dump_xattr(void *ctx, const char *name, size_t name_len, const void *value, size_t len)
{
	/* The order isn't told: a sum that doesn't mind it. */
	*(uint64_t *)ctx += hash_xxh3(name, name_len, 1) * 31 + hash_xxh3(value, len, 2);
	return 0;
}

static int dump_one(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct dump *d = ctx;
	uint64_t content = 0, xattrs = 0;
	int r = 0;
	if (S_ISREG(a->mode)) {
		char *b = malloc(a->size + 1);
		ssize_t n = view_read(d->v, a->ino, b, a->size, 0, NULL);
		content = hash_xxh3(b, a->size, 0);
		free(b);
		r = n == (ssize_t)a->size ? 0 : n < 0 ? (int)n : -EIO;
	}
	if (r == 0)
		r = view_each_xattr(d->v, a->ino, dump_xattr, &xattrs);
	buf_printf(&d->b, "%.*s %o %u %" PRIu64 " %016" PRIx64 " %016" PRIx64 "\n", (int)len, path,
		   a->mode, a->nlink, S_ISDIR(a->mode) ? 0 : a->size, content, xattrs);
	return r;
}

static int by_line(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int dump_view(void *ctx, const struct view *v)
{
	struct dump *d = ctx;
	d->v = v;
	return view_walk(v, dump_one, d, NULL);
}

/* The tree as text, its lines sorted; the caller frees. */
static char *dump(struct ws *ws)
{
	struct dump d = { .v = NULL };
	int r = ws_with_view(ws, dump_view, &d);
	if (r < 0)
		fail("walk: %s", strerror(-r));
	buf_u8(&d.b, 0);
	size_t n = 0, at = 0;
	for (size_t i = 0; i < d.b.len; i++)
		n += d.b.data[i] == '\n';
	char **lines = calloc(n + 1, sizeof(*lines));
	char *text = (char *)d.b.data, *save_ptr = NULL, *out = malloc(d.b.len);
	n = 0;
	for (char *l = strtok_r(text, "\n", &save_ptr); l; l = strtok_r(NULL, "\n", &save_ptr))
		lines[n++] = l;
	qsort(lines, n, sizeof(*lines), by_line);
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(lines[i]);
		memcpy(out + at, lines[i], len);
		out[at + len] = '\n';
		at += len + 1;
	}
	out[at] = '\0';
	free(lines);
	buf_done(&d.b);
	return out;
}

static bool same(struct ws *a, struct ws *b, bool say)
{
	char *x = dump(a), *y = dump(b);
	bool equal = strcmp(x, y) == 0;
	if (!equal && say)
		(void)fprintf(stderr, "---- after the kill:\n%s---- should be:\n%s", x, y);
	free(x);
	free(y);
	return equal;
}

static void check_usage(struct ws *ws)
{
	int64_t bytes, inodes;
	if (ws->file.flattened)
		return;
	if (quota_count(&ws->view, own_layers(ws), &ws->quota, &bytes, &inodes, NULL, NULL) < 0 ||
	    bytes != ws->quota.bytes || inodes != ws->quota.inodes)
		fail("usage %" PRId64 " and %" PRId64 ", counted %" PRId64 " and %" PRId64,
		     ws->quota.bytes, ws->quota.inodes, bytes, inodes);
}

static bool has_ws(struct side *s, const char *id)
{
	char path[400];
	struct stat st;
	(void)snprintf(path, sizeof(path), "%s/ws/%s", s->root, id);
	return stat(path, &st) == 0;
}

/* Every fork that is there is what it was a fork of; then they go. */
static void check_forks(struct side *a, struct side *b)
{
	char path[200];
	struct err err;
	(void)snprintf(path, sizeof(path), "%s/ws", b->root);
	auto_dir *d = opendir(path);
	struct dirent *de;
	while ((de = readdir(d))) {
		struct ws *x, *y;
		if (de->d_name[0] != 'f')
			continue;
		if (!has_ws(a, de->d_name))
			fail("fork %s is gone", de->d_name);
		if (ws_open(&x, a->work, de->d_name, &err) < 0 ||
		    ws_open(&y, b->work, de->d_name, &err) < 0)
			fail("%s", err.text);
		if (!same(x, y, true))
			fail("fork %s isn't what it was made of", de->d_name);
		check_usage(x);
		ws_close(x);
		ws_close(y);
		if (ws_delete(a->work, de->d_name, &err) < 0 ||
		    ws_delete(b->work, de->d_name, &err) < 0)
			fail("%s", err.text);
	}
}

static bool keep_m(void *ctx, const char *id)
{
	return id[0] == 'm' || id[0] == 'f';
}

/* ---- the run ---- */

static void serve(struct side *s, uint64_t from)
{
	side_open(s, "m");
	for (uint64_t op = from;; op++) {
		apply(s, op);
		s->sh->acked = op;
	}
}

static uint64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t round_of(struct side *a, struct side *b, uint64_t done, uint64_t kill_us)
{
	struct err err;
	pid_t pid = fork();
	if (pid == 0) {
		serve(a, done + 1);
		_exit(0);
	}
	(void)usleep((useconds_t)kill_us);
	(void)kill(pid, SIGKILL);
	int status;
	if (waitpid(pid, &status, 0) < 0 || !WIFSIGNALED(status))
		fail("the server ended by itself (%x)", status);
	uint64_t acked = a->sh->acked > done ? a->sh->acked : done;

	for (uint64_t op = done + 1; op <= acked; op++)
		apply(b, op);
	/* What a start does. */
	side_open(a, "m");
	struct ws *m = a->ws;
	char id[32];
	(void)snprintf(id, sizeof(id), "f%" PRIu64, acked + 1);
	if (has_ws(a, id) || !same(m, b->ws, false)) {
		apply(b, ++acked); /* the one under way came through */
		if (may_be_cut(acked) && !same(m, b->ws, false))
			apply(a, acked);
		if (!same(m, b->ws, true))
			fail("after op %" PRIu64 " was acknowledged and a kill", acked - 1);
	}
	now_op = acked;
	check_usage(m);
	check_forks(a, b);
	ws_close(m);
	work_close(a->work);
	/* Nothing is left behind but what is named. */
	side_open(a, "m");
	ws_close(a->ws);
	if (work_sweep(a->work, keep_m, NULL, &err) < 0)
		fail("%s", err.text);
	work_close(a->work);
	return acked;
}

int main(int argc, char **argv)
{
	unsigned rounds = 60;
	struct err err;
	seed = test_seed();
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--rounds") == 0)
			rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[i + 1], NULL, 10);
	}
	(void)printf("# seed %" PRIu64 "\n", seed);
	(void)fflush(stdout);
	(void)snprintf(base, sizeof(base), "%s/bough-kill.XXXXXX",
		       getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(base))
		fail("mkdtemp");
	struct side a = { .work = NULL }, b = { .work = NULL };
	(void)snprintf(a.root, sizeof(a.root), "%s/a", base);
	(void)snprintf(b.root, sizeof(b.root), "%s/b", base);
	a.sh = mmap(NULL, sizeof(*a.sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	b.sh = calloc(1, sizeof(*b.sh));
	if (a.sh == MAP_FAILED || !b.sh)
		fail("no memory");
	side_open(&b, "m");
	uint64_t done = 0, start = now_ms(), wait_rng = seed;
	for (unsigned i = 0; i < rounds; i++) {
		rng = wait_rng;
		uint64_t wait_us = 3000 + below(below(4) ? 30000 : 150000);
		wait_rng = rnd();
		done = round_of(&a, &b, done, wait_us);
	}
	side_close(&b);
	if (io_remove_tree(AT_FDCWD, base, &err) < 0)
		fail("%s", err.text);
	free(b.sh);
	(void)printf("ok 1 - %u kills in %" PRIu64 " operations, %" PRIu64 " ms\n1..1\n", rounds,
		     done, now_ms() - start);
	return 0;
}
