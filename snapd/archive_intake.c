#include "snapd/archive_intake.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/work/layer.h"

/* One run of content without holes, at most INTAKE_PART. Made by the caller, filled with
 * pieces by the worker, and given back to the caller, who alone touches the builder. */
struct job {
	struct job *next;
	uint64_t ino;
	bool first; /* of its file: the inode's old content goes */
	uint64_t off;
	struct buf data;   /* the bytes; freed by the worker */
	struct buf pieces; /* struct piece, one after the other */
};

struct jobs {
	struct job *head, **tail;
};

struct intake {
	struct store_session *session;
	struct image_builder *b;
	uint64_t max_bytes, bytes; /* bytes: counted so far, in whole blocks */

	struct job *open;  /* the caller's, not queued yet; NULL between files */
	uint64_t part_end; /* end of what `open` holds, in the file */
	uint64_t end;      /* end of what the file got so far */

	pthread_mutex_t lock;
	pthread_cond_t work, space; /* for the worker; for the caller */
	struct jobs queue, done;
	size_t under_way; /* bytes in queue and at the worker */
	bool stop, busy;
	int failed; /* the worker's first error; it skips all later jobs */
	struct err err;
	pthread_t thread;
	bool started;
};

static int out_of_memory(struct err *err)
{
	return err_no_memory(err);
}

static void jobs_init(struct jobs *q)
{
	q->head = NULL;
	q->tail = &q->head;
}

static void jobs_push(struct jobs *q, struct job *j)
{
	j->next = NULL;
	*q->tail = j;
	q->tail = &j->next;
}

static void job_free(struct job *j)
{
	if (!j)
		return;
	buf_done(&j->data);
	buf_done(&j->pieces);
	free(j);
}

static void jobs_free(struct jobs *q)
{
	for (struct job *j = q->head, *next; j; j = next) {
		next = j->next;
		job_free(j);
	}
	jobs_init(q);
}

/* ---- the worker ---- */

static int job_read(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	const struct job *j = ctx;
	assert(off >= j->off && off - j->off <= j->data.len && len <= j->data.len - (off - j->off));
	memcpy(buf, j->data.data + (off - j->off), len);
	return 0;
}

static int job_emit(void *ctx, uint64_t off, uint32_t len, const struct digest *d, struct err *err)
{
	struct job *j = ctx;
	if (!d) /* a hole: no piece */
		return 0;
	struct piece p = { .off = off, .len = len, .object = *d };
	buf_add(&j->pieces, &p, sizeof(p));
	return buf_error(&j->pieces) < 0 ? out_of_memory(err) : 0;
}

static int job_run(struct intake *in, struct job *j, struct err *err)
{
	const struct store_content content = { .read = job_read, .emit = job_emit, .ctx = j };
	int r = 0;
	if (j->data.len > 0)
		r = store_put_content(in->session, j->off, j->data.len, &content, err);
	buf_done(&j->data);
	return r;
}

static void *worker(void *arg)
{
	struct intake *in = arg;
	(void)pthread_mutex_lock(&in->lock);
	for (;;) {
		while (!in->queue.head && !in->stop)
			(void)pthread_cond_wait(&in->work, &in->lock);
		struct job *j = in->queue.head;
		if (in->stop || !j)
			break;
		in->queue.head = j->next;
		if (!in->queue.head)
			in->queue.tail = &in->queue.head;
		in->busy = true;
		bool skip = in->failed < 0;
		(void)pthread_mutex_unlock(&in->lock);

		struct err err = { 0 };
		size_t bytes = j->data.len;
		int r = skip ? 0 : job_run(in, j, &err);

		(void)pthread_mutex_lock(&in->lock);
		in->busy = false;
		in->under_way -= bytes;
		if (r < 0 && in->failed == 0) {
			in->failed = r;
			in->err = err;
		}
		jobs_push(&in->done, j);
		(void)pthread_cond_signal(&in->space);
	}
	(void)pthread_mutex_unlock(&in->lock);
	return NULL;
}

/* ---- the caller's side ---- */

int intake_new(struct intake **out, struct store_session *session, struct image_builder *b,
	       uint64_t max_bytes, struct err *err)
{
	struct intake *in = calloc(1, sizeof(*in));
	if (!in)
		return out_of_memory(err);
	in->session = session;
	in->b = b;
	in->max_bytes = max_bytes;
	jobs_init(&in->queue);
	jobs_init(&in->done);
	(void)pthread_mutex_init(&in->lock, NULL); /* can't fail with default attributes */
	(void)pthread_cond_init(&in->work, NULL);
	(void)pthread_cond_init(&in->space, NULL);
	int r = pthread_create(&in->thread, NULL, worker, in);
	in->started = r == 0;
	if (r != 0) {
		intake_free(in);
		return err_sys(err, -r, "start a thread");
	}
	*out = in;
	return 0;
}

static void intake_stop(struct intake *in)
{
	if (!in->started)
		return;
	(void)pthread_mutex_lock(&in->lock);
	in->stop = true;
	(void)pthread_cond_signal(&in->work);
	(void)pthread_mutex_unlock(&in->lock);
	(void)pthread_join(in->thread, NULL); /* ours, joined once */
	in->started = false;
}

void intake_free(struct intake *in)
{
	if (!in)
		return;
	intake_stop(in);
	jobs_free(&in->queue);
	jobs_free(&in->done);
	job_free(in->open);
	(void)pthread_cond_destroy(&in->space);
	(void)pthread_cond_destroy(&in->work);
	(void)pthread_mutex_destroy(&in->lock);
	free(in);
}

