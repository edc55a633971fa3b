/* fsck of images, layers and what snapshots and workspaces lead to.
 *
 * Each image and each layer is looked at once, however many share it: what is wrong with it is
 * remembered, and told for each that has it. Only sealed layers are read, so nothing
 * that is mounted is disturbed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/u64map.h"
#include "fs/store/gitrepo.h"
#include "fs/work/save.h"
#include "snapd/fsck.h"
#include "snapd/gitlink.h"

/* One image or layer that was looked at, and the faults it has or leads to. */
struct part {
	struct digest key; /* of an image its name; of a layer id, zeros, and whether it is local */
	int *faults;
	size_t nfaults;
};

struct walk {
	struct fsck *f;
	struct part *parts;
	size_t nparts, cap;
	struct part *now;  /* whose objects are being listed */
	struct u64map git; /* git objects that were read: their fault's number + 2, as a pointer */
	char where[128];
};

static int add_fault(struct walk *w, int fault)
{
	struct part *p = w->now;
	if (fault < 0)
		return 0; /* counted */
	for (size_t i = 0; i < p->nfaults; i++)
		if (p->faults[i] == fault)
			return 0;
	int *list = reallocarray(p->faults, p->nfaults + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	p->faults = list;
	p->faults[p->nfaults++] = fault;
	return 0;
}

static struct part *find_part(struct walk *w, const struct digest *key)
{
	for (size_t i = 0; i < w->nparts; i++)
		if (digest_equal(&w->parts[i].key, key))
			return &w->parts[i];
	return NULL;
}

static struct part *new_part(struct walk *w, const struct digest *key)
{
	if (array_grow(&w->parts, w->nparts, &w->cap) < 0)
		return NULL;
	struct part *p = &w->parts[w->nparts++];
	*p = (struct part){ .key = *key };
	return p;
}

/* A git object that a part leads to is read whole, once: no other check comes by there. Images of
 * one repository share most of them. */
static int check_git(struct walk *w, const struct digest *d)
{
	struct oid oid;
	uint32_t repo;
	const struct blob *b = NULL;
	struct err err = { 0 };
	(void)digest_is_git(d, &repo, &oid); /* the caller has asked */
	/* Two with one key, once in 2^64 pairs, cost no more than that one isn't looked at. */
	uint64_t key = le_get64(oid.b) + repo * UINT64_C(0x9e3779b97f4a7c15);
	void *seen = u64map_get(&w->git, key ? key : 1);
	int fault = (int)((intptr_t)seen - 2);
	if (!seen) {
		int r = store_get(w->f->sd->store, d, &b, &err);
		blob_put(b);
		if (r == -ENOMEM)
			return r;
		fault = r < 0 ? fsck_fault(w->f, w->where, err.text, d, false) : -1;
		seen = (void *)((intptr_t)fault + 2); /* never NULL: none is -1 */
		r = u64map_put(&w->git, key ? key : 1, seen);
		if (r < 0)
			return r;
	}
	return add_fault(w, fault);
}

/* An object that a part leads to: missing, or known to be damaged since the store's check? */
static int check_object(void *ctx, const struct digest *d)
{
	struct walk *w = ctx;
	if (digest_is_git(d, NULL, NULL))
		return check_git(w, d);
	int fault = w->f->nfaults ? fsck_find(w->f, d) : -1;
	bool there = store_has(w->f->sd->store, d, NULL) != 0;
	if (fault < 0 && there)
		return 0;
	if (fault < 0)
		fault = fsck_fault(w->f, w->where, "an object is missing from the store", d, false);
	else if (!there)
		fsck_lost(w->f, fault);
	return add_fault(w, fault);
}

/* ---- images ---- */

static int check_image(struct walk *w, const struct digest *name)
{
	struct image *im;
	struct err err = { 0 };
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, name);
	(void)snprintf(w->where, sizeof(w->where), "images/%s.img", hex);
	w->f->images++;
	int r = image_open(&im, NULL, w->f->opt.images, name, &err);
	if (r < 0)
		return add_fault(w, fsck_fault(w->f, w->where, err.text, NULL, false));
	r = image_check(im, &err);
	if (r < 0)
		r = add_fault(w, fsck_fault(w->f, w->where, err.text, NULL, false));
	if (r >= 0) {
		r = image_objects(im, check_object, w);
		if (r == -EIO)
			r = 0; /* told by image_check */
	}
	image_unref(im);
	return r;
}

