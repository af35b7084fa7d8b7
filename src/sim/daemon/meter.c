/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/meter.h"

static uint64_t period(const struct meter *m) {
    return m->period_ns ? m->period_ns : METER_PERIOD_NS;
}

static void advance_to(struct meter *m, uint64_t number) {
    if (number <= m->at)
        return;
    uint64_t steps = number - m->at;
    for (uint64_t i = 1; i <= steps && i <= METER_PERIODS; i++)
        m->busy[(m->at + i) % METER_PERIODS] = 0;
    m->at = number;
}

void meter_add(struct meter *m, uint64_t from, uint64_t to) {
    if (to <= from)
        return;
    m->total += to - from;
    advance_to(m, to / period(m));
    uint64_t oldest = m->at >= METER_PERIODS - 1 ? m->at - (METER_PERIODS - 1) : 0;
    if (from / period(m) < oldest)
        from = oldest * period(m);
    while (from < to) {
        uint64_t number = from / period(m);
        uint64_t end = (number + 1) * period(m);
        if (end > to)
            end = to;
        m->busy[number % METER_PERIODS] += end - from;
        from = end;
    }
}

uint64_t meter_edge(const struct meter *m, uint64_t now) {
    return now / period(m) * period(m);
}

uint32_t meter_percent(struct meter *m, uint64_t now, uint64_t edge) {
    advance_to(m, now / period(m));
    if (edge < period(m))
        return 0;
    uint64_t number = edge / period(m) - 1;
    if (number >= m->at || m->at - number >= METER_PERIODS)
        return 0;
    uint64_t busy = m->busy[number % METER_PERIODS];
    if (busy > period(m))
        busy = period(m);
    return (uint32_t) ((busy * 100 + period(m) / 2) / period(m));
}
