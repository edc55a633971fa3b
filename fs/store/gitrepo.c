/* Repositories: which packs they have, and finding an object in them.
 *
 * One mutex guards what is known of folders and packs; it is held while a folder is looked at
 * and a pack is opened, and never while an object is looked up or read. A look-up works on the
 * set of packs as it was when it began. */
#include "fs/store/gitrepo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/u64map.h"
#include "fs/store/gitimpl.h"

enum {
	GIT_BASES_BYTES = 32 << 20, /* bound of the cache of bases */
	GIT_READERS_KEPT = 8,
	GIT_PACKS_OPEN = 128,    /* packs kept open, at two descriptors each */
	GIT_PACKS_MAX = 1 << 16, /* packs of one repository; git is unusable long before */
	GIT_LOOK_MS = 1000,      /* how often a folder's time is looked at without a miss */
	/* A folder that changed so shortly before it was read may have changed once more
	 * without another time: the kernel's clock for files ticks each 10 ms at worst. */
	GIT_RACY_NS = 20 * 1000 * 1000,
	GIT_ROUNDS = 4, /* how often a look-up begins anew since packs came and went */
};

struct pack {
	struct gitpack p;
	unsigned refs;  /* of sets */
	unsigned users; /* who read from it now */
	bool open;
	uint64_t used_ms; /* when last */
	char name[];      /* without its ending */
};

/* The packs of a repository at one moment; never changes. */
struct packset {
	unsigned refs;
	size_t n;
	struct pack *v[];
};

struct repo {
	int dirfd;           /* its folder "objects" */
	struct packset *set; /* NULL: to be read anew */
	struct pack *last;   /* of the set: where an object was found last; or NULL */
	unsigned users;
	bool gone; /* no longer in the map: closed by its last user */
	bool racy;
	struct timespec changed; /* of objects/pack when the set was read */
	uint64_t looked_ms, used_ms;
};

struct gitrepos {
	const struct io *io;
	char *dir;
	pthread_mutex_t lock, big;
	struct u64map repos; /* by number + 1 */
	struct gitreader *readers;
	unsigned nreaders, nopen;
	uint64_t serial;
	struct gitbases bases;
};

/* ---- life ---- */

int gitrepos_new(struct gitrepos **out, const struct io *io, const char *dir, struct err *err)
{
	struct gitrepos *g = calloc(1, sizeof(*g));
	auto_free char *cwd = NULL;
	if (!g)
		return err_sys(err, -ENOMEM, "open %s", dir);
	g->io = io ? io : &io_host;
	(void)pthread_mutex_init(&g->lock, NULL);
	(void)pthread_mutex_init(&g->big, NULL);
	int r = gitbases_init(&g->bases, GIT_BASES_BYTES);
	/* The folder may not exist yet, and the working directory may change. */
	if (r == 0 && dir[0] != '/' && !(cwd = getcwd(NULL, 0)))
		r = -errno;
	if (r == 0 && asprintf(&g->dir, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", dir) < 0) {
		g->dir = NULL;
		r = -ENOMEM;
	}
	if (r < 0) {
		gitrepos_free(g);
		return err_sys(err, r, "open %s", dir);
	}
	*out = g;
	return 0;
}

/* ---- packs, under the lock ---- */

static void pack_shut(struct gitrepos *g, struct pack *p)
{
	if (!p->open)
		return;
	gitpack_close(&p->p);
	p->open = false;
	g->nopen--;
}

static void set_unref(struct gitrepos *g, struct packset *s)
{
	if (!s || --s->refs > 0)
		return;
	for (size_t i = 0; i < s->n; i++) {
		struct pack *p = s->v[i];
		if (--p->refs > 0)
			continue;
		pack_shut(g, p);
		free(p);
	}
	free(s);
}

static struct pack *set_find(const struct packset *s, const char *name)
{
	for (size_t i = 0; s && i < s->n; i++)
		if (strcmp(s->v[i]->name, name) == 0)
			return s->v[i];
	return NULL;
}

/* Shuts the pack that was unused for longest: false when all are used. */
static bool shut_oldest(struct gitrepos *g)
{
	struct pack *oldest = NULL;
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&g->repos, &i));) {
		const struct packset *s = ((struct repo *)slot->value)->set;
		for (size_t k = 0; s && k < s->n; k++)
			if (s->v[k]->open && s->v[k]->users == 0 &&
			    (!oldest || s->v[k]->used_ms < oldest->used_ms))
				oldest = s->v[k];
	}
	if (oldest)
		pack_shut(g, oldest);
	return oldest != NULL;
}

