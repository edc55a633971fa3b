/* Watching: at random, whoever applies the events to what it had must have what is there; then what
 * each operation looks like, pages, and what can't be known. */
#include <linux/fs.h>
#include <time.h>

#include "fs/base/clock.h"
#include "fs/work/batch.h"
#include "fs/work/watch.h"
#include "tests/seed.h"
#include "ws_kit.h"

/* ---- a watcher, which keeps a list of what is there ---- */

enum { FILES_MAX = 4096, LOCAL_PATH = 256, ROUNDS = 25, STEPS = 60, MOMENTS = 4 };

struct file {
	char path[LOCAL_PATH];
	uint8_t type;
	bool touched; /* told of since */
	struct attr a;
};

struct watcher {
	char token[WATCH_TOKEN_MAX];
	struct file *v;
	size_t n;
	size_t room; /* events of a page; 0: any */
	size_t got;
};

static int add_file(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct watcher *w = ctx;
	if (len == 0)
		return 0;
	assert_true(w->n < FILES_MAX && len < LOCAL_PATH);
	struct file *f = &w->v[w->n++];
	*f = (struct file){ .type = (uint8_t)(a->mode >> 12), .a = *a };
	memcpy(f->path, path, len);
	return 0;
}

static int walk(void *ctx, const struct view *v)
{
	return view_walk(v, add_file, ctx, NULL);
}

static int nothing(void *ctx, const struct watch_event *e)
{
	fail_msg("an event of %s", e->path);
	return 0;
}

static struct watcher begin(struct ws *ws)
{
	struct watcher w = { .v = calloc(FILES_MAX, sizeof(*w.v)) };
	assert_non_null(w.v);
	expect(0, ws_watch(ws, NULL, nothing, NULL, w.token));
	expect(0, ws_with_view(ws, walk, &w));
	return w;
}

static struct file *find(struct watcher *w, const char *path)
{
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->v[i].path, path) == 0)
			return &w->v[i];
	return NULL;
}

static bool is_at(const char *path, const char *top)
{
	size_t n = strlen(top);
	return strncmp(path, top, n) == 0 && (!path[n] || path[n] == '/');
}

static void drop(struct watcher *w, const char *path)
{
	for (size_t i = 0; i < w->n;)
		if (is_at(w->v[i].path, path))
			w->v[i] = w->v[--w->n];
		else
			i++;
}

static void move(struct watcher *w, const char *from, const char *to)
{
	char path[2 * LOCAL_PATH];
	for (size_t i = 0; i < w->n; i++)
		if (is_at(w->v[i].path, from)) {
			(void)snprintf(path, sizeof(path), "%s%s", to,
				       w->v[i].path + strlen(from));
			assert_true(strlen(path) < LOCAL_PATH);
			memcpy(w->v[i].path, path, strlen(path) + 1);
		}
}

static void set_path(struct file *f, const char *path)
{
	assert_true(strlen(path) < LOCAL_PATH);
	memcpy(f->path, path, strlen(path) + 1);
}

static void must_have(struct watcher *w, const char *path, bool have)
{
	if ((find(w, path) != NULL) != have)
		fail_msg("%s is %sthere, by the events", path, have ? "not " : "");
}

static int apply(void *ctx, const struct watch_event *e)
{
	struct watcher *w = ctx;
	if (getenv("VERBOSE"))
		printf("%d %s %s %s\n", e->kind, e->path, e->old_path ? e->old_path : "", e->token);
	if (w->room && w->got == w->room)
		return 1;
	w->got++;
	memcpy(w->token, e->token, strlen(e->token) + 1);
	switch (e->kind) {
	case WATCH_CREATED:
		must_have(w, e->path, false);
		w->v[w->n] = (struct file){ .type = e->type, .touched = true };
		set_path(&w->v[w->n++], e->path);
		return 0;
	case WATCH_DELETED:
		must_have(w, e->path, true);
		drop(w, e->path);
		return 0;
	case WATCH_RENAMED:
		must_have(w, e->old_path, true);
		drop(w, e->path); /* what it takes the place of */
		move(w, e->old_path, e->path);
		return 0;
	default:
		if (!*e->path)
			return 0;
		must_have(w, e->path, true);
		find(w, e->path)->touched = true;
		return 0;
	}
}

