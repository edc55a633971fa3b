/* Archives made by hand: what must be refused, what replaces what, limits, and failures of
 * what import and export stand on. */
#include "tests/unit/archive_kit.h"

#include <archive.h>
#include <archive_entry.h>
#include "fs/base/io_fault.h"
#include "snapd/archive_export.h"
#include "tests/unit/oom.h"

/* ---- archives made by hand ---- */

struct made {
	const char *path;
	uint32_t mode;
	const char *link; /* of a symlink; with `hard`, the other name */
	bool hard;
	const char *content;
};

static void make_with(struct buf *out, int format, const struct made *m, size_t n)
{
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();
	size_t used, room = 1 << 20;
	assert_non_null(buf_room(out, room));
	assert_int_equal(archive_write_set_format(a, format), ARCHIVE_OK);
	assert_int_equal(archive_write_set_bytes_in_last_block(a, 1), ARCHIVE_OK);
	assert_int_equal(archive_write_open_memory(a, out->data, room, &used), ARCHIVE_OK);
	for (size_t i = 0; i < n; i++) {
		archive_entry_clear(e);
		archive_entry_set_pathname(e, m[i].path);
		archive_entry_set_mode(e, m[i].mode);
		archive_entry_set_mtime(e, 1000 + (time_t)i, 0);
		archive_entry_set_size(e, m[i].content ? (int64_t)strlen(m[i].content) : 0);
		if (m[i].hard)
			archive_entry_set_hardlink(e, m[i].link);
		else if (m[i].link)
			archive_entry_set_symlink(e, m[i].link);
		assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
		if (m[i].content)
			assert_true(archive_write_data(a, m[i].content, strlen(m[i].content)) >= 0);
	}
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	out->len = used;
	(void)archive_write_free(a);
	archive_entry_free(e);
}

static void make(struct buf *out, const struct made *m, size_t n)
{
	make_with(out, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, m, n);
}

#define REG  (S_IFREG | 0644)
#define DIR_ (S_IFDIR | 0700)
#define LNK  (S_IFLNK | 0777)
#define HARD(path, to)                    \
	{                                 \
		path, REG, to, true, NULL \
	}

static void refused(void **state)
{
	struct place *p = *state;
	static char far[300];
	memset(far, 'x', 256);
	const struct {
		const char *says;
		struct made m[3];
	} cases[] = {
		{ "absolute name", { { "/etc/passwd", REG, NULL, false, "x" } } },
		{ "absolute name", { { "//a", REG, NULL, false, "x" } } },
		{ "with '..'", { { "../a", REG, NULL, false, "x" } } },
		{ "with '..'", { { "a/../b", REG, NULL, false, "x" } } },
		{ "with '..'", { { "./..", DIR_, NULL, false, NULL } } },
		{ "over 255 bytes", { { far, REG, NULL, false, "x" } } },
		{ "root must be a folder", { { ".", REG, NULL, false, "x" } } },
		{ "root must be a folder", { { "./.", LNK, "/etc", false, NULL } } },
		{ "lies below 'a', which",
		  { { "a", LNK, "/etc", false, NULL }, { "a/b", REG, NULL, false, "x" } } },
		{ "lies below './a', which",
		  { { "a", REG, NULL, false, NULL }, { "./a/b/c", REG, NULL, false, "x" } } },
		{ "different types",
		  { { "a/b", REG, NULL, false, NULL }, { "a", LNK, "/tmp", false, NULL } } },
		{ "different types",
		  { { "a", REG, NULL, false, NULL }, { "a", DIR_, NULL, false, NULL } } },
		{ "different types",
		  { { "a/b", REG, NULL, false, NULL }, { "a", REG, NULL, false, "x" } } },
		{ "different types",
		  { { "a", LNK, "b", false, NULL }, { "a", REG, NULL, false, "x" } } },
		{ "not in the archive", { HARD("a", "b") } },
		{ "not in the archive", { HARD("a", "b"), { "b", REG, NULL, false, "x" } } },
		{ "not in the archive", { HARD("a", "b/c/d") } },
		{ "not in the archive", { HARD("a", ".") } },
		{ "target with '..'", { HARD("a", "../b") } },
		{ "absolute hard link's target", { HARD("a", "/etc/shadow") } },
		{ "the folder 'd'", { { "d", DIR_, NULL, false, NULL }, HARD("a", "d") } },
		{ "which is no folder",
		  { { "l", LNK, "/etc", false, NULL }, HARD("a", "l/shadow") } },
		{ "different types",
		  { { "a", REG, NULL, false, "x" },
		    { "d", DIR_, NULL, false, NULL },
		    HARD("d", "a") } },
		{ "root must be a folder", { { "a", REG, NULL, false, "x" }, HARD(".", "a") } },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_buf b = { 0 };
		struct digest image;
		struct err err = { 0 };
		size_t n = 0;
		while (n < 3 && cases[i].m[n].path)
			n++;
		make(&b, cases[i].m, n);
		int r = import(p, &b, &image, &err);
		if (r != -EBADMSG || !strstr(err.text, cases[i].says))
			fail_msg("case %zu: %d %s; want '%s'", i, r, err.text, cases[i].says);
		if (!strstr(err.text, "import: '"))
			fail_msg("case %zu: no member is named: %s", i, err.text);
		assert_null(strchr(err.text, '\n'));
		assert_int_equal(entries(p->images), 0);
	}
}

