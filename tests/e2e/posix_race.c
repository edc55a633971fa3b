/* Several processes at the same names and files at once: what a filesystem promises of each
 * call holds whatever the others do. POSIX_RACE_MS prolongs each case. */
#include <dirent.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include "tests/e2e/posix.h"

enum {
	RACE_MS = 250,
	ACTORS = 4,
	WHOLE = 4096, /* bytes of a file that is only ever there whole */
	CONTESTS = 150,
};

static struct shared {
	atomic_uint won[CONTESTS], held;
	_Atomic uint64_t rounds[ACTORS];
} * shared;
static struct timespec end;

static bool going(unsigned who)
{
	struct timespec now;
	atomic_fetch_add(&shared->rounds[who], 1);
	OK(clock_gettime(CLOCK_MONOTONIC, &now));
	return later(end, now);
}

typedef void (*actor_fn)(unsigned who);

/* Each in a process of its own; `who` is its number. */
static void race(const actor_fn *actors, unsigned n)
{
	const char *ms = getenv("POSIX_RACE_MS");
	long for_ms = ms ? strtol(ms, NULL, 10) : RACE_MS;
	pid_t pids[ACTORS];
	OK(clock_gettime(CLOCK_MONOTONIC, &end));
	end.tv_sec += for_ms / 1000;
	end.tv_nsec += for_ms % 1000 * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	memset(shared, 0, sizeof(*shared));
	fflush(NULL);
	for (unsigned i = 0; i < n; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (pids[i] == 0) {
			actors[i](i);
			_exit(0);
		}
	}
	for (unsigned i = 0; i < n; i++)
		join(pids[i]);
}
#define RACE(...)                               \
	race((const actor_fn[]){ __VA_ARGS__ }, \
	     sizeof((actor_fn[]){ __VA_ARGS__ }) / sizeof(actor_fn))

static void share(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(shared != MAP_FAILED);
}

static void put_whole(const char *path, char c)
{
	char buf[WHOLE];
	memset(buf, c, sizeof(buf));
	int fd = OK(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
	CHECK(write(fd, buf, sizeof(buf)) == WHOLE);
	OK(close(fd));
}

/* All of it is one letter. */
static void check_whole(int fd)
{
	char buf[WHOLE + 1];
	CHECK(pread(fd, buf, sizeof(buf), 0) == WHOLE);
	CHECK(memcmp(buf, buf + 1, WHOLE - 1) == 0);
}

/* How often a folder lists a name. */
static int times_listed(const char *dir, const char *name)
{
	int n = 0;
	DIR *d = opendir(dir);
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, name) == 0;
	OK(closedir(d));
	return n;
}

static int try_rename(const char *a, const char *b)
{
	return rename(a, b) == 0 ? 0 : errno;
}

/* ---- rename ---- */

static void replacer(unsigned who)
{
	char mine[32];
	(void)snprintf(mine, sizeof(mine), "new-%u", who);
	do {
		put_whole(mine, (char)('a' + who));
		OK(rename(mine, "f"));
	} while (going(who));
}

static void replaced_reader(unsigned who)
{
	do {
		int fd = OK(open("f", O_RDONLY));
		check_whole(fd);
		OK(close(fd));
	} while (going(who));
}

static void replaced_lister(unsigned who)
{
	do {
		CHECK(times_listed(".", "f") == 1);
		CHECK(stat_of("f").st_size == WHOLE);
	} while (going(who));
}

/* A name that is only ever replaced is always there, and what it leads to is whole. */
static void rename_over(void)
{
	put_whole("f", 'z');
	RACE(replacer, replacer, replaced_reader, replaced_lister);
}

static void away_and_back(unsigned who)
{
	do {
		OK(rename("moved", "other/moved"));
		OK(rename("other/moved", "moved"));
		OK(rename("moved", "moved-to-a-longer-name"));
		OK(rename("moved-to-a-longer-name", "moved"));
	} while (going(who));
}

static void steady_lister(unsigned who)
{
	do {
		int seen = 0;
		DIR *d = opendir(".");
		CHECK(d);
		for (struct dirent *e; (e = readdir(d));)
			seen += strncmp(e->d_name, "stay-", 5) == 0;
		OK(closedir(d));
		CHECK(seen == 300);
	} while (going(who));
}

