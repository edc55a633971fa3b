#include "snapd/hooks.h"

#include <curl/curl.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "snapd/access.h"
#include "snapd/hook_send.h"
#include "snapd/seal.h"
#include "snapd/worker.h"

enum {
	SENDERS = 8,
	LOOK_MS = 1000, /* for what is to be tried again */
	WAIT_MS = 1000, /* for events, before a stop is looked for */
};

struct hooks {
	struct snapd *sd;
	uint8_t key[SEAL_KEY];
	pthread_t listener;
	bool listening;
	atomic_bool stop;
	struct worker *senders[SENDERS];
	pthread_mutex_t lock; /* all below */
	struct hook_row *rows;
	size_t nrows;
	bool known; /* rows are as in the catalog */
	struct hook_busy busy[SENDERS];
	size_t nbusy;
};

/* ---- pure ---- */

int hook_url_check(const char *url, struct err *err)
{
	CURLU *u = curl_url();
	char *part[5] = { NULL };
	static const CURLUPart parts[] = { CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_USER,
					   CURLUPART_PASSWORD, CURLUPART_FRAGMENT };
	int r = 0;
	if (!u)
		return err_no_memory(err);
	if (strlen(url) > HOOK_URL_MAX || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK)
		r = err_set(err, -EINVAL, "it is no URL");
	for (size_t i = 0; i < 5 && r == 0; i++)
		(void)curl_url_get(u, parts[i], &part[i], 0); /* NULL: it has none */
	if (r == 0 && (!part[0] || (strcmp(part[0], "https") != 0 && strcmp(part[0], "http") != 0)))
		r = err_set(err, -EINVAL, "only https and http");
	/* An empty fragment is none to curl. */
	if (r == 0 && (!part[1] || part[2] || part[3] || part[4] || strchr(url, '#')))
		r = err_set(err, -EINVAL, "a host, without credentials and fragment");
	for (size_t i = 0; i < 5; i++)
		curl_free(part[i]);
	curl_url_cleanup(u);
	return r;
}

/* "a.localhost." as well (RFC 6761). */
static bool is_localhost(const char *host, size_t n)
{
	static const char name[] = "localhost";
	size_t len = sizeof(name) - 1;
	n -= n > 0 && host[n - 1] == '.';
	return n >= len && strncasecmp(host + n - len, name, len) == 0 &&
	       (n == len || host[n - len - 1] == '.');
}

int hook_url_allowed(const char *url, const struct netrules *allowed, struct err *err)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	char *host = NULL, bare[HOOK_URL_MAX + 1];
	CURLU *u = curl_url();
	int r = 0;
	if (!u || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK ||
	    curl_url_get(u, CURLUPART_HOST, &host, 0) != CURLUE_OK) {
		curl_url_cleanup(u);
		return err_no_memory(err);
	}
	size_t n = strlen(host);
	bool v6 = host[0] == '[';
	(void)snprintf(bare, sizeof(bare), "%.*s", (int)(n - 2 * v6), host + v6);
	const char *meant = is_localhost(bare, strlen(bare)) ? "127.0.0.1" : bare;
	if (getaddrinfo(meant, NULL, &hints, &list) == 0 && !netrules_allow(allowed, list->ai_addr))
		r = err_set(err, -EACCES,
			    "%.255s is an address that a webhook may not lead to: an admin's may, "
			    "and webhook_allow of config.json allows it for others",
			    bare);
	if (list)
		freeaddrinfo(list);
	curl_free(host);
	curl_url_cleanup(u);
	return r;
}

int64_t hook_next_ns(unsigned tries, uint32_t retry_s, int64_t now_ns)
{
	int64_t pause_s = retry_s;
	if (tries >= HOOK_TRIES)
		return 0;
	for (unsigned i = 1; i < tries; i++)
		pause_s *= 4;
	return now_ns + pause_s * 1000000000;
}

/* What a secret stands for. The caller frees. */
static uint8_t *key_of(const char *secret, size_t *len)
{
	size_t n = strlen(secret);
	uint8_t *key = malloc(n + 1);
	if (!key)
		return NULL;
	memcpy(key, secret, n + 1);
	*len = n;
	if (strncmp(secret, "whsec_", 6) != 0)
		return key;
	int got = EVP_DecodeBlock(key, (const uint8_t *)secret + 6, (int)n - 6);
	size_t pad = (n > 6 && secret[n - 1] == '=') + (n > 7 && secret[n - 2] == '=');
	if (got > 0 && (size_t)got > pad) {
		*len = (size_t)got - pad;
	} else { /* it isn't base64: then it is its own bytes */
		memcpy(key, secret, n + 1);
		*len = n;
	}
	return key;
}

