/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/fault.h"

#include <errno.h>
#include <string.h>

#include "abi/nvml.h"
#include "base/clock.h"
#include "sim/daemon/session.h"
#include "sim/daemon/wake.h"
#include "sim/daemon/xid.h"

#define XID_NVLINK 74u

/* -- cards ----------------------------------------------------------------------------------- */

/* Where a fault takes effect: on a card with all its instances, or on an instance. */
struct area {
    uint32_t minor;
    uint32_t gi, ci; /* UINT32_MAX: it is not limited to one */
};

static struct area card_area(uint32_t minor) {
    return (struct area){minor, UINT32_MAX, UINT32_MAX};
}

static void log_event(struct sim_machine *m, struct area area, uint64_t type, uint64_t data) {
    struct sim_host *h = m->host;
    uint32_t n = atomic_load(&h->events);
    h->event[n % SIM_EVENTS] = (struct sim_event){
        .minor = area.minor,
        .gpu_instance = area.gi,
        .compute_instance = area.ci,
        .type = (uint32_t) type,
        .data = data,
        .time_us = clock_us(CLOCK_REALTIME),
    };
    atomic_store(&h->events, n + 1);
    sim_wake(&h->events);
}

/* A card, or one of the instances that it is divided into: what happens to it happens to them. */
static bool unit_is_of_card(const struct sim_machine *m, uint32_t unit, uint32_t minor) {
    const struct sim_page *page = m->gpu[unit].page;
    return unit == minor || (unit >= SIM_MAX_GPUS && page && page->parent == minor);
}

static bool unit_is_in(const struct sim_machine *m, uint32_t unit, struct area area) {
    const struct sim_page *page = m->gpu[unit].page;
    if (!unit_is_of_card(m, unit, area.minor) || area.gi == UINT32_MAX)
        return unit_is_of_card(m, unit, area.minor);
    return unit != area.minor && page->gpu_instance == area.gi &&
           (area.ci == UINT32_MAX || page->compute_instance == area.ci);
}

static void break_contexts(struct sim_machine *m, struct area area, uint32_t result, pid_t pid,
                           bool lost) {
    for (uint32_t i = 0; i < m->nunits; i++)
        for (struct sim_session *s = m->sessions; s && unit_is_in(m, i, area); s = s->next)
            if (pid == 0 || s->pid == pid)
                session_break(s, i, result, lost);
}

static void set_state(struct sim_machine *m, struct area area, enum sim_state state) {
    for (uint32_t i = 0; i < m->nunits; i++)
        if (unit_is_in(m, i, area))
            atomic_store(&m->gpu[i].page->state, state);
}

bool fault_in_use(const struct sim_machine *m, uint32_t minor, pid_t pid) {
    for (const struct sim_session *s = m->sessions; s; s = s->next)
        for (uint32_t i = 0; (pid == 0 || s->pid == pid) && i < m->nunits; i++)
            if (unit_is_of_card(m, i, minor) && s->channel[i] && s->channel[i]->contexts > 0)
                return true;
    return false;
}

static void apply_xid(struct sim_machine *m, struct area area, uint32_t xid, pid_t pid) {
    uint32_t result;
    switch (xid_effect(xid, &result)) {
    case XID_CONTEXT:
        break_contexts(m, area, result, pid, false);
        break;
    case XID_RESET:
        set_state(m, area, SIM_NEEDS_RESET);
        break_contexts(m, area, result, 0, false);
        break;
    case XID_LOST:
        set_state(m, area, SIM_LOST);
        break_contexts(m, area, result, 0, true);
        break;
    case XID_TOLD:
        break;
    }
    log_event(m, area, nvmlEventTypeXidCriticalError, xid);
}

void fault_xid(struct sim_machine *m, uint32_t minor, uint32_t xid, pid_t pid) {
    apply_xid(m, card_area(minor), xid, pid);
}

int fault_xid_instance(struct sim_machine *m, uint32_t minor, uint32_t gi, uint32_t ci,
                       uint32_t xid) {
    const struct area area = {minor, gi, ci};
    uint32_t result, units = 0;
    for (uint32_t i = 0; i < m->nunits; i++)
        units += unit_is_in(m, i, area);
    if (units == 0)
        return -ENOENT;
    if (xid_effect(xid, &result) == XID_LOST)
        return -EINVAL;
    apply_xid(m, area, xid, 0);
    return 0;
}

