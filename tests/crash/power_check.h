/* For power.c and catalog.c: the roots that a power loss could leave, and what each must show. */
#ifndef BOUGH_TESTS_CRASH_POWER_CHECK_H
#define BOUGH_TESTS_CRASH_POWER_CHECK_H

#include "fs/work/ws_impl.h"
#include "tests/crash/power_look.h"

/* ---- what was left ---- */

/* The workspace is at one moment that may be. */
static void check_tree(const struct tree *tr, const struct space *sp, uint64_t cut)
{
	size_t from = 0, to = 0;
	char why[200] = "", last[200] = "no moment";
	for (size_t i = 0; i < sp->n; i++) {
		if (sp->m[i].synced && sp->m[i].end <= cut)
			from = i;
		if (sp->m[i].begin <= cut)
			to = i;
	}
	for (size_t i = from; i <= to; i++) {
		names_differ(tr, sp->m[i].s, why);
		if (!why[0])
			contents_differ(tr, sp, i, to, SECTOR, true, cut, why);
		if (!why[0])
			return;
		memcpy(last, why, sizeof(last));
	}
	fail("workspace %s is at none of its moments %zu to %zu: %s", sp->id, from, to, last);
}

static uint64_t cut_now;

static bool is_known(const struct space *sp)
{
	return sp->made_end <= cut_now && (sp->gone == 0 || sp->gone > cut_now);
}

static bool known(void *ctx, const char *id)
{
	for (size_t i = 0; i < t.nspaces; i++)
		if (strcmp(t.spaces[i].id, id) == 0)
			return is_known(&t.spaces[i]);
	return false;
}

static bool was_synced(const struct space *sp, uint64_t cut)
{
	for (size_t i = sp->own; i < sp->n; i++)
		if (sp->m[i].synced && sp->m[i].end <= cut)
			return true;
	return false;
}

/* It is charged for what it has. What was charged when the active layer began is of a moment that
 * may be lost: a layer below was sealed then, and isn't synced before an fsync above it. */
static void check_usage(struct ws *ws)
{
	int64_t bytes, inodes, sum, n;
	uint32_t own = own_layers(ws);
	done(quota_sum(&ws->view, own, &ws->quota, &sum, &n));
	if (own == 1 && (sum != ws->quota.bytes || n != ws->quota.inodes))
		fail("usage %" PRId64 " and %" PRId64 ", not %" PRId64 " and %" PRId64,
		     ws->quota.bytes, ws->quota.inodes, sum, n);
	if (ws->file.flattened)
		return;
	done(quota_count(&ws->view, own, &ws->quota, &bytes, &inodes, NULL, NULL));
	if (bytes != sum)
		fail("%" PRId64 " bytes are charged, not %" PRId64, sum, bytes);
}

static void check_spaces(uint64_t cut, bool again)
{
	for (size_t i = 0; i < t.nspaces; i++) {
		struct space *sp = &t.spaces[i];
		struct ws *ws = NULL;
		struct err err;
		struct tree tr = { .n = 0 };
		struct entry e;
		if (!is_known(sp) || sp->lost)
			continue;
		int r = ws_open(&ws, t.work, sp->id, &err);
		/* Made just before the power went, and lost with it: that is said. */
		if (r < 0 && !was_synced(sp, cut) && !again &&
		    (r == -ENOENT || strstr(err.text, "power loss"))) {
			sp->lost = true;
			continue;
		}
		if (r < 0)
			fail("open %s: %s", sp->id, err.text);
		if (again) {
			done(ws_lookup(ws, 1, "after", 5, &e));
			done(ws_unlink(ws, 1, "after", 5, &root_caller));
			ws_forget(ws, e.node, 1);
		}
		(void)ws_with_view(ws, tree_of_view, &tr);
		check_tree(&tr, sp, cut);
		tree_done(&tr);
		check_usage(ws);
		if (!again)
			done(add_file(ws));
		ws_close(ws);
	}
}

static void check(uint64_t cut, uint64_t try)
{
	struct io_power_loss loss = { .what = try == 0   ? LOSE_NONE
					      : try == 1 ? LOSE_ALL
							 : LOSE_SOME,
				      .seed = t.seed * 1000 + try };
	struct err err;
	struct work *running = t.work;
	struct io io = io_host;
	io.fsync = io.fdatasync = no_sync;
	t.at_cut = cut_now = cut;
	t.at_try = try;
	t.at = true;
	(void)snprintf(t.what, sizeof(t.what), "cut at %" PRIu64 ", try %" PRIu64, cut, try);
	if (io_power_make(t.power, cut, &loss, t.after, &err) < 0)
		fail("%s", err.text);
	t.max_ino = 0;
	open_work(t.after, &io, 2);
	if (hooks.opened)
		hooks.opened();
	if (work_sweep(t.work, hooks.known ? hooks.known : known, NULL, &err) < 0)
		fail("%s", err.text);
	check_snapshots(cut);
	check_spaces(cut, false);
	check_store();
	if (hooks.look)
		hooks.look(cut);
	work_close(t.work);
	(void)snprintf(t.what, sizeof(t.what),
		       "cut at %" PRIu64 ", try %" PRIu64 ", one boot later", cut, try);
	open_work(t.after, &io, 3);
	check_snapshots(cut);
	check_spaces(cut, true);
	for (size_t i = 0; i < t.nspaces; i++)
		t.spaces[i].lost = false;
	work_close(t.work);
	t.work = running;
	t.at = false;
	if (io_remove_tree(AT_FDCWD, t.after, &err) < 0)
		fail("%s", err.text);
	t.checked++;
}

static void check_cuts(uint64_t from)
{
	uint64_t all = io_power_now(t.power) - from;
	uint64_t n = t.cuts && t.cuts < all ? t.cuts : all + 1;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t cut = from + (n > all ? i : (i + 1) * all / n);
		for (uint64_t try = 0; try < t.tries + 2; try++)
			check(cut, try);
	}
}

#endif
