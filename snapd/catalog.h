/* The catalog: what workspaces and snapshots there are, in SQLite (ROOT/catalog.db, WAL).
 *
 * It is what lists and look-ups read, and where names are unique. It can be made anew:
 * each workspace has its row's truth beside it (ROOT/ws/<id>/meta.json) and each snapshot in
 * ROOT/snapshots/<id>.json (records.h), so a damaged catalog costs no data.
 *
 * Durability: a change is atomic at once; it survives a kill. It survives power loss once
 * catalog_sync returned (one fdatasync of the write-ahead log, which covers all before it).
 * So that no request waits for a disk by chance, checkpoints run on a thread of the
 * catalog's own connection, never in a request.
 *
 * A catalog that is damaged opens all the same: every call then returns -EUCLEAN and says which
 * file, until catalog_rebuild.
 *
 * Threads: any. Changes are one after the other, and so is what only reads, but neither waits for
 * the other. Rows are copies that the caller frees. */
#ifndef BOUGH_SNAPD_CATALOG_H
#define BOUGH_SNAPD_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/buf.h"
#include "fs/base/err.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "snapd/names.h"

enum { BROKEN_SIZE = 256 };

enum visibility { VISIBLE_PRIVATE, VISIBLE_TEAM, VISIBLE_GLOBAL };
enum on_expiry { EXPIRY_DELETE, EXPIRY_SAVE, EXPIRY_KEEP };

/* Whose a workspace or snapshot is, who else sees it, and until when it is there. */
struct owned {
	char owner[OWNER_SIZE]; /* "": whoever boughd runs as, until the catalog fills it in */
	enum visibility visibility;
	char team[ID_SIZE];   /* of VISIBLE_TEAM: its id */
	int64_t expires_ns;   /* since 1970; 0: never */
	enum on_expiry on_expiry;
};
/* Their names in JSON and in the catalog. -EINVAL: none of them. */
int visibility_parse(const char *s);
int on_expiry_parse(const char *s);
extern const char *const visibility_names[], *const on_expiry_names[];

struct ws_row {
	char id[ID_SIZE], name[NAME_SIZE];
	struct owned own;
	char base[ID_SIZE], head[ID_SIZE];  /* snapshots; "" for none */
	char parent[ID_SIZE];               /* workspace; "" for none */
	int64_t created_ns;                 /* since 1970 */
	uint64_t quota_bytes, quota_inodes; /* 0: none */
	bool mount;                         /* it should be mounted whenever bough-fs runs */
	char broken[BROKEN_SIZE];           /* why it can't be used; "": it can */
	char *labels;                       /* a JSON object; NULL: none */
	char *description;                  /* NULL: none */
	char *git;             /* which checkout it is (gitlink.h), as JSON; NULL: none */
	char sandbox[ID_SIZE]; /* whose root it is; "": a workspace of its own */
	struct buf head_stack; /* encoded sealed stack that `head` was saved from; may be empty */
	/* Of one that was removed, and can be brought back until purge_ns: then `name` is its id,
	 * and `was` the name that it had. */
	int64_t removed_ns, purge_ns; /* 0: it is there */
	char was[NAME_SIZE];
};
void ws_row_done(struct ws_row *r);
void ws_rows_free(struct ws_row *rows, size_t n);

struct snap_row {
	char id[ID_SIZE];
	struct owned own;
	char workspace[ID_SIZE], parent[ID_SIZE]; /* "" for none; they may be gone */
	int64_t created_ns;
	struct digest manifest;
	uint64_t files, bytes, stored_bytes;
	char *message; /* NULL: none */
	char *labels;  /* a JSON object; NULL: none */
	char *git;     /* as in a ws_row */
	char *image;   /* how containers of it begin (oci.h), as JSON; NULL: made for none */
	char *names;   /* a JSON array, in order; NULL: none */
};
void snap_row_done(struct snap_row *r);
void snap_rows_free(struct snap_row *rows, size_t n);

#define auto_ws_row   __attribute__((cleanup(ws_row_done))) struct ws_row
#define auto_snap_row __attribute__((cleanup(snap_row_done))) struct snap_row

struct catalog;
/* Opens or makes `root`/catalog.db. Fails only where that is nobody's damage: no memory, no
 * permission, a version from the future (-ENOTSUP). `io` is borrowed, and for what is done beside
 * SQLite, which goes by its own default VFS. */
