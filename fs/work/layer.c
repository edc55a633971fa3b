/* Layers: their life. Invariants 2, 3 and 9 of the design meet here: what a commit syncs in
 * which order, and which frames a replay believes.
 *
 * A commit: places freed so far are set aside; the number n of the last frame is taken; data files
 * written since the last commit are synced, then the folder, if files were made in it; a commit
 * frame says n; the journal is synced; the places set aside are free. */
#include "fs/work/layer_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"

enum { LAYER_HEX = 2 * LAYER_ID_BYTES };

/* ---- memory ---- */

static struct layer *layer_new(const struct io *io, const struct layer_id *id)
{
	struct layer *l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	atomic_init(&l->refs, 1);
	l->io = io ? io : &io_host;
	l->id = *id;
	/* With default attributes these can't fail. */
	(void)pthread_mutex_init(&l->journal.lock, NULL);
	(void)pthread_mutex_init(&l->files.lock, NULL);
	(void)pthread_mutex_init(&l->commit.lock, NULL);
	(void)pthread_cond_init(&l->commit.wake, NULL);
	space_init(&l->space);
	return l;
}

static int set_dir(struct layer *l, const char *root)
{
	char hex[LAYER_HEX + 1];
	hex_encode(hex, l->id.b, LAYER_ID_BYTES);
	if (asprintf(&l->dir, "%s/layers/%s", root, hex) < 0) {
		l->dir = NULL;
		return -ENOMEM;
	}
	return 0;
}

struct layer *layer_ref(struct layer *l)
{
	atomic_fetch_add(&l->refs, 1);
	return l;
}

void layer_unref(struct layer *l)
{
	if (!l || atomic_fetch_sub(&l->refs, 1) != 1)
		return;
	if (l->dir)
		layer_trim(l);
	layer_files_close(l);
	layer_free_index(l);
	space_done(&l->space);
	(void)pthread_mutex_destroy(&l->journal.lock);
	(void)pthread_mutex_destroy(&l->files.lock);
	(void)pthread_mutex_destroy(&l->commit.lock);
	(void)pthread_cond_destroy(&l->commit.wake);
	free(l->dir);
	free(l);
}

struct layer *layer_new_delta(const struct io *io, const struct layer_id *id)
{
	struct layer *l = layer_new(io, id);
	if (l)
		atomic_store(&l->sealed, true);
	return l;
}

/* ---- which boot ---- */

static uint8_t machine_boot[BOOT_ID_BYTES]; /* constant once read */

static void read_machine_boot(void)
{
	static const char path[] = "/proc/sys/kernel/random/boot_id";
	char hex[LAYER_HEX + 1];
	size_t n = 0;
	auto_file *f = fopen(path, "re");
	for (int c; f && n < LAYER_HEX && (c = fgetc(f)) != EOF;)
		if (c != '-' && c != '\n')
			hex[n++] = (char)c;
	hex[n] = '\0';
	/* Unknown: one that no journal has, so that only what is durable counts. */
	if (n != LAYER_HEX || hex_decode(machine_boot, BOOT_ID_BYTES, hex) < 0)
		random_bytes(machine_boot, BOOT_ID_BYTES);
}

static const uint8_t *boot_id(const struct layer_options *opt)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (opt->boot_id)
		return opt->boot_id;
	(void)pthread_once(&once, read_machine_boot);
	return machine_boot;
}

/* ---- create ---- */

static int create_files(struct layer *l, const struct journal_head *head, struct err *err)
{
	const struct io *io = l->io;
	int r = io->mkdir(io->ctx, AT_FDCWD, l->dir, 0700);
	if (r < 0)
		return err_sys(err, r, "create %s", l->dir);
	struct layer_file *f = NULL;
	uint8_t block[JOURNAL_HEAD];
	journal_head_encode(block, head);
	r = layer_file_get(l, LAYER_JOURNAL, LAYER_CREATE, &f);
	if (r == 0) {
		r = io_write_full(io, f->fd, block, sizeof(block), 0);
		layer_file_put(l, f);
	}
	if (r == 0)
		return 0;
	layer_files_close(l);
	auto_free char *journal = layer_path(l, LAYER_JOURNAL);
	/* What can't be removed here, a sweep takes later. */
	if (journal)
		(void)io->unlink(io->ctx, AT_FDCWD, journal, 0);
	(void)io->unlink(io->ctx, AT_FDCWD, l->dir, AT_REMOVEDIR);
	return err_sys(err, r, "create the journal in %s", l->dir);
}