char *hook_signature(const char *secret, const char *id, int64_t time_s, const char *body)
{
	uint8_t mac[EVP_MAX_MD_SIZE], text[64];
	unsigned len = 0;
	size_t nkey = 0;
	char *signed_text = NULL, *out = NULL;
	uint8_t *key = key_of(secret, &nkey);
	int n = key ? asprintf(&signed_text, "%s.%lld.%s", id, (long long)time_s, body) : -1;
	if (n >= 0 && HMAC(EVP_sha256(), key, (int)nkey, (const uint8_t *)signed_text, (size_t)n,
			   mac, &len)) {
		(void)EVP_EncodeBlock(text, mac, (int)len);
		if (asprintf(&out, "v1,%s", text) < 0)
			out = NULL;
	}
	if (key)
		explicit_bzero(key, nkey);
	free(key);
	if (n >= 0)
		free(signed_text);
	return out;
}

/* ---- secrets ---- */

int hooks_seal(struct hooks *h, struct hook_row *row, const char *secret, struct err *err)
{
	return seal(&row->secret, h->key, row->id, secret, strlen(secret), err);
}

/* ---- what is to be told ---- */

/* With the lock. */
static int read_rows(struct hooks *h)
{
	struct hook_row *rows;
	size_t n;
	struct err err = { 0 };
	if (h->known)
		return 0;
	if (catalog_hook_list(h->sd->catalog, NULL, &rows, &n, &err) < 0) {
		if (err.code != -EUCLEAN)
			log_warn("%s", err.text);
		return err.code;
	}
	hook_rows_free(h->rows, h->nrows);
	h->rows = rows;
	h->nrows = n;
	h->known = true;
	return 0;
}

void hooks_changed(struct hooks *h)
{
	pthread_mutex_lock(&h->lock);
	h->known = false;
	pthread_mutex_unlock(&h->lock);
}

static bool wants(const struct hook_row *row, const char *type)
{
	json_t *list = row->events ? json_loads(row->events, 0, NULL) : NULL, *one;
	bool found = !row->events;
	size_t i;
	json_array_foreach(list, i, one)
		found |= strcmp(json_string_value(one), type) == 0;
	json_decref(list);
	return found;
}

static bool may_hear(struct snapd *sd, const struct hook_row *row, const struct event *e)
{
	struct principal who = { .known = true, .admin = row->all, .uid = (uid_t)-1 };
	memcpy(who.owner, row->owner, sizeof(who.owner));
	return access_sees(sd, &who, &e->own, e->workspace);
}

static int fill(struct hooks *h, struct delivery_row *d, const struct hook_row *row,
		const struct event *e)
{
	char id[EVENT_ID_SIZE];
	event_id(h->sd->events, e->seq, id);
	json_t *j = api_event(e);
	int bad = j ? json_object_set_new(j, "id", json_string(id)) : -1;
	d->body = bad ? NULL : json_text(j, JSON_COMPACT);
	json_decref(j);
	id_make(d->id, "dl");
	memcpy(d->hook, row->id, sizeof(d->hook));
	memcpy(d->type, e->type, sizeof(d->type));
	d->created_ns = snapd_now_ns();
	d->next_ns = d->created_ns;
	return d->body ? 0 : -ENOMEM;
}

static void wake(struct hooks *h)
{
	for (size_t i = 0; i < SENDERS; i++)
		worker_wake(h->senders[i]);
}

static void note_event(struct hooks *h, const struct event *e)
{
	bool some = false;
	pthread_mutex_lock(&h->lock);
	if (read_rows(h) == 0)
		for (size_t i = 0; i < h->nrows; i++) {
			const struct hook_row *row = &h->rows[i];
			struct delivery_row d = { 0 };
			struct err err = { 0 };
			if (!row->active || !wants(row, e->type) || !may_hear(h->sd, row, e))
				continue;
			int r = fill(h, &d, row, e);
			if (r >= 0)
				r = catalog_delivery_add(h->sd->catalog, &d, &err);
			if (r < 0)
				log_error("webhook %s: %s", row->id, err.text);
			some |= r >= 0;
			delivery_row_done(&d);
		}
	pthread_mutex_unlock(&h->lock);
	if (some)
		wake(h);
}

static void *listen_thread(void *arg)
{
	struct hooks *h = arg;
	struct event e;
	uint64_t after = 0;
	int r;
	while ((r = events_next(h->sd->events, after, &e, WAIT_MS)) != -ESHUTDOWN) {
		if (r == -EKEYEXPIRED) {
			after = events_last(h->sd->events);
			log_warn("webhooks: events came faster than they could be noted");
		} else if (r > 0) {
			after = e.seq;
			note_event(h, &e);
		}
	}
	return NULL;
}

int hooks_ping(struct hooks *h, const struct hook_row *row, struct delivery_row *out,
	       struct err *err)
{
	struct event e = { .type = "ping", .time_ns = snapd_now_ns() };
	memcpy(e.own.owner, row->owner, sizeof(e.own.owner));
	memcpy(e.by, row->owner, sizeof(e.by));
	(void)snprintf(e.object, sizeof(e.object), "%s", row->id);
	struct delivery_row d = { 0 };
	int r = fill(h, &d, row, &e);
	r = r < 0 ? err_no_memory(err) : catalog_delivery_add(h->sd->catalog, &d, err);
	if (r >= 0)
		r = catalog_delivery_get(h->sd->catalog, d.id, out, err);
	delivery_row_done(&d);
	if (r >= 0)
		wake(h);
	return r;
}

