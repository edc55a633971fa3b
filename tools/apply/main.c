/* bough-apply: a commit of a workspace into a checkout, with the rights of whoever calls it. */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "tools/apply/apply.h"

static const char help[] =
	"usage: bough-apply [OPTION]... CHECKOUT <BUNDLE\n"
	"\n"
	"Reads a git bundle of one commit from stdin, merges it into the checkout's HEAD three\n"
	"ways, and writes the files and the index: all of it or nothing. `bough apply` runs it.\n"
	"\n"
	"  --commit             and commit, with the bundle's message and author\n"
	"  --patch              write the files only, not the index\n"
	"  --json               what was done, or what conflicts, as JSON on stdout\n"
	"  --help, --version\n"
	"\n"
	"example:\n"
	"  git bundle create - ^v1 topic | bough-apply --commit ~/src/project\n"
	"\n"
	"No hooks and no filter programs run. Exit codes: 0 done; 1 failed; 2 usage; 3 no such\n"
	"repository, or it lacks the base commit; 4 conflicts, which are listed; 5 it is in the\n"
	"middle of a merge.\n";

static void say(const char *line)
{
	(void)fprintf(stderr, "bough-apply: %s\n", line); /* nowhere else to say that it failed */
}

static int exit_code(int r)
{
	switch (r) {
	case -ENOENT:
		return 3;
	case -ESTALE:
		return 4;
	case -EBUSY:
		return 5;
	default:
		return r < 0 ? 1 : 0;
	}
}

/* JSON carries UTF-8 only: in another name the bytes outside of ASCII are shown as \\xNN. */
static json_t *path_json(const char *path)
{
	json_t *j = json_string(path);
	auto_buf text = { 0 };
	for (const char *s = path; !j && *s; s++)
		buf_printf(&text, (unsigned char)*s < 0x80 ? "%c" : "\\x%02x", (unsigned char)*s);
	return j || buf_error(&text) ? j : json_stringn((char *)text.data, text.len);
}

static int print_json(const struct apply_result *res, int r)
{
	json_t *paths = json_array();
	for (size_t i = 0; i < res->n; i++)
		(void)json_array_append_new(paths, path_json(res->paths[i])); /* counted below */
	json_t *j = json_pack("{s:o, s:s*}", r == -ESTALE ? "conflicts" : "paths", paths, "commit",
			      res->commit[0] ? res->commit : NULL);
	int bad = j && json_array_size(paths) == res->n
			  ? json_dumpf(j, stdout, JSON_INDENT(2)) < 0 || putchar('\n') < 0
			  : 1;
	json_decref(j);
	return bad || fflush(stdout) != 0;
}

static int print(const struct apply_result *res, int r, const char *checkout)
{
	if (r == -ESTALE)
		for (size_t i = 0; i < res->n; i++)
			(void)fprintf(stderr, "  %s\n", res->paths[i]); /* as in say */
	if (r < 0)
		return 0;
	if (res->n == 0)
		(void)printf("%s has all of it already\n", checkout);
	else if (res->commit[0])
		(void)printf("%zu file%s in %s, commit %.12s\n", res->n, res->n == 1 ? "" : "s",
			     checkout, res->commit);
	else
		(void)printf("%zu file%s in %s\n", res->n, res->n == 1 ? "" : "s", checkout);
	return fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "commit", no_argument, NULL, 'c' },  { "patch", no_argument, NULL, 'p' },
		{ "json", no_argument, NULL, 'j' },    { "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' }, { 0 },
	};
	enum apply_mode mode = APPLY_INDEX;
	bool json = false;
	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		switch (c) {
		case 'c':
		case 'p':
			if (mode != APPLY_INDEX) {
				say("either --commit or --patch");
				return 2;
			}
			mode = c == 'c' ? APPLY_COMMIT : APPLY_FILES;
			break;
		case 'j':
			json = true;
			break;
		case 'h':
			return fputs(help, stdout) < 0 || fflush(stdout) != 0;
		case 'v':
			return puts("bough-apply " BOUGH_VERSION) < 0 || fflush(stdout) != 0;
		default:
			return 2;
		}
	}
	if (argc - optind != 1 || isatty(STDIN_FILENO)) {
		say(argc - optind != 1 ? "one checkout must be given (--help shows how)"
				       : "stdin is a terminal: pipe a bundle into it");
		return 2;
	}
	struct apply_result res = { 0 };
	struct err err = { 0 };
	int r = apply_bundle(&res, STDIN_FILENO, argv[optind], mode, &err);
	if (r < 0)
		say(err.text);
	int bad = json && (r >= 0 || r == -ESTALE) ? print_json(&res, r)
						   : print(&res, r, argv[optind]);
	apply_result_done(&res);
	return r < 0 ? exit_code(r) : bad;
}
