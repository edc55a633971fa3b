/* Operations: building them, writing them to the journal, applying them. */
#include "fs/work/layer_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include "fs/base/cleanup.h"

_Static_assert((int)LAYER_TXN_MAX == (int)JOURNAL_FRAME_MAX, "a txn is a frame");

enum {
	TXN_ROOM = 1024, /* what most operations need, so that they allocate once */
	STEP_MIN = 8 << 10,
	STEP_MAX = 8 << 20,  /* by how much preallocation goes ahead: a quarter, between these */
	ROOM_MIN = 64 << 10, /* where programs fsync: as much as there is, between these */
	ROOM_MAX = 4 << 20,
	ROOM_PIECE = 64 << 10, /* zeroed at once: others who write a frame wait for one */
	PAGE = 4096,           /* a kill cuts a write only where one begins */
	RESERVE_LAST = 4096, /* of the reserve, for commits and the seal alone */
	NODE_BYTES = 640,    /* of an ordered map's node, about */
	NODES_A_RECORD = 8,  /* that applying one record allocates at most, about */
};

/* ---- building ---- */

void txn_begin(struct txn *t, struct layer *l, uint64_t ino)
{
	*t = (struct txn){ .layer = l, .ino = ino };
	if (buf_room(&t->body, TXN_ROOM))
		t->body.len = FRAME_HEAD; /* filled in when it is written */
}

void txn_drop(struct txn *t)
{
	buf_done(&t->body);
	buf_done(&t->others);
	buf_done(&t->keeps);
	*t = (struct txn){ 0 };
}

void txn_inode(struct txn *t, const struct attr *a, uint64_t base_size)
{
	record_inode(&t->body, a, base_size);
	t->records++;
}

void txn_dead(struct txn *t, uint64_t ino, bool forget)
{
	record_dead(&t->body, ino, forget);
	t->records++;
	t->frees = true;
}

void txn_dirent(struct txn *t, uint64_t dir, uint64_t cookie, const char *name, size_t len,
		uint64_t child, uint8_t type)
{
	record_dirent(&t->body, dir, cookie, name, len, child, type);
	t->records++;
	t->creates = true;
}

void txn_dirent_del(struct txn *t, uint64_t dir, uint64_t cookie, bool whiteout)
{
	record_dirent_del(&t->body, dir, cookie, whiteout);
	t->records++;
	t->frees = true;
}

void txn_target(struct txn *t, uint64_t ino, const char *target, size_t len)
{
	record_target(&t->body, ino, target, len);
	t->records++;
	t->creates = true;
}

void txn_xattr(struct txn *t, uint64_t ino, const char *name, size_t name_len, const void *value,
	       size_t len)
{
	record_xattr(&t->body, ino, name, name_len, value, len);
	t->records++;
	t->creates = true;
}

void txn_xattr_del(struct txn *t, uint64_t ino, const char *name, size_t name_len, bool hide)
{
	record_xattr_del(&t->body, ino, name, name_len, hide);
	t->records++;
	t->frees = true;
}

void txn_extent(struct txn *t, uint64_t ino, const struct extent *e)
{
	if (e->kind == EXTENT_DATA && e->layer != t->layer)
		buf_add(&t->others, &e->layer, sizeof(e->layer));
	/* What leads into another inode's file must find its bytes. */
	if (e->kind == EXTENT_DATA && e->layer == t->layer && e->file != SPACE_PACKED &&
	    e->file != ino)
		txn_keep(t, e->file);
	record_extent(&t->body, ino, e, t->layer);
	t->records++;
	if (e->kind != EXTENT_ZERO)
		t->creates = true;
}

void txn_extent_drop(struct txn *t, uint64_t ino, uint64_t from, uint64_t to)
{
	record_extent_drop(&t->body, ino, from, to);
	t->records++;
	t->frees = true;
}

void txn_keep(struct txn *t, uint64_t ino)
{
	buf_add(&t->keeps, &ino, sizeof(ino));
}

