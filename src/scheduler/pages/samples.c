/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/pages/samples.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "scheduler/gates/waiting.h"
#include "scheduler/state/namespace_usage.h"

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
    ret->scheduler.overcommitted = ret->scheduler.memory_free = 0;
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

/* Also a node whose cards are all given out by another project. */
static bool is_out_of_service(const struct state_node *node) {
    for (const struct state_card *card = node->apart; card; card = card->next)
        if ((card->healthy || card->unknown) && state_card_absent(card) != PLACE_OK)
            return true;
    return state_node_absent(node) != PLACE_OK;
}

/* What still fits on the node's cards. */
static void collect_room(const struct state_node *node, struct scheduler_sample *ret) {
    if (!node->exists)
        return;
    if (is_out_of_service(node)) {
        ret->absent_nodes++;
        return;
    }
    for (uint32_t i = 0; i < node->ncards; i++) {
        const struct place_card *card = &node->place[i];
        if (!card->healthy)
            continue;
        ret->free_cards += card->core == 0 && !card->mps_only && place_card_is_idle(card);
        if (card->whole_only || card->mps_only || card->free.slots == 0)
            continue;
        if (card->free.core > ret->largest_core)
            ret->largest_core = card->free.core;
        if (card->free.memory > ret->largest_memory)
            ret->largest_memory = card->free.memory;
    }
}

/* ---- by namespace ---- */

struct tally {
    UT_hash_handle hh;
    struct tally_key {
        char namespace[KUBE_LABEL_MAX];
        const char *word; /* a constant: equal pointers, equal texts */
    } key;
    struct tally_sample sample;
};

static void tally_free(struct tally **all) {
    struct tally *entry, *next;
    HASH_ITER(hh, *all, entry, next) {
        HASH_DEL(*all, entry);
        free(entry);
    }
}

/* The name of the namespace outlives the samples. */
static int tally_add(struct tally **all, const char *namespace, const char *word, uint32_t count,
                     struct place_amount amount) {
    struct tally *entry;
    struct tally_key key;
    memset(&key, 0, sizeof(key)); /* all of it is hashed */
    text_copy(key.namespace, sizeof(key.namespace), namespace);
    key.word = word;
    HASH_FIND(hh, *all, &key, sizeof(key), entry);
    if (!entry) {
        if (!(entry = calloc(1, sizeof(*entry))))
            return -ENOMEM;
        memcpy(&entry->key, &key, sizeof(key));
        entry->sample = (struct tally_sample){.namespace = namespace, .word = word};
        HASH_ADD(hh, *all, key, sizeof(entry->key), entry);
        if (!(entry = hash_added_or_freed(entry)))
            return -ENOMEM;
    }
    entry->sample.count += count;
    entry->sample.core += amount.core;
    entry->sample.memory += amount.memory;
    return 0;
}

/* The samples in an array, which is the caller's. */
static int tally_take(const struct tally *all, struct tally_sample **ret,
                      struct metric_samples *ret_set) {
    size_t n = 0;
    if (!(*ret = calloc(HASH_COUNT(all) + 1, sizeof(**ret))))
        return -ENOMEM;
    for (const struct tally *entry = all; entry; entry = entry->hh.next)
        (*ret)[n++] = entry->sample;
    *ret_set = METRIC_SAMPLES(*ret, n);
    return 0;
}

static const char *reason_of(const struct state_pod *pod) {
    if (pod->problem != REQUEST_OK)
        return "malformed";
    if (pod->foreign.scheduler)
        return "other-scheduler";
    if (pod->nominated)
        return "making-room";
    return pod->requeue.reason ? pod->requeue.reason : "not-tried";
}

static int collect_waiting(struct scheduler *s, struct scheduler_samples *ret) {
    struct tally *all = NULL;
    int r = 0;
    for (const struct state_pod *pod = s->state->open; pod && r == 0; pod = pod->open_next)
        if (pod_waits(pod))
            r = tally_add(&all, pod->space->name, reason_of(pod), 1, (struct place_amount){0});
    if (r == 0)
        r = tally_take(all, &ret->waiting, &ret->sets[SAMPLES_waiting]);
    tally_free(&all);
    return r;
}

