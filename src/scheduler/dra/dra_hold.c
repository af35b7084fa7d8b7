/* SPDX-License-Identifier: Apache-2.0 */

/* What claims have of cards, as reserved capacity of the state. A claim holds it from the moment at
 * which it was chosen, and the API server's word replaces ours under the same name, so that it
 * counts once. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "base/text.h"
#include "model/dra.h"
#include "scheduler/dra/dra_internal.h"
#include "scheduler/state/namespace_usage.h"

#define HOLD_MS 10000  /* all claims are looked at again */
#define UNHELD_MS 1000 /* where a card was not known */
#define MEMORY_MAX (UINT64_MAX / DEVICE_RESULTS_MAX)

void dra_id(const struct resource_claim *claim, char ret[static DRA_ID_MAX]) {
    (void) snprintf(ret, DRA_ID_MAX, "resourceclaim/%s", claim->uid);
}

void dra_unhold(struct dra *d, const struct dra_claim *claim) {
    char id[DRA_ID_MAX];
    dra_id(&claim->object, id);
    state_unreserve(d->state, id);
    state_uncharge(d->state, id);
}

static void add_use(struct quota_use *use, const struct assigned_device *device) {
    use->of[QUOTA_CARDS]++;
    use->of[QUOTA_CORE] += device->core;
    use->of[QUOTA_MEMORY] += state_charge_bound(device->memory);
}

struct quota_use dra_use_of(const struct dra_plan *plan) {
    struct quota_use use = {0};
    for (uint32_t i = 0; i < plan->nparts; i++)
        add_use(&use, &plan->parts[i].share);
    return use;
}

/* The card that a result is about; a device that is in no slice is found by its name, which is the
 * UUID in lower case. */
static const struct state_card *card_find(const struct dra *d, const struct state_node *node,
                                          const struct device_result *result) {
    const struct slice_device *device = dra_device_of(d, result->pool, result->device);
    const char *uuid = device ? device->uuid : result->device;
    for (uint32_t c = 0; c < node->ncards; c++)
        if (strcasecmp(node->cards[c]->uuid, uuid) == 0 && !node->cards[c]->duplicate)
            return node->cards[c];
    return NULL;
}

/* What a result consumes of the card; what it does not name is all of it. */
static struct assigned_device share_of(const struct device_amounts *consumed,
                                       const struct state_card *card) {
    const struct place_card place = state_place_card(card);
    const uint32_t core = place_card_core(&place);
    const uint64_t memory = card->physical < card->memory ? card->physical : card->memory;
    struct container_request req = {.phase = CONTAINER_APP, .cards = 1, .scaling = DRA_SCALING};
    req.core = consumed->has_core && consumed->core < core ? (uint32_t) consumed->core : core;
    req.memory = consumed->has_memory && consumed->memory > 0 && consumed->memory < memory
                     ? consumed->memory
                     : memory;
    req.whole = req.core == CORE_PER_CARD && req.memory == memory;
    req.slot = req.core == 0;
    if (req.whole)
        req.core = 0, req.memory = 0;
    const struct place_grant grant = place_grant(&req, &place);
    return state_device(card, &grant);
}

/* What a result consumes of a card that is gone. It can come back under the same UUID, as a MIG
 * instance can that is made again, and the claim has its share of it then. False: it names no
 * amounts, or an instance that was made for the claim, which is no card of the state. */
static bool share_of_gone(const struct device_result *result, struct assigned_device *ret) {
    const struct device_amounts *consumed = &result->consumed;
    *ret = (struct assigned_device){.memory = consumed->memory, .physical = consumed->memory};
    ret->core = consumed->core < CORE_PER_CARD ? (uint32_t) consumed->core : CORE_PER_CARD;
    dra_device_uuid(result->device, ret->uuid);
    return consumed->has_core && consumed->has_memory && consumed->memory <= MEMORY_MAX &&
           strlen(ret->uuid) == strlen(result->device);
}

/* Such a card offers no shares, so that the state does not count what claims have of it; it can be
 * an instance that is not made yet. */
