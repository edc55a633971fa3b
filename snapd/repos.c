/* What stands beside mirrors, and making catalog and disk agree. */
#include "snapd/repos.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "gitops/mirror.h"
#include "snapd/principal.h"

enum { FILE_NAME_SIZE = REPO_NAME_BYTES + 8, URL_MAX = 8192 };

json_t *oid_json(const struct oid *oid)
{
	char hex[OID_HEX + 1];
	oid_hex(hex, oid);
	return json_string(hex);
}

static int open_repos(const char *root, struct err *err)
{
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/repos", root);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "open %s", path) : fd;
}

static void file_name(char out[FILE_NAME_SIZE], uint32_t number, const char *suffix)
{
	char name[REPO_NAME_BYTES];
	repo_folder_name(name, number);
	(void)snprintf(out, FILE_NAME_SIZE, "%s%s", name, suffix);
}

static int remove_file(int dir, uint32_t number, const char *suffix, struct err *err)
{
	char name[FILE_NAME_SIZE];
	file_name(name, number, suffix);
	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return err_sys(err, -errno, "remove repos/%s", name);
	return 0;
}

const struct netrules *repo_guard(const struct snapd *sd, const struct repo_row *row)
{
	const struct doing *d = doing_now();
	bool elsewhere = (d && d->caller.token[0]) || strncmp(row->owner, "uid:", 4) != 0;
	return elsewhere ? &sd->git_networks : NULL;
}

/* ---- records ---- */

int repo_record_write(const char *root, const struct repo_row *row, struct err *err)
{
	char name[FILE_NAME_SIZE];
	auto_fd dir = open_repos(root, err);
	if (dir < 0)
		return dir;
	json_t *j = json_pack("{s:i, s:I, s:s, s:s, s:b, s:b, s:s, s:I, s:I, s:s}", "version", 1,
			      "number", (json_int_t)row->number, "name", row->name, "url", row->url,
			      "path", row->is_path, "global", row->global, "owner", row->owner,
			      "created_ns", (json_int_t)row->created_ns,
			      "fetched_ns", (json_int_t)row->fetched_ns, "head", row->head);
	auto_free char *text = j ? json_text(j, JSON_INDENT(1)) : NULL;
	json_decref(j);
	if (!text)
		return err_no_memory(err);
	file_name(name, row->number, ".json");
	return io_publish(&io_host, dir, name, text, strlen(text), true, err);
}

static bool get_number(const json_t *j, const char *key, int64_t max, int64_t *out)
{
	const json_t *v = json_object_get(j, key);
	*out = json_integer_value(v);
	return json_is_integer(v) && *out >= 0 && *out <= max;
}

static const char *get_string(const json_t *j, const char *key, size_t max)
{
	const char *s = json_string_value(json_object_get(j, key));
	return s && strlen(s) < max ? s : NULL;
}

/* Older ones have a uid; 2^32 - 1 stood for none. */
static bool get_owner(const json_t *j, char out[OWNER_SIZE])
{
	const char *s = get_string(j, "owner", OWNER_SIZE);
	int64_t uid;
	out[0] = '\0';
	if (s) {
		(void)snprintf(out, OWNER_SIZE, "%s", s);
		return !strchr(s, '/');
	}
	if (!get_number(j, "owner", UINT32_MAX, &uid))
		return false;
	if (uid < UINT32_MAX)
		owner_of_uid(out, (uid_t)uid);
	return true;
}

