/* The handlers of the API (API.md), and the JSON of its nouns. */
#ifndef BOUGH_SNAPD_API_H
#define BOUGH_SNAPD_API_H

#include "snapd/snapd.h"
#include "snapd/web.h"

enum {
	MESSAGE_MAX = 64 * 1024,
	DESCRIPTION_MAX = 64 * 1024,
	FORK_MAX = 1000,  /* children of one call: their request fits one frame */
	NAMES_MAX = 1000, /* of one snapshot's change */
};

extern const struct route api_routes[];
extern const size_t api_nroutes;

struct page;
/* RFC 3339 UTC. */
json_t *api_time(int64_t ns);
/* `usage` NULL: left out. NULL: out of memory. */
json_t *api_workspace(struct snapd *sd, const struct ws_row *row, const struct fs_usage *usage);
json_t *api_snapshot(struct snapd *sd, const struct snap_row *row);
/* Those that the caller sees and asks for, to `items`. */
int api_snapshots(struct request *rq, struct page *page, json_t *items, const struct snap_row *rows,
		  size_t n, struct err *err);
/* Labels of a body as the catalog has them: "" for none. NULL: out of memory. The caller frees. */
char *api_labels_text(const json_t *labels);
/* As "labels", "add_labels" and "remove_labels" of the body change those that it has; *out stays
 * NULL where they say nothing. */
int api_labels_merge(struct request *rq, const char *have, char **out, struct err *err);

/* ---- lists and owners (api_owned.c) ---- */

enum { CURSOR_SIZE = NAME_SIZE + ID_SIZE + 24, PAGE_ID_SIZE = NAME_SIZE + ID_SIZE };
/* One page of a list, newest first or by name: `limit` of them behind what `cursor` names. */
struct page {
	size_t limit, taken; /* limit 0: all */
	int64_t after_ns, last_ns;
	char after_id[PAGE_ID_SIZE], last_id[PAGE_ID_SIZE];
	bool begun, more, by_name;
	struct list_want want;
	char label[101], read_id[PAGE_ID_SIZE];
};
int page_begin(struct page *p, struct request *rq, struct err *err);
/* As page_begin; p->want then is what the catalog is to be asked for, as often as page_goes_on says
 * so of the last n rows that it gave. So no more is read than what the page needs, and what is
 * between that the caller doesn't see or ask for. */
int page_begin_want(struct page *p, struct request *rq, struct err *err);
bool page_goes_on(struct page *p, size_t n, int64_t last_ns, const char *last_id);
/* Whether this one, asked for in the list's order, is on the page. */
bool page_takes(struct page *p, int64_t created_ns, const char *id);
/* The same of a list that is in order of name. */
int page_begin_names(struct page *p, struct request *rq, struct err *err);
bool page_takes_name(struct page *p, const char *name);
/* {"items", "next"?}; items are taken over. NULL: out of memory. */
json_t *page_end(const struct page *p, json_t *items);
/* The same as an answer; r < 0: it failed with that, and the items are freed. */
int page_reply(struct reply *rp, const struct page *p, json_t *items, int r, struct err *err);
/* Whether the labels (a row's) fit all `label=K` and `label=K=V` of the query. */
bool page_has_labels(const struct request *rq, const char *have);

/* Changes *own as "visibility", "team", "ttl_s" and "on_expiry" of the body say. 1, or 0: they say
 * nothing. */
int api_own_take(struct request *rq, struct owned *own, struct err *err);
/* Whose it is, until when. Not 0: out of memory. */
int api_own_add(struct snapd *sd, json_t *j, const struct owned *own);
/* A name for a snapshot that no other has. */
int api_snap_name_free(struct request *rq, const char *name, struct err *err);

