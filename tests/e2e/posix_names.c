/* Names: creating, linking, renaming and removing them, and reading directories. */
#include <dirent.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include "tests/e2e/posix.h"

static void touch(const char *path)
{
	int fd = OK(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
	OK(close(fd));
}

static void create(void)
{
	struct stat before = stat_of(".");
	tick();
	int fd = OK(open("a", O_RDWR | O_CREAT | O_EXCL, 0666));
	struct stat st;
	OK(fstat(fd, &st));
	CHECK(S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0644);
	CHECK(st.st_nlink == 1 && st.st_size == 0 && st.st_blocks == 0);
	CHECK(st.st_uid == geteuid());
	struct stat after = stat_of(".");
	CHECK(later(after.st_mtim, before.st_mtim) && later(after.st_ctim, before.st_ctim));
	FAILS(open("a", O_RDWR | O_CREAT | O_EXCL, 0666), EEXIST);
	FAILS(open(".", O_RDWR | O_CREAT, 0666), EISDIR);
	FAILS(open(".", O_WRONLY), EISDIR);
	FAILS(open("a/b", O_RDWR | O_CREAT, 0666), ENOTDIR);
	FAILS(open("none/b", O_RDWR | O_CREAT, 0666), ENOENT);
	FAILS(open("none", O_RDONLY), ENOENT);
	FAILS(open("a", O_RDONLY | O_DIRECTORY), ENOTDIR);
	FAILS(open("new/", O_RDWR | O_CREAT, 0666), EISDIR);
	FAILS(open("", O_RDONLY), ENOENT);
	/* Mode bits of the creation don't bind the descriptor that made it. */
	int ro = OK(open("b", O_RDWR | O_CREAT, 0));
	CHECK(write(ro, "x", 1) == 1);
	CHECK((stat_of("b").st_mode & 07777) == 0);
	(void)umask(0);
	OK(open("c", O_RDWR | O_CREAT, 06777));
	CHECK((stat_of("c").st_mode & 07777) == 06777);
}

static void folders(void)
{
	CHECK(stat_of(".").st_nlink == 2);
	OK(mkdir("d", 0777));
	struct stat st = stat_of("d");
	CHECK(S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0755 && st.st_nlink == 2);
	CHECK(stat_of(".").st_nlink == 3);
	FAILS(mkdir("d", 0777), EEXIST);
	touch("f");
	FAILS(mkdir("f", 0777), EEXIST);
	FAILS(mkdir("f/x", 0777), ENOTDIR);
	FAILS(mkdir("none/x", 0777), ENOENT);
	OK(mkdir("d/e", 0700));
	CHECK(stat_of("d").st_nlink == 3);
	FAILS(rmdir("d"), ENOTEMPTY);
	FAILS(rmdir("f"), ENOTDIR);
	FAILS(rmdir("none"), ENOENT);
	FAILS(rmdir("d/."), EINVAL);
	FAILS(rmdir("d/.."), ENOTEMPTY);
	FAILS(unlink("d"), EISDIR);
	OK(rmdir("d/e"));
	CHECK(stat_of("d").st_nlink == 2);
	OK(rmdir("d/"));
	CHECK(stat_of(".").st_nlink == 2);
	OK(symlink("f", "l"));
	FAILS(rmdir("l"), ENOTDIR);
	FAILS(mkdir("l", 0777), EEXIST);
}

static void removed_folder(void)
{
	OK(mkdir("d", 0777));
	int fd = OK(open("d", O_RDONLY | O_DIRECTORY));
	OK(rmdir("d"));
	struct stat st;
	OK(fstat(fd, &st));
	CHECK(st.st_nlink == 0);
	FAILS(openat(fd, "x", O_RDWR | O_CREAT, 0666), ENOENT);
	FAILS(mkdirat(fd, "x", 0777), ENOENT);
	DIR *d = fdopendir(fd);
	CHECK(d);
	CHECK(readdir(d) == NULL);
}

static void unlinking(void)
{
	touch("f");
	OK(link("f", "g"));
	struct stat before = stat_of("f"), dir = stat_of(".");
	tick();
	OK(unlink("g"));
	struct stat after = stat_of("f");
	CHECK(after.st_nlink == 1 && later(after.st_ctim, before.st_ctim));
	CHECK(same_time(after.st_mtim, before.st_mtim));
	CHECK(later(stat_of(".").st_mtim, dir.st_mtim));
	FAILS(unlink("g"), ENOENT);
	FAILS(unlink("f/x"), ENOTDIR);
	FAILS(unlink("none/x"), ENOENT);
	FAILS(unlink("f/"), ENOTDIR);
	OK(unlink("f"));
	FAILS(access("f", F_OK), ENOENT);
	touch("f"); /* a name comes back after the kernel has learned that it is gone */
	OK(access("f", F_OK));
}

static void unlinked_open(void)
{
	int fd = OK(open("f", O_RDWR | O_CREAT, 0666));
	CHECK(write(fd, "hello", 5) == 5);
	OK(unlink("f"));
	struct stat st;
	OK(fstat(fd, &st));
	CHECK(st.st_nlink == 0 && st.st_size == 5);
	char buf[8];
	CHECK(pread(fd, buf, 8, 0) == 5 && memcmp(buf, "hello", 5) == 0);
	CHECK(pwrite(fd, "J", 1, 0) == 1);
	OK(ftruncate(fd, 100000));
	CHECK(pread(fd, buf, 8, 0) == 8 && memcmp(buf, "Jello\0\0\0", 8) == 0);
	OK(fchmod(fd, 0600));
	OK(fstat(fd, &st));
	CHECK((st.st_mode & 0777) == 0600 && st.st_nlink == 0);
	char proc[64];
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	FAILS(linkat(AT_FDCWD, proc, AT_FDCWD, "again", AT_SYMLINK_FOLLOW), ENOENT);
	int again = OK(open(proc, O_RDONLY));
	CHECK(read(again, buf, 1) == 1 && buf[0] == 'J');
	/* Replaced by a rename, it lives on too. */
	put_file("g", "old", 0644);
	int old = OK(open("g", O_RDONLY));
	put_file("h", "new", 0644);
	OK(rename("h", "g"));
	CHECK(read(old, buf, 8) == 3 && memcmp(buf, "old", 3) == 0);
	CHECK(file_is("g", "new"));
	OK(fstat(old, &st));
	CHECK(st.st_nlink == 0);
}

static void links(void)
{
	put_file("f", "one", 0644);
	struct stat before = stat_of("f");
	tick();
	OK(link("f", "g"));
	struct stat after = stat_of("g");
	CHECK(after.st_ino == before.st_ino && after.st_nlink == 2);
	CHECK(stat_of("f").st_nlink == 2 && later(after.st_ctim, before.st_ctim));
	put_file("g", "two!", 0644);
	CHECK(file_is("f", "two!") && stat_of("f").st_size == 4);
	OK(mkdir("d", 0777));
	FAILS(link("f", "g"), EEXIST);
	FAILS(link("f", "d"), EEXIST);
	FAILS(link("d", "e"), EPERM);
	FAILS(link("none", "e"), ENOENT);
	FAILS(link("f", "none/e"), ENOENT);
	OK(symlink("f", "l"));
	OK(link("l", "m")); /* of the symlink itself */
	CHECK(S_ISLNK(stat_of("m").st_mode) && stat_of("m").st_nlink == 2);
	OK(linkat(AT_FDCWD, "l", AT_FDCWD, "n", AT_SYMLINK_FOLLOW));
	CHECK(S_ISREG(stat_of("n").st_mode) && stat_of("f").st_nlink == 3);
	OK(link("f", "d/h"));
	OK(unlink("f"));
	CHECK(stat_of("d/h").st_nlink == 3 && file_is("d/h", "two!"));
	for (int i = 0; i < 1000; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "x%d", i);
		OK(link("d/h", name));
	}
	CHECK(stat_of("g").st_nlink == 1003);
}

