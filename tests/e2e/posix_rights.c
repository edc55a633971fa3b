/* Rights: owners and modes, what clears suid and sgid, sticky and setgid directories,
 * extended attributes. As root where two users are needed. */
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/xattr.h>
#include "tests/e2e/posix.h"

static mode_t mode_of(const char *path)
{
	return stat_of(path).st_mode & 07777;
}

static void modes(void)
{
	put_file("f", "x", 0644);
	static const mode_t all[] = { 0, 0444, 0600, 0755, 01777, 02755, 04755, 06711, 07777 };
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		OK(chmod("f", all[i]));
		CHECK(mode_of("f") == all[i]);
	}
	OK(mkdir("d", 0700));
	OK(chmod("d", 03777));
	CHECK(mode_of("d") == 03777);
	FAILS(chmod("none", 0644), ENOENT);
	OK(symlink("f", "l"));
	OK(chmod("l", 0640)); /* goes through */
	CHECK(mode_of("f") == 0640);
}

static void denied(void)
{
	put_file("secret", "x", 0600);
	put_file("public", "x", 0644);
	put_file("program", "#!/bin/sh\n", 0744);
	OK(mkdir("closed", 0700));
	put_file("closed/f", "x", 0666);
	OK(mkdir("listed", 0744));
	put_file("listed/f", "x", 0666);
	OK(mkdir("passed", 0711));
	put_file("passed/f", "x", 0666);
	OK(mkdir("open", 0777));
	IN_CHILD(OTHER, {
		FAILS(open("secret", O_RDONLY), EACCES);
		FAILS(open("public", O_WRONLY), EACCES);
		OK(open("public", O_RDONLY));
		FAILS(access("program", X_OK), EACCES);
		OK(access("program", R_OK));
		FAILS(open("closed/f", O_RDONLY), EACCES);
		FAILS(open("closed", O_RDONLY), EACCES);
		FAILS(open("listed/f", O_RDONLY), EACCES);
		OK(open("listed", O_RDONLY));
		OK(open("passed/f", O_RDWR));
		FAILS(open("passed", O_RDONLY), EACCES);
		FAILS(open("passed/new", O_WRONLY | O_CREAT, 0666), EACCES);
		FAILS(open("new", O_WRONLY | O_CREAT, 0666), EACCES);
		FAILS(unlink("public"), EACCES);
		FAILS(rename("public", "open/x"), EACCES);
		FAILS(mkdir("sub", 0777), EACCES);
		FAILS(symlink("x", "l"), EACCES);
		FAILS(truncate("public", 0), EACCES);
		FAILS(chmod("public", 0666), EPERM);
		FAILS(chown("public", OTHER, OTHER), EPERM);
		FAILS(chdir("listed"), EACCES);
		OK(chdir("passed"));
	});
	/* The rights are asked anew after a change. */
	OK(chmod("secret", 0644));
	IN_CHILD(OTHER, { OK(open("secret", O_RDONLY)); });
	OK(chmod("secret", 0600));
	IN_CHILD(OTHER, { FAILS(open("secret", O_RDONLY), EACCES); });
	int fd = OK(open("secret", O_RDONLY)); /* what is open stays open */
	OK(chmod("secret", 0));
	char c;
	CHECK(read(fd, &c, 1) == 1);
}

static void owners(void)
{
	OK(chmod(".", 0777));
	IN_CHILD(OTHER, {
		put_file("theirs", "x", 0644);
		OK(mkdir("dir", 0755));
		OK(symlink("x", "link"));
		OK(mkfifo("fifo", 0644));
		FAILS(chown("theirs", 1, (gid_t)-1), EPERM);
		FAILS(chown("theirs", (uid_t)-1, 1), EPERM);
		OK(chown("theirs", OTHER, OTHER));
		OK(chmod("theirs", 0600));
	});
	static const char *const names[] = { "theirs", "dir", "link", "fifo" };
	for (size_t i = 0; i < 4; i++)
		CHECK(stat_of(names[i]).st_uid == OTHER && stat_of(names[i]).st_gid == OTHER);
	OK(chown("theirs", 1000, 1001));
	CHECK(stat_of("theirs").st_uid == 1000 && stat_of("theirs").st_gid == 1001);
	OK(chown("theirs", (uid_t)-1, 7));
	CHECK(stat_of("theirs").st_uid == 1000 && stat_of("theirs").st_gid == 7);
	OK(lchown("link", 5, 6));
	CHECK(stat_of("link").st_uid == 5);
	OK(chown("theirs", 4000000000u, 4000000001u));
	CHECK(stat_of("theirs").st_uid == 4000000000u);
}

