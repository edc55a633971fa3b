#include "gitops/togit.h"

#include <errno.h>
#include <iconv.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "fs/base/cleanup.h"
#include "gitops/attributes.h"
#include "gitops/convert.h"

struct counts {
	size_t nul, lone_cr, crlf, printable, other;
};

static void count(struct counts *c, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t b = p[i];
		if (b == '\r') {
			if (i + 1 < len && p[i + 1] == '\n') {
				c->crlf++;
				i++;
			} else {
				c->lone_cr++;
			}
		} else if (b == '\n') {
			continue;
		} else if (b == '\b' || b == '\t' || b == '\033' || b == '\f') {
			c->printable++;
		} else if (b < 0x20 || b == 0x7f) {
			c->other++;
			c->nul += b == 0;
		} else {
			c->printable++;
		}
	}
	if (len && p[len - 1] == '\032') /* the end of a file of DOS */
		c->other--;
}

static bool looks_binary(const struct counts *c)
{
	return c->lone_cr || c->nul || c->printable >> 7 < c->other;
}

bool togit_has_crlf(const void *data, size_t len)
{
	struct counts c = { 0 };
	count(&c, data, len);
	return c.crlf && !looks_binary(&c);
}

/* ---- encoding ---- */

enum { BOM_16 = 1, BOM_32 = 2 }; /* of either order */

static unsigned boms(const uint8_t *p, size_t len)
{
	unsigned found = 0;
	if (len >= 2 && (memcmp(p, "\xff\xfe", 2) == 0 || memcmp(p, "\xfe\xff", 2) == 0))
		found |= BOM_16;
	if (len >= 4 && (memcmp(p, "\xff\xfe\0\0", 4) == 0 || memcmp(p, "\0\0\xfe\xff", 4) == 0))
		found |= BOM_32;
	return found;
}

/* UTF-16 and UTF-32 need a byte order mark, and where the name says the order there must be none.
 * The encodings "…-BOM" are git's own: they say what it writes; either order is read. */
