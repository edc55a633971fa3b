/* bough-pack beside the round trips of test_archive.c: excludes, depth, what can't be read. */
#include "tests/unit/archive_kit.h"

#include <sys/mman.h>
#include "tools/pack/pack.h"

/* ---- bough-pack ---- */

static int pack_opt(const char *dir, const struct pack_options *opt, struct buf *out)
{
	struct err err = { 0 };
	auto_fd fd = memfd_create("pack", MFD_CLOEXEC);
	int r = pack_tree(dir, fd, opt, &err);
	off_t n = lseek(fd, 0, SEEK_END);
	assert_non_null(buf_room(out, (size_t)n + 1));
	assert_int_equal(io_read_full(NULL, fd, out->data, (size_t)n, 0), n);
	out->len = (size_t)n;
	return r;
}

static void pack_excludes(void **state)
{
	struct place *p = *state;
	run("cd '%s' && mkdir -p a/b/build build && touch a/x.o x.o a/b/y.c a/b/build/f build/f",
	    p->tree);
	const char *const excludes[] = { "*.o", "/build", "a/*/build" };
	unsigned said = 0;
	const struct pack_options opt = {
		.excludes = excludes, .nexcludes = 3, .say = quiet, .say_ctx = &said
	};
	auto_buf tar = { 0 };
	struct view v;
	assert_int_equal(pack_opt(p->tree, &opt, &tar), 0);
	imported(p, &tar, &v);
	run("cd '%s' && rm -rf a/x.o x.o build a/b/build", p->tree);
	struct lines want, got;
	host_lines(p->tree, NO_ROOT | NO_NANOS, &want);
	view_lines(&v, NO_ROOT | NO_NANOS, &got);
	assert_int_equal(want.n, got.n);
	for (size_t i = 0; i < want.n; i++) /* times of folders moved */
		want.v[i][strcspn(want.v[i], "|")] = got.v[i][strcspn(got.v[i], "|")] = '\0';
	same_lines(&want, &got);
	assert_int_equal(said, 0);
	view_done(&v);
}

static void pack_deep(void **state)
{
	struct place *p = *state;
	enum { DEPTH = 300 };
	char cwd[4096];
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	assert_int_equal(chdir(p->tree), 0);
	for (int i = 0; i < DEPTH; i++) {
		char name[100];
		(void)snprintf(name, sizeof(name), "folder-number-%d", i);
		assert_int_equal(mkdir(name, 0755), 0);
		assert_int_equal(chdir(name), 0);
		auto_fd fd = open("zz", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
	}
	assert_int_equal(chdir(cwd), 0);
	unsigned said = 0;
	const struct pack_options opt = { .say = quiet, .say_ctx = &said };
	auto_buf tar = { 0 };
	struct view v;
	assert_int_equal(pack_opt(p->tree, &opt, &tar), 0);
	imported(p, &tar, &v);
	assert_int_equal(image_info(v.image)->inodes, 1 + 2 * DEPTH);
	view_done(&v);
}

static void pack_unreadable(void **state)
{
	struct place *p = *state;
	run("cd '%s' && mkdir a && touch a/f b && chmod 0 a b", p->tree);
	unsigned said = 0;
	struct pack_options opt = { .say = quiet, .say_ctx = &said };
	auto_buf tar = { 0 };
	struct digest image;
	struct view v;
	if (geteuid() == 0) { /* who may read everything, but no longer after this */
		pid_t pid = fork();
		if (pid == 0) {
			if (chown(p->tree, 1234, 1234) < 0 || chmod(p->path, 0711) < 0 ||
			    chown(p->images, 1234, 1234) < 0 || setgid(1234) < 0 ||
			    setuid(1234) < 0)
				_exit(9);
			int out = memfd_create("x", 0);
			if (pack_tree(p->tree, out, &opt, NULL) != -EIO || said != 2)
				_exit(1);
			opt.ignore_unreadable = true;
			said = 0;
			_exit(pack_tree(p->tree, out, &opt, NULL) == 0 && said == 2 ? 0 : 2);
		}
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		return;
	}
	assert_int_equal(pack_opt(p->tree, &opt, &tar), -EIO);
	assert_int_equal(said, 2);
	assert_int_equal(import(p, &tar, &image, NULL), -EBADMSG); /* it has no end mark */
	buf_reset(&tar);
	opt.ignore_unreadable = true;
	assert_int_equal(pack_opt(p->tree, &opt, &tar), 0);
	imported(p, &tar, &v);
	view_done(&v);
	run("cd '%s' && chmod 700 a b", p->tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pack_excludes),
		TEST(pack_deep),
		TEST(pack_unreadable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
