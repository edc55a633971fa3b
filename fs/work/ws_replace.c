/* Replacing the lower part of a stack by what shows the same tree: saved layers, or one image. */
#include "fs/work/ws_impl.h"

#include <string.h>
#include <sys/stat.h>

/* ---- orphans ---- */

/* `from`: index of the first layer that goes. */
static int pull_orphan(struct ws *ws, uint64_t ino, uint32_t from)
{
	struct attr a, below;
	ws_enter(ws);
	stripe_write(ws, ino);
	meta_read(ws);
	int r = view_inode(&ws->view, ino, &a);
	bool held = r == 0 && a.nlink == 0 && view_inode_below(&ws->view, from, ino, &below) == 0 &&
		    below.nlink == 0;
	meta_done(ws);
	if (held)
		r = ws_pull_up(ws, &a);
	stripe_done(ws, ino);
	ws_leave(ws);
	/* It may have been let go meanwhile. */
	return r == -ENOENT || r == -ESTALE ? 0 : r;
}

/* Inodes without a name that are still held, and had none already when the layers that go were
 * sealed (there can't be more of them later): what replaces those layers leaves them out. */
static int pull_orphans(struct ws *ws, uint32_t from)
{
	auto_inos all = { 0 };
	int r = 0;
	pthread_mutex_lock(&ws->orphan_lock);
	struct u64map_slot *slot;
	for (size_t i = 0; r == 0 && (slot = u64map_next(&ws->orphans, &i));)
		r = inos_add(&all, slot->key);
	pthread_mutex_unlock(&ws->orphan_lock);
	for (size_t i = 0; i < all.n && r == 0; i++)
		r = pull_orphan(ws, all.v[i], from);
	return r;
}

/* ---- the stack ---- */

static bool same_layers(const struct stack *a, const struct stack *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (memcmp(&a->layers[i].id, &b->layers[i].id, sizeof(struct layer_id)) != 0 ||
		    a->layers[i].local != b->layers[i].local)
			return false;
	return true;
}

/* The file with `with` in the place of its n lowest layers. */
static int replaced_file(struct ws_file *out, const struct ws_file *now, uint32_t n,
			 const struct stack *with)
{
	int r = ws_file_copy(out, now);
	if (r < 0)
		return r;
	stack_done(&out->stack);
	r = stack_copy(&out->stack, with);
	for (uint32_t i = n; i < now->stack.nlayers && r == 0; i++) {
		const struct stack_layer *l = &now->stack.layers[i];
		r = stack_push(&out->stack, &l->id, l->local, l->parts, l->nparts);
	}
	out->seq++;
	if (n <= now->foreign) {
		out->foreign = now->foreign - n + with->nlayers;
	} else { /* of own changes, zeros became holes, or all went into an image */
		out->flattened = true;
		if (with->nlayers != n)
			out->foreign = with->nlayers;
	}
	return r;
}

/* The view of the upper layers above what `low` shows. 0 or -ENOMEM. */
static int replaced_view(struct view *out, const struct view *now, uint32_t n,
			 const struct view *low)
{
	uint32_t upper = now->nlayers - n;
	struct view v = { .image = low->image, .store = now->store, .seed = now->seed };
	v.layers = calloc(upper + low->nlayers, sizeof(*v.layers));
	if (!v.layers)
		return -ENOMEM;
	v.nlayers = upper + low->nlayers;
	for (uint32_t i = 0; i < v.nlayers; i++)
		v.layers[i] = layer_ref(i < upper ? now->layers[i] : low->layers[i - upper]);
	if (v.image)
		(void)image_ref(v.image);
	*out = v;
	return 0;
}

/* Where layers were saved, each by itself, the deltas know what the local ones knew. */
static void lend_changed(const struct view *now, const struct view *low, const struct stack *old,
			 const struct stack *with)
{
	if (old->nlayers != with->nlayers || !digest_equal(&old->image, &with->image))
		return;
	for (uint32_t i = 0; i < low->nlayers; i++)
		layer_lend_changed(low->layers[i], now->layers[now->nlayers - low->nlayers + i]);
}

