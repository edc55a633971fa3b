#include "tools/bough/start.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"

enum {
	START_WAIT_MS = 60 * 1000, /* a daemon may rebuild the store's index before it listens */
	START_POLL_US = 2000,
	START_SAYS_MAX = 4096, /* of its stderr, for our message */
};

int daemon_connect(const struct cli *cli, struct http **out, struct err *err)
{
	auto_free char *path = NULL;
	if (cli->remote)
		return http_open_remote(out, cli->remote, err);
	if (asprintf(&path, "%s/run/boughd.sock", cli->root) < 0)
		return err_no_memory(err);
	int r = http_open(out, path, err);
	if (r == -EACCES)
		return err_set(err, r,
			       "connect to %s: Permission denied: boughd lets in its own user and "
			       "root alone, unless it runs with --multi-user",
			       path);
	if (r >= 0 && http_peer_is_dead(*out)) {
		http_free(*out);
		*out = NULL;
		r = err_set(err, -ECONNREFUSED, "boughd was killed");
	}
	return r;
}

bool daemon_is_others(const struct cli *cli)
{
	auto_free char *path = NULL;
	struct http *h = NULL;
	struct stat st;
	if (cli->remote || geteuid() == 0 || daemon_connect(cli, &h, NULL) < 0)
		return false;
	http_free(h);
	return asprintf(&path, "%s/run/boughd.sock", cli->root) >= 0 && stat(path, &st) == 0 &&
	       st.st_uid != geteuid();
}

/* ---- finding programs ---- */

static int own_folder(char *buf, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);
	if (n <= 0)
		return n < 0 ? -errno : -ENOENT;
	buf[n] = 0;
	char *slash = strrchr(buf, '/');
	if (!slash)
		return -ENOENT;
	*slash = 0;
	return 0;
}

static char *executable(const char *dir, size_t n, const char *sub, const char *name)
{
	char *path = NULL;
	struct stat st;
	if (asprintf(&path, "%.*s%s/%s", (int)n, dir, sub, name) < 0)
		return NULL;
	if (access(path, X_OK) == 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode))
		return path;
	free(path);
	return NULL;
}

int program_find(const char *name, char **out, struct err *err)
{
	char dir[PATH_MAX];
	static const char *const beside[] = { "", "/../libexec/bough", "/../sbin" };
	if (own_folder(dir, sizeof(dir)) == 0) {
		for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
			if ((*out = executable(dir, strlen(dir), beside[i], name)))
				return 0;
	}
	const char *p = getenv("PATH");
	while (p && *p) {
		size_t n = strcspn(p, ":");
		if (n > 0 && (*out = executable(p, n, "", name)))
			return 0;
		p += n + (p[n] == ':');
	}
	return err_set(err, -ENOENT, "%s is neither beside bough nor in PATH: install it", name);
}

/* ---- starting ---- */

static bool absent(int code)
{
	return code == -ENOENT || code == -ECONNREFUSED;
}

/* ROOT, its missing parents, and ROOT/run, for the lock below. */
static int make_folders(const char *root, struct err *err)
{
	auto_free char *path = NULL;
	if (asprintf(&path, "%s/run", root) < 0)
		return err_no_memory(err);
	for (char *p = path + 1;; p++) {
		if (*p && *p != '/')
			continue;
		char was = *p;
		*p = 0;
		/* Mount points lie below ROOT: others must be able to pass through it. */
		bool last = !was, is_root = was && !strcmp(p + 1, "run");
		if (mkdir(path, last ? 0700 : is_root ? 0711 : 0755) < 0 && errno != EEXIST)
			return err_sys(err, -errno, "create %s", path);
		*p = was;
		if (!was)
			return 0;
	}
}

/* `how`: --daemon, --check. */
static int spawn_daemon(const char *program, const char *root, const char *how, int says,
			pid_t *pid)
{
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t attr;
	sigset_t none;
	sigemptyset(&none);
	int e = posix_spawn_file_actions_init(&fa);
	if (e)
		return -e;
	if ((e = posix_spawnattr_init(&attr))) {
		posix_spawn_file_actions_destroy(&fa);
		return -e;
	}
	/* Nothing of the caller's stays with a process that outlives it. */
	if (!(e = posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0)) &&
	    !(e = posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0)) &&
	    !(e = posix_spawn_file_actions_adddup2(&fa, says, 2)) &&
	    !(e = posix_spawn_file_actions_addclosefrom_np(&fa, 3)) &&
	    !(e = posix_spawnattr_setsigmask(&attr, &none)) &&
	    !(e = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK))) {
		char *argv[] = { (char *)"boughd", (char *)"--root", (char *)root,
				 (char *)(uintptr_t)how, NULL };
		e = posix_spawn(pid, program, &fa, &attr, argv, environ);
	}
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&fa);
	return -e;
}

