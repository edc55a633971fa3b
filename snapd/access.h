/* Who may do what: users, teams, tokens, and the one check that every request passes.
 *
 * Visibility. A workspace or snapshot is its owner's; `team` lets the members of one team see it
 * (and change it, unless they are readers there), `global` lets everybody see it. What one may not
 * see is answered as what isn't there. Admins see and may do all.
 *
 * access_admit turns every key in a request (in the path, in "from", "snapshot", "against",
 * "workspace") into the id of what the caller means by it, and refuses what isn't the caller's. So
 * handlers get ids only, and a name that changes hands meanwhile leads nowhere. A route of a family
 * that it doesn't know is the admins'. */
#ifndef BOUGH_SNAPD_ACCESS_H
#define BOUGH_SNAPD_ACCESS_H

#include "snapd/api.h"

enum { TOKEN_TEXT = 6 + 10 + 1 + 64 + 1 }; /* "bough_" id "_" secret */

/* ---- rows (catalog_access.c) ---- */

struct token_row {
	char id[ID_SIZE]; /* "tk_…" */
	struct digest hash;
	char owner[OWNER_SIZE], name[NAME_SIZE];
	bool admin, read_only;
	char workspace[ID_SIZE];                 /* "": all of the owner's */
	char team[ID_SIZE];                      /* what that is shown; "": no such limit */
	char path[PATH_SCOPE_SIZE];              /* in it, without '/' at its ends; "": all of it */
	int64_t created_ns, expires_ns, used_ns; /* 0: never */
};
struct user_row {
	char name[NAME_SIZE];
	bool has_uid, admin;
	uid_t uid;
	char owner[OWNER_SIZE]; /* that of the uid, or one that was nobody's before */
	int64_t created_ns;
};
enum role { ROLE_READER, ROLE_MEMBER, ROLE_ADMIN };
extern const char *const role_names[];
struct team_row {
	char id[ID_SIZE]; /* "tm_…" */
	char owner[OWNER_SIZE], name[NAME_SIZE];
	int64_t created_ns;
};
struct member_row {
	char owner[OWNER_SIZE];
	enum role role;
};

/* -EEXIST, -ENOENT as ever. Lists are the caller's to free. `owner` NULL: all. */
int catalog_token_insert(struct catalog *c, const struct token_row *row, struct err *err);
int catalog_token_get(struct catalog *c, const char *id, struct token_row *out, struct err *err);
int catalog_token_list(struct catalog *c, const char *owner, struct token_row **rows, size_t *n,
		       struct err *err);
int catalog_token_delete(struct catalog *c, const char *id, struct err *err);
int catalog_token_used(struct catalog *c, const char *id, int64_t when_ns, struct err *err);

/* Fills row->owner: for one without a uid one that nobody was, unless it is given. */
int catalog_user_insert(struct catalog *c, struct user_row *row, struct err *err);
int catalog_user_get(struct catalog *c, const char *name, struct user_row *out, struct err *err);
int catalog_user_of_uid(struct catalog *c, uid_t uid, struct user_row *out, struct err *err);
int catalog_user_list(struct catalog *c, struct user_row **rows, size_t *n, struct err *err);
/* With the tokens and memberships of that owner. */
int catalog_user_delete(struct catalog *c, const char *name, const char *owner, struct err *err);

/* Its owner is its first admin. */
int catalog_team_insert(struct catalog *c, const struct team_row *row, struct err *err);
int catalog_team_get(struct catalog *c, const char *id, struct team_row *out, struct err *err);
/* Those that a key ("tm_…", "NAME", "OWNER/NAME") may mean. */
int catalog_team_find(struct catalog *c, const char *key, struct team_row **rows, size_t *n,
		      struct err *err);
/* Those that `member` is in; NULL: all. */
int catalog_team_list(struct catalog *c, const char *member, struct team_row **rows, size_t *n,
		      struct err *err);
/* What was the team's to see is private then, and its tokens are gone. */
int catalog_team_delete(struct catalog *c, const char *id, struct err *err);
int catalog_members(struct catalog *c, const char *team, struct member_row **rows, size_t *n,
		    struct err *err);
int catalog_member_set(struct catalog *c, const char *team, const char *owner, enum role role,
		       struct err *err);
int catalog_member_delete(struct catalog *c, const char *team, const char *owner, struct err *err);
/* The role, or -ENOENT. */
int catalog_role(struct catalog *c, const char *team, const char *owner, struct err *err);

