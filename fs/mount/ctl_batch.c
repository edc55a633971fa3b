/* The request `batch`: operations that come in a file, since a message is too small for them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/mount/ctl_msg.h"
#include "fs/mount/ctl_ops.h"
#include "fs/mount/patience.h"
#include "fs/work/batch.h"
#include "fs/work/ino.h"

/* Read, not mapped: whoever sent it could change it meanwhile. */
static int read_at(int fd, void *buf, size_t n, uint64_t off)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = pread(fd, (uint8_t *)buf + done, n - done, (off_t)(off + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EINVAL;
		done += (size_t)got;
	}
	return 0;
}

static int read_file(const struct ctl_request *q, uint8_t **out, struct err *err)
{
	size_t n = q->size + q->contents;
	auto_free uint8_t *data = malloc(n ? n : 1);
	if (!data)
		return err_no_memory(err);
	if (read_at(q->fd, data, n, q->at) < 0)
		return err_set(err, -EINVAL, "batch: a file of %llu bytes is needed",
			       (unsigned long long)(q->at + n));
	*out = steal_ptr(&data);
	return 0;
}

static int decode(const uint8_t *data, size_t len, struct batch_op **out, size_t *count,
		  struct err *err)
{
	struct cur c = cur_init(data, len);
	auto_free struct batch_op *ops = NULL;
	size_t n = 0, cap = 0;
	int r;
	for (;; n++) {
		if (array_grow(&ops, n, &cap) < 0)
			return err_no_memory(err);
		r = n < BATCH_OPS_MAX ? batch_decode(&c, &ops[n]) : -E2BIG;
		if (r <= 0)
			break;
	}
	if (r < 0)
		return err_set(err, -EINVAL, "batch: operation %zu isn't understood", n);
	*out = steal_ptr(&ops);
	*count = n;
	return 0;
}

static int add_results(const struct ws_batch *b, json_t *answer)
{
	char text[VERSION_TEXT];
	json_t *list = json_array();
	int bad = json_object_set_new(answer, "results", list);
	for (size_t i = 0; i < b->n && !bad; i++) {
		const struct attr *a = &b->results[i].attr;
		struct version_id v = version_of(a);
		bad = json_array_append_new(list, b->results[i].there
							  ? json_pack("[s, i, I]",
								      version_text(text, &v),
								      (int)(a->mode & 07777),
								      (json_int_t)a->size)
							  : json_null());
	}
	return bad ? -ENOMEM : 0;
}

static int add_failure(size_t failed, int code, json_t *answer)
{
	int bad = json_object_set_new(answer, "failed", json_integer((json_int_t)failed));
	bad |= json_object_set_new(answer, "errno", json_integer(-code));
	bad |= json_object_set_new(answer, "text", json_string(strerror(-code)));
	return bad ? -ENOMEM : 0;
}

/* Asked once more by who didn't hear that it was done: how things stand now. */
static int look_again(struct served *w, struct ws_batch *b, struct batch_op *ops)
{
	size_t failed;
	for (size_t i = 0; i < b->n; i++) {
		bool moved = ops[i].kind == BATCH_MOVE;
		ops[i] = (struct batch_op){
			.kind = BATCH_CHECK,
			.path = moved ? ops[i].other : ops[i].path,
			.path_len = moved ? ops[i].other_len : ops[i].path_len,
		};
	}
	return served_batch(w, b, &failed);
}

/* ---- contents ---- */

enum { WINDOW = 1 << 20 }; /* bytes of the file that are read at a time */

/* Contents on their way into files without a name, which stay until the batch is done. */
struct staging {
	struct ws *ws;
	int fd;
	struct caller caller; /* whose tag the room in the quota is kept for */
	struct batch_content *contents;
	size_t ncontents;
	uint64_t *nodes;
	size_t nnodes;
	uint8_t *window;
	uint64_t from, to; /* of the file, in the window */
};

static void staging_done(struct staging *s)
{
	while (s->nnodes > 0)
		ws_forget(s->ws, s->nodes[--s->nnodes], 1);
	free(s->nodes);
	free(s->contents);
	free(s->window);
}
#define auto_staging __attribute__((cleanup(staging_done))) struct staging

static int staging_begin(struct staging *s, const struct ctl_request *q, const uint8_t *data,
			 size_t nops, struct err *err)
{
	struct cur c = cur_init(data + q->size, q->contents);
	size_t cap = 0;
	int r;
	for (;; s->ncontents++) {
		if (array_grow(&s->contents, s->ncontents, &cap) < 0)
			return err_no_memory(err);
		r = s->ncontents < BATCH_OPS_MAX
			    ? batch_decode_content(&c, &s->contents[s->ncontents])
			    : -E2BIG;
		if (r <= 0)
			break;
	}
	if (r < 0)
		return err_set(err, -EINVAL, "batch: content %zu isn't understood", s->ncontents);
	s->nodes = s->ncontents ? calloc(nops, sizeof(*s->nodes)) : NULL;
	s->window = s->ncontents ? malloc(WINDOW) : NULL;
	if (s->ncontents && (!s->nodes || !s->window))
		return err_no_memory(err);
	return 0;
}