static int check_bom(const char *encoding, const uint8_t *p, size_t len, struct err *err)
{
	static const struct {
		const char *name;
		unsigned bom;
		bool wanted;
	} rows[] = {
		{ "UTF-16", BOM_16, true },    { "UTF-32", BOM_32, true },
		{ "UTF-16LE", BOM_16, false }, { "UTF-16BE", BOM_16, false },
		{ "UTF-32LE", BOM_32, false }, { "UTF-32BE", BOM_32, false },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (same_encoding(encoding, rows[i].name) &&
		    rows[i].wanted != !!(boms(p, len) & rows[i].bom))
			return err_set(err, -EILSEQ, "%s a byte order mark, and .gitattributes "
				       "says %s",
				       rows[i].wanted ? "it lacks" : "it has", encoding);
	return 0;
}

/* As iconv calls it. */
static const char *iconv_name(const char *encoding)
{
	if (same_encoding(encoding, "UTF-16LE-BOM") || same_encoding(encoding, "UTF-16BE-BOM"))
		return "UTF-16";
	return strcasecmp(encoding, "latin-1") == 0 ? "ISO-8859-1" : encoding;
}

static int encode(struct buf *out, const char *encoding, const void *data, size_t len,
		  struct err *err)
{
	int bad = check_bom(encoding, data, len, err);
	if (bad < 0)
		return bad;
	iconv_t cd = iconv_open("UTF-8", iconv_name(encoding));
	if (cd == (iconv_t)-1 && errno == ENOMEM)
		return err_no_memory(err);
	if (cd == (iconv_t)-1)
		return err_set(err, -ENOTSUP,
			       "its encoding, as .gitattributes says, isn't known here: %s",
			       encoding);
	char *in = (char *)(uintptr_t)data; /* iconv doesn't write to it */
	size_t left = len;
	int r = 0;
	while (left > 0 && r == 0) {
		size_t room = left + left / 2 + 64;
		char *to = (char *)buf_room(out, room);
		if (!to) {
			r = err_no_memory(err);
			break;
		}
		size_t had = room;
		if (iconv(cd, &in, &left, &to, &room) == (size_t)-1 && errno != E2BIG)
			r = err_set(err, -EILSEQ, "it isn't %s, as .gitattributes says", encoding);
		out->len += had - room;
	}
	(void)iconv_close(cd);
	return r;
}

/* ---- ends of lines ---- */

static int strip_cr(struct buf *out, const struct path_attrs *a, const uint8_t *p, size_t len,
		    bool crlf_in_git)
{
	struct counts c = { 0 };
	if (a->eol == EOL_KEEP)
		return 0;
	count(&c, p, len);
	if (!c.crlf || (a->eol == EOL_AUTO && (looks_binary(&c) || crlf_in_git)))
		return 0;
	uint8_t *to = buf_room(out, len);
	if (!to)
		return -ENOMEM;
	size_t n = 0;
	for (size_t i = 0; i < len; i++)
		if (p[i] != '\r' || i + 1 == len || p[i + 1] != '\n')
			to[n++] = p[i];
	out->len += n;
	return 1;
}

/* ---- $Id$ ---- */

/* Where the text behind "$Id" at p ends: at the "$" that closes it on the same line; NULL: nowhere,
 * or it is "$Id$" already. What has foreign blanks in it, as CVS writes, stays. */
static const uint8_t *ident_end(const uint8_t *p, const uint8_t *end)
{
	if (p == end || *p != ':')
		return NULL;
	for (const uint8_t *q = p + 1; q < end && *q != '\n'; q++)
		if (*q == '$')
			return q;
	return NULL;
}

static int strip_ident(struct buf *out, const uint8_t *p, size_t len)
{
	const uint8_t *end = p + len, *from = p;
	bool any = false;
	while (p < end) {
		const uint8_t *at = memmem(p, (size_t)(end - p), "$Id", 3);
		if (!at)
			break;
		p = at + 3;
		const uint8_t *close = ident_end(p, end);
		if (!close)
			continue;
		any = true;
		buf_add(out, from, (size_t)(p - from));
		from = close;
		p = close + 1;
	}
	if (!any)
		return 0;
	buf_add(out, from, (size_t)(end - from));
	return buf_error(out) < 0 ? -ENOMEM : 1;
}

/* ---- what .gitattributes say ---- */

static bool says(const char *value, const char *what)
{
	return value && value != attr_true && value != attr_false && value != attr_unset &&
	       strcmp(value, what) == 0;
}

void path_attrs_of(struct path_attrs *out, const struct attr_values *a)
{
	const char *text = a->v[ATTR_TEXT], *eol = a->v[ATTR_EOL], *encoding = a->v[ATTR_ENCODING];
	bool known = text == attr_true || text == attr_false || says(text, "auto") ||
		     says(text, "input");
	if (!known)
		text = a->v[ATTR_CRLF];
	*out = (struct path_attrs){ .ident = a->v[ATTR_IDENT] == attr_true };
	if (says(text, "auto"))
		out->eol = EOL_AUTO;
	else if (text == attr_true || says(text, "input"))
		out->eol = EOL_TEXT;
	else if (text != attr_false && (says(eol, "lf") || says(eol, "crlf")))
		out->eol = EOL_TEXT;
	const char *filter = a->v[ATTR_FILTER];
	out->filter = filter && filter != attr_true && filter != attr_false && filter != attr_unset;
	if (encoding && encoding != attr_true && encoding != attr_false && encoding != attr_unset &&
	    strcasecmp(encoding, "utf-8") != 0 && strcasecmp(encoding, "utf8") != 0 &&
	    strlen(encoding) < sizeof(out->encoding))
		(void)snprintf(out->encoding, sizeof(out->encoding), "%s", encoding);
}

int togit(struct buf *out, const struct path_attrs *a, const void *data, size_t len,
	  bool crlf_in_git, struct err *err)
{
	auto_buf encoded = { 0 }, stripped = { 0 };
	const uint8_t *p = data;
	int r = 0, any = 0;
	if (len == 0)
		return 0;
	if (a->encoding[0]) {
		r = encode(&encoded, a->encoding, p, len, err);
		if (r < 0)
			return r;
		p = encoded.data;
		len = encoded.len;
		any = 1;
	}
	r = strip_cr(&stripped, a, p, len, crlf_in_git);
	if (r > 0) {
		p = stripped.data;
		len = stripped.len;
		any = 1;
	}
	if (r >= 0 && a->ident) {
		r = strip_ident(out, p, len);
		if (r > 0)
			return 1;
	}
	if (r >= 0 && any) {
		buf_reset(out);
		buf_add(out, p, len);
		r = buf_error(out);
	}
	return r < 0 ? err_no_memory(err) : any;
}
