#include "fs/store/codec.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum {
	/* Below this many bytes zstd's own frame eats the gain. */
	TINY = 32,
	/* From here on a few samples are tried before the whole is: at most a fifteenth of the
	 * work where it compresses, and nearly all of it saved where it doesn't. */
	SAMPLE_FROM = 64 * 1024,
	SAMPLE = 4096,
	SAMPLES = 3,
};

struct codec {
	ZSTD_CCtx *c; /* made at the first use */
	ZSTD_DCtx *d;
};

struct codec *codec_new(void)
{
	return calloc(1, sizeof(struct codec));
}

void codec_free(struct codec *c)
{
	if (!c)
		return;
	(void)ZSTD_freeCCtx(c->c); /* always 0 */
	(void)ZSTD_freeDCtx(c->d);
	free(c);
}

/* The least that must be saved for the time that reading costs. */
static size_t worth(size_t len)
{
	return len - len / 16;
}

/* Do samples from the front, the middle and the back say that nothing can be gained? All
 * must: a picture with text behind it is still worth a try. */
static bool looks_random(struct codec *c, const uint8_t *raw, size_t len)
{
	uint8_t out[SAMPLE];
	for (size_t i = 0; i < SAMPLES; i++) {
		const uint8_t *p = raw + (len - SAMPLE) / (SAMPLES - 1) * i;
		if (!ZSTD_isError(ZSTD_compressCCtx(c->c, out, worth(SAMPLE), p, SAMPLE, 1)))
			return false;
	}
	return true;
}

/* zstd's level. What another one would gain and cost: fs/DESIGN.md, "The store". */
static int level_for(size_t len)
{
	return len > 64 * 1024 && len <= 128 * 1024 ? 5 : 4;
}

static size_t compress(struct codec *c, const uint8_t *raw, size_t len, uint8_t *out)
{
	if (len < TINY)
		return 0;
	if (!c->c)
		c->c = ZSTD_createCCtx();
	if (!c->c || (len >= SAMPLE_FROM && looks_random(c, raw, len)))
		return 0;
	size_t n = ZSTD_compressCCtx(c->c, out, worth(len), raw, len, level_for(len));
	return ZSTD_isError(n) ? 0 : n;
}

void codec_store(struct codec *c, const void *raw, size_t len, uint8_t *out, uint32_t *stored,
		 uint8_t *codec)
{
	size_t n = compress(c, raw, len, out);
	*codec = n ? PACK_ZSTD : PACK_RAW;
	*stored = (uint32_t)(n ? n : len);
	if (!n && len)
		memcpy(out, raw, len);
}

int codec_load(struct codec *c, uint8_t codec, const uint8_t *stored, size_t stored_len, void *raw,
	       size_t raw_len)
{
	if (codec == PACK_RAW) {
		if (stored_len != raw_len)
			return -EBADMSG;
		if (raw_len)
			memcpy(raw, stored, raw_len);
		return 0;
	}
	if (codec != PACK_ZSTD)
		return -EBADMSG;
	if (!c->d)
		c->d = ZSTD_createDCtx();
	if (!c->d)
		return -ENOMEM;
	size_t n = ZSTD_decompressDCtx(c->d, raw, raw_len, stored, stored_len);
	return ZSTD_isError(n) || n != raw_len ? -EBADMSG : 0;
}
