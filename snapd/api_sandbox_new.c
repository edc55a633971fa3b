/* Making a sandbox: what a request says, and what it means. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/base64.h"
#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "snapd/access.h"
#include "snapd/api_sandbox.h"

enum {
	DISK_DEFAULT_GB = 10,
	INODES_DEFAULT = 1000000,
	CPU_MAX_MILLI = 1024 * 1000,
	MEMORY_LEAST = 6 << 20, /* below, no runtime gets a process started */
	PIDS_LEAST = 4,
};

/* ---- secrets ---- */

static int add_file(struct secrets *s, struct request *rq, const char *name, const json_t *v,
		    struct err *err)
{
	const char *text = json_string_value(v);
	size_t n = json_string_length(v);
	auto_free uint8_t *data = text ? malloc(n / 4 * 3 + 1) : NULL;
	if (!text || name_check(name, NULL) < 0)
		return request_bad_field(rq, "secrets", err,
					 "names as of files, and their content in base64");
	if (!data)
		return err_no_memory(err);
	int len = base64_decode(text, n, data, n / 4 * 3);
	if (len < 0 || len > SANDBOX_SECRET_MAX)
		return request_bad_field(rq, "secrets", err, "%.60s: base64 of at most %d KiB",
					 name, SANDBOX_SECRET_MAX >> 10);
	int r = secrets_add(s, name, data, (size_t)len, err);
	explicit_bzero(data, n / 4 * 3 + 1);
	return r;
}

/* One file of NUL-ended strings, which bough-init adds to the environment. */
static int add_env(struct secrets *s, const json_t *list, struct err *err)
{
	auto_buf b = { 0 };
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *one = json_string_value(json_array_get(list, i));
		buf_add(&b, one, strlen(one) + 1);
	}
	int r = buf_error(&b) ? err_no_memory(err) : 0;
	if (r == 0 && b.len)
		r = secrets_add(s, BOX_SECRET_ENV, b.data, b.len, err);
	if (b.data)
		explicit_bzero(b.data, b.len);
	return r;
}

int api_sandbox_secrets(struct request *rq, struct secrets *out, struct err *err)
{
	json_t *files = json_object_get(rq->body, "secrets"), *v;
	const json_t *env = json_object_get(rq->body, "secret_env");
	const char *name;
	struct err why = { 0 };
	int r = 0;
	if (json_object_size(files) > SANDBOX_SECRETS_MAX)
		return request_bad_field(rq, "secrets", err, "at most %d", SANDBOX_SECRETS_MAX);
	json_object_foreach(files, name, v)
		if (r >= 0)
			r = add_file(out, rq, name, v, err);
	if (r >= 0 && spec_env_check(env, &why) < 0)
		r = request_bad_field(rq, "secret_env", err, "%s", why.text);
	return r < 0 ? r : add_env(out, env, err);
}

/* ---- what it is ---- */

struct made {
	struct sandbox_new n;
	json_t *names[4]; /* what the spec borrows from */
	struct sandbox_image image;
	struct attached_row *attached;
	char *labels;
	char name[NAME_SIZE], hostname[65];
};

static void made_done(struct made *m)
{
	for (size_t i = 0; i < 4; i++)
		json_decref(m->names[i]);
	json_decref(m->n.process);
	sandbox_image_done(&m->image);
	free(m->attached);
	free(m->labels);
}

static int limit(struct request *rq, const char *key, uint64_t least, uint64_t most,
		 uint64_t otherwise, uint64_t *out, struct err *err)
{
	*out = request_number(rq, key, otherwise);
	if (*out < least || *out > most)
		return request_bad_field(rq, key, err, "%llu to %llu", (unsigned long long)least,
					 (unsigned long long)most);
	return 0;
}

static int take_limits(struct made *m, struct request *rq, struct err *err)
{
	struct sandbox_spec *s = &m->n.spec;
	uint64_t cpu = 0, pids = 0;
	int r = limit(rq, "cpu_milli", 10, CPU_MAX_MILLI, BOX_LIMITS.cpu_milli, &cpu, err);
	if (r >= 0)
		r = limit(rq, "memory_bytes", MEMORY_LEAST, 1ULL << 50, BOX_LIMITS.memory,
			  &s->limits.memory, err);
	if (r >= 0)
		r = limit(rq, "pids", PIDS_LEAST, 4 << 20, BOX_LIMITS.pids, &pids, err);
	if (r >= 0)
		r = limit(rq, "shm_bytes", 4096, 1ULL << 50, BOX_LIMITS.shm, &s->limits.shm, err);
	if (r >= 0)
		r = limit(rq, "disk_bytes", 1 << 20, 1ULL << 50, (uint64_t)DISK_DEFAULT_GB << 30,
			  &s->disk, err);
	if (r >= 0)
		r = limit(rq, "inodes", 100, 1ULL << 40, INODES_DEFAULT, &s->inodes, err);
	s->limits.cpu_milli = (uint32_t)cpu;
	s->limits.pids = (uint32_t)pids;
	return r;
}

