/* Commit objects. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#include "fs/base/cleanup.h"
#include "gitops/changes_impl.h"
#include "gitops/packout.h"

enum { OFFSET_MAX_MIN = 14 * 60 };

/* A name or address as a commit can hold it: no control characters, no angle brackets, and
 * without the dots, commas and blanks at its ends that git drops too. */
static bool signature_part(const char *s)
{
	if (!*s)
		return false;
	for (const char *p = s; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f || *p == '<' || *p == '>')
			return false;
	return !strchr(" .,:;\"'\\", s[0]) && !strchr(" .,:;\"'\\", s[strlen(s) - 1]);
}

static void add_message(struct buf *out, const char *s)
{
	size_t n = strlen(s);
	while (n > 0 && isspace((unsigned char)s[n - 1]))
		n--;
	while (n > 0 && *s == '\n')
		s++, n--;
	buf_add(out, s, n);
	buf_u8(out, '\n');
}

int commit_put(struct oid *commit, struct packout *p, const struct commit_spec *spec,
	       struct err *err)
{
	auto_buf text = { 0 };
	char tree[OID_HEX + 1], parent[OID_HEX + 1], sign = spec->offset_min < 0 ? '-' : '+';
	const char *name = spec->author ? spec->author : "Bough";
	const char *email = spec->author ? spec->author_email : "bough@localhost";
	int off = spec->offset_min < 0 ? -spec->offset_min : spec->offset_min;
	if (!signature_part(name))
		return err_set(err, -EINVAL, "\"%.60s\" is no name that a commit can hold", name);
	if (!email || strchr(email, ' ') || !signature_part(email))
		return err_set(err, -EINVAL, "\"%.60s\" is no address that a commit can hold",
			       email ? email : "");
	if (!spec->message[strspn(spec->message, " \t\r\n")])
		return err_set(err, -EINVAL, "the message is empty");
	if (off > OFFSET_MAX_MIN)
		return err_set(err, -EINVAL, "no time zone is %d minutes off", spec->offset_min);
	oid_hex(tree, &spec->tree);
	oid_hex(parent, &spec->parent);
	buf_printf(&text, "tree %s\nparent %s\n", tree, parent);
	for (int i = 0; i < 2; i++)
		buf_printf(&text, "%s %s <%s> %lld %c%02d%02d\n", i ? "committer" : "author", name,
			   email, (long long)spec->time_s, sign, off / 60, off % 60);
	buf_u8(&text, '\n');
	add_message(&text, spec->message);
	if (buf_error(&text) < 0)
		return err_no_memory(err);
	return packout_put(p, GIT_COMMIT, text.data, text.len, commit, err);
}

int commit_make(struct oid *commit, struct mirror *m, const struct commit_spec *spec,
		struct err *err)
{
	struct packout *p = NULL;
	struct oid id;
	int r = packout_new(&p, m, NULL, err);
	if (r >= 0)
		r = commit_put(&id, p, spec, err);
	if (r >= 0)
		r = packout_finish(p, NULL, err);
	packout_free(p);
	if (r < 0)
		return r;
	*commit = id;
	return 0;
}
