/* Requests that become WebSockets: what is asked for them, and the thread that one gets. Used by
 * web.c only; fs/base/websocket.h has the frames.
 *
 * What libmicrohttpd hands over is the socket itself, or with TLS one end of a pair whose other end
 * the connection's own thread serves. Either way the connection counts until its work has ended. */
#ifndef BOUGH_SNAPD_WEB_SOCKET_H
#define BOUGH_SNAPD_WEB_SOCKET_H

#include <microhttpd.h>
#include "fs/base/websocket.h"
#include "snapd/web.h"
#include "snapd/web_task.h"

struct web_refusal {
	unsigned status;
	const char *code, *text;
};
/* Whether the request asks for a WebSocket of that protocol, from where it may: `accept` is what is
 * answered then, else *why. */
bool web_socket_asked(const struct web_options *o, struct MHD_Connection *conn,
		      const char *version, const char *protocol, char accept[WS_ACCEPT_SIZE],
		      struct web_refusal *why);
/* The answer: `upgraded` is called with `arg` once it is sent. NULL: out of memory. */
struct MHD_Response *web_socket_answer(const char *protocol, const char *accept,
				       MHD_UpgradeHandler upgraded, void *arg);
/* Runs the reply's work, which is taken over, on a thread of its own; ends the connection behind
 * it, or at once where there is none to be had. */
void web_socket_run(const struct reply *rp, struct doing *doing, struct task_count *count,
		    unsigned stall_s, int fd, const char *early, size_t nearly,
		    struct MHD_UpgradeResponseHandle *handle);

enum { WEB_BEARER_SIZE = 256 };
/* Pages can't send an Authorization header with a WebSocket: a token may come as one more protocol,
 * "bough.bearer.TOKEN". What the header would say; NULL: there is none. */
const char *web_socket_bearer(struct MHD_Connection *conn, char out[WEB_BEARER_SIZE]);

#endif
