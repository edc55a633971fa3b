/* Checkouts of commits that are older than known ones: what their history holds is told by notes of
 * the newer ones (gitops/pack_gain.c). Nothing else may be in their packs, and nothing may lack. */
#include "pack_kit.h"

#include <glob.h>

#include "gitops/pack_impl.h"
#include "oom.h"
#include "tests/seed.h"

enum { KNOWN = 16, NAME = 64 };

struct checkouts {
	struct checkout_known v[KNOWN];
	size_t n;
	const char *const *scopes;
	size_t nscopes;
	unsigned walked, noted; /* how those were found that had known ones */
};

/* Whether trees are walked through. */
static int note_walk(void *ctx, uint64_t done, uint64_t total, const char *what)
{
	if (strcmp(what, "looking at the trees") == 0)
		*(bool *)ctx = true;
	return 0;
}

/* The packs hold what the commit's history does, and tags that lead there. */
static void judge_packs(const char *commit, const struct checkouts *c)
{
	static const char in_scope[] =
		"for c in $(m rev-list %s); do m ls-tree -r $c; done | awk '$2 == \"blob\" && "
		"($4 ~ /^a\\/b\\// || $4 !~ /\\// || $4 ~ /^a\\/[^\\/]*$/) { print $3 }'";
	char blobs[512];
	(void)snprintf(blobs, sizeof(blobs), in_scope, commit);
	sh("{ m rev-list --objects --no-object-names %s %s\n%s; } | sort -u >expected\n"
	   "for i in out/.git/objects/pack/*.idx; do\n"
	   "  git show-index --object-format=sha1 <$i; done |\n"
	   "  cut -d' ' -f2 | sort >found; uniq -d found | diff /dev/null -; diff expected found\n"
	   "w fsck --strict --full --no-dangling 2>&1 | grep -v ^notice | diff /dev/null -",
	   c->nscopes ? "--filter=blob:none" : "", commit, c->nscopes ? blobs : ":");
}

/* The pack of that commit is as it is when nothing is known, and its pieces have no other bytes. */
static void judge_bytes(const struct checkout_spec *spec, const struct pack_out *pack)
{
	struct pack_set set;
	const struct checkout_options opt = options();
	ok(pack_write(&set, &opt, spec, &err));
	assert_int_equal(set.packs[0].pack_bytes, pack->pack_bytes);
	assert_memory_equal(set.packs[0].name, pack->name, OID_BYTES);
	pack_set_done(&set);
	for (size_t i = 0; i < pack->npack; i++) {
		const struct blob *b;
		ok(store_get(store, &pack->pack[i].object, &b, &err));
		assert_int_equal(pack->pack[i].obj_off, 0);
		assert_int_equal(pack->pack[i].len, b->len);
		blob_put(b);
	}
}

/* Builds that commit beside the known ones, and lets it be known, too. */
static void check_out(struct checkouts *c, const char *commit)
{
	bool walked = false;
	char path[128], script[NAME + 64];
	struct pack_set set;
	struct image *im;
	struct checkout_options opt = options();
	opt.known = c->v;
	opt.nknown = c->n;
	opt.near = 1;
	opt.progress = note_walk;
	opt.progress_ctx = &walked;
	(void)snprintf(script, sizeof(script), "m rev-parse %s", commit);
	const struct checkout_spec spec = { .commit = oid_from(script), .branch = "b",
					    .scopes = c->scopes, .nscopes = c->nscopes };
	const struct digest image = build(&opt, &spec, &set);
	if (c->n == 1 && !walked)
		judge_bytes(&spec, &set.packs[0]);
	pack_set_done(&set);
	(void)snprintf(path, sizeof(path), "%s/images", root);
	ok(image_open(&im, NULL, path, &image, &err));
	sh("rm -rf out");
	(void)snprintf(path, sizeof(path), "%s/out", root);
	write_tree(im, 1, path);
	image_unref(im);
	judge_packs(commit, c);
	c->walked += c->n > 0 && walked;
	c->noted += c->n > 0 && !walked;
	if (c->n == KNOWN) /* the last used first */
		c->n--;
	memmove(c->v + 1, c->v, c->n * sizeof(*c->v));
	c->v[0] = (struct checkout_known){ spec.commit, image };
	c->n++;
}

/* ---- histories of each kind ---- */