/* workspaces */
int api_ws_list(struct request *rq, struct reply *rp, struct err *err);
int api_ws_create(struct request *rq, struct reply *rp, struct err *err);
int api_ws_get(struct request *rq, struct reply *rp, struct err *err);
int api_ws_patch(struct request *rq, struct reply *rp, struct err *err);
int api_ws_delete(struct request *rq, struct reply *rp, struct err *err);
int api_ws_undelete(struct request *rq, struct reply *rp, struct err *err);
int api_ws_fork(struct request *rq, struct reply *rp, struct err *err);
int api_ws_mount(struct request *rq, struct reply *rp, struct err *err);
int api_ws_umount(struct request *rq, struct reply *rp, struct err *err);
int api_ws_log(struct request *rq, struct reply *rp, struct err *err);
int api_snap_log(struct request *rq, struct reply *rp, struct err *err);
/* What a workspace of a stack that is made for it begins with. */
struct ws_plan {
	char *name;
	struct ws_row like; /* quota and labels ("": none) count */
	bool mount, xattrs;
	uid_t uid;
	gid_t gid;
	/* Gives the stack, saved and synced, and the row's git (which the row takes over) for one
	 * that is seen at `path`. NULL: an empty one. */
	int (*stack)(void *ctx, const char *path, struct stack *out, char **git, struct err *err);
	void *ctx;
	/* Of that stack, whose bytes are in the store already (maker_store): it is made with the
	 * workspace, both or none. NULL: none. Borrowed. */
	struct snap_row *snap;
};
void ws_plan_done(struct ws_plan *p);
/* From a request of the route "create". -EEXIST: the name is taken. */
int ws_plan_init(struct ws_plan *p, struct request *rq, struct err *err);
/* Makes it; *row is its row, the caller's. */
int api_ws_make(struct ws_row *row, struct snapd *sd, const struct ws_plan *p, struct err *err);
/* Forks of `src` (leased SHARED) with these names, `like` else; *rows are theirs, the caller's. */
int api_ws_fork_make(struct ws_row *rows, struct snapd *sd, struct source *src,
		     const struct ws_row *like, const char *const *names, size_t n,
		     uint64_t *pause_ns, struct err *err);
/* A checkout (api_checkout.c): a request of that route with `git`. */
int api_ws_checkout(struct request *rq, struct reply *rp, struct err *err);
/* saving and restoring (api_save.c) */
int api_ws_save(struct request *rq, struct reply *rp, struct err *err);
int api_ws_restore(struct request *rq, struct reply *rp, struct err *err);
/* merging (api_merge.c) */
int api_ws_merge(struct request *rq, struct reply *rp, struct err *err);
int api_import(struct request *rq, struct reply *rp, struct err *err);
int api_ws_import(struct request *rq, struct reply *rp, struct err *err);
/* At the start, before any job goes on: uploads that none of them needs. */
void imports_sweep(struct snapd *sd);
/* snapshots */
int api_snap_list(struct request *rq, struct reply *rp, struct err *err);
int api_snap_get(struct request *rq, struct reply *rp, struct err *err);
int api_snap_patch(struct request *rq, struct reply *rp, struct err *err);
int api_snap_delete(struct request *rq, struct reply *rp, struct err *err);
/* back to git (api_commit.c, api_push.c) */
int api_ws_commit(struct request *rq, struct reply *rp, struct err *err);
int api_ws_bundle(struct request *rq, struct reply *rp, struct err *err);
int api_snap_bundle(struct request *rq, struct reply *rp, struct err *err);
int api_snap_commit(struct request *rq, struct reply *rp, struct err *err);
int api_ws_push(struct request *rq, struct reply *rp, struct err *err);
/* reading (api_read.c) */
int api_ws_diff(struct request *rq, struct reply *rp, struct err *err);
int api_snap_diff(struct request *rq, struct reply *rp, struct err *err);
/* The diff of a checkout with its commit (api_gitdiff.c); the source is taken over. */
int api_gitdiff(struct request *rq, struct reply *rp, struct source *src, int format,
		struct err *err);
int api_ws_archive(struct request *rq, struct reply *rp, struct err *err);
int api_snap_archive(struct request *rq, struct reply *rp, struct err *err);
/* repositories (api_repos.c) */
json_t *api_repo(struct snapd *sd, const char *key); /* NULL: there is none, or no memory */
int api_repo_list(struct request *rq, struct reply *rp, struct err *err);
int api_repo_get(struct request *rq, struct reply *rp, struct err *err);
int api_repo_add(struct request *rq, struct reply *rp, struct err *err);
int api_repo_import(struct request *rq, struct reply *rp, struct err *err);
int api_repo_fetch(struct request *rq, struct reply *rp, struct err *err);
int api_repo_update(struct request *rq, struct reply *rp, struct err *err);
int api_repo_packs(struct request *rq, struct reply *rp, struct err *err);
int api_repo_delete(struct request *rq, struct reply *rp, struct err *err);
/* api_branches.c: a list of at most API_BRANCHES_MAX, those that are apart from upstream's first
 * (or alone); NULL: out of memory. */
