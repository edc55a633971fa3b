#include "fs/work/ws_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/base/cleanup.h"

static const char MAGIC[8] = "BOUGHWS1";
enum {
	FLAG_FLATTENED = 1,
	FLAG_DURABLE = 2,
	FLAG_NO_XATTRS = 4,
	FLAGS = FLAG_FLATTENED | FLAG_DURABLE | FLAG_NO_XATTRS,
	TRAILER_BYTES = 8, /* XXH3 of all before it */
};

void ws_file_done(struct ws_file *f)
{
	stack_done(&f->stack);
	free(f->pins);
	*f = (struct ws_file){ 0 };
}

int ws_file_copy(struct ws_file *out, const struct ws_file *in)
{
	struct ws_file f = *in;
	f.pins = NULL;
	f.stack = (struct stack){ 0 };
	int r = stack_copy(&f.stack, &in->stack);
	if (r < 0)
		return r;
	if (in->npins > 0) {
		f.pins = malloc(in->npins * sizeof(*f.pins));
		if (!f.pins) {
			stack_done(&f.stack);
			return -ENOMEM;
		}
		memcpy(f.pins, in->pins, in->npins * sizeof(*f.pins));
	}
	*out = f;
	return 0;
}

static bool ws_file_pins(const struct ws_file *f, const struct layer_id *id)
{
	for (uint32_t i = 0; i < f->npins; i++)
		if (memcmp(&f->pins[i], id, sizeof(*id)) == 0)
			return true;
	return false;
}

