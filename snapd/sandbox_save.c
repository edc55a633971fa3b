/* Saving, forking and restoring sandboxes.
 *
 * What a sandbox shows is several trees: its root and what is attached. For one moment of all of
 * them its processes are frozen, the pages that they wrote through maps are flushed, and each tree
 * is sealed or forked, which takes no time; what takes long is done when they run again. The
 * snapshot of the root says (in its row's image) which snapshots of workspaces go with it. */
#include "fs/base/json.h"
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/io.h"
#include "fs/base/log.h"
#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/intents.h"
#include "snapd/outcome.h"

/* ---- the moment ---- */

struct moment {
	struct live *l;     /* NULL: it doesn't run */
	bool frozen, quick; /* by us; quick: by the cgroup, not by the runtime */
	uint64_t begun_ns;
};

static void flush(struct snapd *sd, const struct sandbox_box *b)
{
	snapd_flush_maps(sd, b->row.root);
	for (size_t i = 0; i < b->n_attached; i++)
		snapd_flush_maps(sd, b->attached[i].workspace);
}

static int moment_begin(struct moment *m, struct snapd *sd, const struct sandbox_box *b,
			struct err *err)
{
	*m = (struct moment){ .l = live_get(sd, b->row.id) };
	if (m->l && !live_ended(m->l))
		flush(sd, b); /* most of it, while they still run */
	m->begun_ns = clock_ns();
	if (m->l && !live_ended(m->l) && !live_paused(m->l)) {
		/* runc takes some 20 ms for what the cgroup does in one, gVisor 40 to 80 (it stops
		 * its guest's tasks by a call of its own; here its kernel stops with them). */
		m->quick = b->config.kind->freezes &&
			   box_freeze(b->row.id, b->shim.ns, true, NULL) >= 0;
		int r = m->quick ? 0 : shim_pause(m->l->shim, err);
		if (r < 0 && r != -ESRCH && r != -ENOENT && !live_ended(m->l))
			return err_prefix(err, r, "freeze it");
		m->frozen = r >= 0;
	}
	flush(sd, b);
	return 0;
}

static uint64_t moment_end(struct moment *m)
{
	if (m->frozen)
		live_thaw(m->l, m->quick ? LIVE_BY_GROUP : LIVE_BY_RUNTIME);
	uint64_t ns = clock_ns() - m->begun_ns;
	bool frozen = m->frozen;
	live_put(m->l);
	*m = (struct moment){ 0 };
	return frozen ? ns : 0;
}

/* ---- saving ---- */

struct saving {
	size_t n; /* the root's is the first */
	struct save *one[BOX_MOUNTS + 1];
};

static void saving_done(struct saving *s)
{
	for (size_t i = 0; i < s->n; i++)
		api_save_free(s->one[i]);
}

/* A workspace that is attached at two places is saved once. */
static bool again(const struct sandbox_box *b, size_t i, size_t *first)
{
	for (*first = 0; *first < i; ++*first)
		if (strcmp(b->attached[*first].workspace, b->attached[i].workspace) == 0)
			return true;
	return false;
}

/* The first place where a workspace is written to, which needn't be the first where it is;
 * n_attached: it is only read. */
static size_t written_at(const struct sandbox_box *b, size_t i)
{
	const struct attached_row *at = b->attached;
	size_t k = 0;
	while (k < b->n_attached &&
	       (at[k].read_only || strcmp(at[k].workspace, at[i].workspace) != 0))
		k++;
	return k;
}

