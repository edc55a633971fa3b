/* The root: its lock, inode numbers, the list of open workspaces, and the one thread that
 * commits what is dirty and gives back memory that is idle. */
#include "fs/work/ws_impl.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include "fs/base/boot.h"
#include "fs/base/clock.h"

/* ---- inode numbers ---- */

static int ino_refill(struct work *w, struct err *err)
{
	uint64_t first;
	int r = ino_reserve(w->io, w->root, INO_RANGE, &first, err);
	if (r == 0) {
		w->ino_next = w->ino_told = first;
		w->ino_end = first + INO_RANGE;
	}
	return r;
}

/* Before the numbers behind ino_told are given out, the next server must know. */
static int ino_tell(struct work *w)
{
	uint64_t left = w->ino_end - w->ino_next;
	uint64_t told = w->ino_next + (left < INO_TELL ? left : INO_TELL);
	int r = ino_rest_put(w->io, w->root_fd, w->boot, told, w->ino_end);
	if (r == 0)
		w->ino_told = told;
	return r;
}

int work_ino(struct work *w, uint64_t *ino)
{
	pthread_mutex_lock(&w->ino_lock);
	int r = w->ino_next < w->ino_end ? 0 : ino_refill(w, NULL);
	if (r == 0 && w->ino_next == w->ino_told)
		r = ino_tell(w);
	if (r == 0)
		*ino = w->ino_next++;
	pthread_mutex_unlock(&w->ino_lock);
	return r == -EBADMSG ? -EIO : r;
}

int work_birth(struct work *w, uint64_t *ino, struct err *err)
{
	uint64_t next;
	pthread_mutex_lock(&w->ino_lock);
	int r = w->ino_next < w->ino_end ? ino_peek(w->io, w->root, &next, err) : 1;
	/* When somebody else has reserved since, the rest of our range is below theirs. */
	if (r > 0 || (r == 0 && next != w->ino_end))
		r = ino_refill(w, err);
	if (r == 0)
		*ino = w->ino_next;
	pthread_mutex_unlock(&w->ino_lock);
	return r;
}

int work_ino_floor(struct work *w, uint64_t *ino, struct err *err)
{
	int r = 0;
	pthread_mutex_lock(&w->ino_lock);
	if (w->ino_next < w->ino_end)
		*ino = w->ino_next;
	else
		r = ino_peek(w->io, w->root, ino, err);
	pthread_mutex_unlock(&w->ino_lock);
	return r;
}

int work_above(struct work *w, uint64_t *ino, struct err *err)
{
	int r = 0;
	pthread_mutex_lock(&w->ino_lock);
	if (w->ino_end == 0) { /* none was given out since the start */
		uint64_t next;
		r = ino_peek(w->io, w->root, &next, err);
		if (r == 0)
			w->ino_next = w->ino_end = next;
	}
	if (r == 0)
		*ino = w->ino_next;
	pthread_mutex_unlock(&w->ino_lock);
	return r;
}

/* ---- the list ---- */

static struct ws *list_find(struct work *w, const char *id)
{
	for (struct ws *ws = w->list; ws; ws = ws->next)
		if (strcmp(ws->id, id) == 0)
			return ws;
	return NULL;
}

bool work_has(struct work *w, const char *id)
{
	pthread_mutex_lock(&w->list_lock);
	bool has = list_find(w, id) != NULL;
	pthread_mutex_unlock(&w->list_lock);
	return has;
}

int work_add(struct work *w, struct ws *ws)
{
	pthread_mutex_lock(&w->list_lock);
	int r = list_find(w, ws->id) ? -EBUSY : 0;
	if (r == 0) {
		ws->next = w->list;
		w->list = ws;
	}
	pthread_mutex_unlock(&w->list_lock);
	return r;
}

