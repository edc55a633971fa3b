/* run, exec, shell, logs: processes in sandboxes, as if they were here. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "fs/base/base64.h"
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/attach.h"
#include "tools/bough/terminal.h"
#include "tools/bough/checkout.h"
#include "tools/bough/infile.h"
#include "tools/bough/json.h"
#include "tools/bough/sandbox.h"

enum {
	FILE_MAX_BYTES = 256 << 10, /* of a secret, and of an --env-file */
};

/* ---- request members from options ---- */

/* "K=V", or "K": as it is here. */
static int add_env(json_t *body, const char *key, const char *kv, const char *what, struct err *err)
{
	auto_free char *whole = NULL;
	const char *eq = strchr(kv, '=');
	if (eq == kv || !*kv)
		return err_set(err, -EINVAL, "%s takes K=V", what);
	if (eq)
		return body_add(body, key, kv, err);
	const char *v = getenv(kv);
	if (!v)
		return 0; /* what isn't set here isn't there, as others have it */
	if (asprintf(&whole, "%s=%s", kv, v) < 0)
		return err_no_memory(err);
	return body_add(body, key, whole, err);
}

/* Lines of an --env-file; '#' begins a remark. Their values are never shown. */
static int add_env_file(json_t *body, const char *key, const char *path, struct err *err)
{
	auto_infile f = { 0 };
	int r = infile_read(path, FILE_MAX_BYTES, &f, err);
	if (r == 0 && strlen(f.text) != f.len)
		r = err_set(err, -EINVAL, "%s: there is a NUL in it", path);
	char *rest = f.text, *line;
	unsigned n = 0;
	while (r == 0 && (line = strsep(&rest, "\n"))) {
		size_t end = strlen(line);
		n++;
		if (end && line[end - 1] == '\r')
			line[end - 1] = '\0';
		line += strspn(line, " \t");
		if (!*line || *line == '#')
			continue;
		/* "export K=V", or what somebody took for a remark, would be lost quietly. */
		bool named = strcspn(line, " \t") >= strcspn(line, "=");
		if (!named || add_env(body, key, line, "it", NULL) < 0)
			r = err_set(err, -EINVAL, "%s: line %u isn't K=V", path, n);
	}
	return r;
}

/* --secret NAME=FILE */
static int add_secret(json_t *secrets, const char *option, struct err *err)
{
	const char *eq = strchr(option, '=');
	auto_infile f = { 0 };
	auto_free char *text = NULL, *name = NULL;
	if (!eq || eq == option || !eq[1])
		return err_set(err, -EINVAL, "--secret takes NAME=FILE");
	int r = infile_read(eq + 1, FILE_MAX_BYTES, &f, err);
	if (r < 0)
		return r;
	name = strndup(option, (size_t)(eq - option));
	text = base64_encode(f.text, f.len);
	if (!name || !text || json_object_set_new(secrets, name, json_string(text)) < 0)
		r = err_no_memory(err);
	if (text)
		explicit_bzero(text, strlen(text));
	return r;
}

int sandbox_set_secrets(json_t *body, const struct args *a, struct err *err)
{
	const char *v;
	int r = 0;
	json_t *files = args_each(a, "secret", 0) ? json_object() : NULL;
	if (files && json_object_set_new(body, "secrets", files) < 0)
		return err_no_memory(err);
	for (unsigned i = 0; r == 0 && (v = args_each(a, "secret", i)); i++)
		r = files ? add_secret(files, v, err) : err_no_memory(err);
	for (unsigned i = 0; r == 0 && (v = args_each(a, "env-file", i)); i++)
		r = add_env_file(body, "secret_env", v, err);
	return r;
}

static int set_env(json_t *body, const struct args *a, struct err *err)
{
	const char *v;
	int r = 0;
	for (unsigned i = 0; r == 0 && (v = args_each(a, "env", i)); i++)
		r = add_env(body, "env", v, "--env", err);
	return r;
}

