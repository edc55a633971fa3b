/* Opening the store, and reading from it. */
#include "fs/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/store/internal.h"

/* The file `version`: what the folder is, and which layout it has. */
static const char version_text[] = "bough store 1\n";
enum { VERSION_MAX = 256 };

/* ---- opening ---- */

static int open_dir(struct store *s, int dirfd, const char *name, bool create, int *out,
		    struct err *err)
{
	int r = create ? s->io->mkdir(s->io->ctx, dirfd, name, 0700) : 0;
	if (r < 0 && r != -EEXIST)
		return err_sys(err, r, "make %s", name);
	int fd = s->io->open(s->io->ctx, dirfd, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return err_sys(err, fd, "open %s", name);
	*out = fd;
	return 0;
}

/* Makes the folders durable with it, and the store's own name. */
static int write_version(struct store *s, struct err *err)
{
	int r = io_publish(s->io, s->dirfd, "version", version_text, sizeof(version_text) - 1, true,
			   err);
	if (r < 0)
		return r;
	int fd = s->io->open(s->io->ctx, s->dirfd, "..", O_RDONLY | O_DIRECTORY, 0);
	r = fd < 0 ? fd : s->io->fsync(s->io->ctx, fd);
	if (fd >= 0)
		(void)s->io->close(s->io->ctx, fd); /* a folder, only read */
	return r < 0 ? err_sys(err, r, "sync the folder of %s", s->path) : 0;
}

/* A folder without a version is a store only once the version is written, which is last. */
static int check_version(struct store *s, bool create, struct err *err)
{
	auto_free char *text = NULL;
	size_t len;
	int r = io_slurp(s->io, s->dirfd, "version", VERSION_MAX, (void **)&text, &len, err);
	if (r == -ENOENT && create)
		return write_version(s, err);
	if (r < 0)
		return r;
	if (len != sizeof(version_text) - 1 || memcmp(text, version_text, len) != 0)
		return err_set(err, -EBADMSG, "%s is no store of a version known here", s->path);
	return 0;
}

static int open_folders(struct store *s, const char *dir, bool create, struct err *err)
{
	int r = open_dir(s, AT_FDCWD, dir, create, &s->dirfd, err);
	if (r < 0)
		return r;
	/* LMDB wants a path, which must stay right when the working directory changes. */
	s->path = realpath(dir, NULL);
	if (!s->path)
		return err_sys(err, -errno, "open %s", dir);
	if (asprintf(&s->index_path, "%s/index", s->path) < 0) {
		s->index_path = NULL;
		return err_sys(err, -ENOMEM, "open %s", dir);
	}
	if (!create) {
		r = check_version(s, false, err);
		if (r < 0)
			return r;
	}
	struct {
		const char *name;
		int *fd;
	} folders[] = { { "packs", &s->packs_fd },
			{ "sessions", &s->sessions_fd },
			{ "index", &s->index_fd } };
	for (size_t i = 0; i < 3; i++) {
		/* The folders are made again where only they are missing: packs alone are data. */
		r = open_dir(s, s->dirfd, folders[i].name, create || i > 0, folders[i].fd, err);
		if (r < 0)
			return r;
	}
	return create ? check_version(s, true, err) : 0;
}

/* Is nobody else there? The lock is exclusive then, until share_lock. */
static int take_lock(struct store *s, bool *alone, struct err *err)
{
	s->lock_fd = openat(s->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (s->lock_fd < 0)
		return err_sys(err, -errno, "open the lock of the store");
	*alone = flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0;
	if (*alone)
		return 0;
	int r;
	do /* waits while another one makes the index right */
		r = flock(s->lock_fd, LOCK_SH);
	while (r < 0 && errno == EINTR);
	return r < 0 ? err_sys(err, -errno, "lock the store") : 0;
}

static int set_options(struct store *s, const struct store_options *opt)
{
	s->io = opt->io ? opt->io : &io_host;
	s->read_only = opt->read_only;
	uint64_t max = PACK_SIZE_MAX / 2; /* leaves room for the table of contents */
	s->pack_bytes = opt->pack_bytes ? opt->pack_bytes : STORE_PACK_BYTES;
	if (s->pack_bytes < STORE_PACK_BYTES_MIN)
		s->pack_bytes = STORE_PACK_BYTES_MIN;
	if (s->pack_bytes > max)
		s->pack_bytes = max;
	memcpy(s->boot, boot_id(opt->boot_id), sizeof(s->boot));
	int r = opt->repos ? gitrepos_new(&s->git, s->io, opt->repos, NULL) : 0;
	size_t bytes = opt->cache_bytes ? opt->cache_bytes : STORE_CACHE_DEFAULT;
	return r < 0 ? r : cache_init(&s->cache, bytes);
}

int store_open(struct store **out, const char *dir, const struct store_options *opt,
	       struct err *err)
{
	static const struct store_options defaults;
	if (!opt)
		opt = &defaults;
	struct store *s = calloc(1, sizeof(*s));
	if (!s)
		return err_sys(err, -ENOMEM, "open the store");
	s->dirfd = s->packs_fd = s->sessions_fd = s->index_fd = s->lock_fd = -1;
	(void)pthread_mutex_init(&s->files.lock, NULL);
	(void)pthread_mutex_init(&s->readers_lock, NULL);
	(void)pthread_mutex_init(&s->dirty_lock, NULL);
	writer_init(s);
	workers_init(&s->workers);
	bool alone = false;
	int r = set_options(s, opt);
	if (r < 0)
		(void)err_sys(err, r, "open the store");
	if (r == 0)
		r = open_folders(s, dir, opt->create, err);
	if (r == 0)
		r = take_lock(s, &alone, err);
	if (r == 0)
		r = recover_open(s, alone, err);
	/* Between the exclusive lock and the shared one another process may slip in; it finds
	 * an index in order. */
	if (r == 0 && alone && flock(s->lock_fd, LOCK_SH) < 0)
		r = err_sys(err, -errno, "lock the store");
	if (r < 0) {
		store_close(s);
		return r;
	}
	*out = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	workers_end(&s->workers);
	writer_done(s);
	if (s->index)
		recover_close(s);
	index_close(s->index);
	files_done(s);
	cache_done(&s->cache);
	gitrepos_free(s->git);
	while (s->readers) {
		struct reader *r = s->readers;
		s->readers = r->next;
		codec_free(r->codec);
		free(r);
	}
	if (s->lock_fd >= 0)
		(void)close(s->lock_fd);
	int *fds[] = { &s->index_fd, &s->sessions_fd, &s->packs_fd, &s->dirfd };
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (*fds[i] >= 0)
			(void)s->io->close(s->io->ctx, *fds[i]); /* folders, only read */
	(void)pthread_mutex_destroy(&s->readers_lock);
	(void)pthread_mutex_destroy(&s->dirty_lock);
	free(s->path);
	free(s->index_path);
	free(s);
}

int store_list_packs(struct store *s, uint64_t **ids, size_t *n, struct err *err)
{
	int fd = openat(s->packs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_dir *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		int r = -errno;
		if (fd >= 0)
			(void)close(fd);
		return err_sys(err, r, "list the packs");
	}
	auto_free uint64_t *list = NULL;
	size_t have = 0, cap = 0;
	struct dirent *de;
	while (errno = 0, (de = readdir(dir))) {
		uint64_t id;
		if (pack_name_parse(de->d_name, &id) < 0)
			continue;
		if (array_grow(&list, have, &cap) < 0)
			return err_sys(err, -ENOMEM, "list the packs");
		list[have++] = id;
	}
	if (errno)
		return err_sys(err, -errno, "list the packs");
	if (have)
		qsort(list, have, sizeof(*list), array_by_u64);
	*ids = steal_ptr(&list);
	*n = have;
	return 0;
}

/* ---- reading ---- */

struct reader *reader_get(struct store *s)
{
	(void)pthread_mutex_lock(&s->readers_lock);
	struct reader *r = s->readers;
	if (r) {
		s->readers = r->next;
		s->nreaders--;
	}
	(void)pthread_mutex_unlock(&s->readers_lock);
	if (r)
		return r;
	r = malloc(sizeof(*r)); /* not cleared: its pages are touched as far as they are used */
	if (!r)
		return NULL;
	r->codec = codec_new();
	if (!r->codec) {
		free(r);
		return NULL;
	}
	return r;
}

static void reader_free(struct reader *r)
{
	codec_free(r->codec);
	free(r);
}

void reader_put(struct store *s, struct reader *r)
{
	(void)pthread_mutex_lock(&s->readers_lock);
	bool kept = s->nreaders < STORE_READERS_KEPT;
	if (kept) {
		r->next = s->readers;
		s->readers = r;
		s->nreaders++;
	}
	(void)pthread_mutex_unlock(&s->readers_lock);
	if (!kept)
		reader_free(r);
}

int store_locate(struct store *s, const struct digest *d, struct place *p, struct pack_row *row,
		 bool *pending)
{
	(void)pthread_mutex_lock(&s->w.pending_lock);
	const struct pending_entry *e = pending_find(&s->w.fresh, d);
	if (!e)
		e = pending_find(&s->w.flushing, d);
	if (e)
		*p = e->place;
	(void)pthread_mutex_unlock(&s->w.pending_lock);
	*pending = e != NULL;
	int r = e ? 1 : index_get(s->index, d, p, row);
	if (r == -EBADMSG && !s->read_only)
		recover_distrust(s);
	return r;
}

int store_read_record(struct store *s, struct reader *rd, const struct digest *d,
		      const struct place *p, struct pack_record *r)
{
	struct pack_file *f;
	int e = files_get(s, p->pack, &f);
	if (e < 0)
		return e;
	struct pack_entry pe = { *d, p->off, p->raw, p->stored };
	e = pack_read(s->io, f->fd, p->pack, &pe, rd->buf, r);
	files_put(s, f);
	return e;
}

/* Reads the object at its place into a new blob. */
static int load(struct store *s, struct reader *rd, const struct digest *d, const struct place *p,
		struct cache_blob **out)
{
	struct pack_record r;
	int e = store_read_record(s, rd, d, p, &r);
	if (e < 0)
		return e;
	uint8_t *data;
	struct cache_blob *b = cache_blob_new(d, r.raw, &data);
	if (!b)
		return -ENOMEM;
	e = codec_load(rd->codec, r.codec, rd->buf + PACK_HEAD_BYTES, r.stored, data, r.raw);
	if (e < 0) {
		blob_put(cache_blob(b));
		return e;
	}
	*out = b;
	return 0;
}

struct damage {
	const struct digest *d;
	struct place p;
};

static int damage_txn(struct index_txn *t, void *ctx)
{
	struct damage *dm = ctx;
	struct place now;
	int r = index_txn_get(t, dm->d, &now);
	if (r <= 0 || now.pack != dm->p.pack || now.off != dm->p.off || now.damaged)
		return r < 0 ? r : 0;
	now.damaged = true;
	return index_txn_put(t, dm->d, &now);
}

/* From now on a put of this content writes it again. */
static void note_damage(struct store *s, const struct digest *d, const struct place *p)
{
	if (!p->damaged)
		(void)store_index_write(s, damage_txn, &(struct damage){ d, *p });
}

static bool same_place(const struct place *a, const struct place *b)
{
	return a->pack == b->pack && a->off == b->off;
}

/* Locates and loads. What fails is tried once more where gc has moved it meanwhile. */
static int fetch_by(struct store *s, struct reader *rd, const struct digest *d,
		    struct cache_blob **out, struct err *err)
{
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, d);
	struct place p, before = { 0 };
	struct pack_row row;
	bool pending;
	int r = 0;
	for (int i = 0; i < 3; i++) {
		int found = store_locate(s, d, &p, &row, &pending);
		if (found < 0)
			return err_sys(err, found, "look up object %s", hex);
		if (found == 0)
			return err_set(err, -ENOENT, "no object %s in the store", hex);
		if (i > 0 && same_place(&p, &before))
			break;
		r = load(s, rd, d, &p, out);
		if (r >= 0)
			return r;
		if (r != -ENOENT && r != -EBADMSG)
			return err_sys(err, r, "read object %s in pack %016" PRIx64 " at %" PRIu64,
				       hex, p.pack, p.off);
		before = p;
	}
	if (!pending)
		note_damage(s, d, &p);
	if (r == -ENOENT)
		return err_set(err, -EBADMSG, "object %s: pack %016" PRIx64 " is missing", hex,
			       p.pack);
	return err_set(err, -EBADMSG, "object %s is damaged: pack %016" PRIx64 " at %" PRIu64, hex,
		       p.pack, p.off);
}

static int fetch(struct store *s, const struct digest *d, struct cache_blob **out, struct err *err)
{
	struct reader *rd = reader_get(s);
	if (!rd)
		return err_sys(err, -ENOMEM, "read an object");
	int r = fetch_by(s, rd, d, out, err);
	reader_put(s, rd);
	return r;
}

int store_get(struct store *s, const struct digest *d, const struct blob **out, struct err *err)
{
	const struct blob *b = cache_get(&s->cache, d);
	if (b) {
		atomic_fetch_add_explicit(&s->cache_hits, 1, memory_order_relaxed);
		*out = b;
		return 0;
	}
	struct cache_blob *loaded = NULL;
	int r = digest_is_git(d, NULL, NULL) ? store_git_load(s, d, &loaded, err)
					     : fetch(s, d, &loaded, err);
	if (r < 0)
		return r;
	atomic_fetch_add_explicit(&s->cache_misses, 1, memory_order_relaxed);
	*out = cache_add(&s->cache, loaded);
	return 0;
}

int store_has(struct store *s, const struct digest *d, uint32_t *size)
{
	struct place p;
	struct pack_row row;
	bool pending;
	if (digest_is_git(d, NULL, NULL))
		return store_git_has(s, d, size);
	int r = store_locate(s, d, &p, &row, &pending);
	if (r > 0 && size)
		*size = p.raw;
	return r;
}

void store_trim(struct store *s, uint64_t idle_ms)
{
	cache_trim(&s->cache, idle_ms);
	files_sweep(s, idle_ms == 0);
	if (s->git)
		gitrepos_trim(s->git, idle_ms);
	(void)pthread_mutex_lock(&s->readers_lock);
	struct reader *list = steal_ptr(&s->readers);
	s->nreaders = 0;
	(void)pthread_mutex_unlock(&s->readers_lock);
	while (list) {
		struct reader *r = list;
		list = r->next;
		reader_free(r);
	}
}

int store_stats(struct store *s, struct store_stats *out, struct err *err)
{
	struct store_stats st = { 0 };
	struct pack_row *rows = NULL;
	size_t n = 0;
	int r = index_count(s->index, &st.objects);
	if (r == 0)
		r = index_rows(s->index, &rows, &n);
	if (r < 0)
		return err_sys(err, r, "read the index of the store");
	for (size_t i = 0; i < n; i++) {
		st.bytes_raw += rows[i].raw;
		st.bytes_stored += rows[i].stored;
	}
	free(rows);
	st.packs = n;
	(void)pthread_mutex_lock(&s->w.pending_lock);
	st.objects += s->w.fresh.n + s->w.flushing.n;
	(void)pthread_mutex_unlock(&s->w.pending_lock);
	st.cache_bytes = cache_bytes(&s->cache);
	st.cache_hits = atomic_load(&s->cache_hits);
	st.cache_misses = atomic_load(&s->cache_misses);
	st.puts = atomic_load(&s->puts);
	st.put_hits = atomic_load(&s->put_hits);
	st.bytes_put = atomic_load(&s->bytes_put);
	st.waiting = workers_waiting(&s->workers);
	*out = st;
	return 0;
}
