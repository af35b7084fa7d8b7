/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/want.h"

#include <string.h>

static uint32_t used_slices(const struct mig_wanted *w) {
    uint32_t sum = 0;

    for (uint32_t i = 0; i < w->ncompute; i++)
        sum += w->compute[i];
    return sum;
}

/* The first instance of that profile in which so many compute slices are free, or a new one. */
static struct mig_wanted *find_room(struct mig_want *want, uint32_t profile, uint32_t slices,
                                    uint32_t compute) {
    struct mig_wanted *w;

    for (uint32_t i = 0; i < want->n; i++) {
        w = &want->instances[i];
        if (w->profile == profile && w->ncompute < MIG_COMPUTE_MAX &&
            used_slices(w) + compute <= slices)
            return w;
    }
    if (want->n == MIG_CARD_INSTANCES_MAX)
        return NULL;
    w = &want->instances[want->n++];
    *w = (struct mig_wanted){.profile = profile, .start = MIG_ANYWHERE};
    return w;
}

static int add_devices(struct mig_want *want, const struct mig_card *card,
                       const struct mig_devices *d, struct err *err) {
    const struct mig_card_profile *p = mig_card_find(card, &d->name);
    char name[MIG_PROFILE_NAME_MAX];

    if (!p || d->name.compute == 0 || d->name.compute > d->name.slices)
        return err_set(err, EINVAL, "the card has no profile %s", mig_name_format(&d->name, name));
    for (uint32_t i = 0; i < d->count; i++) {
        struct mig_wanted *w =
            find_room(want, (uint32_t) (p - card->profiles), d->name.slices, d->name.compute);

        if (!w)
            return err_set(err, ENOSPC, "%u of %s are more than a card can have", d->count,
                           mig_name_format(&d->name, name));
        w->compute[w->ncompute++] = d->name.compute;
    }
    return 0;
}

int mig_want_devices(const struct mig_card *card, const struct mig_devices *devices, uint32_t n,
                     struct mig_want *ret, struct err *err) {
    struct mig_want want = {.enabled = true};

    /* The largest compute instances first: then smaller ones fill what these leave. */
    for (uint32_t slices = MIG_COMPUTE_MAX; slices > 0; slices--)
        for (uint32_t i = 0; i < n; i++) {
            int r = devices[i].name.compute == slices && devices[i].count > 0
                        ? add_devices(&want, card, &devices[i], err)
                        : 0;

            if (r < 0)
                return r;
        }
    for (uint32_t i = 0; i < n; i++)
        if (devices[i].count > 0 &&
            (devices[i].name.compute == 0 || devices[i].name.compute > MIG_COMPUTE_MAX))
            return add_devices(&want, card, &devices[i], err);
    *ret = want;
    return 0;
}

static void add_present(struct mig_devices *list, uint32_t *n, uint32_t max,
                        const struct mig_name *name) {
    for (uint32_t i = 0; i < *n && i < max; i++)
        if (mig_name_equal(&list[i].name, name)) {
            list[i].count++;
            return;
        }
    if (*n < max)
        list[*n] = (struct mig_devices){*name, 1};
    (*n)++;
}

uint32_t mig_want_present(const struct mig_card *card, struct mig_devices *ret, uint32_t max) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < card->ninstances; i++) {
        const struct mig_instance *gi = &card->instances[i];
        struct mig_name name = card->profiles[gi->profile].name;

        for (uint32_t k = 0; k < gi->ncompute; k++) {
            name.compute = gi->compute[k].slices;
            add_present(ret, &n, max, &name);
        }
    }
    return n;
}

static uint32_t count_of(const struct mig_devices *list, uint32_t n, const struct mig_name *name) {
    for (uint32_t i = 0; i < n; i++)
        if (mig_name_equal(&list[i].name, name))
            return list[i].count;
    return 0;
}

bool mig_want_same(const struct mig_devices *a, uint32_t na, const struct mig_devices *b,
                   uint32_t nb) {
    for (uint32_t i = 0; i < na; i++)
        if (count_of(b, nb, &a[i].name) != a[i].count)
            return false;
    for (uint32_t i = 0; i < nb; i++)
        if (count_of(a, na, &b[i].name) != b[i].count)
            return false;
    return true;
}
