#include "gitops/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "gitops/errand.h"

enum {
	ARGS_MAX = 32,
	ENV_MAX = 96,
	SECRET_MAX = 64 << 10,
	NICE_WORK = 10, /* maintenance is nobody's hurry */
	HEARD_MAX = 240, /* of an err's line: the rest says where, and what git made of it */
};

/* ---- what git says ---- */

static const char not_a_descendant[] =
	"the branch has commits that this one hasn't: merge into a checkout of it and push that, "
	"push to another branch, or replace it with --force-with-lease";
static const struct {
	const char *text;
	int code;
	const char *words;
} sayings[] = {
	/* The order matters: one failure says several of these. A branch or a repository may be
	 * called like any of git's words, which is why there are two at least, or a bracket. */
	{ "(non-fast-forward)", -ESTALE, not_a_descendant },
	{ "(fetch first)", -ESTALE, not_a_descendant },
	{ "(stale info)", -ESTALE, "the branch isn't where it was expected: fetch and look" },
	{ "Host key verification failed", -EACCES, "the host's key isn't among the known hosts" },
	{ "could not read Username", -EACCES, "it wants a token (--token-file)" },
	{ "could not read Password", -EACCES, "it wants a token (--token-file)" },
	{ "Authentication failed", -EACCES, "it refused the token" },
	{ "returned error: 401", -EACCES, "it refused the token" },
	{ "returned error: 403", -EACCES, "it refused access" },
	{ "too many redirects or authentication replays", -EACCES, "it refused the token" },
	{ "Permission denied (", -EACCES, "it refused the key" },
	{ "Load key ", -EACCES, "the key can't be used" },
	{ " certificate ", -EACCES, "its certificate isn't trusted" },
	{ "certificate verif", -EACCES, "its certificate isn't trusted" },
	{ "mismatched algorithms", -ENOTSUP, "it is a SHA-256 repository, which isn't supported" },
	{ "unknown object format", -ENOTSUP, "it is a SHA-256 repository, which isn't supported" },
	{ "shallow roots", -ENOTSUP, REFUSED_SHALLOW },
	{ "shallow repository", -ENOTSUP, REFUSED_SHALLOW },
	{ " is shallow", -ENOTSUP, REFUSED_SHALLOW },
	{ "support shallow", -ENOTSUP, REFUSED_SHALLOW },
	{ "not found", -ENOENT, "there is no such repository" },
	{ "returned error: 404", -ENOENT, "there is no such repository" },
	{ "access denied or repository not exported", -ENOENT, "there is no such repository" },
	{ "does not appear to be a git repository", -ENOENT, "there is no such repository" },
	{ "Could not resolve host", -EHOSTUNREACH, "its host has no address" },
	{ "unable to look up", -EHOSTUNREACH, "its host has no address" },
	{ "failed to resolve address", -EHOSTUNREACH, "its host has no address" },
	{ "Failed to connect", -EHOSTUNREACH, "its host doesn't answer" },
	{ "failed to connect", -EHOSTUNREACH, "its host doesn't answer" },
	{ "unable to connect", -EHOSTUNREACH, "its host doesn't answer" },
	{ "Couldn't connect", -EHOSTUNREACH, "its host doesn't answer" },
	{ "Connection refused", -EHOSTUNREACH, "its host doesn't answer" },
	{ "No route to host", -EHOSTUNREACH, "its host doesn't answer" },
	{ "Network is unreachable", -EHOSTUNREACH, "its host doesn't answer" },
	{ "timed out", -ETIMEDOUT, "its host doesn't answer in time" },
	{ "No space left on device", -ENOSPC, "no space is left" },
	{ "Disk quota exceeded", -EDQUOT, "the disk quota is used up" },
	{ "hook declined", -EPERM, "it refused the push" },
	{ "did not send all necessary objects", -EBADMSG, "it sent objects that don't fit" },
	{ "hash mismatch", -EBADMSG, "it sent damaged objects" },
	{ "inflate: ", -EBADMSG, "it sent damaged objects" },
	{ "inflate returned", -EBADMSG, "it sent damaged objects" },
	{ "pack has bad object", -EBADMSG, "it sent damaged objects" },
	{ "pack is corrupted", -EBADMSG, "it sent damaged objects" },
	{ "bad pack", -EBADMSG, "it sent damaged objects" },
	{ "pack signature", -EBADMSG, "it sent damaged objects" },
	{ "remote: fatal", -EBADMSG, "it failed on its side" },
	{ "remote error", -EREMOTEIO, "it failed on its side" },
	{ "early EOF", -ECONNRESET, "the connection broke off" },
	{ "hung up unexpectedly", -ECONNRESET, "the connection broke off" },
	{ "unexpected disconnect", -ECONNRESET, "the connection broke off" },
	{ "Connection reset", -ECONNRESET, "the connection broke off" },
	{ "RPC failed", -ECONNRESET, "the connection broke off" },
	{ "expected flush", -ECONNRESET, "the connection broke off" },
	{ "invalid index-pack output", -EBADMSG, "it sent damaged objects" },
	{ "revision walk setup failed", -EBADMSG, "objects are missing" },
	{ "Failed to traverse parents", -EBADMSG, "objects are missing" },
	{ "are missing", -EBADMSG, "objects are missing" },
	{ "missing blob", -EBADMSG, "objects are missing" },
	{ "missing tree", -EBADMSG, "objects are missing" },
	{ "missing commit", -EBADMSG, "objects are missing" },
	{ "missing object", -EBADMSG, "objects are missing" },
	{ "bad object", -EBADMSG, "objects are missing" },
};

