/* Cross-origin calls by pages in browsers, where they are allowed (web_options.origins). Tokens are
 * in a header that a page sets by itself, so no credentials are ever allowed. */
#ifndef BOUGH_SNAPD_WEB_CORS_H
#define BOUGH_SNAPD_WEB_CORS_H

#include <microhttpd.h>

#include "snapd/web.h"

/* Whether who asks is no page, or one of an allowed origin. */
bool web_cors_may(const struct web_options *o, struct MHD_Connection *conn);
/* What each answer says. */
void web_cors_add(const struct web_options *o, struct MHD_Connection *conn,
		  struct MHD_Response *response);
/* Whether it is what a browser asks before a call of an allowed origin's page, which nobody has to
 * be known for; and the answer to that. NULL: out of memory. */
bool web_cors_asks(const struct web_options *o, struct MHD_Connection *conn, const char *method);
struct MHD_Response *web_cors_answer(void);

#endif
