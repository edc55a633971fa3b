/* A flipped bit at any byte of any file of a root: random operations (power_run.h) make a root with
 * workspaces, forks, snapshots and images; then, for one byte after another, a copy of it has a bit
 * of that byte flipped, and is looked at by a process of its own:
 *
 *   - it ends by itself: no signal, no endless loop,
 *   - what is read is what was there before, or its reading fails, or the workspace that it is in
 *     says that records of it were lost; the content of an inode that is there is never another,
 *   - where anything can't be read or was lost, the checks of fsck find something.
 *
 * What lies in data files of layers (`data` and `fINO`) is as safe as the disk below makes it: they
 * are written in place, and have no sums. Bits of them are flipped all the same, but then contents
 * may be others.
 *
 *     flip [--ops N] [--seed S] [--runs N] [--flips N] [--only TEXT] [--at FILE.BYTE.BIT]
 *          [--dir PATH] [-v]
 *
 * `--flips 0`: every byte, one bit of each; `--only`: of files whose path has that text in it. A
 * failure prints the line that repeats it. */
#include <dirent.h>
#include <sys/wait.h>

#include "fs/base/buf.h"
#include "fs/work/ino.h"
#include "tests/crash/power_look.h"

enum { HANGS_S = 60 };

/* What may be said of a look, as an exit code. */
enum { SAME = 0, TOLD = 10, WRONG = 11 };

static struct {
	struct tree spaces[64], snaps[SNAPSHOTS]; /* before any bit was flipped */
	bool there[64]; /* that workspace wasn't deleted */
	char source[120]; /* the root of which copies are made */
	const char *only;
	uint64_t flips;
	uint64_t same, told;
	const char *file; /* that has the flipped bit, relative to the root */
	uint64_t byte;
	unsigned bit;
	bool told_now; /* in the process that looks: something said that it can't be read */
} p;

static void __attribute__((format(printf, 1, 2), noreturn)) wrong(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fprintf(stderr, "flip: %s: byte %" PRIu64 ", bit %u: ", p.file, p.byte, p.bit);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	(void)fflush(stdout);
	_exit(WRONG);
}

static void told(const struct err *err, const char *what)
{
	if (err && !err->text[0])
		wrong("%s failed without a reason", what);
	if (t.verbose)
		printf("# %s: %s\n", what, err ? err->text : "told");
	p.told_now = true;
}

/* ---- files of a root ---- */

struct files {
	struct one_file {
		char path[128]; /* below the root */
		uint64_t size, made;
	} *f;
	size_t n, cap;
};

static void list_files(struct files *fs, const char *root, const char *rel)
{
	char path[PATH_MAX], below[PATH_MAX];
	struct stat st;
	struct dirent *e;
	(void)snprintf(path, sizeof(path), "%s/%s", root, rel);
	DIR *d = opendir(path);
	if (!d)
		fail("%s: %s", path, strerror(errno));
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.' && (!e->d_name[1] || !strcmp(e->d_name, "..")))
			continue;
		(void)snprintf(below, sizeof(below), "%s%s%s", rel, *rel ? "/" : "", e->d_name);
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			fail("%s: %s", below, strerror(errno));
		if (S_ISDIR(st.st_mode))
			list_files(fs, root, below);
		if (!S_ISREG(st.st_mode) || st.st_size == 0)
			continue;
		if (array_grow(&fs->f, fs->n, &fs->cap) < 0)
			fail("out of memory");
		struct one_file *f = &fs->f[fs->n++];
		/* The index is mostly a hole, behind what it has. */
		uint64_t there = (uint64_t)st.st_blocks * 512, size = (uint64_t)st.st_size;
		*f = (struct one_file){ .size = there && there < size ? there : size,
					.made = st.st_ino };
		(void)snprintf(f->path, sizeof(f->path), "%.127s", below);
	}
	(void)closedir(d);
}

/* Names of layers and packs are random; the order in which files came into being (a tmpfs counts
 * inodes) is that of the seed. */
static int by_age(const void *a, const void *b)
{
	const struct one_file *x = a, *y = b;
	return x->made < y->made ? -1 : x->made > y->made;
}

