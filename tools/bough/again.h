/* Copies of folders and large files that broke off, and what they go on from.
 *
 * While something is copied, a small file (in the state folder of whoever calls, one for each
 * source and target) says where it goes and when it began; it goes when the copy is whole. The same
 * command goes on from it: files that the target got since then and that are as they are in the
 * source, which hasn't changed since, aren't sent again (fs/base/have.h). Without such a file, or
 * where one of both sides is another one by now, a copy begins as the first one did. Of a large
 * file that goes into a workspace the record names the upload (resume.h).
 *
 *     again_open                      then `found` tells
 *     again_note                      unless found, when the target is there
 *     again_list_remote or again_list_host, before each further try
 *     again_close                     in any case
 */
#ifndef BOUGH_TOOLS_AGAIN_H
#define BOUGH_TOOLS_AGAIN_H

#include <time.h>
#include "tools/bough/place.h"

struct again {
	int fd; /* the record, locked; -1: there is none, and none is kept */
	char *file, *key;
	bool found;  /* the rest is from the copy that broke off */
	bool there;  /* the target was, when it began */
	char *sides; /* what tells both by, as the caller likes */
	struct timespec source_at, target_at; /* when it began, by the clock of each side */
};
#define auto_again __attribute__((cleanup(again_close))) struct again
#define AGAIN_NONE { .fd = -1 }

/* `from` and `to` as operands; what is of the host is made absolute. Nothing here fails: without
 * a record a copy that breaks off begins anew. */
void again_open(struct again *a, const struct cli *cli, const struct place *from,
		const struct place *to);
/* What was found isn't what is there now. */
void again_forget(struct again *a);
/* With what the members say. */
void again_note(struct again *a);
/* The copy is whole: nothing is left to go on with. */
void again_end(struct again *a);
void again_close(struct again *a);

/* Now, as files of this host may be dated that change from now on, or that did before. */
struct timespec again_now(void);
/* A bit before `t`: no file that changes behind it bears an older time. */
struct timespec again_before(const struct timespec *t);
/* The files below the folder that have come since target_at, as a list for have.h. */
int again_list_remote(const struct again *a, struct cli *cli, const struct place *dst,
		      struct buf *out, struct err *err);
int again_list_host(const struct again *a, const char *path, struct buf *out, struct err *err);
/* So many are in a list. */
size_t again_count(const struct buf *list);

#endif
