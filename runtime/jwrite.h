/* Building JSON where memory may be short: each takes the value over, and NULL for one means that
 * there was no memory for it. */
#ifndef BOUGH_RUNTIME_JWRITE_H
#define BOUGH_RUNTIME_JWRITE_H

#include <errno.h>
#include <jansson.h>

static inline int jw_add(json_t *array, json_t *value)
{
	return value && json_array_append_new(array, value) == 0 ? 0 : -ENOMEM;
}

static inline int jw_set(json_t *object, const char *key, json_t *value)
{
	return value && json_object_set_new(object, key, value) == 0 ? 0 : -ENOMEM;
}

#endif
