/* Plays the bough-io of an earlier version, for a sandbox that runs since before an upgrade:
 *
 *     older_io DIR [mute]
 *
 * takes the place of DIR/io.sock, moves that of the real one aside (io.now), and hands on to it
 * what the first version knew, up to IO_CLOSE_IN. On what came later it hangs up, as that did; or
 * (mute) it never answers. It says "ready", and ends with the real one. */
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "fs/base/frame.h"
#include "runtime/io_msg.h"

/* Hands one request on, and the answer back. 1: there may be more. */
static int hand_on(int from, int to, bool mute)
{
	struct frame f = { 0 };
	char rest;
	int r = frame_recv(from, &f, NULL);
	int op = r > 0 && f.text.len ? f.text.data[0] : 0;
	if (r > 0 && op > IO_CLOSE_IN) {
		if (mute)
			(void)recv(from, &rest, 1, 0);
		r = 0;
	}
	if (r > 0)
		r = frame_send(to, &f, NULL) < 0 ? 0 : frame_recv(to, &f, NULL);
	if (r > 0)
		r = frame_send(from, &f, NULL) == 0;
	frame_done(&f);
	if (r > 0 && op == IO_STOP)
		(void)kill(getppid(), SIGTERM);
	return r;
}

static void serve(int from, const char *real, bool mute)
{
	int to = frame_connect(real, NULL);
	while (to >= 0 && hand_on(from, to, mute) > 0)
		;
}

int main(int argc, char **argv)
{
	char path[PATH_MAX], real[PATH_MAX];
	struct err err = { 0 };
	if (argc < 2)
		return 2;
	(void)snprintf(path, sizeof(path), "%s/io.sock", argv[1]);
	(void)snprintf(real, sizeof(real), "%s/io.now", argv[1]);
	(void)signal(SIGCHLD, SIG_IGN);
	int listener = rename(path, real) < 0 ? -1 : frame_listen(path, &err);
	if (listener < 0) {
		fprintf(stderr, "older_io: %s: %s\n", path, err.text);
		return 1;
	}
	printf("ready\n");
	(void)fflush(stdout);
	for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; (void)close(fd)) {
		if (fork() != 0)
			continue;
		(void)close(listener);
		serve(fd, real, argc > 2);
		_exit(0);
	}
	return 1;
}