static void expect_line(const struct view *v, const char *path, const char *want)
{
	struct lines l;
	bool found = false;
	view_lines(v, NO_NANOS, &l);
	for (size_t i = 0; i < l.n; i++) {
		size_t n = strlen(path);
		if (strncmp(l.v[i], path, n) == 0 && l.v[i][n] == '|') {
			found = true;
			if (strncmp(l.v[i] + n + 1, want, strlen(want)) != 0)
				fail_msg("%s: want %s", l.v[i], want);
		}
		free(l.v[i]);
	}
	free(l.v);
	if (!found)
		fail_msg("no %s", path);
}

static void later_members(void **state)
{
	struct place *p = *state;
	auto_buf b = { 0 };
	struct view v;
	const struct made m[] = {
		{ "./", S_IFDIR | 01711, NULL, false, NULL },
		{ "f", REG, NULL, false, "first" },
		HARD("keeps", "f"),
		{ "./f", S_IFREG | 0600, NULL, false, "second!" }, /* "keeps" stays as it is */
		{ "d", S_IFDIR | 0700, NULL, false, NULL },
		{ "d//./x", REG, NULL, false, "x" },
		{ "d/", S_IFDIR | 0755, NULL, false, NULL },
		{ "l", LNK, "one", false, NULL },
		{ "l", LNK, "two", false, NULL },
		HARD("keeps", "keeps"),
		{ "made/by/itself", REG, NULL, false, NULL },
	};
	make(&b, m, sizeof(m) / sizeof(m[0]));
	imported(p, &b, &v);
	expect_line(&v, "", "41711|0:0|0|1000.000000000");
	expect_line(&v, "f", "100600|0:0|7|1003.000000000|n1");
	expect_line(&v, "keeps", "100644|0:0|5|1001.000000000|n1");
	expect_line(&v, "d", "40755|0:0|0|1006.0");
	expect_line(&v, "d/x", "100644|0:0|1|");
	expect_line(&v, "l", "120777|0:0|3|1008.000000000|n1|two");
	expect_line(&v, "made", "40755|0:0|0|");
	expect_line(&v, "made/by/itself", "100644");
	view_done(&v);
}

/* cpio gives the content with the last name, pax may give it with each. */
static void content_of_a_link(void **state)
{
	struct place *p = *state;
	static const char cpio_text[] = "070701"
					"00000001"
					"000081A4"
					"00000000"
					"00000000"
					"00000002"
					"00000001"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000002"
					"00000000"
					"a\0"
					"070701"
					"00000001"
					"000081A4"
					"00000000"
					"00000000"
					"00000002"
					"00000001"
					"00000005"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000002"
					"00000000"
					"b\0"
					"hello\0\0\0"
					"070701"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000001"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"00000000"
					"0000000B"
					"00000000"
					"TRAILER!!!\0\0\0\0";
	struct buf b = { .data = (uint8_t *)(uintptr_t)cpio_text, .len = sizeof(cpio_text) - 1 };
	struct view v;
	imported(p, &b, &v);
	expect_line(&v, "a", "100644|0:0|5|1.000000000|n2|2cf24dba5fb0a30e");
	expect_line(&v, "b", "100644|0:0|5|1.000000000|n2|2cf24dba5fb0a30e");
	view_done(&v);
}

static void limits(void **state)
{
	struct place *p = *state;
	const struct made m[] = {
		{ "a", REG, NULL, false, "x" },
		{ "b", REG, NULL, false, "x" },
		{ "c/d", REG, NULL, false, NULL },
	};
	auto_buf b = { 0 };
	make(&b, m, 3);
	for (uint64_t inodes = 1; inodes <= 5; inodes++)
		for (uint64_t blocks = 1; blocks <= 2; blocks++) {
			struct memory in = { .data = b.data, .len = b.len };
			struct archive_import_options opt = options(p, NULL);
			struct digest image;
			struct err err = { 0 };
			opt.max_inodes = inodes;
			opt.max_bytes = blocks * 4096;
			int r = import_with(p, &in, &opt, &image, NULL, &err);
			assert_int_equal(r, inodes < 5 || blocks < 2 ? -EFBIG : 0);
			assert_int_equal(entries(p->images), r == 0);
		}
}

