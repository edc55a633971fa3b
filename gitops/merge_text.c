#include "gitops/merge_text.h"

#include "gitops/git.h"

static bool is_text(const struct buf *b)
{
	return b->len <= MERGE_TEXT_MAX && (b->len == 0 || !memchr(b->data, 0, b->len));
}

static void input(git_merge_file_input *in, const struct buf *b)
{
	in->ptr = b->len ? (const char *)b->data : "";
	in->size = b->len;
}

int merge_text(struct buf *out, const struct buf *base, const struct buf *ours,
	       const struct buf *theirs, struct err *err)
{
	git_merge_file_input a, o, t;
	git_merge_file_options opt;
	git_merge_file_result res = { 0 };
	if (!is_text(base) || !is_text(ours) || !is_text(theirs))
		return 0;
	int r = gitops_init(err);
	if (r < 0)
		return r;
	r = git_merge_file_input_init(&a, GIT_MERGE_FILE_INPUT_VERSION);
	if (r >= 0)
		r = git_merge_file_input_init(&o, GIT_MERGE_FILE_INPUT_VERSION);
	if (r >= 0)
		r = git_merge_file_input_init(&t, GIT_MERGE_FILE_INPUT_VERSION);
	if (r >= 0)
		r = git_merge_file_options_init(&opt, GIT_MERGE_FILE_OPTIONS_VERSION);
	if (r >= 0) {
		input(&a, base);
		input(&o, ours);
		input(&t, theirs);
		r = git_merge_file(&res, &a, &o, &t, &opt);
	}
	if (r < 0)
		return git_fail(err, r, "merge a text");
	r = res.automergeable ? 1 : 0;
	if (r)
		buf_add(out, res.ptr, res.len);
	git_merge_file_result_free(&res);
	return buf_error(out) ? err_no_memory(err) : r;
}
