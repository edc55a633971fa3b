#include "snapd/archive_tree.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include "snapd/archive_lib.h"

void archive_tree_done(struct archive_tree *t)
{
	buf_done(&t->dir);
}

static int out_of_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static int new_ino(struct archive_tree *t, uint64_t *ino, struct err *err)
{
	if (t->max_inodes && t->inodes >= t->max_inodes)
		return err_set(err, -EFBIG, "the archive has more than %llu files and folders",
			       (unsigned long long)t->max_inodes);
	if (t->next_ino == t->end_ino) {
		uint64_t first;
		int r = t->reserve(t->reserve_ctx, ARCHIVE_INO_BATCH, &first, err);
		if (r < 0)
			return r;
		t->next_ino = first;
		t->end_ino = first + ARCHIVE_INO_BATCH;
	}
	*ino = t->next_ino++;
	t->inodes++;
	return 0;
}

/* Converts what the builder may say of an entry. */
static int builder_err(int r, const char *path, struct err *err)
{
	if (r == -ENOSPC)
		return err_set(err, -EBADMSG, "'%s': too many names of its folder hash alike",
			       SHOW(path));
	if (r == -EINVAL)
		return err_set(err, -EBADMSG, "'%s': its attributes can't be", SHOW(path));
	return out_of_memory(err);
}

int archive_tree_root(struct archive_tree *t, struct err *err)
{
	struct attr a = t->implied;
	a.ino = 1;
	t->inodes = 1;
	return image_add_inode(t->b, &a) < 0 ? out_of_memory(err) : 0;
}

/* ---- paths ---- */

bool archive_component(const char **p, const char **name, size_t *len)
{
	for (;;) {
		while (**p == '/')
			(*p)++;
		if (!**p)
			return false;
		*name = *p;
		*len = strcspn(*p, "/");
		*p += *len;
		if (*len != 1 || **name != '.')
			return true;
	}
}

int archive_path_check(const char *path, const char *what, struct err *err)
{
	if (!path[0])
		return err_set(err, -EBADMSG, "a member without a %s", what);
	if (path[0] == '/')
		return err_set(err, -EBADMSG, "'%s': an absolute %s", SHOW(path), what);
	const char *p = path, *name;
	size_t len;
	for (unsigned depth = 0; archive_component(&p, &name, &len); depth++) {
		if (depth >= ARCHIVE_DEPTH_MAX)
			return err_set(err, -EBADMSG, "'%s': a %s of more than %d folders",
				       SHOW(path), what, ARCHIVE_DEPTH_MAX);
		if (len == 2 && name[0] == '.' && name[1] == '.')
			return err_set(err, -EBADMSG, "'%s': a %s with '..'", SHOW(path), what);
		if (len > NAME_MAX_BYTES)
			return err_set(err, -EBADMSG, "'%s': a part of the %s is over %d bytes",
				       SHOW(path), what, NAME_MAX_BYTES);
	}
	return 0;
}

/* Cuts a checked path into its folder (up to *dir_len) and its last name; *len 0: the root. */
static void path_split(const char *path, size_t *dir_len, const char **last, size_t *len)
{
	const char *p = path, *name;
	size_t n;
	*dir_len = 0;
	*last = path;
	*len = 0;
	while (archive_component(&p, &name, &n)) {
		*dir_len = (size_t)(name - path);
		*last = name;
		*len = n;
	}
}

static int make_dir(struct archive_tree *t, uint64_t parent, const char *name, size_t len,
		    const char *path, uint64_t *ino, struct err *err)
{
	int r = new_ino(t, ino, err);
	if (r < 0)
		return r;
	struct attr a = t->implied;
	a.ino = *ino;
	r = image_add_inode(t->b, &a);
	if (r == 0)
		r = image_add_dirent(t->b, parent, name, len, *ino, DT_DIR, 0);
	return r < 0 ? builder_err(r, path, err) : 0;
}

/* The folder that path[0..dir_len) names. Missing ones are made, or with `make` false are
 * -ENOENT. Nothing but folders is passed through. */
static int dir_of(struct archive_tree *t, const char *path, size_t dir_len, bool make,
		  uint64_t *out, struct err *err)
{
	if (t->dir_ino && dir_len == t->dir.len && memcmp(path, t->dir.data, dir_len) == 0) {
		*out = t->dir_ino; /* folders are never taken away again */
		return 0;
	}
	uint64_t at = 1;
	const char *p = path, *name;
	size_t len;
	while ((size_t)(p - path) < dir_len && archive_component(&p, &name, &len) &&
	       (size_t)(name - path) < dir_len) {
		uint64_t child;
		uint8_t type;
		int r = image_builder_lookup(t->b, at, name, len, &child, &type);
		if (r == -ENOENT && !make)
			return r;
		if (r == -ENOENT) {
			r = make_dir(t, at, name, len, path, &child, err);
			if (r < 0)
				return r;
		} else if (type != DT_DIR) {
			return err_set(err, -EBADMSG,
				       "'%s': it lies below '%s', which is no folder", SHOW(path),
				       archive_show_n(path, (size_t)(p - path)).s);
		}
		at = child;
	}
	if (dir_len > 0) {
		buf_reset(&t->dir);
		t->dir_ino = 0;
		buf_add(&t->dir, path, dir_len);
		if (buf_error(&t->dir) == 0)
			t->dir_ino = at;
	}
	*out = at;
	return 0;
}

