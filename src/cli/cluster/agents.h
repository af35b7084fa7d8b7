/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The use of cards as their agents see it: GET /usage of each, through the API server. */

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/hash.h"
#include "cli/cluster/cards.h"
#include "wire/json.h"

struct agent {
    UT_hash_handle hh;
    char *pod, *node;
    bool tls;                   /* of its port */
    struct json_parser *parser; /* of its page; NULL: it did not answer */
    struct json usage;
};

/* A card or a MIG instance in the page of an agent. */
struct agent_card {
    UT_hash_handle hh;
    struct json card;
};

struct agents {
    struct agent *list;
    size_t n;
    struct agent *by_node; /* of two on a node the one that answered */
    struct agent_card *cards, *by_uuid;
    char denied[ERR_TEXT_MAX]; /* why agents do not let this user read their pages; "": they do */
    size_t ndenied;            /* so many do not */
};

/* Asks all agents in the namespace at once, but those that have ended or are on no node. One that
 * does not answer in time costs its node the figures of use, and `trouble` is called for it, but
 * not for those that `denied` is about. */
int agents_read(const char *system, void (*trouble)(const char *pod, const char *text),
                struct agents *ret, struct err *err);
void agents_done(struct agents *agents);

/* Reads a page as agents have it, of cards on any nodes. */
int agents_of_page(const struct buf *page, struct agents *ret, struct err *err);

/* What is asked for of GET /history. */
struct history_source {
    const char *system; /* as above */
    const char *query;  /* such as "namespace=NS&pod=NAME"; "": everything */
    /* A container on one of its devices, as on the page; it does not outlive the call. */
    void (*take)(void *arg, struct json record, uint64_t step_ms);
    void *arg;
    void (*trouble)(const char *pod, const char *text);
};

/* Asks the agents that have answered before, a bounded number at a time. */
void agents_history(const struct agents *agents, const struct history_source *of);

/* Asks the agents of these nodes, without reading what is used. 0 or a negative errno. */
int agents_history_of(const char *const *nodes, size_t n, const struct history_source *of,
                      struct err *err);

/* Asks them, so many at once, and calls `each` for one after the other: of a large cluster no more
 * than that is held at a time. `agent` is valid during the call; without a parser it did not
 * answer. A negative result of `each` ends it and is the result. -EACCES at the end, where agents
 * let this user read nothing. */
int agents_each(const char *system, int (*each)(const struct agent *agent, void *userdata),
                void *userdata, struct err *err);

/* Appends a page of the node's agent, such as "usage", to *ret. -ENOENT: there is no agent; or what
 * the request ended with. */
int agents_page(const char *system, const char *node, const char *page, struct buf *ret,
                struct err *err);

/* The card as its agent sees it; invalid where none does. */
struct json agents_find(const struct agents *agents, const char *uuid);

/* Whether the node has an agent that answered, and whether it has agents of which none did. */
bool agents_answers(const struct agents *agents, const char *node);
bool agents_silent(const struct agents *agents, const char *node);

/* What the container uses of the card, which its agent describes in `use`. */
struct json agents_holder(struct json use, const struct holder *holder);
