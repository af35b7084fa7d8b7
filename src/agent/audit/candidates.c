/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/candidates.h"

#include <stddef.h>
#include <string.h>

#include "base/text.h"
#include "gpu/device.h"

/* The entry of the container, or one for it: a free one, or one without a process that counts for
 * a container that has one. NULL: all are taken. */
static struct candidate_container *entry_for(struct candidates *c, const char *slot,
                                             bool unlisted) {
    uint32_t kept = c->n < CANDIDATES_MAX ? c->n : CANDIDATES_MAX;
    struct candidate_container *spare = NULL;

    for (uint32_t i = 0; i < kept; i++) {
        if (strcmp(c->list[i].slot, slot) == 0)
            return &c->list[i];
        if (!c->list[i].unlisted)
            spare = &c->list[i];
    }
    if (kept < CANDIDATES_MAX)
        return &c->list[kept];
    return unlisted ? spare : NULL;
}

void candidates_add(struct candidates *c, const char *slot, uint32_t pid, bool unlisted) {
    struct candidate_container *e = entry_for(c, slot, unlisted);
    bool is_new = !e || strcmp(e->slot, slot) != 0;

    c->n += is_new;
    c->unlisted += unlisted && (is_new || !e->unlisted);
    if (!e || (!is_new && (e->unlisted || !unlisted)))
        return;
    *e = (struct candidate_container){.pid = pid, .unlisted = unlisted};
    text_copy(e->slot, sizeof(e->slot), slot);
}

const struct candidate_container *candidates_only(const struct candidates *c) {
    return c->n == 1 && c->unlisted == 1 ? &c->list[0] : NULL;
}
