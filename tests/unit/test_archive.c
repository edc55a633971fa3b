/* Round trips of a tree with every kind of file: bough-pack, import, export, GNU tar. */
#include "tests/unit/archive_kit.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "snapd/archive_export.h"
#include "tools/pack/pack.h"

/* ---- a real tree with every kind of file ---- */

static void put_file(int dir, const char *name, size_t n, unsigned seed)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	auto_free uint8_t *data = malloc(n + 1);
	uint64_t x = seed * 2654435761u + 1;
	for (size_t i = 0; i < n; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		data[i] = seed % 2 ? (uint8_t)(x >> 56) : (uint8_t)(i / 64 + seed);
	}
	assert_int_equal(io_write_full(NULL, fd, data, n, 0), 0);
}

static void put_sparse(int dir, const char *name, uint64_t size, const uint64_t *at, size_t n)
{
	auto_fd fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	char block[4096];
	memset(block, 'd', sizeof(block));
	for (size_t i = 0; i < n; i++)
		assert_int_equal(io_write_full(NULL, fd, block, sizeof(block), at[i]), 0);
}

static void set_times(int dir, const char *name, time_t sec, long nsec)
{
	const struct timespec t[] = { { 1, 2 }, { sec, nsec } };
	assert_int_equal(utimensat(dir, name, t, AT_SYMLINK_NOFOLLOW), 0);
}

static const char *long_name(char c)
{
	static char name[256];
	memset(name, c, 255);
	return name;
}

static void put_specials(int fd)
{
	assert_int_equal(mkfifoat(fd, "fifo", 0640), 0);
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	char cwd[4096];
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_int_equal(fchdir(fd), 0);
	auto_fd s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memcpy(un.sun_path, "sock", 5);
	assert_int_equal(bind(s, (struct sockaddr *)&un, sizeof(un)), 0);
	assert_int_equal(chdir(cwd), 0);
	if (geteuid() != 0)
		return;
	assert_int_equal(mknodat(fd, "char", S_IFCHR | 0666, makedev(5, 1)), 0);
	assert_int_equal(mknodat(fd, "block", S_IFBLK | 0600, makedev(259, 70000)), 0);
	assert_int_equal(fchownat(fd, "fifo", 12345, 4000000000u, 0), 0);
	assert_int_equal(fchownat(fd, "link", 7, 8, AT_SYMLINK_NOFOLLOW), 0);
}

/* Where the file system has no xattrs, the tree has none, and still must come through. */
static void put_xattrs(int fd)
{
	auto_fd f = openat(fd, "small", O_RDONLY | O_CLOEXEC);
	auto_fd d = openat(fd, "dir", O_RDONLY | O_CLOEXEC);
	(void)fsetxattr(f, "user.text", "value", 5, 0);
	(void)fsetxattr(f, "user.binary", "\0\n=\xff", 4, 0);
	(void)fsetxattr(f, "user.empty", "", 0, 0);
	(void)fsetxattr(f, "trusted.t", "x", 1, 0);
	(void)fsetxattr(f, "security.capability", "\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20,
			0);
	(void)fsetxattr(d, "user.d", "dir", 3, 0);
	(void)fsetxattr(d, "trusted.overlay.opaque", "y", 1, 0);
}

static void put_tree(const char *dir, bool odd_names)
{
	auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	static const uint64_t some[] = { 4096 * 5, 4096 * 100, 4096 * 1000 };
	put_file(fd, "empty", 0, 1);
	put_file(fd, "small", 100, 2);
	put_file(fd, "blocks", 5000, 3);
	put_file(fd, "object", STORE_SMALL_MAX, 4);
	put_file(fd, "large", 3000000, 5);
	put_sparse(fd, "sparse", 10 << 20, some, 3);
	put_sparse(fd, "hole", 5ULL << 30, NULL, 0);
	put_sparse(fd, "tail", (5ULL << 30) + 4096, &(uint64_t){ 5ULL << 30 }, 1);
	assert_int_equal(mkdirat(fd, "dir", 0755), 0);
	assert_int_equal(mkdirat(fd, "dir/sub", 0755), 0);
	assert_int_equal(mkdirat(fd, "none", 0555), 0);
	put_file(fd, "dir/sub/deep", 10, 6);
	assert_int_equal(linkat(fd, "small", fd, "dir/sub/hard", 0), 0);
	assert_int_equal(linkat(fd, "small", fd, "hard2", 0), 0);
	assert_int_equal(symlinkat("../nowhere/\xc3\xbc", fd, "link"), 0);
	assert_int_equal(linkat(fd, "link", fd, "dir/link2", 0), 0);
	put_file(fd, "gr\xc3\xbc\xc3\x9f", 3, 8);
	put_file(fd, "u\xcc\x88 not composed", 3, 8);
	put_file(fd, long_name('n'), 3, 9);
	char path[600];
	(void)snprintf(path, sizeof(path), "dir/%s", long_name('d'));
	assert_int_equal(mkdirat(fd, path, 0700), 0);
	(void)snprintf(path + 259, sizeof(path) - 259, "/%s", long_name('e'));
	put_file(fd, path, 3, 10);
	if (odd_names) {
		put_file(fd, "bad \xff\xfe", 3, 11);
		put_file(fd, "cesu \xed\xa0\x81\xed\xb0\x80", 3, 12);
		assert_int_equal(symlinkat("to \xff", fd, "bad link"), 0);
		put_file(fd, "new\nline\\ and \"quotes\"", 3, 13);
	}
	put_specials(fd);
	put_xattrs(fd);
	assert_int_equal(fchmodat(fd, "blocks", 06755, 0), 0);
	assert_int_equal(fchmodat(fd, "dir", 01777, 0), 0);
	set_times(fd, "small", 981173106, 123456789);
	set_times(fd, "blocks", 0, 1);
	set_times(fd, "large", 5000000000, 999999999);
	set_times(fd, "link", 1000000000, 5);
	set_times(fd, "dir", 1500000000, 500000000);
	set_times(fd, "empty", -5, 250000000);
	set_times(fd, ".", 1600000000, 1);
}

