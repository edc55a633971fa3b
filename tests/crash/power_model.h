/* For power_run.h: what workspaces should be at each moment of a run, and what its operations are
 * made of. */
#ifndef BOUGH_TESTS_CRASH_POWER_MODEL_H
#define BOUGH_TESTS_CRASH_POWER_MODEL_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/io_power.h"
#include "fs/work/save.h"
#include "fs/work/workspace.h"

enum {
	SPACES = 4,
	SNAPSHOTS = 16,
	FILES = 20, /* of one workspace */
	PATH_BYTES = 48,
	SIZE_MAX_BYTES = 80 << 10,
	SECTOR = 512,
	BIG_FILE = 16 << 10, /* from there on a file has one of its own (layer.h), in most runs */
};

/* ---- what it should be ---- */

/* Contents are 16-bit words: the number of the operation that wrote them. */
struct content {
	uint64_t size; /* bytes */
	uint16_t words[];
};

struct mfile {
	char path[PATH_BYTES];
	uint32_t mode;
	uint32_t id;             /* of the inode */
	uint16_t xattr;          /* of user.x; 0: none */
	const struct content *c; /* regular */
	char target[PATH_BYTES]; /* symlink */
};

struct state {
	size_t n;
	struct mfile f[FILES];
};

/* An operation's effect: from `begin` on the disk may show it, from `end` on it has returned. */
struct moment {
	struct state *s;
	uint64_t begin, end;
	bool synced; /* and is on the disk, but for big files that weren't asked about */
	uint32_t asked; /* … this one was; 0: none */
	size_t whole;   /* … and of the moments up to this one all files are */
	uint32_t kept;  /* no commit that covers this leaves out what that file had; 0: none */
	uint32_t wrote; /* bytes were written to that file, at most so many; 0: none */
	uint64_t bytes;
};

struct space {
	char id[16];
	struct ws *ws;                 /* NULL: deleted, or never made */
	uint64_t made, made_end; /* moments */
	uint64_t gone, gone_end; /* 0: never */
	struct moment *m;
	size_t n, cap;
	size_t own; /* moments before this one are those of what it was forked from */
	size_t sealed; /* what was done up to that moment is in layers below the active one */
	bool failed; /* the disk failed a sync of it: opened anew it may be as it was when the last
	              * one succeeded */
	bool lost;  /* with the power, in the root that is looked at */
};

struct snap {
	uint64_t end; /* saved from then on */
	struct digest manifest;
	const struct state *s;
};

static struct {
	struct io_power *power;
	const struct io *io; /* of the operations */
	struct work *work;
	struct space spaces[64];
	size_t nspaces;
	struct snap snaps[SNAPSHOTS];
	size_t nsnaps;
	uint64_t seed, rng;
	uint32_t next_id;
	uint64_t max_ino; /* of all that were seen since the root was opened */
	uint16_t op;
	const char *in; /* where folders of roots are made; NULL: in memory */
	char dir[100], root[120], after[120];
	uint64_t ops, runs, tries, cuts, at_cut, at_try, checked;
	uint64_t shorter; /* files seen that had come back shorter */
	bool at, verbose;
	bool faults; /* operations may fail */
	jmp_buf refused;
	/* What an operation under way has, which a refusal jumps out of. */
	struct store_session *session;
	struct stack sealed, saved, to;
	char why[600];
	unsigned printed;
	char what[160];
	void **garbage;
	size_t ngarbage, garbage_cap;
} t;

/* What else happens, in a program that has more than workspaces (catalog.c). */
static struct {
	void (*made)(struct space *sp);
	void (*deleted)(struct space *sp);
	void (*saved)(struct space *sp, struct snap *sn);
	void (*tend)(void);
	/* In a root after a power loss: before and after a look at the workspaces. */
	void (*opened)(void);
	void (*look)(uint64_t cut);
	bool (*known)(void *ctx, const char *id);
} hooks;

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fprintf(stderr, "power: seed %" PRIu64 ": %s: ", t.seed, t.what);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nagain: power --ops %" PRIu64 " --seed %" PRIu64, t.ops, t.seed);
	if (t.at)
		fprintf(stderr, " --at %" PRIu64 ".%" PRIu64, t.at_cut, t.at_try);
	fprintf(stderr, "  (%s is kept)\n", t.dir);
	exit(1);
}

