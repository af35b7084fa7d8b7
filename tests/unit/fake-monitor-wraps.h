/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The test is the driver, by --wrap of the linker: what the agent's monitor has read is in
 * `snapshot`. How often it was told to read the cards is in `polls`. */

#include "gpu/nvml/monitor.h"

static struct gpu_snapshot snapshot;
static unsigned polls;

const struct gpu_snapshot *__wrap_gpu_monitor_snapshot(const struct gpu_monitor *m);
uint64_t __wrap_gpu_monitor_poll(struct gpu_monitor *m);

const struct gpu_snapshot *__wrap_gpu_monitor_snapshot(const struct gpu_monitor *m) {
    (void) m;
    return &snapshot;
}

uint64_t __wrap_gpu_monitor_poll(struct gpu_monitor *m) {
    (void) m;
    polls++;
    return 0;
}
