#include "snapd/config.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "snapd/web_listen.h"

enum { CONFIG_MAX = 1 << 20, PEM_MAX = 1 << 20, SECONDS_MAX = 365 * 24 * 3600 };

void config_done(struct config *c)
{
	for (size_t i = 0; i < c->nlisten; i++)
		free(c->listen[i]);
	for (size_t i = 0; i < c->norigins; i++)
		free(c->origins[i]);
	free(c->tls_cert);
	free(c->tls_key);
	free(c->tls_cert_text);
	if (c->tls_key_text)
		explicit_bzero(c->tls_key_text, strlen(c->tls_key_text));
	free(c->tls_key_text);
	memset(c, 0, sizeof(*c));
}

int config_listen(struct config *c, const char *address, struct err *err)
{
	if (c->nlisten == WEB_TCP_MAX)
		return err_set(err, -EINVAL, "at most %d addresses to listen on", WEB_TCP_MAX);
	c->listen[c->nlisten] = strdup(address);
	if (!c->listen[c->nlisten])
		return err_no_memory(err);
	c->nlisten++;
	return 0;
}

static int take_text(char **to, const char *key, const json_t *v, struct err *err)
{
	if (!json_is_string(v) || !json_string_length(v))
		return err_set(err, -EINVAL, "\"%s\": a path is expected", key);
	if (!*to && !(*to = strdup(json_string_value(v))))
		return err_no_memory(err);
	return 0;
}

static int take_bool(bool *to, const char *key, const json_t *v, struct err *err)
{
	if (!json_is_boolean(v))
		return err_set(err, -EINVAL, "\"%s\": true or false is expected", key);
	*to |= json_is_true(v);
	return 0;
}

static int take_number(uint64_t *to, uint64_t max, const char *key, const json_t *v,
		       struct err *err)
{
	json_int_t n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0 || (uint64_t)n > max)
		return err_set(err, -EINVAL, "\"%s\": a number from 0 to %llu is expected", key,
			       (unsigned long long)max);
	*to = (uint64_t)n;
	return 0;
}

/* 1: it is one of these; 0: it isn't. */
static int take_policy(struct policy *p, const char *key, const json_t *v, struct err *err)
{
	const struct {
		const char *key;
		uint32_t *to;
	} seconds[] = { { "grace_deleted_s", &p->grace_deleted_s },
			{ "grace_expired_s", &p->grace_expired_s },
			{ "gc_every_s", &p->gc_every_s },
			{ "webhook_retry_s", &p->hook_retry_s },
			{ "look_every_s", &p->look_every_s } };
	for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
		uint64_t n = 0;
		if (strcmp(key, seconds[i].key) != 0)
			continue;
		int r = take_number(&n, SECONDS_MAX, key, v, err);
		if (r >= 0 && !n && seconds[i].to == &p->look_every_s)
			r = err_set(err, -EINVAL, "\"%s\": at least 1 is expected", key);
		if (r >= 0)
			*seconds[i].to = (uint32_t)n;
		return r < 0 ? r : 1;
	}
	if (strcmp(key, "reserve_bytes") != 0)
		return 0;
	int r = take_number(&p->reserve_bytes, INT64_MAX, key, v, err);
	return r < 0 ? r : 1;
}

static int take_listen(struct config *c, const json_t *v, bool given, struct err *err)
{
	const json_t *one;
	size_t i;
	int r = 0;
	if (json_is_string(v))
		return given ? 0 : config_listen(c, json_string_value(v), err);
	if (!json_is_array(v))
		return err_set(err, -EINVAL, "\"listen\": a list of addresses is expected");
	json_array_foreach((json_t *)(uintptr_t)v, i, one) {
		if (!json_is_string(one))
			return err_set(err, -EINVAL, "\"listen\": a list of addresses is expected");
		if (r >= 0 && !given)
			r = config_listen(c, json_string_value(one), err);
	}
	return r;
}

static int take_networks(struct netrules *r, const char *key, const json_t *v, struct err *err)
{
	const json_t *one;
	size_t i;
	if (!json_is_array(v))
		return err_set(err, -EINVAL, "\"%s\": a list of networks is expected", key);
	json_array_foreach((json_t *)(uintptr_t)v, i, one) {
		int e = json_is_string(one)
				? netrules_add(r, json_string_value(one), err)
				: err_set(err, -EINVAL, "a list of networks is expected");
		if (e < 0)
			return err_prefix(err, -EINVAL, "\"%s\"", key);
	}
	return 0;
}

/* "*", or a scheme and a host, as browsers say it: nothing behind them. */
static bool is_origin(const char *s)
{
	const char *host = s && strncmp(s, "https://", 8) == 0  ? s + 8
			   : s && strncmp(s, "http://", 7) == 0 ? s + 7
								: NULL;
	return s && (strcmp(s, "*") == 0 || (host && *host && !strpbrk(host, "/?#@ ")));
}

