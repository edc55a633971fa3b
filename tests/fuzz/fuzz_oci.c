/* Images of containers whose indexes, manifests and configurations are hostile, in an archive that
 * is right: the input is members, each its name, a line feed and its content, with 0x1e between
 * them. In names and contents "@3" is the SHA-256 of the fourth member, so that what refers to
 * another does so rightly whatever it says else; a content that begins with "tar" and a line feed
 * becomes an archive of files with the names on its other lines. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/image/image.h"
#include "snapd/oci.h"
#include "tests/fuzz/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	INPUT_MAX = 64 * 1024,
	MEMBERS_MAX = 10,
	BYTES_MAX = 4 << 20,
	INODES_MAX = 500,
	TAR_BLOCK = 512,
};

/* ---- the archive ---- */

static void add_member(struct buf *tar, const char *name, const void *data, size_t n)
{
	char h[TAR_BLOCK] = { 0 };
	static const char zeros[TAR_BLOCK];
	unsigned sum = 0;
	(void)snprintf(h, 100, "%s", name);
	(void)snprintf(h + 100, 24, "0000644");
	memcpy(h + 108, "0000000", 7);
	memcpy(h + 116, "0000000", 7);
	(void)snprintf(h + 124, 12, "%011zo", n);
	memcpy(h + 136, "00000000000", 11);
	h[156] = '0';
	memcpy(h + 257, "ustar\00000", 8);
	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += (unsigned char)h[i];
	(void)snprintf(h + 148, 8, "%06o", sum);
	buf_add(tar, h, sizeof(h));
	buf_add(tar, data, n);
	buf_add(tar, zeros, (TAR_BLOCK - n % TAR_BLOCK) % TAR_BLOCK);
}

struct member {
	struct buf name, content;
	char hex[DIGEST_HEX + 1];
};

/* The bytes, with "@N" as the digest of a member that is known already. */
static void expand(struct buf *out, const uint8_t *p, size_t n, const struct member *m, size_t from,
		   size_t count)
{
	for (size_t i = 0; i < n; i++) {
		size_t k = i + 1 < n && p[i] == '@' ? (size_t)(p[i + 1] - '0') : SIZE_MAX;
		if (k < count && k >= from) {
			buf_add(out, m[k].hex, DIGEST_HEX);
			i++;
		} else {
			buf_u8(out, p[i]);
		}
	}
}

static void make_layer(struct buf *out, const uint8_t *p, const uint8_t *end)
{
	char name[100];
	while (p < end) {
		const uint8_t *line = memchr(p, '\n', (size_t)(end - p));
		line = line ? line : end;
		int n = (int)(line - p < 99 ? line - p : 99);
		(void)snprintf(name, sizeof(name), "%.*s", n, (const char *)p);
		if (n > 0)
			add_member(out, name, "content", 7);
		p = line + 1;
	}
}

static size_t split(const uint8_t *data, size_t size, const uint8_t *part[MEMBERS_MAX + 1])
{
	size_t n = 0;
	part[n++] = data;
	for (size_t i = 0; i < size && n < MEMBERS_MAX; i++)
		if (data[i] == 0x1e)
			part[n++] = data + i + 1;
	part[n] = data + size + 1;
	return n;
}

/* The last member first, since those before it may name it. */
static void make_archive(struct buf *tar, const uint8_t *data, size_t size)
{
	const uint8_t *part[MEMBERS_MAX + 1];
	struct member m[MEMBERS_MAX] = { 0 };
	struct digest d;
	size_t n = split(data, size, part);
	for (size_t i = n; i-- > 0;) {
		const uint8_t *end = part[i + 1] - 1;
		const uint8_t *line = memchr(part[i], '\n', (size_t)(end - part[i]));
		const uint8_t *content = line ? line + 1 : end;
		if (end - content >= 4 && memcmp(content, "tar\n", 4) == 0)
			make_layer(&m[i].content, content + 4, end);
		else
			expand(&m[i].content, content, (size_t)(end - content), m, i + 1, n);
		hash_sha256(&d, m[i].content.data ? m[i].content.data : (const void *)"",
			    m[i].content.len);
		digest_hex(m[i].hex, &d);
		expand(&m[i].name, part[i], (size_t)((line ? line : end) - part[i]), m, i, n);
		buf_u8(&m[i].name, 0);
	}
	for (size_t i = 0; i < n; i++) {
		add_member(tar, (const char *)m[i].name.data, m[i].content.data, m[i].content.len);
		buf_done(&m[i].name);
		buf_done(&m[i].content);
	}
}

struct bytes {
	const uint8_t *p;
	size_t n;
};

static ssize_t read_bytes(void *ctx, void *buf, size_t n, struct err *err)
{
	struct bytes *b = ctx;
	n = n < b->n ? n : b->n;
	memcpy(buf, b->p, n);
	b->p += n;
	b->n -= n;
	return (ssize_t)n;
}

/* What was taken is whole, and its configuration an object within its bound. */
static void check(const struct digest *image, const char *config)
{
	char path[400], hex[DIGEST_HEX + 1];
	struct image *im;
	json_t *j = json_loads(config, JSON_REJECT_DUPLICATES, NULL);
	if (!json_is_object(j) || strlen(config) > OCI_CONFIG_MAX)
		abort();
	json_decref(j);
	if (image_open(&im, NULL, here.images, image, NULL) < 0 || image_check(im, NULL) < 0)
		abort();
	image_unref(im);
	digest_hex(hex, image);
	(void)snprintf(path, sizeof(path), "%s/%s.img", here.images, hex);
	(void)unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_buf tar = { 0 };
	struct digest image;
	struct err err = { 0 };
	char *config = NULL;
	if (!here.store)
		set_up("fuzz_oci");
	if (size > INPUT_MAX)
		return 0;
	make_archive(&tar, data, size);
	struct bytes b = { tar.data, tar.len };
	const struct archive_source src = { .read = read_bytes, .ctx = &b };
	const struct archive_import_options opt = {
		.session = here.session,
		.io = &here.io,
		.images = here.images,
		.scratch = here.dir,
		.reserve = reserve,
		.max_bytes = BYTES_MAX,
		.max_inodes = INODES_MAX,
	};
	here.ino = 2;
	int r = oci_import(&image, &config, &opt, &src, NULL, &err);
	if (r < 0 && (!err.text[0] || strchr(err.text, '\n')))
		abort();
	if (r == 0)
		check(&image, config);
	free(config);
	return 0;
}
