/* The request `batch`: operations that come in a file, since a message is too small for them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/mount/ctl_msg.h"
#include "fs/mount/ctl_ops.h"
#include "fs/work/batch.h"

/* Read, not mapped: whoever sent it could change it meanwhile. */
static int read_file(const struct ctl_request *q, uint8_t **out, struct err *err)
{
	auto_free uint8_t *data = malloc(q->size ? q->size : 1);
	if (!data)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t at = 0; at < q->size;) {
		ssize_t n = pread(q->fd, data + at, q->size - at, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(err, -EINVAL, "batch: a file of %llu bytes is needed",
				       (unsigned long long)q->size);
		at += (size_t)n;
	}
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
			return err_set(err, -ENOMEM, "out of memory");
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

int ctl_batch(struct served *w, const struct ctl_request *q, json_t *answer, struct err *err)
{
	auto_free uint8_t *data = NULL;
	auto_free struct batch_op *ops = NULL;
	auto_free struct ws_batch_result *results = NULL;
	struct ws_batch b = { .tag = q->tag | WS_TAG_OURS };
	uint64_t node;
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
		return err_set(err, -ENOMEM, "out of memory");
	b.results = results;
	int done = ws_answered(served_ws(w), b.tag, &node);
	r = done < 0 ? done : done ? look_again(w, &b, ops) : served_batch(w, &b, &failed);
	if (r == -ENOMEM || r == -EIO)
		return err_sys(err, r, "change %s", q->id);
	r = r < 0 ? add_failure(failed, r, answer) : results ? add_results(&b, answer) : 0;
	return r < 0 ? err_set(err, r, "done, but out of memory for the answer") : 0;
}