static void collect_wanted(struct scheduler *s, struct scheduler_sample *ret) {
    ret->wanted_cards = 0;
    for (const struct state_pod *pod = s->state->open; pod; pod = pod->open_next)
        if (pod_waits(pod))
            ret->wanted_cards += pod_wanted_cards(&s->govern.quotas, pod, scheduler_now(s));
}

/* The dialect of the request of a container; DIALECT_COUNT: the pod has no such request. */
static enum dialect_id dialect_of(const struct state_pod *pod, const char *container) {
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if (strcmp(pod->containers[i].container, container) == 0)
            return pod->containers[i].dialect;
    return DIALECT_COUNT;
}

static int add_shares(struct tally **all, const struct state_pod *pod) {
    struct place_sum sums[DIALECT_COUNT + 1] = {0};
    uint32_t counts[DIALECT_COUNT + 1] = {0};
    int r = 0;
    for (uint32_t i = 0; i < pod->nallocations;) {
        const struct state_allocation *first = &pod->allocations[i];
        const enum dialect_id dialect = dialect_of(pod, first->container);
        const struct place_amount amount = state_container_amount(pod, &i);
        place_sum_add(&sums[dialect], first->phase, &amount);
        counts[dialect] += (uint32_t) amount.slots;
    }
    for (size_t i = 0; i <= DIALECT_COUNT && r == 0; i++)
        if (counts[i] > 0)
            r = tally_add(all, pod->space->name, i < DIALECT_COUNT ? dialects[i].name : "",
                          counts[i], place_sum_total(&sums[i]));
    return r;
}

static int add_claim_shares(struct tally **all, const struct state *state) {
    int r = 0;
    for (const struct state_reserved *kept = state->reserved; kept && r == 0; kept = kept->hh.next)
        for (uint32_t i = 0; kept->claim && i < kept->ndevices && r == 0; i++) {
            const struct assigned_device *device = &kept->devices[i];
            r = tally_add(all, kept->claim->namespace, "ResourceClaim", 1,
                          (struct place_amount){.core = device->core, .memory = device->memory});
        }
    return r;
}

static int collect_shares(const struct state *state, struct scheduler_samples *ret) {
    struct tally *all = NULL;
    int r = 0;
    for (const struct state_pod *pod = state->pods; pod && r == 0; pod = pod->hh.next)
        if (pod->stage >= POD_AWAITED)
            r = add_shares(&all, pod);
    if (r == 0)
        r = add_claim_shares(&all, state);
    if (r == 0)
        r = tally_take(all, &ret->shares, &ret->sets[SAMPLES_shares]);
    tally_free(&all);
    return r;
}

struct claim_tally {
    struct tally *all;
    int error;
};

static void add_claim(const char *namespace, const char *reason, void *userdata) {
    struct claim_tally *to = userdata;
    if (to->error == 0)
        to->error = tally_add(&to->all, namespace, reason, 1, (struct place_amount){0});
}

static int collect_claims(const struct scheduler *s, struct scheduler_samples *ret) {
    struct claim_tally tally = {0};
    dra_waiting_each(&s->dra, add_claim, &tally);
    int r = tally.error;
    if (r == 0)
        r = tally_take(tally.all, &ret->claims, &ret->sets[SAMPLES_claims]);
    tally_free(&tally.all);
    return r;
}

struct quota_list {
    struct quota_sample *first;
    size_t n, room;
    int error;
};

static void add_quota(const struct quota_object *object, enum quota_kind kind,
                      const struct quota_usage *used, void *userdata) {
    static const char *const kinds[QUOTA_KINDS] = {"ElasticGPUQuota", "ResourceQuota"};
    struct quota_list *list = userdata;
    int r =
        array_reserve(&list->first, &list->room, list->n + QUOTA_RESOURCES, sizeof(*list->first));
    if (r < 0)
        list->error = r;
    for (int i = 0; i < QUOTA_RESOURCES && r == 0; i++) {
        const uint64_t use = used->all.of[i], guaranteed = object->guaranteed[i];
        if (!object->counted[i])
            continue;
        struct quota_sample *sample = &list->first[list->n++];
        *sample = (struct quota_sample){
            .kind = kinds[kind],
            .resource = quota_resource_name((enum quota_resource) i),
            .used = use,
            .claims = used->claims.of[i],
            .guaranteed = guaranteed,
            .max = object->max[i], /* "no limit" is METRIC_UNKNOWN_64 */
            .borrowed = METRIC_UNKNOWN_64,
        };
        if (object->cohort[0])
            sample->borrowed = use > guaranteed ? use - guaranteed : 0;
        memcpy(sample->namespace, object->namespace, sizeof(sample->namespace));
        memcpy(sample->name, object->name, sizeof(sample->name));
    }
}