/* Up to n bytes of the file: where they are in the window. */
static int look_through(struct staging *s, uint64_t at, uint64_t n, const uint8_t **out,
			size_t *got)
{
	if (at < s->from || at >= s->to || (s->to - at < n && n <= WINDOW)) {
		ssize_t r;
		do
			r = pread(s->fd, s->window, WINDOW, (off_t)at);
		while (r < 0 && errno == EINTR);
		if (r <= 0)
			return r < 0 ? -errno : -EINVAL;
		s->from = at;
		s->to = at + (uint64_t)r;
	}
	*out = s->window + (at - s->from);
	*got = (size_t)(s->to - at < n ? s->to - at : n);
	return 0;
}

static int stage_piece(struct staging *s, uint64_t node, struct batch_piece p)
{
	while (p.len > 0) {
		const uint8_t *data = NULL;
		size_t n = 0;
		int r = look_through(s, p.at, p.len, &data, &n);
		if (r == 0)
			r = PATIENTLY(s->ws, NULL,
				      ws_write(s->ws, node, data, n, p.off, false, &s->caller));
		if (r < 0)
			return r;
		p.off += n;
		p.at += n;
		p.len -= n;
	}
	return 0;
}

/* The file is made, and the operation's from now on. */
static int stage(struct staging *s, struct batch_op *o)
{
	struct entry e;
	if (o->file > s->ncontents)
		return -EINVAL;
	const struct batch_content *c = &s->contents[o->file - 1];
	uint64_t end = 0;
	int r = PATIENTLY(s->ws, NULL, ws_tmpfile(s->ws, INO_ROOT, 0600, &s->caller, &e));
	if (r < 0)
		return r;
	s->nodes[s->nnodes++] = e.node;
	for (size_t i = 0; i < c->n && r == 0; i++) {
		struct batch_piece p = batch_piece_at(c, i);
		r = stage_piece(s, e.node, p);
		end = p.off + p.len > end ? p.off + p.len : end;
	}
	const struct attr size = { .size = c->size };
	if (r == 0 && c->size > end) /* it ends in a hole */
		r = PATIENTLY(s->ws, NULL, ws_setattr(s->ws, e.node, WS_SET_SIZE, &size,
						      &s->caller, &e.attr));
	o->file = e.attr.ino;
	return r;
}

static int stage_all(struct staging *s, struct batch_op *ops, size_t n, size_t *failed)
{
	for (size_t i = 0; i < n; i++) {
		int r = ops[i].flags & BATCH_CONTENT ? stage(s, &ops[i]) : 0;
		*failed = i;
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- all of it ---- */

static int perform(struct served *w, const struct ctl_request *q, const uint8_t *data,
		   struct ws_batch *b, struct batch_op *ops, size_t *failed, struct err *err)
{
	auto_staging s = { .ws = served_ws(w), .fd = q->fd, .caller.who = q->tag };
	uint64_t node;
	int done = ws_answered(s.ws, b->tag, &node);
	if (done)
		return done < 0 ? done : look_again(w, b, ops);
	int r = staging_begin(&s, q, data, b->n, err);
	if (r == 0)
		r = stage_all(&s, ops, b->n, failed);
	return r < 0 ? r : served_batch(w, b, failed);
}

int ctl_batch(struct served *w, const struct ctl_request *q, json_t *answer, struct err *err)
{
	auto_free uint8_t *data = NULL;
	auto_free struct batch_op *ops = NULL;
	auto_free struct ws_batch_result *results = NULL;
	struct ws_batch b = { .tag = q->tag | WS_TAG_OURS, .who = q->tag };
	struct err why = { 0 };
	size_t failed = 0;
	int r = read_file(q, &data, err);
	if (r == 0)
		r = decode(data, q->size, &ops, &b.n, err);
	if (r < 0)
		return r;
	b.ops = ops;
	if (q->results)
		results = calloc(b.n ? b.n : 1, sizeof(*results));
	if (q->results && !results)
		return err_no_memory(err);
	b.results = results;
	r = perform(w, q, data, &b, ops, &failed, &why);
	if (why.code < 0) {
		*err = why;
		return r;
	}
	if (r == -ENOMEM || r == -EIO)
		return err_sys(err, r, "change %s", q->id);
	r = r < 0 ? add_failure(failed, r, answer) : results ? add_results(&b, answer) : 0;
	return r < 0 ? err_set(err, r, "done, but out of memory for the answer") : 0;
}
