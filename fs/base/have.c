#include "fs/base/have.h"

#include <sys/stat.h>
#include "fs/base/hash.h"

enum { RECORD_COST = 64 }; /* of a record in the map, while that grows */

static void give_back(struct have *h)
{
	if (h->room)
		(void)atomic_fetch_add(h->room, h->taken);
	h->taken = 0;
}

static bool take_room(struct have *h, const char *data, size_t n)
{
	int64_t cost = (int64_t)n;
	if (!h->room)
		return true;
	for (size_t i = 0; i < n; i++)
		cost += data[i] ? 0 : RECORD_COST;
	if (atomic_fetch_sub(h->room, cost) < cost) {
		(void)atomic_fetch_add(h->room, cost);
		return false;
	}
	h->taken += cost;
	return true;
}

int have_add(struct have *h, const void *data, size_t n)
{
	if (n > HAVE_BYTES_MAX - h->seen)
		return -EFBIG;
	h->seen += n;
	h->cut = h->cut || !take_room(h, data, n);
	if (!h->cut)
		buf_add(&h->text, data, n);
	while (h->cut && h->text.len > 0 && h->text.data[h->text.len - 1])
		h->text.len--; /* of a record whose end is forgotten */
	return buf_error(&h->text);
}

/* ---- records ---- */

/* Digits of `base`, and the blank behind them. */
static bool take_number(const char **p, unsigned base, uint64_t most, uint64_t *out)
{
	uint64_t v = 0;
	const char *s = *p;
	for (; *s >= '0' && *s < (char)('0' + base); s++) {
		if (v > (most - (uint64_t)(*s - '0')) / base)
			return false;
		v = v * base + (uint64_t)(*s - '0');
	}
	if (s == *p || *s != ' ')
		return false;
	*p = s + 1;
	*out = v;
	return true;
}

static bool parse(const char *p, struct have_file *f)
{
	uint64_t sec = 0, nsec, mode;
	bool ok = take_number(&p, 10, INT64_MAX, &f->size);
	bool minus = ok && *p == '-';
	p += minus;
	ok = ok && take_number(&p, 10, INT64_MAX, &sec) && take_number(&p, 10, 999999999, &nsec) &&
	     take_number(&p, 8, 07777, &mode);
	if (!ok || !*p)
		return false;
	f->mtime = (struct timespec){ minus ? -(time_t)sec : (time_t)sec, (long)nsec };
	f->mode = S_IFREG | (mode_t)mode;
	f->path = p;
	return true;
}

static uint64_t key_of(const char *path)
{
	uint64_t key = hash_xxh3(path, strlen(path), 0);
	return key ? key : 1;
}

int have_ready(struct have *h)
{
	if (h->text.len > 0 && h->text.data[h->text.len - 1] != '\0')
		return -EBADMSG;
	for (size_t at = 0; at < h->text.len;) {
		char *record = (char *)h->text.data + at;
		struct have_file f;
		if (!parse(record, &f))
			return -EBADMSG;
		/* Of two with one hash one is forgotten, and sent again. */
		if (u64map_put(&h->by_path, key_of(f.path), record) < 0)
			return -ENOMEM;
		at += strlen(record) + 1;
	}
	return 0;
}

/* ---- visits ---- */

static bool lies_in_changed(const struct have *h, const char *path)
{
	size_t n = h->changed.len;
	return n == 0 || (strncmp(path, (const char *)h->changed.data, n) == 0 &&
			  (path[n] == '/' || !path[n]));
}

bool have_visit(struct have *h, const struct have_file *f)
{
	struct have_file there;
	if (!h->by_path.count)
		return false;
	bool changed = have_time_order(&f->ctime, &h->before) >= 0;
	h->in_changed = h->in_changed && lies_in_changed(h, f->path);
	if (S_ISDIR(f->mode)) {
		if (changed && !h->in_changed) {
			buf_reset(&h->changed);
			buf_add(&h->changed, f->path, strlen(f->path));
			h->in_changed = true;
		}
		return false;
	}
	const char *record = S_ISREG(f->mode) ? u64map_get(&h->by_path, key_of(f->path)) : NULL;
	if (!record || !parse(record, &there) || strcmp(there.path, f->path) != 0)
		return false;
	(void)u64map_del(&h->by_path, key_of(f->path));
	if (changed || h->in_changed || there.size != f->size ||
	    (there.mode & 07777) != (f->mode & 07777) ||
	    have_time_order(&there.mtime, &f->mtime) != 0)
		return false;
	h->skipped++;
	return true;
}

size_t have_left(const struct have *h, const char **one)
{
	size_t i = 0;
	struct have_file f = { 0 };
	const struct u64map_slot *s = u64map_next(&h->by_path, &i);
	if (one)
		*one = s && parse(s->value, &f) ? f.path : NULL;
	return h->by_path.count;
}

void have_done(struct have *h)
{
	buf_done(&h->text);
	buf_done(&h->changed);
	u64map_done(&h->by_path);
	give_back(h);
}
