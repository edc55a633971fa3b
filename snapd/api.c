/* The table of routes. */
#include "snapd/api.h"
#include "snapd/hooks.h"
#include "snapd/openapi.h"
#include "snapd/repos.h"

#define OWNED_FIELDS                                                                           \
	{ "visibility", FIELD_STRING, false, 0 }, { "team", FIELD_STRING, false, 2 * NAME_SIZE }, \
		{ "ttl_s", FIELD_NUMBER, false, 0 },                                           \
	{                                                                                      \
		"on_expiry", FIELD_STRING, false, 0                                            \
	}

#define NEW_FIELDS                                                                         \
	{ "name", FIELD_STRING, true, 0 }, { "quota_bytes", FIELD_NUMBER, false, 0 },      \
		{ "quota_inodes", FIELD_NUMBER, false, 0 },                                \
		{ "labels", FIELD_LABELS, false, 0 }, { "mount", FIELD_BOOL, false, 0 },   \
		{ "xattrs", FIELD_BOOL, false, 0 }, { "uid", FIELD_NUMBER, false, 0 },     \
		{ "gid", FIELD_NUMBER, false, 0 }, OWNED_FIELDS,                           \
	{                                                                                  \
		"description", FIELD_STRING, false, DESCRIPTION_MAX                        \
	}

