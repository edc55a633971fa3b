/* What the operations of a workspace are made of: locks, inodes, the kernel's references,
 * orphans, and one atomic change. */
#include "fs/work/ws_impl.h"

#include <string.h>
#include <sys/stat.h>

/* ---- locks ---- */

void ws_enter(struct ws *ws)
{
	pthread_rwlock_rdlock(&ws->gate);
	if (!atomic_load_explicit(&ws->touched, memory_order_relaxed))
		atomic_store_explicit(&ws->touched, true, memory_order_relaxed);
}

void ws_leave(struct ws *ws)
{
	pthread_rwlock_unlock(&ws->gate);
}

void meta_read(struct ws *ws)
{
	pthread_rwlock_rdlock(&ws->meta);
}

void meta_write(struct ws *ws)
{
	pthread_rwlock_wrlock(&ws->meta);
}

void meta_done(struct ws *ws)
{
	pthread_rwlock_unlock(&ws->meta);
}

void stripe_read(struct ws *ws, uint64_t ino)
{
	pthread_rwlock_rdlock(&ws->stripes[ino % WS_STRIPES]);
}

void stripe_write(struct ws *ws, uint64_t ino)
{
	pthread_rwlock_wrlock(&ws->stripes[ino % WS_STRIPES]);
}

void stripe_done(struct ws *ws, uint64_t ino)
{
	pthread_rwlock_unlock(&ws->stripes[ino % WS_STRIPES]);
}

struct timespec ws_now(void)
{
	struct timespec t;
	/* The clock by which the kernel's own file systems stamp their inodes. */
	clock_gettime(CLOCK_REALTIME_COARSE, &t);
	return t;
}

/* ---- inodes ---- */

int ws_get(struct ws *ws, uint64_t node, struct attr *out)
{
	uint64_t ino = ino_of(node);
	struct attr a;
	int r = view_inode(&ws->view, ino, &a);
	if (r < 0)
		return r == -ENOENT ? -ESTALE : r;
	if (ino != INO_ROOT && a.gen != node >> 48)
		return -ESTALE;
	*out = a;
	return 0;
}

int ws_get_dir(struct ws *ws, uint64_t node, struct attr *out)
{
	int r = ws_get(ws, node, out);
	if (r < 0)
		return r;
	if (!S_ISDIR(out->mode))
		return -ENOTDIR;
	return out->nlink == 0 ? -ENOENT : 0;
}

int ws_get_regular(struct ws *ws, uint64_t node, struct attr *out)
{
	int r = ws_get(ws, node, out);
	if (r < 0)
		return r;
	if (S_ISDIR(out->mode))
		return -EISDIR;
	return S_ISREG(out->mode) ? 0 : -EINVAL;
}

/* ---- references ---- */

static struct node_shard *shard_of(struct ws *ws, uint64_t node)
{
	return &ws->nodes[node % WS_SHARDS];
}

static void raise_gen(_Atomic uint16_t *at, uint16_t gen)
{
	uint16_t was = atomic_load(at);
	while (gen > was && !atomic_compare_exchange_weak(at, &was, gen))
		;
}

void gen_shown(struct ws *ws, uint16_t gen)
{
	_Atomic uint16_t *kept = atomic_load(&ws->gen_kept);
	raise_gen(&ws->gen, gen);
	if (kept)
		raise_gen(kept, gen);
}

void ws_keep_gen(struct ws *ws, _Atomic uint16_t *where)
{
	atomic_store(&ws->gen_kept, where);
	if (!where)
		return;
	raise_gen(&ws->gen, atomic_load(where));
	raise_gen(where, atomic_load(&ws->gen));
}

int node_ref(struct ws *ws, const struct attr *a)
{
	uint64_t node = node_of(a);
	struct node_shard *s = shard_of(ws, node);
	uint16_t gen = atomic_load_explicit(&ws->gen, memory_order_relaxed);
	if (a->gen > gen)
		gen_shown(ws, a->gen);
	pthread_mutex_lock(&s->lock);
	uintptr_t n = (uintptr_t)u64map_get(&s->map, node);
	int r = u64map_put(&s->map, node, (void *)(n + 1));
	pthread_mutex_unlock(&s->lock);
	return r;
}

