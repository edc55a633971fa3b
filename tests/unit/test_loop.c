/* The event loop, over socket pairs in place of /dev/fuse. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/mount/loop.h"

/* One source: requests are answered by themselves, on the other end of the pair. */
struct peer {
	int ours, theirs;
	uint64_t source;
	_Atomic int inside, most_inside, requests, ended, error;
	_Atomic int late; /* requests after the end */
	_Atomic int delay_us;
	int meets; /* requests are answered when so many have been inside at once */
	atomic_bool crowd;
};

static bool is_slow(void *ctx, const void *buf, size_t n)
{
	const struct peer *p = ctx;
	return p->delay_us > 0;
}

static void on_request(void *ctx, void *buf, size_t n)
{
	struct peer *p = ctx;
	int inside = atomic_fetch_add(&p->inside, 1) + 1, most = p->most_inside;
	while (inside > most && !atomic_compare_exchange_weak(&p->most_inside, &most, inside))
		;
	if (p->ended)
		p->late++;
	p->requests++;
	for (int ms = 0; ms < 60000 && p->most_inside < p->meets; ms++)
		usleep(1000);
	if (p->delay_us)
		usleep((useconds_t)p->delay_us);
	ssize_t w = write(p->theirs, buf, n);
	(void)w; /* the other end may be gone: the test counts what came */
	p->inside--;
}

static void on_end(void *ctx, int error)
{
	struct peer *p = ctx;
	p->error = error;
	assert_int_equal(p->inside, 0);
	p->ended++;
}

static bool is_crowded(void *ctx)
{
	const struct peer *p = ctx;
	return p->crowd;
}

static const struct loop_ops ops = { is_slow, on_request, on_end, is_crowded };

