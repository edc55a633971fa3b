#include "fs/mount/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/frame.h"
#include "fs/base/hash.h"
#include "fs/base/log.h"
#include "fs/base/u64map.h"
#include "fs/hold/hold.h"

enum {
	ANSWER_MS = 5000, /* of a holder: it has nothing to do but answer */
	AGAIN_MS = 1000,  /* between tries to start one */
	END_MS = 1000,    /* for one that has nothing left to keep to end */
	SLOTS = 4096,
	TRIES = 512,
	BOARD_VERSION = 1,
};

struct board {
	uint64_t version;
	struct holder_slot slots[SLOTS];
	struct {
		_Atomic uint64_t tag;
		_Atomic uint32_t tries;
		uint32_t reserved;
	} tries[TRIES];
};

struct kept {
	int fd; /* borrowed */
	size_t len;
	uint8_t blob[];
};

struct holder {
	char *socket;
	pthread_mutex_t lock; /* all below, and whole conversations */
	int fd;               /* the connection; -1: none */
	struct starter *starter; /* borrowed */
	bool outdated;        /* it runs another program than we would start */
	bool failing;         /* it couldn't be started the last time: said once */
	struct u64map kept;   /* key -> struct kept */
	struct frame out, in;
	struct board *board;
	int board_fd;

	int wake; /* eventfd: the thread is to look again, or to end */
	bool end, has_thread;
	pthread_t thread;
};

/* ---- conversation, with the lock ---- */

static void hang_up(struct holder *h)
{
	cleanup_close(&h->fd);
	h->fd = -1;
}

static int say(struct holder *h, enum hold_op op, uint64_t key, const void *blob, size_t len,
	       int fd)
{
	if (h->fd < 0)
		return -ENOTCONN;
	hold_encode(&h->out.text, op, key, blob, len);
	h->out.nfds = fd >= 0;
	h->out.fds[0] = fd;
	int r = frame_send(h->fd, &h->out, NULL);
	h->out.nfds = 0; /* it was borrowed */
	return r;
}

/* The answer, borrowed until the next; a descriptor that comes with it is in h->in. */
static int hear(struct holder *h, struct hold_msg *m)
{
	struct pollfd p = { .fd = h->fd, .events = POLLIN };
	int n;
	do
		n = poll(&p, 1, ANSWER_MS);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : -ETIMEDOUT;
	int r = frame_recv(h->fd, &h->in, NULL);
	if (r <= 0)
		return r < 0 ? r : -EPIPE;
	return hold_decode(m, h->in.text.data, h->in.text.len);
}

static int ask(struct holder *h, enum hold_op op, uint64_t key, struct hold_msg *m)
{
	int r = say(h, op, key, NULL, 0, -1);
	return r < 0 ? r : hear(h, m);
}

/* Whether the program that runs is the one that we would start: by its file, not its name. */
static bool same_program(const struct hold_msg *hello)
{
	char path[PATH_MAX], mine[128];
	struct stat st;
	if (starter_program(path) < 0 || stat(path, &st) < 0)
		return true; /* there is nothing to replace it by */
	int n = hold_identity(mine, sizeof(mine), &st);
	return (size_t)n == hello->len && memcmp(mine, hello->blob, hello->len) == 0;
}

/* A connection to one that runs. -ENOENT, -ECONNREFUSED: none does. */
static int find_holder(struct holder *h, struct err *err)
{
	struct hold_msg m;
	h->fd = frame_connect(h->socket, err);
	if (h->fd < 0)
		return h->fd;
	int r = ask(h, HOLD_HELLO, 0, &m);
	if (r == 0 && m.op != HOLD_HELLO)
		r = -EPROTO;
	if (r < 0) {
		hang_up(h);
		return err_sys(err, r, "talk to bough-hold");
	}
	h->outdated = !same_program(&m);
	return 0;
}

static int put_all(struct holder *h)
{
	int r = say(h, HOLD_PUT, HOLD_BOARD, NULL, 0, h->board_fd);
	struct u64map_slot *slot;
	for (size_t i = 0; r == 0 && (slot = u64map_next(&h->kept, &i));) {
		const struct kept *k = slot->value;
		r = say(h, HOLD_PUT, slot->key, k->blob, k->len, k->fd);
	}
	return r;
}

