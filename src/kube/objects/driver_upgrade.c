/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/driver_upgrade.h"

#include <stdio.h>
#include <string.h>

#define STATE_LABEL "nvidia.com/gpu-driver-upgrade-state"
#define DEPLOY_PREFIX "nvidia.com/gpu.deploy."
#define PAUSED "paused-for-driver-upgrade"

static const struct {
    const char *state;
    enum driver_upgrade means;
} states[] = {
    {"cordon-required", DRIVER_UPGRADE_CORDON},
    {"wait-for-jobs-required", DRIVER_UPGRADE_CORDON},
    {"pod-deletion-required", DRIVER_UPGRADE_DRAIN},
    {"drain-required", DRIVER_UPGRADE_DRAIN},
    {"node-maintenance-required", DRIVER_UPGRADE_RELEASE},
    {"pod-restart-required", DRIVER_UPGRADE_RELEASE},
    {"upgrade-failed", DRIVER_UPGRADE_RELEASE},
};

static enum driver_upgrade meaning_of(const char *name, const char *value) {
    if (strncmp(name, DEPLOY_PREFIX, strlen(DEPLOY_PREFIX)) == 0)
        return strcmp(value, PAUSED) == 0 ? DRIVER_UPGRADE_RELEASE : DRIVER_UPGRADE_NONE;
    for (size_t i = 0; strcmp(name, STATE_LABEL) == 0 && i < sizeof(states) / sizeof(states[0]);
         i++)
        if (strcmp(value, states[i].state) == 0)
            return states[i].means;
    return DRIVER_UPGRADE_NONE;
}

enum driver_upgrade driver_upgrade_read(struct json metadata,
                                        char ret_label[static DRIVER_UPGRADE_LABEL_MAX]) {
    enum driver_upgrade most = DRIVER_UPGRADE_NONE;
    struct json_iter it = json_iter(json_get(metadata, "labels"));
    struct json item;
    const char *name;

    ret_label[0] = 0;
    while (json_next(&it, &name, &item)) {
        const char *value = json_string(item);
        enum driver_upgrade means = name && value ? meaning_of(name, value) : DRIVER_UPGRADE_NONE;

        if (means <= most)
            continue;
        most = means;
        (void) snprintf(ret_label, DRIVER_UPGRADE_LABEL_MAX, "%s=%s", name, value);
    }
    return most;
}
