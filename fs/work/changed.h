/* What changed in a workspace since a moment that a token names: for git's fsmonitor hook, which
 * then looks at these paths only. The answer may name too much, never too little.
 *
 * Each local layer keeps a bounded log of the inodes and names that its operations touched
 * (struct changed_log, made anew when the journal is replayed). A token is
 *     i<16 hex digits>            the tree as the image of that name (its beginning) has it
 *     l<32 hex digits>.<seq>      as after frame `seq` of the layer of that id
 * and stays good across fork and restart. Where the way from there to now isn't known whole (layers
 * were saved or flattened, the log was too short, power was lost) the answer is "everything". */
#ifndef BOUGH_WORK_CHANGED_H
#define BOUGH_WORK_CHANGED_H

#include "fs/base/hash.h"

enum { CHANGED_TOKEN_MAX = 64 }; /* bytes, its NUL included */

/* The token of a work tree just as its image has it. */
void changed_token_of_image(char out[CHANGED_TOKEN_MAX], const struct digest *image);

#endif
