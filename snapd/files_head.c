#include "snapd/files_head.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "fs/base/base64.h"

static const char *const codings[CODINGS] = { "identity", "gzip", "zstd" };

const char *coding_name(enum coding c)
{
	return codings[c];
}

static const char *skip_blanks(const char *p)
{
	return p + strspn(p, " \t");
}

/* The length of s without blanks at its end. */
static size_t trimmed(const char *s, size_t n)
{
	while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'))
		n--;
	return n;
}

static bool is_word(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

/* ---- ranges ---- */

/* Digits; one that is too large counts as the largest. False: none are there. */
static bool number(const char **p, uint64_t *out)
{
	uint64_t v = 0;
	const char *s = *p;
	for (; *s >= '0' && *s <= '9'; s++) {
		unsigned digit = (unsigned)(*s - '0');
		v = v > (UINT64_MAX - digit) / 10 ? UINT64_MAX : v * 10 + digit;
	}
	if (s == *p)
		return false;
	*p = s;
	*out = v;
	return true;
}

enum head_range head_range(const char *value, uint64_t size, uint64_t *off, uint64_t *len)
{
	uint64_t first = 0, last = UINT64_MAX;
	if (!value || strncasecmp(value, "bytes", 5) != 0)
		return RANGE_ALL;
	const char *p = skip_blanks(value + 5);
	if (*p != '=')
		return RANGE_ALL;
	p = skip_blanks(p + 1);
	bool has_first = number(&p, &first);
	if (*p++ != '-')
		return RANGE_ALL;
	bool has_last = number(&p, &last);
	if (*skip_blanks(p) || (!has_first && !has_last) || (has_first && has_last && last < first))
		return RANGE_ALL;
	if (!has_first) { /* so many bytes at the end */
		if (last == 0 || size == 0)
			return RANGE_NEVER;
		*len = last < size ? last : size;
		*off = size - *len;
		return RANGE_ONE;
	}
	if (first >= size)
		return RANGE_NEVER;
	*off = first;
	*len = (last < size - 1 ? last : size - 1) - first + 1;
	return RANGE_ONE;
}

/* ---- entity tags ---- */

int head_tags_parse(struct head_tags *out, const char *value)
{
	struct head_tags t = { 0 };
	const char *p = skip_blanks(value);
	if (*p == '*') {
		if (*skip_blanks(p + 1))
			return -EINVAL;
		t.any = true;
		*out = t;
		return 0;
	}
	while (*p) {
		struct head_tag one = { .weak = strncmp(p, "W/", 2) == 0 };
		p += one.weak ? 2 : 0;
		if (*p++ != '"' || t.n == HEAD_TAGS_MAX)
			return -EINVAL;
		one.text = p;
		one.len = strcspn(p, "\"");
		p += one.len;
		if (*p++ != '"')
			return -EINVAL;
		t.tags[t.n++] = one;
		p = skip_blanks(p);
		if (*p == ',') {
			p += strspn(p, ", \t"); /* empty members are allowed */
			continue;
		}
		if (*p)
			return -EINVAL;
	}
	if (t.n == 0)
		return -EINVAL;
	*out = t;
	return 0;
}

const char *head_tag_text(char out[HEAD_TAG_TEXT], const struct version_id *v, enum coding c)
{
	char text[VERSION_TEXT];
	(void)snprintf(out, HEAD_TAG_TEXT, "\"%s%s%s\"", version_text(text, v),
		       c == CODING_IDENTITY ? "" : "-", c == CODING_IDENTITY ? "" : codings[c]);
	return out;
}

int head_tag_read(const struct head_tag *t, struct version_id *v, enum coding *c)
{
	const char *dash = memchr(t->text, '-', t->len);
	size_t n = dash ? (size_t)(dash - t->text) : t->len;
	*c = CODING_IDENTITY;
	for (int i = 1; dash && i < CODINGS; i++)
		if (strlen(codings[i]) == t->len - n - 1 &&
		    memcmp(dash + 1, codings[i], t->len - n - 1) == 0)
			*c = (enum coding)i;
	if (dash && *c == CODING_IDENTITY)
		return -EINVAL;
	return version_parse(v, t->text, n);
}

/* ---- codings ---- */

/* "q=0.5" among the parameters in [p, end): thousandths. */
static unsigned quality(const char *p, const char *end)
{
	for (; p < end; p++) {
		if (*p != ';')
			continue;
		const char *q = skip_blanks(p + 1);
		if (q + 2 >= end || (*q | 0x20) != 'q' || q[1] != '=')
			continue;
		if (q[2] != '0')
			return 1000;
		unsigned v = 0, scale = 100;
		for (q += 3 + (q[3] == '.'); q < end && *q >= '0' && *q <= '9'; q++, scale /= 10)
			v += (unsigned)(*q - '0') * scale;
		return v;
	}
	return 1000;
}

enum coding head_accepts(const char *value)
{
	unsigned best[CODINGS] = { 0 };
	bool identity = false;
	for (const char *p = value; p && *p;) {
		const char *end = strchrnul(p, ',');
		p = skip_blanks(p);
		size_t n = p < end ? trimmed(p, strcspn(p, ";,")) : 0;
		for (int i = 0; i < CODINGS; i++)
			if (n > 0 && (is_word(p, n, codings[i]) ||
				      (i == CODING_GZIP && is_word(p, n, "x-gzip")))) {
				best[i] = quality(p + n, end);
				identity |= i == CODING_IDENTITY;
			}
		p = *end ? end + 1 : end;
	}
	enum coding c = best[CODING_ZSTD] >= best[CODING_GZIP] ? CODING_ZSTD : CODING_GZIP;
	return best[c] == 0 || (identity && best[CODING_IDENTITY] > best[c]) ? CODING_IDENTITY : c;
}

enum coding head_coding(const char *value)
{
	const char *p = value ? skip_blanks(value) : "";
	size_t n = trimmed(p, strlen(p));
	if (n == 0)
		return CODING_IDENTITY;
	for (int i = 0; i < CODINGS; i++)
		if (is_word(p, n, codings[i]))
			return (enum coding)i;
	return is_word(p, n, "x-gzip") ? CODING_GZIP : CODING_UNKNOWN;
}

/* ---- digests ---- */

/* The member of a dictionary (RFC 9651), from behind its '=' on; NULL: it isn't there. */
static const char *member(const char *value, const char *key, size_t *len)
{
	const char *found = NULL;
	for (const char *p = value; p && *p;) {
		const char *end = strchrnul(p, ',');
		p = skip_blanks(p);
		size_t n = strlen(key);
		if (strncmp(p, key, n) == 0 && p[n] == '=') {
			found = p + n + 1; /* the last one counts */
			*len = trimmed(found, (size_t)(end - found));
		}
		p = *end ? end + 1 : end;
	}
	return found;
}

int head_digest(const char *value, struct digest *out)
{
	struct digest d;
	size_t len;
	const char *s = member(value, "sha-256", &len);
	if (!s)
		return 0;
	if (len != 46 || s[0] != ':' || s[45] != ':' ||
	    base64_decode(s + 1, 44, d.b, sizeof(d.b)) != sizeof(d.b))
		return -EINVAL;
	*out = d;
	return 1;
}

bool head_wants_digest(const char *value)
{
	size_t len;
	const char *s = member(value, "sha-256", &len);
	return s && len > 0 && s[0] >= '1' && s[0] <= '9';
}

const char *head_digest_text(char out[HEAD_DIGEST_TEXT], const struct digest *d)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";
	static const char before[] = "sha-256=:";
	char *p = out;
	memcpy(p, before, sizeof(before) - 1);
	p += sizeof(before) - 1;
	for (size_t i = 0; i < sizeof(d->b); i += 3) {
		uint32_t v = (uint32_t)d->b[i] << 16;
		v |= i + 1 < sizeof(d->b) ? (uint32_t)d->b[i + 1] << 8 : 0;
		v |= i + 2 < sizeof(d->b) ? (uint32_t)d->b[i + 2] : 0;
		for (int k = 18; k >= 0; k -= 6)
			*p++ = digits[v >> k & 63];
	}
	p[-1] = '='; /* 32 bytes are 43 digits */
	*p++ = ':';
	*p = '\0';
	return out;
}

