/* The service itself: health, statistics, the end. */
#include <sys/eventfd.h>
#include <unistd.h>

#include "snapd/api_sandbox.h"
#include "snapd/inuse.h"

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *fs_status(struct snapd *sd)
{
	struct supervisor_status st;
	supervisor_get(sd->supervisor, &st);
	return json_pack("{s:b, s:i, s:o, s:o, s:s}", "up", st.up, "pid", st.pid, "starts",
			 number(st.starts), "deaths", number(st.deaths), "problem", st.problem);
}

int api_health(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct supervisor_status st;
	const char *damage = catalog_damage(sd->catalog);
	supervisor_get(sd->supervisor, &st);
	if (!st.up && !st.problem[0]) { /* it is being started: that is no illness */
		(void)fs_ping(sd->fs, NULL);
		supervisor_get(sd->supervisor, &st);
	}
	rp->json = json_pack("{s:b, s:s, s:i, s:s, s:o, s:o}", "ok", !damage && st.up, "version",
			     BOUGH_VERSION, "pid", (int)getpid(), "root", sd->root, "fs",
			     fs_status(sd), "catalog", damage ? json_string(damage) : json_null());
	return rp->json ? 0 : err_no_memory(err);
}

static json_t *store_json(struct snapd *sd)
{
	struct store_stats st;
	if (store_stats(sd->store, &st, NULL) < 0)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "objects",
			 number(st.objects), "packs", number(st.packs), "bytes_raw",
			 number(st.bytes_raw), "bytes_stored", number(st.bytes_stored),
			 "cache_bytes", number(st.cache_bytes), "cache_hits", number(st.cache_hits),
			 "cache_misses", number(st.cache_misses), "puts", number(st.puts),
			 "put_hits", number(st.put_hits), "bytes_put", number(st.bytes_put));
}

static json_t *catalog_json(struct snapd *sd)
{
	struct catalog_counts n;
	if (catalog_count(sd->catalog, &n, NULL) < 0)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "workspaces",
			 number(n.workspaces), "mounted", number(n.mounted), "broken",
			 number(n.broken), "read_only", number(problems_count(sd->faults)),
			 "deleted", number(n.removed), "snapshots", number(n.snapshots), "names",
			 number(n.names), "bytes", number(n.bytes));
}

int api_stats(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	json_t *fs = NULL;
	struct err why = { 0 };
	/* What can be told is told: bough-fs may be down. */
	if (fs_stats(sd->fs, &fs, &why) >= 0)
		(void)json_object_del(fs, "ok");
	else
		fs = json_pack("{s:s}", "error", why.text);
	rp->json = json_pack("{s:o, s:o, s:o, s:o, s:{s:o, s:i}}", "store", store_json(sd), "fs",
			     fs, "fs_process", fs_status(sd), "catalog", catalog_json(sd), "daemon",
			     "layers_memory_bytes", number(layercache_memory(sd->layers)), "pid",
			     (int)getpid());
	return rp->json ? 0 : err_no_memory(err);
}

/* Who loses something by the end. */
static json_t *in_use(struct snapd *sd)
{
	json_t *found = inuse_find(sd, NULL), *list = json_array(), *processes;
	const char *id;
	json_object_foreach(found, id, processes) {
		auto_ws_row row = { 0 };
		const char *name = catalog_ws_get(sd->catalog, id, &row, NULL) < 0 ? id : row.name;
		(void)json_array_append_new(list, json_pack("{s:s, s:s, s:O}", "workspace", id,
							    "name", name, "processes", processes));
	}
	json_decref(found);
	return list;
}

int api_shutdown(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	int grace = api_grace(rq, err);
	if (grace < 0)
		return grace;
	sandbox_stop_all(sd, grace); /* what runs on the mounts */
	json_t *used = in_use(sd);
	int r = supervisor_quit(sd->supervisor, err);
	if (r < 0) {
		sandboxes_open(sd);
		json_decref(used);
		return r;
	}
	rp->json = json_pack("{s:b, s:o*}", "ok", true, "in_use", used);
	(void)eventfd_write(sd->stop_fd, 1); /* the answer goes out before the end (web_quiesce) */
	return 0;
}
