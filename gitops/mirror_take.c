/* A mirror from the files of a repository, as a tar stream (mirror_take).
 *
 * The stream comes from whoever may read that repository, and is not trusted: names are those of a
 * short list, packs and indexes carry checksums that are computed again, refs are parsed by
 * refs.c, and what a ref names must be there and whole. Objects are verified again by who reads
 * them. */
#include "gitops/mirror.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"
#include "gitops/connected.h"
#include "gitops/stage.h"
#include "gitops/transport.h"

enum {
	READ_BYTES = 256 << 10,
	MEMBERS_MAX = 4 << 20, /* loose objects, refs and packs */
	LOOSE_REF_MAX = 4096,
	SYMREF_DEPTH = 5,   /* that lead to each other, as in git */
	SYMREFS_MAX = 1000, /* they are looked through one by one */
	HASH_BYTES = 20,
	PACK_HEAD = 12,
	IDX_MIN = 8 + 256 * 4 + 2 * HASH_BYTES,
};

#define TAKEN MIRROR_TAKEN

struct take {
	struct stage stage;
	ssize_t (*read)(void *ctx, void *buf, size_t n, struct err *err);
	void *read_ctx;
	const struct mirror_progress *progress;
	struct err *err;
	struct err read_err;   /* why the reader failed */
	struct mirror *mirror; /* that exists already; NULL */
	struct archive *a;
	int dir;           /* of the stage */
	uint8_t *in, *out; /* READ_BYTES each */
	EVP_MD_CTX *hash;
	struct refs packed, loose;
	struct symref {
		char *name, *target;
	} * symrefs;
	size_t nsymrefs, symrefs_cap;
	char *head;             /* the text of HEAD */
	struct buf taken;       /* names of packs, one a line */
	struct buf taken_loose; /* "o" and the id of an object, one a line */
	uint64_t bytes;
	bool has_loose;
};

static int out_of_memory(struct take *t)
{
	return err_no_memory(t->err);
}

static int bad(struct take *t, const char *name, const char *what)
{
	char line[256];
	(void)snprintf(line, sizeof(line), "%s", name);
	text_scrub(line, NULL, 0);
	return err_set(t->err, -EBADMSG, "%s: %s", line, what);
}

/* ---- the stream ---- */

static la_ssize_t on_read(struct archive *a, void *ctx, const void **out)
{
	struct take *t = ctx;
	ssize_t n = t->read(t->read_ctx, t->in, READ_BYTES, &t->read_err);
	if (n < 0) {
		archive_set_error(a, (int)-n, "read failed");
		return -1;
	}
	t->bytes += (uint64_t)n;
	const struct mirror_progress *p = t->progress;
	if (p && p->fn && p->fn(p->ctx, t->bytes, 0, "receive")) {
		archive_set_error(a, ECANCELED, "cancelled");
		return -1;
	}
	*out = t->in;
	return n;
}

/* The one place where libarchive's errors become ours. */
static int archive_err(struct take *t)
{
	int number = archive_errno(t->a);
	if (t->read_err.code < 0)
		return err_set(t->err, t->read_err.code, "%s", t->read_err.text);
	if (number == ECANCELED)
		return err_set(t->err, -ECANCELED, "it was cancelled");
	if (number == ENOMEM)
		return out_of_memory(t);
	return err_set(t->err, -EBADMSG, "the stream of the repository is damaged: %.200s",
		       archive_error_string(t->a) ? archive_error_string(t->a) : "?");
}

/* Up to READ_BYTES of the present member in t->out: the count; 0 at its end. */
static ssize_t member_read(struct take *t)
{
	la_ssize_t n = archive_read_data(t->a, t->out, READ_BYTES);
	return n < 0 ? archive_err(t) : n;
}

/* A small member whole, NUL-terminated, which the caller frees. */
static int member_text(struct take *t, const char *name, size_t max, char **out, size_t *len)
{
	auto_buf b = { 0 };
	ssize_t n;
	while ((n = member_read(t)) > 0) {
		buf_add(&b, t->out, (size_t)n);
		if (b.len > max)
			return bad(t, name, "it is too large");
	}
	if (n < 0)
		return (int)n;
	buf_u8(&b, 0);
	if (buf_error(&b))
		return out_of_memory(t);
	*len = b.len - 1;
	*out = (char *)steal_ptr(&b.data);
	return 0;
}