/* ---- layers ---- */

static int check_layer(struct walk *w, const struct stack_layer *desc)
{
	struct fsck *f = w->f;
	struct layer *l = NULL;
	struct err err = { 0 };
	char hex[2 * LAYER_ID_BYTES + 1];
	hex_encode(hex, desc->id.b, sizeof(desc->id.b));
	(void)snprintf(w->where, sizeof(w->where), "%s %s", desc->local ? "layer" : "delta", hex);
	f->layers++;
	for (uint32_t i = 0; i < desc->nparts; i++) {
		int r = check_object(w, &desc->parts[i]);
		if (r < 0)
			return r;
	}
	int r = desc->local ? layer_open(&l, &f->opt.layer, &desc->id, false, &err)
			    : layer_from_delta(&l, &f->opt.layer, desc, &err);
	if (r < 0)
		return w->now->nfaults
			       ? 0
			       : add_fault(w, fsck_fault(f, w->where, err.text, NULL, false));
	if (layer_lost(l)) {
		char what[80];
		(void)snprintf(what, sizeof(what), "%llu damaged records in its journal",
			       (unsigned long long)layer_lost(l));
		r = add_fault(w, fsck_fault(f, w->where, what, NULL, false));
	}
	if (r >= 0 && layer_corrected(l)) {
		char what[80];
		(void)snprintf(what, sizeof(what), "%llu headers in its journal have a flipped bit",
			       (unsigned long long)layer_corrected(l));
		r = add_fault(w, fsck_fault(f, w->where, what, NULL, false));
	}
	if (r >= 0)
		r = layer_objects(l, check_object, w);
	layer_unref(l);
	return r;
}

/* ---- stacks ---- */

static void tell(struct walk *w, const struct part *p, bool is_snap, const char *name)
{
	for (size_t i = 0; i < p->nfaults; i++)
		fsck_affects(w->f, p->faults[i], is_snap, name);
}

static int check_stack(struct walk *w, const struct stack *s, bool is_snap, const char *name)
{
	for (uint32_t i = 0; i <= s->nlayers; i++) {
		struct digest key = { 0 };
		bool image = i == s->nlayers;
		if (image) {
			key = s->image;
		} else {
			memcpy(key.b, s->layers[i].id.b, LAYER_ID_BYTES);
			key.b[31] = s->layers[i].local ? 1 : 2;
		}
		if (image && digest_is_zero(&key))
			continue;
		struct part *p = find_part(w, &key);
		if (!p) {
			p = new_part(w, &key);
			if (!p)
				return -ENOMEM;
			w->now = p;
			int r = image ? check_image(w, &key) : check_layer(w, &s->layers[i]);
			if (r < 0)
				return r;
		}
		tell(w, p, is_snap, name);
	}
	return 0;
}

/* The tree that a checkout began with, without which there is no diff with its commit. */
static int check_checkout(struct walk *w, const char *git, bool is_snap, const char *name)
{
	auto_gitlink link = { 0 };
	struct err why = { 0 };
	int r = git ? gitlink_parse(&link, git, &why) : 0;
	if (r == -EBADMSG) {
		fsck_affects(w->f, fsck_fault(w->f, "catalog", why.text, NULL, false), is_snap,
			     name);
		return 0;
	}
	return r < 0 || !git ? r : check_stack(w, &link.stack, is_snap, name);
}

