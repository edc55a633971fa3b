/* Images of containers: an OCI image layout, what `docker save` writes, or a root filesystem,
 * each as one archive, become one snapshot whose row says how a container of it begins.
 *
 * The archive is read as a stream. Which of the three it is, its first member that is no folder
 * says: oci-layout, index.json, manifest.json, repositories, or something below blobs/ or below a
 * folder named by 64 hex digits; all else is a root filesystem. An image's blobs go into a
 * temporary file without a name (what isn't part of the image too: at most `max_bytes` of it),
 * then its layers are applied in order to one tree that becomes one image file of ours; their
 * contents are objects, so layers that several images have in common cost their space once.
 *
 * Each blob is checked against its digest, a layer of `docker save` against the diff_id of its
 * configuration. Of an index the manifest for this machine's architecture and linux is taken.
 * Whiteouts are obeyed as the OCI says: they hide what lower layers have, never what their own
 * layer brings. -EBADMSG: damaged, or not for this machine, with one line that says what.
 *
 * Sources: OCI image-spec 1.1 (layout, manifest, config, layer), Docker image spec 1.2. */
#ifndef BOUGH_SNAPD_OCI_H
#define BOUGH_SNAPD_OCI_H

#include "snapd/archive_import.h"

/* As archive_import. *config: a JSON object that the caller frees with free():
 *     {"env": ["K=V", …], "user": "…", "workdir": "…", "entrypoint": […], "cmd": […],
 *      "stop_signal": "…", "labels": {…}, "digest": "sha256:…", "architecture": "…"}
 * with what the image says of these; {} of a root filesystem. At most OCI_CONFIG_MAX bytes. */
enum { OCI_CONFIG_MAX = 256 << 10 };
int oci_import(struct digest *image, char **config, const struct archive_import_options *opt,
	       const struct archive_source *src, struct archive_import_stats *st,
	       struct err *err);

#endif