/* The tree's pax stream. */
static void pack(const char *dir, struct buf *out)
{
	struct err err = { 0 };
	unsigned said = 0;
	const struct pack_options opt = { .say = quiet, .say_ctx = &said };
	auto_fd fd = memfd_create("pack", MFD_CLOEXEC);
	if (pack_tree(dir, fd, &opt, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(said, 1); /* the socket */
	off_t n = lseek(fd, 0, SEEK_END);
	assert_non_null(buf_room(out, (size_t)n));
	assert_int_equal(io_read_full(NULL, fd, out->data, (size_t)n, 0), n);
	out->len = (size_t)n;
}

static void exported(const struct view *v, enum export_format f, struct buf *out,
		     struct archive_export_stats *st)
{
	struct err err = { 0 };
	const struct archive_export_options opt = { .format = f,
						    .write = to_buf,
						    .write_ctx = out };
	if (archive_export(v, &opt, st, &err) < 0)
		fail_msg("%s: %s", export_format_name(f), err.text);
	assert_int_equal(st->archive_bytes, out->len);
}

/* ---- round trips ---- */

static uint64_t data_ranges(const struct view *v, const char *name, uint64_t first[2])
{
	struct dirent_ref d;
	uint64_t n = 0, at = 0, end;
	assert_int_equal(view_lookup(v, 1, name, strlen(name), &d), 0);
	while (view_seek(v, d.ino, at, false, &at) == 0) {
		assert_int_equal(view_seek(v, d.ino, at, true, &end), 0);
		if (n == 0)
			first[0] = at, first[1] = end;
		n++;
		at = end;
	}
	return n;
}

static void holes_are_there(const struct view *v)
{
	uint64_t r[2];
	assert_int_equal(data_ranges(v, "sparse", r), 3);
	assert_int_equal(r[0], 4096 * 5);
	assert_int_equal(r[1], 4096 * 6);
	assert_int_equal(data_ranges(v, "hole", r), 0);
	assert_int_equal(data_ranges(v, "tail", r), 1);
	assert_true(r[0] == 5ULL << 30);
}

static void pack_and_import(void **state)
{
	struct place *p = *state;
	auto_buf tar = { 0 };
	struct view v;
	put_tree(p->tree, true);
	pack(p->tree, &tar);
	imported(p, &tar, &v);
	view_is_host(&v, p->tree, 0);
	holes_are_there(&v);
	struct dirent_ref a, b;
	assert_int_equal(view_lookup(&v, 1, "small", 5, &a), 0);
	assert_int_equal(view_lookup(&v, 1, "hard2", 5, &b), 0);
	assert_int_equal(a.ino, b.ino);
	view_done(&v);
}

static void export_and_import(void **state)
{
	struct place *p = *state;
	/* What each format can't hold; cpio and zip by their own tests. */
	const enum export_format formats[] = { EXPORT_TAR, EXPORT_TAR_ZST };
	for (int odd = 0; odd < 2; odd++) {
		auto_buf tar = { 0 };
		struct view v;
		assert_int_equal(io_remove_tree(AT_FDCWD, p->tree, NULL), 0);
		assert_int_equal(mkdir(p->tree, 0755), 0);
		put_tree(p->tree, odd);
		pack(p->tree, &tar);
		imported(p, &tar, &v);
		for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
			auto_buf one = { 0 }, two = { 0 };
			struct archive_export_stats st;
			struct view w;
			exported(&v, formats[i], &one, &st);
			exported(&v, formats[i], &two, &st);
			assert_int_equal(one.len, two.len);
			assert_memory_equal(one.data, two.data, one.len);
			assert_int_equal(st.xattrs_dropped, 0);
			imported(p, &one, &w);
			views_equal(&v, &w, 0);
			holes_are_there(&w);
			view_done(&w);
		}
		view_done(&v);
	}
}

/* A tree that cpio and zip can hold: nothing of 4 GiB. */
static void view_of_small_tree(struct place *p, struct view *v)
{
	auto_buf tar = { 0 };
	char path[600];
	put_tree(p->tree, false);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = { "hole", "tail", "u\xcc\x88 not composed" };
		(void)snprintf(path, sizeof(path), "%s/%s", p->tree, names[i]);
		assert_int_equal(unlink(path), 0);
	}
	/* No time that a format of seconds since 1970, or of 32 bits, can't hold. */
	auto_fd fd = open(p->tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	set_times(fd, "empty", 5, 0);
	set_times(fd, "large", 2000000000, 0);
	pack(p->tree, &tar);
	imported(p, &tar, v);
}

static void cpio(void **state)
{
	struct place *p = *state;
	struct archive_export_stats st;
	auto_buf out = { 0 };
	struct view v, w;
	view_of_small_tree(p, &v);
	exported(&v, EXPORT_CPIO, &out, &st);
	assert_int_equal(st.holes_filled, 1);
	assert_int_equal(st.links_as_files, 1); /* the symlink */
	imported(p, &out, &w);
	/* The symlink's two names are two links now. */
	struct lines want, got;
	view_lines(&v, NO_XATTRS | NO_NANOS | NO_LINKS, &want);
	view_lines(&w, NO_XATTRS | NO_NANOS | NO_LINKS, &got);
	same_lines(&want, &got);
	struct attr a;
	struct dirent_ref d;
	assert_int_equal(view_lookup(&w, 1, "small", 5, &d), 0);
	assert_int_equal(view_inode(&w, d.ino, &a), 0);
	assert_int_equal(a.nlink, 3);
	view_done(&v);
	view_done(&w);
}

static void zip(void **state)
{
	struct place *p = *state;
	struct archive_export_stats st;
	auto_buf out = { 0 };
	struct view v, w;
	view_of_small_tree(p, &v);
	exported(&v, EXPORT_ZIP, &out, &st);
	assert_int_equal(st.holes_filled, 1);
	assert_int_equal(st.links_as_files, 3);
	assert_int_equal(st.specials_skipped, geteuid() == 0 ? 3 : 1);
	imported(p, &out, &w);
	views_equal(&v, &w, NO_XATTRS | NO_NANOS | NO_LINKS | NO_SPECIALS | NO_ROOT);
	view_done(&v);
	view_done(&w);
}

static void write_out(struct place *p, const char *name, const struct buf *b)
{
	char path[300];
	(void)snprintf(path, sizeof(path), "%s/%s", p->path, name);
	auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(NULL, fd, b->data, b->len, 0), 0);
}

