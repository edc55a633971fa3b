/* What the kernel must be told to forget after a restore: names and nodes. It is kept in the
 * workspace's folder until that was done (fs/FORMAT.md), so that whoever goes on behind the mount
 * of a server that died meanwhile tells it again; twice does no harm. */
#ifndef BOUGH_WORK_FORGET_H
#define BOUGH_WORK_FORGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/buf.h"

struct ws_changes;

struct forget_list {
	struct buf nodes, names, text; /* uint64_t, struct forget_name, bytes */
};
/* 0, -ENOMEM, -E2BIG. */
int forget_list_name(struct forget_list *f, uint64_t dir_node, const char *name, size_t len,
		     bool removed, uint64_t child_node);
int forget_list_node(struct forget_list *f, uint64_t node); /* more than once is once */
void forget_list_tell(struct forget_list *f, const struct ws_changes *changes);
void forget_list_done(struct forget_list *f);

/* The bytes of the file; `seq` is the workspace file's that the restore makes. */
void forget_list_encode(const struct forget_list *f, uint64_t seq, struct buf *out);
/* 0 and what the caller gives to forget_list_done, -EBADMSG, -ENOMEM. */
int forget_list_decode(struct forget_list *out, uint64_t *seq, const void *data, size_t len);

#endif
