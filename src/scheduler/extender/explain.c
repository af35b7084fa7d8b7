/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/extender/explain.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"

#define CONTAINERS_SHOWN 3
#define NODES_SHOWN 4
#define TAIL_ROOM 64 /* for "; and 4996 more nodes" */

/* A text of bounded length; what does not fit is left out. */
struct text {
    char *out;
    size_t len, max;
};

static void put_text(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put_text(struct text *t, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->out + t->len, t->max - t->len, format, ap);
    va_end(ap);
    if (n < 0)
        return;
    t->len += (size_t) n < t->max - t->len ? (size_t) n : t->max - t->len - 1;
}

static void put_container_request(struct text *t, const struct container_request *req) {
    char memory[24];
    if (req->cards == 0) { /* another container has asked for all of that */
        put_text(t, "%s shares its claim", req->container);
        return;
    }
    put_text(t, "%s wants ", req->container);
    if (req->claimed && !req->whole && req->core == 0 && req->memory == 0)
        put_text(t, "what its claim gives");
    if (req->whole)
        put_text(t, "%" PRIu32 " whole GPU%s", req->cards, req->cards > 1 ? "s" : "");
    if (req->core > 0)
        put_text(t, "%" PRIu32 " %% compute", req->core);
    if (req->tflops > 0)
        put_text(t, "%" PRIu32 " TFLOPS", req->tflops);
    if (req->replicas > 0)
        put_text(t, "%" PRIu32 " replica%s", req->replicas, req->replicas > 1 ? "s" : "");
    if (req->memory > 0 || req->memory_percent > 0)
        put_text(t, "%s", req->core > 0 || req->tflops > 0 ? " and " : "");
    if (req->memory > 0)
        put_text(t, "%s memory", num_format_bytes(req->memory, memory));
    else if (req->memory_percent > 0)
        put_text(t, "%" PRIu32 " %% of the memory", req->memory_percent);
    if (!req->whole && req->cards == 1)
        put_text(t, " of one GPU");
    else if (!req->whole)
        put_text(t, " of each of %" PRIu32 " GPUs", req->cards);
}

static void put_words(struct text *t, const char *what, const char *words) {
    if (words)
        put_text(t, ", %s %.60s", what, words);
}

static void put_selection(struct text *t, const struct gpu_selection *selection) {
    put_words(t, "of model", selection->use_models);
    put_words(t, "not of model", selection->avoid_models);
    put_words(t, "of UUID", selection->use_uuids);
    put_words(t, "not of UUID", selection->avoid_uuids);
    put_words(t, "of index", selection->use_indexes);
    if (selection->topology == TOPOLOGY_RESTRICTED)
        put_text(t, ", with the best links");
    if (selection->numa_bind)
        put_text(t, ", on one NUMA node");
}

static void put_card(struct text *t, const struct state_card *card,
                     const struct place_card *place) {
    char memory[24];
    put_text(t, " GPU %" PRIu32 "%s%s: ", card->index, card->profile[0] ? " MIG " : "",
             card->profile);
    if (!card->healthy || card->duplicate)
        put_text(t, "%s,", card->duplicate ? "listed twice" : "not healthy");
    else
        put_text(t, "%" PRIu32 " %% and %s%s,", place->free.core,
                 num_format_bytes(place->free.memory, memory),
                 place->mps_only ? " for claims under MPS" : "");
}

/* Distinct models and how many cards of each. */
static void put_models(struct text *t, const struct state_node *node) {
    const char *between = "";
    for (uint32_t i = 0; i < node->ncards; i++) {
        uint32_t same = 0, before = 0;
        for (uint32_t k = 0; k < node->ncards; k++) {
            bool equal = strcmp(node->cards[k]->model, node->cards[i]->model) == 0;
            same += equal;
            before += equal && k < i;
        }
        if (before > 0)
            continue;
        put_text(t, "%s %" PRIu32 " %s", between, same,
                 node->cards[i]->model[0] ? node->cards[i]->model : "GPUs of an unknown model");
        between = ",";
    }
}

static bool by_model(const struct gpu_selection *selection, enum place_reason reason) {
    if (reason == PLACE_WRONG_GPU)
        return selection && (selection->use_models || selection->avoid_models);
    return reason == PLACE_NO_TFLOPS || reason == PLACE_TOO_SLOW;
}

static void put_node(struct text *t, const struct state_node *node, bool models) {
    enum place_reason absent = state_node_absent(node);
    if (absent != PLACE_OK) {
        put_text(t, "; %s: %s", node->name, place_reason_text(absent));
        return;
    }
    put_text(t, "; %s has%s", node->name, models ? "" : " free");
    if (models) {
        put_models(t, node);
        return;
    }
    for (uint32_t i = 0; i < node->ncards; i++)
        put_card(t, node->cards[i], &node->place[i]);
    if (t->out[t->len - 1] == ',')
        t->out[--t->len] = '\0';
}

/* ---- which nodes are shown ---- */

/* The part of what the container takes of one card that is free there, in thousandths. */
static uint32_t covered(const struct container_request *req, const struct place_card *card) {
    struct place_amount want = place_share(req, card);
    uint64_t core = want.core > 0 ? (uint64_t) card->free.core * 1000 / want.core : 1000;
    uint64_t memory = want.memory > 0 ? (card->free.memory >> 20) * 1000 /
                                            ((want.memory >> 20) > 0 ? want.memory >> 20 : 1)
                                      : 1000;
    uint64_t least = core < memory ? core : memory;
    if (!card->healthy)
        return 0;
    return least < 1000 ? (uint32_t) least : 1000;
}

