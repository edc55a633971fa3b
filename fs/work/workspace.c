/* What is done to whole workspaces: create, delete, fork, seal, replace, restore. */
#include "fs/work/ws_impl.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include "fs/base/clock.h"

enum { NEARLY_FULL = 64 << 20 };

static uint64_t new_tag(void)
{
	uint64_t tag;
	do
		random_bytes(&tag, sizeof(tag));
	while (tag == 0);
	return tag;
}

static int fresh_layer(struct work *w, struct layer **out, struct err *err)
{
	int r = work_new_layer(w, out, err);
	/* New ones are cheap, but a seal on a disk that is nearly full must not take away what
	 * lets files be deleted: the layer that is sealed had a reserve. */
	struct statvfs host;
	if (r == 0 && fstatvfs(w->root_fd, &host) == 0 &&
	    host.f_bavail * host.f_frsize < NEARLY_FULL)
		layer_reserve(*out);
	return r;
}

/* A layer that came to nothing. */
static void discard_layer(struct work *w, struct layer *l)
{
	if (!l)
		return;
	struct layer_id id = *layer_id(l);
	layer_unref(l);
	(void)layer_remove(w->io, w->root, &id, NULL); /* or a sweep takes it */
}

/* The view with one more layer on top (the reference is taken over). 0 or -ENOMEM. */
static int view_push(struct view *out, const struct view *below, uint32_t from, struct layer *top)
{
	uint32_t n = below->nlayers - from;
	struct view v = { .image = below->image, .store = below->store, .seed = below->seed };
	v.layers = calloc(n + 1, sizeof(*v.layers));
	if (!v.layers)
		return -ENOMEM;
	v.nlayers = n + 1;
	v.layers[0] = top;
	for (uint32_t i = 0; i < n; i++)
		v.layers[i + 1] = layer_ref(below->layers[from + i]);
	if (v.image)
		(void)image_ref(v.image);
	*out = v;
	return 0;
}

/* ---- create and delete ---- */

int ws_make_root(struct layer *l, uid_t uid, gid_t gid)
{
	struct timespec now = ws_now();
	struct attr a = { .ino = INO_ROOT,
			  .mode = S_IFDIR | 0755,
			  .uid = uid,
			  .gid = gid,
			  .nlink = 2,
			  .size = 4096,
			  .atime = now,
			  .mtime = now,
			  .ctime = now,
			  .btime = now,
			  .parent = INO_ROOT };
	struct txn t;
	txn_begin(&t, l, INO_ROOT);
	txn_inode(&t, &a, 0);
	return txn_commit(&t);
}

uint64_t ws_count_files(const struct view *v)
{
	/* Of an empty one it is the root, which no operation counts. */
	int64_t n = v->image ? (int64_t)image_info(v->image)->inodes : 1;
	for (uint32_t i = 0; i < v->nlayers; i++)
		n += layer_files(v->layers[i]);
	return n > 0 ? (uint64_t)n : 0;
}

int ws_prepare(struct work *w, const struct stack *base, const struct ws_limits *limits,
	       struct view *view, struct ws_file *file, struct err *err)
{
	struct view_options vo;
	struct view below = { 0 };
	struct layer *top = NULL;
	registry_options(w->registry, &vo);
	struct ws_file f = { .seq = 1, .tag = new_tag(), .foreign = base->nlayers };
	if (limits) {
		f.limit_bytes = limits->bytes;
		f.limit_inodes = limits->inodes;
		f.no_xattrs = limits->xattrs == WS_XATTRS_OFF;
	}
	int r = view_open(&below, &vo, base, err);
	if (r == 0)
		r = work_birth(w, &f.birth_ino, err);
	if (r == 0)
		r = fresh_layer(w, &top, err);
	if (r < 0) {
		view_done(&below);
		return r;
	}
	f.active = *layer_id(top);
	f.files = ws_count_files(&below);
	r = stack_copy(&f.stack, base);
	if (r == 0)
		r = registry_name(w->registry, &f);
	if (r == 0) {
		r = view_push(view, &below, 0, top);
		if (r < 0) {
			layer_unref(top);
			registry_unname(w->registry, &f);
			top = NULL;
		}
	}
	view_done(&below);
	if (r < 0) {
		discard_layer(w, top);
		ws_file_done(&f);
		return err_sys(err, r, "prepare a workspace");
	}
	*file = f;
	return 0;
}

