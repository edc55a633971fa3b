/* A folder of its own for each test, removed with all that is in it. */
#ifndef BOUGH_TESTS_PLACE_H
#define BOUGH_TESTS_PLACE_H

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"

struct place {
	char path[256];
	int fd; /* of the folder */
};

static inline int place_set_up(void **state)
{
	static struct place p;
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(p.path, sizeof(p.path), "%s/bough_test.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(p.path))
		return -1;
	p.fd = open(p.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = &p;
	return p.fd < 0 ? -1 : 0;
}

static inline int place_tear_down(void **state)
{
	struct place *p = *state;
	(void)close(p->fd);
	return io_remove_tree(AT_FDCWD, p->path, NULL);
}

/* How many names a folder has. */
static inline unsigned place_entries(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	auto_dir *d = fdopendir(fd);
	unsigned n = 0;
	while (readdir(d))
		n++;
	return n - 2;
}

#endif