int catalog_open(struct catalog **out, const char *root, const struct io *io, struct err *err);
void catalog_close(struct catalog *c); /* NULL allowed; checkpoints */
/* What is wrong with it, or NULL; valid until catalog_rebuild. */
const char *catalog_damage(struct catalog *c);
/* Sets the present file aside (catalog.db.damaged-<time>) and begins with an empty one. */
int catalog_rebuild(struct catalog *c, struct err *err);
/* SQLite's own integrity check. The number of faults reported, or -errno. */
int catalog_check(struct catalog *c, void (*report)(void *ctx, const char *what), void *ctx,
		  struct err *err);
/* Everything changed so far survives power loss. */
int catalog_sync(struct catalog *c, struct err *err);
/* The same, where something was changed since the last sync began. Called now and then. */
int catalog_flush(struct catalog *c, struct err *err);

struct catalog_counts {
	uint64_t workspaces, mounted, broken, removed, snapshots, names, bytes;
	uint64_t deliveries; /* to webhooks, that wait */
};
int catalog_count(struct catalog *c, struct catalog_counts *out, struct err *err);

/* ---- pages of lists ---- */

/* Some of a list, newest first: the next ones behind one of them. The texts are borrowed. */
struct list_want {
	int64_t after_ns;     /* when that one was made */
	const char *after_id; /* and which it is, there or gone; NULL: from the newest on */
	const char *sees;     /* an owner: his, and what all or his teams see; NULL: everybody's */
	const char *label, *value; /* NULL: whatever their labels */
	size_t max;                /* 0: all */
};

/* ---- workspaces ---- */

/* By id; or by name, of the owner whom this thread works for (principal.h), or "OWNER/NAME".
 * -ENOENT says so in words. One that was removed isn't found. */
int catalog_ws_get(struct catalog *c, const char *key, struct ws_row *out, struct err *err);
/* By id, removed or not. */
int catalog_ws_get_any(struct catalog *c, const char *id, struct ws_row *out, struct err *err);
/* Newest first. With `head_stack`s left out. */
enum ws_which { WS_THERE, WS_REMOVED, WS_ALL };
int catalog_ws_list(struct catalog *c, enum ws_which which, struct ws_row **rows, size_t *n,
		    struct err *err);
/* `roots`: those of sandboxes as well. */
int catalog_ws_page(struct catalog *c, bool removed, bool roots, const struct list_want *want,
		    struct ws_row **rows, size_t *n, struct err *err);
/* All or none. -EEXIST names the name that is taken. */
int catalog_ws_insert(struct catalog *c, const struct ws_row *rows, size_t n, struct err *err);
/* One, and the snapshot that it begins with. */
int catalog_ws_insert_with(struct catalog *c, const struct ws_row *row,
			   const struct snap_row *snap, struct err *err);
/* What is not NULL of it is changed. -ENOENT, -EEXIST (the name). */
struct ws_patch {
	const char *name, *labels; /* labels: "" takes them away */
	const char *git;           /* likewise */
	const char *description;   /* likewise */
	const uint64_t *quota_bytes, *quota_inodes;
	const struct owned *own; /* all of it but the owner */
	const char *sandbox;     /* "" takes it away */
};
int catalog_ws_patch(struct catalog *c, const char *id, const struct ws_patch *p, struct err *err);
/* `head` NULL: it stays, only the stack that it corresponds to is another (flattened). */
int catalog_ws_set_head(struct catalog *c, const char *id, const char *head, const void *stack,
			size_t len, struct err *err);
int catalog_ws_set_mount(struct catalog *c, const char *id, bool mount, struct err *err);
/* A mount, or its end, that was asked for: it is noted for an Idempotency-Key, too. */
int catalog_ws_ask_mount(struct catalog *c, const char *id, bool mount, struct err *err);
int catalog_ws_set_broken(struct catalog *c, const char *id, const char *why, struct err *err);
int catalog_ws_delete(struct catalog *c, const char *id, struct err *err);
/* From now on it is one that was removed: its name is free. -ENOENT: it was before. */
int catalog_ws_remove(struct catalog *c, const char *id, int64_t now_ns, int64_t purge_ns,
		      struct err *err);
/* It is there again, under that name; it expires no more where its time is up. -EEXIST, -ENOENT. */
int catalog_ws_undelete(struct catalog *c, const char *id, const char *name, int64_t now_ns,
			struct err *err);
/* 1, 0 or -errno. */
int catalog_ws_has_name(struct catalog *c, const char *owner, const char *name, struct err *err);

/* ---- snapshots ---- */

