/* What a sandbox's processes may keep of their output together. The test plays bough-io's loop. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "runtime/io/proc.h"
#include "runtime/output.h"
#include "tests/unit/place.h"

enum { ROOM = 1 << 20, CAP = 4 * ROOM };

static const char *dir_of(void **state)
{
	return ((struct place *)*state)->path;
}

static struct io_loop begin(void **state)
{
	struct io_loop io = { .room = ROOM };
	io.dir = open(dir_of(state), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	io.epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_true(io.dir >= 0 && io.epoll >= 0);
	assert_int_equal(proc_recover(&io), 0);
	return io;
}

/* As a kill: files and fifos stay. */
static void leave(struct io_loop *io)
{
	for (struct proc *p; (p = io->procs);) {
		io->procs = p->next;
		for (int i = 0; i < 2; i++) {
			(void)close(p->stream[i].fd);
			(void)close(p->hold[i]);
		}
		(void)close(p->log);
		free(p);
	}
	(void)close(io->epoll);
	(void)close(io->dir);
}

static void open_key(struct io_loop *io, const char *key)
{
	struct io_msg m = { .op = IO_OPEN, .limit = CAP, .uid = getuid(), .gid = getgid() };
	(void)snprintf(m.key, sizeof(m.key), "%s", key);
	assert_int_equal(proc_open(io, &m), 0);
}

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 2654435761U >> 16);
}

/* So many bytes more of a stream. */
static void print(struct io_loop *io, const char *key, unsigned stream, uint64_t n)
{
	static uint8_t piece[32768];
	struct proc *p = proc_find(io, key);
	assert_non_null(p);
	for (uint64_t done = 0; done < n; done += sizeof(piece)) {
		uint64_t at = p->kept.stream[stream].end;
		for (size_t i = 0; i < sizeof(piece); i++)
			piece[i] = byte_at(at + i);
		assert_int_equal(write(p->hold[stream], piece, sizeof(piece)), sizeof(piece));
		proc_event(io, &p->stream[stream], EPOLLIN);
	}
}

static void finish(struct io_loop *io, const char *key)
{
	struct proc *p = proc_find(io, key);
	assert_int_equal(proc_started(io, key), 0);
	for (unsigned i = 0; i < 2; i++)
		proc_event(io, &p->stream[i], EPOLLHUP);
	proc_bury(io);
	assert_null(proc_find(io, key));
	/* The next one ends at another time of the filesystem's clock. */
	(void)nanosleep(&(struct timespec){ .tv_nsec = 20 * 1000000 }, NULL);
}

/* How much there is; what there is are the right bytes, and below is nothing. */
static uint64_t there(void **state, const char *key, unsigned stream)
{
	static uint8_t got[CAP];
	struct output_status st;
	assert_int_equal(output_status(dir_of(state), key, &st, NULL), 0);
	uint64_t first = st.stream[stream].first, n = st.stream[stream].end - first;
	assert_int_equal(output_read(dir_of(state), key, stream, first, got, sizeof(got), NULL), n);
	for (uint64_t i = 0; i < n; i++)
		assert_int_equal(got[i], byte_at(first + i));
	if (first > 0)
		assert_int_equal(output_read(dir_of(state), key, stream, first - 1, got, 1, NULL),
				 -ERANGE);
	return n;
}

static uint64_t on_disk(void **state)
{
	uint64_t bytes;
	assert_int_equal(output_disk(dir_of(state), &bytes, NULL), 0);
	return bytes;
}

/* What ended first goes first, all of it, and the disk has the room back. */
static void test_ended(void **state)
{
	struct io_loop io = begin(state);
	static const char *const keys[] = { "z", "y", "x" };
	for (int i = 0; i < 3; i++) {
		open_key(&io, keys[i]);
		print(&io, keys[i], i % 2, ROOM / 4);
		finish(&io, keys[i]);
	}
	open_key(&io, "run");
	print(&io, "run", 0, ROOM / 4);
	for (int i = 0; i < 3; i++)
		assert_int_equal(there(state, keys[i], i % 2), ROOM / 4);
	print(&io, "run", 0, 32768);
	assert_int_equal(there(state, "z", 0), 0);
	assert_int_equal(there(state, "y", 1), ROOM / 4);
	assert_int_equal(there(state, "run", 0), ROOM / 4 + 32768);
	print(&io, "run", 1, ROOM / 2);
	assert_int_equal(there(state, "y", 1), 0);
	assert_int_equal(there(state, "x", 0), 0);
	assert_int_equal(there(state, "run", 1), ROOM / 2);
	assert_true(on_disk(state) <= ROOM + 4 * 3 * 4096);
	leave(&io);
}

/* Where all run, the longest lose their older half, and go on; a successor counts what is there. */
static void test_running(void **state)
{
	struct io_loop io = begin(state);
	open_key(&io, "long");
	open_key(&io, "short");
	print(&io, "short", 0, ROOM / 8);
	print(&io, "long", 0, 3 * ROOM / 4);
	print(&io, "long", 1, ROOM / 8);
	assert_int_equal(there(state, "long", 0), 3 * ROOM / 4);
	print(&io, "long", 0, 32768);
	assert_int_equal(there(state, "long", 0), 3 * ROOM / 8 + 16384);
	assert_int_equal(there(state, "long", 1), ROOM / 8);
	assert_int_equal(there(state, "short", 0), ROOM / 8);
	print(&io, "short", 0, 8 * ROOM); /* round its ring */
	assert_true(there(state, "short", 0) > ROOM / 8);
	assert_true(there(state, "short", 0) + there(state, "long", 0) + there(state, "long", 1) <=
		    ROOM);
	assert_true(on_disk(state) <= ROOM + 2 * 5 * 4096);
	leave(&io);

	struct io_loop next = begin(state);
	assert_int_equal(next.kept, there(state, "short", 0) + there(state, "long", 0) +
					    there(state, "long", 1));
	leave(&next);
}

/* One that could keep more is held to the bound where it goes on. */
static void test_more_than_may_be(void **state)
{
	struct io_loop io = begin(state);
	io.room = CAP;
	open_key(&io, "a");
	print(&io, "a", 0, 3 * ROOM);
	assert_int_equal(there(state, "a", 0), 3 * ROOM);
	finish(&io, "a");
	leave(&io);
	struct io_loop next = begin(state);
	assert_int_equal(there(state, "a", 0), 0);
	assert_int_equal(next.kept, 0);
	leave(&next);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ended, place_set_up, place_tear_down),
		cmocka_unit_test_setup_teardown(test_running, place_set_up, place_tear_down),
		cmocka_unit_test_setup_teardown(test_more_than_may_be, place_set_up,
						place_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