static int catch_up(struct ws *ws, struct watcher *w)
{
	char next[WATCH_TOKEN_MAX];
	int r;
	do {
		w->got = 0;
		r = ws_watch(ws, w->token, apply, w, next);
		assert_true(r != 1 || w->got == w->room);
		memcpy(w->token, next, sizeof(next));
	} while (r == 1);
	return r;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static void compare(struct ws *ws, struct watcher *w)
{
	struct watcher t = begin(ws);
	qsort(t.v, t.n, sizeof(*t.v), by_path);
	qsort(w->v, w->n, sizeof(*w->v), by_path);
	for (size_t i = 0; i < t.n || i < w->n; i++) {
		struct file *x = i < t.n ? &t.v[i] : NULL, *y = i < w->n ? &w->v[i] : NULL;
		if (!x || !y || strcmp(x->path, y->path) != 0)
			fail_msg("%s is there, %s by the events", x ? x->path : "nothing",
				 y ? y->path : "nothing");
		assert_int_equal(x->type, y->type);
		if (!y->touched && y->type == DT_REG &&
		    (x->a.ino != y->a.ino || x->a.size != y->a.size || x->a.mode != y->a.mode ||
		     x->a.mtime.tv_nsec != y->a.mtime.tv_nsec))
			fail_msg("%s changed, and no event says so: %lx %lx, %lu %lu, %o %o",
				 x->path, (long)x->a.ino, (long)y->a.ino, (long)x->a.size,
				 (long)y->a.size, x->a.mode, y->a.mode);
	}
	free(t.v);
}

/* ---- at random ---- */

struct play {
	struct kit *k;
	struct watcher w[MOMENTS];
	unsigned seed, lost, asked;
};

static unsigned pick(struct play *p, unsigned n)
{
	return (unsigned)rand_r(&p->seed) % n;
}

static void check(struct play *p, struct watcher *w)
{
	p->asked++;
	w->room = pick(p, 3) ? 0 : 1 + pick(p, 4);
	int r = catch_up(p->k->ws, w);
	if (r == -EKEYEXPIRED)
		p->lost++;
	else
		expect(0, r);
	if (r == 0)
		compare(p->k->ws, w);
	free(w->v);
	*w = begin(p->k->ws);
}

static void rename_some(struct play *p, const struct file *f, const char *path, bool there)
{
	struct ws *ws = p->k->ws;
	const char *old, *last;
	uint64_t from = tree_parent(ws, f->path, &old), in = tree_parent(ws, path, &last);
	/* An exchange is told as two renamings, which this watcher's list can't follow. */
	(void)ws_rename(ws, from, old, strlen(old), in, last, strlen(last),
			there && pick(p, 2) ? RENAME_NOREPLACE : 0, &root_caller);
}

static void put_some(struct play *p, const char *path)
{
	struct ws *ws = p->k->ws;
	struct entry e;
	struct ws_put_result res;
	const char *last;
	expect(0, ws_tmpfile(ws, 1, 0600, &root_caller, &e));
	expect(0, ws_write(ws, e.node, "put", 3, 0, false, &root_caller));
	struct ws_put want = { .file = ino_of(e.node) };
	want.dir = ino_of(tree_parent(ws, path, &last));
	want.name = last;
	want.len = strlen(last);
	(void)ws_put(ws, &want, &res);
	ws_forget(ws, e.node, 1);
}

static void change(struct play *p)
{
	static const char *const names[] = { "a", "b", "c", "d", "e", "\xff" };
	struct ws *ws = p->k->ws;
	struct watcher t = begin(ws);
	const struct file *f = t.n ? &t.v[pick(p, (unsigned)t.n)] : NULL;
	const char *at = "", *last;
	char path[2 * LOCAL_PATH];
	struct entry e;
	for (int i = 0; i < 4 && *at == 0 && t.n; i++) {
		const struct file *d = &t.v[pick(p, (unsigned)t.n)];
		if (d->type == DT_DIR && strlen(d->path) < LOCAL_PATH / 4)
			at = d->path;
	}
	(void)snprintf(path, sizeof(path), "%s%s%s", at, *at ? "/" : "", names[pick(p, 6)]);
	uint64_t in = tree_parent(ws, path, &last);
	bool there = ws_lookup(ws, in, last, strlen(last), &e) == 0;
	if (there)
		ws_forget(ws, e.node, 1);
	unsigned what = pick(p, 9);
	if (what < 2 && !there)
		tree_put(ws, path, "new");
	else if (what == 2 && !there)
		tree_mk(ws, path, S_IFDIR | 0755);
	else if (what == 3 && f && f->type == DT_REG)
		tree_write(ws, f->path, "more", 4, pick(p, 9000));
	else if (what == 4 && f && (f->type != DT_DIR || view_dir_empty(&ws->view, f->a.ino) == 1))
		tree_rm(ws, f->path);
	else if ((what == 5 || what == 6) && f && strcmp(f->path, path) != 0)
		rename_some(p, f, path, there);
	else if (what == 7 && f)
		tree_chmod(ws, f->path, 0700 + pick(p, 64));
	else if (what == 8)
		put_some(p, path);
	free(t.v);
}

static void upheaval(struct play *p, unsigned round)
{
	struct err err = { 0 };
	struct stack sealed = { 0 }, saved = { 0 };
	struct kit *k = p->k;
	char id[16];
	switch (pick(p, 4)) {
	case 0:
		(void)snprintf(id, sizeof(id), "c%u", round);
		struct ws *child = kit_fork(k->ws, id);
		ws_close(k->ws);
		k->ws = child;
		return;
	case 1:
		kit_reopen(k);
		return;
	case 2:
		tree_seal(k->ws, &sealed);
		stack_done(&sealed);
		return;
	default:
		tree_seal(k->ws, &sealed);
		tree_save(&k->root, &sealed, &saved);
		succeed(err, ws_replace(k->ws, &sealed, &saved, &err));
		stack_done(&sealed);
		stack_done(&saved);
	}
}

static void at_random(void **state)
{
	struct play p = { .k = *state, .seed = (unsigned)test_seed() };
	for (size_t i = 0; i < MOMENTS; i++)
		p.w[i] = begin(p.k->ws);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned step = 0; step < STEPS; step++) {
			change(&p);
			if (pick(&p, 12) == 0)
				check(&p, &p.w[pick(&p, MOMENTS)]);
		}
		upheaval(&p, round);
		check(&p, &p.w[pick(&p, MOMENTS)]);
	}
	for (size_t i = 0; i < MOMENTS; i++)
		free(p.w[i].v);
	printf("%u of %u answers were lost\n", p.lost, p.asked);
	assert_true(p.asked > 50 && p.lost < p.asked / 2);
}

