/* bough-io and what it keeps: offsets, rings, kills, inputs. The test plays the shim. */
#include "runtime/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/clock.h"
#include "fs/base/frame.h"
#include "runtime/io_msg.h"
#include "runtime/kept.h"
#include "tests/unit/place.h"

static struct err err;
static char program[PATH_MAX + 16];

#define must(call)                                                  \
	({                                                          \
		int r_ = (call);                                    \
		if (r_ < 0)                                         \
			fail_msg("%s: %d %s", #call, r_, err.text); \
		r_;                                                 \
	})

static const char *dir_of(void **state)
{
	return ((struct place *)*state)->path;
}

static int set_up(void **state)
{
	int r = place_set_up(state);
	return r < 0 ? r : must(output_start(dir_of(state), program, &err)) > 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	must(output_stop(dir_of(state), &err));
	return place_tear_down(state);
}

/* ---- what a shim does ---- */

/* Both ends of an output, as a shim holds them. */
struct shim_ends {
	int rd, wr;
};

static int open_fifo(const char *dir, const char *key, const char *kind, int flags)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/%s.%s", dir, key, kind);
	int fd = open(path, flags | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static struct shim_ends open_ends(const char *dir, const char *key, const char *kind)
{
	struct shim_ends e;
	e.wr = open_fifo(dir, key, kind, O_WRONLY);
	e.rd = open_fifo(dir, key, kind, O_RDONLY);
	return e;
}

static void close_ends(struct shim_ends *e)
{
	assert_int_equal(close(e->wr), 0);
	assert_int_equal(close(e->rd), 0);
}

static void put(int fd, const char *s)
{
	assert_int_equal(write(fd, s, strlen(s)), (ssize_t)strlen(s));
}

static void open_key(const char *dir, const char *key, uint64_t limit, bool in)
{
	const struct output_config c = { .key = key, .limit = limit, .in = in };
	must(output_open(dir, &c, &err));
}

/* Waits until a stream has got so far; fails after some seconds. */
static struct output_status await_end(const char *dir, const char *key, int stream, uint64_t end)
{
	struct output_status s;
	for (uint64_t stop = clock_ms() + 60000;;) {
		must(output_status(dir, key, &s, &err));
		if (s.stream[stream].end >= end)
			return s;
		if (clock_ms() > stop)
			fail_msg("stream %d of %s stays at %llu", stream, key,
				 (unsigned long long)s.stream[stream].end);
		struct timespec ms = { 0, 1000000 };
		(void)nanosleep(&ms, NULL);
	}
}

static void expect_kept(const char *dir, const char *key, enum output_stream s, uint64_t at,
			const char *text)
{
	char buf[256];
	int n = must(output_read(dir, key, s, at, buf, sizeof(buf) - 1, &err));
	buf[n] = '\0';
	assert_string_equal(buf, text);
}

/* ---- tests ---- */

static void test_streams(void **state)
{
	const char *dir = dir_of(state);
	open_key(dir, "e1", 0, false);
	struct shim_ends out = open_ends(dir, "e1", "out"), er = open_ends(dir, "e1", "err");
	must(output_started(dir, "e1", &err));
	put(out.wr, "hello ");
	put(er.wr, "wrong");
	put(out.wr, "world");
	await_end(dir, "e1", 0, 11);
	struct output_status s = await_end(dir, "e1", 1, 5);
	assert_false(s.stream[0].closed);
	expect_kept(dir, "e1", OUTPUT_STDOUT, 0, "hello world");
	expect_kept(dir, "e1", OUTPUT_STDOUT, 6, "world");
	expect_kept(dir, "e1", OUTPUT_STDOUT, 11, "");
	expect_kept(dir, "e1", OUTPUT_STDERR, 0, "wrong");
	char c;
	assert_int_equal(output_read(dir, "e1", OUTPUT_STDOUT, 12, &c, 1, &err), -ERANGE);
	put(out.wr, "!");
	close_ends(&out);
	close_ends(&er);
	must(output_finish(dir, "e1", 1000, &err));
	must(output_status(dir, "e1", &s, &err));
	assert_true(s.stream[0].closed && s.stream[1].closed);
	expect_kept(dir, "e1", OUTPUT_STDOUT, 11, "!");
	/* All of it is idempotent, and the key can be used anew once it is dropped. */
	must(output_finish(dir, "e1", 1000, &err));
	const struct output_config again = { .key = "e1" };
	assert_int_equal(output_open(dir, &again, &err), -EEXIST);
	must(output_drop(dir, "e1", &err));
	must(output_drop(dir, "e1", &err));
	assert_int_equal(output_status(dir, "e1", &s, &err), -ENOENT);
	assert_int_equal(output_started(dir, "e1", &err), -ENOENT);
	must(output_open(dir, &again, &err));
	must(output_drop(dir, "e1", &err));
	assert_int_equal(place_entries(((struct place *)*state)->fd), 2); /* socket and lock */
}

/* Before the shim has come nothing ends, and what something still holds doesn't either. */
static void test_holds(void **state)
{
	const char *dir = dir_of(state);
	struct output_status s;
	open_key(dir, "e", 0, false);
	struct timespec t = { 0, 20000000 };
	(void)nanosleep(&t, NULL);
	must(output_status(dir, "e", &s, &err));
	assert_false(s.stream[0].closed);
	struct shim_ends out = open_ends(dir, "e", "out"), er = open_ends(dir, "e", "err");
	must(output_started(dir, "e", &err));
	close_ends(&er);
	int behind = dup(out.wr); /* of a program in the background */
	close_ends(&out);
	assert_int_equal(output_finish(dir, "e", 1000, &err), -ETIMEDOUT);
	put(behind, "late");
	await_end(dir, "e", 0, 4);
	must(output_status(dir, "e", &s, &err));
	assert_false(s.stream[0].closed);
	assert_true(s.stream[1].closed);
	assert_int_equal(close(behind), 0);
	must(output_finish(dir, "e", 1000, &err));
}

static void test_keys(void **state)
{
	static const char *const bad[] = { "",
					   ".",
					   "..",
					   ".x",
					   "a/b",
					   "../x",
					   "a b",
					   "a\n",
					   "0123456789012345678901234567890123456789"
					   "01234567890123456789012345" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct output_config c = { .key = bad[i] };
		struct output_status s;
		assert_int_equal(output_open(dir_of(state), &c, &err), -EINVAL);
		assert_int_equal(output_status(dir_of(state), bad[i], &s, &err), -EINVAL);
		assert_int_equal(output_drop(dir_of(state), bad[i], &err), -EINVAL);
	}
}

/* More than is kept goes through; the newest of it is there, at its offsets. */
static void test_ring(void **state)
{
	enum { TOTAL = 64 << 20, PART = 65536, CAP = 300000 };
	const char *dir = dir_of(state);
	static uint32_t part[PART / 4];
	open_key(dir, "e", CAP, false);
	struct shim_ends out = open_ends(dir, "e", "out");
	uint64_t t0 = clock_ns();
	for (uint32_t n = 0; n < TOTAL / 4;) {
		for (size_t i = 0; i < PART / 4; i++)
			part[i] = n++;
		for (size_t done = 0; done < PART;)
			done += (size_t)write(out.wr, (char *)part + done, PART - done);
	}
	struct output_status s = await_end(dir, "e", 0, TOTAL);
	double rate = TOTAL * 1e9 / (double)(clock_ns() - t0);
	print_message("# %.0f MB/s into a file of %d bytes\n", rate / 1e6, CAP);
	assert_true(rate < OUTPUT_RATE * 1.2); /* what is in the pipe hasn't been counted */
	assert_int_equal(s.stream[0].end, TOTAL);
	assert_int_equal(s.stream[0].first, TOTAL - CAP);
	char c;
	assert_int_equal(output_read(dir, "e", OUTPUT_STDOUT, TOTAL - CAP - 1, &c, 1, &err),
			 -ERANGE);
	for (uint64_t at = TOTAL - CAP; at < TOTAL;) {
		int n = must(output_read(dir, "e", OUTPUT_STDOUT, at, part, 999 * 4, &err));
		assert_true(n > 0);
		for (int i = 0; i < n / 4; i++)
			assert_int_equal(part[i], at / 4 + (uint64_t)i);
		at += (uint64_t)n;
	}
	char path[PATH_MAX];
	struct stat st;
	(void)snprintf(path, sizeof(path), "%s/e.log", dir);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size <= 4096 + 2 * CAP);
	close_ends(&out);
}

/* A reader beside the writer gets right bytes or -ERANGE, never others. */
static void test_reader_races(void **state)
{
	enum { PARTS = 400, CAP = 65536 };
	const char *dir = dir_of(state);
	open_key(dir, "e", CAP, false);
	struct shim_ends out = open_ends(dir, "e", "out");
	pid_t pid = fork();
	if (pid == 0) {
		static uint32_t part[4096];
		uint32_t n = 0;
		for (int i = 0; i < PARTS * 4; i++) {
			for (size_t j = 0; j < 4096; j++)
				part[j] = n++;
			if (write(out.wr, part, sizeof(part)) != sizeof(part))
				_exit(1);
		}
		_exit(0);
	}
	uint64_t at = 0, read_bytes = 0, end = (uint64_t)PARTS * 4 * 16384;
	for (uint64_t stop = clock_ms() + 60000; at < end && clock_ms() < stop;) {
		static uint32_t got[8192];
		int r = output_read(dir, "e", OUTPUT_STDOUT, at, got, sizeof(got), &err);
		if (r == -ERANGE) {
			struct output_status s;
			must(output_status(dir, "e", &s, &err));
			at = s.stream[0].first;
			continue;
		}
		must(r);
		r -= r % 4;
		for (int i = 0; i < r / 4; i++)
			if (got[i] != at / 4 + (uint64_t)i)
				fail_msg("%u instead of %llu", got[i],
					 (unsigned long long)(at / 4 + (uint64_t)i));
		at += (uint64_t)r;
		read_bytes += (uint64_t)r;
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(at, end);
	assert_true(read_bytes > 0);
	close_ends(&out);
}

static void test_input(void **state)
{
	const char *dir = dir_of(state);
	char buf[64];
	struct output_status s;
	open_key(dir, "e", 0, true);
	/* Before anybody reads it is in the pipe already. */
	assert_int_equal(output_write(dir, "e", 0, "first ", 6, &err), 6);
	int in = open_fifo(dir, "e", "in", O_RDONLY), shims = open_fifo(dir, "e", "in", O_WRONLY);
	must(output_started(dir, "e", &err));
	/* Given twice, it counts once. */
	assert_int_equal(output_write(dir, "e", 0, "first second", 12, &err), 12);
	assert_int_equal(output_write(dir, "e", 3, "st", 2, &err), 2);
	assert_int_equal(output_write(dir, "e", 13, "x", 1, &err), -ERANGE);
	must(output_status(dir, "e", &s, &err));
	assert_int_equal(s.in, 12);
	assert_int_equal(read(in, buf, sizeof(buf)), 12);
	assert_memory_equal(buf, "first second", 12);
	/* Its end is the shim's and ours. */
	must(output_close_input(dir, "e", &err));
	must(output_close_input(dir, "e", &err));
	assert_int_equal(output_write(dir, "e", 12, "x", 1, &err), -EPIPE);
	struct pollfd p = { .fd = in, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 20), 0);
	assert_int_equal(close(shims), 0);
	assert_int_equal(read(in, buf, sizeof(buf)), 0);
	assert_int_equal(close(in), 0);
}

/* A program that doesn't read takes what a pipe holds; the watch tells when it reads on. */
static void test_input_full(void **state)
{
	const char *dir = dir_of(state);
	static char part[65536], got[65536];
	open_key(dir, "e", 0, true);
	int in = open_fifo(dir, "e", "in", O_RDONLY);
	uint64_t given = 0;
	for (int n; (n = must(output_write(dir, "e", given, part, sizeof(part), &err))) > 0;)
		given += (uint64_t)n;
	assert_true(given >= 4096 && given <= 1 << 20);
	auto_fd watch = must(output_watch(dir, "e", &err));
	char c;
	assert_int_equal(read(watch, &c, 1), 1); /* the one that comes at once */
	struct pollfd p = { .fd = watch, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 20), 0);
	assert_true(read(in, got, sizeof(got)) > 0);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_true(output_write(dir, "e", given, part, sizeof(part), &err) > 0);
	/* The program closes its input: nothing more can be given. */
	must(output_started(dir, "e", &err));
	assert_int_equal(close(in), 0);
	int r = 0;
	for (uint64_t stop = clock_ms() + 60000; r != -EPIPE && clock_ms() < stop;) {
		struct output_status s;
		must(output_status(dir, "e", &s, &err));
		r = output_write(dir, "e", s.in, "x", 1, &err);
	}
	assert_int_equal(r, -EPIPE);
}

