#include "fs/work/forget.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/array.h"
#include "fs/base/hash.h"
#include "fs/work/workspace.h"

static const char MAGIC[8] = "BOUGHFG1";
enum { TRAILER_BYTES = 8 /* XXH3 of all before it */ };

struct forget_name {
	uint64_t dir_node, child_node;
	uint32_t text; /* place in forget_list.text */
	uint8_t len;
	bool removed;
};

int forget_list_name(struct forget_list *f, uint64_t dir_node, const char *name, size_t len,
		     bool removed, uint64_t child_node)
{
	if (f->text.len > UINT32_MAX - NAME_MAX_BYTES)
		return -E2BIG;
	struct forget_name n = { dir_node, child_node, (uint32_t)f->text.len, (uint8_t)len,
				 removed };
	buf_add(&f->text, name, len);
	buf_add(&f->names, &n, sizeof(n));
	return f->text.failed || f->names.failed ? -ENOMEM : 0;
}

int forget_list_node(struct forget_list *f, uint64_t node)
{
	buf_add(&f->nodes, &node, sizeof(node));
	return buf_error(&f->nodes);
}

struct telling {
	const struct forget_list *f;
	const struct ws_changes *changes;
};

static void tell(void *arg)
{
	const struct telling *t = arg;
	const struct ws_changes *changes = t->changes;
	const struct forget_list *f = t->f;
	const struct forget_name *n = (const void *)f->names.data;
	for (size_t i = 0; i < f->names.len / sizeof(*n); i++)
		changes->name(changes->ctx, n[i].dir_node, (const char *)f->text.data + n[i].text,
			      n[i].len, n[i].removed, n[i].child_node);
	const uint64_t *node = (const uint64_t *)f->nodes.data;
	for (size_t i = 0; i < f->nodes.len / sizeof(*node); i++)
		if (i == 0 || node[i] != node[i - 1])
			changes->node(changes->ctx, node[i]);
}

void forget_list_tell(struct forget_list *f, const struct ws_changes *changes)
{
	struct telling t = { f, changes };
	if (f->nodes.len > 0)
		qsort(f->nodes.data, f->nodes.len / sizeof(uint64_t), sizeof(uint64_t),
		      array_by_u64);
	if (changes->apart && f->nodes.len + f->names.len > 0)
		changes->apart(changes->ctx, tell, &t);
	else
		tell(&t);
}

void forget_list_done(struct forget_list *f)
{
	buf_done(&f->nodes);
	buf_done(&f->names);
	buf_done(&f->text);
}

/* ---- bytes ---- */

void forget_list_encode(const struct forget_list *f, uint64_t seq, struct buf *out)
{
	size_t start = out->len;
	const struct forget_name *n = (const void *)f->names.data;
	const uint64_t *node = (const void *)f->nodes.data;
	size_t nnames = f->names.len / sizeof(*n), nnodes = f->nodes.len / sizeof(*node);
	buf_add(out, MAGIC, sizeof(MAGIC));
	buf_u64(out, seq);
	buf_u64(out, nnames);
	buf_u64(out, nnodes);
	for (size_t i = 0; i < nnodes; i++)
		buf_u64(out, node[i]);
	for (size_t i = 0; i < nnames; i++) {
		buf_u64(out, n[i].dir_node);
		buf_u64(out, n[i].child_node);
		buf_u8(out, n[i].removed);
		buf_u8(out, n[i].len);
		buf_add(out, f->text.data + n[i].text, n[i].len);
	}
	if (!out->failed)
		buf_u64(out, hash_xxh3(out->data + start, out->len - start, 0));
}

static int decode_name(struct forget_list *f, struct cur *c)
{
	uint64_t dir_node = cur_u64(c), child_node = cur_u64(c);
	uint8_t removed = cur_u8(c), len = cur_u8(c);
	const uint8_t *name = cur_take(c, len);
	if (!name || len == 0 || removed > 1)
		return -EBADMSG;
	return forget_list_name(f, dir_node, (const char *)name, len, removed, child_node);
}

int forget_list_decode(struct forget_list *out, uint64_t *seq, const void *data, size_t len)
{
	if (len < sizeof(MAGIC) + TRAILER_BYTES || memcmp(data, MAGIC, sizeof(MAGIC)) != 0)
		return -EBADMSG;
	len -= TRAILER_BYTES;
	if (le_get64((const uint8_t *)data + len) != hash_xxh3(data, len, 0))
		return -EBADMSG;
	struct cur c = cur_init(data, len);
	(void)cur_take(&c, sizeof(MAGIC));
	uint64_t number = cur_u64(&c), nnames = cur_u64(&c), nnodes = cur_u64(&c);
	struct forget_list f = { 0 };
	int r = 0;
	/* Each takes bytes, so what the input can hold bounds both loops. */
	for (uint64_t i = 0; i < nnodes && r == 0; i++) {
		uint64_t node = cur_u64(&c);
		r = c.bad ? -EBADMSG : forget_list_node(&f, node);
	}
	for (uint64_t i = 0; i < nnames && r == 0; i++)
		r = decode_name(&f, &c);
	if (r == 0 && (c.bad || cur_left(&c) > 0))
		r = -EBADMSG;
	if (r < 0) {
		forget_list_done(&f);
		return r;
	}
	*out = f;
	*seq = number;
	return 0;
}
