/* boughd: the daemon. It has the catalog and the API, and keeps bough-fs running. */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <git2.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/log.h"
#include "gitops/errand.h"
#include "gitops/mirror.h"
#include "runtime/box.h"
#include "snapd/access.h"
#include "snapd/api.h"
#include "snapd/config.h"
#include "snapd/events.h"
#include "snapd/flattener.h"
#include "snapd/hooks.h"
#include "snapd/intents.h"
#include "snapd/jobs.h"
#include "snapd/journal.h"
#include "snapd/keeper.h"
#include "snapd/leftovers.h"
#include "snapd/limits.h"
#include "snapd/openapi.h"
#include "snapd/outcome.h"
#include "snapd/reconcile.h"
#include "snapd/sandbox.h"
#include "snapd/repos.h"
#include "snapd/state.h"
#include "snapd/tidier.h"
#include "snapd/sign.h"
#include "snapd/watch.h"

enum {
	HOUSEKEEPING_MS = 5000, /* also: how much of the catalog a power failure may cost */
	IDLE_MS = 30000,        /* cached content and layers that nobody asked for so long go */
	QUIESCE_MS = 10000,     /* what is under way may end; then it is cut off, which is safe */
	EXIT_USAGE = 2,
};

static const char help_text[] =
	"Usage: boughd [--root DIR] [OPTION]...\n"
	"The Bough daemon: workspaces and snapshots, over HTTP on the socket DIR/run/boughd.sock.\n"
	"`bough` starts it when it is needed.\n"
	"\n"
	"  --root DIR             the state folder; made when absent (default: $BOUGH_ROOT, else\n"
	"                         /var/lib/bough as root, else $XDG_STATE_HOME/bough or\n"
	"                         ~/.local/state/bough)\n"
	"  --daemon               go to the background; returns when the socket answers, or says\n"
	"                         in one line why it doesn't. Logs to DIR/run/boughd.log\n"
	"  --replace              end another boughd that has the state, and go on in its place\n"
	"  --foreground           stay, and log to stderr (the default)\n"
	"  --listen ADDRESS:PORT  serve the API there too, for bearers of tokens\n"
	"  --tls-cert FILE, --tls-key FILE\n"
	"                         with TLS: PEM files of a certificate and its key\n"
	"  --insecure             allow addresses beyond this machine without TLS\n"
	"  --multi-user           let every user of this machine connect to the socket: each\n"
	"                         sees what is theirs\n"
	"  --transport dev|ring   of the FUSE server: plain /dev/fuse (default), or io_uring\n"
	"  --check                only tell whether it could serve with these options and\n"
	"                         DIR/config.json; `bough upgrade` asks before it ends another\n"
	"  --help, --version\n"
	"\n"
	"DIR/config.json may say the same: {\"listen\": [], \"tls_cert\": \"\",\n"
	"\"tls_key\": \"\", \"insecure\": false, \"multi_user\": false}, and more: boughd(8).\n"
	"The FUSE server is bough-fs beside boughd, or $BOUGH_FS. BOUGH_LOG sets the log's level:\n"
	"error, warn, info (default), debug.\n"
	"SIGTERM and SIGINT end boughd; workspaces stay mounted. `bough down` ends all of it.\n"
	"\n"
	"Exit status: 0 ended when asked to, 1 failed (also: another boughd has the state),\n"
	"2 usage.\n";

struct options {
	const char *root, *transport;
	bool daemon, check, replace;
	struct config config;
};

static int usage(const char *text)
{
	fprintf(stderr, "boughd: %s (try --help)\n", text);
	return EXIT_USAGE;
}

static int config_option(struct config *c, int which, const char *value)
{
	char **to = which == 'c' ? &c->tls_cert : &c->tls_key;
	if (which == 'l')
		return config_listen(c, value, NULL);
	if (*to)
		return -EEXIST;
	*to = strdup(value);
	return *to ? 0 : -ENOMEM;
}

