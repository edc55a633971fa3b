/* What is remembered of a checkout, so that the next workspace of that commit needs no build, and
 * another commit's build what it has in common: MIRROR.checkouts/<64 hex digits of the key>. A
 * file there is a hint: it may be deleted at any time, and one that is damaged counts as absent.
 * Its time of change says when it was used last. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/checkout_impl.h"
#include "gitops/helper.h"

enum {
	RECORD_VERSION = 3,
	/* Raised when equal specs would give another image than before. */
	BUILD_VERSION = 10,
	RECORD_MAX = 64 << 20,
	PAST_MAX = 16, /* earlier checkouts that a build looks at */
	CO_DIR_MAX = 4096,
};
static const uint8_t magic[8] = { 'B', 'o', 'u', 'g', 'h', 'C', 'o', '\n' };
static const char suffix[] = ".checkouts";

/* ---- bytes ---- */

void co_record_done(struct co_record *r)
{
	co_large_done(r->large, r->nlarge);
	memset(r, 0, sizeof(*r));
}

static void encode_names(const struct checkout_names *names, struct buf *out)
{
	buf_u32(out, names->n);
	buf_u32(out, names->len);
	buf_add(out, names->text, names->len);
}

void co_record_encode(const struct co_record *r, struct buf *out)
{
	const struct checkout_result *c = &r->result;
	const uint64_t numbers[] = { c->seed, c->files,     c->bytes,      c->submodules,
				     c->lfs,  c->index_ino, c->index_head, c->index_rest,
				     c->here_ino };
	size_t start = out->len;
	buf_add(out, magic, sizeof(magic));
	buf_u32(out, RECORD_VERSION);
	buf_add(out, r->commit.b, OID_BYTES);
	buf_add(out, c->image.b, sizeof(c->image.b));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		buf_u64(out, numbers[i]);
	buf_u32(out, c->index_meta_len);
	buf_add(out, c->index_meta, c->index_meta_len);
	encode_names(&c->submodule_names, out);
	encode_names(&c->lfs_names, out);
	buf_u32(out, (uint32_t)r->nlarge);
	for (size_t i = 0; i < r->nlarge; i++) {
		const struct co_large *l = &r->large[i];
		buf_add(out, l->oid.b, OID_BYTES);
		buf_u64(out, l->size);
		buf_u32(out, (uint32_t)l->npieces);
		for (size_t k = 0; k < l->npieces; k++) {
			buf_u64(out, l->pieces[k].off);
			buf_u32(out, l->pieces[k].len);
			buf_add(out, l->pieces[k].object.b, sizeof(struct digest));
		}
	}
	if (!out->failed)
		buf_u64(out, hash_xxh3(out->data + start, out->len - start, 0));
}

static void take(struct cur *c, void *out, size_t n)
{
	const uint8_t *p = cur_take(c, n);
	if (p)
		memcpy(out, p, n);
}

/* Pieces in order, inside of the content, each in one object. */
static int take_large(struct cur *c, struct co_large *l)
{
	enum { PIECE_BYTES = 8 + 4 + 32 };
	uint64_t end = 0;
	take(c, l->oid.b, OID_BYTES);
	l->size = cur_u64(c);
	uint32_t n = cur_u32(c);
	if (c->bad || n > cur_left(c) / PIECE_BYTES || l->size > INT64_MAX)
		return -EBADMSG;
	l->pieces = calloc(n ? n : 1, sizeof(*l->pieces));
	if (!l->pieces)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct piece *p = &l->pieces[l->npieces++];
		p->off = cur_u64(c);
		p->len = cur_u32(c);
		take(c, p->object.b, sizeof(p->object.b));
		if (p->off < end || p->len == 0 || p->len > STORE_OBJECT_MAX || p->off > l->size ||
		    p->len > l->size - p->off)
			return -EBADMSG;
		end = p->off + p->len;
	}
	return 0;
}

