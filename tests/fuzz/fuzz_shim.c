/* What a shim answers: calls are made to a peer whose answers are the input, whole frames or
 * whatever the bytes are, and each ends with what it says or with an error. The first byte says
 * which call and which framing. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "runtime/proto/shim.pb-c.h"
#include "runtime/shim_int.h"
#include "runtime/ttrpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	char dir[100];
	struct shim shim;
	int listener;
	pthread_t thread;
	struct buf says; /* the answer to every call; changes only between calls */
} here = { .listener = -1 };

static void *peer(void *arg)
{
	char request[4096];
	for (;;) {
		auto_fd fd = accept4(here.listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			return NULL;
		if (recv(fd, request, sizeof(request), 0) > 0)
			(void)send(fd, here.says.data, here.says.len, MSG_NOSIGNAL);
	}
}

static void clean_up(void)
{
	(void)shutdown(here.listener, SHUT_RDWR);
	(void)pthread_join(here.thread, NULL);
	(void)close(here.listener);
	buf_done(&here.says);
	(void)io_remove_tree(AT_FDCWD, here.dir, NULL); /* a temporary folder */
}

static void set_up(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	(void)snprintf(here.dir, sizeof(here.dir), "/tmp/fuzz_shim.XXXXXX");
	if (!mkdtemp(here.dir))
		abort();
	(void)snprintf(un.sun_path, sizeof(un.sun_path), "%s/s", here.dir);
	(void)snprintf(here.shim.address, sizeof(here.shim.address), "unix://%s", un.sun_path);
	(void)snprintf(here.shim.ns, sizeof(here.shim.ns), "fuzz");
	(void)snprintf(here.shim.id, sizeof(here.shim.id), "one");
	here.shim.version = 2;
	here.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (here.listener < 0 ||
	    bind(here.listener, (const struct sockaddr *)&un, sizeof(un)) < 0 ||
	    listen(here.listener, 16) < 0 || pthread_create(&here.thread, NULL, peer, NULL) != 0)
		abort();
	(void)atexit(clean_up);
}

/* A good frame of a good response with that payload. */
static void frame(const uint8_t *data, size_t size)
{
	Shim__Response r = SHIM__RESPONSE__INIT;
	r.payload.data = (uint8_t *)data;
	r.payload.len = size;
	size_t len = shim__response__get_packed_size(&r);
	const uint8_t head[TTRPC_HEADER] = { (uint8_t)(len >> 24),
					     (uint8_t)(len >> 16),
					     (uint8_t)(len >> 8),
					     (uint8_t)len,
					     0,
					     0,
					     0,
					     TTRPC_STREAM,
					     TTRPC_RESPONSE,
					     0 };
	buf_add(&here.says, head, sizeof(head));
	uint8_t *room = buf_room(&here.says, len);
	if (!room)
		abort();
	here.says.len += shim__response__pack(&r, room);
}

static int make_call(uint8_t which, struct err *err)
{
	struct shim_state state = { 0 };
	struct shim_stats stats;
	uint32_t *pids = NULL, pid;
	size_t n;
	int r;
	switch (which % 6) {
	case 0:
		return shim_get(&here.shim, NULL, &state, err);
	case 1:
		return shim_stats(&here.shim, &stats, err);
	case 2:
		r = shim_pids(&here.shim, &pids, &n, err);
		free(pids);
		return r;
	case 3:
		return shim_delete(&here.shim, "exec", &state, err);
	case 4:
		return shim_start_process(&here.shim, "exec", -1, &pid, err);
	default:
		return shim_wait(&here.shim, NULL, -1, &state, err);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = { 0 };
	if (size == 0 || size > 65536)
		return 0;
	if (here.listener < 0)
		set_up();
	buf_reset(&here.says);
	if (data[0] & 0x40)
		frame(data + 1, size - 1);
	else
		buf_add(&here.says, data + 1, size - 1);
	int r = make_call(data[0] & 0x3f, &err);
	assert(r >= 0 || (err.text[0] && !strchr(err.text, '\n')));
	return 0;
}
