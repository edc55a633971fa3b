/* bough-transfer: the part of git that boughd needs, by libgit2, for hosts without git. It is
 * run and watched like git (transport.c), takes the same arguments and says the same words. */
#include "gitops/errand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "gitops/child.h"
#include "gitops/connected.h"
#include "gitops/git.h"
#include "gitops/stage.h"
#include "gitops/url.h"

enum { SECRET_MAX = 64 << 10 };

struct job {
	git_repository *repo;
	char *secret; /* NULL: none; four lines, errand.h */
	char *line[4];
	bool asked;
	const char *refused; /* why the other side refused a ref; "" when it did without words */
	char refusal[512];
};

static int say_failed(int r, const char *what)
{
	const git_error *e = git_error_last();
	if (r == GIT_EAUTH)
		(void)fprintf(stderr, "fatal: Authentication failed\n");
	(void)fprintf(stderr, "fatal: %s: %s\n", what, e && e->message ? e->message : "unknown");
	return 128;
}

static int load_secret(struct job *j)
{
	j->secret = calloc(1, SECRET_MAX + 1);
	ssize_t n = j->secret ? pread(CHILD_KEPT, j->secret, SECRET_MAX, 0) : -1;
	if (n <= 0) {
		free(j->secret);
		j->secret = NULL;
		return 0; /* nothing was given */
	}
	char *rest = j->secret;
	for (int i = 0; i < 4; i++)
		if (!(j->line[i] = strsep(&rest, "\n")))
			return -1;
	return 0;
}

static int credentials(git_credential **out, const char *url, const char *user, unsigned allowed,
		       void *payload)
{
	struct job *j = payload;
	char place[GIT_HOST_MAX + 16];
	(void)snprintf(place, sizeof(place), "%s://%s/", j->secret ? j->line[0] : "",
		       j->secret ? j->line[1] : "");
	/* A second question means that the answer to the first one was wrong. */
	if (!j->secret || j->asked || !(allowed & GIT_CREDENTIAL_USERPASS_PLAINTEXT) ||
	    strncmp(url, place, strlen(place)) != 0)
		return GIT_EAUTH;
	j->asked = true;
	return git_credential_userpass_plaintext_new(out, j->line[2], j->line[3]);
}

static int on_transfer(const git_indexer_progress *p, void *payload)
{
	if (p->received_objects < p->total_objects)
		(void)fprintf(stderr, "Receiving objects: %3u%% (%u/%u)\r",
			      p->total_objects
				      ? (unsigned)(p->received_objects * 100ull / p->total_objects)
				      : 0,
			      p->received_objects, p->total_objects);
	else if (p->total_deltas)
		(void)fprintf(stderr, "Resolving deltas: %3u%% (%u/%u)\r",
			      (unsigned)(p->indexed_deltas * 100ull / p->total_deltas),
			      p->indexed_deltas, p->total_deltas);
	return 0;
}

static int on_push_status(const char *name, const char *status, void *payload)
{
	struct job *j = payload;
	if (status) {
		(void)snprintf(j->refusal, sizeof(j->refusal), "%s", status);
		j->refused = j->refusal;
	}
	return 0;
}

static void set_callbacks(git_remote_callbacks *cb, struct job *j)
{
	cb->credentials = credentials;
	cb->transfer_progress = on_transfer;
	cb->push_update_reference = on_push_status;
	cb->payload = j;
}

