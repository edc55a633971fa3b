#include "gitops/refs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"

void refs_done(struct refs *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->v[i].name);
	free(r->v);
	*r = (struct refs){ 0 };
}

int refs_add(struct refs *r, const char *name, const struct oid *oid)
{
	if (r->n >= REFS_MAX)
		return -E2BIG;
	if (array_grow(&r->v, r->n, &r->cap) < 0)
		return -ENOMEM;
	char *copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	r->v[r->n++] = (struct ref){ copy, *oid };
	return 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct ref *)a)->name, ((const struct ref *)b)->name);
}

void refs_sort(struct refs *r)
{
	if (r->n > 0)
		qsort(r->v, r->n, sizeof(*r->v), compare);
}

const struct ref *refs_find(const struct refs *r, const char *name)
{
	const struct ref key = { .name = (char *)(uintptr_t)name };
	return r->n > 0 ? bsearch(&key, r->v, r->n, sizeof(*r->v), compare) : NULL;
}

static bool part_ok(const char *s, size_t n)
{
	if (n == 0 || s[0] == '.' || (n >= 5 && memcmp(s + n - 5, ".lock", 5) == 0))
		return false;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		if (c <= ' ' || c == 0x7f || strchr("~^:?*[\\", c))
			return false;
		if (i + 1 < n && ((c == '.' && s[i + 1] == '.') || (c == '@' && s[i + 1] == '{')))
			return false;
	}
	return s[n - 1] != '.';
}

bool ref_name_ok(const char *name)
{
	if (strncmp(name, "refs/", 5) != 0 || strlen(name) >= REF_NAME_SIZE)
		return false;
	for (const char *p = name;; p++) {
		size_t n = strcspn(p, "/");
		if (!part_ok(p, n))
			return false;
		p += n;
		if (!*p)
			return true;
	}
}

bool branch_name_ok(const char *branch)
{
	char name[REF_NAME_SIZE];
	int n = snprintf(name, sizeof(name), REFS_ORIGIN "%s", branch); /* the longest */
	if (n < 0 || n >= (int)sizeof(name) || !ref_name_ok(name) || branch[0] == '-' ||
	    strcmp(branch, "HEAD") == 0 || strncmp(branch, "refs/", 5) == 0)
		return false;
	for (const char *p = branch; *p; p += *p == '/') {
		size_t part = strcspn(p, "/");
		if (part + strlen(".lock") > NAME_MAX)
			return false;
		p += part;
	}
	return true;
}

/* ---- packed-refs ---- */

/* "<40 hex> <name>". */
static int parse_line(struct refs *out, const char *line, size_t n)
{
	char hex[OID_HEX + 1], name[REF_NAME_SIZE];
	struct oid oid;
	if (n <= OID_HEX + 1 || line[OID_HEX] != ' ' || n - OID_HEX - 1 >= sizeof(name))
		return -EBADMSG;
	memcpy(hex, line, OID_HEX);
	hex[OID_HEX] = '\0';
	memcpy(name, line + OID_HEX + 1, n - OID_HEX - 1);
	name[n - OID_HEX - 1] = '\0';
	if (oid_parse(&oid, hex) < 0 || strlen(name) != n - OID_HEX - 1 || !ref_name_ok(name))
		return -EBADMSG;
	int r = refs_add(out, name, &oid);
	return r == -E2BIG ? -EBADMSG : r;
}

int packed_refs_parse(struct refs *out, const void *data, size_t len)
{
	auto_refs refs = { 0 };
	const char *p = data, *end = p + len;
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl)
			return -EBADMSG; /* a file that was cut */
		size_t n = (size_t)(nl - p);
		/* '#': its traits; '^': what the tag above it names. */
		int r = n > 0 && *p != '#' && *p != '^' ? parse_line(&refs, p, n) : 0;
		if (r < 0)
			return r;
		p = nl + 1;
	}
	refs_sort(&refs);
	for (size_t i = 1; i < refs.n; i++)
		if (strcmp(refs.v[i - 1].name, refs.v[i].name) == 0)
			return -EBADMSG;
	*out = refs;
	refs = (struct refs){ 0 };
	return 0;
}

void packed_refs_write(struct buf *out, const struct refs *r)
{
	buf_printf(out, "# pack-refs with: sorted \n");
	for (size_t i = 0; i < r->n; i++) {
		char hex[OID_HEX + 1];
		oid_hex(hex, &r->v[i].oid);
		buf_printf(out, "%s %s\n", hex, r->v[i].name);
	}
}

/* ---- what a fetch makes of them ---- */

struct merging {
	struct refs *out, *moves, *from;
	const struct refs *mine, *theirs;
	const struct refs_merge *m;
};

static bool is_theirs(const char *name)
{
	return strncmp(name, REFS_ORIGIN, sizeof(REFS_ORIGIN) - 1) == 0 ||
	       strncmp(name, REFS_TAGS, sizeof(REFS_TAGS) - 1) == 0;
}

