#include "gitops/ignore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "gitops/wild.h"

struct ignore_pattern {
	bool negated;  /* "!" */
	bool dir_only; /* a slash at its end */
	struct path_pattern path;
};

void ignore_done(struct ignore_file *f)
{
	for (size_t i = 0; i < f->n; i++)
		path_pattern_done(&f->v[i].path);
	free(f->v);
	*f = (struct ignore_file){ 0 };
}

/* ---- lines ---- */

/* 1, 0: the line holds no pattern, or one that nothing matches; -ENOMEM. */
static int parse_pattern(struct ignore_pattern *out, const char *s, size_t len)
{
	struct ignore_pattern p = { .negated = *s == '!' };
	s += p.negated;
	len -= p.negated;
	p.dir_only = len && s[len - 1] == '/';
	len -= p.dir_only;
	int r = len ? path_pattern_parse(&p.path, s, len) : 0;
	if (r > 0)
		*out = p;
	return r;
}

static bool escaped(const char *line, size_t at)
{
	size_t n = 0;
	while (at > n && line[at - n - 1] == '\\')
		n++;
	return n % 2;
}

static int parse_line(struct ignore_file *f, const char *s, size_t len, bool ended)
{
	if (ended && len && s[len - 1] == '\r')
		len--;
	while (len && s[len - 1] == ' ' && !escaped(s, len - 1))
		len--;
	if (len == 0 || *s == '#')
		return 0;
	if (array_grow(&f->v, f->n, &f->cap) < 0)
		return -ENOMEM;
	int r = parse_pattern(&f->v[f->n], s, len);
	f->n += r > 0;
	return r < 0 ? r : 0;
}

int ignore_parse(struct ignore_file *out, const void *data, size_t len)
{
	struct ignore_file f = { 0 };
	const char *p = data, *end = p + len;
	int r = 0;
	if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
		p += 3;
	while (p < end && r >= 0) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		r = parse_line(&f, p, (size_t)((nl ? nl : end) - p), nl != NULL);
		p = nl ? nl + 1 : end;
	}
	if (r < 0) {
		ignore_done(&f);
		return r;
	}
	*out = f;
	return 0;
}

/* ---- asking ---- */

int ignore_ask(const struct ignore_file *f, const char *path, size_t len, bool is_dir,
	       uint64_t *steps)
{
	for (size_t i = f->n; i-- > 0;) {
		const struct ignore_pattern *p = &f->v[i];
		++*steps;
		if (p->dir_only && !is_dir)
			continue;
		int r = path_pattern_match(&p->path, path, len, steps);
		if (r != 0)
			return r < 0 ? r : !p->negated;
	}
	return IGNORE_NOTHING;
}