static void read_in(struct place *p, const char *name, struct buf *b)
{
	char path[300];
	void *data;
	(void)snprintf(path, sizeof(path), "%s/%s", p->path, name);
	assert_int_equal(io_slurp(NULL, AT_FDCWD, path, 64 << 20, &data, &b->len, NULL), 0);
	b->data = data;
	b->cap = b->len;
}

/* GNU tar makes the same tree of what we export, and we of what it packs. */
static void gnu_tar(void **state)
{
	struct place *p = *state;
	const char *const xattrs = geteuid() == 0 ? "--xattrs --xattrs-include='*'" : "";
	struct archive_export_stats st;
	auto_buf packed = { 0 }, out = { 0 };
	struct view v;
	put_tree(p->tree, false);
	pack(p->tree, &packed);
	imported(p, &packed, &v);
	exported(&v, EXPORT_TAR, &out, &st);
	write_out(p, "out.tar", &out);
	run("cd '%s' && tar %s --numeric-owner -xpf ../out.tar 2>../tar.log && "
	    "! grep -v 'time stamp' ../tar.log",
	    p->out, xattrs);
	view_is_host(&v, p->out, geteuid() == 0 ? 0 : NO_XATTRS);
	view_done(&v);
	const char *const formats[] = {
		"pax -S --sparse-version=0.0",
		"pax -S --sparse-version=0.1",
		"pax -S --sparse-version=1.0",
		"gnu -S",
		"pax -z",
		"pax -j",
		"pax -J",
		"pax --zstd",
	};
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		bool gnu = formats[i][0] == 'g', sparse = strstr(formats[i], "-S") != NULL;
		if (!sparse) /* gigabytes of zeros, compressed, take their time */
			run("cd '%s' && rm -f hole tail large object", p->tree);
		run("cd '%s' && tar --numeric-owner %s -cf ../in.tar --format=%s . 2>/dev/null",
		    p->tree, gnu ? "" : xattrs, formats[i]);
		auto_buf in = { 0 };
		read_in(p, "in.tar", &in);
		imported(p, &in, &v);
		view_is_host(&v, p->tree,
			     (gnu ? NO_NANOS | NO_XATTRS : 0) | (*xattrs ? 0 : NO_XATTRS));
		if (sparse)
			holes_are_there(&v);
		view_done(&v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pack_and_import), TEST(export_and_import), TEST(cpio), TEST(zip),
		TEST(gnu_tar),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
