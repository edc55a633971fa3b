/* Files: read, told of, listed. */
#include "snapd/api_files.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/base64.h"
#include "fs/base/cleanup.h"
#include "fs/base/rfc3339.h"
#include "snapd/access.h"
#include "snapd/archive_lib.h"
#include "snapd/files_code.h"
#include "snapd/files_list.h"
#include "snapd/web_parse.h"

enum {
	READ_BYTES = 128 * 1024,
	CODE_LEAST = 256,  /* bytes: less isn't worth a coding */
	LIST_MAX = 100000, /* entries of a page */
};

void files_detail(struct request *rq, const struct place *p, const struct found *f)
{
	char target[PATH_SIZE];
	bool link = S_ISLNK(f->mode) && place_target(p, f, target, NULL) == 0;
	if (rq->details)
		return;
	rq->details = json_pack("{s:s}", "type", place_type(f->mode));
	if (link && rq->details) /* a detail that is missing does no harm */
		(void)listing_set_name(rq->details, "target", target, strlen(target));
}

/* ---- what a body has ---- */

int files_bytes(const json_t *j, const char *key, char **out, size_t *len, struct err *err)
{
	char other[32];
	(void)snprintf(other, sizeof(other), "%s_b64", key);
	const json_t *plain = json_object_get(j, key), *coded = json_object_get(j, other);
	*out = NULL;
	*len = 0;
	if (json_is_string(plain) && json_is_string(coded))
		return err_set(err, -EINVAL, "\"%s\" and \"%s\": one of them", key, other);
	if (json_is_string(plain)) {
		*len = json_string_length(plain);
		*out = malloc(*len + 1);
		if (*out)
			memcpy(*out, json_string_value(plain), *len + 1);
		return *out ? 0 : err_no_memory(err);
	}
	if (!json_is_string(coded))
		return 0;
	size_t n = json_string_length(coded), room = n / 4 * 3;
	char *to = malloc(room + 1);
	int got = to ? base64_decode(json_string_value(coded), n, to, room) : -ENOMEM;
	if (got < 0) {
		free(to);
		return got == -ENOMEM ? err_no_memory(err)
				      : err_set(err, -EINVAL, "\"%s\" isn't base64", other);
	}
	to[got] = '\0';
	*out = to;
	*len = (size_t)got;
	return 0;
}

int files_path(const json_t *j, const char *key, char **out, struct err *err)
{
	char *text;
	size_t len;
	int r = files_bytes(j, key, &text, &len, err);
	if (r < 0)
		return r;
	if (!text || strlen(text) != len) {
		free(text);
		return err_set(err, -EINVAL, "\"%s\" is missing, or has a NUL", key);
	}
	if (*text == '/')
		memmove(text, text + 1, len); /* with its end */
	r = *text ? web_file_path_check(text, err)
		  : err_set(err, -EISDIR, "that is the root directory");
	if (r == 0)
		r = access_path(text, err);
	if (r < 0) {
		free(text);
		return r;
	}
	*out = text;
	return 0;
}

/* ---- conditions ---- */

static int get_tags(struct head_tags *out, bool *has, struct request *rq, const char *name,
		    struct err *err)
{
	const char *value = request_header(rq, name);
	*has = value != NULL;
	if (!value || head_tags_parse(out, value) == 0)
		return 0;
	return err_set(err, -EINVAL, "%s: a list of at most %d entity tags in quotes, or *", name,
		       HEAD_TAGS_MAX);
}

static int conditions_get(struct conditions *c, struct request *rq, struct err *err)
{
	int r = get_tags(&c->match, &c->has_match, rq, "If-Match", err);
	return r < 0 ? r : get_tags(&c->unless, &c->has_unless, rq, "If-None-Match", err);
}

static bool names(const struct head_tags *t, const struct found *f, bool weak_too)
{
	for (size_t i = 0; f && i < t->n; i++) {
		struct version_id v;
		enum coding c;
		if ((weak_too || !t->tags[i].weak) && head_tag_read(&t->tags[i], &v, &c) == 0 &&
		    version_equal(&v, &f->version))
			return true;
	}
	return f && t->any;
}

