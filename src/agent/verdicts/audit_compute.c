/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/verdicts/audit_compute.h"

#define PPM 1000000u

bool audit_compute_poll(struct audit_compute *o, uint64_t ns, uint32_t percent, uint32_t entitled) {
    /* It changes between polls as other containers start and end; that is no overuse. */
    uint32_t most = entitled > o->entitled ? entitled : o->entitled;
    uint64_t slack;

    o->entitled = entitled;
    o->window_ns += ns;
    o->had_ns += ns / 100 * (percent < 100 ? percent : 100);
    o->due_ns += ns / 1000 * (most < PPM ? most : PPM) / 1000;
    if (o->window_ns < AUDIT_COMPUTE_WINDOW_NS)
        return false;
    slack = o->window_ns / PPM * AUDIT_COMPUTE_SLACK_PPM;
    *o = (struct audit_compute){.entitled = entitled, .over = o->had_ns > o->due_ns + slack};
    return o->over;
}
