#include "runtime/spec.h"

#include <stdio.h>
#include <string.h>
#include "runtime/init/init.h"
#include "runtime/jwrite.h"
#include "runtime/seccomp.h"

enum {
	CPU_PERIOD_US = 100000,
	OOM_SCORE = 500,          /* before anything of the host */
	SHM_PAGE = 4096,
	SHM_FILES_MIN = 1024,
	FILES_SOFT = 1024,        /* what old programs close one by one at start */
	KERNEL_THREADS = 4, KERNEL_THREADS_OWN = 256, /* of gVisor, on the host */
	FILES_HARD = 1 << 20,
	/* Too few for one; and where the host's go to a program (core(5)) that isn't run, as it
	 * would be with 0. */
	CORE_BYTES = 1,
};

/* What a root needs to install, build and serve, inside its own user namespace. */
static const char *const capabilities[] = {
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
	"CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETUID",
};
/* The host's memory and secrets, and what names its files, disks and make: how it was booted, what
 * it swaps to, the files behind its loop devices. */
static const char *const masked[] = {
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/cmdline", "/proc/interrupts",
	"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/latency_stats", "/proc/sched_debug",
	"/proc/scsi", "/proc/swaps", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/block", "/sys/devices/virtual/dmi", "/sys/devices/virtual/powercap",
	"/sys/firmware", "/sys/fs/selinux", "/sys/kernel/debug", "/sys/kernel/security",
};
static const char *const read_only[] = {
	"/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
};
#define DEV_OPTIONS "nosuid,mode=755,size=1024k,nr_inodes=1024"
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* A list of strings; NULL: out of memory, or one isn't UTF-8. */
static json_t *words(const char *const *list, size_t n)
{
	json_t *a = json_array();
	for (size_t i = 0; a && i < n; i++)
		if (jw_add(a, json_string(list[i])) < 0) {
			json_decref(a);
			a = NULL;
		}
	return a;
}

/* Of options in one string, as mount(8) has them. */
static json_t *options(const char *text)
{
	json_t *a = json_array();
	for (const char *p = text; a && *p;) {
		size_t n = strcspn(p, ",");
		if (jw_add(a, json_stringn(p, n)) < 0) {
			json_decref(a);
			return NULL;
		}
		p += n + (p[n] == ',');
	}
	return a;
}

/* ---- process ---- */