/* What the root's snapshot says of how a sandbox of it begins. */
static char *saved_image(struct snapd *sd, const struct sandbox_box *b, json_t *workspaces)
{
	auto_snap_row row = { 0 };
	json_t *j = NULL, *sb;
	if (b->spec.snapshot && catalog_snap_get(sd->catalog, b->spec.snapshot, &row, NULL) >= 0 &&
	    row.image)
		j = json_loads(row.image, 0, NULL);
	if (!json_is_object(j)) {
		json_decref(j);
		j = json_object();
	}
	(void)json_object_del(j, "builtin");
	(void)json_object_del(j, "of");
	sb = json_pack("{s:s, s:s, s:s, s:O}", "id", b->row.id, "name", b->row.name, "runtime",
		       b->spec.runtime, "workspaces", workspaces);
	int bad = json_object_set_new(j, "sandbox", sb);
	if (b->spec.host_image)
		bad |= json_object_set_new(j, "host", json_true());
	char *text = bad ? NULL : json_text(j, JSON_COMPACT);
	json_decref(j);
	return text;
}

static int finish(struct saving *s, struct snapd *sd, const struct sandbox_box *b,
		  struct progress *p, json_t **root, json_t *snaps, struct err *err)
{
	json_t *group = json_array(), *of[BOX_MOUNTS] = { 0 }; /* of: borrowed from snaps */
	int r = group ? 0 : err_no_memory(err), bad = 0;
	for (size_t i = 0; i < b->n_attached && r >= 0; i++) {
		const struct attached_row *at = &b->attached[i];
		json_t *snap = NULL;
		size_t first;
		if (again(b, i, &first))
			snap = json_incref(of[first]);
		else if (s->one[i + 1])
			r = api_save_finish(s->one[i + 1], p, &snap, err);
		if (r < 0)
			break;
		if (snap && s->one[i + 1])
			outcome_also(sd, "workspace.saved", at->workspace, "made",
				     json_string_value(json_object_get(snap, "id")));
		if (!snap) /* another's, which isn't saved */
			continue;
		of[i] = snap;
		bad |= json_array_append_new(
			group, json_pack("{s:s, s:s, s:O, s:b}", "target", at->target, "workspace",
					 at->workspace, "snapshot", json_object_get(snap, "id"),
					 "read_only", at->read_only));
		bad |= json_array_append_new(snaps, snap);
	}
	auto_free char *image = r >= 0 && !bad ? saved_image(sd, b, group) : NULL;
	json_decref(group);
	if (r >= 0 && !image)
		r = err_no_memory(err);
	if (r >= 0)
		r = api_save_image(s->one[0], image, err);
	return r < 0 ? r : api_save_finish(s->one[0], p, root, err);
}

/* Who may use a workspace that is attached read-only needn't be one who may save it: that makes a
 * snapshot which its owner pays for, and moves its head. Where nobody asked it is the sandbox's
 * owner who would. */
static bool is_others(struct snapd *sd, const struct sandbox_box *b, const struct attached_row *at)
{
	const struct doing *d = doing_now();
	struct principal who;
	struct meant found;
	if (!at->read_only)
		return false;
	int r = 0;
	if (d)
		who = d->caller;
	else
		r = auth_of(sd, b->row.own.owner, &who, NULL);
	if (r >= 0)
		r = access_find(sd, &who, NOUN_WORKSPACE, true, at->workspace, &found, NULL);
	return r < 0;
}

/* The workspaces of all are leased SAVE, each once. */
static int begin_each(struct saving *s, struct snapd *sd, const struct sandbox_box *b,
		      const char *name, const char *message, struct err *err)
{
	size_t first;
	int r = api_save_begin(&s->one[0], sd, b->row.root, name, message, err);
	s->n = 1;
	for (size_t i = 0; i < b->n_attached && r >= 0; i++, s->n++)
		if (!again(b, i, &first) && !is_others(sd, b, &b->attached[i]))
			r = api_save_begin(&s->one[i + 1], sd, b->attached[i].workspace, NULL,
					   message, err);
	return r;
}

