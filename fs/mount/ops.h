/* libfuse's low-level operations on a workspace (inside fs/mount only). Each handler
 * answers its request before it returns. */
#ifndef BOUGH_MOUNT_OPS_H
#define BOUGH_MOUNT_OPS_H

#define FUSE_USE_VERSION 318
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "fs/mount/counters.h"
#include "fs/mount/patience.h"
#include "fs/mount/request.h"
#include "fs/work/workspace.h"

/* What handlers know of their session; fuse_req_userdata. */
struct mounted {
	struct ws *ws;
	struct counters counters;
	uint64_t mask; /* capabilities taken as not offered */
	/* What INIT was answered with. Before: what a server before us has answered, which holds
	 * for as long as the mount; 0: nobody has yet. */
	uint64_t want;
	void (*negotiated)(struct mounted *m); /* called before the answer; NULL: nothing */
	/* A handler is about to wait for another request of the mount; NULL: others serve that. */
	void (*hand_on)(struct mounted *m);
	bool ring;     /* handlers run in threads of libfuse, nobody counts before them */
	bool no_open, no_opendir; /* as negotiated: answer ENOSYS, the kernel asks once */
	bool killpriv;            /* suid and sgid are ours to clear */
	bool idmap; /* idmapped clones of the mount can be made: asker_of */
	bool offers_idmap; /* the kernel and we would; for the answer to INIT */
	/* Whose helper asked last what changed (asker_walks_names); 0: nobody's. */
	_Atomic(pid_t) walker;
	_Atomic(uint64_t) walker_until_ms;
};
/* In mask and want beside FUSE_CAP_*, since libfuse has no name for it. */
#define MOUNT_CAP_IDMAP (UINT64_C(1) << 63)

extern const struct fuse_lowlevel_ops mount_ops;

/* Only this server changes the tree, and what it changes behind the kernel's back
 * (restore) it takes back by notification. */
#define FOREVER 1e15

/* First thing in each handler. */
struct mounted *on_begin(fuse_req_t req, unsigned opcode);
/* Owner of what is made. Where idmapped mounts are allowed, uid and gid of all other requests
 * are -1: see asker_of. */
struct caller caller_of(fuse_req_t req);
/* Whether this request was done by a server that died before it could answer: 1, 0 or -errno;
 * *e (NULL allowed): the entry of what it made, counted as any that is handed out. */
int done_before(struct mounted *m, struct entry *e);
void reply_error(fuse_req_t req, int r); /* -errno; 0 and above: none */
void reply_node(fuse_req_t req, int r, const struct entry *e);
void reply_attr(fuse_req_t req, int r, const struct attr *a);
struct fuse_entry_param param_of_entry(const struct entry *e);

/* asker.c */

/* Whose request it is, by the ids that files of this mount have; for what the kernel can't judge
 * itself, since it costs a look into /proc. Who can't be told comes as uid -1. */
struct caller asker_of(fuse_req_t req);
bool asker_is_admin(fuse_req_t req); /* root of the host, not of a sandbox */

/* Git's helper asks what changed: git, its parent, then reads folders for their names, as it knows
 * the files. For a minute its READDIRPLUS are answered so, with attributes of the folders alone,
 * into which it goes on: making inodes of thousands of files costs the kernel more than all else
 * that a status needs of a mount. Gives what asker_of does, by the same look. */
struct caller asker_walks_names(fuse_req_t req);
bool asker_wants_names(fuse_req_t req);

/* init.c */

/* Takes the kernel's INIT, and answers it through `fd`, the session's own: with what libfuse has no
 * name for, where the kernel offers it. */
void init_process(struct mounted *m, struct fuse_session *se, int fd, void *request, size_t n);

/* ops_attr.c */
void on_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void on_setattr(fuse_req_t req, fuse_ino_t node, struct stat *in, int what,
		struct fuse_file_info *fi);
void on_statx(fuse_req_t req, fuse_ino_t node, int flags, int mask, struct fuse_file_info *fi);
void on_statfs(fuse_req_t req, fuse_ino_t node);
void on_setxattr(fuse_req_t req, fuse_ino_t node, const char *name, const char *value, size_t size,
		 int flags);
void on_getxattr(fuse_req_t req, fuse_ino_t node, const char *name, size_t size);
void on_ioctl(fuse_req_t req, fuse_ino_t node, unsigned cmd, void *arg, struct fuse_file_info *fi,
	      unsigned flags, const void *in, size_t in_size, size_t out_size);
void on_listxattr(fuse_req_t req, fuse_ino_t node, size_t size);
void on_removexattr(fuse_req_t req, fuse_ino_t node, const char *name);
/* ops_name.c */
void on_lookup(fuse_req_t req, fuse_ino_t dir, const char *name);
void on_forget(fuse_req_t req, fuse_ino_t node, uint64_t n);
void on_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void on_mknod(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, dev_t rdev);
void on_mkdir(fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode);
void on_symlink(fuse_req_t req, const char *target, fuse_ino_t dir, const char *name);
void on_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t dir, const char *name);
void on_tmpfile(fuse_req_t req, fuse_ino_t dir, mode_t mode, struct fuse_file_info *fi);
void on_unlink(fuse_req_t req, fuse_ino_t dir, const char *name);
void on_rmdir(fuse_req_t req, fuse_ino_t dir, const char *name);
void on_rename(fuse_req_t req, fuse_ino_t dir, const char *name, fuse_ino_t newdir,
	       const char *newname, unsigned flags);
void on_readlink(fuse_req_t req, fuse_ino_t node);
/* ops_dir.c */
void on_opendir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void on_releasedir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void on_readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi);
void on_readdirplus(fuse_req_t req, fuse_ino_t node, size_t size, off_t off,
		    struct fuse_file_info *fi);
void on_fsyncdir(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *fi);
/* ops_file.c */
void on_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void on_release(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi);
void on_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t off, struct fuse_file_info *fi);
void on_write(fuse_req_t req, fuse_ino_t node, const char *buf, size_t size, off_t off,
	      struct fuse_file_info *fi);
void on_fallocate(fuse_req_t req, fuse_ino_t node, int mode, off_t off, off_t len,
		  struct fuse_file_info *fi);
void on_lseek(fuse_req_t req, fuse_ino_t node, off_t off, int whence, struct fuse_file_info *fi);
void on_copy(fuse_req_t req, fuse_ino_t from, off_t from_off, struct fuse_file_info *from_fi,
	     fuse_ino_t to, off_t to_off, struct fuse_file_info *to_fi, size_t len, int flags);
void on_fsync(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *fi);

#endif
