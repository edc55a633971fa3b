/* Signatures of URLs: HMAC-SHA-256 by a key that only this root's boughd has (ROOT/sign.keys, mode
 * 0600). A key signs for SIGN_KEY_S, and is known for as long as what it signed may hold.
 *
 * Threads: any. */
#ifndef BOUGH_SNAPD_SIGN_H
#define BOUGH_SNAPD_SIGN_H

#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/hash.h"

enum {
	SIGN_FOR_MAX_S = 7 * 24 * 60 * 60, /* how long a URL may hold */
	SIGN_KEY_S = 30 * 24 * 60 * 60,
	SIGN_KEYS_MAX = 16,
	SIGN_KEY_ID = 17, /* with its NUL */
	SIGN_TEXT = 65,   /* of a signature, in hex, with its NUL */
};

/* What is signed; "" for what there isn't. Borrowed. */
struct sign_claim {
	const char *id;    /* of the workspace or snapshot */
	const char *path;  /* any bytes but NUL */
	const char *owner, *token; /* whose doing it is */
	const char *etag;
	uint64_t expires; /* seconds since 1970 */
};

struct signer;
struct signer *signer_new(const char *root); /* NULL: out of memory */
void signer_free(struct signer *s);          /* NULL allowed */
/* With the present key, which is made where there is none. `now` in seconds. */
int sign_make(struct signer *s, const struct sign_claim *c, uint64_t now, char key[SIGN_KEY_ID],
	      char text[SIGN_TEXT], struct err *err);
/* 0; -EPERM: it isn't that claim's; -EKEYEXPIRED: it was, or the key is gone. */
int sign_check(struct signer *s, const struct sign_claim *c, uint64_t now, const char *key,
	       const char *text, struct err *err);

#endif
