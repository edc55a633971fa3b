/* The root of a container whose /usr is the host's: what else there has to be. Also the mount
 * points that every root has. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "runtime/box_impl.h"
#include "runtime/inroot.h"

enum {
	COPY_MAX = 4 << 20,  /* bytes of a file of /etc; the biggest is ld.so.cache or the bundle of
				certificates */
	ENTRIES_MAX = 65536, /* of a folder of /etc; some hundreds are usual */
	MACHINE_ID_BYTES = 16,
};

struct folder {
	const char *path;
	unsigned mode;
};
/* Each runtime mounts on these. */
static const char *const points[] = { "dev/shm", "proc", "sys", ".bough" };
static const struct folder folders[] = {
	{ "usr", 0755 },       { "etc", 0755 },         { "home", 0755 },  { "root", 0700 },
	{ "tmp", 01777 },      { "run", 0755 },         { "run/lock", 01777 },
	{ "run/secrets", 0755 }, { "srv", 0755 },       { "opt", 0755 },   { "mnt", 0755 },
	{ "media", 0755 },     { "var", 0755 },         { "var/tmp", 01777 },
	{ "var/lib", 0755 },   { "var/cache", 0755 },   { "var/log", 0755 },
	{ "var/spool", 0755 }, { "workspace", 0755 },
};
/* Of the host, where it has them as links into /usr. */
static const char *const links[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32" };
/* Of the host's /etc, with what is in them: which alternative, which libraries, which
 * certificates, and names that never change. Nothing that says what host it is. */
static const char *const taken[] = {
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "protocols",
	"services",     "ssl/certs",
};

static const char hosts[] = "127.0.0.1\tlocalhost\n"
			    "::1\tlocalhost ip6-localhost ip6-loopback\n";
static const struct {
	const char *path, *text;
} made[] = {
	{ "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
			"daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
			"bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
			"sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
			"man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n"
			"mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
			"www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" },
	{ "etc/group", "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\n"
		       "disk:x:6:\nman:x:12:\nmail:x:8:\nsudo:x:27:\naudio:x:29:\n"
		       "www-data:x:33:\nshadow:x:42:\nutmp:x:43:\nvideo:x:44:\nstaff:x:50:\n"
		       "games:x:60:\nusers:x:100:\nnogroup:x:65534:\n" },
	{ "etc/nsswitch.conf", "passwd:\tfiles\ngroup:\tfiles\nshadow:\tfiles\n"
			       "hosts:\tfiles dns\nnetworks:\tfiles\nprotocols:\tfiles\n"
			       "services:\tfiles\nethers:\tfiles\nrpc:\tfiles\n" },
	{ "etc/hosts", hosts },
	{ "etc/host.conf", "multi on\n" },
	{ "etc/hostname", "sandbox\n" },
	{ "etc/resolv.conf", "" },
	{ "etc/shells", "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n" },
	{ "etc/fstab", "" },
	/* A checkout there is its owner's, and the sandbox's root is another. */
	{ "etc/gitconfig", "[safe]\n\tdirectory = /workspace\n" },
	{ "etc/profile", "PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:"
			 "/bin}\nexport PATH\nPS1='\\h:\\w\\$ '\n" },
};
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

const struct box_entry box_entries[] = {
	{ "dev", S_IFDIR | 0755, NULL },
	{ "dev/shm", S_IFDIR | 0755, NULL }, /* gVisor's gofer mounts it there */
	{ "proc", S_IFDIR | 0755, NULL },
	{ "sys", S_IFDIR | 0755, NULL },
	{ ".bough", S_IFDIR | 0755, NULL },
	{ "run/secrets", S_IFDIR | 0755, NULL },
	{ "tmp", S_IFDIR | S_ISVTX | 0777, NULL },
	{ "workspace", S_IFDIR | 0755, NULL },
	{ "etc/hosts", S_IFREG | 0644, hosts },
	{ "etc/hostname", S_IFREG | 0644, "sandbox\n" },
	{ "etc/resolv.conf", S_IFREG | 0644, NULL }, /* the host's is bound over it */
	{ NULL, 0, NULL },
};

/* ---- one thing each ---- */

static int make_folder(int root, const char *path, unsigned mode)
{
	if (mkdirat(root, path, 0700) < 0)
		return errno == EEXIST ? 0 : -errno;
	return fchmodat(root, path, mode, 0) < 0 ? -errno : 0;
}

static int make_file(int root, const char *path, const void *data, size_t len, unsigned mode)
{
	auto_fd fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int r = io_write_full(NULL, fd, data, len, 0);
	return r == 0 && fchmod(fd, mode) < 0 ? -errno : r;
}

static int copy_link(int from, const char *name, int to)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, to, name) < 0 ? -errno : 0;
}

