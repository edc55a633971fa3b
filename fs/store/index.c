#include "fs/store/index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/mapguard.h"

enum {
	MAP_FIRST = 16 << 20, /* bytes; doubled whenever it is full */
	READERS = 1024,       /* transactions at once, of all processes */
	IDLE_TXNS = 8,        /* reading transactions that are kept for the next look-up */
	EACH_BATCH = 4096,    /* entries read in one transaction, so that none lives long */
	OPEN_TRIES = 50,      /* LMDB may fail while another process opens or closes */
	HASH_STEP = 1 << 20,
	MAPS_MAX = 64 << 20, /* of what the kernel tells of this process's maps: a million */
};
/* More than any index needs (some 700 million objects); one that wants it is damaged. */
#define MAP_MAX ((size_t)64 << 30)

/* What the functions of a transaction give when the map is full: index_write makes it larger,
 * so no caller of it sees this. A full disk is -ENOSPC. */
#define MAP_FULL (-EFBIG)

struct index {
	struct index *next; /* in the registry */
	unsigned users;
	dev_t dev; /* of the folder */
	ino_t ino;
	char *path;
	/* Held for reading around every use of the environment, for writing where it is
	 * mapped anew. */
	pthread_rwlock_t use;
	MDB_env *env;
	const void *map; /* LMDB's, while it is guarded */
	struct mapguard *guard;
	atomic_bool headless; /* the disk refused one of the two pages that say what is newest */
	MDB_dbi objects, packs;
	pthread_mutex_t idle_lock;
	MDB_txn *idle[IDLE_TXNS];
	size_t nidle;
};

struct index_txn {
	MDB_txn *txn;
	struct index *ix;
};

/* Opening one LMDB file twice in a process breaks its locks, so who has it open must be
 * known process-wide. */
static struct {
	pthread_mutex_t lock;
	struct index *first;
} registry = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The one place where LMDB's results become ours. */
static int from_mdb(int rc)
{
	switch (rc) {
	case MDB_SUCCESS:
		return 0;
	case MDB_NOTFOUND:
		return -ENOENT;
	case MDB_MAP_FULL:
		return MAP_FULL;
	case MDB_READERS_FULL:
	case MDB_TXN_FULL:
		return -EBUSY;
	default:
		return rc > 0 ? -rc : -EBADMSG;
	}
}

/* ---- values ---- */

static uint64_t entry_check(const struct digest *d, const uint8_t *in)
{
	return hash_xxh3(in, INDEX_ENTRY_BYTES - 8, le_get64(d->b));
}

void index_entry_encode(uint8_t out[INDEX_ENTRY_BYTES], const struct digest *d,
			const struct place *p)
{
	le_put64(out, p->pack);
	le_put64(out + 8, p->off | (uint64_t)p->damaged << 63);
	le_put32(out + 16, p->raw);
	le_put32(out + 20, p->stored);
	le_put64(out + 24, entry_check(d, out));
}

int index_entry_decode(struct place *p, const struct digest *d, const uint8_t *in, size_t len)
{
	if (len != INDEX_ENTRY_BYTES || le_get64(in + 24) != entry_check(d, in))
		return -EBADMSG;
	uint64_t off = le_get64(in + 8);
	*p = (struct place){
		.pack = le_get64(in),
		.off = off & ~(UINT64_C(1) << 63),
		.raw = le_get32(in + 16),
		.stored = le_get32(in + 20),
		.damaged = off >> 63,
	};
	return p->pack != 0 ? 0 : -EBADMSG;
}

void index_row_encode(uint8_t out[INDEX_ROW_BYTES], const struct pack_row *row)
{
	le_put64(out, row->indexed);
	le_put64(out + 8, row->synced);
	le_put64(out + 16, row->records);
	le_put64(out + 24, row->raw);
	le_put64(out + 32, row->stored);
	le_put32(out + 40, row->flags);
	le_put32(out + 44, 0);
	le_put64(out + 48, hash_xxh3(out, 48, row->id));
}

int index_row_decode(struct pack_row *row, uint64_t id, const uint8_t *in, size_t len)
{
	if (len != INDEX_ROW_BYTES || le_get64(in + 48) != hash_xxh3(in, 48, id))
		return -EBADMSG;
	*row = (struct pack_row){
		.id = id,
		.indexed = le_get64(in),
		.synced = le_get64(in + 8),
		.records = le_get64(in + 16),
		.raw = le_get64(in + 24),
		.stored = le_get64(in + 32),
		.flags = le_get32(in + 40),
	};
	return 0;
}