int repo_record_decode(struct repo_row *out, const void *data, size_t len)
{
	json_t *j = json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
	const char *name = get_string(j, "name", NAME_SIZE), *url = get_string(j, "url", URL_MAX);
	const char *head = get_string(j, "head", REPO_REF_MAX);
	int64_t number, created, fetched;
	char owner[OWNER_SIZE];
	bool ok = get_number(j, "number", UINT32_MAX, &number) && number > 0;
	ok = get_owner(j, owner) && ok;
	ok = get_number(j, "created_ns", INT64_MAX, &created) && ok;
	ok = get_number(j, "fetched_ns", INT64_MAX, &fetched) && ok;
	if (!ok || !name || !url || !head || name_check(name, NULL) < 0) {
		json_decref(j);
		return -EBADMSG;
	}
	struct repo_row row = {
		.number = (uint32_t)number,
		.url = strdup(url),
		.is_path = json_is_true(json_object_get(j, "path")),
		.global = json_is_true(json_object_get(j, "global")),
		.created_ns = created,
		.fetched_ns = fetched,
	};
	(void)snprintf(row.name, sizeof(row.name), "%s", name);
	memcpy(row.owner, owner, sizeof(row.owner));
	(void)snprintf(row.head, sizeof(row.head), "%s", head);
	json_decref(j);
	if (!row.url)
		return -ENOMEM;
	*out = row;
	return 0;
}

int repo_record_read(const char *root, uint32_t number, struct repo_row *out, struct err *err)
{
	char name[FILE_NAME_SIZE];
	auto_free void *data = NULL;
	auto_repo_row row = { 0 };
	size_t len;
	auto_fd dir = open_repos(root, err);
	if (dir < 0)
		return dir;
	file_name(name, number, ".json");
	int r = io_slurp(&io_host, dir, name, RECORD_MAX, &data, &len, err);
	if (r < 0)
		return r;
	r = repo_record_decode(&row, data, len);
	if (r >= 0 && row.number != number)
		r = -EBADMSG;
	if (r < 0)
		return err_sys(err, r, "repos/%s", name);
	*out = row;
	row = (struct repo_row){ 0 };
	return 0;
}

/* ---- secrets ---- */

static void wipe(char *s)
{
	if (s)
		explicit_bzero(s, strlen(s));
	free(s);
}

void repo_secret_done(struct repo_secret *s)
{
	wipe(s->token);
	wipe(s->ssh_key);
	wipe(s->known_hosts);
	*s = (struct repo_secret){ 0 };
}

int repo_secret_write(const char *root, uint32_t number, const struct repo_secret *s,
		      struct err *err)
{
	char name[FILE_NAME_SIZE];
	auto_fd dir = open_repos(root, err);
	if (dir < 0)
		return dir;
	if (!s->token && !s->ssh_key && !s->known_hosts)
		return remove_file(dir, number, ".secret", err);
	json_t *j = json_pack("{s:s*, s:s*, s:s*}", "token", s->token, "ssh_key", s->ssh_key,
			      "known_hosts", s->known_hosts);
	char *text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (!text)
		return err_set(err, -EINVAL, "the credentials aren't UTF-8");
	file_name(name, number, ".secret");
	int r = io_publish(&io_host, dir, name, text, strlen(text), true, err);
	wipe(text);
	return r;
}

static int copy(const json_t *j, const char *key, char **out)
{
	const char *s = json_string_value(json_object_get(j, key));
	*out = s ? strdup(s) : NULL;
	return s && !*out ? -ENOMEM : 0;
}

int repo_secret_read(const char *root, uint32_t number, struct repo_secret *out, struct err *err)
{
	char name[FILE_NAME_SIZE];
	void *data = NULL;
	size_t len;
	auto_repo_secret s = { 0 };
	*out = s;
	auto_fd dir = open_repos(root, err);
	if (dir < 0)
		return dir;
	file_name(name, number, ".secret");
	int r = io_slurp(&io_host, dir, name, RECORD_MAX, &data, &len, err);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	json_t *j = json_loadb(data, len, 0, NULL);
	explicit_bzero(data, len);
	free(data);
	r = json_is_object(j) ? 0 : -EBADMSG;
	if (r >= 0 && (copy(j, "token", &s.token) < 0 || copy(j, "ssh_key", &s.ssh_key) < 0 ||
		       copy(j, "known_hosts", &s.known_hosts) < 0))
		r = -ENOMEM;
	json_decref(j);
	if (r < 0)
		return err_sys(err, r, "repos/%s", name);
	*out = s;
	s = (struct repo_secret){ 0 };
	return 0;
}

