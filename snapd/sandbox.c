/* Sandboxes that run: who they are, and the ends of their processes. */
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "snapd/outcome.h"

enum {
	STACK_BYTES = 1 << 20, /* address space; only what is touched costs memory */
	LAST_MS = 3000, /* for execs to be told of as ended, behind their sandbox's own process */
	/* How long output may take from the end of its process on: its shim copies it. */
	MAIN_OUTPUT_MS = 60000,
	EXEC_OUTPUT_MS = 5000,
	WORKER_MS = 100, /* so long of that a worker waits, */
	LOOK_MS = 100,   /* and then one looks so often; */
	HELD_MS = 60000, /* at what is held for longer, less and less, up to so seldom */
	MEND_MS = 500, /* between two tries */
	/* One that dies so often in so long isn't begun again. */
	IO_DEATHS = 8,
	IO_DEATHS_MS = 60000,
};

void sandbox_box_path(const struct snapd *sd, const char *id, char out[PATH_SIZE])
{
	(void)snprintf(out, PATH_SIZE, "%s/box/%s", sd->root, id);
}

void sandbox_io_path(const struct snapd *sd, const char *id, char out[PATH_SIZE])
{
	(void)snprintf(out, PATH_SIZE, "%s/io/%s", sd->root, id);
}

/* ---- the list ---- */

struct live *live_new(struct snapd *sd, const char *id, struct shim *shim)
{
	struct live *l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->all = sd->sandboxes;
	l->refs = 1;
	l->shim = shim;
	(void)snprintf(l->id, sizeof(l->id), "%s", id);
	pthread_mutex_init(&l->ending, NULL);
	return l;
}

void live_put(struct live *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->all->lock);
	unsigned left = --l->refs;
	pthread_mutex_unlock(&l->all->lock);
	if (left > 0)
		return;
	shim_free(l->shim);
	pthread_mutex_destroy(&l->ending);
	free(l);
}

void live_list(struct live *l)
{
	struct sandboxes *s = l->all;
	pthread_mutex_lock(&s->lock);
	l->refs++;
	l->next = s->live;
	s->live = l;
	pthread_mutex_unlock(&s->lock);
}

void live_unlist(struct live *l)
{
	struct sandboxes *s = l->all;
	struct live **at = &s->live;
	pthread_mutex_lock(&s->lock);
	while (*at && *at != l)
		at = &(*at)->next;
	bool listed = *at != NULL;
	if (listed)
		*at = l->next;
	l->gone = true;
	s->ends++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	if (listed)
		live_put(l);
}

struct live *live_get(struct snapd *sd, const char *id)
{
	struct sandboxes *s = sd->sandboxes;
	pthread_mutex_lock(&s->lock);
	struct live *l = s->live;
	while (l && strcmp(l->id, id) != 0)
		l = l->next;
	if (l)
		l->refs++;
	pthread_mutex_unlock(&s->lock);
	return l;
}

bool live_ended(struct live *l)
{
	pthread_mutex_lock(&l->all->lock);
	bool ended = l->ended;
	pthread_mutex_unlock(&l->all->lock);
	return ended;
}

bool live_paused(struct live *l)
{
	pthread_mutex_lock(&l->all->lock);
	bool paused = l->paused;
	pthread_mutex_unlock(&l->all->lock);
	return paused;
}

int live_running(struct snapd *sd, const char *id, struct live **out, struct err *err)
{
	struct live *l = live_get(sd, id);
	if (l && !live_ended(l)) {
		*out = l;
		return 0;
	}
	live_put(l);
	return err_set(err, -ESTALE, "the sandbox doesn't run");
}

/* ---- processes that are waited for ---- */

static void proc_free(struct proc *p)
{
	struct live *l = p->live;
	if (p->fd >= 0)
		close(p->fd);
	free(p);
	live_put(l);
}

