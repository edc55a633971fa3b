/* Images of containers: layouts and docker archives made here, with whiteouts, links, damage. */
#include <archive.h>
#include <archive_entry.h>
#include <jansson.h>
#include "tests/unit/archive_kit.h"
#include "fs/base/hash.h"
#include "snapd/oci.h"

/* ---- making archives ---- */

struct tar {
	struct archive *a;
	struct buf out;
};

static la_ssize_t tar_write(struct archive *a, void *ctx, const void *data, size_t n)
{
	buf_add(ctx, data, n);
	return (la_ssize_t)n;
}

static void tar_begin(struct tar *t, bool gzip)
{
	*t = (struct tar){ .a = archive_write_new() };
	assert_non_null(t->a);
	assert_int_equal(archive_write_set_format_pax_restricted(t->a), ARCHIVE_OK);
	if (gzip)
		assert_int_equal(archive_write_add_filter_gzip(t->a), ARCHIVE_OK);
	assert_int_equal(archive_write_set_bytes_in_last_block(t->a, 1), ARCHIVE_OK);
	assert_int_equal(archive_write_open(t->a, &t->out, NULL, tar_write, NULL), ARCHIVE_OK);
}

static void tar_entry(struct tar *t, const char *path, unsigned type, const char *link,
		      const void *data, size_t n)
{
	struct archive_entry *e = archive_entry_new();
	archive_entry_set_pathname(e, path);
	archive_entry_set_filetype(e, type);
	archive_entry_set_perm(e, type == AE_IFDIR ? 0755 : 0644);
	archive_entry_set_mtime(e, 1000, 0);
	archive_entry_set_size(e, (la_int64_t)n);
	if (link && type == AE_IFLNK)
		archive_entry_set_symlink(e, link);
	else if (link)
		archive_entry_set_hardlink(e, link);
	assert_int_equal(archive_write_header(t->a, e), ARCHIVE_OK);
	if (n)
		assert_int_equal(archive_write_data(t->a, data, n), n);
	archive_entry_free(e);
}

static void tar_end(struct tar *t)
{
	assert_int_equal(archive_write_close(t->a), ARCHIVE_OK);
	assert_int_equal(archive_write_free(t->a), ARCHIVE_OK);
}

/* Members of a layer, one a word: "d/" a folder, "f=text" a file, "l@target" a symlink,
 * "h&target" a hard link. */
static void layer(struct tar *t, bool gzip, const char *const *words)
{
	tar_begin(t, gzip);
	for (; *words; words++) {
		char path[256];
		(void)snprintf(path, sizeof(path), "%s", *words);
		size_t at = strcspn(path, "=@&");
		char kind = path[at];
		path[at] = '\0';
		const char *rest = path + at + 1;
		if (kind == '=')
			tar_entry(t, path, AE_IFREG, NULL, rest, strlen(rest));
		else if (kind)
			tar_entry(t, path, kind == '@' ? AE_IFLNK : AE_IFREG, rest, NULL, 0);
		else
			tar_entry(t, path, at && path[at - 1] == '/' ? AE_IFDIR : AE_IFREG, NULL,
				  NULL, 0);
	}
	tar_end(t);
}

static void digest_of(char out[80], const void *data, size_t n)
{
	struct digest d;
	hash_sha256(&d, data, n);
	memcpy(out, "sha256:", 7);
	digest_hex(out + 7, &d);
}

static void tar_blob(struct tar *t, char digest[80], const void *data, size_t n)
{
	char path[128];
	digest_of(digest, data, n);
	(void)snprintf(path, sizeof(path), "blobs/sha256/%s", digest + 7);
	tar_entry(t, path, AE_IFREG, NULL, data, n);
}

static const char config_text[] =
	"{\"os\":\"linux\",\"config\":{\"Env\":[\"A=b\"],\"User\":\"u\",\"WorkingDir\":\"/w\","
	"\"Entrypoint\":[\"/init\"],\"Cmd\":[\"sh\"],\"Labels\":{\"k\":\"v\"},"
	"\"StopSignal\":\"SIGINT\",\"Volumes\":{\"/x\":{}}},\"rootfs\":{\"diff_ids\":[%s]}}";

enum { LAYERS = 4 };
/* How a layout is to be wrong. */
struct wrong {
	bool damaged_layer, lacks_layer, other_machine, two_images, damaged_config;
};

