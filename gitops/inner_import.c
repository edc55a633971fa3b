/* Commits that were made inside a workspace, taken into the mirror (inner.h).
 *
 *   SCRATCH/import.XXXXXX/in     a repository with the object files as they lie in the workspace,
 *                                which nobody believes, beside the mirror's (alternates)
 *   SCRATCH/import.XXXXXX/out    one that has only the mirror's, for checking what comes
 *
 * git packs, in `in`, what is reachable from HEAD and not from the anchor. index-pack, in `out`,
 * then hashes every object of that pack anew, so one under a wrong name is missing under the right
 * one, and --strict refuses a pack with something missing or malformed. But nothing is missing that
 * the mirror has: inner_check looks whether the workspace had it, and the loose files that it takes
 * at their word for that are packed and hashed in the end from `in` without the mirror. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/work/same.h"
#include "fs/work/tree_names.h"
#include "gitops/changes_impl.h"
#include "gitops/child.h"
#include "gitops/errand.h"
#include "gitops/inner.h"
#include "gitops/inner_check.h"
#include "gitops/transport.h"
#include "gitops/viewfile.h"

enum {
	PATH_MAX_BYTES = 4096,
	COPY_SIZE = 256 * 1024,
	OUTPUT_SHOWN = 200,
};

struct importing {
	struct mirror *m;
	const struct view *before, *now;
	char dir[PATH_MAX_BYTES]; /* "": not made yet; without links */
	char *mirror;             /* its path, likewise */
	int fd;                   /* of dir */
	char *git;
	uint64_t bytes;
	unsigned loose, packs;
	char head[OID_HEX + 1], anchor[OID_HEX + 1];
	char from[OID_HEX + 1]; /* the anchor, or the base: what head descends from */
	const char *base;       /* NULL: it must be the anchor */
	struct inner_had *had;
	struct err *err;
};

static int fail(struct importing *im, int r, const char *what)
{
	return err_sys(im->err, r, "%s", what);
}

/* ---- the scratch folder ---- */

static int write_text(struct importing *im, const char *path, const char *text)
{
	auto_fd fd = openat(im->fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : io_write_full(&io_host, fd, text, strlen(text), 0);
	return r < 0 ? fail(im, r, path) : 0;
}

static int make_repository(struct importing *im, const char *name)
{
	static const char *const folders[] = { "", "/objects", "/objects/info", "/objects/pack",
					       "/refs" };
	char path[64], text[PATH_MAX_BYTES + 16];
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s%s", name, folders[i]);
		if (mkdirat(im->fd, path, 0700) < 0)
			return fail(im, -errno, path);
	}
	(void)snprintf(text, sizeof(text), "%s/objects\n", im->mirror);
	(void)snprintf(path, sizeof(path), "%s/objects/info/alternates", name);
	int r = write_text(im, path, text);
	(void)snprintf(path, sizeof(path), "%s/HEAD", name);
	if (r >= 0)
		r = write_text(im, path, "ref: refs/heads/none\n");
	(void)snprintf(path, sizeof(path), "%s/config", name);
	if (r >= 0)
		r = write_text(im, path, "[core]\n\trepositoryformatversion = 0\n\tbare = true\n");
	return r;
}

static int make_scratch(struct importing *im, const char *scratch)
{
	char exe[64];
	auto_free char *real = realpath(scratch, NULL);
	if (!real)
		return fail(im, -errno, scratch);
	im->mirror = realpath(mirror_path(im->m), NULL);
	if (!im->mirror)
		return fail(im, -errno, "the mirror's path");
	if (strchr(im->mirror, '\n') || strlen(im->mirror) > PATH_MAX_BYTES - 1)
		return fail(im, -EINVAL, "the mirror's path");
	if (snprintf(im->dir, sizeof(im->dir), "%s/import.XXXXXX", real) >= (int)sizeof(im->dir))
		return fail(im, -ENAMETOOLONG, scratch);
	if (!mkdtemp(im->dir)) {
		im->dir[0] = '\0';
		return fail(im, -errno, scratch);
	}
	im->fd = open(im->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (im->fd < 0)
		return fail(im, -errno, im->dir);
	(void)snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)getpid());
	if (symlinkat(exe, im->fd, ERRAND_JAIL) < 0)
		return fail(im, -errno, ERRAND_JAIL);
	int r = make_repository(im, "in");
	return r < 0 ? r : make_repository(im, "out");
}

