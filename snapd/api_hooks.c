/* Webhooks: who is to be told of events, and how that went. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/json.h"
#include "snapd/access.h"
#include "snapd/hooks.h"
#include "snapd/outcome.h"

enum { SECRET_BYTES = 32, SECRET_TEXT = 6 + 44 + 1 };

static int give(struct reply *rp, unsigned status, json_t *j, struct err *err)
{
	rp->json = j;
	rp->status = status;
	return j ? 0 : err_no_memory(err);
}

json_t *api_hook(const struct hook_row *h)
{
	json_t *events = h->events ? json_loads(h->events, 0, NULL) : json_null();
	return json_pack("{s:s, s:s, s:s, s:o, s:b, s:b, s:o}", "id", h->id, "owner", h->owner,
			 "url", h->url, "events", events ? events : json_null(), "everybody",
			 h->all, "active", h->active, "created", api_time(h->created_ns));
}

/* One's own; an admin's: any. */
static int get_hook(struct request *rq, struct hook_row *row, struct err *err)
{
	struct snapd *sd = rq->ctx;
	int r = catalog_hook_get(sd->catalog, rq->params[0], row, err);
	if (r >= 0 && !principal_owns(rq->caller, row->owner)) {
		hook_row_done(row);
		r = err_set(err, -ENOENT, "no webhook \"%.100s\"", rq->params[0]);
	}
	return r;
}

int api_hook_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct hook_row *rows;
	struct page page;
	size_t n;
	int bad = 0, r = page_begin(&page, rq, err);
	if (r >= 0)
		r = catalog_hook_list(sd->catalog, rq->caller->admin ? NULL : rq->caller->owner,
				      &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	for (size_t i = 0; i < n; i++)
		if (page_takes(&page, rows[i].created_ns, rows[i].id))
			bad |= json_array_append_new(items, api_hook(&rows[i]));
	hook_rows_free(rows, n);
	json_t *j = page_end(&page, items);
	if (bad) {
		json_decref(j);
		j = NULL;
	}
	return give(rp, 200, j, err);
}

int api_hook_get(struct request *rq, struct reply *rp, struct err *err)
{
	auto_hook_row row = { 0 };
	int r = get_hook(rq, &row, err);
	return r < 0 ? r : give(rp, 200, api_hook(&row), err);
}

/* ---- making and changing ---- */

static int take_events(struct request *rq, struct hook_row *row, struct err *err)
{
	const json_t *list = json_object_get(rq->body, "events"), *one;
	size_t i;
	if (!list)
		return 0;
	json_array_foreach((json_t *)(uintptr_t)list, i, one) {
		const char *s = json_string_value(one);
		if (!outcome_tells(s))
			return request_bad_field(rq, "events", err,
						 "there is no event \"%.60s\"; one is, say, "
						 "workspace.saved",
						 s);
	}
	free(row->events);
	row->events = json_array_size(list) ? json_text(list, JSON_COMPACT) : NULL;
	return json_array_size(list) && !row->events ? err_no_memory(err) : 0;
}

static int take_url(struct request *rq, struct hook_row *row, struct err *err)
{
	const char *url = request_string(rq, "url");
	struct err why = { 0 };
	if (!url)
		return 0;
	if (hook_url_check(url, &why) < 0)
		return request_bad_field(rq, "url", err, "%s", why.text);
	struct snapd *sd = rq->ctx;
	row->anywhere = rq->caller->admin;
	int r = row->anywhere ? 0 : hook_url_allowed(url, &sd->policy.hook_allow, err);
	if (r < 0)
		return r;
	free(row->url);
	row->url = strdup(url);
	return row->url ? 0 : err_no_memory(err);
}

/* Given, else fresh (into `made`). */
static int take_secret(struct request *rq, struct hook_row *row, bool needed,
		       char made[SECRET_TEXT], struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *secret = request_string(rq, "secret");
	*made = '\0';
	if (!secret && !needed)
		return 0;
	if (secret && strlen(secret) < HOOK_SECRET_MIN)
		return request_bad_field(rq, "secret", err, "%d characters or more",
					 HOOK_SECRET_MIN);
	if (!secret) {
		uint8_t bytes[SECRET_BYTES];
		random_bytes(bytes, sizeof(bytes));
		memcpy(made, "whsec_", 6);
		(void)EVP_EncodeBlock((uint8_t *)made + 6, bytes, sizeof(bytes));
		explicit_bzero(bytes, sizeof(bytes));
	}
	return hooks_seal(sd->hooks, row, secret ? secret : made, err);
}

static int check_count(struct request *rq, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct hook_row *rows;
	size_t n;
	int r = catalog_hook_list(sd->catalog, rq->caller->owner, &rows, &n, err);
	if (r < 0)
		return r;
	hook_rows_free(rows, n);
	return n < HOOKS_OWNER_MAX
		       ? 0
		       : err_set(err, -EDQUOT, "at most %d webhooks of one owner; remove one",
				 HOOKS_OWNER_MAX);
}

