/* Clean-up attributes: a variable declared with one of them is released when it
 * goes out of scope. Initialise it where it is declared; hand ownership on with
 * steal_fd() or steal_ptr(). */
#ifndef BOUGH_BASE_CLEANUP_H
#define BOUGH_BASE_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_close(const int *fd)
{
	if (*fd >= 0) {
		int saved = errno;
		(void)close(*fd); /* read-only, or synced explicitly before */
		errno = saved;
	}
}

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_fclose(FILE **f)
{
	if (*f)
		(void)fclose(*f); /* as cleanup_close */
}

static inline void cleanup_closedir(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

#define auto_fd   __attribute__((cleanup(cleanup_close))) int
#define auto_free __attribute__((cleanup(cleanup_free)))
#define auto_file __attribute__((cleanup(cleanup_fclose))) FILE
#define auto_dir  __attribute__((cleanup(cleanup_closedir))) DIR

static inline int steal_fd(int *fd)
{
	int v = *fd;
	*fd = -1;
	return v;
}

/* The pointer's value; the variable is NULL afterwards. */
#define steal_ptr(p)                        \
	({                                  \
		__typeof__(*(p)) v_ = *(p); \
		*(p) = NULL;                \
		v_;                         \
	})

#endif