static bool is_of_kube_scheduler(const struct dra *d, const struct device_result *result) {
    const struct slice_device *device = dra_device_of(d, result->pool, result->device);
    return device && device->by_scheduler;
}

/* The devices of our driver that are allocated to it, as the state has cards. False: one of them is
 * not known. */
static bool resolve(const struct dra *d, const struct resource_claim *claim,
                    struct assigned_device devices[static DEVICE_RESULTS_MAX], uint32_t *ret_n,
                    const struct state_node **ret_node) {
    *ret_n = 0;
    *ret_node = NULL;
    for (uint32_t i = 0; i < claim->nresults; i++) {
        const struct device_result *result = &claim->results[i];
        if (strcmp(result->driver, DRA_DRIVER) != 0 || result->admin)
            continue;
        const struct state_node *node = state_node_find(d->state, result->pool);
        const struct state_card *card = node ? card_find(d, node, result) : NULL;
        if (!card && is_of_kube_scheduler(d, result))
            continue;
        const bool gone = !card && dra_device_is_gone(d, result->pool, result->device);
        struct assigned_device share = {.core = 0};
        if (card)
            share = share_of(&result->consumed, card);
        else if (gone && (!node || !share_of_gone(result, &share)))
            continue;
        if ((!card && !gone) || (*ret_node && *ret_node != node))
            return false;
        *ret_node = node;
        devices[(*ret_n)++] = share;
    }
    return true;
}

/* The devices of the plan. */
static uint32_t planned(const struct dra_plan *plan,
                        struct assigned_device devices[static DEVICE_RESULTS_MAX]) {
    for (uint32_t i = 0; i < plan->nparts; i++)
        devices[i] = plan->parts[i].share;
    return plan->nparts;
}

/* The pods that may use it. One that another kind of object may use does not become free with them.
 */
static int set_users(struct dra *d, const struct resource_claim *claim, const char *id) {
    char users[DEVICE_USERS_MAX][KUBE_UID_MAX];
    uint32_t n = 0;
    while (claim->allocated && n < claim->nusers && claim->users[n].pod) {
        memcpy(users[n], claim->users[n].uid, sizeof(users[n]));
        n++;
    }
    return state_reserved_users(d->state, id, users, n == claim->nusers ? n : 0);
}

static void reserve(struct dra *d, const struct dra_claim *claim, const char *node,
                    const struct assigned_device *devices, uint32_t n) {
    char id[DRA_ID_MAX], keeper[STATE_KEEPER_MAX];
    struct quota_use use = {0};
    dra_id(&claim->object, id);
    for (uint32_t i = 0; i < n; i++)
        add_use(&use, &devices[i]);
    if (state_reserve(d->state, id, node, devices, n) < 0 ||
        state_charge(d->state, id, claim->object.namespace, &use) < 0 ||
        set_users(d, &claim->object, id) < 0) {
        d->unheld = true; /* it is tried again */
        log_warn("out of memory: the share of ResourceClaim %s is not kept", claim->key);
    }
    (void) snprintf(keeper, sizeof(keeper), "claim %s", claim->key);
    state_reserved_name(d->state, id, keeper);
}

static int by_name(const void *a, const void *b) {
    const struct state_claim_user *x = a, *y = b;
    int r = strcmp(x->pod, y->pod);
    return r ? r : strcmp(x->container, y->container);
}

static void add_user(struct state_claim *to, const char *pod, const char *container) {
    if (to->nusers == STATE_CLAIM_USERS_MAX)
        return;
    struct state_claim_user *user = &to->users[to->nusers++];
    *user = (struct state_claim_user){.pod = ""};
    text_copy(user->pod, sizeof(user->pod), pod);
    text_copy(user->container, sizeof(user->container), container);
}

/* The containers of one pod; of one that is not known, the pod alone. */
static void add_users(const struct dra *d, const struct resource_claim *claim,
                      const struct device_user *user, struct state_claim *to) {
    const struct dra_pod *pod;
    uint32_t before = to->nusers;
    HASH_FIND_STR(d->pods, user->uid, pod);
    for (size_t i = 0; pod && i < pod->object.nuses; i++)
        if (strcmp(pod->object.uses[i].claim, claim->name) == 0)
            add_user(to, user->name, pod->object.uses[i].container);
    if (to->nusers == before)
        add_user(to, user->name, "");
}

