/* Any bytes as a tar stream that is unpacked on the host: they are refused with one line, or make
 * files, and either way nothing is made or changed outside of the folder. Where a block looks
 * like the header of a tar member its checksum is made right. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "tests/fuzz/tar.h"
#include "tools/pack/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	INPUT_MAX = 1 << 16,
};

static char above[256], into[300], beside[300];
static struct stat before;

static void clean_up(void)
{
	(void)io_remove_tree(AT_FDCWD, above, NULL); /* a temporary folder */
}

/* above/into is where it goes; above/beside is what a hostile stream would like to reach. */
static void set_up(void)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(above, sizeof(above), "%s/fuzz_unpack.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(above))
		abort();
	(void)snprintf(into, sizeof(into), "%s/into", above);
	(void)snprintf(beside, sizeof(beside), "%s/beside", above);
	FILE *f = fopen(beside, "w");
	if (!f || fputs("mine\n", f) < 0 || fclose(f) != 0 || stat(beside, &before) < 0)
		abort();
	(void)atexit(clean_up);
}

static void check_outside(void)
{
	struct stat now;
	unsigned n = 0;
	auto_dir *d = opendir(above);
	if (!d || lstat(beside, &now) < 0)
		abort();
	while (readdir(d))
		n++;
	if (n != 4 || now.st_ino != before.st_ino || now.st_nlink != 1 || now.st_size != 5 ||
	    now.st_mode != before.st_mode || now.st_uid != before.st_uid ||
	    now.st_ctim.tv_nsec != before.st_ctim.tv_nsec)
		abort();
}

static void quiet(void *ctx, const char *line)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct unpack_options opt = { .top = size & 1, .say = quiet };
	struct err err = { 0 };
	if (!*above)
		set_up();
	if (size == 0 || size > INPUT_MAX)
		return 0;
	uint8_t *copy = malloc(size);
	auto_fd in = memfd_create("fuzz", MFD_CLOEXEC);
	if (!copy || in < 0 || mkdir(into, 0700) < 0)
		abort();
	memcpy(copy, data, size);
	fix_sums(copy, size);
	if (write(in, copy, size) != (ssize_t)size || lseek(in, 0, SEEK_SET) < 0)
		abort();
	int r = unpack_tree(into, in, &opt, &err);
	if (r < 0 && (r != err.code || !err.text[0] || strchr(err.text, '\n')))
		abort();
	check_outside();
	free(copy);
	if (io_remove_tree(AT_FDCWD, into, NULL) < 0)
		abort();
	return 0;
}
