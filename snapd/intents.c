#include "snapd/intents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/json.h"
#include "fs/base/log.h"
#include "gitops/history.h"
#include "gitops/mirror.h"
#include "gitops/refs.h"
#include "snapd/api.h"
#include "snapd/api_files.h"
#include "snapd/exports.h"

enum { INTENT_SIZE = sizeof("into///") + 2 * ID_SIZE + 2 * LAYER_ID_BYTES };

static int note(struct snapd *sd, const char *effect, const json_t *answer, struct err *err)
{
	auto_free char *json = answer ? json_text(answer, JSON_COMPACT) : NULL;
	if (!effect || (answer && !json))
		return err_no_memory(err);
	return catalog_intend_into(sd->catalog, effect, json, err);
}

const char *intent_was(const char *prefix)
{
	const struct doing *d = doing_now();
	size_t n = strlen(prefix);
	return d && d->was && strncmp(d->was, prefix, n) == 0 ? d->was + n : NULL;
}

/* ---- another layer ---- */

int intent_note(struct intent *out, struct snapd *sd, const char *ws, const char *snap,
		const json_t *answer, struct err *err)
{
	char text[INTENT_SIZE], hex[2 * LAYER_ID_BYTES + 1];
	(void)snprintf(out->ws, sizeof(out->ws), "%s", ws);
	int r = intents_settle_of(sd, ws, err);
	if (r >= 0)
		r = fs_active(sd->fs, ws, &out->was, err);
	if (r < 0)
		return snapd_inner(r);
	hex_encode(hex, out->was.b, sizeof(out->was.b));
	(void)snprintf(text, sizeof(text), "into/%s/%s/%s", ws, hex, snap ? snap : "-");
	return note(sd, text, answer, err);
}

int intent_happened(struct snapd *sd, const struct intent *in, struct err *err)
{
	int r = fs_has_layer(sd->fs, in->ws, &in->was, err);
	return r < 0 ? snapd_inner(r) : r == 0;
}

static int parse(char *text, struct intent *out, const char **snap)
{
	char *save = NULL;
	const char *ws = strtok_r(text, "/", &save), *hex = strtok_r(NULL, "/", &save);
	*snap = strtok_r(NULL, "/", &save);
	if (!ws || !hex || !*snap || strlen(hex) != 2 * LAYER_ID_BYTES ||
	    hex_decode(out->was.b, LAYER_ID_BYTES, hex) < 0)
		return -EBADMSG;
	(void)snprintf(out->ws, sizeof(out->ws), "%s", ws);
	return 0;
}

void intent_finish(struct snapd *sd, const char *id, const char *snap)
{
	struct err err = { 0 };
	auto_ws_row ws = { 0 };
	auto_snap_row row = { 0 };
	int r = catalog_ws_get_any(sd->catalog, id, &ws, &err);
	if (r >= 0)
		r = catalog_snap_get(sd->catalog, snap, &row, &err);
	if (r >= 0)
		r = api_ws_remember_head(sd, &ws, &row, &err);
	if (r < 0)
		log_warn("%s: %s", id, err.text); /* it is restored, but its head is another */
}

static int look_into(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	struct intent in = { 0 };
	const char *snap;
	auto_ws_row ws = { 0 };
	int r = parse(text, &in, &snap);
	if (r < 0)
		return err_sys(err, r, "%s", text);
	r = catalog_ws_get_any(sd->catalog, in.ws, &ws, err);
	if (r >= 0)
		r = intent_happened(sd, &in, err);
	if (r <= 0)
		return r;
	if (strcmp(snap, "-") != 0)
		intent_finish(sd, in.ws, snap);
	return 200;
}

/* ---- files ---- */

int intent_files(uint64_t *tag, struct snapd *sd, const char *ws, unsigned status, json_t *answer,
		 struct err *err)
{
	char text[sizeof("by/tag///200") + ID_SIZE + 16];
	*tag = fs_tag();
	(void)snprintf(text, sizeof(text), "by/tag/%s/%016llx/%u", ws, (unsigned long long)*tag,
		       status);
	int r = note(sd, answer ? text : NULL, answer, err);
	json_decref(answer);
	return r;
}

static int look_tag(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	char *save = NULL;
	const char *ws = strtok_r(text, "/", &save), *hex = strtok_r(NULL, "/", &save);
	const char *status = strtok_r(NULL, "/", &save);
	auto_ws_row row = { 0 };
	if (!ws || !hex || !status)
		return err_set(err, -EBADMSG, "%s", text);
	int r = catalog_ws_get_any(sd->catalog, ws, &row, err);
	if (r >= 0)
		r = fs_answered(sd->fs, ws, strtoull(hex, NULL, 16), err);
	if (r <= 0)
		return r;
	struct err why = { 0 };
	r = api_files_look(sd, ws, answer, &why);
	if (r == -ENOENT) {
		json_decref(*answer);
		*answer = NULL;
		return 204; /* done, and gone by now */
	}
	if (r < 0) /* as far as it was known before */
		log_warn("%s: %s", ws, why.text);
	return (int)strtoul(status, NULL, 10);
}

