/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/plan.h"

#include <string.h>

#include "base/buf.h"

#define NONE UINT32_MAX

/* A complete assignment, and how good it is. */
struct choice {
    bool found;
    uint32_t kept;                            /* instances that are not destroyed */
    uint32_t refits;                          /* of them, those whose compute instances change */
    uint32_t room;                            /* placements that are left for further instances */
    uint32_t start[MIG_CARD_INSTANCES_MAX];   /* by wanted instance */
    uint32_t present[MIG_CARD_INSTANCES_MAX]; /* the one that stays there, or NONE */
};

struct search {
    const struct mig_card *card;
    const struct mig_want *want;
    uint32_t ignored;                       /* instances in use that are taken to be idle */
    uint32_t order[MIG_CARD_INSTANCES_MAX]; /* wanted instances, equal ones beside each other */
    struct choice now, best;
};

/* ---- compute instances ---- */

/* Whether runs of these slices fit beside the occupied ones, each at the first that has room. */
static bool runs_fit(uint32_t occupied, uint32_t slices, const uint32_t *runs, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t run = (1u << runs[i]) - 1, start = 0;

        while (start + runs[i] <= slices && (occupied & run << start))
            start++;
        if (start + runs[i] > slices)
            return false;
        occupied |= run << start;
    }
    return true;
}

/* Keeps of the compute instances what is wanted, idle ones only if `idle`. */
static int try_refit(const struct mig_instance *instance, uint32_t slices,
                     const struct mig_wanted *wanted, bool idle, struct mig_refit *ret) {
    bool matched[MIG_COMPUTE_MAX] = {false};
    struct mig_refit refit = {0};
    uint32_t occupied = 0;

    for (int used = 1; used >= 0; used--)
        for (uint32_t i = 0; i < instance->ncompute; i++) {
            const struct mig_compute *c = &instance->compute[i];
            uint32_t k = 0;

            if (c->in_use != (used == 1))
                continue;
            while (k < wanted->ncompute && (matched[k] || wanted->compute[k] != c->slices))
                k++;
            if (k < wanted->ncompute && (c->in_use || idle)) {
                matched[k] = true;
                occupied |= ((1u << c->slices) - 1) << c->start;
            } else if (c->in_use) {
                return -EBUSY;
            } else {
                refit.destroy |= 1u << i;
            }
        }
    for (uint32_t k = 0; k < wanted->ncompute; k++)
        if (!matched[k])
            refit.make[refit.nmake++] = wanted->compute[k];
    if (!runs_fit(occupied, slices, refit.make, refit.nmake))
        return -EBUSY;
    *ret = refit;
    return 0;
}

int mig_plan_refit(const struct mig_instance *instance, uint32_t slices,
                   const struct mig_wanted *wanted, struct mig_refit *ret) {
    int r = try_refit(instance, slices, wanted, true, ret);

    return r < 0 ? try_refit(instance, slices, wanted, false, ret) : r;
}

/* ---- the search ---- */

static bool is_busy(const struct search *s, uint32_t i) {
    return s->card->instances[i].in_use && !(s->ignored >> i & 1);
}

/* A pod may hold an instance of which no process uses a compute instance yet. */
static bool can_become(const struct search *s, uint32_t i, const struct mig_wanted *w) {
    const struct mig_instance *gi = &s->card->instances[i];
    struct mig_refit refit;
    bool used = false;

    if (mig_card_has_compute(gi, w->compute, w->ncompute))
        return true;
    for (uint32_t k = 0; k < gi->ncompute; k++)
        used = used || gi->compute[k].in_use;
    if (s->ignored >> i & 1 || (gi->in_use && !used))
        return false;
    return mig_plan_refit(gi, s->card->profiles[gi->profile].name.slices, w, &refit) >= 0;
}

static uint32_t count_room(const struct mig_card *card, uint32_t taken) {
    uint32_t sum = 0;

    for (uint32_t i = 0; i < card->nprofiles; i++)
        for (uint32_t start = 0; start < MIG_SLICES_MAX; start++)
            sum += mig_card_may_start(&card->profiles[i], start) &&
                   !(mig_card_bits(&card->profiles[i], start) & taken);
    return sum;
}

static bool is_better(const struct choice *a, const struct choice *b) {
    if (!b->found || a->kept != b->kept)
        return !b->found || a->kept > b->kept;
    if (a->refits != b->refits)
        return a->refits < b->refits;
    return a->room > b->room;
}

