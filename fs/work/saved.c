#include "fs/work/saved.h"

#include <fcntl.h>
#include <stdio.h>

#include "fs/base/cleanup.h"

enum {
	SAVED_MAGIC = 0x56535642, /* "BVSV" */
	SAVED_VERSION = 1,
	SAVED_HEAD = 4 + 4 + 16 + LAYER_ID_BYTES + 4,
	SAVED_MAX = SAVED_HEAD + DELTA_PARTS_MAX * 32 + 8,
};

/* The kernel's boot id. */
static int boot_id(uint8_t out[16], struct err *err)
{
	char text[37] = "", hex[33];
	auto_fd fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "open the kernel's boot_id");
	ssize_t n = read(fd, text, sizeof(text) - 1);
	size_t k = 0;
	for (ssize_t i = 0; i < n && k < 32; i++)
		if (text[i] != '-')
			hex[k++] = text[i];
	hex[k] = '\0';
	if (hex_decode(out, 16, hex) < 0)
		return err_set(err, -EIO, "the kernel's boot_id isn't one: %s", text);
	return 0;
}

static int layer_folder(const char *root, const struct layer_id *layer, struct err *err)
{
	char id[2 * LAYER_ID_BYTES + 1], path[4096];
	hex_encode(id, layer->b, sizeof(layer->b));
	if ((size_t)snprintf(path, sizeof(path), "%s/layers/%s", root, id) >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "%s", root);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "open %s", path) : fd;
}

int saved_write(const struct io *io, const char *root, const struct layer_id *layer,
		const struct stack_layer *saved, struct err *err)
{
	auto_buf b = { 0 };
	uint8_t boot[16];
	int r = boot_id(boot, err);
	if (r < 0)
		return r;
	buf_u32(&b, SAVED_MAGIC);
	buf_u32(&b, SAVED_VERSION);
	buf_add(&b, boot, sizeof(boot));
	buf_add(&b, saved->id.b, sizeof(saved->id.b));
	buf_u32(&b, saved->nparts);
	for (uint32_t i = 0; i < saved->nparts; i++)
		buf_add(&b, saved->parts[i].b, sizeof(saved->parts[i].b));
	buf_u64(&b, hash_xxh3(b.data, b.len, 0));
	if (buf_error(&b))
		return err_set(err, -ENOMEM, "no memory for a layer's list");
	auto_fd dir = layer_folder(root, layer, err);
	if (dir < 0)
		return dir;
	return io_publish(io, dir, "saved", b.data, b.len, false, err);
}

int saved_decode(struct stack_layer *saved, uint8_t boot[16], const void *data, size_t len)
{
	if (len < SAVED_HEAD + 8 || le_get64((const uint8_t *)data + len - 8) !=
					    hash_xxh3(data, len - 8, 0))
		return -EBADMSG;
	struct cur c = cur_init(data, len - 8);
	struct stack_layer out = { .local = false };
	uint32_t magic = cur_u32(&c), version = cur_u32(&c);
	memcpy(boot, cur_take(&c, 16), 16);
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
	*saved = out;
	return 0;
}

int saved_read(const struct io *io, const char *root, const struct layer_id *layer,
	       struct stack_layer *saved, struct err *err)
{
	uint8_t boot[16], now[16];
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
	r = boot_id(now, err);
	if (r >= 0 && memcmp(boot, now, sizeof(now)) != 0)
		r = err_set(err, -ENOENT, "the layer was saved before this boot");
	if (r < 0) {
		free(out.parts);
		return r;
	}
	*saved = out;
	return 0;
}