/* Commits r1, r2 … are branches (no digits of ids); what only newer ones have says SECRET. */
#define BEGIN                                                                            \
	"rm -rf repos out; mkdir repos; git init -q --bare -b main repos/00000001\n"      \
	"c=0; when=1600000000\n"                                                          \
	"parents() { k=from; for p; do echo $k :$p; k=merge; done; }\n"                   \
	"commit() { c=$((c + 1)); when=$((when + 60))\n"                                  \
	"  echo commit refs/heads/r$c; echo mark :$c; echo 'committer A <a@b>' $when +0000\n" \
	"  echo data 1; echo c; parents \"$@\"; }\n"                                      \
	"put() { echo M 644 inline $1; echo data ${#2}; echo $2; }\n{ "
#define END "; } >stream; m fast-import --quiet <stream"

struct kind {
	const char *script;
	const char *newer, *older[6];
};

static const struct kind kinds[] = {
	/* A line; r4 takes back what r3 did, r6 brings r3's again. */
	{ BEGIN "commit; put a/b/f 1; put a/g 1; put x 1; commit 1; put a/b/f 2\n"
		"commit 2; put a/b/f 3; put d/e/f 3; commit 3; put a/b/f 2; echo D d\n"
		"commit 4; put x 5; commit 5; put a/b/f 3; put d/e/f 3\n"
		"commit 6; put a/b/SECRET SECRET" END,
	  "r7", { "r6", "r5", "r4", "r3", "r2", "r1" } },
	/* Two branches that make the same tree, and a merge of them. */
	{ BEGIN "commit; put a/b/f 1; commit 1; put n/o/p 1; put n/q 2\n"
		"commit 1; put n/o/p 1; put n/q 2; put a/b/g 1\n"
		"commit 2; put a/b/f SECRET; commit 4 3; put a/b/g 1\n"
		"commit 5; put s/SECRET SECRET" END,
	  "r6", { "r5", "r3", "r4", "r2", "r1" } },
	/* A merge of a root of its own, and of three at once. */
	{ BEGIN "commit; put a/b/f 1; commit; put z/y/x 9; put a/b/f 1\n"
		"commit 1; put a/b/f 3; commit 3 2; put z/y/x 9\n"
		"commit 4; put a/b/SECRET SECRET; commit 4; put a/b/h 4\n"
		"commit 4; put a/b/i 4; commit 5 6 7; put a/b/h 4; put a/b/i 4" END,
	  "r8", { "r4", "r2", "r7", "r6", "r3", "r1" } },
	/* A folder that moves into the scope, whose tree was seen outside. */
	{ BEGIN "commit; put d/f 1; put a/g 1; commit 1; echo C d a/b; put x 1\n"
		"commit 2; echo D a/b; commit 3; echo C d a/b; put a/b/SECRET SECRET" END,
	  "r4", { "r3", "r2", "r1" } },
};

static const char *const scopes[] = { "a/b" };

static void histories_of_each_kind(void **state)
{
	for (size_t i = 0; i < 2 * sizeof(kinds) / sizeof(*kinds); i++) {
		const struct kind *k = &kinds[i / 2];
		struct checkouts c = { .scopes = scopes, .nscopes = i % 2 };
		struct checkout_known newer;
		sh("%s", k->script);
		check_out(&c, k->newer);
		newer = c.v[0];
		for (size_t j = 0; j < 6 && k->older[j]; j++) {
			check_out(&c, k->older[j]);
			sh("! grep -r SECRET out/.git/refs out/.git/packed-refs");
			if (c.nscopes)
				continue;
			/* Beside the newer one alone, too. */
			struct checkouts one = { .v = { newer }, .n = 1 };
			check_out(&one, k->older[j]);
			/* A root is all there is to walk. Who was told has nothing to tell. */
			sh("m rev-list --count %s | { read n; test $n = 1 -o %u = 1; }\n"
			   "test %u = 0 || ! ls out/.git/bough/*.gains",
			   k->older[j], one.noted, one.noted);
		}
		assert_true(c.noted > 0);
	}
}

/* ---- random ones ---- */

static uint64_t rnd_state;

static unsigned rnd(unsigned n)
{
	rnd_state = rnd_state * 6364136223846793005U + 1442695040888963407U;
	return (unsigned)(rnd_state >> 33) % n;
}

enum { COMMITS = 40, MANY = 2100 /* two threads look at them */ };