/* A host's name by RFC 1123, from the sandbox's where nobody gives one. */
static int take_hostname(struct made *m, struct request *rq, struct err *err)
{
	const char *given = request_string(rq, "hostname"), *from = given ? given : m->name;
	size_t n = 0;
	for (; *from && n < sizeof(m->hostname) - 1; from++) {
		bool plain = (*from >= 'a' && *from <= 'z') || (*from >= 'A' && *from <= 'Z') ||
			     (*from >= '0' && *from <= '9');
		if (!plain && given && *from != '-' && *from != '.')
			return request_bad_field(rq, "hostname", err, "letters, digits, - and .");
		m->hostname[n++] = plain || (given && *from == '.') ? *from : '-';
	}
	if (n == 0 || (given && (*from || m->hostname[0] == '-' || m->hostname[0] == '.')))
		return request_bad_field(rq, "hostname", err, "1 to 64 characters");
	m->n.spec.hostname = m->hostname;
	return 0;
}

static int take_runtime(struct made *m, struct request *rq, struct err *err)
{
	const char *name = request_string(rq, "runtime"), *net = request_string(rq, "net");
	m->n.spec.runtime = name ? name : runtime_default();
	if (!runtime_find(m->n.spec.runtime))
		return request_bad_field(rq, "runtime", err, "no runtime \"%.40s\"", name);
	if (net && strcmp(net, "none") != 0 && strcmp(net, "host") != 0)
		return request_bad_field(rq, "net", err, "none or host");
	m->n.spec.net_host = net && strcmp(net, "host") == 0;
	if (m->n.spec.net_host && access_need_admin(rq, NULL) < 0)
		return err_set(err, -EPERM, "only an admin may give a sandbox this host's network");
	return 0;
}

static int take_image(struct made *m, struct request *rq, struct err *err)
{
	const char *key = request_string(rq, "image");
	struct meant found;
	struct sandbox_spec *s = &m->n.spec;
	s->image = key ? key : "host";
	key = s->image;
	if (strcmp(key, "host") != 0) {
		int r = access_find(rq->ctx, rq->caller, NOUN_SNAPSHOT, false, key, &found, err);
		if (r < 0)
			return r == -ENOENT ? err_set(err, r,
						      "no image \"%s\": `bough image ls` shows "
						      "what there is",
						      key)
					    : r;
		key = found.id;
	}
	int r = sandbox_image_find(rq->ctx, key, &m->image, err);
	if (r < 0)
		return r;
	s->snapshot = m->image.snapshot;
	s->host_image = m->image.host;
	s->usr_local = request_bool(rq, "usr_local", false);
	if (s->usr_local && !s->host_image)
		return request_bad_field(rq, "usr_local", err, "only of the image \"host\"");
	return 0;
}

static const char *image_text(const struct made *m, const char *key)
{
	const char *s = json_string_value(json_object_get(m->image.config, key));
	return s && *s ? s : NULL;
}

static int check_words(struct request *rq, const char *key, bool env, struct err *err)
{
	struct err why = { 0 };
	const json_t *list = json_object_get(rq->body, key);
	int r = env ? spec_env_check(list, &why) : spec_words_check(list, 0, &why);
	return r < 0 ? request_bad_field(rq, key, err, "%s", why.text) : 0;
}

/* The image's entrypoint goes before the command; an empty command is the image's own; none at
 * all: the sandbox waits for execs. NULL: out of memory. */
static json_t *whole_command(const struct made *m, const struct request *rq)
{
	json_t *given = json_object_get(rq->body, "command");
	json_t *entry = json_object_get(rq->body, "entrypoint");
	if (!json_is_array(given))
		return json_null();
	if (!json_is_array(entry))
		entry = json_object_get(m->image.config, "entrypoint");
	if (json_array_size(given) == 0)
		given = json_object_get(m->image.config, "cmd");
	json_t *out = json_array();
	if (out && ((json_is_array(entry) && json_array_extend(out, entry) < 0) ||
		    (json_is_array(given) && json_array_extend(out, given) < 0))) {
		json_decref(out);
		return NULL;
	}
	return out;
}

