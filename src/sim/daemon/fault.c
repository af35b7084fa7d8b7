/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/fault.h"

#include <string.h>

#include "abi/nvml.h"
#include "base/clock.h"
#include "sim/daemon/session.h"
#include "sim/daemon/wake.h"
#include "sim/daemon/xid.h"

/* -- cards ----------------------------------------------------------------------------------- */

static void log_event(struct sim_machine *m, uint32_t minor, uint64_t type, uint64_t data) {
    struct sim_host *h = m->host;
    uint32_t n = atomic_load(&h->events);
    h->event[n % SIM_EVENTS] = (struct sim_event){
        .minor = minor,
        .gpu_instance = UINT32_MAX,
        .compute_instance = UINT32_MAX,
        .type = (uint32_t) type,
        .data = data,
        .time_us = clock_us(CLOCK_REALTIME),
    };
    atomic_store(&h->events, n + 1);
    sim_wake(&h->events);
}

/* A card, or one of the instances that it is divided into: what happens to it happens to them. */
static bool unit_is_of_card(const struct sim_machine *m, uint32_t unit, uint32_t minor) {
    return unit == minor ||
           (unit >= SIM_MAX_GPUS && m->gpu[unit].page && m->gpu[unit].page->parent == minor);
}

static void break_contexts(struct sim_machine *m, uint32_t minor, uint32_t result, pid_t pid,
                           bool lost) {
    for (uint32_t i = 0; i < m->nunits; i++)
        for (struct sim_session *s = m->sessions; s && unit_is_of_card(m, i, minor); s = s->next)
            if (pid == 0 || s->pid == pid)
                session_break(s, i, result, lost);
}

static void set_state(struct sim_machine *m, uint32_t minor, enum sim_state state) {
    for (uint32_t i = 0; i < m->nunits; i++)
        if (unit_is_of_card(m, i, minor))
            atomic_store(&m->gpu[i].page->state, state);
}

bool fault_in_use(const struct sim_machine *m, uint32_t minor, pid_t pid) {
    for (const struct sim_session *s = m->sessions; s; s = s->next)
        for (uint32_t i = 0; (pid == 0 || s->pid == pid) && i < m->nunits; i++)
            if (unit_is_of_card(m, i, minor) && s->channel[i] && s->channel[i]->contexts > 0)
                return true;
    return false;
}

void fault_xid(struct sim_machine *m, uint32_t minor, uint32_t xid, pid_t pid) {
    uint32_t result;
    switch (xid_effect(xid, &result)) {
    case XID_CONTEXT:
        break_contexts(m, minor, result, pid, false);
        break;
    case XID_RESET:
        set_state(m, minor, SIM_NEEDS_RESET);
        break_contexts(m, minor, result, 0, false);
        break;
    case XID_LOST:
        set_state(m, minor, SIM_LOST);
        break_contexts(m, minor, result, 0, true);
        break;
    case XID_TOLD:
        break;
    }
    log_event(m, minor, nvmlEventTypeXidCriticalError, xid);
}

void fault_ecc(struct sim_machine *m, uint32_t minor, bool uncorrected, uint64_t errors) {
    struct sim_page *page = m->gpu[minor].page;
    atomic_fetch_add(uncorrected ? &page->ecc_uncorrected : &page->ecc_corrected, errors);
    log_event(m, minor,
              uncorrected ? nvmlEventTypeDoubleBitEccError : nvmlEventTypeSingleBitEccError,
              errors);
}

void fault_lose(struct sim_machine *m, uint32_t minor) {
    fault_xid(m, minor, 79, 0);
}

int fault_reset(struct sim_machine *m, uint32_t minor) {
    struct sim_page *page = m->gpu[minor].page;
    if (fault_in_use(m, minor, 0))
        return -EBUSY;
    atomic_store(&page->ecc_corrected, 0);
    atomic_store(&page->ecc_uncorrected, 0);
    set_state(m, minor, SIM_HEALTHY);
    return 0;
}

pid_t fault_opener(const struct sim_machine *m, uint32_t minor) {
    for (const struct sim_session *s = m->sessions; s; s = s->next)
        if (s->opened >> minor & 1)
            return s->pid;
    return 0;
}

int fault_pressure(struct sim_machine *m, uint32_t minor, uint64_t bytes) {
    struct sim_gpu *g = &m->gpu[minor];
    uint64_t others = g->used - g->pressure;
    if (bytes > g->page->memory_total - g->page->memory_reserved - others)
        return -ENOMEM;
    g->used = others + bytes;
    g->pressure = bytes;
    atomic_store(&g->page->memory_used, g->used);
    return 0;
}

/* -- calls ----------------------------------------------------------------------------------- */

int fault_arm(struct sim_machine *m, const char *names, const struct fault_rule *rule) {
    for (uint32_t i = 0; i < SIM_FAULTS; i++) {
        struct sim_fault *f = &m->host->fault[i];
        if (atomic_load(&f->generation) & 1)
            continue;
        (void) memcpy(f->names, names, strnlen(names, sizeof(f->names) - 1) + 1);
        f->names[sizeof(f->names) - 1] = '\0';
        m->rule[i] = *rule;
        atomic_fetch_add(&f->generation, 1);
        atomic_fetch_add(&m->host->faults, 1);
        return (int) i;
    }
    return -ENOSPC;
}

static void disarm_slot(struct sim_machine *m, uint32_t slot) {
    struct sim_fault *f = &m->host->fault[slot];
    atomic_fetch_add(&f->generation, 1);
    atomic_fetch_sub(&m->host->faults, 1);
    sim_wake(&f->generation);
}

uint32_t fault_release(struct sim_machine *m, const char *names) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < SIM_FAULTS; i++) {
        struct sim_fault *f = &m->host->fault[i];
        if (!(atomic_load(&f->generation) & 1) || (names && strcmp(names, f->names) != 0))
            continue;
        disarm_slot(m, i);
        n++;
    }
    return n;
}

enum sim_fault_action fault_judge(struct sim_machine *m, uint32_t slot, uint32_t generation,
                                  pid_t pid, uint32_t card, uint32_t *ret_status) {
    if (slot >= SIM_FAULTS || atomic_load(&m->host->fault[slot].generation) != generation ||
        !(generation & 1))
        return SIM_FAULT_NONE;
    struct fault_rule *rule = &m->rule[slot];
    if ((rule->pid && rule->pid != pid) || (rule->one_card && rule->card != card))
        return SIM_FAULT_NONE;
    if (rule->hang) {
        rule->done++;
        return SIM_FAULT_HANG;
    }
    if (rule->skip > 0) {
        rule->skip--;
        return SIM_FAULT_NONE;
    }
    *ret_status = rule->status;
    if (++rule->done == rule->times)
        disarm_slot(m, slot);
    return SIM_FAULT_FAIL;
}
