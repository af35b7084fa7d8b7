/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whole devices as extended resources, by the names and rules of NVIDIA's device plugin: cards that
 * the configuration has kubelet give out, MIG instances, and replicas of both. With strategy
 * `mixed` each profile is a resource, nvidia.com/mig-<profile>. With `single` the instances are
 * nvidia.com/gpu, on a node whose cards are all divided into instances of one profile. IDs are
 * UUIDs. An instance whose compute instance is only a part of the GPU instance
 * ("1c.3g.40gb") is in no resource that the configuration does not name. */

#include <stdbool.h>

#include "agent/backends/resource.h"
#include "base/err.h"
#include "gpu/device.h"
#include "model/mig_strategy.h"

#define WHOLE_NAME_MAX 128 /* of a resource */

struct config_offer;
struct node_config;

/* The resources of the node's devices. What is set here may change while the rows are served. */
struct whole_rows {
    const struct node_config *config; /* NULL: no cards, and no replicas */
    enum mig_strategy strategy;
    const char *elsewhere; /* names with commas between that another plugin serves; NULL: none */
    /* The resource that the configuration names for instances of a profile; NULL: none. A function
     * that is NULL names none. */
    const char *(*named)(const char *profile, void *userdata);
    void *userdata;
    struct whole_row *list; /* whole_rows.h */
    struct err trouble;     /* why `single` cannot serve the node; code 0: it can */
};

/* The resource of an instance by the strategy; "": none. */
void whole_instance_resource(const struct whole_rows *m, const struct gpu_device *d,
                             char ret[static WHOLE_NAME_MAX]);

/* How kubelet is offered a device; false: it does not give it out. */
bool whole_offer_of(const struct whole_rows *m, const struct gpu_snapshot *s,
                    const struct gpu_device *d, struct config_offer *ret);

/* One resource. A row whose name no device has any more lists nothing. */
struct whole_row {
    struct resource resource; /* its data is this row */
    const struct whole_rows *rows;
    char name[WHOLE_NAME_MAX], socket[RESOURCE_SOCKET_MAX + 1];
    bool added, failed; /* kubelet has it; a failure is logged */
    struct whole_row *next;
};
