/* What a workspace met that is damaged, for whoever keeps the service: a program hears -EIO
 * alone. */
#include "fs/work/ws_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	TOLD_MAX = 32, /* lines in the log, for each opening: of a lost pack every file is one */
	PATH_SHOWN = 80,
};

void ws_note_damage(struct ws *ws, uint64_t ino, const struct err *why)
{
	auto_free char *path = NULL;
	char text[WS_DAMAGE_TEXT];
	if (atomic_load(&ws->damage_told) >= TOLD_MAX)
		return;
	if (atomic_exchange(&ws->damage_ino, ino) == ino)
		return;
	atomic_fetch_add(&ws->damage_told, 1);
	meta_read(ws);
	(void)view_path(&ws->view, ino, &path); /* the number tells, too */
	meta_done(ws);
	int n = snprintf(text, sizeof(text), "%.*s%sinode %" PRIu64 ": ", PATH_SHOWN,
			 path ? path : "", path ? ", " : "", ino);
	(void)snprintf(text + n, sizeof(text) - (size_t)n, "%.*s", (int)sizeof(text) - n - 1,
		       why->text);
	/* It goes into JSON, and a path is any bytes, cut anywhere. */
	for (char *p = text; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	pthread_mutex_lock(&ws->damage_lock);
	memcpy(ws->damage, text, sizeof(ws->damage));
	pthread_mutex_unlock(&ws->damage_lock);
	struct work *w = ws->work;
	if (w->told)
		w->told(w->told_ctx, ws->id, text);
}

/* Of layers and image: what was found when they were loaded, or looked at since. */
static bool damaged_part(const struct view *v, char *text, size_t size)
{
	char hex[DIGEST_HEX + 1];
	for (uint32_t i = 0; i < v->nlayers; i++) {
		uint64_t lost = layer_lost(v->layers[i]);
		if (!lost)
			continue;
		hex_encode(hex, layer_id(v->layers[i])->b, LAYER_ID_BYTES);
		(void)snprintf(text, size,
			       "layers/%s: %" PRIu64 " records of its journal are damaged, or "
			       "their data is missing: names or contents are lost",
			       hex, lost);
		return true;
	}
	uint64_t bad = v->image ? image_bad_blocks(v->image) : 0;
	if (!bad)
		return false;
	digest_hex(hex, &image_info(v->image)->name);
	(void)snprintf(text, size, "images/%s.img: %" PRIu64 " of its blocks are damaged", hex,
		       bad);
	return true;
}

bool ws_damage(struct ws *ws, char *text, size_t size)
{
	pthread_rwlock_rdlock(&ws->gate); /* not ws_enter: this is no use of it */
	bool some = damaged_part(&ws->view, text, size);
	pthread_rwlock_unlock(&ws->gate);
	if (some)
		return true;
	pthread_mutex_lock(&ws->damage_lock);
	some = *ws->damage;
	if (some)
		(void)snprintf(text, size, "%s", ws->damage);
	pthread_mutex_unlock(&ws->damage_lock);
	return some;
}

void ws_forget_damage(struct ws *ws)
{
	pthread_mutex_lock(&ws->damage_lock);
	*ws->damage = '\0';
	pthread_mutex_unlock(&ws->damage_lock);
	atomic_store(&ws->damage_ino, 0);
	atomic_store(&ws->damage_told, 0);
}
