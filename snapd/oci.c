#include "snapd/oci.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "runtime/box.h"
#include "snapd/archive_lib.h"
#include "snapd/oci_blobs.h"

enum {
	LAYERS_MAX = 512,
	INDEX_DEPTH = 4,      /* indexes within each other */
	STRINGS_MAX = 4096,   /* of a configuration's list */
};

struct oci {
	const struct archive_import_options *opt;
	const struct archive_source *src;
	struct err *err;
	int raw;           /* what came until it was known what it is; -1: nothing is kept */
	uint64_t raw_size;
	struct oci_blobs blobs;
	json_t *config;    /* what we keep of it */
	struct archive_importer *importer;
};

static int no_memory(struct oci *o)
{
	return err_no_memory(o->err);
}

static int bad(struct oci *o, const char *what)
{
	return err_set(o->err, -EBADMSG, "%s", what);
}

static void json_done(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(json_done))) json_t

/* ---- what it is ---- */

/* Passes the source's bytes on, and keeps them while they may be needed again. */
static ssize_t tee_read(void *ctx, void *buf, size_t n, struct err *err)
{
	struct oci *o = ctx;
	ssize_t got = o->src->read(o->src->ctx, buf, n, err);
	if (got <= 0 || o->raw < 0)
		return got;
	int r = io_write_full(NULL, o->raw, buf, (size_t)got, o->raw_size);
	if (r < 0)
		return err_sys(err, r, "write a temporary file");
	o->raw_size += (uint64_t)got;
	return got;
}

static bool is_hex64(const char *s, size_t len)
{
	size_t n = 0;
	while (n < len && isxdigit((unsigned char)s[n]))
		n++;
	return n == len && n == 64;
}

static bool is_image_member(const char *path)
{
	static const char *const names[] = { "oci-layout", "index.json", "manifest.json",
					     "repositories" };
	while (path[0] == '.' && path[1] == '/')
		path += 2;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(path, names[i]) == 0)
			return true;
	size_t first = strcspn(path, "/");
	if (path[first] == '/')
		return is_hex64(path, first) || strncmp(path, "blobs/", 6) == 0;
	const char *dot = strrchr(path, '.');
	return dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".tar") == 0) &&
	       is_hex64(path, (size_t)(dot - path));
}

/* 1: an image, whose members are in o->blobs; 0: something else, of which the first bytes are in
 * o->raw. */
static int take_members(struct oci *o, struct archive_reader *rd)
{
	const struct archive_import_options *opt = o->opt;
	struct archive_entry *e;
	bool known = false;
	int r;
	while ((r = archive_reader_next(rd, &e)) > 0) {
		if (!known && archive_entry_filetype(e) != AE_IFDIR) {
			if (!is_image_member(archive_entry_pathname(e)))
				return 0;
			known = true;
			cleanup_close(&o->raw);
			o->raw = -1;
		}
		r = oci_blobs_take(&o->blobs, rd, e, opt->scratch, opt->max_bytes, o->err);
		if (r < 0)
			return r;
		if (opt->progress &&
		    opt->progress(opt->progress_ctx, rd->bytes_read, rd->members) != 0)
			return err_set(o->err, -ECANCELED, "the import was cancelled");
	}
	if (r == 0 && known)
		r = archive_reader_finish(rd);
	return r < 0 ? r : known;
}

