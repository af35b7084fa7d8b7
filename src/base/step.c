/* SPDX-License-Identifier: Apache-2.0 */
#include "base/step.h"

#include <stdbool.h>

#include "base/clock.h"

/* A thread without a loop has none. */
static _Thread_local struct {
    void (*urgent)(void *userdata);
    void *userdata;
    uint64_t every_ns, last_ns;
    bool running;
} steps;

void step_set_urgent(void (*urgent)(void *userdata), void *userdata, uint64_t every_ns) {
    steps.urgent = urgent;
    steps.userdata = userdata;
    steps.every_ns = every_ns;
    steps.last_ns = clock_ns(CLOCK_MONOTONIC);
}

void step_end(void) {
    if (!steps.urgent || steps.running ||
        clock_ns(CLOCK_MONOTONIC) - steps.last_ns < steps.every_ns)
        return;
    steps.running = true;
    steps.urgent(steps.userdata);
    steps.running = false;
    steps.last_ns = clock_ns(CLOCK_MONOTONIC);
}
