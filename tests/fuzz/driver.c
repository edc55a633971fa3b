/* The main() of a fuzz target where libFuzzer is not linked: replays a corpus, and runs
 * mutations of it, so that an ordinary test run on any compiler covers the decoders.
 *
 *     fuzz_x [-n MUTATIONS] [-s SEED] [-k NUMBER] FILE|FOLDER…
 *
 * Each file is run as it is, then cut at every length (at most CUTS_MAX, evenly), then
 * MUTATIONS times changed at random. A mutation depends on nothing but seed, file and
 * number: the line that is printed when a run dies says how to repeat just that one
 * (-k, with one FILE). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	INPUT_MAX = 16 << 20, /* bytes of a corpus file */
	CUTS_MAX = 256,
	CHANGES_MAX = 8, /* places that one mutation changes */
};

static struct {
	uint64_t seed, mutations, only; /* only: the -k number, 0 for all */
	uint64_t inputs, runs;
	char now[512]; /* the run in progress, for the line at its death */
} state = { .seed = 1, .mutations = 500 };

static void at_death(int sig)
{
	size_t n = strnlen(state.now, sizeof(state.now));
	if (write(STDERR_FILENO, state.now, n) < 0)
		_exit(3);
	(void)signal(sig, SIG_DFL);
	(void)raise(sig);
}

/* xorshift64*, Vigna 2016: small, and the same everywhere. */
static uint64_t next(uint64_t *s)
{
	*s ^= *s >> 12;
	*s ^= *s << 25;
	*s ^= *s >> 27;
	return *s * UINT64_C(2685821657736338717);
}

static void run(const char *path, const char *how, uint64_t number, const void *data, size_t len)
{
	(void)snprintf(state.now, sizeof(state.now),
		       "\ndied on %s, %s %" PRIu64 ", -s %" PRIu64 "\n", path, how, number,
		       state.seed);
	/* A copy of exactly this size, so that the sanitizer sees a read past its end. */
	auto_free uint8_t *copy = malloc(len ? len : 1);
	if (!copy)
		abort();
	if (len)
		memcpy(copy, data, len);
	(void)LLVMFuzzerTestOneInput(copy, len); /* by libFuzzer's rules always 0 */
	state.runs++;
}

/* Numbers that decoders stumble over: lengths, counts, signs. */
static uint64_t strange(uint64_t *s)
{
	static const uint64_t v[] = { 0,         1,          0x7f,       0x80,       0xff,
				      0x7fff,    0xffff,     0x7fffffff, 0x80000000, UINT32_MAX,
				      INT64_MAX, UINT64_MAX, 4096,       65536,      1ull << 48 };
	return v[next(s) % (sizeof(v) / sizeof(v[0]))];
}

/* Changes the bytes in place; returns their new length, never more than it was. */
static size_t mutate(uint8_t *p, size_t len, uint64_t *s)
{
	for (uint64_t n = 1 + next(s) % CHANGES_MAX; n > 0 && len > 0; n--) {
		size_t at = next(s) % len, left = len - at;
		uint64_t v = strange(s);
		size_t width = (size_t)1 << next(s) % 4;
		switch (next(s) % 6) {
		case 0:
			p[at] ^= (uint8_t)(1u << next(s) % 8);
			break;
		case 1:
			p[at] = (uint8_t)next(s);
			break;
		case 2:
			memcpy(p + at, &v, width < left ? width : left);
			break;
		case 3: /* a part repeated elsewhere */
			memmove(p + at, p + next(s) % (at + 1), left / 2);
			break;
		case 4: /* a part taken out */
			width = next(s) % left;
			memmove(p + at, p + at + width, left - width);
			len -= width;
			break;
		default:
			if (next(s) % 8 == 0)
				len = at;
			break;
		}
	}
	return len;
}

static void replay(const char *path)
{
	auto_free void *data = NULL;
	size_t len;
	struct err err;
	if (io_slurp(NULL, AT_FDCWD, path, INPUT_MAX, &data, &len, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.text);
		exit(2);
	}
	state.inputs++;
	if (!state.only) {
		run(path, "whole", 0, data, len);
		size_t step = len / CUTS_MAX + 1;
		for (size_t cut = 0; cut < len; cut += step)
			run(path, "cut to", cut, data, cut);
	}
	auto_free uint8_t *copy = malloc(len + 1);
	if (!copy)
		abort();
	/* The name without its folder: the same mutation wherever the corpus lies. */
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	uint64_t base = hash_xxh3(name, strlen(name), state.seed);
	uint64_t first = state.only ? state.only : 1;
	uint64_t last = state.only ? state.only : state.mutations;
	for (uint64_t k = first; k <= last; k++) {
		uint64_t s = hash_xxh3(&k, sizeof(k), base) | 1;
		memcpy(copy, data, len);
		run(path, "-k", k, copy, mutate(copy, len, &s));
	}
}

static int not_hidden(const struct dirent *de)
{
	return de->d_name[0] != '.';
}

static void replay_folder(const char *path)
{
	struct dirent **list;
	int n = scandir(path, &list, not_hidden, alphasort);
	if (n < 0) {
		(void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(2);
	}
	for (int i = 0; i < n; i++) {
		char file[PATH_MAX];
		int w = snprintf(file, sizeof(file), "%s/%s", path, list[i]->d_name);
		if (w > 0 && (size_t)w < sizeof(file))
			replay(file);
		free(list[i]);
	}
	free(list);
}

int main(int argc, char **argv)
{
	for (int c; (c = getopt(argc, argv, "n:s:k:")) != -1;) {
		if (c == '?')
			return 2;
		uint64_t v = strtoull(optarg, NULL, 10);
		*(c == 'n' ? &state.mutations : c == 's' ? &state.seed : &state.only) = v;
	}
	const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM, SIGTERM };
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		(void)signal(signals[i], at_death);
	for (int i = optind; i < argc; i++) {
		struct stat st;
		if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
			replay_folder(argv[i]);
		else
			replay(argv[i]);
	}
	if (!state.inputs) {
		(void)fprintf(stderr, "no input\n");
		return 2;
	}
	printf("%" PRIu64 " inputs, %" PRIu64 " runs, seed %" PRIu64 "\n", state.inputs, state.runs,
	       state.seed);
	return 0;
}
