/* Processes in sandboxes. */
#include "fs/base/json.h"
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "snapd/principal.h"

static int ended(struct err *err)
{
	return err_set(err, -ESTALE, "the process has ended");
}

/* -ESTALE: it doesn't run. */
static int get_live(struct snapd *sd, const char *id, struct live **out, struct err *err)
{
	int r = live_running(sd, id, out, NULL);
	return r < 0 ? err_set(err, r, "the sandbox doesn't run: start it first") : 0;
}

/* ---- making ---- */

static char *exec_spec(const struct exec_new *n)
{
	json_t *names = n->env ? spec_env_names(n->env) : json_array();
	json_t *j = json_pack("{s:O, s:o, s:s?, s:s?, s:b, s:b, s:I}", "command", n->command, "env",
			      names, "cwd", n->cwd, "user", n->user, "tty", n->tty, "stdin", n->in,
			      "timeout_ms", (json_int_t)n->timeout_ms);
	char *text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}

static int latest_first(const void *a, const void *b)
{
	const struct exec_row *x = a, *y = b;
	return (x->ended_ns < y->ended_ns) - (x->ended_ns > y->ended_ns);
}

/* Whether something that it has left running may write to it still: that would die of SIGPIPE, or
 * wait for ever. Nothing of an earlier start of the sandbox does. */
static bool is_held(const struct sandbox_box *b, const struct exec_row *row)
{
	struct output_status st;
	return row->created_ns > b->row.started_ns &&
	       output_status(b->io, row->id, &st, NULL) >= 0 &&
	       !(st.stream[0].closed && st.stream[1].closed);
}

/* Those that have ended long ago make room, with their output. Of more that end at once each is
 * kept for as long as who waits for it may need. */
static void forget_old(struct snapd *sd, const struct sandbox_box *b)
{
	struct exec_row *rows;
	size_t n, kept = 0;
	if (catalog_exec_list(sd->catalog, b->row.id, &rows, &n, NULL) < 0)
		return;
	const int64_t since_ns = snapd_now_ns() - SANDBOX_HEARD_S * (int64_t)1000000000;
	if (n)
		qsort(rows, n, sizeof(*rows), latest_first);
	for (size_t i = 0; i < n; i++) {
		if (rows[i].status != EXEC_EXITED || ++kept <= SANDBOX_EXECS_KEPT ||
		    (kept <= SANDBOX_EXECS_MAX && rows[i].ended_ns > since_ns) ||
		    is_held(b, &rows[i]))
			continue;
		if (output_drop(b->io, rows[i].id, NULL) >= 0)
			(void)catalog_exec_delete(sd->catalog, rows[i].id, NULL); /* or later */
	}
	exec_rows_free(rows, n);
}

static int process_spec(struct snapd *sd, const struct sandbox_box *b, const struct exec_new *n,
			struct buf *out, struct err *err)
{
	json_t *process = NULL, *keep = NULL,
	       *more = n->env ? json_deep_copy(n->env) : json_array();
	auto_free const char **argv = spec_words(n->command);
	auto_free const char **env = NULL;
	int r = argv && more ? sandbox_process_read(sd, b->row.id, &process, err)
			     : err_no_memory(err);
	if (r >= 0 && n->tty)
		(void)json_array_insert_new(more, 0, json_string("TERM=xterm"));
	if (r >= 0)
		r = sandbox_environment(sd, &b->spec, json_object_get(process, "env"), more, &keep,
					&env, err);
	const struct box_process bp = { .argv = argv,
					.env = env,
					.cwd = n->cwd ? n->cwd : b->spec.cwd,
					.user = n->user ? n->user : b->spec.user,
					.terminal = n->tty,
					.columns = n->columns,
					.rows = n->rows,
					.timeout_ms = n->timeout_ms };
	if (r >= 0)
		r = box_exec_spec(&b->config, &bp, out, err);
	json_decref(keep);
	json_decref(process);
	json_decref(more);
	return r;
}

/* What a runtime says where it can't go to the folder: the caller's mistake, by its last words. */
static int told(int r, const struct exec_new *n, struct err *err)
{
	if (r != -EIO || !err || !n->cwd ||
	    (!strstr(err->text, "chdir to ") && !strstr(err->text, "initial working directory")))
		return r;
	struct err own = *err;
	const char *why = strrchr(own.text, ':');
	return err_set(err, -EINVAL, "it can't begin in %s%s", n->cwd, why ? why : "");
}

/* ---- what became of one that was to be started ---- */

/* It never will be, and nobody has been told of it. */
static void forget(struct live *l, const char *id)
{
	char io[PATH_SIZE];
	sandbox_io_path(l->all->sd, l->id, io);
	live_unwatch(l, id);
	(void)output_drop(io, id, NULL);
	(void)catalog_exec_delete(l->all->sd->catalog, id, NULL); /* or at the next start */
}

