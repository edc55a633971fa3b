/* What shim.c (the calls) and launch.c (the process) of a shim share. */
#ifndef BOUGH_RUNTIME_SHIM_INT_H
#define BOUGH_RUNTIME_SHIM_INT_H

#include <limits.h>
#include "fs/base/buf.h"
#include "runtime/shim.h"

enum {
	NAME_MAX_LEN = 76, /* of an id and a namespace: containerd's bound */
	ADDRESS_MAX = 256, /* "unix://" and a path that fits into a sockaddr, or nearly */
	CALL_MS = 20000,   /* a call that should take milliseconds */
	MAKE_MS = 120000,  /* one that starts a virtual machine, on a slow disk */
	CONNECT_MS = 5000, /* whether the shim lives */
};

struct shim {
	const struct runtime_kind *kind;
	char ns[NAME_MAX_LEN + 1], id[NAME_MAX_LEN + 1];
	char bundle[PATH_MAX];
	char address[ADDRESS_MAX];
	unsigned version; /* of the service: 2, 3 */
	uint32_t pid;     /* of the shim */
};

/* What a shim says after its start: an address, JSON of version, address and protocol (2.x), or the
 * same as protobuf (2.3). Sets address and version. -EBADMSG, -EPROTONOSUPPORT (it speaks gRPC). */
int shim_parse_start(struct shim *s, const void *data, size_t len, struct err *err);
/* Fills a handle but for what a started shim tells. -EINVAL: names that no shim takes. */
int shim_fill(struct shim *s, const struct shim_config *config, struct err *err);
/* Asks for the process ids of the shim, which must answer, and of the container (0: none). */
int shim_connect(struct shim *s, int timeout_ms, uint32_t *task, struct err *err);
/* Ends a shim that has no container any more. */
int shim_shutdown(struct shim *s, struct err *err);

/* The spec of an exec, with the exec's id as the name of its bough-init (whose it is), so that
 * shim_signal finds it. */
int shim_name_exec(const char *exec, const char *spec, size_t len, struct buf *out,
		   struct err *err);
/* shim_exec of a spec as it is. */
int shim_exec_raw(struct shim *s, const char *exec, const struct shim_io *io, const char *spec,
		  size_t len, struct err *err);
/* Asks the shim to send it; exec NULL, and `all`: to every process of the container. -ESRCH. */
int shim_kill(struct shim *s, const char *exec, int sig, bool all, struct err *err);

/* The folder in which the runtime keeps the states of a namespace's containers. */
#define RUNTIME_STATE "/run/bough"
/* Path of the program that the shim is to run (kinds.c); "": its own choice. */
int runtime_binary(const struct runtime_kind *kind, char *out, size_t size, struct err *err);

#endif
