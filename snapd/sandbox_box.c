/* What runtime/ is told of a sandbox, from its row; what its own process is started with. */
#include "fs/base/json.h"
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/io.h"

enum { PROCESS_MAX = 4 << 20 /* bytes of process.json */ };

void sandbox_box_free(struct sandbox_box *b)
{
	if (!b)
		return;
	sandbox_row_done(&b->row);
	spec_done(&b->spec);
	free(b->attached);
	free(b->sources);
	free(b);
}

static int fill_mounts(struct sandbox_box *b, struct snapd *sd, struct err *err)
{
	int r = catalog_attached(sd->catalog, b->row.id, NULL, &b->attached, &b->n_attached, err);
	if (r < 0)
		return r;
	if (b->n_attached > BOX_MOUNTS)
		return err_set(err, -E2BIG, "more than %d workspaces are attached", BOX_MOUNTS);
	b->sources = calloc(b->n_attached + 1, sizeof(*b->sources));
	if (!b->sources)
		return err_no_memory(err);
	for (size_t i = 0; i < b->n_attached; i++) {
		snapd_mount_path(sd, b->attached[i].workspace, b->sources[i]);
		b->mounts[i] = (struct box_mount){ .source = b->sources[i],
						   .target = b->attached[i].target,
						   .read_only = b->attached[i].read_only };
	}
	return 0;
}

static void fill_config(struct sandbox_box *b, struct snapd *sd, const struct runtime_kind *kind)
{
	struct sandboxes *s = sd->sandboxes;
	b->config = (struct box_config){
		.dir = b->dir,
		.id = b->row.id,
		.ns = s->ns,
		.kind = kind,
		.init = s->init,
		.root = b->root,
		.host_image = b->spec.host_image,
		.usr_local = b->spec.usr_local,
		.hostname = b->spec.hostname,
		.id_base = b->row.id_base,
		.net_host = b->spec.net_host,
		.limits = b->spec.limits,
		.mounts = b->mounts,
		.n_mounts = b->n_attached,
	};
	b->shim = (struct shim_config){
		.kind = kind, .ns = s->ns, .id = b->row.id, .bundle = b->dir
	};
}

int sandbox_box_get(struct sandbox_box **out, struct snapd *sd, const char *id, struct err *err)
{
	auto_box *b = calloc(1, sizeof(*b));
	if (!b)
		return err_no_memory(err);
	int r = catalog_sandbox_get(sd->catalog, id, &b->row, err);
	if (r >= 0)
		r = spec_read(&b->spec, b->row.spec, err);
	if (r < 0)
		return r;
	const struct runtime_kind *kind = runtime_find(b->spec.runtime);
	if (!kind)
		return err_set(err, -EBADMSG, "no runtime \"%s\"", b->spec.runtime);
	sandbox_box_path(sd, id, b->dir);
	sandbox_io_path(sd, id, b->io);
	snapd_mount_path(sd, b->row.root, b->root);
	r = fill_mounts(b, sd, err);
	if (r < 0)
		return r;
	fill_config(b, sd, kind);
	*out = steal_ptr(&b);
	return 0;
}

void sandbox_fifos(const struct sandbox_box *b, const char *key, bool in, bool tty,
		   struct sandbox_fifos *fifos, struct shim_io *io)
{
	(void)snprintf(fifos->in, sizeof(fifos->in), "%s/%.20s.in", b->io, key);
	(void)snprintf(fifos->out, sizeof(fifos->out), "%s/%.20s.out", b->io, key);
	(void)snprintf(fifos->err, sizeof(fifos->err), "%s/%.20s.err", b->io, key);
	*io = (struct shim_io){ .in = in ? fifos->in : NULL,
				.out = fifos->out,
				.err = fifos->err,
				.terminal = tty,
				.uid = b->row.id_base,
				.gid = b->row.id_base };
}

/* ---- its own process ---- */

int sandbox_process_write(struct snapd *sd, const char *id, const json_t *process, struct err *err)
{
	char path[PATH_SIZE];
	auto_free char *text = json_text(process, JSON_COMPACT);
	sandbox_io_path(sd, id, path);
	if (!text)
		return err_no_memory(err);
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "create %s", path);
	auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(err, -errno, "open %s", path);
	return io_publish(NULL, dir, "process.json", text, strlen(text), false, err);
}

int sandbox_process_read(struct snapd *sd, const char *id, json_t **out, struct err *err)
{
	char path[PATH_SIZE];
	auto_free void *text = NULL;
	size_t len = 0;
	sandbox_io_path(sd, id, path);
	auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = dir < 0 ? err_sys(err, -errno, "open %s", path)
			: io_slurp(NULL, dir, "process.json", PROCESS_MAX, &text, &len, err);
	if (r < 0)
		return err_prefix(err, snapd_inner(r), "what the sandbox runs");
	json_t *j = json_loadb(text, len, 0, NULL);
	if (!json_is_object(j) || spec_env_check(json_object_get(j, "env"), NULL) < 0 ||
	    spec_words_check(json_object_get(j, "argv"), 0, NULL) < 0) {
		json_decref(j);
		return err_set(err, -EIO, "what the sandbox runs is damaged: %s/process.json",
			       path);
	}
	*out = j;
	return 0;
}

static int image_env(struct snapd *sd, const struct sandbox_spec *spec, json_t **out)
{
	auto_snap_row row = { 0 };
	if (spec->snapshot && catalog_snap_get(sd->catalog, spec->snapshot, &row, NULL) >= 0 &&
	    row.image) {
		json_t *config = json_loads(row.image, 0, NULL);
		json_t *env = json_object_get(config, "env");
		*out = spec_env_check(env, NULL) >= 0 ? json_incref(env) : NULL;
		json_decref(config);
	}
	return 0;
}

int sandbox_environment(struct snapd *sd, const struct sandbox_spec *spec, const json_t *own,
			const json_t *more, json_t **keep, const char ***out, struct err *err)
{
	json_t *image = NULL;
	json_t *base = json_pack("[s, s]", "PATH=" INIT_PATH_DEFAULT, "LANG=C.UTF-8");
	(void)image_env(sd, spec, &image); /* one that is gone by now: without */
	const json_t *const lists[] = { base, image, own, more };
	const char **env = base ? spec_env_merge(lists, 4) : NULL;
	*keep = json_pack("[o, o*]", base, image); /* what the strings are borrowed from */
	if (!env || !*keep) {
		free(env);
		return err_no_memory(err);
	}
	*out = env;
	return 0;
}
