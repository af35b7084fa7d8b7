/* SPDX-License-Identifier: Apache-2.0 */
#include "mig/card.h"

#include <stdio.h>
#include <string.h>

const struct mig_card_profile *mig_card_find(const struct mig_card *card,
                                             const struct mig_name *name) {
    struct mig_name whole = *name;

    whole.compute = whole.slices;
    for (uint32_t i = 0; i < card->nprofiles; i++)
        if (mig_name_equal(&card->profiles[i].name, &whole))
            return &card->profiles[i];
    return NULL;
}

uint32_t mig_card_bits(const struct mig_card_profile *profile, uint32_t start) {
    uint64_t bits = ((UINT64_C(1) << profile->size) - 1) << start;

    return (uint32_t) bits;
}

/* No driver call tells how many media engines a card has; it has those of each profile's largest
 * number of instances. */
uint32_t mig_card_engines(const struct mig_card *card, uint32_t engine) {
    uint32_t total = 0, present = 0;

    for (uint32_t i = 0; i < card->nprofiles; i++)
        if (card->profiles[i].engines[engine] * card->profiles[i].most > total)
            total = card->profiles[i].engines[engine] * card->profiles[i].most;
    for (uint32_t i = 0; i < card->ninstances; i++)
        present += card->profiles[card->instances[i].profile].engines[engine];
    return total > present ? total : present;
}

bool mig_card_may_start(const struct mig_card_profile *profile, uint32_t start) {
    return start < MIG_SLICES_MAX && (profile->starts >> start & 1);
}

void mig_card_add_holder(char holders[static MIG_HOLDERS_MAX], const char *holder) {
    size_t used = strlen(holders), room = MIG_HOLDERS_MAX - used;
    const char *separator = used > 0 ? ", " : "";

    /* There is always room for the dots, which are the last. */
    if (used >= 3 && strcmp(holders + used - 3, "...") == 0)
        return;
    if (strlen(separator) + strlen(holder) + sizeof(", ...") > room)
        (void) snprintf(holders + used, room, "%s...", separator);
    else
        (void) snprintf(holders + used, room, "%s%s", separator, holder);
}

bool mig_card_has_compute(const struct mig_instance *instance, const uint32_t *slices, uint32_t n) {
    bool matched[MIG_COMPUTE_MAX] = {false};

    if (instance->ncompute != n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;

        while (k < n && (matched[k] || instance->compute[k].slices != slices[i]))
            k++;
        if (k == n)
            return false;
        matched[k] = true;
    }
    return true;
}