uint64_t node_unref(struct ws *ws, uint64_t node, uint64_t n)
{
	struct node_shard *s = shard_of(ws, node);
	pthread_mutex_lock(&s->lock);
	uintptr_t have = (uintptr_t)u64map_get(&s->map, node);
	have = have > n ? have - n : 0;
	if (have > 0)
		(void)u64map_put(&s->map, node, (void *)have); /* it is there: can't fail */
	else
		u64map_del(&s->map, node);
	pthread_mutex_unlock(&s->lock);
	return have;
}

/* Resumed, and the kernel may have references from before: only it knows. */
static bool from_before(const struct ws *ws, uint64_t ino)
{
	return ino < atomic_load_explicit(&ws->held_below, memory_order_relaxed);
}

uint64_t node_refs(struct ws *ws, uint64_t node)
{
	struct node_shard *s = shard_of(ws, node);
	pthread_mutex_lock(&s->lock);
	uintptr_t n = (uintptr_t)u64map_get(&s->map, node);
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* ---- one change ---- */

static bool not_later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec <= b->tv_nsec);
}

/* No two changes of a workspace have one time, though the clock ticks slowly: ctime tells the
 * versions of a file apart (version.h). A clock that is put back is followed, but for little. */
static struct timespec stamp(struct ws *ws)
{
	enum { BACK_S = 1, SECOND_NS = 1000000000 };
	struct timespec now = ws_now(), *last = &ws->stamped;
	if (not_later(&now, last) && last->tv_sec - now.tv_sec <= BACK_S) {
		now = *last;
		if (++now.tv_nsec == SECOND_NS)
			now = (struct timespec){ now.tv_sec + 1, 0 };
	}
	*last = now;
	return now;
}

void op_begin(struct op *op, struct ws *ws, uint64_t ino, const struct caller *c)
{
	*op = (struct op){ .ws = ws, .now = stamp(ws) };
	txn_begin(&op->t, active(ws), ino);
	op->t.tag = c ? c->tag : 0;
}

int ws_base_size(const struct ws *ws, const struct attr *a, uint64_t *base_size)
{
	const struct layer_inode *li = layer_inode(active(ws), a->ino);
	struct attr below;
	if (li && !(li->damaged && li->attr.mode == 0)) {
		*base_size = li->base_size;
		return 0;
	}
	*base_size = 0;
	if (!S_ISREG(a->mode))
		return 0;
	int r = view_inode_below(&ws->view, 1, a->ino, &below);
	if (r == 0)
		*base_size = below.size;
	return r == -ENOENT ? 0 : r;
}

void op_own(struct op *op, struct attr *a, int64_t bytes)
{
	struct quota *q = &op->ws->quota;
	if (a->own_tag != q->tag) {
		a->own_tag = q->tag;
		a->own_bytes = 0;
		op->inodes += a->ino >= q->birth_ino;
	}
	/* After flattening the count may be over what is found: never below zero. */
	if (bytes < 0 && (uint64_t)-bytes > a->own_bytes)
		bytes = -(int64_t)a->own_bytes;
	a->own_bytes += (uint64_t)bytes;
	op->bytes += bytes;
}

int ws_cap_growth(const struct ws *ws, const struct attr *a, uint64_t size, int64_t blocks,
		  int64_t xattrs, int64_t *growth)
{
	int64_t beyond = 0;
	if (!ws->file.flattened)
		return 0;
	int r = quota_content(&ws->view, own_layers(ws), a->ino, block_ceil(size), UINT64_MAX, size,
			      &beyond);
	if (r == 0)
		*growth = quota_cap(&ws->quota, a, size, blocks, xattrs + beyond, *growth);
	return r;
}

/* A copy's base_size hides what own layers below have behind the end of the file. */
static void account_copy(struct op *op, struct attr *a)
{
	struct ws *ws = op->ws;
	if (!S_ISREG(a->mode) || a->own_tag != ws->quota.tag || a->own_bytes == 0 ||
	    own_layers(ws) < 2 || layer_inode(active(ws), a->ino))
		return;
	struct attr below;
	int64_t hidden = 0;
	int r = view_inode_below(&ws->view, 1, a->ino, &below);
	uint64_t end = (below.size + LAYER_BLOCK - 1) / LAYER_BLOCK * LAYER_BLOCK;
	if (r == 0)
		r = quota_content(&ws->view, own_layers(ws), a->ino, end, UINT64_MAX, below.size,
				  &hidden);
	if (r == 0)
		op_own(op, a, -hidden);
	else if (r != -ENOENT)
		op->error = r;
}