static void test_watch(void **state)
{
	const char *dir = dir_of(state);
	char buf[64];
	open_key(dir, "e", 0, false);
	auto_fd one = must(output_watch(dir, "e", &err)), two = must(output_watch(dir, "e", &err));
	struct pollfd p = { .fd = one, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 60000), 1);
	while (read(one, buf, sizeof(buf)) > 0)
		;
	assert_int_equal(errno, EAGAIN);
	struct shim_ends out = open_ends(dir, "e", "out"), er = open_ends(dir, "e", "err");
	for (int i = 0; i < 1000; i++)
		put(out.wr, "x");
	await_end(dir, "e", 0, 1000);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_true(read(one, buf, sizeof(buf)) > 0);
	/* The second, which nobody reads, costs no more than a byte. */
	assert_int_equal(read(two, buf, sizeof(buf)), 1);
	close_ends(&out);
	close_ends(&er);
	must(output_finish(dir, "e", 1000, &err));
	for (int n; (n = (int)read(one, buf, sizeof(buf))) != 0;)
		assert_true(n > 0 || errno == EAGAIN);
	auto_fd late = must(output_watch(dir, "e", &err));
	assert_int_equal(read(late, buf, 1), 0);
}

static void kill_it(const char *dir)
{
	int pid = must(output_start(dir, program, &err));
	assert_int_equal(kill(pid, SIGKILL), 0);
	for (int i = 0; i < 60000; i++) {
		struct output_config c = { .key = "nobody" };
		if (output_open(dir, &c, &err) == -ECONNREFUSED)
			return;
		(void)output_drop(dir, "nobody", &err);
		struct timespec ms = { 0, 1000000 };
		(void)nanosleep(&ms, NULL);
	}
	fail_msg("it lives");
}

