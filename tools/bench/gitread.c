/* How fast objects come out of a git repository by the store's own reader.
 *
 *     gitread REPOS NUMBER [stat] <oids      (git ls-tree -r --format='%(objectname)' HEAD)
 *
 * REPOS/<8 hex digits of NUMBER> is a bare repository. Reads each object once, in the order
 * given, in one thread, and prints one line of JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"
#include "fs/store/gitrepo.h"

static int read_oids(struct oid **out, size_t *n)
{
	auto_free struct oid *v = NULL;
	char line[OID_HEX + 2];
	size_t cap = 0;
	*n = 0;
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '\0')
			continue;
		if (array_grow(&v, *n, &cap) < 0)
			return -ENOMEM;
		if (oid_parse(&v[*n], line) < 0)
			return -EINVAL;
		++*n;
	}
	*out = steal_ptr(&v);
	return 0;
}

static int one(struct gitrepos *g, uint32_t repo, const struct oid *oid, bool stat, uint64_t *bytes,
	       struct err *err)
{
	auto_free uint8_t *data = NULL;
	enum git_type type;
	size_t len = 0;
	uint64_t size = 0;
	int r = stat ? gitrepos_stat(g, repo, oid, &type, &size, err)
		     : gitrepos_read(g, repo, oid, UINT64_MAX, &type, &data, &len, err);
	*bytes += stat ? size : len;
	return r;
}

int main(int argc, char **argv)
{
	auto_free struct oid *v = NULL;
	struct gitrepos *g;
	struct err err;
	size_t n;
	if (argc < 3) {
		(void)fprintf(stderr, "usage: gitread REPOS NUMBER [stat] <oids\n");
		return 2;
	}
	uint32_t repo = (uint32_t)strtoul(argv[2], NULL, 0);
	if (read_oids(&v, &n) < 0 || gitrepos_new(&g, NULL, argv[1], &err) < 0)
		return 1;
	uint64_t t = clock_ns(), bytes = 0;
	for (size_t i = 0; i < n; i++)
		if (one(g, repo, &v[i], argc > 3, &bytes, &err) < 0) {
			(void)fprintf(stderr, "gitread: %s\n", err.text);
			return 1;
		}
	t = clock_ns() - t;
	gitrepos_free(g);
	(void)printf("{\"objects\": %zu, \"bytes\": %llu, \"ms\": %.1f, \"mb_per_s\": %.0f}\n", n,
		     (unsigned long long)bytes, (double)t / 1e6, (double)bytes * 1e3 / (double)t);
	return 0;
}