/* ---- telling ---- */

static int send_one(struct hooks *h, const struct hook_row *row, struct delivery_row *d,
		    struct err *err)
{
	auto_buf secret = { 0 };
	int64_t now_s = snapd_now_ns() / 1000000000;
	int r = unseal(&secret, h->key, row->id, row->secret.data, row->secret.len, err);
	if (r < 0)
		return r;
	buf_u8(&secret, 0);
	auto_free char *signature = buf_error(&secret) ? NULL
						       : hook_signature((const char *)secret.data,
									d->id, now_s, d->body);
	if (secret.data)
		explicit_bzero(secret.data, secret.len);
	if (!signature)
		return err_no_memory(err);
	const struct hook_send what = { .url = row->url,
					.body = d->body,
					.id = d->id,
					.signature = signature,
					.time_s = now_s,
					.allowed = &h->sd->policy.hook_allow,
					.anywhere = row->anywhere,
					.stop = &h->stop };
	return hook_send(&what, err);
}

static void tell(struct hooks *h, struct delivery_row *d)
{
	auto_hook_row row = { 0 };
	struct err err = { 0 };
	int r = catalog_hook_get(h->sd->catalog, d->hook, &row, &err);
	if (r == -ENOENT)
		return; /* it was removed, with all that it was to be told */
	if (r >= 0)
		r = send_one(h, &row, d, &err);
	d->tries++;
	d->status = r > 0 ? (unsigned)r : 0;
	d->delivered = r >= 200 && r < 300;
	if (!d->delivered && r > 0)
		(void)snprintf(d->error, sizeof(d->error), "it answered %d", r);
	else
		(void)snprintf(d->error, sizeof(d->error), "%.*s", HOOK_ERROR_SIZE - 1,
			       d->delivered ? "" : err.text);
	d->next_ns = d->delivered
			     ? 0
			     : hook_next_ns(d->tries, h->sd->policy.hook_retry_s, snapd_now_ns());
	if (catalog_delivery_end(h->sd->catalog, d, &err) < 0)
		log_error("webhook %s: %s", d->hook, err.text); /* it is told again */
}

/* Takes one that nobody else is at. */
static bool claim(struct hooks *h, struct delivery_row *d)
{
	struct err err = { 0 };
	pthread_mutex_lock(&h->lock);
	struct hook_busy *next = &h->busy[h->nbusy];
	int r = catalog_delivery_due(h->sd->catalog, snapd_now_ns(), h->busy, h->nbusy, d,
				     next->owner, &err);
	if (r > 0) {
		memcpy(next->hook, d->hook, ID_SIZE);
		h->nbusy++;
	}
	pthread_mutex_unlock(&h->lock);
	if (r < 0 && err.code != -EUCLEAN)
		log_error("%s", err.text);
	return r > 0;
}

static void leave(struct hooks *h, const char *hook)
{
	pthread_mutex_lock(&h->lock);
	size_t i = 0;
	while (strcmp(h->busy[i].hook, hook) != 0)
		i++;
	h->busy[i] = h->busy[--h->nbusy];
	pthread_mutex_unlock(&h->lock);
}

static void run(void *ctx, bool due)
{
	struct hooks *h = ctx;
	struct delivery_row d;
	while (!atomic_load(&h->stop) && claim(h, &d)) {
		tell(h, &d);
		leave(h, d.hook);
		delivery_row_done(&d);
	}
}

/* ---- life ---- */

int hooks_start(struct hooks **out, struct snapd *sd, struct err *err)
{
	struct hooks *h = calloc(1, sizeof(*h));
	if (!h)
		return err_no_memory(err);
	const struct worker_options opt = {
		.what = "webhooks", .every_ms = LOOK_MS, .run = run, .ctx = h
	};
	h->sd = sd;
	pthread_mutex_init(&h->lock, NULL);
	int r = seal_key(sd->root, h->key, err);
	for (size_t i = 0; i < SENDERS && r >= 0; i++)
		r = worker_start(&h->senders[i], &opt, err);
	if (r >= 0) {
		r = -pthread_create(&h->listener, NULL, listen_thread, h);
		h->listening = r == 0;
		if (r < 0)
			(void)err_sys(err, r, "start webhooks");
	}
	if (r < 0) {
		hooks_stop(h);
		return r;
	}
	*out = h;
	return 0;
}

void hooks_stop(struct hooks *h)
{
	if (!h)
		return;
	atomic_store(&h->stop, true);
	events_stop(h->sd->events);
	if (h->listening)
		pthread_join(h->listener, NULL);
	for (size_t i = 0; i < SENDERS; i++)
		worker_stop(h->senders[i]);
	hook_rows_free(h->rows, h->nrows);
	explicit_bzero(h->key, sizeof(h->key));
	pthread_mutex_destroy(&h->lock);
	free(h);
}
