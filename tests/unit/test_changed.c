/* What changed since a token: at random against a comparison of whole trees, through forks, seals,
 * saves and reopening; then the cases one by one that random play seldom meets. */
#include <fcntl.h>
#include <inttypes.h>
#include <time.h>

#include "fs/work/changed.h"
#include "fs/work/changed_log.h"
#include "oom.h"
#include "tests/seed.h"
#include "ws_kit.h"

/* ---- asking ---- */

static struct buf ask(struct ws *ws, uint64_t dir, const char *token)
{
	struct buf b = { 0 };
	expect(0, ws_changed(ws, dir, token, &root_caller, CHANGED_ANSWER_MAX, &b));
	assert_true(b.len > 0 && b.data[b.len - 1] == 0);
	return b;
}

/* The token of now, of the ordinary kind. */
static void now(struct ws *ws, char token[CHANGED_TOKEN_MAX])
{
	struct buf b = ask(ws, 1, "none");
	assert_true(b.len < CHANGED_TOKEN_MAX && b.data[0] == 'e');
	(void)snprintf(token, CHANGED_TOKEN_MAX, "l%s", (const char *)b.data + 1);
	buf_done(&b);
}

/* The paths of an answer, with blanks in between. */
static char *since(struct ws *ws, const char *token)
{
	static char text[CHANGED_ANSWER_MAX + 1];
	struct buf b = ask(ws, 1, token);
	size_t at = strlen((const char *)b.data) + 1;
	memcpy(text, b.data + at, b.len - at);
	for (size_t i = 0; i + 1 < b.len - at; i++)
		text[i] = text[i] ? text[i] : ' ';
	text[b.len > at ? b.len - at - 1 : 0] = 0;
	buf_done(&b);
	return text;
}

static bool names(const struct buf *b, const char *path)
{
	size_t at = strlen((const char *)b->data) + 1;
	if (at < b->len && strcmp((const char *)b->data + at, "/") == 0)
		return true;
	for (; at < b->len; at += strlen((const char *)b->data + at) + 1)
		if (strcmp((const char *)b->data + at, path) == 0)
			return true;
	return false;
}

/* ---- at random ---- */

enum { FILES_MAX = 4096, PATH_SIZE = 128, ROUNDS = 25, STEPS = 60 };

struct file {
	char path[PATH_SIZE];
	struct attr a;
};

struct tree {
	struct file *v;
	size_t n;
};

