/* Content: reading and writing, holes, mappings, times, locks. */
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include "tests/e2e/posix.h"

enum { BLOCK = 4096 };

/* Bytes that depend on their place, so that a block in the wrong one shows. */
static unsigned char at(uint64_t off)
{
	return (unsigned char)(off * 2654435761u >> 13);
}

static void fill(unsigned char *buf, size_t n, uint64_t off)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = at(off + i);
}

static bool all_zero(const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static void reads_and_writes(void)
{
	int fd = OK(open("f", O_RDWR | O_CREAT, 0666));
	char buf[16];
	CHECK(read(fd, buf, 16) == 0);
	CHECK(write(fd, "hello world", 11) == 11);
	CHECK(pwrite(fd, "W", 1, 6) == 1);
	CHECK(pread(fd, buf, 16, 6) == 5 && memcmp(buf, "World", 5) == 0);
	CHECK(pread(fd, buf, 16, 11) == 0 && pread(fd, buf, 16, 1000) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 11 && lseek(fd, -3, SEEK_END) == 8);
	FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
	FAILS(pread(fd, buf, 1, -1), EINVAL);
	CHECK(pwrite(fd, "far", 3, 100000) == 3);
	struct stat st;
	OK(fstat(fd, &st));
	CHECK(st.st_size == 100003 && st.st_blocks < 100);
	unsigned char hole[1000];
	CHECK(pread(fd, hole, 1000, 50000) == 1000 && all_zero(hole, 1000));
	CHECK(pread(fd, buf, 5, 9) == 5 && memcmp(buf, "ld\0\0\0", 5) == 0);
	int ro = OK(open("f", O_RDONLY)), wo = OK(open("f", O_WRONLY));
	FAILS(write(ro, "x", 1), EBADF);
	FAILS(read(wo, buf, 1), EBADF);
	FAILS(ftruncate(ro, 0), EINVAL);
	CHECK(pread(ro, buf, 5, 0) == 5 && memcmp(buf, "hello", 5) == 0);
	CHECK(pwrite(wo, "J", 1, 0) == 1);
	CHECK(pread(ro, buf, 5, 0) == 5 && memcmp(buf, "Jello", 5) == 0);
	CHECK(write(fd, "", 0) == 0);
	IN_CHILD(geteuid(), { /* and another process sees it at once */
			      int other = OK(open("f", O_RDWR));
			      CHECK(pread(other, buf, 1, 0) == 1 && buf[0] == 'J');
			      CHECK(pwrite(other, "C", 1, 0) == 1);
	});
	CHECK(pread(ro, buf, 1, 0) == 1 && buf[0] == 'C');
}

/* Sizes and offsets around every boundary there is: blocks, 64 KiB, 1 MiB. */
static void boundaries(void)
{
	static const uint64_t places[] = {
		0,     1,          4095,          4096,    4097,          65535,
		65536, 131072 + 7, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20
	};
	static const size_t sizes[] = { 1, 100, 4096, 5000, 65536, 200000, (1 << 20) + 3 };
	enum { TOTAL = 5 << 20 };
	unsigned char *want = calloc(1, TOTAL), *got = malloc(TOTAL), *data = malloc(2 << 20);
	CHECK(want && got && data);
	int fd = OK(open("f", O_RDWR | O_CREAT, 0666));
	size_t size = 0;
	for (unsigned i = 0; i < sizeof(places) / sizeof(*places); i++)
		for (unsigned j = 0; j < sizeof(sizes) / sizeof(*sizes); j++) {
			uint64_t off = places[(i * 5 + j) % 12];
			size_t n = sizes[(j * 3 + i) % 7];
			fill(data, n, off + i * 31 + j);
			CHECK(pwrite(fd, data, n, (off_t)off) == (ssize_t)n);
			memcpy(want + off, data, n);
			if (off + n > size)
				size = off + n;
			if ((i + j) % 4 == 0) { /* cut, and let it grow again: zeros */
				size_t cut = size - size / (7 + j);
				OK(ftruncate(fd, (off_t)cut));
				memset(want + cut, 0, size - cut);
				OK(ftruncate(fd, (off_t)size));
			}
		}
	CHECK(pread(fd, got, TOTAL, 0) == (ssize_t)size && memcmp(got, want, size) == 0);
	OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)); /* what the server has, not the cache */
	CHECK(pread(fd, got, TOTAL, 0) == (ssize_t)size && memcmp(got, want, size) == 0);
}

