/* How content becomes stored bytes and back: zstd, or as it is where zstd gains nothing.
 * A struct codec is used by one thread at a time. */
#ifndef BOUGH_STORE_CODEC_H
#define BOUGH_STORE_CODEC_H

#include <stddef.h>
#include <stdint.h>
#include "fs/store/pack.h"

struct codec; /* the contexts of zstd, which are costly to make and are kept */

struct codec *codec_new(void); /* NULL: out of memory */
void codec_free(struct codec *c);   /* NULL allowed */

/* Stores `len` bytes into out, which has room for as many; tells the codec and the stored
 * size. Never fails: what zstd can't make smaller by a sixteenth is stored raw. */
void codec_store(struct codec *c, const void *raw, size_t len, uint8_t *out, uint32_t *stored,
		 uint8_t *codec);
/* 0, or -EBADMSG unless the stored bytes give exactly `raw_len` bytes. */
int codec_load(struct codec *c, uint8_t codec, const uint8_t *stored, size_t stored_len, void *raw,
	       size_t raw_len);

#endif
