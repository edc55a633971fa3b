/* For power.c and fault.c: random operations on workspaces on a disk that remembers, and what they
 * should have led to at each moment. */
#ifndef BOUGH_TESTS_CRASH_POWER_RUN_H
#define BOUGH_TESTS_CRASH_POWER_RUN_H

#include "tests/crash/power_model.h"
#include "tests/crash/power_put.h"

static void op_make(void)
{
	static const uint32_t modes[] = { S_IFREG | 0644, S_IFREG | 0600, S_IFDIR | 0755 };
	struct space *sp = pick_space();
	char path[PATH_BYTES];
	const char *name;
	struct entry e;
	if (now(sp)->n == FILES || !new_path(sp, path, false))
		return;
	uint32_t mode = modes[below(3)];
	say("make %s %s %o", sp->id, path, mode);
	m_add(begin(sp), path, mode);
	uint64_t dir = parent(sp->ws, path, &name);
	done(ws_mknod(sp->ws, dir, name, strlen(name), mode, 0, &root_caller, &e));
	forget(sp->ws, e.node);
	forget(sp->ws, dir);
	end(sp);
}

static void op_symlink(void)
{
	struct space *sp = pick_space();
	char path[PATH_BYTES];
	const char *name;
	struct entry e;
	if (now(sp)->n == FILES || !new_path(sp, path, false))
		return;
	say("symlink %s %s", sp->id, path);
	struct mfile *f = m_add(begin(sp), path, S_IFLNK | 0777);
	(void)snprintf(f->target, sizeof(f->target), "to-%u", t.op);
	uint64_t dir = parent(sp->ws, path, &name);
	done(ws_symlink(sp->ws, dir, name, strlen(name), f->target, &root_caller, &e));
	forget(sp->ws, e.node);
	forget(sp->ws, dir);
	end(sp);
}

static void op_link(void)
{
	struct space *sp = pick_space();
	const struct mfile *of = pick(sp, S_IFREG);
	char path[PATH_BYTES];
	const char *name;
	struct entry e;
	if (!of || now(sp)->n == FILES || !new_path(sp, path, false))
		return;
	say("link %s %s %s", sp->id, of->path, path);
	struct state *s = begin(sp);
	s->f[s->n] = *of;
	memcpy(s->f[s->n++].path, path, sizeof(path));
	uint64_t n = node(sp->ws, of->path, NULL), dir = parent(sp->ws, path, &name);
	done(ws_link(sp->ws, n, dir, name, strlen(name), &root_caller, &e));
	forget(sp->ws, e.node);
	forget(sp->ws, n);
	forget(sp->ws, dir);
	end(sp);
}

static void op_remove(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, 0);
	const char *name;
	if (!f || (S_ISDIR(f->mode) && !m_empty(now(sp), f->path)))
		return;
	char path[PATH_BYTES];
	memcpy(path, f->path, sizeof(path));
	bool is_dir = S_ISDIR(f->mode);
	say("remove %s %s", sp->id, path);
	m_remove(begin(sp), path);
	uint64_t dir = parent(sp->ws, path, &name);
	done(is_dir ? ws_rmdir(sp->ws, dir, name, strlen(name), &root_caller)
		    : ws_unlink(sp->ws, dir, name, strlen(name), &root_caller));
	forget(sp->ws, dir);
	end(sp);
}

static void op_rename(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, 0);
	char from[PATH_BYTES], to[PATH_BYTES];
	if (!f || !new_path(sp, to, true) || strcmp(f->path, to) == 0 || m_is_below(to, f->path))
		return;
	memcpy(from, f->path, sizeof(from));
	const struct mfile *old = m_find(now(sp), to);
	if (old &&
	    (old->id == f->id || S_ISDIR(old->mode) != S_ISDIR(f->mode) || !m_empty(now(sp), to)))
		return;
	for (size_t i = 0; i < now(sp)->n; i++)
		if (m_is_below(now(sp)->f[i].path, from) &&
		    strlen(now(sp)->f[i].path) - strlen(from) + strlen(to) >= PATH_BYTES)
			return;
	const uint32_t kept = old ? f->id : 0;
	say("rename %s %s %s", sp->id, from, to);
	struct state *s = begin(sp);
	m_remove(s, to);
	for (size_t i = 0; i < s->n; i++) {
		char path[PATH_BYTES * 2];
		if (strcmp(s->f[i].path, from) != 0 && !m_is_below(s->f[i].path, from))
			continue;
		(void)snprintf(path, sizeof(path), "%s%s", to, s->f[i].path + strlen(from));
		memcpy(s->f[i].path, path, PATH_BYTES);
	}
	const char *a, *b;
	uint64_t d1 = parent(sp->ws, from, &a), d2 = parent(sp->ws, to, &b);
	done(ws_rename(sp->ws, d1, a, strlen(a), d2, b, strlen(b), 0, &root_caller));
	sp->m[sp->n - 1].kept = kept;
	forget(sp->ws, d1);
	forget(sp->ws, d2);
	end(sp);
}

