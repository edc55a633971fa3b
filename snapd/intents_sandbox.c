/* What is about to be done to sandboxes (intents.h). */
#include "snapd/intents.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "snapd/sandbox.h"

static int damaged(const char *text, struct err *err)
{
	return err_set(err, -EBADMSG, "%s", text);
}

/* ---- started, stopped, paused, resumed ---- */

static const char *const changes[] = { "start", "stop", "pause", "resume" };

/* The last part of what was noted for this thread's key: the number of a signal that may have been
 * sent; else a new one. Without a key nobody sends it again. */
static uint64_t signal_number(const char *was)
{
	const struct doing *d = doing_now();
	const char *last = was ? strrchr(was, '/') : NULL;
	uint64_t number = last ? strtoull(last + 1, NULL, 16) : 0;
	return number ? number : d && d->keyed ? fs_tag() : 0;
}

int intent_box(struct snapd *sd, const char *id, enum box_change what, uint64_t *number,
	       struct err *err)
{
	char text[sizeof("by/box///resume/") + ID_SIZE + 20 + 16];
	auto_sandbox_row row = { 0 };
	int r = catalog_sandbox_get(sd->catalog, id, &row, err);
	if (r < 0)
		return r;
	const uint64_t sent = number ? signal_number(intent_was("by/box/")) : 0;
	(void)snprintf(text, sizeof(text), "by/box/%s/%" PRId64 "/%s/%" PRIx64, row.id,
		       row.started_ns, changes[what], sent);
	r = catalog_intend_into(sd->catalog, text, NULL, err);
	if (r >= 0 && number)
		*number = sent;
	return r;
}

static int parse_box(char *text, char **id, int64_t *started_ns, enum box_change *what,
		     struct err *err)
{
	char *save = NULL, *end;
	*id = strtok_r(text, "/", &save);
	const char *ns = strtok_r(NULL, "/", &save), *name = strtok_r(NULL, "/", &save);
	if (!ns || !name)
		return damaged(text, err);
	*started_ns = strtoll(ns, &end, 10);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		if (strcmp(name, changes[i]) != 0)
			continue;
		*what = (enum box_change)i;
		return *end ? damaged(ns, err) : 0;
	}
	return damaged(name, err);
}

static bool has_happened(const struct sandbox_row *row, int64_t started_ns, enum box_change what)
{
	bool same = row->started_ns == started_ns;
	bool runs = row->status == SANDBOX_RUNNING || row->status == SANDBOX_PAUSED;
	switch (what) {
	case BOX_START:
		return !same && row->started_ns;
	case BOX_STOP:
		return !same || !runs;
	case BOX_PAUSE:
		return same && row->status == SANDBOX_PAUSED;
	case BOX_RESUME:
		return same && (row->status == SANDBOX_RUNNING || row->status == SANDBOX_STOPPED);
	}
	return false;
}

bool intent_box_stopped(struct snapd *sd, const char *id)
{
	const char *noted = intent_was("by/box/");
	auto_free char *was = noted ? strdup(noted) : NULL;
	auto_sandbox_row row = { 0 };
	enum box_change what;
	int64_t started_ns;
	char *of;
	return was && parse_box(was, &of, &started_ns, &what, NULL) >= 0 && what == BOX_STOP &&
	       catalog_sandbox_get(sd->catalog, id, &row, NULL) >= 0 && strcmp(row.id, of) == 0 &&
	       has_happened(&row, started_ns, what);
}

int intent_look_box(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	auto_sandbox_row row = { 0 };
	enum box_change what;
	int64_t started_ns;
	char *id;
	int r = parse_box(text, &id, &started_ns, &what, err);
	if (r >= 0)
		r = sandbox_settle(sd, id, err);
	if (r >= 0)
		r = catalog_sandbox_get(sd->catalog, id, &row, err);
	if (r < 0)
		return r;
	if (has_happened(&row, started_ns, what))
		return 200;
	/* It may have got its signal, and end before it is asked for again. */
	return what == BOX_STOP ? INTENT_LEFT : 0;
}

/* ---- processes ---- */

int intent_look_exec(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	int r = sandbox_exec_settle(sd, text, err);
	return r == EXEC_BEGUN || r == EXEC_LOST ? 201 : r; /* EXEC_NEVER: 0 */
}

int intent_signal(struct signal_note *out, struct snapd *sd, const char *id, const char *exec,
		  struct err *err)
{
	const char *was = intent_was("by/signal/");
	bool main = strcmp(exec, SANDBOX_MAIN) == 0;
	auto_free char *text = NULL;
	auto_sandbox_row row = { 0 };
	int64_t started_ns = 0;
	int r = catalog_sandbox_get(sd->catalog, id, &row, err);
	if (r < 0)
		return r;
	*out = (struct signal_note){ signal_number(was), was != NULL };
	if (was && sscanf(was, "%*[^/]/%*[^/]/%" SCNd64, &started_ns) == 1 && main &&
	    started_ns != row.started_ns)
		return err_set(err, -ESTALE, "the process has ended");
	if (asprintf(&text, "by/signal/%s/%s/%" PRId64 "/%" PRIx64, id, exec, row.started_ns,
		     out->number) < 0) {
		text = NULL;
		return err_no_memory(err);
	}
	return catalog_intend_into(sd->catalog, text, NULL, err);
}

/* ---- attached ---- */

