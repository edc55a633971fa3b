/* The insides of struct server, for server.c and resume.c. */
#ifndef BOUGH_MOUNT_SERVER_IMPL_H
#define BOUGH_MOUNT_SERVER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include "fs/mount/holder.h"
#include "fs/mount/loop.h"
#include "fs/mount/server.h"
#include "fs/mount/session.h"

/* Locks, outer first: served.life, served.mount, server.lock. */
struct server {
	struct work *work;
	struct loop *loop; /* NULL: ring transport */
	uint64_t mask;
	pthread_mutex_t lock;
	struct served *all;   /* in order of id, so that lists can be continued */
	struct counters past; /* of mounts that are gone */

	char program[128];
	struct holder *holder; /* NULL: mounts end with this process */
	unsigned resumed;
	pthread_rwlock_t asked; /* shared: while something that was asked for is done */
	uint64_t settled; /* under `asked` */
	atomic_bool holds; /* some process held something */
	uint64_t began, opened; /* clock_ms, for the log */
	bool end; /* of the thread that looks for what nobody holds; under lock */
	pthread_cond_t ending;
	bool has_thread;
	pthread_t thread;
};

struct served {
	struct server *server;
	struct served *next;
	unsigned refs; /* under server.lock, as `next` */
	/* Shared: while `ws` is used; exclusive: while it is opened, closed or deleted. */
	pthread_rwlock_t life;
	struct ws *ws; /* NULL: not open (yet, or any more) */
	pthread_mutex_t mount;
	struct session *session; /* NULL: no mount */
	char id[WS_ID_MAX + 1];
};

/* ---- server.c ---- */

struct served *served_find(struct server *s, const char *id); /* with the lock; NULL: none */
/* An entry stays while somebody uses it or its workspace is open. */
void served_unref(struct served *w);
/* An entry for a workspace that isn't open, locked exclusively. -EEXIST: it is open, or about
 * to be. */
int served_claim(struct server *s, const char *id, struct served **out, struct err *err);
void served_unclaim(struct served *w);
struct session_options server_session_options(const struct server *s);
/* Calls fn with each open workspace, which stays open meanwhile. */
void server_each_open(struct server *s, void (*fn)(struct served *w, void *ctx), void *ctx);

/* What ws_changes calls, to tell the kernel. */
struct forgetting {
	struct session *session; /* NULL: not mounted, only counted */
	uint64_t names, nodes;
	uint64_t last_dir;
};
struct ws_changes forgetting_changes(struct forgetting *f); /* f lives as long */

/* ---- resume.c: going on where a server before was ---- */

/* Takes what the holder has, and serves it. */
int server_resume(struct server *s, struct err *err);
void server_resume_end(struct server *s); /* the thread that this may have started */

#endif
