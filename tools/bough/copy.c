/* bough cp: files, folders and streams between the host, workspaces, snapshots and sandboxes. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/have.h"
#include "fs/base/rfc3339.h"
#include "tools/bough/again.h"
#include "tools/bough/child.h"
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
	return *out ? 0 : err_no_memory(err);
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
	return r < 0 ? err_no_memory(err) : 0;
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

/* ---- folders that are copied ---- */

struct folder {
	const char *shown;  /* as it was named */
	struct place place; /* borrowed; of the host or not */
	const char *name;   /* that it gets below a folder; NULL: its content is meant */
	char of[32];        /* what it is of; "" : the host */
	struct timespec at; /* when its copy began, by its own clock; 0: that isn't known */
	char *path;         /* the folder that it becomes */
	bool top;           /* that is made or merged as a whole: its own attributes count, too */
	bool same, there;   /* it goes on in the same place, that was there; from its beginning */
	struct again again;
	struct buf list; /* of what the target has, where it is gone on with */
	char before[RFC3339_SIZE];
};
#define auto_folder __attribute__((cleanup(folder_done))) struct folder

static void folder_done(struct folder *f)
{
	again_close(&f->again);
	buf_done(&f->list);
	free(f->path);
}

static void folder_seen(struct folder *f, const json_t *entry)
{
	(void)snprintf(f->of, sizeof(f->of), "%s", get_text(entry, "of"));
	if (rfc3339_parse(get_text(entry, "at"), &f->at) < 0)
		f->at = (struct timespec){ 0 };
}

/* What needn't be sent; NULL: nothing. */
static const struct pack_rest *folder_rest(struct folder *f, struct pack_rest *room)
{
	*room = (struct pack_rest){ rfc3339_text(f->before, &f->again.source_at), &f->list };
	return f->again.found ? room : NULL;
}

/* A folder that is there gets it under its name; else the target becomes it. */
static int folder_land(struct folder *f, const char *to, bool there, struct err *err)
{
	f->again.there = there;
	f->top = f->name || !there;
	return path_below(to, there ? f->name : NULL, &f->path, err);
}

/* The copy begins, into what `sides` (taken over) tells, at a time of its clock. */
static int folder_begins(struct folder *f, char *sides, const struct timespec *at, struct err *err)
{
	struct again *a = &f->again;
	a->sides = sides;
	a->source_at = again_before(&f->at);
	a->target_at = *at;
	if (!sides)
		return err_no_memory(err);
	if (f->at.tv_sec && at->tv_sec)
		again_note(a);
	else
		again_end(a);
	return 0;
}

/* Of one workspace, whatever it was restored to, into one folder. */
static bool same_place(const char *a, const char *b)
{
	const char *to_a = strchr(a, ' '), *to_b = strchr(b, ' ');
	size_t n = strcspn(a, ". ");
	return to_a && to_b && n == strcspn(b, ". ") && strncmp(a, b, n) == 0 &&
	       strcmp(to_a, to_b) == 0;
}

/* What was begun went into another one than `now` (NULL: there is none), or came from what isn't
 * any more. */
static void folder_anew(struct folder *f, const char *now)
{
	f->same = now && same_place(now, f->again.sides);
	f->there = f->again.there;
	again_forget(&f->again);
	free(f->path);
	f->path = NULL;
}

/* A copy that breaks off goes on by itself, for a while; with 0, from what is there. */
static int folder_retry(struct folder *f, struct tries *t, int r)
{
	if (!f->at.tv_sec || !f->again.target_at.tv_sec || !resume_again(t, r))
		return r;
	f->again.found = true;
	return 0;
}

/* Whether what is copied is what it was when that began; else nothing that is there counts. */
static int folder_same(struct cli *cli, struct folder *f, struct err *err)
{
	auto_json json_t *entry = NULL;
	int r = f->place.name ? place_stat(cli, &f->place, PLACES, &entry, err) : 0;
	if (r == 0 && f->place.name && strcmp(get_text(entry, "of"), f->of) != 0)
		f->again.found = false;
	return r;
}

/* Of a list that has been made. Each step forward counts as one. */
static void folder_tell(const struct cli *cli, const struct folder *f, struct tries *t,
			size_t *before)
{
	size_t n = again_count(&f->list);
	if (!*before && !t->n && !cli->quiet)
		fprintf(stderr, "bough: this copy broke off before: it goes on, %zu file%s there\n",
			n, n == 1 ? " is" : "s are");
	if (n > *before)
		t->n = 0;
	*before = n;
}

