/* A batch (ws_batch): what it will be, in memory, before it is written. */
#ifndef BOUGH_WORK_WS_BATCH_H
#define BOUGH_WORK_WS_BATCH_H

#include "fs/work/batch.h"
#include "fs/work/forget.h"
#include "fs/work/ws_impl.h"

/* A name that was looked for: what the view shows there, and what it will lead to. */
struct bname {
	uint64_t dir, cookie; /* cookie 0: none yet */
	uint64_t child;       /* 0: nothing */
	uint8_t type;
	bool had, changed; /* the view shows it; it will be another */
	uint16_t len;
	uint32_t next;    /* of the same hash, plus one */
	uint32_t sibling; /* of the same folder, the one before, plus one */
	const char *name; /* borrowed from the request, the layers and the image */
};

struct binode {
	struct attr a;
	bool fresh, put, changed;
	bool keep_times; /* a folder whose times were given */
	uint64_t heir_of; /* PUT: whose xattrs it gets; 0: none's */
	const struct batch_op *op; /* what gave its target and xattrs; NULL: nothing did */
	bool ended; /* it had names, and will have none */
};

struct batch {
	struct ws *ws;
	struct op op;
	struct bname *names;
	size_t nnames, names_cap;
	uint64_t seed; /* of the hashes: nobody can prepare names that have one */
	struct u64map by_name, by_cookie; /* hash -> index plus one */
	struct u64map by_dir;             /* folder -> its newest name's index plus one */
	struct binode *inodes;
	size_t ninodes, inodes_cap;
	struct u64map by_ino;
	uint64_t *numbers; /* of new inodes, taken before anything is locked */
	size_t nnumbers, used;
};

/* ws_batch_put.c: the records of all that changes, into b->op; what fails is in b->op.error. */
void batch_put_records(struct batch *b);
/* What the kernel must forget, also kept in the workspace's folder. 0 or -errno. */
int batch_remember(struct batch *b, struct forget_list *f);

#endif
