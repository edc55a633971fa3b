/* Where web.c's requests come from: libmicrohttpd on the unix socket and on TCP addresses, who is
 * at the other end of each connection, and how long one may take to say what it wants. Used by
 * web.c only.
 *
 * libmicrohttpd's timeout counts from the last byte, so a client that sends one now and then holds
 * a thread for ever. Here a request's head has a time by which it must be whole, and a connection
 * that misses it is shut down. */
#ifndef BOUGH_SNAPD_WEB_LISTEN_H
#define BOUGH_SNAPD_WEB_LISTEN_H

#include <microhttpd.h>
#include "snapd/web.h"

struct web_callbacks {
	MHD_AccessHandlerCallback request;
	void *(*target)(void *arg, const char *uri, struct MHD_Connection *conn);
	MHD_RequestCompletedCallback completed;
	size_t (*unescape)(void *arg, struct MHD_Connection *conn, char *s);
	void (*log)(void *arg, const char *fmt, va_list ap);
	void *arg;
};

struct web_listen;
/* Whether it is an address that could be listened on; `plain_allowed`: beyond this machine in the
 * clear, too. -EINVAL, -EPERM. */
int web_listen_check(const char *address, bool plain_allowed, struct err *err);
int web_listen_start(struct web_listen **out, const struct web_options *opt,
		     const struct web_callbacks *cb, struct err *err);
void web_listen_quiesce(struct web_listen *l); /* takes no more connections */
void web_listen_stop(struct web_listen *l);    /* after that; waits for its threads */

/* Who is there. Good while the connection is. */
const struct web_peer *web_listen_peer(struct MHD_Connection *conn);
/* The request's head is whole, and the next one's time begins. */
void web_listen_head(struct MHD_Connection *conn);
void web_listen_next(struct MHD_Connection *conn);

#endif
