#include "gitops/attributes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/array.h"
#include "gitops/wild.h"

static const char blanks[] = " \t\r\n";
static const char macro_prefix[] = "[attr]";
const char attr_true[] = "(true)", attr_false[] = "(false)", attr_unset[] = "(unset)";

static const char *const names[ATTR_NAMES] = {
	[ATTR_TEXT] = "text",   [ATTR_CRLF] = "crlf",     [ATTR_EOL] = "eol",
	[ATTR_IDENT] = "ident", [ATTR_FILTER] = "filter", [ATTR_ENCODING] = "working-tree-encoding",
};

/* A number for each attribute that counts: those above, then the macros'. */
struct setting {
	uint32_t name;
	const char *value;
};

struct rule {
	struct path_pattern pattern;
	size_t first, n; /* its settings */
};

struct file {
	int parent;
	size_t dir_len;  /* of the folder's path */
	size_t first, n; /* its rules */
};

struct macro {
	char *name;
	size_t first, n; /* its settings */
};

struct attributes {
	struct setting *settings;
	size_t nsettings, settings_cap;
	struct rule *rules;
	size_t nrules, rules_cap;
	struct file *files;
	size_t nfiles, files_cap;
	struct macro macros[ATTR_MACROS_MAX];
	size_t nmacros;
	char **strings; /* values */
	size_t nstrings, strings_cap;
	uint64_t steps, bytes;
};

static int read_macros(struct attributes *a, const char *text, size_t len);

struct attributes *attributes_new(void)
{
	static const char builtin[] = "[attr]binary -diff -merge -text\n";
	struct attributes *a = calloc(1, sizeof(*a));
	if (a && read_macros(a, builtin, sizeof(builtin) - 1) < 0) {
		attributes_free(a);
		a = NULL;
	}
	return a;
}

void attributes_free(struct attributes *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->nrules; i++)
		path_pattern_done(&a->rules[i].pattern);
	for (size_t i = 0; i < a->nmacros; i++)
		free(a->macros[i].name);
	for (size_t i = 0; i < a->nstrings; i++)
		free(a->strings[i]);
	free(a->strings);
	free(a->settings);
	free(a->rules);
	free(a->files);
	free(a);
}

/* ---- lines ---- */

static bool name_ok(const char *s, size_t len)
{
	if (len == 0 || s[0] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (s[i] >= 'a' && s[i] <= 'z') || s[i] == '-' || s[i] == '.' || s[i] == '_'))
			return false;
	return true;
}

/* The attribute's number, or -1: none that counts. */
static int64_t number_of(const struct attributes *a, const char *s, size_t len)
{
	for (uint32_t i = 0; i < ATTR_NAMES; i++)
		if (strlen(names[i]) == len && memcmp(names[i], s, len) == 0)
			return i;
	for (size_t i = 0; i < a->nmacros; i++)
		if (strlen(a->macros[i].name) == len && memcmp(a->macros[i].name, s, len) == 0)
			return (int64_t)(ATTR_NAMES + i);
	return -1;
}

static int keep_string(struct attributes *a, const char *s, size_t len, const char **out)
{
	if (array_grow(&a->strings, a->nstrings, &a->strings_cap) < 0)
		return -ENOMEM;
	char *copy = strndup(s, len);
	if (!copy)
		return -ENOMEM;
	a->strings[a->nstrings++] = copy;
	*out = copy;
	return 0;
}

/* One "name", "-name", "!name" or "name=value". 0; -EINVAL: the line doesn't count. */
static int add_setting(struct attributes *a, const char *s, size_t len)
{
	const char *eq = memchr(s, '=', len), *value = attr_true;
	size_t n = eq ? (size_t)(eq - s) : len;
	bool sign = n > 0 && (s[0] == '-' || s[0] == '!');
	if (!name_ok(s + sign, n - sign))
		return -EINVAL;
	int64_t name = number_of(a, s + sign, n - sign);
	if (name < 0)
		return 0;
	if (sign)
		value = s[0] == '-' ? attr_false : attr_unset;
	else if (eq && keep_string(a, eq + 1, len - n - 1, &value) < 0)
		return -ENOMEM;
	if (array_grow(&a->settings, a->nsettings, &a->settings_cap) < 0)
		return -ENOMEM;
	a->settings[a->nsettings++] = (struct setting){ (uint32_t)name, value };
	return 0;
}

