#include "runtime/init/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include "runtime/init/sys.h"

/* Memory that is never given back; NULL: none. */
static void *room(size_t n)
{
	const size_t align = 16;
	long now = sys1(SYS_brk, 0);
	size_t from = ((size_t)now + align - 1) & ~(align - 1);
	return sys1(SYS_brk, (long)(from + n)) == (long)(from + n) ? (void *)from : NULL;
}

/* The file's bytes, a NUL behind them; how many, or < 0. */
static long read_file(char **out)
{
	long fd = sys4(SYS_openat, AT_FDCWD, (long)INIT_ENV_FILE, O_RDONLY | O_CLOEXEC | O_NONBLOCK,
		       0);
	if (fd < 0)
		return fd;
	char *p = room(INIT_ENV_MAX + 1);
	long n = p ? 0 : -ENOMEM, got = 0;
	while (n >= 0 && n < INIT_ENV_MAX) {
		got = sys3(SYS_read, fd, (long)(p + n), INIT_ENV_MAX - n);
		if (got == -EINTR)
			continue;
		if (got <= 0)
			break;
		n += got;
	}
	sys1(SYS_close, fd);
	if (n >= 0 && got < 0)
		return got;
	if (n >= 0)
		p[n] = '\0';
	*out = p;
	return n;
}

static bool same_name(const char *a, const char *b)
{
	while (*a == *b && *a && *a != '=') {
		a++;
		b++;
	}
	return *a == '=' && *b == '=';
}

char **env_with_file(char **env)
{
	char *text;
	size_t old = 0, more = 0, n = 0;
	long len = read_file(&text);
	if (len <= 0)
		return env;
	while (env[old])
		old++;
	for (long i = 0; i < len; i++)
		more += text[i] == '\0';
	char **all = room((old + more + 2) * sizeof(*all));
	if (!all)
		return env;
	for (char *p = text; p < text + len; p += str_len(p) + 1)
		if (*p)
			all[n++] = p;
	for (size_t i = 0, own = n; i < old; i++) {
		size_t k = 0;
		while (k < own && !same_name(env[i], all[k]))
			k++;
		if (k == own)
			all[n++] = env[i];
	}
	all[n] = NULL;
	return all;
}
