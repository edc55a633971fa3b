/* What the headers of the tus protocol (1.0.0) say. Pure; any text. */
#ifndef BOUGH_SNAPD_TUS_HEAD_H
#define BOUGH_SNAPD_TUS_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number without a sign, and nothing else. 0 or -EINVAL. */
int tus_number(const char *text, uint64_t *out);
/* The value of a key in Upload-Metadata ("key base64,key base64"), decoded, terminated; the caller
 * frees. 0: there is none, and *out is NULL. -EINVAL: malformed, twice, or with a NUL; -ENOMEM. */
int tus_metadata(const char *text, const char *key, char **out);
/* Upload-Checksum: "sha1 BASE64" or "sha256 BASE64". The digest's length, -EINVAL (malformed), or
 * -ENOTSUP (another algorithm). */
enum { TUS_DIGEST_MAX = 32 };
int tus_checksum(const char *text, uint8_t out[TUS_DIGEST_MAX]);
/* Upload-Offset of one of which `kept` bytes are there. All of them is told of what is done only:
 * clients ask no more then. The last byte is sent again where it isn't, and asks for that. */
uint64_t tus_told(uint64_t kept, uint64_t length, bool done);

#endif
