/* Repositories: add, fetch, list, show, remove. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "gitops/mirror.h"
#include "gitops/url.h"
#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/journal.h"
#include "snapd/repos.h"

enum { FETCH_WAIT_MS = 60000 }; /* for another fetch of the same repository */

/* ---- JSON ---- */

static json_t *repo_json(const struct repo_row *row)
{
	char id[ID_SIZE];
	repo_lease_id(id, row->number);
	return json_pack("{s:s, s:I, s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s}", "id", id, "number",
			 (json_int_t)row->number, "name", row->name, row->is_path ? "path" : "url",
			 row->url, "kind", row->is_path ? "path" : "url", "created",
			 api_time(row->created_ns), "fetched", api_time(row->fetched_ns), "head",
			 row->head[0] ? json_string(row->head) : json_null(), "owner", row->owner,
			 "visibility", row->global ? "global" : "private");
}

json_t *api_repo(struct snapd *sd, const char *key)
{
	auto_repo_row row = { 0 };
	return catalog_repo_get(sd->catalog, key, &row, NULL) < 0 ? NULL : repo_json(&row);
}

/* Bytes of packs and loose objects. */
static uint64_t disk_bytes(const char *mirror)
{
	char path[PATH_SIZE];
	uint64_t sum = 0;
	(void)snprintf(path, sizeof(path), "%s/objects", mirror);
	auto_dir *d = opendir(path);
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		auto_dir *in = fd < 0 ? NULL : fdopendir(fd);
		const struct dirent *f;
		struct stat st;
		while (in && (f = readdir(in)))
			if (fstatat(fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			    S_ISREG(st.st_mode))
				sum += (uint64_t)st.st_blocks * 512;
		if (!in && fd >= 0)
			close(fd);
	}
	return sum;
}

static int count_tag(const char *name, void *ctx)
{
	uint64_t *n = ctx;
	*n += strncmp(name, "refs/tags/", 10) == 0;
	return 0;
}

static const char *auth_kind(const struct repo_secret *s)
{
	return s->token ? "token" : s->ssh_key ? "ssh_key" : NULL;
}

/* What is only told of one: it opens the mirror. */
static int add_details(struct snapd *sd, const struct repo_row *row, json_t *j, struct err *err)
{
	uint64_t ws = 0, snaps = 0, tags = 0;
	auto_mirror m = NULL;
	auto_mirror_branches branches = { 0 };
	auto_repo_secret secret = { 0 };
	struct oid head;
	char hex[OID_HEX + 1] = "";
	struct err why = { 0 };
	int r = catalog_repo_pins(sd->catalog, row->number, NULL, &ws, &snaps, NULL, err);
	if (r < 0)
		return r;
	if (mirror_open(&m, sd->root, row->number, &why) >= 0) {
		(void)git_reference_foreach_name(mirror_repo(m), count_tag, &tags); /* told: some */
		(void)mirror_branches(&branches, m, &why);
		if (mirror_resolve(m, NULL, &head, NULL, NULL) >= 0)
			oid_hex(hex, &head);
	}
	(void)repo_secret_read(sd->root, row->number, &secret,
			       NULL); /* only whether there is one */
	const char *auth = auth_kind(&secret);
	int bad = json_object_set_new(j, "commit", hex[0] ? json_string(hex) : json_null());
	bad |= json_object_set_new(j, "branches", json_integer((json_int_t)branches.n));
	bad |= json_object_set_new(j, "branch_list", api_branches(&branches, false));
	bad |= json_object_set_new(j, "tags", json_integer((json_int_t)tags));
	bad |= json_object_set_new(j, "bytes",
				   json_integer(m ? (json_int_t)disk_bytes(mirror_path(m)) : 0));
	bad |= json_object_set_new(j, "workspaces", json_integer((json_int_t)ws));
	bad |= json_object_set_new(j, "snapshots", json_integer((json_int_t)snaps));
	bad |= json_object_set_new(j, "auth", auth ? json_string(auth) : json_null());
	if (why.code)
		bad |= json_object_set_new(j, "error", json_string(why.text));
	return bad ? err_no_memory(err) : 0;
}