static void truncation(void)
{
	put_file("f", "0123456789", 0644);
	OK(truncate("f", 4));
	CHECK(file_is("f", "0123"));
	OK(truncate("f", 8));
	int fd = OK(open("f", O_RDWR));
	char buf[16];
	CHECK(read(fd, buf, 16) == 8 && memcmp(buf, "0123\0\0\0\0", 8) == 0);
	FAILS(truncate("f", -1), EINVAL);
	FAILS(truncate(".", 0), EISDIR);
	FAILS(truncate("none", 0), ENOENT);
	struct stat before = stat_of("f");
	tick();
	int t = OK(open("f", O_WRONLY | O_TRUNC));
	CHECK(stat_of("f").st_size == 0 && later(stat_of("f").st_mtim, before.st_mtim));
	CHECK(pread(fd, buf, 16, 0) == 0);
	CHECK(write(t, "z", 1) == 1);
	CHECK(pread(fd, buf, 16, 0) == 1);
	/* To the same size: the times move all the same. */
	before = stat_of("f");
	tick();
	OK(ftruncate(fd, 1));
	CHECK(later(stat_of("f").st_ctim, before.st_ctim));
	/* An odd size, cut inside a block, then written behind the cut: what was cut is gone. */
	unsigned char block[BLOCK];
	memset(block, 'x', sizeof(block));
	CHECK(pwrite(fd, block, BLOCK, 0) == BLOCK);
	OK(ftruncate(fd, 100));
	CHECK(pwrite(fd, "end", 3, 3000) == 3);
	CHECK(pread(fd, block, BLOCK, 0) == 3003 && all_zero(block + 100, 2900));
}

static void appending(void)
{
	enum { WRITERS = 4, RECORDS = 500, LEN = 100 };
	put_file("log", "", 0644);
	pid_t pids[WRITERS];
	for (int w = 0; w < WRITERS; w++) {
		fflush(NULL);
		pids[w] = OK(fork());
		if (pids[w] == 0) {
			int fd = OK(open("log", O_WRONLY | O_APPEND));
			char record[LEN];
			for (int i = 0; i < RECORDS; i++) {
				memset(record, 'a' + w, LEN);
				(void)snprintf(record, LEN, "%d %d", w, i);
				CHECK(write(fd, record, LEN) == LEN);
			}
			_exit(0);
		}
	}
	for (int w = 0; w < WRITERS; w++)
		join(pids[w]);
	CHECK(stat_of("log").st_size == WRITERS * RECORDS * LEN);
	int next[WRITERS] = { 0 }, fd = OK(open("log", O_RDWR | O_APPEND));
	char record[LEN];
	for (int i = 0; i < WRITERS * RECORDS; i++) {
		int w, n;
		CHECK(read(fd, record, LEN) == LEN);
		CHECK(sscanf(record, "%d %d", &w, &n) == 2 && w < WRITERS && n == next[w]++);
		CHECK(record[LEN - 1] == 'a' + w);
	}
	/* On Linux pwrite of an O_APPEND descriptor appends too. */
	CHECK(pwrite(fd, "x", 1, 0) == 1);
	CHECK(stat_of("log").st_size == WRITERS * RECORDS * LEN + 1);
}

