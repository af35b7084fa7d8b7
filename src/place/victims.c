/* SPDX-License-Identifier: Apache-2.0 */
#include "place/victims.h"

#include <string.h>

#define EXACT_MAX 10     /* holders up to which every subset is tried */
#define TRIES 4000       /* at cards, for one test; a pod of few containers needs a few dozen */
#define TRIES_OF_TEST 64 /* that many more count as another test */

/* Some of the holders, by index. */
struct group {
    uint32_t n;
    uint16_t of[VICTIMS_HOLDERS_MAX];
};

struct chooser {
    const struct victims_case *of;
    struct place_plan *plan;
    uint32_t *tests;
    bool gone[VICTIMS_HOLDERS_MAX]; /* the set that is tried */
    bool found;
    struct victims_choice *best;
};

/* ---- cost ---- */

int victims_compare(const struct victims_cost *a, const struct victims_cost *b) {
    if (a->highest != b->highest)
        return a->highest < b->highest ? -1 : 1;
    if (a->violations != b->violations)
        return a->violations < b->violations ? -1 : 1;
    if (a->sum != b->sum)
        return a->sum < b->sum ? -1 : 1;
    if (a->gain != b->gain)
        return a->gain > b->gain ? -1 : 1;
    if (a->since != b->since)
        return a->since > b->since ? -1 : 1;
    return 0;
}

static bool is_victim(const struct chooser *c, uint32_t i) {
    return c->gone[i] && !c->of->holders[i].goes;
}

/* Takes the holder out of its budgets; whether one of them does not allow that. */
static bool violates(const struct victims_holder *holder, int32_t *left, uint32_t nbudgets) {
    bool over = false;
    for (uint32_t b = 0; b < nbudgets; b++)
        if (holder->budgets >> b & 1)
            over |= --left[b] < 0;
    return over;
}

/* All but the gain, which only a placement shows. */
static struct victims_cost cost_of(const struct chooser *c) {
    struct victims_cost cost = {.highest = INT32_MIN, .gain = INT64_MAX, .since = INT64_MAX};
    int32_t left[VICTIMS_BUDGETS_MAX];
    uint32_t nbudgets = c->of->budget ? c->of->nbudgets : 0;
    if (nbudgets > 0)
        memcpy(left, c->of->budget, nbudgets * sizeof(*left));
    for (uint32_t i = 0; i < c->of->nholders; i++) {
        const struct victims_holder *holder = &c->of->holders[i];
        if (!is_victim(c, i))
            continue;
        if (holder->priority > cost.highest)
            cost.highest = holder->priority;
        cost.sum += victims_rank(holder->priority) + holder->more;
        if (holder->since < cost.since)
            cost.since = holder->since;
        cost.violations += violates(holder, left, nbudgets);
    }
    return cost;
}

/* ---- whether it fits ---- */

/* Whether the pod fits when those that are marked have gone. */
static bool fits(struct chooser *c, struct place_result *ret) {
    struct place_card cards[PLACE_CARDS_MAX];
    struct place_node node = *c->of->node;
    if (*c->tests == 0)
        return false;
    (*c->tests)--;
    memcpy(cards, node.cards, node.ncards * sizeof(*cards));
    for (uint32_t i = 0; i < c->of->nholders; i++) {
        const struct victims_holder *holder = &c->of->holders[i];
        for (uint32_t h = 0; h < holder->namounts && !c->gone[i]; h++)
            (void) place_amount_take(&cards[holder->amounts[h].card].free,
                                     &holder->amounts[h].amount);
    }
    node.cards = cards;
    c->plan->effort = TRIES;
    bool fit = place_on_node(c->of->policy, c->plan, &node, ret) == PLACE_OK;
    uint32_t more = (TRIES - c->plan->effort) / TRIES_OF_TEST;
    *c->tests -= more < *c->tests ? more : *c->tests;
    return fit;
}

