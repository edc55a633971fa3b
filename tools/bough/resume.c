#include "tools/bough/resume.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/have.h"
#include "tools/bough/json.h"
#include "tools/bough/sandbox.h"

enum {
	COPY_SIZE = 256 * 1024,
	/* bytes: the disk begins with them while more comes, or the sync at the end takes as long
	 * as all the rest */
	WRITE_OUT = 8 << 20,
	FIRST_WAIT_MS = 100,
	LONGEST_WAIT_MS = 3000,
};

/* ---- tries ---- */

/* The connection, not what was asked for, is what failed. */
static bool is_broken(int r)
{
	return r == -ECONNRESET || r == -ECONNREFUSED || r == -EPIPE || r == -ETIMEDOUT;
}

/* Waits, longer each time. False: it has been tried often enough. */
static bool wait_to_retry(struct tries *t)
{
	if (t->n >= RESUME_TRIES)
		return false;
	unsigned ms = FIRST_WAIT_MS << t->n++;
	ms = ms < LONGEST_WAIT_MS ? ms : LONGEST_WAIT_MS;
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };
	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
	return true;
}

bool resume_again(struct tries *t, int r)
{
	return is_broken(r) && wait_to_retry(t);
}

/* ---- download ---- */

struct download {
	struct cli *cli;
	const struct place *from;
	int fd;
	struct progress progress;
	char etag[HTTP_FIELD_MAX]; /* of what has come; "" : nothing to tell it by */
	uint64_t done, size;       /* size 0: unknown */
	uint64_t given;            /* of done: to the disk, to be written */
	off_t base;                /* where in fd it begins; -1: no file */
	bool writing;              /* it was the output that failed */
};

static int write_all(struct download *d, const char *p, size_t n, struct err *err)
{
	while (n > 0) {
		ssize_t w = write(d->fd, p, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0) {
			d->writing = true;
			return err_sys(err, -errno, "write what came");
		}
		p += w;
		n -= (size_t)w;
		d->done += (uint64_t)w;
	}
	if (d->base >= 0 && d->done - d->given >= WRITE_OUT) {
		(void)sync_file_range(d->fd, d->base + (off_t)d->given,
				      (off_t)(d->done - d->given), SYNC_FILE_RANGE_WRITE);
		d->given = d->done;
	}
	return 0;
}

/* The file isn't the one whose first bytes have come. */
static int begin_anew(struct download *d, struct err *err)
{
	d->writing = true; /* what fails here doesn't get better */
	if (d->base < 0)
		return err_set(err, -ESTALE, "%s:%s changed while it was copied", d->from->name,
			       d->from->path);
	if (ftruncate(d->fd, d->base) < 0 || lseek(d->fd, d->base, SEEK_SET) < 0)
		return err_sys(err, -errno, "begin anew");
	d->writing = false;
	d->done = d->given = 0;
	return 0;
}

static int take_answer(struct download *d, struct http *h, struct err *err)
{
	const struct http_head *head = http_answer(h);
	int r = 0;
	if (strcmp(head->type, "application/json") == 0 && !*head->etag)
		return err_set(err, -EISDIR, "%s:%s is a folder: `bough files ls` lists it",
			       d->from->name, d->from->path);
	if (d->done > 0 && head->status != 206)
		r = begin_anew(d, err);
	memcpy(d->etag, head->etag, sizeof(d->etag));
	d->size = head->length > 0 ? d->done + (uint64_t)head->length : 0;
	return r;
}

