/* A pack that is a part of another image's: of a commit whose history is told by a newer one's
 * notes (pack_older.c). All of it lies in that image's packs, near to its tip nearly as it will lie
 * here. So they are gone through in their order, and what is wanted stays as it is: where that is
 * a whole object of the store, this pack has the same one, which nobody cuts, hashes or writes.
 * An object with a byte of anything else isn't referred to: what is wanted of it is put anew. A
 * delta gets a new header where bytes between it and its base were left out, and is written whole
 * where its base isn't wanted.
 *
 * Those packs were checked as they were made, and the store checks what it gives; the pack's own
 * checksum is what needs each byte. */
#include <libdeflate.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <unistd.h>

#include "gitops/pack_impl.h"

enum {
	OWN_BYTES = 1 << 20, /* that are put at once */
	AHEAD = 4,           /* pieces that are read before they are needed */
	TELL_EVERY = 8 << 20,
	PACK_VERSION_2 = 2,
};

struct part {
	struct src *src;
	const struct checkout_options *opt;
	const uint8_t *mark;
	struct cover *from;
	struct pack_out out;
	struct pieces pieces;
	struct whole whole;
	EVP_MD_CTX *sha;
	uint64_t pos;   /* so many bytes there are */
	struct buf own; /* the last of them, which aren't put yet */
	uint64_t bytes, told; /* of all packs of `from`; when progress is told again */
	struct idx_entry *entries;
	uint32_t count, n; /* how many there will be, and are */
	uint64_t *done;    /* a bit for each object that has come */

	/* The pack that is gone through. All of it is by place, so that memory is read in order. */
	struct lent *lent;
	uint64_t *wanted;  /* a bit for each entry */
	uint64_t *to;      /* where they begin here; 0: they don't; ANEW: `anew` has the rest */
	struct anew *anew; /* in order of place */
	size_t nanew, anew_cap;
	uint64_t run, end; /* what is taken as it lies, but doesn't count in `pos` yet */
	struct ahead *ahead;
	/* Two pieces of it that follow each other: the even one and the odd one. */
	struct held {
		size_t piece;
		const struct blob *blob;
	} held[2];
};

/* Entries that aren't as they lie there have another checksum. */
#define ANEW (UINT64_C(1) << 63)
struct anew {
	uint32_t place, crc;
};

static bool has_bit(const uint64_t *bits, uint32_t i)
{
	return bits[i / 64] >> i % 64 & 1;
}

static void set_bit(uint64_t *bits, uint32_t i)
{
	bits[i / 64] |= UINT64_C(1) << i % 64;
}

static uint64_t *new_bits(size_t n)
{
	return calloc(n / 64 + 1, sizeof(uint64_t));
}

/* ---- reading ahead ---- */

/* A thread that has the store read the next pieces, of which its cache then has the content, while
 * the last ones are looked at and hashed. */
struct ahead {
	struct store *store;
	const struct piece *pieces;
	size_t n;
	pthread_t thread;
	bool on;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	size_t now; /* which is looked at; under the lock, as `stop` */
	bool stop;
};

/* The next one to be read, behind the k-th; n: that was all. */
static size_t ahead_next(struct ahead *a, size_t k)
{
	pthread_mutex_lock(&a->lock);
	while (!a->stop && k + 1 > a->now + AHEAD)
		pthread_cond_wait(&a->moved, &a->lock);
	k = a->stop ? a->n : k < a->now ? a->now + 1 : k + 1;
	pthread_mutex_unlock(&a->lock);
	return k;
}

static void *ahead_run(void *arg)
{
	struct ahead *a = arg;
	for (size_t k = 0; k < a->n; k = ahead_next(a, k)) {
		const struct blob *b = NULL;
		/* Who needs it is told of a failure. */
		(void)store_get(a->store, &a->pieces[k].object, &b, NULL);
		blob_put(b);
	}
	return NULL;
}

static void ahead_start(struct ahead *a, struct store *store, const struct lent *l)
{
	*a = (struct ahead){ .store = store,
			     .pieces = l->pieces,
			     .n = l->npieces,
			     .lock = PTHREAD_MUTEX_INITIALIZER,
			     .moved = PTHREAD_COND_INITIALIZER };
	if (a->n > AHEAD && sysconf(_SC_NPROCESSORS_ONLN) > 1)
		a->on = pthread_create(&a->thread, NULL, ahead_run, a) == 0;
}

