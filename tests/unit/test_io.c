#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/io_fault.h"
#include "tests/unit/oom.h"
#include "tests/unit/place.h"

static void put(int dirfd, const char *name, const char *text)
{
	auto_fd fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(NULL, fd, text, strlen(text), 0), 0);
}

static void expect(int dirfd, const char *name, const char *text)
{
	auto_free void *data = NULL;
	size_t len;
	assert_int_equal(io_slurp(NULL, dirfd, name, 1 << 20, &data, &len, NULL), 0);
	assert_int_equal(len, strlen(text));
	assert_string_equal(data, text);
}

/* ---- full transfers ---- */

static void full_transfers(void **state)
{
	struct place *p = *state;
	char out[10000], in[10000];
	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (char)(i * 7 + i / 256);
	auto_fd fd = openat(p->fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct io_fault *f = io_fault_new(NULL);
	const struct io *io = io_fault_io(f);
	io_fault_chunk(f, 7);
	assert_int_equal(io_write_full(io, fd, out, sizeof(out), 3), 0);
	assert_int_equal(io_read_full(io, fd, in, sizeof(in), 3), sizeof(in));
	assert_memory_equal(in, out, sizeof(out));
	assert_int_equal(io_fault_calls(f, IO_OP_PWRITE), (sizeof(out) + 6) / 7);
	/* The end of the file ends a read. */
	assert_int_equal(io_read_full(io, fd, in, sizeof(in), 9003), 1000);
	assert_int_equal(io_read_full(io, fd, in, sizeof(in), 20000), 0);
	/* Interrupted calls are repeated, others reported. */
	io_fault_plan(f, &(struct io_fault_plan){
				 .ops = IO_OP_PWRITE | IO_OP_PREAD, .nth = 2, .error = -EINTR });
	assert_int_equal(io_write_full(io, fd, out, 100, 0), 0);
	assert_int_equal(io_fault_hits(f), 1);
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_PREAD, .nth = 3 });
	assert_int_equal(io_read_full(io, fd, in, 100, 0), -EIO);
	io_fault_plan(f, NULL);
	io_fault_space(f, 50);
	assert_int_equal(io_write_full(io, fd, out, 100, 0), -ENOSPC);
	io_fault_free(f);
}

/* ---- publish ---- */

static void publish_replaces(void **state)
{
	struct place *p = *state;
	struct err err;
	for (int durable = 0; durable < 2; durable++) {
		assert_int_equal(io_publish(NULL, p->fd, "name", "one", 3, durable, &err), 0);
		expect(p->fd, "name", "one");
		assert_int_equal(io_publish(NULL, p->fd, "name", "", 0, durable, &err), 0);
		expect(p->fd, "name", "");
		assert_int_equal(place_entries(p->fd), 1);
	}
	struct stat st;
	assert_int_equal(fstatat(p->fd, "name", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	char name[NAME_MAX + 1];
	memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	assert_int_equal(io_publish(NULL, p->fd, name, "x", 1, true, &err), -ENAMETOOLONG);
	assert_int_equal(io_publish(NULL, -1, "name", "x", 1, true, &err), -EBADF);
	assert_non_null(strstr(err.text, "name"));
}

/* Each call fails in turn: the old or the new file is there, whole; the old one whenever
 * the call fails before the rename; and nothing else is left lying about. */
static void publish_survives_faults(void **state)
{
	struct place *p = *state;
	static const struct {
		bool durable, chunks;
		size_t torn;
	} rows[] = {
		{ true, false, 0 }, { true, true, 0 }, { false, false, 0 }, { true, false, 2 }
	};
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		for (uint64_t n = 1;; n++) {
			put(p->fd, "name", "old content");
			struct io_fault *f = io_fault_new(NULL);
			io_fault_chunk(f, rows[r].chunks ? 3 : 0);
			io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_ALL,
								  .nth = n,
								  .error = -EDQUOT,
								  .torn = rows[r].torn });
			struct err err = { 0 };
			int res = io_publish(io_fault_io(f), p->fd, "name", "new", 3,
					     rows[r].durable, &err);
			uint64_t hits = io_fault_hits(f);
			uint64_t renames = io_fault_calls(f, IO_OP_RENAME);
			io_fault_free(f);
			if (!hits) {
				assert_int_equal(res, 0);
				expect(p->fd, "name", "new");
				assert_true(n > (rows[r].durable ? 6 : 4));
				break;
			}
			assert_int_equal(res, -EDQUOT);
			assert_int_equal(err.code, -EDQUOT);
			assert_true(err.text[0] != '\0');
			if (renames == 0)
				expect(p->fd, "name", "old content");
			assert_int_equal(place_entries(p->fd), 1);
		}
	}
}

