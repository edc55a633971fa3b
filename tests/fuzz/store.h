/* A store and a folder of images for one run of a fuzzer: on the host's disk, never synced. */
#ifndef BOUGH_TESTS_FUZZ_STORE_H
#define BOUGH_TESTS_FUZZ_STORE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "fs/base/io.h"
#include "fs/store/store.h"

static struct {
	char dir[300], images[320], store_dir[320];
	struct store *store;
	struct store_session *session;
	struct io io;
	uint64_t ino;
} here;

static int no_sync(void *ctx, int fd)
{
	return 0;
}

static void clean_up(void)
{
	store_session_end(here.session);
	store_close(here.store);
	(void)io_remove_tree(AT_FDCWD, here.dir, NULL); /* a temporary folder */
}

/* `name`: the fuzzer's, of its folder. Once; it goes at the end. */
static void set_up(const char *name)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(here.dir, sizeof(here.dir), "%s/%s.XXXXXX", tmp ? tmp : "/tmp", name);
	if (!mkdtemp(here.dir))
		abort();
	(void)snprintf(here.images, sizeof(here.images), "%s/images", here.dir);
	(void)snprintf(here.store_dir, sizeof(here.store_dir), "%s/store", here.dir);
	here.io = io_host;
	here.io.fsync = here.io.fdatasync = no_sync;
	const struct store_options opt = { .io = &here.io, .create = true };
	if (mkdir(here.images, 0700) < 0 ||
	    store_open(&here.store, here.store_dir, &opt, NULL) < 0 ||
	    store_session_begin(here.store, &here.session, NULL) < 0)
		abort();
	(void)atexit(clean_up);
}

/* For archive_import_options: inode numbers, one after the other. */
static int reserve(void *ctx, uint64_t n, uint64_t *first, struct err *err)
{
	*first = here.ino;
	here.ino += n;
	return 0;
}

#endif
