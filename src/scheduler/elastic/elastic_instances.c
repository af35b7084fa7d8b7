/* SPDX-License-Identifier: Apache-2.0 */

/* Claims of whole MIG instances. */

#include <stdio.h>
#include <string.h>

#include "scheduler/elastic/elastic_internal.h"

static bool is_free(const struct place_card *place) {
    return place->healthy && place_card_is_idle(place) && place->free.slots == SLOTS_PER_CARD;
}

static bool has_profile(const struct state_card *card, const char *profile) {
    return card->parent[0] && strcmp(card->profile, profile) == 0;
}

static uint32_t count_free(const struct state_node *node, const char *parent) {
    uint32_t n = 0;

    for (uint32_t c = 0; c < node->ncards; c++)
        n += strcmp(node->cards[c]->parent, parent) == 0 && is_free(&node->place[c]);
    return n;
}

static void find_on(struct state_node *node, const char *profile, uint32_t *fewest,
                    const struct state_card **ret) {
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct state_card *card = node->cards[c];
        uint32_t beside;

        if (!has_profile(card, profile) || !is_free(&node->place[c]))
            continue;
        beside = count_free(node, card->parent);
        if (!*ret || beside < *fewest) {
            *fewest = beside;
            *ret = card;
        }
    }
}

bool elastic_find_instance(struct elastic *e, const struct egpu_claim *claim, const char *profile,
                           const char *node, struct claims_room *ret) {
    const struct state_card *best = NULL;
    uint32_t fewest = 0;

    state_refresh_all(e->state);
    for (struct state_node *n = e->state->nodes; n; n = n->hh.next)
        if ((!node[0] || strcmp(n->name, node) == 0) && n->exists && elastic_may_be_on(e, claim, n))
            find_on(n, profile, &fewest, &best);
    if (!best && e->want_instance)
        e->want_instance(e->userdata, claim, profile);
    if (!best)
        return false;
    *ret = (struct claims_room){.ncards = 1,
                                .amount = {.cards = 1, .core = best->core, .memory = best->memory}};
    (void) snprintf(ret->node, sizeof(ret->node), "%s", best->node->name);
    (void) snprintf(ret->cards[0], sizeof(ret->cards[0]), "%s", best->name);
    (void) snprintf(ret->amount.profile, sizeof(ret->amount.profile), "%s", profile);
    return true;
}
