/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Log lines for daemons: one line an event, on stderr, `2026-01-31T10:20:30.123Z WARN text`.
 * Only main-level code logs above debug; libraries return errors instead. Thread-safe (one write
 * per line). Control characters in the text are replaced, so that no input can forge a line. */

enum log_level {
    LOG_ERROR,
    LOG_WARN,
    LOG_INFO,
    LOG_DEBUG,
};

void log_set_level(enum log_level level);

/* "error", "warn", "info" or "debug" to a level; negative errno for anything else. */
int log_level_parse(const char *name);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
