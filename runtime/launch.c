/* The shim's process: its start, its record in the bundle, and its end, however it comes. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "runtime/program.h"
#include "runtime/proto/shim.pb-c.h"
#include "runtime/shim_int.h"

/* In the bundle: "VERSION PID ADDRESS\n" of the shim that was started for it. */
#define RECORD "shim"

enum {
	RECORD_MAX = ADDRESS_MAX + 64,
	OUTPUT_MAX = 16384, /* of the shim's program */
	LAUNCH_MS = 60000,  /* its start, which also starts the lasting process */
	DELETE_MS = 60000,  /* runc waits up to 10 s for the container's end */
	STOP_MS = 10000,    /* between SIGKILL and the end */
	EXIT_MS = 2000,     /* between Shutdown and the end */
	ROUNDS = 16,        /* through all processes, while what is killed still starts others */
};

/* ---- handles ---- */

static bool good_name(const char *s)
{
	size_t n = strlen(s);
	if (n == 0 || n > NAME_MAX_LEN || !isalnum((unsigned char)s[0]))
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
			return false;
	return true;
}

int shim_fill(struct shim *s, const struct shim_config *config, struct err *err)
{
	*s = (struct shim){ .kind = config->kind, .version = 2 };
	if (!good_name(config->ns) || !good_name(config->id))
		return err_set(err, -EINVAL, "\"%s\" of \"%s\" is no name for a container",
			       config->id, config->ns);
	int n = snprintf(s->bundle, sizeof(s->bundle), "%s", config->bundle);
	const char *last = strrchr(config->bundle, '/');
	if ((size_t)n >= sizeof(s->bundle) || *config->bundle != '/' ||
	    strcmp(last + 1, config->id) != 0)
		return err_set(err, -EINVAL, "%s is no bundle of %s", config->bundle, config->id);
	memcpy(s->ns, config->ns, strlen(config->ns) + 1);
	memcpy(s->id, config->id, strlen(config->id) + 1);
	return 0;
}

const struct runtime_kind *shim_kind(const struct shim *s)
{
	return s->kind;
}

void shim_free(struct shim *s)
{
	free(s);
}

void shim_freep(struct shim **s)
{
	shim_free(*s);
}

/* ---- what the start says ---- */

static int set_address(struct shim *s, long version, const char *address, const char *protocol,
		       struct err *err)
{
	if (strcmp(protocol, "ttrpc") != 0)
		return err_set(err, -EPROTONOSUPPORT, "the shim speaks %.20s, not ttrpc", protocol);
	if (version != 2 && version != 3)
		return err_set(err, -EPROTONOSUPPORT,
			       "the shim speaks version %ld of the task service", version);
	int n = snprintf(s->address, sizeof(s->address), "%s", address);
	if ((size_t)n >= sizeof(s->address) || strncmp(address, "unix:///", 8) != 0 ||
	    strpbrk(address, " \t\r\n"))
		return err_set(err, -EBADMSG, "the shim tells no address that can be used");
	s->version = (unsigned)version;
	return 0;
}

static int parse_json(struct shim *s, const char *data, size_t len, struct err *err)
{
	const char *address, *protocol = "ttrpc";
	int version;
	json_t *o = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
	int r = !o || json_unpack(o, "{s:i, s:s, s?s}", "version", &version, "address", &address,
				  "protocol", &protocol) < 0
			? err_set(err, -EBADMSG, "the shim's start isn't understood")
			: set_address(s, version, address, protocol, err);
	json_decref(o);
	return r;
}

int shim_parse_start(struct shim *s, const void *data, size_t len, struct err *err)
{
	const char *p = data;
	char line[ADDRESS_MAX];
	while (len > 0 && isspace((unsigned char)p[len - 1]))
		len--;
	if (len > 0 && *p == '{')
		return parse_json(s, p, len, err);
	if (len > 7 && memcmp(p, "unix://", 7) == 0) {
		if (len >= sizeof(line) || memchr(p, '\0', len))
			return err_set(err, -EBADMSG, "the shim's address is too long");
		memcpy(line, p, len);
		line[len] = '\0';
		return set_address(s, 2, line, "ttrpc", err);
	}
	Shim__BootstrapResult *m = shim__bootstrap_result__unpack(NULL, len, data);
	if (!m)
		return err_set(err, -EBADMSG, "the shim's start isn't understood");
	int r = set_address(s, m->version, m->address, m->protocol, err);
	shim__bootstrap_result__free_unpacked(m, NULL);
	return r;
}

/* ---- the record ---- */

