/* SPDX-License-Identifier: Apache-2.0 */

/* Cards of one node by the constraints of the claims. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/dra.h"
#include "scheduler/dra/dra_search.h"

/* The value of an attribute; "": the device has none. */
static void attribute_of(const struct slice_device *d, const char *name,
                         char ret[static SLICE_TEXT_MAX]) {
    const char *own = strncmp(name, DRA_DRIVER "/", strlen(DRA_DRIVER "/")) == 0
                          ? name + strlen(DRA_DRIVER "/")
                          : "";
    const char *text = "";
    for (size_t i = 0; i < SLICE_TEXTS; i++)
        if (strcmp(own, slice_texts[i].name) == 0)
            text = (const char *) d + slice_texts[i].at;
    if (strcmp(own, DRA_INDEX) == 0)
        (void) snprintf(ret, SLICE_TEXT_MAX, "%u", d->index);
    else if (strcmp(own, DRA_NUMA) == 0 && d->numa >= 0)
        (void) snprintf(ret, SLICE_TEXT_MAX, "%d", d->numa);
    else
        slice_text(ret, text);
}

static void attribute_at(const struct dra *d, const struct state_node *node, uint32_t c,
                         const char *name, char ret[static SLICE_TEXT_MAX]) {
    const struct dra_device *device = dra_device_find(d, node->name, node->cards[c]->uuid);
    ret[0] = '\0';
    if (device)
        attribute_of(device->at, name, ret);
}

/* The cards of the node with that value. */
static uint64_t cards_with(const struct dra *d, const struct state_node *node, const char *name,
                           const char *value) {
    uint64_t cards = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        char own[SLICE_TEXT_MAX];
        attribute_at(d, node, c, name, own);
        if (own[0] && strcmp(own, value) == 0)
            cards |= UINT64_C(1) << c;
    }
    return cards;
}

static uint32_t containers_of(const struct dra_search *s, const struct dra_claim *claim,
                              const struct device_constraint *constraint) {
    uint32_t set = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        char request[DEVICE_REQUEST_MAX];
        dra_name_request(&s->wants[i], request);
        if (s->wants[i].claim == claim && device_requests_have(&constraint->requests, request))
            set |= UINT32_C(1) << i;
    }
    return set;
}

/* False: one of the containers has no card left. */
static bool narrow(struct dra_limits *limits, uint32_t containers, uint64_t cards) {
    bool left = true;
    for (uint32_t i = 0; i < GPU_CONTAINERS_MAX; i++)
        if (containers >> i & 1)
            left &= (limits->allowed[i] &= cards) != 0;
    return left;
}

static enum place_reason place_with(struct dra_search *s, struct state_node *node,
                                    const struct state_pod *self, const struct dra_limits *limits,
                                    struct place_result *ret) {
    s->d->allowed = limits->allowed;
    enum place_reason reason = state_place(s->d->state, &s->d->plan, node, self, false, ret);
    s->d->allowed = NULL;
    return reason;
}

/* Whether no two cards of these containers have the same value. Else narrows `limits`: what comes
 * before the first that shares its value stays where it is, and that one has to take another. */
static bool is_distinct(struct dra_search *s, const struct state_node *node, uint32_t containers,
                        const char *name, const struct place_result *result,
                        struct dra_limits *limits) {
    uint64_t taken = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t accepted = 0;
        for (uint32_t c = 0; (containers >> i & 1) && c < node->ncards; c++) {
            char value[SLICE_TEXT_MAX];
            if (!(result->cards[i] >> c & 1))
                continue;
            attribute_at(s->d, node, c, name, value);
            uint64_t same = cards_with(s->d, node, name, value) | UINT64_C(1) << c;
            if (!value[0] || same & taken) {
                limits->allowed[i] = (limits->allowed[i] & ~(taken | UINT64_C(1) << c)) | accepted;
                return false;
            }
            taken |= same;
            accepted |= UINT64_C(1) << c;
        }
        if (containers >> i & 1)
            limits->allowed[i] = accepted;
    }
    return true;
}

static enum place_reason place_equal(struct dra_search *s, struct state_node *node,
                                     const struct state_pod *self, uint32_t claim, uint32_t at,
                                     const struct dra_limits *limits, struct place_result *ret) {
    const struct device_constraint *constraint = &s->claims[claim]->object.constraints[at];
    const uint32_t containers = containers_of(s, s->claims[claim], constraint);
    struct place_result *found = malloc(sizeof(*found));
    enum place_reason best = PLACE_NOT_TOGETHER;
    uint64_t tried = 0;
    for (uint32_t c = 0; found && s->effort > 0 && c < node->ncards; c++) {
        char value[SLICE_TEXT_MAX];
        struct dra_limits fewer = *limits;
        attribute_at(s->d, node, c, constraint->match, value);
        uint64_t cards = value[0] ? cards_with(s->d, node, constraint->match, value) : 0;
        if (cards == 0 || tried >> c & 1)
            continue;
        tried |= cards;
        if (!narrow(&fewer, containers, cards))
            continue;
        enum place_reason reason = dra_place(s, node, self, claim, at + 1, &fewer, found);
        if (reason == PLACE_OK && (best != PLACE_OK || found->score > ret->score))
            place_result_copy(ret, found);
        best = best == PLACE_OK ? best : reason;
    }
    free(found);
    return best;
}

static enum place_reason place_distinct(struct dra_search *s, struct state_node *node,
                                        const struct state_pod *self, uint32_t claim, uint32_t at,
                                        struct dra_limits *limits, struct place_result *ret) {
    const struct device_constraint *constraint = &s->claims[claim]->object.constraints[at];
    const uint32_t containers = containers_of(s, s->claims[claim], constraint);
    for (uint32_t tries = 0; tries < PLACE_CARDS_MAX; tries++) {
        struct dra_limits kept = *limits;
        enum place_reason reason = dra_place(s, node, self, claim, at + 1, &kept, ret);
        if (reason != PLACE_OK ||
            is_distinct(s, node, containers, constraint->distinct, ret, limits))
            return reason;
    }
    return PLACE_NOT_TOGETHER;
}

enum place_reason dra_place(struct dra_search *s, struct state_node *node,
                            const struct state_pod *self, uint32_t claim, uint32_t at,
                            struct dra_limits *limits, struct place_result *ret) {
    if (s->nconstraints > 0 && s->effort == 0)
        return PLACE_NOT_TOGETHER;
    s->effort -= s->nconstraints > 0;
    while (claim < s->nclaims && at >= s->claims[claim]->object.nconstraints)
        claim++, at = 0;
    if (claim == s->nclaims)
        return place_with(s, node, self, limits, ret);
    const struct device_constraint *constraint = &s->claims[claim]->object.constraints[at];
    if (constraint->match[0])
        return place_equal(s, node, self, claim, at, limits, ret);
    if (constraint->distinct[0])
        return place_distinct(s, node, self, claim, at, limits, ret);
    return PLACE_NOT_TOGETHER; /* of a kind that is not known */
}
