/* Writes packs: from the set of objects that belong into one to content of the store.
 *
 * The pack is produced as one stream of bytes, which the store cuts into objects. Entries are
 * copied as they lie in the mirror's packs, compressed. A delta whose base is in the pack too gets
 * a new reference to it; one whose base isn't (it may not be seen here, or another pack has it) is
 * written whole. */
#include <libdeflate.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <unistd.h>

#include "gitops/pack_impl.h"

enum {
	WINDOW = 1 << 20,      /* of the mirror's pack, where it is read through */
	WINDOW_JUMP = 1 << 15, /* the first one after a gap */
	PACK_VERSION_2 = 2,
	TELL_EVERY = 8 << 20, /* bytes */
	FEED = 1 << 20,       /* bytes that are made at once, ahead of the store … */
	FEEDS = 4,            /* … and so many of them */
	FEED_FROM = 8 << 20,  /* bytes of a pack that are worth a second thread */
};

struct feed;
struct writer {
	struct src *src;
	const struct checkout_options *opt;
	const uint8_t *mark;
	const enum git_type *types; /* one after the other, each in the mirror's order */
	size_t ntypes;
	uint32_t count;            /* objects; those that are begun or done: */
	struct idx_entry *entries; /* at: in the pack */
	uint32_t n, *entry_of;     /* of an object, plus one; 0: it isn't in the pack yet */
	uint64_t bytes;            /* about so many there will be */
	struct whole whole;

	/* The stream. */
	uint64_t pos;
	size_t type, pack; /* the next entry is looked for here: … */
	uint32_t place;    /* … by place in the pack */
	/* What is left of the present entry: a header of our own, … */
	uint8_t head[GIT_ENTRY_HEAD_MAX];
	unsigned head_len, head_at;
	uint64_t from, left;  /* … then bytes of its pack (NULL: of `whole`) … */
	const struct src_pack *of;
	uint32_t src_crc; /* … and the checksum of those and what they replace */
	bool delta;       /* (unlike the entry's) */
	uint8_t *window;
	uint64_t window_at;
	size_t window_len;
	int window_fd;
	EVP_MD_CTX *sha;
	uint8_t trailer[SHA1_BYTES];
	unsigned trailer_at;
	bool ended;
	struct feed *feed;
	uint64_t told;

	struct pack_out *out;
	struct gains *gains; /* NULL: they aren't of this pack */
};

/* ---- which objects ---- */

static bool wanted(const struct writer *w, uint32_t obj, enum git_type type)
{
	uint8_t m = w->mark[obj];
	return (m & MARK_TYPE) == type && !(m & MARK_KNOWN);
}

/* How many there are, and about how long the pack gets. */
static int count_wanted(struct writer *w, struct err *err)
{
	unsigned of_type[MARK_TYPE + 1] = { 0 };
	for (size_t t = 0; t < w->ntypes; t++)
		of_type[w->types[t]] = 1;
	for (size_t k = 0; k < w->src->npacks; k++) {
		const struct src_pack *p = &w->src->packs[k];
		for (uint32_t i = 0; i < p->n; i++) {
			uint8_t m = w->mark[p->first + i];
			if (m & MARK_KNOWN || !of_type[m & MARK_TYPE])
				continue;
			w->count++;
			if (p->fd >= 0)
				w->bytes += p->starts[p->place[i] + 1] - p->starts[p->place[i]];
		}
	}
	w->entries = calloc((size_t)w->count + 1, sizeof(*w->entries));
	w->entry_of = calloc((size_t)w->src->total + 1, sizeof(*w->entry_of));
	return w->entries && w->entry_of ? 0 : err_no_memory(err);
}