static int pack_open_locked(struct gitrepos *g, const struct repo *rp, struct pack *p)
{
	int dirfd, r;
	while (g->nopen >= GIT_PACKS_OPEN && shut_oldest(g))
		;
	do {
		dirfd = g->io->open(g->io->ctx, rp->dirfd, "pack", O_RDONLY | O_DIRECTORY, 0);
		p->p = (struct gitpack){ .io = g->io, .serial = ++g->serial };
		r = dirfd < 0 ? dirfd : gitpack_open(&p->p, dirfd, p->name);
		if (dirfd >= 0)
			(void)g->io->close(g->io->ctx, dirfd); /* a folder, only looked into */
	} while ((r == -EMFILE || r == -ENFILE) && shut_oldest(g));
	if (r < 0)
		return r;
	p->open = true;
	g->nopen++;
	return 0;
}

/* One use of the open pack. */
static int pack_get(struct gitrepos *g, const struct repo *rp, struct pack *p)
{
	(void)pthread_mutex_lock(&g->lock);
	int r = p->open ? 0 : pack_open_locked(g, rp, p);
	if (r == 0) {
		p->users++;
		p->used_ms = clock_ms();
	}
	(void)pthread_mutex_unlock(&g->lock);
	return r;
}

static void pack_put(struct gitrepos *g, struct pack *p)
{
	(void)pthread_mutex_lock(&g->lock);
	p->users--;
	(void)pthread_mutex_unlock(&g->lock);
}

/* ---- the set of packs, under the lock ---- */

/* "pack-….idx" without its ending, as a new or the known pack; NULL and 0: another name. */
static int pack_of_name(const struct packset *old, const char *file, struct pack **out)
{
	size_t n = strlen(file);
	*out = NULL;
	if (n <= 4 || strncmp(file, "pack-", 5) != 0 || strcmp(file + n - 4, ".idx") != 0)
		return 0;
	char name[NAME_MAX + 1];
	(void)snprintf(name, sizeof(name), "%.*s", (int)(n - 4), file);
	struct pack *p = set_find(old, name);
	if (!p) {
		p = calloc(1, sizeof(*p) + strlen(name) + 1);
		if (!p)
			return -ENOMEM;
		memcpy(p->name, name, strlen(name));
	}
	p->refs++;
	*out = p;
	return 0;
}

/* Newest first would be best for look-ups; names say nothing of that, so whatever order the
 * folder has, and `last` makes up for it. */
static int set_list(const struct packset *old, DIR *dir, struct pack ***v, size_t *n)
{
	size_t cap = 0;
	const struct dirent *de;
	while (errno = 0, (de = readdir(dir))) {
		if (*n == GIT_PACKS_MAX)
			return -E2BIG;
		if (array_grow(v, *n, &cap) < 0)
			return -ENOMEM;
		int r = pack_of_name(old, de->d_name, &(*v)[*n]);
		if (r < 0)
			return r;
		*n += (*v)[*n] != NULL;
	}
	return -errno;
}

