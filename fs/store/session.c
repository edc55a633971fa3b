/* Sessions: what is put or hit in one is kept from gc, and made durable by its sync. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/array.h"
#include "fs/store/chunk.h"
#include "fs/store/internal.h"

enum {
	BEGIN_TRIES = 8,
	CONTENT_WINDOW = 4 * CHUNK_MAX, /* of large content that is being cut */
	WAIT_MS = 5,                    /* between two looks at a session that is waited for */
	PIECES_BESIDE = 2, /* of it that are ready, beside one for each worker */
};

/* A pack that must be durable up to `end` before a sync may return. */
struct own_dep {
	struct wpack *w;
	uint64_t end;
};

/* The same of another process's pack: its file was opened when the object was hit, so
 * that an error of the disk reaches our fdatasync. */
struct other_dep {
	struct pack_file *f;
	uint64_t end;
};

/* One of large content, with a worker. */
struct large_piece {
	struct session_put put;
	uint8_t *data; /* CHUNK_MAX; NULL until it is used */
	uint64_t off;
	uint32_t len;
	bool zero;
};

struct store_session {
	struct store *s;
	char name[48];
	int fd; /* of the file that says we are alive, locked */
	struct store_worker self; /* of who calls */
	uint8_t *window; /* CONTENT_WINDOW; NULL until large content comes */
	bool apart; /* its work stays with who calls */
	unsigned losses; /* store.nlosses when it began */
	struct work_queue queue;
	struct large_piece *pieces; /* npieces; NULL until large content comes */
	unsigned npieces;
	int failed; /* something this session relies on is lost: it can't be synced any more */
	uint64_t stored; /* bytes that it added to packs; atomic */
	pthread_mutex_t lock; /* of what follows, while workers put */
	struct own_dep *own;
	size_t nown, cap_own;
	struct other_dep *other;
	size_t nother, cap_other;
};

/* ---- beginning and ending ---- */

