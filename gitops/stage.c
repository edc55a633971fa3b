#include "gitops/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "gitops/history.h"

#define MARK "bough-whole" /* in a stage: all of it is there and checked */

enum {
	HEAD_MAX = 4096,
	/* packed-refs is locked for moments, by a branch being removed. */
	LOCK_TRIES = 250,
	LOCK_PAUSE_MS = 20,
	IDX_COUNT_AT = 8 + 255 * 4, /* of an index version 2: how many objects */
};

static const char config[] = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
			     "[gc]\n\tauto = 0\n";

static int open_dir(const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "open %s", path) : fd;
}

static int sync_dir(int dir, const char *name, struct err *err)
{
	auto_fd fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return err_sys(err, -errno, "sync %s of a mirror", name);
	return 0;
}

static int put_text(int dir, const char *name, const char *text, struct err *err)
{
	return io_publish(&io_host, dir, name, text, strlen(text), false, err);
}

/* An absent file is an empty list. */
static int read_packed(int dir, struct refs *out, struct err *err)
{
	auto_free void *data = NULL;
	size_t len = 0;
	struct err why = { 0 };
	int r = io_slurp(&io_host, dir, "packed-refs", REFS_FILE_MAX, &data, &len, &why);
	*out = (struct refs){ 0 };
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_set(err, r, "%s", why.text);
	r = packed_refs_parse(out, data, len);
	return r < 0 ? err_sys(err, r, "packed-refs of a mirror") : 0;
}

static int write_packed(int dir, const struct refs *r, struct err *err)
{
	auto_buf text = { 0 };
	packed_refs_write(&text, r);
	if (buf_error(&text))
		return err_no_memory(err);
	return io_publish(&io_host, dir, "packed-refs", text.data, text.len, true, err);
}

static bool is_theirs(const char *name)
{
	return strncmp(name, REFS_ORIGIN, sizeof(REFS_ORIGIN) - 1) == 0 ||
	       strncmp(name, REFS_TAGS, sizeof(REFS_TAGS) - 1) == 0;
}

/* ---- beginning ---- */

static int set_paths(struct stage *s, const char *root, uint32_t number, struct err *err)
{
	*s = (struct stage){ 0 };
	int r = mirror_folder(s->target, root, number, "", err);
	if (r >= 0)
		r = mirror_folder(s->path, root, number, ".tmp", err);
	if (r >= 0)
		(void)snprintf(s->scratch, sizeof(s->scratch), "%s/bough", s->path);
	return r;
}

