/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/gates/quota.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "scheduler/state/namespace_usage.h"

#define CARD_MS 10000 /* how long the least card is taken to be the same */
#define KEY_MAX (KUBE_LABEL_MAX + KUBE_NAME_MAX + 4)

/* The quotas of one namespace, or of one cohort. */
struct quota_group {
    UT_hash_handle hh;
    char name[KUBE_LABEL_MAX];
    struct quota *first;
    bool summed;   /* the rest is true, of a cohort, as long as */
    uint64_t uses; /* the state's is that */
    uint64_t used[QUOTA_RESOURCES], pool[QUOTA_RESOURCES];
};

struct quota {
    UT_hash_handle hh;
    struct quota_group *space;
    struct quota *next_of_space, *next_of_cohort;
    char key[KEY_MAX]; /* kind, namespace, name */
    enum quota_kind kind;
    bool listed;
    bool had_turn; /* its status was sent, and others wait for theirs */
    bool sent;     /* and was not refused: what was sent is `told` */
    struct quota_usage told;
    struct quota_object object;
};

static void key_of(enum quota_kind kind, const char *namespace, const char *name,
                   char ret[static KEY_MAX]) {
    (void) snprintf(ret, KEY_MAX, "%d/%s/%s", (int) kind, namespace, name);
}

static void free_quota(struct quotas *q, struct quota *quota) {
    HASH_DEL(q->all, quota);
    free(quota);
    q->ungrouped = true;
}

/* ---- the quotas of a pod ---- */

static void drop_groups(struct quota_group **all) {
    struct quota_group *group, *next;
    HASH_ITER(hh, *all, group, next) {
        HASH_DEL(*all, group);
        free(group);
    }
}

static struct quota_group *find_group(struct quota_group *all, const char *name) {
    struct quota_group *group;
    HASH_FIND_STR(all, name, group);
    return group;
}

static struct quota_group *get_group(struct quota_group **all, const char *name) {
    struct quota_group *group = find_group(*all, name);
    if (group || !(group = calloc(1, sizeof(*group))))
        return group;
    memcpy(group->name, name, strlen(name) + 1);
    HASH_ADD_STR(*all, name, group);
    return hash_added_or_freed(group);
}

static bool add_to_groups(struct quotas *q, struct quota *quota) {
    const char *name = quota->object.cohort;
    struct quota_group *cohort = name[0] ? get_group(&q->cohorts, name) : NULL;
    quota->space = get_group(&q->spaces, quota->object.namespace);
    if (!quota->space || (name[0] && !cohort))
        return false;
    quota->next_of_space = quota->space->first;
    quota->space->first = quota;
    if (cohort) {
        quota->next_of_cohort = cohort->first;
        cohort->first = quota;
    }
    return true;
}

/* An index, so that only the relevant quotas of a pod are checked. False: out of memory. */
static bool regroup(struct quotas *q) {
    bool all = true;
    if (!q->ungrouped)
        return true;
    drop_groups(&q->spaces);
    drop_groups(&q->cohorts);
    for (struct quota *quota = q->all; quota && all; quota = quota->hh.next)
        all = add_to_groups(q, quota);
    q->ungrouped = !all;
    return all;
}

/* ---- watch events ---- */

void quotas_done(struct quotas *q) {
    hash_drop_all(q, q->all, free_quota);
    drop_groups(&q->spaces);
    drop_groups(&q->cohorts);
}

void quotas_sync_begin(struct quotas *q, enum quota_kind kind) {
    for (struct quota *quota = q->all; quota; quota = quota->hh.next)
        if (quota->kind == kind)
            quota->listed = false;
}

void quotas_sync_end(struct quotas *q, enum quota_kind kind) {
    struct quota *quota, *next;
    HASH_ITER(hh, q->all, quota, next)
        if (quota->kind == kind && !quota->listed)
            free_quota(q, quota);
}

static bool counts_anything(const struct quota_object *object) {
    bool counts = false;
    for (int r = 0; r < QUOTA_RESOURCES; r++)
        counts |= object->counted[r] || object->has_requests[r];
    return counts;
}

void quotas_gone(struct quotas *q, enum quota_kind kind, const char *namespace, const char *name) {
    char key[KEY_MAX];
    key_of(kind, namespace, name, key);
    hash_drop_named(q, q->all, key, free_quota);
}

int quotas_seen(struct quotas *q, enum quota_kind kind, const struct quota_object *object) {
    char key[KEY_MAX];
    struct quota *quota;
    if (!counts_anything(object)) {
        quotas_gone(q, kind, object->namespace, object->name);
        return 0;
    }
    key_of(kind, object->namespace, object->name, key);
    HASH_FIND_STR(q->all, key, quota);
    if (!quota) {
        if (!(quota = calloc(1, sizeof(*quota))))
            return -ENOMEM;
        memcpy(quota->key, key, strlen(key) + 1);
        HASH_ADD_STR(q->all, key, quota);
        if (!(quota = hash_added_or_freed(quota)))
            return -ENOMEM;
    }
    quota->kind = kind;
    quota->listed = true;
    /* Mostly it is only the status that is new. */
    q->ungrouped |= memcmp(&quota->object, object, offsetof(struct quota_object, has_used)) != 0;
    quota->object = *object;
    return 0;
}