static void ahead_tell(struct ahead *a, size_t now, bool stop)
{
	if (!a->on)
		return;
	pthread_mutex_lock(&a->lock);
	a->now = now;
	a->stop = stop;
	pthread_cond_signal(&a->moved);
	pthread_mutex_unlock(&a->lock);
}

static void ahead_end(struct ahead *a)
{
	ahead_tell(a, 0, true);
	if (a->on)
		(void)pthread_join(a->thread, NULL); /* ours, joined once */
}

/* ---- the other pack's bytes ---- */

/* What can't be had there is had from the mirror: -ESTALE, without words. */
static int of_no_use(int r, struct err *err)
{
	return r == -ENOMEM ? err_no_memory(err) : -ESTALE;
}

static size_t piece_of(const struct part *w, uint64_t off)
{
	const struct piece *v = w->lent->pieces;
	for (size_t i = 0; i < 2; i++) {
		const struct piece *x = &v[w->held[i].piece];
		if (w->held[i].blob && off >= x->off && off - x->off < x->len)
			return w->held[i].piece;
	}
	size_t lo = 0, hi = w->lent->npieces;
	while (hi - lo > 1) {
		size_t mid = lo + (hi - lo) / 2;
		*(v[mid].off <= off ? &lo : &hi) = mid;
	}
	return lo;
}

static void let_go(struct part *w)
{
	for (size_t i = 0; i < 2; i++)
		blob_put(w->held[i].blob);
	memset(w->held, 0, sizeof(w->held));
}

/* The object of the i-th piece, which has all of it. It stays until another even or odd one. */
static int hold(struct part *w, size_t i, const struct blob **out, struct err *err)
{
	const struct piece *x = &w->lent->pieces[i];
	struct held *h = &w->held[i % 2];
	if (!h->blob || h->piece != i) {
		blob_put(h->blob);
		h->blob = NULL;
		ahead_tell(w->ahead, i, false);
		int r = store_get(w->opt->store, &x->object, &h->blob, NULL);
		if (r < 0)
			return of_no_use(r, err);
		h->piece = i;
	}
	if (x->obj_off > h->blob->len || x->len > h->blob->len - x->obj_off)
		return -ESTALE;
	*out = h->blob;
	return 0;
}

/* Bytes at `off`, which is inside: at least one; at most *n, of which there are that many. */
static int bytes_at(struct part *w, uint64_t off, const uint8_t **p, uint64_t *n, struct err *err)
{
	const struct blob *b;
	size_t i = piece_of(w, off);
	const struct piece *x = &w->lent->pieces[i];
	int r = hold(w, i, &b, err);
	if (r < 0)
		return r;
	*p = b->data + x->obj_off + (off - x->off);
	if (*n > x->len - (off - x->off))
		*n = x->len - (off - x->off);
	return 0;
}

static int read_head(struct part *w, uint32_t place, uint8_t head[GIT_ENTRY_HEAD_MAX], size_t *len,
		     struct err *err)
{
	const struct src_pack *p = &w->lent->pack;
	uint64_t off = p->starts[place], room = p->starts[place + 1] - off;
	uint64_t want = room < GIT_ENTRY_HEAD_MAX ? room : GIT_ENTRY_HEAD_MAX;
	for (*len = 0; *len < want;) {
		const uint8_t *data;
		uint64_t n = want - *len;
		int r = bytes_at(w, off + *len, &data, &n, err);
		if (r < 0)
			return r;
		memcpy(head + *len, data, (size_t)n);
		*len += (size_t)n;
	}
	return 0;
}

/* ---- the new pack's ---- */

static int put_own(struct part *w, struct err *err)
{
	if (buf_error(&w->own) < 0)
		return err_no_memory(err);
	uint64_t at = w->pos - w->own.len;
	int r = pieces_put(&w->pieces, at, w->own.data, w->own.len, w->opt->session, err);
	buf_reset(&w->own);
	return r;
}

