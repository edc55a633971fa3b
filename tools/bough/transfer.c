/* Import and export: streams between files, pipes and the daemon. */
#include "tools/bough/transfer.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/api.h"
#include "tools/bough/child.h"
#include "tools/bough/json.h"
#include "tools/bough/outfile.h"
#include "tools/bough/resume.h"

enum {
	COPY_SIZE = 256 * 1024,
	PIPE_SIZE = 1 << 20, /* from bough-pack: fewer switches */
};

/* ---- import ---- */

struct upload {
	struct progress progress;
	uint64_t total; /* 0: unknown */
	pid_t pack;     /* bough-pack; 0: none */
};

static void show_sent(void *ctx, uint64_t bytes)
{
	struct upload *u = ctx;
	progress_update(&u->progress, bytes, u->total, "bytes", "reading");
}

int transfer_reap(pid_t *pid, const char *what, struct err *err)
{
	int r = child_wait(pid, "bough-pack", err);
	return r > 0 ? err_set(err, -EIO, "%s", what) : r;
}

static int pack_finish(void *ctx, struct err *err)
{
	struct upload *u = ctx;
	return u->pack ? transfer_reap(&u->pack,
				       "the folder couldn't be read whole; nothing was made of it",
				       err)
		       : 0;
}

static void query_limit(struct target *t, const char *key, uint64_t v)
{
	char text[24];
	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	target_query(t, key, v ? text : NULL);
}

/* The members of a request that has an archive for its body. */
static int query_members(struct target *t, json_t *members, struct err *err)
{
	const char *key, *label;
	json_t *v, *value;
	json_object_foreach(members, key, v) {
		auto_free char *text = NULL;
		if (json_is_object(v)) {
			json_object_foreach(v, label, value) {
				auto_free char *one = NULL;
				if (asprintf(&one, "%s=%s", label, json_string_value(value)) < 0)
					return err_no_memory(err);
				target_query(t, "label", one);
			}
			continue;
		}
		if (!json_is_string(v) && !(text = json_dumps(v, JSON_ENCODE_ANY)))
			return err_no_memory(err);
		target_query(t, key, text ? text : json_string_value(v));
	}
	return 0;
}

static int import_stream(struct cli *cli, int fd, int64_t size, struct upload *u,
			 const struct import *im, json_t **out, struct err *err)
{
	auto_target t = target_new(im->workspace ? "/v1/workspaces/import" : "/v1/import");
	target_query(&t, "name", im->name);
	target_query(&t, "message", im->message);
	target_query(&t, "format", im->format);
	query_limit(&t, "max_bytes", im->max_bytes);
	query_limit(&t, "max_inodes", im->max_inodes);
	struct http_body body = { .type = "application/octet-stream",
				  .fd = fd,
				  .size = size,
				  .finish = pack_finish,
				  .sent = show_sent,
				  .ctx = u };
	int r = query_members(&t, im->workspace, err);
	if (r < 0)
		return r;
	u->total = size > 0 ? (uint64_t)size : 0;
	progress_begin(&u->progress, cli, "importing");
	cli->background = im->background;
	r = api_job(cli, "POST", &t, NULL, &body, &u->progress, out, err);
	cli->background = false;
	return r;
}

int transfer_import_file(struct cli *cli, const char *file, const struct import *im, json_t **out,
			 struct err *err)
{
	struct upload u = { 0 };
	bool in = !strcmp(file, "-");
	auto_fd fd = in ? -1 : open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (!in && fd < 0)
		return err_sys(err, -errno, "open %s", file);
	if (in && isatty(STDIN_FILENO))
		return err_set(err, -EINVAL, "stdin is a terminal: pipe an archive into it");
	struct stat st;
	if (fstat(in ? STDIN_FILENO : fd, &st) < 0)
		return err_sys(err, -errno, "%s", file);
	if (S_ISDIR(st.st_mode))
		return err_set(err, -EINVAL,
			       "%s is a folder: `bough create NAME --dir %s` takes one", file,
			       file);
	off_t at = S_ISREG(st.st_mode) ? lseek(in ? STDIN_FILENO : fd, 0, SEEK_CUR) : -1;
	int64_t size = at >= 0 && at <= st.st_size ? st.st_size - at : -1;
	int r = import_stream(cli, in ? STDIN_FILENO : fd, size, &u, im, out, err);
	return r == -EBADMSG ? err_prefix(err, r, "%s", in ? "stdin" : file) : r;
}

/* Starts bough-pack; its descriptor `side` (0 or 1) is a pipe whose other end is *out, and `in` its
 * stdin (-1: nothing). */
