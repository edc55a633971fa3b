/* What a sandbox's root begins with. */
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/log.h"
#include "snapd/api.h"

/* What the row of the built-in image's snapshot has. Other numbers, and it is made anew: of
 * `builtin` after an update of this program, of `of` after one of the host. */
#define HOST_CONFIG "{\"host\":true,\"builtin\":"
enum { HOST_CONFIG_SIZE = 80 };

static void host_config(char out[HOST_CONFIG_SIZE])
{
	(void)snprintf(out, HOST_CONFIG_SIZE, HOST_CONFIG "1,\"of\":\"%016llx\"}",
		       (unsigned long long)hostimage_stamp());
}

void sandbox_image_done(struct sandbox_image *im)
{
	json_decref(im->config);
	memset(im, 0, sizeof(*im));
}

/* Removes the workspace in which it was made. */
static void drop(struct snapd *sd, const char *ws)
{
	auto_source src = { 0 };
	struct err err = { 0 };
	int r = source_find_ws(&src, sd, ws, LEASE_EXCLUSIVE, "rm", &err);
	if (r >= 0)
		r = api_ws_remove(sd, &src, 0, &err);
	if (r < 0)
		log_warn("workspace %s, of the host image: %s", ws, err.text);
}

static int save_host(struct snapd *sd, const char *ws, const char *config, char out[ID_SIZE],
		     struct err *err)
{
	struct save *s = NULL;
	json_t *j = NULL;
	int r = api_save_begin(&s, sd, ws, NULL, "the image \"host\"", err);
	if (r >= 0)
		r = api_save_image(s, config, err);
	if (r >= 0)
		r = api_save_finish(s, NULL, &j, err);
	if (r >= 0)
		(void)snprintf(out, ID_SIZE, "%s", json_string_value(json_object_get(j, "id")));
	json_decref(j);
	api_save_free(s);
	return r;
}

/* Those of before, but for what a sandbox stands on, or a snapshot. */
static void drop_older(struct snapd *sd, const char *newest)
{
	struct snap_row *rows;
	size_t n;
	if (catalog_snap_list(sd->catalog, &rows, &n, NULL) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		auto_source src = { 0 };
		if (!rows[i].image || strcmp(rows[i].id, newest) == 0 ||
		    strncmp(rows[i].image, HOST_CONFIG, strlen(HOST_CONFIG)) != 0)
			continue;
		if (source_find_snap(&src, sd, rows[i].id, LEASE_EXCLUSIVE, "rm", NULL) >= 0)
			(void)api_snap_remove(sd, &src, false, NULL, NULL); /* or the next time */
	}
	snap_rows_free(rows, n);
}

/* It is everybody's, whoever comes first: the service makes it. */
static int make_host(struct snapd *sd, const char *config, char out[ID_SIZE], struct err *err)
{
	char path[PATH_SIZE], name[ID_SIZE];
	auto_ws_row row = { 0 };
	struct ws_plan plan = { .mount = true, .xattrs = true };
	struct doing *was = doing_set(NULL);
	id_make(name, "im");
	plan.name = strdup(name);
	plan.like.labels = strdup("");
	int r = plan.name && plan.like.labels ? api_ws_make(&row, sd, &plan, err)
					      : err_no_memory(err);
	if (r >= 0) {
		snapd_mount_path(sd, row.id, path);
		r = hostimage_fill(path, err);
		if (r >= 0)
			r = save_host(sd, row.id, config, out, err);
		drop(sd, row.id);
	}
	if (r >= 0)
		drop_older(sd, out);
	ws_plan_done(&plan);
	(void)doing_set(was);
	return r < 0 ? err_prefix(err, snapd_inner(r), "make the image \"host\"") : 0;
}

static int find_host(struct snapd *sd, char out[ID_SIZE], struct err *err)
{
	char config[HOST_CONFIG_SIZE];
	pthread_mutex_lock(&sd->sandboxes->images);
	host_config(config);
	int r = catalog_snap_of_image(sd->catalog, config, out, err);
	if (r == -ENOENT)
		r = make_host(sd, config, out, err);
	pthread_mutex_unlock(&sd->sandboxes->images);
	return r;
}

int sandbox_image_find(struct snapd *sd, const char *key, struct sandbox_image *out,
		       struct err *err)
{
	auto_snap_row row = { 0 };
	auto_image im = { 0 };
	int r = 0;
	if (strcmp(key, "host") == 0) {
		im.host = true;
		im.config = json_object();
		r = find_host(sd, im.snapshot, err);
	} else {
		r = catalog_snap_get(sd->catalog, key, &row, err);
		if (r >= 0 && !row.image)
			r = err_set(err, -EINVAL,
				    "snapshot %s is no image: `bough image ls` shows "
				    "what there is",
				    row.id);
		im.config = r >= 0 ? json_loads(row.image, 0, NULL) : NULL;
		if (r >= 0 && !json_is_object(im.config))
			r = err_set(err, -EIO, "what snapshot %s says of its image is damaged",
				    row.id);
		im.host = json_is_true(json_object_get(im.config, "host"));
		memcpy(im.snapshot, row.id, ID_SIZE);
	}
	if (r < 0)
		return r;
	*out = im;
	im = (struct sandbox_image){ 0 };
	return 0;
}
