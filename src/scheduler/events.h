/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events of ours on pods: why a pod waits, with numbers. Written only when what there is to say has
 * changed, and never faster than a fixed rate, so that a queue of waiting pods is no load. */

#include <stdint.h>

#include "scheduler/api.h"
#include "scheduler/state.h"

struct events {
    struct api api;
    uint64_t window_ms; /* start of the current second */
    unsigned in_window;
    uint64_t written, suppressed, failed; /* counters */
};

/* Writes a Warning with that reason on the pod, or does not, see above. */
void events_warn(struct events *e, struct state_pod *pod, const char *reason, const char *message,
                 uint64_t now_ms);
