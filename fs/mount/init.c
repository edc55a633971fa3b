/* The answer to INIT, with what libfuse has no name for: that idmapped clones of the mount can be
 * made (Linux 6.12).
 *
 * libfuse writes its own answer, into a pipe, by a session that lives only for that; we complete
 * it. The true session is told the same under a number that the kernel has given to nobody, so
 * that it is ready when the kernel hears the answer, and its own answer meets ENOENT, which it
 * ignores. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/mount/ops.h"

enum {
	/* Newer than the headers of the build host may be. */
	INIT_IS_EXT = 1 << 30,
	REQUEST_MAX = 1024, /* bytes of an INIT; 7.45 has 104 */
};
static const uint64_t INIT_ALLOW_IDMAP = UINT64_C(1) << 40, NUMBER_OF_NOBODY = UINT64_C(1) << 62;

struct answer {
	struct fuse_out_header head;
	struct fuse_init_out body;
};

static bool is_offered(const void *request, size_t n)
{
	const struct fuse_in_header *in = request;
	const struct fuse_init_in *init = (const void *)(in + 1);
	if (n < sizeof(*in) + sizeof(*init) || n > REQUEST_MAX || !(init->flags & INIT_IS_EXT))
		return false;
	return ((uint64_t)init->flags2 << 32) & INIT_ALLOW_IDMAP;
}

static void feed(struct fuse_session *se, void *request, size_t n)
{
	struct fuse_buf b = { .size = n, .mem = request };
	fuse_session_process_buf(se, &b);
}

/* What libfuse would answer. */
static int have_answered(struct mounted *m, void *request, size_t n, struct answer *out)
{
	int pair[2];
	char *argv[] = { "bough-fs", NULL }, name[32];
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	auto_fd from = pair[0], to = pair[1];
	struct fuse_session *se = fuse_session_new(&args, &mount_ops, sizeof(mount_ops), m);
	fuse_opt_free_args(&args);
	if (!se)
		return -ENOMEM;
	(void)snprintf(name, sizeof(name), "/dev/fd/%d", to);
	int r = fuse_session_mount(se, name) < 0 ? -ENOMEM : 0; /* only takes it over */
	if (r == 0) {
		(void)steal_fd(&to);
		feed(se, request, n);
		ssize_t got = read(from, out, sizeof(*out));
		if (got != sizeof(*out) || out->head.error || out->head.len != sizeof(*out))
			r = -EPROTO;
	}
	fuse_session_destroy(se);
	return r;
}

static int answer_with_idmap(struct mounted *m, struct fuse_session *se, int fd, void *request,
			     size_t n)
{
	struct answer answer;
	uint8_t same[REQUEST_MAX];
	int r = have_answered(m, request, n, &answer);
	if (r < 0 || !m->idmap)
		return r < 0 ? r : -EOPNOTSUPP;
	answer.body.flags |= INIT_IS_EXT;
	answer.body.flags2 |= (uint32_t)(INIT_ALLOW_IDMAP >> 32);
	memcpy(same, request, n);
	((struct fuse_in_header *)(void *)same)->unique ^= NUMBER_OF_NOBODY;
	feed(se, same, n);
	ssize_t w = write(fd, &answer, sizeof(answer));
	(void)w; /* it was answered before (ENOENT), or the connection is gone */
	return 0;
}

void init_process(struct mounted *m, struct fuse_session *se, int fd, void *request, size_t n)
{
	/* What a server before us has answered, which may be yes; if it isn't, nobody will. */
	uint64_t want = m->want;
	/* Only root can make such a clone; to others the kernel had better say who asks. */
	m->offers_idmap = is_offered(request, n) && geteuid() == 0 && !m->ring &&
			  !(m->mask & MOUNT_CAP_IDMAP) && (!want || want & MOUNT_CAP_IDMAP);
	if (m->offers_idmap && answer_with_idmap(m, se, fd, request, n) == 0)
		return;
	m->offers_idmap = false;
	m->want = want;
	feed(se, request, n);
}