static void importing_done(struct importing *im)
{
	cleanup_close(&im->fd);
	if (im->dir[0])
		(void)io_remove_tree(AT_FDCWD, im->dir, NULL); /* else the next start does */
	free(im->git);
	free(im->mirror);
	inner_had_free(im->had);
}

/* ---- copying objects ---- */

/* Was it there, just so, when the workspace was checked out? Then the mirror has what is in it. */
static int is_old(struct importing *im, const struct attr *a)
{
	struct attr old;
	int r = view_inode(im->before, a->ino, &old);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return fail(im, r, "look at an object");
	if (old.nlink == 0 || !S_ISREG(old.mode) || old.size != a->size)
		return 0;
	return same_content(im->before, a->ino, old.size, im->now, a->ino, a->size, im->err);
}

static int copy_file(struct importing *im, const struct attr *a, const char *path)
{
	auto_fd fd = openat(im->fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(im, -errno, path);
	auto_free char *buf = malloc(COPY_SIZE);
	if (!buf)
		return err_no_memory(im->err);
	im->bytes += a->size;
	if (im->bytes > INNER_BYTES_MAX)
		return err_set(im->err, -E2BIG,
			       "its own git has more than %d MiB of new objects: --squash takes "
			       "the files alone",
			       INNER_BYTES_MAX >> 20);
	for (uint64_t off = 0; off < a->size;) {
		ssize_t n = view_read(im->now, a->ino, buf, COPY_SIZE, off, im->err);
		if (n <= 0)
			return n < 0 ? (int)n : fail(im, -EIO, path);
		int r = io_write_full(&io_host, fd, buf, (size_t)n, off);
		if (r < 0)
			return fail(im, r, path);
		off += (uint64_t)n;
	}
	return 0;
}

static int claim(struct importing *im, const char *two, const struct name *n)
{
	char hex[OID_HEX + 1];
	struct oid oid;
	(void)snprintf(hex, sizeof(hex), "%.2s%.*s", two, (int)n->len, n->text);
	return oid_parse(&oid, hex) < 0 ? 0 : inner_had_claim(im->had, &oid, im->err);
}

/* A regular file that came since. 1, 0 or -errno. */
static int is_new_file(struct importing *im, const struct name *n, struct attr *a)
{
	if (n->type != DT_REG)
		return 0;
	int r = view_inode(im->now, n->ino, a);
	if (r < 0)
		return fail(im, r, "look at an object");
	r = is_old(im, a);
	return r < 0 ? r : !r;
}

static bool is_hex(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
			return false;
	return true;
}

static int copy_loose(struct importing *im, uint64_t dir, const char *two)
{
	auto_names names = { 0 };
	char path[96];
	int r = names_all(&names, im->now, dir);
	if (r < 0)
		return fail(im, r, "list the loose objects");
	(void)snprintf(path, sizeof(path), "in/objects/%.2s", two);
	if (mkdirat(im->fd, path, 0700) < 0 && errno != EEXIST)
		return fail(im, -errno, path);
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		const struct name *n = names.v[i];
		struct attr a;
		if (n->len != OID_HEX - 2 || !is_hex(n->text, n->len))
			continue;
		r = is_new_file(im, n, &a);
		if (r <= 0)
			continue;
		if (++im->loose > INNER_LOOSE_MAX)
			return err_set(im->err, -E2BIG, "more than %d loose objects",
				       INNER_LOOSE_MAX);
		(void)snprintf(path, sizeof(path), "in/objects/%.2s/%.*s", two, (int)n->len,
			       n->text);
		r = copy_file(im, &a, path);
		if (r >= 0)
			r = claim(im, two, n);
	}
	return r;
}

