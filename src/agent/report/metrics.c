/* SPDX-License-Identifier: Apache-2.0 */

/* /metrics: tables of metrics, one sample for each card, share or plugin. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/audit/usage.h"
#include "agent/report/gputime_report.h"
#include "agent/report/metrics.h"
#include "agent/report/report.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/units.h"
#include "kube/api/event_writer.h"
#include "model/scaling.h"
#include "wire/prom.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- cards ---- */

struct card {
    const struct gpu_device *device;
    struct slot_total granted;
    uint64_t sold;
    uint64_t outside;
    uint64_t unattributed;
};

struct card_metric {
    const char *name, *help;
    uint64_t (*value)(const struct card *c);
};

static uint64_t card_healthy(const struct card *c) {
    return c->device->healthy;
}
static uint64_t card_total(const struct card *c) {
    return c->device->memory;
}
static uint64_t card_used(const struct card *c) {
    return c->device->sample.memory_used;
}
static uint64_t card_granted(const struct card *c) {
    return c->granted.memory;
}
static uint64_t card_sold(const struct card *c) {
    return c->sold;
}
static uint64_t card_physical(const struct card *c) {
    return c->granted.physical;
}
static uint64_t card_core(const struct card *c) {
    return c->granted.core;
}
static uint64_t card_outside(const struct card *c) {
    return c->outside;
}
static uint64_t card_unattributed(const struct card *c) {
    return c->unattributed;
}
static uint64_t card_percent(const struct card *c) {
    return c->device->sample.gpu_percent;
}
static uint64_t card_copy(const struct card *c) {
    return c->device->sample.memory_percent;
}
static uint64_t card_used_mib(const struct card *c) {
    return c->device->sample.memory_used / MIB;
}
static uint64_t card_free_mib(const struct card *c) {
    return c->device->sample.memory_free / MIB;
}
static uint64_t card_temperature(const struct card *c) {
    return c->device->sample.temperature;
}
static uint64_t card_power(const struct card *c) {
    return c->device->sample.power_mw / 1000;
}
static uint64_t card_sm_clock(const struct card *c) {
    return c->device->sample.sm_clock;
}
static uint64_t card_memory_clock(const struct card *c) {
    return c->device->sample.memory_clock;
}

static const struct card_metric card_metrics[] = {
    {"aliquot_gpu_healthy", "Whether the card answers and takes new pods.", card_healthy},
    {"aliquot_gpu_memory_total_bytes", "Memory of the card.", card_total},
    {"aliquot_gpu_memory_used_bytes", "Memory in use, by the driver's account.", card_used},
    {"aliquot_gpu_memory_granted_bytes", "Memory given out to pods as shares.", card_granted},
    {"aliquot_gpu_memory_sold_bytes",
     "Memory that is sold of the card; more than it has where that "
     "is oversold.",
     card_sold},
    {"aliquot_gpu_memory_physical_granted_bytes", "Memory that pods may have on the card at once.",
     card_physical},
    {"aliquot_gpu_memory_outside_bytes", "Memory held by processes that have no share of the card.",
     card_outside},
    {"aliquot_gpu_memory_unattributed_bytes",
     "Memory in use that belongs to no process that the driver lists and to no container's ledger.",
     card_unattributed},
    {"aliquot_gpu_core_granted_percent", "Compute given out to pods as shares.", card_core},
    {"aliquot_gpu_utilization_percent",
     "Time in which the card computed, over the driver's last sample.", card_percent},
};

/* Names and units of NVIDIA's exporter, for dashboards that exist. */
static const struct card_metric dcgm_metrics[] = {
    {"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", card_percent},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", card_copy},
    {"DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", card_used_mib},
    {"DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", card_free_mib},
    {"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", card_temperature},
    {"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", card_power},
    {"DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", card_sm_clock},
    {"DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", card_memory_clock},
};

