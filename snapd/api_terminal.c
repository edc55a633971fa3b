/* The terminal of a process, as a WebSocket: its bytes as binary messages, everything else as short
 * JSON in text messages (API.md, Terminal).
 *
 * It is a thread that waits for the client and for bough-io's files, and holds one buffer of each
 * direction: output is read from the files when the client has taken what was there before, and
 * nothing is received while the program doesn't take input. So neither a slow client nor a slow
 * program costs more than that, and neither holds up another terminal. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/json.h"
#include "fs/base/websocket.h"
#include "snapd/access.h"
#include "snapd/api_sandbox.h"

enum {
	RECEIVE_BYTES = 8 * 1024,
	INPUT_BYTES = 32 * 1024,  /* received, and not yet the program's */
	CHUNK_BYTES = 32 * 1024,  /* of output, a message */
	WORDS_BYTES = 8 * 1024,   /* beside it: answers to pings and words */
	SAY_BYTES = 700,          /* of ours, one */
	LOOK_MS = 1000,           /* a silent one looks whether its process has ended */
	END_LOOK_MS = 20,         /* one whose output has ended already */
	STILL_MS = 1000,          /* whether its caller may still */
	LAST_MS = 10000,          /* for a slow client to take in what comes before our Close, */
	CLOSE_MS = 2000,          /* and then for its own */
	BEATS = 3,                /* pings in the time after which a silent client is cut */
	SIDE_MAX = 10000,
};

struct terminal {
	struct snapd *sd;
	struct principal who;
	char id[ID_SIZE], key[ID_SIZE], io[PATH_SIZE];
	struct ws_reader reader;
	int fd, watch;
	uint64_t stall_ms;
	uint64_t heard_ms, pinged_ms, looked_ms, still_ms;
	/* Output: the next byte to be sent. */
	uint64_t at;
	const uint8_t *rx; /* received, and not yet looked at */
	size_t nrx;
	uint8_t rx_bytes[RECEIVE_BYTES];
	/* Input, from offset in_at on, and how much of it the client knows to be given. */
	uint64_t in_at, in_told;
	bool in_last, in_closed, in_closed_told, in_full;
	size_t nin;
	uint8_t in[INPUT_BYTES];
	/* To be sent. */
	size_t out_at, nout;
	uint8_t out[CHUNK_BYTES + WORDS_BYTES];
	bool out_full; /* the client takes nothing at the moment */
	bool closing;  /* a Close was said: nothing comes behind it */
	bool gone;     /* the client */
	uint64_t seen;
};

/* ---- what is said ---- */

static size_t unsent(const struct terminal *t)
{
	return t->nout - t->out_at;
}

static void put(struct terminal *t, enum ws_op op, const void *data, size_t n)
{
	uint8_t head[WS_HEAD_MAX];
	size_t k = ws_put_head(head, op, n, NULL);
	if (t->closing)
		return;
	if (t->out_at > 0) {
		memmove(t->out, t->out + t->out_at, unsent(t));
		t->nout -= t->out_at;
		t->out_at = 0;
	}
	assert(t->nout + k + n <= sizeof(t->out));
	memcpy(t->out + t->nout, head, k);
	if (n) /* may be where it goes to */
		memmove(t->out + t->nout + k, data, n);
	t->nout += k + n;
}

static void say(struct terminal *t, json_t *j)
{
	char text[SAY_BYTES];
	size_t n = j ? json_dumpb(j, text, sizeof(text), JSON_COMPACT) : 0;
	json_decref(j);
	if (n > 0 && n <= sizeof(text))
		put(t, WS_TEXT, text, n);
}

/* As much of the message as fits in, whole characters. */
static void say_error(struct terminal *t, int r, const struct err *why)
{
	const char *code;
	(void)web_status(r, &code);
	for (size_t n = strlen(why->text);; n /= 2) {
		while (n > 0 && ((unsigned char)why->text[n] & 0xc0) == 0x80)
			n--;
		json_t *message = json_stringn(why->text, n);
		json_t *j = json_pack("{s:s, s:s, s:o}", "type", "error", "code", code, "message",
				      message ? message : json_string("it failed"));
		if (n == 0 || json_dumpb(j, NULL, 0, JSON_COMPACT) <= SAY_BYTES) {
			say(t, j);
			return;
		}
		json_decref(j);
	}
}

