/* The reader of git repositories: against the system's git, against damage, and against packs
 * that no git would write. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include "fs/base/io_fault.h"
#include "fs/store/gitpack.h"
#include "fs/store/store.h"
#include "tests/unit/git_kit.h"
#include "tests/unit/oom.h"

static const struct place *here;

static struct gitrepos *open_repos(const struct io *io)
{
	char dir[300];
	struct gitrepos *g;
	(void)snprintf(dir, sizeof(dir), "%s/repos", here->path);
	assert_int_equal(gitrepos_new(&g, io, dir, NULL), 0);
	return g;
}

/* Reads, and proves what comes. */
static int try_read(struct gitrepos *g, uint32_t repo, const struct oid *oid, enum git_type *type,
		    size_t *len, struct err *err)
{
	uint8_t *data;
	int r = gitrepos_read(g, repo, oid, UINT64_MAX, type, &data, len, err);
	if (r < 0)
		return r;
	struct oid is = oid_of(*type, data, *len);
	assert_memory_equal(is.b, oid->b, OID_BYTES);
	free(data);
	return 0;
}

struct listed {
	struct oid oid;
	char type[8];
	unsigned long long size;
};

/* What git says is in the repository: its number. */
static size_t list(unsigned number, struct listed **out)
{
	char path[300], hex[OID_HEX + 1];
	sh(here, "git --git-dir=repos/%08x cat-file --batch-all-objects --batch-check >list",
	   number);
	(void)snprintf(path, sizeof(path), "%s/list", here->path);
	auto_file *f = fopen(path, "re");
	struct listed *v = calloc(8192, sizeof(*v));
	size_t n = 0;
	assert_non_null(f);
	assert_non_null(v);
	while (n < 8192 && fscanf(f, "%40s %7s %llu", hex, v[n].type, &v[n].size) == 3)
		assert_int_equal(oid_parse(&v[n++].oid, hex), 0);
	*out = v;
	return n;
}

/* Every object that git knows is read and stat'ed as git says, in both orders. */
static size_t judge(unsigned number)
{
	struct listed *v;
	size_t n = list(number, &v);
	struct gitrepos *g = open_repos(NULL);
	assert_true(n > 0);
	for (size_t i = 0; i < 2 * n; i++) {
		const struct listed *l = &v[i < n ? i : 2 * n - 1 - i];
		enum git_type type, stat_type;
		uint64_t size;
		size_t len;
		struct err err;
		if (try_read(g, number, &l->oid, &type, &len, &err) < 0 ||
		    gitrepos_stat(g, number, &l->oid, &stat_type, &size, &err) < 0)
			fail_msg("%s", err.text);
		assert_string_equal(git_type_name(type), l->type);
		assert_int_equal(len, l->size);
		assert_int_equal(stat_type, type);
		assert_int_equal(size, l->size);
		if (i == n)
			gitrepos_trim(g, i % 2 ? 0 : 100000);
	}
	gitrepos_free(g);
	free(v);
	return n;
}

/* A history with every type of object, an empty blob, and files that make deltas. */
static void make_history(void)
{
	sh(here, "git init -q --bare $R; git init -q w; cd w; : >empty; mkdir -p d/e\n"
		 "seq 3000 >d/numbers; seq 5000 9000 >d/e/more; printf x >one\n"
		 "head -c 70000 /dev/zero >zeros; git add .; git commit -q -m one\n"
		 "git tag -a -m 'a tag' v1; seq 3001 >d/numbers; (seq 2500; seq 2700 3000) >two\n"
		 "sed s/7777/seven/ <d/e/more >d/e/other; git add .; git commit -q -m two\n"
		 "git push -q --mirror $R; git --git-dir=$R repack -adq");
}

static uint64_t count_fds(void)
{
	auto_dir *d = opendir("/proc/self/fd");
	uint64_t n = 0;
	while (readdir(d))
		n++;
	return n;
}

/* ---- what git makes ---- */

static void addresses(void **state)
{
	struct oid oid = { { 1, 2, 3 } }, back;
	struct digest d, plain;
	uint32_t repo;
	char name[REPO_NAME_BYTES], hex[OID_HEX + 1];
	digest_of_git(&d, 0x12345678, &oid);
	assert_memory_equal(d.b, "\xb0ugh\0git\x78\x56\x34\x12\1\2\3\0", 16); /* as on disk */
	assert_true(digest_is_git(&d, &repo, &back));
	assert_int_equal(repo, 0x12345678);
	assert_memory_equal(&oid, &back, sizeof(oid));
	hash_sha256(&plain, "x", 1);
	assert_false(digest_is_git(&plain, &repo, &back));
	repo_folder_name(name, repo);
	assert_string_equal(name, "12345678");
	oid_hex(hex, &oid);
	assert_int_equal(oid_parse(&back, hex), 0);
	assert_memory_equal(&oid, &back, sizeof(oid));
	assert_int_equal(oid_parse(&back, "12"), -EINVAL);
	hex[3] = 'X';
	assert_int_equal(oid_parse(&back, hex), -EINVAL);
}

