/* Listings of directories as JSON, streamed: constant memory for any number of entries. */
#ifndef BOUGH_SNAPD_FILES_LIST_H
#define BOUGH_SNAPD_FILES_LIST_H

#include "snapd/files_place.h"
#include "snapd/web.h"

struct listing {
	struct place place;
	struct found dir;
	char *path;
	bool recursive; /* of a view only */
	uint64_t after; /* cookie of the entry before the first */
	uint64_t limit; /* entries; 0: all */
};
void listing_free(void *task); /* and what it holds */
/* {"path", "entries": […], "next"?}: a reply's stream. */
int listing_stream(void *task, struct stream *out, struct err *err);
/* One entry as in a listing. `target` NULL: none. NULL: out of memory. */
json_t *listing_entry(const char *name, size_t len, const struct found *f, const char *target);
/* o[key] = text; where that is no UTF-8, o[key_b64] the base64 of its bytes. 0 or -1. */
int listing_set_name(json_t *o, const char *key, const char *text, size_t len);

#endif
