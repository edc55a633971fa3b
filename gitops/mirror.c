/* Mirrors: opening them, what a ref means, refs of ours. Moving data: mirror_move.c and others. */
#include "gitops/mirror.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "gitops/mirror_impl.h"
#include "gitops/refs.h"

enum {
	OID_PREFIX_MIN = 7,
	STEP_DIGITS = 6, /* of N in ~N */
	REF_NAME_MAX = 1024,
	TAG_CHAIN_MAX = 64,      /* tags of tags */
	NAMED_BYTES_MAX = 64 << 20, /* of a commit or tag, which is held in memory */
	/* Somebody else's lock on a ref is held for moments: an update of a ref waits so long. */
	LOCK_TRIES = 100,
	LOCK_PAUSE_MS = 20,
};

struct mirror {
	git_repository *repo;
	git_odb *odb;
	uint32_t number;
	char *path;
	bool scratch;
};

int mirror_folder(char out[MIRROR_PATH_SIZE], const char *root, uint32_t number, const char *suffix,
		  struct err *err)
{
	char name[REPO_NAME_BYTES];
	repo_folder_name(name, number);
	int n = snprintf(out, MIRROR_PATH_SIZE, "%s/repos/%s%s", root, name, suffix);
	if (n < 0 || n >= MIRROR_PATH_SIZE)
		return err_set(err, -ENAMETOOLONG, "the path of repository %s is too long", name);
	return 0;
}

static int open_at(struct mirror **out, const char *path, uint32_t number, struct err *err)
{
	int r = 0;
	struct mirror *m = calloc(1, sizeof(*m));
	if (!m || !(m->path = strdup(path))) {
		free(m);
		return err_no_memory(err);
	}
	m->number = number;
	struct stat st;
	if (stat(path, &st) < 0) {
		r = err_sys(err, -errno, "open mirror %08x", number);
	} else {
		r = git_repository_open_bare(&m->repo, path);
		if (r >= 0)
			r = git_repository_odb(&m->odb, m->repo);
		/* It is there, so libgit2's "not found" means that it is no repository. */
		if (r < 0)
			r = git_fail(err, r, "open mirror %08x", number);
		if (r == -ENOENT)
			r = -EBADMSG;
		if (r < 0 && err)
			err->code = r;
	}
	if (r < 0) {
		mirror_close(m);
		return r;
	}
	*out = m;
	return 0;
}

int mirror_open(struct mirror **out, const char *root, uint32_t number, struct err *err)
{
	char path[MIRROR_PATH_SIZE];
	int r = gitops_init(err);
	if (r >= 0)
		r = mirror_folder(path, root, number, "", err);
	return r < 0 ? r : open_at(out, path, number, err);
}

/* ---- scratch ---- */

static int write_text(int dir, const char *path, const char *text, struct err *err)
{
	auto_fd fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : io_write_full(&io_host, fd, text, strlen(text), 0);
	return r < 0 ? err_sys(err, r, "write %s", path) : 0;
}

static int fill_scratch(const struct mirror *of, const char *path, struct err *err)
{
	static const char *const folders[] = { "objects", "objects/info", "objects/pack", "refs" };
	auto_free char *objects = NULL;
	auto_free char *real = realpath(of->path, NULL);
	auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!real || dir < 0)
		return err_sys(err, -errno, "make a scratch repository");
	if (strchr(real, '\n'))
		return err_set(err, -EINVAL, "the mirror's path has an end of line");
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (mkdirat(dir, folders[i], 0700) < 0)
			return err_sys(err, -errno, "make %s", folders[i]);
	if (asprintf(&objects, "%s/objects\n", real) < 0)
		return err_no_memory(err);
	int r = write_text(dir, "objects/info/alternates", objects, err);
	if (r >= 0)
		r = write_text(dir, "HEAD", "ref: refs/heads/none\n", err);
	if (r >= 0)
		r = write_text(dir, "config",
			       "[core]\n\trepositoryformatversion = 0\n\tbare = true\n", err);
	return r;
}

int mirror_scratch(struct mirror **out, const struct mirror *of, const char *path, struct err *err)
{
	struct mirror *m = NULL;
	if (mkdir(path, 0700) < 0)
		return err_sys(err, -errno, "make %s", path);
	int r = fill_scratch(of, path, err);
	if (r >= 0)
		r = open_at(&m, path, of->number, err);
	if (r < 0) {
		(void)io_remove_tree(AT_FDCWD, path, NULL); /* else the next start does */
		return r;
	}
	m->scratch = true;
	*out = m;
	return 0;
}

