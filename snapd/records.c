#include "snapd/records.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/json.h"

enum { PENDING_MAX = 4096 }; /* records that aren't synced yet; beyond, one is synced at once */

struct records {
	const struct io *io;
	int ws, snapshots; /* folders */
	pthread_mutex_t lock;
	char pending[PENDING_MAX][ID_SIZE];
	size_t npending;
};

int records_open(struct records **out, const char *root, const struct io *io, struct err *err)
{
	auto_fd dir = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", root);
	auto_fd ws = openat(dir, "ws", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ws < 0)
		return err_sys(err, -errno, "open %s/ws", root);
	auto_fd snapshots = openat(dir, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (snapshots < 0)
		return err_sys(err, -errno, "open %s/snapshots", root);
	struct records *r = malloc(sizeof(*r));
	if (!r)
		return err_no_memory(err);
	r->io = io ? io : &io_host;
	r->ws = steal_fd(&ws);
	r->snapshots = steal_fd(&snapshots);
	r->npending = 0;
	pthread_mutex_init(&r->lock, NULL);
	*out = r;
	return 0;
}

void records_close(struct records *r)
{
	if (!r)
		return;
	(void)records_sync(r, NULL); /* best effort: the catalog has it all */
	close(r->ws);
	close(r->snapshots);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* ---- JSON ---- */

static json_t *parsed(const char *text)
{
	return text ? json_loads(text, 0, NULL) : json_null();
}

static json_t *optional(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

static int publish(struct records *r, int dir, const char *name, json_t *j, bool durable,
		   struct err *err)
{
	auto_free char *text = j ? json_text(j, JSON_INDENT(1)) : NULL;
	json_decref(j);
	if (!text)
		return err_no_memory(err);
	return io_publish(r->io, dir, name, text, strlen(text), durable, err);
}

/* Reads members; what is wrong is remembered, so that a decoder checks once at its end. */
struct reader {
	const json_t *j;
	int bad; /* 0, -EBADMSG or -ENOMEM */
};

static void read_text(struct reader *rd, const char *key, char *out, size_t size, bool needed)
{
	const json_t *v = json_object_get(rd->j, key);
	const char *s = json_string_value(v);
	if (s && strlen(s) < size)
		(void)snprintf(out, size, "%s", s);
	else if (needed || (v && !json_is_null(v)))
		rd->bad = -EBADMSG;
}

static void read_id(struct reader *rd, const char *key, const char *kind, char out[ID_SIZE],
		    bool needed)
{
	read_text(rd, key, out, ID_SIZE, needed);
	if (out[0] && !id_is(out, kind))
		rd->bad = -EBADMSG;
}

static uint64_t read_number(struct reader *rd, const char *key)
{
	const json_t *v = json_object_get(rd->j, key);
	if (!json_is_integer(v) || json_integer_value(v) < 0) {
		rd->bad = -EBADMSG;
		return 0;
	}
	return (uint64_t)json_integer_value(v);
}

static bool only_texts(const json_t *v, bool list)
{
	const char *key;
	json_t *one;
	size_t i;
	if (list) {
		json_array_foreach(v, i, one)
			if (!json_is_string(one))
				return false;
	} else {
		json_object_foreach((json_t *)(uintptr_t)v, key, one)
			if (!json_is_string(one))
				return false;
	}
	return true;
}

/* An object or list of strings, kept as text. */
static void read_json(struct reader *rd, const char *key, bool list, char **out)
{
	const json_t *v = json_object_get(rd->j, key);
	if (!v || json_is_null(v))
		return;
	if ((list ? !json_is_array(v) : !json_is_object(v)) || !only_texts(v, list)) {
		rd->bad = -EBADMSG;
		return;
	}
	if (list ? json_array_size(v) == 0 : json_object_size(v) == 0)
		return;
	*out = json_text(v, JSON_COMPACT);
	if (!*out)
		rd->bad = -ENOMEM;
}

/* Kept as text: what `git` must hold is gitlink.h's, what `image` oci.h's. */
static void read_object(struct reader *rd, const char *key, char **out)
{
	const json_t *v = json_object_get(rd->j, key);
	if (!v || json_is_null(v))
		return;
	*out = json_is_object(v) ? json_text(v, JSON_COMPACT) : NULL;
	if (!*out)
		rd->bad = json_is_object(v) ? -ENOMEM : -EBADMSG;
}

/* Records of before there were owners have none of it. */
static void read_owned(struct reader *rd, struct owned *own)
{
	const json_t *expires = json_object_get(rd->j, "expires_ns");
	const char *seen = json_string_value(json_object_get(rd->j, "visibility"));
	const char *then = json_string_value(json_object_get(rd->j, "on_expiry"));
	int visibility = seen ? visibility_parse(seen) : VISIBLE_PRIVATE;
	int on_expiry = then ? on_expiry_parse(then) : EXPIRY_DELETE;
	char team[NAME_SIZE] = "";
	read_text(rd, "owner", own->owner, sizeof(own->owner), false);
	read_text(rd, "team", team, sizeof(team), false);
	if (visibility < 0 || on_expiry < 0 || json_integer_value(expires) < 0) {
		rd->bad = -EBADMSG;
		return;
	}
	own->visibility = (enum visibility)visibility;
	if (id_is(team, "tm"))
		memcpy(own->team, team, sizeof(own->team));
	else if (visibility == VISIBLE_TEAM)
		own->visibility = VISIBLE_PRIVATE; /* of before teams had ids */
	own->on_expiry = (enum on_expiry)on_expiry;
	own->expires_ns = json_integer_value(expires);
}

static int add_owned(json_t *j, const struct owned *own)
{
	int bad = json_object_set_new(j, "owner", optional(own->owner));
	bad |= json_object_set_new(j, "visibility", json_string(visibility_names[own->visibility]));
	bad |= json_object_set_new(j, "team", optional(own->team));
	bad |= json_object_set_new(j, "expires_ns", json_integer(own->expires_ns));
	bad |= json_object_set_new(j, "on_expiry", json_string(on_expiry_names[own->on_expiry]));
	return bad;
}

/* NULL: no memory for all of it. */
static json_t *with_owned(json_t *j, const struct owned *own)
{
	if (j && add_owned(j, own) < 0) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static int load(json_t **out, const void *data, size_t len)
{
	json_error_t e;
	json_t *j = json_loadb(data, len, JSON_REJECT_DUPLICATES, &e);
	if (!j && json_error_code(&e) == json_error_out_of_memory)
		return -ENOMEM;
	if (!json_is_object(j)) {
		json_decref(j);
		return -EBADMSG;
	}
	*out = j;
	return 0;
}

/* ---- workspaces ---- */

int ws_record_decode(struct ws_row *out, const void *data, size_t len)
{
	auto_ws_row row = { 0 };
	json_t *j;
	int r = load(&j, data, len);
	if (r < 0)
		return r;
	struct reader rd = { .j = j };
	read_id(&rd, "id", "ws", row.id, true);
	read_text(&rd, "name", row.name, sizeof(row.name), true);
	if (!rd.bad && name_check(row.name, NULL) < 0)
		rd.bad = -EBADMSG;
	read_id(&rd, "base", "sn", row.base, false);
	read_id(&rd, "head", "sn", row.head, false);
	read_id(&rd, "parent", "ws", row.parent, false);
	read_id(&rd, "sandbox", "sb", row.sandbox, false);
	row.created_ns = (int64_t)read_number(&rd, "created_ns");
	row.quota_bytes = read_number(&rd, "quota_bytes");
	row.quota_inodes = read_number(&rd, "quota_inodes");
	row.mount = json_is_true(json_object_get(j, "mount"));
	read_json(&rd, "labels", false, &row.labels);
	read_object(&rd, "git", &row.git);
	read_owned(&rd, &row.own);
	if (json_object_get(j, "removed_ns")) {
		row.removed_ns = (int64_t)read_number(&rd, "removed_ns");
		row.purge_ns = (int64_t)read_number(&rd, "purge_ns");
		memcpy(row.was, row.name, sizeof(row.was));
		(void)snprintf(row.name, sizeof(row.name), "%s", row.id);
	}
	const char *about = json_string_value(json_object_get(j, "description"));
	if (about && !(row.description = strdup(about)))
		rd.bad = -ENOMEM;
	json_decref(j);
	if (rd.bad)
		return rd.bad;
	*out = row;
	memset(&row, 0, sizeof(row));
	return 0;
}

int records_ws_write(struct records *r, const struct ws_row *w, struct err *err)
{
	auto_fd dir = openat(r->ws, w->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "folder of workspace %s", w->id);
	json_t *j = json_pack("{s:i, s:s, s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:b, s:o, s:o, s:o,"
			      " s:o}",
			      "version", 1, "id", w->id, "name", w->removed_ns ? w->was : w->name,
			      "base", optional(w->base), "head", optional(w->head), "parent",
			      optional(w->parent), "created_ns", (json_int_t)w->created_ns,
			      "quota_bytes", (json_int_t)w->quota_bytes, "quota_inodes",
			      (json_int_t)w->quota_inodes, "mount", w->mount, "labels",
			      parsed(w->labels), "git", parsed(w->git), "description",
			      optional(w->description), "sandbox", optional(w->sandbox));
	j = with_owned(j, &w->own);
	if (j && w->removed_ns &&
	    (json_object_set_new(j, "removed_ns", json_integer(w->removed_ns)) ||
	     json_object_set_new(j, "purge_ns", json_integer(w->purge_ns)))) {
		json_decref(j);
		j = NULL;
	}
	int e = publish(r, dir, "meta.json", j, false, err);
	return e < 0 ? err_prefix(err, e, "record of workspace %s", w->id) : 0;
}

int records_ws_read(struct records *r, const char *id, struct ws_row *out, struct err *err)
{
	auto_free void *data = NULL;
	size_t len;
	auto_fd dir = openat(r->ws, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "folder of workspace %s", id);
	int e = io_slurp(r->io, dir, "meta.json", RECORD_MAX, &data, &len, err);
	if (e < 0)
		return e;
	auto_ws_row row = { 0 };
	e = ws_record_decode(&row, data, len);
	if (e >= 0 && strcmp(row.id, id) != 0)
		e = -EBADMSG;
	if (e < 0)
		return err_sys(err, e, "ws/%s/meta.json", id);
	*out = row;
	memset(&row, 0, sizeof(row));
	return 0;
}

int records_ws_remove(struct records *r, const char *id, struct err *err)
{
	auto_fd dir = openat(r->ws, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "folder of workspace %s", id);
	int e = r->io->unlink(r->io->ctx, dir, "meta.json", 0);
	if (e < 0 && e != -ENOENT)
		return err_sys(err, e, "remove ws/%s/meta.json", id);
	e = r->io->fsync(r->io->ctx, dir);
	return e < 0 ? err_sys(err, e, "sync ws/%s", id) : 0;
}

/* ---- snapshots ---- */

int snap_record_decode(struct snap_row *out, const void *data, size_t len)
{
	auto_snap_row row = { 0 };
	json_t *j;
	int r = load(&j, data, len);
	if (r < 0)
		return r;
	struct reader rd = { .j = j };
	read_id(&rd, "id", "sn", row.id, true);
	read_id(&rd, "workspace", "ws", row.workspace, false);
	read_id(&rd, "parent", "sn", row.parent, false);
	row.created_ns = (int64_t)read_number(&rd, "created_ns");
	row.files = read_number(&rd, "files");
	row.bytes = read_number(&rd, "bytes");
	row.stored_bytes = read_number(&rd, "stored_bytes");
	const char *manifest = json_string_value(json_object_get(j, "manifest"));
	if (!manifest || digest_parse(&row.manifest, manifest) < 0)
		rd.bad = -EBADMSG;
	const char *message = json_string_value(json_object_get(j, "message"));
	if (message && !(row.message = strdup(message)))
		rd.bad = -ENOMEM;
	read_json(&rd, "labels", false, &row.labels);
	read_object(&rd, "git", &row.git);
	read_object(&rd, "image", &row.image);
	read_owned(&rd, &row.own);
	read_json(&rd, "names", true, &row.names);
	json_decref(j);
	if (rd.bad)
		return rd.bad;
	*out = row;
	memset(&row, 0, sizeof(row));
	return 0;
}

static void snap_file(char out[ID_SIZE + 8], const char *id)
{
	(void)snprintf(out, ID_SIZE + 8, "%s.json", id);
}

/* False when the list is full. */
static bool note_pending(struct records *r, const char *id)
{
	pthread_mutex_lock(&r->lock);
	bool room = r->npending < PENDING_MAX;
	if (room)
		memcpy(r->pending[r->npending++], id, ID_SIZE);
	pthread_mutex_unlock(&r->lock);
	return room;
}

int records_sync(struct records *r, struct err *err)
{
	char(*ids)[ID_SIZE] = NULL;
	int e = 0;
	pthread_mutex_lock(&r->lock);
	size_t n = r->npending;
	if (n > 0 && (ids = malloc(n * ID_SIZE))) {
		memcpy(ids, r->pending, n * ID_SIZE);
		r->npending = 0;
	}
	pthread_mutex_unlock(&r->lock);
	if (n == 0)
		return 0;
	if (!ids)
		return err_no_memory(err);
	for (size_t i = 0; i < n && e >= 0; i++) {
		char file[ID_SIZE + 8];
		snap_file(file, ids[i]);
		auto_fd fd = openat(r->snapshots, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0 && errno != ENOENT) /* absent: deleted meanwhile */
			e = err_sys(err, -errno, "open snapshots/%s", file);
		else if (fd >= 0 && (e = r->io->fsync(r->io->ctx, fd)) < 0)
			(void)err_sys(err, e, "sync snapshots/%s", file);
	}
	free(ids);
	if (e < 0)
		return e;
	e = r->io->fsync(r->io->ctx, r->snapshots);
	return e < 0 ? err_sys(err, e, "sync snapshots") : 0;
}

int records_snap_write(struct records *r, const struct snap_row *s, bool now, struct err *err)
{
	char manifest[DIGEST_HEX + 1], file[ID_SIZE + 8];
	digest_hex(manifest, &s->manifest);
	snap_file(file, s->id);
	json_t *j = json_pack("{s:i, s:s, s:o, s:o, s:I, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o,"
			      " s:o*}",
			      "version", 1, "id", s->id, "workspace", optional(s->workspace),
			      "parent", optional(s->parent), "created_ns",
			      (json_int_t)s->created_ns, "manifest", manifest, "files",
			      (json_int_t)s->files, "bytes", (json_int_t)s->bytes, "stored_bytes",
			      (json_int_t)s->stored_bytes, "message", optional(s->message),
			      "labels", parsed(s->labels), "git", parsed(s->git), "names",
			      parsed(s->names), "image", s->image ? parsed(s->image) : NULL);
	j = with_owned(j, &s->own);
	int e = publish(r, r->snapshots, file, json_incref(j), now, err);
	if (e >= 0 && !now && !note_pending(r, s->id))
		e = publish(r, r->snapshots, file, json_incref(j), true, err);
	json_decref(j);
	return e < 0 ? err_prefix(err, e, "record of snapshot %s", s->id) : 0;
}

int records_snap_read(struct records *r, const char *id, struct snap_row *out, struct err *err)
{
	auto_free void *data = NULL;
	size_t len;
	char file[ID_SIZE + 8];
	snap_file(file, id);
	int e = io_slurp(r->io, r->snapshots, file, RECORD_MAX, &data, &len, err);
	if (e < 0)
		return e;
	auto_snap_row row = { 0 };
	e = snap_record_decode(&row, data, len);
	if (e >= 0 && strcmp(row.id, id) != 0)
		e = -EBADMSG;
	if (e < 0)
		return err_sys(err, e, "snapshots/%s", file);
	*out = row;
	memset(&row, 0, sizeof(row));
	return 0;
}

int records_snap_remove(struct records *r, const char *id, struct err *err)
{
	char file[ID_SIZE + 8];
	snap_file(file, id);
	int e = r->io->unlink(r->io->ctx, r->snapshots, file, 0);
	if (e < 0 && e != -ENOENT)
		return err_sys(err, e, "remove snapshots/%s", file);
	e = r->io->fsync(r->io->ctx, r->snapshots);
	return e < 0 ? err_sys(err, e, "sync snapshots") : 0;
}

/* ---- lists ---- */

static int list_ids(int folder, const char *kind, const char *suffix, char (**ids)[ID_SIZE],
		    size_t *n, struct err *err)
{
	char(*all)[ID_SIZE] = NULL;
	size_t count = 0, cap = 0;
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_dir *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		int r = -errno;
		if (fd >= 0)
			close(fd);
		return err_sys(err, r, "list a folder of records");
	}
	const struct dirent *e;
	while ((errno = 0, e = readdir(d))) {
		size_t len = strlen(e->d_name);
		char id[ID_SIZE];
		if (len != ID_CHARS + strlen(suffix) || strcmp(e->d_name + ID_CHARS, suffix) != 0)
			continue;
		memcpy(id, e->d_name, ID_CHARS);
		id[ID_CHARS] = '\0';
		if (!id_is(id, kind))
			continue;
		if (array_grow(&all, count, &cap) < 0) {
			free(all);
			return err_no_memory(err);
		}
		memcpy(all[count++], id, ID_SIZE);
	}
	if (errno) {
		int r = -errno;
		free(all);
		return err_sys(err, r, "list a folder of records");
	}
	*ids = all;
	*n = count;
	return 0;
}

int records_ws_ids(struct records *r, char (**ids)[ID_SIZE], size_t *n, struct err *err)
{
	return list_ids(r->ws, "ws", "", ids, n, err);
}

int records_snap_ids(struct records *r, char (**ids)[ID_SIZE], size_t *n, struct err *err)
{
	return list_ids(r->snapshots, "sn", ".json", ids, n, err);
}