int ws_file_pin(struct ws_file *f, const struct layer_id *id)
{
	if (ws_file_pins(f, id))
		return 0;
	if (f->npins >= WS_PINS_MAX)
		return -ENOMEM;
	struct layer_id *more = realloc(f->pins, (f->npins + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	f->pins = more;
	f->pins[f->npins++] = *id;
	return 0;
}

/* ---- bytes ---- */

void ws_file_encode(const struct ws_file *f, struct buf *out)
{
	size_t start = out->len;
	buf_add(out, MAGIC, sizeof(MAGIC));
	buf_u64(out, f->seq);
	buf_u64(out, f->tag);
	buf_u64(out, f->birth_ino);
	buf_u64(out, f->limit_bytes);
	buf_u64(out, f->limit_inodes);
	buf_u64(out, (uint64_t)f->base_bytes);
	buf_u64(out, (uint64_t)f->base_inodes);
	buf_u64(out, f->files);
	buf_u32(out, f->foreign);
	buf_u16(out, f->gen);
	buf_u16(out, (uint16_t)((f->flattened ? FLAG_FLATTENED : 0) |
				(f->durable ? FLAG_DURABLE : 0) |
				(f->no_xattrs ? FLAG_NO_XATTRS : 0)));
	buf_add(out, f->boot, sizeof(f->boot));
	buf_add(out, &f->active, sizeof(f->active));
	buf_u32(out, f->npins);
	for (uint32_t i = 0; i < f->npins; i++)
		buf_add(out, &f->pins[i], sizeof(f->pins[i]));
	stack_encode(&f->stack, out); /* to the end, but for the sum */
	if (!out->failed)
		buf_u64(out, hash_xxh3(out->data + start, out->len - start, 0));
}

static int decode_pins(struct ws_file *f, struct cur *c)
{
	uint32_t n = cur_u32(c);
	if (n > WS_PINS_MAX)
		return -EBADMSG;
	const uint8_t *p = cur_take(c, (size_t)n * sizeof(struct layer_id));
	if (!p || n == 0)
		return p || n == 0 ? 0 : -EBADMSG;
	f->pins = malloc(n * sizeof(*f->pins));
	if (!f->pins)
		return -ENOMEM;
	memcpy(f->pins, p, n * sizeof(*f->pins));
	f->npins = n;
	return 0;
}

int ws_file_decode(struct ws_file *out, const void *data, size_t len)
{
	auto_ws_file f = { 0 };
	if (len < sizeof(MAGIC) + TRAILER_BYTES || memcmp(data, MAGIC, sizeof(MAGIC)) != 0)
		return -EBADMSG;
	len -= TRAILER_BYTES;
	if (le_get64((const uint8_t *)data + len) != hash_xxh3(data, len, 0))
		return -EBADMSG;
	struct cur c = cur_init(data, len);
	(void)cur_take(&c, sizeof(MAGIC));
	f.seq = cur_u64(&c);
	f.tag = cur_u64(&c);
	f.birth_ino = cur_u64(&c);
	f.limit_bytes = cur_u64(&c);
	f.limit_inodes = cur_u64(&c);
	f.base_bytes = (int64_t)cur_u64(&c);
	f.base_inodes = (int64_t)cur_u64(&c);
	f.files = cur_u64(&c);
	f.foreign = cur_u32(&c);
	f.gen = cur_u16(&c);
	uint16_t flags = cur_u16(&c);
	f.flattened = flags & FLAG_FLATTENED;
	f.durable = flags & FLAG_DURABLE;
	f.no_xattrs = flags & FLAG_NO_XATTRS;
	const uint8_t *p = cur_take(&c, sizeof(f.boot));
	if (p)
		memcpy(f.boot, p, sizeof(f.boot));
	p = cur_take(&c, sizeof(f.active));
	if (p)
		memcpy(&f.active, p, sizeof(f.active));
	int r = decode_pins(&f, &c);
	if (r < 0)
		return r;
	if (c.bad || (flags & ~FLAGS) || f.tag == 0)
		return -EBADMSG;
	r = stack_decode(&f.stack, c.p, cur_left(&c));
	if (r < 0)
		return r;
	if (f.foreign > f.stack.nlayers)
		return -EBADMSG;
	*out = f;
	f = (struct ws_file){ 0 };
	return 0;
}

/* ---- the folder ---- */

/* *len: how much of it there is; also of one that isn't whole. */
static int load_one(struct ws_file *out, const struct io *io, int dir, const char *name,
		    size_t *len, struct err *err)
{
	void *data = NULL;
	int r = io_slurp(io, dir, name, WS_FILE_MAX, &data, len, err);
	if (r < 0)
		return r;
	r = ws_file_decode(out, data, *len);
	free(data);
	return r < 0 ? err_sys(err, r, "%s", name) : 0;
}

void ws_file_name(char out[WS_FILE_NAME], uint64_t seq)
{
	(void)snprintf(out, WS_FILE_NAME, "stack-%016" PRIx64, seq);
}

/* A version is written by one call: a kill leaves nothing of it, or ends it where a page ends, and
 * so is one that is just being written. Any other one was whole. Its sequence, by its name; 0: it
 * never was. */
static uint64_t damaged_seq(const char *name, size_t len)
{
	char *end;
	uint64_t seq = strtoull(name + 6, &end, 16);
	return *end || len % 4096 == 0 ? 0 : seq;
}

/* The newest whole version that isn't synced; -ENOENT: there is none. *damaged: the highest
 * sequence of those that aren't whole any more. One that can't be read now may be the newest. */
static int load_newest(struct ws_file *out, const struct io *io, int dir, uint64_t *damaged,
		       struct err *err)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "open its folder");
	auto_dir *d = fdopendir(fd);
	if (!d) {
		(void)close(fd); /* only read */
		return err_no_memory(err);
	}
	int r = -ENOENT;
	struct dirent *de;
	while (errno = 0, (de = readdir(d))) {
		struct ws_file f = { 0 };
		char name[WS_FILE_NAME];
		if (strncmp(de->d_name, "stack-", 6) != 0)
			continue;
		size_t len = 0;
		int n = load_one(&f, io, dir, de->d_name, &len, NULL);
		uint64_t lost = n == -EBADMSG ? damaged_seq(de->d_name, len) : 0;
		*damaged = lost > *damaged ? lost : *damaged;
		if (n == 0)
			ws_file_name(name, f.seq);
		if (n < 0 && n != -EBADMSG && n != -ENOENT && n != -EFBIG) {
			if (r == 0)
				ws_file_done(out);
			return err_sys(err, n, "read %s", de->d_name);
		}
		/* Torn ones, and files that are a copy of another version, are nothing. */
		if (n < 0 || strcmp(name, de->d_name) != 0 || (r == 0 && f.seq < out->seq)) {
			ws_file_done(&f);
			continue;
		}
		if (r == 0)
			ws_file_done(out);
		*out = f;
		r = 0;
	}
	if (!errno)
		return r;
	int failed = -errno;
	if (r == 0)
		ws_file_done(out);
	return err_sys(err, failed, "read its folder");
}

