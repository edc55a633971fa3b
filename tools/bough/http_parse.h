/* The pure half of the HTTP client: bytes to heads and chunks, any bytes, no I/O.
 * Source: RFC 9112 sections 2 to 7, strictly (CRLF only, no folded lines). */
#ifndef BOUGH_TOOLS_HTTP_PARSE_H
#define BOUGH_TOOLS_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "tools/bough/http.h"

/* Where in the body the reader stands. */
struct http_framing {
	bool chunked;
	bool done;    /* nothing comes after `left` */
	bool started; /* a chunk's data was begun: its CRLF is due */
	bool trailer; /* the last chunk was seen */
	uint32_t trailer_bytes;
	/* What the line that was just consumed said beside a size: a chunk's extensions, or a field
	 * of the trailer. Borrowed from the bytes given; 0 long where there was none. */
	const uint8_t *said;
	size_t said_len;
	uint64_t left; /* bytes of the body directly ahead */
};

/* A head at the start of `p`: its length, 0 when it isn't complete yet, -1 and *why when it
 * can't become a head. */
ssize_t http_parse_head(const uint8_t *p, size_t n, struct http_head *head,
			struct http_framing *framing, const char **why);
/* What stands between two pieces of a chunked body (f->left is 0): the bytes consumed; 0 when
 * more must come; -1 and *why. Afterwards f->left or f->done has moved on. */
ssize_t http_parse_chunk(struct http_framing *f, const uint8_t *p, size_t n, const char **why);

enum { HTTP_CODE_MAX = 32, HTTP_REASON_MAX = 512 };
/* A chunk's extensions that say why the answer ends here (";code=CODE;error=TEXT", boughd's way
 * to break a stream off): its words, decoded and cut to fit; code is "" where it gave none. False:
 * they say no such thing. */
bool http_parse_failure(const uint8_t *said, size_t n, char code[HTTP_CODE_MAX],
			char text[HTTP_REASON_MAX]);
/* The value of a header line, when it is that field's (a lower-case name); NULL. Borrowed. */
const uint8_t *http_parse_value(const uint8_t *line, size_t n, const char *name, size_t *len);

#endif