static void layout(struct buf *out, const char *const *const *layers, const struct wrong *w)
{
	struct tar t;
	char digest[80], list[2048] = "", text[4096];
	size_t at = 0;
	tar_begin(&t, false);
	tar_entry(&t, "blobs/", AE_IFDIR, NULL, NULL, 0);
	for (size_t i = 0; layers[i]; i++) {
		struct tar l;
		layer(&l, i % 2 == 0, layers[i]);
		digest_of(digest, l.out.data, l.out.len);
		if (w->damaged_layer && i == 0) {
			char path[128];
			l.out.data[l.out.len - 1] ^= 1;
			(void)snprintf(path, sizeof(path), "blobs/sha256/%s", digest + 7);
			tar_entry(&t, path, AE_IFREG, NULL, l.out.data, l.out.len);
		} else if (!w->lacks_layer || i > 0) {
			tar_blob(&t, digest, l.out.data, l.out.len);
		}
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s{\"digest\":\"%s\"}",
				       i ? "," : "", digest);
		buf_done(&l.out);
	}
	int n = snprintf(text, sizeof(text), config_text, "");
	tar_blob(&t, digest, text, (size_t)n);
	if (w->damaged_config)
		digest[10] = digest[10] == '0' ? '1' : '0';
	n = snprintf(text, sizeof(text),
		     "{\"schemaVersion\":2,\"config\":{\"digest\":\"%s\"},\"layers\":[%s]}", digest,
		     list);
	tar_blob(&t, digest, text, (size_t)n);
	n = snprintf(text, sizeof(text),
		     "{\"manifests\":[{\"digest\":\"%s\"%s},{\"digest\":\"%s\",\"platform\":"
		     "{\"architecture\":\"%s\",\"os\":\"%s\"}}]}",
		     digest,
		     w->other_machine ? ",\"platform\":{\"os\":\"plan9\"}" : "", digest, "none",
		     w->two_images ? "linux" : "plan9");
	if (w->two_images)
		n = snprintf(text, sizeof(text),
			     "{\"manifests\":[{\"digest\":\"%s\"},{\"digest\":\"%s\"}]}", digest,
			     digest);
	tar_entry(&t, "index.json", AE_IFREG, NULL, text, (size_t)n);
	tar_entry(&t, "oci-layout", AE_IFREG, NULL, "{\"imageLayoutVersion\":\"1.0.0\"}", 30);
	tar_end(&t);
	*out = t.out;
}

/* ---- importing ---- */

static int oci(struct place *p, const struct buf *b, struct digest *image, char **config,
	       struct err *err)
{
	struct store_session *ss;
	struct memory m = { .data = b->data, .len = b->len, .step = 3333 };
	const struct archive_source src = { .read = memory_read, .ctx = &m };
	assert_int_equal(store_session_begin(p->store, &ss, NULL), 0);
	struct archive_import_options opt = options(p, ss);
	int r = oci_import(image, config, &opt, &src, NULL, err);
	store_session_end(ss);
	return r;
}

/* The tree's paths with their types and contents or targets, sorted, one a line. */
static int tree_line(void *ctx, const char *path, size_t len, const struct attr *a)
{
	struct lines *l = ctx;
	struct buf b = { 0 };
	char text[256];
	size_t n = 0;
	if (len == 0)
		return 0;
	buf_add(&b, path, len);
	if (S_ISDIR(a->mode)) {
		buf_printf(&b, "/");
	} else if (S_ISLNK(a->mode)) {
		assert_int_equal(view_target(l->view, a->ino, text, sizeof(text), &n), 0);
		buf_printf(&b, "@%.*s", (int)n, text);
	} else {
		ssize_t got = view_read(l->view, a->ino, text, sizeof(text), 0, NULL);
		assert_true(got >= 0);
		buf_printf(&b, "=%.*s", (int)got, text);
	}
	lines_add(l, &b);
	return 0;
}

/* What each image gets, where no test asks for it. */
static bool is_added(const char *line, const char *const *want)
{
	static const char *const added[] = { ".bough/", "dev/",  "etc/", "proc/",
					     "run/",    "sys/",  "tmp/", "workspace/" };
	for (; *want; want++)
		if (strcmp(*want, line) == 0)
			return false;
	for (size_t i = 0; i < sizeof(added) / sizeof(added[0]); i++)
		if (strncmp(line, added[i], strlen(added[i])) == 0)
			return true;
	return false;
}

