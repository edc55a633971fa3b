/* PUT of a file. What comes goes into a file without a name on the workspace's mount, which nobody
 * finds; bough-fs then gives it the name in one step, if what has the name is still what the
 * client believes (ws_put). However this ends early, nothing is left. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "snapd/api_files.h"
#include "snapd/archive_lib.h"
#include "snapd/files_code.h"
#include "snapd/files_form.h"
#include "snapd/files_list.h"
#include "snapd/limits.h"

enum { WRITE_BYTES = 256 * 1024 };

struct upload {
	struct place place;
	char *path;
	struct conditions cond;
	bool set_mode;
	uint32_t mode;
	int fd; /* the file without a name */
	uint64_t size;

	struct stream *in; /* the request's */
	EVP_MD_CTX *hash;  /* of the body as it comes; NULL: no digest was sent */
	struct digest wanted[2];
	unsigned nwanted;
	struct form *form; /* NULL: the body is the file */
	struct coder *coder;
	uint8_t *read, *decoded, *gathered;
	size_t ngathered;

	struct fs_named named; /* when it was done: */
	bool done;
};

static void upload_free(void *task)
{
	struct upload *u = task;
	cleanup_close(&u->fd);
	EVP_MD_CTX_free(u->hash);
	coder_free(u->coder);
	free(u->form);
	free(u->read);
	free(u->decoded);
	free(u->gathered);
	free(u->path);
	place_done(&u->place);
	free(u);
}

/* ---- the body ---- */

static int write_file(struct upload *u, const uint8_t *p, size_t n, struct err *err)
{
	const uint64_t before = u->size;
	while (n > 0) {
		ssize_t w = pwrite(u->fd, p, n, (off_t)u->size);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return place_error(err, -errno, "write", u->path);
		p += w;
		n -= (size_t)w;
		u->size += (uint64_t)w;
	}
	return limits_stream(u->place.sd, u->place.src.ws.own.owner, before, u->size, err);
}

static int put_decoded(struct upload *u, const uint8_t *p, size_t n, bool last, struct err *err)
{
	ssize_t made;
	while ((made = coder_step(u->coder, &p, &n, last, u->decoded, WRITE_BYTES, err)) > 0) {
		int r = write_file(u, u->decoded, (size_t)made, err);
		if (r < 0)
			return r;
	}
	if (made == 0 && n > 0)
		return err_set(err, -EINVAL, "the body goes on behind its coding's end");
	return (int)made;
}

/* A form's file comes in small pieces: they are gathered. */
static int flush_gathered(struct upload *u, struct err *err)
{
	size_t n = u->ngathered;
	u->ngathered = 0;
	return write_file(u, u->gathered, n, err);
}

static int gather(void *ctx, const void *data, size_t n, struct err *err)
{
	struct upload *u = ctx;
	bool large = n > WRITE_BYTES / 2;
	int r = large || n > WRITE_BYTES - u->ngathered ? flush_gathered(u, err) : 0;
	if (r < 0 || large)
		return r < 0 ? r : write_file(u, data, n, err);
	memcpy(u->gathered + u->ngathered, data, n);
	u->ngathered += n;
	return 0;
}

static int put_content(struct upload *u, const uint8_t *data, size_t n, struct err *err)
{
	return u->coder ? put_decoded(u, data, n, false, err) : write_file(u, data, n, err);
}

static int take(struct upload *u, const uint8_t *p, size_t n, struct err *err)
{
	if (u->hash && EVP_DigestUpdate(u->hash, p, n) != 1)
		return err_no_memory(err);
	return u->form ? form_feed(u->form, p, n, gather, u, err) : put_content(u, p, n, err);
}

static int check_digests(struct upload *u, struct err *err)
{
	struct digest d;
	if (!u->hash)
		return 0;
	if (EVP_DigestFinal_ex(u->hash, d.b, NULL) != 1)
		return err_no_memory(err);
	for (unsigned i = 0; i < u->nwanted; i++)
		if (!digest_equal(&d, &u->wanted[i]))
			return err_set(err, -EINVAL,
				       "the body's SHA-256 isn't what its digest says: it was "
				       "damaged on its way");
	return 0;
}

