/* SPDX-License-Identifier: Apache-2.0 */
#include "place/reasons.h"

#include "place/amounts.h"

/* Whether no other pod holds a part of the card. */
static bool is_free_whole(const struct gpu_request *request, const struct place_node *node,
                          uint32_t container, uint32_t c) {
    const struct place_card *card = &node->cards[c];
    struct place_amount want = place_taken_by(request, node, UINT32_C(1) << container, c);
    return card->healthy && card->memory > 0 &&
           place_card_serves(&request->containers[container], card) &&
           amount_fits(&want, &card->free);
}

/* Memory of the largest cards of the set, as many as asked. */
static uint64_t largest(const struct place_node *node, uint64_t set, uint32_t n) {
    uint64_t sum = 0;
    for (; n > 0 && set; n--) {
        uint32_t best = (uint32_t) __builtin_ctzll(set);
        for (uint32_t c = best; c < node->ncards; c++)
            if ((set >> c & 1) && node->cards[c].physical > node->cards[best].physical)
                best = c;
        set &= ~(UINT64_C(1) << best);
        sum += node->cards[best].physical;
    }
    return sum;
}

static enum place_reason whole_reason(const struct gpu_request *request,
                                      const struct place_node *node, uint32_t i) {
    const struct container_request *req = &request->containers[i];
    bool healthy = false;
    uint64_t free = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        healthy |= may_take(node, i, c) && node->cards[c].healthy;
        if (may_take(node, i, c) && is_free_whole(request, node, i, c))
            free |= UINT64_C(1) << c;
    }
    if (!healthy)
        return PLACE_NONE_HEALTHY;
    if ((uint32_t) __builtin_popcountll(free) < req->cards)
        return PLACE_NO_WHOLE;
    return largest(node, free, req->cards) >= req->memory_floor ? PLACE_OK : PLACE_TOO_LARGE;
}

/* How many cards have what. */
struct tally {
    uint32_t fast, wide, could, healthy, open, memory, core, both, slot;
    bool known; /* TFLOPS of any */
};

static struct tally count_cards(const struct gpu_request *request, const struct place_node *node,
                                uint32_t i) {
    const struct container_request *req = &request->containers[i];
    struct tally t = {.known = req->tflops == 0};
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct place_card *card = &node->cards[c];
        struct place_amount want = place_share(req, card);
        if (!may_take(node, i, c) || !place_card_serves(req, card))
            continue;
        t.known |= card->tflops > 0;
        t.fast += want.core <= CORE_PER_CARD;
        t.wide += want.core <= place_card_core(card);
        t.could += want.memory > 0 && want.memory <= card->memory;
        t.healthy += card->healthy;
        if (!is_candidate(req, card))
            continue;
        want = place_taken_by(request, node, UINT32_C(1) << i, c);
        bool m = want.memory <= card->free.memory, p = want.core <= card->free.core;
        t.open++;
        t.memory += m;
        t.core += p;
        t.both += m && p;
        t.slot += m && p && want.slots <= card->free.slots;
    }
    return t;
}

static enum place_reason share_reason(const struct gpu_request *request,
                                      const struct place_node *node, uint32_t i) {
    const struct container_request *req = &request->containers[i];
    const struct tally t = count_cards(request, node, i);
    const uint32_t n = req->cards;
    /* Otherwise the memory that is short was not asked for. */
    const bool asks_memory = req->memory > 0 || req->memory_percent > 0 || req->replicas > 0;
    const struct {
        bool applies;
        enum place_reason reason;
    } rows[] = {
        {!t.known, PLACE_NO_TFLOPS},
        {t.fast < n, PLACE_TOO_SLOW},
        {t.wide < n, PLACE_TOO_WIDE},
        {t.could < n, PLACE_TOO_LARGE},
        {t.healthy == 0, PLACE_NONE_HEALTHY},
        {t.open == 0, PLACE_ONLY_WHOLE},
        {t.core < n && !asks_memory, PLACE_NO_CORE},
        {t.memory < n, PLACE_NO_MEMORY},
        {t.core < n, PLACE_NO_CORE},
        {t.both < n, PLACE_NO_BOTH},
        {t.slot < n, PLACE_NO_SLOT},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
        if (rows[r].applies)
            return rows[r].reason;
    return PLACE_OK;
}

/* Why too few cards serve the request, whatever is free of them. */
static enum place_reason serving_reason(const struct container_request *req,
                                        const struct place_node *node) {
    uint32_t serving = 0, limited = 0, replicated = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        serving += place_card_serves(req, &node->cards[c]);
        limited += node->cards[c].replicas.one_at_most;
        replicated += req->as_cards && node->cards[c].replicas.as_cards;
    }
    if (serving >= req->cards || serving == node->ncards)
        return PLACE_OK;
    if (replicated > 0)
        return PLACE_REPLICAS;
    return limited > 0 ? PLACE_ONE_REPLICA : PLACE_INSTANCES;
}