static int add_file(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct tree *t = ctx;
	if (len == 0)
		return 0;
	assert_true(t->n < FILES_MAX && len < PATH_SIZE);
	memcpy(t->v[t->n].path, path, len);
	t->v[t->n].path[len] = 0;
	t->v[t->n++].a = *a;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static int walk(void *ctx, const struct view *v)
{
	return view_walk(v, add_file, ctx, NULL);
}

static struct tree snapshot(struct ws *ws)
{
	struct tree t = { .v = calloc(FILES_MAX, sizeof(*t.v)) };
	assert_non_null(t.v);
	expect(0, ws_with_view(ws, walk, &t));
	qsort(t.v, t.n, sizeof(*t.v), by_path);
	return t;
}

static bool same(const struct attr *a, const struct attr *b)
{
	if (a->ino != b->ino || a->mode != b->mode)
		return false;
	return S_ISDIR(a->mode) || (a->size == b->size && a->uid == b->uid &&
				    a->mtime.tv_sec == b->mtime.tv_sec &&
				    a->mtime.tv_nsec == b->mtime.tv_nsec &&
				    a->ctime.tv_nsec == b->ctime.tv_nsec);
}

/* A folder's own attributes come with a slash. */
static void must_name(const struct buf *b, const struct file *f, const char *token)
{
	char folder[PATH_SIZE + 1];
	(void)snprintf(folder, sizeof(folder), "%s/", f->path);
	if (!names(b, f->path) && !(S_ISDIR(f->a.mode) && names(b, folder)))
		fail_msg("%s isn't named for %s", f->path, token);
}

static void compare(const struct tree *x, const struct tree *y, const struct buf *b,
		    const char *token)
{
	size_t i = 0, j = 0;
	while (i < x->n || j < y->n) {
		int c = i == x->n ? 1 : j == y->n ? -1 : strcmp(x->v[i].path, y->v[j].path);
		if (c < 0)
			must_name(b, &x->v[i], token);
		else if (c > 0)
			must_name(b, &y->v[j], token);
		else if (!same(&x->v[i].a, &y->v[j].a))
			must_name(b, &y->v[j], token);
		i += c <= 0;
		j += c >= 0;
	}
}

/* Moments that are remembered, as git's index does. */
struct moment {
	char token[CHANGED_TOKEN_MAX];
	struct tree tree;
	struct buf touched; /* paths that operations named since */
};
enum { MOMENTS = 4 };

struct play {
	struct kit *k;
	struct moment m[MOMENTS];
	unsigned seed, everything, asked;
};

static unsigned pick(struct play *p, unsigned n)
{
	return (unsigned)rand_r(&p->seed) % n;
}

static void touched(struct play *p, const char *path)
{
	for (size_t i = 0; i < MOMENTS; i++)
		if (p->m[i].tree.v)
			buf_add(&p->m[i].touched, path, strlen(path) + 1);
}

static void forget(struct moment *m)
{
	free(m->tree.v);
	buf_done(&m->touched);
	*m = (struct moment){ 0 };
}

static void remember(struct play *p)
{
	struct moment *m = &p->m[pick(p, MOMENTS)];
	forget(m);
	now(p->k->ws, m->token);
	m->tree = snapshot(p->k->ws);
}

static void check(struct play *p, const struct moment *m)
{
	if (!m->tree.v)
		return;
	struct tree t = snapshot(p->k->ws);
	struct buf b = ask(p->k->ws, 1, m->token);
	p->asked++;
	p->everything += names(&b, "no such path");
	compare(&m->tree, &t, &b, m->token);
	for (size_t at = 0; at < m->touched.len;) {
		const char *path = (const char *)m->touched.data + at;
		if (!names(&b, path))
			fail_msg("%s was touched and isn't named for %s", path, m->token);
		at += strlen(path) + 1;
	}
	buf_done(&b);
	free(t.v);
}

static void change(struct play *p, const struct tree *t)
{
	static const char *const new_names[] = { "a", "b", "c", "d", "e", "f" };
	struct ws *ws = p->k->ws;
	const struct file *f = t->n ? &t->v[pick(p, (unsigned)t->n)] : NULL;
	const char *name = new_names[pick(p, 6)], *at = "";
	char path[PATH_SIZE * 2];
	bool dir = f && S_ISDIR(f->a.mode);
	for (int i = 0; i < 4 && *at == 0 && t->n; i++) {
		const struct file *d = &t->v[pick(p, (unsigned)t->n)];
		if (S_ISDIR(d->a.mode) && strlen(d->path) < PATH_SIZE / 2)
			at = d->path;
	}
	(void)snprintf(path, sizeof(path), "%s%s%s", at, *at ? "/" : "", name);
	struct entry e;
	const char *last;
	uint64_t in = tree_parent(ws, path, &last);
	int there = ws_lookup(ws, in, last, strlen(last), &e);
	if (there == 0)
		ws_forget(ws, e.node, 1);
	switch (pick(p, 9)) {
	case 0:
	case 1:
		if (there == -ENOENT) {
			tree_put(ws, path, "new");
			touched(p, path);
		}
		return;
	case 2:
		if (there == -ENOENT)
			tree_mk(ws, path, S_IFDIR | 0755);
		return;
	case 3:
		if (f && !dir) {
			tree_write(ws, f->path, "more", 4, pick(p, 9000));
			touched(p, f->path);
		}
		return;
	case 4:
		if (f && (!dir || view_dir_empty(&ws->view, f->a.ino) == 1)) {
			tree_rm(ws, f->path);
			touched(p, f->path);
		}
		return;
	case 5:
	case 6: /* also onto another, which then goes */
		if (f && strcmp(f->path, path) != 0) {
			const char *old;
			uint64_t from = tree_parent(ws, f->path, &old);
			if (ws_rename(ws, from, old, strlen(old), in, last, strlen(last),
				      pick(p, 4) == 0 && there == 0 ? RENAME_EXCHANGE : 0,
				      &root_caller) == 0) {
				touched(p, f->path);
				touched(p, path);
			}
		}
		return;
	case 7:
		if (f)
			tree_chmod(ws, f->path, 0700 + pick(p, 64));
		return;
	default: /* came and gone */
		if (there == -ENOENT) {
			tree_put(ws, path, "x");
			tree_rm(ws, path);
			touched(p, path);
		}
	}
}

/* What happens to whole workspaces; afterwards p->k->ws is one that goes on. */
static void upheaval(struct play *p, unsigned round)
{
	struct err err = { 0 };
	struct stack sealed = { 0 }, saved = { 0 };
	struct kit *k = p->k;
	char id[16];
	switch (pick(p, 4)) {
	case 0: /* on in a child */
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
	default: /* tokens live on where the layers were saved */
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
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned step = 0; step < STEPS; step++) {
			struct tree t = snapshot(p.k->ws);
			change(&p, &t);
			free(t.v);
			if (pick(&p, 10) == 0)
				remember(&p);
			if (pick(&p, 4) == 0)
				check(&p, &p.m[pick(&p, MOMENTS)]);
		}
		upheaval(&p, round);
		for (size_t i = 0; i < MOMENTS; i++)
			check(&p, &p.m[i]);
	}
	for (size_t i = 0; i < MOMENTS; i++)
		forget(&p.m[i]);
	printf("%u of %u answers were \"everything\"\n", p.everything, p.asked);
	assert_true(p.everything < p.asked / 2);
}

