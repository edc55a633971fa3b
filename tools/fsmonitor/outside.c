/* gitformat-index(5), versions 2 to 4. The index is replaced as git does it, by its lock; only bits
 * in it differ then, and the checksum. It keeps its time: git looks into files that are as old as
 * their index or newer, and one may have changed since git wrote this. */
#include "tools/fsmonitor/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>

#include "tools/fsmonitor/sys.h"

enum {
	HEAD = 12,
	STAT_INO = 20, /* in an entry */
	STAT_OID = 40 + 20, /* of an entry: what stat gave, and the blob */
	SHA = 20,
	INDEX_MAX = 1 << 30,
	NAME_MAX_BYTES = 4096, /* PATH_MAX: git puts nothing longer into a work tree */
	SCOPE_MAX = 8192,      /* twice what a checkout takes */
	ASSUME_UNCHANGED = 0x80, /* in the flags' first byte */
	EXTENDED = 0x40,
	SKIP_WORKTREE = 0x40, /* in the extended flags' first byte */
};

static const char index_path[] = ".git/index", lock_path[] = ".git/index.lock",
		  scope_path[] = ".git/bough/folders";

struct name {
	long len;
	char text[NAME_MAX_BYTES];
};

/* The folders that the checkout was made with, each with a NUL behind it. */
struct scope {
	long len;
	char folders[SCOPE_MAX + 1];
};

struct index {
	unsigned char *p; /* a copy of ours; the kernel's error where it can't be had */
	long len;
	struct stat st; /* as the kernel gives it, on the machines of sys.h */
};

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put32(unsigned char *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> (24 - 8 * i));
}

/* ---- SHA-1 ---- */

static uint32_t rotate(uint32_t v, int by)
{
	return v << by | v >> (32 - by);
}

