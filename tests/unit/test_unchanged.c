/* What makes the next save a new snapshot: changes, not what a look or an upload leaves behind. */
#include "snapd/unchanged.h"
#include "ws_kit.h"

/* Seals; whether that is what `head` was. `head` is then the new stack. */
static int sealed_since(struct kit *k, struct stack *head)
{
	struct stack now = { 0 };
	struct err err = { 0 };
	tree_seal(k->ws, &now);
	int r = tree_unchanged(&now, head, &k->root.opt, &err);
	stack_done(head);
	*head = now;
	return r;
}

static struct entry upload(struct ws *ws)
{
	struct entry e;
	expect(0, ws_tmpfile(ws, 1, 0600, &root_caller, &e));
	expect(0, ws_write(ws, e.node, "half of it", 10, 0, false, &root_caller));
	return e;
}

static struct stack begin(struct kit *k)
{
	struct stack head = { 0 };
	work_view_options(k->root.work, &k->root.opt);
	tree_put(k->ws, "f", "1");
	tree_seal(k->ws, &head);
	return head;
}

/* A save comes while it is under way, or the client goes before, between or behind two. */
static void an_upload_that_breaks_off(void **state)
{
	struct kit *k = *state;
	struct stack head = begin(k);
	struct entry e = upload(k->ws);
	expect(1, sealed_since(k, &head)); /* there is a file, but nobody sees it */
	expect(0, ws_write(k->ws, e.node, "more", 4, 10, false, &root_caller));
	expect(1, sealed_since(k, &head));
	ws_forget(k->ws, e.node, 1);
	expect(1, sealed_since(k, &head)); /* it went, which nobody sees either */
	e = upload(k->ws);
	ws_forget(k->ws, e.node, 1);
	expect(1, sealed_since(k, &head));
	stack_done(&head);
}

static void changes(void **state)
{
	struct kit *k = *state;
	struct stack head = begin(k);
	struct ws_put_result res;
	struct entry e = upload(k->ws);
	expect(1, sealed_since(k, &head));
	const struct ws_put want = { .dir = 1, .name = "new", .len = 3, .file = e.attr.ino };
	expect(0, ws_put(k->ws, &want, &res));
	expect(0, sealed_since(k, &head)); /* it got its name */
	ws_forget(k->ws, e.node, 1);
	expect(1, sealed_since(k, &head));
	tree_rm(k->ws, "new");
	expect(0, sealed_since(k, &head));
	tree_write(k->ws, "f", "2", 1, 0);
	expect(0, sealed_since(k, &head));
	/* Unlinked while somebody has it open, then closed. */
	struct entry open;
	expect(0, ws_lookup(k->ws, 1, "f", 1, &open));
	tree_rm(k->ws, "f");
	expect(0, sealed_since(k, &head));
	ws_forget(k->ws, open.node, 1);
	expect(1, sealed_since(k, &head));
	stack_done(&head);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)
	const struct CMUnitTest tests[] = {
		TEST(an_upload_that_breaks_off),
		TEST(changes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