static int set_command(json_t *body, const struct args *a, unsigned from, struct err *err)
{
	int r = 0;
	for (unsigned i = from; i < a->n && r == 0; i++)
		r = body_add(body, "command", a->operands[i], err);
	return r;
}

/* "0.5", "2": thousandths of a core. */
static int set_cpus(json_t *body, const char *text, struct err *err)
{
	char *end;
	errno = 0;
	double v = strtod(text, &end);
	if (errno || end == text || *end || !(v >= 0.01 && v <= 1024))
		return err_set(err, -EINVAL, "--cpus takes a number like 0.5 or 2, not \"%s\"",
			       text);
	return body_number(body, "cpu_milli", (uint64_t)(v * 1000 + 0.5), err);
}

static const struct {
	const char *option, *key;
	bool counted;
} sizes[] = { { "memory", "memory_bytes", false },
	      { "disk", "disk_bytes", false },
	      { "shm-size", "shm_bytes", false },
	      { "pids", "pids", true },
	      { "inodes", "inodes", true } };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static int set_limits(json_t *body, const struct args *a, struct err *err)
{
	const char *cpus = args_get(a, "cpus");
	int r = cpus ? set_cpus(body, cpus, err) : 0;
	for (size_t i = 0; i < SIZES && r == 0; i++) {
		char what[24];
		uint64_t n = 0;
		const char *v = args_get(a, sizes[i].option);
		if (!v)
			continue;
		(void)snprintf(what, sizeof(what), "--%s", sizes[i].option);
		r = sizes[i].counted ? args_count(v, what, &n, err) : args_size(v, what, &n, err);
		if (r == 0)
			r = body_number(body, sizes[i].key, n, err);
	}
	return r;
}

/* boughd names its own field and bytes: a limit that it refused as it was typed. */
static int explain_limit(const struct cli *cli, const struct args *a, int r, struct err *err)
{
	auto_json json_t *e = cli->detail ? json_loads(cli->detail, 0, NULL) : NULL;
	const char *field = get_text(json_object_get(e, "details"), "field");
	long long least, most;
	char low[OUT_SIZE_MAX], high[OUT_SIZE_MAX];
	if (sscanf(get_text(e, "message"), "\"%*[a-z_]\": %lld to %lld", &least, &most) != 2)
		return r;
	for (size_t i = 0; i < SIZES; i++)
		if (strcmp(field, sizes[i].key) == 0)
			return err_set(err, r, "--%s takes %s to %s, not %s", sizes[i].option,
				       out_size(low, least, sizes[i].counted),
				       out_size(high, most, sizes[i].counted),
				       args_get(a, sizes[i].option));
	return r;
}

/* "W[:TARGET][:ro][:exclusive]" */
int sandbox_set_attachment(json_t *o, const char *text, struct err *err)
{
	auto_free char *copy = strdup(text);
	char *save = NULL;
	if (!copy)
		return err_no_memory(err);
	char *name = strtok_r(copy, ":", &save);
	int r = name ? body_text(o, "workspace", name, err)
		     : err_set(err, -EINVAL, "--workspace takes W[:TARGET][:ro][:exclusive]");
	for (char *p = strtok_r(NULL, ":", &save); p && r == 0; p = strtok_r(NULL, ":", &save)) {
		bool ro = strcmp(p, "ro") == 0, alone = strcmp(p, "exclusive") == 0;
		if (*p == '/')
			r = body_text(o, "target", p, err);
		else if (!ro && !alone && strcmp(p, "rw") != 0)
			r = err_set(err, -EINVAL,
				    "\"%s\": a target begins with /; else ro, rw or "
				    "exclusive",
				    p);
		else if (ro || alone)
			(void)json_object_set_new(o, ro ? "read_only" : "exclusive", json_true());
	}
	return r;
}

