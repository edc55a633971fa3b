/* Mirrors: what moves data between them and where they come from, and their upkeep. */
#include "gitops/mirror.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "gitops/packout.h"
#include "gitops/stage.h"
#include "gitops/transport.h"

/* ---- clone and fetch ---- */

/* What "git ls-remote --symref URL HEAD" says: "ref: refs/heads/X<TAB>HEAD", "<oid><TAB>HEAD". */
static int parse_head(char *said, char branch[REF_NAME_SIZE], struct oid *oid)
{
	bool has_oid = false;
	branch[0] = '\0';
	for (char *save = NULL, *line = strtok_r(said, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *tab = strchr(line, '\t');
		if (!tab || strcmp(tab + 1, "HEAD") != 0)
			continue;
		*tab = '\0';
		if (strncmp(line, "ref: refs/heads/", 16) == 0 && ref_name_ok(line + 5))
			(void)snprintf(branch, REF_NAME_SIZE, "%s", line + 5);
		else if (oid_parse(oid, line) == 0)
			has_oid = true;
	}
	return has_oid;
}

/* A detached HEAD of the other side: the branch that is at it, one with a usual name first. */
static void guess_branch(const struct refs *refs, const struct oid *oid, char out[REF_NAME_SIZE])
{
	static const char *const usual[] = { REFS_ORIGIN "main", REFS_ORIGIN "master" };
	const struct ref *best = NULL;
	for (size_t i = 0; i < 2 && !best; i++) {
		const struct ref *r = refs_find(refs, usual[i]);
		if (r && memcmp(&r->oid, oid, sizeof(*oid)) == 0)
			best = r;
	}
	for (size_t i = 0; i < refs->n && !best; i++)
		if (strncmp(refs->v[i].name, REFS_ORIGIN, sizeof(REFS_ORIGIN) - 1) == 0 &&
		    memcmp(&refs->v[i].oid, oid, sizeof(*oid)) == 0)
			best = &refs->v[i];
	if (best)
		(void)snprintf(out, REF_NAME_SIZE, "%s%s", REFS_HEADS,
			       best->name + sizeof(REFS_ORIGIN) - 1);
}

int stage_set_head(struct stage *s, const char *branch, const struct oid *at, struct err *err)
{
	char name[REF_NAME_SIZE] = "";
	if (branch[0]) {
		(void)snprintf(name, sizeof(name), "%s", branch);
	} else if (at) {
		auto_refs refs = { 0 };
		int r = stage_refs(s, &refs, err);
		if (r < 0)
			return r;
		guess_branch(&refs, at, name);
	}
	return name[0] ? stage_head(s, name, err) : 0;
}

static int refuse_shallow(const struct stage *s, struct err *err)
{
	char path[MIRROR_PATH_SIZE + 16];
	struct stat st;
	(void)snprintf(path, sizeof(path), "%s/shallow", s->path);
	if (stat(path, &st) == 0 && st.st_size > 0)
		return err_set(err, -ENOTSUP, REFUSED_SHALLOW);
	return 0;
}

static int fetch_into(struct stage *s, const struct mirror_origin *o,
		      const struct mirror_progress *p, struct err *err)
{
	auto_transport t = { .secret = -1, .hosts = -1 };
	auto_buf said = { 0 };
	char branch[REF_NAME_SIZE];
	struct oid head;
	/* First the small question: it finds out who can't be reached or wants a token. */
	const char *const ask[] = { "ls-remote", "--symref", "--", o->url, "HEAD", NULL };
	const char *const fetch[] = { "fetch",
				      "--progress",
				      "--prune",
				      "--no-tags",
				      "--force",
				      "--no-write-fetch-head",
				      "--no-auto-maintenance",
				      "--no-recurse-submodules",
				      "--no-show-forced-updates",
				      "--",
				      o->url,
				      "+refs/heads/*:" REFS_ORIGIN "*",
				      "+refs/tags/*:" REFS_TAGS "*",
				      NULL };
	int r = transport_open(&t, s->path, s->scratch, o, p, err);
	if (r >= 0)
		r = transport_git(&t, ask, NULL, 0, &said, err);
	if (r < 0)
		return r;
	int has_head = parse_head((char *)said.data, branch, &head);
	r = transport_git(&t, fetch, NULL, 0, NULL, err);
	if (r >= 0)
		r = refuse_shallow(s, err);
	if (r >= 0)
		r = stage_set_head(s, branch, has_head ? &head : NULL, err);
	return r;
}

static int clone_or_fetch(const char *root, uint32_t number, bool exists,
			  const struct mirror_origin *o, const struct mirror_progress *p,
			  struct mirror_result *res, struct err *err)
{
	auto_stage s = { 0 };
	int r = git_url_parse(NULL, o->url, err);
	if (r >= 0)
		r = stage_begin(&s, root, number, exists, err);
	if (r >= 0)
		r = fetch_into(&s, o, p, err);
	if (r >= 0)
		r = stage_publish(&s, res, err);
	return r < 0 ? err_prefix(err, r, "fetch %.200s", o->url) : 0;
}

int mirror_clone(const char *root, uint32_t number, const struct mirror_origin *o,
		 const struct mirror_progress *p, struct mirror_result *res, struct err *err)
{
	return clone_or_fetch(root, number, false, o, p, res, err);
}

int mirror_fetch(const char *root, uint32_t number, const struct mirror_origin *o,
		 const struct mirror_progress *p, struct mirror_result *res, struct err *err)
{
	return clone_or_fetch(root, number, true, o, p, res, err);
}

/* ---- push ---- */

/* A folder for the links of a transport that runs in the mirror itself. */
struct scratch {
	char path[MIRROR_PATH_SIZE];
};

static int scratch_make(struct scratch *s, const char *root, uint32_t number, struct err *err)
{
	struct scratch out;
	int r = mirror_folder(out.path, root, number, ".run-XXXXXX", err);
	if (r < 0)
		return r;
	if (!mkdtemp(out.path))
		return err_sys(err, -errno, "make %s", out.path);
	*s = out;
	return 0;
}

static void scratch_done(struct scratch *s)
{
	if (s->path[0])
		(void)io_remove_tree(AT_FDCWD, s->path, NULL); /* else by the next start */
}
#define auto_scratch __attribute__((cleanup(scratch_done))) struct scratch

/* The other side's branch as it is now, in packed-refs: so a diff against it needs no fetch. */
static int note_pushed(const char *root, uint32_t number, const char *branch,
		       const struct oid *commit, struct err *err)
{
	char name[REF_NAME_SIZE];
	(void)snprintf(name, sizeof(name), "%s%s", REFS_ORIGIN, branch); /* checked before */
	return stage_set_ref(root, number, name, commit, err);
}

static int push_with(struct transport *t, const char *url, const struct oid *commit,
		     const char *branch, const struct oid *expect, struct err *err)
{
	char hex[OID_HEX + 1], lease[REF_NAME_SIZE + OID_HEX + 64], spec[REF_NAME_SIZE + OID_HEX];
	oid_hex(hex, commit);
	(void)snprintf(spec, sizeof(spec), "%s:refs/heads/%s", hex, branch);
	if (expect) {
		char was[OID_HEX + 1];
		oid_hex(was, expect);
		(void)snprintf(lease, sizeof(lease), "--force-with-lease=refs/heads/%s:%s", branch,
			       was);
	}
	const char *const args[] = { "push",        "--progress",
				     "--no-verify", "--no-recurse-submodules",
				     "--no-signed", expect ? lease : "--no-force-with-lease",
				     "--",          url,
				     spec,          NULL };
	return transport_git(t, args, NULL, 0, NULL, err);
}

int mirror_push(const char *root, uint32_t number, const struct mirror_origin *o,
		const struct oid *commit, const char *branch, const struct oid *expect,
		const struct mirror_progress *p, struct err *err)
{
	auto_transport t = { .secret = -1, .hosts = -1 };
	auto_scratch scratch = { 0 };
	char path[MIRROR_PATH_SIZE];
	if (!branch_name_ok(branch))
		return err_set(err, -EINVAL, "%.100s is no name for a branch", branch);
	int r = git_url_parse(NULL, o->url, err);
	if (r >= 0)
		r = mirror_folder(path, root, number, "", err);
	if (r >= 0)
		r = scratch_make(&scratch, root, number, err);
	if (r >= 0)
		r = transport_open(&t, path, scratch.path, o, p, err);
	if (r >= 0)
		r = push_with(&t, o->url, commit, branch, expect, err);
	if (r < 0)
		return err_prefix(err, r, "push to %.200s", o->url);
	return o->elsewhere ? 0 : note_pushed(root, number, branch, commit, err);
}

/* ---- upkeep ---- */

static bool is_git_tmp(const char *name)
{
	size_t n = strlen(name);
	return strncmp(name, "tmp_", 4) == 0 || strncmp(name, ".tmp-", 5) == 0 ||
	       (n > 5 && strcmp(name + n - 5, ".keep") == 0);
}

/* At the start nobody writes a pack of ours yet. */
static bool is_tmp(const char *name)
{
	return is_git_tmp(name) ||
	       strncmp(name, PACKOUT_TMP_PREFIX, sizeof(PACKOUT_TMP_PREFIX) - 1) == 0;
}

/* What a killed git left in a folder; nobody else writes there with such names. */
static void sweep(const char *mirror, const char *folder, bool (*left)(const char *name))
{
	char path[MIRROR_PATH_SIZE + 64];
	(void)snprintf(path, sizeof(path), "%s/%s", mirror, folder);
	auto_dir *d = opendir(path);
	const struct dirent *e;
	while (d && (e = readdir(d)))
		if (left(e->d_name))
			(void)unlinkat(dirfd(d), e->d_name, 0); /* costs only space */
}

static bool is_lock(const char *name)
{
	size_t n = strlen(name);
	return n > 5 && strcmp(name + n - 5, ".lock") == 0;
}

bool mirror_crowded(const char *root, uint32_t number)
{
	char path[MIRROR_PATH_SIZE], packs[MIRROR_PATH_SIZE + 16];
	if (mirror_folder(path, root, number, "", NULL) < 0)
		return false;
	(void)snprintf(packs, sizeof(packs), "%s/objects/pack", path);
	auto_dir *d = opendir(packs);
	size_t n = 0;
	for (const struct dirent *e; d && n < MIRROR_PACKS_MANY && (e = readdir(d));) {
		size_t len = strlen(e->d_name);
		n += len > 5 && strcmp(e->d_name + len - 5, ".pack") == 0;
	}
	return n >= MIRROR_PACKS_MANY;
}

int mirror_maintain(const char *root, uint32_t number, const struct mirror_progress *p,
		    struct err *err)
{
	static const char *const steps[][8] = {
		/* --geometric takes all objects of a pack along, reachable or not. */
		{ "repack", "--geometric=2", "-d", "-n", "-q", "--write-midx", NULL },
		{ "commit-graph", "write", "--reachable", "--split", "--no-progress", NULL },
	};
	auto_transport t = { .secret = -1, .hosts = -1 };
	auto_scratch scratch = { 0 };
	char path[MIRROR_PATH_SIZE];
	int r = mirror_folder(path, root, number, "", err);
	if (r >= 0)
		r = scratch_make(&scratch, root, number, err);
	if (r >= 0)
		r = transport_open(&t, path, scratch.path, NULL, p, err);
	if (r < 0 || !transport_has_git(&t))
		return r; /* libgit2 has no such thing; it costs only speed */
	sweep(path, "objects/pack", is_git_tmp);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && r >= 0; i++)
		r = transport_git(&t, steps[i], NULL, 0, NULL, err);
	if (r < 0)
		sweep(path, "objects/pack", is_git_tmp);
	return r < 0 ? err_prefix(err, r, "upkeep of mirror %08x", number) : 0;
}

