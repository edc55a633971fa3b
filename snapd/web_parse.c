#include "snapd/web_parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "snapd/names.h"

enum { LABEL_VALUE_MAX = 1000 };

/* ---- the target ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place. False for a bad escape, or one of NUL. */
static bool unescape(char *s, bool plus)
{
	char *out = s;
	for (; *s; s++) {
		if (*s == '%') {
			int high = hex_digit(s[1]), low = high < 0 ? -1 : hex_digit(s[2]);
			if (low < 0 || (high | low) == 0)
				return false;
			*out++ = (char)(high << 4 | low);
			s += 2;
		} else {
			*out++ = plus && *s == '+' ? ' ' : *s;
		}
	}
	*out = '\0';
	return true;
}

bool web_prefers(const char *header, const char *what)
{
	size_t len = strlen(what);
	for (const char *p = header; p && *p; p += *p == ',') {
		p += strspn(p, " \t,");
		size_t n = strcspn(p, " \t=;,");
		const char *end = p + n + strspn(p + n, " \t");
		if (n == len && strncasecmp(p, what, n) == 0 &&
		    (!*end || *end == ';' || *end == ','))
			return true;
		for (bool quoted = false; *p && (quoted || *p != ','); p++) {
			if (quoted && *p == '\\' && p[1])
				p++;
			else if (*p == '"')
				quoted = !quoted;
		}
	}
	return false;
}

static int parse_query(struct web_target *t, char *q, struct err *err)
{
	char *save = NULL;
	for (char *part = strtok_r(q, "&", &save); part; part = strtok_r(NULL, "&", &save)) {
		char *value = strchr(part, '=');
		if (t->nquery == WEB_QUERY_MAX)
			return err_set(err, -EINVAL, "more than %d query parameters",
				       WEB_QUERY_MAX);
		if (value)
			*value++ = '\0';
		else
			value = part + strlen(part);
		if (!unescape(part, true) || !unescape(value, true))
			return err_set(err, -EINVAL, "a bad escape in the query");
		t->query[t->nquery++] = (struct web_query){ part, value };
	}
	return 0;
}

static int parse_path(struct web_target *t, char *path, struct err *err)
{
	if (*path != '/')
		return err_set(err, -EINVAL, "the path doesn't begin with /");
	for (char *rest = path + 1, *segment; (segment = strsep(&rest, "/"));) {
		if (!unescape(segment, false))
			return err_set(err, -EINVAL, "a bad escape in the path");
		t->more = t->nsegments == WEB_SEGMENTS;
		if (t->more)
			continue;
		t->at[t->nsegments] = (size_t)(segment - path);
		t->segments[t->nsegments++] = segment;
	}
	return 0;
}

int web_target_parse(struct web_target *out, const char *raw, struct err *err)
{
	struct web_target t = { .memory = strdup(raw) };
	if (!t.memory)
		return err_no_memory(err);
	char *query = strchr(t.memory, '?');
	if (query)
		*query++ = '\0';
	t.path = strdup(t.memory);
	int r = t.path ? parse_path(&t, t.memory, err) : err_no_memory(err);
	if (r == 0 && query)
		r = parse_query(&t, query, err);
	if (r < 0) {
		web_target_done(&t);
		return r;
	}
	*out = t;
	return 0;
}

void web_target_done(struct web_target *t)
{
	free(t->memory);
	free(t->path);
	*t = (struct web_target){ 0 };
}

static bool is_tail(const char *pattern)
{
	return strcmp(pattern, "{...}") == 0;
}

bool web_target_matches(const struct web_target *t, const char *pattern,
			const char *params[WEB_PARAMS])
{
	size_t i = 0, nparams = 0;
	while (*pattern == '/') {
		const char *segment = ++pattern;
		pattern = strchrnul(segment, '/');
		size_t len = (size_t)(pattern - segment);
		if (is_tail(segment))
			return true;
		if (i == t->nsegments)
			return false;
		const char *have = t->segments[i++];
		if (len == 2 && memcmp(segment, "{}", 2) == 0) {
			if (!*have || nparams == WEB_PARAMS)
				return false;
			params[nparams++] = have;
		} else if (strlen(have) != len || memcmp(have, segment, len) != 0) {
			return false;
		}
	}
	return i == t->nsegments && !t->more;
}

/* One part of a file's path: what may be a name, and nothing that leads elsewhere. */
static int check_part(const char *part, struct err *err)
{
	size_t len = strlen(part);
	if (len == 0)
		return err_set(err, -EINVAL, "an empty part in the file's path");
	if (strcmp(part, ".") == 0 || strcmp(part, "..") == 0)
		return err_set(err, -EINVAL, "\"%s\" in the file's path", part);
	if (len > NAME_MAX)
		return err_set(err, -EINVAL, "a part of the file's path is above %d bytes",
			       NAME_MAX);
	return 0;
}

