/* Starting, stopping, pausing and removing sandboxes. */
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "snapd/api.h"

enum {
	KILL_WAIT_MS = 10000, /* from KILL until its process is gone; then by force */
	TOUCH_MS = 5000,
	STARTS_WAIT_MS = 30000, /* for one that is being started to run; it takes a tenth of one */
};

int sandbox_set_failed(struct snapd *sd, const char *id, const char *why)
{
	const enum sandbox_status failed = SANDBOX_FAILED;
	const uint32_t none = 0;
	const int64_t now = snapd_now_ns();
	const bool starting = false;
	char text[BROKEN_SIZE];
	(void)snprintf(text, sizeof(text), "%s", why);
	const struct sandbox_patch p = { .status = &failed,
					 .problem = text,
					 .pid = &none,
					 .ended_ns = &now,
					 .starting = &starting };
	return catalog_sandbox_patch(sd->catalog, id, &p, NULL);
}

void sandbox_never_started(struct snapd *sd, const char *id)
{
	const int64_t never = 0;
	const struct sandbox_patch p = { .started_ns = &never };
	(void)catalog_sandbox_patch(sd->catalog, id, &p, NULL);
}

/* ---- what it leaves ---- */

int sandbox_clear(const struct sandbox_box *b, struct err *err)
{
	struct err other = { 0 };
	int r = shim_remove(&b->shim, err);
	int c = box_clear(b->dir, b->shim.ns, r < 0 ? &other : err);
	int o = output_stop(b->io, r < 0 || c < 0 ? &other : err);
	return r < 0 ? r : c < 0 ? c : o;
}

int sandbox_sweep(struct snapd *sd, const char *id, const char *runtime, struct err *err)
{
	char dir[PATH_SIZE], io[PATH_SIZE];
	const struct runtime_kind *kind = runtime_find(runtime ? runtime : "runc");
	sandbox_box_path(sd, id, dir);
	sandbox_io_path(sd, id, io);
	const struct shim_config shim = {
		.kind = kind, .ns = sd->sandboxes->ns, .id = id, .bundle = dir
	};
	sandbox_secrets_drop(sd, id);
	int r = access(dir, F_OK) == 0 && kind ? shim_remove(&shim, err) : 0;
	int c = box_clear(dir, sd->sandboxes->ns, r < 0 ? NULL : err);
	int o = output_stop(io, r < 0 || c < 0 ? NULL : err);
	return r < 0 ? r : c < 0 ? c : o;
}

/* ---- starting ---- */

static int take_secrets(struct sandbox_box *b, const struct secrets *given, struct err *err)
{
	size_t n = given->n;
	if (json_array_size(b->spec.secrets) + json_array_size(b->spec.secret_env) > 0 && n == 0)
		return err_set(err, -EINVAL,
			       "its secrets aren't kept: give them again to start it");
	for (size_t i = 0; i < n; i++)
		b->secrets[i] = (struct box_secret){ .name = given->list[i].name,
						     .fd = given->list[i].fd };
	b->config.secrets = b->secrets;
	b->config.n_secrets = n;
	return 0;
}

static int take_range(struct sandbox_box *b, struct snapd *sd, struct err *err)
{
	int r = 0;
	if (!b->row.id_base)
		r = catalog_range_take(sd->catalog, b->row.id, SANDBOX_IDS_FIRST, BOX_IDS,
				       SANDBOX_IDS_COUNT, &b->row.id_base, err);
	b->config.id_base = b->row.id_base;
	return r;
}

