/* The `git` column of a row: text and back. */
#include "snapd/gitlink.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/json.h"
#include "gitops/checkout.h"
#include "snapd/stackop.h"

void gitlink_done(struct gitlink *g)
{
	free(g->ref);
	free(g->branch);
	free(g->pending_branch);
	for (size_t i = 0; i < g->nscopes; i++)
		free(g->scopes[i]);
	free(g->scopes);
	stack_done(&g->stack);
	memset(g, 0, sizeof(*g));
}

static int take_text(char **out, const json_t *j, const char *key)
{
	const json_t *v = json_object_get(j, key);
	if (!v || json_is_null(v))
		return 0;
	if (!json_is_string(v))
		return -EBADMSG;
	*out = strdup(json_string_value(v));
	return *out ? 0 : -ENOMEM;
}

static int take_oid(struct oid *out, const json_t *j, const char *key)
{
	const char *hex = json_string_value(json_object_get(j, key));
	return hex && oid_parse(out, hex) == 0 ? 0 : -EBADMSG;
}

static int take_number(uint32_t *out, const json_t *j, const char *key)
{
	const json_t *v = json_object_get(j, key);
	json_int_t n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0 || n > UINT32_MAX)
		return -EBADMSG;
	*out = (uint32_t)n;
	return 0;
}

static int take_scopes(struct gitlink *g, const json_t *list)
{
	size_t n = json_array_size(list);
	if (n == 0)
		return 0;
	if (n > SCOPES_MAX)
		return -EBADMSG;
	g->scopes = calloc(n, sizeof(*g->scopes));
	if (!g->scopes)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(list, i));
		if (!s)
			return -EBADMSG;
		g->scopes[i] = strdup(s);
		if (!g->scopes[i])
			return -ENOMEM;
		g->nscopes++;
	}
	return 0;
}

static int take_all(struct gitlink *g, const json_t *j)
{
	uint32_t depth = 0;
	int r = take_number(&g->repo, j, "repo");
	if (r >= 0)
		r = take_oid(&g->base, j, "base");
	if (r >= 0)
		r = take_oid(&g->anchor, j, "anchor");
	g->has_pending = json_object_get(j, "pending") != NULL;
	if (r >= 0 && g->has_pending)
		r = take_oid(&g->pending, j, "pending");
	if (r >= 0 && g->has_pending)
		r = take_text(&g->pending_branch, j, "pending_branch");
	if (r >= 0)
		r = take_text(&g->ref, j, "ref");
	if (r >= 0)
		r = take_text(&g->branch, j, "branch");
	if (r >= 0)
		r = take_number(&depth, j, "depth");
	g->depth = depth;
	if (r >= 0)
		r = take_scopes(g, json_object_get(j, "scopes"));
	if (r >= 0)
		r = stack_from_json(&g->stack, json_object_get(j, "stack"));
	return r;
}

int gitlink_parse(struct gitlink *out, const char *json, struct err *err)
{
	auto_gitlink g = { 0 };
	json_t *j = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
	int r = json_is_object(j) ? take_all(&g, j) : -EBADMSG;
	json_decref(j);
	if (r < 0)
		return err_sys(err, r, "what the catalog says of the checkout");
	*out = g;
	memset(&g, 0, sizeof(g));
	return 0;
}

static json_t *optional(const char *s)
{
	return s ? json_string(s) : json_null();
}

char *gitlink_text(const struct gitlink *g)
{
	char base[OID_HEX + 1], anchor[OID_HEX + 1], pending[OID_HEX + 1];
	auto_buf bytes = { 0 };
	oid_hex(base, &g->base);
	oid_hex(anchor, &g->anchor);
	oid_hex(pending, &g->pending);
	stack_encode(&g->stack, &bytes);
	auto_free char *hex = buf_error(&bytes) ? NULL : malloc(2 * bytes.len + 1);
	if (!hex)
		return NULL;
	hex_encode(hex, bytes.data, bytes.len);
	json_t *scopes = json_array();
	for (size_t i = 0; i < g->nscopes; i++)
		(void)json_array_append_new(scopes, json_string(g->scopes[i])); /* counted below */
	if (json_array_size(scopes) != g->nscopes) {
		json_decref(scopes);
		return NULL;
	}
	json_t *j = json_pack("{s:I, s:s, s:s, s:o, s:o, s:I, s:o, s:s}", "repo",
			      (json_int_t)g->repo, "base", base, "anchor", anchor, "ref",
			      optional(g->ref), "branch", optional(g->branch), "depth",
			      (json_int_t)g->depth, "scopes", scopes, "stack", hex);
	bool whole = j && (!g->has_pending ||
			   (json_object_set_new(j, "pending", json_string(pending)) == 0 &&
			    json_object_set_new(j, "pending_branch",
						optional(g->pending_branch)) == 0));
	char *text = whole ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}