/* ---- one by one ---- */

static int print(void *ctx, const struct watch_event *e)
{
	static const char letters[] = "cmdr";
	struct buf *b = ctx;
	buf_printf(b, "%s%c %s%s%s", b->len ? ", " : "", letters[e->kind], e->path,
		   e->old_path ? " < " : "", e->old_path ? e->old_path : "");
	return 0;
}

/* What happened since, in words; the token moves on. */
static const char *since(struct ws *ws, char token[WATCH_TOKEN_MAX])
{
	static char text[8192];
	struct buf b = { 0 };
	expect(0, ws_watch(ws, token, print, &b, token));
	(void)snprintf(text, sizeof(text), "%.*s", (int)b.len, b.len ? (const char *)b.data : "");
	buf_done(&b);
	return text;
}

static void rename_to(struct ws *ws, const char *from, const char *to, unsigned flags)
{
	const char *a, *b;
	uint64_t x = tree_parent(ws, from, &a), y = tree_parent(ws, to, &b);
	expect(0, ws_rename(ws, x, a, strlen(a), y, b, strlen(b), flags, &root_caller));
}

static void what_each_looks_like(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	struct play p = { .k = *state };
	char t[WATCH_TOKEN_MAX], old[WATCH_TOKEN_MAX];
	expect(0, ws_watch(ws, NULL, nothing, NULL, t));
	assert_string_equal(since(ws, t), "");
	tree_mk(ws, "d", S_IFDIR | 0755);
	assert_string_equal(since(ws, t), "c d");
	tree_put(ws, "d/f", "1");
	assert_string_equal(since(ws, t), "c d/f, m d/f");
	tree_write(ws, "d/f", "2", 1, 0);
	tree_write(ws, "d/f", "3", 1, 0);
	assert_string_equal(since(ws, t), "m d/f");
	tree_chmod(ws, "d", 0700);
	assert_string_equal(since(ws, t), "m d");
	const struct attr mode = { .mode = 0700 };
	struct attr root;
	expect(0, ws_setattr(ws, 1, WS_SET_MODE, &mode, &root_caller, &root));
	assert_string_equal(since(ws, t), "m ");
	rename_to(ws, "d/f", "g", 0);
	assert_string_equal(since(ws, t), "r g < d/f");
	memcpy(old, t, sizeof(t));
	rename_to(ws, "d", "e", 0);
	tree_put(ws, "e/x", "1");
	rename_to(ws, "e", "d", 0);
	assert_string_equal(since(ws, t), "r e < d, c e/x, m e/x, r d < e");
	/* Paths are those of then, though the folder is elsewhere now. */
	rename_to(ws, "d", "z", 0);
	(void)since(ws, t);
	assert_string_equal(since(ws, old), "r e < d, c e/x, m e/x, r d < e, r z < d");
	tree_put(ws, "h", "");
	(void)since(ws, t);
	rename_to(ws, "g", "h", 0); /* onto another */
	assert_string_equal(since(ws, t), "r h < g");
	rename_to(ws, "h", "z", RENAME_EXCHANGE);
	assert_string_equal(since(ws, t), "r z < h, r h < z");
	put_some(&p, "h/new");
	assert_string_equal(since(ws, t), "c h/new");
	put_some(&p, "h/new");
	assert_string_equal(since(ws, t), "m h/new");
	tree_put(ws, WATCH_HIDDEN "0", "");
	tree_rm(ws, WATCH_HIDDEN "0");
	assert_string_equal(since(ws, t), "");
	tree_put(ws, "h/" WATCH_HIDDEN "0", "");
	assert_string_equal(since(ws, t), "c h/" WATCH_HIDDEN "0");
	tree_put(ws, "came", "");
	tree_rm(ws, "came");
	assert_string_equal(since(ws, t), "c came, d came");
	/* Written to and then renamed: both are told. */
	tree_write(ws, "z", "x", 1, 0);
	rename_to(ws, "z", "y", 0);
	assert_string_equal(since(ws, t), "m z, r y < z");
	struct entry e;
	expect(0, ws_link(ws, tree_node(ws, "y"), 1, "y2", 2, &root_caller, &e));
	ws_forget(ws, e.node, 1);
	assert_string_equal(since(ws, t), "c y2, m y2");
	tree_rm(ws, "y");
	assert_string_equal(since(ws, t), "d y, m y2");
	/* What only the layers below have. */
	struct stack sealed = { 0 };
	tree_seal(ws, &sealed);
	stack_done(&sealed);
	assert_string_equal(since(ws, t), "");
	tree_rm(ws, "h/new");
	put_some(&p, "y2");
	rename_to(ws, "h", "k", 0);
	assert_string_equal(since(ws, t), "d h/new, m y2, r k < h");
}

