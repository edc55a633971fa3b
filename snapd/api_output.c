/* The output of a process as a stream that can be continued at any offset.
 *
 * The body is frames, or one stream's bare bytes (`stream=stdout`). A frame is a head of 16 bytes
 * and `length` bytes:
 *
 *     u8 type, u8[3] zero, u32 length, u64 offset     big-endian
 *     1 stdout, 2 stderr   bytes from that offset on; the next one's is offset + length, unless a
 *                          gap says otherwise
 *     3 gap                length 1, a byte that is 1 or 2: bytes of that stream before `offset`
 *                          were dropped
 *     4 end                JSON: {"exit_code", "reason"}; the last frame. Without `follow` it
 *                          comes only when the process has ended
 *     5 alive              nothing new; sent now and then, so that a lost connection is noticed
 *
 * It is made by the connection's own thread, from the files that bough-io writes: a slow reader
 * costs no memory, and holds up nobody. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "snapd/access.h"
#include "snapd/api_sandbox.h"

enum {
	FRAME_HEAD = 16,
	FRAME_BYTES = 64 * 1024, /* of one frame, at most */
	ALIVE_MS = 5000,
	LOOK_MS = 1000, /* so often a silent one looks whether its process has ended */
	STILL_MS = 1000, /* so often it looks whether its caller may still */
};
enum frame { FRAME_STDOUT = 1, FRAME_STDERR, FRAME_GAP, FRAME_END, FRAME_ALIVE };

struct follow {
	struct snapd *sd;
	struct principal who;
	char id[ID_SIZE], key[ID_SIZE], io[PATH_SIZE];
	uint64_t at[2];
	bool on, bare, ended; /* ended: the process, and how is known */
	unsigned streams;     /* bits: which are wanted */
	bool done;
	struct process_end end;
	int watch;
	uint64_t looked_ms, sent_ms, seen;
	/* What didn't fit into the caller's buffer. */
	uint8_t *rest;
	size_t rest_len, rest_at;
};

static void follow_free(void *task)
{
	struct follow *f = task;
	cleanup_close(&f->watch);
	free(f->rest);
	free(f);
}

static void put_head(uint8_t *p, enum frame type, uint32_t length, uint64_t offset)
{
	memset(p, 0, FRAME_HEAD);
	p[0] = (uint8_t)type;
	for (int i = 0; i < 4; i++)
		p[4 + i] = (uint8_t)(length >> (24 - 8 * i));
	for (int i = 0; i < 8; i++)
		p[8 + i] = (uint8_t)(offset >> (56 - 8 * i));
}

/* Each of these fills `rest` with one frame. */
static size_t frame_data(struct follow *f, int stream, size_t n)
{
	if (f->bare) {
		memmove(f->rest, f->rest + FRAME_HEAD, n);
		return n;
	}
	put_head(f->rest, stream ? FRAME_STDERR : FRAME_STDOUT, (uint32_t)n, f->at[stream]);
	return FRAME_HEAD + n;
}

static size_t frame_gap(struct follow *f, int stream, uint64_t first)
{
	put_head(f->rest, FRAME_GAP, 1, first);
	f->rest[FRAME_HEAD] = (uint8_t)(stream ? FRAME_STDERR : FRAME_STDOUT);
	return FRAME_HEAD + 1;
}

static size_t frame_end(struct follow *f)
{
	int n = snprintf((char *)f->rest + FRAME_HEAD, 128,
			 "{\"exit_code\": %d, \"reason\": \"%s\"}", f->end.code, f->end.reason);
	put_head(f->rest, FRAME_END, (uint32_t)n, 0);
	return FRAME_HEAD + (size_t)n;
}

/* What there is of one stream: a frame's length, 0: nothing new. */
static ssize_t take(struct follow *f, int stream, struct err *err)
{
	struct output_status st;
	if (!(f->streams & 1U << stream))
		return 0;
	for (;;) {
		ssize_t n = output_read(f->io, f->key, (enum output_stream)stream, f->at[stream],
					f->rest + FRAME_HEAD, FRAME_BYTES, err);
		if (n > 0) {
			size_t len = frame_data(f, stream, (size_t)n);
			f->at[stream] += (uint64_t)n;
			return (ssize_t)len;
		}
		if (n == 0 || n == -ENOENT) /* nothing was ever kept */
			return 0;
		if (n != -ERANGE || output_status(f->io, f->key, &st, NULL) < 0)
			return n;
		uint64_t first = st.stream[stream].first;
		if (first <= f->at[stream]) /* it asks for what hasn't been written yet */
			return err_set(err, -ERANGE, "the offset is behind the end, %llu",
				       (unsigned long long)st.stream[stream].end);
		f->at[stream] = first;
		if (!f->bare)
			return (ssize_t)frame_gap(f, stream, first);
	}
}

/* 0 when the token is good no longer, or the sandbox is none that the caller sees: the client hears
 * why when it comes back. */
static int still_heard(struct follow *f, struct err *err)
{
	uint64_t now = clock_ms();
	if (now - f->looked_ms < STILL_MS)
		return 1;
	f->looked_ms = now;
	struct meant found;
	int r = auth_still(f->sd, &f->who, err);
	if (r >= 0)
		r = access_find(f->sd, &f->who, NOUN_SANDBOX, false, f->id, &found, err);
	return r == -EKEYREJECTED || r == -EPERM || r == -ENOENT ? 0 : r < 0 ? r : 1;
}