static void assert_tree(struct place *p, const struct digest *image, const char *const *want)
{
	struct view v;
	view_of(p, image, &v);
	struct lines l = { .view = &v };
	assert_int_equal(view_walk(&v, tree_line, &l, NULL), 0);
	qsort(l.v, l.n, sizeof(*l.v), by_text);
	size_t n = 0;
	for (size_t i = 0; i < l.n; i++)
		if (is_added(l.v[i], want))
			free(l.v[i]);
		else
			l.v[n++] = l.v[i];
	l.n = n;
	for (size_t i = 0; i < l.n || want[i]; i++) {
		if (i >= l.n || !want[i] || strcmp(l.v[i], want[i]) != 0)
			fail_msg("line %zu: '%s', expected '%s'", i, i < l.n ? l.v[i] : "(none)",
				 want[i] ? want[i] : "(none)");
		if (i + 1 >= l.n && !want[i + 1])
			break;
	}
	for (size_t i = 0; i < l.n; i++)
		free(l.v[i]);
	free(l.v);
	image_unref(v.image);
}

#define WORDS(...) (const char *const[]){ __VA_ARGS__, NULL }

/* Each row: layers from the lowest, and the tree they make. */
static const struct {
	const char *name;
	const char *const *layers[LAYERS + 1];
	const char *const *tree;
} stacks[] = {
	{ "one", { WORDS("a=1", "d/", "d/b=2") }, WORDS("a=1", "d/", "d/b=2") },
	{ "replaced", { WORDS("a=1", "b=1"), WORDS("a=2") }, WORDS("a=2", "b=1") },
	{ "whiteout of a file", { WORDS("a=1", "b=1"), WORDS(".wh.a") }, WORDS("b=1") },
	{ "whiteout of a folder", { WORDS("d/", "d/a=1", "e=1"), WORDS(".wh.d") }, WORDS("e=1") },
	{ "whiteout of nothing", { WORDS("a=1"), WORDS("x/.wh.y", ".wh.z") }, WORDS("a=1") },
	{ "whiteout, then made again in the same layer",
	  { WORDS("d/", "d/a=1"), WORDS(".wh.d", "d/", "d/b=2") },
	  WORDS("d/", "d/b=2") },
	{ "made first, then the whiteout: the layer's own stays",
	  { WORDS("d/", "d/a=1"), WORDS("d/", "d/b=2", ".wh.d") },
	  WORDS("d/", "d/b=2") },
	{ "opaque", { WORDS("d/", "d/a=1", "d/s/", "d/s/x=1"), WORDS("d/", "d/.wh..wh..opq") },
	  WORDS("d/") },
	{ "opaque last",
	  { WORDS("d/", "d/a=1", "d/s/", "d/s/x=1"),
	    WORDS("d/", "d/s/", "d/s/y=2", "d/.wh..wh..opq") },
	  WORDS("d/", "d/s/", "d/s/y=2") },
	{ "opaque at the top", { WORDS("a=1", "d/", "d/b=1"), WORDS("c=2", ".wh..wh..opq") },
	  WORDS("c=2") },
	{ "three layers, hidden and back",
	  { WORDS("a=1"), WORDS(".wh.a"), WORDS("a=3") },
	  WORDS("a=3") },
	{ "a file becomes a folder and back",
	  { WORDS("a=1", "b/", "b/x=1"), WORDS("a/", "a/y=2", "b=2") },
	  WORDS("a/", "a/y=2", "b=2") },
	{ "a symlink becomes a folder", { WORDS("a@b", "b/", "b/x=1"), WORDS("a/", "a/y=2") },
	  WORDS("a/", "a/y=2", "b/", "b/x=1") },
	{ "through a lower symlink", { WORDS("bin@usr/bin", "usr/", "usr/bin/"), WORDS("bin/x=1") },
	  WORDS("bin@usr/bin", "usr/", "usr/bin/", "usr/bin/x=1") },
	{ "through a symlink with .. that stays inside",
	  { WORDS("d/", "d/l@../../../e", "e/"), WORDS("d/l/x=1") },
	  WORDS("d/", "d/l@../../../e", "e/", "e/x=1") },
	{ "through an absolute symlink", { WORDS("d/", "d/l@/e", "e/"), WORDS("d/l/x=1") },
	  WORDS("d/", "d/l@/e", "e/", "e/x=1") },
	{ "hard links over layers", { WORDS("a=1"), WORDS("b&a", ".wh.a") }, WORDS("b=1") },
	{ "aufs's own", { WORDS("a=1"), WORDS(".wh..wh.plnk/", ".wh..wh.aufs") }, WORDS("a=1") },
};