static const char *without_prefix(const char *line)
{
	static const char *const prefixes[] = { "fatal: ", "error: ", "remote: " };
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]);) {
		size_t n = strlen(prefixes[i]);
		if (strncmp(line, prefixes[i], n) == 0) {
			line += n;
			i = 0;
		} else {
			i++;
		}
	}
	return line;
}

/* The line around `at`, by itself; cuts it out of the text. */
static const char *line_around(char *said, char *at)
{
	at[strcspn(at, "\n")] = '\0';
	char *begin = strrchr(said, '\n');
	return without_prefix(begin ? begin + 1 : said);
}

/* What the other side said itself, its lines behind each other; not how far it was. */
static void heard(char *out, size_t room, const char *said)
{
	size_t n = 0;
	out[0] = '\0';
	for (const char *line = said; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *text = without_prefix(line);
		size_t len = strcspn(text, "\n");
		bool progress = memmem(text, len, "% (", 3) || memmem(text, len, ", done", 6);
		while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\r'))
			len--;
		if (strncmp(line, "remote: ", 8) != 0 || progress || len == 0 || n + 3 >= room)
			continue;
		int put = snprintf(out + n, room - n, "%s%.*s", n ? "; " : "", (int)len, text);
		n = (size_t)put < room - n ? n + (size_t)put : room - 1;
	}
}

/* It has the branch's packs and won't move it: by a hook, a rule, another branch in the way. Why is
 * in what it said, in any words: those of others' failures too. */
static int explain_refusal(char *said, char *at, struct err *err)
{
	char why[HEARD_MAX];
	heard(why, sizeof(why), said);
	return err_set(err, -EPERM, "it refused the push%s%s (%.300s)", *why ? ": " : "", why,
		       line_around(said, at));
}

int transport_explain(char *said, int status, struct err *err)
{
	char *rejected = strstr(said, "[remote rejected]");
	if (rejected)
		return explain_refusal(said, rejected, err);
	for (size_t i = 0; i < sizeof(sayings) / sizeof(sayings[0]); i++) {
		char *at = strstr(said, sayings[i].text);
		if (!at)
			continue;
		const char *line = line_around(said, at);
		return err_set(err, sayings[i].code, "%s (%.300s)", sayings[i].words, line);
	}
	size_t n = strlen(said);
	while (n > 0 && said[n - 1] == '\n')
		said[--n] = '\0';
	if (n == 0)
		return err_set(err, -EIO, "git ended with code %d and said nothing", status);
	char *last = strrchr(said, '\n');
	return err_set(err, -EIO, "git: %.400s", without_prefix(last ? last + 1 : said));
}