/* The container that is covered least, over its best cards. */
static uint32_t nearness(const struct gpu_request *request, const struct state_node *node) {
    uint32_t least = 1000;
    for (uint32_t a = 0; a < request->n; a++) {
        uint32_t of[PLACE_CARDS_MAX], n = node->ncards, cards = request->containers[a].cards,
                                      sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t value = covered(&request->containers[a], &node->place[i]), at = i;
            for (; at > 0 && of[at - 1] < value; at--)
                of[at] = of[at - 1];
            of[at] = value;
        }
        for (uint32_t i = 0; i < n && i < cards; i++)
            sum += of[i];
        if (cards > 0 && sum / cards < least)
            least = sum / cards;
    }
    return least;
}

struct shown {
    struct state_node *node;
    enum place_reason reason;
    uint32_t nearness;
};

static bool is_nearer(const struct shown *a, const struct shown *b) {
    bool never_a = place_reason_is_final(a->reason) || state_node_absent(a->node) != PLACE_OK;
    bool never_b = place_reason_is_final(b->reason) || state_node_absent(b->node) != PLACE_OK;
    if (never_a != never_b)
        return never_b;
    if (a->nearness != b->nearness)
        return a->nearness > b->nearness;
    return strcmp(a->node->name, b->node->name) < 0;
}

/* Returns how many of the candidates have cards; *ret_n of them, the nearest first, are in `best`.
 */
static size_t nearest(struct state *s, const struct gpu_request *request,
                      const struct extender_candidate *candidates, size_t n,
                      struct shown best[static NODES_SHOWN], size_t *ret_n) {
    size_t with_cards = 0, held = 0;
    for (size_t i = 0; i < n; i++) {
        struct shown c = {.node = candidates[i].node, .reason = candidates[i].reason};
        if (!c.node || c.node->ncards == 0)
            continue;
        with_cards++;
        state_refresh(s, c.node);
        c.nearness = nearness(request, c.node);
        size_t at = held < NODES_SHOWN ? held++ : NODES_SHOWN;
        for (; at > 0 && is_nearer(&c, &best[at - 1]); at--)
            if (at < NODES_SHOWN)
                best[at] = best[at - 1];
        if (at < NODES_SHOWN)
            best[at] = c;
    }
    *ret_n = held;
    return with_cards;
}

static void put_request(struct text *t, const struct gpu_request *request) {
    for (uint32_t i = 0; i < request->n && i < CONTAINERS_SHOWN; i++) {
        put_text(t, "%s", i ? ", " : "");
        put_container_request(t, &request->containers[i]);
    }
    if (request->n > CONTAINERS_SHOWN)
        put_text(t, " and %" PRIu32 " more containers ask for GPU", request->n - CONTAINERS_SHOWN);
}

void explain_wants(const struct gpu_request *request, char out[static EXPLAIN_MAX]) {
    struct text t = {out, 0, EXPLAIN_MAX};
    out[0] = '\0';
    put_request(&t, request);
}

void explain_no_fit(struct state *s, const struct gpu_request *request,
                    const struct gpu_selection *selection,
                    const struct extender_candidate *candidates, size_t n,
                    char out[static EXPLAIN_MAX]) {
    struct text t = {out, 0, EXPLAIN_MAX - TAIL_ROOM};
    struct shown best[NODES_SHOWN];
    size_t found, shown = 0;
    size_t with_cards = nearest(s, request, candidates, n, best, &found);
    put_request(&t, request);
    if (selection)
        put_selection(&t, selection);
    for (; shown < found && t.len + 1 < t.max; shown++)
        put_node(&t, best[shown].node, by_model(selection, best[shown].reason));
    t.max = EXPLAIN_MAX;
    if (with_cards == 0)
        put_text(&t, "; none of the %zu nodes has a GPU", n);
    if (with_cards > shown)
        put_text(&t, "; and %zu more nodes", with_cards - shown);
}

uint64_t explain_key(const struct gpu_request *request, const struct gpu_selection *selection,
                     const struct extender_candidate *candidates, size_t n) {
    char wants[EXPLAIN_MAX] = "";
    struct text t = {wants, 0, sizeof(wants)};
    bool cards = false, room = false;
    put_request(&t, request);
    if (selection)
        put_selection(&t, selection);
    for (size_t i = 0; i < n && !room; i++) {
        bool here = candidates[i].node && candidates[i].node->ncards > 0;
        cards = cards || here;
        room = here && !place_reason_is_final(candidates[i].reason) &&
               state_node_absent(candidates[i].node) == PLACE_OK;
    }
    put_text(&t, "%s%s", cards ? " cards" : "", room ? " room" : "");
    return hash_bytes(HASH_START, wants, t.len) | 1;
}

void explain_malformed(const struct pod *pod, char out[static EXPLAIN_MAX]) {
    snprintf(out, EXPLAIN_MAX, "container %s: %s", pod->problem_container,
             request_problem_text(pod->problem, pod->mixed));
}