/* The next one, from where the last one was: 1 and its pack, its place there and its number; 0. */
static int next_wanted(struct writer *w, const struct src_pack **pack, uint32_t *place,
		       uint32_t *obj)
{
	for (; w->type < w->ntypes; w->type++, w->pack = 0) {
		for (; w->pack < w->src->npacks; w->pack++, w->place = 0) {
			const struct src_pack *p = &w->src->packs[w->pack];
			while (w->place < p->n) {
				uint32_t i = w->place++;
				*obj = p->first + (p->order ? p->order[i] : i);
				if (!wanted(w, *obj, w->types[w->type]))
					continue;
				*pack = p;
				*place = i;
				return 1;
			}
		}
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

/* The first bytes of an entry. */
static int read_head(struct writer *w, const struct src_pack *p, uint32_t place,
		     uint8_t head[GIT_ENTRY_HEAD_MAX], size_t *len, struct err *err)
{
	uint64_t off = p->starts[place], room = p->starts[place + 1] - off;
	size_t want = room < GIT_ENTRY_HEAD_MAX ? (size_t)room : GIT_ENTRY_HEAD_MAX;
	for (*len = 0; *len < want;) {
		const uint8_t *data;
		size_t n;
		int r = window(w, p->fd, off + *len, want - *len, &data, &n, err);
		if (r < 0)
			return r;
		memcpy(head + *len, data, n);
		*len += n;
	}
	return 0;
}

static int begin_whole(struct writer *w, uint32_t obj, struct err *err)
{
	w->of = NULL;
	w->from = 0;
	return whole_make(&w->whole, w->src, obj, &w->left, err);
}

/* Deltas come behind their bases as in the mirror's pack; where that has it the other way round, by
 * a reference to an id, so do we. */
static void begin_delta(struct writer *w, const struct src_entry *e, uint32_t base)
{
	uint32_t at = w->entry_of[base];
	unsigned n = entry_put_size(w->head, at ? GIT_OFS_DELTA : GIT_REF_DELTA, e->size);
	struct oid oid;
	if (at) {
		n += entry_put_back(w->head + n, w->pos - w->entries[at - 1].at);
	} else {
		src_oid(w->src, base, &oid);
		memcpy(w->head + n, oid.b, OID_BYTES);
		n += OID_BYTES;
	}
	w->head_len = n;
	w->from += e->head;
	w->left -= e->head;
}

/* Starts with an entry that lies in a pack of the mirror. */
static int begin_entry(struct writer *w, const struct src_pack *p, uint32_t place, uint32_t obj,
		       struct err *err)
{
	uint8_t head[GIT_ENTRY_HEAD_MAX];
	struct src_entry e;
	size_t n;
	int r = read_head(w, p, place, head, &n, err);
	if (r == 0)
		r = src_entry_decode(p, place, head, n, &e, err);
	if (r < 0)
		return r;
	w->of = p;
	w->from = e.off;
	w->left = e.len;
	w->delta = e.base != OBJ_NONE;
	if (!w->delta)
		return 0;
	uint32_t base = src_first(w->src, e.base); /* the number that is marked */
	if (!wanted(w, base, w->types[w->type]))
		return begin_whole(w, obj, err);
	w->src_crc = libdeflate_crc32(0, head, e.head);
	begin_delta(w, &e, base);
	return 0;
}

/* 1: the next entry is begun; 0: that was the last. */
static int next_entry(struct writer *w, struct err *err)
{
	const struct src_pack *p;
	uint32_t place, obj;
	if (!next_wanted(w, &p, &place, &obj))
		return 0;
	w->head_len = w->head_at = 0;
	int r = p->fd < 0 ? begin_whole(w, obj, err) : begin_entry(w, p, place, obj, err);
	if (r < 0)
		return r;
	w->entries[w->n++] = (struct idx_entry){ w->pos, obj, 0 };
	w->entry_of[obj] = w->n;
	return 1;
}

static int end_entry(struct writer *w, const struct idx_entry *e, struct err *err)
{
	if (!w->of)
		return 0;
	uint32_t crc = be_get32(w->of->crcs + (size_t)(e->obj - w->of->first) * 4);
	if (crc == (w->delta ? w->src_crc : e->crc))
		return 0;
	return err_set(err, -EBADMSG, "%s of the mirror is damaged at %llu", w->of->name,
		       (unsigned long long)w->from);
}

/* Copies bytes of the present entry, up to n; the count. */
static ssize_t copy_entry(struct writer *w, uint8_t *buf, size_t n, struct err *err)
{
	struct idx_entry *e = &w->entries[w->n - 1];
	if (w->head_at < w->head_len) {
		if (n > w->head_len - w->head_at)
			n = w->head_len - w->head_at;
		memcpy(buf, w->head + w->head_at, n);
		w->head_at += (unsigned)n;
	} else {
		const uint8_t *p = w->of ? NULL : w->whole.data + w->from;
		if (n > w->left)
			n = (size_t)w->left;
		int r = w->of ? window(w, w->of->fd, w->from, n, &p, &n, err) : 0;
		if (r < 0)
			return r;
		memcpy(buf, p, n);
		if (w->of && w->delta)
			w->src_crc = libdeflate_crc32(w->src_crc, buf, n);
		w->from += n;
		w->left -= n;
	}
	e->crc = libdeflate_crc32(e->crc, buf, n);
	w->pos += n;
	int r = w->left == 0 && w->head_at == w->head_len ? end_entry(w, e, err) : 0;
	return r < 0 ? r : (ssize_t)n;
}

static ssize_t copy_head(struct writer *w, uint8_t *buf, size_t n)
{
	uint8_t head[GIT_PACK_HEAD] = "PACK";
	be_put32(head + 4, PACK_VERSION_2);
	be_put32(head + 8, w->count);
	if (n > GIT_PACK_HEAD - w->pos)
		n = (size_t)(GIT_PACK_HEAD - w->pos);
	memcpy(buf, head + w->pos, n);
	w->pos += n;
	return (ssize_t)n;
}

static int copy_trailer(struct writer *w, uint8_t *buf, size_t n, struct err *err)
{
	if (!w->ended && EVP_DigestFinal_ex(w->sha, w->trailer, NULL) != 1)
		return err_set(err, -EIO, "SHA-1 failed");
	w->ended = true;
	if (n > SHA1_BYTES - w->trailer_at)
		n = SHA1_BYTES - w->trailer_at;
	memcpy(buf, w->trailer + w->trailer_at, n);
	w->trailer_at += (unsigned)n;
	w->pos += n;
	return (int)n;
}

static int tell(struct writer *w, uint64_t pos, struct err *err)
{
	const struct checkout_options *o = w->opt;
	if (!o->progress || pos < w->told)
		return 0;
	w->told = pos + TELL_EVERY;
	if (o->progress(o->progress_ctx, pos, w->bytes, "writing the history") != 0)
		return err_set(err, -ECANCELED, "cancelled");
	return 0;
}

/* The next bytes of the pack that are in front of the trailer: fewer than `len` at their end. */
static ssize_t make_body(struct writer *w, uint8_t *p, size_t len, struct err *err)
{
	size_t done = 0;
	while (done < len && !w->ended) {
		ssize_t n;
		if (w->pos < GIT_PACK_HEAD) {
			n = copy_head(w, p + done, len - done);
		} else if (w->left == 0 && w->head_at == w->head_len) {
			n = next_entry(w, err);
			if (n == 0)
				break;
			n = n < 0 ? n : 0;
		} else {
			n = copy_entry(w, p + done, len - done, err);
		}
		if (n < 0)
			return n;
		done += (size_t)n;
	}
	if (done && EVP_DigestUpdate(w->sha, p, done) != 1)
		return err_set(err, -EIO, "SHA-1 failed");
	return (ssize_t)done;
}

/* The next `len` bytes of the pack; how many, fewer at the end only. */
static int make_bytes(struct writer *w, uint8_t *p, size_t len, struct err *err)
{
	ssize_t n = make_body(w, p, len, err);
	if (n < 0 || (size_t)n == len)
		return (int)n;
	int r = copy_trailer(w, p + n, len - (size_t)n, err);
	return r < 0 ? r : (int)n + r;
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
	bool stop, ended;
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
	uint64_t at = 0;
	for (bool more = true; more && feed_room(f);) {
		int n = make_bytes(w, f->ring + at % ((uint64_t)FEED * FEEDS), FEED, &f->err);
		at += n < 0 ? 0 : (uint64_t)n;
		more = n == FEED;
		pthread_mutex_lock(&f->lock);
		f->made = at;
		f->ended = !more;
		f->result = n < 0 ? n : 0;
		pthread_cond_signal(&f->moved);
		pthread_mutex_unlock(&f->lock);
	}
	return NULL;
}

/* Copies what is there of the next bytes; 0 at the end. */
static ssize_t feed_take(struct feed *f, uint8_t *p, size_t len, struct err *err)
{
	pthread_mutex_lock(&f->lock);
	while (f->made == f->taken && !f->ended)
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
	if (w->bytes < FEED_FROM || sysconf(_SC_NPROCESSORS_ONLN) < 2)
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

/* The pack's bytes, which the store asks for in order, each once: how many. */
static int stream_read(struct writer *w, uint8_t *p, size_t len, uint64_t off, struct err *err)
{
	int r = tell(w, off, err);
	if (r < 0 || !w->feed->on)
		return r < 0 ? r : make_bytes(w, p, len, err);
	size_t done = 0;
	while (done < len) {
		ssize_t n = feed_take(w->feed, p + done, len - done, err);
		if (n < 0)
			return (int)n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (int)done;
}

/* ---- into the store ---- */

struct stream {
	struct writer *w;
	struct pieces to;
	uint64_t len; /* how many bytes were read */
};

static int emit_piece(void *ctx, uint64_t off, uint32_t len, const struct digest *d,
		      struct err *err)
{
	struct stream *s = ctx;
	return pieces_add(&s->to, off, len, d, err);
}

static int read_pack(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	struct stream *s = ctx;
	int r = stream_read(s->w, buf, len, off, err);
	s->len += r < 0 ? 0 : (uint64_t)r;
	return r;
}

/* The notes of this pack, by the numbers that its objects have got. */
static int put_gains(struct writer *w, const struct idx_entry *e, struct err *err)
{
	struct gains *g = w->gains;
	auto_buf part = { 0 };
	if (!g || !g->on)
		return 0;
	for (uint32_t i = 0; i < w->n; i++)
		g->number[e[i].obj] = g->numbered + i + 1;
	if (gains_encode(&part, g) < 0)
		return err_no_memory(err);
	struct pieces to = { .v = &w->out->gains, .n = &w->out->ngains };
	w->out->gains_bytes = part.len;
	return pieces_put(&to, 0, part.data, part.len, w->opt->session, err);
}

static int put_idx(struct writer *w, struct err *err)
{
	auto_free struct idx_entry *e = calloc((size_t)w->n + 1, sizeof(*e));
	uint32_t n = 0;
	if (!e)
		return err_no_memory(err);
	for (uint32_t obj = 0; obj < w->src->total; obj++) /* mostly in order of ids */
		if (w->entry_of[obj])
			e[n++] = w->entries[w->entry_of[obj] - 1];
	int r = pack_put_idx(w->out, w->src, e, w->n, w->opt->session, err);
	return r < 0 ? r : put_gains(w, e, err);
}

static int write_stream(struct writer *w, struct err *err)
{
	w->window = malloc(WINDOW);
	w->sha = EVP_MD_CTX_new();
	if (!w->window || !w->sha)
		return err_no_memory(err);
	if (EVP_DigestInit_ex(w->sha, EVP_sha1(), NULL) != 1)
		return err_set(err, -EIO, "SHA-1 isn't there");
	struct stream s = { .w = w, .to = { .v = &w->out->pack, .n = &w->out->npack } };
	struct feed feed = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };
	feed_start(&feed, w);
	const struct store_content c = { .read = read_pack, .emit = emit_piece, .ctx = &s };
	int r = store_put_stream(w->opt->session, &c, err);
	feed_end(&feed);
	if (r < 0)
		return r;
	w->out->pack_bytes = s.len;
	w->out->objects = w->n;
	memcpy(w->out->name, w->trailer, SHA1_BYTES);
	return put_idx(w, err);
}

/* One pack of the objects of these types that are marked; none when there are none. */
static int write_pack(struct pack_set *set, struct src *s, const uint8_t *mark,
		      struct gains *g, const struct checkout_options *opt,
		      const struct checkout_spec *spec,
		      const enum git_type *types, size_t ntypes, struct err *err)
{
	struct pack_out out = { .promisor = spec->nscopes > 0 };
	struct writer w = { .src = s, .opt = opt, .mark = mark, .gains = g, .out = &out,
			    .types = types, .ntypes = ntypes, .window_fd = -1 };
	int r = count_wanted(&w, err);
	if (r == 0 && w.count > 0)
		r = write_stream(&w, err);
	if (r == 0 && w.count > 0)
		r = pack_set_add(set, &out, err);
	pack_out_done(&out);
	whole_done(&w.whole);
	free(w.entries);
	free(w.entry_of);
	free(w.window);
	EVP_MD_CTX_free(w.sha);
	return r;
}

void pack_set_done(struct pack_set *s)
{
	for (size_t i = 0; i < s->npacks; i++)
		pack_out_done(&s->packs[i]);
	for (size_t i = 0; i < s->ntags; i++)
		free(s->tags[i].name);
	free(s->packs);
	free(s->tags);
	free(s->shallow);
	*s = (struct pack_set){ 0 };
}

/* All but tags: what is told to lie in another image's packs is taken from there. */
static int write_history(struct pack_set *set, struct src *s, const uint8_t *mark, struct notes *n,
			 const struct checkout_options *opt, const struct checkout_spec *spec,
			 struct err *err)
{
	static const enum git_type types[] = { GIT_COMMIT, GIT_TREE, GIT_BLOB };
	int r = n->told.npacks ? pack_part(set, &n->told, s, mark, opt, spec, err) : 0;
	if (r != 0)
		return r < 0 ? r : 0;
	return write_pack(set, s, mark, &n->made, opt, spec, types, 3, err);
}

int pack_write(struct pack_set *out, const struct checkout_options *opt,
	       const struct checkout_spec *spec, struct err *err)
{
	static const enum git_type tags[] = { GIT_TAG };
	struct pack_set set = { 0 };
	struct src s;
	int r = src_open(&s, opt->mirror, opt->io, err);
	if (r < 0)
		return err_prefix(err, r, "open the mirror's objects");
	auto_free uint8_t *mark = calloc((size_t)s.total + 1, 1);
	struct notes notes = { 0 };
	gains_init(&notes.made, &s, spec->nscopes > 0);
	if (spec->depth)
		gains_off(&notes.made); /* no older commit has all of a part */
	r = mark ? reach_mark(&set, mark, &notes, &s, opt, spec, err) : err_no_memory(err);
	if (r == 0)
		r = write_history(&set, &s, mark, &notes, opt, spec, err);
	if (r == 0)
		r = write_pack(&set, &s, mark, NULL, opt, spec, tags, 1, err);
	gains_off(&notes.made);
	cover_done(&notes.told);
	src_close(&s);
	if (r < 0) {
		pack_set_done(&set);
		return r;
	}
	*out = set;
	return 0;
}