void work_remove(struct work *w, struct ws *ws)
{
	pthread_mutex_lock(&w->list_lock);
	while (ws->visits > 0)
		pthread_cond_wait(&w->list_cond, &w->list_lock);
	for (struct ws **p = &w->list; *p; p = &(*p)->next) {
		if (*p == ws) {
			*p = ws->next;
			break;
		}
	}
	pthread_mutex_unlock(&w->list_lock);
}

/* ---- the thread ---- */

void work_each(struct work *w, void (*fn)(struct ws *ws, void *ctx), void *ctx)
{
	pthread_mutex_lock(&w->list_lock);
	struct ws *ws = w->list;
	if (ws)
		ws->visits++;
	while (ws) {
		pthread_mutex_unlock(&w->list_lock);
		fn(ws, ctx);
		pthread_mutex_lock(&w->list_lock);
		struct ws *next = ws->next;
		if (next)
			next->visits++;
		ws->visits--;
		pthread_cond_broadcast(&w->list_cond);
		ws = next;
	}
	pthread_mutex_unlock(&w->list_lock);
}

static void commit_one(struct ws *ws, void *ctx)
{
	/* A failure is told to whoever asks for an fsync; the layer remembers. */
	if (ws_is_dirty(ws))
		(void)ws_commit(ws, NULL);
}

static void look_at_one(struct ws *ws, void *ctx)
{
	bool *busy = ctx;
	if (atomic_exchange_explicit(&ws->touched, false, memory_order_relaxed))
		*busy = true;
}

static void idle_one(struct ws *ws, void *ctx)
{
	struct view v;
	ws_enter(ws);
	int r = view_copy(&v, &ws->view);
	ws_leave(ws);
	atomic_store_explicit(&ws->touched, false, memory_order_relaxed); /* that was us */
	if (r < 0)
		return;
	for (uint32_t i = 0; i < v.nlayers; i++)
		layer_idle(v.layers[i]);
	if (v.image)
		image_idle(v.image);
	view_done(&v);
}

static void wait_ms(struct work *w, uint64_t ms)
{
	struct timespec t = clock_in_ms((int64_t)ms);
	pthread_cond_timedwait(&w->list_cond, &w->list_lock, &t);
}

static void give_back(struct work *w)
{
	work_each(w, idle_one, NULL);
	registry_trim(w->registry);
	readahead_trim(w->ahead);
	store_trim(w->store, 0);
	malloc_trim(0);
}

static void *background(void *arg)
{
	struct work *w = arg;
	const bool commits = w->commit_ms != UINT64_MAX;
	const uint64_t tick = commits && w->commit_ms < IDLE_MS ? w->commit_ms : IDLE_MS;
	uint64_t committed = clock_ms(), active = committed, trimmed = committed;
	bool idle = false; /* memory was given back since the last operation */
	pthread_mutex_lock(&w->list_lock);
	while (!w->stop) {
		uint64_t end = clock_ms() + tick;
		for (uint64_t now = end - tick; now < end && !w->stop; now = clock_ms())
			wait_ms(w, end - now);
		if (w->stop)
			break;
		pthread_mutex_unlock(&w->list_lock);
		uint64_t now = clock_ms();
		if (commits && now - committed >= w->commit_ms) {
			work_each(w, commit_one, NULL);
			committed = now;
		}
		bool busy = false;
		work_each(w, look_at_one, &busy);
		/* Under load that never ends, too, since descriptors are few. */
		if (now - trimmed >= TRIM_MS) {
			registry_trim(w->registry);
			trimmed = now;
		}
		if (busy) {
			active = now;
			idle = false;
		} else if (!idle && now - active >= IDLE_MS) {
			give_back(w);
			idle = true;
		}
		pthread_mutex_lock(&w->list_lock);
	}
	pthread_mutex_unlock(&w->list_lock);
	return NULL;
}

/* ---- life ---- */

static int make_folder(struct work *w, const char *name, struct err *err)
{
	int r = w->io->mkdir(w->io->ctx, w->root_fd, name, 0700);
	return r < 0 && r != -EEXIST ? err_sys(err, r, "make %s/%s", w->root, name) : 0;
}