static int set_make(struct gitrepos *g, struct repo *rp, DIR *dir)
{
	auto_free struct pack **v = NULL;
	size_t n = 0;
	int r = dir ? set_list(rp->set, dir, &v, &n) : 0;
	struct packset *s = r == 0 ? malloc(sizeof(*s) + n * sizeof(s->v[0])) : NULL;
	if (!s) {
		for (size_t i = 0; i < n; i++)
			if (--v[i]->refs == 0)
				free(v[i]);
		return r < 0 ? r : -ENOMEM;
	}
	*s = (struct packset){ .refs = 1, .n = n };
	if (n)
		memcpy(s->v, v, n * sizeof(s->v[0]));
	if (rp->last && !set_find(s, rp->last->name))
		rp->last = NULL;
	set_unref(g, rp->set);
	rp->set = s;
	return 0;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Did it change within GIT_RACY_NS before now, or is its time in the future? */
static bool is_racy(const struct timespec *t)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail for this clock */
	if (now.tv_sec - 1 > t->tv_sec || now.tv_sec < t->tv_sec)
		return now.tv_sec < t->tv_sec;
	return (now.tv_sec - t->tv_sec) * 1000000000 + now.tv_nsec - t->tv_nsec < GIT_RACY_NS;
}

/* Reads the folder of packs unless it is as it was: 1, 0 for nothing new, or -errno. */
static int repo_look(struct gitrepos *g, struct repo *rp)
{
	struct stat st = { 0 };
	auto_dir *dir = NULL;
	int fd = g->io->open(g->io->ctx, rp->dirfd, "pack", O_RDONLY | O_DIRECTORY, 0);
	rp->looked_ms = clock_ms();
	if (fd < 0 && fd != -ENOENT)
		return fd;
	int r = fd < 0 ? 0 : g->io->fstat(g->io->ctx, fd, &st);
	bool same = rp->set && !rp->racy && same_time(&st.st_mtim, &rp->changed);
	if (r == 0 && fd >= 0 && !same && !(dir = fdopendir(fd)))
		r = -errno;
	if (fd >= 0 && !dir)
		(void)g->io->close(g->io->ctx, fd); /* a folder, only looked at */
	if (r < 0 || same)
		return r;
	bool racy = is_racy(&st.st_mtim); /* before it is read, so that all later is seen */
	r = set_make(g, rp, dir);
	if (r < 0)
		return r;
	rp->changed = st.st_mtim;
	rp->racy = racy;
	return 1;
}

/* ---- repositories, under the lock ---- */

static void repo_close(struct gitrepos *g, struct repo *rp)
{
	set_unref(g, rp->set);
	(void)g->io->close(g->io->ctx, rp->dirfd); /* a folder, only read */
	free(rp);
}

static int repo_open(struct gitrepos *g, uint32_t number, struct repo **out)
{
	char path[PATH_MAX], name[REPO_NAME_BYTES];
	repo_folder_name(name, number);
	int n = snprintf(path, sizeof(path), "%s/%s/objects", g->dir, name);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	int fd = g->io->open(g->io->ctx, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	struct repo *rp = calloc(1, sizeof(*rp));
	int r = rp ? u64map_put(&g->repos, (uint64_t)number + 1, rp) : -ENOMEM;
	if (r < 0) {
		(void)g->io->close(g->io->ctx, fd); /* as above */
		free(rp);
		return r;
	}
	rp->dirfd = fd;
	*out = rp;
	return 0;
}

static void repo_unuse(struct gitrepos *g, struct repo *rp)
{
	rp->used_ms = clock_ms();
	if (--rp->users == 0 && rp->gone)
		repo_close(g, rp);
}

/* Takes one that nobody may find any more out of the map. */
static void repo_drop(struct gitrepos *g, uint64_t key, struct repo *rp)
{
	(void)u64map_del(&g->repos, key);
	rp->gone = true;
	if (rp->users == 0)
		repo_close(g, rp);
}

static void readers_free(struct gitreader *list)
{
	while (list) {
		struct gitreader *rd = list;
		list = rd->next;
		gitreader_free(rd);
	}
}

void gitrepos_free(struct gitrepos *g)
{
	if (!g)
		return;
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&g->repos, &i));)
		repo_close(g, slot->value);
	u64map_done(&g->repos);
	gitbases_done(&g->bases);
	readers_free(g->readers);
	(void)pthread_mutex_destroy(&g->lock);
	(void)pthread_mutex_destroy(&g->big);
	free(g->dir);
	free(g);
}