/* After the swap: s->view and s->file are what was. */
static void settle(struct ws *ws, struct swap *s, struct stale *old)
{
	struct registry *reg = ws->work->registry;
	(void)registry_use(reg, &ws->view, 1); /* the entries are there: the file is named */
	registry_unuse(reg, &s->view, 1);
	version_done(&s->version, ws->work, s->file.seq);
	old->file = s->file;
	s->file = (struct ws_file){ 0 };
	s->named = false;
	ws_retire(ws, old);
	swap_done(ws, s);
	/* The layers go when the new file is durable. That is left to the background thread where
	 * there is one: a sync of all that is being written now takes long, and a fork would wait
	 * for it. Where it fails, they stay until it is done later. */
	if (ws->work->commit_ms == UINT64_MAX)
		(void)ws_commit(ws, NULL);
}

/* Takes the gate, with the pins set. Pinned layers are on disk then: what stays leads into them,
 * and nothing syncs them once they are out of the stack. Seldom is there one, so only then does
 * anybody wait for a sync. On failure the gate is free. */
static int pin_and_stop(struct ws *ws, struct ws_file *f, struct err *err)
{
	for (bool synced = false;; synced = true) {
		pthread_rwlock_wrlock(&ws->gate);
		int r = registry_pin(ws->work->registry, f);
		if (r == 0 && (f->npins == 0 || synced))
			return 0;
		pthread_rwlock_unlock(&ws->gate);
		r = r < 0 ? err_sys(err, r, "replace layers") : ws_commit(ws, err);
		if (r < 0)
			return r;
	}
}

static int replace(struct ws *ws, const struct stack *old, const struct stack *with,
		   struct err *err)
{
	struct work *w = ws->work;
	struct view_options vo;
	struct view low = { 0 };
	struct swap s = { .version = { -1, -1, 0, false } };
	auto_free struct stale *was = calloc(1, sizeof(*was));
	const struct stack *now = &ws->file.stack;
	if (now->nlayers < old->nlayers || !digest_equal(&now->image, &old->image) ||
	    !same_layers(now, old, old->nlayers) || now->seed != with->seed)
		return err_set(err, -ESTALE, "the stack has changed");
	if (!was)
		return err_no_memory(err);
	registry_options(w->registry, &vo);
	int r = view_open(&low, &vo, with, err);
	if (r < 0)
		return r;
	lend_changed(&ws->view, &low, old, with);
	r = pull_orphans(ws, ws->view.nlayers - old->nlayers);
	if (r < 0)
		(void)err_sys(err, r, "copy what was unlinked and is still in use");
	if (r == 0) {
		r = replaced_file(&s.file, &ws->file, old->nlayers, with);
		if (r == 0)
			r = replaced_view(&s.view, &ws->view, old->nlayers, &low);
		if (r < 0)
			(void)err_sys(err, r, "replace layers");
		else
			r = version_open(&s.version, w, ws->id, s.file.seq, err);
	}
	view_done(&low);
	if (r < 0) {
		swap_done(ws, &s);
		return r;
	}
	r = pin_and_stop(ws, &s.file, err);
	if (r < 0) {
		swap_done(ws, &s);
		return r;
	}
	r = registry_name(w->registry, &s.file);
	s.named = r == 0;
	if (r < 0)
		(void)err_sys(err, r, "replace layers");
	else
		r = version_write(&s.version, w, &s.file, err);
	if (r == 0)
		swap_now(ws, &s);
	pthread_rwlock_unlock(&ws->gate);
	if (r == 0)
		settle(ws, &s, steal_ptr(&was));
	else
		swap_done(ws, &s);
	return r;
}

int ws_replace(struct ws *ws, const struct stack *old, const struct stack *with, struct err *err)
{
	pthread_mutex_lock(&ws->admin);
	int r = ws_check_fault(ws, err);
	if (r == 0)
		r = replace(ws, old, with, err);
	pthread_mutex_unlock(&ws->admin);
	return r < 0 ? err_prefix(err, r, "workspace %s", ws->id) : 0;
}