bool transport_progress(const char *line, uint64_t *done, uint64_t *total, const char **what)
{
	static const struct {
		const char *prefix, *what;
	} phases[] = {
		{ "remote: Enumerating objects: ", "wait for the other side" },
		{ "remote: Counting objects: ", "wait for the other side" },
		{ "remote: Compressing objects: ", "wait for the other side" },
		{ "Receiving objects: ", "receive" },
		{ "Resolving deltas: ", "resolve" },
		{ "Unpacking objects: ", "receive" },
		{ "Writing objects: ", "send" },
		{ "Counting objects: ", "count" },
		{ "Compressing objects: ", "compress" },
		{ "Enumerating objects: ", "count" },
		{ "Checking connectivity: ", "check" },
	};
	for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
		size_t n = strlen(phases[i].prefix);
		if (strncmp(line, phases[i].prefix, n) != 0)
			continue;
		unsigned long long d = 0, t = 0;
		if (sscanf(line + n, "%*u%% (%llu/%llu)", &d, &t) != 2 &&
		    sscanf(line + n, "%llu", &d) != 1)
			return false;
		*done = d;
		*total = t;
		*what = phases[i].what;
		return true;
	}
	return strncmp(line, "remote: Total ", 14) == 0
		       ? (*done = *total = 0, *what = "receive", true)
		       : false;
}

/* ---- what the child gets ---- */

/* git by BOUGH_GIT (a path that leads nowhere: there is none), else by PATH. */
int transport_find_git(char **out, struct err *err)
{
	const char *given = getenv("BOUGH_GIT"), *path = getenv("PATH");
	*out = NULL;
	if (given && *given) {
		if (access(given, X_OK) == 0 && !(*out = realpath(given, NULL)))
			return err_no_memory(err);
		return 0;
	}
	auto_free char *list = strdup(path && *path ? path : "/usr/local/bin:/usr/bin:/bin");
	char *save = NULL;
	if (!list)
		return err_no_memory(err);
	for (char *dir = strtok_r(list, ":", &save); dir; dir = strtok_r(NULL, ":", &save)) {
		auto_free char *file = NULL;
		if (dir[0] != '/')
			continue; /* a path that depends on where we stand is none */
		if (asprintf(&file, "%s/git", dir) < 0)
			return err_no_memory(err);
		if (access(file, X_OK) == 0) {
			*out = steal_ptr(&file);
			return 0;
		}
	}
	return 0;
}

/* Bytes in memory as a file that its owner alone may read, which is what ssh wants. */
static int secret_file(const char *const *parts, size_t n, struct err *err)
{
	auto_fd fd = memfd_create("secret", MFD_CLOEXEC);
	if (fd < 0 || fchmod(fd, 0600) < 0)
		return err_sys(err, -errno, "make a place for a secret");
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(parts[i]);
		if (write(fd, parts[i], len) != (ssize_t)len)
			return err_sys(err, -errno, "make a place for a secret");
	}
	return steal_fd(&fd);
}

/* "USER:PASSWORD" or a token alone, for which any user does where tokens are known. */
static int split_token(struct transport *t, struct err *err)
{
	const char *token = t->origin->token, *colon = strchr(token, ':');
	if (!*token || strlen(token) > SECRET_MAX || strpbrk(token, "\n\r"))
		return err_set(err, -EINVAL, "a token is one line");
	t->user = colon ? strndup(token, (size_t)(colon - token)) : strdup("x-access-token");
	t->password = strdup(colon ? colon + 1 : token);
	return t->user && t->password ? 0 : err_no_memory(err);
}

