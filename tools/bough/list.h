/* Lists of the API, shown as tables. */
#ifndef BOUGH_TOOLS_LIST_H
#define BOUGH_TOOLS_LIST_H

#include "tools/bough/api.h"

enum list_owners {
	OWNERS_NONE,
	OWNERS_FIRST, /* the first column: not shown where all are one's */
	OWNERS_SHOWN, /* another column, by owner_name */
};
struct list_view {
	const char *const *headings; /* as table_new takes them */
	const char *name;            /* the member that --quiet prints */
	enum list_owners owners;
	/* Adds the row, or rows, of one item. */
	void (*row)(struct table *t, const struct cli *cli, const json_t *item, time_t now);
};
/* GETs it, and shows its items: with --json the answer as it came. */
int list_show(struct cli *cli, struct target *t, const struct list_view *view, struct err *err);
/* The same of an answer that is there already. */
int list_print(struct cli *cli, const json_t *doc, const struct list_view *view, struct err *err);
/* That member of each item, a line each. */
void list_names(const json_t *doc, const char *key);
/* Owners as a person calls them, and boughd takes them in OWNER/NAME: a user's name for "uid:N",
 * where the caller may know it; else as they are. After owners_load, which asks once. */
void owners_load(struct cli *cli);
const char *owner_name(const struct cli *cli, const json_t *item, const char *key);
/* Of one that is shown alone: lines that tell whose it is, and who else sees it; its labels. */
void list_owner(struct cli *cli, const json_t *item);
void list_labels(const json_t *item);
/* --label as a filter, where it is given. */
int list_filter(struct target *t, const struct args *a, struct err *err);
/* The text, or "-" where it is empty. */
const char *list_text(const json_t *item, const char *key);
/* That one of several operands failed: the first failure (`first` 0: none yet) is returned and
 * goes to *err, others are told at once. */
int list_failed(const struct args *a, int first, int r, const struct err *e, struct err *err);
/* DELETEs each operand below `path`; what fails is told, the first as the result, and the others go
 * on. With --json, {"items": [{"name"}]} of what went. `options` (NULL: none), up to a NULL: of
 * those that were given, "?OPTION=true". */
int list_remove_each(struct cli *cli, const struct args *a, const char *path,
		     const char *const *options, struct err *err);
extern const char *const list_snapshots_rm[]; /* those of snapshots */

#endif
