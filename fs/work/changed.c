#include "fs/work/changed.h"

#include <stdio.h>

void changed_token_of_image(char out[CHANGED_TOKEN_MAX], const struct digest *image)
{
	char hex[DIGEST_HEX + 1];
	digest_hex(hex, image);
	(void)snprintf(out, CHANGED_TOKEN_MAX, "i%.16s", hex);
}