/* ---- objects ---- */

/* A file that ends in the SHA-1 of what is before it, as it comes. */
struct ending {
	uint8_t held[HASH_BYTES]; /* of which isn't known yet whether they are the last */
	size_t n;
};

/* Hashes all but the last 20 bytes of what came so far. */
static void hash_more(struct take *t, struct ending *e, const uint8_t *data, size_t n)
{
	size_t all = e->n + n, keep = all < HASH_BYTES ? all : HASH_BYTES;
	size_t from_held = all - keep < e->n ? all - keep : e->n;
	size_t from_new = all - keep - from_held;
	EVP_DigestUpdate(t->hash, e->held, from_held);
	EVP_DigestUpdate(t->hash, data, from_new);
	memmove(e->held, e->held + from_held, e->n - from_held);
	memcpy(e->held + e->n - from_held, data + from_new, n - from_new);
	e->n = keep;
}

static int check_ending(struct take *t, const struct ending *e, const char *name,
			uint8_t sum[HASH_BYTES])
{
	uint8_t computed[EVP_MAX_MD_SIZE];
	if (EVP_DigestFinal_ex(t->hash, computed, NULL) != 1)
		return out_of_memory(t);
	if (e->n < HASH_BYTES || memcmp(computed, e->held, HASH_BYTES) != 0)
		return bad(t, name, "its checksum is wrong");
	memcpy(sum, e->held, HASH_BYTES);
	return 0;
}

/* Writes the member to a file of the stage. For packs and indexes the last bytes are a SHA-1 of
 * what stands before them; it is left in `sum` (NULL: there is none). `tail`
 * gets the 40 last bytes. */
