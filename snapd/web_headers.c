/* Headers: a request's, as its handler asks for them, and those that an answer gets. */
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "snapd/web_task.h"

/* ---- a request's ---- */

struct web_kept {
	struct web_kept *next;
	char text[];
};

struct gathering {
	const char *name;
	struct buf value;
};

static enum MHD_Result gather(void *arg, enum MHD_ValueKind kind, const char *key,
			      const char *value)
{
	struct gathering *g = arg;
	if (strcasecmp(key, g->name) != 0)
		return MHD_YES;
	if (g->value.len > 0)
		buf_add(&g->value, ", ", 2);
	buf_add(&g->value, value ? value : "", value ? strlen(value) : 0);
	return MHD_YES;
}

const char *request_header(struct request *rq, const char *name)
{
	struct gathering g = { .name = name };
	if (!rq->conn || !MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND, name))
		return NULL;
	(void)MHD_get_connection_values(rq->conn, MHD_HEADER_KIND, gather, &g);
	buf_u8(&g.value, 0);
	struct web_kept *k = buf_error(&g.value) ? NULL : malloc(sizeof(*k) + g.value.len);
	if (k) {
		memcpy(k->text, g.value.data, g.value.len);
		k->next = rq->kept;
		rq->kept = k;
	}
	buf_done(&g.value);
	/* Without memory: a value that means nothing, which is better than none. */
	return k ? k->text : "";
}

void web_kept_free(struct web_kept *k)
{
	while (k) {
		struct web_kept *next = k->next;
		free(k);
		k = next;
	}
}

uint64_t request_length(const struct request *rq)
{
	const char *s = rq->conn ? MHD_lookup_connection_value(rq->conn, MHD_HEADER_KIND,
							       "Content-Length")
				 : NULL;
	return s ? strtoull(s, NULL, 10) : UINT64_MAX; /* libmicrohttpd refuses what is no number */
}

/* ---- an answer's ---- */

void reply_header(struct reply *rp, const char *name, const char *fmt, ...)
{
	char *value = NULL;
	va_list ap;
	if (rp->nheaders == WEB_HEADERS)
		return;
	va_start(ap, fmt);
	if (vasprintf(&value, fmt, ap) < 0)
		value = NULL;
	va_end(ap);
	rp->headers[rp->nheaders++] = (struct web_header){ name, value };
}

void web_headers_move(struct reply *to, struct reply *from)
{
	web_headers_free(to);
	memcpy(to->headers, from->headers, sizeof(to->headers));
	to->nheaders = from->nheaders;
	from->nheaders = 0;
}

void web_headers_free(struct reply *rp)
{
	for (size_t i = 0; i < rp->nheaders; i++)
		free(rp->headers[i].value);
	rp->nheaders = 0;
}

bool web_headers_put(struct MHD_Response *response, const struct reply *rp)
{
	for (size_t i = 0; i < rp->nheaders; i++)
		if (!rp->headers[i].value ||
		    MHD_add_response_header(response, rp->headers[i].name, rp->headers[i].value) !=
			    MHD_YES)
			return false;
	return true;
}
