/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events of ours on pods: why a pod waits, with numbers. Written only when what there is to say has
 * changed, and never faster than a fixed rate, so that a queue of waiting pods is no load. */

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/cluster/api.h"
#include "scheduler/state/state.h"

struct events {
    struct api api;
    uint64_t window_ms; /* start of the current second */
    unsigned in_window;
    bool waiting;             /* somebody may be waiting for an Event: nobody goes before */
    uint64_t written, failed; /* counters */
};

/* Writes a Warning with that reason on the pod, now or at a later events_flush(), unless it is what
 * was written last. `reason` is kept as it is, `message` copied. */
void events_warn(struct events *e, struct state_pod *pod, const char *reason, const char *message,
                 uint64_t now_ms);

/* To be called about once a second: writes what had to wait, as far as the pods still wait. */
void events_flush(struct events *e, struct state *s, uint64_t now_ms);
