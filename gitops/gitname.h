/* Names of files that git, or the systems that others check out on, can't hold. Pure. */
#ifndef BOUGH_GITOPS_GITNAME_H
#define BOUGH_GITOPS_GITNAME_H

#include <stdbool.h>
#include <stddef.h>

/* Is that component ".git", or what Windows or macOS take for it? No tree may have it. */
bool gitname_is_dotgit(const char *name, size_t len);
/* The same for .gitmodules, which may be no link. */
bool gitname_is_dotgitmodules(const char *name, size_t len);
/* Why a component can't be checked out everywhere: a literal; NULL: it can. */
const char *gitname_problem(const char *name, size_t len);

#endif
