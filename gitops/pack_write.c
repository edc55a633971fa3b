/* Writes packs: from the set of objects that belong into one to content of the store.
 *
 * First each entry's place is laid out, which needs sizes only; then the pack is produced as one
 * stream of bytes, which the store cuts into objects. Entries are copied as they lie in the
 * mirror's packs, compressed. A delta whose base is in the pack too gets a new reference to it; one
 * whose base isn't (it may not be seen here, or another pack has it) is written whole, and lies in
 * a temporary file until the stream gets there. */
#include <assert.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "gitops/pack_impl.h"

enum {
	DEFLATE_LEVEL = 6,
	WINDOW = 1 << 20,      /* of the mirror's pack, where it is read through */
	WINDOW_JUMP = 1 << 15, /* the first one after a gap */
	PACK_VERSION_2 = 2,
	TELL_EVERY = 8 << 20, /* bytes */
	FEED = 1 << 20,       /* bytes that are made at once, ahead of the store … */
	FEEDS = 4,            /* … and so many of them */
	FEED_FROM = 8 << 20,  /* bytes of a pack that are worth a second thread */
};

enum how { COPY, OFS, REF, SPOOLED };

struct plan {
	uint64_t at;   /* in the pack */
	uint64_t src;  /* in the mirror's pack, or in the spool: COPY and SPOOLED the whole entry */
	uint64_t base; /* OFS: its place in the pack; REF: its number */
	uint32_t obj, crc;
	uint16_t pack;
	uint8_t how;
};

struct spool {
	const struct io *io;
	int fd;
	uint64_t len;
	struct libdeflate_compressor *deflate;
	uint8_t *out;
	size_t cap;
};

struct feed;
struct writer {
	struct src *src;
	const struct checkout_options *opt;
	const uint8_t *mark;
	struct plan *plans;
	uint32_t n, *plan_of; /* of an object, plus one; 0: it isn't in the pack */
	uint64_t end;         /* where the trailer begins */
	struct spool spool;

	/* The stream. */
	uint64_t pos;
	uint32_t i;            /* the entry that it is in */
	uint64_t from;         /* bytes of that entry's data are at `from` of its pack … */
	uint8_t head[GIT_ENTRY_HEAD_MAX];
	unsigned head_len, head_at; /* … behind a header of our own */
	uint32_t src_crc;      /* of the entry as it lies in the mirror */
	uint8_t *window;
	uint64_t window_at;
	size_t window_len;
	int window_fd;
	EVP_MD_CTX *sha;
	uint8_t trailer[SHA1_BYTES];
	bool ended;
	struct feed *feed;
	uint64_t told;

	struct pack_out *out;
	size_t cap;
};

static int no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static void be_put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24), p[1] = (uint8_t)(v >> 16), p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

/* ---- headers of entries ---- */

static unsigned put_size(uint8_t *p, unsigned kind, uint64_t size)
{
	unsigned n = 0;
	uint8_t b = (uint8_t)(kind << 4 | (size & 15));
	for (size >>= 4; size; size >>= 7) {
		p[n++] = b | 0x80;
		b = size & 0x7f;
	}
	p[n++] = b;
	return n;
}

static unsigned put_back(uint8_t *p, uint64_t back)
{
	uint8_t t[10];
	unsigned n = sizeof(t);
	t[--n] = back & 0x7f;
	while (back >>= 7)
		t[--n] = (uint8_t)(0x80 | (--back & 0x7f));
	memcpy(p, t + n, sizeof(t) - n);
	return (unsigned)sizeof(t) - n;
}

static unsigned delta_head(uint8_t *p, const struct src *s, const struct plan *pl, uint64_t size)
{
	unsigned n = put_size(p, pl->how == OFS ? GIT_OFS_DELTA : GIT_REF_DELTA, size);
	if (pl->how == OFS)
		return n + put_back(p + n, pl->at - pl->base);
	struct oid oid;
	src_oid(s, (uint32_t)pl->base, &oid);
	memcpy(p + n, oid.b, OID_BYTES);
	return n + OID_BYTES;
}

/* ---- what is compressed anew ---- */