/* ---- looking up ---- */

struct look {
	struct gitrepos *g;
	uint32_t number;
	const struct oid *oid;
	const struct git_sink *sink; /* NULL: only the head is wanted … */
	const struct git_use *use;   /* … or the content as a stream */
	int use_failed;
	struct err *err;             /* of `use` */
	struct repo *rp;
	struct packset *set;
	struct pack *last;
	struct gitreader *rd;
	bool again; /* a pack of the set isn't there any more */
	int bad;    /* what was wrong with a copy of the object, or with a pack; 0: nothing */
	char where[NAME_MAX + 1];
	struct git_head head;
	uint8_t *data;
};

static int look_begin(struct look *l)
{
	struct gitrepos *g = l->g;
	int r = 0;
	(void)pthread_mutex_lock(&g->lock);
	struct repo *rp = u64map_get(&g->repos, (uint64_t)l->number + 1);
	if (!rp)
		r = repo_open(g, l->number, &rp);
	if (r == 0 && (!rp->set || clock_ms() - rp->looked_ms > GIT_LOOK_MS)) {
		r = repo_look(g, rp);
		if (r < 0 && rp->set)
			r = 0; /* what is known may do */
	}
	if (r >= 0) {
		l->rp = rp;
		l->set = rp->set;
		l->last = rp->last;
		rp->users++;
		rp->set->refs++;
		if (g->readers) {
			l->rd = g->readers;
			g->readers = l->rd->next;
			g->nreaders--;
		}
	}
	(void)pthread_mutex_unlock(&g->lock);
	if (r >= 0 && !l->rd)
		l->rd = gitreader_new();
	return r < 0 ? r : 0;
}

static void look_end(struct look *l)
{
	struct gitrepos *g = l->g;
	struct gitreader *rd = steal_ptr(&l->rd);
	if (!l->rp)
		return;
	(void)pthread_mutex_lock(&g->lock);
	set_unref(g, l->set);
	repo_unuse(g, l->rp);
	if (rd && g->nreaders < GIT_READERS_KEPT) {
		rd->next = g->readers;
		g->readers = rd;
		g->nreaders++;
		rd = NULL;
	}
	(void)pthread_mutex_unlock(&g->lock);
	gitreader_free(rd);
	l->rp = NULL;
	l->set = NULL;
}

/* Is this a fault of one copy, so that another one may be whole? */
static bool is_bad(int r)
{
	return r == -EBADMSG || r == -EIO;
}

static void note_bad(struct look *l, int r, const char *where)
{
	if (l->bad)
		return;
	l->bad = r;
	(void)snprintf(l->where, sizeof(l->where), "%s", where);
}

static int verify(struct look *l)
{
	return gitreader_verify(l->rd, l->oid, l->head.type, l->data, (size_t)l->head.size);
}

/* The stream that `r` says is there: 0, or why it is of no use. */
static int use_stream(struct look *l, int r, struct gitstream *s)
{
	if (r == 0)
		r = gitstream_run(s, l->oid, &l->head, l->use, &l->use_failed, l->err);
	return r > 0 ? -ECANCELED : r; /* as l->use_failed says */
}

static int take_packed(struct look *l, const struct gitpack *p, uint64_t off)
{
	struct gitrepos *g = l->g;
	struct gitstream s;
	if (l->use)
		return use_stream(l, gitpack_stream(p, l->rd, off, &s, &l->head), &s);
	if (!l->sink)
		return gitpack_stat(p, l->rd, &g->bases, off, &l->head);
	int r = gitpack_load(p, l->rd, &g->bases, &g->big, off, l->sink, &l->head, &l->data);
	return r < 0 ? r : verify(l);
}

static int take_loose(struct look *l, int fd)
{
	const struct io *io = l->g->io;
	struct gitstream s;
	if (l->use)
		return use_stream(l, gitloose_stream(io, fd, l->rd, &s, &l->head), &s);
	int r = gitloose_load(io, fd, l->rd, l->sink, &l->head, &l->data);
	return r < 0 || !l->sink ? r : verify(l);
}

