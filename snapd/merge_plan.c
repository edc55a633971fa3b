/* What is to be done to ours so that it has theirs' changes too, name by name: what a name in a
 * folder led to in base, and leads to in theirs. Folders are known by their inode, so it doesn't
 * matter where they are.
 *
 *   1 each changed name is judged by what ours has there: done already, to be done, a conflict
 *   2 what theirs moved is set aside, so that names can be swapped
 *   3 what theirs deleted goes, the deepest first
 *   4 what was set aside, and what is new, gets its place, parents first
 *   5 contents and attributes
 *
 * Where an inode of ours is while the plan is being run, `moved` says: theirs' moves and
 * new inodes, over what ours' view shows. New inodes have numbers that nobody else has. */
#include "snapd/merge_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/work/same.h"
#include "gitops/merge_text.h"

/* ---- 2: what moves, set aside ---- */

static int plan_stage(struct planner *pl, size_t i)
{
	const struct name_change *c = &pl->names[i];
	uint64_t ino = c->ours.ino;
	char aside[32];
	int r;
	if (!c->detach || !u64map_get(&pl->comes, ino))
		return 0;
	auto_free char *from = mp_path_in(pl, c->our_dir, c->name, &r);
	if (!from)
		return r;
	r = mp_set_freed(pl, &c->ours);
	if (r >= 0 && u64map_get(&pl->moved, ino)) /* by another of its names already */
		return mp_step(pl, MERGE_REMOVE, steal_ptr(&from), NULL) ? 0 : mp_no_memory(pl);
	(void)snprintf(aside, sizeof(aside), "%zu", i);
	if (r >= 0)
		r = mp_put_place(pl, ino, NO_INO, aside);
	if (r >= 0 && !mp_step(pl, MERGE_STAGE, mp_join(pl->plan->aside, aside), steal_ptr(&from)))
		r = mp_no_memory(pl);
	return r;
}

/* ---- 3: deletions ---- */

/* A folder goes only when all that ours has in it went before. */
static int folder_is_freed(struct planner *pl, uint64_t dir)
{
	struct dirent_ref d;
	for (uint64_t from = 0;; from = d.cookie + 1) {
		int r = view_dirent_ceil(pl->t->ours, dir, from, &d);
		if (r == -ENOENT)
			return 1;
		if (r < 0)
			return err_sys(pl->err, r, "list a folder");
		if (!mp_is_freed(pl, dir, d.cookie))
			return 0;
	}
}

/* 1: it is planned, or a conflict; 0: not yet, as the folder isn't empty. */
static int plan_removal(struct planner *pl, const struct name_change *c)
{
	struct attr old, a, b;
	int r = mp_living(pl, pl->t->ours, c->ours.ino, &a);
	if (r > 0)
		r = mp_living(pl, pl->t->base, c->old, &old);
	if (r <= 0)
		return r < 0 ? r : err_set(pl->err, -EIO, "a name leads to nothing");
	r = mp_living(pl, pl->t->theirs, c->old, &b); /* by another name: this one alone goes */
	if (r == 0 && S_ISDIR(a.mode)) {
		r = folder_is_freed(pl, a.ino);
		if (r == 0)
			return 0;
	} else if (r == 0) {
		r = mp_same_thing(pl, pl->t->base, &old, pl->t->ours, &a);
		if (r == 0)
			r = mp_conflict(pl, c->label, "removed there, changed here");
		else if (r > 0)
			r = 0;
	}
	char *at = r >= 0 ? mp_path_in(pl, c->our_dir, c->name, &r) : NULL;
	if (r < 0)
		return r;
	if (!mp_step(pl, MERGE_REMOVE, at, NULL))
		return mp_no_memory(pl);
	r = mp_set_freed(pl, &c->ours);
	return r < 0 ? r : 1;
}

/* In rounds: a folder goes when what is in it is gone. */
static int plan_removals(struct planner *pl)
{
	bool again = true;
	int r = 0;
	while (again && r >= 0) {
		again = false;
		for (size_t i = pl->nnames; i > 0 && r >= 0; i--) {
			struct name_change *c = &pl->names[i - 1];
			if (!c->detach || u64map_get(&pl->comes, c->ours.ino))
				continue;
			r = plan_removal(pl, c);
			if (r > 0) {
				c->detach = false;
				again = true;
			}
		}
	}
	for (size_t i = 0; i < pl->nnames && r >= 0; i++) {
		const struct name_change *c = &pl->names[i];
		if (c->detach && !u64map_get(&pl->comes, c->ours.ino))
			r = mp_conflict(pl, c->label, "removed there, has new entries here");
	}
	return r < 0 ? r : 0;
}

