/* What the API's modules share: paths, times, and trees as what is done with them needs them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/work/save.h"
#include "snapd/flattener.h"
#include "snapd/snapd.h"

void snapd_mount_path(const struct snapd *sd, const char *id, char out[PATH_SIZE])
{
	(void)snprintf(out, PATH_SIZE, "%s/mnt/%s", sd->root, id); /* root's length: main.c */
}

int64_t snapd_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int snapd_inner(int r)
{
	return r == -ENOENT || r == -EEXIST || r == -EINVAL || r == -EBADMSG || r == -ENOTUNIQ
		       ? -EIO
		       : r;
}

/* ---- rows ---- */

static pthread_mutex_t *row_lock(struct snapd *sd, const char *id)
{
	unsigned hash = 5381;
	for (const char *p = id; *p; p++)
		hash = hash * 33 + (unsigned char)*p;
	return &sd->rows[hash % ROW_LOCKS];
}

void rows_lock(struct snapd *sd, const char *id)
{
	pthread_mutex_lock(row_lock(sd, id));
}

void rows_unlock(struct snapd *sd, const char *id)
{
	pthread_mutex_unlock(row_lock(sd, id));
}

void rows_lock_all(struct snapd *sd)
{
	for (size_t i = 0; i < ROW_LOCKS; i++)
		pthread_mutex_lock(&sd->rows[i]);
}

void rows_unlock_all(struct snapd *sd)
{
	for (size_t i = 0; i < ROW_LOCKS; i++)
		pthread_mutex_unlock(&sd->rows[i]);
}

int snapd_record_ws(struct snapd *sd, const char *id, struct err *err)
{
	auto_ws_row row = { 0 };
	rows_lock(sd, id);
	int r = catalog_ws_get_any(sd->catalog, id, &row, err);
	/* Power loss may tear the file that replaces a whole one: then the row must be there. */
	if (r >= 0)
		r = catalog_flush(sd->catalog, err);
	if (r >= 0)
		r = records_ws_write(sd->records, &row, err);
	rows_unlock(sd, id);
	return snapd_inner(r);
}

/* ---- sources ---- */

void source_done(struct source *s)
{
	lease_give(&s->lease);
	ws_row_done(&s->ws);
	snap_row_done(&s->snap);
}

/* What is leased may have changed or gone while the lease was waited for: it is read again. */
int source_find_ws(struct source *out, struct snapd *sd, const char *id, enum lease_kind kind,
		   const char *what, struct err *err)
{
	struct source s = { 0 };
	int r = catalog_ws_get(sd->catalog, id, &s.ws, err);
	if (r >= 0 && kind != LEASE_NONE) {
		r = lease_take(&s.lease, sd->leases, s.ws.id, kind, what, LEASE_WAIT_MS, err);
		if (r == -EBUSY)
			(void)err_prefix(err, r, "%s", s.ws.name);
		if (r >= 0) {
			ws_row_done(&s.ws);
			r = catalog_ws_get(sd->catalog, id, &s.ws, err);
		}
	}
	if (r < 0) {
		source_done(&s);
		return r;
	}
	*out = s;
	return 0;
}

int source_find_snap(struct source *out, struct snapd *sd, const char *id, enum lease_kind kind,
		     const char *what, struct err *err)
{
	struct source s = { .is_snap = true };
	int r = catalog_snap_get(sd->catalog, id, &s.snap, err);
	if (r >= 0 && kind != LEASE_NONE) {
		r = lease_take(&s.lease, sd->leases, s.snap.id, kind, what, LEASE_WAIT_MS, err);
		if (r >= 0) {
			snap_row_done(&s.snap);
			r = catalog_snap_get(sd->catalog, id, &s.snap, err);
		}
	}
	if (r < 0) {
		source_done(&s);
		return r;
	}
	*out = s;
	return 0;
}

int source_find(struct source *out, struct snapd *sd, const char *id, const char *what,
		struct err *err)
{
	return id_is(id, "ws") ? source_find_ws(out, sd, id, LEASE_SHARED, what, err)
			       : source_find_snap(out, sd, id, LEASE_SHARED, what, err);
}

/* Pages that were written through shared maps reach the workspace. bough-fs can't hold a
 * descriptor on its own mounts; boughd can. Writing back starts here and is not waited for by
 * FUSE's syncfs: what a program wants to be sure of, it msyncs. */
void snapd_flush_maps(struct snapd *sd, const char *id)
{
	char path[PATH_SIZE];
	snapd_mount_path(sd, id, path);
	auto_fd fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0)
		(void)syncfs(fd); /* best effort, as said */
}

/* The row may be another since the lease was given back and taken again. */
static int read_again(struct snapd *sd, struct source *src, struct err *err)
{
	auto_ws_row row = { 0 };
	int r = catalog_ws_get(sd->catalog, src->ws.id, &row, err);
	if (r < 0)
		return r;
	struct ws_row old = src->ws;
	src->ws = row;
	row = old; /* freed */
	return 0;
}

int source_stack(struct snapd *sd, struct source *src, struct stack *out, struct err *err)
{
	if (src->is_snap) {
		int r = manifest_get(sd->store, &src->snap.manifest, out, err);
		return r < 0 ? err_prefix(err, snapd_inner(r), "snapshot %s", src->snap.id) : 0;
	}
	if (src->ws.mount)
		snapd_flush_maps(sd, src->ws.id);
	bool again = false;
	const char *what = src->lease.kind == LEASE_SAVE ? "save" : "read";
	int r = flattener_seal(sd->flattener, &src->lease, what, out, &again, err);
	if (r >= 0 && again) {
		r = read_again(sd, src, err);
		if (r < 0)
			stack_done(out);
	}
	return r < 0 ? err_prefix(err, snapd_inner(r), "workspace %s", src->ws.name) : 0;
}
