/* bough-fsmonitor: what core.fsmonitor of a workspace's repository runs (githooks(5),
 * fsmonitor-watchman, version 2). It asks the server of the mount that it is started in for the
 * paths that changed since the token, by the value of an attribute that isn't stored anywhere, or
 * where the mount has no attributes by an ioctl, whose answers are shorter (fs/work/changed.h); and
 * hands the answer on: a new token and the paths, each with a NUL behind it. Where nobody answers
 * (another filesystem, an answer that is too long) it says "/": look at everything.
 *
 * By the name post-index-change it is that hook (outside.h); where git runs hooks of another folder
 * it does the hook's work as well, later: git may use an index meanwhile that lacks the marks.
 *
 * It runs in whatever container the workspace is mounted in, once for each `git status`: so it
 * stands alone, without libraries, and is a few kilobytes long. */
#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <stddef.h>

#include "tools/fsmonitor/outside.h"
#include "tools/fsmonitor/sys.h"

enum {
	ANSWER_MAX = 65536, /* XATTR_SIZE_MAX */
	NAME_BYTES = 256,   /* XATTR_NAME_MAX and a NUL */
	IOCTL_BYTES = 16000,
};

__asm__(".globl _start\n"
	"_start:\n"
#if defined(__x86_64__)
	"	xorl %ebp, %ebp\n"
	"	movq %rsp, %rdi\n"
	"	andq $-16, %rsp\n"
	"	call begin\n");
#else
	"	mov x29, #0\n"
	"	mov x0, sp\n"
	"	bl begin\n");
#endif

static const char prefix[] = "bough.changes.";
static char answer[ANSWER_MAX];

static long put(const char *p, long n)
{
	while (n > 0) {
		long r = call4(SYS_write, 1, (long)p, n, 0);
		if (r <= 0)
			return 1;
		p += r;
		n -= r;
	}
	return 0;
}

/* Appends a string to the name; what fits no name is asked about as nothing. */
static int add_name(char name[NAME_BYTES], size_t *n, const char *s)
{
	for (; *s && *n < NAME_BYTES - 1; s++)
		name[(*n)++] = *s;
	name[*n] = 0;
	return *s == 0;
}

/* The answer to a question by its name: its length, or less than 1. */
static long ask(const char *name)
{
	static long folder = -1;
	if (folder < 0) {
		long n = call4(SYS_getxattr, (long)".", (long)name, (long)answer, sizeof(answer));
		/* gVisor says that all there was room for came, zeros behind the answer; no path in
		 * it is empty. */
		while (n > 1 && !answer[n - 1] && !answer[n - 2])
			n--;
		if (n != -EOPNOTSUPP)
			return n;
		folder = call4(SYS_openat, AT_FDCWD, (long)".", O_RDONLY | O_DIRECTORY, 0);
	}
	size_t i = 0;
	for (const char *token = name + sizeof(prefix) - 1; (answer[i] = token[i]); i++)
		;
	return call4(SYS_ioctl, folder, _IOC(_IOC_READ | _IOC_WRITE, 0xb0, 1, IOCTL_BYTES),
		     (long)answer, 0);
}

/* Where the last string of the answer begins. */
static long last_of(long n)
{
	long at = n - 1;
	while (at > 0 && answer[at - 1])
		at--;
	return at;
}

/* Hands the answer on. Where its last string begins with "//" that isn't a part of it: the rest is
 * to be asked for with this behind the token. */
static long hand_on(char name[NAME_BYTES], size_t token_end, long n)
{
	for (;;) {
		long at = last_of(n);
		int more = answer[at] == '/' && answer[at + 1] == '/';
		size_t end = token_end;
		if (put(answer, more ? at : n))
			return 1;
		if (!more)
			return 0;
		if (!add_name(name, &end, answer + at))
			return 1;
		n = ask(name);
		/* Git takes a failure for "everything", whatever it has read before. */
		if (n <= 0 || answer[n - 1])
			return 1;
	}
}

/* ---- for which path the untracked cache is ---- */

static unsigned long be32(const char *p)
{
	const unsigned char *u = (const unsigned char *)p;
	return (unsigned long)u[0] << 24 | (unsigned long)u[1] << 16 | (unsigned long)u[2] << 8 |
	       u[3];
}