static int open_secrets(struct transport *t, struct err *err)
{
	const struct mirror_origin *o = t->origin;
	if (t->url.kind != GIT_URL_SSH && (o->ssh_key || o->known_hosts))
		return err_set(err, -EINVAL, "an ssh key goes with an ssh URL only");
	if (t->url.kind != GIT_URL_HTTP && o->token)
		return err_set(err, -EINVAL, "a token goes with an http or https URL only");
	if (t->url.kind == GIT_URL_SSH && (!o->ssh_key || !o->known_hosts))
		return err_set(err, -EINVAL,
			       "an ssh URL needs a key and the known hosts "
			       "(--ssh-key, --known-hosts)");
	if (o->token) {
		int r = split_token(t, err);
		if (r < 0)
			return r;
		const char *const parts[] = { t->url.protocol, "\n", t->url.host, "\n",
					      t->user,         "\n", t->password, "\n" };
		t->secret = secret_file(parts, sizeof(parts) / sizeof(parts[0]), err);
		return t->secret < 0 ? t->secret : 0;
	}
	if (!o->ssh_key)
		return 0;
	size_t n = strlen(o->ssh_key);
	/* ssh wants the last line ended. */
	const char *const key[] = { o->ssh_key, n > 0 && o->ssh_key[n - 1] == '\n' ? "" : "\n" };
	t->secret = secret_file(key, 2, err);
	if (t->secret < 0)
		return t->secret;
	t->hosts = secret_file(&o->known_hosts, 1, err);
	return t->hosts < 0 ? t->hosts : 0;
}

/* /proc/PID/exe rather than a path: it is this very program, also when its file was replaced. */
static int make_helpers(const struct transport *t, struct err *err)
{
	static const char *const names[] = { ERRAND_CREDENTIAL, ERRAND_SSH, ERRAND_TRANSFER };
	char target[64];
	(void)snprintf(target, sizeof(target), "/proc/%d/exe", (int)getpid());
	auto_fd dir = open(t->helpers, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", t->helpers);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (unlinkat(dir, names[i], 0) < 0 && errno != ENOENT)
			return err_sys(err, -errno, "remove %s/%s", t->helpers, names[i]);
		if (symlinkat(target, dir, names[i]) < 0)
			return err_sys(err, -errno, "make %s/%s", t->helpers, names[i]);
	}
	return 0;
}

/* The proxy for the URL, as curl would find it; only whether there is one. */
static bool has_proxy(const struct transport *t)
{
	static const char *const all[] = { "all_proxy", "ALL_PROXY" };
	static const char *const plain[] = { "http_proxy" };
	static const char *const tls[] = { "https_proxy", "HTTPS_PROXY" };
	bool http = strcmp(t->url.protocol, "http") == 0;
	bool found = false;
	if (t->url.kind != GIT_URL_HTTP)
		return false;
	for (size_t i = 0; i < 2; i++) {
		const char *own = http ? getenv(plain[0]) : getenv(tls[i]), *any = getenv(all[i]);
		found |= (own && *own) || (any && *any);
	}
	return found;
}

static int guard(struct transport *t, struct err *err)
{
	char host[GIT_HOST_MAX], port[6];
	if (t->url.kind == GIT_URL_GIT)
		return err_set(err, -EACCES,
			       "git:// isn't for callers over the network: use https or ssh");
	if (!t->git)
		return err_set(err, -EACCES,
			       "callers over the network can't name a URL: this host has no git, "
			       "which keeps to the addresses that were looked at");
	t->proxied = has_proxy(t);
	git_url_place(&t->url, host, port);
	struct err why = { 0 };
	int r = netaddr_find(&t->to, host, t->origin->guard, &why);
	if (r == -EHOSTUNREACH && t->proxied)
		return 0;
	return r < 0 ? err_set(err, r, "%s", why.text) : 0;
}

