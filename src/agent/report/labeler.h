/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps the labels that describe the node's GPUs: on the Node itself, or in a file of node feature
 * discovery. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/labels/node_labels.h"
#include "agent/os/pci.h"

struct node_config;

struct labeler_options {
    const char *place;                /* "node", "off", or the absolute path of a file */
    const char *sys_dir;              /* where sysfs is */
    const struct node_config *config; /* replicas and the MIG strategy; NULL: the defaults */
};

struct labeler {
    const struct labeler_options *options;
    struct node_labels have;
    bool node_known;
    struct pci_facts pci;
    char machine[256];
    uint64_t read_ms;  /* when sysfs was read, CLOCK_MONOTONIC; 0: never */
    uint64_t written;  /* hash of the file's content */
    char trouble[256]; /* of the file; "": none */
};

/* Takes the labels of the Node as the API server has it. */
void labeler_see_node(struct labeler *l, struct json node);

/* Brings the file up to date if there is one. Writes the patch that the Node needs to `ret` and
 * returns true if it needs one. */
bool labeler_update(struct labeler *l, const struct gpu_snapshot *s, struct buf *ret);

void labeler_done(struct labeler *l);
