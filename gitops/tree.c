/* The files of a checkout: the commit's tree is read once into lists in the order of the index
 * (out of scope too), then the part in scope goes to the image's builder. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/base/array.h"
#include "fs/base/cleanup.h"
#include "gitops/checkout_impl.h"
#include "gitops/convert.h"
#include "gitops/tree_entry.h"

enum {
	/* A tree of trees can describe more files than there are atoms: a few times what the
	 * largest known repositories have. */
	CO_ENTRIES_MAX = 4000000,
	CO_PATH_BYTES_MAX = 512 << 20,
	CO_TREE_BYTES_MAX = 64 << 20, /* of one tree object */
	CO_PATH_MAX = 4095,           /* PATH_MAX without its NUL */
	CO_TARGET_MAX = 4095,
	CO_INO_BATCH = 4096,
	CO_TELL = 1024, /* files between two reports of progress */
	NAMES_CHUNK = 256 * 1024,
};

/* ---- inode numbers ---- */

int co_inos_expect(struct co_inos *s, uint64_t n, struct err *err)
{
	if (s->end - s->next >= n)
		return 0;
	uint64_t first, want = n > CO_INO_BATCH ? n : CO_INO_BATCH;
	int r = s->opt->reserve(s->opt->reserve_ctx, want, &first, err);
	if (r < 0)
		return r;
	if (first != s->end) /* else they are one run with what is left */
		s->next = first;
	s->end = first + want;
	return 0;
}

int co_ino(struct co_inos *s, uint64_t *ino, struct err *err)
{
	int r = s->next == s->end ? co_inos_expect(s, 1, err) : 0;
	if (r < 0)
		return r;
	*ino = s->next++;
	return 0;
}

/* ---- paths ---- */

struct co_names {
	struct co_names *next;
	size_t used;
	char bytes[NAMES_CHUNK];
};

static const char *keep_path(struct co_tree *t, const char *path, size_t len)
{
	if (!t->names || NAMES_CHUNK - t->names->used < len + 1) {
		struct co_names *c = malloc(sizeof(*c));
		if (!c)
			return NULL;
		c->next = t->names;
		c->used = 0;
		t->names = c;
	}
	char *p = t->names->bytes + t->names->used;
	memcpy(p, path, len);
	p[len] = '\0';
	t->names->used += len + 1;
	return p;
}