static int spool_open(struct spool *s, const char *folder, struct err *err)
{
	char name[4096];
	uint64_t random;
	if (s->fd >= 0)
		return 0;
	random_bytes(&random, sizeof(random));
	int n = snprintf(name, sizeof(name), "%s/" IO_TMP_PREFIX "%016llx", folder,
			 (unsigned long long)random);
	if (n < 0 || n >= (int)sizeof(name))
		return err_set(err, -ENAMETOOLONG, "the path of the images is too long");
	int fd = s->io->open(s->io->ctx, AT_FDCWD, name,
			     O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(err, fd, "make a temporary file");
	(void)s->io->unlink(s->io->ctx, AT_FDCWD, name, 0); /* else it is swept later */
	s->fd = fd;
	s->deflate = libdeflate_alloc_compressor(DEFLATE_LEVEL);
	return s->deflate ? 0 : no_memory(err);
}

static void spool_close(struct spool *s)
{
	if (s->fd >= 0)
		(void)s->io->close(s->io->ctx, s->fd); /* nothing of it is needed any more */
	libdeflate_free_compressor(s->deflate);
	free(s->out);
}

/* Puts an entry of that content at the spool's end; *len: its bytes. */
static int spool_add(struct spool *s, const struct src_data *d, uint64_t *len, struct err *err)
{
	size_t need = GIT_ENTRY_HEAD_MAX + libdeflate_zlib_compress_bound(s->deflate, d->len);
	if (s->cap < need) {
		free(s->out);
		s->cap = 0;
		s->out = malloc(need);
		if (!s->out)
			return no_memory(err);
		s->cap = need;
	}
	unsigned head = put_size(s->out, d->type, d->len);
	size_t n = libdeflate_zlib_compress(s->deflate, d->data, d->len, s->out + head,
					    s->cap - head);
	if (n == 0)
		return err_set(err, -EIO, "an object can't be compressed");
	int r = io_write_full(s->io, s->fd, s->out, head + n, s->len);
	if (r < 0)
		return err_sys(err, r, "write a temporary file");
	*len = head + n;
	s->len += *len;
	return 0;
}

/* ---- layout ---- */

static bool wanted(const struct writer *w, uint32_t obj, enum git_type type)
{
	uint8_t m = w->mark[obj];
	return (m & MARK_TYPE) == type && !(m & MARK_KNOWN);
}

static int plan_whole(struct writer *w, struct plan *pl, uint64_t *len, struct err *err)
{
	auto_src_data *d = NULL;
	int r = spool_open(&w->spool, w->opt->images, err);
	if (r == 0)
		r = src_read(w->src, pl->obj, &d, err);
	if (r < 0)
		return r;
	pl->how = SPOOLED;
	pl->src = w->spool.len;
	return spool_add(&w->spool, d, len, err);
}

/* How the i-th entry by place of pack p is written, and its length then. */
static int plan_entry(struct writer *w, const struct src_pack *p, uint32_t i, struct plan *pl,
		      uint64_t *len, struct err *err)
{
	struct src_entry e;
	uint8_t head[GIT_ENTRY_HEAD_MAX];
	int r = src_entry_at(w->src, p, i, &e, err);
	if (r < 0)
		return r;
	pl->src = e.off;
	if (e.base == OBJ_NONE) {
		pl->how = COPY;
		*len = e.len;
		return 0;
	}
	uint32_t base = src_first(w->src, e.base); /* the number that is marked */
	enum git_type type = (enum git_type)(w->mark[pl->obj] & MARK_TYPE);
	if (!wanted(w, base, type))
		return plan_whole(w, pl, len, err);
	/* Deltas come behind their bases as in the mirror's pack; where that has it the other way
	 * round, by a reference to an id, so do we. */
	uint32_t at = w->plan_of[base];
	pl->how = at ? OFS : REF;
	pl->base = at ? w->plans[at - 1].at : base;
	*len = delta_head(head, w->src, pl, e.size) + e.len - e.head;
	return 0;
}

static int add_plan(struct writer *w, size_t pack, uint32_t i, uint32_t obj, struct err *err)
{
	const struct src_pack *p = &w->src->packs[pack];
	struct plan pl = { .at = w->end, .obj = obj, .pack = (uint16_t)pack };
	uint64_t len;
	int r = p->fd < 0 ? plan_whole(w, &pl, &len, err) : plan_entry(w, p, i, &pl, &len, err);
	if (r < 0)
		return r;
	w->end += len;
	w->plans[w->n++] = pl;
	w->plan_of[obj] = w->n;
	return 0;
}

/* The objects of one type, in the order in which the mirror has them. */
static int plan_type(struct writer *w, enum git_type type, struct err *err)
{
	for (size_t k = 0; k < w->src->npacks; k++) {
		const struct src_pack *p = &w->src->packs[k];
		for (uint32_t i = 0; i < p->n; i++) {
			uint32_t obj = p->first + (p->order ? p->order[i] : i);
			int r = wanted(w, obj, type) ? add_plan(w, k, i, obj, err) : 0;
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int make_plan(struct writer *w, const enum git_type *types, size_t ntypes, struct err *err)
{
	uint32_t count = 0;
	for (size_t t = 0; t < ntypes; t++)
		for (uint32_t obj = 0; obj < w->src->total; obj++)
			count += wanted(w, obj, types[t]);
	if (w->src->npacks > UINT16_MAX)
		return err_set(err, -EFBIG, "the mirror has too many packs");
	w->plans = calloc(count + 1, sizeof(*w->plans));
	w->plan_of = calloc((size_t)w->src->total + 1, sizeof(*w->plan_of));
	if (!w->plans || !w->plan_of)
		return no_memory(err);
	w->end = GIT_PACK_HEAD;
	for (size_t t = 0; t < ntypes; t++) {
		int r = plan_type(w, types[t], err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- the stream ---- */

/* Bytes of a file from `off` on: at least one; at most *n, of which there are that many. */
static int window(struct writer *w, int fd, uint64_t off, uint64_t want, const uint8_t **p,
		  size_t *n, struct err *err)
{
	bool same = w->window_fd == fd;
	if (!same || off < w->window_at || off >= w->window_at + w->window_len) {
		bool on = same && off == w->window_at + w->window_len;
		size_t take = on || want > WINDOW_JUMP ? WINDOW : WINDOW_JUMP;
		const struct io *io = w->src->io;
		ssize_t r = io_read_full(io, fd, w->window, take, off);
		w->window_fd = -1;
		if (r <= 0)
			return r < 0 ? err_sys(err, (int)r, "read a pack of the mirror")
				     : err_set(err, -EBADMSG, "a pack of the mirror is cut off");
		w->window_fd = fd;
		w->window_at = off;
		w->window_len = (size_t)r;
	}
	size_t at = (size_t)(off - w->window_at);
	*p = w->window + at;
	*n = w->window_len - at < want ? w->window_len - at : (size_t)want;
	return 0;
}

static int fd_of(const struct writer *w, const struct plan *pl)
{
	return pl->how == SPOOLED ? w->spool.fd : w->src->packs[pl->pack].fd;
}

static uint64_t entry_end(const struct writer *w, uint32_t i)
{
	return i + 1 < w->n ? w->plans[i + 1].at : w->end;
}

/* Starts with an entry: its header, where that is ours, and what of the mirror's it replaces. */
static int begin_entry(struct writer *w, struct err *err)
{
	struct plan *pl = &w->plans[w->i];
	w->head_len = w->head_at = 0;
	w->from = pl->src;
	w->src_crc = 0;
	if (pl->how == COPY || pl->how == SPOOLED)
		return 0;
	uint8_t old[GIT_ENTRY_HEAD_MAX];
	struct git_entry g;
	size_t have = 0, want = sizeof(old);
	uint64_t room = w->src->packs[pl->pack].size - pl->src;
	for (want = room < want ? (size_t)room : want; have < want;) {
		const uint8_t *p;
		size_t n;
		int r = window(w, fd_of(w, pl), pl->src + have, want - have, &p, &n, err);
		if (r < 0)
			return r;
		memcpy(old + have, p, n);
		have += n;
	}
	if (git_entry_decode(&g, old, have) < 0) /* it was right a moment ago */
		return err_set(err, -EBADMSG, "a pack of the mirror has changed");
	w->head_len = delta_head(w->head, w->src, pl, g.size);
	w->src_crc = libdeflate_crc32(0, old, g.head);
	w->from += g.head;
	return 0;
}

static int end_entry(struct writer *w, struct err *err)
{
	struct plan *pl = &w->plans[w->i];
	const struct src_pack *p = &w->src->packs[pl->pack];
	if (pl->how == COPY)
		w->src_crc = pl->crc;
	if (pl->how != SPOOLED) {
		uint32_t crc = be_get32(p->crcs + (size_t)(pl->obj - p->first) * 4);
		if (crc != w->src_crc)
			return err_set(err, -EBADMSG, "%s of the mirror is damaged at %llu",
				       p->name, (unsigned long long)pl->src);
	}
	w->i++;
	return 0;
}

/* Copies bytes of the present entry, up to n; the count. */
static ssize_t copy_entry(struct writer *w, uint8_t *buf, size_t n, struct err *err)
{
	struct plan *pl = &w->plans[w->i];
	int r = w->pos == pl->at ? begin_entry(w, err) : 0;
	uint64_t left = entry_end(w, w->i) - w->pos;
	if (r < 0)
		return r;
	if (n > left)
		n = (size_t)left;
	if (w->head_at < w->head_len) {
		if (n > w->head_len - w->head_at)
			n = w->head_len - w->head_at;
		memcpy(buf, w->head + w->head_at, n);
		w->head_at += (unsigned)n;
	} else {
		const uint8_t *p;
		r = window(w, fd_of(w, pl), w->from, n, &p, &n, err);
		if (r < 0)
			return r;
		memcpy(buf, p, n);
		if (pl->how == OFS || pl->how == REF)
			w->src_crc = libdeflate_crc32(w->src_crc, buf, n);
		w->from += n;
	}
	pl->crc = libdeflate_crc32(pl->crc, buf, n);
	w->pos += n;
	if (w->pos == entry_end(w, w->i))
		r = end_entry(w, err);
	return r < 0 ? r : (ssize_t)n;
}

static ssize_t copy_head(struct writer *w, uint8_t *buf, size_t n)
{
	uint8_t head[GIT_PACK_HEAD] = "PACK";
	be_put32(head + 4, PACK_VERSION_2);
	be_put32(head + 8, w->n);
	if (n > GIT_PACK_HEAD - w->pos)
		n = (size_t)(GIT_PACK_HEAD - w->pos);
	memcpy(buf, head + w->pos, n);
	w->pos += n;
	return (ssize_t)n;
}

static ssize_t copy_trailer(struct writer *w, uint8_t *buf, size_t n, struct err *err)
{
	if (!w->ended && EVP_DigestFinal_ex(w->sha, w->trailer, NULL) != 1)
		return err_set(err, -EIO, "SHA-1 failed");
	w->ended = true;
	size_t at = (size_t)(w->pos - w->end);
	assert(at + n <= SHA1_BYTES);
	memcpy(buf, w->trailer + at, n);
	w->pos += n;
	return (ssize_t)n;
}

static int tell(struct writer *w, uint64_t pos, struct err *err)
{
	const struct checkout_options *o = w->opt;
	if (!o->progress || pos < w->told)
		return 0;
	w->told = pos + TELL_EVERY;
	if (o->progress(o->progress_ctx, pos, w->end, "writing the history") != 0)
		return err_set(err, -ECANCELED, "cancelled");
	return 0;
}

/* The next `len` bytes of the pack. */
static int make_bytes(struct writer *w, uint8_t *p, size_t len, struct err *err)
{
	/* Hashed before the trailer is asked for, which may be in the same call. */
	size_t body = w->pos >= w->end ? 0 : len;
	if (body > w->end - w->pos)
		body = (size_t)(w->end - w->pos);
	for (size_t done = 0; done < body;) {
		ssize_t n = w->pos < GIT_PACK_HEAD ? copy_head(w, p + done, body - done)
					       : copy_entry(w, p + done, body - done, err);
		if (n < 0)
			return (int)n;
		done += (size_t)n;
	}
	if (body && EVP_DigestUpdate(w->sha, p, body) != 1)
		return err_set(err, -EIO, "SHA-1 failed");
	ssize_t n = body < len ? copy_trailer(w, p + body, len - body, err) : 0;
	return n < 0 ? (int)n : 0;
}

/* A large pack is made by one thread (copied, checked, hashed) while the caller's cuts, hashes and
 * writes what the store gets. */
struct feed {
	pthread_t thread;
	bool on; /* else the caller makes it */
	pthread_mutex_t lock;
	pthread_cond_t moved;
	uint8_t *ring;            /* FEED * FEEDS */
	uint64_t made, taken;     /* bytes of the pack; changed under the lock, as the next are */
	bool stop;
	int result;
	struct err err;
};

/* Whether there is room for another FEED; not when the caller gave up. */
static bool feed_room(struct feed *f)
{
	pthread_mutex_lock(&f->lock);
	while (!f->stop && f->made + FEED > f->taken + (uint64_t)FEED * FEEDS)
		pthread_cond_wait(&f->moved, &f->lock);
	bool go = !f->stop;
	pthread_mutex_unlock(&f->lock);
	return go;
}

static void *feed_run(void *arg)
{
	struct writer *w = arg;
	struct feed *f = w->feed;
	uint64_t total = w->end + SHA1_BYTES, at = 0;
	for (int r = 0; r == 0 && at < total && feed_room(f);) {
		size_t n = total - at < FEED ? (size_t)(total - at) : FEED;
		r = make_bytes(w, f->ring + at % ((uint64_t)FEED * FEEDS), n, &f->err);
		at += r == 0 ? n : 0;
		pthread_mutex_lock(&f->lock);
		f->made = at;
		f->result = r;
		pthread_cond_signal(&f->moved);
		pthread_mutex_unlock(&f->lock);
	}
	return NULL;
}

/* Copies what is there of the next bytes, one at least. */
static ssize_t feed_take(struct feed *f, uint8_t *p, size_t len, struct err *err)
{
	pthread_mutex_lock(&f->lock);
	while (f->made == f->taken && f->result == 0)
		pthread_cond_wait(&f->moved, &f->lock);
	size_t at = (size_t)(f->taken % ((uint64_t)FEED * FEEDS)), n = (size_t)(f->made - f->taken);
	int r = n ? 0 : f->result;
	pthread_mutex_unlock(&f->lock);
	if (r < 0) {
		if (err)
			*err = f->err;
		return r;
	}
	n = n < len ? n : len;
	n = n < (size_t)FEED * FEEDS - at ? n : (size_t)FEED * FEEDS - at;
	memcpy(p, f->ring + at, n);
	pthread_mutex_lock(&f->lock);
	f->taken += n;
	pthread_cond_signal(&f->moved);
	pthread_mutex_unlock(&f->lock);
	return (ssize_t)n;
}

static void feed_start(struct feed *f, struct writer *w)
{
	w->feed = f;
	if (w->end < FEED_FROM || sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return;
	f->ring = malloc((size_t)FEED * FEEDS);
	f->on = f->ring && pthread_create(&f->thread, NULL, feed_run, w) == 0;
}

static void feed_end(struct feed *f)
{
	if (f->on) {
		pthread_mutex_lock(&f->lock);
		f->stop = true;
		pthread_cond_signal(&f->moved);
		pthread_mutex_unlock(&f->lock);
		(void)pthread_join(f->thread, NULL); /* ours, joined once */
	}
	free(f->ring);
}

/* The pack's bytes. The store asks for them in order, each once. */
static int stream_read(struct writer *w, uint8_t *p, size_t len, uint64_t off, struct err *err)
{
	int r = tell(w, off, err);
	if (r < 0 || !w->feed->on)
		return r < 0 ? r : make_bytes(w, p, len, err);
	for (size_t done = 0; done < len;) {
		ssize_t n = feed_take(w->feed, p + done, len - done, err);
		if (n < 0)
			return (int)n;
		done += (size_t)n;
	}
	return 0;
}

/* ---- into the store ---- */

struct pieces {
	struct piece **v;
	size_t *n, cap;
	const uint8_t *data; /* memory_read's */
	struct writer *w;
};

static int emit_piece(void *ctx, uint64_t off, uint32_t len, const struct digest *d,
		      struct err *err)
{
	struct pieces *s = ctx;
	struct piece p = { .off = off, .len = len };
	if (!d) /* zeros: a hole */
		return 0;
	p.object = *d;
	if (array_grow(s->v, *s->n, &s->cap) < 0)
		return no_memory(err);
	(*s->v)[(*s->n)++] = p;
	return 0;
}

static int pieces_read(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	struct pieces *s = ctx;
	if (s->w)
		return stream_read(s->w, buf, len, off, err);
	memcpy(buf, s->data + off, len);
	return 0;
}

static int put(struct pieces *s, uint64_t len, struct store_session *ss, struct err *err)
{
	const struct store_content c = { .read = pieces_read, .emit = emit_piece, .ctx = s };
	return store_put_content(ss, 0, len, &c, err);
}

static int put_idx(struct writer *w, struct err *err)
{
	auto_buf idx = { 0 };
	auto_free struct idx_entry *e = calloc(w->n + 1, sizeof(*e));
	uint32_t n = 0;
	if (!e)
		return no_memory(err);
	for (uint32_t obj = 0; obj < w->src->total; obj++) {
		if (w->plan_of[obj] == 0)
			continue;
		const struct plan *p = &w->plans[w->plan_of[obj] - 1];
		e[n++] = (struct idx_entry){ p->at, obj, p->crc };
	}
	int r = idx_encode(&idx, w->src, e, n, w->trailer, err);
	if (r < 0)
		return r;
	struct pieces s = { .v = &w->out->idx, .n = &w->out->nidx, .data = idx.data };
	w->out->idx_bytes = idx.len;
	return put(&s, idx.len, w->opt->session, err);
}

static int write_stream(struct writer *w, struct err *err)
{
	w->window = malloc(WINDOW);
	w->sha = EVP_MD_CTX_new();
	if (!w->window || !w->sha)
		return no_memory(err);
	if (EVP_DigestInit_ex(w->sha, EVP_sha1(), NULL) != 1)
		return err_set(err, -EIO, "SHA-1 isn't there");
	struct pieces s = { .v = &w->out->pack, .n = &w->out->npack, .w = w };
	w->out->pack_bytes = w->end + SHA1_BYTES;
	w->out->objects = w->n;
	struct feed feed = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };
	feed_start(&feed, w);
	int r = put(&s, w->out->pack_bytes, w->opt->session, err);
	feed_end(&feed);
	if (r < 0)
		return r;
	memcpy(w->out->name, w->trailer, SHA1_BYTES);
	return put_idx(w, err);
}

/* One pack of the objects of these types that are marked; none when there are none. */
static int write_pack(struct pack_set *set, struct src *s, const uint8_t *mark,
		      const struct checkout_options *opt, const struct checkout_spec *spec,
		      const enum git_type *types, size_t ntypes, struct err *err)
{
	struct pack_out out = { .promisor = spec->nscopes > 0 };
	struct writer w = { .src = s, .opt = opt, .mark = mark, .out = &out, .window_fd = -1,
			    .spool = { .io = s->io, .fd = -1 } };
	int r = make_plan(&w, types, ntypes, err);
	if (r == 0 && w.n > 0)
		r = write_stream(&w, err);
	if (r == 0 && w.n > 0) {
		struct pack_out *more = reallocarray(set->packs, set->npacks + 1, sizeof(*more));
		r = more ? 0 : no_memory(err);
		if (more) {
			set->packs = more;
			more[set->npacks++] = out;
			out = (struct pack_out){ 0 };
		}
	}
	spool_close(&w.spool);
	free(out.pack);
	free(out.idx);
	free(w.plans);
	free(w.plan_of);
	free(w.window);
	EVP_MD_CTX_free(w.sha);
	return r;
}

void pack_set_done(struct pack_set *s)
{
	for (size_t i = 0; i < s->npacks; i++) {
		free(s->packs[i].pack);
		free(s->packs[i].idx);
	}
	for (size_t i = 0; i < s->ntags; i++)
		free(s->tags[i].name);
	free(s->packs);
	free(s->tags);
	free(s->shallow);
	*s = (struct pack_set){ 0 };
}

int pack_write(struct pack_set *out, const struct checkout_options *opt,
	       const struct checkout_spec *spec, struct err *err)
{
	static const enum git_type history[] = { GIT_COMMIT, GIT_TREE, GIT_BLOB };
	static const enum git_type tags[] = { GIT_TAG };
	struct pack_set set = { 0 };
	struct src s;
	int r = src_open(&s, opt->mirror, opt->io, err);
	if (r < 0)
		return err_prefix(err, r, "open the mirror's objects");
	auto_free uint8_t *mark = calloc((size_t)s.total + 1, 1);
	r = mark ? reach_mark(&set, mark, &s, opt, spec, err) : no_memory(err);
	if (r == 0)
		r = write_pack(&set, &s, mark, opt, spec, history, 3, err);
	if (r == 0)
		r = write_pack(&set, &s, mark, opt, spec, tags, 1, err);
	src_close(&s);
	if (r < 0) {
		pack_set_done(&set);
		return r;
	}
	*out = set;
	return 0;
}
