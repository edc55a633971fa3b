#include "snapd/reconcile.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/base/boot.h"
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"
#include "fs/base/log.h"
#include "snapd/repos.h"
#include "snapd/snapd.h"
#include "snapd/state.h"

extern char **environ;

static int compare_ids(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void sort_ids(char (*ids)[ID_SIZE], size_t n)
{
	if (n > 0)
		qsort(ids, n, ID_SIZE, compare_ids);
}

static bool id_in(char (*ids)[ID_SIZE], size_t n, const char *id)
{
	return n > 0 && bsearch(id, ids, n, ID_SIZE, compare_ids);
}

/* ---- workspaces ---- */

/* Under another name where the one it had is taken. */
static int adopt_ws(struct snapd *sd, struct ws_row *row, struct err *err)
{
	int r = catalog_ws_insert(sd->catalog, row, 1, err);
	if (r == -EEXIST) {
		char name[NAME_SIZE];
		(void)snprintf(name, sizeof(name), "%.*s-%s", NAME_CHARS - ID_CHARS - 1, row->name,
			       row->id);
		memcpy(row->name, name, sizeof(name));
		r = catalog_ws_insert(sd->catalog, row, 1, err);
	}
	if (r >= 0)
		log_warn("adopted workspace %s (%s), which the catalog had lost", row->id,
			 row->name);
	return r < 0 ? err_prefix(err, r, "adopt workspace %s", row->id) : 0;
}

static int adopt_ws_folders(struct snapd *sd, char (*ids)[ID_SIZE], size_t n, struct err *err)
{
	for (size_t i = 0; i < n; i++) {
		auto_ws_row row = { 0 };
		struct err why = { 0 };
		if (catalog_ws_get_any(sd->catalog, ids[i], &row, &why) >= 0)
			continue;
		int r = records_ws_read(sd->records, ids[i], &row, &why);
		if (r == -ENOENT)
			continue; /* never acknowledged: reconcile_fs removes it */
		if (r < 0)
			log_error("%s", why.text); /* kept: see known_ids */
		else if ((r = adopt_ws(sd, &row, err)) < 0)
			return r;
	}
	return 0;
}

static int check_ws_rows(struct snapd *sd, char (*ids)[ID_SIZE], size_t n, struct err *err)
{
	struct ws_row *rows;
	size_t count;
	int r = catalog_ws_list(sd->catalog, WS_ALL, &rows, &count, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < count && r >= 0; i++) {
		auto_ws_row had = { 0 };
		const char *gone = "its folder is missing";
		bool there = id_in(ids, n, rows[i].id);
		if (!there && strcmp(rows[i].broken, gone) != 0) {
			log_error("workspace %s (%s): %s: ws/%s", rows[i].name, rows[i].id, gone,
				  rows[i].id);
			r = catalog_ws_set_broken(sd->catalog, rows[i].id, gone, err);
		} else if (there && rows[i].broken[0]) {
			r = catalog_ws_set_broken(sd->catalog, rows[i].id, "", err);
		}
		if (there && r >= 0 && records_ws_read(sd->records, rows[i].id, &had, NULL) < 0)
			r = snapd_record_ws(sd, rows[i].id, err);
	}
	ws_rows_free(rows, count);
	return r;
}

/* ---- snapshots ---- */

static int adopt_snap(struct snapd *sd, struct snap_row *row, struct err *err)
{
	int r = catalog_snap_insert(sd->catalog, row, NULL, NULL, 0, err);
	if (r == -EEXIST && row->names) {
		free(row->names); /* one of them is another's by now */
		row->names = NULL;
		r = catalog_snap_insert(sd->catalog, row, NULL, NULL, 0, err);
	}
	if (r >= 0)
		log_warn("adopted snapshot %s, which the catalog had lost", row->id);
	return r < 0 ? err_prefix(err, r, "adopt snapshot %s", row->id) : 0;
}

static int adopt_snap_records(struct snapd *sd, char (*ids)[ID_SIZE], size_t n,
			      const struct snap_row *rows, size_t nrows, struct err *err)
{
	char(*have)[ID_SIZE] = calloc(nrows ? nrows : 1, ID_SIZE);
	int r = have ? 0 : err_no_memory(err);
	for (size_t i = 0; i < nrows && have; i++)
		memcpy(have[i], rows[i].id, ID_SIZE);
	if (have)
		sort_ids(have, nrows);
	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_snap_row row = { 0 };
		struct err why = { 0 };
		if (id_in(have, nrows, ids[i]))
			continue;
		if (records_snap_read(sd->records, ids[i], &row, &why) < 0)
			log_error("%s", why.text); /* fsck reports it */
		else
			r = adopt_snap(sd, &row, err);
	}
	free(have);
	return r;
}

