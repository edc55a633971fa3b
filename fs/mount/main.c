/* bough-fs: serves the mounts of one ROOT. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "fs/mount/confine.h"
#include "fs/mount/ctl.h"
#include "fs/mount/fuselog.h"
#include "fs/mount/holder.h"
#include "fs/mount/ops.h"
#include "fs/mount/server.h"
#include "fs/mount/session.h"

enum { EXIT_USAGE = 2, MOUNTS_MAX = 64, MASKS_MAX = 64 };

static const char help_text[] =
	"Usage: bough-fs --root DIR [OPTION]...\n"
	"Serves the FUSE mounts of the workspaces under DIR. boughd starts it; by hand it is\n"
	"for tests and repairs.\n"
	"\n"
	"  --root DIR             the state folder; made when absent\n"
	"  --socket PATH          control socket (default: DIR/run/fs.sock)\n"
	"  --transport dev|ring   plain /dev/fuse (default), or io_uring\n"
	"  --workers N            threads of the transport dev (32, or 2 x cores + 4)\n"
	"  --commit-ms N          make changes durable after N ms (default: 5000)\n"
	"  --mount ID=PATH        open or create a workspace and mount it; may be repeated\n"
	"  --mask-cap NAME        do without a capability of the kernel, for tests, repeatable:\n"
	"                         async_read async_dio readdirplus parallel_dirops killpriv_v2\n"
	"                         cache_symlinks explicit_inval ioctl_dir no_open no_opendir\n"
	"                         expire_only\n"
	"  --hold                 mounts outlive this process: bough-hold keeps them, programs\n"
	"                         wait, and the next bough-fs goes on (boughd starts one)\n"
	"  --crashed              the one before ended by its own fault: suspect what it was at\n"
	"  --foreground           don't go to the background when ready\n"
	"  --help, --version\n"
	"\n"
	"Signals TERM, INT and HUP unmount all, make all durable, and end it.\n"
	"\n"
	"Example: bough-fs --root /tmp/bough --foreground --mount ws_test=/mnt\n";

struct options {
	struct server_options server;
	char *cwd; /* where the program was started: relative paths mean that */
	const char *socket;
	const char *mounts[MOUNTS_MAX];
	unsigned nmounts;
	bool foreground, hold;
};

static int usage(const char *text, const char *what)
{
	fprintf(stderr, "bough-fs: %s%s (try --help)\n", text, what ? what : "");
	return EXIT_USAGE;
}

static bool parse_number(const char *s, uint64_t max, uint64_t *out)
{
	char *end;
	errno = 0;
	unsigned long long n = strtoull(s, &end, 10);
	if (errno || end == s || *end || *s == '-' || n > max)
		return false;
	*out = n;
	return true;
}

/* -1: go on; else the exit status. */
static int parse_option(struct options *o, int c)
{
	uint64_t n;
	switch (c) {
	case 'r':
		o->server.root = optarg;
		return -1;
	case 's':
		o->socket = optarg;
		return -1;
	case 't':
		o->server.ring = strcmp(optarg, "ring") == 0;
		return o->server.ring || strcmp(optarg, "dev") == 0
			       ? -1
			       : usage("unknown transport ", optarg);
	case 'w':
		if (!parse_number(optarg, 256, &n) || n == 0)
			return usage("--workers: a number from 1 to 256 expected, not ", optarg);
		o->server.workers = (unsigned)n;
		return -1;
	case 'c':
		if (!parse_number(optarg, INT_MAX, &n) || n == 0)
			return usage("--commit-ms: a number from 1 on expected, not ", optarg);
		o->server.commit_ms = n;
		return -1;
	case 'm':
		if (o->nmounts == MOUNTS_MAX || !strchr(optarg, '='))
			return usage("--mount: up to 64 times ID=PATH expected, not ", optarg);
		o->mounts[o->nmounts++] = optarg;
		return -1;
	case 'x':
		n = session_cap(optarg);
		o->server.mask |= n;
		return n ? -1 : usage("--mask-cap: unknown capability ", optarg);
	case 'z':
		o->server.crashed = true;
		return -1;
	case 'k':
		o->hold = true;
		return -1;
	case 'f':
		o->foreground = true;
		return -1;
	case 'h':
		return fputs(help_text, stdout) < 0 || fflush(stdout) < 0 ? EXIT_FAILURE
									  : EXIT_SUCCESS;
	case 'v':
		printf("bough-fs " BOUGH_VERSION " (libfuse %s)\n", fuse_pkgversion());
		return fflush(stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
	default:
		return EXIT_USAGE; /* getopt has said why */
	}
}

static int parse_options(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "root", required_argument, NULL, 'r' },
		{ "socket", required_argument, NULL, 's' },
		{ "transport", required_argument, NULL, 't' },
		{ "workers", required_argument, NULL, 'w' },
		{ "commit-ms", required_argument, NULL, 'c' },
		{ "mount", required_argument, NULL, 'm' },
		{ "mask-cap", required_argument, NULL, 'x' },
		{ "hold", no_argument, NULL, 'k' },
		{ "crashed", no_argument, NULL, 'z' },
		{ "foreground", no_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
		int r = parse_option(o, c);
		if (r >= 0)
			return r;
	}
	if (optind < argc)
		return usage("unknown argument ", argv[optind]);
	return o->server.root ? -1 : usage("--root is missing", NULL);
}

