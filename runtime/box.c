#include "runtime/box.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/io.h"
#include "runtime/box_impl.h"
#include "runtime/cgroup.h"
#include "runtime/inroot.h"
#include "runtime/mounts.h"
#include "runtime/share.h"
#include "runtime/spec.h"
#include "runtime/user.h"

enum {
	SECRETS_INODES = BOX_SECRETS_MAX + 8,
	SECRETS_SLACK = 64 << 10, /* bytes beside the contents, which take whole pages */
	BINDS_MAX = BOX_MOUNTS + 8,
	SHM_MODE = 01777,
};
#define SECRETS_TARGET "/run/secrets"
#define RESOLV_CONF    "/etc/resolv.conf"

const struct box_limits BOX_LIMITS = {
	.cpu_milli = 1000,
	.memory = UINT64_C(2) << 30,
	.pids = 512,
	.shm = 64 << 20,
};

enum { GROUP_SIZE = 2 * CGROUP_NAME_MAX + 8 };

/* Of its cgroup (box.h). */
static void group_name(char out[GROUP_SIZE], const char *ns, const char *id)
{
	(void)snprintf(out, GROUP_SIZE, "/%s-%s", ns, id);
}

/* Of one that was made before groups lay beside each other, and may run still. */
#define OLD_TOP "/bough"
static void old_group_name(char out[GROUP_SIZE], const char *ns, const char *id)
{
	(void)snprintf(out, GROUP_SIZE, OLD_TOP "/%s/%s", ns, id);
}

/* Of either name. */
static int clear_groups(const char *ns, const char *id, struct err *err)
{
	char group[GROUP_SIZE], old[GROUP_SIZE];
	struct cgroups groups;
	int r = cgroup_find(&groups, err);
	if (r < 0)
		return r;
	group_name(group, ns, id);
	r = cgroup_clear(&groups, group, err);
	old_group_name(old, ns, id);
	int o = cgroup_clear(&groups, old, r < 0 ? NULL : err);
	*strrchr(old, '/') = '\0';
	cgroup_prune(&groups, old);
	cgroup_prune(&groups, OLD_TOP);
	return r < 0 ? r : o;
}

/* ---- words from outside ---- */

/* One part of a path, as ids and containerd's namespaces are. */
static bool is_name(const char *s)
{
	size_t n = s ? strlen(s) : 0;
	return n > 0 && n < CGROUP_NAME_MAX && !strchr(s, '/') && s[0] != '.';
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

const char *box_own_mount(const char *path)
{
	static const char *const own[] = { "/proc", "/sys", "/dev", "/.bough", SECRETS_TARGET };
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (is_below(path, own[i]))
			return own[i];
	return NULL;
}

int box_check_target(const char *target, bool host_image, struct err *err)
{
	if (!target || target[0] != '/' || strlen(target) >= PATH_MAX)
		return err_set(err, -EINVAL, "a workspace is attached at an absolute path");
	if (target[strspn(target, "/")] == '\0')
		return err_set(err, -EINVAL, "/ is the sandbox's root already");
	for (const char *p = target; *p;) {
		p += strspn(p, "/");
		size_t n = strcspn(p, "/");
		if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.') ||
		    (n == 0 && p[-1] == '/') || (n > 0 && p - target > 1 && p[-2] == '/'))
			return err_set(err, -EINVAL, "%s is not the plain path of a folder",
				       target);
		p += n;
	}
	const char *own = box_own_mount(target);
	if (own)
		return err_set(err, -EINVAL, "nothing can be attached in %s", own);
	/* /run: secrets lie in it. */
	if (strcmp(target, "/etc") == 0 || strcmp(target, "/usr") == 0 ||
	    strcmp(target, "/run") == 0)
		return err_set(err, -EINVAL, "%s is the root's: attach below it, or elsewhere",
			       target);
	if (host_image && is_below(target, "/usr"))
		return err_set(err, -EINVAL,
			       "nothing can be attached in /usr: with this image it is the host's");
	return 0;
}

