/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whole MIG instances as extended resources, by the names and rules of NVIDIA's device plugin. With
 * strategy `mixed` each profile is a resource, nvidia.com/mig-<profile>. With `single` the
 * instances are nvidia.com/gpu, on a node whose cards are all divided into instances of one
 * profile. IDs are UUIDs. An instance whose compute instance is only a part of the GPU instance
 * ("1c.3g.40gb") is in no resource that the configuration does not name. */

#include <stdbool.h>

#include "agent/backends/resource.h"
#include "base/err.h"
#include "gpu/device.h"
#include "model/mig_strategy.h"

#define MIG_NAME_MAX 128 /* of a resource */

/* The resources of the node's instances. What is set here may change while the rows are served. */
struct mig_rows {
    enum mig_strategy strategy;
    const char *elsewhere; /* names with commas between that another plugin serves; NULL: none */
    /* The resource that the configuration names for instances of a profile; NULL: none. A function
     * that is NULL names none. */
    const char *(*named)(const char *profile, void *userdata);
    void *userdata;
    struct mig_row *list; /* mig_rows.h */
    struct err trouble;   /* why `single` cannot serve the node; code 0: it can */
};

/* The resource of a device; "": none. */
void mig_resource_of(const struct mig_rows *m, const struct gpu_device *d,
                     char ret[static MIG_NAME_MAX]);

/* One resource. A row whose name no device has any more lists nothing. */
struct mig_row {
    struct resource resource; /* its data is this row */
    const struct mig_rows *rows;
    char name[MIG_NAME_MAX], socket[RESOURCE_SOCKET_MAX + 1];
    bool added, failed; /* kubelet has it; a failure is logged */
    struct mig_row *next;
};

/* Fills a row. Its texts point into it: it must not move. */
void mig_row_make(struct mig_row *row, const struct mig_rows *m, const char *name);

/* Whether the strategy `single` can serve the node. -EINVAL: `why` has what is in its way. A node
 * without a divided card has no instances, which is no error. */
int mig_check_single(const struct gpu_snapshot *s, struct err *why);
