/* SPDX-License-Identifier: Apache-2.0 */
#include "place/place.h"

#include <assert.h>
#include <string.h>

#include "place/amounts.h"
#include "place/reasons.h"
#include "place/topology.h"

/* Looks at a card before giving up on a pod with many containers, on all nodes together: a few
 * milliseconds. The first solution is nearly always the first try; this bounds the worst case. */
#define EFFORT 40000
#define STEPS_PER_TRY 16 /* of the search for linked cards, which are short */

#define RANKS INT64_C(100000)
#define SCORE_STEP INT64_C(1000)
_Static_assert(GPU_CONTAINERS_MAX <= 32, "containers are bits of an uint32_t");
_Static_assert(PLACE_VALUE_MAX *RANKS *SCORE_STEP <= PLACE_SCORE_MAX, "scores would overflow");

/* ---- the order of placing ---- */

/* What runs at the same time is placed first, the largest of it first; init containers then find
 * room in what their own pod holds already. */
static bool goes_before(const struct container_request *a, const struct container_request *b) {
    bool a_init = a->phase == CONTAINER_INIT, b_init = b->phase == CONTAINER_INIT;
    if (a_init != b_init)
        return b_init;
    if (a->whole != b->whole)
        return a->whole;
    if (a->cards != b->cards)
        return a->cards > b->cards;
    if (a->core != b->core)
        return a->core > b->core;
    return a->memory > b->memory;
}

void place_prepare(const struct gpu_request *request, struct place_plan *ret) {
    uint8_t order[GPU_CONTAINERS_MAX];
    assert(request->n <= GPU_CONTAINERS_MAX);
    for (uint32_t i = 0; i < request->n; i++) {
        uint32_t at = i;
        for (; at > 0 && goes_before(&request->containers[i], &request->containers[order[at - 1]]);
             at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t) i;
    }
    ret->request = request;
    ret->policy = place_binpack;
    ret->shape = 0;
    ret->effort = EFFORT;
    ret->cpu = ret->memory = 0;
    ret->models = UINT64_MAX;
    ret->model = NULL;
    ret->topology = TOPOLOGY_UNSET;
    ret->numa_bind = ret->exclusive_cpus = false;
    ret->nunits = 0;
    for (uint32_t i = 0; i < request->n; i++) {
        uint32_t cards = request->containers[order[i]].cards;
        ret->exclusive_cpus |= request->containers[i].cpus > 0;
        for (uint32_t c = 0; c < cards && c < PLACE_CARDS_MAX; c++)
            ret->units[ret->nunits++] = order[i];
    }
}

/* ---- the search ---- */

/* A card that a container can get. Candidates are taken in the order of far, cost, cut, index. */
struct candidate {
    bool far; /* see place_is_far() */
    uint64_t cost;
    uint32_t cut; /* links to idle cards that it would leave behind */
    uint32_t card;
};

struct search {
    const struct place_policy *policy;
    const struct place_plan *plan;
    const struct place_node *node;
    uint64_t *granted;                        /* by container */
    struct place_amount now[PLACE_CARDS_MAX]; /* what the pod holds of each card by these grants */
    struct candidate before;                  /* the choice for the unit above */
    uint32_t tries;                           /* that may still be taken */
};

/* What this pod holds of card c by the grants so far, with `container` on it as well. */
static struct place_amount hold_with(const struct search *s, uint32_t c, uint32_t container) {
    uint32_t containers = UINT32_C(1) << container;
    for (uint32_t i = 0; i < s->plan->request->n; i++)
        containers |= (uint32_t) (s->granted[i] >> c & 1) << i;
    return place_taken_by(s->plan->request, s->node, containers, c);
}

/* ---- links between the cards of one container ---- */

static bool has_several(const struct search *s, uint32_t container) {
    return s->plan->request->containers[container].cards > 1;
}

/* Whether the pod accepts any links. */
static bool takes_any_links(const struct place_plan *plan) {
    return plan->topology != TOPOLOGY_RESTRICTED && !plan->numa_bind;
}

/* The weakest link that the container accepts. */
static uint8_t least_link(const struct search *s, uint32_t container) {
    const struct place_topology *t = s->node->topology;
    return s->plan->topology == TOPOLOGY_RESTRICTED
               ? t->best[s->plan->request->containers[container].cards]
               : LINK_UNKNOWN;
}

