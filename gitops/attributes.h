/* What .gitattributes say of a path, as far as it decides a checkout's contents: text, crlf, eol,
 * ident, working-tree-encoding, filter. The files of one commit only: neither the host's nor
 * the mirror's own count. After git's attr.c and gitattributes(5): quoted patterns, macros (of
 * the root's file, and "binary"), nested files, the last line that matches wins.
 *
 * Threads: one at a time. */
#ifndef BOUGH_GITOPS_ATTRIBUTES_H
#define BOUGH_GITOPS_ATTRIBUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/base/err.h"

enum {
	ATTR_FILE_MAX = 100 << 20, /* bytes: git ignores larger files … */
	ATTR_LINE_MAX = 2048,      /* … and longer lines */
	ATTR_BYTES_MAX = 32 << 20, /* of all files together: they take ten times that in memory */
	ATTR_MACROS_MAX = 256,
	ATTR_NONE = -1, /* no file says anything */
};
/* What all look-ups together may cost, in steps of wild.h: about a minute. */
#define ATTR_STEPS_MAX (UINT64_C(1) << 34)

enum attr_name {
	ATTR_TEXT,
	ATTR_CRLF,
	ATTR_EOL,
	ATTR_IDENT,
	ATTR_ENCODING,
	ATTR_FILTER,
	ATTR_NAMES,
};
/* An attribute's value: one of the three, a string, or NULL where no line says anything. Strings
 * are borrowed until attributes_free. */
extern const char attr_true[], attr_false[], attr_unset[];
struct attr_values {
	const char *v[ATTR_NAMES];
};

struct attributes;
struct attributes *attributes_new(void);    /* NULL: out of memory */
void attributes_free(struct attributes *a); /* NULL allowed */
/* A file; folders above first. `parent`: what this gave for the nearest folder above that has one,
 * or ATTR_NONE. `dir`: "" or the folder's path, without a slash at the end. The result is
 * `parent` where the file doesn't say anything that counts here. Failures are below ATTR_NONE:
 * -ENOMEM; -E2BIG: ATTR_BYTES_MAX. */
int attributes_add(struct attributes *a, int parent, const char *dir, const void *data, size_t len,
		   struct err *err);
/* For a file whose nearest .gitattributes is `at`. 0, -ENOMEM, -E2BIG (ATTR_STEPS_MAX). */
int attributes_find(struct attributes *a, int at, const char *path, struct attr_values *out);

#endif