/* Pack ids as keys: big-endian, so that LMDB's order is the order of numbers. */
static void id_encode(uint8_t key[8], uint64_t id)
{
	for (int i = 7; i >= 0; i--, id >>= 8)
		key[i] = (uint8_t)id;
}

static uint64_t id_decode(const uint8_t key[8])
{
	uint64_t id = 0;
	for (int i = 0; i < 8; i++)
		id = id << 8 | key[i];
	return id;
}

/* ---- the environment ---- */

/* Damaged page numbers then lead to zeros, which LMDB refuses, not behind the end of the
 * file, where the kernel would kill us. */
static int stretch(MDB_env *env)
{
	MDB_envinfo info;
	int fd, r = from_mdb(mdb_env_info(env, &info));
	if (r == 0)
		r = from_mdb(mdb_env_get_fd(env, &fd));
	struct stat st;
	if (r < 0)
		return r;
	/* LMDB leaves the data file's descriptor to every program that is started. */
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size < info.me_mapsize && ftruncate(fd, (off_t)info.me_mapsize) < 0)
		return -errno;
	return 0;
}

/* A page that the disk refuses. mapguard_lost_fn; LMDB takes zeros for damage, but not in its two
 * first pages, which say which tree is the newest: it only copies them where a transaction begins,
 * and who began it looks at `headless` before anything is done with the copy. */
static bool page_lost(void *ctx, size_t off)
{
	struct index *ix = ctx;
	if (off < 2 * mapguard_page())
		atomic_store(&ix->headless, true); /* before anybody can see the zeros */
	return mapguard_zero(ix->map, off, off + 1);
}

/* Where LMDB has mapped the data file: only the kernel tells. Its word for the device isn't stat's
 * on every filesystem, so the file is known by its number and its path, as of the descriptor. */
static bool find_map(MDB_env *env, uintptr_t *from, uintptr_t *to)
{
	char link[32], path[PATH_MAX];
	struct stat st;
	int fd;
	if (mdb_env_get_fd(env, &fd) || fstat(fd, &st) < 0)
		return false;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return false;
	path[n] = '\0';
	auto_free void *maps = NULL;
	size_t len;
	if (io_slurp(NULL, AT_FDCWD, "/proc/self/maps", MAPS_MAX, &maps, &len, NULL) < 0)
		return false;
	for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
		unsigned long long ino, off;
		int at = 0;
		*end = '\0';
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %llx %*s %llu %n", from, to, &off,
			   &ino, &at) == 4 &&
		    off == 0 && ino == st.st_ino && strcmp(line + at, path) == 0)
			return true;
	}
	return false;
}

static void unguard(struct index *ix)
{
	mapguard_remove(ix->guard);
	ix->guard = NULL;
	atomic_store(&ix->headless, false);
}

/* Where it can't be, such a page ends the process. */
static void guard(struct index *ix)
{
	uintptr_t from, to;
	if (!find_map(ix->env, &from, &to))
		return;
	ix->map = (const void *)from;
	(void)mapguard_add(&ix->guard, ix->map, to - from, page_lost, ix);
}

static int open_dbs(struct index *ix)
{
	MDB_txn *txn;
	int rc = mdb_txn_begin(ix->env, NULL, 0, &txn);
	if (rc)
		return from_mdb(rc);
	if (!atomic_load(&ix->headless))
		rc = mdb_dbi_open(txn, "objects", MDB_CREATE, &ix->objects);
	else
		rc = MDB_CORRUPTED;
	if (!rc)
		rc = mdb_dbi_open(txn, "packs", MDB_CREATE, &ix->packs);
	if (rc) {
		mdb_txn_abort(txn);
		return from_mdb(rc);
	}
	return from_mdb(mdb_txn_commit(txn));
}

static void env_close(struct index *ix)
{
	while (ix->nidle > 0)
		mdb_txn_abort(ix->idle[--ix->nidle]);
	unguard(ix);
	if (ix->env)
		mdb_env_close(ix->env);
	ix->env = NULL;
}