static void symlinks(void)
{
	static char target[4200], got[4200];
	OK(symlink("nowhere/at all", "l"));
	struct stat st = stat_of("l");
	CHECK(S_ISLNK(st.st_mode) && st.st_size == 14 && (st.st_mode & 07777) == 0777);
	CHECK(readlink("l", got, sizeof(got)) == 14 && memcmp(got, "nowhere/at all", 14) == 0);
	CHECK(readlink("l", got, 7) == 7);
	FAILS(open("l", O_RDONLY), ENOENT);
	FAILS(open("l", O_RDONLY | O_NOFOLLOW), ELOOP);
	FAILS(symlink("x", "l"), EEXIST);
	FAILS(symlink("", "e"), ENOENT);
	memset(target, 'a', sizeof(target));
	target[4095] = '\0';
	OK(symlink(target, "long"));
	CHECK(stat_of("long").st_size == 4095);
	CHECK(readlink("long", got, sizeof(got)) == 4095 && memcmp(got, target, 4095) == 0);
	target[4095] = 'a';
	target[4096] = '\0';
	FAILS(symlink(target, "longer"), ENAMETOOLONG);
	OK(symlink("loop2", "loop1"));
	OK(symlink("loop1", "loop2"));
	FAILS(open("loop1", O_RDONLY), ELOOP);
	put_file("f", "text", 0644);
	FAILS(readlink("f", got, sizeof(got)), EINVAL);
	OK(symlink("f", "to-f"));
	CHECK(file_is("to-f", "text"));
	OK(unlink("to-f"));
	OK(symlink("l", "to-f")); /* the same name, another target: nothing stale */
	CHECK(readlink("to-f", got, sizeof(got)) == 1);
	OK(mkdir("d", 0777));
	OK(symlink("d", "to-d"));
	OK(mkdir("to-d/sub", 0777));
	CHECK(S_ISDIR(stat_of("d/sub").st_mode));
}