/* After a kill at call n the file is the old or the new one. */
static void publish_survives_kills(void **state)
{
	struct place *p = *state;
	for (uint64_t n = 1;; n++) {
		put(p->fd, "name", "old content");
		struct io_fault *f = io_fault_new(NULL);
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_CHANGE,
							  .nth = n,
							  .for_good = true,
							  .torn = 1 });
		int r = io_publish(io_fault_io(f), p->fd, "name", "new", 3, true, NULL);
		bool hit = io_fault_hits(f) > 0;
		io_fault_free(f);
		auto_free void *data = NULL;
		size_t len;
		assert_int_equal(io_slurp(NULL, p->fd, "name", 100, &data, &len, NULL), 0);
		assert_true(strcmp(data, "old content") == 0 || strcmp(data, "new") == 0);
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		assert_true(r < 0);
	}
}

struct race {
	int dirfd;
	atomic_bool stop;
	uint64_t reads;
	const char *bad;
};

static void *race_reader(void *arg)
{
	struct race *race = arg;
	while (!atomic_load(&race->stop)) {
		auto_free char *data = NULL;
		size_t len;
		if (io_slurp(NULL, race->dirfd, "raced", 100000, (void **)&data, &len, NULL) < 0)
			race->bad = "absent";
		for (size_t i = 0; !race->bad && i < len; i++)
			if (data[i] != data[0] || len != 1000 + (size_t)data[0] * 10)
				race->bad = "torn";
		race->reads++;
	}
	return NULL;
}

static void *race_writer(void *arg)
{
	struct race *race = arg;
	char data[3000];
	for (int i = 0; i < 400; i++) {
		memset(data, i % 100, sizeof(data));
		if (io_publish(NULL, race->dirfd, "raced", data, 1000 + (size_t)(i % 100) * 10,
			       false, NULL) < 0)
			race->bad = "publish";
	}
	return NULL;
}

static void publish_is_atomic(void **state)
{
	struct place *p = *state;
	struct race race = { .dirfd = p->fd }, other = { .dirfd = p->fd };
	pthread_t r, w[2];
	(void)race_writer(&race);
	assert_int_equal(pthread_create(&r, NULL, race_reader, &race), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&w[i], NULL, race_writer, &other), 0);
	for (int i = 0; i < 2; i++)
		(void)pthread_join(w[i], NULL);
	atomic_store(&race.stop, true);
	(void)pthread_join(r, NULL);
	assert_null(race.bad);
	assert_null(other.bad);
	assert_true(race.reads > 0);
	assert_int_equal(place_entries(p->fd), 1);
}

/* ---- slurp ---- */

static void slurp_limits(void **state)
{
	struct place *p = *state;
	auto_free void *data = NULL;
	size_t len = 77;
	struct err err;
	put(p->fd, "ten", "0123456789");
	assert_int_equal(io_slurp(NULL, p->fd, "ten", 9, &data, &len, &err), -EFBIG);
	assert_null(data); /* outputs only on success */
	assert_int_equal(len, 77);
	assert_int_equal(io_slurp(NULL, p->fd, "ten", 10, &data, &len, &err), 0);
	assert_int_equal(len, 10);
	assert_int_equal(((char *)data)[10], '\0');
	assert_int_equal(io_slurp(NULL, p->fd, "none", 10, &data, &len, &err), -ENOENT);
	assert_non_null(strstr(err.text, "none"));
	assert_int_equal(io_slurp(NULL, p->fd, ".", 10000, &data, &len, &err), -EISDIR);
	/* A file whose size says 0. */
	auto_free void *proc = NULL;
	assert_int_equal(io_slurp(NULL, AT_FDCWD, "/proc/self/status", 100000, &proc, &len, &err),
			 0);
	assert_true(len > 100 && strstr(proc, "Pid:"));
	auto_free void *none = NULL;
	assert_int_equal(io_slurp(NULL, AT_FDCWD, "/proc/self/status", 100, &none, &len, &err),
			 -EFBIG);
}