int repo_forget(const char *root, uint32_t number, struct err *err)
{
	auto_fd dir = open_repos(root, err);
	int r = dir < 0 ? dir : remove_file(dir, number, ".json", err);
	if (r >= 0)
		r = remove_file(dir, number, ".secret", err);
	if (r >= 0 && fsync(dir) < 0)
		r = err_sys(err, -errno, "sync repos");
	return r;
}

/* ---- the start ---- */

/* Numbers of everything in the folder, each once or more. */
static int list_numbers(const char *root, uint32_t **out, size_t *n, struct err *err)
{
	uint32_t *all = NULL;
	size_t count = 0, cap = 0;
	int fd = open_repos(root, err);
	auto_dir *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		int r = fd < 0 ? fd : err_sys(err, -errno, "list repos");
		if (fd >= 0)
			close(fd);
		return r;
	}
	const struct dirent *e;
	while ((errno = 0, e = readdir(d))) {
		const char *name = e->d_name;
		size_t digits = strspn(name, "0123456789abcdef");
		if (digits != 8 ||
		    (name[8] && strcmp(name + 8, ".json") != 0 && strcmp(name + 8, ".secret") != 0))
			continue;
		if (array_grow(&all, count, &cap) < 0) {
			free(all);
			return err_no_memory(err);
		}
		all[count++] = (uint32_t)strtoul(name, NULL, 16);
	}
	if (errno) {
		int r = -errno;
		free(all);
		return err_sys(err, r, "list repos");
	}
	*out = all;
	*n = count;
	return 0;
}

static int adopt(struct snapd *sd, struct repo_row *row, struct err *err)
{
	int r = catalog_repo_insert(sd->catalog, row, err);
	if (r == -EEXIST) { /* its name is another's by now */
		char name[NAME_SIZE];
		(void)snprintf(name, sizeof(name), "%.*s-%u", NAME_CHARS - 12, row->name,
			       row->number);
		memcpy(row->name, name, sizeof(name));
		r = catalog_repo_insert(sd->catalog, row, err);
	}
	if (r >= 0)
		log_warn("adopted repository %s (%08x), which the catalog had lost", row->name,
			 row->number);
	return r;
}

static int look_at(struct snapd *sd, uint32_t number, struct err *err)
{
	char id[ID_SIZE];
	auto_repo_row row = { 0 };
	auto_repo_row record = { 0 };
	struct err why = { 0 };
	repo_lease_id(id, number);
	if (lease_is_held(sd->leases, id))
		return 0; /* being made just now */
	int known = catalog_repo_get(sd->catalog, id, &row, &why);
	if (known < 0 && known != -ENOENT)
		return err_set(err, known, "%s", why.text);
	int r = repo_record_read(sd->root, number, &record, &why);
	if (known >= 0)
		return r < 0 ? repo_record_write(sd->root, &row, err) : 0;
	if (r >= 0)
		return adopt(sd, &record, err);
	if (r != -ENOENT) {
		log_error("%s", why.text); /* kept: a person may want to look at it */
		return 0;
	}
	log_warn("removing repository %08x, which was never acknowledged", number);
	r = repo_forget(sd->root, number, err);
	return r < 0 ? r : mirror_remove(sd->root, number, err);
}

/* A row without a mirror is told at its use; it is removed by rm. */
int repos_reconcile(struct snapd *sd, struct err *err)
{
	uint32_t *numbers = NULL;
	size_t n = 0;
	if (catalog_damage(sd->catalog))
		return 0;
	int r = list_numbers(sd->root, &numbers, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++)
		r = look_at(sd, numbers[i], err);
	free(numbers);
	return r;
}
