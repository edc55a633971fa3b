/* The runtimes, and whether they work here. All that is special about one of them is here. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "runtime/program.h"
#include "runtime/shim.h"
#include "runtime/shim_int.h"

#define RUNC_SHIM "containerd-shim-runc-v2"

enum { VERSION_MS = 5000, VERSION_MAX = 4096 };

static const struct runtime_kind kinds[] = {
	{ .name = "runc",
	  .shim = RUNC_SHIM,
	  .binary = "runc",
	  .shifts_ids = true,
	  .mounts_later = true,
	  .sees_restores = true,
	  .freezes = true,
	  .reports_pids = true,
	  .signals_execs = true,
	  .numbers_signals = true },
	/* Debian's package has no shim of gVisor's own; the one of runc runs it as well. */
	{ .name = "runsc",
	  .shim = RUNC_SHIM,
	  .binary = "runsc",
	  .wrapper = "bough-runsc",
	  .shifts_ids = true,
	  .mounts_later = true,
	  .sees_restores = true,
	  .freezes = true,
	  .numbers_signals = true },
	{ .name = "kata", .shim = "containerd-shim-kata-v2", .signals_execs = true },
	{ .name = "crun",
	  .shim = RUNC_SHIM,
	  .binary = "crun",
	  .shifts_ids = true,
	  .mounts_later = true,
	  .sees_restores = true,
	  .freezes = true,
	  .reports_pids = true,
	  .signals_execs = true,
	  .numbers_signals = true },
};

const struct runtime_kind *runtime_nth(unsigned n)
{
	return n < sizeof(kinds) / sizeof(kinds[0]) ? &kinds[n] : NULL;
}

const struct runtime_kind *runtime_find(const char *name)
{
	const struct runtime_kind *k;
	for (unsigned i = 0; (k = runtime_nth(i)); i++)
		if (strcmp(k->name, name) == 0)
			return k;
	return NULL;
}

/* ---- programs ---- */

