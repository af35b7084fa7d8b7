/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/memory/view.h"

#include "intercept/memory/pool.h"

void part_figures(const struct part *part, struct figures *figures) {
    uint64_t left = part->devices, total = 0, used = 0, unused;

    if (!part->share)
        return;
    if (part->share->broken) {
        *figures = (struct figures){0, 0, 0}; /* every allocation is refused */
        return;
    }
    pools_refresh(part->share);
    for (int i = part_next(&left); i >= 0; i = part_next(&left)) {
        uint64_t one_total, one_used;

        if (share_limit(part->share, i) == 0)
            return;
        share_figures(part->share, i, figures->total, &one_total, &one_used);
        total += one_total;
        used += one_used;
    }
    unused = total - used;
    /* On a card that other containers have filled, not all of the part is available; unless the
     * part is larger than the card anyway. */
    if (total <= figures->total && unused > figures->free)
        unused = figures->free;
    *figures = (struct figures){.total = total, .free = unused, .used = used};
}
