/* Single files that outlive a broken connection: where boughd goes away in the middle, it is asked
 * (or started) again after a while, and the copy goes on where it was. */
#ifndef BOUGH_TOOLS_RESUME_H
#define BOUGH_TOOLS_RESUME_H

#include "tools/bough/again.h"
#include "tools/bough/place.h"

enum {
	RESUME_UPLOAD_MIN = 32 << 20, /* below it, sending once more costs less than keeping it */
	RESUME_TRIES = 8,             /* in a row without a byte: some 12 s */
};

struct tries {
	unsigned n; /* since the last byte */
};
/* Whether to ask once more after `r`: the connection, not what was asked for, is what failed.
 * Waits before, longer each time. */
bool resume_again(struct tries *t, int r);
/* The file's content into `fd`, with progress as `what`; *total: bytes. Where the file has become
 * another meanwhile, `fd` begins anew when it is a file, and else -ESTALE. -EISDIR: a folder.
 * With from->path NULL it is the export that is kept under that id. */
int resume_download(struct cli *cli, const struct place *from, int fd, const char *what,
		    uint64_t *total, struct err *err);
/* The file `fd` (from its beginning) into the workspace, or the sandbox `box`, as PUT does, `last`
 * (NULL: nothing) behind the path, with the mode (octal). `again` (again_open) tells of an upload
 * that a killed copy has begun: it is gone on with where the file is as it was then. */
int resume_upload(struct cli *cli, int fd, const struct place *to, bool box, const char *last,
		  const char *mode, struct again *again, struct err *err);
/* Whether resume_upload can take this: the protocol has only names in UTF-8. */
bool resume_can_name(const struct place *to, const char *last);

#endif
