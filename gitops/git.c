/* libgit2 as this folder uses it. */
#include "gitops/git.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum { TEXT_MAX = 512 };

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;

static int setup(struct err *err)
{
	int r = git_libgit2_init();
	if (r < 0)
		return git_fail(err, r, "start libgit2");
	/* "" is a folder without configuration: nothing of the host's decides what we do. */
	static const int levels[] = { GIT_CONFIG_LEVEL_PROGRAMDATA, GIT_CONFIG_LEVEL_SYSTEM,
				      GIT_CONFIG_LEVEL_XDG, GIT_CONFIG_LEVEL_GLOBAL };
	r = 0;
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]) && r >= 0; i++)
		r = git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, levels[i], "");
	if (r >= 0)
		r = git_libgit2_opts(GIT_OPT_ENABLE_STRICT_OBJECT_CREATION, 1);
	if (r >= 0)
		r = git_libgit2_opts(GIT_OPT_ENABLE_STRICT_HASH_VERIFICATION, 1);
	if (r >= 0)
		r = git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
	if (r < 0)
		r = git_fail(err, r, "set up libgit2");
	return r;
}

int gitops_init(struct err *err)
{
	pthread_mutex_lock(&init_lock);
	int r = ready ? 0 : setup(err);
	if (r >= 0)
		ready = true;
	pthread_mutex_unlock(&init_lock);
	return r < 0 ? r : 0;
}

static int by_class(const git_error *e)
{
	switch (e ? e->klass : GIT_ERROR_NONE) {
	case GIT_ERROR_NOMEMORY:
		return -ENOMEM;
	case GIT_ERROR_ODB:
	case GIT_ERROR_ZLIB:
	case GIT_ERROR_OBJECT:
	case GIT_ERROR_TREE:
	case GIT_ERROR_TAG:
	case GIT_ERROR_INDEX:
		return -EBADMSG;
	case GIT_ERROR_OS:
		return errno > 0 ? -errno : -EIO;
	case GIT_ERROR_INVALID: /* of a commit that was read: its walks don't tell of which */
		return e->message && strstr(e->message, "parse signature") ? -ENOTSUP : -EIO;
	default:
		return -EIO;
	}
}

static int by_code(int r, const git_error *e)
{
	switch (r) {
	case GIT_ENOTFOUND:
	case GIT_EUNBORNBRANCH:
		return -ENOENT;
	case GIT_EEXISTS:
		return -EEXIST;
	case GIT_EAMBIGUOUS:
		return -ENOTUNIQ;
	case GIT_EBUFS:
		return -ENOBUFS;
	case GIT_EINVALIDSPEC:
	case GIT_EINVALID:
	case GIT_EPEEL:
		return -EINVAL;
	case GIT_EBAREREPO:
		return -ENOTSUP;
	case GIT_ENONFASTFORWARD:
	case GIT_ECONFLICT:
	case GIT_EMODIFIED:
	case GIT_EUNMERGED:
	case GIT_EMERGECONFLICT:
		return -ESTALE;
	case GIT_ELOCKED:
		return -EBUSY;
	case GIT_EAUTH:
	case GIT_ECERTIFICATE:
		return -EACCES;
	case GIT_EMISMATCH:
		return -EBADMSG;
	case GIT_EUSER:
		return -ECANCELED;
	default:
		return by_class(e);
	}
}

__attribute__((format(printf, 3, 0))) static int fail(struct err *err, int r, const char *fmt,
						      va_list ap)
{
	const git_error *e = git_error_last(); /* before anything can change errno */
	int out = by_code(r, e);
	char what[TEXT_MAX];
	(void)vsnprintf(what, sizeof(what), fmt, ap); /* cut: it is for a reader */
	(void)err_set(err, out, "%s: %s", what, e && e->message ? e->message : "unknown reason");
	git_error_clear();
	return out;
}

int git_fail(struct err *err, int r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	r = fail(err, r, fmt, ap);
	va_end(ap);
	return r;
}

int git_bad_object(git_odb *odb, const git_oid *id)
{
	auto_git(git_odb_object) o = NULL;
	if (odb && git_odb_read(&o, odb, id) == 0)
		return -ENOTSUP;
	git_error_clear();
	return -EBADMSG;
}

int git_fail_object(struct err *err, int r, git_repository *repo, const git_oid *id,
		    const char *fmt, ...)
{
	auto_git(git_odb) odb = NULL;
	va_list ap;
	va_start(ap, fmt);
	r = fail(err, r, fmt, ap);
	va_end(ap);
	if (r == -ENOMEM || git_repository_odb(&odb, repo) < 0 ||
	    git_bad_object(odb, id) != -ENOTSUP) {
		git_error_clear();
		return r;
	}
	if (err)
		err->code = -ENOTSUP;
	return -ENOTSUP;
}
