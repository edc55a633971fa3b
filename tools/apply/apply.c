/* From a bundle to a checkout. The steps of apply_bundle are in the order in which they can fail:
 * until the files are written, nothing but a temporary folder inside .git has changed. */
#include "tools/apply/apply.h"

#include <errno.h>
#include <git2/sys/odb_backend.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "gitops/git.h"
#include "tools/apply/encoding.h"
#include "tools/apply/undo.h"

enum {
	HEADER_MAX = 64 * 1024, /* bytes of a bundle before its pack; ours have some 200 */
	READ_SIZE = 64 * 1024,
};

struct apply {
	git_repository *repo;
	char *temp; /* folder of the pack while it is on trial; "": none */
	git_oid base, tip;
	git_tree *head_tree, *result;
	git_commit *head;
	git_index *index, *merged;
	git_diff *diff;      /* from HEAD's tree to the result */
	git_transaction *tx; /* APPLY_COMMIT: HEAD's branch, locked, and its new commit */
	struct apply_result *out;
};

void apply_result_done(struct apply_result *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->paths[i]);
	free(r->paths);
	memset(r, 0, sizeof(*r));
}

static int note_path(struct apply_result *r, const char *path)
{
	char *copy = strdup(path);
	if (!copy || array_grow(&r->paths, r->n, &r->cap) < 0) {
		free(copy);
		return -ENOMEM;
	}
	r->paths[r->n++] = copy;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In order, each once. */
static void sort_paths(struct apply_result *r)
{
	size_t n = 0;
	if (r->n > 1)
		qsort(r->paths, r->n, sizeof(*r->paths), by_name);
	for (size_t i = 0; i < r->n; i++) {
		if (n > 0 && strcmp(r->paths[n - 1], r->paths[i]) == 0)
			free(r->paths[i]);
		else
			r->paths[n++] = r->paths[i];
	}
	r->n = n;
}

/* ---- the bundle ---- */

struct bundle {
	int fd;
	struct buf in; /* read and not used */
	size_t at;
};

/* More bytes behind what is there: how many, 0 at the end. */
static ssize_t bundle_fill(struct bundle *b, struct err *err)
{
	if (b->at == b->in.len) {
		b->at = 0;
		buf_reset(&b->in);
	}
	uint8_t *room = buf_room(&b->in, READ_SIZE);
	if (!room)
		return err_no_memory(err);
	ssize_t n;
	do
		n = read(b->fd, room, READ_SIZE);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(err, -errno, "read the bundle");
	b->in.len += (size_t)n;
	return n;
}

/* The next line of the header, its end cut off; borrowed until the next call. */
static int bundle_line(struct bundle *b, char **line, struct err *err)
{
	for (;;) {
		char *from = (char *)b->in.data + b->at;
		char *end = b->in.len > b->at ? memchr(from, '\n', b->in.len - b->at) : NULL;
		if (end) {
			*end = '\0';
			b->at = (size_t)(end - (char *)b->in.data) + 1;
			*line = from;
			return 0;
		}
		if (b->in.len - b->at > HEADER_MAX)
			return err_set(err, -EBADMSG, "the bundle's header has no end");
		ssize_t n = bundle_fill(b, err);
		if (n < 0)
			return (int)n;
		if (n == 0)
			return err_set(err, -EBADMSG, "the bundle ends in its header");
	}
}

static int take_id(git_oid *out, const char *hex)
{
	char id[GIT_OID_HEXSZ + 1];
	if (strlen(hex) < GIT_OID_HEXSZ)
		return -EBADMSG;
	memcpy(id, hex, GIT_OID_HEXSZ);
	id[GIT_OID_HEXSZ] = '\0';
	return git_oid_fromstr(out, id) < 0 ? -EBADMSG : 0;
}

static int bundle_header(struct bundle *b, struct apply *ap, struct err *err)
{
	char *line;
	bool base = false, tip = false;
	int r = bundle_line(b, &line, err);
	if (r >= 0 && strcmp(line, "# v2 git bundle") != 0)
		return err_set(err, -EBADMSG, "this is no git bundle of version 2");
	while (r >= 0 && (r = bundle_line(b, &line, err)) >= 0 && *line) {
		bool need = *line == '-';
		if (need ? base : tip)
			return err_set(err, -EBADMSG, "the bundle holds more than one commit");
		r = take_id(need ? &ap->base : &ap->tip, line + need);
		*(need ? &base : &tip) = true;
	}
	if (r == -EBADMSG || (r >= 0 && (!base || !tip)))
		return err && err->code ? r : err_set(err, -EBADMSG, "the bundle is damaged");
	return r;
}

/* The pack behind the header goes to a folder inside .git, verified, and its objects are seen by
 * this process only. */
static int bundle_pack(struct bundle *b, struct apply *ap, struct err *err)
{
	char dir[4096];
	git_odb *odb = NULL;
	git_indexer *ix = NULL;
	git_indexer_progress st = { 0 };
	git_indexer_options opt;
	(void)snprintf(dir, sizeof(dir), "%s/pack", ap->temp);
	if (mkdir(dir, 0755) < 0)
		return err_sys(err, -errno, "make %s", dir);
	int r = git_indexer_options_init(&opt, GIT_INDEXER_OPTIONS_VERSION);
	if (r >= 0)
		r = git_repository_odb(&odb, ap->repo);
	if (r >= 0)
		r = git_indexer_new(&ix, dir, 0444, odb, &opt);
	if (r < 0)
		r = git_fail(err, r, "take the bundle's pack");
	while (r >= 0) {
		if (b->in.len > b->at &&
		    git_indexer_append(ix, b->in.data + b->at, b->in.len - b->at, &st) < 0) {
			r = git_fail(err, -1, "take the bundle's pack");
			r = -EBADMSG;
			break;
		}
		b->at = b->in.len;
		ssize_t n = bundle_fill(b, err);
		if (n <= 0) {
			r = (int)n;
			break;
		}
	}
	if (r >= 0 && git_indexer_commit(ix, &st) < 0) {
		(void)git_fail(err, -1, "take the bundle's pack");
		r = -EBADMSG;
	}
	git_indexer_free(ix);
	if (r >= 0 && (r = git_odb_add_disk_alternate(odb, ap->temp)) < 0)
		r = git_fail(err, r, "look into the bundle's pack");
	git_odb_free(odb);
	return r;
}

/* What was on trial becomes the repository's: git's own naming makes a double one harmless. */
static int keep_pack(struct apply *ap, struct err *err)
{
	char from[4096], to[4096];
	(void)snprintf(from, sizeof(from), "%s/pack", ap->temp);
	auto_dir *d = opendir(from);
	if (!d)
		return err_sys(err, -errno, "open %s", from);
	/* The index last: a pack counts from then on. */
	for (int pass = 0; pass < 2; pass++) {
		rewinddir(d);
		for (struct dirent *e; errno = 0, (e = readdir(d));) {
			size_t n = strlen(e->d_name);
			bool idx = n > 4 && strcmp(e->d_name + n - 4, ".idx") == 0;
			if (e->d_name[0] == '.' || idx != (pass == 1))
				continue;
			(void)snprintf(from, sizeof(from), "%s/pack/%s", ap->temp, e->d_name);
			(void)snprintf(to, sizeof(to), "%sobjects/pack/%s",
				       git_repository_commondir(ap->repo), e->d_name);
			if (rename(from, to) < 0)
				return err_sys(err, -errno, "keep %s", to);
		}
		if (errno)
			return err_sys(err, -errno, "read %s/pack", ap->temp);
	}
	return 0;
}

static void drop_temp(const char *temp)
{
	char path[4096];
	(void)snprintf(path, sizeof(path), "%s/pack", temp);
	auto_dir *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.' || strlen(e->d_name) > 2)
			(void)unlinkat(dirfd(d), e->d_name, 0); /* what stays is only untidy */
	(void)rmdir(path);
	(void)rmdir(temp);
}

/* ---- the checkout ---- */

/* What `git sparse-checkout` and others keep for one work tree alone, which libgit2 1.5 passes
 * over: the ends of lines may be there. */
static int add_worktree_config(struct apply *ap, struct err *err)
{
	auto_git(git_config) config = NULL;
	auto_free char *path = NULL;
	if (asprintf(&path, "%sconfig.worktree", git_repository_path(ap->repo)) < 0) {
		path = NULL;
		return err_no_memory(err);
	}
	int on = 0;
	int r = git_repository_config(&config, ap->repo);
	if (r >= 0 && git_config_get_bool(&on, config, "extensions.worktreeConfig") < 0)
		git_error_clear(); /* it isn't set */
	if (r >= 0 && on)
		r = git_config_add_file_ondisk(config, path, GIT_CONFIG_LEVEL_APP, ap->repo, 0);
	return r < 0 ? git_fail(err, r, "read %s", path) : 0;
}

/* libgit2 reads neither a sparse nor a split index. */
static int open_index(struct apply *ap, const char *path, struct err *err)
{
	int r = git_repository_index(&ap->index, ap->repo);
	const git_error *e = r < 0 ? git_error_last() : NULL;
	if (e && e->klass == GIT_ERROR_INDEX && strstr(e->message, "mandatory extension")) {
		git_error_clear();
		return err_set(err, -ENOTSUP,
			       "%s has a sparse or split index: make it a whole one, by git "
			       "sparse-checkout reapply --no-sparse-index, or git update-index "
			       "--no-split-index",
			       path);
	}
	return r < 0 ? git_fail(err, r, "read the index of %s", path) : 0;
}

static int open_checkout(struct apply *ap, const char *path, struct err *err)
{
	int r = git_repository_open_ext(&ap->repo, path, 0, NULL);
	/* 1.5 looks for safe.directory then, and says that it isn't there. */
	const git_error *e = r < 0 ? git_error_last() : NULL;
	if (r == GIT_EOWNER || (r == GIT_ENOTFOUND && e && e->klass == GIT_ERROR_CONFIG)) {
		git_error_clear();
		return err_set(err, -EACCES,
			       "%s belongs to another user: git's safe.directory doesn't name it",
			       path);
	}
	if (r == GIT_ENOTFOUND) {
		git_error_clear();
		return err_set(err, -ENOENT, "%s is in no git repository", path);
	}
	if (r < 0)
		return git_fail(err, r, "open %s", path);
	if (git_repository_is_bare(ap->repo))
		return err_set(err, -ENOTSUP,
			       "%s is bare, without files to change: give a clone of it", path);
	if (git_repository_state(ap->repo) != GIT_REPOSITORY_STATE_NONE)
		return err_set(err, -EBUSY, "%s is in the middle of a merge, rebase or the like",
			       path);
	git_object *head;
	r = git_revparse_single(&head, ap->repo, "HEAD^{commit}");
	if (r < 0) {
		git_error_clear();
		return err_set(err, -ENOENT, "%s has no commit yet", path);
	}
	ap->head = (git_commit *)head;
	r = git_commit_tree(&ap->head_tree, ap->head);
	if (r < 0)
		return git_fail(err, r, "the tree of HEAD");
	r = add_worktree_config(ap, err);
	return r < 0 ? r : open_index(ap, path, err);
}

static int make_temp(struct apply *ap, struct err *err)
{
	if (asprintf(&ap->temp, "%sbough-apply-XXXXXX", git_repository_commondir(ap->repo)) < 0) {
		ap->temp = NULL;
		return err_no_memory(err);
	}
	if (!mkdtemp(ap->temp)) {
		int r = err_sys(err, -errno, "make a folder in %s",
				git_repository_commondir(ap->repo));
		free(ap->temp);
		ap->temp = NULL;
		return r;
	}
	return 0;
}

static int tree_of(git_tree **out, git_repository *repo, const git_oid *commit, struct err *err)
{
	auto_git(git_commit) c = NULL;
	int r = git_commit_lookup(&c, repo, commit);
	if (r >= 0)
		r = git_commit_tree(out, c);
	return r < 0 ? git_fail(err, r, "commit %s", git_oid_tostr_s(commit)) : 0;
}

static int list_conflicts(struct apply_result *out, git_index *ix, struct err *err)
{
	git_index_conflict_iterator *it;
	const git_index_entry *a, *o, *t;
	int r = git_index_conflict_iterator_new(&it, ix), e = 0;
	if (r < 0)
		return git_fail(err, r, "list conflicts");
	while (e >= 0 && git_index_conflict_next(&a, &o, &t, it) == 0)
		e = note_path(out, o ? o->path : t ? t->path : a->path);
	git_index_conflict_iterator_free(it);
	return e < 0 ? err_set(err, e, "out of memory")
		     : err_set(err, -ESTALE, "the changes conflict with HEAD");
}

static int merge(struct apply *ap, struct err *err)
{
	auto_git(git_tree) base = NULL;
	auto_git(git_tree) theirs = NULL;
	git_merge_options opt;
	int r = tree_of(&base, ap->repo, &ap->base, err);
	if (r >= 0)
		r = tree_of(&theirs, ap->repo, &ap->tip, err);
	if (r < 0)
		return r;
	r = git_merge_options_init(&opt, GIT_MERGE_OPTIONS_VERSION);
	if (r >= 0)
		r = git_merge_trees(&ap->merged, ap->repo, base, ap->head_tree, theirs, &opt);
	if (r == GIT_ENOTFOUND) {
		git_error_clear();
		return err_set(err, -ENOENT,
			       "it lacks contents that the merge needs: git diff %.12s HEAD "
			       "brings them to a partial clone",
			       git_oid_tostr_s(&ap->base));
	}
	if (r < 0)
		return git_fail(err, r, "merge");
	if (git_index_has_conflicts(ap->merged))
		return list_conflicts(ap->out, ap->merged, err);
	r = git_diff_tree_to_index(&ap->diff, ap->repo, ap->head_tree, ap->merged, NULL);
	return r < 0 ? git_fail(err, r, "compare with HEAD") : 0;
}

/* ---- what is in the way ---- */

static const char *path_of(const git_diff_delta *d)
{
	return d->new_file.path ? d->new_file.path : d->old_file.path;
}

/* The first of the result's changes whose path isn't before `name`. */
static size_t lower_bound(const struct apply *ap, const char *name)
{
	size_t from = 0, to = git_diff_num_deltas(ap->diff);
	while (from < to) {
		size_t at = from + (to - from) / 2;
		if (strcmp(path_of(git_diff_get_delta(ap->diff, at)), name) < 0)
			from = at + 1;
		else
			to = at;
	}
	return from;
}

static bool is_same(const git_diff_file *a, const git_diff_file *b)
{
	return a->mode == b->mode && git_oid_equal(&a->id, &b->id);
}

/* Does the result change that path, other than to `as`? NULL: at all. */
static bool is_changed(const struct apply *ap, const char *path, const git_diff_file *as)
{
	bool changed = false;
	for (size_t i = lower_bound(ap, path); i < git_diff_num_deltas(ap->diff); i++) {
		const git_diff_delta *d = git_diff_get_delta(ap->diff, i);
		if (strcmp(path_of(d), path) != 0)
			break;
		if (as && is_same(&d->new_file, as))
			return false;
		changed = true;
	}
	return changed;
}

/* Does the result change something in that folder, or a file where one above it has to be? */
static int is_in_place(const struct apply *ap, const char *path)
{
	auto_free char *name = NULL;
	int n = asprintf(&name, "%s/", path);
	if (n < 0) {
		name = NULL;
		return -ENOMEM;
	}
	size_t at = lower_bound(ap, name);
	if (at < git_diff_num_deltas(ap->diff) &&
	    strncmp(path_of(git_diff_get_delta(ap->diff, at)), name, (size_t)n) == 0)
		return 1;
	name[n - 1] = '\0';
	for (char *s; (s = strrchr(name, '/'));) {
		*s = '\0';
		if (is_changed(ap, name, NULL))
			return 1;
	}
	return 0;
}

/* libgit2 compares with the files alone: what is staged, and not in them, it would write over. */
static int note_staged(struct apply *ap, struct err *err)
{
	auto_git(git_diff) staged = NULL;
	int r = git_diff_tree_to_index(&staged, ap->repo, ap->head_tree, ap->index, NULL);
	if (r < 0)
		return git_fail(err, r, "look at what is staged");
	for (size_t i = 0; i < git_diff_num_deltas(staged); i++) {
		const git_diff_delta *d = git_diff_get_delta(staged, i);
		r = is_changed(ap, path_of(d), &d->new_file);
		if (r == 0 && d->status != GIT_DELTA_DELETED)
			r = is_in_place(ap, path_of(d));
		if (r < 0 || (r > 0 && note_path(ap->out, path_of(d)) < 0))
			return err_no_memory(err);
	}
	return 0;
}

/* Is one of the paths in the way only not checked out? */
static int in_the_way(const struct apply *ap, struct err *err)
{
	for (size_t i = 0; i < ap->out->n; i++) {
		const git_index_entry *e = git_index_get_bypath(ap->index, ap->out->paths[i], 0);
		auto_free char *file = NULL;
		if (!e || !(e->flags_extended & GIT_INDEX_ENTRY_SKIP_WORKTREE))
			continue;
		if (asprintf(&file, "%s%s", git_repository_workdir(ap->repo), e->path) < 0) {
			file = NULL;
			return err_no_memory(err);
		}
		struct stat st;
		if (lstat(file, &st) < 0)
			return err_set(err, -ESTALE,
				       "%s isn't checked out there: git sparse-checkout add its "
				       "folder",
				       e->path);
	}
	return err_set(err, -ESTALE, "local changes are in the way: commit or stash them");
}

static int on_conflict(git_checkout_notify_t why, const char *path, const git_diff_file *baseline,
		       const git_diff_file *target, const git_diff_file *workdir, void *payload)
{
	struct apply *ap = payload;
	(void)why;
	return note_path(ap->out, path) < 0 ? -1 : 0;
}

static int note_written(struct apply *ap, struct err *err)
{
	for (size_t i = 0; i < git_diff_num_deltas(ap->diff); i++) {
		if (note_path(ap->out, path_of(git_diff_get_delta(ap->diff, i))) < 0)
			return err_no_memory(err);
	}
	return 0;
}

/* Where any local change is in the way, this refuses before the first file is written. `dry`:
 * it only looks. */
static int write_files(struct apply *ap, enum apply_mode mode, bool dry, struct err *err)
{
	git_checkout_options opt;
	int r = git_checkout_options_init(&opt, GIT_CHECKOUT_OPTIONS_VERSION);
	if (r < 0)
		return git_fail(err, r, "write the files");
	opt.checkout_strategy = GIT_CHECKOUT_SAFE | GIT_CHECKOUT_DISABLE_PATHSPEC_MATCH |
				GIT_CHECKOUT_DONT_OVERWRITE_IGNORED |
				(dry ? GIT_CHECKOUT_DRY_RUN : 0) |
				(mode == APPLY_FILES ? GIT_CHECKOUT_DONT_UPDATE_INDEX : 0);
	opt.baseline = ap->head_tree;
	opt.notify_flags = GIT_CHECKOUT_NOTIFY_CONFLICT;
	opt.notify_cb = on_conflict;
	opt.notify_payload = ap;
	r = git_checkout_index(ap->repo, ap->merged, &opt);
	if (r == GIT_ECONFLICT) {
		git_error_clear();
		return in_the_way(ap, err);
	}
	return r < 0 ? git_fail(err, r, "write the files") : 0;
}

static int look_first(struct apply *ap, enum apply_mode mode, struct err *err)
{
	int r = mode == APPLY_FILES ? 0 : note_staged(ap, err);
	if (r >= 0)
		r = write_files(ap, mode, true, err);
	return r >= 0 && ap->out->n > 0 ? in_the_way(ap, err) : r;
}

static int write_tree(struct apply *ap, struct err *err)
{
	git_oid id;
	int r = git_index_write_tree_to(&id, ap->merged, ap->repo);
	if (r >= 0)
		r = git_tree_lookup(&ap->result, ap->repo, &id);
	return r < 0 ? git_fail(err, r, "write the merged tree") : 0;
}

/* HEAD's branch, or HEAD itself, is locked where it is. */
static int lock_head(struct apply *ap, git_reference **head, struct err *err)
{
	int r = git_repository_head(head, ap->repo);
	if (r >= 0)
		r = git_transaction_new(&ap->tx, ap->repo);
	if (r >= 0)
		r = git_transaction_lock_ref(ap->tx, git_reference_name(*head));
	git_oid now;
	if (r >= 0)
		r = git_reference_name_to_id(&now, ap->repo, git_reference_name(*head));
	if (r < 0)
		return git_fail(err, r, "lock HEAD");
	return git_oid_equal(&now, git_commit_id(ap->head))
		       ? 0
		       : err_set(err, -EBUSY, "HEAD moves just now");
}

/* The commit is made, and the branch locked; it moves with the transaction. */
static int prepare_commit(struct apply *ap, struct err *err)
{
	auto_git(git_commit) from = NULL;
	auto_git(git_signature) who = NULL;
	auto_git(git_reference) head = NULL;
	git_oid id;
	int r = lock_head(ap, &head, err);
	if (r >= 0)
		r = write_tree(ap, err);
	if (r < 0)
		return r;
	r = git_commit_lookup(&from, ap->repo, &ap->tip);
	if (r < 0)
		return git_fail(err, r, "the bundle's commit");
	if (git_signature_default(&who, ap->repo) < 0) { /* no user.name: as the commit says */
		git_error_clear();
		r = git_signature_dup(&who, git_commit_committer(from));
	}
	const git_commit *parents[] = { ap->head };
	if (r >= 0)
		r = git_commit_create(&id, ap->repo, NULL, git_commit_author(from), who,
				      git_commit_message_encoding(from), git_commit_message(from),
				      ap->result, 1, parents);
	auto_free char *log = NULL;
	const char *summary = git_commit_summary(from);
	if (asprintf(&log, "commit: %s", summary ? summary : "") < 0) {
		log = NULL;
		return err_no_memory(err);
	}
	if (r >= 0)
		r = git_transaction_set_target(ap->tx, git_reference_name(head), &id, who, log);
	if (r < 0)
		return git_fail(err, r, "commit");
	(void)git_oid_tostr(ap->out->commit, sizeof(ap->out->commit), &id);
	return 0;
}

/* What failed in the middle is put back. */
static int write_all(struct apply *ap, enum apply_mode mode, struct err *err)
{
	auto_undo undo = { 0 };
	struct err first = { 0 }, second = { 0 };
	int r = undo_note(&undo, ap->repo, ap->head_tree, ap->diff, err);
	if (r < 0)
		return r;
	r = write_files(ap, mode, false, &first);
	bool written = r >= 0;
	if (written && ap->tx && (r = git_transaction_commit(ap->tx)) < 0)
		r = git_fail(&first, r, "move HEAD");
	if (r >= 0)
		return 0;
	if ((written || r != -ESTALE) && /* which is said before anything is written */
	    undo_run(&undo, written && mode != APPLY_FILES, &second) < 0)
		return err_set(err, -EIO, "%.240s; and some files stay written: %.200s",
			       first.text, second.text);
	return err_set(err, r, "%s", first.text);
}

static int run(struct apply *ap, int fd, const char *checkout, enum apply_mode mode,
	       struct err *err)
{
	struct bundle b = { .fd = fd };
	int r = bundle_header(&b, ap, err);
	if (r >= 0)
		r = open_checkout(ap, checkout, err);
	if (r >= 0) {
		auto_git(git_commit) base = NULL;
		if (git_commit_lookup(&base, ap->repo, &ap->base) < 0) {
			git_error_clear();
			r = err_set(err, -ENOENT, "%s hasn't the commit %s: fetch it first",
				    checkout, git_oid_tostr_s(&ap->base));
		}
	}
	if (r >= 0)
		r = make_temp(ap, err);
	if (r >= 0)
		r = bundle_pack(&b, ap, err);
	buf_done(&b.in);
	if (r >= 0)
		r = merge(ap, err);
	if (r >= 0)
		r = look_first(ap, mode, err);
	if (r >= 0)
		r = keep_pack(ap, err);
	if (r >= 0 && mode == APPLY_COMMIT && git_diff_num_deltas(ap->diff) > 0)
		r = prepare_commit(ap, err);
	if (r >= 0)
		r = write_all(ap, mode, err);
	if (r < 0)
		ap->out->commit[0] = '\0';
	return r >= 0 ? note_written(ap, err) : r;
}

int apply_bundle(struct apply_result *out, int bundle, const char *checkout, enum apply_mode mode,
		 struct err *err)
{
	struct apply ap = { .out = out };
	/* Of what libgit2 doesn't know these change nothing of what is done here. A partial clone
	 * lacks contents; what is written to files was read. */
	const char *extensions[] = { "worktreeconfig", "partialclone", "preciousobjects" };
	if (git_libgit2_init() < 0 || encoding_register() < 0 ||
	    git_libgit2_opts(GIT_OPT_ENABLE_STRICT_OBJECT_CREATION, 0) < 0 ||
	    /* A power loss leaves no branch without its commit, as git has it. */
	    git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1) < 0 ||
	    git_libgit2_opts(GIT_OPT_SET_EXTENSIONS, extensions, (size_t)3) < 0)
		return git_fail(err, -1, "start libgit2");
	int r = run(&ap, bundle, checkout, mode, err);
	sort_paths(out);
	git_transaction_free(ap.tx);
	git_diff_free(ap.diff);
	git_index_free(ap.merged);
	git_index_free(ap.index);
	git_tree_free(ap.result);
	git_tree_free(ap.head_tree);
	git_commit_free(ap.head);
	git_repository_free(ap.repo);
	if (ap.temp)
		drop_temp(ap.temp);
	free(ap.temp);
	(void)git_libgit2_shutdown();
	return r;
}
