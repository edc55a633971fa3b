#include "snapd/intents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "snapd/api.h"
#include "snapd/journal.h"

/* In the catalog: into/WORKSPACE/LAYER/SNAPSHOT, "-" for a merge's. */
enum { INTENT_SIZE = sizeof("into///") + 2 * ID_SIZE + 2 * LAYER_ID_BYTES };

int intent_note(struct intent *out, struct snapd *sd, const char *ws, const char *snap,
		const json_t *answer, struct err *err)
{
	char text[INTENT_SIZE], hex[2 * LAYER_ID_BYTES + 1];
	auto_free char *json = answer ? json_text(answer, JSON_COMPACT) : NULL;
	if (answer && !json)
		return err_set(err, -ENOMEM, "out of memory");
	(void)snprintf(out->ws, sizeof(out->ws), "%s", ws);
	int r = fs_active(sd->fs, ws, &out->was, err);
	if (r < 0)
		return snapd_inner(r);
	hex_encode(hex, out->was.b, sizeof(out->was.b));
	(void)snprintf(text, sizeof(text), "into/%s/%s/%s", ws, hex, snap ? snap : "-");
	return catalog_intend_into(sd->catalog, text, json, err);
}

int intent_happened(struct snapd *sd, const struct intent *in, struct err *err)
{
	struct layer_id now;
	int r = fs_active(sd->fs, in->ws, &now, err);
	return r < 0 ? snapd_inner(r) : memcmp(&now, &in->was, sizeof(now)) != 0;
}

static int parse(char *text, struct intent *out, const char **snap)
{
	char *save = NULL;
	(void)strtok_r(text, "/", &save);
	const char *ws = strtok_r(NULL, "/", &save), *hex = strtok_r(NULL, "/", &save);
	*snap = strtok_r(NULL, "/", &save);
	if (!ws || !hex || !*snap || strlen(hex) != 2 * LAYER_ID_BYTES ||
	    hex_decode(out->was.b, LAYER_ID_BYTES, hex) < 0)
		return -EBADMSG;
	(void)snprintf(out->ws, sizeof(out->ws), "%s", ws);
	return 0;
}

/* A restore's head was to be remembered behind it. */
static int finish(struct snapd *sd, const struct intent *in, const char *snap, struct err *err)
{
	auto_ws_row ws = { 0 };
	auto_snap_row row = { 0 };
	int r = catalog_ws_get_any(sd->catalog, in->ws, &ws, err);
	if (r >= 0)
		r = catalog_snap_get(sd->catalog, snap, &row, err);
	return r < 0 ? r : api_ws_remember_head(sd, &ws, &row, err);
}

static int resolve(struct snapd *sd, const char *text, struct err *err)
{
	struct intent in = { 0 };
	const char *snap;
	auto_ws_row ws = { 0 };
	auto_free char *copy = strdup(text);
	int r = copy ? parse(copy, &in, &snap) : -ENOMEM;
	if (r < 0)
		return err_sys(err, r, "%s", text);
	r = catalog_ws_get_any(sd->catalog, in.ws, &ws, err);
	if (r == -ENOENT) /* gone meanwhile, and so says who asks again */
		return catalog_intent_end(sd->catalog, text, false, err);
	if (r >= 0)
		r = intent_happened(sd, &in, err);
	if (r < 0)
		return r;
	struct err why = { 0 };
	if (r > 0 && strcmp(snap, "-") != 0 && finish(sd, &in, snap, &why) < 0)
		log_warn("%s: %s", in.ws, why.text); /* it is restored, but its head is another */
	return catalog_intent_end(sd->catalog, text, r > 0, err);
}

int intents_resolve(struct snapd *sd, struct err *err)
{
	char **texts;
	size_t n;
	int r = catalog_intents(sd->catalog, &texts, &n, err);
	if (r < 0)
		return r;
	struct err why = { 0 };
	int settled = n > 0 ? fs_settle(sd->fs, &why) : 0;
	for (size_t i = 0; i < n; i++) {
		/* What can't be told stays "under way": done twice would be worse. */
		if (settled < 0 || resolve(sd, texts[i], &why) < 0)
			log_error("%s: it isn't known whether that was done: %s", texts[i],
				  why.text);
		free(texts[i]);
	}
	free(texts);
	return 0;
}
