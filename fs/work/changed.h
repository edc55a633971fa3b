/* What changed in a workspace since a moment that a token names: for git's fsmonitor hook
 * (githooks(5), fsmonitor-watchman, version 2), which then looks at these paths only. The answer
 * may name too much, never too little.
 *
 * What it is made from are the layers' logs (changed_log.h). A token is
 *     i<16 hex digits>          the tree as the image whose name begins so has it
 *     l<32 hex digits>.<seq>    as after frame `seq` (decimal) of the layer of that id
 *     e<the same>               as l, and the answer that it came with was "everything"
 * and stays good across fork, restart, and saving while the server runs. Where the way from there
 * to now isn't known whole (layers were flattened, loaded as deltas, too much was touched, power
 * was lost) the answer is "everything".
 *
 * Git's cache of untracked files is not told by "everything": a command that doesn't look for such
 * files (git reset) writes that cache back as if it were as new as the token (seen with 2.39; its
 * refresh_fsmonitor clears no entry of it). So the answer to an e token names each folder besides
 * what changed, as "<folder>/~", which need not be there: it makes git read that folder again.
 *
 * Besides paths that are different now, all those are named that were made and are gone again:
 * git may have put them into its index meanwhile. */
#ifndef BOUGH_WORK_CHANGED_H
#define BOUGH_WORK_CHANGED_H

#include <linux/ioctl.h>
#include "fs/base/buf.h"
#include "fs/base/hash.h"

enum {
	CHANGED_TOKEN_MAX = 64,      /* bytes, the NUL included */
	CHANGED_ANSWER_MAX = 65536,  /* what a value of an xattr may have */
};
#define CHANGED_XATTR "bough.changes." /* and the token: the attribute that is asked for */
/* The same question where no xattrs are to be had: the token, with its NUL, in a buffer that then
 * holds the answer. */
enum { CHANGED_ANSWER_MIN = 16000 };
#define CHANGED_IOCTL ((unsigned)_IOC(_IOC_READ | _IOC_WRITE, 0xb0, 1, CHANGED_ANSWER_MIN))

/* The token of a work tree just as its image has it. */
void changed_token_of_image(char out[CHANGED_TOKEN_MAX], const struct digest *image);

struct view;
/* Appends the answer: the token of now, then the paths below the folder `dir`, relative to it,
 * each with a NUL behind it; or after the token the one path "/": everything. Names of folders
 * end with '/' where their attributes changed. Nothing of a `.git` in `dir` is named.
 * At most `max` bytes (CHANGED_ANSWER_MIN at least) are given.
 * Where the last of them begins with "//", it is none, and there is more: asking with the token,
 * that path behind it, gives the rest (paths alone).
 * The owner's lock covers the call. 0, or -ENOMEM, -EIO; -E2BIG: there is no rest to be had. */
int changed_since(struct buf *out, const struct view *v, uint64_t dir, const char *token,
		  size_t max);

#endif