static void say_close(struct terminal *t, unsigned code, const char *reason)
{
	uint8_t data[WS_CONTROL_MAX];
	size_t n = code == WS_CLOSE_NONE ? 0 : ws_put_close(data, code, reason);
	put(t, WS_CLOSE, data, n);
	t->closing = true;
}

/* How far its input has got. */
static void say_input(struct terminal *t)
{
	if (t->in_told == t->in_at && t->in_closed == t->in_closed_told)
		return;
	t->in_told = t->in_at;
	t->in_closed_told = t->in_closed;
	say(t, json_pack("{s:s, s:I, s:b}", "type", "stdin", "offset", (json_int_t)t->in_at,
			 "closed", t->in_closed));
}

/* ---- input ---- */

/* One that reads no more is no mistake of who writes. */
static void input_ends(struct terminal *t)
{
	t->in_closed = true;
	t->nin = 0;
}

static void pump_input(struct terminal *t)
{
	struct err err = { 0 };
	t->in_full = false;
	while (t->nin > 0 && !t->in_full) {
		int n = sandbox_input(t->sd, t->id, t->key, t->in_at, t->in, t->nin, &err);
		if (n > 0) {
			memmove(t->in, t->in + n, t->nin - (size_t)n);
			t->nin -= (size_t)n;
			t->in_at += (uint64_t)n;
		} else if (n == 0 || n == -ECONNREFUSED) { /* bough-io comes again */
			t->in_full = true;
		} else if (n == -ERANGE) {
			say_close(t, WS_CLOSE_POLICY, "input is missing before that offset");
			t->nin = 0;
		} else if (n == -EPIPE || n == -ENOENT || n == -ESRCH) { /* it reads no more */
			input_ends(t);
		} else {
			say_error(t, n, &err);
			say_close(t, WS_CLOSE_FAILED, "");
			t->nin = 0;
		}
	}
}

/* As a person would end it: the shim hangs up when the input of a terminal is closed, which ends
 * the program before it has read what came before. */
static void type_end(struct terminal *t)
{
	if (t->in_last || t->in_closed)
		return;
	t->in[t->nin++] = 4; /* ^D; has_room() saw to that */
	t->in_last = true;
}

/* ---- output ---- */

static void say_end(struct terminal *t, const struct process_end *end)
{
	say(t, json_pack("{s:s, s:i, s:s}", "type", "exit", "exit_code", end->code, "reason",
			 end->reason));
	say_close(t, WS_CLOSE_NORMAL, "");
}

/* What there is, as a message. 0: nothing new. */
static int take_output(struct terminal *t)
{
	struct output_status st;
	struct err err = { 0 };
	uint8_t *room = t->out + WS_HEAD_MAX;
	ssize_t n = output_read(t->io, t->key, OUTPUT_STDOUT, t->at, room, CHUNK_BYTES, &err);
	if (n > 0) {
		t->at += (uint64_t)n;
		put(t, WS_BINARY, room, (size_t)n);
		return 1;
	}
	if (n == 0 || n == -ENOENT) /* nothing was ever kept, or it was removed */
		return 0;
	if (n == -ERANGE && output_status(t->io, t->key, &st, &err) >= 0 &&
	    st.stream[OUTPUT_STDOUT].first > t->at) {
		t->at = st.stream[OUTPUT_STDOUT].first;
		say(t, json_pack("{s:s, s:I}", "type", "gap", "offset", (json_int_t)t->at));
		return 1;
	}
	say_error(t, (int)n, &err);
	say_close(t, WS_CLOSE_FAILED, "");
	return 1;
}

/* Fills the empty buffer. */
static void pump_output(struct terminal *t)
{
	struct process_end end;
	struct output_status st;
	if (take_output(t) != 0)
		return;
	uint64_t now = clock_ms();
	bool closed = output_status(t->io, t->key, &st, NULL) < 0 ||
		      st.stream[OUTPUT_STDOUT].closed;
	if (!closed && now - t->looked_ms < LOOK_MS)
		return;
	t->looked_ms = now;
	/* First this, then the bytes: those of one that has ended are all there. */
	if (sandbox_ended(t->sd, t->id, t->key, &end) && take_output(t) == 0)
		say_end(t, &end);
}

