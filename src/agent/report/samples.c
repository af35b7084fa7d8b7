/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/samples.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/audit/known.h"
#include "agent/audit/usage.h"
#include "agent/health/cards.h"
#include "agent/mps/mps.h"
#include "agent/report/claim_users.h"
#include "agent/report/report.h"
#include "agent/shares/gputime.h"
#include "agent/shares/slot_users.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/server_time.h"
#include "base/step.h"
#include "kube/api/event_writer.h"
#include "model/scaling.h"

/* Figures of NVML go from struct gpu_sample to the page as they are. */
_Static_assert(GPU_NOT_TOLD == METRIC_UNKNOWN_32, "a figure that the driver does not tell");

/* ---- cards ---- */

static void collect_mps(const struct report *report, struct card_sample *ret) {
    const struct mps *m = report->shares->mps;
    struct mps_card_status status;
    bool known = m && mps_card_status(m, ret->uuid, &status);

    ret->mps_ready = known ? status.ready : METRIC_UNKNOWN_32;
    ret->mps_restarts = known ? status.restarts : METRIC_UNKNOWN_64;
}

static void collect_card(const struct report *report, uint32_t i, struct card_sample *ret) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);
    const struct gpu_device *d = &s->devices[i];
    const struct audit *audit = report->audit;
    bool audited = d->healthy && gpu_has_limits(d);
    bool judged = audited && d->sample.attributable && audit_pids_fit(audit);
    struct slot_total granted;

    slot_card_use(&report->shares->slots, d->uuid, "", &granted, NULL);
    *ret = (struct card_sample){
        .node = report->shares->options.node_name,
        .driver_version = s->driver_version,
        .uuid = d->uuid,
        .model = d->model,
        .pci = d->pci,
        .index = d->index,
        .healthy = gpu_takes_pods(d),
        .hangs = gpu_monitor_hangs(report->shares->monitor, d->index),
        .memory = d->memory,
        .gpu = d->sample,
        .nvlinks = d->healthy ? d->errors.nvlinks : METRIC_UNKNOWN_32,
        .granted = granted.memory,
        .physical = granted.physical,
        .core = granted.core,
        .capacity = gpu_gives_shares(d) ? shares_capacity(report->shares, d) : 0,
        .outside = audited ? audit->outside[i] : METRIC_UNKNOWN_64,
        .unattributed = judged ? audit->audits[i].memory.bytes : METRIC_UNKNOWN_64,
    };
    collect_mps(report, ret);
    if (!d->healthy)
        memset(&ret->gpu, 0xff, sizeof(ret->gpu));
    (void) snprintf(ret->device, sizeof(ret->device), "nvidia%d", d->minor);
}

static void collect_cards(const struct report *report, struct agent_samples *ret) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);
    size_t n = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (!gpu_is_part(&s->devices[i]))
            collect_card(report, i, &ret->cards[n++]);
    ret->sets[SAMPLES_card] = METRIC_SAMPLES(ret->cards, n);
}

/* ---- MIG instances, and what dcgm-exporter lists ---- */

static void forget_figures(struct gpu_sample *ret) {
    memset(ret, 0xff, sizeof(*ret));
}

static void collect_instance(const struct report *report, const struct gpu_device *d,
                             const struct gpu_device *card, struct agent_samples *ret) {
    struct instance_sample s = {.node = report->shares->options.node_name,
                                .uuid = d->uuid,
                                .parent = d->parent,
                                .profile = d->mig.profile,
                                .index = card->index,
                                .gi = d->mig.gi,
                                .ci = d->mig.ci,
                                .healthy = gpu_takes_pods(d),
                                .memory = d->memory,
                                .gpu = d->sample};

    if (!d->healthy)
        forget_figures(&s.gpu);
    buf_append(&ret->instances, &s, sizeof(s));
}

