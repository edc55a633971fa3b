#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"
#include "fs/base/io.h"
#include "tests/unit/oom.h"

static char folder[512];

static int set_up(void **state)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(folder, sizeof(folder), "%s/test_frame.XXXXXX", tmp ? tmp : "/tmp");
	return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	return io_remove_tree(AT_FDCWD, folder, NULL);
}

static void pair(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
}

static unsigned open_descriptors(void)
{
	auto_dir *d = opendir("/proc/self/fd");
	unsigned n = 0;
	while (readdir(d))
		n++;
	return n;
}

static int send_text(int fd, const char *text, size_t len)
{
	struct frame f = { 0 };
	buf_add(&f.text, text, len);
	int r = frame_send(fd, &f, NULL);
	frame_done(&f);
	return r;
}

static void texts(void **state)
{
	int fd[2];
	pair(fd);
	static const size_t sizes[] = { 1, 2, 255, 256, 257, 4096, 65536, 100000, FRAME_MAX };
	auto_free char *text = malloc(FRAME_MAX + 1);
	for (size_t i = 0; i <= FRAME_MAX; i++)
		text[i] = (char)(i * 31 + i / 997);
	struct frame f = { 0 };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_int_equal(send_text(fd[0], text, sizes[i]), 0);
		assert_int_equal(frame_recv(fd[1], &f, NULL), 1);
		assert_int_equal(f.text.len, sizes[i]);
		assert_memory_equal(f.text.data, text, sizes[i]);
		assert_int_equal(f.nfds, 0);
	}
	/* Message borders stay. */
	assert_int_equal(send_text(fd[0], "one", 3), 0);
	assert_int_equal(send_text(fd[0], "three", 5), 0);
	assert_int_equal(frame_recv(fd[1], &f, NULL), 1);
	assert_int_equal(f.text.len, 3);
	assert_int_equal(frame_recv(fd[1], &f, NULL), 1);
	assert_int_equal(f.text.len, 5);
	struct err err;
	struct frame empty = { 0 }, huge = { 0 }, many = { .nfds = FRAME_FDS_MAX + 1 };
	assert_int_equal(frame_send(fd[0], &empty, &err), -EINVAL);
	buf_add(&huge.text, text, FRAME_MAX + 1);
	assert_int_equal(frame_send(fd[0], &huge, &err), -EMSGSIZE);
	frame_done(&huge);
	buf_add(&many.text, "x", 1);
	assert_int_equal(frame_send(fd[0], &many, &err), -EINVAL);
	buf_done(&many.text);
	/* The end of the connection, seen from both sides. */
	(void)close(fd[0]);
	assert_int_equal(frame_recv(fd[1], &f, &err), 0);
	assert_int_equal(send_text(fd[1], "x", 1), -EPIPE);
	frame_done(&f);
	(void)close(fd[1]);
}

static void no_message_yet(void **state)
{
	int fd[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd),
			 0);
	struct frame f = { 0 };
	struct err err;
	assert_int_equal(frame_recv(fd[0], &f, &err), -EAGAIN);
	/* Unread messages at the far end: the connection is over all the same. */
	assert_int_equal(send_text(fd[0], "x", 1), 0);
	(void)close(fd[1]);
	assert_int_equal(frame_recv(fd[0], &f, &err), 0);
	frame_done(&f);
	(void)close(fd[0]);
	assert_int_equal(frame_recv(fd[0], &f, &err), -EBADF);
}