/* Walks all pairs of shares: once for each card in a scrape, not once for each metric. */
static void card_of(struct report *report, uint32_t i, struct card *ret) {
    const struct gpu_device *d = &gpu_monitor_snapshot(report->shares->monitor)->devices[i];

    *ret = (struct card){
        .device = d,
        .outside = report->audit->outside[i],
        .unattributed = report->audit->audits[i].memory.bytes,
        .sold = gpu_gives_shares(d)
                    ? scaling_capacity(d->memory, report->shares->options.memory_scaling)
                    : 0,
    };
    slot_card_use(&report->shares->slots, d->uuid, "", &ret->granted, NULL);
}

static void put_card_metrics(struct report *report, const struct card *cards,
                             const struct card_metric *table, size_t n, bool dcgm,
                             struct buf *out) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);

    for (size_t m = 0; m < n; m++) {
        prom_family(out, table[m].name, PROM_GAUGE, table[m].help);
        for (uint32_t i = 0; i < s->ndevices; i++) {
            const struct gpu_device *d = &s->devices[i];
            const struct card *c = &cards[i];
            char index[16], device[24];

            if (gpu_is_part(d))
                continue;
            (void) snprintf(index, sizeof(index), "%u", d->index);
            (void) snprintf(device, sizeof(device), "nvidia%d", d->minor);
            if (dcgm)
                prom_sample(out, table[m].name, table[m].value(c), {"gpu", index},
                            {"UUID", d->uuid}, {"pci_bus_id", d->pci}, {"device", device},
                            {"modelName", d->model},
                            {"Hostname", report->shares->options.node_name},
                            {"DCGM_FI_DRIVER_VERSION", s->driver_version});
            else
                prom_sample(out, table[m].name, table[m].value(c),
                            {"node", report->shares->options.node_name}, {"gpu", index},
                            {"uuid", d->uuid}, {"model", d->model});
        }
    }
}

/* ---- shares ---- */

struct share {
    const struct slot *slot;
    const struct slot_device *device;
    struct slot_usage usage;
    uint32_t at; /* of the device in the share */
};

struct share_metric {
    const char *name, *help;
    enum prom_type type;
    uint64_t (*value)(const struct share *s);
};

static uint64_t share_limit(const struct share *s) {
    return slot_memory_now(&s->slot->grant, s->at);
}
static uint64_t share_booked(const struct share *s) {
    return s->usage.booked[s->at];
}
static uint64_t share_driver(const struct share *s) {
    return s->device->driver_memory;
}
static uint64_t share_charged(const struct share *s) {
    return s->device->charged;
}
static uint64_t share_core(const struct share *s) {
    return s->device->core;
}
static uint64_t share_percent(const struct share *s) {
    return s->device->driver_percent;
}
static uint64_t share_refused(const struct share *s) {
    return s->usage.refused[s->at];
}
static uint64_t share_processes(const struct share *s) {
    return s->device->driver_processes;
}
static uint64_t share_overhead(const struct share *s) {
    return s->device->overhead.bytes;
}
static uint64_t share_physical(const struct share *s) {
    return s->device->physical;
}
static uint64_t share_over(const struct share *s) {
    return s->device->memory_audit.state == AUDIT_MEMORY_OVER;
}
static uint64_t share_strangers(const struct share *s) {
    return s->device->strangers;
}
static uint64_t share_damaged(const struct share *s) {
    return s->usage.damaged;
}