static void sparse(void)
{
	const off_t five = (off_t)5 << 30;
	int fd = OK(open("f", O_RDWR | O_CREAT, 0666));
	CHECK(pwrite(fd, "end", 3, five) == 3);
	CHECK(pwrite(fd, "mid", 3, five / 2) == 3);
	struct stat st;
	OK(fstat(fd, &st));
	CHECK(st.st_size == five + 3 && st.st_blocks * 512 <= 1 << 20);
	char buf[8];
	CHECK(pread(fd, buf, 8, five) == 3 && memcmp(buf, "end", 3) == 0);
	CHECK(pread(fd, buf, 8, five / 2) == 8 && memcmp(buf, "mid\0\0\0\0\0", 8) == 0);
	off_t data = OK(lseek(fd, 0, SEEK_DATA));
	CHECK(data <= five / 2 && data > five / 2 - (1 << 20));
	off_t hole = OK(lseek(fd, five / 2, SEEK_HOLE));
	CHECK(hole > five / 2 && hole <= five / 2 + (1 << 20));
	CHECK(lseek(fd, five + 1, SEEK_HOLE) == five + 3);
	OK(ftruncate(fd, (off_t)1 << 40)); /* 1 TiB of nothing */
	FAILS(lseek(fd, five + (2 << 20), SEEK_DATA), ENXIO);
	OK(ftruncate(fd, 0));
	OK(fstat(fd, &st));
	CHECK(st.st_blocks == 0);
}

static void seeking(void)
{
	int fd = OK(open("f", O_RDWR | O_CREAT, 0666));
	FAILS(lseek(fd, 0, SEEK_DATA), ENXIO);
	FAILS(lseek(fd, 0, SEEK_HOLE), ENXIO);
	unsigned char data[BLOCK];
	memset(data, 'd', sizeof(data));
	CHECK(pwrite(fd, data, BLOCK, 16 * BLOCK) == BLOCK); /* one block, far from all else */
	OK(ftruncate(fd, 64 * BLOCK));
	CHECK(lseek(fd, 0, SEEK_DATA) == 16 * BLOCK);
	CHECK(lseek(fd, 16 * BLOCK + 5, SEEK_DATA) == 16 * BLOCK + 5);
	CHECK(lseek(fd, 0, SEEK_HOLE) == 0);
	CHECK(lseek(fd, 16 * BLOCK, SEEK_HOLE) == 17 * BLOCK);
	CHECK(lseek(fd, 30 * BLOCK, SEEK_HOLE) == 30 * BLOCK);
	FAILS(lseek(fd, 17 * BLOCK, SEEK_DATA), ENXIO);
	FAILS(lseek(fd, 64 * BLOCK, SEEK_HOLE), ENXIO);
	FAILS(lseek(fd, -1, SEEK_DATA), ENXIO);
}

static void allocating(void)
{
	int fd = OK(open("f", O_RDWR | O_CREAT, 0666));
	struct stat st;
	OK(fallocate(fd, 0, 0, 10 * BLOCK));
	OK(fstat(fd, &st));
	CHECK(st.st_size == 10 * BLOCK && st.st_blocks >= 10 * BLOCK / 512);
	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 10 * BLOCK, 10 * BLOCK));
	OK(fstat(fd, &st));
	CHECK(st.st_size == 10 * BLOCK);
	unsigned char *buf = malloc(10 * BLOCK);
	CHECK(buf);
	CHECK(pread(fd, buf, 10 * BLOCK, 0) == 10 * BLOCK && all_zero(buf, 10 * BLOCK));
	fill(buf, 10 * BLOCK, 0);
	CHECK(pwrite(fd, buf, 10 * BLOCK, 0) == 10 * BLOCK);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * BLOCK + 100, 3 * BLOCK));
	unsigned char *got = malloc(10 * BLOCK);
	CHECK(got);
	memset(buf + 2 * BLOCK + 100, 0, 3 * BLOCK);
	CHECK(pread(fd, got, 10 * BLOCK, 0) == 10 * BLOCK && memcmp(got, buf, 10 * BLOCK) == 0);
	CHECK(lseek(fd, 3 * BLOCK, SEEK_HOLE) == 3 * BLOCK);
	OK(fallocate(fd, FALLOC_FL_ZERO_RANGE, 7 * BLOCK - 1, BLOCK + 2));
	memset(buf + 7 * BLOCK - 1, 0, BLOCK + 2);
	CHECK(pread(fd, got, 10 * BLOCK, 0) == 10 * BLOCK && memcmp(got, buf, 10 * BLOCK) == 0);
	OK(fallocate(fd, FALLOC_FL_ZERO_RANGE, 11 * BLOCK, BLOCK)); /* beyond the end: it grows */
	OK(fstat(fd, &st));
	CHECK(st.st_size == 12 * BLOCK);
	OK(fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 12 * BLOCK, BLOCK));
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 100 * BLOCK));
	OK(fstat(fd, &st));
	CHECK(st.st_size == 12 * BLOCK);
	CHECK(pread(fd, got, 10 * BLOCK, 0) == 10 * BLOCK && all_zero(got, 10 * BLOCK));
	FAILS(fallocate(fd, 0, 0, 0), EINVAL);
	FAILS(fallocate(fd, 0, -1, 10), EINVAL);
	FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, BLOCK), EOPNOTSUPP);
	int ro = OK(open("f", O_RDONLY));
	FAILS(fallocate(ro, 0, 0, BLOCK), EBADF);
	OK(posix_fallocate(fd, 0, 20 * BLOCK));
	OK(fstat(fd, &st));
	CHECK(st.st_size == 20 * BLOCK);
}

