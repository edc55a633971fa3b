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
	(void)snprintf(out, size, "layers/%s%s%s (%s)", hex, *f->file ? "/" : "", f->file,
		       error ? error : strerror(-f->error));
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

static void mend_one(struct work *w, const struct layer_id *id, struct mended *m)
{
	struct layer_fault f;
	/* Where that fails the layer says so once more when it is opened. */
	if (registry_mend(w->registry, id, &f, NULL) <= 0)
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
