/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static _Atomic enum log_level log_threshold = LOG_INFO;

static const char *const level_names[] = {
    [LOG_ERROR] = "error",
    [LOG_WARN] = "warn",
    [LOG_INFO] = "info",
    [LOG_DEBUG] = "debug",
};
static const char *const level_marks[] = {
    [LOG_ERROR] = "ERROR",
    [LOG_WARN] = "WARN ",
    [LOG_INFO] = "INFO ",
    [LOG_DEBUG] = "DEBUG",
};

void log_set_level(enum log_level level) {
    atomic_store(&log_threshold, level);
}

int log_level_parse(const char *name) {
    for (int i = 0; i <= LOG_DEBUG; i++)
        if (strcmp(name, level_names[i]) == 0)
            return i;
    return -EINVAL;
}

void log_write(enum log_level level, const char *format, ...) {
    if (level > atomic_load(&log_threshold))
        return;

    struct timespec now;
    struct tm utc;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    (void) gmtime_r(&now.tv_sec, &utc);

    char line[LINE_MAX_BYTES];
    size_t len = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    len += (size_t) snprintf(line + len, sizeof(line) - len, ".%03ldZ %s ", now.tv_nsec / 1000000,
                             level_marks[level]);

    va_list ap;
    va_start(ap, format);
    size_t room = sizeof(line) - len - 1;
    int text = vsnprintf(line + len, room, format, ap);
    va_end(ap);
    size_t text_len = text < 0 ? 0 : (size_t) text < room ? (size_t) text : room - 1;

    for (char *c = line + len; c < line + len + text_len; c++)
        if ((unsigned char) *c < ' ' || *c == 0x7f)
            *c = ' ';
    len += text_len;
    line[len++] = '\n';
    (void) !write(STDERR_FILENO, line, len);
}