int transport_open(struct transport *t, const char *repo, const char *scratch,
		   const struct mirror_origin *origin, const struct mirror_progress *progress,
		   struct err *err)
{
	*t = (struct transport){ .origin = origin,
				 .progress = progress,
				 .secret = -1,
				 .hosts = -1,
				 .nice = origin ? 0 : NICE_WORK };
	int r = origin ? git_url_parse(&t->url, origin->url, err) : 0;
	if (r >= 0)
		r = transport_find_git(&t->git, err);
	if (r >= 0 && (!(t->repo = strdup(repo)) || !(t->helpers = strdup(scratch))))
		r = err_no_memory(err);
	if (r >= 0 && origin && origin->guard)
		r = guard(t, err);
	if (r >= 0 && origin)
		r = open_secrets(t, err);
	if (r >= 0 && (origin || !t->git))
		r = make_helpers(t, err);
	if (r < 0)
		transport_close(t);
	return r;
}

void transport_close(struct transport *t)
{
	if (t->password)
		explicit_bzero(t->password, strlen(t->password));
	free(t->password);
	free(t->user);
	free(t->git);
	free(t->repo);
	free(t->helpers);
	if (t->secret >= 0)
		close(t->secret);
	if (t->hosts >= 0)
		close(t->hosts);
	*t = (struct transport){ .secret = -1, .hosts = -1 };
}

bool transport_has_git(const struct transport *t)
{
	return t->git != NULL;
}

/* An environment; texts are one block each. What fails is remembered. */
struct env {
	char *v[ENV_MAX + 1];
	size_t n, configs;
	bool failed;
};

static void env_done(struct env *e)
{
	for (size_t i = 0; i < e->n; i++)
		free(e->v[i]);
}

static void env_set(struct env *e, const char *key, const char *value)
{
	if (e->n == ENV_MAX || asprintf(&e->v[e->n], "%s=%s", key, value) < 0)
		e->failed = true;
	else
		e->n++;
}

static void env_config(struct env *e, const char *key, const char *value)
{
	char name[32];
	(void)snprintf(name, sizeof(name), "GIT_CONFIG_KEY_%zu", e->configs);
	env_set(e, name, key);
	(void)snprintf(name, sizeof(name), "GIT_CONFIG_VALUE_%zu", e->configs);
	env_set(e, name, value);
	e->configs++;
}

/* A word for a shell: git runs a credential helper by one. */
static char *quoted(const char *dir, const char *name)
{
	auto_buf b = { 0 };
	buf_printf(&b, "!'");
	for (const char *p = dir; *p; p++)
		buf_printf(&b, *p == '\'' ? "'\\''" : "%c", *p);
	buf_printf(&b, "/%s'", name);
	buf_u8(&b, 0);
	return buf_error(&b) ? NULL : (char *)steal_ptr(&b.data);
}

/* "host:port:address,address" for curl. */
static void env_resolve(struct env *e, const struct transport *t)
{
	char host[GIT_HOST_MAX], port[6];
	auto_buf b = { 0 };
	git_url_place(&t->url, host, port);
	env_config(e, "http.followRedirects", "false"); /* it would lead elsewhere */
	buf_printf(&b, "%s:%s:", host, port);
	for (unsigned i = 0; i < t->to.n; i++) {
		bool six = strchr(t->to.v[i], ':') != NULL;
		buf_printf(&b, "%s%s%s%s", i ? "," : "", six ? "[" : "", t->to.v[i],
			   six ? "]" : "");
	}
	buf_u8(&b, 0);
	e->failed |= buf_error(&b) < 0;
	if (!e->failed && t->to.n && host[0] != '[') /* an address means itself */
		env_config(e, "http.curloptResolve", (const char *)b.data);
}

