/* The power goes at any moment of saving, forgetting and collecting: whatever a sync has
 * acknowledged and the catalog names is there in the next boot.
 *
 *     test_store_power [ROUNDS [SEED]] */
#include "tests/unit/store_tools.h"

#include "fs/store/internal.h"
#include "tests/seed.h"

static struct {
	unsigned rounds;
	uint64_t seed;
} options = { 60, 0 };

/* A disk that remembers how much of each pack is durable. At the cut, all calls fail from some
 * moment on; what was written and not synced is then partly there, partly garbage; deletions
 * count at once, and a file whose folder wasn't synced may be gone. */
struct disk {
	struct io io;
	uint64_t calls_left; /* until the cut */
	struct {
		char name[PACK_NAME_BYTES];
		uint64_t durable;
		bool named;
	} packs[512];
	size_t npacks;
	int which[4096]; /* pack of a descriptor plus one */
};

static bool power(struct disk *d)
{
	if (d->calls_left == 0)
		return false;
	d->calls_left--;
	return true;
}

static int disk_open(void *ctx, int dirfd, const char *name, int flags, mode_t mode)
{
	struct disk *d = ctx;
	if (flags & O_CREAT && !power(d))
		return -EIO;
	int fd = io_host.open(NULL, dirfd, name, flags, mode);
	uint64_t id;
	if (fd < 0 || fd >= 4096)
		return fd;
	d->which[fd] = 0;
	if (pack_name_parse(name, &id) < 0)
		return fd;
	size_t i = 0;
	while (i < d->npacks && strcmp(d->packs[i].name, name) != 0)
		i++;
	assert_true(i < 512);
	if (i == d->npacks) {
		(void)snprintf(d->packs[i].name, sizeof(d->packs[i].name), "%s", name);
		struct stat st;
		assert_int_equal(fstat(fd, &st), 0);
		d->packs[i].durable = (uint64_t)st.st_size; /* from before the last cut */
		d->packs[i].named = !(flags & O_CREAT);
		d->npacks++;
	}
	d->which[fd] = (int)i + 1;
	return fd;
}

static ssize_t disk_pwrite(void *ctx, int fd, const void *buf, size_t n, uint64_t off)
{
	return power(ctx) ? io_host.pwrite(NULL, fd, buf, n, off) : -EIO;
}

static int disk_ftruncate(void *ctx, int fd, uint64_t size)
{
	struct disk *d = ctx;
	if (!power(d))
		return -EIO;
	if (d->which[fd] && d->packs[d->which[fd] - 1].durable > size)
		d->packs[d->which[fd] - 1].durable = size;
	return io_host.ftruncate(NULL, fd, size);
}

static int disk_fdatasync(void *ctx, int fd)
{
	struct disk *d = ctx;
	if (!power(d))
		return -EIO;
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	if (d->which[fd])
		d->packs[d->which[fd] - 1].durable = (uint64_t)st.st_size;
	return 0;
}

static int disk_fsync(void *ctx, int fd)
{
	struct disk *d = ctx;
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	if (!S_ISDIR(st.st_mode))
		return disk_fdatasync(ctx, fd);
	if (!power(d))
		return -EIO;
	for (size_t i = 0; i < d->npacks; i++)
		d->packs[i].named = true;
	return 0;
}

static int disk_unlink(void *ctx, int dirfd, const char *name, int flags)
{
	return power(ctx) ? io_host.unlink(NULL, dirfd, name, flags) : -EIO;
}

static int disk_rename(void *ctx, int a, const char *from, int b, const char *to, unsigned flags)
{
	return power(ctx) ? io_host.rename(NULL, a, from, b, to, flags) : -EIO;
}

static void disk_init(struct disk *d)
{
	memset(d, 0, sizeof(*d));
	d->io = io_host;
	d->io.ctx = d;
	d->io.open = disk_open;
	d->io.pwrite = disk_pwrite;
	d->io.ftruncate = disk_ftruncate;
	d->io.fdatasync = disk_fdatasync;
	d->io.fsync = disk_fsync;
	d->io.unlink = disk_unlink;
	d->io.rename = disk_rename;
}

/* What the next boot finds. */
static void disk_cut(struct disk *d, const struct scratch *sc, uint64_t *seed)
{
	for (size_t i = 0; i < d->npacks; i++) {
		char path[512];
		(void)snprintf(path, sizeof(path), "%s/packs/%s", sc->store, d->packs[i].name);
		auto_fd fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		uint64_t size = file_size(path), durable = d->packs[i].durable;
		if (!d->packs[i].named && rnd(seed) % 2) {
			assert_int_equal(unlink(path), 0);
			continue;
		}
		if (size <= durable)
			continue;
		uint64_t end = durable + rnd(seed) % (size - durable + 1);
		assert_int_equal(ftruncate(fd, (off_t)end), 0);
		static const uint8_t zeros[5000];
		uint64_t hole = durable + rnd(seed) % (end - durable + 1);
		size_t len = end - hole < sizeof(zeros) ? (size_t)(end - hole) : sizeof(zeros);
		if (rnd(seed) % 2)
			assert_int_equal(pwrite(fd, zeros, len, (off_t)hole), len);
	}
}

