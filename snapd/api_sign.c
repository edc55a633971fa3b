/* Signed URLs: a file, for whoever has the URL, as long as it says and who asked for it may read
 * it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "fs/base/rfc3339.h"
#include "snapd/access.h"
#include "snapd/api_files.h"
#include "snapd/archive_lib.h"
#include "snapd/journal.h"
#include "snapd/sign.h"

enum { FOR_S = 3600 };

static void add_escaped(struct buf *b, const char *text, bool slashes)
{
	for (const char *p = text; *p; p++) {
		bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
			     (*p >= '0' && *p <= '9') || strchr("-._~", *p) ||
			     (slashes && *p == '/');
		buf_printf(b, plain ? "%c" : "%%%02X", (unsigned char)*p);
	}
}

static void add_query(struct buf *b, char before, const char *key, const char *value)
{
	if (!*value)
		return;
	buf_printf(b, "%c%s=", before, key);
	add_escaped(b, value, false);
}

/* ---- made ---- */

static int answer(struct snapd *sd, const struct sign_claim *c, struct reply *rp, struct err *err)
{
	char key[SIGN_KEY_ID], sig[SIGN_TEXT], expires[24], when[RFC3339_SIZE];
	auto_buf url = { 0 };
	const struct timespec at = { .tv_sec = (time_t)c->expires };
	int r = sign_make(sd->signer, c, (uint64_t)time(NULL), key, sig, err);
	if (r < 0)
		return r;
	(void)snprintf(expires, sizeof(expires), "%llu", (unsigned long long)c->expires);
	buf_printf(&url, "/v1/signed/%s/", c->id);
	add_escaped(&url, c->path, true);
	add_query(&url, '?', "expires", expires);
	add_query(&url, '&', "owner", c->owner);
	add_query(&url, '&', "token", c->token);
	add_query(&url, '&', "etag", c->etag);
	add_query(&url, '&', "key", key);
	add_query(&url, '&', "sig", sig);
	buf_u8(&url, 0);
	rp->json = buf_error(&url) ? NULL
				   : json_pack("{s:s, s:s}", "url", (const char *)url.data,
					       "expires", rfc3339_text(when, &at));
	/* At another time it is another one: what is told is kept before. */
	auto_free char *text = rp->json ? json_text(rp->json, JSON_COMPACT) : NULL;
	return text ? catalog_intend_into(sd->catalog, "at/url", text, err) : err_no_memory(err);
}

int api_sign(struct request *rq, struct reply *rp, bool is_snap, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_place p = { .root = -1 };
	auto_found f = { .fd = -1 };
	char tag[HEAD_TAG_TEXT] = "";
	const char *method = request_string(rq, "method");
	uint64_t seconds = request_number(rq, "expires_in", FOR_S);
	doing_op("sign");
	if (method && strcmp(method, "GET") != 0)
		return request_bad_field(rq, "method", err, "only GET (with HEAD) is signed");
	if (seconds < 1 || seconds > SIGN_FOR_MAX_S)
		return request_bad_field(rq, "expires_in", err, "1 to %d seconds", SIGN_FOR_MAX_S);
	int r = place_open(&p, sd, rq->params[0], is_snap, PLACE_READ, err);
	if (r >= 0)
		r = place_find(&p, rq->tail, &f, err);
	if (r >= 0 && !S_ISREG(f.mode)) {
		files_detail(rq, &p, &f);
		r = err_set(err, S_ISDIR(f.mode) ? -EISDIR : -ELOOP, "%s is a %s, not a file",
			    SHOW(rq->tail), place_type(f.mode));
	}
	if (r < 0)
		return r;
	if (request_bool(rq, "pin", false))
		(void)head_tag_text(tag, &f.version, CODING_IDENTITY);
	const struct sign_claim c = {
		.id = rq->params[0],
		.path = rq->tail,
		.owner = rq->caller->owner,
		.token = rq->caller->token,
		.etag = tag,
		.expires = (uint64_t)time(NULL) + seconds,
	};
	return answer(sd, &c, rp, err);
}

int api_snap_file_op(struct request *rq, struct reply *rp, struct err *err)
{
	const char *op = request_query(rq, "op");
	if (!op || strcmp(op, "sign") != 0)
		return request_bad_field(rq, "op", err, "of a snapshot it is sign");
	return api_sign(rq, rp, true, err);
}

/* ---- used ---- */

static const char *or_none(const char *s)
{
	return s ? s : "";
}

/* For the rest of the request it is who asked for the URL that reads. */
static int become(struct request *rq, const struct sign_claim *c, struct err *err)
{
	struct doing *d = doing_now();
	struct principal who;
	struct meant found;
	int r = auth_as(rq->ctx, c->owner, c->token, &who, err);
	if (r == -EKEYREJECTED)
		r = err_set(err, -EPERM, "what the URL was made with is good no longer");
	if (r >= 0)
		r = access_find(rq->ctx, &who, id_is(c->id, "sn"), false, c->id, &found, err);
	if (r >= 0 && !access_path_covers(who.path, c->path))
		r = err_set(err, -EPERM, "who made the URL may not read that any more");
	if (r < 0 || !d)
		return r;
	memcpy(who.from, d->caller.from, sizeof(who.from));
	d->caller = who;
	memcpy(d->object, found.id, ID_SIZE);
	memcpy(d->workspace, found.workspace, ID_SIZE);
	d->own = found.own;
	return 0;
}

int api_signed_get(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *expires = request_query(rq, "expires"), *end;
	struct sign_claim c = { .id = rq->params[0],
				.path = rq->tail,
				.owner = or_none(request_query(rq, "owner")),
				.token = or_none(request_query(rq, "token")),
				.etag = or_none(request_query(rq, "etag")) };
	c.expires = expires ? strtoull(expires, (char **)&end, 10) : 0;
	if (!expires || !*expires || *end || *expires < '0' || *expires > '9')
		return request_bad_field(rq, "expires", err, "seconds since 1970");
	int r = sign_check(sd->signer, &c, (uint64_t)time(NULL), or_none(request_query(rq, "key")),
			   or_none(request_query(rq, "sig")), err);
	if (r >= 0)
		r = become(rq, &c, err);
	if (r < 0)
		return r;
	reply_header(rp, "Referrer-Policy", "no-referrer"); /* the URL is the secret */
	reply_header(rp, "Cache-Control", "private");
	return file_send(rq, rp, id_is(c.id, "sn"), *c.etag ? c.etag : NULL, err);
}
