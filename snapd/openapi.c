#include "snapd/openapi.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "snapd/api.h"

/* The document as it lies in the repository. */
__asm__(".section .rodata\n"
	".global bough_openapi\n"
	".global bough_openapi_end\n"
	"bough_openapi:\n"
	".incbin \"snapd/openapi.json\"\n"
	"bough_openapi_end:\n"
	".byte 0\n"
	".previous\n");
extern const char bough_openapi[], bough_openapi_end[];

static ssize_t read_document(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	size_t len = (size_t)(bough_openapi_end - bough_openapi);
	if (pos >= len)
		return 0;
	n = n < len - (size_t)pos ? n : len - (size_t)pos;
	memcpy(buf, bough_openapi + pos, n);
	return (ssize_t)n;
}

int api_openapi(struct request *rq, struct reply *rp, struct err *err)
{
	rp->read = read_document;
	rp->length = (uint64_t)(bough_openapi_end - bough_openapi);
	rp->type = "application/json";
	return 0;
}

/* ---- the table ---- */

static json_t *fields_json(const struct field *f)
{
	static const char *const types[] = {
		[FIELD_STRING] = "string",   [FIELD_NUMBER] = "number", [FIELD_BOOL] = "bool",
		[FIELD_STRINGS] = "strings", [FIELD_LABELS] = "labels", [FIELD_OBJECT] = "object",
		[FIELD_OBJECTS] = "objects",
	};
	json_t *list = json_array();
	for (; f->name; f++)
		if (json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:I}", "name", f->name,
							  "type", types[f->type], "needed",
							  f->needed, "max", (json_int_t)f->max)) <
		    0)
			break;
	return list;
}

static json_t *route_json(const struct route *rt)
{
	json_t *query = json_array(), *flags = json_array();
	for (const char *const *q = rt->query; q && *q; q++) {
		size_t len = strcspn(*q, "?");
		/* Want of memory: NULL below. */
		(void)json_array_append_new(query, json_stringn(*q, len));
		if ((*q)[len])
			(void)json_array_append_new(flags, json_stringn(*q, len));
	}
	return json_pack("{s:s, s:s, s:o, s:o, s:b, s:o}", "method", rt->method, "path", rt->path,
			 "query", query, "flags", flags, "upload", rt->upload, "fields",
			 rt->fields ? fields_json(rt->fields) : json_null());
}

int openapi_print_routes(void)
{
	json_t *list = json_array();
	int r = 0;
	for (size_t i = 0; i < api_nroutes && r == 0; i++)
		if (json_array_append_new(list, route_json(&api_routes[i])) < 0)
			r = -ENOMEM;
	if (r == 0 && (json_dumpf(list, stdout, JSON_COMPACT) < 0 || fflush(stdout) != 0))
		r = -EIO;
	json_decref(list);
	return r;
}