/* 100 MiB of zeros in a few kilobytes: stopped where the limit is, in little memory. */
static void bomb(void **state)
{
	struct place *p = *state;
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();
	auto_buf b = { 0 };
	size_t used, room = 4 << 20;
	static const uint8_t mega[1 << 20];
	assert_non_null(buf_room(&b, room));
	assert_int_equal(archive_write_set_format_ustar(a), ARCHIVE_OK);
	assert_int_equal(archive_write_add_filter_zstd(a), ARCHIVE_OK);
	assert_int_equal(archive_write_open_memory(a, b.data, room, &used), ARCHIVE_OK);
	archive_entry_set_pathname(e, "zeros");
	archive_entry_set_mode(e, REG);
	archive_entry_set_size(e, 100LL << 20);
	assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
	for (int i = 0; i < 100; i++)
		assert_int_equal(archive_write_data(a, mega, sizeof(mega)), sizeof(mega));
	assert_int_equal(archive_write_close(a), ARCHIVE_OK);
	(void)archive_write_free(a);
	archive_entry_free(e);
	struct memory in = { .data = b.data, .len = used };
	struct archive_import_options opt = options(p, NULL);
	struct digest image;
	struct err err = { 0 };
	opt.max_bytes = 64 << 20;
	assert_int_equal(import_with(p, &in, &opt, &image, NULL, &err), -EFBIG);
	assert_non_null(strstr(err.text, "more than 67108864 bytes"));
	assert_int_equal(entries(p->images), 0);
}

static void cut_short(void **state)
{
	struct place *p = *state;
	const struct made m[] = {
		{ "one", REG, NULL, false, "content of one" },
		{ "dir", DIR_, NULL, false, NULL },
		{ "dir/two", REG, NULL, false, "content of two" },
	};
	const int formats[] = { ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FORMAT_TAR_USTAR,
				ARCHIVE_FORMAT_CPIO_SVR4_NOCRC, ARCHIVE_FORMAT_ZIP };
	for (size_t f = 0; f < sizeof(formats) / sizeof(formats[0]); f++) {
		auto_buf b = { 0 };
		struct digest image;
		make_with(&b, formats[f], m, 3);
		size_t end = b.len;
		bool tar = (formats[f] & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_TAR;
		/* Of a tar's end mark, two blocks of zeros, one is enough. */
		size_t must = tar ? end - 512 : end;
		for (b.len = 0; b.len < must; b.len += tar ? 128 : 1) {
			struct err err = { 0 };
			int r = import(p, &b, &image, &err);
			if (r != -EBADMSG || !err.text[0])
				fail_msg("format %zu cut at %zu: %d %s", f, b.len, r, err.text);
			assert_int_equal(entries(p->images), 0);
		}
		b.len = end;
		assert_int_equal(import(p, &b, &image, NULL), 0);
		assert_int_equal(entries(p->images), 1);
		char file[DIGEST_HEX + 1];
		digest_hex(file, &image);
		run("rm '%s'/%s.img", p->images, file);
	}
}

/* ---- failures of what the import stands on ---- */

static int cancel(void *ctx, uint64_t bytes, uint64_t n)
{
	return 1;
}

static void broken_off(void **state)
{
	struct place *p = *state;
	const struct made m[] = { { "one", REG, NULL, false, "content" } };
	auto_buf b = { 0 };
	struct digest image;
	struct err err = { 0 };
	make(&b, m, 1);
	struct memory in = { .data = b.data, .len = b.len, .step = 100, .fail_at = 700 };
	assert_int_equal(import_with(p, &in, NULL, &image, NULL, &err), -EPIPE);
	assert_string_equal(err.text, "import: the sender went away");
	/* in the padding, behind all that an archive is read for */
	in = (struct memory){ .data = b.data, .len = b.len, .step = 100, .fail_at = b.len - 100 };
	assert_int_equal(import_with(p, &in, NULL, &image, NULL, &err), -EPIPE);
	in = (struct memory){ .data = b.data, .len = b.len };
	struct archive_import_options opt = options(p, NULL);
	opt.progress = cancel;
	assert_int_equal(import_with(p, &in, &opt, &image, NULL, &err), -ECANCELED);
	opt = options(p, NULL);
	opt.images = "/nonexistent";
	in = (struct memory){ .data = b.data, .len = b.len };
	assert_int_equal(import_with(p, &in, &opt, &image, NULL, &err), -ENOENT);
	assert_int_equal(entries(p->images), 0);
}

static void image_faults(void **state)
{
	struct place *p = *state;
	const struct made m[] = { { "one", REG, NULL, false, "content" } };
	auto_buf b = { 0 };
	make(&b, m, 1);
	for (uint64_t n = 1;; n++) {
		struct io_fault *f = io_fault_new(NULL);
		const struct io_fault_plan plan = { .ops = IO_OPS_CHANGE,
						    .nth = n,
						    .error = -ENOSPC };
		struct memory in = { .data = b.data, .len = b.len };
		struct archive_import_options opt = options(p, NULL);
		struct digest image;
		struct err err = { 0 };
		io_fault_plan(f, &plan);
		opt.io = io_fault_io(f);
		int r = import_with(p, &in, &opt, &image, NULL, &err);
		bool hit = io_fault_hits(f) > 0;
		io_fault_free(f);
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOSPC);
		assert_true(err.text[0]);
	}
	assert_true(entries(p->images) >= 1);
}