static int look(struct oci *o)
{
	const struct archive_source tee = { tee_read, o };
	const struct archive_reader_options ro = { .scratch = o->opt->scratch,
						   .max_bytes = o->opt->max_bytes };
	struct archive_reader rd;
	o->raw = open(o->opt->scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (o->raw < 0)
		return err_sys(o->err, -errno, "make a temporary file in %s", o->opt->scratch);
	int r = archive_reader_open(&rd, &ro, &tee, o->err);
	if (r == 0)
		r = take_members(o, &rd);
	archive_reader_close(&rd);
	return r;
}

/* ---- a root filesystem ---- */

struct replay {
	struct oci *o;
	uint64_t at;
};

static ssize_t replay_read(void *ctx, void *buf, size_t n, struct err *err)
{
	struct replay *rp = ctx;
	struct oci *o = rp->o;
	if (rp->at == o->raw_size)
		return o->src->read(o->src->ctx, buf, n, err);
	uint64_t left = o->raw_size - rp->at;
	ssize_t got = io_read_full(NULL, o->raw, buf, n < left ? n : (size_t)left, rp->at);
	if (got <= 0)
		return err_sys(err, got < 0 ? (int)got : -EIO, "read a temporary file");
	rp->at += (uint64_t)got;
	return got;
}

static int import_tree(struct oci *o, struct digest *image, struct archive_import_stats *st)
{
	struct replay rp = { .o = o };
	const struct archive_source src = { replay_read, &rp };
	o->config = json_object();
	return o->config ? archive_import(image, o->opt, &src, st, o->err) : no_memory(o);
}

/* ---- finding the image's parts ---- */

static int load(struct oci *o, const char *name, const char *digest, json_t **out)
{
	const struct oci_blob *b = name ? oci_blobs_find(&o->blobs, name) : NULL;
	auto_free char *text = NULL;
	if (!b)
		return err_set(o->err, -EBADMSG, "the archive lacks '%s', a part of the image",
			       SHOW(name ? name : "?"));
	int r = oci_blob_text(&o->blobs, b, &text, o->err);
	if (r == 0 && digest) {
		struct oci_blob_reader rd;
		r = oci_blob_begin(&rd, &o->blobs, b, o->err);
		if (r == 0)
			r = oci_blob_verify(&rd, digest, o->err);
		oci_blob_end(&rd);
	}
	if (r < 0)
		return r;
	json_error_t je;
	*out = json_parse(text, b->size, 0, &je);
	if (!*out)
		return err_set(o->err, -EBADMSG, "'%s': line %d: %s", SHOW(name), je.line,
			       archive_show(je.text).s);
	return 0;
}

static const char *string_of(const json_t *j, const char *key)
{
	return json_string_value(json_object_get(j, key));
}

/* The member that holds what a descriptor names; NULL: it names none. The caller frees. */
static char *blob_name(const char *digest)
{
	const char *hex = oci_digest_hex(digest);
	char name[128];
	if (!hex)
		return NULL;
	(void)snprintf(name, sizeof(name), "blobs/sha256/%s", hex);
	return strdup(name);
}

static int load_blob(struct oci *o, const char *digest, json_t **out)
{
	auto_free char *name = blob_name(digest);
	if (!name)
		return err_set(o->err, -EBADMSG, "'%s' is no digest by SHA-256",
			       SHOW(digest ? digest : ""));
	return load(o, name, digest, out);
}

/* This machine's architecture as Go names it, which the OCI does too. */
static const char *architecture(void)
{
	static const char *const map[][2] = {
		{ "x86_64", "amd64" },   { "aarch64", "arm64" },     { "i686", "386" },
		{ "i386", "386" },       { "armv7l", "arm" },        { "armv6l", "arm" },
		{ "riscv64", "riscv64" }, { "ppc64le", "ppc64le" },  { "s390x", "s390x" },
		{ "loongarch64", "loong64" },
	};
	struct utsname u;
	if (uname(&u) < 0)
		return "unknown";
	for (size_t i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (strcmp(u.machine, map[i][0]) == 0)
			return map[i][1];
	return "unknown";
}

/* Whether a descriptor is, or may be, of an image for this machine. */
static bool may_run(const json_t *descriptor)
{
	const json_t *p = json_object_get(descriptor, "platform");
	const char *arch = string_of(p, "architecture"), *os = string_of(p, "os");
	return (!arch || strcmp(arch, architecture()) == 0) && (!os || strcmp(os, "linux") == 0);
}

/* Goes down from an index to the one manifest of it that can run here. */
static int find_manifest(struct oci *o, json_t *index, json_t **manifest, char **digest)
{
	auto_json *at = json_incref(index);
	for (int depth = 0; depth < INDEX_DEPTH; depth++) {
		const json_t *one = NULL, *d;
		size_t i, fit = 0;
		json_array_foreach(json_object_get(at, "manifests"), i, d) {
			if (!may_run(d))
				continue;
			one = d;
			fit++;
		}
		if (fit == 0)
			return err_set(o->err, -EBADMSG, "it holds no image for linux on %s",
				       architecture());
		if (fit > 1)
			return err_set(o->err, -EBADMSG,
				       "it holds %zu images; save the one that is wanted alone",
				       fit);
		const char *name = string_of(one, "digest");
		json_t *next = NULL;
		int r = load_blob(o, name, &next);
		if (r < 0)
			return r;
		if (json_object_get(next, "layers")) {
			*manifest = next;
			*digest = strdup(name);
			return *digest ? 0 : no_memory(o);
		}
		json_decref(at);
		at = next;
	}
	return bad(o, "its indexes go too deep");
}

static int add_layer(struct oci *o, json_t *layers, const char *name, const char *digest)
{
	if (json_array_size(layers) >= LAYERS_MAX)
		return err_set(o->err, -EFBIG, "the image has more than %d layers", LAYERS_MAX);
	json_t *l = json_pack("{s:s, s:s}", "name", name, "digest", digest);
	return json_array_append_new(layers, l) < 0 ? no_memory(o) : 0;
}

static int layers_of_manifest(struct oci *o, const json_t *manifest, json_t *layers)
{
	const json_t *d;
	size_t i;
	int r = 0;
	json_array_foreach(json_object_get(manifest, "layers"), i, d) {
		const char *digest = string_of(d, "digest");
		auto_free char *name = blob_name(digest);
		if (!name)
			return bad(o, "a layer has no digest by SHA-256");
		r = add_layer(o, layers, name, digest);
		if (r < 0)
			return r;
	}
	return r;
}

/* The form of `docker save`: one manifest.json, layers not compressed, named by anything. */
static int layers_of_docker(struct oci *o, const json_t *one, const json_t *config, json_t *layers)
{
	const json_t *names = json_object_get(one, "Layers"), *name;
	const json_t *ids = json_object_get(json_object_get(config, "rootfs"), "diff_ids");
	size_t i;
	if (json_array_size(names) != json_array_size(ids))
		return bad(o, "its configuration names another number of layers than it has");
	json_array_foreach(names, i, name) {
		const char *id = json_string_value(json_array_get(ids, i));
		if (!json_is_string(name) || !id || !oci_digest_hex(id))
			return bad(o, "a layer has no name, or no digest by SHA-256");
		int r = add_layer(o, layers, json_string_value(name), id);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- its configuration ---- */

static int keep_text(const json_t *from, const char *key, json_t *to, const char *as)
{
	const char *s = string_of(from, key);
	return s && *s ? json_object_set_new(to, as, json_string(s)) : 0;
}

static int keep_list(const json_t *from, const char *key, json_t *to, const char *as)
{
	json_t *list = json_object_get(from, key), *s;
	size_t i;
	if (json_array_size(list) == 0)
		return 0;
	if (json_array_size(list) > STRINGS_MAX)
		return -1;
	json_array_foreach(list, i, s)
		if (!json_is_string(s))
			return -1;
	return json_object_set(to, as, list);
}

static int keep_map(const json_t *from, const char *key, json_t *to, const char *as)
{
	json_t *map = json_object_get(from, key), *v;
	const char *k;
	if (json_object_size(map) == 0)
		return 0;
	json_object_foreach(map, k, v)
		if (!json_is_string(v))
			return -1;
	return json_object_set(to, as, map);
}

static int keep_config(struct oci *o, const json_t *config, const char *digest)
{
	const json_t *c = json_object_get(config, "config");
	const char *arch = string_of(config, "architecture"), *os = string_of(config, "os");
	if (os && strcmp(os, "linux") != 0)
		return err_set(o->err, -EBADMSG, "it is an image for %s", archive_show(os).s);
	if (arch && strcmp(arch, architecture()) != 0)
		return err_set(o->err, -EBADMSG, "it is an image for %s, and this is %s",
			       archive_show(arch).s, architecture());
	o->config = json_object();
	if (!o->config)
		return no_memory(o);
	int e = keep_list(c, "Env", o->config, "env");
	e |= keep_text(c, "User", o->config, "user");
	e |= keep_text(c, "WorkingDir", o->config, "workdir");
	e |= keep_list(c, "Entrypoint", o->config, "entrypoint");
	e |= keep_list(c, "Cmd", o->config, "cmd");
	e |= keep_text(c, "StopSignal", o->config, "stop_signal");
	e |= keep_map(c, "Labels", o->config, "labels");
	e |= keep_text(config, "architecture", o->config, "architecture");
	if (digest)
		e |= json_object_set_new(o->config, "digest", json_string(digest));
	return e ? bad(o, "its configuration isn't one") : 0;
}

/* ---- layers ---- */

static int import_layer(struct oci *o, const char *name, const char *digest)
{
	const struct oci_blob *b = oci_blobs_find(&o->blobs, name);
	if (!b)
		return err_set(o->err, -EBADMSG, "the archive lacks the layer '%s'", SHOW(name));
	struct oci_blob_reader rd;
	const struct archive_source src = { oci_blob_read, &rd };
	int r = oci_blob_begin(&rd, &o->blobs, b, o->err);
	if (r == 0)
		r = archive_importer_layer(o->importer, &src, o->err);
	if (r == 0)
		r = oci_blob_verify(&rd, digest, o->err);
	oci_blob_end(&rd);
	return r < 0 ? err_prefix(o->err, r, "layer %s", SHOW(name)) : 0;
}

static int import_layers(struct oci *o, const json_t *layers, struct digest *image,
			 struct archive_import_stats *st)
{
	const json_t *l;
	size_t i;
	int r = archive_importer_new(&o->importer, o->opt, o->err);
	if (r < 0)
		return r;
	json_array_foreach(layers, i, l) {
		r = import_layer(o, string_of(l, "name"), string_of(l, "digest"));
		if (r < 0)
			return r;
	}
	return archive_importer_finish(o->importer, image, st, o->err);
}

static int from_layout(struct oci *o, json_t *layers)
{
	auto_json *index = NULL, *manifest = NULL, *config = NULL;
	auto_free char *digest = NULL;
	int r = load(o, "index.json", NULL, &index);
	if (r == 0)
		r = find_manifest(o, index, &manifest, &digest);
	if (r == 0)
		r = load_blob(o, string_of(json_object_get(manifest, "config"), "digest"), &config);
	if (r == 0)
		r = keep_config(o, config, digest);
	return r < 0 ? r : layers_of_manifest(o, manifest, layers);
}

static int from_docker(struct oci *o, json_t *layers)
{
	auto_json *manifest = NULL, *config = NULL;
	int r = load(o, "manifest.json", NULL, &manifest);
	if (r < 0)
		return r;
	if (json_array_size(manifest) != 1)
		return err_set(o->err, -EBADMSG,
			       "it holds %zu images; save the one that is wanted alone",
			       json_array_size(manifest));
	const json_t *one = json_array_get(manifest, 0);
	r = load(o, string_of(one, "Config"), NULL, &config);
	if (r == 0)
		r = keep_config(o, config, NULL);
	return r < 0 ? r : layers_of_docker(o, one, config, layers);
}

static int import_image(struct oci *o, struct digest *image, struct archive_import_stats *st)
{
	auto_json *layers = json_array();
	if (!layers)
		return no_memory(o);
	/* New ones of `docker save` are both; a layout says more. */
	int r = oci_blobs_find(&o->blobs, "index.json") ? from_layout(o, layers)
							: from_docker(o, layers);
	return r < 0 ? r : import_layers(o, layers, image, st);
}

/* ---- the whole ---- */

int oci_import(struct digest *image, char **config, const struct archive_import_options *opt,
	       const struct archive_source *src, struct archive_import_stats *st, struct err *err)
{
	struct archive_import_options filled = *opt;
	filled.fill = box_entries;
	struct oci o = {
		.opt = &filled, .src = src, .err = err, .raw = -1, .blobs = { .fd = -1 }
	};
	int r = look(&o);
	if (r >= 0)
		r = r ? import_image(&o, image, st) : import_tree(&o, image, st);
	if (r >= 0) {
		char *text = json_text(o.config, JSON_COMPACT);
		if (!text)
			r = no_memory(&o);
		else if (strlen(text) > OCI_CONFIG_MAX)
			r = err_set(err, -EBADMSG, "its configuration is over %d KiB",
				    OCI_CONFIG_MAX >> 10);
		if (r >= 0)
			*config = text;
		else
			free(text);
	}
	archive_importer_free(o.importer);
	oci_blobs_done(&o.blobs);
	cleanup_close(&o.raw);
	json_decref(o.config);
	return r < 0 ? err_prefix(err, r, "image") : 0;
}