static void slurp_faults(void **state)
{
	struct place *p = *state;
	put(p->fd, "ten", "0123456789");
	for (uint64_t n = 1;; n++) {
		struct io_fault *f = io_fault_new(NULL);
		io_fault_chunk(f, 4);
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_ALL & ~IO_OP_CLOSE,
							  .nth = n });
		auto_free void *data = NULL;
		size_t len;
		int r = io_slurp(io_fault_io(f), p->fd, "ten", 100, &data, &len, NULL);
		bool hit = io_fault_hits(f) > 0;
		assert_int_equal(io_fault_calls(f, IO_OP_CLOSE), n > 1);
		io_fault_free(f);
		if (!hit) {
			assert_int_equal(r, 0);
			assert_memory_equal(data, "0123456789", 11);
			break;
		}
		assert_int_equal(r, -EIO);
		assert_null(data);
	}
	oom_at(1);
	void *data = NULL;
	size_t len;
	assert_int_equal(io_slurp(NULL, p->fd, "ten", 100, &data, &len, NULL), -ENOMEM);
	assert_true(oom_hit());
}

/* ---- remove_tree ---- */

static void remove_simple(void **state)
{
	struct place *p = *state;
	struct err err;
	assert_int_equal(io_remove_tree(p->fd, "none", &err), 0);
	put(p->fd, "file", "x");
	assert_int_equal(io_remove_tree(p->fd, "file", &err), 0);
	assert_int_equal(mkdirat(p->fd, "dir", 0700), 0);
	assert_int_equal(io_remove_tree(p->fd, "dir", &err), 0);
	assert_int_equal(place_entries(p->fd), 0);
	put(p->fd, "file", "x");
	assert_int_equal(io_remove_tree(p->fd, "file/below", &err), -ENOTDIR);
	assert_non_null(strstr(err.text, "file/below"));
}

static void remove_leaves_link_targets(void **state)
{
	struct place *p = *state;
	assert_int_equal(mkdirat(p->fd, "keep", 0700), 0);
	put(p->fd, "keep/precious", "kept");
	assert_int_equal(mkdirat(p->fd, "tree", 0700), 0);
	assert_int_equal(mkdirat(p->fd, "tree/a", 0700), 0);
	assert_int_equal(symlinkat("../keep", p->fd, "tree/up"), 0);
	assert_int_equal(symlinkat("../../keep", p->fd, "tree/a/up"), 0);
	assert_int_equal(symlinkat("../../keep/precious", p->fd, "tree/a/file"), 0);
	assert_int_equal(symlinkat(".", p->fd, "tree/a/loop"), 0);
	assert_int_equal(mkfifoat(p->fd, "tree/fifo", 0600), 0);
	assert_int_equal(linkat(p->fd, "keep/precious", p->fd, "tree/a/hard", 0), 0);
	assert_int_equal(symlinkat("keep", p->fd, "link"), 0);
	assert_int_equal(io_remove_tree(p->fd, "link", NULL), 0);
	assert_int_equal(io_remove_tree(p->fd, "tree", NULL), 0);
	expect(p->fd, "keep/precious", "kept");
	assert_int_equal(place_entries(p->fd), 1);
}

