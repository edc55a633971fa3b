/* Layers: their life. Invariants 2, 3 and 9 of the design meet here and in layer_replay.c: what a
 * commit syncs in which order, and which frames a replay believes.
 *
 * A commit: places freed so far are set aside; the number n of the last frame is taken; data files
 * written since the last commit are synced, then the folder, if files were made in it; a commit
 * frame says n; the journal is synced; the places set aside are free. An fsync may make one that
 * frees nothing and leaves big files out (layer_late.c). */
#include "fs/work/layer_impl.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
	u64map_done(&l->files.keep);
	free(l->left_out);
	free(l->commit.late);
	changed_log_unref(atomic_load(&l->changed));
	space_done(&l->space);
	(void)pthread_mutex_destroy(&l->journal.lock);
	(void)pthread_mutex_destroy(&l->files.lock);
	(void)pthread_mutex_destroy(&l->commit.lock);
	(void)pthread_cond_destroy(&l->commit.wake);
	free(l->dir);
	free(l);
}

struct layer *layer_new_local(const struct layer_options *opt, const struct layer_id *id)
{
	struct layer *l = layer_new(opt->io, id);
	if (l && opt->big_file)
		l->space.big_from = opt->big_file;
	if (l && set_dir(l, opt->root) < 0) {
		layer_unref(l);
		return NULL;
	}
	if (l)
		atomic_store(&l->changed, changed_log_new(&l->id));
	return l;
}

struct layer *layer_new_delta(const struct io *io, const struct layer_id *id)
{
	struct layer *l = layer_new(io, id);
	if (l)
		atomic_store(&l->sealed, true);
	return l;
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
	memcpy(head.boot, boot_id(opt->boot_id), BOOT_ID_BYTES);
	struct layer *l = layer_new_local(opt, &head.id);
	if (!l)
		return err_set(err, -ENOMEM, "no memory for a layer");
	l->writable = true;
	l->journal.salt = head.salt;
	memcpy(l->journal.boot, head.boot, BOOT_ID_BYTES);
	l->journal.end = l->journal.allocated = l->journal.zeroed = JOURNAL_HEAD;
	l->commit.created = true;
	int r = create_files(l, &head, err);
	if (r < 0) {
		layer_unref(l);
		return r;
	}
	*out = l;
	return 0;
}

/* ---- open ---- */

