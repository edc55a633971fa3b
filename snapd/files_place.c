#include "snapd/files_place.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "snapd/archive_lib.h"

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200
#endif

const char *place_type(mode_t mode)
{
	return S_ISREG(mode)    ? "file"
	       : S_ISDIR(mode)  ? "directory"
	       : S_ISLNK(mode)  ? "symlink"
	       : S_ISFIFO(mode) ? "fifo"
	       : S_ISSOCK(mode) ? "socket"
	       : S_ISCHR(mode)  ? "char"
				: "block";
}

int place_error(struct err *err, int r, const char *what, const char *path)
{
	const char *shown = *path ? SHOW(path) : "/";
	if (r == -ELOOP)
		return err_set(err, r, "%s: a symbolic link, which isn't followed", shown);
	if (r == -EXDEV)
		return err_set(err, -EPERM, "%s: on another mount", shown);
	if (r == -ENOTCONN || r == -ECONNABORTED)
		return err_set(err, -ECONNRESET, "the workspace's mount has no server; try again");
	if (r == -EINVAL || r == -EBADMSG || r == -ENOTUNIQ)
		r = -EIO; /* nothing that the client said */
	return err_sys(err, r, "%s %s", what, shown);
}

int place_room(const struct place *p, uint64_t bytes, uint64_t *left)
{
	struct statvfs v;
	*left = UINT64_MAX;
	if (fstatvfs(p->root, &v) < 0)
		return 0;
	*left = (uint64_t)v.f_bavail * v.f_frsize;
	if (bytes < *left + v.f_frsize)
		return 0;
	if (!p->src.ws.quota_bytes)
		return -ENOSPC;
	/* What was removed a moment ago may count in this yet; bough-fs waits for that. */
	return bytes > INT64_MAX || fs_hold(p->sd->fs, p->src.ws.id, 0, bytes, 0, NULL) == -EDQUOT
		       ? -EDQUOT
		       : 0;
}

/* ---- opening ---- */

void place_done(struct place *p)
{
	if (p->has_view)
		view_done(&p->view);
	cleanup_close(&p->root);
	source_done(&p->src);
	*p = (struct place){ .root = -1 };
}

/* The mount's root. -EUNATCH: it isn't mounted, or was by a server that is no more. No request is
 * made. */