/* As the API tells of them (api_access.c). NULL: out of memory; of a team: see err. */
json_t *api_token(const struct token_row *t);
json_t *api_user(const struct user_row *u);
json_t *api_team(struct snapd *sd, const struct team_row *t, struct err *err);

/* The team that the caller means by "tm_…", "NAME" or "OWNER/NAME", and his role in it (an admin's
 * is ROLE_ADMIN in all): his own before others'. -ENOENT: he is in none; -ENOTUNIQ: in several;
 * else the catalog can't say. */
int access_find_team(struct snapd *sd, const struct principal *who, const char *key,
		     struct team_row *out, struct err *err);

/* ---- who it is (auth.c) ---- */

/* web_options.identify; ctx is the struct snapd. */
int auth_identify(void *ctx, const struct web_peer *peer, const char *authorization,
		  struct principal *out, struct err *err);
/* Whether somebody identified earlier still is: -EKEYREJECTED once the token is removed or has
 * expired. */
int auth_still(struct snapd *sd, const struct principal *who, struct err *err);
/* Whether a stream that goes on for long is to look again (auth_still, access_sees): when the
 * token has expired, or something happened (each change of tokens, teams and of who sees what is an
 * event) since it looked, at most each AUTH_LOOK_MS. All zeros at first. */
enum { AUTH_LOOK_MS = 1000 };
struct auth_look {
	uint64_t ms, event;
};
bool auth_look_due(struct snapd *sd, const struct principal *who, struct auth_look *look);
/* A fresh token: fills id and hash, and the text, which is told once. */
void auth_token_make(struct token_row *row, char text[TOKEN_TEXT]);
/* Who that owner is, with that token ("": none), as if he asked now: -EKEYREJECTED, -EPERM. */
int auth_as(struct snapd *sd, const char *owner, const char *token, struct principal *out,
	    struct err *err);
/* Who that owner is at present: -EKEYREJECTED, -EPERM: nobody whom this boughd serves. */
int auth_of(struct snapd *sd, const char *owner, struct principal *out, struct err *err);
/* "bough_…": its id. -EINVAL. Pure. */
int auth_token_id(const char *text, char id[ID_SIZE]);
/* The owner that a word means: a user's name, "uid:N". -ENOENT: no such user. */
int auth_owner(struct snapd *sd, const char *word, char out[OWNER_SIZE], struct err *err);

/* ---- what they may ---- */

/* web_options.admit. */
int access_admit(struct request *rq, const struct route *rt, const void *data, size_t len,
		 struct reply *rp, struct err *err);
/* `workspace`: that it is, or is of; "" for none. False too when the catalog can't say. */
bool access_sees(struct snapd *sd, const struct principal *who, const struct owned *own,
		 const char *workspace);
bool access_writes(struct snapd *sd, const struct principal *who, const struct owned *own,
		   const char *workspace);
/* What is meant by a key that came otherwise than in those places. -ENOENT, -ENOTUNIQ; -EPERM, with
 * *out all the same. */
int access_find(struct snapd *sd, const struct principal *who, enum noun noun, bool write,
		const char *key, struct meant *out, struct err *err);
/* The same of several kinds, 1 << noun each. Of things of different kinds with that name one's own
 * is meant: -ENOTUNIQ, with the ids, where that doesn't decide it. */
int access_find_any(struct snapd *sd, const struct principal *who, unsigned nouns, bool write,
		    const char *key, struct meant *out, struct err *err);
/* Repositories are private or global. */
struct repo_row;
bool access_sees_repo(const struct principal *who, const struct repo_row *row);
int access_need_admin(const struct request *rq, struct err *err);
/* Whether calls of the route change nothing: limits and read-only tokens have nothing against
 * them. */
bool access_only_reads(const struct route *rt);
/* One of them by POST: what is sent for an archive is only a list. */
bool access_sends_list(const char *method, const char *path);
/* Whether the caller whom this thread works for may come to that path of a workspace (decoded,
 * without '/' at its ends, "" for its root): -EPERM where its token is for another one. What a
 * target names is looked at before a handler is called; this is for paths that come otherwise. */
int access_path(const char *path, struct err *err);
/* The same of one token's path; pure. */
bool access_path_covers(const char *scope, const char *path);

#endif