/* An exec that runs, as far as anybody has been told. */
static bool is_exec(const struct proc *p)
{
	return p->id[0] && strcmp(p->id, PROC_IO) != 0 && !p->told;
}

/* `fd` is taken over. What is begun for one that has ended already would stay. */
static int watch(struct live *l, const char *id, int fd, struct err *err)
{
	struct sandboxes *s = l->all;
	struct proc *p = calloc(1, sizeof(*p));
	if (!p) {
		close(fd);
		return err_no_memory(err);
	}
	p->fd = fd;
	(void)snprintf(p->id, sizeof(p->id), "%s", id);
	p->live = l;
	pthread_mutex_lock(&s->lock);
	l->refs++;
	p->next = l->procs;
	l->procs = p;
	l->nexecs += is_exec(p);
	struct epoll_event ev = { .events = EPOLLIN | EPOLLONESHOT, .data.ptr = p };
	int r = strcmp(id, PROC_IO) == 0 && l->ended			      ? -ESTALE
		: epoll_ctl(s->epoll, EPOLL_CTL_ADD, p->fd, &ev) < 0 ? -errno
								     : 0;
	if (r < 0) {
		l->procs = p->next;
		l->nexecs -= is_exec(p);
	}
	pthread_mutex_unlock(&s->lock);
	if (r < 0) {
		proc_free(p);
		return err_sys(err, r, "watch a process");
	}
	return 0;
}

int live_watch(struct live *l, const char *exec, struct err *err)
{
	int fd = shim_wait_begin(l->shim, exec, err);
	return fd < 0 ? fd : watch(l, exec ? exec : "", fd, err);
}

int live_connect(struct live *l, const char *exec, struct err *err)
{
	char io[PATH_SIZE];
	sandbox_io_path(l->all->sd, l->id, io);
	auto_fd fd = shim_connection(l->shim, err);
	int r = fd < 0 ? fd : output_hold(io, exec ? exec : SANDBOX_MAIN, fd, err);
	return r < 0 ? r : steal_fd(&fd);
}

void live_keep_io(struct live *l)
{
	struct err err = { 0 };
	char io[PATH_SIZE];
	sandbox_io_path(l->all->sd, l->id, io);
	/* Who ends it would find none, and leave this one. */
	if (pthread_mutex_trylock(&l->ending) != 0)
		return;
	int r = l->gone || live_ended(l) ? -ESTALE : output_start(io, l->all->io, &err);
	int fd = r < 0 ? r : (int)syscall(SYS_pidfd_open, r, 0);
	if (r >= 0)
		r = fd < 0 ? err_sys(&err, -errno, "watch it") : watch(l, PROC_IO, fd, &err);
	pthread_mutex_unlock(&l->ending);
	if (r < 0 && r != -ESTALE)
		log_error("sandbox %s: bough-io: %s", l->id, err.text);
}

/* Takes it off the list, unless somebody has it. The lock is held. */
static struct proc *claim(struct live *l, const char *id)
{
	for (struct proc **at = &l->procs; *at; at = &(*at)->next) {
		struct proc *p = *at;
		if (p->claimed || (id && strcmp(p->id, id) != 0))
			continue;
		p->claimed = true;
		return p;
	}
	return NULL;
}

static void drop(struct proc *p)
{
	struct live *l = p->live;
	struct sandboxes *s = l->all;
	pthread_mutex_lock(&s->lock);
	struct proc **at = &l->procs;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	l->nexecs -= is_exec(p);
	s->ends++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	proc_free(p);
}

void live_unwatch(struct live *l, const char *exec)
{
	struct sandboxes *s = l->all;
	pthread_mutex_lock(&s->lock);
	struct proc *p = claim(l, exec ? exec : "");
	if (p)
		(void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, p->fd, NULL);
	pthread_mutex_unlock(&s->lock);
	if (p)
		drop(p);
}

/* ---- how they end ---- */

