/* Files: removed, and what is done to names: directories made, moved, copied, linked, modes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/work/batch.h"
#include "snapd/api_files.h"
#include "snapd/archive_lib.h"
#include "snapd/files_list.h"
#include "snapd/files_remove.h"
#include "snapd/intents.h"

/* ---- DELETE ---- */

static int remove_file(struct place *p, const char *path, const struct conditions *c,
		       struct err *err)
{
	struct condition_lists lists;
	struct stat dir;
	const char *name;
	auto_fd fd = -1;
	int r = place_parent(p, path, NULL, &fd, &name, err);
	if (r < 0)
		return r;
	if (!c->has_match && !c->has_unless)
		return unlinkat(fd, name, 0) < 0 ? place_error(err, -errno, "remove", path) : 0;
	if (fstat(fd, &dir) < 0)
		return place_error(err, -errno, "look at", path);
	struct ws_put want = { .dir = ino_meant(dir.st_ino), .name = name, .len = strlen(name) };
	conditions_want(c, &lists, &want);
	return fs_take(p->sd->fs, p->src.ws.id, &want, err);
}

static int remove_dir(struct place *p, const char *path, bool whole, struct err *err)
{
	const char *name;
	auto_fd fd = -1;
	int r = place_parent(p, path, NULL, &fd, &name, err);
	if (r < 0)
		return r;
	if (!whole && unlinkat(fd, name, AT_REMOVEDIR) < 0)
		return errno == ENOTEMPTY ? err_set(err, -ENOTEMPTY,
						    "%s isn't empty: ?recursive=true removes it "
						    "with all that is in it",
						    SHOW(path))
					  : place_error(err, -errno, "remove", path);
	r = whole ? files_remove(fd, name) : 0;
	return r < 0 ? place_error(err, r, "remove", path) : 0;
}

int api_ws_file_delete(struct request *rq, struct reply *rp, struct err *err)
{
	auto_place p = { .root = -1 };
	auto_found f = { .fd = -1 };
	struct conditions c = { 0 };
	int r = conditions_change(&c, rq, err);
	if (r >= 0)
		r = place_open(&p, rq->ctx, rq->params[0], false, PLACE_WRITE, err);
	if (r >= 0 && !*rq->tail)
		r = err_set(err, -EISDIR, "the root directory can't be removed");
	if (r >= 0)
		r = place_find(&p, rq->tail, &f, err);
	if (r >= 0)
		r = conditions_check(&c, &f, err);
	if (r >= 0)
		r = S_ISDIR(f.mode)
			    ? remove_dir(&p, rq->tail, request_query_true(rq, "recursive"), err)
			    : remove_file(&p, rq->tail, &c, err);
	if (r >= 0)
		rp->status = 204;
	return r;
}

/* ---- POST ---- */

struct op {
	struct place *place;
	const char *path;
	struct request *rq;
	char *other; /* "to", "target" of the body */
};

/* The path of what is made. */
static int take_to(struct op *o, struct err *err)
{
	int r = files_path(o->rq->body, "to", &o->other, err);
	if (r == -EINVAL && !o->rq->details)
		o->rq->details = json_pack("{s:s}", "field", "to");
	return r;
}

static int take_target(struct op *o, struct err *err)
{
	size_t len;
	int r = files_bytes(o->rq->body, "target", &o->other, &len, err);
	if (r == 0 && (len == 0 || len >= PATH_SIZE || memchr(o->other, 0, len)))
		r = err_set(err, -EINVAL, "\"target\": 1 to %d bytes", PATH_SIZE - 1);
	if (r == -EINVAL && !o->rq->details)
		o->rq->details = json_pack("{s:s}", "field", "target");
	return r;
}

/* What the call is answered with is noted before, as far as it is known: what has that path. */
static int intend(struct op *o, const char *at, unsigned status, uint64_t *tag, struct err *err)
{
	json_t *entry = json_object();
	json_t *answer = entry && listing_set_name(entry, "name", at, strlen(at)) == 0
				 ? json_pack("{s:O}", "entry", entry)
				 : NULL;
	json_decref(entry);
	return intent_files(tag, o->place->sd, o->place->src.ws.id, status, answer, err);
}

/* In one step of bough-fs, which does it once for an Idempotency-Key. `at`: the path that is made;
 * `what`: in the words of errors. */