static int receive(struct upload *u, struct err *err)
{
	ssize_t n;
	int r = 0;
	while (r == 0 && (n = stream_read(u->in, u->read, WRITE_BYTES, -1)) != 0)
		r = n < 0 ? err_sys(err, (int)n, "the body") : take(u, u->read, (size_t)n, err);
	if (r == 0 && u->form)
		r = form_finish(u->form, err);
	if (r == 0 && u->form)
		r = flush_gathered(u, err);
	if (r == 0 && u->coder)
		r = put_decoded(u, NULL, 0, true, err);
	if (r == 0 && u->coder && !coder_whole(u->coder))
		r = err_set(err, -EINVAL, "the body's coding is cut off");
	return r < 0 ? r : check_digests(u, err);
}

/* ---- the name ---- */

int files_put_name(struct place *p, const char *path, struct ws_put *want,
		   const struct conditions *c, struct fs_named *named, struct err *err)
{
	struct condition_lists lists;
	struct stat dir;
	unsigned made = 0;
	const char *name;
	auto_fd fd = -1;
	int r = place_parent(p, path, &made, &fd, &name, err);
	if (r < 0)
		return r;
	if (fstat(fd, &dir) < 0) {
		r = place_error(err, -errno, "look at", path);
	} else {
		want->dir = ino_meant(dir.st_ino);
		want->name = name;
		want->len = strlen(name);
		conditions_want(c, &lists, want);
		r = fs_put(p->sd->fs, p->src.ws.id, want, named, err);
	}
	if (r < 0)
		place_unmake(p, path, made);
	return r == -ENOENT || r == -ESTALE || r == -EINVAL
		       ? err_set(err, -ENOTUNIQ, "%s: its folder was removed meanwhile", SHOW(path))
		       : r;
}

static int name_it(struct upload *u, struct err *err)
{
	struct stat file;
	if (fstat(u->fd, &file) < 0)
		return place_error(err, -errno, "look at", u->path);
	struct ws_put want = { .file = ino_meant(file.st_ino),
			       .set_mode = u->set_mode,
			       .mode = u->mode };
	int r = files_put_name(&u->place, u->path, &want, &u->cond, &u->named, err);
	u->done = r >= 0;
	return r;
}

static int upload_job(void *task, struct progress *p, unsigned *status, json_t **result,
		      struct err *err)
{
	struct upload *u = task;
	char mode[8], tag[VERSION_TEXT + 2];
	int r = receive(u, err);
	if (r >= 0)
		r = name_it(u, err);
	if (r < 0)
		return r;
	*status = u->named.created ? 201 : 200;
	(void)snprintf(mode, sizeof(mode), "%04o", (unsigned)u->named.mode & 07777);
	(void)snprintf(tag, sizeof(tag), "\"%s\"", u->named.version);
	json_t *j = json_pack("{s:I, s:s, s:s, s:b}", "size", (json_int_t)u->size, "mode", mode,
			      "etag", tag, "created", u->named.created);
	if (j && listing_set_name(j, "path", u->path, strlen(u->path)) < 0) {
		json_decref(j);
		j = NULL;
	}
	*result = j;
	return j ? 0 : err_no_memory(err);
}

static void upload_tell(void *task, struct reply *rp)
{
	const struct upload *u = task;
	if (u->done)
		reply_header(rp, "ETag", "\"%s\"", u->named.version);
}

/* ---- before it comes ---- */

int files_mode(struct request *rq, const char *text, uint32_t *out, struct err *err)
{
	char *end;
	unsigned long v = strtoul(text, &end, 8);
	if (*end || *text < '0' || *text > '7' || v > 07777)
		return request_bad_field(rq, "mode", err, "an octal number up to 7777");
	*out = (uint32_t)v;
	return 0;
}

/* What is there may be replaced, and is what the client wants it to be: so far. */
static int look(struct upload *u, struct request *rq, struct err *err)
{
	auto_found f = { .fd = -1 };
	struct err why = { 0 };
	if (!*u->path)
		return err_set(err, -EISDIR, "that is the root directory");
	int r = place_find(&u->place, u->path, &f, &why);
	if (r < 0 && r != -ENOENT) {
		*err = why;
		return r;
	}
	bool there = r == 0;
	r = conditions_check(&u->cond, there ? &f : NULL, err);
	if (r < 0 || !there || S_ISREG(f.mode))
		return r;
	files_detail(rq, &u->place, &f);
	return err_set(err, S_ISDIR(f.mode) ? -EISDIR : -ELOOP, "%s is a %s, not a file",
		       SHOW(u->path), place_type(f.mode));
}

