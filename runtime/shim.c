#include "runtime/shim.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "runtime/proto/shim.pb-c.h"
#include "runtime/shim_int.h"
#include "runtime/ttrpc.h"

enum {
	KERNEL_GONE = 128, /* of `runsc exec` */
	OVER_MS = 500,     /* for a container's process to be gone */
	TOLD_MS = 5000,    /* and for the shim to hear of it */
	OVER_POLL_MS = 20,
	BEGUN_LOOKS = 5,
};

#define SPEC_TYPES "types.containerd.io/opencontainers/runtime-spec/1/"

/* ---- one call ---- */

/* The bytes of a message, on the heap. */
static int pack(struct buf *out, const void *message)
{
	const ProtobufCMessage *m = message;
	size_t len = protobuf_c_message_get_packed_size(m);
	uint8_t *room = buf_room(out, len + 1);
	if (!room)
		return -ENOMEM;
	out->len += protobuf_c_message_pack(m, room);
	return 0;
}

struct call {
	const char *method;
	const void *request;                      /* a protobuf-c message */
	const ProtobufCMessageDescriptor *answer; /* NULL: nothing is said */
	int64_t timeout_ms;                       /* 0: CALL_MS; < 0: none */
	int stop_fd;                              /* 0: none */
	int over; /* a connection, not closed; 0: one of its own */
	bool untold;
};

/* The bytes that ask for it, and the rest that the call needs. */
static int prepare(const struct shim *s, const struct call *c, struct ttrpc_call *rpc,
		   char service[32], struct buf *payload, struct err *err)
{
	(void)snprintf(service, 32, "containerd.task.v%u.Task", s->version);
	if (pack(payload, c->request) < 0)
		return err_no_memory(err);
	*rpc = (struct ttrpc_call){
		.service = service,
		.method = c->method,
		.ns = s->ns,
		.payload = payload->data,
		.len = payload->len,
		.timeout_ms = c->timeout_ms ? c->timeout_ms : CALL_MS,
		.untold = c->untold,
		.stop_fd = c->stop_fd > 0 ? c->stop_fd : -1,
	};
	return 0;
}

static int unpack(const struct call *c, const struct buf *reply, void *answer, struct err *err)
{
	void *m = protobuf_c_message_unpack(c->answer, NULL, reply->len, reply->data);
	if (!m)
		return err_set(err, -EBADMSG, "the shim's answer to %s isn't understood",
			       c->method);
	*(void **)answer = m;
	return 0;
}

/* *answer is the caller's to free; it isn't set where the call has none. */
static int call(struct shim *s, const struct call *c, void *answer, struct err *err)
{
	char service[32];
	struct ttrpc_call rpc;
	auto_buf payload = { 0 }, reply = { 0 };
	int r = prepare(s, c, &rpc, service, &payload, err);
	if (r < 0)
		return r;
	auto_fd own = c->over ? -1 : ttrpc_connect(s->address, err);
	if (!c->over && own < 0)
		return own;
	r = ttrpc_call(c->over ? c->over : own, &rpc, &reply, err);
	return r < 0 || !c->answer ? r : unpack(c, &reply, answer, err);
}

static void free_message(void *m)
{
	ProtobufCMessage **p = m;
	if (*p)
		protobuf_c_message_free_unpacked(*p, NULL);
}
#define auto_message __attribute__((cleanup(free_message)))

static char *text(const char *s)
{
	return (char *)(s ? s : "");
}

/* A call that names a process and nothing else. */
static int call_process(struct shim *s, const char *method, const char *exec,
			const ProtobufCMessageDescriptor *kind, void *answer, struct err *err)
{
	Shim__ProcessRequest m = SHIM__PROCESS_REQUEST__INIT;
	m.id = s->id;
	m.exec_id = text(exec);
	return call(s, &(struct call){ .method = method, .request = &m, .answer = kind }, answer,
		    err);
}

