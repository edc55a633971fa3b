/* What is let through to git, what it says, and lists of refs: the pure parts of mirrors. */
#include "gitops/url.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "gitops/refs.h"
#include "gitops/transport.h"

static struct err err;

static void test_urls(void **state)
{
	static const struct {
		const char *url;
		enum git_url_kind kind; /* 0: refused */
		const char *host;
	} cases[] = {
		{ "https://example.org/a.git", GIT_URL_HTTP, "example.org" },
		{ "http://example.org:8080/a/b.git", GIT_URL_HTTP, "example.org:8080" },
		{ "https://[::1]:8443/a", GIT_URL_HTTP, "[::1]:8443" },
		{ "git://127.0.0.1/a", GIT_URL_GIT, "127.0.0.1" },
		{ "ssh://git@example.org:22/a.git", GIT_URL_SSH, "example.org:22" },
		{ "ssh://example.org/~me/a", GIT_URL_SSH, "example.org" },
		{ "git@example.org:me/a.git", GIT_URL_SSH, "example.org" },
		{ "example.org:a", GIT_URL_SSH, "example.org" },
		{ "", 0, NULL },
		{ "https://", 0, NULL },
		{ "https://example.org", 0, NULL },
		{ "https://example.org/", 0, NULL },
		{ "https:///a", 0, NULL },
		{ "https://user@example.org/a", 0, NULL },
		{ "https://user:pass@example.org/a", 0, NULL },
		{ "https://ghp_secret@example.org/a", 0, NULL },
		{ "ssh://user:pass@example.org/a", 0, NULL },
		{ "user:pass@example.org:a", 0, NULL },
		{ "https://exa mple.org/a", 0, NULL },
		{ "https://example.org/a\nb", 0, NULL },
		{ "https://example.org:port/a", 0, NULL },
		{ "https://example.org:123456/a", 0, NULL },
		{ "ext::sh -c date", 0, NULL },
		{ "ext::sh", 0, NULL },
		{ "fd::7", 0, NULL },
		{ "file:///etc", 0, NULL },
		{ "/etc", 0, NULL },
		{ "./a:b", 0, NULL },
		{ "ftp://example.org/a", 0, NULL },
		{ "HTTPS://example.org/a", 0, NULL },
		{ "-oProxyCommand=date", 0, NULL },
		{ "--upload-pack=date", 0, NULL },
		{ "ssh://-oProxyCommand=date/a", 0, NULL },
		{ "ssh://user@-oProxyCommand=date/a", 0, NULL },
		{ "-oProxyCommand=date:a", 0, NULL },
		{ "ssh://-x@example.org/a", 0, NULL },
		{ "ssh://example.org/-a", 0, NULL },
		{ "example.org:-a", 0, NULL },
		{ "ssh://example.org;date/a", 0, NULL },
		{ "$(date):a", 0, NULL },
		{ "a`date`:b", 0, NULL },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct git_url u = { 0 };
		err = (struct err){ 0 };
		int r = git_url_parse(&u, cases[i].url, &err);
		if (r != (cases[i].kind ? 0 : -EINVAL) || u.kind != cases[i].kind)
			fail_msg("%s: %d, kind %d: %s", cases[i].url, r, u.kind, err.text);
		if (r == 0)
			assert_string_equal(u.host, cases[i].host);
		/* What may be a secret isn't said again. */
		else
			assert_null(strstr(err.text, "pass@"));
		assert_null(strstr(err.text, "ghp_"));
	}
	char *longer = calloc(1, GIT_URL_MAX + 32);
	memset(longer, 'a', GIT_URL_MAX + 8);
	memcpy(longer, "https://a/", 10);
	assert_int_equal(git_url_parse(NULL, longer, &err), -EINVAL);
	free(longer);
}