/* The last line that the daemon left, without its time, level and name, for our own message. */
static void last_words(int says, char *out, size_t size)
{
	char text[START_SAYS_MAX + 1];
	struct stat st;
	off_t from = 0;
	if (fstat(says, &st) == 0 && st.st_size > START_SAYS_MAX)
		from = st.st_size - START_SAYS_MAX;
	ssize_t n = pread(says, text, START_SAYS_MAX, from);
	while (n > 0 && text[n - 1] == '\n')
		n--;
	text[n > 0 ? n : 0] = 0;
	const char *line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	const char *name = strstr(line, "boughd");
	const char *colon = name ? strstr(name, ": ") : NULL;
	(void)snprintf(out, size, "%.*s", (int)size - 1, colon ? colon + 2 : line);
}

/* Waits until the daemon listens, or until it is clear that it won't. */
static int await_daemon(const struct cli *cli, pid_t pid, int says, struct http **out,
			struct err *err)
{
	bool running = true;
	for (int64_t waited_us = 0; waited_us < (int64_t)START_WAIT_MS * 1000;
	     waited_us += START_POLL_US) {
		int r = daemon_connect(cli, out, err);
		if (!absent(r))
			return r;
		int status;
		if (running && waitpid(pid, &status, WNOHANG) == pid) {
			running = false; /* with 0: what it left behind is about to listen */
			if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
				char why[400];
				last_words(says, why, sizeof(why));
				if (WIFSIGNALED(status) && !*why)
					(void)snprintf(why, sizeof(why), "killed by signal %d",
						       WTERMSIG(status));
				return err_set(err, -ECONNREFUSED, "boughd doesn't start: %s",
					       *why ? why
						    : "it gave no reason; try `bough doctor`");
			}
		}
		struct timespec ts = { 0, START_POLL_US * 1000 };
		nanosleep(&ts, NULL);
	}
	return err_set(err, -ETIMEDOUT, "boughd doesn't listen after %d s: see %s/run/boughd.log",
		       START_WAIT_MS / 1000, cli->root);
}

static int start_daemon(const struct cli *cli, struct http **out, struct err *err)
{
	auto_free char *program = NULL;
	int r = program_find("boughd", &program, err);
	if (r < 0)
		return r == -ENOENT ? -ECONNREFUSED : r;
	/* A file, not a pipe: a daemon that goes on writing to it later does no harm. */
	auto_fd says = memfd_create("boughd-stderr", MFD_CLOEXEC);
	if (says < 0)
		return err_sys(err, -errno, "start boughd");
	pid_t pid;
	r = spawn_daemon(program, cli->root, "--daemon", says, &pid);
	if (r < 0)
		return err_sys(err, r == -ENOENT ? -ECONNREFUSED : r, "start %s", program);
	return await_daemon(cli, pid, says, out, err);
}

int daemon_check(const struct cli *cli, struct err *err)
{
	auto_free char *program = NULL;
	char why[400];
	pid_t pid;
	int status, r = program_find("boughd", &program, err);
	if (r < 0)
		return r;
	auto_fd says = memfd_create("boughd-stderr", MFD_CLOEXEC);
	if (says < 0)
		return err_sys(err, -errno, "ask boughd");
	r = spawn_daemon(program, cli->root, "--check", says, &pid);
	if (r < 0)
		return err_sys(err, r, "start %s", program);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_sys(err, -errno, "wait for %s", program);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	last_words(says, why, sizeof(why));
	return err_set(err, -ECONNREFUSED,
		       "the new boughd would not start, so the old one goes on: %s",
		       *why ? why : "it gave no reason");
}

int daemon_connect_or_start(const struct cli *cli, struct http **out, struct err *err)
{
	int r = daemon_connect(cli, out, err);
	if (!absent(r))
		return r;
	if (cli->root_there && access(cli->root, F_OK) < 0 && errno == ENOENT)
		return err_set(err, -ENXIO, "there is no %s: `bough up` would make it", cli->root);
	r = make_folders(cli->root, err);
	if (r < 0)
		return err_prefix(err, r == -ENOENT ? -ECONNREFUSED : r, "start boughd");
	auto_free char *path = NULL;
	if (asprintf(&path, "%s/run/start.lock", cli->root) < 0)
		return err_no_memory(err);
	auto_fd lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (lock < 0)
		return err_sys(err, -errno, "start boughd: open %s", path);
	while (flock(lock, LOCK_EX) < 0)
		if (errno != EINTR)
			return err_sys(err, -errno, "start boughd: lock %s", path);
	r = daemon_connect(cli, out, err); /* another first command may have been faster */
	return absent(r) ? start_daemon(cli, out, err) : r;
}