/* Options that all of these programs have: how many words one takes; 0: it is none of them. */
static int common_option(const char *name, const char *value)
{
	const struct {
		const char *name;
		uint64_t *to;
	} numbers[] = { { "--ops", &t.ops },
			{ "--seed", &t.seed },
			{ "--runs", &t.runs },
			{ "--tries", &t.tries },
			{ "--cuts", &t.cuts } };
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (strcmp(name, numbers[i].name) != 0)
			continue;
		*numbers[i].to = strtoull(value, NULL, 10);
		return 2;
	}
	bool dir = strcmp(name, "--dir") == 0;
	if (dir)
		t.in = value;
	else if (strcmp(name, "-v") == 0)
		t.verbose = true;
	else
		return 0;
	return dir ? 2 : 1;
}

/* The folder for its roots. In memory: nothing here is about a real disk. */
static void make_dir(const char *program)
{
	const char *in = t.in;
	if (!in)
		in = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
	(void)snprintf(t.dir, sizeof(t.dir), "%s/bough-%s.XXXXXX", in ? in : "/tmp", program);
	if (!mkdtemp(t.dir)) {
		perror(t.dir);
		exit(1);
	}
	(void)snprintf(t.root, sizeof(t.root), "%s/root", t.dir);
	(void)snprintf(t.after, sizeof(t.after), "%s/after", t.dir);
	(void)umask(077);
}

static void *keep(void *p)
{
	if (!p || array_grow(&t.garbage, t.ngarbage, &t.garbage_cap) < 0)
		fail("out of memory");
	t.garbage[t.ngarbage++] = p;
	return p;
}

/* xorshift64*, Vigna 2016. */
static uint64_t rnd(void)
{
	t.rng ^= t.rng >> 12;
	t.rng ^= t.rng << 25;
	t.rng ^= t.rng >> 27;
	return t.rng * UINT64_C(2685821657736338717);
}

static unsigned below(unsigned n)
{
	return (unsigned)((rnd() >> 33) % n);
}

static struct mfile *m_find(struct state *s, const char *path)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->f[i].path, path) == 0)
			return &s->f[i];
	return NULL;
}

static bool m_is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static bool m_empty(const struct state *s, const char *dir)
{
	for (size_t i = 0; i < s->n; i++)
		if (m_is_below(s->f[i].path, dir))
			return false;
	return true;
}

static void m_remove(struct state *s, const char *path)
{
	struct mfile *f = m_find(s, path);
	if (f)
		*f = s->f[--s->n];
}

static struct mfile *m_add(struct state *s, const char *path, uint32_t mode)
{
	struct mfile *f = &s->f[s->n++];
	*f = (struct mfile){ .mode = mode, .id = ++t.next_id };
	(void)snprintf(f->path, sizeof(f->path), "%s", path);
	if (S_ISREG(mode))
		f->c = keep(calloc(1, sizeof(*f->c)));
	return f;
}

/* The content with words of `v` (0: a hole) from `off` on, and that size; of all names. */
static void m_write(struct state *s, uint32_t id, uint64_t off, uint64_t len, uint16_t v,
		    uint64_t size)
{
	const struct content *old = NULL;
	for (size_t i = 0; i < s->n; i++)
		if (s->f[i].id == id)
			old = s->f[i].c;
	uint64_t words = (size + 1) / 2;
	struct content *c = keep(calloc(1, sizeof(*c) + words * 2 + 2));
	c->size = size;
	for (uint64_t i = 0; i < words && i < (old->size + 1) / 2; i++)
		c->words[i] = old->words[i];
	for (uint64_t i = off / 2; i < (off + len) / 2 && i < words; i++)
		c->words[i] = v;
	for (size_t i = 0; i < s->n; i++)
		if (s->f[i].id == id)
			s->f[i].c = c;
}

/* ---- the run ---- */

static const struct caller root_caller;

static struct state *now(struct space *sp)
{
	return sp->m[sp->n - 1].s;
}

