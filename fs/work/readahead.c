#include "fs/work/readahead.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fs/base/cleanup.h"

enum {
	NICENESS = 5,     /* gives way, but not for ever: it holds locks for moments */
	DOUBT_MAX = 64,   /* reads that aren't looked at after so many false hopes */
	SKIPS_MAX = 32,   /* foreseen files passed over, */
	SKIPS_A_HIT = 4,  /* more than so many for each one read: the guess is a bad one */
	STRAYS_MAX = 16,  /* reads in a row that weren't foreseen */
	LEAD = 3,         /* files left to a reader that has caught up */
	STACK_BYTES = 512 << 10, /* as a worker's: only what is touched costs memory */
};

/* Items are numbered from the stream's beginning on: those in [passed, end) are listed and
 * still to be read, of which those below `next` have been loaded. An item stays in the ring
 * for a while after it was passed, so that a read out of order is known. */
struct stream {
	void *tree;      /* NULL: free */
	uint64_t serial; /* another one: what the thread did meanwhile is of no use */
	enum { WATCH, CHECK, RUN } state;
	bool ended;              /* RUN: list gives no more */
	struct ahead_place last; /* of the last read that wasn't foreseen; cookie 0: none */
	uint64_t last_ino;
	struct ahead_place at; /* CHECK: the read before it; RUN: where to list on */
	uint64_t second;       /* CHECK: is this file near behind it? */
	uint64_t passed, next, end;
	uint64_t bytes, window; /* of the items in [passed, next), and where to pause */
	unsigned strays, hits, skips;
	unsigned doubt, wait;    /* reads to let go before the next check: last time, and left */
	uint64_t used;           /* when last, in notes */
	struct ahead_item *ring; /* AHEAD_ITEMS; NULL: none yet */
};

struct readahead {
	struct ahead_ops ops;
	uint32_t window_max;
	pthread_mutex_t lock;
	pthread_cond_t work, idle; /* something to do; `in_use` was left */
	struct stream streams[AHEAD_STREAMS];
	unsigned turn;
	void *in_use; /* the tree that is being listed */
	bool stop, waits, has_thread;
	atomic_bool busy;
	struct ahead_stats stats;
	pthread_t thread;
};

static struct ahead_item *item(const struct stream *s, uint64_t i)
{
	return &s->ring[i % AHEAD_ITEMS];
}

/* ---- streams ---- */

static void stream_done(struct readahead *ra, struct stream *s)
{
	if (s->state == RUN)
		ra->stats.ends++;
	s->state = WATCH;
	s->serial++;
}

static void stream_fail(struct readahead *ra, struct stream *s)
{
	stream_done(ra, s);
	s->doubt = s->doubt ? s->doubt * 2 : 1;
	if (s->doubt > DOUBT_MAX)
		s->doubt = DOUBT_MAX;
	s->wait = s->doubt;
}

static void stream_drop(struct stream *s)
{
	*s = (struct stream){ .ring = s->ring, .serial = s->serial + 1 };
}

/* From that place on. */
static void stream_run(struct stream *s, struct ahead_place at)
{
	s->state = RUN;
	s->serial++;
	s->ended = false;
	s->at = at;
	s->passed = s->next = s->end = 0;
	s->bytes = 0;
	s->strays = s->hits = s->skips = 0;
}

/* The tree's own, or the one least recently used, which is its own from now on. */
static struct stream *stream_of(struct readahead *ra, void *tree)
{
	struct stream *oldest = &ra->streams[0];
	for (unsigned i = 0; i < AHEAD_STREAMS; i++) {
		struct stream *s = &ra->streams[i];
		if (s->tree == tree)
			return s;
		if (!s->tree || (oldest->tree && s->used < oldest->used))
			oldest = s;
	}
	stream_drop(oldest);
	oldest->tree = tree;
	return oldest;
}

static bool wants_load(const struct stream *s)
{
	return s->state == RUN && s->next != s->end && s->bytes < s->window;
}

static bool wants_list(const struct stream *s)
{
	return s->state == RUN && s->next == s->end && !s->ended && s->bytes < s->window &&
	       s->end - s->passed <= AHEAD_ITEMS / 2;
}

static void advance(struct stream *s)
{
	s->bytes += item(s, s->next++)->bytes;
}

/* ---- what is read ---- */

