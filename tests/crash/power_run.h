/* For power.c and fault.c: random operations on workspaces on a disk that remembers, and what they
 * should have led to at each moment. */
#ifndef BOUGH_TESTS_CRASH_POWER_RUN_H
#define BOUGH_TESTS_CRASH_POWER_RUN_H

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

static void op_make(void)
{
	static const uint32_t modes[] = { S_IFREG | 0644, S_IFREG | 0600, S_IFDIR | 0755 };
	struct space *sp = pick_space();
	char path[PATH_BYTES];
	const char *name;
	struct entry e;
	if (now(sp)->n == FILES || !new_path(sp, path, false))
		return;
	uint32_t mode = modes[below(3)];
	say("make %s %s %o", sp->id, path, mode);
	m_add(begin(sp), path, mode);
	uint64_t dir = parent(sp->ws, path, &name);
	done(ws_mknod(sp->ws, dir, name, strlen(name), mode, 0, &root_caller, &e));
	forget(sp->ws, e.node);
	forget(sp->ws, dir);
	end(sp);
}

static void op_symlink(void)
{
	struct space *sp = pick_space();
	char path[PATH_BYTES];
	const char *name;
	struct entry e;
	if (now(sp)->n == FILES || !new_path(sp, path, false))
		return;
	say("symlink %s %s", sp->id, path);
	struct mfile *f = m_add(begin(sp), path, S_IFLNK | 0777);
	(void)snprintf(f->target, sizeof(f->target), "to-%u", t.op);
	uint64_t dir = parent(sp->ws, path, &name);
	done(ws_symlink(sp->ws, dir, name, strlen(name), f->target, &root_caller, &e));
	forget(sp->ws, e.node);
	forget(sp->ws, dir);
	end(sp);
}

static void op_link(void)
{
	struct space *sp = pick_space();
	const struct mfile *of = pick(sp, S_IFREG);
	char path[PATH_BYTES];
	const char *name;
	struct entry e;
	if (!of || now(sp)->n == FILES || !new_path(sp, path, false))
		return;
	say("link %s %s %s", sp->id, of->path, path);
	struct state *s = begin(sp);
	s->f[s->n] = *of;
	memcpy(s->f[s->n++].path, path, sizeof(path));
	uint64_t n = node(sp->ws, of->path, NULL), dir = parent(sp->ws, path, &name);
	done(ws_link(sp->ws, n, dir, name, strlen(name), &root_caller, &e));
	forget(sp->ws, e.node);
	forget(sp->ws, n);
	forget(sp->ws, dir);
	end(sp);
}

static void op_remove(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, 0);
	const char *name;
	if (!f || (S_ISDIR(f->mode) && !m_empty(now(sp), f->path)))
		return;
	char path[PATH_BYTES];
	memcpy(path, f->path, sizeof(path));
	bool is_dir = S_ISDIR(f->mode);
	say("remove %s %s", sp->id, path);
	m_remove(begin(sp), path);
	uint64_t dir = parent(sp->ws, path, &name);
	done(is_dir ? ws_rmdir(sp->ws, dir, name, strlen(name), &root_caller)
		    : ws_unlink(sp->ws, dir, name, strlen(name), &root_caller));
	forget(sp->ws, dir);
	end(sp);
}

static void op_rename(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, 0);
	char from[PATH_BYTES], to[PATH_BYTES];
	if (!f || !new_path(sp, to, true) || strcmp(f->path, to) == 0 || m_is_below(to, f->path))
		return;
	memcpy(from, f->path, sizeof(from));
	const struct mfile *old = m_find(now(sp), to);
	if (old &&
	    (old->id == f->id || S_ISDIR(old->mode) != S_ISDIR(f->mode) || !m_empty(now(sp), to)))
		return;
	for (size_t i = 0; i < now(sp)->n; i++)
		if (m_is_below(now(sp)->f[i].path, from) &&
		    strlen(now(sp)->f[i].path) - strlen(from) + strlen(to) >= PATH_BYTES)
			return;
	const uint32_t kept = old ? f->id : 0;
	say("rename %s %s %s", sp->id, from, to);
	struct state *s = begin(sp);
	m_remove(s, to);
	for (size_t i = 0; i < s->n; i++) {
		char path[PATH_BYTES * 2];
		if (strcmp(s->f[i].path, from) != 0 && !m_is_below(s->f[i].path, from))
			continue;
		(void)snprintf(path, sizeof(path), "%s%s", to, s->f[i].path + strlen(from));
		memcpy(s->f[i].path, path, PATH_BYTES);
	}
	const char *a, *b;
	uint64_t d1 = parent(sp->ws, from, &a), d2 = parent(sp->ws, to, &b);
	done(ws_rename(sp->ws, d1, a, strlen(a), d2, b, strlen(b), 0, &root_caller));
	sp->m[sp->n - 1].kept = kept;
	forget(sp->ws, d1);
	forget(sp->ws, d2);
	end(sp);
}

