/* The service itself: up, down, gc, fsck, stats. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/cli.h"
#include "tools/bough/json.h"
#include "tools/bough/out.h"
#include "tools/bough/sandbox.h"
#include "tools/bough/start.h"

enum { STOP_WAIT_MS = 60 * 1000 }; /* a big store's last syncs */

/* ---- up, down ---- */

static int get_health(struct cli *cli, json_t **out, struct err *err)
{
	auto_target t = target_new("/v1/health");
	return api_call(cli, "GET", &t, NULL, out, NULL, err);
}

/* Tells which workspaces should be mounted and aren't; the number of them. */
static int count_failed(const json_t *items, unsigned *mounted, struct err *err)
{
	size_t i;
	json_t *ws;
	int failed = 0;
	json_array_foreach(items, i, ws) {
		*mounted += get_true(ws, "mounted");
		if (!*get_text(ws, "error"))
			continue;
		if (failed++ == 0)
			(void)err_set(err, -EIO, "%s: %s", get_text(ws, "name"),
				      get_text(ws, "error"));
	}
	return failed;
}

int cmd_up(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *health = NULL, *list = NULL;
	int r = get_health(cli, &health, err);
	if (r < 0)
		return r;
	auto_target t = target_new("/v1/workspaces");
	r = api_call(cli, "GET", &t, NULL, &list, NULL, err);
	if (r < 0)
		return r;
	unsigned mounted = 0;
	json_t *items = json_object_get(list, "items");
	int failed = count_failed(items, &mounted, err);
	if (cli->json) {
		auto_json json_t *doc = json_copy(health);
		if (!doc || json_object_set(doc, "workspaces", items) < 0)
			return err_no_memory(err);
		cli->reported = true;
		r = out_json(doc, err);
	} else if (!cli->quiet) {
		printf("boughd %s runs (pid %lld) on %s: %zu workspaces, %u mounted\n",
		       get_text(health, "version"), (long long)get_int(health, "pid"), cli->root,
		       json_array_size(items), mounted);
	}
	if (r == 0 && failed > 1)
		return err_prefix(err, -EIO, "%d workspaces aren't mounted, the first is", failed);
	return r == 0 && failed ? err_prefix(err, -EIO, "not mounted") : r;
}

/* A daemon that isn't there; anything else is an error. */
static int daemon_runs(struct cli *cli, struct err *err)
{
	struct http *h = NULL;
	int r = daemon_connect(cli, &h, err);
	http_free(h);
	return r == -ENOENT || r == -ECONNREFUSED ? 0 : r < 0 ? r : 1;
}

/* Which programs lost something, and what. */
static void tell_in_use(const json_t *ended)
{
	enum { NAMED_MAX = 8 };
	size_t i, k;
	json_t *ws, *p;
	json_array_foreach(json_object_get(ended, "in_use"), i, ws) {
		const json_t *all = json_object_get(ws, "processes");
		fprintf(stderr, "bough: ");
		out_clean(stderr, get_text(ws, "name"));
		fprintf(stderr, " was in use by ");
		json_array_foreach((json_t *)(uintptr_t)all, k, p) {
			if (k == NAMED_MAX)
				break;
			fprintf(stderr, "%s", k ? ", " : "");
			out_clean(stderr, get_text(p, "program"));
			fprintf(stderr, " (pid %lld)", (long long)get_int(p, "pid"));
		}
		if (json_array_size(all) > NAMED_MAX)
			fprintf(stderr, " and %zu more", json_array_size(all) - NAMED_MAX);
		fprintf(stderr, ": what is open there fails now; `bough up` mounts it again\n");
	}
}

static int print_down(struct cli *cli, const json_t *ended, struct err *err)
{
	if (!cli->json) {
		if (!ended && !cli->quiet)
			fprintf(stderr, "bough: the service isn't running\n");
		else if (!cli->quiet)
			tell_in_use(ended);
		return 0;
	}
	json_t *used = json_object_get(ended, "in_use");
	auto_json json_t *doc = json_pack("{s:b, s:O*}", "was_running", ended != NULL, "in_use",
					  used);
	return doc ? out_json(doc, err) : err_no_memory(err);
}

static int await_end(int pidfd, struct err *err)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int n;
	do
		n = poll(&p, 1, STOP_WAIT_MS);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(err, -errno, "wait for boughd");
	if (n == 0)
		return err_set(err, -ETIMEDOUT, "boughd is still ending after %d s: see its log",
			       STOP_WAIT_MS / 1000);
	return 0;
}

