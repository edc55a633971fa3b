#include "gitops/ignore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "gitops/wild.h"

struct ignore_pattern {
	bool negated;  /* "!" */
	bool dir_only; /* a slash at its end */
	bool by_name;  /* no other slash: looks at the last component only */
	bool suffix;   /* "*" and then `text` */
	/* What comes before the first special character. git compares it first and matches the
	 * rest by itself, so in "a**" + "/b" the "**" is a beginning; what it does counts. */
	char *text;
	size_t len;
	struct wild *wild; /* the rest; NULL: there is none */
};

static void pattern_done(struct ignore_pattern *p)
{
	free(p->text);
	wild_free(p->wild);
}

void ignore_done(struct ignore_file *f)
{
	for (size_t i = 0; i < f->n; i++)
		pattern_done(&f->v[i]);
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
	if (len == 0)
		return 0;
	p.by_name = !memchr(s, '/', len);
	if (*s == '/')
		s++, len--;
	size_t plain = wild_literal(s, len);
	p.suffix = p.by_name && len > 1 && *s == '*' && wild_literal(s + 1, len - 1) == len - 1;
	if (p.suffix) {
		s++;
		plain = --len;
	} else if (p.by_name && plain < len) {
		plain = 0;
	}
	p.text = strndup(s, plain);
	p.len = plain;
	if (!p.text)
		return -ENOMEM;
	if (plain < len && !(p.wild = wild_new(s + plain, len - plain, !p.by_name))) {
		int e = errno;
		pattern_done(&p);
		return e == ENOMEM ? -ENOMEM : 0;
	}
	*out = p;
	return 1;
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

/* 1, 0 or -ENOMEM. */
static int fits(const struct ignore_pattern *p, const char *path, size_t len, bool is_dir,
		uint64_t *steps)
{
	const char *slash = p->by_name ? memrchr(path, '/', len) : NULL;
	++*steps;
	if (p->dir_only && !is_dir)
		return 0;
	if (slash) {
		len -= (size_t)(slash + 1 - path);
		path = slash + 1;
	}
	if (len < p->len || memcmp(p->suffix ? path + len - p->len : path, p->text, p->len) != 0)
		return 0;
	if (p->suffix)
		return 1;
	return p->wild ? wild_match(p->wild, path + p->len, len - p->len, steps) : len == p->len;
}

int ignore_ask(const struct ignore_file *f, const char *path, size_t len, bool is_dir,
	       uint64_t *steps)
{
	for (size_t i = f->n; i-- > 0;) {
		int r = fits(&f->v[i], path, len, is_dir, steps);
		if (r != 0)
			return r < 0 ? r : !f->v[i].negated;
	}
	return IGNORE_NOTHING;
}
