#include "gitops/gitname.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* Code points that HFS+ ignores in names: U+200C…200F, 202A…202E, 206A…206F, FEFF. Bytes of the
 * one at p, or 0. */
static size_t ignored_by_hfs(const uint8_t *p, size_t n)
{
	if (n < 3)
		return 0;
	if (p[0] == 0xef)
		return p[1] == 0xbb && p[2] == 0xbf ? 3 : 0;
	if (p[0] != 0xe2)
		return 0;
	bool yes = (p[1] == 0x80 &&
		    ((p[2] >= 0x8c && p[2] <= 0x8f) || (p[2] >= 0xaa && p[2] <= 0xae))) ||
		   (p[1] == 0x81 && p[2] >= 0xaa && p[2] <= 0xaf);
	return yes ? 3 : 0;
}

/* On macOS: the name with ignored code points left out, in any case. */
static bool is_hfs(const char *name, size_t len, const char *what)
{
	const uint8_t *p = (const uint8_t *)name;
	size_t i = 0, n = strlen(what);
	while (len > 0) {
		size_t skip = ignored_by_hfs(p, len);
		if (!skip) {
			if (i == n || strncasecmp((const char *)p, what + i, 1) != 0)
				return false;
			i++;
			skip = 1;
		}
		p += skip;
		len -= skip;
	}
	return i == n;
}

/* On Windows: in any case, with blanks and dots at its end, and a stream's name behind. */
static bool is_ntfs(const char *name, size_t len, const char *what)
{
	size_t n = strlen(what);
	if (len < n || strncasecmp(name, what, n) != 0)
		return false;
	for (size_t i = n; i < len; i++) {
		if (name[i] == ':' || name[i] == '\\')
			return true;
		if (name[i] != ' ' && name[i] != '.')
			return false;
	}
	return true;
}

bool gitname_is_dotgit(const char *name, size_t len)
{
	/* Behind a backslash a name begins anew there. */
	const char *end = name + len;
	for (const char *p = name; p < end;) {
		const char *slash = memchr(p, '\\', (size_t)(end - p));
		size_t n = (size_t)((slash ? slash : end) - p);
		if (is_ntfs(p, n, ".git") || is_ntfs(p, n, "git~1"))
			return true;
		p += n + 1;
	}
	return is_hfs(name, len, ".git");
}

bool gitname_is_dotgitmodules(const char *name, size_t len)
{
	if (is_ntfs(name, len, ".gitmodules") || is_hfs(name, len, ".gitmodules"))
		return true;
	/* The short names that NTFS gives: gitmod~1 to ~4, then gi7eba~1 and on. */
	if (len >= 8 && strncasecmp(name, "gitmod~", 7) == 0 && name[7] >= '1' && name[7] <= '4')
		return is_ntfs(name + 8, len - 8, "");
	return len >= 8 && strncasecmp(name, "gi7eba~", 7) == 0;
}

static bool is_device(const char *name, size_t len)
{
	static const char *const devices[] = { "con", "prn", "aux", "nul", "conin$", "conout$" };
	const char *dot = memchr(name, '.', len);
	size_t n = dot ? (size_t)(dot - name) : len;
	while (n > 0 && name[n - 1] == ' ')
		n--;
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if (strlen(devices[i]) == n && strncasecmp(name, devices[i], n) == 0)
			return true;
	return n == 4 && name[3] >= '1' && name[3] <= '9' &&
	       (strncasecmp(name, "com", 3) == 0 || strncasecmp(name, "lpt", 3) == 0);
}

const char *gitname_problem(const char *name, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			return "it has a control character";
		if (name[i] == '\\')
			return "it has a backslash";
		if (strchr("<>:\"|?*", name[i]))
			return "it has a character that Windows refuses";
	}
	if (len && (name[len - 1] == '.' || name[len - 1] == ' '))
		return "it ends in a dot or a blank";
	if (is_device(name, len))
		return "Windows takes it for a device";
	return NULL;
}
