/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* XIDs as they happen, in the NVML child: a thread that waits for NVML's events, for no poll may
 * wait for them. And which of them make a card unfit for work. */

#include <stdbool.h>
#include <stdint.h>

#include "gpu/nvml/nvml.h"

struct gpu_events_options {
    const struct nvml *nvml; /* initialised; lives as long as the process */
    /* In the thread. `index`: as nvmlDeviceGetHandleByIndex counts; GPU instance and compute
     * instance: UINT32_MAX where NVML attributes the XID to none. */
    void (*on_xid)(uint32_t index, const nvmlEventData_t *event, void *userdata);
    /* Before calls that concern a card, in the caller's thread. */
    void (*reading)(uint32_t index, void *userdata);
    void *userdata;
    uint64_t left_out; /* cards (bits, by index) for which no call may be made */
};

/* Registers for the events of the other cards, and starts a thread that waits for them and ends
 * with the process. After 0, an XID is reported; 0 also where the driver has no events. -ENOMEM,
 * -EAGAIN: no thread. The options are copied. */
int gpu_events_start(const struct gpu_events_options *options);
