/* What is to be done to ours so that it has theirs' changes too.
 *
 *   1 what theirs moved is set aside, so that names can be swapped
 *   2 what theirs deleted goes, the deepest first
 *   3 what was set aside, and what is new, gets its place, parents first
 *   4 contents and attributes
 *
 * Where an inode of ours is while the plan is being run, `moved` says: theirs' moves and
 * new inodes, over what ours' view shows. New inodes have numbers that nobody else has. */
#include "snapd/merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/u64map.h"
#include "fs/work/diff.h"
#include "fs/work/same.h"
#include "fs/work/tree_names.h"
#include "gitops/merge_text.h"

enum { NO_INO = 0, ROOT_INO = 1 };

/* Where an inode is: a name in a folder; parent NO_INO: set aside. */
struct place {
	uint64_t parent;
	char name[NAME_MAX_BYTES + 1];
};

/* A name in a view. */
struct spot {
	uint64_t dir, ino, cookie;
	char name[NAME_MAX_BYTES + 1];
};

struct change {
	struct diff_entry e; /* its paths are ours to free */
	bool move;           /* DIFF_RENAMED, and ours doesn't have it there yet */
};

struct planner {
	const struct merge_trees *t;
	struct merge_plan *plan;
	struct change *v;
	size_t n, cap;
	struct u64map moved; /* ino -> struct place */
	struct u64map same;  /* folder of theirs -> the one that ours made there, as a number */
	struct u64map freed; /* folder of ours -> struct u64map of cookies */
	struct err *err;
};

/* ---- small things ---- */

static int no_memory(struct planner *pl)
{
	return err_set(pl->err, -ENOMEM, "out of memory");
}

static int conflict(struct planner *pl, const char *path, const char *why)
{
	struct merge_plan *p = pl->plan;
	char *copy = strdup(path);
	if (!copy || array_grow(&p->conflicts, p->nconflicts, &p->conflicts_cap) < 0) {
		free(copy);
		return no_memory(pl);
	}
	p->conflicts[p->nconflicts++] = (struct merge_conflict){ copy, why };
	return 0;
}

/* Takes path and from, also where it fails; NULL for path: out of memory. */
static struct merge_step *step(struct planner *pl, enum merge_kind kind, char *path, char *from)
{
	struct merge_plan *p = pl->plan;
	if (!path || array_grow(&p->steps, p->n, &p->cap) < 0) {
		free(path);
		free(from);
		return NULL;
	}
	p->steps[p->n] = (struct merge_step){ .kind = kind, .path = path, .from = from };
	return &p->steps[p->n++];
}

static char *join(const char *dir, const char *name)
{
	char *out = NULL;
	if (asprintf(&out, "%s%s%s", dir, *dir ? "/" : "", name) < 0)
		return NULL;
	return out;
}

/* The inode in a view, when a name leads to it. 1, 0, or -errno. */
static int living(struct planner *pl, const struct view *v, uint64_t ino, struct attr *a)
{
	int r = view_inode(v, ino, a);
	if (r == -ENOENT || (r >= 0 && a->nlink == 0))
		return 0;
	return r < 0 ? err_sys(pl->err, r, "inode %llu", (unsigned long long)ino) : 1;
}

/* The name in the folder. 1, 0 or -errno. */
static int look(struct planner *pl, const struct view *v, uint64_t dir, const char *name,
		struct spot *out)
{
	struct dirent_ref d;
	int r = view_lookup(v, dir, name, strlen(name), &d);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_sys(pl->err, r, "look up %s", name);
	*out = (struct spot){ .dir = dir, .ino = d.ino, .cookie = d.cookie };
	(void)snprintf(out->name, sizeof(out->name), "%s", name);
	return 1;
}

/* Follows a path. 1, 0 or -errno. */
static int follow(struct planner *pl, const struct view *v, const char *path, struct spot *out)
{
	uint64_t dir = ROOT_INO;
	int r = 1;
	*out = (struct spot){ .dir = ROOT_INO, .ino = ROOT_INO };
	while (*path && r > 0) {
		char name[NAME_MAX_BYTES + 1];
		size_t len = strcspn(path, "/");
		if (len > NAME_MAX_BYTES)
			return err_set(pl->err, -EIO, "a name is too long");
		memcpy(name, path, len);
		name[len] = '\0';
		r = look(pl, v, dir, name, out);
		dir = out->ino;
		path += len + (path[len] == '/');
	}
	return r;
}