int shim_connect(struct shim *s, int timeout_ms, uint32_t *task, struct err *err)
{
	Shim__ProcessRequest m = SHIM__PROCESS_REQUEST__INIT;
	auto_message Shim__ConnectResponse *a = NULL;
	m.id = s->id;
	const struct call c = { .method = "Connect",
				.request = &m,
				.answer = &shim__connect_response__descriptor,
				.timeout_ms = timeout_ms };
	int r = call(s, &c, &a, err);
	if (r < 0)
		return r;
	s->pid = a->shim_pid;
	if (task)
		*task = a->task_pid;
	return 0;
}

int shim_shutdown(struct shim *s, struct err *err)
{
	Shim__ShutdownRequest m = SHIM__SHUTDOWN_REQUEST__INIT;
	m.id = s->id;
	m.now = true;
	int r = call(s, &(struct call){ .method = "Shutdown", .request = &m }, NULL, err);
	return r == -ECONNREFUSED ? 0 : r; /* it was quicker than its answer */
}

/* ---- beginnings ---- */

static int create_options(const struct shim *s, const struct shim_io *io, struct buf *out,
			  struct err *err)
{
	Shim__Options o = SHIM__OPTIONS__INIT;
	char binary[PATH_MAX];
	int r = runtime_binary(s->kind, binary, sizeof(binary), err);
	if (r < 0)
		return r;
	o.io_uid = io->uid;
	o.io_gid = io->gid;
	o.binary_name = binary;
	o.root = (char[]){ RUNTIME_STATE };
	return pack(out, &o) < 0 ? err_no_memory(err) : 0;
}

int shim_create(struct shim *s, const struct shim_io *io, uint32_t *pid, struct err *err)
{
	Shim__CreateRequest m = SHIM__CREATE_REQUEST__INIT;
	Shim__Any options = SHIM__ANY__INIT;
	char options_type[] = "containerd.runc.v1.Options";
	auto_message Shim__PidResponse *a = NULL;
	auto_buf packed = { 0 };
	int r;
	m.id = s->id;
	m.bundle = s->bundle;
	m.terminal = io->terminal;
	m.in = text(io->in);
	m.out = text(io->out);
	m.err = text(io->terminal ? NULL : io->err);
	if (s->kind->binary) {
		r = create_options(s, io, &packed, err);
		if (r < 0)
			return r;
		options.type_url = options_type;
		options.value.data = packed.data;
		options.value.len = packed.len;
		m.options = &options;
	}
	const struct call c = { .method = "Create",
				.request = &m,
				.answer = &shim__pid_response__descriptor,
				.timeout_ms = MAKE_MS };
	r = call(s, &c, &a, err);
	if (r >= 0 && pid)
		*pid = a->pid;
	return r;
}

int shim_exec_raw(struct shim *s, const char *exec, const struct shim_io *io, const char *spec,
		  size_t len, struct err *err)
{
	Shim__ExecRequest m = SHIM__EXEC_REQUEST__INIT;
	Shim__Any any = SHIM__ANY__INIT;
	any.type_url = (char[]){ SPEC_TYPES "Process" };
	any.value.data = (uint8_t *)spec;
	any.value.len = len;
	m.id = s->id;
	m.exec_id = text(exec);
	m.terminal = io->terminal;
	m.in = text(io->in);
	m.out = text(io->out);
	m.err = text(io->terminal ? NULL : io->err);
	m.spec = &any;
	return call(s, &(struct call){ .method = "Exec", .request = &m }, NULL, err);
}

int shim_exec(struct shim *s, const char *exec, const struct shim_io *io, const char *spec,
	      size_t len, struct err *err)
{
	auto_buf named = { 0 };
	if (s->kind->signals_execs)
		return shim_exec_raw(s, exec, io, spec, len, err);
	int r = shim_name_exec(exec, spec, len, &named, err);
	return r < 0 ? r : shim_exec_raw(s, exec, io, (const char *)named.data, named.len, err);
}

int shim_connection(struct shim *s, struct err *err)
{
	return ttrpc_connect(s->address, err);
}

int shim_start_process(struct shim *s, const char *exec, int over, uint32_t *pid, struct err *err)
{
	Shim__ProcessRequest m = SHIM__PROCESS_REQUEST__INIT;
	auto_message Shim__PidResponse *a = NULL;
	m.id = s->id;
	m.exec_id = text(exec);
	const struct call c = { .method = "Start",
				.request = &m,
				.answer = &shim__pid_response__descriptor,
				.timeout_ms = MAKE_MS,
				.over = over > 0 ? over : 0,
				.untold = true };
	int r = call(s, &c, &a, err);
	if (r >= 0 && pid)
		*pid = a->pid;
	return r;
}