static int change(struct op *o, const struct batch_op *b, const char *at, unsigned status,
		  const char *what, struct err *err)
{
	static const struct batch_conditions none;
	auto_buf ops = { 0 };
	size_t failed;
	uint64_t tag;
	batch_encode(&ops, b, &none);
	if (buf_error(&ops))
		return err_no_memory(err);
	int r = intend(o, at, status, &tag, err);
	if (r < 0)
		return r;
	const struct fs_batch all = {
		.ops = ops.data, .ops_len = ops.len, .tag = tag, .file = -1
	};
	r = fs_batch(o->place->sd->fs, o->place->src.ws.id, &all, &failed, NULL, err);
	if (r < 0 && failed == SIZE_MAX)
		return r; /* bough-fs's own words */
	if (r == -EEXIST)
		return err_set(err, r, "%s is there already", SHOW(at));
	if (r == -EINVAL)
		return err_set(err, -ENOTUNIQ, "%s can't be moved into itself", SHOW(o->path));
	return r < 0 ? place_error(err, r, what, o->path) : 0;
}

/* bough-fs sees no mounts: what is below one is refused before. With `make`, what is missing there
 * will be made. */
static int check_above(struct op *o, const char *path, bool make, struct err *err)
{
	const char *name;
	struct err why = { 0 };
	auto_fd dir = -1;
	int r = place_parent(o->place, path, NULL, &dir, &name, &why);
	if (r < 0 && !(make && r == -ENOENT))
		return err_set(err, r, "%s", why.text);
	return 0;
}

static int op_mkdir(struct op *o, struct reply *rp, struct err *err)
{
	const char *text = request_string(o->rq, "mode");
	bool parents = request_bool(o->rq, "parents", true);
	uint32_t mode = 0755;
	int r = text ? files_mode(o->rq, text, &mode, err) : 0;
	if (r >= 0)
		r = check_above(o, o->path, parents, err);
	if (r < 0)
		return r;
	const struct batch_op b = {
		.kind = BATCH_MAKE,
		.flags = parents ? BATCH_PARENTS : 0,
		.mode = S_IFDIR | mode,
		.path = o->path,
		.path_len = strlen(o->path),
	};
	rp->status = 201;
	return change(o, &b, o->path, 201, "make", err);
}

static int op_move(struct op *o, struct reply *rp, struct err *err)
{
	auto_found f = { .fd = -1 };
	int r = take_to(o, err);
	if (r >= 0)
		r = place_find(o->place, o->path, &f, err);
	if (r >= 0)
		r = check_above(o, o->other, true, err);
	if (r < 0)
		return r;
	const struct batch_op b = {
		.kind = BATCH_MOVE,
		.flags = BATCH_PARENTS |
			 (request_bool(o->rq, "replace", false) ? BATCH_REPLACE : 0),
		.path = o->path,
		.path_len = strlen(o->path),
		.other = o->other,
		.other_len = strlen(o->other),
	};
	return change(o, &b, o->other, 200, "move", err);
}

