/* What isn't HTTP, or a head that is too large, libmicrohttpd answers by itself, before anybody is
 * asked, and in HTML. It makes those answers with the function below, which here stands in front of
 * its own: a page of HTML, which boughd never answers, becomes an error as all others. */
#include <dlfcn.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/json.h"

typedef struct MHD_Response *make_fn(size_t size, void *data, enum MHD_ResponseMemoryMode mode);

static make_fn *theirs(const char *name)
{
	void *p = dlsym(RTLD_NEXT, name);
	make_fn *f;
	memcpy(&f, &p, sizeof(f)); /* ISO C has no cast for that */
	return f;
}

/* The text of a page's body, in `out`. */
static void strip(const char *page, size_t size, char *out)
{
	static const char begin[] = "<body>", quote[] = "&quot;";
	const char *end = page + size;
	const char *p = memmem(page, size, begin, sizeof(begin) - 1);
	p = p ? p + sizeof(begin) - 1 : page;
	for (bool tag = false; p < end; p++) {
		if (!tag && (size_t)(end - p) >= sizeof(quote) - 1 &&
		    memcmp(p, quote, sizeof(quote) - 1) == 0) {
			*out++ = '"';
			p += sizeof(quote) - 2;
			continue;
		}
		tag |= *p == '<';
		if (!tag)
			*out++ = *p;
		tag &= *p != '>';
	}
	*out = '\0';
}

/* NULL: it is no page, or memory is short. The caller frees. */
static char *json_of(const char *page, size_t size)
{
	static const char html[] = "<html>";
	if (!page || size < sizeof(html) || memcmp(page, html, sizeof(html) - 1) != 0)
		return NULL;
	char *text = malloc(size + 1);
	if (!text)
		return NULL;
	strip(page, size, text);
	const char *code = strstr(text, "too big") || strstr(text, "too large") ? "too_large"
			   : strstr(text, "not supported")			? "unsupported"
			   : strstr(text, "developer")				? "internal"
										: "invalid";
	json_t *j = json_pack("{s:s, s:s, s:{}}", "code", code, "message", text, "details");
	free(text);
	text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}

static struct MHD_Response *make(make_fn *real, size_t size, void *data,
				 enum MHD_ResponseMemoryMode mode)
{
	char *text = mode == MHD_RESPMEM_PERSISTENT ? json_of(data, size) : NULL;
	if (!text)
		return real(size, data, mode);
	size_t len = strlen(text);
	text[len] = '\n'; /* in place of the NUL */
	struct MHD_Response *r = real(len + 1, text, MHD_RESPMEM_MUST_FREE);
	if (!r)
		free(text);
	else
		(void)MHD_add_response_header(r, "Content-Type", "application/json");
	return r;
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
						     enum MHD_ResponseMemoryMode mode)
{
	return make(theirs("MHD_create_response_from_buffer"), size, buffer, mode);
}