/* 1: it was there, and is whole; 0: it isn't there, or can't be used (l->bad). */
static int try_pack(struct look *l, struct pack *p)
{
	struct gitrepos *g = l->g;
	uint64_t off;
	int r = pack_get(g, l->rp, p);
	if (r == -ENOENT)
		l->again = true;
	if (is_bad(r))
		note_bad(l, r, p->name);
	if (r < 0)
		return r == -ENOENT || is_bad(r) ? 0 : r;
	r = gitpack_find(&p->p, l->oid, &off);
	if (r > 0) {
		int e = take_packed(l, &p->p, off);
		r = e < 0 ? e : 1;
	}
	pack_put(g, p);
	if (is_bad(r)) {
		note_bad(l, r, p->name);
		return 0;
	}
	return r;
}

/* As try_pack. */
static int try_loose(struct look *l)
{
	const struct io *io = l->g->io;
	char hex[OID_HEX + 1], name[OID_HEX + 2];
	oid_hex(hex, l->oid);
	(void)snprintf(name, sizeof(name), "%.2s/%s", hex, hex + 2);
	int fd = io->open(io->ctx, l->rp->dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd == -ENOENT || fd == -ENOTDIR)
		return 0;
	int r = fd;
	if (fd >= 0) {
		r = take_loose(l, fd);
		(void)io->close(io->ctx, fd); /* only read */
	}
	if (is_bad(r)) {
		note_bad(l, r, "its loose file");
		return 0;
	}
	return r < 0 ? r : 1;
}

/* Everywhere that is known, first where the last one was. */
static int try_all(struct look *l)
{
	int r = l->last ? try_pack(l, l->last) : 0;
	for (size_t i = 0; i < l->set->n && r == 0; i++) {
		if (l->set->v[i] == l->last)
			continue;
		r = try_pack(l, l->set->v[i]);
		if (r > 0) {
			(void)pthread_mutex_lock(&l->g->lock);
			if (l->rp->set == l->set)
				l->rp->last = l->set->v[i];
			(void)pthread_mutex_unlock(&l->g->lock);
		}
	}
	return r == 0 ? try_loose(l) : r;
}

/* After a miss: 1 when there is something new to look at. */
static int look_again(struct look *l)
{
	struct gitrepos *g = l->g;
	struct stat st;
	int r;
	(void)pthread_mutex_lock(&g->lock);
	struct repo *rp = l->rp;
	if (rp->gone || rp->set != l->set) {
		r = 1; /* somebody has looked meanwhile */
	} else if (g->io->fstat(g->io->ctx, rp->dirfd, &st) == 0 && st.st_nlink == 0) {
		repo_drop(g, (uint64_t)l->number + 1, rp);
		r = 1;
	} else {
		r = repo_look(g, rp);
		if (r == 0 && l->again)
			rp->racy = true; /* the folder's time hides something */
	}
	(void)pthread_mutex_unlock(&g->lock);
	return r;
}

static int look_fail(const struct look *l, int r, struct err *err)
{
	char hex[OID_HEX + 1];
	oid_hex(hex, l->oid);
	if (r == 0 && l->bad == -EBADMSG)
		return err_set(err, -EBADMSG, "object %s of repository %08x: %s is damaged", hex,
			       l->number, l->where);
	if (r == 0 && l->bad)
		return err_sys(err, l->bad, "object %s of repository %08x: read %s", hex, l->number,
			       l->where);
	if (r == 0)
		return err_set(err, -ENOENT, "no object %s in repository %08x", hex, l->number);
	if (r == -EFBIG)
		return err_set(err, r, "object %s of repository %08x is too large", hex, l->number);
	return err_sys(err, r, "object %s of repository %08x", hex, l->number);
}

