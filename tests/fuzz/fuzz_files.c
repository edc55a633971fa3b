/* What a client of the files' API may put into headers and forms: any bytes give values that keep
 * the promises of files_head.h and files_form.h. The input: header lines, NUL, a form's body whose
 * boundary is "B", fed in pieces of a size that the first byte says. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "snapd/files_code.h"
#include "snapd/files_form.h"
#include "snapd/tus_head.h"
#include "snapd/web_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ranges(const char *s)
{
	static const uint64_t sizes[] = { 0, 1, 10, 1 << 20, UINT64_MAX };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t off, len;
		if (head_range(s, sizes[i], &off, &len) != RANGE_ONE)
			continue;
		assert(len > 0 && off < sizes[i] && len <= sizes[i] - off);
	}
}

static void check_tags(const char *s)
{
	struct head_tags t;
	int r = head_tags_parse(&t, s);
	assert(r == 0 || r == -EINVAL);
	if (r < 0)
		return;
	assert(t.any ? t.n == 0 : t.n > 0 && t.n <= HEAD_TAGS_MAX);
	for (size_t i = 0; i < t.n; i++) {
		struct version_id v;
		enum coding c;
		char text[HEAD_TAG_TEXT];
		assert(t.tags[i].text >= s && t.tags[i].len <= strlen(s));
		if (head_tag_read(&t.tags[i], &v, &c) < 0)
			continue;
		/* There is one way to write it. */
		(void)head_tag_text(text, &v, c);
		assert(strlen(text) == t.tags[i].len + 2);
		assert(memcmp(text + 1, t.tags[i].text, t.tags[i].len) == 0);
	}
}

static void check_line(const char *s)
{
	struct digest d, again;
	char boundary[HEAD_BOUNDARY], text[HEAD_DIGEST_TEXT];
	check_ranges(s);
	check_tags(s);
	assert(head_accepts(s) < CODINGS);
	assert(head_coding(s) <= CODING_UNKNOWN);
	(void)head_wants_digest(s);
	if (head_digest(s, &d) > 0)
		assert(head_digest(head_digest_text(text, &d), &again) == 1 &&
		       digest_equal(&d, &again));
	uint8_t sum[TUS_DIGEST_MAX];
	uint64_t n;
	char *value = NULL;
	int r = tus_checksum(s, sum);
	assert(r == 20 || r == 32 || r == -EINVAL || r == -ENOTSUP);
	assert(tus_number(s, &n) == -EINVAL || n <= INT64_MAX);
	r = tus_metadata(s, "path", &value);
	assert(r == 0 || !value);
	assert(!value || strlen(value) <= strlen(s));
	free(value);
	(void)web_file_path_check(s, NULL);
	if (head_boundary(s, boundary) > 0)
		assert(boundary[0] && strlen(boundary) < HEAD_BOUNDARY);
}

static void check_target(const char *s)
{
	struct web_target t;
	char *tail;
	if (web_target_parse(&t, s, NULL) < 0)
		return;
	const char *params[WEB_PARAMS] = { 0 };
	static const char pattern[] = "/v1/{}/{...}";
	if (web_target_matches(&t, pattern, params) &&
	    web_target_tail(&t, pattern, &tail, NULL) == 0) {
		size_t n = strlen(tail);
		assert(n < 4096 && (n == 0 || (tail[0] != '/' && tail[n - 1] != '/')));
		assert(!strstr(tail, "//") && !strstr(tail, "/../") && strcmp(tail, "..") != 0);
		assert(strncmp(tail, "../", 3) != 0 && (n < 3 || strcmp(tail + n - 3, "/..") != 0));
		free(tail);
	}
	web_target_done(&t);
}

struct taken {
	uint64_t hash, bytes;
};

static int take(void *ctx, const void *data, size_t n, struct err *err)
{
	struct taken *t = ctx;
	const uint8_t *p = data;
	assert(n > 0);
	for (size_t i = 0; i < n; i++)
		t->hash = (t->hash ^ p[i]) * 1099511628211u;
	t->bytes += n;
	return 0;
}

static int begin_part(void *ctx, const char *name, size_t len, struct err *err)
{
	struct taken *t = ctx;
	assert(len < FORM_HEAD_MAX);
	for (size_t i = 0; i < len; i++)
		t->hash = (t->hash ^ (uint8_t)name[i]) * 1099511628211u;
	return 0;
}

static int feed(const uint8_t *p, size_t n, size_t piece, bool all, struct taken *out)
{
	struct form *f = malloc(sizeof(*f));
	struct err err = { 0 };
	int r = 0;
	if (!f)
		return -ENOMEM;
	*out = (struct taken){ 0 };
	form_init(f, "B");
	if (all)
		form_all(f, begin_part, out);
	for (size_t at = 0; r == 0 && at < n; at += piece)
		r = form_feed(f, p + at, n - at < piece ? n - at : piece, take, out, &err);
	if (r == 0)
		r = form_finish(f, &err);
	assert(r == 0 || (r == -EINVAL && err.text[0]));
	free(f);
	return r;
}

static void check_decoders(const uint8_t *p, size_t n)
{
	for (enum coding c = CODING_GZIP; c < CODINGS; c++) {
		struct coder *k;
		uint8_t room[4096];
		const uint8_t *at = p;
		size_t left = n;
		ssize_t made;
		if (coder_new(&k, c, true, NULL) < 0)
			return;
		for (int i = 0; i < 256; i++) {
			made = coder_step(k, &at, &left, false, room, sizeof(room), NULL);
			assert(made <= (ssize_t)sizeof(room) && left <= n && at + left == p + n);
			if (made <= 0)
				break;
		}
		coder_free(k);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	size_t piece = data[0] + 1u;
	const uint8_t *nul = memchr(data, '\0', size);
	size_t n = nul ? (size_t)(nul - data) : size;
	char *lines = malloc(n + 1), *save = NULL;
	if (!lines)
		return 0;
	memcpy(lines, data, n);
	lines[n] = '\0';
	for (char *s = strtok_r(lines, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
		check_line(s);
		check_target(s);
	}
	free(lines);
	if (nul) {
		struct taken whole, parts;
		size_t left = size - n - 1;
		for (int all = 0; all < 2; all++) { /* how it is cut doesn't matter */
			int r = feed(nul + 1, left, left ? left : 1, all, &whole);
			assert(feed(nul + 1, left, piece, all, &parts) == r);
			assert(r < 0 || (whole.hash == parts.hash && whole.bytes == parts.bytes));
		}
		check_decoders(nul + 1, left);
	}
	return 0;
}