/* ---- states ---- */

/* Go's zero time lies before 1970: it hasn't happened. */
static int64_t nanoseconds(const Shim__Timestamp *t)
{
	const int64_t most = INT64_MAX / 1000000000 - 1;
	if (!t || t->seconds <= 0 || t->seconds > most || t->nanos < 0 || t->nanos >= 1000000000)
		return 0;
	return t->seconds * 1000000000 + t->nanos;
}

static enum shim_status status_of(uint32_t v)
{
	static const enum shim_status known[] = {
		SHIM_UNKNOWN, SHIM_CREATED, SHIM_RUNNING,
		SHIM_STOPPED, SHIM_PAUSED,  SHIM_PAUSED, /* pausing */
	};
	return v < sizeof(known) / sizeof(known[0]) ? known[v] : SHIM_UNKNOWN;
}

static int get_within(struct shim *s, const char *exec, int timeout_ms, struct shim_state *out,
		      struct err *err)
{
	auto_message Shim__StateResponse *a = NULL;
	Shim__ProcessRequest m = SHIM__PROCESS_REQUEST__INIT;
	m.id = s->id;
	m.exec_id = text(exec);
	const struct call c = { .method = "State",
				.request = &m,
				.answer = &shim__state_response__descriptor,
				.timeout_ms = timeout_ms };
	int r = call(s, &c, &a, err);
	if (r < 0)
		return r;
	*out = (struct shim_state){
		.status = status_of(a->status),
		.pid = a->pid,
		.exit_status = a->exit_status,
		.exited_ns = nanoseconds(a->exited_at),
	};
	return 0;
}

int shim_get(struct shim *s, const char *exec, struct shim_state *out, struct err *err)
{
	return get_within(s, exec, CALL_MS, out, err);
}

int shim_begun(struct shim *s, const char *exec, uint32_t *pid, struct err *err)
{
	int r = -EBUSY;
	/* What was started meanwhile isn't deleted; what is deleted can't be started. */
	for (int i = 0; r == -EBUSY && i < BEGUN_LOOKS; i++) {
		struct shim_state st = { 0 };
		r = get_within(s, exec, CONNECT_MS, &st, err);
		if (r < 0)
			break;
		/* Where the container is paused all are called so. */
		if (st.status != SHIM_CREATED && (st.status != SHIM_PAUSED || st.pid)) {
			*pid = st.pid;
			return 1;
		}
		r = shim_delete(s, exec, NULL, err);
	}
	return r;
}

static void wait_ended(const Shim__WaitResponse *a, struct shim_state *out)
{
	*out = (struct shim_state){ .status = SHIM_STOPPED,
				    .exit_status = a->exit_status,
				    .exited_ns = nanoseconds(a->exited_at) };
}

static const struct call wait_call = { .method = "Wait",
				       .answer = &shim__wait_response__descriptor };

int shim_wait(struct shim *s, const char *exec, int stop_fd, struct shim_state *out,
	      struct err *err)
{
	Shim__ProcessRequest m = SHIM__PROCESS_REQUEST__INIT;
	auto_message Shim__WaitResponse *a = NULL;
	struct call c = wait_call;
	m.id = s->id;
	m.exec_id = text(exec);
	c.request = &m;
	c.timeout_ms = -1;
	c.stop_fd = stop_fd;
	int r = call(s, &c, &a, err);
	if (r >= 0)
		wait_ended(a, out);
	return r;
}

int shim_wait_begin(struct shim *s, const char *exec, struct err *err)
{
	char service[32];
	struct ttrpc_call rpc;
	Shim__ProcessRequest m = SHIM__PROCESS_REQUEST__INIT;
	auto_buf payload = { 0 };
	struct call c = wait_call;
	m.id = s->id;
	m.exec_id = text(exec);
	c.request = &m;
	int r = prepare(s, &c, &rpc, service, &payload, err);
	if (r < 0)
		return r;
	auto_fd fd = ttrpc_connect(s->address, err);
	if (fd < 0)
		return fd;
	r = ttrpc_begin(fd, &rpc, err);
	return r < 0 ? r : steal_fd(&fd);
}