static int copy_file(int from, const char *name, int to)
{
	auto_free void *data = NULL;
	size_t len;
	int r = io_slurp(NULL, from, name, COPY_MAX, &data, &len, NULL);
	return r < 0 ? r : make_file(to, name, data, len, 0644);
}

/* Of any other kind than these nothing is taken. */
static int copy_plain(int from, const char *name, int to, mode_t kind)
{
	return S_ISLNK(kind) ? copy_link(from, name, to)
	       : S_ISREG(kind) ? copy_file(from, name, to)
			       : 0;
}

/* What lies in a folder, but no folders in it: of what is taken none has any. */
static int copy_folder(int from, const char *name, int to)
{
	auto_fd src = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (src < 0)
		return -errno;
	int r = make_folder(to, name, 0755);
	if (r < 0)
		return r;
	auto_fd dst = openat(to, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	auto_fd list = dst < 0 ? -1 : openat(src, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_dir *d = list < 0 ? NULL : fdopendir(list);
	if (!d)
		return -errno;
	(void)steal_fd(&list);
	struct dirent *e;
	for (unsigned n = 0; r == 0 && (errno = 0, e = readdir(d)); n++) {
		struct stat st;
		if (n == ENTRIES_MAX)
			return -E2BIG;
		if (fstatat(src, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			r = copy_plain(src, e->d_name, dst, st.st_mode);
	}
	return r == 0 && !e && errno ? -errno : r;
}

/* A path below /etc, which the host may lack. */
static int take(int host_etc, int etc, const char *path)
{
	char part[NAME_MAX + 1];
	struct stat st;
	const char *slash = strchr(path, '/');
	if (fstatat(host_etc, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (!slash)
		return S_ISDIR(st.st_mode) ? copy_folder(host_etc, path, etc)
					   : copy_plain(host_etc, path, etc, st.st_mode);
	(void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
	int r = make_folder(etc, part, 0755);
	if (r < 0)
		return r;
	auto_fd from = openat(host_etc, part, O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_fd to = openat(etc, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0 || to < 0)
		return -errno;
	return copy_folder(from, slash + 1, to);
}

/* ---- all of it ---- */

int box_fill_points(int root, struct err *err)
{
	for (size_t i = 0; i < COUNT(points); i++) {
		auto_fd fd = inroot_make_dir(root, points[i]);
		if (fd < 0)
			return err_sys(err, fd, "the image has no place for /%s", points[i]);
	}
	return 0;
}

static int fill_entry(int root, const struct box_entry *e)
{
	char holder[PATH_MAX];
	struct stat st;
	const char *slash = strrchr(e->path, '/'), *name = slash ? slash + 1 : e->path;
	(void)snprintf(holder, sizeof(holder), "%.*s", slash ? (int)(slash - e->path) : 1,
		       slash ? e->path : "/");
	auto_fd dir = inroot_make_dir(root, holder);
	if (dir < 0)
		return dir;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!e->text || st.st_size > 0 || !S_ISREG(st.st_mode))
			return 0;
		(void)unlinkat(dir, name, 0); /* an empty one says nothing */
	}
	const char *text = e->text ? e->text : "";
	return S_ISDIR(e->mode) ? make_folder(dir, name, e->mode & 07777)
				: make_file(dir, name, text, strlen(text), e->mode & 07777);
}

int box_fill_root(const char *root, struct err *err)
{
	auto_fd fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "open %s", root);
	for (const struct box_entry *e = box_entries; e->path; e++) {
		int r = fill_entry(fd, e);
		if (r < 0)
			return err_sys(err, r, "the image has no place for /%s", e->path);
	}
	return 0;
}

static uint64_t stamp_one(uint64_t before, const char *path)
{
	struct stat st;
	if (lstat(path, &st) < 0)
		return hash_xxh3(path, strlen(path), before);
	/* What is replaced in a folder changes the folder. */
	const uint64_t seen[] = { (uint64_t)st.st_ino, st.st_mode, (uint64_t)st.st_size,
				  (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec };
	return hash_xxh3(seen, sizeof(seen), before);
}

uint64_t hostimage_stamp(void)
{
	char path[PATH_MAX];
	uint64_t stamp = 0;
	for (size_t i = 0; i < COUNT(taken); i++) {
		(void)snprintf(path, sizeof(path), "/etc/%s", taken[i]);
		stamp = stamp_one(stamp, path);
	}
	for (size_t i = 0; i < COUNT(links); i++) {
		(void)snprintf(path, sizeof(path), "/%s", links[i]);
		stamp = stamp_one(stamp, path);
	}
	for (const struct box_entry *e = box_entries; e->path; e++)
		stamp = hash_xxh3(e->path, strlen(e->path), stamp);
	return stamp;
}

static int make_links(int root, struct err *err)
{
	auto_fd host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (host < 0)
		return err_sys(err, -errno, "open /");
	for (size_t i = 0; i < COUNT(links); i++) {
		struct stat st;
		if (fstatat(host, links[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!S_ISLNK(st.st_mode))
			return err_set(err, -EOPNOTSUPP,
				       "the host image needs a host whose /%s is a link to /usr",
				       links[i]);
		int r = copy_link(host, links[i], root);
		if (r < 0)
			return err_sys(err, r, "link /%s", links[i]);
	}
	return 0;
}

static int make_machine_id(int root)
{
	uint8_t id[MACHINE_ID_BYTES];
	char text[2 * MACHINE_ID_BYTES + 2];
	random_bytes(id, sizeof(id));
	for (size_t i = 0; i < sizeof(id); i++)
		(void)snprintf(text + 2 * i, 3, "%02x", id[i]);
	(void)snprintf(text + 2 * sizeof(id), 2, "\n");
	return make_file(root, "etc/machine-id", text, sizeof(text) - 1, 0444);
}

static int make_etc(int root, struct err *err)
{
	auto_fd host = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_fd etc = openat(root, "etc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (host < 0 || etc < 0)
		return err_sys(err, -errno, "open /etc");
	for (size_t i = 0; i < COUNT(made); i++) {
		int r = make_file(root, made[i].path, made[i].text, strlen(made[i].text), 0644);
		if (r < 0)
			return err_sys(err, r, "make /%s", made[i].path);
	}
	for (size_t i = 0; i < COUNT(taken); i++) {
		int r = take(host, etc, taken[i]);
		if (r < 0)
			return err_sys(err, r, "copy /etc/%s", taken[i]);
	}
	if (symlinkat("../usr/lib/os-release", etc, "os-release") < 0)
		return err_sys(err, -errno, "link /etc/os-release");
	int r = make_machine_id(root);
	return r < 0 ? err_sys(err, r, "make /etc/machine-id") : 0;
}

int hostimage_fill(const char *path, struct err *err)
{
	auto_fd root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_sys(err, -errno, "open %s", path);
	for (size_t i = 0; i < COUNT(folders); i++) {
		int r = make_folder(root, folders[i].path, folders[i].mode);
		if (r < 0)
			return err_sys(err, r, "make /%s", folders[i].path);
	}
	if (symlinkat("/run", root, "var/run") < 0 || symlinkat("/run/lock", root, "var/lock") < 0)
		return err_sys(err, -errno, "make links in /var");
	int r = make_links(root, err);
	if (r == 0)
		r = box_fill_points(root, err);
	return r == 0 ? make_etc(root, err) : r;
}
