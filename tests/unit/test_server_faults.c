/* A server whose mounts and unmounts fail: the n-th such call, for every n, once and for good. What
 * failed is named, what was written is kept, the server can be closed, and the next one mounts. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>
#include <cmocka.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/mount/mnt.h"
#include "fs/mount/server.h"
#include "tests/unit/sys_fault.h"

struct place {
	char dir[64], root[80], at[2][80];
};

static void set_up(struct place *p)
{
	/* In memory where that can be: only the mounts are tried here. */
	(void)snprintf(p->dir, sizeof(p->dir), "%s/bough-test.XXXXXX",
		       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	assert_non_null(mkdtemp(p->dir));
	(void)snprintf(p->root, sizeof(p->root), "%s/root", p->dir);
	for (int i = 0; i < 2; i++)
		(void)snprintf(p->at[i], sizeof(p->at[i]), "%s/at-%d", p->dir, i);
}

/* The kernel's answer to no server is ENOTCONN; nothing alive may be left. */
static void tear_down(struct place *p)
{
	uint64_t dev;
	for (int i = 0; i < 2; i++)
		if (mnt_device(p->at[i], &dev) == 0)
			assert_int_equal(umount2(p->at[i], MNT_DETACH), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, p->dir, NULL), 0);
}

static int put_text(const char *dir, const char *name, const char *text)
{
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static void expect_text(const char *dir, const char *name, const char *want)
{
	char path[128], got[64] = "";
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && read(fd, got, sizeof(got) - 1) >= 0);
	assert_string_equal(got, want);
}

static int mount_one(struct server *s, const char *id, const char *path, struct err *err)
{
	struct served *w;
	int r = served_get(s, id, &w, err);
	if (r < 0)
		return r;
	r = served_mount(w, path, err);
	served_put(w);
	return r;
}

/* What a service does in a day; stops where it is refused. */
static int day(struct server *s, struct place *p, bool *written, struct err *err)
{
	struct served_child one = { .id = "one", .path = p->at[0] },
			    two = { .id = "two", .path = p->at[1] };
	struct served *w;
	bool busy;
	uint64_t pause;
	int r = served_create(s, &one, NULL, 0, 0, err);
	if (r < 0)
		return r;
	assert_int_equal(put_text(p->at[0], "kept", "text"), 0);
	*written = true;
	r = served_get(s, "one", &w, err);
	if (r < 0)
		return r;
	r = served_fork(w, &two, 1, &pause, err);
	if (r == 0)
		r = served_umount(w, &busy, err);
	if (r == 0)
		r = served_mount(w, p->at[0], err);
	served_put(w);
	if (r == 0)
		expect_text(p->at[1], "kept", "text");
	if (r == 0)
		r = served_delete(s, "two", err);
	return r == 0 ? served_close(s, "one", err) : r;
}

static uint64_t try(uint64_t n, int error, bool for_good)
{
	struct place p;
	struct server *s = NULL;
	struct err err = { 0 };
	bool written = false;
	set_up(&p);
	const struct server_options opt = { .root = p.root, .commit_ms = UINT64_MAX };
	assert_int_equal(server_open(&s, &opt, &err), 0);
	sys_fault_at(n, error, for_good);
	int r = day(s, &p, &written, &err);
	if (r < 0 && !strstr(err.text, strerrordesc_np(error)))
		fail_msg("n %lu: refused without the reason: %s", (unsigned long)n, err.text);
	if (r < 0 && !strstr(err.text, p.dir))
		fail_msg("n %lu: it isn't said where: %s", (unsigned long)n, err.text);
	int c = server_close(s, &err);
	uint64_t hits = sys_fault_hits();
	assert_true(hits > 0 || (r == 0 && c == 0));
	/* The next one finds what was acknowledged, and mounts over what is dead. */
	assert_int_equal(server_open(&s, &opt, &err), 0);
	if (written) {
		r = mount_one(s, "one", p.at[0], &err);
		if (r < 0)
			fail_msg("n %lu: %s", (unsigned long)n, err.text);
		expect_text(p.at[0], "kept", "text");
		assert_int_equal(put_text(p.at[0], "new", "more"), 0);
		expect_text(p.at[0], "new", "more");
	}
	assert_int_equal(server_close(s, &err), 0);
	uint64_t dev;
	assert_true(!written || mnt_device(p.at[0], &dev) < 0);
	tear_down(&p);
	return hits;
}

static void each(void **state)
{
	static const int errors[] = { EPERM, EBUSY };
	if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) < 0)
		skip(); /* others mount by fusermount3 */
	for (int good = 0; good < 2; good++)
		for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
			uint64_t n = 1;
			while (try(n, errors[e], good) > 0)
				n++;
			assert_true(n > 5);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
