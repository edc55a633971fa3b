#include "snapd/maker.h"

#include <stdlib.h>
#include <string.h>

#include "fs/base/json.h"
#include "fs/work/save.h"
#include "snapd/flattener.h"
#include "snapd/journal.h"

void maker_done(struct maker *m)
{
	store_session_end(m->ss);
	snap_row_done(&m->row);
}

int maker_init(struct maker *m, struct snapd *sd, const char *name, const char *message,
	       struct err *err)
{
	m->sd = sd;
	id_make(m->row.id, "sn");
	doing_owner(m->row.own.owner);
	if (message && *message && !(m->row.message = strdup(message)))
		return err_no_memory(err);
	if (name) {
		json_t *names = json_pack("[s]", name);
		m->row.names = names ? json_text(names, JSON_COMPACT) : NULL;
		json_decref(names);
		if (!m->row.names)
			return err_no_memory(err);
	}
	return 0;
}

int maker_store(struct maker *m, const struct stack *saved, struct err *err)
{
	int r = manifest_put(m->ss, saved, &m->row.manifest, err);
	if (r >= 0)
		r = store_sync(m->ss, err);
	m->row.created_ns = snapd_now_ns();
	return snapd_inner(r);
}

/* Objects, then the record, then the catalog (invariant 5). */
int maker_commit(struct maker *m, const struct stack *saved, const char *ws,
		 const struct buf *sealed, struct err *err)
{
	struct snapd *sd = m->sd;
	int r = maker_store(m, saved, err);
	if (r < 0)
		return r;
	r = catalog_intend(sd->catalog, m->row.id, err);
	if (r < 0)
		return r;
	r = records_snap_write(sd->records, &m->row, false, err);
	if (r >= 0)
		r = catalog_snap_insert(sd->catalog, &m->row, ws, sealed ? sealed->data : NULL,
					sealed ? sealed->len : 0, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r < 0) {
		(void)catalog_snap_delete(sd->catalog, m->row.id, true, NULL); /* told: the first */
		(void)records_snap_remove(sd->records, m->row.id, NULL);
	}
	flattener_sync_records(sd->flattener);
	return r;
}
