#include "snapd/oci_blobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "snapd/archive_tree.h"

enum {
	LINKS_MAX = 40,
	READ_BYTES = 64 << 10,
};

void oci_blobs_done(struct oci_blobs *bs)
{
	for (size_t i = 0; i < bs->n; i++) {
		free(bs->blobs[i].name);
		free(bs->blobs[i].link);
	}
	free(bs->blobs);
	cleanup_close(&bs->fd);
	*bs = (struct oci_blobs){ .fd = -1 };
}

/* ---- keeping ---- */

/* The path that `rel` means when it stands in the folder of `from` (NULL: at the top), without
 * "." and "..": it stays inside. NULL: no memory. */
static char *place(const char *from, const char *rel)
{
	auto_buf out = { 0 };
	const char *slash = from ? strrchr(from, '/') : NULL;
	if (slash)
		buf_add(&out, from, (size_t)(slash - from));
	const char *name;
	size_t len;
	while (archive_component(&rel, &name, &len)) {
		if (len == 2 && memcmp(name, "..", 2) == 0) {
			while (out.len > 0 && out.data[--out.len] != '/')
				;
			continue;
		}
		if (out.len > 0)
			buf_add(&out, "/", 1);
		buf_add(&out, name, len);
	}
	buf_add(&out, "", 1);
	return buf_error(&out) < 0 ? NULL : strdup((const char *)out.data);
}

static int keep_content(struct oci_blobs *bs, struct oci_blob *b, struct archive_reader *rd,
			const char *scratch, uint64_t max_bytes, struct err *err)
{
	if (bs->fd < 0)
		bs->fd = open(scratch, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (bs->fd < 0)
		return err_sys(err, -errno, "make a temporary file in %s", scratch);
	b->off = bs->size;
	for (;;) {
		const void *data;
		size_t n;
		la_int64_t off;
		int got = archive_read_data_block(rd->a, &data, &n, &off);
		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK)
			return archive_reader_error(rd, SHOW(b->name));
		if (n == 0)
			continue;
		/* A sparse member would be told by an offset that jumps. */
		if (off < 0 || (uint64_t)off != b->size)
			return err_set(err, -EBADMSG, "'%s': it has holes", SHOW(b->name));
		if (max_bytes && bs->size + n > max_bytes)
			return err_set(err, -EFBIG, "the image is larger than %llu bytes",
				       (unsigned long long)max_bytes);
		int r = io_write_full(NULL, bs->fd, data, n, bs->size);
		if (r < 0)
			return err_sys(err, r, "write a temporary file");
		b->size += n;
		bs->size += n;
	}
	return 0;
}

int oci_blobs_take(struct oci_blobs *bs, struct archive_reader *rd, struct archive_entry *e,
		   const char *scratch, uint64_t max_bytes, struct err *err)
{
	const char *path = archive_entry_pathname(e), *hard = archive_entry_hardlink(e);
	bool soft = !hard && archive_entry_filetype(e) == AE_IFLNK;
	if (!hard && !soft && archive_entry_filetype(e) != AE_IFREG)
		return 0; /* folders; nothing else is part of an image */
	if (bs->n >= OCI_BLOBS_MAX)
		return err_set(err, -EFBIG, "the image has more than %d files", OCI_BLOBS_MAX);
	if (array_grow(&bs->blobs, bs->n, &bs->cap) < 0)
		return err_no_memory(err);
	struct oci_blob *b = &bs->blobs[bs->n];
	*b = (struct oci_blob){ .name = place(NULL, path) };
	if (!b->name)
		return err_no_memory(err);
	bs->n++;
	if (!hard && !soft)
		return keep_content(bs, b, rd, scratch, max_bytes, err);
	const char *target = hard ? hard : archive_entry_symlink(e);
	if (!target)
		return archive_reader_refuse(rd, path, "a link without a target");
	b->link = place(hard ? NULL : b->name, target);
	return b->link ? 0 : err_no_memory(err);
}

