/* Clones of mounts, of a filesystem that says later than it could what it allows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "runtime/mounts.h"
#include "tests/unit/place.h"

enum {
	LATE_US = 100000,
	ID_BASE = 0x7fe00000,
	REQUEST_MAX = 1 << 17,
};
#define INIT_IS_EXT      (UINT32_C(1) << 30)
#define INIT_ALLOW_IDMAP (UINT32_C(1) << 8) /* of flags2 */

struct server {
	int fd;
	bool idmap; /* what INIT is answered with */
};

static void answer(int fd, uint64_t unique, int error, const void *body, size_t n)
{
	char out[256];
	struct fuse_out_header head = { .len = (uint32_t)(sizeof(head) + n),
					.error = error,
					.unique = unique };
	memcpy(out, &head, sizeof(head));
	if (n)
		memcpy(out + sizeof(head), body, n);
	ssize_t w = write(fd, out, sizeof(head) + n);
	(void)w; /* the mount may be gone */
}

/* Knows INIT, attributes of the root and STATFS. */
static void *serve(void *arg)
{
	struct server *s = arg;
	auto_free char *buf = malloc(REQUEST_MAX);
	ssize_t n;
	while (buf && ((n = read(s->fd, buf, REQUEST_MAX)) > 0 || (n < 0 && errno == EINTR))) {
		const struct fuse_in_header *in = (const void *)buf;
		const struct fuse_init_in *init = (const void *)(in + 1);
		struct fuse_init_out say = { .major = 7, .minor = init->minor,
					     .max_write = 4096, .flags = INIT_IS_EXT,
					     .flags2 = s->idmap ? INIT_ALLOW_IDMAP : 0 };
		struct fuse_attr_out attr = { .attr = { .ino = 1, .mode = S_IFDIR | 0755,
							.nlink = 2 } };
		struct fuse_statfs_out fs = { .st = { .bsize = 4096 } };
		switch (n < (ssize_t)sizeof(*in) ? 0 : in->opcode) {
		case FUSE_INIT:
			(void)usleep(LATE_US);
			answer(s->fd, in->unique, 0, &say, sizeof(say));
			break;
		case FUSE_GETATTR: answer(s->fd, in->unique, 0, &attr, sizeof(attr)); break;
		case FUSE_STATFS: answer(s->fd, in->unique, 0, &fs, sizeof(fs)); break;
		default: answer(s->fd, in->unique, -ENOSYS, NULL, 0);
		}
	}
	return NULL;
}

static const char *what_lacks(void)
{
	struct utsname u;
	unsigned major = 0, minor = 0;
#ifdef __SANITIZE_THREAD__
	return "ThreadSanitizer's own thread";
#endif
	if (geteuid() != 0)
		return "not root";
	if (access("/dev/fuse", R_OK | W_OK) < 0)
		return "no /dev/fuse";
	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2 ||
	    major * 100 + minor < 612)
		return "kernel older than 6.12";
	return NULL;
}

/* A clone with shifted ids of a mount that is as new as can be. */
static int clone_at_once(const struct place *p, bool idmap, struct err *err)
{
	char at[300], ns[300], opts[128];
	struct server s = { .fd = open("/dev/fuse", O_RDWR | O_CLOEXEC), .idmap = idmap };
	pthread_t thread;
	(void)snprintf(at, sizeof(at), "%s/at", p->path);
	(void)snprintf(ns, sizeof(ns), "%s/ns", p->path);
	assert_int_equal(mkdir(at, 0755), 0);
	assert_int_equal(userns_make(ns, ID_BASE, ID_BASE, 65536, err), 0);
	auto_fd user = open(ns, O_RDONLY | O_CLOEXEC);
	assert_true(s.fd >= 0 && user >= 0);
	(void)snprintf(opts, sizeof(opts),
		       "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
		       s.fd);
	assert_int_equal(mount("test", at, "fuse.test", MS_NOSUID | MS_NODEV, opts), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve, &s), 0);
	int r = mounts_clone(at, user, false, err);
	if (r >= 0)
		(void)close(r);
	assert_int_equal(umount2(at, MNT_DETACH), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	(void)close(s.fd);
	assert_int_equal(umount2(ns, MNT_DETACH), 0);
	return r < 0 ? r : 0;
}

/* mount(2) doesn't wait for the answer to INIT, by which a filesystem allows it. */
static void clone_before_init(void **state)
{
	struct err err = { 0 };
	const char *lacks = what_lacks();
	if (lacks) {
		print_message("skip: %s\n", lacks);
		skip();
	}
	int r = clone_at_once(*state, true, &err);
	if (r < 0)
		print_message("# %s\n", err.text);
	assert_int_equal(r, 0);
}

static void clone_refused(void **state)
{
	struct err err = { 0 };
	const char *lacks = what_lacks();
	if (lacks) {
		print_message("skip: %s\n", lacks);
		skip();
	}
	assert_int_equal(clone_at_once(*state, false, &err), -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "can't be shifted"));
}

static void tmpfs_grows(void **state)
{
	struct err err = { 0 };
	const char *dir = ((struct place *)*state)->path;
	struct statfs st;
	if (geteuid() != 0) {
		print_message("skip: not root\n");
		skip();
	}
	assert_int_equal(mounts_tmpfs(dir, 1 << 20, 4, 0755, 0, &err), 0);
	assert_int_equal(mounts_tmpfs_inodes(dir, 40, &err), 0);
	assert_int_equal(statfs(dir, &st), 0);
	assert_int_equal(st.f_files, 40);
	assert_int_equal(st.f_blocks * (uint64_t)st.f_bsize, 1 << 20);
	assert_int_equal(mounts_tmpfs_inodes(dir, 16, &err), 0); /* never less */
	assert_int_equal(statfs(dir, &st), 0);
	assert_int_equal(st.f_files, 40);
	assert_int_equal(umount2(dir, MNT_DETACH), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(clone_before_init, place_set_up, place_tear_down),
		cmocka_unit_test_setup_teardown(clone_refused, place_set_up, place_tear_down),
		cmocka_unit_test_setup_teardown(tmpfs_grows, place_set_up, place_tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
