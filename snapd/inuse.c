#include "snapd/inuse.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "snapd/principal.h"

enum {
	NAMED_MAX = 4, /* programs in an error's text */
	MOMENTS = 10,  /* of MOMENT_US, in which what nobody is seen to use may be let go */
	MOMENT_US = 50000,
};

struct search {
	const char *mounts; /* their folder, with a '/' behind it */
	const char *id;     /* NULL: all */
	json_t *found;
	bool failed;
};

/* "ws_…" of what lies in a workspace; false: it lies elsewhere. */
static bool id_of(const struct search *s, const char *path, char id[ID_SIZE])
{
	size_t n = strlen(s->mounts), len;
	if (strncmp(path, s->mounts, n) != 0)
		return false;
	len = strcspn(path + n, "/ "); /* " (deleted)" may stand behind it */
	if (len == 0 || len >= ID_SIZE)
		return false;
	memcpy(id, path + n, len);
	id[len] = '\0';
	return !s->id || strcmp(s->id, id) == 0;
}

static void note(struct search *s, int proc, long pid, const char *id)
{
	char path[48];
	auto_free void *program = NULL;
	size_t len;
	json_t *list = json_object_get(s->found, id), *last;
	if (!list && json_object_set_new(s->found, id, list = json_array()) < 0) {
		s->failed = true;
		return;
	}
	last = json_array_get(list, json_array_size(list) - 1);
	if (last && json_integer_value(json_object_get(last, "pid")) == pid)
		return;
	(void)snprintf(path, sizeof(path), "%ld/comm", pid);
	if (io_slurp(NULL, proc, path, 64, &program, &len, NULL) < 0)
		return; /* it has just ended */
	((char *)program)[strcspn(program, "\n")] = '\0';
	json_t *name = json_string(program); /* NULL: it isn't UTF-8 */
	if (json_array_append_new(list, json_pack("{s:i, s:o}", "pid", (int)pid, "program",
						  name ? name : json_string("?"))) < 0)
		s->failed = true;
}

static void look_at(struct search *s, int proc, long pid, const char *link)
{
	char target[PATH_SIZE], id[ID_SIZE];
	ssize_t n = readlinkat(proc, link, target, sizeof(target) - 1);
	if (n <= 0)
		return; /* ended, or another user's */
	target[n] = '\0';
	if (id_of(s, target, id))
		note(s, proc, pid, id);
}

static void look_at_process(struct search *s, int proc, long pid)
{
	static const char *const links[] = { "cwd", "root", "exe" };
	char path[300];
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		(void)snprintf(path, sizeof(path), "%ld/%s", pid, links[i]);
		look_at(s, proc, pid, path);
	}
	(void)snprintf(path, sizeof(path), "/proc/%ld/fd", pid);
	DIR *d = opendir(path);
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		(void)snprintf(path, sizeof(path), "%ld/fd/%s", pid, e->d_name);
		if (e->d_name[0] != '.')
			look_at(s, proc, pid, path);
	}
	if (d)
		closedir(d);
}

json_t *inuse_find(const struct snapd *sd, const char *id)
{
	char mounts[PATH_SIZE];
	struct search s = { .mounts = mounts, .id = id, .found = json_object() };
	snapd_mount_path(sd, "", mounts);
	DIR *d = opendir("/proc");
	const struct dirent *e;
	char *end;
	while (d && s.found && !s.failed && (e = readdir(d))) {
		long pid = strtol(e->d_name, &end, 10);
		if (pid > 0 && !*end)
			look_at_process(&s, dirfd(d), pid);
	}
	if (!d || s.failed) {
		json_decref(s.found);
		s.found = NULL;
	}
	if (d)
		closedir(d);
	return s.found;
}

/* 1: in use; 0: not; -errno: the kernel doesn't tell. */
static int ask_kernel(const char *path)
{
	/* Says EAGAIN of an idle one, and ends it when asked again: it is to go anyhow then. */
	if (umount2(path, MNT_EXPIRE | UMOUNT_NOFOLLOW) == 0 || errno == EAGAIN)
		return 0;
	return errno == EBUSY ? 1 : -errno;
}

/* What asks has inherited its caller's descriptors: to name that is enough. */
static void leave_out(json_t *list, const char *asker)
{
	char from[FROM_SIZE];
	size_t i;
	for (i = json_array_size(list); json_array_size(list) > 1 && i-- > 0;) {
		const json_t *pid = json_object_get(json_array_get(list, i), "pid");
		(void)snprintf(from, sizeof(from), "pid %lld", (long long)json_integer_value(pid));
		if (strcmp(from, asker) == 0)
			(void)json_array_remove(list, i);
	}
}

static void name_programs(struct buf *b, const json_t *list)
{
	size_t i, n = json_array_size(list);
	json_t *p;
	json_array_foreach((json_t *)(uintptr_t)list, i, p)
		if (i < NAMED_MAX)
			buf_printf(b, "%s%s (pid %lld)", i ? ", " : "",
				   json_string_value(json_object_get(p, "program")),
				   (long long)json_integer_value(json_object_get(p, "pid")));
	if (n > NAMED_MAX)
		buf_printf(b, " and %zu more", n - NAMED_MAX);
	else if (n == 0)
		buf_printf(b, "what /proc doesn't show: a mount in it, a mapped file");
	buf_u8(b, 0);
}

int inuse_refuse(struct request *rq, const struct ws_row *ws, struct err *err)
{
	const struct snapd *sd = rq->ctx;
	char path[PATH_SIZE];
	auto_buf names = { 0 };
	snapd_mount_path(sd, ws->id, path);
	int r = ws->mount ? ask_kernel(path) : 0;
	if (r == 0 || r == -ENOENT || r == -EINVAL) /* nothing is mounted there */
		return 0;
	json_t *found = inuse_find(sd, ws->id), *list = json_object_get(found, ws->id);
	leave_out(list, rq->caller->from);
	/* A process that ends (a killed boughd) lets go a moment after /proc shows nothing of
	 * it. */
	for (int i = 0; i < MOMENTS && r > 0 && json_array_size(list) == 0; i++) {
		usleep(MOMENT_US);
		r = ask_kernel(path);
	}
	if (r > 0 || json_array_size(list) > 0) {
		name_programs(&names, list);
		rq->details = list ? json_pack("{s:O}", "processes", list) : NULL;
		r = err_set(err, -EBUSY,
			    "workspace \"%s\" is in use by %s; end that, or use --force", ws->name,
			    buf_error(&names) < 0 ? "a program" : (char *)names.data);
	} else {
		r = 0;
	}
	json_decref(found);
	return r;
}
