/* Base64 (RFC 4648, padded). */
#ifndef BOUGH_BASE_BASE64_H
#define BOUGH_BASE_BASE64_H

#include <stddef.h>

/* Text that the caller frees. NULL: out of memory. */
char *base64_encode(const void *data, size_t len);
/* The n characters, with their padding: how many bytes, at most `cap`; -EINVAL: it isn't what
 * base64_encode makes, or more. */
int base64_decode(const char *text, size_t n, void *out, size_t cap);

#endif
