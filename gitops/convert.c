#include "gitops/convert.h"

#include <errno.h>
#include <iconv.h>
#include <string.h>
#include <strings.h>

/* ---- which ---- */

enum crlf_action { CRLF_NONE, CRLF_BINARY, CRLF_TEXT, CRLF_INPUT, CRLF_AUTO };

static enum crlf_action crlf_action(const char *v)
{
	if (!v || v == attr_unset)
		return CRLF_NONE;
	if (v == attr_true)
		return CRLF_TEXT;
	if (v == attr_false)
		return CRLF_BINARY;
	return strcmp(v, "input") == 0  ? CRLF_INPUT
	       : strcmp(v, "auto") == 0 ? CRLF_AUTO
					: CRLF_NONE;
}

static bool is_text(const char *v)
{
	return v && v != attr_true && v != attr_false && v != attr_unset;
}

bool same_encoding(const char *a, const char *b)
{
	if (strncasecmp(a, "utf", 3) != 0 || strncasecmp(b, "utf", 3) != 0)
		return strcasecmp(a, b) == 0;
	a += 3 + (a[3] == '-');
	b += 3 + (b[3] == '-');
	return strcasecmp(a, b) == 0;
}

static bool is_eol(const char *v)
{
	return is_text(v) && (strcmp(v, "lf") == 0 || strcmp(v, "crlf") == 0);
}

void conversion_of(struct conversion *out, const struct attr_values *v)
{
	enum crlf_action action = crlf_action(v->v[ATTR_TEXT]);
	if (action == CRLF_NONE)
		action = crlf_action(v->v[ATTR_CRLF]);
	const char *eol = v->v[ATTR_EOL], *encoding = v->v[ATTR_ENCODING];
	bool crlf = is_eol(eol) && strcmp(eol, "crlf") == 0 && action != CRLF_BINARY;
	*out = (struct conversion){
		.eol = !crlf                 ? EOL_ASIS
		       : action == CRLF_AUTO ? EOL_AUTO_CRLF
					     : EOL_CRLF,
		.ident = v->v[ATTR_IDENT] == attr_true,
		.text = action != CRLF_BINARY && (action != CRLF_NONE || is_eol(eol)),
		.filter = is_text(v->v[ATTR_FILTER]) ? v->v[ATTR_FILTER] : NULL,
	};
	if (is_text(encoding) && *encoding && !same_encoding(encoding, "UTF-8"))
		out->encoding = encoding;
}

/* ---- $Id$ ---- */

/* Where "Id$" or an "Id: … $" of git's own kind that begins at s ends; NULL: it is none. The
 * caller's loop goes on behind the dollar. `stop`: no more can follow. */
static const char *keyword_end(const char *s, const char *end, bool *stop)
{
	if (end - s < 3 || memcmp(s, "Id", 2) != 0)
		return NULL;
	if (s[2] == '$')
		return s + 3;
	if (s[2] != ':')
		return NULL;
	const char *dollar = memchr(s + 3, '$', (size_t)(end - s - 3));
	if (!dollar) {
		*stop = true;
		return NULL;
	}
	if (memchr(s + 3, '\n', (size_t)(dollar - s - 3)))
		return NULL;
	/* Another system's keyword has blanks inside: it stays. */
	const char *blank = dollar > s + 4 ? memchr(s + 4, ' ', (size_t)(dollar - s - 4)) : NULL;
	return blank && blank < dollar - 1 ? NULL : dollar + 1;
}

static int put_ident(struct buf *out, const char *s, size_t len, const struct oid *blob)
{
	const char *end = s + len, *dollar;
	char hex[OID_HEX + 1];
	bool found = false, stop = false;
	oid_hex(hex, blob);
	while (!stop && (dollar = memchr(s, '$', (size_t)(end - s)))) {
		buf_add(out, s, (size_t)(dollar + 1 - s));
		s = dollar + 1;
		const char *next = keyword_end(s, end, &stop);
		if (!next)
			continue;
		buf_printf(out, "Id: %s $", hex);
		s = next;
		found = true;
	}
	buf_add(out, s, (size_t)(end - s));
	return found;
}

/* ---- ends of lines ---- */

struct line_ends {
	size_t cr, lf, crlf, printable, other;
	bool nul;
};