/* The pods for which it is reserved; NULL: there is none. */
static struct state_claim *users_of(const struct dra *d, const struct resource_claim *claim) {
    struct state_claim *ret =
        calloc(1, sizeof(*ret) + STATE_CLAIM_USERS_MAX * sizeof(ret->users[0]));
    if (!ret)
        return NULL;
    memcpy(ret->uid, claim->uid, sizeof(ret->uid));
    memcpy(ret->namespace, claim->namespace, sizeof(ret->namespace));
    memcpy(ret->name, claim->name, sizeof(ret->name));
    for (uint32_t i = 0; i < claim->nusers; i++)
        if (claim->users[i].pod)
            add_users(d, claim, &claim->users[i], ret);
    if (ret->nusers == 0) {
        free(ret);
        return NULL;
    }
    qsort(ret->users, ret->nusers, sizeof(ret->users[0]), by_name);
    struct state_claim *small = realloc(ret, sizeof(*ret) + ret->nusers * sizeof(ret->users[0]));
    return small ? small : ret;
}

static void reserve_allocated(struct dra *d, const struct dra_claim *claim, const char *node,
                              const struct assigned_device *devices, uint32_t n) {
    char id[DRA_ID_MAX];
    reserve(d, claim, node, devices, n);
    dra_id(&claim->object, id);
    state_reserved_claim(d->state, id, users_of(d, &claim->object));
}

void dra_hold(struct dra *d, struct dra_claim *claim) {
    struct assigned_device devices[DEVICE_RESULTS_MAX];
    const struct resource_claim *object = &claim->object;
    const struct state_node *node;
    uint32_t n;
    if (!object->allocated && claim->plan) {
        n = planned(claim->plan, devices);
        reserve(d, claim, claim->plan->node, devices, n);
    } else if (!object->allocated || !resource_claim_is_ours(object)) {
        dra_unhold(d, claim);
    } else if (!resolve(d, object, devices, &n, &node)) {
        d->unheld = true; /* what was reserved before stays */
    } else if (n > 0) {
        reserve_allocated(d, claim, node->name, devices, n);
    } else {
        dra_unhold(d, claim);
    }
}

static void set_unresolved(struct dra *d, struct dra_node *node, uint32_t n) {
    struct state_node *seen = n != node->unresolved ? state_node_find(d->state, node->name) : NULL;
    node->unresolved = n;
    if (seen)
        state_touch(seen);
}

/* Of a claim for which nothing is reserved it is not known which card it is on, so that its node
 * gives out nothing until it is. */
static void count_unresolved(struct dra *d, const struct dra_claim *claim) {
    struct assigned_device devices[DEVICE_RESULTS_MAX];
    const struct state_node *at;
    char id[DRA_ID_MAX];
    uint32_t n;
    dra_id(&claim->object, id);
    if (!claim->object.allocated || !resource_claim_is_ours(&claim->object) ||
        state_reserved_find(d->state, id) || resolve(d, &claim->object, devices, &n, &at))
        return;
    for (uint32_t i = 0; i < claim->object.nresults; i++) {
        struct dra_node *node = dra_node_find(d, claim->object.results[i].pool);
        if (node && strcmp(claim->object.results[i].driver, DRA_DRIVER) == 0)
            set_unresolved(d, node, node->unresolved + 1);
    }
    d->unresolved++;
    d->unheld = true;
}

void dra_hold_all(struct dra *d, uint64_t now_ms) {
    if (now_ms - d->held_ms < (d->unheld ? UNHELD_MS : HOLD_MS) && d->held_ms != 0)
        return;
    d->unheld = false;
    d->held_ms = now_ms;
    for (struct dra_claim *claim = d->claims; claim; claim = claim->hh.next)
        dra_hold(d, claim);
    for (struct dra_node *node = d->nodes; node; node = node->hh.next)
        set_unresolved(d, node, 0);
    d->unresolved = 0;
    for (struct dra_claim *claim = d->claims; claim; claim = claim->hh.next)
        count_unresolved(d, claim);
}