void txn_usage(struct txn *t, int64_t bytes, int64_t inodes)
{
	record_usage(&t->body, bytes, inodes);
	t->records++;
}

void txn_files(struct txn *t, int64_t files)
{
	record_files(&t->body, files);
	t->records++;
}

/* ---- the journal's end ---- */

static bool is_full(int r)
{
	return r == -ENOSPC || r == -EDQUOT || r == -EFBIG;
}

static uint64_t between(uint64_t n, uint64_t min, uint64_t max)
{
	return n < min ? min : n > max ? max : n;
}

/* Keeps the reserve preallocated behind a frame of `need` bytes. The lock is held. */
static int preallocate(struct layer *l, int fd, uint64_t need)
{
	const struct io *io = l->io;
	uint64_t end = l->journal.end + need;
	uint64_t least = end + between(end, LAYER_RESERVE_MIN, LAYER_RESERVE);
	if (l->journal.no_prealloc || least <= l->journal.allocated)
		return 0;
	uint64_t step = l->journal.roomy ? between(end, ROOM_MIN, ROOM_MAX)
					 : between(end / 4, STEP_MIN, STEP_MAX);
	uint64_t from = l->journal.allocated, want[] = { least + step, least };
	int r = 0;
	for (int i = 0; i < 2; i++) {
		r = io->fallocate(io->ctx, fd, FALLOC_FL_KEEP_SIZE, from, want[i] - from);
		if (r == 0) {
			l->journal.allocated = want[i];
			return 0;
		}
		if (!is_full(r))
			break;
	}
	if (r == -EOPNOTSUPP || r == -ENOSYS) {
		l->journal.no_prealloc = true;
		return 0;
	}
	return r;
}

void layer_reserve(struct layer *l)
{
	struct layer_file *file;
	if (layer_file_get(l, LAYER_JOURNAL, LAYER_EXISTING, &file) < 0)
		return;
	(void)pthread_mutex_lock(&l->journal.lock);
	(void)preallocate(l, file->fd, 0); /* what can't be had now is tried by each change */
	(void)pthread_mutex_unlock(&l->journal.lock);
	layer_file_put(l, file);
}

void layer_make_room(struct layer *l)
{
	static const uint8_t zeros[ROOM_PIECE];
	struct layer_file *file;
	if (layer_file_get(l, LAYER_JOURNAL, LAYER_EXISTING, &file) < 0)
		return;
	for (bool more = true; more;) {
		(void)pthread_mutex_lock(&l->journal.lock);
		uint64_t from = l->journal.zeroed, to = l->journal.allocated;
		from = from < l->journal.end ? l->journal.end : from;
		to = to - from < ROOM_PIECE ? to : from + ROOM_PIECE;
		more = l->journal.roomy && !l->journal.cut && !layer_is_sealed(l) && from < to;
		if (more && io_write_full(l->io, file->fd, zeros, to - from, from) < 0)
			l->journal.cut = true; /* a part of it may be there */
		else if (more)
			l->journal.zeroed = to;
		(void)pthread_mutex_unlock(&l->journal.lock);
	}
	layer_file_put(l, file);
}

/* In room that is zeroed the end of a file doesn't tell where a kill cut a write, so what begins
 * the frame is written last, and without it there is none. */
static int write_parts(struct layer *l, int fd, const struct buf *b)
{
	uint64_t end = l->journal.end, part = PAGE - end % PAGE;
	int r = 0;
	if (end >= l->journal.zeroed || part > b->len)
		part = b->len;
	if (part < b->len)
		r = io_write_full(l->io, fd, b->data + part, b->len - part, end + part);
	return r < 0 ? r : io_write_full(l->io, fd, b->data, part, end);
}