/* Keeps the set that is tried if it fits and is the cheapest so far; whether it fits. */
static bool consider(struct chooser *c) {
    struct place_result result;
    struct victims_cost cost = cost_of(c);
    if (cost.violations > 0 && !c->of->may_violate)
        return false;
    if (c->found && victims_compare(&cost, &c->best->cost) >= 0 &&
        (cost.highest != c->best->cost.highest || cost.violations != c->best->cost.violations ||
         cost.sum != c->best->cost.sum))
        return false; /* dearer, whatever it gains */
    if (!fits(c, &result))
        return false;
    cost.gain = result.score;
    if (c->found && victims_compare(&cost, &c->best->cost) >= 0)
        return true;
    c->found = true;
    c->best->cost = cost;
    place_result_copy(&c->best->result, &result);
    c->best->n = 0;
    for (uint32_t i = 0; i < c->of->nholders; i++)
        if (is_victim(c, i))
            c->best->victims[c->best->n++] = (uint16_t) i;
    return true;
}

/* ---- searching ---- */

static void mark_gone(struct chooser *c, const struct group *group, bool gone) {
    for (uint32_t i = 0; i < group->n; i++)
        c->gone[group->of[i]] = gone;
}

/* Memory in permille of the node's first card, and core: how much of a card a holder has. */
static uint64_t size_of(const struct victims_case *of, const struct victims_holder *holder) {
    uint64_t unit = of->node->cards[0].memory / 1000 + 1, size = 0;
    for (uint32_t h = 0; h < holder->namounts; h++)
        size += holder->amounts[h].amount.memory / unit + holder->amounts[h].amount.core * 10;
    return size;
}

static bool is_counted(const struct victims_case *of, const struct victims_holder *holder) {
    for (uint32_t b = 0; of->budget && b < of->nbudgets; b++)
        if (holder->budgets >> b & 1 && of->budget[b] <= 0)
            return true;
    return false;
}

enum order {
    BY_PRIORITY, /* the highest first, then the oldest */
    BY_BUDGET,   /* holders that violate a budget first */
    BY_SIZE,     /* and of equal priority the smallest first, so that few large ones go */
};

/* Whether `a` comes before `b`, that is, is more to be spared. */
static bool comes_before(const struct victims_case *of, uint32_t a, uint32_t b, enum order order) {
    const struct victims_holder *x = &of->holders[a], *y = &of->holders[b];
    bool x_counted = is_counted(of, x), y_counted = is_counted(of, y);
    if (order != BY_PRIORITY && x_counted != y_counted)
        return x_counted;
    if (x->priority != y->priority)
        return x->priority > y->priority;
    uint64_t x_size = size_of(of, x), y_size = size_of(of, y);
    if (order == BY_SIZE && x_size != y_size)
        return x_size < y_size;
    return x->since != y->since ? x->since < y->since : a < b;
}

static void sort(const struct victims_case *of, struct group *group, enum order order) {
    for (uint32_t i = 1; i < group->n; i++) {
        uint16_t moved = group->of[i];
        uint32_t at = i;
        for (; at > 0 && comes_before(of, moved, group->of[at - 1], order); at--)
            group->of[at] = group->of[at - 1];
        group->of[at] = moved;
    }
}

/* Removes the whole group, then reprieves its members one by one while the pod still fits. */
static void find_victims(struct chooser *c, struct group *group, enum order order) {
    struct place_result result;
    sort(c->of, group, order);
    mark_gone(c, group, true);
    if (!fits(c, &result)) {
        mark_gone(c, group, false);
        return;
    }
    for (uint32_t i = 0; i < group->n; i++) {
        c->gone[group->of[i]] = false;
        if (!fits(c, &result))
            c->gone[group->of[i]] = true;
    }
    (void) consider(c);
    mark_gone(c, group, false);
}