/* Packs get names of ours; their indexes are made anew. */
static int copy_packs(struct importing *im, uint64_t dir)
{
	static const char end[] = ".pack";
	auto_names names = { 0 };
	char path[96];
	int r = names_all(&names, im->now, dir);
	if (r < 0)
		return fail(im, r, "list the packs");
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		const struct name *n = names.v[i];
		struct attr a;
		if (n->len < sizeof(end) ||
		    memcmp(n->text + n->len - (sizeof(end) - 1), end, sizeof(end) - 1) != 0)
			continue;
		r = is_new_file(im, n, &a);
		if (r <= 0)
			continue;
		if (++im->packs > INNER_PACKS_MAX)
			return err_set(im->err, -E2BIG, "more than %d new packs", INNER_PACKS_MAX);
		(void)snprintf(path, sizeof(path), "in/objects/pack/pack-%040u.pack", im->packs);
		r = copy_file(im, &a, path);
	}
	return r;
}

static int copy_objects(struct importing *im)
{
	static const char where[] = ".git/objects";
	auto_names names = { 0 };
	struct attr dir;
	int r = viewfile_at(im->now, 1, where, sizeof(where) - 1, &dir);
	if (r == -ENOENT || (r >= 0 && !S_ISDIR(dir.mode)))
		return err_set(im->err, -EBADMSG, "its .git has no objects");
	if (r >= 0)
		r = names_all(&names, im->now, dir.ino);
	if (r < 0)
		return fail(im, r, "list .git/objects");
	for (size_t i = 0; i < names.n && r >= 0; i++) {
		const struct name *n = names.v[i];
		if (n->type != DT_DIR)
			continue;
		if (n->len == 2 && is_hex(n->text, 2))
			r = copy_loose(im, n->ino, n->text);
		else if (n->len == 4 && memcmp(n->text, "pack", 4) == 0)
			r = copy_packs(im, n->ino);
	}
	return r;
}

/* ---- git in the jail ---- */

/* Runs git in one of the two repositories. Its exit code, or -errno; what it said is in *res. */
static int run_git(struct importing *im, const char *repo, const char *const *args,
		   const char *input, struct child_result *res)
{
	enum { ARGS_MAX = 32 };
	char jail[PATH_MAX_BYTES + 32], dir[PATH_MAX_BYTES + 32], env_dir[PATH_MAX_BYTES + 48];
	char objects[PATH_MAX_BYTES + 16];
	const char *argv[ARGS_MAX] = { jail,    "-w",
				       im->dir, "-r",
				       objects, im->git,
				       "-c",    "pack.threads=1",
				       "-c",    "pack.windowMemory=256m",
				       "-c",    "core.bigFileThreshold=16m",
				       "-c",    "core.packedGitLimit=1g",
				       "-c",    "core.hooksPath=/dev/null" };
	const char *const envp[] = { env_dir,
				     "HOME=/nonexistent",
				     "PATH=/usr/local/bin:/usr/bin:/bin",
				     "LC_ALL=C",
				     "GIT_CONFIG_NOSYSTEM=1",
				     "GIT_CONFIG_GLOBAL=/dev/null",
				     "GIT_ATTR_NOSYSTEM=1",
				     "GIT_TERMINAL_PROMPT=0",
				     "GIT_NO_REPLACE_OBJECTS=1",
				     "GIT_NO_LAZY_FETCH=1",
				     "GIT_PROTOCOL_FROM_USER=0",
				     NULL };
	(void)snprintf(jail, sizeof(jail), "%s/%s", im->dir, ERRAND_JAIL);
	(void)snprintf(dir, sizeof(dir), "%s/%s", im->dir, repo);
	(void)snprintf(env_dir, sizeof(env_dir), "GIT_DIR=%s", dir);
	(void)snprintf(objects, sizeof(objects), "%s/objects", im->mirror);
	size_t n = 0;
	while (argv[n])
		n++;
	for (size_t i = 0; args[i] && n + 1 < ARGS_MAX; i++)
		argv[n++] = args[i];
	struct child_options opt = { .argv = argv,
				     .envp = envp,
				     .dir = dir,
				     .input = input,
				     .input_len = input ? strlen(input) : 0,
				     .keep = -1,
				     .keep2 = -1,
				     .deadline_s = INNER_DEADLINE_S,
				     .nice = 5 };
	int r = child_run(res, &opt, im->err);
	return r < 0 ? r : res->status;
}