/* The same of a path of a diff, which is there. */
static int resolve(struct planner *pl, const struct view *v, const char *path, struct spot *out)
{
	int r = follow(pl, v, path, out);
	return r == 0 ? err_set(pl->err, -EIO, "a path of the comparison isn't there") : r;
}

/* ---- where things are while the plan runs ---- */

static int put_place(struct planner *pl, uint64_t ino, uint64_t parent, const char *name)
{
	struct place *p = u64map_get(&pl->moved, ino);
	if (!p && (!(p = malloc(sizeof(*p))) || u64map_put(&pl->moved, ino, p) < 0)) {
		free(p);
		return no_memory(pl);
	}
	p->parent = parent;
	(void)snprintf(p->name, sizeof(p->name), "%s", name);
	return 0;
}

/* The name by which ours shows the inode, and its folder. -EIO when none leads to it. */
static int shown_at(struct planner *pl, uint64_t ino, uint64_t *parent,
		    char name[NAME_MAX_BYTES + 1])
{
	struct attr a;
	struct dirent_ref d;
	const struct view *v = pl->t->ours;
	if (living(pl, v, ino, &a) <= 0)
		return err_set(pl->err, -EIO, "inode %llu has no name", (unsigned long long)ino);
	if (a.parent_cookie && view_dirent_ceil(v, a.parent, a.parent_cookie, &d) >= 0 &&
	    d.cookie == a.parent_cookie && d.ino == ino) {
		*parent = a.parent;
		(void)snprintf(name, NAME_MAX_BYTES + 1, "%.*s", d.name_len, d.name);
		return 0;
	}
	auto_free char *path = NULL; /* the hint is of a name that went: a search */
	struct spot s;
	int r = view_path(v, ino, &path);
	if (r < 0)
		return err_sys(pl->err, r == -ENOENT ? -EIO : r, "find inode %llu",
			       (unsigned long long)ino);
	r = resolve(pl, v, path, &s);
	if (r < 0)
		return r;
	*parent = s.dir;
	memcpy(name, s.name, sizeof(s.name));
	return 0;
}

/* The path at this point of the plan; the caller frees. NULL: *r says why. */
static char *path_of(struct planner *pl, uint64_t ino, int *r)
{
	char *path = strdup("");
	*r = path ? 0 : no_memory(pl);
	for (unsigned depth = 0; *r >= 0 && ino != ROOT_INO; depth++) {
		char name[NAME_MAX_BYTES + 1];
		uint64_t parent = NO_INO;
		const struct place *p = u64map_get(&pl->moved, ino);
		if (depth > VIEW_DEPTH_MAX)
			*r = err_set(pl->err, -ELOOP, "a folder would be inside itself");
		else if (p)
			parent = p->parent, memcpy(name, p->name, sizeof(name));
		else
			*r = shown_at(pl, ino, &parent, name);
		if (*r < 0)
			break;
		char *longer = *path ? join(name, path) : strdup(name);
		free(path);
		path = longer;
		if (parent == NO_INO && path) {
			longer = join(pl->plan->aside, path);
			free(path);
			path = longer;
			parent = ROOT_INO;
		}
		*r = path ? 0 : no_memory(pl);
		ino = parent;
	}
	if (*r < 0) {
		free(path);
		return NULL;
	}
	return path;
}

static char *path_in(struct planner *pl, uint64_t dir, const char *name, int *r)
{
	auto_free char *at = path_of(pl, dir, r);
	char *path = at ? join(at, name) : NULL;
	if (at && !path)
		*r = no_memory(pl);
	return path;
}

