/* The n-th call to the disk, or for memory, fails, for every n: random operations on workspaces
 * (power_run.h) until one is refused because of it. Then each workspace must show what it was
 * before that operation or what it should be after it, both in the process that goes on and in one
 * that opens the root anew on a disk that works, where one whose sync failed may also be as it was
 * at its last good one; every snapshot that was reported saved is whole;
 * the store's own check finds nothing wrong; and workspaces take new files.
 *
 *     fault [--ops N] [--seed S] [--runs N] [--nth N] [--dir PATH] [-v]
 *
 * Each n is tried with EIO and ENOSPC, as one failure and as the disk's last. A failure of the test
 * prints the line that repeats it. */
#include <stdlib.h>
#include <string.h>
#include "tests/unit/oom.h"

/* What the test itself remembers has its memory (oom.h wraps all that is linked). */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
char *__real_strndup(const char *s, size_t n);
#define malloc(n)                __real_malloc(n)
#define calloc(n, size)          __real_calloc(n, size)
#define reallocarray(p, n, size) __real_reallocarray(p, n, size)
#undef strndup
#define strndup(s, n)            __real_strndup(s, n)

#include "tests/crash/power_look.h"
#include "fs/base/io_fault.h"

enum { WORD = 2 }; /* a write that fails in the middle may have done a part of it */

static const struct {
	const char *name;
	unsigned ops;
	int error;
	bool for_good;
	size_t torn;
	bool memory; /* not the disk: allocations */
} kinds[] = {
	{ "one EIO", IO_OPS_CHANGE, -EIO, false, 0, false },
	{ "one EIO of a read", IO_OP_PREAD | IO_OP_OPEN | IO_OP_FSTAT, -EIO, false, 0, false },
	{ "one ENOSPC, part written", IO_OPS_CHANGE & ~IO_OPS_SYNC, -ENOSPC, false, 100, false },
	{ "no disk any more", IO_OPS_ALL & ~IO_OP_CLOSE, -EIO, true, 0, false },
	{ "a full disk", IO_OP_CREATE | IO_OP_PWRITE | IO_OP_FALLOCATE | IO_OP_MKDIR, -ENOSPC, true,
	  0, false },
	{ .name = "no memory", .memory = true },
};

/* Before the operation that was refused, or after it. */
static void check_space(struct space *sp, bool alive)
{
	struct tree tr = { .n = 0 };
	char why[200] = "", last[200] = "";
	size_t to = sp->n - 1, from = to;
	if (from > 0 && sp->m[from].end == UINT64_MAX)
		from--;
	while (!alive && sp->failed && from > 0 && !sp->m[from].synced)
		from--;
	int r = ws_with_view(sp->ws, tree_of_view, &tr);
	if (r < 0)
		fail("%s: %s", sp->id, strerror(-r));
	for (size_t i = from; i <= to; i++) {
		names_differ(&tr, sp->m[i].s, why);
		if (!why[0])
			contents_differ(&tr, sp, i, to, WORD, !alive && sp->failed,
					UINT64_MAX - 1, why);
		if (!why[0])
			break;
		memcpy(last, why, sizeof(last));
	}
	if (why[0])
		fail("%s%s is neither as before nor as after: %s", sp->id,
		     alive ? "" : ", opened again,", last);
	tree_done(&tr);
}

static struct io quick; /* the host's, without waiting for the disk */

static bool known(void *ctx, const char *id)
{
	for (size_t i = 0; i < t.nspaces; i++)
		if (strcmp(t.spaces[i].id, id) == 0)
			return t.spaces[i].gone == 0;
	return false;
}

static void open_again(void)
{
	struct err err;
	t.faults = false;
	t.max_ino = 0;
	open_work(t.root, &quick, 1);
	if (work_sweep(t.work, known, NULL, &err) < 0)
		fail("%s", err.text);
	check_snapshots(UINT64_MAX);
	for (size_t i = 0; i < t.nspaces; i++) {
		struct space *sp = &t.spaces[i];
		if (sp->gone)
			continue; /* it may be there or not: it was being deleted */
		if (sp->n > 0 && !sp->made_end && access(t.root, F_OK) == 0) {
			/* The first of all was being made. */
			if (ws_open(&sp->ws, t.work, sp->id, &err) < 0)
				continue;
		} else if (ws_open(&sp->ws, t.work, sp->id, &err) < 0) {
			fail("open %s: %s", sp->id, err.text);
		}
		check_space(sp, false);
		done(add_file(sp->ws));
	}
	check_store();
}

/* False: it makes fewer than n such calls. */
static bool try(size_t kind, uint64_t nth)
{
	run_begin();
	struct io_fault *f = io_fault_new(io_power_io(t.power));
	if (!f)
		fail("out of memory");
	io_fault_plan(f, &(struct io_fault_plan){ .ops = kinds[kind].ops,
						  .nth = kinds[kind].memory ? 0 : nth,
						  .error = kinds[kind].error,
						  .for_good = kinds[kind].for_good,
						  .torn = kinds[kind].torn });
	t.faults = true;
	t.why[0] = '\0';
	oom_at(kinds[kind].memory ? nth : 0);
	if (setjmp(t.refused) == 0)
		run_ops(kinds[kind].memory ? &quick : io_fault_io(f));
	bool hit = oom_hit() || io_fault_hits(f) > 0;
	end_op();
	(void)snprintf(t.what + strlen(t.what), sizeof(t.what) - strlen(t.what),
		       " (%s, nth %" PRIu64 ")", kinds[kind].name, nth);
	t.faults = false;
	if (!kinds[kind].for_good)
		io_fault_plan(f, &(struct io_fault_plan){ .nth = 0 });
	/* What failed is named. */
	if (hit && t.why[0] && strlen(t.why) < 5)
		fail("refused without a reason");
	for (size_t i = 0; i < t.nspaces; i++)
		if (t.spaces[i].ws && !kinds[kind].for_good)
			check_space(&t.spaces[i], true);
	for (size_t i = 0; i < t.nspaces; i++) {
		t.spaces[i].failed = t.spaces[i].ws && ws_fault(t.spaces[i].ws, NULL, 0);
		ws_close(t.spaces[i].ws);
		t.spaces[i].ws = NULL;
	}
	work_close(t.work);
	t.work = NULL;
	open_again();
	run_end();
	io_fault_free(f);
	t.checked++;
	return hit;
}

int main(int argc, char **argv)
{
	uint64_t only = 0;
	t.ops = 30;
	t.seed = 1;
	t.runs = 1;
	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";
		int took = common_option(argv[i], v);
		if (took)
			i += took - 1;
		else if (!strcmp(argv[i], "--nth"))
			only = strtoull(v, NULL, 10), i++;
		else
			return fprintf(stderr, "fault: what is %s?\n", argv[i]), 2;
	}
	make_dir("fault");
	quick = io_host;
	quick.fsync = quick.fdatasync = no_sync;
	for (uint64_t i = 0; i < t.runs; i++, t.seed++)
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			uint64_t n = only ? only : 1;
			while (try(k, n) && !only)
				n++;
			printf("ok %zu - seed %" PRIu64 ", %s: each of %" PRIu64 " calls\n",
			       i * (sizeof(kinds) / sizeof(kinds[0])) + k + 1, t.seed,
			       kinds[k].name, n - 1);
		}
	(void)rmdir(t.dir);
	return 0;
}
