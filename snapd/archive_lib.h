/* What import and export share: libarchive's errors and locale. Not for others. */
#ifndef BOUGH_SNAPD_ARCHIVE_LIB_H
#define BOUGH_SNAPD_ARCHIVE_LIB_H

#include <archive.h>
#include <locale.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include "fs/base/err.h"

/* The error of `a` as one of ours: -ENOMEM, -ENOSPC and the like where libarchive knows an
 * errno, else `code`. The text is the format's, ": " and libarchive's own words. */
int archive_err(struct err *err, struct archive *a, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* A name out of an archive as a person may see it: control characters and what isn't UTF-8
 * as \xNN, a long one cut in the middle. */
enum { ARCHIVE_NAME_SHOWN = 200 };
struct shown_name {
	char s[ARCHIVE_NAME_SHOWN * 4 + 8];
};
struct shown_name archive_show_n(const char *name, size_t len);
struct shown_name archive_show(const char *name);
#define SHOW(name) (archive_show(name).s)

bool archive_is_utf8_n(const char *s, size_t len); /* and has no surrogates */
bool archive_is_utf8(const char *s);

/* A time before 1970 with a fraction: pax has it as -4.75, which libarchive takes for -4 s and
 * 750 ms, of the same sign; a timespec has -5 s and 250 ms. Between -1 and 0 it has no form at
 * all: to_pax gives -1. */
struct timespec archive_time_to_pax(struct timespec t);
struct timespec archive_time_from_pax(struct timespec t);

/* libarchive converts names to the thread's locale, and when it reads UTF-8 in one of
 * UTF-8, composes characters. With utf8 false the locale is "C", to which it can convert ASCII
 * only, and leaves all other names of tar and cpio as they are. Undone at the scope's end. */
struct archive_locale {
	locale_t made, before;
};
struct archive_locale archive_locale_set(bool utf8);
void archive_locale_done(struct archive_locale *l);
#define auto_archive_locale __attribute__((cleanup(archive_locale_done))) struct archive_locale

#endif
