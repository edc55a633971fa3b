/* A request's target, with a query that may stand for a body, and its JSON body: any bytes give
 * parts in which all promises of web_parse.h hold, or an error with a text. The input is the
 * target, a line feed, the body. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "snapd/api.h"
#include "snapd/web_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_target(const char *raw)
{
	struct web_target t;
	struct err err = { 0 };
	int r = web_target_parse(&t, raw, &err);
	if (r < 0) {
		assert((r == -EINVAL || r == -ENOMEM) && err.text[0]);
		return;
	}
	assert(t.nsegments >= 1 && t.nsegments <= WEB_SEGMENTS && t.nquery <= WEB_QUERY_MAX);
	for (size_t i = 0; i < api_nroutes; i++) {
		const char *params[WEB_PARAMS] = { 0 };
		if (web_target_matches(&t, api_routes[i].path, params) &&
		    strstr(api_routes[i].path, "{}"))
			assert(params[0] && params[0][0]);
	}
	for (size_t i = 0; i < t.nquery; i++)
		assert(t.query[i].key && t.query[i].value);
	for (size_t i = 0; i < api_nroutes; i++) {
		json_t *body = NULL, *details = NULL;
		r = web_query_check(&t, &api_routes[i], &details, &err);
		assert(r == 0 || (r == -EINVAL && err.text[0]));
		json_decref(details);
		details = NULL;
		if (!api_routes[i].upload || !api_routes[i].fields)
			continue;
		r = web_query_parse(&body, &t, api_routes[i].fields, &details, &err);
		assert(r < 0 ? (r == -EINVAL || r == -ENOMEM) && err.text[0] && !body
			     : json_is_object(body));
		json_decref(body);
		json_decref(details);
	}
	web_target_done(&t);
}

static void check_body(const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < api_nroutes; i++) {
		json_t *body = NULL, *details = NULL;
		struct err err = { 0 };
		if (!api_routes[i].fields)
			continue;
		int r = web_body_parse(&body, data, size, api_routes[i].fields, &details, &err);
		if (r < 0)
			assert((r == -EINVAL || r == -ENOMEM) && err.text[0] && !body);
		else
			assert(json_is_object(body));
		json_decref(body);
		json_decref(details);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
	size_t n = end ? (size_t)(end - data) : size;
	char *raw = malloc(n + 1);
	if (!raw)
		return 0;
	memcpy(raw, size ? data : (const uint8_t *)"", n);
	raw[n] = '\0';
	check_target(raw);
	free(raw);
	if (end)
		check_body(end + 1, size - n - 1);
	return 0;
}