/* Starts one and gives it all that is kept. */
static void start_holder(struct holder *h)
{
	struct err err;
	hang_up(h);
	int r = starter_run(h->starter, &err);
	if (r == 0)
		r = find_holder(h, &err);
	if (r == 0) {
		r = put_all(h);
		if (r < 0)
			(void)err_sys(&err, r, "hand the mounts to bough-hold");
	}
	if (r < 0 && !h->failing)
		log_error("%s: until it can, mounts end with this server", err.text);
	h->failing = r < 0;
	if (r < 0)
		hang_up(h);
	else
		(void)eventfd_write(h->wake, 1); /* a counter never full here */
}

/* ---- another one when it dies ---- */

static void *watch(void *arg)
{
	struct holder *h = arg;
	(void)pthread_setname_np(pthread_self(), "fs-holder"); /* for people only */
	pthread_mutex_lock(&h->lock);
	while (!h->end) {
		struct pollfd p[] = { { .fd = h->wake, .events = POLLIN },
				      { .fd = h->fd, .events = POLLRDHUP } };
		bool wanted = h->kept.count > 0;
		pthread_mutex_unlock(&h->lock);
		int n = poll(p, 2, p[1].fd < 0 && wanted ? AGAIN_MS : -1);
		eventfd_t ignored;
		if (n > 0 && p[0].revents)
			(void)eventfd_read(h->wake, &ignored); /* it is readable */
		pthread_mutex_lock(&h->lock);
		/* The descriptor may be another by now: then it shows in the next round. */
		bool lost = p[1].fd >= 0 && p[1].revents && h->fd == p[1].fd;
		if (lost && !h->end) {
			log_warn("bough-hold ended; starting another");
			hang_up(h);
		}
		if (h->fd < 0 && h->kept.count > 0 && !h->end)
			start_holder(h);
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

/* ---- life ---- */

static int make_board(struct holder *h, struct err *err)
{
	if (h->board_fd < 0) {
		h->board_fd = memfd_create("bough-board", MFD_CLOEXEC);
		if (h->board_fd < 0 || ftruncate(h->board_fd, sizeof(*h->board)) < 0)
			return err_sys(err, -errno, "make memory to be shared");
	}
	void *p = mmap(NULL, sizeof(*h->board), PROT_READ | PROT_WRITE, MAP_SHARED, h->board_fd, 0);
	if (p == MAP_FAILED)
		return err_sys(err, -errno, "map memory to be shared");
	h->board = p;
	h->board->version = BOARD_VERSION;
	return 0;
}

/* The board of the server before, where it is one that we understand. */
static void take_board(struct holder *h)
{
	struct hold_msg m;
	struct stat st;
	uint64_t version;
	if (ask(h, HOLD_NEXT, HOLD_BOARD - 1, &m) < 0 || m.op != HOLD_ENTRY ||
	    m.key != HOLD_BOARD || h->in.nfds != 1)
		return;
	if (fstat(h->in.fds[0], &st) == 0 && st.st_size == (off_t)sizeof(struct board) &&
	    pread(h->in.fds[0], &version, sizeof(version), 0) == sizeof(version) &&
	    version == BOARD_VERSION)
		h->board_fd = steal_fd(&h->in.fds[0]);
}

char *holder_socket(const char *root)
{
	char *path;
	return asprintf(&path, "%s/run/hold.sock", root) < 0 ? NULL : path;
}

int holder_open(struct holder **out, const char *root, struct starter *starter, struct err *err)
{
	struct holder *h = calloc(1, sizeof(*h));
	if (!h)
		return err_no_memory(err);
	h->fd = h->board_fd = -1;
	pthread_mutex_init(&h->lock, NULL);
	h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h->starter = starter;
	h->socket = holder_socket(root);
	int r = !h->socket || h->wake < 0 ? err_no_memory(err) : 0;
	if (r == 0) {
		r = find_holder(h, err);
		if (r == -ENOENT || r == -ECONNREFUSED)
			r = 0;
	}
	if (r == 0 && h->fd >= 0)
		take_board(h);
	if (r == 0) {
		bool had = h->board_fd >= 0;
		r = make_board(h, err);
		if (r == 0 && !had && h->fd >= 0) /* a failure shows in what follows */
			(void)say(h, HOLD_PUT, HOLD_BOARD, NULL, 0, h->board_fd);
	}
	if (r == 0) {
		r = pthread_create(&h->thread, NULL, watch, h);
		h->has_thread = r == 0;
		r = r ? err_sys(err, -r, "start a thread") : 0;
	}
	if (r < 0) {
		holder_close(h);
		return r;
	}
	*out = h;
	return 0;
}

/* Where it keeps no mount it ends now, too: who unmounts the disk next finds nobody there. */
static void await_end(struct holder *h)
{
	struct pollfd p = { .fd = h->fd, .events = POLLIN };
	if (h->fd < 0 || h->kept.count > 0 || shutdown(h->fd, SHUT_WR) < 0)
		return;
	while (poll(&p, 1, END_MS) == 1 && frame_recv(h->fd, &h->in, NULL) > 0)
		;
}

void holder_close(struct holder *h)
{
	if (!h)
		return;
	if (h->has_thread) {
		pthread_mutex_lock(&h->lock);
		h->end = true;
		pthread_mutex_unlock(&h->lock);
		(void)eventfd_write(h->wake, 1); /* a counter never full here */
		(void)pthread_join(h->thread, NULL); /* it is ours and joinable */
	}
	await_end(h);
	hang_up(h);
	struct u64map_slot *slot;
	for (size_t i = 0; (slot = u64map_next(&h->kept, &i));)
		free(slot->value);
	u64map_done(&h->kept);
	if (h->board)
		(void)munmap(h->board, sizeof(*h->board)); /* whole mapping of ours */
	cleanup_close(&h->board_fd);
	cleanup_close(&h->wake);
	frame_done(&h->in);
	frame_done(&h->out);
	pthread_mutex_destroy(&h->lock);
	free(h->socket);
	free(h);
}

/* ---- what is kept ---- */

int holder_take(struct holder *h, struct holder_entry **out, size_t *n, struct err *err)
{
	struct holder_entry *all = NULL;
	size_t count = 0, cap = 0;
	struct hold_msg m = { .key = HOLD_BOARD };
	pthread_mutex_lock(&h->lock);
	int r = 0;
	while (h->fd >= 0 && r == 0 && (r = ask(h, HOLD_NEXT, m.key, &m)) == 0) {
		if (m.op != HOLD_ENTRY || h->in.nfds != 1)
			break;
		if (count == cap) {
			cap = cap ? cap * 2 : 16;
			struct holder_entry *more = reallocarray(all, cap, sizeof(*all));
			if (!more) {
				r = -ENOMEM;
				break;
			}
			all = more;
		}
		struct holder_entry e = { .key = m.key, .len = m.len, .fd = -1 };
		e.blob = malloc(m.len ? m.len : 1);
		if (!e.blob) {
			r = -ENOMEM;
			break;
		}
		memcpy(e.blob, m.blob, m.len);
		e.fd = steal_fd(&h->in.fds[0]);
		all[count++] = e;
	}
	pthread_mutex_unlock(&h->lock);
	if (r < 0) {
		for (size_t i = 0; i < count; i++) {
			free(all[i].blob);
			cleanup_close(&all[i].fd);
		}
		free(all);
		return err_sys(err, r, "ask bough-hold for the mounts that it keeps");
	}
	*out = all;
	*n = count;
	return 0;
}

void holder_put(struct holder *h, uint64_t key, int fd, const void *blob, size_t len)
{
	struct kept *k = len <= HOLD_BLOB_MAX ? malloc(sizeof(*k) + len) : NULL;
	if (!k) {
		log_error("a mount isn't kept beyond this server: out of memory");
		return;
	}
	k->fd = fd;
	k->len = len;
	memcpy(k->blob, blob, len);
	pthread_mutex_lock(&h->lock);
	struct kept *was = u64map_get(&h->kept, key);
	if (u64map_put(&h->kept, key, k) < 0) {
		free(k);
	} else {
		free(was);
		/* One that is gone is noticed by the thread, which gives all to the next. */
		if (h->fd >= 0)
			(void)say(h, HOLD_PUT, key, blob, len, was ? -1 : fd);
		else
			start_holder(h);
	}
	pthread_mutex_unlock(&h->lock);
}

void holder_drop(struct holder *h, uint64_t key)
{
	pthread_mutex_lock(&h->lock);
	free(u64map_del(&h->kept, key));
	(void)say(h, HOLD_DROP, key, NULL, 0, -1); /* or it is gone, and so is what it kept */
	pthread_mutex_unlock(&h->lock);
	for (size_t i = 0; i < SLOTS; i++) {
		struct holder_slot *s = &h->board->slots[i];
		if (atomic_load(&s->key) == key) {
			atomic_store(&s->gen, 0);
			atomic_store(&s->tries, 0);
			atomic_store(&s->key, 0);
		}
	}
}

void holder_sync(struct holder *h)
{
	struct hold_msg m;
	pthread_mutex_lock(&h->lock);
	if (h->fd >= 0 && ask(h, HOLD_PING, 0, &m) < 0)
		hang_up(h); /* the next put, or the thread, starts another */
	pthread_mutex_unlock(&h->lock);
}

void holder_renew(struct holder *h)
{
	struct hold_msg m;
	pthread_mutex_lock(&h->lock);
	if (h->outdated && h->fd >= 0) {
		int old = steal_fd(&h->fd);
		start_holder(h);
		/* Ours keep the mounts alive; only then the old one may let go. */
		int fresh = h->fd;
		h->fd = old;
		if (fresh >= 0) {
			log_info("bough-hold is replaced");
			(void)ask(h, HOLD_DROP_ALL, 0, &m); /* or it is gone already */
			hang_up(h);
			h->fd = fresh;
		}
	}
	pthread_mutex_unlock(&h->lock);
}

/* ---- the board ---- */

struct holder_slot *holder_slot(struct holder *h, uint64_t key)
{
	struct holder_slot *free_one = NULL;
	pthread_mutex_lock(&h->lock);
	for (size_t i = 0; i < SLOTS; i++) {
		struct holder_slot *s = &h->board->slots[i];
		uint64_t has = atomic_load(&s->key);
		if (has == key) {
			free_one = s;
			break;
		}
		if (has == 0 && !free_one)
			free_one = s;
	}
	if (free_one)
		atomic_store(&free_one->key, key);
	pthread_mutex_unlock(&h->lock);
	return free_one;
}

void holder_crashed(struct holder *h)
{
	for (size_t i = 0; i < SLOTS; i++)
		if (atomic_load(&h->board->slots[i].tries) > 0)
			atomic_fetch_add(&h->board->slots[i].tries, HOLDER_CRASH - 1);
	for (size_t i = 0; i < TRIES; i++)
		if (atomic_load(&h->board->tries[i].tag) != 0)
			atomic_fetch_add(&h->board->tries[i].tries, HOLDER_CRASH - 1);
}

unsigned holder_try(struct holder *h, uint64_t tag)
{
	for (unsigned pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < TRIES; i++) {
			uint64_t want = pass == 0 ? tag : 0;
			_Atomic uint64_t *at = &h->board->tries[i].tag;
			if (atomic_load(at) != want)
				continue;
			if (pass == 0)
				return 1 + atomic_fetch_add(&h->board->tries[i].tries, 1);
			if (!atomic_compare_exchange_strong(at, &want, tag))
				continue;
			atomic_store(&h->board->tries[i].tries, 1);
			return 1;
		}
	}
	return 1;
}

void holder_tried(struct holder *h, uint64_t tag)
{
	for (size_t i = 0; i < TRIES; i++)
		if (atomic_load(&h->board->tries[i].tag) == tag) {
			atomic_store(&h->board->tries[i].tries, 0);
			atomic_store(&h->board->tries[i].tag, 0);
		}
}
