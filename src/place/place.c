/* SPDX-License-Identifier: Apache-2.0 */
#include "place/place.h"

#include <string.h>

#define CORE_PER_CARD 100

/* Choices tried before giving up on a pod with many containers. The first solution is nearly always
 * the first try; this bounds the worst case. */
#define BUDGET 20000

#define RANKS INT64_C(100000)
#define SCORE_STEP INT64_C(1000)
_Static_assert(PLACE_VALUE_MAX *RANKS *SCORE_STEP <= PLACE_SCORE_MAX, "scores would overflow");

/* ---- amounts ---- */

static struct place_amount amount_add(struct place_amount a, struct place_amount b) {
    return (struct place_amount){a.memory + b.memory, a.core + b.core, a.slots + b.slots};
}

static struct place_amount amount_max(struct place_amount a, struct place_amount b) {
    return (struct place_amount){
        a.memory > b.memory ? a.memory : b.memory,
        a.core > b.core ? a.core : b.core,
        a.slots > b.slots ? a.slots : b.slots,
    };
}

/* a - b, where b <= a in every part. */
static struct place_amount amount_sub(struct place_amount a, struct place_amount b) {
    return (struct place_amount){a.memory - b.memory, a.core - b.core, a.slots - b.slots};
}

static bool amount_fits(const struct place_amount *a, const struct place_amount *free) {
    return a->memory <= free->memory && a->core <= free->core && a->slots <= free->slots;
}

static bool amount_is_zero(const struct place_amount *a) {
    return a->memory == 0 && a->core == 0 && a->slots == 0;
}

static bool amount_equal(const struct place_amount *a, const struct place_amount *b) {
    return a->memory == b->memory && a->core == b->core && a->slots == b->slots;
}

/* memory * core / 100 without overflow */
static uint64_t part_of(uint64_t memory, uint32_t core) {
    return memory / CORE_PER_CARD * core + memory % CORE_PER_CARD * core / CORE_PER_CARD;
}

struct place_amount place_share(const struct gpu_ask *ask, uint64_t card_memory) {
    if (ask->cards > 0)
        return (struct place_amount){.memory = card_memory, .core = CORE_PER_CARD};
    return (struct place_amount){
        .memory = ask->memory ? ask->memory : part_of(card_memory, ask->core),
        .core = ask->core,
        .slots = ask->slot,
    };
}

void place_hold_add(struct place_hold *hold, enum ask_phase phase,
                    const struct place_amount *amount) {
    if (phase == ASK_APP)
        hold->apps = amount_add(hold->apps, *amount);
    else if (phase == ASK_SIDECAR)
        hold->sidecars = amount_add(hold->sidecars, *amount);
    else
        hold->init_peak = amount_max(hold->init_peak, amount_add(hold->sidecars, *amount));
}

struct place_amount place_hold_total(const struct place_hold *hold) {
    return amount_max(hold->init_peak, amount_add(hold->sidecars, hold->apps));
}

/* ---- the order of placing ---- */

/* What runs at the same time is placed first, the largest of it first; init containers then find
 * room in what their own pod holds already. */
static bool goes_before(const struct gpu_ask *a, const struct gpu_ask *b) {
    bool a_init = a->phase == ASK_INIT, b_init = b->phase == ASK_INIT;
    if (a_init != b_init)
        return b_init;
    if (a->cards != b->cards)
        return a->cards > b->cards;
    if (a->core != b->core)
        return a->core > b->core;
    return a->memory > b->memory;
}

void place_prepare(const struct gpu_request *request, struct place_plan *ret) {
    uint8_t order[GPU_ASKS_MAX];
    for (uint32_t i = 0; i < request->n; i++) {
        uint32_t at = i;
        for (; at > 0 && goes_before(&request->asks[i], &request->asks[order[at - 1]]); at--)
            order[at] = order[at - 1];
        order[at] = (uint8_t) i;
    }
    ret->request = request;
    ret->nunits = 0;
    for (uint32_t i = 0; i < request->n; i++) {
        uint32_t cards = request->asks[order[i]].cards;
        for (uint32_t c = 0; c == 0 || (c < cards && c < PLACE_CARDS_MAX); c++)
            ret->units[ret->nunits++] = order[i];
    }
}

/* ---- the search ---- */

/* A card that an ask can go to. Candidates are taken in the order of cost, then index. */
struct candidate {
    uint64_t cost;
    uint32_t card;
};

struct search {
    const struct place_policy *policy;
    const struct place_plan *plan;
    const struct place_node *node;
    uint64_t *granted;       /* by ask */
    struct candidate before; /* the choice for the unit above, see first_after() */
    uint32_t budget;
};

