/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/gputime.h"

#include <stdio.h>
#include <string.h>

#include "agent/shares/compute_policy.h"
#include "agent/shares/slot_users.h"
#include "base/err.h"
#include "base/log.h"

#define SAMPLE_MAX_NS 3000000000u /* between two snapshots; of more nothing is known */

int gputime_start(struct shares *s, struct err *err) {
    int r = arbiter_start(&s->arbiter, err);

    if (r == 0)
        gputime_join(s);
    return r;
}

void gputime_stop(struct shares *s) {
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next)
        slot->compute = arbiter_leave(slot->compute);
    s->arbiter = arbiter_stop(s->arbiter);
}

static void join(struct shares *s, struct slot *slot) {
    char grants[384], compute[384];
    struct share_limits limits;
    struct err err;
    int r;

    slot_path(&s->slots, slot->nonce, "grants", grants);
    slot_path(&s->slots, slot->nonce, "compute", compute);
    slot_limits(&slot->grant, &limits);
    r = arbiter_join(s->arbiter, &limits, grants, compute, &slot->compute, &err);
    /* One that is not there was never made: that share is an older agent's. */
    slot->account_damaged = r == -EBADMSG;
    if (r < 0)
        log_debug("the arbiter does not take slot %s: %s", slot->nonce, err.text);
}

void gputime_join(struct shares *s) {
    for (struct slot *slot = s->slots.slots; slot && s->arbiter; slot = slot->hh.next)
        if (!slot->compute && slot->grant.ndevices > 0 && !slot->grant.newer)
            join(s, slot);
}

/* ---- terms ---- */

static void read_terms(struct shares *s, const struct pod *pod, const struct slot_grant *g,
                       struct slot_terms *ret) {
    const struct compute_policy_node node = {s->options.compute_policy, s->options.pod_policies,
                                             s->options.hardware_slices};
    struct err why;

    if (compute_policy_read(&node, pod, g->container,
                            g->ndevices ? slot_device_percent(&g->devices[0]) : 0, ret, &why) < 0)
        pod_events_pod(&s->events, pod->namespace, pod->name, pod->uid, "InvalidGPUAnnotation",
                       why.text);
}

/* Once for a pod and all its annotations: with the first of its containers that has a share. */
static void report_unserved(struct shares *s, const struct pod *pod, const char *container) {
    char text[UNSERVED_TEXT_MAX];

    if (!pod->unserved || pod->request.n == 0 ||
        strcmp(container, pod->request.containers[0].container) != 0)
        return;
    dialect_unserved_text(pod->unserved, text);
    pod_events_pod(&s->events, pod->namespace, pod->name, pod->uid, "UnservedGPUAnnotation", text);
}

void gputime_terms(struct shares *s, const struct pod *pod, struct slot_grant *g) {
    report_unserved(s, pod, g->container);
    read_terms(s, pod, g, &g->terms);
}

static void log_terms(const struct slot *slot) {
    const struct slot_terms *t = &slot->grant.terms;

    log_info("%s/%s container %s: policy %s, weight %u, ceiling %u, memory limit %llu",
             slot->grant.namespace, slot->grant.pod, slot->grant.container,
             share_policy_name(t->policy), t->weight, t->ceiling,
             (unsigned long long) t->memory_limit);
}

static void change(struct shares *s, struct slot *slot, const struct slot_terms *terms) {
    struct share_limits limits;
    struct err err;

    slot->grant.terms = *terms;
    slot->limits_late = slot_write_limits(&s->slots, slot, &err) < 0;
    if (slot->limits_late)
        log_warn("%s; it is tried again with each poll of the driver", err.text);
    log_terms(slot);
    slot_limits(&slot->grant, &limits);
    if (slot->compute)
        arbiter_change(slot->compute, &limits);
}

static bool same_terms(const struct slot_terms *a, const struct slot_terms *b) {
    return a->policy == b->policy && a->weight == b->weight && a->ceiling == b->ceiling &&
           a->memory_limit == b->memory_limit && a->slices == b->slices;
}

void gputime_pod(struct shares *s, const struct pod_entry *e) {
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        struct slot_terms terms;

        if (slot->grant.ndevices == 0 || slot->grant.newer || slot->grant.claim ||
            strcmp(slot->grant.pod_uid, e->pod.uid) != 0)
            continue;
        read_terms(s, &e->pod, &slot->grant, &terms);
        if (!same_terms(&terms, &slot->grant.terms))
            change(s, slot, &terms);
    }
}

/* ---- the driver's figures ---- */

/* To destroy its account does not hide a container from the driver's figures. */
static bool is_watched(const struct slot *slot, const struct slot_device *d) {
    return slot->compute || (slot->account_damaged && d->core > 0);
}

static void audit_slot(struct shares *s, struct slot *slot, uint32_t i, uint64_t since) {
    struct slot_device *d = &slot->grant.devices[i];
    struct arbiter_view view;
    struct slot_user user;
    char text[256];
    uint32_t at = 0;

    gputime_view(slot, i, &view);
    if (!is_watched(slot, d) ||
        !audit_compute_poll(&d->compute_audit, since, d->driver_percent, view.entitled))
        return;
    while (slot_users_next(s, slot, &at, &user)) {
        (void) snprintf(
            text, sizeof(text),
            "container %s takes more of GPU %u's time than it could have, by the driver's "
            "figures: a program of it goes past the library, or writes into its account",
            user.container, d->index);
        pod_events_container(&s->events, user.namespace, user.pod, user.uid, user.container,
                             "GPUTimeOveruse", text);
    }
}

/* The driver reports the percentage of its last sampling period until the next one ends; the sum is
 * accurate over several seconds, not over one. */
void gputime_sample(struct shares *s) {
    uint64_t now = uv_hrtime(), since = now - s->gputime_sampled;

    s->gputime_sampled = now;
    if (since > SAMPLE_MAX_NS)
        return;
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
            struct slot_device *d = &slot->grant.devices[i];

            d->driver_time += since / 100 * d->driver_percent;
            if (slot->compute && d->driver_time > 0)
                arbiter_driver(slot->compute, i, d->driver_time);
            audit_slot(s, slot, i, since);
        }
    }
}

void gputime_view(const struct slot *slot, uint32_t device, struct arbiter_view *ret) {
    if (slot->compute)
        arbiter_view(slot->compute, device, ret);
    else
        /* Its programs keep to the share, each by itself. */
        *ret = (struct arbiter_view){.entitled =
                                         slot_device_percent(&slot->grant.devices[device]) * 10000,
                                     .damaged = slot->account_damaged};
}
