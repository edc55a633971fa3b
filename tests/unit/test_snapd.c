/* boughd's small parts: leases, streams, stacks, images, paths as text, and the control client
 * against a false bough-fs. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/buf.h"
#include "fs/base/frame.h"
#include "snapd/difftext.h"
#include "snapd/fsclient.h"
#include "snapd/lease.h"
#include "snapd/snapd.h"
#include "snapd/stackop.h"
#include "snapd/stream.h"

/* ---- leases ---- */

static void lease_kinds(void **state)
{
	/* Whether the second may be had while the first is held. */
	static const struct {
		enum lease_kind first, second;
		bool both;
	} table[] = {
		{ LEASE_SHARED, LEASE_SHARED, true },        { LEASE_SHARED, LEASE_SAVE, true },
		{ LEASE_SHARED, LEASE_EXCLUSIVE, false },    { LEASE_SAVE, LEASE_SHARED, true },
		{ LEASE_SAVE, LEASE_SAVE, false },           { LEASE_SAVE, LEASE_EXCLUSIVE, false },
		{ LEASE_EXCLUSIVE, LEASE_SHARED, false },    { LEASE_EXCLUSIVE, LEASE_SAVE, false },
		{ LEASE_EXCLUSIVE, LEASE_EXCLUSIVE, false },
	};
	struct leases *l = leases_new();
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct err err = { 0 };
		auto_lease a = { 0 }, b = { 0 }, other = { 0 };
		assert_int_equal(
			lease_take(&a, l, "ws_aaaaaaaaaa", table[i].first, "first", 0, &err), 0);
		assert_true(lease_is_held(l, "ws_aaaaaaaaaa"));
		assert_int_equal(lease_take(&b, l, "ws_aaaaaaaaaa", table[i].second, "second", 0,
					    &err),
				 table[i].both ? 0 : -EBUSY);
		if (!table[i].both)
			assert_non_null(strstr(err.text, "first"));
		assert_int_equal(
			lease_take(&other, l, "ws_bbbbbbbbbb", LEASE_EXCLUSIVE, "x", 0, &err), 0);
		assert_int_equal(lease_is_wanted(l, "ws_aaaaaaaaaa"), !table[i].both);
		assert_false(lease_is_wanted(l, "ws_bbbbbbbbbb"));
		lease_give(&a);
		lease_give(&b);
		assert_false(lease_is_held(l, "ws_aaaaaaaaaa"));
	}
	leases_free(l);
}

static atomic_bool may_give;

static void *hold_a_while(void *arg)
{
	auto_lease a = { 0 };
	(void)lease_take(&a, arg, "ws_aaaaaaaaaa", LEASE_SAVE, "save", 1000, NULL);
	while (!atomic_load(&may_give))
		usleep(1000);
	usleep(50000); /* it is waited for meanwhile, mostly */
	return NULL;
}

static void lease_waits(void **state)
{
	struct leases *l = leases_new();
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, hold_a_while, l), 0);
	while (!lease_is_held(l, "ws_aaaaaaaaaa"))
		usleep(1000);
	struct lease a = { 0 };
	assert_int_equal(lease_take(&a, l, "ws_aaaaaaaaaa", LEASE_EXCLUSIVE, "rm", 5, NULL),
			 -EBUSY);
	atomic_store(&may_give, true);
	assert_int_equal(lease_take(&a, l, "ws_aaaaaaaaaa", LEASE_EXCLUSIVE, "rm", 60000, NULL), 0);
	pthread_join(t, NULL);
	lease_give(&a);
	lease_give(&a); /* nothing more */
	leases_free(l);
}

/* ---- streams ---- */

enum { PUMPED = 5 << 20 };

