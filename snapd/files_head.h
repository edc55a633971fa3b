/* What headers say that the files' API looks at: ranges, entity tags, codings, digests, dates.
 * Pure; any text. */
#ifndef BOUGH_SNAPD_FILES_HEAD_H
#define BOUGH_SNAPD_FILES_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include "fs/base/hash.h"
#include "fs/work/version.h"

enum coding { CODING_IDENTITY, CODING_GZIP, CODING_ZSTD, CODINGS, CODING_UNKNOWN = CODINGS };
const char *coding_name(enum coding c); /* as Content-Encoding has it */

/* Range (RFC 9110, 14.2), of `size` bytes. ONE: [*off, *off + *len), *len above 0. ALL: there is
 * none, or one that is ignored: of another unit, malformed, or of several parts. */
enum head_range { RANGE_ALL, RANGE_ONE, RANGE_NEVER };
enum head_range head_range(const char *value, uint64_t size, uint64_t *off, uint64_t *len);

/* A list of entity tags, or "*". */
enum { HEAD_TAGS_MAX = 32, HEAD_TAG_TEXT = VERSION_TEXT + 16 };
struct head_tag {
	bool weak;
	size_t len;
	const char *text; /* between the quotes; borrowed */
};
struct head_tags {
	bool any; /* "*" */
	size_t n;
	struct head_tag tags[HEAD_TAGS_MAX];
};
int head_tags_parse(struct head_tags *out,
		    const char *value); /* 0 or -EINVAL; more than that, too */
/* Ours: "VERSION" or "VERSION-gzip", with quotes. Returns out. */
const char *head_tag_text(char out[HEAD_TAG_TEXT], const struct version_id *v, enum coding c);
/* What a tag names: 0, or -EINVAL when it is none that we gave. */
int head_tag_read(const struct head_tag *t, struct version_id *v, enum coding *c);

/* The coding that Accept-Encoding likes best; NULL: identity. */
enum coding head_accepts(const char *value);
/* Content-Encoding; NULL: identity. */
enum coding head_coding(const char *value);

/* Content-Digest and Repr-Digest (RFC 9530): 1 and the SHA-256, 0 when there is none of that
 * algorithm, -EINVAL. */
int head_digest(const char *value, struct digest *out);
bool head_wants_digest(const char *value); /* Want-…: whether sha-256 is wanted; NULL: no */
enum { HEAD_DIGEST_TEXT = 60 };
const char *head_digest_text(char out[HEAD_DIGEST_TEXT], const struct digest *d);

/* The boundary of multipart/form-data: 1; 0: another type; -EINVAL: none, or one that can't be. */
enum { HEAD_BOUNDARY = 71 };
int head_boundary(const char *content_type, char out[HEAD_BOUNDARY]);

enum { HEAD_DATE = 32 };
const char *head_date(char out[HEAD_DATE], time_t t); /* "" where the year has no four digits */

#endif