static void copying(void)
{
	enum { N = 3 << 20 };
	unsigned char *buf = malloc(N), *got = malloc(N);
	CHECK(buf && got);
	fill(buf, N, 0);
	int a = OK(open("a", O_RDWR | O_CREAT, 0666)), b = OK(open("b", O_RDWR | O_CREAT, 0666));
	CHECK(write(a, buf, N) == N);
	struct stat before = stat_of("b");
	tick();
	static const struct {
		off_t from, to;
		size_t n;
	} ranges[] = { { 0, 0, N },
		       { 4096, 8192, 65536 },
		       { 1, 5, 100 },
		       { 100, 4096, 70001 },
		       { 65536 + 3, 65536 + 3, 1 << 20 },
		       { N - 10, N - 10, 10 } };
	CHECK(copy_file_range(a, &(off_t){ 0 }, b, &(off_t){ 0 }, N, 0) == N);
	CHECK(later(stat_of("b").st_mtim, before.st_mtim) && stat_of("b").st_size == N);
	unsigned char *want = malloc(N);
	CHECK(want);
	memcpy(want, buf, N);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		off_t from = ranges[i].from, to = ranges[i].to;
		for (size_t left = ranges[i].n; left > 0;)
			left -= (size_t)OK(copy_file_range(a, &from, b, &to, left, 0));
		memcpy(want + ranges[i].to, buf + ranges[i].from, ranges[i].n);
		CHECK(pread(b, got, N, 0) == N && memcmp(got, want, N) == 0);
	}
	/* Both sides are independent afterwards. */
	CHECK(pwrite(a, "changed", 7, 70000) == 7);
	CHECK(pread(b, got, N, 0) == N && memcmp(got, want, N) == 0);
	CHECK(pwrite(b, "other", 5, 200000) == 5);
	memcpy(buf + 70000, "changed", 7);
	CHECK(pread(a, got, N, 0) == N && memcmp(got, buf, N) == 0);
	/* Inside one file, and at its end. */
	off_t from = 0, to = N;
	CHECK(copy_file_range(a, &from, a, &to, 65536, 0) == 65536 && to == N + 65536);
	CHECK(pread(a, got, 65536, N) == 65536 && memcmp(got, buf, 65536) == 0);
	from = 0, to = 100;
	FAILS(copy_file_range(a, &from, a, &to, 1000, 0), EINVAL); /* overlapping */
	from = N + 65536;
	CHECK(copy_file_range(a, &from, b, NULL, 10, 0) == 0);
	int ro = OK(open("b", O_RDONLY));
	FAILS(copy_file_range(a, NULL, ro, NULL, 1, 0), EBADF);
	OK(unlink("a"));
	OK(ftruncate(a, 0));
	CHECK(pread(b, got, N, 0) == N && memcmp(got, want, 200000) == 0);
}