/* What the mirror has already, so that only the rest is sent. */
static int borrow(struct stage *s, int dir, struct err *err)
{
	auto_refs all = { 0 }, theirs = { 0 };
	char line[64];
	const char *name = strrchr(s->target, '/') + 1;
	(void)snprintf(line, sizeof(line), "../../%s/objects\n", name);
	auto_fd info = openat(dir, "objects/info", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = info < 0 ? err_sys(err, -errno, "open %s/objects/info", s->path)
			 : put_text(info, "alternates", line, err);
	auto_fd target = r < 0 ? -1 : open_dir(s->target, err);
	if (r < 0 || target < 0)
		return r < 0 ? r : target;
	auto_free void *head = NULL;
	size_t len;
	r = io_slurp(&io_host, target, "HEAD", HEAD_MAX, &head, &len, err);
	if (r >= 0)
		r = put_text(dir, "HEAD", head, err);
	if (r >= 0)
		r = read_packed(target, &all, err);
	for (size_t i = 0; i < all.n && r >= 0; i++)
		if (is_theirs(all.v[i].name))
			r = refs_add(&theirs, all.v[i].name, &all.v[i].oid);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	return r < 0 ? r : write_packed(dir, &theirs, err);
}

static int fill(struct stage *s, struct err *err)
{
	static const char *const dirs[] = { "objects", "objects/pack", "objects/info",
					    "refs",    "refs/heads",   "bough" };
	if (mkdir(s->path, 0700) < 0)
		return err_sys(err, -errno, "make %s", s->path);
	auto_fd dir = open_dir(s->path, err);
	if (dir < 0)
		return dir;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (mkdirat(dir, dirs[i], 0700) < 0)
			return err_sys(err, -errno, "make %s/%s", s->path, dirs[i]);
	int r = put_text(dir, "config", config, err);
	if (r >= 0)
		r = put_text(dir, "HEAD", "ref: refs/heads/main\n", err);
	return r < 0 || !s->exists ? r : borrow(s, dir, err);
}

int stage_begin(struct stage *s, const char *root, uint32_t number, bool exists, struct err *err)
{
	struct stage out;
	struct stat st;
	int r = gitops_init(err);
	if (r >= 0)
		r = set_paths(&out, root, number, err);
	if (r >= 0)
		r = stage_recover(root, number, err);
	if (r < 0)
		return r;
	out.exists = stat(out.target, &st) == 0;
	if (out.exists && !exists)
		return err_set(err, -EEXIST, "there is a mirror %08x already", number);
	if (!out.exists && exists)
		return err_set(err, -ENOENT, "there is no mirror %08x", number);
	r = fill(&out, err);
	if (r < 0) {
		(void)io_remove_tree(AT_FDCWD, out.path, NULL); /* told: why it wasn't made */
		return r;
	}
	*s = out;
	return 0;
}

void stage_done(struct stage *s)
{
	/* What can't be removed now is by the next start. */
	if (s->path[0] && !s->published)
		(void)io_remove_tree(AT_FDCWD, s->path, NULL);
	*s = (struct stage){ 0 };
}

int stage_head(struct stage *s, const char *branch, struct err *err)
{
	char text[REF_NAME_SIZE + 8];
	auto_fd dir = open_dir(s->path, err);
	if (dir < 0)
		return dir;
	(void)snprintf(text, sizeof(text), "ref: %s\n", branch);
	return put_text(dir, "HEAD", text, err);
}

int stage_write_refs(struct stage *s, const struct refs *r, struct err *err)
{
	auto_fd dir = open_dir(s->path, err);
	int e = dir < 0 ? dir : write_packed(dir, r, err);
	static const char *const loose[] = { "refs/remotes", "refs/tags" };
	for (size_t i = 0; i < 2 && e >= 0; i++)
		e = io_remove_tree(dir, loose[i], err);
	return e;
}

int stage_refs(struct stage *s, struct refs *out, struct err *err)
{
	auto_git(git_repository) repo = NULL;
	auto_refs refs = { 0 };
	git_reference_iterator *it = NULL;
	int r = git_repository_open_bare(&repo, s->path);
	if (r >= 0)
		r = git_reference_iterator_new(&it, repo);
	if (r < 0)
		return git_fail(err, r, "list refs");
	for (git_reference *ref; (r = git_reference_next(&ref, it)) == 0;) {
		const git_oid *id = git_reference_target(ref); /* NULL: it points to another one */
		const char *name = git_reference_name(ref);
		int e = 0;
		if (id && is_theirs(name) && ref_name_ok(name)) {
			struct oid o = oid_of_git(id);
			e = refs_add(&refs, name, &o);
		}
		git_reference_free(ref);
		if (e < 0) {
			git_reference_iterator_free(it);
			return err_sys(err, e, "list refs");
		}
	}
	git_reference_iterator_free(it);
	if (r != GIT_ITEROVER)
		return git_fail(err, r, "list refs");
	refs_sort(&refs);
	*out = refs;
	refs = (struct refs){ 0 };
	return 0;
}

/* ---- publishing: objects ---- */

static bool is_hex(const char *s, size_t n)
{
	return strlen(s) >= n && strspn(s, "0123456789abcdef") >= n;
}

static int move_file(int from, int to, const char *name, struct err *err)
{
	/* What has that name already has that content; the older one may be in use. */
	if (faccessat(to, name, F_OK, 0) == 0)
		return 0;
	if (renameat(from, name, to, name) < 0)
		return err_sys(err, -errno, "move %s into the mirror", name);
	return 0;
}

/* Whether a file of objects/pack belongs to the given round: an index comes last, since it is what
 * makes a pack seen. */
static bool in_round(const char *name, int round)
{
	static const char *const suffixes[] = { ".pack", ".rev", ".idx" };
	size_t n = strlen(name), k = strlen(suffixes[round]);
	return n > k && strncmp(name, "pack-", 5) == 0 &&
	       strcmp(name + n - k, suffixes[round]) == 0;
}

/* Calls fn for each name in a folder. */
static int each_name(int dir, const char *folder, struct err *err,
		     int (*fn)(void *ctx, int dir, const char *name, struct err *err), void *ctx)
{
	int fd = openat(dir, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_dir *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		int r = err_sys(err, -errno, "list %s", folder);
		if (fd >= 0)
			close(fd);
		return r;
	}
	const struct dirent *e;
	int r = 0;
	while (r >= 0 && (errno = 0, e = readdir(d)))
		if (e->d_name[0] != '.')
			r = fn(ctx, fd, e->d_name, err);
	if (r >= 0 && errno)
		r = err_sys(err, -errno, "list %s", folder);
	return r;
}

struct pack_move {
	int to, round;
};
static int move_pack(void *ctx, int dir, const char *name, struct err *err)
{
	const struct pack_move *m = ctx;
	return in_round(name, m->round) ? move_file(dir, m->to, name, err) : 0;
}

static int move_loose(void *ctx, int dir, const char *name, struct err *err)
{
	const int *to = ctx;
	return is_hex(name, OID_HEX - 2) ? move_file(dir, *to, name, err) : 0;
}

static int move_fanout(void *ctx, int dir, const char *name, struct err *err)
{
	const int *objects = ctx;
	if (strlen(name) != 2 || !is_hex(name, 2))
		return 0;
	if (mkdirat(*objects, name, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make objects/%s", name);
	auto_fd to = openat(*objects, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (to < 0)
		return err_sys(err, -errno, "open objects/%s", name);
	int r = each_name(dir, name, err, move_loose, &to);
	if (r >= 0 && fsync(to) < 0)
		r = err_sys(err, -errno, "sync objects/%s", name);
	return r;
}

static int publish_objects(int from, int to, struct err *err)
{
	auto_fd objects = openat(to, "objects", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (objects < 0)
		return err_sys(err, -errno, "open the mirror's objects");
	auto_fd packs = openat(objects, "pack", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (packs < 0)
		return err_sys(err, -errno, "open the mirror's packs");
	int r = 0;
	for (int round = 0; round < 3 && r >= 0; round++) {
		struct pack_move m = { packs, round };
		r = each_name(from, "objects/pack", err, move_pack, &m);
	}
	if (r >= 0)
		r = each_name(from, "objects", err, move_fanout, &objects);
	if (r >= 0 && (fsync(packs) < 0 || fsync(objects) < 0))
		r = err_sys(err, -errno, "sync the mirror's objects");
	return r;
}

static int count_pack(void *ctx, int dir, const char *name, struct err *err)
{
	struct mirror_result *res = ctx;
	struct stat st;
	uint8_t b[4];
	size_t n = strlen(name);
	auto_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0)
		return 0; /* it is only told */
	if (n > 5 && strcmp(name + n - 5, ".pack") == 0)
		res->bytes += (uint64_t)st.st_size;
	else if (n > 4 && strcmp(name + n - 4, ".idx") == 0 &&
		 pread(fd, b, sizeof(b), IDX_COUNT_AT) == sizeof(b))
		res->objects += (uint64_t)b[0] << 24 | (uint64_t)b[1] << 16 | (uint64_t)b[2] << 8 |
				b[3];
	return 0;
}

/* git has done that; libgit2 (errand_transfer.c) hasn't. */
static int sync_pack(void *ctx, int dir, const char *name, struct err *err)
{
	if (!in_round(name, 0) && !in_round(name, 1) && !in_round(name, 2))
		return 0;
	auto_fd fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 || fsync(fd) < 0 ? err_sys(err, -errno, "sync %s", name) : 0;
}

/* ---- publishing: refs ---- */

struct target {
	int dir;
	git_repository *repo;
};

static bool descends(void *ctx, const struct oid *now, const struct oid *was)
{
	const struct target *t = ctx;
	git_oid a = oid_to_git(now), b = oid_to_git(was);
	if (git_oid_equal(&a, &b))
		return true;
	/* A failure (a tag for a branch) is no: the branch stays where it is. */
	return t->repo && history_descends(t->repo, &a, &b, NULL) == 1;
}

static int loose_value(void *ctx, const char *name, struct oid *out)
{
	const struct target *t = ctx;
	char hex[OID_HEX + 1];
	auto_fd fd = t->dir < 0 ? -1 : openat(t->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return t->dir < 0 || errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	ssize_t n = read(fd, hex, OID_HEX);
	if (n < 0)
		return errno == EISDIR ? 0 : -errno;
	hex[n] = '\0';
	return oid_parse(out, hex) < 0 ? 0 : 1;
}

/* packed-refs under git's own lock for it. */
static int lock_packed(int dir, struct err *err)
{
	for (int tries = 0;; tries++) {
		int fd = openat(dir, "packed-refs.lock", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
				0600);
		if (fd >= 0)
			return fd;
		if (errno != EEXIST || tries == LOCK_TRIES)
			return err_sys(err, errno == EEXIST ? -EBUSY : -errno,
				       "lock packed-refs of the mirror");
		const struct timespec pause = { .tv_nsec = LOCK_PAUSE_MS * 1000000L };
		(void)nanosleep(&pause, NULL); /* a signal only makes the wait shorter */
	}
}

static int write_locked(int dir, int fd, const struct refs *r, struct err *err)
{
	auto_buf text = { 0 };
	packed_refs_write(&text, r);
	if (buf_error(&text))
		return err_no_memory(err);
	int e = io_write_full(&io_host, fd, text.data, text.len, 0);
	if (e >= 0 && fsync(fd) < 0)
		e = -errno;
	if (e >= 0 && renameat(dir, "packed-refs.lock", dir, "packed-refs") < 0)
		e = -errno;
	if (e >= 0 && fsync(dir) < 0)
		e = -errno;
	return e < 0 ? err_sys(err, e, "write packed-refs of the mirror") : 0;
}

int stage_set_ref(const char *root, uint32_t number, const char *name, const struct oid *to,
		  struct err *err)
{
	struct stage s;
	auto_refs all = { 0 };
	int r = set_paths(&s, root, number, err);
	auto_fd dir = r < 0 ? -1 : open_dir(s.target, err);
	auto_fd lock = dir < 0 ? -1 : lock_packed(dir, err);
	if (r < 0 || dir < 0 || lock < 0)
		return r < 0 ? r : dir < 0 ? dir : lock;
	r = read_packed(dir, &all, err);
	if (r >= 0) {
		struct ref *was = (struct ref *)(uintptr_t)refs_find(&all, name);
		if (was)
			was->oid = *to;
		else if ((r = refs_add(&all, name, to)) < 0)
			(void)err_sys(err, r, "write packed-refs of the mirror");
	}
	refs_sort(&all);
	if (r >= 0)
		r = write_locked(dir, lock, &all, err);
	if (r < 0)
		(void)unlinkat(dir, "packed-refs.lock", 0); /* as it was */
	return r;
}

static int merge_locked(struct target *t, int lock, const struct refs *theirs, struct refs *moves,
			struct refs *from, uint64_t *changed, struct err *err)
{
	auto_refs mine = { 0 }, out = { 0 };
	const struct refs_merge m = { descends, loose_value, t };
	int r = read_packed(t->dir, &mine, err);
	if (r >= 0)
		r = refs_merge(&out, moves, from, changed, &mine, theirs, &m, err);
	return r < 0 ? r : write_locked(t->dir, lock, &out, err);
}

/* Branches with a file of their own, one by one; one that moved meanwhile stays. */
static int move_loose_heads(const char *root, uint32_t number, const struct refs *moves,
			    const struct refs *from, struct err *err)
{
	static const struct oid gone;
	auto_mirror m = NULL;
	int r = moves->n > 0 ? mirror_open(&m, root, number, err) : 0;
	for (size_t i = 0; i < moves->n && r >= 0; i++) {
		struct err why = { 0 };
		const struct oid *to = &moves->v[i].oid;
		if (memcmp(to, &gone, sizeof(gone)) == 0)
			to = NULL;
		r = mirror_ref_cas(m, moves->v[i].name, &from->v[i].oid, to, "fetch", &why);
		if (r == -ESTALE || r == -EBUSY)
			r = 0;
		if (r < 0)
			(void)err_set(err, r, "%s", why.text);
	}
	return r;
}

/* The mirror's HEAD where it isn't a branch that exists, or the other side's is another. */
static int publish_head(int from, int to, struct err *err)
{
	auto_free void *now = NULL, *was = NULL;
	size_t n, k;
	int r = io_slurp(&io_host, from, "HEAD", HEAD_MAX, &now, &n, err);
	if (r < 0)
		return r;
	if (io_slurp(&io_host, to, "HEAD", HEAD_MAX, &was, &k, NULL) >= 0 && n == k &&
	    memcmp(now, was, n) == 0)
		return 0;
	return io_publish(&io_host, to, "HEAD", now, n, true, err);
}

/* The target is <root>/repos/<8 hex>, as mirror_folder made it. */
static void number_of(const struct stage *s, char root[MIRROR_PATH_SIZE], uint32_t *number)
{
	const char *name = strrchr(s->target, '/') + 1;
	*number = (uint32_t)strtoul(name, NULL, 16);
	size_t n = (size_t)(name - s->target) - strlen("/repos/");
	memcpy(root, s->target, n);
	root[n] = '\0';
}

static int publish_refs(struct stage *s, int from, int to, uint64_t *changed, struct err *err)
{
	auto_refs theirs = { 0 }, moves = { 0 }, loose = { 0 };
	auto_git(git_repository) repo = NULL;
	char root[MIRROR_PATH_SIZE];
	uint32_t number;
	int r = read_packed(from, &theirs, err);
	if (r < 0)
		return r;
	r = git_repository_open_bare(&repo, s->target);
	if (r < 0)
		return git_fail(err, r, "open the mirror");
	struct target t = { to, repo };
	auto_fd lock = lock_packed(to, err);
	if (lock < 0)
		return lock;
	r = merge_locked(&t, lock, &theirs, &moves, &loose, changed, err);
	if (r < 0) {
		(void)unlinkat(to, "packed-refs.lock", 0); /* as it was */
		return r;
	}
	number_of(s, root, &number);
	return move_loose_heads(root, number, &moves, &loose, err);
}

/* The last part of both: from a whole stage. May be done again at any point. */
static int move_over(struct stage *s, uint64_t *changed, struct err *err)
{
	auto_fd from = open_dir(s->path, err);
	auto_fd to = from < 0 ? -1 : open_dir(s->target, err);
	if (from < 0 || to < 0)
		return from < 0 ? from : to;
	int r = publish_objects(from, to, err);
	if (r >= 0)
		r = publish_refs(s, from, to, changed, err);
	if (r >= 0)
		r = publish_head(from, to, err);
	/* Last: it says that their objects are there. */
	if (r >= 0 && renameat(from, MIRROR_TAKEN, to, MIRROR_TAKEN) < 0 && errno != ENOENT)
		r = err_sys(err, -errno, "move %s into the mirror", MIRROR_TAKEN);
	return r;
}

/* A stage without a mirror becomes it. */
static int become(struct stage *s, uint64_t *changed, struct err *err)
{
	static const char *const others[] = { "bough", "FETCH_HEAD", "shallow", "objects/info" };
	auto_refs theirs = { 0 }, all = { 0 }, moves = { 0 }, loose = { 0 };
	const struct refs none = { 0 };
	struct target t = { .dir = -1 };
	const struct refs_merge m = { descends, loose_value, &t };
	char repos[MIRROR_PATH_SIZE];
	auto_fd dir = open_dir(s->path, err);
	int r = dir < 0 ? dir : read_packed(dir, &theirs, err);
	if (r >= 0)
		r = refs_merge(&all, &moves, &loose, changed, &none, &theirs, &m, err);
	if (r >= 0)
		r = write_packed(dir, &all, err);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && r >= 0; i++)
		r = io_remove_tree(dir, others[i], err);
	if (r >= 0)
		r = sync_dir(dir, "objects/pack", err);
	if (r >= 0)
		r = sync_dir(dir, "objects", err);
	if (r >= 0)
		r = sync_dir(dir, ".", err);
	if (r < 0)
		return r;
	(void)snprintf(repos, sizeof(repos), "%.*s", (int)(strrchr(s->path, '/') - s->path),
		       s->path);
	if (rename(s->path, s->target) < 0)
		return err_sys(err, -errno, "rename %s", s->path);
	s->published = true;
	return sync_dir(AT_FDCWD, repos, err);
}

int stage_publish(struct stage *s, struct mirror_result *res, struct err *err)
{
	struct mirror_result out = { 0 };
	auto_refs theirs = { 0 };
	int r = stage_refs(s, &theirs, err);
	if (r >= 0)
		r = stage_write_refs(s, &theirs, err);
	auto_fd dir = r < 0 ? -1 : open_dir(s->path, err);
	if (r < 0 || dir < 0)
		return r < 0 ? r : dir;
	r = each_name(dir, "objects/pack", err, count_pack, &out);
	if (r >= 0)
		r = each_name(dir, "objects/pack", err, sync_pack, NULL);
	if (r >= 0 && !s->exists) {
		r = become(s, &out.refs_changed, err);
	} else if (r >= 0) {
		r = sync_dir(dir, "objects/pack", err);
		if (r >= 0)
			r = io_publish(&io_host, dir, MARK, "1\n", 2, true, err);
		if (r >= 0)
			r = move_over(s, &out.refs_changed, err);
	}
	if (r >= 0 && res)
		*res = out;
	return r;
}

/* ---- after a kill ---- */

int stage_recover(const char *root, uint32_t number, struct err *err)
{
	struct stage s;
	struct stat st;
	uint64_t changed = 0;
	int r = set_paths(&s, root, number, err);
	if (r < 0)
		return r;
	auto_fd dir = open(s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "open %s", s.path);
	/* What can't be finished is begun again by the next fetch. */
	if (fstatat(dir, MARK, &st, 0) == 0 && stat(s.target, &st) == 0)
		(void)move_over(&s, &changed, NULL);
	return io_remove_tree(AT_FDCWD, s.path, err);
}