int layer_open(struct layer **out, const struct layer_options *opt, const struct layer_id *id,
	       bool writable, struct err *err)
{
	struct layer *l = layer_new_local(opt, id);
	if (!l)
		return err_set(err, -ENOMEM, "no memory for a layer");
	l->writable = writable;
	l->want_tags = opt->tags;
	int r = layer_load(l, opt, err);
	if (r == 0)
		r = layer_load_space(l, err);
	if (r == 0)
		r = layer_load_fault(l, err);
	if (r < 0) {
		layer_unref(l);
		return r;
	}
	if (!writable || layer_is_sealed(l)) {
		l->writable = false;
		atomic_store(&l->sealed, true);
		layer_files_close(l); /* they are opened again when somebody reads */
	}
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

int layer_append_commit(struct layer *l, uint64_t upto, const struct layer_partial *p,
			struct journal_frame *f)
{
	*f = (struct journal_frame){ .kind = FRAME_COMMIT };
	auto_buf b = { 0 };
	if (buf_room(&b, FRAME_HEAD + 8))
		b.len = FRAME_HEAD;
	journal_commit_body(&b, upto, p ? p->late : NULL, p ? p->n : 0);
	int r = buf_error(&b);
	return r < 0 ? r : layer_append(l, &b, f, APPEND_SMALL);
}

static int sync_journal(struct layer *l)
{
	struct layer_file *f;
	int r = layer_file_get(l, LAYER_JOURNAL, LAYER_EXISTING, &f);
	if (r < 0)
		return r == -ENOENT ? -EIO : r;
	r = l->io->fdatasync(l->io->ctx, f->fd);
	if (r < 0)
		layer_sync_failed(l, LAYER_JOURNAL, r);
	layer_file_put(l, f);
	return r;
}

static int sync_parent(struct layer *l)
{
	auto_free char *parent = strndup(l->dir, strlen(l->dir) - LAYER_HEX - 1);
	return parent ? layer_sync_dir(l, parent) : -ENOMEM;
}

/* The syncs of one commit; *upto is what they cover. `p`: it is an fsync's, which leaves out what
 * may be left out; NULL: it is whole. `again`: the one before wasn't. */
static int commit_sync(struct layer *l, struct layer_partial *p, uint64_t covered, bool created,
		       bool again, uint64_t *upto)
{
	struct journal_frame f = { 0 };
	l->log.usable = false;
	*upto = last_op(l);
	int r = layer_files_sync(l, p);
	/* What is in the log must not be carried out over what was synced here. */
	bool frames = *upto > covered || l->log.count > 0 || p || again;
	if (r == 0 && frames)
		layer_make_room(l);
	if (r == 0 && frames)
		r = layer_append_commit(l, *upto, p, &f);
	if (r == 0 && (frames || created))
		r = sync_journal(l);
	if (r == 0 && created)
		r = sync_parent(l);
	if (r == 0) {
		layer_log_settle(l, f.seq, f.end);
		layer_late_settle(l, *upto, p);
	}
	return r;
}

/* A commit has succeeded; its lock is held. `p`: it wasn't whole. */
static void note_commit(struct layer *l, uint64_t number, bool logged,
			const struct layer_partial *p)
{
	l->commit.created = false;
	l->commit.done = number;
	l->commit.good_s = time(NULL);
	if (logged)
		return;
	l->commit.whole = p ? l->commit.whole : number;
	l->commit.partial = p != NULL;
	l->commit.nlate = p ? p->n : 0;
	for (uint32_t i = 0; i < l->commit.nlate; i++)
		l->commit.late[i] = p->late[i];
}

static bool may_leave_out(struct layer *l, uint64_t ino)
{
	if (!layer_has_late(l, ino))
		return false;
	(void)pthread_mutex_lock(&l->commit.lock);
	if (!l->commit.late)
		l->commit.late = calloc(JOURNAL_LATE_MAX, sizeof(*l->commit.late));
	bool room = l->commit.late != NULL;
	(void)pthread_mutex_unlock(&l->commit.lock);
	return room;
}

/* Called and returns with the commit's lock held. `asked`: by an fsync of `ino`, so the log is
 * enough, or what isn't whole. */
static int commit_run(struct layer *l, bool asked, uint64_t ino)
{
	uint64_t number = ++l->commit.begun, covered = l->commit.covered, upto = 0;
	bool created = l->commit.created, frees = !l->commit.freeing, again = l->commit.partial;
	struct layer_partial some = { .ino = ino, .covered = covered };
	l->commit.running = true;
	(void)pthread_mutex_unlock(&l->commit.lock);
	int r = asked && !created ? layer_log_commit(l, &upto) : 0;
	bool logged = r > 0;
	const bool partial = r == 0 && asked && may_leave_out(l, ino);
	frees = frees && !partial;
	if (r == 0 && frees)
		space_commit_begin(&l->space);
	if (r == 0)
		r = commit_sync(l, partial ? &some : NULL, covered, created, again, &upto);
	(void)pthread_mutex_lock(&l->commit.lock);
	l->commit.running = false;
	/* Another sync has failed meanwhile, and said that no more was durable than before. */
	r = r >= 0 && l->commit.error < 0 ? l->commit.error : r;
	if (r >= 0) {
		l->commit.covered = upto > covered ? upto : covered;
		note_commit(l, number, logged, partial ? &some : NULL);
	}
	(void)pthread_cond_broadcast(&l->commit.wake);
	if (r < 0 || logged || !frees)
		return r < 0 ? r : 0;
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

/* Something isn't durable, not even by the log. */
static bool is_pending(struct layer *l)
{
	uint64_t ops = last_op(l);
	(void)pthread_mutex_lock(&l->commit.lock);
	bool pending = l->commit.created || l->commit.running || l->commit.partial ||
		       ops > l->commit.covered;
	/* A whole commit has failed: records could be carried out over what it synced. */
	pending = pending || (l->log.count > 0 && !l->log.usable);
	(void)pthread_mutex_unlock(&l->commit.lock);
	(void)pthread_mutex_lock(&l->files.lock);
	pending |= l->files.all_dirty || l->files.pending.over || l->files.pending.n > 0;
	(void)pthread_mutex_unlock(&l->files.lock);
	return pending;
}

/* The last commit that isn't one of the log left it out. */
static bool is_left_out(const struct layer *l, uint64_t ino)
{
	for (uint32_t i = 0; i < l->commit.nlate; i++)
		if (l->commit.late[i].ino == ino)
			return true;
	return false;
}

static int commit(struct layer *l, bool asked, uint64_t ino, struct err *err)
{
	if (!l->dir)
		return 0;
	int r = 0;
	bool dirty = asked ? is_pending(l) : layer_is_dirty(l);
	(void)pthread_mutex_lock(&l->commit.lock);
	uint64_t begun = l->commit.begun; /* a later one covers all that the caller knows of */
	for (;;) {
		r = l->commit.error;
		bool done = asked ? l->commit.done > begun && !is_left_out(l, ino)
				  : l->commit.whole > begun;
		if (r < 0 || done || !dirty)
			break;
		if (!l->commit.running) {
			r = commit_run(l, asked, ino);
			break;
		}
		(void)pthread_cond_wait(&l->commit.wake, &l->commit.lock);
	}
	(void)pthread_mutex_unlock(&l->commit.lock);
	return r < 0 ? err_sys(err, r, "commit %s", l->dir) : 0;
}

int layer_commit(struct layer *l, struct err *err)
{
	layer_sync_ahead(l, 0);
	return commit(l, false, 0, err);
}

int layer_fsync(struct layer *l, uint64_t ino, struct err *err)
{
	if (l->dir && l->writable) {
		(void)pthread_mutex_lock(&l->journal.lock);
		l->journal.roomy = true;
		(void)pthread_mutex_unlock(&l->journal.lock);
	}
	if (ino)
		layer_sync_ahead(l, ino);
	return commit(l, true, ino, err);
}

bool layer_is_dirty(const struct layer *l)
{
	if (!l->dir)
		return false;
	struct layer *m = (struct layer *)l; /* for its lock */
	uint64_t ops = last_op(l);
	(void)pthread_mutex_lock(&m->commit.lock);
	/* While a commit is under way nothing is known to be durable of what it syncs. */
	bool dirty = m->commit.created || m->commit.running || ops > m->commit.covered ||
		     m->log.count > 0 || m->commit.partial;
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
	return atomic_load(&l->records) == 0 && l->lost == 0;
}

uint64_t layer_lost(const struct layer *l)
{
	return l->lost;
}

uint64_t layer_corrected(const struct layer *l)
{
	return l->corrected;
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

const struct changed_log *layer_changed(const struct layer *l)
{
	return atomic_load(&((struct layer *)l)->changed); /* loads take no const before C23 */
}

void layer_lend_changed(struct layer *to, const struct layer *from)
{
	struct changed_log *g = (struct changed_log *)layer_changed(from), *none = NULL;
	if (!g || layer_is_local(to))
		return;
	changed_log_ref(g);
	if (!atomic_compare_exchange_strong(&to->changed, &none, g))
		changed_log_unref(g);
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
	const struct changed_log *g = layer_changed(l);
	sum += g ? changed_log_bytes(g) : 0;
	return sum + space_memory((struct space *)&l->space); /* for its lock */
}