/* One line on a runtime of containers: its version, or why it doesn't work here (exit status 1). */
static int print_runtime(const char *name)
{
	const struct runtime_kind *k = runtime_find(name);
	struct runtime_probe p;
	char without[128];
	if (!k)
		return usage("--runtime is runc, runsc, kata or crun");
	runtime_probe(k, &p);
	box_unenforced(k, without, sizeof(without));
	if (p.works)
		printf("%s%s%s\n", p.version, *without ? "; doesn't limit " : "", without);
	else
		printf("%s%s%s\n", p.why, *p.version ? "; " : "", p.version);
	return !p.works;
}

/* -1: go on; else the exit status. */
static int parse_options(struct options *o, int argc, char **argv)
{
	static const struct option known[] = {
		{ "root", required_argument, NULL, 'r' },
		{ "daemon", no_argument, NULL, 'd' },
		{ "foreground", no_argument, NULL, 'f' },
		{ "replace", no_argument, NULL, 'p' },
		{ "transport", required_argument, NULL, 't' },
		{ "listen", required_argument, NULL, 'l' },
		{ "tls-cert", required_argument, NULL, 'c' },
		{ "tls-key", required_argument, NULL, 'k' },
		{ "insecure", no_argument, NULL, 'i' },
		{ "multi-user", no_argument, NULL, 'm' },
		{ "check", no_argument, NULL, 'C' },
		{ "routes", no_argument, NULL, 'R' },        /* for openapi.py */
		{ "runtime", required_argument, NULL, 'T' }, /* for bough doctor */
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	int c;
	while ((c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
		switch (c) {
		case 'r':
			if (!*optarg)
				return usage("--root needs a folder");
			o->root = optarg;
			break;
		case 'd':
			o->daemon = true;
			break;
		case 'f':
			o->daemon = false;
			break;
		case 'p':
			o->replace = true;
			break;
		case 't':
			if (strcmp(optarg, "dev") != 0 && strcmp(optarg, "ring") != 0)
				return usage("--transport is dev or ring");
			o->transport = optarg;
			break;
		case 'l':
		case 'c':
		case 'k':
			if (config_option(&o->config, c, optarg) < 0)
				return usage("too many addresses, or twice the same option");
			break;
		case 'i':
			o->config.insecure = true;
			break;
		case 'm':
			o->config.multi_user = true;
			break;
		case 'C':
			o->check = true;
			break;
		case 'R':
			return openapi_print_routes() < 0;
		case 'T':
			return print_runtime(optarg);
		case 'h':
			fputs(help_text, stdout);
			return 0;
		case 'v':
			puts("boughd " BOUGH_VERSION);
			return 0;
		default:
			return EXIT_USAGE;
		}
	}
	return optind < argc ? usage("it takes no arguments") : -1;
}

/* bough-fs: $BOUGH_FS, else beside this program. */
static int find_server(char out[PATH_MAX], struct err *err)
{
	const char *given = getenv("BOUGH_FS");
	if (given && *given) {
		(void)snprintf(out, PATH_MAX, "%s", given);
	} else {
		ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 16);
		if (n <= 0)
			return err_sys(err, -errno, "find this program");
		out[n] = '\0';
		char *slash = strrchr(out, '/');
		memcpy(slash + 1, "bough-fs", sizeof("bough-fs"));
	}
	if (access(out, X_OK) < 0)
		return err_sys(err, -errno, "the FUSE server %s", out);
	return 0;
}

/* ---- going to the background ---- */

/* In the child: the pipe on which it says that it is ready. In the parent: doesn't return. */
static int go_background(struct err *err)
{
	int fds[2];
	char byte;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "pipe");
	pid_t pid = fork();
	if (pid < 0)
		return err_sys(err, -errno, "fork");
	if (pid > 0) {
		close(fds[1]);
		ssize_t n;
		do
			n = read(fds[0], &byte, 1);
		while (n < 0 && errno == EINTR);
		_exit(n == 1 ? 0 : 1); /* the child has said why */
	}
	close(fds[0]);
	(void)setsid(); /* fails only for who leads a session already */
	return fds[1];
}

