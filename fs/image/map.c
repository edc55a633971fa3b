/* Opening, mapping and guarding an image.
 *
 * The guard: a page of the map that the disk can't give (a bad sector, a file cut short)
 * raises SIGBUS in whichever thread touches it. One handler for the process finds the image
 * by the address, counts the fault, marks the block bad, and puts zeros in the block's place;
 * then the access goes on and finds zeros. A call that may have read them sees the counter
 * changed when it ends (IMAGE_GUARDED) and starts again, and now meets the bad block. So the
 * usual path costs two loads of a counter, there are no jumps out of a handler, and a
 * pointer into the image that a caller still holds never kills the process. */
#include "fs/image/map.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "fs/base/cleanup.h"

/* ---- the guard ---- */

/* Who is mapped where, for the handler, which can take no lock: entries are only ever added
 * to the list, and reused under the mutex with an odd `seq` meanwhile. The entry of the image
 * whose page is missing doesn't change, since somebody uses it. */
struct map_entry {
	struct map_entry *next;
	_Atomic uint32_t seq;
	_Atomic(struct image *) im; /* NULL: free */
	_Atomic uintptr_t base, end;
};

static _Atomic(struct map_entry *) map_list;
static pthread_mutex_t map_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction map_old_action;
static size_t map_page;

static struct image *map_find(uintptr_t addr)
{
	for (struct map_entry *e = atomic_load(&map_list); e; e = e->next) {
		uint32_t seq = atomic_load(&e->seq);
		struct image *im = atomic_load(&e->im);
		uintptr_t base = atomic_load(&e->base), end = atomic_load(&e->end);
		if (!(seq & 1) && atomic_load(&e->seq) == seq && im && addr >= base && addr < end)
			return im;
	}
	return NULL;
}

static void block_set_bad(struct image *im, uint64_t block)
{
	if (atomic_exchange(&im->state[block], BLOCK_BAD) != BLOCK_BAD)
		atomic_fetch_add(&im->bad, 1);
}

/* Zeros in place of the block around `off`. Async-signal-safe. */
static bool map_replace(struct image *im, uint64_t off)
{
	const struct image_layout *l = &im->layout;
	uint64_t from = off < l->header_bytes ? off : off - (off - l->header_bytes) % IMAGE_BLOCK;
	uint64_t to = off < l->header_bytes ? off + 1 : from + IMAGE_BLOCK;
	from -= from % map_page;
	to = (to + map_page - 1) / map_page * map_page;
	if (to > im->map_bytes)
		to = im->map_bytes;
	/* First the counter, then the blocks, then the zeros: who reads a zero sees the rest. */
	atomic_fetch_add(&im->faults, 1);
	for (uint64_t b = 0; to > l->header_bytes; b++) {
		uint64_t first = from > l->header_bytes ? (from - l->header_bytes) / IMAGE_BLOCK
							: 0;
		if (first + b > (to - 1 - l->header_bytes) / IMAGE_BLOCK || first + b >= l->blocks)
			break;
		block_set_bad(im, first + b);
	}
	/* The bare call: nothing of libc or a sanitizer stands between it and the kernel. */
	return syscall(SYS_mmap, (uintptr_t)im->base + from, to - from, PROT_READ,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L) != -1;
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	uintptr_t addr = (uintptr_t)info->si_addr;
	/* si_code > 0: the kernel sent it, so there is an address. */
	struct image *im = info->si_code > 0 ? map_find(addr) : NULL;
	if (im && map_replace(im, addr - (uintptr_t)im->base)) {
		errno = saved;
		return;
	}
	errno = saved;
	/* Not ours. Whoever had the signal before us may have been told of us, and call back. */
	static _Thread_local volatile sig_atomic_t passing;
	if (passing)
		map_old_action = (struct sigaction){ .sa_handler = SIG_DFL };
	passing = 1;
	if (map_old_action.sa_flags & SA_SIGINFO)
		map_old_action.sa_sigaction(sig, info, context);
	else if (map_old_action.sa_handler != SIG_DFL && map_old_action.sa_handler != SIG_IGN)
		map_old_action.sa_handler(sig);
	else if (signal(sig, SIG_DFL) == SIG_ERR || info->si_code <= 0)
		(void)raise(sig); /* sent by somebody: nothing will raise it again */
	passing = 0;
}

