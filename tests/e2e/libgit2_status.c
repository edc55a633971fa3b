/* What `git status --porcelain` says, as programs see it that use libgit2:
 *
 *     libgit2_status FOLDER
 *
 * A line for each path that isn't as it was: its bits in hex (git_status_t), and the path. */
#include <git2.h>
#include <stdio.h>

static int fail(const char *what)
{
	const git_error *e = git_error_last();
	(void)fprintf(stderr, "libgit2_status: %s: %s\n", what, e ? e->message : "?");
	return 1;
}

int main(int argc, char **argv)
{
	git_repository *repo;
	git_status_list *list;
	const git_status_options opt = { .version = GIT_STATUS_OPTIONS_VERSION,
					 .show = GIT_STATUS_SHOW_INDEX_AND_WORKDIR,
					 .flags = GIT_STATUS_OPT_INCLUDE_UNTRACKED |
						  GIT_STATUS_OPT_RECURSE_UNTRACKED_DIRS };
	if (argc != 2 || git_libgit2_init() < 0 || git_repository_open(&repo, argv[1]) < 0)
		return fail("open");
	if (git_status_list_new(&list, repo, &opt) < 0)
		return fail("status");
	for (size_t i = 0; i < git_status_list_entrycount(list); i++) {
		const git_status_entry *e = git_status_byindex(list, i);
		const git_diff_delta *d = e->index_to_workdir ? e->index_to_workdir :
								e->head_to_index;
		(void)printf("%x %s\n", (unsigned)e->status, d->old_file.path);
	}
	git_status_list_free(list);
	git_repository_free(repo);
	return git_libgit2_shutdown() < 0;
}