static int tell(struct part *w, struct err *err)
{
	const struct checkout_options *o = w->opt;
	if (!o->progress || w->pos < w->told)
		return 0;
	w->told = w->pos + TELL_EVERY;
	if (o->progress(o->progress_ctx, w->pos, w->bytes, "writing the history") != 0)
		return err_set(err, -ECANCELED, "cancelled");
	return 0;
}

static int count_in(struct part *w, const void *p, size_t n, struct err *err)
{
	w->pos += n;
	if (EVP_DigestUpdate(w->sha, p, n) != 1)
		return err_set(err, -EIO, "SHA-1 failed");
	return tell(w, err);
}

static int add_own(struct part *w, const void *p, size_t n, struct err *err)
{
	int r = count_in(w, p, n, err);
	buf_add(&w->own, p, n);
	if (r == 0 && w->own.len >= OWN_BYTES)
		r = put_own(w, err);
	return r;
}

/* Takes the run's bytes up to `end`, all of the i-th piece. */
static int take_bytes(struct part *w, size_t i, uint64_t end, struct err *err)
{
	const struct piece *x = &w->lent->pieces[i];
	const struct blob *b;
	int r = hold(w, i, &b, err);
	if (r < 0)
		return r;
	const uint8_t *p = b->data + x->obj_off + (w->run - x->off);
	size_t n = (size_t)(end - w->run);
	w->run = end;
	if (n < b->len) /* or it would have bytes that may not be here */
		return add_own(w, p, n, err);
	r = put_own(w, err);
	if (r == 0)
		r = pieces_add(&w->pieces, w->pos, x->len, &x->object, err);
	return r == 0 ? count_in(w, p, n, err) : r;
}

/* Takes the run, but what it may go on with: where `all` is false only whole pieces. */
static int take_run(struct part *w, bool all, struct err *err)
{
	int r = 0;
	while (r == 0 && w->run < w->end) {
		size_t i = piece_of(w, w->run);
		uint64_t end = w->lent->pieces[i].off + w->lent->pieces[i].len;
		if (w->end < end && !all)
			break;
		r = take_bytes(w, i, w->end < end ? w->end : end, err);
	}
	return r;
}

/* These bytes of the other pack are next. */
static int add_run(struct part *w, uint64_t from, uint64_t end, struct err *err)
{
	int r = 0;
	if (w->end != from) {
		r = take_run(w, true, err);
		w->run = from;
	}
	w->end = end;
	return r < 0 ? r : take_run(w, false, err);
}

/* ---- entries ---- */

struct entry {
	uint32_t place;
	uint64_t off, len;
	struct git_entry head;
};

static int read_entry(struct part *w, uint32_t place, struct entry *e, struct err *err)
{
	const struct src_pack *p = &w->lent->pack;
	uint8_t head[GIT_ENTRY_HEAD_MAX];
	size_t n;
	int r = read_head(w, place, head, &n, err);
	*e = (struct entry){ .place = place, .off = p->starts[place] };
	e->len = p->starts[place + 1] - e->off;
	if (r == 0 && (git_entry_decode(&e->head, head, n) < 0 || e->len <= e->head.head))
		r = -ESTALE;
	return r;
}

/* Where its base lies; OBJ_NONE: it has none. -ESTALE. */
static int base_of(const struct part *w, const struct entry *e, uint32_t *base)
{
	const struct src_pack *p = &w->lent->pack;
	*base = OBJ_NONE;
	if (e->head.type == GIT_OFS_DELTA && e->head.back && e->head.back < e->off) {
		*base = src_find_place(p, e->place, e->off - e->head.back);
	} else if (e->head.type == GIT_REF_DELTA) {
		uint32_t pos = src_find_in(p, e->head.base.b);
		*base = pos == OBJ_NONE ? OBJ_NONE : p->place[pos];
	} else if (e->head.type != GIT_OFS_DELTA) {
		return 0;
	}
	return *base == OBJ_NONE ? -ESTALE : 0;
}

enum way { AS_IT_LIES, MOVED, WHOLE };

/* How an entry gets here that will begin at `at`; of a moved one *to is where its base does. */
static enum way way_of(const struct part *w, const struct entry *e, uint32_t base, uint64_t at,
		       uint64_t *to)
{
	if (base == OBJ_NONE)
		return AS_IT_LIES;
	if (!has_bit(w->wanted, base))
		return WHOLE;
	if (e->head.type == GIT_REF_DELTA)
		return AS_IT_LIES;
	*to = w->to[base] & ~ANEW;
	return at - *to == e->off - w->lent->pack.starts[base] ? AS_IT_LIES : MOVED;
}

