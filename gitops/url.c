#include "gitops/url.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *prefix, *protocol;
	enum git_url_kind kind;
} schemes[] = {
	{ "https://", "https", GIT_URL_HTTP },
	{ "http://", "http", GIT_URL_HTTP },
	{ "git://", "git", GIT_URL_GIT },
	{ "ssh://", "ssh", GIT_URL_SSH },
};

/* A host or user that no program takes for an option, nor a shell for anything but text. */
static bool plain(const char *s, size_t n, const char *more)
{
	if (n == 0 || s[0] == '-' || n >= GIT_HOST_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr(more, s[i]))
			return false;
	return true;
}

static bool port_is(const char *s, size_t n)
{
	return n >= 1 && n <= 5 && strspn(s, "0123456789") >= n;
}

/* [user@]host[:port], n bytes. */
static int parse_place(struct git_url *u, const char *s, size_t n, struct err *err)
{
	const char *at = memrchr(s, '@', n);
	if (at && (u->kind != GIT_URL_SSH || memchr(s, ':', (size_t)(at - s))))
		return err_set(err, -EINVAL,
			       "the URL holds a user or password: give it without, and the secret "
			       "as a file");
	if (at && !plain(s, (size_t)(at - s), "._-+"))
		return err_set(err, -EINVAL, "the URL has a strange user");
	const char *host = at ? at + 1 : s;
	n -= (size_t)(host - s);
	size_t len = n;
	if (n > 0 && host[0] == '[') { /* an IPv6 address */
		const char *close = memchr(host, ']', n);
		len = close ? (size_t)(close - host) + 1 : 0;
		if (len < 4 || strspn(host + 1, "0123456789abcdefABCDEF:.") != len - 2)
			return err_set(err, -EINVAL, "the URL has a strange host");
	} else {
		const char *colon = memchr(host, ':', n);
		len = colon ? (size_t)(colon - host) : n;
		if (!plain(host, len, ".-_"))
			return err_set(err, -EINVAL, "the URL has no host, or a strange one");
	}
	if (len < n && (host[len] != ':' || !port_is(host + len + 1, n - len - 1)))
		return err_set(err, -EINVAL, "the URL has a strange port");
	if (n >= sizeof(u->host))
		return err_set(err, -EINVAL, "the URL's host is too long");
	memcpy(u->host, host, n);
	u->host[n] = '\0';
	return 0;
}

static int parse_scp(struct git_url *u, const char *url, struct err *err)
{
	const char *colon = strchr(url, ':'), *slash = strchr(url, '/');
	if (!colon || (slash && slash < colon))
		return err_set(err, -EINVAL, "not a URL (https, http, ssh, git or user@host:path)");
	if (colon[1] == ':')
		return err_set(err, -EINVAL, "only https, http, ssh and git are let through");
	if (!colon[1] || colon[1] == '-')
		return err_set(err, -EINVAL, "the URL has no path, or a strange one");
	const char *at = strchr(colon, '@');
	if (at && memchr(colon, '/', (size_t)(at - colon)) == NULL)
		return err_set(err, -EINVAL, "the URL holds a password: give the secret as a file");
	u->kind = GIT_URL_SSH;
	(void)snprintf(u->protocol, sizeof(u->protocol), "ssh");
	return parse_place(u, url, (size_t)(colon - url), err);
}

int git_url_parse(struct git_url *out, const char *url, struct err *err)
{
	struct git_url u = { 0 };
	size_t n = strlen(url), i = 0;
	if (n == 0 || n > GIT_URL_MAX)
		return err_set(err, -EINVAL, "a URL has 1 to %d characters", GIT_URL_MAX);
	for (const char *p = url; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return err_set(err, -EINVAL, "the URL holds a blank or control character");
	if (url[0] == '-')
		return err_set(err, -EINVAL, "a URL doesn't begin with '-'");
	while (i < sizeof(schemes) / sizeof(schemes[0]) &&
	       strncmp(url, schemes[i].prefix, strlen(schemes[i].prefix)) != 0)
		i++;
	int r;
	if (i < sizeof(schemes) / sizeof(schemes[0])) {
		u.kind = schemes[i].kind;
		(void)snprintf(u.protocol, sizeof(u.protocol), "%s", schemes[i].protocol);
		const char *place = url + strlen(schemes[i].prefix);
		size_t len = strcspn(place, "/?#");
		if (place[len] != '/' || !place[len + 1])
			return err_set(err, -EINVAL, "the URL has no path");
		if (u.kind == GIT_URL_SSH && place[len + 1] == '-')
			return err_set(err, -EINVAL, "the URL has a strange path");
		r = parse_place(&u, place, len, err);
	} else if (strstr(url, "://")) {
		r = err_set(err, -EINVAL, "only https, http, ssh and git are let through");
	} else {
		r = parse_scp(&u, url, err);
	}
	if (r >= 0 && out)
		*out = u;
	return r;
}

void git_url_place(const struct git_url *u, char host[GIT_HOST_MAX], char port[6])
{
	const char *end = strchr(u->host, ']'), *colon = strchr(end ? end : u->host, ':');
	size_t n = colon ? (size_t)(colon - u->host) : strlen(u->host);
	const char *usual = u->kind == GIT_URL_SSH             ? "22"
			    : u->kind == GIT_URL_GIT           ? "9418"
			    : strcmp(u->protocol, "http") == 0 ? "80"
							       : "443";
	(void)snprintf(host, GIT_HOST_MAX, "%.*s", (int)n, u->host);
	(void)snprintf(port, 6, "%.5s", colon ? colon + 1 : usual);
}

void git_url_name(char *out, size_t size, const char *url)
{
	size_t n = strlen(url), len = 0;
	while (n > 0 && url[n - 1] == '/')
		n--;
	/* The repository of a work tree is named as that. */
	if (n >= 5 && memcmp(url + n - 5, "/.git", 5) == 0)
		n -= 5;
	else if (n > 4 && memcmp(url + n - 4, ".git", 4) == 0)
		n -= 4;
	size_t from = n;
	while (from > 0 && url[from - 1] != '/' && url[from - 1] != ':')
		from--;
	for (size_t i = from; i < n && len + 1 < size; i++) {
		bool fits = isalnum((unsigned char)url[i]) || strchr("._-", url[i]);
		if (len == 0 && (!fits || url[i] == '-' || url[i] == '.'))
			continue;
		out[len++] = fits ? url[i] : '-';
	}
	out[len] = '\0';
}

static void blot_out(char *text, const char *secret)
{
	size_t n = strlen(secret);
	if (n < 4)
		return;
	for (char *at; (at = strstr(text, secret));) {
		memmove(at + 3, at + n, strlen(at + n) + 1);
		memcpy(at, "***", 3);
	}
}

void text_scrub(char *text, const char *const *secrets, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (secrets[i])
			blot_out(text, secrets[i]);
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || (unsigned char)*p >= 0x7f)
			*p = '?';
}
