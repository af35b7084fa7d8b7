/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/verdicts/overhead.h"

void overhead_begin(struct overhead *r, uint64_t used, uint64_t operation) {
    r->before_used = used;
    r->before_operation = operation;
    r->armed = true;
}

static uint64_t median(const uint64_t v[static 3]) {
    uint64_t low = v[0] < v[1] ? v[0] : v[1], high = v[0] < v[1] ? v[1] : v[0];

    return v[2] < low ? low : v[2] > high ? high : v[2];
}

bool overhead_end(struct overhead *r, uint64_t used, uint64_t operation, uint64_t driver,
                  uint32_t processes) {
    uint64_t sample;
    bool still = r->armed && r->before_used == used && r->before_operation == operation;

    r->armed = false;
    /* No process: there is no overhead. Where the ledger still has something, the list is only
     * empty (a list that the driver failed to give), and room that is in use must not be
     * given out. */
    if (processes == 0 && used == 0) {
        *r = (struct overhead){0};
        return false;
    }
    if (!still || processes == 0)
        return false;
    sample = driver > used ? (driver - used) / OVERHEAD_GRAIN * OVERHEAD_GRAIN : 0;
    r->samples[r->next] = sample;
    r->next = (uint8_t) ((r->next + 1) % 3);
    if (r->count < 3)
        r->count++;
    /* Before there are three, the missing ones count as what holds now. */
    for (uint8_t i = r->count; i < 3; i++)
        r->samples[i] = r->bytes;
    r->bytes = median(r->samples);
    return sample != r->bytes;
}
