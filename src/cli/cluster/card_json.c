/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/card_json.h"

#include <string.h>

/* A number of an agent's page under another name; nothing where the agent does not say it. */
static void copy_number(struct json_writer *w, const char *key, struct json from,
                        const char *name) {
    uint64_t value;

    if (json_u64(json_get(from, name), &value))
        json_put_u64(w, key, value);
}

static void write_holder_use(struct json_writer *w, struct json use) {
    const char *state = json_string(json_get(use, "memoryState"));

    json_object_begin(w, "use");
    copy_number(w, "memory", use, "memoryDriver");
    copy_number(w, "percent", use, "coreUsed");
    if (state)
        json_put_string(w, "memoryState", state);
    json_object_end(w);
}

void holder_write_claim(struct json_writer *w, const struct holder *h, const char *container) {
    json_put_string(w, "claim", h->claim);
    json_array_begin(w, "users");
    for (size_t i = 0; i < h->nusers; i++) {
        json_object_begin(w, NULL);
        json_put_string(w, "pod", h->users[i].pod);
        json_put_string(w, container, h->users[i].container);
        json_object_end(w);
    }
    json_array_end(w);
}

static void write_holder(struct json_writer *w, const struct holder *h, struct json card_use) {
    struct json use = agents_holder(card_use, h);

    json_object_begin(w, NULL);
    json_put(w, "namespace", h->namespace, "pod", h->pod, "uid", h->uid, "container", h->container,
             "core", h->core, "memory", h->memory);
    if (h->claim[0])
        holder_write_claim(w, h, "container");
    if (json_valid(use))
        write_holder_use(w, use);
    json_object_end(w);
}

static void write_lists(struct json_writer *w, const struct card *card, struct json use) {
    json_array_begin(w, "holders");
    for (size_t i = 0; i < card->nholders; i++)
        write_holder(w, &card->holders[i], use);
    json_array_end(w);
    json_array_begin(w, "held");
    for (const struct kept *kept = card->kept; kept < card->kept + card->nkept; kept++) {
        json_object_begin(w, NULL);
        json_put(w, "by", kept->by, "core", kept->core, "memory", kept->memory);
        json_object_end(w);
    }
    json_array_end(w);
}

static void write_card(struct json_writer *w, const struct card *card, struct json use) {
    json_object_begin(w, NULL);
    json_put(w, "name", card->name, "index", card->index, "uuid", card->uuid, "model", card->model);
    if (card->parent[0])
        json_put(w, "parent", card->parent, "profile", card->profile);
    json_put_string(w, "state", card->state);
    if (card->unavailable[0])
        json_put_string(w, "unavailable", card->unavailable);
    json_put(w, "core", card->core, "memory", card->memory, "freeCore", card->free_core,
             "freeMemory", card->free_memory, "unattributed", card->unattributed);
    if (json_valid(use)) {
        json_object_begin(w, "use");
        copy_number(w, "memory", use, "memoryUsed");
        copy_number(w, "percent", use, "utilization");
        json_object_end(w);
    }
    write_lists(w, card, use);
    json_object_end(w);
}

void cards_document(const struct cards *cards, const struct agents *agents, struct json_writer *w) {
    json_object_begin(w, NULL);
    json_array_begin(w, "nodes");
    for (size_t i = 0; i < cards->n;) {
        const char *node = cards->list[i].node;
        json_object_begin(w, NULL);
        json_put_string(w, "name", node);
        if (agents)
            json_put_bool(w, "agentAnswers", agents_answers(agents, node));
        json_array_begin(w, "gpus");
        for (; i < cards->n && strcmp(cards->list[i].node, node) == 0; i++)
            write_card(w, &cards->list[i],
                       agents ? agents_find(agents, cards->list[i].uuid) : (struct json){0});
        json_array_end(w);
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

void cards_node_names(const struct cards *cards, struct buf *out) {
    for (size_t i = 0; i < cards->n; i++)
        if (i == 0 || strcmp(cards->list[i].node, cards->list[i - 1].node) != 0)
            buf_printf(out, "node/%s\n", cards->list[i].node);
}

void cards_names(const struct cards *cards, struct buf *out) {
    for (size_t i = 0; i < cards->n; i++)
        buf_printf(out, "gpu.elasticgpu.io/%s\n", cards->list[i].name);
}
