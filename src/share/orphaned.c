/* SPDX-License-Identifier: Apache-2.0 */
#include "share/orphaned.h"

void orphaned_begin(struct orphaned *o, uint64_t bytes) {
    o->before = o->now;
    o->now = bytes;
}

uint64_t orphaned_end(struct orphaned *o, uint64_t rest, bool still) {
    uint64_t orphaned = o->now, held = rest, back;
    uint32_t needed;

    o->bytes[o->polls % ORPHANED_POLLS] = o->now;
    o->rest[o->polls % ORPHANED_POLLS] = rest;
    o->polls++;
    o->still = still ? o->still + 1 : 0;
    needed = o->still >= 2 ? 2 : ORPHANED_POLLS;
    if (o->polls < needed)
        return 0;
    for (uint32_t i = o->polls - needed; i != o->polls; i++) {
        uint32_t at = i % ORPHANED_POLLS;

        orphaned = o->bytes[at] < orphaned ? o->bytes[at] : orphaned;
        held = o->rest[at] > held ? o->rest[at] : held;
    }
    if (held <= ORPHANED_NOISE)
        held = 0;
    back = orphaned > held ? orphaned - held : 0;
    o->now -= back;
    return back;
}

bool orphaned_is_new(const struct orphaned *o) {
    return o->now > o->before;
}
