#include "snapd/archive_lib.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int archive_err(struct err *err, struct archive *a, int code, const char *fmt, ...)
{
	int number = archive_errno(a);
	if (number == ENOMEM || number == ENOSPC || number == EIO || number == EDQUOT)
		code = -number;
	char what[300];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap); /* cut off, never overrun */
	va_end(ap);
	const char *said = archive_error_string(a);
	/* libarchive has no words for a file that ends too early. */
	const char *unsaid = code == -EBADMSG ? "it may be cut off" : "no reason given";
	return err_set(err, code, "%s: %s", what, said ? SHOW(said) : unsaid);
}

/* The length of the UTF-8 character at s (n > 0 bytes are there), 0 when there is none. */
static size_t utf8_len(const uint8_t *s, size_t n)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len = s[0] < 0x80             ? 1
		     : (s[0] & 0xe0) == 0xc0 ? 2
		     : (s[0] & 0xf0) == 0xe0 ? 3
		     : (s[0] & 0xf8) == 0xf0 ? 4
					     : 0;
	if (len <= 1 || len > n)
		return len > n ? 0 : len;
	uint32_t c = s[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : len;
}

bool archive_is_utf8_n(const char *s, size_t len)
{
	for (size_t i = 0, n; i < len; i += n)
		if ((n = utf8_len((const uint8_t *)s + i, len - i)) == 0)
			return false;
	return true;
}

bool archive_is_utf8(const char *s)
{
	return archive_is_utf8_n(s, strlen(s));
}

struct shown_name archive_show_n(const char *name, size_t len)
{
	struct shown_name out;
	size_t at = 0;
	for (size_t i = 0; i < len;) {
		if (i >= ARCHIVE_NAME_SHOWN / 2 && len - i > ARCHIVE_NAME_SHOWN / 2) {
			i = len - ARCHIVE_NAME_SHOWN / 2;
			memcpy(out.s + at, "...", 3);
			at += 3;
			continue;
		}
		const uint8_t *c = (const uint8_t *)name + i;
		size_t n = utf8_len(c, len - i);
		if (n == 0 || c[0] < 0x20 || c[0] == 0x7f) {
			at += (size_t)snprintf(out.s + at, 5, "\\x%02x", c[0]);
			i++;
		} else {
			memcpy(out.s + at, c, n);
			at += n;
			i += n;
		}
	}
	out.s[at] = '\0';
	return out;
}

struct shown_name archive_show(const char *name)
{
	return archive_show_n(name, strlen(name));
}

enum { SECOND_NS = 1000000000 };

struct timespec archive_time_to_pax(struct timespec t)
{
	if (t.tv_sec >= 0 || t.tv_nsec == 0)
		return t;
	if (t.tv_sec == -1)
		return (struct timespec){ -1, 0 };
	return (struct timespec){ t.tv_sec + 1, SECOND_NS - t.tv_nsec };
}

struct timespec archive_time_from_pax(struct timespec t)
{
	if (t.tv_sec >= 0 || t.tv_nsec == 0)
		return t;
	return (struct timespec){ t.tv_sec - 1, SECOND_NS - t.tv_nsec };
}

struct archive_locale archive_locale_set(bool utf8)
{
	struct archive_locale l = { 0 };
	l.made = newlocale(LC_ALL_MASK, utf8 ? "C.UTF-8" : "C", (locale_t)0);
	/* Where the system has no such locale, names stay in the program's own. */
	if (l.made != (locale_t)0)
		l.before = uselocale(l.made);
	return l;
}

void archive_locale_done(struct archive_locale *l)
{
	if (l->made == (locale_t)0)
		return;
	(void)uselocale(l->before); /* it was in use before */
	freelocale(l->made);
}