static int member_file(struct take *t, const char *name, uint8_t sum[HASH_BYTES],
		       uint8_t tail[2 * HASH_BYTES], uint64_t *size)
{
	struct ending ending = { 0 };
	ssize_t n;
	auto_fd fd = openat(t->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
	if (fd < 0)
		return errno == EEXIST ? bad(t, name, "it comes twice")
				       : err_sys(t->err, -errno, "make %s", name);
	if (sum && EVP_DigestInit_ex(t->hash, EVP_sha1(), NULL) != 1)
		return out_of_memory(t);
	*size = 0;
	while ((n = member_read(t)) > 0) {
		int r = io_write_full(&io_host, fd, t->out, (size_t)n, *size);
		if (r < 0)
			return err_sys(t->err, r, "write %s", name);
		*size += (uint64_t)n;
		if (sum)
			hash_more(t, &ending, t->out, (size_t)n);
	}
	if (n < 0 || !sum)
		return (int)n;
	int r = check_ending(t, &ending, name, sum);
	if (r < 0)
		return r;
	if (*size < 2 * HASH_BYTES ||
	    pread(fd, tail, 2 * HASH_BYTES, (off_t)(*size - 2 * HASH_BYTES)) != 2 * HASH_BYTES)
		return bad(t, name, "it is too short");
	return fdatasync(fd) < 0 ? err_sys(t->err, -errno, "sync %s", name) : 0;
}

static int check_start(struct take *t, const char *name, bool is_pack)
{
	uint8_t b[PACK_HEAD];
	auto_fd fd = openat(t->dir, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || pread(fd, b, sizeof(b), 0) != sizeof(b))
		return bad(t, name, "it is too short");
	if (is_pack)
		return memcmp(b, "PACK\0\0\0\2", 8) == 0 ? 0 : bad(t, name, "it is no pack");
	if (memcmp(b, "\377tOc\0\0\0\2", 8) != 0)
		return err_set(t->err, -ENOTSUP,
			       "an index of another version than 2: run git repack -ad there");
	return 0;
}

/* objects/pack/pack-<hex>.pack or .idx, named by the pack's checksum. */
static int take_pack(struct take *t, const char *name, const char *hex, bool is_pack)
{
	uint8_t sum[HASH_BYTES], tail[2 * HASH_BYTES], want[HASH_BYTES];
	uint64_t size;
	if (hex_decode(want, HASH_BYTES, hex) < 0)
		return bad(t, name, "no name for a pack");
	int r = member_file(t, name, sum, tail, &size);
	if (r >= 0)
		r = check_start(t, name, is_pack);
	if (r < 0)
		return r;
	if (!is_pack && size < IDX_MIN)
		return bad(t, name, "it is too short");
	/* An index ends in its pack's checksum and then its own. */
	if (memcmp(is_pack ? sum : tail, want, HASH_BYTES) != 0)
		return bad(t, name, "it belongs to another pack");
	if (is_pack)
		buf_printf(&t->taken, "%s\n", hex);
	return buf_error(&t->taken) ? out_of_memory(t) : 0;
}

static int take_loose(struct take *t, const char *name)
{
	char hex[OID_HEX + 1], folder[16];
	struct oid oid;
	uint64_t size;
	(void)snprintf(hex, sizeof(hex), "%.2s%.38s", name + 8, name + 11);
	if (oid_parse(&oid, hex) < 0)
		return 0;
	buf_printf(&t->taken_loose, "o%s\n", hex);
	if (buf_error(&t->taken_loose))
		return out_of_memory(t);
	git_oid id = oid_to_git(&oid);
	if (t->mirror && git_odb_exists(mirror_odb(t->mirror), &id))
		return 0;
	(void)snprintf(folder, sizeof(folder), "objects/%.2s", hex);
	if (mkdirat(t->dir, folder, 0700) < 0 && errno != EEXIST)
		return err_sys(t->err, -errno, "make %s", folder);
	t->has_loose = true;
	return member_file(t, name, NULL, NULL, &size);
}

/* ---- refs ---- */

static int add_symref(struct take *t, const char *name, const char *target)
{
	if (t->nsymrefs >= SYMREFS_MAX)
		return bad(t, name, "too many symbolic refs");
	if (array_grow(&t->symrefs, t->nsymrefs, &t->symrefs_cap) < 0)
		return out_of_memory(t);
	struct symref s = { strdup(name), strdup(target) };
	t->symrefs[t->nsymrefs++] = s; /* freed with the rest, whatever of it there is */
	return s.name && s.target ? 0 : out_of_memory(t);
}

static int take_ref(struct take *t, const char *name)
{
	auto_free char *text = NULL;
	size_t n;
	struct oid oid;
	if (!ref_name_ok(name))
		return 0; /* a lock, or what git doesn't know either */
	int r = member_text(t, name, LOOSE_REF_MAX, &text, &n);
	if (r < 0)
		return r;
	text[strcspn(text, "\r\n")] = '\0';
	if (strncmp(text, "ref: ", 5) == 0)
		return ref_name_ok(text + 5) ? add_symref(t, name, text + 5) : 0;
	if (oid_parse(&oid, text) < 0)
		return strlen(text) == 64
			       ? err_set(t->err, -ENOTSUP, "SHA-256 repositories aren't supported")
			       : bad(t, name, "it is no ref");
	r = refs_add(&t->loose, name, &oid);
	return r < 0 ? err_sys(t->err, r, "take %s", name) : 0;
}

static int take_packed_refs(struct take *t)
{
	auto_free char *text = NULL;
	size_t n;
	int r = member_text(t, "packed-refs", REFS_FILE_MAX, &text, &n);
	if (r < 0)
		return r;
	refs_done(&t->packed);
	r = packed_refs_parse(&t->packed, text, n);
	if (r == -EBADMSG)
		return bad(t, "packed-refs", "it isn't understood (a SHA-256 repository?)");
	return r < 0 ? out_of_memory(t) : 0;
}

/* ---- members ---- */

static int take_object(struct take *t, const char *name)
{
	static const char folder[] = "objects/pack/pack-";
	size_t n = strlen(name), k = sizeof(folder) - 1;
	if (n == 8 + 2 + 1 + 38 && name[10] == '/')
		return take_loose(t, name);
	if (n == 8 + 2 + 1 + 62 && name[10] == '/')
		return err_set(t->err, -ENOTSUP, "SHA-256 repositories aren't supported");
	if (strncmp(name, folder, k) != 0)
		return 0;
	const char *dot = strchr(name + k, '.');
	char hex[OID_HEX + 1];
	if (dot && strcmp(dot, ".promisor") == 0)
		return err_set(t->err, -ENOTSUP, REFUSED_PARTIAL);
	bool is_pack = dot && strcmp(dot, ".pack") == 0;
	if (!is_pack && (!dot || strcmp(dot, ".idx") != 0))
		return 0;
	if (dot - name - (ptrdiff_t)k != OID_HEX)
		return bad(t, name, "no name for a pack");
	(void)snprintf(hex, sizeof(hex), "%.40s", name + k);
	return take_pack(t, name, hex, is_pack);
}

static int take_member(struct take *t, const char *name)
{
	size_t n;
	if (strcmp(name, "HEAD") == 0) {
		free(steal_ptr(&t->head));
		return member_text(t, name, LOOSE_REF_MAX, &t->head, &n);
	}
	if (strcmp(name, "packed-refs") == 0)
		return take_packed_refs(t);
	if (strcmp(name, "shallow") == 0)
		return err_set(t->err, -ENOTSUP, REFUSED_SHALLOW);
	if (strncmp(name, REFS_HEADS, strlen(REFS_HEADS)) == 0 ||
	    strncmp(name, REFS_TAGS, strlen(REFS_TAGS)) == 0)
		return take_ref(t, name);
	if (strncmp(name, "objects/", 8) == 0)
		return take_object(t, name);
	return 0;
}

static int take_members(struct take *t)
{
	struct archive_entry *e;
	size_t n = 0;
	int la;
	while ((la = archive_read_next_header(t->a, &e)) == ARCHIVE_OK) {
		const char *name = archive_entry_pathname(e);
		if (++n > MEMBERS_MAX)
			return err_set(t->err, -E2BIG, "more than %d files: run git gc there",
				       MEMBERS_MAX);
		if (!name || archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e))
			continue;
		int r = take_member(t, name);
		if (r < 0)
			return r;
	}
	return la == ARCHIVE_EOF ? 0 : archive_err(t);
}

