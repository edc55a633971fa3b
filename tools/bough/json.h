/* Clean-up attribute for jansson's values. */
#ifndef BOUGH_TOOLS_JSON_H
#define BOUGH_TOOLS_JSON_H

#include <jansson.h>

static inline void cleanup_json(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(cleanup_json)))

#endif