/* The c-th of n. */
static void write_commit(FILE *f, unsigned c, unsigned n)
{
	static const char *const dirs[] = { "a", "a/b", "a/b/c", "d", "d/e" };
	unsigned kind = rnd(10), back = rnd(4) ? 1 + rnd(3) : 1 + rnd(n);
	(void)fprintf(f, "commit refs/heads/r%u\nmark :%u\ncommitter A <a@b> %u +0000\n"
			 "data 1\nc\n", c, c, 1600000000 + c);
	if (c > 1 && kind > 0) /* else another root */
		(void)fprintf(f, "from :%u\n", back < c ? c - back : 1);
	for (unsigned i = 0; c > 3 && kind > 6 && i < kind - 6; i++)
		(void)fprintf(f, "merge :%u\n", 1 + rnd(c - 1));
	for (unsigned i = 0, changes = rnd(4) + (c == 1); i < changes; i++) {
		const char *d = dirs[rnd(5)], *e = dirs[rnd(5)];
		if (rnd(3) > 0) /* contents are few, so that they come again */
			(void)fprintf(f, "M 644 inline %s/f%u\ndata 2\n%u\n\n", d, rnd(3), rnd(8));
		else if (rnd(2) == 0)
			(void)fprintf(f, "D %s\n", d);
		else if (strncmp(d, e, strlen(d)) != 0 && strncmp(d, e, strlen(e)) != 0)
			(void)fprintf(f, "M 644 inline %s/g\ndata 2\n%u\n\nC %s %s\n", d, rnd(2), d,
				      e);
	}
	(void)fprintf(f, "M 644 inline top\ndata 2\n%u\n\n\n", rnd(3));
}

static void make_random(unsigned n)
{
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/stream", root);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	for (unsigned j = 1; j <= n; j++)
		write_commit(f, j, n);
	assert_int_equal(fclose(f), 0);
	sh("rm -rf repos; mkdir repos; git init -q --bare -b main repos/00000001\n"
	   "m fast-import --quiet <stream");
}

static void long_random_history(void **state)
{
	struct checkouts c = { 0 };
	rnd_state = test_seed();
	make_random(MANY);
	for (unsigned i = 0; i < 2; i++) {
		char name[NAME];
		(void)snprintf(name, sizeof(name), "r%u", MANY - i * (MANY / 2) - rnd(20));
		check_out(&c, name);
	}
}

static void random_histories(void **state)
{
	const char *given = getenv("BOUGH_HISTORIES");
	unsigned noted = 0;
	rnd_state = test_seed();
	unsigned long n = given ? strtoul(given, NULL, 10) : 2;
	for (unsigned long i = 0; i < n; i++) {
		struct checkouts c = { .scopes = scopes, .nscopes = i % 2 };
		char name[NAME];
		make_random(COMMITS);
		for (unsigned j = 0; j < 8; j++) {
			(void)snprintf(name, sizeof(name), "r%u", COMMITS - rnd(COMMITS) * (j > 0));
			check_out(&c, name);
			if (j % 3 == 2) /* one is forgotten */
				c.v[rnd((unsigned)c.n)] = c.v[c.n - 1], c.n--;
			if (j == 4)
				sh("m repack -qadf --depth=50 --window=50");
		}
		noted += c.noted;
	}
	assert_true(noted > 0);
}

/* ---- near the tip ---- */

enum { LARGE = 100 << 10, LARGE_COMMITS = 60 };

/* Each commit brings a file that can't be compressed, and changes another a little. Two branches in
 * turn, which the last one merges, or one. */
static void make_large(bool two)
{
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/stream", root);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	for (unsigned c = 1; c <= LARGE_COMMITS; c++) {
		(void)fprintf(f, "commit refs/heads/r%u\nmark :%u\ncommitter A <a@b> %u +0000\n"
				 "data 1\nc\n", c, c, 1600000000 + c);
		if (c > 1)
			(void)fprintf(f, "from :%u\n", two && c > 2 ? c - 2 : c - 1);
		if (two && c == LARGE_COMMITS)
			(void)fprintf(f, "merge :%u\n", c - 1);
		(void)fprintf(f, "M 644 inline d/f%u\ndata %d\n", c, LARGE);
		for (unsigned i = 0; i < LARGE; i++)
			(void)fputc((int)rnd(256), f);
		(void)fprintf(f, "\nM 644 inline d/t\ndata 1500\n");
		for (unsigned i = 0; i < 500; i++)
			(void)fprintf(f, "%02u\n", i == c * 7 ? 99 : i % 97);
		(void)fprintf(f, "\n");
	}
	assert_int_equal(fclose(f), 0);
	sh("rm -rf repos; mkdir repos; git init -q --bare -b main repos/00000001\n"
	   "m fast-import --quiet <stream");
}

