/* Which boot of the machine this is. What a program has written and not synced is there, in
 * whole, until the next boot, however the program ended: so whoever recovers asks first. */
#ifndef BOUGH_BASE_BOOT_H
#define BOUGH_BASE_BOOT_H

#include <stdint.h>

enum { BOOT_ID_BYTES = 16 };

/* The id of this boot: `given` where that isn't NULL (tests play another boot), else the
 * kernel's, random(4). If the kernel tells none, one is made up for the life of this process,
 * which no file can hold: then only what is durable counts. Any thread. */
const uint8_t *boot_id(const uint8_t *given);

#endif
