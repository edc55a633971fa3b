#include "gitops/errand.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/sock.h"
#include "gitops/child.h"

enum {
	SECRET_MAX = 64 << 10,
	WORDS_MAX = 128, /* of ssh's command line: git gives it some ten */
};

/* ---- bough-credential ---- */

/* The next line, its end cut off; NULL: none is left. */
static char *next_line(char **rest)
{
	return *rest && **rest ? strsep(rest, "\n") : NULL;
}

/* git asks by lines key=value. An answer of nothing means: none for that place. */
static int credential(const char *operation)
{
	char line[8192], protocol[16] = "", host[512] = "";
	auto_free char *secret = calloc(1, SECRET_MAX + 1);
	if (!secret || strcmp(operation, "get") != 0)
		return secret ? 0 : 1;
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "protocol=", 9) == 0)
			(void)snprintf(protocol, sizeof(protocol), "%.15s", line + 9);
		else if (strncmp(line, "host=", 5) == 0)
			(void)snprintf(host, sizeof(host), "%.511s", line + 5);
	}
	/* pread: git may ask more than once. */
	ssize_t n = pread(CHILD_KEPT, secret, SECRET_MAX, 0);
	if (n <= 0)
		return 1;
	char *rest = secret;
	const char *for_protocol = next_line(&rest), *for_host = next_line(&rest);
	const char *user = next_line(&rest), *password = next_line(&rest);
	int r = 0;
	/* A redirection leads elsewhere, and what lies there is somebody else's. */
	if (password && strcmp(protocol, for_protocol) == 0 && strcasecmp(host, for_host) == 0)
		r = printf("username=%s\npassword=%s\n", user, password) < 0 || fflush(stdout) != 0;
	explicit_bzero(secret, SECRET_MAX);
	return r;
}

/* ---- bough-ssh ---- */

/* Of the addresses that the host has ("A,B,…"; the list is cut) the first that answers, else the
 * first. */
static const char *pick_address(char *list, int argc, char **argv)
{
	const char *port = "22";
	char *rest = list, *each;
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], "-p") == 0) /* as git puts it, before the host */
			port = argv[i + 1];
	if (!strchr(list, ','))
		return list;
	while ((each = strsep(&rest, ","))) {
		auto_fd fd = sock_connect_tcp(each, port, NULL);
		if (fd >= 0)
			return each;
	}
	return list;
}

struct words {
	char *v[WORDS_MAX + 1];
	size_t n;
	bool failed;
};

static void words_done(struct words *w)
{
	while (w->n > 0)
		free(w->v[--w->n]);
}
#define auto_words __attribute__((cleanup(words_done))) struct words

static void word(struct words *w, const char *text)
{
	if (w->n == WORDS_MAX || !(w->v[w->n] = strdup(text)))
		w->failed = true;
	else
		w->n++;
}

/* -o NAME=VALUE; without a value NAME says it all. */
static void option(struct words *w, const char *name, const char *value)
{
	auto_free char *text = NULL;
	word(w, "-o");
	if (asprintf(&text, "%s%s%s", name, value ? "=" : "", value ? value : "") < 0)
		text = NULL;
	word(w, text ? text : "");
	w->failed |= !text;
}

/* ssh asks nobody, reads no configuration and offers nothing but the given key; a host whose key
 * isn't known is refused. */
static int run_ssh(int argc, char **argv)
{
	static const char *const fixed[] = {
		"GlobalKnownHostsFile=/dev/null",
		"StrictHostKeyChecking=yes",
		"UpdateHostKeys=no",
		"BatchMode=yes",
		"IdentitiesOnly=yes",
		"IdentityAgent=none",
		"PreferredAuthentications=publickey",
		"ForwardAgent=no",
		"ClearAllForwardings=yes",
		"PermitLocalCommand=no",
		"ProxyCommand=none",
		"ControlPath=none",
		"ConnectTimeout=30",
		"ServerAliveInterval=15",
	};
	const char *key = getenv(ERRAND_SSH_KEY), *known = getenv(ERRAND_KNOWN_HOSTS);
	char *to = getenv(ERRAND_SSH_ADDRESS);
	const char *as = getenv(ERRAND_SSH_ALIAS);
	auto_words w = { 0 };
	if (!key || !known) {
		(void)fputs("fatal: ssh: neither key nor known hosts were given\n", stderr);
		return 1;
	}
	word(&w, "ssh");
	word(&w, "-F");
	word(&w, "/dev/null");
	option(&w, "IdentityFile", key);
	option(&w, "UserKnownHostsFile", known);
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		option(&w, fixed[i], NULL);
	if (to && as) {
		option(&w, "HostName", pick_address(to, argc, argv));
		option(&w, "HostKeyAlias", as);
	}
	for (int i = 1; i < argc; i++)
		word(&w, argv[i]);
	if (w.failed) {
		(void)fputs("fatal: ssh: out of memory\n", stderr);
		return 1;
	}
	execvp("ssh", w.v);
	(void)fprintf(stderr, "fatal: run ssh: %s\n", strerrordesc_np(errno));
	return 1;
}

bool gitops_errand(int argc, char **argv, int *status)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	const char *name = slash ? slash + 1 : argc > 0 ? argv[0] : "";
	if (strcmp(name, ERRAND_CREDENTIAL) == 0)
		*status = credential(argc > 1 ? argv[1] : "");
	else if (strcmp(name, ERRAND_SSH) == 0)
		*status = run_ssh(argc, argv);
	else if (strcmp(name, ERRAND_TRANSFER) == 0)
		*status = errand_transfer(argc, argv);
	else if (strcmp(name, ERRAND_JAIL) == 0)
		*status = errand_jail(argc, argv);
	else
		return false;
	return true;
}