/* Takes the signal over, unless it is ours already. Called with the mutex held. */
static void guard_install(void)
{
	struct sigaction now,
		sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_RESTART };
	map_page = (size_t)sysconf(_SC_PAGESIZE);
	(void)sigemptyset(&sa.sa_mask);
	/* These can't fail: the signal exists. */
	(void)sigaction(SIGBUS, NULL, &now);
	if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus)
		return;
	map_old_action = now;
	(void)sigaction(SIGBUS, &sa, NULL);
}

static int map_register(struct image *im)
{
	(void)pthread_mutex_lock(&map_mutex);
	guard_install();
	struct map_entry *e = atomic_load(&map_list);
	while (e && atomic_load(&e->im))
		e = e->next;
	bool fresh = !e;
	if (fresh)
		e = calloc(1, sizeof(*e));
	if (e) {
		atomic_fetch_add(&e->seq, 1);
		atomic_store(&e->base, (uintptr_t)im->base);
		atomic_store(&e->end, (uintptr_t)im->base + im->map_bytes);
		atomic_store(&e->im, im);
		atomic_fetch_add(&e->seq, 1);
		if (fresh) {
			e->next = atomic_load(&map_list);
			atomic_store(&map_list, e);
		}
	}
	(void)pthread_mutex_unlock(&map_mutex);
	return e ? 0 : -ENOMEM;
}

static void map_unregister(const struct image *im)
{
	(void)pthread_mutex_lock(&map_mutex);
	for (struct map_entry *e = atomic_load(&map_list); e; e = e->next)
		if (atomic_load(&e->im) == im) {
			atomic_fetch_add(&e->seq, 1);
			atomic_store(&e->im, NULL);
			atomic_fetch_add(&e->seq, 1);
			break;
		}
	(void)pthread_mutex_unlock(&map_mutex);
}

int image_block_check(struct image *im, uint64_t block)
{
	uint8_t state = atomic_load(&im->state[block]);
	if (state != BLOCK_UNKNOWN)
		return state == BLOCK_GOOD ? 0 : -EIO;
	uint64_t at = im->layout.header_bytes + block * IMAGE_BLOCK;
	uint64_t left = im->layout.file_bytes - at;
	struct digest d;
	hash_sha256(&d, im->base + at, left < IMAGE_BLOCK ? left : IMAGE_BLOCK);
	if (memcmp(d.b, im->header + IMAGE_HEADER_FIXED + block * sizeof(d), sizeof(d)) != 0) {
		block_set_bad(im, block);
		return -EIO;
	}
	/* Unless the handler took the block away in the meantime. */
	if (!atomic_compare_exchange_strong(&im->state[block], &state, BLOCK_GOOD) &&
	    state != BLOCK_GOOD)
		return -EIO;
	return 0;
}

/* ---- opening ---- */

/* Decodes the fixed part of a header. Any bytes: 0, or -EBADMSG with the reason. */
static int header_decode(struct image *im, const uint8_t *h, struct err *err)
{
	if (memcmp(h + HDR_MAGIC, IMAGE_MAGIC, 8) != 0)
		return err_set(err, -EBADMSG, "this is no image");
	uint32_t version = le_get32(h + HDR_VERSION);
	if (version != IMAGE_VERSION)
		return err_set(err, -EBADMSG, "the image has version %u, known is %d", version,
			       IMAGE_VERSION);
	im->counts = (struct image_counts){
		.runs = le_get64(h + HDR_RUNS),
		.inodes = le_get64(h + HDR_INODES),
		.dirents = le_get64(h + HDR_DIRENTS),
		.pieces = le_get64(h + HDR_PIECES),
		.xattrs = le_get64(h + HDR_XATTRS),
		.string_bytes = le_get64(h + HDR_STRING_BYTES),
	};
	im->info = (struct image_info){
		.seed = le_get64(h + HDR_SEED),
		.inodes = im->counts.inodes,
		.dirents = im->counts.dirents,
		.pieces = im->counts.pieces,
		.file_bytes = le_get64(h + HDR_FILE_BYTES),
		.data_bytes = le_get64(h + HDR_DATA_BYTES),
		.max_ino = le_get64(h + HDR_MAX_INO),
	};
	if (image_layout(&im->layout, &im->counts) < 0 || im->counts.inodes == 0 ||
	    im->counts.runs == 0 || im->counts.runs > im->counts.inodes ||
	    im->info.max_ino > IMAGE_INO_MAX || le_get32(h + HDR_BYTES) != im->layout.header_bytes)
		return err_set(err, -EBADMSG, "the image's header makes no sense");
	return 0;
}