/* ---- one by one ---- */

static void tokens(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	char token[CHANGED_TOKEN_MAX], other[CHANGED_TOKEN_MAX * 2];
	static const char *const bad[] = {
		"", "l", "e", "i", "x", "0", "i0123456789abcde", "i0123456789abcdefg",
		"l00000000000000000000000000000000", "l00000000000000000000000000000000.",
		"l00000000000000000000000000000000.1", "lg0000000000000000000000000000000.1",
	};
	tree_put(ws, "f", "1");
	now(ws, token);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_string_equal(since(ws, bad[i]), "/");
	static const char *const ends[] = { "x", "//", "//1", "0000000000000000000000000", " " };
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		(void)snprintf(other, sizeof(other), "%s%s", token, ends[i]);
		assert_string_equal(since(ws, other), "/");
	}
	assert_string_equal(since(ws, token), "");
	/* Another layer's number, one that never was. */
	token[5] ^= 1;
	assert_string_equal(since(ws, token), "/");
	struct buf b = { 0 };
	const struct caller c = { .uid = 7 };
	expect(-EPERM, ws_changed(ws, 1, "x", &c, CHANGED_ANSWER_MAX, &b));
	const uint64_t file = tree_node(ws, "f");
	expect(-ENOTDIR, ws_changed(ws, file, "x", &root_caller, CHANGED_ANSWER_MAX, &b));
	expect(-ESTALE, ws_changed(ws, 99999, "x", &root_caller, CHANGED_ANSWER_MAX, &b));
	assert_int_equal(b.len, 0);
}

/* After "everything" each folder is named once, over several answers where they are many. */
static void all_folders(void **state)
{
	enum { MANY = 900 };
	struct ws *ws = ((struct kit *)*state)->ws;
	char name[200], token[CHANGED_TOKEN_MAX], question[CHANGED_TOKEN_MAX + 32];
	for (unsigned i = 0; i < MANY; i++) {
		(void)snprintf(name, sizeof(name), "folder-%0180u", i);
		tree_mk(ws, name, S_IFDIR | 0755);
	}
	tree_mk(ws, ".git", S_IFDIR | 0755);
	tree_mk(ws, ".git/objects", S_IFDIR | 0755);
	struct buf b = ask(ws, 1, "none");
	(void)snprintf(token, sizeof(token), "%s", (const char *)b.data);
	buf_done(&b);
	tree_put(ws, "new", "");
	assert_string_equal(since(ws, token), "new //0");
	unsigned found = 0, answers = 0;
	(void)snprintf(question, sizeof(question), "%s//0", token);
	for (bool more = true; more; answers++) {
		b = ask(ws, 1, question);
		assert_true(b.len <= CHANGED_ANSWER_MAX);
		more = false;
		for (size_t at = 0; at < b.len; at += strlen((char *)b.data + at) + 1) {
			const char *path = (const char *)b.data + at;
			more = strncmp(path, "//", 2) == 0;
			found += !more;
			if (more)
				(void)snprintf(question, sizeof(question), "%s%s", token, path);
			else
				assert_true(path[strlen(path) - 1] == '~');
			assert_true(strncmp(path, ".git", 4) != 0);
		}
		buf_done(&b);
	}
	assert_int_equal(found, MANY + 1); /* and the root */
	assert_true(answers > 2);
}

