/* At boughd's start: which sandboxes still run, and what others have left. */
#include "snapd/sandbox_impl.h"

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
#include "fs/base/log.h"
#include "runtime/output.h"
#include "snapd/api.h"
#include "snapd/journal.h"

enum { TRIES = 3 /* to take one over: within 6 s */ };

/* An exec that its row says runs, or was to be started when boughd died: watched again, or told as
 * ended, or gone. Of one that it isn't known of yet, the end tells, or who asks for it again. */
static void find_exec(struct live *l, const struct exec_row *row)
{
	struct shim_state st;
	struct process_end end;
	int r = 0;
	if (row->status == EXEC_CREATED) {
		int s = exec_settle(l, row->id, NULL);
		if (s == EXEC_NEVER || s == EXEC_LOST)
			return;
	} else {
		r = shim_get(l->shim, row->id, &st, NULL);
		if (r >= 0 && (st.status == SHIM_CREATED || st.status == SHIM_UNKNOWN))
			r = -ENOENT;
	}
	if (r >= 0 && live_watch(l, row->id, NULL) >= 0)
		return; /* of a stopped one it comes at once */
	process_lost(&end);
	sandbox_tell_end(l, row->id, &end);
}

static void find_execs(struct live *l)
{
	struct exec_row *rows;
	size_t n;
	if (catalog_exec_list(l->all->sd->catalog, l->id, &rows, &n, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		if (rows[i].status != EXEC_EXITED)
			find_exec(l, &rows[i]);
	exec_rows_free(rows, n);
}

static int take_over(struct snapd *sd, struct sandbox_box *b, struct err *err)
{
	auto_shim *shim = NULL;
	struct shim_state st = { 0 };
	struct shim_stats stats = { 0 };
	int r = shim_reopen(&shim, &b->shim, err), thawed = 0;
	/* A save whose boughd was killed has left it frozen. */
	if (r >= 0 && b->row.status == SANDBOX_RUNNING && b->config.kind->freezes)
		thawed = box_freeze(b->row.id, b->shim.ns, false, NULL);
	if (r >= 0)
		r = shim_get(shim, NULL, &st, err);
	if (r >= 0)
		r = box_guard(&b->config, err);
	if (r >= 0)
		r = output_start(b->io, sd->sandboxes->io, err);
	if (r >= 0 && (st.status == SHIM_UNKNOWN || st.status == SHIM_CREATED)) {
		if (output_held(b->io, SANDBOX_MAIN, NULL) > 0)
			sandbox_never_started(sd, b->row.id);
		r = err_set(err, -ENOENT, "it was never started");
	}
	if (r < 0)
		return r;
	(void)shim_stats(shim, &stats, NULL); /* then what the kernel killed is told once more */
	auto_live *l = live_new(sd, b->row.id, shim);
	if (!l)
		return err_no_memory(err);
	const bool frozen = thawed < 0 && thawed != -ENOENT, /* there may be no freezer */
		   paused = st.status == SHIM_PAUSED && !frozen;
	l->paused = paused; /* not listed yet: nobody else has it */
	l->frozen = frozen ? LIVE_BY_GROUP : LIVE_NOT_FROZEN;
	l->oom_kills = st.status == SHIM_STOPPED ? 0 : stats.oom_kills;
	(void)steal_ptr(&shim);
	live_list(l);
	r = live_watch(l, NULL, err);
	if (r < 0) {
		live_unlist(l);
		return r;
	}
	live_keep_io(l);
	find_execs(l);
	const enum sandbox_status now = paused ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	if (b->row.status != now) {
		const struct sandbox_patch p = { .status = &now };
		(void)catalog_sandbox_patch(sd->catalog, b->row.id, &p, NULL);
	}
	if (st.status != SHIM_STOPPED)
		live_mend(l);
	return 0;
}

/* What is short or slow just now may not be in a moment: nobody's processes are ended for it. */
static bool may_pass(int r)
{
	return r == -ENOMEM || r == -ENOSPC || r == -EMFILE || r == -ENFILE || r == -EAGAIN ||
	       r == -ETIMEDOUT || r == -EIO;
}

static int take_over_patiently(struct snapd *sd, struct sandbox_box *b, struct err *err)
{
	int r = take_over(sd, b, err);
	for (int i = 1; i < TRIES && may_pass(r); i++) {
		log_warn("sandbox %s can't be taken over yet: %s", b->row.id, err->text);
		(void)sleep(1U << i);
		r = take_over(sd, b, err);
	}
	return r;
}

/* Execs of one that doesn't run have ended. */
static void end_rows(struct snapd *sd, const char *id)
{
	struct exec_row *rows;
	size_t n;
	if (catalog_exec_list(sd->catalog, id, &rows, &n, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		if (rows[i].status == EXEC_EXITED)
			continue;
		exec_note_begun(sd, id, rows[i].id);
		(void)catalog_exec_ended(sd->catalog, rows[i].id, 255, "lost", snapd_now_ns(),
					 NULL);
	}
	exec_rows_free(rows, n);
}

static void find_one(struct snapd *sd, const struct sandbox_row *row)
{
	struct err err = { 0 };
	bool ran = row->status == SANDBOX_RUNNING || row->status == SANDBOX_PAUSED;
	auto_box *b = NULL;
	int r = sandbox_box_get(&b, sd, row->id, &err);
	if (r >= 0 && ran)
		r = take_over_patiently(sd, b, &err);
	if (r >= 0 && ran) {
		sandbox_secrets_drop(sd, row->id); /* it has its own */
		return;
	}
	if (r < 0)
		log_warn("sandbox %s: %s", row->id, err.text);
	char why[BROKEN_SIZE] = "its shim and processes are gone";
	if (r < 0 && r != -ECONNREFUSED)
		(void)snprintf(why, sizeof(why),
			       "it was ended, since boughd couldn't go on with it: %.160s",
			       err.text);
	if (ran)
		(void)sandbox_set_failed(sd, row->id, why);
	else if (row->starting)
		(void)sandbox_set_failed(sd, row->id, "boughd ended while it was being started");
	struct owned own = row->own;
	const struct sandbox_patch p = { .own = &own };
	if ((ran || row->starting) && sandbox_goes(row, &own))
		(void)catalog_sandbox_patch(sd->catalog, row->id, &p, NULL);
	end_rows(sd, row->id);
	if (b && row->id_base) {
		r = sandbox_clear(b, &err);
		if (r >= 0)
			r = catalog_range_give(sd->catalog, row->id, &err);
		if (r < 0)
			log_error("sandbox %s: %s", row->id, err.text);
	}
}

static int sweep_one(struct snapd *sd, const char *id, struct err *err)
{
	char io[PATH_SIZE];
	sandbox_io_path(sd, id, io);
	int r = sandbox_sweep(sd, id, NULL, err);
	return r < 0 ? r : io_remove_tree(AT_FDCWD, io, err);
}

/* What no row knows: of a catalog that was made anew, or of a fork that failed. */
static void sweep(struct snapd *sd, const char *part)
{
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/%s", sd->root, part);
	auto_dir *d = opendir(path);
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		auto_sandbox_row row = { 0 };
		struct err err = { 0 };
		if (!id_is(e->d_name, "sb") ||
		    catalog_sandbox_get(sd->catalog, e->d_name, &row, NULL) != -ENOENT)
			continue;
		log_warn("ending sandbox %s, which the catalog doesn't know", e->d_name);
		if (sweep_one(sd, e->d_name, &err) < 0)
			log_error("sandbox %s: %s", e->d_name, err.text);
	}
}

/* Roots whose sandbox is gone become workspaces of their own: nothing in them is lost. */
static void free_roots(struct snapd *sd)
{
	struct ws_row *rows;
	size_t n;
	if (catalog_ws_list(sd->catalog, WS_ALL, &rows, &n, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		auto_sandbox_row row = { 0 };
		char name[NAME_SIZE];
		if (!rows[i].sandbox[0] ||
		    catalog_sandbox_get(sd->catalog, rows[i].sandbox, &row, NULL) != -ENOENT)
			continue;
		(void)snprintf(name, sizeof(name), "root-of-%s", rows[i].sandbox);
		const struct ws_patch p = { .name = name, .sandbox = "" };
		if (catalog_ws_patch(sd->catalog, rows[i].id, &p, NULL) >= 0 &&
		    snapd_record_ws(sd, rows[i].id, NULL) >= 0)
			log_warn("the root of sandbox %s, which is gone, is workspace %s now",
				 rows[i].sandbox, name);
	}
	ws_rows_free(rows, n);
}

static void end_unmade(struct snapd *sd, const struct sandbox_row *row)
{
	struct err err = { 0 };
	auto_lease lease = { 0 };
	int r = lease_take(&lease, sd->leases, row->id, LEASE_EXCLUSIVE, "rm", 0, &err);
	/* Its root may have been made without the row's knowing. */
	struct ws_row *ws = NULL;
	size_t n = 0;
	if (r >= 0 && !row->root[0] && catalog_ws_list(sd->catalog, WS_ALL, &ws, &n, NULL) >= 0)
		for (size_t i = 0; i < n; i++)
			if (strcmp(ws[i].sandbox, row->id) == 0) {
				const struct sandbox_patch p = { .root = ws[i].id };
				r = catalog_sandbox_patch(sd->catalog, row->id, &p, &err);
			}
	ws_rows_free(ws, n);
	if (r >= 0)
		r = sandbox_remove(sd, row->id, SANDBOX_FORCE, &err);
	if (r < 0)
		log_error("sandbox %s, which was never made: %s", row->id, err.text);
}

/* One that was to be started with its making, and never was, who asks again with its key gets made
 * anew; of others he finds that it failed. */
static bool is_made(struct snapd *sd, const struct sandbox_row *row)
{
	bool begun = row->starting && !row->started_ns;
	return row->made && !(begun && catalog_intended(sd->catalog, row->id, NULL) > 0);
}

int sandboxes_find(struct snapd *sd, struct err *err)
{
	char path[PATH_SIZE];
	struct sandbox_row *rows;
	size_t n;
	static const char *const parts[] = { "box", "io" };
	for (int i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", sd->root, parts[i]);
		/* Who runs in a sandbox looks up paths from its box on: to be passed through. */
		if (mkdir(path, 0711) < 0 && errno != EEXIST)
			return err_sys(err, -errno, "create %s", path);
		if (chmod(path, 0711) < 0)
			return err_sys(err, -errno, "chmod %s", path);
	}
	if (catalog_damage(sd->catalog))
		return 0;
	int r = catalog_sandbox_list(sd->catalog, &rows, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (is_made(sd, &rows[i]))
			find_one(sd, &rows[i]);
		else
			end_unmade(sd, &rows[i]);
	}
	sandbox_rows_free(rows, n);
	for (int i = 0; i < 2; i++)
		sweep(sd, parts[i]);
	sweep(sd, "kept");
	free_roots(sd);
	return 0;
}
