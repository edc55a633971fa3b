/* What every list and every workspace and snapshot has: pages, owners, who sees it, how long it is
 * kept. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/access.h"

enum {
	PAGE_MAX = 1000,
	TTL_MAX_S = 10 * 365 * 24 * 3600, /* some ten years: no overflow, and no end in sight */
};

/* ---- pages ---- */

static int take_limit(struct page *p, struct request *rq, struct err *err)
{
	const char *limit = request_query(rq, "limit");
	char *end;
	if (!limit)
		return 0;
	errno = 0;
	unsigned long n = strtoul(limit, &end, 10);
	if (errno || !*limit || *end || *limit == '-' || n < 1 || n > PAGE_MAX)
		return request_bad_field(rq, "limit", err, "1 to %d", PAGE_MAX);
	p->limit = n;
	return 0;
}

int page_begin(struct page *p, struct request *rq, struct err *err)
{
	const char *cursor = request_query(rq, "cursor");
	char *end;
	*p = (struct page){ .begun = !cursor };
	int r = take_limit(p, rq, err);
	if (r < 0 || !cursor)
		return r;
	errno = 0;
	p->after_ns = strtoll(cursor, &end, 16);
	if (errno || end == cursor || *end != '-' || strlen(end + 1) >= sizeof(p->after_id))
		return request_bad_field(rq, "cursor", err, "it is no cursor of a list");
	(void)snprintf(p->after_id, sizeof(p->after_id), "%s", end + 1);
	return 0;
}

/* One label with its value has an index. */
static void want_label(struct page *p, const struct request *rq)
{
	for (size_t i = 0; i < rq->nquery; i++) {
		const char *text = rq->query[i].value, *eq = strchr(text, '=');
		if (strcmp(rq->query[i].key, "label") != 0 || !eq ||
		    (size_t)(eq - text) >= sizeof(p->label))
			continue;
		memcpy(p->label, text, (size_t)(eq - text));
		p->label[eq - text] = '\0';
		p->want.label = p->label;
		p->want.value = eq + 1;
		return;
	}
}

int page_begin_want(struct page *p, struct request *rq, struct err *err)
{
	int r = page_begin(p, rq, err);
	if (r < 0)
		return r;
	p->want = (struct list_want){
		.after_ns = p->after_ns,
		.after_id = p->begun ? NULL : p->after_id,
		.sees = rq->caller->admin ? NULL : rq->caller->owner,
		.max = p->limit ? p->limit + 1 : 0, /* one more: whether there is a next page */
	};
	want_label(p, rq);
	p->begun = true; /* the catalog begins behind it */
	return 0;
}

bool page_goes_on(struct page *p, size_t n, int64_t last_ns, const char *last_id)
{
	if (!p->want.max || n < p->want.max || p->more)
		return false;
	(void)snprintf(p->read_id, sizeof(p->read_id), "%s", last_id);
	p->want.after_ns = last_ns;
	p->want.after_id = p->read_id;
	p->want.max = p->want.max < PAGE_MAX / 2 ? 2 * p->want.max : PAGE_MAX;
	return true;
}

int page_begin_names(struct page *p, struct request *rq, struct err *err)
{
	const char *cursor = request_query(rq, "cursor");
	*p = (struct page){ .by_name = true };
	int r = take_limit(p, rq, err);
	if (r < 0 || !cursor)
		return r;
	if (strncmp(cursor, "n-", 2) != 0 || !cursor[2] || strlen(cursor + 2) >= PAGE_ID_SIZE)
		return request_bad_field(rq, "cursor", err, "it is no cursor of a list");
	(void)snprintf(p->after_id, sizeof(p->after_id), "%s", cursor + 2);
	return 0;
}

static bool take(struct page *p, int64_t created_ns, const char *id)
{
	if (p->more || (p->limit && p->taken == p->limit)) {
		p->more = true;
		return false;
	}
	p->taken++;
	p->last_ns = created_ns;
	(void)snprintf(p->last_id, sizeof(p->last_id), "%s", id);
	return true;
}

bool page_takes(struct page *p, int64_t created_ns, const char *id)
{
	if (!p->begun && created_ns >= p->after_ns) {
		p->begun = strcmp(id, p->after_id) == 0; /* from the next one on */
		return false;
	}
	p->begun = true; /* where the last one of the page before is gone, too */
	return take(p, created_ns, id);
}