static int look(struct look *l, struct err *err)
{
	int r = 0, more = 1;
	for (unsigned i = 0; i < GIT_ROUNDS && r == 0 && more > 0; i++) {
		l->again = false;
		l->bad = 0;
		l->rd = NULL;
		r = look_begin(l);
		if (r == -ENOENT)
			return err_set(err, r, "no repository %08x", l->number);
		if (r == 0 && !l->rd)
			r = -ENOMEM;
		if (r == 0)
			r = try_all(l);
		if (r == 0) {
			more = look_again(l);
			if (more == 0 && l->again && i + 1 < GIT_ROUNDS)
				more = 1;
			if (more < 0)
				r = more;
		}
		look_end(l);
	}
	if (l->use_failed)
		return l->use_failed; /* which has said why */
	return r > 0 ? 0 : look_fail(l, r, err);
}

int gitrepos_load(struct gitrepos *g, uint32_t repo, const struct oid *oid,
		  const struct git_sink *sink, struct git_head *out, uint8_t **data,
		  struct err *err)
{
	struct look l = { .g = g, .number = repo, .oid = oid, .sink = sink };
	int r = look(&l, err);
	if (r < 0)
		return r;
	*out = l.head;
	*data = l.data;
	return 0;
}

int gitrepos_stat(struct gitrepos *g, uint32_t repo, const struct oid *oid, enum git_type *type,
		  uint64_t *size, struct err *err)
{
	struct look l = { .g = g, .number = repo, .oid = oid };
	int r = look(&l, err);
	if (r < 0)
		return r;
	*type = l.head.type;
	*size = l.head.size;
	return 0;
}

int gitrepos_stream(struct gitrepos *g, uint32_t repo, const struct oid *oid,
		    const struct git_use *use, struct err *err)
{
	struct look l = { .g = g, .number = repo, .oid = oid, .use = use, .err = err };
	return look(&l, err);
}

static uint8_t *heap_room(void *ctx, size_t len)
{
	uint8_t **p = ctx;
	free(*p);
	*p = malloc(len ? len : 1);
	return *p;
}

int gitrepos_read(struct gitrepos *g, uint32_t repo, const struct oid *oid, uint64_t max,
		  enum git_type *type, uint8_t **data, size_t *len, struct err *err)
{
	auto_free uint8_t *mem = NULL;
	struct git_sink sink = { .room = heap_room, .ctx = &mem, .max = max };
	struct git_head h;
	uint8_t *at;
	int r = gitrepos_load(g, repo, oid, &sink, &h, &at, err);
	if (r < 0)
		return r;
	*type = h.type;
	*len = (size_t)h.size;
	*data = steal_ptr(&mem);
	return 0;
}

/* ---- forgetting ---- */

/* Shuts packs that were idle; those that were deleted at once, so that their space is free. */
static void repo_trim(struct gitrepos *g, struct repo *rp, uint64_t idle_ms, uint64_t now)
{
	for (size_t i = 0; rp->set && i < rp->set->n; i++) {
		struct pack *p = rp->set->v[i];
		struct stat st;
		if (!p->open || p->users)
			continue;
		bool gone = g->io->fstat(g->io->ctx, p->p.fd, &st) < 0 || st.st_nlink == 0;
		if (gone || idle_ms == 0 || now - p->used_ms > idle_ms)
			pack_shut(g, p);
	}
}

void gitrepos_trim(struct gitrepos *g, uint64_t idle_ms)
{
	uint64_t now = clock_ms();
	(void)pthread_mutex_lock(&g->lock);
	for (bool again = true; again;) {
		again = false;
		struct u64map_slot *slot;
		for (size_t i = 0; !again && (slot = u64map_next(&g->repos, &i));) {
			struct repo *rp = slot->value;
			if (rp->users == 0 && (idle_ms == 0 || now - rp->used_ms > idle_ms)) {
				repo_drop(g, slot->key, rp);
				again = true; /* the map has changed under the walk */
			} else {
				repo_trim(g, rp, idle_ms, now);
			}
		}
	}
	struct gitreader *list = steal_ptr(&g->readers);
	g->nreaders = 0;
	(void)pthread_mutex_unlock(&g->lock);
	readers_free(list);
	gitbases_trim(&g->bases, idle_ms);
}
