#include "fs/mount/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"

extern char **environ;

struct starter {
	int fd;
	pid_t pid;
};

int starter_program(char out[PATH_MAX])
{
	const char *given = getenv("BOUGH_HOLD");
	static const char *const places[] = { "bough-hold", "../libexec/bough/bough-hold" };
	if (given && *given) {
		int n = snprintf(out, PATH_MAX, "%s", given);
		return n < PATH_MAX ? 0 : -ENAMETOOLONG;
	}
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n <= 0)
		return -errno;
	self[n] = '\0';
	*(strrchr(self, '/') + 1) = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		int len = snprintf(out, PATH_MAX, "%s%s", self, places[i]);
		if (len < PATH_MAX && access(out, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

/* ---- the child ---- */

/* Starts one that listens at the socket already. */
static int start_program(const char *root, const char *socket, struct err *err)
{
	char path[PATH_MAX];
	int r = starter_program(path);
	if (r < 0)
		return err_sys(err, r, "find bough-hold");
	auto_fd listener = frame_listen(socket, err);
	if (listener < 0)
		return listener;
	char *argv[] = { path, (char[]){ "--root" }, (char *)root, (char[]){ "--listener" },
			 (char[]){ "3" }, NULL };
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	/* These fail for want of memory only, and then so does the spawn. */
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&files, STDIN_FILENO, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&files, listener, 3);
	posix_spawn_file_actions_addclosefrom_np(&files, 4);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
						POSIX_SPAWN_SETSIGDEF);
	pid_t pid;
	r = -posix_spawn(&pid, path, &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return r < 0 ? err_sys(err, r, "start %s", path) : 0;
}

static void __attribute__((noreturn)) serve(int fd, const char *root, const char *socket)
{
	char byte;
	(void)prctl(PR_SET_NAME, "bough-fs-start"); /* for people only */
	(void)signal(SIGCHLD, SIG_IGN);             /* those that were started need no parent */
	for (;;) {
		ssize_t n = recv(fd, &byte, 1, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			_exit(EXIT_SUCCESS);
		struct err err = { 0 };
		(void)start_program(root, socket, &err); /* what it says goes back */
		if (send(fd, &err, sizeof(err), MSG_NOSIGNAL) < 0)
			_exit(EXIT_FAILURE);
	}
}

/* ---- bough-fs's side ---- */

int starter_new(struct starter **out, const char *root, const char *socket, struct err *err)
{
	int fds[2];
	struct starter *s = calloc(1, sizeof(*s));
	if (!s)
		return err_no_memory(err);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		free(s);
		return err_sys(err, -errno, "make a pair of sockets");
	}
	s->pid = fork();
	if (s->pid == 0) {
		cleanup_close(&fds[0]);
		serve(fds[1], root, socket);
	}
	int r = s->pid < 0 ? err_sys(err, -errno, "fork") : 0;
	cleanup_close(&fds[1]);
	s->fd = fds[0];
	if (r < 0) {
		cleanup_close(&s->fd);
		free(s);
		return r;
	}
	*out = s;
	return 0;
}

void starter_free(struct starter *s)
{
	if (!s)
		return;
	cleanup_close(&s->fd);
	while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
	free(s);
}

int starter_run(struct starter *s, struct err *err)
{
	struct err answer;
	ssize_t n = send(s->fd, "", 1, MSG_NOSIGNAL);
	if (n > 0)
		do
			n = recv(s->fd, &answer, sizeof(answer), 0);
		while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(err, -errno, "ask for another bough-hold");
	if (n != sizeof(answer))
		return err_set(err, -EPIPE, "what starts bough-hold has ended");
	if (answer.code == 0)
		return 0;
	answer.text[sizeof(answer.text) - 1] = '\0';
	return err_set(err, answer.code < 0 ? answer.code : -EPROTO, "%s", answer.text);
}
