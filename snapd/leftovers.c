#include "snapd/leftovers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/log.h"

struct place {
	const char *path; /* below ROOT */
	bool below;       /* in each of its folders, not in itself */
	bool ours;        /* nobody but boughd writes there */
	bool everything;  /* whatever its name is */
};

static const struct place places[] = {
	{ "tmp", .ours = true, .everything = true },
	{ ".", .ours = false },
	{ "images", .ours = true },
	{ "snapshots", .ours = true },
	{ "uploads", .ours = true },
	{ "repos", .ours = true }, /* N.json, N.secret; mirrors: mirror_recover */
	{ "repos", .below = true, .ours = true },
	{ "store", .ours = false },
	{ "store/index", .ours = false },
	{ "ws", .below = true },
	{ "layers", .below = true },
};

static DIR *open_folder(int dir, const char *path)
{
	int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		cleanup_close(&fd);
	return d;
}

static bool is_old(int dir, const char *name)
{
	struct stat st;
	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_mtime + LEFTOVERS_OLD_S < time(NULL);
}

static void sweep_folder(int at, const char *path, const struct place *p)
{
	struct err err = { 0 };
	auto_dir *d = open_folder(at, path);
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (!p->everything &&
		    strncmp(e->d_name, IO_TMP_PREFIX, strlen(IO_TMP_PREFIX)) != 0)
			continue;
		if (!p->ours && !is_old(dirfd(d), e->d_name))
			continue;
		if (io_remove_tree(dirfd(d), e->d_name, &err) < 0)
			log_warn("what was left over in %s: %s", p->path, err.text);
	}
}

static void sweep_place(int root, const struct place *p)
{
	if (!p->below) {
		sweep_folder(root, p->path, p);
		return;
	}
	auto_dir *d = open_folder(root, p->path);
	const struct dirent *e;
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			sweep_folder(dirfd(d), e->d_name, p);
}

static void sweep(const char *path, bool ours)
{
	auto_fd root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; root >= 0 && i < sizeof(places) / sizeof(*places); i++)
		if (ours || !places[i].ours)
			sweep_place(root, &places[i]);
}

void leftovers_sweep(const char *root)
{
	sweep(root, true);
}

void leftovers_sweep_old(const char *root)
{
	sweep(root, false);
}