static int add_moved(struct part *w, const struct entry *e, uint64_t back, uint32_t *crc,
		     struct err *err)
{
	uint8_t head[GIT_ENTRY_HEAD_MAX];
	unsigned len = entry_put_size(head, GIT_OFS_DELTA, e->head.size);
	len += entry_put_back(head + len, back);
	int r = take_run(w, true, err);
	if (r == 0)
		r = add_own(w, head, len, err);
	*crc = libdeflate_crc32(0, head, len);
	uint64_t from = e->off + e->head.head, end = e->off + e->len;
	for (uint64_t n, off = from; r == 0 && off < end; off += n) {
		const uint8_t *p;
		n = end - off;
		r = bytes_at(w, off, &p, &n, err);
		if (r == 0)
			*crc = libdeflate_crc32(*crc, p, (size_t)n);
	}
	return r < 0 ? r : add_run(w, from, end, err);
}

static int add_whole(struct part *w, const struct entry *e, uint32_t *crc, struct err *err)
{
	const struct src_pack *p = &w->lent->pack;
	uint64_t len;
	int r = take_run(w, true, err);
	if (r == 0)
		r = whole_make(&w->whole, w->src, w->from->src[p->first + p->order[e->place]], &len,
			       err);
	if (r < 0)
		return r;
	*crc = libdeflate_crc32(0, w->whole.data, (size_t)len);
	return add_own(w, w->whole.data, (size_t)len, err);
}

static int add_anew(struct part *w, const struct entry *e, enum way way, uint64_t back,
		    struct err *err)
{
	struct anew a = { .place = e->place };
	int r = way == MOVED ? add_moved(w, e, back, &a.crc, err) : add_whole(w, e, &a.crc, err);
	if (r < 0)
		return r;
	if (array_grow(&w->anew, w->nanew, &w->anew_cap) < 0)
		return err_no_memory(err);
	w->anew[w->nanew++] = a;
	return 0;
}

static int add_entry(struct part *w, uint32_t place, struct err *err)
{
	struct entry e;
	uint32_t base = OBJ_NONE;
	uint64_t at = w->pos + (w->end - w->run), to = 0;
	int r = read_entry(w, place, &e, err);
	if (r == 0)
		r = base_of(w, &e, &base);
	if (r < 0)
		return r;
	enum way way = way_of(w, &e, base, at, &to);
	r = way == AS_IT_LIES ? add_run(w, e.off, e.off + e.len, err)
			      : add_anew(w, &e, way, at - to, err);
	w->to[place] = way == AS_IT_LIES ? at : at | ANEW;
	return r;
}

/* Notes which entries are wanted, of objects that haven't come before. */
static void note_wanted(struct part *w)
{
	const struct src_pack *p = &w->lent->pack;
	for (uint32_t pos = 0; pos < p->n; pos++) {
		uint32_t obj = w->from->src[p->first + pos];
		if (!mark_wants(w->mark[obj]) || has_bit(w->done, obj))
			continue;
		set_bit(w->done, obj);
		set_bit(w->wanted, p->place[pos]);
	}
}

static int by_place(const void *a, const void *b)
{
	uint32_t x = ((const struct anew *)a)->place, y = ((const struct anew *)b)->place;
	return (x > y) - (x < y);
}

/* The entries that came, for the index: in order of ids. */
static void note_entries(struct part *w)
{
	const struct src_pack *p = &w->lent->pack;
	for (uint32_t pos = 0; pos < p->n; pos++) {
		struct anew key = { .place = p->place[pos] };
		uint64_t to = w->to[key.place];
		if (!to)
			continue;
		uint32_t crc = be_get32(p->crcs + (size_t)pos * 4);
		if (to & ANEW)
			crc = ((const struct anew *)bsearch(&key, w->anew, w->nanew, sizeof(key),
							    by_place))
				      ->crc;
		w->entries[w->n++] =
			(struct idx_entry){ to & ~ANEW, w->from->src[p->first + pos], crc };
	}
}