/* The state that the operation which begins now leads to: a copy of the present one. */
static struct state *begin(struct space *sp)
{
	struct state *s = keep(malloc(sizeof(*s)));
	if (sp->n)
		*s = *now(sp);
	else
		*s = (struct state){ 0 };
	if (array_grow(&sp->m, sp->n, &sp->cap) < 0)
		fail("out of memory");
	sp->m[sp->n++] =
		(struct moment){ .s = s, .begin = io_power_now(t.power), .end = UINT64_MAX };
	return s;
}

static void end(struct space *sp)
{
	sp->m[sp->n - 1].end = io_power_now(t.power);
}

/* An operation that failed: the end of the run where faults are made (fault.c), else a fault
 * found. */
static void __attribute__((noreturn)) refused(const char *why)
{
	if (!t.faults)
		fail("%s", why);
	(void)snprintf(t.why, sizeof(t.why), "%s", why);
	longjmp(t.refused, 1);
}

static void done(int r)
{
	if (r < 0)
		refused(strerror(-r));
}

/* The operation that has just ended wrote to that file. */
static void note_wrote(struct space *sp, uint32_t id, uint64_t len)
{
	/* The blocks at both ends may be written whole. */
	sp->m[sp->n - 1].wrote = id;
	sp->m[sp->n - 1].bytes = len + 2 * 4096;
}

static void note_synced(struct space *sp, uint32_t id, size_t whole)
{
	struct moment *m = &sp->m[sp->n - 1];
	m->synced = true;
	m->asked = id;
	m->whole = whole;
}

static uint64_t node(struct ws *ws, const char *path, struct attr *a)
{
	uint64_t at = 1;
	struct entry e = { .node = 1 };
	for (const char *p = path; *p;) {
		size_t n = strcspn(p, "/");
		done(ws_lookup(ws, at, p, n, &e));
		if (at != 1)
			ws_forget(ws, at, 1);
		at = e.node;
		p += n + (p[n] == '/');
	}
	if (a)
		*a = e.attr;
	return at;
}

static void forget(struct ws *ws, uint64_t n)
{
	if (n != 1)
		ws_forget(ws, n, 1);
}

/* The folder's node and the last name. */
static uint64_t parent(struct ws *ws, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	*name = slash ? slash + 1 : path;
	auto_free char *dir = strndup(path, slash ? (size_t)(slash - path) : 0);
	return node(ws, dir, NULL);
}

static struct space *pick_space(void)
{
	struct space *sp;
	do
		sp = &t.spaces[below((unsigned)t.nspaces)];
	while (!sp->ws);
	return sp;
}

static const struct mfile *pick(struct space *sp, uint32_t type)
{
	struct state *s = now(sp);
	for (unsigned tries = 0; tries < 30 && s->n; tries++) {
		const struct mfile *f = &s->f[below((unsigned)s->n)];
		if (type == 0 || (f->mode & S_IFMT) == type)
			return f;
	}
	return NULL;
}

/* A path that is free, or with `taken` perhaps not, in a folder that is there. */
static bool new_path(struct space *sp, char out[PATH_BYTES], bool taken)
{
	const struct mfile *dir = below(2) ? pick(sp, S_IFDIR) : NULL;
	if (dir && strlen(dir->path) > PATH_BYTES / 2)
		dir = NULL;
	for (unsigned tries = 0; tries < 10; tries++) {
		(void)snprintf(out, PATH_BYTES, "%.*s%s%c%u", PATH_BYTES / 2, dir ? dir->path : "",
			       dir ? "/" : "", "abcd"[below(4)], below(5));
		if (taken || !m_find(now(sp), out))
			return true;
	}
	return false;
}

static void __attribute__((format(printf, 1, 2))) say(const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(t.what, sizeof(t.what), "op %u: ", t.op);
	va_start(ap, fmt);
	(void)vsnprintf(t.what + n, sizeof(t.what) - (size_t)n, fmt, ap);
	va_end(ap);
	if (t.verbose)
		printf("# %8" PRIu64 " %s\n", io_power_now(t.power), t.what);
}

#endif