/* Whether a card of the node is requested as a whole. */
static bool wants_whole(const struct container_request *req, const struct place_node *node) {
    for (uint32_t c = 0; c < node->ncards; c++)
        if (place_is_whole(req, &node->cards[c]))
            return true;
    return false;
}

enum place_reason place_reason_alone(const struct gpu_request *request,
                                     const struct place_node *node) {
    enum place_reason found = PLACE_OK;
    for (uint32_t i = 0; i < request->n; i++) {
        const struct container_request *req = &request->containers[i];
        if (node->ncards < req->cards)
            return PLACE_TOO_FEW;
        enum place_reason reason = serving_reason(req, node);
        if (reason != PLACE_OK)
            return reason;
        reason = wants_whole(req, node) ? whole_reason(request, node, i)
                                        : share_reason(request, node, i);
        if (place_reason_is_final(reason))
            return reason;
        if (found == PLACE_OK)
            found = reason;
    }
    return found;
}

/* ---- texts ---- */

bool place_reason_is_final(enum place_reason reason) {
    return reason == PLACE_NO_GPU || reason == PLACE_TOO_LARGE || reason == PLACE_TOO_FEW ||
           reason == PLACE_WRONG_GPU || reason == PLACE_NO_TFLOPS || reason == PLACE_TOO_SLOW ||
           reason == PLACE_TOO_WIDE || reason == PLACE_INSTANCES || reason == PLACE_ONE_REPLICA ||
           reason == PLACE_REPLICAS;
}

/* kube-scheduler writes the number of nodes before a reason. */
#define COUNTED "node(s): "

const char *place_reason_counted(enum place_reason reason) {
    static const char *const texts[PLACE_REASONS] = {
        [PLACE_OK] = COUNTED "fits",
        [PLACE_NO_GPU] = COUNTED "node has no GPU",
        [PLACE_NONE_HEALTHY] = COUNTED "no GPU of the node is healthy",
        [PLACE_TOO_LARGE] = COUNTED "no GPU has that much memory",
        [PLACE_TOO_FEW] = COUNTED "node has fewer GPUs than asked for",
        [PLACE_NO_WHOLE] = COUNTED "not enough whole GPUs free",
        [PLACE_ONLY_WHOLE] = COUNTED "the GPUs are given out only as whole cards",
        [PLACE_NO_MEMORY] = COUNTED "no GPU has enough free memory",
        [PLACE_NO_CORE] = COUNTED "no GPU has enough free compute",
        [PLACE_NO_SLOT] = COUNTED "no GPU has a free memory-only slot",
        [PLACE_NO_BOTH] = COUNTED "no GPU has enough free memory and compute at once",
        [PLACE_ELSEWHERE] = COUNTED "an earlier Binding may still send the pod to another node",
        [PLACE_NOT_LINKED] =
            COUNTED "the free GPUs are not linked as the pod asks, or their links are unknown",
        [PLACE_WRONG_GPU] = COUNTED "no GPU of the node is one that the pod selects",
        [PLACE_NO_TFLOPS] =
            COUNTED "the TFLOPS of this GPU model are not known: ask for gpu-core instead",
        [PLACE_TOO_SLOW] = COUNTED "no GPU has that many TFLOPS",
        [PLACE_RESERVED] = COUNTED "what is reserved for the pod is on other GPUs",
        [PLACE_CLAIMED] =
            COUNTED "the pod's claim is on another node, or its class allows only others",
        [PLACE_NO_AGENT] = COUNTED "node's agent is not registered with kubelet",
        [PLACE_AGENT_STOPS] = COUNTED "node's agent is stopping or starting",
        [PLACE_NODE_UNREADY] = COUNTED "node is not ready",
        [PLACE_TOO_WIDE] = COUNTED "no GPU or MIG instance has that much compute",
        [PLACE_ONE_REPLICA] =
            COUNTED "a container gets one replica at most (failRequestsGreaterThanOne)",
        [PLACE_REPLICAS] = COUNTED
        "nvidia.com/gpu is a replica there, and no name of other shares (sharing of the node's "
        "configuration)",
        [PLACE_OTHER_WAY] =
            COUNTED "no GPU is given out this way, as the ResourceSlices of the node say",
        [PLACE_INSTANCES] = COUNTED "MIG instances serve no request for whole GPUs or for several",
        [PLACE_NOT_TOGETHER] = COUNTED "the GPUs have no room for all containers at once",
    };
    return texts[reason < PLACE_REASONS ? reason : PLACE_NOT_TOGETHER];
}

const char *place_reason_text(enum place_reason reason) {
    return place_reason_counted(reason) + sizeof(COUNTED) - 1;
}
