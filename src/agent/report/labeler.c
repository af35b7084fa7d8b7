/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/labeler.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/config/card_config.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/server_time.h"
#include "base/text.h"

#define READ_MS 60000
#define LABELS_MAX ((size_t) 256 << 10)

static void read_machine(const char *sys_dir, char *ret, size_t size) {
    _cleanup_buf_ struct buf text = BUF_INIT(64 << 10);
    char path[512];

    (void) snprintf(path, sizeof(path), "%s/class/dmi/id/product_name", sys_dir);
    text_copy(ret, size, file_read(path, 4096, &text, NULL) == 0 ? buf_str(&text) : "unknown");
}

/* A card can be bound to another driver while the agent runs. */
static void read_sysfs(struct labeler *l) {
    char path[512];

    if (l->read_ms != 0 && clock_ms(CLOCK_MONOTONIC) - l->read_ms < READ_MS)
        return;
    (void) snprintf(path, sizeof(path), "%s/bus/pci/devices", l->options->sys_dir);
    pci_read(path, &l->pci);
    read_machine(l->options->sys_dir, l->machine, sizeof(l->machine));
    l->read_ms = clock_ms(CLOCK_MONOTONIC);
}

/* The labels of a resource are of its first device, as the other labels are of the first card. */
static size_t find_sharing(const struct node_config *c, const struct gpu_snapshot *s,
                           struct label_sharing ret[static CONFIG_ROWS_MAX + 1]) {
    const char *strategy = c->sharing == CONFIG_MPS ? "mps" : "time-slicing";
    const struct gpu_device *card = labels_first_card(s);
    struct card_replicas own;
    struct config_offer offer;
    size_t n = 0;

    if (card && config_card_replicas(c, s, card, &own))
        ret[n++] = (struct label_sharing){CONFIG_GPU, own.count, !own.as_cards, strategy};
    else if (card && config_card_offer(c, s, card, &offer) && offer.replicas > 1)
        ret[n++] = (struct label_sharing){CONFIG_GPU, offer.replicas, offer.renamed, strategy};
    for (size_t i = 0; i < c->nreplicas; i++) {
        const struct config_replicas *r = &c->replicas[i];

        if (!card || strcmp(r->name, CONFIG_GPU) != 0)
            ret[n++] = (struct label_sharing){r->name, r->replicas, strcmp(r->name, r->rename) != 0,
                                              strategy};
    }
    return n;
}

static int find_labels(struct labeler *l, const struct gpu_snapshot *s, struct label_set *ret) {
    const struct node_config *c = l->options->config;
    struct label_sharing sharing[CONFIG_ROWS_MAX + 1];
    const struct label_facts facts = {.devices = s,
                                      .machine = l->machine,
                                      .pci = &l->pci,
                                      .strategy = c ? (enum mig_strategy) c->mig_strategy
                                                    : MIG_STRATEGY_NONE,
                                      .sharing = sharing,
                                      .nsharing = c ? find_sharing(c, s, sharing) : 0};

    read_sysfs(l);
    return labels_of_node(&facts, ret);
}

static void write_file(struct labeler *l, const struct label_set *want) {
    _cleanup_buf_ struct buf text = BUF_INIT(LABELS_MAX);
    struct err err;
    uint64_t hash;

    node_labels_file(want, &text);
    hash = hash_bytes(HASH_START, text.data, text.len);
    if (buf_error(&text) < 0 || hash == l->written)
        return;
    if (file_replace(l->options->place, text.data, text.len, 0644, &err) == 0) {
        l->written = hash;
        l->trouble[0] = 0;
        log_info("%s has the labels of the node's GPUs", l->options->place);
    } else if (strcmp(l->trouble, err.text) != 0) {
        text_copy(l->trouble, sizeof(l->trouble), err.text);
        log_warn("the labels of the node's GPUs: %s", err.text);
    }
}

void labeler_see_node(struct labeler *l, struct json node) {
    struct node_labels labels;

    if (node_labels_read(node, &labels) < 0)
        return;
    node_labels_done(&l->have);
    l->have = labels;
    l->node_known = true;
}

bool labeler_update(struct labeler *l, const struct gpu_snapshot *s, struct buf *ret) {
    static const struct label_set none;
    bool on_node = strcmp(l->options->place, "node") == 0, differ;
    struct label_set found = {0};

    if (strcmp(l->options->place, "off") != 0 && find_labels(l, s, &found) < 0)
        return false;
    if (l->options->place[0] == '/')
        write_file(l, &found);
    /* What an agent with another option has left on the Node goes. */
    differ = l->node_known && node_labels_differ(&l->have, on_node ? &found : &none);
    if (differ)
        node_labels_patch(&l->have, on_node ? &found : &none, server_time(), ret);
    label_set_done(&found);
    return differ;
}

void labeler_done(struct labeler *l) {
    node_labels_done(&l->have);
}
