#include "tools/bough/place.h"

#include <stdlib.h>
#include <string.h>
#include "fs/base/cleanup.h"
#include "tools/bough/json.h"

void place_done(struct place *p)
{
	free(p->name);
}

/* "uid:7/NAME" has a colon of its own. */
static size_t uid_length(const char *s)
{
	size_t n = strncmp(s, "uid:", 4) == 0 ? 4 + strspn(s + 4, "0123456789") : 0;
	return n > 4 && s[n] == '/' ? n + 1 : 0;
}

static int parse(struct place *out, const char *operand, bool remote, struct err *err)
{
	size_t owner = uid_length(operand);
	const char *colon = strchr(operand + owner, ':');
	const char *slash = remote && !owner ? strchr(operand, '/') : NULL;
	*out = (struct place){ .path = operand };
	if (slash && colon && slash < colon && slash > operand)
		owner = (size_t)(slash - operand) + 1;
	if (!colon || colon == operand + owner ||
	    memchr(operand + owner, '/', (size_t)(colon - operand) - owner))
		return 0;
	out->name = strndup(operand, (size_t)(colon - operand));
	if (!out->name)
		return err_no_memory(err);
	out->path = colon + 1;
	while (*out->path == '/' || (out->path[0] == '.' && out->path[1] == '/'))
		out->path++;
	if (strcmp(out->path, ".") == 0)
		out->path++;
	return 0;
}

int place_parse(struct place *out, const char *operand, struct err *err)
{
	return parse(out, operand, false, err);
}

int place_parse_remote(struct place *out, const char *operand, struct err *err)
{
	int r = parse(out, operand, true, err);
	if (r == 0 && !out->name)
		r = err_set(err, -EINVAL, "%s: WORKSPACE:PATH or SNAPSHOT:PATH is expected",
			    operand);
	return r;
}

struct target place_target(const char *route, const char *path, const char *last)
{
	struct target t = target_new(route);
	const char *parts[] = { path, last };
	for (unsigned i = 0; i < 2; i++)
		for (const char *p = parts[i]; p && *p;) {
			size_t n = strcspn(p, "/");
			auto_free char *part = strndup(p, n);
			target_path(&t, "/");
			if (part)
				target_name(&t, part);
			else
				t.text.failed = true;
			p += n;
			p += p[0] == '/' && p[1] && strcmp(p, "/.") != 0; /* at the end: nothing */
			if (strcmp(p, "/") == 0 || strcmp(p, "/.") == 0)
				break;
		}
	return t;
}

const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

int place_stat(struct cli *cli, const struct place *p, unsigned kinds, json_t **out,
	       struct err *err)
{
	struct http *h = NULL;
	auto_free char *text = NULL;
	size_t len;
	auto_target rest = place_target("/files", p->path, NULL);
	target_query(&rest, "stat", "1");
	int r = api_stream_of(cli, p->name, kinds, &rest, NULL, &h, err);
	if (r == 0)
		r = http_read_all(h, 1 << 20, &text, &len, err);
	http_free(h);
	if (r < 0)
		return r;
	auto_json json_t *doc = json_loadb(text, len, 0, NULL);
	json_t *entry = json_object_get(doc, "entry");
	if (!json_is_object(entry))
		return err_set(err, -EPROTO, "boughd answered what isn't an entry");
	static const char *const beside[] = { "of", "inode", "at" };
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
		(void)json_object_set(entry, beside[i], json_object_get(doc, beside[i]));
	*out = json_incref(entry);
	return 0;
}
