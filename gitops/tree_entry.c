#include "gitops/tree_entry.h"

#include <sys/stat.h>

#include "gitops/gitname.h"

enum {
	MODE_DIGITS_MAX = 7, /* old trees have a leading zero */
	NAME_BYTES_MAX = 255,
};

/* As git's canon_mode; 0: of no known type. */
static uint32_t canonical(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return mode & 0100 ? MODE_PROGRAM : MODE_FILE;
	case S_IFLNK:
		return MODE_SYMLINK;
	case S_IFDIR:
		return MODE_TREE;
	case MODE_GITLINK:
		return MODE_GITLINK;
	default:
		return 0;
	}
}

static uint32_t take_mode(struct cur *c)
{
	uint32_t mode = 0;
	for (int i = 0; i <= MODE_DIGITS_MAX; i++) {
		uint8_t x = cur_u8(c);
		if (x == ' ' && i > 0)
			return canonical(mode);
		if (c->bad || x < '0' || x > '7')
			return 0;
		mode = mode << 3 | (uint32_t)(x - '0');
	}
	return 0;
}

int tree_entry_next(struct cur *c, struct tree_entry *out)
{
	if (cur_left(c) == 0 && !c->bad)
		return 0;
	struct tree_entry e = { .mode = take_mode(c) };
	const uint8_t *end = e.mode ? memchr(c->p, '\0', cur_left(c)) : NULL;
	if (!end) {
		cur_fail(c);
		return -EBADMSG;
	}
	e.len = (size_t)(end - c->p);
	e.name = (const char *)cur_take(c, e.len + 1);
	const uint8_t *oid = cur_take(c, OID_BYTES);
	if (!oid)
		return -EBADMSG;
	memcpy(e.oid.b, oid, OID_BYTES);
	*out = e;
	return 1;
}

int tree_entry_order(const struct tree_entry *a, const struct tree_entry *b)
{
	size_t n = a->len < b->len ? a->len : b->len;
	int r = memcmp(a->name, b->name, n);
	if (r)
		return r;
	/* A folder's name counts as if it ended in a slash. */
	unsigned char x = (unsigned char)(a->len > n ? a->name[n] : a->mode == MODE_TREE ? '/' : 0);
	unsigned char y = (unsigned char)(b->len > n ? b->name[n] : b->mode == MODE_TREE ? '/' : 0);
	return (int)x - (int)y;
}

/* ---- names ---- */

const char *tree_name_refused(const char *name, size_t len, uint32_t mode)
{
	if (len == 0)
		return "a name is empty";
	if (len > NAME_BYTES_MAX)
		return "a name is longer than 255 bytes";
	if (memchr(name, '/', len) || memchr(name, '\0', len))
		return "a name has a slash in it";
	if ((len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
		return "a name leads out of its folder";
	if (gitname_is_dotgit(name, len))
		return "a name stands for .git";
	if (mode == MODE_SYMLINK && gitname_is_dotgitmodules(name, len))
		return "a link stands for .gitmodules";
	return NULL;
}