/* Whether card c is linked to the container's other cards as the pod requests. */
static bool is_linked(const struct search *s, uint32_t container, uint32_t c) {
    const struct place_topology *t = s->node->topology;
    if (takes_any_links(s->plan) || !has_several(s, container))
        return true;
    if (!t)
        return false;
    for (uint64_t rest = s->granted[container]; rest; rest &= rest - 1) {
        uint32_t other = (uint32_t) __builtin_ctzll(rest);
        if (topology_link(t, c, other) < least_link(s, container) ||
            (s->plan->numa_bind && t->numa[c] != t->numa[other]))
            return false;
    }
    return true;
}

/* Whether the links decide which cards the container gets. */
static bool wants_links(const struct search *s, uint32_t container) {
    const struct container_request *a = &s->plan->request->containers[container];
    enum topology_policy policy = s->plan->topology;
    return s->node->topology && a->cards > 1 &&
           (policy == TOPOLOGY_BEST || policy == TOPOLOGY_RESTRICTED ||
            (policy == TOPOLOGY_UNSET && a->whole));
}

static bool is_idle(const struct place_card *card) {
    return card->healthy && place_card_is_idle(card);
}

/* Links of card c to the other idle ones: what taking it alone would cut. */
static uint32_t links_cut(const struct place_node *node, uint32_t c) {
    uint32_t sum = 0;
    for (uint32_t i = 0; node->topology && i < node->ncards; i++)
        if (i != c && is_idle(&node->cards[i]))
            sum += topology_link(node->topology, c, i);
    return sum;
}

/* Whether the cards differ only in their index and in the containers that may take them. */
static bool are_equivalent(const struct search *s, uint32_t a, uint32_t b) {
    const struct place_card *x = &s->node->cards[a], *y = &s->node->cards[b];
    return s->node->ndraws == 0 && x->memory == y->memory && x->physical == y->physical &&
           x->tflops == y->tflops && x->core == y->core && x->whole_only == y->whole_only &&
           x->mps_only == y->mps_only &&
           card_replicas_code(&x->replicas) == card_replicas_code(&y->replicas) &&
           amount_equal(&x->free, &y->free) && amount_is_zero(&s->now[a]) &&
           amount_is_zero(&s->now[b]);
}

/* Whether `container` fits on card c beside what the pod has there, and how much it adds. */
static bool fits_on(const struct search *s, uint32_t c, uint32_t container,
                    struct place_amount *ret_added) {
    const struct place_card *card = &s->node->cards[c];
    if (!is_candidate(&s->plan->request->containers[container], card) ||
        (s->granted[container] >> c & 1) || !may_take(s->node, container, c) ||
        !is_linked(s, container, c))
        return false;
    struct place_amount after = hold_with(s, c, container);
    if (!amount_fits(&after, &card->free) ||
        place_share(&s->plan->request->containers[container], card).memory == 0)
        return false;
    /* A container that draws on a hold may leave the pod with less than it took before. */
    *ret_added = amount_sub(after, amount_min(s->now[c], after));
    return true;
}

static uint64_t cost_of(const struct search *s, uint32_t c, const struct place_amount *added) {
    struct place_card left = s->node->cards[c];
    left.free = amount_sub(left.free, s->now[c]);
    if (amount_is_zero(added))
        return 0;
    uint64_t cost = s->policy->card_cost(s->plan, s->node, c, &left, added);
    /* Among equals, requests of whole cards go first to those that take nothing else. */
    return left.whole_only || cost == UINT64_MAX ? cost : cost + 1;
}

/* Costs of the last few cards that differed: policies think long, and many cards are equivalent. */
#define KNOWN_COSTS 4
struct known_costs {
    uint32_t n;
    uint32_t cards[KNOWN_COSTS];
    uint64_t costs[KNOWN_COSTS];
};

static bool try_card(const struct search *s, uint32_t c, uint32_t container,
                     struct known_costs *known, uint64_t *ret_cost) {
    struct place_amount added;
    if (!fits_on(s, c, container, &added))
        return false;
    for (uint32_t i = 0; i < known->n && i < KNOWN_COSTS; i++)
        if (are_equivalent(s, known->cards[i], c)) {
            *ret_cost = known->costs[i];
            return true;
        }
    uint32_t at = known->n++ % KNOWN_COSTS;
    known->cards[at] = c;
    known->costs[at] = *ret_cost = cost_of(s, c, &added);
    return true;
}

static bool is_before(const struct candidate *a, const struct candidate *b) {
    if (a->far != b->far)
        return b->far;
    if (a->cost != b->cost)
        return a->cost < b->cost;
    return a->cut != b->cut ? a->cut < b->cut : a->card < b->card;
}