static void descriptors(void **state)
{
	int fd[2];
	pair(fd);
	unsigned before = open_descriptors();
	for (int n = 0; n <= FRAME_FDS_MAX; n++) {
		struct frame out = { .nfds = n }, in = { 0 };
		int far[FRAME_FDS_MAX];
		for (int i = 0; i < n; i++) {
			int p[2];
			assert_int_equal(pipe2(p, O_CLOEXEC), 0);
			far[i] = p[0];
			out.fds[i] = p[1];
		}
		buf_printf(&out.text, "{\"n\": %d}", n);
		assert_int_equal(frame_send(fd[0], &out, NULL), 0);
		frame_done(&out); /* the sender's own ones go, those under way stay */
		assert_int_equal(frame_recv(fd[1], &in, NULL), 1);
		assert_int_equal(in.nfds, n);
		for (int i = 0; i < n; i++) {
			char c = (char)('a' + i), got = 0;
			assert_true(fcntl(in.fds[i], F_GETFD) & FD_CLOEXEC);
			assert_int_equal(write(in.fds[i], &c, 1), 1);
			assert_int_equal(read(far[i], &got, 1), 1);
			assert_int_equal(got, c);
			(void)close(far[i]);
		}
		if (n > 0) { /* one that is taken out is not closed */
			int kept = in.fds[0];
			in.fds[0] = -1;
			frame_done(&in);
			assert_true(fcntl(kept, F_GETFD) >= 0);
			(void)close(kept);
		}
		frame_done(&in);
	}
	assert_int_equal(open_descriptors(), before);
	/* A frame that is received into again closes what it still holds. */
	struct frame out = { .fds = { 0 }, .nfds = 1 }, in = { 0 };
	buf_add(&out.text, "x", 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(frame_send(fd[0], &out, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(frame_recv(fd[1], &in, NULL), 1);
	assert_int_equal(open_descriptors(), before + 1);
	frame_done(&in);
	buf_done(&out.text);
	assert_int_equal(open_descriptors(), before);
	(void)close(fd[0]), (void)close(fd[1]);
}

/* A peer that doesn't keep to the limits: raw messages, too long or with too many
 * descriptors. Nothing of them is kept, and the connection goes on. */
static void cut_messages(void **state)
{
	static const struct {
		size_t bytes;
		int fds, expected;
	} rows[] = {
		{ 10, FRAME_FDS_MAX, 1 },
		{ 10, FRAME_FDS_MAX + 1, -EMSGSIZE },
		{ 10, 100, -EMSGSIZE },
		{ FRAME_MAX + 1, 0, -EMSGSIZE },
		{ FRAME_MAX + 1, 2, -EMSGSIZE },
		{ FRAME_MAX + 5000, FRAME_FDS_MAX + 1, -EMSGSIZE },
		{ 10, 0, 1 },
	};
	int fd[2];
	pair(fd);
	unsigned before = open_descriptors();
	auto_free char *text = calloc(1, FRAME_MAX + 5000);
	struct frame f = { 0 };
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		union {
			char bytes[CMSG_SPACE(100 * sizeof(int))];
			struct cmsghdr align;
		} control = { 0 };
		struct iovec iov = { text, rows[r].bytes };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
		if (rows[r].fds) {
			size_t n = (size_t)rows[r].fds * sizeof(int);
			msg.msg_control = control.bytes;
			msg.msg_controllen = CMSG_SPACE(n);
			struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
			*c = (struct cmsghdr){ .cmsg_len = CMSG_LEN(n),
					       .cmsg_level = SOL_SOCKET,
					       .cmsg_type = SCM_RIGHTS };
		}
		assert_int_equal(sendmsg(fd[0], &msg, 0), rows[r].bytes);
		struct err err;
		assert_int_equal(frame_recv(fd[1], &f, &err), rows[r].expected);
		if (rows[r].expected < 0) {
			assert_int_equal(f.nfds, 0);
			assert_int_equal(f.text.len, 0);
			assert_int_equal(open_descriptors(), before);
		} else {
			assert_int_equal(f.nfds, rows[r].fds);
			assert_int_equal(f.text.len, rows[r].bytes);
		}
	}
	frame_done(&f);
	assert_int_equal(open_descriptors(), before);
	(void)close(fd[0]), (void)close(fd[1]);
}

static void out_of_memory(void **state)
{
	int fd[2];
	pair(fd);
	struct frame f = { 0 };
	struct err err;
	assert_int_equal(send_text(fd[0], "hello", 5), 0);
	oom_at(1);
	assert_int_equal(frame_recv(fd[1], &f, &err), -ENOMEM);
	assert_true(oom_hit());
	/* The message was not lost. */
	assert_int_equal(frame_recv(fd[1], &f, &err), 1);
	assert_int_equal(f.text.len, 5);
	frame_done(&f);
	f.text.failed = true;
	f.text.len = 1;
	assert_int_equal(frame_send(fd[0], &f, &err), -ENOMEM);
	(void)close(fd[0]), (void)close(fd[1]);
}

static void serve_once(const char *path)
{
	struct err err = { 0 };
	mode_t old = umask(0);
	auto_fd listening = frame_listen(path, &err);
	(void)umask(old);
	assert_string_equal(err.text, "");
	assert_true(listening >= 0);
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0600);
	auto_fd client = frame_connect(path, &err);
	assert_string_equal(err.text, "");
	auto_fd server = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	assert_true(client >= 0 && server >= 0);
	assert_true(fcntl(client, F_GETFD) & FD_CLOEXEC);
	struct frame f = { 0 };
	assert_int_equal(send_text(client, "{}", 2), 0);
	assert_int_equal(frame_recv(server, &f, NULL), 1);
	assert_int_equal(f.text.len, 2);
	frame_done(&f);
}

static void listen_and_connect(void **state)
{
	char path[1024];
	struct err err;
	unsigned before = open_descriptors();
	(void)snprintf(path, sizeof(path), "%s/s", folder);
	assert_int_equal(frame_connect(path, &err), -ENOENT);
	serve_once(path);
	assert_int_equal(frame_connect(path, &err), -ECONNREFUSED); /* an old socket */
	assert_non_null(strstr(err.text, path));
	serve_once(path); /* is replaced */
	/* Far longer than a socket address. */
	for (int i = 0; i < 4; i++) {
		size_t n = strlen(path);
		(void)snprintf(path + n - 1, sizeof(path) - n + 1, "%060d/s", i);
		char *slash = strrchr(path, '/');
		*slash = '\0';
		assert_int_equal(mkdir(path, 0700), 0);
		*slash = '/';
	}
	serve_once(path);
	(void)snprintf(path, sizeof(path), "%s/none/s", folder);
	assert_int_equal(frame_listen(path, &err), -ENOENT);
	(void)snprintf(path, sizeof(path), "%s/%0200d", folder, 0);
	assert_int_equal(frame_listen(path, &err), -ENAMETOOLONG);
	assert_int_equal(frame_connect(path, &err), -ENAMETOOLONG);
	/* A folder in the way is an error, not something to remove; no .new stays. */
	(void)snprintf(path, sizeof(path), "%s/dir", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(frame_listen(path, &err), -EISDIR);
	(void)snprintf(path, sizeof(path), "%s/dir.new", folder);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(open_descriptors(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts),         cmocka_unit_test(no_message_yet),
		cmocka_unit_test(descriptors),   cmocka_unit_test(cut_messages),
		cmocka_unit_test(out_of_memory), cmocka_unit_test(listen_and_connect),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
