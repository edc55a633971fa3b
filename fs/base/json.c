#include "fs/base/json.h"

#include <stdbool.h>
#include <stdio.h>

/* Where brackets outside of strings nest too deep; `len`: nowhere. */
static size_t too_deep(const char *p, size_t len)
{
	int depth = 0;
	bool in_string = false;
	size_t i;
	for (i = 0; i < len; i++) {
		if (in_string) {
			if (p[i] == '\\' && i + 1 < len)
				i++;
			else if (p[i] == '"')
				in_string = false;
		} else if (p[i] == '"') {
			in_string = true;
		} else if (p[i] == '{' || p[i] == '[') {
			if (++depth > JSON_NESTED_MAX)
				break;
		} else if (p[i] == '}' || p[i] == ']') {
			depth--;
		}
	}
	return i;
}

json_t *json_parse(const void *data, size_t len, size_t flags, json_error_t *err)
{
	size_t at = too_deep(data, len);
	if (at == len)
		return json_loadb(data, len, flags, err);
	if (err) {
		*err = (json_error_t){ .line = 1, .column = -1, .position = (int)at };
		(void)snprintf(err->text, sizeof(err->text), "nested more than %d deep",
			       JSON_NESTED_MAX);
	}
	return NULL;
}
