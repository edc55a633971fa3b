#include "fs/mount/scratch.h"

#include <pthread.h>
#include <sys/mman.h>

static _Thread_local char *mine;
static pthread_key_t key; /* only for its destructor, at the end of a thread */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_error;

char *pages_map(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

void pages_shed(char *p, size_t bytes)
{
	if (p)
		(void)madvise(p, bytes, MADV_DONTNEED); /* a hint; it can't fail on our mapping */
}

void pages_populate(char *p, size_t bytes)
{
	(void)madvise(p, bytes, MADV_POPULATE_WRITE); /* else each comes when it is touched */
}

void pages_unmap(char *p, size_t bytes)
{
	if (p)
		(void)munmap(p, bytes); /* whole mapping of ours: can't fail */
}

static void thread_ends(void *p)
{
	pages_unmap(p, SCRATCH_BYTES);
}

static void make_key(void)
{
	key_error = pthread_key_create(&key, thread_ends);
}

char *scratch(void)
{
	if (mine)
		return mine;
	(void)pthread_once(&once, make_key); /* fails only for a bad argument */
	char *p = key_error ? NULL : pages_map(SCRATCH_BYTES);
	if (p && pthread_setspecific(key, p) != 0) {
		pages_unmap(p, SCRATCH_BYTES);
		p = NULL;
	}
	mine = p;
	return p;
}

void scratch_shed(void)
{
	pages_shed(mine, SCRATCH_BYTES);
}
