#include "fs/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(struct err *err, int code, const char *fmt, va_list ap)
{
	err->code = code;
	(void)vsnprintf(err->text, sizeof(err->text), fmt, ap); /* cut off, never overrun */
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	if (err) {
		va_list ap;
		va_start(ap, fmt);
		fill(err, code, fmt, ap);
		va_end(ap);
	}
	return code;
}

int err_sys(struct err *err, int code, const char *fmt, ...)
{
	if (err) {
		va_list ap;
		va_start(ap, fmt);
		fill(err, code, fmt, ap);
		va_end(ap);
		size_t n = strlen(err->text);
		(void)snprintf(err->text + n, sizeof(err->text) - n, ": %s", strerror(-code));
	}
	return code;
}

int err_no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

int err_prefix(struct err *err, int code, const char *fmt, ...)
{
	if (err) {
		struct err old = *err;
		va_list ap;
		va_start(ap, fmt);
		fill(err, code, fmt, ap);
		va_end(ap);
		size_t n = strlen(err->text);
		(void)snprintf(err->text + n, sizeof(err->text) - n, ": %s", old.text);
	}
	return code;
}