/* The same history as loose objects, and packed in each way. */
static void each_layout(void **state)
{
	static const struct {
		const char *name, *how;
	} layouts[] = {
		{ "packed", "true" },
		{ "loose", "mv $R/objects/pack/* .; for p in *.pack; do "
			   "git --git-dir=$R unpack-objects -q <$p; done; rm pack-*" },
		{ "by name", "git --git-dir=$R -c repack.useDeltaBaseOffset=false repack -adfq" },
		{ "no deltas", "git --git-dir=$R repack -adfq --depth=0 --window=0" },
		{ "stored", "git --git-dir=$R -c pack.compression=0 repack -adFq" },
		{ "many packs",
		  "for o in $(git --git-dir=$R rev-list --objects --all | cut -c1-40); "
		  "do echo $o | git --git-dir=$R pack-objects -q "
		  "$R/objects/pack/pack >/dev/null; done; "
		  "rm $(ls -S $R/objects/pack/*.pack | head -1)" },
	};
	make_history();
	size_t n = 0;
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		sh(here, "%s", layouts[i].how);
		size_t m = judge(1);
		if (n && m != n)
			fail_msg("%s: %zu objects of %zu", layouts[i].name, m, n);
		n = m;
	}
}

/* git's own importer makes each version a delta of the one before. */
static void deep_chain(void **state)
{
	struct buf b = { 0 };
	for (unsigned i = 0; i < 600; i++)
		buf_printf(&b, "blob\ndata 9000\n%08999u\n\n", i);
	assert_int_equal(buf_error(&b), 0);
	gitkit_write(here->path, "stream", &b);
	buf_done(&b);
	sh(here, "git init -q --bare $R; git --git-dir=$R -c fastimport.unpackLimit=0 "
		 "fast-import --quiet --depth=1000 <stream; "
		 "git verify-pack -v $R/objects/pack/*.pack >chains; "
		 "grep -q 'chain length = 5[0-9][0-9]:' chains");
	assert_int_equal(judge(1), 600);
}

/* ---- offsets above 2 GiB ---- */

static void large_offsets(void **state)
{
	const char *texts[] = { "first", "second", "third" };
	sh(here, "git init -q --bare $R");
	struct gitkit *k = gitkit_new();
	k->large = true;
	for (size_t i = 0; i < 3; i++)
		(void)gitkit_add(k, GIT_BLOB, texts[i], strlen(texts[i]));
	gitkit_install(k, here, 1, "table");
	gitkit_free(k);
	judge(1);
	sh(here, "rm $R/objects/pack/*");

	/* An entry behind 5 GiB of nothing. */
	struct buf entry = { 0 }, x = { 0 };
	char path[400], dir[300];
	k = gitkit_new();
	gitkit_head(&entry, GIT_BLOB, 3);
	gitkit_deflate(&entry, "far", 3);
	struct oid oid = oid_of(GIT_BLOB, "far", 3), trailer = { { 7 } };
	buf_add(&entry, trailer.b, OID_BYTES);
	uint64_t at = (uint64_t)5 << 30;
	gitkit_name(k, &oid, at);
	gitkit_index(k, &trailer, &x);
	(void)snprintf(dir, sizeof(dir), "%s/repos/00000001/objects/pack", here->path);
	gitkit_write(dir, "pack-far.idx", &x);
	k->pack.data[11] = 1;
	gitkit_write(dir, "pack-far.pack", &k->pack);
	(void)snprintf(path, sizeof(path), "%s/pack-far.pack", dir);
	auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(io_write_full(NULL, fd, entry.data, entry.len, at), 0);
	struct gitrepos *g = open_repos(NULL);
	enum git_type type;
	size_t len;
	assert_int_equal(try_read(g, 1, &oid, &type, &len, NULL), 0);
	assert_int_equal(len, 3);
	gitrepos_free(g);
	buf_done(&entry);
	buf_done(&x);
	gitkit_free(k);
}

/* An index so large that one look doesn't find everything, evenly spread or not. */
static void large_index(void **state)
{
	enum { N = 4000, CROWD = 1500 };
	struct gitkit *k = gitkit_new();
	struct oid last = { 0 };
	struct buf x = { 0 };
	for (uint32_t i = 0; i < N; i++) {
		struct oid oid;
		sha1(&oid, &i, sizeof(i));
		oid.b[0] = 0x55;
		if (i < CROWD) /* all at the end of their 256th */
			memset(oid.b + 1, 0xff, 8);
		gitkit_name(k, &oid, 100 + i);
		last = oid;
	}
	gitkit_index(k, &last, &x);
	gitkit_write(here->path, "idx", &x);
	struct gitpack p = { .io = &io_host, .bytes = 100000 };
	p.idx_fd = openat(here->fd, "idx", O_RDONLY | O_CLOEXEC);
	assert_int_equal(git_idx_decode(&p.idx, x.data, x.len), 0);
	assert_int_equal(p.idx.count, N);
	for (uint32_t i = 0; i < N; i++) {
		uint64_t off = 0;
		assert_int_equal(gitpack_find(&p, &k->v[i].oid, &off), 1);
		assert_int_equal(off, k->v[i].off);
		struct oid other = k->v[i].oid;
		other.b[19] ^= 1;
		assert_int_equal(gitpack_find(&p, &other, &off), 0);
		other.b[0]++;
		assert_int_equal(gitpack_find(&p, &other, &off), 0);
	}
	(void)close(p.idx_fd);
	buf_done(&x);
	gitkit_free(k);
}

/* ---- packs that come and go ---- */

