/* Makes the checksum right where a block looks like the header of a tar member: else nearly all
 * changes of an input would end there. */
#ifndef BOUGH_TESTS_FUZZ_TAR_H
#define BOUGH_TESTS_FUZZ_TAR_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TAR_BLOCK = 512, TAR_MAGIC = 257, TAR_SUM = 148 };

static void fix_sums(uint8_t *p, size_t n)
{
	for (size_t at = 0; at + TAR_BLOCK <= n; at += TAR_BLOCK) {
		uint8_t *h = p + at;
		unsigned sum = 0;
		char text[9];
		if (memcmp(h + TAR_MAGIC, "ustar", 5) != 0)
			continue;
		memset(h + TAR_SUM, ' ', 8);
		for (size_t i = 0; i < TAR_BLOCK; i++)
			sum += h[i];
		(void)snprintf(text, sizeof(text), "%06o", sum & 0777777);
		memcpy(h + TAR_SUM, text, 7);
	}
}

#endif
