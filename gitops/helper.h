/* The program that git runs in a workspace to learn what changed (tools/fsmonitor), as bytes. */
#ifndef BOUGH_GITOPS_HELPER_H
#define BOUGH_GITOPS_HELPER_H

#include <stddef.h>
#include <stdint.h>

/* Borrowed for ever. */
const uint8_t *helper_fsmonitor(size_t *len);

#endif