static void suid_by_write(void)
{
	static const struct {
		mode_t before, after;
	} table[] = { { 06777, 0777 }, { 04766, 0766 }, { 02777, 0777 }, { 0666, 0666 } };
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		char data[2] = "y";
		put_file("f", "some text", 0666);
		OK(chmod("f", table[i].before));
		int fd = OK(open("f", O_RDWR));
		CHECK(write(fd, data, 1) == 1); /* root's writes leave them */
		CHECK(mode_of("f") == table[i].before);
		IN_CHILD(OTHER, {
			int other = OK(open("f", O_WRONLY));
			CHECK(write(other, data, 1) == 1);
			CHECK(mode_of("f") == table[i].after); /* and who wrote sees it at once */
		});
		CHECK(mode_of("f") == table[i].after);
		OK(chmod("f", table[i].before));
		IN_CHILD(OTHER, { OK(truncate("f", 3)); });
		CHECK(mode_of("f") == table[i].after && stat_of("f").st_size == 3);
		OK(chmod("f", table[i].before));
		IN_CHILD(OTHER, { OK(open("f", O_WRONLY | O_TRUNC)); });
		CHECK(mode_of("f") == table[i].after);
		OK(chmod("f", table[i].before));
		IN_CHILD(OTHER, {
			int other = OK(open("f", O_WRONLY));
			OK(fallocate(other, 0, 0, 100));
		});
		CHECK(mode_of("f") == table[i].after);
		OK(unlink("f"));
	}
}

static void suid_by_chown(void)
{
	static const struct {
		mode_t before, after;
	} table[] = { { 06755, 0755 },
		      { 04711, 0711 },
		      { 02755, 0755 },
		      { 02745, 02745 },
		      { 01644, 01644 } };
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		put_file("f", "x", 0644);
		OK(chmod("f", table[i].before));
		OK(chown("f", 1000, 1000));
		CHECK(mode_of("f") == table[i].after);
		OK(chmod("f", table[i].before));
		OK(chown("f", (uid_t)-1, 1001));
		CHECK(mode_of("f") == table[i].after);
		OK(unlink("f"));
	}
	OK(mkdir("d", 0777));
	OK(chmod("d", 06777));
	OK(chown("d", 1000, 1000));
	CHECK(mode_of("d") == 06777); /* directories keep theirs */
}

static void sgid_by_chmod(void)
{
	OK(chmod(".", 0777));
	put_file("f", "x", 0644);
	OK(chown("f", OTHER, 1)); /* theirs, but of a group they aren't in */
	IN_CHILD(OTHER, {
		OK(chmod("f", 02755));
		CHECK(mode_of("f") == 0755);
	});
}

static void setgid_folders(void)
{
	OK(mkdir("d", 0777));
	OK(chown("d", 0, 1234));
	OK(chmod("d", 02777));
	put_file("d/f", "x", 0644);
	OK(mkdir("d/sub", 0755));
	OK(symlink("x", "d/l"));
	CHECK(stat_of("d/f").st_gid == 1234 && !(mode_of("d/f") & 02000));
	CHECK(stat_of("d/sub").st_gid == 1234 && mode_of("d/sub") == 02755);
	CHECK(stat_of("d/l").st_gid == 1234);
	IN_CHILD(OTHER, {
		put_file("d/g", "x", 0644);
		CHECK(stat_of("d/g").st_gid == 1234 && stat_of("d/g").st_uid == OTHER);
		OK(mkdir("d/sub2", 0755));
		CHECK(mode_of("d/sub2") == 02755);
		(void)umask(0);
		int fd = OK(open("d/s", O_WRONLY | O_CREAT, 02777)); /* a group they aren't in */
		OK(close(fd));
		CHECK(mode_of("d/s") == 0777);
	});
}

static void sticky_folders(void)
{
	OK(mkdir("t", 0777));
	OK(chmod("t", 01777));
	put_file("t/root", "x", 0666);
	OK(mkdir("t/rootdir", 0777));
	IN_CHILD(OTHER, {
		FAILS(unlink("t/root"), EPERM);
		FAILS(rename("t/root", "t/x"), EPERM);
		FAILS(rmdir("t/rootdir"), EPERM);
		put_file("t/mine", "x", 0644);
		FAILS(rename("t/mine", "t/root"), EPERM);
		OK(rename("t/mine", "t/mine2"));
		OK(unlink("t/mine2"));
	});
	OK(chown("t", OTHER, OTHER));
	IN_CHILD(OTHER, { OK(unlink("t/root")); });
}