static int take_names(struct cur *c, struct checkout_names *names)
{
	uint32_t ends = 0;
	names->n = cur_u32(c);
	names->len = cur_u32(c);
	if (c->bad || names->n > CHECKOUT_NAMES || names->len > sizeof(names->text))
		return -EBADMSG;
	take(c, names->text, names->len);
	for (uint32_t i = 0; i < names->len; i++)
		ends += names->text[i] == '\0';
	bool open = names->len && names->text[names->len - 1] != '\0';
	return c->bad || open || ends != names->n ? -EBADMSG : 0;
}

static int take_record(struct co_record *r, struct cur *c)
{
	enum { LARGE_BYTES = OID_BYTES + 8 + 4 };
	struct checkout_result *co = &r->result;
	uint64_t *numbers[] = { &co->seed, &co->files,     &co->bytes,      &co->submodules,
				&co->lfs,  &co->index_ino, &co->index_head, &co->index_rest,
				&co->here_ino };
	take(c, r->commit.b, OID_BYTES);
	take(c, co->image.b, sizeof(co->image.b));
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		*numbers[i] = cur_u64(c);
	co->index_meta_len = cur_u32(c);
	if (c->bad || co->index_meta_len > CHECKOUT_META_MAX)
		return -EBADMSG;
	take(c, co->index_meta, co->index_meta_len);
	if (take_names(c, &co->submodule_names) < 0 || take_names(c, &co->lfs_names) < 0)
		return -EBADMSG;
	uint32_t n = cur_u32(c);
	if (c->bad || n > cur_left(c) / LARGE_BYTES)
		return -EBADMSG;
	r->large = calloc(n ? n : 1, sizeof(*r->large));
	if (!r->large)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		int e = take_large(c, &r->large[r->nlarge++]);
		if (e < 0)
			return e;
	}
	return c->bad || cur_left(c) ? -EBADMSG : 0;
}

int co_record_decode(struct co_record *out, const void *data, size_t len)
{
	struct co_record r = { 0 };
	if (len < sizeof(magic) + 12 || len > RECORD_MAX || memcmp(data, magic, sizeof(magic)) != 0)
		return -EBADMSG;
	len -= 8;
	if (le_get64((const uint8_t *)data + len) != hash_xxh3(data, len, 0))
		return -EBADMSG;
	struct cur c = cur_init((const uint8_t *)data + sizeof(magic), len - sizeof(magic));
	if (cur_u32(&c) != RECORD_VERSION)
		return -EBADMSG;
	int e = take_record(&r, &c);
	if (e < 0) {
		co_record_done(&r);
		return e;
	}
	*out = r;
	return 0;
}

/* ---- names ---- */

static void key_text(struct buf *b, const char *s)
{
	buf_u8(b, s != NULL);
	if (s)
		buf_add(b, s, strlen(s) + 1);
}

void checkout_key(struct digest *out, const struct checkout_options *opt,
		  const struct checkout_spec *spec)
{
	auto_buf b = { 0 };
	size_t len;
	struct digest helper;
	const uint8_t *program = helper_fsmonitor(&len);
	hash_sha256(&helper, program, len);
	buf_u32(&b, BUILD_VERSION);
	buf_u32(&b, mirror_number(opt->mirror));
	buf_add(&b, helper.b, sizeof(helper.b));
	buf_add(&b, spec->commit.b, OID_BYTES);
	buf_u32(&b, spec->depth);
	buf_u32(&b, spec->uid);
	buf_u32(&b, spec->gid);
	buf_u64(&b, (uint64_t)spec->time_s);
	key_text(&b, spec->branch);
	key_text(&b, spec->upstream);
	buf_add(&b, spec->tracked ? spec->tracked->b : spec->commit.b, OID_BYTES);
	key_text(&b, spec->origin_url);
	for (size_t i = 0; i < spec->nscopes; i++)
		key_text(&b, spec->scopes[i]);
	/* Out of memory it is the key of a beginning, which no record has. */
	hash_sha256(out, b.data, b.len);
}