enum { API_BRANCHES_MAX = 100 };
struct mirror_branches;
json_t *api_branches(const struct mirror_branches *all, bool only_different);
int api_repo_reset(struct request *rq, struct reply *rp, struct err *err);
/* files (api_files.c, api_files_put.c, api_files_op.c, api_tus.c, api_archive.c) */
int api_ws_file_get(struct request *rq, struct reply *rp, struct err *err);
int api_snap_file_get(struct request *rq, struct reply *rp, struct err *err);
int api_ws_file_put(struct request *rq, struct reply *rp, struct err *err);
int api_ws_file_delete(struct request *rq, struct reply *rp, struct err *err);
int api_ws_tus_options(struct request *rq, struct reply *rp, struct err *err);
int api_ws_tus_create(struct request *rq, struct reply *rp, struct err *err);
int api_ws_tus_head(struct request *rq, struct reply *rp, struct err *err);
int api_ws_tus_patch(struct request *rq, struct reply *rp, struct err *err);
/* Uploads of a workspace that goes; NULL: those that have expired, or whose workspace is gone. */
void api_tus_sweep(struct snapd *sd, const char *workspace);
int api_ws_tus_delete(struct request *rq, struct reply *rp, struct err *err);
int api_ws_archive_put(struct request *rq, struct reply *rp, struct err *err);
int api_snap_file_op(struct request *rq, struct reply *rp, struct err *err); /* api_sign.c */
int api_signed_get(struct request *rq, struct reply *rp, struct err *err);
int api_ws_batch(struct request *rq, struct reply *rp, struct err *err); /* api_batch.c */
int api_ws_watch(struct request *rq, struct reply *rp, struct err *err); /* api_watch.c */
int api_ws_file_op(struct request *rq, struct reply *rp, struct err *err);
/* sandboxes (api_sandbox.c, api_sandbox_new.c, api_exec.c, api_output.c, api_sandbox_files.c) */
struct sandbox_row;
json_t *api_sandbox(struct snapd *sd, const struct sandbox_row *row);
struct exec_row;
json_t *api_exec(const struct exec_row *row);
int api_sandbox_list(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_create(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_get(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_patch(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_delete(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_start(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_stop(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_kill(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_pause(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_resume(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_save(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_fork(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_restore(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_attach(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_detach(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_stats(struct request *rq, struct reply *rp, struct err *err);
int api_exec_start(struct request *rq, struct reply *rp, struct err *err);
int api_exec_list(struct request *rq, struct reply *rp, struct err *err);
int api_exec_get(struct request *rq, struct reply *rp, struct err *err);
int api_exec_output(struct request *rq, struct reply *rp, struct err *err);
int api_exec_terminal(struct request *rq, struct reply *rp, struct err *err);
int api_exec_stdin(struct request *rq, struct reply *rp, struct err *err);
int api_exec_signal(struct request *rq, struct reply *rp, struct err *err);
int api_exec_resize(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_file_get(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_file_put(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_file_delete(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_file_op(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_archive_get(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_archive_put(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_batch(struct request *rq, struct reply *rp, struct err *err); /* api_batch.c */
int api_sandbox_watch(struct request *rq, struct reply *rp, struct err *err); /* api_watch.c */
int api_sandbox_tus_create(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_tus_head(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_tus_patch(struct request *rq, struct reply *rp, struct err *err);
int api_sandbox_tus_delete(struct request *rq, struct reply *rp, struct err *err);
/* ---- the same without a request ---- */

/* Leased SHARED. *busy (NULL: not asked): programs in it keep it mounted until they leave. */
int api_ws_unmount(struct snapd *sd, struct source *src, bool *busy, struct err *err);
/* An empty folder that doesn't go stays, and is told in the log. */
void api_remove_mount_point(const char *path);
/* Leased EXCLUSIVE. For so long it can be brought back; 0, or while the disk is nearly full: it is
 * gone. */
int api_ws_remove(struct snapd *sd, struct source *src, uint32_t grace_s, struct err *err);
/* One that was removed, whose time to be brought back is over by `now_ns`. 1; 0: it isn't. */
int api_ws_purge(struct snapd *sd, const char *id, int64_t now_ns, struct err *err);
/* Leased EXCLUSIVE. -ENOTUNIQ: something that `who` (NULL: everybody) sees needs it, unless
 * `force`. */
int api_snap_remove(struct snapd *sd, const struct source *src, bool force, const char *who,
		    struct err *err);
int api_ws_save_now(struct snapd *sd, const char *id, const char *message, struct err *err);
/* -EBUSY: it is a sandbox's root, or attached to one (that runs). */
int api_ws_refuse_used(struct snapd *sd, const struct ws_row *ws, bool running,
		       struct err *err);
/* A save in its steps: begun (the workspace is leased SAVE), sealed (what is saved is that moment),
 * and done, which takes long. `name` and `message` may be NULL. */
struct save;
int api_save_begin(struct save **out, struct snapd *sd, const char *id, const char *name,
		   const char *message, struct err *err);
int api_save_seal(struct save *s, struct err *err);
/* Its snapshot is what an Idempotency-Key is to make, before others that go with it. */
int api_save_intend(struct save *s, struct err *err);
/* What its snapshot's row is to have as its image: a new one is made in any case. */
int api_save_image(struct save *s, const char *image, struct err *err);
int api_save_finish(struct save *s, struct progress *p, json_t **result, struct err *err);
void api_save_free(struct save *s); /* NULL allowed */
/* That it was restored to that, and not written to since. */
int api_ws_remember_head(struct snapd *sd, const struct ws_row *ws, const struct snap_row *snap,
			 struct err *err);
/* Both leased, the workspace EXCLUSIVE. -EBUSY: a sandbox that runs wouldn't see it. */
int api_ws_restore_to(struct snapd *sd, struct source *ws, struct source *snap, struct err *err);

/* tokens, users, teams (api_access.c) */
int api_whoami(struct request *rq, struct reply *rp, struct err *err);
int api_token_list(struct request *rq, struct reply *rp, struct err *err);
int api_token_create(struct request *rq, struct reply *rp, struct err *err);
int api_token_delete(struct request *rq, struct reply *rp, struct err *err);
int api_user_list(struct request *rq, struct reply *rp, struct err *err);
int api_user_create(struct request *rq, struct reply *rp, struct err *err);
int api_user_delete(struct request *rq, struct reply *rp, struct err *err);
int api_quota_list(struct request *rq, struct reply *rp, struct err *err); /* api_quota.c */
int api_quota_get(struct request *rq, struct reply *rp, struct err *err);
int api_quota_set(struct request *rq, struct reply *rp, struct err *err);
int api_quota_delete(struct request *rq, struct reply *rp, struct err *err);
int api_team_list(struct request *rq, struct reply *rp, struct err *err);
int api_team_get(struct request *rq, struct reply *rp, struct err *err);
int api_team_create(struct request *rq, struct reply *rp, struct err *err);
int api_team_delete(struct request *rq, struct reply *rp, struct err *err);
int api_member_set(struct request *rq, struct reply *rp, struct err *err);
int api_member_delete(struct request *rq, struct reply *rp, struct err *err);
/* the service (api_service.c) */
int api_version(struct request *rq, struct reply *rp, struct err *err);
int api_metrics(struct request *rq, struct reply *rp, struct err *err);
int api_audit(struct request *rq, struct reply *rp, struct err *err);
int api_usage(struct request *rq, struct reply *rp, struct err *err); /* api_usage.c */
/* webhooks (api_hooks.c) */
int api_hook_list(struct request *rq, struct reply *rp, struct err *err);
int api_hook_create(struct request *rq, struct reply *rp, struct err *err);
int api_hook_get(struct request *rq, struct reply *rp, struct err *err);
int api_hook_patch(struct request *rq, struct reply *rp, struct err *err);
int api_hook_delete(struct request *rq, struct reply *rp, struct err *err);
int api_hook_test(struct request *rq, struct reply *rp, struct err *err);
int api_delivery_list(struct request *rq, struct reply *rp, struct err *err);
/* An event as it is told; NULL: out of memory. */
struct event;
json_t *api_event(const struct event *e);
/* What each owner (NULL: all) has and may have, as a list; NULL: it failed. (api_quota.c) */
json_t *api_owners_usage(struct snapd *sd, const char *owner, struct err *err);
int api_events(struct request *rq, struct reply *rp, struct err *err);
int api_job_list(struct request *rq, struct reply *rp, struct err *err);
int api_job_get(struct request *rq, struct reply *rp, struct err *err);
/* api_exports.c */
struct archive_export_stats;
json_t *api_exported(const struct archive_export_stats *st); /* NULL: out of memory */
int api_export_new(struct request *rq, struct reply *rp, struct err *err);
int api_export_list(struct request *rq, struct reply *rp, struct err *err);
int api_export_get(struct request *rq, struct reply *rp, struct err *err);
int api_export_delete(struct request *rq, struct reply *rp, struct err *err);
int api_job_cancel(struct request *rq, struct reply *rp, struct err *err);
/* the system */
int api_health(struct request *rq, struct reply *rp, struct err *err);
int api_stats(struct request *rq, struct reply *rp, struct err *err);
int api_gc(struct request *rq, struct reply *rp, struct err *err);
/* gc without a request; `p` may be NULL. -EBUSY: one runs already; -ECANCELED. */
int api_gc_now(struct snapd *sd, struct progress *p, json_t **result, struct err *err);
int api_fsck(struct request *rq, struct reply *rp, struct err *err);
int api_shutdown(struct request *rq, struct reply *rp, struct err *err);

#endif