/* ---- 4: new places ---- */

/* Can something be put into the folder now? 1; 0: it has to be made or placed first. */
static int is_ready(struct planner *pl, uint64_t dir)
{
	struct attr a;
	size_t n = strlen(pl->plan->aside);
	int r = 1;
	if (!u64map_get(&pl->moved, dir))
		r = mp_living(pl, pl->t->ours, dir, &a);
	if (r <= 0)
		return r;
	auto_free char *at = mp_path_of(pl, dir, &r);
	return at ? strncmp(at, pl->plan->aside, n) != 0 || (at[n] && at[n] != '/') : r;
}

static int plan_attach(struct planner *pl, const struct name_change *c)
{
	const struct place *was = u64map_get(&pl->moved, c->now);
	bool staged = was && was->parent == NO_INO;
	int r = was ? 0 : mp_is_new(pl, c->now);
	bool make = r > 0;
	if (r < 0)
		return r;
	auto_free char *from = make ? NULL : mp_path_of(pl, c->now, &r);
	char *at = r >= 0 ? mp_path_in(pl, c->our_dir, c->name, &r) : NULL;
	if (at && (staged || make) && (r = mp_put_place(pl, c->now, c->our_dir, c->name)) < 0) {
		free(at);
		return r;
	}
	if (!at)
		return r;
	struct merge_step *s = mp_step(pl,
				       staged ? MERGE_PLACE
				       : make ? MERGE_MAKE
					      : MERGE_LINK,
				       at, steal_ptr(&from));
	if (!s)
		return mp_no_memory(pl);
	s->ino = c->now;
	return 0;
}

/* In rounds, since a folder may have to come to its place before what comes into it. */
static int plan_places(struct planner *pl)
{
	bool again = true;
	int r = 0;
	while (again && r >= 0) {
		again = false;
		for (size_t i = 0; i < pl->nnames && r >= 0; i++) {
			struct name_change *c = &pl->names[i];
			if (!c->attach || (r = is_ready(pl, c->our_dir)) <= 0)
				continue;
			r = plan_attach(pl, c);
			c->attach = false;
			again = true;
		}
	}
	for (size_t i = 0; i < pl->nnames && r >= 0; i++)
		if (pl->names[i].attach)
			r = mp_conflict(pl, pl->names[i].label, "moved into each other");
	return r;
}

/* ---- 5: contents and attributes ---- */

static int slurp(struct planner *pl, struct buf *out, const struct view *v, const struct attr *a)
{
	uint8_t *room = buf_room(out, a->size + 1);
	if (!room)
		return mp_no_memory(pl);
	for (uint64_t at = 0; at < a->size;) {
		ssize_t n = view_read(v, a->ino, room + at, a->size - at, at, pl->err);
		if (n <= 0)
			return n < 0 ? (int)n : err_set(pl->err, -EIO, "a file ends early");
		at += (uint64_t)n;
	}
	out->len = a->size;
	return 0;
}

/* Both changed a file: line by line, if that can be. */
static int plan_text(struct planner *pl, const struct diff_entry *e, const struct attr *ours,
		     char **at)
{
	auto_buf b = { 0 }, o = { 0 }, t = { 0 }, text = { 0 };
	int r = 0;
	bool fits = S_ISREG(ours->mode) && e->old_attr.size <= MERGE_TEXT_MAX &&
		    ours->size <= MERGE_TEXT_MAX && e->new_attr.size <= MERGE_TEXT_MAX;
	if (fits) {
		r = slurp(pl, &b, pl->t->base, &e->old_attr);
		if (r >= 0)
			r = slurp(pl, &o, pl->t->ours, ours);
		if (r >= 0)
			r = slurp(pl, &t, pl->t->theirs, &e->new_attr);
		if (r >= 0)
			r = merge_text(&text, &b, &o, &t, pl->err);
	}
	if (r < 0)
		return r;
	if (r == 0)
		return mp_conflict(pl, *at, "changed in both");
	if (text.len == o.len && (o.len == 0 || memcmp(text.data, o.data, o.len) == 0))
		return 0; /* ours has it all */
	struct merge_step *s = mp_step(pl, MERGE_TEXT, steal_ptr(at), NULL);
	if (!s)
		return mp_no_memory(pl);
	s->text = text;
	text = (struct buf){ 0 };
	return 0;
}

