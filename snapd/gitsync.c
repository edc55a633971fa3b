#include "snapd/gitsync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "gitops/packout.h"
#include "gitops/git.h"

enum {
	COPY_SIZE = 256 * 1024,
	NAME_SIZE_MAX = 1100,
};

/* A folder of the mount and who owns it: what is made there is his too. */
struct place {
	int fd;
	uid_t uid;
	gid_t gid;
};

static int fail(struct err *err, int r, const char *path)
{
	return err_sys(err, r, "%s", path);
}

static int open_git(struct snapd *sd, const struct gitwork *work, struct place *git,
		    struct err *err)
{
	char path[PATH_SIZE];
	struct stat st;
	if (!work->src.ws.mount)
		return err_set(err, -ENOTCONN, "the workspace isn't mounted");
	snapd_mount_path(sd, work->src.ws.id, path);
	auto_fd root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (root < 0)
		return fail(err, -errno, path);
	auto_fd fd = io_open_beneath(root, ".git", O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fail(err, fd, ".git");
	if (fstat(fd, &st) < 0)
		return fail(err, -errno, ".git");
	*git = (struct place){ steal_fd(&fd), st.st_uid, st.st_gid };
	return 0;
}

static int give(const struct place *git, int fd)
{
	return geteuid() == 0 && fchown(fd, git->uid, git->gid) < 0 ? -errno : 0;
}

/* A new file in a folder, from a descriptor's content or from a text. */
static int make_file(const struct place *git, int dir, const char *name, int from, const char *text,
		     mode_t mode)
{
	auto_fd fd = io_open_beneath(dir, name, O_WRONLY | O_CREAT | O_EXCL);
	if (fd < 0)
		return fd;
	static _Thread_local char buf[COPY_SIZE];
	int r = give(git, fd);
	if (text && r >= 0)
		r = io_write_full(&io_host, fd, text, strlen(text), 0);
	for (uint64_t off = 0; !text && r >= 0;) {
		ssize_t n = io_read_full(&io_host, from, buf, sizeof(buf), off);
		if (n <= 0) {
			r = (int)n;
			break;
		}
		r = io_write_full(&io_host, fd, buf, (size_t)n, off);
		off += (uint64_t)n;
	}
	if (r >= 0 && fchmod(fd, mode) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(dir, name, 0); /* the first failure is told */
	return r;
}

/* The same under its name once it is whole: what a kill leaves has a name that git passes over, in
 * refs and among packs. What was there goes. */
static int put_file(const struct place *git, int dir, const char *name, int from, const char *text,
		    mode_t mode)
{
	char tmp[64];
	uint64_t x;
	random_bytes(&x, sizeof(x));
	(void)snprintf(tmp, sizeof(tmp), "tmp_bough-%016llx.lock", (unsigned long long)x);
	int r = make_file(git, dir, tmp, from, text, mode);
	if (r >= 0 && renameat(dir, tmp, dir, name) < 0) {
		r = -errno;
		(void)unlinkat(dir, tmp, 0); /* the first failure is told */
	}
	return r;
}

/* ---- the pack ---- */

/* A folder for the pack, and its descriptor. */
struct scratch {
	char path[PATH_SIZE];
	int fd;
};

static void scratch_done(struct scratch *s)
{
	cleanup_close(&s->fd);
	if (s->path[0])
		(void)io_remove_tree(AT_FDCWD, s->path, NULL); /* else the next start does */
}

static int scratch_make(struct scratch *s, const char *root, struct err *err)
{
	(void)snprintf(s->path, sizeof(s->path), "%s/tmp/sync.XXXXXX", root);
	if (!mkdtemp(s->path)) {
		s->path[0] = '\0';
		return err_sys(err, -errno, "make a folder in %s/tmp", root);
	}
	s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->fd < 0 ? fail(err, -errno, s->path) : 0;
}

/* What the commit has and the checkout's base hasn't, as pack-<name>.pack and .idx. `name` stays
 * "" where that is nothing. */
static int write_pack(const struct gitwork *work, const struct oid *commit, const char *folder,
		      char name[GIT_OID_HEXSZ + 1], struct err *err)
{
	git_packbuilder *pb = NULL;
	int r = pack_between(&pb, mirror_repo(work->mirror), &work->link.base, commit, err);
	name[0] = '\0';
	if (r < 0)
		return r;
	if (git_packbuilder_object_count(pb) > 0) {
		r = git_packbuilder_write(pb, folder, 0644, NULL, NULL);
		if (r >= 0)
			git_oid_tostr(name, GIT_OID_HEXSZ + 1, git_packbuilder_hash(pb));
	}
	if (r < 0)
		r = git_fail(err, r, "pack what is new");
	git_packbuilder_free(pb);
	return r;
}

static int bring_pack(const struct place *git, const struct scratch *s, const char *name,
		      struct err *err)
{
	static const char *const ends[] = { "pack", "idx" }; /* a pack counts from its index on */
	auto_fd dir = io_open_beneath(git->fd, "objects/pack", O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		return fail(err, dir, ".git/objects/pack");
	for (int i = 0; i < 2; i++) {
		char file[NAME_SIZE_MAX];
		(void)snprintf(file, sizeof(file), "pack-%s.%s", name, ends[i]);
		auto_fd from = openat(s->fd, file, O_RDONLY | O_CLOEXEC);
		if (from < 0)
			return fail(err, -errno, file);
		int r = put_file(git, dir, file, from, NULL, 0444);
		if (r < 0)
			return fail(err, r, file);
	}
	return 0;
}

/* ---- the ref ---- */

/* The folder of that name in `dir`, made where it isn't there. */
static int enter(const struct place *git, int dir, const char *name)
{
	int fd = io_open_beneath(dir, name, O_RDONLY | O_DIRECTORY);
	if (fd != -ENOENT)
		return fd;
	if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = io_open_beneath(dir, name, O_RDONLY | O_DIRECTORY);
	int r = fd < 0 ? fd : give(git, fd);
	if (r < 0)
		cleanup_close(&fd);
	return r < 0 ? r : fd;
}

static int bring_ref(const struct place *git, const struct oid *commit, const char *branch,
		     struct err *err)
{
	char path[NAME_SIZE_MAX], text[OID_HEX + 2];
	if (snprintf(path, sizeof(path), "refs/remotes/bough/%s", branch) >= (int)sizeof(path))
		return fail(err, -ENAMETOOLONG, branch);
	auto_fd dir = dup(git->fd);
	if (dir < 0)
		return fail(err, -errno, ".git");
	char *name = path;
	for (char *slash; (slash = strchr(name, '/')); name = slash + 1) {
		*slash = '\0';
		int next = enter(git, dir, name);
		*slash = '/';
		if (next < 0)
			return fail(err, next, path);
		(void)close(dir); /* only read */
		dir = next;
	}
	oid_hex(text, commit);
	text[OID_HEX] = '\n';
	text[OID_HEX + 1] = '\0';
	int r = put_file(git, dir, name, -1, text, 0644);
	return r < 0 ? fail(err, r, path) : 0;
}

int gitsync_tell(struct snapd *sd, const struct gitwork *work, const struct oid *commit,
		 const char *branch, struct err *err)
{
	__attribute__((cleanup(scratch_done))) struct scratch s = { .fd = -1 };
	char name[GIT_OID_HEXSZ + 1];
	struct place git = { .fd = -1 };
	int r = open_git(sd, work, &git, err);
	auto_fd fd = git.fd;
	if (r >= 0)
		r = scratch_make(&s, sd->root, err);
	if (r >= 0)
		r = write_pack(work, commit, s.path, name, err);
	if (r >= 0 && name[0])
		r = bring_pack(&git, &s, name, err);
	if (r >= 0)
		r = bring_ref(&git, commit, branch, err);
	return fd >= 0 || r < 0 ? r : 0;
}
