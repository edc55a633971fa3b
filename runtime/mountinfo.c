#include "runtime/mountinfo.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "fs/base/io.h"

enum {
	TEXT_MAX = 64 << 20, /* some thousand mounts are a megabyte */
	FIELD_ROOT = 3,
	FIELD_POINT = 4,
	FIELDS = 5,
};

struct mountinfo mountinfo_begin(const char *text, size_t len)
{
	return (struct mountinfo){ .p = text, .end = text + len };
}

/* Blanks and such are written as \ooo. */
static bool unescape(char out[PATH_MAX], const char *p, size_t len)
{
	size_t n = 0;
	for (size_t i = 0; i < len; i++) {
		unsigned v = (unsigned char)p[i];
		if (v == '\\' && len - i > 3) {
			v = 0;
			for (size_t k = 1; k <= 3; k++) {
				if (p[i + k] < '0' || p[i + k] > '7')
					return false;
				v = v * 8 + (unsigned)(p[i + k] - '0');
			}
			i += 3;
		}
		if (v == 0 || v > UCHAR_MAX || n + 1 >= PATH_MAX)
			return false;
		out[n++] = (char)v;
	}
	out[n] = '\0';
	return n > 0 && out[0] == '/';
}

static bool parse(struct mountinfo *m, const char *line, size_t len)
{
	static const char sep[] = " - ";
	const char *field[FIELDS + 1], *p = line;
	const char *end = line + len, *at = memmem(line, len, sep, sizeof(sep) - 1);
	if (!at)
		return false;
	for (size_t i = 0; i < FIELDS; i++) {
		const char *blank = memchr(p, ' ', (size_t)(at + 1 - p));
		if (!blank)
			return false;
		field[i] = p;
		p = blank + 1;
	}
	field[FIELDS] = p;
	m->type = at + sizeof(sep) - 1;
	const char *blank = memchr(m->type, ' ', (size_t)(end - m->type));
	m->type_len = (size_t)((blank ? blank : end) - m->type);
	m->whole = field[FIELD_POINT] - field[FIELD_ROOT] == 2 && *field[FIELD_ROOT] == '/';
	return unescape(m->point, field[FIELD_POINT],
			(size_t)(field[FIELDS] - field[FIELD_POINT]) - 1);
}

bool mountinfo_next(struct mountinfo *m)
{
	while (m->p < m->end) {
		const char *line = m->p, *nl = memchr(line, '\n', (size_t)(m->end - line));
		size_t n = (size_t)((nl ? nl : m->end) - line);
		m->p += n + (nl ? 1 : 0);
		if (parse(m, line, n))
			return true;
	}
	return false;
}

bool mountinfo_is(const struct mountinfo *m, const char *type)
{
	return m->type_len == strlen(type) && memcmp(m->type, type, m->type_len) == 0;
}

int mountinfo_read(void **text, size_t *len, struct err *err)
{
	return io_slurp(NULL, AT_FDCWD, "/proc/self/mountinfo", TEXT_MAX, text, len, err);
}

int mountinfo_read_of(uint32_t pid, void **text, size_t *len, struct err *err)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "/proc/%u/mountinfo", pid);
	return io_slurp(NULL, AT_FDCWD, path, TEXT_MAX, text, len, err);
}
