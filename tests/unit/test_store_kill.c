/* Writers, readers and collectors of one store, killed at random and started again. A table in
 * shared memory is the catalog: content n is named by setting byte n after the sync, inside of
 * the session. Whatever is named has to be readable, at any time, by any process.
 *
 *     test_store_kill [SECONDS [SEED]] */
#include "tests/seed.h"
#include "tests/unit/store_tools.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

enum { PACK_BYTES = 64 << 10, CONTENTS = 600, WORKERS = 4, SAVE = 25 };

static struct {
	double seconds;
	uint64_t seed;
} options = { 1.5, 0 };

struct catalog {
	atomic_uchar named[CONTENTS];
	atomic_ullong saves, collections, deleted, reads;
};

static const struct store_options small = { .pack_bytes = PACK_BYTES, .cache_bytes = 1 << 16 };

static double now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#define must(r, err)                                                                   \
	do {                                                                           \
		if ((r) < 0) {                                                         \
			(void)fprintf(stderr, "line %d: %s\n", __LINE__, (err)->text); \
			_exit(2);                                                      \
		}                                                                      \
	} while (0)

static void save(struct store *s, struct catalog *cat, uint64_t *seed)
{
	struct store_session *ss;
	struct err err;
	must(store_session_begin(s, &ss, &err), &err);
	uint64_t n[SAVE];
	for (size_t i = 0; i < SAVE; i++) {
		uint8_t b[CONTENT_MAX];
		struct digest d;
		n[i] = rnd(seed) % CONTENTS;
		content(n[i], b, content_len(n[i]));
		must(store_put(ss, b, content_len(n[i]), &d, &err), &err);
	}
	must(store_sync(ss, &err), &err);
	for (size_t i = 0; i < SAVE; i++)
		atomic_store(&cat->named[n[i]], 1);
	store_session_end(ss);
	atomic_fetch_add(&cat->saves, 1);
}

static int mark(void *ctx, struct store_gc *gc, struct err *err)
{
	struct catalog *cat = ctx;
	for (uint64_t n = 0; n < CONTENTS; n++)
		if (atomic_load(&cat->named[n])) {
			struct digest d = digest_of(n);
			store_gc_mark(gc, &d, NULL);
		}
	return 0;
}

static void collect(struct store *s, struct catalog *cat, uint64_t *seed)
{
	struct store_gc_stats st;
	struct err err;
	for (unsigned i = 0; i < CONTENTS / 2; i++)
		atomic_store(&cat->named[rnd(seed) % CONTENTS], 0);
	int r = store_gc(s, mark, cat, &st, &err);
	if (r == -EBUSY)
		return;
	must(r, &err);
	atomic_fetch_add(&cat->collections, 1);
	atomic_fetch_add(&cat->deleted, st.packs_deleted);
}

/* Named contents can be read; one that loses its name meanwhile may be gone. */
static void read_some(struct store *s, struct catalog *cat, uint64_t *seed)
{
	for (unsigned i = 0; i < 50; i++) {
		uint64_t n = rnd(seed) % CONTENTS;
		if (!atomic_load(&cat->named[n]))
			continue;
		struct digest d = digest_of(n);
		const struct blob *b;
		struct err err;
		int r = store_get(s, &d, &b, &err);
		if (r == -ENOENT && !atomic_load(&cat->named[n]))
			continue;
		if (r == -ENOENT) {
			/* It may have lost its name and got it back in between. */
			r = store_get(s, &d, &b, &err);
		}
		must(r, &err);
		blob_put(b);
		atomic_fetch_add(&cat->reads, 1);
	}
	store_trim(s, 0);
}

static void work(const char *dir, struct catalog *cat, unsigned role, uint64_t seed)
{
	struct store *s;
	struct err err;
	struct store_options opt = small;
	opt.create = true;
	must(store_open(&s, dir, &opt, &err), &err);
	for (;;) {
		if (role == 0)
			collect(s, cat, &seed);
		else if (role == 1)
			read_some(s, cat, &seed);
		else
			save(s, cat, &seed);
		if (rnd(&seed) % 50 == 0) { /* closing and opening, too */
			store_close(s);
			must(store_open(&s, dir, &opt, &err), &err);
		}
	}
}

static pid_t start(const struct scratch *sc, struct catalog *cat, unsigned role, uint64_t *seed)
{
	uint64_t own = rnd(seed) | 1;
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		work(sc->store, cat, role, own);
	return pid;
}

static void end(pid_t pid)
{
	int status;
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("a worker ended by itself: status %#x", (unsigned)status);
}

static void test_kill(void **state)
{
	struct scratch *sc = *state;
	struct catalog *cat = mmap(NULL, sizeof(*cat), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(cat != MAP_FAILED);
	uint64_t seed = options.seed;
	print_message("seed %" PRIu64 "\n", seed);
	store_close(open_store(sc->store, &small));
	pid_t pid[WORKERS];
	for (unsigned i = 0; i < WORKERS; i++)
		pid[i] = start(sc, cat, i, &seed);
	unsigned kills = 0;
	for (double stop = now() + options.seconds; now() < stop; kills++) {
		usleep((useconds_t)(rnd(&seed) % 40000));
		/* Mostly one, now and then all at once. */
		bool all = rnd(&seed) % 8 == 0;
		unsigned which = (unsigned)(rnd(&seed) % WORKERS);
		for (unsigned i = 0; i < WORKERS; i++)
			if (all || i == which)
				end(pid[i]);
		for (unsigned i = 0; i < WORKERS; i++)
			if (all || i == which)
				pid[i] = start(sc, cat, i, &seed);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		end(pid[i]);
	print_message("%u kills, %llu saves, %llu collections, %llu packs deleted, %llu reads\n",
		      kills, atomic_load(&cat->saves), atomic_load(&cat->collections),
		      atomic_load(&cat->deleted), atomic_load(&cat->reads));
	for (int round = 0; round < 2; round++) {
		struct store *s = open_store(sc->store, &small);
		for (uint64_t n = 0; n < CONTENTS; n++)
			if (atomic_load(&cat->named[n]))
				ok(try_get(s, n), &(struct err){ .text = "a named content" });
		/* Torn ends of packs are all that may be wrong. */
		(void)check(s, true);
		assert_int_equal(check(s, false), 0);
		store_close(s);
		/* The second time from the packs alone. */
		(void)unlink(store_file(sc, "index/state"));
	}
	(void)munmap(cat, sizeof(*cat));
}

int main(int argc, char **argv)
{
	options.seed = test_seed() | 1;
	if (argc > 1)
		options.seconds = strtod(argv[1], NULL);
	if (argc > 2)
		options.seed = strtoull(argv[2], NULL, 10);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_kill, scratch_set_up, scratch_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