static void renames(void)
{
	put_file("a", "A", 0644);
	put_file("b", "B", 0644);
	OK(mkdir("d", 0777));
	OK(mkdir("e", 0777));
	OK(mkdir("full", 0777));
	touch("full/x");
	ino_t ino = stat_of("a").st_ino;
	struct stat dir = stat_of("."), st = stat_of("a");
	tick();
	OK(rename("a", "c"));
	CHECK(stat_of("c").st_ino == ino && later(stat_of("c").st_ctim, st.st_ctim));
	CHECK(later(stat_of(".").st_mtim, dir.st_mtim));
	FAILS(access("a", F_OK), ENOENT);
	OK(rename("c", "b"));
	CHECK(file_is("b", "A"));
	FAILS(rename("none", "x"), ENOENT);
	FAILS(rename("b", "d"), EISDIR);
	FAILS(rename("d", "b"), ENOTDIR);
	FAILS(rename("d", "full"), ENOTEMPTY);
	FAILS(rename("d", "d/sub"), EINVAL);
	FAILS(rename("b", "none/x"), ENOENT);
	FAILS(rename("b", "b/x"), ENOTDIR);
	FAILS(rename("full/x", "full"), ENOTEMPTY); /* what Linux says before EISDIR */
	OK(rename("d", "e"));                       /* over an empty one */
	FAILS(access("d", F_OK), ENOENT);
	CHECK(stat_of(".").st_nlink == 4);
	OK(link("b", "h"));
	OK(rename("b", "h")); /* two names of one file: nothing happens */
	CHECK(stat_of("b").st_nlink == 2 && stat_of("h").st_nlink == 2);
	OK(rename("b", "b"));
	/* A directory takes its ".." along, and the parents' counts. */
	OK(mkdir("e/sub", 0777));
	OK(rename("e/sub", "full/sub"));
	CHECK(stat_of("e").st_nlink == 2 && stat_of("full").st_nlink == 3);
	CHECK(stat_of("full/sub/..").st_ino == stat_of("full").st_ino);
	int sub = OK(open("full/sub", O_RDONLY | O_DIRECTORY));
	OK(rename("full/sub", "sub"));
	struct stat up;
	OK(fstatat(sub, "..", &up, 0));
	CHECK(up.st_ino == stat_of(".").st_ino);
}

