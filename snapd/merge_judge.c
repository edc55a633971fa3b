/* Which names theirs changed, and what becomes of each in ours. */
#include "snapd/merge_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"

/* ---- which they are ---- */

/* Below the folder .git in the root, in that view? 1, 0 or -errno. */
static int in_git(struct planner *pl, const struct view *v, uint64_t git, uint64_t ino)
{
	struct attr a;
	int r = 1;
	for (unsigned depth = 0; git && r > 0 && depth < VIEW_DEPTH_MAX; depth++) {
		if (ino == git)
			return 1;
		if (ino == ROOT_INO)
			return 0;
		r = mp_living(pl, v, ino, &a);
		ino = a.parent;
	}
	return r < 0 ? r : 0;
}

static int is_left_out(struct planner *pl, uint64_t dir, const char *name)
{
	if (!pl->t->skip_git)
		return 0;
	if (dir == ROOT_INO && name && strcmp(name, ".git") == 0)
		return 1;
	int r = in_git(pl, pl->t->base, pl->git[0], dir);
	return r == 0 ? in_git(pl, pl->t->theirs, pl->git[1], dir) : r;
}

static char *label_of(struct planner *pl, const struct view *v, uint64_t dir, const char *name,
		      int *r)
{
	auto_free char *at = NULL;
	*r = view_path(v, dir, &at);
	char *out = *r >= 0 ? mp_join(at, name) : NULL;
	if (*r < 0)
		(void)err_sys(pl->err, *r, "find a folder");
	else if (!out)
		*r = mp_no_memory(pl);
	return out;
}

static int add_name(struct planner *pl, uint64_t dir, const char *name, size_t len, uint64_t old,
		    uint64_t now)
{
	struct name_change c = { .dir = dir, .old = old, .now = now };
	memcpy(c.name, name, len);
	int r = is_left_out(pl, dir, c.name);
	if (r != 0)
		return r < 0 ? r : 0;
	c.label = label_of(pl, now ? pl->t->theirs : pl->t->base, dir, c.name, &r);
	if (r < 0)
		return r;
	if (array_grow(&pl->names, pl->nnames, &pl->names_cap) < 0) {
		free(c.label);
		return mp_no_memory(pl);
	}
	pl->names[pl->nnames++] = c;
	return 0;
}

/* Of folders that only one side has, all names count, and are added with the folder. */
int mp_name_differs(void *ctx, uint64_t dir, const char *name, size_t len, uint64_t old,
		    uint64_t now)
{
	struct planner *pl = ctx;
	struct attr a;
	int r = mp_living(pl, pl->t->base, dir, &a);
	if (r > 0)
		r = mp_living(pl, pl->t->theirs, dir, &a);
	return r <= 0 || old == now ? r < 0 ? r : 0 : add_name(pl, dir, name, len, old, now);
}

static int all_names(struct planner *pl, const struct view *v, uint64_t dir, bool old)
{
	struct dirent_ref d;
	for (uint64_t from = 0;; from = d.cookie + 1) {
		int r = view_dirent_ceil(v, dir, from, &d);
		if (r == -ENOENT)
			return 0;
		if (r < 0)
			return err_sys(pl->err, r, "list a folder");
		r = add_name(pl, dir, d.name, d.name_len, old ? d.ino : NO_INO,
			     old ? NO_INO : d.ino);
		if (r < 0)
			return r;
	}
}

int mp_inode_differs(void *ctx, uint64_t ino, const struct attr *old, const struct attr *now,
		     bool content)
{
	struct planner *pl = ctx;
	struct attr a;
	int r = 0, was = old ? mp_living(pl, pl->t->base, ino, &a) : 0;
	int is = was < 0 ? was : now ? mp_living(pl, pl->t->theirs, ino, &a) : 0;
	(void)content;
	if (is < 0)
		return is;
	if (was && is) {
		r = is_left_out(pl, ino, NULL);
		return r == 0 ? mp_edit(pl, ino, ino) : r < 0 ? r : 0;
	}
	if (was && S_ISDIR(old->mode))
		r = all_names(pl, pl->t->base, ino, true);
	else if (is && S_ISDIR(now->mode))
		r = all_names(pl, pl->t->theirs, ino, false);
	return r;
}

/* ---- what becomes of each ---- */

int mp_is_new(struct planner *pl, uint64_t ino)
{
	struct attr a;
	int r = mp_living(pl, pl->t->base, ino, &a);
	return r < 0 ? r : r == 0;
}

int mp_edit(struct planner *pl, uint64_t old, uint64_t now)
{
	struct edit e;
	int r = mp_living(pl, pl->t->base, old, &e.old);
	if (r > 0)
		r = mp_living(pl, pl->t->theirs, now, &e.now);
	if (r <= 0)
		return r < 0 ? r : err_set(pl->err, -EIO, "a changed inode isn't there");
	if (array_grow(&pl->edits, pl->nedits, &pl->edits_cap) < 0)
		return mp_no_memory(pl);
	pl->edits[pl->nedits++] = e;
	return 0;
}

/* Theirs put a new file in the place of base's, which is gone: an editor's way to save. 1, 0. */
static int is_saved_anew(struct planner *pl, const struct name_change *c)
{
	struct attr old, now, a;
	if (!c->old || !c->now)
		return 0;
	int r = mp_living(pl, pl->t->base, c->old, &old);
	if (r > 0)
		r = mp_living(pl, pl->t->theirs, c->now, &now);
	if (r <= 0 || !S_ISREG(old.mode) || !S_ISREG(now.mode))
		return r < 0 ? r : 0;
	r = mp_is_new(pl, c->now);
	if (r > 0) {
		r = mp_living(pl, pl->t->theirs, c->old, &a);
		r = r < 0 ? r : r == 0;
	}
	return r;
}

