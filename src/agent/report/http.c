/* SPDX-License-Identifier: Apache-2.0 */

/* The HTTP side: for Prometheus, for the command line, for a person with curl. */

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "agent/audit/audit.h"
#include "agent/audit/usage.h"
#include "agent/cluster/access.h"
#include "agent/cluster/certificate.h"
#include "agent/cluster/keys.h"
#include "agent/report/claim_users.h"
#include "agent/report/gate.h"
#include "agent/report/history_page.h"
#include "agent/report/http.h"
#include "agent/report/metrics.h"
#include "agent/report/publish.h"
#include "agent/report/report.h"
#include "agent/shares/gputime.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/num.h"
#include "base/step.h"
#include "model/scaling.h"
#include "wire/http.h"
#include "wire/json_write.h"
#include "wire/prom.h"

#define ANSWER_MAX ((size_t) 16 << 20)
#define FRESH_MS 60    /* longest wait for the driver */
#define SCRAPE_MS 1000 /* between two polls for /metrics, however many clients there are */
#define PER_CLIENT 16
#define IDLE_SECONDS 15

/* ---- figures that are true now ---- */

/* A request for figures triggers a poll of the driver; the reply waits for its result, at most
 * FRESH_MS. */
struct waiting {
    struct report *report;
    struct http_exchange *exchange;
    void (*answer)(struct report *report, struct http_exchange *exchange);
    uint64_t polls; /* answered polls that make the snapshot young enough */
    uv_timer_t timer;
    struct waiting *prev, *next;
};

static void on_waiting_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void end_waiting(struct waiting *w) {
    struct report *report = w->report;

    DL_DELETE(report->waiting, w);
    uv_close((uv_handle_t *) &w->timer, on_waiting_closed);
    usage_sweep(report->audit);
    w->answer(report, w->exchange);
}

static void on_late(uv_timer_t *timer) {
    end_waiting(timer->data);
}

void report_http_update(struct report *report) {
    struct gpu_monitor_status status;
    struct waiting *w, *next;

    gpu_monitor_status(report->shares->monitor, &status);
    DL_FOREACH_SAFE(report->waiting, w, next)
        if (status.polls >= w->polls)
            end_waiting(w);
}

static void answer_fresh(struct report *report, struct http_exchange *exchange,
                         void (*answer)(struct report *report, struct http_exchange *exchange)) {
    uint64_t polls = gpu_monitor_poll(report->shares->monitor);
    struct waiting *w = polls > 0 ? calloc(1, sizeof(*w)) : NULL;

    if (!w) {
        usage_sweep(report->audit);
        answer(report, exchange);
        return;
    }
    *w = (struct waiting){.report = report, .exchange = exchange, .answer = answer, .polls = polls};
    (void) uv_timer_init(report->shares->loop, &w->timer);
    w->timer.data = w;
    (void) uv_timer_start(&w->timer, on_late, FRESH_MS, 0);
    DL_APPEND(report->waiting, w);
}

void report_http_stop(struct report *report) {
    struct waiting *w, *next;

    access_stop(report->access);
    report->access = NULL;
    DL_FOREACH_SAFE(report->waiting, w, next)
        end_waiting(w);
    http_server_close(report->http);
    report->http = NULL;
}

static void answer_metrics(struct report *report, struct http_exchange *exchange) {
    struct buf out = BUF_INIT(ANSWER_MAX);
    enum prom_format format = metrics_format(exchange);

    metrics_write(report, format, &out);
    metrics_reply(exchange, format, &out);
}

static void begin_metrics(struct report *report, struct http_exchange *exchange) {
    uint64_t now = uv_now(report->shares->loop);

    if (report->scrape_polled > 0 && now - report->scrape_polled < SCRAPE_MS) {
        usage_sweep(report->audit);
        answer_metrics(report, exchange);
        return;
    }
    report->scrape_polled = now;
    answer_fresh(report, exchange, answer_metrics);
}

static void on_metrics(struct http_exchange *exchange, void *userdata) {
    struct report *report = userdata;

    if (report->metrics_asks_token)
        report_gate(report, exchange, begin_metrics);
    else
        begin_metrics(report, exchange);
}

/* ---- /readyz, /healthz ---- */