static const struct share_metric share_metrics[] = {
    {"aliquot_container_memory_limit_bytes", "Memory that the container may use of the card now.",
     PROM_GAUGE, share_limit},
    {"aliquot_container_memory_used_bytes", "Memory that the container has booked in its ledger.",
     PROM_GAUGE, share_booked},
    {"aliquot_container_memory_driver_bytes", "Memory that the driver says its processes hold.",
     PROM_GAUGE, share_driver},
    {"aliquot_container_memory_overhead_bytes",
     "Memory that the driver took beyond what was booked; off the room that is left.", PROM_GAUGE,
     share_overhead},
    {"aliquot_container_memory_charged_bytes",
     "Memory that no listed process holds and that is charged to the container.", PROM_GAUGE,
     share_charged},
    {"aliquot_container_memory_physical_bytes",
     "Memory that the container may have on the card at once.", PROM_GAUGE, share_physical},
    {"aliquot_container_memory_overuse",
     "1 while the container holds more of the card than its share, by the driver's figures.",
     PROM_GAUGE, share_over},
    {"aliquot_container_unlimited_processes",
     "Processes of the container on the card that do not use the library.", PROM_GAUGE,
     share_strangers},
    {"aliquot_container_core_limit_percent", "Compute that the container is due; 0: no guarantee.",
     PROM_GAUGE, share_core},
    {"aliquot_container_utilization_percent",
     "Compute that its processes used, by the driver's last sample.", PROM_GAUGE, share_percent},
    {"aliquot_container_processes", "Processes of the container on the card.", PROM_GAUGE,
     share_processes},
    {"aliquot_container_memory_refused_total", "Requests for memory that were over the limit.",
     PROM_COUNTER, share_refused},
    {"aliquot_container_ledger_damaged", "1 when the container has destroyed its ledger.",
     PROM_GAUGE, share_damaged},
};

static void put_share(struct report *report, const struct share_metric *m, const struct share *s,
                      struct buf *out) {
    const struct slot_grant *g = &s->slot->grant;
    char index[16];

    (void) snprintf(index, sizeof(index), "%u", s->device->index);
    prom_sample(out, m->name, m->value(s), {"node", report->shares->options.node_name},
                {"namespace", g->namespace}, {"pod", g->pod}, {"pod_uid", g->pod_uid},
                {"container", g->container}, {"gpu", index}, {"uuid", s->device->uuid});
}

static void put_share_metrics(struct report *report, struct buf *out) {
    for (size_t m = 0; m < COUNT(share_metrics); m++) {
        prom_family(out, share_metrics[m].name, share_metrics[m].type, share_metrics[m].help);
        for (struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next) {
            struct share s = {.slot = slot};

            usage_of_slot(slot, &s.usage);
            for (s.at = 0; s.at < slot->grant.ndevices; s.at++) {
                s.device = &slot->grant.devices[s.at];
                put_share(report, &share_metrics[m], &s, out);
            }
        }
    }
}

/* ---- the agent itself ---- */

static void put_value(struct buf *out, const char *name, enum prom_type type, const char *help,
                      uint64_t value) {
    prom_family(out, name, type, help);
    prom_u64(out, name, NULL, 0, value);
}

static void put_plugin_metrics(struct report *report, struct buf *out) {
    struct plugin_stats stats;

    prom_family(out, "aliquot_agent_registered", PROM_GAUGE,
                "Whether kubelet has taken the plugin.");
    for (size_t i = 0; i < resources_count; i++) {
        plugin_stats(kubelet_plugin(report->kubelet, i), &stats);
        prom_sample(out, "aliquot_agent_registered", stats.registered,
                    {"resource", resources[i].name});
    }
    prom_family(out, "aliquot_agent_registrations_total", PROM_COUNTER,
                "Times that kubelet took the plugin.");
    for (size_t i = 0; i < resources_count; i++) {
        plugin_stats(kubelet_plugin(report->kubelet, i), &stats);
        prom_sample(out, "aliquot_agent_registrations_total", stats.registrations,
                    {"resource", resources[i].name});
    }
    prom_family(out, "aliquot_agent_register_seconds", PROM_GAUGE,
                "From kubelet's socket seen to the plugin registered, the last time.");
    for (size_t i = 0; i < resources_count; i++) {
        const struct prom_label label = {"resource", resources[i].name};

        plugin_stats(kubelet_plugin(report->kubelet, i), &stats);
        prom_double(out, "aliquot_agent_register_seconds", &label, 1,
                    (double) stats.register_ns / 1e9);
    }
    prom_family(out, "aliquot_agent_allocate_seconds", PROM_HISTOGRAM, "Time to answer Allocate.");
    for (size_t i = 0; i < resources_count; i++) {
        const struct prom_label label = {"resource", resources[i].name};

        plugin_stats(kubelet_plugin(report->kubelet, i), &stats);
        prom_histogram_write(out, "aliquot_agent_allocate_seconds", &label, 1, &stats.allocate);
    }
}