/* ---- branches ---- */

int intent_branch(struct snapd *sd, uint32_t repo, const char *branch, const struct oid *commit,
		  unsigned status, const json_t *answer, struct err *err)
{
	char hex[OID_HEX + 1];
	auto_free char *text = NULL;
	oid_hex(hex, commit);
	if (asprintf(&text, "by/ref/%u/%08x/%s/%s", status, repo, hex, branch) < 0)
		text = NULL;
	return note(sd, text, answer, err);
}

/* Whether the branch is at the commit, or others came on top of that: 1 or 0. */
static int branch_has(struct snapd *sd, unsigned number, const char *branch, const char *hex,
		      struct err *err)
{
	char ref[REF_NAME_SIZE];
	struct oid want;
	git_oid id, commit;
	auto_mirror m = NULL;
	int r = oid_parse(&want, hex);
	if (r < 0)
		return err_set(err, -EBADMSG, "%s", hex);
	r = mirror_open(&m, sd->root, number, err);
	if (r < 0)
		return r;
	(void)snprintf(ref, sizeof(ref), REFS_HEADS "%s", branch);
	commit = oid_to_git(&want);
	r = git_reference_name_to_id(&id, mirror_repo(m), ref);
	if (r == GIT_ENOTFOUND)
		return 0;
	if (r >= 0 && git_oid_equal(&id, &commit))
		return 1;
	if (r < 0)
		return git_fail(err, r, "read %s", ref);
	r = history_descends(mirror_repo(m), &id, &commit, err);
	if (r == -ENOENT) /* its objects weren't written, either */
		return 0;
	return r < 0 ? err_prefix(err, r, "read %s", ref) : r;
}

static int look_ref(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	unsigned status, number;
	char hex[OID_HEX + 1];
	int at = 0;
	if (sscanf(text, "%u/%x/%40[0-9a-f]/%n", &status, &number, hex, &at) != 3 || at == 0)
		return err_set(err, -EBADMSG, "%s", text);
	int r = branch_has(sd, number, text + at, hex, err);
	return r > 0 ? (int)status : r;
}

/* Where commits have left the branch it is known by the last of them, which those that come since
 * don't stand on; else by what has come. */
int intent_reset(struct snapd *sd, uint32_t repo, const char *branch,
		 const struct mirror_reset *plan, const json_t *answer, struct err *err)
{
	char hex[OID_HEX + 1];
	auto_free char *text = NULL;
	const bool lost = plan->removed || plan->lost > 0;
	oid_hex(hex, lost ? &plan->was : &plan->now);
	if (asprintf(&text, "by/reset/%08x/%s/%s/%s", repo, lost ? "lost" : "has", hex, branch) < 0)
		text = NULL;
	return note(sd, text, answer, err);
}

static int look_reset(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	unsigned number;
	char hex[OID_HEX + 1], what[5];
	int at = 0;
	if (sscanf(text, "%x/%4[a-z]/%40[0-9a-f]/%n", &number, what, hex, &at) != 3 || at == 0)
		return err_set(err, -EBADMSG, "%s", text);
	int r = branch_has(sd, number, text + at, hex, err);
	return r < 0 ? r : (r > 0) == (strcmp(what, "has") == 0) ? 200 : 0;
}

/* ---- exports ---- */

int intent_export(struct snapd *sd, const char *owner, const char *file, unsigned status,
		  const json_t *answer, struct err *err)
{
	auto_free char *text = NULL;
	if (asprintf(&text, "by/export/%u/%s/%s", status, file, owner) < 0)
		text = NULL;
	return note(sd, text, answer, err);
}

static int look_export(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	char *save = NULL;
	const char *status = strtok_r(text, "/", &save);
	char *file = strtok_r(NULL, "/", &save);
	struct export e;
	if (!status || !file || !*save)
		return err_set(err, -EBADMSG, "%s", text);
	file[strcspn(file, ".")] = '\0';
	auto_fd fd = export_open(sd, save, file, &e, err);
	return fd < 0 ? fd : (int)strtoul(status, NULL, 10);
}

/* ---- an upload ---- */

int intent_upload(struct snapd *sd, char id[ID_SIZE], struct err *err)
{
	static const char upload[] = "by/upload/";
	char text[sizeof(upload) + ID_SIZE];
	const char *was = intent_was(upload);
	if (was) {
		(void)snprintf(id, ID_SIZE, "%s", was);
		return 1;
	}
	id_make(id, "up");
	(void)snprintf(text, sizeof(text), "%s%s", upload, id);
	int r = note(sd, text, NULL, err);
	return r < 0 ? r : 0;
}