/* An instance has the figures that are its own; the card has the others. */
static void divide_figures(const struct gpu_device *d, struct gpu_sample *ret) {
    struct gpu_sample own;

    forget_figures(&own);
    if (gpu_is_part(d)) {
        own.memory_used = ret->memory_used;
        own.memory_free = ret->memory_free;
        own.gpu_percent = ret->gpu_percent;
        own.memory_percent = ret->memory_percent;
        own.rates.graphics_ppm = ret->rates.graphics_ppm;
        own.rates.tensor_ppm = ret->rates.tensor_ppm;
        own.rates.dram_ppm = ret->rates.dram_ppm;
    } else {
        own.temperature = ret->temperature;
        own.power_mw = ret->power_mw;
        own.sm_clock = ret->sm_clock;
        own.memory_clock = ret->memory_clock;
        own.encoder_percent = ret->encoder_percent;
        own.decoder_percent = ret->decoder_percent;
        own.memory_temperature = ret->memory_temperature;
        own.pcie_replays = ret->pcie_replays;
        own.energy_mj = ret->energy_mj;
        own.rates.pcie_tx = ret->rates.pcie_tx;
        own.rates.pcie_rx = ret->rates.pcie_rx;
        own.rates.nvlink = ret->rates.nvlink;
    }
    *ret = own;
}

/* A share of the whole card is no less than the card. */
static bool has_whole(const struct slot *slot, const struct gpu_device *d) {
    for (uint32_t i = 0; i < slot->grant.ndevices; i++)
        if (strcmp(slot->grant.devices[i].uuid, d->uuid) == 0)
            return d->kind == GPU_CARD && slot->grant.devices[i].core == 100;
    return slot_has_whole(slot, d->uuid);
}

/* The container that has the device whole, and alone: replicas of a card are given to several, and
 * so can a ResourceClaim be. */
static void put_holder(const struct report *report, const struct gpu_device *d,
                       struct dcgm_sample *ret) {
    const struct slot *holder = NULL;

    for (const struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next) {
        if (!slot_has_device(slot, d->uuid))
            continue;
        if (holder)
            return;
        holder = slot;
    }
    if (!holder || holder->grant.claim || !has_whole(holder, d))
        return;
    ret->namespace = holder->grant.namespace;
    ret->pod = holder->grant.pod;
    ret->container = holder->grant.container;
}

static void collect_dcgm(const struct report *report, const struct gpu_device *d,
                         const struct gpu_device *card, struct agent_samples *ret) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);
    const struct health_card *known = health_cards_find(report->health, d->uuid);
    bool instance = d->kind == GPU_MIG_INSTANCE;
    struct dcgm_sample sample = {.node = report->shares->options.node_name,
                                 .driver_version = s->driver_version,
                                 .uuid = card->uuid,
                                 .model = card->model,
                                 .pci = card->pci,
                                 .profile = instance ? d->mig.profile : NULL,
                                 .index = card->index,
                                 .gi = instance ? d->mig.gi : METRIC_UNKNOWN_32,
                                 .gpu = d->sample,
                                 .errors = d->errors,
                                 .reserved = d->sample.memory_reserved,
                                 .last_xid = known ? known->health.last_xid : 0,
                                 .licensed = d->traits.vgpu && !instance ? d->traits.unlicensed == 0
                                                                         : METRIC_UNKNOWN_32};

    if (!d->healthy || instance)
        memset(&sample.errors, 0xff, sizeof(sample.errors));
    if (!d->healthy)
        forget_figures(&sample.gpu);
    else if (card->divided)
        divide_figures(d, &sample.gpu);
    if (!d->healthy || card->divided || sample.reserved == 0)
        sample.reserved = METRIC_UNKNOWN_64;
    (void) snprintf(sample.device, sizeof(sample.device), "nvidia%d", card->minor);
    put_holder(report, d, &sample);
    buf_append(&ret->dcgm, &sample, sizeof(sample));
}

static struct metric_samples samples_in(const struct buf *array, size_t size) {
    return (struct metric_samples){array->data, size, array->len / size};
}

static void collect_devices(const struct report *report, struct agent_samples *ret) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];
        const struct gpu_device *card = gpu_is_part(d) ? gpu_find(s, d->parent) : d;

        if (card && d->kind == GPU_MIG_INSTANCE)
            collect_instance(report, d, card, ret);
        if (card)
            collect_dcgm(report, d, card, ret);
    }
    ret->sets[SAMPLES_instance] = samples_in(&ret->instances, sizeof(struct instance_sample));
    ret->sets[SAMPLES_dcgm] = samples_in(&ret->dcgm, sizeof(struct dcgm_sample));
}

