/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A token bucket: `per_second` actions per second, and `burst` at once after a pause. */

#include <stdbool.h>
#include <stdint.h>

struct ratelimit {
    uint32_t per_second;
    uint32_t burst; /* 0: per_second */
    uint64_t level; /* thousandths of an action that may be done now */
    uint64_t at_ms;
};

/* Whether one more action may be done now; it counts as done then. The first call finds the bucket
 * full. `now_ms` never runs backwards. */
static inline bool ratelimit_take(struct ratelimit *limit, uint64_t now_ms) {
    const uint64_t most = (uint64_t) (limit->burst ? limit->burst : limit->per_second) * 1000;
    uint64_t since =
        limit->at_ms == 0 || now_ms - limit->at_ms > most ? most : now_ms - limit->at_ms;

    limit->level += since * limit->per_second;
    limit->level = limit->level > most ? most : limit->level;
    limit->at_ms = now_ms;
    if (limit->level < 1000)
        return false;
    limit->level -= 1000;
    return true;
}