static int check(const struct box_config *c, const struct box_process *p, struct err *err)
{
	if (geteuid() != 0)
		return err_set(err, -EPERM, "sandboxes need boughd to run as root");
	if (!c->dir || c->dir[0] != '/' || !is_name(c->id) || !is_name(c->ns))
		return err_set(err, -EINVAL,
			       "a box needs an absolute folder, an id and a namespace");
	if (c->id_base % BOX_IDS || c->id_base < IDS_FIRST || c->id_base >= IDS_END)
		return err_set(err, -EINVAL, "%u is no range of ids for a sandbox", c->id_base);
	if (c->n_mounts > BOX_MOUNTS)
		return err_set(err, -E2BIG, "more than %d workspaces", BOX_MOUNTS);
	if (c->n_secrets > BOX_SECRETS_MAX)
		return err_set(err, -E2BIG, "more than %d secrets", BOX_SECRETS_MAX);
	for (size_t i = 0; i < c->n_secrets; i++)
		if (strcmp(c->secrets[i].name, BOX_SECRET_ENV) != 0 && !is_name(c->secrets[i].name))
			return err_set(err, -EINVAL, "a secret's name is one plain file name");
	for (size_t i = 0; i < c->n_mounts; i++) {
		int r = box_check_target(c->mounts[i].target, c->host_image, err);
		if (r < 0)
			return r;
	}
	if (p->cwd && (p->cwd[0] != '/' || strlen(p->cwd) >= PATH_MAX || is_below(p->cwd, "/proc")))
		return err_set(err, -EINVAL,
			       "the working directory is an absolute path, not in /proc");
	return 0;
}

int box_path(char out[PATH_MAX], const char *dir, const char *name)
{
	int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);
	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* ---- what lies in it ---- */

static int make_dir(const char *dir, const char *name, unsigned mode, char path[PATH_MAX],
		    struct err *err)
{
	int r = box_path(path, dir, name);
	if (r == 0 && mkdir(path, 0700) < 0)
		r = -errno;
	if (r == 0 && chmod(path, mode) < 0) /* whatever the umask */
		r = -errno;
	return r < 0 ? err_sys(err, r, "make %s/%s", dir, name) : 0;
}

int box_user_ns(const struct box_config *c, struct err *err)
{
	char path[PATH_MAX];
	if (box_path(path, c->dir, "user") < 0)
		return err_set(err, -ENAMETOOLONG, "%s is too long", c->dir);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_sys(err, -errno, "open %s", path) : fd;
}

/* A workspace's mount as the container is to have it. */
static int put_mount(const struct box_config *c, const char *source, const char *name,
		     bool ro, int user_ns, struct err *err)
{
	char path[PATH_MAX];
	int r = make_dir(c->dir, name, 0711, path, err);
	if (r < 0)
		return r;
	auto_fd tree = mounts_clone(source, user_ns, ro, err);
	return tree < 0 ? tree : mounts_put(tree, path, err);
}