/* The inode's record, and what waited for it. */
static void put_inode(struct op *op, struct attr *a, uint64_t base_size)
{
	op_own(op, a, 0);
	txn_inode(&op->t, a, base_size);
	if (op->xattr)
		txn_xattr_del(&op->t, a->ino, op->xattr, op->xattr_len, op->xattr_hide);
	op->xattr = NULL;
}

void op_inode_size(struct op *op, struct attr *a, uint64_t base_size)
{
	account_copy(op, a);
	put_inode(op, a, base_size);
}

void op_inode(struct op *op, struct attr *a)
{
	uint64_t base_size;
	int r = ws_base_size(op->ws, a, &base_size);
	if (r < 0)
		op->error = r;
	else
		op_inode_size(op, a, base_size);
}

void op_new_inode(struct op *op, struct attr *a)
{
	op->files += a->nlink > 0;
	put_inode(op, a, 0); /* which charges it */
}

void op_dead(struct op *op, const struct attr *a)
{
	struct ws *ws = op->ws;
	struct attr below;
	int r = view_inode_below(&ws->view, 1, a->ino, &below);
	if (r < 0 && r != -ENOENT) {
		op->error = r;
		return;
	}
	txn_dead(&op->t, a->ino, r == -ENOENT);
	op->bytes -= quota_bytes_of(&ws->quota, a);
	op->inodes -= quota_inodes_of(&ws->quota, a);
}

void op_unlinked(struct op *op, struct attr *a)
{
	struct ws *ws = op->ws;
	assert(a->nlink == 0);
	op->files--;
	if (node_refs(ws, node_of(a)) == 0 && !from_before(ws, a->ino)) {
		op_dead(op, a);
		return;
	}
	op_inode(op, a);
	orphan_add(ws, a->ino);
}

void op_dirent_del(struct op *op, uint64_t dir, uint64_t cookie)
{
	int r = view_below_has_cookie(&op->ws->view, dir, cookie);
	if (r < 0)
		op->error = r;
	else
		txn_dirent_del(&op->t, dir, cookie, r > 0);
}

int op_xattr_del(struct op *op, struct attr *a, const char *name, size_t name_len)
{
	struct ws *ws = op->ws;
	const void *value;
	size_t len;
	uint32_t index;
	int r = view_xattr_below(&ws->view, 0, a->ino, name, name_len, &value, &len, &index);
	if (r < 0)
		return r;
	if (index < own_layers(ws))
		op_own(op, a, -(int64_t)(name_len + len));
	r = view_xattr_below(&ws->view, 1, a->ino, name, name_len, &value, &len, NULL);
	if (r < 0 && r != -ENODATA)
		return r;
	op->xattr = name;
	op->xattr_len = name_len;
	op->xattr_hide = r == 0;
	return 0;
}

static void kill_capability(struct op *op, struct attr *a)
{
	static const char CAP[] = "security.capability";
	if (!(a->flags & ATTR_HAS_XATTR) || op->xattr) /* or it goes already */
		return;
	int r = op_xattr_del(op, a, CAP, sizeof(CAP) - 1);
	if (r < 0 && r != -ENODATA)
		op->error = r;
}

void op_kill_priv(struct op *op, struct attr *a)
{
	if (S_ISDIR(a->mode))
		return;
	a->mode &= ~(uint32_t)S_ISUID;
	if (a->mode & S_IXGRP)
		a->mode &= ~(uint32_t)S_ISGID;
	kill_capability(op, a);
}

void op_kill_hidden(struct op *op, struct attr *a)
{
	if (op->ws->no_xattrs && !S_ISDIR(a->mode))
		kill_capability(op, a);
}

int op_commit(struct op *op)
{
	struct ws *ws = op->ws;
	struct quota *q = &ws->quota;
	if (op->error) {
		txn_drop(&op->t);
		return op->error;
	}
	if (op->bytes || op->inodes)
		txn_usage(&op->t, q->bytes + op->bytes - q->base_bytes,
			  q->inodes + op->inodes - q->base_inodes);
	if (op->files)
		txn_files(&op->t, ws->files + op->files);
	bool quiet = op->t.quiet;
	int r = txn_commit(&op->t);
	if (r < 0)
		return r;
	if (!quiet)
		ws_changed_now(ws);
	q->bytes += op->bytes;
	q->inodes += op->inodes;
	ws->files += op->files;
	return 0;
}

/* ---- orphans ---- */

