#include "tools/bough/sse.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
	LINE_MAX_BYTES = 256 * 1024, /* two paths of 16 KiB, escaped */
	AGAIN_MS = 200,              /* after a stream that ended: boughd is being restarted */
};

/* An id counts once its event has come: what broke off behind the id comes again. */
static int take_line(struct sse *s, const char *line, char next[SSE_ID_MAX], struct err *err)
{
	bool data = strncmp(line, "data: ", 6) == 0;
	if (strncmp(line, "id: ", 4) == 0)
		(void)snprintf(next, SSE_ID_MAX, "%s", line + 4);
	else if (data || !*line) /* the event's last line, or an id alone */
		(void)snprintf(s->id, sizeof(s->id), "%s", next);
	return data ? s->event(s->ctx, line + 6, err) : 1;
}

/* Until the stream ends: 1; there is enough: 0; or why it can't be had. */
static int read_one(struct sse *s, struct err *err)
{
	struct http *h = NULL;
	char next[SSE_ID_MAX];
	const char *line;
	size_t len;
	(void)snprintf(next, sizeof(next), "%s", s->id);
	auto_target t = s->target(s->ctx, s->id);
	int more = 1, r = api_stream(s->cli, &t, "text/event-stream", &h, err);
	if (r < 0)
		return r;
	while (more > 0 && (r = http_read_line(h, LINE_MAX_BYTES, &line, &len, err)) > 0)
		more = take_line(s, line, next, err);
	if (more <= 0)
		r = more;
	else if (r == 0 || r == -ECONNRESET) /* boughd is gone: another one goes on from there */
		r = 1;
	else
		r = api_stream_error(s->cli, h, r, err);
	http_free(h);
	return r;
}

int sse_read(struct sse *s, bool again, struct err *err)
{
	int r = read_one(s, err);
	while (r > 0 && again) {
		(void)nanosleep(&(struct timespec){ .tv_nsec = AGAIN_MS * 1000000L }, NULL);
		r = read_one(s, err);
	}
	return r < 0 ? r : 0;
}