static int ls_remote(struct job *j, git_remote *remote)
{
	git_remote_callbacks cb;
	const git_remote_head **heads;
	size_t n;
	(void)git_remote_init_callbacks(&cb, GIT_REMOTE_CALLBACKS_VERSION); /* a known version */
	set_callbacks(&cb, j);
	int r = git_remote_connect(remote, GIT_DIRECTION_FETCH, &cb, NULL, NULL);
	if (r >= 0)
		r = git_remote_ls(&heads, &n, remote);
	if (r < 0)
		return say_failed(r, "connect");
	for (size_t i = 0; i < n; i++) {
		char hex[OID_HEX + 1];
		if (strcmp(heads[i]->name, "HEAD") != 0)
			continue;
		if (heads[i]->symref_target)
			printf("ref: %s\tHEAD\n", heads[i]->symref_target);
		printf("%s\tHEAD\n", git_oid_tostr(hex, sizeof(hex), &heads[i]->oid));
	}
	return fflush(stdout) != 0;
}

/* libgit2 takes what comes; git would have looked whether it is complete. */
static int look_through(struct job *j, const struct refs *before)
{
	struct stage s = { 0 };
	auto_refs now = { 0 };
	struct err err = { 0 };
	(void)snprintf(s.path, sizeof(s.path), "%s", git_repository_path(j->repo));
	int r = stage_refs(&s, &now, &err);
	if (r >= 0)
		r = refs_connected(j->repo, before, &now, &err);
	if (r >= 0)
		return 0;
	(void)fprintf(stderr, "fatal: %s\n", err.text);
	return 128;
}

static int fetch(struct job *j, git_remote *remote, char **specs, size_t n)
{
	git_fetch_options opt;
	git_strarray list = { specs, n };
	struct stage s = { 0 };
	auto_refs before = { 0 };
	struct err err = { 0 };
	(void)git_fetch_options_init(&opt, GIT_FETCH_OPTIONS_VERSION); /* a known version */
	set_callbacks(&opt.callbacks, j);
	opt.prune = GIT_FETCH_PRUNE;
	opt.update_fetchhead = 0;
	opt.download_tags = GIT_REMOTE_DOWNLOAD_TAGS_NONE;
	(void)snprintf(s.path, sizeof(s.path), "%s", git_repository_path(j->repo));
	if (stage_refs(&s, &before, &err) < 0) {
		(void)fprintf(stderr, "fatal: %s\n", err.text);
		return 128;
	}
	int r = git_remote_fetch(remote, &list, &opt, NULL);
	return r < 0 ? say_failed(r, "fetch") : look_through(j, &before);
}

/* What the branch is on the other side must be `lease`, or else an ancestor of the new commit; or,
 * as git has it, the new commit already. */
static int may_push(struct job *j, git_remote *remote, const char *spec, const char *lease)
{
	const git_remote_head **heads;
	size_t n;
	git_oid commit, want;
	const char *name = strchr(spec, ':') + 1;
	int r = git_remote_ls(&heads, &n, remote);
	if (r >= 0)
		r = git_oid_fromstrn(&commit, spec, OID_HEX);
	if (r < 0)
		return say_failed(r, "push");
	for (size_t i = 0; i < n; i++) {
		if (strcmp(heads[i]->name, name) != 0)
			continue;
		if (git_oid_equal(&commit, &heads[i]->oid))
			return 0;
		if (lease)
			r = git_oid_fromstr(&want, lease) < 0 ||
			    !git_oid_equal(&want, &heads[i]->oid);
		else
			r = git_graph_descendant_of(j->repo, &commit, &heads[i]->oid) != 1;
		if (r)
			(void)fprintf(stderr, " ! [rejected] (%s)\n",
				      lease ? "stale info" : "non-fast-forward");
		return r ? 1 : 0;
	}
	if (!lease)
		return 0;
	(void)fprintf(stderr, " ! [rejected] (stale info)\n"); /* it isn't there any more */
	return 1;
}

/* libgit2 pushes refs only, so the commit gets one for as long. After a kill it stays, and harms
 * nothing: nothing of a mirror is ever dropped. */