const struct oci_blob *oci_blobs_find(const struct oci_blobs *bs, const char *name)
{
	auto_free char *wanted = place(NULL, name);
	const char *at = wanted;
	for (int links = 0; at && links < LINKS_MAX; links++) {
		const struct oci_blob *found = NULL;
		for (size_t i = bs->n; i > 0 && !found; i--)
			if (strcmp(bs->blobs[i - 1].name, at) == 0)
				found = &bs->blobs[i - 1];
		if (!found || !found->link)
			return found;
		at = found->link;
	}
	return NULL;
}

/* ---- reading ---- */

int oci_blob_text(const struct oci_blobs *bs, const struct oci_blob *b, char **out,
		  struct err *err)
{
	if (b->size > OCI_TEXT_MAX)
		return err_set(err, -EBADMSG, "'%s': it is over %d MiB", SHOW(b->name),
			       OCI_TEXT_MAX >> 20);
	auto_free char *text = malloc(b->size + 1);
	if (!text)
		return err_no_memory(err);
	ssize_t n = io_read_full(NULL, bs->fd, text, b->size, b->off);
	if (n < 0 || (uint64_t)n < b->size)
		return err_sys(err, n < 0 ? (int)n : -EIO, "read a temporary file");
	text[b->size] = '\0';
	*out = text;
	text = NULL;
	return 0;
}

const char *oci_digest_hex(const char *digest)
{
	static const char kind[] = "sha256:";
	struct digest d;
	if (!digest || strncmp(digest, kind, strlen(kind)) != 0)
		return NULL;
	digest += strlen(kind);
	return strlen(digest) == DIGEST_HEX && digest_parse(&d, digest) >= 0 ? digest : NULL;
}

int oci_blob_begin(struct oci_blob_reader *r, const struct oci_blobs *bs, const struct oci_blob *b,
		   struct err *err)
{
	*r = (struct oci_blob_reader){ .bs = bs, .blob = b, .sha = EVP_MD_CTX_new() };
	if (!r->sha || EVP_DigestInit_ex(r->sha, EVP_sha256(), NULL) != 1) {
		oci_blob_end(r);
		return err_no_memory(err);
	}
	return 0;
}

ssize_t oci_blob_read(void *reader, void *buf, size_t n, struct err *err)
{
	struct oci_blob_reader *r = reader;
	uint64_t left = r->blob->size - r->at;
	if (n > left)
		n = (size_t)left;
	ssize_t got = n ? io_read_full(NULL, r->bs->fd, buf, n, r->blob->off + r->at) : 0;
	if (got < 0)
		return err_sys(err, (int)got, "read a temporary file");
	if ((size_t)got < n)
		return err_set(err, -EIO, "a temporary file was cut");
	if (EVP_DigestUpdate(r->sha, buf, n) != 1)
		return err_no_memory(err);
	r->at += n;
	return got;
}

int oci_blob_verify(struct oci_blob_reader *r, const char *digest, struct err *err)
{
	auto_free uint8_t *buf = malloc(READ_BYTES);
	struct digest is;
	char hex[DIGEST_HEX + 1];
	ssize_t n;
	if (!buf)
		return err_no_memory(err);
	while ((n = oci_blob_read(r, buf, READ_BYTES, err)) > 0)
		;
	if (n < 0)
		return (int)n;
	if (EVP_DigestFinal_ex(r->sha, is.b, NULL) != 1)
		return err_no_memory(err);
	digest_hex(hex, &is);
	const char *want = oci_digest_hex(digest);
	if (!want || strcmp(want, hex) != 0)
		return err_set(err, -EBADMSG, "'%s' is damaged: its content is not %s",
			       SHOW(r->blob->name), archive_show(digest).s);
	return 0;
}

void oci_blob_end(struct oci_blob_reader *r)
{
	EVP_MD_CTX_free(r->sha);
	r->sha = NULL;
}
