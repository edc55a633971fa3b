/* bough cp: files, folders and streams between the host, workspaces, snapshots and sandboxes. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "tools/bough/json.h"
#include "tools/bough/outfile.h"
#include "tools/bough/resume.h"
#include "tools/bough/sandbox.h"
#include "tools/bough/transfer.h"

/* ---- names ---- */

/* The last name of a path, with '/' at its end left out: a copy is called so. NULL: it is the
 * content that is meant ("", "/", ".", "..", "a/."). The caller frees. */
static int copy_name(const char *path, char **out, struct err *err)
{
	size_t n = strlen(path);
	*out = NULL;
	while (n > 0 && path[n - 1] == '/')
		n--;
	size_t from = n;
	while (from > 0 && path[from - 1] != '/')
		from--;
	n -= from;
	if (n == 0 || (n == 1 && path[from] == '.') || (n == 2 && !strncmp(path + from, "..", 2)))
		return 0;
	*out = strndup(path + from, n);
	return *out ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* The path with `name` (NULL: nothing) behind it, without '/' at the end; the caller frees. */
static int path_below(const char *path, const char *name, char **out, struct err *err)
{
	size_t n = strlen(path);
	bool top = n > 0 && path[0] == '/';
	while (n > 0 && path[n - 1] == '/')
		n--;
	const char *slash = name && (n > 0 || top) ? "/" : "";
	int r = asprintf(out, "%.*s%s%s", (int)n, path, slash, name ? name : !n && top ? "/" : "");
	return r < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
}

static bool ends_as_folder(const char *path)
{
	size_t n = strlen(path);
	return n > 0 && path[n - 1] == '/';
}

static int print_copied(struct cli *cli, const char *from, const char *to, uint64_t bytes,
			const json_t *members, struct err *err)
{
	if (!cli->json)
		return 0;
	auto_json json_t *doc = json_pack("{s:s, s:s, s:I, s:O*}", "from", from, "to", to, "bytes",
					  (json_int_t)bytes, "members", members);
	return doc ? out_json(doc, err) : err_set(err, -EIO, "a name isn't UTF-8");
}

static bool is_folder(const json_t *entry)
{
	return strcmp(get_text(entry, "type"), "directory") == 0;
}

/* What is there in a workspace: NULL for nothing. Leaves no error behind then. */
static int look(struct cli *cli, const struct place *to, json_t **entry, struct err *err)
{
	char *detail = steal_ptr(&cli->detail);
	struct err why = { 0 };
	*entry = NULL;
	int r = place_stat(cli, to, KIND_WORKSPACE | KIND_SANDBOX, entry, &why);
	if (r == -ENOENT) { /* that the workspace isn't there is told by what comes */
		free(cli->detail);
		cli->detail = detail;
		return 0;
	}
	free(detail);
	if (r < 0)
		*err = why;
	return r;
}

/* ---- what is copied: a stream, maybe of a child's ---- */

struct source {
	int fd;
	int64_t size;   /* -1: unknown */
	pid_t pid;      /* 0: nobody's */
	struct err *told; /* of our own child, in memory shared with it; NULL: it is bough-pack */
	struct progress progress;
};

static void source_done(struct source *s)
{
	transfer_kill(&s->pid);
	cleanup_close(&s->fd);
	if (s->told)
		(void)munmap(s->told, sizeof(*s->told)); /* ours */
}
#define auto_source __attribute__((cleanup(source_done))) struct source

static void show_sent(void *ctx, uint64_t bytes)
{
	struct source *s = ctx;
	progress_update(&s->progress, bytes, s->size > 0 ? (uint64_t)s->size : 0, "bytes",
			"copying");
}

static int source_finish(void *ctx, struct err *err)
{
	struct source *s = ctx;
	if (!s->pid)
		return 0;
	int r = transfer_reap(&s->pid, "the folder couldn't be read whole", err);
	if (r < 0 && s->told && s->told->code < 0) {
		*err = *s->told;
		r = err->code;
	}
	return r;
}

static int send_archive(struct cli *cli, const struct place *p, int fd, json_t **summary,
			struct err *err)
{
	struct http *h = NULL;
	uint64_t total;
	auto_target rest = place_target("/archive", p->path, NULL);
	target_query(&rest, "format", "tar");
	int r = api_stream_of(cli, p->name, PLACES, &rest, "*/*", &h, err);
	if (r == 0)
		r = transfer_copy_out(cli, h, fd, "copying", &total, err);
	if (r == 0 && summary)
		*summary = http_summary(h) ? json_loads(http_summary(h), 0, NULL) : NULL;
	http_free(h);
	return r;
}

/* In a child of its own, since one connection reads while the other writes. */
static int source_remote(struct source *s, struct cli *cli, const struct place *from, bool folder,
			 struct err *err)
{
	int p[2];
	void *shared = mmap(NULL, sizeof(*s->told), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return err_set(err, -ENOMEM, "out of memory");
	s->told = shared;
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "pipe");
	(void)fcntl(p[1], F_SETPIPE_SZ, 1 << 20); /* only speed */
	s->fd = p[0];
	s->pid = fork();
	if (s->pid == 0) {
		uint64_t total;
		(void)close(p[0]); /* the parent's */
		cli->quiet = true;
		int r = folder ? send_archive(cli, from, p[1], NULL, s->told)
			       : resume_download(cli, from, p[1], "copying", &total, s->told);
		_exit(r < 0);
	}
	int r = -errno;
	(void)close(p[1]); /* the child's */
	if (s->pid > 0)
		return 0;
	s->pid = 0;
	return err_sys(err, r, "fork");
}

/* ---- into a workspace or sandbox ---- */

/* Whose it is, is asked before: a pipe can't be read twice. 1: a sandbox's. */
static int inside(struct cli *cli, const struct place *to, struct target *rest, struct target *out,
		  struct err *err)
{
	bool box;
	int r = sandbox_choose(cli, to->name, &box, err);
	if (r < 0)
		return r;
	target_done(out);
	*out = box ? target_sandbox(to->name, "") : target_ws(to->name, "");
	buf_add(&out->text, rest->text.data, rest->text.len);
	out->text.failed |= rest->text.failed;
	return box;
}

static int send_in(struct cli *cli, struct source *s, struct target *t, json_t **out,
		   struct err *err)
{
	struct http_body body = { .type = "application/octet-stream",
				  .fd = s->fd,
				  .size = s->size,
				  .finish = source_finish,
				  .sent = show_sent,
				  .ctx = s };
	progress_begin(&s->progress, cli, "copying");
	return api_job(cli, "PUT", t, NULL, &body, &s->progress, out, err);
}

static int make_remote_folder(struct cli *cli, const struct place *dst, const char *mode,
			      struct err *err)
{
	auto_target rest = place_target("/files", dst->path, NULL), t = { 0 };
	int r = inside(cli, dst, &rest, &t, err);
	if (r < 0)
		return r;
	target_query(&t, "op", "mkdir");
	auto_json json_t *body = json_pack("{s:s*}", "mode", mode);
	if (!body)
		return err_set(err, -ENOMEM, "out of memory");
	return api_call(cli, "POST", &t, body, NULL, NULL, err);
}

/* A tar stream into the folder `dst`, which is made where it isn't there. */
static int put_archive(struct cli *cli, struct source *s, const struct place *dst, bool top,
		       const char *from, struct err *err)
{
	auto_json json_t *entry = NULL;
	auto_json json_t *done = NULL;
	int r = *dst->path ? look(cli, dst, &entry, err) : 0;
	if (r == 0 && entry && !is_folder(entry))
		return err_set(err, -ENOTDIR, "%s:%s is no folder", dst->name, dst->path);
	if (r == 0 && !entry && *dst->path)
		r = make_remote_folder(cli, dst, top ? "0700" : NULL, err);
	if (r < 0)
		return r;
	auto_target rest = place_target("/archive", dst->path, NULL), t = { 0 };
	r = inside(cli, dst, &rest, &t, err);
	if (r < 0)
		return r;
	target_query(&t, "top", top ? "1" : NULL);
	r = send_in(cli, s, &t, &done, err);
	return r < 0 ? r
		     : print_copied(cli, from, dst->path, (uint64_t)get_int(done, "bytes"),
				    json_object_get(done, "members"), err);
}

/* What a folder becomes: below one that is there, or it. */
struct landing {
	char *path;
	bool top; /* made or merged as a whole: its own attributes count too */
};

static int land(const char *to, bool there, const char *name, struct landing *out, struct err *err)
{
	out->top = name || !there;
	return path_below(to, there ? name : NULL, &out->path, err);
}

static int folder_in(struct cli *cli, struct source *s, const char *from, const char *name,
		     const struct place *to, struct err *err)
{
	auto_json json_t *entry = NULL;
	struct landing l = { 0 };
	int r = *to->path ? look(cli, to, &entry, err) : 0;
	if (r == 0)
		r = land(to->path, !*to->path || is_folder(entry), name, &l, err);
	if (r == 0) {
		const struct place dst = { to->name, l.path };
		r = put_archive(cli, s, &dst, l.top, from, err);
	}
	free(l.path);
	return r;
}

/* Whether the target is a folder of the workspace, or says that it is one. */
static int into_folder(struct cli *cli, const struct place *to, bool *yes, struct err *err)
{
	auto_json json_t *entry = NULL;
	*yes = !*to->path || ends_as_folder(to->path);
	int r = *yes ? 0 : look(cli, to, &entry, err);
	*yes |= r == 0 && is_folder(entry);
	return r;
}

static int file_in(struct cli *cli, struct source *s, const char *from, const struct place *to,
		   const char *name, const char *mode, struct err *err)
{
	auto_json json_t *done = NULL;
	auto_free char *path = NULL;
	auto_target rest = place_target("/files", to->path, name), t = { 0 };
	int r = inside(cli, to, &rest, &t, err);
	if (r < 0)
		return r;
	bool box = r > 0;
	if (mode && !box && !s->pid && s->size >= RESUME_UPLOAD_MIN && resume_can_name(to, name) &&
	    lseek(s->fd, 0, SEEK_CUR) == 0) {
		r = path_below(to->path, name, &path, err);
		if (r == 0)
			r = resume_upload(cli, s->fd, (uint64_t)s->size, to, name, mode, err);
		return r < 0 ? r : print_copied(cli, from, path, (uint64_t)s->size, NULL, err);
	}
	target_query(&t, "mode", mode);
	r = send_in(cli, s, &t, &done, err);
	return r < 0 ? r
		     : print_copied(cli, from, get_text(done, "path"),
				    (uint64_t)get_int(done, "size"), NULL, err);
}

/* stdin: into a folder an archive, else it becomes the file. */
static int copy_stdin(struct cli *cli, const struct place *to, struct err *err)
{
	bool folder;
	struct stat st;
	auto_source s = { .fd = dup(STDIN_FILENO), .size = -1 };
	if (s.fd < 0 || fstat(s.fd, &st) < 0)
		return err_sys(err, -errno, "look at stdin");
	off_t at = S_ISREG(st.st_mode) ? lseek(s.fd, 0, SEEK_CUR) : -1;
	if (at >= 0 && at <= st.st_size)
		s.size = st.st_size - at;
	int r = into_folder(cli, to, &folder, err);
	if (r < 0)
		return r;
	if (folder && isatty(s.fd))
		return err_set(err, -EINVAL, "stdin is a terminal: pipe an archive into it");
	return folder ? put_archive(cli, &s, to, false, "-", err)
		      : file_in(cli, &s, "-", to, NULL, NULL, err);
}

static int copy_in(struct cli *cli, const char *from, const struct place *to, struct err *err)
{
	struct stat st;
	char mode[8];
	bool folder;
	auto_free char *name = NULL;
	auto_source s = { .fd = open(from, O_RDONLY | O_CLOEXEC | O_NOCTTY), .size = -1 };
	if (s.fd < 0 || fstat(s.fd, &st) < 0)
		return err_sys(err, -errno, "open %s", from);
	int r = copy_name(from, &name, err);
	if (r == 0 && S_ISDIR(st.st_mode)) {
		cleanup_close(&s.fd);
		s.fd = -1;
		r = transfer_pack(from, &s.fd, &s.pid, err);
		return r < 0 ? r : folder_in(cli, &s, from, name, to, err);
	}
	if (r == 0)
		r = into_folder(cli, to, &folder, err);
	if (r < 0)
		return r;
	s.size = S_ISREG(st.st_mode) ? st.st_size : -1;
	(void)snprintf(mode, sizeof(mode), "%04o", (unsigned)st.st_mode & 0777);
	return file_in(cli, &s, from, to, folder ? name : NULL, mode, err);
}

/* ---- from one to another ---- */

/* Also where it would become itself: below `to` it is called `name`. */
static bool lies_in(const struct place *from, const struct place *to, const char *name)
{
	auto_free char *outer = NULL;
	auto_free char *same = NULL;
	if (strcmp(from->name, to->name) != 0 || path_below(from->path, NULL, &outer, NULL) < 0 ||
	    path_below(to->path, name, &same, NULL) < 0)
		return false;
	size_t n = strlen(outer);
	return strcmp(outer, same) == 0 ||
	       (strncmp(to->path, outer, n) == 0 &&
		(n == 0 || !to->path[n] || to->path[n] == '/'));
}

static int copy_across(struct cli *cli, const char *shown, const struct place *from,
		       const struct place *to, struct err *err)
{
	auto_json json_t *entry = NULL;
	auto_free char *name = NULL;
	auto_source s = { .fd = -1, .size = -1 };
	bool folder;
	char mode[8];
	int r = place_stat(cli, from, PLACES, &entry, err);
	if (r == 0)
		r = copy_name(from->path, &name, err);
	if (r < 0)
		return r;
	if (is_folder(entry)) {
		if (lies_in(from, to, name))
			return err_set(err, -EINVAL, "%s can't be copied into itself", shown);
		r = source_remote(&s, cli, from, true, err);
		return r < 0 ? r : folder_in(cli, &s, shown, name, to, err);
	}
	r = into_folder(cli, to, &folder, err);
	if (r == 0)
		r = source_remote(&s, cli, from, false, err);
	unsigned long bits = strtoul(get_text(entry, "mode"), NULL, 8);
	(void)snprintf(mode, sizeof(mode), "%04lo", bits & 0777);
	return r < 0 ? r : file_in(cli, &s, shown, to, folder ? name : NULL, mode, err);
}

/* ---- out ---- */

/* The file gets the mode that it had, as the umask allows. */
static void set_mode(int fd, const json_t *entry)
{
	mode_t mask = umask(077);
	(void)umask(mask);
	unsigned mode = (unsigned)strtoul(get_text(entry, "mode"), NULL, 8);
	(void)fchmod(fd, mode & 0777 & ~mask); /* a device has its own */
}

static bool is_host_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int file_out(struct cli *cli, const struct place *from, const json_t *entry, const char *to,
		    struct err *err)
{
	auto_free char *joined = NULL;
	auto_free char *name = NULL;
	uint64_t total = 0;
	bool out = strcmp(to, "-") == 0;
	int r = copy_name(from->path, &name, err);
	if (r == 0 && !out && (ends_as_folder(to) || is_host_folder(to))) {
		r = path_below(to, name, &joined, err);
		to = joined;
	}
	if (r < 0)
		return r;
	auto_outfile o = OUTFILE_STDOUT;
	r = out ? 0 : outfile_open(&o, to, err);
	if (r == 0)
		r = resume_download(cli, from, o.fd, "copying", &total, err);
	if (r == 0 && o.temp)
		set_mode(o.fd, entry);
	if (r == 0)
		r = outfile_commit(&o, err);
	return r < 0 ? r : print_copied(cli, from->path, to, total, NULL, err);
}

/* The folder that is unpacked into: *made when it wasn't there. */
static int make_host_folder(const char *path, bool *made, struct err *err)
{
	struct stat st;
	*made = mkdir(path, 0700) == 0;
	if (*made)
		return 0;
	if (errno != EEXIST)
		return err_sys(err, -errno, "make %s", path);
	/* A link to a folder isn't what would be copied into. */
	if (lstat(path, &st) < 0)
		return err_sys(err, -errno, "look at %s", path);
	return S_ISDIR(st.st_mode) ? 0 : err_set(err, -ENOTDIR, "%s is no folder", path);
}

static int unpack_into(struct cli *cli, const struct place *from, const char *path, bool top,
		       json_t **summary, struct err *err)
{
	auto_fd fd = -1;
	pid_t pid = 0;
	int r = transfer_unpack(path, top, &fd, &pid, err);
	if (r == 0)
		r = send_archive(cli, from, fd, summary, err);
	if (r < 0 && r != -EPIPE) { /* what came isn't whole, and it needn't say so too */
		transfer_kill(&pid);
		return r;
	}
	cleanup_close(&fd);
	fd = -1;
	return pid ? transfer_reap(&pid, "not all of it could be made", err)
		   : r;
}

static int folder_out(struct cli *cli, const struct place *from, const char *to, struct err *err)
{
	auto_free char *name = NULL;
	auto_json json_t *summary = NULL;
	struct landing l = { 0 };
	bool made = false, there = is_host_folder(to);
	if (strcmp(to, "-") == 0)
		return isatty(STDOUT_FILENO)
			       ? err_set(err, -EINVAL, "stdout is a terminal: redirect it")
			       : send_archive(cli, from, STDOUT_FILENO, NULL, err);
	int r = copy_name(from->path, &name, err);
	if (r == 0)
		r = land(to, there, name, &l, err);
	if (r == 0 && (l.top || !there))
		r = make_host_folder(l.path, &made, err);
	if (r == 0)
		r = unpack_into(cli, from, l.path, l.top, &summary, err);
	if (r < 0 && made)
		(void)rmdir(l.path); /* where nothing came */
	if (r == 0)
		r = print_copied(cli, from->path, l.path, (uint64_t)get_int(summary, "bytes"),
				 json_object_get(summary, "members"), err);
	free(l.path);
	return r;
}

static int copy_out(struct cli *cli, const struct place *from, const char *to, struct err *err)
{
	auto_json json_t *entry = NULL;
	if (strcmp(to, "-") == 0 && cli->json)
		return err_set(err, -EINVAL, "--json: stdout can't hold both");
	int r = place_stat(cli, from, PLACES, &entry, err);
	if (r < 0)
		return r;
	return is_folder(entry) ? folder_out(cli, from, to, err)
				: file_out(cli, from, entry, to, err);
}

int cmd_cp(struct cli *cli, const struct args *a, struct err *err)
{
	auto_place from = { 0 }, to = { 0 };
	const char *src = a->operands[0], *dst = a->operands[1];
	int r = place_parse(&from, src, err);
	if (r == 0)
		r = place_parse(&to, dst, err);
	if (r < 0)
		return r;
	if (!from.name && !to.name)
		return err_set(err, -EINVAL, "one of the two is WORKSPACE:PATH");
	(void)signal(SIGPIPE, SIG_IGN); /* a child that ends early tells why itself */
	if (from.name && to.name)
		return copy_across(cli, src, &from, &to, err);
	if (from.name)
		return copy_out(cli, &from, dst, err);
	return strcmp(src, "-") == 0 ? copy_stdin(cli, &to, err) : copy_in(cli, src, &to, err);
}