static void copy_root(const char *from, const char *to)
{
	struct stat st;
	struct dirent *e;
	char a[PATH_MAX], b[PATH_MAX];
	if (mkdir(to, 0700) < 0)
		fail("mkdir %s: %s", to, strerror(errno));
	DIR *d = opendir(from);
	if (!d)
		fail("%s: %s", from, strerror(errno));
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.' && (!e->d_name[1] || !strcmp(e->d_name, "..")))
			continue;
		(void)snprintf(a, sizeof(a), "%s/%s", from, e->d_name);
		(void)snprintf(b, sizeof(b), "%s/%s", to, e->d_name);
		if (lstat(a, &st) < 0)
			fail("%s: %s", a, strerror(errno));
		if (S_ISDIR(st.st_mode))
			copy_root(a, b);
		if (!S_ISREG(st.st_mode))
			continue;
		auto_fd in = open(a, O_RDONLY | O_CLOEXEC);
		auto_fd out = open(b, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st.st_mode & 07777);
		if (in < 0 || out < 0 || ftruncate(out, st.st_size) < 0)
			fail("copy %s: %s", a, strerror(errno));
		/* What is a hole stays one: the index is mostly that. */
		for (off_t at = 0, end; (at = lseek(in, at, SEEK_DATA)) >= 0; at = end) {
			end = lseek(in, at, SEEK_HOLE);
			for (off_t to_at = at; at < end;) {
				size_t left = (size_t)(end - at);
				ssize_t k = copy_file_range(in, &at, out, &to_at, left, 0);
				if (k <= 0)
					fail("copy %s: %s", a, strerror(errno));
			}
		}
	}
	(void)closedir(d);
}

/* ---- looking, in a process of its own ---- */

struct look {
	struct tree now;
	const struct tree *was;
	bool damaged; /* the workspace says so: names may be others */
	bool in_place; /* the bit is in a file that has no sums */
};

static const struct seen *seen_at(const struct tree *tr, const char *path)
{
	for (size_t i = 0; i < tr->n; i++)
		if (strcmp(tr->f[i].path, path) == 0)
			return &tr->f[i];
	return NULL;
}

static const struct seen *seen_ino(const struct tree *tr, uint64_t ino)
{
	for (size_t i = 0; i < tr->n; i++)
		if (tr->f[i].a.ino == ino)
			return &tr->f[i];
	return NULL;
}

static int look_file(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct look *l = ctx;
	struct err err = { 0 };
	char name[PATH_BYTES * 4], target[4200];
	uint16_t xattr = 0;
	size_t n;
	if (len == 0)
		return 0;
	(void)snprintf(name, sizeof(name), "%.*s", (int)len, path);
	if (strcmp(name, "after") == 0) /* add_file */
		return 0;
	l->now.n++;
	const struct seen *was = l->damaged ? seen_ino(l->was, a->ino) : seen_at(l->was, name);
	if (!was && l->damaged)
		return 0;
	if (!was)
		wrong("'%s' was never there", name);
	int r = view_each_xattr(l->now.v, a->ino, note_xattr, &xattr);
	if (r < 0)
		told(NULL, "xattrs");
	const struct attr *b = &was->a;
	if (!l->damaged && (a->mode != b->mode || a->ino != b->ino || a->size != b->size ||
			    a->nlink != b->nlink || a->mtime.tv_nsec != b->mtime.tv_nsec ||
			    (r >= 0 && xattr != was->xattr)))
		wrong("'%s' has other attributes", name);
	if (S_ISLNK(a->mode)) {
		r = view_target(l->now.v, a->ino, target, sizeof(target), &n);
		if (r < 0)
			told(NULL, "target");
		else if (n != strlen(was->target) || memcmp(target, was->target, n) != 0)
			wrong("'%s' leads elsewhere", name);
	}
	if (!S_ISREG(a->mode))
		return 0;
	if (a->size > SIZE_MAX_BYTES)
		wrong("'%s' has %" PRIu64 " bytes", name, a->size);
	auto_free uint8_t *data = malloc(a->size + 1);
	ssize_t k = view_read(l->now.v, a->ino, data, a->size, 0, &err);
	if (k < 0)
		told(&err, name);
	else if (a->size != was->a.size)
		wrong("'%s' reads, and has %" PRIu64 " bytes, not %" PRIu64, name, a->size,
		      b->size);
	else if (!l->in_place && ((uint64_t)k != a->size || memcmp(data, was->data, a->size) != 0))
		wrong("'%s' has other bytes", name);
	return 0;
}

