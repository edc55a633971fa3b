#include "runtime/output.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/frame.h"
#include "runtime/program.h"
#include "runtime/io_msg.h"
#include "runtime/kept.h"

enum {
	ANSWER_S = 10,    /* bough-io answers within microseconds, unless the disk doesn't */
	START_MS = 10000, /* until one that is being started answers */
	PAUSE_MS = 5, /* between two tries of that */
	STOP_MS = 3000,
};

static int path_of(char out[PATH_MAX], const char *dir, const char *key, const char *kind,
		   struct err *err)
{
	if (!io_good_key(key))
		return err_set(err, -EINVAL, "\"%.80s\" is no name of a process", key);
	int n = snprintf(out, PATH_MAX, "%s/%s.%s", dir, key, kind);
	return n >= 0 && n < PATH_MAX ? 0 : err_sys(err, -ENAMETOOLONG, "%s", dir);
}

/* ---- one request ---- */

static int connect_to(const char *dir, struct err *err)
{
	char path[PATH_MAX];
	struct timeval most = { .tv_sec = ANSWER_S };
	int n = snprintf(path, sizeof(path), "%s/io.sock", dir);
	if (n < 0 || n >= PATH_MAX)
		return err_sys(err, -ENAMETOOLONG, "%s", dir);
	int fd = frame_connect(path, err);
	if (fd == -ENOENT || fd == -ECONNREFUSED)
		return err_set(err, -ECONNREFUSED, "no bough-io serves %s", dir);
	if (fd >= 0) { /* these can't fail for a socket */
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
	}
	return fd;
}

/* What bough-io says to it over the connection; `lent` (-1: none) goes along, and *given (NULL:
 * none) is a descriptor of the caller's where one comes back. */
static int64_t ask(int fd, const struct io_msg *m, int lent, int *given, struct err *err)
{
	struct frame f = { .fds = { lent }, .nfds = lent >= 0 };
	int64_t result = -EBADMSG;
	io_encode(&f.text, m);
	int r = frame_send(fd, &f, err);
	f.nfds = 0;
	if (r >= 0)
		r = frame_recv(fd, &f, err);
	if (r == 0 || r == -EPIPE)
		r = err_set(err, -ECONNREFUSED, "bough-io went away");
	else if (r == -EAGAIN)
		r = err_set(err, -ETIMEDOUT, "bough-io doesn't answer");
	else if (r > 0 && io_decode_answer(&result, f.text.data, f.text.len) < 0)
		r = err_set(err, -EBADMSG, "bough-io's answer isn't understood");
	if (r > 0 && given && f.nfds == 1) {
		*given = f.fds[0];
		f.nfds = 0;
	}
	frame_done(&f);
	return r < 0 ? r : result;
}

/* A request about a process over a connection of its own. */
static int64_t request_with(const char *dir, struct io_msg *m, const char *key, int lent,
			    int *given, struct err *err)
{
	if (!io_good_key(key))
		return err_set(err, -EINVAL, "\"%.80s\" is no name of a process", key);
	memcpy(m->key, key, strlen(key) + 1);
	auto_fd fd = connect_to(dir, err);
	if (fd < 0)
		return fd;
	struct err own = { 0 };
	int64_t r = ask(fd, m, lent, given, &own);
	if (r < 0 && own.code) {
		if (err)
			*err = own;
		return r;
	}
	if (r == -ENOENT)
		return err_set(err, (int)r, "no process %s is known to bough-io", key);
	return r < 0 ? err_sys(err, (int)r, "input or output of process %s", key) : r;
}

static int64_t request(const char *dir, struct io_msg *m, const char *key, struct err *err)
{
	return request_with(dir, m, key, -1, NULL, err);
}

/* ---- the program ---- */

static pid_t pid_behind(int fd)
{
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ? 0 : peer.pid;
}

static int running(const char *dir, struct err *err)
{
	auto_fd fd = connect_to(dir, err);
	if (fd < 0)
		return fd;
	int64_t r = ask(fd, &(struct io_msg){ .op = IO_PING }, -1, NULL, err);
	return (int)r;
}

