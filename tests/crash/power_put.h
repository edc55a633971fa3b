/* For power_run.h: an upload gets a name (ws_put). It is a file of ROOT/uploads that is taken over,
 * or, where it can't be, one without a name that has its bytes. */
#ifndef BOUGH_TESTS_CRASH_POWER_PUT_H
#define BOUGH_TESTS_CRASH_POWER_PUT_H

#include "tests/crash/power_model.h"

/* As boughd makes it. */
static void make_upload(const char *name, const void *data, uint64_t size)
{
	const struct io *io = t.io;
	char path[200];
	(void)snprintf(path, sizeof(path), "%s/uploads", t.root);
	int r = access(path, F_OK) == 0 ? 0 : io->mkdir(io->ctx, AT_FDCWD, path, 0700);
	done(r);
	(void)snprintf(path, sizeof(path), "%s/uploads/%s", t.root, name);
	int fd = io->open(io->ctx, AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL, 0600);
	done(fd);
	r = io_write_full(io, fd, data, size, 0);
	(void)io->close(io->ctx, fd); /* nobody asked for it to be durable */
	done(r);
}

static void drop_upload(const char *name)
{
	const struct io *io = t.io;
	char path[200];
	(void)snprintf(path, sizeof(path), "%s/uploads/%s", t.root, name);
	done(io->unlink(io->ctx, AT_FDCWD, path, 0));
}

static int put_bytes(struct ws *ws, struct ws_put *w, const void *data)
{
	struct ws_put_result res;
	struct entry e;
	int r = ws_tmpfile(ws, 1, 0600, &root_caller, &e);
	if (r < 0)
		return r;
	r = ws_write(ws, e.node, data, w->size, 0, false, &root_caller);
	w->upload = NULL;
	w->file = e.attr.ino;
	if (r == 0)
		r = ws_put(ws, w, &res);
	ws_forget(ws, e.node, 1);
	return r;
}

static void m_put(struct state *s, const char *path, uint64_t size)
{
	const struct mfile *old = m_find(s, path);
	const uint32_t mode = old ? old->mode : S_IFREG | 0644;
	const uint16_t xattr = old ? old->xattr : 0;
	m_remove(s, path);
	struct mfile *f = m_add(s, path, mode);
	f->xattr = xattr;
	m_write(s, f->id, 0, size, t.op, size);
}

static void op_put(void)
{
	static uint16_t words[SIZE_MAX_BYTES / 2];
	struct space *sp = pick_space();
	struct ws_put_result res;
	char path[PATH_BYTES], upload[32];
	if (!new_path(sp, path, true))
		return;
	const struct mfile *old = m_find(now(sp), path);
	if (old ? !S_ISREG(old->mode) : now(sp)->n == FILES)
		return;
	const uint64_t size = BIG_FILE + 2 + below(SIZE_MAX_BYTES - BIG_FILE - 2) / 2 * 2ull;
	const bool kept = below(4) == 0; /* by a boughd that doesn't come to it */
	say("put %s %s %" PRIu64, sp->id, path, size);
	for (uint64_t i = 0; i < size / 2; i++)
		words[i] = t.op;
	(void)snprintf(upload, sizeof(upload), "up-%u", t.op);
	make_upload(upload, words, size);
	struct ws_put w = { .tag = WS_TAG_OURS | t.op, .upload = upload, .size = size };
	uint64_t dir = parent(sp->ws, path, &w.name);
	w.dir = dir & ((UINT64_C(1) << 48) - 1);
	w.len = strlen(w.name);
	struct state *s = begin(sp);
	m_put(s, path, size);
	sp->m[sp->n - 1].kept = m_find(s, path)->id;
	int r = ws_put(sp->ws, &w, &res);
	done(r == -EXDEV ? put_bytes(sp->ws, &w, words) : r);
	forget(sp->ws, dir);
	end(sp);
	if (!kept)
		drop_upload(upload);
}

#endif
