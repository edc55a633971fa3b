/* Git's packs: opening, and finding an object. */
#include "fs/store/gitpack.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

static int open_one(const struct io *io, int dirfd, const char *name, const char *ext,
		    uint64_t *bytes)
{
	char file[NAME_MAX + 1];
	int n = snprintf(file, sizeof(file), "%s%s", name, ext);
	if (n < 0 || (size_t)n >= sizeof(file))
		return -ENAMETOOLONG;
	int fd = io->open(io->ctx, dirfd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd < 0)
		return fd;
	struct stat st;
	int r = io->fstat(io->ctx, fd, &st);
	if (r == 0 && (!S_ISREG(st.st_mode) || st.st_size < 0))
		r = -EBADMSG;
	if (r < 0) {
		(void)io->close(io->ctx, fd); /* only looked at */
		return r;
	}
	*bytes = (uint64_t)st.st_size;
	return fd;
}

/* Exactly n bytes; a file that ends before is damaged. */
static int read_exact(const struct io *io, int fd, void *buf, size_t n, uint64_t off)
{
	ssize_t r = io_read_full(io, fd, buf, n, off);
	return r < 0 ? (int)r : (size_t)r < n ? -EBADMSG : 0;
}

/* The index says which pack it is of, by that one's last bytes. */
static int check_pair(const struct gitpack *p, uint64_t idx_bytes)
{
	uint8_t head[GIT_PACK_HEAD], idx_end[GIT_IDX_TRAILER], pack_end[GIT_TRAILER];
	uint32_t count;
	if (p->bytes < sizeof(head) + sizeof(pack_end))
		return -EBADMSG;
	int r = read_exact(p->io, p->fd, head, sizeof(head), 0);
	if (r == 0)
		r = git_pack_head_decode(&count, head);
	if (r == 0 && count != p->idx.count)
		r = -EBADMSG;
	if (r == 0)
		r = read_exact(p->io, p->idx_fd, idx_end, sizeof(idx_end),
			       idx_bytes - sizeof(idx_end));
	if (r == 0)
		r = read_exact(p->io, p->fd, pack_end, sizeof(pack_end),
			       p->bytes - sizeof(pack_end));
	if (r == 0 && memcmp(idx_end, pack_end, sizeof(pack_end)) != 0)
		r = -EBADMSG;
	return r;
}

int gitpack_open(struct gitpack *p, int dirfd, const char *name)
{
	uint64_t idx_bytes = 0;
	uint8_t head[GIT_IDX_OIDS];
	p->fd = -1;
	p->idx_fd = open_one(p->io, dirfd, name, ".idx", &idx_bytes);
	if (p->idx_fd < 0)
		return p->idx_fd;
	int r = read_exact(p->io, p->idx_fd, head, sizeof(head), 0);
	if (r == 0)
		r = git_idx_decode(&p->idx, head, idx_bytes);
	if (r == 0) {
		p->fd = open_one(p->io, dirfd, name, ".pack", &p->bytes);
		r = p->fd < 0 ? p->fd : check_pair(p, idx_bytes);
	}
	if (r < 0)
		gitpack_close(p);
	return r;
}

void gitpack_close(struct gitpack *p)
{
	int *fds[] = { &p->idx_fd, &p->fd };
	for (size_t i = 0; i < 2; i++) {
		if (*fds[i] >= 0)
			(void)p->io->close(p->io->ctx, *fds[i]); /* only read */
		*fds[i] = -1;
	}
}

/* ---- finding ---- */

enum { SEARCH_OIDS = 512 }; /* the most names that one read looks at */

/* How many names to read around where one of n evenly spread ones is expected: three times the
 * root of n is six times the deviation. */
static uint32_t spread(uint32_t n)
{
	uint32_t w = 32;
	while (w < SEARCH_OIDS && (uint64_t)w * w < (uint64_t)9 * n)
		w *= 2;
	return w;
}

/* The offset of object i, from the table that holds it. */
static int offset_of(const struct gitpack *p, uint32_t i, uint64_t *off)
{
	uint8_t b[8];
	int r = read_exact(p->io, p->idx_fd, b, 4, git_idx_offset_at(&p->idx, i));
	if (r < 0)
		return r;
	uint64_t v = be_get32(b);
	if (v >> 31) {
		uint32_t large = (uint32_t)v & INT32_MAX;
		if (large >= p->idx.large)
			return -EBADMSG;
		r = read_exact(p->io, p->idx_fd, b, 8, git_idx_large_at(&p->idx, large));
		if (r < 0)
			return r;
		v = be_get64(b);
	}
	if (v < GIT_PACK_HEAD || v >= p->bytes - GIT_TRAILER)
		return -EBADMSG;
	*off = v;
	return 1;
}

int gitpack_find(const struct gitpack *p, const struct oid *oid, uint64_t *off)
{
	uint8_t oids[SEARCH_OIDS * OID_BYTES];
	uint32_t lo = oid->b[0] ? p->idx.fanout[oid->b[0] - 1] : 0, hi = p->idx.fanout[oid->b[0]];
	/* Names are evenly spread, so the second to fifth byte say where to look first; what is
	 * missed then is halved, so that no table makes this slow. */
	uint32_t guess = (uint32_t)((uint64_t)(hi - lo) * be_get32(oid->b + 1) >> 32);
	for (bool first = true; lo < hi; first = false) {
		uint32_t n = hi - lo, from = lo, at, some = first ? spread(n) : SEARCH_OIDS;
		if (n > some) {
			uint32_t mid = first ? guess : n / 2;
			uint32_t back = mid < some / 2 ? mid : some / 2;
			from = mid - back > n - some ? hi - some : lo + mid - back;
			n = some;
		}
		int r = read_exact(p->io, p->idx_fd, oids, (size_t)n * OID_BYTES,
				   git_idx_oid_at(from));
		if (r < 0)
			return r;
		switch (git_idx_search(oids, n, oid, &at)) {
		case GIT_FOUND:
			return offset_of(p, from + at, off);
		case GIT_BEFORE:
			hi = from;
			break;
		case GIT_BEHIND:
			lo = from + n;
			break;
		case GIT_ABSENT:
			return 0;
		}
	}
	return 0;
}