static void op_write(void)
{
	static uint16_t words[SIZE_MAX_BYTES / 2];
	static const unsigned lengths[] = { 2, 100, 512, 4096, 6000, 16384, 60000 };
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, S_IFREG);
	if (!f)
		return;
	uint64_t len = lengths[below(7)], off = below(3) ? below(5) * 4096ull : below(9000) * 2ull;
	if (below(4) == 0)
		off = f->c->size & ~1ull;
	if (off + len > SIZE_MAX_BYTES)
		return;
	len &= ~1ull;
	say("write %s %s %" PRIu64 " at %" PRIu64, sp->id, f->path, len, off);
	uint64_t size = off + len > f->c->size ? off + len : f->c->size;
	char path[PATH_BYTES];
	memcpy(path, f->path, sizeof(path));
	const uint32_t id = f->id;
	m_write(begin(sp), id, off, len, t.op, size);
	note_wrote(sp, id, len); /* a part may be there when it has begun */
	for (uint64_t i = 0; i < len / 2; i++)
		words[i] = t.op;
	uint64_t n = node(sp->ws, path, NULL);
	done(ws_write(sp->ws, n, words, len, off, false, &root_caller));
	forget(sp->ws, n);
	end(sp);
}

static void op_truncate(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, S_IFREG);
	if (!f)
		return;
	uint64_t size = below(2) ? 0 : below(10000) * 2ull;
	say("truncate %s %s %" PRIu64, sp->id, f->path, size);
	char path[PATH_BYTES];
	memcpy(path, f->path, sizeof(path));
	const uint32_t id = f->id;
	const bool empties = size == 0 && f->c->size > 0;
	m_write(begin(sp), id, 0, 0, 0, size);
	note_wrote(sp, id, 0);
	sp->m[sp->n - 1].kept = empties ? id : 0;
	struct attr in = { .size = size }, out;
	uint64_t n = node(sp->ws, path, NULL);
	done(ws_setattr(sp->ws, n, WS_SET_SIZE, &in, &root_caller, &out));
	forget(sp->ws, n);
	end(sp);
}

static void op_chmod(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, 0);
	if (!f || S_ISLNK(f->mode))
		return;
	uint32_t mode = 0600 + below(64);
	bool xattr = below(2);
	say("%s %s %s", xattr ? "setxattr" : "chmod", sp->id, f->path);
	struct state *s = begin(sp);
	uint64_t n = node(sp->ws, f->path, NULL);
	for (size_t i = 0; i < s->n; i++) {
		if (s->f[i].id != f->id)
			continue;
		s->f[i].mode = xattr ? s->f[i].mode : (s->f[i].mode & S_IFMT) | mode;
		s->f[i].xattr = xattr ? t.op : s->f[i].xattr;
	}
	struct attr in = { .mode = mode }, out;
	done(xattr ? ws_setxattr(sp->ws, n, "user.x", &t.op, sizeof(t.op), 0, &root_caller)
		   : ws_setattr(sp->ws, n, WS_SET_MODE, &in, &root_caller, &out));
	forget(sp->ws, n);
	end(sp);
}

static void op_copy(void)
{
	struct space *sp = pick_space();
	const struct mfile *from = pick(sp, S_IFREG), *to = pick(sp, S_IFREG);
	if (!from || !to || from->id == to->id || from->c->size < 2)
		return;
	uint64_t len = from->c->size & ~1ull;
	say("copy %s %s %s %" PRIu64, sp->id, from->path, to->path, len);
	struct content *c = keep(calloc(1, sizeof(*c) + SIZE_MAX_BYTES + 2));
	c->size = to->c->size > len ? to->c->size : len;
	memcpy(c->words, to->c->words, (to->c->size + 1) / 2 * 2);
	memcpy(c->words, from->c->words, len);
	uint32_t id = to->id;
	uint64_t a = node(sp->ws, from->path, NULL), b = node(sp->ws, to->path, NULL);
	struct state *s = begin(sp);
	for (size_t i = 0; i < s->n; i++)
		if (s->f[i].id == id)
			s->f[i].c = c;
	note_wrote(sp, id, 0); /* of its last block at most */
	ssize_t r = ws_copy_range(sp->ws, a, 0, b, 0, len, &root_caller);
	if (r != (ssize_t)len)
		refused(r < 0 ? strerror((int)-r) : "a part was copied");
	forget(sp->ws, a);
	forget(sp->ws, b);
	end(sp);
}