static void mappings(void)
{
	enum { N = 10 * BLOCK };
	int fd = OK(open("f", O_RDWR | O_CREAT, 0666));
	unsigned char buf[N];
	fill(buf, N, 0);
	CHECK(write(fd, buf, N - 100) == N - 100);
	unsigned char *m = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(m != MAP_FAILED);
	CHECK(memcmp(m, buf, N - 100) == 0 && all_zero(m + N - 100, 100));
	CHECK(pwrite(fd, "WRITE", 5, 5000) == 5 && memcmp(m + 5000, "WRITE", 5) == 0);
	memcpy(m + 9000, "MAPPED", 6);
	char got[8];
	CHECK(pread(fd, got, 6, 9000) == 6 && memcmp(got, "MAPPED", 6) == 0);
	struct stat before = stat_of("f");
	tick();
	memcpy(m + 20000, "SYNCED", 6);
	OK(msync(m, N, MS_SYNC));
	CHECK(later(stat_of("f").st_mtim, before.st_mtim));
	CHECK(stat_of("f").st_size == N - 100);
	unsigned char *p = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED);
	memcpy(p, "PRIVATE", 7);
	CHECK(pread(fd, got, 7, 0) == 7 && memcmp(got, buf, 7) == 0);
	OK(munmap(p, N));
	memcpy(m + 30000, "UNMAPPED", 8);
	OK(munmap(m, N));
	OK(close(fd));
	fd = OK(open("f", O_RDWR));
	OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
	CHECK(pread(fd, got, 8, 30000) == 8 && memcmp(got, "UNMAPPED", 8) == 0);
	/* A shared mapping holds on to the file without a descriptor and without a name. */
	m = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(m != MAP_FAILED);
	OK(close(fd));
	OK(unlink("f"));
	memcpy(m + 8192, "gone", 4);
	OK(msync(m, N, MS_SYNC));
	CHECK(memcmp(m + 8192, "gone", 4) == 0);
}

static void map_beyond_end(void)
{
	int fd = OK(open("f", O_RDWR | O_CREAT, 0666));
	OK(ftruncate(fd, 100));
	IN_CHILD(geteuid(), {
		volatile char *m = mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		CHECK(m != MAP_FAILED && m[50] == 0 && m[BLOCK - 1] == 0);
		pid_t pid = OK(fork());
		if (pid == 0) {
			(void)signal(SIGBUS, SIG_DFL);
			m[BLOCK] = 1;
			_exit(0);
		}
		int status;
		OK(waitpid(pid, &status, 0));
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
		OK(ftruncate(fd, 2 * BLOCK)); /* the end moves: now it is there */
		m[BLOCK] = 7;
		char c;
		CHECK(pread(fd, &c, 1, BLOCK) == 1 && c == 7);
	});
}

static void direct(void)
{
	enum { N = 1 << 20 };
	void *mem;
	CHECK(posix_memalign(&mem, BLOCK, N) == 0);
	unsigned char *buf = mem;
	int fd = OK(open("f", O_RDWR | O_CREAT | O_DIRECT, 0666));
	fill(buf, N, 0);
	CHECK(pwrite(fd, buf, N, 0) == N);
	memset(buf, 0, N);
	CHECK(pread(fd, buf, N, 0) == N);
	for (size_t i = 0; i < N; i++)
		CHECK(buf[i] == at(i));
	int cached = OK(open("f", O_RDWR));
	unsigned char byte;
	CHECK(pread(cached, &byte, 1, 12345) == 1 && byte == at(12345));
	memset(buf, 'D', BLOCK);
	CHECK(pwrite(fd, buf, BLOCK, 3 * BLOCK) == BLOCK); /* under the cache's feet */
	CHECK(pread(cached, &byte, 1, 3 * BLOCK + 5) == 1 && byte == 'D');
	CHECK(pwrite(cached, "C", 1, 5 * BLOCK) == 1);
	CHECK(pread(fd, buf, BLOCK, 5 * BLOCK) == BLOCK && buf[0] == 'C');
	CHECK(pread(fd, buf, N, N) == 0);
}