enum { CATALOG = 300 };

static int mark_named(void *ctx, struct store_gc *gc, struct err *err)
{
	const bool *named = ctx;
	for (uint64_t n = 0; n < CATALOG; n++) {
		struct digest dg = digest_of(n);
		if (named[n])
			store_gc_mark(gc, &dg, NULL);
	}
	return 0;
}

/* Another program, which is killed while it saves: what it has put is there, and not durable. */
static void die_saving(const struct scratch *sc, const struct store_options *opt, uint64_t *seed)
{
	struct store *s;
	struct store_session *ss;
	if (store_open(&s, sc->store, opt, NULL) < 0)
		return;
	if (store_session_begin(s, &ss, NULL) == 0) {
		int r = 0;
		for (size_t i = 0; i < 10 && r == 0; i++)
			r = try_put(ss, rnd(seed) % CATALOG);
		if (rnd(seed) % 2)
			(void)writer_flush(s, NULL);
		store_session_end(ss);
	}
	pending_clear(&s->w.fresh);
	pending_clear(&s->w.flushing);
	while (s->w.full) {
		struct wpack *w = s->w.full;
		s->w.full = w->next;
		wpack_unuse(s, w);
	}
	s->w.nfull = 0;
	wpack_unuse(s, s->w.cur);
	s->w.cur = NULL;
	store_close(s);
}

/* Saves, forgets and collects until the power goes. `named` is what the catalog says. */
static void live(const struct scratch *sc, struct disk *d, const uint8_t *boot, bool *named,
		 uint64_t *seed)
{
	struct store_options opt = {
		.io = &d->io, .create = true, .boot_id = boot, .pack_bytes = STORE_PACK_BYTES_MIN
	};
	struct store *s;
	struct store_session *ss;
	if (store_open(&s, sc->store, &opt, NULL) < 0)
		return;
	for (unsigned k = 0; k < 12 && d->calls_left > 0; k++) {
		if (rnd(seed) % 4 == 0) {
			for (unsigned i = 0; i < CATALOG / 3; i++)
				named[rnd(seed) % CATALOG] = false;
			(void)store_gc(s, mark_named, named, NULL, NULL);
		}
		if (rnd(seed) % 6 == 0)
			die_saving(sc, &opt, seed);
		if (store_session_begin(s, &ss, NULL) < 0)
			continue;
		uint64_t n[20];
		int r = 0;
		for (size_t i = 0; i < 20 && r == 0; i++) {
			n[i] = rnd(seed) % CATALOG;
			r = try_put(ss, n[i]);
		}
		if (r == 0 && rnd(seed) % 4 && store_sync(ss, NULL) == 0)
			for (size_t i = 0; i < 20; i++)
				named[n[i]] = true;
		store_session_end(ss);
	}
	store_close(s);
}

static void test_power_cuts(void **state)
{
	struct scratch *sc = *state;
	uint64_t seed = options.seed;
	print_message("seed %llu\n", (unsigned long long)seed);
	bool named[CATALOG] = { false };
	static struct disk d;
	for (unsigned round = 0; round < options.rounds; round++) {
		uint8_t boot[BOOT_ID_BYTES] = { (uint8_t)round, 1 };
		disk_init(&d);
		d.calls_left = rnd(&seed) % 8 ? rnd(&seed) % 700 : 100000;
		live(sc, &d, boot, named, &seed);
		disk_cut(&d, sc, &seed);
		boot[0]++;
		struct store_options opt = { .boot_id = boot, .pack_bytes = STORE_PACK_BYTES_MIN };
		struct store *s = open_store(sc->store, &opt);
		for (uint64_t n = 0; n < CATALOG; n++)
			if (named[n] && try_get(s, n) < 0)
				fail_msg("round %u: content %llu is lost", round,
					 (unsigned long long)n);
		if (round % 4 == 0) {
			/* Garbage between records that came through stays, and is told. */
			struct faults f = { 0 };
			(void)check(s, true);
			assert_true(store_check(s, false, on_fault, &f, NULL) >= 0);
			if (f.n > 0 && (f.index || strcmp(f.what, "a record is damaged") != 0))
				fail_msg("round %u: %s", round, f.what);
		}
		store_close(s);
	}
}

int main(int argc, char **argv)
{
	options.seed = test_seed() | 1; /* of rnd: none is 0 */
	if (argc > 1)
		options.rounds = (unsigned)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		options.seed = strtoull(argv[2], NULL, 10);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_power_cuts, scratch_set_up, scratch_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