static void collect_health(const struct report *report, const struct gpu_device *d,
                           struct agent_samples *ret) {
    const struct health_card *card = health_cards_find(report->health, d->uuid);
    struct health_view view = health_cards_view(report->health, d->uuid);
    const struct gpu_device *parent =
        gpu_find(gpu_monitor_snapshot(report->shares->monitor), d->parent);
    const char *node = report->shares->options.node_name;
    uint32_t index = parent ? parent->index : d->index;

    for (enum health_state state = 0; state < HEALTH_STATES; state++) {
        const struct state_sample s = {node, d->uuid, health_state_name(state), index,
                                       view.state == state};

        buf_append(&ret->states, &s, sizeof(s));
    }
    for (uint32_t i = 0; card && i < card->nxids; i++) {
        const struct xid_count *x = &card->xids[i];
        const struct xid_sample s = {node, d->uuid, index, x->xid,
                                     x->by_nvml > x->by_log ? x->by_nvml : x->by_log};

        buf_append(&ret->xids, &s, sizeof(s));
    }
}

static void collect_resets(const struct report *report, const struct gpu_device *d,
                           struct agent_samples *ret) {
    const struct health_card *card = health_cards_find(report->health, d->uuid);

    for (enum reset_result result = 0; card && result < RESET_RESULTS; result++) {
        const struct reset_sample s = {report->shares->options.node_name, d->uuid,
                                       reset_result_name(result), d->index, card->resets[result]};

        buf_append(&ret->resets, &s, sizeof(s));
    }
}

static void collect_states(const struct report *report, struct agent_samples *ret) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);

    for (uint32_t i = 0; i < s->ndevices; i++) {
        step_end();
        collect_health(report, &s->devices[i], ret);
    }
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (s->devices[i].kind == GPU_CARD)
            collect_resets(report, &s->devices[i], ret);
    ret->sets[SAMPLES_state] = samples_in(&ret->states, sizeof(struct state_sample));
    ret->sets[SAMPLES_xid] = samples_in(&ret->xids, sizeof(struct xid_sample));
    ret->sets[SAMPLES_reset] = samples_in(&ret->resets, sizeof(struct reset_sample));
}

/* ---- containers ---- */

/* An instance has a number of its own in a snapshot, of which metrics know nothing. */
static void put_instance(const struct report *report, struct container_identity *of) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);
    const struct gpu_device *d = gpu_find(s, of->uuid);
    const struct gpu_device *card = d ? gpu_find(s, d->parent) : NULL;
    bool instance = d && d->kind == GPU_MIG_INSTANCE;

    of->profile = instance ? d->mig.profile : NULL;
    of->gi = instance ? d->mig.gi : METRIC_UNKNOWN_32;
    if (instance && card)
        of->index = card->index;
}

/* The share of a claim is there once, with the first of the pods that use it now. */
static struct container_identity identity_of(const struct report *report, const struct slot *slot,
                                             uint32_t at) {
    const struct slot_grant *g = &slot->grant;
    struct slot_user user;
    uint32_t next = 0;

    (void) slot_users_next(report->shares, slot, &next, &user);
    struct container_identity ret = {
        .node = report->shares->options.node_name,
        .namespace = g->namespace,
        .pod = user.pod,
        .pod_uid = user.uid,
        .container = user.container,
        .claim = g->claim ? g->claim->name : NULL,
        .uuid = g->devices[at].uuid,
        .index = g->devices[at].index,
    };

    put_instance(report, &ret);
    return ret;
}

static void collect_ledger(const struct slot_usage *u, uint32_t at, struct container_sample *ret) {
    ret->ledger_damaged = u->damaged;
    ret->booked = u->damaged ? METRIC_UNKNOWN_64 : u->booked[at];
    ret->peak = u->damaged || u->peak[at] == 0 ? METRIC_UNKNOWN_64 : u->peak[at];
    ret->refused = u->damaged ? METRIC_UNKNOWN_64 : u->refused[at];
}

