/* Errors that a person will read.
 *
 * Every fallible function of the project returns an int: 0 or more is success,
 * less is a negated errno. Where a person will read the failure, the last
 * parameter is a `struct err *`: memory of the caller, NULL allowed, set exactly
 * when the result is negative. The place that failed says what failed; each
 * layer above may prefix once what it was doing:
 *
 *     int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
 *     if (fd < 0)
 *             return err_sys(err, -errno, "open %s", name);
 *     ...
 *     if (r < 0)
 *             return err_prefix(err, r, "load layer %s", id);
 */
#ifndef BOUGH_BASE_ERR_H
#define BOUGH_BASE_ERR_H

#include <stddef.h>

struct err {
	int code;       /* negated errno; 0: no error */
	char text[508]; /* one line without its end; "" when code is 0 */
};

/* Sets *err to the formatted text and returns `code` (which is negative). */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* As err_set, and appends ": " and the text of errno -code. */
int err_sys(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* -ENOMEM, "out of memory". */
int err_no_memory(struct err *err);

/* Puts the formatted text and ": " before what *err says, and returns `code`. */
int err_prefix(struct err *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
