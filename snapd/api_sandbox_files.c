/* Files of sandboxes: a path as its processes see it is one of its root or of an attached
 * workspace, whether it runs or not; from there on it is a file of that workspace. Links aren't
 * followed, so the mount that a path lies on is told by its first names. What the runtime mounts
 * itself (/proc, /dev, …) has no files here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "snapd/access.h"
#include "snapd/api_files.h"
#include "snapd/api_sandbox.h"
#include "snapd/files_list.h"

struct where {
	char workspace[ID_SIZE];
	const char *path; /* below it; borrowed */
	bool read_only;
};

/* Whether the path (without '/' in front) is the target (absolute) or below it; *rest: what follows
 * it. */
static bool lies_below(const char *path, const char *target, const char **rest)
{
	size_t n = strlen(++target);
	if (strncmp(path, target, n) != 0 || (path[n] && path[n] != '/'))
		return false;
	*rest = path + n + (path[n] == '/');
	return true;
}

static int refuse_mounts(const struct sandbox_spec *spec, const char *path, struct err *err)
{
	char whole[PATH_SIZE];
	const char *rest, *own;
	/* Its first names tell. */
	(void)snprintf(whole, sizeof(whole), "/%.*s", PATH_SIZE - 2, path);
	own = box_own_mount(whole);
	if (own)
		return err_set(err, -EPERM, "%s isn't on a disk of the sandbox's", own);
	if (spec->host_image && lies_below(path, "/usr", &rest) && *rest &&
	    (spec->usr_local || !lies_below(path, "/usr/local", &rest)))
		return err_set(err, -EPERM, "/usr is this machine's own");
	return 0;
}

/* What is attached is read by who may read it by itself: it may have been made private since, and
 * a sandbox may be shown to more than its workspaces are. */
static int may_read(struct snapd *sd, const struct principal *who, const char *id,
		    const char *path, struct err *err)
{
	auto_ws_row ws = { 0 };
	int r = catalog_ws_get_any(sd->catalog, id, &ws, err);
	if (r < 0)
		return r;
	return access_sees(sd, who, &ws.own, ws.id)
		       ? 0
		       : err_set(err, -ENOENT, "no such path: \"%s\"", path);
}

static int resolve(struct snapd *sd, const struct principal *who, const struct sandbox_row *row,
		   const char *path, struct where *out, struct err *err)
{
	auto_spec spec = { 0 };
	struct attached_row *rows = NULL;
	size_t n = 0, longest = 0;
	int r = spec_read(&spec, row->spec, err);
	if (r >= 0)
		r = catalog_attached(sd->catalog, row->id, NULL, &rows, &n, err);
	if (r < 0)
		return r;
	*out = (struct where){ .path = path };
	memcpy(out->workspace, row->root, ID_SIZE);
	for (size_t i = 0; i < n; i++) {
		const char *rest;
		size_t len = strlen(rows[i].target);
		if (!lies_below(path, rows[i].target, &rest) || len <= longest)
			continue;
		longest = len;
		out->path = rest;
		out->read_only = rows[i].read_only;
		memcpy(out->workspace, rows[i].workspace, ID_SIZE);
	}
	free(rows);
	return longest ? may_read(sd, who, out->workspace, path, err)
		       : refuse_mounts(&spec, path, err);
}

int sandbox_place(struct snapd *sd, const struct principal *who, const char *sandbox,
		  const char *path, bool write, char workspace[ID_SIZE], const char **rest,
		  struct err *err)
{
	struct where w;
	auto_sandbox_row row = { 0 };
	int r = catalog_sandbox_get(sd->catalog, sandbox, &row, err);
	if (r >= 0)
		r = resolve(sd, who, &row, path, &w, err);
	if (r < 0)
		return r;
	if (write && w.read_only)
		return err_set(err, -EROFS, "that workspace is attached read-only");
	sandbox_touch(sd, &row);
	memcpy(workspace, w.workspace, ID_SIZE);
	*rest = w.path;
	return 0;
}

int sandbox_place_still(struct snapd *sd, const struct principal *who, const char *sandbox,
			const char *path, const char *workspace, struct err *err)
{
	struct where w;
	auto_sandbox_row row = { 0 };
	int r = catalog_sandbox_get(sd->catalog, sandbox, &row, err);
	if (r >= 0 && !access_sees(sd, who, &row.own, ""))
		r = -ENOENT;
	if (r >= 0)
		r = resolve(sd, who, &row, path, &w, err);
	if (r == -ENOENT || r == -EPERM)
		return 0;
	return r < 0 ? r : strcmp(w.workspace, workspace) == 0;
}

/* Of a move or copy: on the same mount, as rename has it. */
static int redirect_to(struct request *rq, const char *workspace, struct err *err)
{
	struct where other;
	auto_free char *to = NULL;
	int r = files_path(rq->body, "to", &to, err);
	if (r >= 0)
		r = sandbox_place(rq->ctx, rq->caller, rq->params[0], to, true, other.workspace,
				  &other.path, err);
	if (r < 0)
		return r;
	if (strcmp(other.workspace, workspace) != 0)
		return err_set(err, -ENOTSUP, "\"to\" lies in another workspace");
	(void)json_object_del(rq->body, "to"); /* one of the two isn't there */
	(void)json_object_del(rq->body, "to_b64");
	return listing_set_name(rq->body, "to", other.path, strlen(other.path)) < 0
		       ? err_no_memory(err)
		       : 0;
}

/* The request becomes one of a workspace. */
static int redirect(struct request *rq, bool write, struct err *err)
{
	struct where w;
	int r = sandbox_place(rq->ctx, rq->caller, rq->params[0], rq->tail, write, w.workspace,
			      &w.path, err);
	if (r < 0)
		return r;
	if (request_string(rq, "to") || request_string(rq, "to_b64"))
		r = redirect_to(rq, w.workspace, err);
	memcpy(rq->ids[1], w.workspace, ID_SIZE);
	rq->params[0] = rq->ids[1];
	rq->tail = w.path;
	return r;
}

int api_sandbox_file_get(struct request *rq, struct reply *rp, struct err *err)
{
	int r = redirect(rq, false, err);
	return r < 0 ? r : api_ws_file_get(rq, rp, err);
}

int api_sandbox_file_put(struct request *rq, struct reply *rp, struct err *err)
{
	int r = redirect(rq, true, err);
	return r < 0 ? r : api_ws_file_put(rq, rp, err);
}

int api_sandbox_file_delete(struct request *rq, struct reply *rp, struct err *err)
{
	int r = redirect(rq, true, err);
	return r < 0 ? r : api_ws_file_delete(rq, rp, err);
}

int api_sandbox_file_op(struct request *rq, struct reply *rp, struct err *err)
{
	int r = redirect(rq, true, err);
	return r < 0 ? r : api_ws_file_op(rq, rp, err);
}

int api_sandbox_archive_get(struct request *rq, struct reply *rp, struct err *err)
{
	int r = redirect(rq, false, err);
	return r < 0 ? r : api_ws_archive(rq, rp, err);
}

int api_sandbox_archive_put(struct request *rq, struct reply *rp, struct err *err)
{
	int r = redirect(rq, true, err);
	return r < 0 ? r : api_ws_archive_put(rq, rp, err);
}
