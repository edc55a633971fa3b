/* Power loss over a whole root as boughd has it (see power.c): workspaces and the store, and with
 * them the catalog in SQLite and the records beside the data, all on one disk that remembers.
 * SQLite comes to it by a VFS of its own here. What boughd does for a fork, a save and a removal is
 * done in its order (api_workspaces.c, api_save.c, api_remove.c), and after each loss what it does
 * at its start (reconcile_rows). Then, beside what power.c looks at:
 *
 *   - the catalog opens, and SQLite's check finds nothing wrong,
 *   - every snapshot that it lists is whole, acknowledged or not, and has its record,
 *   - every snapshot that was acknowledged is listed, with its name,
 *   - every workspace that was acknowledged, and in which an fsync has returned since, is listed,
 *   - none that was removed is there again.
 *
 *     catalog [--ops N] [--seed S] [--runs N] [--cuts N] [--tries N] [--dir PATH] [-v] */
#include "tests/crash/power_check.h"

#include <sqlite3.h>
#include "fs/base/log.h"
#include "snapd/catalog.h"
#include "snapd/journal.h"
#include "snapd/reconcile.h"
#include "snapd/records.h"
#include "snapd/snapd.h"

/* ---- SQLite on such a disk ---- */

static struct {
	sqlite3_vfs vfs, *real;
	const struct io *io; /* of files that are opened from now on */
} sim;

/* What changes goes by the io; locks, shared memory and reading are the host's. */
struct sim_file {
	sqlite3_file base;
	sqlite3_file *real; /* behind this struct */
	const struct io *io;
	int fd; /* -1: a file of no importance */
	bool new_name;
	char dir[200];
};

static struct sim_file *sim_of(sqlite3_file *f)
{
	return (struct sim_file *)(void *)f;
}

static int sim_sync_dir(const struct io *io, const char *dir)
{
	auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 && io->fsync(io->ctx, fd) == 0 ? SQLITE_OK : SQLITE_IOERR_DIR_FSYNC;
}

static int sim_close(sqlite3_file *f)
{
	int rc = sim_of(f)->real->pMethods->xClose(sim_of(f)->real);
	if (sim_of(f)->fd >= 0)
		(void)sim_of(f)->io->close(sim_of(f)->io->ctx, sim_of(f)->fd);
	return rc;
}

static int sim_read(sqlite3_file *f, void *buf, int n, sqlite3_int64 off)
{
	return sim_of(f)->real->pMethods->xRead(sim_of(f)->real, buf, n, off);
}

static int sim_write(sqlite3_file *f, const void *buf, int n, sqlite3_int64 off)
{
	struct sim_file *s = sim_of(f);
	if (s->fd < 0)
		return s->real->pMethods->xWrite(s->real, buf, n, off);
	int r = io_write_full(s->io, s->fd, buf, (size_t)n, (uint64_t)off);
	return r == 0 ? SQLITE_OK : r == -ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

static int sim_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	struct sim_file *s = sim_of(f);
	if (s->fd < 0)
		return s->real->pMethods->xTruncate(s->real, size);
	return s->io->ftruncate(s->io->ctx, s->fd, (uint64_t)size) == 0 ? SQLITE_OK
									 : SQLITE_IOERR_TRUNCATE;
}

/* As SQLite's own: the first sync of a journal also makes its name durable. */
static int sim_sync(sqlite3_file *f, int flags)
{
	struct sim_file *s = sim_of(f);
	if (s->fd < 0)
		return SQLITE_OK;
	if (s->io->fdatasync(s->io->ctx, s->fd) < 0)
		return SQLITE_IOERR_FSYNC;
	if (!s->new_name)
		return SQLITE_OK;
	s->new_name = false;
	return sim_sync_dir(s->io, s->dir);
}

static int sim_size(sqlite3_file *f, sqlite3_int64 *size)
{
	return sim_of(f)->real->pMethods->xFileSize(sim_of(f)->real, size);
}

static int sim_lock(sqlite3_file *f, int level)
{
	return sim_of(f)->real->pMethods->xLock(sim_of(f)->real, level);
}

static int sim_unlock(sqlite3_file *f, int level)
{
	return sim_of(f)->real->pMethods->xUnlock(sim_of(f)->real, level);
}

static int sim_reserved(sqlite3_file *f, int *out)
{
	return sim_of(f)->real->pMethods->xCheckReservedLock(sim_of(f)->real, out);
}

