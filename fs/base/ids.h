/* User and group ids of the host that sandboxes run under: each has a range of its own, whose n-th
 * id is n inside. They lie above what login.defs gives out as subordinate ids and what systemd
 * takes for its containers, and below those that programs take for negative. */
#ifndef BOUGH_BASE_IDS_H
#define BOUGH_BASE_IDS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	IDS_RANGE = 65536,       /* ids of one sandbox */
	IDS_FIRST = 0x70000000,  /* a multiple of IDS_RANGE */
	IDS_END = 0x7ffe0000,    /* the first that is none any more; 4094 ranges */
};

/* What an id of the host is inside of a sandbox; false: it is none of a sandbox. */
static inline bool ids_inside(uint32_t host, uint32_t *inside)
{
	if (host < IDS_FIRST || host >= IDS_END)
		return false;
	*inside = host % IDS_RANGE;
	return true;
}

#endif
