/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/meter.h"

#define SECOND_NS 1000000000ull

static void forward(struct meter *m, uint64_t bucket) {
    if (bucket <= m->at)
        return;
    uint64_t steps = bucket - m->at;
    for (uint64_t i = 1; i <= steps && i <= METER_BUCKETS; i++)
        m->busy[(m->at + i) % METER_BUCKETS] = 0;
    m->at = bucket;
    if (steps >= METER_BUCKETS)
        for (uint32_t i = 0; i < METER_BUCKETS; i++)
            m->busy[i] = 0;
}

void meter_add(struct meter *m, uint64_t from, uint64_t to) {
    if (to <= from)
        return;
    m->total += to - from;
    uint64_t last = to / METER_BUCKET_NS;
    forward(m, last);
    uint64_t oldest = m->at >= METER_BUCKETS - 1 ? m->at - (METER_BUCKETS - 1) : 0;
    if (from / METER_BUCKET_NS < oldest)
        from = oldest * METER_BUCKET_NS;
    while (from < to) {
        uint64_t bucket = from / METER_BUCKET_NS;
        uint64_t end = (bucket + 1) * METER_BUCKET_NS;
        if (end > to)
            end = to;
        m->busy[bucket % METER_BUCKETS] += end - from;
        from = end;
    }
}

uint64_t meter_last_second(struct meter *m, uint64_t now) {
    uint64_t newest = now / METER_BUCKET_NS;
    forward(m, newest);
    uint64_t start = now > SECOND_NS ? now - SECOND_NS : 0;
    uint64_t first = start / METER_BUCKET_NS;
    uint64_t sum = 0;
    for (uint64_t b = first; b <= newest; b++) {
        uint64_t busy = m->busy[b % METER_BUCKETS];
        if (b == first) {
            uint64_t inside = (b + 1) * METER_BUCKET_NS - start;
            busy = (uint64_t) ((double) busy * (double) inside / (double) METER_BUCKET_NS);
        }
        sum += busy;
    }
    return sum < SECOND_NS ? sum : SECOND_NS;
}
