#include "fs/base/mapguard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Who is mapped where, for the handler, which can take no lock: entries are only ever added
 * to the list, and reused under the mutex with an odd `seq` meanwhile. The entry of the map
 * whose page is missing doesn't change, since somebody uses it. */
struct mapguard {
	struct mapguard *next;
	_Atomic uint32_t seq;
	_Atomic(mapguard_lost_fn) lost; /* NULL: free */
	_Atomic(void *) ctx;
	_Atomic uintptr_t base, end;
};

static _Atomic(struct mapguard *) list;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction old_action;
static _Atomic size_t page;

/* Whether somebody's map has the address, and there is something in its place now. */
static bool replace(uintptr_t addr)
{
	for (struct mapguard *g = atomic_load(&list); g; g = g->next) {
		uint32_t seq = atomic_load(&g->seq);
		mapguard_lost_fn lost = atomic_load(&g->lost);
		void *ctx = atomic_load(&g->ctx);
		uintptr_t base = atomic_load(&g->base), end = atomic_load(&g->end);
		if (!(seq & 1) && atomic_load(&g->seq) == seq && lost && addr >= base && addr < end)
			return lost(ctx, addr - base);
	}
	return false;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	/* si_code > 0: the kernel sent it, so there is an address. */
	bool ours = info->si_code > 0 && replace((uintptr_t)info->si_addr);
	errno = saved;
	if (ours)
		return;
	/* Not ours. Whoever had the signal before us may have been told of us, and call back. */
	static _Thread_local volatile sig_atomic_t passing;
	if (passing)
		old_action = (struct sigaction){ .sa_handler = SIG_DFL };
	passing = 1;
	if (old_action.sa_flags & SA_SIGINFO)
		old_action.sa_sigaction(sig, info, context);
	else if (old_action.sa_handler != SIG_DFL && old_action.sa_handler != SIG_IGN)
		old_action.sa_handler(sig);
	else if (info->si_code > 0)
		(void)signal(sig, SIG_DFL); /* the access is done again, and ends the process */
	else if (old_action.sa_handler != SIG_IGN && signal(sig, SIG_DFL) != SIG_ERR)
		(void)raise(sig); /* sent by somebody: nothing will raise it again */
	passing = 0;
}

/* Takes the signal over, unless it is ours already. Called with the mutex held. */
static void install(void)
{
	struct sigaction now,
		sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_RESTART };
	atomic_store(&page, (size_t)sysconf(_SC_PAGESIZE));
	(void)sigemptyset(&sa.sa_mask);
	/* These can't fail: the signal exists. */
	(void)sigaction(SIGBUS, NULL, &now);
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus)
		return;
	old_action = now;
	(void)sigaction(SIGBUS, &sa, NULL);
}

int mapguard_add(struct mapguard **out, const void *base, size_t len, mapguard_lost_fn lost,
		 void *ctx)
{
	(void)pthread_mutex_lock(&mutex);
	install();
	struct mapguard *g = atomic_load(&list);
	while (g && atomic_load(&g->lost))
		g = g->next;
	bool fresh = !g;
	if (fresh)
		g = calloc(1, sizeof(*g));
	if (g) {
		atomic_fetch_add(&g->seq, 1);
		atomic_store(&g->base, (uintptr_t)base);
		atomic_store(&g->end, (uintptr_t)base + len);
		atomic_store(&g->ctx, ctx);
		atomic_store(&g->lost, lost);
		atomic_fetch_add(&g->seq, 1);
		if (fresh) {
			g->next = atomic_load(&list);
			atomic_store(&list, g);
		}
	}
	(void)pthread_mutex_unlock(&mutex);
	*out = g;
	return g ? 0 : -ENOMEM;
}

void mapguard_remove(struct mapguard *g)
{
	if (!g)
		return;
	(void)pthread_mutex_lock(&mutex);
	atomic_fetch_add(&g->seq, 1);
	atomic_store(&g->lost, NULL);
	atomic_fetch_add(&g->seq, 1);
	(void)pthread_mutex_unlock(&mutex);
}

size_t mapguard_page(void)
{
	return atomic_load(&page);
}

bool mapguard_zero(const void *base, size_t from, size_t to)
{
	size_t p = mapguard_page();
	from -= from % p;
	to = (to + p - 1) / p * p;
	/* The bare call: nothing of libc or a sanitizer stands between it and the kernel. */
	return syscall(SYS_mmap, (uintptr_t)base + from, to - from, PROT_READ,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L) != -1;
}