static int one_only(void *ctx, const struct watch_event *e)
{
	int *n = ctx;
	return (*n)++ > 0;
}

static void what_is_lost(void **state)
{
	struct kit *k = *state;
	struct ws *ws = k->ws;
	struct err err = { 0 };
	char t[WATCH_TOKEN_MAX], start[WATCH_TOKEN_MAX], next[WATCH_TOKEN_MAX];
	static const char *const bad[] = { "", "x", "0", "00000000000000000000000000000000",
					   "00000000000000000000000000000000.",
					   "00000000000000000000000000000000.x",
					   "00000000000000000000000000000000.1-",
					   "00000000000000000000000000000000.1-0",
					   "00000000000000000000000000000000.1-1x",
					   "00000000000000000000000000000000.-1",
					   "g0000000000000000000000000000000.1" };
	expect(0, ws_watch(ws, NULL, nothing, NULL, start));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		expect(-EINVAL, ws_watch(ws, bad[i], nothing, NULL, t));
		expect(-EINVAL, watch_token_check(bad[i]));
	}
	expect(-EKEYEXPIRED, ws_watch(ws, "00000000000000000000000000000000.1", nothing, NULL, t));
	assert_string_equal(t, start);
	(void)snprintf(next, sizeof(next), "%.33s%d", start, 99);
	expect(-EKEYEXPIRED, ws_watch(ws, next, nothing, NULL, t));
	/* A page, and the next. */
	tree_put(ws, "a", "");
	tree_put(ws, "b", "");
	int n = 0;
	expect(1, ws_watch(ws, start, one_only, &n, next));
	assert_string_equal(since(ws, next), "c b");
	n = 1;
	expect(1, ws_watch(ws, start, one_only, &n, next));
	assert_string_equal(since(ws, next), "c a, c b");
	/* A restore is another tree. */
	struct stack base = { 0 };
	tree_seal(ws, &base);
	tree_put(ws, "c", "");
	expect(0, ws_watch(ws, NULL, nothing, NULL, t));
	succeed(err, ws_restore(ws, &base, NULL, &err));
	expect(-EKEYEXPIRED, ws_watch(ws, t, nothing, NULL, next));
	expect(0, ws_watch(ws, next, nothing, NULL, t));
	stack_done(&base);
	/* More than the log holds. */
	char name[16];
	for (int i = 0; i < 9000; i++) {
		(void)snprintf(name, sizeof(name), "n%d", i);
		tree_mk(ws, name, S_IFDIR | 0755);
	}
	expect(-EKEYEXPIRED, ws_watch(ws, t, nothing, NULL, next));
}

