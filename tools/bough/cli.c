/* The context of all commands: where the state lies, and what a failure is to the caller. */
#include "tools/bough/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/remote.h"

int cli_exit_code(int code)
{
	switch (-code) {
	case 0:
		return EXIT_CODE_OK;
	case EINVAL:
		return EXIT_CODE_USAGE;
	case ENOENT:
	case ENXIO: /* daemon_connect_or_start: no root */
		return EXIT_CODE_NOT_FOUND;
	case EEXIST:
		return EXIT_CODE_EXISTS;
	case EBUSY:
		return EXIT_CODE_BUSY;
	case ENOSPC:
	case EDQUOT:
		return EXIT_CODE_SPACE;
	default:
		return EXIT_CODE_FAILED;
	}
}

static int absolute(const char *path, char **out, struct err *err)
{
	auto_free char *cwd = NULL;
	if (path[0] != '/' && !(cwd = getcwd(NULL, 0)))
		return err_sys(err, -errno, "the current folder");
	char *s = NULL;
	if (asprintf(&s, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", path) < 0)
		return err_no_memory(err);
	size_t n = strlen(s);
	while (n > 1 && s[n - 1] == '/')
		s[--n] = 0;
	*out = s;
	return 0;
}

int cli_root(const char *opt, char **out, struct err *err)
{
	const char *env = getenv("BOUGH_ROOT"), *xdg = getenv("XDG_STATE_HOME");
	const char *home = getenv("HOME");
	if (opt && !*opt)
		return err_set(err, -EINVAL, "--root needs a folder");
	if (opt || (env && *env))
		return absolute(opt ? opt : env, out, err);
	if (geteuid() == 0)
		return absolute("/var/lib/bough", out, err);
	auto_free char *path = NULL;
	int n = -1;
	if (xdg && xdg[0] == '/') /* the XDG specification: a relative one counts as unset */
		n = asprintf(&path, "%s/bough", xdg);
	else if (home && home[0] == '/')
		n = asprintf(&path, "%s/.local/state/bough", home);
	else
		return err_set(err, -EINVAL,
			       "neither HOME nor XDG_STATE_HOME is set: give --root DIR");
	if (n < 0)
		return err_no_memory(err);
	return absolute(path, out, err);
}

/* An option, else the environment; NULL: neither. */
static const char *given(const struct args *a, const char *option, const char *variable)
{
	const char *opt = args_get(a, option), *env = getenv(variable);
	return opt ? opt : env && *env ? env : NULL;
}

int cli_remote(const struct args *a, struct remote **out, struct err *err)
{
	bool root = args_get(a, "root"), url_given = args_get(a, "url");
	const char *url = root && !url_given ? NULL : given(a, "url", "BOUGH_URL");
	*out = NULL;
	if (root && url_given)
		return err_set(err, -EINVAL, "one of --root and --url");
	if (!url && (args_get(a, "auth") || args_get(a, "ca") || args_get(a, "insecure")))
		return err_set(err, -EINVAL, "--auth, --ca and --insecure go with --url");
	if (!url)
		return 0;
	bool tls = !strncmp(url, "https://", 8); /* else BOUGH_CA means another boughd */
	const char *ca = tls ? given(a, "ca", "BOUGH_CA") : args_get(a, "ca");
	const char *insecure = getenv("BOUGH_INSECURE");
	return remote_new(out, url, given(a, "auth", "BOUGH_TOKEN_FILE"), ca,
			  args_get(a, "insecure") || (insecure && strcmp(insecure, "1") == 0), err);
}
