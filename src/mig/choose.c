/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/choose.h"

#include "mig/plan.h"

static uint32_t taken_bits(const struct mig_card *card, uint32_t removed) {
    uint32_t bits = 0;

    for (uint32_t i = 0; i < card->ninstances; i++)
        if (!(removed >> i & 1))
            bits |= mig_card_bits(&card->profiles[card->instances[i].profile],
                                  card->instances[i].start);
    return bits;
}

static uint32_t count_present(const struct mig_card *card, uint32_t removed, uint32_t profile) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < card->ninstances; i++)
        n += !(removed >> i & 1) && card->instances[i].profile == profile;
    return n;
}

/* Runs of one length: each at the first slice that is free leaves room for the most. */
static uint32_t count_further(const struct mig_card *card, uint32_t removed, uint32_t taken,
                              uint32_t profile) {
    const struct mig_card_profile *p = &card->profiles[profile];
    uint32_t present = count_present(card, removed, profile), n = 0;

    for (uint32_t start = 0; start < MIG_SLICES_MAX && present + n < p->most; start++) {
        uint32_t bits = mig_card_bits(p, start);

        if (!mig_card_may_start(p, start) || (bits & taken))
            continue;
        taken |= bits;
        n++;
    }
    return n;
}

static uint64_t potential(const struct mig_card *card, uint32_t removed, uint32_t taken) {
    uint64_t sum = 0;

    for (uint32_t i = 0; i < card->nprofiles; i++)
        sum += (uint64_t) count_further(card, removed, taken, i) * card->profiles[i].size;
    return sum;
}

uint64_t mig_potential(const struct mig_card *card, uint32_t removed) {
    return potential(card, removed, taken_bits(card, removed));
}

/* Whether the card can have the instance beside those that stay: the number of instances of its
 * profile and media engines are limited, too. */
static bool is_allowed(const struct mig_card *card, const struct mig_choice *c) {
    struct mig_want want = {.enabled = true};

    for (uint32_t i = 0; i < card->ninstances; i++)
        if (!(c->removed >> i & 1))
            want.instances[want.n++].profile = card->instances[i].profile;
    if (want.n == MIG_CARD_INSTANCES_MAX)
        return false;
    want.instances[want.n++].profile = c->profile;
    return mig_plan_check_limits(card, &want, NULL) >= 0;
}

bool mig_choice_is_better(const struct mig_choice *a, const struct mig_choice *b) {
    int destroyed = __builtin_popcount(a->removed) - __builtin_popcount(b->removed);

    if (destroyed != 0)
        return destroyed < 0;
    if (a->harm != b->harm)
        return a->harm < b->harm;
    return a->left < b->left;
}

/* Whether the instance can begin at c->start; fills the rest of the choice. */
static bool evaluate(const struct mig_site *site, struct mig_choice *c) {
    const struct mig_card *card = site->card;
    const struct mig_card_profile *p = &card->profiles[c->profile];
    uint32_t bits = mig_card_bits(p, c->start), rest;

    if (!mig_card_may_start(p, c->start))
        return false;
    for (uint32_t i = 0; i < card->ninstances; i++) {
        const struct mig_instance *gi = &card->instances[i];

        if (!(mig_card_bits(&card->profiles[gi->profile], gi->start) & bits))
            continue;
        if (!(site->removable >> i & 1))
            return false;
        c->removed |= 1u << i;
    }
    if (!is_allowed(card, c))
        return false;
    rest = taken_bits(card, site->removable);
    c->left = potential(card, site->removable, rest | bits);
    c->harm = potential(card, site->removable, rest) - c->left;
    return true;
}

int mig_choose(const struct mig_site *sites, uint32_t n, const struct mig_name *name,
               struct mig_choice *ret) {
    struct mig_choice best = {0};
    bool known = false, found = false;

    for (uint32_t i = 0; i < n; i++) {
        const struct mig_card_profile *p = mig_card_find(sites[i].card, name);

        known = known || p;
        for (uint32_t start = 0; p && start < MIG_SLICES_MAX; start++) {
            struct mig_choice c = {
                .site = i, .profile = (uint32_t) (p - sites[i].card->profiles), .start = start};

            if (!evaluate(&sites[i], &c) || (found && !mig_choice_is_better(&c, &best)))
                continue;
            best = c;
            found = true;
        }
    }
    if (found)
        *ret = best;
    return found ? 0 : known ? -ENOSPC : -ENODEV;
}