static int read_stream(struct take *t)
{
	t->a = archive_read_new();
	if (!t->a || archive_read_support_format_tar(t->a) != ARCHIVE_OK)
		return out_of_memory(t);
	if (archive_read_open(t->a, t, NULL, on_read, NULL) != ARCHIVE_OK)
		return archive_err(t);
	return take_members(t);
}

/* ---- what came, as refs of the mirror ---- */

static const struct oid *value_of(struct take *t, const char *name)
{
	for (int depth = 0; depth <= SYMREF_DEPTH; depth++) {
		const struct ref *r = refs_find(&t->loose, name);
		if (!r)
			r = refs_find(&t->packed, name);
		if (r)
			return &r->oid;
		size_t i = 0;
		while (i < t->nsymrefs && strcmp(t->symrefs[i].name, name) != 0)
			i++;
		if (i == t->nsymrefs)
			return NULL;
		name = t->symrefs[i].target;
	}
	return NULL;
}

/* Adds a ref as the mirror has it: branches become origin's. */
static int add_theirs(struct take *t, struct refs *out, const char *name, const struct oid *oid)
{
	char mapped[REF_NAME_SIZE + sizeof(REFS_ORIGIN)];
	if (strncmp(name, REFS_HEADS, strlen(REFS_HEADS)) == 0)
		(void)snprintf(mapped, sizeof(mapped), "%s%s", REFS_ORIGIN,
			       name + strlen(REFS_HEADS));
	else if (strncmp(name, REFS_TAGS, strlen(REFS_TAGS)) == 0)
		(void)snprintf(mapped, sizeof(mapped), "%s", name);
	else
		return 0;
	int r = ref_name_ok(mapped) ? refs_add(out, mapped, oid) : 0;
	return r < 0 ? err_sys(t->err, r, "take refs") : 0;
}

