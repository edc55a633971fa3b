/* Webhooks. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/infile.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"

enum { SECRET_FILE_MAX = 4096 };

/* The first line of a file, or of stdin for "-": secrets are in no argument. */
static int set_secret(json_t *body, const char *path, struct err *err)
{
	auto_infile f = { 0 };
	int r = infile_read(path, SECRET_FILE_MAX, &f, err);
	if (r < 0)
		return r;
	f.text[strcspn(f.text, "\r\n")] = 0;
	return json_object_set_new(body, "secret", json_string(f.text)) < 0
		       ? err_set(err, -EINVAL, "%s: the secret isn't UTF-8", path)
		       : 0;
}

int cmd_webhook_add(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const flags[] = { "everybody", NULL };
	auto_json json_t *body = json_object(), *doc = NULL;
	auto_target t = target_new("/v1/webhooks");
	const char *type;
	int r = body_text(body, "url", a->operands[0], err);
	for (unsigned i = 0; r == 0 && (type = args_each(a, "event", i)); i++)
		r = body_add(body, "events", type, err);
	if (r == 0 && args_get(a, "secret-file"))
		r = set_secret(body, args_get(a, "secret-file"), err);
	if (r == 0)
		r = body_flags(body, a, flags, err);
	if (r == 0)
		r = api_call(cli, "POST", &t, body, &doc, NULL, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(doc, err);
	printf("%s\n", get_text(doc, "id"));
	if (*get_text(doc, "secret"))
		printf("%s\n", get_text(doc, "secret"));
	if (*get_text(doc, "secret") && !cli->quiet)
		fprintf(stderr, "bough: the second line is its secret: it is shown this once\n");
	return 0;
}

static void hook_row(struct table *table, const struct cli *cli, const json_t *v, time_t now)
{
	char events[160] = "all", made[OUT_AGE_MAX];
	const json_t *list = json_object_get(v, "events"), *one;
	size_t i, n = 0;
	json_array_foreach((json_t *)(uintptr_t)list, i, one)
		if (n + 48 < sizeof(events))
			n += (size_t)snprintf(events + n, sizeof(events) - n, "%s%.40s",
					      i ? " " : "", json_string_value(one));
	const char *cells[] = { get_text(v, "id"),
				get_text(v, "url"),
				events,
				get_true(v, "active") ? "yes" : "no",
				owner_name(cli, v, "owner"),
				out_age(made, get_text(v, "created"), now) };
	table_row(table, cells);
}

int cmd_webhook_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "ID",    "URL",  "EVENTS", "ACTIVE",
						"OWNER", ">AGE", NULL };
	static const struct list_view view = { headings, "id", OWNERS_SHOWN, hook_row };
	auto_target t = target_new("/v1/webhooks");
	return list_show(cli, &t, &view, err);
}

static void delivery_row(struct table *table, const struct cli *cli, const json_t *v, time_t now)
{
	char age[OUT_AGE_MAX], tries[24];
	(void)snprintf(tries, sizeof(tries), "%lld", (long long)get_int(v, "tries"));
	const char *cells[] = { get_text(v, "id"),
				get_text(v, "type"),
				out_age(age, get_text(v, "created"), now),
				get_text(v, "state"),
				tries,
				list_text(v, "error") };
	table_row(table, cells);
}

static struct target of_hook(const struct args *a, const char *rest)
{
	struct target t = target_new("/v1/webhooks/");
	target_name(&t, a->operands[0]);
	target_path(&t, rest);
	return t;
}

int cmd_webhook_log(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "ID",     "EVENT", ">AGE", "STATE",
						">TRIES", "ERROR", NULL };
	static const struct list_view view = { headings, "id", OWNERS_NONE, delivery_row };
	auto_target t = of_hook(a, "/deliveries");
	return list_show(cli, &t, &view, err);
}

int cmd_webhook_test(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *body = json_object(), *doc = NULL;
	auto_target t = of_hook(a, "/test");
	int r = body ? api_call(cli, "POST", &t, body, &doc, NULL, err) : err_no_memory(err);
	return r < 0 ? r : cli->json ? out_json(doc, err) : 0;
}

int cmd_webhook_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return list_remove_each(cli, a, "/v1/webhooks/", NULL, err);
}
