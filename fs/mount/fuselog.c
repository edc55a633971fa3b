#include "fs/mount/fuselog.h"

#define FUSE_USE_VERSION 318
#include <fuse_log.h>
#include <stdarg.h>
#include <stdio.h>
#include "fs/base/log.h"

static void to_log(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[512];
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* cut where it is longer */
	enum log_level to = level <= FUSE_LOG_ERR       ? LOG_LEVEL_ERROR
			    : level == FUSE_LOG_WARNING ? LOG_LEVEL_WARN
			    : level <= FUSE_LOG_INFO    ? LOG_LEVEL_INFO
							: LOG_LEVEL_DEBUG;
	log_line(to, "libfuse: %s", text);
}

void fuselog_install(void)
{
	fuse_set_log_func(to_log);
}