int layer_create(struct layer **out, const struct layer_options *opt, struct err *err)
{
	struct journal_head head;
	random_bytes(&head.id, sizeof(head.id));
	random_bytes(&head.salt, sizeof(head.salt));
	memcpy(head.boot, boot_id(opt), BOOT_ID_BYTES);
	struct layer *l = layer_new(opt->io, &head.id);
	if (!l || set_dir(l, opt->root) < 0) {
		layer_unref(l);
		return err_set(err, -ENOMEM, "no memory for a layer");
	}
	l->writable = true;
	l->journal.salt = head.salt;
	memcpy(l->journal.boot, head.boot, BOOT_ID_BYTES);
	l->journal.end = l->journal.allocated = JOURNAL_HEAD;
	l->commit.created = true;
	int r = create_files(l, &head, err);
	if (r < 0) {
		layer_unref(l);
		return r;
	}
	*out = l;
	return 0;
}

/* ---- replay ---- */

/* Frames from `from` to `to` count for nothing: they were written after the last commit
 * before a boot. */
struct void_range {
	uint64_t from, to;
};

struct commit_point {
	uint64_t upto, end; /* what it covers; where it ends in the file */
	uint64_t ino;
	bool suspect; /* something before it, since the one before, may never have been written */
};

/* What the first walk over a journal finds out: which frames count. */
struct scan {
	struct commit_point last, before; /* the last two commits */
	bool hole;                        /* since the last one */
	uint8_t boot[BOOT_ID_BYTES];      /* which wrote the end of the journal */
	struct void_range *voids;
	size_t nvoids;
	uint64_t ops;           /* frames that a commit must cover */
	uint64_t limit;         /* frames beyond it don't count */
	uint64_t end;           /* the journal goes on here */
	uint64_t seq, last_ino; /* of the last frame seen */
	bool other_boot, cut, lost_tail;
};

