/* image_check: every block against its hash, then every record against what the writer
 * promises (fs/FORMAT.md, "Rules"). */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/base/cleanup.h"
#include "fs/image/map.h"

struct check {
	struct image *im;
	struct err *err;
	uint32_t *names;   /* how many entries lead to each inode, by index */
	uint32_t *subdirs; /* how many folders are in it */
	uint64_t *queue;   /* folders found from the root, by index */
	/* What the records so far have used up; each section is used whole and in order. */
	uint64_t dirents, pieces, xattrs, targets, file_bytes, data_bytes;
};

static int bad(struct check *c, const char *what, uint64_t number)
{
	return err_set(c->err, -EBADMSG, "%s %" PRIu64, what, number);
}

static int check_blocks(struct check *c)
{
	for (uint64_t i = 0; i < c->im->layout.blocks; i++)
		if (IMAGE_GUARDED(c->im, image_block_check(c->im, i)) < 0)
			return bad(c, "a bit is wrong, or can't be read, in block", i);
	return 0;
}

static int check_runs(struct check *c)
{
	struct image *im = c->im;
	uint64_t run = 0, last = 0;
	for (uint64_t i = 0; i < im->counts.inodes; i++) {
		struct image_inode_rec rec;
		if (image_rec_inode(im, i, &rec) < 0)
			return bad(c, "senseless inode record", i);
		uint64_t ino = rec.attr.ino;
		if (i > 0 && ino <= last)
			return bad(c, "inodes out of order at record", i);
		if (i == 0 || ino != last + 1) {
			const uint8_t *p =
				run < im->counts.runs
					? image_bytes(im, im->layout.runs + run * IMAGE_RUN_BYTES,
						      IMAGE_RUN_BYTES)
					: NULL;
			if (!p || le_get64(p + RUN_INO) != ino || le_get64(p + RUN_INDEX) != i)
				return bad(c, "wrong run for inode", ino);
			run++;
		}
		last = ino;
	}
	if (run != im->counts.runs || last != im->info.max_ino)
		return bad(c, "runs left over behind inode", last);
	return 0;
}

static bool child_name_ok(const struct dirent_ref *d)
{
	if (memchr(d->name, '/', d->name_len) || memchr(d->name, '\0', d->name_len))
		return false;
	return !(d->name[0] == '.' &&
		 (d->name_len == 1 || (d->name_len == 2 && d->name[1] == '.')));
}

static int check_dir(struct check *c, const struct image_inode_rec *rec, uint64_t index)
{
	struct image *im = c->im;
	uint64_t last = 0;
	if (rec->body != c->dirents)
		return bad(c, "entries out of place in folder", rec->attr.ino);
	c->dirents += rec->count;
	for (uint64_t i = rec->body; i < rec->body + rec->count; i++) {
		struct dirent_ref d;
		uint64_t child;
		struct image_inode_rec to;
		if (image_rec_dirent(im, i, &d) < 0 || !child_name_ok(&d))
			return bad(c, "senseless entry", i);
		if (d.cookie <= last ||
		    d.cookie - name_hash(d.name, d.name_len, im->info.seed) >= NAME_PROBE)
			return bad(c, "wrong cookie of entry", i);
		last = d.cookie;
		if (image_index_ceil(im, d.ino, &child) < 0 ||
		    image_rec_inode(im, child, &to) < 0 || to.attr.ino != d.ino)
			return bad(c, "an entry leads nowhere: inode", d.ino);
		if ((to.attr.mode & S_IFMT) >> 12 != d.type)
			return bad(c, "an entry has the wrong type of inode", d.ino);
		c->names[child]++;
		if (d.type == DT_DIR) {
			c->subdirs[index]++;
			if (to.attr.parent != rec->attr.ino || to.attr.parent_cookie != d.cookie)
				return bad(c, "wrong parent of folder", d.ino);
		}
	}
	return 0;
}

static int check_file(struct check *c, const struct image_inode_rec *rec)
{
	uint64_t end = 0;
	if (rec->body != c->pieces)
		return bad(c, "pieces out of place in inode", rec->attr.ino);
	c->pieces += rec->count;
	for (uint64_t i = rec->body; i < rec->body + rec->count; i++) {
		struct piece p;
		if (image_rec_piece(c->im, i, &p) < 0)
			return bad(c, "senseless piece", i);
		if (p.off < end || p.off + p.len > rec->attr.size)
			return bad(c, "overlapping or overhanging pieces in inode", rec->attr.ino);
		end = p.off + p.len;
		c->data_bytes += p.len;
	}
	if (__builtin_add_overflow(c->file_bytes, rec->attr.size, &c->file_bytes))
		c->file_bytes = UINT64_MAX;
	return 0;
}

static int check_symlink(struct check *c, const struct image_inode_rec *rec)
{
	const uint8_t *t;
	if (rec->body != c->targets || rec->attr.size != rec->count ||
	    image_rec_string(c->im, rec->body, rec->count, &t) < 0 || memchr(t, '\0', rec->count))
		return bad(c, "wrong target of symlink", rec->attr.ino);
	c->targets += rec->count;
	return 0;
}

