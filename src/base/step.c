/* SPDX-License-Identifier: Apache-2.0 */
#include "base/step.h"

#include <errno.h>

#include "base/clock.h"

/* A thread without a loop has none. */
static _Thread_local struct {
    void (*urgent)(void *userdata);
    void *userdata;
    uint64_t every_ns, last_ns;
    unsigned held; /* also while `urgent` runs */
} steps;

void step_set_urgent(void (*urgent)(void *userdata), void *userdata, uint64_t every_ns) {
    steps.urgent = urgent;
    steps.userdata = userdata;
    steps.every_ns = every_ns;
    steps.last_ns = clock_ns(CLOCK_MONOTONIC);
}

void step_hold(void) {
    steps.held++;
}

void step_release(void) {
    steps.held--;
}

void step_end(void) {
    if (!steps.urgent || steps.held > 0 ||
        clock_ns(CLOCK_MONOTONIC) - steps.last_ns < steps.every_ns)
        return;
    int saved = errno;
    step_hold();
    steps.urgent(steps.userdata);
    step_release();
    steps.last_ns = clock_ns(CLOCK_MONOTONIC);
    errno = saved;
}
