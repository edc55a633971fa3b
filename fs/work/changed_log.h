/* What a layer's operations touched lately: inodes and names, each with the number of the frame
 * that did it, the newest last. Bounded: what is older than the log reaches is forgotten, and the
 * log says up to which number. changed.h asks it.
 *
 * An inode is noted once, with the last frame that changed it. A name is noted each time it is
 * made or removed. So a layer of any size is known whole as long as it touched few things, and the
 * last things that it touched are known always.
 *
 * Threads: the owner of an active layer's index changes its log and reads it under the same lock
 * (layer.h); that of a sealed layer doesn't change, so that any number of threads read it. */
#ifndef BOUGH_WORK_CHANGED_LOG_H
#define BOUGH_WORK_CHANGED_LOG_H

#include <stddef.h>
#include <stdint.h>
#include "fs/work/stack.h"

enum { CHANGED_LOG_MAX = 8192 }; /* entries: more paths than one answer holds */

struct changed_entry {
	struct changed_entry *newer, *older;
	uint64_t seq;
	uint64_t ino;    /* the inode, or the folder */
	uint64_t cookie; /* of a name; 0: this is about the inode itself */
	uint64_t child;  /* 0: not known here; the layers below show it at that cookie */
	uint8_t type, name_len;
	char name[];
};

struct changed_log;
struct changed_log *changed_log_new(const struct layer_id *id); /* NULL: no memory */
struct changed_log *changed_log_ref(struct changed_log *g);
void changed_log_unref(struct changed_log *g); /* NULL allowed */

/* These don't fail: without memory, all up to then is forgotten. */
void changed_log_inode(struct changed_log *g, uint64_t seq, uint64_t ino);
void changed_log_name(struct changed_log *g, uint64_t seq, uint64_t dir, uint64_t cookie,
		      uint64_t child, uint8_t type, const char *name, size_t len);
/* The inode is no more; what is to be said of it is said of its names. */
void changed_log_gone(struct changed_log *g, uint64_t ino);
/* What happened up to that frame isn't known. */
void changed_log_forget(struct changed_log *g, uint64_t seq);

const struct layer_id *changed_log_id(const struct changed_log *g);
uint64_t changed_log_floor(const struct changed_log *g); /* all after this frame is known */
uint64_t changed_log_last(const struct changed_log *g);  /* the last frame that it knows of */
const struct changed_entry *changed_log_newest(const struct changed_log *g);
size_t changed_log_bytes(const struct changed_log *g);

#endif