static void sha_block(uint32_t h[5], const unsigned char *p)
{
	static const uint32_t k[] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
	uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
	for (int i = 0; i < 80; i++)
		w[i] = i < 16 ? get32(p + (long)4 * i) :
				rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (int i = 0; i < 80; i++) {
		uint32_t f = i < 20                ? (b & c) | (~b & d) :
			     i >= 40 && i < 60 ? (b & c) | (b & d) | (c & d) :
						 b ^ c ^ d;
		uint32_t t = rotate(a, 5) + f + e + k[i / 20] + w[i];
		e = d, d = c, c = rotate(b, 30), b = a, a = t;
	}
	h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

static void sha1(unsigned char out[SHA], const unsigned char *p, long len)
{
	uint32_t h[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
	unsigned char last[128];
	long at = 0, rest = len % 64, end = rest < 56 ? 64 : 128;
	for (; at + 64 <= len; at += 64)
		sha_block(h, p + at);
	for (long i = 0; i < end; i++)
		last[i] = i < rest ? p[at + i] : i == rest ? 0x80 : 0;
	put32(last + end - 8, (uint32_t)(len >> 29));
	put32(last + end - 4, (uint32_t)(len << 3));
	for (long i = 0; i < end; i += 64)
		sha_block(h, last + i);
	for (int i = 0; i < 5; i++)
		put32(out + (long)4 * i, h[i]);
}

/* ---- the scope ---- */

/* Whether a path is in none of the folders, nor right in one of those above them. */
static int is_outside(const struct scope *s, const char *path)
{
	long dir = 0;
	for (long i = 0; path[i]; i++)
		dir = path[i] == '/' ? i : dir;
	if (dir == 0)
		return 0;
	for (long at = 0; at < s->len;) {
		const char *folder = s->folders + at;
		long n = 0, shared = 0;
		while (folder[n])
			n++;
		while (shared < n && shared < dir && folder[shared] == path[shared])
			shared++;
		if ((shared == n && path[n] == '/') || (shared == dir && folder[dir] == '/'))
			return 0;
		at += n + 1;
	}
	return s->len > 0;
}

static int is_there(const char *path)
{
	struct stat st;
	return call4(SYS_newfstatat, AT_FDCWD, (long)path, (long)&st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- entries ---- */

/* Takes the name that is at `at`, of version 4 with what it has in common with the one before.
 * Where it ends; -1: it isn't whole, or too long. */
static long take_name(const struct index *x, int shortened, long at, struct name *name)
{
	const long end = x->len - SHA;
	if (shortened) { /* a varint first: how much of the one before is to be cut off */
		long cut = -1;
		do
			cut = ((cut + 1) << 7) | (x->p[at] & 0x7f);
		while (cut < NAME_MAX_BYTES && at < end && x->p[at++] & 0x80);
		name->len -= cut;
	} else {
		name->len = 0;
	}
	if (name->len < 0)
		return -1;
	for (; at < end && x->p[at]; at++) {
		if (name->len == NAME_MAX_BYTES - 1)
			return -1;
		name->text[name->len++] = (char)x->p[at];
	}
	name->text[name->len] = 0;
	return at < end ? at : -1;
}

/* Whether an entry outside of the scope that the checkout was made with lacks the second mark; or
 * has it, though git has put the file there since, as it does where the scope is widened: it would
 * pass over all changes. Of what somebody else puts there git is told nothing, unless that was
 * asked for. */
static int is_wrong(const struct scope *s, const unsigned char *entry, const char *path)
{
	const unsigned char *flags = entry + STAT_OID;
	int skipped = flags[0] & EXTENDED && flags[2] & SKIP_WORKTREE;
	int assumed = !!(flags[0] & ASSUME_UNCHANGED);
	if (skipped == assumed || !is_outside(s, path))
		return 0;
	return assumed ? get32(entry + STAT_INO) != 0 : !is_there(path);
}

/* Puts the marks right in the copy: how many weren't; -1: it isn't understood. */
static long mark(struct index *x, const struct scope *s)
{
	static struct name name;
	const unsigned char *p = x->p;
	uint32_t version = get32(p + 4), n = get32(p + 8);
	if (get32(p) != 0x44495243 || version < 2 || version > 4) /* DIRC */
		return -1;
	long at = HEAD, wrong = 0;
	name.len = 0;
	for (uint32_t i = 0; i < n; i++) {
		long start = at, flags = start + STAT_OID;
		if (flags + 4 > x->len - SHA)
			return -1;
		at = take_name(x, version == 4, flags + (p[flags] & EXTENDED ? 4 : 2), &name);
		if (at < 0)
			return -1;
		at = version == 4 ? at + 1 : start + ((at - start + 8) & ~7L);
		if (!is_wrong(s, p + start, name.text))
			continue;
		x->p[flags] ^= ASSUME_UNCHANGED;
		wrong++;
	}
	return at <= x->len - SHA ? wrong : -1;
}

/* ---- the files ---- */

/* Without it nothing is known to be outside. */
static void load_scope(struct scope *s)
{
	long fd = call4(SYS_openat, AT_FDCWD, (long)scope_path, O_RDONLY | O_NOFOLLOW, 0);
	s->len = call4(SYS_read, fd, (long)s->folders, SCOPE_MAX, 0);
	s->folders[s->len > 0 ? s->len : 0] = 0;
	(void)call4(SYS_close, fd, 0, 0, 0); /* it was read only */
}

/* 0, or less. */
static long load(struct index *x)
{
	long fd = call4(SYS_openat, AT_FDCWD, (long)index_path,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	long r = call4(SYS_fstat, fd, (long)&x->st, 0, 0);
	x->len = (long)x->st.st_size;
	if (r == 0 && (!S_ISREG(x->st.st_mode) || x->len < HEAD + SHA || x->len > INDEX_MAX))
		r = -EFBIG;
	if (r == 0) {
		r = call6(SYS_mmap, 0, x->len, 3, 2, fd, 0); /* to be written to, private */
		x->p = (unsigned char *)r; /* NOLINT: an address */
		r = r < 0 && r > -4096 ? r : 0;
	}
	(void)call4(SYS_close, fd, 0, 0, 0); /* it was read only */
	return r;
}

static long write_all(long fd, const struct index *x)
{
	for (long at = 0; at < x->len;) {
		long r = call4(SYS_write, fd, (long)(x->p + at), x->len - at, 0);
		if (r <= 0)
			return r < 0 ? r : -EIO;
		at += r;
	}
	const struct timespec times[2] = { x->st.st_atim, x->st.st_mtim };
	return call4(SYS_utimensat, fd, 0, (long)times, 0);
}

/* Whether its checksum is right: what is damaged isn't to get a right one. */
static int is_whole(const struct index *x)
{
	unsigned char sum[SHA];
	const unsigned char *had = x->p + x->len - SHA;
	sha1(sum, x->p, x->len - SHA);
	for (int i = 0; i < SHA; i++)
		if (sum[i] != had[i])
			return 0;
	return 1;
}

/* With the lock, so of the index as it is now. */
static long replace(long fd, const struct scope *s)
{
	struct index x;
	if (load(&x) < 0 || !is_whole(&x) || mark(&x, s) <= 0)
		return -1;
	sha1(x.p + x.len - SHA, x.p, x.len - SHA);
	if (write_all(fd, &x) < 0)
		return -1;
	return call4(SYS_renameat2, AT_FDCWD, (long)lock_path, AT_FDCWD, (long)index_path);
}

void outside_mark(void)
{
	/* A lock that stays behind would stand in every git's way: only a kill -9 leaves one. */
	static const uint64_t all = ~(uint64_t)0;
	static struct scope scope;
	struct index x;
	load_scope(&scope);
	if (load(&x) < 0 || mark(&x, &scope) <= 0)
		return;
	(void)call4(SYS_rt_sigprocmask, 0, (long)&all, 0, sizeof(all)); /* can't fail */
	long fd = call4(SYS_openat, AT_FDCWD, (long)lock_path,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, x.st.st_mode & 0777);
	if (fd >= 0 && replace(fd, &scope) < 0)
		(void)call4(SYS_unlinkat, AT_FDCWD, (long)lock_path, 0, 0); /* no more can be */
}
