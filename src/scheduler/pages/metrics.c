/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/pages/pages.h"

static const char *const verb_names[VERBS] = {"filter", "prioritize", "bind", "preempt"};

static void write_verbs(const struct scheduler *s, struct buf *out) {
    const char *requests = "aliquot_scheduler_requests_total";
    const char *latency = "aliquot_scheduler_request_duration_seconds";
    prom_family(out, requests, PROM_COUNTER, "Requests of kube-scheduler by verb and outcome.");
    for (int v = 0; v < VERBS; v++) {
        prom_sample(out, requests, s->stats[v].ok, {"verb", verb_names[v]}, {"outcome", "ok"});
        prom_sample(out, requests, s->stats[v].failed, {"verb", verb_names[v]},
                    {"outcome", "error"});
    }
    prom_family(out, latency, PROM_HISTOGRAM, "Time from a complete request to its answer.");
    for (int v = 0; v < VERBS; v++) {
        struct prom_label label = {"verb", verb_names[v]};
        prom_histogram_write(out, latency, &label, 1, &s->stats[v].latency);
    }
}

static void write_pods(const struct scheduler *s, struct buf *out) {
    const char *name = "aliquot_scheduler_pods";
    uint64_t counts[POD_STAGES] = {0};
    for (const struct state_pod *pod = s->state->pods; pod; pod = pod->hh.next)
        counts[pod->stage]++;
    prom_family(out, name, PROM_GAUGE, "Pods with GPU requests by how far they are.");
    for (int i = 0; i < POD_STAGES; i++)
        prom_sample(out, name, counts[i], {"stage", state_stage_name((enum pod_stage) i)});
}

static void count_cards(const struct scheduler *s, uint64_t *healthy, uint64_t *over,
                        uint64_t *memory) {
    for (struct state_node *node = s->state->nodes; node; node = node->hh.next) {
        for (uint32_t i = 0; i < node->ncards; i++) {
            *healthy += node->place[i].healthy;
            *over += node->cards[i]->overcommitted;
            *memory += node->place[i].healthy ? node->place[i].free.memory : 0;
        }
    }
}

static void write_cards(struct scheduler *s, struct buf *out) {
    uint64_t healthy = 0, over = 0, memory = 0, all = HASH_COUNT(s->state->cards);
    count_cards(s, &healthy, &over, &memory);
    prom_family(out, "aliquot_scheduler_gpus", PROM_GAUGE, "GPU objects by state.");
    prom_sample(out, "aliquot_scheduler_gpus", healthy, {"state", "healthy"});
    prom_sample(out, "aliquot_scheduler_gpus", all - healthy, {"state", "unhealthy"});
    prom_family(out, "aliquot_scheduler_gpus_overcommitted", PROM_GAUGE,
                "GPUs of which more is held than there is; always 0 unless something is wrong.");
    prom_u64(out, "aliquot_scheduler_gpus_overcommitted", NULL, 0, over);
    prom_family(out, "aliquot_scheduler_gpu_memory_free_bytes", PROM_GAUGE,
                "Device memory of healthy GPUs that is not allocated.");
    prom_u64(out, "aliquot_scheduler_gpu_memory_free_bytes", NULL, 0, memory);
}

static void write_counter(struct buf *out, const char *name, const char *help, uint64_t value) {
    prom_family(out, name, PROM_COUNTER, help);
    prom_u64(out, name, NULL, 0, value);
}

static void write_events(const struct scheduler *s, struct buf *out) {
    struct event_writer_stats stats;
    event_writer_stats(s->events, &stats);
    write_counter(out, "aliquot_scheduler_events_written_total",
                  "Events written, new or seen again.", stats.written);
    write_counter(out, "aliquot_scheduler_events_failed_total",
                  "Writes of Events that failed; they are tried again.", stats.failed);
    write_counter(out, "aliquot_scheduler_events_dropped_total",
                  "Events that were not kept for lack of room.", stats.dropped);
}

static void write_lease(const struct scheduler *s, struct buf *out) {
    const char *changes = "aliquot_scheduler_lease_changes_total";
    prom_family(out, "aliquot_scheduler_acts", PROM_GAUGE,
                "1 when this replica holds the Lease and may begin things.");
    prom_u64(out, "aliquot_scheduler_acts", NULL, 0, scheduler_leads(s));
    prom_family(out, changes, PROM_COUNTER, "Times that this replica acquired or lost the Lease.");
    prom_sample(out, changes, s->lease.acquired, {"change", "acquired"});
    prom_sample(out, changes, s->lease.lost, {"change", "lost"});
}

void scheduler_write_metrics(struct scheduler *s, struct buf *out) {
    state_refresh_all(s->state);
    write_verbs(s, out);
    write_pods(s, out);
    write_cards(s, out);
    prom_family(out, "aliquot_scheduler_preemptors", PROM_GAUGE,
                "Pods that wait for room that is being made for them.");
    prom_u64(out, "aliquot_scheduler_preemptors", NULL, 0, evictor_waiting(&s->evictor));
    write_counter(out, "aliquot_scheduler_evictions_total",
                  "Pods evicted for others of higher priority.", s->evictor.evicted);
    write_counter(out, "aliquot_scheduler_evictions_refused_total",
                  "Evictions that the API server refused because of a disruption budget.",
                  s->evictor.spared);
    prom_family(out, "aliquot_scheduler_ready", PROM_GAUGE, "1 when requests can be answered.");
    prom_u64(out, "aliquot_scheduler_ready", NULL, 0, scheduler_is_ready(s));
    write_lease(s, out);
    write_counter(out, "aliquot_scheduler_bind_conflicts_total",
                  "Bindings that the API server refused with a conflict.", s->binder.conflicts);
    write_counter(out, "aliquot_scheduler_bind_doubts_total",
                  "Bindings whose outcome had to be asked for.", s->binder.doubts);
    write_counter(out, "aliquot_scheduler_forged_assignments_total",
                  "Bound pods whose assignment is not signed by this scheduler.", s->state->forged);
    write_events(s, out);
    write_counter(out, "aliquot_scheduler_gpu_patches_total",
                  "Patches of GPU objects that succeeded.", s->projection.patched);
    write_counter(out, "aliquot_scheduler_gpu_patches_failed_total",
                  "Patches of GPU objects that failed; they are tried again.",
                  s->projection.failed);
    write_counter(out, "aliquot_scheduler_wakes_total",
                  "Times that kube-scheduler was told to ask again about pods that wait.",
                  s->requeue.sent);
    write_counter(out, "aliquot_scheduler_objects_refused_total",
                  "Watched objects that could not be read.", s->objects_refused);
}