/* Whether the container has ended, or is about to be told of. */
static bool is_over(struct shim *s)
{
	struct shim_state state;
	bool gone = false;
	for (int ms = 0; ms < (gone ? TOLD_MS : OVER_MS); ms += OVER_POLL_MS) {
		if (shim_get(s, NULL, &state, NULL) < 0)
			return false;
		if (state.status == SHIM_STOPPED)
			return true;
		gone = kill((pid_t)state.pid, 0) < 0 && errno == ESRCH;
		(void)usleep(OVER_POLL_MS * 1000);
	}
	return false;
}

int shim_wait_end(struct shim *s, int fd, struct shim_state *out, struct err *err)
{
	auto_message Shim__WaitResponse *a = NULL;
	auto_buf reply = { 0 };
	int r = ttrpc_end(fd, &reply, err);
	if (r == -EAGAIN)
		return r;
	if (r >= 0)
		r = unpack(&wait_call, &reply, &a, err);
	if (r >= 0)
		wait_ended(a, out);
	/* Where an exec's processes aren't the host's, what stands for it says so of their kernel's
	 * end, which is theirs: as by a kill. A program may say it, too. */
	if (r >= 0 && !s->kind->signals_execs && out->exit_status == KERNEL_GONE && is_over(s)) {
		out->exit_status = 128 + SIGKILL;
		out->with_all = true;
	}
	(void)close(fd); /* nothing was written that could fail late */
	return r;
}

int shim_kill_all(struct shim *s, int sig, struct err *err)
{
	return shim_kill(s, NULL, sig, true, err);
}

/* What the shims say of a process that has ended differs, and so do their codes: the state tells.
 * Returns `otherwise` when it says something else or nothing. */
static int if_status(struct shim *s, const char *exec, enum shim_status status, int then,
		     int otherwise)
{
	struct shim_state state;
	return shim_get(s, exec, &state, NULL) == 0 && state.status == status ? then : otherwise;
}

int shim_kill(struct shim *s, const char *exec, int sig, bool all, struct err *err)
{
	Shim__KillRequest m = SHIM__KILL_REQUEST__INIT;
	m.id = s->id;
	m.exec_id = text(exec);
	m.signal = (uint32_t)sig;
	m.all = all;
	int r = call(s, &(struct call){ .method = "Kill", .request = &m }, NULL, err);
	if (r == -ENOENT || r == -EIO)
		r = if_status(s, exec, SHIM_STOPPED, -ESRCH, r);
	return r == -ESRCH ? err_set(err, r, "the process has ended") : r;
}

int shim_delete(struct shim *s, const char *exec, struct shim_state *last, struct err *err)
{
	auto_message Shim__DeleteResponse *a = NULL;
	int r = call_process(s, "Delete", exec, &shim__delete_response__descriptor, &a, err);
	if (r == -EIO) {
		r = if_status(s, exec, SHIM_RUNNING, -EBUSY, r);
		r = r == -EIO ? if_status(s, exec, SHIM_PAUSED, -EBUSY, r) : r;
	}
	if (r == -EBUSY)
		return err_set(err, r, "the process hasn't ended");
	if (r >= 0 && last)
		*last = (struct shim_state){ .status = SHIM_STOPPED,
					     .pid = a->pid,
					     .exit_status = a->exit_status,
					     .exited_ns = nanoseconds(a->exited_at) };
	return r;
}

/* ---- while it runs ---- */

int shim_close_stdin(struct shim *s, const char *exec, struct err *err)
{
	Shim__CloseRequest m = SHIM__CLOSE_REQUEST__INIT;
	m.id = s->id;
	m.exec_id = text(exec);
	m.in = true;
	return call(s, &(struct call){ .method = "CloseIO", .request = &m }, NULL, err);
}

int shim_resize(struct shim *s, const char *exec, uint32_t columns, uint32_t rows, struct err *err)
{
	Shim__ResizeRequest m = SHIM__RESIZE_REQUEST__INIT;
	m.id = s->id;
	m.exec_id = text(exec);
	m.width = columns;
	m.height = rows;
	return call(s, &(struct call){ .method = "ResizePty", .request = &m }, NULL, err);
}

