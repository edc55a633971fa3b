#include "gitops/wild.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum token_kind {
	TOKEN_BYTE,
	TOKEN_SET,
	TOKEN_STAR,  /* any number of bytes but '/' */
	TOKEN_STARS, /* any number of bytes */
	/* A "**" with the slash behind it, which two tokens stand for: nothing, or … */
	TOKEN_FOLDERS,
	TOKEN_INSIDE, /* … any number of bytes and a slash */
};

struct set {
	uint64_t bits[4];
};

struct token {
	enum token_kind kind;
	uint8_t byte;
	struct set *set;
};

struct wild {
	size_t n;
	struct token tokens[];
};

void wild_free(struct wild *w)
{
	for (size_t i = 0; w && i < w->n; i++)
		free(w->tokens[i].set);
	free(w);
}

/* ---- sets ---- */

static void set_add(struct set *s, unsigned from, unsigned to)
{
	for (unsigned c = from; c <= to; c++)
		s->bits[c / 64] |= UINT64_C(1) << c % 64;
}

static bool set_has(const struct set *s, uint8_t c)
{
	return s->bits[c / 64] >> c % 64 & 1;
}

/* ASCII whatever the locale, as git's own ctype. */
static int is_alnum(int c)
{
	return c < 128 && isalnum(c);
}
static int is_alpha(int c)
{
	return c < 128 && isalpha(c);
}
static int is_blank(int c)
{
	return c == ' ' || c == '\t';
}
static int is_cntrl(int c)
{
	return c < 32 || c == 127;
}
static int is_digit(int c)
{
	return c >= '0' && c <= '9';
}
static int is_graph(int c)
{
	return c > 32 && c < 127;
}
static int is_lower(int c)
{
	return c >= 'a' && c <= 'z';
}
static int is_print(int c)
{
	return c >= 32 && c < 127;
}
static int is_punct(int c)
{
	return is_graph(c) && !is_alnum(c);
}
static int is_space(int c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}
static int is_upper(int c)
{
	return c >= 'A' && c <= 'Z';
}
static int is_xdigit(int c)
{
	return c < 128 && isxdigit(c);
}

/* [:name:]. False: there is no such class. */
static bool set_add_class(struct set *s, const char *name, size_t len)
{
	static const struct {
		const char *name;
		int (*is)(int);
	} classes[] = {
		{ "alnum", is_alnum }, { "alpha", is_alpha }, { "blank", is_blank },
		{ "cntrl", is_cntrl }, { "digit", is_digit }, { "graph", is_graph },
		{ "lower", is_lower }, { "print", is_print }, { "punct", is_punct },
		{ "space", is_space }, { "upper", is_upper }, { "xdigit", is_xdigit },
	};
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		if (strlen(classes[i].name) != len || memcmp(classes[i].name, name, len) != 0)
			continue;
		for (int c = 0; c < 256; c++)
			if (classes[i].is(c))
				set_add(s, (unsigned)c, (unsigned)c);
		return true;
	}
	return false;
}

struct scan {
	const uint8_t *p, *end;
};

static int peek(const struct scan *s, size_t n)
{
	return (size_t)(s->end - s->p) > n ? s->p[n] : 0;
}

/* One element of a set, at s->p; *prev is the byte before, which a '-' makes the start of a
 * range, or 0. False: the set has no end, or names an unknown class. */
static bool set_element(struct set *set, struct scan *s, int *prev)
{
	int c = peek(s, 0);
	if (c == '\\') {
		s->p++;
		c = peek(s, 0);
		set_add(set, (unsigned)c, (unsigned)c);
	} else if (c == '-' && *prev && peek(s, 1) && peek(s, 1) != ']') {
		s->p++;
		if (peek(s, 0) == '\\')
			s->p++;
		c = peek(s, 0);
		if (c && *prev <= c)
			set_add(set, (unsigned)*prev, (unsigned)c);
		*prev = 0;
		s->p++;
		return c != 0;
	} else if (c == '[' && peek(s, 1) == ':') {
		const uint8_t *name = s->p + 2;
		const uint8_t *end = memchr(name, ']', (size_t)(s->end - name));
		if (!end)
			return false;
		if (end > name && end[-1] == ':') {
			s->p = end + 1;
			*prev = 0;
			return set_add_class(set, (const char *)name, (size_t)(end - name) - 1);
		}
		set_add(set, '[', '['); /* an ordinary one */
	} else if (c) {
		set_add(set, (unsigned)c, (unsigned)c);
	}
	*prev = c;
	s->p++;
	return c != 0;
}

/* [ … ], s->p behind the bracket. False as above. */
static bool parse_set(struct set *set, struct scan *s, bool path)
{
	int prev = 0;
	bool negated = peek(s, 0) == '!' || peek(s, 0) == '^';
	s->p += negated;
	do {
		if (s->p >= s->end || !set_element(set, s, &prev))
			return false;
	} while (peek(s, 0) != ']');
	s->p++;
	for (int i = 0; negated && i < 4; i++)
		set->bits[i] = ~set->bits[i];
	if (path)
		set->bits['/' / 64] &= ~(UINT64_C(1) << '/' % 64);
	return true;
}

/* ---- patterns ---- */

static struct token stars(struct scan *s, const uint8_t *start, bool path)
{
	const uint8_t *first = s->p - 1; /* the star itself */
	while (peek(s, 0) == '*')
		s->p++;
	if (!path)
		return (struct token){ .kind = TOKEN_STARS };
	bool begins = first == start || first[-1] == '/';
	bool slash = peek(s, 0) == '/', ends = s->p == s->end;
	bool escaped = peek(s, 0) == '\\' && peek(s, 1) == '/';
	if (s->p - first < 2 || !begins || !(ends || slash || escaped))
		return (struct token){ .kind = TOKEN_STAR };
	s->p += slash;
	return (struct token){ .kind = slash ? TOKEN_FOLDERS : TOKEN_STARS };
}

