/* What a person sees: tables, sizes, ages, colours, progress. Everything that came from
 * outside goes through out_clean: a name or a message never controls the terminal. */
#ifndef BOUGH_TOOLS_OUT_H
#define BOUGH_TOOLS_OUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include "tools/bough/cli.h"

enum { OUT_SIZE_MAX = 24, OUT_AGE_MAX = 24, OUT_TIME_MAX = 96 };

/* "812", "1.2K", "34M", "5.0G" (powers of 1024); with `exact` all digits. Returns buf. */
const char *out_size(char buf[OUT_SIZE_MAX], int64_t bytes, bool exact);
/* "0ns", "12us", "3.4ms", "5.6s", "2m05s", "3h07m" of nanoseconds. Returns buf. */
const char *out_duration(char buf[OUT_SIZE_MAX], int64_t ns);
/* "now", "45s", "12m", "3h", "9d", "7w", "2y" since the RFC 3339 time; "-" when it is none. */
const char *out_age(char buf[OUT_AGE_MAX], const char *rfc3339, time_t now);
/* The time with its age: "2026-01-31T12:00:00Z (3h ago)"; "-" when there is none. */
const char *out_time(char buf[OUT_TIME_MAX], const char *rfc3339, time_t now);
/* The time in seconds; -1: not RFC 3339 UTC. */
time_t out_parse_time(const char *rfc3339);
/* Copies text with control characters (C0, DEL, C1, broken UTF-8) shown as '?'. */
void out_clean(FILE *f, const char *text);
/* A file's name for a person: as it is, or where out_clean would hide some of it, with what a shell
 * reads as these bytes: $'a\377b'. The caller's; NULL: no memory. */
char *out_quoted(const char *name);
/* Columns that `text` takes on a terminal, about: one for each character. */
size_t out_width(const char *text);
/* True when `f` is a terminal that shows colours and NO_COLOR isn't set. */
bool out_colour(FILE *f);

/* The lines of an answer's `warnings` on stderr, unless it is to be quiet. */
void out_warnings(const struct cli *cli, const json_t *answer);
/* "KEY   value" on stdout; "-" for no value. */
void out_line(const char *key, const char *value);
/* A JSON document on stdout, indented, one newline behind it. */
int out_json(const json_t *doc, struct err *err);

/* ---- tables ---- */

enum { TABLE_COLUMNS_MAX = 12 };
struct table;
/* Headings; one that begins with '>' is aligned to the right. NULL ends them. NULL: no memory. */
struct table *table_new(const char *const *headings);
/* The same without the first column: rows are given with it. */
struct table *table_new_cut(const char *const *headings);
/* One row; texts are copied. Failures are remembered and reported by table_print. */
void table_row(struct table *t, const char *const *cells);
int table_print(struct table *t, FILE *f, struct err *err);
void table_free(struct table *t);
static inline void cleanup_table(struct table **t)
{
	table_free(*t);
}
#define auto_table __attribute__((cleanup(cleanup_table))) struct table

/* ---- progress on stderr ---- */

struct progress {
	bool on;
	bool drawn;       /* a line stands there now */
	int64_t drawn_ms; /* when, monotonic */
	int64_t begun_ms;
	const char *what; /* until the daemon says better */
};
/* Shown only where stderr is a terminal, and not with --quiet. */
void progress_begin(struct progress *p, const struct cli *cli, const char *what);
/* total 0: unknown. unit: "bytes" are shown as sizes, anything else as a count. */
void progress_update(struct progress *p, uint64_t done, uint64_t total, const char *unit,
		     const char *what);
void progress_end(struct progress *p); /* wipes the line */

#endif
