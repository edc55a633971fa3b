/* Lets a system call that changes mounts, or links, or asks a device, fail, where the project's
 * code or what is linked statically makes it: programs with this are linked so that mount, umount2,
 * open_tree, move_mount, mount_setattr, link, linkat and ioctl come by here. */
#ifndef BOUGH_TESTS_UNIT_SYS_FAULT_H
#define BOUGH_TESTS_UNIT_SYS_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* The n-th from now on fails with that errno (1: the next one), and with `for_good` each later one
 * as well; 0: none. */
void sys_fault_at(uint64_t n, int error, bool for_good);
/* How many have failed; none fails any more. */
uint64_t sys_fault_hits(void);

#endif