/* Is what ours has at the name as base had it there? */
static int as_in_base(struct planner *pl, const struct name_change *c)
{
	struct attr old, a;
	int r = mp_living(pl, pl->t->base, c->old, &old);
	if (r > 0)
		r = mp_living(pl, pl->t->ours, c->ours.ino, &a);
	if (r <= 0 || !mp_same_type(&old, &a) || S_ISDIR(a.mode))
		return r < 0 ? r : 0;
	return mp_same_thing(pl, pl->t->base, &old, pl->t->ours, &a);
}

/* Theirs has no such name any more, and ours has something else there. */
static int judge_gone(struct planner *pl, struct name_change *c)
{
	struct attr a;
	int r;
	if (c->ours.ino) {
		r = as_in_base(pl, c);
		c->detach = r > 0;
		return r == 0  ? mp_conflict(pl, c->label, "removed there, changed here")
		       : r < 0 ? r
			       : 0;
	}
	r = mp_living(pl, pl->t->theirs, c->old, &a);
	if (r != 0)
		return r < 0 ? r : 0; /* its other name tells */
	r = mp_living(pl, pl->t->ours, c->old, &a);
	if (r <= 0 || (!S_ISDIR(a.mode) && a.nlink > 1))
		return r < 0 ? r : 0;
	return mp_conflict(pl, c->label, "removed there, moved here");
}

/* Both have something new at the name. */
static int judge_both(struct planner *pl, struct name_change *c)
{
	struct attr now, a;
	int r = mp_living(pl, pl->t->theirs, c->now, &now);
	if (r > 0)
		r = mp_living(pl, pl->t->ours, c->ours.ino, &a);
	if (r <= 0)
		return r < 0 ? r : err_set(pl->err, -EIO, "a name leads to nothing");
	int fresh = mp_is_new(pl, c->now), ours_fresh = mp_is_new(pl, c->ours.ino);
	if (fresh < 0 || ours_fresh < 0)
		return fresh < 0 ? fresh : ours_fresh;
	if (fresh && ours_fresh && S_ISDIR(now.mode) && S_ISDIR(a.mode))
		return u64map_put(&pl->same, c->now, (void *)(uintptr_t)a.ino) < 0
			       ? mp_no_memory(pl)
			       : 0;
	if (fresh && a.mode == now.mode && !S_ISDIR(a.mode)) {
		r = mp_same_thing(pl, pl->t->ours, &a, pl->t->theirs, &now);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	if (!fresh)
		return mp_conflict(pl, c->label, "moved there to a name that is taken here");
	return mp_conflict(pl, c->label, c->old ? "changed in both" : "new in both, and different");
}

int mp_judge(struct planner *pl, struct name_change *c)
{
	int r = mp_our_dir(pl, c->dir, &c->our_dir);
	if (r < 0)
		return r;
	if (r == 0) {
		c->our_dir = NO_INO;
		return c->now ? mp_conflict(pl, c->label, "its folder was removed here") : 0;
	}
	r = mp_look(pl, pl->t->ours, c->our_dir, c->name, &c->ours);
	if (r == 0)
		c->ours = (struct spot){ .dir = c->our_dir };
	if (r < 0 || c->ours.ino == c->now)
		return r < 0 ? r : 0;
	int saved = is_saved_anew(pl, c);
	if (saved < 0)
		return saved;
	if (saved) /* whichever file of ours it is now, mp_counterpart finds it; else a conflict */
		return mp_edit(pl, c->old, c->now);
	if (c->ours.ino == c->old) {
		c->detach = c->old != NO_INO;
		c->attach = c->now != NO_INO;
		return 0;
	}
	if (!c->now)
		return judge_gone(pl, c);
	return c->ours.ino ? judge_both(pl, c)
			   : mp_conflict(pl, c->label, "changed there, removed here");
}

enum { WENT = 1, DETACHED = 2 };

static int mark(struct planner *pl, struct u64map *m, uint64_t ino, uintptr_t v)
{
	return u64map_put(m, ino, (void *)v) < 0 ? mp_no_memory(pl) : 0;
}

/* Where what comes there was in base. */
static const char *first_label(const struct planner *pl, const struct name_change *c)
{
	for (size_t i = 0; i < pl->nnames; i++)
		if (pl->names[i].old == c->now)
			return pl->names[i].label;
	return c->label;
}

/* A move is one only where ours has the inode at the name that it goes from. */
int mp_judge_moves(struct planner *pl)
{
	int r = 0;
	for (size_t i = 0; i < pl->nnames && r >= 0; i++) {
		const struct name_change *c = &pl->names[i];
		if (c->old && (c->detach || !u64map_get(&pl->went, c->old)))
			r = mark(pl, &pl->went, c->old, c->detach ? DETACHED : WENT);
		if (r >= 0 && c->attach)
			r = mark(pl, &pl->comes, c->now, 1);
	}
	for (size_t i = 0; i < pl->nnames && r >= 0; i++) {
		const struct name_change *c = &pl->names[i];
		struct attr a;
		if (!c->attach || (r = mp_is_new(pl, c->now)) != 0)
			continue;
		uintptr_t went = (uintptr_t)u64map_get(&pl->went, c->now);
		r = mp_living(pl, pl->t->ours, c->now, &a);
		if (r == 0)
			r = mp_conflict(pl, c->label, "moved there, removed here");
		else if (r > 0 && went == WENT)
			r = mp_conflict(pl, first_label(pl, c), "moved to different places");
	}
	return r < 0 ? r : 0;
}