/* git said no, to what came from the workspace. */
static int refused(struct importing *im, struct child_result *res)
{
	static const char *const prefixes[] = { "fatal: ", "error: " };
	char *s = res->err.data ? (char *)res->err.data : (char *)"";
	for (size_t i = 0; i < 2; i++)
		if (strncmp(s, prefixes[i], strlen(prefixes[i])) == 0)
			s += strlen(prefixes[i]);
	s[strcspn(s, "\n")] = '\0';
	text_scrub(s, NULL, 0);
	return err_set(im->err, -EBADMSG, "the history of its own git can't be taken over: %.*s",
		       OUTPUT_SHOWN, *s ? s : "git was ended by a bound");
}

static int git_ok(struct importing *im, const char *repo, const char *const *args,
		  const char *input, struct buf *out)
{
	auto_child_result res = { 0 };
	int r = run_git(im, repo, args, input, &res);
	if (r < 0)
		return r;
	if (r > 0)
		return refused(im, &res);
	if (out) {
		*out = res.out;
		res.out = (struct buf){ 0 };
	}
	return 0;
}

static int index_packs(struct importing *im)
{
	int r = 0;
	for (unsigned i = 1; i <= im->packs && r >= 0; i++) {
		char path[96];
		(void)snprintf(path, sizeof(path), "objects/pack/pack-%040u.pack", i);
		const char *const args[] = { "index-pack", path, NULL };
		r = git_ok(im, "in", args, NULL, NULL);
		(void)snprintf(path, sizeof(path), "in/objects/pack/pack-%040u.idx", i);
		if (r >= 0)
			r = inner_had_index(im->had, im->fd, path, im->err);
	}
	return r;
}

/* The name of a pack that pack-objects says it made; "" where there was nothing to pack. */
static int pack_name(struct importing *im, const struct buf *out, char name[OID_HEX + 1])
{
	struct oid oid;
	name[0] = '\0';
	if (out->len < OID_HEX)
		return 0;
	memcpy(name, out->data, OID_HEX);
	name[OID_HEX] = '\0';
	return oid_parse(&oid, name) < 0 ? fail(im, -EIO, "git's answer") : 0;
}

/* `head` and what leads to it, as ../new-<name>.pack; *name is "" where the mirror has it all. */
static int pack_new(struct importing *im, char name[OID_HEX + 1])
{
	auto_buf out = { 0 };
	char input[2 * OID_HEX + 8];
	(void)snprintf(input, sizeof(input), "%s\n^%s\n", im->head, im->from);
	const char *const args[] = {
		"pack-objects", "--revs", "--delta-base-offset", "--non-empty", "-q", "../new", NULL
	};
	int r = git_ok(im, "in", args, input, &out);
	return r < 0 ? r : pack_name(im, &out, name);
}

/* Into `out`'s packs, if it is sound and whole. */
static int check_pack(struct importing *im, const char *name)
{
	char pack[96], idx[96], from[96], to[96];
	(void)snprintf(pack, sizeof(pack), "../new-%s.pack", name);
	(void)snprintf(idx, sizeof(idx), "objects/pack/pack-%s.idx", name);
	const char *const args[] = { "index-pack", "--strict", "-o", idx, pack, NULL };
	int r = git_ok(im, "out", args, NULL, NULL);
	if (r < 0)
		return r;
	(void)snprintf(from, sizeof(from), "new-%s.pack", name);
	(void)snprintf(to, sizeof(to), "out/objects/pack/pack-%s.pack", name);
	return renameat(im->fd, from, im->fd, to) < 0 ? fail(im, -errno, to) : 0;
}

