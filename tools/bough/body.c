/* Members of a request, from options and operands: api.h. */
#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"

int body_text(json_t *o, const char *key, const char *text, struct err *err)
{
	json_t *v = json_string(text);
	if (!v)
		return err_set(err, -EINVAL, "%s: \"%s\" isn't UTF-8", key, text);
	return json_object_set_new(o, key, v) < 0 ? err_no_memory(err) : 0;
}

int body_number(json_t *o, const char *key, uint64_t v, struct err *err)
{
	return json_object_set_new(o, key, json_integer((json_int_t)v)) < 0 ? err_no_memory(err)
									    : 0;
}

int body_bool(json_t *o, const char *key, bool v, struct err *err)
{
	return json_object_set_new(o, key, json_boolean(v)) < 0 ? err_no_memory(err) : 0;
}

json_t *body_list(json_t *o, const char *key)
{
	json_t *list = json_array();
	return json_object_set_new(o, key, list) < 0 ? NULL : list;
}

int body_add(json_t *o, const char *key, const char *text, struct err *err)
{
	json_t *v = json_string(text), *list = json_object_get(o, key);
	if (!v)
		return err_set(err, -EINVAL, "%s: \"%s\" isn't UTF-8", key, text);
	if (!list)
		list = body_list(o, key);
	return json_array_append_new(list, v) < 0 ? err_no_memory(err) : 0;
}

/* "on_expiry" of "on-expiry". */
static const char *member_of(char out[64], const char *option)
{
	(void)snprintf(out, 64, "%s", option);
	for (char *p = out; (p = strchr(p, '-')); p++)
		*p = '_';
	return out;
}

int body_texts(json_t *o, const struct args *a, const char *const *options, struct err *err)
{
	char key[64];
	int r = 0;
	for (; *options && r == 0; options++)
		if (args_get(a, *options))
			r = body_text(o, member_of(key, *options), args_get(a, *options), err);
	return r;
}

int body_flags(json_t *o, const struct args *a, const char *const *options, struct err *err)
{
	char key[64];
	int r = 0;
	for (; *options && r == 0; options++)
		if (args_get(a, *options))
			r = body_bool(o, member_of(key, *options), true, err);
	return r;
}
