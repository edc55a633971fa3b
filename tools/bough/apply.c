/* A workspace's changes into a checkout of the caller's: boughd gives a git bundle, bough-apply
 * writes the files with the caller's rights. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/child.h"

enum { COPY_SIZE = 64 * 1024 };

/* 1: it read all of it; 0: it wants no more, and will say why. */
static int feed(struct cli *cli, struct http *h, int to, const uint8_t *first, ssize_t n,
		struct err *err)
{
	uint8_t buf[COPY_SIZE];
	const uint8_t *from = first;
	while (n > 0) {
		for (ssize_t at = 0; at < n;) {
			ssize_t k = write(to, from + at, (size_t)(n - at));
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

/* Through bough-apply: the bundle begins with the n bytes `first`. */
static int apply(struct cli *cli, const struct args *a, struct http *h, const uint8_t *first,
		 ssize_t n, struct err *err)
{
	char *argv[6] = { (char *)"bough-apply" };
	unsigned i = 1;
	int p[2];
	pid_t pid = 0;
	if (args_get(a, "commit"))
		argv[i++] = (char *)"--commit";
	else if (args_get(a, "patch"))
		argv[i++] = (char *)"--patch";
	if (cli->json)
		argv[i++] = (char *)"--json";
	argv[i++] = (char *)"--";
	argv[i] = (char *)(uintptr_t)args_get(a, "to");
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "pipe");
	auto_fd in = p[1];
	(void)signal(SIGPIPE, SIG_IGN); /* a child that ends early tells why itself */
	int r = child_start(&pid, argv, (const int[]){ p[0], -1, -1 }, err);
	(void)close(p[0]); /* the child's */
	if (r == 0)
		r = feed(cli, h, in, first, n, err);
	if (r < 0) {
		child_kill(&pid); /* without the end of the bundle it changes nothing */
		return r;
	}
	cleanup_close(&in);
	in = -1;
	r = child_wait(&pid, argv[0], err);
	cli->reported = r > 0 && cli->json;
	return r < 0 ? r : outcome(r, err);
}

int cmd_apply(struct cli *cli, const struct args *a, struct err *err)
{
	if (!args_get(a, "to"))
		return err_set(err, -EINVAL, "--to CHECKOUT names where the changes go");
	if (args_get(a, "commit") && args_get(a, "patch"))
		return err_set(err, -EINVAL, "either --commit or --patch");
	auto_target rest = target_new("/bundle");
	target_query(&rest, "message", args_get(a, "message"));
	target_query(&rest, "author", args_get(a, "author"));
	struct http *h = NULL;
	uint8_t first[COPY_SIZE];
	int r = api_stream_of(cli, a->operands[0], KIND_TREE, &rest, "*/*", &h, err);
	ssize_t n = r < 0 ? r : http_read(h, first, sizeof(first), err);
	if (r == 0 && n < 0)
		r = api_stream_error(cli, h, (int)n, err);
	if (r == 0 && n > 0)
		r = apply(cli, a, h, first, n, err);
	else if (r == 0 && cli->json)
		r = puts("{\"paths\": []}") < 0;
	else if (r == 0)
		printf("%s has changed nothing\n", a->operands[0]);
	http_free(h);
	return r;
}