int api_repo_list(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct repo_row *rows;
	struct page page;
	char id[ID_SIZE];
	size_t n;
	int bad = 0, r = page_begin(&page, rq, err);
	if (r >= 0)
		r = catalog_repo_list(sd->catalog, &rows, &n, err);
	if (r < 0)
		return r;
	json_t *items = json_array();
	for (size_t i = 0; i < n; i++) {
		repo_lease_id(id, rows[i].number); /* which are in the order they were made in */
		if (access_sees_repo(rq->caller, &rows[i]) &&
		    page_takes(&page, (int64_t)rows[i].number, id))
			bad |= json_array_append_new(items, repo_json(&rows[i]));
	}
	repo_rows_free(rows, n);
	rp->json = page_end(&page, items);
	return rp->json && !bad ? 0 : err_no_memory(err);
}

int api_repo_get(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_repo_row row = { 0 };
	int r = catalog_repo_get(sd->catalog, rq->params[0], &row, err);
	json_t *j = r < 0 ? NULL : repo_json(&row);
	if (r >= 0)
		r = j ? add_details(sd, &row, j, err) : err_no_memory(err);
	if (r < 0) {
		json_decref(j);
		return r;
	}
	rp->json = j;
	return 0;
}

/* ---- what add and fetch have in common ---- */

struct move {
	struct snapd *sd;
	struct repo_row row;
	struct lease lease;
	struct repo_secret secret;
	bool keep_secret;    /* the ones given replace those on disk */
	struct stream *body; /* NULL: by URL */
	struct progress *progress;
	bool is_new;
};

static void move_free(void *task)
{
	struct move *m = task;
	repo_secret_done(&m->secret);
	repo_row_done(&m->row);
	lease_give(&m->lease);
	free(m);
}

static int on_progress(void *ctx, uint64_t done, uint64_t total, const char *what)
{
	struct move *m = ctx;
	progress_tell(m->progress, done, total, m->body ? "bytes" : "objects", what);
	return progress_cancelled(m->progress) ? -ECANCELED : 0;
}

static ssize_t on_read(void *ctx, void *buf, size_t n, struct err *err)
{
	struct move *m = ctx;
	ssize_t got = stream_read(m->body, buf, n, -1);
	return got < 0 ? err_set(err, -EBADMSG, "the upload broke off") : got;
}

/* A stream is whole when its end was seen, and that is behind the tar's. */
static int read_rest(struct move *m, struct err *err)
{
	char buf[8192];
	ssize_t got;
	size_t n = 0;
	while ((got = on_read(m, buf, sizeof(buf), err)) > 0)
		if ((n += (size_t)got) > WEB_DISCARD_MAX)
			return err_set(err, -EBADMSG, "too much behind the stream's end");
	return (int)got;
}

static int transfer(struct move *m, struct mirror_result *res, struct err *err)
{
	struct snapd *sd = m->sd;
	const struct mirror_progress p = { on_progress, m };
	const struct mirror_origin o = {
		.url = m->row.url,
		.token = m->secret.token,
		.ssh_key = m->secret.ssh_key,
		.known_hosts = m->secret.known_hosts,
		.guard = repo_guard(sd, &m->row),
	};
	if (m->body) {
		int r = mirror_take(sd->root, m->row.number, on_read, m, &p, res, err);
		return r < 0 ? r : read_rest(m, err);
	}
	return m->is_new ? mirror_clone(sd->root, m->row.number, &o, &p, res, err)
			 : mirror_fetch(sd->root, m->row.number, &o, &p, res, err);
}

/* The default branch, for the row. */
static void read_head(struct move *m)
{
	auto_mirror mirror = NULL;
	git_reference *head = NULL;
	m->row.head[0] = '\0';
	if (mirror_open(&mirror, m->sd->root, m->row.number, NULL) < 0)
		return;
	if (git_reference_lookup(&head, mirror_repo(mirror), "HEAD") >= 0) {
		const char *to = git_reference_symbolic_target(head);
		if (to && strncmp(to, "refs/heads/", 11) == 0)
			(void)snprintf(m->row.head, sizeof(m->row.head), "%s", to + 11);
	}
	git_reference_free(head);
}

static int answer(struct move *m, const struct mirror_result *res, json_t **result, struct err *err)
{
	auto_mirror mirror = NULL;
	auto_mirror_branches branches = { 0 };
	json_t *j = repo_json(&m->row);
	int bad = j ? 0 : -1;
	/* It is only told: what came is there. */
	if (mirror_open(&mirror, m->sd->root, m->row.number, NULL) >= 0)
		(void)mirror_branches(&branches, mirror, NULL);
	bad |= json_object_set_new(j, "apart", api_branches(&branches, true));
	bad |= json_object_set_new(j, "refs_changed", json_integer((json_int_t)res->refs_changed));
	bad |= json_object_set_new(j, "objects", json_integer((json_int_t)res->objects));
	bad |= json_object_set_new(j, "bytes_received", json_integer((json_int_t)res->bytes));
	if (bad) {
		json_decref(j);
		return err_no_memory(err);
	}
	*result = j;
	return 0;
}

