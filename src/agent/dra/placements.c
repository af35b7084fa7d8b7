/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/placements.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/dra/claim_devices.h"
#include "base/text.h"
#include "gpu/device.h"

_Static_assert((int) SLICE_ENGINES == (int) MIG_ENGINES, "the counters are of the card's engines");

/* Profiles without attributes before those with media engines of their own. */
static bool is_before(const struct mig_card_profile *a, const struct mig_card_profile *b) {
    if (a->size != b->size)
        return a->size > b->size;
    if (a->name.slices != b->name.slices)
        return a->name.slices > b->name.slices;
    return strcmp(a->name.attributes, b->name.attributes) < 0;
}

static uint32_t sort_profiles(const struct mig_card *card,
                              const struct mig_card_profile *ret[static MIG_CARD_PROFILES_MAX]) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < card->nprofiles; i++) {
        uint32_t at = n++;

        for (; at > 0 && is_before(&card->profiles[i], ret[at - 1]); at--)
            ret[at] = ret[at - 1];
        ret[at] = &card->profiles[i];
    }
    return n;
}

uint32_t dra_placements(const struct mig_card *card,
                        struct mig_place ret[static DRA_PLACEMENTS_MAX]) {
    const struct mig_card_profile *profiles[MIG_CARD_PROFILES_MAX];
    uint32_t n = 0, nprofiles = sort_profiles(card, profiles);

    for (uint32_t i = 0; i < nprofiles; i++)
        for (uint32_t start = 0; start < MIG_SLICES_MAX; start++)
            if (mig_card_may_start(profiles[i], start) && n < DRA_PLACEMENTS_MAX)
                ret[n++] = (struct mig_place){profiles[i]->name, start};
    return n;
}

/* A label of DNS: "gpu-<uuid>-1g-10gb-me-3"; that of 1g.10gb-me is "gpu-<uuid>-1g-10gb-no-me-3". */
void dra_placement_name(const char *uuid, const struct mig_place *place,
                        char ret[static DEVICE_NAME_MAX]) {
    char profile[MIG_PROFILE_NAME_MAX], name[DEVICE_NAME_MAX + MIG_PROFILE_NAME_MAX];
    size_t n = strcspn(mig_name_format(&place->name, profile), "-");

    (void) snprintf(name, sizeof(name), "%.48s-%.*s%s%s-%u", uuid, (int) n, profile,
                    profile[n] ? "-no" : "", profile + n, place->start);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char) *c))
            *c = '-';
    dra_device_name(name, ret);
}

static uint32_t compute_slices(const struct mig_card *card) {
    uint32_t most = 1;

    for (uint32_t i = 0; i < card->nprofiles; i++)
        if (card->profiles[i].name.slices > most)
            most = card->profiles[i].name.slices;
    return most;
}

static void set_name(const char *uuid, struct slice_counters *ret) {
    *ret = (struct slice_counters){.slices = 0};
    dra_device_name(uuid, ret->name);
}

void dra_placement_describe(const char *uuid, const struct mig_card *card,
                            const struct mig_place *place, struct slice_device *ret) {
    const struct mig_card_profile *p = mig_card_find(card, &place->name);
    char profile[MIG_PROFILE_NAME_MAX];

    dra_placement_name(uuid, place, ret->name);
    slice_text(ret->profile, mig_name_format(&place->name, profile));
    slice_text(ret->parent, uuid);
    set_name(uuid, &ret->uses);
    if (!p)
        return;
    ret->core = 100 * p->name.slices / compute_slices(card);
    ret->memory = p->memory;
    ret->uses.slices = mig_card_bits(p, place->start);
    memcpy(ret->uses.engines, p->engines, sizeof(ret->uses.engines));
}

void dra_placement_set(const char *uuid, const struct mig_card *card, struct slice_counters *ret) {
    set_name(uuid, ret);
    for (uint32_t i = 0; i < card->nprofiles; i++)
        for (uint32_t start = 0; start < MIG_SLICES_MAX; start++)
            if (mig_card_may_start(&card->profiles[i], start))
                ret->slices |= mig_card_bits(&card->profiles[i], start);
    for (uint32_t e = 0; e < MIG_ENGINES; e++)
        ret->engines[e] = mig_card_engines(card, e);
}

bool dra_placement_find(const char *uuid, const struct mig_card *card, const char *name,
                        struct mig_place *ret) {
    struct mig_place places[DRA_PLACEMENTS_MAX];
    uint32_t n = dra_placements(card, places);
    char own[DEVICE_NAME_MAX];

    for (uint32_t i = 0; i < n; i++) {
        dra_placement_name(uuid, &places[i], own);
        if (strcmp(own, name) != 0)
            continue;
        *ret = places[i];
        return true;
    }
    return false;
}

const struct gpu_device *dra_placement_instance(const struct gpu_snapshot *s, const char *uuid,
                                                const struct mig_card *card,
                                                const struct mig_place *place) {
    const struct mig_card_profile *p = mig_card_find(card, &place->name);

    for (uint32_t i = 0; p && i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];

        if (d->kind == GPU_MIG_INSTANCE && strcmp(d->parent, uuid) == 0 &&
            d->mig.profile_id == p->id && d->mig.start == place->start && d->mig.size == p->size &&
            d->mig.gi_slices == d->mig.ci_slices)
            return d;
    }
    return NULL;
}