static void env_configs(struct env *e, const struct transport *t)
{
	static const char *const fixed[][2] = {
		{ "core.hooksPath", "/dev/null" },
		{ "core.fsmonitor", "false" },
		{ "core.askPass", "" },
		{ "core.attributesFile", "/dev/null" },
		{ "core.excludesFile", "/dev/null" },
		{ "safe.directory", "*" },
		{ "protocol.allow", "never" },
		{ "http.followRedirects", "initial" },
		{ "transfer.fsckObjects", "false" }, /* each object is checked when it is read */
		{ "fetch.unpackLimit", "1" },
		{ "fetch.recurseSubmodules", "false" },
		{ "fetch.writeCommitGraph", "false" },
		{ "gc.auto", "0" },
		{ "maintenance.auto", "false" },
		{ "ssh.variant", "ssh" },
		{ "credential.helper", "" },
	};
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		env_config(e, fixed[i][0], fixed[i][1]);
	static const char *const protocols[][2] = {
		[GIT_URL_HTTP] = { "protocol.https.allow", "protocol.http.allow" },
		[GIT_URL_GIT] = { "protocol.git.allow", NULL },
		[GIT_URL_SSH] = { "protocol.ssh.allow", NULL },
	};
	for (int i = 0; t->origin && i < 2; i++)
		if (protocols[t->url.kind][i])
			env_config(e, protocols[t->url.kind][i], "always");
	if (t->origin && t->origin->token) {
		auto_free char *helper = quoted(t->helpers, ERRAND_CREDENTIAL);
		env_config(e, "credential.helper", helper ? helper : "");
		e->failed |= !helper;
	}
	if (t->origin && t->origin->guard && t->url.kind == GIT_URL_HTTP)
		env_resolve(e, t);
	char count[16];
	(void)snprintf(count, sizeof(count), "%zu", e->configs);
	env_set(e, "GIT_CONFIG_COUNT", count);
}

static void env_ssh(struct env *e, const struct transport *t)
{
	char path[64];
	auto_free char *ssh = NULL;
	if (asprintf(&ssh, "%s/%s", t->helpers, ERRAND_SSH) < 0)
		ssh = NULL;
	e->failed |= !ssh;
	env_set(e, "GIT_SSH", ssh ? ssh : "");
	env_set(e, "GIT_SSH_VARIANT", "ssh");
	/* ssh closes all descriptors that it inherits, so it opens ours by this process. */
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), t->secret);
	env_set(e, ERRAND_SSH_KEY, path);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), t->hosts);
	env_set(e, ERRAND_KNOWN_HOSTS, path);
	if (!t->to.n)
		return;
	char host[GIT_HOST_MAX], port[6], alias[GIT_HOST_MAX + 16];
	git_url_place(&t->url, host, port);
	bool usual = strcmp(port, "22") == 0 || host[0] == '[';
	(void)snprintf(alias, sizeof(alias), usual ? "%s%.0s" : "[%s]:%s", host, port);
	auto_buf to = { 0 };
	for (unsigned i = 0; i < t->to.n; i++)
		buf_printf(&to, "%s%s", i ? "," : "", t->to.v[i]);
	buf_u8(&to, 0);
	e->failed |= buf_error(&to) < 0;
	env_set(e, ERRAND_SSH_ADDRESS, e->failed ? "" : (const char *)to.data);
	env_set(e, ERRAND_SSH_ALIAS, alias);
}

static void env_make(struct env *e, const struct transport *t)
{
	static const char *const handed_on[] = {
		"PATH",           "http_proxy",     "https_proxy",   "HTTPS_PROXY",
		"all_proxy",      "ALL_PROXY",      "no_proxy",      "NO_PROXY",
		"GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
	};
	for (size_t i = 0; i < sizeof(handed_on) / sizeof(handed_on[0]); i++)
		/* What has no address that was judged goes by the proxy, without exception. */
		if (getenv(handed_on[i]) &&
		    !(t->proxied && !t->to.n && strcasecmp(handed_on[i], "no_proxy") == 0))
			env_set(e, handed_on[i], getenv(handed_on[i]));
	if (!getenv("PATH"))
		env_set(e, "PATH", "/usr/local/bin:/usr/bin:/bin");
	env_set(e, "LC_ALL", "C");
	env_set(e, "HOME", t->helpers); /* no .netrc lies there */
	env_set(e, "GIT_DIR", t->repo);
	env_set(e, "GIT_CONFIG_NOSYSTEM", "1");
	env_set(e, "GIT_CONFIG_GLOBAL", "/dev/null");
	env_set(e, "GIT_ATTR_NOSYSTEM", "1");
	env_set(e, "GIT_TERMINAL_PROMPT", "0");
	env_set(e, "GIT_OPTIONAL_LOCKS", "0");
	env_set(e, "GIT_NO_REPLACE_OBJECTS", "1");
	env_configs(e, t);
	if (t->url.kind == GIT_URL_SSH)
		env_ssh(e, t);
	e->v[e->n] = NULL;
}