int api_hook_create(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	char made[SECRET_TEXT];
	auto_hook_row row = { .created_ns = snapd_now_ns() };
	id_make(row.id, "wh");
	memcpy(row.owner, rq->caller->owner, sizeof(row.owner));
	row.active = request_bool(rq, "active", true);
	row.all = request_bool(rq, "everybody", false);
	if (row.all && !rq->caller->admin)
		return err_set(err, -EPERM, "only an admin hears of everybody's");
	int r = check_count(rq, err);
	if (r >= 0)
		r = take_url(rq, &row, err);
	if (r >= 0)
		r = take_events(rq, &row, err);
	if (r >= 0)
		r = take_secret(rq, &row, true, made, err);
	if (r >= 0)
		r = catalog_hook_insert(sd->catalog, &row, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	json_t *j = r < 0 ? NULL : api_hook(&row);
	if (j && *made && json_object_set_new(j, "secret", json_string(made)) < 0) {
		json_decref(j);
		j = NULL;
	}
	explicit_bzero(made, sizeof(made));
	if (r < 0)
		return r;
	hooks_changed(sd->hooks);
	return give(rp, 201, j, err);
}

int api_hook_patch(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	char made[SECRET_TEXT];
	auto_hook_row row = { 0 };
	pthread_mutex_lock(&sd->patches); /* of two changes at once each keeps the other */
	int r = get_hook(rq, &row, err);
	if (r >= 0) {
		row.active = request_bool(rq, "active", row.active);
		r = take_url(rq, &row, err);
	}
	if (r >= 0)
		r = take_events(rq, &row, err);
	if (r >= 0)
		r = take_secret(rq, &row, false, made, err);
	if (r >= 0)
		r = catalog_hook_update(sd->catalog, &row, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	pthread_mutex_unlock(&sd->patches);
	if (r < 0)
		return r;
	hooks_changed(sd->hooks);
	return give(rp, 200, api_hook(&row), err);
}

int api_hook_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_hook_row row = { 0 };
	int r = get_hook(rq, &row, err);
	if (r >= 0)
		r = catalog_hook_delete(sd->catalog, row.id, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r >= 0)
		hooks_changed(sd->hooks);
	rp->status = 204;
	return r;
}

/* ---- deliveries ---- */

json_t *api_delivery(const struct delivery_row *d)
{
	return json_pack("{s:s, s:I, s:s, s:o, s:i, s:s, s:o, s:o, s:o}", "id", d->id, "seq",
			 (json_int_t)d->seq, "type", d->type, "created", api_time(d->created_ns),
			 "tries", (int)d->tries, "state",
			 d->delivered ? "delivered"
			 : d->next_ns ? "waiting"
				      : "failed",
			 "status", d->status ? json_integer(d->status) : json_null(), "error",
			 d->error[0] ? json_string(d->error) : json_null(), "next",
			 d->next_ns ? api_time(d->next_ns) : json_null());
}

int api_hook_test(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_hook_row row = { 0 };
	struct delivery_row d;
	int r = get_hook(rq, &row, err);
	if (r >= 0 && !row.active)
		r = err_set(err, -ESTALE, "webhook %s isn't active", row.id);
	if (r >= 0)
		r = hooks_ping(sd->hooks, &row, &d, err);
	if (r < 0)
		return r;
	r = give(rp, 202, api_delivery(&d), err);
	delivery_row_done(&d);
	return r;
}

/* "limit" and "cursor", which is a delivery's number. */
static int take_page(struct request *rq, int64_t *before, size_t *max, struct err *err)
{
	struct page page = { 0 };
	const char *cursor = request_query(rq, "cursor");
	char *end;
	if (cursor) {
		errno = 0;
		*before = strtoll(cursor, &end, 10);
		if (errno || *end || *before < 1)
			return request_bad_field(rq, "cursor", err, "it is no cursor of a list");
	}
	struct request only = *rq; /* its limit is that of other lists */
	struct web_query limit = { (char *)(uintptr_t) "limit",
				   (char *)(uintptr_t)request_query(rq, "limit") };
	only.query = &limit;
	only.nquery = limit.value ? 1 : 0;
	int r = page_begin(&page, &only, err);
	rq->details = only.details;
	*max = page.limit ? page.limit : 100;
	return r;
}

int api_delivery_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_hook_row row = { 0 };
	struct delivery_row *rows;
	size_t n = 0, max = 0;
	int64_t before = 0;
	int bad = 0, r = get_hook(rq, &row, err);
	if (r >= 0)
		r = take_page(rq, &before, &max, err);
	if (r >= 0)
		r = catalog_delivery_list(sd->catalog, row.id, before, max + 1, &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	for (size_t i = 0; i < n && i < max; i++)
		bad |= json_array_append_new(items, api_delivery(&rows[i]));
	json_t *j = json_pack("{s:o}", "items", items);
	if (n > max) {
		char cursor[24];
		(void)snprintf(cursor, sizeof(cursor), "%lld", (long long)rows[max - 1].seq);
		bad |= json_object_set_new(j, "next", json_string(cursor));
	}
	delivery_rows_free(rows, n);
	if (bad) {
		json_decref(j);
		j = NULL;
	}
	return give(rp, 200, j, err);
}