/* stderr becomes the log; what it was is the result, for a last word to who started us. */
static int redirect_to_log(const char *root, struct err *err)
{
	auto_fd log = state_open_log(root, "boughd.log", err);
	if (log < 0)
		return log;
	auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int was = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (null < 0 || was < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		return err_sys(err, -errno, "redirect to the log");
	return was;
}

/* ---- the parts ---- */

static int open_store(struct snapd *sd, struct err *err)
{
	char path[PATH_SIZE], repos[PATH_SIZE];
	struct store_options opt = { .create = true, .repos = repos };
	(void)snprintf(path, sizeof(path), "%s/store", sd->root);
	(void)snprintf(repos, sizeof(repos), "%s/repos", sd->root);
	return store_open(&sd->store, path, &opt, err);
}

static int start_supervisor(struct snapd *sd, const struct options *o, struct err *err)
{
	char binary[PATH_MAX];
	int r = find_server(binary, err);
	if (r < 0)
		return r;
	struct supervisor_options opt = { .root = sd->root,
					  .binary = binary,
					  .transport = o->transport,
					  .client = sd->fs,
					  .ready = reconcile_fs,
					  .ctx = sd };
	return supervisor_start(&sd->supervisor, &opt, err);
}

static int open_parts(struct snapd *sd, const struct options *o, struct err *err)
{
	char path[PATH_SIZE];
	pthread_mutex_init(&sd->patches, NULL);
	for (size_t i = 0; i < ROW_LOCKS; i++)
		pthread_mutex_init(&sd->rows[i], NULL);
	pthread_mutex_init(&sd->gc, NULL);
	pthread_mutex_init(&sd->checkouts, NULL);
	sd->leases = leases_new();
	sd->images = images_new();
	sd->marking = marking_new();
	sd->problems = problems_new();
	sd->faults = problems_new();
	sd->damage = problems_new();
	sd->events = events_new();
	sd->metrics = metrics_new();
	sd->limits = limits_new();
	sd->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!sd->leases || !sd->images || !sd->marking || !sd->problems || !sd->events ||
	    !sd->metrics || !sd->limits || sd->stop_fd < 0)
		return err_no_memory(err);
	/* The first of all, for programs may be waiting on mounts whose server died with the boughd
	 * before us. */
	(void)snprintf(path, sizeof(path), "%s/run/fs.sock", sd->root);
	int r = fsclient_new(&sd->fs, path, err);
	if (r >= 0)
		fsclient_before_loss(sd->fs, gc_tree_goes, sd);
	if (r >= 0)
		r = start_supervisor(sd, o, err);
	leftovers_sweep(sd->root);
	if (r >= 0)
		r = jobs_new(&sd->jobs, sd, err);
	if (r >= 0)
		r = records_open(&sd->records, sd->root, NULL, err);
	if (r >= 0)
		r = catalog_open(&sd->catalog, sd->root, NULL, err);
	if (r >= 0)
		r = open_store(sd, err);
	if (r >= 0)
		r = layercache_new(&sd->layers, sd->root, sd->store, err);
	if (r >= 0 && !(sd->signer = signer_new(sd->root)))
		r = err_no_memory(err);
	if (r >= 0 && !(sd->watches = watches_new(sd->fs)))
		r = err_no_memory(err);
	if (r >= 0)
		r = flattener_start(&sd->flattener, sd, err);
	if (r >= 0)
		r = upkeep_start(&sd->upkeep, sd, err);
	if (r >= 0)
		r = tidier_start(&sd->tidier, sd, err);
	if (r >= 0)
		r = hooks_start(&sd->hooks, sd, err);
	if (r >= 0)
		r = sandboxes_new(&sd->sandboxes, sd, err);
	if (r >= 0)
		r = mirror_recover(sd->root, err);
	if (r >= 0)
		r = reconcile_rows(sd, err);
	if (r >= 0 && catalog_damage(sd->catalog))
		log_error("the catalog %s/catalog.db is damaged (%s): bough fsck --repair makes "
			  "it anew; until then only that is served",
			  sd->root, catalog_damage(sd->catalog));
	return r;
}