/* What this pod holds of card c by the grants so far, with `ask` on it as well. */
static struct place_amount hold_with(const struct search *s, uint32_t c, uint32_t ask) {
    const struct gpu_request *request = s->plan->request;
    struct place_hold hold = {0};
    for (uint32_t i = 0; i < request->n; i++) {
        if (i != ask && !(s->granted[i] >> c & 1))
            continue;
        struct place_amount amount = place_share(&request->asks[i], s->node->cards[c].memory);
        place_hold_add(&hold, request->asks[i].phase, &amount);
    }
    return place_hold_total(&hold);
}

#define NO_ASK UINT32_MAX

static struct place_amount hold_now(const struct search *s, uint32_t c) {
    return hold_with(s, c, NO_ASK);
}

/* Whether `ask` fits on card c beside what the pod has there, and what that costs. */
static bool try_card(const struct search *s, uint32_t c, uint32_t ask, uint64_t *ret_cost) {
    const struct place_card *card = &s->node->cards[c];
    if (!card->healthy || (s->granted[ask] >> c & 1))
        return false;
    struct place_amount after = hold_with(s, c, ask);
    if (after.memory == 0 || !amount_fits(&after, &card->free))
        return false;
    struct place_amount now = hold_now(s, c), added = amount_sub(after, now);
    struct place_card left = {card->memory, amount_sub(card->free, now), true};
    *ret_cost = amount_is_zero(&added) ? 0 : s->policy->card_cost(&left, &added);
    return true;
}

static bool is_after(uint64_t cost, uint32_t card, const struct candidate *last) {
    return cost > last->cost || (cost == last->cost && card > last->card);
}

/* The next candidate behind *last; UINT32_MAX as its card means "from the start". */
static bool next_candidate(const struct search *s, uint32_t ask, bool from_start,
                           struct candidate *last) {
    struct candidate best = {UINT64_MAX, UINT32_MAX};
    for (uint32_t c = 0; c < s->node->ncards; c++) {
        uint64_t cost;
        if (try_card(s, c, ask, &cost) && (from_start || is_after(cost, c, last)) &&
            (best.card == UINT32_MAX || cost < best.cost))
            best = (struct candidate){cost, c};
    }
    if (best.card == UINT32_MAX)
        return false;
    *last = best;
    return true;
}

/* Cards that nothing tells apart: trying the second cannot help where the first did not. */
static bool interchangeable(const struct search *s, uint32_t a, uint32_t b) {
    const struct place_card *x = &s->node->cards[a], *y = &s->node->cards[b];
    struct place_amount hold_a = hold_now(s, a), hold_b = hold_now(s, b);
    return x->memory == y->memory && amount_equal(&x->free, &y->free) && amount_is_zero(&hold_a) &&
           amount_is_zero(&hold_b);
}

/* The memory asked beside whole cards must be in them. */
static bool enough_memory(const struct search *s, uint32_t ask) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < s->node->ncards; c++)
        if (s->granted[ask] >> c & 1)
            sum += s->node->cards[c].memory;
    return sum >= s->plan->request->asks[ask].memory_floor;
}

static bool place_units(struct search *s, uint32_t u);

/* Puts unit u on the candidate and goes on with the rest; takes it back if that leads nowhere. */
static bool try_candidate(struct search *s, uint32_t u, const struct candidate *at) {
    uint32_t ask = s->plan->units[u];
    bool last_of_ask = u + 1 == s->plan->nunits || s->plan->units[u + 1] != ask;
    s->granted[ask] |= UINT64_C(1) << at->card;
    s->before = *at;
    if ((!last_of_ask || enough_memory(s, ask)) && place_units(s, u + 1))
        return true;
    s->granted[ask] &= ~(UINT64_C(1) << at->card);
    return false;
}

static bool place_units(struct search *s, uint32_t u) {
    if (u == s->plan->nunits)
        return true;
    uint32_t ask = s->plan->units[u];
    /* The cards of one container are a set: taking them in one order tries each set once. */
    bool continues = u > 0 && s->plan->units[u - 1] == ask;
    struct candidate at = continues ? s->before : (struct candidate){0, 0};
    uint32_t failed = UINT32_MAX;
    bool from_start = !continues;
    while (s->budget > 0 && next_candidate(s, ask, from_start, &at)) {
        from_start = false;
        if (failed != UINT32_MAX && interchangeable(s, failed, at.card))
            continue;
        s->budget--;
        if (try_candidate(s, u, &at))
            return true;
        failed = at.card;
    }
    return false;
}

/* ---- reasons ---- */