/* Who isn't renamed is listed exactly once, whatever else is. */
static void rename_and_readdir(void)
{
	char name[32];
	OK(mkdir("other", 0755));
	put_whole("moved", 'm');
	for (int i = 0; i < 300; i++) {
		(void)snprintf(name, sizeof(name), "stay-%d", i);
		put_file(name, "", 0644);
	}
	RACE(away_and_back, steady_lister, steady_lister);
	CHECK(times_listed(".", "moved") == 1 && times_listed("other", "moved") == 0);
}

static void exchanger(unsigned who)
{
	do
		OK(renameat2(AT_FDCWD, "a", AT_FDCWD, "d/b", RENAME_EXCHANGE));
	while (going(who));
}

static void exchanged(unsigned who)
{
	struct stat st;
	do {
		OK(lstat("a", &st));
		OK(lstat("d/b", &st));
		CHECK(times_listed("d", "b") == 1);
	} while (going(who));
}

static void rename_exchange(void)
{
	put_file("a", "file", 0644);
	OK(mkdir("d", 0755));
	OK(mkdir("d/b", 0755));
	RACE(exchanger, exchanger, exchanged);
	CHECK(S_ISDIR(stat_of("a").st_mode) != S_ISDIR(stat_of("d/b").st_mode));
	CHECK(stat_of("d").st_nlink == 2u + S_ISDIR(stat_of("d/b").st_mode));
}

static void a_into_b(unsigned who)
{
	do {
		int e = try_rename("p/a", "p/b/a");
		CHECK(e == 0 || e == ENOENT || e == EINVAL || e == ENOTEMPTY);
		e = try_rename("p/b/a", "p/a");
		CHECK(e == 0 || e == ENOENT || e == EINVAL || e == ENOTEMPTY);
	} while (going(who));
}

static void b_into_a(unsigned who)
{
	do {
		int e = try_rename("p/b", "p/a/b");
		CHECK(e == 0 || e == ENOENT || e == EINVAL || e == ENOTEMPTY);
		e = try_rename("p/a/b", "p/b");
		CHECK(e == 0 || e == ENOENT || e == EINVAL || e == ENOTEMPTY);
	} while (going(who));
}

static bool there(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0;
}

/* Two folders that want into each other: never both, so that neither is lost. */
static void rename_loop(void)
{
	OK(mkdir("p", 0755));
	OK(mkdir("p/a", 0755));
	OK(mkdir("p/b", 0755));
	put_file("p/a/in-a", "", 0644);
	put_file("p/b/in-b", "", 0644);
	RACE(a_into_b, b_into_a, a_into_b, b_into_a);
	const char *a = there("p/a") ? "p/a" : "p/b/a", *b = there("p/b") ? "p/b" : "p/a/b";
	CHECK(times_listed(a, "in-a") == 1 && times_listed(b, "in-b") == 1);
}

static void folder_mover(unsigned who)
{
	do {
		OK(rename("d", "e"));
		OK(rename("e", "d"));
	} while (going(who));
}

static void insider(unsigned who)
{
	char name[32];
	(void)snprintf(name, sizeof(name), "mine-%u", who);
	do {
		put_whole(name, 'i');
		CHECK(times_listed(".", name) == 1);
		OK(unlink(name));
	} while (going(who));
}

/* Who works inside of a folder doesn't notice that it gets other names. */
static void rename_around(void)
{
	OK(mkdir("d", 0755));
	int top = OK(open(".", O_RDONLY | O_DIRECTORY));
	OK(chdir("d"));
	int in = OK(open(".", O_RDONLY | O_DIRECTORY));
	OK(fchdir(top));
	fflush(NULL);
	pid_t pid = OK(fork());
	if (pid == 0) {
		OK(fchdir(in));
		RACE(insider, insider);
		_exit(0);
	}
	RACE(folder_mover);
	join(pid);
	CHECK(stat_of("d").st_nlink == 2);
}

static void pointer(unsigned who)
{
	const char *to = who ? "two" : "one";
	char mine[16];
	(void)snprintf(mine, sizeof(mine), "l-%u", who);
	do {
		OK(symlink(to, mine));
		OK(rename(mine, "l"));
	} while (going(who));
}

static void follower(unsigned who)
{
	char to[16], c;
	do {
		int fd = OK(open("l", O_RDONLY));
		CHECK(read(fd, &c, 1) == 1 && (c == '1' || c == '2'));
		OK(close(fd));
		CHECK(readlink("l", to, sizeof(to)) == 3);
	} while (going(who));
}

