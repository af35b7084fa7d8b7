/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/mig_claims.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/server_time.h"
#include "base/text.h"
#include "scheduler/daemon/mig_watch.h"
#include "scheduler/daemon/scheduler.h"

static const struct egpu_claim *find_claim(const struct scheduler *s, const struct mig_pod *claim) {
    const struct egpu_claim *found = claims_find(s->elastic.claims, claim->namespace, claim->name);

    return found && strcmp(found->meta.uid, claim->uid) == 0 ? found : NULL;
}

static bool may_be_on(void *self, const struct mig_pod *claim, const char *name) {
    struct scheduler *s = self;
    const struct egpu_claim *found = find_claim(s, claim);
    const struct state_node *node = state_node_find(s->state, name);

    return found && node && elastic_may_be_on(&s->elastic, found, node);
}

/* From the moment at which it has an ElasticGPU, that reserves the instance. */
static bool waits(void *self, const struct mig_pod *claim) {
    const struct egpu_claim *found = find_claim(self, claim);

    return found && !found->meta.deleting && !found->egpu[0] && found->phase != CLAIM_BOUND;
}

static bool is_free(const struct state_node *node, uint32_t at) {
    const struct place_card *place = &node->place[at];

    return place_card_is_idle(place) && place->free.slots == SLOTS_PER_CARD;
}

/* NULL: it has no GPU object yet. */
static struct state_card *find_instance(struct scheduler *s, const char *gpu,
                                        const struct mig_place *place, uint32_t *ret_at) {
    char profile[MIG_PROFILE_NAME_MAX];

    return state_instance_find(s->state, gpu, mig_name_format(&place->name, profile), place->start,
                               ret_at);
}

static bool is_taken(void *self, const char *gpu, const struct mig_place *place) {
    struct scheduler *s = self;
    uint32_t at;
    const struct state_card *card = find_instance(s, gpu, place, &at);

    if (!card)
        return false;
    state_refresh(s->state, card->node);
    return !is_free(card->node, at);
}

static uint32_t count_free(void *self, const char *name, const struct mig_name *profile) {
    struct scheduler *s = self;
    struct state_node *node = state_node_find(s->state, name);
    char text[MIG_PROFILE_NAME_MAX];
    uint32_t n = 0;

    (void) mig_name_format(profile, text);
    if (node)
        state_refresh(s->state, node);
    for (uint32_t c = 0; node && c < node->ncards; c++)
        n += node->cards[c]->parent[0] && strcmp(node->cards[c]->profile, text) == 0 &&
             node->place[c].healthy && is_free(node, c);
    return n;
}

static void leave(void *self, const char *gpu, const struct mig_place *place, bool leaves) {
    uint32_t at;
    struct state_card *card = find_instance(self, gpu, place, &at);

    if (card)
        state_instance_leave(card, leaves);
}

static void note(void *self, const struct mig_pod *claim, bool warning, const char *reason,
                 const char *message) {
    struct scheduler *s = self;

    elastic_note_claim(&s->elastic, (struct claims_note){.namespace = claim->namespace,
                                                         .name = claim->name,
                                                         .uid = claim->uid,
                                                         .warning = warning,
                                                         .reason = reason,
                                                         .message = message});
}

int mig_claims_start(struct scheduler *s) {
    const struct mig_orders_world world = {.self = s,
                                           .claims = true,
                                           .has_room = may_be_on,
                                           .write = mig_watch_write,
                                           .note = note,
                                           .waits = waits,
                                           .is_taken = is_taken,
                                           .count_free = count_free,
                                           .leave = leave};

    s->mig_claims = mig_orders_new(&world);
    return s->mig_claims ? 0 : -ENOMEM;
}

void mig_claims_want(struct scheduler *s, const struct egpu_claim *claim, const char *profile) {
    char class[KUBE_NAME_MAX];
    struct mig_pod want = {.created = server_time(), .constraints = class};
    struct mig_name name;

    text_copy(class, sizeof(class), claim->class);

    if (mig_name_parse(profile, &name, NULL) < 0)
        return;
    text_copy(want.uid, sizeof(want.uid), claim->meta.uid);
    text_copy(want.namespace, sizeof(want.namespace), claim->meta.namespace);
    text_copy(want.name, sizeof(want.name), claim->meta.name);
    mig_needs_add(&want.needs, &name, 1);
    if (mig_orders_want(s->mig_claims, &want) < 0)
        log_warn("claim %s/%s: out of memory: no MIG instance is ordered for it", want.namespace,
                 want.name);
}