static int open_root(struct work *w, const char *root, struct err *err)
{
	w->root = strdup(root);
	if (!w->root || asprintf(&w->images, "%s/images", root) < 0) {
		w->images = NULL;
		return err_no_memory(err);
	}
	int r = w->io->mkdir(w->io->ctx, AT_FDCWD, root, 0700);
	if (r < 0 && r != -EEXIST)
		return err_sys(err, r, "make %s", root);
	w->root_fd = w->io->open(w->io->ctx, AT_FDCWD, root, O_RDONLY | O_DIRECTORY, 0);
	if (w->root_fd < 0)
		return err_sys(err, w->root_fd, "open %s", root);
	w->lock_fd = w->io->open(w->io->ctx, w->root_fd, "server.lock", O_RDWR | O_CREAT, 0600);
	if (w->lock_fd < 0)
		return err_sys(err, w->lock_fd, "open %s/server.lock", root);
	if (flock(w->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK
			       ? err_set(err, -EBUSY, "another process serves %s", root)
			       : err_sys(err, -errno, "lock %s/server.lock", root);
	static const char *const folders[] = { "ws", "layers", "images" };
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		r = make_folder(w, folders[i], err);
		if (r < 0)
			return r;
	}
	w->ws_fd = w->io->open(w->io->ctx, w->root_fd, "ws", O_RDONLY | O_DIRECTORY, 0);
	return w->ws_fd < 0 ? err_sys(err, w->ws_fd, "open %s/ws", root) : 0;
}

int work_each_name(struct work *w, const char *folder,
		   int (*fn)(struct work *w, const char *name, void *ctx, struct err *err),
		   void *ctx, struct err *err)
{
	int fd = openat(w->root_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "open %s/%s", w->root, folder);
	auto_dir *d = fdopendir(fd);
	if (!d) {
		int r = -errno;
		(void)close(fd); /* only read */
		return err_sys(err, r, "read %s/%s", w->root, folder);
	}
	int r = 0;
	struct dirent *de;
	while (r == 0 && (errno = 0, de = readdir(d))) {
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = fn(w, de->d_name, ctx, err);
	}
	if (r == 0 && errno)
		r = err_sys(err, -errno, "read %s/%s", w->root, folder);
	return r;
}

/* *f is taken over. */
static int older_add(struct work *w, const char *id, struct ws_file *f)
{
	struct older *o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	(void)snprintf(o->id, sizeof(o->id), "%s", id);
	o->file = *f;
	*f = (struct ws_file){ 0 };
	o->next = w->older;
	w->older = o;
	return 0;
}

bool work_take_older(struct work *w, const char *id, struct ws_file *out)
{
	pthread_mutex_lock(&w->list_lock);
	struct older **p = &w->older;
	while (*p && strcmp((*p)->id, id) != 0)
		p = &(*p)->next;
	struct older *o = *p;
	if (o)
		*p = o->next;
	pthread_mutex_unlock(&w->list_lock);
	if (o)
		*out = o->file;
	free(o);
	return o != NULL;
}

/* What a workspace's file names is kept. Of two versions, both may come to count. */
static int name_one(struct work *w, const char *id, void *ctx, struct err *err)
{
	struct ws_file f[2] = { 0 };
	unsigned n = 0;
	if (ws_id_check(id, NULL) < 0)
		return 0; /* a folder half made or half removed */
	int r = ws_file_load(f, &n, w->io, w->root, id, w->boot, NULL);
	/* Opening it will say so. What is damaged can't be opened later either, until somebody
	 * mends it: work_sweep spares the layers meanwhile. */
	if (r < 0 && r != -EBADMSG)
		registry_spare(w->registry);
	if (r < 0)
		return 0;
	r = registry_name(w->registry, &f[0]);
	if (r == 0 && n > 1)
		r = registry_name(w->registry, &f[1]);
	if (r == 0 && n > 1)
		r = older_add(w, id, &f[1]);
	for (unsigned i = 0; i < n; i++)
		ws_file_done(&f[i]);
	return r < 0 ? err_sys(err, r, "workspace %s", id) : 0;
}

static void work_free(struct work *w)
{
	for (struct older *o = w->older, *next; o; o = next) {
		next = o->next;
		ws_file_done(&o->file);
		free(o);
	}
	readahead_free(w->ahead);
	registry_free(w->registry);
	store_close(w->store);
	const int fds[] = { w->ws_fd, w->lock_fd, w->root_fd };
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			(void)w->io->close(w->io->ctx, fds[i]); /* nothing was written to them */
	pthread_mutex_destroy(&w->ino_lock);
	pthread_mutex_destroy(&w->list_lock);
	pthread_cond_destroy(&w->list_cond);
	pthread_mutex_destroy(&w->watch_lock);
	pthread_cond_destroy(&w->watch_cond);
	free(w->images);
	free(w->root);
	free(w);
}

static void layer_options_of(struct work *w, struct layer_options *out)
{
	*out = (struct layer_options){
		.io = w->io,
		.root = w->root,
		.store = w->store,
		.boot_id = w->boot,
		.tags = w->resumes,
		.big_file = w->big_file,
	};
}

int work_new_layer(struct work *w, struct layer **out, struct err *err)
{
	struct layer_options lo;
	layer_options_of(w, &lo);
	int r = layer_create(out, &lo, err);
	if (r == 0)
		registry_made(w->registry, layer_id(*out));
	return r;
}

static int work_start(struct work *w, const char *root, const struct work_options *opt,
		      struct err *err)
{
	int r = open_root(w, root, err);
	if (r < 0)
		return r;
	auto_free char *store = NULL, *repos = NULL;
	if (asprintf(&store, "%s/store", root) < 0)
		store = NULL;
	if (asprintf(&repos, "%s/repos", root) < 0)
		repos = NULL;
	if (!store || !repos)
		return err_no_memory(err);
	struct layer_options lo;
	struct store_options so = { .io = opt->io,
				    .create = true,
				    .cache_bytes = opt->cache_bytes,
				    .boot_id = w->boot,
				    .repos = repos };
	r = store_open(&w->store, store, &so, err);
	layer_options_of(w, &lo);
	if (r == 0)
		r = registry_new(&w->registry, &lo, w->images, err);
	/* Of one that was killed: no inode has to wait for the disk then. */
	if (r == 0 &&
	    ino_rest_take(w->io, root, w->root_fd, w->boot, &w->ino_next, &w->ino_end) == 0)
		w->ino_told = w->ino_next;
	if (r == 0 && opt->read_ahead && work_ahead_new(w, opt->cache_bytes) < 0)
		r = err_no_memory(err);
	if (r == 0)
		r = work_each_name(w, "ws", name_one, NULL, err);
	if (r < 0)
		return r;
	r = pthread_create(&w->thread, NULL, background, w);
	if (r != 0)
		return err_sys(err, -r, "start a thread");
	w->has_thread = true;
	return 0;
}

int work_open(struct work **out, const char *root, const struct work_options *opt, struct err *err)
{
	static const struct work_options defaults;
	opt = opt ? opt : &defaults;
	struct work *w = calloc(1, sizeof(*w));
	if (!w)
		return err_no_memory(err);
	w->io = opt->io ? opt->io : &io_host;
	w->root_fd = w->lock_fd = w->ws_fd = -1;
	memcpy(w->boot, boot_id(opt->boot_id), sizeof(w->boot));
	w->resumes = opt->resumes;
	w->told = opt->told;
	w->told_ctx = opt->told_ctx;
	w->big_file = opt->big_file;
	w->commit_ms = opt->commit_ms ? opt->commit_ms : COMMIT_MS_DEFAULT;
	pthread_mutex_init(&w->ino_lock, NULL);
	pthread_mutex_init(&w->list_lock, NULL);
	clock_cond_init(&w->list_cond);
	pthread_mutex_init(&w->watch_lock, NULL);
	clock_cond_init(&w->watch_cond);
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail for this clock */
	w->changes = w->changes_base = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	int r = work_start(w, root, opt, err);
	if (r < 0) {
		work_free(w);
		return r;
	}
	*out = w;
	return 0;
}

void work_close(struct work *w)
{
	if (!w)
		return;
	assert(!w->list);
	pthread_mutex_lock(&w->list_lock);
	w->stop = true;
	pthread_cond_broadcast(&w->list_cond);
	pthread_mutex_unlock(&w->list_lock);
	if (w->has_thread)
		pthread_join(w->thread, NULL);
	work_free(w);
}

struct store *work_store(struct work *w)
{
	return w->store;
}

void work_view_options(struct work *w, struct view_options *out)
{
	registry_options(w->registry, out);
}

void work_trim(struct work *w)
{
	give_back(w);
}

/* ---- sweeping ---- */

struct sweep {
	bool (*known)(void *ctx, const char *id);
	void *ctx;
	bool spare_all;         /* a workspace couldn't be read: what it names isn't known */
	struct layer_id *spare; /* what an older, durable file of a workspace names */
	size_t nspare;
};

/* After power loss an older file of the workspace may count again. */
static int spare(struct sweep *s, const struct ws_file *f)
{
	size_t more = f->stack.nlayers + f->npins + 1;
	struct layer_id *v = realloc(s->spare, (s->nspare + more) * sizeof(*v));
	if (!v)
		return -ENOMEM;
	s->spare = v;
	for (uint32_t i = 0; i < f->stack.nlayers; i++)
		v[s->nspare++] = f->stack.layers[i].id;
	for (uint32_t i = 0; i < f->npins; i++)
		v[s->nspare++] = f->pins[i];
	v[s->nspare++] = f->active;
	return 0;
}

static int sweep_ws(struct work *w, const char *name, void *ctx, struct err *err)
{
	struct sweep *s = ctx;
	if (ws_id_check(name, NULL) < 0)
		return io_remove_tree(w->ws_fd, name, err);
	if (s->known(s->ctx, name)) {
		struct ws_file f[2];
		unsigned n = 0;
		int r = ws_file_load(f, &n, w->io, w->root, name, w->boot, NULL);
		s->spare_all |= r < 0;
		if (r < 0)
			return 0;
		r = n > 1 ? spare(s, &f[1]) : 0;
		for (unsigned i = 0; i < n; i++)
			ws_file_done(&f[i]);
		return r < 0 ? err_sys(err, r, "workspace %s", name) : 0;
	}
	return ws_delete(w, name, err);
}

static int sweep_layer(struct work *w, const char *name, void *ctx, struct err *err)
{
	const struct sweep *s = ctx;
	struct layer_id id;
	if (hex_decode(id.b, sizeof(id.b), name) < 0)
		return 0; /* not ours */
	for (size_t i = 0; i < s->nspare; i++)
		if (memcmp(&s->spare[i], &id, sizeof(id)) == 0)
			return 0;
	return registry_is_named(w->registry, &id) ? 0 : layer_remove(w->io, w->root, &id, err);
}

int work_sweep(struct work *w, bool (*known)(void *ctx, const char *id), void *ctx, struct err *err)
{
	struct sweep s = { .known = known, .ctx = ctx };
	pthread_mutex_lock(&w->list_lock);
	bool open = w->list != NULL;
	pthread_mutex_unlock(&w->list_lock);
	if (open)
		return err_set(err, -EBUSY, "workspaces are open");
	int r = work_each_name(w, "ws", sweep_ws, &s, err);
	if (r == 0 && !s.spare_all)
		r = work_each_name(w, "layers", sweep_layer, &s, err);
	free(s.spare);
	return r;
}