static int prepare_digests(struct upload *u, struct request *rq, struct err *err)
{
	static const char *const names[] = { "Content-Digest", "Repr-Digest" };
	for (size_t i = 0; i < 2; i++) {
		int r = head_digest(request_header(rq, names[i]), &u->wanted[u->nwanted]);
		if (r < 0)
			return err_set(err, -EINVAL, "%s: its sha-256 is malformed", names[i]);
		u->nwanted += r > 0;
	}
	if (u->nwanted == 0)
		return 0;
	u->hash = EVP_MD_CTX_new();
	if (!u->hash || EVP_DigestInit_ex(u->hash, EVP_sha256(), NULL) != 1)
		return err_no_memory(err);
	return 0;
}

static int prepare_coding(struct upload *u, struct request *rq, struct err *err)
{
	char boundary[HEAD_BOUNDARY];
	enum coding c = head_coding(request_header(rq, "Content-Encoding"));
	if (c == CODING_UNKNOWN)
		return err_set(err, -EMEDIUMTYPE, "Content-Encoding can be gzip or zstd");
	if (request_header(rq, "Content-Range"))
		return err_set(err, -EINVAL, "a part of a file can't be PUT");
	int r = c == CODING_IDENTITY ? 0 : coder_new(&u->coder, c, true, err);
	if (r < 0)
		return r;
	r = head_boundary(request_header(rq, "Content-Type"), boundary);
	if (r < 0)
		return err_set(err, r, "Content-Type: a form without a boundary");
	if (r > 0 && u->coder)
		return err_set(err, -EMEDIUMTYPE, "a form in a coding isn't understood");
	if (r > 0 && !(u->form = malloc(sizeof(*u->form))))
		return err_no_memory(err);
	if (r > 0)
		form_init(u->form, boundary);
	u->read = malloc(WRITE_BYTES);
	u->decoded = u->coder ? malloc(WRITE_BYTES) : NULL;
	u->gathered = u->form ? malloc(WRITE_BYTES) : NULL;
	return u->read && (u->decoded || !u->coder) && (u->gathered || !u->form)
		       ? 0
		       : err_no_memory(err);
}

/* What surely doesn't fit is refused before it is sent. Of a little its writing tells. */
static int check_room(const struct upload *u, uint64_t length, struct err *err)
{
	enum { LITTLE = 64 * 1024 };
	uint64_t left;
	if (length == WEB_UNKNOWN || length <= LITTLE || u->coder || u->form)
		return 0;
	int r = place_room(&u->place, length, &left);
	return r < 0 ? err_set(err, r, "%llu bytes don't fit: %llu are left",
			       (unsigned long long)length, (unsigned long long)left)
		     : 0;
}

static int prepare(struct upload *u, struct request *rq, struct err *err)
{
	const char *mode = request_query(rq, "mode");
	int r = mode ? files_mode(rq, mode, &u->mode, err) : 0;
	u->set_mode = mode != NULL;
	u->path = strdup(rq->tail);
	if (r == 0 && !u->path)
		r = err_no_memory(err);
	if (r == 0)
		r = conditions_change(&u->cond, rq, err);
	if (r == 0)
		r = prepare_coding(u, rq, err);
	if (r == 0)
		r = prepare_digests(u, rq, err);
	if (r == 0)
		r = place_open(&u->place, rq->ctx, rq->params[0], false, PLACE_WRITE, err);
	if (r == 0)
		r = look(u, rq, err);
	if (r < 0)
		return r;
	u->fd = place_unnamed(&u->place);
	if (u->fd < 0)
		return place_error(err, u->fd, "make a file for", u->path);
	return check_room(u, request_length(rq), err);
}

int api_ws_file_put(struct request *rq, struct reply *rp, struct err *err)
{
	struct upload *u = calloc(1, sizeof(*u));
	if (!u)
		return err_no_memory(err);
	u->fd = -1;
	u->place.root = -1;
	u->in = rq->upload;
	int r = prepare(u, rq, err);
	if (r < 0) {
		upload_free(u);
		return r;
	}
	rp->job = upload_job;
	rp->tell = upload_tell;
	rp->task = u;
	rp->task_free = upload_free;
	return 0;
}