static int sim_control(sqlite3_file *f, int op, void *arg)
{
	return sim_of(f)->real->pMethods->xFileControl(sim_of(f)->real, op, arg);
}

static int sim_sector(sqlite3_file *f)
{
	return SECTOR;
}

static int sim_traits(sqlite3_file *f)
{
	return sim_of(f)->real->pMethods->xDeviceCharacteristics(sim_of(f)->real);
}

static int sim_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
	return sim_of(f)->real->pMethods->xShmMap(sim_of(f)->real, page, size, extend, out);
}

static int sim_shm_lock(sqlite3_file *f, int off, int n, int flags)
{
	return sim_of(f)->real->pMethods->xShmLock(sim_of(f)->real, off, n, flags);
}

static void sim_shm_barrier(sqlite3_file *f)
{
	sim_of(f)->real->pMethods->xShmBarrier(sim_of(f)->real);
}

static int sim_shm_unmap(sqlite3_file *f, int remove)
{
	return sim_of(f)->real->pMethods->xShmUnmap(sim_of(f)->real, remove);
}

static const sqlite3_io_methods sim_methods = {
	2, /* no mapped files */
	sim_close,   sim_read,	   sim_write,	sim_truncate, sim_sync,	    sim_size,
	sim_lock,    sim_unlock,   sim_reserved, sim_control,  sim_sector,   sim_traits,
	sim_shm_map, sim_shm_lock, sim_shm_barrier, sim_shm_unmap, NULL,	    NULL,
};

static void folder_of(char out[200], const char *path)
{
	(void)snprintf(out, 200, "%.*s", (int)(strrchr(path, '/') - path), path);
}

static int sim_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out_flags)
{
	struct sim_file *s = sim_of(f);
	*s = (struct sim_file){ .fd = -1, .io = sim.io, .real = (sqlite3_file *)(void *)(s + 1) };
	int kept = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;
	if (name && (flags & kept)) {
		int how = O_RDWR | (flags & SQLITE_OPEN_CREATE ? O_CREAT : 0);
		s->fd = s->io->open(s->io->ctx, AT_FDCWD, name, how, 0600);
		if (s->fd < 0)
			return SQLITE_CANTOPEN;
		folder_of(s->dir, name);
		s->new_name = (flags & SQLITE_OPEN_CREATE) && !(flags & SQLITE_OPEN_MAIN_DB);
	}
	int rc = sim.real->xOpen(sim.real, name, s->real, flags, out_flags);
	if (rc == SQLITE_OK)
		s->base.pMethods = &sim_methods;
	else if (s->fd >= 0)
		(void)s->io->close(s->io->ctx, s->fd);
	return rc;
}

static int sim_delete(sqlite3_vfs *v, const char *name, int sync_dir)
{
	char dir[200];
	int r = sim.io->unlink(sim.io->ctx, AT_FDCWD, name, 0);
	if (r < 0)
		return r == -ENOENT ? SQLITE_IOERR_DELETE_NOENT : SQLITE_IOERR_DELETE;
	folder_of(dir, name);
	return sync_dir ? sim_sync_dir(sim.io, dir) : SQLITE_OK;
}

static int sim_access(sqlite3_vfs *v, const char *name, int flags, int *out)
{
	return sim.real->xAccess(sim.real, name, flags, out);
}

static int sim_path(sqlite3_vfs *v, const char *name, int n, char *out)
{
	return sim.real->xFullPathname(sim.real, name, n, out);
}

static int sim_random(sqlite3_vfs *v, int n, char *out)
{
	return sim.real->xRandomness(sim.real, n, out);
}

static int sim_sleep(sqlite3_vfs *v, int us)
{
	return sim.real->xSleep(sim.real, us);
}

static int sim_time(sqlite3_vfs *v, sqlite3_int64 *out)
{
	return sim.real->xCurrentTimeInt64(sim.real, out);
}

static void sim_install(void)
{
	sim.real = sqlite3_vfs_find(NULL);
	sim.vfs = (sqlite3_vfs){ .iVersion = 2,
				 .szOsFile = (int)sizeof(struct sim_file) + sim.real->szOsFile,
				 .mxPathname = sim.real->mxPathname,
				 .zName = "sim",
				 .xOpen = sim_open,
				 .xDelete = sim_delete,
				 .xAccess = sim_access,
				 .xFullPathname = sim_path,
				 .xRandomness = sim_random,
				 .xSleep = sim_sleep,
				 .xCurrentTimeInt64 = sim_time };
	if (sqlite3_vfs_register(&sim.vfs, true) != SQLITE_OK)
		fail("SQLite takes no VFS");
}

