/* The formats that compare content line by line; for difftext.c. */
#ifndef BOUGH_SNAPD_DIFFPATCH_H
#define BOUGH_SNAPD_DIFFPATCH_H

#include "snapd/difftext.h"

int diffpatch_patch(const struct view *a, const struct view *b, const struct diff_sink *sink,
		    struct err *err);
int diffpatch_stat(const struct view *a, const struct view *b, const struct diff_sink *sink,
		   struct err *err);

#endif
