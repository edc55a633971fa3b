/* Help, made from the table of commands. */
#include <string.h>
#include "tools/bough/cli.h"
#include "tools/bough/out.h"

enum { INDENT = 2, COLUMN = 28 }; /* where explanations begin */

static const char *bold(void)
{
	return out_colour(stdout) ? "\033[1m" : "";
}

static const char *plain(void)
{
	return out_colour(stdout) ? "\033[0m" : "";
}

static void two_columns(const char *left, const char *right)
{
	size_t w = out_width(left);
	printf("%*s%s", INDENT, "", left);
	if (w + INDENT + 2 > COLUMN)
		printf("\n%*s%s\n", COLUMN, "", right);
	else
		printf("%*s%s\n", (int)(COLUMN - INDENT - w), "", right);
}

static void print_options(const struct option_def *o)
{
	for (; o && o->name; o++) {
		char left[128];
		int n = o->letter ? snprintf(left, sizeof(left), "-%c, --%s", o->letter, o->name)
				  : snprintf(left, sizeof(left), "    --%s", o->name);
		if (o->value && n > 0 && (size_t)n < sizeof(left))
			(void)snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->value);
		two_columns(left, o->help);
	}
}

void help_overview(void)
{
	printf("usage: bough COMMAND [OPTION…] [OPERAND…]\n\n"
	       "Copy-on-write workspaces: real folders that fork in milliseconds.\n");
	const char *group = "";
	commands_each(c) {
		if (!c->summary)
			continue;
		if (strcmp(c->group, group) != 0)
			printf("\n%s%s%s\n", bold(), c->group, plain());
		group = c->group;
		char left[128];
		(void)snprintf(left, sizeof(left), "%s%s%s", c->name, *c->operands ? " " : "",
			       c->operands);
		two_columns(left, c->summary);
	}
	printf("\n%sEvery command takes%s\n", bold(), plain());
	print_options(common_options);
	printf("\n%sExit codes%s\n"
	       "  0 ok   1 failed   2 usage   3 not found   4 exists or conflict   5 busy\n"
	       "  6 out of space or quota\n\n"
	       "`bough COMMAND --help` shows its options and examples.\n",
	       bold(), plain());
}

static void print_common(void)
{
	printf("\n%sAs for every command%s\n", bold(), plain());
	print_options(common_options);
}

static void print_command(const struct command *c, bool common)
{
	printf("usage: bough %s%s%s%s\n\n%c%s.\n", c->name, c->options ? " [OPTION…]" : "",
	       *c->operands ? " " : "", c->operands,
	       c->summary[0] >= 'a' && c->summary[0] <= 'z' ? c->summary[0] - 32 : c->summary[0],
	       c->summary + 1);
	if (c->about)
		printf("%s", c->about);
	if (c->options) {
		printf("\n%sOptions%s\n", bold(), plain());
		print_options(c->options);
	}
	if (common)
		print_common();
	printf("\n%sExamples%s\n", bold(), plain());
	for (const char *p = c->examples; *p;) {
		size_t n = strcspn(p, "\n");
		printf("  $ %.*s\n", (int)n, p);
		p += n + (p[n] == '\n');
	}
}

void help_command(const struct command *c)
{
	print_command(c, true);
}

int help_group(const char *group)
{
	size_t n = strlen(group);
	bool any = false;
	commands_each(c) {
		if (strncmp(c->name, group, n) != 0 || c->name[n] != ' ')
			continue;
		if (any)
			printf("\n");
		any = true;
		print_command(c, false); /* what is the same for all stands once, at the end */
	}
	if (any)
		print_common();
	return any ? 0 : -ENOENT;
}

int cmd_help(struct cli *cli, const struct args *a, struct err *err)
{
	if (a->n == 0) {
		help_overview();
		return 0;
	}
	const char *second = a->n > 1 ? a->operands[1] : NULL;
	const struct command *c = command_find(a->operands[0], second);
	if (c && c->summary) {
		help_command(c);
		return 0;
	}
	if (!second && help_group(a->operands[0]) == 0)
		return 0;
	const char *near = nearest_command(second ? a->operands[0] : NULL,
					   second ? second : a->operands[0]);
	return err_set(err, -EINVAL, "no command \"%s%s%s\"; %s%s%s", a->operands[0],
		       second ? " " : "", second ? second : "", near ? "did you mean \"" : "",
		       near ? near : "`bough help` lists them", near ? "\"?" : "");
}
