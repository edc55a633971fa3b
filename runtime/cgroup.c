#include "runtime/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "runtime/mountinfo.h"

enum {
	PROCS_MAX = 1 << 20, /* bytes of a list of processes; what is beyond comes next time */
	END_MS = 5000,       /* a killed process that waits for a disk takes its time */
	DEPTH_MAX = 16,      /* folders in a box's own: none of ours has any */
	FOLDERS_MAX = 4096,
	FREEZE_MS = 1000,
	KILL_FREEZE_MS = 100, /* of what is to die: one that hangs in the kernel doesn't freeze */
	FREEZE_POLL_US = 200,
};

/* ---- what there is ---- */

void cgroup_parse(struct cgroups *out, const char *mountinfo, size_t len)
{
	out->n = 0;
	struct mountinfo m = mountinfo_begin(mountinfo, len);
	while (out->n < CGROUP_HIERARCHIES_MAX && mountinfo_next(&m)) {
		bool v2 = mountinfo_is(&m, "cgroup2");
		/* Only the whole of a hierarchy: what runtimes name begins at its root. */
		if ((!v2 && !mountinfo_is(&m, "cgroup")) || !m.whole ||
		    strlen(m.point) >= CGROUP_PATH_MAX)
			continue;
		memcpy(out->list[out->n].path, m.point, strlen(m.point) + 1);
		out->list[out->n++].v2 = v2;
	}
}

int cgroup_find(struct cgroups *out, struct err *err)
{
	auto_free void *text = NULL;
	size_t len;
	int r = mountinfo_read(&text, &len, err);
	if (r < 0)
		return r;
	cgroup_parse(out, text, len);
	return out->n ? 0 : err_set(err, -ENOENT, "no cgroups are mounted (/sys/fs/cgroup)");
}

bool cgroup_is_v2(const struct cgroups *c)
{
	return c->n == 1 && c->list[0].v2;
}

static bool exists(const char *dir, const char *name)
{
	char path[CGROUP_PATH_MAX + NAME_MAX + CGROUP_NAME_MAX];
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

bool cgroup_has(const struct cgroups *c, const char *controller)
{
	for (size_t i = 0; i < c->n; i++) {
		if (!c->list[i].v2) {
			/* cpu is mounted as cpu or cpu,cpuacct */
			const char *name = strrchr(c->list[i].path, '/') + 1;
			const char *at = strstr(name, controller);
			size_t n = strlen(controller);
			if (at && (at == name || at[-1] == ',') && (at[n] == '\0' || at[n] == ','))
				return true;
			continue;
		}
		auto_free void *text = NULL;
		char path[CGROUP_PATH_MAX + CGROUP_NAME_MAX];
		size_t len;
		(void)snprintf(path, sizeof(path), "%s/cgroup.controllers", c->list[i].path);
		if (io_slurp(NULL, AT_FDCWD, path, PATH_MAX, &text, &len, NULL) < 0)
			continue;
		for (char *save = NULL, *w = strtok_r(text, " \n", &save); w;
		     w = strtok_r(NULL, " \n", &save))
			if (strcmp(w, controller) == 0)
				return true;
	}
	return false;
}

/* Version 2's root has no such file; each folder in it does for which memory is counted. */
static bool v2_counts_swap(const char *top)
{
	char path[CGROUP_PATH_MAX + NAME_MAX + 2];
	auto_dir *d = opendir(top);
	struct dirent *e;
	while (d && (e = readdir(d))) {
		(void)snprintf(path, sizeof(path), "%s/%s", top, e->d_name);
		if (e->d_type == DT_DIR && e->d_name[0] != '.' && exists(path, "memory.max"))
			return exists(path, "memory.swap.max");
	}
	return access("/proc/swaps", F_OK) == 0;
}

bool cgroup_counts_swap(const struct cgroups *c)
{
	for (size_t i = 0; i < c->n; i++)
		if (!c->list[i].v2 && exists(c->list[i].path, "memory.memsw.limit_in_bytes"))
			return true;
	return cgroup_is_v2(c) && v2_counts_swap(c->list[0].path);
}

/* ---- making ---- */

static int path_of(char *out, size_t size, const struct cgroups *c, size_t i, const char *group)
{
	int n = snprintf(out, size, "%s%s", c->list[i].path, group);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static int make_one(const char *path, mode_t mode)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	return chmod(path, mode) < 0 ? -errno : 0;
}

/* All folders of `path` below its first `top` bytes. */
static int make_way(char *path, size_t top)
{
	int r = 0;
	for (char *p = strchr(path + top + 1, '/'); r == 0 && p; p = strchr(p + 1, '/')) {
		*p = '\0';
		r = make_one(path, 0711);
		*p = '/';
	}
	return r < 0 ? r : make_one(path, 0755);
}

int cgroup_make(const struct cgroups *c, const char *group, struct err *err)
{
	char path[PATH_MAX];
	if (!cgroup_is_v2(c))
		return 0;
	int r = path_of(path, sizeof(path), c, 0, group);
	if (r == 0)
		r = make_way(path, strlen(c->list[0].path));
	return r < 0 ? err_sys(err, r, "make the cgroup %s", path) : 0;
}

/* ---- the end ---- */

static void put(int dir, const char *name, const char *text)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t n = write(fd, text, strlen(text));
		(void)n; /* the look at what still runs tells */
	}
}

