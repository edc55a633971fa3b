/* Going on where a server was killed: a child plays that server, and ends without a word; what is
 * answered, held and told afterwards. */
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "fs/mount/held.h"
#include "fs/mount/request.h"
#include "fs/work/batch.h"
#include "ws_kit.h"

static struct err err;

struct place {
	char dir[64];
	struct work *work;
	struct ws *ws;
	/* Written by the server that is killed. */
	struct told {
		uint64_t node[8];
		unsigned names;
	} *told;
};

static int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));
	assert_non_null(p);
	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->told = mmap(NULL, sizeof(*p->told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	assert_ptr_not_equal(p->told, MAP_FAILED);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	ws_close(p->ws);
	work_close(p->work);
	assert_int_equal(io_remove_tree(AT_FDCWD, p->dir, NULL), 0);
	(void)munmap(p->told, sizeof(*p->told));
	free(p);
	return 0;
}

static void open_work(struct place *p, bool resumes)
{
	struct work_options opt = { .commit_ms = UINT64_MAX, .resumes = resumes };
	succeed(err, work_open(&p->work, p->dir, &opt, &err));
}

/* `does` in a process of its own, on a new workspace "w", which dies where it returns. */
static void killed(struct place *p, void (*does)(struct place *p))
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		open_work(p, false);
		succeed(err, ws_create(&p->ws, p->work, "w", NULL, NULL, 0, 0, &err));
		does(p);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void resume(struct place *p)
{
	open_work(p, true);
	succeed(err, ws_resume(&p->ws, p->work, "w", &err));
}

static struct caller tagged(uint64_t tag)
{
	return (struct caller){ .tag = tag };
}

static struct entry make(struct ws *ws, const char *name, uint64_t tag)
{
	struct caller c = tagged(tag);
	struct entry e;
	expect(0, ws_mknod(ws, 1, name, strlen(name), S_IFREG | 0644, 0, &c, &e));
	return e;
}

/* ---- what was answered ---- */

static void do_requests(struct place *p)
{
	struct ws *ws = p->ws;
	struct caller c = tagged(2);
	struct entry a = make(ws, "a", 1), b, e;
	expect(0, ws_write(ws, a.node, "text", 4, 0, false, &c));
	c = tagged(3);
	expect(-EEXIST, ws_mknod(ws, 1, "a", 1, S_IFDIR | 0755, 0, &c, &e));
	c = tagged(4);
	expect(0, ws_rename(ws, 1, "a", 1, 1, "b", 1, 0, &c));
	struct stack st = { 0 };
	succeed(err, ws_seal(ws, &st, &err)); /* what came before is in another layer now */
	stack_done(&st);
	c = tagged(5);
	expect(0, ws_setxattr(ws, a.node, "user.x", "1", 1, XATTR_CREATE, &c));
	c = tagged(6);
	expect(0, ws_tmpfile(ws, 1, 0600, &c, &b));
	/* A growth, shared blocks and a ragged end: only the last is the request's. */
	struct entry from = make(ws, "from", 7), to = make(ws, "to", 8);
	char text[10000] = "";
	expect(0, ws_write(ws, from.node, text, sizeof(text), 0, false, &root_caller));
	expect(0, ws_write(ws, to.node, text, 1, 30000, false, &root_caller));
	c = tagged(9);
	expect(sizeof(text), ws_copy_range(ws, from.node, 0, to.node, 0, sizeof(text), &c));
	c = tagged(10);
	expect(0, ws_unlink(ws, 1, "from", 4, &c));
	p->told->node[0] = a.node;
	p->told->node[1] = b.node;
	p->told->node[2] = to.node;
}

static void answered(void **state)
{
	struct place *p = *state;
	killed(p, do_requests);
	resume(p);
	const uint64_t *node = p->told->node;
	const struct {
		uint64_t tag;
		int result;
		uint64_t node; /* 0: whatever it is */
	} table[] = {
		{ 0, 0, 0 },	   { 1, 1, node[0] }, { 2, 1, node[0] }, { 3, 0, 0 },
		{ 4, 1, node[0] }, { 5, 1, node[0] }, { 6, 1, node[1] }, { 9, 1, node[2] },
		{ 10, 1, 0 },	   { 11, 0, 0 },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		uint64_t n = 0;
		expect(table[i].result, ws_answered(p->ws, table[i].tag, &n));
		if (table[i].node)
			assert_int_equal(n, table[i].node);
	}
	struct entry e;
	expect(0, ws_again(p->ws, node[0], &e));
	assert_int_equal(e.node, node[0]);
	assert_int_equal(e.attr.size, 4);
	expect(0, ws_again(p->ws, node[1], &e)); /* it has no name, and is there */
	assert_int_equal(e.attr.nlink, 0);
	expect(-ESTALE, ws_again(p->ws, 12345, &e));
	/* What this server does itself it needn't look for. */
	struct entry own = make(p->ws, "own", 20);
	uint64_t n;
	expect(0, ws_answered(p->ws, 20, &n));
	ws_forget(p->ws, own.node, 1);
}

static int make_folder(struct ws *ws, const char *name, uint64_t tag)
{
	const struct batch_op op = {
		.kind = BATCH_MAKE, .mode = S_IFDIR | 0755, .path = name, .path_len = strlen(name)
	};
	const struct ws_batch b = { .ops = &op, .n = 1, .tag = tag | WS_TAG_OURS };
	size_t failed;
	return ws_batch(ws, &b, NULL, &failed);
}

static void do_for_boughd(struct place *p)
{
	expect(0, make_folder(p->ws, "before", 1));
}

/* Who isn't the kernel asks after a kill of its own, too. */
static void boughd_is_answered(void **state)
{
	struct place *p = *state;
	struct stack st = { 0 };
	uint64_t n;
	killed(p, do_for_boughd);
	resume(p);
	expect(0, ws_answered(p->ws, 2 | WS_TAG_OURS, &n));
	expect(0, make_folder(p->ws, "now", 2));
	expect(-EEXIST, make_folder(p->ws, "now", 3));
	succeed(err, ws_seal(p->ws, &st, &err));
	stack_done(&st);
	expect(1, ws_answered(p->ws, 1 | WS_TAG_OURS, &n));
	expect(1, ws_answered(p->ws, 2 | WS_TAG_OURS, &n));
	expect(0, ws_answered(p->ws, 3 | WS_TAG_OURS, &n));
	expect(0, ws_answered(p->ws, 2, &n));
	expect(0, ws_answered(p->ws, WS_TAG_OURS, &n));
	for (unsigned i = 0; i < 1024; i++) { /* as many as it remembers */
		char name[16];
		(void)snprintf(name, sizeof(name), "n%u", i);
		expect(0, make_folder(p->ws, name, 10 + i));
	}
	expect(1, ws_answered(p->ws, 10 | WS_TAG_OURS, &n));
	expect(0, ws_answered(p->ws, 2 | WS_TAG_OURS, &n));
}

static void do_half_a_copy(struct place *p)
{
	enum { ALL = 5 << 19 }; /* two steps and a half, where bytes are copied */
	struct ws *ws = p->ws;
	struct entry from = make(ws, "from", 1), to = make(ws, "to", 2);
	char *text = calloc(1, ALL);
	assert_non_null(text);
	expect(0, ws_write(ws, from.node, text, ALL, 0, false, &root_caller));
	struct ws_limits some = { .bytes = ALL + (3 << 19) };
	succeed(err, ws_set_limits(ws, &some, &err));
	struct caller c = tagged(3);
	expect(1 << 20, ws_copy_range(ws, from.node, 1, to.node, 0, ALL, &c));
	free(text);
}

static void half_a_copy_isnt_answered(void **state)
{
	struct place *p = *state;
	uint64_t n;
	killed(p, do_half_a_copy);
	resume(p);
	expect(0, ws_answered(p->ws, 3, &n));
	expect(1, ws_answered(p->ws, 2, &n));
}

/* ---- what is held ---- */

static void do_unlinks(struct place *p)
{
	struct entry gone = make(p->ws, "gone", 0), other = make(p->ws, "other", 0);
	expect(0, ws_write(p->ws, gone.node, "held", 4, 0, false, &root_caller));
	expect(0, ws_unlink(p->ws, 1, "gone", 4, &root_caller));
	make(p->ws, "kept", 0);
	p->told->node[0] = gone.node;
	p->told->node[1] = other.node;
}

static bool the_kernel_says(void *ctx, uint64_t node)
{
	const uint64_t *held = ctx;
	return *held == node;
}

static bool is_there(struct ws *ws, uint64_t node)
{
	struct attr a;
	int r = ws_getattr(ws, node, &a);
	assert_true(r == 0 || r == -ESTALE);
	return r == 0;
}

static void held(void **state)
{
	struct place *p = *state;
	char text[8];
	killed(p, do_unlinks);
	resume(p);
	uint64_t gone = p->told->node[0], other = p->told->node[1];
	expect(4, ws_read(p->ws, gone, text, sizeof(text), 0));
	/* How often the kernel held it isn't known: only its own word counts. */
	ws_forget(p->ws, gone, 5);
	assert_true(is_there(p->ws, gone));
	expect(0, ws_unlink(p->ws, 1, "other", 5, &root_caller));
	assert_true(is_there(p->ws, other));
	assert_true(ws_forget_unheld(p->ws, the_kernel_says, &gone));
	assert_true(is_there(p->ws, other)); /* it said no once */
	assert_true(ws_forget_unheld(p->ws, the_kernel_says, &gone));
	assert_false(is_there(p->ws, other));
	assert_true(is_there(p->ws, gone));
	/* Between two times no it says yes. */
	uint64_t none = 0;
	assert_true(ws_forget_unheld(p->ws, the_kernel_says, &none));
	assert_true(ws_forget_unheld(p->ws, the_kernel_says, &gone));
	assert_true(ws_forget_unheld(p->ws, the_kernel_says, &none));
	assert_true(is_there(p->ws, gone));
	assert_false(ws_forget_unheld(p->ws, the_kernel_says, &none));
	assert_false(is_there(p->ws, gone));
	/* What is given out in this life is counted. */
	struct entry e = make(p->ws, "new", 0);
	expect(0, ws_unlink(p->ws, 1, "new", 3, &root_caller));
	assert_true(is_there(p->ws, e.node));
	ws_forget(p->ws, e.node, 1);
	assert_false(is_there(p->ws, e.node));
	kit_check_usage(p->ws);
}

static void not_held_after_an_end(void **state)
{
	struct place *p = *state;
	killed(p, do_unlinks);
	resume(p);
	uint64_t gone = p->told->node[0];
	assert_true(is_there(p->ws, gone));
	ws_forget_all(p->ws); /* unmounted */
	assert_false(is_there(p->ws, gone));
	ws_close(p->ws);
	succeed(err, ws_open(&p->ws, p->work, "w", &err));
	assert_false(is_there(p->ws, gone));
	kit_check_usage(p->ws);
}

static void nobody_goes_on(void **state)
{
	struct place *p = *state;
	killed(p, do_unlinks);
	open_work(p, false);
	succeed(err, ws_open(&p->ws, p->work, "w", &err));
	assert_false(is_there(p->ws, p->told->node[0]));
}

static void generations(void **state)
{
	struct place *p = *state;
	_Atomic uint16_t kept = 7;
	killed(p, do_unlinks);
	resume(p);
	ws_keep_gen(p->ws, &kept);
	assert_int_equal(p->ws->gen, 7);
	gen_shown(p->ws, 9);
	assert_int_equal(kept, 9);
	ws_keep_gen(p->ws, NULL);
	gen_shown(p->ws, 11);
	assert_int_equal(kept, 9);
	ws_keep_gen(p->ws, &kept);
	assert_int_equal(kept, 11);
}

/* ---- what must be told ---- */

static void die_telling(void *ctx, uint64_t dir_node, const char *name, size_t len, bool removed,
			uint64_t child_node)
{
	_exit(0);
}

static void count_name(void *ctx, uint64_t dir_node, const char *name, size_t len, bool removed,
		       uint64_t child_node)
{
	struct told *t = ctx;
	t->names++;
	assert_int_equal(dir_node, 1);
	assert_true(len == 3 && memcmp(name, "new", 3) == 0 && removed);
}

static void note_node(void *ctx, uint64_t node)
{
}

static void do_restore(struct place *p)
{
	struct stack st = { 0 };
	make(p->ws, "old", 0);
	succeed(err, ws_seal(p->ws, &st, &err));
	make(p->ws, "new", 0);
	struct ws_changes ch = { .name = die_telling, .node = note_node };
	succeed(err, ws_restore(p->ws, &st, &ch, &err));
	_exit(1); /* it was told nothing */
}

static void told_again(void **state)
{
	struct place *p = *state;
	struct ws_changes ch = { .name = count_name, .node = note_node, .ctx = p->told };
	killed(p, do_restore);
	resume(p);
	ws_retell(p->ws, &ch);
	assert_int_equal(p->told->names, 1);
	ws_retell(p->ws, &ch); /* once is enough */
	assert_int_equal(p->told->names, 1);
	/* Of a restore that never came to be. */
	struct forget_list f = { 0 };
	expect(0, forget_list_name(&f, 1, "new", 3, true, 0));
	int dir = openat(p->work->ws_fd, "w", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir >= 0);
	forget_list_write(p->ws, dir, p->ws->file.seq + 1, &f);
	ws_retell(p->ws, &ch);
	assert_int_equal(p->told->names, 1);
	forget_list_write(p->ws, dir, p->ws->file.seq, &f);
	ws_retell(p->ws, &ch);
	assert_int_equal(p->told->names, 2);
	close(dir);
	forget_list_done(&f);
}

/* ---- bytes ---- */

static void lists_as_bytes(void **state)
{
	struct forget_list f = { 0 }, g;
	struct buf b = { 0 }, again = { 0 };
	uint64_t seq;
	expect(0, forget_list_name(&f, 1, "a name", 6, true, 17));
	expect(0, forget_list_name(&f, 18, "b", 1, false, 0));
	expect(0, forget_list_node(&f, 99));
	forget_list_encode(&f, 7, &b);
	expect(0, forget_list_decode(&g, &seq, b.data, b.len));
	assert_int_equal(seq, 7);
	forget_list_encode(&g, seq, &again);
	assert_int_equal(again.len, b.len);
	assert_memory_equal(again.data, b.data, b.len);
	forget_list_done(&g);
	for (size_t i = 0; i < b.len; i++) {
		expect(-EBADMSG, forget_list_decode(&g, &seq, b.data, i));
		b.data[i] ^= 4;
		expect(-EBADMSG, forget_list_decode(&g, &seq, b.data, b.len));
		b.data[i] ^= 4;
	}
	forget_list_done(&f);
	buf_done(&b);
	buf_done(&again);
}

static void held_as_bytes(void **state)
{
	struct held h = { .dev = 5, .mask = 6, .want = 7, .init_len = 3, .init = "abc",
			  .id = "ws_x", .path = "/mnt/x" };
	struct held g;
	struct buf b = { 0 };
	held_encode(&h, &b);
	expect(0, held_decode(&g, b.data, b.len));
	assert_memory_equal(&g, &h, sizeof(g));
	for (size_t i = 0; i < b.len; i++)
		expect(-EBADMSG, held_decode(&g, b.data, i));
	buf_u8(&b, 0);
	expect(-EBADMSG, held_decode(&g, b.data, b.len));
	b.len--;
	b.data[b.len - 6] = 'x'; /* no path from / */
	expect(-EBADMSG, held_decode(&g, b.data, b.len));
	buf_done(&b);
}

static void tags(void **state)
{
	uint64_t again = UINT64_C(1) << 63;
	assert_int_equal(request_tag(1, 2), request_tag(1, 2 | again));
	assert_int_not_equal(request_tag(1, 2), request_tag(1, 4));
	assert_int_not_equal(request_tag(1, 2), request_tag(2, 2));
	assert_int_not_equal(request_tag(1, 2), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
		WITH(answered),
		WITH(boughd_is_answered),
		WITH(half_a_copy_isnt_answered),
		WITH(held),
		WITH(not_held_after_an_end),
		WITH(nobody_goes_on),
		WITH(generations),
		WITH(told_again),
		cmocka_unit_test(lists_as_bytes),
		cmocka_unit_test(held_as_bytes),
		cmocka_unit_test(tags),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