static int look_view(void *ctx, const struct view *v)
{
	struct look *l = ctx;
	struct err err = { 0 };
	l->now.v = v;
	l->now.n = 0;
	int r = view_walk(v, look_file, l, &err);
	if (r < 0)
		told(&err, "walk");
	else if (!l->damaged && l->now.n != l->was->n)
		wrong("%zu files, not %zu", l->now.n, l->was->n);
	return 0;
}

/* ---- what fsck finds ---- */

static int64_t findings;

static void on_fault(void *ctx, const struct store_fault *f)
{
	if (t.verbose)
		printf("# fsck: %s at %" PRIu64 ": %s\n", f->pack ? f->pack : "index", f->offset,
		       f->what);
}

static int find_missing(void *ctx, const struct digest *d)
{
	if (store_has(work_store(t.work), d, NULL) == 0)
		findings++;
	return 0;
}

/* As snapd/fsck_trees.c looks at a stack. */
static void check_stack(const struct stack *s)
{
	struct err err;
	struct view_options vo;
	struct image *im = NULL;
	work_view_options(t.work, &vo);
	if (!digest_is_zero(&s->image) && image_open(&im, NULL, vo.images, &s->image, &err) < 0)
		findings++;
	if (im) {
		findings += image_check(im, &err) < 0;
		findings += image_objects(im, find_missing, NULL) < 0;
	}
	image_unref(im);
	for (uint32_t i = 0; i < s->nlayers; i++) {
		const struct stack_layer *desc = &s->layers[i];
		struct layer *l = NULL;
		for (uint32_t k = 0; k < desc->nparts; k++)
			(void)find_missing(NULL, &desc->parts[k]);
		int r = desc->local ? layer_open(&l, &vo.layer, &desc->id, false, &err)
				    : layer_from_delta(&l, &vo.layer, desc, &err);
		findings += r < 0 || layer_lost(l) > 0 || layer_corrected(l) > 0;
		if (l)
			(void)layer_objects(l, find_missing, NULL);
		layer_unref(l);
	}
}

/* ---- the process ---- */

static void look_at_snapshot(size_t i, struct look *l)
{
	struct err err = { 0 };
	struct view_options vo;
	auto_stack st = { 0 };
	struct view v;
	work_view_options(t.work, &vo);
	l->was = &p.snaps[i];
	l->damaged = false;
	if (manifest_get(work_store(t.work), &t.snaps[i].manifest, &st, &err) < 0) {
		told(&err, "manifest");
		findings++; /* snapd/fsck_trees.c, check_snapshot */
		return;
	}
	if (view_open(&v, &vo, &st, &err) < 0) {
		told(&err, "snapshot");
	} else {
		v.store = work_store(t.work);
		(void)look_view(l, &v);
		view_done(&v);
	}
	check_stack(&st);
}

static void look_at_space(size_t i, struct look *l, unsigned look)
{
	struct err err = { 0 };
	struct ws *ws;
	char text[WS_DAMAGE_TEXT];
	auto_stack sealed = { 0 };
	l->was = &p.spaces[i];
	if (ws_open(&ws, t.work, t.spaces[i].id, &err) < 0) {
		told(&err, "workspace");
		findings++; /* check_workspaces */
		return;
	}
	l->damaged = ws_damage(ws, text, sizeof(text));
	if (l->damaged)
		told(NULL, text);
	bool told_before = p.told_now;
	p.told_now = l->damaged;
	(void)ws_with_view(ws, look_view, l);
	if (!p.told_now && look == 1 && add_file(ws) < 0) /* all of it can be read */
		told(NULL, "new file");
	p.told_now |= told_before;
	if (ws_seal(ws, &sealed, &err) < 0)
		told(&err, "seal");
	else
		check_stack(&sealed);
	findings += ws_fault(ws, NULL, 0) || l->damaged; /* add_usage_faults */
	ws_close(ws);
}

