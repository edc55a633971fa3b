#include "snapd/names.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "fs/base/hash.h"

static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";

void id_make(char out[ID_SIZE], const char *kind)
{
	uint64_t r;
	random_bytes(&r, sizeof(r));
	memcpy(out, kind, 2);
	out[2] = '_';
	for (int i = 3; i < ID_CHARS; i++, r >>= 5)
		out[i] = base32[r & 31];
	out[ID_CHARS] = '\0';
}

bool id_is(const char *s, const char *kind)
{
	return strlen(s) == ID_CHARS && s[0] == kind[0] && s[1] == kind[1] && s[2] == '_' &&
	       strspn(s + 3, base32) == ID_CHARS - 3;
}

static bool plain(const char *s, const char *more)
{
	for (; *s; s++) {
		bool ok = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
			  (*s >= '0' && *s <= '9') || strchr(more, *s);
		if (!ok)
			return false;
	}
	return true;
}

int name_check(const char *s, struct err *err)
{
	if (!*s)
		return err_set(err, -EINVAL, "an empty name");
	if (strlen(s) > NAME_CHARS)
		return err_set(err, -EINVAL, "a name has at most %d characters", NAME_CHARS);
	if (!plain(s, "._-"))
		return err_set(err, -EINVAL, "\"%s\": a name is made of A-Z a-z 0-9 . _ -", s);
	if (*s == '-' || *s == '.')
		return err_set(err, -EINVAL, "\"%s\": a name doesn't begin with '%c'", s, *s);
	if (id_is(s, "ws") || id_is(s, "sn") || id_is(s, "sb") || id_is(s, "ex") ||
	    id_is(s, "tm"))
		return err_set(err, -EINVAL, "\"%s\" has the form of an id", s);
	return 0;
}

int label_key_check(const char *s, struct err *err)
{
	if (!*s || strlen(s) > NAME_CHARS || !plain(s, "._/-"))
		return err_set(err, -EINVAL, "a label's key is 1 to %d of A-Z a-z 0-9 . _ / -",
			       NAME_CHARS);
	return 0;
}