/* Deeper than there are descriptors, and with a path far over PATH_MAX. */
static void remove_deep(void **state)
{
	struct place *p = *state;
	enum { DEPTH = 5000 };
	struct rlimit old, low = { 64, 64 };
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	int fd = dup(p->fd);
	for (int i = 0; i < DEPTH; i++) {
		/* Among them names like those that folders get on the way up. */
		char name[16];
		(void)snprintf(name, sizeof(name), i % 3 ? "d" : ".rm-%x", i);
		assert_int_equal(mkdirat(fd, name, 0700), 0);
		if (i % 10 == 0)
			put(fd, "file", "x");
		int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(below >= 0);
		(void)close(fd);
		fd = below;
	}
	(void)close(fd);
	struct err err = { 0 };
	int r = io_remove_tree(p->fd, ".rm-0", &err);
	(void)setrlimit(RLIMIT_NOFILE, &old);
	assert_string_equal(err.text, "");
	assert_int_equal(r, 0);
	assert_int_equal(place_entries(p->fd), 1); /* "file" of the first level */
}

static void remove_wide(void **state)
{
	struct place *p = *state;
	enum { FILES = 3000, DIRS = 60 };
	char name[32];
	assert_int_equal(mkdirat(p->fd, "wide", 0700), 0);
	for (int i = 0; i < DIRS; i++) {
		(void)snprintf(name, sizeof(name), "wide/%d", i);
		assert_int_equal(mkdirat(p->fd, name, 0700), 0);
		(void)snprintf(name, sizeof(name), "wide/%d/.rm-%x", i, i * 2);
		assert_int_equal(mkdirat(p->fd, name, 0700), 0);
		(void)snprintf(name, sizeof(name), "wide/%d/.rm-%x/f", i, i * 2);
		put(p->fd, name, "x");
		(void)snprintf(name, sizeof(name), "wide/.rm-%x", i * 3); /* files in the way */
		put(p->fd, name, "x");
	}
	for (int i = 0; i < FILES; i++) {
		(void)snprintf(name, sizeof(name), "wide/0/%d", i);
		assert_int_equal(mknodat(p->fd, name, S_IFREG | 0600, 0), 0);
	}
	assert_int_equal(io_remove_tree(p->fd, "wide", NULL), 0);
	assert_int_equal(place_entries(p->fd), 0);
}

/* Folders that their owner may not write or even enter. Root may do all, so it becomes
 * somebody else for the call. */
static void remove_read_only(void **state)
{
	struct place *p = *state;
	assert_int_equal(mkdirat(p->fd, "locked", 0700), 0);
	assert_int_equal(mkdirat(p->fd, "locked/a", 0700), 0);
	assert_int_equal(mkdirat(p->fd, "locked/a/b", 0700), 0);
	put(p->fd, "locked/a/b/file", "x");
	put(p->fd, "locked/a/file", "x");
	static const char *const dirs[] = { "locked/a/b", "locked/a", "locked" };
	bool root = geteuid() == 0;
	if (root) {
		static const char *const all[] = { ".",          "locked/a/b/file", "locked/a/file",
						   "locked/a/b", "locked/a",        "locked" };
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			assert_int_equal(fchownat(p->fd, all[i], 65534, 65534, 0), 0);
	}
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		assert_int_equal(fchmodat(p->fd, dirs[i], i == 1 ? 0 : 0500, 0), 0);
	struct err err = { 0 };
	if (root)
		assert_int_equal(seteuid(65534), 0);
	int r = io_remove_tree(p->fd, "locked", &err);
	if (root)
		assert_int_equal(seteuid(0), 0);
	assert_string_equal(err.text, "");
	assert_int_equal(r, 0);
	assert_int_equal(place_entries(p->fd), 0);
}

/* ---- the failing disk itself ---- */