static bool is_leftover(const char *name, uint64_t seq)
{
	static const char tmp[] = IO_TMP_PREFIX "stack-"; /* boughd publishes here too: meta.json */
	char current[WS_FILE_NAME];
	ws_file_name(current, seq);
	if (strncmp(name, "stack-", 6) == 0)
		return strlen(name) == strlen(current) && strcmp(name, current) != 0;
	return strncmp(name, tmp, sizeof(tmp) - 1) == 0;
}

void ws_file_sweep(const char *root, const char *id, uint64_t seq)
{
	char path[PATH_MAX];
	int len = snprintf(path, sizeof(path), "%s/ws/%s", root, id);
	auto_dir *d = len < 0 || (size_t)len >= sizeof(path) ? NULL : opendir(path);
	const struct dirent *e;
	while (d && (e = readdir(d)))
		if (is_leftover(e->d_name, seq))
			(void)unlinkat(dirfd(d), e->d_name, 0); /* it costs only space */
}

int ws_file_load(struct ws_file out[2], unsigned *n, const struct io *io, const char *root,
		 const char *id, const uint8_t boot[BOOT_ID_BYTES], struct err *err)
{
	io = io ? io : &io_host;
	char path[PATH_MAX];
	int len = snprintf(path, sizeof(path), "%s/ws/%s", root, id);
	if (len < 0 || (size_t)len >= sizeof(path))
		return err_set(err, -ENAMETOOLONG, "the path of workspace %s is too long", id);
	int dir = io->open(io->ctx, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return err_sys(err, dir, "workspace %s", id);
	struct ws_file durable = { 0 }, newer = { 0 };
	uint64_t damaged = 0;
	size_t size;
	int r = load_one(&durable, io, dir, "stack", &size, err);
	int rn = load_newest(&newer, io, dir, &damaged, err);
	(void)io->close(io->ctx, dir); /* only read */
	if (rn < 0 && rn != -ENOENT) {
		if (r == 0)
			ws_file_done(&durable);
		return err_prefix(err, rn, "workspace %s", id);
	}
	/* The durable one may be there, too, and count again after a power loss. */
	if (r < 0 && r != -ENOENT && r != -EBADMSG && r != -EFBIG) {
		if (rn == 0)
			ws_file_done(&newer);
		return err_prefix(err, r, "workspace %s", id);
	}
	if (r == 0 && rn == 0 && newer.seq <= durable.seq) {
		ws_file_done(&newer); /* what became durable since */
		rn = -ENOENT;
	}
	unsigned have = 0;
	if (rn == 0)
		out[have++] = newer;
	if (r == 0)
		out[have++] = durable;
	/* What wasn't lost with the power was damaged, and an older version isn't the workspace. */
	if (have > 0 && damaged > out[0].seq && memcmp(out[0].boot, boot, BOOT_ID_BYTES) == 0) {
		while (have > 0)
			ws_file_done(&out[--have]);
		return err_set(err, -EBADMSG, "workspace %s: stack-%016" PRIx64 " is damaged", id,
			       damaged);
	}
	*n = have;
	if (have > 0)
		return 0;
	return err_set(err, -EBADMSG,
		       "workspace %s has no whole stack file (lost, when it was made just before "
		       "a power loss)",
		       id);
}
