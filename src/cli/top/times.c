/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/times.h"

#include <errno.h>
#include <stdio.h>

#include "cli/top/data.h"

const char *times_clock(time_t when, bool has_seconds, char ret[static TIMES_CLOCK_SIZE]) {
    struct tm local = {0};

    (void) localtime_r(&when, &local);
    (void) strftime(ret, TIMES_CLOCK_SIZE, has_seconds ? "%H:%M:%S" : "%H:%M", &local);
    return ret;
}

/* -1: it is no time of a day. */
static int parse_clock(const char *text, struct tm *ret) {
    static const char *const formats[] = {"%H:%M", "%H:%M:%S"};

    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        *ret = (struct tm){0};
        const char *end = strptime(text, formats[i], ret);
        if (end && !*end)
            return 0;
    }
    return -1;
}

static bool shows(time_t when, const struct tm *clock) {
    struct tm local = {0};

    (void) localtime_r(&when, &local);
    return local.tm_hour == clock->tm_hour && local.tm_min == clock->tm_min &&
           local.tm_sec == clock->tm_sec;
}

int times_parse(const char *text, time_t now, time_t *ret, struct err *err) {
    char first[TIMES_CLOCK_SIZE], last[TIMES_CLOCK_SIZE];
    time_t newest = now - TOP_STEP_SECONDS, oldest = now - TOP_HOUR_SECONDS;
    struct tm clock;

    if (parse_clock(text, &clock) < 0)
        return err_set(err, EINVAL, "--at takes a time such as 14:05 or 14:05:20, not '%s'", text);
    /* Each second, as clocks are set forward and back, and begin again at midnight. */
    for (time_t when = newest; when >= oldest; when--)
        if (shows(when, &clock)) {
            *ret = when;
            return 0;
        }
    return err_set(err, EINVAL, "--at %s is not in the last hour: agents have %s to %s", text,
                   times_clock(oldest, true, first), times_clock(newest, true, last));
}

static time_t round_down(time_t when) {
    return when - when % TOP_STEP_SECONDS;
}

time_t times_step(time_t at, int seconds, time_t read_at, time_t now) {
    /* The step that ran when the history was read is not in it. */
    time_t newest = round_down((read_at > 0 ? read_at : now) - TOP_STEP_SECONDS);
    time_t oldest = round_down(now - TOP_HOUR_SECONDS + TOP_STEP_SECONDS - 1);
    time_t to = (at > 0 ? at : newest + TOP_STEP_SECONDS) + seconds;

    if (to > newest)
        return 0;
    return to < oldest ? oldest : to;
}
