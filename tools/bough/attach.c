#include "tools/bough/attach.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "tools/bough/api.h"
#include "tools/bough/frames.h"
#include "tools/bough/json.h"
#include "tools/bough/terminal.h"

enum {
	READ_BYTES = 128 * 1024,
	INPUT_BYTES = 64 * 1024,
};

/* ---- calls beside the stream: each thread has a context of its own ---- */

struct helper {
	struct cli cli;
	struct attach a; /* its own: it goes on when the caller has gone on to something else */
};

static int helper_init(struct helper *h, const struct cli *cli, const struct attach *a)
{
	*h = (struct helper){ .a = { .sandbox = strdup(a->sandbox), .exec = strdup(a->exec) } };
	h->cli = (struct cli){ .root = cli->root, .remote = cli->remote, .quiet = true };
	return h->a.sandbox && h->a.exec ? 0 : ENOMEM;
}

struct target attach_target(const struct attach *a, const char *rest)
{
	struct target t = target_new("/v1/sandboxes/");
	target_name(&t, a->sandbox);
	target_path(&t, "/exec/");
	target_name(&t, a->exec);
	target_path(&t, rest);
	return t;
}

static void post(struct helper *h, const char *rest, json_t *body)
{
	auto_target t = attach_target(&h->a, rest);
	(void)api_call(&h->cli, "POST", &t, body, NULL, NULL, NULL); /* it may just have ended */
	free(steal_ptr(&h->cli.detail));
	json_decref(body);
}

void attach_signals(sigset_t *set)
{
	static const int all[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
	sigemptyset(set);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		sigaddset(set, all[i]);
}

static void *signal_thread(void *arg)
{
	struct helper *h = arg;
	sigset_t set;
	int sig, insists = 0;
	attach_signals(&set);
	for (;;) {
		if (sigwait(&set, &sig) != 0)
			continue;
		if ((sig == SIGINT || sig == SIGTERM) && ++insists > ATTACH_INSIST)
			exit(128 + sig); /* it doesn't listen */
		post(h, "/signal", json_pack("{s:s}", "signal", sigabbrev_np(sig)));
	}
	return NULL;
}

/* One piece of input; sent again, at the same offset, where the connection broke. */
static int send_input(struct helper *h, const void *data, size_t n, uint64_t *offset, bool last,
		      bool *closed)
{
	struct http_body body = { .type = "application/octet-stream",
				  .data = n ? data : "",
				  .len = n,
				  .fd = -1,
				  .size = -1 };
	uint64_t until = clock_ms() + ATTACH_GIVE_UP_MS;
	for (;;) {
		char at[24];
		struct progress none = { 0 };
		auto_json json_t *answer = NULL;
		auto_target t = attach_target(&h->a, "/stdin");
		(void)snprintf(at, sizeof(at), "%llu", (unsigned long long)*offset);
		target_query(&t, "offset", at);
		target_query(&t, "last", last ? "true" : NULL);
		int r = api_job(&h->cli, "POST", &t, NULL, &body, &none, &answer, NULL);
		free(steal_ptr(&h->cli.detail));
		if (r == 0) {
			*offset += n;
			*closed = get_true(answer, "closed");
			return 0;
		}
		if ((r != -ECONNRESET && r != -ECONNREFUSED && r != -EPROTO && r != -EPIPE &&
		     r != -ENOENT && r != -EIO) ||
		    clock_ms() > until)
			return r;
		(void)usleep(ATTACH_AGAIN_MS * 1000);
	}
}

static void *input_thread(void *arg)
{
	struct helper *h = arg;
	auto_free char *buf = malloc(INPUT_BYTES);
	uint64_t offset = 0;
	bool closed = false;
	while (buf && !closed) {
		ssize_t n = read(STDIN_FILENO, buf, INPUT_BYTES);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			(void)send_input(h, NULL, 0, &offset, true, &closed);
			break;
		}
		if (send_input(h, buf, (size_t)n, &offset, false, &closed) < 0)
			break;
	}
	return NULL;
}

/* ---- output ---- */

int attach_write(int fd, const uint8_t *p, size_t n, struct err *err)
{
	while (n > 0) {
		ssize_t did = write(fd, p, n);
		if (did < 0 && errno == EINTR)
			continue;
		if (did < 0)
			return err_sys(err, -errno, "write what came");
		p += did;
		n -= (size_t)did;
	}
	return 0;
}

void attach_end(struct attach *a, const json_t *j)
{
	a->ended = true;
	a->code = (int)get_int(j, "exit_code");
	(void)snprintf(a->reason, sizeof(a->reason), "%s", get_text(j, "reason"));
}

static int take_end(struct attach *a, const struct frame *f, struct err *err)
{
	auto_json json_t *j = json_loadb((const char *)f->data, f->length, 0, NULL);
	if (!j)
		return err_set(err, -EPROTO, "boughd told no exit code");
	attach_end(a, j);
	return 0;
}