/* A record that isn't the row's: torn by a power failure, or of a manifest that was replaced. */
static bool record_differs(struct snapd *sd, const struct snap_row *row)
{
	auto_snap_row record = { 0 };
	return records_snap_read(sd->records, row->id, &record, NULL) < 0 ||
	       !digest_equal(&record.manifest, &row->manifest);
}

/* ROOT/run/boot_id: in which boot all records were last looked at. Since another one, those that
 * weren't durable yet may be torn. */
static int open_boot(struct snapd *sd, int flags)
{
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/run/boot_id", sd->root);
	return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static bool booted_since(struct snapd *sd)
{
	uint8_t last[BOOT_ID_BYTES];
	auto_fd fd = open_boot(sd, O_RDONLY);
	return fd < 0 || pread(fd, last, sizeof(last), 0) != sizeof(last) ||
	       memcmp(last, boot_id(NULL), sizeof(last)) != 0;
}

static void remember_boot(struct snapd *sd)
{
	auto_fd fd = open_boot(sd, O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0 || pwrite(fd, boot_id(NULL), BOOT_ID_BYTES, 0) != BOOT_ID_BYTES)
		log_warn("write run/boot_id: %s", strerrordesc_np(errno)); /* and looks again */
}

static int check_snaps(struct snapd *sd, struct err *err)
{
	bool thorough = booted_since(sd);
	char(*ids)[ID_SIZE];
	struct snap_row *rows;
	size_t n, nrows;
	int r = records_snap_ids(sd->records, &ids, &n, err);
	if (r < 0)
		return r;
	sort_ids(ids, n);
	r = catalog_snap_list(sd->catalog, &rows, &nrows, err);
	if (r >= 0) {
		r = adopt_snap_records(sd, ids, n, rows, nrows, err);
		for (size_t i = 0; i < nrows && r >= 0; i++)
			if (!id_in(ids, n, rows[i].id) ||
			    (thorough && record_differs(sd, &rows[i])))
				r = records_snap_write(sd->records, &rows[i], true, err);
		snap_rows_free(rows, nrows);
	}
	free(ids);
	if (r >= 0 && thorough)
		remember_boot(sd);
	return r;
}

int reconcile_rows(struct snapd *sd, struct err *err)
{
	char(*ids)[ID_SIZE];
	size_t n;
	if (catalog_damage(sd->catalog))
		return 0;
	int r = records_ws_ids(sd->records, &ids, &n, err);
	if (r < 0)
		return r;
	sort_ids(ids, n);
	r = adopt_ws_folders(sd, ids, n, err);
	if (r >= 0)
		r = check_ws_rows(sd, ids, n, err);
	free(ids);
	if (r >= 0)
		r = repos_reconcile(sd, err);
	return r < 0 ? r : check_snaps(sd, err);
}

/* ---- what nobody knows ---- */

/* Wanted: in the catalog, being made just now, or with a record, readable or not (then a
 * person may want to look at it). While the catalog is damaged all are. */
static bool is_known(struct snapd *sd, const char *id)
{
	auto_ws_row row = { 0 };
	if (lease_is_held(sd->leases, id))
		return true;
	int r = catalog_ws_get_any(sd->catalog, id, &row, NULL);
	return r != -ENOENT || records_ws_read(sd->records, id, &row, NULL) != -ENOENT;
}

static int remove_unknown(struct snapd *sd, char (*ids)[ID_SIZE], size_t n, struct err *err)
{
	int r = 0;
	for (size_t i = 0; i < n && r != -ECONNRESET; i++) {
		if (is_known(sd, ids[i]))
			continue;
		log_warn("removing workspace %s, which was never acknowledged", ids[i]);
		r = fsclient_direct(sd->fs, json_pack("{s:s, s:s}", "op", "delete", "id", ids[i]),
				    NULL, err);
		if (r < 0 && r != -ECONNRESET && r != -ENOENT)
			log_error("remove %s: %s", ids[i], err ? err->text : "");
	}
	return r == -ECONNRESET ? r : 0;
}

/* Layers too that nothing refers to. Only a bough-fs that has just begun can know. */
static int sweep(struct snapd *sd, char (*ids)[ID_SIZE], size_t n, struct err *err)
{
	json_t *known = json_array();
	size_t bytes = 0;
	for (size_t i = 0; i < n; i++) {
		if (!is_known(sd, ids[i]))
			continue;
		(void)json_array_append_new(known, json_string(ids[i]));
		bytes += ID_CHARS + 3;
	}
	if (bytes > FRAME_MAX - 1024) {
		log_warn("too many workspaces to sweep what was left over");
		json_decref(known);
		return 0;
	}
	int r = fsclient_direct(sd->fs, json_pack("{s:s, s:o}", "op", "sweep", "known", known),
				NULL, err);
	if (r < 0 && r != -ECONNRESET)
		log_error("sweep: %s", err ? err->text : ""); /* left-overs cost only space */
	return r == -ECONNRESET ? r : 0;
}

/* ---- mounts ---- */

static void unescape_octal(char *s)
{
	char *out = s;
	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

static void detach(const char *path)
{
	char *argv[] = { (char[]){ "fusermount3" }, (char[]){ "-uzq" }, (char[]){ "--" },
			 (char *)(uintptr_t)path, NULL };
	pid_t pid;
	int status;
	if (umount2(path, MNT_DETACH) == 0)
		return;
	if (errno == EPERM && posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0 &&
	    waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	log_warn("the stale mount at %s can't be taken away", path);
}

/* Mounts below ROOT/mnt that a dead bough-fs left, but for those that are wanted: they stay until
 * the moment when they are mounted anew, so that nobody writes to the folder below. */
static void detach_stale(struct snapd *sd)
{
	char below[PATH_SIZE];
	char *line = NULL;
	size_t cap = 0;
	auto_file *f = fopen("/proc/self/mountinfo", "re");
	int len = snprintf(below, sizeof(below), "%s/mnt/", sd->root);
	while (f && getline(&line, &cap, f) > 0) {
		char *save = NULL, *field = strtok_r(line, " ", &save);
		for (int i = 0; i < 4 && field; i++)
			field = strtok_r(NULL, " ", &save);
		const char *rest = field ? strtok_r(NULL, "", &save) : NULL;
		const char *type = rest ? strstr(rest, " - ") : NULL;
		if (!type || strncmp(type + 3, "fuse", 4) != 0)
			continue;
		unescape_octal(field);
		auto_ws_row row = { 0 };
		if (strncmp(field, below, (size_t)len) == 0 &&
		    (catalog_ws_get(sd->catalog, field + len, &row, NULL) < 0 || !row.mount)) {
			detach(field);
			(void)rmdir(field); /* what isn't empty is somebody's, and stays */
		}
	}
	free(line);
}

/* One that can't be mounted doesn't keep the others from it. */
static int mount_one(struct snapd *sd, const struct ws_row *row)
{
	char path[PATH_SIZE];
	struct err err = { 0 };
	snapd_mount_path(sd, row->id, path);
	int r = fsclient_direct(
		sd->fs, json_pack("{s:s, s:s, s:s}", "op", "mount", "id", row->id, "path", path),
		NULL, &err);
	if (r < 0 && r != -ECONNRESET) {
		log_error("mount %s (%s): %s", row->name, row->id, err.text);
		problems_set(sd->problems, row->id, err.text);
	} else if (r >= 0) {
		problems_set(sd->problems, row->id, NULL);
	}
	return r;
}

static int mount_wanted(struct snapd *sd, struct err *err)
{
	struct ws_row *rows;
	size_t n;
	if (catalog_damage(sd->catalog))
		return 0;
	int r = catalog_ws_list(sd->catalog, WS_THERE, &rows, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r != -ECONNRESET; i++)
		if (rows[i].mount && !rows[i].broken[0])
			r = mount_one(sd, &rows[i]);
	ws_rows_free(rows, n);
	return r == -ECONNRESET ? err_set(err, r, "bough-fs ended while it mounted") : 0;
}

int reconcile_fs(void *ctx, bool fresh, struct err *err)
{
	struct snapd *sd = ctx;
	char(*ids)[ID_SIZE];
	size_t n;
	/* Below it could be removed what another daemon has made at the same path. */
	if (!state_is_ours(sd->root, sd->lock_fd))
		return err_set(err, -ESTALE, "%s was removed or moved away", sd->root);
	int r = records_ws_ids(sd->records, &ids, &n, err);
	if (r < 0)
		return r;
	if (fresh) {
		detach_stale(sd);
		r = sweep(sd, ids, n, err);
	}
	if (r >= 0)
		r = remove_unknown(sd, ids, n, err);
	free(ids);
	return r < 0 ? r : mount_wanted(sd, err);
}