/* The name of ours is free from here on. */
static int set_freed(struct planner *pl, const struct spot *s)
{
	struct u64map *m = u64map_get(&pl->freed, s->dir);
	if (!m && (!(m = calloc(1, sizeof(*m))) || u64map_put(&pl->freed, s->dir, m) < 0)) {
		free(m);
		return no_memory(pl);
	}
	return u64map_put(m, s->cookie, m) < 0 ? no_memory(pl) : 0;
}

static bool is_freed(const struct planner *pl, uint64_t dir, uint64_t cookie)
{
	const struct u64map *m = u64map_get(&pl->freed, dir);
	return m && u64map_get(m, cookie);
}

/* A folder of theirs that took the place of base's: the comparison goes by that name, so what is in
 * it belongs to base's. *out is that one, or itself. */
static int replaced_dir(struct planner *pl, uint64_t theirs, uint64_t *out)
{
	auto_free char *path = NULL;
	struct spot s;
	struct attr a;
	*out = theirs;
	int r = view_path(pl->t->theirs, theirs, &path);
	if (r < 0)
		return err_sys(pl->err, r == -ENOENT ? -EIO : r, "find a folder");
	r = follow(pl, pl->t->base, path, &s);
	if (r <= 0 || s.ino == theirs)
		return r;
	r = living(pl, pl->t->base, s.ino, &a);
	if (r > 0 && S_ISDIR(a.mode))
		*out = s.ino;
	return r;
}

/* Ours' folder for one of theirs: itself, the one whose place it took, or the one that ours made
 * at the same place. 1; 0: ours has none; -errno. */
static int our_dir(struct planner *pl, uint64_t theirs, uint64_t *out)
{
	struct attr a;
	void *same = u64map_get(&pl->same, theirs);
	if (!same) {
		int r = replaced_dir(pl, theirs, out);
		if (r < 0)
			return r;
		same = (void *)(uintptr_t)*out;
		if (u64map_put(&pl->same, theirs, same) < 0)
			return no_memory(pl);
	}
	*out = (uint64_t)(uintptr_t)same;
	if (u64map_get(&pl->moved, *out))
		return 1;
	int r = living(pl, pl->t->ours, *out, &a);
	return r > 0 && !S_ISDIR(a.mode) ? 0 : r;
}

/* ---- comparing ---- */

/* 1: the same bytes (target, device); 0; -errno. Of one type. */
static int same_thing(struct planner *pl, const struct view *x, const struct attr *a,
		      const struct view *y, const struct attr *b)
{
	int r = 1;
	if (S_ISREG(a->mode))
		r = same_content(x, a->ino, a->size, y, b->ino, b->size, pl->err);
	else if (S_ISLNK(a->mode))
		r = same_target(x, a->ino, y, b->ino);
	else if (S_ISCHR(a->mode) || S_ISBLK(a->mode))
		r = a->rdev == b->rdev;
	return r < 0 && pl->err && !pl->err->code ? err_sys(pl->err, r, "compare") : r;
}

static bool same_type(const struct attr *a, const struct attr *b)
{
	return !((a->mode ^ b->mode) & S_IFMT);
}

/* What ours has of base's inode at `path`: the inode itself, wherever it is, or what
 * took its name. 1, 0: nothing; -errno. */
static int counterpart(struct planner *pl, const char *path, uint64_t ino, struct attr *out)
{
	struct spot was, now;
	int r = living(pl, pl->t->ours, ino, out);
	if (r != 0)
		return r;
	r = resolve(pl, pl->t->base, path, &was);
	if (r >= 0)
		r = look(pl, pl->t->ours, was.dir, was.name, &now);
	return r > 0 ? living(pl, pl->t->ours, now.ino, out) : r;
}

/* ---- 1: moves ---- */