static int add_settings(struct attributes *a, const char *s, size_t *count)
{
	size_t first = a->nsettings;
	int r = 0;
	while (r == 0 && *(s += strspn(s, blanks))) {
		size_t n = strcspn(s, blanks);
		r = add_setting(a, s, n);
		s += n;
	}
	if (r < 0)
		a->nsettings = first;
	*count = a->nsettings - first;
	return r;
}

static int octal(const char *s)
{
	int v = 0;
	for (int i = 0; i < 3; i++) {
		if (s[i] < '0' || s[i] > '7')
			return -1;
		v = v * 8 + (s[i] - '0');
	}
	return v < 256 ? v : -1;
}

/* "…" as C writes strings, in place; *end is what follows. False: it isn't one. */
static bool unquote(char *s, char **end)
{
	static const char from[] = "abfnrtv\\\"", to[] = "\a\b\f\n\r\t\v\\\"";
	char *out = s;
	for (const char *p = s + 1; *p; p++) {
		if (*p == '"') {
			*end = (char *)p + 1;
			*out = '\0';
			return true;
		}
		if (*p != '\\') {
			*out++ = *p;
			continue;
		}
		const char *at = *++p ? strchr(from, *p) : NULL;
		int v = at ? to[at - from] : *p ? octal(p) : -1;
		if (v <= 0)
			return false;
		p += at ? 0 : 2;
		*out++ = (char)v;
	}
	return false;
}

static int add_rule(struct attributes *a, const char *pattern, const char *settings)
{
	struct rule rule = { .first = a->nsettings };
	int r = add_settings(a, settings, &rule.n);
	if (r < 0 || rule.n == 0)
		return r == -ENOMEM ? r : 0;
	r = array_grow(&a->rules, a->nrules, &a->rules_cap);
	size_t len = strlen(pattern);
	/* gitattributes(5): no negation; folders have no attributes. */
	if (r >= 0 && len && pattern[0] != '!' && pattern[len - 1] != '/')
		r = path_pattern_parse(&rule.pattern, pattern, len);
	if (r > 0)
		a->rules[a->nrules++] = rule;
	return r < 0 ? r : 0;
}

/* The name counts from the first pass on, its settings from the second: macros may refer to
 * each other in any order. */
static int add_macro(struct attributes *a, const char *name, const char *settings, bool first_pass)
{
	size_t len = strcspn(name, blanks);
	if (!name_ok(name, len))
		return 0;
	int64_t i = number_of(a, name, len);
	if (i < 0 && a->nmacros < ATTR_MACROS_MAX) {
		struct macro m = { .name = strndup(name, len) };
		if (!m.name)
			return -ENOMEM;
		a->macros[a->nmacros++] = m;
		i = (int64_t)(ATTR_NAMES + a->nmacros - 1);
	}
	if (i < ATTR_NAMES || first_pass)
		return 0;
	struct macro *m = &a->macros[i - ATTR_NAMES];
	size_t first = a->nsettings, n;
	int r = add_settings(a, settings, &n);
	if (r == 0) {
		m->first = first; /* the last definition holds */
		m->n = n;
	}
	return r == -ENOMEM ? r : 0;
}

static int read_line(struct attributes *a, char *line, bool macros, bool first_pass)
{
	char *p = line + strspn(line, blanks), *rest;
	if (!*p || *p == '#')
		return 0;
	bool quoted = *p == '"' && unquote(p, &rest);
	if (!quoted) {
		rest = p + strcspn(p, blanks);
		if (*rest)
			*rest++ = '\0';
	}
	size_t n = strlen(macro_prefix);
	bool is_macro = strlen(p) > n && strncmp(p, macro_prefix, n) == 0;
	if (is_macro != macros)
		return 0;
	return is_macro ? add_macro(a, p + n, rest, first_pass) : add_rule(a, p, rest);
}