void exec_note_begun(struct snapd *sd, const char *sandbox, const char *exec)
{
	char dir[PATH_SIZE], path[PATH_SIZE + ID_SIZE + 8];
	struct stat st;
	auto_exec_row row = { 0 };
	sandbox_box_path(sd, sandbox, dir);
	(void)snprintf(path, sizeof(path), "%s/%s.pid", dir, exec);
	if (stat(path, &st) < 0 || st.st_size == 0 ||
	    catalog_exec_get(sd->catalog, exec, &row, NULL) < 0 || row.status != EXEC_CREATED)
		return;
	const int64_t when_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	(void)catalog_exec_started(sd->catalog, exec, row.pid, when_ns, NULL); /* else not known */
}

static int lose(struct live *l, const char *id)
{
	struct process_end end;
	process_lost(&end);
	live_unwatch(l, id);
	sandbox_tell_end(l, id, &end);
	return EXEC_LOST;
}

int exec_settle(struct live *l, const char *id, struct err *err)
{
	struct snapd *sd = l->all->sd;
	char io[PATH_SIZE];
	uint32_t pid;
	sandbox_io_path(sd, l->id, io);
	/* Where bough-io has ended with boughd, so has the runtime, in the middle of the start.
	 * Asked before shim_begun removes the exec. */
	const bool held = output_held(io, id, NULL) > 0;
	if (!held)
		exec_note_begun(sd, l->id, id);
	int r = shim_begun(l->shim, id, &pid, err);
	if (r == 0 && !held)
		return lose(l, id);
	if (r == 0 || r == -ENOENT) {
		forget(l, id);
		return EXEC_NEVER;
	}
	if (r < 0)
		return r;
	(void)output_started(io, id, NULL); /* or at its end */
	(void)catalog_exec_started(sd->catalog, id, pid, snapd_now_ns(), NULL);
	return EXEC_BEGUN;
}

int sandbox_exec_settle(struct snapd *sd, const char *exec, struct err *err)
{
	auto_exec_row row = { 0 };
	int r = catalog_exec_get(sd->catalog, exec, &row, err);
	if (r < 0)
		return r == -ENOENT ? EXEC_NEVER : r;
	if (row.status != EXEC_CREATED)
		return EXEC_BEGUN;
	auto_live *l = live_get(sd, row.sandbox);
	return l ? exec_settle(l, exec, err)
		 : err_set(err, -EAGAIN, "its sandbox is just ending");
}

/* The start failed (r), or got no answer: 0 where it has begun all the same. */
static int unanswered(struct live *l, const struct exec_new *n, struct exec_row *row, int r,
		      struct err *err)
{
	struct err why = { 0 };
	char id[ID_SIZE];
	memcpy(id, row->id, sizeof(id));
	int s = exec_settle(l, id, &why);
	if (s == EXEC_NEVER)
		return told(r, n, err);
	if (s < 0)
		return err_set(err, -ETIMEDOUT,
			       "it isn't known yet whether the process %s has begun: %s", id,
			       why.text);
	if (err)
		*err = (struct err){ 0 };
	exec_row_done(row);
	return catalog_exec_get(l->all->sd->catalog, id, row, err);
}

/* Made, and about to be started over *over. */
static int prepare(struct snapd *sd, struct live *l, const struct sandbox_box *b,
		   const struct exec_new *n, const char *id, int *over, struct err *err)
{
	auto_buf spec = { 0 };
	struct sandbox_fifos fifos;
	struct shim_io io;
	sandbox_fifos(b, id, n->in, n->tty, &fifos, &io);
	int r = process_spec(sd, b, n, &spec, err);
	if (r >= 0)
		r = shim_exec(l->shim, id, &io, (const char *)spec.data, spec.len, err);
	if (r < 0)
		return r;
	r = live_watch(l, id, err);
	if (r >= 0)
		r = *over = live_connect(l, id, err);
	if (r < 0)
		(void)shim_delete(l->shim, id, NULL, NULL); /* goes with the container */
	return r;
}

/* From a row to a process that runs. Where it fails, nothing is left, or it can't be told yet. */
static int run(struct snapd *sd, struct live *l, const struct sandbox_box *b,
	       const struct exec_new *n, struct exec_row *row, struct err *err)
{
	auto_fd over = -1;
	int r = prepare(sd, l, b, n, row->id, &over, err);
	if (r < 0) {
		forget(l, row->id);
		return r;
	}
	r = shim_start_process(l->shim, row->id, over, &row->pid, err);
	if (r < 0)
		return unanswered(l, n, row, r, err);
	r = output_started(b->io, row->id, err);
	if (r < 0 && r != -ECONNREFUSED) /* that one, a new bough-io is told at the end */
		log_warn("output of %s: %s", row->id, err ? err->text : "");
	if (n->tty && n->columns && n->rows) /* where the runtime leaves it out */
		(void)shim_resize(l->shim, row->id, n->columns, n->rows, NULL);
	row->started_ns = snapd_now_ns();
	row->status = EXEC_RUNNING;
	if (catalog_exec_started(sd->catalog, row->id, row->pid, row->started_ns, err) < 0)
		log_warn("%s: %s", row->id, err ? err->text : ""); /* the next start finds it */
	return 0;
}

