/* Files of workspaces and snapshots: printed, listed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"
#include "tools/bough/place.h"
#include "tools/bough/transfer.h"

/* ---- printed ---- */

static int get(struct cli *cli, const struct place *p, int fd, const char *what, uint64_t *total,
	       struct err *err)
{
	struct http *h = NULL;
	auto_target rest = place_target("/files", p->path, NULL);
	int r = api_stream_of(cli, p->name, PLACES, &rest, "*/*", &h, err);
	if (r == 0 && strcmp(http_type(h), "application/json") == 0)
		r = err_set(err, -EISDIR, "%s:%s is a folder: `bough files ls` lists it", p->name,
			    p->path);
	if (r == 0)
		r = transfer_copy_out(cli, h, fd, what, total, err);
	http_free(h);
	return r;
}

int cmd_cat(struct cli *cli, const struct args *a, struct err *err)
{
	int r = 0;
	if (cli->json)
		return err_set(err, -EINVAL, "--json: stdout can't hold both");
	for (unsigned i = 0; i < a->n && r == 0; i++) {
		uint64_t total;
		auto_place p = { 0 };
		r = place_parse_remote(&p, a->operands[i], err);
		if (r == 0)
			r = get(cli, &p, STDOUT_FILENO, "reading", &total, err);
	}
	return r;
}

/* ---- listed ---- */

struct entry {
	const json_t *json;
	char *name; /* its bytes */
};

static int list_row(const struct cli *cli, struct table *t, const struct entry *e)
{
	char size[OUT_SIZE_MAX], age[OUT_AGE_MAX];
	const char *modified = get_text(e->json, "modified_at");
	auto_free char *shown = out_quoted(e->name);
	if (!shown)
		return -ENOMEM;
	if (cli->quiet) { /* a program is told the name itself */
		(void)puts(isatty(STDOUT_FILENO) ? shown : e->name);
		return 0;
	}
	const char *cells[] = { get_text(e->json, "mode"), get_text(e->json, "type"),
				out_size(size, get_int(e->json, "size"), cli->bytes),
				cli->bytes ? modified : out_age(age, modified, time(NULL)), shown };
	table_row(t, cells);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* As ls has them; boughd sends them as they lie. */
static int list_sorted(struct cli *cli, struct table *t, const json_t *entries, struct err *err)
{
	size_t i, n = json_array_size(entries);
	auto_free struct entry *all = calloc(n + 1, sizeof(*all));
	json_t *e;
	int r = all ? 0 : -ENOMEM;
	json_array_foreach(entries, i, e) {
		if (r == 0)
			all[i] = (struct entry){ e, get_name(e, "name") };
		if (r == 0 && !all[i].name)
			r = -ENOMEM;
	}
	if (r == 0)
		qsort(all, n, sizeof(*all), by_name);
	for (i = 0; i < n && r == 0; i++)
		r = list_row(cli, t, &all[i]);
	for (i = 0; all && i < n; i++)
		free(all[i].name);
	return r < 0 ? err_no_memory(err) : 0;
}

int cmd_files_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "MODE", "TYPE", ">SIZE", ">AGE", "NAME", NULL };
	struct http *h = NULL;
	auto_free char *text = NULL;
	auto_place p = { 0 };
	size_t len;
	int r = place_parse_remote(&p, a->operands[0], err);
	if (r < 0)
		return r;
	auto_target rest = place_target("/files", p.path, NULL);
	target_query(&rest, "recursive", args_get(a, "recursive") ? "1" : NULL);
	r = api_stream_of(cli, p.name, PLACES, &rest, NULL, &h, err);
	if (r == 0 && strcmp(http_type(h), "application/json") != 0)
		r = err_set(err, -ENOTDIR, "%s:%s is a file", p.name, p.path);
	if (r == 0)
		r = http_read_all(h, API_DOC_MAX, &text, &len, err);
	if (r < 0 && h)
		r = api_stream_error(cli, h, r, err);
	http_free(h);
	if (r < 0)
		return r;
	auto_json json_t *doc = json_loadb(text, len, 0, NULL);
	if (!doc)
		return err_set(err, -EPROTO, "boughd answered what isn't a listing");
	if (cli->json)
		return out_json(doc, err);
	auto_table *t = table_new(headings);
	if (!t)
		return err_no_memory(err);
	r = list_sorted(cli, t, json_object_get(doc, "entries"), err);
	return r < 0 || cli->quiet ? r : table_print(t, stdout, err);
}
