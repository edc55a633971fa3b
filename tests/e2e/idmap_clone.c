/* Makes an idmapped clone of a mount, and runs a command as root of a user namespace that sees it:
 *
 *     idmap_clone BASE SOURCE TARGET COMMAND…
 *
 * SOURCE is a mount; its clone appears at TARGET (a folder), in a mount namespace of the command's
 * own. Ids 0 … 65535 of the mount are BASE … on the host, and 0 … to the command. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call)                                                            \
	({                                                                  \
		long r_ = (long)(call);                                     \
		if (r_ < 0) {                                               \
			fprintf(stderr, "%s: %s\n", #call, strerror(errno)); \
			exit(125);                                          \
		}                                                           \
		(int)r_;                                                    \
	})

static void write_file(const char *path, const char *text)
{
	int fd = OK(open(path, O_WRONLY | O_CLOEXEC));
	OK(write(fd, text, strlen(text)));
	close(fd);
}

/* A process that holds a user namespace with the range. */
static pid_t new_namespace(unsigned base)
{
	int ready[2];
	OK(pipe(ready));
	pid_t pid = OK(fork());
	if (pid == 0) {
		OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
		OK(unshare(CLONE_NEWUSER));
		OK(write(ready[1], "", 1));
		for (;;)
			pause();
	}
	char c;
	OK(read(ready[0], &c, 1));
	char path[64], map[64];
	(void)snprintf(map, sizeof(map), "0 %u 65536\n", base);
	(void)snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	write_file(path, map);
	(void)snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	write_file(path, map);
	return pid;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		return 125;
	pid_t holder = new_namespace((unsigned)strtoul(argv[1], NULL, 0));
	char path[64];
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", holder);
	int ns = OK(open(path, O_RDONLY | O_CLOEXEC));
	OK(unshare(CLONE_NEWNS));
	OK(syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE,
		   &(struct mount_attr){ .propagation = 1 << 18 }, sizeof(struct mount_attr)));
	int tree = OK(syscall(SYS_open_tree, AT_FDCWD, argv[2],
			      OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)ns };
	OK(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)));
	OK(syscall(SYS_move_mount, tree, "", AT_FDCWD, argv[3], MOVE_MOUNT_F_EMPTY_PATH));
	pid_t pid = OK(fork());
	if (pid == 0) {
		OK(setns(ns, CLONE_NEWUSER));
		OK(setgid(0));
		OK(setuid(0));
		OK(chdir(argv[3]));
		execvp(argv[4], argv + 4);
		perror(argv[4]);
		_exit(125);
	}
	int status;
	OK(waitpid(pid, &status, 0));
	kill(holder, SIGKILL);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