void mirror_close(struct mirror *m)
{
	if (!m)
		return;
	git_odb_free(m->odb);
	git_repository_free(m->repo);
	if (m->scratch)
		(void)io_remove_tree(AT_FDCWD, m->path, NULL); /* else the next start does */
	free(m->path);
	free(m);
}

git_repository *mirror_repo(struct mirror *m)
{
	return m->repo;
}

git_odb *mirror_odb(struct mirror *m)
{
	return m->odb;
}

uint32_t mirror_number(const struct mirror *m)
{
	return m->number;
}

const char *mirror_path(const struct mirror *m)
{
	return m->path;
}

/* ---- what a ref means ---- */

/* What an object is, before any of it is read: blobs have any size. */
static int type_of(struct mirror *m, const git_oid *id, const char *ref, git_object_t *type,
		   struct err *err)
{
	size_t size;
	int r = git_odb_read_header(&size, type, m->odb, id);
	if (r < 0)
		return git_fail(err, r, "read %s", ref);
	if ((*type == GIT_OBJECT_COMMIT || *type == GIT_OBJECT_TAG) && size > NAMED_BYTES_MAX)
		return err_set(err, -EFBIG, "%s is larger than %d MiB", ref, NAMED_BYTES_MAX >> 20);
	return 0;
}

/* The commit that an object is or a tag names. */
static int peel_id(struct mirror *m, const git_oid *id, const char *ref, struct oid *commit,
		   struct err *err)
{
	auto_git(git_commit) found = NULL;
	git_oid at = *id;
	git_object_t first = GIT_OBJECT_INVALID, type;
	int r = type_of(m, &at, ref, &first, err);
	type = first;
	for (int i = 0; r >= 0 && type == GIT_OBJECT_TAG && i < TAG_CHAIN_MAX; i++) {
		auto_git(git_tag) tag = NULL;
		r = git_tag_lookup(&tag, m->repo, &at);
		if (r < 0)
			return git_fail_object(err, r, m->repo, &at, "read %s", ref);
		at = *git_tag_target_id(tag);
		r = type_of(m, &at, ref, &type, err);
	}
	if (r == -ENOENT && first == GIT_OBJECT_TAG)
		type = GIT_OBJECT_TAG; /* of what isn't here */
	else if (r < 0)
		return r;
	if (type != GIT_OBJECT_COMMIT)
		return err_set(err, -EINVAL, "%s is a %s, not a commit", ref,
			       git_object_type2string(first));
	r = git_commit_lookup(&found, m->repo, &at);
	if (r < 0)
		return git_fail_object(err, r, m->repo, &at, "read %s", ref);
	*commit = oid_of_git(&at);
	return 0;
}

/* 1: it is that ref; 0: there is none of that name; -errno. */
static int try_ref(struct mirror *m, const char *prefix, const char *ref, struct oid *commit,
		   char **refname, struct err *err)
{
	char name[REF_NAME_MAX];
	int n = snprintf(name, sizeof(name), "%s%s", prefix, ref), valid = 0;
	if (n < 0 || n >= (int)sizeof(name) || git_reference_name_is_valid(&valid, name) < 0 ||
	    !valid)
		return 0;
	auto_git(git_reference) found = NULL;
	auto_git(git_reference) direct = NULL;
	int r = git_reference_lookup(&found, m->repo, name);
	if (r >= 0)
		r = git_reference_resolve(&direct, found);
	if (r == GIT_ENOTFOUND)
		return 0;
	if (r < 0)
		return git_fail(err, r, "read %s", name);
	r = peel_id(m, git_reference_target(direct), ref, commit, err);
	if (r < 0 || !refname)
		return r < 0 ? r : 1;
	*refname = strdup(git_reference_name(direct));
	return *refname ? 1 : err_no_memory(err);
}

static bool is_oid_prefix(const char *s)
{
	size_t n = strlen(s);
	return n >= OID_PREFIX_MIN && n <= OID_HEX && strspn(s, "0123456789abcdefABCDEF") == n;
}