static void flush(struct terminal *t)
{
	while (unsent(t) > 0) {
		ssize_t n = send(t->fd, t->out + t->out_at, unsent(t), MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			t->out_full = true;
			return;
		}
		if (n <= 0) {
			t->gone = true;
			return;
		}
		if (t->out_full) /* some of what lay there was taken */
			t->heard_ms = clock_ms();
		t->out_full = false;
		t->out_at += (size_t)n;
	}
	t->out_at = t->nout = 0;
}

/* ---- what the client says ---- */

static int resize(struct terminal *t, const json_t *j, struct err *err)
{
	json_int_t w = json_integer_value(json_object_get(j, "columns")),
		   h = json_integer_value(json_object_get(j, "rows"));
	if (w < 1 || h < 1 || w > SIDE_MAX || h > SIDE_MAX)
		return err_set(err, -EINVAL, "columns and rows: 1 to %d", SIDE_MAX);
	return sandbox_resize(t->sd, t->id, t->key, (uint32_t)w, (uint32_t)h, err);
}

static int send_signal(struct terminal *t, const json_t *j, struct err *err)
{
	const char *name = json_string_value(json_object_get(j, "signal"));
	int sig = name ? api_signal_parse(name) : -EINVAL;
	return sig < 0 ? err_set(err, -EINVAL, "a signal's name is expected")
		       : sandbox_signal(t->sd, t->id, t->key, sig,
					&(struct signal_note){ 0 }, err);
}

static void take_words(struct terminal *t, const struct ws_event *ev)
{
	struct err err = { 0 };
	json_t *j = json_parse(ev->data, ev->len, JSON_REJECT_DUPLICATES, NULL);
	const char *type = json_string_value(json_object_get(j, "type"));
	int r = 0;
	if (!type)
		say_close(t, WS_CLOSE_POLICY, "text is JSON with a type");
	else if (strcmp(type, "resize") == 0)
		r = resize(t, j, &err);
	else if (strcmp(type, "signal") == 0)
		r = send_signal(t, j, &err);
	else if (strcmp(type, "eof") == 0)
		type_end(t);
	else
		say_close(t, WS_CLOSE_POLICY, "a type that isn't known");
	if (r < 0 && r != -ESTALE) /* it may just have ended */
		say_error(t, r, &err);
	json_decref(j);
}

static void take_event(struct terminal *t, const struct ws_event *ev)
{
	switch (ev->op) {
	case WS_BINARY:
		if (t->in_closed || t->in_last)
			return; /* what nobody reads */
		memcpy(t->in + t->nin, ev->data, ev->len); /* has_room() saw to that */
		t->nin += ev->len;
		return;
	case WS_TEXT:
		take_words(t, ev);
		return;
	case WS_PING:
		put(t, WS_PONG, ev->data, ev->len);
		return;
	case WS_CLOSE:
		say_close(t, ev->code, "");
		return;
	default:
		return;
	}
}

/* There is room for what any one event may bring and its answer. */
static bool has_room(const struct terminal *t)
{
	return t->nin + WS_PIECE < INPUT_BYTES && unsent(t) + 4 * SAY_BYTES <= sizeof(t->out);
}

/* What was received is looked at as far as there is room: a word may take more to answer than to
 * say. */
static void take_received(struct terminal *t)
{
	struct ws_event ev;
	while (t->nrx > 0 && !t->closing && has_room(t)) {
		int r = ws_next(&t->reader, &t->rx, &t->nrx, &ev);
		if (r > 0)
			take_event(t, &ev);
		else if (r < 0)
			say_close(t, t->reader.fault, "");
	}
}

static bool listens(const struct terminal *t)
{
	return t->nrx == 0 && has_room(t);
}