static void rename_flags(void)
{
	put_file("a", "A", 0644);
	put_file("b", "B", 0644);
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_NOREPLACE), EEXIST);
	FAILS(renameat2(AT_FDCWD, "a", AT_FDCWD, "a", RENAME_NOREPLACE), EEXIST);
	OK(renameat2(AT_FDCWD, "a", AT_FDCWD, "c", RENAME_NOREPLACE));
	OK(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", RENAME_EXCHANGE));
	CHECK(file_is("b", "A") && file_is("c", "B"));
	FAILS(renameat2(AT_FDCWD, "b", AT_FDCWD, "none", RENAME_EXCHANGE), ENOENT);
	FAILS(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", RENAME_EXCHANGE | RENAME_NOREPLACE), EINVAL);
	FAILS(renameat2(AT_FDCWD, "b", AT_FDCWD, "c", 1 << 20), EINVAL);
	OK(mkdir("d", 0777));
	OK(mkdir("d/sub", 0777));
	OK(renameat2(AT_FDCWD, "d/sub", AT_FDCWD, "b", RENAME_EXCHANGE)); /* of unlike kinds */
	CHECK(S_ISDIR(stat_of("b").st_mode) && file_is("d/sub", "A"));
	CHECK(stat_of("d").st_nlink == 2 && stat_of(".").st_nlink == 4);
	CHECK(stat_of("b/..").st_ino == stat_of(".").st_ino);
	FAILS(renameat2(AT_FDCWD, "d", AT_FDCWD, "d/sub", RENAME_EXCHANGE), EINVAL);
	FAILS(renameat2(AT_FDCWD, "d/sub", AT_FDCWD, "d", RENAME_EXCHANGE), EINVAL);
}

static void rename_whiteout(void)
{
	put_file("a", "A", 0644);
	OK(renameat2(AT_FDCWD, "a", AT_FDCWD, "b", RENAME_WHITEOUT));
	struct stat st = stat_of("a");
	CHECK(S_ISCHR(st.st_mode) && st.st_rdev == 0 && file_is("b", "A"));
	OK(mkdir("d", 0777));
	OK(renameat2(AT_FDCWD, "b", AT_FDCWD, "d/b", RENAME_WHITEOUT | RENAME_NOREPLACE));
	CHECK(S_ISCHR(stat_of("b").st_mode));
	OK(unlink("a"));
	OK(unlink("b"));
	CHECK(stat_of(".").st_nlink == 3);
}

static void long_names(void)
{
	char name[300];
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	put_file(name, "long", 0644);
	CHECK(file_is(name, "long"));
	OK(rename(name, "short"));
	name[254] = 'm';
	OK(link("short", name));
	OK(unlink(name));
	name[255] = 'x';
	name[256] = '\0';
	FAILS(open(name, O_RDWR | O_CREAT, 0666), ENAMETOOLONG);
	FAILS(mkdir(name, 0777), ENAMETOOLONG);
	FAILS(symlink("x", name), ENAMETOOLONG);
	FAILS(link("short", name), ENAMETOOLONG);
	FAILS(rename("short", name), ENAMETOOLONG);
	FAILS(mkfifo(name, 0666), ENAMETOOLONG);
	FAILS(unlink(name), ENAMETOOLONG);
	FAILS(access(name, F_OK), ENAMETOOLONG);
}

static void every_byte(void)
{
	for (int c = 1; c < 256; c++) {
		char name[4] = { (char)c, 'x', (char)(256 - c), 0 };
		if (name[0] != '/' && name[2] != '/')
			touch(name);
	}
	DIR *d = opendir(".");
	CHECK(d);
	int seen = 0;
	for (struct dirent *e; (e = readdir(d));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		unsigned char a = (unsigned char)e->d_name[0], b = (unsigned char)e->d_name[2];
		CHECK(strlen(e->d_name) == 3 && a + b == 256);
		struct stat st;
		OK(fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW));
		CHECK(st.st_ino == e->d_ino);
		seen++;
	}
	CHECK(seen == 253);
	OK(closedir(d));
}

