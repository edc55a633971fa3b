/* Whether a request has a body, and where it ends; and the errors that libmicrohttpd answers by
 * itself. For web.c. */
#ifndef BOUGH_SNAPD_WEB_FRAMING_H
#define BOUGH_SNAPD_WEB_FRAMING_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes of the body, as its head says; 0: none, or chunks. */
uint64_t web_announced(struct MHD_Connection *conn);
bool web_has_body(struct MHD_Connection *conn);
bool web_has_form(struct MHD_Connection *conn); /* multipart/…, as its head says */
/* True when it is certain where the body ends. libmicrohttpd takes the first of two lengths, and
 * chunks rather than a length; whatever passes requests on to us may take the other, and then what
 * it believes to be a body is another request here (RFC 9112 6.3, 11.2). */
bool web_framing_is_clear(struct MHD_Connection *conn);
/* That this thread, which serves no other, serves that connection: for the errors that
 * libmicrohttpd answers by itself. */
void web_errors_of(struct MHD_Connection *conn);
/* The answer was sent while the client still sends: closing at once would take it away before it
 * was read (TCP: a reset). So nothing more is sent, and what comes is dropped, up to so many bytes,
 * and while the next one comes in that time. */
void web_linger(int fd, size_t most, int wait_ms);

#endif
