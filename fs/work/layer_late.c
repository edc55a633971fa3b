/* What an fsync leaves out: big files that it isn't asked about (layer.h, layer_fsync).
 *
 * A commit that an fsync makes may leave files of one inode unsynced. Its frame names these inodes,
 * each with `since`: a frame up to which all that the inode got is durable. Who reads the journal
 * in another boot then leaves out what an inode named by the commit that counts got behind its
 * `since`: new places, and growth (layer_replay.c). So nothing leads to bytes that may not be
 * there.
 *
 * 1. Only an inode's own file may be left out. Its places are logical = physical, so whatever the
 *    disk has there is of that inode, at that offset. What others refer to in it by a reflink is
 *    kept (4) until it is durable, and isn't overwritten as long as they do.
 * 2. Nothing is freed by such a commit, so what the inode had at `since` is there yet: places are
 *    given back by whole commits alone, which leave nothing out, and `since` isn't before the last.
 * 3. What stands in the log of fsyncs as pieces of a file isn't in it: then it is synced, since the
 *    commit ends the log.
 * 4. Inodes that were asked to be kept (txn_keep) aren't left out before a whole commit.
 * 5. While anything is left out nothing goes to the log, and the layer is dirty: the next whole
 *    commit comes within seconds (layer_is_dirty). */
#include "fs/work/layer_impl.h"

#include <errno.h>
#include <string.h>

enum { AHEAD_ROUNDS = 3 }; /* who writes faster than the disk isn't waited for any longer */

static void lock(struct layer *l)
{
	(void)pthread_mutex_lock(&l->files.lock);
}

static void unlock(struct layer *l)
{
	(void)pthread_mutex_unlock(&l->files.lock);
}

static bool is_big(const struct layer_file *f)
{
	return f->number != SPACE_PACKED && f->number >> REC_INO_BITS == 0;
}

/* Something of it, and not little, may not be on the disk. */
static bool has_much(const struct layer *l, const struct layer_file *f)
{
	return is_big(f) && f->dirty && !f->gone && f->written - f->synced >= l->space.big_from;
}

/* Whether a commit for an fsync of `ino` may leave that file out. files.lock is held. */
static bool may_wait(struct layer *l, const struct layer_file *f, uint64_t ino)
{
	return has_much(l, f) && f->number != ino && !f->logged && !l->files.keep_all &&
	       !u64map_get(&l->files.keep, f->number);
}

bool layer_has_late(struct layer *l, uint64_t ino)
{
	bool has = false;
	lock(l);
	/* All may be dirty of an earlier process. Files that are only to go are no reason not to
	 * free them. */
	for (const struct layer_file *f = l->files.list; f && !has && !l->files.all_dirty;
	     f = f->next)
		has = may_wait(l, f, ino) && !space_is_unused(&l->space, f->number);
	unlock(l);
	return has && !layer_is_sealed(l);
}

bool layer_take_late(struct layer *l, struct layer_partial *p, const struct layer_file *f)
{
	if (p->n == JOURNAL_LATE_MAX || !may_wait(l, f, p->ino))
		return false;
	p->late[p->n++] =
		(struct journal_late){ f->number, f->late ? f->since : p->covered };
	return true;
}

/* What a whole commit up to that frame covers may be left out again. */
static void keep_newer(struct layer *l, uint64_t upto)
{
	struct u64map newer = { 0 };
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&l->files.keep, &i));) {
		if ((uintptr_t)slot->value <= upto ||
		    u64map_put(&newer, slot->key, slot->value) == 0)
			continue;
		u64map_done(&newer);
		return; /* without memory all stay */
	}
	u64map_done(&l->files.keep);
	l->files.keep = newer;
	/* Which inodes there was no place for isn't known. */
	l->files.keep_all = l->files.keep_all && l->files.keep_upto > upto;
}

void layer_late_settle(struct layer *l, uint64_t upto, const struct layer_partial *p)
{
	lock(l);
	for (struct layer_file *f = l->files.list; f; f = f->next) {
		f->late = f->logged = false;
		for (uint32_t i = 0; p && i < p->n; i++) {
			if (p->late[i].ino != f->number)
				continue;
			f->late = true;
			f->since = p->late[i].since;
		}
	}
	if (!p && (l->files.keep.count || l->files.keep_all))
		keep_newer(l, upto);
	unlock(l);
}

void layer_keep(struct layer *l, const struct buf *inos, uint64_t seq)
{
	const uint64_t *ino = (const uint64_t *)inos->data;
	if (inos->len == 0)
		return;
	seq = seq ? seq : 1; /* of an empty journal; the map knows no 0 */
	lock(l);
	for (size_t i = 0; i < inos->len / sizeof(*ino); i++) {
		bool room = l->files.keep.count < LAYER_KEEP_MAX ||
			    u64map_get(&l->files.keep, ino[i]);
		if (room && u64map_put(&l->files.keep, ino[i], (void *)(uintptr_t)seq) == 0)
			continue;
		l->files.keep_all = true;
		l->files.keep_upto = seq;
	}
	unlock(l);
}

/* ---- ahead of a commit ---- */

/* A file with much that wasn't met in this round, in use; NULL: no more. */
static struct layer_file *next_ahead(struct layer *l, uint64_t ino, uint64_t round, uint64_t *mark)
{
	lock(l);
	struct layer_file *f = l->files.list;
	while (f && (!has_much(l, f) || f->round == round || (ino && f->number != ino) ||
		     space_is_unused(&l->space, f->number)))
		f = f->next;
	if (f) {
		f->round = round;
		f->users++;
		*mark = f->written;
	}
	unlock(l);
	return f;
}

void layer_file_synced(struct layer *l, struct layer_file *f, uint64_t mark)
{
	lock(l);
	f->synced = f->synced > mark ? f->synced : mark;
	unlock(l);
}

void layer_sync_ahead(struct layer *l, uint64_t ino)
{
	for (int i = 0; i < AHEAD_ROUNDS; i++) {
		struct layer_file *f;
		uint64_t mark, met = 0;
		lock(l);
		uint64_t round = ++l->files.round;
		unlock(l);
		while ((f = next_ahead(l, ino, round, &mark))) {
			met++;
			int r = l->io->fdatasync(l->io->ctx, f->fd);
			if (r < 0)
				layer_sync_failed(l, f->number, r);
			else
				layer_file_synced(l, f, mark);
			layer_file_put(l, f);
			if (r < 0)
				return;
		}
		if (met == 0)
			return;
	}
}