int conditions_check(const struct conditions *c, const struct found *f, struct err *err)
{
	if (c->has_match && !names(&c->match, f, false))
		return err_set(err, -EREMCHG,
			       f ? "the file isn't the version that If-Match names"
				 : "there is no file, as If-Match wants one");
	if (c->has_unless && names(&c->unless, f, true))
		return err_set(err, -EREMCHG, "If-None-Match names what is there");
	return 0;
}

static size_t take_versions(const struct head_tags *t, struct version_id *out, bool weak_too)
{
	size_t n = 0;
	enum coding c;
	for (size_t i = 0; i < t->n; i++)
		if ((weak_too || !t->tags[i].weak) && head_tag_read(&t->tags[i], &out[n], &c) == 0)
			n++;
	return n;
}

void conditions_want(const struct conditions *c, struct condition_lists *lists, struct ws_put *want)
{
	if (c->has_match && c->match.any)
		want->must_exist = true;
	if (c->has_unless && c->unless.any)
		want->must_not_exist = true;
	if (c->has_match && !c->match.any) {
		want->match = lists->match;
		want->nmatch = take_versions(&c->match, lists->match, false);
		if (want->nmatch == 0) /* none of ours: nothing can be that */
			lists->match[want->nmatch++] = (struct version_id){ 0 };
	}
	if (c->has_unless && !c->unless.any) {
		want->unless = lists->unless;
		want->nunless = take_versions(&c->unless, lists->unless, true);
	}
}

int conditions_change(struct conditions *c, struct request *rq, struct err *err)
{
	if (request_header(rq, "If-Unmodified-Since"))
		return err_set(err, -ENOSYS, "If-Unmodified-Since isn't looked at: use If-Match");
	return conditions_get(c, rq, err);
}

int conditions_refuse(struct request *rq, struct err *err)
{
	struct conditions c = { 0 };
	int r = conditions_change(&c, rq, err);
	return r < 0 || !(c.has_match || c.has_unless)
		       ? r
		       : err_set(err, -ENOSYS, "If-Match and If-None-Match aren't looked at here");
}

/* ---- the bytes of a file ---- */

struct download {
	struct place place;
	struct found file;
	uint64_t off, len; /* what is sent of it, uncoded */
	/* coded */
	struct coder *coder;
	uint8_t *in;
	const uint8_t *at;
	size_t have;
	uint64_t taken;
};

static void download_free(void *task)
{
	struct download *d = task;
	coder_free(d->coder);
	free(d->in);
	found_done(&d->file);
	place_done(&d->place);
	free(d);
}

static ssize_t read_piece(struct download *d, uint64_t pos, void *buf, size_t n, struct err *err)
{
	if (pos >= d->len)
		return 0;
	if (n > d->len - pos)
		n = (size_t)(d->len - pos);
	ssize_t got = place_read(&d->place, &d->file, buf, n, d->off + pos, err);
	/* Its length was promised. */
	return got == 0 ? err_set(err, -EIO, "the file became shorter while it was read") : got;
}

static ssize_t download_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	return read_piece(task, pos, buf, n, err);
}

static ssize_t coded_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	struct download *d = task;
	for (;;) {
		if (d->have == 0 && d->taken < d->len) {
			ssize_t got = read_piece(d, d->taken, d->in, READ_BYTES, err);
			if (got < 0)
				return got;
			d->at = d->in;
			d->have = (size_t)got;
			d->taken += (size_t)got;
		}
		bool last = d->taken == d->len;
		ssize_t made = coder_step(d->coder, &d->at, &d->have, last, buf, n, err);
		if (made != 0 || last)
			return made;
	}
}

