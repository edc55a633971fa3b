/* A directory and all below it, removed. */
#ifndef BOUGH_SNAPD_FILES_REMOVE_H
#define BOUGH_SNAPD_FILES_REMOVE_H

/* Removes the directory `name` in `dir` with all that is in it, however deep that is, with few
 * descriptors and without following links. What is made in it meanwhile is removed too, as long as
 * it can be kept up with. 0, or -errno: then a part of it may be gone. */
int files_remove(int dir, const char *name);

#endif
