/* doctor: what this machine offers to workspaces and sandboxes, and what is missing. */
#include <string.h>
#include "tools/bough/cli.h"
#include "tools/bough/doctor.h"
#include "tools/bough/json.h"
#include "tools/bough/out.h"

static const char *const level_words[] = {
	[DOCTOR_OK] = "ok",
	[DOCTOR_INFO] = "-",
	[DOCTOR_WARN] = "warning",
	[DOCTOR_MISSING] = "MISSING",
};

static void print_line(const struct doctor_line *l)
{
	static const char *const colours[] = {
		[DOCTOR_OK] = "\033[32m",
		[DOCTOR_INFO] = "",
		[DOCTOR_WARN] = "\033[33m",
		[DOCTOR_MISSING] = "\033[31m",
	};
	bool colour = out_colour(stdout) && *colours[l->level];
	printf("%-16s %s%-8s%s ", l->name, colour ? colours[l->level] : "", level_words[l->level],
	       colour ? "\033[0m" : "");
	out_clean(stdout, l->found);
	if (*l->advice) {
		printf(": ");
		out_clean(stdout, l->advice);
	}
	printf("\n");
}

static int print_json(const struct doctor_line *lines, unsigned n, bool able, struct err *err)
{
	static const char *const names[] = { "ok", "absent", "warning", "missing" };
	auto_json json_t *checks = json_array();
	for (unsigned i = 0; i < n; i++) {
		json_t *o = json_pack("{s:s, s:s, s:s, s:s}", "name", lines[i].name, "status",
				      names[lines[i].level], "found", lines[i].found, "advice",
				      lines[i].advice);
		if (!o || json_array_append_new(checks, o) < 0)
			return err_no_memory(err);
	}
	auto_json json_t *doc = json_pack("{s:b, s:O}", "able", able, "checks", checks);
	return doc ? out_json(doc, err) : err_no_memory(err);
}

int cmd_doctor(struct cli *cli, const struct args *a, struct err *err)
{
	struct doctor_line lines[DOCTOR_LINES_MAX] = { 0 };
	unsigned n = doctor_run(cli, lines);
	bool able = true;
	for (unsigned i = 0; i < n; i++)
		able = able && lines[i].level != DOCTOR_MISSING;
	if (cli->json) {
		int r = print_json(lines, n, able, err);
		return r < 0 ? r : able ? EXIT_CODE_OK : EXIT_CODE_FAILED;
	}
	for (unsigned i = 0; i < n; i++)
		if (!cli->quiet || lines[i].level > DOCTOR_INFO)
			print_line(&lines[i]);
	if (!cli->quiet)
		printf("\n%s\n",
		       able ? "Workspaces can run here."
			    : "Workspaces can't run here until what is MISSING is there.");
	return able ? EXIT_CODE_OK : EXIT_CODE_FAILED;
}
