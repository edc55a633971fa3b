/* Base64 (RFC 4648, padded). */
#ifndef BOUGH_BASE_BASE64_H
#define BOUGH_BASE_BASE64_H

#include <stddef.h>

/* Text that the caller frees. NULL: out of memory. */
char *base64_encode(const void *data, size_t len);

#endif
