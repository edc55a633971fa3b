/* What a sandbox's processes may keep of their output together. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "runtime/io/proc.h"

struct log {
	char key[OUTPUT_KEY_MAX + 1];
	bool ended;
	struct timespec at; /* written to last */
	struct kept kept;
};

struct logs {
	struct io_loop *io;
	struct log *of;
	size_t n, room;
	bool failed;
};

static void add_log(void *ctx, const char *key)
{
	struct logs *l = ctx;
	struct stat st;
	const struct proc *p = proc_find(l->io, key);
	auto_fd fd = proc_open_log(l->io, key, O_RDONLY);
	if (l->n == l->room) {
		size_t room = l->room ? 2 * l->room : 64;
		struct log *more = reallocarray(l->of, room, sizeof(*more));
		if (!more) {
			l->failed = true;
			return;
		}
		l->of = more;
		l->room = room;
	}
	struct log *log = &l->of[l->n];
	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	if (p)
		log->kept = p->kept;
	else if (kept_load(fd, &log->kept) < 0)
		return; /* nothing of it can be read */
	if (kept_bytes(&log->kept) == 0)
		return; /* or dropped */
	memcpy(log->key, key, strlen(key) + 1);
	log->at = st.st_mtim;
	log->ended = kept_ended(&log->kept);
	l->n++;
}

static int ended_first(const void *a, const void *b)
{
	const struct log *x = a, *y = b;
	if (x->ended != y->ended)
		return x->ended ? -1 : 1;
	if (x->at.tv_sec != y->at.tv_sec)
		return x->at.tv_sec < y->at.tv_sec ? -1 : 1;
	return (x->at.tv_nsec > y->at.tv_nsec) - (x->at.tv_nsec < y->at.tv_nsec);
}

/* Leaves `keep` bytes of a stream. */
static void cut(struct io_loop *io, struct log *log, unsigned stream, uint64_t keep)
{
	struct proc *p = proc_find(io, log->key);
	struct kept *k = p ? &p->kept : &log->kept;
	auto_fd own = p ? -1 : proc_open_log(io, log->key, O_RDWR);
	int fd = p ? p->log : own;
	uint64_t had = kept_bytes(k);
	if (fd >= 0)
		(void)kept_cut(fd, k, stream, k->stream[stream].end - keep);
	io->kept -= had - kept_bytes(k);
	log->kept = *k;
}

static uint64_t length(const struct log *log, unsigned stream)
{
	return log->kept.stream[stream].end - log->kept.stream[stream].first;
}

static struct log *longest(struct logs *l, unsigned *stream)
{
	struct log *found = NULL;
	for (size_t i = 0; i < l->n; i++)
		for (unsigned s = 0; s < 2; s++)
			if (!found || length(&l->of[i], s) > length(found, *stream)) {
				found = &l->of[i];
				*stream = s;
			}
	return found;
}

static void make(struct logs *l, uint64_t most)
{
	struct io_loop *io = l->io;
	unsigned s = 0;
	if (l->n)
		qsort(l->of, l->n, sizeof(*l->of), ended_first);
	for (size_t i = 0; i < l->n && l->of[i].ended && io->kept > most; i++)
		for (s = 0; s < 2; s++)
			cut(io, &l->of[i], s, 0);
	for (struct log *log; io->kept > most && (log = longest(l, &s));) {
		uint64_t before = io->kept;
		cut(io, log, s, length(log, s) / 2);
		if (io->kept == before)
			break; /* the disk fails */
	}
}

int room_make(struct io_loop *io)
{
	struct logs l = { .io = io };
	int r = proc_each_log(io, add_log, &l);
	if (r >= 0 && l.failed)
		r = -ENOMEM;
	if (r >= 0) {
		io->kept = 0; /* what was dropped in between has counted so far */
		for (size_t i = 0; i < l.n; i++)
			io->kept += kept_bytes(&l.of[i].kept);
	}
	if (r >= 0 && io->kept > io->room)
		make(&l, io->room - io->room / 8);
	free(l.of);
	return r;
}
