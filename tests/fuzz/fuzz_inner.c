/* What a workspace says of itself to git's side: HEAD and refs, .gitignore, content to be
 * converted. The first byte chooses. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gitops/gitname.h"
#include "gitops/ignore.h"
#include "gitops/inner.h"
#include "gitops/similar.h"
#include "gitops/togit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore(const char *p, size_t n)
{
	static const char *const paths[] = { "a", "a/b", "dir/sub/file.o", "x y" };
	struct ignore_file f;
	uint64_t steps = 0;
	if (ignore_parse(&f, p, n) < 0)
		return;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		(void)ignore_ask(&f, paths[i], strlen(paths[i]), i % 2, &steps);
	ignore_done(&f);
	if (steps > (uint64_t)(n + 16) * 400)
		abort(); /* it costs pattern times text, no more */
}

static void convert(uint8_t how, const char *p, size_t n)
{
	static const char *const encodings[] = { "", "UTF-16", "UTF-16LE", "SHIFT-JIS" };
	struct path_attrs a = { .eol = how % 3, .ident = how & 4 };
	struct buf out = { 0 };
	struct err err = { 0 };
	memcpy(a.encoding, encodings[how >> 4 & 3], strlen(encodings[how >> 4 & 3]) + 1);
	if (togit(&out, &a, p, n, how & 8, &err) == 0 && out.len)
		abort();
	buf_done(&out);
}

static void similar(const char *p, size_t n)
{
	struct similar a, b;
	if (similar_init(&a, p, n / 2) < 0)
		return;
	if (similar_init(&b, p + n / 2, n - n / 2) >= 0) {
		if (similar_score(&a, &b) > SIMILAR_ALL)
			abort();
		similar_done(&b);
	}
	similar_done(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct oid oid;
	char ref[REF_NAME_SIZE];
	if (size < 2 || size > 65536)
		return 0;
	const char *p = (const char *)data + 2;
	size -= 2;
	switch (data[0] % 5) {
	case 0:
		if (inner_parse_head(p, size, &oid, ref) == INNER_REF && !ref_name_ok(ref))
			abort();
		(void)inner_packed_line(p, size, "refs/heads/a", &oid);
		break;
	case 1:
		ignore(p, size);
		break;
	case 2:
		convert(data[1], p, size);
		break;
	case 3:
		similar(p, size);
		break;
	case 4:
		(void)gitname_is_dotgit(p, size);
		(void)gitname_is_dotgitmodules(p, size);
		(void)gitname_problem(p, size);
		break;
	}
	return 0;
}