static int copy_secret(int dir, const struct box_secret *s, uint32_t owner, void *buf)
{
	ssize_t n = io_read_full(NULL, s->fd, buf, BOX_SECRET_MAX + 1, 0);
	if (n < 0)
		return (int)n;
	if (n > BOX_SECRET_MAX)
		return -EFBIG;
	auto_fd fd = openat(dir, s->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	if (fd < 0)
		return -errno;
	int r = io_write_full(NULL, fd, buf, (size_t)n, 0);
	/* All users of the sandbox may read it: any of them may be the one that the image or
	 * --user names. */
	if (r == 0 && (fchown(fd, owner, owner) < 0 || fchmod(fd, 0444) < 0))
		r = -errno;
	return r;
}

static uint64_t secrets_room(const struct box_config *c)
{
	uint64_t room = SECRETS_SLACK;
	for (size_t i = 0; i < c->n_secrets; i++) {
		struct stat st;
		uint64_t size = fstat(c->secrets[i].fd, &st) == 0 && st.st_size > 0
					? (uint64_t)st.st_size
					: BOX_SECRET_MAX;
		room += (size < BOX_SECRET_MAX ? size : BOX_SECRET_MAX) + 4096;
	}
	return room;
}

static int put_secrets(const struct box_config *c, struct err *err)
{
	char path[PATH_MAX];
	uint32_t owner = c->kind->shifts_ids ? c->id_base : 0;
	int r = make_dir(c->dir, "secrets", 0700, path, err);
	if (r == 0)
		r = mounts_tmpfs(path, secrets_room(c), SECRETS_INODES, 0755, owner, err);
	if (r < 0)
		return r;
	auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_free void *buf = malloc(BOX_SECRET_MAX + 1);
	if (dir < 0 || !buf)
		return err_sys(err, dir < 0 ? -errno : -ENOMEM, "keep secrets");
	for (size_t i = 0; r == 0 && i < c->n_secrets; i++) {
		r = copy_secret(dir, &c->secrets[i], owner, buf);
		if (r < 0)
			r = err_sys(err, r, "keep the secret %s", c->secrets[i].name);
	}
	explicit_bzero(buf, BOX_SECRET_MAX + 1);
	return r;
}

/* Where things will be mounted; in the root as it lies, so that the files are of its id 0. */
static int make_targets(const struct box_config *c, struct err *err)
{
	auto_fd root = open(c->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_sys(err, -errno, "open the root at %s", c->root);
	int r = box_fill_points(root, err);
	for (size_t i = 0; r == 0 && i < c->n_mounts; i++) {
		inroot_remove_link(root, c->mounts[i].target, BOX_OLD_LINKS);
		auto_fd fd = inroot_make_dir(root, c->mounts[i].target);
		if (fd < 0)
			r = err_sys(err, fd, "no place to attach at %s", c->mounts[i].target);
	}
	if (r == 0 && c->n_secrets) {
		auto_fd fd = inroot_make_dir(root, SECRETS_TARGET);
		if (fd < 0)
			r = err_sys(err, fd, "no place for secrets at " SECRETS_TARGET);
	}
	return r;
}

static const struct box_mount *find_mount(const struct box_config *c, const char *target)
{
	for (size_t i = 0; i < c->n_mounts; i++)
		if (strcmp(c->mounts[i].target, target) == 0)
			return &c->mounts[i];
	return NULL;
}

static int share(const char *path, struct err *err)
{
	return mount(NULL, path, NULL, MS_SHARED, NULL) < 0 ? err_sys(err, -errno, "share %s", path)
							    : 0;
}

static int put_shm(const struct box_config *c, struct err *err)
{
	char path[PATH_MAX];
	int r = make_dir(c->dir, "shm", 0711, path, err);
	return r < 0 ? r
		     : mounts_tmpfs(path, c->limits.shm, spec_shm_files(c->limits.shm), SHM_MODE,
				    c->id_base, err);
}

/* gVisor puts a tmpfs of its own on an empty /tmp, unless something is mounted there: a workspace,
 * or the root's own, so that what is in it is saved. */
static int put_tmp(const struct box_config *c, int user_ns, struct err *err)
{
	char path[PATH_MAX];
	const struct box_mount *m = find_mount(c, BOX_TMP);
	auto_fd root = open(c->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* No link: the runtime would follow it on the host. */
	auto_fd tmp = root < 0 ? -1 : io_open_beneath(root, "tmp", O_PATH | O_DIRECTORY);
	if (!m && tmp < 0)
		return 0; /* an image without: then the runtime's it is */
	auto_fd tree = m ? mounts_clone(m->source, user_ns, m->read_only, err)
			 : mounts_clone_folder(tmp, user_ns, err);
	int r = tree < 0 ? tree : make_dir(c->dir, "tmp", 0711, path, err);
	if (r == 0)
		r = mounts_put(tree, path, err);
	return r < 0 ? r : share(path, err);
}

/* What a kernel of its own (spec_own_kernel) finds workspaces in, once they come. */
static int put_own_kernel(const struct box_config *c, int user_ns, struct err *err)
{
	char path[PATH_MAX];
	/* It makes its user namespace as the root that it runs as: that is to be one whose use
	 * counts for the range's first id. */
	int r = box_path(path, c->dir, SHIM_USER_NS);
	if (r == 0)
		r = userns_make(path, c->id_base, 0, UINT32_MAX, err);
	if (r == 0)
		r = put_shm(c, err);
	if (r == 0)
		r = box_path(path, c->dir, "rootfs");
	if (r == 0)
		r = share(path, err);
	return r < 0 ? r : put_tmp(c, user_ns, err);
}

/* ---- the configuration ---- */

/* A runtime sets them for a process of the sandbox's namespace, which takes CAP_SYS_RESOURCE. */
static uint64_t files_max(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { 0 };
	struct rlimit l;
	if (syscall(SYS_capget, &head, caps) < 0 ||
	    !(caps[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective & CAP_TO_MASK(CAP_SYS_RESOURCE)) ||
	    getrlimit(RLIMIT_NOFILE, &l) < 0)
		return 0;
	return l.rlim_max;
}

static int find_user(const struct box_config *c, const char *who, struct user *out,
		     struct err *err)
{
	auto_fd root = open(c->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_sys(err, -errno, "open the root at %s", c->root);
	return user_lookup(out, root, who, BOX_IDS, err);
}

/* What is attached later, at a path that sorts before /workspace, moves nobody. */
static const char *cwd_of(const struct box_config *c, const struct box_process *p)
{
	if (p->cwd)
		return p->cwd;
	if (find_mount(c, "/workspace"))
		return "/workspace";
	return c->n_mounts ? c->mounts[0].target : "/";
}

/* Sources of binds, as text that outlives the spec's writing. */
struct binds {
	struct spec_bind list[BINDS_MAX];
	char text[BINDS_MAX][PATH_MAX];
	size_t n;
};

static struct spec_bind *add_bind(struct binds *b, const char *dir, const char *name,
				  const char *target, bool ro)
{
	if (b->n == BINDS_MAX || box_path(b->text[b->n], dir, name) < 0)
		return NULL;
	b->list[b->n] = (struct spec_bind){ .source = b->text[b->n],
					     .target = target,
					     .read_only = ro };
	return &b->list[b->n++];
}

static bool root_has(const struct box_config *c, const char *path)
{
	auto_fd root = open(c->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_fd fd = root < 0 ? -1 : inroot_open_file(root, path);
	return fd >= 0;
}

static int bind_all(const struct box_config *c, struct binds *b)
{
	char parent[PATH_MAX], name[32];
	(void)snprintf(parent, sizeof(parent), "%s/..", c->dir);
	struct spec_bind *last = add_bind(b, parent, SHARE_NAME, "/.bough", true);
	if (last && c->host_image) {
		last = add_bind(b, "", "usr", "/usr", true);
		if (last)
			last->recursive = true;
	}
	if (last && spec_own_kernel(c->kind) && box_path(parent, c->dir, "tmp") == 0 &&
	    mounts_is_mount(parent)) {
		last = add_bind(b, c->dir, "tmp", BOX_TMP, false);
		if (last)
			last->later = true;
	}
	if (last && spec_own_kernel(c->kind)) {
		last = add_bind(b, c->dir, "shm", SPEC_SHM, false);
		if (last)
			last->no_exec = true;
	}
	for (size_t i = 0; last && i < c->n_mounts && !spec_own_kernel(c->kind); i++) {
		(void)snprintf(name, sizeof(name), "mnt/%zu", i);
		last = add_bind(b, c->dir, name, c->mounts[i].target, c->mounts[i].read_only);
	}
	if (last && c->n_secrets)
		last = add_bind(b, c->dir, "secrets", SECRETS_TARGET, true);
	if (last && c->net_host && access(RESOLV_CONF, R_OK) == 0 && root_has(c, RESOLV_CONF))
		last = add_bind(b, "", RESOLV_CONF + 1, RESOLV_CONF, true);
	return last ? 0 : -ENAMETOOLONG;
}

static int write_config(const struct box_config *c, const struct box_process *p,
			const struct user *user, struct err *err)
{
	char user_ns[PATH_MAX], group[GROUP_SIZE], cgroup[GROUP_SIZE + 8];
	struct cgroups groups;
	auto_free struct binds *binds = calloc(1, sizeof(*binds));
	if (!binds)
		return err_no_memory(err);
	int r = cgroup_find(&groups, err);
	if (r < 0)
		return r;
	if (box_path(user_ns, c->dir, "user") < 0 || bind_all(c, binds) < 0)
		return err_set(err, -ENAMETOOLONG, "%s is too long", c->dir);
	group_name(group, c->ns, c->id);
	/* Of version 2 systemd takes a controller off the top when no unit needs it, and the limits
	 * with it: but not while a folder there hands it on to one below. */
	(void)snprintf(cgroup, sizeof(cgroup), "%s%s", group, cgroup_is_v2(&groups) ? "/box" : "");
	struct spec s = {
		.kind = c->kind,
		.hostname = c->hostname ? c->hostname : c->id,
		.user_ns = user_ns,
		.cgroup = cgroup,
		.id_base = c->id_base,
		.net_host = c->net_host,
		.cgroup2 = cgroup_is_v2(&groups),
		.counts_swap = cgroup_counts_swap(&groups),
		.hide_usr_local = c->host_image && !c->usr_local && access("/usr/local", F_OK) == 0,
		.limits = c->limits,
		.binds = binds->list,
		.n_binds = binds->n,
	};
	struct spec_process sp = { p, user, cwd_of(c, p), files_max(), c->limits.pids };
	auto_buf text = { 0 };
	r = spec_shares_kernel(c->kind) ? cgroup_make(&groups, cgroup, err) : 0;
	if (r < 0)
		return r;
	r = spec_write(&s, &sp, &text, err);
	if (r < 0)
		return r;
	auto_fd dir = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", c->dir);
	return io_publish(NULL, dir, "config.json", text.data, text.len, false, err);
}

int box_exec_spec(const struct box_config *config, const struct box_process *process,
		  struct buf *out, struct err *err)
{
	struct user user;
	if (!process->argv || !process->argv[0])
		return err_set(err, -EINVAL, "no command");
	int r = check(config, process, err);
	if (r == 0)
		r = find_user(config, process->user, &user, err);
	if (r < 0)
		return r;
	struct spec_process sp = { process, &user, cwd_of(config, process), files_max(),
				   config->limits.pids };
	return spec_write_process(config->kind, &sp, out, err);
}

/* ---- making ---- */

/* Where its process begins, if it isn't there. The runtime would make it, with boughd's umask: then
 * it would be root's alone. What can't be made here, that one speaks of. */
static void make_cwd(const struct box_config *c, const char *cwd)
{
	const char *in = c->root, *rest = cwd;
	size_t longest = 0;
	bool fixed = box_own_mount(cwd) || (c->host_image && is_below(cwd, "/usr"));
	for (size_t i = 0; i < c->n_mounts; i++) {
		const struct box_mount *m = &c->mounts[i];
		size_t n = strlen(m->target);
		if (n <= longest || !is_below(cwd, m->target))
			continue;
		longest = n;
		in = m->source;
		rest = cwd + n;
		fixed = m->read_only;
	}
	auto_fd root = fixed ? -1 : open(in, O_PATH | O_DIRECTORY | O_CLOEXEC);
	auto_fd made = root < 0 ? -1 : inroot_make_dir(root, *rest ? rest : "/");
	(void)made;
}

static int put_mounts(const struct box_config *c, int user_ns, struct err *err)
{
	char path[PATH_MAX], name[32];
	int r = c->n_mounts ? make_dir(c->dir, "mnt", 0711, path, err) : 0;
	for (size_t i = 0; r == 0 && i < c->n_mounts; i++) {
		(void)snprintf(name, sizeof(name), "mnt/%zu", i);
		r = put_mount(c, c->mounts[i].source, name, c->mounts[i].read_only, user_ns, err);
	}
	return r;
}

static int make_all(const struct box_config *c, const struct box_process *main, struct err *err)
{
	char path[PATH_MAX], parent[PATH_MAX];
	auto_fd user_ns = -1;
	struct user user;
	(void)snprintf(parent, sizeof(parent), "%s/..", c->dir);
	int r = share_make(parent, c->init, err);
	if (r == 0 && c->kind->shifts_ids) {
		r = box_path(path, c->dir, "user");
		if (r == 0)
			r = userns_make(path, c->id_base, c->id_base, BOX_IDS, err);
		user_ns = r < 0 ? r : box_user_ns(c, err);
		r = user_ns < 0 ? user_ns : 0;
	}
	if (r == 0)
		r = put_mount(c, c->root, "rootfs", false, user_ns, err);
	if (r == 0)
		r = make_targets(c, err);
	if (r == 0)
		make_cwd(c, cwd_of(c, main));
	if (r == 0)
		r = spec_own_kernel(c->kind) ? put_own_kernel(c, user_ns, err)
					     : put_mounts(c, user_ns, err);
	if (r == 0 && c->n_secrets)
		r = put_secrets(c, err);
	if (r == 0)
		r = find_user(c, main->user, &user, err);
	if (r == 0)
		r = write_config(c, main, &user, err);
	return r;
}

int box_guard(const struct box_config *config, struct err *err)
{
	gid_t group = config->kind->shifts_ids ? config->id_base : 0;
	return chown(config->dir, 0, group) < 0 || chmod(config->dir, 0710) < 0
		       ? err_sys(err, -errno, "guard the box %s", config->dir)
		       : 0;
}

int box_make(const struct box_config *config, const struct box_process *main, struct err *err)
{
	int r = check(config, main, err);
	if (r < 0)
		return r;
	if (mkdir(config->dir, 0700) < 0)
		return err_sys(err, -errno, "make the box %s", config->dir);
	r = box_guard(config, err);
	if (r == 0)
		r = make_all(config, main, err);
	if (r < 0) {
		struct err left;
		if (box_clear(config->dir, config->ns, &left) < 0)
			(void)err_prefix(err, r, "%s (and %s)", config->id, left.text);
	}
	return r;
}

/* ---- the end ---- */

int box_clear(const char *dir, const char *ns, struct err *err)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(dir, '/');
	if (!slash || dir[0] != '/' || !is_name(slash + 1) || !is_name(ns) ||
	    (size_t)(slash - dir) >= sizeof(parent))
		return err_set(err, -EINVAL, "%s is no box", dir);
	int r = clear_groups(ns, slash + 1, err);
	if (r == 0) /* or what is mounted there would be removed with it */
		r = mounts_take_all_off(dir, err);
	if (r < 0)
		return r;
	(void)snprintf(parent, sizeof(parent), "%.*s", (int)(slash - dir), dir);
	auto_fd fd = open(parent[0] ? parent : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(err, -errno, "open %s", parent);
	return io_remove_tree(fd, slash + 1, err);
}

int box_end(const char *parent, struct err *err)
{
	return share_end(parent, err);
}

void box_unenforced_by(const struct cgroups *groups, const struct runtime_kind *kind, char *out,
		       size_t size)
{
	out[0] = '\0';
	const struct {
		const char *name;
		bool missing;
	} all[] = {
		{ "memory", !cgroup_has(groups, "memory") },
		/* A guest's memory is all that it has. */
		{ "swap", kind->shifts_ids && !cgroup_counts_swap(groups) },
		{ "cpus", !cgroup_has(groups, "cpu") },
		/* A guest's processes are none of the host's. */
		{ "pids", !spec_own_kernel(kind) &&
				  (!kind->reports_pids || !cgroup_has(groups, "pids")) },
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i].missing) {
			size_t n = strlen(out);
			(void)snprintf(out + n, size - n, "%s%s", n ? ", " : "", all[i].name);
		}
}

void box_unenforced(const struct runtime_kind *kind, char *out, size_t size)
{
	struct cgroups groups;
	if (cgroup_find(&groups, NULL) < 0)
		groups.n = 0;
	box_unenforced_by(&groups, kind, out, size);
}

int box_freeze(const char *id, const char *ns, bool on, struct err *err)
{
	char group[GROUP_SIZE];
	struct cgroups groups;
	if (!is_name(id) || !is_name(ns))
		return err_set(err, -EINVAL, "no box is called so");
	int r = cgroup_find(&groups, err);
	if (r < 0)
		return r;
	group_name(group, ns, id);
	r = cgroup_freeze(&groups, group, on, err);
	if (r != -ENOENT)
		return r;
	old_group_name(group, ns, id);
	return cgroup_freeze(&groups, group, on, err);
}