/* What the other side says isn't this API's own "not found" or "unavailable"; an upload is no
 * other side. */
static int foreign(const struct move *m, int r)
{
	static const int codes[] = { -ENOENT,       -ECONNRESET, -ECONNREFUSED, -ESTALE,
				     -EHOSTUNREACH, -ETIMEDOUT,  -EBADMSG };
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]) && !m->body; i++)
		if (codes[i] == r)
			return -EREMOTEIO;
	return r == -EPERM ? -EACCES : m->body && r == -ENOENT ? -EIO : r;
}

/* ---- add ---- */

/* Secret, record, catalog: in this order, as the last two make it known. `told`: the answer. */
static int commit_new(struct move *m, const json_t *told, struct err *err)
{
	struct snapd *sd = m->sd;
	char id[ID_SIZE];
	auto_free char *text = json_text(told, JSON_COMPACT);
	repo_lease_id(id, m->row.number);
	int r = text ? repo_secret_write(sd->root, m->row.number, &m->secret, err)
		     : err_no_memory(err);
	if (r >= 0)
		r = catalog_intend_into(sd->catalog, id, text, err);
	if (r >= 0)
		r = repo_record_write(sd->root, &m->row, err);
	if (r >= 0)
		r = catalog_repo_insert(sd->catalog, &m->row, err);
	return r < 0 ? r : catalog_sync(sd->catalog, err);
}

static int add_run(void *task, struct progress *p, unsigned *status, json_t **result,
		   struct err *err)
{
	struct move *m = task;
	struct snapd *sd = m->sd;
	struct mirror_result res = { 0 };
	m->progress = p;
	int r = foreign(m, transfer(m, &res, err));
	if (r >= 0) {
		m->row.created_ns = m->row.fetched_ns = snapd_now_ns();
		read_head(m);
		r = answer(m, &res, result, err);
	}
	if (r >= 0)
		r = commit_new(m, *result, err);
	if (r < 0) {
		json_decref(*result);
		*result = NULL;
		/* Told: the first failure. What can't be removed now is by the next start. */
		(void)repo_forget(sd->root, m->row.number, NULL);
		(void)mirror_remove(sd->root, m->row.number, NULL);
		return r;
	}
	log_info("added repository %s (%08x)", m->row.name, m->row.number);
	upkeep_consider(sd->upkeep, m->row.number);
	*status = 201;
	return 0;
}

/* A name that its owner has free: the one given, or made from the place. */
static int choose_name(struct request *rq, struct move *m, const char *name, struct err *err)
{
	struct snapd *sd = m->sd;
	struct err why = { 0 };
	struct repo_row *taken = NULL;
	char key[OWNER_SIZE + NAME_SIZE];
	size_t n = 0;
	uint32_t number;
	if (name)
		(void)snprintf(m->row.name, sizeof(m->row.name), "%.100s", name);
	else
		git_url_name(m->row.name, sizeof(m->row.name), m->row.url);
	if ((name && strlen(name) > NAME_CHARS) ||
	    name_check(name ? name : m->row.name, &why) < 0 || repo_id_parse(m->row.name, &number))
		return request_bad_field(rq, "name", err, "%s",
					 why.code ? why.text : "a name has not the form of an id");
	(void)snprintf(key, sizeof(key), "%s/%s", m->row.owner, m->row.name);
	int r = catalog_repo_find(sd->catalog, key, &taken, &n, err);
	repo_rows_free(taken, n);
	if (r < 0 || n == 0)
		return r;
	return err_set(err, -EEXIST, "there is a repository \"%s\" already", m->row.name);
}

static int take_number(struct move *m, struct err *err)
{
	char id[ID_SIZE];
	int r = catalog_repo_number(m->sd->catalog, &m->row.number, err);
	if (r < 0)
		return r;
	repo_lease_id(id, m->row.number);
	return lease_take(&m->lease, m->sd->leases, id, LEASE_EXCLUSIVE, "add", 0, err);
}

static int start_move(struct reply *rp, struct move *m, int r,
		      int (*run)(void *task, struct progress *p, unsigned *status, json_t **result,
				 struct err *err))
{
	if (r < 0) {
		move_free(m);
		return r;
	}
	rp->job = run;
	rp->task = m;
	rp->task_free = move_free;
	return 0;
}

