/* What isn't HTTP, or a head that is too large, libmicrohttpd answers by itself, before anybody is
 * asked, and in HTML. It makes those answers with one of the functions at the end, which here stand
 * in front of its own: a page of HTML, which boughd never sends, becomes an error as all others.
 *
 * That of a bad Content-Length has a fault in 0.9.75: its head is sent twice, and the second one is
 * the body to who reads it. It is sent here, and then nothing can be sent any more: libmicrohttpd
 * finds the connection at its end. */
#include <dlfcn.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "fs/base/json.h"
#include "snapd/web.h"
#include "snapd/web_framing.h"

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
	bool large = strstr(text, "too big") || strstr(text, "too large") ||
		     strstr(text, "exceeds");
	const char *code = large                           ? "too_large"
			   : strstr(text, "not supported") ? "unsupported"
			   : strstr(text, "developer")     ? "internal"
							   : "invalid";
	json_t *j = json_pack("{s:s, s:s, s:{}}", "code", code, "message", text, "details");
	free(text);
	text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}

/* Its own function, into the pointer to one at `out`. */
static void theirs(const char *name, void *out)
{
	void *p = dlsym(RTLD_NEXT, name);
	memcpy(out, &p, sizeof(p)); /* ISO C has no cast for that */
}

static struct MHD_Response *make(size_t size, void *data, enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *(*real)(size_t, void *, enum MHD_ResponseMemoryMode);
	theirs("MHD_create_response_from_buffer", &real);
	return real(size, data, mode);
}

/* NULL: as json_of. */
static struct MHD_Response *of_page(const char *page, size_t size)
{
	char *text = json_of(page, size);
	if (!text)
		return NULL;
	size_t len = strlen(text);
	text[len] = '\n'; /* in place of the NUL */
	struct MHD_Response *r = make(len + 1, text, MHD_RESPMEM_MUST_FREE);
	if (!r)
		free(text);
	else
		(void)MHD_add_response_header(r, "Content-Type", "application/json");
	return r;
}

enum { LENGTH_LINGER_MS = 2000 };
static _Thread_local struct MHD_Connection *served;

void web_errors_of(struct MHD_Connection *conn)
{
	served = conn;
}

/* Where it is that answer, it is sent as far as the client takes it. */
static void send_bad_length(const char *page, size_t size)
{
	static const char length[] = "Content-Length";
	const union MHD_ConnectionInfo *fd = NULL, *tls = NULL;
	if (!page || !served || !memmem(page, size, length, sizeof(length) - 1))
		return;
	char *text = json_of(page, size), *all = NULL;
	if (!text)
		return;
	bool large = strstr(text, "too_large") != NULL;
	int n = asprintf(&all,
			 "HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: application/json\r\n"
			 "Content-Length: %zu\r\n\r\n%s\n",
			 large ? "413 Content Too Large" : "400 Bad Request", strlen(text) + 1,
			 text);
	free(text);
	if (n < 0)
		return;
	fd = MHD_get_connection_info(served, MHD_CONNECTION_INFO_CONNECTION_FD);
	tls = MHD_get_connection_info(served, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	ssize_t (*send_tls)(void *, const void *, size_t);
	void *p = dlsym(RTLD_DEFAULT, "gnutls_record_send"); /* libmicrohttpd's own library */
	memcpy(&send_tls, &p, sizeof(p));
	if (tls && tls->tls_session && send_tls)
		(void)send_tls(tls->tls_session, all, (size_t)n);
	else if (fd && !tls)
		(void)send(fd->connect_fd, all, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
	free(all);
	if (fd)
		web_linger(fd->connect_fd, WEB_DISCARD_MAX, LENGTH_LINGER_MS);
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
						     enum MHD_ResponseMemoryMode mode)
{
	if (mode == MHD_RESPMEM_PERSISTENT && MHD_VERSION < 0x00097600)
		send_bad_length(buffer, size);
	struct MHD_Response *r = mode == MHD_RESPMEM_PERSISTENT ? of_page(buffer, size) : NULL;
	return r ? r : make(size, buffer, mode);
}

#if MHD_VERSION >= 0x00097701 /* which makes them with this one */
struct MHD_Response *MHD_create_response_from_buffer_static(size_t size, const void *buffer)
{
	struct MHD_Response *(*real)(size_t, const void *);
	struct MHD_Response *r = of_page(buffer, size);
	theirs("MHD_create_response_from_buffer_static", &real);
	return r ? r : real(size, buffer);
}
#endif