/* The file exists and is locked, or -EAGAIN: a gc took it for a dead one's. */
static int register_once(struct store *s, struct store_session *ss)
{
	uint64_t token;
	random_bytes(&token, sizeof(token));
	(void)snprintf(ss->name, sizeof(ss->name), "%ld-%016" PRIx64, (long)getpid(), token);
	int fd = s->io->open(s->io->ctx, s->sessions_fd, ss->name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return fd;
	int r = store_lock_file(s, fd);
	if (r == -ENOENT)
		r = -EAGAIN;
	if (r < 0) {
		(void)s->io->unlink(s->io->ctx, s->sessions_fd, ss->name, 0);
		(void)s->io->close(s->io->ctx, fd); /* it holds nothing */
		return r;
	}
	ss->fd = fd;
	atomic_fetch_add(&s->sessions, 1);
	return 0;
}

/* Work of a thread in the background stays in the background, and where the disk is a test's each
 * run does the same. */
static bool works_apart(const struct store *s)
{
	return s->io != &io_host ||
	       getpriority(PRIO_PROCESS, 0) > getpriority(PRIO_PROCESS, (id_t)getpid());
}

int store_session_begin(struct store *s, struct store_session **out, struct err *err)
{
	if (s->read_only)
		return err_set(err, -EROFS, "the store was opened for reading only");
	struct store_session *ss = calloc(1, sizeof(*ss));
	if (!ss)
		return err_sys(err, -ENOMEM, "begin a session of the store");
	ss->s = s;
	ss->fd = -1;
	ss->losses = atomic_load(&s->nlosses);
	ss->apart = works_apart(s);
	(void)pthread_mutex_init(&ss->lock, NULL);
	(void)pthread_cond_init(&ss->queue.done, NULL);
	int r = store_worker_init(&ss->self);
	r = r < 0 ? r : -EAGAIN;
	for (int i = 0; r == -EAGAIN && i < BEGIN_TRIES; i++)
		r = register_once(s, ss);
	if (r < 0) {
		store_session_end(ss);
		return err_sys(err, r, "begin a session of the store");
	}
	*out = ss;
	return 0;
}

static void drop_deps(struct store_session *ss)
{
	for (size_t i = 0; i < ss->nown; i++)
		wpack_unuse(ss->s, ss->own[i].w);
	for (size_t i = 0; i < ss->nother; i++)
		files_put(ss->s, ss->other[i].f);
	ss->nown = ss->nother = 0;
}

void store_session_end(struct store_session *ss)
{
	if (!ss)
		return;
	struct store *s = ss->s;
	drop_deps(ss);
	if (ss->fd >= 0) {
		if (atomic_fetch_sub(&s->sessions, 1) == 1)
			writer_park(s);
		/* A file that stays counts as a dead session's as soon as it is unlocked. */
		(void)s->io->unlink(s->io->ctx, s->sessions_fd, ss->name, 0);
		(void)s->io->close(s->io->ctx, ss->fd);
	}
	for (unsigned i = 0; i < ss->npieces; i++)
		free(ss->pieces[i].data);
	free(ss->pieces);
	free(ss->own);
	free(ss->other);
	free(ss->window);
	store_worker_end(&ss->self);
	(void)pthread_cond_destroy(&ss->queue.done);
	(void)pthread_mutex_destroy(&ss->lock);
	free(ss);
}

/* Has the session of that file ended? A dead one's file is removed. */
static int session_over(struct store *s, const char *name)
{
	int fd = s->io->open(s->io->ctx, s->sessions_fd, name, O_RDWR, 0);
	if (fd == -ENOENT)
		return 1;
	if (fd < 0)
		return fd;
	int r = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 1 : errno == EWOULDBLOCK ? 0 : -errno;
	if (r == 1)
		(void)s->io->unlink(s->io->ctx, s->sessions_fd, name, 0); /* or it is, later */
	(void)s->io->close(s->io->ctx, fd);
	return r;
}

static int wait_for(struct store *s, const char *name, bool (*stop)(void *ctx), void *ctx)
{
	for (;;) {
		int r = session_over(s, name);
		if (r != 0)
			return r < 0 ? r : 0;
		if (stop(ctx))
			return -ECANCELED;
		(void)nanosleep(&(struct timespec){ .tv_nsec = WAIT_MS * 1000000 }, NULL);
	}
}

int sessions_wait(struct store *s, bool (*stop)(void *ctx), void *ctx, struct err *err)
{
	int fd = openat(s->sessions_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_dir *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		int r = -errno;
		if (fd >= 0)
			(void)close(fd);
		return err_sys(err, r, "list the sessions of the store");
	}
	/* Listed first, so that those that begin while we wait are left out. */
	char **names = NULL;
	size_t n = 0, cap = 0;
	int r = 0;
	struct dirent *de;
	while (r == 0 && (errno = 0, de = readdir(dir))) {
		if (de->d_name[0] == '.')
			continue;
		r = array_grow(&names, n, &cap);
		if (r < 0)
			break;
		names[n] = strdup(de->d_name);
		r = names[n] ? 0 : -ENOMEM;
		n += r == 0;
	}
	if (r == 0 && errno)
		r = -errno;
	for (size_t i = 0; i < n; i++) {
		if (r == 0)
			r = wait_for(s, names[i], stop, ctx);
		free(names[i]);
	}
	free(names);
	return r < 0 ? err_sys(err, r, "wait for the sessions of the store") : 0;
}

/* ---- what a session relies on ---- */

/* Takes the use of w over, whether it succeeds or not. */
static int own_locked(struct store_session *ss, struct wpack *w, uint64_t end)
{
	for (size_t i = 0; i < ss->nown; i++)
		if (ss->own[i].w == w) {
			wpack_unuse(ss->s, w);
			if (end > ss->own[i].end)
				ss->own[i].end = end;
			return 0;
		}
	int r = array_grow(&ss->own, ss->nown, &ss->cap_own);
	if (r < 0)
		wpack_unuse(ss->s, w);
	else
		ss->own[ss->nown++] = (struct own_dep){ w, end };
	return r;
}

static int rely_on_own(struct store_session *ss, struct wpack *w, uint64_t end)
{
	(void)pthread_mutex_lock(&ss->lock);
	int r = own_locked(ss, w, end);
	(void)pthread_mutex_unlock(&ss->lock);
	return r;
}

static int other_locked(struct store_session *ss, uint64_t id, uint64_t end)
{
	for (size_t i = 0; i < ss->nother; i++)
		if (ss->other[i].f->id == id) {
			if (end > ss->other[i].end)
				ss->other[i].end = end;
			return 0;
		}
	int r = array_grow(&ss->other, ss->nother, &ss->cap_other);
	struct pack_file *f;
	if (r == 0)
		r = files_get(ss->s, id, &f);
	if (r == 0)
		ss->other[ss->nother++] = (struct other_dep){ f, end };
	return r;
}

static int rely_on_other(struct store_session *ss, uint64_t id, uint64_t end)
{
	(void)pthread_mutex_lock(&ss->lock);
	int r = other_locked(ss, id, end);
	(void)pthread_mutex_unlock(&ss->lock);
	return r;
}

/* Is the object there, so that this session may rely on it? Then 1, and a sync will make it
 * durable if it isn't. 0: it has to be written. */
static int rely_on(struct store_session *ss, const struct digest *d)
{
	struct store *s = ss->s;
	struct place p;
	struct pack_row row;
	bool pending;
	int r = store_locate(s, d, &p, &row, &pending);
	if (r <= 0)
		return r;
	if (!pending && (p.damaged || row.flags & ROW_UNUSABLE || row.indexed < place_end(&p)))
		return 0;
	if (!pending && place_end(&p) <= row.synced)
		return 1;
	bool lost;
	struct wpack *w = writer_find(s, p.pack, &lost);
	if (lost)
		return 0;
	if (w)
		r = rely_on_own(ss, w, place_end(&p));
	else if (!pending)
		r = rely_on_other(ss, p.pack, place_end(&p));
	else
		/* It was pending a moment ago, and its pack was let go of since: then the
		 * index has it. */
		return store_locate(s, d, &p, &row, &pending) == 1 && !pending &&
		       place_end(&p) <= row.synced && !p.damaged && !(row.flags & ROW_UNUSABLE);
	if (r == -ENOENT)
		return 0;
	return r < 0 ? r : 1;
}

/* ---- putting ---- */

static int put_new(struct store_session *ss, const struct store_worker *with, const void *data,
		   size_t len, const struct digest *d, bool *written, struct err *err)
{
	struct pack_record r = { .digest = *d, .kind = PACK_OBJECT, .raw = (uint32_t)len };
	codec_store(with->codec, data, len, with->record + PACK_HEAD_BYTES, &r.stored, &r.codec);
	pack_record_encode(with->record, &r);
	struct wpack *w;
	uint64_t end;
	int e = writer_append(ss->s, with->record, &r, false, &w, &end, written, err);
	if (e < 0)
		return e;
	(void)__atomic_add_fetch(&ss->stored, *written ? r.stored : 0, __ATOMIC_RELAXED);
	e = rely_on_own(ss, w, end);
	return e < 0 ? err_sys(err, e, "put an object") : 0;
}

uint64_t store_session_stored(const struct store_session *ss)
{
	return __atomic_load_n(&ss->stored, __ATOMIC_RELAXED);
}

int session_put(struct store_session *ss, const struct store_worker *with, const void *data,
		size_t len, struct digest *out, struct err *err)
{
	struct store *s = ss->s;
	if (len > STORE_OBJECT_MAX)
		return err_set(err, -EFBIG, "an object of %zu bytes is too large", len);
	if (ss->failed)
		return err_sys(err, ss->failed, "an earlier sync of this session has failed");
	struct digest d;
	hash_sha256(&d, data, len);
	if (digest_is_git(&d, NULL, NULL)) /* once in 2^64 */
		return err_set(err, -EIO, "the content's digest reads as a git object's address");
	int r = rely_on(ss, &d);
	if (r < 0)
		return err_sys(err, r, "look up an object");
	bool written = false;
	if (r == 0) {
		r = put_new(ss, with, data, len, &d, &written, err);
		if (r < 0)
			return r;
	}
	atomic_fetch_add_explicit(&s->puts, 1, memory_order_relaxed);
	if (written)
		atomic_fetch_add_explicit(&s->bytes_put, len, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&s->put_hits, 1, memory_order_relaxed);
	*out = d;
	return 0;
}

int store_put(struct store_session *ss, const void *data, size_t len, struct digest *out,
	      struct err *err)
{
	return session_put(ss, &ss->self, data, len, out, err);
}

void session_give(struct store_session *ss, struct work *w)
{
	if (ss->apart || workers_add(&ss->s->workers, &ss->queue, w) < 0)
		w->run(w, &ss->self);
}

void session_wait(struct store_session *ss, struct work *w)
{
	workers_wait(&ss->s->workers, &ss->queue, w);
}

static void put_one(struct work *w, const struct store_worker *with)
{
	struct session_put *p = (struct session_put *)w; /* its first member */
	p->result = session_put(p->ss, with, p->data, p->len, &p->digest, &p->err);
}

void session_put_begin(struct session_put *p, struct store_session *ss, const void *data,
		       size_t len)
{
	*p = (struct session_put){ .work.run = put_one, .ss = ss, .data = data, .len = len };
	session_give(ss, &p->work);
}

int session_move(struct store_session *ss, uint8_t *rec, const struct pack_record *r,
		 struct err *err)
{
	struct wpack *w;
	uint64_t end;
	bool written;
	int e = writer_append(ss->s, rec, r, true, &w, &end, &written, err);
	if (e < 0)
		return e;
	e = rely_on_own(ss, w, end);
	return e < 0 ? err_sys(err, e, "move an object") : 0;
}

/* ---- syncing ---- */

static int sync_own(struct store_session *ss, struct err *err)
{
	for (size_t i = 0; i < ss->nown; i++) {
		int r = wpack_sync(ss->s, ss->own[i].w, ss->own[i].end, err);
		if (r < 0) {
			ss->failed = r;
			return r;
		}
	}
	return 0;
}

static int sync_others(struct store_session *ss, struct err *err)
{
	struct store *s = ss->s;
	for (size_t i = 0; i < ss->nother; i++) {
		struct other_dep *o = &ss->other[i];
		int r = store_sync_found(s, o->f->fd);
		struct stat st;
		if (r == 0)
			r = s->io->fstat(s->io->ctx, o->f->fd, &st);
		if (r == 0 && (uint64_t)st.st_size < o->end)
			r = -EIO; /* its writer met an error, and cut it */
		if (r < 0) {
			ss->failed = r;
			return err_sys(err, r, "sync pack %016" PRIx64, o->f->id);
		}
	}
	return 0;
}

int store_sync(struct store_session *ss, struct err *err)
{
	struct store *s = ss->s;
	if (ss->failed)
		return err_sys(err, ss->failed, "an earlier sync of this session has failed");
	int r = writer_sync(s, err);
	if (r < 0)
		ss->failed = r; /* whose ever it was: this save may build on it */
	/* What was put is durable by now, or lost and said so. */
	if (r == 0)
		r = sync_own(ss, err);
	if (r == 0)
		r = sync_others(ss, err);
	/* A pack that failed isn't synced any more; who remembers what was put into it may have
	 * told this session of that, and only of that. */
	if (r == 0 && atomic_load(&s->nlosses) != ss->losses)
		r = ss->failed = err_set(err, -EIO, "the disk has failed a sync since this began");
	/* What is durable is then made known to other processes. */
	if (r == 0)
		r = writer_flush(s, err);
	for (size_t i = 0; r == 0 && i < ss->nother; i++) {
		r = row_note_synced(s, ss->other[i].f->id, ss->other[i].end);
		if (r == -EIO)
			ss->failed = r;
		if (r < 0)
			(void)err_sys(err, r, "sync pack %016" PRIx64, ss->other[i].f->id);
	}
	if (r < 0)
		return r;
	drop_deps(ss);
	(void)writer_seal(s, NULL); /* a later sync tries again */
	return 0;
}

/* ---- content of any size ---- */

static int piece_emit(struct store_session *ss, struct large_piece *x,
		      const struct store_content *c, struct err *err)
{
	if (x->zero)
		return c->emit(c->ctx, x->off, x->len, NULL, err);
	session_wait(ss, &x->put.work);
	if (x->put.result < 0) {
		if (err)
			*err = x->put.err;
		return x->put.result;
	}
	return c->emit(c->ctx, x->off, x->len, &x->put.digest, err);
}

static int pieces_make(struct store_session *ss)
{
	unsigned n = ss->apart ? 1 : workers_count() + PIECES_BESIDE;
	if (!ss->pieces)
		ss->pieces = calloc(n, sizeof(*ss->pieces));
	if (ss->pieces)
		ss->npieces = n;
	return ss->pieces ? 0 : -ENOMEM;
}

/* Those of one content that are under way, in order: `from` up to `to`, at most npieces. */
struct under_way {
	uint64_t from, to;
};

/* The next one; that which was in its place is emitted before. `p` isn't needed any more then. */
static int put_piece(struct store_session *ss, struct under_way *u, const uint8_t *p, size_t len,
		     uint64_t off, bool zero, const struct store_content *c, struct err *err)
{
	struct large_piece *x = &ss->pieces[u->to % ss->npieces];
	int r = 0;
	if (u->to - u->from == ss->npieces) {
		u->from++;
		r = piece_emit(ss, x, c, err);
	}
	if (r < 0)
		return r;
	x->off = off;
	x->len = (uint32_t)len;
	x->zero = zero;
	if (!zero && !x->data && !(x->data = malloc(CHUNK_MAX)))
		return err_sys(err, -ENOMEM, "put content");
	u->to++;
	if (zero)
		return 0;
	memcpy(x->data, p, len);
	session_put_begin(&x->put, ss, x->data, len);
	return 0;
}

/* All of them are emitted, or where r < 0 only waited for. */
static int pieces_end(struct store_session *ss, struct under_way *u, int r,
		      const struct store_content *c, struct err *err)
{
	for (; u->from < u->to; u->from++) {
		struct large_piece *x = &ss->pieces[u->from % ss->npieces];
		if (r >= 0)
			r = piece_emit(ss, x, c, err);
		else if (!x->zero)
			session_wait(ss, &x->put.work);
	}
	return r;
}

/* What is one object, or a hole. */
static int put_small(struct store_session *ss, const uint8_t *p, size_t len, uint64_t off,
		     const struct store_content *c, struct err *err)
{
	struct digest d;
	if (chunk_is_zero(p, len))
		return c->emit(c->ctx, off, (uint32_t)len, NULL, err);
	int r = store_put(ss, p, len, &d, err);
	return r < 0 ? r : c->emit(c->ctx, off, (uint32_t)len, &d, err);
}

/* Content that comes from `read` (which tells how many bytes it gave) and goes to `to`. */
struct intake {
	const struct store_content *to;
	int (*read)(void *ctx, void *buf, size_t len, uint64_t off, struct err *err);
	void *ctx;
};

static int put_cut(struct store_session *ss, struct under_way *u, uint64_t off,
		   const struct intake *in, struct err *err)
{
	size_t have = 0;
	bool ended = false, zero = false, first = true;
	uint8_t *p = ss->window; /* what isn't put yet starts here, at `off` of the content */
	for (;;) {
		if (have < CHUNK_LOOK && !ended) {
			memmove(ss->window, p, have);
			p = ss->window;
			int r = in->read(in->ctx, p + have, CONTENT_WINDOW - have, off + have, err);
			if (r < 0)
				return r;
			ended = (size_t)r < CONTENT_WINDOW - have;
			have += (size_t)r;
		}
		if (have == 0)
			return 0;
		if (first && ended && have <= STORE_SMALL_MAX)
			return put_small(ss, p, have, off, in->to, err);
		size_t n = chunk_next(p, have, &zero);
		int r = put_piece(ss, u, p, n, off, zero, in->to, err);
		if (r < 0)
			return r;
		p += n;
		have -= n;
		off += n;
		first = false;
	}
}

static int put_all(struct store_session *ss, uint64_t off, const struct intake *in, struct err *err)
{
	struct under_way u = { 0 };
	if (!ss->window)
		ss->window = malloc(CONTENT_WINDOW); /* touched only as far as it is used */
	if (!ss->window || pieces_make(ss) < 0)
		return err_sys(err, -ENOMEM, "put content");
	int r = put_cut(ss, &u, off, in, err);
	return pieces_end(ss, &u, r, in->to, err);
}

/* So many bytes are there. */
struct counted {
	const struct store_content *c;
	uint64_t end;
};

static int read_counted(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	const struct counted *s = ctx;
	size_t n = s->end - off < len ? (size_t)(s->end - off) : len;
	int r = n ? s->c->read(s->c->ctx, buf, n, off, err) : 0;
	return r < 0 ? r : (int)n;
}

int store_put_content(struct store_session *ss, uint64_t off, uint64_t len,
		      const struct store_content *c, struct err *err)
{
	struct counted counted = { c, off + len };
	const struct intake in = { c, read_counted, &counted };
	return len ? put_all(ss, off, &in, err) : 0;
}

int store_put_stream(struct store_session *ss, const struct store_content *c, struct err *err)
{
	const struct intake in = { c, c->read, c->ctx };
	return put_all(ss, 0, &in, err);
}
