#include "snapd/fsclient.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/base/frame.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "snapd/stackop.h"

struct fsclient {
	char *path;
	pthread_mutex_t lock;
	pthread_cond_t moved; /* the gate */
	bool open;
	char why[256];  /* closed for a reason: don't wait */
	int answer_ms;  /* how long a call may take */
	uint64_t epoch; /* one more whenever the gate closes: older connections are dead */
	int idle[FSCLIENT_IDLE];
	unsigned nidle;
	unsigned calls; /* under way, of those that wait for their turn */
	pthread_cond_t turn;
	void (*before_loss)(void *ctx, const char *id); /* NULL: nobody asks */
	void *before_loss_ctx;
};

int fsclient_new(struct fsclient **out, const char *socket_path, struct err *err)
{
	struct fsclient *fc = calloc(1, sizeof(*fc));
	if (!fc || !(fc->path = strdup(socket_path))) {
		free(fc);
		return err_no_memory(err);
	}
	const char *s = getenv("BOUGH_FS_ANSWER_MS"); /* for tests */
	unsigned long ms = s ? strtoul(s, NULL, 10) : 0;
	fc->answer_ms = ms > 0 && ms < FSCLIENT_ANSWER_MS ? (int)ms : FSCLIENT_ANSWER_MS;
	clock_cond_init(&fc->moved);
	clock_cond_init(&fc->turn);
	pthread_mutex_init(&fc->lock, NULL);
	*out = fc;
	return 0;
}

void fsclient_before_loss(struct fsclient *fc, void (*fn)(void *ctx, const char *id), void *ctx)
{
	fc->before_loss = fn;
	fc->before_loss_ctx = ctx;
}

static void tell_loss(struct fsclient *fc, const char *id)
{
	if (fc->before_loss)
		fc->before_loss(fc->before_loss_ctx, id);
}

static void close_idle(struct fsclient *fc)
{
	while (fc->nidle > 0)
		close(fc->idle[--fc->nidle]);
}

void fsclient_free(struct fsclient *fc)
{
	if (!fc)
		return;
	close_idle(fc);
	pthread_cond_destroy(&fc->turn);
	pthread_cond_destroy(&fc->moved);
	pthread_mutex_destroy(&fc->lock);
	free(fc->path);
	free(fc);
}

/* ---- the gate ---- */

void fsclient_open_gate(struct fsclient *fc)
{
	pthread_mutex_lock(&fc->lock);
	fc->open = true;
	fc->why[0] = '\0';
	pthread_cond_broadcast(&fc->moved);
	pthread_mutex_unlock(&fc->lock);
}

void fsclient_close_gate(struct fsclient *fc, const char *why)
{
	pthread_mutex_lock(&fc->lock);
	fc->open = false;
	fc->epoch++;
	(void)snprintf(fc->why, sizeof(fc->why), "%s", why ? why : "");
	close_idle(fc);
	pthread_cond_broadcast(&fc->moved);
	pthread_mutex_unlock(&fc->lock);
}

static int pass_gate(struct fsclient *fc, struct err *err)
{
	struct timespec until = clock_in_ms(FSCLIENT_WAIT_MS);
	int r = 0;
	pthread_mutex_lock(&fc->lock);
	while (!fc->open && !fc->why[0] && r == 0)
		r = pthread_cond_timedwait(&fc->moved, &fc->lock, &until);
	if (fc->open)
		r = 0;
	else
		r = err_set(err, -ECONNREFUSED, "%s",
			    fc->why[0] ? fc->why : "bough-fs isn't running yet; try again");
	pthread_mutex_unlock(&fc->lock);
	return r;
}

