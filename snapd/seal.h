/* Secrets that must be read again: kept as AES-256-GCM under a key in ROOT/secrets.key (mode 0600),
 * so that the catalog and its copies hold none in clear.
 *
 *   12 bytes nonce, the text, 16 bytes tag; `name` (what it is of) is authenticated with it. */
#ifndef BOUGH_SNAPD_SEAL_H
#define BOUGH_SNAPD_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "fs/base/buf.h"
#include "fs/base/err.h"

enum { SEAL_KEY = 32, SEAL_NONCE = 12, SEAL_TAG = 16, SEAL_MORE = SEAL_NONCE + SEAL_TAG };
/* Reads the key, or makes it. -EPERM: others could read it. */
int seal_key(const char *root, uint8_t key[SEAL_KEY], struct err *err);
int seal(struct buf *out, const uint8_t key[SEAL_KEY], const char *name, const void *text,
	 size_t len, struct err *err);
/* -EBADMSG: it isn't what was sealed under that key and name. */
int unseal(struct buf *out, const uint8_t key[SEAL_KEY], const char *name, const void *data,
	   size_t len, struct err *err);

#endif