static int read_hex(struct gitrepos *g, const char *file)
{
	char hex[OID_HEX + 2] = { 0 };
	struct oid oid;
	enum git_type type;
	size_t len;
	auto_fd fd = openat(here->fd, file, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, hex, OID_HEX), OID_HEX);
	assert_int_equal(oid_parse(&oid, hex), 0);
	return try_read(g, 1, &oid, &type, &len, NULL);
}

static void comes_later(void **state)
{
	struct gitrepos *g = open_repos(NULL);
	sh(here, "for i in 1 2 3; do echo $i | git hash-object --stdin >oid$i; done");
	assert_int_equal(read_hex(g, "oid1"), -ENOENT);
	sh(here, "git init -q --bare $R");
	assert_int_equal(read_hex(g, "oid1"), -ENOENT);
	sh(here, "echo 1 | git --git-dir=$R hash-object -w --stdin >/dev/null");
	assert_int_equal(read_hex(g, "oid1"), 0);
	assert_int_equal(read_hex(g, "oid2"), -ENOENT);
	/* At once after a miss, many times: no tick of any clock hides a pack. */
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(read_hex(g, "oid2"), -ENOENT);
		sh(here, "echo 2 | git --git-dir=$R hash-object -w --stdin >/dev/null; "
			 "git --git-dir=$R pack-objects -q $R/objects/pack/pack <oid2 >/dev/null; "
			 "git --git-dir=$R prune-packed -q");
		assert_int_equal(read_hex(g, "oid2"), 0);
		sh(here, "rm $R/objects/pack/*");
		gitrepos_trim(g, i % 2 ? 0 : 1000000); /* which shuts what was deleted */
	}
	/* Another repository in its place. */
	assert_int_equal(read_hex(g, "oid1"), 0);
	sh(here, "rm -r $R; git init -q --bare $R; "
		 "echo 3 | git --git-dir=$R hash-object -w --stdin >/dev/null");
	assert_int_equal(read_hex(g, "oid3"), 0);
	assert_int_equal(read_hex(g, "oid1"), -ENOENT);
	sh(here, "rm -r $R");
	assert_int_equal(read_hex(g, "oid3"), -ENOENT);
	gitrepos_free(g);
}

struct readers {
	struct gitrepos *g;
	struct listed *v;
	size_t n;
	atomic_bool stop;
	atomic_uint rounds;
};

static void *read_on(void *arg)
{
	struct readers *rs = arg;
	for (size_t i = (size_t)(uintptr_t)&i / 64; !atomic_load(&rs->stop); i++) {
		enum git_type type;
		size_t len;
		struct err err;
		if (try_read(rs->g, 1, &rs->v[i % rs->n].oid, &type, &len, &err) < 0) {
			print_error("%s\n", err.text);
			abort();
		}
		assert_int_equal(len, rs->v[i % rs->n].size);
		if (i % 64 == 0)
			gitrepos_trim(rs->g, 0);
		atomic_fetch_add(&rs->rounds, 1);
	}
	return NULL;
}

static void repacked_meanwhile(void **state)
{
	static const char *const how[] = {
		"git --git-dir=$R repack -adfq",
		"git --git-dir=$R repack -adfq --depth=3",
		"git --git-dir=$R -c pack.compression=0 repack -adFq",
	};
	struct readers rs = { 0 };
	pthread_t t[3];
	make_history();
	rs.n = list(1, &rs.v);
	rs.g = open_repos(NULL);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, read_on, &rs), 0);
	for (unsigned i = 0; i < 9; i++)
		sh(here, "%s", how[i % 3]);
	atomic_store(&rs.stop, true);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_true(atomic_load(&rs.rounds) > 100);
	gitrepos_free(rs.g);
	free(rs.v);
}

/* More packs than are kept open. */
static void many_packs(void **state)
{
	enum { PACKS = 160 };
	struct oid oids[PACKS];
	sh(here, "git init -q --bare $R");
	for (unsigned i = 0; i < PACKS; i++) {
		char text[32], name[16];
		int n = snprintf(text, sizeof(text), "content %u", i);
		(void)snprintf(name, sizeof(name), "%u", i);
		struct gitkit *k = gitkit_new();
		(void)gitkit_add(k, GIT_BLOB, text, (size_t)n);
		oids[i] = k->v[0].oid;
		gitkit_install(k, here, 1, name);
		gitkit_free(k);
	}
	struct gitrepos *g = open_repos(NULL);
	uint64_t before = count_fds();
	enum git_type type;
	size_t len;
	for (unsigned i = 0; i < PACKS; i++)
		assert_int_equal(try_read(g, 1, &oids[i], &type, &len, NULL), 0);
	assert_true(count_fds() < before + 2 * PACKS - 20);
	gitrepos_trim(g, 0);
	assert_int_equal(count_fds(), before);
	gitrepos_free(g);
}

/* ---- damage ---- */

static void write_at(const char *path, const void *data, size_t len, off_t off)
{
	auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, data, len, off), len);
}

/* Everything is read from the damaged repository: the right bytes, or an error. */
static unsigned survive(const struct listed *v, size_t n)
{
	struct gitrepos *g = open_repos(NULL);
	unsigned failed = 0;
	for (size_t i = 0; i < n; i++) {
		enum git_type type;
		uint64_t size;
		size_t len;
		struct err err;
		int r = try_read(g, 1, &v[i].oid, &type, &len, &err);
		if (r != 0 && r != -ENOENT && r != -EBADMSG && r != -EFBIG)
			fail_msg("%d: %s", r, err.text);
		failed += r < 0;
		r = gitrepos_stat(g, 1, &v[i].oid, &type, &size, &err);
		if (r != 0 && r != -ENOENT && r != -EBADMSG)
			fail_msg("%d: %s", r, err.text);
	}
	gitrepos_free(g);
	return failed;
}

