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

/* One of such a file's patterns, and the paths it is for, from the file's folder on. What comes
 * before the first special character is compared first, and the rest matched by itself, as git
 * does: so in "a**" + "/b" the "**" is a beginning; what that does counts. */
struct path_pattern {
	bool by_name; /* no slash in it: looks at the last component only */
	bool suffix;  /* "*" and then `text` */
	char *text;
	size_t len;
	struct wild *wild; /* the rest; NULL: there is none */
};
/* A slash at its end, and a "!" before it, are the caller's. 1; 0: nothing matches it; -ENOMEM:
 * *out is as it was. */
int path_pattern_parse(struct path_pattern *out, const char *s, size_t len);
void path_pattern_done(struct path_pattern *p); /* also one that is all zero */
/* 1, 0, or -ENOMEM. */
int path_pattern_match(const struct path_pattern *p, const char *path, size_t len, uint64_t *steps);

#endif