static int add_void(struct scan *sc, uint64_t from, uint64_t to)
{
	if (from > to)
		return 0;
	struct void_range *v = reallocarray(sc->voids, sc->nvoids + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	sc->voids = v;
	v[sc->nvoids++] = (struct void_range){ from, to };
	return 0;
}

static bool is_void(const struct scan *sc, uint64_t seq)
{
	for (size_t i = 0; i < sc->nvoids; i++)
		if (seq >= sc->voids[i].from && seq <= sc->voids[i].to)
			return true;
	return false;
}

static int scan_frame(struct scan *sc, const struct journal_walk *w, const struct journal_frame *f)
{
	if (w->gap == GAP_UNWRITTEN || (!f->body_ok && journal_frame_has_hole(f)))
		sc->hole = true;
	sc->last_ino = f->ino;
	if (f->kind == FRAME_OP || f->kind == FRAME_SEAL)
		sc->ops = f->seq;
	if ((f->kind != FRAME_COMMIT && f->kind != FRAME_RESET) || !f->body_ok || f->len < 8)
		return 0;
	uint64_t upto = le_get64(f->body);
	if (upto >= f->seq)
		return 0;
	sc->before = sc->last;
	/* A reset says again what an older commit said; all before it was durable. */
	sc->last = (struct commit_point){ upto, f->end, f->ino,
					  sc->hole && f->kind == FRAME_COMMIT };
	sc->hole = false;
	if (f->kind != FRAME_RESET || f->len < 8 + BOOT_ID_BYTES)
		return 0;
	memcpy(sc->boot, f->body + 8, BOOT_ID_BYTES);
	return add_void(sc, upto + 1, f->seq - 1);
}

/* Walks over the whole journal and decides which frames count (invariant 3). */
static int scan_journal(struct layer *l, int fd, struct scan *sc)
{
	struct journal_walk w;
	struct journal_frame f;
	int r = journal_walk_init(&w, l->io, fd, l->journal.salt);
	if (r < 0)
		return r;
	while ((r = journal_walk_next(&w, &f)) > 0) {
		r = scan_frame(sc, &w, &f);
		if (r < 0)
			break;
	}
	sc->seq = w.last;
	sc->other_boot = memcmp(sc->boot, l->journal.boot, BOOT_ID_BYTES) != 0;
	if (sc->other_boot) {
		const struct commit_point *c = sc->last.suspect ? &sc->before : &sc->last;
		sc->limit = c->upto;
		sc->end = c->end ? c->end : JOURNAL_HEAD;
	} else {
		sc->limit = UINT64_MAX;
		sc->end = w.gap_at;
		/* The writes of one boot are whole, but for one that was cut short or undone. */
		sc->lost_tail = w.gap != GAP_NONE && !w.torn && !w.blank;
		if (r == 0 && w.unreadable)
			r = -EIO;
	}
	sc->cut = w.size > sc->end;
	journal_walk_done(&w);
	return r;
}

/* What the walk's step from frame number `prev` to `f` says of frames in between. */
static void note_missing(struct layer *l, const struct scan *sc, const struct journal_frame *f,
			 uint64_t prev, uint64_t *damaged)
{
	if (f->kind == FRAME_RESET || f->seq == prev + 1 || is_void(sc, f->seq - 1))
		return;
	*damaged += f->seq - prev - 1;
	layer_mark_damaged(l, f->prev_ino);
}

static int replay_frame(struct layer *l, const struct journal_frame *f, struct layer_apply *how,
			uint64_t *damaged)
{
	int r = f->body_ok ? 0 : -EBADMSG;
	if (r == 0 && f->kind == FRAME_OP) {
		r = layer_apply(l, f->body, f->len, how);
		if (r == 0) {
			atomic_fetch_add(&l->records, f->records);
			layer_add_tag(l, f->tag);
		}
	} else if (r == 0 && f->kind == FRAME_SEAL) {
		atomic_store(&l->sealed, true);
	}
	if (r == -EBADMSG) {
		++*damaged;
		layer_mark_damaged(l, f->ino);
		r = 0;
	}
	return r;
}

static int replay(struct layer *l, int fd, const struct scan *sc, const struct layer_options *opt,
		  uint64_t *damaged)
{
	struct journal_walk w;
	struct journal_frame f;
	struct layer_apply how = { .replay = true, .opt = opt };
	uint64_t prev = 0;
	int r = journal_walk_init(&w, l->io, fd, l->journal.salt);
	if (r < 0)
		return r;
	while ((r = journal_walk_next(&w, &f)) > 0 && f.pos < sc->end) {
		/* A commit that covers less than what lies before it: the rest doesn't count. */
		if (f.seq <= sc->limit && !is_void(sc, f.seq)) {
			note_missing(l, sc, &f, prev, damaged);
			r = replay_frame(l, &f, &how, damaged);
			if (r < 0)
				break;
		}
		prev = f.seq;
	}
	journal_walk_done(&w);
	layer_apply_done(&how);
	*damaged += sc->lost_tail;
	layer_mark_partial(l);
	return r < 0 ? r : 0;
}

static void start_from(struct layer *l, const struct scan *sc)
{
	l->journal.seq = sc->seq;
	l->journal.last_ino = sc->last_ino;
	l->journal.end = l->journal.allocated = sc->end;
	l->journal.cut = sc->cut;
	if (sc->other_boot) {
		l->journal.reset = true;
		l->journal.reset_upto = sc->limit;
		l->journal.last_op = l->commit.covered = sc->limit;
	} else {
		/* A commit frame that is there may not have been synced. */
		l->journal.last_op = sc->ops;
		l->files.all_dirty = sc->ops > 0;
		l->commit.created = sc->last.end == 0;
		l->files.dir_dirty = true;
	}
}

static int data_size(struct layer *l, uint64_t *size)
{
	struct layer_file *f;
	struct stat st;
	*size = 0;
	int r = layer_file_get(l, SPACE_PACKED, LAYER_EXISTING, &f);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = l->io->fstat(l->io->ctx, f->fd, &st);
	layer_file_put(l, f);
	if (r == 0 && st.st_size > 0)
		*size = (uint64_t)st.st_size;
	return r;
}

static int read_head(struct layer *l, int fd, struct journal_head *head, struct err *err)
{
	uint8_t block[JOURNAL_HEAD];
	ssize_t n = io_read_full(l->io, fd, block, sizeof(block), 0);
	if (n < 0)
		return err_sys(err, (int)n, "read %s/journal", l->dir);
	int r = journal_head_decode(head, block, (size_t)n);
	if (r == 0 && memcmp(head->id.b, l->id.b, LAYER_ID_BYTES) != 0)
		return err_set(err, -EBADMSG, "%s/journal belongs to another layer", l->dir);
	if (r == -EPROTONOSUPPORT)
		return err_set(err, -EBADMSG,
			       "%s/journal has a version that this program doesn't know", l->dir);
	if (r < 0)
		return err_set(err, r, "the header of %s/journal is damaged", l->dir);
	return 0;
}

static int load(struct layer *l, const struct layer_options *opt, uint64_t *damaged,
		struct err *err)
{
	struct layer_file *f;
	struct journal_head head;
	int r = layer_file_get(l, LAYER_JOURNAL, LAYER_EXISTING, &f);
	if (r < 0)
		return err_sys(err, r, "open %s/journal", l->dir);
	struct scan sc = { 0 };
	r = read_head(l, f->fd, &head, err);
	if (r == 0) {
		l->journal.salt = head.salt;
		memcpy(l->journal.boot, boot_id(opt), BOOT_ID_BYTES);
		memcpy(sc.boot, head.boot, BOOT_ID_BYTES);
		r = scan_journal(l, f->fd, &sc);
		if (r == 0)
			r = replay(l, f->fd, &sc, opt, damaged);
		if (r == 0)
			start_from(l, &sc);
		else
			(void)err_sys(err, r, "read %s/journal", l->dir);
	}
	layer_file_put(l, f);
	free(sc.voids);
	return r;
}

int layer_open(struct layer **out, const struct layer_options *opt, const struct layer_id *id,
	       bool writable, uint64_t *damaged, struct err *err)
{
	uint64_t lost = 0, size = 0;
	struct layer *l = layer_new(opt->io, id);
	if (!l || set_dir(l, opt->root) < 0) {
		layer_unref(l);
		return err_set(err, -ENOMEM, "no memory for a layer");
	}
	l->writable = writable;
	int r = load(l, opt, &lost, err);
	if (r == 0 && writable && !layer_is_sealed(l)) {
		r = data_size(l, &size);
		if (r < 0)
			(void)err_sys(err, r, "look at %s/data", l->dir);
	}
	if (r == 0) {
		r = layer_rebuild_space(l, size, layer_is_dirty(l));
		if (r < 0)
			(void)err_sys(err, r, "count the space of %s", l->dir);
	}
	if (r < 0) {
		layer_unref(l);
		return r;
	}
	if (!writable || layer_is_sealed(l)) {
		l->writable = false;
		atomic_store(&l->sealed, true);
	}
	if (damaged)
		*damaged = lost;
	*out = l;
	return 0;
}

int layer_remove(const struct io *io, const char *root, const struct layer_id *id, struct err *err)
{
	char hex[LAYER_HEX + 1];
	auto_free char *layers = NULL;
	if (asprintf(&layers, "%s/layers", root) < 0) {
		layers = NULL;
		return err_set(err, -ENOMEM, "no memory for a path");
	}
	io = io ? io : &io_host;
	hex_encode(hex, id->b, LAYER_ID_BYTES);
	int fd = io->open(io->ctx, AT_FDCWD, layers, O_RDONLY | O_DIRECTORY, 0);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return err_sys(err, fd, "open %s", layers);
	int r = io_remove_tree(fd, hex, err);
	(void)io->close(io->ctx, fd); /* only read */
	return r < 0 ? err_prefix(err, r, "remove layer %s", hex) : 0;
}

/* ---- seal and commit ---- */

int layer_seal(struct layer *l, struct err *err)
{
	assert(l->dir && l->writable && !layer_is_sealed(l));
	struct journal_frame f = { .kind = FRAME_SEAL };
	auto_buf b = { 0 };
	int r = atomic_load(&l->broken);
	if (r == 0 && buf_room(&b, FRAME_HEAD + FRAME_ALIGN))
		b.len = FRAME_HEAD;
	if (r == 0)
		r = buf_error(&b);
	if (r == 0)
		r = layer_append(l, &b, &f, APPEND_SMALL);
	if (r < 0)
		return err_sys(err, r, "seal %s", l->dir);
	atomic_store(&l->sealed, true);
	space_settle(&l->space);
	return 0;
}

void layer_sync_failed(struct layer *l, int error)
{
	/* The kernel forgets the pages that it couldn't write: no later sync proves anything. */
	(void)pthread_mutex_lock(&l->commit.lock);
	if (!l->commit.error)
		l->commit.error = error;
	(void)pthread_mutex_unlock(&l->commit.lock);
}

static uint64_t last_op(const struct layer *l)
{
	struct layer *m = (struct layer *)l; /* for its lock */
	(void)pthread_mutex_lock(&m->journal.lock);
	uint64_t seq = m->journal.last_op;
	(void)pthread_mutex_unlock(&m->journal.lock);
	return seq;
}

static bool data_dirty(const struct layer *l)
{
	struct layer *m = (struct layer *)l; /* for its lock */
	(void)pthread_mutex_lock(&m->files.lock);
	bool dirty = m->files.all_dirty;
	for (const struct layer_file *f = m->files.list; f && !dirty; f = f->next)
		dirty = f->dirty && !f->gone;
	(void)pthread_mutex_unlock(&m->files.lock);
	return dirty;
}

static int write_commit(struct layer *l, uint64_t upto)
{
	struct journal_frame f = { .kind = FRAME_COMMIT };
	auto_buf b = { 0 };
	if (buf_room(&b, FRAME_HEAD + 8))
		b.len = FRAME_HEAD;
	buf_u64(&b, upto);
	int r = buf_error(&b);
	return r < 0 ? r : layer_append(l, &b, &f, APPEND_SMALL);
}

static int sync_journal(struct layer *l)
{
	struct layer_file *f;
	int r = layer_file_get(l, LAYER_JOURNAL, LAYER_EXISTING, &f);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	r = l->io->fdatasync(l->io->ctx, f->fd);
	if (r < 0)
		layer_sync_failed(l, r);
	layer_file_put(l, f);
	return r;
}

static int sync_parent(struct layer *l)
{
	auto_free char *parent = strndup(l->dir, strlen(l->dir) - LAYER_HEX - 1);
	return parent ? layer_sync_dir(l, parent) : -ENOMEM;
}

/* The syncs of one commit; *upto is what they cover. */
static int commit_sync(struct layer *l, uint64_t covered, bool created, uint64_t *upto)
{
	*upto = last_op(l);
	int r = layer_files_sync(l);
	bool frames = *upto > covered;
	if (r == 0 && frames)
		r = write_commit(l, *upto);
	if (r == 0 && (frames || created))
		r = sync_journal(l);
	if (r == 0 && created)
		r = sync_parent(l);
	return r;
}

/* Called and returns with the commit's lock held. */
static int commit_run(struct layer *l)
{
	uint64_t number = ++l->commit.begun, covered = l->commit.covered, upto = 0;
	bool created = l->commit.created, frees = !l->commit.freeing;
	l->commit.running = true;
	(void)pthread_mutex_unlock(&l->commit.lock);
	if (frees)
		space_commit_begin(&l->space);
	int r = commit_sync(l, covered, created, &upto);
	(void)pthread_mutex_lock(&l->commit.lock);
	l->commit.running = false;
	if (r == 0) {
		l->commit.created = false;
		l->commit.covered = upto > covered ? upto : covered;
		l->commit.done = number;
	}
	(void)pthread_cond_broadcast(&l->commit.wake);
	if (r < 0 || !frees)
		return r;
	/* Others may commit meanwhile, but only this thread frees places. */
	l->commit.freeing = true;
	(void)pthread_mutex_unlock(&l->commit.lock);
	struct space_host host = { layer_punch, layer_unlink_file, l };
	space_commit_end(&l->space, &host);
	layer_trim(l);
	(void)pthread_mutex_lock(&l->commit.lock);
	l->commit.freeing = false;
	return 0;
}

int layer_commit(struct layer *l, struct err *err)
{
	if (!l->dir)
		return 0;
	int r = 0;
	bool dirty = layer_is_dirty(l);
	(void)pthread_mutex_lock(&l->commit.lock);
	uint64_t begun = l->commit.begun; /* a later one covers all that the caller knows of */
	for (;;) {
		r = l->commit.error;
		if (r < 0 || l->commit.done > begun || !dirty)
			break;
		if (!l->commit.running) {
			r = commit_run(l);
			break;
		}
		(void)pthread_cond_wait(&l->commit.wake, &l->commit.lock);
	}
	(void)pthread_mutex_unlock(&l->commit.lock);
	return r < 0 ? err_sys(err, r, "commit %s", l->dir) : 0;
}

bool layer_is_dirty(const struct layer *l)
{
	if (!l->dir)
		return false;
	struct layer *m = (struct layer *)l; /* for its lock */
	uint64_t ops = last_op(l);
	(void)pthread_mutex_lock(&m->commit.lock);
	/* While a commit is under way nothing is known to be durable of what it syncs. */
	bool dirty = m->commit.created || m->commit.running || ops > m->commit.covered;
	(void)pthread_mutex_unlock(&m->commit.lock);
	return dirty || data_dirty(l);
}

/* ---- what it is ---- */

const struct layer_id *layer_id(const struct layer *l)
{
	return &l->id;
}

bool layer_is_local(const struct layer *l)
{
	return l->dir != NULL;
}

bool layer_is_sealed(const struct layer *l)
{
	return atomic_load(&l->sealed);
}

bool layer_is_empty(const struct layer *l)
{
	return atomic_load(&l->records) == 0;
}

uint64_t layer_records(const struct layer *l)
{
	return atomic_load(&l->records);
}

uint64_t layer_epoch(const struct layer *l)
{
	return atomic_load(&l->space.epoch);
}

uint64_t layer_data_bytes(const struct layer *l)
{
	struct space *s = (struct space *)&l->space; /* for its lock */
	(void)pthread_mutex_lock(&s->lock);
	uint64_t n = s->used + s->big_used;
	(void)pthread_mutex_unlock(&s->lock);
	return n;
}

size_t layer_memory(const struct layer *l)
{
	/* An entry of an ordered map takes 16 bytes in a leaf that is two thirds full; a map of
	 * one entry, as most files have for their extents, 32. */
	enum { DIRENT_ENTRY = 24, EXTENT_ENTRY = 32 + sizeof(struct extent) + 8 };
	size_t sum = sizeof(*l) + l->heap;
	sum += (l->inodes.cap + l->dirs.cap) * sizeof(*l->inodes.slots);
	sum += l->dirents * DIRENT_ENTRY + l->extents * EXTENT_ENTRY;
	sum += l->tag_cap * sizeof(*l->tags) + l->ndeps * sizeof(struct layer *);
	sum += l->dir ? strlen(l->dir) + 1 : 0;
	return sum + space_memory((struct space *)&l->space); /* for its lock */
}