static int open_folder(const struct checkout_options *opt, bool make, struct err *err)
{
	char path[CO_DIR_MAX];
	int n = snprintf(path, sizeof(path), "%s%s", mirror_path(opt->mirror), suffix);
	if (n < 0 || n >= (int)sizeof(path))
		return err_set(err, -ENAMETOOLONG, "the mirror's path is too long");
	if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "make %s", path);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 && errno != ENOENT ? err_sys(err, -errno, "open %s", path)
	       : fd < 0                  ? -ENOENT
					 : fd;
}

/* -ENOENT, -EBADMSG: as if it weren't there. */
static int read_record(struct co_record *out, int dir, const char *name)
{
	auto_free void *data = NULL;
	size_t len;
	int r = io_slurp(NULL, dir, name, RECORD_MAX, &data, &len, NULL);
	return r < 0 ? r : co_record_decode(out, data, len);
}

static bool has_image(const struct checkout_options *opt, const struct digest *name)
{
	struct image *im;
	if (image_open(&im, opt->io, opt->images, name, NULL) < 0)
		return false;
	image_unref(im);
	return true;
}

int co_record_write(const struct checkout_options *opt, const struct checkout_spec *spec,
		    const struct co_record *r, struct err *err)
{
	struct digest key;
	char name[DIGEST_HEX + 1];
	auto_buf b = { 0 };
	checkout_key(&key, opt, spec);
	digest_hex(name, &key);
	co_record_encode(r, &b);
	if (buf_error(&b) < 0)
		return err_no_memory(err);
	auto_fd dir = open_folder(opt, true, err);
	return dir < 0 ? dir : io_publish(NULL, dir, name, b.data, b.len, false, err);
}

int checkout_find(struct checkout_result *out, const struct checkout_options *opt,
		  const struct checkout_spec *spec, struct err *err)
{
	struct co_record rec = { 0 };
	struct digest key;
	char name[DIGEST_HEX + 1];
	checkout_key(&key, opt, spec);
	digest_hex(name, &key);
	auto_fd dir = open_folder(opt, false, err);
	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	int r = read_record(&rec, dir, name);
	if (r == -ENOMEM)
		return err_no_memory(err);
	if (r < 0)
		return 0;
	bool good = memcmp(rec.commit.b, spec->commit.b, OID_BYTES) == 0 &&
		    has_image(opt, &rec.result.image) && utimensat(dir, name, NULL, 0) == 0;
	if (good)
		*out = rec.result;
	co_record_done(&rec);
	return good;
}

/* ---- earlier ones ---- */

struct listed {
	char name[DIGEST_HEX + 1];
	struct timespec used;
};

static int last_used_first(const void *a, const void *b)
{
	const struct listed *x = a, *y = b;
	if (x->used.tv_sec != y->used.tv_sec)
		return x->used.tv_sec < y->used.tv_sec ? 1 : -1;
	return (x->used.tv_nsec < y->used.tv_nsec) - (x->used.tv_nsec > y->used.tv_nsec);
}

static bool is_record_name(const char *s)
{
	struct digest d;
	return digest_parse(&d, s) == 0;
}

/* The names of a folder's records, the last used first. The caller frees. */
static int list_records(int dir, struct listed **out, size_t *n)
{
	size_t cap = 0;
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_dir *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		struct stat st;
		if (!is_record_name(e->d_name) ||
		    fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (array_grow(out, *n, &cap) < 0)
			return -ENOMEM;
		struct listed *l = &(*out)[(*n)++];
		memcpy(l->name, e->d_name, sizeof(l->name));
		l->used = st.st_mtim;
	}
	if (*n > 1)
		qsort(*out, *n, sizeof(**out), last_used_first);
	return 0;
}

void co_past_done(struct co_past *p)
{
	for (size_t i = 0; i < p->n; i++)
		co_record_done(&p->v[i]);
	free(p->v);
	memset(p, 0, sizeof(*p));
}

