/* Repositories: add, fetch, reset, ls, show, rm. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "tools/bough/api.h"
#include "tools/bough/child.h"
#include "tools/bough/infile.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"

enum {
	SECRET_MAX = 64 << 10, /* as the API takes it */
	PIPE_SIZE = 1 << 20,   /* from bough-pack: fewer switches */
	WHY_MAX = 400,         /* of what bough-pack says */
};

static struct target target_repo(const char *name, const char *rest)
{
	struct target t = target_new("/v1/repos/");
	target_name(&t, name);
	target_path(&t, rest);
	return t;
}

/* ---- credentials ---- */

/* The file that an option names, as a member of the body; `-` is stdin. */
static int add_secret(json_t *body, const struct args *a, const char *option, const char *key,
		      bool one_line, struct err *err)
{
	const char *file = args_get(a, option);
	if (!file)
		return 0;
	auto_infile f = { 0 };
	int r = infile_read(file, SECRET_MAX, &f, err);
	if (r < 0)
		return r;
	while (one_line && f.len > 0 &&
	       (f.text[f.len - 1] == '\n' || f.text[f.len - 1] == '\r'))
		f.text[--f.len] = '\0';
	if (f.len == 0)
		return err_set(err, -EINVAL, "%s is empty", file);
	if (strlen(f.text) != f.len || (one_line && strpbrk(f.text, "\r\n")))
		return err_set(err, -EINVAL, "%s: %s", file,
			       one_line ? "a token is one line" : "it isn't a text");
	return body_text(body, key, f.text, err);
}

static int add_secrets(json_t *body, const struct args *a, struct err *err)
{
	int r = add_secret(body, a, "token-file", "token", true, err);
	if (r == 0)
		r = add_secret(body, a, "ssh-key", "ssh_key", false, err);
	if (r == 0)
		r = add_secret(body, a, "known-hosts", "known_hosts", false, err);
	return r;
}

static bool any_secret(const struct args *a)
{
	return args_get(a, "token-file") || args_get(a, "ssh-key") || args_get(a, "known-hosts");
}

/* ---- files of a local repository, through bough-pack ---- */

struct sending {
	struct progress progress;
	pid_t pack;
	int why; /* what it says: its stderr */
};

static void show_sent(void *ctx, uint64_t bytes)
{
	struct sending *s = ctx;
	progress_update(&s->progress, bytes, 0, "bytes", "reading");
}

/* Its last line, without its name. */
static void read_why(int fd, char out[WHY_MAX + 1])
{
	size_t len = 0;
	ssize_t n;
	while (len < WHY_MAX && (n = read(fd, out + len, WHY_MAX - len)) > 0)
		len += (size_t)n;
	while (len > 0 && out[len - 1] == '\n')
		len--;
	out[len] = '\0';
	char *last = strrchr(out, '\n');
	char *from = last ? last + 1 : out;
	if (strncmp(from, "bough-pack: ", 12) == 0)
		from += 12;
	memmove(out, from, strlen(from) + 1);
}

static int reap(struct sending *s, struct err *err)
{
	char why[WHY_MAX + 1];
	read_why(s->why, why);
	int r = child_wait(&s->pack, "bough-pack", err);
	return r > 0 ? err_set(err, -EIO, "%s", *why ? why : "the repository couldn't be read") : r;
}

static int pack_finish(void *ctx, struct err *err)
{
	struct sending *s = ctx;
	return s->pack ? reap(s, err) : 0;
}

