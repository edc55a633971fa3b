/* Frames of a process's output (snapd/API.md), decoded piece by piece as they come in. Pure; any
 * bytes. */
#ifndef BOUGH_TOOLS_FRAMES_H
#define BOUGH_TOOLS_FRAMES_H

#include "fs/base/buf.h"

enum {
	FRAME_HEAD = 16,
	FRAME_MAX_BYTES = 1 << 20, /* of one: ours have 64 KiB */
};
enum frame_type { FRAME_STDOUT = 1, FRAME_STDERR, FRAME_GAP, FRAME_END, FRAME_ALIVE };

struct frame {
	unsigned type; /* one that isn't known is to be left out */
	uint32_t length;
	uint64_t offset;
	const uint8_t *data; /* borrowed until the next call */
};

struct frames {
	struct buf in;
	size_t pos;
};
static inline void frames_done(struct frames *f)
{
	buf_done(&f->in);
}
#define auto_frames __attribute__((cleanup(frames_done))) struct frames

/* Bytes as they came. -ENOMEM. */
int frames_add(struct frames *f, const void *data, size_t n);
/* 1 and the next frame; 0: more bytes are needed; -EBADMSG: it is none. */
int frames_next(struct frames *f, struct frame *out);

#endif