static void try_subsets(struct chooser *c, const struct group *group) {
    for (uint32_t mask = 0; mask < UINT32_C(1) << group->n && *c->tests > 0; mask++) {
        for (uint32_t i = 0; i < group->n; i++)
            c->gone[group->of[i]] = mask >> i & 1;
        (void) consider(c);
    }
    mark_gone(c, group, false);
}

/* The cheapest set among the members of the group; all others stay. */
static void search(struct chooser *c, struct group *group) {
    find_victims(c, group, BY_BUDGET); /* usually optimal already, which prunes most subsets */
    if (group->n <= EXACT_MAX)
        try_subsets(c, group);
    else
        find_victims(c, group, BY_SIZE);
}

static bool is_eligible(const struct victims_case *of, uint32_t i, int32_t level) {
    const struct victims_holder *holder = &of->holders[i];
    return !holder->goes && !holder->stays && holder->namounts > 0 &&
           holder->priority < of->priority && holder->priority <= level;
}

static bool is_on(const struct victims_holder *holder, uint32_t card) {
    for (uint32_t h = 0; h < holder->namounts; h++)
        if (holder->amounts[h].card == card)
            return true;
    return false;
}

#define ANY_CARD UINT32_MAX

static void collect(const struct victims_case *of, int32_t level, uint32_t card,
                    struct group *ret) {
    ret->n = 0;
    for (uint32_t i = 0; i < of->nholders; i++)
        if (is_eligible(of, i, level) && (card == ANY_CARD || is_on(&of->holders[i], card)))
            ret->of[ret->n++] = (uint16_t) i;
}

/* Victims up to that priority. Among many, the holders of one card are searched separately: a pod
 * that requests a part of one card needs no others. */
static void search_level(struct chooser *c, int32_t level) {
    struct group group;
    collect(c->of, level, ANY_CARD, &group);
    bool many = group.n > EXACT_MAX;
    for (uint32_t card = 0; many && card < c->of->node->ncards; card++) {
        struct group here;
        collect(c->of, level, card, &here);
        if (here.n > 0)
            search(c, &here);
    }
    search(c, &group);
}

/* The lowest priority above `level` of any eligible holder; false: there is none. */
static bool next_level(const struct victims_case *of, int32_t *level, bool first) {
    bool found = false;
    int32_t next = INT32_MAX;
    for (uint32_t i = 0; i < of->nholders; i++) {
        int32_t priority = of->holders[i].priority;
        if (!is_eligible(of, i, INT32_MAX) || (!first && priority <= *level) ||
            (found && priority >= next))
            continue;
        next = priority;
        found = true;
    }
    *level = next;
    return found;
}

bool victims_choose(const struct victims_case *of, struct place_plan *plan, uint32_t *tests,
                    struct victims_choice *ret) {
    struct chooser c = {.of = of, .plan = plan, .tests = tests, .best = ret};
    int32_t level = INT32_MIN;
    if (of->nholders > VICTIMS_HOLDERS_MAX || of->node->ncards > PLACE_CARDS_MAX ||
        of->nbudgets > VICTIMS_BUDGETS_MAX)
        return false;
    for (uint32_t i = 0; i < of->nholders; i++)
        c.gone[i] = of->holders[i].goes;
    ret->n = 0;
    bool first = true;
    if (consider(&c))
        return true;
    for (; !c.found && next_level(of, &level, first); first = false) {
        struct place_result result;
        struct group all;
        collect(of, level, ANY_CARD, &all);
        mark_gone(&c, &all, true);
        bool helps = fits(&c, &result);
        mark_gone(&c, &all, false);
        if (helps)
            search_level(&c, level);
    }
    if (c.found) {
        struct group chosen = {.n = ret->n};
        memcpy(chosen.of, ret->victims, ret->n * sizeof(*ret->victims));
        sort(of, &chosen, BY_PRIORITY);
        memcpy(ret->victims, chosen.of, ret->n * sizeof(*ret->victims));
    }
    return c.found;
}