static void close_parts(struct snapd *sd)
{
	if (sd->sandboxes)
		sandboxes_quit(sd->sandboxes);
	sandboxes_free(sd->sandboxes);
	hooks_stop(sd->hooks);
	supervisor_free(sd->supervisor);
	flattener_stop(sd->flattener);
	tidier_stop(sd->tidier);
	upkeep_stop(sd->upkeep);
	watches_free(sd->watches);
	signer_free(sd->signer);
	fsclient_free(sd->fs);
	layercache_free(sd->layers);
	store_close(sd->store);
	catalog_close(sd->catalog);
	records_close(sd->records);
	problems_free(sd->problems);
	problems_free(sd->faults);
	problems_free(sd->damage);
	jobs_free(sd->jobs);
	events_free(sd->events);
	metrics_free(sd->metrics);
	limits_free(sd->limits);
	images_free(sd->images);
	marking_free(sd->marking);
	leases_free(sd->leases);
	if (sd->stop_fd >= 0)
		close(sd->stop_fd);
	pthread_mutex_destroy(&sd->gc);
	for (size_t i = 0; i < ROW_LOCKS; i++)
		pthread_mutex_destroy(&sd->rows[i]);
	pthread_mutex_destroy(&sd->patches);
}

static void housekeeping(struct snapd *sd)
{
	struct err err = { 0 };
	if (catalog_flush(sd->catalog, &err) < 0 && err.code != -EUCLEAN)
		log_error("%s", err.text); /* tried again next time */
	store_trim(sd->store, IDLE_MS);
	layercache_trim(sd->layers, IDLE_MS);
	(void)malloc_trim(1 << 20);
}

/* As safe as a kill, which everything here bears, and like one: no library or sanitizer looks for
 * threads that ended and weren't joined. */
static _Noreturn void end_at_once(int status)
{
	(void)syscall(SYS_exit_group, status);
	_exit(status); /* never gets here */
}

/* Until a signal or /v1/shutdown. */
static void serve(struct snapd *sd, int signals)
{
	for (;;) {
		struct pollfd p[] = { { .fd = signals, .events = POLLIN },
				      { .fd = sd->stop_fd, .events = POLLIN } };
		int n = poll(p, 2, HOUSEKEEPING_MS);
		if (!state_is_ours(sd->root, sd->lock_fd)) {
			log_error("%s was removed or moved away: boughd ends", sd->root);
			end_at_once(1); /* what lies there now isn't ours to clean */
		}
		if (n == 0)
			housekeeping(sd);
		else if (n > 0 || errno != EINTR)
			return;
	}
}

static int block_signals(struct err *err)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	(void)signal(SIGPIPE, SIG_IGN);
	if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
		return err_set(err, -EIO, "can't block signals");
	int fd = signalfd(-1, &set, SFD_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "signalfd") : fd;
}

static void raise_limits(void)
{
	struct rlimit l;
	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &l); /* fewer connections then */
	}
}

/* Everything between having the lock and giving it back. `ready_fd`: written to when requests
 * are answered; -1: nobody waits. */
/* For tests, mostly; 0: as ever. */
static unsigned stall_s(void)
{
	const char *s = getenv("BOUGH_WEB_STALL");
	unsigned long n = s ? strtoul(s, NULL, 10) : 0;
	return n <= 24 * 3600 ? (unsigned)n : 0;
}