/* ---- what is copied: a stream, maybe of a child's ---- */

struct source {
	int fd;
	int64_t size;     /* -1: unknown */
	pid_t pid;        /* 0: nobody's */
	struct err *told; /* of our own child, in memory shared with it; NULL: it is bough-pack */
	struct progress progress;
};

static void source_done(struct source *s)
{
	child_kill(&s->pid);
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

/* `have`: what isn't wanted of it; NULL: all is. */
static int open_archive(struct cli *cli, const struct place *p, const struct pack_rest *have,
			struct http **h, struct err *err)
{
	struct http_head head;
	auto_target rest = place_target("/archive", p->path, NULL), t = { 0 };
	target_query(&rest, "format", "tar");
	if (!have)
		return api_stream_of(cli, p->name, PLACES, &rest, "*/*", h, err);
	target_query(&rest, "before", have->before);
	const struct http_body body = { .type = "application/octet-stream",
					.data = have->list->len ? (char *)have->list->data : "",
					.len = have->list->len,
					.fd = -1 };
	int r = api_target_of(cli, p->name, PLACES, &rest, &t, err);
	return r < 0 ? r : api_exchange(cli, "POST", &t, &body, h, &head, err);
}

static int send_archive(struct cli *cli, const struct place *p, const struct pack_rest *have,
			int fd, json_t **summary, struct err *err)
{
	struct http *h = NULL;
	uint64_t total;
	int r = open_archive(cli, p, have, &h, err);
	if (r == 0)
		r = transfer_copy_out(cli, h, fd, "copying", &total, err);
	auto_json json_t *told = r == 0 && http_summary(h) ? json_loads(http_summary(h), 0, NULL)
							   : NULL;
	http_free(h);
	if (r == 0 && get_int(told, "left") > 0 && !cli->quiet)
		fprintf(stderr,
			"bough: sent before, gone since, and left at the target: %lld, as %s\n",
			(long long)get_int(told, "left"), get_text(told, "left_path"));
	if (summary)
		*summary = steal_ptr(&told);
	return r;
}

/* In a child of its own, since one connection reads while the other writes. */
static int source_remote(struct source *s, struct cli *cli, const struct place *from,
			 struct folder *folder, struct err *err)
{
	struct pack_rest rest;
	int p[2];
	void *shared = mmap(NULL, sizeof(*s->told), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return err_no_memory(err);
	s->told = shared;
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "pipe");
	(void)fcntl(p[1], F_SETPIPE_SZ, 1 << 20); /* only speed */
	s->fd = p[0];
	s->pid = fork();
	if (s->pid == 0) {
		uint64_t total;
		(void)close(p[0]); /* the parent's, as the record is */
		if (folder)
			cleanup_close(&folder->again.fd);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* else it stays until it writes next */
		cli->quiet = true;
		int r = folder ? send_archive(cli, from, folder_rest(folder, &rest), p[1], NULL,
					      s->told)
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
		return err_no_memory(err);
	return api_call(cli, "POST", &t, body, NULL, NULL, err);
}

/* The folder `dst`, which is made where it isn't there. */
static int make_target(struct cli *cli, const struct place *dst, bool top, struct err *err)
{
	auto_json json_t *entry = NULL;
	int r = *dst->path ? look(cli, dst, &entry, err) : 0;
	if (r == 0 && entry && !is_folder(entry))
		return err_set(err, -ENOTDIR, "%s:%s is no folder", dst->name, dst->path);
	if (r == 0 && !entry && *dst->path)
		r = make_remote_folder(cli, dst, top ? "0700" : NULL, err);
	return r;
}

/* A tar stream into it. */
static int put_archive(struct cli *cli, struct source *s, const struct place *dst, bool top,
		       json_t **done, struct err *err)
{
	auto_target rest = place_target("/archive", dst->path, NULL), t = { 0 };
	int r = inside(cli, dst, &rest, &t, err);
	if (r < 0)
		return r;
	target_query(&t, "top", top ? "1" : NULL);
	return send_in(cli, s, &t, done, err);
}

static char *sides(const char *source, const char *of, uint64_t inode)
{
	char *text;
	return asprintf(&text, "%s %s %llu", source, of, (unsigned long long)inode) < 0 ? NULL
											: text;
}

/* A target that was restored tells by itself what isn't there any more. */
static char *sides_in(const struct folder *f, const json_t *target)
{
	char of[sizeof(f->of)];
	(void)snprintf(of, sizeof(of), "%s", get_text(target, "of"));
	of[strcspn(of, ".")] = '\0';
	return sides(f->of, of, (uint64_t)get_int(target, "inode"));
}

/* Whether the folder that a copy went to is the one that it was. */
static int find_in(struct cli *cli, struct folder *f, const struct place *to, struct err *err)
{
	auto_json json_t *entry = NULL;
	int r = folder_land(f, to->path, f->again.there, err);
	const struct place dst = { to->name, f->path };
	if (r == 0)
		r = look(cli, &dst, &entry, err);
	auto_free char *now = entry ? sides_in(f, entry) : NULL;
	if (r == 0 && (!now || strcmp(now, f->again.sides) != 0))
		folder_anew(f, now);
	return r;
}

static int begin_in(struct cli *cli, struct folder *f, const struct place *to, struct err *err)
{
	auto_json json_t *entry = NULL;
	auto_json json_t *made = NULL;
	struct timespec at = { 0 };
	again_open(&f->again, cli, &f->place, to);
	int r = f->again.found ? find_in(cli, f, to, err) : 0;
	if (r < 0 || f->again.found)
		return r;
	r = *to->path ? look(cli, to, &entry, err) : 0;
	if (r == 0)
		r = folder_land(f, to->path, f->same ? f->there : !*to->path || is_folder(entry),
				err);
	const struct place dst = { to->name, f->path };
	if (r == 0)
		r = make_target(cli, &dst, f->top, err);
	if (r == 0)
		r = place_stat(cli, &dst, KIND_WORKSPACE | KIND_SANDBOX, &made, err);
	if (r == 0 && rfc3339_parse(get_text(made, "at"), &at) < 0)
		at = (struct timespec){ 0 }; /* of a boughd that doesn't tell */
	return r < 0 ? r : folder_begins(f, sides_in(f, made), &at, err);
}

static int folder_source(struct cli *cli, struct folder *f, struct source *s, struct err *err)
{
	struct pack_rest rest;
	return f->place.name
		       ? source_remote(s, cli, &f->place, f, err)
		       : transfer_pack(f->place.path, folder_rest(f, &rest), &s->fd, &s->pid, err);
}

static int folder_in(struct cli *cli, struct folder *f, const struct place *to, struct err *err)
{
	struct tries t = { 0 };
	size_t known = 0;
	int r = begin_in(cli, f, to, err);
	while (r == 0) {
		const struct place dst = { to->name, f->path };
		auto_json json_t *done = NULL;
		auto_source s = { .fd = -1, .size = -1 };
		if (f->again.found) {
			r = again_list_remote(&f->again, cli, &dst, &f->list, err);
			folder_tell(cli, f, &t, &known);
		}
		if (r == 0 && t.n)
			r = folder_same(cli, f, err);
		if (r == 0)
			r = folder_source(cli, f, &s, err);
		if (r == 0)
			r = put_archive(cli, &s, &dst, f->top, &done, err);
		if (r == 0) {
			again_end(&f->again);
			return print_copied(cli, f->shown, dst.path,
					    (uint64_t)get_int(done, "bytes"),
					    json_object_get(done, "members"), err);
		}
		r = folder_retry(f, &t, r);
	}
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
	if (mode && !s->pid && s->size >= RESUME_UPLOAD_MIN && resume_can_name(to, name) &&
	    lseek(s->fd, 0, SEEK_CUR) == 0) {
		auto_again again = AGAIN_NONE;
		const struct place source = { NULL, from };
		r = path_below(to->path, name, &path, err);
		again_open(&again, cli, &source, to);
		if (r == 0)
			r = resume_upload(cli, s->fd, to, box, name, mode, &again, err);
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
	if (!folder)
		return file_in(cli, &s, "-", to, NULL, NULL, err);
	auto_json json_t *done = NULL;
	r = make_target(cli, to, false, err);
	if (r == 0)
		r = put_archive(cli, &s, to, false, &done, err);
	return r < 0 ? r
		     : print_copied(cli, "-", to->path, (uint64_t)get_int(done, "bytes"),
				    json_object_get(done, "members"), err);
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
		auto_folder f = { .shown = from,
				  .place = { NULL, from },
				  .name = name,
				  .at = again_now(),
				  .again = AGAIN_NONE };
		return folder_in(cli, &f, to, err);
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
	       (strncmp(to->path, outer, n) == 0 && (n == 0 || !to->path[n] || to->path[n] == '/'));
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
		auto_folder f = {
			.shown = shown, .place = *from, .name = name, .again = AGAIN_NONE
		};
		folder_seen(&f, entry);
		return folder_in(cli, &f, to, err);
	}
	r = into_folder(cli, to, &folder, err);
	if (r == 0)
		r = source_remote(&s, cli, from, NULL, err);
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

static int unpack_into(struct cli *cli, struct folder *f, json_t **summary, struct err *err)
{
	struct pack_rest rest;
	auto_fd fd = -1;
	pid_t pid = 0;
	int r = transfer_unpack(f->path, f->top, &fd, &pid, err);
	if (r == 0)
		r = send_archive(cli, &f->place, folder_rest(f, &rest), fd, summary, err);
	if (r < 0 && r != -EPIPE) { /* what came isn't whole, and it needn't say so too */
		child_kill(&pid);
		return r;
	}
	cleanup_close(&fd);
	fd = -1;
	return pid ? transfer_reap(&pid, "not all of it could be made", err) : r;
}

static char *sides_out(const struct folder *f, const char *path)
{
	struct statx st;
	char dev[96];
	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st) < 0 ||
	    !S_ISDIR(st.stx_mode))
		return NULL;
	/* The number of one that was removed is soon another one's. */
	bool born = st.stx_mask & STATX_BTIME;
	(void)snprintf(dev, sizeof(dev), "%x:%x %lld.%09u", st.stx_dev_major, st.stx_dev_minor,
		       born ? (long long)st.stx_btime.tv_sec : 0, born ? st.stx_btime.tv_nsec : 0);
	return sides(f->of, dev, st.stx_ino);
}

static int begin_out(struct cli *cli, struct folder *f, const char *to, bool *made, struct err *err)
{
	const struct place target = { NULL, to };
	bool there = is_host_folder(to);
	again_open(&f->again, cli, &f->place, &target);
	int r = f->again.found ? folder_land(f, to, f->again.there, err) : 0;
	auto_free char *now = r == 0 && f->again.found ? sides_out(f, f->path) : NULL;
	if (r < 0 || (now && strcmp(now, f->again.sides) == 0))
		return r;
	folder_anew(f, now);
	r = folder_land(f, to, f->same ? f->there : there, err);
	if (r == 0 && (f->top || !there))
		r = make_host_folder(f->path, made, err);
	const struct timespec at = again_now();
	return r < 0 ? r : folder_begins(f, sides_out(f, f->path), &at, err);
}

static int folder_out(struct cli *cli, struct folder *f, const char *to, struct err *err)
{
	struct tries t = { 0 };
	size_t known = 0;
	bool made = false;
	if (strcmp(to, "-") == 0)
		return isatty(STDOUT_FILENO)
			       ? err_set(err, -EINVAL, "stdout is a terminal: redirect it")
			       : send_archive(cli, &f->place, NULL, STDOUT_FILENO, NULL, err);
	int r = begin_out(cli, f, to, &made, err);
	while (r == 0) {
		auto_json json_t *summary = NULL;
		if (f->again.found) {
			r = again_list_host(&f->again, f->path, &f->list, err);
			folder_tell(cli, f, &t, &known);
		}
		if (r == 0 && t.n)
			r = folder_same(cli, f, err);
		if (r == 0)
			r = unpack_into(cli, f, &summary, err);
		if (r == 0) {
			again_end(&f->again);
			return print_copied(cli, f->place.path, f->path,
					    (uint64_t)get_int(summary, "bytes"),
					    json_object_get(summary, "members"), err);
		}
		r = folder_retry(f, &t, r);
	}
	if (made && rmdir(f->path) == 0) /* nothing came */
		again_end(&f->again);
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
	if (!is_folder(entry))
		return file_out(cli, from, entry, to, err);
	auto_free char *name = NULL;
	auto_folder f = { .shown = from->path, .place = *from, .again = AGAIN_NONE };
	folder_seen(&f, entry);
	r = copy_name(from->path, &name, err);
	f.name = name;
	return r < 0 ? r : folder_out(cli, &f, to, err);
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
