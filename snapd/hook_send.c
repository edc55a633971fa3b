#include "snapd/hook_send.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct sending {
	const struct hook_send *what;
	bool refused;
	size_t got;
};

/* Each address that curl would connect to, after names were looked up: what a name means by then
 * doesn't count. */
static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct sending *s = ctx;
	if (!s->what->anywhere && !netrules_allow(s->what->allowed, &a->addr)) {
		s->refused = true;
		return CURL_SOCKET_BAD;
	}
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static size_t discard(char *data, size_t size, size_t n, void *ctx)
{
	struct sending *s = ctx;
	s->got += size * n;
	return s->got > HOOK_ANSWER_MAX ? 0 : size * n;
}

static int look_for_stop(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	const struct sending *s = ctx;
	return s->what->stop && atomic_load(s->what->stop);
}

static struct curl_slist *headers_of(const struct hook_send *s)
{
	char line[256];
	const struct {
		const char *name, *value;
	} all[] = { { "Content-Type", "application/json" },
		    { "webhook-id", s->id },
		    { "webhook-signature", s->signature },
		    { "Expect", "" } };
	(void)snprintf(line, sizeof(line), "webhook-timestamp: %lld", (long long)s->time_s);
	struct curl_slist *list = curl_slist_append(NULL, line), *more = list;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && more; i++) {
		(void)snprintf(line, sizeof(line), "%s:%s%s", all[i].name, *all[i].value ? " " : "",
			       all[i].value);
		more = curl_slist_append(list, line);
	}
	if (more)
		return list;
	curl_slist_free_all(list);
	return NULL;
}

static bool set_up(CURL *c, struct sending *s, struct curl_slist *headers, char *why)
{
	const struct hook_send *what = s->what;
	CURLcode r = curl_easy_setopt(c, CURLOPT_URL, what->url);
	r |= curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	r |= curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
	r |= curl_easy_setopt(c, CURLOPT_PROXY, ""); /* it would connect for us to anywhere */
	r |= curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	r |= curl_easy_setopt(c, CURLOPT_TIMEOUT, (long)HOOK_TIMEOUT_S);
	r |= curl_easy_setopt(c, CURLOPT_POSTFIELDS, what->body);
	r |= curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)strlen(what->body));
	r |= curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	r |= curl_easy_setopt(c, CURLOPT_USERAGENT, "bough/" BOUGH_VERSION);
	r |= curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	r |= curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, s);
	r |= curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, discard);
	r |= curl_easy_setopt(c, CURLOPT_WRITEDATA, s);
	r |= curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
	r |= curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, look_for_stop);
	r |= curl_easy_setopt(c, CURLOPT_XFERINFODATA, s);
	r |= curl_easy_setopt(c, CURLOPT_ERRORBUFFER, why);
	return r == CURLE_OK;
}

int hook_send(const struct hook_send *what, struct err *err)
{
	struct sending s = { .what = what };
	char why[CURL_ERROR_SIZE] = "";
	long status = 0;
	CURL *c = curl_easy_init();
	struct curl_slist *headers = headers_of(what);
	CURLcode code = CURLE_OUT_OF_MEMORY;
	if (c && headers && set_up(c, &s, headers, why))
		code = curl_easy_perform(c);
	(void)curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	curl_slist_free_all(headers);
	curl_easy_cleanup(c);
	if (code == CURLE_OK || (status && code == CURLE_WRITE_ERROR)) /* it said enough */
		return (int)status;
	if (s.refused) /* one of several may be, while another was answered at */
		return err_set(err, -EACCES,
			       "its address is none that may be connected to (webhook_allow)");
	return err_set(err, code == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EREMOTEIO, "%s",
		       *why ? why : curl_easy_strerror(code));
}
