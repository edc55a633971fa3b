/* FUSE_INTERRUPT of a request that was answered already, or is sent again by the kernel after its
 * server died, or was never seen: each is answered at once, and no later request that bears the
 * same number is taken for one that somebody wants to end. */
#include <linux/fuse.h>
#include <stddef.h>
#include <sys/socket.h>
#include "fs/mount/ops.h"
#include "fs/mount/request.h"
#include "tests/unit/ws_kit.h"

#define RESENT (UINT64_C(1) << 63)
enum { WAIT = MSG_DONTWAIT, ANSWER = 1 << 17 };

struct talk {
	struct kit *k;
	struct mounted m;
	struct fuse_session *se;
	int ours; /* the kernel's end */
	uint8_t answer[ANSWER];
};

/* As the server does with what it read. */
static void send_request(struct talk *t, uint32_t opcode, uint64_t unique, uint64_t node,
			 const void *body, size_t len)
{
	uint8_t mem[sizeof(struct fuse_in_header) + 4096] = { 0 };
	struct fuse_in_header in = { .len = (uint32_t)(sizeof(in) + len),
				     .opcode = opcode,
				     .unique = unique,
				     .nodeid = node };
	struct fuse_buf b = { .size = in.len, .mem = mem };
	memcpy(mem, &in, sizeof(in));
	memcpy(mem + sizeof(in), body, len);
	request_begin(request_tag(7, unique), unique & RESENT);
	fuse_session_process_buf(t->se, &b);
	request_end();
}

/* The next answer: 1 and *out; 0: there is none. */
static int answer_of(struct talk *t, struct fuse_out_header *out)
{
	ssize_t n = recv(t->ours, t->answer, sizeof(t->answer), WAIT);
	if (n < (ssize_t)sizeof(*out))
		return 0;
	memcpy(out, t->answer, sizeof(*out));
	return 1;
}

static void set_up(struct talk *t, struct kit *k)
{
	char *argv[] = { "test", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_init_in init = { .major = FUSE_KERNEL_VERSION,
				     .minor = FUSE_KERNEL_MINOR_VERSION,
				     .max_readahead = 1 << 17,
				     .flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES };
	struct fuse_out_header out;
	char path[32];
	int pair[2];
	t->k = k;
	t->m = (struct mounted){ .ws = k->ws };
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	t->ours = pair[0];
	t->se = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), &t->m);
	fuse_opt_free_args(&args);
	assert_non_null(t->se);
	(void)snprintf(path, sizeof(path), "/dev/fd/%d", pair[1]);
	assert_int_equal(fuse_session_mount(t->se, path), 0);
	send_request(t, FUSE_INIT, 2, 0, &init, sizeof(init));
	assert_int_equal(answer_of(t, &out), 1);
	assert_int_equal(out.error, 0);
}

static void tear_down(struct talk *t)
{
	fuse_session_destroy(t->se);
	(void)close(t->ours);
}

/* Nobody waits for an answer of an interrupt, but it may be that there is none such (ENOSYS), and
 * never that it must be sent again (EAGAIN): that would go on for ever. */
static void interrupt(struct talk *t, uint64_t unique)
{
	const struct fuse_interrupt_in body = { .unique = unique };
	struct fuse_out_header out;
	send_request(t, FUSE_INTERRUPT, unique | 1, 0, &body, sizeof(body));
	while (answer_of(t, &out)) {
		assert_int_equal(out.unique, unique | 1);
		assert_int_equal(out.error, -ENOSYS);
	}
}

static void expect_answer(struct talk *t, uint64_t unique, int error)
{
	struct fuse_out_header out;
	assert_int_equal(answer_of(t, &out), 1);
	assert_true(out.unique == unique);
	assert_int_equal(out.error, error);
	assert_int_equal(answer_of(t, &out), 0); /* once */
}

static void make(struct talk *t, uint64_t unique, const char *name, int error)
{
	uint8_t body[sizeof(struct fuse_mknod_in) + 32] = { 0 };
	const struct fuse_mknod_in in = { .mode = S_IFREG | 0600 };
	memcpy(body, &in, sizeof(in));
	memcpy(body + sizeof(in), name, strlen(name));
	send_request(t, FUSE_MKNOD, unique, 1, body, sizeof(in) + strlen(name) + 1);
	expect_answer(t, unique, error);
}

static void stat_root(struct talk *t, uint64_t unique)
{
	const struct fuse_getattr_in in = { 0 };
	send_request(t, FUSE_GETATTR, unique, 1, &in, sizeof(in));
	expect_answer(t, unique, 0);
}

static void stale_ones(void **state)
{
	struct talk t;
	uint64_t unique = 100;
	set_up(&t, *state);
	interrupt(&t, 4711 << 1); /* whose request nobody ever saw */
	for (unsigned i = 0; i < 2000; i++, unique += 2) {
		char name[32];
		(void)snprintf(name, sizeof(name), "file-%u", i);
		switch (i % 4) {
		case 0: /* answered, then interrupted */
			make(&t, unique, name, 0);
			interrupt(&t, unique);
			break;
		case 1: /* interrupted before it comes, as the two may overtake each other */
			interrupt(&t, unique);
			make(&t, unique, name, 0);
			break;
		case 2: /* interrupted, and only then sent by the kernel once more */
			interrupt(&t, unique);
			make(&t, unique | RESENT, name, 0);
			break;
		case 3: /* sent once more and interrupted under its new number, several times */
			for (int n = 0; n < 3; n++)
				interrupt(&t, unique | RESENT);
			make(&t, unique | RESENT, name, 0);
			interrupt(&t, unique | RESENT);
			break;
		}
		make(&t, unique + 2, name, -EEXIST); /* it was done, and whole */
		unique += 2;
	}
	/* Those numbers come again, as they do for the next mount's connection. */
	for (uint64_t u = 100; u < 400; u += 2)
		stat_root(&t, u);
	tear_down(&t);
	assert_int_equal(kit_count_files(((struct kit *)*state)->ws), 2001);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(stale_ones, kit_setup, kit_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
