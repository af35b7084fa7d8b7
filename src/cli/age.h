/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How long something lasts, as kubectl writes it. */

#include <stdio.h>
#include <time.h>

#define AGE_SIZE 32

/* "45 s", "12 min", "3 h 5 min", "2 d 4 h". A clock that is behind shows 0 s. */
static inline const char *age_text(time_t seconds, char ret[static AGE_SIZE]) {
    long s = seconds > 0 ? (long) seconds : 0;

    if (s < 120)
        (void) snprintf(ret, AGE_SIZE, "%ld s", s);
    else if (s < 7200)
        (void) snprintf(ret, AGE_SIZE, "%ld min", s / 60);
    else if (s < 172800)
        (void) snprintf(ret, AGE_SIZE, "%ld h %ld min", s / 3600, s % 3600 / 60);
    else
        (void) snprintf(ret, AGE_SIZE, "%ld d %ld h", s / 86400, s % 86400 / 3600);
    return ret;
}