/* Starts `bough-pack --git PATH`; *out is its stdout. `known` is a text of its stdin. */
static int start_pack(struct sending *s, const char *path, const char *known, int *out,
		      struct err *err)
{
	int data[2], why[2];
	char *argv[] = { (char *)"bough-pack", (char *)"--git",         (char *)"--known",
			 (char *)"--",         (char *)(uintptr_t)path, NULL };
	auto_fd list = child_input(known, strlen(known), err);
	if (list < 0)
		return list;
	if (pipe2(data, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "pipe");
	auto_fd data_r = data[0], data_w = data[1];
	if (pipe2(why, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "pipe");
	auto_fd why_r = why[0], why_w = why[1];
	(void)fcntl(data_w, F_SETPIPE_SZ, PIPE_SIZE); /* only speed */
	int r = child_start(&s->pack, argv, (const int[]){ list, data_w, why_w }, err);
	if (r < 0)
		return r;
	s->why = steal_fd(&why_r);
	*out = steal_fd(&data_r);
	return 0;
}

static int send_files(struct cli *cli, struct target *t, const char *path, const char *known,
		      json_t **out, struct err *err)
{
	struct sending s = { .why = -1 };
	auto_fd fd = -1;
	int r = start_pack(&s, path, known, &fd, err);
	if (r < 0)
		return r;
	auto_fd why = s.why;
	struct http_body body = { .type = "application/x-tar",
				  .fd = fd,
				  .size = -1,
				  .finish = pack_finish,
				  .sent = show_sent,
				  .ctx = &s };
	progress_begin(&s.progress, cli, "reading");
	r = api_job(cli, "POST", t, NULL, &body, &s.progress, out, err);
	child_kill(&s.pack); /* broken off: it must not fill a pipe for ever */
	return r;
}

/* ---- add ---- */

/* What is there on this machine is a path, whatever it looks like. */
static bool is_url(const char *place)
{
	struct stat st;
	if (strstr(place, "://"))
		return true;
	const char *colon = strchr(place, ':'), *slash = strchr(place, '/');
	return colon && (!slash || colon < slash) && stat(place, &st) < 0;
}

static int add_url(struct cli *cli, const struct args *a, json_t **out, struct err *err)
{
	auto_json json_t *body = json_object();
	if (!body)
		return err_no_memory(err);
	int r = body_text(body, "url", a->operands[0], err);
	if (r == 0 && args_get(a, "name"))
		r = body_text(body, "name", args_get(a, "name"), err);
	if (r == 0)
		r = add_secrets(body, a, err);
	if (r < 0)
		return r;
	struct progress p;
	auto_target t = target_new("/v1/repos");
	progress_begin(&p, cli, "connecting");
	return api_job(cli, "POST", &t, body, NULL, &p, out, err);
}

static int add_path(struct cli *cli, const struct args *a, json_t **out, struct err *err)
{
	const char *place = a->operands[0];
	if (any_secret(a))
		return err_set(err, -EINVAL, "%s is a path: it needs no credentials", place);
	auto_free char *path = realpath(place, NULL);
	if (!path)
		return err_sys(err, -errno, "open %s", place);
	auto_target t = target_new("/v1/repos/import");
	target_query(&t, "name", args_get(a, "name"));
	target_query(&t, "path", path);
	return send_files(cli, &t, path, "", out, err);
}

int cmd_repo_add(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *repo = NULL;
	if (strncmp(a->operands[0], "file://", 7) == 0)
		return err_set(err, -EINVAL, "of a repository on this machine give the path: %s",
			       a->operands[0] + 7);
	int r = is_url(a->operands[0]) ? add_url(cli, a, &repo, err) : add_path(cli, a, &repo, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(repo, err);
	printf("%s\n", get_text(repo, "name"));
	return 0;
}

/* ---- branches ---- */

/* "diverged from upstream's: 1 ahead, 2 behind"; of one that isn't apart: what it is. */
static void branch_state(char *out, size_t size, const json_t *b)
{
	const json_t *up = json_object_get(b, "upstream"), *local = json_object_get(b, "local");
	const char *theirs = json_string_value(up), *ours = json_string_value(local);
	long long ahead = get_int(b, "ahead"), behind = get_int(b, "behind");
	bool counted = json_is_integer(json_object_get(b, "ahead"));
	if (!theirs)
		(void)snprintf(out, size, "%.12s, only here", ours ? ours : "");
	else if (!ours || strcmp(theirs, ours) == 0)
		(void)snprintf(out, size, "%.12s", theirs);
	else if (!counted)
		(void)snprintf(out, size, "%.12s, here %.12s", theirs, ours);
	else if (ahead && behind)
		(void)snprintf(out, size, "%.12s, here %.12s: diverged, %lld ahead, %lld behind",
			       theirs, ours, ahead, behind);
	else
		(void)snprintf(out, size, "%.12s, here %.12s: %lld %s", theirs, ours,
			       ahead ? ahead : behind, ahead ? "ahead" : "behind");
}

/* What a fetch can't bring together. */
static void tell_apart(const char *repo, const json_t *apart)
{
	char state[128];
	size_t i;
	json_t *b;
	json_array_foreach((json_t *)(uintptr_t)apart, i, b) {
		branch_state(state, sizeof(state), b);
		fprintf(stderr, "bough: %s is upstream ", get_text(b, "name"));
		fprintf(stderr, "%s (`bough repo reset %s %s`)\n", state, repo,
			get_text(b, "name"));
	}
}

/* ---- fetch ---- */

static int known_packs(struct cli *cli, const char *name, struct buf *out, struct err *err)
{
	auto_json json_t *doc = NULL;
	auto_target t = target_repo(name, "/packs");
	int r = api_call(cli, "GET", &t, NULL, &doc, NULL, err);
	size_t i;
	json_t *item;
	json_array_foreach(json_object_get(doc, "items"), i, item)
		buf_printf(out, "%s\n", json_string_value(item) ? json_string_value(item) : "");
	buf_u8(out, 0);
	return r < 0 ? r : buf_error(out) ? err_no_memory(err) : 0;
}

static int fetch_path(struct cli *cli, const struct args *a, const char *path, json_t **out,
		      struct err *err)
{
	auto_buf known = { 0 };
	if (any_secret(a))
		return err_set(err, -EINVAL, "%s comes from a path: it needs no credentials",
			       a->operands[0]);
	int r = known_packs(cli, a->operands[0], &known, err);
	if (r < 0)
		return r;
	auto_target t = target_repo(a->operands[0], "/import");
	return send_files(cli, &t, path, (const char *)known.data, out, err);
}

static int fetch_url(struct cli *cli, const struct args *a, json_t **out, struct err *err)
{
	auto_json json_t *body = json_object();
	int r = body ? add_secrets(body, a, err) : err_no_memory(err);
	if (r < 0)
		return r;
	struct progress p;
	auto_target t = target_repo(a->operands[0], "/fetch");
	progress_begin(&p, cli, "connecting");
	return api_job(cli, "POST", &t, body, NULL, &p, out, err);
}

int cmd_repo_fetch(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *repo = NULL, *result = NULL;
	auto_target t = target_repo(a->operands[0], "");
	int r = api_call(cli, "GET", &t, NULL, &repo, NULL, err);
	if (r < 0)
		return r;
	const char *path = get_text(repo, "path");
	r = *path ? fetch_path(cli, a, path, &result, err) : fetch_url(cli, a, &result, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(result, err);
	int64_t n = get_int(result, "refs_changed");
	if (cli->quiet)
		return 0;
	printf("%lld ref%s changed\n", (long long)n, n == 1 ? "" : "s");
	tell_apart(a->operands[0], json_object_get(result, "apart"));
	return 0;
}

int cmd_repo_reset(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const flags[] = { "force", NULL };
	auto_json json_t *body = json_object(), *res = NULL;
	const char *branch = a->operands[1];
	int r = body_text(body, "branch", branch, err);
	if (r == 0)
		r = body_flags(body, a, flags, err);
	auto_target t = target_repo(a->operands[0], "/reset");
	if (r == 0)
		r = api_call(cli, "POST", &t, body, &res, NULL, err);
	if (r < 0 || cli->json)
		return r < 0 ? r : out_json(res, err);
	if (cli->quiet)
		return 0;
	const char *to = get_text(res, "commit"), *was = get_text(res, "was");
	if (!get_true(res, "moved"))
		printf("%s is where upstream's is\n", branch);
	else if (*to)
		printf("%s is now %.12s\n", branch, to);
	else
		printf("%s is removed\n", branch);
	if (*was)
		printf("it was %.12s, which stays: create --ref %.12s\n", was, was);
	return 0;
}

/* ---- ls, show, rm ---- */

static const char *place_of(const json_t *repo)
{
	const char *url = get_text(repo, "url");
	return *url ? url : get_text(repo, "path");
}

static void repo_row(struct table *t, const struct cli *cli, const json_t *repo, time_t now)
{
	char age[OUT_AGE_MAX];
	const char *cells[] = { owner_name(cli, repo, "owner"), get_text(repo, "name"),
				get_text(repo, "head"),
				out_age(age, get_text(repo, "fetched"), now), place_of(repo) };
	table_row(t, cells);
}

int cmd_repo_ls(struct cli *cli, const struct args *a, struct err *err)
{
	static const char *const headings[] = { "OWNER",    "REPOSITORY", "BRANCH",
						">FETCHED", "FROM",       NULL };
	static const struct list_view view = { headings, "name", OWNERS_FIRST, repo_row };
	auto_target t = target_new("/v1/repos");
	return list_show(cli, &t, &view, err);
}

static void show_branches(const json_t *repo)
{
	const json_t *list = json_object_get(repo, "branch_list");
	int64_t more = get_int(repo, "branches") - (int64_t)json_array_size(list);
	char state[128];
	size_t i;
	json_t *b;
	json_array_foreach((json_t *)(uintptr_t)list, i, b) {
		branch_state(state, sizeof(state), b);
		printf("  ");
		out_clean(stdout, get_text(b, "name"));
		printf("  %s\n", state);
	}
	if (more > 0)
		printf("  … and %lld more\n", (long long)more);
}

int cmd_repo_show(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *s = NULL;
	auto_target t = target_repo(a->operands[0], "");
	int r = api_call(cli, "GET", &t, NULL, &s, NULL, err);
	if (r < 0)
		return r;
	if (cli->json)
		return out_json(s, err);
	static const char *const counts[] = { "branches", "tags", "workspaces", "snapshots" };
	char buf[OUT_SIZE_MAX], text[OUT_TIME_MAX];
	time_t now = time(NULL);
	out_line("id", get_text(s, "id"));
	out_line("name", get_text(s, "name"));
	owners_load(cli);
	out_line("owner", owner_name(cli, s, "owner"));
	out_line(get_text(s, "kind"), place_of(s));
	out_line("branch", get_text(s, "head"));
	out_line("commit", get_text(s, "commit"));
	out_line("created", out_time(text, get_text(s, "created"), now));
	out_line("fetched", out_time(text, get_text(s, "fetched"), now));
	out_line("size", out_size(buf, get_int(s, "bytes"), cli->bytes));
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		out_line(counts[i], out_size(buf, get_int(s, counts[i]), true));
		if (i == 0)
			show_branches(s);
	}
	out_line("auth", get_text(s, "auth"));
	out_line("visibility", get_text(s, "visibility"));
	if (*get_text(s, "error"))
		out_line("error", get_text(s, "error"));
	return 0;
}

int cmd_repo_rm(struct cli *cli, const struct args *a, struct err *err)
{
	return list_remove_each(cli, a, "/v1/repos/", NULL, err);
}
