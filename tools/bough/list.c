#include "tools/bough/list.h"

#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/json.h"

const char *list_text(const json_t *item, const char *key)
{
	const char *s = get_text(item, key);
	return *s ? s : "-";
}

void owners_load(struct cli *cli)
{
	auto_target t = target_new("/v1/users");
	json_t *doc = NULL;
	if (!cli->users) /* only an admin is told: others see what boughd says */
		cli->users = api_aside(cli, "GET", &t, &doc) < 0 ? json_object() : doc;
}

const char *owner_name(const struct cli *cli, const json_t *item, const char *key)
{
	const char *owner = get_text(item, key);
	size_t i;
	json_t *u;
	json_array_foreach(json_object_get(cli->users, "items"), i, u)
		if (strcmp(get_text(u, "owner"), owner) == 0)
			return get_text(u, "name");
	return owner;
}

/* Loads their names then. */
static bool owners_differ(struct cli *cli, const json_t *items)
{
	size_t i;
	json_t *v;
	const char *first = get_text(json_array_get(items, 0), "owner");
	json_array_foreach((json_t *)(uintptr_t)items, i, v)
		if (strcmp(get_text(v, "owner"), first) != 0) {
			owners_load(cli);
			return true;
		}
	return false;
}

int list_filter(struct target *t, const struct args *a, struct err *err)
{
	const char *label = args_get(a, "label");
	if (label && (!*label || *label == '='))
		return err_set(err, -EINVAL, "--label takes K or K=V, not \"%s\"", label);
	target_query(t, "label", label);
	return 0;
}

void list_owner(struct cli *cli, const json_t *item)
{
	owners_load(cli);
	out_line("owner", owner_name(cli, item, "owner"));
	if (strcmp(get_text(item, "visibility"), "private") != 0)
		out_line("visibility", get_text(item, "visibility"));
}

void list_labels(const json_t *item)
{
	const char *k;
	json_t *v;
	json_object_foreach(json_object_get(item, "labels"), k, v) {
		printf("%-11s ", "label");
		out_clean(stdout, k);
		printf("=");
		out_clean(stdout, json_string_value(v) ? json_string_value(v) : "");
		printf("\n");
	}
}

void list_names(const json_t *doc, const char *key)
{
	size_t i;
	json_t *v;
	json_array_foreach(json_object_get(doc, "items"), i, v) {
		out_clean(stdout, get_text(v, key));
		printf("\n");
	}
}

int list_print(struct cli *cli, const json_t *doc, const struct list_view *view, struct err *err)
{
	size_t i;
	json_t *v;
	time_t now = time(NULL);
	const json_t *items = json_object_get(doc, "items");
	if (cli->json)
		return out_json(doc, err);
	if (cli->quiet) {
		list_names(doc, view->name);
		return 0;
	}
	if (view->owners == OWNERS_SHOWN)
		owners_load(cli);
	bool cut = view->owners == OWNERS_FIRST && !owners_differ(cli, items);
	auto_table *table = cut ? table_new_cut(view->headings) : table_new(view->headings);
	json_array_foreach(items, i, v)
		view->row(table, cli, v, now);
	return table_print(table, stdout, err);
}

int list_show(struct cli *cli, struct target *t, const struct list_view *view, struct err *err)
{
	auto_json json_t *doc = NULL;
	int r = api_call(cli, "GET", t, NULL, &doc, NULL, err);
	return r < 0 ? r : list_print(cli, doc, view, err);
}

int list_failed(const struct args *a, int first, int r, const struct err *e, struct err *err)
{
	if (first < 0) { /* in their order: the last one is told as any failure is */
		fprintf(stderr, "bough: %s: ", a->cmd->name);
		out_clean(stderr, err->text);
		(void)fputc('\n', stderr);
	}
	*err = *e;
	return first < 0 ? first : r;
}

static int remove_one(struct cli *cli, const struct args *a, const char *path, const char *name,
		      const char *const *options, struct err *err)
{
	auto_target t = target_new(path);
	target_name(&t, name);
	for (; options && *options; options++)
		target_query(&t, *options, args_get(a, *options) ? "true" : NULL);
	return api_call(cli, "DELETE", &t, NULL, NULL, NULL, err);
}

const char *const list_snapshots_rm[] = { "cascade", "force", NULL };

int list_remove_each(struct cli *cli, const struct args *a, const char *path,
		     const char *const *options, struct err *err)
{
	int first = 0;
	auto_json json_t *removed = json_array();
	for (unsigned i = 0; i < a->n; i++) {
		struct err e = { 0 };
		int r = remove_one(cli, a, path, a->operands[i], options, &e);
		if (r == 0) {
			(void)json_array_append_new(removed,
						    json_pack("{s:s}", "name", a->operands[i]));
		} else {
			first = list_failed(a, first, r, &e, err);
		}
	}
	if (first < 0 || !cli->json)
		return first;
	auto_json json_t *doc = json_pack("{s:O}", "items", removed);
	return doc ? out_json(doc, err) : err_no_memory(err);
}