static void collect_driver(const struct report *report, const struct slot_device *d,
                           struct container_sample *ret) {
    const struct gpu_device *card =
        gpu_find_card(gpu_monitor_snapshot(report->shares->monitor), d->uuid);
    bool read = card && card->healthy;
    bool judged = read && audit_pids_fit(report->audit);

    ret->driver_time = card && card->sample.loads_untold ? METRIC_UNKNOWN_64 : d->driver_time;
    ret->driver_memory = read && !card->sample.memory_untold ? d->driver_memory : METRIC_UNKNOWN_64;
    ret->driver_percent = read && gpu_tells_load(card) ? d->driver_percent : METRIC_UNKNOWN_32;
    ret->processes = read ? d->driver_processes : METRIC_UNKNOWN_32;
    ret->over_time = read ? d->compute_audit.over : METRIC_UNKNOWN_32;
    ret->unlimited_processes = judged ? d->bypassing : METRIC_UNKNOWN_32;
    ret->over_memory = judged ? d->memory_audit.state == AUDIT_MEMORY_OVER : METRIC_UNKNOWN_32;
    ret->charged = judged ? d->charged : METRIC_UNKNOWN_64;
}

static double ratio(uint32_t ppm) {
    return (double) ppm / RATE_WHOLE;
}

/* The clock can have been set back. */
static uint64_t since(uint64_t realtime_ns) {
    uint64_t now = clock_ns(CLOCK_REALTIME);

    return now > realtime_ns ? now - realtime_ns : 0;
}

static uint64_t of_server(uint64_t realtime_ns) {
    return realtime_ns - (uint64_t) (server_time_ahead() * 1000000000);
}

static void collect_time(const struct slot *slot, uint32_t at, struct container_sample *ret) {
    struct arbiter_view v;
    bool read;

    gputime_view(slot, at, &v);
    read = slot->compute && !v.damaged;
    ret->time_charged = read ? v.usage.charged : METRIC_UNKNOWN_64;
    ret->time_waited = read ? v.usage.waited : METRIC_UNKNOWN_64;
    ret->launches = read ? v.usage.launches : METRIC_UNKNOWN_64;
    ret->launched = read && v.launched > 0 ? of_server(v.launched) : METRIC_UNKNOWN_64;
    ret->since_launch = read && v.launched > 0 ? since(v.launched) : METRIC_UNKNOWN_64;
    ret->taken = read ? v.taken : METRIC_UNKNOWN_32;
    ret->entitled = v.entitled;
    ret->share_error = !read ? NAN : v.active ? ratio(v.taken) - ratio(v.entitled) : 0;
    ret->wanted = read ? v.active : METRIC_UNKNOWN_32;
    ret->account_damaged = v.damaged;
}

static void collect_container(const struct report *report, const struct slot *slot, uint32_t at,
                              const struct slot_usage *usage, struct agent_samples *ret) {
    const struct slot_device *d = &slot->grant.devices[at];
    struct container_sample c = {
        .of = identity_of(report, slot, at),
        .at = at,
        .limit = slot_memory_now(&slot->grant, at),
        .granted = d->memory,
        .physical = d->physical,
        .overhead = d->overhead.bytes,
        .core = d->core,
    };
    struct policy_sample policy = {
        .of = c.of,
        .policy = share_policy_name(slot_device_terms(&slot->grant, at).policy),
        .one = true};

    collect_ledger(usage, at, &c);
    collect_driver(report, d, &c);
    collect_time(slot, at, &c);
    buf_append(&ret->containers, &c, sizeof(c));
    buf_append(&ret->policies, &policy, sizeof(policy));
}

struct claim_users {
    const struct report *report;
    const struct slot *slot;
    struct buf *out;
};

static void add_claim_user(const struct claim_user *user, void *userdata) {
    const struct claim_users *to = userdata;
    const struct slot_grant *g = &to->slot->grant;
    struct claim_user_sample s = {.node = to->report->shares->options.node_name,
                                  .namespace = g->namespace,
                                  .claim = g->claim->name,
                                  .claim_uid = g->claim->uid,
                                  .pod = user->pod,
                                  .pod_uid = user->pod_uid,
                                  .container = user->container,
                                  .one = true};

    buf_append(to->out, &s, sizeof(s));
}

static void collect_claim_users(const struct report *report, struct agent_samples *ret) {
    for (const struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next) {
        struct claim_users to = {report, slot, &ret->claim_users};

        if (slot->grant.claim && !slot->releasing)
            claim_users_each(report->shares, slot, add_claim_user, &to);
    }
    ret->sets[SAMPLES_claim_user] = samples_in(&ret->claim_users, sizeof(struct claim_user_sample));
}