static int check_room(struct live *l, struct err *err)
{
	pthread_mutex_lock(&l->all->lock);
	unsigned n = l->nexecs;
	bool paused = l->paused;
	pthread_mutex_unlock(&l->all->lock);
	if (paused)
		return err_set(err, -ESTALE, "the sandbox is paused: resume it first");
	if (n >= SANDBOX_EXECS_MAX)
		return err_set(err, -EUSERS, "%d processes run in it already", SANDBOX_EXECS_MAX);
	return live_may_run(l, err);
}

int sandbox_exec(struct snapd *sd, const char *id, const struct exec_new *n, struct exec_row *out,
		 struct err *err)
{
	auto_box *b = NULL;
	auto_live *l = NULL;
	auto_exec_row row = { .exit_code = -1, .created_ns = snapd_now_ns() };
	int r = get_live(sd, id, &l, err);
	if (r >= 0)
		r = check_room(l, err);
	if (r >= 0)
		r = sandbox_box_get(&b, sd, id, err);
	if (r < 0)
		return r;
	id_make(row.id, "ex");
	memcpy(row.sandbox, b->row.id, ID_SIZE);
	doing_owner(row.by);
	row.spec = exec_spec(n);
	const struct output_config oc = { .key = row.id,
					  .in = n->in,
					  .terminal = n->tty,
					  .uid = b->row.id_base,
					  .gid = b->row.id_base };
	r = row.spec ? catalog_exec_insert(sd->catalog, &row, err) : err_no_memory(err);
	if (r < 0)
		return r;
	r = output_open(b->io, &oc, err);
	if (r == -ECONNREFUSED) { /* bough-io was killed */
		r = output_start(b->io, sd->sandboxes->io, err);
		r = r < 0 ? r : output_open(b->io, &oc, err);
	}
	if (r < 0)
		forget(l, row.id);
	else
		r = run(sd, l, b, n, &row, err);
	if (r < 0)
		return r == -ESRCH ? ended(err) : r;
	sandbox_touch(sd, &b->row);
	forget_old(sd, b);
	*out = row;
	row = (struct exec_row){ 0 };
	return 0;
}

/* ---- what is done to them ---- */

static const char *shim_name(const char *exec)
{
	return strcmp(exec, SANDBOX_MAIN) == 0 ? NULL : exec;
}

int sandbox_signal(struct snapd *sd, const char *id, const char *exec, int sig,
		   const struct signal_note *note, struct err *err)
{
	auto_live *l = NULL;
	int r = get_live(sd, id, &l, err);
	if (r < 0)
		return r;
	if (note->again && !shim_kind(l->shim)->numbers_signals)
		return err_set(err, -EALREADY,
			       "with this runtime nobody can tell whether the signal came");
	/* bough-init hands it to all that descends from it; KILL has a stand-in. */
	r = shim_signal(l->shim, shim_name(exec), sig == SIGKILL ? BOX_SIGNAL_KILL : sig,
			note->number, err);
	return r == -ESRCH || r == -ENOENT ? ended(err) : r;
}

int sandbox_resize(struct snapd *sd, const char *id, const char *exec, uint32_t columns,
		   uint32_t rows, struct err *err)
{
	auto_live *l = NULL;
	int r = get_live(sd, id, &l, err);
	if (r >= 0)
		r = shim_resize(l->shim, shim_name(exec), columns, rows, err);
	return r == -ESRCH || r == -ENOENT ? ended(err) : r;
}

int sandbox_input(struct snapd *sd, const char *id, const char *exec, uint64_t offset,
		  const void *data, size_t n, struct err *err)
{
	char io[PATH_SIZE];
	sandbox_io_path(sd, id, io);
	return output_write(io, exec, offset, data, n, err);
}

int sandbox_input_end(struct snapd *sd, const char *id, const char *exec, struct err *err)
{
	char io[PATH_SIZE];
	auto_live *l = NULL;
	sandbox_io_path(sd, id, io);
	int r = get_live(sd, id, &l, err);
	if (r >= 0)
		r = output_close_input(io, exec, err);
	if (r >= 0)
		r = shim_close_stdin(l->shim, shim_name(exec), err);
	return r == -ESRCH || r == -ENOENT || r == -EPIPE ? 0
							  : r; /* it has ended: it has no more */
}