/* Everything up to item i has been read, or never will be. */
static void pass(struct readahead *ra, struct stream *s, uint64_t i)
{
	uint64_t skipped = s->skips;
	for (; s->passed != i + 1; s->passed++) {
		if (s->passed == s->next)
			advance(s);
		s->bytes -= item(s, s->passed)->bytes;
		s->skips += item(s, s->passed)->ino != item(s, i)->ino;
	}
	ra->stats.skips += s->skips - skipped;
	s->hits++;
	s->strays = 0;
	s->doubt = 0;
	s->window = s->window * 2 < ra->window_max ? s->window * 2 : ra->window_max;
	/* Overtaken: what it is about to read it unpacks itself, beside us. */
	for (unsigned n = 0; s->next == s->passed + n && n < LEAD && s->next != s->end; n++)
		advance(s);
	if (s->skips > SKIPS_MAX + SKIPS_A_HIT * s->hits)
		stream_fail(ra, s);
}

/* Was it foreseen? */
static bool foreseen(struct readahead *ra, struct stream *s, uint64_t ino)
{
	if (s->state != RUN)
		return false;
	for (uint64_t i = s->passed; i != s->end; i++)
		if (item(s, i)->ino == ino) {
			pass(ra, s, i);
			return true;
		}
	uint64_t kept = s->end > AHEAD_ITEMS ? s->end - AHEAD_ITEMS : 0;
	for (uint64_t i = s->passed; i != kept; i--)
		if (item(s, i - 1)->ino == ino)
			return true;
	return false;
}

static void stray(struct readahead *ra, struct stream *s, uint64_t ino, struct ahead_place at)
{
	if (s->state == RUN && s->passed == s->end && s->ended)
		stream_done(ra, s);
	else if (s->state == RUN && s->passed == s->end)
		stream_run(s, at); /* faster than we list: on from here */
	else if (s->state == RUN && ++s->strays > STRAYS_MAX)
		stream_fail(ra, s);
	if (s->state == WATCH && s->wait > 0) {
		s->wait--;
	} else if (s->state == WATCH && s->last.cookie != 0 && s->last_ino != ino) {
		s->state = CHECK;
		s->at = s->last;
		s->second = ino;
	}
	s->last = at;
	s->last_ino = ino;
}

static void *readahead_main(void *arg);

static int start_thread(struct readahead *ra)
{
	pthread_attr_t attr;
	int r = pthread_attr_init(&attr);
	if (r != 0)
		return -r;
	r = pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (r == 0)
		r = pthread_create(&ra->thread, &attr, readahead_main, ra);
	(void)pthread_attr_destroy(&attr);
	ra->has_thread = r == 0;
	return -r;
}

void readahead_note(struct readahead *ra, void *tree, uint64_t ino, struct ahead_place at)
{
	/* A note that is lost costs little; the thread may have to wait while it has the lock. */
	if (!ra || at.cookie == 0 || pthread_mutex_trylock(&ra->lock) != 0)
		return;
	struct stream *s = stream_of(ra, tree);
	s->used = ++ra->stats.notes;
	if (foreseen(ra, s, ino))
		ra->stats.foreseen++;
	else
		stray(ra, s, ino, at);
	/* Not for each file: half of the window is worth being woken for. */
	bool wanted = s->state == CHECK ||
		      (s->bytes <= s->window / 2 && (wants_load(s) || wants_list(s)));
	if (wanted && !ra->has_thread && start_thread(ra) < 0)
		stream_fail(ra, s);
	if (wanted && ra->has_thread)
		atomic_store_explicit(&ra->busy, true, memory_order_relaxed);
	if (wanted && ra->waits)
		pthread_cond_signal(&ra->work);
	pthread_mutex_unlock(&ra->lock);
}

/* ---- the thread: each of these has the lock, and is without it while it works ---- */

static int list(struct readahead *ra, const struct stream *s, struct ahead_place *at,
		struct ahead_item *items, unsigned max)
{
	void *tree = s->tree;
	ra->in_use = tree;
	pthread_mutex_unlock(&ra->lock);
	int n = ra->ops.list(tree, at, items, max);
	pthread_mutex_lock(&ra->lock);
	ra->in_use = NULL;
	pthread_cond_broadcast(&ra->idle);
	return n;
}

/* Does the last read follow the one before? */
static void check(struct readahead *ra, struct stream *s)
{
	struct ahead_item items[AHEAD_NEAR];
	uint64_t serial = s->serial;
	struct ahead_place at = s->at;
	ra->stats.checks++;
	int n = list(ra, s, &at, items, AHEAD_NEAR);
	if (s->serial != serial)
		return;
	bool near = false;
	for (int i = 0; i < n; i++)
		near |= items[i].ino == s->second;
	if (near && !s->ring)
		s->ring = malloc(AHEAD_ITEMS * sizeof(*s->ring));
	if (!near || !s->ring) {
		stream_fail(ra, s);
		return;
	}
	ra->stats.streams++;
	s->window = AHEAD_WINDOW_MIN < ra->window_max ? AHEAD_WINDOW_MIN : ra->window_max;
	stream_run(s, s->last);
}

