#include "tools/pack/gitfiles.h"

#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "fs/base/refused.h"
#include "tools/pack/walk.h"

enum {
	COPY_BYTES = 1 << 20,
	BLOCK_BYTES = 256 * 1024,
	SMALL_MAX = 64 << 10,      /* HEAD, gitdir, commondir, config, alternates */
	REF_FILE_MAX = 4096,       /* a loose ref: an id or "ref: …" */
	REFS_FILE_MAX = 256 << 20, /* packed-refs */
	PLACES_MAX = 64,           /* object folders that borrow from each other */
	CHECKSUM_BYTES = 20,
	/* A repack that goes on removes packs while they are listed, an index and its pack one
	 * after the other: 2 s of them. */
	RESCANS = 100,
	RESCAN_US = 20000,
};

struct files {
	struct err *err;
	struct archive *a;
	struct archive_entry *e;
	char *gitdir, *common; /* HEAD is in the first; refs and objects in the second */
	char *places[PLACES_MAX];
	size_t nplaces;
	char *known;        /* the lines, each ended by a NUL … */
	const char **lines; /* … in order */
	size_t nlines;
	struct buf sent; /* checksums (hex) of packs that are in the stream, newline behind each */
	uint8_t *copy;
	int out;
	bool abandoned; /* nothing more goes to the stream */
};

static int out_of_memory(struct files *f)
{
	return err_no_memory(f->err);
}