int co_past_load(struct co_past *out, const struct checkout_options *opt, struct err *err)
{
	auto_free struct listed *list = NULL;
	size_t n = 0;
	auto_fd dir = open_folder(opt, false, err);
	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	int r = list_records(dir, &list, &n);
	if (r < 0)
		return err_sys(err, r, "list earlier checkouts");
	out->v = calloc(PAST_MAX, sizeof(*out->v));
	if (!out->v)
		return err_no_memory(err);
	/* No gc that may run meanwhile finds those too old. */
	int64_t oldest = (int64_t)time(NULL) - CHECKOUT_KEEP_S / 2;
	for (size_t i = 0; i < n && out->n < PAST_MAX; i++) {
		struct co_record *rec = &out->v[out->n];
		if (list[i].used.tv_sec < oldest || read_record(rec, dir, list[i].name) < 0)
			continue;
		memcpy(rec->name, list[i].name, sizeof(rec->name));
		if (has_image(opt, &rec->result.image))
			out->n++;
		else
			co_record_done(rec);
	}
	return 0;
}

void co_past_used(const struct checkout_options *opt, const struct co_record *r)
{
	auto_fd dir = open_folder(opt, false, NULL);
	if (dir >= 0)
		(void)utimensat(dir, r->name, NULL, 0); /* else it is forgotten earlier */
}

static int by_oid(const void *key, const void *element)
{
	return memcmp(key, ((const struct co_large *)element)->oid.b, OID_BYTES);
}

const struct co_large *co_past_large(const struct co_past *p, const struct oid *oid)
{
	const struct co_large *found = NULL;
	for (size_t i = 0; p && i < p->n && !found; i++)
		if (p->v[i].nlarge)
			found = bsearch(oid, p->v[i].large, p->v[i].nlarge, sizeof(*p->v[i].large),
					by_oid);
	return found;
}

/* ---- for gc ---- */

static int each_record(int dir, bool all, int64_t keep_s,
		       int (*fn)(void *ctx, const struct digest *image), void *ctx)
{
	auto_free struct listed *list = NULL;
	size_t n = 0;
	int64_t oldest = (int64_t)time(NULL) - keep_s;
	int r = list_records(dir, &list, &n);
	for (size_t i = 0; i < n && r >= 0; i++) {
		struct co_record rec = { 0 };
		bool keep = !all && list[i].used.tv_sec >= oldest;
		r = keep ? read_record(&rec, dir, list[i].name) : -ESTALE;
		if (r >= 0) {
			r = fn(ctx, &rec.result.image);
			co_record_done(&rec);
			keep = r != -ESTALE;
		} else {
			keep = r == -ENOMEM;
		}
		if (!keep) {
			r = unlinkat(dir, list[i].name, 0) < 0 ? -errno : 0;
		}
	}
	return r;
}

int checkout_each(const char *repos, int64_t keep_s,
		  int (*fn)(void *ctx, const struct digest *image), void *ctx, struct err *err)
{
	enum { NAME = REPO_NAME_BYTES - 1 };
	auto_dir *d = opendir(repos);
	const struct dirent *e;
	int r = 0;
	if (!d)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "open %s", repos);
	while (r >= 0 && (e = readdir(d))) {
		char repo[REPO_NAME_BYTES];
		if (strlen(e->d_name) != NAME + sizeof(suffix) - 1 ||
		    strcmp(e->d_name + NAME, suffix) != 0)
			continue;
		memcpy(repo, e->d_name, NAME);
		repo[NAME] = '\0';
		bool gone = faccessat(dirfd(d), repo, F_OK, 0) < 0 && errno == ENOENT;
		auto_fd dir = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = dir < 0 ? -errno : each_record(dir, gone, keep_s, fn, ctx);
		if (r >= 0 && gone)
			(void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR); /* else the next time */
	}
	return r < 0 ? err_sys(err, r, "look through earlier checkouts") : 0;
}
