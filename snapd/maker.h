/* A snapshot that is being made: of a workspace (api_save.c) or an archive (api_import.c). */
#ifndef BOUGH_SNAPD_MAKER_H
#define BOUGH_SNAPD_MAKER_H

#include "snapd/snapd.h"

/* All zero until maker_init, and done by maker_done however that ended. */
struct maker {
	struct snapd *sd;
	struct snap_row row;
	struct store_session *ss;
};
/* Its id, owner (of what this thread makes), name and message; both may be NULL. `ss` is the
 * caller's to begin. */
int maker_init(struct maker *m, struct snapd *sd, const char *name, const char *message,
	       struct err *err);
void maker_done(struct maker *m);
/* What it consists of is in the store, durable, and the row says so; nothing has a name yet. */
int maker_store(struct maker *m, const struct stack *saved, struct err *err);
/* It is there, and durable. `ws` NULL: of no workspace; else `sealed` is its stack, encoded, which
 * that snapshot is of. On failure it isn't. */
int maker_commit(struct maker *m, const struct stack *saved, const char *ws,
		 const struct buf *sealed, struct err *err);

#endif