char ORPHAN[1], ORPHAN_UNHELD[1];

void orphan_add(struct ws *ws, uint64_t ino)
{
	pthread_mutex_lock(&ws->orphan_lock);
	(void)u64map_put(&ws->orphans, ino, ORPHAN);
	atomic_store(&ws->norphans, ws->orphans.count);
	pthread_mutex_unlock(&ws->orphan_lock);
}

bool orphan_del(struct ws *ws, uint64_t ino)
{
	pthread_mutex_lock(&ws->orphan_lock);
	bool was = u64map_del(&ws->orphans, ino) != NULL;
	atomic_store(&ws->norphans, ws->orphans.count);
	pthread_mutex_unlock(&ws->orphan_lock);
	return was;
}

static bool is_orphan(struct ws *ws, uint64_t ino)
{
	pthread_mutex_lock(&ws->orphan_lock);
	bool is = u64map_get(&ws->orphans, ino) != NULL;
	pthread_mutex_unlock(&ws->orphan_lock);
	return is;
}

void orphan_reap(struct ws *ws, uint64_t ino, uint64_t node)
{
	if (node_refs(ws, node) == 0 && !from_before(ws, ino))
		orphan_end(ws, ino);
}

void orphan_end(struct ws *ws, uint64_t ino)
{
	struct attr a;
	if (!orphan_del(ws, ino))
		return;
	if (view_inode(&ws->view, ino, &a) < 0 || a.nlink > 0)
		return;
	struct op op;
	op_begin(&op, ws, ino, NULL);
	op_dead(&op, &a);
	/* Where that fails (a full disk) it stays, and the next open ends it. */
	(void)op_commit(&op);
	atomic_fetch_add(&ws->ended, 1);
}

uint64_t ws_ended(struct ws *ws)
{
	return atomic_load(&ws->ended);
}

bool ws_has_orphans(struct ws *ws)
{
	meta_read(ws); /* none is between here and its end */
	bool some = atomic_load(&ws->norphans) > 0;
	meta_done(ws);
	return some;
}

void ws_forget(struct ws *ws, uint64_t node, uint64_t n)
{
	if (node_unref(ws, node, n) > 0 || atomic_load(&ws->norphans) == 0)
		return;
	uint64_t ino = ino_of(node);
	if (!is_orphan(ws, ino))
		return;
	ws_enter(ws);
	meta_write(ws);
	orphan_reap(ws, ino, node);
	meta_done(ws);
	ws_leave(ws);
}

void ws_forget_all(struct ws *ws)
{
	ws_enter(ws);
	meta_write(ws);
	atomic_store(&ws->held_below, 0);
	for (unsigned i = 0; i < WS_SHARDS; i++) {
		struct node_shard *s = &ws->nodes[i];
		pthread_mutex_lock(&s->lock);
		u64map_done(&s->map);
		pthread_mutex_unlock(&s->lock);
	}
	for (;;) {
		size_t i = 0;
		pthread_mutex_lock(&ws->orphan_lock);
		const struct u64map_slot *slot = u64map_next(&ws->orphans, &i);
		uint64_t ino = slot ? slot->key : 0;
		pthread_mutex_unlock(&ws->orphan_lock);
		if (!ino)
			break;
		orphan_reap(ws, ino, ino); /* no reference is left, under any generation */
	}
	meta_done(ws);
	ws_leave(ws);
}

/* ---- atime ---- */

static bool atime_is_due(const struct attr *a, const struct timespec *now)
{
	enum { DAY = 24 * 60 * 60 };
	return not_later(&a->atime, &a->mtime) || not_later(&a->atime, &a->ctime) ||
	       now->tv_sec - a->atime.tv_sec >= DAY;
}

void ws_accessed(struct ws *ws, uint64_t node, const struct attr *seen)
{
	struct timespec now = ws_now();
	struct attr a;
	if (!atime_is_due(seen, &now))
		return;
	meta_write(ws);
	if (ws_get(ws, node, &a) == 0 && atime_is_due(&a, &now) &&
	    !(a.atime.tv_sec == now.tv_sec && a.atime.tv_nsec == now.tv_nsec)) {
		struct op op;
		op_begin(&op, ws, a.ino, NULL);
		op.t.quiet = true;
		a.atime = now;
		op_inode(&op, &a);
		(void)op_commit(&op); /* on a full disk reading goes on without */
	}
	meta_done(ws);
}
