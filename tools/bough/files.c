/* Files of workspaces and snapshots: out, in, listed. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/json.h"
#include "tools/bough/outfile.h"
#include "tools/bough/sandbox.h"
#include "tools/bough/transfer.h"

/* ---- NAME:PATH ---- */

struct place {
	char *name;       /* NULL: a path of the host */
	const char *path; /* without '/' in front; borrowed */
};

static void place_done(struct place *p)
{
	free(p->name);
}
#define auto_place __attribute__((cleanup(place_done))) struct place

/* A ':' behind something without a '/' is NAME:PATH; ./a:b is a file of the host. */
static int parse_place(struct place *out, const char *operand, struct err *err)
{
	const char *colon = strchr(operand, ':');
	*out = (struct place){ .path = operand };
	if (!colon || colon == operand || memchr(operand, '/', (size_t)(colon - operand)))
		return 0;
	out->name = strndup(operand, (size_t)(colon - operand));
	if (!out->name)
		return err_set(err, -ENOMEM, "out of memory");
	out->path = colon + 1;
	while (*out->path == '/' || (out->path[0] == '.' && out->path[1] == '/'))
		out->path++;
	if (strcmp(out->path, ".") == 0)
		out->path++;
	return 0;
}

static int parse_remote(struct place *out, const char *operand, struct err *err)
{
	int r = parse_place(out, operand, err);
	if (r == 0 && !out->name)
		r = err_set(err, -EINVAL, "%s: WORKSPACE:PATH or SNAPSHOT:PATH is expected",
			    operand);
	return r;
}

/* /files/ and the path, each part escaped by itself; with `last` behind it. */
static struct target file_target(const char *path, const char *last)
{
	struct target t = target_new("/files");
	const char *parts[] = { path, last };
	for (unsigned i = 0; i < 2; i++)
		for (const char *p = parts[i]; p && *p;) {
			size_t n = strcspn(p, "/");
			auto_free char *part = strndup(p, n);
			target_path(&t, "/");
			if (part)
				target_name(&t, part);
			else
				t.text.failed = true;
			p += n + (p[n] == '/' && p[n + 1]); /* one at the end means nothing */
			if (*p == '/' && !p[1])
				break;
		}
	return t;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* Of whatever the path leads to: its "entry". -ENOENT. */
static int stat_remote(struct cli *cli, const struct place *p, json_t **out, struct err *err)
{
	struct http *h = NULL;
	auto_free char *text = NULL;
	size_t len;
	auto_target rest = file_target(p->path, NULL);
	target_query(&rest, "stat", "1");
	int r = api_stream_either(cli, p->name, &rest, NULL, &h, err);
	if (r == 0)
		r = http_read_all(h, 1 << 20, &text, &len, err);
	http_free(h);
	if (r < 0)
		return r;
	auto_json json_t *doc = json_loadb(text, len, 0, NULL);
	json_t *entry = json_object_get(doc, "entry");
	if (!json_is_object(entry))
		return err_set(err, -EPROTO, "boughd answered what isn't an entry");
	*out = json_incref(entry);
	return 0;
}

/* ---- out ---- */

static int get(struct cli *cli, const struct place *p, int fd, const char *what, uint64_t *total,
	       struct err *err)
{
	struct http *h = NULL;
	auto_target rest = file_target(p->path, NULL);
	int r = api_stream_either(cli, p->name, &rest, "*/*", &h, err);
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
		r = parse_remote(&p, a->operands[i], err);
		if (r == 0)
			r = get(cli, &p, STDOUT_FILENO, "reading", &total, err);
	}
	return r;
}

