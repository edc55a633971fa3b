#include "snapd/archive_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/work/layer.h"
#include "snapd/archive_lib.h"

enum {
	PIECE_ENCODED = 24,
	PIECES_MAX = BATCH_CONTENTS_MAX / PIECE_ENCODED / 2,
	OP_ROOM = 1 << 21, /* of an operation, encoded, at most */
};

static int out_of_memory(struct archive_stage *s)
{
	return err_no_memory(s->err);
}

int archive_stage_init(struct archive_stage *s, const struct place *place, const char *scratch,
		       struct err *err)
{
	*s = (struct archive_stage){ .place = place, .err = err, .atomic = scratch };
	if (scratch && (place->src.ws.quota_bytes || place->src.ws.quota_inodes))
		s->tag = fs_tag();
	s->spool = scratch ? open(scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
			   : memfd_create("archive", MFD_CLOEXEC);
	if (s->spool < 0)
		return err_sys(err, -errno, "make a temporary file");
	/* Whoever makes the archive can't know where paths meet. */
	return getrandom(&s->seed, sizeof(s->seed), 0) < 0 ? err_sys(err, -errno, "getrandom") : 0;
}

static int hold(struct archive_stage *s, uint64_t bytes, uint64_t inodes)
{
	*s->err = (struct err){ 0 };
	return fs_hold(s->place->sd->fs, s->place->src.ws.id, s->tag, bytes, inodes, s->err);
}

/* Of all that is staged, and of `more` bytes that are to come. `path`: what for; NULL: all. */
static int keep_room(struct archive_stage *s, uint64_t more, const char *path)
{
	/* What a head says is any number; no quota has room for what can't be said. */
	const uint64_t all = more < INT64_MAX - s->charge ? s->charge + more : INT64_MAX;
	int r = s->tag ? hold(s, all, s->inodes) : 0;
	s->kept = r < 0 ? 0 : all;
	s->kept_inodes = r < 0 ? 0 : s->inodes;
	if (r != -EDQUOT)
		return r;
	return path ? place_error(s->err, r, "write", path)
		    : err_set(s->err, r, "the quota has no room for all of it");
}

void archive_stage_done(struct archive_stage *s)
{
	struct err none = { 0 };
	if (s->tag) /* a bough-fs that isn't there keeps none */
		(void)fs_hold(s->place->sd->fs, s->place->src.ws.id, s->tag, 0, 0, &none);
	s->tag = 0;
	cleanup_close(&s->spool);
	s->spool = -1;
	buf_done(&s->ops);
	buf_done(&s->paths);
	free(s->starts);
	free(s->contents);
	free(s->pieces);
	u64map_done(&s->by_path);
	u64map_done(&s->made);
}

/* ---- contents ---- */

static const char *path_at(const struct archive_stage *s, size_t i)
{
	return (const char *)s->paths.data + s->contents[i].path;
}

static uint64_t key_of(const struct archive_stage *s, const char *path)
{
	uint64_t h = hash_xxh3(path, strlen(path), s->seed);
	return h ? h : 1;
}

static void uncharge(struct archive_stage *s, struct archive_staged *c)
{
	s->charge -= c->charge;
	c->charge = c->end = 0;
}

/* Whole blocks where data is, but for what is behind the end. */
static void charge(struct archive_stage *s, struct archive_staged *c, uint64_t off, uint64_t n)
{
	uint64_t from = block_floor(off), more = off + n - c->end;
	if (block_ceil(c->end) <= from)
		more = block_ceil(c->end) - c->end + (off + n - from);
	c->charge += more;
	s->charge += more;
	c->end = off + n;
}

int archive_stage_expect(struct archive_stage *s, uint64_t number, uint64_t size)
{
	return keep_room(s, size, path_at(s, number - 1));
}

int archive_stage_file(struct archive_stage *s, const char *path, uint64_t *number)
{
	uint64_t key = key_of(s, path);
	if (array_grow(&s->contents, s->ncontents, &s->contents_cap) < 0)
		return out_of_memory(s);
	s->contents[s->ncontents++] = (struct archive_staged){
		.path = s->paths.len,
		.first = s->npieces,
		.next = (uint32_t)(uintptr_t)u64map_get(&s->by_path, key),
	};
	buf_add(&s->paths, path, strlen(path) + 1);
	if (buf_error(&s->paths) ||
	    u64map_put(&s->by_path, key, (void *)(uintptr_t)s->ncontents) < 0)
		return out_of_memory(s);
	*number = s->ncontents;
	s->inodes++;
	return 0;
}

int archive_stage_file_again(struct archive_stage *s, const char *path, uint64_t *number)
{
	size_t i = (uintptr_t)u64map_get(&s->by_path, key_of(s, path));
	while (i && strcmp(path_at(s, i - 1), path) != 0)
		i = s->contents[i - 1].next;
	if (!i)
		return -ENOENT;
	struct archive_staged *c = &s->contents[i - 1];
	uncharge(s, c);
	c->first = s->npieces;
	c->count = 0;
	*number = i;
	return 0;
}

int archive_stage_data(struct archive_stage *s, uint64_t number, uint64_t off, const void *data,
		       size_t n)
{
	struct archive_staged *c = &s->contents[number - 1];
	struct batch_piece *last = c->count ? &s->pieces[s->npieces - 1] : NULL;
	if (n == 0)
		return 0;
	charge(s, c, off, n);
	int r = s->charge > s->kept ? keep_room(s, 0, path_at(s, number - 1)) : 0;
	if (r < 0)
		return r;
	r = io_write_full(NULL, s->spool, data, n, s->end);
	if (r < 0)
		return err_sys(s->err, r, "write a temporary file");
	if (last && last->off + last->len == off && last->at + last->len == s->end) {
		last->len += n;
	} else {
		if (s->npieces >= PIECES_MAX)
			return err_set(s->err, -EFBIG, "'%s': too many parts",
				       SHOW(path_at(s, number - 1)));
		if (array_grow(&s->pieces, s->npieces, &s->pieces_cap) < 0)
			return out_of_memory(s);
		s->pieces[s->npieces++] = (struct batch_piece){ off, n, s->end };
		c->count++;
	}
	s->end += n;
	return 0;
}

void archive_stage_file_drop(struct archive_stage *s, uint64_t number)
{
	uncharge(s, &s->contents[number - 1]);
	s->contents[number - 1].count = 0;
	s->contents[number - 1].size = 0;
}

int archive_stage_file_end(struct archive_stage *s, uint64_t number, uint64_t size)
{
	struct archive_staged *c = &s->contents[number - 1];
	uint64_t end = block_ceil(c->end) < size ? block_ceil(c->end) : size;
	c->size = size;
	if (end > c->end) /* a hole is behind it */
		charge(s, c, c->end, end - c->end);
	return s->charge > s->kept ? keep_room(s, 0, path_at(s, number - 1)) : 0;
}

/* ---- operations ---- */

static bool is_folder(const struct archive_stage *s, const char *path)
{
	auto_found f = { .fd = -1 };
	return place_find(s->place, path, &f, NULL) >= 0 && S_ISDIR(f.mode);
}

/* One inode more unless it is counted already, or a folder that is there: 1 then, and there are
 * those above it. That two paths of all have one hash doesn't happen: nobody knows the seed. */
static int count_inode(struct archive_stage *s, const char *path, bool folder)
{
	uint64_t key = key_of(s, path);
	if (u64map_get(&s->made, key))
		return 1;
	if (u64map_put(&s->made, key, s) < 0)
		return out_of_memory(s);
	if (folder && is_folder(s, path))
		return 1;
	s->inodes++;
	return 0;
}

/* What the operation makes, and the folders above it, beside the contents, which are counted. */
static int count_inodes(struct archive_stage *s, const struct batch_op *o)
{
	auto_free char *path = strndup(o->path, o->path_len);
	char *slash;
	if (!path)
		return out_of_memory(s);
	int r = o->kind == BATCH_MAKE ? count_inode(s, path, S_ISDIR(o->mode)) : 0;
	while (r == 0 && o->flags & BATCH_PARENTS && (slash = strrchr(path, '/'))) {
		*slash = '\0';
		r = count_inode(s, path, true);
	}
	return r < 0 ? r : 0;
}

static int keep_room_for(struct archive_stage *s, const struct batch_op *o)
{
	bool counted = s->tag && s->place->src.ws.quota_inodes;
	int r = counted ? count_inodes(s, o) : 0;
	if (r < 0 || (s->charge <= s->kept && s->inodes <= s->kept_inodes))
		return r;
	return keep_room(s, 0, o->path);
}

int archive_stage_add(struct archive_stage *s, const struct batch_op *o)
{
	if (s->nops >= BATCH_OPS_MAX || s->ops.len > BATCH_BYTES_MAX - OP_ROOM)
		return err_set(s->err, -EFBIG, "the archive has too many members for one step");
	if (array_grow(&s->starts, s->nops, &s->starts_cap) < 0)
		return out_of_memory(s);
	s->starts[s->nops++] = (uint32_t)s->ops.len;
	batch_encode(&s->ops, o, NULL);
	struct cur c = cur_init(o->xattrs, o->xattrs_len);
	const char *name;
	const void *value;
	size_t n, len;
	while (batch_xattr(&c, &name, &n, &value, &len) > 0)
		s->charge += n + len;
	return buf_error(&s->ops) ? out_of_memory(s) : keep_room_for(s, o);
}

/* Why the operation can't be, in words of the archive. */
static int refused(struct archive_stage *s, int r, size_t op)
{
	struct cur c = cur_init(s->ops.data + s->starts[op], s->ops.len - s->starts[op]);
	struct batch_op o = { 0 };
	(void)batch_decode(&c, &o); /* our own */
	auto_free char *path = strndup(o.path, o.path_len);
	if (!path)
		return out_of_memory(s);
	if (o.kind == BATCH_LINK && (r == -ENOENT || r == -EPERM))
		return err_set(s->err, -EBADMSG, "'%s': a hard link to '%s', which is%s",
			       SHOW(path), archive_show_n(o.other, o.other_len).s,
			       r == -ENOENT ? "n't there" : " no file");
	if (r == -EISDIR || r == -EEXIST)
		return err_set(s->err, -ENOTUNIQ, "'%s': %s is in its place", SHOW(path),
			       r == -EISDIR ? "a folder" : "what is no folder");
	if (r == -ENOTDIR || r == -ELOOP)
		return err_set(s->err, -EBADMSG, "'%s': it lies below what is no folder",
			       SHOW(path));
	return place_error(s->err, r, "write", path);
}

static int all_refused(struct archive_stage *s, int r)
{
	if (r == -E2BIG)
		return err_set(s->err, -EFBIG, "the archive has too many members for one step");
	return s->err->code < 0 ? r : err_sys(s->err, r, "write");
}

static void encode_contents(const struct archive_stage *s, struct buf *out)
{
	for (size_t i = 0; i < s->ncontents; i++) {
		const struct archive_staged *c = &s->contents[i];
		batch_encode_content(out, c->size, s->pieces + c->first, c->count);
	}
}

/* `n` operations from the one on. *failed: which of these. */
static int send_some(struct archive_stage *s, const struct buf *contents, size_t from, size_t n,
		     size_t *failed)
{
	size_t end = from + n < s->nops ? s->starts[from + n] : s->ops.len;
	const struct fs_batch b = {
		.ops = s->ops.data + s->starts[from],
		.ops_len = end - s->starts[from],
		.contents = contents->data,
		.contents_len = contents->len,
		.file = s->spool,
		.at = s->end,
		.tag = s->tag,
	};
	*s->err = (struct err){ 0 };
	return fs_batch(s->place->sd->fs, s->place->src.ws.id, &b, failed, NULL, s->err);
}

/* All of it, or what comes before the one that can't be. Where it is all of them together that
 * can't (the quota), fewer are tried, down to one. */
static int apply(struct archive_stage *s, const struct buf *contents)
{
	for (size_t at = 0, want = s->nops, failed; at < s->nops;) {
		int r = send_some(s, contents, at, want, &failed);
		if (r >= 0) {
			at += want;
			want = s->nops - at;
			continue;
		}
		if (failed < want && (s->atomic || failed == 0))
			return refused(s, r, at + failed);
		if (failed > want || s->atomic || want == 1)
			return all_refused(s, r);
		want = failed < want ? failed : want / 2;
	}
	return 0;
}

int archive_stage_flush(struct archive_stage *s)
{
	auto_buf contents = { 0 };
	if (s->nops == 0)
		return 0;
	encode_contents(s, &contents);
	if (contents.len > BATCH_CONTENTS_MAX)
		return err_set(s->err, -EFBIG, "the archive has too many members for one step");
	int r = buf_error(&contents) ? out_of_memory(s) : keep_room(s, 0, NULL);
	if (r == 0)
		r = apply(s, &contents);
	/* A bough-fs that was waited for long enough may read what failed yet. */
	if (r == 0 && ftruncate(s->spool, 0) < 0)
		r = err_sys(s->err, -errno, "empty a temporary file");
	else if (r == 0)
		s->end = 0;
	s->nops = s->ncontents = s->npieces = 0;
	buf_reset(&s->ops);
	buf_reset(&s->paths);
	u64map_done(&s->by_path);
	u64map_done(&s->made);
	s->by_path = s->made = (struct u64map){ 0 };
	return r;
}

int archive_stage_settle(struct archive_stage *s)
{
	bool much = s->nops >= STAGE_OPS || s->end >= STAGE_BYTES ||
		    s->ops.len > BATCH_BYTES_MAX / 8 || s->npieces > PIECES_MAX / 8;
	return much && !s->atomic ? archive_stage_flush(s) : 0;
}