/* Publishes what was prepared and opens it; on failure nothing of it is left. */
static int establish(struct ws **out, struct work *w, const char *id, struct view *view,
		     struct ws_file *file, struct err *err)
{
	int r = ws_make_folder(w, id, file, err);
	if (r == 0) {
		r = ws_new(out, w, id, view, file, err);
		if (r < 0)
			(void)ws_drop_folder(w, id,
					     NULL); /* the failure above is the one to tell */
	}
	if (r < 0) {
		view_done(view);
		registry_unname(w->registry, file);
		ws_file_done(file);
	}
	return r;
}

int ws_create(struct ws **out, struct work *w, const char *id, const struct stack *base,
	      const struct ws_limits *limits, uid_t uid, gid_t gid, struct err *err)
{
	struct stack empty = { 0 };
	struct view view;
	struct ws_file file;
	struct attr a;
	int r = ws_id_check(id, err);
	if (r < 0)
		return r;
	if (work_has(w, id))
		return err_set(err, -EEXIST, "workspace %s is there already", id);
	if (!base)
		random_bytes(&empty.seed, sizeof(empty.seed));
	r = ws_prepare(w, base ? base : &empty, limits, &view, &file, err);
	if (r < 0)
		return err_prefix(err, r, "create workspace %s", id);
	r = view_inode(&view, INO_ROOT, &a);
	if (r == -ENOENT && !base)
		r = ws_make_root(view.layers[0], uid, gid);
	if (r < 0) {
		view_done(&view);
		registry_unname(w->registry, &file);
		ws_file_done(&file);
		return err_sys(err, r, "create workspace %s: its root", id);
	}
	r = establish(out, w, id, &view, &file, err);
	return r < 0 ? err_prefix(err, r, "create workspace %s", id) : 0;
}

int ws_delete(struct work *w, const char *id, struct err *err)
{
	struct ws_file f[2];
	unsigned n = 0;
	int r = ws_id_check(id, err);
	if (r < 0)
		return r;
	if (work_has(w, id))
		return err_set(err, -EBUSY, "workspace %s is open", id);
	r = ws_file_load(f, &n, w->io, w->root, id, w->boot, err);
	if (r < 0 && r != -EBADMSG)
		return r;
	bool known = r == 0; /* else what it names stays until a sweep */
	r = ws_drop_folder(w, id, err);
	if (r == 0 && known)
		registry_unname(w->registry, &f[0]);
	struct ws_file older = { 0 };
	if (r == 0 && work_take_older(w, id, &older))
		registry_unname(w->registry, &older);
	ws_file_done(&older);
	for (unsigned i = 0; known && i < n; i++)
		ws_file_done(&f[i]);
	return r;
}

/* ---- seal and fork ---- */

void swap_done(struct ws *ws, struct swap *s)
{
	/* After a swap s->file is the one that was, and its version goes. */
	version_done(&s->version, ws->work, s->file.seq);
	view_done(&s->view);
	if (s->named)
		registry_unname(ws->work->registry, &s->file);
	ws_file_done(&s->file);
	*s = (struct swap){ 0 };
}

static int swap_prepare(struct ws *ws, struct swap *s, struct err *err)
{
	struct layer *top = NULL;
	*s = (struct swap){ .version = { -1, -1, 0, false } };
	int r = fresh_layer(ws->work, &top, err);
	if (r < 0)
		return r;
	r = view_push(&s->view, &ws->view, 0, top);
	if (r < 0)
		discard_layer(ws->work, top);
	if (r == 0)
		r = ws_file_copy(&s->file, &ws->file);
	if (r == 0)
		r = stack_push(&s->file.stack, &s->file.active, true, NULL, 0);
	if (r == 0) {
		s->file.active = *layer_id(s->view.layers[0]);
		s->file.seq = ws->file.seq + 1;
		r = registry_name(ws->work->registry, &s->file);
		s->named = r == 0;
	}
	if (r == 0) {
		r = version_open(&s->version, ws->work, ws->id, s->file.seq, err);
		if (r < 0) {
			swap_done(ws, s); /* the new layer goes with its name */
			return r;
		}
	}
	if (r < 0) {
		if (s->view.nlayers) {
			struct layer *l = layer_ref(s->view.layers[0]);
			swap_done(ws, s);
			discard_layer(ws->work, l);
		}
		return r == -E2BIG ? err_set(err, r, "the workspace has %d layers: too many",
					     STACK_LAYERS_MAX)
				   : err_sys(err, r, "prepare a new layer");
	}
	return 0;
}