int shim_pause(struct shim *s, struct err *err)
{
	return call_process(s, "Pause", NULL, NULL, NULL, err);
}

int shim_resume(struct shim *s, struct err *err)
{
	return call_process(s, "Resume", NULL, NULL, NULL, err);
}

int shim_update(struct shim *s, const char *limits, size_t len, struct err *err)
{
	Shim__UpdateRequest m = SHIM__UPDATE_REQUEST__INIT;
	Shim__Any any = SHIM__ANY__INIT;
	any.type_url = (char[]){ SPEC_TYPES "LinuxResources" };
	any.value.data = (uint8_t *)limits;
	any.value.len = len;
	m.id = s->id;
	m.resources = &any;
	return call(s, &(struct call){ .method = "Update", .request = &m }, NULL, err);
}

/* The kernel's "none" of cgroup v1 is the largest number of whole pages; of v2 the largest. */
static uint64_t limit_of(uint64_t v)
{
	return v >= (uint64_t)INT64_MAX - 65536 ? 0 : v;
}

static int metrics_v1(const Shim__Any *any, struct shim_stats *out)
{
	auto_message Shim__Metrics1 *m = shim__metrics1__unpack(NULL, any->value.len,
								any->value.data);
	if (!m)
		return -EBADMSG;
	if (m->cpu && m->cpu->usage)
		out->cpu_ns = m->cpu->usage->total;
	if (m->memory && m->memory->usage) {
		out->memory = m->memory->usage->usage;
		out->memory_peak = m->memory->usage->max;
		out->memory_limit = limit_of(m->memory->usage->limit);
	}
	if (m->pids) {
		out->pids = m->pids->current;
		out->pids_limit = limit_of(m->pids->limit);
	}
	if (m->memory_oom_control)
		out->oom_kills = m->memory_oom_control->oom_kill;
	return 0;
}

static int metrics_v2(const Shim__Any *any, struct shim_stats *out)
{
	auto_message Shim__Metrics2 *m = shim__metrics2__unpack(NULL, any->value.len,
								any->value.data);
	if (!m)
		return -EBADMSG;
	if (m->cpu && __builtin_mul_overflow(m->cpu->usage_usec, 1000, &out->cpu_ns))
		out->cpu_ns = UINT64_MAX;
	if (m->memory) {
		out->memory = m->memory->usage;
		out->memory_peak = m->memory->max_usage;
		out->memory_limit = limit_of(m->memory->usage_limit);
	}
	if (m->pids) {
		out->pids = m->pids->current;
		out->pids_limit = limit_of(m->pids->limit);
	}
	if (m->memory_events)
		out->oom_kills = m->memory_events->oom_kill;
	return 0;
}

int shim_stats(struct shim *s, struct shim_stats *out, struct err *err)
{
	auto_message Shim__StatsResponse *a = NULL;
	struct shim_stats got = { 0 };
	int r = call_process(s, "Stats", NULL, &shim__stats_response__descriptor, &a, err);
	if (r < 0)
		return r;
	const char *type = a->stats ? a->stats->type_url : "";
	if (strstr(type, "cgroups.v1.Metrics"))
		r = metrics_v1(a->stats, &got);
	else if (strstr(type, "cgroups.v2.Metrics"))
		r = metrics_v2(a->stats, &got);
	else
		r = -EBADMSG;
	if (r < 0)
		return err_set(err, r, "the shim's figures aren't understood");
	*out = got;
	return 0;
}

int shim_pids(struct shim *s, uint32_t **pids, size_t *n, struct err *err)
{
	auto_message Shim__PidsResponse *a = NULL;
	int r = call_process(s, "Pids", NULL, &shim__pids_response__descriptor, &a, err);
	if (r < 0)
		return r;
	uint32_t *all = calloc(a->n_processes + 1, sizeof(*all));
	if (!all)
		return err_no_memory(err);
	for (size_t i = 0; i < a->n_processes; i++)
		all[i] = a->processes[i]->pid;
	*pids = all;
	*n = a->n_processes;
	return 0;
}
