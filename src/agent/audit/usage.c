/* SPDX-License-Identifier: Apache-2.0 */

/* Who uses what. Two sources that check each other: the ledger (what the container's processes have
 * booked; to the byte and to the moment, but the tenant can forge it) and the driver (what every
 * process really holds, once a second). */

#include <string.h>
#include <time.h>

#include "agent/audit/audit.h"
#include "agent/audit/audit_internal.h"
#include "agent/audit/known.h"
#include "agent/audit/usage.h"
#include "agent/os/cgroup.h"
#include "agent/shares/slot_owner.h"
#include "base/clock.h"
#include "base/step.h"
#include "share/ledger.h"

#define SWEEP_MS 50
/* A tenant can slow down the reading of its ledger with many locks. After a slow reading the ledger
 * is skipped for a proportional time, so that no ledger takes more than 1 % of the loop's time. */
#define SWEEP_USUAL_NS (SWEEP_MS * 1000000u / 100)
#define SWEEP_REST 100

/* ---- the driver's figures ---- */

static struct slot_device *slot_device_of(struct slot *slot, const char *uuid) {
    for (uint32_t i = 0; slot && i < slot->grant.ndevices; i++)
        if (strcmp(slot->grant.devices[i].uuid, uuid) == 0)
            return &slot->grant.devices[i];
    return NULL;
}

static void clear(struct audit *a) {
    memset(a->outside, 0, sizeof(a->outside));
    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next) {
        for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
            slot->grant.devices[i].driver_memory = 0;
            slot->grant.devices[i].driver_percent = 0;
            slot->grant.devices[i].driver_processes = 0;
            slot->grant.devices[i].living = 0;
            slot->grant.devices[i].bypassing = 0;
            slot->grant.devices[i].worst_pid = 0;
            slot->grant.devices[i].worst_bytes = 0;
        }
    }
}

void usage_update(struct audit *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares->monitor);
    struct gpu_monitor_status status;

    clear(a);
    for (uint32_t i = 0; i < s->ndevices; i++) {
        /* A divided card lists the processes of its instances, which hold no shares of it. */
        for (size_t k = 0; k < s->devices[i].nprocesses && gpu_has_limits(&s->devices[i]); k++) {
            const struct gpu_process *p = &s->devices[i].processes[k];
            struct slot *slot = slot_of_process(a->shares, p->pid);
            struct slot_device *d = slot_device_of(slot, s->devices[i].uuid);

            step_end();
            if (!d) {
                /* If the driver still lists memory of a process that has ended, another process,
                 * which the driver does not list, holds it. */
                if (!audit_pids_fit(a) || !card_audit_has_ended(a, i, p->pid))
                    a->outside[i] += p->memory;
                if (!s->devices[i].late)
                    audit_shareless(a, &s->devices[i], p->pid);
                continue;
            }
            d->driver_memory += p->memory;
            d->driver_percent += p->sm_percent;
            d->driver_processes++;
            if (!s->devices[i].late)
                audit_process(a, slot, d, p->pid, p->memory);
        }
    }
    gpu_monitor_status(a->shares->monitor, &status);
    if (status.polls != a->read_polls)
        audit_end(a);
    driver_limit_update(a->shares);
    a->read_polls = status.polls;
}

/* ---- the ledger's word ---- */

void usage_of_slot(struct slot *slot, struct slot_usage *ret) {
    struct ledger_usage u;

    memset(ret, 0, sizeof(*ret));
    if (slot->grant.ndevices == 0 || slot->grant.newer)
        return;
    if (!slot->ledger || ledger_snapshot(slot->ledger, &u) < 0) {
        ret->damaged = true;
        return;
    }
    for (uint32_t i = 0; i < slot->grant.ndevices && i < LEDGER_DEVICES && i < GPU_CARDS_MAX; i++) {
        ret->booked[i] = u.used[i];
        ret->peak[i] = u.peak[i];
        ret->refused[i] = u.refused[i];
    }
}

static void on_sweep(uv_timer_t *timer) {
    usage_sweep(timer->data);
}

unsigned usage_sweep_slot(struct slot *slot) {
    uint64_t start, took;
    int n;

    if (!slot->ledger || uv_hrtime() < slot->sweep_after)
        return 0;
    start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    n = ledger_sweep_for(slot->ledger, SLOT_SWEEP_MAX_NS);
    took = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    if (took > SWEEP_USUAL_NS)
        slot->sweep_after = uv_hrtime() + SWEEP_REST * took;
    return n > 0 ? (unsigned) n : 0;
}

void usage_sweep(struct audit *a) {
    uint64_t reclaimed = 0;
    bool any = false;

    /* Answers that are given while the agent stops would start the timer again. */
    if (a->shares->closing)
        return;
    for (struct slot *slot = a->shares->slots.slots; slot; slot = slot->hh.next) {
        step_end();
        any = any || slot->ledger;
        reclaimed += usage_sweep_slot(slot);
    }
    a->shares->reclaimed += reclaimed;
    /* A process died with memory: the driver's figures have changed too. */
    if (reclaimed > 0)
        (void) gpu_monitor_poll(a->shares->monitor);
    if (any && !uv_is_active((uv_handle_t *) &a->sweep_timer))
        (void) uv_timer_start(&a->sweep_timer, on_sweep, SWEEP_MS, SWEEP_MS);
    else if (!any)
        (void) uv_timer_stop(&a->sweep_timer);
}
