/* SPDX-License-Identifier: Apache-2.0 */

/* GPU time as people see it: metrics, and the part of /usage. */

#include <stdio.h>

#include "agent/report/gputime_report.h"
#include "agent/shares/gputime.h"
#include "base/buf.h"
#include "wire/json_write.h"
#include "wire/prom.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct metric {
    const char *name, *help;
    enum prom_type type;
    double (*value)(const struct arbitration_view *v);
};

static double charged(const struct arbitration_view *v) {
    return (double) v->usage.charged / 1e9;
}
static double waited(const struct arbitration_view *v) {
    return (double) v->usage.waited / 1e9;
}
static double launches(const struct arbitration_view *v) {
    return (double) v->usage.launches;
}
static double taken(const struct arbitration_view *v) {
    return (double) v->taken / RATE_WHOLE;
}
static double entitled(const struct arbitration_view *v) {
    return (double) v->entitled / RATE_WHOLE;
}
static double error(const struct arbitration_view *v) {
    return v->active ? taken(v) - entitled(v) : 0;
}
static double active(const struct arbitration_view *v) {
    return v->active;
}
static double damaged(const struct arbitration_view *v) {
    return v->damaged;
}

static const struct metric metrics[] = {
    {"aliquot_container_gpu_seconds_total",
     "GPU time that the container's launches were charged, by its own account.", PROM_COUNTER,
     charged},
    {"aliquot_container_throttled_seconds_total",
     "Time that launches of the container waited for its share, all threads together.",
     PROM_COUNTER, waited},
    {"aliquot_container_launches_total", "Launches that went through the limiter.", PROM_COUNTER,
     launches},
    {"aliquot_container_gpu_share_ratio", "Part of the card's time that it took of late.",
     PROM_GAUGE, taken},
    {"aliquot_container_gpu_entitled_ratio",
     "Part of the card's time that it could have now: its share and what it may borrow.",
     PROM_GAUGE, entitled},
    {"aliquot_container_gpu_share_error_ratio",
     "While it wants the card: part that it took less part that it could have; negative also when "
     "it wants less.",
     PROM_GAUGE, error},
    {"aliquot_container_gpu_wanted", "1 while the container wants the card.", PROM_GAUGE, active},
    {"aliquot_container_account_damaged",
     "1 when the container has destroyed its account of GPU time.", PROM_GAUGE, damaged},
};

static size_t labels_of(struct shares *s, const struct slot *slot, uint32_t device, char *index,
                        size_t size, struct prom_label *ret) {
    const struct slot_grant *g = &slot->grant;
    const struct prom_label labels[] = {
        {"node", s->options.node_name},    {"namespace", g->namespace}, {"pod", g->pod},
        {"pod_uid", g->pod_uid},           {"container", g->container}, {"gpu", index},
        {"uuid", g->devices[device].uuid},
    };

    (void) snprintf(index, size, "%u", g->devices[device].index);
    for (size_t i = 0; i < COUNT(labels); i++)
        ret[i] = labels[i];
    return COUNT(labels);
}

/* What the driver says, not the container. */
static void put_driver(struct shares *s, struct buf *out) {
    static const char seconds[] = "aliquot_container_gpu_driver_seconds_total";
    static const char over[] = "aliquot_container_gpu_time_overuse";
    struct prom_label labels[8];
    char index[16];

    prom_family(out, seconds, PROM_COUNTER,
                "GPU time that the container's processes took, by the driver's percentages.");
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
            size_t n = labels_of(s, slot, i, index, sizeof(index), labels);

            prom_double(out, seconds, labels, n, (double) slot->grant.devices[i].driver_time / 1e9);
        }
    prom_family(out, over, PROM_GAUGE,
                "1 when it took much more than it could have, by the driver's figures of 5 s.");
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
            size_t n = labels_of(s, slot, i, index, sizeof(index), labels);

            prom_u64(out, over, labels, n, slot->grant.devices[i].compute_audit.over);
        }
}

static void put_metric(struct shares *s, const struct metric *m, struct buf *out) {
    struct prom_label labels[8];
    char index[16];

    prom_family(out, m->name, m->type, m->help);
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
            struct arbitration_view view;
            size_t n = labels_of(s, slot, i, index, sizeof(index), labels);

            gputime_view(slot, i, &view);
            prom_double(out, m->name, labels, n, m->value(&view));
        }
    }
}

static void put_policies(struct shares *s, struct buf *out) {
    static const char name[] = "aliquot_container_compute_policy_info";
    struct prom_label labels[8];
    char index[16];

    prom_family(out, name, PROM_GAUGE, "How the container shares the card's time; always 1.");
    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
            size_t n = labels_of(s, slot, i, index, sizeof(index), labels);

            labels[n] = (struct prom_label){"policy", share_policy_name(slot->grant.terms.policy)};
            prom_u64(out, name, labels, n + 1, 1);
        }
    }
}

static void put_arbiter(struct shares *s, struct buf *out) {
    static const char cpu[] = "aliquot_agent_arbiter_cpu_seconds_total";
    static const char steps[] = "aliquot_agent_arbiter_decisions_total";
    struct arbitration_stats stats;

    arbitration_stats(s->arbitration, &stats);
    prom_family(out, cpu, PROM_COUNTER, "CPU time of the arbiter's thread.");
    prom_double(out, cpu, NULL, 0, (double) stats.cpu_ns / 1e9);
    prom_family(out, steps, PROM_COUNTER, "Decisions about the time of one card.");
    prom_u64(out, steps, NULL, 0, stats.steps);
}

void gputime_metrics(struct shares *s, struct buf *out) {
    for (size_t i = 0; i < COUNT(metrics); i++)
        put_metric(s, &metrics[i], out);
    put_driver(s, out);
    put_policies(s, out);
    if (s->arbitration)
        put_arbiter(s, out);
}

void gputime_usage(const struct slot *slot, uint32_t device, struct json_writer *w) {
    const struct slot_terms *t = &slot->grant.terms;
    struct arbitration_view v;

    gputime_view(slot, device, &v);
    json_put_string(w, "computePolicy", share_policy_name(t->policy));
    json_put_u64(w, "computeWeight", t->weight);
    json_put_u64(w, "computeCeiling", t->ceiling);
    json_put_u64(w, "gpuTimeNs", v.usage.charged);
    json_put_u64(w, "throttledNs", v.usage.waited);
    json_put_u64(w, "launches", v.usage.launches);
    json_put_u64(w, "gpuTakenPpm", v.taken);
    json_put_u64(w, "gpuEntitledPpm", v.entitled);
    json_put_bool(w, "gpuWanted", v.active);
    json_put_bool(w, "accountDamaged", v.damaged);
    json_put_u64(w, "gpuTimeDriverNs", slot->grant.devices[device].driver_time);
    json_put_bool(w, "gpuTimeOveruse", slot->grant.devices[device].compute_audit.over);
}