static void op_write(void)
{
	static uint16_t words[SIZE_MAX_BYTES / 2];
	static const unsigned lengths[] = { 2, 100, 512, 4096, 6000, 16384, 60000 };
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, S_IFREG);
	if (!f)
		return;
	uint64_t len = lengths[below(7)], off = below(3) ? below(5) * 4096ull : below(9000) * 2ull;
	if (below(4) == 0)
		off = f->c->size & ~1ull;
	if (off + len > SIZE_MAX_BYTES)
		return;
	len &= ~1ull;
	say("write %s %s %" PRIu64 " at %" PRIu64, sp->id, f->path, len, off);
	uint64_t size = off + len > f->c->size ? off + len : f->c->size;
	char path[PATH_BYTES];
	memcpy(path, f->path, sizeof(path));
	const uint32_t id = f->id;
	m_write(begin(sp), id, off, len, t.op, size);
	note_wrote(sp, id, len); /* a part may be there when it has begun */
	for (uint64_t i = 0; i < len / 2; i++)
		words[i] = t.op;
	uint64_t n = node(sp->ws, path, NULL);
	done(ws_write(sp->ws, n, words, len, off, false, &root_caller));
	forget(sp->ws, n);
	end(sp);
}

static void op_truncate(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, S_IFREG);
	if (!f)
		return;
	uint64_t size = below(2) ? 0 : below(10000) * 2ull;
	say("truncate %s %s %" PRIu64, sp->id, f->path, size);
	char path[PATH_BYTES];
	memcpy(path, f->path, sizeof(path));
	const uint32_t id = f->id;
	const bool empties = size == 0 && f->c->size > 0;
	m_write(begin(sp), id, 0, 0, 0, size);
	note_wrote(sp, id, 0);
	sp->m[sp->n - 1].kept = empties ? id : 0;
	struct attr in = { .size = size }, out;
	uint64_t n = node(sp->ws, path, NULL);
	done(ws_setattr(sp->ws, n, WS_SET_SIZE, &in, &root_caller, &out));
	forget(sp->ws, n);
	end(sp);
}

static void op_chmod(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, 0);
	if (!f || S_ISLNK(f->mode))
		return;
	uint32_t mode = 0600 + below(64);
	bool xattr = below(2);
	say("%s %s %s", xattr ? "setxattr" : "chmod", sp->id, f->path);
	struct state *s = begin(sp);
	uint64_t n = node(sp->ws, f->path, NULL);
	for (size_t i = 0; i < s->n; i++) {
		if (s->f[i].id != f->id)
			continue;
		s->f[i].mode = xattr ? s->f[i].mode : (s->f[i].mode & S_IFMT) | mode;
		s->f[i].xattr = xattr ? t.op : s->f[i].xattr;
	}
	struct attr in = { .mode = mode }, out;
	done(xattr ? ws_setxattr(sp->ws, n, "user.x", &t.op, sizeof(t.op), 0, &root_caller)
		   : ws_setattr(sp->ws, n, WS_SET_MODE, &in, &root_caller, &out));
	forget(sp->ws, n);
	end(sp);
}

static void op_copy(void)
{
	struct space *sp = pick_space();
	const struct mfile *from = pick(sp, S_IFREG), *to = pick(sp, S_IFREG);
	if (!from || !to || from->id == to->id || from->c->size < 2)
		return;
	uint64_t len = from->c->size & ~1ull;
	say("copy %s %s %s %" PRIu64, sp->id, from->path, to->path, len);
	struct content *c = keep(calloc(1, sizeof(*c) + SIZE_MAX_BYTES + 2));
	c->size = to->c->size > len ? to->c->size : len;
	memcpy(c->words, to->c->words, (to->c->size + 1) / 2 * 2);
	memcpy(c->words, from->c->words, len);
	uint32_t id = to->id;
	uint64_t a = node(sp->ws, from->path, NULL), b = node(sp->ws, to->path, NULL);
	struct state *s = begin(sp);
	for (size_t i = 0; i < s->n; i++)
		if (s->f[i].id == id)
			s->f[i].c = c;
	note_wrote(sp, id, 0); /* of its last block at most */
	ssize_t r = ws_copy_range(sp->ws, a, 0, b, 0, len, &root_caller);
	if (r != (ssize_t)len)
		refused(r < 0 ? strerror((int)-r) : "a part was copied");
	forget(sp->ws, a);
	forget(sp->ws, b);
	end(sp);
}

