/* HEAD of a workspace's own .git, whatever that is: two small regular files and one list are looked
 * at, with bounds; links aren't followed. */
#include <errno.h>
#include <stdlib.h>

#include "fs/base/cleanup.h"
#include "gitops/changes_impl.h"
#include "gitops/inner.h"
#include "gitops/refs.h"
#include "gitops/viewfile.h"

enum {
	HEAD_MAX = 4096,        /* bytes of HEAD, and of a loose ref */
	LIST_STEP = 256 * 1024, /* packed-refs is read in such parts */
	LIST_MAX = 64 << 20,    /* and no further */
};

int inner_parse_head(const void *data, size_t len, struct oid *oid, char ref[REF_NAME_SIZE])
{
	static const char sign[] = "ref:", heads[] = "refs/heads/";
	const char *p = data;
	char hex[OID_HEX + 1];
	while (len && (p[len - 1] == '\n' || p[len - 1] == '\r' || p[len - 1] == ' ' ||
		       p[len - 1] == '\t'))
		len--;
	if (len == OID_HEX) {
		memcpy(hex, p, OID_HEX);
		hex[OID_HEX] = '\0';
		return oid_parse(oid, hex) < 0 ? -EBADMSG : INNER_OID;
	}
	if (len < sizeof(sign) - 1 || memcmp(p, sign, sizeof(sign) - 1) != 0)
		return -EBADMSG;
	p += sizeof(sign) - 1;
	len -= sizeof(sign) - 1;
	while (len && (*p == ' ' || *p == '\t'))
		p++, len--;
	if (len >= REF_NAME_SIZE || memchr(p, 0, len))
		return -EBADMSG;
	memcpy(ref, p, len);
	ref[len] = '\0';
	if (strncmp(ref, heads, sizeof(heads) - 1) != 0 || !ref_name_ok(ref))
		return -EBADMSG;
	return INNER_REF;
}

bool inner_packed_line(const char *line, size_t len, const char *ref, struct oid *oid)
{
	char hex[OID_HEX + 1];
	size_t n = strlen(ref);
	if (len && line[len - 1] == '\r')
		len--;
	if (len != OID_HEX + 1 + n || line[OID_HEX] != ' ' ||
	    memcmp(line + OID_HEX + 1, ref, n) != 0)
		return false;
	memcpy(hex, line, OID_HEX);
	hex[OID_HEX] = '\0';
	return oid_parse(oid, hex) == 0;
}

/* The ref in packed-refs, read line by line. 1, 0 (it isn't in it, or the file is none), -errno. */
static int find_packed(const struct view *v, uint64_t git, const char *ref, struct oid *oid,
		       struct err *err)
{
	static const char name[] = "packed-refs";
	struct attr a;
	int r = viewfile_at(v, git, name, sizeof(name) - 1, &a);
	if (r == -ENOENT || (r >= 0 && (!S_ISREG(a.mode) || a.size > LIST_MAX)))
		return 0;
	if (r < 0)
		return err_sys(err, r, "look at .git/%s", name);
	auto_free char *buf = malloc(LIST_STEP);
	if (!buf)
		return err_no_memory(err);
	size_t have = 0;
	for (uint64_t off = 0; off < a.size;) {
		ssize_t got = view_read(v, a.ino, buf + have, LIST_STEP - have, off, err);
		if (got <= 0)
			return got < 0 ? (int)got : 0;
		off += (uint64_t)got;
		have += (size_t)got;
		char *p = buf, *end = buf + have, *nl;
		while ((nl = memchr(p, '\n', (size_t)(end - p)))) {
			if (inner_packed_line(p, (size_t)(nl - p), ref, oid))
				return 1;
			p = nl + 1;
		}
		have = (size_t)(end - p);
		if (have > REF_NAME_SIZE + OID_HEX + 2)
			return 0; /* no list has such lines */
		memmove(buf, p, have);
	}
	return inner_packed_line(buf, have, ref, oid);
}

/* 1: it was read; 0: *why says why not. */
static int read_small(struct buf *out, const struct view *v, uint64_t git, const char *path,
		      struct err *err)
{
	struct attr a;
	int r = viewfile_at(v, git, path, strlen(path), &a);
	if (r == -ENOENT || (r >= 0 && (!S_ISREG(a.mode) || a.size > HEAD_MAX)))
		return 0;
	if (r < 0)
		return err_sys(err, r, "look at .git/%s", path);
	r = viewfile_read(out, v, &a, HEAD_MAX, err);
	return r < 0 ? r : 1;
}

static int find_ref(const struct view *v, uint64_t git, const char *ref, struct oid *oid,
		    const char **why, struct err *err)
{
	auto_buf text = { 0 };
	char again[REF_NAME_SIZE];
	int r = read_small(&text, v, git, ref, err);
	if (r < 0)
		return r;
	if (r > 0 && inner_parse_head(text.data, text.len, oid, again) == INNER_OID)
		return 1;
	if (r > 0) {
		*why = "the branch that its .git is on can't be understood";
		return 0;
	}
	r = find_packed(v, git, ref, oid, err);
	if (r == 0)
		*why = "the branch that its .git is on has no commit";
	return r;
}

int inner_head(const struct view *now, struct oid *commit, char **branch, const char **why,
	       struct err *err)
{
	auto_buf text = { 0 };
	struct attr git;
	char ref[REF_NAME_SIZE];
	struct oid oid = { 0 };
	*branch = NULL;
	int r = viewfile_at(now, 1, ".git", 4, &git);
	if (r < 0 && r != -ENOENT)
		return err_sys(err, r, "look at .git");
	if (r == -ENOENT || !S_ISDIR(git.mode)) {
		*why = r == -ENOENT ? "it has no .git" : "its .git is no folder";
		return 0;
	}
	r = read_small(&text, now, git.ino, "HEAD", err);
	if (r < 0)
		return r;
	*why = "HEAD of its .git can't be understood";
	if (r == 0 || (r = inner_parse_head(text.data, text.len, &oid, ref)) < 0)
		return 0;
	if (r == INNER_REF) {
		r = find_ref(now, git.ino, ref, &oid, why, err);
		if (r <= 0)
			return r;
		*branch = strdup(ref + sizeof("refs/heads/") - 1);
		if (!*branch)
			return err_no_memory(err);
	}
	*commit = oid;
	*why = NULL;
	return 1;
}