void swap_now(struct ws *ws, struct swap *s)
{
	struct view view = ws->view;
	struct ws_file file = ws->file;
	ws->view = s->view;
	ws->file = s->file;
	s->view = view;
	s->file = file;
	ws_changed_now(ws);
}

/* The old file counts again. */
static int swap_back(struct ws *ws, struct swap *s)
{
	struct version v;
	uint64_t seq = ws->file.seq;
	int r = version_open(&v, ws->work, ws->id, s->file.seq + 1, NULL);
	if (r < 0)
		return r;
	ws->file.seq = v.seq;
	r = version_write(&v, ws->work, &ws->file, NULL);
	version_done(&v, ws->work, seq);
	if (r < 0)
		ws->file.seq = seq;
	else
		s->version.written = false; /* to be removed */
	return r;
}

/* Under the gate: seals the active layer and puts the new one in its place. */
static int swap_commit(struct ws *ws, struct swap *s, struct err *err)
{
	struct quota *q = &ws->quota;
	s->file.base_bytes = q->bytes;
	s->file.base_inodes = q->inodes;
	s->file.files += (uint64_t)ws->files;
	s->file.gen = ws->gen;
	/* The file first: were the new layer written to before it, a kill would lose that. Killed
	 * right behind it, the old layer is taken as sealed because the file says so. */
	int r = version_write(&s->version, ws->work, &s->file, err);
	if (r < 0)
		return r;
	r = layer_seal(active(ws), err);
	if (r < 0 && swap_back(ws, s) == 0)
		return r;
	/* Where not even the old file could be written again, the layer is as good as sealed:
	 * nobody writes to it any more. */
	swap_now(ws, s);
	q->base_bytes = q->bytes;
	q->base_inodes = q->inodes;
	ws->files = 0;
	return 0;
}

/* Seals what the workspace has and gives it a new active layer; nothing when the active one is
 * empty. Under admin. *pause_ns: how long operations were kept waiting. */
static int seal(struct ws *ws, uint64_t *pause_ns, struct err *err)
{
	struct swap s;
	pthread_rwlock_rdlock(&ws->gate);
	meta_read(ws);
	bool empty = layer_is_empty(active(ws)), swapped = false;
	meta_done(ws);
	pthread_rwlock_unlock(&ws->gate);
	/* What begins from now on need not be in it. */
	*pause_ns = 0;
	if (empty)
		return 0;
	int r = swap_prepare(ws, &s, err);
	if (r < 0)
		return r;
	uint64_t start = clock_ns();
	pthread_rwlock_wrlock(&ws->gate);
	r = swap_commit(ws, &s, err);
	swapped = r == 0;
	pthread_rwlock_unlock(&ws->gate);
	*pause_ns = clock_ns() - start;
	if (swapped) {                                                /* s has what was */
		(void)registry_use(ws->work->registry, &ws->view, 1); /* entries are there */
		registry_unuse(ws->work->registry, &s.view, 1);
	}
	swap_done(ws, &s);
	return r;
}

int ws_stack(struct ws *ws, struct stack *out, struct layer_id *active)
{
	pthread_rwlock_rdlock(&ws->gate);
	int r = stack_copy(out, &ws->file.stack);
	if (active)
		*active = ws->file.active;
	pthread_rwlock_unlock(&ws->gate);
	return r;
}

