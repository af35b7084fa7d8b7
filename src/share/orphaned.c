/* SPDX-License-Identifier: Apache-2.0 */
#include "share/orphaned.h"

void orphaned_begin(struct orphaned *o, uint64_t bytes) {
    o->before = o->now;
    o->now = bytes;
}

uint64_t orphaned_end(struct orphaned *o, uint64_t rest) {
    uint64_t both = o->now < o->before ? o->now : o->before;
    uint64_t held = rest > o->rest_before ? rest : o->rest_before;
    uint64_t back;

    o->rest_before = rest;
    if (held <= ORPHANED_NOISE)
        held = 0;
    back = both > held ? both - held : 0;
    o->now -= back;
    return back;
}

bool orphaned_is_new(const struct orphaned *o) {
    return o->now > o->before;
}
