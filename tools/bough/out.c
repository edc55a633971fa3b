#include "tools/bough/out.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"

/* ---- values ---- */

const char *out_size(char buf[OUT_SIZE_MAX], int64_t bytes, bool exact)
{
	static const char units[] = "KMGTPE";
	if (exact || (bytes < 1024 && bytes > -1024)) {
		(void)snprintf(buf, OUT_SIZE_MAX, "%lld", (long long)bytes);
		return buf;
	}
	double v = (double)bytes / 1024;
	int u = 0;
	while ((v >= 999.5 || v <= -999.5) && units[u + 1]) {
		v /= 1024;
		u++;
	}
	bool small = v < 9.95 && v > -9.95;
	(void)snprintf(buf, OUT_SIZE_MAX, small ? "%.1f%c" : "%.0f%c", v, units[u]);
	return buf;
}

const char *out_duration(char buf[OUT_SIZE_MAX], int64_t ns)
{
	static const struct {
		int64_t ns;
		const char *unit;
	} units[] = { { 1000000000, "s" }, { 1000000, "ms" }, { 1000, "us" }, { 1, "ns" } };
	int64_t s = ns / 1000000000;
	if (s >= 3600) {
		(void)snprintf(buf, OUT_SIZE_MAX, "%lldh%02dm", (long long)(s / 3600),
			       (int)(s / 60 % 60));
		return buf;
	}
	if (s >= 60) {
		(void)snprintf(buf, OUT_SIZE_MAX, "%dm%02ds", (int)(s / 60), (int)(s % 60));
		return buf;
	}
	size_t u = 0;
	while (u < 3 && ns < units[u].ns)
		u++;
	double v = (double)ns / (double)units[u].ns;
	(void)snprintf(buf, OUT_SIZE_MAX, v < 9.95 && ns % units[u].ns ? "%.1f%s" : "%.0f%s", v,
		       units[u].unit);
	return buf;
}

time_t out_parse_time(const char *text)
{
	struct tm tm = { 0 };
	int n = 0;
	if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
		   &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &n) != 6)
		return -1;
	const char *p = text + n;
	if (*p == '.')
		p += 1 + strspn(p + 1, "0123456789");
	if (strcmp(p, "Z") != 0 && strcmp(p, "+00:00") != 0)
		return -1;
	if (tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
	    tm.tm_year < 1970 || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
		return -1;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	return timegm(&tm);
}

const char *out_age(char buf[OUT_AGE_MAX], const char *rfc3339, time_t now)
{
	static const struct {
		long long seconds,
			below; /* of one unit; the unit is used under this many seconds */
		char unit;
	} units[] = {
		{ 1, 120, 's' },         { 60, 7200, 'm' },         { 3600, 172800, 'h' },
		{ 86400, 1209600, 'd' }, { 604800, 63072000, 'w' }, { 31536000, INT64_MAX, 'y' },
	};
	time_t t = out_parse_time(rfc3339);
	if (t < 0)
		return "-";
	long long age = (long long)now - (long long)t;
	if (age < 1)
		return "now"; /* or a clock that was set back */
	size_t i = 0;
	while (age >= units[i].below)
		i++;
	(void)snprintf(buf, OUT_AGE_MAX, "%lld%c", age / units[i].seconds, units[i].unit);
	return buf;
}

const char *out_time(char buf[OUT_TIME_MAX], const char *rfc3339, time_t now)
{
	char buf_age[OUT_AGE_MAX];
	if (!*rfc3339)
		return "-";
	const char *age = out_age(buf_age, rfc3339, now);
	bool past = age[0] >= '0' && age[0] <= '9';
	(void)snprintf(buf, OUT_TIME_MAX, "%.64s (%s%s)", rfc3339, age, past ? " ago" : "");
	return buf;
}

/* The length of the UTF-8 sequence at p when it is printable, 0 when it isn't. */
static size_t printable(const unsigned char *p)
{
	if (p[0] >= ' ' && p[0] < 127)
		return 1;
	size_t n = p[0] >= 0xf0 && p[0] < 0xf5   ? 4
		   : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
		   : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
						 : 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if (n == 2 && p[0] == 0xc2 && p[1] < 0xa0)
		return 0; /* C1: 0x9b is a terminal's CSI */
	return n;
}

