#include "snapd/web_task.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/json.h"

enum { PROGRESS_MS = 100 };

/* ---- counting ---- */

struct task_count {
	pthread_mutex_t lock;
	pthread_cond_t zero;
	int n;
};

struct task_count *task_count_new(void)
{
	struct task_count *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	clock_cond_init(&c->zero);
	return c;
}

void task_count_free(struct task_count *c)
{
	if (!c)
		return;
	pthread_cond_destroy(&c->zero);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void task_count_add(struct task_count *c, int n)
{
	pthread_mutex_lock(&c->lock);
	c->n += n;
	if (c->n == 0)
		pthread_cond_broadcast(&c->zero);
	pthread_mutex_unlock(&c->lock);
}

bool task_count_wait(struct task_count *c, int wait_ms)
{
	struct timespec t = clock_in_ms(wait_ms);
	int r = 0;
	pthread_mutex_lock(&c->lock);
	while (c->n > 0 && r == 0)
		r = pthread_cond_timedwait(&c->zero, &c->lock, &t);
	bool zero = c->n == 0;
	pthread_mutex_unlock(&c->lock);
	return zero;
}

/* ---- errors ---- */

unsigned web_status(int r, const char **code)
{
	static const struct {
		int code;
		unsigned status;
		const char *name;
	} table[] = {
		{ -EINVAL, 400, "invalid" },
		{ -EBADMSG, 400, "invalid" },
		{ -ENAMETOOLONG, 400, "invalid" },
		{ -EKEYREJECTED, 401, "unauthenticated" },
		{ -EPERM, 403, "forbidden" },
		{ -EROFS, 403, "forbidden" },
		{ -ENOENT, 404, "not_found" },
		{ -EEXIST, 409, "exists" },
		{ -ENOTUNIQ, 409, "conflict" },
		{ -ESTALE, 409, "conflict" },
		{ -EBUSY, 409, "busy" },
		{ -EISDIR, 409, "conflict" },
		{ -ENOTDIR, 409, "conflict" },
		{ -ENOTEMPTY, 409, "conflict" },
		{ -ELOOP, 409, "conflict" },
		{ -EMLINK, 409, "conflict" },
		{ -EUNATCH, 409, "not_mounted" },
		{ -EKEYEXPIRED, 410, "gone" },
		{ -EREMCHG, 412, "changed" },
		{ -E2BIG, 413, "too_large" },
		{ -EFBIG, 413, "too_large" },
		{ -EMSGSIZE, 413, "too_large" },
		{ -EMEDIUMTYPE, 415, "unsupported" },
		{ -ERANGE, 416, "range" },
		{ -ENOLCK, 423, "locked" },
		{ -EBADR, 460, "checksum" },
		{ -ENOSYS, 501, "not_implemented" },
		{ -EALREADY, 409, "in_flight" },
		{ -ECANCELED, 409, "cancelled" },
		{ -EBADE, 422, "key_reused" },
		{ -EUSERS, 429, "too_many" },
		{ -ENOSPC, 507, "no_space" },
		{ -EDQUOT, 507, "quota" },
		{ -ECONNREFUSED, 503, "unavailable" },
		{ -ECONNRESET, 503, "unavailable" },
		{ -ETIMEDOUT, 503, "unavailable" },
		{ -EUCLEAN, 503, "unavailable" },
		{ -ESHUTDOWN, 503, "unavailable" },
		{ -EMFILE, 503, "overloaded" },
		{ -ENFILE, 503, "overloaded" },
		{ -ENOMEM, 503, "overloaded" },
		{ -EACCES, 403, "refused" },
		{ -ENOTSUP, 400, "unsupported" },
		{ -EREMOTEIO, 502, "remote" },
	};
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (table[i].code == r) {
			*code = table[i].name;
			return table[i].status;
		}
	}
	*code = "internal";
	return 500;
}