static int try_oid(struct mirror *m, const char *ref, struct oid *commit, struct err *err)
{
	git_oid id, full;
	size_t n = strlen(ref);
	int r = git_oid_fromstrn(&id, ref, n);
	if (r >= 0)
		r = git_odb_exists_prefix(&full, m->odb, &id, n);
	if (r == GIT_ENOTFOUND)
		return 0;
	if (r == GIT_EAMBIGUOUS)
		return err_set(err, -ENOTUNIQ, "%s begins more than one object's id", ref);
	if (r < 0)
		return git_fail(err, r, "look up %s", ref);
	r = peel_id(m, &full, ref, commit, err);
	return r < 0 ? r : 1;
}

/* How far apart two names are: the number of changed, added and removed characters, of names
 * that are at most as long as this allows. */
static unsigned distance(const char *a, const char *b)
{
	enum { LEN_MAX = 64 };
	size_t na = strlen(a), nb = strlen(b);
	if (na > LEN_MAX || nb > LEN_MAX)
		return UINT_MAX;
	unsigned row[LEN_MAX + 1];
	for (size_t j = 0; j <= nb; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		unsigned diagonal = row[0];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			unsigned best = diagonal + (tolower((unsigned char)a[i - 1]) !=
						    tolower((unsigned char)b[j - 1]));
			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[nb];
}

struct near {
	const char *wanted;
	char name[128];
	unsigned distance;
	unsigned count;
};

static int look_near(const char *full, void *ctx)
{
	enum { REFS_LOOKED_AT = 20000 }; /* it is only a hint */
	struct near *n = ctx;
	const char *name = NULL;
	if (strncmp(full, "refs/heads/", 11) == 0)
		name = full + 11;
	else if (strncmp(full, "refs/tags/", 10) == 0)
		name = full + 10;
	if (!name)
		return 0;
	unsigned d = distance(n->wanted, name);
	const char *last = strrchr(name, '/');
	if (last && strcmp(last + 1, n->wanted) == 0)
		d = 0;
	if (d < n->distance && strlen(name) < sizeof(n->name)) {
		(void)snprintf(n->name, sizeof(n->name), "%s", name);
		n->distance = d;
	}
	return ++n->count >= REFS_LOOKED_AT;
}

static int not_found(struct mirror *m, const char *ref, struct err *err)
{
	struct near n = { .wanted = ref, .distance = (unsigned)strlen(ref) / 3 + 2 };
	(void)git_reference_foreach_name(m->repo, look_near, &n); /* a hint */
	git_error_clear();
	if (n.name[0])
		return err_set(err, -ENOENT,
			       "the repository has no branch, tag or commit %s; near it is %s", ref,
			       n.name);
	if (n.count == 0)
		return err_set(err, -ENOENT, "the repository is empty: it has no %s", ref);
	return err_set(err, -ENOENT, "the repository has no branch, tag or commit %s", ref);
}

/* A branch: the other side's as the last fetch or push saw it; where that has none, ours. */
static int try_branch(struct mirror *m, const char *branch, struct oid *commit, char **refname,
		      struct err *err)
{
	int r = try_ref(m, REFS_ORIGIN, branch, commit, refname, err);
	return r != 0 ? r : try_ref(m, REFS_HEADS, branch, commit, refname, err);
}

static int resolve_head(struct mirror *m, struct oid *commit, char **refname, struct err *err)
{
	auto_git(git_reference) head = NULL;
	int r = git_reference_lookup(&head, m->repo, "HEAD");
	if (r < 0)
		return git_fail(err, r, "read HEAD");
	const char *to = git_reference_symbolic_target(head);
	size_t n = sizeof(REFS_HEADS) - 1;
	if (!to) {
		r = peel_id(m, git_reference_target(head), "HEAD", commit, err);
		if (r >= 0 && refname)
			*refname = NULL;
		return r;
	}
	r = strncmp(to, REFS_HEADS, n) == 0 ? try_branch(m, to + n, commit, refname, err)
					    : try_ref(m, "", to, commit, refname, err);
	if (r == 0)
		return err_set(err, -ENOENT,
			       "the repository has no default branch; name a ref or commit");
	return r < 0 ? r : 0;
}

/* 1, 0, -errno: a name without steps. */
static int try_name(struct mirror *m, const char *ref, struct oid *commit, char **refname,
		    struct err *err)
{
	static const char origin[] = "origin/", local[] = "local/";
	bool of_origin = strncmp(ref, origin, sizeof(origin) - 1) == 0;
	bool of_local = strncmp(ref, local, sizeof(local) - 1) == 0;
	const struct {
		const char *prefix, *ref;
	} tries[] = {
		{ strncmp(ref, "refs/", 5) == 0 ? "" : NULL, ref },
		{ REFS_ORIGIN, ref },
		{ REFS_HEADS, ref },
		{ REFS_TAGS, ref },
		{ of_origin ? REFS_ORIGIN : NULL, ref + sizeof(origin) - 1 },
		{ of_local ? REFS_HEADS : NULL, ref + sizeof(local) - 1 },
	};
	bool is_id = is_oid_prefix(ref), full_id = is_id && strlen(ref) == OID_HEX;
	int r = 0;
	/* A full id always means itself, whatever a branch is called. */
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]) && r == 0 && !full_id; i++)
		if (tries[i].prefix)
			r = try_ref(m, tries[i].prefix, tries[i].ref, commit, refname, err);
	if (r != 0 || !is_id)
		return r;
	r = try_oid(m, ref, commit, err);
	if (r > 0 && refname)
		*refname = NULL;
	return r;
}