static int start_pack(char *const argv[], int side, int in, int *out, pid_t *pid, struct err *err)
{
	int p[2];
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "pipe");
	auto_fd theirs = p[side];
	auto_fd ours = p[!side];
	(void)fcntl(ours, F_SETPIPE_SZ, PIPE_SIZE); /* only speed */
	/* Its stdout may be ours where the stream comes in: it says nothing there. */
	auto_fd none = in < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
	int fds[3] = { in < 0 ? none : in, -1, -1 };
	fds[side] = theirs;
	int r = child_start(pid, argv, fds, err);
	if (r == 0)
		*out = steal_fd(&ours);
	return r;
}

int transfer_pack(const char *path, const struct pack_rest *rest, int *fd, pid_t *pid,
		  struct err *err)
{
	char *all[] = { (char *)"bough-pack", (char *)"--", (char *)path, NULL };
	if (!rest)
		return start_pack(all, 1, -1, fd, pid, err);
	auto_fd in = child_input(rest->list->data, rest->list->len, err);
	char *argv[] = { (char *)"bough-pack", (char *)"--have", (char *)rest->before,
			 (char *)"--",         (char *)path,     NULL };
	return in < 0 ? in : start_pack(argv, 1, in, fd, pid, err);
}

int transfer_unpack(const char *path, bool top, int *fd, pid_t *pid, struct err *err)
{
	char *argv[] = {
		(char *)"bough-pack", (char *)"--extract", (char *)(top ? "--top" : "--extract"),
		(char *)"--",         (char *)path,        NULL
	};
	return start_pack(argv, 0, -1, fd, pid, err);
}

int transfer_import_folder(struct cli *cli, const char *path, const struct import *im, json_t **out,
			   struct err *err)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "open %s", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, -EINVAL, "%s isn't a folder: --tar takes an archive", path);
	struct upload u = { 0 };
	auto_fd fd = -1;
	int r = transfer_pack(path, NULL, &fd, &u.pack, err);
	if (r < 0)
		return r;
	r = import_stream(cli, fd, -1, &u, im, out, err);
	child_kill(&u.pack); /* broken off: it must not fill a pipe for ever */
	return r == -EBADMSG ? err_prefix(err, r, "%s", path) : r;
}

static int print_snapshot(struct cli *cli, const json_t *snap, struct err *err)
{
	if (cli->json)
		return out_json(snap, err);
	printf("%s\n", get_text(snap, "id"));
	return 0;
}

int cmd_import(struct cli *cli, const struct args *a, struct err *err)
{
	auto_json json_t *snap = NULL;
	struct import im = { .name = args_get(a, "as"),
			     .message = args_get(a, "message"),
			     .background = args_get(a, "background") };
	int r = transfer_import_file(cli, a->operands[0], &im, &snap, err);
	return r < 0 ? r : print_snapshot(cli, snap, err);
}

/* ---- export ---- */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);
	return n > k && !strcasecmp(s + n - k, end);
}

/* The archive format that a file's name asks for; NULL: none that is known. */
static const char *format_of(const char *file)
{
	static const char *const known[][2] = {
		{ ".tar", "tar" }, { ".tar.zst", "tar.zst" }, { ".tzst", "tar.zst" },
		{ ".zip", "zip" }, { ".cpio", "cpio" },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (ends_with(file, known[i][0]))
			return known[i][1];
	return NULL;
}

/* An ending that promises a compression which isn't written: a plain tar would be a surprise. */
static bool other_format(const char *file)
{
	static const char *const endings[] = { ".gz", ".tgz",  ".xz",  ".txz", ".bz2", ".tbz2",
					       ".lz", ".lzma", ".zst", ".lz4", ".7z",  ".rar" };
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		if (ends_with(file, endings[i]))
			return true;
	return false;
}

int transfer_copy_out(struct cli *cli, struct http *h, int fd, const char *what, uint64_t *total,
		      struct err *err)
{
	auto_free char *buf = malloc(COPY_SIZE);
	if (!buf)
		return err_no_memory(err);
	struct progress p;
	progress_begin(&p, cli, what);
	ssize_t n;
	*total = 0;
	while ((n = http_read(h, buf, COPY_SIZE, err)) > 0) {
		for (ssize_t done = 0; done < n;) {
			ssize_t w = write(fd, buf + done, (size_t)(n - done));
			if (w < 0 && errno == EINTR)
				continue;
			if (w < 0) {
				progress_end(&p);
				return err_sys(err, -errno, "write what came");
			}
			done += w;
		}
		*total += (uint64_t)n;
		progress_update(&p, *total, 0, "bytes", NULL);
	}
	progress_end(&p);
	if (n < 0)
		return api_stream_error(cli, h, (int)n, err);
	return 0;
}

void transfer_note_lost(const struct cli *cli, const json_t *lost, const char *format)
{
	static const struct {
		const char *key, *one, *many;
	} kinds[] = {
		{ "sockets", "socket left out", "sockets left out" },
		{ "specials", "device or fifo left out", "devices and fifos left out" },
		{ "xattrs", "extended attribute dropped", "extended attributes dropped" },
		{ "hard_links", "hard link became a file of its own",
		  "hard links became files of their own" },
		{ "holes", "sparse file written out", "sparse files written out" },
		{ "times", "time cut to what it can hold", "times cut to whole seconds" },
	};
	bool any = false;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !cli->quiet; i++) {
		int64_t n = get_int(lost, kinds[i].key);
		if (n <= 0)
			continue;
		if (!any)
			fprintf(stderr, "bough: export: %s can't hold it all: ", format);
		fprintf(stderr, "%s%lld %s", any ? ", " : "", (long long)n,
			n == 1 ? kinds[i].one : kinds[i].many);
		any = true;
	}
	if (any)
		(void)fputc('\n', stderr);
}