int intent_attach(struct snapd *sd, const struct attached_row *row, struct err *err)
{
	char text[sizeof("by/attach///") + 2 * ID_SIZE + TARGET_SIZE];
	(void)snprintf(text, sizeof(text), "by/attach/%s/%s/%s", row->sandbox, row->workspace,
		       row->target + 1);
	return catalog_intend_into(sd->catalog, text, NULL, err);
}

int intent_look_attach(struct snapd *sd, char *text, json_t **answer, char **left,
		       struct err *err)
{
	char *target = NULL;
	const char *id = strtok_r(text, "/", &target), *ws = strtok_r(NULL, "/", &target);
	auto_free struct attached_row *rows = NULL;
	size_t n = 0;
	bool there = false;
	if (!ws || !*target)
		return damaged(text, err);
	int r = catalog_attached(sd->catalog, id, NULL, &rows, &n, err);
	for (size_t i = 0; i < n && r >= 0; i++)
		there |= strcmp(rows[i].workspace, ws) == 0 &&
			 strcmp(rows[i].target + 1, target) == 0;
	return r < 0 ? r : there ? 201 : 0;
}

/* ---- restored ---- */

static const char back_at[] = "by/back/";

static char *back_text(const char *prefix, const struct back *b)
{
	struct buf out = { 0 };
	char hex[2 * LAYER_ID_BYTES + 1];
	buf_printf(&out, "%s%s/%" PRId64 "/%d", prefix, b->sandbox, b->started_ns, b->runs);
	for (size_t i = 0; i < b->n; i++) {
		const struct back_tree *t = &b->of[i];
		hex_encode(hex, t->was.b, sizeof(t->was.b));
		buf_printf(&out, "/%s/%s/%s", t->ws, t->snap,
			   t->state == BACK_BEGUN  ? hex
			   : t->state == BACK_DONE ? "+"
						   : "-");
	}
	buf_add(&out, "", 1);
	if (buf_error(&out)) {
		buf_done(&out);
		return NULL;
	}
	return (char *)out.data;
}

static int parse_tree(struct back_tree *t, const char *ws, char **save)
{
	const char *snap = strtok_r(NULL, "/", save), *state = strtok_r(NULL, "/", save);
	if (!snap || !state || strlen(ws) >= ID_SIZE || strlen(snap) >= ID_SIZE)
		return -EBADMSG;
	memcpy(t->ws, ws, strlen(ws) + 1);
	memcpy(t->snap, snap, strlen(snap) + 1);
	t->state = strcmp(state, "+") == 0 ? BACK_DONE : BACK_WAITS;
	if (state[1] == '\0')
		return *state == '+' || *state == '-' ? 0 : -EBADMSG;
	t->state = BACK_BEGUN;
	return strlen(state) == 2 * LAYER_ID_BYTES &&
			       hex_decode(t->was.b, LAYER_ID_BYTES, state) >= 0
		       ? 0
		       : -EBADMSG;
}

static int back_parse(struct back *b, char *text)
{
	char *save = NULL, *end = "";
	const char *id = strtok_r(text, "/", &save), *ns = strtok_r(NULL, "/", &save);
	const char *runs = strtok_r(NULL, "/", &save), *ws;
	int r = runs && strlen(id) < ID_SIZE ? 0 : -EBADMSG;
	*b = (struct back){ .runs = r == 0 && *runs == '1' };
	if (r < 0)
		return r;
	memcpy(b->sandbox, id, strlen(id) + 1);
	b->started_ns = strtoll(ns, &end, 10);
	r = *end ? -EBADMSG : 0;
	while (r >= 0 && (ws = strtok_r(NULL, "/", &save)))
		r = b->n < BACK_MAX ? parse_tree(&b->of[b->n++], ws, &save) : -EBADMSG;
	return r;
}

int intent_back(struct snapd *sd, const struct back *b, struct err *err)
{
	auto_free char *text = back_text(back_at, b);
	return text ? catalog_intend_into(sd->catalog, text, NULL, err) : err_no_memory(err);
}

bool intent_back_was(struct back *out, const char *sandbox)
{
	const char *noted = intent_was(back_at);
	auto_free char *copy = noted ? strdup(noted) : NULL;
	return copy && back_parse(out, copy) >= 0 && strcmp(out->sandbox, sandbox) == 0;
}

/* The tree that was being restored is, where its active layer is gone: nothing else has one go
 * before that is settled. */
static int settle_tree(struct snapd *sd, struct back_tree *t, struct err *err)
{
	if (t->state != BACK_BEGUN)
		return 0;
	int r = fs_has_layer(sd->fs, t->ws, &t->was, err);
	if (r < 0 && r != -ENOENT) /* that is gone, and so says who goes on */
		return snapd_inner(r);
	t->state = r == 0 ? BACK_DONE : BACK_WAITS;
	if (t->state == BACK_DONE)
		intent_finish(sd, t->ws, t->snap);
	return 0;
}

int intent_look_back(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	auto_sandbox_row row = { 0 };
	struct back b;
	bool all = true;
	if (back_parse(&b, text) < 0)
		return damaged(text, err);
	int r = catalog_sandbox_get(sd->catalog, b.sandbox, &row, err);
	for (size_t i = 0; i < b.n && r >= 0; i++) {
		r = settle_tree(sd, &b.of[i], err);
		all &= b.of[i].state == BACK_DONE;
	}
	if (r < 0)
		return r;
	if (all && (!b.runs || has_happened(&row, b.started_ns, BOX_START)))
		return 200;
	*left = back_text("again/back/", &b);
	return *left ? INTENT_LEFT : err_no_memory(err);
}
