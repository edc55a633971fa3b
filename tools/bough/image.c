/* The image group: snapshots that say how a container of them begins. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/cli.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"
#include "tools/bough/out.h"
#include "tools/bough/transfer.h"

static const char *first_name(const json_t *snap)
{
	const char *s = json_string_value(json_array_get(json_object_get(snap, "names"), 0));
	return s ? s : "";
}

/* A list of words as one line. */
static void join(struct buf *out, const json_t *image, const char *key)
{
	size_t i;
	json_t *v;
	json_array_foreach(json_object_get(image, key), i, v)
		buf_printf(out, "%s%s", out->len ? " " : "", json_string_value(v));
}

/* What a container of it runs: the entry point and its arguments. */
static const char *command_of(struct buf *out, const json_t *snap)
{
	const json_t *image = json_object_get(snap, "image");
	join(out, image, "entrypoint");
	join(out, image, "cmd");
	buf_u8(out, 0);
	return buf_error(out) < 0 ? "" : (const char *)out->data;
}

int cmd_image_import(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *snap = NULL;
	const char *from = a->operands[1];
	struct import im = { .name = a->operands[0],
			     .message = args_get(a, "message"),
			     .format = "image" };
	struct stat st;
	bool folder = strcmp(from, "-") != 0 && stat(from, &st) == 0 && S_ISDIR(st.st_mode);
	int r = folder ? transfer_import_folder(cli, from, &im, &snap, err)
		       : transfer_import_file(cli, from, &im, &snap, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(snap, err);
	printf("%s\n", get_text(snap, "id"));
	return 0;
}

/* The built-in one, which has no name of its own. */
static bool is_host(const json_t *snap)
{
	return json_object_get(json_object_get(snap, "image"), "builtin") != NULL;
}

/* The name of the sandbox that was saved as it; "": it was imported. */
static const char *sandbox_of(const json_t *snap)
{
	const json_t *image = json_object_get(snap, "image");
	return get_text(json_object_get(image, "sandbox"), "name");
}

int cmd_image_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "IMAGE", "SNAPSHOT", "SANDBOX", ">AGE", ">FILES",
						">NEW",  ">STORED",  "COMMAND", NULL };
	auto_json json_t *doc = NULL;
	auto_target t = target_new("/v1/snapshots");
	target_query(&t, "image", "1");
	int r = api_call(cli, "GET", &t, NULL, &doc, NULL, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(doc, err);
	auto_table *table = table_new(headings);
	time_t now = time(NULL);
	size_t i;
	json_t *s;
	json_array_foreach(json_object_get(doc, "items"), i, s) {
		char age[OUT_AGE_MAX], files[OUT_SIZE_MAX], bytes[OUT_SIZE_MAX];
		char stored[OUT_SIZE_MAX];
		auto_buf command = { 0 };
		const char *name = first_name(s);
		if (cli->quiet) {
			out_clean(stdout, *name ? name : get_text(s, "id"));
			printf("\n");
			continue;
		}
		const char *cells[] = { is_host(s) ? "host" : name,
					get_text(s, "id"),
					sandbox_of(s),
					out_age(age, get_text(s, "created"), now),
					out_size(files, get_int(s, "files"), true),
					out_size(bytes, get_int(s, "bytes"), cli->bytes),
					out_size(stored, get_int(s, "stored_bytes"), cli->bytes),
					command_of(&command, s) };
		table_row(table, cells);
	}
	return cli->quiet ? 0 : table_print(table, stdout, err);
}

static void show_line(const char *key, const char *value)
{
	if (!*value)
		return;
	printf("%-12s", key);
	out_clean(stdout, value);
	printf("\n");
}

static int get_host(struct cli *cli, json_t **out, struct err *err)
{
	auto_json json_t *doc = NULL;
	auto_target t = target_new("/v1/snapshots");
	size_t i;
	json_t *s;
	target_query(&t, "image", "1");
	int r = api_call(cli, "GET", &t, NULL, &doc, NULL, err);
	if (r < 0)
		return r;
	json_array_foreach(json_object_get(doc, "items"), i, s)
		if (is_host(s)) {
			*out = json_incref(s);
			return 0;
		}
	return err_set(err, -ENOENT, "\"host\" is made when the first sandbox uses it");
}

static int find_image(struct cli *cli, const char *name, json_t **out, struct err *err)
{
	auto_target t = target_snap(name, "");
	int r = strcmp(name, "host") == 0 ? get_host(cli, out, err)
					  : api_call(cli, "GET", &t, NULL, out, NULL, err);
	if (r == -ENOENT && strcmp(name, "host") != 0)
		r = err_set(err, r, "no image \"%s\": `bough image ls` shows what there is", name);
	if (r < 0)
		return r;
	if (!json_is_object(json_object_get(*out, "image")))
		return err_set(err, -ENOENT, "%s is a snapshot, but not an image", name);
	return 0;
}

/* The built-in one goes, too, and is made again when it is needed. What is no image keeps all. */
int cmd_image_rm(struct cli *cli, const struct args *a, struct err *err)
{
	struct args found = *a;
	auto_json json_t *all = json_array();
	auto_free const char **names = calloc(a->n, sizeof(*names));
	int r = all && names ? 0 : err_no_memory(err);
	for (unsigned i = 0; i < a->n && r == 0; i++) {
		json_t *s = NULL;
		r = find_image(cli, a->operands[i], &s, err);
		names[i] = r == 0 && is_host(s) ? get_text(s, "id") : a->operands[i];
		if (s && json_array_append_new(all, s) < 0 && r == 0)
			r = err_no_memory(err);
	}
	found.operands = names;
	return r < 0 ? r : list_remove_each(cli, &found, "/v1/snapshots/", list_snapshots_rm, err);
}

int cmd_image_show(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *s = NULL;
	int r = find_image(cli, a->operands[0], &s, err);
	if (r < 0)
		return r;
	const json_t *image = json_object_get(s, "image");
	if (cli->json)
		return out_json(s, err);
	char buf[OUT_SIZE_MAX], text[128];
	auto_buf command = { 0 };
	size_t i;
	json_t *v;
	show_line("name", is_host(s) ? "host" : first_name(s));
	if (get_true(image, "host"))
		show_line("needs", "this machine's /usr");
	show_line("snapshot", get_text(s, "id"));
	show_line("saved from", sandbox_of(s));
	show_line("created", out_time(text, get_text(s, "created"), time(NULL)));
	show_line("files", out_size(buf, get_int(s, "files"), true));
	show_line("new", out_size(buf, get_int(s, "bytes"), cli->bytes));
	show_line("stored", out_size(buf, get_int(s, "stored_bytes"), cli->bytes));
	show_line("digest", get_text(image, "digest"));
	show_line("command", command_of(&command, s));
	show_line("user", get_text(image, "user"));
	show_line("workdir", get_text(image, "workdir"));
	json_array_foreach(json_object_get(image, "env"), i, v)
		show_line("env", json_string_value(v));
	return 0;
}
