/* What reading ahead (readahead.h) knows of workspaces: which contents follow a file in the order
 * of a walk, by cookies, as readdir shows names; and how they come into the cache. */
#include "fs/work/ws_impl.h"

#include <sys/stat.h>

enum {
	STEPS_MAX = 128,        /* names looked at for one list: fork waits meanwhile */
	FILE_AHEAD = 128 << 10, /* of a file; the kernel asks ahead for the rest itself */
	PIECES_A_FILE = 2,
	CACHE_SHARE = 8,        /* what is ahead takes so much of the cache, at most */
};

/* The next name; *d has it, or the walk goes up (false). -ENOENT: it is at its end. */
static int step(const struct view *v, struct ahead_place *at, struct dirent_ref *d)
{
	struct attr a;
	int r = at->cookie == UINT64_MAX ? -ENOENT
					 : view_dirent_ceil(v, at->dir, at->cookie + 1, d);
	if (r == 0) {
		at->cookie = d->cookie;
		return 1;
	}
	if (r != -ENOENT || at->dir == 1)
		return r;
	r = view_inode(v, at->dir, &a);
	if (r < 0)
		return r;
	*at = (struct ahead_place){ a.parent, a.parent_cookie };
	return a.parent_cookie ? 0 : -ENOENT; /* 0: it isn't known where we are */
}

/* The first contents of a file, those that are objects; how many. */
static unsigned contents(const struct view *v, const struct attr *a, struct ahead_item *items)
{
	unsigned n = 0;
	uint64_t end = min_u64(a->size, FILE_AHEAD);
	for (uint64_t off = 0; off < end && n < PIECES_A_FILE;) {
		struct view_run run;
		struct piece p;
		if (view_map_peek(v, 0, a->ino, off, end - off, &run) < 0)
			return n; /* whoever reads it will see */
		off += run.e.len;
		if (run.e.kind == EXTENT_OBJECT) {
			items[n++] = (struct ahead_item){ a->ino, run.e.object,
							  (uint32_t)run.e.len };
			continue;
		}
		if (run.e.kind != EXTENT_IMAGE || !run.image)
			continue;
		uint64_t to = run.e.src + run.e.len;
		for (uint64_t src = run.e.src; src < to && n < PIECES_A_FILE; src = p.off + p.len) {
			if (image_piece_ceil(run.image, run.e.image_ino, src, &p) < 0 ||
			    p.off >= to || p.len == 0)
				break;
			items[n++] = (struct ahead_item){ a->ino, p.object, p.len };
		}
	}
	return n;
}

static int list(void *tree, struct ahead_place *at, struct ahead_item *items, unsigned max)
{
	struct ws *ws = tree;
	unsigned n = 0;
	int r = 0;
	pthread_rwlock_rdlock(&ws->gate); /* not ws_enter: nobody uses the workspace by this */
	meta_read(ws);
	for (unsigned i = 0; i < STEPS_MAX && n + PIECES_A_FILE <= max && r >= 0; i++) {
		struct dirent_ref d;
		struct attr a;
		r = step(&ws->view, at, &d);
		if (r <= 0)
			continue;
		if (d.type == DT_DIR)
			*at = (struct ahead_place){ .dir = d.ino };
		else if (d.type == DT_REG && view_inode(&ws->view, d.ino, &a) == 0)
			n += contents(&ws->view, &a, items + n);
	}
	meta_done(ws);
	pthread_rwlock_unlock(&ws->gate);
	return (int)n;
}

static int load(void *ctx, const struct digest *object)
{
	const struct blob *b;
	int r = store_get(ctx, object, &b, NULL);
	if (r == 0)
		blob_put(b);
	return r;
}

int work_ahead_new(struct work *w, size_t cache_bytes)
{
	struct ahead_ops ops = { .list = list, .load = load, .ctx = w->store };
	size_t max = (cache_bytes ? cache_bytes : STORE_CACHE_DEFAULT) / CACHE_SHARE;
	return readahead_new(&w->ahead, &ops, max < AHEAD_WINDOW_MAX ? (uint32_t)max : 0);
}

bool ws_reads_ahead(const struct ws *ws)
{
	return readahead_is_busy(ws->work->ahead);
}

void ws_note_read(struct ws *ws, const struct attr *a)
{
	readahead_note(ws->work->ahead, ws, a->ino,
		       (struct ahead_place){ a->parent, a->parent_cookie });
}