static int copy_secret(struct request *rq, const char *key, char **out, struct err *err)
{
	const char *s = request_string(rq, key);
	if (!s || !*s)
		return 0;
	*out = strdup(s);
	return *out ? 0 : err_no_memory(err);
}

static int read_secrets(struct request *rq, struct repo_secret *s, struct err *err)
{
	int r = copy_secret(rq, "token", &s->token, err);
	if (r >= 0)
		r = copy_secret(rq, "ssh_key", &s->ssh_key, err);
	if (r >= 0)
		r = copy_secret(rq, "known_hosts", &s->known_hosts, err);
	return r;
}

static struct move *move_new(struct snapd *sd, const char *url, struct err *err)
{
	struct move *m = calloc(1, sizeof(*m));
	if (!m || (url && !(m->row.url = strdup(url)))) {
		free(m);
		(void)err_no_memory(err);
		return NULL;
	}
	m->sd = sd;
	doing_owner(m->row.owner);
	return m;
}

int api_repo_add(struct request *rq, struct reply *rp, struct err *err)
{
	const char *url = request_string(rq, "url");
	struct err why = { 0 };
	if (git_url_parse(NULL, url, &why) < 0)
		return request_bad_field(rq, "url", err, "%s", why.text);
	struct move *m = move_new(rq->ctx, url, err);
	if (!m)
		return -ENOMEM;
	m->is_new = true;
	int r = choose_name(rq, m, request_string(rq, "name"), err);
	if (r >= 0)
		r = read_secrets(rq, &m->secret, err);
	if (r >= 0)
		r = take_number(m, err);
	return start_move(rp, m, r, add_run);
}

int api_repo_import(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *path = request_query(rq, "path");
	const char *damage = catalog_damage(sd->catalog);
	if (damage)
		return err_set(err, -EUCLEAN, "the catalog is damaged: bough fsck --repair");
	if (!path || path[0] != '/' || strlen(path) >= PATH_SIZE)
		return request_bad_field(rq, "path", err, "an absolute path is expected");
	struct move *m = move_new(sd, path, err);
	if (!m)
		return -ENOMEM;
	m->is_new = true;
	m->row.is_path = true;
	m->body = rq->upload;
	int r = choose_name(rq, m, request_query(rq, "name"), err);
	if (r >= 0)
		r = take_number(m, err);
	return start_move(rp, m, r, add_run);
}

/* ---- fetch ---- */

static int fetch_run(void *task, struct progress *p, unsigned *status, json_t **result,
		     struct err *err)
{
	struct move *m = task;
	struct snapd *sd = m->sd;
	struct mirror_result res = { 0 };
	m->progress = p;
	int r = foreign(m, transfer(m, &res, err));
	if (r < 0)
		return r;
	m->row.fetched_ns = snapd_now_ns();
	read_head(m);
	if (m->keep_secret)
		r = repo_secret_write(sd->root, m->row.number, &m->secret, err);
	if (r >= 0)
		r = repo_record_write(sd->root, &m->row, err);
	if (r >= 0)
		r = catalog_repo_fetched(sd->catalog, &m->row, err);
	if (r < 0)
		return r;
	upkeep_consider(sd->upkeep, m->row.number);
	return answer(m, &res, result, err);
}

/* What came with it as a secret isn't kept before it was found good. */
static json_t *fetch_again(void *task)
{
	const struct move *m = task;
	char id[ID_SIZE];
	repo_lease_id(id, m->row.number);
	return m->keep_secret ? NULL : json_pack("{s:s, s:s}", "call", "fetch", "of", id);
}

/* Found and leased; upkeep of it gives way. */
static int find_for_fetch(struct move *m, const char *id, bool is_path, struct err *err)
{
	struct snapd *sd = m->sd;
	auto_repo_row before = { 0 };
	int r = catalog_repo_get(sd->catalog, id, &before, err);
	if (r < 0)
		return r;
	upkeep_give_way(sd->upkeep, before.number);
	r = lease_take(&m->lease, sd->leases, id, LEASE_SAVE, "fetch", FETCH_WAIT_MS, err);
	/* Again: it may be gone by now. */
	if (r >= 0)
		r = catalog_repo_get(sd->catalog, id, &m->row, err);
	if (r >= 0 && m->row.is_path != is_path)
		r = err_set(err, -EINVAL,
			    m->row.is_path ? "%s comes from a path: its files are uploaded"
					   : "%s comes from a URL: nothing is uploaded",
			    m->row.name);
	return r;
}