static const struct field create_fields[] = {
	NEW_FIELDS,
	{ "from", FIELD_STRING, false, 0 },
	{ "git", FIELD_OBJECT, false, 0 },
	{ 0 },
};
static const struct field ws_import_fields[] = { NEW_FIELDS, { 0 } };
static const struct field ws_patch_fields[] = {
	{ "name", FIELD_STRING, false, 0 },
	{ "labels", FIELD_LABELS, false, 0 },
	{ "add_labels", FIELD_LABELS, false, 0 },
	{ "remove_labels", FIELD_STRINGS, false, WEB_LABELS_MAX },
	OWNED_FIELDS,
	{ "description", FIELD_STRING, false, DESCRIPTION_MAX },
	{ "quota_bytes", FIELD_NUMBER, false, 0 },
	{ "quota_inodes", FIELD_NUMBER, false, 0 },
	{ 0 },
};
static const struct field fork_fields[] = {
	{ "names", FIELD_STRINGS, false, FORK_MAX },
	{ "name", FIELD_STRING, false, 0 },
	{ "count", FIELD_NUMBER, false, 0 },
	{ "labels", FIELD_LABELS, false, 0 },
	OWNED_FIELDS,
	{ "description", FIELD_STRING, false, DESCRIPTION_MAX },
	{ 0 },
};
static const struct field undelete_fields[] = {
	{ "name", FIELD_STRING, false, 0 },
	{ 0 },
};
static const struct field save_fields[] = {
	{ "message", FIELD_STRING, false, MESSAGE_MAX },
	{ "name", FIELD_STRING, false, 0 },
	{ 0 },
};
static const struct field restore_fields[] = {
	{ "snapshot", FIELD_STRING, true, 0 },
	{ 0 },
};
static const struct field commit_fields[] = {
	{ "message", FIELD_STRING, false, MESSAGE_MAX },
	{ "author", FIELD_STRING, false, 0 },
	{ "branch", FIELD_STRING, false, 0 },
	{ "squash", FIELD_BOOL, false, 0 },
	{ "history", FIELD_BOOL, false, 0 },
	{ "sync", FIELD_BOOL, false, 0 },
	{ "ignored", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field push_fields[] = {
	{ "branch", FIELD_STRING, false, 0 },
	{ "remote", FIELD_STRING, false, 0 },
	{ "force_with_lease", FIELD_STRING, false, 0 },
	{ "any_names", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field merge_fields[] = {
	{ "from", FIELD_STRING, true, 0 },
	{ 0 },
};
static const struct field snap_patch_fields[] = {
	{ "message", FIELD_STRING, false, MESSAGE_MAX },
	{ "add_names", FIELD_STRINGS, false, NAMES_MAX },
	{ "remove_names", FIELD_STRINGS, false, NAMES_MAX },
	{ "labels", FIELD_LABELS, false, 0 },
	OWNED_FIELDS,
	{ 0 },
};
static const struct field export_fields[] = {
	{ "from", FIELD_STRING, true, 0 },
	{ "format", FIELD_STRING, false, 0 },
	{ "path", FIELD_STRING, false, 4096 },
	{ 0 },
};
static const struct field fsck_fields[] = {
	{ "repair", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field repo_add_fields[] = {
	{ "url", FIELD_STRING, true, 0 },
	{ "name", FIELD_STRING, false, 0 },
	{ "token", FIELD_STRING, false, REPO_SECRET_MAX },
	{ "ssh_key", FIELD_STRING, false, REPO_SECRET_MAX },
	{ "known_hosts", FIELD_STRING, false, REPO_SECRET_MAX },
	{ 0 },
};
static const struct field repo_fetch_fields[] = {
	{ "token", FIELD_STRING, false, REPO_SECRET_MAX },
	{ "ssh_key", FIELD_STRING, false, REPO_SECRET_MAX },
	{ "known_hosts", FIELD_STRING, false, REPO_SECRET_MAX },
	{ 0 },
};
static const struct field repo_reset_fields[] = {
	{ "branch", FIELD_STRING, true, REPO_REF_MAX },
	{ "force", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field file_op_fields[] = {
	{ "to", FIELD_STRING, false, 4096 }, { "target", FIELD_STRING, false, 4096 },
	{ "to_b64", FIELD_STRING, false, 5464 }, { "target_b64", FIELD_STRING, false, 5464 },
	{ "mode", FIELD_STRING, false, 8 },  { "replace", FIELD_BOOL, false, 0 },
	{ "parents", FIELD_BOOL, false, 0 }, { "expires_in", FIELD_NUMBER, false, 0 },
	{ "method", FIELD_STRING, false, 8 }, { "pin", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field sign_fields[] = {
	{ "expires_in", FIELD_NUMBER, false, 0 },
	{ "method", FIELD_STRING, false, 8 },
	{ "pin", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field token_fields[] = {
	{ "name", FIELD_STRING, false, NAME_CHARS },
	{ "owner", FIELD_STRING, false, NAME_CHARS },
	{ "scope", FIELD_STRING, false, 2 * NAME_SIZE + 8 }, /* "team:OWNER/NAME" */
	{ "path", FIELD_STRING, false, PATH_SCOPE_SIZE },
	{ "read_only", FIELD_BOOL, false, 0 },
	{ "expires_s", FIELD_NUMBER, false, 0 },
	{ 0 },
};
static const struct field user_fields[] = {
	{ "name", FIELD_STRING, true, 0 },
	{ "uid", FIELD_NUMBER, false, 0 },
	{ "admin", FIELD_BOOL, false, 0 },
	{ "owner", FIELD_STRING, false, NAME_CHARS },
	{ 0 },
};
static const struct field quota_fields[] = {
	{ "workspaces", FIELD_NUMBER, false, 0 },
	{ "snapshots", FIELD_NUMBER, false, 0 },
	{ "bytes", FIELD_NUMBER, false, 0 },
	{ 0 },
};
static const struct field team_fields[] = {
	{ "name", FIELD_STRING, true, 0 },
	{ 0 },
};
static const struct field member_fields[] = {
	{ "role", FIELD_STRING, true, 0 },
	{ 0 },
};
static const struct field hook_fields[] = {
	{ "url", FIELD_STRING, true, HOOK_URL_MAX },
	{ "events", FIELD_STRINGS, false, HOOK_TYPES_MAX },
	{ "secret", FIELD_STRING, false, HOOK_SECRET_MAX },
	{ "everybody", FIELD_BOOL, false, 0 },
	{ "active", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field hook_patch_fields[] = {
	{ "url", FIELD_STRING, false, HOOK_URL_MAX },
	{ "events", FIELD_STRINGS, false, HOOK_TYPES_MAX },
	{ "secret", FIELD_STRING, false, HOOK_SECRET_MAX },
	{ "active", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field sandbox_fields[] = {
	{ "name", FIELD_STRING, false, 0 },
	{ "image", FIELD_STRING, false, 0 },
	{ "runtime", FIELD_STRING, false, 0 },
	{ "workspaces", FIELD_OBJECTS, false, 0 },
	{ "command", FIELD_STRINGS, false, 0 },
	{ "entrypoint", FIELD_STRINGS, false, 0 },
	{ "env", FIELD_STRINGS, false, 0 },
	{ "secret_env", FIELD_STRINGS, false, 0 },
	{ "secrets", FIELD_OBJECT, false, 0 },
	{ "cwd", FIELD_STRING, false, 4095 },
	{ "user", FIELD_STRING, false, 255 },
	{ "tty", FIELD_BOOL, false, 0 },
	{ "stdin", FIELD_BOOL, false, 0 },
	{ "net", FIELD_STRING, false, 0 },
	{ "hostname", FIELD_STRING, false, 0 },
	{ "usr_local", FIELD_BOOL, false, 0 },
	{ "cpu_milli", FIELD_NUMBER, false, 0 },
	{ "memory_bytes", FIELD_NUMBER, false, 0 },
	{ "pids", FIELD_NUMBER, false, 0 },
	{ "shm_bytes", FIELD_NUMBER, false, 0 },
	{ "disk_bytes", FIELD_NUMBER, false, 0 },
	{ "inodes", FIELD_NUMBER, false, 0 },
	{ "auto_remove", FIELD_BOOL, false, 0 },
	{ "start", FIELD_BOOL, false, 0 },
	{ "labels", FIELD_LABELS, false, 0 },
	{ "description", FIELD_STRING, false, DESCRIPTION_MAX },
	OWNED_FIELDS,
	{ 0 },
};
static const struct field sandbox_patch_fields[] = {
	{ "name", FIELD_STRING, false, 0 },
	{ "labels", FIELD_LABELS, false, 0 },
	{ "add_labels", FIELD_LABELS, false, 0 },
	{ "remove_labels", FIELD_STRINGS, false, WEB_LABELS_MAX },
	{ "description", FIELD_STRING, false, DESCRIPTION_MAX },
	OWNED_FIELDS,
	{ 0 },
};
static const struct field sandbox_start_fields[] = {
	{ "secrets", FIELD_OBJECT, false, 0 },
	{ "secret_env", FIELD_STRINGS, false, 0 },
	{ 0 },
};
static const struct field stop_fields[] = {
	{ "grace_ms", FIELD_NUMBER, false, 0 },
	{ 0 },
};
static const struct field signal_fields[] = {
	{ "signal", FIELD_STRING, false, 0 },
	{ 0 },
};
static const struct field sandbox_fork_fields[] = {
	{ "names", FIELD_STRINGS, true, 0 },
	{ "start", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field sandbox_restore_fields[] = {
	{ "snapshot", FIELD_STRING, true, 0 },
	{ "live", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field attach_fields[] = {
	{ "workspace", FIELD_STRING, true, 0 },
	{ "target", FIELD_STRING, false, 0 },
	{ "read_only", FIELD_BOOL, false, 0 },
	{ "exclusive", FIELD_BOOL, false, 0 },
	{ "own", FIELD_BOOL, false, 0 },
	{ 0 },
};
static const struct field exec_fields[] = {
	{ "command", FIELD_STRINGS, true, 0 },
	{ "env", FIELD_STRINGS, false, 0 },
	{ "cwd", FIELD_STRING, false, 4095 },
	{ "user", FIELD_STRING, false, 255 },
	{ "tty", FIELD_BOOL, false, 0 },
	{ "stdin", FIELD_BOOL, false, 0 },
	{ "timeout_ms", FIELD_NUMBER, false, 0 },
	{ "columns", FIELD_NUMBER, false, 0 },
	{ "rows", FIELD_NUMBER, false, 0 },
	{ 0 },
};
static const struct field resize_fields[] = {
	{ "columns", FIELD_NUMBER, true, 0 },
	{ "rows", FIELD_NUMBER, true, 0 },
	{ 0 },
};
static const struct field no_fields[] = { { 0 } };

static const char *const list_query[] = { "label",  "usage?",   "limit",
					 "cursor", "deleted?", "roots?", NULL };
static const char *const ws_delete_query[] = { "purge?", "force?", NULL };
static const char *const audit_query[] = { "object", "limit", "cursor", "format", "owner", "token",
					   "method", "since", "until",  "failed?", NULL };
static const char *const events_query[] = { "since", "follow?", NULL };
static const char *const job_query[] = { "wait", NULL };
static const char *const page_query[] = { "limit", "cursor", NULL };
static const char *const log_query[] = { "label", "limit", "cursor", NULL };
static const char *const bundle_query[] = { "message", "author", NULL };
static const char *const diff_query[] = { "against", "format", "since", NULL };
static const char *const archive_query[] = { "format", NULL };
static const char *const archive_rest_query[] = { "format", "before", NULL };
static const char *const import_query[] = { "name",      "message",    "format",
					    "max_bytes", "max_inodes", NULL };
static const char *const snap_list_query[] = { "workspace", "image?",  "label",
					       "limit",     "cursor", NULL };
static const char *const repo_import_query[] = { "name", "path", NULL };
static const char *const snap_delete_query[] = { "cascade?", "force?", NULL };

static const char *const archive_put_query[] = { "atomic?", "top?", NULL };
static const char *const file_get_query[] = { "recursive?", "limit", "cursor", "stat?", NULL };
static const char *const file_put_query[] = { "mode", NULL };
static const char *const file_delete_query[] = { "recursive?", NULL };
static const char *const file_op_query[] = { "op", NULL };
static const char *const signed_query[] = { "expires", "owner", "token", "etag",
					    "key",     "sig",   NULL };
static const char *const watch_query[] = { "path", "recursive?", "since", NULL };

static const char *const sandbox_list_query[] = { "label", "limit", "cursor", "status", NULL };
static const char *const sb_delete_query[] = { "force?", "workspaces?", NULL };
static const char *const detach_query[] = { "force?", "target", NULL };
static const char *const output_query[] = { "stdout_offset", "stderr_offset", "follow?", "stream",
					    NULL };
static const char *const terminal_query[] = { "offset", "stdin_offset", NULL };
static const char *const stdin_query[] = { "offset", "last?", NULL };

#define WS   "/v1/workspaces"
#define SNAP "/v1/snapshots"
#define REPO "/v1/repos"
#define SB   "/v1/sandboxes"
#define EXEC SB "/{}/exec"

const struct route api_routes[] = {
	{ "GET", "/v1/health", api_health, NULL, NULL, false },
	{ "GET", WS, api_ws_list, NULL, list_query, false },
	{ "POST", WS, api_ws_create, create_fields, NULL, false },
	{ "POST", WS "/import", api_ws_import, ws_import_fields, NULL, true },
	{ "GET", WS "/{}", api_ws_get, NULL, NULL, false },
	{ "PATCH", WS "/{}", api_ws_patch, ws_patch_fields, NULL, false },
	{ "DELETE", WS "/{}", api_ws_delete, NULL, ws_delete_query, false },
	{ "POST", WS "/{}/undelete", api_ws_undelete, undelete_fields, NULL, false },
	{ "POST", WS "/{}/fork", api_ws_fork, fork_fields, NULL, false },
	{ "POST", WS "/{}/snapshots", api_ws_save, save_fields, NULL, false },
	{ "POST", WS "/{}/restore", api_ws_restore, restore_fields, NULL, false },
	{ "POST", WS "/{}/merge", api_ws_merge, merge_fields, NULL, false },
	{ "POST", WS "/{}/commit", api_ws_commit, commit_fields, NULL, false },
	{ "POST", WS "/{}/push", api_ws_push, push_fields, NULL, false },
	{ "GET", WS "/{}/bundle", api_ws_bundle, NULL, bundle_query, false },
	{ "GET", WS "/{}/diff", api_ws_diff, NULL, diff_query, false },
	{ "GET", WS "/{}/log", api_ws_log, NULL, log_query, false },
	{ "POST", WS "/{}/mount", api_ws_mount, no_fields, NULL, false },
	{ "POST", WS "/{}/umount", api_ws_umount, no_fields, NULL, false },
	{ "GET", WS "/{}/archive/{...}", api_ws_archive, NULL, archive_query, false },
	{ "POST", WS "/{}/archive/{...}", api_ws_archive, NULL, archive_rest_query, true },
	{ "PUT", WS "/{}/archive/{...}", api_ws_archive_put, NULL, archive_put_query, true },
	{ "GET", WS "/{}/files/{...}", api_ws_file_get, NULL, file_get_query, false },
	{ "HEAD", WS "/{}/files/{...}", api_ws_file_get, NULL, file_get_query, false },
	{ "PUT", WS "/{}/files/{...}", api_ws_file_put, NULL, file_put_query, true },
	{ "DELETE", WS "/{}/files/{...}", api_ws_file_delete, NULL, file_delete_query, false },
	{ "POST", SNAP "/{}/files/{...}", api_snap_file_op, sign_fields, file_op_query, false },
	{ "GET", "/v1/signed/{}/{...}", api_signed_get, NULL, signed_query, false },
	{ "HEAD", "/v1/signed/{}/{...}", api_signed_get, NULL, signed_query, false },
	{ "POST", WS "/{}/batch", api_ws_batch, NULL, NULL, true },
	{ "GET", WS "/{}/watch", api_ws_watch, NULL, watch_query, false },
	{ "OPTIONS", WS "/{}/uploads", api_ws_tus_options, NULL, NULL, false },
	{ "POST", WS "/{}/uploads", api_ws_tus_create, NULL, NULL, false },
	{ "HEAD", WS "/{}/uploads/{}", api_ws_tus_head, NULL, NULL, false },
	{ "PATCH", WS "/{}/uploads/{}", api_ws_tus_patch, NULL, NULL, true },
	{ "DELETE", WS "/{}/uploads/{}", api_ws_tus_delete, NULL, NULL, false },
	{ "POST", WS "/{}/files/{...}", api_ws_file_op, file_op_fields, file_op_query, false },
	{ "POST", "/v1/import", api_import, NULL, import_query, true },
	{ "GET", SNAP, api_snap_list, NULL, snap_list_query, false },
	{ "GET", SNAP "/{}", api_snap_get, NULL, NULL, false },
	{ "PATCH", SNAP "/{}", api_snap_patch, snap_patch_fields, NULL, false },
	{ "DELETE", SNAP "/{}", api_snap_delete, NULL, snap_delete_query, false },
	{ "POST", SNAP "/{}/commit", api_snap_commit, commit_fields, NULL, false },
	{ "GET", SNAP "/{}/bundle", api_snap_bundle, NULL, bundle_query, false },
	{ "GET", SNAP "/{}/diff", api_snap_diff, NULL, diff_query, false },
	{ "GET", SNAP "/{}/diff/{}", api_snap_diff, NULL, archive_query, false },
	{ "GET", SNAP "/{}/log", api_snap_log, NULL, log_query, false },
	{ "GET", SNAP "/{}/archive/{...}", api_snap_archive, NULL, archive_query, false },
	{ "POST", SNAP "/{}/archive/{...}", api_snap_archive, NULL, archive_rest_query, true },
	{ "GET", REPO, api_repo_list, NULL, page_query, false },
	{ "POST", REPO, api_repo_add, repo_add_fields, NULL, false },
	{ "POST", REPO "/import", api_repo_import, NULL, repo_import_query, true },
	{ "GET", REPO "/{}", api_repo_get, NULL, NULL, false },
	{ "DELETE", REPO "/{}", api_repo_delete, NULL, NULL, false },
	{ "POST", REPO "/{}/fetch", api_repo_fetch, repo_fetch_fields, NULL, false },
	{ "POST", REPO "/{}/reset", api_repo_reset, repo_reset_fields, NULL, false },
	{ "POST", REPO "/{}/import", api_repo_update, NULL, NULL, true },
	{ "GET", REPO "/{}/packs", api_repo_packs, NULL, page_query, false },
	{ "GET", SNAP "/{}/files/{...}", api_snap_file_get, NULL, file_get_query, false },
	{ "HEAD", SNAP "/{}/files/{...}", api_snap_file_get, NULL, file_get_query, false },
	{ "GET", SB, api_sandbox_list, NULL, sandbox_list_query, false },
	{ "POST", SB, api_sandbox_create, sandbox_fields, NULL, false },
	{ "GET", SB "/{}", api_sandbox_get, NULL, NULL, false },
	{ "PATCH", SB "/{}", api_sandbox_patch, sandbox_patch_fields, NULL, false },
	{ "DELETE", SB "/{}", api_sandbox_delete, NULL, sb_delete_query, false },
	{ "POST", SB "/{}/start", api_sandbox_start, sandbox_start_fields, NULL, false },
	{ "POST", SB "/{}/stop", api_sandbox_stop, stop_fields, NULL, false },
	{ "POST", SB "/{}/kill", api_sandbox_kill, signal_fields, NULL, false },
	{ "POST", SB "/{}/pause", api_sandbox_pause, no_fields, NULL, false },
	{ "POST", SB "/{}/resume", api_sandbox_resume, no_fields, NULL, false },
	{ "POST", SB "/{}/snapshots", api_sandbox_save, save_fields, NULL, false },
	{ "POST", SB "/{}/fork", api_sandbox_fork, sandbox_fork_fields, NULL, false },
	{ "POST", SB "/{}/restore", api_sandbox_restore, sandbox_restore_fields, NULL, false },
	{ "POST", SB "/{}/workspaces", api_sandbox_attach, attach_fields, NULL, false },
	{ "DELETE", SB "/{}/workspaces/{}", api_sandbox_detach, NULL, detach_query, false },
	{ "GET", SB "/{}/stats", api_sandbox_stats, NULL, NULL, false },
	{ "POST", EXEC, api_exec_start, exec_fields, NULL, false },
	{ "GET", EXEC, api_exec_list, NULL, page_query, false },
	{ "GET", EXEC "/{}", api_exec_get, NULL, job_query, false },
	{ "GET", EXEC "/{}/output", api_exec_output, NULL, output_query, false },
	{ "GET", EXEC "/{}/terminal", api_exec_terminal, NULL, terminal_query, false },
	{ "POST", EXEC "/{}/stdin", api_exec_stdin, NULL, stdin_query, true },
	{ "POST", EXEC "/{}/signal", api_exec_signal, signal_fields, NULL, false },
	{ "POST", EXEC "/{}/resize", api_exec_resize, resize_fields, NULL, false },
	{ "GET", SB "/{}/files/{...}", api_sandbox_file_get, NULL, file_get_query, false },
	{ "HEAD", SB "/{}/files/{...}", api_sandbox_file_get, NULL, file_get_query, false },
	{ "PUT", SB "/{}/files/{...}", api_sandbox_file_put, NULL, file_put_query, true },
	{ "DELETE", SB "/{}/files/{...}", api_sandbox_file_delete, NULL, file_delete_query, false },
	{ "POST", SB "/{}/files/{...}", api_sandbox_file_op, file_op_fields, file_op_query, false },
	{ "GET", SB "/{}/archive/{...}", api_sandbox_archive_get, NULL, archive_query, false },
	{ "POST", SB "/{}/archive/{...}", api_sandbox_archive_get, NULL, archive_rest_query, true },
	{ "PUT", SB "/{}/archive/{...}", api_sandbox_archive_put, NULL, archive_put_query, true },
	{ "POST", SB "/{}/batch", api_sandbox_batch, NULL, NULL, true },
	{ "GET", SB "/{}/watch", api_sandbox_watch, NULL, watch_query, false },
	{ "OPTIONS", SB "/{}/uploads", api_ws_tus_options, NULL, NULL, false },
	{ "POST", SB "/{}/uploads", api_sandbox_tus_create, NULL, NULL, false },
	{ "HEAD", SB "/{}/uploads/{}", api_sandbox_tus_head, NULL, NULL, false },
	{ "PATCH", SB "/{}/uploads/{}", api_sandbox_tus_patch, NULL, NULL, true },
	{ "DELETE", SB "/{}/uploads/{}", api_sandbox_tus_delete, NULL, NULL, false },
	{ "GET", "/v1/whoami", api_whoami, NULL, NULL, false },
	{ "GET", "/v1/tokens", api_token_list, NULL, page_query, false },
	{ "POST", "/v1/tokens", api_token_create, token_fields, NULL, false },
	{ "DELETE", "/v1/tokens/{}", api_token_delete, NULL, NULL, false },
	{ "GET", "/v1/users", api_user_list, NULL, page_query, false },
	{ "POST", "/v1/users", api_user_create, user_fields, NULL, false },
	{ "DELETE", "/v1/users/{}", api_user_delete, NULL, NULL, false },
	{ "GET", "/v1/quotas", api_quota_list, NULL, page_query, false },
	{ "GET", "/v1/quotas/{}", api_quota_get, NULL, NULL, false },
	{ "PUT", "/v1/quotas/{}", api_quota_set, quota_fields, NULL, false },
	{ "DELETE", "/v1/quotas/{}", api_quota_delete, NULL, NULL, false },
	{ "GET", "/v1/teams", api_team_list, NULL, page_query, false },
	{ "POST", "/v1/teams", api_team_create, team_fields, NULL, false },
	{ "GET", "/v1/teams/{}", api_team_get, NULL, NULL, false },
	{ "DELETE", "/v1/teams/{}", api_team_delete, NULL, NULL, false },
	{ "PUT", "/v1/teams/{}/members/{}", api_member_set, member_fields, NULL, false },
	{ "DELETE", "/v1/teams/{}/members/{}", api_member_delete, NULL, NULL, false },
	{ "GET", "/v1/openapi.json", api_openapi, NULL, NULL, false },
	{ "GET", "/v1/version", api_version, NULL, NULL, false },
	{ "GET", "/metrics", api_metrics, NULL, NULL, false },
	{ "GET", "/v1/audit", api_audit, NULL, audit_query, false },
	{ "GET", "/v1/usage", api_usage, NULL, page_query, false },
	{ "GET", "/v1/events", api_events, NULL, events_query, false },
	{ "GET", "/v1/webhooks", api_hook_list, NULL, page_query, false },
	{ "POST", "/v1/webhooks", api_hook_create, hook_fields, NULL, false },
	{ "GET", "/v1/webhooks/{}", api_hook_get, NULL, NULL, false },
	{ "PATCH", "/v1/webhooks/{}", api_hook_patch, hook_patch_fields, NULL, false },
	{ "DELETE", "/v1/webhooks/{}", api_hook_delete, NULL, NULL, false },
	{ "POST", "/v1/webhooks/{}/test", api_hook_test, no_fields, NULL, false },
	{ "GET", "/v1/webhooks/{}/deliveries", api_delivery_list, NULL, page_query, false },
	{ "GET", "/v1/jobs", api_job_list, NULL, page_query, false },
	{ "GET", "/v1/jobs/{}", api_job_get, NULL, job_query, false },
	{ "POST", "/v1/jobs/{}/cancel", api_job_cancel, no_fields, NULL, false },
	{ "POST", "/v1/exports", api_export_new, export_fields, NULL, false },
	{ "GET", "/v1/exports", api_export_list, NULL, page_query, false },
	{ "GET", "/v1/exports/{}", api_export_get, NULL, NULL, false },
	{ "HEAD", "/v1/exports/{}", api_export_get, NULL, NULL, false },
	{ "DELETE", "/v1/exports/{}", api_export_delete, NULL, NULL, false },
	{ "POST", "/v1/gc", api_gc, no_fields, NULL, false },
	{ "POST", "/v1/fsck", api_fsck, fsck_fields, NULL, false },
	{ "GET", "/v1/stats", api_stats, NULL, NULL, false },
	{ "POST", "/v1/shutdown", api_shutdown, stop_fields, NULL, false },
};
const size_t api_nroutes = sizeof(api_routes) / sizeof(api_routes[0]);
