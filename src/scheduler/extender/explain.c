/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/extender/explain.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"

#define CONTAINERS_SHOWN 3
#define NODES_SHOWN 4
#define TAIL_ROOM 64 /* for "; and 4996 more nodes" */

/* A text of bounded length; what does not fit is left out. */
struct text {
    char *out;
    size_t len, max;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->out + t->len, t->max - t->len, format, ap);
    va_end(ap);
    if (n < 0)
        return;
    t->len += (size_t) n < t->max - t->len ? (size_t) n : t->max - t->len - 1;
}

static void put_ask(struct text *t, const struct gpu_ask *ask) {
    char memory[24];
    if (ask->cards == 0) { /* another container has asked for all of that */
        put(t, "%s shares its claim", ask->container);
        return;
    }
    put(t, "%s wants ", ask->container);
    if (ask->claimed && !ask->whole && ask->core == 0 && ask->memory == 0)
        put(t, "what its claim gives");
    if (ask->whole)
        put(t, "%" PRIu32 " whole GPU%s", ask->cards, ask->cards > 1 ? "s" : "");
    if (ask->core > 0)
        put(t, "%" PRIu32 " %% compute", ask->core);
    if (ask->tflops > 0)
        put(t, "%" PRIu32 " TFLOPS", ask->tflops);
    if (ask->memory > 0 || ask->memory_percent > 0)
        put(t, "%s", ask->core > 0 || ask->tflops > 0 ? " and " : "");
    if (ask->memory > 0)
        put(t, "%s memory", num_format_bytes(ask->memory, memory));
    else if (ask->memory_percent > 0)
        put(t, "%" PRIu32 " %% of the memory", ask->memory_percent);
    if (!ask->whole && ask->cards == 1)
        put(t, " of one GPU");
    else if (!ask->whole)
        put(t, " of each of %" PRIu32 " GPUs", ask->cards);
}

static void put_words(struct text *t, const char *what, const char *words) {
    if (words)
        put(t, ", %s %.60s", what, words);
}

static void put_selection(struct text *t, const struct gpu_selection *selection) {
    put_words(t, "of model", selection->use_models);
    put_words(t, "not of model", selection->avoid_models);
    put_words(t, "of UUID", selection->use_uuids);
    put_words(t, "not of UUID", selection->avoid_uuids);
    put_words(t, "of index", selection->use_indexes);
    if (selection->topology == TOPOLOGY_RESTRICTED)
        put(t, ", with the best links");
    if (selection->numa_bind)
        put(t, ", on one NUMA node");
}

static void put_card(struct text *t, const struct state_card *card,
                     const struct place_card *place) {
    char memory[24];
    if (!card->healthy || card->duplicate)
        put(t, " GPU %" PRIu32 ": %s,", card->index,
            card->duplicate ? "listed twice" : "not healthy");
    else
        put(t, " GPU %" PRIu32 ": %" PRIu32 " %% and %s,", card->index, place->free.core,
            num_format_bytes(place->free.memory, memory));
}

static void put_node(struct text *t, struct state_node *node) {
    enum place_reason absent = state_node_absent(node);
    if (absent != PLACE_OK) {
        put(t, "; %s: %s", node->name, place_reason_text(absent));
        return;
    }
    put(t, "; %s has free", node->name);
    for (uint32_t i = 0; i < node->ncards; i++)
        put_card(t, node->cards[i], &node->place[i]);
    if (t->out[t->len - 1] == ',')
        t->out[--t->len] = '\0';
}

static void put_request(struct text *t, const struct gpu_request *request) {
    for (uint32_t i = 0; i < request->n && i < CONTAINERS_SHOWN; i++) {
        put(t, "%s", i ? ", " : "");
        put_ask(t, &request->asks[i]);
    }
    if (request->n > CONTAINERS_SHOWN)
        put(t, " and %" PRIu32 " more containers ask for GPU", request->n - CONTAINERS_SHOWN);
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
    size_t shown = 0, with_cards = 0;
    put_request(&t, request);
    if (selection)
        put_selection(&t, selection);
    for (size_t i = 0; i < n; i++) {
        struct state_node *node = candidates[i].node;
        if (!node || node->ncards == 0)
            continue;
        with_cards++;
        if (shown >= NODES_SHOWN || t.len + 1 >= t.max)
            continue;
        state_refresh(s, node);
        put_node(&t, node);
        shown++;
    }
    t.max = EXPLAIN_MAX;
    if (with_cards == 0)
        put(&t, "; none of the %zu nodes has a GPU", n);
    if (with_cards > shown)
        put(&t, "; and %zu more nodes", with_cards - shown);
}

void explain_malformed(const struct pod *pod, char out[static EXPLAIN_MAX]) {
    snprintf(out, EXPLAIN_MAX, "container %s: %s", pod->problem_container,
             request_problem_text(pod->problem));
}
