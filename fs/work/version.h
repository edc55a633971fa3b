/* Which version of a file this is, for who wants to know later whether it is that one still.
 *
 * Whatever changes an inode, its content or its attributes, gives it a ctime that no other change
 * of that workspace had (op_begin); what is put back by a restore has another generation. So no
 * two versions of a file in one workspace are equal. Pure; any thread. */
#ifndef BOUGH_WORK_VERSION_H
#define BOUGH_WORK_VERSION_H

#include "fs/image/image.h"

struct version_id {
	uint64_t ino;
	uint16_t gen;
	int64_t ctime_ns;
};
enum { VERSION_TEXT = 48 }; /* of version_text, with its NUL */

struct version_id version_of(const struct attr *a);
bool version_equal(const struct version_id *a, const struct version_id *b);
/* "INO.GEN.CTIME", each in hex. Returns out. */
const char *version_text(char out[VERSION_TEXT], const struct version_id *v);
/* The n bytes of such a text, and nothing else: 0 or -EINVAL. */
int version_parse(struct version_id *out, const char *text, size_t n);

#endif
