/* bough-pack: a folder as a pax stream, or such a stream as a folder, with the rights of whoever
 * calls it. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/rfc3339.h"
#include "tools/pack/gitfiles.h"
#include "tools/pack/pack.h"
#include "tools/pack/unpack.h"

static const char help[] =
	"usage: bough-pack [OPTION]... DIR\n"
	"\n"
	"Writes DIR to stdout as a tar stream (pax): numeric owners, times to the nanosecond,\n"
	"hard links, symlinks, devices, fifos, xattrs, holes, and names byte for byte.\n"
	"\n"
	"  --one-file-system    don't enter folders of other file systems\n"
	"  --exclude PATTERN    leave out what matches: with a '/' the way from DIR, else any\n"
	"                       name; * ? [] as in a shell. May be given several times\n"
	"  --ignore-unreadable  leave out what can't be opened\n"
	"  --have TIME          stdin lists the files that are there already (SIZE SECONDS\n"
	"                       NANOSECONDS MODE PATH, each ended by a NUL): leave them out, but\n"
	"                       those that, or whose folders, have changed since TIME\n"
	"                       (2001-02-03T04:05:06.123456789Z)\n"
	"  --git                DIR is a git repository: write the files that a mirror of it\n"
	"                       needs (refs, objects, packs), and nothing else\n"
	"  --known              with --git: stdin lists what to leave out\n"
	"  --extract            make the files of the tar stream on stdin in DIR, which is there;\n"
	"                       nothing is made outside of it, and no link is followed\n"
	"  --top                with --extract: DIR itself takes over mode, owner and times too\n"
	"  --help, --version\n"
	"\n"
	"examples:\n"
	"  bough-pack --exclude .git --exclude build/tmp . | bough import - --as base\n"
	"  bough-pack /etc | bsdtar tvf -\n"
	"\n"
	"Sockets are left out with a warning. Exit codes: 0 all of it is there; 1 a file changed\n"
	"while it was read (cut or filled up to its first size), or something can't be read: then\n"
	"the stream has no end mark; 2 usage.\n";

static void say(void *ctx, const char *line)
{
	(void)fprintf(stderr, "bough-pack: %s\n", line); /* nowhere else to say that it failed */
}

static int usage(const char *what)
{
	(void)fprintf(stderr, "bough-pack: %s (--help shows how)\n", what); /* as in say */
	return 2;
}

/* What is there already. */
static int read_have(struct have *h, struct err *err)
{
	auto_free uint8_t *buf = malloc(65536);
	ssize_t n = 0;
	int r = buf ? 0 : -ENOMEM;
	while (r == 0 && (n = read(STDIN_FILENO, buf, 65536)) > 0)
		r = have_add(h, buf, (size_t)n);
	if (n < 0)
		r = -errno;
	if (r == 0)
		r = have_ready(h);
	return r < 0 ? err_sys(err, r, "read the list of what is there") : 0;
}

/* What was sent once and is gone here can't be taken away there by a stream. */
static void tell_left(const struct have *h)
{
	const char *one;
	char line[512];
	size_t n = have_left(h, &one);
	if (n == 0)
		return;
	(void)snprintf(line, sizeof(line),
		       "sent before, gone since, and left at the target: %zu, as %.300s", n, one);
	say(NULL, line);
}

/* The list of packs to leave out, NUL-terminated. */
static int read_known(struct buf *out)
{
	enum { KNOWN_MAX = 16 << 20 };
	uint8_t *room;
	ssize_t n;
	while ((room = buf_room(out, 65536)) && (n = read(STDIN_FILENO, room, 65536)) > 0)
		if ((out->len += (size_t)n) > KNOWN_MAX)
			return -1;
	buf_u8(out, 0);
	return room && n == 0 ? buf_error(out) : -1;
}

static int pack_git(const char *dir, bool known)
{
	auto_buf list = { 0 };
	struct err err = { 0 };
	if (known && read_known(&list) < 0) {
		say(NULL, "the list of packs can't be read");
		return 1;
	}
	int r = gitfiles_pack(dir, STDOUT_FILENO, known ? (const char *)list.data : NULL, &err);
	if (r < 0)
		say(NULL, err.text);
	return r != 0;
}

static int extract(const char *dir, bool top)
{
	struct unpack_options opt = { .top = top, .say = say };
	struct err err = { 0 };
	int r = unpack_tree(dir, STDIN_FILENO, &opt, &err);
	if (r < 0)
		say(NULL, err.text);
	return r != 0;
}

static int run(int argc, char **argv, const char **excludes)
{
	static const struct option options[] = {
		{ "one-file-system", no_argument, NULL, 'x' },
		{ "exclude", required_argument, NULL, 'e' },
		{ "ignore-unreadable", no_argument, NULL, 'i' },
		{ "have", required_argument, NULL, 'H' },
		{ "git", no_argument, NULL, 'g' },
		{ "known", no_argument, NULL, 'k' },
		{ "extract", no_argument, NULL, 'X' },
		{ "top", no_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	struct pack_options opt = { .excludes = excludes, .say = say, .have = NULL };
	struct have have = { 0 };
	bool git = false, known = false, in = false, top = false;
	for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
		switch (c) {
		case 'x':
			opt.one_file_system = true;
			break;
		case 'e':
			excludes[opt.nexcludes++] = optarg;
			break;
		case 'i':
			opt.ignore_unreadable = true;
			break;
		case 'H':
			if (rfc3339_parse(optarg, &have.before) < 0)
				return usage("--have takes a time with nanoseconds and Z");
			opt.have = &have;
			break;
		case 'g':
			git = true;
			break;
		case 'k':
			known = true;
			break;
		case 'X':
			in = true;
			break;
		case 't':
			top = true;
			break;
		case 'h':
			return fputs(help, stdout) < 0 || fflush(stdout) != 0;
		case 'v':
			return puts("bough-pack " BOUGH_VERSION) < 0 || fflush(stdout) != 0;
		default:
			return 2;
		}
	}
	if (argc - optind != 1)
		return usage("one folder must be given");
	if (in)
		return extract(argv[optind], top);
	if (isatty(STDOUT_FILENO))
		return usage("stdout is a terminal: the stream must go to a file or a pipe");
	if (git)
		return pack_git(argv[optind], known);
	struct err err = { 0 };
	int r = opt.have ? read_have(opt.have, &err) : 0;
	if (r == 0)
		r = pack_tree(argv[optind], STDOUT_FILENO, &opt, &err);
	if (r < 0)
		say(NULL, err.text);
	else
		tell_left(&have);
	have_done(&have);
	return r != 0;
}

int main(int argc, char **argv)
{
	/* A reader that goes away is an error to report, not a reason to vanish. */
	(void)signal(SIGPIPE, SIG_IGN);
	auto_free const char **excludes = calloc((size_t)argc, sizeof(*excludes));
	if (!excludes) {
		say(NULL, "out of memory");
		return 1;
	}
	return run(argc, argv, excludes);
}