void out_clean(FILE *f, const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p;) {
		size_t n = printable(p);
		if (n)
			(void)fwrite(p, 1, n, f); /* ferror tells at the end */
		else
			(void)fputc('?', f);
		p += n ? n : 1;
	}
}

static bool all_printable(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p;) {
		size_t n = printable(p);
		if (n == 0)
			return false;
		p += n;
	}
	return true;
}

char *out_quoted(const char *name)
{
	auto_buf b = { 0 };
	if (all_printable(name))
		return strdup(name);
	buf_printf(&b, "$'");
	for (const unsigned char *p = (const unsigned char *)name; *p;) {
		size_t n = printable(p);
		if (n == 0)
			buf_printf(&b, "\\%03o", *p);
		else
			buf_printf(&b, "%s%.*s", *p == '\'' || *p == '\\' ? "\\" : "", (int)n, p);
		p += n ? n : 1;
	}
	buf_add(&b, "'", 2);
	return buf_error(&b) < 0 ? NULL : (char *)steal_ptr(&b.data);
}

size_t out_width(const char *text)
{
	size_t w = 0;
	for (const unsigned char *p = (const unsigned char *)text; *p; w++) {
		size_t n = printable(p);
		p += n ? n : 1;
	}
	return w;
}

bool out_colour(FILE *f)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
	return isatty(fileno(f)) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

void out_warnings(const struct cli *cli, const json_t *answer)
{
	const json_t *w;
	size_t i;
	if (cli->quiet)
		return;
	json_array_foreach(json_object_get(answer, "warnings"), i, w) {
		(void)fputs("bough: ", stderr);
		out_clean(stderr, json_is_string(w) ? json_string_value(w) : "");
		(void)fputc('\n', stderr);
	}
}

int out_json(const json_t *doc, struct err *err)
{
	if (json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY) < 0 || putchar('\n') == EOF)
		return err_set(err, -EIO, "write to stdout");
	return 0;
}

void out_line(const char *key, const char *value)
{
	printf("%-11s ", key);
	out_clean(stdout, *value ? value : "-");
	printf("\n");
}

/* ---- tables ---- */

struct table {
	unsigned columns;
	unsigned cut; /* cells of a row, at its beginning, that aren't shown */
	const char *headings[TABLE_COLUMNS_MAX];
	bool right[TABLE_COLUMNS_MAX];
	size_t width[TABLE_COLUMNS_MAX];
	char **cells; /* rows * columns, each ours */
	size_t rows, cap;
	bool failed;
};

struct table *table_new(const char *const *headings)
{
	struct table *t = calloc(1, sizeof(*t));
	for (unsigned i = 0; t && headings[i] && i < TABLE_COLUMNS_MAX; i++) {
		t->right[i] = headings[i][0] == '>';
		t->headings[i] = headings[i] + t->right[i];
		t->width[i] = out_width(t->headings[i]);
		t->columns++;
	}
	return t;
}

struct table *table_new_cut(const char *const *headings)
{
	struct table *t = table_new(headings + 1);
	if (t)
		t->cut = 1;
	return t;
}

void table_row(struct table *t, const char *const *cells)
{
	if (!t || t->failed)
		return;
	cells += t->cut;
	if (t->rows == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 64;
		char **more = reallocarray(t->cells, cap * t->columns, sizeof(*more));
		if (!more) {
			t->failed = true;
			return;
		}
		t->cells = more;
		t->cap = cap;
	}
	char **row = t->cells + t->rows * t->columns;
	for (unsigned i = 0; i < t->columns; i++) {
		row[i] = strdup(cells[i] && *cells[i] ? cells[i] : "-");
		if (!row[i]) {
			while (i > 0)
				free(row[--i]);
			t->failed = true;
			return;
		}
		size_t w = out_width(row[i]);
		if (w > t->width[i])
			t->width[i] = w;
	}
	t->rows++;
}