/* The file must hold two pages at least before it is mapped. An empty one is new. */
static int env_open(struct index *ix)
{
	const unsigned flags = MDB_NOSYNC | MDB_NOTLS | MDB_NORDAHEAD;
	int rc = mdb_env_create(&ix->env);
	if (rc)
		return from_mdb(rc);
	rc = mdb_env_set_maxdbs(ix->env, 2);
	if (!rc)
		rc = mdb_env_set_maxreaders(ix->env, READERS);
	if (!rc)
		rc = mdb_env_set_mapsize(ix->env, MAP_FIRST);
	if (!rc)
		rc = mdb_env_open(ix->env, ix->path, flags, 0600);
	int r = from_mdb(rc);
	if (r == 0) {
		guard(ix);
		r = stretch(ix->env);
	}
	if (r == 0) {
		int dead;
		(void)mdb_reader_check(ix->env, &dead); /* frees what the dead left, if any */
		r = open_dbs(ix);
	}
	if (r < 0)
		env_close(ix);
	return r;
}

static int env_open_patiently(struct index *ix)
{
	int r;
	for (int i = 0; i < OPEN_TRIES; i++) {
		r = env_open(ix);
		if (r != -EAGAIN && r != -EACCES && r != -EBUSY)
			return r;
		(void)nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	return r;
}

static int remove_files(const char *path)
{
	static const char *const names[] = { "data.mdb", "lock.mdb" };
	for (size_t i = 0; i < 2; i++) {
		char file[PATH_MAX];
		if (snprintf(file, sizeof(file), "%s/%s", path, names[i]) >= (int)sizeof(file))
			return -ENAMETOOLONG;
		if (unlink(file) < 0 && errno != ENOENT)
			return -errno;
	}
	return 0;
}

static void index_free(struct index *ix)
{
	env_close(ix);
	(void)pthread_rwlock_destroy(&ix->use);
	(void)pthread_mutex_destroy(&ix->idle_lock);
	free(ix->path);
	free(ix);
}

static int index_new(struct index **out, const char *path, const struct stat *st)
{
	struct index *ix = calloc(1, sizeof(*ix));
	if (!ix)
		return -ENOMEM;
	*ix = (struct index){ .users = 1, .dev = st->st_dev, .ino = st->st_ino };
	/* Growing the map must not wait for ever behind look-ups that overlap. */
	pthread_rwlockattr_t attr;
	(void)pthread_rwlockattr_init(&attr);
	(void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	(void)pthread_rwlock_init(&ix->use, &attr);
	(void)pthread_rwlockattr_destroy(&attr);
	(void)pthread_mutex_init(&ix->idle_lock, NULL);
	ix->path = strdup(path);
	int r = ix->path ? env_open_patiently(ix) : -ENOMEM;
	if (r < 0) {
		index_free(ix);
		return r;
	}
	*out = ix;
	return 0;
}

int index_open(struct index **out, const char *path, bool fresh, struct err *err)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "open the index %s", path);
	(void)pthread_mutex_lock(&registry.lock);
	struct index *ix = registry.first;
	while (ix && (ix->dev != st.st_dev || ix->ino != st.st_ino))
		ix = ix->next;
	int r = 0;
	if (ix) {
		ix->users++;
	} else {
		r = fresh ? remove_files(path) : 0;
		if (r == 0)
			r = index_new(&ix, path, &st);
		if (r == 0) {
			ix->next = registry.first;
			registry.first = ix;
		}
	}
	(void)pthread_mutex_unlock(&registry.lock);
	if (r < 0)
		return err_sys(err, r, "open the index %s", path);
	*out = ix;
	return 0;
}

void index_close(struct index *ix)
{
	if (!ix)
		return;
	(void)pthread_mutex_lock(&registry.lock);
	bool last = --ix->users == 0;
	if (last) {
		struct index **p = &registry.first;
		while (*p != ix)
			p = &(*p)->next;
		*p = ix->next;
		/* Still under the lock: who opens it again must find it closed. */
		index_free(ix);
	}
	(void)pthread_mutex_unlock(&registry.lock);
}

int index_reset(struct index *ix)
{
	(void)pthread_rwlock_wrlock(&ix->use);
	env_close(ix);
	int r = remove_files(ix->path);
	if (r == 0)
		r = env_open_patiently(ix);
	(void)pthread_rwlock_unlock(&ix->use);
	return r;
}

/* Maps anew: `twice` as large, or as large as another process has made it; `reopen` recovers from a
 * commit that failed halfway (LMDB then refuses the environment). */