/* Unquoting needs the line as it was: each pass works on a copy. */
static int read_lines(struct attributes *a, const char *text, size_t len, bool macros,
		      bool first_pass)
{
	char line[ATTR_LINE_MAX + 1];
	int r = 0;
	while (len > 0 && r == 0) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;
		if (n < ATTR_LINE_MAX) {
			memcpy(line, text, n);
			line[n] = '\0';
			r = read_line(a, line, macros, first_pass);
		}
		n += end != NULL;
		text += n;
		len -= n;
	}
	return r;
}

static int read_macros(struct attributes *a, const char *text, size_t len)
{
	int r = read_lines(a, text, len, true, true);
	return r < 0 ? r : read_lines(a, text, len, true, false);
}

int attributes_add(struct attributes *a, int parent, const char *dir, const void *data, size_t len,
		   struct err *err)
{
	static const char bom[] = "\xef\xbb\xbf";
	const char *text = data;
	struct file f = { .parent = parent, .dir_len = strlen(dir), .first = a->nrules };
	if (len > ATTR_FILE_MAX)
		return parent;
	a->bytes += len;
	if (a->bytes > ATTR_BYTES_MAX)
		return err_set(err, -E2BIG, "the .gitattributes have more than %d MiB",
			       ATTR_BYTES_MAX >> 20);
	len = strnlen(text, len); /* git ends there too */
	if (len >= 3 && memcmp(text, bom, 3) == 0)
		text += 3, len -= 3;
	int r = array_grow(&a->files, a->nfiles, &a->files_cap);
	if (r >= 0 && !*dir)
		r = read_macros(a, text, len);
	if (r >= 0)
		r = read_lines(a, text, len, false, false);
	if (r < 0)
		return err_no_memory(err);
	f.n = a->nrules - f.first;
	if (f.n == 0)
		return parent;
	a->files[a->nfiles] = f;
	return (int)a->nfiles++;
}

/* ---- look-up ---- */

/* What is known so far of every attribute, macros included. */
struct known {
	const char *v[ATTR_NAMES + ATTR_MACROS_MAX];
};

struct frame {
	size_t first, left;
};

/* Takes what isn't known yet, from the last setting to the first; a macro that becomes true
 * brings its own in that moment. Each is opened once at most, which bounds the stack. */
static void take_settings(const struct attributes *a, struct known *k, size_t first, size_t n)
{
	struct frame stack[ATTR_MACROS_MAX + 1] = { { first, n } };
	size_t depth = 1;
	while (depth > 0) {
		struct frame *f = &stack[depth - 1];
		if (f->left == 0) {
			depth--;
			continue;
		}
		const struct setting *s = &a->settings[f->first + --f->left];
		if (k->v[s->name])
			continue;
		k->v[s->name] = s->value;
		if (s->name >= ATTR_NAMES && s->value == attr_true) {
			const struct macro *m = &a->macros[s->name - ATTR_NAMES];
			stack[depth++] = (struct frame){ m->first, m->n };
		}
	}
}

int attributes_find(struct attributes *a, int at, const char *path, struct attr_values *out)
{
	struct known k = { { 0 } };
	size_t len = strlen(path);
	for (int i = at; i != ATTR_NONE; i = a->files[i].parent) {
		const struct file *f = &a->files[i];
		size_t skip = f->dir_len ? f->dir_len + 1 : 0;
		for (size_t j = f->n; j-- > 0;) {
			const struct rule *rule = &a->rules[f->first + j];
			int r = path_pattern_match(&rule->pattern, path + skip, len - skip,
						   &a->steps);
			if (r < 0)
				return r;
			if (r > 0)
				take_settings(a, &k, rule->first, rule->n);
		}
	}
	if (a->steps > ATTR_STEPS_MAX)
		return -E2BIG;
	memcpy(out->v, k.v, sizeof(out->v));
	return 0;
}