/* ---- multipart ---- */

int head_boundary(const char *type, char out[HEAD_BOUNDARY])
{
	static const char form[] = "multipart/form-data";
	const char *p = type ? skip_blanks(type) : "";
	if (strncasecmp(p, form, sizeof(form) - 1) != 0)
		return 0;
	p += sizeof(form) - 1;
	while (*(p = skip_blanks(p)) == ';') {
		p = skip_blanks(p + 1);
		size_t n = strcspn(p, "=;");
		bool wanted = is_word(p, trimmed(p, n), "boundary");
		p += n;
		if (*p != '=')
			continue;
		bool quoted = *++p == '"';
		p += quoted;
		size_t len = strcspn(p, quoted ? "\"" : "; \t");
		if (wanted) {
			if (len == 0 || len >= HEAD_BOUNDARY || memchr(p, '\r', len) ||
			    memchr(p, '\n', len))
				return -EINVAL;
			memcpy(out, p, len);
			out[len] = '\0';
			return 1;
		}
		p += len;
		p += quoted && *p == '"';
	}
	return -EINVAL;
}

/* ---- times ---- */

const char *head_date(char out[HEAD_DATE], time_t t)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	struct tm tm;
	out[0] = '\0';
	if (!gmtime_r(&t, &tm) || tm.tm_year < -1900 || tm.tm_year > 9999 - 1900)
		return out;
	(void)snprintf(out, HEAD_DATE, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
		       days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900,
		       tm.tm_hour, tm.tm_min, tm.tm_sec);
	return out;
}