static int check_snapshot(struct walk *w, const char *id)
{
	struct fsck *f = w->f;
	auto_source src = { 0 };
	auto_stack stack = { 0 };
	auto_snap_row record = { 0 };
	struct err why = { 0 };
	if (source_find_snap(&src, f->sd, id, LEASE_SHARED, "fsck", &why) < 0)
		return 0; /* removed meanwhile */
	const struct snap_row *row = &src.snap;
	f->snapshots++;
	if (manifest_get(f->sd->store, &row->manifest, &stack, &why) < 0) {
		int known = fsck_find(f, &row->manifest);
		if (known < 0)
			known = fsck_fault(f, "manifest", why.text, &row->manifest, false);
		fsck_lost(f, known);
		fsck_affects(f, known, true, id);
		return 0;
	}
	if (records_snap_read(f->sd->records, id, &record, &why) < 0) {
		bool mended = f->repair && records_snap_write(f->sd->records, row, true, NULL) >= 0;
		fsck_affects(f, fsck_fault(f, "snapshots/", why.text, NULL, mended), true, id);
	}
	int r = check_stack(w, &stack, true, id);
	return r < 0 ? r : check_checkout(w, row->git, true, id);
}

static int check_snapshots(struct walk *w, struct err *err)
{
	struct fsck *f = w->f;
	struct snap_row *rows;
	size_t n;
	int r = catalog_snap_list(f->sd->catalog, &rows, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		progress_tell(f->progress, i, n, "snapshots", "check");
		r = check_snapshot(w, rows[i].id);
	}
	snap_rows_free(rows, n);
	return r == -ENOMEM ? err_set(err, r, "out of memory") : r;
}

static void add_ws_fault(struct fsck *f, const struct ws_row *ws, const char *what)
{
	char where[64];
	(void)snprintf(where, sizeof(where), "ws/%s", ws->id);
	fsck_affects(f, fsck_fault(f, where, what, NULL, false), false, ws->name);
}

/* What is known of the active layer, which nobody else may read. */
static void add_usage_faults(struct fsck *f, const struct ws_row *ws)
{
	struct fs_usage usage;
	if (fs_usage(f->sd->fs, ws->id, &usage, NULL) < 0)
		return;
	if (*usage.fault)
		add_ws_fault(f, ws, usage.fault);
	if (usage.lost) /* what else is damaged fsck has seen by itself */
		add_ws_fault(f, ws, usage.damage);
}

static int check_workspaces(struct walk *w, struct err *err)
{
	struct fsck *f = w->f;
	struct ws_row *rows;
	size_t n;
	int r = catalog_ws_list(f->sd->catalog, WS_ALL, &rows, &n, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n && r >= 0; i++) {
		auto_stack stack = { 0 };
		auto_lease lease = { 0 };
		struct err why = { 0 };
		f->workspaces++;
		progress_tell(f->progress, i, n, "workspaces", "check");
		int e = rows[i].broken[0] ? err_set(&why, -EIO, "%.200s", rows[i].broken) : 0;
		if (e >= 0)
			e = lease_take(&lease, f->sd->leases, rows[i].id, LEASE_SHARED, "fsck",
				       LEASE_WAIT_MS, &why);
		if (e >= 0)
			e = fs_stack(f->sd->fs, rows[i].id, &stack, &why);
		if (e >= 0) {
			r = check_stack(w, &stack, false, rows[i].name);
			if (r >= 0)
				r = check_checkout(w, rows[i].git, false, rows[i].name);
			add_usage_faults(f, &rows[i]);
			continue;
		}
		auto_ws_row now = { 0 };
		if (catalog_ws_get_any(f->sd->catalog, rows[i].id, &now, NULL) == -ENOENT)
			continue; /* removed meanwhile */
		add_ws_fault(f, &rows[i], why.text);
	}
	ws_rows_free(rows, n);
	return r == -ENOMEM ? err_set(err, r, "out of memory") : r;
}

int fsck_trees(struct fsck *f, struct err *err)
{
	struct walk w = { .f = f };
	int r = check_snapshots(&w, err);
	if (r >= 0)
		r = check_workspaces(&w, err);
	for (size_t i = 0; i < w.nparts; i++)
		free(w.parts[i].faults);
	free(w.parts);
	u64map_done(&w.git);
	return r;
}
