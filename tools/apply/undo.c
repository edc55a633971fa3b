#include "tools/apply/undo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/git.h"

struct undo_path {
	char *path;   /* in the work tree */
	bool in_head; /* HEAD has a file of that name */
	bool there;   /* there was a file */
	bool stays;   /* it was as it would be written, and HEAD's isn't so */
	size_t made;  /* bytes of it: the uppermost folder that wasn't there; 0: all were */
};

void undo_done(struct undo *u)
{
	for (size_t i = 0; i < u->n; i++)
		free(u->v[i].path);
	free(u->v);
	memset(u, 0, sizeof(*u));
}

static int full_path(char **out, const struct undo *u, const char *path, size_t len)
{
	int n = asprintf(out, "%s%.*s", git_repository_workdir(u->repo), (int)len, path);
	if (n < 0)
		*out = NULL;
	return n < 0 ? -ENOMEM : 0;
}

/* How far down folders lead, links not followed: the length of the uppermost name above the path's
 * last that isn't a folder's; 0: all are. *there: is the path itself a file? */
static int look(size_t *end, bool *there, const struct undo *u, const char *path)
{
	struct stat st;
	*end = 0;
	for (const char *s = path;; s++) {
		s += strcspn(s, "/");
		auto_free char *full = NULL;
		int r = full_path(&full, u, path, (size_t)(s - path));
		if (r < 0)
			return r;
		bool is = lstat(full, &st) == 0, folder = is && S_ISDIR(st.st_mode);
		*there = !*s && is && !folder;
		if (!*s || !folder) {
			*end = *s ? (size_t)(s - path) : 0;
			return 0;
		}
	}
}

/* Has the file that content already, as git would keep it? */
static bool is_now(const struct undo *u, const char *path, const git_diff_file *f)
{
	struct stat st;
	git_oid id;
	auto_free char *full = NULL;
	if (full_path(&full, u, path, strlen(path)) < 0 || lstat(full, &st) < 0)
		return false;
	if (S_ISLNK(st.st_mode) != (f->mode == GIT_FILEMODE_LINK))
		return false;
	if (!S_ISLNK(st.st_mode))
		return !(st.st_mode & S_IXUSR) == !(f->mode & S_IXUSR) &&
		       git_repository_hashfile(&id, u->repo, path, GIT_OBJECT_BLOB, NULL) == 0 &&
		       git_oid_equal(&id, &f->id);
	char target[4096];
	ssize_t n = readlink(full, target, sizeof(target));
	return n >= 0 && git_odb_hash(&id, target, (size_t)n, GIT_OBJECT_BLOB) == 0 &&
	       git_oid_equal(&id, &f->id);
}

/* Is it as the index says, without a look into it? */
static bool is_as_in(git_index *index, const struct undo *u, const char *path, const git_oid *id)
{
	struct stat st;
	auto_free char *full = NULL;
	const git_index_entry *e = git_index_get_bypath(index, path, 0);
	return e && git_oid_equal(&e->id, id) && full_path(&full, u, path, strlen(path)) == 0 &&
	       lstat(full, &st) == 0 && e->mtime.seconds == (int32_t)st.st_mtim.tv_sec &&
	       e->mtime.nanoseconds == (uint32_t)st.st_mtim.tv_nsec &&
	       e->ino == (uint32_t)st.st_ino && e->file_size == (uint32_t)st.st_size;
}

static int note(struct undo *u, git_index *index, const git_diff_delta *d)
{
	const char *path = d->new_file.path ? d->new_file.path : d->old_file.path;
	bool gone = d->status == GIT_DELTA_DELETED;
	if (d->old_file.mode == GIT_FILEMODE_COMMIT || d->new_file.mode == GIT_FILEMODE_COMMIT)
		return 0; /* submodules are left alone */
	if (array_grow(&u->v, u->n, &u->cap) < 0)
		return -ENOMEM;
	struct undo_path *p = &u->v[u->n];
	*p = (struct undo_path){ .path = strdup(path), .in_head = d->status != GIT_DELTA_ADDED };
	if (!p->path)
		return -ENOMEM;
	u->n++;
	int r = look(&p->made, &p->there, u, path);
	if (r < 0 || !p->there || gone)
		return r;
	p->stays = !p->in_head || (!is_as_in(index, u, path, &d->old_file.id) &&
				   is_now(u, path, &d->new_file));
	git_error_clear(); /* what can't be read isn't as it would be written */
	return 0;
}

int undo_note(struct undo *u, git_repository *repo, git_tree *head, git_diff *diff,
	      struct err *err)
{
	auto_git(git_index) index = NULL;
	u->repo = repo;
	u->head = head;
	int r = git_repository_index(&index, repo);
	if (r < 0)
		return git_fail(err, r, "read the index");
	for (size_t i = 0; i < git_diff_num_deltas(diff); i++)
		if (note(u, index, git_diff_get_delta(diff, i)) < 0)
			return err_no_memory(err);
	return 0;
}

/* A file that wasn't there goes, with the folders that were made for it. */
static int take_away(const struct undo *u, const struct undo_path *p, struct err *err)
{
	auto_free char *full = NULL;
	size_t end;
	bool there;
	if (look(&end, &there, u, p->path) < 0 ||
	    full_path(&full, u, p->path, strlen(p->path)) < 0)
		return err_no_memory(err);
	if (there && unlink(full) < 0)
		return err_sys(err, -errno, "remove %s", p->path);
	if (end)
		return 0;
	size_t top = strlen(git_repository_workdir(u->repo)) + p->made;
	for (char *s; p->made && (s = strrchr(full, '/')) && (size_t)(s - full) >= top;) {
		*s = '\0';
		if (rmdir(full) < 0 && errno != ENOENT)
			break; /* the next one's files are in it, who will remove it */
	}
	return 0;
}

int undo_run(struct undo *u, bool index, struct err *err)
{
	auto_free char **paths = calloc(u->n + 1, sizeof(*paths));
	git_checkout_options opt;
	int r = git_checkout_options_init(&opt, GIT_CHECKOUT_OPTIONS_VERSION);
	if (r < 0 || !paths)
		return err_no_memory(err);
	/* First what takes room. */
	for (size_t i = 0; i < u->n; i++) {
		int got = u->v[i].there ? 0 : take_away(u, &u->v[i], r < 0 ? NULL : err);
		r = r < 0 ? r : got;
		if (u->v[i].there && u->v[i].in_head && !u->v[i].stays)
			paths[opt.paths.count++] = u->v[i].path;
	}
	opt.paths.strings = paths;
	opt.checkout_strategy = GIT_CHECKOUT_FORCE | GIT_CHECKOUT_DISABLE_PATHSPEC_MATCH |
				(index ? 0 : GIT_CHECKOUT_DONT_UPDATE_INDEX);
	int got = opt.paths.count > 0
			  ? git_checkout_tree(u->repo, (git_object *)u->head, &opt)
			  : 0;
	if (got < 0 && r >= 0)
		r = git_fail(err, got, "put the files back");
	return r < 0 ? r : 0;
}