/* Also for a turn among the calls, which call_end gives to the next one. */
static int call_begin(struct fsclient *fc, struct err *err)
{
	struct timespec until = clock_in_ms(fc->answer_ms);
	int r = pass_gate(fc, err), w = 0;
	if (r < 0)
		return r;
	pthread_mutex_lock(&fc->lock);
	while (fc->calls >= FSCLIENT_CALLS && w == 0)
		w = pthread_cond_timedwait(&fc->turn, &fc->lock, &until);
	if (fc->calls >= FSCLIENT_CALLS)
		r = err_set(err, -EBUSY, "bough-fs has too much to do; try again");
	else
		fc->calls++;
	pthread_mutex_unlock(&fc->lock);
	return r;
}

static void call_end(struct fsclient *fc)
{
	pthread_mutex_lock(&fc->lock);
	fc->calls--;
	pthread_cond_signal(&fc->turn);
	pthread_mutex_unlock(&fc->lock);
}

/* ---- connections ---- */

static int get_connection(struct fsclient *fc, uint64_t *epoch, struct err *err)
{
	int fd = -1;
	pthread_mutex_lock(&fc->lock);
	*epoch = fc->epoch;
	if (fc->nidle > 0)
		fd = fc->idle[--fc->nidle];
	pthread_mutex_unlock(&fc->lock);
	return fd >= 0 ? fd : frame_connect(fc->path, err);
}

static void keep_connection(struct fsclient *fc, int fd, uint64_t epoch)
{
	pthread_mutex_lock(&fc->lock);
	if (epoch == fc->epoch && fc->nidle < FSCLIENT_IDLE) {
		fc->idle[fc->nidle++] = fd;
		fd = -1;
	}
	pthread_mutex_unlock(&fc->lock);
	if (fd >= 0)
		close(fd);
}

static int add_text(const char *text, size_t n, void *ctx)
{
	buf_add(ctx, text, n);
	return 0;
}

/* How long a call may take that brings a file: its contents are copied. */
static int answer_ms(const struct fsclient *fc, int file)
{
	enum { SLOW = 4 << 20, /* bytes a second, at least */ LONGEST_S = 86400 };
	struct stat st;
	uint64_t more = file >= 0 && fstat(file, &st) == 0 ? (uint64_t)st.st_size / SLOW : 0;
	return fc->answer_ms + (int)(more < LONGEST_S ? more : LONGEST_S) * 1000;
}

static int wait_answer(int fd, const char *op, int wait_ms, struct err *err)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;
	do
		n = poll(&p, 1, wait_ms);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(err, -errno, "wait for bough-fs");
	if (n == 0)
		return err_set(err, -ETIMEDOUT, "bough-fs doesn't answer %s", op);
	return 0;
}

/* -ECONNRESET: the peer went away, before or after it did what was asked. */
static int exchange(int fd, const char *op, int wait_ms, struct frame *f, struct err *err)
{
	int r = frame_send(fd, f, err);
	f->nfds = 0; /* what was sent stays the caller's */
	if (r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN)
		return err_set(err, -ECONNRESET, "bough-fs ended before %s", op);
	if (r < 0)
		return err_prefix(err, r, "%s", op);
	r = wait_answer(fd, op, wait_ms, err);
	if (r < 0)
		return r;
	r = frame_recv(fd, f, err);
	if (r == 0 || r == -ECONNRESET)
		return err_set(err, -ECONNRESET, "bough-fs ended during %s", op);
	return r < 0 ? err_prefix(err, r, "answer to %s", op) : 0;
}

static int judge(json_t *answer, const char *op, struct err *err)
{
	const json_t *e = json_object_get(answer, "error");
	if (json_is_true(json_object_get(answer, "ok")))
		return 0;
	int code = (int)json_integer_value(json_object_get(e, "errno"));
	const char *text = json_string_value(json_object_get(e, "text"));
	if (!json_is_object(e) || code <= 0 || code > 4095)
		return err_set(err, -EPROTO, "bough-fs answered %s with nonsense", op);
	return text && *text ? err_set(err, -code, "%s", text) : err_sys(err, -code, "%s", op);
}