const char *process_reason(uint32_t exit_status, bool oom)
{
	if (oom)
		return "oom";
	switch (exit_status) {
	case BOX_EXIT_TIMEOUT:
		return "timeout";
	case INIT_EXIT_ABSENT:
		return "not_found";
	case INIT_EXIT_DENIED:
		return "denied";
	default:
		return exit_status > 128 && exit_status <= 128 + 64 ? "signal" : "exited";
	}
}

/* Of an exec that ended with its sandbox: as that did, which another worker is about to tell. */
static bool all_out_of_memory(struct live *l)
{
	struct timespec until = clock_in_ms(LAST_MS);
	int r = 0;
	pthread_mutex_lock(&l->all->lock);
	while (!l->ended && r == 0)
		r = pthread_cond_timedwait(&l->all->changed, &l->all->lock, &until);
	bool oom = l->ended && strcmp(l->end.reason, "oom") == 0;
	pthread_mutex_unlock(&l->all->lock);
	return oom;
}

/* Whether the kernel has killed for want of memory since the last look: a process that ended by
 * KILL was that, as far as anybody can tell. Before the runtime's state goes. */
static bool out_of_memory(struct live *l, const struct shim_state *end)
{
	struct shim_stats st;
	if (end->with_all)
		return all_out_of_memory(l);
	if (end->exit_status != 137 || shim_stats(l->shim, &st, NULL) < 0)
		return false;
	pthread_mutex_lock(&l->all->lock);
	bool more = st.oom_kills > l->oom_kills;
	l->oom_kills = st.oom_kills;
	pthread_mutex_unlock(&l->all->lock);
	return more;
}

static void fill_end(struct process_end *end, const struct shim_state *st, bool oom)
{
	*end = (struct process_end){ .code = (int)(st->exit_status & 0xff),
				     .when_ns = st->exited_ns ? st->exited_ns : snapd_now_ns() };
	(void)snprintf(end->reason, sizeof(end->reason), "%s",
		       process_reason(st->exit_status, oom));
}

void process_lost(struct process_end *end)
{
	*end = (struct process_end){ .code = 255, .reason = "lost", .when_ns = snapd_now_ns() };
}

/* Whether all its output is there; false: what it has left running may write more. */
static bool output_ended(struct live *l, const char *exec, int wait_ms)
{
	struct err err = { 0 };
	char io[PATH_SIZE];
	const char *key = exec ? exec : SANDBOX_MAIN;
	sandbox_io_path(l->all->sd, l->id, io);
	int r = output_finish(io, key, wait_ms, &err);
	if (r == -ECONNREFUSED && output_start(io, l->all->io, &err) >= 0)
		r = output_finish(io, key, wait_ms, &err);
	if (r < 0 && r != -ETIMEDOUT)
		log_warn("output of %s: %s", exec ? exec : l->id, err.text);
	return r != -ETIMEDOUT;
}

static void tell(struct live *l, const char *exec, const struct process_end *end)
{
	struct err err = { 0 };
	if (exec && catalog_exec_ended(l->all->sd->catalog, exec, end->code, end->reason,
				       end->when_ns, &err) < 0)
		log_error("%s: %s", exec, err.text);
	pthread_mutex_lock(&l->all->lock);
	if (!exec) {
		l->ended = true;
		l->end = *end;
	}
	l->all->ends++;
	pthread_cond_broadcast(&l->all->changed);
	pthread_mutex_unlock(&l->all->lock);
}

void sandbox_tell_end(struct live *l, const char *exec, const struct process_end *end)
{
	/* The bytes first: who hears that it has ended finds them all. Nothing of a sandbox lives
	 * then that could hold its output; something of an exec may, for good. */
	if (!output_ended(l, exec, exec ? EXEC_OUTPUT_MS : MAIN_OUTPUT_MS))
		log_warn("output of %s hasn't ended with it", exec ? exec : l->id);
	tell(l, exec, end);
}