/* All wanted instances have a place: it counts if none that is in use is missing. */
static void finish(struct search *s, uint32_t taken) {
    uint32_t kept = 0;

    s->now.kept = s->now.refits = 0;
    for (uint32_t i = 0; i < s->want->n; i++) {
        uint32_t p = s->now.present[i];

        if (p == NONE)
            continue;
        kept |= 1u << p;
        s->now.kept++;
        s->now.refits += !mig_card_has_compute(
            &s->card->instances[p], s->want->instances[i].compute, s->want->instances[i].ncompute);
    }
    for (uint32_t i = 0; i < s->card->ninstances; i++)
        if (is_busy(s, i) && !(kept >> i & 1))
            return;
    s->now.found = true;
    s->now.room = count_room(s->card, taken);
    if (is_better(&s->now, &s->best))
        s->best = s->now;
}

/* Which instance stays if the wanted one begins at `start`: NONE where it is made anew, -EBUSY
 * where one in use is in the way. */
static int find_present(const struct search *s, const struct mig_wanted *w, uint32_t start,
                        uint32_t *ret) {
    uint32_t bits = mig_card_bits(&s->card->profiles[w->profile], start);

    *ret = NONE;
    for (uint32_t i = 0; i < s->card->ninstances; i++) {
        const struct mig_instance *gi = &s->card->instances[i];

        if (gi->profile == w->profile && gi->start == start && can_become(s, i, w))
            *ret = i;
        else if (is_busy(s, i) &&
                 (mig_card_bits(&s->card->profiles[gi->profile], gi->start) & bits))
            return -EBUSY;
    }
    return 0;
}

static bool equal_wanted(const struct mig_wanted *a, const struct mig_wanted *b) {
    return a->profile == b->profile && a->start == b->start && a->ncompute == b->ncompute &&
           memcmp(a->compute, b->compute, a->ncompute * sizeof(a->compute[0])) == 0;
}

/* Places the wanted instances from order[at] on; equal ones from left to right. */
static void place(struct search *s, uint32_t at, uint32_t taken) {
    uint32_t i, first = 0;
    const struct mig_wanted *w;

    if (at == s->want->n) {
        finish(s, taken);
        return;
    }
    i = s->order[at];
    w = &s->want->instances[i];
    if (at > 0 && equal_wanted(w, &s->want->instances[s->order[at - 1]]))
        first = s->now.start[s->order[at - 1]] + 1;
    for (uint32_t start = first; start < MIG_SLICES_MAX; start++) {
        uint32_t bits = mig_card_bits(&s->card->profiles[w->profile], start);

        if (!mig_card_may_start(&s->card->profiles[w->profile], start) || (bits & taken) ||
            (w->start != MIG_ANYWHERE && w->start != start) ||
            find_present(s, w, start, &s->now.present[i]) < 0)
            continue;
        s->now.start[i] = start;
        place(s, at + 1, taken | bits);
    }
}

/* Equal ones beside each other, in the order of their first. */
static void sort_wanted(struct search *s) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->want->n; i++) {
        bool listed = false;

        for (uint32_t k = 0; k < n; k++)
            listed = listed || s->order[k] == i;
        for (uint32_t k = i; !listed && k < s->want->n; k++)
            if (equal_wanted(&s->want->instances[k], &s->want->instances[i]))
                s->order[n++] = k;
    }
}

/* Whether a layout is reached if the ignored instances are taken to be idle. */
static bool run_search(struct search *s, uint32_t ignored) {
    s->ignored = ignored;
    s->now = s->best = (struct choice){0};
    place(s, 0, 0);
    return s->best.found;
}

/* ---- limits of a card beside its memory slices ---- */

int mig_plan_check_limits(const struct mig_card *card, const struct mig_want *want,
                          struct err *err) {
    uint32_t count[MIG_CARD_PROFILES_MAX] = {0}, engines[MIG_ENGINES] = {0};
    char name[MIG_PROFILE_NAME_MAX];

    for (uint32_t i = 0; i < want->n; i++) {
        const struct mig_card_profile *p = &card->profiles[want->instances[i].profile];

        if (++count[want->instances[i].profile] > p->most)
            return err_set(err, ENOSPC, "a card can have %u instances of %s", p->most,
                           mig_name_format(&p->name, name));
        for (uint32_t e = 0; e < MIG_ENGINES; e++)
            engines[e] += p->engines[e];
    }
    for (uint32_t e = 0; e < MIG_ENGINES; e++)
        if (engines[e] > mig_card_engines(card, e))
            return err_set(err, ENOSPC,
                           "a card has not so many media engines as the profiles need");
    return 0;
}