static uint64_t bytes_read;

static ssize_t counted_read(void *ctx, int fd, void *buf, size_t n, uint64_t off)
{
	ssize_t r = io_host.pread(ctx, fd, buf, n, off);
	bytes_read += r > 0 ? (uint64_t)r : 0;
	return r;
}

static size_t in_both(const struct pack_out *a, const struct pack_out *b)
{
	size_t n = 0;
	for (size_t i = 0; i < a->npack; i++)
		for (size_t j = 0; j < b->npack; j++)
			n += digest_equal(&a->pack[i].object, &b->pack[j].object);
	return n;
}

/* The pack of r60 is made, and known; then that of r57. */
static struct pack_set near_the_tip(struct checkout_known *known, struct pack_set *tip,
				    struct checkout_spec *spec)
{
	struct pack_set set;
	struct io io = io_host;
	rnd_state = test_seed();
	make_large(false);
	struct checkout_options opt = options();
	*spec = (struct checkout_spec){ .commit = oid_from("m rev-parse r60"), .branch = "b" };
	*known = (struct checkout_known){ spec->commit, build(&opt, spec, tip) };
	spec->commit = oid_from("m rev-parse r57");
	opt = options();
	io.pread = counted_read;
	opt.io = &io;
	opt.known = known;
	opt.nknown = 1;
	opt.near = 1;
	bytes_read = 0;
	ok(pack_write(&set, &opt, spec, &err));
	assert_int_equal(set.told_by, 1);
	return set;
}

static void what_is_older_is_taken_from_the_newer_one(void **state)
{
	struct checkout_known known;
	struct checkout_spec spec;
	struct pack_set tip, set = near_the_tip(&known, &tip, &spec);
	assert_true(set.packs[0].pack_bytes > (LARGE_COMMITS - 4) * LARGE);
	assert_true(bytes_read < 4 * LARGE); /* of the mirror */
	assert_true(in_both(&set.packs[0], &tip.packs[0]) + 8 > set.packs[0].npack);
	judge_bytes(&spec, &set.packs[0]);
	pack_set_done(&set);
	pack_set_done(&tip);
}

/* What is wanted and what isn't take turns: deltas are moved, and made whole. */
static void branches_in_turn(void **state)
{
	static const char *const packed[] = {
		":",
		"m repack -qadf --depth=50 --window=50",
		"m -c repack.useDeltaBaseOffset=false repack -qadf --depth=50 --window=50",
	};
	for (size_t i = 0; i < sizeof(packed) / sizeof(*packed); i++) {
		struct checkouts c = { 0 };
		rnd_state = test_seed();
		make_large(true);
		sh("%s", packed[i]);
		check_out(&c, "r60");
		check_out(&c, "r57");
		assert_int_equal(c.noted, 1);
	}
}

/* Changes a byte of an object where the store has it. */
static void damage_object(const struct digest *d)
{
	uint8_t some[64];
	const struct blob *b;
	char pattern[128];
	glob_t found = { 0 };
	bool done = false;
	ok(store_get(store, d, &b, &err));
	assert_true(b->len > 2 * sizeof(some));
	memcpy(some, b->data + b->len / 2, sizeof(some));
	blob_put(b);
	ok(store_sync(session, &err));
	store_trim(store, 0);
	(void)snprintf(pattern, sizeof(pattern), "%s/store/packs/*", root);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc && !done; i++) {
		auto_fd fd = open(found.gl_pathv[i], O_RDWR | O_CLOEXEC);
		struct stat st;
		assert_int_equal(fstat(fd, &st), 0);
		auto_free uint8_t *data = malloc((size_t)st.st_size + 1);
		assert_int_equal(pread(fd, data, (size_t)st.st_size, 0), st.st_size);
		const uint8_t *at = memmem(data, (size_t)st.st_size, some, sizeof(some));
		some[0] ^= 1;
		if (at)
			done = pwrite(fd, some, 1, at - data) == 1;
		some[0] ^= 1;
	}
	globfree(&found);
	assert_true(done);
}