/* Only a whole card takes links from others; a share is put where it fits best. */
static uint32_t cut_by(const struct search *s, uint32_t container, uint32_t c) {
    return place_is_whole(&s->plan->request->containers[container], &s->node->cards[c])
               ? links_cut(s->node, c)
               : 0;
}

static bool is_far(const struct search *s, uint32_t container, uint32_t c) {
    return place_is_far(&s->plan->request->containers[container], &s->node->cards[c]);
}

/* The cards for one more unit of the container in the order in which they are to be tried, those
 * behind `last` only unless that is NULL. */
static uint32_t list_candidates(const struct search *s, uint32_t container,
                                const struct candidate *last,
                                uint8_t order[static PLACE_CARDS_MAX]) {
    struct candidate found[PLACE_CARDS_MAX];
    struct known_costs known = {0};
    uint32_t n = 0;
    for (uint32_t c = 0; c < s->node->ncards; c++) {
        struct candidate new = {.card = c};
        if (!try_card(s, c, container, &known, &new.cost))
            continue;
        new.cut = cut_by(s, container, c);
        new.far = is_far(s, container, c);
        if (last && !is_before(last, &new))
            continue;
        uint32_t at = n++;
        for (; at > 0 && is_before(&new, &found[at - 1]); at--)
            found[at] = found[at - 1];
        found[at] = new;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = (uint8_t) found[i].card;
    return n;
}

/* Equal cards: if the first fails, so does the second. */
static bool interchangeable(const struct search *s, uint32_t a, uint32_t b) {
    if (!takes_any_links(s->plan) || !are_equivalent(s, a, b))
        return false;
    for (uint32_t i = 0; i < s->plan->request->n; i++)
        if (may_take(s->node, i, a) != may_take(s->node, i, b))
            return false;
    return true;
}

/* The memory asked beside whole cards must be in them. */
static bool enough_memory(const struct search *s, uint32_t container) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < s->node->ncards; c++)
        if (s->granted[container] >> c & 1)
            sum += s->node->cards[c].physical;
    return sum >= s->plan->request->containers[container].memory_floor;
}

static bool place_units(struct search *s, uint32_t u);

/* Puts unit u on the card and goes on with the rest; takes it back if that leads nowhere. */
static bool try_candidate(struct search *s, uint32_t u, uint32_t card) {
    uint32_t container = s->plan->units[u];
    bool last_of_container = u + 1 == s->plan->nunits || s->plan->units[u + 1] != container;
    struct place_amount held = s->now[card];
    struct candidate at = {.far = is_far(s, container, card), .card = card};
    struct place_amount added;
    if (!last_of_container &&
        fits_on(s, card, container, &added)) { /* the container's next card comes after it */
        at.cut = cut_by(s, container, card);
        at.cost = cost_of(s, card, &added);
    }
    s->granted[container] |= UINT64_C(1) << card;
    s->now[card] = hold_with(s, card, container);
    s->before = at;
    if ((!last_of_container || enough_memory(s, container)) && place_units(s, u + 1))
        return true;
    s->granted[container] &= ~(UINT64_C(1) << card);
    s->now[card] = held;
    return false;
}

/* Subtracts the cost of a search for linked cards from the tries that remain. As many remain at
 * least as the first try of all units from u on takes. */
static void charge(struct search *s, uint32_t u, uint32_t steps) {
    uint32_t first_try = (s->plan->nunits - u) * s->node->ncards;
    uint32_t spare = s->tries > first_try ? s->tries - first_try : 0;
    s->tries -= steps / STEPS_PER_TRY < spare ? steps / STEPS_PER_TRY : spare;
}

/* The best connected cards for all units of the container of unit u; 0: none. */
static uint64_t linked_cards(struct search *s, uint32_t u) {
    uint32_t container = s->plan->units[u];
    uint64_t costs[PLACE_CARDS_MAX] = {0};
    struct known_costs known = {0};
    struct topology_search search = {.n = s->plan->request->containers[container].cards,
                                     .weakest = least_link(s, container),
                                     .numa_bind = s->plan->numa_bind,
                                     .costs = costs};
    for (uint32_t c = 0; c < s->node->ncards; c++) {
        if (try_card(s, c, container, &known, &costs[c]))
            search.candidates |= UINT64_C(1) << c;
        if (is_idle(&s->node->cards[c]))
            search.idle |= UINT64_C(1) << c;
        if (is_far(s, container, c))
            search.far |= UINT64_C(1) << c;
    }
    uint64_t set = topology_pick(s->node->topology, &search);
    charge(s, u, search.steps);
    return set;
}

/* Gives the container all these cards at once and goes on behind it; takes them back if that leads
 * nowhere. */