/* ---- what a process needs before it serves ---- */

static void prepare_process(void)
{
	/* Modes are the client's business. */
	(void)umask(0);
	/* A descriptor for each mount, each big file and each connection. */
	struct rlimit nofile;
	if (getrlimit(RLIMIT_NOFILE, &nofile) == 0 && nofile.rlim_cur < nofile.rlim_max) {
		nofile.rlim_cur = nofile.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &nofile) < 0)
			log_warn("raise the limit of open files: %s", strerror(errno));
	}
	/* Arenas for each thread would keep what they once needed. */
	(void)mallopt(M_ARENA_MAX, 2); /* only memory is at stake */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGCHLD, SIG_DFL); /* fusermount3 is waited for, whatever we inherited */
	/* The transport is what --transport says. */
	(void)unsetenv("FUSE_URING_ENABLE");
	(void)unsetenv("FUSE_URING_QUEUE_DEPTH");
	/* Signals that end the server come by a descriptor; threads inherit the mask. */
	sigset_t ends;
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &ends, NULL); /* can't fail with these arguments */
	/* Descriptors 0, 1 and 2 are taken, so that no message ends up in a file. */
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	cleanup_close(&fd);
}

static int absolute(const struct options *o, const char *path, char **out, struct err *err)
{
	int n = path[0] == '/' ? asprintf(out, "%s", path) : asprintf(out, "%s/%s", o->cwd, path);
	if (n < 0)
		*out = NULL;
	return n < 0 ? err_no_memory(err) : 0;
}

/* The control socket's path, with its folder made. */
static int socket_path(const struct options *o, char **out, struct err *err)
{
	if (o->socket)
		return absolute(o, o->socket, out, err);
	auto_free char *dir = NULL;
	if (asprintf(&dir, "%s/run", o->server.root) < 0) {
		dir = NULL;
		return err_no_memory(err);
	}
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make %s", dir);
	return asprintf(out, "%s/fs.sock", dir) < 0 ? err_no_memory(err) : 0;
}

static int mount_option(const struct options *o, struct server *s, const char *arg, struct err *err)
{
	size_t len = strcspn(arg, "=");
	auto_free char *id = strndup(arg, len);
	auto_free char *path = NULL;
	int r = id ? absolute(o, arg + len + 1, &path, err) : err_no_memory(err);
	if (r < 0)
		return r;
	struct served *w;
	r = served_get(s, id, &w, err);
	if (r == 0) {
		r = served_mount(w, path, err);
		served_put(w);
	} else if (r == -ENOENT) {
		struct served_child child = { .id = id, .path = path };
		r = served_create(s, &child, NULL, geteuid(), getegid(), err);
	}
	return r < 0 ? err_prefix(err, r, "--mount %s", arg) : 0;
}

