/* What the history of a commit holds that is part of another one's: told by that one's notes
 * (pack_gain.c), without a look at most trees. */
#include "gitops/pack_reach.h"

/* A history that is part of another one, whose notes tell what is in it. */
struct older {
	struct cover c;
	uint32_t *commits; /* the nearest first */
	size_t n;
	bool *has; /* by commit */
};

/* Its commits. -ESTALE: one of them isn't there. */
static int older_commits(struct older *o)
{
	o->has = calloc(o->c.n, sizeof(*o->has));
	o->commits = calloc(o->c.n, sizeof(*o->commits));
	if (!o->has || !o->commits)
		return -ENOMEM;
	o->has[o->c.tip] = true;
	o->commits[o->n++] = o->c.tip;
	for (size_t i = 0; i < o->n; i++) {
		struct gain_record g;
		if (cover_record(&g, &o->c, o->commits[i]) < 0)
			return -ESTALE;
		for (uint32_t j = 0; j < g.nparents; j++) {
			if (!o->has[g.parents[j]])
				o->commits[o->n++] = g.parents[j];
			o->has[g.parents[j]] = true;
		}
	}
	return 0;
}

/* The nearest known commit that is one of them lends its packs. */
static int take_nearest(struct reach *r, const struct older *o)
{
	int k = 0;
	auto_free uint32_t *known = calloc(r->opt->nknown + 1, sizeof(*known));
	if (!known)
		return reach_no_memory(r);
	for (size_t j = 0; j < r->opt->nknown; j++)
		known[j] = src_find(r->src, &r->opt->known[j].commit);
	for (size_t i = 0; i < o->n && k == 0; i++)
		for (size_t j = 0; j < r->opt->nknown && k == 0; j++)
			if (known[j] == o->c.src[o->commits[i]])
				k = reach_take(r, known[j], &r->opt->known[j]);
	return k < 0 ? k : 0;
}

/* The i-th gain of a record, its object by number in the mirror. */
static void read_gain(const struct cover *c, const struct gain_record *g, uint32_t i, uint32_t *obj,
		      uint32_t *flags, uint16_t *state)
{
	uint32_t v = g->gains[c->scoped ? 2 * (size_t)i : i];
	*obj = c->src[v & GAIN_OBJ];
	*flags = v & ~GAIN_OBJ;
	*state = c->scoped ? (uint16_t)g->gains[2 * (size_t)i + 1] : STATE_IN;
}

/* What that commit brings, but for what another one was noted with. */
static int mark_gains(struct reach *r, const struct cover *c, const struct gain_record *g)
{
	for (uint32_t i = 0; i < g->count; i++) {
		uint32_t obj, flags;
		uint16_t state;
		read_gain(c, g, i, &obj, &flags, &state);
		if (flags & GAIN_AGAIN)
			continue;
		reach_include(r, obj, flags & GAIN_TREE ? GIT_TREE : GIT_BLOB);
		int k = flags & GAIN_TREE ? reach_visit(r, obj, state) : 0;
		if (k < 0)
			return k;
	}
	return 0;
}

/* The rest of it. */
static int mark_again(struct reach *r, const struct cover *c, const struct gain_record *g)
{
	for (uint32_t i = 0; i < g->count; i++) {
		struct item it = { .like = { OBJ_NONE, OBJ_NONE } };
		uint32_t flags;
		read_gain(c, g, i, &it.tree, &flags, &it.state);
		int k = flags & GAIN_AGAIN ? reach_tree(r, &it) : 0;
		if (k < 0)
			return k;
	}
	return 0;
}

static int mark_older(struct reach *r, struct older *o)
{
	static int (*const steps[])(struct reach *, const struct cover *,
				    const struct gain_record *) = { mark_gains, mark_again };
	int k = older_commits(o);
	if (k < 0)
		return k == -ENOMEM ? reach_no_memory(r) : k;
	/* No notes are made of others: their order, and which trees are in them again, would tell
	 * of commits that this workspace may not know of. */
	gains_off(r->gains);
	for (size_t i = 0; i < o->n; i++)
		reach_include(r, o->c.src[o->commits[i]], GIT_COMMIT);
	k = take_nearest(r, o);
	for (size_t s = 0; s < 2; s++) {
		struct gain_record g;
		for (size_t at = 0; k == 0 && (at = cover_next(&g, &o->c, at)) > 0;)
			if (o->has[g.commit] && !reach_has(r, o->c.src[g.commit], MARK_KNOWN))
				k = steps[s](r, &o->c, &g);
	}
	return k;
}

int reach_older(struct reach *r)
{
	const struct checkout_options *opt = r->opt;
	int k = 0;
	for (size_t i = 0; i < opt->nknown && k == 0; i++) {
		struct older o = { 0 };
		k = known_cover(&o.c, &r->spec->commit, r->src, opt, r->spec, &opt->known[i],
				r->err);
		if (k == 1)
			k = mark_older(r, &o);
		else
			k = k < 0 ? k : -ESTALE;
		free(o.commits);
		free(o.has);
		k = k == -ESTALE ? 0 : k < 0 ? k : 1;
		if (k == 1) {
			r->out->told_by = i + 1;
			*r->told = o.c;
		} else {
			cover_done(&o.c);
		}
	}
	return k;
}
