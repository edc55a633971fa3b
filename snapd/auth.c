/* Who a request comes from. */
#include <ctype.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/base/clock.h"
#include "fs/base/log.h"
#include "snapd/access.h"
#include "snapd/events.h"

static const char prefix[] = "bough_";

enum {
	PREFIX_CHARS = sizeof(prefix) - 1,
	ID_PART = ID_CHARS - 3,
	SECRET_BYTES = 32,
	USED_EVERY_S = 60, /* how exact a token's last use is told */
};

/* ---- tokens ---- */

void auth_token_make(struct token_row *row, char text[TOKEN_TEXT])
{
	uint8_t secret[SECRET_BYTES];
	char hex[2 * SECRET_BYTES + 1];
	id_make(row->id, "tk");
	random_bytes(secret, sizeof(secret));
	hex_encode(hex, secret, sizeof(secret));
	(void)snprintf(text, TOKEN_TEXT, "%s%s_%s", prefix, row->id + 3, hex);
	hash_sha256(&row->hash, text, strlen(text));
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(hex, sizeof(hex));
}

int auth_token_id(const char *text, char id[ID_SIZE])
{
	if (strlen(text) != TOKEN_TEXT - 1 || strncmp(text, prefix, PREFIX_CHARS) != 0 ||
	    text[PREFIX_CHARS + ID_PART] != '_')
		return -EINVAL;
	(void)snprintf(id, ID_SIZE, "tk_%.*s", ID_PART, text + PREFIX_CHARS);
	return id_is(id, "tk") ? 0 : -EINVAL;
}

/* "uid:17" */
static bool parse_uid(const char *owner, uid_t *uid)
{
	char *end;
	if (strncmp(owner, "uid:", 4) != 0 || !isdigit((unsigned char)owner[4]))
		return false;
	errno = 0;
	unsigned long n = strtoul(owner + 4, &end, 10);
	if (errno || *end || n >= UINT32_MAX)
		return false;
	*uid = (uid_t)n;
	return true;
}

int auth_owner(struct snapd *sd, const char *word, char out[OWNER_SIZE], struct err *err)
{
	struct user_row user;
	uid_t uid;
	if (parse_uid(word, &uid)) {
		owner_of_uid(out, uid);
		return 0;
	}
	int r = catalog_user_get(sd->catalog, word, &user, err);
	if (r < 0)
		return r;
	memcpy(out, user.owner, sizeof(user.owner));
	return 0;
}

static int refuse(struct err *err)
{
	return err_set(err, -EKEYREJECTED, "the token is not valid, or has expired");
}

static int find_token(struct snapd *sd, const char *text, struct token_row *row, struct err *err)
{
	struct digest hash;
	char id[ID_SIZE];
	if (auth_token_id(text, id) < 0)
		return refuse(err);
	int r = catalog_token_get(sd->catalog, id, row, err);
	if (r == -ENOENT)
		return refuse(err);
	if (r < 0)
		return r;
	hash_sha256(&hash, text, strlen(text));
	if (CRYPTO_memcmp(hash.b, row->hash.b, sizeof(hash.b)) != 0)
		return refuse(err);
	int64_t now = snapd_now_ns();
	if (row->expires_ns && row->expires_ns <= now)
		return refuse(err);
	if (now - row->used_ns > (int64_t)USED_EVERY_S * 1000000000) {
		struct err why = { 0 };
		if (catalog_token_used(sd->catalog, id, now, &why) < 0)
			log_warn("%s", why.text); /* only told */
	}
	return 0;
}

static void be_token(struct principal *out, const struct token_row *row)
{
	*out = (struct principal){ .known = true,
				   .admin = row->admin,
				   .read_only = row->read_only,
				   .expires_ns = row->expires_ns,
				   .uid = (uid_t)-1,
				   .gid = (gid_t)-1 };
	(void)parse_uid(row->owner, &out->uid);
	memcpy(out->owner, row->owner, sizeof(out->owner));
	memcpy(out->token, row->id, sizeof(out->token));
	memcpy(out->workspace, row->workspace, sizeof(out->workspace));
	memcpy(out->team, row->team, sizeof(out->team));
	memcpy(out->path, row->path, sizeof(out->path));
}