static void transfers(void)
{
	enum { N = 8 << 20 };
	unsigned char *buf = malloc(N), *got = malloc(N);
	CHECK(buf && got);
	fill(buf, N, 3);
	int a = OK(open("a", O_RDWR | O_CREAT, 0666)), b = OK(open("b", O_RDWR | O_CREAT, 0666));
	struct iovec v[3] = { { buf, 100 },
			      { buf + 100, 5 << 20 },
			      { buf + 100 + (5 << 20), N - 100 - (5 << 20) } };
	CHECK(writev(a, v, 3) == N);
	CHECK(pread(a, got, N, 0) == N && memcmp(buf, got, N) == 0);
	off_t off = 0;
	while (off < N)
		CHECK(OK(sendfile(b, a, &off, (size_t)(N - off))) > 0);
	CHECK(pread(b, got, N, 0) == N && memcmp(buf, got, N) == 0);
	int pipes[2];
	OK(pipe(pipes));
	off_t in = 1 << 20, out = 0;
	OK(ftruncate(b, 0));
	for (int i = 0; i < 8; i++) {
		ssize_t n = OK(splice(a, &in, pipes[1], NULL, 65536, 0));
		while (n > 0)
			n -= OK(splice(pipes[0], NULL, b, &out, (size_t)n, 0));
	}
	CHECK(out > 0 && pread(b, got, N, 0) == out &&
	      memcmp(got, buf + (1 << 20), (size_t)out) == 0);
}

static void times(void)
{
	put_file("f", "x", 0644);
	struct stat a = stat_of("f"), b;
	tick();
	int fd = OK(open("f", O_RDWR));
	CHECK(write(fd, "y", 1) == 1);
	b = stat_of("f");
	CHECK(later(b.st_mtim, a.st_mtim) && later(b.st_ctim, a.st_ctim));
	tick();
	OK(fchmod(fd, 0600));
	a = stat_of("f");
	CHECK(same_time(a.st_mtim, b.st_mtim) && later(a.st_ctim, b.st_ctim));
	static const struct timespec exact[][2] = {
		{ { 1000000000, 123456789 }, { 1500000000, 1 } },
		{ { 0, 0 }, { 0, 999999999 } },
		{ { 4102444800, 5 }, { 2147483648, 6 } }, /* 2100 and the 32-bit edge */
		{ { -86400, 7 }, { -1, 0 } },
	};
	for (size_t i = 0; i < sizeof(exact) / sizeof(*exact); i++) {
		OK(utimensat(AT_FDCWD, "f", exact[i], 0));
		b = stat_of("f");
		CHECK(same_time(b.st_atim, exact[i][0]) && same_time(b.st_mtim, exact[i][1]));
	}
	struct timespec omit[2] = { { 0, UTIME_OMIT }, { 77, 77 } };
	OK(futimens(fd, omit));
	b = stat_of("f");
	CHECK(same_time(b.st_atim, exact[3][0]) && b.st_mtim.tv_sec == 77);
	omit[0] = (struct timespec){ 99, 9 }, omit[1] = (struct timespec){ 0, UTIME_OMIT };
	OK(futimens(fd, omit));
	b = stat_of("f");
	CHECK(b.st_atim.tv_sec == 99 && b.st_mtim.tv_sec == 77);
	a = b;
	tick();
	omit[0].tv_nsec = omit[1].tv_nsec = UTIME_OMIT;
	OK(futimens(fd, omit));
	CHECK(same_time(stat_of("f").st_ctim, a.st_ctim));
	struct timespec now;
	OK(clock_gettime(CLOCK_REALTIME, &now));
	OK(futimens(fd, NULL));
	b = stat_of("f");
	CHECK(llabs(b.st_atim.tv_sec - now.tv_sec) <= 2 &&
	      llabs(b.st_mtim.tv_sec - now.tv_sec) <= 2);
	omit[0] = (struct timespec){ 5, 5 }, omit[1] = (struct timespec){ 0, UTIME_NOW };
	OK(futimens(fd, omit));
	b = stat_of("f");
	CHECK(b.st_atim.tv_sec == 5 && llabs(b.st_mtim.tv_sec - now.tv_sec) <= 2);
	OK(symlink("f", "l"));
	OK(utimensat(AT_FDCWD, "l", exact[0], AT_SYMLINK_NOFOLLOW));
	CHECK(same_time(stat_of("l").st_mtim, exact[0][1]) &&
	      stat_of("f").st_mtim.tv_sec != 1500000000);
	OK(mkdir("d", 0777));
	OK(utimensat(AT_FDCWD, "d", exact[0], 0));
	CHECK(same_time(stat_of("d").st_mtim, exact[0][1]));
	OK(mkdir("d/e", 0777));
	CHECK(later(stat_of("d").st_mtim, exact[0][1]));
}