static int bad_step(const char *ref, struct err *err)
{
	return err_set(err, -EINVAL, "%s: behind a name only ~N and ^N are understood", ref);
}

/* The commits from *commit on that steps such as "~3^2" lead to (gitrevisions(7)). */
static int walk_steps(struct mirror *m, const char *ref, const char *steps, struct oid *commit,
		      struct err *err)
{
	while (*steps) {
		auto_git(git_commit) at = NULL;
		auto_git(git_commit) to = NULL;
		git_oid id = oid_to_git(commit);
		bool back = *steps == '~';
		if (!back && *steps != '^')
			return bad_step(ref, err);
		size_t digits = strspn(++steps, "0123456789");
		unsigned long n = digits ? strtoul(steps, NULL, 10) : 1;
		steps += digits;
		if (digits > STEP_DIGITS)
			return bad_step(ref, err);
		int r = git_commit_lookup(&at, m->repo, &id);
		if (r >= 0 && n > 0)
			r = back ? git_commit_nth_gen_ancestor(&to, at, (unsigned)n)
				 : git_commit_parent(&to, at, (unsigned)n - 1);
		if (r == GIT_ENOTFOUND)
			return err_set(err, -ENOENT, "the history of %.*s doesn't reach to %s",
				       (int)strcspn(ref, "~^"), ref, ref);
		if (r < 0)
			return git_fail_object(err, r, m->repo, &id, "read %s", ref);
		*commit = oid_of_git(git_commit_id(to ? to : at));
	}
	return 0;
}

int mirror_resolve(struct mirror *m, const char *ref, struct oid *commit, char **refname,
		   struct err *err)
{
	char name[REF_NAME_MAX];
	struct oid found;
	auto_free char *full = NULL;
	size_t n = ref ? strcspn(ref, "~^") : 0;
	if (ref && n == 0)
		return *ref ? err_set(err, -EINVAL, "%s begins with no name", ref)
			    : err_set(err, -EINVAL, "a ref is empty");
	if (n >= sizeof(name))
		return err_set(err, -EINVAL, "the name of a ref is too long");
	(void)snprintf(name, sizeof(name), "%.*s", (int)n, ref ? ref : "");
	int r = !ref || strcmp(name, "HEAD") == 0 ? resolve_head(m, &found, &full, err)
						  : try_name(m, name, &found, &full, err);
	if (r == 0 && ref && strcmp(name, "HEAD") != 0)
		return not_found(m, name, err);
	if (r >= 0 && ref)
		r = walk_steps(m, ref, ref + n, &found, err);
	if (r < 0)
		return r;
	*commit = found;
	if (refname)
		*refname = ref && ref[n] ? NULL : steal_ptr(&full);
	return 0;
}

/* ---- refs of ours ---- */

/* A loose ref and the folders that lead to it survive power loss. */
static int sync_ref(struct mirror *m, const char *name, struct err *err)
{
	auto_fd dir = open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_fd file = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || file < 0 || fsync(file) < 0)
		return err_sys(err, -errno, "sync %s of mirror %08x", name, m->number);
	char path[REF_NAME_MAX];
	(void)snprintf(path, sizeof(path), "%s", name); /* it was made, so it fits */
	for (char *slash; (slash = strrchr(path, '/'));) {
		*slash = '\0';
		auto_fd up = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (up < 0 || fsync(up) < 0)
			return err_sys(err, -errno, "sync %s of mirror %08x", path, m->number);
	}
	return 0;
}

