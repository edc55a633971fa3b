#include "fs/base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 2048 }; /* below PIPE_BUF, so lines of several processes never mix */

/* Set once by log_init, before any thread is started. */
static struct {
	enum log_level level;
	bool journal;
	char program[32];
} sink = { .level = LOG_LEVEL_INFO, .program = "bough" };

static const struct {
	const char *name, *label;
	int syslog; /* priority, sd-daemon(3) */
} levels[] = {
	[LOG_LEVEL_ERROR] = { "error", "ERROR", 3 },
	[LOG_LEVEL_WARN] = { "warn", "WARN", 4 },
	[LOG_LEVEL_INFO] = { "info", "INFO", 6 },
	[LOG_LEVEL_DEBUG] = { "debug", "DEBUG", 7 },
};

/* systemd tells by JOURNAL_STREAM which file its journal reads (systemd.exec(5)). */
static bool stderr_is_journal(void)
{
	const char *s = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;
	return s && sscanf(s, "%llu:%llu", &dev, &ino) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == dev && st.st_ino == ino;
}

void log_init(const char *program)
{
	(void)snprintf(sink.program, sizeof(sink.program), "%s", program);
	sink.journal = stderr_is_journal();
	sink.level = LOG_LEVEL_INFO;
	const char *want = getenv("BOUGH_LOG");
	for (size_t i = 0; want && i < sizeof(levels) / sizeof(levels[0]); i++)
		if (strcmp(want, levels[i].name) == 0)
			sink.level = (enum log_level)i;
}

static size_t put_head(char *line, size_t size, enum log_level level)
{
	if (sink.journal)
		return (size_t)snprintf(line, size, "<%d>", levels[level].syslog);
	struct timespec now;
	struct tm tm;
	char stamp[32];
	(void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail for this clock */
	(void)gmtime_r(&now.tv_sec, &tm);
	(void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	return (size_t)snprintf(line, size, "%s.%03ldZ %s %s[%d]: ", stamp, now.tv_nsec / 1000000,
				levels[level].label, sink.program, (int)getpid());
}

void log_line(enum log_level level, const char *fmt, ...)
{
	if (level > sink.level)
		return;
	char line[LINE_MAX_BYTES];
	size_t head = put_head(line, sizeof(line), level);
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(line + head, sizeof(line) - head, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	size_t len = strlen(line);
	/* A file name with a line feed must not be able to forge a line. */
	for (size_t i = head; i < len; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[len++] = '\n'; /* in the place of the NUL */
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* there is nobody left to tell */
}
