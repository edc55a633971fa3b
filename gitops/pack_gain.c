/* What each commit of a history brings: what it has and its parents haven't. Summed up over a
 * commit's ancestors that is all its history holds, which else needs a look at every tree: so the
 * packs of a commit that is older than any known one are found in the notes of a newer one.
 *
 * Each pack that was made by a walk through trees has such notes beside it
 * (.git/bough/pack-<hex>.gains), which speak of that pack's commits, and of nothing but what is in
 * it and in those before it. They are proved by the image's name, as the packs are. A workspace
 * sees them, so they may tell nothing but what follows from its own history: one whose packs were
 * found in others' notes has none.
 *
 * A tree is walked through once, as the first commit brings it that comes in an order where parents
 * are before their children; records are in that order. Where a later commit brings it, too (it was
 * reverted, or made on two branches), it is noted as met again: whoever has that commit and not the
 * first one walks through it. So each tree has one first commit, which isn't later than any other
 * that has it, and what it leaves out since its parents have it is theirs, by induction. */
#include "gitops/pack_impl.h"

#include <assert.h>

enum {
	HEAD_WORDS = 4, /* magic (two), flags, words that follow */
	FLAG_SCOPED = 1,
	RECORD_HEAD = 3, /* commit, gains, parents */
	/* Hostile histories bring the same again and again; these go without. */
	WORDS_MORE = 1 << 20,
	WORDS_PER_OBJECT = 8,
};
static const uint32_t magic[2] = { 0x67756f42U, 0x6e614768U }; /* "BoughGan" */

/* ---- made ---- */

void gains_init(struct gains *g, const struct src *s, bool scoped)
{
	*g = (struct gains){ .scoped = scoped,
			     .max = (size_t)s->total * WORDS_PER_OBJECT + WORDS_MORE };
	g->number = s->total < GAIN_OBJ_MAX ? calloc((size_t)s->total + 1, sizeof(*g->number))
					    : NULL;
	g->on = g->number != NULL;
}

void gains_off(struct gains *g)
{
	free(g->words);
	free(g->number);
	*g = (struct gains){ .scoped = g->scoped };
}

static void put(struct gains *g, uint32_t word)
{
	if (g->on && (g->n >= g->max || array_grow(&g->words, g->n, &g->cap) < 0))
		gains_off(g);
	if (g->on)
		g->words[g->n++] = word;
}

void gains_begin(struct gains *g, uint32_t commit, const uint32_t *parents, uint32_t nparents)
{
	g->record = g->n;
	put(g, commit);
	put(g, 0);
	put(g, nparents);
	for (uint32_t i = 0; i < nparents; i++)
		put(g, parents[i]);
}

void gains_add(struct gains *g, uint32_t obj, uint32_t flags, uint16_t state)
{
	put(g, obj | flags);
	if (g->scoped)
		put(g, state);
	if (g->on)
		g->words[g->record + 1]++;
}

/* ---- bytes ---- */

/* The record at `at` and where it ends; 0: it doesn't. */
static size_t record_at(struct gain_record *out, const uint32_t *w, size_t n, size_t at,
			bool scoped)
{
	if (n - at < RECORD_HEAD)
		return 0;
	struct gain_record r = { .commit = w[at], .count = w[at + 1], .nparents = w[at + 2] };
	uint64_t len = RECORD_HEAD + (uint64_t)r.nparents + (uint64_t)r.count * (scoped ? 2 : 1);
	if (len > n - at)
		return 0;
	r.parents = w + at + RECORD_HEAD;
	r.gains = r.parents + r.nparents;
	*out = r;
	return at + (size_t)len;
}

void gains_append(struct gains *g, struct gains *more,
		  bool (*met)(void *ctx, uint32_t tree, uint16_t state), void *ctx)
{
	size_t step = g->scoped ? 2 : 1;
	struct gain_record r;
	if (!more->on)
		gains_off(g);
	for (size_t at = 0; g->on && at < more->n;) {
		at = record_at(&r, more->words, more->n, at, g->scoped);
		assert(at); /* as gains_begin and gains_add made it */
		gains_begin(g, r.commit, r.parents, r.nparents);
		for (size_t i = 0; i < r.count * step; i += step) {
			uint32_t v = r.gains[i];
			uint16_t state = g->scoped ? (uint16_t)r.gains[i + 1] : STATE_IN;
			bool again = v & GAIN_TREE && met(ctx, v & GAIN_OBJ, state);
			gains_add(g, v & GAIN_OBJ, (v & ~GAIN_OBJ) | (again ? GAIN_AGAIN : 0),
				  state);
		}
	}
}

