/* A .gitattributes of any bytes (up to the first zero byte), asked for a path (up to the next), and
 * what git would make of the rest by what it says. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "gitops/convert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The text up to a zero byte, which is taken too. The caller frees. */
static char *take(const uint8_t **data, size_t *size)
{
	size_t n = strnlen((const char *)*data, *size);
	char *s = strndup((const char *)*data, n);
	n += n < *size;
	*data += n;
	*size -= n;
	return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct oid oid;
	if (size == 0)
		return 0;
	auto_free char *text = take(&data, &size);
	auto_free char *path = take(&data, &size);
	struct attributes *a = attributes_new();
	struct attr_values v;
	struct conversion how;
	auto_buf out = { 0 };
	assert(a && text && path);
	int root = attributes_add(a, ATTR_NONE, "", text, strlen(text), NULL);
	int below = attributes_add(a, root, "d", text, strlen(text), NULL);
	assert(root >= ATTR_NONE && below >= root);
	int r = attributes_find(a, root, path, &v);
	assert(r == 0 || r == -E2BIG);
	if (r == 0) {
		conversion_of(&how, &v);
		r = convert_out(&out, &how, data, size, &oid);
		assert(r == 0 || r == 1);
		assert(r == 1 || !conversion_is_none(&how) || out.len == 0);
	}
	(void)attributes_find(a, below, "d/f", &v); /* whatever it says */
	attributes_free(a);
	return 0;
}