static void peer_open(struct loop *l, struct peer *p)
{
	int fd[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	*p = (struct peer){ .ours = fd[0], .theirs = fd[1] };
	assert_int_equal(fcntl(p->theirs, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(loop_add(l, p->theirs, &ops, p, &p->source), 0);
	assert_true(p->source != 0);
}

static void peer_close(struct peer *p)
{
	assert_int_equal(p->ended, 1);
	assert_int_equal(p->late, 0);
	close(p->ours);
	close(p->theirs);
}

static void wait_ended(struct peer *p)
{
	for (int i = 0; i < 60000 && !p->ended; i++)
		usleep(1000);
	assert_int_equal(p->ended, 1);
}

static void ask(struct peer *p, int n)
{
	for (int i = 0; i < n; i++) {
		int sent = i, got = -1;
		assert_int_equal(write(p->ours, &sent, sizeof(sent)), sizeof(sent));
		assert_int_equal(read(p->ours, &got, sizeof(got)), sizeof(got));
		assert_int_equal(sent, got);
	}
}

/* As in sched_setattr(2): the slice of the calling thread. */
struct sched {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice_ns, deadline_ns, period_ns;
};

static struct sched sched_now(void)
{
	struct sched s = { .size = sizeof(s) };
	assert_int_equal(syscall(SYS_sched_getattr, 0, &s, sizeof(s), 0), 0);
	return s;
}

static _Atomic uint64_t worker_slice;
static _Atomic int worker_nice;

static void note_slice(void *ctx, void *buf, size_t n)
{
	struct sched s = sched_now();
	worker_slice = s.slice_ns;
	worker_nice = s.nice;
	on_request(ctx, buf, n);
}

/* Workers are let in sooner than who computes; nobody else is, and nothing else changes. */
static void short_slices(void **state)
{
	static const struct loop_ops noting = { is_slow, note_slice, on_end, is_crowded };
	struct sched before = sched_now(), same = before;
	same.slice_ns = 200000;
	assert_int_equal(syscall(SYS_sched_setattr, 0, &same, 0), 0);
	bool can = sched_now().slice_ns == 200000; /* Linux 6.12 */
	assert_int_equal(syscall(SYS_sched_setattr, 0, &before, 0), 0);
	before = sched_now();
	struct loop *l;
	assert_int_equal(loop_start(&l, 0, NULL), 0);
	struct sched after = sched_now();
	assert_int_equal(after.slice_ns, before.slice_ns);
	assert_int_equal(after.policy, before.policy);
	assert_int_equal(after.nice, before.nice);
	int fd[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	struct peer p = { .ours = fd[0], .theirs = fd[1] };
	assert_int_equal(fcntl(p.theirs, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(loop_add(l, p.theirs, &noting, &p, &p.source), 0);
	ask(&p, 1);
	assert_int_equal(worker_nice, before.nice);
	if (can)
		assert_true(worker_slice < before.slice_ns);
	loop_remove(l, p.source);
	peer_close(&p);
	loop_stop(l);
}

static void answers(void **state)
{
	struct loop *l;
	assert_int_equal(loop_start(&l, 0, NULL), 0);
	assert_true(loop_workers(l) >= 4);
	struct peer p[20];
	for (int i = 0; i < 20; i++)
		peer_open(l, &p[i]);
	for (int round = 0; round < 5; round++)
		for (int i = 0; i < 20; i++)
			ask(&p[i], 10);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(p[i].requests, 50);
		if (i % 2) { /* the descriptor's own end, or ours */
			shutdown(p[i].ours, SHUT_RDWR);
			wait_ended(&p[i]);
			assert_true(p[i].error < 0);
			loop_remove(l, p[i].source); /* too late: nothing happens */
		} else {
			loop_remove(l, p[i].source);
			assert_int_equal(p[i].error, 0);
		}
		peer_close(&p[i]);
	}
	loop_stop(l);
}

/* Requests that arrive while others are being answered get workers of their own. */
static void beside_each_other(void **state)
{
	struct loop *l;
	assert_int_equal(loop_start(&l, 4, NULL), 0);
	struct peer p;
	peer_open(l, &p);
	p.delay_us = 20000;
	p.meets = 2;
	for (int i = 0; i < 8; i++)
		assert_int_equal(write(p.ours, &i, sizeof(i)), sizeof(i));
	unsigned seen = 0;
	for (int i = 0; i < 8; i++) {
		int got;
		assert_int_equal(read(p.ours, &got, sizeof(got)), sizeof(got));
		seen |= 1u << got;
	}
	assert_int_equal(seen, 255);
	assert_in_range(p.most_inside, 2, 4);
	loop_remove(l, p.source);
	peer_close(&p);
	loop_stop(l);
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;
	assert_int_equal(clock_gettime(clock, &t), 0);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* CPU time that the workers take for a request of a client that computes so long before each. */
static uint64_t cost_ns(struct peer *p, uint64_t gap_ns)
{
	enum { REQUESTS = 400 };
	uint64_t all = now_ns(CLOCK_PROCESS_CPUTIME_ID), own = now_ns(CLOCK_THREAD_CPUTIME_ID);
	for (int i = 0; i < REQUESTS; i++) {
		uint64_t began = now_ns(CLOCK_MONOTONIC);
		while (now_ns(CLOCK_MONOTONIC) - began < gap_ns)
			;
		ask(p, 1);
	}
	own = now_ns(CLOCK_THREAD_CPUTIME_ID) - own;
	return (now_ns(CLOCK_PROCESS_CPUTIME_ID) - all - own) / REQUESTS;
}

/* Who always asks a little later than a worker looks for a next request isn't looked for each
 * time: it costs about what one does who asks now and then. */
static void looks_in_vain(void **state)
{
	struct loop *l;
	assert_int_equal(loop_start(&l, 0, NULL), 0);
	struct peer p;
	peer_open(l, &p);
	uint64_t rare = UINT64_MAX, late = UINT64_MAX; /* the least: other work only adds to it */
	for (int i = 0; i < 10; i++) {
		uint64_t r = cost_ns(&p, 300000), t = cost_ns(&p, 35000);
		rare = r < rare ? r : rare;
		late = t < late ? t : late;
	}
	print_message("ns for each: asked now and then %lu, 35 us after the last %lu\n",
		      (unsigned long)rare, (unsigned long)late);
	assert_true(late < rare + 10000);
	loop_remove(l, p.source);
	peer_close(&p);
	loop_stop(l);
}

/* After one that might have been slow, what comes next wakes nobody else, crowded or not; and what
 * comes while it takes long is answered all the same. */
static void goes_on_alone(void **state)
{
	struct loop *l;
	assert_int_equal(loop_start(&l, 4, NULL), 0);
	struct peer p;
	peer_open(l, &p);
	for (int round = 0; round < 4; round++) {
		p.crowd = round % 2;
		p.delay_us = 1;
		ask(&p, 300);
		p.delay_us = round < 2 ? 0 : 3000;
		for (int i = 0; i < 6; i++)
			assert_int_equal(write(p.ours, &i, sizeof(i)), sizeof(i));
		for (int i = 0; i < 6; i++) {
			int got;
			assert_int_equal(read(p.ours, &got, sizeof(got)), sizeof(got));
		}
	}
	assert_int_equal(p.requests, 4 * 306);
	loop_remove(l, p.source);
	peer_close(&p);
	loop_stop(l);
}

/* ---- one source and the others */

static struct peer *other; /* asked by the tenth request of who is busy */
static _Atomic int seen_by_other;

static bool never_slow(void *ctx, const void *buf, size_t n)
{
	return false;
}

static void busy_request(void *ctx, void *buf, size_t n)
{
	struct peer *p = ctx;
	if (++p->requests == 10)
		assert_int_equal(write(other->ours, buf, n), n);
	usleep(1000);
}

static void other_request(void *ctx, void *buf, size_t n)
{
	const struct peer *p = ctx;
	seen_by_other = p[1].requests;
	on_request(ctx, buf, n);
}

/* One worker, and a source that has always more: who asks now comes next, not after dozens. */
static void turns(void **state)
{
	static const struct loop_ops busy_ops = { never_slow, busy_request, on_end, is_crowded },
				     other_ops = { never_slow, other_request, on_end, is_crowded };
	struct loop *l;
	struct peer p[2]; /* the calm one and the busy one */
	assert_int_equal(loop_start(&l, 1, NULL), 0);
	for (int i = 0; i < 2; i++) {
		int fd[2];
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
		p[i] = (struct peer){ .ours = fd[0], .theirs = fd[1] };
		assert_int_equal(fcntl(p[i].theirs, F_SETFL, O_NONBLOCK), 0);
	}
	other = &p[0];
	for (int i = 0; i < 100; i++)
		assert_int_equal(write(p[1].ours, &i, sizeof(i)), sizeof(i));
	assert_int_equal(loop_add(l, p[0].theirs, &other_ops, p, &p[0].source), 0);
	assert_int_equal(loop_add(l, p[1].theirs, &busy_ops, &p[1], &p[1].source), 0);
	int got;
	assert_int_equal(read(p[0].ours, &got, sizeof(got)), sizeof(got));
	assert_in_range(seen_by_other, 10, 12);
	for (int i = 0; i < 2; i++) {
		loop_remove(l, p[i].source);
		peer_close(&p[i]);
	}
	loop_stop(l);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void stuck_request(void *ctx, void *buf, size_t n)
{
	struct peer *p = ctx;
	p->inside++;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	p->inside--;
}

/* Full of requests before it is served. */
static void stuck_open(struct loop *l, struct peer *p, bool crowd)
{
	static const struct loop_ops stuck_ops = { is_slow, stuck_request, on_end, is_crowded };
	int fd[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	*p = (struct peer){ .ours = fd[0], .theirs = fd[1], .delay_us = 1, .crowd = crowd };
	assert_int_equal(fcntl(fd[1], F_SETFL, O_NONBLOCK), 0);
	for (int q = 0; q < 50; q++)
		assert_int_equal(write(fd[0], &q, sizeof(q)), sizeof(q));
	assert_int_equal(loop_add(l, fd[1], &stuck_ops, p, &p->source), 0);
}

/* However many requests of some sources wait for what doesn't come, another one is answered; and
 * what was held back goes on once it comes. */
static void stuck_ones_hold_nobody(void **state)
{
	static const unsigned kinds[][2] = { { 2, 1 }, { 4, 1 }, { 4, 2 }, { 0, 1 }, { 0, 12 } };
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		unsigned workers = kinds[k][0], n = kinds[k][1];
		struct loop *l;
		struct peer stuck[12], calm;
		assert_int_equal(loop_start(&l, workers, NULL), 0);
		peer_open(l, &calm);
		pthread_mutex_lock(&gate);
		for (unsigned i = 0; i < n; i++)
			stuck_open(l, &stuck[i], i % 2);
		for (unsigned i = 0; i < n; i++)
			while (!stuck[i].inside)
				usleep(1000);
		usleep(20000); /* others of its workers come, too, if they may */
		int word = 1;
		struct pollfd answer = { .fd = calm.ours, .events = POLLIN };
		assert_int_equal(write(calm.ours, &word, sizeof(word)), sizeof(word));
		int came = poll(&answer, 1, 60000);
		pthread_mutex_unlock(&gate);
		assert_int_equal(came, 1);
		for (unsigned i = 0; i < n; i++) {
			for (int ms = 0, left = 1; left && ms < 60000; ms++, usleep(1000))
				assert_int_equal(ioctl(stuck[i].theirs, FIONREAD, &left), 0);
			loop_remove(l, stuck[i].source);
			assert_int_equal(read(stuck[i].theirs, &word, sizeof(word)), -1);
			peer_close(&stuck[i]);
		}
		loop_remove(l, calm.source);
		peer_close(&calm);
		loop_stop(l);
	}
}

static void *ask_until_end(void *arg)
{
	struct peer *p = arg;
	for (int i = 0, got; !p->ended; i++) {
		if (send(p->ours, &i, sizeof(i), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
		    errno != EAGAIN)
			break;
		(void)recv(p->ours, &got, sizeof(got), MSG_DONTWAIT); /* whether it came or not */
	}
	return NULL;
}

/* Sources come and go under traffic; end() is called once and nothing comes after it. */
static void coming_and_going(void **state)
{
	struct loop *l;
	assert_int_equal(loop_start(&l, 4, NULL), 0);
	for (int round = 0; round < 40; round++) {
		struct peer p[3];
		pthread_t t[3];
		for (int i = 0; i < 3; i++) {
			peer_open(l, &p[i]);
			p[i].delay_us = i == 1 ? 100 : 0;
			assert_int_equal(pthread_create(&t[i], NULL, ask_until_end, &p[i]), 0);
		}
		usleep(1000);
		loop_shed(l);
		loop_remove(l, p[0].source);
		loop_remove(l, p[1].source);
		shutdown(p[2].theirs, SHUT_RD); /* ends by itself, and by us at once */
		loop_remove(l, p[2].source);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(p[i].ended, 1);
			assert_int_equal(pthread_join(t[i], NULL), 0);
			peer_close(&p[i]);
		}
	}
	loop_stop(l);
}

static void refusals(void **state)
{
	struct loop *l;
	struct err err;
	assert_int_equal(loop_start(&l, 100000, &err), -EINVAL);
	assert_int_equal(loop_start(&l, 1, NULL), 0);
	uint64_t source;
	struct peer p = { 0 };
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(loop_add(l, file, &ops, &p, &source), -EPERM); /* epoll takes no files */
	assert_int_equal(loop_add(l, -1, &ops, &p, &source), -EBADF);
	assert_int_equal(p.ended, 0);
	close(file);
	loop_stop(l);
	loop_stop(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers),       cmocka_unit_test(short_slices),
		cmocka_unit_test(beside_each_other),
		cmocka_unit_test(looks_in_vain),
		cmocka_unit_test(goes_on_alone), cmocka_unit_test(turns),
		cmocka_unit_test(stuck_ones_hold_nobody),
		cmocka_unit_test(refusals),      cmocka_unit_test(coming_and_going),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