static void receive(struct terminal *t)
{
	ssize_t n = recv(t->fd, t->rx_bytes, sizeof(t->rx_bytes), 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		t->gone = true;
		return;
	}
	t->heard_ms = clock_ms();
	t->rx = t->rx_bytes;
	t->nrx = (size_t)n;
}

/* ---- time ---- */

static void beat(struct terminal *t, uint64_t now)
{
	uint64_t last = t->heard_ms > t->pinged_ms ? t->heard_ms : t->pinged_ms;
	if (!listens(t) && !t->out_full)
		t->heard_ms = now; /* it is we who don't listen */
	if (now - t->heard_ms >= t->stall_ms) {
		t->gone = true;
	} else if (now - last >= t->stall_ms / BEATS && !t->out_full) {
		t->pinged_ms = now;
		put(t, WS_PING, NULL, 0);
	}
}

/* A token that was removed, a sandbox that is its caller's no longer. */
static void look_at_caller(struct terminal *t, uint64_t now)
{
	struct meant found;
	if (now - t->still_ms < STILL_MS)
		return;
	t->still_ms = now;
	int r = auth_still(t->sd, &t->who, NULL);
	if (r >= 0)
		r = access_find(t->sd, &t->who, NOUN_SANDBOX, true, t->id, &found, NULL);
	if (r == -EKEYREJECTED || r == -EPERM || r == -ENOENT)
		say_close(t, WS_CLOSE_POLICY, "the caller may no longer");
}

/* Until something may be done. */
static void await(struct terminal *t)
{
	struct output_status st;
	char drain[256];
	uint64_t ms = t->stall_ms / BEATS;
	bool ending = unsent(t) == 0 && output_status(t->io, t->key, &st, NULL) >= 0 &&
		      st.stream[OUTPUT_STDOUT].closed;
	if (t->watch < 0)
		t->watch = output_watch(t->io, t->key, NULL);
	if (ending)
		sandbox_wait_any(t->sd, &t->seen, END_LOOK_MS);
	struct pollfd p[] = {
		{ .fd = t->fd,
		  .events = (short)((listens(t) ? POLLIN : 0) | (unsent(t) ? POLLOUT : 0)) },
		/* That there is more is of no use before the client has taken what is here. */
		{ .fd = unsent(t) && !t->in_full ? -1 : t->watch, .events = POLLIN },
		{ .fd = sandboxes_quit_fd(t->sd->sandboxes), .events = POLLIN },
	};
	ms = ending ? 0 : t->watch < 0 ? LOOK_MS / 10 : ms < LOOK_MS ? ms : LOOK_MS;
	if (poll(p, 3, (int)ms) <= 0)
		return;
	if (p[2].revents)
		say_close(t, WS_CLOSE_AWAY, "boughd ends");
	if (p[1].revents) {
		ssize_t n = 0;
		bool any = false;
		while ((n = read(t->watch, drain, sizeof(drain))) > 0)
			any = true;
		if (!any && n == 0) { /* it has ended, or bough-io has */
			cleanup_close(&t->watch);
			t->watch = -1;
		}
	}
	if (p[0].revents & (POLLHUP | POLLERR))
		t->gone = !(p[0].revents & POLLIN);
	if (p[0].revents & POLLIN)
		receive(t);
}

/* Our Close is on its way: theirs, or the end of the connection, shows that it has arrived. If we
 * ended at once, what they still send might make the kernel throw it away. */
static void part(struct terminal *t)
{
	uint64_t until = clock_ms() + LAST_MS, now;
	bool heard = t->reader.closed && !t->reader.fault, sent = false;
	struct ws_event ev;
	while (!t->gone && (now = clock_ms()) < until) {
		flush(t);
		if (!sent && unsent(t) == 0) {
			sent = true;
			until = now + CLOSE_MS;
		}
		if (unsent(t) == 0 && heard)
			return; /* both have said it */
		struct pollfd p = { .fd = t->fd,
				    .events = (short)(POLLIN | (unsent(t) ? POLLOUT : 0)) };
		if (t->gone || poll(&p, 1, (int)(until - now)) <= 0)
			continue;
		if (p.revents & (POLLHUP | POLLERR))
			return;
		if (p.revents & POLLIN)
			receive(t);
		while (!heard && ws_next(&t->reader, &t->rx, &t->nrx, &ev) > 0)
			heard = ev.op == WS_CLOSE;
	}
}

