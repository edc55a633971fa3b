/* Archives and folders in and out: what import, export and create share. */
#ifndef BOUGH_TOOLS_TRANSFER_H
#define BOUGH_TOOLS_TRANSFER_H

#include "tools/bough/api.h"

struct import {
	const char *name, *message;     /* of the snapshot; NULL: none */
	uint64_t max_bytes, max_inodes; /* more is refused; 0: no limit */
	const char *format;             /* "image": of containers; NULL: an archive of files */
};
/* Import an archive (FILE, or "-" for stdin) or a folder (through bough-pack, with the rights of
 * the caller) as a snapshot; *out is the API's snapshot, the caller's. On failure nothing is left
 * behind. */
int transfer_import_file(struct cli *cli, const char *file, const struct import *im, json_t **out,
			 struct err *err);
int transfer_import_folder(struct cli *cli, const char *path, const struct import *im, json_t **out,
			   struct err *err);
/* The rest of an answer into a descriptor, with progress; *total: bytes. */
int transfer_copy_out(struct cli *cli, struct http *h, int fd, const char *what, uint64_t *total,
		      struct err *err);

#endif
