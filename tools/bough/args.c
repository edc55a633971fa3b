/* Arguments by the table: options anywhere, "--" ends them, unknown words name the nearest. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/cli.h"

enum { WORD_MAX = 48 }; /* longer words aren't compared: no name of ours is that long */

/* ---- the nearest word ---- */

/* Changed, missing, surplus or swapped letters between a and the first m of b; WORD_MAX when too
 * long. */
static unsigned distance(const char *a, const char *b, size_t m)
{
	size_t n = strlen(a);
	if (n >= WORD_MAX || m >= WORD_MAX)
		return WORD_MAX;
	unsigned d[WORD_MAX + 1][WORD_MAX + 1];
	for (size_t i = 0; i <= n; i++)
		d[i][0] = (unsigned)i;
	for (size_t j = 0; j <= m; j++)
		d[0][j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		for (size_t j = 1; j <= m; j++) {
			unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[n][m];
}

struct nearest {
	const char *word, *best;
	unsigned distance;
};

static void consider(struct nearest *s, const char *candidate)
{
	size_t n = strlen(s->word);
	unsigned d = distance(s->word, candidate, strcspn(candidate, " ")); /* or its group's */
	if (n >= 2 && strncmp(candidate, s->word, n) == 0)
		d = 1; /* only begun */
	/* Of a short word little is left. */
	if (d < s->distance && (d <= 1 || d <= (n + 1) / 3)) {
		s->distance = d;
		s->best = candidate;
	}
}

const char *nearest_command(const char *group, const char *word)
{
	struct nearest s = { .word = word, .distance = WORD_MAX };
	size_t g = group ? strlen(group) : 0;
	commands_each(c) {
		if (!c->summary)
			continue; /* hidden */
		if (!group)
			consider(&s, c->name);
		else if (strncmp(c->name, group, g) == 0 && c->name[g] == ' ')
			consider(&s, c->name + g + 1);
	}
	if (!group) /* a group's own name counts as a command */
		commands_each(c)
			if (strchr(c->name, ' ') && strncmp(c->name, word, strlen(word)) == 0)
				s.best = s.best ? s.best : c->name;
	return s.best;
}

static const char *nearest_option(const struct command *cmd, const char *word)
{
	struct nearest s = { .word = word, .distance = WORD_MAX };
	for (const struct option_def *o = cmd ? cmd->options : NULL; o && o->name; o++)
		consider(&s, o->name);
	for (const struct option_def *o = common_options; o->name; o++)
		consider(&s, o->name);
	return s.best;
}

/* ---- looking up ---- */

const struct command *command_find(const char *first, const char *second)
{
	size_t n = strlen(first);
	commands_each(c) {
		if (!second && strcmp(c->name, first) == 0)
			return c;
		if (second && strncmp(c->name, first, n) == 0 && c->name[n] == ' ' &&
		    strcmp(c->name + n + 1, second) == 0)
			return c;
	}
	return NULL;
}

bool command_is_group(const char *word)
{
	size_t n = strlen(word);
	commands_each(c)
		if (strncmp(c->name, word, n) == 0 && c->name[n] == ' ')
			return true;
	return false;
}

static const struct option_def *find_in(const struct option_def *o, const char *name, size_t n,
					char letter)
{
	for (; o && o->name; o++)
		if (letter ? o->letter == letter
			   : strlen(o->name) == n && !memcmp(o->name, name, n))
			return o;
	return NULL;
}

static const struct option_def *find_option(const struct args *a, const char *name, size_t n,
					    char letter)
{
	const struct option_def *o = find_in(a->cmd ? a->cmd->options : NULL, name, n, letter);
	return o ? o : find_in(common_options, name, n, letter);
}

/* ---- parsing ---- */

static int check_choice(const struct option_def *o, const char *value, struct err *err)
{
	size_t n = strlen(value);
	for (const char *p = o->choices; p && *p;) {
		size_t k = strcspn(p, " ");
		if (k == n && memcmp(p, value, n) == 0)
			return 0;
		p += k + (p[k] == ' ');
	}
	return err_set(err, -EINVAL, "--%s is one of: %s", o->name, o->choices);
}

static int take_value(struct args *a, const struct option_def *o, const char *value,
		      struct err *err)
{
	if (!o->many && o->value && args_get(a, o->name))
		return err_set(err, -EINVAL, "--%s is given twice", o->name);
	if (value && o->kind == WORD_CHOICE) {
		int r = check_choice(o, value, err);
		if (r < 0)
			return r;
	}
	if (o == find_in(common_options, "help", 4, 0))
		a->help = true;
	else if (o == find_in(common_options, "version", 7, 0))
		a->version = true;
	a->values[a->values_n++] = (struct arg_value){ o, value };
	return 0;
}

/* Whether a program's own words have begun: `bough run ls -l` means no label. */
static bool in_program(const struct args *a)
{
	const struct command *c = a->cmd;
	return c && ((c->run == cmd_run && a->n > 0) || (c->run == cmd_exec && a->n > 1));
}

/* "--name", "--name=value", "--name value". `next` is the following word or NULL; the result
 * tells how many words were used. */
static int parse_long(struct args *a, const char *word, const char *next, struct err *err)
{
	const char *name = word + 2, *eq = strchr(name, '=');
	size_t n = eq ? (size_t)(eq - name) : strlen(name);
	const struct option_def *o = find_option(a, name, n, 0);
	if (!o) {
		auto_free char *typed = strndup(name, n);
		const char *near = typed ? nearest_option(a->cmd, typed) : NULL;
		if (near)
			return err_set(err, -EINVAL, "no option --%.*s; did you mean --%s?", (int)n,
				       name, near);
		return err_set(err, -EINVAL, "no option --%.*s; `bough %s%s--help` lists them",
			       (int)n, name, a->cmd ? a->cmd->name : "", a->cmd ? " " : "");
	}
	if (!o->value && eq)
		return err_set(err, -EINVAL, "--%s takes no value", o->name);
	if (o->value && !eq && !next)
		return err_set(err, -EINVAL, "--%s needs its %s", o->name, o->value);
	int r = take_value(a, o, !o->value ? NULL : eq ? eq + 1 : next, err);
	return r < 0 ? r : o->value && !eq ? 2 : 1;
}

/* "-a", "-ab", "-nVALUE", "-n VALUE". */
static int parse_letters(struct args *a, const char *word, const char *next, struct err *err)
{
	for (const char *p = word + 1; *p; p++) {
		const struct option_def *o = find_option(a, "", 0, *p);
		if (!o)
			return err_set(err, -EINVAL, "no option -%c; `bough %s%s--help` lists them",
				       *p, a->cmd ? a->cmd->name : "", a->cmd ? " " : "");
		if (o->value && !p[1] && !next)
			return err_set(err, -EINVAL, "-%c needs its %s", *p, o->value);
		int r = take_value(a, o, !o->value ? NULL : p[1] ? p + 1 : next, err);
		if (r < 0)
			return r;
		if (o->value)
			return p[1] ? 1 : 2;
	}
	return 1;
}

/* A word that isn't an option: the command's name while that isn't known, else an operand. */
static int parse_word(struct args *a, const char *word, const char **group, struct err *err)
{
	if (a->cmd) {
		a->operands[a->n++] = word;
		return 1;
	}
	a->cmd = *group ? command_find(*group, word) : command_find(word, NULL);
	if (a->cmd)
		return 1;
	if (!*group && command_is_group(word)) {
		*group = word;
		return 1;
	}
	const char *near = nearest_command(*group, word);
	const char *g = *group ? *group : "", *gap = *group ? " " : "";
	if (near)
		return err_set(err, -EINVAL, "no command \"%s%s%s\"; did you mean \"%s%s%s\"?", g,
			       gap, word, g, gap, near);
	return err_set(err, -EINVAL, "no command \"%s%s%s\"; `bough help` lists them", g, gap,
		       word);
}

static int check_count(const struct args *a, struct err *err)
{
	const struct command *c = a->cmd;
	if (a->n < c->min)
		return err_set(err, -EINVAL, "%s: it needs %s; usage: bough %s %s", c->name,
			       a->n ? "more" : c->operands, c->name, c->operands);
	if (a->n > c->max)
		return err_set(err, -EINVAL, "%s: \"%s\" is too much; usage: bough %s%s%s", c->name,
			       a->operands[c->max], c->name, *c->operands ? " " : "", c->operands);
	/* Of words for another program any may be empty. */
	unsigned names = c->run == cmd_complete || c->run == cmd_run ? 0
			 : c->run == cmd_exec                        ? 1
								     : a->n;
	for (unsigned i = 0; i < names && i < a->n; i++)
		if (!*a->operands[i])
			return err_set(err, -EINVAL, "%s: a name can't be empty", c->name);
	return 0;
}

int args_parse(struct args *a, int argc, char **argv, struct err *err)
{
	*a = (struct args){ 0 };
	a->operands = calloc((size_t)argc + 1, sizeof(*a->operands));
	/* One word may hold many letters, so the values are bounded by all characters. */
	size_t most = 1;
	for (int i = 0; i < argc; i++)
		most += strlen(argv[i]);
	a->values = calloc(most, sizeof(*a->values));
	if (!a->operands || !a->values)
		return err_no_memory(err);
	const char *group = NULL;
	bool raw = false; /* behind "--" */
	for (int i = 1; i < argc;) {
		const char *w = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
		int used;
		if (raw || w[0] != '-' || !w[1])
			used = parse_word(a, w, &group, err);
		else if (!strcmp(w, "--"))
			raw = true, used = 1;
		else if (in_program(a))
			used = err_set(err, -EINVAL, "%s: a command with options goes behind --",
				       w);
		else
			used = w[1] == '-' ? parse_long(a, w, next, err)
					   : parse_letters(a, w, next, err);
		if (used < 0)
			return a->cmd ? err_prefix(err, used, "%s", a->cmd->name) : used;
		i += used;
		if (a->cmd && a->cmd->run == cmd_complete) { /* its words are another's line */
			i += i < argc && !strcmp(argv[i], "--");
			while (i < argc)
				a->operands[a->n++] = argv[i++];
		}
	}
	if (!a->cmd && group && !a->help)
		a->cmd = command_find(group, "ls");
	if (!a->cmd && group && a->help) { /* "bough snapshots --help" */
		a->operands[a->n++] = group;
		return 0;
	}
	return !a->cmd || a->help || a->version ? 0 : check_count(a, err);
}

void args_done(struct args *a)
{
	free(a->operands);
	free(a->values);
	*a = (struct args){ 0 };
}

const char *args_each(const struct args *a, const char *name, unsigned i)
{
	for (unsigned k = 0; k < a->values_n; k++)
		if (!strcmp(a->values[k].opt->name, name) && i-- == 0)
			return a->values[k].value ? a->values[k].value : "";
	return NULL;
}

const char *args_get(const struct args *a, const char *name)
{
	const char *last = NULL;
	for (unsigned k = 0; k < a->values_n; k++)
		if (!strcmp(a->values[k].opt->name, name))
			last = a->values[k].value ? a->values[k].value : "";
	return last;
}

/* ---- numbers ---- */

enum { DIGITS_MAX = 10 }; /* of either part of a time: times a day's milliseconds 64 bits hold it */

static const char *take_digits(const char *p, uint64_t *out)
{
	*out = 0;
	for (int n = 0; n < DIGITS_MAX && *p >= '0' && *p <= '9'; n++)
		*out = *out * 10 + (uint64_t)(*p++ - '0');
	return p;
}

int args_duration(const char *text, const char *what, uint64_t *out, struct err *err)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} units[] = { { "", 1000 },   { "ms", 1 },      { "s", 1000 },
		      { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
	uint64_t whole, part = 0, parts = 1, unit = 0;
	const char *p = take_digits(text, &whole), *dot = p;
	bool digits = p > text;
	if (digits && *p == '.') {
		p = take_digits(dot + 1, &part);
		digits = p > dot + 1;
	}
	for (const char *d = dot + 1; d < p; d++)
		parts *= 10;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(p, units[i].name) == 0)
			unit = units[i].ms;
	if (!digits || !unit || part * unit % parts)
		return err_set(err, -EINVAL,
			       "%s takes a time like 500ms, 90s, 30m, 24h or 7d, not \"%s\"", what,
			       text);
	*out = whole * unit + part * unit / parts;
	return 0;
}

int args_seconds(const char *text, const char *what, uint64_t *out, struct err *err)
{
	uint64_t ms;
	int r = args_duration(text, what, &ms, err);
	if (r == 0)
		*out = (ms + 999) / 1000;
	return r;
}

int args_number(const char *text, const char *what, uint64_t min, uint64_t max, uint64_t *out,
		struct err *err)
{
	uint64_t v = 0;
	const char *p = text;
	bool over = false;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			over = true;
	if (p == text || *p)
		return err_set(err, -EINVAL, "%s: \"%s\" isn't a number", what, text);
	if (over || v < min || v > max)
		return err_set(err, -EINVAL, "%s: %s is out of range (%llu to %llu)", what, text,
			       (unsigned long long)min, (unsigned long long)max);
	*out = v;
	return 0;
}

/* The power of 1024 that a suffix stands for; -1: none such. */
static int suffix_power(const char *s)
{
	static const char letters[] = "KMGTPE";
	if (!*s)
		return 0;
	char up = (char)(*s >= 'a' && *s <= 'z' ? *s - 32 : *s);
	if (up == 'B' && !s[1])
		return 0;
	const char *at = strchr(letters, up);
	if (!at || !(!s[1] || !strcasecmp(s + 1, "B") || !strcasecmp(s + 1, "iB")))
		return -1;
	return (int)(at - letters) + 1;
}

/* `example`: what to write, and of what it isn't one. */
static int parse_scaled(const char *text, const char *what, const char *example, uint64_t *out,
			struct err *err)
{
	const char *p = text;
	__uint128_t whole = 0, scale = 1; /* the value is whole / scale */
	const __uint128_t limit = (__uint128_t)INT64_MAX;
	for (; *p >= '0' && *p <= '9' && whole <= limit; p++)
		whole = whole * 10 + (unsigned)(*p - '0');
	bool digits = p > text;
	if (digits && *p == '.') {
		for (p++; *p >= '0' && *p <= '9' && scale < 1000000; p++) {
			whole = whole * 10 + (unsigned)(*p - '0');
			scale *= 10;
		}
	}
	int power = digits ? suffix_power(p) : -1;
	if (power < 0)
		return err_set(err, -EINVAL, "%s: \"%s\" isn't a %s", what, text, example);
	if (whole / scale > limit >> (10 * power)) /* so the shift below can't overflow */
		return err_set(err, -EINVAL, "%s: %s is too large", what, text);
	*out = (uint64_t)((whole << (10 * power)) / scale);
	return 0;
}

int args_size(const char *text, const char *what, uint64_t *out, struct err *err)
{
	return parse_scaled(text, what, "size; write 4096, 512K, 1.5G", out, err);
}

int args_count(const char *text, const char *what, uint64_t *out, struct err *err)
{
	return parse_scaled(text, what, "number; write 5000, 10K, 1M", out, err);
}
