/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/edit.h"

#include "mig/plan.h"

static bool is_at(const struct mig_card *card, const struct mig_instance *gi,
                  const struct mig_place *place) {
    return gi->start == place->start &&
           mig_name_equal(&card->profiles[gi->profile].name, &place->name);
}

const struct mig_instance *mig_edit_find(const struct mig_card *card,
                                         const struct mig_place *place) {
    const uint32_t whole = place->name.slices;

    for (uint32_t i = 0; i < card->ninstances; i++)
        if (is_at(card, &card->instances[i], place) &&
            mig_card_has_compute(&card->instances[i], &whole, 1))
            return &card->instances[i];
    return NULL;
}

static bool is_removed(const struct mig_card *card, const struct mig_edit *edit,
                       const struct mig_instance *gi) {
    for (uint32_t i = 0; i < edit->nremove; i++)
        if (!gi->in_use && is_at(card, gi, &edit->remove[i]))
            return true;
    return false;
}

/* As it is. */
static void add_present(const struct mig_instance *gi, struct mig_want *want) {
    struct mig_wanted *w = &want->instances[want->n++];

    *w = (struct mig_wanted){.profile = gi->profile, .start = gi->start};
    /* The largest first. */
    for (uint32_t slices = MIG_COMPUTE_MAX; slices > 0; slices--)
        for (uint32_t k = 0; k < gi->ncompute; k++)
            if (gi->compute[k].slices == slices)
                w->compute[w->ncompute++] = slices;
}

static int add_made(const struct mig_card *card, const struct mig_place *place,
                    struct mig_want *want, struct err *err) {
    const struct mig_card_profile *p = mig_card_find(card, &place->name);
    char name[MIG_PROFILE_NAME_MAX], other[MIG_PROFILE_NAME_MAX];

    (void) mig_name_format(&place->name, name);
    if (!p || !mig_card_may_start(p, place->start))
        return err_set(err, EINVAL, "the card can have no %s at %u", name, place->start);
    if (want->n == MIG_CARD_INSTANCES_MAX)
        return err_set(err, ENOSPC, "no room for %s: the card has %u instances", name, want->n);
    for (uint32_t i = 0; i < want->n; i++) {
        const struct mig_wanted *w = &want->instances[i];
        const struct mig_card_profile *q = &card->profiles[w->profile];

        if (mig_card_bits(q, w->start) & mig_card_bits(p, place->start))
            return err_set(err, ENOSPC, "no room for %s at %u: %s is at %u", name, place->start,
                           mig_name_format(&q->name, other), w->start);
    }
    want->instances[want->n++] = (struct mig_wanted){.profile = (uint32_t) (p - card->profiles),
                                                     .start = place->start,
                                                     .ncompute = 1,
                                                     .compute = {place->name.slices}};
    return mig_plan_check_limits(card, want, err);
}

int mig_want_edit(const struct mig_card *card, const struct mig_edit *edit, struct mig_want *ret,
                  struct err *err) {
    struct mig_want want = {.enabled = true};
    int r = 0;

    for (uint32_t i = 0; i < card->ninstances; i++)
        if (!is_removed(card, edit, &card->instances[i]))
            add_present(&card->instances[i], &want);
    for (uint32_t i = 0; r >= 0 && i < edit->nmake; i++)
        if (!mig_edit_find(card, &edit->make[i]))
            r = add_made(card, &edit->make[i], &want, err);
    if (r < 0)
        return r;
    *ret = want;
    return 0;
}