static int plan_move(struct planner *pl, struct change *c)
{
	struct spot was, to, now;
	struct attr a;
	uint64_t ino = c->e.new_attr.ino, dir;
	int r = living(pl, pl->t->ours, ino, &a);
	if (r == 0)
		return conflict(pl, c->e.old_path, "moved there, removed here");
	if (r >= 0)
		r = resolve(pl, pl->t->base, c->e.old_path, &was);
	if (r >= 0)
		r = resolve(pl, pl->t->theirs, c->e.path, &to);
	if (r >= 0)
		r = look(pl, pl->t->ours, was.dir, was.name, &now);
	if (r < 0)
		return r;
	c->move = r > 0 && now.ino == ino;
	if (!c->move) { /* ours moved it too */
		r = our_dir(pl, to.dir, &dir);
		if (r > 0)
			r = look(pl, pl->t->ours, dir, to.name, &now);
		if (r < 0 || (r > 0 && now.ino == ino))
			return r < 0 ? r : 0;
		return conflict(pl, c->e.old_path, "moved to different places");
	}
	char aside[32];
	(void)snprintf(aside, sizeof(aside), "%zu", (size_t)(c - pl->v));
	auto_free char *from = path_in(pl, now.dir, now.name, &r);
	if (!from)
		return r;
	r = set_freed(pl, &now);
	if (r >= 0)
		r = put_place(pl, ino, NO_INO, aside);
	if (r >= 0 && !step(pl, MERGE_STAGE, join(pl->plan->aside, aside), steal_ptr(&from)))
		r = no_memory(pl);
	return r;
}

/* ---- 2: deletions ---- */

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
		if (!is_freed(pl, dir, d.cookie))
			return 0;
	}
}

static int plan_removal(struct planner *pl, const char *path, const struct attr *old)
{
	struct spot was, now;
	struct attr a;
	int r = resolve(pl, pl->t->base, path, &was);
	if (r >= 0)
		r = look(pl, pl->t->ours, was.dir, was.name, &now);
	if (r < 0)
		return r;
	if (r == 0) { /* gone or moved here too */
		r = living(pl, pl->t->ours, old->ino, &a);
		bool other_name = r > 0 && a.nlink > 1 && !S_ISDIR(a.mode);
		return r <= 0 || other_name ? r < 0 ? r : 0
					    : conflict(pl, path, "removed there, moved here");
	}
	r = living(pl, pl->t->ours, now.ino, &a);
	if (r <= 0)
		return r < 0 ? r : 0;
	if (!same_type(&a, old))
		return conflict(pl, path, "removed there, another type here");
	r = S_ISDIR(a.mode) ? folder_is_freed(pl, a.ino)
			    : same_thing(pl, pl->t->base, old, pl->t->ours, &a);
	if (r < 0)
		return r;
	if (r == 0)
		return conflict(pl, path,
				S_ISDIR(a.mode) ? "removed there, has new entries here"
						: "removed there, changed here");
	char *at = path_in(pl, now.dir, now.name, &r);
	if (!at)
		return r;
	if (!step(pl, MERGE_REMOVE, at, NULL))
		return no_memory(pl);
	return set_freed(pl, &now);
}

/* ---- 3: new places ---- */

/* Where theirs' name goes in ours: 1 and the folder, free; 2 and what is there; 0: a conflict
 * was noted. */
static int target(struct planner *pl, const char *path, const struct spot *to, uint64_t *dir,
		  struct spot *there)
{
	int r = our_dir(pl, to->dir, dir);
	if (r < 0)
		return r;
	if (r == 0) {
		r = conflict(pl, path, "its folder was removed here");
		return r < 0 ? r : 0;
	}
	struct attr a;
	r = living(pl, pl->t->ours, *dir, &a);
	if (r <= 0) /* a new folder: nothing of ours is in it */
		return r < 0 ? r : 1;
	r = look(pl, pl->t->ours, *dir, to->name, there);
	if (r < 0)
		return r;
	return r == 0 || is_freed(pl, *dir, there->cookie) ? 1 : 2;
}

static int plan_place(struct planner *pl, const struct change *c)
{
	struct spot to, there;
	uint64_t dir;
	int r = resolve(pl, pl->t->theirs, c->e.path, &to);
	if (r >= 0)
		r = target(pl, c->e.path, &to, &dir, &there);
	if (r == 2)
		return conflict(pl, c->e.path, "moved there to a name that is taken here");
	if (r <= 0)
		return r;
	auto_free char *from = path_of(pl, to.ino, &r);
	if (r >= 0)
		r = put_place(pl, to.ino, dir, to.name);
	char *path = r >= 0 ? path_of(pl, to.ino, &r) : NULL;
	if (r == -ELOOP) { /* anywhere, so that other paths can still be told */
		r = put_place(pl, to.ino, ROOT_INO, to.name);
		return r < 0 ? r : conflict(pl, c->e.path, "moved into each other");
	}
	if (r < 0)
		return r;
	return step(pl, MERGE_PLACE, path, steal_ptr(&from)) ? 0 : no_memory(pl);
}

