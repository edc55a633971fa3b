/* What couldn't be done for a sandbox that runs, and is tried again until it can: thawing one that
 * was frozen for a moment, and attaching what boughd found missing at its start. Until then its row
 * says what is wrong. */
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "snapd/outcome.h"

/* What failed; NULL: nothing any more. */
static void tell(struct live *l, const struct err *failed)
{
	struct snapd *sd = l->all->sd;
	struct err err = { 0 };
	char problem[BROKEN_SIZE] = "";
	auto_sandbox_row row = { 0 };
	if (failed)
		(void)snprintf(problem, sizeof(problem), "%.200s; that is tried again",
			       failed->text);
	if (live_ended(l) || catalog_sandbox_get(sd->catalog, l->id, &row, NULL) < 0 ||
	    strcmp(row.problem, problem) == 0)
		return;
	const struct sandbox_patch p = { .problem = problem };
	if (*problem)
		log_error("sandbox %s: %s", l->id, problem);
	if (catalog_sandbox_patch(sd->catalog, l->id, &p, &err) < 0)
		log_error("sandbox %s: %s", l->id, err.text); /* the next try tells it */
	else if (!*problem || !row.problem[0])
		outcome_own(sd, *problem ? "sandbox.impaired" : "sandbox.mended", &row.own, l->id,
			    "");
}

static int thaw(struct live *l, enum live_frozen by, struct err *err)
{
	int r = by == LIVE_BY_GROUP	? box_freeze(l->id, l->all->ns, false, err)
		: by == LIVE_BY_RUNTIME ? shim_resume(l->shim, err)
					: 0;
	bool gone = r == -ENOENT || r == -ESRCH || live_ended(l);
	pthread_mutex_lock(&l->all->lock);
	l->frozen = r < 0 && !gone ? by : LIVE_NOT_FROZEN;
	pthread_mutex_unlock(&l->all->lock);
	return r < 0 && !gone ? err_prefix(err, r, "it is frozen") : 0;
}

enum live_frozen live_frozen(struct live *l)
{
	pthread_mutex_lock(&l->all->lock);
	enum live_frozen by = l->frozen;
	pthread_mutex_unlock(&l->all->lock);
	return by;
}

int live_may_run(struct live *l, struct err *err)
{
	if (!live_frozen(l))
		return 0;
	return err_set(err, -ESTALE,
		       "the sandbox is frozen since it was saved, and can't be thawed yet");
}

static void mend_later(struct live *l)
{
	pthread_mutex_lock(&l->all->lock);
	l->impaired = true;
	pthread_mutex_unlock(&l->all->lock);
	worker_wake(l->all->mender);
}

void live_thaw(struct live *l, enum live_frozen by)
{
	struct err err = { 0 };
	if (thaw(l, by, &err) >= 0)
		return;
	tell(l, &err);
	mend_later(l);
}

/* boughd died between the catalog's word and the mount, or between a detached one's and that: what
 * the catalog has is attached, as long as it may be. The first failure is told. */
static int attach_missing(struct live *l, struct err *err)
{
	struct snapd *sd = l->all->sd;
	auto_box *b = NULL;
	int first = sandbox_box_get(&b, sd, l->id, err);
	for (size_t i = 0; b && i < b->n_attached; i++) {
		const struct box_mount *m = &b->mounts[i];
		struct err why = { 0 };
		if (box_attached(&b->config, b->row.pid, m->target, NULL) != 0)
			continue; /* it is, or nobody can tell */
		int r = sandbox_judge(sd, l->id, m->target, &why);
		if (r == -EPERM || r == -ENOENT) { /* it is gone, for this one */
			log_warn("sandbox %s: %s", l->id, why.text);
			r = catalog_detach(sd->catalog, l->id, m->target, &why);
			if (r >= 0)
				outcome_own(sd, "sandbox.detached", &b->row.own, l->id,
					    b->attached[i].workspace);
		} else if (r >= 0) {
			r = box_attach(&b->config, b->row.pid, m, &why);
		}
		if (r < 0 && first >= 0)
			first = err_set(err, r, "its workspace isn't at %s: %s", m->target,
					why.text);
	}
	return first;
}

/* Whether nothing is left to be tried. */
static bool mend(struct live *l)
{
	struct err err = { 0 };
	auto_lease lease = { 0 };
	if (live_ended(l))
		return true;
	/* Not in the middle of a save, whose moment it would end. */
	if (lease_take(&lease, l->all->sd->leases, l->id, LEASE_EXCLUSIVE, "mend", 0, NULL) < 0)
		return false;
	int r = thaw(l, live_frozen(l), &err);
	if (r >= 0)
		r = attach_missing(l, &err);
	tell(l, r < 0 ? &err : NULL);
	return r >= 0 || live_ended(l);
}

void live_mend(struct live *l)
{
	if (!mend(l))
		mend_later(l);
}

/* One that waits for a try since before this round; the caller's reference. */
static struct live *next_impaired(struct sandboxes *s)
{
	pthread_mutex_lock(&s->lock);
	struct live *l = s->live;
	while (l && (!l->impaired || l->round == s->round))
		l = l->next;
	if (l) {
		l->refs++;
		l->impaired = false;
		l->round = s->round;
	}
	pthread_mutex_unlock(&s->lock);
	return l;
}

void sandboxes_mend(void *ctx, bool due)
{
	struct sandboxes *s = ctx;
	struct live *l;
	s->round++; /* this thread's alone */
	while (!worker_stopping(s->mender) && (l = next_impaired(s))) {
		live_mend(l);
		live_put(l);
	}
}