static void *pump(void *arg)
{
	struct stream *s = arg;
	unsigned seed = 1;
	uint8_t block[7001];
	for (size_t at = 0; at < PUMPED;) {
		size_t n = (size_t)rand_r(&seed) % sizeof(block) + 1;
		if (n > PUMPED - at)
			n = PUMPED - at;
		for (size_t i = 0; i < n; i++)
			block[i] = (uint8_t)((at + i) * 31 >> 3);
		if (stream_write(s, block, n) < 0)
			break;
		at += n;
	}
	stream_end(s, -EIO);
	stream_unref(s);
	return NULL;
}

static void stream_order(void **state)
{
	struct stream *s = stream_new();
	pthread_t t;
	unsigned seed = 2;
	uint8_t block[9000];
	size_t at = 0;
	ssize_t n;
	assert_int_equal(stream_read(s, block, 10, 5), -EAGAIN);
	assert_int_equal(pthread_create(&t, NULL, pump, s), 0);
	while ((n = stream_read(s, block, (size_t)rand_r(&seed) % sizeof(block) + 1, -1)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			if (block[i] != (uint8_t)((at + (size_t)i) * 31 >> 3))
				fail_msg("byte %zu", at + (size_t)i);
		at += (size_t)n;
	}
	assert_int_equal(n, -EIO);
	assert_int_equal(at, PUMPED);
	assert_int_equal(stream_read(s, block, 10, -1), -EIO);
	pthread_join(t, NULL);
	stream_unref(s);
}

static void stream_left(void **state)
{
	struct stream *s = stream_new();
	pthread_t t;
	assert_int_equal(pthread_create(&t, NULL, pump, s), 0);
	while (stream_fill(s) < STREAM_BYTES)
		usleep(1000);
	stream_leave(s); /* the writer, who waits for room, ends */
	pthread_join(t, NULL);
	stream_unref(s);
}

/* ---- stacks ---- */

static void push(struct stack *s, uint8_t id, bool local)
{
	struct layer_id lid = { { id } };
	struct digest part = { { id, id } };
	assert_int_equal(stack_push(s, &lid, local, &part, local ? 0 : 1), 0);
}

static void stacks(void **state)
{
	auto_stack s = { .seed = 5 }, lower = { .seed = 5 }, flat = { .seed = 5 }, out = { 0 };
	flat.image.b[0] = 9;
	push(&s, 1, false);
	push(&s, 2, true);
	push(&s, 3, true);
	push(&lower, 1, false);
	push(&lower, 2, true);
	assert_true(stack_begins(&s, &lower) && !stack_begins(&lower, &s) && stack_equal(&s, &s));
	assert_false(stack_equal(&s, &lower));
	assert_int_equal(stack_rebase(&out, &s, &lower, &flat), 0);
	assert_int_equal(out.nlayers, 1);
	assert_int_equal(out.layers[0].id.b[0], 3);
	assert_true(digest_equal(&out.image, &flat.image));
	lower.image.b[0] = 1;
	assert_false(stack_begins(&s, &lower));
	lower.image.b[0] = 0;
	lower.seed = 6;
	assert_false(stack_begins(&s, &lower));
	lower.seed = 5;
	lower.layers[0].parts[0].b[5] = 1;
	assert_false(stack_begins(&s, &lower));
}

static void images(void **state)
{
	struct images *im = images_new();
	struct digest a = { { 1 } }, b = { { 2 } };
	images_making(im);
	assert_false(images_delete_begin(im));
	images_made(im, &a);
	assert_true(images_delete_begin(im));
	images_delete_end(im);
	assert_true(images_is_recent(im, &a) && !images_is_recent(im, &b));
	images_forget(im);
	assert_false(images_is_recent(im, &a));
	for (int i = 0; i < 300; i++) {
		images_making(im);
		images_made(im, &a);
	}
	assert_true(images_is_recent(im, &b)); /* too many to know */
	images_free(im);
}

static void problem_list(void **state)
{
	struct problems *p = problems_new();
	char text[BROKEN_SIZE];
	assert_false(problems_get(p, "ws_aaaaaaaaaa", text, sizeof(text)));
	problems_set(p, "ws_aaaaaaaaaa", "one");
	problems_set(p, "ws_bbbbbbbbbb", "two");
	problems_set(p, "ws_aaaaaaaaaa", "three");
	assert_true(problems_get(p, "ws_aaaaaaaaaa", text, sizeof(text)));
	assert_string_equal(text, "three");
	problems_set(p, "ws_aaaaaaaaaa", NULL);
	problems_set(p, "ws_aaaaaaaaaa", NULL);
	assert_false(problems_get(p, "ws_aaaaaaaaaa", text, sizeof(text)));
	assert_true(problems_get(p, "ws_bbbbbbbbbb", text, sizeof(text)));
	problems_free(p);
}

/* ---- paths as text ---- */

static void quoting(void **state)
{
	static const char *const table[][2] = {
		{ "plain/path", "a/plain/path" },         { "with space", "a/with space" },
		{ "tab\there", "\"a/tab\\there\"" },      { "new\nline", "\"a/new\\nline\"" },
		{ "q\"b\\", "\"a/q\\\"b\\\\\"" },         { "\x01\x7f", "\"a/\\001\\177\"" },
		{ "k\xc3\xa4se", "\"a/k\\303\\244se\"" },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		auto_buf out = { 0 };
		diff_quote(&out, "a/", table[i][0]);
		buf_u8(&out, 0);
		assert_string_equal((char *)out.data, table[i][1]);
	}
}

static void utf8(void **state)
{
#define BAD "\xef\xbf\xbd"
	static const struct {
		const char *in, *out;
		bool bad;
	} table[] = {
		{ "", "", false },
		{ "k\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\xb3", "k\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\xb3",
		  false },
		{ "a\xff"
		  "b",
		  "a" BAD "b", true },
		{ "\xc3", BAD, true },         /* cut */
		{ "\xc0\xaf", BAD BAD, true }, /* overlong */
		{ "\xe0\x80\x80", BAD BAD BAD, true },
		{ "\xed\xa0\x80", BAD BAD BAD, true },         /* a surrogate */
		{ "\xf4\x90\x80\x80", BAD BAD BAD BAD, true }, /* beyond the last */
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		auto_buf out = { 0 };
		assert_int_equal(diff_utf8(&out, table[i].in, strlen(table[i].in)), table[i].bad);
		buf_u8(&out, 0);
		assert_string_equal((char *)out.data, table[i].out);
	}
}

/* ---- the control client ---- */

/* Answers by what the request says: "ok", an error, nonsense, or hangs up. */
struct false_server {
	int fd;
	pthread_t thread;
	char dir[64], path[96];
	atomic_int requests, hang_up; /* how many requests are answered by hanging up */
};

#define FINE "{\"ok\":true,\"busy\":true,\"stack\":\"zz\",\"pause_ns\":7}"

static void *serve_one(void *arg)
{
	struct false_server *fs = arg;
	int fd;
	while ((fd = accept(fs->fd, NULL, NULL)) >= 0) {
		struct frame f = { 0 };
		while (frame_recv(fd, &f, NULL) > 0) {
			atomic_fetch_add(&fs->requests, 1);
			if (atomic_fetch_sub(&fs->hang_up, 1) > 0)
				break;
			bool fails = memmem(f.text.data, f.text.len, "ws_bad", 6);
			bool nonsense = memmem(f.text.data, f.text.len, "ws_odd", 6);
			buf_reset(&f.text);
			buf_printf(&f.text, "%s",
				   fails ? "{\"error\":{\"errno\":2,\"text\":\"no such thing\"}}"
				   : nonsense ? "[1]"
					      : FINE);
			(void)frame_send(fd, &f, NULL);
		}
		frame_done(&f);
		close(fd);
	}
	return NULL;
}

static void server_start(struct false_server *fs)
{
	*fs = (struct false_server){ 0 };
	(void)snprintf(fs->dir, sizeof(fs->dir), "/tmp/bough-fsclient.XXXXXX");
	assert_non_null(mkdtemp(fs->dir));
	(void)snprintf(fs->path, sizeof(fs->path), "%s/s", fs->dir);
	fs->fd = frame_listen(fs->path, NULL);
	assert_true(fs->fd >= 0);
	assert_int_equal(pthread_create(&fs->thread, NULL, serve_one, fs), 0);
}

static void server_stop(struct false_server *fs)
{
	(void)shutdown(fs->fd, SHUT_RDWR);
	pthread_join(fs->thread, NULL);
	close(fs->fd);
	(void)unlink(fs->path);
	(void)rmdir(fs->dir);
}

static void client(void **state)
{
	struct false_server fs;
	struct fsclient *fc;
	struct err err = { 0 };
	bool busy = false;
	struct stack out;
	uint64_t pause;
	server_start(&fs);
	assert_int_equal(fsclient_new(&fc, fs.path, &err), 0);
	/* Closed for a reason: told at once. */
	fsclient_close_gate(fc, "it is resting");
	assert_int_equal(fs_umount(fc, "ws_a", &busy, &err), -ECONNREFUSED);
	assert_string_equal(err.text, "it is resting");
	fsclient_open_gate(fc);
	assert_int_equal(fs_umount(fc, "ws_a", &busy, &err), 0);
	assert_true(busy);
	assert_int_equal(fs_umount(fc, "ws_bad", &busy, &err), -ENOENT);
	assert_string_equal(err.text, "no such thing");
	assert_int_equal(fs_delete(fc, "ws_bad", &err), 0); /* gone is what was wanted */
	assert_int_equal(fs_umount(fc, "ws_odd", &busy, &err), -EPROTO);
	assert_int_equal(fs_seal(fc, "ws_a", &out, &err), -EBADMSG);
	struct fs_new child = { .id = "ws_c", .path = "/p" };
	assert_int_equal(fs_fork(fc, "ws_a", &child, 1, &pause, &err), 0);
	assert_int_equal(pause, 7);
	fsclient_close_gate(fc, "x"); /* the idle connection goes, so the server takes the next */
	fsclient_open_gate(fc);
	/* It dies under a call: repeated where that is right. */
	atomic_store(&fs.requests, 0);
	atomic_store(&fs.hang_up, 1);
	assert_int_equal(fs_umount(fc, "ws_a", &busy, &err), 0);
	assert_int_equal(atomic_load(&fs.requests), 2);
	atomic_store(&fs.requests, 0);
	atomic_store(&fs.hang_up, 1);
	assert_int_equal(fs_fork(fc, "ws_a", &child, 1, &pause, &err), -ECONNRESET);
	assert_int_equal(atomic_load(&fs.requests), 1);
	fsclient_free(fc);
	server_stop(&fs);
}

static void *open_later(void *arg)
{
	usleep(30000);
	fsclient_open_gate(arg);
	return NULL;
}

static void client_waits(void **state)
{
	struct false_server fs;
	struct fsclient *fc;
	struct err err = { 0 };
	bool busy;
	pthread_t t;
	server_start(&fs);
	assert_int_equal(fsclient_new(&fc, fs.path, &err), 0);
	assert_int_equal(pthread_create(&t, NULL, open_later, fc), 0);
	assert_int_equal(fs_umount(fc, "ws_a", &busy, &err), 0);
	pthread_join(t, NULL);
	fsclient_free(fc);
	server_stop(&fs);
	/* Nobody there. */
	assert_int_equal(fsclient_new(&fc, "/nonexistent/socket", &err), 0);
	assert_int_equal(fsclient_direct(fc, json_pack("{s:s}", "op", "hello"), NULL, &err),
			 -ECONNRESET);
	fsclient_free(fc);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lease_kinds),  cmocka_unit_test(lease_waits),
		cmocka_unit_test(stream_order), cmocka_unit_test(stream_left),
		cmocka_unit_test(stacks),       cmocka_unit_test(images),
		cmocka_unit_test(problem_list), cmocka_unit_test(quoting),
		cmocka_unit_test(utf8),         cmocka_unit_test(client),
		cmocka_unit_test(client_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