static int go_through(struct part *w, struct err *err)
{
	const struct src_pack *p = &w->lent->pack;
	struct ahead ahead;
	int r = 0;
	w->run = w->end = 0;
	w->nanew = 0;
	note_wanted(w);
	w->ahead = &ahead;
	ahead_start(&ahead, w->opt->store, w->lent);
	for (uint32_t i = 0; i < p->n && r == 0; i++)
		if (has_bit(w->wanted, i))
			r = add_entry(w, i, err);
	if (r == 0)
		r = take_run(w, true, err);
	if (r == 0)
		note_entries(w);
	ahead_end(&ahead);
	let_go(w);
	return r;
}

static int add_entries(struct part *w, struct lent *l, struct err *err)
{
	const struct src_pack *p = &l->pack;
	if (p->size < GIT_PACK_HEAD + SHA1_BYTES)
		return -ESTALE;
	int r = src_pack_order(&l->pack, NULL);
	if (r < 0)
		return of_no_use(r, err);
	w->lent = l;
	w->wanted = new_bits(p->n);
	w->to = calloc((size_t)p->n + 1, sizeof(*w->to));
	r = w->wanted && w->to ? go_through(w, err) : err_no_memory(err);
	free(steal_ptr(&w->wanted));
	free(steal_ptr(&w->to));
	return r;
}

/* ---- the whole ---- */

static int add_pack_head(struct part *w, struct err *err)
{
	uint8_t head[GIT_PACK_HEAD] = "PACK";
	be_put32(head + 4, PACK_VERSION_2);
	be_put32(head + 8, w->count);
	return add_own(w, head, sizeof(head), err);
}

static int add_trailer(struct part *w, struct err *err)
{
	if (EVP_DigestFinal_ex(w->sha, w->out.name, NULL) != 1)
		return err_set(err, -EIO, "SHA-1 failed");
	buf_add(&w->own, w->out.name, SHA1_BYTES);
	w->pos += SHA1_BYTES;
	w->out.pack_bytes = w->pos;
	w->out.objects = w->n;
	return put_own(w, err);
}

static int write_all(struct part *w, struct err *err)
{
	int r = add_pack_head(w, err);
	for (size_t i = 0; i < w->from->npacks && r == 0; i++)
		r = add_entries(w, &w->from->packs[i], err);
	if (r == 0 && w->n != w->count)
		r = -ESTALE;
	if (r == 0)
		r = add_trailer(w, err);
	if (r < 0)
		return r;
	return pack_put_idx(&w->out, w->src, w->entries, w->n, w->opt->session, err);
}

static int part_begin(struct part *w, struct err *err)
{
	for (uint32_t obj = 0; obj < w->src->total; obj++)
		w->count += mark_wants(w->mark[obj]);
	for (size_t i = 0; i < w->from->npacks; i++)
		w->bytes += w->from->packs[i].pack.size;
	w->entries = calloc((size_t)w->count + 1, sizeof(*w->entries));
	w->done = new_bits(w->src->total);
	w->sha = EVP_MD_CTX_new();
	if (!w->entries || !w->done || !w->sha)
		return err_no_memory(err);
	if (EVP_DigestInit_ex(w->sha, EVP_sha1(), NULL) != 1)
		return err_set(err, -EIO, "SHA-1 isn't there");
	return 0;
}

int pack_part(struct pack_set *set, struct cover *from, struct src *s, const uint8_t *mark,
	      const struct checkout_options *opt, const struct checkout_spec *spec,
	      struct err *err)
{
	struct part w = { .src = s, .opt = opt, .mark = mark, .from = from,
			  .out = { .promisor = spec->nscopes > 0 } };
	w.pieces = (struct pieces){ .v = &w.out.pack, .n = &w.out.npack };
	int r = part_begin(&w, err);
	if (r == 0 && w.count > 0)
		r = write_all(&w, err);
	if (r == 0 && w.count > 0)
		r = pack_set_add(set, &w.out, err);
	pack_out_done(&w.out);
	whole_done(&w.whole);
	buf_done(&w.own);
	free(w.entries);
	free(w.done);
	free(w.anew);
	EVP_MD_CTX_free(w.sha);
	return r == -ESTALE ? 0 : r < 0 ? r : 1;
}