/* By id, name (as a workspace's), or a unique beginning of the id. -ENOENT; -ENOTUNIQ (several
 * begin so). */
int catalog_snap_get(struct catalog *c, const char *key, struct snap_row *out, struct err *err);
/* Newest first. */
int catalog_snap_list(struct catalog *c, struct snap_row **rows, size_t *n, struct err *err);
/* Of one workspace (id) unless NULL. */
int catalog_snap_page(struct catalog *c, const char *workspace, bool images,
		      const struct list_want *want, struct snap_row **rows, size_t *n,
		      struct err *err);
/* All, in no order, without what has no bound but theirs: messages, labels, names and images. */
int catalog_snap_trees(struct catalog *c, struct snap_row **rows, size_t *n, struct err *err);
/* Of all snapshots, or all workspaces that aren't broken: what a gc has to mark, row by row in the
 * order of ids, as they are at one moment. `fn` may not call the catalog; other than 0 ends it and
 * is returned. */
struct tree_row {
	char id[ID_SIZE];
	struct digest manifest; /* all zero of a workspace */
	char *git;              /* as in a ws_row */
	bool removed;
};
int catalog_trees(struct catalog *c, bool snapshots,
		  int (*fn)(void *ctx, const struct tree_row *row, struct err *err), void *ctx,
		  struct err *err);
/* `id` and its line of parents, `max` (0: all) at most. */
int catalog_snap_log(struct catalog *c, const char *id, size_t max, struct snap_row **rows,
		     size_t *n, struct err *err);
/* The snapshot with its names; and, unless `ws` is NULL, it becomes that workspace's head, with the
 * sealed stack it was saved from: one transaction. -EEXIST: a name is another snapshot's. */
int catalog_snap_insert(struct catalog *c, const struct snap_row *row, const char *ws,
			const void *stack, size_t len, struct err *err);
/* Writes message, labels, names, parent, manifest and whose it is. */
int catalog_snap_update(struct catalog *c, const struct snap_row *row, struct err *err);
/* Its children and the workspaces with it as head get its parent instead. Where `force` is
 * false and there are any: -ENOTUNIQ naming one. */
int catalog_snap_delete(struct catalog *c, const char *id, bool force, struct err *err);
/* Only the look whether that would be refused, because of what `who` (NULL: everybody) sees: 0 or
 * -ENOTUNIQ. */
int catalog_snap_refuse(struct catalog *c, const char *id, const char *who, struct err *err);
/* The latest whose image is that very text. -ENOENT. */
int catalog_snap_of_image(struct catalog *c, const char *image, char id[ID_SIZE],
			  struct err *err);
/* It and all that were made from it, and from those: the farthest first; `max` at most. */
int catalog_snap_below(struct catalog *c, const char *id, size_t max, struct snap_row **rows,
		       size_t *n, struct err *err);
/* Snapshots whose parent it is. */
int catalog_snap_children(struct catalog *c, const char *id, struct snap_row **rows, size_t *n,
			  struct err *err);
/* 1 and the owner's snapshot that has the name (when `id` isn't NULL), 0, or -errno. */
int catalog_snap_has_name(struct catalog *c, const char *owner, const char *name, char id[ID_SIZE],
			  struct err *err);

/* ---- whose time is up (catalog_find.c) ---- */

struct expired {
	char id[ID_SIZE];
	enum on_expiry on_expiry;
};
/* The tables that keys are looked up in; removed workspaces are in one of their own. */
enum noun { NOUN_WORKSPACE, NOUN_SNAPSHOT, NOUN_SANDBOX, NOUN_REMOVED };
/* Up to `max` behind the first `skip`, in the order in which they expired. NOUN_REMOVED: those that
 * can't be brought back any longer. */
int catalog_expired(struct catalog *c, enum noun noun, int64_t now_ns, size_t skip,
		    struct expired *out, size_t max, size_t *n, struct err *err);

/* ---- what a key may mean (catalog_find.c) ---- */

struct meant {
	char id[ID_SIZE];
	char workspace[ID_SIZE]; /* that a snapshot is of; a workspace's own id; else "" */
	struct owned own;
};
/* Those with that id, with an id that begins so (snapshots; 6 characters or more), with the name
 * "OWNER/NAME", or with that name, whoever they belong to: up to `max`, those of the owner `first`
 * first. Of those that were removed (by id, or the name that they had) then the last one. */
int catalog_find(struct catalog *c, enum noun noun, const char *key, const char *first,
		 struct meant *out, size_t max, size_t *n, struct err *err);

#endif