/* ---- running it ---- */

/* Seconds: the origin's own, else of the environment, else the default. */
static unsigned seconds(unsigned given, const char *variable, unsigned otherwise)
{
	const char *s = getenv(variable);
	unsigned long n = s ? strtoul(s, NULL, 10) : 0;
	return given ? given : n > 0 && n < UINT_MAX ? (unsigned)n : otherwise;
}

struct talk {
	const struct transport *t;
	uint64_t done, total;
	const char *what;
};

static bool on_line(void *ctx, char *text)
{
	struct talk *talk = ctx;
	return transport_progress(text, &talk->done, &talk->total, &talk->what);
}

static int on_tick(void *ctx)
{
	const struct talk *talk = ctx;
	const struct mirror_progress *p = talk->t->progress;
	if (!p || !p->fn)
		return 0;
	return p->fn(p->ctx, talk->done, talk->total, talk->what) ? -ECANCELED : 0;
}

static int explain(const struct transport *t, struct child_result *res, struct err *err)
{
	const char *secrets[] = { t->password };
	if (res->status == 128 + SIGKILL)
		return err_set(err, -EIO, "git was killed");
	int r = transport_explain((char *)res->err.data, res->status, err);
	if (err)
		text_scrub(err->text, secrets, 1);
	return r;
}

int transport_git(struct transport *t, const char *const *args, const void *input, size_t len,
		  struct buf *out, struct err *err)
{
	const char *argv[ARGS_MAX + 2];
	auto_free char *own = NULL;
	size_t n = 0;
	if (!t->git && asprintf(&own, "%s/%s", t->helpers, ERRAND_TRANSFER) < 0)
		return err_no_memory(err);
	argv[n++] = t->git ? t->git : own;
	for (; *args && n <= ARGS_MAX; args++)
		argv[n++] = *args;
	argv[n] = NULL;
	struct env env = { 0 };
	env_make(&env, t);
	if (env.failed) {
		env_done(&env);
		return err_no_memory(err);
	}
	const struct mirror_origin *o = t->origin;
	struct talk talk = { .t = t, .what = o ? "connect" : "check" };
	bool token = o && o->token;
	struct child_options opt = {
		.argv = argv,
		.envp = (const char *const *)env.v,
		.dir = t->repo,
		.input = input,
		.input_len = len,
		.keep = token ? t->secret : -1,
		.keep2 = -1,
		.deadline_s = seconds(o ? o->deadline_s : 0, "BOUGH_GIT_DEADLINE",
				      TRANSPORT_DEADLINE_S),
		.stall_s = o ? seconds(o->stall_s, "BOUGH_GIT_STALL", TRANSPORT_STALL_S) : 0,
		.nice = t->nice,
		.line = on_line,
		.tick = on_tick,
		.ctx = &talk,
	};
	auto_child_result res = { 0 };
	int r = child_run(&res, &opt, err);
	env_done(&env);
	/* Of a shallow repository git leaves out the branches, and calls that a success. */
	bool partly = r >= 0 && strstr((const char *)res.err.data, "shallow roots are not allowed");
	if (r >= 0 && (res.status != 0 || partly))
		r = explain(t, &res, err);
	if (r >= 0 && out) {
		buf_done(out);
		*out = res.out;
		res.out = (struct buf){ 0 };
	}
	return r < 0 ? r : 0;
}
