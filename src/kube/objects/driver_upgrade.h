/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the labels of a Node say of an upgrade of its driver: those of the GPU operator's upgrade
 * controller (nvidia.com/gpu-driver-upgrade-state) and of its driver manager, which pauses the
 * users of the driver (nvidia.com/gpu.deploy.*) before it unloads it. */

#include "wire/json.h"

enum driver_upgrade {
    DRIVER_UPGRADE_NONE,
    DRIVER_UPGRADE_CORDON,  /* it is about to begin */
    DRIVER_UPGRADE_DRAIN,   /* pods with GPUs are to end */
    DRIVER_UPGRADE_RELEASE, /* the driver is unloaded and loaded, or that has failed */
};

#define DRIVER_UPGRADE_LABEL_MAX 80

/* Of a pod, with the value "true": the upgrade controller does not evict it. */
#define DRIVER_UPGRADE_SKIP_LABEL "nvidia.com/gpu-driver-upgrade-drain.skip"

/* `metadata` of a Node. ret_label gets the label that says so, as "name=value"; "" for NONE. */
enum driver_upgrade driver_upgrade_read(struct json metadata,
                                        char ret_label[static DRIVER_UPGRADE_LABEL_MAX]);