static int upload(struct job *j, git_remote *remote, const char *spec, bool force)
{
	git_push_options opt;
	git_oid commit;
	auto_git(git_reference) ref = NULL;
	auto_free char *full = NULL;
	(void)git_push_options_init(&opt, GIT_PUSH_OPTIONS_VERSION); /* a known version */
	set_callbacks(&opt.callbacks, j);
	if (asprintf(&full, "%srefs/bough/push/%s", force ? "+" : "", spec) < 0)
		return 128;
	char *name = full + force, *colon = strchr(name, ':');
	int r = git_oid_fromstrn(&commit, spec, OID_HEX);
	*colon = '\0';
	if (r >= 0)
		r = git_reference_create(&ref, j->repo, name, &commit, 1, NULL);
	*colon = ':';
	git_strarray list = { &full, 1 };
	if (r >= 0)
		r = git_remote_upload(remote, &list, &opt);
	int status = r < 0 ? say_failed(r, "push") : 0;
	if (ref)
		(void)git_reference_delete(ref); /* as after a kill */
	return status;
}

static int push(struct job *j, git_remote *remote, const char *spec, const char *lease)
{
	git_remote_connect_options opt;
	(void)git_remote_connect_options_init(&opt, GIT_REMOTE_CONNECT_OPTIONS_VERSION);
	set_callbacks(&opt.callbacks, j);
	if (!strchr(spec, ':'))
		return 128;
	int r = git_remote_connect_ext(remote, GIT_DIRECTION_PUSH, &opt);
	if (r < 0)
		return say_failed(r, "connect");
	r = may_push(j, remote, spec, lease);
	if (r == 0)
		r = upload(j, remote, spec, lease != NULL);
	if (r == 0 && j->refused) {
		(void)fprintf(stderr, " ! [remote rejected] (%s)\n", j->refused);
		r = 1;
	}
	return r;
}

static int work(struct job *j, int argc, char **argv)
{
	git_remote *remote = NULL;
	int dash = 1;
	const char *lease = NULL;
	for (; dash < argc && strcmp(argv[dash], "--") != 0; dash++)
		if (strncmp(argv[dash], "--force-with-lease=", 19) == 0 && strrchr(argv[dash], ':'))
			lease = strrchr(argv[dash], ':') + 1;
	if (dash + 2 >= argc) {
		(void)fputs("fatal: no git was found, and this can't be done without\n", stderr);
		return 128;
	}
	if (strncmp(argv[dash + 1], "http", 4) != 0 && strncmp(argv[dash + 1], "git:", 4) != 0) {
		(void)fputs("fatal: ssh needs the host's git, which was not found\n", stderr);
		return 128;
	}
	int r = git_remote_create_anonymous(&remote, j->repo, argv[dash + 1]);
	if (r < 0)
		return say_failed(r, "open");
	int status = 128;
	if (strcmp(argv[1], "ls-remote") == 0)
		status = ls_remote(j, remote);
	else if (strcmp(argv[1], "fetch") == 0)
		status = fetch(j, remote, argv + dash + 2, (size_t)(argc - dash - 2));
	else if (strcmp(argv[1], "push") == 0)
		status = push(j, remote, argv[dash + 2], lease);
	git_remote_free(remote);
	return status;
}

int errand_transfer(int argc, char **argv)
{
	struct job j = { 0 };
	struct err err = { 0 };
	const char *dir = getenv("GIT_DIR");
	if (argc < 2 || !dir || gitops_init(&err) < 0) {
		(void)fprintf(stderr, "fatal: %s\n", err.text);
		return 128;
	}
	int r = git_repository_open_bare(&j.repo, dir);
	int status = r < 0 ? say_failed(r, "open") : load_secret(&j) < 0 ? 128 : 0;
	if (status == 0)
		status = work(&j, argc, argv);
	if (j.secret)
		explicit_bzero(j.secret, SECRET_MAX);
	free(j.secret);
	git_repository_free(j.repo);
	/* At once: libgit2 1.5 leaks what matched a URL's pattern, and a checker of leaks would
	 * take that for a failure. */
	_exit(fflush(stdout) != 0 ? 128 : status);
}