static void access_time(void) /* relatime */
{
	put_file("f", "x", 0644);
	struct timespec old[2] = { { 1000, 0 }, { 2000, 0 } };
	OK(utimensat(AT_FDCWD, "f", old, 0)); /* atime before mtime: a read moves it */
	tick();                               /* and behind ctime, which counts too */
	CHECK(file_is("f", "x"));
	struct stat st = stat_of("f");
	CHECK(st.st_atim.tv_sec > 1000 && st.st_mtim.tv_sec == 2000);
	struct stat again = stat_of("f");
	tick();
	CHECK(file_is("f", "x")); /* after mtime and not a day old: it stays */
	again = stat_of("f");
	CHECK(same_time(again.st_atim, st.st_atim) && same_time(again.st_ctim, st.st_ctim));
}

static void birth_time(void)
{
	put_file("f", "x", 0644);
	struct statx a, b;
	OK(statx(AT_FDCWD, "f", 0, STATX_BTIME | STATX_BASIC_STATS, &a));
	CHECK(a.stx_mask & STATX_BTIME);
	CHECK(llabs(a.stx_btime.tv_sec - time(NULL)) < 60);
	tick();
	put_file("f", "changed", 0600);
	OK(link("f", "g"));
	OK(rename("g", "h"));
	struct timespec old[2] = { { 1000, 0 }, { 2000, 0 } };
	OK(utimensat(AT_FDCWD, "f", old, 0));
	OK(statx(AT_FDCWD, "h", AT_STATX_FORCE_SYNC, STATX_BTIME | STATX_BASIC_STATS, &b));
	CHECK(b.stx_mask & STATX_BTIME && b.stx_btime.tv_sec == a.stx_btime.tv_sec &&
	      b.stx_btime.tv_nsec == a.stx_btime.tv_nsec);
	CHECK(b.stx_mtime.tv_sec == 2000 && b.stx_size == 7 && b.stx_nlink == 2);
}

static void syncs(void)
{
	int fd = OK(open("f", O_RDWR | O_CREAT | O_SYNC, 0666));
	CHECK(write(fd, "sync", 4) == 4);
	OK(fsync(fd));
	OK(fdatasync(fd));
	OK(syncfs(fd));
	OK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
	int dir = OK(open(".", O_RDONLY | O_DIRECTORY));
	OK(fsync(dir));
	OK(unlink("f"));
	OK(fsync(fd));
}

static void file_systems(void)
{
	struct statvfs v;
	OK(statvfs(".", &v));
	CHECK(v.f_bsize >= 512 && v.f_frsize >= 512 && v.f_namemax == 255);
	CHECK(v.f_blocks > 0 && v.f_bfree <= v.f_blocks && v.f_bavail <= v.f_blocks);
}

static void lock_flock(void)
{
	put_file("f", "x", 0644);
	int a = OK(open("f", O_RDWR)), b = OK(open("f", O_RDWR));
	OK(flock(a, LOCK_EX));
	FAILS(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	FAILS(flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	OK(flock(a, LOCK_SH));
	OK(flock(b, LOCK_SH | LOCK_NB));
	OK(flock(a, LOCK_UN));
	OK(flock(b, LOCK_EX | LOCK_NB));
	IN_CHILD(geteuid(), {
		int c = OK(open("f", O_RDWR));
		FAILS(flock(c, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	});
	OK(close(b)); /* which lets go */
	OK(flock(a, LOCK_EX | LOCK_NB));
}

static int lock(int fd, int cmd, short type, off_t start, off_t len)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };
	return fcntl(fd, cmd, &l);
}

static void lock_ranges(void)
{
	put_file("f", "0123456789", 0644);
	int fd = OK(open("f", O_RDWR));
	OK(lock(fd, F_SETLK, F_WRLCK, 0, 5));
	IN_CHILD(geteuid(), {
		int c = OK(open("f", O_RDWR));
		FAILS(lock(c, F_SETLK, F_RDLCK, 4, 1), EAGAIN);
		OK(lock(c, F_SETLK, F_WRLCK, 5, 5));
		struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		OK(fcntl(c, F_GETLK, &l));
		CHECK(l.l_type == F_WRLCK && l.l_start == 0 && l.l_len == 5 &&
		      l.l_pid == getppid());
	});
	/* A process waits for a lock and gets it when it is free. */
	fflush(NULL);
	pid_t pid = OK(fork());
	if (pid == 0) {
		int c = OK(open("f", O_RDWR));
		OK(lock(c, F_SETLKW, F_WRLCK, 0, 1));
		CHECK(pwrite(c, "L", 1, 0) == 1);
		_exit(0);
	}
	OK(usleep(50000));
	OK(lock(fd, F_SETLK, F_UNLCK, 0, 0));
	join(pid);
	CHECK(file_is("f", "L123456789"));
	/* Locks of open file descriptions. */
	int a = OK(open("f", O_RDWR)), b = OK(open("f", O_RDWR));
	OK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 0));
	FAILS(lock(b, F_OFD_SETLK, F_WRLCK, 3, 1), EAGAIN);
	OK(close(a));
	OK(lock(b, F_OFD_SETLK, F_WRLCK, 3, 1));
}