static void op_fsync(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, 0);
	if (!f)
		return;
	say("fsync %s %s", sp->id, f->path);
	uint64_t n = node(sp->ws, f->path, NULL);
	const uint32_t id = f->id;
	begin(sp); /* nothing changes, and then it is on the disk */
	done(ws_fsync(sp->ws, n));
	end(sp);
	note_synced(sp, id, sp->sealed);
	forget(sp->ws, n);
}

static void op_sync(void)
{
	struct space *sp = pick_space();
	struct err err;
	say("commit %s", sp->id);
	begin(sp);
	if (ws_commit(sp->ws, &err) < 0)
		refused(err.text);
	end(sp);
	note_synced(sp, 0, sp->n - 1);
}

/* The form of a catalog's id. */
static void name_space(struct space *sp)
{
	(void)snprintf(sp->id, sizeof(sp->id), "ws_aaaaaaaa%c%c", 'a' + (int)(t.nspaces / 26),
		       'a' + (int)(t.nspaces % 26));
}

static void op_fork(void)
{
	struct space *sp = pick_space(), *child = &t.spaces[t.nspaces];
	size_t open = 0;
	for (size_t i = 0; i < t.nspaces; i++)
		open += t.spaces[i].ws != NULL;
	if (open == SPACES || t.nspaces == sizeof(t.spaces) / sizeof(t.spaces[0]))
		return;
	struct err err;
	*child = (struct space){ .made = io_power_now(t.power) };
	name_space(child);
	say("fork %s %s", sp->id, child->id);
	const char *ids[] = { child->id };
	/* Not synced, it may come back as what the parent was after its last fsync. */
	for (size_t i = 0; i < sp->n; i++) {
		(void)begin(child);
		child->m[i] = sp->m[i];
	}
	child->own = child->n;
	child->sealed = child->n - 1;
	(void)begin(child);
	if (ws_fork(sp->ws, ids, 1, NULL, &child->ws, NULL, &err) < 0) {
		free(child->m);
		refused(err.text);
	}
	end(child);
	sp->sealed = sp->n - 1;
	t.nspaces++;
	if (hooks.made)
		hooks.made(child);
	child->made_end = io_power_now(t.power);
}

static void op_delete(void)
{
	struct space *sp = pick_space();
	struct err err;
	size_t open = 0;
	for (size_t i = 0; i < t.nspaces; i++)
		open += t.spaces[i].ws != NULL;
	if (open == 1)
		return;
	say("delete %s", sp->id);
	sp->gone = io_power_now(t.power);
	if (hooks.deleted)
		hooks.deleted(sp);
	sp->gone_end = io_power_now(t.power);
	ws_close(sp->ws);
	sp->ws = NULL;
	if (ws_delete(t.work, sp->id, &err) < 0)
		refused(err.text);
}

static void end_op(void)
{
	store_session_end(t.session);
	t.session = NULL;
	stack_done(&t.sealed);
	stack_done(&t.saved);
	stack_done(&t.to);
}

static void op_save(void)
{
	struct space *sp = pick_space();
	struct err err;
	struct view_options vo;
	struct save_stats st;
	bool flat = below(2), replace = below(2);
	if (t.nsnaps == SNAPSHOTS)
		return;
	say("save %s%s%s", sp->id, flat ? ", flat" : "", replace ? ", replaced" : "");
	work_view_options(t.work, &vo);
	if (ws_seal(sp->ws, &t.sealed, &err) < 0 ||
	    store_session_begin(work_store(t.work), &t.session, &err) < 0)
		refused(err.text);
	sp->sealed = sp->n - 1;
	const struct state *s = now(sp);
	if (save_stack(&t.saved, &t.sealed, &vo, t.session, NULL, &st, &err) < 0)
		refused(err.text);
	if (flat) {
		struct stack image;
		if (flatten_stack(&image, &t.saved, &vo, t.session, NULL, &err) < 0)
			refused(err.text);
		stack_done(&t.saved);
		t.saved = image;
	}
	struct snap *sn = &t.snaps[t.nsnaps];
	if (manifest_put(t.session, &t.saved, &sn->manifest, &err) < 0 ||
	    store_sync(t.session, &err) < 0)
		refused(err.text);
	sn->s = s;
	sn->end = UINT64_MAX;
	t.nsnaps++;
	if (hooks.saved)
		hooks.saved(sp, sn);
	sn->end = io_power_now(t.power);
	store_session_end(t.session);
	t.session = NULL;
	if (replace && ws_replace(sp->ws, &t.sealed, &t.saved, &err) < 0)
		refused(err.text);
	end_op();
}

