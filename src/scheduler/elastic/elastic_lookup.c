/* SPDX-License-Identifier: Apache-2.0 */

/* What claims and ElasticGPUs are on the cards, and to the pods, of the state. */

#include <stdio.h>
#include <string.h>

#include "place/policies/policies.h"
#include "scheduler/elastic/elastic_internal.h"

void elastic_id(const char *egpu, char ret[static ELASTIC_ID_MAX]) {
    snprintf(ret, ELASTIC_ID_MAX, "elasticgpu/%s", egpu);
}

void elastic_id_of_claim(const struct egpu_claim *claim, char ret[static ELASTIC_ID_MAX]) {
    char name[KUBE_NAME_MAX];
    snprintf(name, sizeof(name), "egpu-%s", claim->meta.uid);
    elastic_id(name, ret);
}

struct place_grant elastic_grant(const struct claim_amount *amount, const struct state_card *card) {
    const struct place_card place = state_place_card(card);
    struct container_request req = {.phase = CONTAINER_APP};
    claim_amount_request(amount, &req);
    return place_grant(&req, &place);
}

const struct place_policy *elastic_policy(const struct elastic *e, const struct egpu_claim *claim) {
    const struct egpu_class *class = claims_class_of(e->claims, claim);
    const char *name = class ? egpu_class_parameter(class, PARAMETER_POLICY) : NULL;
    return name ? place_policy_find(name) : NULL;
}

uint64_t elastic_cards_of(const struct egpu *egpu, const struct state_node *node) {
    uint64_t cards = 0;
    for (uint32_t i = 0; i < egpu->ncards; i++)
        for (uint32_t c = 0; c < node->ncards; c++)
            if (strcmp(node->cards[c]->name, egpu->cards[i]) == 0 ||
                strcmp(node->cards[c]->uuid, egpu->cards[i]) == 0)
                cards |= UINT64_C(1) << c;
    return cards;
}

bool elastic_is_under_mps(const struct elastic *e, const struct egpu_claim *claim) {
    const struct egpu_class *class = claims_class_of(e->claims, claim);
    const struct provisioner *p = class ? provisioner_find(class->provisioner) : NULL;
    return p && p->under_mps;
}

uint64_t elastic_cards_under_mps(const struct state_node *node) {
    uint64_t cards = 0;
    for (uint32_t c = 0; c < node->ncards; c++)
        cards |= (uint64_t) state_card_takes_mps(node->cards[c]) << c;
    return cards;
}

uint64_t elastic_cards_for(const struct elastic *e, const struct egpu_claim *claim,
                           const struct state_node *node) {
    return elastic_is_under_mps(e, claim) ? elastic_cards_under_mps(node) : UINT64_MAX;
}

bool elastic_is_of_mps(const struct egpu *egpu) {
    const struct provisioner *p = provisioner_find(egpu->provisioned_by);
    return p && p->under_mps;
}

struct state_card *elastic_card_find(const struct state *s, const char *name) {
    struct state_card *card;
    HASH_FIND_STR(s->cards, name, card);
    bool uuid = strncmp(name, "GPU-", 4) == 0 || strncmp(name, "MIG-", 4) == 0;
    for (struct state_card *c = uuid ? s->cards : NULL; !card && c; c = c->hh.next)
        if (strcmp(c->uuid, name) == 0 && !c->duplicate)
            card = c;
    return card && !card->apart ? card : NULL;
}

bool elastic_has(const struct egpu *egpu, const struct state_pod *pod,
                 const struct state_allocation *held) {
    uint64_t cards = egpu ? elastic_cards_of(egpu, pod->node) : 0;
    for (uint32_t c = 0; c < pod->node->ncards; c++)
        if ((cards >> c & 1) && strcmp(pod->node->cards[c]->uuid, held->device.uuid) == 0)
            return true;
    return false;
}

uint64_t elastic_memory_of(const struct claim_amount *amount, const struct state_pod *pod,
                           const struct state_allocation *held) {
    uint64_t memory = held->device.memory;
    for (uint32_t c = 0; c < pod->node->ncards; c++) {
        const struct state_card *card = pod->node->cards[c];
        if (strcmp(card->uuid, held->device.uuid) == 0)
            memory = elastic_grant(amount, card).memory;
    }
    return memory;
}

struct sharers {
    struct state *state;
    const struct state_pod *except; /* is not counted; may be NULL */
    uint32_t n;
    char name[KUBE_NAME_MAX]; /* of one of them */
};

static bool count_sharer(const char *uid, const char *name, void *userdata) {
    struct sharers *sharers = userdata;
    const struct state_pod *pod = state_pod_find(sharers->state, uid);
    if (!pod || pod == sharers->except || !pod->node || pod->nallocations == 0)
        return true;
    sharers->n++;
    snprintf(sharers->name, sizeof(sharers->name), "%s", name);
    return true;
}

uint32_t elastic_users(const struct elastic *e, const struct egpu_claim *claim,
                       const struct state_pod *except, char ret_name[KUBE_NAME_MAX]) {
    struct sharers sharers = {.state = e->state, .except = except};
    claims_users(e->claims, claim, count_sharer, &sharers);
    if (ret_name)
        memcpy(ret_name, sharers.name, sizeof(sharers.name));
    return sharers.n;
}