static int set_workspaces(json_t *body, const struct args *a, const char *made, struct err *err)
{
	const char *v;
	bool any = made || args_each(a, "workspace", 0);
	json_t *list = any ? body_list(body, "workspaces") : NULL;
	json_t *one = made ? json_pack("{s:s, s:b}", "workspace", made, "own", true) : NULL;
	if (made && (!one || json_array_append_new(list, one) < 0))
		return err_no_memory(err);
	int r = 0;
	for (unsigned i = 0; r == 0 && (v = args_each(a, "workspace", i)); i++) {
		one = json_object();
		if (!one || json_array_append_new(list, one) < 0)
			return err_no_memory(err);
		r = sandbox_set_attachment(one, v, err);
	}
	return r;
}

static int fill_body(json_t *body, const struct args *a, bool tty, struct err *err)
{
	static const char *const texts[] = { "name", "image", "runtime",  "user",
					     "cwd",  "net",   "hostname", NULL };
	static const char *const flags[] = { "usr-local", NULL };
	const char *first = args_get(a, "entrypoint");
	int r = body_texts(body, a, texts, err);
	if (r == 0)
		r = body_flags(body, a, flags, err);
	if (r == 0)
		r = set_limits(body, a, err);
	if (r == 0)
		r = set_env(body, a, err);
	if (r == 0)
		r = sandbox_set_secrets(body, a, err);
	if (r == 0)
		r = sandbox_set_keeping(body, a, err);
	if (r == 0 && first)
		r = *first                          ? body_add(body, "entrypoint", first, err)
		    : body_list(body, "entrypoint") ? 0
						    : err_no_memory(err);
	if (r == 0 && a->n > 0)
		r = set_command(body, a, 0, err);
	else if (r == 0 && args_get(a, "image-command")) /* an empty one means that */
		r = body_list(body, "command") ? 0 : err_no_memory(err);
	if (r == 0 && tty)
		r = body_bool(body, "tty", true, err);
	if (r == 0 && args_get(a, "interactive"))
		r = body_bool(body, "stdin", true, err);
	if (r == 0 && args_get(a, "rm")) /* where this program can't do it itself */
		r = body_bool(body, "auto_remove", true, err);
	return r;
}

/* ---- run ---- */

/* A workspace made for it: --from, --git. *made is its name, the caller's; NULL: none. */
static int make_workspace(struct cli *cli, const struct args *a, json_t *body, char **made,
			  struct err *err)
{
	const char *from = args_get(a, "from"), *git = args_get(a, "git");
	char name[32];
	if (!from && !git)
		return 0;
	if ((from && git) || args_each(a, "workspace", 0))
		return err_set(err, -EINVAL, "give one of --workspace, --from and --git");
	if (!*get_text(body, "name")) {
		uint64_t v = 0;
		if (getrandom(&v, sizeof(v), 0) != sizeof(v))
			return err_sys(err, -errno, "a random name");
		(void)snprintf(name, sizeof(name), "s-%010llx",
			       (unsigned long long)v & 0xffffffffff);
		int r = body_text(body, "name", name, err);
		if (r < 0)
			return r;
	}
	auto_free char *ws = NULL;
	if (asprintf(&ws, "%s-ws", get_text(body, "name")) < 0)
		return err_no_memory(err);
	auto_json json_t *wanted = json_object(), *doc = NULL;
	int r = wanted ? body_text(wanted, "name", ws, err) : err_no_memory(err);
	if (r == 0)
		r = from ? body_text(wanted, "from", from, err) : checkout_set(wanted, a, err);
	if (r == 0 && git) /* as set_workspaces has it */
		r = body_text(json_object_get(wanted, "git"), "seen_at", "/workspace", err);
	if (r < 0)
		return r;
	struct progress p;
	auto_target t = target_new("/v1/workspaces");
	progress_begin(&p, cli, "checking out");
	r = git ? api_job(cli, "POST", &t, wanted, NULL, &p, &doc, err)
		: api_call(cli, "POST", &t, wanted, &doc, NULL, err);
	auto_target there = target_ws(ws, "");
	if (r == 0)
		*made = steal_ptr(&ws);
	else if (r == -EEXIST && api_exists(cli, &there))
		err_set(err, r,
			"there is a workspace \"%s\", of a sandbox before this one: --workspace %s "
			"goes on with it, `bough rm %s` removes it",
			ws, ws, ws);
	return r;
}