static void layers_make_a_tree(void **state)
{
	struct place *p = *state;
	for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++) {
		struct buf b;
		struct digest image;
		struct err err = { 0 };
		auto_free char *config = NULL;
		layout(&b, stacks[i].layers, &(struct wrong){ 0 });
		if (oci(p, &b, &image, &config, &err) < 0)
			fail_msg("%s: %s", stacks[i].name, err.text);
		print_message("%s\n", stacks[i].name);
		assert_tree(p, &image, stacks[i].tree);
		buf_done(&b);
	}
}

/* What a sandbox needs is added where it is missing; links are followed, and what is in the way
 * stays. */
#define HOSTS "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
static const struct {
	const char *const *layer, *const *has;
} roots[] = {
	{ WORDS("a=1"),
	  WORDS(".bough/", "a=1", "dev/", "etc/", "etc/hostname=sandbox\n",
		"etc/hosts=" HOSTS, "etc/resolv.conf=", "proc/", "run/", "run/secrets/",
		"sys/", "tmp/", "workspace/") },
	{ WORDS("etc/", "etc/hosts=", "etc/hostname=mine"),
	  WORDS("etc/hostname=mine", "etc/hosts=" HOSTS) },
	{ WORDS("etc/", "etc/hosts=own", "etc/resolv.conf@../run/r"),
	  WORDS("etc/hosts=own", "etc/resolv.conf@../run/r") },
	{ WORDS("etc@usr/etc", "run@/var/run", "usr/", "usr/etc/"),
	  WORDS("etc@usr/etc", "run@/var/run", "usr/", "usr/etc/",
		"usr/etc/hostname=sandbox\n", "usr/etc/hosts=" HOSTS,
		"usr/etc/resolv.conf=", "var/", "var/run/", "var/run/secrets/") },
	{ WORDS("dev=1", "etc=2", "run@etc/../run"),
	  WORDS("dev=1", "etc=2", "run@etc/../run") },
};

static void what_every_root_has(void **state)
{
	struct place *p = *state;
	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
		struct buf b;
		struct digest image;
		struct err err = { 0 };
		auto_free char *config = NULL;
		layout(&b, (const char *const *const[]){ roots[i].layer, NULL },
		       &(struct wrong){ 0 });
		if (oci(p, &b, &image, &config, &err) < 0)
			fail_msg("%zu: %s", i, err.text);
		assert_tree(p, &image, roots[i].has);
		buf_done(&b);
	}
}

static void config_is_kept(void **state)
{
	struct place *p = *state;
	struct buf b;
	struct digest image;
	struct err err = { 0 };
	auto_free char *config = NULL;
	layout(&b, (const char *const *const[]){ WORDS("a=1"), NULL }, &(struct wrong){ 0 });
	if (oci(p, &b, &image, &config, &err) < 0)
		fail_msg("%s", err.text);
	json_t *j = json_loads(config, 0, NULL);
	assert_non_null(json_object_get(j, "digest"));
	(void)json_object_del(j, "digest");
	json_t *want = json_pack("{s:[s], s:s, s:s, s:[s], s:[s], s:s, s:{s:s}}", "env", "A=b",
				 "user", "u", "workdir", "/w", "entrypoint", "/init", "cmd", "sh",
				 "stop_signal", "SIGINT", "labels", "k", "v");
	assert_true(json_equal(j, want));
	json_decref(j);
	json_decref(want);
	buf_done(&b);
}

/* What is damaged or not for here is refused in words, and leaves no image. */
static void refused(void **state)
{
	static const struct {
		struct wrong w;
		const char *layer[3];
		const char *says;
	} rows[] = {
		{ { .damaged_layer = true }, { "a=1" }, "damaged" },
		{ { .lacks_layer = true }, { "a=1" }, "lacks the layer" },
		{ { .other_machine = true }, { "a=1" }, "no image for linux" },
		{ { .two_images = true }, { "a=1" }, "2 images" },
		{ { .damaged_config = true }, { "a=1" }, "lacks" },
		{ { 0 }, { "../a=1" }, "'..'" },
		{ { 0 }, { "a=1", "a/b=1" }, "no folder" },
		{ { 0 }, { "l@/", "l/b=1" }, "no folder" }, /* its own link is never followed */
		{ { 0 }, { ".wh." }, "whiteout of nothing" },
	};
	struct place *p = *state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct buf b;
		struct digest image;
		struct err err = { 0 };
		char *config = NULL;
		unsigned before = entries(p->images);
		layout(&b, (const char *const *const[]){ rows[i].layer, NULL }, &rows[i].w);
		assert_int_equal(oci(p, &b, &image, &config, &err), -EBADMSG);
		if (!strstr(err.text, rows[i].says))
			fail_msg("row %zu: %s", i, err.text);
		assert_null(config);
		assert_int_equal(entries(p->images), before);
		buf_done(&b);
	}
}

