/* What comes from outside in a request's head and body, decoded. Pure; any bytes. */
#ifndef BOUGH_SNAPD_WEB_PARSE_H
#define BOUGH_SNAPD_WEB_PARSE_H

#include "snapd/web.h"

enum { WEB_SEGMENTS = 8 };

struct web_target {
	char *memory; /* what the pointers point into */
	char *segments[WEB_SEGMENTS];
	size_t nsegments;
	bool more;  /* there are others behind them: only a pattern with a tail can fit */
	char *path; /* as it came, without the query */
	size_t at[WEB_SEGMENTS]; /* where the segments begin there */
	struct web_query query[WEB_QUERY_MAX];
	size_t nquery;
};
/* Takes "/a/b%2Fc?d=e+f" apart, each segment and value decoded by itself. -EINVAL: not absolute,
 * a bad escape, %00, too many parameters. */
int web_target_parse(struct web_target *out, const char *raw, struct err *err);
void web_target_done(struct web_target *t);

/* True when the target's path fits the pattern; params get the segments at {}. A pattern that ends
 * with {...} fits any number of segments there, which web_target_tail gives. */
bool web_target_matches(const struct web_target *t, const char *pattern,
			const char *params[WEB_PARAMS]);
/* What stands for {...} in a pattern that fits, as the path of a file below some folder: decoded
 * (an encoded '/' is one), without a '/' at its end; "": the folder itself. The caller frees. 0:
 * the pattern has no tail, and *out is NULL. -EINVAL: an empty part, "." or "..", one above 255
 * bytes, or all above 4,095. */
int web_target_tail(const struct web_target *t, const char *pattern, char **out, struct err *err);

/* Whether a path fits those rules; "a/b", not empty. -EINVAL. */
int web_file_path_check(const char *path, struct err *err);

/* Whether a Prefer header (RFC 7240; NULL: none) has that preference, without a value. */
bool web_prefers(const char *header, const char *what);

/* One JSON object that has no other members than `fields`, each of its type; null counts as
 * absent, no bytes as {}. The caller frees. -EINVAL; *details (NULL allowed) then may get
 * {"field": name}. */
int web_body_parse(json_t **out, const void *data, size_t len, const struct field *fields,
		   json_t **details, struct err *err);
/* Whether the query has parameters of the route alone, each but "label" once, and those that are
 * true or false are. -EINVAL, with the details as above. */
int web_query_check(const struct web_target *t, const struct route *rt, json_t **details,
		    struct err *err);
/* Such an object from a query, for a body that isn't JSON: "?name=app&mount=false&label=K=V", where
 * each `label` is one of the field "labels". Parameters that no field has are left out. */
int web_query_parse(json_t **out, const struct web_target *t, const struct field *fields,
		    json_t **details, struct err *err);
/* The field (a string, a number, true or false, or labels) that such a parameter is of, or NULL. */
const struct field *web_query_field(const struct field *fields, const char *key);
/* The same check of an object that was parsed already. */
int web_fields_check(const json_t *j, const struct field *fields, json_t **details,
		     struct err *err);

#endif