static void times_of_others(void)
{
	put_file("f", "x", 0666);
	put_file("g", "x", 0644);
	struct timespec t[2] = { { 1, 1 }, { 2, 2 } };
	IN_CHILD(OTHER, {
		OK(utimensat(AT_FDCWD, "f", NULL, 0));
		FAILS(utimensat(AT_FDCWD, "f", t, 0), EPERM);
		FAILS(utimensat(AT_FDCWD, "g", NULL, 0), EACCES);
	});
}

/* ---- extended attributes ---- */

static bool listed(const char *path, const char *name)
{
	char buf[4096];
	ssize_t n = OK(llistxattr(path, buf, sizeof(buf)));
	for (char *p = buf; p < buf + n; p += strlen(p) + 1)
		if (strcmp(p, name) == 0)
			return true;
	return false;
}

static void xattrs(void)
{
	char buf[512];
	put_file("f", "x", 0644);
	FAILS(getxattr("f", "user.a", buf, 10), ENODATA);
	FAILS(removexattr("f", "user.a"), ENODATA);
	struct stat before = stat_of("f");
	tick();
	OK(setxattr("f", "user.a", "value", 5, 0));
	struct stat after = stat_of("f");
	CHECK(later(after.st_ctim, before.st_ctim) && same_time(after.st_mtim, before.st_mtim));
	CHECK(getxattr("f", "user.a", buf, sizeof(buf)) == 5 && memcmp(buf, "value", 5) == 0);
	CHECK(getxattr("f", "user.a", NULL, 0) == 5);
	FAILS(getxattr("f", "user.a", buf, 4), ERANGE);
	FAILS(setxattr("f", "user.a", "x", 1, XATTR_CREATE), EEXIST);
	FAILS(setxattr("f", "user.b", "x", 1, XATTR_REPLACE), ENODATA);
	OK(setxattr("f", "user.a", "\0bin\xff", 5, XATTR_REPLACE));
	CHECK(getxattr("f", "user.a", buf, sizeof(buf)) == 5 && memcmp(buf, "\0bin\xff", 5) == 0);
	OK(setxattr("f", "user.empty", "", 0, XATTR_CREATE));
	CHECK(getxattr("f", "user.empty", buf, sizeof(buf)) == 0);
	CHECK(listed("f", "user.a") && listed("f", "user.empty"));
	ssize_t need = OK(listxattr("f", NULL, 0));
	CHECK(need >= 7 + 11);
	FAILS(listxattr("f", buf, 5), ERANGE);
	FAILS(setxattr("f", "nonsense.a", "x", 1, 0), EOPNOTSUPP);
	FAILS(setxattr("f", "user", "x", 1, 0), EOPNOTSUPP);
	OK(removexattr("f", "user.a"));
	FAILS(getxattr("f", "user.a", buf, 10), ENODATA);
	CHECK(!listed("f", "user.a"));
	OK(link("f", "g"));
	OK(setxattr("g", "user.c", "c", 1, 0));
	CHECK(getxattr("f", "user.c", buf, 10) == 1); /* of the inode, not of the name */
	OK(mkdir("d", 0777));
	OK(setxattr("d", "user.dir", "1", 1, 0));
	CHECK(listed("d", "user.dir"));
	OK(symlink("f", "l"));
	FAILS(lsetxattr("l", "user.x", "1", 1, 0), EPERM);
	OK(mkfifo("p", 0666));
	FAILS(setxattr("p", "user.x", "1", 1, 0), EPERM);
	int fd = OK(open("f", O_RDONLY));
	OK(fsetxattr(fd, "user.fd", "1", 1, 0));
	OK(unlink("f"));
	OK(unlink("g"));
	CHECK(fgetxattr(fd, "user.fd", buf, 10) == 1);
}