static void terminal_run(void *task, const struct web_socket *s)
{
	struct terminal *t = task;
	t->fd = s->fd;
	t->stall_ms = 1000 * (uint64_t)s->stall_s;
	t->heard_ms = t->pinged_ms = t->still_ms = clock_ms();
	t->rx = s->early;
	t->nrx = s->nearly;
	t->watch = output_watch(t->io, t->key, NULL);
	say(t, json_pack("{s:s, s:I, s:I}", "type", "ready", "offset", (json_int_t)t->at,
			 "stdin_offset", (json_int_t)t->in_at));
	while (!t->gone && !t->closing) {
		take_received(t);
		pump_input(t);
		if (unsent(t) == 0)
			say_input(t);
		if (unsent(t) == 0 && !t->closing)
			pump_output(t);
		uint64_t now = clock_ms();
		beat(t, now);
		look_at_caller(t, now);
		flush(t);
		if (!t->gone && !t->closing && (t->nrx == 0 || !has_room(t)))
			await(t);
	}
	part(t);
}

/* ---- the request ---- */

static void terminal_free(void *task)
{
	struct terminal *t = task;
	cleanup_close(&t->watch);
	free(t);
}

/* Whether it was started with one. */
static int has_terminal(struct snapd *sd, const char *id, const struct exec_row *row,
			struct err *err)
{
	auto_sandbox_row box = { 0 };
	auto_spec spec = { 0 };
	if (row->id[0]) {
		json_t *j = json_loads(row->spec ? row->spec : "", 0, NULL);
		bool is = json_is_true(json_object_get(j, "tty"));
		json_decref(j);
		return is;
	}
	int r = catalog_sandbox_get(sd->catalog, id, &box, err);
	if (r >= 0)
		r = spec_read(&spec, box.spec, err);
	return r < 0 ? r : spec.tty;
}

/* Where it goes on: at bytes that there are, or were. */
static int take_offsets(struct terminal *t, struct request *rq, struct err *err)
{
	struct output_status st = { 0 };
	int r = api_exec_offset(rq, "offset", &t->at, err);
	if (r >= 0)
		r = api_exec_offset(rq, "stdin_offset", &t->in_at, err);
	if (r < 0)
		return r;
	(void)output_status(t->io, t->key, &st, NULL); /* none is kept: all is 0 */
	if (!request_query(rq, "stdin_offset"))
		t->in_at = st.in;
	if (t->at > st.stream[OUTPUT_STDOUT].end)
		return err_set(err, -ERANGE, "the offset is behind the end, %llu",
			       (unsigned long long)st.stream[OUTPUT_STDOUT].end);
	if (t->in_at > st.in)
		return err_set(err, -ERANGE, "the input was given up to %llu only",
			       (unsigned long long)st.in);
	return 0;
}

int api_exec_terminal(struct request *rq, struct reply *rp, struct err *err)
{
	const char *key;
	auto_exec_row row = { 0 };
	int r = api_exec_find(rq, &row, &key, err);
	if (r >= 0)
		r = has_terminal(rq->ctx, rq->params[0], &row, err);
	if (r == 0)
		r = err_set(err, -ENOTUNIQ,
			    "it was started without a terminal: see its output and stdin");
	if (r < 0)
		return r;
	struct terminal *t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(err);
	t->sd = rq->ctx;
	t->who = *rq->caller;
	t->watch = -1;
	t->reader.masked = true;
	(void)snprintf(t->id, sizeof(t->id), "%s", rq->params[0]);
	(void)snprintf(t->key, sizeof(t->key), "%s", key);
	sandbox_io_path(t->sd, t->id, t->io);
	r = take_offsets(t, rq, err);
	if (r < 0) {
		terminal_free(t);
		return r;
	}
	t->in_told = t->in_at;
	rp->socket = terminal_run;
	rp->protocol = "bough.terminal.v1";
	rp->task = t;
	rp->task_free = terminal_free;
	return 0;
}