/* A layout that is cut anywhere is refused, never taken in part. */
static void cut(void **state)
{
	struct place *p = *state;
	struct buf b;
	layout(&b, (const char *const *const[]){ WORDS("a=1"), WORDS("b=2"), NULL },
	       &(struct wrong){ 0 });
	for (size_t len = 0; len + 1024 < b.len; len += 509) {
		struct digest image;
		struct err err = { 0 };
		char *config = NULL;
		struct buf part = { .data = b.data, .len = len };
		assert_true(oci(p, &part, &image, &config, &err) < 0);
		assert_true(err.text[0] != '\0');
	}
	buf_done(&b);
}

static void docker(struct buf *out, bool old, bool damaged)
{
	static const char *const lower[] = { "a=1", "b=1", NULL };
	static const char *const upper[] = { ".wh.a", NULL };
	const char *const *const both[] = { lower, upper };
	struct tar t;
	char ids[2][80], list[400], text[4096], names[2][160];
	tar_begin(&t, false);
	for (size_t i = 0; i < 2; i++) {
		struct tar l;
		layer(&l, false, both[i]);
		digest_of(ids[i], l.out.data, l.out.len);
		(void)snprintf(names[i], sizeof(names[i]), "%064zu/layer.tar", i + 1);
		if (damaged && i == 1)
			l.out.data[100] ^= 1;
		tar_entry(&t, names[i], AE_IFREG, NULL, l.out.data, l.out.len);
		if (old && i == 0) { /* the same layer by a link, as `docker save` had it */
			char link[160];
			(void)snprintf(link, sizeof(link), "../%064u/layer.tar", 1);
			(void)snprintf(names[i], sizeof(names[i]), "%064u/layer.tar", 7);
			tar_entry(&t, names[i], AE_IFLNK, link, NULL, 0);
		}
		buf_done(&l.out);
	}
	(void)snprintf(list, sizeof(list), "\"%s\",\"%s\"", ids[0], ids[1]);
	int n = snprintf(text, sizeof(text), config_text, list);
	tar_entry(&t, "c.json", AE_IFREG, NULL, text, (size_t)n);
	n = snprintf(text, sizeof(text),
		     "[{\"Config\":\"c.json\",\"RepoTags\":[\"x:1\"],\"Layers\":[\"%s\",\"%s\"]}]",
		     names[0], names[1]);
	tar_entry(&t, "manifest.json", AE_IFREG, NULL, text, (size_t)n);
	tar_end(&t);
	*out = t.out;
}

static void docker_archives(void **state)
{
	struct place *p = *state;
	for (int i = 0; i < 3; i++) {
		struct buf b;
		struct digest image;
		struct err err = { 0 };
		auto_free char *config = NULL;
		docker(&b, i == 1, i == 2);
		int r = oci(p, &b, &image, &config, &err);
		buf_done(&b);
		if (i == 2) {
			assert_int_equal(r, -EBADMSG);
			continue;
		}
		if (r < 0)
			fail_msg("%s", err.text);
		assert_tree(p, &image, WORDS("b=1"));
		assert_non_null(strstr(config, "\"cmd\":[\"sh\"]"));
	}
}

/* A root filesystem, also one that is compressed or begins with folders. */
static void root_filesystems(void **state)
{
	struct place *p = *state;
	for (int gzip = 0; gzip < 2; gzip++) {
		struct tar t;
		struct digest image;
		struct err err = { 0 };
		auto_free char *config = NULL;
		layer(&t, gzip, WORDS("bin/", "blobs/", "etc/", "etc/x=1", ".wh.y=2"));
		if (oci(p, &t.out, &image, &config, &err) < 0)
			fail_msg("%s", err.text);
		assert_string_equal(config, "{}");
		/* Whiteouts are of layers: here it is a file like any other. */
		assert_tree(p, &image, WORDS(".wh.y=2", "bin/", "blobs/", "etc/", "etc/x=1"));
		buf_done(&t.out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(layers_make_a_tree, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_every_root_has, set_up, tear_down),
		cmocka_unit_test_setup_teardown(config_is_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(docker_archives, set_up, tear_down),
		cmocka_unit_test_setup_teardown(root_filesystems, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