/* ---- what boughd does ---- */

static struct snapd running, after;

static void daemon_open(struct snapd *sd, const char *root, const struct io *io)
{
	struct err err;
	*sd = (struct snapd){ .root = root };
	for (size_t i = 0; i < ROW_LOCKS; i++)
		(void)pthread_mutex_init(&sd->rows[i], NULL); /* no memory is taken */
	sim.io = io;
	if (records_open(&sd->records, root, io, &err) < 0 ||
	    catalog_open(&sd->catalog, root, io, &err) < 0)
		refused(err.text);
}

static void daemon_close(struct snapd *sd)
{
	catalog_close(sd->catalog);
	records_close(sd->records);
	*sd = (struct snapd){ 0 };
}

static void must(int r, const struct err *err)
{
	if (r < 0)
		refused(err->text);
}

static void row_of(struct ws_row *row, const struct space *sp)
{
	*row = (struct ws_row){ .created_ns = 1, .mount = true };
	memcpy(row->id, sp->id, ID_SIZE);
	(void)snprintf(row->name, sizeof(row->name), "name-%s", sp->id + 11);
}

/* making_commit */
static void made(struct space *sp)
{
	struct err err;
	struct ws_row row;
	row_of(&row, sp);
	must(catalog_ws_insert(running.catalog, &row, 1, &err), &err);
	must(records_ws_write(running.records, &row, &err), &err);
}

/* purge */
static void deleted(struct space *sp)
{
	struct err err;
	must(records_ws_remove(running.records, sp->id, &err), &err);
	must(catalog_ws_delete(running.catalog, sp->id, &err), &err);
	must(catalog_sync(running.catalog, &err), &err);
}

static void snap_id(char id[ID_SIZE], const struct snap *sn)
{
	(void)snprintf(id, ID_SIZE, "sn_aaaaaaaaa%c", 'a' + (int)(sn - t.snaps));
}

/* maker_commit, and what save_run does behind it. */
static void saved(struct space *sp, struct snap *sn)
{
	struct err err;
	struct snap_row row = { .manifest = sn->manifest, .created_ns = 1 };
	char names[32];
	snap_id(row.id, sn);
	(void)snprintf(names, sizeof(names), "[\"snap-%c\"]", row.id[12]);
	row.names = names;
	memcpy(row.workspace, sp->id, ID_SIZE);
	must(catalog_intend(running.catalog, row.id, &err), &err);
	must(records_snap_write(running.records, &row, false, &err), &err);
	must(catalog_snap_insert(running.catalog, &row, sp->id, "stack", 5, &err), &err);
	must(catalog_sync(running.catalog, &err), &err);
	must(snapd_record_ws(&running, sp->id, &err), &err);
}

static void patch(const struct space *sp)
{
	struct err err;
	const struct ws_patch p = { .description = "something else" };
	if (!sp->ws)
		return;
	must(catalog_ws_patch(running.catalog, sp->id, &p, &err), &err);
	must(snapd_record_ws(&running, sp->id, &err), &err);
}

/* Housekeeping, the flattener's records, a restart. */
static void tend(void)
{
	struct err err;
	switch (below(4)) {
	case 3:
		patch(&t.spaces[below((unsigned)t.nspaces)]);
		break;
	case 0:
		must(catalog_flush(running.catalog, &err), &err);
		break;
	case 1:
		must(records_sync(running.records, &err), &err);
		break;
	default:
		daemon_close(&running);
		daemon_open(&running, t.root, io_power_io(t.power));
	}
}

/* ---- what a root after a loss shows ---- */

static struct io quick; /* the host's, without waiting for the disk */

static void opened(void)
{
	struct err err;
	daemon_open(&after, t.after, &quick);
	if (catalog_damage(after.catalog))
		fail("the catalog is damaged: %s", catalog_damage(after.catalog));
	if (reconcile_rows(&after, &err) < 0)
		fail("reconcile: %s", err.text);
}

/* As reconcile.c has it. */
static bool is_there(void *ctx, const char *id)
{
	auto_ws_row row = { 0 };
	return catalog_ws_get_any(after.catalog, id, &row, NULL) != -ENOENT ||
	       records_ws_read(after.records, id, &row, NULL) != -ENOENT;
}

static void report_sql(void *ctx, const char *what)
{
	fprintf(stderr, "# %s\n", what);
}