static void fault_counts(void **state)
{
	struct place *p = *state;
	struct io_fault *f = io_fault_new(NULL);
	const struct io *io = io_fault_io(f);
	struct stat st;
	int fd = io->open(io->ctx, p->fd, "f", O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	io_fault_plan(f, &(struct io_fault_plan){
				 .ops = IO_OP_FSYNC | IO_OP_FSTAT, .nth = 2, .error = -EROFS });
	assert_int_equal(io->fsync(io->ctx, fd), 0);
	assert_int_equal(io->fdatasync(io->ctx, fd), 0); /* not of the plan */
	assert_int_equal(io->fstat(io->ctx, fd, &st), -EROFS);
	assert_int_equal(io->fstat(io->ctx, fd, &st), 0); /* once only */
	io_fault_plan(f,
		      &(struct io_fault_plan){ .ops = IO_OPS_CHANGE, .nth = 2, .for_good = true });
	assert_int_equal(io->mkdir(io->ctx, p->fd, "d", 0700), 0);
	assert_int_equal(io->mkdir(io->ctx, p->fd, "e", 0700), -EIO);
	assert_int_equal(io->unlink(io->ctx, p->fd, "d", AT_REMOVEDIR), -EIO);
	assert_int_equal(io->open(io->ctx, p->fd, "g", O_RDWR | O_CREAT, 0600), -EIO);
	assert_int_equal(io->rename(io->ctx, p->fd, "f", p->fd, "g", 0), -EIO);
	assert_int_equal(io->link(io->ctx, p->fd, "f", p->fd, "g"), -EIO);
	assert_int_equal(io->ftruncate(io->ctx, fd, 5), -EIO);
	assert_int_equal(io->fallocate(io->ctx, fd, 0, 0, 5), -EIO);
	int ro = io->open(io->ctx, p->fd, "f", O_RDONLY, 0); /* changes nothing */
	assert_true(ro >= 0);
	assert_int_equal(io->close(io->ctx, ro), 0);
	assert_int_equal(io_fault_hits(f), 7);
	assert_int_equal(io_fault_calls(f, IO_OP_MKDIR), 2);
	assert_int_equal(io_fault_calls(f, IO_OP_OPEN), 3);
	assert_int_equal(io_fault_calls(f, IO_OP_CREATE), 2);
	assert_int_equal(io_fault_calls(f, IO_OPS_ALL), 15);
	/* A close that fails has closed. */
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_CLOSE, .nth = 1 });
	assert_int_equal(io->close(io->ctx, fd), -EIO);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	io_fault_free(f);
	io_fault_free(NULL);
}

static void fault_torn_and_full(void **state)
{
	struct place *p = *state;
	struct io_fault *f = io_fault_new(&io_host);
	const struct io *io = io_fault_io(f);
	int fd = io->open(io->ctx, p->fd, "f", O_RDWR | O_CREAT, 0600);
	io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OP_PWRITE, .nth = 1, .torn = 4 });
	assert_int_equal(io->pwrite(io->ctx, fd, "abcdefgh", 8, 0), -EIO);
	expect(p->fd, "f", "abcd");
	io_fault_space(f, 10);
	assert_int_equal(io->pwrite(io->ctx, fd, "01234567", 8, 0), 8);
	assert_int_equal(io->fallocate(io->ctx, fd, FALLOC_FL_KEEP_SIZE, 0, 3), -ENOSPC);
	io_fault_space(f, 2);
	assert_int_equal(io->pwrite(io->ctx, fd, "89ABCDEF", 8, 8), 2);
	assert_int_equal(io->pwrite(io->ctx, fd, "ABCDEF", 6, 10), -ENOSPC);
	expect(p->fd, "f", "0123456789");
	io_fault_space(f, UINT64_MAX);
	assert_int_equal(io->pwrite(io->ctx, fd, "ABCDEF", 6, 10), 6);
	assert_int_equal(io->close(io->ctx, fd), 0);
	io_fault_free(f);
}

#define T(f) cmocka_unit_test_setup_teardown(f, place_set_up, place_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(full_transfers),
		T(publish_replaces),
		T(publish_survives_faults),
		T(publish_survives_kills),
		T(publish_is_atomic),
		T(slurp_limits),
		T(slurp_faults),
		T(remove_simple),
		T(remove_leaves_link_targets),
		T(remove_deep),
		T(remove_wide),
		T(remove_read_only),
		T(fault_counts),
		T(fault_torn_and_full),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
