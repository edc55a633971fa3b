/* A mirror whose pack is hostile: entries, deltas, commits, trees and tags from the input, in a
 * pack whose checksums and index are right. All that a checkout does with it must end, with packs
 * or with an error.
 *
 * The input is a list of objects: a byte of kind (its low three bits as in packs, bit 3: the
 * content as it is, else compressed here), two bytes of length, for a delta one byte: how many
 * objects back its base is, the content. In trees, commits and tags the id of an object that comes
 * before is written as 20 (or 40) times the byte 0xf0 and its number, so that they can name each
 * other. */
#include <assert.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/io.h"
#include "gitops/pack_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OBJECTS_MAX = 64, CONTENT_MAX = 1 << 16, NUMBER = 0xf0 };

struct made {
	uint64_t at;
	uint32_t crc;
	uint8_t kind;
	struct oid oid;
};

static char folder[64];
static struct mirror *mirror;
static struct store *store;
static struct store_session *session;

static void must(int r)
{
	if (r < 0)
		abort();
}

static void start(void)
{
	struct err err;
	char path[128];
	if (mirror)
		return;
	(void)snprintf(folder, sizeof(folder), "/tmp/bough-fuzz.XXXXXX");
	must(mkdtemp(folder) ? 0 : -1);
	(void)snprintf(path, sizeof(path), "%s/repos", folder);
	must(mkdir(path, 0700));
	must(gitops_init(&err));
	(void)snprintf(path, sizeof(path), "%s/repos/00000001", folder);
	git_repository *repo;
	must(git_repository_init(&repo, path, 1));
	git_repository_free(repo);
	const struct store_options so = { .create = true };
	(void)snprintf(path, sizeof(path), "%s/store", folder);
	must(store_open(&store, path, &so, &err));
	must(store_session_begin(store, &session, &err));
	must(mirror_open(&mirror, folder, 1, &err));
}

__attribute__((destructor)) static void end(void)
{
	if (!mirror)
		return;
	mirror_close(mirror);
	store_session_end(session);
	store_close(store);
	(void)io_remove_tree(AT_FDCWD, folder, NULL);
}

static void be32(struct buf *b, uint32_t v)
{
	const uint8_t t[4] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8),
			       (uint8_t)v };
	buf_add(b, t, sizeof(t));
}

static void sha1(uint8_t out[SHA1_BYTES], const void *data, size_t len)
{
	must(EVP_Digest(data, len, out, NULL, EVP_sha1(), NULL) == 1 ? 0 : -1);
}

/* The content with ids in the place of numbers. */
static void put_ids(struct buf *out, const uint8_t *p, size_t n, const struct made *m, size_t nmade)
{
	for (size_t i = 0; i < n; i++) {
		char hex[OID_HEX + 1];
		if (p[i] != NUMBER || i + 2 >= n || nmade == 0) {
			buf_u8(out, p[i]);
			continue;
		}
		const struct oid *o = &m[p[i + 1] % nmade].oid;
		oid_hex(hex, o);
		if (p[i + 2] & 1)
			buf_add(out, hex, OID_HEX);
		else
			buf_add(out, o->b, OID_BYTES);
		i += 2;
	}
}

static void put_content(struct buf *pack, const uint8_t *p, size_t n, bool raw)
{
	if (raw) {
		buf_add(pack, p, n);
		return;
	}
	struct libdeflate_compressor *c = libdeflate_alloc_compressor(1);
	size_t room = libdeflate_zlib_compress_bound(c, n);
	uint8_t *to = buf_room(pack, room);
	must(to ? 0 : -1);
	pack->len += libdeflate_zlib_compress(c, p, n, to, room);
	libdeflate_free_compressor(c);
}

/* One object from the input; its name is made up of its number where it isn't whole. */
static void put_object(struct buf *pack, struct made *m, size_t i, struct cur *c)
{
	static const char *const types[] = { "", "commit", "tree", "blob", "tag" };
	struct buf content = { 0 }, named = { 0 };
	uint8_t how = cur_u8(c);
	size_t len = cur_u16(c), left = cur_left(c);
	uint8_t back = (how & 7) > 4 ? cur_u8(c) : 0;
	left = cur_left(c);
	len = len < left ? len : left;
	put_ids(&content, cur_take(c, len), len, m, i);
	m[i].at = pack->len;
	m[i].kind = how & 7;
	uint64_t size = content.len;
	uint8_t b = (uint8_t)(m[i].kind << 4 | (size & 15));
	for (size >>= 4; size; size >>= 7) {
		buf_u8(pack, b | 0x80);
		b = size & 0x7f;
	}
	buf_u8(pack, b);
	if (m[i].kind == GIT_OFS_DELTA)
		buf_u8(pack, back & 0x7f);
	else if (m[i].kind == GIT_REF_DELTA)
		buf_add(pack, m[i ? back % i : 0].oid.b, OID_BYTES);
	put_content(pack, content.data, content.len, how & 8);
	m[i].crc = libdeflate_crc32(0, pack->data + m[i].at, pack->len - m[i].at);
	if (m[i].kind >= 1 && m[i].kind <= 4) {
		buf_printf(&named, "%s %zu", types[m[i].kind], content.len);
		buf_u8(&named, 0);
		buf_add(&named, content.data, content.len);
	} else {
		buf_printf(&named, "%zu", i);
	}
	sha1(m[i].oid.b, named.data, named.len);
	buf_done(&content);
	buf_done(&named);
}