/* Writes one finished frame at the end. */
static int write_frame(struct layer *l, int fd, const struct buf *b, const struct journal_frame *f)
{
	int r = write_parts(l, fd, b);
	if (r < 0) {
		/* If all of it got there nevertheless, a replay must not find it. Where this
		 * fails too, nothing is lost but the certainty that a failed change is undone. */
		static const uint8_t zeros[FRAME_ALIGN];
		(void)io_write_full(l->io, fd, zeros, sizeof(zeros), l->journal.end);
		/* In zeroed room the rest of it would look like a frame that was lost. */
		l->journal.cut |= l->journal.zeroed > l->journal.end;
		return r;
	}
	l->journal.end += b->len;
	if (l->journal.allocated < l->journal.end)
		l->journal.allocated = l->journal.end;
	l->journal.seq = f->seq;
	l->journal.last_ino = f->ino;
	return 0;
}

/* What a replay has put off until something is written: cutting what doesn't count, and
 * saying so for good. */
static int start_writing(struct layer *l, int fd)
{
	if (l->journal.cut) {
		int r = l->io->ftruncate(l->io->ctx, fd, l->journal.end);
		if (r < 0)
			return r;
		l->journal.cut = false;
		l->journal.allocated = l->journal.zeroed = l->journal.end;
	}
	if (!l->journal.reset)
		return 0;
	struct journal_frame f = { .kind = FRAME_RESET,
				   .seq = l->journal.seq + 1,
				   .prev_ino = l->journal.last_ino };
	auto_buf b = { 0 };
	if (!buf_room(&b, FRAME_HEAD))
		return -ENOMEM;
	b.len = FRAME_HEAD;
	buf_u64(&b, l->journal.reset_upto);
	buf_add(&b, l->journal.boot, BOOT_ID_BYTES);
	journal_frame_finish(&b, &f, l->journal.salt);
	int r = buf_error(&b);
	if (r == 0)
		r = write_frame(l, fd, &b, &f);
	if (r == 0)
		l->journal.reset = false;
	return r;
}

static int append_locked(struct layer *l, int fd, struct buf *b, struct journal_frame *f,
			 enum layer_append_mode mode)
{
	int r = start_writing(l, fd);
	if (r < 0)
		return r;
	uint64_t need = journal_frame_bytes(b->len - FRAME_HEAD);
	r = mode == APPEND_SMALL ? 0 : preallocate(l, fd, need);
	if (is_full(r) && mode == APPEND_FREEING &&
	    l->journal.end + need + RESERVE_LAST <= l->journal.allocated)
		r = 0;
	if (r < 0)
		return r;
	f->seq = l->journal.seq + 1;
	f->prev_ino = l->journal.last_ino;
	journal_frame_finish(b, f, l->journal.salt);
	r = buf_error(b);
	if (r == 0)
		r = write_frame(l, fd, b, f);
	f->end = l->journal.end;
	if (r == 0 && f->kind != FRAME_COMMIT)
		l->journal.last_op = f->seq;
	return r;
}

int layer_append(struct layer *l, struct buf *b, struct journal_frame *f,
		 enum layer_append_mode mode)
{
	struct layer_file *file;
	int r = layer_file_get(l, LAYER_JOURNAL, LAYER_EXISTING, &file);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	(void)pthread_mutex_lock(&l->journal.lock);
	r = append_locked(l, file->fd, b, f, mode);
	(void)pthread_mutex_unlock(&l->journal.lock);
	layer_file_put(l, file);
	return r;
}

/* ---- committing ---- */

/* Applying must not fail once the record is written, so as much memory as it may need is held
 * in reserve meanwhile. NULL: there isn't so much. */
static void *reserve_memory(const struct layer *l, const struct txn *t)
{
	size_t n = t->body.len +
		   (size_t)t->records * (sizeof(struct layer_inode) + NODES_A_RECORD * NODE_BYTES);
	/* The hash maps double when they are three quarters full. */
	if (l->inodes.count + t->records > l->inodes.cap / 4 * 3)
		n += (l->inodes.cap + t->records) * 2 * sizeof(*l->inodes.slots);
	if (l->dirs.count + t->records > l->dirs.cap / 4 * 3)
		n += (l->dirs.cap + t->records) * 2 * sizeof(*l->dirs.slots);
	return malloc(n);
}

