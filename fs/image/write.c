/* image_finish: what the builder gathered is checked, brought into one order and written.
 *
 * The bytes depend on the tree alone: inodes go by number, entries by cookie, pieces by
 * offset, xattrs by name, and strings in the order in which these refer to them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "fs/image/build.h"

enum { BLOCK_UNIT = 4096 }; /* st_blocks counts whole ones, as layers allocate them */

struct plan {
	struct image_builder *b;
	struct build_inode **inodes; /* reached ones; by number after plan_sort */
	size_t n;
	struct image_counts counts;
	struct image_layout layout;
	uint64_t target_bytes, name_bytes; /* strings: targets, names, then the pool */
	uint64_t file_bytes, data_bytes;
	struct buf pool;      /* names and values of xattrs, each once */
	struct u64map pooled; /* hash of a string -> its place in the pool, plus one */
	struct err *err;
};

static void plan_done(struct plan *p)
{
	free(p->inodes);
	buf_done(&p->pool);
	u64map_done(&p->pooled);
}

static uint8_t dtype(uint32_t mode)
{
	return (uint8_t)((mode & S_IFMT) >> 12);
}

/* ---- which inodes there are ---- */

static int reach_child(struct plan *p, struct build_inode *dir, const struct build_dirent *d)
{
	struct build_inode *c = u64map_get(&p->b->inodes, d->child);
	if (!c || !c->present)
		return err_set(p->err, -EINVAL,
			       "entry '%.*s' leads to inode %" PRIu64 ", which is not there",
			       d->name_len, d->name, d->child);
	if (dtype(c->attr.mode) != d->type)
		return err_set(p->err, -EINVAL, "entry '%.*s' and inode %" PRIu64 " differ in type",
			       d->name_len, d->name, d->child);
	bool is_dir = S_ISDIR(c->attr.mode);
	if (is_dir && c->reached)
		return err_set(p->err, -EINVAL, "folder '%.*s' (inode %" PRIu64 ") has two names",
			       d->name_len, d->name, d->child);
	if (!c->reached) {
		c->reached = true;
		c->attr.nlink = is_dir ? 2 : 0;
		c->attr.parent = 0;
		p->inodes[p->n++] = c;
	}
	if (is_dir)
		dir->attr.nlink++;
	else
		c->attr.nlink++;
	/* Of several names the hint is to the least, whatever the order of the walk. */
	if (c->attr.parent == 0 || dir->attr.ino < c->attr.parent ||
	    (dir->attr.ino == c->attr.parent && d->cookie < c->attr.parent_cookie)) {
		c->attr.parent = dir->attr.ino;
		c->attr.parent_cookie = d->cookie;
	}
	p->name_bytes += d->name_len;
	return 0;
}

/* Walks from the root; p->inodes is the queue and in the end the list. A folder is entered
 * once, so no cycle can keep it going. */
