/* What a kill leaves below ROOT: temporary files of publications (IO_TMP_PREFIX) and all that was
 * being done in ROOT/tmp. None of it means anything, but it takes space, and may be a secret. */
#ifndef BOUGH_SNAPD_LEFTOVERS_H
#define BOUGH_SNAPD_LEFTOVERS_H

/* With the lock of ROOT, before anything is begun: all in the folders where boughd alone writes. Of
 * those where bough-fs may be writing just now: what is older than LEFTOVERS_OLD_S, and so again in
 * leftovers_sweep_old, which gc calls. What can't be removed is logged, and stays. */
enum { LEFTOVERS_OLD_S = 600 };
void leftovers_sweep(const char *root);
void leftovers_sweep_old(const char *root);

#endif