void co_tree_done(struct co_tree *t)
{
	for (struct co_names *c = t->names, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	co_large_done(t->large, t->nlarge);
	free(t->files);
	free(t->dirs);
	memset(t, 0, sizeof(*t));
}

/* ---- the walk ---- */

enum scope {
	SCOPE_OUT,
	SCOPE_ABOVE, /* a folder of the scope lies below: its own files are in */
	SCOPE_IN,
};

struct level {
	git_odb_object *object; /* the tree */
	struct cur at;
	struct tree_entry last; /* len 0: none yet */
	size_t path_len;        /* of this folder's path and the slash behind it */
	uint32_t dir;
	enum scope scope;
};

struct walk {
	struct co_tree *t;
	const struct checkout_options *opt;
	const struct checkout_spec *spec;
	git_odb *odb;
	struct level *levels;
	size_t nlevels, levels_cap, files_cap, dirs_cap, path_bytes;
	bool *found; /* of each scope */
	char path[CO_PATH_MAX + 1];
	struct err *err;
};

/* Nothing above `max` bytes is brought into memory: -EFBIG. SIZE_MAX: the size is known. */
static int read_object(git_odb_object **out, git_odb *odb, const struct oid *oid, git_object_t type,
		       size_t max, const char *path, struct err *err)
{
	git_oid g = oid_to_git(oid);
	char hex[OID_HEX + 1];
	size_t size = 0;
	git_object_t is;
	oid_hex(hex, oid);
	int r = max == SIZE_MAX ? 0 : git_odb_read_header(&size, &is, odb, &g);
	if (r >= 0 && size > max)
		return err_set(err, -EFBIG, "%s: object %s is too large", path, hex);
	if (r >= 0)
		r = git_odb_read(out, odb, &g);
	if (r < 0) {
		r = git_fail(err, r, "%s, object %s", path, hex);
		return r == -ENOENT ? -EBADMSG : r; /* the commit is there: this belongs to it */
	}
	if (git_odb_object_type(*out) == type)
		return 0;
	git_odb_object_free(*out);
	*out = NULL;
	return err_set(err, -ENOTSUP, "%s: object %s isn't what the tree says it is", path, hex);
}

/* Which part of the scopes a folder is. Sorted scopes could be searched faster; there are few. */
static enum scope scope_of(struct walk *w, enum scope above, const char *path, size_t len)
{
	enum scope s = above == SCOPE_IN ? SCOPE_IN : SCOPE_OUT;
	for (size_t i = 0; above != SCOPE_OUT && i < w->spec->nscopes; i++) {
		const char *scope = w->spec->scopes[i];
		if (strncmp(scope, path, len) != 0 || (scope[len] && scope[len] != '/'))
			continue;
		if (!scope[len]) {
			w->found[i] = true;
			s = SCOPE_IN;
		} else if (s == SCOPE_OUT) {
			s = SCOPE_ABOVE;
		}
	}
	return s;
}

static int enter_folder(struct walk *w, const struct oid *tree, size_t len, enum scope scope)
{
	struct co_tree *t = w->t;
	const char *path = keep_path(t, w->path, len);
	if (!path || array_grow(&t->dirs, t->ndirs, &w->dirs_cap) < 0 ||
	    array_grow(&w->levels, w->nlevels, &w->levels_cap) < 0)
		return err_no_memory(w->err);
	struct level *up = w->nlevels ? &w->levels[w->nlevels - 1] : NULL;
	const char *slash = strrchr(path, '/');
	uint32_t dir = (uint32_t)t->ndirs;
	t->dirs[t->ndirs++] = (struct co_dir){ .path = path,
					       .name = slash ? slash + 1 : path,
					       .tree = *tree,
					       .parent = up ? up->dir : 0,
					       .ino = scope != SCOPE_OUT };
	if (up)
		t->dirs[up->dir].subdirs++;
	struct level l = { .dir = dir, .scope = scope, .path_len = len ? len + 1 : 0 };
	int r = read_object(&l.object, w->odb, tree, GIT_OBJECT_TREE, CO_TREE_BYTES_MAX,
			    len ? path : "the root", w->err);
	if (r < 0)
		return r;
	l.at = cur_init(git_odb_object_data(l.object), git_odb_object_size(l.object));
	w->levels[w->nlevels++] = l;
	if (len)
		w->path[len] = '/';
	return 0;
}

static void leave_folder(struct walk *w)
{
	struct level *l = &w->levels[--w->nlevels];
	struct co_dir *d = &w->t->dirs[l->dir];
	if (w->nlevels)
		w->t->dirs[d->parent].files += d->files;
	git_odb_object_free(l->object);
}

static int add_file(struct walk *w, const struct tree_entry *e, size_t len)
{
	struct co_tree *t = w->t;
	const struct level *l = &w->levels[w->nlevels - 1];
	bool in = l->scope != SCOPE_OUT;
	const char *path = keep_path(t, w->path, len);
	if (!path || array_grow(&t->files, t->nfiles, &w->files_cap) < 0)
		return err_no_memory(w->err);
	t->files[t->nfiles++] = (struct co_file){
		.path = path, .mode = e->mode, .oid = e->oid, .dir = l->dir, .ino = in
	};
	t->dirs[l->dir].files++;
	t->in_scope += in;
	bool regular = e->mode == MODE_FILE || e->mode == MODE_PROGRAM;
	if (in && regular && strcmp(e->name, ".gitignore") == 0)
		t->dirs[l->dir].ignore = e->oid;
	if (in && regular && strcmp(e->name, ".gitattributes") == 0)
		t->dirs[l->dir].attributes = e->oid;
	return 0;
}

static int bad_entry(struct walk *w, const char *why)
{
	const struct level *l = &w->levels[w->nlevels - 1];
	const char *path = w->t->dirs[l->dir].path;
	return err_set(w->err, -ENOTSUP, "the commit's folder '%s': %s", *path ? path : "/", why);
}

static int take_entry(struct walk *w, const struct tree_entry *e)
{
	struct level *l = &w->levels[w->nlevels - 1];
	const char *refused = tree_name_refused(e->name, e->len, e->mode);
	if (refused)
		return bad_entry(w, refused);
	if (l->last.len && tree_entry_order(&l->last, e) >= 0)
		return bad_entry(w, "its entries are out of order");
	l->last = *e;
	size_t len = l->path_len + e->len;
	if (len > CO_PATH_MAX)
		return bad_entry(w, "a path is too long");
	w->path_bytes += len + 1;
	if (w->t->nfiles + w->t->ndirs >= CO_ENTRIES_MAX || w->path_bytes > CO_PATH_BYTES_MAX)
		return err_set(w->err, -EFBIG, "the commit has more than %d files", CO_ENTRIES_MAX);
	memcpy(w->path + l->path_len, e->name, e->len);
	w->path[len] = '\0';
	if (e->mode != MODE_TREE)
		return add_file(w, e, len);
	return enter_folder(w, &e->oid, len, scope_of(w, l->scope, w->path, len));
}

static int walk_all(struct walk *w, const struct oid *root)
{
	struct tree_entry e;
	int r = enter_folder(w, root, 0, w->spec->nscopes ? SCOPE_ABOVE : SCOPE_IN);
	while (r >= 0 && w->nlevels) {
		r = tree_entry_next(&w->levels[w->nlevels - 1].at, &e);
		if (r < 0)
			return bad_entry(w, "it is damaged");
		if (r == 0)
			leave_folder(w);
		else
			r = take_entry(w, &e);
	}
	for (size_t i = 0; i < w->spec->nscopes && r >= 0; i++)
		if (!w->found[i])
			r = err_set(w->err, -ENOENT, "the commit has no folder '%s'",
				    w->spec->scopes[i]);
	return r < 0 ? r : 0;
}

static int root_of(git_repository *repo, const struct oid *commit, struct oid *tree,
		   struct err *err)
{
	auto_git(git_commit) c = NULL;
	git_oid g = oid_to_git(commit);
	int r = git_commit_lookup(&c, repo, &g);
	if (r < 0)
		return git_fail_object(err, r, repo, &g, "read the commit");
	*tree = oid_of_git(git_commit_tree_id(c));
	return 0;
}

static int read_tree(struct co_tree *t, const struct checkout_options *opt,
		     const struct checkout_spec *spec, struct err *err)
{
	struct oid root;
	struct walk *w = calloc(1, sizeof(*w));
	if (!w)
		return err_no_memory(err);
	*w = (struct walk){
		.t = t, .opt = opt, .spec = spec, .odb = mirror_odb(opt->mirror), .err = err
	};
	w->found = calloc(spec->nscopes + 1, sizeof(*w->found));
	int r = w->found ? root_of(mirror_repo(opt->mirror), &spec->commit, &root, err)
			 : err_no_memory(err);
	if (r >= 0)
		r = walk_all(w, &root);
	for (size_t i = 0; i < w->nlevels; i++)
		git_odb_object_free(w->levels[i].object);
	free(w->levels);
	free(w->found);
	free(w);
	return r;
}

/* ---- what goes into the image ---- */

struct fill {
	struct co_tree *t;
	struct image_builder *b;
	const struct checkout_options *opt;
	const struct checkout_spec *spec;
	git_odb *odb;
	uint32_t repo;
	struct attributes *attributes;
	int *at; /* of each folder: which .gitattributes is the nearest */
	struct attr like;
	const struct co_past *past;
	uint64_t *large_inos; /* of t->large */
	size_t large_cap, large_inos_cap;
	struct err *err;
};

/* An atime of now: one as old as the commit would make the first read of each file a change. */
void co_attr(struct attr *out, const struct checkout_spec *spec)
{
	struct timespec now, t = { .tv_sec = (time_t)spec->time_s };
	(void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail for this clock */
	now.tv_nsec = 0;
	if (now.tv_sec <= t.tv_sec)
		now = (struct timespec){ t.tv_sec, 1 };
	*out = (struct attr){
		.uid = spec->uid, .gid = spec->gid, .atime = now, .mtime = t, .ctime = t, .btime = t
	};
}

static int add_inode(struct fill *f, uint64_t ino, uint32_t mode, uint64_t size, const char *path)
{
	struct attr a = f->like;
	a.ino = ino;
	a.mode = mode;
	a.size = size;
	int r = image_add_inode(f->b, &a);
	return r < 0 ? err_sys(f->err, r, "add '%s'", path) : 0;
}

static int add_name(struct fill *f, uint32_t dir, const char *name, uint64_t ino, uint32_t mode,
		    const char *path)
{
	int r = image_add_dirent(f->b, f->t->dirs[dir].ino, name, strlen(name), ino,
				 (uint8_t)(mode >> 12), 0);
	if (r == -EEXIST)
		return err_set(f->err, -ENOTSUP, "the commit has '%s' twice", path);
	return r < 0 ? err_sys(f->err, r, "add '%s'", path) : 0;
}

static int add_folders(struct fill *f, struct co_inos *inos)
{
	struct co_tree *t = f->t;
	int r = 0;
	for (size_t i = 0; i < t->ndirs && r >= 0; i++) {
		struct co_dir *d = &t->dirs[i];
		if (!d->ino)
			continue;
		d->ino = 1;
		if (i > 0)
			r = co_ino(inos, &d->ino, f->err);
		if (r >= 0)
			r = add_inode(f, d->ino, S_IFDIR | 0755, 4096, d->path);
		if (r >= 0 && i > 0)
			r = add_name(f, d->parent, d->name, d->ino, S_IFDIR, d->path);
	}
	return r;
}

/* ---- contents ---- */

struct content {
	struct fill *f;
	uint64_t ino;
	const uint8_t *data;
};

static int content_read(void *ctx, void *buf, size_t len, uint64_t off, struct err *err)
{
	const struct content *c = ctx;
	memcpy(buf, c->data + off, len);
	return 0;
}

static int content_emit(void *ctx, uint64_t off, uint32_t len, const struct digest *d,
			struct err *err)
{
	const struct content *c = ctx;
	if (!d)
		return 0; /* a hole */
	struct piece p = { .off = off, .len = len, .object = *d };
	int r = image_add_piece(c->f->b, c->ino, &p);
	return r < 0 ? err_sys(err, r, "add contents") : 0;
}

static int put_content(struct fill *f, uint64_t ino, const void *data, size_t len)
{
	struct content c = { f, ino, data };
	struct store_content how = { content_read, content_emit, &c };
	return store_put_content(f->opt->session, 0, len, &how, f->err);
}

static bool is_ignore(const struct co_file *file)
{
	const char *slash = strrchr(file->path, '/');
	return strcmp(slash ? slash + 1 : file->path, ".gitignore") == 0;
}

static void note_name(struct checkout_names *names, uint64_t *count, const char *path)
{
	size_t n = strlen(path) + 1;
	++*count;
	if (names->n == CHECKOUT_NAMES || n > sizeof(names->text) - names->len)
		return;
	memcpy(names->text + names->len, path, n);
	names->len += (uint32_t)n;
	names->n++;
}

/* Conversions, and pointers of git-lfs's, for a path of which attributes say something. 1: the
 * content is in the store and the size is known. */
static int convert_file(struct fill *f, struct co_file *file)
{
	struct attr_values v;
	struct conversion how;
	int r = attributes_find(f->attributes, f->at[file->dir], file->path, &v);
	if (r == -E2BIG)
		return err_set(f->err, r, "the commit's .gitattributes take too long to apply");
	if (r < 0)
		return err_no_memory(f->err);
	conversion_of(&how, &v);
	bool lfs = how.filter && strcmp(how.filter, "lfs") == 0 && file->size <= LFS_POINTER_MAX;
	/* A .gitignore that git add would look through isn't known to the untracked cache by its
	 * blob. */
	bool ignore = is_ignore(file) && (how.text || how.ident || how.encoding);
	if ((conversion_is_none(&how) && !lfs && !ignore) || file->size > CONVERT_MAX)
		return 0;
	auto_git(git_odb_object) o = NULL;
	auto_buf out = { 0 };
	r = read_object(&o, f->odb, &file->oid, GIT_OBJECT_BLOB, SIZE_MAX, file->path, f->err);
	if (r < 0)
		return r;
	if (lfs && is_lfs_pointer(git_odb_object_data(o), git_odb_object_size(o)))
		note_name(&f->t->lfs_names, &f->t->lfs, file->path);
	r = convert_out(&out, &how, git_odb_object_data(o), git_odb_object_size(o), &file->oid);
	if (r < 0)
		return err_no_memory(f->err);
	if (ignore)
		index_exclude_oid(&f->t->dirs[file->dir].ignore,
				  r > 0 ? out.data : git_odb_object_data(o),
				  r > 0 ? out.len : git_odb_object_size(o));
	if (r == 0)
		return 0;
	file->size = out.len;
	r = put_content(f, file->ino, out.data, out.len);
	return r < 0 ? r : 1;
}

/* Those that aren't known from an earlier checkout are read together, by several threads. */
static int put_off(struct fill *f, const struct co_file *file)
{
	struct co_tree *t = f->t;
	const struct co_large *known = co_past_large(f->past, &file->oid);
	struct co_large l = { .oid = file->oid, .size = file->size, .path = file->path };
	if (array_grow(&t->large, t->nlarge, &f->large_cap) < 0 ||
	    array_grow(&f->large_inos, t->nlarge, &f->large_inos_cap) < 0)
		return err_no_memory(f->err);
	if (known && known->size == file->size && known->npieces) {
		l.pieces = reallocarray(NULL, known->npieces, sizeof(*l.pieces));
		if (!l.pieces)
			return err_no_memory(f->err);
		memcpy(l.pieces, known->pieces, known->npieces * sizeof(*l.pieces));
		l.npieces = known->npieces;
	}
	f->large_inos[t->nlarge] = file->ino;
	t->large[t->nlarge++] = l;
	return 0;
}

static int add_large(struct fill *f)
{
	const struct co_tree *t = f->t;
	int r = co_large_put(t->large, t->nlarge, f->opt, f->err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < t->nlarge && r >= 0; i++)
		for (size_t k = 0; k < t->large[i].npieces && r >= 0; k++)
			r = image_add_piece(f->b, f->large_inos[i], &t->large[i].pieces[k]);
	return r < 0 ? err_sys(f->err, r, "add contents") : 0;
}

static int add_regular(struct fill *f, struct co_file *file)
{
	int r = f->at[file->dir] == ATTR_NONE ? 0 : convert_file(f, file);
	if (r == 0 && file->size > STORE_OBJECT_MAX)
		r = put_off(f, file);
	else if (r == 0 && file->size > 0) {
		struct piece p = { .len = (uint32_t)file->size };
		digest_of_git(&p.object, f->repo, &file->oid);
		r = image_add_piece(f->b, file->ino, &p);
		if (r < 0)
			r = err_sys(f->err, r, "add '%s'", file->path);
	}
	f->t->bytes += file->size;
	return r;
}

static int add_symlink(struct fill *f, const struct co_file *file)
{
	auto_git(git_odb_object) o = NULL;
	if (file->size == 0 || file->size > CO_TARGET_MAX)
		return err_set(f->err, -ENOTSUP, "symlink '%s': its target is empty or too long",
			       file->path);
	int r = read_object(&o, f->odb, &file->oid, GIT_OBJECT_BLOB, SIZE_MAX, file->path, f->err);
	if (r < 0)
		return r;
	if (memchr(git_odb_object_data(o), '\0', file->size))
		return err_set(f->err, -ENOTSUP, "symlink '%s': its target has a zero byte",
			       file->path);
	r = image_add_target(f->b, file->ino, git_odb_object_data(o), file->size);
	return r < 0 ? err_sys(f->err, r, "add '%s'", file->path) : 0;
}

static int blob_size(struct fill *f, const struct co_file *file, uint64_t *size)
{
	git_oid g = oid_to_git(&file->oid);
	git_object_t type;
	size_t n;
	int r = git_odb_read_header(&n, &type, f->odb, &g);
	if (r < 0) {
		r = git_fail(f->err, r, "'%s'", file->path);
		return r == -ENOENT ? -EBADMSG : r;
	}
	if (type != GIT_OBJECT_BLOB)
		return err_set(f->err, git_bad_object(f->odb, &g), "'%s': its object is no file",
			       file->path);
	*size = n;
	return 0;
}

static int add_one(struct fill *f, struct co_inos *inos, struct co_file *file)
{
	bool link = file->mode == MODE_SYMLINK, module = file->mode == MODE_GITLINK;
	uint32_t mode = S_IFREG | (file->mode & 0777);
	if (link)
		mode = S_IFLNK | 0777;
	if (module)
		mode = S_IFDIR | 0755;
	int r = co_ino(inos, &file->ino, f->err);
	if (r >= 0 && !module)
		r = blob_size(f, file, &file->size);
	if (r >= 0) /* before its contents, and once more below when they have another size */
		r = add_inode(f, file->ino, mode, module ? 4096 : file->size, file->path);
	if (r >= 0 && link)
		r = add_symlink(f, file);
	else if (r >= 0 && !module)
		r = add_regular(f, file);
	if (r < 0)
		return r;
	image_builder_attr(f->b, file->ino)->size = module ? 4096 : file->size;
	if (module)
		note_name(&f->t->submodule_names, &f->t->submodules, file->path);
	const char *slash = strrchr(file->path, '/');
	return add_name(f, file->dir, slash ? slash + 1 : file->path, file->ino, mode & S_IFMT,
			file->path);
}

static int add_files(struct fill *f, struct co_inos *inos)
{
	struct co_tree *t = f->t;
	uint64_t done = 0;
	int r = 0;
	for (size_t i = 0; i < t->nfiles && r >= 0; i++) {
		if (!t->files[i].ino)
			continue;
		r = add_one(f, inos, &t->files[i]);
		if (r >= 0 && ++done % CO_TELL == 0 && f->opt->progress &&
		    f->opt->progress(f->opt->progress_ctx, done, t->in_scope, "files") != 0)
			r = err_set(f->err, -ECANCELED, "the checkout was cancelled");
	}
	return r;
}

/* Reads the .gitattributes; f->at says for each folder where look-ups begin. */
static int read_attributes(struct fill *f)
{
	static const struct oid none;
	struct co_tree *t = f->t;
	f->attributes = attributes_new();
	f->at = calloc(t->ndirs, sizeof(*f->at));
	if (!f->attributes || !f->at)
		return err_no_memory(f->err);
	for (size_t i = 0; i < t->ndirs; i++) {
		struct co_dir *d = &t->dirs[i];
		auto_git(git_odb_object) o = NULL;
		struct err why = { 0 };
		f->at[i] = i ? f->at[d->parent] : ATTR_NONE;
		if (memcmp(&d->attributes, &none, sizeof(none)) == 0)
			continue;
		int r = read_object(&o, f->odb, &d->attributes, GIT_OBJECT_BLOB, ATTR_FILE_MAX,
				    d->path, &why);
		if (r == -EFBIG) /* it doesn't count, as with git */
			continue;
		if (r < 0)
			return err_set(f->err, r, "%s", why.text);
		r = attributes_add(f->attributes, f->at[i], d->path, git_odb_object_data(o),
				   git_odb_object_size(o), f->err);
		if (r < ATTR_NONE)
			return r;
		f->at[i] = r;
	}
	return 0;
}

int co_tree_add(struct co_tree *out, struct image_builder *b, struct co_inos *inos,
		const struct checkout_options *opt, const struct checkout_spec *spec,
		const struct co_past *past, struct err *err)
{
	struct co_tree t = { 0 };
	struct fill f = { .t = &t,
			  .b = b,
			  .opt = opt,
			  .spec = spec,
			  .past = past,
			  .odb = mirror_odb(opt->mirror),
			  .repo = mirror_number(opt->mirror),
			  .err = err };
	co_attr(&f.like, spec);
	int r = read_tree(&t, opt, spec, err);
	if (r >= 0)
		r = read_attributes(&f);
	if (r >= 0)
		r = co_inos_expect(inos, t.in_scope + t.ndirs, err);
	if (r >= 0)
		r = add_folders(&f, inos);
	if (r >= 0)
		r = add_files(&f, inos);
	if (r >= 0)
		r = add_large(&f);
	free(f.large_inos);
	attributes_free(f.attributes);
	free(f.at);
	if (r < 0) {
		co_tree_done(&t);
		return r;
	}
	*out = t;
	return 0;
}