static void load_next(struct readahead *ra, struct stream *s)
{
	struct digest object = item(s, s->next)->object;
	uint64_t serial = s->serial;
	advance(s);
	ra->stats.loads++;
	pthread_mutex_unlock(&ra->lock);
	int r = ra->ops.load(ra->ops.ctx, &object);
	pthread_mutex_lock(&ra->lock);
	if (r < 0 && s->serial == serial)
		stream_fail(ra, s);
}

static void list_more(struct readahead *ra, struct stream *s)
{
	struct ahead_item items[AHEAD_LIST];
	uint64_t serial = s->serial;
	struct ahead_place at = s->at;
	int n = list(ra, s, &at, items, AHEAD_LIST);
	if (s->serial != serial)
		return;
	s->at = at;
	s->ended = n <= 0;
	for (int i = 0; i < n; i++)
		*item(s, s->end++) = items[i];
}

/* Something was done. */
static bool serve(struct readahead *ra)
{
	for (unsigned i = 0; i < AHEAD_STREAMS; i++) {
		struct stream *s = &ra->streams[ra->turn++ % AHEAD_STREAMS];
		if (!s->tree)
			continue;
		if (s->state == CHECK)
			check(ra, s);
		else if (wants_load(s))
			load_next(ra, s);
		else if (wants_list(s))
			list_more(ra, s);
		else
			continue;
		return true;
	}
	return false;
}

static void *readahead_main(void *arg)
{
	struct readahead *ra = arg;
	(void)pthread_setname_np(pthread_self(), "fs-ahead"); /* for people only */
	(void)!nice(NICENESS); /* of this thread alone, on Linux */
	pthread_mutex_lock(&ra->lock);
	while (!ra->stop) {
		if (serve(ra))
			continue;
		atomic_store_explicit(&ra->busy, false, memory_order_relaxed);
		ra->waits = true;
		pthread_cond_wait(&ra->work, &ra->lock);
		ra->waits = false;
	}
	pthread_mutex_unlock(&ra->lock);
	return NULL;
}

/* ---- life ---- */

int readahead_new(struct readahead **out, const struct ahead_ops *ops, uint32_t window_max)
{
	struct readahead *ra = calloc(1, sizeof(*ra));
	if (!ra)
		return -ENOMEM;
	ra->ops = *ops;
	ra->window_max = window_max ? window_max : AHEAD_WINDOW_MAX;
	(void)pthread_mutex_init(&ra->lock, NULL);
	(void)pthread_cond_init(&ra->work, NULL);
	(void)pthread_cond_init(&ra->idle, NULL);
	*out = ra;
	return 0;
}

void readahead_free(struct readahead *ra)
{
	if (!ra)
		return;
	pthread_mutex_lock(&ra->lock);
	ra->stop = true;
	pthread_cond_signal(&ra->work);
	pthread_mutex_unlock(&ra->lock);
	if (ra->has_thread)
		(void)pthread_join(ra->thread, NULL); /* ours and joinable */
	for (unsigned i = 0; i < AHEAD_STREAMS; i++)
		free(ra->streams[i].ring);
	(void)pthread_cond_destroy(&ra->work);
	(void)pthread_cond_destroy(&ra->idle);
	(void)pthread_mutex_destroy(&ra->lock);
	free(ra);
}

void readahead_forget(struct readahead *ra, void *tree)
{
	if (!ra)
		return;
	pthread_mutex_lock(&ra->lock);
	for (unsigned i = 0; i < AHEAD_STREAMS; i++)
		if (ra->streams[i].tree == tree)
			stream_drop(&ra->streams[i]);
	while (ra->in_use == tree)
		pthread_cond_wait(&ra->idle, &ra->lock);
	pthread_mutex_unlock(&ra->lock);
}

void readahead_trim(struct readahead *ra)
{
	if (!ra)
		return;
	pthread_mutex_lock(&ra->lock);
	for (unsigned i = 0; i < AHEAD_STREAMS; i++) {
		stream_drop(&ra->streams[i]);
		free(steal_ptr(&ra->streams[i].ring));
	}
	pthread_mutex_unlock(&ra->lock);
}

bool readahead_is_busy(const struct readahead *ra)
{
	return ra && atomic_load_explicit(&ra->busy, memory_order_relaxed);
}

void readahead_stats(struct readahead *ra, struct ahead_stats *out)
{
	pthread_mutex_lock(&ra->lock);
	*out = ra->stats;
	pthread_mutex_unlock(&ra->lock);
}