/* What was unmounted while it didn't run is mounted again. */
static int need_mount(struct snapd *sd, const char *ws, const char *path, const char *target,
		      struct err *err)
{
	auto_ws_row row = { 0 };
	int r = catalog_ws_get(sd->catalog, ws, &row, err);
	if (r >= 0 && row.broken[0])
		r = err_set(err, -EIO, "%s", row.broken);
	if (r >= 0 && !row.mount) {
		r = snapd_inner(fs_mount(sd->fs, ws, path, err));
		if (r >= 0)
			r = catalog_ws_set_mount(sd->catalog, ws, true, err);
		if (r >= 0)
			r = snapd_record_ws(sd, ws, err);
	}
	/* The kernel clones a mount only once its server has said what it can do: this asks. */
	struct stat st;
	if (r >= 0 && stat(path, &st) < 0)
		r = err_set(err, errno == ENOENT ? -ENOENT : -EIO, "it can't be looked at: %s",
			    strerrordesc_np(errno));
	return r < 0 ? err_prefix(err, r, "what is to be at %s", target) : 0;
}

static int need_mounts(struct sandbox_box *b, struct snapd *sd, struct err *err)
{
	/* After a start of boughd it answers before all that should be mounted is. */
	int r = snapd_inner(fs_ping(sd->fs, err));
	if (r >= 0)
		r = need_mount(sd, b->row.root, b->root, "/", err);
	for (size_t i = 0; i < b->n_attached && r >= 0; i++)
		r = need_mount(sd, b->attached[i].workspace, b->sources[i], b->attached[i].target,
			       err);
	return r;
}

