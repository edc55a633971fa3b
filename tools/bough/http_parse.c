#include "tools/bough/http_parse.h"

#include <stdio.h>
#include <string.h>

enum {
	CHUNK_LINE_MAX = 2048, /* size and extensions: a reason of 508 bytes may be encoded */
	SIZE_DIGITS_MAX = 15,  /* hexadecimal: below 2^60; decimal: below 10^15 */
};

static int bad(const char **why, const char *text)
{
	*why = text;
	return -1;
}

/* The length of a line at p without its CRLF; -1 when its end isn't there yet. */
static ssize_t line_length(const uint8_t *p, size_t n)
{
	const uint8_t *nl = n ? memchr(p, '\n', n) : NULL;
	return nl ? nl - p : -1;
}

static bool is_token(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int lower(int c)
{
	return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

static bool same(const uint8_t *p, size_t n, const char *word)
{
	if (strlen(word) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if (lower(p[i]) != word[i])
			return false;
	return true;
}

static int parse_status(const uint8_t *p, size_t n, struct http_head *head, const char **why)
{
	if (n < 12 || memcmp(p, "HTTP/1.", 7) != 0 || (p[7] != '0' && p[7] != '1') || p[8] != ' ')
		return bad(why, "no status line");
	unsigned status = 0;
	for (int i = 9; i < 12; i++) {
		if (p[i] < '0' || p[i] > '9')
			return bad(why, "no status");
		status = status * 10 + p[i] - '0';
	}
	if (status < 100 || status > 599 || (n > 12 && p[12] != ' '))
		return bad(why, "no status");
	head->status = status;
	return 0;
}

static int parse_length(const uint8_t *p, size_t n, int64_t *length, const char **why)
{
	if (n == 0 || n > SIZE_DIGITS_MAX)
		return bad(why, "a wrong Content-Length");
	int64_t v = 0;
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return bad(why, "a wrong Content-Length");
		v = v * 10 + p[i] - '0';
	}
	if (*length >= 0 && *length != v)
		return bad(why, "two lengths");
	*length = v;
	return 0;
}

static void parse_type(const uint8_t *p, size_t n, struct http_head *head)
{
	size_t k = 0;
	while (k < n && k + 1 < sizeof(head->type) && p[k] != ';' && p[k] != ' ') {
		head->type[k] = (char)lower(p[k]);
		k++;
	}
	head->type[k] = 0;
}

/* "" when it doesn't fit: half of it would be another's. */
static void parse_text(const uint8_t *p, size_t n, char out[HTTP_FIELD_MAX])
{
	if (n >= HTTP_FIELD_MAX)
		n = 0;
	memcpy(out, p, n);
	out[n] = 0;
}

/* One header line; only those that frame or name the body mean something here. */
static int parse_field(const uint8_t *p, size_t n, struct http_head *head, bool *chunked,
		       const char **why)
{
	size_t k = 0;
	while (k < n && is_token(p[k]))
		k++;
	if (k == 0 || k == n || p[k] != ':')
		return bad(why, "a broken header line");
	const uint8_t *v = p + k + 1;
	size_t len = n - k - 1;
	while (len > 0 && (*v == ' ' || *v == '\t'))
		v++, len--;
	while (len > 0 && (v[len - 1] == ' ' || v[len - 1] == '\t'))
		len--;
	for (size_t i = 0; i < len; i++)
		if ((v[i] < ' ' && v[i] != '\t') || v[i] == 127)
			return bad(why, "a control character in a header");
	if (same(p, k, "content-length"))
		return parse_length(v, len, &head->length, why);
	if (same(p, k, "content-type")) {
		parse_type(v, len, head);
	} else if (same(p, k, "etag")) {
		parse_text(v, len, head->etag);
	} else if (same(p, k, "sec-websocket-accept")) {
		parse_text(v, len, head->accept);
	} else if (same(p, k, "location")) {
		parse_text(v, len, head->location);
	} else if (same(p, k, "upload-offset")) {
		return parse_length(v, len, &head->upload_offset, why);
	} else if (same(p, k, "transfer-encoding")) {
		if (*chunked || !same(v, len, "chunked"))
			return bad(why, "an unknown Transfer-Encoding");
		*chunked = true;
	}
	return 0;
}

static int settle_framing(struct http_head *head, bool chunked, struct http_framing *f,
			  const char **why)
{
	*f = (struct http_framing){ .chunked = chunked };
	if (chunked && head->length >= 0)
		return bad(why, "both a length and chunks");
	if (head->status < 200 || head->status == 204 || head->status == 304) {
		if (chunked || head->length > 0)
			return bad(why, "a body where none may be");
		head->length = 0;
	} else if (!chunked && head->length < 0) {
		return bad(why, "a body without a length");
	}
	if (!chunked) {
		f->left = (uint64_t)head->length;
		f->done = true;
	}
	return 0;
}

ssize_t http_parse_head(const uint8_t *p, size_t n, struct http_head *head,
			struct http_framing *framing, const char **why)
{
	size_t pos = 0;
	bool chunked = false;
	*head = (struct http_head){ .length = -1, .upload_offset = -1 };
	*framing = (struct http_framing){ 0 };
	if (n == 0)
		return 0;
	for (unsigned line = 0;; line++) {
		ssize_t len = line_length(p + pos, n - pos);
		if (len < 0)
			return n >= HTTP_HEAD_MAX ? bad(why, "a head that never ends") : 0;
		if (pos + (size_t)len >= HTTP_HEAD_MAX)
			return bad(why, "a head that never ends");
		const uint8_t *at = p + pos;
		pos += (size_t)len + 1;
		if (len == 0 || at[len - 1] != '\r')
			return bad(why, "a line without CR");
		len--;
		if (line == 0) {
			if (parse_status(at, (size_t)len, head, why) < 0)
				return -1;
		} else if (len == 0) {
			break;
		} else if (parse_field(at, (size_t)len, head, &chunked, why) < 0) {
			return -1;
		}
	}
	return settle_framing(head, chunked, framing, why) < 0 ? -1 : (ssize_t)pos;
}

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (uint8_t)lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_chunk_size(struct http_framing *f, const uint8_t *p, size_t n, const char **why)
{
	size_t k = 0;
	uint64_t v = 0;
	while (k < n && hex_digit(p[k]) >= 0) {
		if (k >= SIZE_DIGITS_MAX)
			return bad(why, "a chunk's size out of range");
		v = v * 16 + (uint64_t)hex_digit(p[k++]);
	}
	if (k == 0 || (k < n && p[k] != ';' && p[k] != ' ' && p[k] != '\t'))
		return bad(why, "no chunk size");
	if (v == 0)
		f->trailer = true;
	else
		f->started = true;
	f->left = v;
	f->said = p + k;
	f->said_len = n - k;
	return 0;
}

ssize_t http_parse_chunk(struct http_framing *f, const uint8_t *p, size_t n, const char **why)
{
	f->said = NULL;
	f->said_len = 0;
	if (f->started) { /* the CRLF behind a chunk's data */
		if ((n > 0 && p[0] != '\r') || (n > 1 && p[1] != '\n'))
			return bad(why, "a chunk longer than its size");
		if (n < 2)
			return 0;
		f->started = false;
		return 2;
	}
	ssize_t len = line_length(p, n);
	if (len < 0)
		return n > CHUNK_LINE_MAX && !f->trailer ? bad(why, "no chunk size")
		       : n > HTTP_HEAD_MAX               ? bad(why, "a trailer that never ends")
							 : 0;
	if (len == 0 || p[len - 1] != '\r')
		return bad(why, "a line without CR");
	if (!f->trailer) {
		if (len > CHUNK_LINE_MAX)
			return bad(why, "a chunk's head that never ends");
		if (parse_chunk_size(f, p, (size_t)len - 1, why) < 0)
			return -1;
		return len + 1;
	}
	f->trailer_bytes += (uint32_t)len + 1;
	if (len > HTTP_HEAD_MAX || f->trailer_bytes > HTTP_HEAD_MAX)
		return bad(why, "a trailer that never ends");
	if (len == 1)
		f->done = true;
	f->said = p;
	f->said_len = (size_t)len - 1;
	return len + 1;
}

/* ---- what boughd says in them ---- */

/* Decodes %XX of the n bytes; NUL becomes '?'. Cuts what doesn't fit. */
static void unescape(char *out, size_t size, const uint8_t *p, size_t n)
{
	size_t k = 0;
	for (size_t i = 0; i < n && k + 1 < size; i++) {
		int c = p[i];
		if (c == '%' && i + 2 < n && hex_digit(p[i + 1]) >= 0 && hex_digit(p[i + 2]) >= 0) {
			c = hex_digit(p[i + 1]) * 16 + hex_digit(p[i + 2]);
			i += 2;
		}
		out[k++] = (char)(c ? c : '?');
	}
	out[k] = 0;
}

bool http_parse_failure(const uint8_t *said, size_t n, char code[HTTP_CODE_MAX],
			char text[HTTP_REASON_MAX])
{
	bool failed = false;
	code[0] = text[0] = 0;
	for (size_t i = 0; i < n;) {
		const uint8_t *p = said + i, *end = memchr(p, ';', n - i);
		size_t len = end ? (size_t)(end - p) : n - i;
		if (len > 5 && !memcmp(p, "code=", 5))
			unescape(code, HTTP_CODE_MAX, p + 5, len - 5);
		if (len > 6 && !memcmp(p, "error=", 6)) {
			unescape(text, HTTP_REASON_MAX, p + 6, len - 6);
			failed = true;
		}
		i += len + 1;
	}
	return failed;
}

const uint8_t *http_parse_value(const uint8_t *line, size_t n, const char *name, size_t *len)
{
	size_t k = strlen(name);
	if (n <= k || line[k] != ':' || !same(line, k, name))
		return NULL;
	for (k++; k < n && (line[k] == ' ' || line[k] == '\t');)
		k++;
	while (n > k && (line[n - 1] == ' ' || line[n - 1] == '\t'))
		n--;
	*len = n - k;
	return line + k;
}