static void tell_exec(struct proc *p)
{
	struct live *l = p->live;
	pthread_mutex_lock(&l->all->lock);
	l->nexecs -= is_exec(p);
	p->told = true;
	pthread_mutex_unlock(&l->all->lock);
	tell(l, p->id, &p->end);
}

static int set_timer(struct proc *p)
{
	const struct itimerspec in = { .it_value = { p->pause_ms / 1000,
						     p->pause_ms % 1000 * 1000000 } };
	if (p->fd < 0)
		p->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return p->fd < 0 || timerfd_settime(p->fd, 0, &in, NULL) < 0 ? -errno : 0;
}

/* How the process of a claimed one has ended; false: it hasn't. `by` (clock_ms; 0: never): then
 * nobody knows. */
static bool take_end(struct proc *p, uint64_t by)
{
	struct live *l = p->live;
	struct shim_state st = { 0 };
	struct pollfd pfd = { .fd = p->fd, .events = POLLIN };
	uint64_t now = clock_ms();
	bool late = by && poll(&pfd, 1, by > now ? (int)(by - now) : 0) == 0;
	int r = late ? -ETIMEDOUT : shim_wait_end(l->shim, p->fd, &st, NULL);
	if (r == -EAGAIN && !by)
		return false;
	if (late || r == -EAGAIN)
		close(p->fd);
	p->fd = -1;
	p->known = r >= 0;
	p->until_ms = clock_ms() + EXEC_OUTPUT_MS;
	if (r < 0)
		process_lost(&p->end);
	else
		fill_end(&p->end, &st, out_of_memory(l, &st));
	if (r < 0 && p->id[0])
		exec_note_begun(l->all->sd, l->id, p->id);
	return true;
}

/* Its process has ended: it is told once its output has, too, or has had its time. What it has left
 * running may hold that for good, and would die of SIGPIPE were the exec deleted: then it is looked
 * at now and then, and no worker waits. false: once more; never with `last`, when all has ended. */
static bool end_exec(struct proc *p, bool last)
{
	int wait_ms = last ? EXEC_OUTPUT_MS : p->fd < 0 ? WORKER_MS : 0;
	bool all = output_ended(p->live, p->id, wait_ms);
	if (!p->told && (all || last || clock_ms() >= p->until_ms))
		tell_exec(p);
	if (all && p->known)
		(void)shim_delete(p->live->shim, p->id, NULL, NULL); /* or with the container */
	if (all || last)
		return true;
	unsigned twice = p->pause_ms * 2;
	p->pause_ms = !p->told ? LOOK_MS : twice < HELD_MS ? twice : HELD_MS;
	if (set_timer(p) == 0)
		return false;
	if (!p->told)
		tell_exec(p);
	return true;
}

/* Deals with the end of a claimed one; false: more is to come. `by`: as take_end's, since all of
 * its sandbox ends. */
static bool end_proc(struct proc *p, uint64_t by)
{
	struct live *l = p->live;
	if (!p->until_ms && !take_end(p, by))
		return false;
	if (p->id[0])
		return end_exec(p, by != 0);
	pthread_mutex_lock(&l->all->lock);
	l->lost = !p->known;
	pthread_mutex_unlock(&l->all->lock);
	sandbox_tell_end(l, NULL, &p->end);
	return true;
}

/* Takes the event's process for the caller: nobody frees one that isn't taken from the epoll
 * first, under the lock. NULL: somebody else has it, or it is gone. */