int cmd_down(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *health = NULL, *body = json_object(), *ended = NULL;
	int r = body ? sandbox_set_grace(body, a, err) : err_no_memory(err);
	if (r < 0)
		return r;
	r = daemon_runs(cli, err);
	if (r <= 0)
		return r < 0 ? r : print_down(cli, NULL, err);
	r = get_health(cli, &health, err);
	if (r < 0)
		return r;
	int64_t pid = get_int(health, "pid");
	/* Held before it is told to end, so no other process can take its number meanwhile. */
	auto_fd pidfd = pid > 0 && pid <= INT_MAX ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0)
						  : -1;
	auto_target t = target_new("/v1/shutdown");
	r = api_call(cli, "POST", &t, body, &ended, NULL, err);
	if (r == 0 && pidfd >= 0)
		r = await_end(pidfd, err);
	return r < 0 ? r : print_down(cli, ended, err);
}

/* ---- upgrade ---- */

/* One that systemd runs is systemd's to end and to start. */
static bool is_service(int64_t pid)
{
	char path[64], line[512];
	bool found = false;
	(void)snprintf(path, sizeof(path), "/proc/%lld/cgroup", (long long)pid);
	auto_file *f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "/boughd.service") != NULL;
	return found;
}

/* boughd alone: the workspaces stay mounted. */
static int end_daemon(struct cli *cli, struct err *err)
{
	auto_json json_t *health = NULL;
	int r = get_health(cli, &health, err);
	if (r < 0)
		return r;
	int64_t pid = get_int(health, "pid");
	if (is_service(pid))
		return err_set(err, -EBUSY, "systemd runs boughd: systemctl restart boughd");
	auto_fd pidfd = pid > 0 && pid <= INT_MAX ? (int)syscall(SYS_pidfd_open, (pid_t)pid, 0)
						  : -1;
	if (pidfd < 0 || syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0) < 0)
		return err_sys(err, -errno, "end boughd (pid %lld)", (long long)pid);
	return await_end(pidfd, err);
}

int cmd_upgrade(struct cli *cli, const struct args *a, struct err *err)
{
	int r = daemon_runs(cli, err);
	if (r > 0 && daemon_is_others(cli))
		return err_set(err, -EACCES,
			       "boughd is another user's: that one or root may do it");
	if (r > 0 && (r = daemon_check(cli, err)) == 0)
		r = end_daemon(cli, err);
	return r < 0 ? r : cmd_up(cli, a, err); /* which starts the one beside us */
}

/* ---- gc, fsck ---- */

/* "packs_deleted" as "packs deleted"; members that are bytes as sizes, nanoseconds ("cpu_ns") as
 * times ("cpu"). */
