/* What a sandbox's root begins with. */
#include "snapd/sandbox_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/log.h"
#include "snapd/api.h"

/* What the row of the built-in image's snapshot has. Another number, and it is made anew. */
static const char host_config[] = "{\"host\":true,\"builtin\":1}";

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

static int save_host(struct snapd *sd, const char *ws, char out[ID_SIZE], struct err *err)
{
	struct save *s = NULL;
	json_t *j = NULL;
	int r = api_save_begin(&s, sd, ws, NULL, "the image \"host\"", err);
	if (r >= 0)
		r = api_save_image(s, host_config, err);
	if (r >= 0)
		r = api_save_finish(s, NULL, &j, err);
	if (r >= 0)
		(void)snprintf(out, ID_SIZE, "%s", json_string_value(json_object_get(j, "id")));
	json_decref(j);
	api_save_free(s);
	return r;
}

/* It is everybody's, whoever comes first: the service makes it. */
static int make_host(struct snapd *sd, char out[ID_SIZE], struct err *err)
{
	char path[PATH_SIZE], name[ID_SIZE];
	auto_ws_row row = { 0 };
	struct ws_plan plan = { .mount = true, .xattrs = true };
	struct doing *was = doing_set(NULL);
	id_make(name, "im");
	plan.name = strdup(name);
	plan.like.labels = strdup("");
	int r = plan.name && plan.like.labels ? api_ws_make(&row, sd, &plan, err)
					      : err_set(err, -ENOMEM, "out of memory");
	if (r >= 0) {
		snapd_mount_path(sd, row.id, path);
		r = hostimage_fill(path, err);
		if (r >= 0)
			r = save_host(sd, row.id, out, err);
		drop(sd, row.id);
	}
	ws_plan_done(&plan);
	(void)doing_set(was);
	return r < 0 ? err_prefix(err, snapd_inner(r), "make the image \"host\"") : 0;
}

static int find_host(struct snapd *sd, char out[ID_SIZE], struct err *err)
{
	pthread_mutex_lock(&sd->sandboxes->images);
	int r = catalog_snap_of_image(sd->catalog, host_config, out, err);
	if (r == -ENOENT)
		r = make_host(sd, out, err);
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
