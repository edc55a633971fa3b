#include "snapd/files_form.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void form_init(struct form *f, const char *boundary)
{
	*f = (struct form){ .state = FORM_BEFORE };
	(void)snprintf(f->delimiter, sizeof(f->delimiter), "\r\n--%s", boundary);
	f->delimiter_len = strlen(f->delimiter);
	f->matched = 2; /* the first one may be without its line's beginning */
}

/* ---- a part's head ---- */

/* The value of `name` among the parameters of a Content-Disposition, from p on, without its quotes;
 * NULL: there is none. */
static const char *find_name(const char *p, const char *end, size_t *len)
{
	while (p < end) {
		bool quoted = false;
		const char *q = p;
		for (; q < end && (quoted || *q != ';'); q++) {
			if (quoted && *q == '\\' && q + 1 < end)
				q++;
			else if (*q == '"')
				quoted = !quoted;
		}
		while (p < q && (*p == ' ' || *p == '\t'))
			p++;
		size_t n = (size_t)(q - p);
		while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
			n--;
		if (n >= 5 && strncasecmp(p, "name=", 5) == 0) {
			bool marks = n >= 7 && p[5] == '"' && p[n - 1] == '"';
			*len = n - 5 - (marks ? 2 : 0);
			return p + 5 + marks;
		}
		p = q < end ? q + 1 : q;
	}
	return NULL;
}

/* The name that the lines of f->head, each ended by CR LF, give the part; NULL: none. */
static const char *name_of(const struct form *f, size_t *len)
{
	static const char field[] = "content-disposition:";
	const char *end = f->head + f->head_len;
	for (const char *p = f->head; p < end;) {
		const char *eol = memchr(p, '\r', (size_t)(end - p));
		if (!eol)
			eol = end;
		if ((size_t)(eol - p) > sizeof(field) - 1 &&
		    strncasecmp(p, field, sizeof(field) - 1) == 0)
			return find_name(p + sizeof(field) - 1, eol, len);
		p = eol + 2;
	}
	return NULL;
}

void form_all(struct form *f,
	      int (*part)(void *ctx, const char *name, size_t len, struct err *err), void *ctx)
{
	f->part = part;
	f->part_ctx = ctx;
}

/* ---- bytes ---- */

struct sink {
	int (*put)(void *ctx, const void *data, size_t n, struct err *err);
	void *ctx;
	struct err *err;
};

static int give(const struct form *f, const struct sink *to, const char *p, size_t n)
{
	return f->state == FORM_PART && f->ours && n > 0 ? to->put(to->ctx, p, n, to->err) : 0;
}

/* Content, or what stands before the first part, up to a delimiter. Takes at least a byte. */
static int take_content(struct form *f, const struct sink *to, const char *p, size_t n,
			size_t *taken)
{
	size_t i = 0;
	int r = 0;
	while (i < n && f->matched < f->delimiter_len) {
		if (p[i] == f->delimiter[f->matched]) {
			f->matched++;
			i++;
			continue;
		}
		/* A CR is nowhere in it but at its beginning: what matched so far was content. */
		r = give(f, to, f->delimiter, f->matched);
		f->matched = 0;
		if (r < 0)
			return r;
		const char *cr = memchr(p + i, '\r', n - i);
		size_t plain = cr ? (size_t)(cr - p) - i : n - i;
		r = give(f, to, p + i, plain);
		if (r < 0)
			return r;
		i += plain;
	}
	*taken = i;
	if (f->matched == f->delimiter_len) {
		f->had |= f->state == FORM_PART && f->ours;
		f->state = FORM_LINE;
		f->matched = 0;
		f->head_len = 0;
	}
	return 0;
}

/* The rest of a delimiter's line: "--", or nothing but blanks. */
static int take_line(struct form *f, char c, struct err *err)
{
	char *h = f->head;
	if (f->head_len == 0 && (c == ' ' || c == '\t'))
		return 0;
	h[f->head_len++] = c;
	if (f->head_len < 2)
		return c == '-' || c == '\r'
			       ? 0
			       : err_set(err, -EINVAL, "the form's boundary is followed by more");
	if (h[0] == '-' && h[1] == '-') {
		f->state = FORM_END;
	} else if (h[0] == '\r' && h[1] == '\n') {
		f->state = FORM_HEAD;
		f->head_len = 0;
	} else {
		return err_set(err, -EINVAL, "the form's boundary is followed by more");
	}
	return 0;
}

static int take_head(struct form *f, char c, struct err *err)
{
	if (f->head_len == sizeof(f->head))
		return err_set(err, -EINVAL, "the head of a part of the form is above %d bytes",
			       FORM_HEAD_MAX);
	f->head[f->head_len++] = c;
	const char *h = f->head;
	size_t n = f->head_len;
	bool none = n == 2 && memcmp(h, "\r\n", 2) == 0;
	if (!none && (n < 4 || memcmp(h + n - 4, "\r\n\r\n", 4) != 0))
		return 0;
	size_t len = 0;
	const char *name = name_of(f, &len);
	f->ours = f->part || (!f->had && name && len == 4 && strncasecmp(name, "file", 4) == 0);
	f->state = FORM_PART;
	f->matched = 0;
	return f->part ? f->part(f->part_ctx, name ? name : "", len, err) : 0;
}

int form_feed(struct form *f, const void *data, size_t n,
	      int (*put)(void *ctx, const void *data, size_t n, struct err *err), void *ctx,
	      struct err *err)
{
	const struct sink to = { put, ctx, err };
	const char *p = data;
	int r = 0;
	while (n > 0 && r == 0 && f->state != FORM_END) {
		size_t taken = 1;
		if (f->state == FORM_LINE)
			r = take_line(f, *p, err);
		else if (f->state == FORM_HEAD)
			r = take_head(f, *p, err);
		else
			r = take_content(f, &to, p, n, &taken);
		p += taken;
		n -= taken;
	}
	return r;
}

int form_finish(const struct form *f, struct err *err)
{
	if (f->state != FORM_END)
		return err_set(err, -EINVAL, "the form is cut off, or none");
	return f->had || f->part ? 0
				 : err_set(err, -EINVAL, "the form has no part named \"file\"");
}