static bool try_set(struct search *s, uint32_t u, uint64_t set) {
    uint32_t container = s->plan->units[u], n = s->plan->request->containers[container].cards;
    struct place_amount held[PLACE_CARDS_MAX];
    memcpy(held, s->now, sizeof(held));
    s->granted[container] = set;
    for (uint64_t rest = set; rest; rest &= rest - 1) {
        uint32_t c = (uint32_t) __builtin_ctzll(rest);
        s->now[c] = hold_with(s, c, container);
    }
    if (enough_memory(s, container) && place_units(s, u + n))
        return true;
    s->granted[container] = 0;
    memcpy(s->now, held, sizeof(held));
    return false;
}

static bool place_units(struct search *s, uint32_t u) {
    if (u == s->plan->nunits)
        return true;
    if (s->tries < s->node->ncards) {
        s->tries = 0;
        return false;
    }
    s->tries -= s->node->ncards;
    uint32_t container = s->plan->units[u];
    /* The cards of one container are a set: taking them in one order tries each set once. */
    bool continues = u > 0 && s->plan->units[u - 1] == container;
    uint64_t set = !continues && wants_links(s, container) ? linked_cards(s, u) : 0;
    if (set && try_set(s, u, set))
        return true;
    uint8_t order[PLACE_CARDS_MAX];
    uint32_t n = list_candidates(s, container, continues ? &s->before : NULL, order);
    uint32_t failed = UINT32_MAX;
    for (uint32_t i = 0; i < n && s->tries > 0; i++) {
        if (failed != UINT32_MAX && interchangeable(s, failed, order[i]))
            continue;
        if (try_candidate(s, u, order[i]))
            return true;
        failed = order[i];
    }
    return false;
}

/* ---- sums ---- */

static uint64_t add_bounded(uint64_t a, uint64_t b) {
    return a + b < a ? UINT64_MAX : a + b;
}

/* *ret_least: a fictitious card of which each request takes at most what it takes of any card of
 * the node. */
static struct place_amount sum_of_free(const struct place_node *node,
                                       struct place_card *ret_least) {
    struct place_amount sum = {0};
    *ret_least = (struct place_card){.memory = UINT64_MAX};
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct place_card *card = &node->cards[c];
        if (!card->healthy)
            continue;
        sum.memory = add_bounded(sum.memory, card->free.memory);
        sum.core += card->free.core;
        sum.slots += card->free.slots;
        if (card->memory < ret_least->memory)
            ret_least->memory = card->memory;
        if (card->tflops > ret_least->tflops)
            ret_least->tflops = card->tflops;
        place_least_replicas(&ret_least->replicas, card->replicas.count, card->replicas.as_cards);
    }
    ret_least->physical = ret_least->memory; /* without oversubscription a container takes least */
    return sum;
}

/* Whether all that runs at once fits if the cards of the node are taken as one card. The search
 * needs this to succeed, and takes long to fail when a pod of many containers nearly fits. */
static bool sums_fit(const struct gpu_request *request, const struct place_node *node) {
    struct place_card least;
    struct place_amount free = sum_of_free(node, &least), want = {0};
    for (uint32_t d = 0; d < node->ndraws; d++) {
        const struct place_amount *held = &node->draws[d].amount;
        free.memory = add_bounded(free.memory, held->memory);
        free.core += held->core;
        free.slots += held->slots;
    }
    for (uint32_t i = 0; i < request->n; i++) {
        const struct container_request *req = &request->containers[i];
        struct place_amount one = place_share(req, &least);
        if (req->phase == CONTAINER_INIT)
            continue;
        if (place_replicas(req, &least) > 0)
            one.slots = 0; /* those with compute take none */
        for (uint32_t c = 0; c < req->cards; c++) {
            want.memory = add_bounded(want.memory, one.memory);
            want.core += one.core;
            want.slots += one.slots;
        }
    }
    return amount_fits(&want, &free);
}

/* ---- the whole ---- */

int64_t place_score(const struct place_policy *policy, const struct place_plan *plan,
                    const struct place_worth *worth, uint32_t rank) {
    int64_t value = worth->value;
    if (policy->settle)
        value = policy->settle(plan, value, worth->toll);
    if (plan->exclusive_cpus) /* nodes where they are near the cards take precedence */
        value = value / 2 + (worth->far ? -PLACE_VALUE_MAX : PLACE_VALUE_MAX) / 2;
    if (plan->topology >= TOPOLOGY_BEST) /* requested links take precedence */
        value = value / 16 + (int64_t) worth->links * (PLACE_VALUE_MAX / 16);
    if (value > PLACE_VALUE_MAX)
        value = PLACE_VALUE_MAX;
    if (value < 1 - PLACE_VALUE_MAX) /* from which the rank is subtracted */
        value = 1 - PLACE_VALUE_MAX;
    int64_t score = (value * RANKS - (int64_t) rank % RANKS) * SCORE_STEP;
    assert(score <= PLACE_SCORE_MAX && score >= -PLACE_SCORE_MAX);
    return score;
}