/* All of one file's content, which is shared, not copied. */
static int copy_content(int from, int to)
{
	enum { PIECE = 1 << 30 };
	for (;;) {
		ssize_t n = copy_file_range(from, NULL, to, NULL, PIECE, 0);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static int name_copy(struct op *o, const char *to, int fd, mode_t mode, struct reply *rp,
		     struct err *err)
{
	struct fs_named named;
	struct stat file, dir;
	unsigned made = 0;
	const char *name;
	uint64_t tag;
	auto_fd at = -1;
	int r = place_parent(o->place, to, &made, &at, &name, err);
	if (r < 0)
		return r;
	if (fstat(fd, &file) < 0 || fstat(at, &dir) < 0) {
		r = place_error(err, -errno, "look at", to);
	} else if ((r = intend(o, to, faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) ? 201 : 200,
			       &tag, err)) >= 0) {
		struct ws_put want = {
			.tag = tag,
			.dir = ino_meant(dir.st_ino),
			.name = name,
			.len = strlen(name),
			.file = ino_meant(file.st_ino),
			.set_mode = true,
			.mode = mode & 01777,
			.must_not_exist = !request_bool(o->rq, "replace", false),
		};
		r = fs_put(o->place->sd->fs, o->place->src.ws.id, &want, &named, err);
	}
	if (r < 0)
		place_unmake(o->place, to, made);
	if (r == -EREMCHG)
		return err_set(err, -EEXIST, "%s is there already", SHOW(to));
	if (r == -EISDIR || r == -ELOOP)
		return err_set(err, r, "%s is no file", SHOW(to));
	if (r < 0)
		return r == -ENOENT ? -ENOTUNIQ : r;
	rp->status = named.created ? 201 : 200;
	reply_header(rp, "ETag", "\"%s\"", named.version);
	return 0;
}

static int op_copy(struct op *o, struct reply *rp, struct err *err)
{
	auto_found f = { .fd = -1 };
	int r = take_to(o, err);
	if (r >= 0)
		r = place_find(o->place, o->path, &f, err);
	if (r >= 0 && !S_ISREG(f.mode)) {
		files_detail(o->rq, o->place, &f);
		r = err_set(err, S_ISDIR(f.mode) ? -EISDIR : -ELOOP,
			    "%s is a %s: only files are copied", SHOW(o->path), place_type(f.mode));
	}
	if (r >= 0)
		r = found_open(&f, err);
	if (r < 0)
		return r;
	auto_fd fd = place_unnamed(o->place);
	r = fd < 0 ? fd : copy_content(f.fd, fd);
	if (r < 0)
		return place_error(err, r, "copy", o->path);
	return name_copy(o, o->other, fd, f.mode, rp, err);
}

static int op_symlink(struct op *o, struct reply *rp, struct err *err)
{
	int r = take_target(o, err);
	if (r >= 0)
		r = check_above(o, o->path, true, err);
	if (r < 0)
		return r;
	const struct batch_op b = {
		.kind = BATCH_MAKE,
		.flags = BATCH_PARENTS,
		.mode = S_IFLNK | 0777,
		.path = o->path,
		.path_len = strlen(o->path),
		.other = o->other,
		.other_len = strlen(o->other),
	};
	rp->status = 201;
	return change(o, &b, o->path, 201, "make", err);
}

static int op_chmod(struct op *o, struct reply *rp, struct err *err)
{
	const char *text = request_string(o->rq, "mode");
	char path[32];
	uint32_t mode;
	auto_found f = { .fd = -1 };
	if (!text)
		return request_bad_field(o->rq, "mode", err, "it is missing");
	int r = files_mode(o->rq, text, &mode, err);
	if (r >= 0)
		r = place_find(o->place, o->path, &f, err);
	if (r < 0)
		return r;
	if (S_ISLNK(f.mode))
		return err_set(err, -ELOOP, "%s is a symlink, which has no mode", SHOW(o->path));
	if (!*o->path) { /* the root, which has no name; once more is the same */
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", f.fd);
		return chmod(path, mode) < 0 ? place_error(err, -errno, "change", o->path) : 0;
	}
	const struct batch_op b = {
		.kind = BATCH_CHMOD,
		.mode = mode,
		.path = o->path,
		.path_len = strlen(o->path),
	};
	return change(o, &b, o->path, 200, "change", err);
}

static const struct op_kind {
	const char *name;
	int (*run)(struct op *o, struct reply *rp, struct err *err);
	bool to; /* what is made has another path */
} ops[] = {
	{ "mkdir", op_mkdir, false },     { "move", op_move, true },    { "copy", op_copy, true },
	{ "symlink", op_symlink, false }, { "chmod", op_chmod, false },
};

/* Does it, and answers with what is at its path now. */
static int run(struct op *o, const struct op_kind *kind, struct reply *rp, struct err *err)
{
	auto_found f = { .fd = -1 };
	int r = kind->run(o, rp, err);
	if (r < 0)
		return r;
	const char *at = kind->to ? o->other : o->path;
	if (place_find(o->place, at, &f, NULL) < 0) {
		rp->status = 204; /* done, and gone by now */
		return 0;
	}
	json_t *entry = listing_entry(at, strlen(at), &f, kind->to ? NULL : o->other);
	rp->json = json_pack("{s:o}", "entry", entry);
	return rp->json ? 0 : err_set(err, -ENOMEM, "done, but out of memory for the answer");
}

int api_ws_file_op(struct request *rq, struct reply *rp, struct err *err)
{
	auto_place p = { .root = -1 };
	const char *name = request_query(rq, "op");
	size_t i = 0;
	if (name && strcmp(name, "sign") == 0)
		return api_sign(rq, rp, false, err);
	while (i < sizeof(ops) / sizeof(ops[0]) && (!name || strcmp(name, ops[i].name) != 0))
		i++;
	if (i == sizeof(ops) / sizeof(ops[0]))
		return request_bad_field(rq, "op", err,
					 "it is one of mkdir, move, copy, symlink, chmod and sign");
	doing_op(name);
	int r = conditions_refuse(rq, err);
	if (r >= 0)
		r = place_open(&p, rq->ctx, rq->params[0], false, PLACE_WRITE, err);
	if (r >= 0 && !*rq->tail && strcmp(name, "chmod") != 0)
		r = err_set(err, -EISDIR, "that is the root directory");
	if (r < 0)
		return r;
	struct op o = { .place = &p, .path = rq->tail, .rq = rq };
	r = run(&o, &ops[i], rp, err);
	free(o.other);
	return r;
}
