/* Reading contents: mapped under meta, read outside it. */
#include "fs/work/ws_impl.h"

#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUNS_A_LOOK = 8 }; /* pieces mapped at one look at the index */

struct look {
	struct view_run runs[RUNS_A_LOOK];
	unsigned n;
	uint64_t epoch; /* of the active layer */
};

static void look_done(struct look *l)
{
	for (unsigned i = 0; i < l->n; i++)
		view_run_done(&l->runs[i]);
	l->n = 0;
}

/* Under meta: the runs of [off, off + n), as many as fit. */
static int look_at(struct look *l, struct ws *ws, uint64_t ino, uint64_t off, uint64_t n)
{
	l->n = 0;
	l->epoch = layer_epoch(active(ws));
	while (n > 0 && l->n < RUNS_A_LOOK) {
		struct view_run *run = &l->runs[l->n];
		int r = view_map(&ws->view, ino, off, n, run);
		if (r < 0) {
			look_done(l);
			return r == -ENOENT ? -ESTALE : r;
		}
		off += run->e.len;
		n -= run->e.len;
		l->n++;
	}
	return 0;
}

/* Outside meta: the bytes; *got is how many. -EAGAIN: a place was given to other content
 * meanwhile, look again. */
static int look_read(const struct look *l, struct ws *ws, uint64_t ino, char *buf, size_t *got)
{
	struct err why;
	size_t done = 0;
	bool own = false;
	for (unsigned i = 0; i < l->n; i++) {
		int r = view_run_read(ws->view.store, &l->runs[i], buf + done, &why);
		if (r == -EIO)
			ws_note_damage(ws, ino, &why);
		if (r < 0)
			return r;
		done += l->runs[i].e.len;
		own |= l->runs[i].e.kind == EXTENT_DATA && l->runs[i].e.layer == active(ws);
	}
	if (own && layer_epoch(active(ws)) != l->epoch)
		return -EAGAIN;
	*got = done;
	return 0;
}

/* [off, off + n) of what the index shows, from a look already taken or not (l->n == 0). */
static int read_on(struct look *l, struct ws *ws, uint64_t ino, char *buf, size_t n, uint64_t off)
{
	for (size_t done = 0; done < n;) {
		int r = 0;
		size_t got = 0;
		if (l->n == 0) {
			meta_read(ws);
			r = look_at(l, ws, ino, off + done, n - done);
			meta_done(ws);
		}
		if (r == 0)
			r = look_read(l, ws, ino, buf + done, &got);
		look_done(l);
		if (r < 0 && r != -EAGAIN)
			return r;
		done += got;
	}
	return 0;
}

/* Is what was asked for stored content, which is unpacked for each reader? */
static bool is_stored(const struct look *l)
{
	return l->n > 0 &&
	       (l->runs[0].e.kind == EXTENT_IMAGE || l->runs[0].e.kind == EXTENT_OBJECT);
}

static ssize_t read_content(struct ws *ws, uint64_t node, void *buf, size_t n, uint64_t off,
			    struct attr *a, bool note)
{
	struct look l = { .n = 0 };
	meta_read(ws);
	int r = ws_get_regular(ws, node, a);
	if (r == 0) {
		n = (size_t)min_u64(off < a->size ? a->size - off : 0, min_u64(n, SSIZE_MAX));
		r = look_at(&l, ws, a->ino, off, n);
	}
	meta_done(ws);
	if (r == 0 && note && off == 0 && is_stored(&l))
		ws_note_read(ws, a);
	if (r == 0)
		r = read_on(&l, ws, a->ino, buf, n, off);
	return r < 0 ? r : (ssize_t)n;
}

ssize_t content_read(struct ws *ws, uint64_t node, void *buf, size_t n, uint64_t off,
		     struct attr *a)
{
	return read_content(ws, node, buf, n, off, a, false);
}

int content_read_full(struct ws *ws, uint64_t ino, uint64_t size, void *buf, size_t n, uint64_t off)
{
	struct look l = { .n = 0 };
	size_t have = (size_t)min_u64(off < size ? size - off : 0, n);
	memset((char *)buf + have, 0, n - have);
	return read_on(&l, ws, ino, buf, have, off);
}

ssize_t ws_read(struct ws *ws, uint64_t node, void *buf, size_t n, uint64_t off)
{
	struct attr a;
	ws_enter(ws);
	stripe_read(ws, ino_of(node));
	ssize_t r = read_content(ws, node, buf, n, off, &a, true);
	stripe_done(ws, ino_of(node));
	if (r >= 0)
		ws_accessed(ws, node, &a);
	ws_leave(ws);
	return r;
}

int ws_seek(struct ws *ws, uint64_t node, uint64_t off, int whence, uint64_t *out)
{
	struct attr a;
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	ws_enter(ws);
	stripe_read(ws, ino_of(node));
	meta_read(ws);
	int r = ws_get_regular(ws, node, &a);
	if (r == 0)
		r = view_seek(&ws->view, a.ino, off, whence == SEEK_HOLE, out);
	meta_done(ws);
	stripe_done(ws, ino_of(node));
	ws_leave(ws);
	return r;
}
