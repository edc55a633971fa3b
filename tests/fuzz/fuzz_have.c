/* Any bytes as a list of what the other side has: refused, or each file in it is found once and
 * only as it is told. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/base/have.h"
#include "fs/base/rfc3339.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct have h = { .before = { 1LL << 60, 0 } };
	struct timespec t;
	/* In two pieces. */
	assert(have_add(&h, data, size / 2) == 0);
	assert(have_add(&h, data + size / 2, size - size / 2) == 0);
	int r = have_ready(&h);
	assert(r == 0 || r == -EBADMSG);
	if (r == 0) {
		size_t left = have_left(&h, NULL);
		for (size_t at = 0; at < size; at += strlen((const char *)data + at) + 1) {
			const char *path = (const char *)data + at;
			for (int i = 0; i < 4 && path; i++) {
				path = strchr(path, ' ');
				path = path ? path + 1 : NULL;
			}
			assert(path && *path);
			struct have_file f = { .path = path, .mode = S_IFREG };
			(void)have_visit(&h, &f);
			assert(!have_visit(&h, &f));
			assert(have_left(&h, NULL) <= left);
		}
		assert(have_left(&h, NULL) == 0);
	}
	have_done(&h);
	char *text = strndup((const char *)data, size);
	assert(text);
	r = rfc3339_parse(text, &t);
	char again[RFC3339_SIZE];
	assert(r == -EINVAL || (r == 0 && strcmp(rfc3339_text(again, &t), text) == 0));
	free(text);
	return 0;
}