static void drop_workspace(struct cli *cli, const char *name)
{
	auto_target t = target_ws(name, "");
	target_query(&t, "purge", "true");
	(void)api_aside(cli, "DELETE", &t, NULL); /* there is another failure to tell of */
}

static int remove_sandbox(struct cli *cli, const char *name, struct err *err)
{
	auto_target t = target_sandbox(name, "");
	target_query(&t, "force", "true");
	int r = api_call(cli, "DELETE", &t, NULL, NULL, NULL, err);
	return r == -ENOENT ? 0 : r;
}

/* What its end means for the caller. */
static int exit_code(const struct cli *cli, const struct attach *at)
{
	if (!cli->quiet && strcmp(at->reason, "oom") == 0)
		fprintf(stderr, "bough: it was killed: out of memory (--memory gives it more)\n");
	if (!cli->quiet && strcmp(at->reason, "lost") == 0)
		fprintf(stderr, "bough: nobody knows how it ended: its shim has died\n");
	return at->code;
}

static int run_attached(struct cli *cli, const struct args *a, const char *id, bool tty,
			struct err *err)
{
	struct attach at = { .sandbox = id,
			     .exec = "main",
			     .follow = true,
			     .in = args_get(a, "interactive"),
			     .tty = tty,
			     .signals = true };
	int r = attach_run(cli, &at, err);
	return r < 0 ? r : exit_code(cli, &at);
}

int cmd_run(struct cli *cli, const struct args *a, struct err *err)
{
	bool tty = args_get(a, "tty"), detach = args_get(a, "detach");
	bool own = args_get(a, "image-command");
	auto_json json_t *body = json_object(), *doc = NULL;
	auto_free char *made = NULL;
	if (detach && (tty || args_get(a, "interactive")))
		return err_set(err, -EINVAL, "-d leaves it alone: it goes without -i and -t");
	if (own && a->n > 0)
		return err_set(err, -EINVAL, "give either a COMMAND or --image-command");
	if (args_get(a, "rm") && !a->n && !own && !tty && !detach)
		return err_set(err, -EINVAL,
			       "--rm without a COMMAND has no end to wait for: give "
			       "one, or -it for a shell, or -d: then it goes when it is stopped");
	int r = body ? fill_body(body, a, tty, err) : err_no_memory(err);
	if (r == 0 && a->n == 0 && !own && tty)
		r = body_add(body, "command", "/bin/sh", err); /* a shell, as one expects */
	else if (a->n == 0 && !own)
		detach = true; /* there is nothing to wait for */
	if (r == 0)
		r = make_workspace(cli, a, body, &made, err);
	if (r == 0)
		r = set_workspaces(body, a, made, err);
	if (r == 0) {
		auto_target t = target_new("/v1/sandboxes");
		r = api_call(cli, "POST", &t, body, &doc, NULL, err);
		if (r == -EINVAL)
			r = explain_limit(cli, a, r, err);
	}
	if (r < 0) {
		if (made)
			drop_workspace(cli, made);
		return r;
	}
	if (detach) {
		if (cli->json)
			return out_json(doc, err);
		printf("%s\n", get_text(doc, "name"));
		return 0;
	}
	r = run_attached(cli, a, get_text(doc, "id"), tty, err);
	if (args_get(a, "rm")) {
		struct err why = { 0 };
		int d = remove_sandbox(cli, get_text(doc, "id"), &why);
		if (d < 0)
			fprintf(stderr, "bough: run: --rm: %s\n", why.text);
	}
	return r;
}

/* ---- exec ---- */