int web_file_path_check(const char *path, struct err *err)
{
	char part[NAME_MAX + 2];
	if (strlen(path) >= PATH_MAX)
		return err_set(err, -EINVAL, "the file's path is above %d bytes", PATH_MAX - 1);
	if (*path == '/')
		return err_set(err, -EINVAL, "the file's path begins with '/': leave that out");
	for (const char *p = path;; p++) {
		size_t n = strcspn(p, "/");
		size_t take = n < sizeof(part) ? n : sizeof(part) - 1;
		memcpy(part, p, take);
		part[take] = '\0';
		int r = check_part(part, err);
		if (r < 0)
			return r;
		p += n;
		if (!*p)
			return 0;
	}
}

int web_target_tail(const struct web_target *t, const char *pattern, char **out, struct err *err)
{
	size_t before = 0;
	const char *tail = pattern;
	for (; *tail && !is_tail(tail); tail++)
		before += *tail == '/';
	*out = NULL;
	if (!*tail)
		return 0;
	bool none = before > t->nsegments; /* it ends where the tail would begin */
	char *to = strdup(none ? "" : t->path + t->at[before - 1]);
	if (!to)
		return err_no_memory(err);
	(void)unescape(to, false); /* it was looked at before */
	size_t len = strlen(to);
	if (len > 1 && to[len - 1] == '/')
		to[len - 1] = '\0';
	int r = *to ? web_file_path_check(to, err) : 0;
	if (r < 0) {
		free(to);
		return r;
	}
	*out = to;
	return 0;
}

/* ---- the body ---- */

static int bad(json_t **details, const char *field, struct err *err, const char *what)
{
	if (details && !*details)
		*details = json_pack("{s:s}", "field", field);
	return err_set(err, -EINVAL, "\"%.60s\": %s", field, what);
}

static int check_labels(const json_t *v, json_t **details, const char *name, struct err *err)
{
	const char *key;
	json_t *one;
	if (json_object_size(v) > WEB_LABELS_MAX)
		return bad(details, name, err, "at most 64 labels");
	json_object_foreach((json_t *)(uintptr_t)v, key, one) {
		if (label_key_check(key, NULL) < 0)
			return bad(details, name, err,
				   "a label's key is 1 to 100 of A-Z a-z 0-9 . _ / -");
		if (!json_is_string(one))
			return bad(details, name, err, "a label's value is a string");
		if (json_string_length(one) > LABEL_VALUE_MAX)
			return bad(details, name, err, "a label's value has at most 1000 bytes");
	}
	return 0;
}

static int check_strings(const json_t *v, const struct field *f, json_t **details, struct err *err)
{
	json_t *one;
	size_t i;
	if (f->max && json_array_size(v) > f->max)
		return bad(details, f->name, err, "too many");
	json_array_foreach(v, i, one)
		if (!json_is_string(one))
			return bad(details, f->name, err, "a list of strings is expected");
	return 0;
}

static int check_field(const struct field *f, const json_t *v, json_t **details, struct err *err)
{
	switch (f->type) {
	case FIELD_STRING:
		if (!json_is_string(v))
			return bad(details, f->name, err, "a string is expected");
		if (f->max && json_string_length(v) > f->max)
			return bad(details, f->name, err, "it is too long");
		return 0;
	case FIELD_NUMBER:
		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return bad(details, f->name, err, "a whole number from 0 is expected");
		return 0;
	case FIELD_BOOL:
		return json_is_boolean(v) ? 0
					  : bad(details, f->name, err, "true or false is expected");
	case FIELD_STRINGS:
		if (!json_is_array(v))
			return bad(details, f->name, err, "a list of strings is expected");
		return check_strings(v, f, details, err);
	case FIELD_LABELS:
		if (!json_is_object(v))
			return bad(details, f->name, err, "an object of strings is expected");
		return check_labels(v, details, f->name, err);
	case FIELD_OBJECT:
		return json_is_object(v) ? 0
					 : bad(details, f->name, err, "an object is expected");
	case FIELD_OBJECTS:
		return json_is_array(v) ? 0
					: bad(details, f->name, err, "a list is expected");
	}
	return err_set(err, -EINVAL, "a field of no type");
}

int web_fields_check(const json_t *j, const struct field *fields, json_t **details,
		     struct err *err)
{
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)(uintptr_t)j, key, v) {
		const struct field *f = fields;
		while (f->name && strcmp(f->name, key) != 0)
			f++;
		if (!f->name)
			return bad(details, key, err, "there is no such field");
		int r = json_is_null(v) ? 0 : check_field(f, v, details, err);
		if (r < 0)
			return r;
	}
	for (const struct field *f = fields; f->name; f++)
		if (f->needed && (!(v = json_object_get(j, f->name)) || json_is_null(v)))
			return bad(details, f->name, err, "it is missing");
	return 0;
}

