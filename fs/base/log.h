/* The one log of a program. Libraries stay silent: only main programs and their
 * event loops call this. Lines go to stderr as `TIME LEVEL PROGRAM[PID]: text`, or as
 * text with the journal's <N> prefix when stderr is one. Control characters are shown
 * as '?', longer lines are cut at 2 KiB. Any thread, one write(2) a line. */
#ifndef BOUGH_BASE_LOG_H
#define BOUGH_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Level from the environment's BOUGH_LOG (error, warn, info, debug); default info.
 * Call it once, before there are threads. */
void log_init(const char *program);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