/* Starts one, which ends at once, and well, where another holds the folder. */
static int start_one(const char *dir, const char *program, struct err *err)
{
	const char *argv[] = { program, "--dir", dir, NULL };
	const struct program c = { .argv = argv, .timeout_ms = START_MS, .max = 400 };
	auto_buf said = { 0 };
	int r = program_run(&c, NULL, &said, err);
	while (said.len > 0 && said.data[said.len - 1] == '\n')
		said.len--;
	return r > 0 ? err_set(err, -EIO, "bough-io didn't start: %.*s", (int)said.len,
			       said.len ? (const char *)said.data : "")
		     : r;
}

int output_start(const char *dir, const char *program, struct err *err)
{
	uint64_t end = clock_ms() + START_MS;
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make %s", dir);
	int r = running(dir, err);
	/* Who holds the folder may be about to listen; or was killed, and doesn't any more. */
	while (r == -ECONNREFUSED) {
		r = start_one(dir, program, err);
		if (r < 0)
			return r;
		r = running(dir, err);
		if (r != -ECONNREFUSED || clock_ms() >= end)
			return r;
		struct timespec pause = { 0, PAUSE_MS * 1000000 };
		(void)nanosleep(&pause, NULL);
	}
	return r;
}

int output_stop(const char *dir, struct err *err)
{
	char path[PATH_MAX];
	auto_fd fd = connect_to(dir, err);
	if (fd < 0 && fd != -ECONNREFUSED)
		return fd;
	if (fd >= 0) {
		/* Of whoever listens, so it is nobody else while the connection stands. */
		auto_fd pidfd = (int)syscall(SYS_pidfd_open, pid_behind(fd), 0);
		int64_t r = ask(fd, &(struct io_msg){ .op = IO_STOP }, -1, NULL, err);
		if (r < 0 && r != -ECONNREFUSED && r != -ETIMEDOUT)
			return (int)r;
		if (pidfd >= 0 && (r == -ETIMEDOUT || !program_ended(pidfd, STOP_MS))) {
			(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
			(void)program_ended(pidfd, STOP_MS);
		}
	}
	int n = snprintf(path, sizeof(path), "%s/io.sock", dir);
	if (n > 0 && n < PATH_MAX)
		(void)unlink(path); /* a killed one's; nobody listens there */
	return 0;
}

/* ---- processes ---- */

int output_open(const char *dir, const struct output_config *config, struct err *err)
{
	struct io_msg m = { .op = IO_OPEN,
			    .limit = config->limit ? config->limit : OUTPUT_LIMIT,
			    .flags = (config->in ? IO_WANTS_IN : 0) |
				     (config->terminal ? IO_TERMINAL : 0),
			    .uid = config->uid,
			    .gid = config->gid };
	return (int)request(dir, &m, config->key, err);
}

int output_hold(const char *dir, const char *key, int fd, struct err *err)
{
	struct io_msg m = { .op = IO_HOLD };
	struct err why = { 0 };
	int r = (int)request_with(dir, &m, key, fd, NULL, &why);
	/* Of an earlier version, which has no word for that, or the first, which then hung up. */
	if (r == -EOPNOTSUPP || (r == -ECONNREFUSED && running(dir, NULL) > 0))
		return 0;
	if (r < 0 && err)
		*err = why;
	return r;
}

int output_held(const char *dir, const char *key, struct err *err)
{
	struct io_msg m = { .op = IO_HELD };
	return (int)request(dir, &m, key, err);
}

int output_started(const char *dir, const char *key, struct err *err)
{
	struct io_msg m = { .op = IO_STARTED };
	return (int)request(dir, &m, key, err);
}

int output_watch(const char *dir, const char *key, struct err *err)
{
	struct io_msg m = { .op = IO_WATCH };
	int fd = -1;
	int64_t r = request_with(dir, &m, key, -1, &fd, err);
	if (r < 0)
		return (int)r;
	return fd < 0 ? err_set(err, -EBADMSG, "bough-io sent no descriptor") : fd;
}

int output_finish(const char *dir, const char *key, int wait_ms, struct err *err)
{
	char part[64];
	auto_fd watch = output_watch(dir, key, err);
	if (watch < 0)
		return watch;
	uint64_t end = clock_ms() + (uint64_t)wait_ms;
	for (;;) {
		struct io_msg m = { .op = IO_FINISH };
		while (read(watch, part, sizeof(part)) > 0)
			; /* then what comes is news */
		int64_t r = request(dir, &m, key, err);
		if (r)
			return r < 0 ? (int)r : 0;
		uint64_t now = clock_ms();
		struct pollfd p = { .fd = watch, .events = POLLIN };
		if (now >= end || poll(&p, 1, (int)(end - now)) == 0)
			return err_set(err, -ETIMEDOUT,
				       "something that runs on holds the output of process %s",
				       key);
	}
}

int output_drop(const char *dir, const char *key, struct err *err)
{
	static const char *const kinds[] = { "in", "out", "err", "log" };
	struct io_msg m = { .op = IO_DROP };
	char path[PATH_MAX];
	int r = (int)request(dir, &m, key, err);
	if (r != -ECONNREFUSED)
		return r < 0 ? r : 0;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		r = path_of(path, dir, key, kinds[i], err);
		if (r < 0)
			return r;
		if (unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR)
			return err_sys(err, -errno, "remove %s", path);
	}
	return 0;
}