static enum place_reason whole_reason(const struct gpu_ask *ask, const struct place_node *node) {
    uint32_t healthy = 0, free = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct place_card *card = &node->cards[c];
        healthy += card->healthy;
        free +=
            card->healthy && card->free.memory == card->memory && card->free.core == CORE_PER_CARD;
    }
    if (node->ncards < ask->cards)
        return PLACE_TOO_FEW;
    if (healthy == 0)
        return PLACE_NONE_HEALTHY;
    return free < ask->cards ? PLACE_NO_WHOLE : PLACE_TOO_LARGE;
}

static enum place_reason share_reason(const struct gpu_ask *ask, const struct place_node *node) {
    bool healthy = false, could = false, memory = false, core = false, slot = false, both = false;
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct place_card *card = &node->cards[c];
        struct place_amount want = place_share(ask, card->memory);
        could |= want.memory > 0 && want.memory <= card->memory;
        if (!card->healthy)
            continue;
        bool m = want.memory <= card->free.memory, p = want.core <= card->free.core;
        healthy = true;
        memory |= m;
        core |= p;
        both |= m && p;
        slot |= m && p && want.slots <= card->free.slots;
    }
    if (!could)
        return PLACE_TOO_LARGE;
    if (!healthy)
        return PLACE_NONE_HEALTHY;
    if (!core && ask->memory == 0)
        return PLACE_NO_CORE; /* the memory that is short was not asked for */
    if (!memory)
        return PLACE_NO_MEMORY;
    if (!core)
        return PLACE_NO_CORE;
    if (!both)
        return PLACE_NO_BOTH;
    return slot ? PLACE_OK : PLACE_NO_SLOT;
}

/* Looks for the one container that could not even be placed alone; a lasting reason is the better
 * one to tell. */
static enum place_reason find_reason(const struct gpu_request *request,
                                     const struct place_node *node) {
    enum place_reason found = PLACE_NOT_TOGETHER;
    for (uint32_t i = 0; i < request->n; i++) {
        const struct gpu_ask *ask = &request->asks[i];
        enum place_reason reason = PLACE_OK;
        if (ask->cards == 0)
            reason = share_reason(ask, node);
        else {
            struct gpu_request alone = {.n = 1, .asks = {*ask}};
            struct place_plan plan;
            struct place_result ignored;
            place_prepare(&alone, &plan);
            struct search s = {&place_binpack, &plan, node, ignored.cards, {0, 0}, BUDGET};
            ignored.cards[0] = 0;
            if (!place_units(&s, 0))
                reason = whole_reason(ask, node);
        }
        if (place_reason_is_final(reason))
            return reason;
        if (reason != PLACE_OK && found == PLACE_NOT_TOGETHER)
            found = reason;
    }
    return found;
}

bool place_reason_is_final(enum place_reason reason) {
    return reason == PLACE_NO_GPU || reason == PLACE_TOO_LARGE || reason == PLACE_TOO_FEW;
}

const char *place_reason_text(enum place_reason reason) {
    static const char *const texts[PLACE_REASONS] = {
        [PLACE_OK] = "fits",
        [PLACE_NO_GPU] = "node has no GPU",
        [PLACE_NONE_HEALTHY] = "no GPU of the node is healthy",
        [PLACE_TOO_LARGE] = "no GPU has that much memory",
        [PLACE_TOO_FEW] = "node has fewer GPUs than asked for",
        [PLACE_NO_WHOLE] = "not enough whole GPUs free",
        [PLACE_NO_MEMORY] = "no GPU has enough free memory",
        [PLACE_NO_CORE] = "no GPU has enough free compute",
        [PLACE_NO_SLOT] = "no GPU takes another share without compute",
        [PLACE_NO_BOTH] = "no GPU has enough free memory and compute at once",
        [PLACE_NOT_TOGETHER] = "the GPUs have no room for all containers at once",
    };
    return texts[reason < PLACE_REASONS ? reason : PLACE_NOT_TOGETHER];
}

/* ---- the whole ---- */

static int64_t score_of(const struct search *s) {
    struct place_amount holds[PLACE_CARDS_MAX];
    for (uint32_t c = 0; c < s->node->ncards; c++)
        holds[c] = hold_now(s, c);
    int64_t tie = (int64_t) s->node->rank % RANKS;
    return (s->policy->node_value(s->node, holds) * RANKS - tie) * SCORE_STEP;
}

enum place_reason place_on_node(const struct place_policy *policy, const struct place_plan *plan,
                                const struct place_node *node, struct place_result *ret) {
    if (node->ncards == 0)
        return PLACE_NO_GPU;
    uint64_t granted[GPU_ASKS_MAX] = {0};
    struct search s = {policy, plan, node, granted, {0, 0}, BUDGET};
    if (node->ncards > PLACE_CARDS_MAX || !place_units(&s, 0))
        return find_reason(plan->request, node);
    memcpy(ret->cards, granted, sizeof(granted));
    ret->score = score_of(&s);
    return PLACE_OK;
}