/* Without these the agent serves no pod. */
static void put_connections(struct report *report, struct buf *out) {
    const struct plugin *p;
    struct gpu_monitor_status m;
    struct plugin_stats stats;

    gpu_monitor_status(report->shares->monitor, &m);
    if (report->shares->driver && !m.complete && !m.text[0])
        buf_puts(out, "the GPU driver has not answered yet\n");
    if (!kubelet_is_there(report->kubelet))
        buf_printf(out, "kubelet's socket is not in %s/device-plugins: is kubelet running?\n",
                   report->kubelet_dir);
    for (size_t i = 0; (p = kubelet_plugin(report->kubelet, i)); i++) {
        plugin_stats(p, &stats);
        if (stats.ids > 0 && !stats.registered && kubelet_is_there(report->kubelet))
            buf_printf(out, "kubelet has not taken the plugin of %s\n", plugin_resource(p)->name);
    }
    if (!pods_synced(report->shares->pods))
        buf_printf(out, "this node's pods cannot be watched: %s\n",
                   report->api_trouble[0] ? report->api_trouble
                                          : "the API server has not answered yet");
    if (publisher_trouble(report->publisher)[0])
        buf_printf(out, "%s\n", publisher_trouble(report->publisher));
    if (!keys_verifier(report->shares->keys))
        buf_printf(
            out,
            "the public key of aliquot-scheduler is not known (ConfigMap %s/aliquot-signing)\n",
            report->signing_namespace);
}

/* What another agent would find as well: of the driver, of cards, of configurations. */
static void put_troubles(struct report *report, struct buf *out) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);
    struct gpu_monitor_status m;

    gpu_monitor_status(report->shares->monitor, &m);
    if (!m.answering && report->shares->driver && (m.complete || m.text[0]))
        buf_printf(out, "the GPU driver does not answer: %s\n", m.text);
    if (report->claims_trouble[0])
        buf_printf(out, "ResourceClaims get nothing: %s\n", report->claims_trouble);
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (!gpu_takes_pods(&s->devices[i]))
            buf_printf(out, "%s %u (%s) is unhealthy: %s\n", gpu_kind_name(s->devices[i].kind),
                       s->devices[i].index, s->devices[i].uuid, s->devices[i].reason);
    if (report->certificate && agent_certificate_trouble(report->certificate)[0])
        buf_printf(out, "the port has no certificate of Aliquot's authority: %s\n",
                   agent_certificate_trouble(report->certificate));
    if (whole_rows_trouble(report->whole_rows)[0])
        buf_printf(out, "%s\n", whole_rows_trouble(report->whole_rows));
    if (report->mig_trouble[0])
        buf_printf(out, "%s\n", report->mig_trouble);
    if (report->mig_file_trouble[0])
        buf_printf(out, "the MIG configurations do not change: %s\n", report->mig_file_trouble);
    if (report->config_trouble[0])
        buf_printf(out, "the configuration does not change: %s\n", report->config_trouble);
    if (audit_trouble(report->audit)[0])
        buf_printf(out, "%s\n", audit_trouble(report->audit));
}

/* Takes the text over: what is wrong. */
static void reply_problems(struct http_exchange *exchange, struct buf *out) {
    bool well = out->len == 0;

    if (well)
        buf_puts(out, "ok\n");
    http_reply(exchange, well ? 200 : 503, "text/plain; charset=utf-8", out);
}

/* For readiness probes: a card that is unhealthy would stop an upgrade of the agents. */
static void on_readyz(struct http_exchange *exchange, void *userdata) {
    struct buf out = BUF_INIT(ANSWER_MAX);

    put_connections(userdata, &out);
    reply_problems(exchange, &out);
}

static void on_healthz(struct http_exchange *exchange, void *userdata) {
    struct buf out = BUF_INIT(ANSWER_MAX);

    put_connections(userdata, &out);
    put_troubles(userdata, &out);
    reply_problems(exchange, &out);
}

/* For liveness probes: a restart of the agent mends none of the problems above. */
static void on_livez(struct http_exchange *exchange, void *userdata) {
    (void) userdata;
    http_reply_text(exchange, 200, "ok\n");
}

/* ---- /usage ---- */

static void put_time(const struct slot *slot, uint32_t device, struct json_writer *w) {
    const struct slot_terms t = slot_device_terms(&slot->grant, device);
    struct arbiter_view v;

    gputime_view(slot, device, &v);
    json_put_string(w, "computePolicy", share_policy_name(t.policy));
    json_put_u64(w, "computeWeight", t.weight);
    json_put_u64(w, "computeCeiling", t.ceiling);
    if (slot->compute) { /* otherwise they are unknown */
        json_put_u64(w, "gpuTimeNs", v.usage.charged);
        json_put_u64(w, "throttledNs", v.usage.waited);
        json_put_u64(w, "launches", v.usage.launches);
        json_put_u64(w, "gpuTakenPpm", v.taken);
        json_put_bool(w, "gpuWanted", v.active);
    }
    json_put_u64(w, "gpuEntitledPpm", v.entitled);
    json_put_bool(w, "accountDamaged", v.damaged);
    json_put_u64(w, "gpuTimeDriverNs", slot->grant.devices[device].driver_time);
    json_put_bool(w, "gpuTimeOveruse", slot->grant.devices[device].compute_audit.over);
}