static bool all_closed(const struct follow *f)
{
	struct output_status st;
	return output_status(f->io, f->key, &st, NULL) >= 0 && st.stream[0].closed &&
	       st.stream[1].closed;
}

/* Waits for more. 1; 0: boughd ends. */
static int await(struct follow *f)
{
	char drain[256];
	if (all_closed(f)) { /* what is missing is how it ended */
		struct pollfd quit = { .fd = sandboxes_quit_fd(f->sd->sandboxes),
				       .events = POLLIN };
		sandbox_wait_any(f->sd, &f->seen, LOOK_MS);
		return poll(&quit, 1, 0) == 0;
	}
	if (f->watch < 0)
		f->watch = output_watch(f->io, f->key,
					NULL); /* else it is looked at by the clock */
	struct pollfd p[] = { { .fd = f->watch, .events = POLLIN },
			      { .fd = sandboxes_quit_fd(f->sd->sandboxes), .events = POLLIN } };
	int n = poll(p, 2, f->watch < 0 ? LOOK_MS / 10 : LOOK_MS);
	if (n > 0 && p[1].revents)
		return 0;
	if (n > 0 && f->watch >= 0) {
		ssize_t got = 0;
		bool any = false;
		while ((got = read(f->watch, drain, sizeof(drain))) > 0)
			any = true;
		if (!any && got == 0) /* bough-io has ended */
			cleanup_close(&f->watch), f->watch = -1;
	}
	return 1;
}

/* The next frame, waiting for it; 0 at the end. */
static ssize_t next(struct follow *f, struct err *err)
{
	for (;;) {
		int still = still_heard(f, err);
		if (still <= 0)
			return still;
		/* First this, then the bytes: those of one that has ended are all there. */
		bool ended = f->ended || sandbox_ended(f->sd, f->id, f->key, &f->end);
		for (int i = 0; i < 2; i++) {
			ssize_t n = take(f, i, err);
			if (n != 0)
				return n;
		}
		f->ended = ended;
		if (ended || !f->on) {
			f->done = true;
			return ended && !f->bare ? (ssize_t)frame_end(f) : 0;
		}
		if (await(f) == 0)
			return 0; /* the client comes back, at its offset */
		if (!f->bare && clock_ms() - f->sent_ms > ALIVE_MS) {
			put_head(f->rest, FRAME_ALIVE, 0, 0);
			return FRAME_HEAD;
		}
	}
}

static ssize_t follow_read(void *task, uint64_t pos, void *buf, size_t n, struct err *err)
{
	struct follow *f = task;
	if (f->rest_at == f->rest_len) {
		if (f->done)
			return 0;
		ssize_t got = next(f, err);
		if (got <= 0)
			return got;
		f->rest_len = (size_t)got;
		f->rest_at = 0;
		f->sent_ms = clock_ms();
	}
	size_t left = f->rest_len - f->rest_at;
	if (n > left)
		n = left;
	memcpy(buf, f->rest + f->rest_at, n);
	f->rest_at += n;
	return (ssize_t)n;
}

static int take_streams(struct follow *f, struct request *rq, struct err *err)
{
	const char *s = request_query(rq, "stream");
	f->bare = s != NULL;
	f->streams = !s ? 3 : strcmp(s, "stdout") == 0 ? 1 : strcmp(s, "stderr") == 0 ? 2 : 0;
	return f->streams ? 0 : request_bad_field(rq, "stream", err, "stdout or stderr");
}

/* Before the first byte, so that the answer can say so. */
static int check_offsets(const struct follow *f, struct err *err)
{
	struct output_status st;
	if (output_status(f->io, f->key, &st, NULL) < 0) /* nothing was ever kept */
		return 0;
	for (int i = 0; i < 2; i++)
		if (f->streams & 1U << i && f->at[i] > st.stream[i].end)
			return err_set(err, -ERANGE, "the offset is behind the end, %llu",
				       (unsigned long long)st.stream[i].end);
	return 0;
}

int api_exec_output(struct request *rq, struct reply *rp, struct err *err)
{
	const char *key;
	auto_exec_row row = { 0 };
	struct follow *f = calloc(1, sizeof(*f));
	if (!f || !(f->rest = malloc(FRAME_HEAD + FRAME_BYTES))) {
		free(f);
		return err_no_memory(err);
	}
	f->sd = rq->ctx;
	f->who = *rq->caller;
	f->watch = -1;
	f->on = request_query_true(rq, "follow");
	f->looked_ms = f->sent_ms = clock_ms();
	int r = api_exec_offset(rq, "stdout_offset", &f->at[0], err);
	if (r >= 0)
		r = api_exec_offset(rq, "stderr_offset", &f->at[1], err);
	if (r >= 0)
		r = take_streams(f, rq, err);
	if (r >= 0)
		r = api_exec_find(rq, &row, &key, err);
	if (r >= 0) {
		(void)snprintf(f->id, sizeof(f->id), "%s", rq->params[0]);
		(void)snprintf(f->key, sizeof(f->key), "%s", key);
		sandbox_io_path(f->sd, f->id, f->io);
		r = check_offsets(f, err);
	}
	if (r < 0) {
		follow_free(f);
		return r;
	}
	rp->read = follow_read;
	rp->length = WEB_UNKNOWN;
	rp->type = f->bare ? "application/octet-stream" : "application/vnd.bough.output";
	rp->task = f;
	rp->task_free = follow_free;
	return 0;
}