static void collect_slots(const struct report *report, bool releasing, struct agent_samples *ret) {
    for (struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next) {
        struct slot_usage usage;

        if (slot->releasing != releasing)
            continue;
        step_end();
        usage_of_slot(slot, &usage);
        for (uint32_t at = 0; at < slot->grant.ndevices; at++)
            collect_container(report, slot, at, &usage, ret);
    }
}

/* HAMi's labels do not tell a pod that has ended from its successor of the same name: those that
 * have not ended come first, and are a set of their own. */
static void collect_containers(const struct report *report, struct agent_samples *ret) {
    size_t running;

    collect_slots(report, false, ret);
    running = ret->containers.len / sizeof(struct container_sample);
    collect_slots(report, true, ret);
    ret->sets[SAMPLES_container] = samples_in(&ret->containers, sizeof(struct container_sample));
    ret->sets[SAMPLES_hami_container] = ret->sets[SAMPLES_container];
    ret->sets[SAMPLES_hami_container].count = running;
    ret->sets[SAMPLES_policy] = samples_in(&ret->policies, sizeof(struct policy_sample));
}

static void collect_cpus(const struct report *report, struct agent_samples *ret) {
    const struct cross_check *c = report->cross_check;
    const struct cross_check_cpus *list = (const void *) c->cpus.data;

    for (size_t i = 0; i < c->cpus.len / sizeof(*list); i++) {
        struct cpus_sample s = {.of = {.node = report->shares->options.node_name,
                                       .namespace = list[i].namespace,
                                       .pod = list[i].pod,
                                       .pod_uid = list[i].pod_uid,
                                       .container = list[i].container,
                                       .uuid = list[i].uuid,
                                       .index = list[i].index},
                                .exclusive = list[i].exclusive,
                                .elsewhere = list[i].elsewhere};

        put_instance(report, &s.of);
        buf_append(&ret->cpus, &s, sizeof(s));
    }
    ret->sets[SAMPLES_cpus] = samples_in(&ret->cpus, sizeof(struct cpus_sample));
}

/* ---- what HAMi and gpu-manager list ---- */

static void add_allocated(const struct report *report, const struct gpu_device *d,
                          struct hami_card_sample *ret) {
    const struct slot_store *slots = &report->shares->slots;
    bool whole = slot_whole_holder(slots, d->uuid, "") != NULL;
    struct slot_total granted;

    slot_card_use(slots, d->uuid, "", &granted, NULL);
    ret->allocated += whole ? d->memory : granted.memory;
    ret->core += whole ? gpu_core(d) : granted.core;
    for (const struct slot *slot = slots->slots; slot; slot = slot->hh.next)
        ret->containers += slot_has_device(slot, d->uuid);
}

static void collect_hami_card(const struct report *report, const struct gpu_device *card,
                              struct agent_samples *ret) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);
    bool prefixed = strncmp(card->model, "NVIDIA", strlen("NVIDIA")) == 0;
    struct hami_card_sample sample = {
        .node = report->shares->options.node_name,
        .uuid = card->uuid,
        .index = card->index,
        .gpu = card->sample,
        .limit = gpu_gives_shares(card) ? shares_capacity(report->shares, card) : card->memory,
        .core_limit = gpu_core(card),
    };

    if (!card->healthy)
        forget_figures(&sample.gpu);
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (&s->devices[i] == card || strcmp(s->devices[i].parent, card->uuid) == 0)
            add_allocated(report, &s->devices[i], &sample);
    sample.limit_mib = sample.limit >> 20;
    sample.allocated_ratio =
        sample.limit > 0 ? (double) sample.allocated / (double) sample.limit : NAN;
    (void) snprintf(sample.host_type, sizeof(sample.host_type), "NVIDIA-%s", card->model);
    (void) snprintf(sample.type, sizeof(sample.type), "%s%s", prefixed ? "" : "NVIDIA-",
                    card->model);
    buf_append(&ret->hami_cards, &sample, sizeof(sample));
}

