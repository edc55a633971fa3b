#include "snapd/lease.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "fs/base/clock.h"

struct entry {
	struct entry *next;
	char id[ID_SIZE];
	unsigned shared; /* SAVE counted too */
	bool save, exclusive;
	bool wanted;      /* somebody has waited for it since it was last taken */
	const char *what; /* the latest holder's */
};

struct leases {
	pthread_mutex_t lock;
	pthread_cond_t given;  /* some lease was given back */
	struct entry *entries; /* what is held now: as many as operations under way */
};

struct leases *leases_new(void)
{
	struct leases *l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	clock_cond_init(&l->given);
	pthread_mutex_init(&l->lock, NULL);
	return l;
}

void leases_free(struct leases *l)
{
	if (!l)
		return;
	pthread_cond_destroy(&l->given);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

static struct entry *find(struct leases *l, const char *id)
{
	for (struct entry *e = l->entries; e; e = e->next)
		if (strcmp(e->id, id) == 0)
			return e;
	return NULL;
}

static bool in_the_way(const struct entry *e, enum lease_kind kind)
{
	if (!e)
		return false;
	if (e->exclusive)
		return true;
	if (kind == LEASE_EXCLUSIVE)
		return e->shared > 0;
	return kind == LEASE_SAVE && e->save;
}

int lease_take(struct lease *out, struct leases *l, const char *id, enum lease_kind kind,
	       const char *what, int wait_ms, struct err *err)
{
	struct timespec until = clock_in_ms(wait_ms);
	struct entry *e;
	int r = 0;
	pthread_mutex_lock(&l->lock);
	while (in_the_way(e = find(l, id), kind) && r == 0) {
		e->wanted = true;
		r = wait_ms > 0 ? pthread_cond_timedwait(&l->given, &l->lock, &until) : ETIMEDOUT;
	}
	if (in_the_way(e, kind)) {
		r = err_set(err, -EBUSY, "%s is busy: %s", id, e->what);
	} else if (!e && !(e = calloc(1, sizeof(*e)))) {
		r = err_no_memory(err);
	} else {
		r = 0;
		if (!e->id[0]) {
			memcpy(e->id, id, strnlen(id, ID_CHARS));
			e->next = l->entries;
			l->entries = e;
		}
		e->what = what;
		e->wanted = false; /* who waits looks again, and says so again */
		e->exclusive = kind == LEASE_EXCLUSIVE;
		e->shared += kind != LEASE_EXCLUSIVE;
		e->save |= kind == LEASE_SAVE;
		*out = (struct lease){ .owner = l, .kind = kind };
		memcpy(out->id, e->id, ID_SIZE);
	}
	pthread_mutex_unlock(&l->lock);
	return r;
}

void lease_give(struct lease *lease)
{
	struct leases *l = lease->owner;
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	for (struct entry **p = &l->entries; *p; p = &(*p)->next) {
		struct entry *e = *p;
		if (strcmp(e->id, lease->id) != 0)
			continue;
		if (lease->kind == LEASE_EXCLUSIVE)
			e->exclusive = false;
		else
			e->shared--;
		if (lease->kind == LEASE_SAVE)
			e->save = false;
		if (!e->exclusive && e->shared == 0) {
			*p = e->next;
			free(e);
		}
		break;
	}
	pthread_cond_broadcast(&l->given);
	pthread_mutex_unlock(&l->lock);
	*lease = (struct lease){ 0 };
}

bool lease_is_wanted(struct leases *l, const char *id)
{
	pthread_mutex_lock(&l->lock);
	const struct entry *e = find(l, id);
	bool wanted = e && e->wanted;
	pthread_mutex_unlock(&l->lock);
	return wanted;
}

bool lease_is_held(struct leases *l, const char *id)
{
	pthread_mutex_lock(&l->lock);
	bool held = find(l, id) != NULL;
	pthread_mutex_unlock(&l->lock);
	return held;
}