/* ---- members ---- */

/* A folder that is there already takes over the attributes of a member. */
static int set_dir(struct archive_tree *t, uint64_t ino, const struct attr *from, uint64_t *out)
{
	struct attr *a = image_builder_attr(t->b, ino);
	struct attr to = *from;
	to.ino = ino;
	*a = to;
	*out = ino;
	return 0;
}

static int differ(const char *path, struct err *err)
{
	return err_set(err, -EBADMSG, "'%s': two members of this name and different types",
		       SHOW(path));
}

int archive_tree_put(struct archive_tree *t, const char *path, const struct attr *a, uint64_t *ino,
		     struct err *err)
{
	uint8_t type = (uint8_t)(a->mode >> 12), old_type;
	const char *name;
	size_t dir_len, len;
	uint64_t dir, old, made;
	int r = archive_path_check(path, "name", err);
	if (r < 0)
		return r;
	path_split(path, &dir_len, &name, &len);
	if (len == 0 && type != DT_DIR)
		return err_set(err, -EBADMSG, "'%s': the root must be a folder", SHOW(path));
	if (len == 0)
		return set_dir(t, 1, a, ino);
	r = dir_of(t, path, dir_len, true, &dir, err);
	if (r < 0)
		return r;
	r = image_builder_lookup(t->b, dir, name, len, &old, &old_type);
	if (r == 0 && old_type != type)
		return differ(path, err);
	if (r == 0 && type == DT_DIR)
		return set_dir(t, old, a, ino);
	if (r == 0 && t->unique)
		return err_set(err, -EBADMSG, "'%s': two members of this name", SHOW(path));
	if (r == 0) /* other names of the old file keep it */
		(void)image_del_dirent(t->b, dir, name, len);
	r = new_ino(t, &made, err);
	if (r < 0)
		return r;
	struct attr new = *a;
	new.ino = made;
	r = image_add_inode(t->b, &new);
	if (r == 0)
		r = image_add_dirent(t->b, dir, name, len, made, type, 0);
	if (r < 0)
		return builder_err(r, path, err);
	*ino = made;
	return 0;
}

/* What a hard link's target leads to. */
static int link_target(struct archive_tree *t, const char *path, const char *target, uint64_t *ino,
		       uint8_t *type, struct err *err)
{
	const char *name;
	size_t dir_len, len;
	uint64_t dir;
	int r = archive_path_check(target, "hard link's target", err);
	if (r < 0)
		return r;
	path_split(target, &dir_len, &name, &len);
	r = len ? dir_of(t, target, dir_len, false, &dir, err) : -ENOENT;
	if (r == 0)
		r = image_builder_lookup(t->b, dir, name, len, ino, type);
	if (r == -ENOENT)
		return err_set(err, -EBADMSG,
			       "'%s': a hard link to '%s', which is not in the archive", SHOW(path),
			       SHOW(target));
	if (r == 0 && *type == DT_DIR)
		return err_set(err, -EBADMSG, "'%s': a hard link to the folder '%s'", SHOW(path),
			       SHOW(target));
	return r;
}

int archive_tree_link(struct archive_tree *t, const char *path, const char *target, uint64_t *ino,
		      struct err *err)
{
	const char *name;
	size_t dir_len, len;
	uint64_t dir, child, old;
	uint8_t type, old_type;
	int r = archive_path_check(path, "name", err);
	if (r == 0)
		r = link_target(t, path, target, &child, &type, err);
	if (r < 0)
		return r;
	path_split(path, &dir_len, &name, &len);
	if (len == 0)
		return err_set(err, -EBADMSG, "'%s': the root must be a folder", SHOW(path));
	r = dir_of(t, path, dir_len, true, &dir, err);
	if (r < 0)
		return r;
	r = image_builder_lookup(t->b, dir, name, len, &old, &old_type);
	if (r == 0 && old_type != type)
		return differ(path, err);
	*ino = child;
	if (r == 0 && old == child)
		return 0;
	if (r == 0)
		(void)image_del_dirent(t->b, dir, name, len); /* as in archive_tree_put */
	r = image_add_dirent(t->b, dir, name, len, child, type, 0);
	return r < 0 ? builder_err(r, path, err) : 0;
}
