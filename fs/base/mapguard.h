/* Maps of files whose pages the disk may refuse: a bad sector, or a file that was cut short. Such a
 * page raises SIGBUS in whichever thread touches it, which would end the process. One handler for
 * the process finds by the address whose map it is and tells the owner, who puts zeros in its place
 * and remembers; then the access goes on, and finds zeros.
 *
 * So no thread that reads such a map may block SIGBUS, or the kernel kills the process instead. A
 * SIGBUS of other addresses goes on to the handler that was there before. */
#ifndef BOUGH_BASE_MAPGUARD_H
#define BOUGH_BASE_MAPGUARD_H

#include <stdbool.h>
#include <stddef.h>

struct mapguard;
/* Called in a signal handler, with the place of the byte that isn't there: it does only what is
 * allowed in one. True: there is something now, and the access is done again. */
typedef bool (*mapguard_lost_fn)(void *ctx, size_t off);

/* Guards [base, base + len) until mapguard_remove, which comes before it is unmapped; nobody reads
 * it before or after. 0 or -ENOMEM. */
int mapguard_add(struct mapguard **out, const void *base, size_t len, mapguard_lost_fn lost,
		 void *ctx);
void mapguard_remove(struct mapguard *g); /* NULL allowed */

/* For `lost`: bytes of a page; and zeros in the place of the pages that have [from, to). */
size_t mapguard_page(void);
bool mapguard_zero(const void *base, size_t from, size_t to);

#endif