static const char *value_of(const char *const *env, const char *name)
{
	size_t n = strlen(name);
	for (; env && *env; env++)
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

static int add_default(json_t *a, const char *const *env, const char *name, const char *value)
{
	return value_of(env, name) ? 0 : jw_add(a, json_sprintf("%s=%s", name, value));
}

static json_t *environment(const struct spec_process *p)
{
	json_t *a = json_array();
	int r = a ? 0 : -ENOMEM;
	const char *const *env = p->process->env;
	if (r == 0)
		r = add_default(a, env, "PATH", INIT_PATH_DEFAULT);
	if (r == 0)
		r = add_default(a, env, "HOME", p->user->home);
	if (r == 0 && p->process->terminal)
		r = add_default(a, env, "TERM", "xterm");
	for (; r == 0 && env && *env; env++)
		r = jw_add(a, json_string(*env));
	if (r < 0) {
		json_decref(a);
		return NULL;
	}
	return a;
}

static json_t *arguments(const struct box_process *p)
{
	json_t *a = json_array();
	int r = a ? jw_add(a, json_string(INIT_PATH)) : -ENOMEM;
	if (r == 0 && !p->argv)
		r = jw_add(a, json_string("-w"));
	if (r == 0 && p->argv && p->timeout_ms) {
		r = jw_add(a, json_string("-t"));
		if (r == 0)
			r = jw_add(a, json_sprintf("%u", p->timeout_ms));
	}
	if (r == 0 && p->argv)
		r = jw_add(a, json_string("--"));
	for (size_t i = 0; r == 0 && p->argv && p->argv[i]; i++)
		r = jw_add(a, json_string(p->argv[i]));
	if (r < 0) {
		json_decref(a);
		return NULL;
	}
	return a;
}

static json_t *user_json(const struct user *u)
{
	json_t *groups = json_array();
	for (size_t i = 0; groups && i < u->n_groups; i++)
		if (jw_add(groups, json_integer(u->groups[i])) < 0) {
			json_decref(groups);
			groups = NULL;
		}
	/* Else it is the shim's: boughd's own, which keeps its files to itself. */
	return json_pack("{s:i,s:i,s:i,s:o}", "uid", (int)u->uid, "gid", (int)u->gid, "umask", 022,
			 "additionalGids", groups);
}

static json_t *capability_sets(void)
{
	json_t *sets = json_object();
	static const char *const names[] = { "bounding", "effective", "permitted" };
	for (size_t i = 0; sets && i < COUNT(names); i++)
		if (jw_set(sets, names[i], words(capabilities, COUNT(capabilities))) < 0) {
			json_decref(sets);
			return NULL;
		}
	return sets;
}

static int add_rlimit(json_t *list, const char *type, uint64_t hard, uint64_t soft)
{
	return json_array_append_new(list, json_pack("{s:s,s:I,s:I}", "type", type, "hard",
						     (json_int_t)hard, "soft", (json_int_t)soft));
}

static int rlimits(json_t *process, const struct runtime_kind *kind, const struct spec_process *p)
{
	uint64_t hard = p->files_max < FILES_HARD ? p->files_max : FILES_HARD;
	uint64_t soft = hard < FILES_SOFT ? hard : FILES_SOFT;
	json_t *list = json_array();
	int bad = !list;
	if (p->files_max) {
		bad |= add_rlimit(list, "RLIMIT_NOFILE", hard, soft);
		bad |= add_rlimit(list, "RLIMIT_CORE", CORE_BYTES, CORE_BYTES);
	}
	if (spec_own_kernel(kind) && p->pids)
		bad |= add_rlimit(list, "RLIMIT_NPROC", p->pids, p->pids);
	if (bad || json_array_size(list) == 0) {
		json_decref(list);
		return bad ? -ENOMEM : 0;
	}
	return jw_set(process, "rlimits", list);
}

static int process_json(const struct runtime_kind *kind, const struct spec_process *p,
			json_t **out)
{
	json_t *j = json_pack("{s:b,s:b,s:s,s:i}", "terminal", p->process->terminal,
			      "noNewPrivileges", 1, "cwd", p->cwd, "oomScoreAdj", OOM_SCORE);
	const struct box_process *bp = p->process;
	int r = j ? 0 : -ENOMEM;
	if (r == 0 && bp->terminal && bp->columns && bp->rows)
		r = jw_set(j, "consoleSize",
			   json_pack("{s:I,s:I}", "width", (json_int_t)bp->columns, "height",
				     (json_int_t)bp->rows));
	if (r == 0)
		r = jw_set(j, "user", user_json(p->user));
	if (r == 0)
		r = jw_set(j, "args", arguments(p->process));
	if (r == 0)
		r = jw_set(j, "env", environment(p));
	if (r == 0)
		r = jw_set(j, "capabilities", capability_sets());
	if (r == 0)
		r = rlimits(j, kind, p);
	if (r < 0) {
		json_decref(j);
		return r;
	}
	*out = j;
	return 0;
}

/* ---- mounts ---- */

static int add_mount(json_t *a, const char *target, const char *type, const char *source,
		     const char *opts)
{
	return jw_add(a, json_pack("{s:s,s:s,s:s,s:o}", "destination", target, "type", type,
				   "source", source, "options", options(opts)));
}

unsigned spec_shm_files(uint64_t bytes)
{
	uint64_t files = bytes / SHM_PAGE;
	if (files > INT32_MAX)
		return INT32_MAX;
	return files > SHM_FILES_MIN ? (unsigned)files : SHM_FILES_MIN;
}

static int system_mounts(const struct spec *s, json_t *a)
{
	char shm[160];
	(void)snprintf(shm, sizeof(shm), "nosuid,noexec,nodev,mode=1777,size=%llu,nr_inodes=%u",
		       (unsigned long long)s->limits.shm, spec_shm_files(s->limits.shm));
	int r = add_mount(a, "/proc", "proc", "proc", "nosuid,noexec,nodev");
	if (r == 0)
		/* With ids shifted its devices are the host's, bound in one by one. */
		r = add_mount(a, "/dev", "tmpfs", "tmpfs",
			      s->kind->shifts_ids ? DEV_OPTIONS ",nodev" : DEV_OPTIONS);
	if (r == 0)
		r = add_mount(a, "/dev/pts", "devpts", "devpts",
			      "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5");
	/* gVisor's own has no limit of files: it gets one of the host's kernel. */
	if (r == 0 && !spec_own_kernel(s->kind))
		r = add_mount(a, SPEC_SHM, "tmpfs", "shm", shm);
	/* A sysfs shows the network of who mounts it, which of the host's only the host may. */
	if (r == 0)
		r = s->net_host && s->kind->shifts_ids
			    ? add_mount(a, "/sys", "tmpfs", "tmpfs",
					"nosuid,noexec,nodev,ro,mode=755,size=4k")
			    : add_mount(a, "/sys", "sysfs", "sysfs", "nosuid,noexec,nodev,ro");
	/* Version 1 would be a mount for each controller; few programs look. */
	if (r == 0 && s->cgroup2 && spec_shares_kernel(s->kind) && !s->net_host)
		r = add_mount(a, "/sys/fs/cgroup", "cgroup", "cgroup",
			      "nosuid,noexec,nodev,relatime,ro");
	return r;
}

static int bind_mounts(const struct spec *s, json_t *a)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < s->n_binds; i++) {
		const struct spec_bind *b = &s->binds[i];
		char opts[64];
		bool shared = spec_shares_kernel(s->kind);
		bool deep = b->read_only && b->recursive && shared;
		/* crun clones the source in the host's namespace: where mounts are shared, as
		 * with systemd, what comes onto the clone would come onto the host, too. */
		(void)snprintf(opts, sizeof(opts), "%s,%s,nosuid,nodev%s%s%s",
			       b->recursive ? "rbind" : "bind", b->read_only ? "ro" : "rw",
			       b->no_exec ? ",noexec" : "",
			       deep ? ",rro" : "",
			       b->later ? ",rslave" : shared ? ",rprivate" : "");
		r = add_mount(a, b->target, "bind", b->source, opts);
	}
	if (r == 0 && s->hide_usr_local)
		r = add_mount(a, "/usr/local", "tmpfs", "tmpfs",
			      "nosuid,nodev,ro,mode=755,size=4k");
	return r;
}

