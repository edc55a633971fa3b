/* Differences of two trees as text: for programs (ndjson), for people (name-status, stat) and for
 * patch tools (unified diff with git's extended headers). The line diff is libgit2's. */
#ifndef BOUGH_SNAPD_DIFFTEXT_H
#define BOUGH_SNAPD_DIFFTEXT_H

#include "fs/base/buf.h"
#include "fs/work/diff.h"

enum diff_format { DIFF_FORMAT_JSON, DIFF_FORMAT_NAME_STATUS, DIFF_FORMAT_STAT, DIFF_FORMAT_PATCH };
enum { DIFF_TEXT_MAX = 32 << 20 }; /* bytes of a side; larger content counts as binary */

/* "json", "name-status", "stat", "patch"; NULL: json. -EINVAL. */
int diff_format_parse(const char *name, struct err *err);
const char *diff_format_mime(enum diff_format f);

struct diff_sink {
	int (*write)(void *ctx, const void *data, size_t n); /* all of it, or -errno, which ends */
	void *ctx;
};
/* From a to b. */
int difftext_write(enum diff_format format, const struct view *a, const struct view *b,
		   const struct diff_sink *sink, struct err *err);

/* Appends the path as git would: in double quotes with C's escapes where it has bytes that
 * need them, `prefix` in front inside the quotes. */
void diff_quote(struct buf *out, const char *prefix, const char *path);
/* Appends `mark` and the quoted path, or /dev/null for NULL. `line`: it is one of its own; a TAB
 * then ends a name with spaces, as tools expect. */
void diff_side(struct buf *out, const char *mark, const char *prefix, const char *path, bool line);
/* Appends the bytes as UTF-8, each that isn't as U+FFFD. True when there was one. */
bool diff_utf8(struct buf *out, const char *bytes, size_t len);

#endif
