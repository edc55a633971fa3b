#include "fs/base/boot.h"

#include <fcntl.h>
#include <pthread.h>
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"
#include "fs/base/io.h"

static uint8_t kernel_id[BOOT_ID_BYTES]; /* constant once read */

static void read_kernel_id(void)
{
	static const char file[] = "/proc/sys/kernel/random/boot_id";
	auto_free void *text = NULL;
	char hex[2 * BOOT_ID_BYTES + 1];
	size_t len = 0, n = 0;
	if (io_slurp(NULL, AT_FDCWD, file, 64, &text, &len, NULL) == 0)
		for (const char *p = text; *p && n < sizeof(hex) - 1; p++)
			if (*p != '-')
				hex[n++] = *p;
	hex[n] = '\0';
	if (hex_decode(kernel_id, sizeof(kernel_id), hex) < 0)
		random_bytes(kernel_id, sizeof(kernel_id));
}

const uint8_t *boot_id(const uint8_t *given)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (given)
		return given;
	(void)pthread_once(&once, read_kernel_id);
	return kernel_id;
}