static void out_of_memory(void **state)
{
	struct place *p = *state;
	const struct made m[] = {
		{ "dir/one", REG, NULL, false, "content" },
		{ "two", LNK, "one", false, NULL },
		HARD("three", "dir/one"),
	};
	auto_buf b = { 0 };
	make(&b, m, 3);
	for (uint64_t n = 1;; n++) {
		struct digest image;
		struct err err = { 0 };
		struct memory in = { .data = b.data, .len = b.len };
		struct store_session *ss;
		const struct archive_source src = { .read = memory_read, .ctx = &in };
		assert_int_equal(store_session_begin(p->store, &ss, NULL), 0);
		const struct archive_import_options opt = options(p, ss);
		oom_at(n);
		int r = archive_import(&image, &opt, &src, NULL, &err);
		bool hit = oom_hit();
		store_session_end(ss);
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		if (r != -ENOMEM && r != 0) /* 0: where memory only saves work */
			fail_msg("allocation %" PRIu64 ": %d %s", n, r, err.text);
	}
}

/* ---- export's failures ---- */

struct sink {
	size_t left;
	int error;
	struct buf got;
};

static int sink_write(void *ctx, const void *data, size_t n)
{
	struct sink *s = ctx;
	if (n > s->left)
		return s->error;
	s->left -= n;
	buf_add(&s->got, data, n);
	return 0;
}

static void export_failures(void **state)
{
	struct place *p = *state;
	static char large[300000];
	memset(large, 'x', sizeof(large) - 1);
	const struct made m[] = { { "one", REG, NULL, false, "content" },
				  { "two", REG, NULL, false, large } };
	auto_buf b = { 0 };
	struct view v;
	make(&b, m, 2);
	imported(p, &b, &v);
	for (int f = EXPORT_TAR; f <= EXPORT_CPIO; f++) {
		struct err err = { 0 };
		struct sink s = { .left = 0, .error = -EPIPE };
		struct archive_export_options opt = { .format = (enum export_format)f,
						      .write = sink_write,
						      .write_ctx = &s };
		assert_int_equal(archive_export(&v, &opt, NULL, &err), -EPIPE);
		assert_non_null(strstr(err.text, "write the archive"));
		s = (struct sink){ .left = SIZE_MAX };
		opt.progress = cancel;
		assert_int_equal(archive_export(&v, &opt, NULL, &err), -ECANCELED);
		buf_done(&s.got);
	}
	/* The store lost the large one: what came out is no archive. */
	run("rm -rf '%s'/*; mkdir -p '%s'", p->store_dir, p->store_dir);
	store_close(p->store);
	const struct store_options so = { .create = true };
	assert_int_equal(store_open(&p->store, p->store_dir, &so, NULL), 0);
	v.store = p->store;
	struct err err = { 0 };
	struct sink s = { .left = SIZE_MAX };
	struct archive_export_options opt = { .write = sink_write, .write_ctx = &s };
	int r = archive_export(&v, &opt, NULL, &err);
	assert_true(r == -EIO || r == -ENOENT);
	assert_non_null(strstr(err.text, "./"));
	struct digest image;
	assert_int_equal(import(p, &s.got, &image, &err), -EBADMSG);
	buf_done(&s.got);
	view_done(&v);
	assert_int_equal(export_format_parse("tar.zst", NULL), EXPORT_TAR_ZST);
	assert_int_equal(export_format_parse("rar\n", &err), -EINVAL);
	assert_null(strchr(err.text, '\n'));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(refused),         TEST(later_members), TEST(content_of_a_link),
		TEST(limits),          TEST(bomb),          TEST(cut_short),
		TEST(broken_off),      TEST(image_faults),  TEST(out_of_memory),
		TEST(export_failures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