/* Text of ours may quote bytes of a file name that are no UTF-8. */
static json_t *text_json(const char *s)
{
	json_t *j = json_string(s);
	if (j)
		return j;
	char plain[sizeof(((struct err *)0)->text)];
	(void)snprintf(plain, sizeof(plain), "%s", s);
	for (char *p = plain; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return json_string(plain);
}

json_t *web_error_json(int r, const struct err *err, json_t *details)
{
	const char *code;
	(void)web_status(r, &code);
	const char *text = err->text[0] ? err->text : strerror(-r);
	json_t *j = json_pack("{s:s, s:o}", "code", code, "message", text_json(text));
	if (!details)
		details = json_object();
	if (j && json_object_set_new(j, "details", details) < 0) {
		json_decref(j);
		return NULL;
	}
	return j;
}

/* ---- progress ---- */

/* A client that doesn't read must not hold up the work: lines give way, the result doesn't. */
static void put_line(struct stream *out, json_t *j, bool may_drop)
{
	auto_free char *text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (!text || (may_drop && stream_fill(out) > STREAM_BYTES / 2))
		return;
	size_t len = strlen(text);
	text[len] = '\n'; /* in place of the NUL; a client that has left is no failure here */
	(void)stream_write(out, text, len + 1);
}

bool progress_cancelled(const struct progress *p)
{
	return p && p->cancelled && __atomic_load_n(p->cancelled, __ATOMIC_RELAXED);
}

void progress_tell(struct progress *p, uint64_t done, uint64_t total, const char *unit,
		   const char *what)
{
	if (!p)
		return;
	uint64_t now = clock_ms();
	if (now - p->told_ms < PROGRESS_MS)
		return;
	p->told_ms = now;
	if (p->sink) {
		p->sink(p->ctx, done, total, unit, what);
		return;
	}
	put_line(p->out,
		 json_pack("{s:{s:I, s:I, s:s, s:s}}", "progress", "done", (json_int_t)done,
			   "total", (json_int_t)total, "unit", unit, "what", what),
		 true);
}

/* ---- tasks ---- */

struct task {
	struct reply reply;
	bool lines;
	struct stream *out;    /* the writer's reference and the reader's: NULL without output */
	struct stream *upload; /* the reader's side of the body */
	struct task_count *count;
	struct doing *doing;
	pthread_mutex_t lock;
	pthread_cond_t finished;
	unsigned refs;
	bool done;
	int r;
	struct err err;
};

void task_unref(struct task *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	unsigned left = --t->refs;
	pthread_mutex_unlock(&t->lock);
	if (left > 0)
		return;
	json_decref(t->reply.json);
	web_headers_free(&t->reply);
	doing_unref(t->doing);
	pthread_cond_destroy(&t->finished);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static void end_lines(struct task *t)
{
	if (t->r >= 0) {
		json_t *result = t->reply.json ? t->reply.json : json_object();
		t->reply.json = NULL;
		put_line(t->out, json_pack("{s:o}", "result", result), false);
		return;
	}
	const char *code;
	json_t *e = web_error_json(t->r, &t->err, json_incref(t->reply.json));
	if (e && json_object_set_new(e, "status",
				     json_integer((json_int_t)web_status(t->r, &code))) == 0)
		put_line(t->out, json_pack("{s:o}", "error", e), false);
	else
		json_decref(e);
}

/* Before anybody hears of the end. */
static void tell_end(struct task *t)
{
	const char *code;
	json_t *e = t->r < 0 ? web_error_json(t->r, &t->err, json_incref(t->reply.json)) : NULL;
	doing_tell(t->doing, t->r < 0 ? web_status(t->r, &code) : t->reply.status,
		   e ? e : t->reply.json);
	json_decref(e);
}

static void *task_thread(void *arg)
{
	struct task *t = arg;
	struct reply *rp = &t->reply;
	struct progress p = { .out = t->out };
	(void)doing_set(t->doing);
	if (rp->stream)
		t->r = rp->stream(rp->task, t->out, &t->err);
	if (rp->stream && t->r >= 0 && rp->summary && !(rp->json = rp->summary(rp->task)))
		t->r = err_no_memory(&t->err);
	if (!rp->stream)
		t->r = rp->job(rp->task, t->lines ? &p : NULL, &rp->status, &rp->json, &t->err);
	if (rp->job && rp->tell)
		rp->tell(rp->task, rp);
	if (rp->job)
		tell_end(t);
	if (t->upload) {
		stream_leave(t->upload);
		stream_unref(t->upload);
	}
	bool told = t->lines || (rp->stream && rp->type && strstr(rp->type, "ndjson"));
	if (t->out) {
		if (told && (t->r < 0 || rp->job))
			end_lines(t);
		stream_end(t->out, told ? 0 : t->r);
		stream_unref(t->out);
	}
	if (rp->task_free)
		rp->task_free(rp->task);
	pthread_mutex_lock(&t->lock);
	t->done = true;
	pthread_cond_broadcast(&t->finished);
	pthread_mutex_unlock(&t->lock);
	struct task_count *count = t->count;
	task_unref(t);
	task_count_add(count, -1);
	return NULL;
}

int task_start(struct task **out, const struct reply *reply, bool lines, struct stream *upload,
	       struct task_count *count, struct err *err)
{
	struct task *t = calloc(1, sizeof(*t));
	pthread_attr_t attr;
	pthread_t thread;
	int r = -ENOMEM;
	if (!t)
		goto fail;
	t->reply = *reply;
	t->reply.nheaders = 0; /* they stay the caller's */
	t->lines = lines && reply->job;
	t->count = count;
	t->doing = doing_ref(doing_now());
	t->refs = 2;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->finished, NULL);
	if ((t->lines || reply->stream) && !(t->out = stream_new()))
		goto fail;
	t->upload = upload;
	task_count_add(count, 1);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = -pthread_create(&thread, &attr, task_thread, t);
	pthread_attr_destroy(&attr);
	if (r == 0) {
		*out = t;
		return 0;
	}
	task_count_add(count, -1);
fail:
	if (t) {
		stream_unref(t->out);
		stream_unref(t->out);
		doing_unref(t->doing);
		pthread_cond_destroy(&t->finished);
		pthread_mutex_destroy(&t->lock);
		free(t);
	}
	if (upload) {
		stream_leave(upload);
		stream_unref(upload);
	}
	if (reply->task_free)
		reply->task_free(reply->task);
	return err_sys(err, r, "start a job");
}

struct stream *task_output(struct task *t)
{
	return t->out;
}

int task_wait(struct task *t, struct reply *reply, struct err *err)
{
	pthread_mutex_lock(&t->lock);
	while (!t->done)
		pthread_cond_wait(&t->finished, &t->lock);
	pthread_mutex_unlock(&t->lock);
	reply->status = t->reply.status;
	reply->json = t->reply.json;
	t->reply.json = NULL;
	web_headers_move(reply, &t->reply);
	if (t->r < 0)
		*err = t->err;
	return t->r;
}

int task_run_here(struct reply *reply, struct err *err)
{
	int r = reply->job(reply->task, NULL, &reply->status, &reply->json, err);
	if (reply->tell)
		reply->tell(reply->task, reply);
	if (reply->task_free)
		reply->task_free(reply->task);
	return r;
}