static void symlink_swap(void)
{
	put_file("one", "1", 0644);
	put_file("two", "2", 0644);
	OK(symlink("one", "l"));
	RACE(pointer, pointer, follower, follower);
}

/* ---- unlink, link, rmdir ---- */

static void maker(unsigned who)
{
	do {
		put_whole("new", 'm');
		OK(rename("new", "f"));
		OK(unlink("f"));
	} while (going(who));
}

static void opener(unsigned who)
{
	do {
		int fd = open("f", O_RDWR);
		if (fd < 0) {
			CHECK(errno == ENOENT);
			continue;
		}
		struct stat st;
		check_whole(fd);
		OK(fstat(fd, &st));
		CHECK(st.st_nlink <= 2 && st.st_size == WHOLE);
		CHECK(pwrite(fd, "m", 1, 17) == 1); /* perhaps nobody else's any more */
		check_whole(fd);
		OK(close(fd));
	} while (going(who));
}

static void unlink_and_open(void)
{
	RACE(maker, opener, opener);
}

static void linker(unsigned who)
{
	char mine[16];
	(void)snprintf(mine, sizeof(mine), "link-%u", who);
	do {
		/* The kernel counts links of FUSE's files itself: an unlink that another's stat has
		 * told it of already counts twice for a moment, and the file has none, for link()
		 * too. */
		if (link("f", mine) < 0) {
			CHECK(errno == ENOENT);
			continue;
		}
		unsigned n = (unsigned)stat_of(mine).st_nlink;
		CHECK(n >= 1 && n <= 4);
		OK(unlink(mine));
	} while (going(who));
}

static void link_counts(void)
{
	put_file("f", "x", 0644);
	RACE(linker, linker, linker);
	CHECK(stat_of("f").st_nlink == 1);
}

/* Gives a second name to what is being removed. */
static void late_linker(unsigned who)
{
	do {
		if (link("f", "g") < 0) {
			CHECK(errno == ENOENT);
			continue;
		}
		int fd = OK(open("g", O_RDONLY));
		check_whole(fd);
		OK(close(fd));
		CHECK(stat_of("g").st_nlink >= 1);
		OK(unlink("g"));
	} while (going(who));
}

static void link_and_unlink(void)
{
	RACE(maker, late_linker, opener);
	CHECK(!there("f") && !there("g"));
}

static void contestant(unsigned who)
{
	char name[32], mine[16];
	(void)snprintf(mine, sizeof(mine), "own-%u", who);
	put_file(mine, "", 0644);
	for (int i = 0; i < CONTESTS; i++) {
		int r;
		(void)snprintf(name, sizeof(name), "prize-%d", i);
		switch ((who + (unsigned)i) % 5) {
		case 0:
			r = mkdir(name, 0755);
			break;
		case 1:
			r = symlink("x", name);
			break;
		case 2:
			r = link(mine, name);
			break;
		case 3:
			r = renameat2(AT_FDCWD, mine, AT_FDCWD, name, RENAME_NOREPLACE);
			if (r == 0)
				put_file(mine, "", 0644);
			break;
		default:
			r = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
			if (r >= 0)
				OK(close(r));
		}
		if (r >= 0)
			atomic_fetch_add(&shared->won[i], 1);
		else
			CHECK(errno == EEXIST);
	}
}

/* Whoever makes a name first is the only one. */
static void only_one_wins(void)
{
	RACE(contestant, contestant, contestant, contestant);
	for (int i = 0; i < CONTESTS; i++)
		CHECK(shared->won[i] == 1);
}

static void folder_remover(unsigned who)
{
	do {
		if (mkdir("d", 0755) < 0)
			CHECK(errno == EEXIST);
		if (rmdir("d") < 0)
			CHECK(errno == ENOTEMPTY || errno == ENOENT);
	} while (going(who));
}

static void folder_user(unsigned who)
{
	char name[16];
	(void)snprintf(name, sizeof(name), "d/x%u", who);
	do {
		int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
		if (fd < 0) {
			CHECK(errno == ENOENT);
			continue;
		}
		OK(close(fd));
		OK(unlink(name)); /* the folder can't have gone */
	} while (going(who));
}

static void rmdir_and_create(void)
{
	RACE(folder_remover, folder_user, folder_user, folder_remover);
}