int api_repo_fetch(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	struct move *m = move_new(sd, NULL, err);
	if (!m)
		return -ENOMEM;
	int r = find_for_fetch(m, rq->params[0], false, err);
	if (r >= 0)
		r = read_secrets(rq, &m->secret, err);
	m->keep_secret = m->secret.token || m->secret.ssh_key || m->secret.known_hosts;
	if (r >= 0 && !m->keep_secret)
		r = repo_secret_read(sd->root, m->row.number, &m->secret, err);
	rp->again = fetch_again;
	return start_move(rp, m, r, fetch_run);
}

int api_repo_update(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	const char *damage = catalog_damage(sd->catalog);
	if (damage)
		return err_set(err, -EUCLEAN, "the catalog is damaged: bough fsck --repair");
	struct move *m = move_new(sd, NULL, err);
	if (!m)
		return -ENOMEM;
	m->body = rq->upload;
	return start_move(rp, m, find_for_fetch(m, rq->params[0], true, err), fetch_run);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int api_repo_packs(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	auto_repo_row row = { 0 };
	auto_buf list = { 0 };
	auto_free char **names = NULL;
	size_t n = 0, cap = 0;
	struct page page;
	int bad = 0, r = page_begin_names(&page, rq, err);
	if (r >= 0)
		r = catalog_repo_get(sd->catalog, rq->params[0], &row, err);
	if (r >= 0)
		r = snapd_inner(mirror_taken(sd->root, row.number, &list, err));
	if (r < 0)
		return r;
	buf_u8(&list, 0);
	if (buf_error(&list))
		return err_no_memory(err);
	for (char *save = NULL, *line = strtok_r((char *)list.data, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (array_grow(&names, n, &cap) < 0)
			return err_no_memory(err);
		names[n++] = line;
	}
	if (n > 0)
		qsort(names, n, sizeof(*names), by_text);
	json_t *items = json_array();
	for (size_t i = 0; i < n; i++)
		if (page_takes_name(&page, names[i]))
			bad |= json_array_append_new(items, json_string(names[i]));
	rp->json = page_end(&page, items);
	return rp->json && !bad ? 0 : err_no_memory(err);
}

/* ---- rm ---- */

static int refuse_pinned(struct request *rq, const struct repo_row *row, struct err *err)
{
	struct snapd *sd = rq->ctx;
	uint64_t ws = 0, snaps = 0;
	char one[NAME_SIZE];
	const char *who = rq->caller->admin ? NULL : rq->caller->owner;
	int r = catalog_repo_pins(sd->catalog, row->number, NULL, &ws, &snaps, NULL, err);
	if (r < 0 || ws + snaps == 0)
		return r;
	r = catalog_repo_pins(sd->catalog, row->number, who, &ws, &snaps, one, err);
	if (r < 0)
		return r;
	if (ws + snaps == 0)
		return err_set(err, -EBUSY, "repository %s is used by what isn't yours to see",
			       row->name);
	return err_set(err, -EBUSY,
		       "repository %s is used by %llu workspace%s (deleted ones too, until "
		       "`bough rm --now` or their time is up) and %llu snapshot%s, such as %s",
		       row->name, (unsigned long long)ws, ws == 1 ? "" : "s",
		       (unsigned long long)snaps, snaps == 1 ? "" : "s", one);
}

int api_repo_delete(struct request *rq, struct reply *rp, struct err *err)
{
	struct snapd *sd = rq->ctx;
	char id[ID_SIZE];
	auto_lease lease = { 0 };
	auto_repo_row row = { 0 };
	int r = catalog_repo_get(sd->catalog, rq->params[0], &row, err);
	if (r < 0)
		return r;
	repo_lease_id(id, row.number);
	upkeep_give_way(sd->upkeep, row.number);
	r = lease_take(&lease, sd->leases, id, LEASE_EXCLUSIVE, "rm", LEASE_WAIT_MS, err);
	if (r >= 0)
		r = refuse_pinned(rq, &row, err);
	/* The record first: without it the rest is a left-over. */
	if (r >= 0)
		r = repo_forget(sd->root, row.number, err);
	if (r >= 0)
		r = catalog_repo_delete(sd->catalog, row.number, err);
	if (r >= 0)
		r = catalog_sync(sd->catalog, err);
	if (r >= 0)
		r = snapd_inner(mirror_remove(sd->root, row.number, err));
	if (r < 0)
		return r;
	log_info("removed repository %s (%08x)", row.name, row.number);
	rp->status = 204;
	return 0;
}