static int open_mount(struct snapd *sd, const struct ws_row *row, struct err *err)
{
	char path[PATH_SIZE];
	struct statx sx = { 0 };
	snapd_mount_path(sd, row->id, path);
	errno = ENOENT;
	auto_fd fd = row->mount ? open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	bool known = fd >= 0 && statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &sx) == 0;
	if (!known && errno != ENOENT && errno != ENOTCONN)
		return err_sys(err, -errno, "the mount of workspace %s", row->name);
	if (!known || !(sx.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return err_set(err, -EUNATCH, "workspace %s isn't mounted: mount it to write",
			       row->name);
	return steal_fd(&fd);
}

/* Whether it is one whose server died, which nobody serves any more. A server that is being started
 * anew answers once it is there. */
static bool is_dead(int root)
{
	struct statfs fs;
	return fstatfs(root, &fs) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

/* is_dead asks bough-fs, which each file call would then do: what was alive a moment ago, under the
 * same server, is taken to be. */
static bool is_alive(struct snapd *sd, const char *id, int root)
{
	enum { MOMENT_MS = 200 };
	struct supervisor_status st;
	supervisor_get(sd->supervisor, &st);
	uint64_t key[] = { clock_ms() / MOMENT_MS, st.starts, (uint64_t)st.pid };
	uint64_t hash = hash_xxh3(id, strlen(id), 0);
	_Atomic uint64_t *slot = &sd->alive[hash % ALIVE_SLOTS];
	uint64_t seen = hash_xxh3(key, sizeof(key), hash);
	if (st.up && atomic_load_explicit(slot, memory_order_relaxed) == seen)
		return true;
	if (is_dead(root))
		return false;
	if (st.up)
		atomic_store_explicit(slot, seen, memory_order_relaxed);
	return true;
}

/* As open_mount; who writes waits while bough-fs is started anew and mounts it again. */
static int living_mount(struct snapd *sd, const struct ws_row *row, bool wait, struct err *err)
{
	enum { TRIES = 10, NAP_MS = 50 };
	for (int i = 0;; i++) {
		int root = open_mount(sd, row, err);
		if (root >= 0 && is_alive(sd, row->id, root))
			return root;
		if (root >= 0) {
			cleanup_close(&root);
			root = err_set(err, -EUNATCH, "the mount of workspace %s has no server",
				       row->name);
		}
		if (root != -EUNATCH || !row->mount || !wait || i == TRIES)
			return root;
		int r = fs_ping(sd->fs, err); /* which waits for what should be mounted */
		if (r < 0)
			return r;
		(void)nanosleep(&(struct timespec){ .tv_nsec = NAP_MS * 1000000L }, NULL);
	}
}

static int open_view(struct place *p, struct err *err)
{
	struct view_options opt;
	auto_stack stack = { 0 };
	int r = source_stack(p->sd, &p->src, &stack, err);
	if (r < 0)
		return r;
	layercache_options(p->sd->layers, &opt);
	r = view_open(&p->view, &opt, &stack, err);
	if (r < 0)
		return err_prefix(err, snapd_inner(r), "open %s",
				  p->src.is_snap ? p->src.snap.id : p->src.ws.name);
	p->has_view = true;
	return 0;
}

int place_open(struct place *out, struct snapd *sd, const char *key, bool is_snap,
	       enum place_use use, struct err *err)
{
	struct place p = { .sd = sd, .root = -1 };
	struct err why = { 0 };
	int r = 0;
	if (!is_snap && use != PLACE_SEALED) {
		r = source_find_ws(&p.src, sd, key, LEASE_NONE, "read", err);
		if (r >= 0)
			p.root = living_mount(sd, &p.src.ws, use == PLACE_WRITE, &why);
		if (r >= 0 && p.root < 0 && (p.root != -EUNATCH || use == PLACE_WRITE))
			r = err_set(err, p.root, "%s", why.text);
	}
	if (r >= 0 && p.root < 0) {
		source_done(&p.src);
		p.src = (struct source){ 0 };
		r = is_snap ? source_find_snap(&p.src, sd, key, LEASE_SHARED, "read", err)
			    : source_find_ws(&p.src, sd, key, LEASE_SHARED, "read", err);
		if (r >= 0)
			r = open_view(&p, err);
	}
	if (r < 0) {
		place_done(&p);
		return r;
	}
	*out = p;
	return 0;
}

/* ---- finding ---- */

/* A node id is the inode's number and, above, its restore generation; the kernel has it in what it
 * calls a handle: the id's two halves and a number of its own. */
static uint16_t generation(int fd)
{
	struct {
		struct file_handle h;
		unsigned char bytes[MAX_HANDLE_SZ];
	} f = { .h.handle_bytes = MAX_HANDLE_SZ };
	int mount;
	uint32_t high;
	if (name_to_handle_at(fd, "", &f.h, &mount, AT_EMPTY_PATH | AT_HANDLE_FID) < 0) {
		f.h.handle_bytes = MAX_HANDLE_SZ; /* before Linux 6.5 */
		if (name_to_handle_at(fd, "", &f.h, &mount, AT_EMPTY_PATH) < 0)
			return 0;
	}
	if (f.h.handle_bytes < 3 * sizeof(high))
		return 0;
	memcpy(&high, f.h.f_handle, sizeof(high));
	return (uint16_t)(high >> 16);
}

static int find_on_mount(const struct place *p, const char *path, struct found *out,
			 struct err *err)
{
	/* Not of atime, for which the kernel would ask bough-fs after each reading. */
	const unsigned wanted = STATX_BASIC_STATS & ~STATX_ATIME;
	struct statx st;
	auto_fd fd = io_open_beneath(p->root, path, O_PATH | O_NOFOLLOW);
	if (fd < 0)
		return place_error(err, fd == -ENOTDIR ? -ENOENT : fd, "look for", path);
	if (statx(fd, "", AT_EMPTY_PATH, wanted, &st) < 0)
		return place_error(err, -errno, "look at", path);
	struct attr a = {
		.ino = ino_meant(st.stx_ino),
		.gen = generation(fd),
		.ctime = { st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec },
	};
	*out = (struct found){ .ino = ino_meant(st.stx_ino),
			       .mode = st.stx_mode,
			       .size = st.stx_size,
			       .uid = st.stx_uid,
			       .gid = st.stx_gid,
			       .mtime = { st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec },
			       .version = version_of(&a) };
	out->fd = steal_fd(&fd);
	return 0;
}

int place_find_in(const struct view *v, const char *path, struct found *out, struct err *err)
{
	struct attr a;
	int r = view_inode(v, 1, &a);
	for (const char *at = path; r == 0 && *at;) {
		struct dirent_ref d;
		size_t n = strcspn(at, "/");
		r = S_ISLNK(a.mode)    ? -ELOOP
		    : !S_ISDIR(a.mode) ? -ENOENT
				       : view_lookup(v, a.ino, at, n, &d);
		if (r == 0) {
			r = view_inode(v, d.ino, &a);
			r = r == -ENOENT ? -EIO : r;
		}
		at += n + (at[n] == '/');
	}
	if (r < 0)
		return place_error(err, r, "look for", path);
	*out = (struct found){ .fd = -1,
			       .ino = a.ino,
			       .mode = a.mode,
			       .size = a.size,
			       .uid = a.uid,
			       .gid = a.gid,
			       .mtime = a.mtime,
			       .version = version_of(&a) };
	return 0;
}

int place_find(const struct place *p, const char *path, struct found *out, struct err *err)
{
	return p->has_view ? place_find_in(&p->view, path, out, err)
			   : find_on_mount(p, path, out, err);
}

void found_done(struct found *f)
{
	cleanup_close(&f->fd);
	f->fd = -1;
}

int found_open(struct found *f, struct err *err)
{
	char path[32];
	if (f->fd < 0)
		return 0;
	assert(S_ISREG(f->mode) || S_ISDIR(f->mode));
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return place_error(err, -errno, "open", "the file");
	cleanup_close(&f->fd);
	f->fd = fd;
	return 0;
}

ssize_t place_read(const struct place *p, const struct found *f, void *buf, size_t n, uint64_t off,
		   struct err *err)
{
	if (f->fd < 0)
		return view_read(&p->view, f->ino, buf, n, off, err);
	ssize_t got;
	do
		got = pread(f->fd, buf, n, (off_t)off);
	while (got < 0 && errno == EINTR);
	return got < 0 ? place_error(err, -errno, "read", "the file") : got;
}

int place_target(const struct place *p, const struct found *f, char out[PATH_SIZE], struct err *err)
{
	size_t len = 0;
	ssize_t n;
	int r = 0;
	if (f->fd < 0) {
		r = view_target(&p->view, f->ino, out, PATH_SIZE - 1, &len);
	} else {
		n = readlinkat(f->fd, "", out, PATH_SIZE - 1);
		r = n < 0 ? -errno : 0;
		len = n < 0 ? 0 : (size_t)n;
	}
	if (r < 0)
		return place_error(err, r, "read", "the link");
	out[len < PATH_SIZE ? len : PATH_SIZE - 1] = '\0';
	return 0;
}

/* ---- directories above ---- */

int place_make_dir(int at, const char *name, mode_t mode)
{
	struct stat st;
	if (mkdirat(at, name, 0755) < 0)
		return -errno;
	auto_fd fd = io_open_beneath(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (fd < 0)
		return fd;
	if (fstat(at, &st) < 0)
		return -errno;
	/* Who isn't root has it already as it can be. */
	if (geteuid() == 0 && fchown(fd, st.st_uid, st.st_gid) < 0)
		return -errno;
	if (fchmod(fd, mode | (st.st_mode & S_ISGID)) < 0) /* the umask is the program's */
		return -errno;
	return steal_fd(&fd);
}

/* Without O_TMPFILE (Linux 6.1): for some microseconds it has a name. */
int place_unnamed(const struct place *p)
{
	int root = p->root;
	char name[40];
	uint64_t random;
	int fd = openat(root, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd < 0 ? -errno : fd;
	random_bytes(&random, sizeof(random));
	(void)snprintf(name, sizeof(name), ".bough-put-%016llx", (unsigned long long)random);
	fd = openat(root, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0 && unlinkat(root, name, 0) < 0) {
		int r = -errno;
		cleanup_close(&fd);
		return r;
	}
	return fd < 0 ? -errno : fd;
}

/* Goes down along path[0 .. len), and makes what is missing. */
static int make_dirs(int root, const char *path, size_t len, unsigned *made)
{
	char name[NAME_MAX + 1];
	auto_fd at = io_open_beneath(root, "", O_RDONLY | O_DIRECTORY);
	for (size_t i = 0; at >= 0 && i < len;) {
		size_t n = strcspn(path + i, "/");
		memcpy(name, path + i, n);
		name[n] = '\0';
		int next = io_open_beneath(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		if (next == -ENOENT) {
			next = place_make_dir(at, name, 0755);
			*made += next >= 0;
		}
		if (next == -EEXIST) /* somebody else was faster */
			next = io_open_beneath(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
		cleanup_close(&at);
		at = next;
		i += n + 1;
	}
	return at < 0 ? at : steal_fd(&at);
}

static const char *last_name(const char *path, size_t *dir_len)
{
	const char *slash = strrchr(path, '/');
	*dir_len = slash ? (size_t)(slash - path) : 0;
	return slash ? slash + 1 : path;
}

int place_parent(const struct place *p, const char *path, unsigned *made, int *dir,
		 const char **name, struct err *err)
{
	char above[PATH_SIZE];
	size_t len;
	if (!*path)
		return err_set(err, -EISDIR, "that is the root directory");
	*name = last_name(path, &len);
	memcpy(above, path, len);
	above[len] = '\0';
	unsigned n = 0;
	int fd = io_open_beneath(p->root, above, O_RDONLY | O_DIRECTORY);
	if (fd == -ENOENT && made)
		fd = make_dirs(p->root, above, len, &n);
	if (fd < 0) {
		place_unmake(p, path, n);
		return place_error(err, fd, "open", above);
	}
	if (made)
		*made = n;
	*dir = fd;
	return 0;
}

void place_unmake(const struct place *p, const char *path, unsigned made)
{
	char above[PATH_SIZE];
	size_t len;
	(void)last_name(path, &len);
	for (; made > 0 && len > 0; made--) {
		memcpy(above, path, len);
		above[len] = '\0';
		const char *name = last_name(above, &len);
		above[len] = '\0';
		auto_fd fd = io_open_beneath(p->root, above, O_RDONLY | O_DIRECTORY);
		if (fd < 0 || unlinkat(fd, name, AT_REMOVEDIR) < 0)
			return; /* somebody uses it */
	}
}