/* The value of a ref while its lock is held: 1, 0 (none), -errno. */
static int ref_value(struct mirror *m, const char *name, git_oid *out, struct err *err)
{
	int r = git_reference_name_to_id(out, m->repo, name);
	if (r == GIT_ENOTFOUND)
		return 0;
	return r < 0 ? git_fail(err, r, "read %s", name) : 1;
}

static int move_locked(struct mirror *m, git_transaction *tx, const char *name,
		       const struct oid *expect, const struct oid *to, const char *why,
		       struct err *err)
{
	git_oid now, want;
	int r = ref_value(m, name, &now, err);
	if (r < 0)
		return r;
	if (r == 0 && expect)
		return err_set(err, -ESTALE, "%s is gone", name);
	if (r > 0 && !expect)
		return err_set(err, -ESTALE, "%s exists already", name);
	want = r > 0 ? oid_to_git(expect) : now;
	if (r > 0 && git_oid_cmp(&now, &want) != 0) {
		char hex[OID_HEX + 1];
		return err_set(err, -ESTALE, "%s has moved to %.12s: try again", name,
			       git_oid_tostr(hex, sizeof(hex), &now));
	}
	if (to) {
		want = oid_to_git(to);
		r = git_transaction_set_target(tx, name, &want, NULL, why);
	} else {
		r = git_transaction_remove(tx, name);
	}
	if (r >= 0)
		r = git_transaction_commit(tx);
	return r < 0 ? git_fail(err, r, "write %s", name) : 0;
}

int mirror_ref_cas(struct mirror *m, const char *name, const struct oid *expect,
		   const struct oid *to, const char *why, struct err *err)
{
	git_transaction *tx = NULL;
	int r = git_transaction_new(&tx, m->repo);
	if (r < 0)
		return git_fail(err, r, "write %s", name);
	for (int tries = 0; (r = git_transaction_lock_ref(tx, name)) == GIT_ELOCKED; tries++) {
		if (tries == LOCK_TRIES)
			break;
		const struct timespec pause = { .tv_nsec = LOCK_PAUSE_MS * 1000000L };
		(void)nanosleep(&pause, NULL); /* a signal only makes the wait shorter */
	}
	r = r < 0 ? git_fail(err, r, "lock %s", name)
		  : move_locked(m, tx, name, expect, to, why, err);
	git_transaction_free(tx);
	return r >= 0 && to ? sync_ref(m, name, err) : r;
}

static int commit_there(struct mirror *m, const struct oid *commit, struct err *err)
{
	git_oid id = oid_to_git(commit);
	auto_git(git_commit) c = NULL;
	int r = git_commit_lookup(&c, m->repo, &id);
	return r < 0 ? git_fail_object(err, r, m->repo, &id, "read the commit") : 0;
}

int mirror_keep(struct mirror *m, const struct oid *commit, struct err *err)
{
	char name[REF_NAME_MAX], hex[OID_HEX + 1];
	oid_hex(hex, commit);
	(void)snprintf(name, sizeof(name), "refs/bough/keep/%s", hex);
	git_oid now, want = oid_to_git(commit);
	int r = ref_value(m, name, &now, err);
	if (r < 0 || (r > 0 && git_oid_cmp(&now, &want) == 0))
		return r < 0 ? r : 0;
	r = commit_there(m, commit, err);
	if (r >= 0)
		r = mirror_ref_cas(m, name, NULL, commit, "kept", err);
	/* Another thread was quicker; it is the same value for everybody. */
	if (r == -ESTALE) {
		if (err)
			*err = (struct err){ 0 };
		r = 0;
	}
	return r < 0 ? err_prefix(err, r, "keep %.12s", hex) : 0;
}

int mirror_move_branch(struct mirror *m, const char *branch, const struct oid *expect,
		       const struct oid *commit, const char *why, struct err *err)
{
	char name[REF_NAME_MAX];
	int n = snprintf(name, sizeof(name), "refs/heads/%s", branch), valid = 0;
	if (n < 0 || n >= (int)sizeof(name) || git_reference_name_is_valid(&valid, name) < 0 ||
	    !valid || branch[0] == '-')
		return err_set(err, -EINVAL, "%s is no name for a branch", branch);
	int r = commit_there(m, commit, err);
	if (r >= 0)
		r = mirror_ref_cas(m, name, expect, commit, why, err);
	return r < 0 ? err_prefix(err, r, "move branch %s", branch) : 0;
}