static void no_name(void *ctx, uint64_t dir, const char *name, size_t len, bool removed,
		    uint64_t child)
{
}

static void no_node(void *ctx, uint64_t n)
{
}

static void op_restore(void)
{
	struct space *sp = pick_space();
	struct err err;
	if (!t.nsnaps)
		return;
	const struct snap *sn = &t.snaps[below((unsigned)t.nsnaps)];
	say("restore %s", sp->id);
	if (manifest_get(work_store(t.work), &sn->manifest, &t.to, &err) < 0)
		refused(err.text);
	struct state *s = begin(sp);
	*s = *sn->s;
	struct ws_changes ch = { .name = no_name, .node = no_node };
	if (ws_restore(sp->ws, &t.to, &ch, &err) < 0)
		refused(err.text);
	end(sp);
	end_op();
}

static void op_reopen(void)
{
	struct space *sp = pick_space();
	struct err err;
	say("reopen %s", sp->id);
	if (t.faults) /* closing can't say that it failed, and opening goes back then */
		done(ws_fsync(sp->ws, 1));
	ws_close(sp->ws);
	sp->ws = NULL;
	if (ws_open(&sp->ws, t.work, sp->id, &err) < 0)
		refused(err.text);
}

static void op_tend(void)
{
	if (hooks.tend)
		hooks.tend();
}

static const struct {
	void (*fn)(void);
	unsigned weight;
} ops[] = {
	{ op_make, 12 },  { op_symlink, 2 },  { op_link, 3 },  { op_remove, 6 },  { op_rename, 8 },
	{ op_write, 26 }, { op_truncate, 4 }, { op_chmod, 5 }, { op_copy, 3 },    { op_fsync, 9 },
	{ op_fork, 4 },   { op_delete, 2 },   { op_save, 4 },  { op_restore, 2 }, { op_reopen, 1 },
	{ op_tend, 2 },   { op_sync, 1 },     { op_put, 5 },
};

/* Every second run is one of programs that fsync all the time, so that layers get a log. */
static unsigned weight_of(size_t i)
{
	if (t.seed % 2)
		return ops[i].weight;
	return ops[i].fn == op_fsync ? 50 : ops[i].fn == op_fork ? 2 : ops[i].weight;
}

static void open_work(const char *root, const struct io *io, uint8_t boot)
{
	struct err err;
	const uint8_t id[16] = { boot };
	const struct work_options opt = { .io = io,
					  .boot_id = id,
					  .commit_ms = UINT64_MAX,
					  .big_file = t.seed % 4 == 3 ? 0 : BIG_FILE };
	if (work_open(&t.work, root, &opt, &err) < 0)
		refused(err.text);
}

static void run_begin(void)
{
	t.rng = t.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	if (mkdir(t.root, 0700) < 0)
		fail("mkdir %s: %s", t.root, strerror(errno));
	t.power = io_power_new(t.root);
	if (!t.power)
		fail("out of memory");
	t.op = 0;
	t.nspaces = t.nsnaps = 0;
	say("begin");
}

/* By `io`, which leads to the disk that remembers. */
static void run_ops(const struct io *io)
{
	struct err err;
	t.io = io;
	open_work(t.root, io, 1);
	struct space *sp = &t.spaces[0];
	*sp = (struct space){ .made = io_power_now(t.power) };
	name_space(sp);
	t.nspaces = 1;
	(void)begin(sp);
	if (ws_create(&sp->ws, t.work, sp->id, NULL, NULL, 0, 0, &err) < 0)
		refused(err.text);
	end(sp);
	if (hooks.made)
		hooks.made(sp);
	sp->made_end = io_power_now(t.power);
	unsigned sum = 0;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		sum += weight_of(i);
	for (t.op = 1; t.op <= t.ops; t.op++) {
		unsigned at = below(sum);
		size_t i = 0;
		while (at >= weight_of(i))
			at -= weight_of(i++);
		ops[i].fn();
	}
	say("end");
	if (io_power_stray(t.power))
		fail("%s was changed around the seam", io_power_stray(t.power));
}

static void run_end(void)
{
	for (size_t i = 0; i < t.nspaces; i++) {
		ws_close(t.spaces[i].ws);
		free(t.spaces[i].m);
	}
	work_close(t.work);
	t.work = NULL;
	io_power_free(t.power);
	for (size_t i = 0; i < t.ngarbage; i++)
		free(t.garbage[i]);
	t.ngarbage = 0;
	(void)io_remove_tree(AT_FDCWD, t.root, NULL);
}

#endif
