/* Contents larger than one object go from the mirror into the store: the slowest part of a first
 * checkout (inflate, two hashes, cutting, compression), so by several threads, each of which has
 * a session of its own. What they put is durable with the caller's next store_sync. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/checkout_impl.h"

enum {
	LARGE_THREADS = 4,      /* each holds one content in memory … */
	STREAM_FROM = 16 << 20, /* … below this; from there on it is a stream: slower to inflate */
};
/* A delta has no stream. */
#define DELTA_MAX (UINT64_C(2) << 30)

struct pool {
	const struct checkout_options *opt;
	struct gitrepos *repos;
	struct co_large *v;
	size_t n;
	atomic_size_t next;
	_Atomic int failed; /* the first failure, which `err` tells */
	pthread_mutex_t lock;
	struct err err;
};

struct put {
	struct co_large *large;
	const uint8_t *data;
	struct gitstream *stream; /* or this */
	size_t cap;
};

static int put_read(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	const struct put *p = ctx;
	if (!p->stream) {
		memcpy(buf, p->data + off, len);
		return 0;
	}
	int r = gitstream_read(p->stream, buf, len); /* asked for in order, each byte once */
	return r < 0 ? err_sys(err, r, "read it") : 0;
}

static int put_emit(void *ctx, uint64_t off, uint32_t len, const struct digest *d, struct err *err)
{
	struct put *p = ctx;
	if (!d)
		return 0; /* a hole */
	if (array_grow(&p->large->pieces, p->large->npieces, &p->cap) < 0)
		return err_no_memory(err);
	p->large->pieces[p->large->npieces++] =
		(struct piece){ .off = off, .len = len, .object = *d };
	return 0;
}

struct one {
	struct store_session *ss;
	struct co_large *large;
};

static int not_as_said(struct err *err)
{
	return err_set(err, -EBADMSG, "its object is another than its size says");
}

static int put_stream(void *ctx, struct gitstream *s, enum git_type type, uint64_t size,
		      struct err *err)
{
	const struct one *one = ctx;
	struct put put = { .large = one->large, .stream = s };
	struct store_content how = { put_read, put_emit, &put };
	if (type != GIT_BLOB || size != one->large->size)
		return not_as_said(err);
	free(steal_ptr(&one->large->pieces)); /* of a damaged copy */
	one->large->npieces = 0;
	return store_put_content(one->ss, 0, size, &how, err);
}

static int put_whole(struct pool *pool, const struct one *one, struct err *err)
{
	enum git_type type;
	auto_free uint8_t *data = NULL;
	size_t len;
	int r = gitrepos_read(pool->repos, mirror_number(pool->opt->mirror), &one->large->oid,
			      DELTA_MAX, &type, &data, &len, err);
	if (r >= 0 && (type != GIT_BLOB || len != one->large->size))
		r = not_as_said(err);
	if (r < 0)
		return r;
	struct put put = { .large = one->large, .data = data };
	struct store_content how = { put_read, put_emit, &put };
	return store_put_content(one->ss, 0, len, &how, err);
}

static int put_one(struct pool *pool, struct store_session *ss, struct co_large *l, struct err *err)
{
	struct one one = { ss, l };
	const struct git_use use = { put_stream, &one };
	int r = -EOPNOTSUPP;
	if (l->size >= STREAM_FROM)
		r = gitrepos_stream(pool->repos, mirror_number(pool->opt->mirror), &l->oid, &use,
				    err);
	if (r == -EOPNOTSUPP)
		r = put_whole(pool, &one, err);
	if (r == -ENOENT)
		r = -EBADMSG; /* it was there when its size was asked for */
	return r < 0 ? err_prefix(err, r, "'%s'", l->path) : 0;
}

static void *work(void *arg)
{
	struct pool *p = arg;
	struct store_session *ss;
	struct err err = { 0 };
	int r = store_session_begin(p->opt->store, &ss, &err);
	while (r >= 0 && !p->failed) {
		size_t i = atomic_fetch_add(&p->next, 1);
		if (i >= p->n)
			break;
		if (p->v[i].npieces == 0)
			r = put_one(p, ss, &p->v[i], &err);
	}
	if (r < 0) {
		pthread_mutex_lock(&p->lock);
		if (!p->failed) {
			p->err = err;
			p->failed = r;
		}
		pthread_mutex_unlock(&p->lock);
	}
	store_session_end(ss);
	return NULL;
}

/* ROOT/repos, in which the mirror is. */
static int open_repos(struct gitrepos **out, const struct checkout_options *opt, struct err *err)
{
	const char *path = mirror_path(opt->mirror), *slash = strrchr(path, '/');
	auto_free char *dir = strndup(path, slash ? (size_t)(slash - path) : 0);
	if (!dir)
		return err_no_memory(err);
	return gitrepos_new(out, opt->io, dir, err);
}

int co_large_put(struct co_large *v, size_t n, const struct checkout_options *opt, struct err *err)
{
	struct pool p = { .opt = opt, .v = v, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER };
	pthread_t threads[LARGE_THREADS];
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	size_t want = cores > LARGE_THREADS ? LARGE_THREADS : cores > 1 ? (size_t)cores : 1, k = 0;
	int r = n ? open_repos(&p.repos, opt, err) : 0;
	if (r < 0 || n == 0)
		return r;
	while (k + 1 < want && k + 1 < n && pthread_create(&threads[k], NULL, work, &p) == 0)
		k++; /* with fewer it takes longer */
	(void)work(&p);
	while (k > 0)
		(void)pthread_join(threads[--k], NULL); /* ours, joined once */
	gitrepos_free(p.repos);
	if (p.failed && err)
		*err = p.err;
	return p.failed;
}

void co_large_done(struct co_large *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i].pieces);
	free(v);
}
