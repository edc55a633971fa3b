/* Conversations with bough-fs over its control socket: any messages, one a line, to a server that
 * is there, which answers each with one object and goes on. What leads to places of the host is
 * left out: nothing is mounted. Behind a zero byte of a message is the file that comes with it. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"
#include "fs/base/io.h"
#include "fs/mount/ctl_msg.h"
#include "fs/mount/ctl_ops.h"
#include "fs/mount/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGES_MAX = 12 };

static struct {
	char dir[100], root[120];
	struct server *server;
} here;

static void clean_up(void)
{
	(void)server_close(here.server, NULL);
	(void)io_remove_tree(AT_FDCWD, here.dir, NULL); /* a temporary folder */
}

static void set_up(void)
{
	struct stat st;
	/* In memory, where it can be: waiting for the disk isn't what is tried. */
	(void)snprintf(here.dir, sizeof(here.dir), "%s/fuzz_talk.XXXXXX",
		       stat("/dev/shm", &st) == 0 && S_ISDIR(st.st_mode) ? "/dev/shm" : "/tmp");
	if (!mkdtemp(here.dir))
		abort();
	(void)snprintf(here.root, sizeof(here.root), "%s/root", here.dir);
	const struct server_options opt = { .root = here.root, .workers = 1 };
	if (server_open(&here.server, &opt, NULL) < 0)
		abort();
	(void)atexit(clean_up);
}

static bool harmless(const void *data, size_t len)
{
	struct ctl_request q;
	if (ctl_parse(data, len, &q, NULL) < 0)
		return true; /* it is refused */
	bool good = !q.path && q.op != CTL_QUIT && q.op != CTL_LEAVE && q.op != CTL_MOUNT &&
		    !(q.op == CTL_AWAIT && q.wait_ms > 2);
	for (unsigned i = 0; i < q.nchildren && good; i++)
		good = !q.children[i].path && q.nchildren < 8;
	ctl_request_done(&q);
	return good;
}

static void ask(const void *data, size_t len, const void *file, size_t file_len)
{
	auto_buf out = { 0 };
	enum ctl_end end = CTL_GO_ON;
	auto_fd fd = file ? memfd_create("fuzz", MFD_CLOEXEC) : -1;
	if (fd >= 0 && write(fd, file, file_len) != (ssize_t)file_len)
		abort();
	int r = ctl_answer(here.server, &(struct peer){ .number = 1 }, data, len, fd, &out, &end);
	assert((r == 0 || r == -ENOMEM) && end == CTL_GO_ON);
	if (r < 0)
		return;
	json_t *j = json_loadb((const char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
	const json_t *error = json_object_get(j, "error");
	assert(json_is_object(j) && out.len <= FRAME_MAX);
	if (error)
		assert(json_integer_value(json_object_get(error, "errno")) > 0 &&
		       json_string_length(json_object_get(error, "text")) > 0);
	else
		assert(json_is_true(json_object_get(j, "ok")));
	json_decref(j);
}

/* So that every input begins with the same. */
static void forget_all(void)
{
	char **ids, text[200];
	size_t n;
	if (server_list(here.server, &ids, &n, NULL) < 0)
		abort();
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(text, sizeof(text), "{\"op\":\"delete\",\"id\":\"%s\"}", ids[i]);
		ask(text, strlen(text), NULL, 0);
		free(ids[i]);
	}
	free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!here.server)
		set_up();
	const uint8_t *end = data + size;
	for (unsigned i = 0; i < MESSAGES_MAX && data < end; i++) {
		const uint8_t *line = memchr(data, '\n', (size_t)(end - data));
		line = line ? line : end;
		const uint8_t *file = memchr(data, 0, (size_t)(line - data));
		size_t len = (size_t)((file ? file : line) - data);
		if (len <= FRAME_MAX && harmless(data, len))
			ask(data, len, file ? file + 1 : NULL,
			    file ? (size_t)(line - file - 1) : 0);
		data = line + 1;
	}
	forget_all();
	return 0;
}
