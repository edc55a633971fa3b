#include "runtime/kept.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/buf.h"

enum {
	VERSION = 1,
	PATIENCE = 1000, /* looks at a head that is just being written */
};

static const char magic[8] = { 'B', 'O', 'U', 'G', 'H', 'L', 'O', 'G' };

static uint64_t checksum(const uint8_t *p, size_t n)
{
	uint64_t h = 0xcbf29ce484222325;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3;
	return h;
}

void kept_encode(uint8_t out[KEPT_HEAD], const struct kept *k)
{
	memcpy(out, magic, sizeof(magic));
	le_put32(out + 8, VERSION);
	le_put32(out + 12, k->flags);
	le_put64(out + 16, k->cap);
	for (int i = 0; i < 2; i++) {
		le_put64(out + 24 + 16 * i, k->stream[i].first);
		le_put64(out + 32 + 16 * i, k->stream[i].end);
	}
	le_put64(out + 56, k->in);
	le_put64(out + 64, checksum(out, 64));
}

int kept_decode(struct kept *out, const uint8_t in[KEPT_HEAD])
{
	struct kept k = { .flags = le_get32(in + 12), .cap = le_get64(in + 16) };
	if (memcmp(in, magic, sizeof(magic)) != 0 || le_get32(in + 8) != VERSION ||
	    le_get64(in + 64) != checksum(in, 64) || k.flags > KEPT_FLAGS || k.cap < KEPT_CAP_MIN ||
	    k.cap > KEPT_CAP_MAX)
		return -EBADMSG;
	for (int i = 0; i < 2; i++) {
		k.stream[i].first = le_get64(in + 24 + 16 * i);
		k.stream[i].end = le_get64(in + 32 + 16 * i);
		if (k.stream[i].end < k.stream[i].first ||
		    k.stream[i].end - k.stream[i].first > k.cap)
			return -EBADMSG;
	}
	k.in = le_get64(in + 56);
	*out = k;
	return 0;
}

/* ---- files ---- */

static ssize_t read_at(int fd, void *buf, size_t n, uint64_t at)
{
	size_t done = 0;
	while (done < n) {
		ssize_t k = pread(fd, (char *)buf + done, n - done, (off_t)(at + done));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			break;
		done += (size_t)k;
	}
	return (ssize_t)done;
}

static int write_at(int fd, const void *buf, size_t n, uint64_t at)
{
	for (size_t done = 0; done < n;) {
		ssize_t k = pwrite(fd, (const char *)buf + done, n - done, (off_t)(at + done));
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return k < 0 ? -errno : -EIO;
		done += (size_t)k;
	}
	return 0;
}

int kept_load(int fd, struct kept *out)
{
	uint8_t head[KEPT_HEAD];
	int r = -EBADMSG;
	for (int i = 0; i < PATIENCE && r == -EBADMSG; i++) {
		if (i > 0)
			(void)sched_yield();
		ssize_t n = read_at(fd, head, sizeof(head), 0);
		if (n < 0)
			return (int)n;
		r = n == (ssize_t)sizeof(head) ? kept_decode(out, head) : -EBADMSG;
	}
	return r;
}

int kept_store(int fd, const struct kept *k)
{
	uint8_t head[KEPT_HEAD];
	kept_encode(head, k);
	return write_at(fd, head, sizeof(head), 0);
}

static uint64_t ring(const struct kept *k, unsigned stream)
{
	return KEPT_DATA + stream * k->cap;
}

int kept_read(int fd, unsigned stream, uint64_t offset, void *buf, size_t size)
{
	struct kept k;
	int r = kept_load(fd, &k);
	if (r < 0)
		return r;
	if (offset < k.stream[stream].first || offset > k.stream[stream].end)
		return -ERANGE;
	uint64_t there = k.stream[stream].end - offset, at = offset % k.cap;
	size_t n = size < there ? size : (size_t)there;
	n = n > INT32_MAX ? INT32_MAX : n;
	size_t head = n < k.cap - at ? n : (size_t)(k.cap - at);
	ssize_t got = read_at(fd, buf, head, ring(&k, stream) + at);
	if (got == (ssize_t)head && n > head) {
		ssize_t more = read_at(fd, (char *)buf + head, n - head, ring(&k, stream));
		got = more < 0 ? more : got + more;
	}
	if (got < 0)
		return (int)got;
	if (got != (ssize_t)n)
		return -EBADMSG; /* somebody cut the file */
	/* It may have been overwritten while it was read. */
	r = kept_load(fd, &k);
	if (r < 0)
		return r;
	return offset < k.stream[stream].first ? -ERANGE : (int)n;
}

int kept_append(int fd, struct kept *k, unsigned stream, const void *data, size_t n)
{
	uint64_t end = k->stream[stream].end, at = end % k->cap;
	size_t head = n < k->cap - at ? n : (size_t)(k->cap - at);
	uint64_t first = end + n > k->cap ? end + n - k->cap : 0;
	int r;
	if (first > k->stream[stream].first) {
		k->stream[stream].first = first;
		r = kept_store(fd, k);
		if (r < 0)
			return r;
	}
	r = write_at(fd, data, head, ring(k, stream) + at);
	if (r == 0 && n > head)
		r = write_at(fd, (const char *)data + head, n - head, ring(k, stream));
	k->stream[stream].end = end + n;
	if (r < 0)
		k->stream[stream].first = end + n;
	return kept_store(fd, k);
}

static int punch(int fd, uint64_t at, uint64_t n)
{
	return n && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			      (off_t)n) < 0
		       ? -errno
		       : 0;
}

int kept_cut(int fd, struct kept *k, unsigned stream, uint64_t first)
{
	struct kept cut = *k;
	uint64_t n = first - k->stream[stream].first, at = k->stream[stream].first % k->cap;
	uint64_t head = n < k->cap - at ? n : k->cap - at;
	cut.stream[stream].first = first;
	int r = kept_store(fd, &cut);
	if (r < 0)
		return r;
	*k = cut;
	r = punch(fd, ring(k, stream) + at, head);
	return r < 0 ? r : punch(fd, ring(k, stream), n - head);
}