void fault_ecc(struct sim_machine *m, uint32_t minor, bool uncorrected, uint64_t errors) {
    struct sim_page *page = m->gpu[minor].page;
    atomic_fetch_add(&page->ecc_errors[uncorrected ? SIM_ECC_UNCORRECTED : SIM_ECC_CORRECTED],
                     errors);
    atomic_fetch_add(
        &page->ecc_errors[uncorrected ? SIM_ECC_UNCORRECTED_TOTAL : SIM_ECC_CORRECTED_TOTAL],
        errors);
    log_event(m, card_area(minor),
              uncorrected ? nvmlEventTypeDoubleBitEccError : nvmlEventTypeSingleBitEccError,
              errors);
}

/* XID 63 says that a repair is recorded, 64 that there is no room for it. */
void fault_repair(struct sim_machine *m, uint32_t minor, enum sim_repair what, uint32_t n) {
    struct sim_page *page = m->gpu[minor].page;
    if (what == SIM_REPAIR_FAILED) {
        atomic_store(&page->repair[what], 1);
        fault_xid(m, minor, 64, 0);
        return;
    }
    if (what == SIM_REPAIR_EXHAUSTED) {
        atomic_store(&page->repair[what], n < SIM_BANKS ? n : SIM_BANKS);
        return;
    }
    atomic_fetch_add(&page->repair[what], n);
    atomic_store(&page->repair[SIM_REPAIR_PENDING], 1);
    fault_xid(m, minor, 63, 0);
}

/* The number of the link at the other end: links between two cards are in the same order there. */
static uint32_t other_end(const struct sim_machine *m, uint32_t minor, uint32_t link) {
    const struct sim_page *page = m->gpu[minor].page, *peer = m->gpu[page->nvlink_peer[link]].page;
    uint32_t nth = 0, i = 0;
    for (uint32_t k = 0; k < link; k++)
        nth += page->nvlink_peer[k] == page->nvlink_peer[link];
    for (; i < peer->nvlinks; i++)
        if (peer->nvlink_peer[i] == minor && nth-- == 0)
            break;
    return i;
}

static void set_link(struct sim_machine *m, uint32_t minor, uint32_t link, bool down) {
    if (down)
        atomic_fetch_or(&m->gpu[minor].page->links_down, 1u << link);
    else
        atomic_fetch_and(&m->gpu[minor].page->links_down, ~(1u << link));
}

void fault_link(struct sim_machine *m, uint32_t minor, uint32_t link, bool down) {
    uint8_t peer = m->gpu[minor].page->nvlink_peer[link];
    set_link(m, minor, link, down);
    if (!(peer & SIM_LINK_SWITCH))
        set_link(m, peer, other_end(m, minor, link), down);
    if (!down)
        return;
    log_event(m, card_area(minor), nvmlEventTypeXidCriticalError, XID_NVLINK);
    if (!(peer & SIM_LINK_SWITCH))
        log_event(m, card_area(peer), nvmlEventTypeXidCriticalError, XID_NVLINK);
}

void fault_lose(struct sim_machine *m, uint32_t minor) {
    fault_xid(m, minor, 79, 0);
}

int fault_reset(struct sim_machine *m, uint32_t minor) {
    struct sim_page *page = m->gpu[minor].page;
    if (fault_in_use(m, minor, 0))
        return -EBUSY;
    atomic_store(&page->ecc_errors[SIM_ECC_CORRECTED], 0);
    atomic_store(&page->ecc_errors[SIM_ECC_UNCORRECTED], 0);
    atomic_store(&page->repair[SIM_REPAIR_PENDING], 0);
    for (uint32_t link = 0; link < page->nvlinks; link++)
        fault_link(m, minor, link, false);
    set_state(m, card_area(minor), SIM_HEALTHY);
    return 0;
}

pid_t fault_opener(const struct sim_machine *m, uint32_t minor, pid_t except) {
    for (const struct sim_session *s = m->sessions; s; s = s->next)
        if (s->pid != except && s->opened >> minor & 1)
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
    if (rule->skip > 0) {
        rule->skip--;
        return SIM_FAULT_NONE;
    }
    if (rule->hang) {
        rule->done++;
        return SIM_FAULT_HANG;
    }
    *ret_status = rule->status;
    if (++rule->done == rule->times)
        disarm_slot(m, slot);
    return SIM_FAULT_FAIL;
}