int sandbox_save(struct snapd *sd, const char *id, const char *name, const char *message,
		 struct progress *p, json_t **out, struct err *err)
{
	auto_box *b = NULL;
	struct saving s = { 0 };
	struct moment m = { 0 };
	json_t *root = NULL, *snaps = json_array();
	uint64_t pause_ns = 0;
	int r = snaps ? sandbox_box_get(&b, sd, id, err) : err_no_memory(err);
	if (r >= 0)
		r = begin_each(&s, sd, b, name, message, err);
	if (r >= 0) {
		r = moment_begin(&m, sd, b, err);
		for (size_t i = 0; i < s.n && r >= 0; i++)
			if (s.one[i])
				r = api_save_seal(s.one[i], err);
		pause_ns = moment_end(&m);
	}
	if (r >= 0) /* the root's is what is made; those that go with it come before it */
		r = api_save_intend(s.one[0], err);
	if (r >= 0)
		r = finish(&s, sd, b, p, &root, snaps, err);
	saving_done(&s);
	if (r >= 0) {
		*out = json_pack("{s:O, s:O, s:I}", "root", root, "workspaces", snaps, "pause_ns",
				 (json_int_t)pause_ns);
		r = *out ? 0 : err_no_memory(err);
	}
	json_decref(root);
	json_decref(snaps);
	return r;
}

/* ---- forking ---- */

/* Forks of one tree, one for each new sandbox. */
static int fork_tree(struct snapd *sd, const char *ws, const struct sandbox_row *of,
		     const char *const *names, size_t n, bool root, struct ws_row *rows,
		     struct err *err)
{
	auto_source src = { 0 };
	uint64_t pause_ns;
	int r = source_find_ws(&src, sd, ws, LEASE_SHARED, "fork", err);
	if (r < 0)
		return r;
	struct ws_row like = { .quota_bytes = src.ws.quota_bytes,
			       .quota_inodes = src.ws.quota_inodes,
			       .labels = (char[]){ "" },
			       .git = src.ws.git };
	memcpy(like.base, src.ws.base, ID_SIZE);
	memcpy(like.head, src.ws.head, ID_SIZE);
	memcpy(like.parent, src.ws.id, ID_SIZE);
	like.own.visibility = of->own.visibility;
	memcpy(like.own.team, of->own.team, sizeof(like.own.team));
	if (root && n == 1)
		memcpy(like.sandbox, names[0], ID_SIZE);
	return api_ws_fork_make(rows, sd, &src, &like, names, n, &pause_ns, err);
}

/* The trees of one new sandbox. */
struct trees {
	struct ws_row root;
	struct ws_row attached[BOX_MOUNTS]; /* id "": it shares the other's */
	char names[BOX_MOUNTS][NAME_SIZE + 16];
};

/* Only what is forked counts: beside one that is shared, the other's fork is NAME-ws still. */
static void name_forks(const struct sandbox_box *b, const char *name, struct trees *t)
{
	size_t n = 0, k = 0;
	for (size_t i = 0; i < b->n_attached; i++)
		n += written_at(b, i) == i;
	for (size_t i = 0; i < b->n_attached; i++) {
		if (written_at(b, i) != i)
			continue;
		if (n == 1)
			(void)snprintf(t->names[i], sizeof(t->names[i]), "%.90s-ws", name);
		else
			(void)snprintf(t->names[i], sizeof(t->names[i]), "%.90s-ws%u", name,
				       (unsigned)++k);
	}
}

static void drop_trees(struct snapd *sd, const struct sandbox_box *b, struct trees *t)
{
	for (size_t i = 0; i <= b->n_attached; i++) {
		struct ws_row *row = i ? &t->attached[i - 1] : &t->root;
		auto_source src = { 0 };
		struct err err = { 0 };
		if (!row->id[0])
			continue;
		int r = source_find_ws(&src, sd, row->id, LEASE_EXCLUSIVE, "rm", &err);
		if (r >= 0)
			r = api_ws_remove(sd, &src, 0, &err);
		if (r < 0)
			log_error("fork %s: %s", row->id, err.text);
	}
}

static void free_trees(const struct sandbox_box *b, struct trees *t, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		ws_row_done(&t[k].root);
		for (size_t i = 0; i < b->n_attached; i++)
			ws_row_done(&t[k].attached[i]);
	}
	free(t);
}

