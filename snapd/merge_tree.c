/* Where things are in the trees of a merge, and while its plan is being run. */
#include "snapd/merge_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/work/same.h"

/* ---- small things ---- */

int mp_no_memory(struct planner *pl)
{
	return err_no_memory(pl->err);
}

int mp_conflict(struct planner *pl, const char *path, const char *why)
{
	struct merge_plan *p = pl->plan;
	char *copy = strdup(path);
	if (!copy || array_grow(&p->conflicts, p->nconflicts, &p->conflicts_cap) < 0) {
		free(copy);
		return mp_no_memory(pl);
	}
	p->conflicts[p->nconflicts++] = (struct merge_conflict){ copy, why };
	return 0;
}

/* Takes path and from, also where it fails; NULL for path: out of memory. */
struct merge_step *mp_step(struct planner *pl, enum merge_kind kind, char *path, char *from)
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

char *mp_join(const char *dir, const char *name)
{
	char *out = NULL;
	if (asprintf(&out, "%s%s%s", dir, *dir ? "/" : "", name) < 0)
		return NULL;
	return out;
}

/* The inode in a view, when a name leads to it. 1, 0, or -errno. */
int mp_living(struct planner *pl, const struct view *v, uint64_t ino, struct attr *a)
{
	int r = view_inode(v, ino, a);
	if (r == -ENOENT || (r >= 0 && a->nlink == 0))
		return 0;
	return r < 0 ? err_sys(pl->err, r, "inode %llu", (unsigned long long)ino) : 1;
}

/* The name in the folder. 1, 0 or -errno. */
int mp_look(struct planner *pl, const struct view *v, uint64_t dir, const char *name,
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
int mp_follow(struct planner *pl, const struct view *v, const char *path, struct spot *out)
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
		r = mp_look(pl, v, dir, name, out);
		dir = out->ino;
		path += len + (path[len] == '/');
	}
	return r;
}

/* The same of a path of a diff, which is there. */
static int resolve(struct planner *pl, const struct view *v, const char *path, struct spot *out)
{
	int r = mp_follow(pl, v, path, out);
	return r == 0 ? err_set(pl->err, -EIO, "a path of the comparison isn't there") : r;
}

/* ---- where things are while the plan runs ---- */

int mp_put_place(struct planner *pl, uint64_t ino, uint64_t parent, const char *name)
{
	struct place *p = u64map_get(&pl->moved, ino);
	if (!p && (!(p = malloc(sizeof(*p))) || u64map_put(&pl->moved, ino, p) < 0)) {
		free(p);
		return mp_no_memory(pl);
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
	if (mp_living(pl, v, ino, &a) <= 0)
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
char *mp_path_of(struct planner *pl, uint64_t ino, int *r)
{
	char *path = strdup("");
	*r = path ? 0 : mp_no_memory(pl);
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
		char *longer = *path ? mp_join(name, path) : strdup(name);
		free(path);
		path = longer;
		if (parent == NO_INO && path) {
			longer = mp_join(pl->plan->aside, path);
			free(path);
			path = longer;
			parent = ROOT_INO;
		}
		*r = path ? 0 : mp_no_memory(pl);
		ino = parent;
	}
	if (*r < 0) {
		free(path);
		return NULL;
	}
	return path;
}

char *mp_path_in(struct planner *pl, uint64_t dir, const char *name, int *r)
{
	auto_free char *at = mp_path_of(pl, dir, r);
	char *path = at ? mp_join(at, name) : NULL;
	if (at && !path)
		*r = mp_no_memory(pl);
	return path;
}

/* The name of ours is free from here on. */
int mp_set_freed(struct planner *pl, const struct spot *s)
{
	struct u64map *m = u64map_get(&pl->freed, s->dir);
	if (!m && (!(m = calloc(1, sizeof(*m))) || u64map_put(&pl->freed, s->dir, m) < 0)) {
		free(m);
		return mp_no_memory(pl);
	}
	return u64map_put(m, s->cookie, m) < 0 ? mp_no_memory(pl) : 0;
}

bool mp_is_freed(const struct planner *pl, uint64_t dir, uint64_t cookie)
{
	const struct u64map *m = u64map_get(&pl->freed, dir);
	return m && u64map_get(m, cookie);
}

/* Ours' folder for one of theirs or of base: itself, or the one that ours made at the same place.
 * 1; 0: ours has none; -errno. New ones count as there. */
int mp_our_dir(struct planner *pl, uint64_t ino, uint64_t *out)
{
	struct attr a;
	void *same = u64map_get(&pl->same, ino);
	*out = same ? (uint64_t)(uintptr_t)same : ino;
	int r = mp_living(pl, pl->t->ours, *out, &a);
	if (r > 0)
		return S_ISDIR(a.mode);
	if (r == 0)
		r = mp_living(pl, pl->t->base, ino, &a);
	return r < 0 ? r : r == 0;
}

/* ---- comparing ---- */

/* 1: the same bytes (target, device); 0; -errno. Of one type. */
int mp_same_thing(struct planner *pl, const struct view *x, const struct attr *a,
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

bool mp_same_type(const struct attr *a, const struct attr *b)
{
	return !((a->mode ^ b->mode) & S_IFMT);
}

/* What ours has of base's inode at `path`: the inode itself, wherever it is, or what
 * took its name. 1, 0: nothing; -errno. */
int mp_counterpart(struct planner *pl, const char *path, uint64_t ino, struct attr *out)
{
	struct spot was, now;
	int r = mp_living(pl, pl->t->ours, ino, out);
	if (r != 0)
		return r;
	r = resolve(pl, pl->t->base, path, &was);
	if (r >= 0)
		r = mp_look(pl, pl->t->ours, was.dir, was.name, &now);
	return r > 0 ? mp_living(pl, pl->t->ours, now.ino, out) : r;
}
