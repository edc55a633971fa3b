/* Contents of both sides of a change, as git keeps them. */
#include "gitops/changes_impl.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/base/cleanup.h"
#include "gitops/togit.h"
#include "gitops/packout.h"
#include "gitops/viewfile.h"

enum { READ_SIZE = 256 * 1024 };

int change_old_content(struct buf *out, uint64_t *size, const struct changes_options *opt,
		       const struct change *c, uint64_t max, struct err *err)
{
	git_odb *odb = mirror_odb(opt->mirror);
	git_oid id = oid_to_git(&c->old_oid);
	auto_git(git_odb_object) o = NULL;
	git_object_t type;
	size_t n = 0;
	*size = 0;
	if (c->old_mode == 0 || c->old_mode == MODE_GITLINK)
		return 1;
	const char *path = c->old_path ? c->old_path : c->path;
	int r = git_odb_read_header(&n, &type, odb, &id);
	*size = n;
	if (r >= 0 && n > max)
		return 0;
	if (r >= 0)
		r = git_odb_read(&o, odb, &id);
	if (r < 0)
		return git_fail(err, r, "%s", path);
	buf_add(out, git_odb_object_data(o), git_odb_object_size(o));
	return buf_error(out) < 0 ? err_no_memory(err) : 1;
}

/* Does git have the path with CR LF? Then an automatic conversion leaves it so. 1, 0, -errno. */
static int crlf_in_git(const struct changes_options *opt, const struct change *c, struct err *err)
{
	auto_buf old = { 0 };
	uint64_t size;
	if (c->attrs->eol != EOL_AUTO || c->old_mode == MODE_LINK)
		return 0;
	int r = change_old_content(&old, &size, opt, c, TOGIT_MAX, err);
	return r > 0 ? togit_has_crlf(old.data, old.len) : r;
}

int change_convert(struct buf *out, const struct changes_options *opt, const struct change *c,
		   uint64_t max, struct err *err)
{
	auto_buf raw = { 0 };
	struct attr a = { .ino = c->ino,
			  .size = c->size,
			  .mode = c->mode == MODE_LINK ? S_IFLNK : S_IFREG };
	if (c->size > max)
		return 0;
	if (!c->attrs || c->size > TOGIT_MAX) {
		int r = viewfile_read(out, opt->now, &a, max, err);
		return r < 0 ? r : 1;
	}
	int crlf = crlf_in_git(opt, c, err);
	if (crlf < 0)
		return crlf;
	int r = viewfile_read(&raw, opt->now, &a, max, err);
	if (r >= 0)
		r = togit(out, c->attrs, raw.data, raw.len, crlf, err);
	if (r == 0) {
		*out = raw;
		raw = (struct buf){ 0 };
	}
	return r < 0 ? r : 1;
}

int change_content(struct buf *out, uint64_t *size, const struct changes_options *opt,
		   const struct change *c, uint64_t max, struct err *err)
{
	*size = c->size;
	if (c->ino == 0 || c->mode == MODE_GITLINK)
		return 1;
	int r = change_convert(out, opt, c, max, err);
	if (r > 0)
		*size = out->len;
	return r < 0 ? err_prefix(err, r, "%s", c->path) : r;
}

/* A file's bytes as they are, without holding them. */
static int hash_stream(struct change *c, const struct view *v, struct err *err)
{
	char head[40];
	int n = snprintf(head, sizeof(head), "blob %llu", (unsigned long long)c->size), r = 0;
	auto_free uint8_t *buf = malloc(READ_SIZE);
	EVP_MD_CTX *sha = EVP_MD_CTX_new();
	if (!buf || !sha || EVP_DigestInit_ex(sha, EVP_sha1(), NULL) != 1)
		r = err_no_memory(err);
	else
		EVP_DigestUpdate(sha, head, (size_t)n + 1);
	for (uint64_t off = 0; off < c->size && r >= 0;) {
		ssize_t got = view_read(v, c->ino, buf, READ_SIZE, off, err);
		if (got <= 0)
			r = got < 0 ? (int)got : err_set(err, -EIO, "it ends too early");
		else
			EVP_DigestUpdate(sha, buf, (size_t)got);
		off += got > 0 ? (uint64_t)got : 0;
	}
	if (r >= 0)
		EVP_DigestFinal_ex(sha, c->oid.b, NULL);
	EVP_MD_CTX_free(sha);
	return r < 0 ? r : 0;
}

int change_hash(struct change *c, const struct changes_options *opt, struct err *err)
{
	if (c->mode != MODE_LINK && (!c->attrs || c->size > TOGIT_MAX))
		return hash_stream(c, opt->now, err);
	auto_buf text = { 0 };
	int r = change_convert(&text, opt, c, TOGIT_MAX, err);
	if (r < 0)
		return r;
	git_object_id_of(&c->oid, GIT_BLOB, text.data, text.len);
	return 0;
}