static int take_origins(struct config *c, const json_t *v, struct err *err)
{
	const json_t *one;
	size_t i;
	if (!json_is_array(v) || json_array_size(v) > CONFIG_ORIGINS_MAX)
		return err_set(err, -EINVAL, "\"cors_origins\": a list of up to %d is expected",
			       CONFIG_ORIGINS_MAX);
	json_array_foreach((json_t *)(uintptr_t)v, i, one) {
		const char *s = json_string_value(one);
		if (!is_origin(s))
			return err_set(err, -EINVAL,
				       "\"cors_origins\": origins like https://app.example.org");
		if (!(c->origins[c->norigins] = strdup(s)))
			return err_no_memory(err);
		c->norigins++;
	}
	return 0;
}

static int take(struct config *c, const char *key, const json_t *v, bool given, struct err *err)
{
	if (strcmp(key, "listen") == 0)
		return take_listen(c, v, given, err);
	if (strcmp(key, "tls_cert") == 0)
		return take_text(&c->tls_cert, key, v, err);
	if (strcmp(key, "tls_key") == 0)
		return take_text(&c->tls_key, key, v, err);
	if (strcmp(key, "insecure") == 0)
		return take_bool(&c->insecure, key, v, err);
	if (strcmp(key, "multi_user") == 0)
		return take_bool(&c->multi_user, key, v, err);
	if (strcmp(key, "git_networks") == 0)
		return take_networks(&c->git_networks, key, v, err);
	if (strcmp(key, "webhook_allow") == 0)
		return take_networks(&c->policy.hook_allow, key, v, err);
	if (strcmp(key, "cors_origins") == 0)
		return take_origins(c, v, err);
	int r = take_policy(&c->policy, key, v, err);
	if (r == 0)
		return err_set(err, -EINVAL, "there is no \"%.60s\"", key);
	return r < 0 ? r : 0;
}

int config_parse(struct config *c, const void *data, size_t len, struct err *err)
{
	json_error_t why;
	const char *key;
	json_t *v, *j = json_loadb(data, len, JSON_REJECT_DUPLICATES, &why);
	bool given = c->nlisten > 0;
	int r = 0;
	if (!j)
		return err_set(err, -EINVAL, "it is no JSON: %s (line %d)", why.text, why.line);
	if (!json_is_object(j))
		r = err_set(err, -EINVAL, "an object is expected");
	json_object_foreach(j, key, v) {
		if (r >= 0)
			r = take(c, key, v, given, err);
	}
	json_decref(j);
	return r;
}

static int read_pem(const char *path, char **out, struct err *err)
{
	auto_free void *data = NULL;
	size_t len;
	int r = io_slurp(&io_host, AT_FDCWD, path, PEM_MAX, &data, &len, err);
	if (r < 0)
		return err_prefix(err, r, "%s", path);
	*out = strndup(data, len);
	return *out ? 0 : err_no_memory(err);
}

static int check_file(const char *path, struct err *err)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return errno == ENOENT ? -ENOENT : err_sys(err, -errno, "look at %s", path);
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & 022))
		return err_set(err, -EPERM, "%s: others could write to it", path);
	return 0;
}

int config_read(struct config *c, const char *root, struct err *err)
{
	auto_free char *path = NULL;
	auto_free void *data = NULL;
	size_t len;
	if (asprintf(&path, "%s/config.json", root) < 0) {
		path = NULL;
		return err_no_memory(err);
	}
	int r = check_file(path, err);
	if (r >= 0)
		r = io_slurp(&io_host, AT_FDCWD, path, CONFIG_MAX, &data, &len, err);
	if (r >= 0 && (r = config_parse(c, data, len, err)) < 0)
		r = err_prefix(err, r, "%s", path);
	if (r < 0 && r != -ENOENT)
		return r;
	if (!c->tls_cert != !c->tls_key)
		return err_set(err, -EINVAL, "TLS takes a certificate and a key: one is missing");
	r = c->tls_cert ? read_pem(c->tls_cert, &c->tls_cert_text, err) : 0;
	if (r >= 0 && c->tls_key)
		r = read_pem(c->tls_key, &c->tls_key_text, err);
	return r;
}

/* ---- whether it can be served with ---- */

static int check_tls(const struct config *c, struct err *err)
{
	BIO *cert = BIO_new_mem_buf(c->tls_cert_text, -1),
	    *key = BIO_new_mem_buf(c->tls_key_text, -1);
	X509 *x = cert ? PEM_read_bio_X509(cert, NULL, NULL, NULL) : NULL;
	/* One that is locked would ask for a passphrase: it gets none. */
	EVP_PKEY *k = key ? PEM_read_bio_PrivateKey(key, NULL, NULL, (void *)(uintptr_t) "") : NULL;
	int r = 0;
	if (!x)
		r = err_set(err, -EINVAL, "%s: it is no certificate in PEM", c->tls_cert);
	else if (!k)
		r = err_set(err, -EINVAL, "%s: it is no key in PEM, or locked", c->tls_key);
	else if (X509_check_private_key(x, k) != 1)
		r = err_set(err, -EINVAL, "%s isn't the key of %s", c->tls_key, c->tls_cert);
	EVP_PKEY_free(k);
	X509_free(x);
	BIO_free(key);
	BIO_free(cert);
	return r;
}

int config_check(const struct config *c, struct err *err)
{
	int r = 0;
	for (size_t i = 0; i < c->nlisten && r >= 0; i++)
		r = web_listen_check(c->listen[i], c->insecure || c->tls_cert_text, err);
	return r >= 0 && c->tls_cert_text ? check_tls(c, err) : r;
}
