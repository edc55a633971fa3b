#include "fs/work/saved.h"

#include <fcntl.h>
#include <stdio.h>

#include "fs/base/cleanup.h"

enum {
	SAVED_MAGIC = 0x56535642, /* "BVSV" */
	SAVED_VERSION = 1,
	SAVED_HEAD = 4 + 4 + BOOT_ID_BYTES + LAYER_ID_BYTES + 4,
	SAVED_MAX = SAVED_HEAD + DELTA_PARTS_MAX * 32 + 8,
};

static int layer_folder(const char *root, const struct layer_id *layer, struct err *err)
{
	char id[2 * LAYER_ID_BYTES + 1], path[4096];
	hex_encode(id, layer->b, sizeof(layer->b));
	if ((size_t)snprintf(path, sizeof(path), "%s/layers/%s", root, id) >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "%s", root);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "open %s", path) : fd;
}

void saved_encode(const struct stack_layer *saved, const uint8_t boot[BOOT_ID_BYTES],
		  struct buf *out)
{
	size_t from = out->len;
	buf_u32(out, SAVED_MAGIC);
	buf_u32(out, SAVED_VERSION);
	buf_add(out, boot, BOOT_ID_BYTES);
	buf_add(out, saved->id.b, sizeof(saved->id.b));
	buf_u32(out, saved->nparts);
	for (uint32_t i = 0; i < saved->nparts; i++)
		buf_add(out, saved->parts[i].b, sizeof(saved->parts[i].b));
	if (buf_error(out) == 0)
		buf_u64(out, hash_xxh3(out->data + from, out->len - from, 0));
}

_Static_assert((int)STORE_LOSSES_BYTES == (int)BOOT_ID_BYTES, "one is put over the other");

/* What it is good for: this boot, as long as nothing is lost. */
static void mark_of(uint8_t out[BOOT_ID_BYTES], const uint8_t losses[STORE_LOSSES_BYTES])
{
	const uint8_t *boot = boot_id(NULL);
	for (int i = 0; i < BOOT_ID_BYTES; i++)
		out[i] = boot[i] ^ losses[i];
}

int saved_write(const struct io *io, const char *root, const struct layer_id *layer,
		const uint8_t losses[STORE_LOSSES_BYTES], const struct stack_layer *saved,
		struct err *err)
{
	auto_buf b = { 0 };
	uint8_t mark[BOOT_ID_BYTES];
	mark_of(mark, losses);
	saved_encode(saved, mark, &b);
	if (buf_error(&b))
		return err_set(err, -ENOMEM, "no memory for a layer's list");
	auto_fd dir = layer_folder(root, layer, err);
	if (dir < 0)
		return dir;
	return io_publish(io, dir, "saved", b.data, b.len, false, err);
}

int saved_decode(struct stack_layer *saved, uint8_t boot[BOOT_ID_BYTES], const void *data,
		 size_t len)
{
	if (len < SAVED_HEAD + 8 ||
	    le_get64((const uint8_t *)data + len - 8) != hash_xxh3(data, len - 8, 0))
		return -EBADMSG;
	struct cur c = cur_init(data, len - 8);
	struct stack_layer out = { .local = false };
	uint32_t magic = cur_u32(&c), version = cur_u32(&c);
	const uint8_t *by = cur_take(&c, BOOT_ID_BYTES);
	memcpy(out.id.b, cur_take(&c, LAYER_ID_BYTES), LAYER_ID_BYTES);
	out.nparts = cur_u32(&c);
	if (magic != SAVED_MAGIC || version != SAVED_VERSION || out.nparts > DELTA_PARTS_MAX ||
	    cur_left(&c) != (size_t)out.nparts * sizeof(*out.parts))
		return -EBADMSG;
	out.parts = calloc(out.nparts ? out.nparts : 1, sizeof(*out.parts));
	if (!out.parts)
		return -ENOMEM;
	if (out.nparts)
		memcpy(out.parts, c.p, (size_t)out.nparts * sizeof(*out.parts));
	memcpy(boot, by, BOOT_ID_BYTES);
	*saved = out;
	return 0;
}

int saved_read(const struct io *io, const char *root, const struct layer_id *layer,
	       const uint8_t losses[STORE_LOSSES_BYTES], struct stack_layer *saved, struct err *err)
{
	uint8_t boot[BOOT_ID_BYTES], now[BOOT_ID_BYTES];
	auto_free void *data = NULL;
	size_t len = 0;
	auto_fd dir = layer_folder(root, layer, err);
	if (dir < 0)
		return dir;
	int r = io_slurp(io, dir, "saved", SAVED_MAX, &data, &len, err);
	if (r < 0)
		return r;
	struct stack_layer out;
	r = saved_decode(&out, boot, data, len);
	if (r == -EBADMSG)
		return err_set(err, -ENOENT, "torn list of a saved layer");
	if (r < 0)
		return err_sys(err, r, "read the list of a saved layer");
	mark_of(now, losses);
	if (memcmp(boot, now, sizeof(boot)) != 0) {
		free(out.parts);
		return err_set(err, -ENOENT, "the layer was saved before this boot, or is lost");
	}
	*saved = out;
	return 0;
}
