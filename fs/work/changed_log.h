/* What a layer's operations touched lately: inodes and names, each with the number of the frame
 * that did it, the newest last. Bounded: what is older than the log reaches is forgotten, and the
 * log says up to which number.
 *
 * An inode is noted once, with the last frame that changed it; being renamed is no change of a file
 * with one name. A name is noted each time it is made or removed. So a layer of any size is known
 * whole as long as it touched few things, and the last things that it touched are known always.
 * changed.h and watch.h ask it.
 *
 * Threads: the owner of an active layer's index changes its log and reads it under the same lock
 * (layer.h); that of a sealed layer doesn't change, so that any number of threads read it. */
#ifndef BOUGH_WORK_CHANGED_LOG_H
#define BOUGH_WORK_CHANGED_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/work/stack.h"

enum { CHANGED_LOG_MAX = 8192 }; /* entries: more paths than one answer holds */

/* What happened to a name. Below: in the layers below the one whose log it is. */
enum changed_kind {
	CHANGED_MADE,      /* it leads to the child now; below, nothing was shown there … */
	CHANGED_MADE_OVER, /* … or what is below was, if there is anything: that went */
	CHANGED_GONE,      /* it led to the child, and this layer knew */
	CHANGED_HIDDEN,    /* what is below was shown: that went. The child is 0 */
};
struct changed_entry {
	struct changed_entry *newer, *older;
	uint64_t seq;
	uint64_t ino;    /* the inode, or the folder */
	uint64_t cookie; /* of a name; 0: this is about the inode itself */
	uint64_t child;  /* 0: not known here; the layers below show it at that cookie */
	uint8_t type, name_len, kind; /* enum changed_kind */
	bool again; /* of an inode: another frame had changed it before */
	char name[];
};

struct changed_log;
struct changed_log *changed_log_new(const struct layer_id *id); /* NULL: no memory */
struct changed_log *changed_log_ref(struct changed_log *g);
void changed_log_unref(struct changed_log *g); /* NULL allowed */

/* These don't fail: without memory, all up to then is forgotten. */
void changed_log_inode(struct changed_log *g, uint64_t seq, uint64_t ino);
struct changed_name {
	enum changed_kind kind;
	uint64_t dir, cookie, child;
	uint8_t type;
	const char *name;
	size_t len;
};
void changed_log_name(struct changed_log *g, uint64_t seq, const struct changed_name *n);
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
