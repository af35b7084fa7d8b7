/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/nvml_accounting.h"

#include <stdlib.h>

static bool is_on(const struct sim_gpu *g) {
    return atomic_load(&g->page->setting[SIM_SETTING_ACCOUNTING]) != 0;
}

void nvml_accounting_begin(struct sim_channel *c, uint64_t now_us) {
    if (c->start_us == 0)
        c->start_us = now_us;
}

struct sim_account nvml_accounting_of(const struct sim_channel *c, uint64_t now_us) {
    uint64_t us = now_us > c->start_us ? now_us - c->start_us : 0;
    uint64_t busy_us = c->meter.total / 1000u;
    return (struct sim_account){.pid = (uint32_t) c->session->pid,
                                .running = c->contexts > 0,
                                .gpu = us > 0 && busy_us < us ? (uint32_t) (busy_us * 100 / us)
                                                              : (busy_us > 0 ? 100 : 0),
                                .peak = c->peak,
                                .time_ms = us / 1000u,
                                .start_us = c->start_us};
}

void nvml_accounting_end(struct sim_channel *c, uint64_t now_us) {
    struct sim_gpu *g = c->gpu;
    if (c->start_us == 0 || !is_on(g))
        return;
    if (!g->ended)
        g->ended = calloc(SIM_ACCOUNTS_MAX, sizeof(*g->ended));
    if (!g->ended)
        return;
    struct sim_account *a = &g->ended[g->nended++ % SIM_ACCOUNTS_MAX];
    *a = nvml_accounting_of(c, now_us);
    a->running = 0;
}

const struct sim_account *nvml_accounting_at(const struct sim_gpu *g, uint32_t i) {
    uint32_t n = g->nended < SIM_ACCOUNTS_MAX ? g->nended : SIM_ACCOUNTS_MAX;
    return i < n ? &g->ended[(g->nended - n + i) % SIM_ACCOUNTS_MAX] : NULL;
}

void nvml_accounting_clear(struct sim_gpu *g) {
    free(g->ended);
    g->ended = NULL;
    g->nended = 0;
}
