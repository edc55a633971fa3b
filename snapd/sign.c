#include "snapd/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "fs/base/json.h"

enum { KEY_BYTES = 32, FILE_MAX = 16 * 1024 };
static const char FILE_NAME[] = "sign.keys";

struct key {
	char id[SIGN_KEY_ID];
	uint8_t bytes[KEY_BYTES];
	uint64_t made;
};

struct signer {
	char *root;
	pthread_mutex_t lock;
	bool loaded;
	struct key keys[SIGN_KEYS_MAX]; /* the oldest first */
	size_t n;
};

struct signer *signer_new(const char *root)
{
	struct signer *s = calloc(1, sizeof(*s));
	if (!s || !(s->root = strdup(root))) {
		free(s);
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

void signer_free(struct signer *s)
{
	if (!s)
		return;
	explicit_bzero(s->keys, sizeof(s->keys));
	pthread_mutex_destroy(&s->lock);
	free(s->root);
	free(s);
}

/* ---- the file ---- */

static int take_key(struct signer *s, const json_t *j)
{
	const char *id = json_string_value(json_object_get(j, "id"));
	const char *hex = json_string_value(json_object_get(j, "key"));
	json_int_t made = json_integer_value(json_object_get(j, "made"));
	struct key k = { .made = made > 0 ? (uint64_t)made : 0 };
	if (!id || !hex || strlen(id) != SIGN_KEY_ID - 1 || strlen(hex) != 2 * KEY_BYTES ||
	    hex_decode(k.bytes, KEY_BYTES, hex) < 0 || s->n == SIGN_KEYS_MAX)
		return -EBADMSG;
	memcpy(k.id, id, SIGN_KEY_ID);
	s->keys[s->n++] = k;
	return 0;
}

static int open_root(struct signer *s, struct err *err)
{
	int fd = open(s->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "open %s", s->root) : fd;
}

/* A file that isn't understood makes a new key: what was signed holds no longer. */
static int load(struct signer *s, struct err *err)
{
	auto_free void *text = NULL;
	size_t len, i;
	json_t *one;
	if (s->loaded)
		return 0;
	auto_fd dir = open_root(s, err);
	if (dir < 0)
		return dir;
	int r = io_slurp(NULL, dir, FILE_NAME, FILE_MAX, &text, &len, err);
	if (r < 0 && r != -ENOENT)
		return r;
	json_t *list = r < 0 ? NULL : json_loadb(text, len, 0, NULL);
	if (text)
		explicit_bzero(text, len);
	json_array_foreach(list, i, one)
		(void)take_key(s, one);
	json_decref(list);
	s->loaded = true;
	return 0;
}

static int store(struct signer *s, struct err *err)
{
	json_t *list = json_array();
	char hex[2 * KEY_BYTES + 1];
	int bad = list ? 0 : -1;
	for (size_t i = 0; i < s->n; i++) {
		hex_encode(hex, s->keys[i].bytes, KEY_BYTES);
		bad |= json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "id", s->keys[i].id,
							     "key", hex, "made",
							     (json_int_t)s->keys[i].made));
	}
	explicit_bzero(hex, sizeof(hex));
	char *text = bad ? NULL : json_text(list, JSON_COMPACT);
	json_decref(list);
	if (!text)
		return err_no_memory(err);
	auto_fd dir = open_root(s, err);
	int r = dir < 0 ? dir : io_publish(NULL, dir, FILE_NAME, text, strlen(text), true, err);
	explicit_bzero(text, strlen(text));
	free(text);
	return r;
}

/* The newest key, another one where that has signed for long enough; those that nothing holds by
 * any more go. */
static int present_key(struct signer *s, uint64_t now, const struct key **out, struct err *err)
{
	int r = load(s, err);
	if (r < 0)
		return r;
	const struct key *last = s->n ? &s->keys[s->n - 1] : NULL;
	if (last && now < last->made + SIGN_KEY_S && last->made <= now + SIGN_KEY_S) {
		*out = last;
		return 0;
	}
	size_t gone = 0;
	while (gone < s->n &&
	       (s->keys[gone].made + SIGN_KEY_S + SIGN_FOR_MAX_S < now ||
		s->n - gone == SIGN_KEYS_MAX))
		gone++;
	memmove(s->keys, s->keys + gone, (s->n - gone) * sizeof(*s->keys));
	s->n -= gone;
	struct key k = { .made = now };
	uint8_t id[(SIGN_KEY_ID - 1) / 2];
	random_bytes(k.bytes, KEY_BYTES);
	random_bytes(id, sizeof(id));
	hex_encode(k.id, id, sizeof(id));
	s->keys[s->n++] = k;
	explicit_bzero(&k, sizeof(k));
	r = store(s, err);
	if (r < 0)
		s->n--;
	else
		*out = &s->keys[s->n - 1];
	return r;
}

/* ---- signing ---- */

/* Each part with its length, so that no two claims have the same bytes. */
static void add_part(struct buf *b, const char *part)
{
	buf_u32(b, (uint32_t)strlen(part));
	buf_add(b, part, strlen(part));
}

static int mac(const struct key *k, const struct sign_claim *c, char text[SIGN_TEXT])
{
	uint8_t out[EVP_MAX_MD_SIZE];
	unsigned len = 0;
	auto_buf b = { 0 };
	add_part(&b, "bough signed GET 1");
	add_part(&b, k->id);
	add_part(&b, c->id);
	add_part(&b, c->path);
	add_part(&b, c->owner);
	add_part(&b, c->token);
	add_part(&b, c->etag);
	buf_u64(&b, c->expires);
	if (buf_error(&b) ||
	    !HMAC(EVP_sha256(), k->bytes, KEY_BYTES, b.data, b.len, out, &len) || len != 32)
		return -ENOMEM;
	hex_encode(text, out, len);
	return 0;
}

int sign_make(struct signer *s, const struct sign_claim *c, uint64_t now, char key[SIGN_KEY_ID],
	      char text[SIGN_TEXT], struct err *err)
{
	const struct key *k = NULL;
	pthread_mutex_lock(&s->lock);
	int r = present_key(s, now, &k, err);
	if (r >= 0)
		r = mac(k, c, text) < 0 ? err_no_memory(err) : 0;
	if (r >= 0)
		memcpy(key, k->id, SIGN_KEY_ID);
	pthread_mutex_unlock(&s->lock);
	return r;
}

int sign_check(struct signer *s, const struct sign_claim *c, uint64_t now, const char *key,
	       const char *text, struct err *err)
{
	char want[SIGN_TEXT] = "";
	bool found = false;
	pthread_mutex_lock(&s->lock);
	int r = load(s, err);
	for (size_t i = 0; i < s->n && r >= 0 && !found; i++) {
		found = strcmp(s->keys[i].id, key) == 0;
		if (found && mac(&s->keys[i], c, want) < 0)
			r = err_no_memory(err);
	}
	pthread_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	if (!found)
		return err_set(err, -EKEYEXPIRED, "the URL is good no longer: its key is gone");
	if (strlen(text) != SIGN_TEXT - 1 || CRYPTO_memcmp(text, want, SIGN_TEXT - 1) != 0)
		return err_set(err, -EPERM, "the URL's signature isn't right");
	return now < c->expires ? 0 : err_set(err, -EKEYEXPIRED, "the URL has expired");
}