static bool is_folder(const char *path)
{
	struct stat st;
	size_t n = strlen(path);
	return (n > 0 && path[n - 1] == '/') || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

static int print_copied(struct cli *cli, const char *from, const char *to, uint64_t bytes,
			struct err *err)
{
	if (!cli->json)
		return 0;
	auto_json json_t *doc = json_pack("{s:s, s:s, s:I}", "from", from, "to", to, "bytes",
					  (json_int_t)bytes);
	return doc ? out_json(doc, err) : err_set(err, -EIO, "a name isn't UTF-8");
}

/* The file gets the mode that it had, as the umask allows. */
static void set_mode(int fd, const json_t *entry)
{
	mode_t mask = umask(077);
	(void)umask(mask);
	unsigned mode = (unsigned)strtoul(get_text(entry, "mode"), NULL, 8);
	(void)fchmod(fd, mode & 0777 & ~mask); /* a device has its own */
}

static int copy_out(struct cli *cli, const struct place *from, const char *to, struct err *err)
{
	auto_json json_t *entry = NULL;
	auto_free char *joined = NULL;
	uint64_t total = 0;
	bool out = strcmp(to, "-") == 0;
	int r = stat_remote(cli, from, &entry, err);
	if (r < 0)
		return r;
	if (strcmp(get_text(entry, "type"), "directory") == 0)
		return err_set(err, -EISDIR,
			       "%s:%s is a folder: `bough export` writes a whole workspace",
			       from->name, from->path);
	if (out && cli->json)
		return err_set(err, -EINVAL, "--json: stdout can't hold both");
	if (!out && is_folder(to)) {
		const char *slash = to[strlen(to) - 1] == '/' ? "" : "/";
		if (asprintf(&joined, "%s%s%s", to, slash, base_name(from->path)) < 0)
			return err_set(err, -ENOMEM, "out of memory");
		to = joined;
	}
	auto_outfile o = OUTFILE_STDOUT;
	r = out ? 0 : outfile_open(&o, to, err);
	if (r == 0)
		r = get(cli, from, o.fd, "copying", &total, err);
	if (r == 0 && o.temp)
		set_mode(o.fd, entry);
	if (r == 0)
		r = outfile_commit(&o, err);
	return r < 0 ? r : print_copied(cli, from->path, to, total, err);
}

/* ---- in ---- */

struct upload {
	struct progress progress;
	uint64_t total;
};

static void show_sent(void *ctx, uint64_t bytes)
{
	struct upload *u = ctx;
	progress_update(&u->progress, bytes, u->total, "bytes", "copying");
}

static int put(struct cli *cli, int fd, const struct place *to, const char *last, const char *mode,
	       json_t **out, struct err *err)
{
	struct stat st;
	struct upload u = { 0 };
	if (fstat(fd, &st) < 0)
		return err_sys(err, -errno, "look at the file");
	off_t at = S_ISREG(st.st_mode) ? lseek(fd, 0, SEEK_CUR) : -1;
	struct http_body body = { .type = "application/octet-stream",
				  .fd = fd,
				  .size = at >= 0 && at <= st.st_size ? st.st_size - at : -1,
				  .sent = show_sent,
				  .ctx = &u };
	auto_target rest = file_target(to->path, last);
	buf_u8(&rest.text, 0);
	if (buf_error(&rest.text))
		return err_set(err, -ENOMEM, "out of memory");
	/* A pipe can't be read twice: whose it is, is asked before. */
	auto_target ws = target_ws(to->name, "");
	bool box = !api_exists(cli, &ws) && sandbox_is(cli, to->name);
	auto_target t = box ? target_sandbox(to->name, (const char *)rest.text.data)
			    : target_ws(to->name, (const char *)rest.text.data);
	target_query(&t, "mode", mode);
	u.total = body.size > 0 ? (uint64_t)body.size : 0;
	progress_begin(&u.progress, cli, "copying");
	return api_job(cli, "PUT", &t, NULL, &body, &u.progress, out, err);
}

/* Whether the target is a folder of the workspace, or says that it is one. */
static int into_folder(struct cli *cli, const struct place *to, bool *yes, struct err *err)
{
	auto_json json_t *entry = NULL;
	size_t n = strlen(to->path);
	*yes = n == 0 || to->path[n - 1] == '/';
	if (*yes)
		return 0;
	char *detail = steal_ptr(&cli->detail);
	struct err why = { 0 };
	int r = stat_remote(cli, to, &entry, &why);
	if (r == -ENOENT) { /* a new one; that the workspace isn't there is told by the PUT */
		free(cli->detail);
		cli->detail = detail;
		return 0;
	}
	free(detail);
	if (r < 0) {
		*err = why;
		return r;
	}
	*yes = strcmp(get_text(entry, "type"), "directory") == 0;
	return 0;
}

static int copy_in(struct cli *cli, const char *from, const struct place *to, struct err *err)
{
	auto_json json_t *done = NULL;
	struct stat st;
	bool in = strcmp(from, "-") == 0, folder = false;
	char mode[8];
	auto_fd fd = in ? -1 : open(from, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (!in && (fd < 0 || fstat(fd, &st) < 0))
		return err_sys(err, -errno, "open %s", from);
	if (!in && S_ISDIR(st.st_mode))
		return err_set(err, -EISDIR,
			       "%s is a folder: `bough create NAME --dir` takes a whole one", from);
	int r = into_folder(cli, to, &folder, err);
	if (r < 0)
		return r;
	if (in && folder)
		return err_set(err, -EINVAL, "%s:%s is a folder: name a file", to->name, to->path);
	if (!in)
		(void)snprintf(mode, sizeof(mode), "%04o", (unsigned)st.st_mode & 0777);
	r = put(cli, in ? STDIN_FILENO : fd, to, folder ? base_name(from) : NULL, in ? NULL : mode,
		&done, err);
	return r < 0 ? r
		     : print_copied(cli, from, get_text(done, "path"),
				    (uint64_t)get_int(done, "size"), err);
}

int cmd_cp(struct cli *cli, const struct args *a, struct err *err)
{
	auto_place from = { 0 }, to = { 0 };
	int r = parse_place(&from, a->operands[0], err);
	if (r == 0)
		r = parse_place(&to, a->operands[1], err);
	if (r < 0)
		return r;
	if (from.name && to.name)
		return err_set(err, -EINVAL, "one of the two is a file of this host");
	if (!from.name && !to.name)
		return err_set(err, -EINVAL, "one of the two is WORKSPACE:PATH");
	return from.name ? copy_out(cli, &from, a->operands[1], err)
			 : copy_in(cli, a->operands[0], &to, err);
}

/* ---- listed ---- */

static void list_row(struct cli *cli, struct table *t, const json_t *e)
{
	char size[OUT_SIZE_MAX], age[OUT_AGE_MAX];
	const char *name = get_text(e, "name");
	if (!*name)
		name = get_text(e, "name_b64"); /* not UTF-8 */
	if (cli->quiet) {
		out_clean(stdout, name);
		(void)fputc('\n', stdout);
		return;
	}
	const char *cells[] = { get_text(e, "mode"), get_text(e, "type"),
				out_size(size, get_int(e, "size"), cli->bytes),
				cli->bytes ? get_text(e, "modified_at")
					   : out_age(age, get_text(e, "modified_at"), time(NULL)),
				name };
	table_row(t, cells);
}

int cmd_files_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "MODE", "TYPE", ">SIZE", ">AGE", "NAME", NULL };
	struct http *h = NULL;
	auto_free char *text = NULL;
	auto_place p = { 0 };
	size_t len, i;
	int r = parse_remote(&p, a->operands[0], err);
	if (r < 0)
		return r;
	auto_target rest = file_target(p.path, NULL);
	target_query(&rest, "recursive", args_get(a, "recursive") ? "1" : NULL);
	r = api_stream_either(cli, p.name, &rest, NULL, &h, err);
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
		return err_set(err, -ENOMEM, "out of memory");
	json_t *e;
	json_array_foreach(json_object_get(doc, "entries"), i, e)
		list_row(cli, t, e);
	return cli->quiet ? 0 : table_print(t, stdout, err);
}