static int their_refs(struct take *t, struct refs *out)
{
	int r = 0;
	refs_sort(&t->loose);
	for (size_t i = 0; i < t->loose.n && r >= 0; i++)
		r = add_theirs(t, out, t->loose.v[i].name, &t->loose.v[i].oid);
	for (size_t i = 0; i < t->packed.n && r >= 0; i++)
		if (!refs_find(&t->loose, t->packed.v[i].name))
			r = add_theirs(t, out, t->packed.v[i].name, &t->packed.v[i].oid);
	for (size_t i = 0; i < t->nsymrefs && r >= 0; i++) {
		const struct oid *oid = value_of(t, t->symrefs[i].name);
		bool hides = refs_find(&t->packed, t->symrefs[i].name) ||
			     refs_find(&t->loose, t->symrefs[i].name);
		if (oid && !hides)
			r = add_theirs(t, out, t->symrefs[i].name, oid);
	}
	refs_sort(out);
	for (size_t i = 1; i < out->n && r >= 0; i++)
		if (strcmp(out->v[i - 1].name, out->v[i].name) == 0)
			r = bad(t, out->v[i].name, "it comes twice");
	return r;
}

/* All that is new is whole. */
static int check_connected(struct take *t, const struct refs *theirs)
{
	static const char *const args[] = { "rev-list", "--objects", "--quiet", "--stdin",
					    "--not",    "--all",     NULL };
	auto_transport tr = { .secret = -1, .hosts = -1 };
	auto_buf input = { 0 };
	const struct mirror_progress *p = t->progress;
	if (p && p->fn && p->fn(p->ctx, t->bytes, 0, "check"))
		return err_set(t->err, -ECANCELED, "it was cancelled");
	int r = transport_open(&tr, t->stage.path, t->stage.scratch, NULL, p, t->err);
	if (r < 0)
		return r;
	if (!transport_has_git(&tr)) {
		auto_git(git_repository) repo = NULL;
		auto_refs before = { 0 };
		r = git_repository_open_bare(&repo, t->stage.path);
		if (r < 0)
			return git_fail(t->err, r, "open the stage");
		r = stage_refs(&t->stage, &before, t->err);
		return r < 0 ? r : refs_connected(repo, &before, theirs, t->err);
	}
	for (size_t i = 0; i < theirs->n; i++) {
		char hex[OID_HEX + 1];
		oid_hex(hex, &theirs->v[i].oid);
		buf_printf(&input, "%s\n", hex);
	}
	if (buf_error(&input))
		return out_of_memory(t);
	return theirs->n == 0 ? 0 : transport_git(&tr, args, input.data, input.len, NULL, t->err);
}

static int take_head(struct take *t)
{
	struct oid oid;
	char *text = t->head;
	if (!text)
		return bad(t, "HEAD", "it is missing: that is no repository");
	text[strcspn(text, "\r\n")] = '\0';
	if (strncmp(text, "ref: " REFS_HEADS, 5 + strlen(REFS_HEADS)) == 0 && ref_name_ok(text + 5))
		return stage_set_head(&t->stage, text + 5, NULL, t->err);
	if (oid_parse(&oid, text) == 0)
		return stage_set_head(&t->stage, "", &oid, t->err);
	return 0;
}

/* Lines of packs, or of loose objects. */
static void add_lines(struct buf *out, const char *text, size_t n, bool loose)
{
	for (const char *p = text, *end = text + n, *next; p < end; p = next) {
		next = memchr(p, '\n', (size_t)(end - p));
		next = next ? next + 1 : end;
		if ((*p == 'o') == loose)
			buf_add(out, p, (size_t)(next - p));
	}
}

/* Packs first. A list that is too long is begun anew: then some are sent once more; loose objects,
 * which are small, rather than packs. */