/* *out: the answer, as long as the connection is as good as before. `file`: sent with it, or -1. */
static int converse(int fd, const json_t *request, int file, int wait_ms, json_t **out,
		    struct err *err)
{
	__attribute__((cleanup(frame_done))) struct frame f = { 0 };
	if (file >= 0)
		f.fds[f.nfds++] = file;
	const char *op = json_string_value(json_object_get(request, "op"));
	(void)json_dump_callback(request, add_text, &f.text, JSON_COMPACT); /* buf remembers */
	if (buf_error(&f.text) || !op) {
		f.nfds = 0;
		return err_no_memory(err);
	}
	int r = exchange(fd, op, wait_ms, &f, err);
	if (r < 0)
		return r;
	json_t *j = json_loadb((const char *)f.text.data, f.text.len, 0, NULL);
	if (!json_is_object(j)) {
		json_decref(j);
		return err_set(err, -EPROTO, "bough-fs answered %s with nonsense", op);
	}
	*out = j;
	return 0;
}

/* -ERESTART: nothing was begun, because somebody has settled meanwhile (fs_settle). wait_ms 0: as
 * long as such a call may take. */
static int direct(struct fsclient *fc, const json_t *request, int file, int wait_ms,
		  json_t **answer, struct err *err)
{
	const char *op = json_string_value(json_object_get(request, "op"));
	uint64_t epoch;
	json_t *j;
	auto_fd fd = get_connection(fc, &epoch, err);
	if (fd == -ENOENT || fd == -ECONNREFUSED)
		return err_set(err, -ECONNRESET, "bough-fs isn't running");
	if (wait_ms == 0 || wait_ms > fc->answer_ms)
		wait_ms = answer_ms(fc, file);
	int r = fd < 0 ? fd : converse(fd, request, file, wait_ms, &j, err);
	if (r < 0)
		return r;
	r = judge(j, op, err);
	if (r == -ECONNRESET) /* it lives, and says so */
		r = err_set(err, -ERESTART, "bough-fs didn't begin %s", op);
	else
		keep_connection(fc, steal_fd(&fd), epoch);
	if (r >= 0 && answer)
		*answer = json_incref(j);
	json_decref(j);
	return r;
}

int fsclient_direct(struct fsclient *fc, json_t *request, json_t **answer, struct err *err)
{
	int r = request ? direct(fc, request, -1, 0, answer, err) : err_no_memory(err);
	json_decref(request);
	return r == -ERESTART ? -ECONNRESET : r;
}

static int call_once(struct fsclient *fc, json_t *request, int file, json_t **answer,
		     struct err *err)
{
	int r = call_begin(fc, err);
	if (r < 0)
		return r;
	r = direct(fc, request, file, 0, answer, err);
	call_end(fc);
	return r;
}

static int call_with(struct fsclient *fc, json_t *request, int file, bool again, json_t **answer,
		     struct err *err)
{
	int r = request ? call_once(fc, request, file, answer, err) : err_no_memory(err);
	for (int i = 0; (r == -ERESTART || (r == -ECONNRESET && again)) && i < 3; i++) {
		/* The supervisor may not have seen the death yet. */
		nanosleep(&(struct timespec){ .tv_nsec = 20000000L << i }, NULL);
		r = call_once(fc, request, file, answer, err);
	}
	json_decref(request);
	return r == -ERESTART ? -ECONNRESET : r;
}

/* fsclient_direct through the gate; `again`: it may be repeated. */
static int call(struct fsclient *fc, json_t *request, bool again, json_t **answer, struct err *err)
{
	return call_with(fc, request, -1, again, answer, err);
}

/* ---- operations ---- */

