/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The test is the driver: what the agent's monitor has to say is in `snapshot` and `polls`. How
 * often it was told to read the cards is in `polls_wanted`. */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu/nvml/monitor.h"

static struct gpu_snapshot snapshot;
static uint64_t polls, polls_wanted;
static bool monitor_complete;         /* the driver has answered once */
static const char *monitor_text = ""; /* what is wrong with the driver */

const struct gpu_snapshot *gpu_monitor_snapshot(const struct gpu_monitor *m) {
    (void) m;
    return &snapshot;
}

void gpu_monitor_status(const struct gpu_monitor *m, struct gpu_monitor_status *ret) {
    (void) m;
    *ret = (struct gpu_monitor_status){
        .complete = monitor_complete, .polls = polls, .text = monitor_text};
}

bool gpu_monitor_hangs(const struct gpu_monitor *m, uint32_t card) {
    (void) m, (void) card;
    return false;
}

uint64_t gpu_monitor_poll(struct gpu_monitor *m) {
    (void) m;
    polls_wanted++;
    return 0;
}

void gpu_monitor_set_interval(struct gpu_monitor *m, unsigned interval_ms) {
    (void) m, (void) interval_ms;
}

int gpu_monitor_limit(struct gpu_monitor *m, const char *uuid, const char *cgroup, uint64_t bytes) {
    (void) m, (void) uuid, (void) cgroup, (void) bytes;
    return -EAGAIN;
}