int mirror_remove(const char *root, uint32_t number, struct err *err)
{
	char path[MIRROR_PATH_SIZE], gone[MIRROR_PATH_SIZE], checkouts[MIRROR_PATH_SIZE];
	int r = mirror_folder(path, root, number, "", err);
	if (r >= 0)
		r = mirror_folder(gone, root, number, ".tmp", err);
	if (r >= 0)
		r = mirror_folder(checkouts, root, number, ".checkouts", err);
	if (r >= 0)
		r = io_remove_tree(AT_FDCWD, gone, err);
	if (r >= 0) /* what is remembered of checkouts (checkout.h) */
		r = io_remove_tree(AT_FDCWD, checkouts, err);
	if (r < 0)
		return r;
	/* In one step; what is left of it by a kill is removed by the next start. */
	if (rename(path, gone) < 0)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "remove mirror %08x", number);
	return io_remove_tree(AT_FDCWD, gone, err);
}

/* Locks below refs/, without recursion on depth. */
static void sweep_ref_locks(const char *mirror)
{
	enum { FOLDERS_MAX = 4096, LEN = REF_NAME_SIZE }; /* of refs that have files */
	char(*todo)[LEN] = calloc(FOLDERS_MAX, LEN);
	size_t n = 0;
	if (!todo)
		return; /* a lock that stays is told by who meets it */
	(void)snprintf(todo[n++], LEN, "refs");
	for (size_t i = 0; i < n; i++) {
		char path[MIRROR_PATH_SIZE + LEN];
		sweep(mirror, todo[i], is_lock);
		(void)snprintf(path, sizeof(path), "%s/%s", mirror, todo[i]);
		auto_dir *d = opendir(path);
		const struct dirent *e;
		while (d && (e = readdir(d)) && n < FOLDERS_MAX)
			if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
			    snprintf(todo[n], LEN, "%s/%s", todo[i], e->d_name) < LEN)
				n++;
	}
	free(todo);
}