static int run(struct snapd *sd, const struct options *o, int ready_fd, struct err *err)
{
	char path[PATH_SIZE];
	struct web *web = NULL;
	struct keeper *keeper = NULL;
	auto_fd signals = block_signals(err);
	int r = signals < 0 ? signals : open_parts(sd, o, err);
	if (r >= 0)
		supervisor_go(sd->supervisor);
	(void)snprintf(path, sizeof(path), "%s/run/boughd.sock", sd->root);
	if (r >= 0) {
		const struct config *c = &o->config;
		struct web_options opt = {
			.socket_path = path,
			.socket_open = c->multi_user,
			.tcp = (const char *const *)c->listen,
			.ntcp = c->nlisten,
			.tls_cert = c->tls_cert_text,
			.tls_key = c->tls_key_text,
			.insecure = c->insecure,
			.origins = (const char *const *)c->origins,
			.norigins = c->norigins,
			.stall_s = stall_s(),
			.routes = api_routes,
			.nroutes = api_nroutes,
			.ctx = sd,
			.identify = auth_identify,
			.open = "/v1/signed/",
			.admit = outcome_admit,
			.done = outcome_done,
			.background = jobs_start,
		};
		r = sandboxes_find(sd, err);
		if (r >= 0 && !catalog_damage(sd->catalog))
			r = catalog_journal_begin(sd->catalog, err);
		if (r >= 0 && !catalog_damage(sd->catalog))
			r = intents_resolve(sd, err);
		if (r >= 0)
			r = keeper_start(&keeper, sd, err);
		if (r >= 0 && !catalog_damage(sd->catalog))
			jobs_resume(sd->jobs);
		if (r >= 0 && (r = web_start(&web, &opt, err)) < 0) {
			keeper_stop(keeper);
			if (!jobs_stop(sd->jobs, QUIESCE_MS)) {
				log_error("%s", err->text);
				end_at_once(1);
			}
		}
	}
	if (r >= 0) {
		log_info("version " BOUGH_VERSION " serves %s", sd->root);
		if (ready_fd >= 0)
			(void)!write(ready_fd, "k", 1); /* who waited may have left */
		serve(sd, signals);
		log_info("ends");
		(void)unlink(path);
		events_stop(sd->events);
		watches_stop(sd->watches);
		sandboxes_quit(sd->sandboxes);
		keeper_stop(keeper);
		if (!web_quiesce(web, QUIESCE_MS) || !jobs_stop(sd->jobs, QUIESCE_MS)) {
			log_warn("cuts off what is still under way");
			end_at_once(0);
		}
		web_free(web);
	}
	close_parts(sd);
	return r;
}

struct rescue {
	const char *root, *transport;
};

/* The last boughd was killed, and can't end. */
static void rescue(void *ctx)
{
	const struct rescue *of = ctx;
	char binary[PATH_MAX];
	if (find_server(binary, NULL) >= 0)
		supervisor_rescue(of->root, binary, of->transport);
}

int main(int argc, char **argv)
{
	struct options o = { .config.policy = POLICY_DEFAULT };
	struct err err = { 0 };
	auto_free char *root = NULL;
	auto_fd ready = -1, said = -1, lock = -1;
	int status;
	if (gitops_errand(argc, argv, &status))
		return status;
	status = parse_options(&o, argc, argv);
	if (status >= 0)
		return status;
	umask(077);
	raise_limits();
	int r = state_prepare(&root, o.root, &err);
	if (r >= 0)
		r = config_read(&o.config, root, &err);
	if (r >= 0)
		r = config_check(&o.config, &err);
	if (o.check) {
		char binary[PATH_MAX];
		if (r >= 0)
			r = find_server(binary, &err);
		if (r < 0)
			fprintf(stderr, "boughd: %s\n", err.text);
		config_done(&o.config);
		return r < 0;
	}
	/* The folder that it was started from may be unmounted, or go. */
	if (r >= 0 && chdir("/") < 0)
		r = err_sys(&err, -errno, "change to /");
	if (r >= 0 && o.daemon)
		r = ready = go_background(&err);
	log_init("boughd");
	if (r >= 0 && o.replace)
		r = state_end_holder(root, &err);
	if (r >= 0)
		r = lock = state_lock(root, rescue, &(struct rescue){ root, o.transport }, &err);
	if (r >= 0)
		r = state_open_run(root, o.config.multi_user, &err);
	if (r >= 0 && o.daemon)
		r = said = redirect_to_log(root, &err);
	if (r >= 0) {
		struct snapd sd = { .root = root,
				    .lock_fd = lock,
				    .stop_fd = -1,
				    .policy = o.config.policy,
				    .git_networks = o.config.git_networks,
				    .multi_user = o.config.multi_user };
		state_spare_keep(root);
		git_libgit2_init();
		(void)curl_global_init(CURL_GLOBAL_DEFAULT); /* else each use does, unsafely */
		r = run(&sd, &o, ready, &err);
		curl_global_cleanup();
		git_libgit2_shutdown();
	}
	if (r < 0) {
		if (said >= 0) {
			log_error("%s", err.text);
			(void)dup2(said, STDERR_FILENO);
		}
		fprintf(stderr, "boughd: %s\n", err.text);
	}
	config_done(&o.config);
	return r < 0 ? 1 : 0;
}