/* ---- waiting ---- */

static void *change_soon(void *arg)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	tree_put(arg, "soon", "1");
	return NULL;
}

static void *hush_soon(void *arg)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
	work_hush(arg);
	return NULL;
}

static void waiting(void **state)
{
	struct kit *k = *state;
	struct work *w = k->root.work;
	uint64_t at, then;
	char **ids;
	size_t n;
	pthread_t th;
	expect(2, work_await(w, 0, 0, &at, &ids, &n));
	assert_null(ids);
	expect(0, work_await(w, at, 0, &at, &ids, &n));
	uint64_t begun = clock_ms();
	assert_int_equal(pthread_create(&th, NULL, change_soon, k->ws), 0);
	expect(1, work_await(w, at, 20000, &then, &ids, &n));
	assert_true(clock_ms() - begun < 10000);
	assert_int_equal(n, 1);
	assert_string_equal(ids[0], ws_id(k->ws));
	free(ids[0]);
	free(ids);
	(void)pthread_join(th, NULL);
	expect(1, work_await(w, at, 20000, &then, &ids, &n)); /* asked again, told again */
	free(ids[0]);
	free(ids);
	/* Another workspace's change names that one alone. */
	struct ws *other = tree_create(&k->root, "other", NULL);
	expect(2, work_await(w, then + 1000000, 0, &then, &ids, &n));
	tree_put(other, "x", "");
	expect(1, work_await(w, then, 0, &then, &ids, &n));
	assert_int_equal(n, 1);
	assert_string_equal(ids[0], "other");
	free(ids[0]);
	free(ids);
	ws_close(other);
	expect(0, work_await(w, then, 10, &then, &ids, &n));
	assert_int_equal(pthread_create(&th, NULL, hush_soon, w), 0);
	expect(-ESHUTDOWN, work_await(w, then, 20000, &then, &ids, &n));
	(void)pthread_join(th, NULL);
}

/* ---- many names in one step ---- */

static void symlinks(struct ws *ws, const char *folder, size_t n)
{
	struct batch_op *ops = calloc(n, sizeof(*ops));
	char (*names)[32] = calloc(n, sizeof(*names));
	size_t failed;
	assert_true(ops && names);
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "%s/l%zu", folder, i);
		ops[i] = (struct batch_op){ .kind = BATCH_MAKE,
					    .flags = BATCH_PARENTS | BATCH_REPLACE,
					    .mode = S_IFLNK | 0777,
					    .path = names[i],
					    .path_len = strlen(names[i]),
					    .other = "to",
					    .other_len = 2 };
	}
	const struct ws_batch b = { .ops = ops, .n = n, .tag = WS_TAG_OURS | 1 };
	expect(0, ws_batch(ws, &b, NULL, &failed));
	free(names);
	free(ops);
}

static int count_one(void *ctx, const struct watch_event *e)
{
	++*(size_t *)ctx;
	return 0;
}

/* CPU time of this thread for telling what one batch did that replaced so many files of a layer
 * below: the least of some. */
static int64_t cost_of(struct ws *ws, const char *folder, size_t n)
{
	char t[WATCH_TOKEN_MAX], next[WATCH_TOKEN_MAX];
	struct stack sealed = { 0 };
	int64_t least = INT64_MAX;
	symlinks(ws, folder, n);
	tree_seal(ws, &sealed);
	stack_done(&sealed);
	expect(0, ws_watch(ws, NULL, nothing, NULL, t));
	symlinks(ws, folder, n);
	for (int i = 0; i < 5; i++) {
		struct timespec a, b;
		size_t got = 0;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
		expect(0, ws_watch(ws, t, count_one, &got, next));
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
		assert_int_equal(got, n);
		int64_t ns = (b.tv_sec - a.tv_sec) * 1000000000 + (b.tv_nsec - a.tv_nsec);
		least = ns < least ? ns : least;
	}
	return least;
}

static void many_names(void **state)
{
	enum { FEW = 250, MANY = 16 * FEW, MOST = 80 }; /* squared, it is 256 times as much */
	struct ws *ws = ((struct kit *)*state)->ws;
	int64_t few = cost_of(ws, "few", FEW), many = cost_of(ws, "many", MANY);
	printf("%d names: %lld us, %d: %lld us\n", FEW, (long long)few / 1000, MANY,
	       (long long)many / 1000);
	assert_true(many < few * MOST);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		TEST(at_random),
		TEST(what_each_looks_like),
		TEST(what_is_lost),
		TEST(waiting),
		TEST(many_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