/* Whether the process is in the group or below, by what /proc says of it. */
static bool is_of(long pid, const char *group)
{
	char path[48], text[4096], *save = NULL;
	size_t n = strlen(group);
	(void)snprintf(path, sizeof(path), "/proc/%ld/cgroup", pid);
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : io_read_full(NULL, fd, text, sizeof(text) - 1, 0);
	text[got > 0 ? got : 0] = '\0';
	for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		const char *names = strchr(l, ':'), *at = names ? strchr(names + 1, ':') : NULL;
		if (at && strncmp(at + 1, group, n) == 0 && (at[n + 1] == '/' || !at[n + 1]))
			return true;
	}
	return false;
}

/* Its number may be another process's by now: that one isn't in the group, or what is held has
 * ended. */
static void kill_one(long pid, const char *group)
{
	auto_fd fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (fd >= 0 && is_of(pid, group))
		(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

/* How many processes it has; with `group`, its name, they are killed. */
static int each_process(int dir, const char *group)
{
	auto_free char *text = malloc(PROCS_MAX + 1);
	auto_fd fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!text)
		return -ENOMEM;
	ssize_t n = io_read_full(NULL, fd, text, PROCS_MAX, 0);
	if (n < 0)
		return n == -ENODEV ? 0 : (int)n;
	text[n] = '\0';
	int found = 0;
	for (char *save = NULL, *w = strtok_r(text, "\n", &save); w;
	     w = strtok_r(NULL, "\n", &save)) {
		long pid = strtol(w, NULL, 10);
		found++;
		if (group && pid > 1)
			kill_one(pid, group);
	}
	return found;
}

/* Whether the file says so by now, one way or another. */
static bool says(int dir, const char *name, const char *want)
{
	char text[128];
	auto_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, want) != NULL;
}

static int freeze_one(int dir, bool v2, bool on, unsigned wait_ms)
{
	const char *file = v2 ? "cgroup.freeze" : "freezer.state";
	const char *told = v2 ? "cgroup.events" : file, *want = v2 ? "frozen 1" : "FROZEN";
	const char *text = v2 ? (on ? "1" : "0") : on ? "FROZEN" : "THAWED";
	uint64_t deadline = clock_ms() + wait_ms;
	auto_fd fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		return -errno;
	while (on && !says(dir, told, want)) {
		if (clock_ms() > deadline)
			return -ETIMEDOUT;
		(void)usleep(FREEZE_POLL_US);
	}
	return 0;
}

/* How many processes it had. Version 2 kills all at once. With version 1 they are frozen first, or
 * one that forks could be ahead of the list for ever; what is frozen dies only when it thaws. */
static int kill_all(int dir, const char *group)
{
	put(dir, "cgroup.kill", "1");
	int n = each_process(dir, NULL);
	if (n <= 0)
		return n;
	(void)freeze_one(dir, false, true, KILL_FREEZE_MS); /* what doesn't freeze comes again */
	n = each_process(dir, group);
	put(dir, "freezer.state", "THAWED");
	put(dir, "cgroup.freeze", "0");
	return n;
}

