/* SPDX-License-Identifier: Apache-2.0 */
#include "share/unattributed.h"

/* The least that the idle card showed: a holder that is not seen at one time is gone at another. */
static void learn_noise(struct unattributed *u, uint64_t remainder) {
    if (remainder > UNATTRIBUTED_NOISE_MAX || (u->noise_known && remainder >= u->noise))
        return;
    u->noise = remainder;
    u->noise_known = true;
}

uint64_t unattributed_tolerated(const struct unattributed *u) {
    return u->noise > UNATTRIBUTED_NOISE ? u->noise : UNATTRIBUTED_NOISE;
}

/* One poll without a remainder may be as untrue as one with it. */
static bool forget_remainder(struct unattributed *u) {
    if (u->bytes > 0 && !u->fading) {
        u->fading = true;
        return true;
    }
    u->fading = false;
    u->since_ms = 0;
    u->last = 0;
    u->polls = u->still = 0;
    u->bytes = 0;
    return false;
}

bool unattributed_poll(struct unattributed *u, const struct unattributed_poll *poll) {
    uint64_t now = poll->used > poll->attributed ? poll->used - poll->attributed : 0;
    bool certain;

    if (poll->idle)
        learn_noise(u, now);
    if (now <= unattributed_tolerated(u))
        return forget_remainder(u);
    u->fading = false;
    if (u->polls == 0)
        u->since_ms = poll->now_ms;
    u->polls++;
    u->still += poll->still;
    certain = poll->now_ms - u->since_ms >= UNATTRIBUTED_CONFIRM_MS &&
              (u->still >= 2 || u->polls >= UNATTRIBUTED_RESTLESS_POLLS);
    if (certain)
        u->bytes = u->polls > 1 && u->last < now ? u->last : now;
    u->last = now;
    return !certain;
}
