/* A catalog in a folder of its own for each test, removed with all that is in it. */
#ifndef BOUGH_TESTS_CATALOG_KIT_H
#define BOUGH_TESTS_CATALOG_KIT_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include "fs/base/io.h"
#include "snapd/catalog.h"
#include "snapd/snapd.h"

struct fixture {
	char root[64];
	struct catalog *c;
	struct snapd sd; /* which has these two, and nothing else */
};

static inline int catalog_set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	(void)snprintf(f->root, sizeof(f->root), "/tmp/bough-catalog.XXXXXX");
	if (!mkdtemp(f->root) || catalog_open(&f->c, f->root, NULL, NULL) < 0)
		return -1;
	f->sd = (struct snapd){ .root = f->root, .catalog = f->c };
	*state = f;
	return 0;
}

static inline int catalog_tear_down(void **state)
{
	struct fixture *f = *state;
	catalog_close(f->c);
	(void)io_remove_tree(AT_FDCWD, f->root, NULL);
	free(f);
	return 0;
}

#endif