static int parse(struct wild *w, struct scan *s, bool path)
{
	const uint8_t *start = s->p;
	while (s->p < s->end) {
		struct token *t = &w->tokens[w->n];
		uint8_t c = *s->p++;
		*t = (struct token){ .kind = TOKEN_BYTE, .byte = c };
		if (c == '*') {
			*t = stars(s, start, path);
			if (t->kind == TOKEN_FOLDERS) /* the stars and the slash: there is room */
				w->tokens[++w->n] = (struct token){ .kind = TOKEN_INSIDE };
		} else if (c == '?' || c == '[') {
			t->kind = TOKEN_SET;
			t->set = calloc(1, sizeof(*t->set));
			w->n += t->set != NULL;
			if (!t->set)
				return ENOMEM;
			if (c == '[' && !parse_set(t->set, s, path))
				return EINVAL;
			if (c == '?')
				memset(t->set, 0xff, sizeof(*t->set));
			if (c == '?' && path)
				t->set->bits['/' / 64] &= ~(UINT64_C(1) << '/' % 64);
			continue;
		} else if (c == '\\') {
			if (s->p == s->end)
				return EINVAL;
			t->byte = *s->p++;
		}
		w->n++;
	}
	return 0;
}

struct wild *wild_new(const char *pattern, size_t len, bool path)
{
	if (len > WILD_BYTES_MAX || memchr(pattern, '\0', len)) {
		errno = EINVAL;
		return NULL;
	}
	struct wild *w = calloc(1, sizeof(*w) + (len + 1) * sizeof(w->tokens[0]));
	if (!w) {
		errno = ENOMEM;
		return NULL;
	}
	struct scan s = { (const uint8_t *)pattern, (const uint8_t *)pattern + len };
	int e = parse(w, &s, path);
	if (e) {
		wild_free(w);
		errno = e;
		return NULL;
	}
	return w;
}

/* ---- matching ---- */

/* A state is "all before token i is matched". Adds those that cost no byte. */
static void close_states(const struct wild *w, uint8_t *on)
{
	for (size_t i = 0; i < w->n; i++) {
		enum token_kind k = w->tokens[i].kind;
		if (!on[i] || k == TOKEN_BYTE || k == TOKEN_SET || k == TOKEN_INSIDE)
			continue;
		on[i + 1] = 1;
		if (k == TOKEN_FOLDERS)
			on[i + 2] = 1;
	}
}

static bool step(const struct token *t, uint8_t c)
{
	switch (t->kind) {
	case TOKEN_BYTE:
		return t->byte == c;
	case TOKEN_SET:
		return set_has(t->set, c);
	case TOKEN_STAR:
		return c != '/';
	case TOKEN_STARS:
	case TOKEN_INSIDE:
		return true;
	case TOKEN_FOLDERS: /* its second token takes the bytes */
		return false;
	}
	return false;
}

int wild_match(const struct wild *w, const char *text, size_t len, uint64_t *steps)
{
	uint8_t small[2][256] = { { 0 } }, *big = NULL, *now = small[0], *next = small[1];
	if (w->n >= sizeof(small[0])) {
		big = calloc(2, w->n + 1);
		if (!big)
			return -ENOMEM;
		now = big;
		next = big + w->n + 1;
	}
	now[0] = 1;
	close_states(w, now);
	for (size_t k = 0; k < len; k++) {
		bool any = false;
		memset(next, 0, w->n + 1);
		for (size_t i = 0; i < w->n; i++) {
			const struct token *t = &w->tokens[i];
			if (!now[i] || !step(t, (uint8_t)text[k]))
				continue;
			any = true;
			bool one = t->kind == TOKEN_BYTE || t->kind == TOKEN_SET;
			next[one ? i + 1 : i] = 1;
			if (t->kind == TOKEN_INSIDE && text[k] == '/')
				next[i + 1] = 1;
		}
		close_states(w, next);
		*steps += w->n + 1;
		uint8_t *t = now;
		now = next;
		next = t;
		if (!any)
			break;
	}
	int r = now[w->n];
	free(big);
	return r;
}

/* ---- paths ---- */

/* Bytes at the front that mean themselves. */
static size_t literal(const char *pattern, size_t len)
{
	size_t n = 0;
	while (n < len && !strchr("*?[\\", pattern[n]))
		n++;
	return n;
}

void path_pattern_done(struct path_pattern *p)
{
	free(p->text);
	wild_free(p->wild);
}

int path_pattern_parse(struct path_pattern *out, const char *s, size_t len)
{
	struct path_pattern p = { .by_name = !memchr(s, '/', len) };
	if (len && *s == '/')
		s++, len--;
	size_t plain = literal(s, len);
	p.suffix = p.by_name && len && *s == '*' && literal(s + 1, len - 1) == len - 1;
	if (p.suffix) {
		s++;
		plain = --len;
	} else if (p.by_name && plain < len) {
		plain = 0; /* the whole is one pattern */
	}
	p.text = strndup(s, plain);
	p.len = plain;
	if (!p.text)
		return -ENOMEM;
	if (plain < len && !(p.wild = wild_new(s + plain, len - plain, !p.by_name))) {
		int e = errno;
		path_pattern_done(&p);
		return e == ENOMEM ? -ENOMEM : 0;
	}
	*out = p;
	return 1;
}

int path_pattern_match(const struct path_pattern *p, const char *path, size_t len, uint64_t *steps)
{
	const char *slash = p->by_name ? memrchr(path, '/', len) : NULL;
	++*steps;
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