static int take_stack(json_t *answer, struct stack *out, struct err *err)
{
	int r = stack_from_json(out, json_object_get(answer, "stack"));
	json_decref(answer);
	return r < 0 ? err_sys(err, r, "bough-fs gave a bad stack") : 0;
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *new_workspace(const struct fs_new *w)
{
	json_t *j = json_pack("{s:s, s:o, s:o}", "id", w->id, "bytes", number(w->bytes), "inodes",
			      number(w->inodes));
	int bad = j ? 0 : -1;
	if (w->path)
		bad |= json_object_set_new(j, "path", json_string(w->path));
	if (w->xattrs != FS_XATTRS_INHERIT)
		bad |= json_object_set_new(j, "xattrs", json_boolean(w->xattrs == FS_XATTRS_ON));
	if (w->heir)
		bad |= json_object_set_new(j, "heir", json_true());
	if (bad) {
		json_decref(j);
		j = NULL;
	}
	return j;
}

int fs_create(struct fsclient *fc, const struct fs_new *w, const struct stack *stack, uid_t uid,
	      gid_t gid, struct err *err)
{
	json_t *rq = new_workspace(w);
	int bad = json_object_set_new(rq, "op", json_string("create"));
	bad |= json_object_set_new(rq, "uid", json_integer(uid));
	bad |= json_object_set_new(rq, "gid", json_integer(gid));
	if (stack)
		bad |= json_object_set_new(rq, "stack", stack_to_json(stack));
	if (bad) {
		json_decref(rq);
		rq = NULL;
	}
	return call(fc, rq, false, NULL, err);
}

int fs_fork(struct fsclient *fc, const char *id, const struct fs_new *children, size_t n,
	    uint64_t *pause_ns, struct err *err)
{
	json_t *list = json_array(), *answer;
	int bad = list ? 0 : -1;
	for (size_t i = 0; i < n; i++)
		bad |= json_array_append_new(list, new_workspace(&children[i]));
	if (bad) {
		json_decref(list);
		return err_no_memory(err);
	}
	int r = call(fc, json_pack("{s:s, s:s, s:o}", "op", "fork", "id", id, "children", list),
		     false, &answer, err);
	if (r < 0)
		return r;
	*pause_ns = (uint64_t)json_integer_value(json_object_get(answer, "pause_ns"));
	json_decref(answer);
	return 0;
}

int fs_mount(struct fsclient *fc, const char *id, const char *path, struct err *err)
{
	return call(fc, json_pack("{s:s, s:s, s:s}", "op", "mount", "id", id, "path", path), true,
		    NULL, err);
}

int fs_umount(struct fsclient *fc, const char *id, bool *busy, struct err *err)
{
	json_t *answer;
	int r = call(fc, json_pack("{s:s, s:s}", "op", "umount", "id", id), true, &answer, err);
	if (r < 0)
		return r;
	*busy = json_is_true(json_object_get(answer, "busy"));
	json_decref(answer);
	return 0;
}

static int take_active(const json_t *answer, struct layer_id *out, struct err *err)
{
	const char *hex = json_string_value(json_object_get(answer, "active"));
	if (!hex || strlen(hex) != 2 * sizeof(out->b) ||
	    hex_decode(out->b, sizeof(out->b), hex) < 0)
		return err_set(err, -EIO, "bough-fs doesn't tell which layer is active");
	return 0;
}

static int ask_stack(struct fsclient *fc, const char *op, const char *id, struct stack *out,
		     struct layer_id *active, struct err *err)
{
	json_t *answer;
	int r = call(fc, json_pack("{s:s, s:s}", "op", op, "id", id), true, &answer, err);
	if (r >= 0 && active && (r = take_active(answer, active, err)) < 0)
		json_decref(answer);
	return r < 0 ? r : take_stack(answer, out, err);
}

int fs_seal(struct fsclient *fc, const char *id, struct stack *out, struct err *err)
{
	return ask_stack(fc, "seal", id, out, NULL, err);
}

int fs_stack(struct fsclient *fc, const char *id, struct stack *out, struct err *err)
{
	return ask_stack(fc, "stack", id, out, NULL, err);
}

int fs_active(struct fsclient *fc, const char *id, struct layer_id *out, struct err *err)
{
	auto_stack sealed = { 0 };
	return ask_stack(fc, "stack", id, &sealed, out, err);
}

int fs_has_layer(struct fsclient *fc, const char *id, const struct layer_id *layer, struct err *err)
{
	auto_stack sealed = { 0 };
	struct layer_id active;
	int r = ask_stack(fc, "stack", id, &sealed, &active, err);
	if (r < 0)
		return r;
	bool has = memcmp(&active, layer, sizeof(active)) == 0;
	for (uint32_t i = 0; i < sealed.nlayers; i++)
		has |= memcmp(&sealed.layers[i].id, layer, sizeof(*layer)) == 0;
	return has;
}

int fs_settle(struct fsclient *fc, int wait_ms, struct err *err)
{
	json_t *rq = json_pack("{s:s}", "op", "settle");
	int r = rq ? pass_gate(fc, err) : err_no_memory(err);
	int old[FSCLIENT_IDLE];
	/* By a connection that is later than all: the earlier ones are good for nothing then. They
	 * go when it is there, since with the last one goes what fs_hold keeps. */
	pthread_mutex_lock(&fc->lock);
	fc->epoch++;
	unsigned n = fc->nidle;
	memcpy(old, fc->idle, n * sizeof(*old));
	fc->nidle = 0;
	pthread_mutex_unlock(&fc->lock);
	if (r >= 0)
		r = direct(fc, rq, -1, wait_ms, NULL, err);
	while (n > 0)
		close(old[--n]);
	json_decref(rq);
	return r == -ERESTART ? -ECONNRESET : r;
}

int fs_answered(struct fsclient *fc, const char *id, uint64_t tag, struct err *err)
{
	json_t *answer;
	int r = call(fc,
		     json_pack("{s:s, s:s, s:o}", "op", "answered", "id", id, "tag", number(tag)),
		     true, &answer, err);
	if (r < 0)
		return r;
	r = json_is_true(json_object_get(answer, "done"));
	json_decref(answer);
	return r;
}

int fs_replace(struct fsclient *fc, const char *id, const struct stack *old,
	       const struct stack *with, struct err *err)
{
	tell_loss(fc, id);
	return call(fc,
		    json_pack("{s:s, s:s, s:o, s:o}", "op", "replace", "id", id, "old",
			      stack_to_json(old), "new", stack_to_json(with)),
		    false, NULL, err);
}

int fs_restore(struct fsclient *fc, const char *id, const struct stack *to,
	       const struct stack *expect, bool renumber, struct err *err)
{
	tell_loss(fc, id);
	return call(fc,
		    json_pack("{s:s, s:s, s:o, s:o*}", "op", renumber ? "renumber" : "restore",
			      "id", id, "stack", stack_to_json(to), "expect",
			      expect ? stack_to_json(expect) : NULL),
		    !expect, NULL, err);
}

static json_t *versions(const struct version_id *list, size_t n)
{
	json_t *a = json_array();
	char text[VERSION_TEXT];
	int bad = a ? 0 : -1;
	for (size_t i = 0; i < n; i++)
		bad |= json_array_append_new(a, json_string(version_text(text, &list[i])));
	if (!bad)
		return a;
	json_decref(a);
	return NULL;
}

/* By which a server that is asked once more knows what the one before has done. */
uint64_t fs_tag(void)
{
	uint64_t tag;
	random_bytes(&tag, sizeof(tag));
	return (tag >> 1) | 1;
}

static json_t *any_tag(uint64_t tag)
{
	return number(tag ? tag : fs_tag());
}

static json_t *put_request(const char *op, const char *id, const struct ws_put *w)
{
	char hex[2 * NAME_MAX_BYTES + 1];
	if (w->len > NAME_MAX_BYTES)
		return NULL;
	hex_encode(hex, (const uint8_t *)w->name, w->len);
	json_t *rq = json_pack("{s:s, s:s, s:o, s:s}", "op", op, "id", id, "dir", number(w->dir),
			       "name", hex);
	int bad = rq ? json_object_set_new(rq, "tag", any_tag(w->tag)) : -1;
	if (w->file)
		bad |= json_object_set_new(rq, "file", number(w->file));
	if (w->upload)
		bad |= json_object_set_new(rq, "upload",
					   json_pack("[s, o]", w->upload, number(w->size)));
	if ((w->file || w->upload) && w->set_mode)
		bad |= json_object_set_new(rq, "mode", number(w->mode));
	if (w->file && w->as_is)
		bad |= json_object_set_new(rq, "as_is", json_true());
	if (w->must_exist || w->must_not_exist)
		bad |= json_object_set_new(rq, "exist", json_boolean(w->must_exist));
	if (w->nmatch)
		bad |= json_object_set_new(rq, "match", versions(w->match, w->nmatch));
	if (w->nunless)
		bad |= json_object_set_new(rq, "unless", versions(w->unless, w->nunless));
	if (!bad)
		return rq;
	json_decref(rq);
	return NULL;
}

int fs_put(struct fsclient *fc, const char *id, const struct ws_put *want, struct fs_named *out,
	   struct err *err)
{
	json_t *a;
	int r = call(fc, put_request("put", id, want), true, &a, err);
	if (r < 0)
		return r;
	struct fs_named n = { .created = json_is_true(json_object_get(a, "created")),
			      .mode = (uint32_t)json_integer_value(json_object_get(a, "mode")) };
	const char *version = json_string_value(json_object_get(a, "version"));
	(void)snprintf(n.version, sizeof(n.version), "%s", version ? version : "");
	json_decref(a);
	*out = n;
	return 0;
}

int fs_take(struct fsclient *fc, const char *id, const struct ws_put *want, struct err *err)
{
	return call(fc, put_request("take", id, want), true, NULL, err);
}

int fs_batch(struct fsclient *fc, const char *id, const struct fs_batch *b, size_t *failed,
	     json_t **results, struct err *err)
{
	json_t *a = NULL;
	*failed = SIZE_MAX;
	auto_fd mine = b->file < 0 ? memfd_create("batch", MFD_CLOEXEC) : -1;
	int file = b->file < 0 ? mine : b->file;
	uint64_t end = b->file < 0 ? 0 : b->at;
	int r = file < 0 ? -errno : io_write_full(NULL, file, b->ops, b->ops_len, end);
	if (r >= 0)
		r = io_write_full(NULL, file, b->contents, b->contents_len, end + b->ops_len);
	if (r < 0)
		return err_sys(err, r, "send a batch");
	r = call_with(fc,
		      json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:b}", "op", "batch", "id", id,
				"at", number(end), "size", number(b->ops_len), "contents",
				number(b->contents_len), "tag", any_tag(b->tag), "results",
				results != NULL),
		      file, true, &a, err);
	if (r < 0)
		return r;
	const json_t *at = json_object_get(a, "failed");
	if (at) {
		*failed = (size_t)json_integer_value(at);
		const char *text = json_string_value(json_object_get(a, "text"));
		r = err_set(err, -(int)json_integer_value(json_object_get(a, "errno")), "%s",
			    text ? text : "");
	} else if (results) {
		*results = json_incref(json_object_get(a, "results"));
	}
	json_decref(a);
	return r;
}