static int download_once(struct download *d, char *buf, struct err *err)
{
	struct http *h = NULL;
	ssize_t n = 0;
	char headers[HTTP_FIELD_MAX + 96];
	bool kept = !d->from->path;
	auto_target t = kept ? target_new("/v1/exports/")
			     : place_target("/files", d->from->path, NULL);
	if (kept)
		target_name(&t, d->from->name);
	if (d->done > 0) {
		(void)snprintf(headers, sizeof(headers),
			       "Range: bytes=%llu-\r\nIf-Range: %s\r\n",
			       (unsigned long long)d->done, d->etag);
		t.headers = headers;
	}
	int r = kept ? api_stream(d->cli, &t, "*/*", &h, err)
		     : api_stream_of(d->cli, d->from->name, PLACES, &t, "*/*", &h, err);
	if (r == 0)
		r = take_answer(d, h, err);
	while (r == 0 && (n = http_read(h, buf, COPY_SIZE, err)) > 0) {
		r = write_all(d, buf, (size_t)n, err);
		progress_update(&d->progress, d->done, d->size, "bytes", NULL);
	}
	if (r == 0 && n < 0)
		r = api_stream_error(d->cli, h, (int)n, err);
	http_free(h);
	return r;
}

int resume_download(struct cli *cli, const struct place *from, int fd, const char *what,
		    uint64_t *total, struct err *err)
{
	struct stat st;
	struct download d = { .cli = cli, .from = from, .fd = fd, .base = -1 };
	struct tries t = { 0 };
	auto_free char *buf = malloc(COPY_SIZE);
	if (!buf)
		return err_no_memory(err);
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		d.base = lseek(fd, 0, SEEK_CUR);
	progress_begin(&d.progress, cli, what);
	int r;
	for (;;) {
		uint64_t before = d.done;
		r = download_once(&d, buf, err);
		if (r == 0 || d.writing || d.done == 0 || !*d.etag || !is_broken(r))
			break;
		if (d.done > before)
			t.n = 0;
		if (!wait_to_retry(&t))
			break;
	}
	progress_end(&d.progress);
	*total = d.done;
	return r;
}

/* ---- upload ---- */

struct sending {
	struct cli *cli;
	struct progress progress;
	int fd;
	uint64_t at, size; /* at: where the present request began */
	bool box;          /* it goes into a sandbox */
	char location[HTTP_FIELD_MAX];
	char *path;        /* the file that it becomes */
	const char *mode;
	struct again *again;
};

static void show_sent(void *ctx, uint64_t bytes)
{
	struct sending *s = ctx;
	progress_update(&s->progress, s->at + bytes, s->size, "bytes", "copying");
}

static void add_base64(struct buf *out, const void *data, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";
	const uint8_t *p = data;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16;
		v |= i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0;
		v |= i + 2 < n ? p[i + 2] : 0;
		buf_u8(out, (uint8_t)digits[v >> 18]);
		buf_u8(out, (uint8_t)digits[v >> 12 & 63]);
		buf_u8(out, i + 1 < n ? (uint8_t)digits[v >> 6 & 63] : '=');
		buf_u8(out, i + 2 < n ? (uint8_t)digits[v & 63] : '=');
	}
}

/* Without a '/' at the end, and nothing escaped. */
static int join(char **out, const char *path, const char *last)
{
	size_t n = strlen(path);
	while (n > 0 && path[n - 1] == '/')
		n--;
	if (asprintf(out, "%.*s%s%s", (int)n, path, n > 0 && last ? "/" : "", last ? last : "") < 0)
		return -ENOMEM;
	return 0;
}

bool resume_can_name(const struct place *to, const char *last)
{
	auto_json json_t *a = json_string(to->path);
	auto_json json_t *b = json_string(last ? last : "");
	return a && b;
}

static int create(struct sending *s, const struct place *to, const char *path, const char *mode,
		  struct err *err)
{
	struct http *h = NULL;
	struct http_head head;
	auto_buf lines = { 0 };
	buf_printf(&lines, "Tus-Resumable: 1.0.0\r\nUpload-Length: %llu\r\nUpload-Metadata: path ",
		   (unsigned long long)s->size);
	add_base64(&lines, path, strlen(path));
	buf_printf(&lines, ",mode ");
	add_base64(&lines, mode, strlen(mode));
	buf_add(&lines, "\r\n", 3);
	if (buf_error(&lines))
		return err_no_memory(err);
	auto_target t = s->box ? target_sandbox(to->name, "/uploads")
			       : target_ws(to->name, "/uploads");
	t.headers = (const char *)lines.data;
	int r = api_exchange(s->cli, "POST", &t, NULL, &h, &head, err);
	http_free(h);
	if (r == 0 && !*head.location)
		r = err_set(err, -EPROTO, "boughd made an upload and didn't say where");
	if (r == 0)
		memcpy(s->location, head.location, sizeof(s->location));
	return r;
}