static int fork_trees(struct snapd *sd, const struct sandbox_box *b, const char *id,
		      struct trees *t, struct err *err)
{
	const char *const root[] = { id };
	int r = fork_tree(sd, b->row.root, &b->row, root, 1, true, &t->root, err);
	for (size_t i = 0; i < b->n_attached && r >= 0; i++) {
		const char *const name[] = { t->names[i] };
		if (written_at(b, i) == i)
			r = fork_tree(sd, b->attached[i].workspace, &b->row, name, 1, false,
				      &t->attached[i], err);
	}
	return r;
}

/* Of a fork that failed. What fails here, the next start sweeps. */
static void drop_fork(struct snapd *sd, const struct sandbox_box *b, struct sandbox_row *row,
		      struct trees *t)
{
	char io[PATH_SIZE];
	(void)catalog_sandbox_delete(sd->catalog, row->id, NULL);
	drop_trees(sd, b, t);
	sandbox_io_path(sd, row->id, io);
	(void)io_remove_tree(AT_FDCWD, io, NULL);
	sandbox_row_done(row);
}

static int fork_row(struct snapd *sd, const struct sandbox_box *b, const char *name,
		    struct sandbox_row *row, struct err *err)
{
	*row = (struct sandbox_row){ .exit_code = -1,
				     .status = SANDBOX_STOPPED,
				     .created_ns = snapd_now_ns() };
	row->active_ns = row->created_ns;
	id_make(row->id, "sb");
	(void)snprintf(row->name, sizeof(row->name), "%s", name);
	doing_owner(row->own.owner);
	row->own.visibility = b->row.own.visibility;
	memcpy(row->own.team, b->row.own.team, sizeof(row->own.team));
	memcpy(row->policy, b->row.policy, sizeof(row->policy));
	struct sandbox_spec spec = b->spec; /* borrowed */
	spec.auto_remove = false;           /* who makes a fork decides when it goes */
	row->spec = spec_text(&spec);
	row->labels = b->row.labels ? strdup(b->row.labels) : NULL;
	if (!row->spec || (b->row.labels && !row->labels))
		return err_no_memory(err);
	return catalog_sandbox_insert(sd->catalog, row, err);
}

/* What else a fork has: its process, what is attached. */
static int fork_rest(struct snapd *sd, const struct sandbox_box *b, struct trees *t,
		     struct sandbox_row *row, struct err *err)
{
	json_t *process = NULL;
	int r = sandbox_process_read(sd, b->row.id, &process, err);
	if (r >= 0)
		r = sandbox_process_write(sd, row->id, process, err);
	json_decref(process);
	for (size_t i = 0; i < b->n_attached && r >= 0; i++) {
		struct attached_row at = b->attached[i];
		memcpy(at.sandbox, row->id, ID_SIZE);
		sandbox_vouch(at.by);
		size_t from = written_at(b, i);
		at.own = from < b->n_attached;
		if (at.own)
			memcpy(at.workspace, t->attached[from].id, ID_SIZE);
		r = catalog_attach(sd->catalog, &at, err);
	}
	memcpy(row->root, t->root.id, ID_SIZE);
	const struct sandbox_patch p = { .root = row->root };
	row->made = true;
	return r < 0 ? r : catalog_sandbox_patch(sd->catalog, row->id, &p, err);
}

int sandbox_fork(struct snapd *sd, const char *id, const char *const *names, size_t n,
		 struct sandbox_row *out, uint64_t *pause_ns, struct err *err)
{
	auto_box *b = NULL;
	struct moment m = { 0 };
	size_t rows = 0;
	int r = sandbox_box_get(&b, sd, id, err);
	struct trees *t = r >= 0 ? calloc(n, sizeof(*t)) : NULL;
	if (r >= 0 && !t)
		r = err_no_memory(err);
	for (; rows < n && r >= 0; rows++) {
		name_forks(b, names[rows], &t[rows]);
		r = fork_row(sd, b, names[rows], &out[rows], err);
	}
	if (r >= 0) {
		r = moment_begin(&m, sd, b, err);
		for (size_t k = 0; k < n && r >= 0; k++)
			r = fork_trees(sd, b, out[k].id, &t[k], err);
		*pause_ns = moment_end(&m);
	}
	for (size_t k = 0; k < n && r >= 0; k++)
		r = fork_rest(sd, b, &t[k], &out[k], err);
	if (r >= 0)
		r = catalog_sandboxes_made(sd->catalog, out, n, err);
	for (size_t k = 0; k < rows && r < 0; k++)
		drop_fork(sd, b, &out[k], &t[k]);
	for (size_t k = 0; k < n && r >= 0; k++)
		for (size_t i = 0; i < b->n_attached; i++)
			if (t[k].attached[i].id[0])
				outcome_also(sd, "workspace.created", t[k].attached[i].id, "from",
					     b->attached[i].workspace);
	if (t)
		free_trees(b, t, n);
	return r;
}