static int check_xattrs(struct check *c, const struct image_inode_rec *rec)
{
	const char *last = "";
	if (((rec->attr.flags & ATTR_HAS_XATTR) != 0) != (rec->xattrs != 0))
		return bad(c, "wrong flags of inode", rec->attr.ino);
	if (rec->xattr != (rec->xattrs ? c->xattrs : 0))
		return bad(c, "xattrs out of place in inode", rec->attr.ino);
	c->xattrs += rec->xattrs;
	for (uint64_t i = rec->xattr; i < rec->xattr + rec->xattrs; i++) {
		const char *name;
		const void *value;
		size_t len;
		if (image_rec_xattr(c->im, i, &name, &value, &len) < 0 || strcmp(last, name) >= 0)
			return bad(c, "senseless xattr", i);
		last = name;
	}
	return 0;
}

static int check_inodes(struct check *c)
{
	for (uint64_t i = 0; i < c->im->counts.inodes; i++) {
		struct image_inode_rec rec;
		int r = image_rec_inode(c->im, i, &rec);
		if (r < 0)
			return bad(c, "senseless inode record", i);
		switch (rec.attr.mode & S_IFMT) {
		case S_IFDIR:
			r = check_dir(c, &rec, i);
			break;
		case S_IFREG:
			r = check_file(c, &rec);
			break;
		case S_IFLNK:
			r = check_symlink(c, &rec);
			break;
		default:
			break;
		}
		if (r == 0)
			r = check_xattrs(c, &rec);
		if (r < 0)
			return r;
	}
	if (c->dirents != c->im->counts.dirents || c->pieces != c->im->counts.pieces ||
	    c->xattrs != c->im->counts.xattrs)
		return bad(c, "records left over behind dirent", c->dirents);
	if (c->file_bytes != c->im->info.file_bytes || c->data_bytes != c->im->info.data_bytes)
		return bad(c, "the header counts other sizes than", c->file_bytes);
	return 0;
}

static int check_links(struct check *c)
{
	for (uint64_t i = 0; i < c->im->counts.inodes; i++) {
		struct image_inode_rec rec;
		if (image_rec_inode(c->im, i, &rec) < 0)
			return bad(c, "senseless inode record", i);
		bool root = rec.attr.ino == 1;
		if (S_ISDIR(rec.attr.mode)) {
			if (c->names[i] != !root || rec.attr.nlink != 2 + c->subdirs[i])
				return bad(c, "wrong link count of folder", rec.attr.ino);
		} else if (c->names[i] == 0 || rec.attr.nlink != c->names[i]) {
			return bad(c, "wrong link count of inode", rec.attr.ino);
		}
	}
	return 0;
}

/* Every folder hangs below the root: with one name each, a ring of folders would be
 * whole by all rules above. */
static int check_reach(struct check *c)
{
	struct image *im = c->im;
	struct image_inode_rec rec;
	uint64_t n = 0, dirs = 0;
	if (image_rec_inode(im, 0, &rec) < 0 || rec.attr.ino != 1 || !S_ISDIR(rec.attr.mode))
		return err_set(c->err, -EBADMSG, "there is no root folder");
	for (uint64_t i = 0; i < im->counts.inodes; i++) {
		if (image_rec_inode(im, i, &rec) < 0)
			return bad(c, "senseless inode record", i);
		dirs += S_ISDIR(rec.attr.mode);
	}
	c->queue[n++] = 0;
	for (uint64_t head = 0; head < n; head++) {
		if (image_rec_inode(im, c->queue[head], &rec) < 0)
			return bad(c, "senseless inode record", c->queue[head]);
		for (uint64_t i = rec.body; i < rec.body + rec.count; i++) {
			struct dirent_ref d;
			uint64_t child;
			if (image_rec_dirent(im, i, &d) < 0)
				return bad(c, "senseless entry", i);
			if (d.type != DT_DIR)
				continue;
			if (image_index_ceil(im, d.ino, &child) < 0 || n == dirs)
				return bad(c, "folders in a ring at inode", d.ino);
			c->queue[n++] = child;
		}
	}
	return n == dirs ? 0 : bad(c, "folders that hang nowhere:", dirs - n);
}

static int check_all(struct check *c)
{
	int r = check_runs(c);
	if (r == 0)
		r = check_inodes(c);
	if (r == 0)
		r = check_links(c);
	return r == 0 ? check_reach(c) : r;
}

int image_check(struct image *im, struct err *err)
{
	struct err why = { 0 };
	struct check c = { .im = im, .err = &why };
	int r = check_blocks(&c);
	if (r == 0) {
		c.names = calloc(im->counts.inodes, sizeof(*c.names));
		c.subdirs = calloc(im->counts.inodes, sizeof(*c.subdirs));
		c.queue = calloc(im->counts.inodes, sizeof(*c.queue));
		if (!c.names || !c.subdirs || !c.queue)
			r = err_no_memory(&why);
		else
			r = check_all(&c);
	}
	if (atomic_load(&im->bad) && r == 0)
		r = err_set(&why, -EBADMSG, "it can't be read everywhere");
	free(c.names);
	free(c.subdirs);
	free(c.queue);
	if (r == 0)
		return 0;
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, &im->info.name);
	return err_set(err, r, "image %s: %s", hex, why.text);
}