/* kill -9 while a program writes and another reads: it neither dies nor loses a byte. */
static void test_killed(void **state)
{
	const char *dir = dir_of(state);
	struct output_status s;
	char buf[64];
	open_key(dir, "e", 0, true);
	struct shim_ends out = open_ends(dir, "e", "out"), er = open_ends(dir, "e", "err");
	int in = open_fifo(dir, "e", "in", O_RDONLY), shims = open_fifo(dir, "e", "in", O_WRONLY);
	must(output_started(dir, "e", &err));
	put(out.wr, "before ");
	await_end(dir, "e", 0, 7);
	assert_int_equal(output_write(dir, "e", 0, "one", 3, &err), 3);
	auto_fd watch = must(output_watch(dir, "e", &err));
	kill_it(dir);
	for (int n; (n = (int)read(watch, buf, sizeof(buf))) != 0;) /* its end tells */
		assert_true(n > 0);
	/* What was kept can be read, and the program's writes go into the pipe. */
	expect_kept(dir, "e", OUTPUT_STDOUT, 0, "before ");
	assert_int_equal(output_write(dir, "e", 3, "x", 1, &err), -ECONNREFUSED);
	put(out.wr, "meanwhile ");
	must(output_start(dir, program, &err));
	put(out.wr, "after");
	await_end(dir, "e", 0, 22);
	expect_kept(dir, "e", OUTPUT_STDOUT, 0, "before meanwhile after");
	must(output_status(dir, "e", &s, &err));
	assert_int_equal(s.in, 3);
	assert_int_equal(output_write(dir, "e", 0, "onetwo", 6, &err), 6);
	assert_int_equal(read(in, buf, sizeof(buf)), 6);
	assert_memory_equal(buf, "onetwo", 6);
	/* It ends while nobody is there: the successor sees that it has. */
	kill_it(dir);
	close_ends(&out);
	close_ends(&er);
	must(output_start(dir, program, &err));
	must(output_finish(dir, "e", 1000, &err));
	must(output_status(dir, "e", &s, &err));
	assert_int_equal(s.stream[0].end, 22);
	assert_int_equal(close(in), 0);
	assert_int_equal(close(shims), 0);
	must(output_drop(dir, "e", &err));
}