static int run(const char *path)
{
	fflush(NULL);
	pid_t pid = OK(fork());
	if (pid == 0) {
		execl(path, path, (char *)NULL);
		_exit(errno == ETXTBSY ? 126 : 127);
	}
	int status;
	OK(waitpid(pid, &status, 0));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void executing(void)
{
	put_file("script", "#!/bin/sh\nexit 42\n", 0755);
	CHECK(run("./script") == 42);
	OK(chmod("script", 0644));
	CHECK(run("./script") == 127);
	/* A real program, copied here, that sleeps. */
	int from = OK(open("/bin/sleep", O_RDONLY)), to = OK(open("prog", O_RDWR | O_CREAT, 0755));
	for (ssize_t n; (n = OK(sendfile(to, from, NULL, 1 << 20))) > 0;)
		;
	CHECK(run("./prog") == 126); /* open for writing */
	OK(close(to));
	fflush(NULL);
	int sync[2];
	OK(pipe2(sync, O_CLOEXEC));
	pid_t pid = OK(fork());
	if (pid == 0) {
		execl("./prog", "prog", "100", (char *)NULL);
		_exit(127);
	}
	char c;
	OK(close(sync[1]));
	CHECK(read(sync[0], &c, 1) == 0); /* closed by exec */
	FAILS(open("prog", O_WRONLY), ETXTBSY);
	FAILS(truncate("prog", 0), ETXTBSY);
	OK(unlink("prog"));
	OK(kill(pid, SIGKILL));
	OK(waitpid(pid, NULL, 0));
}

static void many_files(void)
{
	enum { N = 1000 };
	char name[32], text[64];
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < N; i++) {
			(void)snprintf(name, sizeof(name), "f%d", i);
			(void)snprintf(text, sizeof(text), "content %d of round %d", i, round);
			put_file(name, text, 0644);
		}
	for (int i = 0; i < N; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		(void)snprintf(text, sizeof(text), "content %d of round 1", i);
		CHECK(file_is(name, text));
	}
}

static const struct posix_case cases[] = {
	{ "reads_and_writes", reads_and_writes, 0 },
	{ "boundaries", boundaries, 0 },
	{ "truncation", truncation, 0 },
	{ "appending", appending, 0 },
	{ "sparse", sparse, CASE_MAY },
	{ "seeking", seeking, CASE_MAY },
	{ "allocating", allocating, CASE_MAY },
	{ "copying", copying, CASE_MAY },
	{ "mappings", mappings, 0 },
	{ "map_beyond_end", map_beyond_end, 0 },
	{ "direct", direct, CASE_MAY },
	{ "transfers", transfers, 0 },
	{ "times", times, CASE_MAY },
	{ "access_time", access_time, CASE_MAY },
	{ "birth_time", birth_time, CASE_MAY },
	{ "syncs", syncs, 0 },
	{ "file_systems", file_systems, CASE_MAY },
	{ "lock_flock", lock_flock, 0 },
	{ "lock_ranges", lock_ranges, 0 },
	{ "executing", executing, CASE_MAY },
	{ "many_files", many_files, 0 },
};

int main(int argc, char **argv)
{
	return run_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
