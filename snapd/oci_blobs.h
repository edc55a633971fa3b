/* The members of an image's archive, kept where they can be read in any order. For oci.c alone. */
#ifndef BOUGH_SNAPD_OCI_BLOBS_H
#define BOUGH_SNAPD_OCI_BLOBS_H

#include <openssl/evp.h>
#include <stdbool.h>
#include "snapd/archive_read.h"

enum {
	OCI_BLOBS_MAX = 65536,
	OCI_TEXT_MAX = 4 << 20, /* of an index, manifest or configuration */
};

struct oci_blob {
	char *name; /* without "./" before it */
	char *link; /* the name that it is another name of; NULL: it has content */
	uint64_t off, size;
};

struct oci_blobs {
	int fd; /* all contents, in a file without a name; -1: none yet */
	struct oci_blob *blobs;
	size_t n, cap;
	uint64_t size;
};
void oci_blobs_done(struct oci_blobs *bs);
#define auto_oci_blobs __attribute__((cleanup(oci_blobs_done))) struct oci_blobs

/* Keeps the member that `rd` is at. max_bytes: of all of them; 0: no limit. */
int oci_blobs_take(struct oci_blobs *bs, struct archive_reader *rd, struct archive_entry *e,
		   const char *scratch, uint64_t max_bytes, struct err *err);
/* By name, through links. NULL: none. Of several with one name the last. */
const struct oci_blob *oci_blobs_find(const struct oci_blobs *bs, const char *name);
/* All of a small one, terminated; the caller frees. -EBADMSG: over OCI_TEXT_MAX. */
int oci_blob_text(const struct oci_blobs *bs, const struct oci_blob *b, char **out,
		  struct err *err);

/* Reading one from its beginning, hashing what is read: .read is oci_blob_read. */
struct oci_blob_reader {
	const struct oci_blobs *bs;
	const struct oci_blob *blob;
	uint64_t at;
	EVP_MD_CTX *sha;
};
int oci_blob_begin(struct oci_blob_reader *r, const struct oci_blobs *bs,
		   const struct oci_blob *b, struct err *err);
ssize_t oci_blob_read(void *reader, void *buf, size_t n, struct err *err);
/* Reads on to the end. -EBADMSG: its SHA-256 isn't that ("sha256:" and 64 hex digits). */
int oci_blob_verify(struct oci_blob_reader *r, const char *digest, struct err *err);
void oci_blob_end(struct oci_blob_reader *r);

/* The hex digits of a digest, which are SHA-256's. NULL: it is no such digest. */
const char *oci_digest_hex(const char *digest);

#endif