/* ---- arithmetic ---- */

static struct quota_usage usage_of(const struct quotas *q, const char *namespace) {
    const struct state_space *space = state_space_find(q->state, namespace);
    return space ? space->used : (struct quota_usage){0};
}

static bool is_of_cohort(const struct quota *quota, const char *cohort, int r) {
    return quota->object.counted[r] && strcmp(quota->object.cohort, cohort) == 0;
}

/* Whether an earlier quota of the same namespace and cohort has counted that namespace. */
static bool was_counted(const struct quota *quota, int r) {
    for (const struct quota *other = quota->space->first; other != quota;
         other = other->next_of_space)
        if (is_of_cohort(other, quota->object.cohort, r))
            return true;
    return false;
}

static void sum_cohort(const struct quotas *q, struct quota_group *cohort) {
    if (cohort->summed && cohort->uses == q->state->uses)
        return;
    memset(cohort->used, 0, sizeof(cohort->used));
    memset(cohort->pool, 0, sizeof(cohort->pool));
    for (const struct quota *quota = cohort->first; quota; quota = quota->next_of_cohort)
        for (int r = 0; r < QUOTA_RESOURCES; r++) {
            uint64_t *pool = &cohort->pool[r];
            if (!quota->object.counted[r])
                continue;
            if (__builtin_add_overflow(*pool, quota->object.guaranteed[r], pool))
                *pool = UINT64_MAX;
            if (!was_counted(quota, r))
                cohort->used[r] += usage_of(q, quota->object.namespace).all.of[r];
        }
    cohort->summed = true;
    cohort->uses = q->state->uses;
}

static const char *format(int r, uint64_t value, char out[static 24]) {
    if (r == QUOTA_MEMORY)
        return num_format_bytes(value, out);
    (void) snprintf(out, 24, "%" PRIu64, value);
    return out;
}

/* Who asks for how much of which resource. */
struct asked {
    enum quota_asker asker;
    int r;
    uint64_t more, own;
};

static void put_excess(struct buf *why, const struct asked *asked, const char *whose,
                       const char *name, uint64_t used, uint64_t limit) {
    char a[24], b[24], c[24];
    const int r = asked->r;
    buf_printf(why, "%s %s uses %s of %s %s, and this %s asks %s", whose, name, format(r, used, a),
               format(r, limit, b), quota_resource_name((enum quota_resource) r),
               asked->asker == QUOTA_CLAIM ? "claim" : "pod", format(r, asked->more, c));
}

static uint64_t without(uint64_t used, uint64_t own) {
    return used - (own < used ? own : used);
}

/* What Kubernetes counts of pods without claims is left to it. */
static uint64_t limit_of(const struct quota_object *o, const struct asked *asked,
                         const struct quota_usage *usage) {
    const int r = asked->r;
    const uint64_t max = o->counted[r] ? o->max[r] : UINT64_MAX;
    bool together = o->has_requests[r] && (asked->asker == QUOTA_CLAIM || usage->claims.of[r] > 0);
    return together && o->requests[r] < max ? o->requests[r] : max;
}

static bool admits(const struct quotas *q, const struct quota_object *o, const struct asked *asked,
                   struct buf *why) {
    const struct quota_usage usage = usage_of(q, o->namespace);
    const int r = asked->r;
    const uint64_t more = asked->more, limit = limit_of(o, asked, &usage);
    uint64_t used = without(usage.all.of[r], asked->own);
    if (more > limit || used > limit - more) {
        char text[24];
        put_excess(why, asked, QUOTA_EXCEEDED, o->namespace, used, limit);
        if (usage.claims.of[r] > 0)
            buf_printf(why, "; its claims have %s", format(r, usage.claims.of[r], text));
        return false;
    }
    bool borrows = more > o->guaranteed[r] || used > o->guaranteed[r] - more;
    struct quota_group *cohort = borrows ? find_group(q->cohorts, o->cohort) : NULL;
    if (!cohort)
        return true;
    sum_cohort(q, cohort);
    const uint64_t pool = cohort->pool[r];
    used = without(cohort->used[r], asked->own);
    if (more <= pool && used <= pool - more)
        return true;
    put_excess(why, asked, QUOTA_NOTHING_LEFT, o->cohort, used, pool);
    return false;
}

bool quotas_admit(struct quotas *q, const char *namespace, const struct quota_use *more,
                  const struct quota_use *own, enum quota_asker asker, struct buf *why) {
    if (!regroup(q)) {
        buf_puts(why, "out of memory");
        return false;
    }
    const struct quota_group *space = find_group(q->spaces, namespace);
    for (const struct quota *quota = space ? space->first : NULL; quota;
         quota = quota->next_of_space)
        for (int r = 0; r < QUOTA_RESOURCES; r++) {
            const struct asked asked = {asker, r, more->of[r], own ? own->of[r] : 0};
            if ((quota->object.counted[r] || quota->object.has_requests[r]) && more->of[r] > 0 &&
                !admits(q, &quota->object, &asked, why))
                return false;
        }
    return true;
}