/* Flips a bit of every `step`th byte of the file, and cuts it there. */
static unsigned damage_file(const char *path, size_t step, const struct listed *v, size_t n)
{
	auto_free uint8_t *whole = NULL;
	size_t len;
	unsigned failed = 0;
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 1 << 20, (void **)&whole, &len, NULL), 0);
	assert_int_equal(chmod(path, 0600), 0);
	for (size_t at = 0; at < len; at += step) {
		uint8_t bad = whole[at] ^ (uint8_t)(1 << at % 8);
		write_at(path, &bad, 1, (off_t)at);
		failed += survive(v, n);
		write_at(path, &whole[at], 1, (off_t)at);
		if (at % (4 * step) == 0) {
			assert_int_equal(truncate(path, (off_t)at), 0);
			failed += survive(v, n);
			write_at(path, whole, len, 0);
		}
	}
	assert_int_equal(survive(v, n), 0);
	return failed;
}

static void damage(void **state)
{
	struct listed *v;
	char path[300];
	sh(here, "git init -q --bare $R; git init -q w; cd w; seq 300 >a; seq 301 >b; "
		 "(seq 302; echo x) >c; git add .; git commit -q -m 1; git push -q --mirror $R; "
		 "git --git-dir=$R repack -adfq; cd ..; "
		 "ln -s $R/objects/pack/*.pack pack; ln -s $R/objects/pack/*.idx idx");
	size_t n = list(1, &v);
	assert_int_equal(survive(v, n), 0);
	(void)snprintf(path, sizeof(path), "%s/pack", here->path);
	assert_true(damage_file(path, 3, v, n) > 100);
	(void)snprintf(path, sizeof(path), "%s/idx", here->path);
	assert_true(damage_file(path, 5, v, n) > 100);
	sh(here, "cp pack p; rm $R/objects/pack/*; git --git-dir=$R unpack-objects -q <p; rm p; "
		 "for f in $R/objects/[0-9a-f]*/*; do test -f loose || ln -s $f loose; done");
	(void)snprintf(path, sizeof(path), "%s/loose", here->path);
	assert_true(damage_file(path, 1, v, n) > 20);
	free(v);
}

/* A second copy saves a damaged first one; without one the error says where the damage is. */
static void second_copy(void **state)
{
	struct err err;
	enum git_type type;
	size_t len;
	char path[300];
	sh(here, "git init -q --bare $R");
	struct gitkit *k = gitkit_new();
	uint64_t off = gitkit_add(k, GIT_BLOB, "some text", 9);
	struct oid oid = k->v[0].oid;
	gitkit_install(k, here, 1, "whole");
	(void)snprintf(path, sizeof(path), "%s/repos/00000001/objects/pack/pack-whole.pack",
		       here->path);
	gitkit_free(k);
	write_at(path, "\0\0\0\0", 4, (off_t)off + 4);
	struct gitrepos *g = open_repos(NULL);
	assert_int_equal(try_read(g, 1, &oid, &type, &len, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "pack-whole"));
	sh(here, "printf 'some text' >t; git init -q other; "
		 "git --git-dir=other/.git hash-object -w t >/dev/null; "
		 "cp -r other/.git/objects/[0-9a-f]* $R/objects");
	assert_int_equal(try_read(g, 1, &oid, &type, &len, &err), 0);
	sh(here, "rm -r $R/objects/[0-9a-f]*; echo nothing >$R/objects/pack/pack-whole.idx");
	gitrepos_trim(g, 0);
	/* Nobody knows what was in there: not the same as knowing that it isn't. */
	assert_int_equal(try_read(g, 1, &oid, &type, &len, &err), -EBADMSG);
	sh(here, "rm $R/objects/pack/pack-whole.idx");
	assert_int_equal(try_read(g, 1, &oid, &type, &len, &err), -ENOENT);
	gitrepos_free(g);
}

/* ---- packs that no git writes ---- */

struct hostile {
	const char *name;
	void (*make)(struct gitkit *k, struct oid *oid);
	int result;
};

static const struct oid any = { { 0x42, 1, 2, 3 } }, other_one = { { 0x43, 1, 2, 3 } };

static struct buf delta_of(uint64_t base, uint64_t result, const void *code, size_t len)
{
	struct buf d = { 0 };
	gitkit_varint(&d, base);
	gitkit_varint(&d, result);
	buf_add(&d, code, len);
	return d;
}

static void claim(struct gitkit *k, struct oid *oid, unsigned type, uint64_t size)
{
	*oid = any;
	gitkit_name(k, oid, k->pack.len);
	gitkit_head(&k->pack, type, size);
	if (type == GIT_REF_DELTA)
		buf_add(&k->pack, other_one.b, OID_BYTES);
	gitkit_deflate(&k->pack, "0123456789", 10);
}