static int collect_quotas(const struct quotas *quotas, struct scheduler_samples *ret) {
    struct quota_list list = {0};
    quotas_each(quotas, add_quota, &list);
    ret->quotas = list.first;
    ret->sets[SAMPLES_quota] = METRIC_SAMPLES(ret->quotas, list.n);
    return list.error;
}

static int collect_cluster(struct scheduler *s, struct scheduler_samples *ret) {
    struct scheduler_sample *sum = &ret->scheduler;
    sum->overcommitted = sum->memory_free = sum->free_cards = sum->largest_memory =
        METRIC_UNKNOWN_64;
    sum->largest_core = sum->absent_nodes = METRIC_UNKNOWN_32;
    sum->wanted_cards = NAN;
    if (!scheduler_is_ready(s))
        return 0;
    collect_pods(s->state, ret);
    collect_cards(s->state, ret);
    sum->free_cards = sum->largest_memory = sum->largest_core = sum->absent_nodes = 0;
    for (const struct state_node *node = s->state->nodes; node; node = node->hh.next)
        collect_room(node, sum);
    collect_wanted(s, sum);
    int r = scheduler_leads(s) ? collect_waiting(s, ret) : 0;
    r = r == 0 && scheduler_leads(s) ? collect_claims(s, ret) : r;
    r = r < 0 ? r : collect_shares(s->state, ret);
    return r < 0 ? r : collect_quotas(&s->govern.quotas, ret);
}

/* ---- of this replica ---- */

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

int scheduler_samples_collect(struct scheduler *s, struct scheduler_samples *ret) {
    *ret = (struct scheduler_samples){0};
    state_refresh_all(s->state);
    ret->scheduler = (struct scheduler_sample){
        .ready = scheduler_answers(s),
        .acts = scheduler_leads(s),
        .preemptors = evictor_waiting(&s->evictor),
        .evictions = s->evictor.evicted,
        .evictions_refused = s->evictor.spared,
        .bind_conflicts = s->binder.conflicts,
        .bind_doubts = s->binder.doubts,
        .waits = s->binder.waits,
        .forged = s->state->forged,
        .gpu_patches = s->gpu_status.patched,
        .gpu_patches_failed = s->gpu_status.failed,
        .wakes = s->requeue.sent,
        .objects_refused = s->objects_refused,
        .skew = s->skew.ahead,
        .stands_back = lease_stands_back(&s->lease),
    };
    collect_verbs(s, ret);
    collect_events(s, &ret->scheduler);
    collect_mig(s, ret);
    ret->changes[0] = (struct change_sample){"acquired", s->lease.acquired};
    ret->changes[1] = (struct change_sample){"lost", s->lease.lost};
    ret->claim_writes[0] = (struct claim_write_sample){"allocated", s->dra.allocated};
    ret->claim_writes[1] = (struct claim_write_sample){"taken-back", s->dra.taken_back};
    ret->claim_writes[2] = (struct claim_write_sample){"failed", s->dra.failed};
    ret->sets[SAMPLES_claim_write] = METRIC_SAMPLES(ret->claim_writes, 3);
    ret->sets[SAMPLES_change] = METRIC_SAMPLES(ret->changes, 2);
    ret->sets[SAMPLES_scheduler] = METRIC_SAMPLES(&ret->scheduler, 1);
    return collect_cluster(s, ret);
}

void scheduler_samples_done(struct scheduler_samples *samples) {
    free(samples->waiting);
    free(samples->shares);
    free(samples->claims);
    free(samples->quotas);
}
