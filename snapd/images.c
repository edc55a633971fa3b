/* Which images are being made, so that gc takes none of them for garbage. */
#include <stdlib.h>

#include "snapd/snapd.h"

enum { RECENT = 256 }; /* more images than that between two marks: gc deletes none */

struct images {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	unsigned making;
	bool deleting;
	unsigned nrecent; /* may exceed RECENT: then all count as recent */
	struct digest recent[RECENT];
};

struct images *images_new(void)
{
	struct images *im = calloc(1, sizeof(*im));
	if (!im)
		return NULL;
	pthread_mutex_init(&im->lock, NULL);
	pthread_cond_init(&im->moved, NULL);
	return im;
}

void images_free(struct images *im)
{
	if (!im)
		return;
	pthread_cond_destroy(&im->moved);
	pthread_mutex_destroy(&im->lock);
	free(im);
}

void images_making(struct images *im)
{
	pthread_mutex_lock(&im->lock);
	while (im->deleting)
		pthread_cond_wait(&im->moved, &im->lock);
	im->making++;
	pthread_mutex_unlock(&im->lock);
}

void images_made(struct images *im, const struct digest *name)
{
	pthread_mutex_lock(&im->lock);
	im->making--;
	if (name) {
		if (im->nrecent < RECENT)
			im->recent[im->nrecent] = *name;
		im->nrecent++;
	}
	pthread_mutex_unlock(&im->lock);
}

bool images_delete_begin(struct images *im)
{
	pthread_mutex_lock(&im->lock);
	bool can = im->making == 0;
	im->deleting = can;
	pthread_mutex_unlock(&im->lock);
	return can;
}

void images_delete_end(struct images *im)
{
	pthread_mutex_lock(&im->lock);
	im->deleting = false;
	pthread_cond_broadcast(&im->moved);
	pthread_mutex_unlock(&im->lock);
}

bool images_is_recent(struct images *im, const struct digest *name)
{
	pthread_mutex_lock(&im->lock);
	bool is = im->nrecent > RECENT;
	for (unsigned i = 0; i < im->nrecent && !is; i++)
		is = digest_equal(&im->recent[i], name);
	pthread_mutex_unlock(&im->lock);
	return is;
}

void images_forget(struct images *im)
{
	pthread_mutex_lock(&im->lock);
	im->nrecent = 0;
	pthread_mutex_unlock(&im->lock);
}