int fs_hold(struct fsclient *fc, const char *id, uint64_t tag, uint64_t bytes, uint64_t inodes,
	    struct err *err)
{
	return call(fc,
		    json_pack("{s:s, s:s, s:o, s:o, s:o}", "op", "hold", "id", id, "tag",
			      number(tag), "bytes", number(bytes), "inodes", number(inodes)),
		    true, NULL, err);
}

static int take_entry(const json_t *j, char name[NAME_MAX_BYTES + 1], struct fs_entry *out)
{
	const char *hex = json_string_value(json_array_get(j, 0));
	size_t n = hex ? strlen(hex) / 2 : 0;
	if (n == 0 || n > NAME_MAX_BYTES || hex_decode((uint8_t *)name, n, hex) < 0)
		return -EPROTO;
	name[n] = 0;
	*out = (struct fs_entry){
		.name = name,
		.len = n,
		.mode = (uint32_t)json_integer_value(json_array_get(j, 1)),
		.size = (uint64_t)json_integer_value(json_array_get(j, 2)),
		.mtime.tv_sec = (time_t)json_integer_value(json_array_get(j, 3)),
		.mtime.tv_nsec = (long)json_integer_value(json_array_get(j, 4)),
		.cookie = (uint64_t)json_integer_value(json_array_get(j, 5)),
	};
	return 0;
}

