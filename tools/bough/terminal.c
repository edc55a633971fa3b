#include "tools/bough/terminal.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>
#include "fs/base/base64.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/websocket.h"
#include "tools/bough/json.h"

enum {
	KEEP_BYTES = 64 * 1024, /* of input that isn't known to be given; then no more is read */
	READ_BYTES = 64 * 1024,
	LIVED_MS = 1000, /* a connection that held so long was a good one */
};

struct term {
	struct cli *cli;
	struct attach *a;
	/* Of the connection: */
	int fd;
	struct ws_reader reader;
	struct buf out; /* to be sent, from out_at on */
	size_t out_at;
	size_t sent; /* of the input that is kept */
	bool eof_sent, over;
	uint64_t opened_ms; /* 0: it wasn't */
	/* Input from offset keep_at on. */
	uint8_t keep[KEEP_BYTES];
	uint64_t keep_at;
	size_t nkeep;
	bool in_eof, in_closed;
	int signals;
	unsigned insists;
};

/* ---- our side of it ---- */

static struct termios before; /* what atexit puts back: nothing else is called then */
static bool is_raw;

static void leave_raw(void)
{
	if (is_raw)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
	is_raw = false;
}

static void enter_raw(void)
{
	struct termios t;
	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return; /* no terminal: it stays as it is */
	t = before;
	cfmakeraw(&t);
	is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &t) == 0;
	(void)atexit(leave_raw);
}

bool terminal_size(unsigned *columns, unsigned *rows)
{
	struct winsize w;
	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_col == 0 || w.ws_row == 0)
		return false;
	*columns = w.ws_col;
	*rows = w.ws_row;
	return true;
}

/* ---- what is sent ---- */

static void fill_random(uint8_t *p, size_t n)
{
	ssize_t did = getrandom(p, n, 0);
	assert(did == (ssize_t)n); /* so few always come */
}

static void put(struct term *t, enum ws_op op, const void *data, size_t n)
{
	uint8_t head[WS_HEAD_MAX], mask[4] = { 0 };
	fill_random(mask, sizeof(mask));
	buf_add(&t->out, head, ws_put_head(head, op, n, mask));
	uint8_t *p = buf_room(&t->out, n);
	if (!p)
		return;
	memcpy(p, data, n);
	ws_mask(p, n, mask, 0);
	t->out.len += n;
}

static void say(struct term *t, json_t *j)
{
	auto_free char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (text)
		put(t, WS_TEXT, text, strlen(text));
}

static void say_size(struct term *t)
{
	unsigned w, h;
	if (terminal_size(&w, &h))
		say(t, json_pack("{s:s, s:i, s:i}", "type", "resize", "columns", (int)w, "rows",
				 (int)h));
}

static size_t unsent(const struct term *t)
{
	return t->out.len - t->out_at;
}

/* All that is kept goes at once, behind what is yet to be sent: nothing later would ask for it. */
static void say_input(struct term *t)
{
	if (t->in_closed)
		return;
	if (t->sent < t->nkeep) {
		put(t, WS_BINARY, t->keep + t->sent, t->nkeep - t->sent);
		t->sent = t->nkeep;
	}
	if (t->in_eof && !t->eof_sent) {
		say(t, json_pack("{s:s}", "type", "eof"));
		t->eof_sent = true;
	}
}

