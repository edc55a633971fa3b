/* Power loss, over all files of a root together (fs/base/io_power.h): random operations on
 * workspaces run on a disk that remembers; then, for moments of the run, roots are made as the disk
 * could have left them, and opened as after a boot. Each must show
 *
 *   - every workspace at one moment, not before the last fsync that had returned and not behind the
 *     operation under way; of contents written since that moment any sector may be the newer one;
 *     never bytes that the file didn't have (invariant 3),
 *   - but of big files those that no sync took since an earlier moment may be as at that, and not
 *     longer than ever since; unless a name was given to them instead of another file,
 *   - every snapshot that was reported saved, whole (invariant 5),
 *   - a store that its own check finds nothing wrong with,
 *
 * and take a new file, fsync it, and have it after one more boot.
 *
 *     power [--ops N] [--seed S] [--runs N] [--cuts N] [--tries N] [--dir PATH] [-v]
 *
 * --cuts: moments of each run, evenly; 0: all. Each is made with nothing lost, with all lost, and
 * `tries` times at random. A failure prints the line that repeats it, with --at CUT.TRY. */
#include "tests/crash/power_check.h"

static void run(void)
{
	run_begin();
	run_ops(io_power_io(t.power));
}

static void do_runs(void)
{
	uint64_t changes = 0, before = t.checked, first = t.seed, shorter = t.shorter;
	for (uint64_t i = 0; i < t.runs; i++, t.seed++) {
		run();
		changes += io_power_now(t.power);
		check_cuts(0);
		run_end();
	}
	printf("ok %u - %" PRIu64 " runs of %" PRIu64 " operations from seed %" PRIu64 ": %" PRIu64
	       " changes of the disk, %" PRIu64 " roots after a power loss, %" PRIu64
	       " big files shorter in them\n",
	       ++t.printed, t.runs, t.ops, first, changes, t.checked - before, t.shorter - shorter);
}

int main(int argc, char **argv)
{
	uint64_t at_cut = 0, at_try = 0;
	bool at = false;
	t.ops = 60;
	t.seed = 1;
	t.runs = 1;
	t.tries = 1;
	t.cuts = 0;
	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";
		int took = common_option(argv[i], v);
		if (took)
			i += took - 1;
		else if (!strcmp(argv[i], "--at") &&
			 sscanf(v, "%" SCNu64 ".%" SCNu64, &at_cut, &at_try) == 2)
			at = true, i++;
		else
			return fprintf(stderr, "power: what is %s?\n", argv[i]), 2;
	}
	if (t.ops > UINT16_MAX - 1)
		return fprintf(stderr, "power: at most %d operations\n", UINT16_MAX - 1), 2;
	make_dir("power");
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