int fs_entries(struct fsclient *fc, const char *id, uint64_t dir, uint64_t after,
	       int (*fn)(void *ctx, const struct fs_entry *e), void *ctx, bool *more,
	       struct err *err)
{
	json_t *a = NULL;
	const json_t *one;
	size_t i;
	int r = call(fc,
		     json_pack("{s:s, s:s, s:o, s:o}", "op", "entries", "id", id, "dir",
			       number(dir), "at", number(after)),
		     true, &a, err);
	if (r < 0)
		return r;
	*more = json_is_true(json_object_get(a, "more"));
	json_array_foreach(json_object_get(a, "entries"), i, one) {
		char name[NAME_MAX_BYTES + 1];
		struct fs_entry e;
		r = take_entry(one, name, &e);
		if (r < 0)
			(void)err_set(err, r, "bough-fs gave a bad entry");
		else
			r = fn(ctx, &e);
		if (r)
			break;
	}
	json_decref(a);
	return r;
}

int fs_limits(struct fsclient *fc, const char *id, uint64_t bytes, uint64_t inodes, struct err *err)
{
	return call(fc,
		    json_pack("{s:s, s:s, s:o, s:o}", "op", "limits", "id", id, "bytes",
			      number(bytes), "inodes", number(inodes)),
		    true, NULL, err);
}