static int count_entries(const char *path)
{
	DIR *d = opendir(path);
	CHECK(d);
	int n = 0;
	errno = 0;
	while (readdir(d))
		n++;
	CHECK(errno == 0);
	OK(closedir(d));
	return n;
}

static void reading(void)
{
	touch("file");
	OK(mkdir("dir", 0777));
	OK(symlink("x", "link"));
	OK(mkfifo("fifo", 0666));
	DIR *d = opendir(".");
	CHECK(d);
	unsigned seen = 0;
	for (struct dirent *e; (e = readdir(d));) {
		static const struct {
			const char *name;
			unsigned char type;
		} want[] = { { ".", DT_DIR },   { "..", DT_DIR },   { "file", DT_REG },
			     { "dir", DT_DIR }, { "link", DT_LNK }, { "fifo", DT_FIFO } };
		unsigned i = 0;
		while (i < 6 && strcmp(want[i].name, e->d_name) != 0)
			i++;
		CHECK(i < 6 && !(seen & 1u << i));
		seen |= 1u << i;
		CHECK(e->d_type == want[i].type || e->d_type == DT_UNKNOWN);
		if (strcmp(e->d_name, "..") != 0)
			CHECK(e->d_ino == stat_of(e->d_name).st_ino);
	}
	CHECK(seen == 63);
	/* A second look, and one after each change. */
	rewinddir(d);
	int n = 0;
	while (readdir(d))
		n++;
	CHECK(n == 6);
	OK(closedir(d));
	touch("more");
	CHECK(count_entries(".") == 7 && count_entries(".") == 7);
	OK(unlink("file"));
	CHECK(count_entries(".") == 6);
	OK(rename("more", "dir/more"));
	CHECK(count_entries(".") == 5 && count_entries("dir") == 3);
	FAILS(open("link", O_RDONLY | O_DIRECTORY), ENOENT);
	char buf[64];
	int fd = OK(open("dir", O_RDONLY));
	FAILS(read(fd, buf, 1), EISDIR);
}

enum { MANY = 50000 };

static void many_entries(void)
{
	static bool seen[MANY];
	/* POSIX_FEW: enough for several buffers of getdents, where it is run again and again. */
	const int many = getenv("POSIX_FEW") ? MANY / 20 : MANY;
	OK(mkdir("big", 0777));
	int dir = OK(open("big", O_RDONLY | O_DIRECTORY));
	for (int i = 0; i < many; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "entry-%d", i);
		OK(mknodat(dir, name, S_IFREG | 0644, 0));
	}
	for (int round = 0; round < 2; round++) {
		memset(seen, 0, sizeof(seen));
		DIR *d = opendir("big");
		CHECK(d);
		int n = 0;
		for (struct dirent *e; (e = readdir(d)); n++) {
			int i;
			if (e->d_name[0] == '.')
				continue;
			CHECK(sscanf(e->d_name, "entry-%d", &i) == 1 && i >= 0 && i < many);
			CHECK(!seen[i]);
			seen[i] = true;
		}
		CHECK(n == many + 2);
		OK(closedir(d));
	}
	/* Removed while being read, as rm -r does. */
	DIR *d = opendir("big");
	CHECK(d);
	int n = 0;
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.') {
			OK(unlinkat(dir, e->d_name, 0));
			n++;
		}
	OK(closedir(d));
	CHECK(n == many);
	OK(rmdir("big"));
}

/* Every name that is there from the first to the last call is seen exactly once, whatever
 * comes and goes meanwhile. */
static void come_and_go(void)
{
	enum { STAY = 3000 };
	static int seen[STAY];
	char name[32];
	for (int i = 0; i < STAY; i++) {
		(void)snprintf(name, sizeof(name), "stay-%d", i);
		touch(name);
		(void)snprintf(name, sizeof(name), "go-%d", i);
		touch(name);
	}
	DIR *d = opendir(".");
	CHECK(d);
	int step = 0, gone = 0;
	for (struct dirent *e; (e = readdir(d)); step++) {
		int i;
		if (sscanf(e->d_name, "stay-%d", &i) == 1)
			seen[i]++;
		if (step % 2 == 0 && gone < STAY) {
			(void)snprintf(name, sizeof(name), "go-%d", gone++);
			OK(unlink(name));
			(void)snprintf(name, sizeof(name), "come-%d", gone);
			touch(name);
		}
	}
	for (int i = 0; i < STAY; i++)
		CHECK(seen[i] == 1);
	OK(closedir(d));
}

