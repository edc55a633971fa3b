/* Power loss, over all files of a root together (fs/base/io_power.h): random operations on
 * workspaces run on a disk that remembers; then, for moments of the run, roots are made as the disk
 * could have left them, and opened as after a boot. Each must show
 *
 *   - every workspace at one moment, not before the last fsync that had returned and not behind the
 *     operation under way; of contents written since that moment any sector may be the newer one;
 *     never bytes that the file didn't have (invariant 3),
 *   - every snapshot that was reported saved, whole (invariant 5),
 *   - a store that its own check finds nothing wrong with,
 *
 * and take a new file, fsync it, and have it after one more boot.
 *
 *     power [--ops N] [--seed S] [--runs N] [--cuts N] [--tries N] [--dir PATH] [-v]
 *
 * --cuts: moments of each run, evenly; 0: all. Each is made with nothing lost, with all lost, and
 * `tries` times at random. A failure prints the line that repeats it, with --at CUT.TRY. */
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
			contents_differ(tr, sp, i, to, SECTOR, why);
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
		if (!again)
			add_file(ws);
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
	open_work(t.after, &io, 2);
	if (work_sweep(t.work, known, NULL, &err) < 0)
		fail("%s", err.text);
	check_snapshots(cut);
	check_spaces(cut, false);
	check_store();
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

static void check_cuts(void)
{
	uint64_t all = io_power_now(t.power);
	uint64_t n = t.cuts && t.cuts < all ? t.cuts : all + 1;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t cut = n > all ? i : (i + 1) * all / n;
		for (uint64_t try = 0; try < t.tries + 2; try++)
			check(cut, try);
	}
}

static void run(void)
{
	run_begin();
	run_ops(io_power_io(t.power));
}

static void do_runs(void)
{
	uint64_t changes = 0, before = t.checked, first = t.seed;
	for (uint64_t i = 0; i < t.runs; i++, t.seed++) {
		run();
		changes += io_power_now(t.power);
		check_cuts();
		run_end();
	}
	printf("ok %u - %" PRIu64 " runs of %" PRIu64 " operations from seed %" PRIu64 ": %" PRIu64
	       " changes of the disk, %" PRIu64 " roots after a power loss\n",
	       ++t.printed, t.runs, t.ops, first, changes, t.checked - before);
}

int main(int argc, char **argv)
{
	const char *dir = getenv("TMPDIR");
	uint64_t at_cut = 0, at_try = 0;
	bool at = false;
	t.ops = 60;
	t.seed = 1;
	t.runs = 1;
	t.tries = 1;
	t.cuts = 0;
	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";
		if (!strcmp(argv[i], "-v"))
			t.verbose = true;
		else if (!strcmp(argv[i], "--ops"))
			t.ops = strtoull(v, NULL, 10), i++;
		else if (!strcmp(argv[i], "--seed"))
			t.seed = strtoull(v, NULL, 10), i++;
		else if (!strcmp(argv[i], "--runs"))
			t.runs = strtoull(v, NULL, 10), i++;
		else if (!strcmp(argv[i], "--tries"))
			t.tries = strtoull(v, NULL, 10), i++;
		else if (!strcmp(argv[i], "--cuts"))
			t.cuts = strtoull(v, NULL, 10), i++;
		else if (!strcmp(argv[i], "--dir"))
			dir = v, i++;
		else if (!strcmp(argv[i], "--at") &&
			 sscanf(v, "%" SCNu64 ".%" SCNu64, &at_cut, &at_try) == 2)
			at = true, i++;
		else
			return fprintf(stderr, "power: what is %s?\n", argv[i]), 2;
	}
	if (t.ops > UINT16_MAX - 1)
		return fprintf(stderr, "power: at most %d operations\n", UINT16_MAX - 1), 2;
	/* In memory where that is at hand: nothing here is about a real disk. */
	if (!dir && access("/dev/shm", W_OK) == 0)
		dir = "/dev/shm";
	(void)snprintf(t.dir, sizeof(t.dir), "%s/bough-power.XXXXXX", dir ? dir : "/tmp");
	if (!mkdtemp(t.dir))
		return perror("power: mkdtemp"), 1;
	(void)snprintf(t.root, sizeof(t.root), "%s/root", t.dir);
	(void)snprintf(t.after, sizeof(t.after), "%s/after", t.dir);
	(void)umask(077);
	if (at) {
		run();
		check(at_cut, at_try);
		run_end();
	} else if (argc > 1) {
		do_runs();
	} else { /* short ones at every moment, longer ones here and there */
		t.ops = 40, t.runs = 2;
		do_runs();
		t.ops = 120, t.runs = 4, t.cuts = 30, t.tries = 2;
		do_runs();
	}
	(void)rmdir(t.dir);
	return 0;
}
