#include "snapd/tidier.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "snapd/api.h"
#include "snapd/exports.h"
#include "snapd/outcome.h"
#include "snapd/web_task.h"
#include "snapd/worker.h"

enum {
	LOOK_MS = 60 * 1000,
	AGAIN_MS = 10 * 60 * 1000, /* one in a hurry after another */
};

struct tidier {
	struct snapd *sd;
	struct worker *worker;
	bool cancelled; /* atomic: gc reads it */
	atomic_bool hurry;
	_Atomic uint64_t hurried_ms; /* 0: never */
};

/* ROOT/run/gc: its time is that of the last one, and it has what was found then, as text. */
static int open_stamp(const struct snapd *sd)
{
	char path[PATH_SIZE];
	(void)snprintf(path, sizeof(path), "%s/run/gc", sd->root);
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void tidier_note(struct snapd *sd, const uint64_t *held)
{
	char text[64];
	struct store_stats st;
	auto_fd fd = open_stamp(sd);
	if (fd < 0 || futimens(fd, NULL) < 0)
		log_warn("note the time of a gc: %s", strerrordesc_np(errno)); /* one too early */
	if (fd < 0 || !held || store_stats(sd->store, &st, NULL) < 0)
		return;
	int n = snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 "\n", *held, st.bytes_raw);
	if (pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n) < 0)
		log_warn("note what a gc found: %s", strerrordesc_np(errno));
}

double tidier_dedup(struct snapd *sd, uint64_t *held)
{
	char text[64] = "";
	uint64_t raw;
	auto_fd fd = open_stamp(sd);
	if (fd < 0 || pread(fd, text, sizeof(text) - 1, 0) < 0 ||
	    sscanf(text, "%" SCNu64 " %" SCNu64, held, &raw) != 2)
		return 0;
	return raw && *held > raw ? (double)*held / (double)raw : 1;
}

static bool is_due(const struct snapd *sd)
{
	struct stat st;
	auto_fd fd = open_stamp(sd); /* the first one counts from now */
	int64_t every_ns = (int64_t)sd->policy.gc_every_s * 1000000000;
	return every_ns && fd >= 0 && fstat(fd, &st) == 0 &&
	       snapd_now_ns() - ((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec) >=
		       every_ns;
}

static void nobody_asks(void *ctx, uint64_t done, uint64_t total, const char *unit,
			const char *what)
{
}

static void run(void *ctx, bool due)
{
	struct tidier *t = ctx;
	struct snapd *sd = t->sd;
	struct progress p = { .sink = nobody_asks, .cancelled = &t->cancelled };
	struct err err = { 0 };
	struct owned own = { 0 };
	json_t *result = NULL;
	exports_sweep(sd, false);
	bool hurry = atomic_exchange(&t->hurry, false);
	if (catalog_damage(sd->catalog) || (!hurry && !is_due(sd)))
		return;
	int r = api_gc_now(sd, &p, &result, &err);
	if (r >= 0) {
		owner_self(own.owner);
		log_info("gc%s freed %lld bytes", hurry ? ", for want of room," : "",
			 (long long)json_integer_value(json_object_get(result, "bytes_freed")));
		outcome_own(sd, "gc.done", &own, "", "");
	} else if (r == -EBUSY || r == -ECANCELED) {
		log_debug("gc: %s", err.text);
	} else {
		log_error("gc: %s", err.text);
		tidier_note(sd, NULL); /* what fails once fails again: not each minute */
	}
	json_decref(result);
}

int tidier_start(struct tidier **out, struct snapd *sd, struct err *err)
{
	struct tidier *t = calloc(1, sizeof(*t));
	if (!t)
		return err_no_memory(err);
	int64_t every_ms = (int64_t)sd->policy.gc_every_s * 1000;
	const struct worker_options opt = { .what = "gc by the clock",
					    .every_ms = every_ms && every_ms < LOOK_MS ? every_ms
										       : LOOK_MS,
					    .low = true,
					    .run = run,
					    .ctx = t };
	t->sd = sd;
	exports_sweep(sd, true);
	int r = worker_start(&t->worker, &opt, err);
	if (r < 0) {
		free(t);
		return r;
	}
	*out = t;
	return 0;
}

void tidier_hurry(struct tidier *t)
{
	uint64_t now = clock_ms();
	if (!t || !t->sd->policy.gc_every_s)
		return;
	uint64_t last = atomic_load(&t->hurried_ms);
	if (last && now - last < AGAIN_MS)
		return;
	atomic_store(&t->hurried_ms, now);
	atomic_store(&t->hurry, true);
	worker_wake(t->worker);
}

void tidier_stop(struct tidier *t)
{
	if (!t)
		return;
	__atomic_store_n(&t->cancelled, true, __ATOMIC_RELAXED);
	worker_stop(t->worker);
	free(t);
}