static void put_container(const struct report *report, struct json_writer *w,
                          const struct slot *slot) {
    json_put_string(w, "namespace", slot->grant.namespace);
    json_put_string(w, "pod", slot->grant.pod);
    json_put_string(w, "podUID", slot->grant.pod_uid);
    json_put_string(w, "container", slot->grant.container);
    claim_users_write(report->shares, slot, w);
}

static void put_holder(const struct report *report, struct json_writer *w, struct slot *slot,
                       uint32_t at, const struct gpu_device *device) {
    const struct slot_device *d = &slot->grant.devices[at];
    struct slot_usage u;

    usage_of_slot(slot, &u);
    json_object_begin(w, NULL);
    put_container(report, w, slot);
    json_put_u64(w, "core", d->core);
    if (gpu_tells_load(device))
        json_put_u64(w, "coreUsed", d->driver_percent);
    json_put_u64(w, "memory", d->memory);
    json_put_u64(w, "memoryLimit", slot_memory_now(&slot->grant, at));
    json_put_u64(w, "memoryUsed", u.booked[at]);
    if (!u.damaged && u.peak[at] > 0)
        json_put_u64(w, "memoryPeak", u.peak[at]);
    json_put_u64(w, "memoryDriver", d->driver_memory);
    json_put_u64(w, "memoryCharged", d->charged);
    json_put_u64(w, "memoryOverhead", d->overhead.bytes);
    json_put_u64(w, "memoryPhysical", d->physical);
    json_put_u64(w, "driverMemoryLimit", driver_limit_bytes(report->shares, slot, at));
    json_put_string(w, "memoryState", audit_memory_name(d->memory_audit.state));
    json_put_u64(w, "refused", u.refused[at]);
    json_put_u64(w, "processes", d->driver_processes);
    json_put_u64(w, "processesUnlimited", d->bypassing);
    put_time(slot, at, w);
    json_put_bool(w, "ending", slot->releasing);
    json_object_end(w);
}

/* Containers that can hold what belongs to no listed process. */
static void put_candidates(struct report *report, struct json_writer *w,
                           const struct card_audit *audit) {
    json_array_begin(w, "memoryUnattributedCandidates");
    for (uint32_t i = 0; i < audit->candidates.n && i < CANDIDATES_MAX; i++) {
        const struct candidate_container *c = &audit->candidates.list[i];
        const struct slot *slot = c->unlisted ? slot_find(&report->shares->slots, c->slot) : NULL;

        if (!slot)
            continue;
        json_object_begin(w, NULL);
        json_put_string(w, "namespace", slot->grant.namespace);
        json_put_string(w, "pod", slot->grant.pod);
        json_put_string(w, "container", slot->grant.container);
        json_put_u64(w, "process", c->pid);
        json_object_end(w);
    }
    json_array_end(w);
}

/* A container that has the instance whole. */
static void put_owner(const struct report *report, struct json_writer *w, const struct slot *slot) {
    json_object_begin(w, NULL);
    put_container(report, w, slot);
    json_put_bool(w, "ending", slot->releasing);
    json_object_end(w);
}

/* Containers with a share of the device, or with all of an instance. */
static void put_holders(struct report *report, struct json_writer *w, const struct gpu_device *d) {
    json_array_begin(w, "holders");
    for (struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next) {
        step_end();
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            if (strcmp(slot->grant.devices[i].uuid, d->uuid) == 0)
                put_holder(report, w, slot, i, d);
        if (gpu_is_part(d) && slot_has_whole(slot, d->uuid))
            put_owner(report, w, slot);
    }
    json_array_end(w);
}

/* What has been given out of the device in shares, and what is in use of it. */
static void put_amounts(struct report *report, struct json_writer *w, const struct gpu_device *d,
                        uint64_t outside, const struct card_audit *audit) {
    struct slot_total granted;

    slot_card_use(&report->shares->slots, d->uuid, "", &granted, NULL);
    json_put_u64(w, "memory", d->memory);
    json_put_u64(w, "memoryUsed", d->sample.memory_used);
    json_put_u64(w, "memoryCapacity", gpu_gives_shares(d) ? shares_capacity(report->shares, d) : 0);
    json_put_u64(w, "memoryGranted", granted.memory);
    json_put_u64(w, "memoryPhysical", granted.physical);
    json_put_u64(w, "memoryOutside", outside);
    json_put_u64(w, "memoryUnattributed", audit->memory.bytes);
    put_candidates(report, w, audit);
    json_put_u64(w, "coreGranted", granted.core);
}