static int flush(struct term *t, struct err *err)
{
	if (buf_error(&t->out))
		return err_no_memory(err);
	while (unsent(t) > 0) {
		ssize_t n = send(t->fd, t->out.data + t->out_at, unsent(t),
				 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return err_sys(err, -ECONNRESET, "send to boughd");
		t->out_at += (size_t)n;
	}
	buf_reset(&t->out);
	t->out_at = 0;
	return 0;
}

/* ---- what comes ---- */

/* Up to there the input was given. */
static void forget_input(struct term *t, const json_t *j)
{
	uint64_t at = (uint64_t)get_int(j, "offset");
	size_t n = at > t->keep_at ? (size_t)(at - t->keep_at) : 0;
	if (n > t->nkeep)
		n = t->nkeep;
	memmove(t->keep, t->keep + n, t->nkeep - n);
	t->nkeep -= n;
	t->sent -= n < t->sent ? n : t->sent;
	t->keep_at += n;
	t->in_closed = t->in_closed || get_true(j, "closed");
}

static int take_words(struct term *t, const struct ws_event *ev, struct err *err)
{
	auto_json json_t *j = json_loadb((const char *)ev->data, ev->len, 0, NULL);
	const char *type = get_text(j, "type");
	if (!*type)
		return err_set(err, -EPROTO, "boughd said what is no JSON");
	if (strcmp(type, "gap") == 0)
		attach_gap(t->cli, t->a, false, (uint64_t)get_int(j, "offset"));
	else if (strcmp(type, "stdin") == 0)
		forget_input(t, j);
	else if (strcmp(type, "exit") == 0)
		attach_end(t->a, j);
	return 0; /* others: ready, errors of what may just have ended, a newer daemon's */
}

static int take_event(struct term *t, const struct ws_event *ev, struct err *err)
{
	int r;
	switch (ev->op) {
	case WS_BINARY:
		r = attach_write(STDOUT_FILENO, ev->data, ev->len, err);
		t->a->at[0] += ev->len;
		return r;
	case WS_TEXT:
		return take_words(t, ev, err);
	case WS_PING:
		put(t, WS_PONG, ev->data, ev->len);
		return 0;
	case WS_CLOSE:
		put(t, WS_CLOSE, ev->data - (ev->code == WS_CLOSE_NONE ? 0 : 2),
		    ev->code == WS_CLOSE_NONE ? 0 : 2);
		t->over = true;
		return 0;
	default:
		return 0;
	}
}

static int take_bytes(struct term *t, const uint8_t *p, size_t n, struct err *err)
{
	struct ws_event ev;
	int r = 0;
	while (!t->over && (r = ws_next(&t->reader, &p, &n, &ev)) > 0) {
		r = take_event(t, &ev, err);
		if (r < 0)
			return r;
	}
	return r < 0 ? err_set(err, r, "boughd sent what is no frame") : 0;
}

static int receive(struct term *t, struct err *err)
{
	uint8_t buf[READ_BYTES];
	ssize_t n = recv(t->fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		return err_set(err, -ECONNRESET, "boughd closed the connection");
	return take_bytes(t, buf, (size_t)n, err);
}

static void read_input(struct term *t)
{
	ssize_t n = read(STDIN_FILENO, t->keep + t->nkeep, sizeof(t->keep) - t->nkeep);
	if (n > 0)
		t->nkeep += (size_t)n;
	else if (n == 0 || (errno != EINTR && errno != EAGAIN))
		t->in_eof = true;
}

/* `said`: there is a connection to say it on. */
static void take_signal(struct term *t, bool said)
{
	struct signalfd_siginfo si;
	if (read(t->signals, &si, sizeof(si)) != sizeof(si))
		return;
	int sig = (int)si.ssi_signo;
	if (sig == SIGWINCH) {
		if (said) /* a new connection begins with it */
			say_size(t);
		return;
	}
	if (sig == SIGHUP) /* our terminal has gone: it goes on without */
		exit(128 + SIGHUP);
	if ((sig == SIGINT || sig == SIGTERM) && ++t->insists > ATTACH_INSIST)
		exit(128 + sig); /* it doesn't listen */
	if (said)
		say(t, json_pack("{s:s, s:s}", "type", "signal", "signal", sigabbrev_np(sig)));
}

/* ---- a connection ---- */

static int open_socket(struct term *t, struct http **h, struct err *err)
{
	char headers[256], at[24], accept[WS_ACCEPT_SIZE];
	uint8_t nonce[16] = { 0 };
	fill_random(nonce, sizeof(nonce));
	auto_free char *key = base64_encode(nonce, sizeof(nonce));
	if (!key)
		return err_no_memory(err);
	(void)snprintf(headers, sizeof(headers),
		       "Connection: Upgrade\r\nUpgrade: websocket\r\n"
		       "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n"
		       "Sec-WebSocket-Protocol: bough.terminal.v1\r\n",
		       key);
	auto_target target = attach_target(t->a, "/terminal");
	target.headers = headers;
	target.upgrade = true;
	(void)snprintf(at, sizeof(at), "%llu", (unsigned long long)t->a->at[0]);
	target_query(&target, "offset", at);
	(void)snprintf(at, sizeof(at), "%llu", (unsigned long long)t->keep_at);
	target_query(&target, "stdin_offset", at);
	int r = api_stream(t->cli, &target, "*/*", h, err);
	if (r < 0)
		return r;
	ws_accept(key, accept);
	if (http_answer(*h)->status != 101 || strcmp(http_answer(*h)->accept, accept) != 0)
		return err_set(err, -EPROTO, "boughd answered without a WebSocket");
	return 0;
}

/* One connection's worth. */
static int talk(struct term *t, const uint8_t *early, size_t n, struct err *err)
{
	int r = take_bytes(t, early, n, err);
	say_size(t);
	while (r >= 0 && !t->over) {
		if (t->a->in)
			say_input(t);
		r = flush(t, err);
		bool reads = t->a->in && !t->in_eof && !t->in_closed && t->nkeep < KEEP_BYTES;
		struct pollfd p[] = {
			{ .fd = t->fd, .events = (short)(POLLIN | (unsent(t) ? POLLOUT : 0)) },
			{ .fd = reads ? STDIN_FILENO : -1, .events = POLLIN },
			{ .fd = t->signals, .events = POLLIN },
		};
		if (r < 0 || (poll(p, 3, -1) < 0 && errno != EINTR))
			break;
		if (p[2].revents)
			take_signal(t, true);
		if (p[1].revents)
			read_input(t);
		if (p[0].revents)
			r = receive(t, err);
	}
	if (r >= 0)
		(void)flush(t, NULL); /* our Close: for politeness */
	return r;
}

static int connection(struct term *t, struct err *err)
{
	struct http *h = NULL;
	const uint8_t *early;
	size_t n;
	t->opened_ms = 0;
	int r = open_socket(t, &h, err);
	if (r >= 0) {
		t->opened_ms = clock_ms();
		t->fd = http_upgraded(h, &early, &n);
		t->reader = (struct ws_reader){ 0 };
		buf_reset(&t->out);
		t->out_at = t->sent = 0;
		t->eof_sent = t->over = false;
		r = talk(t, early, n, err);
	}
	http_free(h);
	return r;
}

static int follow(struct term *t, struct err *err)
{
	uint64_t until = clock_ms() + ATTACH_GIVE_UP_MS;
	for (;;) {
		int r = connection(t, err);
		if (t->a->ended)
			return 0;
		uint64_t now = clock_ms();
		if (t->opened_ms && now - t->opened_ms > LIVED_MS)
			until = now + ATTACH_GIVE_UP_MS;
		/* Closed without an exit: so it is when boughd ends. */
		if ((r < 0 && !attach_may_come_back(r)) || now > until)
			return r < 0 ? r
				     : err_set(err, -ECONNRESET, "boughd ended the terminal early");
		free(steal_ptr(&t->cli->detail));
		struct pollfd p = { .fd = t->signals, .events = POLLIN };
		if (poll(&p, 1, ATTACH_AGAIN_MS) > 0)
			take_signal(t, false);
	}
}

int terminal_run(struct cli *cli, struct attach *a, struct err *err)
{
	auto_fd signals = -1;
	auto_free struct term *t = calloc(1, sizeof(*t));
	sigset_t set;
	attach_signals(&set);
	sigaddset(&set, SIGWINCH);
	if (!t)
		return err_no_memory(err);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 ||
	    (signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
		return err_sys(err, -errno, "signalfd");
	t->cli = cli;
	t->a = a;
	t->signals = signals;
	enter_raw();
	int r = follow(t, err);
	leave_raw();
	buf_done(&t->out);
	return r;
}
