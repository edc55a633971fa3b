/* What a workspace does when the host's disk failed a sync of one of its layers (layer.h): it turns
 * read-only, and so does everyone that shows the layer. */
#include "fs/work/ws_impl.h"

#include <stdio.h>
#include <string.h>

enum { WHEN = 32, NAME = 128 }; /* bytes */

static void when_text(char out[WHEN], int64_t s)
{
	struct tm tm;
	time_t t = (time_t)s;
	if (s <= 0 || !gmtime_r(&t, &tm) || !strftime(out, WHEN, "%Y-%m-%dT%H:%M:%SZ", &tm))
		(void)snprintf(out, WHEN, "its last commit");
}

static void fault_name(char *out, size_t size, const struct layer_id *id,
		       const struct layer_fault *f)
{
	char hex[2 * LAYER_ID_BYTES + 1];
	const char *error = strerrorname_np(-f->error);
	hex_encode(hex, id->b, LAYER_ID_BYTES);
	/* Without a file it is another layer that failed, which may be mended by now. */
	(void)snprintf(out, size, "%slayers/%s%s%s (%s)", *f->file ? "" : "what is below ", hex,
		       *f->file ? "/" : "", f->file, error ? error : strerror(-f->error));
}

/* The lowest layer of those that failed: the others did because of it. NULL: none. */
static struct layer *find_fault(const struct view *v, uint32_t *index, struct layer_fault *f)
{
	for (uint32_t i = v->nlayers; i > 0; i--)
		if (layer_fault(v->layers[i - 1], f)) {
			*index = i - 1;
			return v->layers[i - 1];
		}
	return NULL;
}

static int copy_view(struct ws *ws, struct view *out)
{
	pthread_rwlock_rdlock(&ws->gate); /* not ws_enter: this is no use of it */
	int r = view_copy(out, &ws->view);
	pthread_rwlock_unlock(&ws->gate);
	return r;
}

bool ws_fault(struct ws *ws, char *text, size_t size)
{
	struct layer_fault f, top;
	char when[WHEN], name[NAME];
	uint32_t i;
	pthread_rwlock_rdlock(&ws->gate);
	const struct layer *l = find_fault(&ws->view, &i, &f);
	if (l && text) {
		(void)layer_fault(active(ws), &top);
		when_text(when, top.good_s ? top.good_s : f.good_s);
		fault_name(name, sizeof(name), layer_id(l), &f);
		(void)snprintf(text, size,
			       "read-only: the disk failed to take %s; mounted anew it goes "
			       "back to %s", name, when);
	}
	pthread_rwlock_unlock(&ws->gate);
	return l != NULL;
}

int ws_check_fault(struct ws *ws, struct err *err)
{
	char text[WS_FAULT_TEXT];
	return ws_fault(ws, text, sizeof(text)) ? err_set(err, -EROFS, "%s", text) : 0;
}

/* Who shows the layer can't make durable what it has above it. */
static void spread_to(struct ws *ws, void *ctx)
{
	const struct layer *failed = ctx;
	char text[WS_FAULT_TEXT];
	struct view v;
	uint32_t i = 0;
	if (copy_view(ws, &v) < 0)
		return; /* its own next commit meets it */
	while (i < v.nlayers && v.layers[i] != failed)
		i++;
	bool shows = i < v.nlayers;
	for (; shows && i > 0; i--)
		layer_fail_with(v.layers[i - 1], failed);
	view_done(&v);
	struct work *w = ws->work;
	if (shows && !atomic_exchange(&ws->fault_told, true) && w->told &&
	    ws_fault(ws, text, sizeof(text)))
		w->told(w->told_ctx, ws->id, text);
}

bool ws_spread_fault(struct ws *ws)
{
	struct view v;
	struct layer_fault f;
	uint32_t i;
	if (atomic_load(&ws->fault_told))
		return true;
	if (copy_view(ws, &v) < 0)
		return false;
	struct layer *failed = find_fault(&v, &i, &f);
	if (failed)
		work_each(ws->work, spread_to, failed);
	view_done(&v);
	return failed != NULL;
}

/* ---- mending ---- */

struct mended {
	struct layer_fault was;
	bool any;
	char name[NAME];
};

struct failed {
	const struct layer_id *id;
	int error;
};

/* The own layers of a workspace that lie on it, whether it is open or not. */
static int mark_file(struct work *w, const struct ws_file *f, const struct failed *below)
{
	uint32_t i = 0, n = f->stack.nlayers;
	while (i < n && memcmp(&f->stack.layers[i].id, below->id, sizeof(*below->id)) != 0)
		i++;
	if (i == n)
		return 0;
	int r = layer_mark(w->io, w->root, &f->active, below->error);
	while (r == 0 && ++i < n)
		if (f->stack.layers[i].local)
			r = layer_mark(w->io, w->root, &f->stack.layers[i].id, below->error);
	return r;
}

static int mark_above(struct work *w, const char *name, void *ctx, struct err *err)
{
	struct ws_file f[2];
	unsigned n = 0;
	if (ws_id_check(name, NULL) < 0)
		return 0; /* a folder half made or half removed */
	int r = ws_file_load(f, &n, w->io, w->root, name, w->boot, err);
	if (r < 0)
		return r == -ENOENT || r == -EBADMSG ? 0 : r; /* nothing that could be opened */
	for (unsigned i = 0; i < n; i++) {
		if (r == 0)
			r = mark_file(w, &f[i], ctx);
		ws_file_done(&f[i]);
	}
	return r;
}

/* Goes back to what is on disk. What lies on it in workspaces that aren't open, and so haven't
 * heard of it, isn't on disk either, or it would have been first: they are to go back, too. */
static void mend_one(struct work *w, const struct layer_id *id, struct mended *m)
{
	struct layer_fault f;
	if (!layer_is_marked(w->io, w->root, id, &f))
		return;
	struct failed failed = { id, f.error };
	/* Where this fails the layer says so once more when it is opened. */
	if (work_each_name(w, "ws", mark_above, &failed, NULL) < 0 ||
	    registry_mend(w->registry, id, &f, NULL) <= 0)
		return;
	if (!m->any || *f.file)
		fault_name(m->name, sizeof(m->name), id, &f);
	m->any = true;
	m->was = f; /* the active one's in the end */
}

bool ws_mend(struct work *w, const char *id, const struct ws_file *f)
{
	struct mended m = { 0 };
	char text[WS_FAULT_TEXT], when[WHEN];
	for (uint32_t i = 0; i < f->npins; i++)
		mend_one(w, &f->pins[i], &m);
	for (uint32_t i = 0; i < f->stack.nlayers; i++)
		if (f->stack.layers[i].local)
			mend_one(w, &f->stack.layers[i].id, &m);
	mend_one(w, &f->active, &m);
	if (!m.any)
		return false;
	when_text(when, m.was.good_s);
	(void)snprintf(text, sizeof(text),
		       "mended: the disk had failed to take %s; it is as it was at %s", m.name,
		       when);
	if (w->told)
		w->told(w->told_ctx, id, text);
	return true;
}
