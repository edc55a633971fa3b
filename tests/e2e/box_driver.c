/* Boxes from a shell, for the tests:
 *
 *     box_driver make|first|exec|attach|detach OPTIONS DIR ROOT [-- COMMAND…]
 *     box_driver clear DIR | freeze ID | thaw ID | end PARENT | fill ROOT | points ROOT
 *
 * make: the box DIR, on the root workspace mounted at ROOT. first: what is attached between the
 * container's creation and its start. exec: prints the spec of a process.
 * attach: the first --mount, to process --pid; detach: --target. Namespace: $BOX_NS.
 * BOX_FAIL=N or N+: the n-th call of sys_fault.h fails (and all later ones), and it is said whether
 * there were so many. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/clock.h"
#include "runtime/box.h"
#include "tests/unit/sys_fault.h"

enum { MOUNTS = 8, SECRETS = 8, ENV = 32 };

struct args {
	struct box_config config;
	struct box_process process;
	struct box_mount mounts[MOUNTS];
	struct box_secret secrets[SECRETS];
	const char *env[ENV + 1];
	size_t n_env;
	uint32_t pid;
	const char *target;
	bool force, time;
	char init[4096];
};

static const char *ns(void)
{
	const char *name = getenv("BOX_NS");
	return name ? name : "test";
}

static int usage(const char *what)
{
	fprintf(stderr, "box_driver: wrong arguments: %s\n", what);
	return 125;
}

static void add_mount(struct args *a, char *text)
{
	char *target = strchr(text, ':');
	if (!target || a->config.n_mounts == MOUNTS)
		exit(usage(text));
	*target++ = '\0';
	char *ro = strstr(target, ":ro");
	if (ro)
		*ro = '\0';
	a->mounts[a->config.n_mounts++] = (struct box_mount){ text, target, ro != NULL };
}

static void add_secret(struct args *a, char *text)
{
	char *file = strchr(text, '=');
	if (!file || a->config.n_secrets == SECRETS)
		exit(usage(text));
	*file++ = '\0';
	a->secrets[a->config.n_secrets++] =
		(struct box_secret){ text, open(file, O_RDONLY | O_CLOEXEC) };
}

static const struct runtime_kind *kind(const char *name)
{
	const struct runtime_kind *k = runtime_find(name);
	if (!k)
		exit(usage(name));
	return k;
}

static void option(struct args *a, int c)
{
	struct box_config *f = &a->config;
	switch (c) {
	case 'r': f->kind = kind(optarg); break;
	case 'b': f->id_base = (uint32_t)strtoul(optarg, NULL, 0); break;
	case 'm': add_mount(a, optarg); break;
	case 's': add_secret(a, optarg); break;
	case 'H': f->host_image = true; break;
	case 'L': f->usr_local = true; break;
	case 'n': f->net_host = true; break;
	case 'h': f->hostname = optarg; break;
	case 'u': a->process.user = optarg; break;
	case 'w': a->process.cwd = optarg; break;
	case 't': a->process.timeout_ms = (uint32_t)strtoul(optarg, NULL, 0); break;
	case 'e':
		if (a->n_env == ENV)
			exit(usage("too many -e"));
		a->env[a->n_env++] = optarg;
		break;
	case 'M': f->limits.memory = strtoull(optarg, NULL, 0); break;
	case 'P': f->limits.pids = (uint32_t)strtoul(optarg, NULL, 0); break;
	case 'C': f->limits.cpu_milli = (uint32_t)strtoul(optarg, NULL, 0); break;
	case 'S': f->limits.shm = strtoull(optarg, NULL, 0); break;
	case 'p': a->pid = (uint32_t)strtoul(optarg, NULL, 0); break;
	case 'T': a->target = optarg; break;
	case 'f': a->force = true; break;
	case 'v': a->time = true; break;
	default: exit(125);
	}
}

static int run(struct args *a, const char *what, struct err *err)
{
	auto_buf out = { 0 };
	if (strcmp(what, "make") == 0)
		return box_make(&a->config, &a->process, err);
	if (strcmp(what, "first") == 0)
		return box_attach_first(&a->config, err);
	if (strcmp(what, "attach") == 0)
		return box_attach(&a->config, a->pid, &a->mounts[0], err);
	if (strcmp(what, "detach") == 0)
		return box_detach(&a->config, a->pid, a->target, a->force, err);
	if (strcmp(what, "exec") != 0)
		exit(usage(what));
	int r = box_exec_spec(&a->config, &a->process, &out, err);
	if (r == 0)
		(void)fwrite(out.data, 1, out.len, stdout);
	return r;
}

static int with_one_path(const char *what, const char *path, struct err *err)
{
	if (strcmp(what, "clear") == 0)
		return box_clear(path, ns(), err);
	if (strcmp(what, "freeze") == 0 || strcmp(what, "thaw") == 0)
		return box_freeze(path, ns(), *what == 'f', err);
	if (strcmp(what, "end") == 0)
		return box_end(path, err);
	if (strcmp(what, "fill") == 0)
		return hostimage_fill(path, err);
	if (strcmp(what, "points") == 0)
		return box_fill_root(path, err);
	return 1;
}

int main(int argc, char **argv)
{
	struct args a = { .config = { .kind = runtime_find(runtime_default()),
				      .ns = ns(),
				      .limits = BOX_LIMITS,
				      .id_base = IDS_FIRST } };
	struct err err = { 0 };
	if (argc < 3)
		return usage("too few");
	const char *fault = getenv("BOX_FAIL");
	char *good = NULL;
	if (fault)
		sys_fault_at(strtoull(fault, &good, 10), EPERM, good && *good == '+');
	uint64_t begun = clock_ns();
	int r = argc == 3 ? with_one_path(argv[1], argv[2], &err) : 1;
	if (r == 1) {
		const char *what = argv[1];
		static const char letters[] = "+r:b:m:s:HLnh:u:w:t:e:M:P:C:S:p:T:fv";
		for (int c; (c = getopt(argc - 1, argv + 1, letters)) != -1;)
			option(&a, c);
		char **rest = argv + 1 + optind;
		if (argc - 1 - optind < 2)
			return usage("DIR and ROOT");
		const char *slash = strrchr(rest[0], '/'), *init = getenv("BOUGH_INIT");
		a.config.dir = rest[0];
		a.config.id = slash ? slash + 1 : rest[0];
		a.config.root = rest[1];
		a.config.mounts = a.mounts;
		a.config.secrets = a.secrets;
		a.config.init = init ? init : "build/release/bough-init";
		a.process.env = a.env;
		/* "--" was the third argument's end, if it is there. */
		if (rest[2] && strcmp(rest[2], "--") == 0)
			a.process.argv = (const char *const *)rest + 3;
		r = run(&a, what, &err);
	}
	if (a.time)
		fprintf(stderr, "%.3f ms\n", (double)(clock_ns() - begun) / 1e6);
	if (r < 0)
		fprintf(stderr, "box_driver: %s\n", err.text);
	if (fault)
		fprintf(stderr, "struck: %d\n", sys_fault_hits() > 0);
	return r < 0 ? (-r < 124 ? -r : 124) : 0;
}
