#include "snapd/sse.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "fs/base/clock.h"

void sse_begin(struct sse *s, const struct request *rq)
{
	*s = (struct sse){ .socket = rq->socket, .sent_ms = clock_ms() };
}

void sse_done(struct sse *s)
{
	buf_done(&s->out);
}

int sse_patience(struct sse *s)
{
	struct pollfd p = { .fd = s->socket, .events = POLLRDHUP };
	uint64_t now = clock_ms(), beat = s->sent_ms + SSE_BEAT_MS;
	if (s->socket >= 0 && poll(&p, 1, 0) > 0) {
		if (p.revents & (POLLHUP | POLLERR))
			return -EPIPE;
		if ((p.revents & POLLRDHUP) && !s->asked) {
			s->asked = true;
			return 0;
		}
	}
	if (now >= beat)
		return 0;
	return beat - now < SSE_LOOK_MS ? (int)(beat - now) : SSE_LOOK_MS;
}

void sse_beat(struct sse *s, const char *comment, const char *id)
{
	buf_printf(&s->out, ": %s\n", comment);
	if (id)
		buf_printf(&s->out, "id: %s\n", id);
	buf_printf(&s->out, "\n");
}

ssize_t sse_pull(struct sse *s, int (*fill)(void *task, struct err *err), void *task, void *buf,
		 size_t n, struct err *err)
{
	if (s->at == s->out.len) {
		buf_reset(&s->out);
		s->at = 0;
		int r = fill(task, err);
		if (r <= 0)
			return r;
		s->sent_ms = clock_ms();
	}
	if (buf_error(&s->out))
		return err_no_memory(err);
	size_t left = s->out.len - s->at;
	n = n < left ? n : left;
	memcpy(buf, s->out.data + s->at, n);
	s->at += n;
	return (ssize_t)n;
}

void sse_reply(struct reply *rp, void *task, void (*task_free)(void *task),
	       ssize_t (*read)(void *task, uint64_t pos, void *buf, size_t n, struct err *err))
{
	reply_header(rp, "Cache-Control", "no-store");
	rp->read = read;
	rp->length = WEB_UNKNOWN;
	rp->type = "text/event-stream";
	rp->task = task;
	rp->task_free = task_free;
}