/* Applies what was just written. Without memory it is done once more, with the reserve:
 * records say how things are, not how they change, so doing one twice does no harm but
 * that a place may count as shared (and is then not used again before the next replay). */
static int apply(struct layer *l, const struct txn *t, uint64_t seq, size_t len, void **reserve)
{
	struct layer_apply how = { .seq = t->quiet ? 0 : seq };
	int r = layer_apply(l, t->body.data + FRAME_HEAD, len, &how);
	if (r == -ENOMEM) {
		free(*reserve);
		*reserve = NULL;
		r = layer_apply(l, t->body.data + FRAME_HEAD, len, &how);
	}
	layer_apply_done(&how);
	return r;
}

static int add_deps(struct layer *l, const struct txn *t)
{
	struct layer **others = (struct layer **)t->others.data;
	for (size_t i = 0; i < t->others.len / sizeof(*others); i++) {
		int r = layer_add_dep(l, others[i], false);
		if (r < 0)
			return r;
	}
	return 0;
}

static int check(const struct txn *t)
{
	if (buf_error(&t->body) < 0 || buf_error(&t->others) < 0 || buf_error(&t->keeps) < 0)
		return -ENOMEM;
	if (t->body.len - FRAME_HEAD > JOURNAL_FRAME_MAX)
		return -E2BIG;
	return atomic_load(&t->layer->broken);
}

static int commit(struct txn *t)
{
	struct layer *l = t->layer;
	int r = check(t);
	if (r < 0)
		return r;
	auto_free void *reserve = reserve_memory(l, t);
	r = reserve ? add_deps(l, t) : -ENOMEM;
	if (r < 0)
		return r;
	struct journal_frame f = {
		.kind = FRAME_OP, .ino = t->ino, .tag = t->tag, .records = t->records
	};
	size_t len = t->body.len - FRAME_HEAD;
	bool freeing = t->frees && !t->creates;
	/* Before a commit can cover the frame, and until it is applied. */
	layer_keep(l, &t->keeps, UINT64_MAX);
	r = layer_append(l, &t->body, &f, freeing ? APPEND_FREEING : APPEND_GROWING);
	if (r < 0) { /* what others asked for still holds */
		(void)pthread_mutex_lock(&l->journal.lock);
		uint64_t last = l->journal.seq;
		(void)pthread_mutex_unlock(&l->journal.lock);
		layer_keep(l, &t->keeps, last);
		return r;
	}
	atomic_fetch_add(&l->records, t->records);
	r = apply(l, t, f.seq, len, &reserve);
	layer_keep(l, &t->keeps, f.seq);
	if (r == 0)
		return 0;
	/* Another thread took the memory: the journal has it, the index only half of it. */
	atomic_store(&l->broken, -EIO);
	return -EIO;
}

int txn_commit(struct txn *t)
{
	assert(layer_is_local(t->layer) && t->layer->writable && !layer_is_sealed(t->layer));
	int r = t->records == 0 ? 0 : commit(t);
	txn_drop(t);
	return r;
}

/* ---- places ---- */

int layer_alloc(struct layer *l, uint64_t ino, uint64_t off, uint64_t len, struct extent *out)
{
	assert(len > 0 && off % LAYER_BLOCK == 0 && len % LAYER_BLOCK == 0);
	struct extent e = { .off = off, .kind = EXTENT_DATA, .layer = l };
	int r = space_alloc(&l->space, ino, off, len, &e.file, &e.src, &e.len);
	if (r == 0)
		*out = e;
	return r;
}

void layer_alloc_cancel(struct layer *l, const struct extent *e)
{
	assert(e->kind == EXTENT_DATA && e->layer == l);
	space_cancel(&l->space, e->file, e->src, e->len);
}