static void tree_maker(unsigned who)
{
	char name[32];
	do {
		OK(mkdir("d", 0755));
		for (int i = 0; i < 40; i++) {
			(void)snprintf(name, sizeof(name), "d/f%d", i);
			put_file(name, "", 0644);
		}
		for (int i = 0; i < 40; i++) {
			(void)snprintf(name, sizeof(name), "d/f%d", i);
			OK(unlink(name));
		}
		OK(rmdir("d"));
	} while (going(who));
}

static void tree_reader(unsigned who)
{
	do {
		bool seen[40] = { 0 };
		DIR *d = opendir("d");
		if (!d) {
			CHECK(errno == ENOENT);
			continue;
		}
		errno = 0;
		for (struct dirent *e; (e = readdir(d));) {
			int i;
			if (e->d_name[0] == '.')
				continue;
			CHECK(sscanf(e->d_name, "f%d", &i) == 1 && i < 40 && !seen[i]);
			seen[i] = true;
		}
		CHECK(errno == 0 || errno == ENOENT); /* of a folder that went */
		OK(closedir(d));
	} while (going(who));
}

static void readdir_and_rmdir(void)
{
	RACE(tree_maker, tree_reader, tree_reader);
}

static void nameless(unsigned who)
{
	do {
		char path[64];
		int fd = open(".", O_TMPFILE | O_RDWR, 0644);
		OK(fd);
		char buf[WHOLE];
		memset(buf, 'm', WHOLE);
		CHECK(write(fd, buf, WHOLE) == WHOLE);
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (linkat(AT_FDCWD, path, AT_FDCWD, "f", AT_SYMLINK_FOLLOW) < 0) {
			CHECK(errno == EEXIST);
		} else {
			/* It is nobody's to remove but ours, who made it. */
			CHECK(atomic_fetch_add(&shared->held, 1) == 0);
			CHECK(stat_of("f").st_nlink == 1);
			atomic_fetch_sub(&shared->held, 1);
			OK(unlink("f"));
		}
		OK(close(fd));
	} while (going(who));
}

static void tmpfile_link(void)
{
	RACE(nameless, nameless, opener);
}

/* ---- contents ---- */

static void shrinker(unsigned who)
{
	char buf[2 * WHOLE];
	memset(buf, 'x', sizeof(buf));
	int fd = OK(open("f", O_RDWR));
	do {
		CHECK(pwrite(fd, buf, sizeof(buf), 0) == sizeof(buf));
		OK(ftruncate(fd, 100));
		OK(ftruncate(fd, WHOLE + 100));
		OK(ftruncate(fd, 0));
	} while (going(who));
}

/* Leaves freed blocks behind that aren't `f`'s. */
static void litterer(unsigned who)
{
	do {
		put_whole("litter", 'y');
		OK(unlink("litter"));
	} while (going(who));
}

static void shrunk_reader(unsigned who)
{
	char buf[2 * WHOLE];
	int fd = OK(open("f", O_RDONLY));
	do {
		ssize_t n = OK(pread(fd, buf, sizeof(buf), 0));
		for (ssize_t i = 0; i < n; i++)
			CHECK(buf[i] == 'x' || buf[i] == 0);
	} while (going(who));
}

/* Nobody ever reads what was somebody else's. */
static void truncate_and_read(void)
{
	put_file("f", "", 0644);
	RACE(shrinker, shrunk_reader, shrunk_reader, litterer);
}

static void counter(unsigned who)
{
	int fd = OK(open("n", O_RDWR));
	do {
		uint64_t n = 0;
		struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		OK(who % 2 ? fcntl(fd, F_OFD_SETLKW, &l) : fcntl(fd, F_SETLKW, &l));
		CHECK(pread(fd, &n, sizeof(n), 0) == sizeof(n));
		n++;
		CHECK(pwrite(fd, &n, sizeof(n), 0) == sizeof(n));
		l.l_type = F_UNLCK;
		OK(who % 2 ? fcntl(fd, F_OFD_SETLK, &l) : fcntl(fd, F_SETLK, &l));
	} while (going(who));
}

/* A number that is counted up by all of them, each under its lock. */
static void locked_counter(void)
{
	uint64_t n = 0, want = 0;
	int fd = OK(open("n", O_RDWR | O_CREAT, 0644));
	CHECK(write(fd, &n, sizeof(n)) == sizeof(n));
	RACE(counter, counter, counter, counter);
	CHECK(pread(fd, &n, sizeof(n), 0) == sizeof(n));
	for (unsigned i = 0; i < ACTORS; i++)
		want += shared->rounds[i];
	CHECK(n == want);
}