static bool look_at_root(unsigned look)
{
	struct err err = { 0 };
	struct io io = io_host;
	const char *base = strrchr(p.file, '/') ? strrchr(p.file, '/') + 1 : p.file;
	struct look l = { .in_place = strncmp(p.file, "layers/", 7) == 0 &&
				      (strcmp(base, "data") == 0 ||
				       (base[0] == 'f' && strcmp(base, "failed") != 0)) };
	const uint8_t boot[16] = { 1 };
	io.fsync = io.fdatasync = no_sync;
	const struct work_options opt = { .io = &io,
					  .boot_id = boot,
					  .commit_ms = UINT64_MAX,
					  .big_file = t.seed % 4 == 3 ? 0 : BIG_FILE };
	if (work_open(&t.work, t.after, &opt, &err) < 0) {
		told(&err, "root");
		return true; /* nothing runs before it is seen to */
	}
	for (size_t i = 0; i < t.nsnaps; i++)
		look_at_snapshot(i, &l);
	for (size_t i = 0; i < t.nspaces; i++)
		if (p.there[i])
			look_at_space(i, &l, look);
	int64_t n = store_check(work_store(t.work), false, on_fault, NULL, &err);
	if (n < 0)
		wrong("the store can't be checked: %s", err.text);
	findings += n;
	uint64_t next;
	n = ino_peek(&io, t.after, &next, NULL); /* check_ino */
	findings += n < 0 && n != -ENOENT;
	work_close(t.work);
	if (p.told_now && !findings)
		wrong("something can't be read, and fsck finds nothing (look %u)", look);
	return p.told_now || findings;
}

/* What is damaged doesn't mend itself: the next server has to tell, too. But the index is a
 * cache. */
static int look_at_all(void)
{
	bool first = look_at_root(1), lost = p.told_now;
	p.told_now = false;
	findings = 0;
	if (!look_at_root(2) && lost)
		wrong("what couldn't be read is forgotten by the next server");
	return first ? TOLD : SAME;
}

static void flip_bit(void)
{
	char path[PATH_MAX];
	uint8_t b;
	(void)snprintf(path, sizeof(path), "%s/%s", t.after, p.file);
	auto_fd fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || pread(fd, &b, 1, (off_t)p.byte) != 1)
		fail("%s: %s", path, strerror(errno));
	b ^= (uint8_t)(1u << p.bit); /* bit 8: none */
	if (pwrite(fd, &b, 1, (off_t)p.byte) != 1)
		fail("%s: %s", path, strerror(errno));
}

static void try(const struct files *fs, size_t file, uint64_t byte, unsigned bit)
{
	struct err err;
	int status;
	p.file = fs->f[file].path;
	p.byte = byte;
	p.bit = bit;
	copy_root(p.source, t.after);
	flip_bit();
	(void)fflush(stdout);
	pid_t pid = fork();
	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid == 0) {
		(void)alarm(HANGS_S);
		int code = look_at_all();
		(void)fflush(stdout);
		_exit(code);
	}
	if (waitpid(pid, &status, 0) != pid)
		fail("wait: %s", strerror(errno));
	if (t.verbose)
		printf("# %s: byte %" PRIu64 ", bit %u: %s\n", p.file, byte, bit,
		       WIFEXITED(status) && WEXITSTATUS(status) == SAME ? "same" : "told");
	if (WIFEXITED(status) && WEXITSTATUS(status) == SAME)
		p.same++;
	else if (WIFEXITED(status) && WEXITSTATUS(status) == TOLD)
		p.told++;
	else {
		fprintf(stderr, "not ok - it %s%d\n",
			WIFSIGNALED(status) ? "died of signal " : "ended with ",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
		fprintf(stderr, "again: flip --ops %" PRIu64 " --seed %" PRIu64, t.ops, t.seed);
		fprintf(stderr, " --at %zu.%" PRIu64 ".%u\n", file, byte, bit);
		(void)io_remove_tree(AT_FDCWD, t.dir, NULL);
		exit(1);
	}
	if (io_remove_tree(AT_FDCWD, t.after, &err) < 0)
		fail("%s", err.text);
}

/* ---- the run ---- */

