/* The JSON of workspaces and snapshots. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/json.h"
#include "fs/base/rfc3339.h"
#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/repos.h"

/* "2026-01-31T12:00:00.123456789Z" */
json_t *api_time(int64_t ns)
{
	char text[RFC3339_SIZE];
	const struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	return json_string(rfc3339_text(text, &t));
}

static json_t *optional(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

static json_t *parsed(const char *text, json_t *otherwise)
{
	json_t *j = text ? json_loads(text, 0, NULL) : NULL;
	if (!j)
		return otherwise;
	json_decref(otherwise);
	return j;
}

/* Which checkout it is; how the tree began is nobody else's business. */
static json_t *checkout(const char *git)
{
	json_t *j = parsed(git, json_null());
	(void)json_object_del(j, "stack"); /* it has one, or is null */
	return j;
}

/* The same with the repository's name, null when that is gone. */
static json_t *named_checkout(struct snapd *sd, const char *git)
{
	char id[ID_SIZE];
	auto_repo_row repo = { 0 };
	json_t *j = checkout(git);
	repo_lease_id(id, (uint32_t)json_integer_value(json_object_get(j, "repo")));
	bool known = catalog_repo_get(sd->catalog, id, &repo, NULL) >= 0;
	/* Without memory for it, it is missing: the answer says the rest. */
	(void)json_object_set_new(j, "name", known ? json_string(repo.name) : json_null());
	return j;
}

static int add_usage(json_t *j, const struct fs_usage *u)
{
	int bad = json_object_set_new(j, "used_bytes", json_integer(u->bytes));
	bad |= json_object_set_new(j, "used_inodes", json_integer(u->inodes));
	bad |= json_object_set_new(j, "layers", json_integer((json_int_t)u->layers));
	bad |= json_object_set_new(j, "records", json_integer((json_int_t)u->records));
	bad |= json_object_set_new(j, "files", json_integer((json_int_t)u->files));
	bad |= json_object_set_new(j, "xattrs", json_boolean(u->xattrs));
	return bad;
}

int api_own_add(struct snapd *sd, json_t *j, const struct owned *own)
{
	int bad = json_object_set_new(j, "owner", json_string(own->owner));
	bad |= json_object_set_new(j, "visibility", json_string(visibility_names[own->visibility]));
	if (own->visibility == VISIBLE_TEAM) {
		struct team_row team;
		bool there = catalog_team_get(sd->catalog, own->team, &team, NULL) >= 0;
		bad |= json_object_set_new(j, "team", json_string(there ? team.name : own->team));
		bad |= json_object_set_new(j, "team_id", json_string(own->team));
	}
	bad |= json_object_set_new(j, "expires",
				   own->expires_ns ? api_time(own->expires_ns) : json_null());
	if (own->expires_ns)
		bad |= json_object_set_new(j, "on_expiry",
					   json_string(on_expiry_names[own->on_expiry]));
	return bad;
}

json_t *api_workspace(struct snapd *sd, const struct ws_row *row, const struct fs_usage *usage)
{
	char path[PATH_SIZE], problem[BROKEN_SIZE] = "";
	bool failed = problems_get(sd->problems, row->id, problem, sizeof(problem));
	struct supervisor_status fs;
	supervisor_get(sd->supervisor, &fs);
	/* For a moment after a death this is so too; who asks has waited for the end of that. */
	if (!failed && !usage && !fs.up && fs.problem[0]) {
		failed = true;
		(void)snprintf(problem, sizeof(problem), "%s", fs.problem);
	}
	char fault[BROKEN_SIZE] = "";
	if (usage)
		(void)snprintf(fault, sizeof(fault), "%s", usage->fault);
	else
		(void)problems_get(sd->faults, row->id, fault, sizeof(fault));
	char damage[BROKEN_SIZE] = "";
	if (usage)
		(void)snprintf(damage, sizeof(damage), "%s", usage->damage);
	else
		(void)problems_get(sd->damage, row->id, damage, sizeof(damage));
	bool mounted = usage ? usage->mounted
			     : row->mount && !failed && !row->broken[0] && !row->removed_ns;
	snapd_mount_path(sd, row->id, path);
	json_t *j = json_pack("{s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:s}", "id",
			      row->id, "name", row->removed_ns ? row->was : row->name, "path", path,
			      "mounted", mounted, "created", api_time(row->created_ns), "base",
			      optional(row->base), "head", optional(row->head), "labels",
			      parsed(row->labels, json_object()), "quota_bytes",
			      (json_int_t)row->quota_bytes, "quota_inodes",
			      (json_int_t)row->quota_inodes, "parent", optional(row->parent),
			      "state", row->broken[0] ? "broken" : *fault ? "read-only" : "ready");
	if (!j)
		return NULL;
	int bad = usage ? add_usage(j, usage) : 0;
	const char *error = row->broken[0]	? row->broken
			    : failed && !mounted ? problem
			    : *fault		 ? fault
						 : NULL;
	if (error)
		bad |= json_object_set_new(j, "error", json_string(error));
	if (*damage)
		bad |= json_object_set_new(j, "damage", json_string(damage));
	bad |= api_own_add(sd, j, &row->own);
	bad |= json_object_set_new(j, "description", optional(row->description));
	if (row->git)
		bad |= json_object_set_new(j, "git", named_checkout(sd, row->git));
	if (row->removed_ns) {
		bad |= json_object_set_new(j, "deleted", api_time(row->removed_ns));
		bad |= json_object_set_new(j, "purges", api_time(row->purge_ns));
	}
	if (bad) {
		json_decref(j);
		return NULL;
	}
	return j;
}

json_t *api_snapshot(struct snapd *sd, const struct snap_row *row)
{
	char manifest[DIGEST_HEX + 1];
	digest_hex(manifest, &row->manifest);
	json_t *j = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:o*,"
			      " s:o*}",
			      "id", row->id, "names", parsed(row->names, json_array()), "message",
			      optional(row->message), "created", api_time(row->created_ns),
			      "workspace", optional(row->workspace), "parent",
			      optional(row->parent), "manifest", manifest, "files",
			      (json_int_t)row->files, "bytes", (json_int_t)row->bytes,
			      "stored_bytes", (json_int_t)row->stored_bytes, "labels",
			      parsed(row->labels, json_object()), "git",
			      row->git ? checkout(row->git) : NULL, "image",
			      row->image ? parsed(row->image, json_null()) : NULL);
	if (j && api_own_add(sd, j, &row->own)) {
		json_decref(j);
		return NULL;
	}
	return j;
}

int api_snapshots(struct request *rq, struct page *page, json_t *items, const struct snap_row *rows,
		  size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		if (!access_sees(rq->ctx, rq->caller, &rows[i].own, rows[i].workspace) ||
		    !page_has_labels(rq, rows[i].labels) ||
		    !page_takes(page, rows[i].created_ns, rows[i].id))
			continue;
		if (json_array_append_new(items, api_snapshot(rq->ctx, &rows[i])) < 0)
			return err_no_memory(err);
	}
	return 0;
}

char *api_labels_text(const json_t *labels)
{
	return json_object_size(labels) ? json_text(labels, JSON_COMPACT) : strdup("");
}