static int recover_one(const char *root, const char *name, struct err *err)
{
	char path[MIRROR_PATH_SIZE], *end;
	unsigned long number = strtoul(name, &end, 16);
	if (end != name + 8)
		return 0;
	int r = mirror_folder(path, root, (uint32_t)number, end, err);
	if (r < 0 || strcmp(end, ".tmp") == 0)
		return r < 0 ? r : stage_recover(root, (uint32_t)number, err);
	if (strncmp(end, ".run-", 5) == 0)
		return io_remove_tree(AT_FDCWD, path, err);
	if (*end == '\0') {
		sweep(path, "objects/pack", is_tmp);
		sweep(path, "objects/info", is_lock);
		sweep(path, "objects/info/commit-graphs", is_lock);
		sweep(path, ".", is_lock);
		sweep_ref_locks(path);
	}
	return 0;
}

int mirror_recover(const char *root, struct err *err)
{
	char path[MIRROR_PATH_SIZE];
	int n = snprintf(path, sizeof(path), "%s/repos", root), r = gitops_init(err);
	if (n < 0 || n >= (int)sizeof(path))
		return err_set(err, -ENAMETOOLONG, "the path of the repositories is too long");
	/* Mirrors first: a stage that is finished needs no lock of a dead process in its way. */
	for (int stages = 0; stages < 2 && r >= 0; stages++) {
		auto_dir *d = opendir(path);
		const struct dirent *e;
		if (!d)
			return errno == ENOENT ? 0 : err_sys(err, -errno, "list %s", path);
		while (r >= 0 && (errno = 0, e = readdir(d)))
			if (stages == (strchr(e->d_name, '.') != NULL))
				r = recover_one(root, e->d_name, err);
		if (r >= 0 && errno)
			r = err_sys(err, -errno, "list %s", path);
	}
	return r;
}