static int note_taken(struct take *t)
{
	auto_free void *before = NULL;
	size_t n = 0;
	auto_buf all = { 0 };
	auto_fd dir = open(t->stage.target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		(void)io_slurp(&io_host, dir, TAKEN, MIRROR_TAKEN_MAX, &before, &n,
			       NULL); /* a hint */
	add_lines(&all, before, n, false);
	buf_add(&all, t->taken.data, t->taken.len);
	if (all.len > MIRROR_TAKEN_MAX) {
		buf_reset(&all);
		buf_add(&all, t->taken.data, t->taken.len);
	}
	/* What is there now is all that can be sent again. */
	if (all.len + t->taken_loose.len <= MIRROR_TAKEN_MAX)
		buf_add(&all, t->taken_loose.data, t->taken_loose.len);
	size_t known = all.len;
	add_lines(&all, before, n, true);
	if (all.len > MIRROR_TAKEN_MAX)
		all.len = known;
	if (buf_error(&all))
		return out_of_memory(t);
	return io_publish(&io_host, t->dir, TAKEN, all.data, all.len, true, t->err);
}

static int finish(struct take *t, struct mirror_result *res)
{
	auto_refs theirs = { 0 };
	int r = their_refs(t, &theirs);
	if (r >= 0)
		r = check_connected(t, &theirs);
	if (r >= 0)
		r = stage_write_refs(&t->stage, &theirs, t->err);
	if (r >= 0)
		r = take_head(t);
	if (r >= 0)
		r = note_taken(t);
	/* Thousands of small files at once rather than one by one. */
	if (r >= 0 && t->has_loose && syncfs(t->dir) < 0)
		r = err_sys(t->err, -errno, "sync the mirror");
	return r < 0 ? r : stage_publish(&t->stage, res, t->err);
}

static void take_done(struct take *t)
{
	if (t->a)
		archive_read_free(t->a);
	for (size_t i = 0; i < t->nsymrefs; i++) {
		free(t->symrefs[i].name);
		free(t->symrefs[i].target);
	}
	free(t->symrefs);
	refs_done(&t->packed);
	refs_done(&t->loose);
	free(t->head);
	free(t->in);
	free(t->out);
	buf_done(&t->taken);
	buf_done(&t->taken_loose);
	EVP_MD_CTX_free(t->hash);
	mirror_close(t->mirror);
	if (t->dir >= 0)
		close(t->dir);
	stage_done(&t->stage);
}

int mirror_take(const char *root, uint32_t number,
		ssize_t (*read)(void *ctx, void *buf, size_t n, struct err *err), void *ctx,
		const struct mirror_progress *p, struct mirror_result *res, struct err *err)
{
	struct err why = { 0 };
	struct take t = { .read = read, .read_ctx = ctx, .progress = p, .err = &why, .dir = -1 };
	struct stat st;
	char target[MIRROR_PATH_SIZE];
	int r = mirror_folder(target, root, number, "", &why);
	bool exists = r >= 0 && stat(target, &st) == 0;
	if (r >= 0)
		r = stage_begin(&t.stage, root, number, exists, &why);
	if (r >= 0 && exists)
		r = mirror_open(&t.mirror, root, number, &why);
	t.in = malloc(READ_BYTES);
	t.out = malloc(READ_BYTES);
	t.hash = EVP_MD_CTX_new();
	if (r >= 0 && (!t.in || !t.out || !t.hash))
		r = out_of_memory(&t);
	if (r >= 0) {
		t.dir = open(t.stage.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = t.dir < 0 ? err_sys(&why, -errno, "open %s", t.stage.path) : 0;
	}
	if (r >= 0)
		r = read_stream(&t);
	if (r >= 0)
		r = finish(&t, res);
	take_done(&t);
	return r < 0 ? err_set(err, r, "take the repository: %s", why.text) : 0;
}

/* ---- which packs a mirror has ---- */

/* What was taken once: its objects are all there, whatever pack they are in by now. */
int mirror_taken(const char *root, uint32_t number, struct buf *out, struct err *err)
{
	char path[MIRROR_PATH_SIZE];
	auto_free void *data = NULL;
	size_t n = 0;
	int r = mirror_folder(path, root, number, "", err);
	if (r < 0)
		return r;
	auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open mirror %08x", number);
	r = io_slurp(&io_host, dir, TAKEN, MIRROR_TAKEN_MAX, &data, &n, err);
	if (r < 0 && r != -ENOENT)
		return r;
	buf_add(out, data, r < 0 ? 0 : n);
	return buf_error(out) ? err_no_memory(err) : 0;
}