/* ---- the plan ---- */

static void write_plan(const struct search *s, struct mig_plan *plan) {
    for (uint32_t i = 0; i < s->card->ninstances; i++)
        plan->fate[i] = MIG_DESTROY;
    for (uint32_t i = 0; i < s->want->n; i++) {
        const struct mig_wanted *w = &s->want->instances[i];
        uint32_t p = s->best.present[i];

        if (p == NONE) {
            plan->make[plan->nmake++] = (struct mig_make){i, s->best.start[i]};
            continue;
        }
        plan->fate[p] = mig_card_has_compute(&s->card->instances[p], w->compute, w->ncompute)
                            ? MIG_STAYS
                            : MIG_REFITS;
        plan->becomes[p] = i;
    }
    plan->outcome = plan->nmake > 0 || s->best.refits > 0 || s->best.kept < s->card->ninstances
                        ? MIG_CHANGE
                        : MIG_REACHED;
}

/* The fewest instances in use without which the search succeeds; of several sets the first. */
static bool find_blockers(struct search *s, uint32_t *ret) {
    /* mig_plan_check_limits() has refused a card with more; the compiler does not see that. */
    uint32_t n =
        s->card->ninstances < MIG_CARD_INSTANCES_MAX ? s->card->ninstances : MIG_CARD_INSTANCES_MAX;
    uint32_t busy = 0, best = 0;
    bool found = false;

    for (uint32_t i = 0; i < n; i++)
        busy |= (uint32_t) s->card->instances[i].in_use << i;
    for (uint32_t set = 1; set < 1u << n; set++) {
        if ((set & ~busy) || (found && __builtin_popcount(set) >= __builtin_popcount(best)) ||
            !run_search(s, set))
            continue;
        best = set;
        found = true;
    }
    *ret = best;
    return found;
}

static int plan_instances(const struct mig_card *card, const struct mig_want *want,
                          struct mig_plan *plan, struct err *err) {
    struct search s = {.card = card, .want = want};
    int r = mig_plan_check_limits(card, want, err);

    if (r < 0)
        return r;
    sort_wanted(&s);
    if (run_search(&s, 0)) {
        write_plan(&s, plan);
        return 0;
    }
    if (!find_blockers(&s, &plan->blockers))
        return err_set(err, ENOSPC, "the wanted instances do not fit on one card");
    plan->outcome = MIG_PENDING;
    return 0;
}

int mig_plan(const struct mig_card *card, const struct mig_want *want, struct mig_plan *ret,
             struct err *err) {
    struct mig_card empty = *card;
    struct mig_plan plan = {.outcome = MIG_REACHED};
    int r = 0;

    if (!card->capable && want->enabled)
        return err_set(err, EOPNOTSUPP, "the card has no MIG");
    if (card->capable && (card->enabled || want->enabled)) {
        if (!card->enabled)
            empty.ninstances = 0;
        r = plan_instances(&empty, want, &plan, err);
    }
    if (r < 0)
        return r;
    if (card->capable && card->enabled != want->enabled) {
        plan.set_mode = true;
        plan.outcome = card->in_use || plan.outcome == MIG_PENDING ? MIG_PENDING : MIG_CHANGE;
        plan.card_blocks = card->in_use && plan.blockers == 0;
    }
    *ret = plan;
    return 0;
}

static void explain_one(const struct mig_card *card, uint32_t i, const char *separator,
                        struct buf *out) {
    const struct mig_instance *gi = &card->instances[i];
    char name[MIG_PROFILE_NAME_MAX];

    buf_printf(out, "%sinstance %u (%s at %u)", separator, gi->id,
               mig_name_format(&card->profiles[gi->profile].name, name), gi->start);
    if (gi->holders[0])
        buf_printf(out, " of %s", gi->holders);
}

void mig_plan_explain(const struct mig_card *card, const struct mig_plan *plan, struct buf *out) {
    const char *separator = "";

    buf_puts(out, "in use: ");
    if (plan->card_blocks)
        buf_printf(out, "the card%s%s", card->holders[0] ? " by " : "", card->holders);
    for (uint32_t i = 0; i < card->ninstances; i++) {
        if (!(plan->blockers >> i & 1))
            continue;
        explain_one(card, i, separator, out);
        separator = ", ";
    }
}
