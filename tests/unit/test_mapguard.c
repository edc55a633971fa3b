/* Maps of files that the disk doesn't give: here, files that are cut under their maps. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include "fs/base/mapguard.h"

enum { PAGES = 8 };
static size_t page;

struct map {
	int fd;
	volatile unsigned char *base;
	struct mapguard *guard;
	_Atomic unsigned lost;
	_Atomic size_t last; /* what was missing */
	bool helpless;       /* its owner has nothing to put there */
};

static bool lose(void *ctx, size_t off)
{
	struct map *m = ctx;
	atomic_store(&m->last, off);
	atomic_fetch_add(&m->lost, 1);
	errno = EDOM; /* which who touches the page must not see */
	return !m->helpless && mapguard_zero((const void *)m->base, off, off + 1);
}

/* PAGES pages of 'x', of which the disk still gives the first `left`. */
static void map_cut(struct map *m, size_t left)
{
	*m = (struct map){ .fd = memfd_create("map", MFD_CLOEXEC) };
	assert_true(m->fd >= 0);
	assert_int_equal(ftruncate(m->fd, (off_t)(PAGES * page)), 0);
	void *p = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	assert_true(p != MAP_FAILED);
	memset(p, 'x', PAGES * page);
	assert_int_equal(mprotect(p, PAGES * page, PROT_READ), 0);
	m->base = p;
	assert_int_equal(ftruncate(m->fd, (off_t)(left * page)), 0);
}

static void map_guard(struct map *m)
{
	assert_int_equal(mapguard_add(&m->guard, (const void *)m->base, PAGES * page, lose, m), 0);
}

static void map_done(struct map *m)
{
	mapguard_remove(m->guard);
	assert_int_equal(munmap((void *)m->base, PAGES * page), 0);
	assert_int_equal(close(m->fd), 0);
}

/* A page that is missing is asked for once, by its place, and is zeros from then on; those beside
 * it are what they were. */
static void test_pages(void **state)
{
	struct map m;
	map_cut(&m, 5);
	map_guard(&m);
	assert_int_equal(mapguard_page(), page);
	errno = ENOENT;
	assert_int_equal(m.base[6 * page + 77], 0);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(m.lost, 1);
	assert_int_equal(m.last, 6 * page + 77);
	for (size_t i = 0; i < page; i++)
		assert_int_equal(m.base[6 * page + i], 0);
	assert_int_equal(m.base[5 * page - 1], 'x');
	assert_int_equal(m.lost, 1);
	assert_int_equal(m.base[5 * page], 0); /* the first that is missing, and the last */
	assert_int_equal(m.base[PAGES * page - 1], 0);
	assert_int_equal(m.lost, 3);
	map_done(&m);
}

/* Each map's owner is told of his own, whoever came first, and after others have gone. */
static void test_owners(void **state)
{
	enum { MAPS = 6 };
	struct map m[MAPS];
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < MAPS; i++) {
			map_cut(&m[i], i);
			map_guard(&m[i]);
		}
		for (unsigned i = round; i < MAPS; i += 2)
			mapguard_remove(m[i].guard), m[i].guard = NULL;
		for (unsigned i = 0; i < MAPS; i++)
			if (m[i].guard)
				assert_int_equal(m[i].base[i * page], 0);
		for (unsigned i = 0; i < MAPS; i++)
			assert_int_equal(m[i].lost, m[i].guard != NULL);
		map_guard(&m[round]); /* in the place of one that has gone */
		assert_int_equal(m[round].base[7 * page], 0);
		for (unsigned i = 0; i < MAPS; i++)
			map_done(&m[i]);
	}
	mapguard_remove(NULL);
}

/* ---- what isn't ours ---- */

static volatile sig_atomic_t passed_on;

static void by_number(int sig)
{
	_exit(sig == SIGBUS ? 42 : 44);
}

static const volatile unsigned char *expected;

static void by_info(int sig, siginfo_t *info, void *context)
{
	_exit(info->si_addr == expected ? 43 : 44);
}

static void count(int sig)
{
	passed_on++;
}

static struct sigaction ours;
static void calls_back(int sig, siginfo_t *info, void *context)
{
	if (++passed_on > 100)
		_exit(45); /* round and round */
	ours.sa_sigaction(sig, info, context);
}

