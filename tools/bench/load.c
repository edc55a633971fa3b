/* Many clients of boughd at once, from one thread, and how long each kind of call took.
 *
 *     load SOCKET CLIENTS SECONDS RATE MIX <workspaces
 *
 * stdin has workspace ids, one a line; each has files small-0 to -99 of 4 KiB and big of 1 MiB
 * (load.py makes them). Each client has one connection. RATE 0: each client asks again as soon
 * as it was answered (closed: latencies are those of a saturated service). RATE n: n scenarios a
 * second begin by the clock, whether there is a free client or not, and the first call of each
 * counts from the moment it was due, so that a stall is seen by all whom it would have met.
 * MIX is name=weight,…: see `scenarios`. Prints one JSON object. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/clock.h"

enum {
	CLIENTS_MAX = 500,
	SMALL = 4096,
	BIG = 1 << 20,
	FILES = 100,        /* small ones of a workspace */
	STEPS = 6,          /* of a scenario */
	IN_BYTES = 1 << 16, /* read at once */
	HEAD_MAX = 16384,
	KEEP = 2048, /* of an answer's body, for the id in it */
	ID = 16,
	TOLD = 10,          /* errors that are printed */
	END_MS = 60 * 1000, /* for the scenarios under way, behind the end */
};

enum op {
	OP_NONE,
	OP_GET,
	OP_PUT,
	OP_LIST,
	OP_STAT,
	OP_BIG_GET,
	OP_BIG_PUT,
	OP_FORK,
	OP_FORK_PUT,
	OP_SAVE,
	OP_DIFF,
	OP_CREATE,
	OP_CREATE_GET,
	OP_DELETE,
	OP_DELETE_SNAP,
	OPS,
};
static const char *const op_names[OPS] = {
	"none", "get",  "put",        "list",   "stat",       "get_1m", "put_1m",
	"fork", "put2", "save",       "diff",   "create",     "get2",   "delete",
	"delete_snapshot",
};

struct scenario {
	const char *name;
	enum op steps[STEPS];
	unsigned weight;
};
static struct scenario scenarios[] = {
	{ "get", { OP_GET }, 0 },
	{ "put", { OP_PUT }, 0 },
	{ "list", { OP_LIST }, 0 },
	{ "stat", { OP_STAT }, 0 },
	{ "get_1m", { OP_BIG_GET }, 0 },
	{ "put_1m", { OP_BIG_PUT }, 0 },
	{ "diff", { OP_DIFF }, 0 },
	/* A task: its own fork, a change, a save, and away with it. */
	{ "fork",
	  { OP_FORK, OP_FORK_PUT, OP_SAVE, OP_DELETE, OP_DELETE_SNAP },
	  0 },
	{ "create", { OP_CREATE, OP_CREATE_GET, OP_DELETE }, 0 },
};
#define NSCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

struct times {
	uint32_t *us;
	size_t n, cap;
};

struct client {
	int fd;
	unsigned number;
	uint64_t rng, serial;
	const struct scenario *todo; /* NULL: idle */
	unsigned step;
	enum op op;
	uint64_t begun_ns; /* of this call, or when it was due */
	const char *ws;    /* that the scenario is about */
	char own[ID], snap[ID];
	struct buf out;
	const uint8_t *bulk; /* behind `out` */
	size_t bulk_len, sent;
	bool writing; /* EPOLLOUT is asked for */
	/* the answer */
	char head[HEAD_MAX];
	size_t head_len;
	bool in_body, chunked;
	uint64_t left; /* of the body or chunk */
	unsigned chunk; /* where in a chunk's frame: see eat_chunks */
	size_t line;    /* bytes of the line being read */
	int status;
	char keep[KEEP];
	size_t kept;
};

struct load {
	int epoll;
	const char *path;
	struct client *clients;
	unsigned nclients;
	char (*ws)[ID];
	size_t nws, cap_ws;
	struct times times[OPS];
	uint64_t errors, bytes_in, bytes_out, late;
	uint64_t end_ns;
	double per_ns; /* scenarios; 0: closed */
	uint64_t first_ns, begun;
	uint64_t rng;
	unsigned weights;
	uint8_t *noise;
};

static uint64_t next(uint64_t *s)
{
	*s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17; /* xorshift64 */
	return *s;
}

/* ---- errors ---- */

static void fault(struct load *l, struct client *c, const char *what)
{
	if (l->errors++ < TOLD)
		(void)fprintf(stderr, "load: %s: status %d: %s: %.*s\n", op_names[c->op], c->status,
			      what, (int)c->kept, c->keep);
}

