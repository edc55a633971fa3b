/* One large buffer for each thread that answers requests: replies to READ, READDIR and
 * the xattr calls are built in it. It is mapped lazily, so a thread that never needs it has
 * none, and pages come with use and go with scratch_shed. */
#ifndef BOUGH_MOUNT_SCRATCH_H
#define BOUGH_MOUNT_SCRATCH_H

#include <stddef.h>

enum {
	SCRATCH_BYTES = 1 << 20,          /* the largest reply: max_pages of 4 KiB */
	REQUEST_BYTES = (1 << 20) + 4096, /* the largest request: max_write and its header */
};

/* The calling thread's buffer of SCRATCH_BYTES, its own until its end; NULL: out of memory. */
char *scratch(void);
/* Gives the pages of the calling thread's buffer back; it stays usable. */
void scratch_shed(void);

/* For buffers like it: mapped memory that costs nothing until it is touched. */
char *pages_map(size_t bytes);          /* NULL: out of memory */
void pages_shed(char *p, size_t bytes); /* contents are lost */
void pages_populate(char *p, size_t bytes); /* a hint: every page is there */
void pages_unmap(char *p, size_t bytes);

#endif