static void look_at_snapshots(uint64_t cut)
{
	struct err err;
	struct snap_row *rows;
	size_t n;
	if (catalog_snap_list(after.catalog, &rows, &n, &err) < 0)
		fail("%s", err.text);
	for (size_t i = 0; i < t.nsnaps; i++) {
		const struct snap *sn = &t.snaps[i];
		char id[ID_SIZE], name[16];
		bool listed = false;
		snap_id(id, sn);
		for (size_t k = 0; k < n; k++)
			listed |= strcmp(rows[k].id, id) == 0;
		if (sn->end <= cut && !listed)
			fail("snapshot %s isn't listed", id);
		if (!listed)
			continue;
		auto_snap_row row = { 0 }, beside = { 0 };
		(void)snprintf(name, sizeof(name), "snap-%c", id[12]);
		if (catalog_snap_get(after.catalog, name, &row, &err) < 0 ||
		    records_snap_read(after.records, id, &beside, &err) < 0)
			fail("snapshot %s: %s", id, err.text);
		if (!digest_equal(&row.manifest, &sn->manifest) ||
		    !digest_equal(&beside.manifest, &sn->manifest))
			fail("snapshot %s has another manifest", id);
		check_snapshot(i);
	}
	snap_rows_free(rows, n);
}

static void look(uint64_t cut)
{
	struct err err;
	if (catalog_check(after.catalog, report_sql, NULL, &err) != 0)
		fail("SQLite's check");
	look_at_snapshots(cut);
	for (size_t i = 0; i < t.nspaces; i++) {
		const struct space *sp = &t.spaces[i];
		auto_ws_row row = { 0 };
		int r = catalog_ws_get_any(after.catalog, sp->id, &row, &err);
		if (is_known(sp) && was_synced(sp, cut) && (r < 0 || row.broken[0]))
			fail("workspace %s: %s", sp->id, r < 0 ? err.text : row.broken);
		if (sp->gone_end && sp->gone_end <= cut && r != -ENOENT)
			fail("workspace %s is there again", sp->id);
	}
	daemon_close(&after);
}

static uint64_t run(void)
{
	char path[160];
	run_begin();
	const struct io *io = io_power_io(t.power);
	static const char *const folders[] = { "ws", "snapshots", "repos" };
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", t.root, folders[i]);
		if (io->mkdir(io->ctx, AT_FDCWD, path, 0700) < 0)
			fail("mkdir %s", path);
	}
	daemon_open(&running, t.root, io);
	uint64_t from = io_power_now(t.power);
	run_ops(io);
	daemon_close(&running);
	return from;
}

int main(int argc, char **argv)
{
	uint64_t at_cut = 0, at_try = 0;
	t.ops = 30, t.seed = 12, t.runs = 3, t.tries = 1, t.cuts = 60;
	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";
		int took = common_option(argv[i], v);
		if (took)
			i += took - 1;
		else if (!strcmp(argv[i], "--at") &&
			 sscanf(v, "%" SCNu64 ".%" SCNu64, &at_cut, &at_try) == 2)
			i++;
		else
			return fprintf(stderr, "catalog: what is %s?\n", argv[i]), 2;
	}
	make_dir("catalog");
	/* What boughd would log of what was lost is no news here. */
	FILE *said = fdopen(dup(STDERR_FILENO), "w");
	auto_fd null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (!said || null < 0 || dup2(null, STDERR_FILENO) < 0)
		return perror("catalog: /dev/null"), 1;
	(void)setvbuf(said, NULL, _IONBF, 0);
	stderr = said;
	log_init("catalog");
	sim_install();
	quick = io_host;
	quick.fsync = quick.fdatasync = no_sync;
	hooks.made = made;
	hooks.deleted = deleted;
	hooks.saved = saved;
	hooks.tend = tend;
	hooks.opened = opened;
	hooks.look = look;
	hooks.known = is_there;
	uint64_t changes = 0, first = t.seed;
	for (uint64_t i = 0; i < t.runs; i++, t.seed++) {
		uint64_t from = run();
		changes += io_power_now(t.power);
		if (at_cut)
			check(at_cut, at_try);
		else
			check_cuts(from);
		run_end();
	}
	printf("ok 1 - %" PRIu64 " runs of %" PRIu64 " operations from seed %" PRIu64 ": %" PRIu64
	       " changes of the disk, %" PRIu64 " roots after a power loss\n",
	       t.runs, t.ops, first, changes, t.checked);
	(void)rmdir(t.dir);
	return 0;
}
