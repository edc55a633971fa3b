#include "snapd/archive_tree.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include "snapd/archive_lib.h"

void archive_tree_done(struct archive_tree *t)
{
	buf_done(&t->dir);
	u64map_done(&t->touched);
}

static int out_of_memory(struct err *err)
{
	return err_no_memory(err);
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

/* ---- layers ---- */

/* Whether it is an earlier layer's: those of this one aren't hidden by it. */
static bool is_lower(const struct archive_tree *t, uint64_t ino)
{
	return t->layered && ino < t->layer_ino;
}

static int touch(struct archive_tree *t, uint64_t dir, struct err *err)
{
	if (!is_lower(t, dir))
		return 0;
	return u64map_put(&t->touched, dir, t) < 0 ? out_of_memory(err) : 0;
}

void archive_tree_layer(struct archive_tree *t)
{
	t->layered = true;
	t->layer_ino = t->next_ino;
	u64map_done(&t->touched);
	t->touched = (struct u64map){ 0 };
	t->dir_ino = 0;
}

/* Takes away what earlier layers have below `dir`. Folders that this layer fills stay, and are
 * emptied in the same way: `todo` holds those, since they may lie as deep as any path goes. */
static int hide_below(struct archive_tree *t, uint64_t dir, struct err *err)
{
	auto_buf todo = { 0 };
	buf_add(&todo, &dir, sizeof(dir));
	while (buf_error(&todo) == 0 && todo.len > 0) {
		struct dirent_ref d;
		uint64_t at;
		todo.len -= sizeof(at);
		memcpy(&at, todo.data + todo.len, sizeof(at));
		for (uint64_t from = 0; image_builder_dirent_ceil(t->b, at, from, &d) == 0;
		     from = d.cookie + 1) {
			if (!is_lower(t, d.ino))
				continue;
			if (d.type == DT_DIR && u64map_get(&t->touched, d.ino))
				buf_add(&todo, &d.ino, sizeof(d.ino));
			else
				(void)image_del_dirent(t->b, at, d.name, d.name_len);
		}
	}
	return buf_error(&todo) < 0 ? out_of_memory(err) : 0;
}

static int hide(struct archive_tree *t, uint64_t dir, const char *name, size_t len,
		struct err *err)
{
	uint64_t ino;
	uint8_t type;
	if (image_builder_lookup(t->b, dir, name, len, &ino, &type) < 0 || !is_lower(t, ino))
		return 0;
	if (type == DT_DIR && u64map_get(&t->touched, ino))
		return hide_below(t, ino, err);
	(void)image_del_dirent(t->b, dir, name, len); /* just found there */
	return 0;
}

/* ---- folders ---- */

/* A path as far as it has been walked: the folders from the root down. */
struct walk {
	struct buf dirs; /* uint64_t each; the root isn't in it */
	struct buf rest; /* still to be walked, terminated; symlinks' targets go before it */
	size_t at;       /* in rest */
	unsigned links;
};

enum { LINKS_MAX = 40 }; /* as Linux has it */

static uint64_t walk_dir(const struct walk *w)
{
	uint64_t ino = 1;
	if (w->dirs.len > 0)
		memcpy(&ino, w->dirs.data + w->dirs.len - sizeof(ino), sizeof(ino));
	return ino;
}

/* Goes on where the symlink leads, inside the tree. */
static int walk_link(struct archive_tree *t, struct walk *w, uint64_t link, const char *path,
		     struct err *err)
{
	const char *target;
	size_t len;
	if (++w->links > LINKS_MAX || image_builder_target(t->b, link, &target, &len) < 0)
		return err_set(err, -EBADMSG, "'%s': symlinks that lead nowhere", SHOW(path));
	auto_buf rest = { 0 };
	buf_add(&rest, target, len);
	buf_add(&rest, w->rest.data + w->at, w->rest.len - w->at); /* it begins with '/' or ends */
	if (buf_error(&rest) < 0)
		return out_of_memory(err);
	if (target[0] == '/')
		buf_reset(&w->dirs);
	struct buf old = w->rest;
	w->rest = rest;
	rest = old;
	w->at = 0;
	return 0;
}

/* The folder that path[0..dir_len) names. Missing ones are made, or with `make` false are
 * -ENOENT. Nothing but folders is passed through, and an earlier layer's symlinks to them. */
static int walk_path(struct archive_tree *t, struct walk *w, const char *path, bool make,
		     struct err *err)
{
	const char *p, *name;
	size_t len;
	while (p = (const char *)w->rest.data + w->at, archive_component(&p, &name, &len)) {
		uint64_t dir = walk_dir(w), child;
		uint8_t type;
		w->at = (size_t)(p - (const char *)w->rest.data);
		if (len == 2 && memcmp(name, "..", 2) == 0) { /* of a symlink's target */
			w->dirs.len -= w->dirs.len > 0 ? sizeof(dir) : 0;
			continue;
		}
		int r = len > NAME_MAX_BYTES ? -ENOENT
					     : image_builder_lookup(t->b, dir, name, len, &child,
								    &type);
		if (r == -ENOENT && (!make || len > NAME_MAX_BYTES))
			return r;
		if (r == -ENOENT) {
			r = make_dir(t, dir, name, len, path, &child, err);
		} else if (type == DT_LNK && is_lower(t, child)) {
			r = walk_link(t, w, child, path, err);
			if (r < 0)
				return r;
			continue;
		} else if (type != DT_DIR) {
			return err_set(err, -EBADMSG,
				       "'%s': it lies below '%s', which is no folder", SHOW(path),
				       w->links ? archive_show_n(name, len).s
						: archive_show_n(path, w->at).s);
		} else {
			r = make ? touch(t, child, err) : 0;
		}
		if (r < 0)
			return r;
		buf_add(&w->dirs, &child, sizeof(child));
		if (buf_error(&w->dirs) < 0)
			return out_of_memory(err);
	}
	return 0;
}

static int dir_of(struct archive_tree *t, const char *path, size_t dir_len, bool make,
		  uint64_t *out, struct err *err)
{
	if (t->dir_ino && dir_len == t->dir.len && memcmp(path, t->dir.data, dir_len) == 0) {
		*out = t->dir_ino;
		return 0;
	}
	struct walk w = { 0 };
	buf_add(&w.rest, path, dir_len);
	buf_add(&w.rest, "", 1);
	int r = buf_error(&w.rest) < 0 ? out_of_memory(err) : walk_path(t, &w, path, make, err);
	*out = walk_dir(&w);
	buf_done(&w.dirs);
	buf_done(&w.rest);
	if (r == 0 && make && dir_len > 0) {
		buf_reset(&t->dir);
		t->dir_ino = 0;
		buf_add(&t->dir, path, dir_len);
		if (buf_error(&t->dir) == 0)
			t->dir_ino = *out;
	}
	return r;
}

/* ---- members ---- */

/* A folder that is there already takes over the attributes of a member. */
static int set_dir(struct archive_tree *t, uint64_t ino, const struct attr *from, uint64_t *out,
		   struct err *err)
{
	struct attr *a = image_builder_attr(t->b, ino);
	struct attr to = *from;
	to.ino = ino;
	*a = to;
	*out = ino;
	return touch(t, ino, err);
}

static int differ(const char *path, struct err *err)
{
	return err_set(err, -EBADMSG, "'%s': two members of this name and different types",
		       SHOW(path));
}

/* A member whose name is taken by one of another type: an earlier layer's gives way (-ENOENT: the
 * name is free then), one of its own archive doesn't. */
static int replace_other(struct archive_tree *t, uint64_t dir, const char *name, size_t len,
			 uint64_t old, uint8_t old_type, const char *path, struct err *err)
{
	if (!is_lower(t, old) || (old_type == DT_DIR && u64map_get(&t->touched, old)))
		return differ(path, err);
	(void)image_del_dirent(t->b, dir, name, len); /* just found there */
	t->dir_ino = 0;
	return -ENOENT;
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
		return set_dir(t, 1, a, ino, err);
	r = dir_of(t, path, dir_len, true, &dir, err);
	if (r < 0)
		return r;
	r = image_builder_lookup(t->b, dir, name, len, &old, &old_type);
	if (r == 0 && old_type != type)
		r = replace_other(t, dir, name, len, old, old_type, path, err);
	if (r == 0 && type == DT_DIR)
		return set_dir(t, old, a, ino, err);
	if (r < 0 && r != -ENOENT)
		return r;
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

int archive_tree_find(struct archive_tree *t, const char *path, uint64_t *ino, uint8_t *type,
		      struct err *err)
{
	const char *name;
	size_t dir_len, len;
	uint64_t dir;
	int r = archive_path_check(path, "name", err);
	if (r < 0)
		return r;
	path_split(path, &dir_len, &name, &len);
	r = len ? dir_of(t, path, dir_len, false, &dir, err) : -ENOENT;
	return r < 0 ? r : image_builder_lookup(t->b, dir, name, len, ino, type);
}

/* What a hard link's target leads to. */
static int link_target(struct archive_tree *t, const char *path, const char *target, uint64_t *ino,
		       uint8_t *type, struct err *err)
{
	int r = archive_path_check(target, "hard link's target", err);
	if (r == 0)
		r = archive_tree_find(t, target, ino, type, err);
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
		r = replace_other(t, dir, name, len, old, old_type, path, err);
	if (r < 0 && r != -ENOENT)
		return r;
	*ino = child;
	if (r == 0 && old == child)
		return 0;
	if (r == 0)
		(void)image_del_dirent(t->b, dir, name, len); /* as in archive_tree_put */
	r = image_add_dirent(t->b, dir, name, len, child, type, 0);
	return r < 0 ? builder_err(r, path, err) : 0;
}

/* ---- whiteouts ---- */

int archive_tree_whiteout(struct archive_tree *t, const char *path, struct err *err)
{
	static const char mark[] = ".wh.", opaque[] = ".wh..wh..opq", private[] = ".wh..wh.";
	const char *name;
	size_t dir_len, len, n = strlen(mark);
	uint64_t dir;
	int r = archive_path_check(path, "name", err);
	if (r < 0)
		return r;
	path_split(path, &dir_len, &name, &len);
	if (len < n || memcmp(name, mark, n) != 0)
		return 0;
	bool all = len == strlen(opaque) && memcmp(name, opaque, len) == 0;
	if (!all && len >= strlen(private) && memcmp(name, private, strlen(private)) == 0)
		return 1; /* the books of aufs, which made such layers */
	if (len == n || (len == n + 1 && name[n] == '.'))
		return err_set(err, -EBADMSG, "'%s': a whiteout of nothing", SHOW(path));
	r = dir_of(t, path, dir_len, false, &dir, err);
	if (r == -ENOENT)
		return 1; /* nothing is there to be hidden */
	if (r == 0)
		r = all ? hide_below(t, dir, err) : hide(t, dir, name + n, len - n, err);
	t->dir_ino = 0;
	return r < 0 ? r : 1;
}