static int remap(struct index *ix, bool twice, bool reopen)
{
	(void)pthread_rwlock_wrlock(&ix->use);
	int r = 0;
	if (reopen) {
		env_close(ix);
		r = env_open_patiently(ix);
	} else if (!ix->env) {
		r = -EBADMSG;
	} else {
		while (ix->nidle > 0)
			mdb_txn_abort(ix->idle[--ix->nidle]);
		MDB_envinfo info;
		size_t size = 0;
		r = from_mdb(mdb_env_info(ix->env, &info));
		if (atomic_load(&ix->headless))
			r = -EBADMSG;
		if (twice && r == 0) {
			size = info.me_mapsize * 2;
			r = size <= MAP_MAX ? 0 : -EBADMSG;
		}
		if (r == 0) { /* what it reads of the old map has just been read */
			unguard(ix);
			r = from_mdb(mdb_env_set_mapsize(ix->env, size));
			guard(ix);
		}
		if (r == 0)
			r = stretch(ix->env);
	}
	(void)pthread_rwlock_unlock(&ix->use);
	return r;
}

/* ---- reading ---- */

/* Begins a reading transaction and holds the environment; ended by read_end. */
static int read_begin(struct index *ix, MDB_txn **txn)
{
	for (int i = 0; i < OPEN_TRIES; i++) {
		(void)pthread_rwlock_rdlock(&ix->use);
		MDB_txn *t = NULL;
		(void)pthread_mutex_lock(&ix->idle_lock);
		if (ix->nidle > 0)
			t = ix->idle[--ix->nidle];
		(void)pthread_mutex_unlock(&ix->idle_lock);
		int rc = MDB_PANIC;
		if (ix->env)
			rc = t ? mdb_txn_renew(t) : mdb_txn_begin(ix->env, NULL, MDB_RDONLY, &t);
		if (atomic_load(&ix->headless))
			rc = MDB_CORRUPTED;
		if (rc == 0) {
			*txn = t;
			return 0;
		}
		if (t)
			mdb_txn_abort(t);
		int dead = 0;
		if (rc == MDB_READERS_FULL && ix->env)
			(void)mdb_reader_check(ix->env, &dead);
		(void)pthread_rwlock_unlock(&ix->use);
		if (rc != MDB_MAP_RESIZED && rc != MDB_PANIC && rc != MDB_READERS_FULL)
			return from_mdb(rc);
		int r = 0;
		if (rc != MDB_READERS_FULL)
			r = remap(ix, false, rc == MDB_PANIC);
		else if (!dead)
			(void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		if (r < 0)
			return r;
	}
	return -EBUSY;
}

static void read_end(struct index *ix, MDB_txn *txn)
{
	mdb_txn_reset(txn);
	(void)pthread_mutex_lock(&ix->idle_lock);
	bool kept = ix->nidle < IDLE_TXNS;
	if (kept)
		ix->idle[ix->nidle++] = txn;
	(void)pthread_mutex_unlock(&ix->idle_lock);
	if (!kept)
		mdb_txn_abort(txn);
	(void)pthread_rwlock_unlock(&ix->use);
}

static int get_entry(struct index *ix, MDB_txn *txn, const struct digest *d, struct place *p)
{
	MDB_val k = { sizeof(d->b), (void *)(uintptr_t)d->b }, v;
	int r = from_mdb(mdb_get(txn, ix->objects, &k, &v));
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	return index_entry_decode(p, d, v.mv_data, v.mv_size) < 0 ? 0 : 1;
}

static int get_row(struct index *ix, MDB_txn *txn, uint64_t id, struct pack_row *row)
{
	uint8_t key[8];
	id_encode(key, id);
	MDB_val k = { sizeof(key), key }, v;
	int r = from_mdb(mdb_get(txn, ix->packs, &k, &v));
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	return index_row_decode(row, id, v.mv_data, v.mv_size) < 0 ? 0 : 1;
}

int index_get(struct index *ix, const struct digest *d, struct place *p, struct pack_row *row)
{
	MDB_txn *txn;
	int r = read_begin(ix, &txn);
	if (r < 0)
		return r;
	struct place t;
	struct pack_row pr = { .flags = ROW_BROKEN };
	r = get_entry(ix, txn, d, &t);
	int rr = r > 0 ? get_row(ix, txn, t.pack, &pr) : 0;
	read_end(ix, txn);
	if (r <= 0)
		return r;
	if (rr < 0)
		return rr;
	pr.id = t.pack;
	*p = t;
	*row = pr;
	return 1;
}

int index_row(struct index *ix, uint64_t id, struct pack_row *row)
{
	MDB_txn *txn;
	int r = read_begin(ix, &txn);
	if (r < 0)
		return r;
	r = get_row(ix, txn, id, row);
	read_end(ix, txn);
	return r;
}

static int rows_collect(struct index *ix, MDB_txn *txn, struct buf *out)
{
	MDB_cursor *cur;
	int rc = mdb_cursor_open(txn, ix->packs, &cur);
	if (rc)
		return from_mdb(rc);
	MDB_val k, v;
	while ((rc = mdb_cursor_get(cur, &k, &v, MDB_NEXT)) == 0) {
		struct pack_row row;
		if (k.mv_size == 8 &&
		    index_row_decode(&row, id_decode(k.mv_data), v.mv_data, v.mv_size) == 0)
			buf_add(out, &row, sizeof(row));
	}
	mdb_cursor_close(cur);
	if (rc != MDB_NOTFOUND)
		return from_mdb(rc);
	return buf_error(out);
}

int index_rows(struct index *ix, struct pack_row **rows, size_t *n)
{
	MDB_txn *txn;
	int r = read_begin(ix, &txn);
	if (r < 0)
		return r;
	auto_buf b = { 0 };
	r = rows_collect(ix, txn, &b);
	read_end(ix, txn);
	if (r < 0)
		return r;
	*n = b.len / sizeof(**rows);
	*rows = (struct pack_row *)(void *)steal_ptr(&b.data);
	return 0;
}

struct each_entry {
	struct digest digest;
	struct place place;
};

/* Up to EACH_BATCH entries behind `after` (NULL: from the first). */
static int each_read(struct index *ix, const struct digest *after, struct each_entry *e, size_t *n)
{
	MDB_txn *txn;
	int r = read_begin(ix, &txn);
	if (r < 0)
		return r;
	MDB_cursor *cur;
	int rc = mdb_cursor_open(txn, ix->objects, &cur);
	*n = 0;
	if (rc == 0) {
		MDB_val k = { 0 }, v;
		if (after)
			k = (MDB_val){ sizeof(after->b), (void *)(uintptr_t)after->b };
		rc = mdb_cursor_get(cur, &k, &v, after ? MDB_SET_RANGE : MDB_FIRST);
		if (rc == 0 && after && k.mv_size == sizeof(after->b) &&
		    memcmp(k.mv_data, after->b, sizeof(after->b)) == 0)
			rc = mdb_cursor_get(cur, &k, &v, MDB_NEXT);
		for (; rc == 0 && *n < EACH_BATCH; rc = mdb_cursor_get(cur, &k, &v, MDB_NEXT)) {
			if (k.mv_size != sizeof(e->digest.b)) {
				rc = MDB_CORRUPTED;
				break;
			}
			memcpy(e[*n].digest.b, k.mv_data, k.mv_size);
			if (index_entry_decode(&e[*n].place, &e[*n].digest, v.mv_data, v.mv_size) <
			    0)
				e[*n].place = (struct place){ 0 };
			++*n;
		}
		mdb_cursor_close(cur);
	}
	read_end(ix, txn);
	return rc == MDB_NOTFOUND ? 0 : from_mdb(rc);
}

int index_each(struct index *ix,
	       int (*fn)(void *ctx, const struct digest *d, const struct place *p), void *ctx)
{
	auto_free struct each_entry *e = calloc(EACH_BATCH, sizeof(*e));
	if (!e)
		return -ENOMEM;
	struct digest last;
	size_t n;
	for (bool more = false;; more = true) {
		int r = each_read(ix, more ? &last : NULL, e, &n);
		if (r < 0)
			return r;
		if (n == 0)
			return 0;
		/* A damaged tree may lead in circles. */
		if (more && memcmp(e[0].digest.b, last.b, sizeof(last.b)) <= 0)
			return -EBADMSG;
		last = e[n - 1].digest;
		for (size_t i = 0; i < n; i++) {
			r = fn(ctx, &e[i].digest, &e[i].place);
			if (r != 0)
				return r;
		}
	}
}

int index_count(struct index *ix, uint64_t *objects)
{
	MDB_txn *txn;
	int r = read_begin(ix, &txn);
	if (r < 0)
		return r;
	MDB_stat st;
	r = from_mdb(mdb_stat(txn, ix->objects, &st));
	read_end(ix, txn);
	if (r == 0)
		*objects = st.ms_entries;
	return r;
}

/* ---- writing ---- */

static int write_once(struct index *ix, int (*fn)(struct index_txn *t, void *ctx), void *ctx,
		      int *rc)
{
	struct index_txn t = { .ix = ix };
	*rc = ix->env ? mdb_txn_begin(ix->env, NULL, 0, &t.txn) : MDB_PANIC;
	if (*rc)
		return from_mdb(*rc);
	int r = atomic_load(&ix->headless) ? -EBADMSG : fn(&t, ctx);
	if (r < 0) {
		mdb_txn_abort(t.txn);
		return r;
	}
	*rc = mdb_txn_commit(t.txn);
	return from_mdb(*rc);
}

int index_write(struct index *ix, int (*fn)(struct index_txn *t, void *ctx), void *ctx)
{
	for (int i = 0; i < OPEN_TRIES; i++) {
		int rc = 0;
		(void)pthread_rwlock_rdlock(&ix->use);
		int r = write_once(ix, fn, ctx, &rc);
		(void)pthread_rwlock_unlock(&ix->use);
		bool grow = r == MAP_FULL, panic = rc == MDB_PANIC;
		if (!grow && !panic && rc != MDB_MAP_RESIZED)
			return r;
		int m = remap(ix, grow, panic);
		if (m < 0)
			return m;
	}
	return -EBUSY;
}

int index_txn_get(struct index_txn *t, const struct digest *d, struct place *p)
{
	return get_entry(t->ix, t->txn, d, p);
}

int index_txn_put(struct index_txn *t, const struct digest *d, const struct place *p)
{
	uint8_t value[INDEX_ENTRY_BYTES];
	index_entry_encode(value, d, p);
	MDB_val k = { sizeof(d->b), (void *)(uintptr_t)d->b }, v = { sizeof(value), value };
	return from_mdb(mdb_put(t->txn, t->ix->objects, &k, &v, 0));
}

int index_txn_del(struct index_txn *t, const struct digest *d)
{
	MDB_val k = { sizeof(d->b), (void *)(uintptr_t)d->b };
	int r = from_mdb(mdb_del(t->txn, t->ix->objects, &k, NULL));
	return r == -ENOENT ? 0 : r;
}

int index_txn_row(struct index_txn *t, uint64_t id, struct pack_row *row)
{
	return get_row(t->ix, t->txn, id, row);
}

int index_txn_row_put(struct index_txn *t, const struct pack_row *row)
{
	uint8_t key[8], value[INDEX_ROW_BYTES];
	id_encode(key, row->id);
	index_row_encode(value, row);
	MDB_val k = { sizeof(key), key }, v = { sizeof(value), value };
	return from_mdb(mdb_put(t->txn, t->ix->packs, &k, &v, 0));
}

int index_txn_row_del(struct index_txn *t, uint64_t id)
{
	uint8_t key[8];
	id_encode(key, id);
	MDB_val k = { sizeof(key), key };
	int r = from_mdb(mdb_del(t->txn, t->ix->packs, &k, NULL));
	return r == -ENOENT ? 0 : r;
}

/* ---- proving and syncing ---- */

static int verify_db(MDB_txn *txn, MDB_dbi dbi, size_t key_len, size_t value_len)
{
	MDB_stat st;
	MDB_cursor *cur;
	if (mdb_stat(txn, dbi, &st) || mdb_cursor_open(txn, dbi, &cur))
		return -EBADMSG;
	MDB_val k, v;
	uint8_t last[64] = { 0 };
	size_t n = 0;
	int rc;
	while ((rc = mdb_cursor_get(cur, &k, &v, MDB_NEXT)) == 0) {
		if (k.mv_size != key_len || v.mv_size != value_len || n >= st.ms_entries ||
		    (n > 0 && memcmp(last, k.mv_data, key_len) >= 0))
			break;
		memcpy(last, k.mv_data, key_len);
		n++;
	}
	mdb_cursor_close(cur);
	return rc == MDB_NOTFOUND && n == st.ms_entries ? 0 : -EBADMSG;
}

/* LMDB's own list of free pages (database 0): a transaction's number, and an array of page
 * numbers, highest first, with their count in front. */
static int verify_free(MDB_env *env, MDB_txn *txn)
{
	MDB_envinfo info;
	MDB_cursor *cur;
	if (mdb_env_info(env, &info) || mdb_cursor_open(txn, 0, &cur))
		return -EBADMSG;
	MDB_val k, v;
	int rc;
	while ((rc = mdb_cursor_get(cur, &k, &v, MDB_NEXT)) == 0) {
		size_t n, page, above = info.me_last_pgno + 1;
		if (k.mv_size != sizeof(size_t) || v.mv_size < sizeof(n))
			break;
		memcpy(&n, v.mv_data, sizeof(n));
		if (n > v.mv_size / sizeof(n) - 1)
			break;
		size_t i = 0;
		for (; i < n; i++) {
			memcpy(&page, (uint8_t *)v.mv_data + (i + 1) * sizeof(page), sizeof(page));
			if (page < 2 || page >= above)
				break;
			above = page;
		}
		if (i < n)
			break;
	}
	mdb_cursor_close(cur);
	return rc == MDB_NOTFOUND ? 0 : -EBADMSG;
}

int index_verify(struct index *ix)
{
	MDB_txn *txn;
	int r = read_begin(ix, &txn);
	if (r < 0)
		return r;
	r = verify_db(txn, ix->objects, sizeof(struct digest), INDEX_ENTRY_BYTES);
	if (r == 0)
		r = verify_db(txn, ix->packs, 8, INDEX_ROW_BYTES);
	if (r == 0)
		r = verify_free(ix->env, txn);
	read_end(ix, txn);
	return r;
}

int index_sync(struct index *ix)
{
	(void)pthread_rwlock_rdlock(&ix->use);
	int r = ix->env ? from_mdb(mdb_env_sync(ix->env, 1)) : -EBADMSG;
	(void)pthread_rwlock_unlock(&ix->use);
	return r;
}

/* Hashed by pread, step by step, each step's hash seeding the next: a bad sector is -EIO. */
static int hash_fd(int fd, uint64_t used, uint64_t *hash)
{
	auto_free uint8_t *buf = malloc(HASH_STEP);
	if (!buf)
		return -ENOMEM;
	uint64_t h = 0;
	for (uint64_t off = 0; off < used;) {
		size_t want = used - off < HASH_STEP ? (size_t)(used - off) : HASH_STEP;
		ssize_t n = io_read_full(&io_host, fd, buf, want, off);
		if (n < 0)
			return (int)n;
		if ((size_t)n != want)
			return -EBADMSG;
		h = hash_xxh3(buf, want, h);
		off += want;
	}
	*hash = h;
	return 0;
}

/* The file is as large as the map, and mostly a hole. Where its blocks can't be what LMDB says that
 * it uses, that number is damaged: it would take hours to hash. */
static bool can_use(int fd, uint64_t used)
{
	struct stat st;
	return fstat(fd, &st) == 0 && used / 2 <= (uint64_t)st.st_blocks * 512 + HASH_STEP;
}

int index_hash(struct index *ix, uint64_t *used, uint64_t *hash)
{
	(void)pthread_rwlock_rdlock(&ix->use);
	MDB_envinfo info;
	MDB_stat st;
	int fd = -1, r = -EBADMSG;
	if (ix->env && !mdb_env_info(ix->env, &info) && !mdb_env_stat(ix->env, &st) &&
	    !mdb_env_get_fd(ix->env, &fd)) {
		uint64_t n = (uint64_t)(info.me_last_pgno + 1) * st.ms_psize, h;
		r = !atomic_load(&ix->headless) && can_use(fd, n) ? hash_fd(fd, n, &h) : -EBADMSG;
		if (r == 0) {
			*used = n;
			*hash = h;
		}
	}
	(void)pthread_rwlock_unlock(&ix->use);
	return r;
}

int index_hash_file(const char *path, uint64_t used, uint64_t *hash)
{
	char file[PATH_MAX];
	if (snprintf(file, sizeof(file), "%s/data.mdb", path) >= (int)sizeof(file))
		return -ENAMETOOLONG;
	auto_fd fd = open(file, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : hash_fd(fd, used, hash);
}