/* ---- pods ---- */

/* A card on which a pod takes the least that it can: with the memory of the smallest one of the
 * cluster, and as fast as the fastest. */
static const struct place_card *least_card(struct quotas *q, uint64_t now_ms) {
    struct place_card *least = &q->least;
    if (least->memory > 0 && now_ms - q->least_ms < CARD_MS)
        return least;
    *least = (struct place_card){0};
    q->least_ms = now_ms;
    for (const struct state_card *card = q->state->cards; card; card = card->hh.next) {
        if (card->apart)
            continue;
        if (least->memory == 0 || card->memory < least->memory)
            least->memory = least->physical = card->memory;
        if (card->tflops > least->tflops)
            least->tflops = card->tflops;
        place_least_replicas(&least->replicas, card->replicas.count, card->replicas.as_cards);
    }
    return least;
}

static void add_request(const struct container_request *req, const struct place_card *card,
                        struct place_sum *sum) {
    const uint32_t cards = req->cards;
    struct place_amount amount = place_share(req, card);
    /* What no card can give is held by that, not by a quota. */
    amount.core = (amount.core < CORE_PER_CARD ? amount.core : CORE_PER_CARD) * cards;
    amount.memory = state_charge_bound(state_charge_bound(amount.memory) * cards);
    amount.slots = cards;
    place_sum_add(sum, req->phase, &amount);
}

struct quota_use quotas_least_use(struct quotas *q, const struct container_request *req,
                                  uint64_t now_ms) {
    struct place_sum sum = {0};
    add_request(req, least_card(q, now_ms), &sum);
    return quota_use_of(&sum);
}

/* The pod's usage: its allocation, or else its request on such a card. */
static struct quota_use use_of_pod(const struct state_pod *pod, const struct place_card *card) {
    struct place_sum sum = {0};
    if (pod->nallocations > 0)
        return state_pod_use(pod, NULL);
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if (!state_is_charged(pod, pod->containers[i].container))
            add_request(&pod->containers[i], card, &sum);
    return quota_use_of(&sum);
}

struct quota_use quotas_use_of(struct quotas *q, const struct state_pod *pod, uint64_t now_ms) {
    return use_of_pod(pod, least_card(q, now_ms));
}

bool quotas_open(void *self, struct state_pod *pod, uint64_t now_ms, struct buf *why) {
    struct quotas *q = self;
    /* What a pod has by ResourceClaims is charged to its namespace already. */
    if (!q->all || (pod->resource_claims && pod->stage != POD_PENDING))
        return true;
    struct quota_use more = quotas_use_of(q, pod, now_ms);
    return quotas_admit(q, pod->namespace, &more, &pod->used, QUOTA_POD, why);
}

void quotas_each(const struct quotas *q,
                 void (*each)(const struct quota_object *object, enum quota_kind kind,
                              const struct quota_usage *used, void *userdata),
                 void *userdata) {
    for (const struct quota *quota = q->all; quota; quota = quota->hh.next) {
        const struct quota_usage used = usage_of(q, quota->object.namespace);
        each(&quota->object, quota->kind, &used, userdata);
    }
}

/* ---- status ---- */

/* The CRD of a release without the part of claims drops it: it is sent once for each usage. */
static bool is_shown(const struct quota *quota, const struct quota_usage *used) {
    const struct quota_object *o = &quota->object;
    if (!o->has_used || memcmp(&o->used.all, &used->all, sizeof(used->all)) != 0)
        return false;
    return memcmp(&o->used.claims, &used->claims, sizeof(used->claims)) == 0 ||
           (!o->has_claims && quota->sent && memcmp(&quota->told, used, sizeof(*used)) == 0);
}

void quotas_refused(struct quotas *q) {
    for (struct quota *quota = q->all; quota; quota = quota->hh.next)
        quota->sent = false;
}

void quotas_project(struct quotas *q, unsigned max,
                    void (*patch)(const struct quota_object *object, const struct quota_usage *used,
                                  void *userdata),
                    void *userdata) {
    for (struct quota *quota = q->all; quota && max > 0; quota = quota->hh.next) {
        const struct quota_object *o = &quota->object;
        const struct quota_usage used = usage_of(q, o->namespace);
        if (quota->kind != QUOTA_OF_OURS || quota->had_turn || is_shown(quota, &used))
            continue;
        quota->had_turn = quota->sent = true;
        quota->told = used;
        patch(o, &used, userdata);
        max--;
    }
    /* In turns, so that objects whose status the API server rejects do not starve others. */
    for (struct quota *quota = max > 0 ? q->all : NULL; quota; quota = quota->hh.next)
        quota->had_turn = false;
}