/* ---- restoring ---- */

/* Noted for an Idempotency-Key is how far it has come: before and behind each tree. */
static int restore_one(struct snapd *sd, struct back *back, struct back_tree *t, struct err *err)
{
	auto_source to = { 0 }, from = { 0 };
	int r = source_find_ws(&to, sd, t->ws, LEASE_EXCLUSIVE, "restore", err);
	if (r >= 0)
		r = source_find_snap(&from, sd, t->snap, LEASE_SHARED, "restore", err);
	if (r >= 0)
		r = intents_settle_of(sd, t->ws, err);
	if (r >= 0)
		r = snapd_inner(fs_active(sd->fs, t->ws, &t->was, err));
	if (r < 0)
		return r;
	t->state = BACK_BEGUN;
	r = intent_back(sd, back, err);
	if (r >= 0)
		r = api_ws_restore_to(sd, &to, &from, err);
	if (r < 0)
		return r;
	t->state = BACK_DONE;
	outcome_also(sd, "workspace.restored", t->ws, "to", t->snap);
	return intent_back(sd, back, err);
}

/* The snapshot that goes with what is attached there; NULL: none. */
static const char *snapshot_at(const json_t *workspaces, const char *target)
{
	size_t i;
	json_t *one;
	json_array_foreach((json_t *)(uintptr_t)workspaces, i, one) {
		const char *at = json_string_value(json_object_get(one, "target"));
		if (at && strcmp(at, target) == 0)
			return json_string_value(json_object_get(one, "snapshot"));
	}
	return NULL;
}

static void add_tree(struct back *back, const struct back *was, const char *ws, const char *snap)
{
	struct back_tree *t = &back->of[back->n++];
	(void)snprintf(t->ws, sizeof(t->ws), "%s", ws);
	(void)snprintf(t->snap, sizeof(t->snap), "%s", snap);
	for (size_t i = 0; i < was->n; i++)
		if (strcmp(was->of[i].ws, ws) == 0 && strcmp(was->of[i].snap, snap) == 0 &&
		    was->of[i].state == BACK_DONE)
			t->state = BACK_DONE;
}

/* What is to be restored; of a restore that a kill has cut off, the rest. */
static void plan_restore(struct back *back, const struct sandbox_box *b, const char *snapshot,
			 const json_t *group, bool root)
{
	struct back was;
	if (!intent_back_was(&was, b->row.id))
		was = (struct back){ 0 };
	*back = (struct back){ .started_ns = b->row.started_ns, .runs = was.runs };
	memcpy(back->sandbox, b->row.id, sizeof(back->sandbox));
	if (root)
		add_tree(back, &was, b->row.root, snapshot);
	for (size_t i = 0; i < b->n_attached; i++) {
		const char *to = group ? snapshot_at(group, b->attached[i].target) : snapshot;
		if (to && written_at(b, i) == i)
			add_tree(back, &was, b->attached[i].workspace, to);
	}
}

static int restore_all(struct snapd *sd, struct back *back, struct err *err)
{
	int r = 0;
	for (size_t i = 0; i < back->n && r >= 0; i++)
		if (back->of[i].state != BACK_DONE)
			r = restore_one(sd, back, &back->of[i], err);
	return r;
}

