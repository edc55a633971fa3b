/* Replay: from a journal's bytes, whatever became of them, to the index (invariant 3 of the
 * design): first which frames count, then what they say, then what of their contents is there. */
#include "fs/work/layer_impl.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"

/* ---- replay ---- */

/* Frames from `from` to `to` count for nothing: they were written after the last commit
 * before a boot. */
struct void_range {
	uint64_t from, to;
};

struct commit_point {
	uint64_t upto, end; /* what it covers; where it ends in the file */
	uint64_t seq;       /* its own number; 0: there is none */
	uint64_t ino;
	bool suspect; /* something before it, since the one before, may never have been written */
	uint32_t nlate; /* what it leaves out */
	struct journal_late late[JOURNAL_LATE_MAX];
};

/* What the first walk over a journal finds out: which frames count. */
struct scan {
	struct commit_point last, before; /* the last two commits */
	bool hole;                        /* since the last one */
	uint8_t boot[BOOT_ID_BYTES];      /* which wrote the end of the journal */
	struct void_range *voids;
	size_t nvoids;
	struct layer_left_out *left; /* by the commits that counted after a boot */
	uint32_t nleft;
	uint64_t ops;           /* frames that a commit must cover */
	uint64_t limit;         /* frames beyond it don't count */
	uint64_t end;           /* the journal goes on here */
	uint64_t zeroed;        /* and is zeros up to here, if that is more */
	uint64_t seq, last_ino; /* of the last frame seen */
	bool other_boot, cut, lost_tail, unreadable_tail;
};