/* What all of it shows; the root is copied to p.source, and closed. */
static void remember(void)
{
	struct err err;
	struct view_options vo;
	check_snapshots(UINT64_MAX);
	check_store();
	for (size_t i = 0; i < t.nspaces; i++) {
		p.spaces[i] = (struct tree){ 0 };
		p.there[i] = t.spaces[i].ws;
		if (!p.there[i])
			continue;
		(void)ws_with_view(t.spaces[i].ws, tree_of_view, &p.spaces[i]);
	}
	work_view_options(t.work, &vo);
	for (size_t i = 0; i < t.nsnaps; i++) {
		auto_stack st = { 0 };
		struct view v;
		p.snaps[i] = (struct tree){ 0 };
		if (manifest_get(work_store(t.work), &t.snaps[i].manifest, &st, &err) < 0 ||
		    view_open(&v, &vo, &st, &err) < 0)
			fail("snapshot %zu: %s", i, err.text);
		v.store = work_store(t.work);
		(void)tree_of_view(&p.snaps[i], &v);
		view_done(&v);
	}
	/* As a kill leaves it, or an orderly end. */
	if (t.seed % 2)
		copy_root(t.root, p.source);
	for (size_t i = 0; i < t.nspaces; i++) {
		ws_close(t.spaces[i].ws);
		t.spaces[i].ws = NULL;
	}
	work_close(t.work);
	t.work = NULL;
	if (t.seed % 2 == 0)
		copy_root(t.root, p.source);
}

static void forget_all(void)
{
	for (size_t i = 0; i < t.nspaces; i++)
		tree_done(&p.spaces[i]);
	for (size_t i = 0; i < t.nsnaps; i++)
		tree_done(&p.snaps[i]);
}

static void flip_some(const struct files *fs)
{
	try(fs, 0, 0, 8);
	if (p.told)
		fail("without a flipped bit something is told");
	bool some = !p.only;
	for (size_t i = 0; i < fs->n && !some; i++)
		some = strstr(fs->f[i].path, p.only);
	if (!some)
		fail("no file has '%s' in its path", p.only);
	for (uint64_t k = 0; k < p.flips;) {
		/* Each file as often as others, however big; and heads more often. */
		const size_t i = below((unsigned)fs->n);
		const uint64_t size = fs->f[i].size;
		const uint64_t reach = below(3) || size < 256 ? size : 256;
		if (p.only && !strstr(fs->f[i].path, p.only))
			continue;
		try(fs, i, rnd() % reach, below(8));
		k++;
	}
	for (size_t i = 0; i < fs->n && !p.flips; i++)
		for (uint64_t byte = 0; byte < fs->f[i].size; byte++)
			if (!p.only || strstr(fs->f[i].path, p.only))
				try(fs, i, byte, below(8));
}

int main(int argc, char **argv)
{
	const char *at = NULL;
	t.ops = 60;
	t.seed = 1;
	t.runs = 2;
	p.flips = 150;
	for (int i = 1; i < argc; i++) {
		const char *v = i + 1 < argc ? argv[i + 1] : "";
		int took = common_option(argv[i], v);
		if (took)
			i += took - 1;
		else if (!strcmp(argv[i], "--flips"))
			p.flips = strtoull(v, NULL, 10), i++;
		else if (!strcmp(argv[i], "--only"))
			p.only = v, i++;
		else if (!strcmp(argv[i], "--at"))
			at = v, i++;
		else
			return fprintf(stderr, "flip: what is %s?\n", argv[i]), 2;
	}
	if (at)
		t.runs = 1;
	make_dir("flip");
	(void)snprintf(p.source, sizeof(p.source), "%s/source", t.dir);
	for (uint64_t i = 0; i < t.runs; i++, t.seed++) {
		uint64_t byte;
		size_t file;
		unsigned bit;
		struct files fs = { 0 };
		struct io io = io_host;
		io.fsync = io.fdatasync = no_sync;
		run_begin();
		run_ops(&io);
		remember();
		p.same = p.told = 0;
		list_files(&fs, p.source, "");
		qsort(fs.f, fs.n, sizeof(*fs.f), by_age);
		if (at && sscanf(at, "%zu.%" SCNu64 ".%u", &file, &byte, &bit) == 3 && file < fs.n)
			try(&fs, file, byte, bit);
		else
			flip_some(&fs);
		printf("ok %" PRIu64 " - seed %" PRIu64 ", %zu files: %" PRIu64
		       " flipped bits, %" PRIu64 " of them told, %" PRIu64 " change nothing\n",
		       i + 1, t.seed, fs.n, p.same + p.told, p.told, p.same);
		forget_all();
		run_end();
		(void)io_remove_tree(AT_FDCWD, p.source, NULL);
		free(fs.f);
	}
	(void)rmdir(t.dir);
	return 0;
}