static json_t *mounts(const struct spec *s)
{
	json_t *a = json_array();
	int r = a ? system_mounts(s, a) : -ENOMEM;
	if (r == 0)
		r = bind_mounts(s, a);
	if (r < 0) {
		json_decref(a);
		return NULL;
	}
	return a;
}

/* ---- linux ---- */

static json_t *namespaces(const struct spec *s)
{
	static const char *const always[] = { "pid", "ipc", "uts", "mount", "cgroup" };
	json_t *a = json_array();
	int r = a ? 0 : -ENOMEM;
	for (size_t i = 0; r == 0 && i < COUNT(always); i++)
		r = jw_add(a, json_pack("{s:s}", "type", always[i]));
	/* A new one has a loopback, which the runtime brings up, and nothing else. */
	if (r == 0 && !s->net_host)
		r = jw_add(a, json_pack("{s:s}", "type", "network"));
	if (r == 0 && spec_shares_kernel(s->kind))
		r = jw_add(a, json_pack("{s:s,s:s}", "type", "user", "path", s->user_ns));
	else if (r == 0 && s->kind->shifts_ids)
		r = jw_add(a, json_pack("{s:s}", "type", "user"));
	if (r < 0) {
		json_decref(a);
		return NULL;
	}
	return a;
}

static json_t *mapping(const struct spec *s)
{
	return json_pack("[{s:i,s:I,s:i}]", "containerID", 0, "hostID", (json_int_t)s->id_base,
			 "size", BOX_IDS);
}

