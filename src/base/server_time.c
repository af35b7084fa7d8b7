/* SPDX-License-Identifier: Apache-2.0 */
#include "base/server_time.h"

#include <stdatomic.h>

#include "base/clock.h"

#define UNHEARD INT64_MIN
#define SAME_S 2 /* a date has whole seconds, and its answer was on its way */

static _Atomic int64_t boot = UNHEARD; /* the API server's time when this machine was booted */

static int64_t since_boot(void) {
    return (int64_t) (clock_ms(CLOCK_BOOTTIME) / 1000);
}

int64_t server_time_heard(const char *date) {
    struct tm tm = {0};
    const char *end = strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (!end || *end)
        return 0;
    int64_t heard = (int64_t) timegm(&tm), was = atomic_load(&boot), now = heard - since_boot();
    /* Of dates that agree the latest had the shortest way. */
    if (was == UNHEARD || now > was || now < was - SAME_S)
        atomic_store(&boot, now);
    return (int64_t) time(NULL) - heard;
}

int64_t server_time(void) {
    int64_t began = atomic_load(&boot);
    return began == UNHEARD ? (int64_t) time(NULL) : began + since_boot();
}

int64_t server_time_ahead(void) {
    int64_t ahead = (int64_t) time(NULL) - server_time();
    return ahead > SAME_S || ahead < -SAME_S ? ahead : 0;
}

time_t server_time_as_time(time_t *ret) {
    time_t now = (time_t) server_time();
    if (ret)
        *ret = now;
    return now;
}