static int take_process(struct made *m, struct request *rq, struct err *err)
{
	struct sandbox_spec *s = &m->n.spec;
	const char *user = request_string(rq, "user"), *cwd = request_string(rq, "cwd");
	json_t *env = json_object_get(rq->body, "env");
	int r = check_words(rq, "env", true, err);
	if (r >= 0)
		r = check_words(rq, "command", false, err);
	if (r >= 0)
		r = check_words(rq, "entrypoint", false, err);
	if (r < 0)
		return r;
	m->names[0] = whole_command(m, rq);
	m->names[1] = spec_env_names(env);
	m->names[2] = spec_env_names(json_object_get(rq->body, "secret_env"));
	m->names[3] = json_array();
	const char *name;
	json_t *v;
	int bad = !m->names[0] || !m->names[1] || !m->names[2] || !m->names[3];
	json_object_foreach(json_object_get(rq->body, "secrets"), name, v)
		bad |= json_array_append_new(m->names[3], json_string(name));
	m->n.process = json_pack("{s:O, s:o}", "argv", m->names[0], "env",
				 json_is_array(env) ? json_incref(env) : json_array());
	if (bad || !m->n.process)
		return err_no_memory(err);
	s->command = json_is_array(m->names[0]) ? m->names[0] : NULL;
	if (s->command && json_array_size(s->command) == 0)
		return request_bad_field(rq, "command", err, "the image has none of its own");
	struct err why = { 0 }; /* of what the image brings, too: it would never start */
	if (s->command && spec_words_check(s->command, 0, &why) < 0)
		return request_bad_field(rq, "command", err, "with the image's own: %s", why.text);
	s->env = m->names[1];
	s->secret_env = m->names[2];
	s->secrets = m->names[3];
	s->user = user ? user : image_text(m, "user");
	s->cwd = cwd ? cwd : m->n.n_attached ? NULL : image_text(m, "workdir");
	s->tty = request_bool(rq, "tty", false);
	s->in = request_bool(rq, "stdin", false);
	s->auto_remove = request_bool(rq, "auto_remove", false);
	return cwd && *cwd != '/' ? request_bad_field(rq, "cwd", err, "an absolute path") : 0;
}

/* ---- what is attached ---- */

static const struct field attach_fields[] = {
	{ "workspace", FIELD_STRING, true, 0 },
	{ "target", FIELD_STRING, false, TARGET_SIZE - 1 },
	{ "read_only", FIELD_BOOL, false, 0 },
	{ "exclusive", FIELD_BOOL, false, 0 },
	{ "own", FIELD_BOOL, false, 0 },
	{ 0 },
};

static int check_target(struct request *rq, const char *target, bool host_image, struct err *err)
{
	struct err why = { 0 };
	int r = box_check_target(target, host_image, &why);
	if (r >= 0)
		r = web_file_path_check(target + 1, &why);
	return r < 0 ? request_bad_field(rq, "target", err, "%s", why.text) : 0;
}

int api_sandbox_attachment(struct request *rq, json_t *j, bool host_image,
			   struct attached_row *out, struct err *err)
{
	struct meant found;
	const char *target = json_string_value(json_object_get(j, "target"));
	int r = json_is_object(j)
			? web_fields_check(j, attach_fields, &rq->details, err)
			: request_bad_field(rq, "workspaces", err, "objects are expected");
	if (r < 0)
		return r;
	*out = (struct attached_row){ .read_only = json_is_true(json_object_get(j, "read_only")),
				      .exclusive = json_is_true(json_object_get(j, "exclusive")),
				      .own = json_is_true(json_object_get(j, "own")) };
	sandbox_vouch(out->by);
	/* For itself alone: nobody else could use it, its owner neither. Its own: goes with it. */
	r = access_find(rq->ctx, rq->caller, NOUN_WORKSPACE,
			!out->read_only || out->exclusive || out->own,
			json_string_value(json_object_get(j, "workspace")), &found, err);
	if (r < 0)
		return r;
	auto_ws_row ws = { 0 };
	struct snapd *sd = rq->ctx;
	r = catalog_ws_get(sd->catalog, found.id, &ws, err);
	if (r >= 0 && ws.sandbox[0])
		r = err_set(err, -EBUSY, "it is the root of a sandbox");
	if (r < 0)
		return r;
	if (!target)
		target = "/workspace";
	r = check_target(rq, target, host_image, err);
	if (r < 0)
		return r;
	memcpy(out->workspace, found.id, ID_SIZE);
	(void)snprintf(out->target, sizeof(out->target), "%s", target);
	return 0;
}