static int end_one(int dir, const char *group, uint64_t deadline)
{
	struct timespec pause = { .tv_nsec = 500000 };
	for (;;) {
		int n = kill_all(dir, group);
		if (n <= 0)
			return n;
		if (clock_ms() > deadline)
			return -EBUSY;
		(void)nanosleep(&pause, NULL);
		if (pause.tv_nsec < 16000000)
			pause.tv_nsec *= 2;
	}
}

/* The deepest first folder below `path`, which is extended. */
static int descend(char *path, size_t size)
{
	for (int depth = 0; depth < DEPTH_MAX; depth++) {
		auto_dir *d = opendir(path);
		if (!d)
			return errno == ENOENT ? 0 : -errno;
		struct dirent *e;
		while ((e = readdir(d)))
			if (e->d_type == DT_DIR && strcmp(e->d_name, ".") != 0 &&
			    strcmp(e->d_name, "..") != 0)
				break;
		if (!e)
			return 0;
		size_t n = strlen(path);
		if (n + 1 + strlen(e->d_name) >= size)
			return -ENAMETOOLONG;
		(void)snprintf(path + n, size - n, "/%s", e->d_name);
	}
	return -ELOOP;
}

static int remove_one(const char *path, uint64_t deadline)
{
	struct timespec pause = { .tv_nsec = 1000000 };
	while (rmdir(path) < 0) {
		if (errno == ENOENT)
			return 0;
		if (errno != EBUSY || clock_ms() > deadline)
			return -errno;
		(void)nanosleep(&pause, NULL); /* what was killed is still being counted */
	}
	return 0;
}

static int clear_tree(const char *top, const char *group, uint64_t deadline)
{
	char path[PATH_MAX];
	for (int i = 0; i < FOLDERS_MAX; i++) {
		(void)snprintf(path, sizeof(path), "%s", top);
		auto_fd whole = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (whole < 0)
			return errno == ENOENT ? 0 : -errno;
		int r = descend(path, sizeof(path));
		if (r < 0)
			return r;
		auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0 && errno != ENOENT)
			return -errno;
		r = dir < 0 ? 0 : end_one(dir, group, deadline);
		if (r == 0)
			r = remove_one(path, deadline);
		if (r < 0)
			return r;
	}
	return -E2BIG;
}

int cgroup_clear(const struct cgroups *c, const char *group, struct err *err)
{
	char path[PATH_MAX];
	uint64_t deadline = clock_ms() + END_MS;
	int result = 0;
	/* In each hierarchy before the first is waited for: one of version 1 has the freezer. */
	for (size_t i = 0; i < c->n; i++) {
		auto_fd dir = path_of(path, sizeof(path), c, i, group) < 0
				      ? -1
				      : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir >= 0)
			(void)kill_all(dir, group); /* what fails, fails below again */
	}
	for (size_t i = 0; i < c->n; i++) {
		int r = path_of(path, sizeof(path), c, i, group);
		if (r == 0)
			r = clear_tree(path, group, deadline);
		if (r < 0 && result == 0)
			result = err_sys(err, r, "remove the cgroup %s", path);
	}
	return result;
}

void cgroup_prune(const struct cgroups *c, const char *group)
{
	char path[PATH_MAX];
	for (size_t i = 0; i < c->n; i++)
		if (path_of(path, sizeof(path), c, i, group) == 0)
			(void)rmdir(path); /* what isn't empty is in use */
}

int cgroup_freeze(const struct cgroups *c, const char *group, bool on, struct err *err)
{
	char path[PATH_MAX];
	for (size_t i = 0; i < c->n; i++) {
		auto_fd dir = path_of(path, sizeof(path), c, i, group) < 0
				      ? -1
				      : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int r = dir < 0 ? -ENOENT : freeze_one(dir, c->list[i].v2, on, FREEZE_MS);
		if (r == -ENOENT)
			continue; /* a hierarchy without a freezer */
		if (r < 0 && on)
			(void)freeze_one(dir, c->list[i].v2, false, 0);
		return r < 0 ? err_sys(err, r, "freeze the cgroup %s", path) : 0;
	}
	return err_set(err, -ENOENT, "no freezer for the cgroup %s", group);
}