/* SHA-256 of [off, off + len). */
static int digest_of(struct download *d, uint64_t off, uint64_t len, struct digest *out,
		     struct err *err)
{
	auto_free uint8_t *buf = malloc(READ_BYTES);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	int r = buf && ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 ? 0
									      : err_no_memory(err);
	for (uint64_t done = 0; r == 0 && done < len;) {
		size_t n = len - done < READ_BYTES ? (size_t)(len - done) : READ_BYTES;
		ssize_t got = place_read(&d->place, &d->file, buf, n, off + done, err);
		if (got == 0)
			got = err_set(err, -EIO, "the file became shorter while it was read");
		if (got < 0)
			r = (int)got;
		else if (EVP_DigestUpdate(ctx, buf, (size_t)got) != 1)
			r = err_no_memory(err);
		else
			done += (uint64_t)got;
	}
	if (r == 0 && EVP_DigestFinal_ex(ctx, out->b, NULL) != 1)
		r = err_no_memory(err);
	EVP_MD_CTX_free(ctx);
	return r;
}

static int add_digests(struct download *d, struct request *rq, struct reply *rp, struct err *err)
{
	bool repr = head_wants_digest(request_header(rq, "Want-Repr-Digest"));
	bool content = head_wants_digest(request_header(rq, "Want-Content-Digest"));
	bool whole = d->off == 0 && d->len == d->file.size;
	char text[HEAD_DIGEST_TEXT];
	struct digest all, part;
	int r = 0;
	if (repr || (content && whole))
		r = digest_of(d, 0, d->file.size, &all, err);
	if (r == 0 && content && !whole)
		r = digest_of(d, d->off, d->len, &part, err);
	if (r < 0)
		return r;
	if (repr)
		reply_header(rp, "Repr-Digest", "%s", head_digest_text(text, &all));
	if (content)
		reply_header(rp, "Content-Digest", "%s",
			     head_digest_text(text, whole ? &all : &part));
	return 0;
}

/* If-Range: the range counts only for that very version. */
static bool range_is_for(struct request *rq, const char *tag)
{
	const char *value = request_header(rq, "If-Range");
	return !value || strcmp(value, tag) == 0;
}

/* Sets d->off and len; 206 where it is a part. */
static int take_range(struct download *d, struct request *rq, struct reply *rp, const char *tag,
		      struct err *err)
{
	const char *value = range_is_for(rq, tag) ? request_header(rq, "Range") : NULL;
	uint64_t size = d->file.size, off, len;
	d->off = 0;
	d->len = size;
	switch (head_range(value, size, &off, &len)) {
	case RANGE_ALL:
		return 0;
	case RANGE_NEVER:
		reply_header(rp, "Content-Range", "bytes */%llu", (unsigned long long)size);
		return err_set(err, -ERANGE, "the file has %llu bytes", (unsigned long long)size);
	case RANGE_ONE:
		break;
	}
	d->off = off;
	d->len = len;
	rp->status = 206;
	reply_header(rp, "Content-Range", "bytes %llu-%llu/%llu", (unsigned long long)off,
		     (unsigned long long)(off + len - 1), (unsigned long long)size);
	return 0;
}

/* A digest is of the bytes as they are, and so is a range. */
static enum coding choose_coding(const struct download *d, struct request *rq)
{
	if (request_header(rq, "Range") || request_header(rq, "Want-Repr-Digest") ||
	    request_header(rq, "Want-Content-Digest") || d->file.size < CODE_LEAST)
		return CODING_IDENTITY;
	return head_accepts(request_header(rq, "Accept-Encoding"));
}

/* True when the client has it: the tag of what it would get is among If-None-Match. */
static bool client_has(const struct conditions *c, const char *tag)
{
	if (!c->has_unless)
		return false;
	for (size_t i = 0; i < c->unless.n; i++)
		if (c->unless.tags[i].len + 2 == strlen(tag) &&
		    memcmp(c->unless.tags[i].text, tag + 1, c->unless.tags[i].len) == 0)
			return true;
	return c->unless.any;
}

static int start_coding(struct download *d, enum coding c, struct err *err)
{
	d->in = malloc(READ_BYTES);
	if (!d->in)
		return err_no_memory(err);
	return coder_new(&d->coder, c, false, err);
}