static uint8_t *put_word(uint8_t *p, uint32_t word)
{
	le_put32(p, word);
	return p + sizeof(word);
}

int gains_encode(struct buf *out, const struct gains *g)
{
	size_t len = (HEAD_WORDS + g->n) * sizeof(uint32_t), step = g->scoped ? 2 : 1;
	uint8_t *p = buf_room(out, len);
	struct gain_record r;
	if (!p)
		return -ENOMEM;
	p = put_word(put_word(p, magic[0]), magic[1]);
	p = put_word(put_word(p, g->scoped ? FLAG_SCOPED : 0), (uint32_t)g->n);
	for (size_t at = 0; at < g->n;) {
		at = record_at(&r, g->words, g->n, at, g->scoped);
		assert(at); /* as gains_begin and gains_add made it */
		p = put_word(p, g->number[r.commit] - 1);
		p = put_word(put_word(p, r.count), r.nparents);
		for (uint32_t i = 0; i < r.nparents; i++)
			p = put_word(p, g->number[r.parents[i]] - 1);
		for (size_t i = 0; i < r.count * step; i++) {
			uint32_t v = r.gains[i];
			bool state = i % step; /* not a number */
			p = put_word(p, state ? v : (v & ~GAIN_OBJ) |
							    (g->number[v & GAIN_OBJ] - 1));
		}
	}
	out->len += len;
	return 0;
}

/* Every number in a record is one of the first n objects. */
static bool in_range(const struct gain_record *r, size_t n, bool scoped)
{
	bool good = r->commit < n;
	for (uint32_t i = 0; i < r->nparents; i++)
		good = good && r->parents[i] < n;
	for (uint32_t i = 0; i < r->count; i++)
		good = good && (r->gains[scoped ? 2 * (size_t)i : i] & GAIN_OBJ) < n;
	return good;
}

int cover_add(struct cover *c, const void *data, size_t len)
{
	struct cur in = cur_init(data, len);
	bool good = cur_u32(&in) == magic[0] && cur_u32(&in) == magic[1] &&
		    cur_u32(&in) == (c->scoped ? FLAG_SCOPED : 0);
	uint32_t n = cur_u32(&in);
	if (!good || in.bad || cur_left(&in) != (uint64_t)n * sizeof(uint32_t) ||
	    c->nwords + n >= UINT32_MAX)
		return -EBADMSG;
	uint32_t *more = reallocarray(c->words, c->nwords + n + 1, sizeof(*more));
	if (!more)
		return -ENOMEM;
	c->words = more;
	for (uint32_t i = 0; i < n; i++)
		more[c->nwords + i] = cur_u32(&in);
	size_t at = c->nwords;
	c->nwords += n;
	while (at < c->nwords) {
		struct gain_record r;
		at = record_at(&r, c->words, c->nwords, at, c->scoped);
		if (!at || !in_range(&r, c->n, c->scoped))
			return -EBADMSG;
	}
	return 0;
}

int cover_index(struct cover *c)
{
	struct gain_record r = { 0 };
	c->at = calloc(c->n + 1, sizeof(*c->at));
	if (!c->at)
		return -ENOMEM;
	for (size_t at = 0, end; at < c->nwords; at = end) {
		end = record_at(&r, c->words, c->nwords, at, c->scoped);
		if (c->at[r.commit])
			return -EBADMSG;
		c->at[r.commit] = (uint32_t)at + 1;
	}
	return 0;
}

size_t cover_next(struct gain_record *out, const struct cover *c, size_t at)
{
	return at < c->nwords ? record_at(out, c->words, c->nwords, at, c->scoped) : 0;
}

int cover_record(struct gain_record *out, const struct cover *c, uint32_t commit)
{
	if (!c->at[commit])
		return -EBADMSG;
	(void)record_at(out, c->words, c->nwords, c->at[commit] - 1, c->scoped); /* it is one */
	return 0;
}

void cover_done(struct cover *c)
{
	for (size_t i = 0; i < c->npacks; i++) {
		src_pack_free(&c->packs[i].pack);
		free(c->packs[i].pieces);
	}
	free(c->packs);
	free(c->src);
	free(c->words);
	free(c->at);
	*c = (struct cover){ 0 };
}