static void collect_hami(const struct report *report, struct agent_samples *ret) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(report->shares->monitor);

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (!gpu_is_part(&s->devices[i]))
            collect_hami_card(report, &s->devices[i], ret);
    ret->sets[SAMPLES_hami_card] = samples_in(&ret->hami_cards, sizeof(struct hami_card_sample));
    ret->sets[SAMPLES_hami_host] = ret->sets[SAMPLES_hami_bare] = ret->sets[SAMPLES_hami_card];
    ret->sets[SAMPLES_hami_cores] = ret->sets[SAMPLES_hami_overview] = ret->sets[SAMPLES_hami_card];
}

/* The sum of two figures, one of which may not be known. */
static uint64_t plus(uint64_t a, uint64_t b) {
    return a == METRIC_UNKNOWN_64 || b == METRIC_UNKNOWN_64 ? METRIC_UNKNOWN_64 : a + b;
}

/* Of the n devices of a container: those of one card, or of all of them where that is NULL. */
static void put_manager(const struct container_sample *c, size_t n, const uint32_t *card,
                        struct buf *out) {
    struct manager_sample sum = {.of = c->of,
                                 .card = "total",
                                 .memory_request = card ? METRIC_UNKNOWN_64 : 0,
                                 .core_request = card ? NAN : 0};

    if (card)
        (void) snprintf(sum.card, sizeof(sum.card), "gpu%" PRIu32, *card);
    for (size_t i = 0; i < n; i++) {
        if (card && c[i].of.index != *card)
            continue;
        sum.percent =
            plus(sum.percent, c[i].driver_percent == METRIC_UNKNOWN_32 ? METRIC_UNKNOWN_64
                                                                       : c[i].driver_percent);
        sum.memory = plus(sum.memory, c[i].driver_memory);
        sum.memory_request = plus(sum.memory_request, c[i].granted);
        sum.core_request += c[i].core / 100.0;
    }
    buf_append(out, &sum, sizeof(sum));
}

static void collect_managers(struct agent_samples *ret) {
    const struct container_sample *c = ret->sets[SAMPLES_hami_container].first;
    size_t count = ret->sets[SAMPLES_hami_container].count, n;

    for (; count > 0; c += n, count -= n) {
        n = 1;
        while (n < count && c[n].at > 0)
            n++;
        for (size_t i = 0; i < n; i++) {
            size_t k = 0;

            while (c[k].of.index != c[i].of.index)
                k++;
            if (k == i) /* the first device of its card */
                put_manager(c, n, &c[i].of.index, &ret->managers);
        }
        put_manager(c, n, NULL, &ret->managers);
    }
    ret->sets[SAMPLES_manager_core] = samples_in(&ret->managers, sizeof(struct manager_sample));
    ret->sets[SAMPLES_manager_memory] = ret->sets[SAMPLES_manager_core];
    ret->sets[SAMPLES_manager_core_request] = ret->sets[SAMPLES_manager_core];
    ret->sets[SAMPLES_manager_memory_request] = ret->sets[SAMPLES_manager_core];
}

/* ---- the agent itself ---- */

static void collect_plugins(const struct report *report, struct agent_samples *ret) {
    const struct plugin *p;
    size_t n = 0;

    for (; (p = kubelet_plugin(report->kubelet, n)); n++) {
        struct plugin_stats stats;

        plugin_stats(p, &stats);
        ret->plugins[n] = (struct plugin_sample){
            .resource = plugin_resource(p)->name,
            .registered = stats.registered,
            .registrations = stats.registrations,
            .register_ns = stats.registrations > 0 ? stats.register_ns : METRIC_UNKNOWN_64,
            .allocate = stats.allocate,
        };
    }
    ret->sets[SAMPLES_plugin] = METRIC_SAMPLES(ret->plugins, n);
}

static uint64_t resident_bytes(void) {
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    unsigned long long total, resident;

    if (file_read("/proc/self/statm", 4096, &text, NULL) < 0 ||
        sscanf(buf_str(&text), "%llu %llu", &total, &resident) != 2)
        return METRIC_UNKNOWN_64;
    return resident * (uint64_t) sysconf(_SC_PAGESIZE);
}

static void collect_events(const struct report *report, struct agent_sample *ret) {
    struct event_writer_stats stats = {0};

    if (report->shares->events.writer)
        event_writer_stats(report->shares->events.writer, &stats);
    ret->events_written = stats.written;
    ret->events_failed = stats.failed;
    ret->events_dropped = stats.dropped;
}

