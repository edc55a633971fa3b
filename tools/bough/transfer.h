/* Archives and folders in and out: what import, export and create share. */
#ifndef BOUGH_TOOLS_TRANSFER_H
#define BOUGH_TOOLS_TRANSFER_H

#include "tools/bough/api.h"

struct import {
	const char *name, *message;     /* of the snapshot; NULL: none */
	uint64_t max_bytes, max_inodes; /* more is refused; 0: no limit */
	const char *format;             /* "image": of containers; NULL: an archive of files */
	bool background; /* as a job, once all is sent: *out is the job */
	/* Or a workspace that begins with it, of these members of a request that makes one, and
	 * nothing of the above: *out is that. NULL: a snapshot alone. */
	json_t *workspace;
};
/* Import an archive (FILE, or "-" for stdin) or a folder (through bough-pack, with the rights of
 * the caller); *out is the API's snapshot, the caller's. On failure nothing is left behind. */
int transfer_import_file(struct cli *cli, const char *file, const struct import *im, json_t **out,
			 struct err *err);
int transfer_import_folder(struct cli *cli, const char *path, const struct import *im, json_t **out,
			   struct err *err);
/* What is there already and needn't be packed: bough-pack's --have. */
struct pack_rest {
	const char *before; /* TIME */
	const struct buf *list;
};
/* bough-pack as a child. `pack`: the folder `path` as a tar stream in *fd, without
 * the `rest` (NULL: all of it); `unpack`: what is
 * written into *fd, in the folder `path`, which with `top` takes over the attributes of the
 * stream's top. Both are the caller's, who ends with transfer_reap, or child_kill. */
int transfer_pack(const char *path, const struct pack_rest *rest, int *fd, pid_t *pid,
		  struct err *err);
int transfer_unpack(const char *path, bool top, int *fd, pid_t *pid, struct err *err);
/* Waits for it. 0 when it did all it should; else its own line is on stderr already, and the error
 * is `what`. *pid becomes 0. */
int transfer_reap(pid_t *pid, const char *what, struct err *err);
/* The rest of an answer into a descriptor, with progress; *total: bytes. */
int transfer_copy_out(struct cli *cli, struct http *h, int fd, const char *what, uint64_t *total,
		      struct err *err);
/* On stderr, what an archive's format couldn't hold ("2 sockets left out"); nothing where `lost`
 * (of the API) counts nothing, or isn't there. */
void transfer_note_lost(const struct cli *cli, const json_t *lost, const char *format);

#endif