static void put_instances(struct report *report, struct json_writer *w,
                          const struct gpu_device *card) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);

    json_array_begin(w, "instances");
    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];

        if (strcmp(d->parent, card->uuid) != 0)
            continue;
        json_object_begin(w, NULL);
        json_put_u64(w, "index", d->index);
        json_put_string(w, "uuid", d->uuid);
        json_put_string(w, "profile", d->mig.profile);
        json_put_u64(w, "gpuInstance", d->mig.gi);
        json_put_u64(w, "computeInstance", d->mig.ci);
        json_put_bool(w, "healthy", d->healthy);
        json_put_string(w, "reason", d->reason);
        put_amounts(report, w, d, report->audit->outside[i], &report->audit->audits[i]);
        if (d->sample.gpu_percent != GPU_NOT_TOLD)
            json_put_u64(w, "utilization", d->sample.gpu_percent);
        put_holders(report, w, d);
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_gpu(struct report *report, struct json_writer *w, const struct gpu_device *d,
                    uint64_t outside, const struct card_audit *audit) {
    json_object_begin(w, NULL);
    json_put_u64(w, "index", d->index);
    json_put_string(w, "uuid", d->uuid);
    json_put_string(w, "model", d->model);
    json_put_bool(w, "healthy", gpu_takes_pods(d));
    json_put_string(w, "reason", d->reason);
    put_amounts(report, w, d, outside, audit);
    json_put_u64(w, "utilization",
                 d->sample.gpu_percent == GPU_NOT_TOLD ? 0 : d->sample.gpu_percent);
    put_holders(report, w, d);
    if (d->divided)
        put_instances(report, w, d);
    json_object_end(w);
}

static void answer_usage(struct report *report, struct http_exchange *exchange) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);
    struct buf out = BUF_INIT(ANSWER_MAX);
    struct json_writer w = {.out = &out};

    json_object_begin(&w, NULL);
    json_put_string(&w, "node", report->shares->options.node_name);
    json_put_string(&w, "driver",
                    report->shares->driver ? gpu_driver_name(report->shares->driver) : "");
    json_put_string(&w, "driverVersion", s->driver_version);
    json_array_begin(&w, "gpus");
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (!gpu_is_part(&s->devices[i]))
            put_gpu(report, &w, &s->devices[i], report->audit->outside[i],
                    &report->audit->audits[i]);
    json_array_end(&w);
    json_object_end(&w);
    buf_putc(&out, '\n');
    http_compress(exchange);
    http_reply(exchange, 200, "application/json", &out);
}

static void begin_usage(struct report *report, struct http_exchange *exchange) {
    answer_fresh(report, exchange, answer_usage);
}

/* Calls `answer` for a client that may know what the containers of all tenants use. */
static void ask_for_usage(struct report *report, struct http_exchange *exchange,
                          void (*answer)(struct report *report, struct http_exchange *exchange)) {
    if (report->usage_asks_token)
        report_gate(report, exchange, answer);
    else
        answer(report, exchange);
}

static void on_usage(struct http_exchange *exchange, void *userdata) {
    ask_for_usage(userdata, exchange, begin_usage);
}

/* ---- /history ---- */

static void answer_history(struct report *report, struct http_exchange *exchange) {
    struct history_query query = {.namespace = http_query(exchange, "namespace"),
                                  .pod = http_query(exchange, "pod")};
    const char *skip = http_query(exchange, "skip");
    struct buf out = BUF_INIT(ANSWER_MAX);

    if (skip && num_parse_u64(skip, UINT64_MAX, &query.skip) < 0) {
        http_reply_text(exchange, 400, "skip is not a number\n");
        return;
    }
    history_page_write(report, &query, &out);
    http_compress(exchange);
    http_reply(exchange, 200, "application/json", &out);
}

static void on_history(struct http_exchange *exchange, void *userdata) {
    ask_for_usage(userdata, exchange, answer_history);
}

static void on_index(struct http_exchange *exchange, void *userdata) {
    (void) userdata;
    http_reply_text(exchange, 200,
                    "aliquot-agent " ALIQUOT_VERSION
                    "\n/metrics /healthz /readyz /livez /usage /history\n");
}

static const struct http_route routes[] = {
    {"GET", "/metrics", on_metrics}, {"GET", "/healthz", on_healthz},
    {"GET", "/readyz", on_readyz},   {"GET", "/livez", on_livez},
    {"GET", "/usage", on_usage},     {"GET", "/history", on_history},
    {"GET", "/", on_index},          HTTP_ROUTE_END,
};

int report_http_start(struct report *report, struct err *err) {
    struct http_options options = {.listen = report->listen,
                                   .routes = routes,
                                   .userdata = report,
                                   .max_per_client = PER_CLIENT,
                                   .idle_seconds = IDLE_SECONDS};

    if (report->certificate) {
        options.server_cert = agent_certificate_served(report->certificate);
        options.client_certs = true;
    }
    if (!report->listen[0] || strcmp(report->listen, "off") == 0)
        return 0;
    return http_server_start(report->shares->loop, &options, &report->http, err);
}