static void seeking(void)
{
	enum { N = 2000 };
	char name[32];
	for (int i = 0; i < N; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		touch(name);
	}
	DIR *d = opendir(".");
	CHECK(d);
	static long place[N + 3];
	static char names[N + 3][16];
	int n = 0;
	for (struct dirent *e;; n++) {
		place[n] = telldir(d);
		e = readdir(d);
		if (!e)
			break;
		(void)snprintf(names[n], sizeof(names[n]), "%.15s", e->d_name);
	}
	CHECK(n == N + 2);
	for (int i = n - 1; i >= 0; i -= 37) { /* back to places, in any order */
		seekdir(d, place[i]);
		struct dirent *e = readdir(d);
		CHECK(e && strcmp(e->d_name, names[i]) == 0);
	}
	seekdir(d, place[n]);
	CHECK(!readdir(d));
	/* A place stays right when what lay before it is gone. */
	int half = n / 2;
	for (int i = 0; i < half; i++)
		if (names[i][0] != '.')
			OK(unlink(names[i]));
	seekdir(d, place[half]);
	for (int i = half; i < n; i++) {
		struct dirent *e = readdir(d);
		CHECK(e && strcmp(e->d_name, names[i]) == 0);
	}
	CHECK(!readdir(d));
	OK(closedir(d));
	/* And from another descriptor, since nothing lives in the handle. */
	d = opendir(".");
	CHECK(d);
	seekdir(d, place[half + 1]);
	struct dirent *e = readdir(d);
	CHECK(e && strcmp(e->d_name, names[half + 1]) == 0);
}

static void tmpfiles(void)
{
	int fd = OK(open(".", O_RDWR | O_TMPFILE, 0666));
	struct stat st;
	OK(fstat(fd, &st));
	CHECK(st.st_nlink == 0 && (st.st_mode & 07777) == 0644 && S_ISREG(st.st_mode));
	CHECK(write(fd, "temp", 4) == 4);
	CHECK(count_entries(".") == 2);
	char proc[64];
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	OK(linkat(AT_FDCWD, proc, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
	CHECK(file_is("named", "temp") && stat_of("named").st_ino == st.st_ino);
	OK(fstat(fd, &st));
	CHECK(st.st_nlink == 1);
	FAILS(linkat(AT_FDCWD, proc, AT_FDCWD, "named", AT_SYMLINK_FOLLOW), EEXIST);
	int excl = OK(open(".", O_RDWR | O_TMPFILE | O_EXCL, 0600));
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", excl);
	FAILS(linkat(AT_FDCWD, proc, AT_FDCWD, "no", AT_SYMLINK_FOLLOW), ENOENT);
	FAILS(open("named", O_RDWR | O_TMPFILE, 0600), ENOTDIR);
	FAILS(open(".", O_RDONLY | O_TMPFILE, 0600), EINVAL);
}

static void fifos(void)
{
	OK(mkfifo("p", 0640));
	CHECK(S_ISFIFO(stat_of("p").st_mode) && (stat_of("p").st_mode & 07777) == 0640);
	FAILS(mkfifo("p", 0640), EEXIST);
	FAILS(open("p", O_WRONLY | O_NONBLOCK), ENXIO);
	fflush(NULL);
	pid_t pid = OK(fork());
	if (pid == 0) {
		int w = OK(open("p", O_WRONLY));
		CHECK(write(w, "through", 7) == 7);
		_exit(0);
	}
	char buf[16];
	int r = OK(open("p", O_RDONLY));
	CHECK(read(r, buf, sizeof(buf)) == 7 && memcmp(buf, "through", 7) == 0);
	join(pid);
}

static void sockets(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "s" };
	int l = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	OK(bind(l, (struct sockaddr *)&un, sizeof(un)));
	CHECK(S_ISSOCK(stat_of("s").st_mode));
	int again = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	FAILS(bind(again, (struct sockaddr *)&un, sizeof(un)), EADDRINUSE);
	FAILS(connect(again, (struct sockaddr *)&un, sizeof(un)), ECONNREFUSED);
	OK(listen(l, 1));
	OK(connect(again, (struct sockaddr *)&un, sizeof(un)));
	CHECK(write(again, "x", 1) == 1);
	char c;
	int peer = OK(accept(l, NULL, NULL));
	CHECK(read(peer, &c, 1) == 1 && c == 'x');
	FAILS(open("s", O_RDONLY), ENXIO);
	OK(unlink("s"));
}

static void devices(void)
{
	const dev_t numbers[] = { makedev(1, 3), makedev(259, 70000), makedev(4095, 1048575) };
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		char name[8];
		(void)snprintf(name, sizeof(name), "c%zu", i);
		OK(mknod(name, S_IFCHR | 0640, numbers[i]));
		CHECK(S_ISCHR(stat_of(name).st_mode) && stat_of(name).st_rdev == numbers[i]);
		name[0] = 'b';
		OK(mknod(name, S_IFBLK | 0640, numbers[i]));
		CHECK(S_ISBLK(stat_of(name).st_mode) && stat_of(name).st_rdev == numbers[i]);
	}
	OK(chmod(".", 0777));
	IN_CHILD(OTHER, { FAILS(mknod("x", S_IFCHR | 0666, makedev(1, 3)), EPERM); });
}

