/* Loose git objects: files of one zlib stream, whose length only its own head tells. */
#include <errno.h>
#include <string.h>
#include "fs/store/gitpack.h"

struct loose {
	const struct io *io;
	int fd;
	struct gitreader *rd; /* its window holds the input */
	uint64_t at;          /* what of the file was read */
	bool ended;           /* the stream */
};

/* Inflates until `n` bytes are there or the stream ends: the count, or -errno. */
static ssize_t inflate_some(struct loose *l, uint8_t *out, size_t n)
{
	z_stream *z = &l->rd->z;
	size_t done = 0;
	while (done < n && !l->ended) {
		if (z->avail_in == 0) {
			ssize_t got = io_read_full(l->io, l->fd, l->rd->win, GIT_WINDOW, l->at);
			if (got <= 0)
				return got < 0 ? got : -EBADMSG;
			l->at += (size_t)got;
			z->next_in = l->rd->win;
			z->avail_in = (uInt)got;
		}
		size_t part = n - done < 1 << 30 ? n - done : 1 << 30;
		z->next_out = out + done;
		z->avail_out = (uInt)part;
		int r = inflate(z, Z_SYNC_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END)
			return r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
		l->ended = r == Z_STREAM_END;
		done += part - z->avail_out;
	}
	return (ssize_t)done;
}

/* Nothing may follow: neither in the stream nor in the file. */
static int check_end(struct loose *l, uint64_t bytes)
{
	uint8_t more;
	ssize_t n = l->ended ? 0 : inflate_some(l, &more, 1);
	if (n < 0)
		return (int)n;
	return n == 0 && l->ended && l->at - l->rd->z.avail_in == bytes ? 0 : -EBADMSG;
}

static int load_rest(struct loose *l, const struct git_head *h, const uint8_t *first, size_t have,
		     uint64_t bytes, const struct git_sink *sink, uint8_t **data)
{
	if (h->size > sink->max || h->size > SIZE_MAX)
		return -EFBIG;
	if (have > h->size)
		return -EBADMSG;
	uint8_t *to = sink->room(sink->ctx, (size_t)h->size);
	if (!to)
		return -ENOMEM;
	memcpy(to, first, have);
	size_t left = (size_t)h->size - have;
	ssize_t n = inflate_some(l, to + have, left);
	if (n < 0)
		return (int)n;
	int r = (size_t)n < left ? -EBADMSG : check_end(l, bytes);
	if (r == 0)
		*data = to;
	return r;
}

int gitloose_load(const struct io *io, int fd, struct gitreader *rd, const struct git_sink *sink,
		  struct git_head *out, uint8_t **data)
{
	struct stat st;
	uint8_t head[GIT_LOOSE_HEAD_MAX];
	struct git_head h;
	struct loose l = { .io = io, .fd = fd, .rd = rd };
	int r = io->fstat(io->ctx, fd, &st);
	if (r < 0)
		return r;
	if (!S_ISREG(st.st_mode) || st.st_size <= 0)
		return -EBADMSG;
	rd->win_pack = 0;
	if (inflateReset(&rd->z) != Z_OK)
		return -ENOMEM;
	rd->z.avail_in = 0;
	ssize_t n = inflate_some(&l, head, sizeof(head));
	if (n < 0)
		return (int)n;
	int used = git_loose_head(head, (size_t)n, &h.type, &h.size);
	if (used < 0)
		return used;
	if (h.size > git_inflated_max((uint64_t)st.st_size))
		return -EBADMSG;
	if (sink)
		r = load_rest(&l, &h, head + used, (size_t)(n - used), (uint64_t)st.st_size, sink,
			      data);
	if (r == 0)
		*out = h;
	return r;
}
