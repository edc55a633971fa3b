/* Figures of requests: how many of each route ended how, and how long they took. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/clock.h"
#include "snapd/outcome.h"

enum { CLASSES = 5, BUCKETS = 12 };

static const double bounds[BUCKETS] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
					0.05,   0.1,   0.5,    1,     5,    30 };

struct figures {
	uint64_t ended[CLASSES];      /* 1xx … 5xx */
	uint64_t within[BUCKETS + 1]; /* not cumulative; the last: longer than all */
	uint64_t sum_ns;
};

struct metrics {
	struct figures *of; /* a route each */
};

struct metrics *metrics_new(void)
{
	struct metrics *m = calloc(1, sizeof(*m));
	if (!m || !(m->of = calloc(api_nroutes, sizeof(*m->of)))) {
		free(m);
		return NULL;
	}
	return m;
}

void metrics_free(struct metrics *m)
{
	if (!m)
		return;
	free(m->of);
	free(m);
}

static void add(uint64_t *to, uint64_t n)
{
	(void)__atomic_add_fetch(to, n, __ATOMIC_RELAXED);
}

static uint64_t get(const uint64_t *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

void metrics_count(struct metrics *m, const struct doing *d, unsigned status)
{
	size_t i = 0, b = 0;
	while (i < api_nroutes &&
	       (api_routes[i].path != d->pattern || api_routes[i].method != d->method))
		i++;
	if (i == api_nroutes || status < 100 || status > 599)
		return;
	uint64_t ns = clock_ns() - d->begun_ns;
	while (b < BUCKETS && (double)ns / 1e9 > bounds[b])
		b++;
	add(&m->of[i].ended[status / 100 - 1], 1);
	add(&m->of[i].within[b], 1);
	add(&m->of[i].sum_ns, ns);
}

static void print_route(const struct figures *f, const struct route *rt, struct buf *out)
{
	uint64_t sum = 0;
	for (size_t b = 0; b < BUCKETS; b++) {
		sum += get(&f->within[b]);
		buf_printf(out,
			   "bough_http_request_duration_seconds_bucket{method=\"%s\",path=\"%s\","
			   "le=\"%g\"} %llu\n",
			   rt->method, rt->path, bounds[b], (unsigned long long)sum);
	}
	sum += get(&f->within[BUCKETS]);
	buf_printf(
		out,
		"bough_http_request_duration_seconds_bucket{method=\"%s\",path=\"%s\",le=\"+Inf\"}"
		" %llu\n",
		rt->method, rt->path, (unsigned long long)sum);
	buf_printf(out,
		   "bough_http_request_duration_seconds_sum{method=\"%s\",path=\"%s\"} %.6f\n"
		   "bough_http_request_duration_seconds_count{method=\"%s\",path=\"%s\"} %llu\n",
		   rt->method, rt->path, (double)get(&f->sum_ns) / 1e9, rt->method, rt->path,
		   (unsigned long long)sum);
}

void metrics_print(struct metrics *m, struct buf *out)
{
	buf_printf(out, "# HELP bough_http_requests_total Requests that were answered.\n"
			"# TYPE bough_http_requests_total counter\n");
	for (size_t i = 0; i < api_nroutes; i++)
		for (size_t k = 0; k < CLASSES; k++)
			if (get(&m->of[i].ended[k]) > 0)
				buf_printf(out,
					   "bough_http_requests_total{method=\"%s\",path=\"%s\","
					   "status=\"%zuxx\"} %llu\n",
					   api_routes[i].method, api_routes[i].path, k + 1,
					   (unsigned long long)get(&m->of[i].ended[k]));
	buf_printf(out,
		   "# HELP bough_http_request_duration_seconds From a request's head to the end"
		   " of its work.\n"
		   "# TYPE bough_http_request_duration_seconds histogram\n");
	for (size_t i = 0; i < api_nroutes; i++)
		for (size_t k = 0; k < CLASSES; k++)
			if (get(&m->of[i].ended[k]) > 0) {
				print_route(&m->of[i], &api_routes[i], out);
				break;
			}
}