static int by_oid(const void *a, const void *b)
{
	return memcmp(((const struct made *)a)->oid.b, ((const struct made *)b)->oid.b, OID_BYTES);
}

static void put_index(struct buf *idx, struct made *m, size_t n, const uint8_t *pack_sha)
{
	uint8_t sum[SHA1_BYTES];
	qsort(m, n, sizeof(*m), by_oid);
	buf_add(idx, "\377tOc\0\0\0\2", 8);
	size_t i = 0;
	for (unsigned first = 0; first < 256; first++) {
		while (i < n && m[i].oid.b[0] <= first)
			i++;
		be32(idx, (uint32_t)i);
	}
	for (i = 0; i < n; i++)
		buf_add(idx, m[i].oid.b, OID_BYTES);
	for (i = 0; i < n; i++)
		be32(idx, m[i].crc);
	for (i = 0; i < n; i++)
		be32(idx, (uint32_t)m[i].at);
	buf_add(idx, pack_sha, SHA1_BYTES);
	sha1(sum, idx->data, idx->len);
	buf_add(idx, sum, sizeof(sum));
}

static void write_file(const char *ext, const struct buf *b)
{
	char path[160];
	(void)snprintf(path, sizeof(path), "%s/repos/00000001/objects/pack/pack-fuzz-%s", folder,
		       ext);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	must(fd);
	must(io_write_full(&io_host, fd, b->data, b->len, 0));
	(void)close(fd); /* of no interest afterwards */
}

/* All that a checkout asks of it. */
static void use(const struct oid *tip, unsigned how)
{
	static const char *const scopes[] = { "a", "b/c" };
	struct pack_set set;
	struct err err = { 0 };
	struct src s;
	const struct checkout_options opt = {
		.mirror = mirror, .session = session, .images = folder
	};
	const struct checkout_spec spec = { .commit = *tip,
					    .depth = how & 2 ? how % 5 : 0,
					    .scopes = scopes,
					    .nscopes = how & 1 ? 2 : 0 };
	int r = pack_write(&set, &opt, &spec, &err);
	assert(r == 0 || (r < 0 && err.text[0]));
	if (r == 0)
		pack_set_done(&set);
	r = src_open(&s, mirror, NULL, &err);
	if (r < 0)
		return;
	for (uint32_t i = 0; i < s.total; i++) {
		struct src_data *d = NULL;
		enum git_type type;
		if (src_read(&s, i, &d, &err) == 0)
			assert(src_type(&s, i, &type, &err) == 0 && type == d->type);
		src_put(d);
	}
	src_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct made m[OBJECTS_MAX] = { 0 };
	struct buf pack = { 0 }, idx = { 0 };
	uint8_t sum[SHA1_BYTES];
	if (size < 2 || size > CONTENT_MAX)
		return 0;
	start();
	struct cur c = cur_init(data + 1, size - 1);
	size_t n = 0, tip = 0;
	buf_add(&pack, "PACK\0\0\0\2\0\0\0\0", GIT_PACK_HEAD);
	while (cur_left(&c) > 4 && n < OBJECTS_MAX) {
		put_object(&pack, m, n, &c);
		tip = m[n].kind == GIT_COMMIT ? n : tip;
		n++;
	}
	const struct oid commit = m[tip].oid;
	pack.data[GIT_PACK_HEAD - 1] = (uint8_t)n;
	sha1(sum, pack.data, pack.len);
	buf_add(&pack, sum, sizeof(sum));
	put_index(&idx, m, n, sum);
	must(buf_error(&pack) < 0 || buf_error(&idx) < 0 ? -1 : 0);
	write_file("0.pack", &pack);
	write_file("0.idx", &idx);
	use(&commit, data[0]);
	buf_done(&pack);
	buf_done(&idx);
	return 0;
}
