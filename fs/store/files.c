/* Packs that are open for reading, by id: shared by all readers, a few kept open unused. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include "fs/store/internal.h"

static void file_close(struct store *s, struct pack_file *f)
{
	(void)u64map_del(&s->files.by_id, f->id);
	(void)s->io->close(s->io->ctx, f->fd); /* only read, or synced explicitly */
	free(f);
}

/* Closes the one that was unused for longest, if there are more than `keep`; locked. */
static bool close_oldest(struct store *s, size_t keep)
{
	struct pack_file *oldest = NULL;
	struct u64map_slot *slot;
	size_t unused = 0;
	for (size_t i = 0; (slot = u64map_next(&s->files.by_id, &i));) {
		struct pack_file *f = slot->value;
		if (f->users)
			continue;
		unused++;
		if (!oldest || f->used < oldest->used)
			oldest = f;
	}
	if (!oldest || unused <= keep)
		return false;
	file_close(s, oldest);
	return true;
}

static int open_pack(struct store *s, uint64_t id)
{
	char name[PACK_NAME_BYTES];
	pack_name(name, id);
	int fd;
	do
		fd = s->io->open(s->io->ctx, s->packs_fd, name, O_RDONLY, 0);
	while ((fd == -EMFILE || fd == -ENFILE) && close_oldest(s, 0));
	return fd;
}

static int file_new(struct store *s, uint64_t id, struct pack_file **out)
{
	struct pack_file *f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	int fd = open_pack(s, id);
	if (fd < 0) {
		free(f);
		return fd;
	}
	*f = (struct pack_file){ .id = id, .fd = fd };
	int r = u64map_put(&s->files.by_id, id, f);
	if (r < 0) {
		(void)s->io->close(s->io->ctx, fd); /* nothing was done with it */
		free(f);
		return r;
	}
	*out = f;
	return 0;
}

int files_get(struct store *s, uint64_t id, struct pack_file **out)
{
	(void)pthread_mutex_lock(&s->files.lock);
	struct pack_file *f = u64map_get(&s->files.by_id, id);
	bool fresh = !f;
	int r = fresh ? file_new(s, id, &f) : 0;
	if (r == 0) {
		f->users++;
		f->used = ++s->files.clock;
		*out = f;
		if (fresh)
			(void)close_oldest(s, STORE_FILES_KEPT);
	}
	(void)pthread_mutex_unlock(&s->files.lock);
	return r;
}

void files_put(struct store *s, struct pack_file *f)
{
	(void)pthread_mutex_lock(&s->files.lock);
	f->users--;
	(void)pthread_mutex_unlock(&s->files.lock);
}

void files_sweep(struct store *s, bool all)
{
	(void)pthread_mutex_lock(&s->files.lock);
	for (bool again = true; again;) {
		again = false;
		struct u64map_slot *slot;
		for (size_t i = 0; !again && (slot = u64map_next(&s->files.by_id, &i));) {
			struct pack_file *f = slot->value;
			struct stat st;
			if (f->users ||
			    (!all && s->io->fstat(s->io->ctx, f->fd, &st) == 0 && st.st_nlink > 0))
				continue;
			file_close(s, f);
			again = true; /* the map has changed under the walk */
		}
	}
	(void)pthread_mutex_unlock(&s->files.lock);
}

void files_done(struct store *s)
{
	files_sweep(s, true);
	u64map_done(&s->files.by_id);
	(void)pthread_mutex_destroy(&s->files.lock);
}