/* HEAD, DELETE, or PATCH with what is behind s->at. */
static int call(struct sending *s, const char *method, struct http_head *head, struct err *err)
{
	struct http *h = NULL;
	char lines[96];
	bool patch = strcmp(method, "PATCH") == 0;
	struct http_body body = { .type = "application/offset+octet-stream",
				  .fd = s->fd,
				  .size = (int64_t)(s->size - s->at),
				  .sent = show_sent,
				  .ctx = s };
	auto_target t = target_new(s->location);
	int n = snprintf(lines, sizeof(lines), "Tus-Resumable: 1.0.0\r\n");
	if (patch)
		(void)snprintf(lines + n, sizeof(lines) - (size_t)n, "Upload-Offset: %llu\r\n",
			       (unsigned long long)s->at);
	t.headers = lines;
	if (patch && lseek(s->fd, (off_t)s->at, SEEK_SET) < 0)
		return err_sys(err, -errno, "read the input");
	int r = api_exchange(s->cli, method, &t, patch ? &body : NULL, &h, head, err);
	http_free(h);
	return r;
}

/* Where it is: it may still hold on to the connection that broke. */
static int look(struct sending *s, struct err *err)
{
	struct http_head head;
	int r = call(s, "HEAD", &head, err);
	if (r < 0)
		return r;
	if (head.upload_offset < 0 || (uint64_t)head.upload_offset > s->size)
		return err_set(err, -EPROTO, "boughd told a place that isn't in the file");
	s->at = (uint64_t)head.upload_offset;
	return 0;
}

/* All had come, but whether it became a file wasn't heard: an upload that is done takes nothing. */
static int ask_again(struct sending *s, const struct place *there, struct err *err)
{
	struct http_head head;
	int r = call(s, "PATCH", &head, err);
	if (r != -EEXIST)
		return r;
	auto_json json_t *entry = NULL;
	if (place_stat(s->cli, there, KIND_WORKSPACE | KIND_SANDBOX, &entry, NULL) == 0 &&
	    strcmp(get_text(entry, "type"), "file") == 0 &&
	    (uint64_t)get_int(entry, "size") == s->size)
		return 0;
	return r;
}

static int send_all(struct sending *s, const struct place *there, struct err *err)
{
	struct http_head head;
	struct tries t = { 0 };
	int r = call(s, "PATCH", &head, err);
	while (is_broken(r) || r == -EBUSY) {
		uint64_t before = s->at;
		if (!wait_to_retry(&t))
			break;
		struct err why = { 0 };
		int l = look(s, &why);
		if (l < 0) {
			r = l;
			*err = why;
			continue;
		}
		if (s->at > before)
			t.n = 0;
		r = s->at == s->size ? ask_again(s, there, err) : call(s, "PATCH", &head, err);
	}
	return r;
}

/* ---- an upload that an earlier copy has begun ---- */