/* ---- rights ---- */

static void swapper(unsigned who)
{
	do {
		put_file("new", "", 0600);
		put_file("new", "secret", 0600);
		OK(rename("new", "f"));
		put_file("new", "public", 0644);
		OK(rename("new", "f"));
	} while (going(who));
}

static void stranger(unsigned who)
{
	char buf[16];
	become(OTHER);
	do {
		int fd = open("f", O_RDONLY);
		if (fd < 0) {
			CHECK(errno == EACCES);
			continue;
		}
		CHECK(read(fd, buf, sizeof(buf)) == 6 && memcmp(buf, "public", 6) == 0);
		OK(close(fd));
		FAILS(open("f", O_WRONLY), EACCES);
		FAILS(unlink("f"), EACCES);
	} while (going(who));
}

/* What others may not read they never do, while names change from it to what they may. */
static void rights_and_rename(void)
{
	put_file("f", "public", 0644);
	RACE(swapper, stranger, stranger);
}

static void closer(unsigned who)
{
	do {
		OK(chmod("d", 0700));
		atomic_store(&shared->held, 1);
		tick();
		atomic_store(&shared->held, 0);
		OK(chmod("d", 0755));
		tick();
	} while (going(who));
}

static void shut_out(unsigned who)
{
	become(OTHER);
	do {
		/* Closed before and after, in the same turn: so all the while. */
		uint64_t turn = shared->rounds[0];
		bool closed = atomic_load(&shared->held);
		int fd = open("d/f", O_RDONLY);
		int e = fd < 0 ? errno : 0;
		if (closed && atomic_load(&shared->held) && shared->rounds[0] == turn)
			CHECK(e == EACCES);
		CHECK(e == 0 || e == EACCES);
		if (fd >= 0)
			OK(close(fd));
	} while (going(who));
}

/* A folder that was closed is so for the next call. */
static void chmod_and_walk(void)
{
	OK(mkdir("d", 0755));
	put_file("d/f", "x", 0644);
	RACE(closer, shut_out, shut_out);
}

static void xattr_setter(unsigned who)
{
	char buf[500];
	memset(buf, 'a' + (int)who, sizeof(buf));
	do {
		OK(setxattr("f", "user.a", buf, who ? 500 : 20, 0));
	} while (going(who));
}

static void xattr_getter(unsigned who)
{
	char buf[500];
	do {
		ssize_t n = OK(getxattr("f", "user.a", buf, sizeof(buf)));
		CHECK(n == (buf[0] == 'a' ? 20 : 500));
		CHECK(memcmp(buf, buf + 1, (size_t)n - 1) == 0);
		CHECK(listxattr("f", buf, sizeof(buf)) >= 7);
	} while (going(who));
}

static void xattr_replace(void)
{
	char buf[20];
	memset(buf, 'a', sizeof(buf));
	put_file("f", "x", 0644);
	OK(setxattr("f", "user.a", buf, sizeof(buf), 0));
	RACE(xattr_setter, xattr_setter, xattr_getter, xattr_getter);
}

static const struct posix_case cases[] = {
	{ "rename_over", rename_over, 0 },
	{ "rename_and_readdir", rename_and_readdir, 0 },
	{ "rename_exchange", rename_exchange, CASE_MAY },
	{ "rename_loop", rename_loop, 0 },
	{ "rename_around", rename_around, 0 },
	{ "symlink_swap", symlink_swap, 0 },
	{ "unlink_and_open", unlink_and_open, 0 },
	{ "link_counts", link_counts, 0 },
	{ "link_and_unlink", link_and_unlink, 0 },
	{ "only_one_wins", only_one_wins, 0 },
	{ "rmdir_and_create", rmdir_and_create, 0 },
	{ "readdir_and_rmdir", readdir_and_rmdir, 0 },
	{ "tmpfile_link", tmpfile_link, CASE_MAY },
	{ "truncate_and_read", truncate_and_read, 0 },
	{ "locked_counter", locked_counter, 0 },
	{ "rights_and_rename", rights_and_rename, CASE_ROOT },
	{ "chmod_and_walk", chmod_and_walk, CASE_ROOT },
	{ "xattr_replace", xattr_replace, CASE_MAY },
};

int main(int argc, char **argv)
{
	share();
	return run_cases(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