int web_body_parse(json_t **out, const void *data, size_t len, const struct field *fields,
		   json_t **details, struct err *err)
{
	json_error_t why;
	json_t *j;
	if (len == 0)
		data = "{}", len = 2;
	j = json_parse(data, len, JSON_REJECT_DUPLICATES, &why);
	if (!j)
		return err_set(err, -EINVAL, "the body is no JSON: %s (byte %d)", why.text,
			       why.position);
	int r = json_is_object(j) ? web_fields_check(j, fields, details, err)
				  : err_set(err, -EINVAL, "the body is no JSON object");
	if (r < 0) {
		json_decref(j);
		return r;
	}
	*out = j;
	return 0;
}

const struct field *web_query_field(const struct field *fields, const char *key)
{
	bool label = strcmp(key, "label") == 0;
	for (const struct field *f = fields; f && f->name; f++) {
		bool fits = f->type == FIELD_STRING || f->type == FIELD_NUMBER ||
			    f->type == FIELD_BOOL;
		if (label ? f->type == FIELD_LABELS : fits && strcmp(f->name, key) == 0)
			return f;
	}
	return NULL;
}

static const char *const no_yes[] = { "0", "1", "false", "true" };
enum { NO_YES = sizeof(no_yes) / sizeof(no_yes[0]) };

/* Its place there; NO_YES: none. */
static size_t find_no_yes(const char *text)
{
	size_t i = 0;
	while (i < NO_YES && strcmp(text, no_yes[i]) != 0)
		i++;
	return i;
}

/* As the route has it; NULL: it doesn't. */
static const char *known_query(const struct route *rt, const char *key)
{
	size_t len = strlen(key);
	for (const char *const *q = rt->query; q && *q; q++)
		if (strcspn(*q, "?") == len && memcmp(*q, key, len) == 0)
			return *q;
	return NULL;
}

int web_query_check(const struct web_target *t, const struct route *rt, json_t **details,
		    struct err *err)
{
	char text[80];
	for (size_t i = 0; i < t->nquery; i++) {
		const char *key = t->query[i].key, *known = known_query(rt, key);
		bool field = rt->upload && web_query_field(rt->fields, key);
		(void)snprintf(text, sizeof(text), "no parameter \"%.60s\"", key);
		if (!known && !field)
			return bad(details, "query", err, text);
		(void)snprintf(text, sizeof(text), "\"%.60s\" twice", key);
		for (size_t k = 0; k < i; k++)
			if (strcmp(t->query[k].key, key) == 0 && strcmp(key, "label") != 0)
				return bad(details, "query", err, text);
		if (known && strchr(known, '?') && find_no_yes(t->query[i].value) == NO_YES)
			return bad(details, key, err, "true or false is expected");
	}
	return 0;
}

static int add_label(json_t *j, const char *name, char *value, json_t **details, struct err *err)
{
	json_t *labels = json_object_get(j, name);
	char *eq = strchr(value, '=');
	if (!eq)
		return bad(details, "label", err, "K=V is expected");
	auto_free char *key = strndup(value, (size_t)(eq - value));
	if (!key)
		return err_no_memory(err);
	if (json_object_get(labels, key))
		return bad(details, "label", err, "a key twice");
	if (!labels && json_object_set_new(j, name, labels = json_object()) < 0)
		return err_no_memory(err);
	return json_object_set_new(labels, key, json_string(eq + 1)) < 0
		       ? bad(details, "label", err, "it isn't UTF-8")
		       : 0;
}

/* NULL: the text is none of that type. */
static json_t *typed(const struct field *f, const char *text)
{
	char *end = NULL;
	size_t flag = f->type == FIELD_BOOL ? find_no_yes(text) : NO_YES;
	if (f->type == FIELD_STRING)
		return json_string(text);
	if (flag < NO_YES)
		return json_boolean(flag % 2);
	errno = 0;
	long long n = f->type == FIELD_NUMBER && *text >= '0' && *text <= '9'
			      ? strtoll(text, &end, 10)
			      : 0;
	return end && !*end && !errno ? json_integer(n) : NULL;
}

int web_query_parse(json_t **out, const struct web_target *t, const struct field *fields,
		    json_t **details, struct err *err)
{
	json_t *j = json_object();
	int r = j ? 0 : err_no_memory(err);
	for (size_t i = 0; i < t->nquery && r >= 0; i++) {
		const struct web_query *q = &t->query[i];
		const struct field *f = web_query_field(fields, q->key);
		if (f && f->type == FIELD_LABELS)
			r = add_label(j, f->name, q->value, details, err);
		else if (f && json_object_set_new(j, f->name, typed(f, q->value)) < 0)
			r = bad(details, f->name, err,
				f->type == FIELD_STRING   ? "it isn't UTF-8"
				: f->type == FIELD_NUMBER ? "a whole number from 0 is expected"
							  : "true or false is expected");
	}
	if (r >= 0)
		r = web_fields_check(j, fields, details, err);
	if (r < 0) {
		json_decref(j);
		return r;
	}
	*out = j;
	return 0;
}