static void op_fsync(void)
{
	struct space *sp = pick_space();
	const struct mfile *f = pick(sp, 0);
	if (!f)
		return;
	say("fsync %s %s", sp->id, f->path);
	uint64_t n = node(sp->ws, f->path, NULL);
	const uint32_t id = f->id;
	begin(sp); /* nothing changes, and then it is on the disk */
	done(ws_fsync(sp->ws, n));
	end(sp);
	note_synced(sp, id, sp->sealed);
	forget(sp->ws, n);
}

static void op_sync(void)
{
	struct space *sp = pick_space();
	struct err err;
	say("commit %s", sp->id);
	begin(sp);
	if (ws_commit(sp->ws, &err) < 0)
		refused(err.text);
	end(sp);
	note_synced(sp, 0, sp->n - 1);
}

/* The form of a catalog's id. */
static void name_space(struct space *sp)
{
	(void)snprintf(sp->id, sizeof(sp->id), "ws_aaaaaaaa%c%c", 'a' + (int)(t.nspaces / 26),
		       'a' + (int)(t.nspaces % 26));
}

static void op_fork(void)
{
	struct space *sp = pick_space(), *child = &t.spaces[t.nspaces];
	size_t open = 0;
	for (size_t i = 0; i < t.nspaces; i++)
		open += t.spaces[i].ws != NULL;
	if (open == SPACES || t.nspaces == sizeof(t.spaces) / sizeof(t.spaces[0]))
		return;
	struct err err;
	*child = (struct space){ .made = io_power_now(t.power) };
	name_space(child);
	say("fork %s %s", sp->id, child->id);
	const char *ids[] = { child->id };
	/* Not synced, it may come back as what the parent was after its last fsync. */
	for (size_t i = 0; i < sp->n; i++) {
		(void)begin(child);
		child->m[i] = sp->m[i];
	}
	child->own = child->n;
	child->sealed = child->n - 1;
	(void)begin(child);
	if (ws_fork(sp->ws, ids, 1, NULL, &child->ws, NULL, &err) < 0) {
		free(child->m);
		refused(err.text);
	}
	end(child);
	sp->sealed = sp->n - 1;
	t.nspaces++;
	if (hooks.made)
		hooks.made(child);
	child->made_end = io_power_now(t.power);
}

static void op_delete(void)
{
	struct space *sp = pick_space();
	struct err err;
	size_t open = 0;
	for (size_t i = 0; i < t.nspaces; i++)
		open += t.spaces[i].ws != NULL;
	if (open == 1)
		return;
	say("delete %s", sp->id);
	sp->gone = io_power_now(t.power);
	if (hooks.deleted)
		hooks.deleted(sp);
	sp->gone_end = io_power_now(t.power);
	ws_close(sp->ws);
	sp->ws = NULL;
	if (ws_delete(t.work, sp->id, &err) < 0)
		refused(err.text);
}

static void end_op(void)
{
	store_session_end(t.session);
	t.session = NULL;
	stack_done(&t.sealed);
	stack_done(&t.saved);
	stack_done(&t.to);
}

static void op_save(void)
{
	struct space *sp = pick_space();
	struct err err;
	struct view_options vo;
	struct save_stats st;
	bool flat = below(2), replace = below(2);
	if (t.nsnaps == SNAPSHOTS)
		return;
	say("save %s%s%s", sp->id, flat ? ", flat" : "", replace ? ", replaced" : "");
	work_view_options(t.work, &vo);
	if (ws_seal(sp->ws, &t.sealed, &err) < 0 ||
	    store_session_begin(work_store(t.work), &t.session, &err) < 0)
		refused(err.text);
	sp->sealed = sp->n - 1;
	const struct state *s = now(sp);
	if (save_stack(&t.saved, &t.sealed, &vo, t.session, NULL, &st, &err) < 0)
		refused(err.text);
	if (flat) {
		struct stack image;
		if (flatten_stack(&image, &t.saved, &vo, t.session, NULL, &err) < 0)
			refused(err.text);
		stack_done(&t.saved);
		t.saved = image;
	}
	struct snap *sn = &t.snaps[t.nsnaps];
	if (manifest_put(t.session, &t.saved, &sn->manifest, &err) < 0 ||
	    store_sync(t.session, &err) < 0)
		refused(err.text);
	sn->s = s;
	sn->end = UINT64_MAX;
	t.nsnaps++;
	if (hooks.saved)
		hooks.saved(sp, sn);
	sn->end = io_power_now(t.power);
	store_session_end(t.session);
	t.session = NULL;
	if (replace && ws_replace(sp->ws, &t.sealed, &t.saved, &err) < 0)
		refused(err.text);
	end_op();
}