static int write_record(const struct shim *s, struct err *err)
{
	char text[RECORD_MAX];
	auto_fd dir = open(s->bundle, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", s->bundle);
	int n = snprintf(text, sizeof(text), "%u %u %s\n", s->version, s->pid, s->address);
	return io_publish(NULL, dir, RECORD, text, (size_t)n, false, err);
}

/* -ENOENT: none was started, or not to the end. */
static int read_record(struct shim *s, struct err *err)
{
	auto_free char *text = NULL;
	char *p, *end;
	size_t len;
	auto_fd dir = open(s->bundle, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", s->bundle);
	int r = io_slurp(NULL, dir, RECORD, RECORD_MAX, (void **)&text, &len, err);
	if (r < 0)
		return r;
	unsigned long version = strtoul(text, &p, 10), pid = strtoul(p, &end, 10);
	if (*end != ' ' || pid > INT32_MAX || len == 0 || text[len - 1] != '\n')
		return err_set(err, -EBADMSG, "%s/" RECORD " is damaged", s->bundle);
	text[len - 1] = '\0';
	s->pid = (uint32_t)pid;
	return set_address(s, (long)version, end + 1, "ttrpc", err);
}

/* ---- start ---- */

/* The shim's own messages go to a name in its folder. */
static int place_log(const struct shim *s, const char *log, struct err *err)
{
	char path[PATH_MAX + 8];
	(void)snprintf(path, sizeof(path), "%s/log", s->bundle);
	if (unlink(path) < 0 && errno != ENOENT)
		return err_sys(err, -errno, "remove %s", path);
	return symlink(log ? log : "/dev/null", path) < 0 ? err_sys(err, -errno, "make %s", path)
							  : 0;
}

static bool exists_in(const struct shim *s, const char *name)
{
	char path[PATH_MAX + 16];
	(void)snprintf(path, sizeof(path), "%s/%s", s->bundle, name);
	return access(path, F_OK) == 0;
}

/* Whether the bundle's container has a network of its own. */
static bool own_network(const struct shim *s)
{
	char path[PATH_MAX + 16];
	json_t *o, *ns;
	size_t i;
	bool own = false;
	(void)snprintf(path, sizeof(path), "%s/config.json", s->bundle);
	json_t *spec = json_load_file(path, 0, NULL);
	json_t *all = json_object_get(json_object_get(spec, "linux"), "namespaces");
	json_array_foreach(all, i, ns) {
		o = json_object_get(ns, "type");
		own = own || (json_is_string(o) && strcmp(json_string_value(o), "network") == 0);
	}
	json_decref(spec);
	return own;
}

/* Runs the shim's program with an action. */
static int run_shim(const struct shim *s, const char *action, int timeout_ms, struct buf *out,
		    struct err *err)
{
	char program[PATH_MAX], path[PATH_MAX + 8], runtime[PATH_MAX + 16], tmp[PATH_MAX + 24];
	char user_ns[PATH_MAX + 32];
	auto_buf said = { 0 };
	int r = runtime_program(program, sizeof(program), s->kind->shim);
	if (r < 0)
		return err_set(err, r, "%s isn't installed: `bough doctor` shows what is",
			       s->kind->shim);
	const char *argv[] = { program,           "-namespace", s->ns, "-address", "",
			       "-publish-binary", "",           "-id", s->id,      "-bundle",
			       s->bundle,         action,       NULL };
	/* Little of the caller's, since a shim hands it on to whatever it runs. */
	(void)snprintf(path, sizeof(path), "PATH=%.*s", PATH_MAX,
		       getenv("PATH") ? getenv("PATH") : "/usr/sbin:/usr/bin:/sbin:/bin");
	/* Where it writes down an exec, with its environment, while that starts: what a kill leaves
	 * there goes with the bundle. */
	(void)snprintf(tmp, sizeof(tmp), "XDG_RUNTIME_DIR=%s", s->bundle);
	const char *env[] = { path, "MAX_SHIM_VERSION=3", tmp, NULL, NULL, NULL, NULL };
	if (s->kind->wrapper) {
		size_t at = (size_t)snprintf(runtime, sizeof(runtime), "BOUGH_RUNTIME=");
		r = runtime_program(runtime + at, sizeof(runtime) - at, s->kind->binary);
		if (r < 0)
			return err_set(err, r, "%s isn't installed: `bough doctor` shows what is",
				       s->kind->binary);
		env[3] = runtime;
		env[4] = own_network(s) ? "BOUGH_NETWORK=none" : "BOUGH_NETWORK=host";
		(void)snprintf(user_ns, sizeof(user_ns), "BOUGH_USER_NS=%s/" SHIM_USER_NS,
			       s->bundle);
		if (exists_in(s, SHIM_USER_NS))
			env[5] = user_ns;
	}
	const struct program c = { .argv = argv,
				   .env = env,
				   .dir = s->bundle,
				   .timeout_ms = timeout_ms,
				   .max = OUTPUT_MAX };
	r = program_run(&c, out, &said, err);
	if (r <= 0)
		return r;
	size_t n = said.len < 300 ? said.len : 300;
	for (size_t i = 0; i < n; i++)
		if (said.data[i] < ' ')
			said.data[i] = ' ';
	return err_set(err, -EIO, "%s %s ended with %d: %.*s", s->kind->shim, action, r, (int)n,
		       n ? (const char *)said.data : "");
}

int shim_start(struct shim **out, const struct shim_config *config, struct err *err)
{
	auto_buf said = { 0 };
	auto_shim *s = malloc(sizeof(*s));
	if (!s)
		return err_no_memory(err);
	int r = shim_fill(s, config, err);
	if (r < 0)
		return r;
	r = place_log(s, config->log, err);
	if (r < 0)
		return r;
	r = run_shim(s, "start", LAUNCH_MS, &said, err);
	if (r >= 0)
		r = shim_parse_start(s, said.data, said.len, err);
	if (r >= 0)
		r = shim_connect(s, CONNECT_MS, NULL, err);
	if (r >= 0)
		r = write_record(s, err);
	if (r < 0) {
		(void)shim_remove(config, NULL); /* the first failure is the one to tell */
		return err_prefix(err, r, "start the shim of %s", s->id);
	}
	*out = steal_ptr(&s);
	return 0;
}

int shim_reopen(struct shim **out, const struct shim_config *config, struct err *err)
{
	auto_shim *s = malloc(sizeof(*s));
	if (!s)
		return err_no_memory(err);
	int r = shim_fill(s, config, err);
	if (r < 0)
		return r;
	r = read_record(s, err);
	if (r == -ENOENT)
		return err_set(err, -ECONNREFUSED, "%s has no shim", s->id);
	if (r >= 0)
		r = shim_connect(s, CALL_MS, NULL, err); /* else it ends */
	if (r < 0)
		return r;
	*out = steal_ptr(&s);
	return 0;
}

/* ---- end ---- */

static int pidfd_of(uint32_t pid)
{
	return pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1; /* close-on-exec */
}

/* Whoever calls this is perhaps the one that processes without a parent are given to. */
static void reap(uint32_t pid)
{
	if (pid)
		(void)waitpid((pid_t)pid, NULL, WNOHANG);
}

/* Kills the container's first process (of gVisor: its kernel), and with it all. By its pid, which
 * costs no run of the runtime; a virtual machine has to be asked. */
static int kill_container(struct shim *s, uint32_t task, struct err *err)
{
	struct shim_state state;
	auto_fd pidfd = s->kind->binary ? pidfd_of(task) : -1;
	/* That the shim says it lives, after it was opened, means that it is this one. */
	int r = shim_get(s, NULL, &state, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (state.status == SHIM_STOPPED)
		return 0;
	if (pidfd < 0 || syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0) {
		r = shim_kill(s, NULL, SIGKILL, true, err);
		if (r < 0 && r != -ESRCH && r != -ENOENT)
			return r;
	}
	if (state.status == SHIM_PAUSED)
		(void)shim_resume(s, NULL); /* with cgroups of version 1 it dies only then */
	return 0;
}

/* Ends container and shim by the shim's own means. */
static int end_kindly(struct shim *s, struct err *err)
{
	uint32_t task = 0;
	struct shim_state state;
	int r = read_record(s, err);
	if (r >= 0)
		r = shim_connect(s, CONNECT_MS, &task, err);
	if (r < 0)
		return r;
	auto_fd pidfd = pidfd_of(s->pid);
	r = kill_container(s, task, err);
	if (r < 0)
		return r;
	/* The wait is the kernel's way of telling that all are dead, which Delete asks for. */
	for (int64_t end = (int64_t)clock_ms() + STOP_MS; task;) {
		r = shim_get(s, NULL, &state, err);
		if (r == -ENOENT || (r == 0 && state.status == SHIM_STOPPED))
			break;
		if (r < 0 || (int64_t)clock_ms() > end)
			return r < 0 ? r : err_set(err, -ETIMEDOUT, "%s doesn't end", s->id);
		struct timespec ms = { 0, 1000000 };
		(void)nanosleep(&ms, NULL);
	}
	r = shim_delete(s, NULL, NULL, err);
	if (r < 0 && r != -ENOENT)
		return r;
	r = shim_shutdown(s, err);
	if (r < 0)
		return r;
	if (pidfd >= 0 && !program_ended(pidfd, EXIT_MS))
		(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	reap(s->pid);
	return 0;
}

/* Whether the process is this container's shim, by its command line. */
static bool is_shim(const struct shim *s, uint32_t pid)
{
	char path[32], text[4096];
	(void)snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	bool ns = false, id = false;
	const char *before = "";
	for (const char *p = text; p < text + n; before = p, p += strlen(p) + 1) {
		ns = ns || (strcmp(before, "-namespace") == 0 && strcmp(p, s->ns) == 0);
		id = id || (strcmp(before, "-id") == 0 && strcmp(p, s->id) == 0);
	}
	return ns && id;
}

static bool kill_shim(const struct shim *s, uint32_t pid)
{
	auto_fd pidfd = pidfd_of(pid);
	if (pidfd < 0 || !is_shim(s, pid))
		return false;
	(void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	(void)program_ended(pidfd, EXIT_MS);
	reap(pid);
	return true;
}

/* Of one that was started by who was killed before it could write the record. What starts it, and
 * would go on to, has the same command line. */
static void kill_unrecorded(const struct shim *s)
{
	bool found = true;
	for (int i = 0; i < ROUNDS && found; i++) {
		auto_dir *d = opendir("/proc");
		const struct dirent *e;
		found = false;
		while (d && (e = readdir(d))) {
			char *end;
			unsigned long pid = strtoul(e->d_name, &end, 10);
			if (!*end && pid > 0 && pid <= INT32_MAX && kill_shim(s, (uint32_t)pid))
				found = true;
		}
	}
}

/* Where no record tells the address, the shim itself has written it down. */
static void find_address(struct shim *s)
{
	auto_free char *text = NULL;
	size_t len;
	auto_fd dir = open(s->bundle, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (!*s->address && dir >= 0 &&
	    io_slurp(NULL, dir, "address", ADDRESS_MAX, (void **)&text, &len, NULL) >= 0 && len > 0)
		(void)shim_parse_start(s, text, len, NULL);
}

static bool has_state(const struct shim *s)
{
	char state[PATH_MAX];
	(void)snprintf(state, sizeof(state), RUNTIME_STATE "/%s/%s", s->ns, s->id);
	return s->kind->binary && access(state, F_OK) == 0;
}

/* Ends both without the shim. */
static int end_by_force(struct shim *s, struct err *err)
{
	auto_buf lost = { 0 };
	if (s->pid)
		(void)kill_shim(s, s->pid);
	else
		kill_unrecorded(s);
	find_address(s);
	/* The file names the runtime: without it the shim was never asked to make a container. */
	if (s->kind->binary && !exists_in(s, "runtime"))
		return 0;
	int r = run_shim(s, "delete", DELETE_MS, &lost, err);
	if (r >= 0 && has_state(s))
		return err_set(err, -EIO, "%s couldn't remove %s", s->kind->binary, s->id);
	return r;
}

/* The shim's socket, which it leaves behind when it is killed. */
static int remove_socket(const struct shim *s, struct err *err)
{
	if (!*s->address)
		return 0;
	const char *path = s->address + strlen("unix://");
	return unlink(path) < 0 && errno != ENOENT ? err_sys(err, -errno, "remove %s", path) : 0;
}

/* Of gVisor's kernel, where its create was killed. It takes the next of these folders while one has
 * the file, and none when all have. */
static void remove_kernel_socket(const struct shim *s)
{
	char path[PATH_MAX];
	static const char *const dirs[] = { "/run", "/var/run", "/tmp" };
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/runsc-%s.sock", dirs[i], s->id);
		(void)unlink(path);
	}
	(void)snprintf(path, sizeof(path), RUNTIME_STATE "/%s/runsc-%s.sock", s->ns, s->id);
	(void)unlink(path);
}

int shim_remove(const struct shim_config *config, struct err *err)
{
	struct err kind_failure;
	auto_shim *s = malloc(sizeof(*s));
	if (!s)
		return err_no_memory(err);
	int r = shim_fill(s, config, err);
	if (r < 0)
		return r;
	if (access(s->bundle, F_OK) < 0 && errno == ENOENT)
		return 0;
	r = end_kindly(s, &kind_failure);
	/* A create that the shim's end broke off has left what the runtime had made of it. */
	if (r < 0 || has_state(s))
		r = end_by_force(s, err);
	if (r >= 0)
		r = remove_socket(s, err);
	if (r < 0)
		return err_prefix(err, r, "remove container %s", s->id);
	remove_kernel_socket(s);
	char path[PATH_MAX + 16];
	(void)snprintf(path, sizeof(path), "%s/" RECORD, s->bundle);
	(void)unlink(path); /* without it all that is above is done again, to no harm */
	(void)snprintf(path, sizeof(path), RUNTIME_STATE "/%s", s->ns);
	(void)rmdir(path); /* the last container of the namespace */
	return 0;
}
