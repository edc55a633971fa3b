/* A workspace's changes into a checkout of the caller's: boughd gives a git bundle, bough-apply
 * writes the files with the caller's rights. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/start.h"

enum { COPY_SIZE = 64 * 1024 };

struct child {
	pid_t pid; /* 0: none */
	int in;    /* its standard input */
};

/* Its exit code, or -errno. */
static int child_end(struct child *c, struct err *err)
{
	int status;
	cleanup_close(&c->in);
	c->in = -1;
	if (!c->pid)
		return 0;
	pid_t pid = c->pid;
	c->pid = 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(err, -errno, "wait for bough-apply");
	if (WIFSIGNALED(status))
		return err_set(err, -EIO, "bough-apply was killed by signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

/* Without the end of the bundle it changes nothing. */
static void child_done(struct child *c)
{
	if (c->pid)
		(void)kill(c->pid, SIGKILL);
	(void)child_end(c, NULL); /* the caller has another failure to tell */
}

static int child_start(struct child *c, char *const argv[], struct err *err)
{
	auto_free char *program = NULL;
	int r = program_find(argv[0], &program, err);
	if (r < 0)
		return r == -ENOENT ? -EIO : r; /* it isn't what the caller named */
	int p[2];
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "pipe");
	auto_fd read_end = p[0];
	auto_fd write_end = p[1];
	posix_spawn_file_actions_t fa;
	int e = posix_spawn_file_actions_init(&fa);
	if (e)
		return err_sys(err, -e, "start %s", program);
	if (!(e = posix_spawn_file_actions_adddup2(&fa, read_end, STDIN_FILENO)))
		e = posix_spawn(&c->pid, program, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	if (e) {
		c->pid = 0;
		return err_sys(err, -e, "start %s", program);
	}
	c->in = steal_fd(&write_end);
	return 0;
}

/* 1: it read all of it; 0: it wants no more, and will say why. */
static int feed(struct cli *cli, struct http *h, const struct child *c, const uint8_t *first,
		ssize_t n, struct err *err)
{
	uint8_t buf[COPY_SIZE];
	const uint8_t *from = first;
	while (n > 0) {
		for (ssize_t at = 0; at < n;) {
			ssize_t k = write(c->in, from + at, (size_t)(n - at));
			if (k < 0 && errno == EPIPE)
				return 0;
			if (k < 0 && errno != EINTR)
				return err_sys(err, -errno, "write to bough-apply");
			at += k > 0 ? k : 0;
		}
		n = http_read(h, buf, sizeof(buf), err);
		from = buf;
	}
	return n < 0 ? api_stream_error(cli, h, (int)n, err) : 1;
}

/* bough-apply has said what is to be said. */
static int outcome(int code, struct err *err)
{
	static const int codes[] = { 0, -EIO, -EINVAL, -ENOENT, -EEXIST, -EBUSY };
	if (code == 0)
		return 0;
	int r = code < (int)(sizeof(codes) / sizeof(codes[0])) ? codes[code] : -EIO;
	return err_set(err, r, "nothing was applied");
}

int cmd_apply(struct cli *cli, const struct args *a, struct err *err)
{
	const char *to = args_get(a, "to"), *mode = NULL;
	if (!to)
		return err_set(err, -EINVAL, "--to CHECKOUT names where the changes go");
	if (args_get(a, "commit") && args_get(a, "patch"))
		return err_set(err, -EINVAL, "either --commit or --patch");
	if (args_get(a, "commit"))
		mode = "--commit";
	else if (args_get(a, "patch"))
		mode = "--patch";
	auto_target rest = target_new("/bundle");
	target_query(&rest, "message", args_get(a, "message"));
	target_query(&rest, "author", args_get(a, "author"));
	struct http *h = NULL;
	uint8_t first[COPY_SIZE];
	int r = api_stream_of(cli, a->operands[0], KIND_TREE, &rest, "*/*", &h, err);
	ssize_t n = r < 0 ? r : http_read(h, first, sizeof(first), err);
	if (r == 0 && n < 0)
		r = api_stream_error(cli, h, (int)n, err);
	if (r < 0 || n == 0) {
		http_free(h);
		if (r == 0 && !cli->json)
			printf("%s has changed nothing\n", a->operands[0]);
		return r < 0 || !cli->json ? r : puts("{\"paths\": []}") < 0;
	}
	__attribute__((cleanup(child_done))) struct child c = { .in = -1 };
	char *argv[6] = { (char *)"bough-apply" };
	unsigned i = 1;
	if (mode)
		argv[i++] = (char *)mode;
	if (cli->json)
		argv[i++] = (char *)"--json";
	argv[i++] = (char *)"--";
	argv[i] = (char *)to;
	(void)signal(SIGPIPE, SIG_IGN); /* a child that ends early tells why itself */
	r = child_start(&c, argv, err);
	if (r == 0)
		r = feed(cli, h, &c, first, n, err);
	http_free(h);
	if (r >= 0) {
		r = child_end(&c, err);
		cli->reported = r > 0 && cli->json;
	}
	return r < 0 ? r : outcome(r, err);
}