static void no_name(void *ctx, uint64_t dir, const char *name, size_t len, bool removed,
		    uint64_t child)
{
}

static void no_node(void *ctx, uint64_t n)
{
}

static void op_restore(void)
{
	struct space *sp = pick_space();
	struct err err;
	if (!t.nsnaps)
		return;
	const struct snap *sn = &t.snaps[below((unsigned)t.nsnaps)];
	say("restore %s", sp->id);
	if (manifest_get(work_store(t.work), &sn->manifest, &t.to, &err) < 0)
		refused(err.text);
	struct state *s = begin(sp);
	*s = *sn->s;
	struct ws_changes ch = { .name = no_name, .node = no_node };
	if (ws_restore(sp->ws, &t.to, &ch, &err) < 0)
		refused(err.text);
	end(sp);
	end_op();
}

static void op_reopen(void)
{
	struct space *sp = pick_space();
	struct err err;
	say("reopen %s", sp->id);
	if (t.faults) /* closing can't say that it failed, and opening goes back then */
		done(ws_fsync(sp->ws, 1));
	ws_close(sp->ws);
	sp->ws = NULL;
	if (ws_open(&sp->ws, t.work, sp->id, &err) < 0)
		refused(err.text);
}

static void op_tend(void)
{
	if (hooks.tend)
		hooks.tend();
}

static const struct {
	void (*fn)(void);
	unsigned weight;
} ops[] = {
	{ op_make, 12 },  { op_symlink, 2 },  { op_link, 3 },  { op_remove, 6 },  { op_rename, 8 },
	{ op_write, 26 }, { op_truncate, 4 }, { op_chmod, 5 }, { op_copy, 3 },    { op_fsync, 9 },
	{ op_fork, 4 },   { op_delete, 2 },   { op_save, 4 },  { op_restore, 2 }, { op_reopen, 1 },
	{ op_tend, 2 },   { op_sync, 1 },
};

/* Every second run is one of programs that fsync all the time, so that layers get a log. */
static unsigned weight_of(size_t i)
{
	if (t.seed % 2)
		return ops[i].weight;
	return ops[i].fn == op_fsync ? 50 : ops[i].fn == op_fork ? 2 : ops[i].weight;
}

static void open_work(const char *root, const struct io *io, uint8_t boot)
{
	struct err err;
	const uint8_t id[16] = { boot };
	const struct work_options opt = { .io = io,
					  .boot_id = id,
					  .commit_ms = UINT64_MAX,
					  .big_file = t.seed % 4 == 3 ? 0 : BIG_FILE };
	if (work_open(&t.work, root, &opt, &err) < 0)
		refused(err.text);
}

static void run_begin(void)
{
	t.rng = t.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	if (mkdir(t.root, 0700) < 0)
		fail("mkdir %s: %s", t.root, strerror(errno));
	t.power = io_power_new(t.root);
	if (!t.power)
		fail("out of memory");
	t.op = 0;
	t.nspaces = t.nsnaps = 0;
	say("begin");
}

/* By `io`, which leads to the disk that remembers. */
static void run_ops(const struct io *io)
{
	struct err err;
	open_work(t.root, io, 1);
	struct space *sp = &t.spaces[0];
	*sp = (struct space){ .made = io_power_now(t.power) };
	name_space(sp);
	t.nspaces = 1;
	(void)begin(sp);
	if (ws_create(&sp->ws, t.work, sp->id, NULL, NULL, 0, 0, &err) < 0)
		refused(err.text);
	end(sp);
	if (hooks.made)
		hooks.made(sp);
	sp->made_end = io_power_now(t.power);
	unsigned sum = 0;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		sum += weight_of(i);
	for (t.op = 1; t.op <= t.ops; t.op++) {
		unsigned at = below(sum);
		size_t i = 0;
		while (at >= weight_of(i))
			at -= weight_of(i++);
		ops[i].fn();
	}
	say("end");
	if (io_power_stray(t.power))
		fail("%s was changed around the seam", io_power_stray(t.power));
}

static void run_end(void)
{
	for (size_t i = 0; i < t.nspaces; i++) {
		ws_close(t.spaces[i].ws);
		free(t.spaces[i].m);
	}
	work_close(t.work);
	t.work = NULL;
	io_power_free(t.power);
	for (size_t i = 0; i < t.ngarbage; i++)
		free(t.garbage[i]);
	t.ngarbage = 0;
	(void)io_remove_tree(AT_FDCWD, t.root, NULL);
}

#endif