static int open_output(struct sandbox_box *b, struct sandboxes *s, struct err *err)
{
	const struct output_config oc = { .key = SANDBOX_MAIN,
					  .in = b->spec.in,
					  .terminal = b->spec.tty,
					  .uid = b->row.id_base,
					  .gid = b->row.id_base };
	if (mkdir(b->io, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "create %s", b->io);
	int r = output_start(b->io, s->io, err);
	if (r < 0)
		return r;
	r = output_drop(b->io, SANDBOX_MAIN, NULL); /* of the run before */
	if (r < 0 && r != -ENOENT)
		return err_sys(err, r, "its last run's output");
	return output_open(b->io, &oc, err);
}

static int make_box(struct sandbox_box *b, struct snapd *sd, struct err *err)
{
	json_t *process = NULL, *keep = NULL;
	int r = sandbox_process_read(sd, b->row.id, &process, err);
	if (r < 0)
		return r;
	const json_t *words = json_object_get(process, "argv");
	auto_free const char **argv = json_array_size(words) ? spec_words(words) : NULL;
	auto_free const char **env = NULL;
	r = json_array_size(words) && !argv ? err_no_memory(err) : 0;
	json_t *term = json_pack("[s]", "TERM=xterm");
	if (r >= 0)
		r = sandbox_environment(sd, &b->spec, json_object_get(process, "env"),
					b->spec.tty ? term : NULL, &keep, &env, err);
	const struct box_process bp = { .argv = argv,
					.env = env,
					.cwd = b->spec.cwd,
					.user = b->spec.user,
					.terminal = b->spec.tty };
	if (r >= 0)
		r = box_make(&b->config, &bp, err);
	json_decref(term);
	json_decref(keep);
	json_decref(process);
	return r;
}

/* From a box that is made to a process that runs. */
static int run_box(struct sandbox_box *b, struct snapd *sd, uint32_t *pid, struct err *err)
{
	struct sandbox_fifos fifos;
	struct shim_io io;
	auto_shim *shim = NULL;
	sandbox_fifos(b, SANDBOX_MAIN, b->spec.in, b->spec.tty, &fifos, &io);
	int r = shim_start(&shim, &b->shim, err);
	if (r < 0)
		return r;
	auto_live *l = live_new(sd, b->row.id, shim);
	if (!l)
		return err_no_memory(err);
	struct shim *of = steal_ptr(&shim);
	r = shim_create(of, &io, pid, err);
	if (r >= 0)
		r = box_attach_first(&b->config, err);
	if (r >= 0)
		r = output_started(b->io, SANDBOX_MAIN, err);
	if (r >= 0)
		r = live_watch(l, NULL, err);
	if (r < 0)
		return r;
	/* The row first: the end of its process, which may come at once, finds it running. */
	const enum sandbox_status running = SANDBOX_RUNNING;
	const int64_t now = snapd_now_ns(), not_yet = 0;
	const int none = -1;
	const bool starting = false;
	struct owned own = b->row.own;
	const struct sandbox_patch p = { .status = &running,
					 .own = sandbox_stays(&b->row, &own) ? &own : NULL,
					 .starting = &starting,
					 .pid = pid,
					 .started_ns = &now,
					 .ended_ns = &not_yet,
					 .problem = "",
					 .reason = "",
					 .exit_code = &none };
	auto_fd over = live_connect(l, NULL, err);
	r = over < 0 ? over : catalog_sandbox_patch(sd->catalog, b->row.id, &p, err);
	live_list(l);
	if (r >= 0)
		r = shim_start_process(of, NULL, over, pid, err);
	if (r >= 0) {
		(void)output_started(b->io, SANDBOX_MAIN, NULL); /* else it holds that still */
		live_keep_io(l);
		return 0;
	}
	struct shim_state st;
	if (shim_get(of, NULL, &st, NULL) >= 0 && st.status == SHIM_CREATED)
		sandbox_never_started(sd, b->row.id);
	live_unwatch(l, NULL);
	live_unlist(l);
	return r;
}

static int start(struct sandbox_box *b, struct snapd *sd, uint32_t *pid, struct err *err)
{
	struct sandboxes *s = sd->sandboxes;
	int r = take_range(b, sd, err);
	if (r >= 0)
		r = need_mounts(b, sd, err);
	if (r >= 0)
		r = open_output(b, s, err);
	if (r >= 0)
		r = make_box(b, sd, err);
	return r < 0 ? r : run_box(b, sd, pid, err);
}

/* What is root in a sandbox is nobody here, and has to reach its root. */
static int check_way(const struct snapd *sd, struct err *err)
{
	char path[PATH_SIZE];
	struct stat st;
	(void)snprintf(path, sizeof(path), "%s", sd->root);
	for (char *slash = path + strlen(path); slash; slash = strrchr(path, '/')) {
		*slash = '\0';
		if (*path && stat(path, &st) == 0 && !(st.st_mode & S_IXOTH))
			return err_set(err, -EACCES,
				       "sandboxes can't reach their files below %s: `chmod o+x` it",
				       path);
	}
	return 0;
}

static int check_programs(const struct sandbox_box *b, const struct sandboxes *s, struct err *err)
{
	if (geteuid() != 0)
		return err_set(err, -EPERM, "sandboxes need a boughd that runs as root");
	if (!s->init[0] || !s->io[0])
		return err_set(err, -ECONNREFUSED, "%s isn't installed",
			       s->init[0] ? "bough-io" : "bough-init");
	struct runtime_probe p;
	char path[PATH_SIZE];
	if (runtime_program(path, sizeof(path), b->config.kind->shim) >= 0)
		return 0; /* what is missing beside it, the shim says */
	runtime_probe(b->config.kind, &p);
	return p.works ? 0
		       : err_set(err, -ECONNREFUSED, "the runtime %s doesn't work here: %s",
				 b->config.kind->name, p.why);
}

/* One that has ended, and whose end somebody deals with just now, is waited for. */
static int not_running(struct snapd *sd, const char *id, struct err *err)
{
	auto_live *l = live_get(sd, id);
	if (!l)
		return 0;
	return live_ended(l) ? live_finish(l, err)
			     : err_set(err, -ESTALE, "the sandbox runs already");
}

/* From here to end_start sandbox_stop_all waits for it. */
static int begin_start(struct sandboxes *s, struct err *err)
{
	pthread_mutex_lock(&s->lock);
	const bool closed = s->closed;
	s->starting += !closed;
	pthread_mutex_unlock(&s->lock);
	return closed ? err_set(err, -ESHUTDOWN, "boughd ends: no sandbox is started any more") : 0;
}

static void end_start(struct sandboxes *s)
{
	pthread_mutex_lock(&s->lock);
	s->starting--;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static int start_it(struct snapd *sd, const char *id, const struct secrets *secrets,
		    struct err *err)
{
	auto_secrets kept = { 0 };
	auto_box *b = NULL;
	uint32_t pid = 0;
	int r = not_running(sd, id, err);
	if (r >= 0)
		r = sandbox_box_get(&b, sd, id, err);
	if (r >= 0)
		r = check_programs(b, sd->sandboxes, err);
	if (r >= 0)
		r = check_way(sd, err);
	if (r >= 0 && (!secrets || secrets->n == 0)) {
		r = sandbox_secrets_kept(sd, id, &kept, err);
		secrets = &kept;
	}
	if (r >= 0)
		r = take_secrets(b, secrets, err);
	if (r >= 0)
		r = sandbox_judge(sd, id, NULL, err);
	if (r < 0)
		return r;
	r = start(b, sd, &pid, err);
	if (r < 0) {
		struct err why = { 0 };
		if (sandbox_clear(b, &why) < 0)
			log_error("sandbox %s: %s", id, why.text);
		else
			(void)catalog_range_give(sd->catalog, id, NULL); /* it stays this one's */
		(void)sandbox_set_failed(sd, id, err ? err->text : "it couldn't be started");
		return r; /* without its name, which may be one that we gave it */
	}
	/* Who took a right away meanwhile found nothing that runs. */
	r = sandbox_judge(sd, id, NULL, err);
	if (r < 0) {
		(void)sandbox_stop(sd, id, 0, 0, NULL);
		(void)sandbox_set_failed(sd, id, err ? err->text : "it may not be started");
	}
	if (r >= 0)
		sandbox_secrets_drop(sd, id);
	return r;
}

int sandbox_start(struct snapd *sd, const char *id, const struct secrets *secrets, struct err *err)
{
	int r = begin_start(sd->sandboxes, err);
	if (r < 0)
		return r;
	r = start_it(sd, id, secrets, err);
	end_start(sd->sandboxes);
	return r;
}

/* ---- ending ---- */

static int resume(struct live *l, struct err *err)
{
	int r = shim_resume(l->shim, err);
	pthread_mutex_lock(&l->all->lock);
	l->paused &= r < 0;
	pthread_mutex_unlock(&l->all->lock);
	return r;
}

static void let_run(struct live *l)
{
	if (live_paused(l))
		(void)resume(l, NULL);
	if (live_frozen(l))
		live_thaw(l, live_frozen(l));
}

static int end_by_force(struct live *l, struct err *err)
{
	let_run(l); /* a frozen one can't die */
	int r = shim_kill_all(l->shim, SIGKILL, err);
	if (live_await_end(l, r >= 0 || r == -ESRCH ? KILL_WAIT_MS : 0))
		return 0;
	live_lose(l, "it doesn't end by KILL: its shim is ended by force");
	return 0;
}

int sandbox_stop(struct snapd *sd, const char *id, int grace_ms, uint64_t number, struct err *err)
{
	auto_live *l = NULL;
	int r = live_running(sd, id, &l, err);
	if (r < 0)
		return r;
	if (grace_ms > 0) {
		let_run(l); /* it is to hear the signal */
		r = shim_signal(l->shim, NULL, SIGTERM, number, err);
		if (r >= 0 && live_await_end(l, grace_ms))
			return live_finish(l, err);
	}
	r = end_by_force(l, err);
	return r < 0 ? r : live_finish(l, err);
}

/* What all boxes share goes, too. */
static void end_boxes(struct snapd *sd)
{
	char parent[PATH_SIZE];
	struct err err = { 0 };
	(void)snprintf(parent, sizeof(parent), "%s/box", sd->root);
	sandbox_secrets_drop_all(sd);
	if (geteuid() == 0 && box_end(parent, &err) < 0)
		log_warn("%s", err.text); /* the next one uses it */
}

/* One that runs (`untold`: and wasn't sent a TERM by this); the caller's reference. */
static struct live *any_live(struct sandboxes *s, bool untold)
{
	pthread_mutex_lock(&s->lock);
	struct live *l = s->live;
	while (l && untold && l->told)
		l = l->next;
	if (l) {
		l->refs++;
		l->told = true;
	}
	pthread_mutex_unlock(&s->lock);
	return l;
}

/* All at once, so that their time is the same. */
static void tell_all(struct sandboxes *s)
{
	struct live *l;
	while ((l = any_live(s, true))) {
		let_run(l); /* it is to hear the signal */
		(void)shim_signal(l->shim, NULL, SIGTERM, 0, NULL); /* else KILL ends it */
		live_put(l);
	}
}

/* Whoever is told to end is told behind it. */
static void close_starts(struct sandboxes *s)
{
	struct timespec until = clock_in_ms(STARTS_WAIT_MS);
	int r = 0;
	pthread_mutex_lock(&s->lock);
	s->closed = true;
	while (s->starting && r == 0)
		r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
	pthread_mutex_unlock(&s->lock);
}

void sandboxes_open(struct snapd *sd)
{
	pthread_mutex_lock(&sd->sandboxes->lock);
	sd->sandboxes->closed = false;
	pthread_mutex_unlock(&sd->sandboxes->lock);
}

void sandbox_stop_all(struct snapd *sd, int grace_ms)
{
	struct live *l;
	close_starts(sd->sandboxes);
	const uint64_t until = clock_ms() + (uint64_t)grace_ms;
	if (grace_ms > 0)
		tell_all(sd->sandboxes);
	while ((l = any_live(sd->sandboxes, false))) {
		struct err err = { 0 };
		uint64_t now = clock_ms();
		bool ended = live_await_end(l, now < until ? (int)(until - now) : 0);
		int r = ended ? 0 : end_by_force(l, &err);
		if (r >= 0)
			r = live_finish(l, &err);
		if (r < 0)
			log_error("end sandbox %s: %s", l->id, err.text);
		live_put(l);
	}
	end_boxes(sd);
}

/* ---- pausing ---- */

static int set_status(struct snapd *sd, const char *id, enum sandbox_status status, struct err *err)
{
	const struct sandbox_patch p = { .status = &status };
	return catalog_sandbox_patch(sd->catalog, id, &p, err);
}

int sandbox_pause(struct snapd *sd, const char *id, struct err *err)
{
	auto_live *l = NULL;
	int r = live_running(sd, id, &l, err);
	if (r >= 0 && live_paused(l))
		return err_set(err, -ESTALE, "the sandbox is paused already");
	if (r >= 0)
		r = live_may_run(l, err); /* its thaw would end the pause */
	if (r >= 0)
		r = shim_pause(l->shim, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&l->all->lock);
	l->paused = true;
	pthread_mutex_unlock(&l->all->lock);
	return set_status(sd, id, SANDBOX_PAUSED, err);
}

int sandbox_resume(struct snapd *sd, const char *id, struct err *err)
{
	auto_live *l = NULL;
	int r = live_running(sd, id, &l, err);
	if (r >= 0 && !live_paused(l))
		return err_set(err, -ESTALE, "the sandbox isn't paused");
	if (r >= 0)
		r = resume(l, err);
	return r < 0 ? r : set_status(sd, id, SANDBOX_RUNNING, err);
}

/* The row of one that runs says whether it is paused. */
static int settle_pause(struct snapd *sd, struct live *l, struct err *err)
{
	auto_sandbox_row row = { 0 };
	enum sandbox_status is = live_paused(l) ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	int r = catalog_sandbox_get(sd->catalog, l->id, &row, err);
	return r < 0 || row.status == is ? r : set_status(sd, l->id, is, err);
}

int sandbox_settle(struct snapd *sd, const char *id, struct err *err)
{
	struct shim_state st;
	auto_live *l = live_get(sd, id);
	if (!l)
		return 0;
	bool ended = live_ended(l);
	if (!ended && shim_get(l->shim, NULL, &st, NULL) >= 0 && st.status == SHIM_STOPPED)
		ended = live_await_end(l, KILL_WAIT_MS);
	return ended ? live_finish(l, err) : settle_pause(sd, l, err);
}

/* ---- removing ---- */

static int remove_root(struct snapd *sd, const char *ws, struct err *err)
{
	auto_source src = { 0 };
	int r = source_find_ws(&src, sd, ws, LEASE_EXCLUSIVE, "rm", err);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : api_ws_remove(sd, &src, 0, err);
}

static int end_processes(struct live *l, const char *name, bool force, struct err *err)
{
	bool ended = live_ended(l);
	int r = 0;
	if (!ended && !force)
		return err_set(err, -EBUSY,
			       "sandbox %s runs: `bough stop` it first, or use --force", name);
	if (!ended)
		r = end_by_force(l, err);
	return r < 0 ? r : live_finish(l, err);
}

int sandbox_remove(struct snapd *sd, const char *id, unsigned how, struct err *err)
{
	char io[PATH_SIZE];
	auto_sandbox_row row = { 0 };
	auto_spec spec = { 0 };
	auto_free struct attached_row *attached = NULL;
	size_t n = 0;
	auto_live *l = live_get(sd, id);
	int r = catalog_sandbox_get(sd->catalog, id, &row, err);
	if (r < 0)
		return r;
	(void)spec_read(&spec, row.spec, NULL); /* one that is damaged goes, too */
	if (l)
		r = end_processes(l, row.name, how & SANDBOX_FORCE, err);
	sandbox_secrets_drop(sd, id);
	/* It has left something, that couldn't be taken away then. */
	if (r >= 0 && row.id_base)
		r = sandbox_sweep(sd, id, spec.runtime, err);
	if (r >= 0 && row.root[0])
		r = remove_root(sd, row.root, err);
	sandbox_io_path(sd, id, io);
	if (r >= 0)
		r = io_remove_tree(AT_FDCWD, io, err);
	if (r >= 0)
		r = catalog_attached(sd->catalog, id, NULL, &attached, &n, err);
	if (r >= 0)
		r = catalog_sandbox_delete(sd->catalog, id, err);
	if (r >= 0 && how & SANDBOX_OWN)
		sandbox_take_own(sd, &row, attached, n, spec.auto_remove);
	return r;
}

/* ---- small things ---- */

void sandbox_touch(struct snapd *sd, const struct sandbox_row *row)
{
	int64_t now = snapd_now_ns();
	if (now - row->active_ns > (int64_t)TOUCH_MS * 1000000)
		(void)catalog_sandbox_active(sd->catalog, row->id, now, NULL); /* next time */
}

int sandbox_figures(struct snapd *sd, const char *id, struct sandbox_figures *out, struct err *err)
{
	auto_sandbox_row row = { 0 };
	struct fs_usage usage;
	auto_live *l = live_get(sd, id);
	int r = catalog_sandbox_get(sd->catalog, id, &row, err);
	if (r < 0)
		return r;
	*out = (struct sandbox_figures){ .running = l != NULL };
	if (l && shim_stats(l->shim, &out->shim, err) < 0)
		out->running = false; /* it has ended meanwhile */
	if (row.root[0] && fs_usage(sd->fs, row.root, &usage, NULL) >= 0) {
		out->disk_bytes = (uint64_t)usage.bytes;
		out->inodes = (uint64_t)usage.inodes;
	}
	return 0;
}
