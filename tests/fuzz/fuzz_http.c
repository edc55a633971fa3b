/* The HTTP client's decoders: a head, then the framing of what follows, in pieces whose
 * sizes the first byte of the input chooses. */
#include <assert.h>
#include <string.h>
#include "tools/bough/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What stands beside the sizes and in the trailer. */
static void read_said(const struct http_framing *f)
{
	char code[HTTP_CODE_MAX], text[HTTP_REASON_MAX];
	size_t len = 0;
	bool failed = http_parse_failure(f->said, f->said_len, code, text);
	assert(memchr(code, 0, sizeof(code)) && memchr(text, 0, sizeof(text)));
	assert(!failed || *text);
	const uint8_t *v = http_parse_value(f->said, f->said_len, "bough-summary", &len);
	assert(!v || (v > f->said && v + len <= f->said + f->said_len));
}

/* Consumes the body as http.c does, seeing `step` more bytes each time. */
static void read_body(struct http_framing *f, const uint8_t *p, size_t n, size_t step)
{
	size_t pos = 0, seen = 0;
	while (f->left > 0 || !f->done) {
		const char *why = NULL;
		if (f->left > 0) {
			uint64_t take = seen - pos < f->left ? seen - pos : f->left;
			pos += (size_t)take;
			f->left -= take;
			if (f->left > 0 && seen == n)
				return; /* cut */
		} else {
			ssize_t used = http_parse_chunk(f, p + pos, seen - pos, &why);
			assert(used <= (ssize_t)(seen - pos));
			if (used < 0) {
				assert(why);
				return;
			}
			if (f->said_len)
				read_said(f);
			pos += (size_t)used;
			if (used > 0)
				continue;
			if (seen == n)
				return;
		}
		seen = n - seen < step ? n : seen + step;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	size_t step = data[0] % 64 + 1;
	const uint8_t *p = data + 1;
	size_t n = size - 1;
	struct http_head head;
	struct http_framing f;
	const char *why = NULL;
	ssize_t used = http_parse_head(p, n, &head, &f, &why);
	if (used <= 0) {
		assert(used == 0 || why);
		return 0;
	}
	assert((size_t)used <= n);
	assert(head.status >= 100 && head.status <= 599);
	assert(memchr(head.type, 0, sizeof(head.type)));
	assert(f.chunked == (head.length < 0));
	/* A prefix of a head is never a whole one. */
	struct http_head again;
	struct http_framing g;
	assert(http_parse_head(p, (size_t)used - 1, &again, &g, &why) <= 0);
	read_body(&f, p + used, n - (size_t)used, step);
	return 0;
}