/* Who may read the snapshot of a root needn't be one who may read those that go with it. */
static int may_read(struct snapd *sd, const struct sandbox_box *b, const json_t *group,
		    struct err *err)
{
	const struct doing *d = doing_now();
	struct meant found;
	int r = 0;
	for (size_t i = 0; i < b->n_attached && d && r >= 0; i++) {
		const char *target = b->attached[i].target, *snap = snapshot_at(group, target);
		if (!snap || b->attached[i].read_only)
			continue;
		r = access_find(sd, &d->caller, NOUN_SNAPSHOT, false, snap, &found, err);
		if (r < 0)
			r = err_prefix(err, r, "what was saved of %s", target);
	}
	return r;
}

/* What a snapshot says of a sandbox; *group NULL: it is a workspace's alone. The caller frees. */
static int read_group(struct snapd *sd, const char *snapshot, json_t **group, struct err *err)
{
	auto_snap_row row = { 0 };
	int r = catalog_snap_get(sd->catalog, snapshot, &row, err);
	json_t *j = r >= 0 && row.image ? json_loads(row.image, 0, NULL) : NULL;
	*group = json_incref(json_object_get(json_object_get(j, "sandbox"), "workspaces"));
	json_decref(j);
	if (r >= 0 && row.image && !*group && !(*group = json_array())) /* an image: a root alone */
		r = err_no_memory(err);
	if (r >= 0 && *group && !json_is_array(*group)) {
		json_decref(*group);
		r = err_set(err, -EIO, "what snapshot %s says of its sandbox is damaged", snapshot);
	}
	return r;
}

static int restore(struct snapd *sd, struct sandbox_box *b, struct back *back, struct err *err)
{
	auto_live *l = live_get(sd, b->row.id);
	bool runs = l && !live_ended(l);
	back->runs |= runs;
	int r = runs ? sandbox_secrets_keep(sd, b, err) : 0;
	if (r >= 0)
		r = intent_back(sd, back, err);
	if (r >= 0 && runs)
		r = sandbox_stop(sd, b->row.id, 0, 0, err);
	if (r >= 0)
		r = restore_all(sd, back, err);
	if (back->runs && r < 0) { /* it goes on with what it had */
		struct err why = { 0 };
		int e = sandbox_start(sd, b->row.id, NULL, &why);
		if (e == -ESTALE) /* it wasn't stopped */
			sandbox_secrets_drop(sd, b->row.id);
		else if (e < 0)
			log_error("sandbox %s: %s", b->row.id, why.text);
		return r;
	}
	return r >= 0 && back->runs ? sandbox_start(sd, b->row.id, NULL, err) : r;
}

int sandbox_restore(struct snapd *sd, const char *id, const char *snapshot, bool live,
		    struct err *err)
{
	auto_box *b = NULL;
	json_t *group = NULL;
	struct back back;
	int r = sandbox_box_get(&b, sd, id, err);
	if (r >= 0)
		r = read_group(sd, snapshot, &group, err);
	if (r < 0)
		return r;
	if (!group && !live)
		r = err_set(err, -EINVAL,
			    "snapshot %s is of no sandbox: `--live` restores a workspace alone",
			    snapshot);
	else if (!group && b->n_attached != 1)
		r = err_set(err, -EINVAL,
			    "%zu workspaces are attached: restore the one that is meant",
			    b->n_attached);
	if (r >= 0)
		r = may_read(sd, b, group, err);
	if (r >= 0)
		r = sandbox_judge(sd, id, NULL, err);
	if (r >= 0) {
		plan_restore(&back, b, snapshot, group, !live);
		/* It is to be started anew itself, unless `live`. */
		for (size_t i = 0; i < back.n && r >= 0; i++)
			r = sandbox_check_seen(sd, back.of[i].ws, live ? NULL : id, err);
	}
	if (r >= 0)
		r = live ? restore_all(sd, &back, err) : restore(sd, b, &back, err);
	json_decref(group);
	return r;
}
