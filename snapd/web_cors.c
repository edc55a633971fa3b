#include "snapd/web_cors.h"

#include <string.h>

/* The Origin that it comes from, where that one's pages may call; else NULL. */
static const char *allowed_origin(const struct web_options *o, struct MHD_Connection *conn)
{
	const char *origin = o->norigins
				     ? MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Origin")
				     : NULL;
	for (size_t i = 0; origin && i < o->norigins; i++)
		if (strcmp(o->origins[i], "*") == 0 || strcmp(o->origins[i], origin) == 0)
			return origin;
	return NULL;
}

bool web_cors_may(const struct web_options *o, struct MHD_Connection *conn)
{
	return !MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Origin") ||
	       allowed_origin(o, conn);
}

void web_cors_add(const struct web_options *o, struct MHD_Connection *conn,
		  struct MHD_Response *response)
{
	const char *origin = allowed_origin(o, conn);
	if (o->norigins)
		(void)MHD_add_response_header(response, "Vary", "Origin");
	if (!origin)
		return;
	(void)MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
	(void)MHD_add_response_header(
		response, "Access-Control-Expose-Headers",
		"Content-Digest, Content-Range, ETag, Idempotency-Replayed, Location, Repr-Digest,"
		" Tus-Extension, Tus-Resumable, Tus-Version, Upload-Expires, Upload-Length,"
		" Upload-Offset");
}

bool web_cors_asks(const struct web_options *o, struct MHD_Connection *conn, const char *method)
{
	return strcmp(method, "OPTIONS") == 0 && allowed_origin(o, conn) &&
	       MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Access-Control-Request-Method");
}

struct MHD_Response *web_cors_answer(void)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	if (!r)
		return NULL;
	(void)MHD_add_response_header(r, "Access-Control-Allow-Methods",
				      "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
	(void)MHD_add_response_header(
		r, "Access-Control-Allow-Headers",
		"Accept, Authorization, Content-Digest, Content-Encoding, Content-Type,"
		" Idempotency-Key, If-Match, If-None-Match, If-Range, Last-Event-ID, Prefer, Range,"
		" Repr-Digest, Tus-Resumable, Upload-Checksum, Upload-Length, Upload-Metadata,"
		" Upload-Offset, Want-Content-Digest, Want-Repr-Digest");
	(void)MHD_add_response_header(r, "Access-Control-Max-Age", "3600");
	return r;
}