int fs_changes(struct fsclient *fc, const char *id, const char *since, json_t **answer,
	       struct err *err)
{
	return call(fc,
		    json_pack("{s:s, s:s, s:s*}", "op", "changes", "id", id, "since", since), true,
		    answer, err);
}

static bool gate_is_open(struct fsclient *fc)
{
	pthread_mutex_lock(&fc->lock);
	bool open = fc->open;
	pthread_mutex_unlock(&fc->lock);
	return open;
}

/* The connection, made where there is none. */
static int wait_connection(struct fsclient *fc, struct fs_wait *w, struct err *err)
{
	int fd = w->fd;
	if (fd < 0)
		fd = gate_is_open(fc) ? frame_connect(fc->path, err) : -ECONNREFUSED;
	pthread_mutex_lock(&w->lock);
	if (fd >= 0)
		w->fd = fd;
	bool ended = w->ended;
	pthread_mutex_unlock(&w->lock);
	return ended ? err_set(err, -ESHUTDOWN, "ended") : fd;
}

int fs_await(struct fsclient *fc, struct fs_wait *w, uint64_t moment, int wait_ms, json_t **answer,
	     struct err *err)
{
	json_t *rq = json_pack("{s:s, s:o, s:i}", "op", "await", "moment", number(moment),
			       "wait_ms", wait_ms);
	json_t *j = NULL;
	int r = rq ? wait_connection(fc, w, err) : err_no_memory(err);
	if (r >= 0)
		r = converse(w->fd, rq, -1, answer_ms(fc, -1), &j, err);
	json_decref(rq);
	if (r >= 0)
		r = judge(j, "await", err);
	pthread_mutex_lock(&w->lock);
	if (r < 0)
		cleanup_close(&w->fd);
	if (r < 0)
		w->fd = -1;
	pthread_mutex_unlock(&w->lock);
	if (r < 0)
		json_decref(j);
	else
		*answer = j;
	return r;
}

void fs_wait_end(struct fs_wait *w)
{
	pthread_mutex_lock(&w->lock);
	w->ended = true;
	if (w->fd >= 0)
		(void)shutdown(w->fd, SHUT_RDWR); /* who reads there is told */
	pthread_mutex_unlock(&w->lock);
}

