/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cards of a cluster and who holds what of them, as the GPU objects say. */

#include <stdint.h>

#include "base/err.h"
#include "wire/json.h"

/* Texts are borrowed from the document, and never NULL. */
struct holder {
    const char *namespace, *pod, *uid, *container;
    uint64_t core, memory; /* percent of the card, bytes */
};

/* A share that is kept for what has no pod there: a claim, a reservation, a pod that waits. */
struct kept {
    const char *by;
    uint64_t core, memory;
};

struct card {
    const char *name, *node, *model, *uuid;
    const char *state;       /* "Unavailable" of a healthy card of which nothing can be had */
    const char *unavailable; /* why; "" otherwise */
    uint64_t index;
    uint64_t core, memory;           /* what is sold of it; 0 while the agent has not said */
    uint64_t free_core, free_memory; /* of it, now */
    uint64_t unattributed;           /* bytes in use that belong to no container */
    size_t nholders;
    struct holder *holders; /* by namespace, pod and container */
    size_t nkept;
    struct kept *kept;
};

struct cards {
    size_t n;
    struct card *list; /* by node and index */
    struct json_parser *parser;
};

/* Asks the cluster by kubectl. 0, or a negative errno with a reason. */
int cards_ask(struct cards *ret, struct err *err);

/* Reads a list of GPU objects; what is no GPU object in it is left out. */
int cards_read(const char *text, size_t len, struct cards *ret, struct err *err);
void cards_done(struct cards *cards);
void card_done(struct card *card); /* of one that is taken out of the list */

/* What is sold and not free; of a card of which nothing can be had, what is held and kept. */
uint64_t card_taken_core(const struct card *card);
uint64_t card_taken_memory(const struct card *card);