/* refs/remotes/origin/X as refs/heads/X; false: it is none, or too long. */
static bool head_name(char out[REF_NAME_SIZE], const char *name)
{
	if (strncmp(name, REFS_ORIGIN, sizeof(REFS_ORIGIN) - 1) != 0)
		return false;
	int n = snprintf(out, REF_NAME_SIZE, "%s%s", REFS_HEADS, name + sizeof(REFS_ORIGIN) - 1);
	return n > 0 && n < REF_NAME_SIZE;
}

static int note_move(struct merging *g, const char *name, const struct oid *from,
		     const struct oid *to)
{
	static const struct oid gone;
	int r = refs_add(g->from, name, from);
	return r < 0 ? r : refs_add(g->moves, name, to ? to : &gone);
}

/* Whether our branch may follow to `to` (NULL: the other side's is gone) from `was`, its last
 * known value there (NULL: none). */
static bool follows(const struct merging *g, const struct oid *ours, const struct oid *was,
		    const struct oid *to)
{
	if (was && memcmp(ours, was, sizeof(*ours)) == 0)
		return true;
	return to && g->m->descends(g->m->ctx, to, ours);
}

static int merge_head(struct merging *g, const char *name, const struct oid *was,
		      const struct oid *to)
{
	struct oid loose;
	int r = g->m->loose(g->m->ctx, name, &loose);
	const struct ref *packed = refs_find(g->mine, name);
	if (r < 0)
		return r;
	if (r > 0) {
		/* What is packed below it isn't seen. */
		bool same = to && memcmp(&loose, to, sizeof(loose)) == 0;
		if (!same && follows(g, &loose, was, to) &&
		    (r = note_move(g, name, &loose, to)) < 0)
			return r;
		return packed ? refs_add(g->out, name, &packed->oid) : 0;
	}
	if (!packed)
		return to ? refs_add(g->out, name, to) : 0;
	if (follows(g, &packed->oid, was, to))
		return to ? refs_add(g->out, name, to) : 0;
	return refs_add(g->out, name, &packed->oid);
}

static int merge_theirs(struct merging *g, uint64_t *changed)
{
	char head[REF_NAME_SIZE];
	for (size_t i = 0; i < g->theirs->n; i++) {
		const struct ref *now = &g->theirs->v[i], *was = refs_find(g->mine, now->name);
		int r = is_theirs(now->name) ? refs_add(g->out, now->name, &now->oid) : -EBADMSG;
		if (r >= 0 && head_name(head, now->name))
			r = merge_head(g, head, was ? &was->oid : NULL, &now->oid);
		if (r < 0)
			return r;
		*changed += !was || memcmp(&was->oid, &now->oid, sizeof(now->oid)) != 0;
	}
	return 0;
}

static int merge_mine(struct merging *g, uint64_t *changed)
{
	char name[REF_NAME_SIZE];
	for (size_t i = 0; i < g->mine->n; i++) {
		const struct ref *ref = &g->mine->v[i];
		int r = 0;
		if (is_theirs(ref->name)) {
			if (refs_find(g->theirs, ref->name))
				continue;
			++*changed;
			r = head_name(name, ref->name) ? merge_head(g, name, &ref->oid, NULL) : 0;
		} else if (strncmp(ref->name, REFS_HEADS, sizeof(REFS_HEADS) - 1) == 0) {
			/* With a branch there, now or before, it was dealt with. */
			int n = snprintf(name, sizeof(name), "%s%s", REFS_ORIGIN,
					 ref->name + sizeof(REFS_HEADS) - 1);
			bool known = n > 0 && n < (int)sizeof(name) &&
				     (refs_find(g->theirs, name) || refs_find(g->mine, name));
			r = known ? 0 : refs_add(g->out, ref->name, &ref->oid);
		} else {
			r = refs_add(g->out, ref->name, &ref->oid);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

int refs_merge(struct refs *out, struct refs *moves, struct refs *from, uint64_t *changed,
	       const struct refs *mine, const struct refs *theirs, const struct refs_merge *m,
	       struct err *err)
{
	auto_refs o = { 0 }, mv = { 0 }, fr = { 0 };
	struct merging g = { &o, &mv, &fr, mine, theirs, m };
	uint64_t n = 0;
	int r = merge_theirs(&g, &n);
	if (r >= 0)
		r = merge_mine(&g, &n);
	if (r == -E2BIG)
		return err_set(err, r, "more than %d refs", REFS_MAX);
	if (r < 0)
		return err_sys(err, r, "merge refs");
	refs_sort(&o);
	*out = o;
	*moves = mv;
	*from = fr;
	*changed = n;
	o = mv = fr = (struct refs){ 0 };
	return 0;
}