static void test_names(void **state)
{
	static const char *const cases[][2] = {
		{ "https://example.org/me/linux.git", "linux" },
		{ "git@example.org:linux.git", "linux" },
		{ "/srv/src/linux/", "linux" },
		{ "/srv/src/linux/.git", "linux" },
		{ "https://example.org/a b", "a-b" },
		{ "/srv/.hidden", "hidden" },
		{ "/", "" },
		{ "https://example.org/..", "" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char name[32];
		git_url_name(name, sizeof(name), cases[i][0]);
		assert_string_equal(name, cases[i][1]);
	}
	char small[4];
	git_url_name(small, sizeof(small), "https://example.org/linux");
	assert_string_equal(small, "lin");
}

static void test_scrub(void **state)
{
	char text[] = "url https://x:s3cret@h said s3cret\x1b[31m\ns3cre and tok";
	const char *const secrets[] = { "s3cret", NULL, "tok" };
	text_scrub(text, secrets, 3);
	assert_string_equal(text, "url https://x:***@h said ***?[31m?s3cre and tok");
}

static void test_explain(void **state)
{
	static const struct {
		const char *said;
		int code;
		const char *part;
	} cases[] = {
		{ "fatal: Authentication failed for 'http://h/a/'\n", -EACCES,
		  "refused the token" },
		{ "fatal: could not read Username for 'http://h': terminal prompts disabled\n",
		  -EACCES, "wants a token" },
		{ "git@h: Permission denied (publickey).\nfatal: Could not read from remote "
		  "repository.\n",
		  -EACCES, "refused the key" },
		{ "Host key verification failed.\nfatal: Could not read from remote repository.\n",
		  -EACCES, "known hosts" },
		{ "remote: gone\nfatal: repository 'http://h/a/' not found\n", -ENOENT, "no such" },
		{ "fatal: remote error: access denied or repository not exported: /a\n", -ENOENT,
		  "no such" },
		{ "fatal: unable to access 'https://h/': Could not resolve host: h\n",
		  -EHOSTUNREACH, "no address" },
		{ "fatal: unable to connect to h:\nh[0: 127.0.0.1]: errno=Connection refused\n",
		  -EHOSTUNREACH, "doesn't answer" },
		{ "error: RPC failed; curl 18 transfer closed with outstanding data\n"
		  "fatal: early EOF\nfatal: fetch-pack: invalid index-pack output\n",
		  -ECONNRESET, "broke off" },
		{ "fatal: pack has bad object at offset 12: inflate returned -3\n", -EBADMSG,
		  "damaged" },
		{ "fatal: mismatched algorithms: client sha1; server sha256\n", -ENOTSUP,
		  "SHA-256" },
		{ " ! [rejected] a -> b (non-fast-forward)\nerror: failed to push some refs\n",
		  -ESTALE, "hasn't" },
		{ " ! [rejected] a -> b (stale info)\n", -ESTALE, "expected" },
		{ " ! [remote rejected] a -> b (pre-receive hook declined)\n", -EPERM, "refused" },
		{ "remote: Resolving deltas: 100% (1/1), done.        \n"
		  "remote: error: GH006: Protected branch update failed for a.        \n"
		  "remote: error: its certificate was not found\r\nremote: \n"
		  " ! [remote rejected] a -> b (protected branch hook declined)\n"
		  "error: failed to push some refs to 'https://h/a'\n",
		  -EPERM,
		  "it refused the push: GH006: Protected branch update failed for a.; its "
		  "certificate was not found ( ! [remote rejected] a -> b (protected branch hook "
		  "declined))" },
		{ "remote: fatal: no\n ! [remote rejected] a -> b (n/a)", -EPERM, "push: no (" },
		{ "remote: one line that has some length, so that few of them fill up what there "
		  "is room for\n"
		  "remote: one line that has some length, so that few of them fill up what there "
		  "is room for\n"
		  "remote: one line that has some length, so that few of them fill up what there "
		  "is room for\n"
		  "remote: one line that has some length, so that few of them fill up what there "
		  "is room for\n"
		  " ! [remote rejected] a -> b (said enough)\n",
		  -EPERM, "( ! [remote rejected] a -> b (said enough))" },
		{ "fatal: unable to access 'https://h/': SSL certificate problem: self-signed "
		  "certificate\n",
		  -EACCES, "isn't trusted" },
		{ "fatal: unable to access 'https://h/': server certificate verification failed. "
		  "CAfile: none CRLfile: none\n",
		  -EACCES, "isn't trusted" },
		{ "warning: rejected refs/heads/main because shallow roots are not allowed to be "
		  "updated\n",
		  -ENOTSUP, "shallow" },
		{ "fatal: missing blob object '0123'\n", -EBADMSG, "missing" },
		/* Branches and repositories that are called so. */
		{ "To https://h/a\n ! [rejected] certificate -> certificate (non-fast-forward)\n",
		  -ESTALE, "hasn't" },
		{ " ! [rejected] a -> missing (fetch first)\n", -ESTALE, "hasn't" },
		{ "fatal: repository 'https://h/certificate/' not found\n", -ENOENT, "no such" },
		{ "fatal: unable to access 'https://h/shallow/': Could not resolve host: h\n",
		  -EHOSTUNREACH, "no address" },
		{ "fatal: unable to access 'https://h/inflate/declined/': The requested URL "
		  "returned error: 500\n",
		  -EIO, "error: 500" },
		{ "fatal: the remote end hung up unexpectedly on missing\n", -ECONNRESET,
		  "broke off" },
		{ "fatal: something new\n", -EIO, "git: something new" },
		{ "", -EIO, "said nothing" },
		{ "\n\n", -EIO, "said nothing" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *said = strdup(cases[i].said);
		int r = transport_explain(said, 128, &err);
		if (r != cases[i].code || !strstr(err.text, cases[i].part) ||
		    strchr(err.text, '\n'))
			fail_msg("%s: %d: %s", cases[i].said, r, err.text);
		free(said);
	}
}

static void test_progress(void **state)
{
	uint64_t done = 0, total = 0;
	const char *what = "";
	assert_true(transport_progress("Receiving objects:  45% (123/456), 1.20 MiB | 1.00 MiB/s",
				       &done, &total, &what));
	assert_int_equal(done, 123);
	assert_int_equal(total, 456);
	assert_string_equal(what, "receive");
	assert_true(
		transport_progress("remote: Enumerating objects: 17, done.", &done, &total, &what));
	assert_int_equal(done, 17);
	assert_int_equal(total, 0);
	assert_true(
		transport_progress("Resolving deltas: 100% (7/7), done.", &done, &total, &what));
	assert_string_equal(what, "resolve");
	assert_false(transport_progress("fatal: no", &done, &total, &what));
	assert_false(transport_progress("Receiving objects: x", &done, &total, &what));
}

/* ---- refs ---- */

static struct oid oid(uint8_t n)
{
	struct oid o = { { n, n } };
	return o;
}

static void add(struct refs *r, const char *name, uint8_t n)
{
	struct oid o = oid(n);
	assert_int_equal(refs_add(r, name, &o), 0);
}

static uint8_t value(const struct refs *r, const char *name)
{
	const struct ref *ref = refs_find(r, name);
	return ref ? ref->oid.b[0] : 0;
}

static void test_ref_names(void **state)
{
	static const char *const good[] = { "refs/heads/a", "refs/tags/v1.0", "refs/heads/a/b-c",
					    "refs/heads/@", "refs/heads/\xc3\xa9" };
	static const char *const wrong[] = {
		"heads/a",           "refs/",           "refs/heads/", "refs//a",  "refs/heads/.a",
		"refs/heads/a.lock", "refs/heads/a..b", "refs/a b",    "refs/a~b", "refs/a^",
		"refs/a:b",          "refs/a@{b",       "refs/a\\b",   "refs/a.",  "refs/a\n",
		"refs/../HEAD",      "refs/a?",         "refs/[a"
	};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(ref_name_ok(good[i]));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (ref_name_ok(wrong[i]))
			fail_msg("%s", wrong[i]);
}

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void test_packed(void **state)
{
	static const char text[] = "# pack-refs with: peeled fully-peeled sorted \n" HEX_A
				   " refs/tags/v1\n^" HEX_B "\n" HEX_B " refs/heads/main\n";
	auto_refs r = { 0 }, again = { 0 };
	auto_buf b = { 0 };
	assert_int_equal(packed_refs_parse(&r, text, sizeof(text) - 1), 0);
	assert_int_equal(r.n, 2);
	assert_int_equal(value(&r, "refs/heads/main"), 0xbb);
	assert_int_equal(value(&r, "refs/tags/v1"), 0xaa);
	packed_refs_write(&b, &r);
	assert_int_equal(buf_error(&b), 0);
	assert_int_equal(packed_refs_parse(&again, b.data, b.len), 0);
	assert_int_equal(again.n, 2);
	static const char *const wrong[] = {
		HEX_A " refs/heads/a",                           /* cut */
		HEX_A "refs/heads/a\n",                          /* no blank */
		HEX_A " ../../etc/passwd\n",                     /* no ref */
		HEX_A HEX_A " refs/heads/a\n",                   /* too long an id */
		"x" HEX_A " refs/heads/a\n",                     /* no hex */
		HEX_A " refs/heads/a\n" HEX_B " refs/heads/a\n", /* twice */
		"\x01\n",
	};
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		auto_refs x = { 0 };
		if (packed_refs_parse(&x, wrong[i], strlen(wrong[i])) != -EBADMSG)
			fail_msg("%s", wrong[i]);
	}
	auto_refs none = { 0 };
	assert_int_equal(packed_refs_parse(&none, "", 0), 0);
	assert_int_equal(none.n, 0);
}

/* Higher numbers descend from lower ones, but for 100 and above. */
static bool fake_descends(void *ctx, const struct oid *now, const struct oid *was)
{
	return now->b[0] >= was->b[0] && was->b[0] < 100;
}

static int fake_loose(void *ctx, const char *name, struct oid *out)
{
	const struct ref *r = refs_find(ctx, name);
	if (r)
		*out = r->oid;
	return r != NULL;
}

static void test_merge(void **state)
{
	auto_refs mine = { 0 }, theirs = { 0 }, loose = { 0 };
	auto_refs out = { 0 }, moves = { 0 }, from = { 0 };
	uint64_t changed = 0;
	/* Same, moved, moved here too, ahead here, gone, gone but worked on, new. */
	add(&mine, REFS_ORIGIN "same", 1), add(&mine, REFS_HEADS "same", 1);
	add(&mine, REFS_ORIGIN "moved", 1), add(&mine, REFS_HEADS "moved", 1);
	add(&mine, REFS_ORIGIN "both", 1), add(&mine, REFS_HEADS "both", 100);
	add(&mine, REFS_ORIGIN "merged", 1), add(&mine, REFS_HEADS "merged", 3);
	add(&mine, REFS_ORIGIN "gone", 1), add(&mine, REFS_HEADS "gone", 1);
	add(&mine, REFS_ORIGIN "kept", 1), add(&mine, REFS_HEADS "kept", 100);
	add(&mine, REFS_ORIGIN "l-follows", 1), add(&mine, REFS_HEADS "l-follows", 1);
	add(&mine, REFS_ORIGIN "l-stays", 1), add(&mine, REFS_HEADS "l-stays", 1);
	add(&mine, REFS_ORIGIN "l-gone", 1);
	add(&mine, REFS_HEADS "ours", 7), add(&mine, "refs/bough/keep/x", 8);
	add(&mine, REFS_TAGS "old", 1), add(&mine, REFS_TAGS "t", 1);
	add(&loose, REFS_HEADS "l-follows", 2), add(&loose, REFS_HEADS "l-stays", 100);
	add(&loose, REFS_HEADS "l-gone", 1);
	add(&theirs, REFS_ORIGIN "same", 1), add(&theirs, REFS_ORIGIN "moved", 2);
	add(&theirs, REFS_ORIGIN "both", 2), add(&theirs, REFS_ORIGIN "merged", 4);
	add(&theirs, REFS_ORIGIN "new", 5), add(&theirs, REFS_TAGS "t", 2);
	add(&theirs, REFS_ORIGIN "l-follows", 3), add(&theirs, REFS_ORIGIN "l-stays", 3);
	refs_sort(&mine), refs_sort(&theirs), refs_sort(&loose);
	const struct refs_merge m = { fake_descends, fake_loose, &loose };
	assert_int_equal(refs_merge(&out, &moves, &from, &changed, &mine, &theirs, &m, &err), 0);
	static const struct {
		const char *name;
		uint8_t value;
	} want[] = {
		{ REFS_HEADS "same", 1 },      { REFS_ORIGIN "same", 1 },
		{ REFS_HEADS "moved", 2 },     { REFS_ORIGIN "moved", 2 },
		{ REFS_HEADS "both", 100 },    { REFS_ORIGIN "both", 2 },
		{ REFS_HEADS "merged", 4 },    { REFS_ORIGIN "merged", 4 },
		{ REFS_HEADS "gone", 0 },      { REFS_ORIGIN "gone", 0 },
		{ REFS_HEADS "kept", 100 },    { REFS_ORIGIN "kept", 0 },
		{ REFS_HEADS "new", 5 },       { REFS_ORIGIN "new", 5 },
		{ REFS_HEADS "l-follows", 1 }, { REFS_ORIGIN "l-follows", 3 },
		{ REFS_HEADS "l-stays", 1 },   { REFS_ORIGIN "l-stays", 3 },
		{ REFS_ORIGIN "l-gone", 0 },   { REFS_HEADS "ours", 7 },
		{ "refs/bough/keep/x", 8 },    { REFS_TAGS "old", 0 },
		{ REFS_TAGS "t", 2 },
	};
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++)
		if (value(&out, want[i].name) != want[i].value)
			fail_msg("%s is %d", want[i].name, value(&out, want[i].name));
	for (size_t i = 1; i < out.n; i++)
		assert_true(strcmp(out.v[i - 1].name, out.v[i].name) < 0);
	assert_int_equal(moves.n, 2);
	assert_string_equal(moves.v[0].name, REFS_HEADS "l-follows");
	assert_int_equal(moves.v[0].oid.b[0], 3);
	assert_int_equal(from.v[0].oid.b[0], 2);
	assert_string_equal(moves.v[1].name, REFS_HEADS "l-gone");
	assert_int_equal(moves.v[1].oid.b[0], 0);
	assert_int_equal(changed, 11);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_urls),     cmocka_unit_test(test_names),
		cmocka_unit_test(test_scrub),    cmocka_unit_test(test_explain),
		cmocka_unit_test(test_progress), cmocka_unit_test(test_ref_names),
		cmocka_unit_test(test_packed),   cmocka_unit_test(test_merge),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