/* ---- what is asked ---- */

static void request(struct client *c, const char *method, const char *body, size_t bulk,
		    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static void request(struct client *c, const char *method, const char *body, size_t bulk,
		    const char *fmt, ...)
{
	char path[256];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	size_t n = body ? strlen(body) : bulk;
	buf_printf(&c->out, "%s %s HTTP/1.1\r\nHost: bough\r\n", method, path);
	if (body || bulk)
		buf_printf(&c->out, "Content-Length: %zu\r\n", n);
	buf_printf(&c->out, "\r\n%s", body ? body : "");
	c->bulk_len = bulk;
}

static void put(struct load *l, struct client *c, const char *ws, size_t size)
{
	unsigned offset = (unsigned)next(&c->rng) % BIG;
	c->bulk = l->noise + offset;
	request(c, "PUT", NULL, size, "/v1/workspaces/%s/files/out/c%u-%llu", ws, c->number,
		(unsigned long long)(c->serial++ % 8));
}

static void get_small(struct client *c, const char *ws)
{
	request(c, "GET", NULL, 0, "/v1/workspaces/%s/files/small-%u", ws,
		(unsigned)(next(&c->rng) % FILES));
}

static void ask(struct load *l, struct client *c)
{
	char body[160];
	unsigned long long serial = c->serial++;
	buf_reset(&c->out);
	c->bulk = NULL;
	c->bulk_len = c->sent = 0;
	switch (c->op) {
	case OP_GET:
		get_small(c, c->ws);
		break;
	case OP_CREATE_GET:
		get_small(c, c->own);
		break;
	case OP_PUT:
		put(l, c, c->ws, SMALL);
		break;
	case OP_FORK_PUT:
		put(l, c, c->own, SMALL);
		break;
	case OP_BIG_PUT:
		put(l, c, c->ws, BIG);
		break;
	case OP_BIG_GET:
		request(c, "GET", NULL, 0, "/v1/workspaces/%s/files/big", c->ws);
		break;
	case OP_LIST:
		request(c, "GET", NULL, 0, "/v1/workspaces/%s/files/?limit=100", c->ws);
		break;
	case OP_STAT:
		request(c, "GET", NULL, 0, "/v1/workspaces/%s", c->ws);
		break;
	case OP_DIFF:
		request(c, "GET", NULL, 0, "/v1/workspaces/%s/diff?format=name-status", c->ws);
		break;
	case OP_FORK:
		(void)snprintf(body, sizeof(body), "{\"names\":[\"f-%u-%llu\"]}", c->number,
			       serial);
		request(c, "POST", body, 0, "/v1/workspaces/%s/fork", c->ws);
		break;
	case OP_SAVE:
		request(c, "POST", "{}", 0, "/v1/workspaces/%s/snapshots", c->own);
		break;
	case OP_CREATE:
		(void)snprintf(body, sizeof(body),
			       "{\"name\":\"n-%u-%llu\",\"from\":\"load-base\"}", c->number,
			       serial);
		request(c, "POST", body, 0, "/v1/workspaces");
		break;
	case OP_DELETE:
		request(c, "DELETE", NULL, 0, "/v1/workspaces/%s?purge=true", c->own);
		break;
	case OP_DELETE_SNAP:
		request(c, "DELETE", NULL, 0, "/v1/snapshots/%s", c->snap);
		break;
	case OP_NONE:
	case OPS:
		break;
	}
}

/* ---- connections ---- */

static int watch(struct load *l, struct client *c, int how, bool writing)
{
	struct epoll_event e = { .events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c };
	c->writing = writing;
	return epoll_ctl(l->epoll, how, c->fd, &e) < 0 ? -errno : 0;
}

static int open_client(struct load *l, struct client *c)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", l->path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return -errno;
	if (connect(c->fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	return watch(l, c, EPOLL_CTL_ADD, false);
}

/* Sends what is to be sent, as far as it goes. */
static int push(struct load *l, struct client *c)
{
	while (c->sent < c->out.len + c->bulk_len) {
		bool bulk = c->sent >= c->out.len;
		const uint8_t *p = bulk ? c->bulk + (c->sent - c->out.len) : c->out.data + c->sent;
		size_t n = bulk ? c->bulk_len - (c->sent - c->out.len) : c->out.len - c->sent;
		ssize_t did = send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (did < 0 && errno == EAGAIN)
			return c->writing ? 0 : watch(l, c, EPOLL_CTL_MOD, true);
		if (did < 0)
			return -errno;
		c->sent += (size_t)did;
		l->bytes_out += (size_t)did;
	}
	return c->writing ? watch(l, c, EPOLL_CTL_MOD, false) : 0;
}

static int begin_call(struct load *l, struct client *c, enum op op, uint64_t due_ns)
{
	c->op = op;
	c->begun_ns = due_ns;
	c->head_len = c->kept = 0;
	c->in_body = c->chunked = false;
	c->left = 0;
	c->chunk = 0;
	c->line = 0;
	ask(l, c);
	return buf_error(&c->out) < 0 ? -ENOMEM : push(l, c);
}

static int begin_scenario(struct load *l, struct client *c, uint64_t due_ns)
{
	unsigned at = (unsigned)(next(&l->rng) % l->weights);
	const struct scenario *s = scenarios;
	while (at >= s->weight)
		at -= s++->weight;
	c->todo = s;
	c->step = 0;
	c->ws = l->ws[next(&l->rng) % l->nws];
	c->own[0] = c->snap[0] = '\0';
	return begin_call(l, c, s->steps[0], due_ns);
}

/* ---- answers ---- */

/* The id behind the first "id": in an answer. */
static bool take_id(const struct client *c, char out[ID])
{
	const char *p = memmem(c->keep, c->kept, "\"id\":\"", 6);
	size_t room = p ? c->kept - (size_t)(p + 6 - c->keep) : 0;
	if (room < 14)
		return false;
	memcpy(out, p + 6, 13); /* "ws_" or "sn_", and ten */
	out[13] = '\0';
	return true;
}

static bool check(struct client *c)
{
	switch (c->op) {
	case OP_FORK:
	case OP_CREATE:
		return c->status == 201 && take_id(c, c->own);
	case OP_SAVE:
		return c->status == 201 && take_id(c, c->snap);
	case OP_PUT:
	case OP_FORK_PUT:
	case OP_BIG_PUT:
		return c->status == 200 || c->status == 201;
	case OP_DELETE:
	case OP_DELETE_SNAP:
		return c->status == 204;
	default:
		return c->status == 200;
	}
}

static int note_time(struct load *l, struct client *c)
{
	struct times *t = &l->times[c->op];
	uint64_t us = (clock_ns() - c->begun_ns) / 1000;
	if (array_grow(&t->us, t->n, &t->cap) < 0)
		return -ENOMEM;
	t->us[t->n++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
	return 0;
}

/* The answer is whole: the next step, or the next scenario. */
static int answered(struct load *l, struct client *c)
{
	bool good = check(c);
	if (!good)
		fault(l, c, "unexpected");
	int r = note_time(l, c);
	if (r < 0)
		return r;
	c->step++;
	if (good && c->step < STEPS && c->todo->steps[c->step] != OP_NONE)
		return begin_call(l, c, c->todo->steps[c->step], clock_ns());
	c->todo = NULL;
	c->op = OP_NONE;
	uint64_t now = clock_ns();
	return l->per_ns > 0 || now >= l->end_ns ? 0 : begin_scenario(l, c, now);
}

static const char *header(const struct client *c, const char *name)
{
	const char *p = strcasestr(c->head, name);
	return p ? p + strlen(name) : NULL;
}

/* The head is whole and ends with a NUL. */
static int take_head(struct client *c)
{
	const char *length = header(c, "\r\nContent-Length: ");
	if (sscanf(c->head, "HTTP/1.1 %d", &c->status) != 1)
		return -EPROTO;
	c->chunked = header(c, "\r\nTransfer-Encoding: chunked") != NULL;
	c->left = length && c->status != 204 ? strtoull(length, NULL, 10) : 0;
	c->in_body = true;
	return 0;
}

static void keep(struct client *c, const char *p, size_t n)
{
	size_t room = KEEP - c->kept;
	n = n < room ? n : room;
	memcpy(c->keep + c->kept, p, n);
	c->kept += n;
}

/* Chunks: their size's line (chunk 0), bytes (1), the line end behind (2); at the end the trailer
 * up to an empty line (3). Returns what was eaten; *whole: it was the end. */
static ssize_t eat_chunks(struct client *c, const char *p, size_t n, bool *whole)
{
	size_t at = 0;
	while (at < n && !*whole) {
		if (c->chunk == 1) {
			size_t part = n - at < c->left ? n - at : (size_t)c->left;
			keep(c, p + at, part);
			at += part;
			c->left -= part;
			c->chunk = c->left ? 1 : 2;
			continue;
		}
		char ch = p[at++];
		if (ch == '\r')
			continue;
		if (ch != '\n') {
			if (c->chunk == 0 && c->line < 8) {
				int v = ch >= '0' && ch <= '9' ? ch - '0'
					: ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
					: ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
								 : -1;
				if (v < 0)
					return -EPROTO;
				c->left = c->left << 4 | (unsigned)v;
			}
			c->line++;
			continue;
		}
		if (c->chunk == 0)
			c->chunk = c->left ? 1 : 3;
		else if (c->chunk == 2)
			c->chunk = 0;
		else if (c->line == 0)
			*whole = true;
		c->line = 0;
	}
	return (ssize_t)at;
}

static int eat(struct load *l, struct client *c, const char *p, size_t n)
{
	while (n > 0) {
		bool whole = false;
		ssize_t did;
		if (!c->todo)
			return -EPROTO; /* bytes that nobody asked for */
		if (!c->in_body) {
			c->head[c->head_len++] = *p;
			did = 1;
			if (c->head_len == HEAD_MAX)
				return -EPROTO;
			if (c->head_len >= 4 &&
			    memcmp(c->head + c->head_len - 4, "\r\n\r\n", 4) == 0) {
				c->head[c->head_len] = '\0';
				int r = take_head(c);
				if (r < 0)
					return r;
				whole = !c->chunked && c->left == 0;
			}
		} else if (c->chunked) {
			did = eat_chunks(c, p, n, &whole);
		} else {
			did = (ssize_t)(n < c->left ? n : c->left);
			keep(c, p, (size_t)did);
			c->left -= (size_t)did;
			whole = c->left == 0;
		}
		if (did < 0)
			return (int)did;
		p += did;
		n -= (size_t)did;
		if (whole) {
			int r = answered(l, c);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int pull(struct load *l, struct client *c)
{
	static char in[IN_BYTES];
	ssize_t n = recv(c->fd, in, sizeof(in), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	l->bytes_in += (size_t)n;
	return n == 0 ? -ECONNRESET : eat(l, c, in, (size_t)n);
}

/* A connection that failed counts as an error, and is made anew. */
static int lost(struct load *l, struct client *c, int r)
{
	fault(l, c, strerror(-r));
	close(c->fd);
	c->todo = NULL;
	r = open_client(l, c);
	if (r < 0)
		return r;
	uint64_t now = clock_ns();
	return l->per_ns > 0 || now >= l->end_ns ? 0 : begin_scenario(l, c, now);
}

/* ---- the run ---- */

/* Begins what is due, as far as there are idle clients; how long until the next is, in ms. */
static int arrivals(struct load *l, unsigned *idle_from)
{
	uint64_t now = clock_ns();
	for (;;) {
		uint64_t due = l->first_ns + (uint64_t)((double)l->begun / l->per_ns);
		if (due >= l->end_ns)
			return 100;
		if (due > now)
			return (int)((due - now) / 1000000);
		struct client *c = NULL;
		for (unsigned i = 0; i < l->nclients && !c; i++) {
			struct client *o = &l->clients[(*idle_from + i) % l->nclients];
			if (!o->todo)
				c = o;
		}
		if (!c) {
			l->late++;
			return 1; /* it waits, and its time counts */
		}
		*idle_from = (unsigned)(c - l->clients) + 1;
		l->begun++;
		int r = begin_scenario(l, c, due);
		if (r < 0 && (r = lost(l, c, r)) < 0)
			return r;
	}
}

static bool busy(const struct load *l)
{
	for (unsigned i = 0; i < l->nclients; i++)
		if (l->clients[i].todo)
			return true;
	return false;
}

static int run(struct load *l)
{
	struct epoll_event events[64];
	unsigned idle_from = 0;
	int r = 0;
	for (unsigned i = 0; i < l->nclients && l->per_ns <= 0; i++)
		if ((r = begin_scenario(l, &l->clients[i], clock_ns())) < 0)
			return r;
	while (clock_ns() < l->end_ns || busy(l)) {
		int wait = 100;
		if (l->per_ns > 0 && (wait = arrivals(l, &idle_from)) < 0)
			return wait;
		if (clock_ns() > l->end_ns + (uint64_t)END_MS * 1000000)
			break;
		int n = epoll_wait(l->epoll, events, 64, wait);
		for (int i = 0; i < n; i++) {
			struct client *c = events[i].data.ptr;
			r = events[i].events & EPOLLOUT ? push(l, c) : 0;
			if (r >= 0 && events[i].events & ~(unsigned)EPOLLOUT)
				r = pull(l, c);
			if (r < 0 && (r = lost(l, c, r)) < 0)
				return r;
		}
	}
	for (unsigned i = 0; i < l->nclients; i++)
		if (l->clients[i].todo)
			fault(l, &l->clients[i], "no answer a minute behind the end");
	return 0;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static void print(struct load *l, double seconds)
{
	size_t all = 0;
	for (unsigned i = 0; i < OPS; i++)
		all += l->times[i].n;
	printf("{\"seconds\": %.3f, \"requests\": %zu, \"errors\": %llu, \"bytes_in\": %llu, "
	       "\"bytes_out\": %llu, \"late\": %llu, \"ops\": {",
	       seconds, all, (unsigned long long)l->errors, (unsigned long long)l->bytes_in,
	       (unsigned long long)l->bytes_out, (unsigned long long)l->late);
	const char *comma = "";
	for (unsigned i = 0; i < OPS; i++) {
		struct times *t = &l->times[i];
		if (t->n == 0)
			continue;
		qsort(t->us, t->n, sizeof(*t->us), by_value);
		printf("%s\"%s\": {\"n\": %zu, \"p50_us\": %u, \"p90_us\": %u, \"p99_us\": %u, "
		       "\"max_us\": %u}",
		       comma, op_names[i], t->n, t->us[t->n / 2], t->us[t->n * 9 / 10],
		       t->us[t->n * 99 / 100], t->us[t->n - 1]);
		comma = ", ";
	}
	printf("}}\n");
}

static int parse_mix(struct load *l, char *mix)
{
	char *rest;
	for (char *p = strtok_r(mix, ",", &rest); p; p = strtok_r(NULL, ",", &rest)) {
		char *eq = strchr(p, '=');
		struct scenario *s = scenarios;
		if (!eq)
			return -EINVAL;
		*eq = '\0';
		while (s < scenarios + NSCENARIOS && strcmp(s->name, p) != 0)
			s++;
		if (s == scenarios + NSCENARIOS)
			return -EINVAL;
		s->weight = (unsigned)strtoul(eq + 1, NULL, 10);
		l->weights += s->weight;
	}
	return l->weights ? 0 : -EINVAL;
}

static int read_workspaces(struct load *l)
{
	char line[64];
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (array_grow(&l->ws, l->nws, &l->cap_ws) < 0)
			return -ENOMEM;
		(void)snprintf(l->ws[l->nws++], ID, "%.15s", line);
	}
	return l->nws ? 0 : -EINVAL;
}

static int set_up(struct load *l, const char *seconds, const char *rate)
{
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->clients = calloc(l->nclients, sizeof(*l->clients));
	l->noise = malloc(2 * BIG);
	l->rng = 88172645463325252ULL;
	if (l->epoll < 0 || !l->clients || !l->noise)
		return -ENOMEM;
	for (size_t i = 0; i < 2 * BIG; i++)
		l->noise[i] = (uint8_t)(next(&l->rng) >> 32);
	for (unsigned i = 0; i < l->nclients; i++) {
		struct client *c = &l->clients[i];
		c->number = i;
		c->rng = next(&l->rng) | 1;
		int r = open_client(l, c);
		if (r < 0)
			return r;
	}
	l->first_ns = clock_ns();
	l->per_ns = strtod(rate, NULL) / 1e9;
	l->end_ns = l->first_ns + (uint64_t)(strtod(seconds, NULL) * 1e9);
	return 0;
}

int main(int argc, char **argv)
{
	struct load l = { 0 };
	if (argc != 6) {
		(void)fprintf(stderr, "usage: load SOCKET CLIENTS SECONDS RATE MIX <workspaces\n");
		return 2;
	}
	l.path = argv[1];
	l.nclients = (unsigned)strtoul(argv[2], NULL, 10);
	int r = l.nclients && l.nclients <= CLIENTS_MAX ? parse_mix(&l, argv[5]) : -EINVAL;
	if (r >= 0)
		r = read_workspaces(&l);
	if (r >= 0)
		r = set_up(&l, argv[3], argv[4]);
	if (r >= 0)
		r = run(&l);
	if (r < 0) {
		(void)fprintf(stderr, "load: %s\n", strerror(-r));
		return 1;
	}
	print(&l, (double)(clock_ns() - l.first_ns) / 1e9);
	for (unsigned i = 0; i < l.nclients; i++) {
		close(l.clients[i].fd);
		buf_done(&l.clients[i].out);
	}
	for (unsigned i = 0; i < OPS; i++)
		free(l.times[i].us);
	free(l.clients);
	free(l.noise);
	free(l.ws);
	close(l.epoll);
	return l.errors ? 1 : 0;
}
