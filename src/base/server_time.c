/* SPDX-License-Identifier: Apache-2.0 */
#include "base/server_time.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"

#define UNHEARD INT64_MIN
#define SAME_S 2 /* a date has whole seconds, and its answer was on its way */

static _Atomic int64_t boot = UNHEARD; /* the API server's time when this machine was booted */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of changes of it, and of the next */
static struct {
    int64_t told;  /* another time than `boot`, likewise */
    int64_t since; /* seconds since boot */
} doubted = {.told = UNHEARD};

static int64_t since_boot(void) {
    return (int64_t) (clock_ms(CLOCK_BOOTTIME) / 1000);
}

static bool agrees(int64_t one, int64_t other) {
    return one - other <= SAME_S && other - one <= SAME_S;
}

/* Whether answers have told a time other than the one so far for long enough. The lock is held. */
static bool is_confirmed(int64_t told, int64_t since_boot_now) {
    if (doubted.told == UNHEARD || !agrees(doubted.told, told)) {
        doubted.told = told;
        doubted.since = since_boot_now;
    }
    return since_boot_now - doubted.since >= SERVER_TIME_AGREED_S;
}

static void take(int64_t told, int64_t since_boot_now) {
    int64_t was = atomic_load(&boot);
    bool same = was != UNHEARD && agrees(was, told);
    if (was != UNHEARD && !same && !is_confirmed(told, since_boot_now))
        return;
    doubted.told = UNHEARD;
    /* Of dates that agree the latest had the shortest way. */
    if (!same || told > was)
        atomic_store(&boot, told);
}

int64_t server_time_heard(const char *date) {
    struct tm tm = {0};
    const char *end = strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (!end || *end)
        return 0;
    int64_t heard = (int64_t) timegm(&tm), now = since_boot();
    (void) pthread_mutex_lock(&lock);
    take(heard - now, now);
    (void) pthread_mutex_unlock(&lock);
    return (int64_t) time(NULL) - heard;
}

void server_time_forget(void) {
    (void) pthread_mutex_lock(&lock);
    doubted.told = UNHEARD;
    atomic_store(&boot, UNHEARD);
    (void) pthread_mutex_unlock(&lock);
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