static json_t *resources(const struct spec *s)
{
	const struct box_limits *l = &s->limits;
	json_int_t memory = (json_int_t)l->memory, pids = l->pids;
	if (spec_own_kernel(s->kind))
		pids = pids * KERNEL_THREADS + KERNEL_THREADS_OWN;
	json_t *mem = json_pack("{s:I}", "limit", memory);
	int r = mem ? 0 : -ENOMEM;
	if (r == 0 && s->counts_swap) /* swap included: none beyond the limit */
		r = jw_set(mem, "swap", json_integer(memory));
	if (r < 0) {
		json_decref(mem);
		return NULL;
	}
	return json_pack("{s:o,s:{s:I,s:i},s:{s:i},s:[{s:b,s:s}]}", "memory", mem, "cpu", "quota",
			 (json_int_t)l->cpu_milli * CPU_PERIOD_US / 1000, "period", CPU_PERIOD_US,
			 "pids", "limit", (int)pids, "devices", "allow", 0, "access", "rwm");
}

static int linux_json(const struct spec *s, json_t **out)
{
	json_t *j = json_pack("{s:s,s:s}", "cgroupsPath", s->cgroup, "rootfsPropagation",
			      spec_own_kernel(s->kind) ? "rslave" : "private");
	int r = j ? jw_set(j, "namespaces", namespaces(s)) : -ENOMEM;
	if (r == 0 && s->kind->shifts_ids)
		r = jw_set(j, "uidMappings", mapping(s));
	if (r == 0 && s->kind->shifts_ids)
		r = jw_set(j, "gidMappings", mapping(s));
	if (r == 0)
		r = jw_set(j, "resources", resources(s));
	if (r == 0)
		r = jw_set(j, "maskedPaths", words(masked, COUNT(masked)));
	if (r == 0)
		r = jw_set(j, "readonlyPaths", words(read_only, COUNT(read_only)));
	/* Where the host's kernel answers none of its calls, the filter would only cost. */
	if (r == 0 && spec_shares_kernel(s->kind))
		r = jw_set(j, "seccomp", seccomp_filter());
	if (r < 0) {
		json_decref(j);
		return r;
	}
	*out = j;
	return 0;
}

/* ---- all of it ---- */

static int add_piece(const char *text, size_t n, void *out)
{
	buf_add(out, text, n);
	return buf_error(out);
}

/* Piece by piece: json_dumps overlooks some failures of its own buffer, ours remembers them. */
static int append(const json_t *j, size_t flags, struct buf *out, struct err *err)
{
	if (json_dump_callback(j, add_piece, out, flags) < 0 || buf_error(out) < 0)
		return err_no_memory(err);
	return 0;
}

static bool is_utf8(const char *s)
{
	json_t *j = json_string(s);
	json_decref(j);
	return j != NULL;
}

/* jansson doesn't say which of the two it was. */
static int why(const struct spec_process *p, struct err *err)
{
	const char *const *lists[] = { p->process->argv, p->process->env };
	for (size_t k = 0; k < COUNT(lists); k++)
		for (const char *const *w = lists[k]; w && *w; w++)
			if (!is_utf8(*w))
				return err_set(err, -EINVAL,
					       k == 0 ? "the command's arguments must be UTF-8"
						      : "the environment must be UTF-8");
	if (!is_utf8(p->cwd))
		return err_set(err, -EINVAL, "the working directory's name must be UTF-8");
	return err_no_memory(err);
}

int spec_write_process(const struct runtime_kind *kind, const struct spec_process *p,
		       struct buf *out, struct err *err)
{
	json_t *j = NULL;
	if (process_json(kind, p, &j) < 0)
		return why(p, err);
	int r = append(j, JSON_COMPACT, out, err);
	json_decref(j);
	return r;
}

int spec_write(const struct spec *s, const struct spec_process *p, struct buf *out,
	       struct err *err)
{
	json_t *j = json_pack("{s:s,s:s,s:{s:s,s:b}}", "ociVersion", "1.0.2", "hostname",
			      s->hostname, "root", "path", "rootfs", "readonly", 0);
	json_t *process = NULL, *lin = NULL;
	int r = j ? process_json(s->kind, p, &process) : -ENOMEM;
	if (r == 0)
		r = jw_set(j, "process", process);
	if (r == 0)
		r = jw_set(j, "mounts", mounts(s));
	if (r == 0)
		r = linux_json(s, &lin);
	if (r == 0)
		r = jw_set(j, "linux", lin);
	r = r < 0 ? why(p, err) : append(j, JSON_INDENT(1), out, err);
	json_decref(j);
	return r;
}
