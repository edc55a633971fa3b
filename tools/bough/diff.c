/* diff: the daemon's text as it comes, coloured for a terminal; or its entries as JSON. */
#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/cli.h"
#include "tools/bough/json.h"
#include "tools/bough/out.h"
#include "tools/bough/place.h"
#include "tools/bough/sandbox.h"

enum { TEXT_SIZE = 64 * 1024 };

#define RED    "\033[31m"
#define GREEN  "\033[32m"
#define YELLOW "\033[33m"
#define CYAN   "\033[36m"
#define BOLD   "\033[1m"
#define RESET  "\033[0m"

enum form { NAME_STATUS, STAT, PATCH };
static const char *const form_names[] = { "name-status", "stat", "patch" };

/* The colour of a line by how it begins; NULL: none. `hunk`: lines of a patch's hunk follow a
 * "@@" line, before it "---" and "+++" are headings. */
static const char *line_colour(enum form form, const char *p, size_t n, bool *hunk)
{
	if (n == 0)
		return NULL;
	if (form == NAME_STATUS)
		return p[0] == 'A'                  ? GREEN
		       : p[0] == 'D'                ? RED
		       : p[0] == 'M'                ? YELLOW
		       : p[0] == 'R' || p[0] == 'T' ? CYAN
						    : NULL;
	if (form != PATCH)
		return NULL;
	if (n >= 5 && !memcmp(p, "diff ", 5))
		*hunk = false;
	if (n >= 2 && !memcmp(p, "@@", 2)) {
		*hunk = true;
		return CYAN;
	}
	if (!*hunk)
		return BOLD;
	return p[0] == '+' ? GREEN : p[0] == '-' ? RED : NULL;
}

static void print_coloured(enum form form, const char *p, size_t n, bool *hunk)
{
	const char *c = line_colour(form, p, n, hunk);
	if (c)
		(void)fputs(c, stdout);
	if (form == STAT) { /* only the signs at its end */
		size_t k = n;
		while (k > 0 && strchr("+- ", p[k - 1]))
			k--;
		(void)fwrite(p, 1, k, stdout);
		for (; k < n; k++)
			printf("%s%c%s",
			       p[k] == '+'   ? GREEN
			       : p[k] == '-' ? RED
					     : "",
			       p[k], p[k] == ' ' ? "" : RESET);
	} else {
		(void)fwrite(p, 1, n, stdout);
	}
	printf("%s\n", c ? RESET : "");
}

static int copy_coloured(struct cli *cli, struct http *h, enum form form, struct err *err)
{
	const char *line;
	size_t len;
	bool hunk = false;
	int r;
	while ((r = http_read_line(h, API_LINE_MAX, &line, &len, err)) > 0)
		print_coloured(form, line, len, &hunk);
	return r < 0 ? api_stream_error(cli, h, r, err) : r;
}

static int copy_plain(struct cli *cli, struct http *h, struct err *err)
{
	auto_free char *buf = malloc(TEXT_SIZE);
	if (!buf)
		return err_no_memory(err);
	ssize_t n;
	while ((n = http_read(h, buf, TEXT_SIZE, err)) > 0)
		if (fwrite(buf, 1, (size_t)n, stdout) != (size_t)n)
			return err_set(err, -EIO, "write to stdout");
	return n < 0 ? api_stream_error(cli, h, (int)n, err) : 0;
}

/* The stream of entries as one document, without holding it: {"items": [ … ]}. */
static int copy_entries(struct cli *cli, struct http *h, struct err *err)
{
	const char *line;
	size_t len, count = 0;
	int r;
	printf("{\n  \"items\": [");
	while ((r = http_read_line(h, API_LINE_MAX, &line, &len, err)) > 0) {
		if (len == 0)
			continue;
		auto_json json_t *e = json_loadb(line, len, 0, NULL);
		if (!json_is_object(e)) {
			r = err_set(err, -EPROTO, "boughd answered what isn't JSON");
			break;
		}
		r = api_line_error(cli, e, err);
		if (r < 0)
			break;
		printf("%s\n    ", count++ ? "," : "");
		if (json_dumpf(e, stdout, JSON_COMPACT) < 0) {
			r = err_set(err, -EIO, "write to stdout");
			break;
		}
	}
	printf("%s]", count ? "\n  " : "");
	if (r < 0) {
		auto_json json_t *text = json_string(err->text);
		printf(",\n  \"error\": ");
		if (cli->detail)
			printf("%s", cli->detail);
		else if (text)
			(void)json_dumpf(text, stdout, JSON_ENCODE_ANY);
		cli->reported = true;
	}
	printf("\n}\n");
	return r;
}

static int open_diff(struct cli *cli, const struct args *a, const char *name, enum form form,
		     struct http **h, struct err *err)
{
	auto_target rest = target_new("/diff");
	target_query(&rest, "against", args_get(a, "against"));
	target_query(&rest, "since", args_get(a, "since"));
	target_query(&rest, "format", cli->json ? "json" : form_names[form]);
	return api_stream_of(cli, name, PLACES, &rest,
			     cli->json ? "application/x-ndjson" : "text/plain", h, err);
}

/* Of a sandbox, that of its root. */
static int open_root_diff(struct cli *cli, const struct args *a, enum form form, struct http **h,
			  struct err *err)
{
	auto_json json_t *box = NULL;
	auto_target t = target_sandbox(a->operands[0], "");
	int r = api_call(cli, "GET", &t, NULL, &box, NULL, err);
	return r < 0 ? r : open_diff(cli, a, get_text(box, "root"), form, h, err);
}

int cmd_diff(struct cli *cli, const struct args *a, struct err *err)
{
	enum form form = NAME_STATUS;
	unsigned given = 0;
	for (unsigned i = 0; i < 3; i++)
		if (args_get(a, form_names[i]))
			form = (enum form)i, given++;
	if (given > 1)
		return err_set(err, -EINVAL, "give one of --name-status, --stat and --patch");
	if (cli->json && form != NAME_STATUS)
		return err_set(err, -EINVAL, "--json and --%s are two forms: give one",
			       form_names[form]);
	struct http *h = NULL;
	unsigned kind = 0;
	int r = api_kind(cli, a->operands[0], PLACES, &kind, err);
	if (r == 0 || r == -ENOENT)
		r = kind == KIND_SANDBOX ? open_root_diff(cli, a, form, &h, err)
					 : open_diff(cli, a, a->operands[0], form, &h, err);
	if (r < 0)
		return r;
	if (cli->json)
		r = copy_entries(cli, h, err);
	else if (out_colour(stdout))
		r = copy_coloured(cli, h, form, err);
	else
		r = copy_plain(cli, h, err);
	if (r >= 0 && !cli->json && http_summary(h)) {
		auto_json json_t *told = json_loads(http_summary(h), 0, NULL);
		(void)fflush(stdout);
		out_warnings(cli, told);
	}
	http_free(h);
	return r;
}