static int download(struct download *d, struct request *rq, struct reply *rp, struct err *err)
{
	struct conditions cond = { 0 };
	char tag[HEAD_TAG_TEXT], date[HEAD_DATE];
	int r = conditions_get(&cond, rq, err);
	if (r < 0)
		return r;
	enum coding c = choose_coding(d, rq);
	(void)head_tag_text(tag, &d->file.version, c);
	reply_header(rp, "ETag", "%s", tag);
	reply_header(rp, "Vary", "Accept-Encoding");
	if (cond.has_match && !names(&cond.match, &d->file, false))
		return err_set(err, -EREMCHG, "the file isn't the version that If-Match names");
	if (client_has(&cond, tag)) {
		rp->status = 304;
		return 0;
	}
	if (*head_date(date, d->file.mtime.tv_sec))
		reply_header(rp, "Last-Modified", "%s", date);
	reply_header(rp, "Accept-Ranges", "bytes");
	r = take_range(d, rq, rp, tag, err);
	if (r == 0)
		r = found_open(&d->file, err);
	if (r == 0)
		r = add_digests(d, rq, rp, err);
	if (r == 0 && c != CODING_IDENTITY)
		r = start_coding(d, c, err);
	if (r < 0)
		return r;
	if (c != CODING_IDENTITY)
		reply_header(rp, "Content-Encoding", "%s", coding_name(c));
	rp->length = c == CODING_IDENTITY ? d->len : WEB_UNKNOWN;
	rp->read = c == CODING_IDENTITY ? download_read : coded_read;
	rp->type = "application/octet-stream";
	return 0;
}

static int get_file(struct place *p, struct found *f, struct request *rq, struct reply *rp,
		    struct err *err)
{
	struct download *d = calloc(1, sizeof(*d));
	if (!d)
		return err_no_memory(err);
	d->place = *p;
	d->file = *f;
	*p = (struct place){ .root = -1 };
	*f = (struct found){ .fd = -1 };
	int r = download(d, rq, rp, err);
	if (r < 0 || !rp->read) {
		download_free(d);
		return r;
	}
	rp->task = d;
	rp->task_free = download_free;
	return 0;
}

/* ---- directories ---- */

static int parse_paging(struct listing *l, struct request *rq, struct err *err)
{
	const char *limit = request_query(rq, "limit"), *cursor = request_query(rq, "cursor");
	char *end;
	if (l->recursive && (limit || cursor))
		return request_bad_field(rq, "query", err, "a recursive listing has no pages");
	if (limit) {
		l->limit = strtoull(limit, &end, 10);
		if (*end || *limit < '0' || *limit > '9' || l->limit < 1 || l->limit > LIST_MAX)
			return request_bad_field(rq, "limit", err, "from 1 to %d", LIST_MAX);
	}
	if (cursor) {
		l->after = strtoull(cursor, &end, 16);
		if (*end || strspn(cursor, "0123456789abcdef") != strlen(cursor) || !*cursor ||
		    l->after > INT64_MAX)
			return request_bad_field(rq, "cursor", err, "none that a listing gave");
	}
	return 0;
}

static int get_listing(struct place *p, struct found *f, struct request *rq, struct reply *rp,
		       struct err *err)
{
	struct listing *l = calloc(1, sizeof(*l));
	if (!l || !(l->path = strdup(rq->tail))) {
		free(l);
		return err_no_memory(err);
	}
	l->recursive = request_query_true(rq, "recursive");
	l->place = *p;
	l->dir = *f;
	*p = (struct place){ .root = -1 };
	*f = (struct found){ .fd = -1 };
	int r = parse_paging(l, rq, err);
	if (r == 0)
		r = found_open(&l->dir, err);
	if (r < 0) {
		listing_free(l);
		return r;
	}
	rp->stream = listing_stream;
	rp->type = "application/json";
	rp->task = l;
	rp->task_free = listing_free;
	return 0;
}

/* ---- all ---- */