static int add_void(struct scan *sc, uint64_t from, uint64_t to)
{
	if (from > to)
		return 0;
	struct void_range *v = reallocarray(sc->voids, sc->nvoids + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	sc->voids = v;
	v[sc->nvoids++] = (struct void_range){ from, to };
	return 0;
}

static bool is_void(const struct scan *sc, uint64_t seq)
{
	for (size_t i = 0; i < sc->nvoids; i++)
		if (seq >= sc->voids[i].from && seq <= sc->voids[i].to)
			return true;
	return false;
}

/* What a commit left out that counts after a boot never comes back. */
static int leave_out(struct scan *sc, const struct commit_point *c)
{
	struct layer_left_out *left = sc->left;
	if (c->nlate == 0)
		return 0;
	left = reallocarray(left, sc->nleft + c->nlate, sizeof(*left));
	if (!left)
		return -ENOMEM;
	sc->left = left;
	for (uint32_t i = 0; i < c->nlate; i++)
		left[sc->nleft++] =
			(struct layer_left_out){ c->late[i].ino, c->late[i].since, c->upto };
	return 0;
}

static void scan_done(struct scan *sc)
{
	free(sc->voids);
	free(sc->left);
}

static int scan_reset(struct scan *sc, const struct journal_frame *f, uint64_t upto)
{
	if (f->len < 8 + BOOT_ID_BYTES)
		return 0;
	memcpy(sc->boot, f->body + 8, BOOT_ID_BYTES);
	return add_void(sc, upto + 1, f->seq - 1);
}

/* A commit, or a reset, which says again what an older commit said: all before it was durable. */
static int scan_commit(struct scan *sc, uint64_t believe, const struct journal_frame *f)
{
	struct commit_point c = { .end = f->end, .seq = f->seq, .ino = f->ino };
	bool reset = f->kind == FRAME_RESET;
	int n = reset ? 0 : journal_commit_decode(f, &c.upto, c.late);
	if (reset)
		c.upto = le_get64(f->body);
	if (n < 0 || c.upto >= f->seq || c.upto > believe)
		return 0;
	c.nlate = (uint32_t)n;
	c.suspect = sc->hole && !reset;
	/* The file was cut behind the commit that counted before the reset was written. */
	int r = reset ? leave_out(sc, &sc->last) : 0;
	sc->before = sc->last;
	sc->last = c;
	sc->hole = false;
	return r == 0 && reset ? scan_reset(sc, f, c.upto) : r;
}

static int scan_frame(struct scan *sc, uint64_t believe, const struct journal_walk *w,
		      const struct journal_frame *f)
{
	if (w->gap == GAP_UNWRITTEN || (!f->body_ok && journal_frame_has_hole(f)))
		sc->hole = true;
	sc->last_ino = f->ino;
	if (f->kind == FRAME_OP || f->kind == FRAME_SEAL)
		sc->ops = f->seq;
	if ((f->kind != FRAME_COMMIT && f->kind != FRAME_RESET) || !f->body_ok || f->len < 8)
		return 0;
	return scan_commit(sc, believe, f);
}

/* The last one of which nothing is missing. What it covers was synced before it was written, and
 * places that older ones refer to may be somebody else's since. */
static const struct commit_point *last_good(const struct scan *sc)
{
	return sc->last.suspect ? &sc->before : &sc->last;
}

/* Walks over the whole journal and decides which frames count (invariant 3). */
static int scan_journal(struct layer *l, int fd, struct scan *sc)
{
	struct journal_walk w;
	struct journal_frame f;
	int r = journal_walk_init(&w, l->io, fd, l->journal.salt);
	if (r < 0)
		return r;
	while ((r = journal_walk_next(&w, &f)) > 0) {
		r = scan_frame(sc, l->mends ? l->believe : UINT64_MAX, &w, &f);
		if (r < 0)
			break;
	}
	sc->seq = w.last;
	sc->other_boot = l->mends || memcmp(sc->boot, l->journal.boot, BOOT_ID_BYTES) != 0;
	if (sc->other_boot) {
		const struct commit_point *c = last_good(sc);
		sc->limit = c->upto;
		sc->end = c->end ? c->end : JOURNAL_HEAD;
		r = r < 0 ? r : leave_out(sc, c);
	} else {
		sc->limit = UINT64_MAX;
		sc->end = w.gap_at;
		/* The writes of one boot are whole, but for one that was cut short or undone. */
		sc->lost_tail = w.gap != GAP_NONE && !w.torn && !w.blank;
		/* The next frame is written over it, and tells from then on that one is missing. */
		if (sc->lost_tail) {
			sc->seq++;
			sc->last_ino = 0; /* whose it was isn't known */
		}
		/* Bytes that can't be read may be frames: nothing is written in their place. */
		sc->unreadable_tail = w.unreadable;
		if (r == 0 && w.unreadable && l->writable)
			r = -EIO;
	}
	if (w.room && w.gap_at == sc->end)
		sc->zeroed = w.size;
	sc->cut = w.size > sc->end && sc->zeroed == 0;
	journal_walk_done(&w);
	return r;
}

/* What the walk's step from frame number `prev` to `f` says of frames in between. */
static void note_missing(struct layer *l, const struct scan *sc, const struct journal_frame *f,
			 uint64_t prev)
{
	if (f->kind == FRAME_RESET || f->seq == prev + 1 || is_void(sc, f->seq - 1))
		return;
	l->lost += f->seq - prev - 1;
	layer_mark_damaged(l, f->prev_ino);
}

static int replay_frame(struct layer *l, const struct journal_frame *f, struct layer_apply *how)
{
	int r = f->body_ok ? 0 : -EBADMSG;
	if (r == 0 && f->kind == FRAME_OP) {
		how->seq = l->loaded = f->seq;
		r = layer_apply(l, f->body, f->len, how);
		if (r == 0) {
			atomic_fetch_add(&l->records, f->records);
			r = layer_add_tag(l, f->tag, f->ino);
			if (f->tag >> 63)
				l->ours = f->seq;
		}
	} else if (r == 0 && f->kind == FRAME_SEAL) {
		atomic_store(&l->sealed, true);
	}
	if (r == -EBADMSG) {
		l->lost++;
		layer_mark_damaged(l, f->ino);
		r = 0;
	}
	return r;
}

static int replay(struct layer *l, int fd, const struct scan *sc, const struct layer_options *opt)
{
	struct journal_walk w;
	struct journal_frame f;
	struct layer_apply how = { .replay = true,
				   .opt = opt,
				   .left_out = sc->left,
				   .nleft_out = sc->nleft };
	struct changed_log *changed = atomic_load(&l->changed);
	uint64_t prev = 0;
	int r = journal_walk_init(&w, l->io, fd, l->journal.salt);
	if (r < 0)
		return r;
	while ((r = journal_walk_next(&w, &f)) > 0 && f.pos < sc->end) {
		/* A commit that covers less than what lies before it: the rest doesn't count. */
		if (f.seq <= sc->limit && !is_void(sc, f.seq)) {
			note_missing(l, sc, &f, prev);
			r = replay_frame(l, &f, &how);
			if (r < 0)
				break;
		}
		prev = f.seq;
	}
	l->corrected = w.corrected;
	journal_walk_done(&w);
	layer_apply_done(&how);
	l->lost += sc->lost_tail;
	layer_mark_partial(l);
	/* Somebody may remember frames that don't count any more, or that were lost. */
	if (changed && (sc->other_boot || sc->nvoids || l->lost))
		changed_log_forget(changed, sc->seq);
	return r < 0 ? r : 0;
}

int layer_find_bases(struct layer *l, int fd, const uint8_t made[BOOT_ID_BYTES],
		     const uint8_t boot[BOOT_ID_BYTES], struct layer_base out[2])
{
	struct scan sc = { 0 };
	memset(out, 0, 2 * sizeof(*out));
	memcpy(sc.boot, made, BOOT_ID_BYTES);
	int r = scan_journal(l, fd, &sc);
	if (r == 0 && memcmp(sc.boot, boot, BOOT_ID_BYTES) == 0) {
		out[0] = (struct layer_base){ sc.last.seq, sc.last.end };
		if (sc.last.suspect)
			out[1] = (struct layer_base){ sc.before.seq, sc.before.end };
	}
	scan_done(&sc);
	return r;
}

static void start_from(struct layer *l, const struct scan *sc)
{
	l->journal.seq = sc->seq;
	l->journal.last_ino = sc->last_ino;
	l->journal.end = sc->end;
	l->journal.zeroed = sc->zeroed > sc->end ? sc->zeroed : sc->end;
	l->journal.allocated = l->journal.zeroed;
	l->journal.cut = sc->cut;
	if (sc->other_boot) {
		l->journal.reset = true;
		l->journal.reset_upto = sc->limit;
		l->journal.last_op = l->commit.covered = sc->limit;
	} else {
		/* A commit frame that is there may not have been synced: the next commit is whole.
		 * But it is good as long as it can be read. */
		l->commit.before = last_good(sc)->upto;
		/* And so are records that follow it. */
		if (l->log.found_base && l->log.found_base == sc->last.seq)
			l->commit.before = l->log.found_upto;
		l->journal.last_op = sc->ops;
		l->files.all_dirty = sc->ops > 0;
		l->commit.created = sc->last.end == 0;
		l->files.dir_dirty = true;
		l->commit.error = sc->unreadable_tail ? -EIO : 0;
	}
}

static int read_head(struct layer *l, int fd, struct journal_head *head, struct err *err)
{
	uint8_t block[JOURNAL_HEAD];
	ssize_t n = io_read_full(l->io, fd, block, sizeof(block), 0);
	if (n < 0)
		return err_sys(err, (int)n, "read %s/journal", l->dir);
	int r = journal_head_decode(head, block, (size_t)n);
	if (r == 0 && memcmp(head->id.b, l->id.b, LAYER_ID_BYTES) != 0)
		return err_set(err, -EBADMSG, "%s/journal belongs to another layer", l->dir);
	if (r == -EPROTONOSUPPORT)
		return err_set(err, -EBADMSG,
			       "%s/journal has a version that this program doesn't know", l->dir);
	if (r < 0)
		return err_set(err, r, "the header of %s/journal is damaged", l->dir);
	return 0;
}

int layer_load(struct layer *l, const struct layer_options *opt, struct err *err)
{
	struct layer_file *f;
	struct journal_head head;
	int r = layer_file_get(l, LAYER_JOURNAL, LAYER_EXISTING, &f);
	if (r < 0)
		return err_sys(err, r, "open %s/journal", l->dir);
	struct scan sc = { 0 };
	r = read_head(l, f->fd, &head, err);
	if (r == 0) {
		l->journal.salt = head.salt;
		memcpy(l->journal.boot, boot_id(opt->boot_id), BOOT_ID_BYTES);
		memcpy(sc.boot, head.boot, BOOT_ID_BYTES);
		r = layer_log_recover(l, f->fd, head.boot);
		if (r == 0)
			r = scan_journal(l, f->fd, &sc);
		if (r == 0)
			r = replay(l, f->fd, &sc, opt);
		if (r == 0)
			start_from(l, &sc);
		else
			(void)err_sys(err, r, "read %s/journal", l->dir);
	}
	layer_file_put(l, f);
	l->left_out = steal_ptr(&sc.left);
	l->nleft_out = sc.nleft;
	scan_done(&sc);
	return r;
}

/* ---- contents ---- */

/* Data files that extents refer to and that aren't there. */
struct missing {
	struct layer *l;
	struct u64map files; /* number + 1 -> itself */
	uint64_t packed_size;
	struct buf records; /* of the inodes that have lost something */
	uint32_t inodes;
};

static int look_at_file(void *ctx, uint64_t number)
{
	struct missing *m = ctx;
	struct layer *l = m->l;
	struct layer_file *f;
	struct stat st;
	int r = layer_file_get(l, number, LAYER_EXISTING, &f);
	if (r == -ENOENT)
		return u64map_put(&m->files, number + 1, m);
	if (r < 0)
		return r;
	if (number == SPACE_PACKED) {
		r = l->io->fstat(l->io->ctx, f->fd, &st);
		m->packed_size = r == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
	}
	layer_file_put(l, f);
	return r;
}

static int look_at_inode(void *ctx, const struct layer_inode *li)
{
	struct missing *m = ctx;
	struct omap_entry e;
	omap_each(&li->extents, &e) {
		const struct extent *x = e.value.p;
		if (x->kind != EXTENT_DATA || x->layer != m->l || li->damaged ||
		    !u64map_get(&m->files, x->file + 1))
			continue;
		record_damaged(&m->records, li->attr.ino);
		m->inodes++;
		return buf_error(&m->records);
	}
	return 0;
}

/* Marks the inodes. An active layer says so in its journal, before a new file of that name
 * takes new contents. */
static int mark_lost(struct missing *m)
{
	struct layer *l = m->l;
	int r = buf_room(&m->records, FRAME_HEAD) ? 0 : -ENOMEM;
	if (r == 0)
		m->records.len = FRAME_HEAD;
	if (r == 0)
		r = layer_each_inode(l, look_at_inode, m);
	if (r < 0 || m->inodes == 0)
		return r;
	struct layer_apply how = { .replay = true };
	r = layer_apply(l, m->records.data + FRAME_HEAD, m->records.len - FRAME_HEAD, &how);
	layer_apply_done(&how);
	struct journal_frame f = { .kind = FRAME_OP, .records = m->inodes };
	if (r < 0 || !l->writable || layer_is_sealed(l))
		return r;
	r = layer_append(l, &m->records, &f, APPEND_SMALL);
	if (r == 0)
		atomic_fetch_add(&l->records, m->inodes);
	return r;
}

/* Own files of which something was left out may have more than extents lead to. */
static int look_at_left_out(struct layer *l)
{
	int r = 0;
	for (uint32_t i = 0; i < l->nleft_out && r == 0; i++) {
		struct layer_file *f;
		struct stat st = { 0 };
		r = layer_file_get(l, l->left_out[i].ino, LAYER_EXISTING, &f);
		if (r == -ENOENT) {
			r = 0;
			continue;
		}
		if (r < 0)
			return r;
		r = l->io->fstat(l->io->ctx, f->fd, &st);
		layer_file_put(l, f);
		if (r == 0 && st.st_size >= 0)
			r = space_note_big(&l->space, l->left_out[i].ino, (uint64_t)st.st_size);
	}
	return r;
}

/* The inode whose own file is called so; 0: no inode's. */
static uint64_t own_file_of(const char *name)
{
	char *end, again[LAYER_FAULT_NAME];
	if (name[0] != 'f')
		return 0;
	uint64_t ino = strtoull(name + 1, &end, 16);
	if (ino == 0 || ino >> REC_INO_BITS)
		return 0;
	layer_file_name(again, sizeof(again), ino); /* what isn't written so is none of ours */
	return strcmp(name, again) == 0 ? ino : 0;
}

/* Files of inodes to which no extent leads: they were made, or taken over (layer_adopt), and then a
 * kill or the power came before the record. The next commit removes them. Not where records were
 * lost: then they may be all that is left of something. */
static int look_for_left_over(struct layer *l)
{
	const struct dirent *de;
	int r = 0;
	if (!l->writable || layer_is_sealed(l) || l->lost > 0)
		return 0;
	auto_dir *d = opendir(l->dir);
	if (!d)
		return errno == ENOENT ? 0 : -errno; /* a disk that is only simulated */
	while (r == 0 && (errno = 0, de = readdir(d))) {
		uint64_t ino = own_file_of(de->d_name);
		if (!ino || space_has_big(&l->space, ino))
			continue;
		r = space_note_big(&l->space, ino, 0);
		l->files.all_dirty = true; /* so a commit comes */
	}
	return r == 0 && !de && errno ? -errno : r;
}

int layer_load_space(struct layer *l, struct err *err)
{
	struct missing m = { .l = l };
	int r = look_at_left_out(l);
	if (r == 0)
		r = look_at_file(&m, SPACE_PACKED);
	if (r == 0)
		r = space_each_file(&l->space, look_at_file, &m);
	if (r == 0 && m.files.count)
		r = mark_lost(&m);
	if (r == 0)
		r = look_for_left_over(l);
	if (r == 0)
		r = layer_rebuild_space(l, m.packed_size, layer_is_dirty(l));
	l->lost += m.inodes;
	u64map_done(&m.files);
	buf_done(&m.records);
	return r < 0 ? err_sys(err, r, "look at the data files of %s", l->dir) : 0;
}
