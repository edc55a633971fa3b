#include "snapd/files_code.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

enum {
	GZIP_LEVEL = 4,
	ZSTD_LEVEL = 3,
	GZIP_BITS = 15 + 16, /* the largest window, in gzip's own wrapping */
	ZSTD_WINDOW_LOG = 23 /* of what is decoded: 8 MiB, all that RFC 9659 allows */
};

struct coder {
	enum coding coding;
	bool decode, begun, whole, ended;
	z_stream z;
	ZSTD_CCtx *c;
	ZSTD_DCtx *d;
};

int coder_new(struct coder **out, enum coding c, bool decode, struct err *err)
{
	struct coder *k = calloc(1, sizeof(*k));
	bool ok = k != NULL;
	if (ok) {
		k->coding = c;
		k->decode = decode;
	}
	if (ok && c == CODING_GZIP)
		ok = (decode ? inflateInit2(&k->z, GZIP_BITS)
			     : deflateInit2(&k->z, GZIP_LEVEL, Z_DEFLATED, GZIP_BITS, 8,
					    Z_DEFAULT_STRATEGY)) == Z_OK;
	else if (ok && decode)
		ok = (k->d = ZSTD_createDCtx()) &&
		     !ZSTD_isError(
			     ZSTD_DCtx_setParameter(k->d, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG));
	else if (ok)
		ok = (k->c = ZSTD_createCCtx()) &&
		     !ZSTD_isError(
			     ZSTD_CCtx_setParameter(k->c, ZSTD_c_compressionLevel, ZSTD_LEVEL));
	if (!ok) {
		coder_free(k);
		return err_no_memory(err);
	}
	*out = k;
	return 0;
}

void coder_free(struct coder *k)
{
	if (!k)
		return;
	if (k->coding == CODING_GZIP)
		(void)(k->decode ? inflateEnd(&k->z)
				 : deflateEnd(&k->z)); /* also of one that never began */
	(void)ZSTD_freeCCtx(k->c);
	(void)ZSTD_freeDCtx(k->d);
	free(k);
}

static ssize_t bad(const struct coder *k, struct err *err)
{
	return err_set(err, -EINVAL, "the body isn't %s", coding_name(k->coding));
}

static ssize_t gzip_step(struct coder *k, const uint8_t **in, size_t *n, bool last, void *buf,
			 size_t cap, struct err *err)
{
	uInt take = *n < INT_MAX ? (uInt)*n : INT_MAX, room = cap < INT_MAX ? (uInt)cap : INT_MAX;
	/* Several gzips one behind the other are one. */
	if (k->decode && k->whole && inflateReset(&k->z) != Z_OK)
		return bad(k, err);
	k->z.next_in = (Bytef *)(uintptr_t)*in; /* zlib only reads it */
	k->z.avail_in = take;
	k->z.next_out = buf;
	k->z.avail_out = room;
	int r = k->decode ? inflate(&k->z, Z_NO_FLUSH)
			  : deflate(&k->z, last && take == *n ? Z_FINISH : Z_NO_FLUSH);
	*in += take - k->z.avail_in;
	*n -= take - k->z.avail_in;
	if (r == Z_MEM_ERROR)
		return err_no_memory(err);
	if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
		return bad(k, err);
	k->whole = r == Z_STREAM_END;
	k->ended = r == Z_STREAM_END && !k->decode;
	return (ssize_t)(room - k->z.avail_out);
}

static ssize_t zstd_step(struct coder *k, const uint8_t **in, size_t *n, bool last, void *buf,
			 size_t cap, struct err *err)
{
	ZSTD_inBuffer from = { *in, *n, 0 };
	ZSTD_outBuffer to = { buf, cap, 0 };
	size_t r = k->decode ? ZSTD_decompressStream(k->d, &to, &from)
			     : ZSTD_compressStream2(k->c, &to, &from,
						    last ? ZSTD_e_end : ZSTD_e_continue);
	*in += from.pos;
	*n -= from.pos;
	if (ZSTD_isError(r))
		return bad(k, err);
	k->whole = r == 0;
	k->ended = r == 0 && !k->decode && last;
	return (ssize_t)to.pos;
}

ssize_t coder_step(struct coder *k, const uint8_t **in, size_t *n, bool last, void *buf, size_t cap,
		   struct err *err)
{
	ssize_t made = 0;
	k->begun |= *n > 0;
	if (k->decode && !k->begun)
		return 0;
	while (made == 0 && !k->ended && !(k->decode && k->whole && *n == 0)) {
		size_t before = *n;
		made = k->coding == CODING_GZIP ? gzip_step(k, in, n, last, buf, cap, err)
						: zstd_step(k, in, n, last, buf, cap, err);
		if (made == 0 && *n == before && !(last && !k->decode && !k->ended))
			break; /* nothing moves without more input */
	}
	return made;
}

bool coder_whole(const struct coder *k)
{
	return k->whole;
}