/* ---- what it descends from, and what it refers to ---- */

/* 1, 0, -errno. */
static int descends(struct importing *im, const char *repo, const char *from)
{
	const char *const args[] = { "merge-base", "--is-ancestor", from, im->head, NULL };
	auto_child_result res = { 0 };
	int r = run_git(im, repo, args, NULL, &res);
	return r < 0 ? r : r > 1 ? refused(im, &res) : r == 0;
}

static int choose_start(struct importing *im)
{
	int r = descends(im, "in", im->anchor);
	memcpy(im->from, im->anchor, sizeof(im->from));
	if (r == 0 && im->base) {
		r = descends(im, "in", im->base);
		memcpy(im->from, im->base, sizeof(im->from));
	}
	if (r == 0)
		return err_set(im->err, -ESTALE,
			       "HEAD of its own git (%.12s) doesn't come from the last commit made "
			       "here (%.12s): --squash takes the files alone, and --history with "
			       "--branch NEW what came since the checkout, as a branch of its own",
			       im->head, im->anchor);
	return r < 0 ? r : 0;
}

/* The head is a commit, and from it to where it began nothing is missing. */
static int check_whole(struct importing *im)
{
	const char *const type[] = { "cat-file", "-t", im->head, NULL };
	const char *const whole[] = { "rev-list", "--objects", "--quiet", im->head,
				      "--not",    im->from,    NULL };
	auto_buf out = { 0 };
	int r = git_ok(im, "out", type, NULL, &out);
	if (r >= 0 && (out.len < 6 || memcmp(out.data, "commit", 6) != 0))
		return err_set(im->err, -EBADMSG,
			       "the history of its own git can't be taken over: its HEAD is no "
			       "commit");
	if (r >= 0)
		r = descends(im, "out", im->from); /* `in` was believed */
	if (r == 0)
		return err_set(im->err, -EBADMSG,
			       "the history of its own git can't be taken over: it isn't what it "
			       "seemed");
	return r < 0 ? r : git_ok(im, "out", whole, NULL, NULL);
}

static int parse_commits(struct importing *im, const struct buf *text, struct oid **out, size_t *n)
{
	*n = text->len / (OID_HEX + 1);
	*out = calloc(*n + 1, sizeof(**out));
	if (!*out)
		return err_no_memory(im->err);
	for (size_t i = 0; i < *n; i++) {
		char hex[OID_HEX + 1];
		memcpy(hex, text->data + i * (OID_HEX + 1), OID_HEX);
		hex[OID_HEX] = '\0';
		if (oid_parse(&(*out)[i], hex) < 0)
			return fail(im, -EIO, "git's answer");
	}
	return 0;
}

/* The loose files that were taken at their word, as a pack of themselves. */
static int check_claims(struct importing *im)
{
	auto_buf list = { 0 }, out = { 0 };
	char name[OID_HEX + 1], path[96];
	int r = inner_claims(im->had, &list, im->err);
	if (r < 0 || list.len == 0)
		return r;
	buf_u8(&list, 0);
	if (buf_error(&list) < 0)
		return err_no_memory(im->err);
	if (unlinkat(im->fd, "in/objects/info/alternates", 0) < 0)
		return fail(im, -errno, "leave the mirror out");
	const char *const pack[] = { "pack-objects", "--window=0", "-q", "../claims", NULL };
	r = git_ok(im, "in", pack, (const char *)list.data, &out);
	if (r >= 0)
		r = pack_name(im, &out, name);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "../claims-%s.pack", name);
	const char *const index[] = { "index-pack", "-o", "../claims.idx", path, NULL };
	r = git_ok(im, "in", index, NULL, NULL);
	if (r >= 0)
		r = inner_had_index(im->had, im->fd, "claims.idx", im->err);
	return r < 0 ? r : inner_check_claims(im->had, im->err);
}