static int print_exported(struct cli *cli, const char *file, const char *format, uint64_t bytes,
			  const json_t *summary, struct err *err)
{
	json_t *lost = json_object_get(summary, "lost");
	transfer_note_lost(cli, lost, format);
	if (!cli->json)
		return 0;
	auto_json json_t *doc = json_pack("{s:s, s:s, s:I, s:I, s:O?}", "file", file, "format",
					  format, "bytes", (json_int_t)bytes, "members",
					  (json_int_t)get_int(summary, "members"), "lost", lost);
	return doc ? out_json(doc, err) : err_set(err, -EIO, "the file's name isn't UTF-8");
}

static int export_later(struct cli *cli, const char *from, const char *format, struct err *err)
{
	auto_target t = target_new("/v1/exports");
	auto_json json_t *body = json_pack("{s:s, s:s*}", "from", from, "format", format);
	if (!body)
		return err_set(err, -EINVAL, "the name isn't UTF-8");
	return api_background(cli, "POST", &t, body, err);
}

/* What an export job has left. */
static int fetch_export(struct cli *cli, const char *id, const char *file, struct err *err)
{
	bool to_file = file && strcmp(file, "-") != 0;
	auto_outfile o = OUTFILE_STDOUT;
	const struct place from = { .name = (char *)(uintptr_t)id }; /* only read */
	uint64_t total;
	int r = to_file ? outfile_open(&o, file, err) : 0;
	if (r == 0)
		r = resume_download(cli, &from, o.fd, "exporting", &total, err);
	return r < 0 ? r : outfile_commit(&o, err);
}

int cmd_export(struct cli *cli, const struct args *a, struct err *err)
{
	const char *file = args_get(a, "output"), *format = args_get(a, "format");
	bool to_file = file && strcmp(file, "-") != 0, later = args_get(a, "background");
	if (later && file)
		return err_set(err, -EINVAL,
			       "--background keeps the archive with boughd: without "
			       "-o; `bough export EXPORT -o FILE` fetches it then");
	if (later)
		return export_later(cli, a->operands[0], format, err);
	if (!to_file && isatty(STDOUT_FILENO))
		return err_set(err, -EINVAL, "stdout is a terminal: give -o FILE or redirect it");
	if (strncmp(a->operands[0], "ex_", 3) == 0)
		return fetch_export(cli, a->operands[0], file, err);
	if (!format && to_file)
		format = format_of(file);
	if (!format && to_file && other_format(file))
		return err_set(err, -EINVAL,
			       "%s: its ending is none of .tar, .tar.zst, .zip and .cpio: give "
			       "one of them, or --format",
			       file);
	if (!format)
		format = "tar";
	if (!to_file && cli->json)
		return err_set(err, -EINVAL, "--json needs -o FILE: stdout can't hold both");
	auto_outfile o = OUTFILE_STDOUT;
	int r = to_file ? outfile_open(&o, file, err) : 0;
	if (r < 0)
		return r;
	struct http *h = NULL;
	uint64_t total = 0;
	auto_target rest = target_new("/archive");
	target_query(&rest, "format", format);
	r = api_stream_of(cli, a->operands[0], KIND_TREE, &rest, "*/*", &h, err);
	if (r == 0)
		r = transfer_copy_out(cli, h, o.fd, "exporting", &total, err);
	if (r < 0 && h)
		r = err_prefix(err, r, "the archive isn't whole");
	if (r == 0)
		r = outfile_commit(&o, err);
	auto_json json_t *summary = r == 0 && http_summary(h) ? json_loads(http_summary(h), 0, NULL)
							      : NULL;
	http_free(h);
	return r < 0 ? r : print_exported(cli, file, format, total, summary, err);
}