static struct proc *claim_event(struct sandboxes *s, const void *ptr)
{
	struct proc *found = NULL;
	pthread_mutex_lock(&s->lock);
	for (struct live *l = s->live; l && !found; l = l->next)
		for (struct proc *p = l->procs; p && !found; p = p->next)
			found = p == ptr ? p : NULL;
	if (found && found->claimed)
		found = NULL;
	if (found) {
		found->claimed = true;
		found->live->refs++;
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* Programs go on meanwhile, until their pipes are full. */
static void io_again(struct live *l)
{
	uint64_t now = clock_ms();
	pthread_mutex_lock(&l->all->lock);
	if (now - l->io_ms > IO_DEATHS_MS) {
		l->io_ms = now;
		l->io_deaths = 0;
	}
	bool often = ++l->io_deaths > IO_DEATHS, over = l->ended || l->gone;
	pthread_mutex_unlock(&l->all->lock);
	if (over)
		return;
	log_warn("sandbox %s: its bough-io died%s", l->id,
		 often ? " again and again: the next exec begins one" : "");
	if (!often)
		live_keep_io(l);
}

/* It is nobody's any more, and waits; false: its sandbox has ended, or it can't be waited for. */
static bool watch_again(struct proc *p)
{
	struct sandboxes *s = p->live->all;
	struct epoll_event again = { .events = EPOLLIN | EPOLLONESHOT, .data.ptr = p };
	pthread_mutex_lock(&s->lock);
	bool waits = !p->live->ended && (epoll_ctl(s->epoll, EPOLL_CTL_MOD, p->fd, &again) == 0 ||
					 epoll_ctl(s->epoll, EPOLL_CTL_ADD, p->fd, &again) == 0);
	p->claimed = !waits;
	pthread_mutex_unlock(&s->lock);
	return waits;
}

static void take_event(struct sandboxes *s, const void *ptr)
{
	struct err err = { 0 };
	struct proc *p = claim_event(s, ptr);
	if (!p)
		return;
	struct live *l = p->live;
	if (strcmp(p->id, PROC_IO) == 0) {
		drop(p);
		io_again(l);
		live_put(l);
		return;
	}
	bool main = !p->id[0], done = end_proc(p, 0);
	if (!done && !watch_again(p))
		done = end_proc(p, clock_ms() + LAST_MS);
	if (done)
		drop(p);
	if (done && main && live_finish(l, &err) < 0)
		log_error("sandbox %s: %s", l->id, err.text);
	live_put(l);
}

static void *worker(void *arg)
{
	struct sandboxes *s = arg;
	for (;;) {
		struct epoll_event ev;
		int n = epoll_wait(s->epoll, &ev, 1, -1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || !ev.data.ptr)
			return NULL;
		take_event(s, ev.data.ptr);
	}
}

/* ---- the end of a sandbox ---- */

static void end_execs(struct live *l)
{
	struct sandboxes *s = l->all;
	const uint64_t by = clock_ms() + LAST_MS;
	for (;;) {
		pthread_mutex_lock(&s->lock);
		struct proc *p = claim(l, NULL);
		if (p)
			(void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, p->fd, NULL);
		pthread_mutex_unlock(&s->lock);
		if (!p)
			break;
		if (strcmp(p->id, PROC_IO) != 0)
			(void)end_proc(p, by);
		drop(p);
	}
	/* Those that others have claimed, who let go of none any more. */
	struct timespec until = clock_in_ms(LAST_MS + EXEC_OUTPUT_MS);
	pthread_mutex_lock(&s->lock);
	int r = 0;
	while (l->procs && r == 0)
		r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
	pthread_mutex_unlock(&s->lock);
}

static const int64_t goes_ns = 60 * (int64_t)1000000000;

static bool is_for_once(const struct sandbox_row *row)
{
	auto_spec spec = { 0 };
	return spec_read(&spec, row->spec, NULL) >= 0 && spec.auto_remove;
}

bool sandbox_goes(const struct sandbox_row *row, struct owned *own)
{
	if (row->own.expires_ns || !is_for_once(row))
		return false;
	own->expires_ns = snapd_now_ns() + goes_ns;
	own->on_expiry = EXPIRY_DELETE;
	return true;
}

bool sandbox_stays(const struct sandbox_row *row, struct owned *own)
{
	if (!row->own.expires_ns || !row->ended_ns || row->own.on_expiry != EXPIRY_DELETE ||
	    row->own.expires_ns > snapd_now_ns() + goes_ns || !is_for_once(row))
		return false;
	own->expires_ns = 0;
	return true;
}


static int record_end(struct live *l, struct err *err)
{
	struct snapd *sd = l->all->sd;
	static const uint32_t none = 0;
	pthread_mutex_lock(&l->all->lock);
	const bool lost = l->lost;
	const struct process_end end = l->end;
	pthread_mutex_unlock(&l->all->lock);
	const enum sandbox_status status = lost ? SANDBOX_FAILED : SANDBOX_STOPPED;
	const int unknown = -1;
	struct sandbox_patch patch = {
		.status = &status,
		.pid = &none,
		.exit_code = lost ? &unknown : &end.code,
		.reason = end.reason,
		.ended_ns = &end.when_ns,
		.problem = lost ? "its shim has died, and its processes were ended" : "",
	};
	auto_sandbox_row row = { 0 };
	int r = catalog_sandbox_get(sd->catalog, l->id, &row, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (sandbox_goes(&row, &row.own))
		patch.own = &row.own;
	r = catalog_sandbox_patch(sd->catalog, l->id, &patch, err);
	outcome_own(sd, lost ? "sandbox.failed" : "sandbox.exited", &row.own, l->id, "");
	return r;
}

int live_finish(struct live *l, struct err *err)
{
	struct snapd *sd = l->all->sd;
	auto_box *b = NULL;
	int r = 0;
	pthread_mutex_lock(&l->ending);
	if (l->gone) {
		pthread_mutex_unlock(&l->ending);
		return 0;
	}
	r = record_end(l, err);
	end_execs(l);
	int got = sandbox_box_get(&b, sd, l->id, r < 0 ? NULL : err);
	if (got >= 0) {
		pthread_mutex_lock(&l->all->lock);
		const bool lost = l->lost;
		pthread_mutex_unlock(&l->all->lock);
		if (!lost)
			(void)shim_delete(l->shim, NULL, NULL, NULL); /* else sandbox_clear's */
		got = sandbox_clear(b, r < 0 ? NULL : err);
		if (got >= 0) /* else nobody else may have these ids */
			got = catalog_range_give(sd->catalog, l->id, r < 0 ? NULL : err);
	}
	live_unlist(l);
	pthread_mutex_unlock(&l->ending);
	return r < 0 ? r : got;
}

void live_lose(struct live *l, const char *why)
{
	struct process_end end;
	process_lost(&end);
	pthread_mutex_lock(&l->all->lock);
	bool already = l->ended;
	l->lost = true;
	pthread_mutex_unlock(&l->all->lock);
	if (already)
		return;
	log_error("sandbox %s: %s", l->id, why);
	sandbox_tell_end(l, NULL, &end);
}

bool live_await_end(struct live *l, int wait_ms)
{
	struct sandboxes *s = l->all;
	struct timespec until = clock_in_ms(wait_ms);
	int r = 0;
	pthread_mutex_lock(&s->lock);
	while (!l->ended && r == 0)
		r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
	bool ended = l->ended;
	pthread_mutex_unlock(&s->lock);
	return ended;
}

void sandbox_wait_any(struct snapd *sd, uint64_t *seen, int wait_ms)
{
	struct sandboxes *s = sd->sandboxes;
	struct timespec until = clock_in_ms(wait_ms);
	int r = 0;
	pthread_mutex_lock(&s->lock);
	while (s->ends == *seen && r == 0)
		r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
	*seen = s->ends;
	pthread_mutex_unlock(&s->lock);
}

static void end_of_row(struct process_end *out, int code, const char *reason, int64_t when_ns)
{
	*out = (struct process_end){ .code = code < 0 ? 255 : code, .when_ns = when_ns };
	(void)snprintf(out->reason, sizeof(out->reason), "%s", reason);
}

/* Of one that has no row nothing will be known; what can't be read now is asked for again. */
static bool is_lost(int r, struct process_end *out)
{
	if (r == -ENOENT)
		process_lost(out);
	return r == -ENOENT;
}

bool sandbox_ended(struct snapd *sd, const char *id, const char *exec, struct process_end *out)
{
	if (strcmp(exec, SANDBOX_MAIN) != 0) {
		auto_exec_row row = { 0 };
		int r = catalog_exec_get(sd->catalog, exec, &row, NULL);
		if (r < 0)
			return is_lost(r, out);
		end_of_row(out, row.exit_code, row.reason, row.ended_ns);
		return row.status == EXEC_EXITED;
	}
	auto_live *l = live_get(sd, id);
	if (l) {
		pthread_mutex_lock(&l->all->lock);
		bool ended = l->ended;
		*out = l->end;
		pthread_mutex_unlock(&l->all->lock);
		return ended;
	}
	auto_sandbox_row row = { 0 };
	int r = catalog_sandbox_get(sd->catalog, id, &row, NULL);
	if (r < 0)
		return is_lost(r, out);
	end_of_row(out, row.exit_code, row.reason, row.ended_ns);
	return row.status != SANDBOX_RUNNING && row.status != SANDBOX_PAUSED;
}

/* ---- beginning and end ---- */

static void find_programs(struct sandboxes *s)
{
	if (runtime_program(s->init, sizeof(s->init), "bough-init") < 0)
		s->init[0] = '\0';
	if (runtime_program(s->io, sizeof(s->io), "bough-io") < 0)
		s->io[0] = '\0';
}

static int start_workers(struct sandboxes *s)
{
	pthread_attr_t attr;
	int r = 0;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	for (; s->nworkers < SANDBOX_WORKERS && r == 0; s->nworkers += r == 0)
		r = -pthread_create(&s->workers[s->nworkers], &attr, worker, s);
	pthread_attr_destroy(&attr);
	return r;
}

int sandboxes_new(struct sandboxes **out, struct snapd *sd, struct err *err)
{
	struct sandboxes *s = calloc(1, sizeof(*s));
	if (!s)
		return err_no_memory(err);
	s->sd = sd;
	s->quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	clock_cond_init(&s->changed);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->images, NULL);
	(void)snprintf(s->ns, sizeof(s->ns), "bough-%012llx",
		       (unsigned long long)hash_xxh3(sd->root, strlen(sd->root), 0) >> 16);
	find_programs(s);
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };
	int r = s->quit_fd < 0 || s->epoll < 0 ||
				epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->quit_fd, &ev) < 0
			? -errno
			: start_workers(s);
	if (r < 0)
		r = err_sys(err, r, "begin with sandboxes");
	const struct worker_options mend = { .what = "the mending of sandboxes",
					     .settle_ms = MEND_MS,
					     .run = sandboxes_mend,
					     .ctx = s };
	if (r >= 0)
		r = worker_start(&s->mender, &mend, err);
	if (r < 0) {
		sandboxes_quit(s);
		sandboxes_free(s);
		return r;
	}
	*out = s;
	return 0;
}

int sandboxes_quit_fd(const struct sandboxes *s)
{
	return s->quit_fd;
}

void sandboxes_quit(struct sandboxes *s)
{
	if (s->quit_fd >= 0)
		(void)eventfd_write(s->quit_fd, 1);
	pthread_mutex_lock(&s->lock);
	s->ends++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

void sandboxes_free(struct sandboxes *s)
{
	if (!s)
		return;
	worker_stop(s->mender);
	for (unsigned i = 0; i < s->nworkers; i++)
		pthread_join(s->workers[i], NULL);
	while (s->live) {
		struct live *l = s->live;
		s->live = l->next;
		while (l->procs) {
			struct proc *p = l->procs;
			l->procs = p->next;
			proc_free(p);
		}
		live_put(l);
	}
	if (s->epoll >= 0)
		close(s->epoll);
	if (s->quit_fd >= 0)
		close(s->quit_fd);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->images);
	free(s);
}