bool page_takes_name(struct page *p, const char *name)
{
	return strcmp(name, p->after_id) > 0 && take(p, 0, name);
}

json_t *page_end(const struct page *p, json_t *items)
{
	char cursor[CURSOR_SIZE];
	json_t *j = json_pack("{s:o}", "items", items);
	if (!j || !p->more)
		return j;
	if (p->by_name)
		(void)snprintf(cursor, sizeof(cursor), "n-%s", p->last_id);
	else
		(void)snprintf(cursor, sizeof(cursor), "%llx-%s", (unsigned long long)p->last_ns,
			       p->last_id);
	if (json_object_set_new(j, "next", json_string(cursor)) < 0) {
		json_decref(j);
		return NULL;
	}
	return j;
}

int page_reply(struct reply *rp, const struct page *p, json_t *items, int r, struct err *err)
{
	if (r < 0) {
		json_decref(items);
		return r;
	}
	rp->json = page_end(p, items);
	return rp->json ? 0 : err_no_memory(err);
}

bool page_has_labels(const struct request *rq, const char *have)
{
	bool all = true;
	json_t *labels = NULL;
	for (size_t i = 0; i < rq->nquery && all; i++) {
		if (strcmp(rq->query[i].key, "label") != 0)
			continue;
		if (!labels && have)
			labels = json_loads(have, 0, NULL);
		const char *want = rq->query[i].value, *eq = strchrnul(want, '=');
		const char *value = json_string_value(
			json_object_getn(labels, want, (size_t)(eq - want)));
		all = value && (!*eq || strcmp(value, eq + 1) == 0);
	}
	json_decref(labels);
	return all;
}

/* ---- whose, and until when ---- */

static int take_visibility(struct request *rq, struct owned *own, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *seen = request_string(rq, "visibility"), *team = request_string(rq, "team");
	const struct principal *who = rq->caller;
	if (who->team[0] && !own->owner[0] && !seen && !team) { /* what it makes is its team's */
		own->visibility = VISIBLE_TEAM;
		memcpy(own->team, who->team, sizeof(own->team));
		return 1;
	}
	if (!seen && !team)
		return 0;
	/* A new one has no owner yet: it will be the caller's. */
	if (own->owner[0] && !principal_owns(who, own->owner))
		return err_set(err, -EPERM, "only its owner says who sees it");
	int v = seen ? visibility_parse(seen) : VISIBLE_TEAM;
	if (v < 0)
		return request_bad_field(rq, "visibility", err, "private, team or global");
	if ((v == VISIBLE_TEAM) != (team != NULL))
		return request_bad_field(rq, "team", err, "it goes with the visibility \"team\"");
	if (team) {
		struct team_row row;
		int r = access_find_team(sd, who, team, &row, err);
		if (r == -ENOENT)
			return request_bad_field(rq, "team", err, "you are in no team \"%.100s\"",
						 team);
		if (r < 0)
			return r;
		memcpy(own->team, row.id, sizeof(own->team));
	} else {
		own->team[0] = '\0';
	}
	if (who->team[0] && strcmp(own->team, who->team) != 0)
		return err_set(err, -EPERM, "the token is for team %s only", who->team);
	own->visibility = (enum visibility)v;
	return 1;
}

static int take_expiry(struct request *rq, struct owned *own, struct err *err)
{
	const char *then = request_string(rq, "on_expiry");
	bool ttl = json_is_integer(json_object_get(rq->body, "ttl_s"));
	uint64_t s = request_number(rq, "ttl_s", 0);
	int v = then ? on_expiry_parse(then) : (int)own->on_expiry;
	if (v < 0)
		return request_bad_field(rq, "on_expiry", err, "delete, save or keep");
	if (s > TTL_MAX_S)
		return request_bad_field(rq, "ttl_s", err, "at most %d", TTL_MAX_S);
	if (ttl)
		own->expires_ns = s ? snapd_now_ns() + (int64_t)s * 1000000000 : 0;
	own->on_expiry = (enum on_expiry)v;
	return ttl || then;
}

int api_own_take(struct request *rq, struct owned *own, struct err *err)
{
	int a = take_visibility(rq, own, err);
	int b = a < 0 ? a : take_expiry(rq, own, err);
	return b < 0 ? b : a | b;
}
