/* The control protocol between boughd and bough-fs.
 *
 * bough-fs listens on ROOT/run/fs.sock (frame.h: one JSON object a message; mode 0600, the
 * peer's uid must be the server's own or root). Requests on one connection are answered
 * in order; each connection has a thread of its own, so a client that wants two things at
 * once opens two.
 *
 *   request  {"op": NAME, …}
 *   answer   {"ok": true, …}  or  {"error": {"errno": 2, "text": "…"}}
 *
 * Stacks travel as hex of stack_encode. Ids are workspace ids. A workspace that isn't
 * open yet is opened by the first request that names it.
 *
 *   hello                                         -> version, program, pid, transport, resumed
 *                                                    (mounts that it went on with)
 *   create  id, stack?, bytes?, inodes?, xattrs?, uid, gid, path?  (path: mount there; xattrs:
 *                                                    false shows none, true is the default)
 *   mount   id, path                              -> (mounted already at that path: ok)
 *   umount  id                                    -> detached lazily when busy; "busy": true then
 *   fork    id, children: [{id, path?, bytes?, inodes?, xattrs?, heir?}] -> pause_ns
 *                                                    (xattrs: else as the parent; heir: true as
 *                                                    in ws_limits)
 *   seal    id                                    -> stack
 *   stack   id                                    -> stack (its sealed part; seals nothing),
 *                                                    active (hex of the active layer's id)
 *   replace id, old, new
 *   restore id, stack, expect?                    -> names, nodes (counts of invalidations);
 *                                                    expect: only if that is its sealed stack
 *                                                    still and nothing was written (ESTALE)
 *   renumber                                      the same; what differs gets another st_ino, too
 *                                                    (ws_changes)
 *   put     id, dir, name, file, mode?, as_is?, exist?, match?, unless?, tag?
 *                                                 -> created, version, mode
 *                                                    (in place of file: upload: [name, bytes] of
 *                                                    ROOT/uploads, taken over without a copy)
 *                                                    (ws_put; dir and file: inode numbers; name in
 *                                                    hex; match, unless: [version, as version.h
 *                                                    writes it]; exist: something has the name, or
 *                                                    nothing, as it says; else EREMCHG)
 *   take    id, dir, name, exist?, match?, unless?, tag?   (ws_take; tag: a random number: when it
 *                                                    is asked again, it isn't done again)
 *   batch   id, size, tag, at?, contents?, results?, and with the message a file that holds, from
 *                                                    `at` on (0), `size` bytes of operations as
 *                                                    batch.h encodes them, and then `contents`
 *                                                    bytes of contents, whose pieces are anywhere
 *                                                    in it
 *                                                 -> results: [[version, mode, size] or null…];
 *                                                    or failed: number of the operation, errno,
 *                                                    text, and nothing was done
 *   answered id, tag                              -> done: whether the put, take or batch of that
 *                                                    tag was (ws_answered)
 *   changes id, since?                            -> token, events: [[letter, type, path, old path,
 *                                                    token]…] (watch.h: c, m, d, r; DT_…; paths in
 *                                                    hex), more: true when the message was full:
 *                                                    ask again with the token; lost: true: what
 *                                                    happened isn't known, the token is now's
 *   entries id, dir, at?                          -> entries: [[name in hex, mode, size, mtime in s
 *                                                    and ns, cookie]…] of the folder of that inode
 *                                                    number behind that cookie (0: all); more:
 *                                                    true when the message was full: ask again with
 *                                                    the last cookie. The kernel learns of none
 *   await   moment, wait_ms                       -> now, ids: [id…] of workspaces that changed
 *                                                    since; any: true in place of them: that number
 *                                                    says nothing here (work_await)
 *   limits  id, bytes, inodes
 *   hold    id, tag, bytes, inodes                (ws_hold, for the batch of that tag; 0: only
 *                                                    asks; what is left goes with the last
 *                                                    connection of the process that asked)
 *   usage   id                                    -> bytes, inodes, limit_bytes, limit_inodes,
 *                                                    records, layers, memory_bytes, files,
 *                                                    gen: another one behind each restore,
 *                                                    xattrs, mounted, path,
 *                                                    lost: records of its active layer,
 *                                                    fault: why it is read-only (ws_fault)
 *                                                    damage: what of it is damaged (ws_damage)
 *   sync    id                                    -> everything acknowledged is durable
 *   delete  id                                    (unmounts)
 *   close   id                                    (unmounts, forgets)
 *   end     id                                    (unmounts, whoever is in it; it stays open)
 *   sweep   known: [id…]                          removes what no known workspace needs;
 *                                                 only before a workspace is open
 *   list    after?: id                            -> workspaces: [{id, path, …as usage}], in order
 *                                                    of id; more: true when the message was full:
 *                                                    ask again after the last id
 *   stats                                         -> opcodes: {LOOKUP: n, …} since start, over all
 *                                                    mounts; mounts: {id: {…}} (left out, with
 *                                                    "truncated": true, where it doesn't fit);
 *                                                    requests, errors, bytes_read, bytes_written,
 *                                                    cpu_ns, memory_bytes, workers
 *   trim                                          gives back idle memory now
 *   quit                                          unmounts all, exits; the connection ends when
 *                                                 all that is done
 *   leave                                         exits once what it has begun is answered; the
 *                                                 mounts stay with the holder (-EOPNOTSUPP
 *                                                 without one)
 *   settle                                        what earlier connections have asked for is done
 *                                                 when this is answered, or isn't done any more:
 *                                                 they get ECONNRESET from here on (`await` goes
 *                                                 on). Whose they were doesn't count: a process
 *                                                 may have the number of one that was killed
 *
 * A mount point is made where it is absent (its last folder only), and stays after an
 * unmount. Where a killed server left a dead mount it is taken away first.
 *
 * hello's `program` tells the file of the program, as hold_identity does. */
#ifndef BOUGH_MOUNT_CTL_H
#define BOUGH_MOUNT_CTL_H

#include "fs/base/err.h"

struct server;
struct ctl;

/* Listens at `socket_path`. */
int ctl_open(struct ctl **out, struct server *s, const char *socket_path, struct err *err);
/* Serves; returns 1 when `leave` was asked for, and 0 when `quit` was, a signal came that ends
 * programs (SIGTERM, SIGINT, SIGHUP, which are blocked in all threads), or the socket was
 * removed. No call into the server is in progress any more. */
int ctl_run(struct ctl *c, struct err *err);
/* Ends the connections and removes the socket. NULL allowed. */
void ctl_close(struct ctl *c);

#endif