static struct fs_usage take_usage(const json_t *a)
{
	struct fs_usage u = {
		.bytes = json_integer_value(json_object_get(a, "bytes")),
		.inodes = json_integer_value(json_object_get(a, "inodes")),
		.records = (uint64_t)json_integer_value(json_object_get(a, "records")),
		.layers = (uint64_t)json_integer_value(json_object_get(a, "layers")),
		.memory_bytes = (uint64_t)json_integer_value(json_object_get(a, "memory_bytes")),
		.files = (uint64_t)json_integer_value(json_object_get(a, "files")),
		.lost = (uint64_t)json_integer_value(json_object_get(a, "lost")),
		.gen = (uint64_t)json_integer_value(json_object_get(a, "gen")),
		.mounted = json_is_true(json_object_get(a, "mounted")),
		.xattrs = json_is_true(json_object_get(a, "xattrs")),
	};
	const char *fault = json_string_value(json_object_get(a, "fault"));
	(void)snprintf(u.fault, sizeof(u.fault), "%s", fault ? fault : "");
	const char *damage = json_string_value(json_object_get(a, "damage"));
	(void)snprintf(u.damage, sizeof(u.damage), "%s", damage ? damage : "");
	return u;
}

int fs_usage(struct fsclient *fc, const char *id, struct fs_usage *out, struct err *err)
{
	json_t *a;
	int r = call(fc, json_pack("{s:s, s:s}", "op", "usage", "id", id), true, &a, err);
	if (r < 0)
		return r;
	*out = take_usage(a);
	json_decref(a);
	return 0;
}

int fs_each_open(struct fsclient *fc,
		 void (*fn)(void *ctx, const char *id, const struct fs_usage *u), void *ctx,
		 struct err *err)
{
	enum { FS_ID_MAX = 40 }; /* WS_ID_MAX */
	char after[FS_ID_MAX + 1] = "";
	for (bool more = true; more;) {
		json_t *a, *item;
		size_t i;
		int r = fsclient_direct(fc,
					*after ? json_pack("{s:s, s:s}", "op", "list", "after",
							   after)
					       : json_pack("{s:s}", "op", "list"),
					&a, err);
		if (r < 0)
			return r;
		more = json_is_true(json_object_get(a, "more"));
		json_array_foreach(json_object_get(a, "workspaces"), i, item) {
			const char *id = json_string_value(json_object_get(item, "id"));
			if (!id || strlen(id) > FS_ID_MAX)
				continue;
			(void)snprintf(after, sizeof(after), "%s", id);
			struct fs_usage u = take_usage(item);
			fn(ctx, id, &u);
		}
		more &= i > 0; /* or it would ask for the same again */
		json_decref(a);
	}
	return 0;
}

int fs_close(struct fsclient *fc, const char *id, struct err *err)
{
	int r = call(fc, json_pack("{s:s, s:s}", "op", "close", "id", id), true, NULL, err);
	return r == -ENOENT ? 0 : r;
}

int fs_end(struct fsclient *fc, const char *id, struct err *err)
{
	int r = call(fc, json_pack("{s:s, s:s}", "op", "end", "id", id), true, NULL, err);
	return r == -ENOENT ? 0 : r;
}

int fs_delete(struct fsclient *fc, const char *id, struct err *err)
{
	tell_loss(fc, id);
	int r = call(fc, json_pack("{s:s, s:s}", "op", "delete", "id", id), true, NULL, err);
	return r == -ENOENT ? 0 : r;
}

int fs_ping(struct fsclient *fc, struct err *err)
{
	return call(fc, json_pack("{s:s}", "op", "hello"), true, NULL, err);
}

int fs_stats(struct fsclient *fc, json_t **out, struct err *err)
{
	return call(fc, json_pack("{s:s}", "op", "stats"), true, out, err);
}