static int begins(const char *s, const char *with)
{
	while (*with && *s == *with)
		s++, with++;
	return *with == 0;
}

/* Finds the extension UNTR of the index by EOIE, its last one, and puts its beginning to `answer`:
 * how much, 0 where there is none. gitformat-index(5). */
static long read_untracked(long fd)
{
	enum { EOIE = 32, SHA = 20, EXTENSIONS_MAX = 16, WANTED = 8192 };
	long end = call4(SYS_lseek, fd, 0, 2, 0); /* SEEK_END */
	if (end < EOIE + SHA ||
	    call4(SYS_pread64, fd, (long)answer, EOIE, end - EOIE - SHA) != EOIE ||
	    !begins(answer, "EOIE"))
		return 0;
	unsigned long at = be32(answer + 8);
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		if (call4(SYS_pread64, fd, (long)answer, 8, (long)at) != 8)
			return 0;
		if (begins(answer, "UNTR"))
			return call4(SYS_pread64, fd, (long)answer, WANTED, (long)at + 8);
		at += 8 + be32(answer + 4);
	}
	return 0;
}

/* .git/bough/keep (dotgit.c) makes git leave the untracked cache in the index as it is, at the path
 * that it is for. When it is found to be for another one that ends: git makes a new one then. */
static void check_untracked(void)
{
	static char cwd[4096];
	static const char location[] = "Location ";
	long fd = call4(SYS_openat, AT_FDCWD, (long)".git/index", O_RDONLY | O_NOFOLLOW, 0);
	if (fd < 0 || call4(SYS_getcwd, (long)cwd, sizeof(cwd), 0, 0) <= 0)
		return;
	long n = read_untracked(fd), at = 0;
	if (n <= 0)
		return;
	answer[n] = 0;
	while (at < n && answer[at] & 0x80) /* a varint: how long it is */
		at++;
	at++;
	if (at >= n || !begins(answer + at, location))
		return;
	at += (long)sizeof(location) - 1;
	size_t len = 0;
	while (cwd[len])
		len++;
	if (!begins(answer + at, cwd) || !begins(answer + at + len, ", system "))
		call4(SYS_unlinkat, AT_FDCWD, (long)".git/bough/keep", 0, 0);
}

static int ends(const char *s, const char *with)
{
	for (; *s; s++)
		if (begins(s, with) && begins(with, s))
			return 1;
	return 0;
}

/* Whether the repository's configuration has a core.hooksPath, or seems to: a mistake costs one
 * look into the index. */
static int has_hooks_elsewhere(void)
{
	static const char key[] = "hookspath";
	long fd = call4(SYS_openat, AT_FDCWD, (long)".git/config", O_RDONLY | O_NOFOLLOW, 0);
	long n = call4(SYS_read, fd, (long)answer, sizeof(answer), 0);
	for (long i = 0, same = 0; i < n; i++) {
		char c = answer[i] | 0x20; /* lower case */
		same = c == key[same] ? same + 1 : c == key[0];
		if (!key[same])
			return 1;
	}
	return 0;
}

static long run(long argc, char **argv)
{
	static const char all[] = "0\0/"; /* and the NUL that ends it */
	char name[NAME_BYTES];
	size_t end = 0;
	if (argc > 0 && ends(argv[0], "/post-index-change")) {
		outside_mark();
		return 0;
	}
	if (argc < 3 || argv[1][0] != '2' || argv[1][1])
		return 1;
	long n = 0;
	if (add_name(name, &end, prefix) && add_name(name, &end, argv[2]))
		n = ask(name);
	long r = n > 0 && answer[n - 1] == 0 ? hand_on(name, end, n) : put(all, sizeof(all));
	check_untracked();
	if (has_hooks_elsewhere())
		outside_mark();
	return r;
}

/* `stack`: as the kernel leaves it: the count of arguments, then they. */
void begin(long *stack);
__attribute__((used)) void begin(long *stack)
{
	call4(SYS_exit_group, run(stack[0], (char **)(stack + 1)), 0, 0, 0);
	__builtin_unreachable();
}