static void print_member(const struct cli *cli, const char *key, const json_t *v, int indent)
{
	char name[64], size[OUT_SIZE_MAX];
	size_t n = 0;
	bool bytes = strstr(key, "bytes") != NULL;
	for (; key[n] && n + 1 < sizeof(name); n++)
		name[n] = key[n] == '_' ? ' ' : key[n];
	name[n] = 0;
	bool time = n > 3 && !strcmp(name + n - 3, " ns") && !cli->bytes && json_is_integer(v);
	if (time)
		name[n - 3] = 0;
	printf("%*s%-24s ", indent, "", name);
	if (time)
		printf("%12s\n", out_duration(size, json_integer_value(v)));
	else if (json_is_integer(v))
		printf("%12s\n", out_size(size, json_integer_value(v), !bytes || cli->bytes));
	else if (json_is_real(v))
		printf("%12.2f\n", json_real_value(v));
	else if (json_string_length(v) > 0) {
		out_clean(stdout, json_string_value(v));
		printf("\n");
	} else
		printf("%12s\n", json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-");
}

static void print_members(const struct cli *cli, const json_t *o, int indent)
{
	const char *k;
	json_t *v;
	json_object_foreach((json_t *)o, k, v)
		if (!json_is_object(v) && !json_is_array(v))
			print_member(cli, k, v, indent);
}

int cmd_gc(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *doc = NULL;
	auto_target t = target_new("/v1/gc");
	struct progress p;
	if (args_get(a, "background"))
		return api_background(cli, "POST", &t, NULL, err);
	progress_begin(&p, cli, "collecting");
	int r = api_job(cli, "POST", &t, NULL, NULL, &p, &doc, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(doc, err);
	print_members(cli, doc, 0);
	return 0;
}

/* `before` stands before the first one. Returns what stands before the next one. */
static const char *print_names(const json_t *names, const char *before)
{
	size_t i;
	json_t *name;
	json_array_foreach(names, i, name) {
		printf("%s", before);
		out_clean(stdout, json_string_value(name) ? json_string_value(name) : "?");
		before = " ";
	}
	return before;
}

static void print_fault(const json_t *f)
{
	out_clean(stdout, get_text(f, "where"));
	printf(": ");
	out_clean(stdout, get_text(f, "what"));
	if (*get_text(f, "object")) {
		printf(", object ");
		out_clean(stdout, get_text(f, "object"));
	}
	const char *before = print_names(json_object_get(f, "workspaces"), ", needed by ");
	(void)print_names(json_object_get(f, "snapshots"), before);
	printf("%s\n", get_true(f, "repaired") ? " (repaired)" : "");
}

int cmd_fsck(struct cli *cli, const struct args *a, struct err *err)
{
	bool repair = args_get(a, "repair");
	auto_json json_t *body = json_pack("{s:b}", "repair", repair), *doc = NULL;
	if (!body)
		return err_no_memory(err);
	auto_target t = target_new("/v1/fsck");
	struct progress p;
	if (args_get(a, "background"))
		return api_background(cli, "POST", &t, body, err);
	progress_begin(&p, cli, "checking");
	int r = api_job(cli, "POST", &t, body, NULL, &p, &doc, err);
	if (r < 0)
		return r;
	size_t i, left = 0, more = (size_t)get_int(doc, "more_faults");
	json_t *f, *faults = json_object_get(doc, "faults");
	json_array_foreach(faults, i, f) {
		left += !get_true(f, "repaired");
		if (!cli->json)
			print_fault(f);
	}
	if (more && !cli->json)
		printf("and %zu more\n", more);
	if (cli->json) {
		cli->reported = true;
		r = out_json(doc, err);
	} else if (!cli->quiet) {
		print_members(cli, json_object_get(doc, "checked"), 0);
	}
	if (r == 0 && (left || more))
		return err_set(
			err, -EUCLEAN, "%zu fault%s%s", left + more, left + more == 1 ? "" : "s",
			repair ? " couldn't be repaired: restore what they name from an export"
			       : ": `bough fsck --repair` rebuilds what it can");
	if (r == 0 && !cli->json && !cli->quiet)
		printf("%s\n", json_array_size(faults) ? "all faults are repaired" : "clean");
	return r;
}

/* ---- stats ---- */

struct opcode {
	const char *name;
	int64_t n;
};

static int by_count(const void *a, const void *b)
{
	const struct opcode *x = a, *y = b;
	return x->n != y->n ? (x->n < y->n ? 1 : -1) : strcmp(x->name, y->name);
}

static int print_opcodes(const json_t *opcodes, struct err *err)
{
	size_t n = json_object_size(opcodes), i = 0;
	auto_free struct opcode *list = calloc(n + 1, sizeof(*list));
	if (!list)
		return err_no_memory(err);
	int64_t total = 0;
	const char *k;
	json_t *v;
	json_object_foreach((json_t *)opcodes, k, v) {
		list[i++] = (struct opcode){ k, json_integer_value(v) };
		total += json_integer_value(v);
	}
	qsort(list, n, sizeof(*list), by_count);
	static const char *const headings[] = { "REQUEST", ">COUNT", ">SHARE", NULL };
	auto_table *table = table_new(headings);
	for (i = 0; i < n && list[i].n > 0; i++) {
		char count[OUT_SIZE_MAX], share[OUT_SIZE_MAX];
		(void)snprintf(share, sizeof(share), "%.1f%%",
			       100.0 * (double)list[i].n / (double)total);
		const char *cells[] = { list[i].name, out_size(count, list[i].n, true), share };
		table_row(table, cells);
	}
	char count[OUT_SIZE_MAX];
	const char *cells[] = { "total", out_size(count, total, true), "" };
	table_row(table, cells);
	return table_print(table, stdout, err);
}

int cmd_stats(struct cli *cli, const struct args *a, struct err *err)
{
	if (a->n > 0)
		return cmd_stats_of(cli, a, err);
	auto_json json_t *doc = NULL;
	auto_target t = target_new("/v1/stats");
	int r = api_call(cli, "GET", &t, NULL, &doc, NULL, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(doc, err);
	const char *section, *sub;
	json_t *v, *w;
	json_object_foreach(doc, section, v) {
		if (!json_is_object(v))
			continue;
		printf("%s\n", section);
		print_members(cli, v, 2);
		json_object_foreach(v, sub, w) {
			if (!json_is_object(w) || !strcmp(sub, "opcodes") || !strcmp(sub, "mounts"))
				continue;
			printf("  %s\n", sub);
			print_members(cli, w, 4);
		}
		printf("\n");
	}
	json_t *opcodes = json_object_get(json_object_get(doc, "fs"), "opcodes");
	return json_is_object(opcodes) ? print_opcodes(opcodes, err) : 0;
}