static void collect_arbiter(const struct report *report, struct agent_sample *ret) {
    struct arbiter_stats stats = {.cpu_ns = METRIC_UNKNOWN_64, .steps = METRIC_UNKNOWN_64};

    if (report->shares->arbiter)
        arbiter_stats(report->shares->arbiter, &stats);
    ret->arbiter_ns = stats.cpu_ns;
    ret->arbiter_steps = stats.steps;
}

static void collect_agent(const struct report *report, struct agent_samples *ret) {
    struct gpu_monitor_status m;

    gpu_monitor_status(report->shares->monitor, &m);
    ret->agent = (struct agent_sample){
        .answering = m.answering,
        .restarts = m.restarts,
        .hangs = m.hangs,
        .synced = pods_synced(report->shares->pods),
        .slots = HASH_COUNT(report->shares->slots.slots),
        .prestart_waiting = (uint32_t) prestart_waiting(report->prestarts),
        .reclaimed = report->shares->reclaimed,
        .overuse = report->audit->overuse_found,
        .overuse_stopped = report->audit->overuse_stopped,
        .driver_limits_left = report->shares->driver_limits.left,
        .differences = report->cross_check->differences,
        .others = (uint32_t) (report->cross_check->others.len / sizeof(struct cross_check_other)),
        .lists_failed = report->cross_check->failed,
        .resident = resident_bytes(),
        .kubelet_wait = *kubelet_waits(report->kubelet),
    };
    collect_events(report, &ret->agent);
    collect_arbiter(report, &ret->agent);
    ret->sets[SAMPLES_agent] = METRIC_SAMPLES(&ret->agent, 1);
    ret->prestarts[0] = (struct prestart_sample){"granted", report->prestarts->granted};
    ret->prestarts[1] = (struct prestart_sample){"refused", report->prestarts->refused};
    ret->sets[SAMPLES_prestart] = METRIC_SAMPLES(ret->prestarts, 2);
    ret->version = (struct version_sample){ALIQUOT_VERSION, true};
    ret->sets[SAMPLES_version] = METRIC_SAMPLES(&ret->version, 1);
}

#define BIT(set) (1u << SAMPLES_##set)
#define HAMI_SETS                                                                                  \
    (BIT(hami_host) | BIT(hami_bare) | BIT(hami_card) | BIT(hami_cores) | BIT(hami_overview))
#define MANAGER_SETS                                                                               \
    (BIT(manager_core) | BIT(manager_memory) | BIT(manager_core_request) |                         \
     BIT(manager_memory_request))

/* All arrays of samples. */
#define LISTS(s)                                                                                   \
    {                                                                                              \
        &(s)->instances, &(s)->dcgm, &(s)->states, &(s)->xids, &(s)->resets, &(s)->containers,     \
            &(s)->policies, &(s)->claim_users, &(s)->cpus, &(s)->hami_cards, &(s)->managers        \
    }
#define LISTS_COUNT(lists) (sizeof(lists) / sizeof((lists)[0]))

int agent_samples_collect(struct report *report, uint32_t wanted, struct agent_samples *ret) {
    struct buf *const lists[] = LISTS(ret);
    int r = 0;

    for (size_t i = 0; i < LISTS_COUNT(lists); i++)
        *lists[i] = BUF_INIT(0);
    collect_cards(report, ret);
    collect_devices(report, ret);
    collect_states(report, ret);
    collect_containers(report, ret);
    collect_claim_users(report, ret);
    if ((wanted & HAMI_SETS) != 0)
        collect_hami(report, ret);
    if ((wanted & MANAGER_SETS) != 0)
        collect_managers(ret);
    collect_cpus(report, ret);
    collect_plugins(report, ret);
    collect_agent(report, ret);
    for (size_t i = 0; i < LISTS_COUNT(lists) && r == 0; i++)
        r = buf_error(lists[i]);
    return r;
}

void agent_samples_done(struct agent_samples *s) {
    struct buf *const lists[] = LISTS(s);

    for (size_t i = 0; i < LISTS_COUNT(lists); i++)
        buf_done(lists[i]);
}