int output_write(const char *dir, const char *key, uint64_t offset, const void *buf, size_t len,
		 struct err *err)
{
	struct io_msg m = { .op = IO_WRITE,
			    .offset = offset,
			    .data = buf,
			    .len = len < IO_WRITE_MAX ? len : IO_WRITE_MAX };
	return (int)request(dir, &m, key, err);
}

int output_close_input(const char *dir, const char *key, struct err *err)
{
	struct io_msg m = { .op = IO_CLOSE_IN };
	return (int)request(dir, &m, key, err);
}

/* ---- files ---- */

static int open_log(const char *dir, const char *key, struct err *err)
{
	char path[PATH_MAX];
	int r = path_of(path, dir, key, "log", err);
	if (r < 0)
		return r;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		return fd;
	return errno == ENOENT ? err_set(err, -ENOENT, "nothing is kept of process %s", key)
			       : err_sys(err, -errno, "open %s", path);
}

int output_status(const char *dir, const char *key, struct output_status *out, struct err *err)
{
	struct kept k;
	auto_fd fd = open_log(dir, key, err);
	if (fd < 0)
		return fd;
	int r = kept_load(fd, &k);
	if (r == -EBADMSG)
		return err_set(err, r, "%s/%s.log is damaged", dir, key);
	if (r < 0)
		return err_sys(err, r, "read %s/%s.log", dir, key);
	*out = (struct output_status){ .in = k.in };
	for (unsigned i = 0; i < 2; i++) {
		out->stream[i].first = k.stream[i].first;
		out->stream[i].end = k.stream[i].end;
		out->stream[i].closed = k.flags & KEPT_CLOSED << i;
	}
	return 0;
}

int output_disk(const char *dir, uint64_t *bytes, struct err *err)
{
	auto_dir *d = opendir(dir);
	*bytes = 0;
	if (!d)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "open %s", dir);
	for (const struct dirent *e; (e = readdir(d));) {
		const char *dot = strrchr(e->d_name, '.');
		struct stat st;
		if (dot && strcmp(dot, ".log") == 0 &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			*bytes += (uint64_t)st.st_blocks * 512;
	}
	return 0;
}

int output_read(const char *dir, const char *key, enum output_stream stream, uint64_t offset,
		void *buf, size_t size, struct err *err)
{
	auto_fd fd = open_log(dir, key, err);
	if (fd < 0)
		return fd;
	int r = kept_read(fd, stream, offset, buf, size);
	if (r == -ERANGE)
		return err_set(err, r, "byte %llu of process %s isn't kept",
			       (unsigned long long)offset, key);
	if (r == -EBADMSG)
		return err_set(err, r, "%s/%s.log is damaged", dir, key);
	return r < 0 ? err_sys(err, r, "read %s/%s.log", dir, key) : r;
}
