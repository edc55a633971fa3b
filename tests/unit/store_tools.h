/* What the tests of the store share: a scratch folder, content by number, and short cuts that
 * fail the test where they fail. */
#ifndef BOUGH_TESTS_UNIT_STORE_TOOLS_H
#define BOUGH_TESTS_UNIT_STORE_TOOLS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/store/store.h"

struct scratch {
	char path[200];  /* a folder of this test */
	char store[240]; /* where its store goes */
};

static inline int scratch_set_up(void **state)
{
	struct scratch *s = calloc(1, sizeof(*s));
	const char *tmp = getenv("TMPDIR");
	if (!s)
		return -1;
	/* In memory where there is such a place: these tests sync thousands of times. */
	if (!tmp)
		tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	(void)snprintf(s->path, sizeof(s->path), "%s/test_store.XXXXXX", tmp);
	if (!mkdtemp(s->path))
		return -1;
	(void)snprintf(s->store, sizeof(s->store), "%s/store", s->path);
	*state = s;
	return 0;
}

static inline int scratch_tear_down(void **state)
{
	struct scratch *s = *state;
	int r = io_remove_tree(AT_FDCWD, s->path, NULL);
	free(s);
	return r;
}

/* xorshift64*, Vigna 2016. */
static inline uint64_t rnd(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * UINT64_C(2685821657736338717);
}

/* Content number n: as many bytes, random where n is odd, like text where it is even. */
static inline void content(uint64_t n, uint8_t *p, size_t len)
{
	uint64_t s = (n + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
	for (size_t i = 0; i < len; i++) {
		uint64_t r = rnd(&s) >> 32;
		p[i] = n % 2 ? (uint8_t)r : (uint8_t)("etaoin \n"[r % 8]);
	}
}

#define ok(r, err) ok_((r), (err), __LINE__)
static inline void ok_(int64_t r, const struct err *err, int line)
{
	if (r < 0)
		fail_msg("line %d: %lld: %s", line, (long long)r, err->text);
}

static inline struct store *open_store(const char *dir, const struct store_options *opt)
{
	struct store *s = NULL;
	struct err err;
	struct store_options o = opt ? *opt : (struct store_options){ 0 };
	o.create = true;
	ok(store_open(&s, dir, &o, &err), &err);
	return s;
}

static inline struct store_session *begin(struct store *s)
{
	struct store_session *ss = NULL;
	struct err err;
	ok(store_session_begin(s, &ss, &err), &err);
	return ss;
}

enum { CONTENT_MAX = 4096 };
static inline size_t content_len(uint64_t n)
{
	return (size_t)(n * 37 % CONTENT_MAX);
}

static inline struct digest digest_of(uint64_t n)
{
	uint8_t b[CONTENT_MAX] = { 0 };
	struct digest d;
	content(n, b, content_len(n));
	hash_sha256(&d, b, content_len(n));
	return d;
}

static inline int try_put(struct store_session *ss, uint64_t n)
{
	uint8_t b[CONTENT_MAX] = { 0 };
	struct digest d;
	content(n, b, content_len(n));
	return store_put(ss, b, content_len(n), &d, NULL);
}

/* Puts the contents from..to-1 and syncs. */
static inline void put_range(struct store *s, uint64_t from, uint64_t to)
{
	struct store_session *ss = begin(s);
	struct err err;
	for (uint64_t n = from; n < to; n++)
		ok(try_put(ss, n), &(struct err){ .text = "put" });
	ok(store_sync(ss, &err), &err);
	store_session_end(ss);
}

/* The result of getting content n; its bytes are compared. */
static inline int try_get(struct store *s, uint64_t n)
{
	struct digest d = digest_of(n);
	const struct blob *b;
	int r = store_get(s, &d, &b, NULL);
	if (r < 0)
		return r;
	uint8_t want[CONTENT_MAX];
	content(n, want, content_len(n));
	assert_int_equal(b->len, content_len(n));
	assert_memory_equal(b->data, want, b->len);
	blob_put(b);
	return 0;
}

static inline void get_range(struct store *s, uint64_t from, uint64_t to)
{
	store_trim(s, 0); /* from the packs, not from memory */
	for (uint64_t n = from; n < to; n++) {
		int r = try_get(s, n);
		if (r < 0)
			fail_msg("content %llu: %d", (unsigned long long)n, r);
	}
}

static inline int64_t check(struct store *s, bool repair)
{
	struct err err = { 0 };
	int64_t r = store_check(s, repair, NULL, NULL, &err);
	ok(r, &err);
	return r;
}

/* A disk on which the byte at `at` can't be read; 0: all can. */
struct sick {
	struct io io;
	uint64_t at;
};

static inline ssize_t sick_pread(void *ctx, int fd, void *buf, size_t n, uint64_t off)
{
	const struct sick *s = ctx;
	return s->at && off <= s->at && s->at < off + n ? -EIO
							: io_host.pread(NULL, fd, buf, n, off);
}

static inline const struct io *sick_io(struct sick *s)
{
	s->io = io_host;
	s->io.ctx = s;
	s->io.pread = sick_pread;
	return &s->io;
}

/* Counts the faults that store_check reports, and keeps the last one. */
struct faults {
	unsigned n, index, repaired;
	struct digest object;
	char what[128];
};

static inline void on_fault(void *ctx, const struct store_fault *f)
{
	struct faults *fs = ctx;
	fs->n++;
	fs->index += !f->pack;
	fs->repaired += f->repaired;
	if (f->object)
		fs->object = *f->object;
	(void)snprintf(fs->what, sizeof(fs->what), "%s", f->what);
}

/* The path of a file of the store, or beside it. */
#define store_file(sc, name) store_file_((sc), (name), (char[512]){ 0 })
static inline const char *store_file_(const struct scratch *sc, const char *name, char *out)
{
	bool up = strncmp(name, "../", 3) == 0;
	(void)snprintf(out, 512, "%s/%s", up ? sc->path : sc->store, up ? name + 3 : name);
	return out;
}

#define beside(sc, name) store_file_((sc), "../" name, (char[512]){ 0 })

/* The number of packs; the path of the `nth` goes to `path`. */
static inline unsigned packs(const struct scratch *sc, unsigned nth, char path[512])
{
	auto_dir *d = opendir(store_file(sc, "packs"));
	assert_non_null(d);
	unsigned n = 0;
	struct dirent *de;
	while ((de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		if (n++ == nth && path)
			(void)snprintf(path, 512, "%s/packs/%.100s", sc->store, de->d_name);
	}
	return n;
}

static inline uint64_t file_size(const char *path)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

/* Changes one byte of a file. */
static inline void flip(const char *path, uint64_t off)
{
	auto_fd fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t b;
	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	b ^= 0x40;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
}

static inline void write_file(const char *path, const void *data, size_t len, uint64_t off)
{
	auto_fd fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(pwrite(fd, data, len, (off_t)off), len);
}

/* Runs fn in a child that then dies without any clean-up, as by kill -9. */
static inline void in_child(void (*fn)(void *ctx), void *ctx)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fn(ctx);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
