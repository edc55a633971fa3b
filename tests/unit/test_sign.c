/* Signatures of URLs: what they hold for, and how keys change. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fs/base/io.h"
#include "snapd/sign.h"

enum { NOW = 2000000000, DAY = 86400 };

struct place {
	char dir[64];
	struct signer *s;
};

static int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));
	assert_non_null(p);
	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/bough-test.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->s = signer_new(p->dir);
	assert_non_null(p->s);
	*state = p;
	return 0;
}

static int tear_down(void **state)
{
	struct place *p = *state;
	signer_free(p->s);
	assert_int_equal(io_remove_tree(AT_FDCWD, p->dir, NULL), 0);
	free(p);
	return 0;
}

static void again(struct place *p)
{
	signer_free(p->s);
	p->s = signer_new(p->dir);
	assert_non_null(p->s);
}

static struct sign_claim claim(uint64_t expires)
{
	return (struct sign_claim){ .id = "ws_a", .path = "a/b", .owner = "uid:1", .token = "tk_1",
				    .etag = "\"1.2.3\"", .expires = expires };
}

static void what_holds(void **state)
{
	struct place *p = *state;
	struct err err = { 0 };
	char key[SIGN_KEY_ID], sig[SIGN_TEXT];
	struct sign_claim c = claim(NOW + 100);
	struct stat st;
	assert_int_equal(sign_make(p->s, &c, NOW, key, sig, &err), 0);
	assert_int_equal(sign_check(p->s, &c, NOW, key, sig, &err), 0);
	assert_int_equal(sign_check(p->s, &c, NOW + 100, key, sig, &err), -EKEYEXPIRED);
	again(p);
	assert_int_equal(sign_check(p->s, &c, NOW, key, sig, &err), 0);
	/* Each part counts, and so does where one ends. */
	struct sign_claim other[] = { c, c, c, c, c, c, c };
	other[0].id = "ws_b";
	other[1].path = "a/c";
	other[2].owner = "uid:2";
	other[3].token = "";
	other[4].etag = "";
	other[5].expires++;
	other[6].id = "ws_aa";
	other[6].path = "/b";
	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		assert_int_equal(sign_check(p->s, &other[i], NOW, key, sig, &err), -EPERM);
	for (size_t i = 0; i < SIGN_TEXT - 1; i++) {
		sig[i] ^= 1;
		assert_int_equal(sign_check(p->s, &c, NOW, key, sig, &err), -EPERM);
		sig[i] ^= 1;
	}
	sig[SIGN_TEXT - 2] = 0;
	assert_int_equal(sign_check(p->s, &c, NOW, key, sig, &err), -EPERM);
	assert_int_equal(sign_check(p->s, &c, NOW, "none", sig, &err), -EKEYEXPIRED);
	char path[128];
	(void)snprintf(path, sizeof(path), "%s/sign.keys", p->dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void keys_change(void **state)
{
	struct place *p = *state;
	struct err err = { 0 };
	char key[SIGN_KEY_ID], sig[SIGN_TEXT], key2[SIGN_KEY_ID], sig2[SIGN_TEXT];
	struct sign_claim c = claim(NOW + 200 * (uint64_t)DAY);
	assert_int_equal(sign_make(p->s, &c, NOW, key, sig, &err), 0);
	assert_int_equal(sign_make(p->s, &c, NOW + 29 * DAY, key2, sig2, &err), 0);
	assert_string_equal(key, key2);
	assert_int_equal(sign_make(p->s, &c, NOW + 31 * DAY, key2, sig2, &err), 0);
	assert_string_not_equal(key, key2);
	assert_int_equal(sign_check(p->s, &c, NOW + 31 * DAY, key, sig, &err), 0);
	/* Once another is made it is gone with what it signed. */
	assert_int_equal(sign_make(p->s, &c, NOW + 62 * (uint64_t)DAY, key2, sig2, &err), 0);
	assert_int_equal(sign_check(p->s, &c, NOW, key, sig, &err), -EKEYEXPIRED);
	again(p);
	assert_int_equal(sign_check(p->s, &c, NOW, key, sig, &err), -EKEYEXPIRED);
	assert_int_equal(sign_check(p->s, &c, NOW, key2, sig2, &err), 0);
}

static void damaged_keys(void **state)
{
	static const char *const bad[] = { "", "x", "[]", "[{}]", "{}", "[1]",
					   "[{\"id\":\"0\",\"key\":\"0\",\"made\":1}]" };
	struct place *p = *state;
	char path[128], key[SIGN_KEY_ID], sig[SIGN_TEXT];
	struct sign_claim c = claim(NOW + 1);
	(void)snprintf(path, sizeof(path), "%s/sign.keys", p->dir);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err err = { 0 };
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		fputs(bad[i], f);
		fclose(f);
		again(p);
		assert_int_equal(sign_make(p->s, &c, NOW, key, sig, &err), 0);
		again(p);
		assert_int_equal(sign_check(p->s, &c, NOW, key, sig, &err), 0);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(what_holds),
		TEST(keys_change),
		TEST(damaged_keys),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
