/* The API's contract as a document (openapi.json, OpenAPI 3.1), which openapi.py makes from the
 * table of routes. `make openapi` writes it anew after a route has changed. */
#ifndef BOUGH_SNAPD_OPENAPI_H
#define BOUGH_SNAPD_OPENAPI_H

#include "snapd/web.h"

int api_openapi(struct request *rq, struct reply *rp, struct err *err);
/* The table of routes as JSON on stdout, for openapi.py. 0, or -errno. */
int openapi_print_routes(void);

#endif
