/* Objects read as one zlib stream: loose ones, whose length only their own head tells, and those
 * too large to be inflated at once. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include "fs/store/gitpack.h"

/* ---- streams ---- */

int gitstream_begin(struct gitstream *s, const struct io *io, int fd, struct gitreader *rd,
		    uint64_t at, uint64_t end)
{
	*s = (struct gitstream){ .io = io, .fd = fd, .rd = rd, .at = at, .end = end };
	rd->win_pack = 0;
	if (inflateReset(&rd->z) != Z_OK)
		return -ENOMEM;
	rd->z.avail_in = 0;
	return 0;
}

ssize_t gitstream_inflate(struct gitstream *s, uint8_t *out, size_t n)
{
	z_stream *z = &s->rd->z;
	size_t done = 0;
	while (done < n && !s->ended) {
		if (z->avail_in == 0) {
			uint64_t left = s->end - s->at;
			ssize_t got = io_read_full(s->io, s->fd, s->rd->win,
						   left < GIT_WINDOW ? (size_t)left : GIT_WINDOW,
						   s->at);
			if (got <= 0)
				return got < 0 ? got : -EBADMSG;
			s->at += (size_t)got;
			z->next_in = s->rd->win;
			z->avail_in = (uInt)got;
		}
		size_t part = n - done < 1 << 30 ? n - done : 1 << 30;
		z->next_out = out + done;
		z->avail_out = (uInt)part;
		int r = inflate(z, Z_SYNC_FLUSH);
		if (r != Z_OK && r != Z_STREAM_END)
			return r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
		s->ended = r == Z_STREAM_END;
		done += part - z->avail_out;
	}
	return (ssize_t)done;
}

/* Nothing may follow in the stream. */
static int check_end(struct gitstream *s)
{
	uint8_t more;
	ssize_t n = s->ended ? 0 : gitstream_inflate(s, &more, 1);
	if (n < 0)
		return (int)n;
	return n == 0 && s->ended ? 0 : -EBADMSG;
}

int gitstream_read(struct gitstream *s, void *buf, size_t n)
{
	uint8_t *out = buf;
	size_t have = s->nfirst - s->first_at;
	assert(n <= s->left);
	if (s->failed)
		return s->failed;
	have = have < n ? have : n;
	memcpy(out, s->first + s->first_at, have);
	s->first_at += have;
	ssize_t got = gitstream_inflate(s, out + have, n - have);
	if (got < 0)
		s->failed = (int)got;
	else if ((size_t)got < n - have)
		s->failed = -EBADMSG;
	else if (!EVP_DigestUpdate(s->rd->sha, out, n))
		s->failed = -ENOMEM;
	s->left -= n;
	return s->failed;
}

int gitstream_run(struct gitstream *s, const struct oid *oid, const struct git_head *h,
		  const struct git_use *use, int *r, struct err *err)
{
	char head[GIT_LOOSE_HEAD_MAX];
	struct oid is;
	s->left = h->size;
	if (!EVP_DigestInit_ex(s->rd->sha, NULL, NULL) ||
	    !EVP_DigestUpdate(s->rd->sha, head, git_head_encode(head, h->type, h->size)))
		return -ENOMEM;
	int e = use->fn(use->ctx, s, h->type, h->size, err);
	if (s->failed)
		return s->failed;
	if (e < 0) {
		*r = e;
		return 1;
	}
	assert(s->left == 0);
	e = check_end(s);
	if (e == 0 && !EVP_DigestFinal_ex(s->rd->sha, is.b, NULL))
		e = -ENOMEM;
	return e < 0 || memcmp(is.b, oid->b, OID_BYTES) == 0 ? e : -EBADMSG;
}

/* ---- loose objects ---- */

int gitloose_stream(const struct io *io, int fd, struct gitreader *rd, struct gitstream *s,
		    struct git_head *out)
{
	struct stat st;
	uint8_t head[GIT_LOOSE_HEAD_MAX];
	struct git_head h;
	int r = io->fstat(io->ctx, fd, &st);
	if (r < 0)
		return r;
	if (!S_ISREG(st.st_mode) || st.st_size <= 0)
		return -EBADMSG;
	r = gitstream_begin(s, io, fd, rd, 0, (uint64_t)st.st_size);
	if (r < 0)
		return r;
	ssize_t n = gitstream_inflate(s, head, sizeof(head));
	if (n < 0)
		return (int)n;
	int used = git_loose_head(head, (size_t)n, &h.type, &h.size);
	if (used < 0)
		return used;
	if (h.size > git_inflated_max((uint64_t)st.st_size) || (size_t)(n - used) > h.size)
		return -EBADMSG;
	s->nfirst = (size_t)(n - used);
	memcpy(s->first, head + used, s->nfirst);
	*out = h;
	return 0;
}

static int load_rest(struct gitstream *s, const struct git_head *h, const struct git_sink *sink,
		     uint8_t **data)
{
	if (h->size > sink->max || h->size > SIZE_MAX)
		return -EFBIG;
	uint8_t *to = sink->room(sink->ctx, (size_t)h->size);
	if (!to)
		return -ENOMEM;
	memcpy(to, s->first, s->nfirst);
	size_t left = (size_t)h->size - s->nfirst;
	ssize_t n = gitstream_inflate(s, to + s->nfirst, left);
	if (n < 0)
		return (int)n;
	int r = (size_t)n < left ? -EBADMSG : check_end(s);
	if (r == 0 && s->at - s->rd->z.avail_in != s->end)
		r = -EBADMSG; /* nor may anything follow in the file */
	if (r == 0)
		*data = to;
	return r;
}

int gitloose_load(const struct io *io, int fd, struct gitreader *rd, const struct git_sink *sink,
		  struct git_head *out, uint8_t **data)
{
	struct gitstream s;
	struct git_head h;
	int r = gitloose_stream(io, fd, rd, &s, &h);
	if (r == 0 && sink)
		r = load_rest(&s, &h, sink, data);
	if (r == 0)
		*out = h;
	return r;
}
