#include "snapd/principal.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/clock.h"

void owner_of_uid(char out[OWNER_SIZE], uid_t uid)
{
	(void)snprintf(out, OWNER_SIZE, "uid:%u", (unsigned)uid);
}

void owner_self(char out[OWNER_SIZE])
{
	owner_of_uid(out, geteuid());
}

void principal_of_peer(struct principal *out, uid_t uid, gid_t gid, pid_t pid)
{
	*out = (struct principal){ .known = true, .uid = uid, .gid = gid };
	out->admin = uid == 0 || uid == geteuid();
	if (out->admin)
		owner_self(out->owner);
	else
		owner_of_uid(out->owner, uid);
	(void)snprintf(out->from, sizeof(out->from), "pid %d", (int)pid);
}

void principal_of_service(struct principal *out)
{
	*out = (struct principal){
		.known = true, .admin = true, .uid = geteuid(), .gid = getegid()
	};
	owner_self(out->owner);
	(void)snprintf(out->from, sizeof(out->from), "boughd");
}

bool principal_owns(const struct principal *who, const char *owner)
{
	return who->admin || strcmp(owner, who->owner) == 0;
}

/* ---- what is being done ---- */

static _Thread_local struct doing *current;

struct doing *doing_new(void)
{
	struct doing *d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->refs = 1;
	d->begun_ns = clock_ns();
	return d;
}

struct doing *doing_again(const struct doing *d)
{
	struct doing *out = doing_new();
	if (!out)
		return NULL;
	/* One by one: others count its references meanwhile. */
	out->caller = d->caller;
	out->method = d->method;
	out->pattern = d->pattern;
	memcpy(out->object, d->object, sizeof(out->object));
	memcpy(out->workspace, d->workspace, sizeof(out->workspace));
	out->own = d->own;
	out->body = d->body;
	out->done = d->done;
	out->ctx = d->ctx;
	out->path = d->path ? strdup(d->path) : NULL;
	if (d->path && !out->path) {
		doing_unref(out);
		return NULL;
	}
	return out;
}

void doing_give_key(struct doing *from, struct doing *to)
{
	if (!from || !to || !from->keyed)
		return;
	to->key = from->key;
	to->was = from->was;
	to->body = from->body;
	to->sum = from->sum;
	to->keyed = true;
	from->key = from->was = NULL;
	from->sum = NULL;
	from->keyed = false;
}

struct doing *doing_ref(struct doing *d)
{
	if (d)
		(void)__atomic_add_fetch(&d->refs, 1, __ATOMIC_RELAXED);
	return d;
}

struct doing_sum {
	char without[DOING_WITHOUT_MAX]; /* what is left out: `len` bytes, 0: nothing */
	size_t len, at;                  /* so many of them came just now */
	size_t back[DOING_WITHOUT_MAX];  /* of its first k + 1 so many ends are beginnings, too */
	EVP_MD_CTX *md;
	size_t n;     /* bytes that it is of */
	bool ended;   /* no more are looked at */
	bool known;   /* atomic: `of` is there */
	struct digest of;
};

static void sum_free(struct doing_sum *s)
{
	if (s)
		EVP_MD_CTX_free(s->md);
	free(s);
}

void doing_unref(struct doing *d)
{
	if (!d || __atomic_sub_fetch(&d->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	free(d->path);
	free(d->stored);
	free(d->key);
	free(d->was);
	sum_free(d->sum);
	free(d);
}

/* ---- an upload's bytes ---- */

static void leave_out(struct doing_sum *s, const char *without)
{
	s->len = strnlen(without, sizeof(s->without));
	memcpy(s->without, without, s->len);
	for (size_t i = 1, k = 0; i < s->len; i++) {
		while (k > 0 && s->without[i] != s->without[k])
			k = s->back[k - 1];
		k += s->without[i] == s->without[k];
		s->back[i] = k;
	}
}

int doing_sum_begin(struct doing *d, const char *without)
{
	d->sum = calloc(1, sizeof(*d->sum));
	if (!d->sum)
		return -ENOMEM;
	if (without)
		leave_out(d->sum, without);
	d->sum->md = EVP_MD_CTX_new();
	if (d->sum->md && EVP_DigestInit_ex(d->sum->md, EVP_sha256(), NULL) == 1)
		return 0;
	sum_free(d->sum);
	d->sum = NULL;
	return -ENOMEM;
}

/* `more`: it goes on. */
static void finish(struct doing_sum *s, bool more)
{
	const uint8_t last = more;
	if (!s->ended && EVP_DigestUpdate(s->md, &last, 1) == 1 &&
	    EVP_DigestFinal_ex(s->md, s->of.b, NULL) == 1)
		__atomic_store_n(&s->known, true, __ATOMIC_RELEASE);
	s->ended = true;
}

static void sum(struct doing_sum *s, const void *data, size_t n)
{
	if (s->ended || n == 0)
		return;
	size_t part = n < DOING_SUM_MAX - s->n ? n : DOING_SUM_MAX - s->n;
	s->ended = EVP_DigestUpdate(s->md, data, part) != 1; /* then it stays unknown */
	s->n += part;
	if (part < n)
		finish(s, true);
}

/* All but what is left out, which may come in pieces. */
static void sum_rest(struct doing_sum *s, const char *p, size_t n)
{
	for (size_t i = 0; i < n && !s->ended;) {
		if (s->at == 0) {
			const char *hit = memchr(p + i, s->without[0], n - i);
			size_t k = hit ? (size_t)(hit - p) - i : n - i;
			sum(s, p + i, k);
			i += k;
			s->at = hit ? 1 : 0;
			i += s->at;
		} else if (p[i] == s->without[s->at]) {
			s->at++;
			i++;
		} else { /* it was something else that began so */
			size_t keep = s->back[s->at - 1];
			sum(s, s->without, s->at - keep);
			s->at = keep;
		}
		if (s->at == s->len)
			s->at = 0;
	}
}

void doing_sum_add(struct doing *d, const void *data, size_t n)
{
	struct doing_sum *s = d ? d->sum : NULL;
	if (s && s->len)
		sum_rest(s, data, n);
	else if (s)
		sum(s, data, n);
}

void doing_sum_end(struct doing *d)
{
	struct doing_sum *s = d ? d->sum : NULL;
	if (!s)
		return;
	sum(s, s->without, s->at);
	finish(s, false);
}

const struct digest *doing_summed(const struct doing *d)
{
	return d && d->sum && __atomic_load_n(&d->sum->known, __ATOMIC_ACQUIRE) ? &d->sum->of
										 : NULL;
}

struct doing *doing_set(struct doing *d)
{
	struct doing *was = current;
	current = d;
	return was;
}

struct doing *doing_now(void)
{
	return current;
}

void doing_tell(struct doing *d, unsigned status, const json_t *answer)
{
	if (!d || __atomic_exchange_n(&d->told, true, __ATOMIC_ACQ_REL))
		return;
	if (d->done)
		d->done(d->ctx, d, status, answer);
}

void doing_op(const char *name)
{
	if (current)
		(void)snprintf(current->op, sizeof(current->op), "%s", name);
}

void doing_owner(char out[OWNER_SIZE])
{
	if (current)
		memcpy(out, current->caller.owner, OWNER_SIZE);
	else
		owner_self(out);
}
