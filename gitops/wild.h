/* Patterns as .gitattributes and .gitignore have them: *, ?, [sets], **, and \ before what shall
 * mean itself. After git's wildmatch.c, whose answers it gives, without its recursion: what a
 * match costs is bounded by pattern times text, whatever they are. Pure. */
#ifndef BOUGH_GITOPS_WILD_H
#define BOUGH_GITOPS_WILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WILD_BYTES_MAX = 2048 }; /* of a pattern: git ignores longer lines */

struct wild;
/* `path`: '/' is matched by itself (and by **) only. NULL with errno EINVAL: nothing matches such a
 * pattern (a set without its end …); or ENOMEM. */
struct wild *wild_new(const char *pattern, size_t len, bool path);
void wild_free(struct wild *w); /* NULL allowed */
/* 1, 0, or -ENOMEM. *steps is raised by what it cost. */
int wild_match(const struct wild *w, const char *text, size_t len, uint64_t *steps);

/* Bytes at the front that mean themselves. */
size_t wild_literal(const char *pattern, size_t len);

#endif