void attach_gap(const struct cli *cli, struct attach *a, bool is_err, uint64_t offset)
{
	uint64_t *at = &a->at[is_err];
	if (!cli->quiet && offset > *at)
		fprintf(stderr, "bough: %llu bytes of %s aren't kept any longer\n",
			(unsigned long long)(offset - *at), is_err ? "stderr" : "stdout");
	*at = offset;
}

static int take_frame(struct cli *cli, struct attach *a, const struct frame *f, struct err *err)
{
	unsigned s = f->type == FRAME_STDERR;
	int r = 0;
	switch (f->type) {
	case FRAME_STDOUT:
	case FRAME_STDERR:
		r = attach_write(s ? STDERR_FILENO : STDOUT_FILENO, f->data, f->length, err);
		a->at[s] = f->offset + f->length;
		return r;
	case FRAME_GAP:
		attach_gap(cli, a, f->length == 1 && f->data[0] == FRAME_STDERR, f->offset);
		return 0;
	case FRAME_END:
		return take_end(a, f, err);
	default: /* alive, or a newer daemon's */
		return 0;
	}
}

/* One connection's worth. -ECONNRESET and the like: it broke. */
static int read_stream(struct cli *cli, struct attach *a, struct http *h, bool *any,
		       struct err *err)
{
	auto_free uint8_t *buf = malloc(READ_BYTES);
	auto_frames fs = { 0 };
	if (!buf)
		return err_no_memory(err);
	for (;;) {
		struct frame f;
		ssize_t n = http_read(h, buf, READ_BYTES, err);
		if (n < 0)
			return api_stream_error(cli, h, (int)n, err);
		if (n == 0)
			return 0;
		*any = true;
		int r = frames_add(&fs, buf, (size_t)n);
		while (r >= 0 && (r = frames_next(&fs, &f)) > 0)
			r = take_frame(cli, a, &f, err);
		if (r == -EBADMSG)
			return err_set(err, -EPROTO, "boughd sent what is no frame");
		if (r < 0)
			return r;
		if (a->ended)
			return 0;
	}
}

static int open_stream(struct cli *cli, struct attach *a, struct http **h, struct err *err)
{
	static const char *const keys[] = { "stdout_offset", "stderr_offset" };
	auto_target t = attach_target(a, "/output");
	for (int i = 0; i < 2; i++) {
		char at[24];
		(void)snprintf(at, sizeof(at), "%llu", (unsigned long long)a->at[i]);
		target_query(&t, keys[i], at);
	}
	target_query(&t, "follow", a->follow ? "true" : NULL);
	return api_stream(cli, &t, "*/*", h, err);
}

bool attach_may_come_back(int r)
{
	return r == -ECONNRESET || r == -ECONNREFUSED || r == -EPROTO || r == -EPIPE ||
	       r == -ESHUTDOWN || r == -ETIMEDOUT;
}

static int follow(struct cli *cli, struct attach *a, struct err *err)
{
	uint64_t until = clock_ms() + ATTACH_GIVE_UP_MS;
	for (;;) {
		struct http *h = NULL;
		bool any = false;
		int r = open_stream(cli, a, &h, err);
		if (r == 0)
			r = read_stream(cli, a, h, &any, err);
		http_free(h);
		if (a->ended || (r == 0 && !a->follow))
			return 0;
		if (any)
			until = clock_ms() + ATTACH_GIVE_UP_MS;
		/* It ended early without a reason: so it does when boughd ends. */
		if ((r < 0 && !attach_may_come_back(r)) || clock_ms() > until)
			return r < 0 ? r
				     : err_set(err, -ECONNRESET, "boughd ended the stream early");
		free(steal_ptr(&cli->detail));
		(void)usleep(ATTACH_AGAIN_MS * 1000);
	}
}

/* Nobody waits for its end: that is the program's. */
static int start_helper(void *(*fn)(void *), struct helper *h)
{
	pthread_t thread;
	int r = pthread_create(&thread, NULL, fn, h);
	return r ? r : pthread_detach(thread);
}

int attach_run(struct cli *cli, struct attach *a, struct err *err)
{
	static struct helper helpers[2]; /* threads use them until the program ends */
	sigset_t set;
	int r = 0;
	if (a->tty)
		return terminal_run(cli, a, err);
	if (a->signals) {
		attach_signals(&set);
		r = pthread_sigmask(SIG_BLOCK, &set, NULL);
		if (r == 0)
			r = helper_init(&helpers[0], cli, a);
		if (r == 0)
			r = start_helper(signal_thread, &helpers[0]);
	}
	if (r == 0 && a->in) {
		r = helper_init(&helpers[1], cli, a);
		if (r == 0)
			r = start_helper(input_thread, &helpers[1]);
	}
	return r ? err_sys(err, -r, "start a thread") : follow(cli, a, err);
}
