/* libfuse's own messages go to the program's log. */
#ifndef BOUGH_MOUNT_FUSELOG_H
#define BOUGH_MOUNT_FUSELOG_H

void fuselog_install(void); /* once, at the start of the program */

#endif
