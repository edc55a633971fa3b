/* Contents of the store that are blobs of git repositories. */
#include <errno.h>
#include "fs/store/gitimpl.h"
#include "fs/store/internal.h"

struct blob_sink {
	const struct digest *d;
	struct cache_blob *b;
};

/* Another copy of the object goes to another blob. */
static uint8_t *blob_room(void *ctx, size_t len)
{
	struct blob_sink *s = ctx;
	uint8_t *data = NULL;
	if (s->b)
		blob_put(cache_blob(s->b));
	s->b = cache_blob_new(s->d, len, &data);
	return data;
}

static int not_a_blob(uint32_t repo, const struct oid *oid, struct err *err)
{
	char hex[OID_HEX + 1];
	oid_hex(hex, oid);
	return err_set(err, -EBADMSG, "object %s of repository %08x isn't a blob", hex, repo);
}

int store_git_load(struct store *s, const struct digest *d, struct cache_blob **out,
		   struct err *err)
{
	uint32_t repo;
	struct oid oid;
	struct git_head h;
	uint8_t *data;
	(void)digest_is_git(d, &repo, &oid); /* the caller has asked */
	if (!s->git)
		return err_set(err, -ENOENT, "no repository %08x", repo);
	struct blob_sink to = { .d = d };
	struct git_sink sink = { .room = blob_room, .ctx = &to, .max = STORE_OBJECT_MAX };
	int r = gitrepos_load(s->git, repo, &oid, &sink, &h, &data, err);
	if (r == 0 && h.type != GIT_BLOB)
		r = not_a_blob(repo, &oid, err);
	if (r < 0) {
		if (to.b)
			blob_put(cache_blob(to.b));
		return r == -EFBIG ? -EBADMSG : r; /* nothing of that size is addressed so */
	}
	*out = to.b;
	return 0;
}

int store_git_has(struct store *s, const struct digest *d, uint32_t *size)
{
	uint32_t repo;
	struct oid oid;
	enum git_type type;
	uint64_t bytes;
	(void)digest_is_git(d, &repo, &oid); /* as above */
	if (!s->git)
		return 0;
	int r = gitrepos_stat(s->git, repo, &oid, &type, &bytes, NULL);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	if (type != GIT_BLOB || bytes > STORE_OBJECT_MAX)
		return -EBADMSG;
	if (size)
		*size = (uint32_t)bytes;
	return 1;
}