static int start_exec(struct cli *cli, const struct args *a, const char *sandbox, json_t *body,
		      json_t **doc, struct err *err)
{
	static const char *const texts[] = { "user", "cwd", NULL };
	const char *timeout = args_get(a, "timeout"), *v;
	unsigned w, h;
	uint64_t ms = 0;
	int r = set_env(body, a, err);
	for (unsigned i = 0; r == 0 && (v = args_each(a, "env-file", i)); i++)
		r = add_env_file(body, "env", v, err);
	if (r == 0)
		r = body_texts(body, a, texts, err);
	if (r == 0 && timeout)
		r = args_duration(timeout, "--timeout", &ms, err);
	if (r == 0 && timeout)
		r = body_number(body, "timeout_ms", ms, err);
	if (r == 0 && get_true(body, "tty") && terminal_size(&w, &h)) {
		r = body_number(body, "columns", w, err);
		if (r == 0)
			r = body_number(body, "rows", h, err);
	}
	if (r < 0)
		return r;
	auto_target t = target_sandbox(sandbox, "/exec");
	return api_call(cli, "POST", &t, body, doc, NULL, err);
}

static int exec(struct cli *cli, const struct args *a, json_t *body, bool tty, bool in,
		struct err *err)
{
	auto_json json_t *doc = NULL;
	(void)json_object_set_new(body, "tty", json_boolean(tty));
	(void)json_object_set_new(body, "stdin", json_boolean(in));
	int r = start_exec(cli, a, a->operands[0], body, &doc, err);
	if (r < 0)
		return r;
	if (args_get(a, "detach")) {
		if (cli->json)
			return out_json(doc, err);
		printf("%s\n", get_text(doc, "id"));
		return 0;
	}
	struct attach at = { .sandbox = get_text(doc, "sandbox"),
			     .exec = get_text(doc, "id"),
			     .follow = true,
			     .in = in,
			     .tty = tty,
			     .signals = true };
	r = attach_run(cli, &at, err);
	return r < 0 ? r : exit_code(cli, &at);
}

int cmd_exec(struct cli *cli, const struct args *a, struct err *err)
{
	bool tty = args_get(a, "tty"), in = args_get(a, "interactive");
	auto_json json_t *body = json_object();
	if (args_get(a, "detach") && (tty || in))
		return err_set(err, -EINVAL, "-d leaves it alone: it goes without -i and -t");
	int r = set_command(body, a, 1, err);
	return r < 0 ? r : exec(cli, a, body, tty, in, err);
}

/* The shell that root has there, or what is asked for; as a login shell. */
int cmd_shell(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const any[] = { "/bin/sh", "-c",
					   "command -v bash >/dev/null && exec bash; exec sh" };
	auto_json json_t *body = json_object();
	const char *shell = args_get(a, "shell");
	int r = shell ? body_add(body, "command", shell, err) : 0;
	for (size_t i = 0; i < sizeof(any) / sizeof(any[0]) && !shell && r == 0; i++)
		r = body_add(body, "command", any[i], err);
	return r < 0 ? r : exec(cli, a, body, isatty(STDIN_FILENO), true, err);
}

/* ---- logs ---- */

/* S: its own process's; S EXEC, or EXEC alone. */
int cmd_logs(struct cli *cli, const struct args *a, struct err *err)
{
	const char *since = args_get(a, "since-byte"), *of = args_get(a, "exec");
	uint64_t at = 0;
	int r = since ? args_number(since, "--since-byte", 0, INT64_MAX, &at, err) : 0;
	if (r < 0)
		return r;
	const char *key = a->operands[0];
	if (strncmp(key, "ex_", 3) == 0 && !of)
		of = key; /* whose it is, boughd knows */
	struct attach to = { .sandbox = key,
			     .exec = of ? of : "main",
			     .follow = args_get(a, "follow"),
			     .at = { at, 0 } };
	r = attach_run(cli, &to, err);
	return r == -ENOENT && of == key
		       ? err_set(err, r, "no exec \"%s\": it goes with its sandbox", key)
		       : r;
}