static uint64_t resident_bytes(void) {
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    unsigned long long total, resident;

    if (file_read("/proc/self/statm", 4096, &text, NULL) < 0 ||
        sscanf(buf_str(&text), "%llu %llu", &total, &resident) != 2)
        return 0;
    return resident * (uint64_t) sysconf(_SC_PAGESIZE);
}

static void put_event_metrics(const struct report *report, struct buf *out) {
    struct event_writer_stats stats = {0};

    if (report->shares->events.writer)
        event_writer_stats(report->shares->events.writer, &stats);
    put_value(out, "aliquot_agent_events_written_total", PROM_COUNTER,
              "Events written, new or seen again.", stats.written);
    put_value(out, "aliquot_agent_events_failed_total", PROM_COUNTER,
              "Writes of Events that failed; they are tried again.", stats.failed);
    put_value(out, "aliquot_agent_events_dropped_total", PROM_COUNTER,
              "Events that were not kept for lack of room.", stats.dropped);
}

static void put_agent_metrics(struct report *report, struct buf *out) {
    struct gpu_monitor_status m;

    gpu_monitor_status(report->shares->monitor, &m);
    put_value(out, "aliquot_agent_driver_answering", PROM_GAUGE, "Whether NVML answers.",
              m.answering);
    put_value(out, "aliquot_agent_nvml_restarts_total", PROM_COUNTER,
              "Restarts of the NVML process.", m.restarts);
    put_value(out, "aliquot_agent_nvml_hangs_total", PROM_COUNTER,
              "NVML calls that did not return in time.", m.hangs);
    put_value(out, "aliquot_agent_api_synced", PROM_GAUGE,
              "Whether the watch of this node's pods is up.", pods_synced(report->shares->pods));
    put_value(out, "aliquot_agent_slots", PROM_GAUGE, "Shares given out.",
              HASH_COUNT(report->shares->slots.slots));
    put_value(out, "aliquot_agent_prestart_waiting", PROM_GAUGE,
              "Containers that wait for their share.", prestart_waiting(report->prestarts));
    put_value(out, "aliquot_agent_reclaimed_total", PROM_COUNTER,
              "Ledger entries given back for processes that died.", report->audit->reclaimed);
    put_value(out, "aliquot_agent_overuse_total", PROM_COUNTER,
              "Containers found beyond their share of a card, or past the library.",
              report->audit->overuse_found);
    put_value(out, "aliquot_agent_overuse_stopped_total", PROM_COUNTER,
              "Containers stopped because of that.", report->audit->overuse_stopped);
    put_value(out, "aliquot_agent_driver_limits_left_total", PROM_COUNTER,
              "Limits of the driver that were not taken away before their control group went.",
              report->shares->driver_limits.left);
    put_event_metrics(report, out);
    put_value(out, "process_resident_memory_bytes", PROM_GAUGE, "Resident memory size in bytes.",
              resident_bytes());
    prom_family(out, "aliquot_agent_prestart_total", PROM_COUNTER,
                "PreStartContainer calls answered.");
    prom_sample(out, "aliquot_agent_prestart_total", report->prestarts->granted,
                {"result", "granted"});
    prom_sample(out, "aliquot_agent_prestart_total", report->prestarts->refused,
                {"result", "refused"});
    prom_family(out, "aliquot_agent_info", PROM_GAUGE, "Version of the agent; always 1.");
    prom_sample(out, "aliquot_agent_info", 1, {"version", ALIQUOT_VERSION});
}

void metrics_write(struct report *report, struct buf *out) {
    static struct card cards[GPU_MAX];

    for (uint32_t i = 0; i < gpu_monitor_snapshot(report->shares->monitor)->ndevices; i++)
        card_of(report, i, &cards[i]);
    put_card_metrics(report, cards, card_metrics, COUNT(card_metrics), false, out);
    put_share_metrics(report, out);
    gputime_metrics(report->shares, out);
    put_card_metrics(report, cards, dcgm_metrics, COUNT(dcgm_metrics), true, out);
    put_plugin_metrics(report, out);
    put_agent_metrics(report, out);
}