static int plan_content(struct planner *pl, const struct diff_entry *e, const struct attr *ours)
{
	int r;
	auto_free char *at = mp_path_of(pl, ours->ino, &r);
	if (!at)
		return r;
	if (!mp_same_type(ours, &e->new_attr))
		return mp_conflict(pl, at, "changed there, another type here");
	r = mp_same_thing(pl, pl->t->ours, ours, pl->t->theirs, &e->new_attr);
	if (r != 0)
		return r < 0 ? r : 0;
	r = mp_same_thing(pl, pl->t->base, &e->old_attr, pl->t->ours, ours);
	if (r == 0)
		return plan_text(pl, e, ours, &at);
	struct merge_step *s = r > 0 ? mp_step(pl, MERGE_WRITE, steal_ptr(&at), NULL) : NULL;
	if (!s)
		return r < 0 ? r : mp_no_memory(pl);
	s->ino = e->new_attr.ino;
	return 0;
}

/* Which of theirs' changes of attributes are to be done; a conflict is noted. */
static int attributes(struct planner *pl, const struct diff_entry *e, const struct attr *ours,
		      unsigned *what)
{
	const struct attr *b = &e->old_attr, *t = &e->new_attr, *o = ours;
	bool clash = false;
	*what = 0;
	if (e->what & DIFF_MODE && o->mode != t->mode) {
		clash |= o->mode != b->mode;
		*what |= DIFF_MODE;
	}
	if (e->what & DIFF_OWNER && (o->uid != t->uid || o->gid != t->gid)) {
		clash |= o->uid != b->uid || o->gid != b->gid;
		*what |= DIFF_OWNER;
	}
	if (e->what & DIFF_XATTR) {
		int as_theirs = same_xattrs(pl->t->ours, o, pl->t->theirs, t);
		int as_base = same_xattrs(pl->t->ours, o, pl->t->base, b);
		if (as_theirs < 0 || as_base < 0)
			return err_sys(pl->err, as_theirs < 0 ? as_theirs : as_base,
				       "compare xattrs");
		clash |= !as_theirs && !as_base;
		*what |= as_theirs ? 0 : DIFF_XATTR;
	}
	return clash;
}

static int plan_attributes(struct planner *pl, const struct diff_entry *e, const struct attr *ours)
{
	unsigned what;
	int r = attributes(pl, e, ours, &what);
	if (r < 0 || (r == 0 && !what))
		return r;
	auto_free char *at = mp_path_of(pl, ours->ino, &r);
	if (!at)
		return r;
	if (attributes(pl, e, ours, &what) > 0)
		return mp_conflict(pl, at, "mode, owner or xattrs changed in both");
	struct merge_step *s = mp_step(pl, MERGE_ATTR, steal_ptr(&at), NULL);
	if (!s)
		return mp_no_memory(pl);
	s->ino = e->new_attr.ino;
	s->what = what;
	return 0;
}

static int what_changed(struct planner *pl, const struct edit *e, unsigned *what)
{
	const struct attr *a = &e->old, *b = &e->now;
	*what = 0;
	if (!mp_same_type(a, b)) {
		*what = DIFF_CONTENT;
		return 0;
	}
	int r = mp_same_thing(pl, pl->t->base, a, pl->t->theirs, b);
	if (r == 0)
		*what |= DIFF_CONTENT;
	if (r >= 0) {
		r = same_xattrs(pl->t->base, a, pl->t->theirs, b);
		if (r < 0)
			(void)err_sys(pl->err, r, "compare xattrs");
	}
	if (r == 0)
		*what |= DIFF_XATTR;
	if (a->mode != b->mode)
		*what |= DIFF_MODE;
	if (a->uid != b->uid || a->gid != b->gid)
		*what |= DIFF_OWNER;
	return r < 0 ? r : 0;
}

static int plan_edit(struct planner *pl, const struct edit *ed)
{
	struct diff_entry e = { .old_attr = ed->old, .new_attr = ed->now };
	struct attr ours;
	int r = what_changed(pl, ed, &e.what);
	if (r < 0 || !e.what)
		return r;
	auto_free char *was = NULL;
	r = view_path(pl->t->base, ed->old.ino, &was);
	if (r < 0)
		return err_sys(pl->err, r == -ENOENT ? -EIO : r, "find a changed file");
	r = mp_counterpart(pl, was, ed->old.ino, &ours);
	if (r <= 0)
		return r < 0 ? r : mp_conflict(pl, was, "changed there, removed here");
	if (e.what & DIFF_CONTENT)
		r = plan_content(pl, &e, &ours);
	return r < 0 ? r : plan_attributes(pl, &e, &ours);
}