/* Of what it is: of the workspace as it became by its last restore, or of the snapshot. */
static int name_of(const struct place *p, char *out, size_t size, struct err *err)
{
	struct fs_usage u = { 0 };
	if (p->src.is_snap) {
		(void)snprintf(out, size, "%s", p->src.snap.id);
		return 0;
	}
	int r = fs_usage(p->sd->fs, p->src.ws.id, &u, err);
	(void)snprintf(out, size, u.gen ? "%s.%" PRIu64 : "%s", p->src.ws.id, u.gen);
	return snapd_inner(r);
}

static int get_stat(const struct place *p, const struct found *f, struct request *rq,
		    struct reply *rp, struct err *err)
{
	char target[PATH_SIZE], tag[HEAD_TAG_TEXT], now[RFC3339_SIZE], of[ID_SIZE + 24];
	struct timespec at;
	(void)clock_gettime(CLOCK_REALTIME, &at);
	const char *slash = strrchr(rq->tail, '/'), *name = slash ? slash + 1 : rq->tail;
	int r = S_ISLNK(f->mode) ? place_target(p, f, target, err) : 0;
	if (r >= 0)
		r = name_of(p, of, sizeof(of), err);
	if (r < 0)
		return r;
	json_t *e = listing_entry(name, strlen(name), f, S_ISLNK(f->mode) ? target : NULL);
	rp->json = json_object();
	int bad = rp->json ? listing_set_name(rp->json, "path", rq->tail, strlen(rq->tail)) : -1;
	bad |= json_object_set_new(rp->json, "entry", e);
	bad |= json_object_set_new(rp->json, "inode", json_integer((json_int_t)f->ino));
	bad |= json_object_set_new(rp->json, "of", json_string(of));
	bad |= json_object_set_new(rp->json, "at", json_string(rfc3339_text(now, &at)));
	if (bad) {
		json_decref(rp->json);
		rp->json = NULL;
		return err_no_memory(err);
	}
	reply_header(rp, "ETag", "%s", head_tag_text(tag, &f->version, CODING_IDENTITY));
	return 0;
}

/* `signed_only`: by a signed URL, which is for a file. `pinned` (NULL: any): its ETag, then. */
static int get(struct request *rq, struct reply *rp, bool is_snap, bool signed_only,
	       const char *pinned, struct err *err)
{
	char tag[HEAD_TAG_TEXT];
	auto_place p = { .root = -1 };
	auto_found f = { .fd = -1 };
	bool whole_tree = request_query_true(rq, "recursive");
	int r = place_open(&p, rq->ctx, rq->params[0], is_snap,
			   whole_tree ? PLACE_SEALED : PLACE_READ, err);
	if (r >= 0)
		r = place_find(&p, rq->tail, &f, err);
	if (r < 0)
		return r;
	if (request_query_true(rq, "stat"))
		return get_stat(&p, &f, rq, rp, err);
	if (pinned && strcmp(pinned, head_tag_text(tag, &f.version, CODING_IDENTITY)) != 0)
		return err_set(err, -EREMCHG, "the file isn't the version that was signed");
	if (signed_only && S_ISDIR(f.mode))
		return err_set(err, -EISDIR, "a directory is there now");
	if (S_ISREG(f.mode))
		return get_file(&p, &f, rq, rp, err);
	if (S_ISDIR(f.mode) && strcmp(rq->method, "HEAD") == 0) {
		reply_header(rp, "Content-Type", "application/json");
		return 0;
	}
	if (S_ISDIR(f.mode))
		return get_listing(&p, &f, rq, rp, err);
	files_detail(rq, &p, &f);
	return err_set(err, -ELOOP, "%s is a %s, not a file", SHOW(rq->tail), place_type(f.mode));
}

int api_ws_file_get(struct request *rq, struct reply *rp, struct err *err)
{
	return get(rq, rp, false, false, NULL, err);
}

int api_snap_file_get(struct request *rq, struct reply *rp, struct err *err)
{
	return get(rq, rp, true, false, NULL, err);
}

int file_send(struct request *rq, struct reply *rp, bool is_snap, const char *pinned,
	      struct err *err)
{
	return get(rq, rp, is_snap, true, pinned, err);
}
