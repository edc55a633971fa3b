#include "snapd/gitstat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "snapd/difftext.h"

enum { WIDTH = 80 };

/* "a/{b => c}/d": what both paths begin and end with, folder by folder, stands once. */
static void add_rename(struct buf *out, const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b), front = 0, back = 0;
	for (size_t i = 0; a[i] && a[i] == b[i]; i++)
		if (a[i] == '/')
			front = i + 1;
	/* The slash that ends the front may begin the back as well. */
	size_t least = front ? front - 1 : 0;
	for (size_t i = 1; na - i + 1 > least && nb - i + 1 > least && i <= na && i <= nb; i++) {
		if (a[na - i] != b[nb - i])
			break;
		if (a[na - i] == '/')
			back = i;
	}
	size_t ma = na > front + back ? na - front - back : 0;
	size_t mb = nb > front + back ? nb - front - back : 0;
	if (front + back == 0) {
		buf_printf(out, "%s => %s", a, b);
		return;
	}
	buf_printf(out, "%.*s{%.*s => %.*s}%s", (int)front, a, (int)ma, a + front, (int)mb,
		   b + front, b + nb - back);
}

static bool plain(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f || *s == '"' ||
		    *s == '\\')
			return false;
	return true;
}

int gitstat_add(struct gitstat *s, const struct gitstat_file *f)
{
	auto_buf name = { 0 };
	if (!f->old_path) {
		diff_quote(&name, "", f->path);
	} else if (plain(f->old_path) && plain(f->path)) {
		add_rename(&name, f->old_path, f->path);
	} else {
		diff_quote(&name, "", f->old_path);
		buf_printf(&name, " => ");
		diff_quote(&name, "", f->path);
	}
	size_t width = name.len;
	buf_u8(&name, 0);
	if (buf_error(&name) < 0 || array_grow(&s->v, s->n, &s->cap) < 0)
		return -ENOMEM;
	s->v[s->n++] = (struct gitstat_line){ (char *)steal_ptr(&name.data), width, *f };
	return 0;
}

void gitstat_done(struct gitstat *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->v[i].name);
	free(s->v);
	*s = (struct gitstat){ 0 };
}

static size_t digits(uint64_t n)
{
	size_t d = 1;
	while (n >= 10)
		n /= 10, d++;
	return d;
}

/* At least 1 for anything. */
static size_t scaled(uint64_t n, size_t room, uint64_t most)
{
	return n ? 1 + (size_t)(n * (room - 1) / most) : 0;
}

/* Columns: a blank, names, " | ", numbers, a blank, signs. */
struct columns {
	size_t name, number, signs;
	uint64_t most;
};

static void measure(const struct gitstat *s, struct columns *c)
{
	size_t binary = 0, number = 1;
	*c = (struct columns){ 0 };
	for (size_t i = 0; i < s->n; i++) {
		const struct gitstat_line *l = &s->v[i];
		if (l->width > c->name)
			c->name = l->width;
		if (l->f.binary) {
			size_t w = 14 + digits(l->f.added) + digits(l->f.removed);
			binary = w > binary ? w : binary;
			number = number < 3 ? 3 : number;
		} else if (l->f.added + l->f.removed > c->most) {
			c->most = l->f.added + l->f.removed;
		}
	}
	c->number = digits(c->most) > number ? digits(c->most) : number;
	c->signs = c->most + 4 > binary ? (size_t)(c->most < WIDTH ? c->most : WIDTH) : binary - 4;
	if (c->name + c->number + 6 + c->signs <= WIDTH)
		return;
	size_t narrow = WIDTH * 3 / 8 > c->number + 6 ? WIDTH * 3 / 8 - c->number - 6 : 6;
	if (c->signs > narrow)
		c->signs = narrow < 6 ? 6 : narrow;
	if (c->name > WIDTH - c->number - 6 - c->signs)
		c->name = WIDTH - c->number - 6 - c->signs;
	else
		c->signs = WIDTH - c->number - 6 - c->name;
}

static void add_signs(struct buf *out, const struct gitstat_file *f, const struct columns *c)
{
	uint64_t add = f->added, del = f->removed;
	if (c->signs <= c->most) {
		size_t total = scaled(add + del, c->signs, c->most);
		if (total < 2 && add && del)
			total = 2;
		if (add < del) {
			add = scaled(add, c->signs, c->most);
			del = total - add;
		} else {
			del = scaled(del, c->signs, c->most);
			add = total - del;
		}
	}
	while (add-- > 0)
		buf_u8(out, '+');
	while (del-- > 0)
		buf_u8(out, '-');
}

static void add_line(struct buf *out, const struct gitstat_line *l, const struct columns *c)
{
	const char *name = l->name, *dots = "";
	size_t width = l->width;
	if (width > c->name) { /* cut in front, at a folder where there is one */
		dots = "...";
		size_t keep = c->name > 3 ? c->name - 3 : 0;
		name += width - keep;
		width = keep;
		const char *slash = strchr(name, '/');
		if (slash) {
			width -= (size_t)(slash - name);
			name = slash;
		}
	}
	size_t used = width + strlen(dots);
	buf_printf(out, " %s%s%*s |", dots, name, (int)(c->name > used ? c->name - used : 0), "");
	if (l->f.binary) {
		buf_printf(out, " %*s", (int)c->number, "Bin");
		if (l->f.added || l->f.removed)
			buf_printf(out, " %llu -> %llu bytes", (unsigned long long)l->f.removed,
				   (unsigned long long)l->f.added);
		buf_u8(out, '\n');
		return;
	}
	uint64_t n = l->f.added + l->f.removed;
	buf_printf(out, " %*llu%s", (int)c->number, (unsigned long long)n, n ? " " : "");
	add_signs(out, &l->f, c);
	buf_u8(out, '\n');
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

void gitstat_write(const struct gitstat *s, struct buf *out)
{
	struct columns c;
	uint64_t added = 0, removed = 0;
	if (s->n == 0)
		return;
	measure(s, &c);
	for (size_t i = 0; i < s->n; i++) {
		add_line(out, &s->v[i], &c);
		added += s->v[i].f.binary ? 0 : s->v[i].f.added;
		removed += s->v[i].f.binary ? 0 : s->v[i].f.removed;
	}
	buf_printf(out, " %zu file%s changed", s->n, plural(s->n));
	if (added || !removed)
		buf_printf(out, ", %llu insertion%s(+)", (unsigned long long)added, plural(added));
	if (removed || !added)
		buf_printf(out, ", %llu deletion%s(-)", (unsigned long long)removed,
			   plural(removed));
	buf_u8(out, '\n');
}