/* Both have a new thing of that name. */
static int plan_both_new(struct planner *pl, const char *path, const struct attr *new,
			 const struct spot *there)
{
	struct attr a;
	int r = living(pl, pl->t->ours, there->ino, &a);
	if (r < 0)
		return r;
	if (r > 0 && S_ISDIR(a.mode) && S_ISDIR(new->mode))
		return u64map_put(&pl->same, new->ino, (void *)(uintptr_t)a.ino) < 0 ? no_memory(pl)
										     : 0;
	if (r > 0 && a.mode == new->mode && !S_ISDIR(a.mode)) {
		r = same_thing(pl, pl->t->ours, &a, pl->t->theirs, new);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return conflict(pl, path, "new in both, and different");
}

static int plan_new(struct planner *pl, const char *path, const struct attr *new)
{
	struct spot to, there;
	struct attr a;
	uint64_t dir;
	int r = resolve(pl, pl->t->theirs, path, &to);
	if (r >= 0)
		r = target(pl, path, &to, &dir, &there);
	if (r == 2)
		return there.ino == new->ino ? 0 : plan_both_new(pl, path, new, &there);
	if (r <= 0)
		return r;
	/* One more name of an inode that ours has, or that was made a moment ago? */
	bool made = u64map_get(&pl->moved, new->ino) != NULL;
	r = made || S_ISDIR(new->mode) ? made : living(pl, pl->t->ours, new->ino, &a);
	if (r < 0)
		return r;
	if (r > 0) {
		auto_free char *from = path_of(pl, new->ino, &r);
		char *at = from ? path_in(pl, dir, to.name, &r) : NULL;
		if (!at)
			return r;
		return step(pl, MERGE_LINK, at, steal_ptr(&from)) ? 0 : no_memory(pl);
	}
	r = put_place(pl, new->ino, dir, to.name);
	char *at = r >= 0 ? path_of(pl, new->ino, &r) : NULL;
	if (r < 0)
		return r;
	struct merge_step *s = step(pl, MERGE_MAKE, at, NULL);
	if (!s)
		return no_memory(pl);
	s->ino = new->ino;
	return 0;
}

/* ---- 4: contents and attributes ---- */

static int slurp(struct planner *pl, struct buf *out, const struct view *v, const struct attr *a)
{
	uint8_t *room = buf_room(out, a->size + 1);
	if (!room)
		return no_memory(pl);
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
		return conflict(pl, *at, "changed in both");
	if (text.len == o.len && (o.len == 0 || memcmp(text.data, o.data, o.len) == 0))
		return 0; /* ours has it all */
	struct merge_step *s = step(pl, MERGE_TEXT, steal_ptr(at), NULL);
	if (!s)
		return no_memory(pl);
	s->text = text;
	text = (struct buf){ 0 };
	return 0;
}

static int plan_content(struct planner *pl, const struct diff_entry *e, const struct attr *ours)
{
	int r;
	auto_free char *at = path_of(pl, ours->ino, &r);
	if (!at)
		return r;
	if (!same_type(ours, &e->new_attr))
		return conflict(pl, at, "changed there, another type here");
	r = same_thing(pl, pl->t->ours, ours, pl->t->theirs, &e->new_attr);
	if (r != 0)
		return r < 0 ? r : 0;
	r = same_thing(pl, pl->t->base, &e->old_attr, pl->t->ours, ours);
	if (r == 0)
		return plan_text(pl, e, ours, &at);
	struct merge_step *s = r > 0 ? step(pl, MERGE_WRITE, steal_ptr(&at), NULL) : NULL;
	if (!s)
		return r < 0 ? r : no_memory(pl);
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
	auto_free char *at = path_of(pl, ours->ino, &r);
	if (!at)
		return r;
	if (attributes(pl, e, ours, &what) > 0)
		return conflict(pl, at, "mode, owner or xattrs changed in both");
	struct merge_step *s = step(pl, MERGE_ATTR, steal_ptr(&at), NULL);
	if (!s)
		return no_memory(pl);
	s->ino = e->new_attr.ino;
	s->what = what;
	return 0;
}

static int plan_change(struct planner *pl, const struct diff_entry *e)
{
	struct attr ours;
	const char *was = e->old_path ? e->old_path : e->path;
	if (!(e->what & ~(unsigned)DIFF_MTIME))
		return 0;
	int r = counterpart(pl, was, e->old_attr.ino, &ours);
	if (r == 0 && e->kind == DIFF_RENAMED)
		return 0; /* told when it was to be moved */
	if (r <= 0)
		return r < 0 ? r : conflict(pl, was, "changed there, removed here");
	if (e->what & (DIFF_CONTENT | DIFF_TARGET))
		r = plan_content(pl, e, &ours);
	return r < 0 ? r : plan_attributes(pl, e, &ours);
}

/* ---- all of it ---- */

static bool in_git(const char *path)
{
	return strncmp(path, ".git", 4) == 0 && (path[4] == '\0' || path[4] == '/');
}

static int note_change(void *ctx, const struct diff_entry *e)
{
	struct planner *pl = ctx;
	if (pl->t->skip_git && (in_git(e->path) || (e->old_path && in_git(e->old_path))))
		return 0;
	if (array_grow(&pl->v, pl->n, &pl->cap) < 0)
		return -ENOMEM;
	struct change *c = &pl->v[pl->n];
	*c = (struct change){ .e = *e };
	c->e.path = strdup(e->path);
	c->e.old_path = e->old_path ? strdup(e->old_path) : NULL;
	pl->n++;
	return c->e.path && (c->e.old_path || !e->old_path) ? 0 : -ENOMEM;
}

static int plan_all(struct planner *pl)
{
	int r = 0;
	for (size_t i = 0; i < pl->n && r >= 0; i++)
		if (pl->v[i].e.kind == DIFF_RENAMED)
			r = plan_move(pl, &pl->v[i]);
	for (size_t i = pl->n; i > 0 && r >= 0; i--) {
		const struct diff_entry *e = &pl->v[i - 1].e;
		if (e->kind == DIFF_DELETED || e->kind == DIFF_TYPE)
			r = plan_removal(pl, e->path, &e->old_attr);
	}
	for (size_t i = 0; i < pl->n && r >= 0; i++) {
		const struct diff_entry *e = &pl->v[i].e;
		if (e->kind == DIFF_RENAMED && pl->v[i].move)
			r = plan_place(pl, &pl->v[i]);
		else if (e->kind == DIFF_ADDED || e->kind == DIFF_TYPE)
			r = plan_new(pl, e->path, &e->new_attr);
	}
	for (size_t i = 0; i < pl->n && r >= 0; i++) {
		const struct diff_entry *e = &pl->v[i].e;
		if (e->kind == DIFF_MODIFIED || e->kind == DIFF_RENAMED)
			r = plan_change(pl, e);
	}
	return r;
}

static void planner_done(struct planner *pl)
{
	struct u64map_slot *s;
	for (size_t i = 0; i < pl->n; i++) {
		free((char *)pl->v[i].e.path);
		free((char *)pl->v[i].e.old_path);
	}
	free(pl->v);
	for (size_t i = 0; (s = u64map_next(&pl->moved, &i));)
		free(s->value);
	for (size_t i = 0; (s = u64map_next(&pl->freed, &i));) {
		u64map_done(s->value);
		free(s->value);
	}
	u64map_done(&pl->moved);
	u64map_done(&pl->freed);
	u64map_done(&pl->same);
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
	int r = diff_views(t->base, t->theirs, note_change, &pl, &own);
	if (r >= 0)
		r = plan_all(&pl);
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