static void xattr_sizes(void)
{
	static char name[300], value[70000], buf[70000];
	put_file("f", "x", 0644);
	memcpy(name, "user.", 5);
	memset(name + 5, 'n', sizeof(name) - 6);
	name[255] = '\0';
	OK(setxattr("f", name, "x", 1, 0));
	CHECK(listed("f", name));
	name[255] = 'n';
	name[256] = '\0';
	FAILS(setxattr("f", name, "x", 1, 0), ERANGE);
	memset(value, 'v', sizeof(value));
	OK(setxattr("f", "user.big", value, 3000, 0));
	CHECK(getxattr("f", "user.big", buf, sizeof(buf)) == 3000 && memcmp(buf, value, 3000) == 0);
	FAILS(setxattr("f", "user.huge", value, 65537, 0), E2BIG);
	OK(removexattr("f", "user.big"));
	for (int i = 0; i < 50; i++) { /* many small ones */
		char n[32];
		(void)snprintf(n, sizeof(n), "user.small%d", i);
		OK(setxattr("f", n, n, strlen(n), 0));
	}
	for (int i = 0; i < 50; i++) {
		char n[32];
		(void)snprintf(n, sizeof(n), "user.small%d", i);
		CHECK(listed("f", n));
		CHECK(getxattr("f", n, buf, sizeof(buf)) == (ssize_t)strlen(n));
	}
}

static void xattr_rights(void)
{
	char buf[64];
	put_file("f", "x", 0644);
	OK(setxattr("f", "user.a", "1", 1, 0));
	OK(setxattr("f", "trusted.secret", "1", 1, 0));
	OK(setxattr("f", "security.thing", "1", 1, 0));
	CHECK(listed("f", "trusted.secret") && listed("f", "security.thing"));
	IN_CHILD(OTHER, {
		CHECK(getxattr("f", "user.a", buf, 10) == 1);
		FAILS(setxattr("f", "user.a", "2", 1, 0), EACCES);
		FAILS(removexattr("f", "user.a"), EACCES);
		FAILS(setxattr("f", "trusted.b", "2", 1, 0), EPERM);
		FAILS(getxattr("f", "trusted.secret", buf, 10), ENODATA);
		FAILS(setxattr("f", "security.b", "2", 1, 0), EPERM);
		CHECK(getxattr("f", "security.thing", buf, 10) == 1);
		CHECK(!listed("f", "trusted.secret") && listed("f", "user.a"));
	});
	OK(chmod("f", 0600));
	IN_CHILD(OTHER, { FAILS(getxattr("f", "user.a", buf, 10), EACCES); });
}

static void capabilities(void)
{
	struct vfs_cap_data cap = { .magic_etc = VFS_CAP_REVISION_2,
				    .data = { { 1u << CAP_NET_RAW, 0 } } };
	static const char *const how[] = { "write", "truncate", "chown" };
	char buf[64];
	for (size_t i = 0; i < 3; i++) {
		put_file("f", "text", 0777);
		OK(setxattr("f", "security.capability", &cap, sizeof(cap), 0));
		CHECK(getxattr("f", "security.capability", buf, sizeof(buf)) > 0);
		if (strcmp(how[i], "write") == 0)
			IN_CHILD(OTHER, {
				int fd = OK(open("f", O_WRONLY));
				CHECK(write(fd, "y", 1) == 1);
			});
		else if (strcmp(how[i], "truncate") == 0)
			IN_CHILD(OTHER, { OK(truncate("f", 1)); });
		else
			OK(chown("f", 1000, 1000));
		FAILS(getxattr("f", "security.capability", buf, sizeof(buf)), ENODATA);
		OK(unlink("f"));
	}
	/* Root's writes clear them too. */
	put_file("g", "text", 0777);
	OK(setxattr("g", "security.capability", &cap, sizeof(cap), 0));
	int fd = OK(open("g", O_WRONLY));
	CHECK(write(fd, "y", 1) == 1);
	FAILS(getxattr("g", "security.capability", buf, sizeof(buf)), ENODATA);
}

static const struct posix_case cases[] = {
	{ "modes", modes, 0 },
	{ "denied", denied, CASE_ROOT },
	{ "owners", owners, CASE_ROOT },
	{ "suid_by_write", suid_by_write, CASE_ROOT | CASE_MAY },
	{ "suid_by_chown", suid_by_chown, CASE_ROOT },
	{ "sgid_by_chmod", sgid_by_chmod, CASE_ROOT },
	{ "setgid_folders", setgid_folders, CASE_ROOT },
	{ "sticky_folders", sticky_folders, CASE_ROOT },
	{ "times_of_others", times_of_others, CASE_ROOT },
	{ "xattrs", xattrs, CASE_MAY },
	{ "xattr_sizes", xattr_sizes, CASE_MAY },
	{ "xattr_rights", xattr_rights, CASE_ROOT | CASE_MAY },
	{ "capabilities", capabilities, CASE_ROOT | CASE_MAY },
};

int main(int argc, char **argv)
{
	return run_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