/* Whether DIR (of `dir_len` bytes) has it; its path in `out` then. */
static int in_dir(char *out, size_t size, const char *dir, size_t dir_len, const char *name)
{
	char path[PATH_MAX];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%.*s/%s", (int)dir_len, dir, name);
	if (n < 0 || (size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	if (dir_len == 0 || *dir != '/' || stat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
	    access(path, X_OK) < 0)
		return -ENOENT;
	if ((size_t)n >= size)
		return -ENAMETOOLONG;
	memcpy(out, path, (size_t)n + 1);
	return 0;
}

/* The first folder of "A:B:..." that has it. */
static int in_path(char *out, size_t size, const char *path, const char *name)
{
	for (const char *p = path; p;) {
		size_t len = strcspn(p, ":");
		if (in_dir(out, size, p, len, name) == 0)
			return 0;
		p = p[len] ? p + len + 1 : NULL;
	}
	return -ENOENT;
}

int runtime_program(char *out, size_t size, const char *name)
{
	static const char *const near[] = { "", "/../libexec/bough" };
	char self[PATH_MAX - 64], dir[PATH_MAX];
	const char *given = getenv("BOUGH_PROGRAMS"), *path = getenv("PATH");
	if (given && in_path(out, size, given, name) == 0)
		return 0;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
		for (size_t i = 0; i < 2; i++) {
			int len = snprintf(dir, sizeof(dir), "%s%s", self, near[i]);
			if (in_dir(out, size, dir, (size_t)len, name) == 0)
				return 0;
		}
	}
	/* A service's PATH may lack the last ones. */
	if (in_path(out, size, path ? path : "", name) == 0)
		return 0;
	return in_path(out, size, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		       name);
}

const char *runtime_default(void)
{
	char path[PATH_MAX];
	const char *given = getenv("BOUGH_DEFAULT_RUNTIME");
	if (given && runtime_find(given))
		return given;
	return runtime_program(path, sizeof(path), "runc") < 0 &&
			       runtime_program(path, sizeof(path), "crun") == 0
		       ? "crun"
		       : "runc";
}

int runtime_binary(const struct runtime_kind *kind, char *out, size_t size, struct err *err)
{
	const char *name = kind->wrapper ? kind->wrapper : kind->binary;
	*out = '\0';
	if (!name)
		return 0;
	int r = runtime_program(out, size, name);
	return r < 0 ? err_set(err, r, "%s isn't installed: `bough doctor` shows what is", name)
		     : 0;
}

/* ---- what works here ---- */

/* The first number with a dot in it, or of eight digits (gVisor's dates), after "version". */
static void find_version(const char *text, char *out, size_t size)
{
	const char *p = strcasestr(text, "version");
	p = p ? p + strlen("version") : text;
	p += strcspn(p, "0123456789\n");
	size_t len = strcspn(p, " \n,");
	(void)snprintf(out, size, "%.*s", (int)(len < size ? len : size - 1), p);
}

static void version_of(const char *program, const char *flag, char *out, size_t size)
{
	const char *argv[] = { program, flag, NULL };
	auto_buf text = { 0 };
	const struct program c = { .argv = argv, .timeout_ms = VERSION_MS, .max = VERSION_MAX };
	*out = '\0';
	if (program_run(&c, &text, NULL, NULL) != 0)
		return;
	buf_add(&text, "", 1);
	if (!buf_error(&text))
		find_version((const char *)text.data, out, size);
}

/* a < b by the numbers in them. */
static bool older(const char *a, const char *b)
{
	for (;;) {
		a += strcspn(a, "0123456789");
		b += strcspn(b, "0123456789");
		if (!*b)
			return false;
		char *after_a, *after_b;
		unsigned long x = *a ? strtoul(a, &after_a, 10) : 0, y = strtoul(b, &after_b, 10);
		if (x != y)
			return x < y;
		if (!*a)
			return true;
		a = after_a;
		b = after_b;
	}
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

/* What a kind needs beside its programs; "" where it's all there. */
static const char *lacks(const struct runtime_kind *k, const char *version)
{
	struct utsname u;
	if (geteuid() != 0)
		return "needs root";
	if (k->shifts_ids && uname(&u) == 0 && older(u.release, "6.12"))
		return "needs Linux 6.12, for idmapped mounts of workspaces";
	if (strcmp(k->name, "runc") == 0 && *version && older(version, "1.1.5"))
		return "runc older than 1.1.5";
	if (strcmp(k->name, "runsc") == 0 && *version && older(version, "0.0.20240701"))
		return "gVisor older than 2024-07";
	if (strcmp(k->name, "kata") == 0 && !exists("/dev/kvm"))
		return "no /dev/kvm: this machine can't run virtual machines";
	if (strcmp(k->name, "kata") == 0 && !exists("/dev/vhost-vsock"))
		return "no /dev/vhost-vsock";
	/* It takes a machine that has both versions of cgroups mounted for one of version 2. */
	if (strcmp(k->name, "crun") == 0 && exists("/sys/fs/cgroup/unified/cgroup.procs"))
		return "crun refuses cgroups of both versions beside each other (hybrid)";
	return "";
}

static bool find(const char *name, char *out, size_t size, struct runtime_probe *p)
{
	if (!name || runtime_program(out, size, name) == 0)
		return true;
	(void)snprintf(p->why, sizeof(p->why), "%s isn't installed", name);
	return false;
}

void runtime_probe(const struct runtime_kind *kind, struct runtime_probe *out)
{
	char shim[64] = "", binary[56] = "", wrapper[PATH_MAX];
	*out = (struct runtime_probe){ 0 };
	if (!find(kind->binary, out->binary, sizeof(out->binary), out) ||
	    !find(kind->shim, out->shim, sizeof(out->shim), out))
		return;
	version_of(out->shim, "-v", shim, sizeof(shim));
	if (kind->binary)
		version_of(out->binary, "--version", binary, sizeof(binary));
	(void)snprintf(out->version, sizeof(out->version), "%s%sshim %s", binary,
		       *binary ? ", " : "", *shim ? shim : "of unknown version");
	if (kind->wrapper && !find(kind->wrapper, wrapper, sizeof(wrapper), out))
		return;
	(void)snprintf(out->why, sizeof(out->why), "%s",
		       kind->binary && !*binary ? "it doesn't tell its version"
						: lacks(kind, binary));
	out->works = !*out->why;
}