/* ---- a push ---- */

int intent_push(struct snapd *sd, struct oid *commit, struct err *err)
{
	static const char push[] = "by/push/";
	char text[sizeof(push) + OID_HEX], hex[OID_HEX + 1];
	const char *was = intent_was(push);
	if (was)
		return oid_parse(commit, was);
	oid_hex(hex, commit);
	(void)snprintf(text, sizeof(text), "%s%s", push, hex);
	return note(sd, text, NULL, err);
}

int intent_look_again(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err)
{
	return INTENT_LEFT;
}

/* ---- what became of it ---- */

enum { SETTLE_MS = 5000 };

static const struct kind {
	const char *prefix;
	bool asks_fs;
	int (*look)(struct snapd *sd, char *text, json_t **answer, char **left, struct err *err);
} kinds[] = {
	{ "into/", true, look_into },
	{ "by/tag/", true, look_tag },
	{ "by/ref/", false, look_ref },
	{ "by/reset/", false, look_reset },
	{ "by/export/", false, look_export },
	{ "by/box/", false, intent_look_box },
	{ "by/attach/", false, intent_look_attach },
	{ "by/back/", true, intent_look_back },
	{ "by/exec/", false, intent_look_exec },
	{ "by/signal/", false, intent_look_again },
	{ "by/push/", false, intent_look_again },
	{ "by/upload/", false, intent_look_again },
	{ "by/umount/", false, intent_look_again },
};

/* NULL: what the catalog knows of. */
static const struct kind *kind_of(const char *effect)
{
	const struct kind *k = kinds, *end = k + sizeof(kinds) / sizeof(kinds[0]);
	while (k < end && strncmp(effect, k->prefix, strlen(k->prefix)) != 0)
		k++;
	return k < end ? k : NULL;
}

/* What `look` says, with the answer as it is now, is noted. `start`: at the start of boughd. */
static int look(struct snapd *sd, const struct kind *k, const struct repeat *was, bool start,
		struct err *err)
{
	json_t *answer = was->answer ? json_loads(was->answer, 0, NULL) : NULL;
	auto_free char *text = strdup(was->effect + strlen(k->prefix)), *now = NULL, *left = NULL;
	int r = text ? k->look(sd, text, &answer, &left, err) : err_no_memory(err);
	now = answer ? json_text(answer, JSON_COMPACT) : NULL;
	json_decref(answer);
	if (r < 0 && r != -ENOENT) /* gone meanwhile: so says who asks again */
		return r;
	if (r == INTENT_LEFT)
		return catalog_repeat_left(sd->catalog, was, left, err);
	if (r > 0 || !start)
		return catalog_repeat_settle(sd->catalog, was, r > 0 ? (unsigned)r : 0, now, err);
	return catalog_repeat_undone(sd->catalog, was, err);
}

int intent_settle(struct snapd *sd, const struct repeat *was, bool late, struct err *err)
{
	const struct kind *k = was->effect ? kind_of(was->effect) : NULL;
	int r = was->effect && !k ? catalog_repeat_made(sd->catalog, was, err) : 0;
	if (!k)
		return r ? r : catalog_repeat_settle(sd->catalog, was, 0, NULL, err);
	if (late && k->asks_fs)
		r = fs_settle(sd->fs, SETTLE_MS, err);
	return r < 0 ? r : look(sd, k, was, false, err);
}

int intents_settle_of(struct snapd *sd, const char *ws, struct err *err)
{
	struct idle_key *keys = NULL;
	size_t n = 0;
	int r = catalog_idle_keys(sd->catalog, ws, &keys, &n, err);
	if (r >= 0 && n > 0)
		r = fs_settle(sd->fs, SETTLE_MS, err);
	for (size_t i = 0; i < n && r >= 0; i++)
		r = intent_settle(sd, &keys[i].repeat, false, err);
	idle_keys_free(keys, n);
	return r < 0 ? err_prefix(err, r, "what was asked of it before") : 0;
}

int intents_resolve(struct snapd *sd, struct err *err)
{
	struct idle_key *keys;
	size_t n;
	int r = catalog_idle_keys(sd->catalog, NULL, &keys, &n, err);
	if (r < 0)
		return r;
	struct err why = { 0 };
	int settled = n > 0 ? fs_settle(sd->fs, FSCLIENT_ANSWER_MS, &why) : 0;
	for (size_t i = 0; i < n; i++) {
		const struct repeat *was = &keys[i].repeat;
		const struct kind *k = kind_of(was->effect);
		r = k && (settled >= 0 || !k->asks_fs) ? look(sd, k, was, true, &why) : -EAGAIN;
		if (r < 0) /* done twice would be worse than that who asks again has to wait */
			log_error("%s: it isn't known whether that was done: %s", was->effect,
				  why.text);
	}
	idle_keys_free(keys, n);
	return 0;
}