static int by_token(struct snapd *sd, const struct web_peer *peer, const char *authorization,
		    struct principal *out, struct err *err)
{
	struct token_row row = { 0 };
	if (strncasecmp(authorization, "Bearer ", 7) != 0)
		return err_set(err, -EKEYREJECTED, "Authorization: Bearer TOKEN is expected");
	authorization += 7;
	authorization += strspn(authorization, " ");
	int r = find_token(sd, authorization, &row, err);
	if (r < 0)
		return r;
	be_token(out, &row);
	if (peer->local)
		(void)snprintf(out->from, sizeof(out->from), "pid %d", (int)peer->pid);
	else
		memcpy(out->from, peer->address, sizeof(out->from));
	return 0;
}

/* A peer of that uid may do. */
static int admit_uid(struct snapd *sd, struct principal *out, struct err *err)
{
	struct user_row user;
	if (out->admin)
		return 0;
	if (!sd->multi_user)
		return err_set(err, -EPERM, "this boughd serves uid %u only", (unsigned)geteuid());
	int r = catalog_user_of_uid(sd->catalog, out->uid, &user, err);
	if (r < 0 && r != -ENOENT)
		return r;
	out->admin = r >= 0 && user.admin;
	return 0;
}

int auth_as(struct snapd *sd, const char *owner, const char *token, struct principal *out,
	    struct err *err)
{
	struct token_row row = { 0 };
	uid_t uid;
	if (!*token) {
		if (!parse_uid(owner, &uid))
			return refuse(err);
		principal_of_peer(out, uid, (gid_t)-1, 0);
		return admit_uid(sd, out, err);
	}
	int r = id_is(token, "tk") ? catalog_token_get(sd->catalog, token, &row, err) : -ENOENT;
	if (r == -ENOENT || (r >= 0 && (strcmp(row.owner, owner) != 0 ||
					(row.expires_ns && row.expires_ns <= snapd_now_ns()))))
		return refuse(err);
	if (r >= 0)
		be_token(out, &row);
	return r;
}

int auth_of(struct snapd *sd, const char *owner, struct principal *out, struct err *err)
{
	struct user_row *rows = NULL;
	size_t n = 0;
	uid_t uid;
	if (parse_uid(owner, &uid))
		return auth_as(sd, owner, "", out, err);
	int r = catalog_user_list(sd->catalog, &rows, &n, err);
	const struct user_row *u = NULL;
	for (size_t i = 0; r >= 0 && i < n; i++)
		if (!rows[i].has_uid && strcmp(rows[i].owner, owner) == 0)
			u = &rows[i];
	if (u) {
		*out = (struct principal){
			.known = true, .admin = u->admin, .uid = (uid_t)-1, .gid = (gid_t)-1
		};
		(void)snprintf(out->owner, sizeof(out->owner), "%s", owner);
	}
	free(rows);
	return r < 0 ? r : u ? 0 : refuse(err);
}

int auth_identify(void *ctx, const struct web_peer *peer, const char *authorization,
		  struct principal *out, struct err *err)
{
	struct snapd *sd = ctx;
	if (authorization)
		return by_token(sd, peer, authorization, out, err);
	if (!peer->local)
		return err_set(err, -EKEYREJECTED,
			       "a token is needed: `bough token create` makes one");
	principal_of_peer(out, peer->uid, peer->gid, peer->pid);
	return admit_uid(sd, out, err);
}

bool auth_look_due(struct snapd *sd, const struct principal *who, struct auth_look *look)
{
	uint64_t now = clock_ms(), last = events_last(sd->events);
	if (who->expires_ns && who->expires_ns <= snapd_now_ns())
		return true;
	if (look->event == last || now - look->ms < AUTH_LOOK_MS)
		return false;
	*look = (struct auth_look){ now, last };
	return true;
}

int auth_still(struct snapd *sd, const struct principal *who, struct err *err)
{
	struct token_row row = { 0 };
	if (!who->token[0])
		return 0;
	int r = catalog_token_get(sd->catalog, who->token, &row, err);
	if (r == -ENOENT || (r >= 0 && row.expires_ns && row.expires_ns <= snapd_now_ns()))
		return refuse(err);
	return r;
}