static void deep(void)
{
	enum { DEPTH = 300 };
	for (int i = 0; i < DEPTH; i++) {
		OK(mkdir("down", 0777));
		OK(chdir("down"));
	}
	put_file("bottom", "here", 0644);
	CHECK(file_is("bottom", "here"));
	static char path[8192];
	CHECK(getcwd(path, sizeof(path)));
	CHECK(strlen(path) > 5 * DEPTH);
	for (int i = 0; i < DEPTH; i++)
		OK(chdir(".."));
	CHECK(count_entries(".") == 3);
}

static void inode_numbers(void)
{
	enum { N = 500 };
	static ino_t inos[N];
	char name[32];
	for (int i = 0; i < N; i++) {
		(void)snprintf(name, sizeof(name), "f%d", i);
		touch(name);
		inos[i] = stat_of(name).st_ino;
		for (int j = 0; j < i; j++)
			CHECK(inos[i] != inos[j]);
	}
	OK(rename("f1", "g"));
	CHECK(stat_of("g").st_ino == inos[1]);
	put_file("g", "changed", 0600);
	CHECK(stat_of("g").st_ino == inos[1]);
}

static const struct posix_case cases[] = {
	{ "create", create, 0 },
	{ "folders", folders, CASE_MAY }, /* overlayfs and btrfs count links in their own way */
	{ "removed_folder", removed_folder, CASE_MAY },
	{ "unlinking", unlinking, 0 },
	{ "unlinked_open", unlinked_open, 0 },
	{ "links", links, 0 },
	{ "symlinks", symlinks, 0 },
	{ "renames", renames, CASE_MAY },
	{ "rename_flags", rename_flags, CASE_MAY },
	{ "rename_whiteout", rename_whiteout, CASE_ROOT | CASE_MAY },
	{ "long_names", long_names, 0 },
	{ "every_byte", every_byte, 0 },
	{ "reading", reading, 0 },
	{ "many_entries", many_entries, 0 },
	{ "come_and_go", come_and_go, 0 },
	{ "seeking", seeking, CASE_MAY },
	{ "tmpfiles", tmpfiles, CASE_MAY },
	{ "fifos", fifos, 0 },
	{ "sockets", sockets, 0 },
	{ "devices", devices, CASE_ROOT },
	{ "deep", deep, 0 },
	{ "inode_numbers", inode_numbers, 0 },
};

int main(int argc, char **argv)
{
	return run_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