static void count_line_ends(struct line_ends *e, const uint8_t *s, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t c = s[i];
		if (c == '\r' && i + 1 < len && s[i + 1] == '\n') {
			e->crlf++;
			i++;
		} else if (c == '\r') {
			e->cr++;
		} else if (c == '\n') {
			e->lf++;
		} else if (c == 127 || (c < 32 && !memchr("\b\t\033\014", c, 4))) {
			e->other++;
			e->nul |= c == 0;
		} else {
			e->printable++;
		}
	}
	if (len > 0 && s[len - 1] == '\032') /* DOS's mark of the end */
		e->other--;
}

static bool wants_crlf(enum conversion_eol eol, const uint8_t *s, size_t len)
{
	struct line_ends e = { 0 };
	if (eol == EOL_ASIS)
		return false;
	count_line_ends(&e, s, len);
	if (e.lf == 0)
		return false;
	return eol == EOL_CRLF ||
	       (e.cr == 0 && e.crlf == 0 && !e.nul && e.printable >> 7 >= e.other);
}

static void put_crlf(struct buf *out, const char *s, size_t len)
{
	const char *end = s + len, *lf;
	while ((lf = memchr(s, '\n', (size_t)(end - s)))) {
		buf_add(out, s, (size_t)(lf - s));
		bool has_cr = lf > s && lf[-1] == '\r';
		buf_add(out, has_cr ? "\n" : "\r\n", has_cr ? 1 : 2);
		s = lf + 1;
	}
	buf_add(out, s, (size_t)(end - s));
}

/* ---- encodings ---- */

/* 1, or 0: it can't be written so, and stays, as git leaves it. -ENOMEM. */
static int put_encoded(struct buf *out, const char *encoding, const void *data, size_t len)
{
	const char *to = encoding;
	if (len == 0)
		return 0;
	if (same_encoding(to, "UTF-16LE-BOM")) {
		to = "UTF-16LE";
		buf_add(out, "\xff\xfe", 2);
	} else if (same_encoding(to, "UTF-16BE-BOM")) {
		to = "UTF-16BE";
		buf_add(out, "\xfe\xff", 2);
	} else if (strcasecmp(to, "latin-1") == 0) {
		to = "ISO-8859-1";
	}
	iconv_t cd = iconv_open(to, "UTF-8");
	if (cd == (iconv_t)-1)
		return errno == ENOMEM ? -ENOMEM : 0;
	char *in = (char *)data;
	int r = 1;
	while (len > 0 && r > 0) {
		size_t room = len * 2 + 64, left = room;
		char *p = (char *)buf_room(out, room);
		if (!p)
			r = -ENOMEM;
		else if (iconv(cd, &in, &len, &p, &left) == (size_t)-1 && errno != E2BIG)
			r = 0;
		else
			out->len += room - left;
	}
	(void)iconv_close(cd); /* it can't fail on one that is open */
	return r;
}

/* ---- all three ---- */

int convert_out(struct buf *out, const struct conversion *c, const void *data, size_t len,
		const struct oid *blob)
{
	auto_buf ident = { 0 }, lines = { 0 };
	bool changed = false;
	if (len > CONVERT_MAX)
		return 0;
	if (c->ident && put_ident(&ident, data, len, blob)) {
		data = ident.data;
		len = ident.len;
		changed = true;
	}
	if (buf_error(&ident) < 0)
		return -ENOMEM;
	if (wants_crlf(c->eol, data, len)) {
		put_crlf(&lines, data, len);
		if (buf_error(&lines) < 0)
			return -ENOMEM;
		data = lines.data;
		len = lines.len;
		changed = true;
	}
	size_t before = out->len;
	int r = c->encoding ? put_encoded(out, c->encoding, data, len) : 0;
	if (r != 0)
		return r < 0 ? r : buf_error(out) < 0 ? -ENOMEM : 1;
	out->len = before;
	if (!changed)
		return 0;
	buf_add(out, data, len);
	return buf_error(out) < 0 ? -ENOMEM : 1;
}

bool is_lfs_pointer(const void *data, size_t len)
{
	static const char v1[] = "version https://git-lfs.github.com/spec/v1\n";
	return len <= LFS_POINTER_MAX && len >= sizeof(v1) - 1 &&
	       memcmp(data, v1, sizeof(v1) - 1) == 0;
}