static void huge_blob(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, GIT_BLOB, (uint64_t)1 << 60);
}
static void huger_blob(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, GIT_BLOB, UINT64_MAX);
}
static void huge_delta(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, GIT_REF_DELTA, (uint64_t)1 << 60);
}
static void longer(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, GIT_BLOB, 11);
}
static void shorter(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, GIT_BLOB, 9);
}
static void type_0(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, 0, 10);
}
static void type_5(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, 5, 10);
}
static void wrong_content(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, GIT_BLOB, 10);
}
static void no_base(struct gitkit *k, struct oid *oid)
{
	claim(k, oid, GIT_REF_DELTA, 10);
}

/* Base of ten bytes, and what a delta with this code claims to make of it. */
static void with_delta(struct gitkit *k, struct oid *oid, uint64_t base, uint64_t result,
		       const void *code, size_t len)
{
	uint64_t at = gitkit_add(k, GIT_BLOB, "0123456789", 10);
	struct buf d = delta_of(base, result, code, len);
	*oid = any;
	gitkit_name(k, oid, gitkit_ofs(k, at, &d));
	buf_done(&d);
}

static void copy_outside(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 10, 10, "\x91\x05\x0a", 3); /* ten bytes from 5 on */
}
static void copy_far(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 10, 0x10000, "\x8f\xff\xff\xff\xff", 5);
}
static void insert_outside(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 10, 100, "\x64xxx", 4);
}
static void cut_instruction(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 10, 10, "\xff\x01\x02", 3);
}
static void reserved(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 10, 1, "\0", 1);
}
static void other_base(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 11, 1, "\1x", 2);
}
static void more_than_said(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 10, 1, "\2xx", 3);
}
static void less_than_said(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 10, (uint64_t)1 << 60, "\1x", 2);
}
static void no_code(struct gitkit *k, struct oid *oid)
{
	with_delta(k, oid, 10, 0, "", 0); /* is whole, but makes another object */
}