static char *join(const char *dir, const char *name)
{
	char *path;
	if (name[0] == '/')
		return strdup(name);
	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

/* A small file, NUL-terminated, the caller's; NULL and 0 where there is none. */
static int small(struct files *f, const char *dir, const char *name, size_t max, char **out)
{
	auto_free char *path = join(dir, name);
	void *data;
	size_t len;
	if (!path)
		return out_of_memory(f);
	*out = NULL;
	int r = io_slurp(&io_host, AT_FDCWD, path, max, &data, &len, f->err);
	if (r == -ENOENT || r == -ENOTDIR)
		return 0;
	if (r >= 0)
		*out = data;
	return r;
}

static void cut_line(char *s)
{
	s[strcspn(s, "\r\n")] = '\0';
}

/* ---- which repository ---- */

static bool is_gitdir(const char *dir)
{
	auto_free char *head = join(dir, "HEAD");
	auto_free char *objects = join(dir, "objects"), *common = join(dir, "commondir");
	struct stat st;
	bool has = head && objects && common && lstat(head, &st) == 0 &&
		   (stat(objects, &st) == 0 || stat(common, &st) == 0);
	return has;
}

static int find_gitdir(struct files *f, const char *dir)
{
	static const char word[] = "gitdir: ";
	struct stat st;
	if (stat(dir, &st) < 0)
		return err_sys(f->err, -errno, "open %s", dir);
	auto_free char *inner = join(dir, ".git");
	auto_free char *link = NULL;
	if (!inner)
		return out_of_memory(f);
	if (stat(inner, &st) == 0 && S_ISREG(st.st_mode)) {
		int r = small(f, dir, ".git", SMALL_MAX, &link);
		if (r < 0)
			return r;
		if (link)
			cut_line(link);
		if (link && strncmp(link, word, sizeof(word) - 1) == 0)
			f->gitdir = join(dir, link + sizeof(word) - 1);
	} else {
		f->gitdir = strdup(is_gitdir(inner) ? inner : dir);
	}
	if (!f->gitdir || !is_gitdir(f->gitdir))
		return err_set(f->err, -EINVAL, "%s isn't a git repository", dir);
	return 0;
}

static int find_common(struct files *f)
{
	auto_free char *text = NULL;
	int r = small(f, f->gitdir, "commondir", SMALL_MAX, &text);
	if (r < 0)
		return r;
	if (text)
		cut_line(text);
	f->common = text ? join(f->gitdir, text) : strdup(f->gitdir);
	return f->common ? 0 : out_of_memory(f);
}

/* A line "key = value" of any section of the configuration. */
static bool config_says(const char *text, const char *key, const char *value)
{
	for (const char *p = text; p && *p; p = strchr(p, '\n'), p += p != NULL) {
		while (*p == ' ' || *p == '\t')
			p++;
		if (strncasecmp(p, key, strlen(key)) != 0)
			continue;
		const char *v = p + strlen(key);
		v += strspn(v, " \t=\"");
		if (strncasecmp(v, value, strlen(value)) == 0)
			return true;
	}
	return false;
}

static int refuse(struct files *f)
{
	auto_free char *config = NULL;
	auto_free char *shallow = NULL;
	int r = small(f, f->common, "config", SMALL_MAX, &config);
	if (r >= 0)
		r = small(f, f->common, "shallow", REFS_FILE_MAX, &shallow);
	if (r < 0)
		return r;
	if (config && config_says(config, "objectformat", "sha256"))
		return err_set(f->err, -ENOTSUP,
			       "it is a SHA-256 repository, which isn't supported");
	if (config && config_says(config, "refstorage", "reftable"))
		return err_set(f->err, -ENOTSUP, "its refs are in tables, which isn't supported");
	if (config && config_says(config, "partialclone", ""))
		return err_set(f->err, -ENOTSUP, REFUSED_PARTIAL);
	if (shallow && *shallow)
		return err_set(f->err, -ENOTSUP, REFUSED_SHALLOW);
	return 0;
}

/* The object folder and those that it borrows from. */
static int find_places(struct files *f)
{
	f->places[0] = join(f->common, "objects");
	f->nplaces = f->places[0] != NULL;
	for (size_t i = 0; i < f->nplaces; i++) {
		auto_free char *text = NULL;
		int r = small(f, f->places[i], "info/alternates", SMALL_MAX, &text);
		if (r < 0)
			return r;
		for (char *save = NULL, *line = text ? strtok_r(text, "\n", &save) : NULL; line;
		     line = strtok_r(NULL, "\n", &save)) {
			auto_free char *place = line[0] == '#' ? NULL : join(f->places[i], line);
			auto_free char *real = place ? realpath(place, NULL) : NULL;
			size_t k = 0;
			while (real && k < f->nplaces && strcmp(f->places[k], real) != 0)
				k++;
			if (!real || k < f->nplaces)
				continue; /* gone: what it had will be missed, or not */
			if (f->nplaces == PLACES_MAX)
				return err_set(f->err, -E2BIG, "it borrows from too many others");
			f->places[f->nplaces++] = steal_ptr(&real);
		}
	}
	return f->nplaces ? 0 : out_of_memory(f);
}

/* ---- the stream ---- */

static la_ssize_t on_write(struct archive *a, void *ctx, const void *data, size_t n)
{
	struct files *f = ctx;
	if (f->abandoned)
		return (la_ssize_t)n; /* without the end mark nobody takes it for whole */
	ssize_t w;
	while ((w = write(f->out, data, n)) < 0 && errno == EINTR)
		;
	if (w < 0)
		archive_set_error(a, errno, "%s", strerrordesc_np(errno));
	return w;
}

static int write_err(struct files *f, const char *name)
{
	int number = archive_errno(f->a);
	const char *s = archive_error_string(f->a);
	return err_set(f->err, number > 0 ? -number : -EIO, "write %s: %s", name,
		       s ? s : "no reason given");
}

static int put_header(struct files *f, const char *name, uint64_t size)
{
	struct archive_entry *e = archive_entry_clear(f->e);
	archive_entry_set_pathname(e, name);
	archive_entry_set_filetype(e, AE_IFREG);
	archive_entry_set_perm(e, 0644);
	archive_entry_set_size(e, (la_int64_t)size);
	return archive_write_header(f->a, e) == ARCHIVE_OK ? 0 : write_err(f, name);
}

static int put_bytes(struct files *f, const char *name, const void *data, size_t n)
{
	while (n > 0) {
		la_ssize_t w = archive_write_data(f->a, data, n);
		if (w <= 0)
			return write_err(f, name);
		data = (const uint8_t *)data + w;
		n -= (size_t)w;
	}
	return 0;
}

static int put_text(struct files *f, const char *name, const char *text)
{
	int r = put_header(f, name, strlen(text));
	return r < 0 ? r : put_bytes(f, name, text, strlen(text));
}

/* A whole open file, which must not change: objects never do. */
static int put_file(struct files *f, const char *name, int fd)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return err_sys(f->err, -errno, "read %s", name);
	uint64_t size = (uint64_t)st.st_size, at = 0;
	int r = put_header(f, name, size);
	while (r >= 0 && at < size) {
		size_t part = size - at < COPY_BYTES ? (size_t)(size - at) : COPY_BYTES;
		ssize_t n = pread(fd, f->copy, part, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_sys(f->err, n < 0 ? -errno : -EIO, "read %s", name);
		r = put_bytes(f, name, f->copy, (size_t)n);
		at += (uint64_t)n;
	}
	return r;
}

/* ---- refs ---- */

static int put_loose_ref(struct files *f, const struct walk_entry *we)
{
	auto_free void *data = NULL;
	size_t len;
	char name[PATH_MAX];
	int n = snprintf(name, sizeof(name), "refs/%s", we->path + 2);
	struct err why = { 0 };
	int r = io_slurp(&io_host, we->dirfd, we->name, REF_FILE_MAX, &data, &len, &why);
	if (r == -ENOENT || n < 0 || n >= (int)sizeof(name))
		return 0; /* it went into packed-refs, which is read later; no name for a ref */
	if (r < 0)
		return err_set(f->err, r, "%s", why.text);
	return put_text(f, name, data);
}

static bool wanted_refs(const char *path)
{
	return strcmp(path, ".") == 0 || strcmp(path, "./heads") == 0 ||
	       strcmp(path, "./tags") == 0 || strncmp(path, "./heads/", 8) == 0 ||
	       strncmp(path, "./tags/", 7) == 0;
}

static int put_loose_refs(struct files *f)
{
	auto_free char *dir = join(f->common, "refs");
	struct walk w;
	struct walk_entry e;
	if (!dir)
		return out_of_memory(f);
	int r = walk_open(&w, dir, f->err);
	if (r < 0)
		return r;
	while ((r = walk_next(&w, &e)) != 0) {
		if (r == -ENOENT)
			continue;
		if (r < 0) {
			r = err_sys(f->err, r, "read refs%s", e.path + 1);
			break;
		}
		if (S_ISDIR(e.st.st_mode) && wanted_refs(e.path))
			r = walk_enter(&w);
		else if (S_ISREG(e.st.st_mode) && wanted_refs(e.path))
			r = put_loose_ref(f, &e);
		if (r < 0 && r != -ENOENT)
			break;
	}
	walk_close(&w);
	return r;
}

/* Loose ones first: one that is packed meanwhile is then seen twice rather than not at all. */
static int put_refs(struct files *f)
{
	auto_free char *head = NULL;
	auto_free char *packed = NULL;
	int r = small(f, f->gitdir, "HEAD", SMALL_MAX, &head);
	if (r >= 0 && !head)
		r = err_set(f->err, -EINVAL, "it has no HEAD");
	if (r >= 0)
		r = put_text(f, "HEAD", head);
	if (r >= 0)
		r = put_loose_refs(f);
	if (r >= 0)
		r = small(f, f->common, "packed-refs", REFS_FILE_MAX, &packed);
	if (r >= 0 && packed)
		r = put_text(f, "packed-refs", packed);
	return r;
}

/* ---- objects ---- */

static bool is_hex(const char *s, size_t n)
{
	return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int read_known(struct files *f, const char *text)
{
	size_t n = 1;
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		n++;
	f->known = strdup(text);
	f->lines = calloc(n, sizeof(*f->lines));
	if (!f->known || !f->lines)
		return out_of_memory(f);
	char *save = NULL;
	for (char *p = strtok_r(f->known, "\n", &save); p; p = strtok_r(NULL, "\n", &save))
		f->lines[f->nlines++] = p;
	if (f->nlines > 1)
		qsort(f->lines, f->nlines, sizeof(*f->lines), by_text);
	return 0;
}

static bool is_known(const struct files *f, const char *line)
{
	return f->nlines && bsearch(&line, f->lines, f->nlines, sizeof(*f->lines), by_text);
}

static int put_fanout(struct files *f, int objects, const char *fan)
{
	int fd = openat(objects, fan, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_dir *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		int r = errno == ENOENT ? 0 : err_sys(f->err, -errno, "list objects/%s", fan);
		if (fd >= 0)
			close(fd);
		return r;
	}
	const struct dirent *e;
	int r = 0;
	while (r >= 0 && (errno = 0, e = readdir(d))) {
		char name[80];
		char line[48];
		(void)snprintf(line, sizeof(line), "o%s%.38s", fan, e->d_name);
		if (!is_hex(e->d_name, 38) || is_known(f, line))
			continue;
		auto_fd file = openat(fd, e->d_name, O_RDONLY | O_CLOEXEC | O_NOATIME);
		if (file < 0 && errno == EPERM)
			file = openat(fd, e->d_name, O_RDONLY | O_CLOEXEC);
		(void)snprintf(name, sizeof(name), "objects/%s/%.38s", fan, e->d_name);
		if (file < 0 && errno != ENOENT) /* packed meanwhile: the packs come later */
			r = err_sys(f->err, -errno, "open %s", name);
		else if (file >= 0)
			r = put_file(f, name, file);
	}
	return r >= 0 && errno ? err_sys(f->err, -errno, "list objects/%s", fan) : r;
}

static int put_loose(struct files *f, const char *place)
{
	static const char digits[] = "0123456789abcdef";
	auto_fd objects = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (objects < 0)
		return err_sys(f->err, -errno, "open %s", place);
	int r = 0;
	for (int i = 0; i < 256 && r >= 0; i++) {
		const char fan[] = { digits[i >> 4], digits[i & 15], '\0' };
		r = put_fanout(f, objects, fan);
	}
	return r;
}

/* Whether a list of lines holds this one. */
static bool listed(const char *list, size_t len, const char *hex)
{
	size_t n = strlen(hex);
	for (const char *p = list, *end = list + len; p && p + n <= end;) {
		if (memcmp(p, hex, n) == 0 && (p + n == end || p[n] == '\n'))
			return true;
		p = memchr(p, '\n', (size_t)(end - p));
		p += p != NULL;
	}
	return false;
}

/* A pack and its index; 1: it went away meanwhile. `base` is its name without ".idx". */
static int put_pack(struct files *f, int dir, const char *base)
{
	uint8_t sum[CHECKSUM_BYTES];
	char hex[2 * CHECKSUM_BYTES + 1], name[NAME_MAX + 32];
	struct stat st;
	(void)snprintf(name, sizeof(name), "%.*s.pack", NAME_MAX, base);
	auto_fd pack = openat(dir, name, O_RDONLY | O_CLOEXEC);
	(void)snprintf(name, sizeof(name), "%.*s.idx", NAME_MAX, base);
	auto_fd idx = pack < 0 ? -1 : openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (pack < 0 || idx < 0)
		return errno == ENOENT ? 1 : err_sys(f->err, -errno, "open %s", name);
	if (fstat(pack, &st) < 0 || st.st_size < 2 * CHECKSUM_BYTES ||
	    pread(pack, sum, sizeof(sum), st.st_size - CHECKSUM_BYTES) != sizeof(sum))
		return err_set(f->err, -EBADMSG, "%s.pack is cut off", base);
	hex_encode(hex, sum, sizeof(sum));
	if (is_known(f, hex) || listed((const char *)f->sent.data, f->sent.len, hex))
		return 0;
	buf_printf(&f->sent, "%s\n", hex);
	if (buf_error(&f->sent))
		return out_of_memory(f);
	(void)snprintf(name, sizeof(name), "objects/pack/pack-%s.pack", hex);
	int r = put_file(f, name, pack);
	(void)snprintf(name, sizeof(name), "objects/pack/pack-%s.idx", hex);
	return r < 0 ? r : put_file(f, name, idx);
}

/* Ends with 1 when something went away: another look is needed. */
static int put_packs_once(struct files *f, const char *place)
{
	auto_free char *path = join(place, "pack");
	auto_dir *d = path ? opendir(path) : NULL;
	if (!d)
		return !path             ? out_of_memory(f)
		       : errno == ENOENT ? 0
					 : err_sys(f->err, -errno, "list %s", path);
	const struct dirent *e;
	int r = 0, again = 0;
	while (r >= 0 && (errno = 0, e = readdir(d))) {
		char base[NAME_MAX + 1];
		size_t n = strlen(e->d_name);
		if (n > 9 && strcmp(e->d_name + n - 9, ".promisor") == 0)
			return err_set(f->err, -ENOTSUP, REFUSED_PARTIAL);
		if (n < 4 || strcmp(e->d_name + n - 4, ".idx") != 0 ||
		    strncmp(e->d_name, "pack-", 5) != 0)
			continue;
		(void)snprintf(base, sizeof(base), "%.*s", (int)(n - 4), e->d_name);
		r = put_pack(f, dirfd(d), base);
		again |= r > 0;
	}
	if (r >= 0 && errno)
		r = err_sys(f->err, -errno, "list %s", path);
	return r < 0 ? r : again;
}

static int put_packs(struct files *f, const char *place)
{
	int r = 1;
	for (int i = 0; i < RESCANS && r > 0; i++) {
		if (i > 0)
			(void)usleep(RESCAN_US);
		r = put_packs_once(f, place);
	}
	return r <= 0 ? r
		      : err_set(f->err, -EAGAIN,
				"the repository is being repacked; try again in a while");
}

static int put_all(struct files *f)
{
	int r = put_refs(f);
	for (size_t i = 0; i < f->nplaces && r >= 0; i++)
		r = put_loose(f, f->places[i]);
	for (size_t i = 0; i < f->nplaces && r >= 0; i++)
		r = put_packs(f, f->places[i]);
	return r;
}

static int write_stream(struct files *f)
{
	f->a = archive_write_new();
	f->e = archive_entry_new();
	f->copy = malloc(COPY_BYTES);
	if (!f->a || !f->e || !f->copy)
		return out_of_memory(f);
	if (archive_write_set_format_gnutar(f->a) != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(f->a, BLOCK_BYTES) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(f->a, 1) != ARCHIVE_OK ||
	    archive_write_open(f->a, f, NULL, on_write, NULL) != ARCHIVE_OK)
		return write_err(f, "the stream");
	int r = put_all(f);
	f->abandoned = r < 0;
	if (archive_write_close(f->a) != ARCHIVE_OK && r >= 0)
		r = write_err(f, "the stream's end");
	return r;
}

static void files_done(struct files *f)
{
	for (size_t i = 0; i < f->nplaces; i++)
		free(f->places[i]);
	if (f->a)
		(void)archive_write_free(f->a); /* closed before, or never opened */
	if (f->e)
		archive_entry_free(f->e);
	buf_done(&f->sent);
	free(f->known);
	free(f->lines);
	free(f->gitdir);
	free(f->common);
	free(f->copy);
}

int gitfiles_pack(const char *dir, int out, const char *known, struct err *err)
{
	struct files f = { .err = err, .out = out };
	int r = known ? read_known(&f, known) : 0;
	if (r >= 0)
		r = find_gitdir(&f, dir);
	if (r >= 0)
		r = find_common(&f);
	if (r >= 0)
		r = refuse(&f);
	if (r >= 0)
		r = find_places(&f);
	if (r >= 0)
		r = write_stream(&f);
	files_done(&f);
	return r;
}