/* What tells the file and its target: the record says it, and the upload behind it. */
static int describe(const struct sending *s, const struct stat *st, char **out)
{
	int n = asprintf(out, "%llx:%llx %llu %lld.%09ld %lld.%09ld %s %s\n",
			 (unsigned long long)st->st_dev, (unsigned long long)st->st_ino,
			 (unsigned long long)st->st_size, (long long)st->st_mtim.tv_sec,
			 st->st_mtim.tv_nsec, (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec,
			 s->mode, s->path);
	if (n < 0)
		*out = NULL;
	return n < 0 ? -ENOMEM : 0;
}

/* What changes behind that moment bears another time than the file has now. */
static bool is_settled(const struct stat *st, const struct timespec *began)
{
	const struct timespec before = again_before(began);
	return have_time_order(&st->st_ctim, &before) < 0;
}

/* 1: s->at is where it goes on; 0: there is none, or of another file. */
static int find_begun(struct sending *s, const struct stat *st, const char *what)
{
	size_t n = strlen(what);
	const struct again *a = s->again;
	const char *upload = a->found ? strrchr(a->sides, '\n') : NULL;
	if (!upload || upload[1] != '/' || strlen(upload) > sizeof(s->location))
		return 0;
	(void)snprintf(s->location, sizeof(s->location), "%s", upload + 1);
	if (strncmp(a->sides, what, n) != 0 || a->sides + n != upload + 1 ||
	    !is_settled(st, &a->source_at))
		return 0;
	struct tries t = { 0 };
	int r;
	while (is_broken(r = look(s, NULL)) && wait_to_retry(&t))
		;
	free(s->cli->detail); /* of an upload that isn't there */
	s->cli->detail = NULL;
	return r == 0;
}

static void note_begun(struct sending *s, char *what, const struct timespec *began)
{
	struct again *a = s->again;
	again_forget(a);
	a->source_at = a->target_at = *began;
	if (asprintf(&a->sides, "%s%s", what, s->location) < 0) {
		a->sides = NULL;
		again_end(a);
		return;
	}
	again_note(a);
}

static int send_anew(struct sending *s, const struct place *to, char *what, struct err *err)
{
	const struct place there = { to->name, s->path };
	const struct timespec began = again_now();
	s->at = 0;
	int r = create(s, to, s->path, s->mode, err);
	if (r < 0)
		return r;
	note_begun(s, what, &began);
	return send_all(s, &there, err);
}

/* Nobody goes on with it: it takes room for a day, else. */
static void give_up(struct sending *s)
{
	struct http_head head;
	if (*s->location)
		(void)call(s, "DELETE", &head, NULL); /* it may have gone */
	*s->location = '\0';
	free(s->cli->detail);
	s->cli->detail = NULL;
}

/* 0: it is there; 1: it must be begun anew. */
static int send_rest(struct sending *s, const struct place *to, struct err *err)
{
	struct err why = { 0 };
	const struct place there = { to->name, s->path };
	struct http_head head;
	if (!s->cli->quiet)
		fprintf(stderr, "bough: this copy broke off before: it goes on at byte %llu\n",
			(unsigned long long)s->at);
	/* One that is done may have been replaced since. */
	int r = s->at < s->size ? send_all(s, &there, &why) : call(s, "PATCH", &head, &why);
	if (r < 0 && !is_broken(r))
		return 1;
	if (r < 0)
		*err = why;
	return r;
}

static int send_file(struct sending *s, const struct place *to, struct err *err)
{
	struct stat st;
	auto_free char *what = NULL;
	if (fstat(s->fd, &st) < 0)
		return err_sys(err, -errno, "look at the file");
	s->size = (uint64_t)st.st_size;
	if (describe(s, &st, &what) < 0)
		return err_no_memory(err);
	int r = find_begun(s, &st, what) ? send_rest(s, to, err) : 1;
	if (r > 0) {
		give_up(s);
		r = send_anew(s, to, what, err);
	}
	if (r < 0 && !is_broken(r)) {
		char *detail = steal_ptr(&s->cli->detail);
		give_up(s);
		s->cli->detail = detail;
	}
	if (!is_broken(r))
		again_end(s->again);
	return r;
}

int resume_upload(struct cli *cli, int fd, const struct place *to, bool box, const char *last,
		  const char *mode, struct again *again, struct err *err)
{
	struct sending s = { .cli = cli, .fd = fd, .box = box, .mode = mode, .again = again };
	if (join(&s.path, to->path, last) < 0)
		return err_no_memory(err);
	progress_begin(&s.progress, cli, "copying");
	int r = send_file(&s, to, err);
	progress_end(&s.progress);
	free(s.path);
	return r;
}