static void own_base(struct gitkit *k, struct oid *oid)
{
	struct buf d = delta_of(1, 1, "\1x", 2);
	*oid = any;
	gitkit_name(k, oid, gitkit_ref(k, &any, &d));
	buf_done(&d);
}
static void ring(struct gitkit *k, struct oid *oid)
{
	struct buf d = delta_of(1, 1, "\1x", 2);
	*oid = any;
	gitkit_name(k, oid, gitkit_ref(k, &other_one, &d));
	gitkit_name(k, &other_one, gitkit_ref(k, &any, &d));
	buf_done(&d);
}
static void before_start(struct gitkit *k, struct oid *oid)
{
	struct buf d = delta_of(1, 1, "\1x", 2);
	*oid = any;
	gitkit_name(k, oid, gitkit_ofs(k, (uint64_t)0 - 1000, &d));
	buf_done(&d);
}
static void into_the_middle(struct gitkit *k, struct oid *oid)
{
	uint64_t at = gitkit_add(k, GIT_BLOB, "0123456789", 10);
	struct buf d = delta_of(1, 1, "\1x", 2);
	*oid = any;
	gitkit_name(k, oid, gitkit_ofs(k, at + 3, &d));
	buf_done(&d);
}
static void no_end(struct gitkit *k, struct oid *oid)
{
	*oid = any;
	gitkit_name(k, oid, k->pack.len);
	buf_add(&k->pack, "\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 14);
}
static void offset_outside(struct gitkit *k, struct oid *oid)
{
	*oid = any;
	(void)gitkit_add(k, GIT_BLOB, "0123456789", 10);
	gitkit_name(k, oid, (uint64_t)1 << 62);
}
static void offset_in_trailer(struct gitkit *k, struct oid *oid)
{
	*oid = any;
	(void)gitkit_add(k, GIT_BLOB, "0123456789", 10);
	gitkit_name(k, oid, k->pack.len);
}

/* `n` deltas on one blob, each of which adds nothing. */
static void chain(struct gitkit *k, struct oid *oid, unsigned n)
{
	uint64_t at = gitkit_add(k, GIT_BLOB, "0123456789", 10);
	struct buf d = delta_of(10, 10, "\x90\x0a", 2);
	struct oid base = k->v[0].oid;
	k->n = 0;
	for (unsigned i = 0; i < n; i++)
		at = gitkit_ofs(k, at, &d);
	*oid = base;
	gitkit_name(k, oid, at);
	buf_done(&d);
}
static void longest_chain(struct gitkit *k, struct oid *oid)
{
	chain(k, oid, GIT_CHAIN_MAX);
}
static void chain_too_long(struct gitkit *k, struct oid *oid)
{
	chain(k, oid, GIT_CHAIN_MAX + 1);
}

static const struct hostile hostiles[] = {
	{ "huge blob", huge_blob, -EBADMSG },
	{ "huger blob", huger_blob, -EBADMSG },
	{ "huge delta", huge_delta, -EBADMSG },
	{ "longer than its stream", longer, -EBADMSG },
	{ "shorter than its stream", shorter, -EBADMSG },
	{ "type 0", type_0, -EBADMSG },
	{ "type 5", type_5, -EBADMSG },
	{ "content of another name", wrong_content, -EBADMSG },
	{ "base that isn't there", no_base, -EBADMSG },
	{ "copy from outside", copy_outside, -EBADMSG },
	{ "copy from far outside", copy_far, -EBADMSG },
	{ "insert from outside", insert_outside, -EBADMSG },
	{ "cut instruction", cut_instruction, -EBADMSG },
	{ "reserved instruction", reserved, -EBADMSG },
	{ "base of another size", other_base, -EBADMSG },
	{ "more than said", more_than_said, -EBADMSG },
	{ "less than said", less_than_said, -EBADMSG },
	{ "no instruction", no_code, -EBADMSG },
	{ "base of itself", own_base, -EBADMSG },
	{ "ring", ring, -EBADMSG },
	{ "base before the start", before_start, -EBADMSG },
	{ "base in the middle", into_the_middle, -EBADMSG },
	{ "head without an end", no_end, -EBADMSG },
	{ "offset outside", offset_outside, -EBADMSG },
	{ "offset in the trailer", offset_in_trailer, -EBADMSG },
	{ "longest chain", longest_chain, 0 },
	{ "chain too long", chain_too_long, -EBADMSG },
};

static void hostile_packs(void **state)
{
	for (size_t i = 0; i < sizeof(hostiles) / sizeof(hostiles[0]); i++) {
		struct oid oid;
		enum git_type type;
		uint64_t size;
		size_t len;
		char dir[300];
		(void)snprintf(dir, sizeof(dir), "%s/repos/%08zx/objects/pack", here->path, i);
		sh(here, "mkdir -p '%s'", dir);
		struct gitkit *k = gitkit_new();
		hostiles[i].make(k, &oid);
		gitkit_install(k, here, (unsigned)i, "x");
		gitkit_free(k);
		struct gitrepos *g = open_repos(NULL);
		int r = try_read(g, (uint32_t)i, &oid, &type, &len, NULL);
		if (r != hostiles[i].result)
			fail_msg("%s: %d", hostiles[i].name, r);
		r = gitrepos_stat(g, (uint32_t)i, &oid, &type, &size, NULL);
		if (r != 0 && r != -EBADMSG)
			fail_msg("%s: stat %d", hostiles[i].name, r);
		gitrepos_free(g);
	}
}

/* Sizes are looked at before memory is taken, of bases and of results. */
static void too_large(void **state)
{
	enum { MIB = 1 << 20 };
	auto_free uint8_t *zeros = calloc(1, 3 * MIB);
	uint8_t *data = NULL;
	enum git_type type;
	size_t len = 0;
	sh(here, "mkdir -p $R/objects/pack");
	struct gitkit *k = gitkit_new();
	uint64_t at = gitkit_add(k, GIT_BLOB, zeros, 3 * MIB);
	struct oid whole = k->v[0].oid, small = oid_of(GIT_BLOB, zeros, 0xffff);
	struct buf d = delta_of(3 * MIB, 0xffff, "\xb0\xff\xff", 3);
	gitkit_name(k, &small, gitkit_ofs(k, at, &d));
	struct oid bomb = any;
	buf_reset(&d);
	gitkit_varint(&d, 3 * MIB);
	gitkit_varint(&d, (uint64_t)2 * MIB * 1024);
	for (unsigned i = 0; i < 1024; i++)
		buf_add(&d, "\xc0\x20", 2); /* 2 MiB from the start */
	gitkit_name(k, &bomb, gitkit_ofs(k, at, &d));
	gitkit_install(k, here, 1, "x");
	struct gitrepos *g = open_repos(NULL);
	assert_int_equal(gitrepos_read(g, 1, &whole, MIB, &type, &data, &len, NULL), -EFBIG);
	assert_int_equal(gitrepos_read(g, 1, &bomb, MIB, &type, &data, &len, NULL), -EFBIG);
	assert_null(data);
	assert_int_equal(gitrepos_read(g, 1, &small, 0xffff, &type, &data, &len, NULL), 0);
	assert_int_equal(len, 0xffff);
	free(data);
	assert_int_equal(gitrepos_read(g, 1, &small, 0xfffe, &type, &data, &len, NULL), -EFBIG);
	gitrepos_free(g);
	buf_done(&d);
	gitkit_free(k);
}

/* ---- objects as streams ---- */

struct drunk {
	struct buf got;
	unsigned calls;
	size_t sip;   /* bytes that are asked for at once */
	int fail;     /* what fn returns */
	enum git_type type;
};

static int drink(void *ctx, struct gitstream *s, enum git_type type, uint64_t size, struct err *err)
{
	struct drunk *d = ctx;
	buf_reset(&d->got);
	d->calls++;
	d->type = type;
	while (d->got.len < size && d->fail == 0) {
		size_t n = size - d->got.len < d->sip ? (size_t)size - d->got.len : d->sip;
		int r = gitstream_read(s, buf_room(&d->got, n), n);
		if (r < 0)
			return r;
		d->got.len += n;
	}
	return d->fail ? err_set(err, d->fail, "full up") : 0;
}

static int stream(struct gitrepos *g, const struct oid *oid, struct drunk *d, struct err *err)
{
	const struct git_use use = { drink, d };
	return gitrepos_stream(g, 1, oid, &use, err);
}

/* All that git knows, in a pack and loose: what comes has the right hash; of deltas nothing. */
static void streams(void **state)
{
	static const size_t sips[] = { 1, 17, 4096, 1 << 20 };
	struct listed *v;
	unsigned deltas = 0, tries = 0;
	make_history();
	sh(here, "head -c 50000 /dev/urandom | git --git-dir=$R hash-object -w --stdin >/dev/null\n"
		 "printf '' | git --git-dir=$R hash-object -w --stdin >/dev/null\n"
		 "printf 'longer than what is read with the head of it' |"
		 " git --git-dir=$R hash-object -w --stdin >/dev/null");
	size_t n = list(1, &v);
	struct gitrepos *g = open_repos(NULL);
	for (size_t i = 0; i < n; i++) {
		struct drunk d = { .sip = sips[i % 4] };
		int r = stream(g, &v[i].oid, &d, NULL);
		deltas += r == -EOPNOTSUPP;
		if (r == -EOPNOTSUPP)
			continue;
		assert_int_equal(r, 0);
		assert_int_equal(d.got.len, v[i].size);
		assert_string_equal(git_type_name(d.type), v[i].type);
		struct oid is = oid_of(d.type, d.got.data, d.got.len);
		assert_memory_equal(is.b, v[i].oid.b, OID_BYTES);
		tries++;
		/* Who reads it says no: then nobody else is asked. */
		struct err err;
		d.calls = 0;
		d.fail = -ENOSPC;
		assert_int_equal(stream(g, &v[i].oid, &d, &err), -ENOSPC);
		assert_string_equal(err.text, "full up");
		assert_int_equal(d.calls, 1);
		buf_done(&d.got);
	}
	assert_true(deltas > 0 && tries > 8);
	gitrepos_free(g);
	free(v);
}

/* Of two copies one is damaged, at its end: the other one is what counts. */
static void a_damaged_stream(void **state)
{
	static char text[100000];
	struct drunk d = { .sip = 1000 };
	sh(here, "mkdir -p $R/objects/pack");
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (char)(i * i % 251);
	struct oid oid = oid_of(GIT_BLOB, text, sizeof(text));
	for (int whole = 0; whole < 2; whole++) {
		struct gitkit *k = gitkit_new();
		text[sizeof(text) - 1] ^= !whole;
		(void)gitkit_add(k, GIT_BLOB, text, sizeof(text));
		text[sizeof(text) - 1] ^= !whole;
		k->v[0].oid = oid;
		gitkit_install(k, here, 1, whole ? "whole" : "bad");
		gitkit_free(k);
		struct gitrepos *g = open_repos(NULL);
		assert_int_equal(stream(g, &oid, &d, NULL), whole ? 0 : -EBADMSG);
		assert_int_equal(d.got.len, sizeof(text));
		assert_true(!whole || memcmp(d.got.data, text, sizeof(text)) == 0);
		gitrepos_free(g);
	}
	/* One that ends early, or goes on. */
	for (int more = -1; more <= 1; more += 2) {
		struct gitkit *k = gitkit_new();
		gitkit_name(k, &oid, k->pack.len);
		gitkit_head(&k->pack, GIT_BLOB, sizeof(text));
		gitkit_deflate(&k->pack, text, sizeof(text) - 1);
		if (more > 0) {
			k->pack.len = GIT_PACK_HEAD;
			gitkit_head(&k->pack, GIT_BLOB, sizeof(text) - 1);
			gitkit_deflate(&k->pack, text, sizeof(text));
		}
		sh(here, "rm $R/objects/pack/*");
		gitkit_install(k, here, 1, "odd");
		gitkit_free(k);
		struct gitrepos *g = open_repos(NULL);
		assert_int_equal(stream(g, &oid, &d, NULL), -EBADMSG);
		gitrepos_free(g);
	}
	buf_done(&d.got);
}

/* ---- a disk and a memory that fail ---- */

static void read_all(struct gitrepos *g, const struct listed *v, size_t n, bool memory)
{
	for (size_t i = 0; i < n; i++) {
		enum git_type type;
		size_t len;
		int r = try_read(g, 1, &v[i].oid, &type, &len, NULL);
		assert_true(r == 0 || r == (memory ? -ENOMEM : -EIO));
	}
}

static void failing_disk(void **state)
{
	struct listed *v;
	make_history();
	sh(here, "echo loose | git --git-dir=$R hash-object -w --stdin >/dev/null");
	size_t n = list(1, &v);
	uint64_t before = count_fds(), k = 1;
	for (bool hit = true; hit; k++) {
		struct io_fault *f = io_fault_new(NULL);
		struct gitrepos *g = open_repos(io_fault_io(f));
		io_fault_plan(f, &(struct io_fault_plan){ .ops = IO_OPS_ALL & ~IO_OP_CLOSE,
							  .nth = k });
		read_all(g, v, n, false);
		hit = io_fault_hits(f) > 0;
		io_fault_plan(f, NULL);
		for (size_t i = 0; i < n; i++) {
			enum git_type type;
			size_t len;
			assert_int_equal(try_read(g, 1, &v[i].oid, &type, &len, NULL), 0);
		}
		gitrepos_free(g);
		io_fault_free(f);
	}
	assert_true(k > 20);
	assert_int_equal(count_fds(), before);
	free(v);
}

static void failing_memory(void **state)
{
	struct listed *v;
	make_history();
	size_t n = list(1, &v);
	for (uint64_t k = 1;; k++) {
		struct gitrepos *g = open_repos(NULL);
		oom_at(k);
		for (size_t i = 0; i < n; i++) {
			enum git_type type;
			uint8_t *data;
			size_t len;
			int r = gitrepos_read(g, 1, &v[i].oid, UINT64_MAX, &type, &data, &len,
					      NULL);
			assert_true(r == 0 || r == -ENOMEM);
			if (r == 0)
				free(data);
		}
		bool hit = oom_hit();
		read_all(g, v, n, true);
		gitrepos_free(g);
		if (!hit)
			break;
	}
	free(v);
}

/* ---- as content of the store ---- */

static struct store *open_store(const char *repos)
{
	char dir[300];
	struct store *s;
	struct err err;
	struct store_options opt = { .create = true, .repos = repos };
	(void)snprintf(dir, sizeof(dir), "%s/store", here->path);
	if (store_open(&s, dir, &opt, &err) < 0)
		fail_msg("%s", err.text);
	return s;
}

static void in_the_store(void **state)
{
	enum { MIB = 1 << 20 };
	char repos[300];
	auto_free uint8_t *zeros = calloc(1, MIB + 1);
	const struct blob *b, *again;
	struct digest blob, tree, limit, above, none, other;
	uint32_t size = 0;
	struct err err;
	sh(here, "mkdir -p $R/objects/pack");
	struct gitkit *k = gitkit_new();
	(void)gitkit_add(k, GIT_BLOB, "content", 7);
	digest_of_git(&blob, 1, &k->v[0].oid);
	digest_of_git(&other, 2, &k->v[0].oid);
	(void)gitkit_add(k, GIT_TREE, "", 0);
	digest_of_git(&tree, 1, &k->v[1].oid);
	(void)gitkit_add(k, GIT_BLOB, zeros, MIB);
	digest_of_git(&limit, 1, &k->v[2].oid);
	(void)gitkit_add(k, GIT_BLOB, zeros, MIB + 1);
	digest_of_git(&above, 1, &k->v[3].oid);
	digest_of_git(&none, 1, &any);
	gitkit_install(k, here, 1, "x");
	gitkit_free(k);
	(void)snprintf(repos, sizeof(repos), "%s/repos", here->path);
	struct store *s = open_store(repos);
	assert_int_equal(store_get(s, &blob, &b, &err), 0);
	assert_int_equal(b->len, 7);
	assert_memory_equal(b->data, "content", 7);
	assert_int_equal(store_get(s, &blob, &again, &err), 0);
	assert_ptr_equal(b, again);
	blob_put(again);
	assert_int_equal(store_has(s, &blob, &size), 1);
	assert_int_equal(size, 7);
	assert_int_equal(store_get(s, &tree, &again, &err), -EBADMSG);
	assert_int_equal(store_has(s, &tree, NULL), -EBADMSG);
	assert_int_equal(store_get(s, &above, &again, &err), -EBADMSG);
	assert_int_equal(store_has(s, &above, NULL), -EBADMSG);
	assert_int_equal(store_get(s, &none, &again, &err), -ENOENT);
	assert_int_equal(store_has(s, &none, NULL), 0);
	assert_int_equal(store_get(s, &other, &again, &err), -ENOENT);
	assert_int_equal(store_has(s, &other, NULL), 0);
	assert_int_equal(store_get(s, &limit, &again, &err), 0);
	assert_int_equal(again->len, MIB);
	blob_put(again);
	store_trim(s, 0);
	assert_memory_equal(b->data, "content", 7); /* what is held stays */
	blob_put(b);
	assert_int_equal(store_check(s, false, NULL, NULL, &err), 0);
	store_close(s);

	s = open_store(NULL);
	assert_int_equal(store_get(s, &blob, &b, &err), -ENOENT);
	assert_int_equal(store_has(s, &blob, NULL), 0);
	store_close(s);
}

static int mark_git(void *ctx, struct store_gc *gc, struct err *err)
{
	store_gc_mark(gc, ctx, NULL);
	return 0;
}

/* Marking an address keeps nothing of the store, and the object stays where it is. */
static void marked(void **state)
{
	char repos[300];
	struct digest d, put;
	const struct blob *b;
	struct store_session *ss;
	struct store_gc_stats st;
	sh(here, "mkdir -p $R/objects/pack");
	struct gitkit *k = gitkit_new();
	(void)gitkit_add(k, GIT_BLOB, "content", 7);
	digest_of_git(&d, 1, &k->v[0].oid);
	gitkit_install(k, here, 1, "x");
	gitkit_free(k);
	(void)snprintf(repos, sizeof(repos), "%s/repos", here->path);
	struct store *s = open_store(repos);
	assert_int_equal(store_session_begin(s, &ss, NULL), 0);
	assert_int_equal(store_put(ss, "other", 5, &put, NULL), 0);
	assert_int_equal(store_sync(ss, NULL), 0);
	store_session_end(ss);
	assert_int_equal(store_gc(s, mark_git, &d, &st, NULL), 0);
	assert_int_equal(st.objects_live, 0);
	assert_int_equal(store_get(s, &d, &b, NULL), 0);
	blob_put(b);
	store_close(s);
}

static int set_up(void **state)
{
	int r = place_set_up(state);
	here = *state;
	return r < 0 || mkdirat(here->fd, "repos", 0700) < 0 ? -1 : 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, place_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(addresses),     TEST(each_layout),    TEST(deep_chain),
		TEST(large_offsets), TEST(large_index),    TEST(comes_later),
		TEST(many_packs),    TEST(damage),         TEST(second_copy),
		TEST(hostile_packs), TEST(too_large),      TEST(repacked_meanwhile),
		TEST(streams),       TEST(a_damaged_stream),
		TEST(failing_disk),  TEST(failing_memory), TEST(in_the_store),
		TEST(marked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