/* Killed between open and start: the successor holds the ends again. */
static void test_killed_early(void **state)
{
	const char *dir = dir_of(state);
	open_key(dir, "e", 0, true);
	kill_it(dir);
	must(output_start(dir, program, &err));
	assert_int_equal(output_write(dir, "e", 0, "x", 1, &err), 1);
	struct shim_ends out = open_ends(dir, "e", "out");
	put(out.wr, "y");
	await_end(dir, "e", 0, 1);
	close_ends(&out);
}

/* Whether the other end of the connection is closed by everybody, within some time. */
static bool is_over(int fd, int wait_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, wait_ms) == 1 && p.revents & POLLHUP;
}

/* A connection that is lent for `key`, and closed here: what is left of it. */
static int lend(const char *dir, const char *key)
{
	int fds[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	must(output_hold(dir, key, fds[0], &err));
	assert_int_equal(close(fds[0]), 0);
	return fds[1];
}

static void test_connections(void **state)
{
	const char *dir = dir_of(state);
	open_key(dir, "a", 0, false);
	struct shim_ends out = open_ends(dir, "a", "out");
	assert_int_equal(must(output_held(dir, "a", &err)), 1);
	int fd = lend(dir, "a");
	assert_false(is_over(fd, 50));
	must(output_started(dir, "a", &err));
	assert_true(is_over(fd, 5000));
	assert_int_equal(close(fd), 0);
	/* A sandbox's own is said to have started before it does; and the peer's answer ends it. */
	fd = lend(dir, "a");
	assert_false(is_over(fd, 50));
	put(fd, "answer");
	assert_true(is_over(fd, 5000));
	assert_int_equal(close(fd), 0);
	fd = lend(dir, "a");
	must(output_drop(dir, "a", &err));
	assert_true(is_over(fd, 5000));
	assert_int_equal(close(fd), 0);
	close_ends(&out);
	assert_int_equal(output_hold(dir, "none", STDIN_FILENO, &err), -ENOENT);
	/* A successor knows that it is one. */
	open_key(dir, "b", 0, false);
	kill_it(dir);
	must(output_start(dir, program, &err));
	assert_int_equal(must(output_held(dir, "b", &err)), 0);
	open_key(dir, "c", 0, false);
	assert_int_equal(must(output_held(dir, "c", &err)), 1);
}

/* What a later boughd may ask for is refused, and the connection goes on. */
static void test_later_version(void **state)
{
	char path[PATH_MAX];
	struct frame f = { 0 };
	int64_t result;
	(void)snprintf(path, sizeof(path), "%s/io.sock", dir_of(state));
	int fd = must(frame_connect(path, &err));
	for (int op = IO_OPS; op <= 255; op += 255 - IO_OPS) {
		struct io_msg m = { .op = (enum io_op)op };
		buf_reset(&f.text);
		io_encode(&f.text, &m);
		must(frame_send(fd, &f, &err));
		assert_int_equal(must(frame_recv(fd, &f, &err)), 1);
		assert_int_equal(io_decode_answer(&result, f.text.data, f.text.len), 0);
		assert_int_equal(result, -EOPNOTSUPP);
	}
	buf_reset(&f.text);
	io_encode(&f.text, &(struct io_msg){ .op = IO_PING });
	must(frame_send(fd, &f, &err));
	assert_int_equal(must(frame_recv(fd, &f, &err)), 1);
	frame_done(&f);
	assert_int_equal(close(fd), 0);
}

/* One that runs since before an upgrade: knows IO_PING and hangs up on the rest. */
static void serve_as_before(const char *dir)
{
	char path[PATH_MAX];
	(void)snprintf(path, sizeof(path), "%s/io.sock", dir);
	int listener = frame_listen(path, NULL);
	for (int fd; (fd = accept(listener, NULL, NULL)) >= 0; (void)close(fd)) {
		struct frame f = { 0 };
		struct io_msg m;
		if (frame_recv(fd, &f, NULL) > 0 &&
		    io_decode(&m, f.text.data, f.text.len) == 0 && m.op == IO_PING) {
			struct frame answer = { 0 };
			io_encode_answer(&answer.text, getpid());
			(void)frame_send(fd, &answer, NULL);
			frame_done(&answer);
		}
		frame_done(&f);
	}
	_exit(1);
}

static void test_earlier_version(void **state)
{
	const char *dir = dir_of(state);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		serve_as_before(dir);
	for (int i = 0; i < 60000 && output_hold(dir, "a", STDIN_FILENO, NULL) < 0; i++)
		assert_int_equal(usleep(1000), 0);
	err = (struct err){ 0 };
	must(output_hold(dir, "a", STDIN_FILENO, &err));
	assert_int_equal(err.code, 0);
	assert_true(output_held(dir, "a", &err) < 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(output_hold(dir, "a", STDIN_FILENO, &err), -ECONNREFUSED);
}

/* Nobody reads for long and bough-io is stopped: the program goes on as soon as it runs again. */
static void test_one_only(void **state)
{
	const char *dir = dir_of(state);
	int pid = must(output_start(dir, program, &err));
	assert_int_equal(must(output_start(dir, program, &err)), pid);
	/* Many at once leave one. */
	must(output_stop(dir, &err));
	must(output_stop(dir, &err));
	for (int i = 0; i < 8; i++) {
		if (fork() == 0)
			_exit(output_start(dir, program, &err) > 0 ? 0 : 1);
	}
	int status, pids = 0;
	while (wait(&status) > 0) {
		assert_int_equal(status, 0);
		pids++;
	}
	assert_int_equal(pids, 8);
	must(output_start(dir, program, &err));
}

/* The file of a full disk: what doesn't fit is dropped, the offsets go on. */
static void test_disk_full(void **state)
{
	struct place *p = *state;
	struct kept k = { .cap = 65536 }, back;
	int fd = openat(p->fd, "x", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, KEPT_DATA), 0);
	assert_int_equal(kept_append(fd, &k, 0, "abc", 3), 0);
	struct rlimit old, small = { KEPT_DATA + 5, RLIM_INFINITY };
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small.rlim_max = old.rlim_max;
	void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	int r = kept_append(fd, &k, 0, "defgh", 5);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	(void)signal(SIGXFSZ, was);
	assert_int_equal(r, 0);
	assert_int_equal(kept_load(fd, &back), 0);
	assert_int_equal(back.stream[0].first, 8);
	assert_int_equal(back.stream[0].end, 8);
	assert_int_equal(kept_append(fd, &k, 0, "ij", 2), 0);
	char buf[8];
	assert_int_equal(kept_read(fd, 0, 8, buf, sizeof(buf)), 2);
	assert_memory_equal(buf, "ij", 2);
	assert_int_equal(kept_read(fd, 0, 7, buf, sizeof(buf)), -ERANGE);
	assert_int_equal(close(fd), 0);
}

/* Any flipped bit of a head is found. */
static void test_head(void **state)
{
	struct kept k = { .flags = KEPT_IN, .cap = 65536, .in = 7 }, back;
	uint8_t head[KEPT_HEAD];
	k.stream[1].first = 10;
	k.stream[1].end = 20;
	kept_encode(head, &k);
	assert_int_equal(kept_decode(&back, head), 0);
	assert_memory_equal(&back, &k, sizeof(k));
	for (int i = 0; i < KEPT_HEAD * 8; i++) {
		head[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_int_equal(kept_decode(&back, head), -EBADMSG);
		head[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	k.stream[0].end = k.cap + 1;
	kept_encode(head, &k);
	assert_int_equal(kept_decode(&back, head), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_streams, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_holds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_keys, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_ring, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reader_races, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_input, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_input_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_watch, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_killed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_killed_early, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_connections, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_only, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_later_version, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_earlier_version, place_set_up,
						place_tear_down),
		cmocka_unit_test_setup_teardown(test_disk_full, place_set_up, place_tear_down),
		cmocka_unit_test(test_head),
	};
	/* Beside the folder of the tests, as the build puts it. */
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return 1;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	(void)snprintf(program, sizeof(program), "%s/../bough-io", self);
	(void)signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
