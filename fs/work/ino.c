#include "fs/work/ino.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"

static const char MAGIC[8] = "BOUGHIN1";
enum { FILE_BYTES = 24 }; /* magic, next, XXH3 of both */

/* The file, open and locked. */
struct counter {
	const struct io *io;
	int dir, fd;
	bool fresh; /* it was empty: just made, or made by somebody who died before writing */
	uint64_t next;
};

static void counter_close(struct counter *c)
{
	/* What mattered was synced. */
	if (c->fd >= 0)
		(void)c->io->close(c->io->ctx, c->fd);
	if (c->dir >= 0)
		(void)c->io->close(c->io->ctx, c->dir);
	c->fd = c->dir = -1;
}

/* Whether a folder of the root holds anything: then numbers were given out before. */
static bool has_entries(int root, const char *name)
{
	int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno != ENOENT; /* numbers that were given out mustn't be again */
	auto_dir *d = fdopendir(fd);
	if (!d) {
		(void)close(fd); /* only read */
		return true;
	}
	struct dirent *de;
	while (errno = 0, (de = readdir(d)))
		if (de->d_name[0] != '.')
			return true;
	return errno != 0;
}

static int counter_open(struct counter *c, const struct io *io, const char *root, int flags,
			struct err *err)
{
	io = io ? io : &io_host;
	*c = (struct counter){ .io = io, .dir = -1, .fd = -1 };
	c->dir = io->open(io->ctx, AT_FDCWD, root, O_RDONLY | O_DIRECTORY, 0);
	if (c->dir < 0)
		return err_sys(err, c->dir, "open %s", root);
	c->fd = io->open(io->ctx, c->dir, "ino", flags, 0600);
	if (c->fd < 0)
		return err_sys(err, c->fd, "open the inode counter");
	int r;
	do
		r = flock(c->fd, LOCK_EX);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return err_sys(err, -errno, "lock the inode counter");
	uint8_t b[FILE_BYTES + 1];
	ssize_t n = io_read_full(io, c->fd, b, sizeof(b), 0);
	if (n < 0)
		return err_sys(err, (int)n, "read the inode counter");
	c->fresh = n == 0;
	if (c->fresh) {
		c->next = INO_FIRST;
		return 0;
	}
	c->next = le_get64(b + 8);
	if (n != FILE_BYTES || memcmp(b, MAGIC, sizeof(MAGIC)) != 0 ||
	    le_get64(b + 16) != hash_xxh3(b, 16, 0) || c->next < INO_FIRST)
		return err_set(err, -EBADMSG,
			       "the inode counter %s/ino is damaged; `bough fsck --repair` "
			       "rebuilds it",
			       root);
	return 0;
}

static int counter_write(struct counter *c, uint64_t next, struct err *err)
{
	uint8_t b[FILE_BYTES];
	memcpy(b, MAGIC, sizeof(MAGIC));
	le_put64(b + 8, next);
	le_put64(b + 16, hash_xxh3(b, 16, 0));
	int r = io_write_full(c->io, c->fd, b, sizeof(b), 0);
	if (r == 0)
		r = c->io->fdatasync(c->io->ctx, c->fd);
	if (r == 0 && c->fresh)
		r = c->io->fsync(c->io->ctx, c->dir);
	return r < 0 ? err_sys(err, r, "write the inode counter") : 0;
}

int ino_reserve(const struct io *io, const char *root, uint64_t n, uint64_t *first, struct err *err)
{
	struct counter c __attribute__((cleanup(counter_close)));
	int r = counter_open(&c, io, root, O_RDWR | O_CREAT, err);
	if (r < 0)
		return r;
	if (c.fresh && (has_entries(c.dir, "ws") || has_entries(c.dir, "images")))
		return err_set(err, -EBADMSG,
			       "the inode counter %s/ino is missing; `bough fsck --repair` "
			       "rebuilds it",
			       root);
	if (n > INO_MAX || c.next > INO_MAX - n)
		return err_set(err, -ENOSPC, "no inode numbers are left in %s", root);
	r = counter_write(&c, c.next + n, err);
	if (r < 0)
		return r;
	*first = c.next;
	return 0;
}

int ino_peek(const struct io *io, const char *root, uint64_t *next, struct err *err)
{
	struct counter c __attribute__((cleanup(counter_close)));
	int r = counter_open(&c, io, root, O_RDONLY, err);
	if (r == 0)
		*next = c.next;
	return r;
}

/* ---- the rest of a range ---- */

static const char REST[] = "ino.rest", REST_MAGIC[8] = "BOUGHIR1";
enum { REST_BYTES = 48 }; /* magic, boot id, next, end, XXH3 of all before */

int ino_rest_put(const struct io *io, int rootfd, const uint8_t *boot, uint64_t next, uint64_t end)
{
	uint8_t b[REST_BYTES];
	memcpy(b, REST_MAGIC, 8);
	memcpy(b + 8, boot, 16);
	le_put64(b + 24, next);
	le_put64(b + 32, end);
	le_put64(b + 40, hash_xxh3(b, 40, 0));
	int r = -1, fd = io->open(io->ctx, rootfd, REST, O_WRONLY | O_CREAT, 0600);
	if (fd >= 0) {
		r = io_write_full(io, fd, b, sizeof(b), 0);
		(void)io->close(io->ctx, fd); /* nothing of it has to be durable */
	}
	if (r == 0)
		return 0;
	/* An older one must not be believed: it gives what is used by now. */
	r = io->unlink(io->ctx, rootfd, REST, 0);
	return r == -ENOENT ? 0 : r;
}

int ino_rest_take(const struct io *io, const char *root, int rootfd, const uint8_t *boot,
		  uint64_t *next, uint64_t *end)
{
	auto_free uint8_t *b = NULL;
	size_t len;
	uint64_t counter = 0;
	int r = io_slurp(io, rootfd, REST, REST_BYTES, (void **)&b, &len, NULL);
	if (r < 0)
		return r;
	if (len != REST_BYTES || memcmp(b, REST_MAGIC, 8) != 0 ||
	    le_get64(b + 40) != hash_xxh3(b, 40, 0) || memcmp(b + 8, boot, 16) != 0)
		return -ENOENT;
	r = ino_peek(io, root, &counter, NULL);
	if (r < 0)
		return r;
	if (le_get64(b + 32) != counter || le_get64(b + 24) >= counter)
		return -ENOENT;
	*next = le_get64(b + 24);
	*end = counter;
	return 0;
}

int ino_rebuild(const struct io *io, const char *root, uint64_t next, struct err *err)
{
	struct counter c __attribute__((cleanup(counter_close)));
	int r = counter_open(&c, io, root, O_RDWR | O_CREAT, err);
	if (r < 0 && r != -EBADMSG)
		return r;
	if (r == 0 && !c.fresh && c.next > next)
		next = c.next;
	if (next < INO_FIRST || next > INO_MAX)
		return err_set(err, -EINVAL, "%" PRIu64 " is no inode number", next);
	r = c.io->ftruncate(c.io->ctx, c.fd, FILE_BYTES);
	if (r < 0)
		return err_sys(err, r, "write the inode counter");
	c.fresh = true; /* its name may be new too */
	return counter_write(&c, next, err);
}