/* 0 to LINK_NVLINK: of the weakest link in any container with several cards. */
static uint32_t class_of_links(const struct search *s) {
    uint32_t weakest = LINK_NVLINK;
    bool several = false;
    for (uint32_t i = 0; s->node->topology && i < s->plan->request->n; i++) {
        uint8_t link = topology_weakest(s->node->topology, s->granted[i]);
        several |= has_several(s, i);
        if (has_several(s, i) && link < weakest)
            weakest = link;
    }
    return several ? weakest : 0;
}

static bool any_far(const struct search *s) {
    for (uint32_t i = 0; i < s->plan->request->n; i++)
        for (uint64_t rest = s->granted[i]; rest; rest &= rest - 1)
            if (is_far(s, i, (uint32_t) __builtin_ctzll(rest)))
                return true;
    return false;
}

static struct place_worth worth_of(const struct search *s) {
    return (struct place_worth){
        .far = any_far(s),
        .links = class_of_links(s),
        .value = s->policy->node_value(s->plan, s->node, s->now),
        .toll = s->policy->node_toll ? s->policy->node_toll(s->plan, s->node, s->now) : 0,
    };
}

/* Whether each container has as many cards as it requests, all healthy, allowed and of the node,
 * and the pod no more of a card than is free. */
__attribute__((unused)) static bool is_sound(const struct search *s) {
    for (uint32_t i = 0; i < s->plan->request->n; i++) {
        if ((uint32_t) __builtin_popcountll(s->granted[i]) != s->plan->request->containers[i].cards)
            return false;
        for (uint64_t rest = s->granted[i]; rest; rest &= rest - 1) {
            uint32_t c = (uint32_t) __builtin_ctzll(rest);
            if (c >= s->node->ncards || !s->node->cards[c].healthy || !may_take(s->node, i, c))
                return false;
            struct place_amount held = hold_with(s, c, i);
            if (!amount_fits(&held, &s->node->cards[c].free))
                return false;
        }
    }
    return true;
}

/* However little effort is left, the first try of each unit can be made. */
static bool search(struct search *s, struct place_plan *plan) {
    uint32_t least = plan->nunits * s->node->ncards + 1;
    s->tries = plan->effort > least ? plan->effort : least;
    bool found = place_units(s, 0);
    plan->effort = plan->effort < s->tries ? plan->effort : s->tries;
    return found;
}

static void list_grants(const struct gpu_request *request, const struct place_node *node,
                        struct place_result *ret) {
    ret->ngrants = 0;
    for (uint32_t i = 0; i < request->n; i++)
        for (uint64_t rest = ret->cards[i]; rest; rest &= rest - 1) {
            uint32_t c = (uint32_t) __builtin_ctzll(rest);
            struct place_grant *grant = &ret->grants[ret->ngrants++];
            *grant = place_grant(&request->containers[i], &node->cards[c]);
            grant->container = (uint8_t) i;
            grant->card = (uint8_t) c;
        }
}

enum place_reason place_on_node(const struct place_policy *policy, struct place_plan *plan,
                                const struct place_node *node, struct place_result *ret) {
    if (node->ncards == 0 && plan->request->n > 0)
        return PLACE_NO_GPU;
    if (node->ncards > PLACE_CARDS_MAX)
        return PLACE_NOT_TOGETHER;
    enum place_reason reason = place_reason_alone(plan->request, node);
    if (reason != PLACE_OK)
        return reason;
    uint64_t granted[GPU_CONTAINERS_MAX] = {0};
    struct search s = {.policy = policy, .plan = plan, .node = node, .granted = granted};
    if (!sums_fit(plan->request, node) || !search(&s, plan))
        return takes_any_links(plan) ? PLACE_NOT_TOGETHER : PLACE_NOT_LINKED;
    assert(is_sound(&s));
    memcpy(ret->cards, granted, sizeof(granted));
    list_grants(plan->request, node, ret);
    ret->worth = worth_of(&s);
    ret->score = place_score(policy, plan, &ret->worth, node->rank);
    return PLACE_OK;
}