int ws_seal(struct ws *ws, struct stack *out, struct err *err)
{
	uint64_t pause_ns;
	pthread_mutex_lock(&ws->admin);
	int r = ws_check_fault(ws, err);
	if (r == 0)
		r = seal(ws, &pause_ns, err);
	if (r == 0) {
		r = stack_copy(out, &ws->file.stack);
		if (r < 0)
			(void)err_sys(err, r, "copy the stack");
	}
	pthread_mutex_unlock(&ws->admin);
	return r < 0 ? err_prefix(err, r, "seal workspace %s", ws->id) : 0;
}

static int fork_check(struct work *w, const char *const *ids, unsigned n, struct err *err)
{
	for (unsigned i = 0; i < n; i++) {
		int r = ws_id_check(ids[i], err);
		if (r < 0)
			return r;
		struct stat st;
		if (work_has(w, ids[i]) || fstatat(w->ws_fd, ids[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			return err_set(err, -EEXIST, "workspace %s is there already", ids[i]);
		for (unsigned k = 0; k < i; k++)
			if (strcmp(ids[k], ids[i]) == 0)
				return err_set(err, -EINVAL, "workspace %s is named twice", ids[i]);
	}
	return n > 0 ? 0 : err_set(err, -EINVAL, "no workspace to make");
}

void ws_orphans_charged(struct ws *ws, int64_t *bytes, int64_t *inodes)
{
	struct u64map_slot *slot;
	*bytes = *inodes = 0;
	pthread_mutex_lock(&ws->orphan_lock);
	for (size_t i = 0; (slot = u64map_next(&ws->orphans, &i));) {
		struct attr a;
		if (view_inode(&ws->view, slot->key, &a) == 0 && a.nlink == 0) {
			*bytes += quota_bytes_of(&ws->quota, &a);
			*inodes += quota_inodes_of(&ws->quota, &a);
		}
	}
	pthread_mutex_unlock(&ws->orphan_lock);
}

/* The child's file: who is charged for what, and its settings. Under the parent's admin. */
static void child_settings(struct ws *ws, struct ws_file *f, const struct ws_limits *limits)
{
	f->seq = 1;
	f->foreign = f->stack.nlayers;
	f->limit_bytes = limits ? limits->bytes : 0;
	f->limit_inodes = limits ? limits->inodes : 0;
	if (limits && limits->xattrs != WS_XATTRS_INHERIT)
		f->no_xattrs = limits->xattrs == WS_XATTRS_OFF;
	f->flattened = limits && limits->heir;
	if (!f->flattened) {
		f->tag = new_tag();
		f->base_bytes = f->base_inodes = 0;
		return;
	}
	/* What the parent has without a name stays with it. */
	int64_t bytes, inodes;
	ws_enter(ws);
	meta_read(ws);
	ws_orphans_charged(ws, &bytes, &inodes);
	f->base_bytes = ws->quota.base_bytes - bytes;
	f->base_inodes = ws->quota.base_inodes - inodes;
	meta_done(ws);
	ws_leave(ws);
}

/* One child over what the parent has below its active layer. Under the parent's admin. */
static int fork_child(struct ws *ws, const char *id, const struct ws_limits *limits,
		      struct ws **out, struct err *err)
{
	struct work *w = ws->work;
	struct layer *top = NULL;
	struct view view = { 0 };
	struct ws_file f = { 0 };
	int r = fresh_layer(w, &top, err);
	if (r < 0)
		return r;
	r = view_push(&view, &ws->view, 1, top);
	if (r < 0)
		discard_layer(w, top);
	if (r == 0)
		r = ws_file_copy(&f, &ws->file);
	if (r == 0) {
		child_settings(ws, &f, limits);
		f.active = *layer_id(view.layers[0]);
		/* What the parent has below its active layer was numbered before now. */
		if (f.tag != ws->file.tag)
			r = work_above(w, &f.birth_ino, NULL);
	}
	if (r == 0)
		r = registry_name(w->registry, &f);
	if (r < 0) {
		if (view.nlayers) {
			struct layer *l = layer_ref(view.layers[0]);
			view_done(&view);
			discard_layer(w, l);
		}
		ws_file_done(&f);
		return err_sys(err, r, "prepare workspace %s", id);
	}
	return establish(out, w, id, &view, &f, err);
}

static void fork_undo(struct ws **children, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct work *w = children[i]->work;
		char id[WS_ID_MAX + 1];
		memcpy(id, children[i]->id, sizeof(id));
		ws_free(children[i]);
		children[i] = NULL;
		(void)ws_delete(w, id, NULL); /* the failure is told; a sweep takes what is left */
	}
}

int ws_fork(struct ws *ws, const char *const *ids, unsigned n, const struct ws_limits *limits,
	    struct ws **children, uint64_t *pause_ns, struct err *err)
{
	uint64_t pause = 0;
	unsigned made = 0;
	int r = fork_check(ws->work, ids, n, err);
	if (r < 0)
		return err_prefix(err, r, "fork workspace %s", ws->id);
	pthread_mutex_lock(&ws->admin);
	r = ws_check_fault(ws, err);
	if (r == 0)
		r = seal(ws, &pause, err);
	for (; made < n && r == 0; made += r == 0)
		r = fork_child(ws, ids[made], limits ? &limits[made] : NULL, &children[made], err);
	pthread_mutex_unlock(&ws->admin);
	if (r < 0) {
		fork_undo(children, made);
		return err_prefix(err, r, "fork workspace %s", ws->id);
	}
	if (pause_ns)
		*pause_ns = pause;
	return 0;
}

/* ---- settings and figures ---- */

int ws_set_limits(struct ws *ws, const struct ws_limits *limits, struct err *err)
{
	struct version v;
	pthread_mutex_lock(&ws->admin);
	int r = version_open(&v, ws->work, ws->id, ws->file.seq + 1, err);
	if (r == 0) {
		pthread_rwlock_wrlock(&ws->gate);
		struct ws_file f = ws->file; /* borrows what the workspace's has */
		f.seq++;
		f.limit_bytes = limits->bytes;
		f.limit_inodes = limits->inodes;
		r = version_write(&v, ws->work, &f, err);
		if (r == 0) {
			ws->file = f;
			ws->quota.limits = *limits;
		}
		pthread_rwlock_unlock(&ws->gate);
		version_done(&v, ws->work, v.seq - 1);
	}
	pthread_mutex_unlock(&ws->admin);
	return r;
}

bool ws_shows_xattrs(const struct ws *ws)
{
	return !ws->no_xattrs;
}

void ws_get_usage(struct ws *ws, struct ws_usage *out, struct ws_limits *limits)
{
	struct ws_usage u = { 0 };
	pthread_rwlock_rdlock(&ws->gate);
	meta_read(ws);
	u.bytes = ws->quota.bytes;
	u.inodes = ws->quota.inodes;
	u.layers = ws->view.nlayers;
	u.lost = layer_lost(active(ws));
	int64_t files = (int64_t)ws->file.files + ws->files;
	u.file_count = files > 0 ? (uint64_t)files : 0;
	u.gen = atomic_load(&ws->gen);
	u.memory_bytes = sizeof(*ws) + ws->view.nlayers * sizeof(struct layer *);
	for (uint32_t i = 0; i < ws->view.nlayers; i++) {
		if (layer_is_local(ws->view.layers[i]))
			u.records += layer_records(ws->view.layers[i]);
		u.memory_bytes += layer_memory(ws->view.layers[i]);
	}
	for (unsigned i = 0; i < WS_SHARDS; i++) {
		pthread_mutex_lock(&ws->nodes[i].lock);
		u.memory_bytes += ws->nodes[i].map.cap * sizeof(struct u64map_slot);
		pthread_mutex_unlock(&ws->nodes[i].lock);
	}
	if (limits) {
		*limits = ws->quota.limits;
		limits->xattrs = ws->no_xattrs ? WS_XATTRS_OFF : WS_XATTRS_ON;
	}
	meta_done(ws);
	pthread_rwlock_unlock(&ws->gate);
	*out = u;
}

int ws_with_view(struct ws *ws, int (*fn)(void *ctx, const struct view *v), void *ctx)
{
	ws_enter(ws);
	meta_read(ws);
	int r = fn(ctx, &ws->view);
	meta_done(ws);
	ws_leave(ws);
	return r;
}