static int check_history(struct importing *im)
{
	char max[40], path[PATH_MAX_BYTES + 8];
	auto_buf text = { 0 };
	auto_free struct oid *commits = NULL;
	struct oid from;
	size_t n;
	if (oid_parse(&from, im->from) < 0)
		return fail(im, -EIO, "the last commit");
	(void)snprintf(max, sizeof(max), "--max-count=%d", INNER_COMMITS_MAX + 1);
	const char *const list[] = { "rev-list", max, im->head, "--not", im->from, NULL };
	int r = check_whole(im);
	if (r >= 0)
		r = git_ok(im, "out", list, NULL, &text);
	if (r >= 0)
		r = parse_commits(im, &text, &commits, &n);
	if (r >= 0 && n > INNER_COMMITS_MAX)
		return err_set(im->err, -E2BIG,
			       "its own git has more than %d new commits: --squash takes the files "
			       "alone",
			       INNER_COMMITS_MAX);
	if (r >= 0)
		r = inner_had_view(im->had, im->before, im->err);
	(void)snprintf(path, sizeof(path), "%s/out", im->dir);
	if (r >= 0)
		r = inner_check(im->had, path, commits, n, &from, im->err);
	return r < 0 ? r : check_claims(im);
}

/* ---- into the mirror ---- */

static int sync_file(int dir, const char *name)
{
	auto_fd fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int publish(struct importing *im, const char *name)
{
	static const char *const ends[] = { "pack", "idx" }; /* it counts from its index on */
	char path[PATH_MAX_BYTES];
	if (snprintf(path, sizeof(path), "%s/objects/pack", mirror_path(im->m)) >=
	    (int)sizeof(path))
		return fail(im, -ENAMETOOLONG, "the mirror's path");
	auto_fd to = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_fd from = openat(im->fd, "out/objects/pack", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (to < 0 || from < 0)
		return fail(im, -errno, path);
	for (int i = 0; i < 2; i++) {
		char file[64];
		(void)snprintf(file, sizeof(file), "pack-%s.%s", name, ends[i]);
		int r = sync_file(from, file);
		if (r >= 0 && fchmodat(from, file, 0444, 0) < 0)
			r = -errno;
		if (r >= 0 && renameat(from, file, to, file) < 0)
			r = -errno;
		if (r < 0)
			return fail(im, r, file);
	}
	if (fsync(to) < 0)
		return fail(im, -errno, path);
	int r = git_odb_refresh(mirror_odb(im->m));
	return r < 0 ? git_fail(im->err, r, "read the new pack") : 0;
}

static int import(struct importing *im, const char *scratch)
{
	char name[OID_HEX + 1];
	int r = transport_find_git(&im->git, im->err);
	if (r >= 0 && !im->git)
		return err_set(im->err, -ENOENT,
			       "taking over a history needs git on this host: --squash doesn't");
	if (r >= 0)
		r = make_scratch(im, scratch);
	if (r >= 0)
		r = inner_had_new(&im->had, im->err);
	if (r >= 0)
		r = copy_objects(im);
	if (r >= 0)
		r = index_packs(im);
	if (r >= 0)
		r = choose_start(im);
	if (r >= 0)
		r = pack_new(im, name);
	if (r >= 0 && name[0])
		r = check_pack(im, name);
	if (r >= 0)
		r = check_history(im);
	return r >= 0 && name[0] ? publish(im, name) : r;
}

int inner_import(struct mirror *m, const struct view *before, const struct view *now,
		 const struct oid *head, const struct oid *anchor, const struct oid *base,
		 const char *scratch, struct err *err)
{
	struct err own = { 0 };
	char hex[OID_HEX + 1];
	struct importing im = {
		.m = m, .before = before, .now = now, .fd = -1, .err = err ? err : &own
	};
	oid_hex(im.head, head);
	oid_hex(im.anchor, anchor);
	if (base) {
		oid_hex(hex, base);
		im.base = hex;
	}
	int r = import(&im, scratch);
	importing_done(&im);
	return r;
}
