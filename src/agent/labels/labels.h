/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The labels of a node that say which GPUs it has: those of NVIDIA's GPU feature discovery 0.20
 * with its keys and values, and where the cards are of several models some for each model. No I/O
 * and no clock.
 *
 * GPU feature discovery merges the models of a node in an order that changes with each pass. Here
 * nvidia.com/gpu.* describes the card of the lowest index that is not in MIG mode, or the card of
 * the lowest index if all are, and elasticgpu.io/PRODUCT.* describes each model. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/mig_strategy.h"

struct gpu_device;
struct gpu_snapshot;
struct pci_facts;

#define LABEL_KEY_SIZE 128
#define LABEL_VALUE_SIZE 64 /* 63 characters, as Kubernetes has it */

struct label {
    char key[LABEL_KEY_SIZE];
    char value[LABEL_VALUE_SIZE];
};

/* Sorted by key. All zero: empty. */
struct label_set {
    struct label *labels;
    size_t n, room;
    bool incomplete; /* memory ran out */
};

/* How kubelet is offered one resource, where that is not "each device once". */
struct label_sharing {
    const char *resource; /* "nvidia.com/gpu" */
    uint32_t replicas;    /* of each device */
    bool renamed;
    const char *strategy; /* "time-slicing" or "mps" */
};

struct label_facts {
    const struct gpu_snapshot *devices;
    const char *machine; /* of its maker; NULL: unknown */
    const struct pci_facts *pci;
    enum mig_strategy strategy;
    const struct label_sharing *sharing;
    size_t nsharing;
};

/* Makes *ret the labels; label_set_done() frees it. -ENOMEM: it is not usable. Without a card it
 * has vgpu.present alone, as GPU feature discovery. */
int labels_of_node(const struct label_facts *facts, struct label_set *ret);

/* The card that nvidia.com/gpu.* describes; NULL: all cards are in MIG mode, or there is none. */
const struct gpu_device *labels_first_card(const struct gpu_snapshot *s);

/* Adds a label, or changes its value; too long a text is cut. */
void label_put(struct label_set *set, const char *key, const char *value);

/* The value of a key, or NULL. */
const char *label_find(const struct label_set *set, const char *key);

void label_set_done(struct label_set *set);
