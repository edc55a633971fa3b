/* Random edits of a workspace and of the checkout beside it (twin.h). */
#ifndef BOUGH_TESTS_UNIT_TWIN_RANDOM_H
#define BOUGH_TESTS_UNIT_TWIN_RANDOM_H

#include <ftw.h>
#include <time.h>

#include "tests/seed.h"
#include "tests/unit/twin.h"

static uint64_t rng;
static inline uint32_t rnd(uint32_t n)
{
	rng = rng * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(rng >> 33) % n;
}

struct paths {
	char *v[400];
	size_t n;
};

static struct paths *all_files, *all_dirs, *all_links;
static size_t root_len;

static inline int on_path(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	struct paths *p = S_ISDIR(st->st_mode)   ? all_dirs
			  : S_ISLNK(st->st_mode) ? all_links
						 : all_files;
	path += root_len;
	if (*path == '/' && strncmp(path, "/.git", 5) != 0 && p->n < 400)
		p->v[p->n++] = strdup(path + 1);
	return 0;
}

static inline int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The paths of the checkout; .git left out. */
static inline void list_paths(struct twin *t, struct paths *files, struct paths *dirs,
			      struct paths *links)
{
	files->n = dirs->n = links->n = 0;
	all_files = files, all_dirs = dirs, all_links = links;
	root_len = strlen(t->git);
	assert_int_equal(nftw(t->git, on_path, 16, FTW_PHYS), 0);
	qsort(files->v, files->n, sizeof(char *), by_text);
	qsort(dirs->v, dirs->n, sizeof(char *), by_text);
	qsort(links->v, links->n, sizeof(char *), by_text);
}

static inline void paths_free(struct paths *p)
{
	while (p->n > 0)
		free(p->v[--p->n]);
}

static inline void random_text(char *out, size_t len)
{
	for (size_t i = 0; i < len; i++)
		out[i] = i % 24 == 23 ? '\n' : (char)('a' + rnd(26));
}

static inline bool there(struct twin *t, const char *path)
{
	struct stat st;
	auto_free char *p = twin_path(t, path);
	return lstat(p, &st) == 0;
}

static inline char *new_path(struct twin *t, const struct paths *dirs)
{
	static const char *const names[] = { "a",   "b",   "a-b", "a.b", "ab", "b0",
					     "x.o", "lib", "ü ß", "B",   "-x", "z z" };
	char *p = NULL;
	const char *name = names[rnd(12)];
	uint32_t d = rnd((uint32_t)dirs->n + 1);
	if (d == dirs->n)
		p = strdup(name);
	else if (asprintf(&p, "%s/%s", dirs->v[d], name) < 0)
		p = NULL;
	assert_non_null(p);
	if (there(t, p)) {
		free(p);
		return NULL;
	}
	return p;
}

static inline void twin_rm_all(struct twin *t, const char *dir)
{
	struct paths files, dirs, links, *all[] = { &files, &links, &dirs };
	size_t len = strlen(dir);
	list_paths(t, &files, &dirs, &links);
	for (size_t i = 0; i < 3; i++)
		for (size_t k = all[i]->n; k-- > 0;) { /* what is in a folder sorts behind it */
			const char *p = all[i]->v[k];
			if (strncmp(p, dir, len) == 0 && (!p[len] || p[len] == '/'))
				twin_rm(t, p);
		}
	for (size_t i = 0; i < 3; i++)
		paths_free(all[i]);
}

static inline void random_edit(struct twin *t)
{
	struct paths files, dirs, links;
	char text[1500];
	list_paths(t, &files, &dirs, &links);
	auto_free char *fresh = new_path(t, &dirs);
	const char *f = files.n ? files.v[rnd((uint32_t)files.n)] : NULL;
	const char *d = dirs.n ? dirs.v[rnd((uint32_t)dirs.n)] : NULL;
	size_t len = rnd(4) ? rnd(1500) : 0, flen = fresh ? strlen(fresh) : 0;
	random_text(text, len);
	switch (rnd(12)) {
	case 0:
	case 1:
		if (fresh)
			twin_write(t, fresh, text, len);
		break;
	case 2:
		if (f)
			twin_write(t, f, text, len);
		break;
	case 3:
		if (f)
			twin_rm(t, f);
		break;
	case 4:
		if (f && fresh)
			twin_mv(t, f, fresh);
		break;
	case 5:
		if (f)
			twin_chmod(t, f, rnd(2) ? 0755 : 0644);
		break;
	case 6:
		if (fresh)
			twin_mkdir(t, fresh);
		break;
	case 7:
		if (d && fresh &&
		    !(strncmp(d, fresh, strlen(d)) == 0 && flen > strlen(d) &&
		      fresh[strlen(d)] == '/'))
			twin_mv(t, d, fresh);
		break;
	case 8:
		if (d && rnd(2))
			twin_rm_all(t, d);
		break;
	case 9:
		if (fresh)
			twin_link(t, fresh, rnd(2) ? "target" : "a/b");
		break;
	case 10:
		if (links.n)
			twin_rm(t, links.v[rnd((uint32_t)links.n)]);
		break;
	case 11:
		if (f && fresh && t->ready) /* a checkout has none */
			twin_hardlink(t, f, fresh);
		break;
	}
	paths_free(&files);
	paths_free(&dirs);
	paths_free(&links);
}

static inline void twin_seed(void)
{
	rng = test_seed() * 2654435761u;
}

#endif