/* ---- all of it ---- */

static int by_label(const void *a, const void *b)
{
	return strcmp(((const struct name_change *)a)->label,
		      ((const struct name_change *)b)->label);
}

static int plan_all(struct planner *pl)
{
	int r = 0;
	if (pl->nnames > 1) /* parents first */
		qsort(pl->names, pl->nnames, sizeof(*pl->names), by_label);
	for (size_t i = 0; i < pl->nnames && r >= 0; i++)
		r = mp_judge(pl, &pl->names[i]);
	if (r >= 0)
		r = mp_judge_moves(pl);
	if (r < 0 || pl->plan->nconflicts > 0)
		return r;
	for (size_t i = 0; i < pl->nnames && r >= 0; i++)
		r = plan_stage(pl, i);
	if (r >= 0)
		r = plan_removals(pl);
	if (r >= 0 && pl->plan->nconflicts == 0)
		r = plan_places(pl);
	return r;
}

static int find_git(struct planner *pl, const struct view *v, uint64_t *out)
{
	struct spot s;
	int r = mp_look(pl, v, ROOT_INO, ".git", &s);
	*out = r > 0 ? s.ino : NO_INO;
	return r < 0 ? r : 0;
}

static int make_plan(struct planner *pl)
{
	struct diff_raw cb = { .inode = mp_inode_differs, .name = mp_name_differs, .ctx = pl };
	int r = 0;
	if (pl->t->skip_git) {
		r = find_git(pl, pl->t->base, &pl->git[0]);
		if (r >= 0)
			r = find_git(pl, pl->t->theirs, &pl->git[1]);
	}
	if (r >= 0)
		r = diff_raw(pl->t->base, pl->t->theirs, &cb, pl->err);
	if (r >= 0)
		r = plan_all(pl);
	for (size_t i = 0; i < pl->nedits && r >= 0; i++)
		r = plan_edit(pl, &pl->edits[i]);
	return r;
}

static void planner_done(struct planner *pl)
{
	struct u64map_slot *s;
	for (size_t i = 0; i < pl->nnames; i++)
		free(pl->names[i].label);
	free(pl->names);
	free(pl->edits);
	for (size_t i = 0; (s = u64map_next(&pl->moved, &i));)
		free(s->value);
	for (size_t i = 0; (s = u64map_next(&pl->freed, &i));) {
		u64map_done(s->value);
		free(s->value);
	}
	u64map_done(&pl->moved);
	u64map_done(&pl->freed);
	u64map_done(&pl->same);
	u64map_done(&pl->went);
	u64map_done(&pl->comes);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct merge_conflict *)a)->path,
		      ((const struct merge_conflict *)b)->path);
}

int merge_plan_make(struct merge_plan *out, const struct merge_trees *t, struct err *err)
{
	struct err own = { 0 }; /* what is called looks whether it was set */
	auto_merge_plan plan = { 0 };
	struct planner pl = { .t = t, .plan = &plan, .err = &own };
	uint64_t random;
	if (t->base->seed != t->ours->seed || t->base->seed != t->theirs->seed)
		return err_set(err, -EINVAL, "the workspaces have no common origin");
	random_bytes(&random, sizeof(random));
	(void)snprintf(plan.aside, sizeof(plan.aside), ".bough-merge-%016llx",
		       (unsigned long long)random);
	int r = make_plan(&pl);
	planner_done(&pl);
	if (r < 0) {
		if (err)
			*err = own;
		return r;
	}
	if (plan.nconflicts > 1)
		qsort(plan.conflicts, plan.nconflicts, sizeof(*plan.conflicts), by_path);
	*out = plan;
	plan = (struct merge_plan){ 0 };
	return 0;
}

void merge_plan_done(struct merge_plan *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->steps[i].path);
		free(p->steps[i].from);
		buf_done(&p->steps[i].text);
	}
	for (size_t i = 0; i < p->nconflicts; i++)
		free(p->conflicts[i].path);
	free(p->steps);
	free(p->conflicts);
	memset(p, 0, sizeof(*p));
}
