#include "fs/work/tree_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/work/inos.h"

static int names_add(struct names *s, const struct dirent_ref *d)
{
	if (array_grow(&s->v, s->n, &s->cap) < 0)
		return -ENOMEM;
	struct name *n = malloc(sizeof(*n) + d->name_len);
	if (!n)
		return -ENOMEM;
	n->ino = d->ino;
	n->type = d->type;
	n->len = d->name_len;
	memcpy(n->text, d->name, d->name_len);
	s->v[s->n++] = n;
	return 0;
}

int names_all(struct names *s, const struct view *v, uint64_t dir)
{
	struct dirent_ref d;
	uint64_t next = 0;
	int r;
	while ((r = view_dirent_ceil(v, dir, next, &d)) >= 0) {
		r = names_add(s, &d);
		if (r < 0)
			return r;
		next = d.cookie + 1;
	}
	return r == -ENOENT ? 0 : r;
}

static int add_at(struct names *s, const struct view *v, uint64_t dir, uint64_t cookie)
{
	struct dirent_ref d;
	int r = view_dirent_ceil(v, dir, cookie, &d);
	if (r == -ENOENT || (r >= 0 && d.cookie != cookie))
		return 0;
	return r < 0 ? r : names_add(s, &d);
}

static int cookies_of(struct inos *cookies, const struct view *v, uint64_t dir, uint32_t nlayers)
{
	for (uint32_t i = 0; i < nlayers; i++) {
		uint64_t next = 0;
		const struct layer_dirent *d;
		while ((d = layer_dirent_ceil(v->layers[i], dir, next))) {
			int r = inos_add(cookies, d->cookie);
			if (r < 0)
				return r;
			next = d->cookie + 1;
		}
	}
	return 0;
}

int names_touched(struct names *x, struct names *y, const struct view *a, const struct view *b,
		  uint64_t dir, uint32_t common)
{
	auto_inos cookies = { 0 };
	int r = cookies_of(&cookies, a, dir, a->nlayers - common);
	if (r >= 0)
		r = cookies_of(&cookies, b, dir, b->nlayers - common);
	inos_sort(&cookies);
	for (size_t i = 0; i < cookies.n && r >= 0; i++) {
		r = add_at(x, a, dir, cookies.v[i]);
		if (r >= 0)
			r = add_at(y, b, dir, cookies.v[i]);
	}
	return r;
}

int name_compare(const struct name *a, const struct name *b)
{
	int c = memcmp(a->text, b->text, a->len < b->len ? a->len : b->len);
	return c ? c : (int)a->len - (int)b->len;
}

static int compare(const void *a, const void *b)
{
	return name_compare(*(struct name *const *)a, *(struct name *const *)b);
}

void names_sort(struct names *s)
{
	if (s->n > 1)
		qsort(s->v, s->n, sizeof(struct name *), compare);
}

void names_done(struct names *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i]);
	free(s->v);
	*s = (struct names){ 0 };
}
