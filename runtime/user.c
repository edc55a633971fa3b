#include "runtime/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "runtime/inroot.h"

/* A piece of a file that nobody has promised anything about. */
struct text {
	const char *p;
	size_t len;
};
enum { FIELDS_MAX = 7, NUMBER_DIGITS = 10 };

static bool text_is(struct text t, const char *word, size_t len)
{
	return t.len == len && memcmp(t.p, word, len) == 0;
}

/* Takes the text up to the next `end` off the front. */
static struct text take(struct text *rest, char end)
{
	const char *at = rest->len ? memchr(rest->p, end, rest->len) : NULL;
	struct text t = { rest->p, at ? (size_t)(at - rest->p) : rest->len };
	size_t skip = t.len + (at ? 1 : 0);
	rest->p += skip;
	rest->len -= skip;
	return t;
}

/* Fields of a line; how many there are, at most FIELDS_MAX. */
static size_t split(struct text line, struct text field[FIELDS_MAX])
{
	size_t n = 0;
	for (bool more = true; more && n < FIELDS_MAX; n++) {
		more = line.len && memchr(line.p, ':', line.len);
		field[n] = take(&line, ':');
	}
	return n;
}

static bool number(struct text t, uint32_t *out)
{
	uint64_t v = 0;
	if (t.len == 0 || t.len > NUMBER_DIGITS)
		return false;
	for (size_t i = 0; i < t.len; i++) {
		if (t.p[i] < '0' || t.p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(t.p[i] - '0');
	}
	if (v > UINT32_MAX)
		return false;
	*out = (uint32_t)v;
	return true;
}

struct files {
	struct text passwd, group;
	uint32_t limit;
};

static void set_home(struct user *u, struct text home)
{
	if (home.len == 0 || home.len >= sizeof(u->home) || home.p[0] != '/' ||
	    memchr(home.p, '\0', home.len))
		return;
	memcpy(u->home, home.p, home.len);
	u->home[home.len] = '\0';
}

/* The entry of a name, or of a number; false: none. The name found goes to *name. */
static bool find_user(const struct files *f, struct text who, struct user *u, struct text *name)
{
	struct text rest = f->passwd, field[FIELDS_MAX];
	uint32_t wanted = 0, uid, gid;
	bool numeric = number(who, &wanted);
	while (rest.len > 0) {
		if (split(take(&rest, '\n'), field) < 6 || field[0].len == 0 ||
		    !number(field[2], &uid) || !number(field[3], &gid) || uid >= f->limit ||
		    gid >= f->limit)
			continue;
		if (!text_is(field[0], who.p, who.len) && !(numeric && uid == wanted))
			continue;
		u->uid = uid;
		u->gid = gid;
		*name = field[0];
		set_home(u, field[5]);
		return true;
	}
	return false;
}

static bool find_group(const struct files *f, struct text who, uint32_t *out)
{
	struct text rest = f->group, field[FIELDS_MAX];
	uint32_t gid;
	while (rest.len > 0)
		if (split(take(&rest, '\n'), field) >= 3 && text_is(field[0], who.p, who.len) &&
		    number(field[2], &gid) && gid < f->limit) {
			*out = gid;
			return true;
		}
	return number(who, out) && *out < f->limit;
}

static void add_group(struct user *u, uint32_t gid)
{
	if (gid == u->gid || u->n_groups == USER_GROUPS_MAX)
		return;
	for (size_t i = 0; i < u->n_groups; i++)
		if (u->groups[i] == gid)
			return;
	u->groups[u->n_groups++] = gid;
}

static void find_others(const struct files *f, struct text name, struct user *u)
{
	struct text rest = f->group, field[FIELDS_MAX];
	uint32_t gid;
	while (rest.len > 0) {
		if (split(take(&rest, '\n'), field) < 4 || !number(field[2], &gid) ||
		    gid >= f->limit)
			continue;
		for (struct text list = field[3]; list.len > 0;) {
			struct text member = take(&list, ',');
			if (text_is(member, name.p, name.len))
				add_group(u, gid);
		}
	}
}

int user_find(struct user *out, const char *passwd, size_t passwd_len, const char *group,
	      size_t group_len, const char *who, uint32_t limit, struct err *err)
{
	if (!who || !*who)
		who = "0";
	size_t len = strnlen(who, 2 * USER_NAME_MAX + 1);
	struct text rest = { who, len };
	bool has_group = memchr(who, ':', len);
	struct text name = take(&rest, ':'), entry = { "", 0 };
	if (len > 2 * USER_NAME_MAX || name.len == 0 || (has_group && rest.len == 0) ||
	    memchr(rest.p, ':', rest.len) || memchr(who, '\n', len))
		return err_set(err, -EINVAL, "'%.64s' names no user: NAME, UID or USER:GROUP", who);
	struct files f = { { passwd, passwd_len }, { group, group_len }, limit };
	struct user u = { .home = "/" };
	if (!find_user(&f, name, &u, &entry) &&
	    (!number(name, &u.uid) || u.uid >= limit))
		return err_set(err, -EINVAL, "there is no user '%.*s' in the sandbox",
			       (int)name.len, name.p);
	if (u.uid == 0 && entry.len == 0)
		(void)snprintf(u.home, sizeof(u.home), "/root");
	if (has_group && !find_group(&f, rest, &u.gid))
		return err_set(err, -EINVAL, "there is no group '%.*s' in the sandbox",
			       (int)rest.len, rest.p);
	if (!has_group && entry.len > 0)
		find_others(&f, entry, &u);
	*out = u;
	return 0;
}

/* An image without the file has no users: 0 bytes. What is there and is no file isn't passed over:
 * runc opens it, too, and would wait for whoever writes to a fifo. */
static int slurp_in_root(int root, const char *path, void **data, size_t *len, struct err *err)
{
	*data = NULL;
	*len = 0;
	auto_fd fd = inroot_open_file(root, path);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0;
	if (fd == -EINVAL)
		return err_set(err, -EINVAL,
			       "/%s in the sandbox is no file: restore it, or DELETE it by the API",
			       path);
	if (fd < 0)
		return err_sys(err, fd, "look for users in /%s", path);
	auto_free char *text = malloc(USER_FILE_MAX);
	if (!text)
		return err_no_memory(err);
	ssize_t n = io_read_full(NULL, fd, text, USER_FILE_MAX, 0);
	if (n < 0)
		return err_sys(err, (int)n, "read /%s", path);
	*data = steal_ptr(&text);
	*len = (size_t)n;
	return 0;
}

int user_lookup(struct user *out, int root, const char *who, uint32_t limit, struct err *err)
{
	auto_free void *passwd = NULL, *group = NULL;
	size_t passwd_len = 0, group_len = 0;
	int r = slurp_in_root(root, "etc/passwd", &passwd, &passwd_len, err);
	if (r == 0)
		r = slurp_in_root(root, "etc/group", &group, &group_len, err);
	if (r < 0)
		return r;
	return user_find(out, passwd ? passwd : "", passwd_len, group ? group : "", group_len, who,
			 limit, err);
}