/* Where the newer one's can't be read, all comes from the mirror. */
static void a_damaged_newer_one_does_no_harm(void **state)
{
	struct checkout_known known;
	struct checkout_spec spec;
	struct pack_set tip, set = near_the_tip(&known, &tip, &spec);
	pack_set_done(&set);
	damage_object(&tip.packs[0].pack[tip.packs[0].npack / 2].object);
	pack_set_done(&tip);
	struct checkout_options opt = options();
	opt.known = &known;
	opt.nknown = 1;
	opt.near = 1;
	ok(pack_write(&set, &opt, &spec, &err));
	assert_int_equal(set.told_by, 1);
	judge_bytes(&spec, &set.packs[0]);
	pack_set_done(&set);
}

/* ---- bytes ---- */

static void put_words(struct buf *b, const uint32_t *w, size_t n)
{
	buf_reset(b);
	for (size_t i = 0; i < n; i++)
		buf_u32(b, w[i]);
}

static void odd_parts_are_refused(void **state)
{
	/* Commit 0 with parent 1 and two gains; commit 1. */
	const uint32_t good[] = { 0x67756f42U, 0x6e614768U, 0, 9, 0, 2, 1, 1, GAIN_TREE | 2,
				  GAIN_TREE | GAIN_AGAIN | 3, 1, 0, 0 };
	enum { N = sizeof(good) / sizeof(*good) };
	static const struct {
		size_t at;
		uint32_t value;
	} bad[] = { { 0, 1 },  { 1, 1 },    { 2, 1 },   { 3, 8 },           { 4, 4 },
		    { 5, 9 },  { 6, 1000 }, { 7, 4 },   { 8, GAIN_TREE | 4 }, { 10, 0 },
		    { 11, 1 }, { 12, 1 },   { 3, ~0U }, { 5, ~0U },         { 6, ~0U } };
	auto_buf b = { 0 };
	struct cover c = { .n = 4 };
	struct gain_record g;
	put_words(&b, good, N);
	ok(cover_add(&c, b.data, b.len));
	ok(cover_index(&c));
	ok(cover_record(&g, &c, 0));
	assert_int_equal(g.count, 2);
	assert_int_equal(g.parents[0], 1);
	assert_int_equal(g.gains[1] & GAIN_OBJ, 3);
	assert_int_equal(cover_record(&g, &c, 2), -EBADMSG);
	cover_done(&c);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		uint32_t w[N];
		memcpy(w, good, sizeof(w));
		w[bad[i].at] = bad[i].value;
		put_words(&b, w, N);
		c.n = 4;
		int r = cover_add(&c, b.data, b.len);
		if (r == 0)
			r = cover_index(&c);
		if (r != -EBADMSG)
			fail_msg("word %zu: %d", bad[i].at, r);
		cover_done(&c);
	}
	put_words(&b, good, N);
	for (size_t len = 0; len < b.len; len++) {
		c.n = 4;
		assert_int_equal(cover_add(&c, b.data, len), -EBADMSG);
		cover_done(&c);
	}
}

/* Without memory for notes there are none, and all else is as ever. */
static void out_of_memory(void **state)
{
	struct checkouts c = { 0 };
	sh("%s", kinds[1].script);
	check_out(&c, kinds[1].newer);
	struct checkout_options opt = options();
	opt.known = c.v;
	opt.nknown = c.n;
	opt.near = 1;
	const struct checkout_spec spec = { .commit = oid_from("m rev-parse r5") };
	for (uint64_t n = 1;; n++) {
		struct pack_set set;
		oom_at(n);
		int r = pack_write(&set, &opt, &spec, &err);
		bool hit = oom_hit();
		if (r == 0)
			pack_set_done(&set);
		else if (!hit || r != -ENOMEM)
			fail_msg("allocation %llu: %d %s", (unsigned long long)n, r, err.text);
		if (!hit)
			break;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(histories_of_each_kind),
		cmocka_unit_test(random_histories),
		cmocka_unit_test(long_random_history),
		cmocka_unit_test(what_is_older_is_taken_from_the_newer_one),
		cmocka_unit_test(branches_in_turn),
		cmocka_unit_test(a_damaged_newer_one_does_no_harm),
		cmocka_unit_test(odd_parts_are_refused),
		cmocka_unit_test(out_of_memory),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
