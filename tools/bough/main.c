/* bough: the command line. Everything is done by boughd over its socket; see api.h. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"
#include "tools/bough/out.h"
#include "tools/bough/remote.h"

/* The API's word for a failure that the API didn't report. */
static const char *error_code(int exit_code)
{
	switch (exit_code) {
	case EXIT_CODE_USAGE:
		return "invalid";
	case EXIT_CODE_NOT_FOUND:
		return "not_found";
	case EXIT_CODE_EXISTS:
		return "exists";
	case EXIT_CODE_BUSY:
		return "busy";
	case EXIT_CODE_SPACE:
		return "no_space";
	default:
		return "failed";
	}
}

static void print_error(struct cli *cli, const struct err *err, int code)
{
	(void)fflush(stdout);
	(void)fputs("bough: ", stderr);
	out_clean(stderr, err->text);
	(void)fputc('\n', stderr);
	if (!cli->json || cli->reported)
		return;
	/* With --json the program that reads stdout finds the reason there too. */
	json_t *e = cli->detail ? json_loads(cli->detail, 0, NULL) : NULL;
	if (!e)
		e = json_pack("{s:s, s:s}", "code", error_code(code), "message", err->text);
	json_t *doc = json_pack("{s:o, s:i}", "error", e, "exit", code);
	if (doc)
		(void)out_json(doc, NULL);
	json_decref(doc);
}

/* "--quota" of "quota_bytes". */
static bool option_gives(const char *option, const char *field)
{
	static const char *const units[] = { "", "s", "_s", "_ms", "_bytes" };
	for (; *option; option++, field++)
		if (*field != (*option == '-' ? '_' : *option))
			return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(field, units[i]) == 0)
			return true;
	return false;
}

/* boughd names its field: where an option gave that, it is the one to name; where what is wrong
 * is shown, nothing is. */
static void name_option(const struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *e = cli->detail ? json_loads(cli->detail, 0, NULL) : NULL;
	const char *field = get_text(json_object_get(e, "details"), "field");
	char quoted[64], text[sizeof(err->text)];
	size_t n = (size_t)snprintf(quoted, sizeof(quoted), "\"%.58s\": ", field);
	char *at = *field ? strstr(err->text, quoted) : NULL;
	if (!at)
		return;
	memcpy(text, at + n, strlen(at + n) + 1);
	for (unsigned i = 0; i < a->values_n; i++)
		if (option_gives(a->values[i].opt->name, field)) {
			(void)snprintf(at, sizeof(err->text) - (size_t)(at - err->text), "--%s: %s",
				       a->values[i].opt->name, text);
			return;
		}
	if (*text == '"')
		memcpy(at, text, strlen(text) + 1);
}

static int run(struct cli *cli, const struct args *a, struct err *err)
{
	if (a->version) {
		printf("bough " BOUGH_VERSION "\n");
		return 0;
	}
	if (a->help) {
		if (a->cmd)
			help_command(a->cmd);
		else if (a->n > 0)
			return help_group(a->operands[0]);
		else
			help_overview();
		return 0;
	}
	if (!a->cmd)
		return err_set(err, -EINVAL, "it needs a command; `bough help` lists them");
	int r = cli_root(args_get(a, "root"), &cli->root, err);
	if (r == 0)
		r = cli_remote(a, &cli->remote, err);
	if (r < 0)
		return r;
	if (cli->remote && a->cmd->local)
		return err_set(err, -EINVAL, "%s: not with --url: %s", a->cmd->name,
			       a->cmd->local);
	cli->root_there = !a->cmd->begins && (args_get(a, "root") || getenv("BOUGH_ROOT"));
	cli->sandbox_too = a->cmd->kinds && a->cmd->kinds[0] == WORD_ANY;
	r = a->cmd->run(cli, a, err);
	if (r == -EINVAL)
		name_option(cli, a, err);
	return r < 0 ? err_prefix(err, r, "%s", a->cmd->name) : r;
}

/* Descriptors 0, 1 and 2 are taken, so that nothing printed ends up in a socket or a file. */
static void guard_standard_files(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= 2);
	cleanup_close(&fd);
}

/* Whether JSON was asked for, when the line couldn't be parsed. */
static bool wants_json(char **argv)
{
	for (; *argv && strcmp(*argv, "--") != 0; argv++)
		if (!strcmp(*argv, "--json"))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct cli cli = { 0 };
	struct args a;
	struct err err = { 0 };
	guard_standard_files();
	int r = args_parse(&a, argc, argv, &err);
	cli.json = args_get(&a, "json") || (r < 0 && wants_json(argv));
	cli.quiet = args_get(&a, "quiet");
	cli.bytes = args_get(&a, "bytes");
	if (r == 0)
		r = run(&cli, &a, &err);
	/* Output that didn't arrive is a failure, whatever the command says. */
	if (fflush(stdout) == EOF || ferror(stdout))
		r = r < 0 ? r : err_set(&err, -EIO, "write to stdout: is the disk full?");
	int code = r >= 0 ? r : a.cmd && a.cmd->as_program ? EXIT_CODE_OURS : cli_exit_code(r);
	if (r < 0)
		print_error(&cli, &err, code);
	(void)fflush(stdout);
	args_done(&a);
	free(cli.detail);
	json_decref(cli.users);
	free(cli.kind_name);
	/* Threads beside a stream (attach.c) may still call: root and remote stay. */
	exit(code);
}
