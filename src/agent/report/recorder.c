/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/recorder.h"

#include <stdio.h>

#include "agent/audit/usage.h"
#include "agent/shares/gputime.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/step.h"

uint64_t recorder_step(uint64_t *ret_ago_ms) {
    uint64_t now = clock_ms(CLOCK_BOOTTIME);

    if (ret_ago_ms)
        *ret_ago_ms = now % HISTORY_STEP_MS;
    return now / HISTORY_STEP_MS;
}

static void record_device(struct report *report, const struct slot *slot, uint32_t at,
                          const struct slot_usage *usage, uint64_t step) {
    struct history_figures now = {.memory = usage->damaged ? UINT64_MAX : usage->booked[at],
                                  .most = slot->grant.devices[at].memory,
                                  .taken = UINT64_MAX,
                                  .throttled = UINT64_MAX};
    struct arbiter_view v;

    gputime_view(slot, at, &v);
    now.entitled = v.entitled;
    if (slot->compute && !v.damaged) {
        now.taken = v.usage.charged;
        now.throttled = v.usage.waited;
    }
    history_put(&report->history, slot->nonce, at, step, &now);
}

static void record(struct report *report) {
    uint64_t step = recorder_step(NULL);

    usage_sweep(report->audit);
    for (struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next) {
        struct slot_usage usage;

        step_end();
        usage_of_slot(slot, &usage);
        for (uint32_t at = 0; at < slot->grant.ndevices; at++)
            record_device(report, slot, at, &usage, step);
    }
    history_end_step(&report->history, step);
}

static void await_step(struct report *report);

static void on_step(uv_timer_t *timer) {
    record(timer->data);
    await_step(timer->data);
}

static void await_step(struct report *report) {
    uint64_t ago;

    uv_update_time(report->shares->loop);
    (void) recorder_step(&ago);
    (void) uv_timer_start(&report->recorder, on_step, HISTORY_STEP_MS - ago, 0);
}

void recorder_start(struct report *report) {
    char path[512];
    struct err err = {0};

    (void) uv_timer_init(report->shares->loop, &report->recorder);
    report->recorder.data = report;
    (void) snprintf(path, sizeof(path), "%s/history", report->shares->options.state_dir);
    if (history_open(&report->history, path, &err) < 0)
        log_error("no history is kept: %s", err.text);
    else
        await_step(report);
}

void recorder_stop(struct report *report) {
    (void) uv_timer_stop(&report->recorder);
    history_close(&report->history);
}