/* The status of a child, in which `before` has the signal when a map is guarded. */
static int status_of(void (*act)(struct map *m), void (*before)(int),
		     void (*before_info)(int, siginfo_t *, void *))
{
	pid_t pid = fork();
	if (pid == 0) {
		struct map m, other;
		struct sigaction sa = { .sa_handler = before };
		if (before_info) {
			sa.sa_sigaction = before_info;
			sa.sa_flags = SA_SIGINFO;
		}
		(void)sigaction(SIGBUS, &sa, NULL);
		map_cut(&other, 0);
		map_cut(&m, 0);
		map_guard(&m);
		act(&other);
		_exit(m.lost ? 1 : 0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void touch(struct map *other)
{
	expected = other->base + page;
	_exit(other->base[page] ? 2 : 3);
}

static void be_sent(struct map *other)
{
	(void)raise(SIGBUS);
}

static void touch_helpless(struct map *other)
{
	other->helpless = true;
	map_guard(other);
	touch(other);
}

static void touch_removed(struct map *other)
{
	map_guard(other);
	mapguard_remove(other->guard);
	touch(other);
}

/* Somebody puts himself before us, and hands on to us what isn't his; we then come before him. */
static void touch_in_circle(struct map *other)
{
	struct sigaction sa = { .sa_sigaction = calls_back, .sa_flags = SA_SIGINFO };
	struct map third;
	(void)sigaction(SIGBUS, &sa, &ours);
	map_cut(&third, 0);
	map_guard(&third);
	touch(other);
}

static bool killed(int status)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS;
}

static bool ended(int status, int code)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static void test_others(void **state)
{
	void (*const acts[])(struct map *) = { touch, touch_helpless, touch_removed };
	for (unsigned i = 0; i < 3; i++) {
		assert_true(killed(status_of(acts[i], SIG_DFL, NULL)));
		/* As the kernel does it: such an access can't be ignored. */
		assert_true(killed(status_of(acts[i], SIG_IGN, NULL)));
		assert_true(ended(status_of(acts[i], by_number, NULL), 42));
		assert_true(ended(status_of(acts[i], NULL, by_info), 43));
	}
	assert_true(killed(status_of(touch_in_circle, SIG_DFL, NULL)));
	/* Sent by somebody, so that nothing will raise it again. */
	assert_true(killed(status_of(be_sent, SIG_DFL, NULL)));
	assert_true(ended(status_of(be_sent, SIG_IGN, NULL), 0));
	assert_true(ended(status_of(be_sent, by_number, NULL), 42));
	assert_true(ended(status_of(be_sent, count, NULL), 0));
}

/* ---- threads ---- */

struct reader {
	struct map *m;
	pthread_barrier_t *start;
	unsigned from;
	bool good;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;
	r->good = true;
	(void)pthread_barrier_wait(r->start);
	for (unsigned i = 0; i < PAGES; i++) {
		unsigned p = (r->from + i) % PAGES;
		if (r->m->base[p * page + r->from] != (p < 2 ? 'x' : 0))
			r->good = false;
	}
	return NULL;
}

static atomic_bool over;
static void *come_and_go(void *arg)
{
	while (!atomic_load(&over)) {
		struct map m;
		map_cut(&m, 1);
		map_guard(&m);
		if (m.base[3 * page] != 0 || m.lost != 1)
			*(bool *)arg = false;
		map_done(&m);
	}
	return NULL;
}

/* Many meet the same missing pages at once, while other maps come and go. */
static void test_threads(void **state)
{
	enum { THREADS = 6, ROUNDS = 60 };
	pthread_t other, t[THREADS];
	bool others_good = true;
	atomic_store(&over, false);
	assert_int_equal(pthread_create(&other, NULL, come_and_go, &others_good), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct map m;
		struct reader r[THREADS];
		pthread_barrier_t start;
		map_cut(&m, 2);
		map_guard(&m);
		(void)pthread_barrier_init(&start, NULL, THREADS);
		for (unsigned i = 0; i < THREADS; i++) {
			r[i] = (struct reader){ &m, &start, i, false };
			assert_int_equal(pthread_create(&t[i], NULL, read_all, &r[i]), 0);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			assert_int_equal(pthread_join(t[i], NULL), 0);
			assert_true(r[i].good);
		}
		assert_in_range(m.lost, PAGES - 2, (PAGES - 2) * THREADS);
		(void)pthread_barrier_destroy(&start);
		map_done(&m);
	}
	atomic_store(&over, true);
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_true(others_good);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_owners),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_threads),
	};
	page = (size_t)sysconf(_SC_PAGESIZE);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