static int reach(struct plan *p)
{
	struct u64map_slot *s;
	for (size_t i = 0; (s = u64map_next(&p->b->inodes, &i));)
		((struct build_inode *)s->value)->reached = false;
	struct build_inode *root = u64map_get(&p->b->inodes, 1);
	if (!root || !root->present || !S_ISDIR(root->attr.mode))
		return err_set(p->err, -EINVAL, "the tree has no root folder");
	p->inodes = malloc(p->b->inodes.count * sizeof(*p->inodes));
	if (!p->inodes)
		return err_set(p->err, -ENOMEM, "out of memory for an image");
	root->reached = true;
	root->attr.nlink = 2;
	root->attr.parent = 1;
	root->attr.parent_cookie = 0;
	p->inodes[p->n++] = root;
	for (size_t head = 0; head < p->n; head++) {
		struct build_inode *dir = p->inodes[head];
		if (!S_ISDIR(dir->attr.mode)) {
			if (dir->names.count)
				return err_set(p->err, -EINVAL,
					       "inode %" PRIu64 " is no folder and has entries",
					       dir->attr.ino);
			continue;
		}
		struct omap_entry e;
		omap_each(&dir->names, &e) {
			int r = reach_child(p, dir, e.value.p);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = (*(struct build_inode *const *)a)->attr.ino;
	uint64_t y = (*(struct build_inode *const *)b)->attr.ino;
	return (x > y) - (x < y);
}

static void plan_sort(struct plan *p)
{
	qsort(p->inodes, p->n, sizeof(*p->inodes), by_number);
	p->counts.inodes = p->n;
	for (size_t i = 0; i < p->n; i++)
		if (i == 0 || p->inodes[i]->attr.ino != p->inodes[i - 1]->attr.ino + 1)
			p->counts.runs++;
}

/* ---- what each of them has ---- */

static int by_offset(const void *a, const void *b)
{
	uint64_t x = (*(struct build_piece *const *)a)->p.off;
	uint64_t y = (*(struct build_piece *const *)b)->p.off;
	return (x > y) - (x < y);
}

static int sort_pieces(struct build_inode *bi)
{
	struct build_piece **v = calloc(bi->npieces, sizeof(struct build_piece *));
	if (!v)
		return -ENOMEM;
	uint32_t n = 0;
	for (struct build_piece *x = bi->pieces; x; x = x->next)
		v[n++] = x;
	qsort(v, n, sizeof(struct build_piece *), by_offset);
	for (uint32_t i = 0; i < n; i++)
		v[i]->next = i + 1 < n ? v[i + 1] : NULL;
	bi->pieces = v[0];
	bi->last_piece = v[n - 1];
	bi->unsorted = false;
	free(v);
	return 0;
}

/* Pieces in order, none behind the file's size, and st_blocks from them. */
static int plan_pieces(struct plan *p, struct build_inode *bi)
{
	if (bi->unsorted && sort_pieces(bi) < 0)
		return err_set(p->err, -ENOMEM, "out of memory for an image");
	uint64_t end = 0, units = 0, units_end = 0;
	uint32_t n = 0;
	for (struct build_piece *x = bi->pieces, *last = NULL; x; last = x, x = x->next, n++) {
		if (x->p.off < end)
			return err_set(p->err, -EINVAL, "pieces of inode %" PRIu64 " overlap",
				       bi->attr.ino);
		if (x->p.off >= bi->attr.size) {
			*(last ? &last->next : &bi->pieces) = NULL;
			bi->last_piece = last;
			break;
		}
		if (x->p.len > bi->attr.size - x->p.off)
			x->p.len = (uint32_t)(bi->attr.size - x->p.off);
		end = x->p.off + x->p.len;
		uint64_t from = x->p.off / BLOCK_UNIT, to = (end + BLOCK_UNIT - 1) / BLOCK_UNIT;
		units += to - (from < units_end ? units_end : from);
		units_end = to;
		p->data_bytes += x->p.len;
	}
	bi->npieces = n;
	bi->attr.blocks = units * (BLOCK_UNIT / 512);
	bi->body = p->counts.pieces;
	p->counts.pieces += n;
	if (__builtin_add_overflow(p->file_bytes, bi->attr.size, &p->file_bytes))
		p->file_bytes = UINT64_MAX; /* sparse files may claim more than is countable */
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct build_xattr *x = *(struct build_xattr *const *)a;
	const struct build_xattr *y = *(struct build_xattr *const *)b;
	int c = strcmp(x->name, y->name);
	return c ? c : (x->seq < y->seq) - (x->seq > y->seq);
}

/* The place of a string in the pool, added when it isn't there. */
static int pool_put(struct plan *p, const void *data, size_t len, uint64_t *at)
{
	uint64_t key = hash_xxh3(data, len, len);
	key += key == 0;
	uintptr_t have = (uintptr_t)u64map_get(&p->pooled, key);
	if (have && len <= p->pool.len - (have - 1) &&
	    memcmp(p->pool.data + (have - 1), data, len) == 0) {
		*at = have - 1;
		return 0;
	}
	*at = p->pool.len;
	buf_add(&p->pool, data, len);
	int r = buf_error(&p->pool);
	if (r == 0 && !have)
		r = u64map_put(&p->pooled, key, (void *)(uintptr_t)(*at + 1));
	return r;
}

/* Xattrs in order of name, each once, their strings in the pool. */
static int plan_xattrs(struct plan *p, struct build_inode *bi)
{
	bi->xattr = bi->nxattrs ? p->counts.xattrs : 0;
	if (bi->nxattrs == 0)
		return 0;
	auto_free struct build_xattr **v = calloc(bi->nxattrs, sizeof(struct build_xattr *));
	if (!v)
		return -ENOMEM;
	uint32_t n = 0, kept = 0;
	for (struct build_xattr *x = bi->xattrs; x; x = x->next)
		v[n++] = x;
	qsort(v, n, sizeof(struct build_xattr *), by_name);
	for (uint32_t i = 0; i < n; i++)
		if (i == 0 || strcmp(v[i]->name, v[kept - 1]->name) != 0)
			v[kept++] = v[i];
	bi->xattrs = NULL;
	for (uint32_t i = kept; i-- > 0;) {
		v[i]->next = bi->xattrs;
		bi->xattrs = v[i];
	}
	bi->nxattrs = kept;
	p->counts.xattrs += kept;
	for (uint32_t i = 0; i < kept; i++) {
		int r = pool_put(p, v[i]->name, v[i]->name_len + 1u, &v[i]->name_at);
		if (r == 0)
			r = pool_put(p, v[i]->value, v[i]->value_len, &v[i]->value_at);
		if (r < 0)
			return r;
	}
	return 0;
}

static int plan_inode(struct plan *p, struct build_inode *bi)
{
	struct attr *a = &bi->attr;
	bi->body = 0;
	if (!S_ISREG(a->mode) && bi->npieces)
		return err_set(p->err, -EINVAL, "inode %" PRIu64 " is no file and has content",
			       a->ino);
	if (S_ISLNK(a->mode) != (bi->target != NULL))
		return err_set(p->err, -EINVAL, "inode %" PRIu64 " %s", a->ino,
			       bi->target ? "is no symlink and has a target"
					  : "is a symlink without a target");
	if (S_ISREG(a->mode)) {
		int r = plan_pieces(p, bi);
		if (r < 0)
			return r;
	} else if (S_ISDIR(a->mode)) {
		a->size = 4096;
		bi->body = p->counts.dirents;
		p->counts.dirents += bi->names.count;
		if (bi->names.count > UINT32_MAX)
			return err_set(p->err, -EFBIG, "folder %" PRIu64 " has too many entries",
				       a->ino);
	} else if (S_ISLNK(a->mode)) {
		a->size = bi->target_len;
		bi->body = p->target_bytes;
		p->target_bytes += bi->target_len;
	}
	if (plan_xattrs(p, bi) < 0)
		return err_set(p->err, -ENOMEM, "out of memory for an image");
	a->flags = (uint16_t)((a->flags & ~ATTR_HAS_XATTR) | (bi->nxattrs ? ATTR_HAS_XATTR : 0));
	return 0;
}

static int plan_make(struct plan *p)
{
	int r = reach(p);
	if (r < 0)
		return r;
	plan_sort(p);
	for (size_t i = 0; i < p->n; i++) {
		r = plan_inode(p, p->inodes[i]);
		if (r < 0)
			return r;
	}
	p->counts.string_bytes = p->target_bytes + p->name_bytes + p->pool.len;
	r = image_layout(&p->layout, &p->counts);
	return r < 0 ? err_set(p->err, r, "the tree is too large for one image") : 0;
}

/* ---- writing ---- */

/* The body on its way to the disk, a block at a time. The first error is kept. */
struct body {
	const struct io *io;
	int fd;
	uint64_t at; /* place of the block in the file */
	uint8_t *block;
	size_t len;
	struct digest *table; /* of the blocks written */
	uint64_t blocks;
	int error;
};

static void body_flush(struct body *o)
{
	if (o->len == 0 || o->error)
		return;
	hash_sha256(&o->table[o->blocks++], o->block, o->len);
	o->error = io_write_full(o->io, o->fd, o->block, o->len, o->at);
	o->at += o->len;
	o->len = 0;
}

static void body_put(struct body *o, const void *data, size_t n)
{
	const uint8_t *p = data;
	while (n > 0 && !o->error) {
		size_t part = IMAGE_BLOCK - o->len < n ? IMAGE_BLOCK - o->len : n;
		memcpy(o->block + o->len, p, part);
		o->len += part;
		p += part;
		n -= part;
		if (o->len == IMAGE_BLOCK)
			body_flush(o);
	}
}

/* Zeros up to the start of a section, which is less than IMAGE_SECTION_ALIGN away. */
static void body_align(struct body *o, uint64_t to)
{
	static const uint8_t zeros[IMAGE_SECTION_ALIGN];
	if (!o->error)
		body_put(o, zeros, to - (o->at + o->len));
}

static void put_runs(struct body *o, const struct plan *p)
{
	for (size_t i = 0; i < p->n; i++) {
		uint64_t ino = p->inodes[i]->attr.ino;
		if (i > 0 && ino == p->inodes[i - 1]->attr.ino + 1)
			continue;
		uint8_t rec[IMAGE_RUN_BYTES];
		le_put64(rec + RUN_INO, ino);
		le_put64(rec + RUN_INDEX, i);
		body_put(o, rec, sizeof(rec));
	}
}

static void put_inode(struct body *o, const struct build_inode *bi)
{
	const struct attr *a = &bi->attr;
	uint8_t rec[IMAGE_INODE_BYTES] = { 0 };
	uint32_t count = S_ISREG(a->mode)   ? bi->npieces
			 : S_ISDIR(a->mode) ? (uint32_t)bi->names.count
					    : bi->target_len;
	le_put64(rec + INO_INO, a->ino);
	le_put32(rec + INO_MODE, a->mode);
	le_put32(rec + INO_UID, a->uid);
	le_put32(rec + INO_GID, a->gid);
	le_put32(rec + INO_NLINK, a->nlink);
	le_put32(rec + INO_RDEV, a->rdev);
	le_put16(rec + INO_GEN, a->gen);
	le_put16(rec + INO_FLAGS, a->flags);
	le_put64(rec + INO_SIZE, a->size);
	le_put64(rec + INO_BLOCKS, a->blocks);
	le_put64(rec + INO_PARENT, a->parent);
	le_put64(rec + INO_PARENT_COOKIE, a->parent_cookie);
	le_put64(rec + INO_OWN_TAG, a->own_tag);
	le_put64(rec + INO_OWN_BYTES, a->own_bytes);
	const struct timespec *times[] = { &a->atime, &a->mtime, &a->ctime, &a->btime };
	for (int i = 0; i < 4; i++) {
		le_put64(rec + INO_SECONDS + 8 * i, (uint64_t)times[i]->tv_sec);
		le_put32(rec + INO_NANOS + 4 * i, (uint32_t)times[i]->tv_nsec);
	}
	le_put64(rec + INO_BODY, bi->body);
	le_put32(rec + INO_COUNT, count);
	le_put32(rec + INO_XATTRS, bi->nxattrs);
	le_put64(rec + INO_XATTR, bi->xattr);
	body_put(o, rec, sizeof(rec));
}

static void put_dirents(struct body *o, const struct plan *p)
{
	uint64_t name = p->target_bytes;
	for (size_t i = 0; i < p->n; i++) {
		struct omap_entry e;
		omap_each(&p->inodes[i]->names, &e) {
			const struct build_dirent *d = e.value.p;
			uint8_t rec[IMAGE_DIRENT_BYTES];
			le_put64(rec + DIR_COOKIE, d->cookie);
			le_put64(rec + DIR_INO, d->child | (uint64_t)d->type << DIR_TYPE_SHIFT |
							(uint64_t)d->name_len << DIR_LEN_SHIFT);
			le_put64(rec + DIR_NAME, name);
			name += d->name_len;
			body_put(o, rec, sizeof(rec));
		}
	}
}

static void put_pieces(struct body *o, const struct plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		for (const struct build_piece *x = p->inodes[i]->pieces; x; x = x->next) {
			uint8_t rec[IMAGE_PIECE_BYTES];
			le_put64(rec + PIECE_OFF, x->p.off);
			le_put32(rec + PIECE_LEN, x->p.len);
			le_put32(rec + PIECE_OBJ_OFF, x->p.obj_off);
			memcpy(rec + PIECE_OBJECT, x->p.object.b, sizeof(x->p.object.b));
			body_put(o, rec, sizeof(rec));
		}
}

static void put_xattrs(struct body *o, const struct plan *p)
{
	const uint64_t pool = p->target_bytes + p->name_bytes;
	for (size_t i = 0; i < p->n; i++)
		for (const struct build_xattr *x = p->inodes[i]->xattrs; x; x = x->next) {
			uint8_t rec[IMAGE_XATTR_BYTES] = { 0 };
			le_put64(rec + XATTR_NAME, pool + x->name_at);
			le_put64(rec + XATTR_VALUE, pool + x->value_at);
			le_put32(rec + XATTR_VALUE_LEN, x->value_len);
			rec[XATTR_NAME_LEN] = x->name_len;
			body_put(o, rec, sizeof(rec));
		}
}

static void put_strings(struct body *o, const struct plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->inodes[i]->target)
			body_put(o, p->inodes[i]->target, p->inodes[i]->target_len);
	for (size_t i = 0; i < p->n; i++) {
		struct omap_entry e;
		omap_each(&p->inodes[i]->names, &e) {
			const struct build_dirent *d = e.value.p;
			body_put(o, d->name, d->name_len);
		}
	}
	body_put(o, p->pool.data, p->pool.len);
}

/* The body behind a header's room, its hashes in `table`. */
static int write_body(const struct plan *p, const struct io *io, int fd, struct digest *table)
{
	auto_free uint8_t *block = malloc(IMAGE_BLOCK);
	if (!block)
		return -ENOMEM;
	struct body o = {
		.io = io, .fd = fd, .at = p->layout.header_bytes, .block = block, .table = table
	};
	put_runs(&o, p);
	body_align(&o, p->layout.inodes);
	for (size_t i = 0; i < p->n; i++)
		put_inode(&o, p->inodes[i]);
	body_align(&o, p->layout.dirents);
	put_dirents(&o, p);
	body_align(&o, p->layout.pieces);
	put_pieces(&o, p);
	body_align(&o, p->layout.xattrs);
	put_xattrs(&o, p);
	body_align(&o, p->layout.strings);
	put_strings(&o, p);
	body_flush(&o);
	return o.error;
}

static void make_header(uint8_t *h, const struct plan *p)
{
	memcpy(h + HDR_MAGIC, IMAGE_MAGIC, 8);
	le_put32(h + HDR_VERSION, IMAGE_VERSION);
	le_put32(h + HDR_BYTES, (uint32_t)p->layout.header_bytes);
	le_put64(h + HDR_SEED, p->b->seed);
	le_put64(h + HDR_RUNS, p->counts.runs);
	le_put64(h + HDR_INODES, p->counts.inodes);
	le_put64(h + HDR_DIRENTS, p->counts.dirents);
	le_put64(h + HDR_PIECES, p->counts.pieces);
	le_put64(h + HDR_XATTRS, p->counts.xattrs);
	le_put64(h + HDR_STRING_BYTES, p->counts.string_bytes);
	le_put64(h + HDR_FILE_BYTES, p->file_bytes);
	le_put64(h + HDR_DATA_BYTES, p->data_bytes);
	le_put64(h + HDR_MAX_INO, p->inodes[p->n - 1]->attr.ino);
}

/* 1 when `file` is this image, whole and durable; 0 when it isn't, or isn't there. */
static int is_there(const struct plan *p, const struct io *io, int dirfd, const char *file,
		    const uint8_t *header)
{
	const struct image_layout *l = &p->layout;
	int fd = io->open(io->ctx, dirfd, file, O_RDONLY, 0);
	if (fd < 0)
		return 0;
	int same = 0;
	auto_free uint8_t *have = malloc(l->header_bytes);
	auto_free uint8_t *block = malloc(IMAGE_BLOCK);
	struct stat st;
	if (!have || !block || io->fstat(io->ctx, fd, &st) < 0 ||
	    (uint64_t)st.st_size != l->file_bytes ||
	    io_read_full(io, fd, have, l->header_bytes, 0) != (ssize_t)l->header_bytes ||
	    memcmp(have, header, l->header_bytes) != 0)
		goto out;
	for (uint64_t i = 0, at = l->header_bytes; i < l->blocks; i++, at += IMAGE_BLOCK) {
		size_t n = l->file_bytes - at < IMAGE_BLOCK ? l->file_bytes - at : IMAGE_BLOCK;
		struct digest d;
		if (io_read_full(io, fd, block, n, at) != (ssize_t)n)
			goto out;
		hash_sha256(&d, block, n);
		if (memcmp(d.b, header + IMAGE_HEADER_FIXED + i * sizeof(d), sizeof(d)) != 0)
			goto out;
	}
	same = io->fsync(io->ctx, fd) == 0;
out:
	(void)io->close(io->ctx, fd); /* only read */
	return same;
}

static int write_file(const struct plan *p, const struct io *io, int fd, uint8_t *header)
{
	struct digest *table = (struct digest *)(header + IMAGE_HEADER_FIXED);
	int r = write_body(p, io, fd, table);
	if (r == 0)
		r = io_write_full(io, fd, header, p->layout.header_bytes, 0);
	if (r == 0)
		r = io->fsync(io->ctx, fd);
	return r;
}

/* Writes the image under a temporary name, then gives it its own. */
static int publish(const struct plan *p, const struct io *io, int dirfd, struct digest *name)
{
	uint64_t token;
	random_bytes(&token, sizeof(token));
	char tmp[64], file[IMAGE_FILE_NAME];
	(void)snprintf(tmp, sizeof(tmp), IO_TMP_PREFIX "image-%016" PRIx64, token);
	auto_free uint8_t *header = calloc(1, p->layout.header_bytes);
	if (!header)
		return err_set(p->err, -ENOMEM, "out of memory for an image");
	make_header(header, p);
	int fd = io->open(io->ctx, dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return err_sys(p->err, fd, "create %s", tmp);
	int r = write_file(p, io, fd, header);
	int c = io->close(io->ctx, fd);
	if (r == 0)
		r = c;
	if (r < 0) {
		(void)io->unlink(io->ctx, dirfd, tmp, 0); /* or a later sweep takes it */
		return err_sys(p->err, r, "write %s", tmp);
	}
	hash_sha256(name, header, p->layout.header_bytes);
	image_file_name(file, name);
	if (is_there(p, io, dirfd, file, header)) {
		(void)io->unlink(io->ctx, dirfd, tmp, 0); /* as above */
	} else {
		r = io->rename(io->ctx, dirfd, tmp, dirfd, file, 0);
		if (r < 0) {
			(void)io->unlink(io->ctx, dirfd, tmp, 0); /* as above */
			return err_sys(p->err, r, "rename %s to %s", tmp, file);
		}
	}
	r = io->fsync(io->ctx, dirfd);
	return r < 0 ? err_sys(p->err, r, "sync the folder of %s", file) : 0;
}

int image_finish(struct image_builder *b, const struct io *io, const char *dir, struct digest *name,
		 struct err *err)
{
	if (!io)
		io = &io_host;
	struct plan p = { .b = b, .err = err };
	struct digest made;
	int r = plan_make(&p);
	if (r == 0) {
		int dirfd = io->open(io->ctx, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY, 0);
		if (dirfd < 0) {
			r = err_sys(err, dirfd, "open folder %s", dir);
		} else {
			r = publish(&p, io, dirfd, &made);
			(void)io->close(io->ctx, dirfd); /* synced in publish */
		}
	}
	plan_done(&p);
	if (r < 0)
		return err_prefix(err, r, "write an image");
	*name = made;
	return 0;
}