/* Reads the header whole and compares it with its name. */
static int header_load(struct image *im, const struct io *io, int fd, const struct digest *name,
		       struct err *err)
{
	struct stat st;
	int r = io->fstat(io->ctx, fd, &st);
	if (r < 0)
		return err_sys(err, r, "stat");
	uint8_t fixed[IMAGE_HEADER_FIXED];
	ssize_t n = io_read_full(io, fd, fixed, sizeof(fixed), 0);
	if (n < 0)
		return err_sys(err, (int)n, "read");
	if ((size_t)n < sizeof(fixed))
		return err_set(err, -EBADMSG, "the image is cut short: %lld bytes",
			       (long long)st.st_size);
	r = header_decode(im, fixed, err);
	if (r < 0)
		return r;
	/* A claim larger than the file is not worth its memory. */
	if ((uint64_t)st.st_size < im->layout.header_bytes)
		return err_set(err, -EBADMSG, "the image is cut short: %lld bytes",
			       (long long)st.st_size);
	im->header = malloc(im->layout.header_bytes);
	if (!im->header)
		return err_set(err, -ENOMEM, "out of memory for an image");
	n = io_read_full(io, fd, im->header, im->layout.header_bytes, 0);
	if (n < 0)
		return err_sys(err, (int)n, "read");
	struct digest d;
	hash_sha256(&d, im->header, im->layout.header_bytes);
	if ((uint64_t)n < im->layout.header_bytes || !digest_equal(&d, name) ||
	    memcmp(fixed, im->header, sizeof(fixed)) != 0)
		return err_set(err, -EBADMSG, "the image's header is damaged");
	im->info.name = d;
	return 0;
}

static int image_map(struct image *im, int fd, struct err *err)
{
	im->state = calloc(im->layout.blocks, sizeof(*im->state));
	if (!im->state)
		return err_set(err, -ENOMEM, "out of memory for an image");
	im->map_bytes = im->layout.file_bytes;
	void *p = mmap(NULL, im->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		im->map_bytes = 0;
		return err_sys(err, -errno, "map %zu bytes", (size_t)im->layout.file_bytes);
	}
	im->base = p;
	return map_register(im) < 0 ? err_set(err, -ENOMEM, "out of memory for an image") : 0;
}

void image_idle(struct image *im)
{
	/* Only a hint. What is in place of blocks that can't be read is zeros afterwards, too. */
	(void)madvise((void *)(uintptr_t)im->base, im->map_bytes, MADV_DONTNEED);
}

static void image_free(struct image *im)
{
	if (!im)
		return;
	map_unregister(im);
	if (im->map_bytes)
		(void)munmap((void *)(uintptr_t)im->base, im->map_bytes); /* ours: can't fail */
	free(im->state);
	free(im->header);
	free(im);
}

static int open_fd(struct image *im, const struct io *io, const char *dir,
		   const struct digest *name, struct err *err)
{
	char file[IMAGE_FILE_NAME];
	image_file_name(file, name);
	int dirfd = io->open(io->ctx, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY, 0);
	if (dirfd < 0)
		return err_sys(err, dirfd, "open folder %s", dir);
	int fd = io->open(io->ctx, dirfd, file, O_RDONLY, 0);
	(void)io->close(io->ctx, dirfd); /* only looked into */
	if (fd < 0)
		return err_sys(err, fd, "open");
	int r = header_load(im, io, fd, name, err);
	if (r == 0)
		r = image_map(im, fd, err);
	(void)io->close(io->ctx, fd); /* only read; the map stays */
	return r;
}

int image_open(struct image **out, const struct io *io, const char *dir, const struct digest *name,
	       struct err *err)
{
	struct image *im = calloc(1, sizeof(*im));
	if (!im)
		return err_set(err, -ENOMEM, "out of memory for an image");
	atomic_init(&im->refs, 1);
	int r = open_fd(im, io ? io : &io_host, dir, name, err);
	if (r < 0) {
		char hex[DIGEST_HEX + 1];
		digest_hex(hex, name);
		image_free(im);
		return err_prefix(err, r, "image %s", hex);
	}
	*out = im;
	return 0;
}

struct image *image_ref(struct image *im)
{
	if (im)
		(void)atomic_fetch_add_explicit(&im->refs, 1, memory_order_relaxed);
	return im;
}

void image_unref(struct image *im)
{
	if (im && atomic_fetch_sub_explicit(&im->refs, 1, memory_order_acq_rel) == 1)
		image_free(im);
}

const struct image_info *image_info(const struct image *im)
{
	return &im->info;
}

uint64_t image_bad_blocks(const struct image *im)
{
	return atomic_load_explicit(&im->bad, memory_order_relaxed);
}
