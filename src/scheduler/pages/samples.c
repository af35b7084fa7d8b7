/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/pages/samples.h"

static void collect_verbs(const struct scheduler *s, struct scheduler_samples *ret) {
    static const char *const names[VERBS] = {"filter", "prioritize", "bind", "preempt"};
    for (int v = 0; v < VERBS; v++) {
        ret->verbs[v] = (struct verb_sample){names[v], s->stats[v].latency};
        ret->outcomes[2 * v] = (struct outcome_sample){names[v], "ok", s->stats[v].ok};
        ret->outcomes[2 * v + 1] = (struct outcome_sample){names[v], "error", s->stats[v].failed};
    }
    ret->sets[SAMPLES_verb] = METRIC_SAMPLES(ret->verbs, VERBS);
    ret->sets[SAMPLES_outcome] = METRIC_SAMPLES(ret->outcomes, (size_t) 2 * VERBS);
}

static void collect_pods(const struct state *state, struct scheduler_samples *ret) {
    for (int i = 0; i < POD_STAGES; i++)
        ret->stages[i] = (struct stage_sample){.stage = state_stage_name((enum pod_stage) i)};
    for (const struct state_pod *pod = state->pods; pod; pod = pod->hh.next)
        ret->stages[pod->stage].pods++;
    ret->sets[SAMPLES_stage] = METRIC_SAMPLES(ret->stages, POD_STAGES);
}

static void collect_cards(const struct state *state, struct scheduler_samples *ret) {
    uint64_t healthy = 0;
    for (const struct state_node *node = state->nodes; node; node = node->hh.next) {
        for (const struct state_card *card = node->apart; card; card = card->next)
            healthy += card->healthy;
        for (uint32_t i = 0; i < node->ncards; i++) {
            const struct place_card *card = &node->place[i];
            healthy += card->healthy;
            ret->scheduler.overcommitted += node->cards[i]->overcommitted;
            ret->scheduler.memory_free += card->healthy ? card->free.memory : 0;
        }
    }
    ret->gpus[0] = (struct gpus_sample){"healthy", healthy};
    ret->gpus[1] = (struct gpus_sample){"unhealthy", HASH_COUNT(state->cards) - healthy};
    ret->sets[SAMPLES_gpus] = METRIC_SAMPLES(ret->gpus, 2);
}

static void collect_events(const struct scheduler *s, struct scheduler_sample *ret) {
    struct event_writer_stats stats;
    event_writer_stats(s->events, &stats);
    ret->events_written = stats.written;
    ret->events_failed = stats.failed;
    ret->events_dropped = stats.dropped;
}

static void collect_mig(const struct scheduler *s, struct scheduler_samples *ret) {
    const struct mig_orders *const all[] = {s->mig, s->mig_claims};
    ret->mig_orders[0] = (struct mig_order_sample){.result = "made"};
    ret->mig_orders[1] = (struct mig_order_sample){.result = "failed"};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct mig_orders_stats stats;
        mig_orders_stats(all[i], &stats);
        ret->mig_orders[0].count += stats.made;
        ret->mig_orders[1].count += stats.failed;
        ret->scheduler.mig_waiting += stats.waiting;
        prom_add(&ret->scheduler.mig_time, &stats.time);
    }
    ret->sets[SAMPLES_mig_order] = METRIC_SAMPLES(ret->mig_orders, 2);
}

void scheduler_samples_collect(const struct scheduler *s, struct scheduler_samples *ret) {
    state_refresh_all(s->state);
    ret->scheduler = (struct scheduler_sample){
        .ready = scheduler_answers(s),
        .acts = scheduler_leads(s),
        .preemptors = evictor_waiting(&s->evictor),
        .evictions = s->evictor.evicted,
        .evictions_refused = s->evictor.spared,
        .bind_conflicts = s->binder.conflicts,
        .bind_doubts = s->binder.doubts,
        .forged = s->state->forged,
        .gpu_patches = s->gpu_status.patched,
        .gpu_patches_failed = s->gpu_status.failed,
        .wakes = s->requeue.sent,
        .objects_refused = s->objects_refused,
        .skew = s->skew.ahead,
        .stands_back = lease_stands_back(&s->lease),
    };
    collect_verbs(s, ret);
    collect_pods(s->state, ret);
    collect_cards(s->state, ret);
    collect_events(s, &ret->scheduler);
    collect_mig(s, ret);
    ret->changes[0] = (struct change_sample){"acquired", s->lease.acquired};
    ret->changes[1] = (struct change_sample){"lost", s->lease.lost};
    ret->sets[SAMPLES_change] = METRIC_SAMPLES(ret->changes, 2);
    ret->sets[SAMPLES_scheduler] = METRIC_SAMPLES(&ret->scheduler, 1);
}