static int take_attached(struct made *m, struct request *rq, struct err *err)
{
	json_t *list = json_object_get(rq->body, "workspaces");
	size_t n = json_array_size(list);
	int r = 0;
	if (n > BOX_MOUNTS)
		return request_bad_field(rq, "workspaces", err, "at most %d", BOX_MOUNTS);
	m->attached = calloc(n + 1, sizeof(*m->attached));
	if (!m->attached)
		return err_no_memory(err);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = api_sandbox_attachment(rq, json_array_get(list, i), m->image.host,
					   &m->attached[i], err);
	m->n.attached = m->attached;
	m->n.n_attached = n;
	return r;
}

/* ---- all of it ---- */

int api_sandbox_name(struct request *rq, const char *field, const char *name, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct err why = { 0 };
	if (name_check(name, &why) < 0)
		return request_bad_field(rq, field, err, "%s", why.text);
	int r = catalog_sandbox_has_name(sd->catalog, rq->caller->owner, name, err);
	return r > 0 ? err_set(err, -EEXIST, "there is a sandbox \"%s\" already", name) : r;
}

static int take_name(struct made *m, struct request *rq, struct err *err)
{
	const char *name = request_string(rq, "name");
	char id[ID_SIZE];
	if (!name) { /* one that says nothing */
		id_make(id, "sb");
		(void)snprintf(m->name, sizeof(m->name), "s-%s", id + 3);
	} else {
		(void)snprintf(m->name, sizeof(m->name), "%.*s", NAME_CHARS, name);
	}
	m->n.name = m->name;
	return name ? api_sandbox_name(rq, "name", name, err) : 0;
}

static int take_all(struct made *m, struct request *rq, struct err *err)
{
	int r = take_name(m, rq, err);
	if (r >= 0)
		r = api_own_take(rq, &m->n.own, err);
	if (r >= 0)
		r = take_runtime(m, rq, err);
	if (r >= 0)
		r = take_hostname(m, rq, err);
	if (r >= 0)
		r = take_limits(m, rq, err);
	if (r >= 0)
		r = take_image(m, rq, err);
	if (r >= 0)
		r = take_attached(m, rq, err);
	if (r >= 0)
		r = take_process(m, rq, err);
	if (r < 0)
		return r;
	m->labels = api_labels_text(json_object_get(rq->body, "labels"));
	m->n.labels = m->labels;
	m->n.description = request_string(rq, "description");
	return m->labels ? 0 : err_no_memory(err);
}

/* One that can't be started isn't made. */
static int start(struct snapd *sd, const char *id, const struct secrets *secrets, struct err *err)
{
	auto_lease lease = { 0 };
	struct err why = { 0 };
	int r = lease_take(&lease, sd->leases, id, LEASE_EXCLUSIVE, "start", LEASE_WAIT_MS, err);
	if (r >= 0)
		r = sandbox_start(sd, id, secrets, err);
	if (r < 0 && sandbox_remove(sd, id, SANDBOX_FORCE, &why) < 0)
		log_error("sandbox %s: %s", id, why.text);
	return r;
}

int api_sandbox_create(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct made m = { 0 };
	auto_secrets secrets = { 0 };
	auto_sandbox_row row = { 0 };
	int r = geteuid() != 0 ? err_set(err, -EPERM, "sandboxes need a boughd that runs as root")
			       : api_sandbox_secrets(rq, &secrets, err);
	if (r >= 0)
		r = take_all(&m, rq, err);
	m.n.start = request_bool(rq, "start", true);
	if (r >= 0)
		r = sandbox_make(sd, &m.n, &row, err);
	if (r >= 0 && m.n.start)
		r = start(sd, row.id, &secrets, err);
	made_done(&m);
	if (r < 0)
		return r;
	char id[ID_SIZE];
	memcpy(id, row.id, sizeof(id));
	sandbox_row_done(&row);
	r = catalog_sandbox_get(sd->catalog, id, &row, err);
	if (r < 0)
		return r;
	rp->status = 201;
	rp->json = api_sandbox(sd, &row);
	return rp->json ? 0 : err_no_memory(err);
}