static void more_than_the_log_holds(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	char before[CHANGED_TOKEN_MAX], late[CHANGED_TOKEN_MAX];
	tree_put(ws, "f", "1");
	now(ws, before);
	/* One file many times is one thing. */
	for (unsigned i = 0; i < 2 * CHANGED_LOG_MAX; i++)
		tree_write(ws, "f", "x", 1, i % 7);
	assert_string_equal(since(ws, before), "f");
	for (unsigned i = 0; i < CHANGED_LOG_MAX / 2; i++) {
		tree_put(ws, "g", "");
		tree_rm(ws, "g");
	}
	now(ws, late);
	assert_string_equal(since(ws, before), "/");
	tree_put(ws, "h", "");
	assert_string_equal(since(ws, late), "h");
	const struct changed_log *log = layer_changed(active(ws));
	assert_true(changed_log_bytes(log) < CHANGED_LOG_MAX * 128);
}

static void what_others_flattened_or_loaded_is_not_known(void **state)
{
	struct kit *k = *state;
	struct err err = { 0 };
	struct stack sealed = { 0 }, saved = { 0 }, flat = { 0 };
	char token[CHANGED_TOKEN_MAX], image[CHANGED_TOKEN_MAX];
	tree_put(k->ws, "f", "1");
	now(k->ws, token);
	tree_seal(k->ws, &sealed);
	tree_save(&k->root, &sealed, &saved);
	succeed(err, ws_replace(k->ws, &sealed, &saved, &err));
	assert_string_equal(since(k->ws, token), "");
	tree_flatten(&k->root, &saved, &flat);
	succeed(err, ws_replace(k->ws, &saved, &flat, &err));
	stack_done(&saved);
	assert_string_equal(since(k->ws, token), "/");
	/* As in a checkout: the image, and above it what is made in it. */
	changed_token_of_image(image, &flat.image);
	assert_string_equal(since(k->ws, image), "");
	tree_put(k->ws, "g", "1");
	tree_rm(k->ws, "g");
	tree_put(k->ws, "f", "2");
	assert_string_equal(since(k->ws, image), "f g");
	struct ws *child = kit_fork(k->ws, "child");
	tree_put(child, "h", "1");
	assert_string_equal(since(child, image), "f g h");
	ws_close(child);
	stack_done(&sealed);
	tree_seal(k->ws, &sealed);
	/* Loaded as a delta, a layer doesn't say what came and went in it. */
	tree_save(&k->root, &sealed, &saved);
	struct ws *other = tree_create(&k->root, "other", &saved);
	assert_string_equal(since(other, image), "/");
	ws_close(other);
	stack_done(&sealed);
	stack_done(&saved);
	stack_done(&flat);
}

static void memory_runs_out(void **state)
{
	struct ws *ws = ((struct kit *)*state)->ws;
	char token[CHANGED_TOKEN_MAX];
	now(ws, token);
	tree_mk(ws, "d", S_IFDIR | 0755);
	tree_put(ws, "d/f", "1");
	tree_mv(ws, "d", "e");
	for (uint64_t n = 1;; n++) {
		struct buf b = { 0 };
		oom_at(n);
		int r = ws_changed(ws, 1, token, &root_caller, CHANGED_ANSWER_MIN, &b);
		bool hit = oom_hit();
		buf_done(&b);
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOMEM);
	}
	/* A log that has no memory forgets, and nothing else fails. */
	const struct layer_id id = { { 1 } };
	for (uint64_t n = 1; n < 4; n++) {
		struct changed_log *g = changed_log_new(&id);
		assert_non_null(g);
		oom_at(n);
		changed_log_inode(g, 1, 5);
		const struct changed_name x = { .dir = 5, .cookie = 20, .child = 6,
						.type = DT_REG, .name = "x", .len = 1 };
		changed_log_name(g, 2, &x);
		(void)oom_hit();
		oom_at(0);
		changed_log_inode(g, 3, 7);
		assert_true(changed_log_floor(g) < 3);
		assert_int_equal(changed_log_last(g), 3);
		changed_log_unref(g);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		TEST(at_random),
		TEST(tokens),
		TEST(all_folders),
		TEST(more_than_the_log_holds),
		TEST(what_others_flattened_or_loaded_is_not_known),
		TEST(memory_runs_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