/* Serves until the end. `ready` is told once everything asked for is mounted. */
static int serve(const struct options *o, struct starter *starter, void (*ready)(void *ctx),
		 void *ctx, struct err *err)
{
	struct server_options so = o->server;
	struct server *s;
	so.starter = starter;
	int r = server_open(&s, &so, err);
	if (r < 0)
		return r;
	struct ctl *ctl = NULL;
	auto_free char *path = NULL;
	r = socket_path(o, &path, err);
	if (r == 0)
		r = ctl_open(&ctl, s, path, err);
#ifndef BOUGH_DEBUG /* the sanitizers' own threads do what they like */
	if (r == 0)
		r = confine_calls(o->server.ring, err);
#endif
	for (unsigned i = 0; i < o->nmounts && r == 0; i++)
		r = mount_option(o, s, o->mounts[i], err);
	if (r == 0) {
		log_info("serving %s by transport %s", o->server.root, server_transport(s));
		ready(ctx);
		r = ctl_run(ctl, err);
	}
	if (r > 0) {
		server_leave(s);
		log_info("leaves the mounts to the next server");
		_exit(EXIT_SUCCESS); /* to close the workspaces would end the mounts */
	}
	struct err e;
	int c = server_close(s, &e);
	ctl_close(ctl);
	if (c < 0 && r == 0)
		r = err_set(err, c, "%s", e.text);
	return r;
}

/* ---- the foreground and the background ---- */

static void ready_nothing(void *ctx)
{
}

/* The one that waits gets a byte; the terminal is let go. */
static void ready_background(void *ctx)
{
	int *fd = ctx;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		(void)dup2(null, STDIN_FILENO);
		(void)dup2(null, STDOUT_FILENO);
		cleanup_close(&null);
	}
	ssize_t n = write(*fd, "", 1);
	(void)n; /* who waited may be gone */
	cleanup_close(fd);
	*fd = -1;
}

static int run(const struct options *o, void (*ready)(void *ctx), void *ctx)
{
	struct err err;
	struct starter *starter = NULL;
	auto_free char *socket = holder_socket(o->server.root);
	int r = socket ? 0 : err_no_memory(&err);
	if (r == 0 && o->hold)
		r = starter_new(&starter, o->server.root, socket, &err);
	if (r == 0)
		r = serve(o, starter, ready, ctx, &err);
	starter_free(starter);
	if (r < 0)
		log_error("%s", err.text);
	else
		log_info("ended");
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_background(const struct options *o)
{
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0) {
		log_error("pipe: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	pid_t pid = fork();
	if (pid < 0) {
		log_error("fork: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	if (pid == 0) {
		cleanup_close(&fds[0]);
		(void)setsid(); /* a new child leads no group: can't fail */
		return run(o, ready_background, &fds[1]);
	}
	cleanup_close(&fds[1]);
	char byte;
	ssize_t n;
	do
		n = read(fds[0], &byte, 1);
	while (n < 0 && errno == EINTR);
	cleanup_close(&fds[0]);
	if (n == 1)
		return EXIT_SUCCESS;
	int status; /* it ended before it was ready, and has said why */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	log_init("bough-fs");
	struct options o = { 0 };
	int status = parse_options(&o, argc, argv);
	if (status >= 0)
		return status;
	prepare_process();
	fuselog_install();
	auto_free char *root = NULL;
	struct err err = { 0 };
	o.cwd = getcwd(NULL, 0);
	if (!o.cwd)
		(void)err_sys(&err, -errno, "current folder");
	else if (absolute(&o, o.server.root, &root, &err) == 0 && chdir("/") < 0)
		(void)err_sys(&err, -errno,
			      "enter /"); /* a folder of a mount of ours must not be held */
	if (err.code == 0) {
		o.server.root = root;
		status = confine_capabilities(&err);
	}
	if (err.code == 0) {
		status = o.foreground ? run(&o, ready_nothing, NULL) : run_background(&o);
	} else {
		log_error("%s", err.text);
		status = EXIT_FAILURE;
	}
	free(o.cwd);
	return status;
}
