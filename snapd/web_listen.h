/* Where web.c's requests come from: libmicrohttpd on the unix socket and on TCP addresses, who is
 * at the other end of each connection, and how long one may take to say what it wants. Used by
 * web.c only.
 *
 * Its own timeouts aren't used: they count from the last byte, so a client that sends one now and
 * then holds a thread for ever; and that of 1.0 can't be changed for one connection. Here a
 * request's head has a time by which it must be whole, and who is to take bytes or to send them one
 * within which one must move. A connection that misses it is shut down. */
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
/* What is on this connection from now on; NULL: nothing, `completed` was called. (libmicrohttpd 1.0
 * doesn't, where a body's chunk has an extension without end: then it is when the connection is
 * gone.) */
void web_listen_call(struct MHD_Connection *conn, void *call);
/* The time that the client has: as long as it likes, while we work; so many seconds from the last
 * byte that moves; the time for the head of the next request. */
void web_listen_ours(struct MHD_Connection *conn);
void web_listen_theirs(struct MHD_Connection *conn, unsigned stall_s);
void web_listen_next(struct MHD_Connection *conn);
/* It was shut down, since in web_listen_theirs nothing moved. */
bool web_listen_gave_up(struct MHD_Connection *conn);

#endif