static void print_cells(const struct table *t, const char *const *cells, FILE *f)
{
	for (unsigned i = 0; i < t->columns; i++) {
		bool last = i + 1 == t->columns;
		int pad = (int)(t->width[i] - out_width(cells[i]));
		if (t->right[i])
			(void)fprintf(f, "%*s", pad, "");
		out_clean(f, cells[i]);
		if (!last)
			(void)fprintf(f, "%*s", t->right[i] ? 2 : pad + 2, "");
	}
	(void)fputc('\n', f);
}

int table_print(struct table *t, FILE *f, struct err *err)
{
	if (!t || t->failed)
		return err_no_memory(err);
	bool colour = out_colour(f);
	if (colour)
		(void)fputs("\033[1m", f);
	print_cells(t, t->headings, f);
	if (colour)
		(void)fputs("\033[0m", f);
	for (size_t i = 0; i < t->rows; i++)
		print_cells(t, (const char *const *)t->cells + i * t->columns, f);
	return 0;
}

void table_free(struct table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->rows * t->columns; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t);
}

/* ---- progress ---- */

enum {
	DRAW_EVERY_MS = 100,
	DRAW_AFTER_MS = 300, /* what is done by then needs no bar */
	BAR_WIDTH = 24,
	LINE_MAX_COLUMNS = 200,
};

void progress_begin(struct progress *p, const struct cli *cli, const char *what)
{
	const char *term = getenv("TERM");
	*p = (struct progress){ .what = what, .begun_ms = clock_ms() };
	p->on = !cli->quiet && isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
}

static size_t terminal_columns(void)
{
	struct winsize ws;
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &ws) < 0 || ws.ws_col < 20)
		return 80;
	return ws.ws_col < LINE_MAX_COLUMNS ? ws.ws_col : LINE_MAX_COLUMNS;
}

static const char *amount(char buf[OUT_SIZE_MAX], uint64_t v, const char *unit)
{
	int64_t n = v > INT64_MAX ? INT64_MAX : (int64_t)v;
	return out_size(buf, n, strcmp(unit, "bytes") != 0);
}

static void draw(const char *what, uint64_t done, uint64_t total, const char *unit)
{
	char bar[BAR_WIDTH + 1], a[OUT_SIZE_MAX], b[OUT_SIZE_MAX], line[LINE_MAX_COLUMNS + 1];
	const char *tail = strcmp(unit, "bytes") ? unit : "";
	if (total > 0) {
		if (done > total)
			done = total;
		int full = (int)((double)done / (double)total * BAR_WIDTH);
		for (int i = 0; i < BAR_WIDTH; i++)
			bar[i] = i < full ? '#' : '.';
		bar[BAR_WIDTH] = 0;
		(void)snprintf(line, sizeof(line), "%s [%s] %3d%%  %s of %s %s", what, bar,
			       (int)((double)done / (double)total * 100), amount(a, done, unit),
			       amount(b, total, unit), tail);
	} else {
		(void)snprintf(line, sizeof(line), "%s  %s %s", what, amount(a, done, unit), tail);
	}
	line[terminal_columns() - 1] = 0; /* a line that wraps can't be wiped */
	(void)fputs("\r\033[K", stderr);
	out_clean(stderr, line);
	(void)fflush(stderr);
}

void progress_update(struct progress *p, uint64_t done, uint64_t total, const char *unit,
		     const char *what)
{
	if (!p || !p->on)
		return;
	int64_t now = clock_ms();
	if (now - p->begun_ms < DRAW_AFTER_MS || (p->drawn && now - p->drawn_ms < DRAW_EVERY_MS))
		return;
	draw(what && *what ? what : p->what, done, total, unit);
	p->drawn = true;
	p->drawn_ms = now;
}

void progress_end(struct progress *p)
{
	if (p && p->drawn) {
		(void)fputs("\r\033[K", stderr);
		(void)fflush(stderr);
		p->drawn = false;
	}
}
