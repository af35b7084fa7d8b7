/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The ConfigMap with the configurations of nodes, of which the node's label chooses one. */

#include "agent/config/config_choice.h"
#include "wire/json.h"

struct config_map;
struct err;
struct kube_client;

struct config_map_options {
    const char *namespace, *name; /* of the ConfigMap */
    const char *label;            /* its key */
    struct config_choice choice;
    /* The text of the entry that applies; called again when it can have changed. */
    void (*on_text)(const char *entry, const char *text, void *userdata);
    /* None applies. */
    void (*on_trouble)(const char *why, void *userdata);
    void *userdata;
};

/* The texts of `options` have to live as long. */
int config_map_start(struct kube_client *client, const struct config_map_options *options,
                     struct config_map **ret, struct err *err);

/* The node as the API server has it. Nothing is chosen before the first call. */
void config_map_see_node(struct config_map *m, struct json node);

void config_map_stop(struct config_map *m); /* takes NULL */