/* Puts the pieces of finished jobs into the builder. */
static int take_done(struct intake *in, struct jobs *done, struct err *err)
{
	int r = 0;
	for (struct job *j = done->head; j && r == 0; j = j->next) {
		if (j->first)
			image_clear_pieces(in->b, j->ino);
		const struct piece *p = (const struct piece *)j->pieces.data;
		for (size_t i = 0; i < j->pieces.len / sizeof(*p) && r == 0; i++)
			r = image_add_piece(in->b, j->ino, &p[i]);
	}
	jobs_free(done);
	return r < 0 ? out_of_memory(err) : 0;
}

/* Waits until less than `below` bytes are under way (0: nothing at all), and takes over what
 * is finished. Returns the worker's failure, if there was one. */
static int settle(struct intake *in, size_t below, struct err *err)
{
	struct jobs done;
	jobs_init(&done);
	(void)pthread_mutex_lock(&in->lock);
	while (below ? in->under_way >= below : in->queue.head || in->busy)
		(void)pthread_cond_wait(&in->space, &in->lock);
	if (in->done.head) {
		done = in->done;
		jobs_init(&in->done);
	}
	int failed = in->failed;
	if (failed < 0 && err)
		*err = in->err;
	(void)pthread_mutex_unlock(&in->lock);
	if (failed < 0) {
		jobs_free(&done);
		return failed;
	}
	return take_done(in, &done, err);
}

/* Sends the open job off; the next one begins at `off`. */
static int flush(struct intake *in, uint64_t off, struct err *err)
{
	struct job *j = in->open, *next = calloc(1, sizeof(*next));
	if (!next)
		return out_of_memory(err);
	next->ino = j->ino;
	next->off = off;
	(void)pthread_mutex_lock(&in->lock);
	in->under_way += j->data.len;
	jobs_push(&in->queue, j);
	(void)pthread_cond_signal(&in->work);
	(void)pthread_mutex_unlock(&in->lock);
	in->open = next;
	in->part_end = off;
	return settle(in, INTAKE_QUEUE, err);
}

int intake_begin(struct intake *in, uint64_t ino, struct err *err)
{
	assert(!in->open);
	in->open = calloc(1, sizeof(*in->open));
	if (!in->open)
		return out_of_memory(err);
	in->open->ino = ino;
	in->open->first = true;
	in->part_end = in->end = 0;
	return 0;
}

static int add(struct intake *in, const void *data, size_t n, struct err *err)
{
	struct buf *b = &in->open->data;
	uint8_t *p = buf_room(b, n);
	if (!p)
		return out_of_memory(err);
	if (data)
		memcpy(p, data, n);
	else
		memset(p, 0, n);
	b->len += n;
	in->part_end += n;
	return 0;
}

/* Appends n bytes (NULL: zeros), in as many parts as it takes. */
static int append(struct intake *in, const uint8_t *data, uint64_t n, struct err *err)
{
	while (n > 0) {
		size_t part = INTAKE_PART - in->open->data.len;
		if (part > n)
			part = n;
		int r = add(in, data, part, err);
		if (r == 0 && in->open->data.len == INTAKE_PART)
			r = flush(in, in->part_end, err);
		if (r < 0)
			return r;
		data = data ? data + part : NULL;
		n -= part;
	}
	return 0;
}

/* The blocks that [from, to) newly touches count against the limit. */
static int count(struct intake *in, uint64_t from, uint64_t to, struct err *err)
{
	uint64_t blocks = block_ceil(to) - block_ceil(from);
	if (__builtin_add_overflow(in->bytes, blocks, &in->bytes) ||
	    (in->max_bytes && in->bytes > in->max_bytes))
		return err_set(err, -EFBIG, "the archive unpacks to more than %llu bytes",
			       (unsigned long long)in->max_bytes);
	return 0;
}

int intake_data(struct intake *in, uint64_t off, const void *data, size_t n, struct err *err)
{
	uint64_t end;
	if (n == 0)
		return 0;
	if (off < in->end || __builtin_add_overflow(off, n, &end) || end > INT64_MAX - LAYER_BLOCK)
		return err_set(err, -EBADMSG, "its parts are out of order");
	int r = 0;
	uint64_t from = block_floor(off);
	if (in->end == 0 && in->open->data.len == 0) {
		in->open->off = in->part_end = from;
	} else if (from > block_ceil(in->end)) { /* a hole: finish the last block, begin anew */
		r = append(in, NULL, block_ceil(in->end) - in->part_end, err);
		if (r == 0)
			r = flush(in, from, err);
	}
	if (r == 0)
		r = count(in, in->end > from ? in->end : from, end, err);
	if (r == 0)
		r = append(in, NULL, off - in->part_end, err);
	if (r == 0)
		r = append(in, data, n, err);
	in->end = end;
	return r;
}

int intake_end(struct intake *in, uint64_t size, struct err *err)
{
	if (size < in->end)
		return err_set(err, -EBADMSG, "it has more content than it says");
	/* A hole at the end begins behind the last block. */
	uint64_t to = block_ceil(in->end) < size ? block_ceil(in->end) : size;
	int r = in->end ? append(in, NULL, to - in->part_end, err) : 0;
	if (r == 0 && (in->open->data.len > 0 || in->open->first))
		r = flush(in, 0, err);
	job_free(in->open);
	in->open = NULL;
	return r;
}

int intake_finish(struct intake *in, struct err *err)
{
	assert(!in->open);
	return settle(in, 0, err);
}
